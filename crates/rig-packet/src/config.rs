//! What an engine shall do, resolved and checked once.

use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Nanos;
use super::connection::Timestamp;
use super::family::link::{Gateway, Link};
use super::family::{Family, V4, V6};
use super::http::{self, Kind};
use super::payload::Payload;
use super::steering::Steering;
use super::table::Table;
use super::wheel::TimerWheel;

/// One engine: its addresses, its peers' and what it does with them.
#[derive(Debug, Clone)]
pub struct Config<F: Family> {
    pub link: Link<F>,
    /// Ranges of addresses, each its first and how many, at most 65,535 together: ours, and those that we talk to.
    /// Packets of others are not for us.
    pub local: Vec<(F::Address, u32)>,
    pub remote: Vec<(F::Address, u32)>,
    /// Connections that can be open at once.
    pub capacity: u32,
    pub service: Service,
    /// Of a client that shares its interface with others: which source ports are its own. `None`: all.
    pub steering: Option<Steering>,
}

/// A configuration of either family.
#[derive(Debug, Clone)]
pub enum AnyConfig {
    V4(Config<V4>),
    V6(Config<V6>),
}

impl AnyConfig {
    pub fn check(&self) -> Result<(), ConfigError> {
        match self {
            Self::V4(config) => config.check(),
            Self::V6(config) => config.check(),
        }
    }

    /// The address that is asked where it is, below a tunnel if there is one; `None` when that is known.
    pub fn gateway(&self) -> Option<IpAddr> {
        match self {
            Self::V4(config) => config.link.question(),
            Self::V6(config) => config.link.question(),
        }
    }

    pub fn capacity(&self) -> u32 {
        match self {
            Self::V4(config) => config.capacity,
            Self::V6(config) => config.capacity,
        }
    }

    pub fn service(&self) -> &Service {
        match self {
            Self::V4(config) => &config.service,
            Self::V6(config) => &config.service,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Service {
    TcpClient(TcpClient),
    TcpServer(TcpServer),
    UdpClient(UdpClient),
    UdpServer(UdpServer),
}

impl Service {
    pub fn is_tcp(&self) -> bool {
        matches!(self, Self::TcpClient(_) | Self::TcpServer(_))
    }

    /// Of a client that sends packets one way.
    pub fn flood(&self) -> Option<&Flood> {
        self.client()?.flood.as_ref()
    }

    /// What a client does, of whichever protocol.
    pub fn client(&self) -> Option<&Client> {
        match self {
            Self::TcpClient(tcp) => Some(&tcp.client),
            Self::UdpClient(udp) => Some(&udp.client),
            Self::TcpServer(_) | Self::UdpServer(_) => None,
        }
    }

    pub(super) fn client_mut(&mut self) -> Option<&mut Client> {
        match self {
            Self::TcpClient(tcp) => Some(&mut tcp.client),
            Self::UdpClient(udp) => Some(&mut udp.client),
            Self::TcpServer(_) | Self::UdpServer(_) => None,
        }
    }
}

/// The servers and ports of a client, and how often it sends.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Client {
    /// Source ports, of which each is used with every local address, server address and server port.
    pub ports: RangeInclusive<u16>,
    pub server_ports: RangeInclusive<u16>,
    pub load: Load,
    /// More requests on a connection after the first.
    pub repeat: Option<RequestRepeat>,
    /// Which combination of addresses and ports comes after another.
    #[serde(default)]
    pub walk: TupleOrder,
    /// Only single packets are sent, and no answer is expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flood: Option<Flood>,
}

impl Client {
    /// Its requests per second where these have a rate, else its new connections per second.
    pub fn rate(&self) -> f64 {
        self.repeat.and_then(|repeat| repeat.rate).unwrap_or(self.load.rate)
    }

    fn has_request_rate(&self) -> bool {
        self.repeat.is_some_and(|repeat| repeat.rate.is_some())
    }

    /// The rate that its engine was made for.
    pub(super) fn planned(&self) -> PlannedRate {
        if self.has_request_rate() { PlannedRate::Requests(self.rate()) } else { PlannedRate::Connections(self.rate()) }
    }
}

/// What a client's schedule gives out, per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum PlannedRate {
    Connections(f64),
    Requests(f64),
}

/// The order in which a client uses its addresses and ports.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TupleOrder {
    /// All source ports of an address, then the next address; servers take turns.
    #[default]
    Ports,
    /// Another address and another port each time, and another server.
    Hop,
}

