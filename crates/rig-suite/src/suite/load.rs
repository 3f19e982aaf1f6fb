//! Loads as suite files write them, and as the two ends run them.

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::time::Duration;

use rig_cli::source::Spanned;
use rig_load::plan::{
    Datagrams, Engine, Flow, Load, Pacing, Phases, ReceiveMode, Role, Schedule, SendMode, SocketOptions, TcpStream,
    Transactions, WorkerPlan,
};
use rig_stats::units::Bytes;

use super::RequestedLoad;
use super::packets::{self, PacketTraffic};

mod error;
mod keys;
mod schema;

pub(super) use self::error::{ErrorLocation, LoadError, error, key_of_search};
use self::keys::{DscpFile, Rate};
pub(super) use self::keys::{LoadFile, LoadKind, UnderFile, value};

/// Of a load that does not say after how long it gives up waiting for a response.
const TIMEOUT: Duration = Duration::from_secs(1);
/// The longest that a worker takes.
const ANY_WINDOW: Duration = Duration::from_secs(24 * 3600);

/// Where a load is written: in a table of its own, in that of the defaults, or in both.
#[derive(Debug, Clone)]
pub(super) struct LoadSource<'f> {
    /// Of its own table; without one, of what has the load.
    pub span: Range<usize>,
    pub own: Option<&'f LoadFile>,
    pub defaults: Option<&'f LoadFile>,
}

impl LoadSource<'_> {
    /// Its kind and its keys, those of the defaults included. Defaults that a load of its kind cannot have are left out.
    ///
    /// # Errors
    /// When it has no kind, or says something that a load of its kind knows nothing of.
    pub fn read(&self) -> Result<(LoadKind, LoadFile), LoadError> {
        let Some(kind) = self.tables().find_map(|table| value(&table.kind)) else {
            let kinds: Vec<String> = LoadKind::ALL.iter().map(|kind| format!("\"{}\"", kind.name())).collect();
            let hint = format!("write for instance kind = \"tcp-stream\": {}", kinds.join(", "));
            return error(&[], "the load has no kind", hint);
        };
        let mut given = self.own.into_iter().flat_map(LoadFile::given);
        if let Some((key, span)) = given.find(|(key, _)| !kind.keys().any(|known| known == *key)) {
            let what = format!("a load of kind {} has no '{key}'", kind.name());
            let hint = format!("remove it, or use one of {}", kind.keys().collect::<Vec<_>>().join(", "));
            return Err(LoadError { what, hint: Some(hint), at: ErrorLocation::Span(span) });
        }
        let own = self.own.cloned().unwrap_or_default();
        let load = match self.defaults {
            Some(defaults) => own.completed(kind, defaults),
            None => own,
        };
        Ok((kind, load))
    }

    /// Where an error of the load is.
    pub fn span_of(&self, at: &ErrorLocation) -> Range<usize> {
        let keys = match at {
            ErrorLocation::Span(span) => return span.clone(),
            ErrorLocation::Keys(keys) => *keys,
        };
        let place = |table: &LoadFile| {
            let of = |key: &&str| table.given().find(|(given, _)| given == key).map(|(_, span)| span);
            keys.iter().find_map(of)
        };
        self.tables().find_map(place).unwrap_or_else(|| self.span.clone())
    }

    fn tables(&self) -> impl Iterator<Item = &LoadFile> {
        self.own.into_iter().chain(self.defaults)
    }
}

/// A load as its two ends run it.
pub(super) struct LoadPair {
    pub connect: RequestedLoad,
    pub listen: RequestedLoad,
    /// What loads of packets are besides.
    pub packets: Option<PacketTraffic>,
}

/// The load as the connecting and as the listening end run it. Loads of packets are checked when their testbed is known.
pub(super) fn ends(kind: LoadKind, load: &LoadFile) -> Result<LoadPair, LoadError> {
    let (connect, listen) = match kind {
        LoadKind::Packets => {
            let (load, packets) = packets::asked(load)?;
            let (connect, listen) = both(RequestedLoad::Packets(Box::new(load)));
            return Ok(LoadPair { connect, listen, packets: Some(packets) });
        }
        LoadKind::TcpStream => stream(value(&load.flow).unwrap_or_default(), load)?,
        LoadKind::TcpMaerts => stream(Flow::Reverse, load)?,
        LoadKind::TcpRr => both(RequestedLoad::TcpRr(transactions(load)?)),
        LoadKind::TcpCrr => both(RequestedLoad::TcpCrr(transactions(load)?)),
        LoadKind::UdpRr => both(RequestedLoad::UdpRr(transactions(load)?)),
        LoadKind::UdpStream => both(RequestedLoad::UdpStream(datagrams(load)?)),
    };
    let [own, other] = [&connect, &listen].map(|load| load.try_map(|_| error(&[], "packets without a port", "")));
    validate(&own?, &other?)?;
    Ok(LoadPair { connect, listen, packets: None })
}

