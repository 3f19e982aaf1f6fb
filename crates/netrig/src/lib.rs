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
pub mod record;
pub mod report;
pub mod run;
pub mod store;
pub mod suite;
pub mod tool;

use rig_cli::schema::Schema;

/// The JSON Schemas of what is published, by file name in docs/schema.
pub fn schemas() -> Vec<(&'static str, Schema)> {
    let all = [&report::export::schemas()[..], &netrig_tools::schemas(), &netrig_lb::schemas()];
    all.concat()
}