/// Packets one way. Without [`Client::repeat`] each is between other ends, at the rate of [`Load`]; otherwise flows are
/// opened at that rate and held, and each of them sends at its interval or in its turn.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Flood {
    /// What the packets are.
    #[serde(default, skip_serializing_if = "FloodPackets::is_first")]
    pub packets: FloodPackets,
    /// Destination addresses that packets go to in turn, in place of the servers': at most 65,536.
    pub destinations: Vec<AddressStride>,
    /// Datagrams begin with when they are sent, by the sender's CLOCK_MONOTONIC, in 8 bytes, and a number, which counts from 0, in 4; both in
    /// network order. What is overdue shortly after the end (a thousandth of the time, at least 2 ms) is not sent: a trial of a device is over
    /// when its time is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stamped: bool,
    /// Packets altogether, each thread its own; `None`: until the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most: Option<u64>,
}

/// What a flood consists of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FloodPackets {
    /// What begins something: SYNs of TCP, datagrams of UDP.
    #[default]
    First,
    /// Acknowledgments of nothing, over TCP.
    Ack,
    /// A SYN, an acknowledgment and a datagram in turn, over TCP and UDP.
    Mixed,
}

impl FloodPackets {
    fn is_first(&self) -> bool {
        *self == Self::First
    }
}

impl Flood {
    /// Bytes of time and number in a datagram.
    pub const STAMP: usize = 12;
}

/// `count` addresses from `first`, each `step` after the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct AddressStride {
    pub first: IpAddr,
    pub step: u32,
    pub count: u32,
}

/// How many connections.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Load {
    /// New connections per second.
    pub rate: f64,
    /// How long the rate rises from zero.
    pub ramp: Duration,
    /// No more are opened while so many are open.
    pub hold: Option<u32>,
    /// How many are opened together, at the time at which the first of them is due. `None`: each at its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch: Option<u16>,
    /// How much of the time between two connections, or between two requests where these have a rate, passes before the
    /// first: 0 to 1. Threads that share a rate have different ones, so that they take turns.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub phase: f64,
}

fn is_zero(phase: &f64) -> bool {
    *phase == 0.0
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RequestRepeat {
    /// From when a request was due to when the next one is; zero: when it is answered. A datagram that is not answered
    /// within the interval after it was sent is lost.
    pub interval: Duration,
    /// Requests of a connection, the first one included; `None`: without end.
    pub requests: Option<u16>,
    /// Requests per second of all connections together, the first of each included, on a schedule of their own, in place
    /// of the interval: each goes out on the connection that has rested longest, or late if none rests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// Datagrams that are sent back to back each time, 1 to 100.
    #[serde(default = "one")]
    pub pipeline: u16,
}

fn one() -> u16 {
    1
}

impl AddressStride {
    pub(super) fn addresses<F: Family>(&self) -> impl Iterator<Item = F::Address> + use<F> {
        let Self { first, step, count } = *self;
        F::of(first).into_iter().flat_map(move |first| (0..count).map(move |n| F::after(first, n.wrapping_mul(step))))
    }
}

impl Load {
    /// So many connections per second, from the start and however many are open.
    pub fn new(rate: f64) -> Self {
        Self { rate, ramp: Duration::ZERO, hold: None, launch: None, phase: 0.0 }
    }
}

impl RequestRepeat {
    /// A request each `interval`, without end.
    pub fn every(interval: Duration) -> Self {
        Self { interval, requests: None, rate: None, pipeline: 1 }
    }
}

/// What a server listens to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Server {
    pub ports: RangeInclusive<u16>,
}

/// How TCP waits.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TcpTimes {
    /// Until the first retransmission; doubled for each further one.
    pub retransmit: Duration,
    /// Retransmissions before a connection is given up, 1 to 15.
    pub retries: u8,
    /// How long the end that closed first keeps a connection; zero: not at all.
    pub time_wait: Duration,
}

impl Default for TcpTimes {
    fn default() -> Self {
        Self { retransmit: Duration::from_secs(2), retries: 3, time_wait: Duration::ZERO }
    }
}

/// When a message is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MessageEnd {
    /// With any segment that carries data.
    Segment,
    /// With so many bytes, at least 1.
    Bytes(u32),
    /// As HTTP/1.1 says (RFC 9112, 6): a request or response with the body that its header announces.
    Http,
}

