//! What all commands of netrig have in common: how they end, and what they say to their user.
#![forbid(unsafe_code)]

pub mod exit;
pub mod forms;
pub mod help;
pub mod look;
pub mod mistakes;
pub mod packet;
pub mod schema;
pub mod source;
pub mod streams;
pub mod visible;
pub mod words;
