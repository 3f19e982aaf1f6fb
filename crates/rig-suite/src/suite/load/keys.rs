//! What a suite file can say of a load, by the load's kind. A kind has groups of keys, each a struct: reading a load, the
//! names of its kind's keys and their JSON Schema all follow from these, and from [`LoadKeys::read`].

use rig_load::plan::{Arrivals, Flow, Pacing, ReceiveMode, SendMode};
use rig_packet::Close;
use rig_packet::plan::Driver;
use rig_stats::units::{ByteRate, Bytes, PerSecond, Span};
use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::super::packets::{PacketThreadsFile, PortsFile, Protocol, SearchFile};
use super::table::{Group, Reader};
use super::{LoadError, names};

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

/// What a suite file says of a load, its defaults included.
#[derive(Debug, Clone)]
pub(in crate::suite) enum LoadKeys {
    TcpStream { flow: FlowKey, bulk: BulkKeys, stream: StreamKeys, tcp: TcpKeys, sockets: SocketKeys },
    TcpMaerts { bulk: BulkKeys, stream: StreamKeys, tcp: TcpKeys, sockets: SocketKeys },
    TcpRr { exchange: ExchangeKeys, pace: PaceKeys, in_flight: InFlightKey, tcp: TcpKeys, sockets: SocketKeys },
    TcpCrr { exchange: ExchangeKeys, pace: PaceKeys, tcp: TcpKeys, sockets: SocketKeys },
    UdpStream { flow: FlowKey, bulk: BulkKeys, datagrams: DatagramKeys, sockets: SocketKeys },
    UdpRr { exchange: ExchangeKeys, pace: PaceKeys, in_flight: InFlightKey, timeout: TimeoutKey, sockets: SocketKeys },
    Packets(Box<PacketLoadKeys>),
}

/// A load of packets.
#[derive(Debug, Clone)]
pub(in crate::suite) struct PacketLoadKeys {
    pub packets: PacketKeys,
    pub exchange: ExchangeKeys,
    pub timeout: TimeoutKey,
}

impl LoadKind {
    pub const ALL: [Self; 7] =
        [Self::TcpStream, Self::TcpMaerts, Self::TcpRr, Self::TcpCrr, Self::UdpStream, Self::UdpRr, Self::Packets];

    /// As files write it.
    pub fn name(self) -> &'static str {
        names::of::<Self>()[self as usize]
    }

    /// What can be said of a load of this kind, beside its kind.
    pub fn keys(self) -> Vec<&'static str> {
        self.groups().into_iter().flat_map(|group| group.keys.iter().copied()).collect()
    }

    pub fn groups(self) -> Vec<Group> {
        let mut reader = Reader::new(Default::default());
        // No key is a must: what a load needs to say is known when its defaults are.
        let _ = LoadKeys::read(self, &mut reader);
        reader.into_groups()
    }
}

impl LoadKeys {
    /// What the table says under the keys of this kind.
    pub fn read(kind: LoadKind, table: &mut Reader<'_>) -> Result<Self, LoadError> {
        Ok(match kind {
            LoadKind::TcpStream => Self::TcpStream {
                bulk: table.group()?,
                stream: table.group()?,
                flow: table.group()?,
                tcp: table.group()?,
                sockets: table.group()?,
            },
            LoadKind::TcpMaerts => Self::TcpMaerts {
                bulk: table.group()?,
                stream: table.group()?,
                tcp: table.group()?,
                sockets: table.group()?,
            },
            LoadKind::TcpRr => Self::TcpRr {
                exchange: table.group()?,
                pace: table.group()?,
                in_flight: table.group()?,
                tcp: table.group()?,
                sockets: table.group()?,
            },
            LoadKind::TcpCrr => Self::TcpCrr {
                exchange: table.group()?,
                pace: table.group()?,
                tcp: table.group()?,
                sockets: table.group()?,
            },
            LoadKind::UdpStream => Self::UdpStream {
                bulk: table.group()?,
                datagrams: table.group()?,
                flow: table.group()?,
                sockets: table.group()?,
            },
            LoadKind::UdpRr => Self::UdpRr {
                exchange: table.group()?,
                pace: table.group()?,
                in_flight: table.group()?,
                timeout: table.group()?,
                sockets: table.group()?,
            },
            LoadKind::Packets => Self::Packets(Box::new(PacketLoadKeys {
                packets: table.group()?,
                exchange: table.group()?,
                timeout: table.group()?,
            })),
        })
    }
}

/// Of all loads over sockets.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::suite) struct SocketKeys {
    /// Threads at each end; 1 by default.
    #[schemars(range(min = 1))]
    pub threads: Option<u32>,
    /// Connections of each thread; 1 by default. Of tcp-crr those that a thread has under way at once.
    #[schemars(range(min = 1))]
    pub connections: Option<u32>,
    /// SO_SNDBUF; the kernel's own choice by default.
    pub send_buffer: Option<Bytes>,
    /// SO_RCVBUF; the kernel's own choice by default.
    pub receive_buffer: Option<Bytes>,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::suite) struct TcpKeys {
    /// TCP_NODELAY; false by default.
    pub no_delay: Option<bool>,
    /// TCP_CONGESTION, such as cubic; the system's own by default.
    pub congestion_control: Option<String>,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::suite) struct FlowKey {
    /// Which way payload goes; forward, from the connecting to the listening end, by default.
    pub flow: Option<Flow>,
}

/// Of streams.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::suite) struct BulkKeys {
    /// Bytes passed to the kernel at once; for UDP, the payload of a datagram; required, here or in the defaults.
    pub message: Option<Bytes>,
    /// Limit on the payload rate of each sending thread; without limit by default.
    pub throttle: Option<ByteRate>,
}

