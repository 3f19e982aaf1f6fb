//! Loads as suite files write them, and as the two ends run them.

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::time::Duration;

use rig_load::plan::{
    Datagrams, Engine, Flow, Load, Pacing, Phases, ReceiveMode, Role, Schedule, SendMode, TcpStream, Transactions,
    WorkerPlan,
};
use rig_stats::units::Bytes;

use super::AskedLoad;
use super::packets::{self, PacketTraffic};

mod keys;
mod names;
mod schema;
mod table;

use self::keys::{BulkKeys, DatagramKeys, ExchangeKeys, FlowKey, PaceKeys, Rate, SocketKeys, StreamKeys, TcpKeys};
pub(super) use self::keys::{LoadKeys, LoadKind, PacketLoadKeys};
pub(super) use self::schema::{LoadFile, UnderFile};
pub(super) use self::table::LoadTable;

/// Of a load that does not say after how long it gives up waiting for a response.
const TIMEOUT: Duration = Duration::from_secs(1);
/// The longest that a worker takes.
const ANY_WINDOW: Duration = Duration::from_secs(24 * 3600);

/// What is wrong with a load, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LoadError {
    pub what: String,
    pub hint: Option<String>,
    /// Where it is written, where that is known at once.
    pub at: Option<Range<usize>>,
}

impl LoadError {
    /// One that says by itself what to do.
    pub fn plain(what: impl Into<String>) -> Self {
        Self { what: what.into(), hint: None, at: None }
    }
}

pub(super) fn error<T>(what: impl Into<String>, hint: impl Into<String>) -> Result<T, LoadError> {
    Err(LoadError { what: what.into(), hint: Some(hint.into()), at: None })
}

/// A load as its two ends run it.
pub(super) struct LoadPair {
    pub connect: AskedLoad,
    pub listen: AskedLoad,
    /// What loads of packets are besides.
    pub packets: Option<PacketTraffic>,
}

/// The load as the connecting and as the listening end run it. Loads of packets are checked when their testbed is known.
pub(super) fn ends(load: &LoadKeys) -> Result<LoadPair, LoadError> {
    let (connect, listen) = match load {
        LoadKeys::Packets(keys) => {
            let (load, packets) = packets::asked(keys)?;
            let (connect, listen) = both(AskedLoad::Packets(Box::new(load)));
            return Ok(LoadPair { connect, listen, packets: Some(packets) });
        }
        LoadKeys::TcpStream { flow, bulk, stream, tcp, sockets } => {
            self::stream(flow.flow.unwrap_or_default(), bulk, stream, tcp, sockets)?
        }
        LoadKeys::TcpMaerts { bulk, stream, tcp, sockets } => self::stream(Flow::Reverse, bulk, stream, tcp, sockets)?,
        LoadKeys::TcpRr { exchange, pace, in_flight, tcp, sockets } => {
            let transactions = transactions(exchange, pace, Some(tcp), sockets)?;
            both(AskedLoad::TcpRr(Transactions { in_flight: in_flight.in_flight.unwrap_or(1), ..transactions }))
        }
        LoadKeys::TcpCrr { exchange, pace, tcp, sockets } => {
            both(AskedLoad::TcpCrr(transactions(exchange, pace, Some(tcp), sockets)?))
        }
        LoadKeys::UdpStream { flow, bulk, datagrams, sockets } => {
            both(AskedLoad::UdpStream(self::datagrams(flow, bulk, datagrams, sockets)?))
        }
        LoadKeys::UdpRr { exchange, pace, in_flight, timeout, sockets } => both(AskedLoad::UdpRr(Transactions {
            in_flight: in_flight.in_flight.unwrap_or(1),
            timeout: timeout.timeout.map_or(TIMEOUT, |timeout| timeout.0),
            ..transactions(exchange, pace, None, sockets)?
        })),
    };
    let [own, other] = [&connect, &listen].map(|load| load.try_map(|_| error("packets without a port", "")));
    validate(&own?, &other?)?;
    Ok(LoadPair { connect, listen, packets: None })
}

