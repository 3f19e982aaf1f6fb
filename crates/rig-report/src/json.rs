//! The whole document for programs.

use std::io;

use rig_cli::visible::visible;
use rig_verdict::export::{FORMAT, VERSION};
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
    let text = serde_json::to_string_pretty(&Envelope { format: FORMAT, version: VERSION, document })?;
    out.write_all(visible(&text).as_bytes())?;
    out.write_all(b"\n")
}
