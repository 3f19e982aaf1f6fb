//! Loads as suite files write them, and as the two ends run them.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use rig_load::plan::{
    Arrivals, Datagrams, Engine, Flow, Load, Pacing, Phases, ReceiveMode, Role, Schedule, SendMode, TcpStream,
    Transactions, WorkerPlan,
};
use rig_packet::Close;
use rig_packet::plan::Driver;
use rig_stats::units::{ByteRate, Bytes, PerSecond, Span};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::file::OneOrMany;
use super::packets::{self, EndWorkersFile, PacketTraffic, PortsFile, Protocol, SearchFile};

/// Of a load that does not say after how long it gives up waiting for a response.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Every key is optional to serde; which ones a load may have depends on its kind: see [`LoadKind::keys`].
macro_rules! load_file {
    ($($(#[$doc:meta])* $key:ident: $type:ty,)*) => {
        #[derive(Debug, Clone, Default, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(super) struct LoadFile {
            $($(#[$doc])* pub $key: Option<$type>,)*
        }

        impl LoadFile {
            /// This load with what it leaves open taken from `defaults`.
            fn or(self, defaults: Self) -> Self {
                Self { $($key: self.$key.or(defaults.$key),)* }
            }

            /// What this load says under the keys that are `wanted`.
            pub fn only(self, wanted: impl Fn(&str) -> bool) -> Self {
                Self { $($key: self.$key.filter(|_| wanted(stringify!($key))),)* }
            }

            /// The keys that are there.
            pub fn given(&self) -> Vec<&'static str> {
                let keys = [$((stringify!($key), self.$key.is_some()),)*];
                keys.into_iter().filter(|(_, given)| *given).map(|(key, _)| key).collect()
            }
        }
    };
}

/// Transactions per second. Whoever writes bits or bytes means another key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rate(PerSecond);

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let hint = |error| D::Error::custom(format!("{error}; `throttle` is what limits streams"));
        PerSecond::deserialize(deserializer).map(Self).map_err(hint)
    }
}

load_file! {
    kind: LoadKind,
    /// Of a load that runs under another one: its endpoints, unless they are the other's.
    from: OneOrMany,
    to: OneOrMany,
    flow: Flow,
    threads: u32,
    connections: u32,
    message: Bytes,
    /// What the receiving end asks for at once; as much as `message` unless told.
    receive_message: Bytes,
    request: Bytes,
    response: Bytes,
    in_flight: u32,
    /// Transactions per second of each pair; as fast as they are answered unless told.
    rate: Rate,
    arrivals: Arrivals,
    timeout: Span,
    batch: u32,
    segments: u32,
    coalesce: bool,
    send_buffer: Bytes,
    receive_buffer: Bytes,
    no_delay: bool,
    throttle: ByteRate,
    pacing: Pacing,
    congestion_control: String,
    outstanding: Outstanding,
    send_mode: SendMode,
    receive_mode: ReceiveMode,
    /// Of packets, as all that follow.
    protocol: Protocol,
    /// New connections, of UDP first datagrams, per second.
    connections_per_second: PerSecond,
    /// Connections that are open at once; no more are opened.
    hold: u32,
    /// Requests of each connection; without end unless told, where there are several.
    requests: u16,
    /// From request to request of a connection.
    interval: Span,
    /// Of all connections together, on those that are held.
    requests_per_second: PerSecond,
    client_addresses: u32,
    server_addresses: u32,
    client_ports: PortsFile,
    server_ports: PortsFile,
    /// How a client ends a connection.
    close: Close,
    /// Until a segment is sent again for the first time.
    retransmit: Span,
    retries: u8,
    /// Segments of a response that may be under way.
    send_window: u8,
    /// How long the rate of connections rises.
    ramp: Span,
    /// Connections that are opened together.
    launch: u16,
    /// First packets only, no answer expected.
    flood: bool,
    /// Datagrams back to back.
    pipeline: u16,
    /// Another address with each connection, and not another port only.
    hop: bool,
    driver: Driver,
    /// Queues of each end that are used, each with a thread.
    workers: EndWorkersFile,
    search: SearchFile,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum LoadKind {
    TcpStream,
    TcpMaerts,
    TcpRr,
    TcpCrr,
    UdpStream,
    UdpRr,
    Packets,
}

/// NTttcp's `-a` of each end. An end that is not named makes one system call at a time.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Outstanding {
    pub send: Option<u32>,
    pub receive: Option<u32>,
}

