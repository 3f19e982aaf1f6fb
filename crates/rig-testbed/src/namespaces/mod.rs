//! The namespaces of this machine that nodes live in, and how a plan is built in them.

mod build;
mod namespace;
mod taken;
mod uses;

pub use build::{Namespaces, NodeSpaces};
pub use namespace::Namespace;
pub(crate) use taken::mend;
pub(crate) use uses::Uses;