fn both(load: RequestedLoad) -> (RequestedLoad, RequestedLoad) {
    (load.clone(), load)
}

/// What the plan cannot even hold; it checks its ranges itself.
fn bytes(name: &str, size: &Option<Spanned<Bytes>>) -> Result<Option<u32>, LoadError> {
    let Some(size) = size else { return Ok(None) };
    match u32::try_from(size.get_ref().0) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(_) => Err(LoadError {
            what: format!("{name} of {}", size.get_ref()),
            hint: Some("choose less than 4 GiB".to_owned()),
            at: ErrorLocation::Span(size.span()),
        }),
    }
}

fn message(load: &LoadFile) -> Result<u32, LoadError> {
    match bytes("message", &load.message)? {
        Some(message) => Ok(message),
        None => error(&[], "the load has no message size", "write for instance message = \"128k\""),
    }
}

/// What its sockets are told.
fn options(load: &LoadFile) -> Result<SocketOptions, LoadError> {
    let busy_poll = value(&load.busy_poll).map(|span| span.0);
    if busy_poll.is_some_and(|span| !span.subsec_nanos().is_multiple_of(1000)) {
        return error(
            &["busy_poll"],
            "'busy_poll' is not whole microseconds",
            "write for instance busy_poll = \"50us\"",
        );
    }
    Ok(SocketOptions {
        dscp: value(&load.dscp).map(|DscpFile(dscp)| dscp),
        mss: bytes("mss", &load.mss)?,
        hop_limit: value(&load.ttl),
        priority: value(&load.priority),
        not_sent_low_water: bytes("not_sent_low_water", &load.not_sent_low_water)?,
        // What is more is out of range, too.
        busy_poll_us: busy_poll.map(|span| u32::try_from(span.as_micros()).unwrap_or(u32::MAX)),
        mptcp: value(&load.mptcp).unwrap_or(false),
    })
}

fn stream(flow: Flow, load: &LoadFile) -> Result<(RequestedLoad, RequestedLoad), LoadError> {
    let engine = |outstanding: Option<u32>| match outstanding {
        None => Engine::Blocking,
        Some(outstanding) => Engine::Uring { outstanding },
    };
    let outstanding = value(&load.outstanding).unwrap_or_default();
    let sender = TcpStream {
        flow,
        threads: value(&load.threads).unwrap_or(1),
        connections: value(&load.connections).unwrap_or(1),
        message: message(load)?,
        send_buffer: bytes("send_buffer", &load.send_buffer)?,
        receive_buffer: bytes("receive_buffer", &load.receive_buffer)?,
        no_delay: value(&load.no_delay).unwrap_or(false),
        throttle: value(&load.throttle).map(|rate| rate.0),
        congestion_control: value(&load.congestion_control),
        engine: engine(outstanding.send),
        send_mode: value(&load.send_mode).unwrap_or_default(),
        receive_mode: ReceiveMode::Copy,
        options: options(load)?,
    };
    let receive_mode = value(&load.receive_mode).unwrap_or_default();
    let receive_message = bytes("receive_message", &load.receive_message)?;
    if flow == Flow::Both {
        if receive_message.is_some() {
            let what = "a flow both ways has no 'receive_message'";
            return error(&["receive_message"], what, "both ends send and ask for `message` at once");
        }
        if outstanding.send != outstanding.receive {
            let what = "a flow both ways has as many operations outstanding each way";
            let hint =
                "give `send` and `receive` the same number, for instance outstanding = { send = 2, receive = 2 }";
            return error(&["outstanding"], what, hint);
        }
        return Ok(both(RequestedLoad::TcpStream(TcpStream { receive_mode, ..sender })));
    }
    let receiver = TcpStream {
        message: receive_message.unwrap_or(sender.message),
        engine: engine(outstanding.receive),
        send_mode: SendMode::Copy,
        receive_mode,
        throttle: None,
        ..sender.clone()
    };
    let (sender, receiver) = (RequestedLoad::TcpStream(sender), RequestedLoad::TcpStream(receiver));
    Ok(if flow == Flow::Reverse { (receiver, sender) } else { (sender, receiver) })
}

