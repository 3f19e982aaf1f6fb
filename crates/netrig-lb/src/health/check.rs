//! What a service's check is: how backends are probed, when, and what follows. Plain values, which settings are read into.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The check of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    pub probe: Probe,
    pub to: Destination,
    /// In place of the backend's, or of the service's where the check goes to that.
    pub port: Option<u16>,
    pub source: Option<IpAddr>,
    /// From the beginning of one probe to that of the next.
    pub interval: Duration,
    /// The same while the backend is down.
    pub interval_down: Duration,
    /// For all of a probe.
    pub timeout: Duration,
    /// Successes in a row after which a backend is up.
    pub rise: u32,
    /// Failures in a row after which it is down.
    pub fall: u32,
    /// By how much intervals are longer or shorter, by chance; percent.
    pub jitter: u32,
    pub begin: Beginning,
    pub failed: OnFailure,
    pub pool: PoolRules,
}

/// When a service as a whole has too few healthy backends, and how one comes back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolRules {
    /// The least weight of healthy backends.
    pub quorum: u32,
    pub hysteresis: u32,
    /// `None`: the sorry servers where there are any, otherwise what is healthy.
    pub below_quorum: Option<BelowQuorum>,
    /// For how long the weight of a backend grows that is up again.
    pub slow_start: Duration,
}

impl Default for PoolRules {
    fn default() -> Self {
        Self { quorum: 1, hysteresis: 0, below_quorum: None, slow_start: Duration::ZERO }
    }
}

impl Check {
    pub fn new(probe: Probe, to: Destination) -> Self {
        Self {
            probe,
            to,
            port: None,
            source: None,
            interval: Duration::from_secs(2),
            interval_down: Duration::from_secs(2),
            timeout: Duration::from_secs(1),
            rise: 2,
            fall: 3,
            jitter: 10,
            begin: Beginning::Up,
            failed: OnFailure::Drain,
            pool: PoolRules::default(),
        }
    }
}

/// What one probe does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Probe {
    /// A connection, and what is said on it.
    Tcp(Exchange),
    Http(HttpRequest),
    /// The same over TLS.
    Https(HttpRequest, TlsRules),
    /// A datagram and its answer.
    Udp(Exchange),
    Dns(DnsQuestion),
    /// An echo request and its reply.
    Icmp,
    Command(ProgramCall),
}

impl Probe {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Tcp(_) => "tcp",
            Self::Http(_) => "http",
            Self::Https(..) => "https",
            Self::Udp(_) => "udp",
            Self::Dns(_) => "dns",
            Self::Icmp => "icmp",
            Self::Command(_) => "command",
        }
    }
}

/// As files name them.
pub const PROBES: [&str; 7] = ["tcp", "http", "https", "udp", "dns", "icmp", "command"];

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exchange {
    pub send: Vec<u8>,
    /// Bytes that have to be in the answer; none: any answer, and over TCP the connection alone.
    pub expect: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpRequest {
    pub path: String,
    /// The Host header; `None`: the address that is asked.
    pub host: Option<String>,
    /// First and last of the status codes that are good.
    pub status: Vec<(u16, u16)>,
    /// Text that has to be in the body.
    pub body: Option<String>,
}

/// How a backend shows who it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsRules {
    /// Whether its certificate has to be good: of a known issuer, in its time, and for the name that is asked for.
    pub verify: bool,
    /// Whose certificates are good, PEM; `None`: the system's.
    pub ca: Option<PathBuf>,
    /// What is asked for (SNI), in place of the request's host; one that is an address is not told to the server (RFC 6066, 3).
    pub server_name: Option<String>,
}

/// `200-399,404`.
pub fn status_text(ranges: &[(u16, u16)]) -> String {
    let range = |&(first, last): &(u16, u16)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    ranges.iter().map(range).collect::<Vec<_>>().join(",")
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DnsQuestion {
    /// Without the dot at its end; empty for the root.
    pub name: String,
    pub record: RecordType,
}

/// Types of DNS records (RFC 1035, 3.2.2; AAAA: RFC 3596), by their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordType(pub u16);

pub const RECORD_TYPES: [(&str, RecordType); 7] = [
    ("A", RecordType(1)),
    ("NS", RecordType(2)),
    ("CNAME", RecordType(5)),
    ("SOA", RecordType(6)),
    ("MX", RecordType(15)),
    ("TXT", RecordType(16)),
    ("AAAA", RecordType(28)),
];

impl fmt::Display for RecordType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(RECORD_TYPES.iter().find(|(_, record)| record == self).map_or("?", |(name, _)| name))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramCall {
    /// The program's path and its arguments.
    pub words: Vec<String>,
    pub environment: Vec<(String, String)>,
}

/// To which address probes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Destination {
    Backend,
    /// The service's, by the way that clients' packets take to the backend.
    Service,
}

pub const DESTINATIONS: [(&str, Destination); 2] =
    [("backend", Destination::Backend), ("service", Destination::Service)];

/// What a backend is before its first probe has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beginning {
    Up,
    Down,
}

pub const BEGINNINGS: [(&str, Beginning); 2] = [("up", Beginning::Up), ("down", Beginning::Down)];

/// What becomes of a backend that is down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnFailure {
    /// Its weight is 0.
    Drain,
    /// It is none of the service's backends.
    Remove,
}

pub const ON_FAILURE: [(&str, OnFailure); 2] = [("drain", OnFailure::Drain), ("remove", OnFailure::Remove)];

/// Which backends get connections while the quorum is missed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BelowQuorum {
    /// Those that are healthy.
    Healthy,
    /// All, whatever their checks say.
    All,
    /// The sorry servers alone.
    Sorry,
}

pub const BELOW_QUORUM: [(&str, BelowQuorum); 3] =
    [("healthy", BelowQuorum::Healthy), ("all", BelowQuorum::All), ("sorry", BelowQuorum::Sorry)];

/// The name of a value in one of the tables above.
pub fn name_in<T: PartialEq + Copy>(names: &[(&'static str, T)], value: T) -> &'static str {
    names.iter().find(|(_, known)| *known == value).map_or("?", |(name, _)| name)
}

/// What a backend says of its check, over the service's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BackendCheck {
    #[default]
    AsService,
    /// It is taken to be healthy.
    Off,
    /// Another address or port.
    At { address: Option<IpAddr>, port: Option<u16> },
}