impl LoadKind {
    const ALL: [Self; 7] =
        [Self::TcpStream, Self::TcpMaerts, Self::TcpRr, Self::TcpCrr, Self::UdpStream, Self::UdpRr, Self::Packets];

    fn name(self) -> &'static str {
        match self {
            Self::TcpStream => "tcp-stream",
            Self::TcpMaerts => "tcp-maerts",
            Self::TcpRr => "tcp-rr",
            Self::TcpCrr => "tcp-crr",
            Self::UdpStream => "udp-stream",
            Self::UdpRr => "udp-rr",
            Self::Packets => "packets",
        }
    }

    /// What can be said of a load of this kind, beside its kind.
    pub fn keys(self) -> Vec<&'static str> {
        const EVERY: &[&str] = &["threads", "connections", "send_buffer", "receive_buffer"];
        const TCP: &[&str] = &["no_delay", "congestion_control"];
        const TRANSACTIONS: &[&str] = &["request", "response", "rate", "arrivals"];
        const TCP_BULK: &[&str] =
            &["message", "receive_message", "throttle", "outstanding", "send_mode", "receive_mode"];
        const UDP_BULK: &[&str] = &["message", "batch", "segments", "coalesce", "throttle", "pacing", "flow"];
        const PACKETS: &[&str] = &[
            "protocol",
            "connections_per_second",
            "hold",
            "requests",
            "interval",
            "requests_per_second",
            "request",
            "response",
            "client_addresses",
            "server_addresses",
            "client_ports",
            "server_ports",
            "close",
            "retransmit",
            "retries",
            "send_window",
            "timeout",
            "ramp",
            "launch",
            "flood",
            "pipeline",
            "hop",
            "driver",
            "workers",
            "search",
        ];
        let parts: &[&[&str]] = match self {
            Self::TcpStream => &[TCP_BULK, &["flow"], TCP],
            Self::TcpMaerts => &[TCP_BULK, TCP],
            Self::TcpRr => &[TRANSACTIONS, &["in_flight"], TCP],
            Self::TcpCrr => &[TRANSACTIONS, TCP],
            Self::UdpStream => &[UDP_BULK],
            Self::UdpRr => &[TRANSACTIONS, &["in_flight", "timeout"]],
            Self::Packets => &[PACKETS],
        };
        let every = if self == Self::Packets { &[] } else { EVERY };
        [every].iter().chain(parts).flat_map(|part| part.iter().copied()).collect()
    }
}

/// What is wrong with a load, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LoadError {
    pub what: String,
    pub hint: Option<String>,
}

pub(super) fn error<T>(what: impl Into<String>, hint: impl Into<String>) -> Result<T, LoadError> {
    Err(LoadError { what: what.into(), hint: Some(hint.into()) })
}

impl LoadFile {
    /// The same with what it leaves open taken from `defaults`, of which those hold that a load of this kind can have.
    ///
    /// # Errors
    /// When it has no kind, or says something that a load of its kind knows nothing of.
    pub fn complete(self, defaults: &Self) -> Result<(LoadKind, Self), LoadError> {
        let Some(kind) = self.kind.or(defaults.kind) else {
            let kinds: Vec<String> = LoadKind::ALL.iter().map(|kind| format!("\"{}\"", kind.name())).collect();
            return error(
                "the load has no kind",
                format!("write for instance kind = \"tcp-stream\": {}", kinds.join(", ")),
            );
        };
        let keys = kind.keys();
        if let Some(stranger) = self.given().into_iter().find(|key| *key != "kind" && !keys.contains(key)) {
            let hint = format!("remove it, or use one of {}", keys.join(", "));
            return error(format!("a load of kind {} has no '{stranger}'", kind.name()), hint);
        }
        Ok((kind, self.or(defaults.clone().only(|key| keys.contains(&key)))))
    }
}

