//! The receive spreader as a service: which CPU processes what an interface receives, moved while it is received.
//!
//! ```text
//! kernel's counters ──> Observation ── rig_spread::plan ──> moves ──> Actuator: threads of NAPI, RPS masks, ...
//! netrig spread run ── daemon: takes interfaces by rules, looks, moves, logs, leaves all as it was ──┐
//! netrig spread show, set, get, base, events ── client: one Request, one Reply ── listing ───────────┘
//! ```
//!
//! What is printed is a pure function of a [`message::Status`].

#![forbid(unsafe_code)]

pub mod actuator;
pub mod client;
pub mod command;
mod daemon;
#[cfg(feature = "fuzz")]
mod exercise;
mod instance;
mod listing;
pub mod message;
mod metrics;
pub mod settings;
mod simulate;

#[cfg(feature = "fuzz")]
pub use exercise::exercise;
pub use instance::SPREADER;
use rig_cli::schema::{Schema, described};

/// The JSON Schemas of what is published, by file name in docs/schema.
pub fn schemas() -> [(&'static str, Schema); 3] {
    [
        (
            "spread-status.json",
            described::<message::Status>("A running spreader", "What `netrig spread show --json` writes."),
        ),
        (
            "spread-probe.json",
            described::<actuator::ProbeReport>(
                "What could move an interface's receive work",
                "What `netrig spread probe --json` writes.",
            ),
        ),
        (
            "spread-events.json",
            described::<message::LogEntry>(
                "Something that a spreader did or saw",
                "Each line that `netrig spread events --json` writes.",
            ),
        ),
    ]
}
