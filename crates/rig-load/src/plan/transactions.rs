//! Request and response: what netperf calls RR and CRR.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::limits::{CONNECTIONS, MESSAGE, THREADS, congestion_control, range, socket_buffer};
use super::value::PlanValue;
use super::{PlanError, SHORTEST_TIMEOUT, SocketOptions};

/// Transactions: the connecting end sends a request, the listening one answers it. Both ends get the same value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transactions {
    /// Threads at each end; thread i serves connections i, i + threads, ...
    pub threads: u32,
    /// Connections for each thread. Of tcp-crr: connections that a thread has under way at once.
    pub connections: u32,
    /// Payload bytes of a request.
    pub request: u32,
    /// Payload bytes of a response.
    pub response: u32,
    /// Transactions under way on each connection at once (netperf's burst plus one); of tcp-crr 1.
    pub in_flight: u32,
    pub schedule: Schedule,
    /// After how long an unanswered UDP request is counted as lost. TCP does its own retransmission.
    pub timeout: Duration,
    /// SO_SNDBUF in bytes, as asked for. `None`: kernel's default.
    pub send_buffer: Option<u32>,
    /// SO_RCVBUF in bytes, as asked for. `None`: kernel's default.
    pub receive_buffer: Option<u32>,
    /// TCP_NODELAY at both ends. No matter for UDP.
    pub no_delay: bool,
    /// TCP_CONGESTION. `None`: the system's default, which it has to be for UDP.
    pub congestion_control: Option<String>,
    /// Options that change its packets.
    #[serde(default, skip_serializing_if = "SocketOptions::is_default")]
    pub options: SocketOptions,
}

/// When a transaction begins.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Schedule {
    /// As soon as one before it is done: the peer's speed sets the rate.
    Closed,
    /// At its own time, even if those before it are not done: `rate` transactions per second of the whole worker.
    /// Latency counts from that time, so that a stall shows in every transaction that it delayed.
    Open { rate: f64, arrivals: ArrivalSpacing },
}

/// The distances between scheduled transactions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ArrivalSpacing {
    /// All the same.
    #[default]
    Uniform,
    /// Exponentially distributed, as from many independent users.
    Poisson,
}

impl Transactions {
    pub const RATE: std::ops::RangeInclusive<f64> = 0.001..=1e8;
    pub const TIMEOUT_MAX: Duration = Duration::from_secs(60);
    pub const IN_FLIGHT_MAX: u32 = 1024;
    /// Transactions under way on all connections together: what a requester has to remember.
    pub const UNDER_WAY_MAX: u64 = 1 << 20;

    /// Connections of all threads together.
    pub fn total_connections(&self) -> u32 {
        self.threads.saturating_mul(self.connections)
    }

    pub(super) fn validate(&self) -> Result<(), PlanError> {
        range(PlanValue::Threads, self.threads, 1, THREADS)?;
        range(PlanValue::Connections, self.connections, 1, CONNECTIONS)?;
        range(PlanValue::AllConnections, self.total_connections(), 1, CONNECTIONS)?;
        range(PlanValue::Request, self.request, 1, MESSAGE)?;
        range(PlanValue::Response, self.response, 1, MESSAGE)?;
        range(PlanValue::InFlight, self.in_flight, 1, Self::IN_FLIGHT_MAX.into())?;
        let under_way = u64::from(self.total_connections()) * u64::from(self.in_flight);
        range(PlanValue::UnderWay, under_way, 1, Self::UNDER_WAY_MAX)?;
        if let Schedule::Open { rate, .. } = self.schedule
            && !Self::RATE.contains(&rate)
        {
            return Err(PlanError::Rate { rate, least: *Self::RATE.start(), most: *Self::RATE.end() });
        }
        if !(SHORTEST_TIMEOUT..=Self::TIMEOUT_MAX).contains(&self.timeout) {
            let (least, most) = (SHORTEST_TIMEOUT, Self::TIMEOUT_MAX);
            return Err(PlanError::TimeOutOfRange { what: "the timeout", value: self.timeout, least, most });
        }
        socket_buffer(PlanValue::SendBuffer, self.send_buffer)?;
        socket_buffer(PlanValue::ReceiveBuffer, self.receive_buffer)?;
        congestion_control(self.congestion_control.as_deref())?;
        self.options.validate()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Load, Phases, Role, WorkerPlan};
    use super::*;

