//! Loads as suite files write them: the table of their keys, a row each.

use std::borrow::Cow;
use std::ops::Range;

use rig_cli::source::Spanned;
use rig_load::plan::{ArrivalSpacing, Flow, Pacing, ReceiveMode, SendMode};
use rig_packet::CloseMethod;
use rig_packet::plan::Driver;
use rig_stats::units::{ByteRate, Bytes, PerSecond, Span};
use rig_sys::socket::Dscp;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::super::file::Endpoints;
use super::super::packets::{BenchmarkFile, FloodFile, PacketThreadsFile, PortsFile, Protocol, SearchFile};

/// What is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(in crate::suite) enum LoadKind {
    /// A bulk TCP stream.
    TcpStream,
    /// The same from the end that listens to the end that connects.
    TcpMaerts,
    /// Requests and responses over TCP connections that stay.
    TcpRr,
    /// Requests and responses over TCP, each over a connection of its own.
    TcpCrr,
    /// A stream of UDP datagrams.
    UdpStream,
    /// Requests and responses over UDP, a datagram each way.
    UdpRr,
    /// Connections or datagrams of a generator that makes its packets itself.
    Packets,
}

use LoadKind::{Packets, TcpCrr, TcpMaerts, TcpRr, TcpStream, UdpRr, UdpStream};

impl LoadKind {
    pub const ALL: [Self; 7] = [TcpStream, TcpMaerts, TcpRr, TcpCrr, UdpStream, UdpRr, Packets];

    /// As files write it.
    pub fn name(self) -> &'static str {
        match self {
            TcpStream => "tcp-stream",
            TcpMaerts => "tcp-maerts",
            TcpRr => "tcp-rr",
            TcpCrr => "tcp-crr",
            UdpStream => "udp-stream",
            UdpRr => "udp-rr",
            Packets => "packets",
        }
    }

    /// What can be said of a load of this kind, beside its kind.
    pub fn keys(self) -> impl Iterator<Item = &'static str> {
        LoadFile::KEYS.iter().filter(move |(_, kinds)| kinds.contains(&self)).map(|(key, _)| *key)
    }
}

const SOCKETS: &[LoadKind] = &[TcpStream, TcpMaerts, TcpRr, TcpCrr, UdpStream, UdpRr];
const TCP: &[LoadKind] = &[TcpStream, TcpMaerts, TcpRr, TcpCrr];
const STREAMS: &[LoadKind] = &[TcpStream, TcpMaerts, UdpStream];
const TCP_STREAMS: &[LoadKind] = &[TcpStream, TcpMaerts];
const TRANSACTIONS: &[LoadKind] = &[TcpRr, TcpCrr, UdpRr];
const EXCHANGES: &[LoadKind] = &[TcpRr, TcpCrr, UdpRr, Packets];

