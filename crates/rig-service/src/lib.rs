//! What the services of netrig have in common: where they are found, that there is one of each, how they are asked, and
//! their metrics.
#![forbid(unsafe_code)]

pub mod ask;
pub mod bpf_file_system;
pub mod files;
pub mod http;
pub mod lock;
pub mod openmetrics;
pub mod run_directory;
