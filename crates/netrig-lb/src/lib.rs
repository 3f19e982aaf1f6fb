//! `netrig lb`: the layer-4 balancer of rig-datapath as a service on this machine.
//!
//! ```text
//! netrig lb run FILE ── control plane: owns the tables, attaches, sweeps, serves ──┐
//! netrig lb -A/-a/-L ..., drops, trace ── one Request, one Reply, over a socket ───┘
//! ```
//!
//! [`command`] chooses what does it: [`ipvsadm`] for options, `views` for what is looked at. Their texts are made by pure
//! functions of a [`message::Status`]: `listing`, `drops`, `overview`, `trace_text`, [`metrics`].
//!
//! All changes go through the control plane, which alone writes the tables; [`message`] is what is said over the socket.

#![forbid(unsafe_code)]

mod access_text;
mod bgp;
mod capacity;
mod capture;
pub mod client;
pub mod command;
pub mod control;
mod daemon;
mod drops;
#[cfg(feature = "fuzz")]
pub mod exercise;
#[cfg(test)]
mod fixture;
mod health;
mod import;
pub mod instance;
mod ipvs;
pub mod ipvsadm;
pub mod listing;
pub mod message;
pub mod metrics;
mod names;
mod overview;
mod ready;
mod receive;
pub mod settings;
mod sources_text;
mod sync;
mod trace_text;
mod views;

pub use instance::BALANCER;
use rig_cli::schema::{Schema, described};

/// The JSON Schemas of what is published, by file name in docs/schema.
pub fn schemas() -> [(&'static str, Schema); 5] {
    [
        (
            "lb-status.json",
            described::<message::Status>(
                "A running balancer",
                "What `netrig lb status --json` and `netrig lb -L --json` write.",
            ),
        ),
        (
            "lb-connections.json",
            described::<message::ConnectionEntry>(
                "A connection of a balancer",
                "Each line that `netrig lb -L -c --json` writes.",
            ),
        ),
        (
            "lb-local.json",
            described::<Vec<listing::ServiceLocals>>(
                "Local addresses of a balancer",
                "What `netrig lb -G --json` writes.",
            ),
        ),
        (
            "lb-sources.json",
            described::<message::SourceList>(
                "Sources with the most connections",
                "What `netrig lb sources --json` writes.",
            ),
        ),
        (
            "lb-trace.json",
            described::<message::Trace>(
                "The way of a packet through a balancer",
                "What `netrig lb trace --json` writes.",
            ),
        ),
    ]
}