fn both(load: AskedLoad) -> (AskedLoad, AskedLoad) {
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

fn message(bulk: &BulkKeys) -> Result<u32, LoadError> {
    match bytes("message", bulk.message)? {
        Some(message) => Ok(message),
        None => error("the load has no message size", "write for instance message = \"128k\""),
    }
}

fn stream(
    flow: Flow,
    bulk: &BulkKeys,
    stream: &StreamKeys,
    tcp: &TcpKeys,
    sockets: &SocketKeys,
) -> Result<(AskedLoad, AskedLoad), LoadError> {
    let engine = |outstanding: Option<u32>| match outstanding {
        None => Engine::Blocking,
        Some(outstanding) => Engine::Uring { outstanding },
    };
    let outstanding = stream.outstanding.unwrap_or_default();
    let sender = TcpStream {
        flow,
        threads: sockets.threads.unwrap_or(1),
        connections: sockets.connections.unwrap_or(1),
        message: message(bulk)?,
        send_buffer: bytes("send_buffer", sockets.send_buffer)?,
        receive_buffer: bytes("receive_buffer", sockets.receive_buffer)?,
        no_delay: tcp.no_delay.unwrap_or(false),
        throttle: bulk.throttle.map(|rate| rate.0),
        congestion_control: tcp.congestion_control.clone(),
        engine: engine(outstanding.send),
        send_mode: stream.send_mode.unwrap_or_default(),
        receive_mode: ReceiveMode::Copy,
    };
    let receive_mode = stream.receive_mode.unwrap_or_default();
    let receive_message = bytes("receive_message", stream.receive_message)?;
    if flow == Flow::Both {
        if receive_message.is_some() {
            return error("a flow both ways has no 'receive_message'", "both ends send and ask for `message` at once");
        }
        if outstanding.send != outstanding.receive {
            let hint =
                "give `send` and `receive` the same number, for instance outstanding = { send = 2, receive = 2 }";
            return error("a flow both ways has as many operations outstanding each way", hint);
        }
        return Ok(both(AskedLoad::TcpStream(TcpStream { receive_mode, ..sender })));
    }
    let receiver = TcpStream {
        message: receive_message.unwrap_or(sender.message),
        engine: engine(outstanding.receive),
        send_mode: SendMode::Copy,
        receive_mode,
        throttle: None,
        ..sender.clone()
    };
    let (sender, receiver) = (AskedLoad::TcpStream(sender), AskedLoad::TcpStream(receiver));
    Ok(if flow == Flow::Reverse { (receiver, sender) } else { (sender, receiver) })
}

fn transactions(
    exchange: &ExchangeKeys,
    pace: &PaceKeys,
    tcp: Option<&TcpKeys>,
    sockets: &SocketKeys,
) -> Result<Transactions, LoadError> {
    let schedule = match (pace.rate.map(|Rate(rate)| rate.get()), pace.arrivals) {
        (None, None) => Schedule::Closed,
        (Some(rate), arrivals) => Schedule::Open { rate, arrivals: arrivals.unwrap_or_default() },
        (None, Some(_)) => return error("'arrivals' without a rate", "write for instance rate = 10000"),
    };
    Ok(Transactions {
        threads: sockets.threads.unwrap_or(1),
        connections: sockets.connections.unwrap_or(1),
        // As netperf's.
        request: bytes("request", exchange.request)?.unwrap_or(1),
        response: bytes("response", exchange.response)?.unwrap_or(1),
        in_flight: 1,
        schedule,
        timeout: TIMEOUT,
        send_buffer: bytes("send_buffer", sockets.send_buffer)?,
        receive_buffer: bytes("receive_buffer", sockets.receive_buffer)?,
        no_delay: tcp.and_then(|tcp| tcp.no_delay).unwrap_or(false),
        congestion_control: tcp.and_then(|tcp| tcp.congestion_control.clone()),
    })
}

fn datagrams(
    flow: &FlowKey,
    bulk: &BulkKeys,
    datagrams: &DatagramKeys,
    sockets: &SocketKeys,
) -> Result<Datagrams, LoadError> {
    let pacing = datagrams.pacing.unwrap_or_default();
    if pacing == Pacing::Kernel {
        let hint = "write pacing = \"thread\", or leave it out";
        return error("no interface of a testbed has the fq queueing discipline that the kernel paces with", hint);
    }
    if datagrams.pacing.is_some() && bulk.throttle.is_none() {
        return error("'pacing' without a throttle", "write for instance throttle = \"10000KB/s\"");
    }
    Ok(Datagrams {
        flow: flow.flow.unwrap_or_default(),
        threads: sockets.threads.unwrap_or(1),
        connections: sockets.connections.unwrap_or(1),
        message: message(bulk)?,
        batch: datagrams.batch.unwrap_or(1),
        segments: datagrams.segments.unwrap_or(1),
        coalesce: datagrams.coalesce.unwrap_or(false),
        throttle: bulk.throttle.map(|rate| rate.0),
        pacing,
        // The ends of a testbed are processes of one kernel.
        shared_clock: true,
        send_buffer: bytes("send_buffer", sockets.send_buffer)?,
        receive_buffer: bytes("receive_buffer", sockets.receive_buffer)?,
    })
}

/// Has each end's plan check its ranges; what a window asks for is known when there is one
/// ([`Traffic::falls_into`](super::Traffic::falls_into)).
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
            phases: Phases { warm_up: second, window: ANY_WINDOW, cool_down: second, interval: second },
            ceiling: None,
        };
        plan.validate().map_err(|e| LoadError::plain(format!("{place}{e}")))?;
    }
    Ok(())
}

/// Which way payload goes; `None` where requests are answered.
pub fn flow(load: &AskedLoad) -> Option<Flow> {
    match load {
        AskedLoad::TcpStream(TcpStream { flow, .. }) | AskedLoad::UdpStream(Datagrams { flow, .. }) => Some(*flow),
        AskedLoad::TcpRr(_) | AskedLoad::TcpCrr(_) | AskedLoad::UdpRr(_) | AskedLoad::Packets(_) | AskedLoad::Idle => {
            None
        }
    }
}
