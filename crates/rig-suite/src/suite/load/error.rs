//! What is wrong with a load, and which of its keys say so.

use std::ops::Range;

use rig_load::plan::{Pace, PacketsError, PlanError, PlanValue};
use rig_packet::search::{SearchError, SearchValue};
use rig_packet::{ConfigError, ConfigValue, DivideError};
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
            (RECEIVER, PlanError::OutOfRange { what: PlanValue::Message, .. }) => &["receive_message", "message"],
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
        PlanError::OutOfRange { what, .. } | PlanError::OptionOfTcp(what) => keys_of_value(*what),
        PlanError::TimeOutOfRange { .. } => &["timeout"],
        PlanError::Rate { .. } => &["rate"],
        PlanError::PacingWithoutRate => &["pacing"],
        PlanError::UringMode { .. } => &["send_mode"],
        PlanError::Memory { .. } => &["message", "outstanding", "batch", "segments", "connections", "threads"],
        PlanError::MptcpForEach => &["mptcp"],
        PlanError::CongestionName(_) | PlanError::CongestionOfUdp(_) => &["congestion_control"],
        PlanError::NothingFalls { pace, .. } => keys_of_pace(*pace),
        PlanError::Packets(PacketsError::Divide(error)) => keys_of_division(error),
        // A suite has no source.
        PlanError::Packets(_) | PlanError::DeviceName(_) | PlanError::SourceFamily { .. } => &[],
    }
}

fn keys_of_value(value: PlanValue) -> &'static [&'static str] {
    match value {
        // Of the machine, which a suite does not say.
        PlanValue::Cpu => &[],
        PlanValue::Mss => &["mss"],
        PlanValue::HopLimit => &["ttl"],
        PlanValue::NotSentLowWater => &["not_sent_low_water"],
        PlanValue::BusyPoll => &["busy_poll"],
        PlanValue::Mptcp => &["mptcp"],
        PlanValue::Threads => &["threads"],
        PlanValue::Connections => &["connections"],
        PlanValue::AllConnections => &["threads", "connections"],
        PlanValue::Message | PlanValue::Datagram => &["message"],
        PlanValue::SendBuffer => &["send_buffer"],
        PlanValue::ReceiveBuffer => &["receive_buffer"],
        PlanValue::Throttle => &["throttle"],
        PlanValue::Outstanding => &["outstanding"],
        PlanValue::Ring => &["outstanding", "connections"],
        PlanValue::Batch => &["batch"],
        PlanValue::Segments => &["segments"],
        PlanValue::SegmentsTogether => &["segments", "message"],
        PlanValue::Request => &["request"],
        PlanValue::Response => &["response"],
        PlanValue::UnderWay => &["in_flight", "connections", "threads"],
        PlanValue::InFlight | PlanValue::InFlightOfOne | PlanValue::InFlightOfBytes => &["in_flight"],
    }
}

/// Of what leaves too seldom for a window.
fn keys_of_pace(pace: Pace) -> &'static [&'static str] {
    match pace {
        Pace::Transaction => &["rate"],
        Pace::Launch => &["launch", "connections_per_second", "search"],
        Pace::Connection => &["connections_per_second", "search"],
        Pace::RequestRate | Pace::RequestInterval => &["requests_per_second", "interval", "search"],
        Pace::Message | Pace::Segments | Pace::Datagram => &["throttle", "segments", "message"],
    }
}

fn keys_of_division(error: &DivideError) -> &'static [&'static str] {
    match error {
        DivideError::Mtu { what, .. } => keys_of_size(*what),
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
        ConfigError::Ports(ConfigValue::SourcePorts) => &["client_ports"],
        ConfigError::Ports(_) => &["server_ports"],
        ConfigError::Capacity(_) | ConfigError::Hold { .. } => &["hold", "search"],
        ConfigError::Rate { of: ConfigValue::Requests, .. } => &["requests_per_second"],
        ConfigError::Rate { .. } => &["connections_per_second", "search"],
        ConfigError::Both(_) => &["interval", "requests_per_second"],
        ConfigError::Flood(_) => &["flood"],
        ConfigError::Pipeline(_) => &["pipeline"],
        ConfigError::Message { what, .. } | ConfigError::NotHttp(what) => keys_of_size(*what),
        ConfigError::Time { what, .. } | ConfigError::Count { what, .. } => match what {
            ConfigValue::RequestInterval | ConfigValue::IdleTime => &["interval"],
            ConfigValue::RetransmissionTimeout => &["retransmit"],
            ConfigValue::Timeout => &["timeout"],
            ConfigValue::Launch => &["launch"],
            ConfigValue::RequestsOfConnection => &["requests"],
            ConfigValue::Pipeline => &["pipeline"],
            ConfigValue::Window => &["send_window"],
            ConfigValue::Retransmissions => &["retries"],
            _ => &[],
        },
        _ => &[],
    }
}

fn keys_of_size(what: ConfigValue) -> &'static [&'static str] {
    if what == ConfigValue::Response { &["response"] } else { &["request"] }
}

/// The key of a search's table that its error is about.
pub(in crate::suite) fn key_of_search(error: &SearchError) -> &'static str {
    match error.what {
        SearchValue::Start => "start",
        SearchValue::Growth => "growth",
        SearchValue::Precision => "precision",
        SearchValue::Most => "most",
        SearchValue::Late => "late",
    }
}
