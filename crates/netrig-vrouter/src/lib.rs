//! The vRouter of rig-datapath as a service: what a set of nodes shall do, and what each of them has to do for it.
//!
//! ```text
//! vrouter.toml --settings--> Settings ────────┐
//! RouteSource: the file, bgp --> RouteTable ──┼── compile --> rig_datapath::vrouter::Config of one node
//! the node's kernel, as a value: Site ────────┘
//! netrig vrouter run ── daemon: finds the Site, applies the Config, attaches, sweeps, answers ──┐
//! netrig vrouter vif, nh, rt, ... ── client: one Request, one Reply; listing ──────────────────┤
//! the CNI plug-in `netrig` ── cni: the same client, a veth pair, an IPAM plug-in ───────────────┤
//! netrig vrouter docker ── docker: the same client, a veth pair, calls of dockerd ───────────────┘
//! ```
//!
//! What is listed is made by pure functions of a [`message::Status`], of [`message::Table`]s or of [`message::FlowEntry`]s.

#![forbid(unsafe_code)]

pub mod bgp;
mod check;
pub mod client;
pub mod cni;
pub mod command;
pub mod compile;
mod daemon;
mod docker;
#[cfg(feature = "fuzz")]
mod exercise;
pub mod filter;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod fixture;
pub mod follow;
mod instance;
pub mod listing;
pub mod lookup;
pub mod message;
mod metrics;
mod pair;
pub mod rates;
pub mod routes;
pub mod settings;

#[cfg(feature = "fuzz")]
pub use exercise::exercise;
pub use instance::ROUTER;
use rig_cli::schema::{Schema, described};

/// The JSON Schemas of what is published, by file name in docs/schema.
pub fn schemas() -> [(&'static str, Schema); 7] {
    [
        (
            "vrouter-status.json",
            described::<message::Status>(
                "A running vRouter",
                "What `netrig vrouter status --json` writes; `vif`, `nh`, `mpls`, `vxlan`, `vrfstats` and `dropstats` write parts of it.",
            ),
        ),
        (
            "vrouter-routes.json",
            described::<Vec<message::Table>>("Routes of a vRouter", "What `netrig vrouter rt --json` writes."),
        ),
        (
            "vrouter-flows.json",
            described::<Vec<message::FlowEntry>>(
                "Flows of a vRouter",
                "What `netrig vrouter flow -l | --match | --get --json` writes.",
            ),
        ),
        (
            "vrouter-trace.json",
            described::<message::Trace>(
                "The way of a packet through a vRouter",
                "What `netrig vrouter trace --json` writes.",
            ),
        ),
        (
            "vrouter-log.json",
            described::<message::LogEntry>(
                "What a rule has decided about a flow",
                "A line of what `netrig vrouter log --json` writes.",
            ),
        ),
        (
            "vrouter-interface-rates.json",
            described::<rates::InterfaceRates>(
                "How busy interfaces of a vRouter are",
                "A line of what `netrig vrouter vif --rate --json` writes.",
            ),
        ),
        (
            "vrouter-flow-rates.json",
            described::<rates::FlowRates>(
                "How many connections begin and end at a vRouter",
                "A line of what `netrig vrouter flow -r --json` writes.",
            ),
        ),
    ]
}
