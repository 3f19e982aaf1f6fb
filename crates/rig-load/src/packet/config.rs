//! What an engine shall do, resolved and checked once.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use rig_wire::ethernet::{self, Mac};
use serde::{Deserialize, Serialize};

use super::Nanos;
use super::connection::Stamp;
use super::family::Family;
use super::http::{self, Kind};
use super::payload::Payload;
use super::plan::Answer;
use super::table::Table;
use super::wheel::Wheel;

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
}

/// The link and what is beyond it.
#[derive(Debug, Clone)]
pub struct Link<F: Family> {
    pub mac: Mac,
    /// The port's own address, beside the local ones: it is answered for and asks for the gateway.
    pub address: F::Address,
    /// For whose addresses questions for our MAC address are answered.
    pub answer: Answer,
    pub vlan: Option<u16>,
    pub gateway: Gateway<F::Address>,
    /// Time to live of IPv4, hop limit of IPv6.
    pub hop_limit: u8,
    /// Type of service of IPv4, traffic class of IPv6.
    pub tos: u8,
    /// Whether checksums of TCP and UDP are verified. Off only where the port's peer leaves them to be filled in by
    /// hardware that is not there.
    pub verify: bool,
}

impl<F: Family> Link<F> {
    pub(super) fn header(&self, destination: Mac, ethertype: u16) -> ethernet::Header {
        ethernet::Header { destination, source: self.mac, vlan: self.vlan, ethertype }
    }
}

/// Where all packets go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gateway<A> {
    Known(Mac),
    /// Asked for by ARP or neighbor discovery, at the start each second, later each half minute.
    Address(A),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Service {
    TcpClient(TcpClient),
    TcpServer(TcpServer),
    UdpClient(UdpClient),
    UdpServer(UdpServer),
}

/// Whom a client talks to, and how often.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Client {
    /// Source ports, of which each is used with every local address, server address and server port.
    pub ports: RangeInclusive<u16>,
    pub server_ports: RangeInclusive<u16>,
    pub load: Load,
    /// More requests on a connection after the first.
    pub repeat: Option<Repeat>,
    /// Which combination of addresses and ports comes after another.
    #[serde(default)]
    pub walk: Walk,
    /// Only first packets are sent, SYNs or datagrams, and no answer is expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flood: Option<Flood>,
}

/// The order in which a client uses its addresses and ports.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Walk {
    /// All source ports of an address, then the next address.
    #[default]
    Ports,
    /// Another address and another port each time.
    Hop,
}

/// Packets one way.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Flood {
    /// Destination addresses that packets go to in turn, in place of the servers': at most 65,536.
    pub destinations: Vec<Stride>,
}

/// `count` addresses from `first`, each `step` after the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Stride {
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
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Repeat {
    /// From when a request was due to when the next one is; zero: when it is answered.
    pub interval: Duration,
    /// Requests of a connection, the first one included; `None`: without end.
    pub requests: Option<u16>,
    /// Requests per second of all connections together, on a schedule of their own, in place of the interval: each goes
    /// out on the connection that has rested longest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// Datagrams that are sent back to back each time, 1 to 100.
    #[serde(default = "one")]
    pub pipeline: u16,
}

fn one() -> u16 {
    1
}

impl Load {
    /// So many connections per second, from the start and however many are open.
    pub fn new(rate: f64) -> Self {
        Self { rate, ramp: Duration::ZERO, hold: None, launch: None }
    }
}

impl Repeat {
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
pub enum Expect {
    /// With any segment that carries data.
    Segment,
    /// With so many bytes, at least 1.
    Bytes(u32),
    /// As HTTP/1.1 says (RFC 9112, 6): a request or response with the body that its header announces.
    Http,
}

/// How a client ends a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Close {
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
    pub response: Expect,
    pub close: Close,
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
    pub request: Expect,
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
}