/// How a client ends a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CloseMethod {
    Fin,
    /// With a reset, right after the response.
    Reset,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TcpClient {
    pub client: Client,
    pub times: TcpTimes,
    /// One segment.
    pub request: Payload,
    pub response: MessageEnd,
    pub close: CloseMethod,
    /// A response is acknowledged by itself when the next request is due later than this.
    pub delayed_ack: Duration,
    /// Maximum segment size announced.
    pub mss: u16,
    /// Whether a segment without a connection is answered by a reset.
    pub resets: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TcpServer {
    pub server: Server,
    pub times: TcpTimes,
    pub request: MessageEnd,
    pub response: Payload,
    /// Whether the response ends the connection.
    pub close: bool,
    /// How long a connection may be silent.
    pub idle: Duration,
    /// Segments of a response that may be under way, 1 to 255.
    pub window: u8,
    /// Maximum segment size announced and sent.
    pub mss: u16,
    /// Whether a segment without a connection is answered by a reset.
    pub resets: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct UdpClient {
    pub client: Client,
    pub request: Payload,
    /// How long an answer may take.
    pub timeout: Duration,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct UdpServer {
    pub server: Server,
    pub response: Payload,
    /// Datagrams are those of one sender, [stamped](Flood::stamped): they are counted and not answered. The time from when one was sent is
    /// entered as its latency, and where a number is missing, something was lost.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub one_way: bool,
}

/// A value of a configuration that an error is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigValue {
    SourcePorts,
    ServerPorts,
    ListeningPorts,
    Connections,
    Requests,
    Request,
    Response,
    SegmentSize,
    RequestInterval,
    IdleTime,
    DelayedAck,
    TimeWait,
    RetransmissionTimeout,
    Timeout,
    Launch,
    RequestsOfConnection,
    Pipeline,
    DestinationAddresses,
    Destinations,
    Window,
    Retransmissions,
}

impl fmt::Display for ConfigValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SourcePorts => "source",
            Self::ServerPorts => "server",
            Self::ListeningPorts => "listening",
            Self::Connections => "connections",
            Self::Requests => "requests",
            Self::Request => "request",
            Self::Response => "response",
            Self::SegmentSize => "maximum segment size",
            Self::RequestInterval => "request interval",
            Self::IdleTime => "idle time",
            Self::DelayedAck => "delayed acknowledgment",
            Self::TimeWait => "TIME-WAIT",
            Self::RetransmissionTimeout => "retransmission time-out",
            Self::Timeout => "time-out",
            Self::Launch => "connections opened together",
            Self::RequestsOfConnection => "requests of a connection",
            Self::Pipeline => "datagrams back to back",
            Self::DestinationAddresses => "addresses of a flood's destination",
            Self::Destinations => "destinations of a flood",
            Self::Window => "a window",
            Self::Retransmissions => "retransmissions",
        })
    }
}