/// A load as its two ends run it.
pub(super) struct Ends {
    pub connect: Load,
    pub listen: Load,
    /// What loads of packets are besides.
    pub packets: Option<PacketTraffic>,
}

/// The load as the connecting and as the listening end run it. Loads of packets are checked when their testbed is known.
pub(super) fn ends(kind: LoadKind, load: &LoadFile) -> Result<Ends, LoadError> {
    let (connect, listen) = match kind {
        LoadKind::Packets => {
            let (connect, listen, packets) = packets::ends(load)?;
            return Ok(Ends { connect, listen, packets: Some(packets) });
        }
        LoadKind::TcpStream => {
            let flow = load.flow.unwrap_or_default();
            bulk(load, flow)?
        }
        LoadKind::TcpMaerts => bulk(load, Flow::Reverse)?,
        LoadKind::TcpRr => both(Load::TcpRr(transactions(load)?)),
        LoadKind::TcpCrr => both(Load::TcpCrr(transactions(load)?)),
        LoadKind::UdpStream => both(Load::UdpStream(datagrams(load)?)),
        LoadKind::UdpRr => both(Load::UdpRr(transactions(load)?)),
    };
    validate(&connect, &listen)?;
    Ok(Ends { connect, listen, packets: None })
}

fn both(load: Load) -> (Load, Load) {
    (load.clone(), load)
}

/// What the plan cannot even hold; it checks its ranges itself.
fn bytes(name: &str, value: Option<Bytes>) -> Result<Option<u32>, LoadError> {
    let Some(value) = value else { return Ok(None) };
    match u32::try_from(value.0) {
        Ok(value) => Ok(Some(value)),
        Err(_) => error(format!("{name} of {value}"), "choose less than 4 GiB"),
    }
}

fn message(load: &LoadFile) -> Result<u32, LoadError> {
    match bytes("message", load.message)? {
        Some(message) => Ok(message),
        None => error("the load has no message size", "write for instance message = \"128k\""),
    }
}

fn bulk(load: &LoadFile, flow: Flow) -> Result<(Load, Load), LoadError> {
    let engine = |outstanding: Option<u32>| match outstanding {
        None => Engine::Blocking,
        Some(outstanding) => Engine::Uring { outstanding },
    };
    let outstanding = load.outstanding.unwrap_or_default();
    let sender = TcpStream {
        flow,
        threads: load.threads.unwrap_or(1),
        connections: load.connections.unwrap_or(1),
        message: message(load)?,
        send_buffer: bytes("send_buffer", load.send_buffer)?,
        receive_buffer: bytes("receive_buffer", load.receive_buffer)?,
        no_delay: load.no_delay.unwrap_or(false),
        throttle: load.throttle.map(|rate| rate.0),
        congestion_control: load.congestion_control.clone(),
        engine: engine(outstanding.send),
        send_mode: load.send_mode.unwrap_or_default(),
        receive_mode: ReceiveMode::Copy,
    };
    let receive_mode = load.receive_mode.unwrap_or_default();
    let receive_message = bytes("receive_message", load.receive_message)?;
    if flow == Flow::Both {
        if receive_message.is_some() {
            return error("a flow both ways has no 'receive_message'", "both ends send and ask for `message` at once");
        }
        if outstanding.send != outstanding.receive {
            let hint =
                "give `send` and `receive` the same number, for instance outstanding = { send = 2, receive = 2 }";
            return error("a flow both ways has as many operations outstanding each way", hint);
        }
        return Ok(both(Load::TcpStream(TcpStream { receive_mode, ..sender })));
    }
    let receiver = TcpStream {
        message: receive_message.unwrap_or(sender.message),
        engine: engine(outstanding.receive),
        send_mode: SendMode::Copy,
        receive_mode,
        throttle: None,
        ..sender.clone()
    };
    let (sender, receiver) = (Load::TcpStream(sender), Load::TcpStream(receiver));
    Ok(if flow == Flow::Reverse { (receiver, sender) } else { (sender, receiver) })
}