fn transactions(load: &LoadFile) -> Result<Transactions, LoadError> {
    let schedule = match (value(&load.rate).map(|Rate(rate)| rate.get()), value(&load.arrivals)) {
        (None, None) => Schedule::Closed,
        (Some(rate), arrivals) => Schedule::Open { rate, arrivals: arrivals.unwrap_or_default() },
        (None, Some(_)) => {
            return error(&["arrivals"], "'arrivals' without a rate", "write for instance rate = 10000");
        }
    };
    Ok(Transactions {
        threads: value(&load.threads).unwrap_or(1),
        connections: value(&load.connections).unwrap_or(1),
        // As netperf's.
        request: bytes("request", &load.request)?.unwrap_or(1),
        response: bytes("response", &load.response)?.unwrap_or(1),
        in_flight: value(&load.in_flight).unwrap_or(1),
        schedule,
        timeout: value(&load.timeout).map_or(TIMEOUT, |timeout| timeout.0),
        send_buffer: bytes("send_buffer", &load.send_buffer)?,
        receive_buffer: bytes("receive_buffer", &load.receive_buffer)?,
        no_delay: value(&load.no_delay).unwrap_or(false),
        congestion_control: value(&load.congestion_control),
        options: options(load)?,
    })
}

fn datagrams(load: &LoadFile) -> Result<Datagrams, LoadError> {
    let pacing = value(&load.pacing).unwrap_or_default();
    if pacing == Pacing::Kernel {
        let what = "no interface of a testbed has the fq queueing discipline that the kernel paces with";
        return error(&["pacing"], what, "write pacing = \"thread\", or leave it out");
    }
    if load.pacing.is_some() && load.throttle.is_none() {
        return error(&["pacing"], "'pacing' without a throttle", "write for instance throttle = \"10000KB/s\"");
    }
    Ok(Datagrams {
        flow: value(&load.flow).unwrap_or_default(),
        threads: value(&load.threads).unwrap_or(1),
        connections: value(&load.connections).unwrap_or(1),
        message: message(load)?,
        batch: value(&load.batch).unwrap_or(1),
        segments: value(&load.segments).unwrap_or(1),
        coalesce: value(&load.coalesce).unwrap_or(false),
        throttle: value(&load.throttle).map(|rate| rate.0),
        pacing,
        // The ends of a testbed are processes of one kernel.
        shared_clock: true,
        send_buffer: bytes("send_buffer", &load.send_buffer)?,
        receive_buffer: bytes("receive_buffer", &load.receive_buffer)?,
        options: options(load)?,
    })
}

/// Has each end's plan check its ranges; what a window asks for is known when there is one
/// ([`Traffic::falls_into`](super::Traffic::falls_into)).
pub(super) fn validate(connect: &Load, listen: &Load) -> Result<(), LoadError> {
    let anywhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let (connecting, listening) = (Role::connect(anywhere), Role::Listen { address: anywhere, only_from: None });
    let mut ends = [(connecting, connect), (listening, listen)];
    // What both ends share is found wrong at the sender.
    if let Load::TcpStream(TcpStream { flow: Flow::Reverse, .. }) = connect {
        ends.reverse();
    }
    for (end, (role, load)) in ["", error::RECEIVER].into_iter().zip(ends) {
        let second = Duration::from_secs(1);
        let plan = WorkerPlan {
            name: String::new(),
            cpus: Vec::new(),
            role,
            load: load.clone(),
            phases: Phases { warm_up: second, window: ANY_WINDOW, cool_down: second, interval: second },
            ceiling: None,
            peer_clock_ns: 0,
        };
        plan.validate().map_err(|e| LoadError::of_plan(end, &e))?;
    }
    Ok(())
}

/// Which way payload goes; `None` where requests are answered.
pub fn flow(load: &RequestedLoad) -> Option<Flow> {
    match load {
        RequestedLoad::TcpStream(TcpStream { flow, .. }) | RequestedLoad::UdpStream(Datagrams { flow, .. }) => {
            Some(*flow)
        }
        RequestedLoad::TcpRr(_)
        | RequestedLoad::TcpCrr(_)
        | RequestedLoad::UdpRr(_)
        | RequestedLoad::Packets(_)
        | RequestedLoad::Idle => None,
    }
}
