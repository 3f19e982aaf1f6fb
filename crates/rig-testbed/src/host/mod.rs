//! Where nodes live.

mod namespaces;
mod place;

pub use namespaces::Namespaces;
pub use place::Place;