/// A row is a key: its words and limits for the JSON Schema, its name and type, and the kinds of load that have it.
macro_rules! load_file {
    ($( $(#[$words:meta])* $key:ident: $value:ty => $kinds:expr; )*) => {
        /// What is sent. What it leaves open is taken from the load of the defaults.
        #[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        #[schemars(rename = "Load", transform = super::schema::by_kind)]
        pub(in crate::suite) struct LoadFile {
            /// What is sent; required, here or in the defaults.
            pub kind: Option<Spanned<LoadKind>>,
            // Only [`UnderFile`] has these; elsewhere they are refused with the name of the load's kind.
            #[schemars(skip)]
            pub from: Option<Spanned<Endpoints>>,
            #[schemars(skip)]
            pub to: Option<Spanned<Endpoints>>,
            $( $(#[$words])* pub $key: Option<Spanned<$value>>, )*
        }

        impl LoadFile {
            /// The keys but for the kind, each with the kinds of load that have it.
            pub const KEYS: &[(&str, &[LoadKind])] = &[$( (stringify!($key), $kinds) ),*];

            /// The keys that are there, but for the kind, with where they are.
            pub fn given(&self) -> impl Iterator<Item = (&'static str, Range<usize>)> {
                let ends = [("from", self.from.as_ref().map(Spanned::span)), ("to", self.to.as_ref().map(Spanned::span))];
                let keys = [$( (stringify!($key), self.$key.as_ref().map(Spanned::span)) ),*];
                ends.into_iter().chain(keys).filter_map(|(key, span)| Some((key, span?)))
            }

            /// What a load of `kind` that says this is: what it leaves open as in `defaults`, as far as its kind has it.
            pub fn completed(self, kind: LoadKind, defaults: &Self) -> Self {
                Self {
                    kind: self.kind,
                    from: self.from,
                    to: self.to,
                    $( $key: self.$key.or_else(|| defaults.$key.clone().filter(|_| $kinds.contains(&kind))), )*
                }
            }
        }
    };
}

load_file! {
    /// Threads at each end; 1 by default.
    #[schemars(range(min = 1))]
    threads: u32 => SOCKETS;
    /// Connections of each thread; 1 by default. Of tcp-crr those that a thread has under way at once.
    #[schemars(range(min = 1))]
    connections: u32 => SOCKETS;
    /// SO_SNDBUF; the kernel's own choice by default.
    send_buffer: Bytes => SOCKETS;
    /// SO_RCVBUF; the kernel's own choice by default.
    receive_buffer: Bytes => SOCKETS;
    /// TCP_NODELAY; false by default.
    no_delay: bool => TCP;
    /// TCP_CONGESTION, such as cubic; the system's own by default.
    congestion_control: String => TCP;
    /// DSCP of what both ends send (IP_TOS, IPV6_TCLASS): a name such as ef, or 0 to 63; the kernel's own by default.
    #[schemars(example = &"ef")]
    dscp: DscpFile => SOCKETS;
    /// TTL or hop limit of what both ends send; the kernel's own by default.
    #[schemars(range(min = 1, max = 255))]
    ttl: u32 => SOCKETS;
    /// SO_PRIORITY at both ends, for queueing disciplines, above 6 with CAP_NET_ADMIN; the kernel's own by default.
    priority: u32 => SOCKETS;
    /// SO_BUSY_POLL at both ends, up to 100ms; net.core.busy_read by default.
    #[schemars(example = "50us")]
    busy_poll: Span => SOCKETS;
    /// TCP_MAXSEG at both ends, 88 to 32767; the kernel's own by default.
    #[schemars(example = "1400")]
    mss: Bytes => TCP;
    /// Multipath TCP, which falls back to plain TCP where the other end has none; false by default.
    mptcp: bool => &[TcpStream, TcpMaerts, TcpRr];
    /// TCP_NOTSENT_LOWAT: a sender writes only while less than this waits unsent; net.ipv4.tcp_notsent_lowat by default.
    not_sent_low_water: Bytes => TCP_STREAMS;
    /// Which way payload goes; forward, from the connecting to the listening end, by default.
    flow: Flow => &[TcpStream, UdpStream];
    /// Bytes passed to the kernel at once; for UDP, the payload of a datagram; required, here or in the defaults.
    message: Bytes => STREAMS;
    /// Limit on the payload rate of each sending thread; without limit by default.
    throttle: ByteRate => STREAMS;
    /// Bytes that the receiving end asks for at once; as much as `message` by default.
    receive_message: Bytes => TCP_STREAMS;
    /// Operations that each end has in flight at once, over io_uring; without it one system call at a time, without io_uring.
    outstanding: Outstanding => TCP_STREAMS;
    /// How payload leaves the sender; copy by default.
    send_mode: SendMode => TCP_STREAMS;
    /// How payload enters the receiver; copy by default.
    receive_mode: ReceiveMode => TCP_STREAMS;
    /// Messages of a system call (sendmmsg, recvmmsg); 1 by default.
    #[schemars(range(min = 1))]
    batch: u32 => &[UdpStream];
    /// Datagrams that the kernel cuts a message into (UDP_SEGMENT); 1 by default.
    #[schemars(range(min = 1))]
    segments: u32 => &[UdpStream];
    /// Whether the receiver takes several datagrams as one message (UDP_GRO); false by default.
    coalesce: bool => &[UdpStream];
    /// What keeps the sender to its `throttle`; thread by default.
    pacing: Pacing => &[UdpStream];
    /// Payload of a request; 1 byte by default, of packets 64, of HTTP 85. Of HTTP the whole request.
    request: Bytes => EXCHANGES;
    /// Payload of a response; 1 byte by default, of packets 64. Of HTTP the body.
    response: Bytes => EXCHANGES;
    /// Transactions per second of each pair, on a schedule; as fast as they are answered by default.
    rate: Rate => TRANSACTIONS;
    /// How the schedule's transactions follow each other; uniform by default.
    arrivals: ArrivalSpacing => TRANSACTIONS;
    /// Transactions in flight on each connection at once (netperf's burst and one more); 1 by default.
    #[schemars(range(min = 1))]
    in_flight: u32 => &[TcpRr, UdpRr];
    /// Time after which an unanswered UDP request is lost; 1s by default, of packets 200ms.
    #[schemars(example = "500ms")]
    timeout: Span => &[UdpRr, Packets];
    /// What the packets speak; required, here or in the defaults.
    protocol: Protocol => &[Packets];
    /// New connections per second, of UDP first datagrams; required, unless a search raises it.
    connections_per_second: PerSecond => &[Packets];
    /// Connections that are open at once, above which no more are opened; without it there is no such bound.
    #[schemars(range(min = 1))]
    hold: u32 => &[Packets];
    /// Requests of each connection; without it one, and with `interval`, `hold`, `requests_per_second` or `pipeline` without end.
    #[schemars(range(min = 1))]
    requests: u16 => &[Packets];
    /// From request to request of a connection; without it the next follows the response, but with `hold` it is required, or
    /// `requests_per_second`.
    interval: Span => &[Packets];
    /// Of all connections together, on those that are held; without it each connection has its own, by `interval`. It needs `hold`.
    requests_per_second: PerSecond => &[Packets];
    /// Addresses that connections come from; 1 by default.
    #[schemars(range(min = 1))]
    client_addresses: u32 => &[Packets];
    /// Addresses that connections go to; 1 by default.
    #[schemars(range(min = 1))]
    server_addresses: u32 => &[Packets];
    /// Ports that connections come from; 1024 to 65535 by default.
    #[schemars(example = [2000, 2999])]
    client_ports: PortsFile => &[Packets];
    /// Ports that connections go to; 80 by default.
    #[schemars(example = [80, 89])]
    server_ports: PortsFile => &[Packets];
    /// How a client ends a connection; fin by default.
    close: CloseMethod => &[Packets];
    /// Time until the first retransmission of a segment; 200ms by default.
    #[schemars(example = "100ms")]
    retransmit: Span => &[Packets];
    /// Maximum number of retransmissions of a segment; 3 by default.
    #[schemars(range(min = 1, max = 15))]
    retries: u8 => &[Packets];
    /// Segments of a response that may be in flight; 4 by default.
    #[schemars(range(min = 1))]
    send_window: u8 => &[Packets];
    /// How long the rate of connections rises; not at all by default.
    ramp: Span => &[Packets];
    /// Connections that are opened together; one at a time by default.
    #[schemars(range(min = 1))]
    launch: u16 => &[Packets];
    /// Packets that expect no answer: true for first ones, SYNs or datagrams; over TCP "ack" for acknowledgments of nothing, "mixed" for
    /// SYNs, acknowledgments and datagrams in turn; false by default.
    flood: FloodFile => &[Packets];
    /// Bytes of each frame with its check sequence, 64 to 9018: datagrams of this size are sent one way, counted, and not answered; without it
    /// each is answered. Each carries the time at which it was sent.
    #[schemars(example = 512)]
    frame: Bytes => &[Packets];
    /// Benchmarks by a standard, with frames one way, in place of a rate; without it the load has the rate that it says.
    #[schemars(example = serde_json::json!({ "standard": "rfc2544" }))]
    benchmark: BenchmarkFile => &[Packets];
    /// Datagrams back to back; 1 by default.
    #[schemars(range(min = 1, max = 100))]
    pipeline: u16 => &[Packets];
    /// A different address for each connection, not only a different port; false by default, all ports of an address before the next.
    hop: bool => &[Packets];
    /// How packets enter and leave the kernel; auto by default.
    driver: Driver => &[Packets];
    /// Queues of each end that are used, each with a thread; 1 by default.
    workers: PacketThreadsFile => &[Packets];
    /// How the highest rate is found before the window; without it the load has the rate that it says.
    search: SearchFile => &[Packets];
}

/// A load that runs under another one, and may have endpoints of its own.
#[derive(Debug)]
pub(in crate::suite) struct UnderFile {
    pub from: Option<Spanned<Endpoints>>,
    pub to: Option<Spanned<Endpoints>>,
    pub load: LoadFile,
}

impl<'de> Deserialize<'de> for UnderFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut load = LoadFile::deserialize(deserializer)?;
        Ok(Self { from: load.from.take(), to: load.to.take(), load })
    }
}

/// What a load says under a key.
pub(in crate::suite) fn value<T: Clone>(key: &Option<Spanned<T>>) -> Option<T> {
    key.as_ref().map(|key| key.get_ref().clone())
}

/// NTttcp's `-a` of each end. An end that is not named makes one system call at a time.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::suite) struct Outstanding {
    /// Of the end that sends; without it one system call at a time.
    #[schemars(range(min = 1))]
    pub send: Option<u32>,
    /// Of the end that receives; without it one system call at a time.
    #[schemars(range(min = 1))]
    pub receive: Option<u32>,
}

/// A code point by its name or number.
#[derive(Debug, Clone, Copy)]
pub(in crate::suite) struct DscpFile(pub Dscp);

impl<'de> Deserialize<'de> for DscpFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a name such as \"ef\", or a number from 0 to 63")]
        enum NameOrNumber {
            Number(u64),
            Name(String),
        }
        let text = match NameOrNumber::deserialize(deserializer)? {
            NameOrNumber::Number(number) => number.to_string(),
            NameOrNumber::Name(name) => name,
        };
        text.parse().map(Self).map_err(D::Error::custom)
    }
}