/// A configuration that cannot be run.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ConfigError {
    #[error("{side} addresses: there must be 1 to 65535, and there are {count}")]
    Addresses { side: &'static str, count: u64 },
    #[error("capacity of {0} connections: give 1 to {max}", max = Table::LARGEST)]
    Capacity(u32),
    #[error("{0} ports: the range is empty")]
    Ports(ConfigValue),
    #[error("{connections} connections are to be held open, and there are only {available} ({by})")]
    Hold { connections: u32, available: u64, by: &'static str },
    #[error("a phase of {0}: give 0 to 1")]
    Phase(f64),
    #[error("a rate of {rate} {of} per second: give more than zero")]
    Rate { rate: f64, of: ConfigValue },
    #[error("{0}: give one of both")]
    Both(&'static str),
    #[error("{0} datagrams back to back: TCP has none, give 1")]
    Pipeline(u16),
    #[error("flood: {0}")]
    Flood(&'static str),
    #[error("destination {0} of a flood: the other addresses are of the other family")]
    Destination(IpAddr),
    #[error("tunnel: {0}")]
    Tunnel(&'static str),
    #[error("a {what} of {bytes} bytes: give 1 to {max}")]
    Message { what: ConfigValue, bytes: u64, max: u64 },
    #[error("maximum segment size of {0}: give 88 to 9660")]
    Mss(u16),
    #[error("{what} of {value:?}: give {min:?} to {max:?}")]
    Time { what: ConfigValue, value: Duration, min: Duration, max: Duration },
    #[error("{what} of {value}: give 1 to {max}")]
    Count { what: ConfigValue, value: u64, max: u64 },
    #[error("the {0} is not an HTTP/1.1 {0}, and HTTP is expected in return: see packet::http::{0}")]
    NotHttp(ConfigValue),
}

impl<F: Family> Config<F> {
    /// Whether an engine can do all that is asked for.
    pub fn check(&self) -> Result<(), ConfigError> {
        for (side, ranges) in [("local", &self.local), ("remote", &self.remote)] {
            let count = ranges.iter().map(|&(_, count)| u64::from(count)).sum();
            // Numbers of addresses have 16 bits.
            if !(1..=u16::MAX.into()).contains(&count) {
                return Err(ConfigError::Addresses { side, count });
            }
        }
        if !(1..=Table::LARGEST).contains(&self.capacity) {
            return Err(ConfigError::Capacity(self.capacity));
        }
        if let Some(tunnel) = &self.link.tunnel {
            let wrong = match () {
                () if tunnel.vni >= 1 << 24 => Some("a network identifier has 24 bits"),
                () if tunnel.link.tunnel.is_some() => Some("it goes through another tunnel, which is not supported"),
                () if matches!(self.link.gateway, Gateway::Address(_)) => {
                    Some("the MAC address within it must be given")
                }
                () => None,
            };
            wrong.map_or(Ok(()), |wrong| Err(ConfigError::Tunnel(wrong)))?;
        }
        match &self.service {
            Service::TcpClient(tcp) => {
                self.check_client(&tcp.client)?;
                if let Some(repeat) = tcp.client.repeat.filter(|repeat| repeat.pipeline != 1) {
                    return Err(ConfigError::Pipeline(repeat.pipeline));
                }
                check_tcp(&tcp.times, tcp.mss)?;
                message(ConfigValue::Request, tcp.request.len(), tcp.mss.into())?;
                check_expect(ConfigValue::Response, tcp.response)?;
                check_http(ConfigValue::Request, tcp.response, Kind::Request, &tcp.request)?;
                time(ConfigValue::DelayedAck, tcp.delayed_ack, Duration::ZERO)
            }
            Service::TcpServer(tcp) => {
                ports(ConfigValue::ListeningPorts, &tcp.server.ports)?;
                check_tcp(&tcp.times, tcp.mss)?;
                check_expect(ConfigValue::Request, tcp.request)?;
                message(ConfigValue::Response, tcp.response.len(), 1 << 30)?;
                check_http(ConfigValue::Response, tcp.request, Kind::Response, &tcp.response)?;
                count(ConfigValue::Window, tcp.window.into(), u8::MAX.into())?;
                time(ConfigValue::IdleTime, tcp.idle, MILLISECOND)
            }
            Service::UdpClient(udp) => {
                self.check_client(&udp.client)?;
                message(ConfigValue::Request, udp.request.len(), DATAGRAM)?;
                if udp.client.flood.as_ref().is_some_and(|flood| !flood.packets.is_first()) {
                    return Err(ConfigError::Flood("acknowledgments are TCP's"));
                }
                if udp.client.flood.as_ref().is_some_and(|flood| flood.stamped)
                    && udp.request.len() < Flood::STAMP as u64
                {
                    return Err(ConfigError::Flood(
                        "a datagram that begins with its time and number has at least 12 bytes",
                    ));
                }
                between(ConfigValue::Timeout, udp.timeout, MILLISECOND, Duration::from_nanos(Timestamp::SPAN))
            }
            Service::UdpServer(udp) => {
                ports(ConfigValue::ListeningPorts, &udp.server.ports)?;
                message(ConfigValue::Response, udp.response.len(), DATAGRAM)
            }
        }
    }

    fn check_client(&self, client: &Client) -> Result<(), ConfigError> {
        ports(ConfigValue::SourcePorts, &client.ports)?;
        ports(ConfigValue::ServerPorts, &client.server_ports)?;
        rate(client.load.rate, ConfigValue::Connections)?;
        if !(0.0..=1.0).contains(&client.load.phase) {
            return Err(ConfigError::Phase(client.load.phase));
        }
        if let Some(launch) = client.load.launch {
            count(ConfigValue::Launch, launch.into(), u16::MAX.into())?;
        }
        if let Some(repeat) = client.repeat {
            time(ConfigValue::RequestInterval, repeat.interval, Duration::ZERO)?;
            if let Some(requests) = repeat.requests {
                count(ConfigValue::RequestsOfConnection, requests.into(), u16::MAX.into())?;
            }
            if let Some(requests) = repeat.rate {
                rate(requests, ConfigValue::Requests)?;
                if !repeat.interval.is_zero() {
                    return Err(ConfigError::Both("an interval between requests and a rate of requests"));
                }
            }
            count(ConfigValue::Pipeline, repeat.pipeline.into(), 100)?;
        }
        if let Some(flood) = &client.flood {
            check_flood::<F>(client, flood)?;
        }
        let addresses = |ranges: &[(F::Address, u32)]| ranges.iter().map(|&(_, count)| u64::from(count)).sum::<u64>();
        let all = [
            addresses(&self.local),
            addresses(&self.remote),
            client.ports.len() as u64,
            client.server_ports.len() as u64,
        ];
        let combinations = all.into_iter().fold(1, u64::saturating_mul);
        for (available, by) in [(self.capacity.into(), "capacity"), (combinations, "addresses and ports")] {
            if let Some(connections) = client.load.hold.filter(|&hold| u64::from(hold) > available) {
                return Err(ConfigError::Hold { connections, available, by });
            }
        }
        Ok(())
    }
}

fn check_flood<F: Family>(client: &Client, flood: &Flood) -> Result<(), ConfigError> {
    match client.repeat {
        Some(_) if flood.stamped || flood.most.is_some() => {
            return Err(ConfigError::Flood(
                "datagrams with time and number, or so many of them, do not repeat on flows",
            ));
        }
        None if flood.most == Some(0) => return Err(ConfigError::Flood("no packets are to be sent")),
        None if client.load.hold.is_some() => {
            return Err(ConfigError::Flood("flows are to be held open, but nothing repeats on them: give an interval"));
        }
        Some(repeat) if repeat.rate.is_none() && repeat.interval.is_zero() => {
            return Err(ConfigError::Flood(
                "nothing answers, so packets cannot follow answers: give an interval or a rate",
            ));
        }
        _ => {}
    }
    let mut total = 0;
    for stride in &flood.destinations {
        if F::of(stride.first).is_none() {
            return Err(ConfigError::Destination(stride.first));
        }
        count(ConfigValue::DestinationAddresses, stride.count.into(), DESTINATIONS)?;
        total += u64::from(stride.count);
    }
    if total > DESTINATIONS {
        return Err(ConfigError::Count { what: ConfigValue::Destinations, value: total, max: DESTINATIONS });
    }
    Ok(())
}

/// Addresses that a flood goes to, at most.
const DESTINATIONS: u64 = 65_536;
/// Bytes of the largest datagram in the largest frame.
const DATAGRAM: u64 = 9660;
const MILLISECOND: Duration = Duration::from_millis(1);

fn check_tcp(times: &TcpTimes, mss: u16) -> Result<(), ConfigError> {
    if !(88..=9660).contains(&mss) {
        return Err(ConfigError::Mss(mss));
    }
    count(ConfigValue::Retransmissions, times.retries.into(), 15)?;
    // The last one's timer must not be longer than timers are.
    let longest = Duration::from_nanos(TimerWheel::LONGEST >> times.retries);
    between(ConfigValue::RetransmissionTimeout, times.retransmit, MILLISECOND, longest)?;
    time(ConfigValue::TimeWait, times.time_wait, Duration::ZERO)
}

fn check_expect(what: ConfigValue, expect: MessageEnd) -> Result<(), ConfigError> {
    match expect {
        MessageEnd::Segment | MessageEnd::Http => Ok(()),
        MessageEnd::Bytes(bytes) => message(what, bytes.into(), 1 << 30),
    }
}

/// A service that expects HTTP must speak it.
fn check_http(what: ConfigValue, expect: MessageEnd, kind: Kind, payload: &Payload) -> Result<(), ConfigError> {
    let speaks = expect != MessageEnd::Http || http::whole(kind, &payload.bytes()).is_some();
    if speaks { Ok(()) } else { Err(ConfigError::NotHttp(what)) }
}

fn message(what: ConfigValue, bytes: u64, max: u64) -> Result<(), ConfigError> {
    if (1..=max).contains(&bytes) { Ok(()) } else { Err(ConfigError::Message { what, bytes, max }) }
}

fn rate(rate: f64, of: ConfigValue) -> Result<(), ConfigError> {
    if rate.is_finite() && rate > 0.0 { Ok(()) } else { Err(ConfigError::Rate { rate, of }) }
}

fn count(what: ConfigValue, value: u64, max: u64) -> Result<(), ConfigError> {
    if (1..=max).contains(&value) { Ok(()) } else { Err(ConfigError::Count { what, value, max }) }
}

fn time(what: ConfigValue, value: Duration, min: Duration) -> Result<(), ConfigError> {
    between(what, value, min, Duration::from_nanos(TimerWheel::LONGEST))
}

fn between(what: ConfigValue, value: Duration, min: Duration, max: Duration) -> Result<(), ConfigError> {
    if (min..=max).contains(&value) { Ok(()) } else { Err(ConfigError::Time { what, value, min, max }) }
}

fn ports(which: ConfigValue, range: &RangeInclusive<u16>) -> Result<(), ConfigError> {
    if range.is_empty() { Err(ConfigError::Ports(which)) } else { Ok(()) }
}

pub(super) fn nanos(duration: Duration) -> Nanos {
    duration.as_nanos() as Nanos
}
