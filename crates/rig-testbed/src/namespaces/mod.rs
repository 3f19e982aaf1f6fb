//! The namespaces of this machine that nodes live in, and how a plan is built in them.

mod build;
mod namespace;
mod uses;

pub use build::{Namespaces, NodeSpaces};
pub use namespace::Namespace;
pub(crate) use uses::Uses;