impl JsonSchema for DscpFile {
    fn schema_name() -> Cow<'static, str> {
        "Dscp".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [
                { "type": "integer", "minimum": 0, "maximum": 63 },
                { "type": "string", "pattern": "^([cC][sS][0-7]|[aA][fF][1-4][1-3]|[eE][fF]|[0-9]|[1-5][0-9]|6[0-3]|0[xX][0-9a-fA-F]+)$" },
            ],
        })
    }
}

/// Transactions per second. A value in bits or bytes is refused: it is meant for another key.
#[derive(Debug, Clone, Copy, JsonSchema)]
pub(in crate::suite) struct Rate(pub PerSecond);

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let hint = |error| D::Error::custom(format!("{error}; `throttle` is what limits streams"));
        PerSecond::deserialize(deserializer).map(Self).map_err(hint)
    }
}

#[cfg(test)]
mod tests {
    use serde::de::IntoDeserializer;
    use serde::de::value::{Error, StrDeserializer};

    use super::*;

    #[test]
    fn kinds_are_called_as_files_write_them() {
        for kind in LoadKind::ALL {
            let name: StrDeserializer<'_, Error> = kind.name().into_deserializer();
            assert_eq!(LoadKind::deserialize(name).unwrap(), kind);
        }
    }

    #[test]
    fn defaults_are_of_the_kinds_that_have_them() {
        let read = |text: &str| toml::from_str::<LoadFile>(text).unwrap();
        let defaults = read("kind = 'tcp-rr'\nmessage = '1k'\nthreads = 2\nbatch = 3");
        let load = read("kind = 'tcp-stream'\nthreads = 4").completed(TcpStream, &defaults);
        assert_eq!(
            (value(&load.threads), value(&load.message), value(&load.batch)),
            (Some(4), Some(Bytes(1024)), None)
        );
        let given: Vec<&str> = defaults.given().map(|(key, _)| key).collect();
        assert_eq!(given, ["threads", "message", "batch"]);
    }
}
