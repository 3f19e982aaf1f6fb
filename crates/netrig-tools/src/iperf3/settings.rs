//! What a command line, or a client's parameters, ask for.

use std::ops::RangeInclusive;

use super::units::Format;

/// What carries the streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Tcp,
    Udp,
    Sctp,
}

impl Protocol {
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        }
    }

    /// Its streams are connections.
    pub fn connects(self) -> bool {
        self != Self::Udp
    }
}

/// Who sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// The client.
    Forward,
    /// The server, `-R`.
    Reverse,
    /// Both, over streams of their own, `--bidir`.
    Both,
}

/// A test as both ends know it.
#[derive(Debug, Clone, PartialEq)]
pub struct TestSettings {
    pub protocol: Protocol,
    pub flow: Flow,
    /// Seconds before the test counts.
    pub omit: u32,
    /// Seconds; 0 without an end of this kind.
    pub time: u32,
    /// 0 for no limit.
    pub bytes: u64,
    pub blocks: u64,
    /// Bytes of a message or datagram; 0 until known.
    pub length: u32,
    pub parallel: u32,
    /// 0 where the system's is left.
    pub window: u32,
    pub mss: u32,
    pub no_delay: bool,
    pub mptcp: bool,
    /// Streams of an SCTP association; 0 where the system's are left.
    pub sctp_streams: u16,
    /// Bits per second of each stream; 0 for no limit.
    pub rate: u64,
    pub burst: u32,
    pub fq_rate: u64,
    pub pacing_timer: u64,
    pub tos: u32,
    pub flow_label: u32,
    pub congestion: Option<String>,
    pub zerocopy: bool,
    pub skip_rx_copy: bool,
    pub repeating_payload: bool,
    pub udp_counters_64bit: bool,
    pub gsro: bool,
    pub dont_fragment: bool,
    pub get_server_output: bool,
    pub server_affinity: Option<u32>,
    /// What shows the server who the client is.
    pub auth_token: Option<String>,
    pub title: Option<String>,
    pub extra_data: Option<String>,
}

/// A message over TCP.
pub const TCP_LENGTH: u32 = 128 << 10;
/// A message over SCTP.
pub const SCTP_LENGTH: u32 = 64 << 10;
/// What the original takes of `-M` over SCTP; what is beyond it passes over.
pub const SCTP_SEGMENTS: RangeInclusive<u32> = 512..=131_072;
/// A datagram where the path does not tell.
pub const UDP_LENGTH: u32 = 1460;
/// Bits per second over UDP.
pub const UDP_RATE: u64 = 1 << 20;
pub const LONGEST_MESSAGE: u32 = 1 << 20;
pub const SHORTEST_DATAGRAM: u32 = 16;
pub const LONGEST_DATAGRAM: u32 = 65_507;
pub const MOST_STREAMS: u32 = 128;
pub const MOST_WINDOW: u32 = 512 << 20;

impl Default for TestSettings {
    fn default() -> Self {
        Self {
            protocol: Protocol::Tcp,
            flow: Flow::Forward,
            omit: 0,
            time: 10,
            bytes: 0,
            blocks: 0,
            length: 0,
            parallel: 1,
            window: 0,
            mss: 0,
            no_delay: false,
            mptcp: false,
            sctp_streams: 0,
            rate: 0,
            burst: 0,
            fq_rate: 0,
            pacing_timer: 1000,
            tos: 0,
            flow_label: 0,
            congestion: None,
            zerocopy: false,
            skip_rx_copy: false,
            repeating_payload: false,
            udp_counters_64bit: false,
            gsro: false,
            dont_fragment: false,
            get_server_output: false,
            server_affinity: None,
            auth_token: None,
            title: None,
            extra_data: None,
        }
    }
}

impl TestSettings {
    /// Streams over which an end sends and receives.
    pub fn shape(&self, client: bool) -> (u32, u32) {
        match (self.flow, client) {
            (Flow::Both, _) => (self.parallel, self.parallel),
            (Flow::Forward, true) | (Flow::Reverse, false) => (self.parallel, 0),
            (Flow::Forward, false) | (Flow::Reverse, true) => (0, self.parallel),
        }
    }

    /// Streams of both groups.
    pub fn streams(&self) -> u32 {
        if self.flow == Flow::Both { 2 * self.parallel } else { self.parallel }
    }

    /// Bits per second of all streams together; 0 for no limit.
    pub fn total_rate(&self, each: u64) -> u64 {
        each.saturating_mul(self.streams().into())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Client,
    Server,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    V4,
    V6,
}

/// What is printed, and where.
#[derive(Debug, Clone, PartialEq)]
pub struct OutputSettings {
    pub format: Format,
    pub verbose: bool,
    pub json: bool,
    pub json_stream: bool,
    /// The whole object, too, after the stream.
    pub json_full: bool,
    pub log_file: Option<String>,
    pub force_flush: bool,
    /// strftime(3)'s format.
    pub timestamps: Option<String>,
    pub debug: bool,
}

/// Seconds until the first probe, between probes, and probes; 0 leaves the system's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KeepAlive {
    pub idle: u32,
    pub interval: u32,
    pub count: u32,
}

/// How sockets are opened.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NetworkSettings {
    pub port: u16,
    pub family: Option<Family>,
    pub bind: Option<String>,
    pub device: Option<String>,
    /// Addresses of this machine that associations of SCTP have.
    pub sctp_binds: Vec<String>,
    pub keep_alive: Option<KeepAlive>,
    /// TCP_USER_TIMEOUT, milliseconds.
    pub send_timeout_ms: u32,
    pub receive_timeout_ms: u32,
    pub connect_timeout_ms: Option<u64>,
    pub client_port: Option<u16>,
}

/// What a server allows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ServerSettings {
    pub daemon: bool,
    pub one_off: bool,
    /// A second client is told that the server is busy, as the original does.
    pub one_at_a_time: bool,
    /// Bits per second of a test; 0 for no limit.
    pub bitrate_limit: u64,
    /// Seconds over which the limit is measured; 0 for each interval.
    pub limit_interval: f64,
    pub max_duration: u32,
    pub idle_timeout: Option<u32>,
}

/// What either end's options name of who may test.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuthenticationSettings {
    pub username: Option<String>,
    /// Files: of the client the server's public key, of the server its private key and its users.
    pub public_key: Option<String>,
    pub private_key: Option<String>,
    pub users: Option<String>,
    /// Seconds.
    pub skew: Option<i64>,
    /// As versions before 3.17 have it.
    pub pkcs1_padding: bool,
}

/// A whole command line.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    pub role: Role,
    /// The server's name or address.
    pub host: String,
    pub test: TestSettings,
    pub output: OutputSettings,
    pub network: NetworkSettings,
    pub server: ServerSettings,
    pub authentication: AuthenticationSettings,
    /// Seconds; 0 for none.
    pub interval: f64,
    pub affinity: Option<u32>,
    pub pid_file: Option<String>,
    /// Keep the test as a run, with a label or without one.
    pub store_run: Option<Option<String>>,
    /// For people, before anything is done.
    pub warnings: Vec<String>,
}