fn transactions(load: &LoadFile) -> Result<Transactions, LoadError> {
    let schedule = match (load.rate.map(|Rate(rate)| rate.get()), load.arrivals) {
        (None, None) => Schedule::Closed,
        (Some(rate), arrivals) => Schedule::Open { rate, arrivals: arrivals.unwrap_or_default() },
        (None, Some(_)) => return error("'arrivals' without a rate", "write for instance rate = 10000"),
    };
    Ok(Transactions {
        threads: load.threads.unwrap_or(1),
        connections: load.connections.unwrap_or(1),
        // As netperf's.
        request: bytes("request", load.request)?.unwrap_or(1),
        response: bytes("response", load.response)?.unwrap_or(1),
        in_flight: load.in_flight.unwrap_or(1),
        schedule,
        timeout: load.timeout.map_or(TIMEOUT, |timeout| timeout.0),
        send_buffer: bytes("send_buffer", load.send_buffer)?,
        receive_buffer: bytes("receive_buffer", load.receive_buffer)?,
        no_delay: load.no_delay.unwrap_or(false),
        congestion_control: load.congestion_control.clone(),
    })
}

fn datagrams(load: &LoadFile) -> Result<Datagrams, LoadError> {
    let pacing = load.pacing.unwrap_or_default();
    if pacing == Pacing::Kernel {
        let hint = "write pacing = \"thread\", or leave it out";
        return error("no interface of a testbed has the fq queueing discipline that the kernel paces with", hint);
    }
    if load.pacing.is_some() && load.throttle.is_none() {
        return error("'pacing' without a throttle", "write for instance throttle = \"10000KB/s\"");
    }
    Ok(Datagrams {
        flow: load.flow.unwrap_or_default(),
        threads: load.threads.unwrap_or(1),
        connections: load.connections.unwrap_or(1),
        message: message(load)?,
        batch: load.batch.unwrap_or(1),
        segments: load.segments.unwrap_or(1),
        coalesce: load.coalesce.unwrap_or(false),
        throttle: load.throttle.map(|rate| rate.0),
        pacing,
        // The ends of a testbed are processes of one kernel.
        shared_clock: true,
        send_buffer: bytes("send_buffer", load.send_buffer)?,
        receive_buffer: bytes("receive_buffer", load.receive_buffer)?,
    })
}

/// Has each end's plan check its ranges.
pub(super) fn validate(connect: &Load, listen: &Load) -> Result<(), LoadError> {
    let anywhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let (connecting, listening) = (Role::Connect { to: anywhere }, Role::Listen { address: anywhere, only_from: None });
    let mut ends = [(connecting, connect), (listening, listen)];
    // What both ends share is found wrong at the sender.
    if let Load::TcpStream(TcpStream { flow: Flow::Reverse, .. }) = connect {
        ends.reverse();
    }
    for (place, (role, load)) in ["", "at the receiver, "].into_iter().zip(ends) {
        let second = Duration::from_secs(1);
        let plan = WorkerPlan {
            name: String::new(),
            cpus: Vec::new(),
            role,
            load: load.clone(),
            phases: Phases { warm_up: second, window: second, cool_down: second, interval: second },
            ceiling: None,
        };
        plan.validate().map_err(|e| LoadError { what: format!("{place}{e}"), hint: None })?;
    }
    Ok(())
}

/// Which way payload goes; `None` where requests are answered.
pub fn flow(load: &Load) -> Option<Flow> {
    match load {
        Load::TcpStream(TcpStream { flow, .. }) | Load::UdpStream(Datagrams { flow, .. }) => Some(*flow),
        Load::TcpRr(_) | Load::TcpCrr(_) | Load::UdpRr(_) | Load::Packets(_) | Load::Idle => None,
    }
}