/// A configuration that cannot be run.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ConfigError {
    #[error("{side} addresses: there must be 1 to 65535, and there are {count}")]
    Addresses { side: &'static str, count: u64 },
    #[error("capacity of {0} connections: give 1 to {max}", max = Table::LARGEST)]
    Capacity(u32),
    #[error("{0} ports: the range is empty")]
    Ports(&'static str),
    #[error("{connections} connections are to be held open, and there are only {available} ({by})")]
    Hold { connections: u32, available: u64, by: &'static str },
    #[error("a rate of {0} connections per second: give more than zero")]
    Rate(f64),
    #[error("{what} of {bytes} bytes: give 1 to {max}")]
    Message { what: &'static str, bytes: u64, max: u64 },
    #[error("maximum segment size of {0}: give 88 to 9660")]
    Mss(u16),
    #[error("{what} of {value:?}: give {min:?} to {max:?}")]
    Time { what: &'static str, value: Duration, min: Duration, max: Duration },
    #[error("{what} of {value}: give 1 to {max}")]
    Count { what: &'static str, value: u64, max: u64 },
    #[error("the {0} is no HTTP/1.1 {0}, and HTTP is expected in return: see packet::http::{0}")]
    NotHttp(&'static str),
    #[error("{0} is not supported by this engine")]
    Unsupported(&'static str),
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
        match &self.service {
            Service::TcpClient(tcp) => {
                self.check_client(&tcp.client)?;
                check_tcp(&tcp.times, tcp.mss)?;
                message("a request", tcp.request.len(), tcp.mss.into())?;
                check_expect("a response", tcp.response)?;
                check_http("request", tcp.response, Kind::Request, &tcp.request)?;
                time("delayed acknowledgment", tcp.delayed_ack, Duration::ZERO)
            }
            Service::TcpServer(tcp) => {
                ports("listening", &tcp.server.ports)?;
                check_tcp(&tcp.times, tcp.mss)?;
                check_expect("a request", tcp.request)?;
                message("a response", tcp.response.len(), 1 << 30)?;
                check_http("response", tcp.request, Kind::Response, &tcp.response)?;
                count("a window", tcp.window.into(), u8::MAX.into())?;
                time("idle time", tcp.idle, MILLISECOND)
            }
            Service::UdpClient(udp) => {
                self.check_client(&udp.client)?;
                message("a request", udp.request.len(), DATAGRAM)?;
                between("time-out", udp.timeout, MILLISECOND, Duration::from_nanos(Stamp::SPAN))
            }
            Service::UdpServer(udp) => {
                ports("listening", &udp.server.ports)?;
                message("a response", udp.response.len(), DATAGRAM)
            }
        }
    }

    fn check_client(&self, client: &Client) -> Result<(), ConfigError> {
        ports("source", &client.ports)?;
        ports("server", &client.server_ports)?;
        let asked = client.repeat.map_or((None, 1), |repeat| (repeat.rate, repeat.pipeline));
        for (is_asked, what) in [
            (client.walk != Walk::Ports, "hopping between addresses"),
            (client.flood.is_some(), "flooding"),
            (client.load.launch.is_some(), "opening together"),
            (asked.0.is_some(), "a rate of requests"),
            (asked.1 != 1, "pipelining"),
        ] {
            if is_asked {
                return Err(ConfigError::Unsupported(what));
            }
        }
        if client.load.rate.is_nan() || client.load.rate <= 0.0 {
            return Err(ConfigError::Rate(client.load.rate));
        }
        if let Some(repeat) = client.repeat {
            time("request interval", repeat.interval, Duration::ZERO)?;
            if let Some(requests) = repeat.requests {
                count("requests of a connection", requests.into(), u16::MAX.into())?;
            }
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

/// Bytes of the largest datagram in the largest frame.
const DATAGRAM: u64 = 9660;
const MILLISECOND: Duration = Duration::from_millis(1);

fn check_tcp(times: &TcpTimes, mss: u16) -> Result<(), ConfigError> {
    if !(88..=9660).contains(&mss) {
        return Err(ConfigError::Mss(mss));
    }
    count("retransmissions", times.retries.into(), 15)?;
    // The last one's timer must not be longer than timers are.
    let longest = Duration::from_nanos(Wheel::LONGEST >> times.retries);
    between("retransmission time-out", times.retransmit, MILLISECOND, longest)?;
    time("TIME-WAIT", times.time_wait, Duration::ZERO)
}

fn check_expect(what: &'static str, expect: Expect) -> Result<(), ConfigError> {
    match expect {
        Expect::Segment | Expect::Http => Ok(()),
        Expect::Bytes(bytes) => message(what, bytes.into(), 1 << 30),
    }
}

/// Who expects HTTP must speak it.
fn check_http(what: &'static str, expect: Expect, kind: Kind, payload: &Payload) -> Result<(), ConfigError> {
    let speaks = expect != Expect::Http || http::whole(kind, &payload.bytes()).is_some();
    if speaks { Ok(()) } else { Err(ConfigError::NotHttp(what)) }
}

fn message(what: &'static str, bytes: u64, max: u64) -> Result<(), ConfigError> {
    if (1..=max).contains(&bytes) { Ok(()) } else { Err(ConfigError::Message { what, bytes, max }) }
}

fn count(what: &'static str, value: u64, max: u64) -> Result<(), ConfigError> {
    if (1..=max).contains(&value) { Ok(()) } else { Err(ConfigError::Count { what, value, max }) }
}

fn time(what: &'static str, value: Duration, min: Duration) -> Result<(), ConfigError> {
    between(what, value, min, Duration::from_nanos(Wheel::LONGEST))
}

fn between(what: &'static str, value: Duration, min: Duration, max: Duration) -> Result<(), ConfigError> {
    if (min..=max).contains(&value) { Ok(()) } else { Err(ConfigError::Time { what, value, min, max }) }
}

fn ports(which: &'static str, range: &RangeInclusive<u16>) -> Result<(), ConfigError> {
    if range.is_empty() { Err(ConfigError::Ports(which)) } else { Ok(()) }
}

pub(super) fn nanos(duration: Duration) -> Nanos {
    duration.as_nanos() as Nanos
}
