//! `netrig top`: what receives packets, live.
//!
//! ```text
//! kernel, programs, services ── Source ──> Reading (totals) ── between ──> Sample (rates) ──> --json
//! Samples of the last minute, what is chosen ── View (tables as values) ── draw ──> screen
//! ```
//! Of other machines, `netrig top --json --compact` runs there, and its samples come here as lines ([`hosts`]): a view of each.
//!
//! A view is a pure function of samples; drawing one is a pure function of it and the screen's size.

#![forbid(unsafe_code)]

mod between;
pub mod command;
mod compact;
mod draw;
mod feed;
mod history;
pub mod hosts;
mod reading;
pub mod sample;
mod screen;
mod source;
mod theme;
mod view;

use rig_cli::schema::{Schema, described};

/// The JSON Schemas of what is published, by file name in docs/schema.
pub fn schemas() -> [(&'static str, Schema); 1] {
    let what = "Each line that `netrig top --json` writes.";
    [("top.json", described::<sample::Sample>("What received packets in an interval", what))]
}
