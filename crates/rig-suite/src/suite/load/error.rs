//! What is wrong with a load, and which of its keys say so.

use std::ops::Range;

use rig_load::plan::{PacketsError, PlanError};
use rig_packet::search::SearchError;
use rig_packet::{ConfigError, DivideError};
use rig_testbed::topology::TopologyError;

/// What errors of the end that receives begin with.
pub(super) const RECEIVER: &str = "at the receiver, ";

/// What is wrong with a load, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::suite) struct LoadError {
    pub what: String,
    pub hint: Option<String>,
    pub at: ErrorLocation,
}

/// Where in a load something is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::suite) enum ErrorLocation {
    /// At the first of these keys that it has: its own before those of the defaults. Without any of them at the load itself.
    Keys(&'static [&'static str]),
    Span(Range<usize>),
}

impl LoadError {
    /// One that says by itself what to do.
    pub fn plain(what: impl Into<String>, keys: &'static [&'static str]) -> Self {
        Self { what: what.into(), hint: None, at: ErrorLocation::Keys(keys) }
    }

    /// As `error`, which a plan made of the load has; `end` says of which end, where that is not both.
    pub fn of_plan(end: &str, error: &PlanError) -> Self {
        let keys = match (end, error) {
            (RECEIVER, PlanError::OutOfRange { what: "the message", .. }) => &["receive_message", "message"],
            _ => keys_of_plan(error),
        };
        Self::plain(format!("{end}{error}"), keys)
    }

    /// As `error`, which is about some keys.
    pub fn of_topology(TopologyError { what, hint }: TopologyError, keys: &'static [&'static str]) -> Self {
        Self { what, hint: Some(hint), at: ErrorLocation::Keys(keys) }
    }
}

/// The error that `what` is wrong with some keys.
pub(in crate::suite) fn error<T>(
    keys: &'static [&'static str],
    what: impl Into<String>,
    hint: impl Into<String>,
) -> Result<T, LoadError> {
    Err(LoadError { what: what.into(), hint: Some(hint.into()), at: ErrorLocation::Keys(keys) })
}

/// The keys that an error of a plan is about, the most likely first.
fn keys_of_plan(error: &PlanError) -> &'static [&'static str] {
    match error {
        PlanError::OutOfRange { what, .. } => keys_of_value(what),
        PlanError::TimeOutOfRange { .. } => &["timeout"],
        PlanError::Rate { .. } => &["rate"],
        PlanError::PacingWithoutRate => &["pacing"],
        PlanError::UringMode { .. } => &["send_mode"],
        PlanError::Memory { .. } => &["message", "outstanding", "batch", "segments", "connections", "threads"],
        PlanError::CongestionName(_) | PlanError::CongestionOfUdp(_) => &["congestion_control"],
        PlanError::NothingFalls { what, .. } => keys_of_pace(what),
        PlanError::Packets(PacketsError::Divide(error)) => keys_of_division(error),
        PlanError::Packets(_) => &[],
    }
}

fn keys_of_value(what: &str) -> &'static [&'static str] {
    match what {
        "threads" => &["threads"],
        "connections of a thread" => &["connections"],
        "threads x connections" => &["threads", "connections"],
        "the message" | "the datagram" => &["message"],
        "the send buffer" => &["send_buffer"],
        "the receive buffer" => &["receive_buffer"],
        "the throttle" => &["throttle"],
        "the number of outstanding operations" => &["outstanding"],
        "outstanding operations x connections of a thread" => &["outstanding", "connections"],
        "the batch" => &["batch"],
        "the segments" => &["segments"],
        "segments x datagram" => &["segments", "message"],
        "the request" => &["request"],
        "the response" => &["response"],
        "threads x connections x transactions in flight" => &["in_flight", "connections", "threads"],
        what if what.starts_with("the transactions in flight") => &["in_flight"],
        _ => &[],
    }
}

/// Of what leaves too seldom for a window.
fn keys_of_pace(what: &str) -> &'static [&'static str] {
    match what {
        "a transaction leaves" => &["rate"],
        "connections that are opened together leave" => &["launch", "connections_per_second", "search"],
        "a connection leaves" => &["connections_per_second", "search"],
        "a request leaves" => &["requests_per_second", "interval", "search"],
        _ => &["throttle", "segments", "message"],
    }
}

fn keys_of_division(error: &DivideError) -> &'static [&'static str] {
    match error {
        DivideError::Mtu { what, .. } => keys_of_size(what),
        DivideError::SourcePorts { .. } => &["client_ports", "workers"],
        DivideError::Servers { .. } => &["server_addresses", "workers"],
        DivideError::Sockets { .. } => &["hold", "search", "client_addresses"],
        DivideError::Capacity { .. } => &["hold", "search", "workers"],
        DivideError::Thread { error, .. } => keys_of_config(error),
        _ => &["workers"],
    }
}

fn keys_of_config(error: &ConfigError) -> &'static [&'static str] {
    match error {
        ConfigError::Addresses { .. } => &["client_addresses", "server_addresses"],
        ConfigError::Ports("source") => &["client_ports"],
        ConfigError::Ports(_) => &["server_ports"],
        ConfigError::Capacity(_) | ConfigError::Hold { .. } => &["hold", "search"],
        ConfigError::Rate { of: "requests", .. } => &["requests_per_second"],
        ConfigError::Rate { .. } => &["connections_per_second", "search"],
        ConfigError::Both(_) => &["interval", "requests_per_second"],
        ConfigError::Flood(_) => &["flood"],
        ConfigError::Message { what, .. } | ConfigError::NotHttp(what) => keys_of_size(what),
        ConfigError::Time { what: "request interval" | "idle time", .. } => &["interval"],
        ConfigError::Time { what: "retransmission time-out", .. } => &["retransmit"],
        ConfigError::Time { what: "time-out", .. } => &["timeout"],
        ConfigError::Count { what: "connections opened together", .. } => &["launch"],
        ConfigError::Count { what: "requests of a connection", .. } => &["requests"],
        ConfigError::Pipeline(_) | ConfigError::Count { what: "datagrams back to back", .. } => &["pipeline"],
        ConfigError::Count { what: "a window", .. } => &["send_window"],
        ConfigError::Count { what: "retransmissions", .. } => &["retries"],
        _ => &[],
    }
}

fn keys_of_size(what: &str) -> &'static [&'static str] {
    if what.contains("response") { &["response"] } else { &["request"] }
}

/// The key of a search's table that its error is about.
pub(in crate::suite) fn key_of_search(error: &SearchError) -> &'static str {
    match error.what {
        "a first rate" => "start",
        "a growth" => "growth",
        "a precision" => "precision",
        "a highest rate" => "most",
        _ => "late",
    }
}
