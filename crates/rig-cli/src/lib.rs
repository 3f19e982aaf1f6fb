//! What all commands of netrig have in common: how they end, what they say to their user, and where their processes find
//! each other.
#![forbid(unsafe_code)]

pub mod ask;
pub mod bpf_file_system;
pub mod exit;
pub mod forms;
pub mod help;
pub mod http;
pub mod lock;
pub mod look;
pub mod mistakes;
pub mod openmetrics;
pub mod packet;
pub mod run_directory;
pub mod schema;
pub mod streams;
pub mod visible;
pub mod words;
