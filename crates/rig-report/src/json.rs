//! The whole document for programs.

use std::io;

use rig_study::export::{FORMAT, VERSION};
use serde::Serialize;

use super::document::Document;

#[derive(Serialize)]
struct Envelope<'a> {
    format: &'static str,
    version: u32,
    #[serde(flatten)]
    document: &'a Document,
}

pub fn write(document: &Document, out: &mut dyn io::Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, &Envelope { format: FORMAT, version: VERSION, document })?;
    out.write_all(b"\n")
}