    fn checked(change: impl FnOnce(&mut Transactions), kind: fn(Transactions) -> Load) -> Result<(), PlanError> {
        let mut load = Transactions {
            threads: 2,
            connections: 2,
            request: 1,
            response: 64 << 10,
            in_flight: 1,
            schedule: Schedule::Open { rate: 1000.0, arrivals: ArrivalSpacing::Poisson },
            timeout: Duration::from_secs(1),
            send_buffer: None,
            receive_buffer: None,
            no_delay: true,
            congestion_control: None,
            options: Default::default(),
        };
        change(&mut load);
        let second = Duration::from_secs(1);
        let phases = Phases { warm_up: second, window: second, cool_down: second, interval: second };
        let role = Role::connect(([127, 0, 0, 1], 0).into());
        WorkerPlan { name: "a".into(), cpus: vec![], role, load: kind(load), phases, ceiling: None, peer_clock_ns: 0 }
            .validate()
    }

    #[track_caller]
    fn refused(word: &str, kind: fn(Transactions) -> Load, change: impl FnOnce(&mut Transactions)) {
        let error = checked(change, kind).unwrap_err().to_string();
        assert!(error.contains(word), "'{word}' is not in: {error}");
    }

    #[test]
    fn the_limits_themselves_are_allowed() {
        checked(|l| (l.request, l.response) = (64 << 20, 64 << 20), Load::TcpRr).unwrap();
        checked(|l| (l.threads, l.connections, l.in_flight) = (1, 1024, 1024), Load::TcpRr).unwrap();
        checked(|l| (l.request, l.response) = (65_507, 65_507), Load::UdpRr).unwrap();
        checked(|l| l.congestion_control = Some("reno".into()), Load::TcpCrr).unwrap();
        checked(|l| l.options.mptcp = true, Load::TcpRr).unwrap();
        let error = checked(|l| l.options.mptcp = true, Load::TcpCrr).unwrap_err().to_string();
        assert!(error.starts_with("tcp-crr has no MPTCP"), "{error}");
        for rate in [1.0, 1e8] {
            checked(|l| l.schedule = Schedule::Open { rate, arrivals: ArrivalSpacing::Uniform }, Load::TcpCrr).unwrap();
        }
    }

    #[test]
    fn what_is_out_of_range_is_named() {
        refused("the request", Load::TcpRr, |l| l.request = 0);
        refused("the response", Load::TcpCrr, |l| l.response = (64 << 20) + 1);
        refused("the response", Load::UdpRr, |l| l.response = 65_508);
        refused("in flight", Load::TcpRr, |l| l.in_flight = 1025);
        refused("connections x transactions", Load::TcpRr, |l| (l.connections, l.in_flight) = (1024, 1024));
        refused("in flight on a connection that carries one", Load::TcpCrr, |l| l.in_flight = 2);
        refused("one byte for their number", Load::UdpRr, |l| (l.response, l.in_flight) = (2, 257));
        refused("the timeout", Load::UdpRr, |l| l.timeout = Duration::from_micros(999));
        refused("the timeout", Load::UdpRr, |l| l.timeout = Duration::from_secs(61));
        refused("UDP has no congestion control", Load::UdpRr, |l| {
            (l.response, l.congestion_control) = (1, Some("reno".into()));
        });
        refused("the MSS", Load::TcpRr, |l| l.options.mss = Some(0));
        refused("is an option of TCP", Load::UdpRr, |l| {
            (l.response, l.options.not_sent_low_water) = (1, Some(1));
        });
        refused("a transaction leaves each 1000.000s", Load::TcpRr, |l| {
            l.schedule = Schedule::Open { rate: 0.001, arrivals: ArrivalSpacing::Uniform };
        });
        for rate in [0.0, -1.0, 1.1e8, f64::NAN, f64::INFINITY] {
            refused("the rate", Load::TcpRr, |l| {
                l.schedule = Schedule::Open { rate, arrivals: ArrivalSpacing::Uniform }
            });
        }
    }
}