/// Of TCP streams.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::suite) struct StreamKeys {
    /// Bytes that the receiving end asks for at once; as much as `message` by default.
    pub receive_message: Option<Bytes>,
    /// Operations that each end has in flight at once, over io_uring; without it one system call at a time, without io_uring.
    pub outstanding: Option<Outstanding>,
    /// How payload leaves the sender; copy by default.
    pub send_mode: Option<SendMode>,
    /// How payload enters the receiver; copy by default.
    pub receive_mode: Option<ReceiveMode>,
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

/// Of streams of datagrams.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::suite) struct DatagramKeys {
    /// Messages of a system call (sendmmsg, recvmmsg); 1 by default.
    #[schemars(range(min = 1))]
    pub batch: Option<u32>,
    /// Datagrams that the kernel cuts a message into (UDP_SEGMENT); 1 by default.
    #[schemars(range(min = 1))]
    pub segments: Option<u32>,
    /// Whether the receiver takes several datagrams as one message (UDP_GRO); false by default.
    pub coalesce: Option<bool>,
    /// What keeps the sender to its `throttle`; thread by default.
    pub pacing: Option<Pacing>,
}

/// Of requests and their responses.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::suite) struct ExchangeKeys {
    /// Payload of a request; 1 byte by default, of packets 64, of HTTP 85. Of HTTP the whole request.
    pub request: Option<Bytes>,
    /// Payload of a response; 1 byte by default, of packets 64. Of HTTP the body.
    pub response: Option<Bytes>,
}

/// When requests are made.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::suite) struct PaceKeys {
    /// Transactions per second of each pair, on a schedule; as fast as they are answered by default.
    pub rate: Option<Rate>,
    /// How the schedule's transactions follow each other; uniform by default.
    pub arrivals: Option<Arrivals>,
}

/// Transactions per second. Whoever writes bits or bytes means another key.
#[derive(Debug, Clone, Copy, JsonSchema)]
pub(in crate::suite) struct Rate(pub PerSecond);

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let hint = |error| D::Error::custom(format!("{error}; `throttle` is what limits streams"));
        PerSecond::deserialize(deserializer).map(Self).map_err(hint)
    }
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::suite) struct InFlightKey {
    /// Transactions in flight on each connection at once (netperf's burst and one more); 1 by default.
    #[schemars(range(min = 1))]
    pub in_flight: Option<u32>,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::suite) struct TimeoutKey {
    /// Time after which an unanswered UDP request is lost; 1s by default, of packets 200ms.
    #[schemars(example = "500ms")]
    pub timeout: Option<Span>,
}

/// Of loads of packets.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::suite) struct PacketKeys {
    /// What the packets speak; required, here or in the defaults.
    pub protocol: Option<Protocol>,
    /// New connections per second, of UDP first datagrams; required, unless a search raises it.
    pub connections_per_second: Option<PerSecond>,
    /// Connections that are open at once, above which no more are opened; without it there is no such bound.
    #[schemars(range(min = 1))]
    pub hold: Option<u32>,
    /// Requests of each connection; without it one, and with `interval`, `hold`, `requests_per_second` or `pipeline` without end.
    #[schemars(range(min = 1))]
    pub requests: Option<u16>,
    /// From request to request of a connection; without it the next follows the response, but with `hold` it is required, or
    /// `requests_per_second`.
    pub interval: Option<Span>,
    /// Of all connections together, on those that are held; without it each connection has its own, by `interval`. It needs `hold`.
    pub requests_per_second: Option<PerSecond>,
    /// Addresses that connections come from; 1 by default.
    #[schemars(range(min = 1))]
    pub client_addresses: Option<u32>,
    /// Addresses that connections go to; 1 by default.
    #[schemars(range(min = 1))]
    pub server_addresses: Option<u32>,
    /// Ports that connections come from; 1024 to 65535 by default.
    #[schemars(example = [2000, 2999])]
    pub client_ports: Option<PortsFile>,
    /// Ports that connections go to; 80 by default.
    #[schemars(example = [80, 89])]
    pub server_ports: Option<PortsFile>,
    /// How a client ends a connection; fin by default.
    pub close: Option<Close>,
    /// Time until the first retransmission of a segment; 200ms by default.
    #[schemars(example = "100ms")]
    pub retransmit: Option<Span>,
    /// Maximum number of retransmissions of a segment; 3 by default.
    #[schemars(range(min = 1, max = 15))]
    pub retries: Option<u8>,
    /// Segments of a response that may be in flight; 4 by default.
    #[schemars(range(min = 1))]
    pub send_window: Option<u8>,
    /// How long the rate of connections rises; not at all by default.
    pub ramp: Option<Span>,
    /// Connections that are opened together; one at a time by default.
    #[schemars(range(min = 1))]
    pub launch: Option<u16>,
    /// First packets only, no answer expected; false by default.
    pub flood: Option<bool>,
    /// Datagrams back to back; 1 by default.
    #[schemars(range(min = 1, max = 100))]
    pub pipeline: Option<u16>,
    /// A different address for each connection, not only a different port; false by default, all ports of an address before the next.
    pub hop: Option<bool>,
    /// How packets enter and leave the kernel; auto by default.
    pub driver: Option<Driver>,
    /// Queues of each end that are used, each with a thread; 1 by default.
    pub workers: Option<PacketThreadsFile>,
    /// How the highest rate is found before the window; without it the load has the rate that it says.
    pub search: Option<SearchFile>,
}
