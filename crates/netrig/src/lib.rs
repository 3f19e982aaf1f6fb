//! netrig's parts; the binary in `main.rs` is their table of contents.
#![forbid(unsafe_code)]

pub mod claim;
pub mod cli;
pub mod command;
pub mod compare;
pub mod doctor;
pub mod ends;
pub mod figures;
pub mod flame;
pub mod frontend;
pub mod lb;
pub mod record;
pub mod report;
pub mod run;
pub mod store;
pub mod suite;
