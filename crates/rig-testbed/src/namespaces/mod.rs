//! The namespaces of this machine that nodes live in, and how a plan is built in them.

mod build;
mod place;

pub use build::{Namespaces, NodeSpaces};
pub use place::Place;
