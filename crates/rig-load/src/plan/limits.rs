//! What a plan may ask for.

use std::net::SocketAddr;
use std::time::Duration;

use rig_packet::Client;
use rig_sys::socket::{NamedAddress, SourceBinding};

use super::packets::{self, PacketsError};
use super::value::{Pace, PlanValue};
use super::{Datagrams, Direction, Engine, Load, Phases, ReceiveMode, Role, Schedule, SendMode, TcpStream, WorkerPlan};

/// Largest CPU number (the size of the C library's `cpu_set_t`).
const LAST_CPU: u64 = 1023;
pub(super) const THREADS: u64 = 1024;
pub(super) const CONNECTIONS: u64 = 20_000;
pub(super) const MESSAGE: u64 = 64 << 20;
/// The kernel keeps twice the size of a socket buffer in a signed 32-bit number.
const SOCKET_BUFFER: u64 = i32::MAX as u64 / 2;
/// TCP_CA_NAME_MAX of linux/tcp.h less its terminating zero.
const CONGESTION_NAME: usize = 15;
/// IFNAMSIZ of linux/if.h less its terminating zero.
const DEVICE_NAME: usize = 15;
const OUTSTANDING: u64 = 1024;
/// Operations that one io_uring can have outstanding (IORING_MAX_ENTRIES of io_uring/io_uring.c).
const RING: u64 = 32_768;
/// Payload buffers of one worker.
const MEMORY: u64 = 4 << 30;
const SHORTEST_INTERVAL: Duration = Duration::from_millis(10);
const SHORTEST_WINDOW: Duration = Duration::from_millis(10);
const LONGEST_PHASE: Duration = Duration::from_secs(24 * 3600);

/// A plan that cannot be carried out as it is written.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlanError {
    #[error("{what} is {value}: it has to be from {least} to {most}")]
    OutOfRange { what: PlanValue, value: u64, least: u64, most: u64 },
    #[error("{what} is {value:?}: it has to be from {least:?} to {most:?}")]
    TimeOutOfRange { what: &'static str, value: Duration, least: Duration, most: Duration },
    #[error("the rate is {rate} transactions per second: it has to be from {least} to {most}")]
    Rate { rate: f64, least: f64, most: f64 },
    #[error("pacing by the kernel has no rate: set a throttle, or leave the pacing to the thread")]
    PacingWithoutRate,
    #[error("the io_uring engine cannot send with {mode}, because {why}: use the blocking engine")]
    UringMode { mode: &'static str, why: &'static str },
    #[error(
        "the payload buffers would take {needed} bytes, more than {MEMORY}: lower the threads, connections, outstanding operations, the batch, the segments or the message"
    )]
    Memory { needed: u64 },
    #[error(
        "'{0}' is not a name of a congestion control: it has to have 1 to {CONGESTION_NAME} bytes and no zero or space"
    )]
    CongestionName(String),
    #[error("UDP has no congestion control: '{0}' has to be left out")]
    CongestionOfUdp(String),
    #[error("{0} is an option of TCP: UDP has none, and it has to be left out")]
    OptionOfTcp(PlanValue),
    #[error(
        "tcp-crr has no MPTCP: how a connection of it ends (RFC 8684, 3.3.3) is not what this load counts on; tcp-rr and streams have it"
    )]
    MptcpForEach,
    #[error("'{0}' is no name of an interface: it has to have 1 to {DEVICE_NAME} bytes and no zero, space or slash")]
    DeviceName(String),
    #[error("{from} cannot send to {to}: both have to be IPv4, or both IPv6")]
    SourceFamily { from: String, to: String },
    #[error(
        "at this rate {pace} each {every:.3?}, so that none may fall into the window of {window:?}: measure for longer, or {}", .pace.change()
    )]
    NothingFalls { pace: Pace, every: Duration, window: Duration },
    #[error(transparent)]
    Packets(#[from] PacketsError),
}

impl WorkerPlan {
    /// Checks the plan's values against their ranges, and that the engine can do what the modes ask.
    ///
    /// | value | least | most |
    /// |---|---|---|
    /// | CPU number | 0 | 1023 |
    /// | threads | 1 | 1024 |
    /// | threads x connections | 1 | 20 000 |
    /// | message | 1 B | 64 MiB |
    /// | send, receive buffer | 1 B | 1 GiB - 1 B |
    /// | throttle | 1 B/s | any |
    /// | outstanding | 1 | 1024 |
    /// | outstanding x connections | 1 | 32 768 |
    /// | datagram | 16 B | 65 507 B |
    /// | batch | 1 | 1024 |
    /// | segments | 1 | 64 |
    /// | segments x datagram | 16 B | 65 507 B |
    /// | request, response | 1 B | 64 MiB, over UDP 65 507 B |
    /// | transactions in flight on a connection | 1 | 1024, of tcp-crr 1, of udp-rr with a size of 1 B 256 |
    /// | threads x connections x transactions in flight | 1 | 1 048 576 |
    /// | rate of an open loop | 0.001/s | 100 000 000/s |
    /// | timeout of a request | 1 ms | 60 s |
    /// | window | 10 ms | 24 h |
    /// | warm-up, cool-down | 0 | 24 h |
    /// | interval | 10 ms | 24 h |
    /// | MSS | 88 B | 32 767 B |
    /// | hop limit | 1 | 255 |
    /// | low-water mark of unsent bytes | 1 B | 2 GiB - 1 B |
    /// | name of a device | 1 B | 15 B |
    /// | distance of two messages, datagrams, scheduled transactions, connections or requests of packets at their rate | | the window |
    ///
    /// The modes that belong to the other end (how this receiver's peer sends) are not looked at.
    ///
    /// # Errors
    /// The first value that is out of its range, or the combination that cannot be had.
    pub fn validate(&self) -> Result<(), PlanError> {
        for &cpu in &self.cpus {
            range(PlanValue::Cpu, cpu, 0, LAST_CPU)?;
        }
        self.phases.validate()?;
        if let Role::Connect { to, source } = &self.role {
            validate_source(source, *to)?;
        }
        match &self.load {
            Load::Idle => Ok(()),
            Load::TcpStream(stream) => {
                stream.validate()?;
                stream.engine.validate(stream, self.direction())
            }
            Load::TcpRr(transactions) => transactions.validate(),
            Load::TcpCrr(transactions) if transactions.options.mptcp => Err(PlanError::MptcpForEach),
            Load::TcpCrr(transactions) => {
                transactions.validate()?;
                range(PlanValue::InFlightOfOne, transactions.in_flight, 1, 1)
            }
            Load::UdpRr(transactions) => {
                transactions.validate()?;
                let datagram = |what, size| range(what, size, 1, Datagrams::MESSAGE_MAX.into());
                datagram(PlanValue::Request, transactions.request)?;
                datagram(PlanValue::Response, transactions.response)?;
                if transactions.request.min(transactions.response) == 1 {
                    // More have no number of their own.
                    range(PlanValue::InFlightOfBytes, transactions.in_flight, 1, 1 << 8)?;
                }
                transactions.options.validate_for_datagrams()?;
                match &transactions.congestion_control {
                    Some(name) => Err(PlanError::CongestionOfUdp(name.clone())),
                    None => Ok(()),
                }
            }
            Load::UdpStream(datagrams) => datagrams.validate(self.direction()),
            Load::Packets(packets) => Ok(packets::validate(packets, self.end())?),
        }?;
        self.load.falls_into(self.phases.window, |packets| packets.service.client())
    }
}

impl<P> Load<P> {
    /// Whether at least one message at a rate falls into the window, wherever it begins; `client` gives the client of a load of
    /// packets.
    ///
    /// # Errors
    /// When the time between two of them is longer.
    pub fn falls_into(&self, window: Duration, client: impl FnOnce(&P) -> Option<&Client>) -> Result<(), PlanError> {
        // Threads of a stream of datagrams take turns, those of a TCP stream do not.
        let (pace, seconds) = match self {
            Self::TcpStream(TcpStream { throttle: Some(rate), message, .. }) => {
                (Pace::Message, f64::from(*message) / *rate as f64)
            }
            Self::UdpStream(Datagrams { throttle: Some(rate), message, segments, threads, .. }) => {
                let (rate, together) = (*rate as f64 * f64::from(*threads), f64::from(*message) * f64::from(*segments));
                (if *segments > 1 { Pace::Segments } else { Pace::Datagram }, together / rate)
            }
            Self::TcpRr(l) | Self::TcpCrr(l) | Self::UdpRr(l) => match l.schedule {
                Schedule::Open { rate, .. } => (Pace::Transaction, 1.0 / rate),
                Schedule::Closed => return Ok(()),
            },
            Self::Packets(load) => match client(load).and_then(packets::every) {
                Some(every) => every,
                None => return Ok(()),
            },
            Self::TcpStream(_) | Self::UdpStream(_) | Self::Idle => return Ok(()),
        };
        // Longer than any window; a duration cannot hold all that a division makes.
        let every = Duration::try_from_secs_f64(seconds.min(1e9)).unwrap_or_default();
        if every > window { Err(PlanError::NothingFalls { pace, every, window }) } else { Ok(()) }
    }
}

impl TcpStream {
    pub fn validate(&self) -> Result<(), PlanError> {
        range(PlanValue::Threads, self.threads, 1, THREADS)?;
        range(PlanValue::Connections, self.connections, 1, CONNECTIONS)?;
        range(PlanValue::AllConnections, self.total_connections(), 1, CONNECTIONS)?;
        range(PlanValue::Message, self.message, 1, MESSAGE)?;
        socket_buffer(PlanValue::SendBuffer, self.send_buffer)?;
        socket_buffer(PlanValue::ReceiveBuffer, self.receive_buffer)?;
        self.throttle.map_or(Ok(()), |rate| range(PlanValue::Throttle, rate, 1, u64::MAX))?;
        congestion_control(self.congestion_control.as_deref())?;
        self.options.validate()
    }
}

impl Engine {
    fn validate(self, stream: &TcpStream, direction: Direction) -> Result<(), PlanError> {
        let (sends, receives) = (direction != Direction::Receive, direction != Direction::Send);
        // One buffer a thread, save where the kernel may fill several at once.
        let threads = u64::from(stream.threads);
        let (sending, mut receiving) = (threads * u64::from(sends), threads * u64::from(receives));
        if let Self::Uring { outstanding } = self {
            range(PlanValue::Outstanding, outstanding, 1, OUTSTANDING)?;
            let ring = u64::from(outstanding) * u64::from(stream.connections);
            range(PlanValue::Ring, ring, 1, RING)?;
            match stream.send_mode {
                SendMode::Sendfile if sends => {
                    return Err(PlanError::UringMode { mode: "sendfile", why: "io_uring has no such operation" });
                }
                SendMode::Splice if sends => {
                    return Err(PlanError::UringMode { mode: "splice", why: "io_uring leaves it to helper threads" });
                }
                _ => {}
            }
            if stream.receive_mode == ReceiveMode::Copy {
                let (connections, message) = (stream.connections, stream.message);
                receiving *= rig_sys::uring::receive_buffers(connections, outstanding, message);
            }
        }
        memory((sending + receiving) * u64::from(stream.message))
    }
}

impl Phases {
    /// From the start of the load to its end.
    pub fn total(&self) -> Duration {
        self.warm_up.saturating_add(self.window).saturating_add(self.cool_down)
    }

    fn validate(&self) -> Result<(), PlanError> {
        let limits = [
            ("the warm-up", self.warm_up, Duration::ZERO),
            ("the window", self.window, SHORTEST_WINDOW),
            ("the cool-down", self.cool_down, Duration::ZERO),
            ("the interval", self.interval, SHORTEST_INTERVAL),
        ];
        for (what, value, least) in limits {
            if value < least || value > LONGEST_PHASE {
                return Err(PlanError::TimeOutOfRange { what, value, least, most: LONGEST_PHASE });
            }
        }
        Ok(())
    }
}

/// Payload buffers of one worker.
pub(super) fn memory(needed: u64) -> Result<(), PlanError> {
    if needed > MEMORY { Err(PlanError::Memory { needed }) } else { Ok(()) }
}

pub(super) fn socket_buffer(what: PlanValue, size: Option<u32>) -> Result<(), PlanError> {
    size.map_or(Ok(()), |size| range(what, size, 1, SOCKET_BUFFER))
}

pub(super) fn congestion_control(name: Option<&str>) -> Result<(), PlanError> {
    let bad = |name: &str| {
        name.is_empty() || name.len() > CONGESTION_NAME || name.contains(|c: char| c == '\0' || c.is_whitespace())
    };
    match name {
        Some(name) if bad(name) => Err(PlanError::CongestionName(name.to_owned())),
        _ => Ok(()),
    }
}

fn validate_source(source: &SourceBinding, to: SocketAddr) -> Result<(), PlanError> {
    let bad = |name: &&String| {
        let wrong = |c: char| matches!(c, '\0' | '/') || c.is_whitespace();
        name.is_empty() || name.len() > DEVICE_NAME || name.contains(wrong)
    };
    if let Some(name) = source.device.as_ref().filter(bad) {
        return Err(PlanError::DeviceName(name.clone()));
    }
    match source.address {
        Some(address) if address.is_ipv6() != to.is_ipv6() => {
            Err(PlanError::SourceFamily { from: address.to_string(), to: NamedAddress::from(to).host() })
        }
        _ => Ok(()),
    }
}

pub(super) fn range(what: PlanValue, value: impl Into<u64>, least: u64, most: u64) -> Result<(), PlanError> {
    let value = value.into();
    if (least..=most).contains(&value) { Ok(()) } else { Err(PlanError::OutOfRange { what, value, least, most }) }
}

#[cfg(test)]
mod tests {
    use rig_packet::{Payload, RequestRepeat, Service, TupleOrder, UdpClient};

    use super::super::Flow;
    use super::*;

    fn plan(role: Role, change: impl FnOnce(&mut TcpStream)) -> WorkerPlan {
        let mut stream = TcpStream {
            flow: Flow::Forward,
            threads: 2,
            connections: 2,
            message: 1390,
            send_buffer: None,
            receive_buffer: Some(2 << 20),
            no_delay: true,
            throttle: None,
            congestion_control: Some("cubic".into()),
            engine: Engine::Blocking,
            send_mode: SendMode::Copy,
            receive_mode: ReceiveMode::Copy,
            options: Default::default(),
        };
        change(&mut stream);
        let second = Duration::from_secs(1);
        let phases = Phases { warm_up: second, window: second, cool_down: Duration::ZERO, interval: second };
        WorkerPlan {
            name: "a".into(),
            cpus: vec![0, 1],
            role,
            load: Load::TcpStream(stream),
            phases,
            ceiling: None,
            peer_clock_ns: 0,
        }
    }

    fn listen() -> Role {
        Role::Listen { address: ([127, 0, 0, 1], 0).into(), only_from: None }
    }

    fn connect() -> Role {
        Role::connect(([127, 0, 0, 1], 0).into())
    }

    #[track_caller]
    fn refused(plan: &WorkerPlan, word: &str) {
        let error = plan.validate().unwrap_err().to_string();
        assert!(error.contains(word), "'{word}' is not in: {error}");
    }

    #[test]
    fn the_limits_themselves_are_allowed() {
        for role in [listen(), connect()] {
            plan(role.clone(), |_| ()).validate().unwrap();
            plan(role.clone(), |s| (s.threads, s.connections, s.message) = (1, 20_000, 1)).validate().unwrap();
            plan(role.clone(), |s| (s.threads, s.connections, s.message) = (1024, 1, 4 << 20)).validate().unwrap();
            plan(role.clone(), |s| (s.threads, s.connections, s.message) = (1, 1, 64 << 20)).validate().unwrap();
            plan(role.clone(), |s| s.engine = Engine::Uring { outstanding: 1024 }).validate().unwrap();
            plan(role.clone(), |s| s.send_buffer = Some((1 << 30) - 1)).validate().unwrap();
            plan(role, |s| (s.throttle, s.message) = (Some(1), 1)).validate().unwrap();
        }
    }

    #[test]
    fn what_is_out_of_range_is_named() {
        refused(&plan(listen(), |s| s.threads = 0), "threads");
        refused(&plan(listen(), |s| s.threads = 1025), "threads");
        refused(&plan(listen(), |s| s.connections = 0), "connections");
        refused(&plan(listen(), |s| s.connections = 10_001), "threads x connections");
        refused(&plan(listen(), |s| (s.threads, s.connections) = (1024, u32::MAX)), "connections");
        refused(&plan(listen(), |s| s.message = 0), "message");
        refused(&plan(listen(), |s| s.message = (64 << 20) + 1), "message");
        refused(&plan(listen(), |s| s.send_buffer = Some(0)), "send buffer");
        refused(&plan(listen(), |s| s.receive_buffer = Some(1 << 30)), "receive buffer");
        refused(&plan(listen(), |s| s.throttle = Some(0)), "throttle");
        refused(&plan(listen(), |s| s.engine = Engine::Uring { outstanding: 0 }), "outstanding");
        refused(&plan(listen(), |s| s.engine = Engine::Uring { outstanding: 1025 }), "outstanding");
        for name in ["", "a-name-of-16-byte", "cu bic", "cubic\0"] {
            refused(&plan(listen(), |s| s.congestion_control = Some(name.into())), "congestion control");
        }
        let (connections, outstanding) = (1000, 33);
        let many = plan(listen(), |s| (s.connections, s.engine) = (connections, Engine::Uring { outstanding }));
        refused(&many, "outstanding operations x connections");
        refused(&WorkerPlan { cpus: vec![1024], ..plan(listen(), |_| ()) }, "CPU");
    }

    #[test]
    fn options_and_the_source_are_looked_at() {
        refused(&plan(listen(), |s| s.options.mss = Some(87)), "the MSS is 87: it has to be from 88 to 32767");
        refused(&plan(listen(), |s| s.options.hop_limit = Some(256)), "the hop limit");
        let from = |address: Option<&str>, device: Option<&str>| {
            let address = address.map(|text| text.parse().unwrap());
            let source = SourceBinding { address, device: device.map(str::to_owned) };
            let role = Role::Connect { to: ([127, 0, 0, 1], 0).into(), source };
            WorkerPlan { role, ..plan(connect(), |_| ()) }
        };
        from(Some("10.0.0.1"), Some("interface-of-15")).validate().unwrap();
        refused(&from(Some("::1"), None), "::1 cannot send to 127.0.0.1");
        for name in ["", "interface-of-16b", "a b", "a/b", "a\0"] {
            refused(&from(None, Some(name)), "no name of an interface");
        }
    }

    #[test]
    fn a_window_into_which_nothing_may_fall_is_refused() {
        let nothing = "none may fall into the window of 1s";
        refused(&plan(connect(), |s| (s.throttle, s.message) = (Some(1000), 1001)), nothing);
        let datagrams = |change: fn(&mut Datagrams)| {
            let mut load = Datagrams {
                flow: Default::default(),
                threads: 1,
                connections: 1,
                message: 250,
                batch: 32,
                segments: 1,
                coalesce: false,
                throttle: Some(250),
                pacing: Default::default(),
                shared_clock: false,
                send_buffer: None,
                receive_buffer: None,
                options: Default::default(),
            };
            change(&mut load);
            WorkerPlan { load: Load::UdpStream(load), ..plan(connect(), |_| ()) }
        };
        // The batch shrinks with the rate, segments do not.
        datagrams(|_| ()).validate().unwrap();
        refused(&datagrams(|l| l.throttle = Some(249)), "a datagram leaves each 1.004s");
        refused(&datagrams(|l| (l.throttle, l.segments) = (Some(999), 4)), "lower the segments");
        datagrams(|l| (l.throttle, l.threads) = (Some(125), 2)).validate().unwrap();
        let every = |seconds| RequestRepeat::every(Duration::from_millis((seconds * 1e3) as u64));
        let packets = |change: &dyn Fn(&mut Client)| {
            let load = rig_packet::Load::new(1000.0);
            let mut client = Client {
                ports: 1..=2000,
                server_ports: 80..=80,
                load,
                repeat: None,
                walk: TupleOrder::Ports,
                flood: None,
            };
            change(&mut client);
            let request = Payload::Filler(8);
            let service = Service::UdpClient(UdpClient { client, request, timeout: Duration::from_secs(1) });
            WorkerPlan { load: Load::Packets(Box::new(packets::with_one_port(service))), ..plan(connect(), |_| ()) }
        };
        type Change<'c> = &'c dyn Fn(&mut Client);
        let cases: [(Change<'_>, Option<&str>); 10] = [
            (&|c| c.load.rate = 1.0, None),
            (&|c| c.load.rate = 0.8, Some("a connection leaves each 1.250s")),
            (&|c| (c.load.rate, c.load.launch) = (10.0, Some(11)), Some("opened together leave each 1.100s")),
            // Connections that stay ask again, however seldom others are opened.
            (&|c| (c.load.rate, c.repeat) = (0.1, Some(every(1.0))), None),
            (&|c| (c.load.rate, c.repeat) = (0.8, Some(every(2.0))), Some("a connection leaves each 1.250s")),
            (
                &|c| (c.load.rate, c.repeat) = (0.1, Some(RequestRepeat { requests: Some(3), ..every(0.1) })),
                Some("10.000s"),
            ),
            (&|c| (c.load.rate, c.repeat) = (0.1, Some(every(0.0))), None),
            // What is held opens no more, but asks.
            (&|c| (c.load.hold, c.repeat) = (Some(4), Some(every(4.0))), None),
            (&|c| (c.load.hold, c.repeat) = (Some(4), Some(every(6.0))), Some("a request leaves each 1.500s")),
            (
                &|c| (c.load.hold, c.repeat) = (Some(4), Some(RequestRepeat { rate: Some(0.5), ..every(0.0) })),
                Some("2.000s"),
            ),
        ];
        for (change, word) in cases {
            match word {
                None => packets(change).validate().unwrap(),
                Some(word) => {
                    refused(&packets(change), word);
                    refused(&packets(change), nothing);
                }
            }
        }
    }

    #[test]
    fn phases_have_limits() {
        let with = |change: fn(&mut Phases)| {
            let mut plan = plan(listen(), |_| ());
            change(&mut plan.phases);
            plan
        };
        refused(&with(|p| p.window = Duration::from_millis(9)), "window");
        refused(&with(|p| p.interval = Duration::ZERO), "interval");
        refused(&with(|p| p.warm_up = Duration::MAX), "warm-up");
        refused(&with(|p| p.cool_down = Duration::from_secs(86_401)), "cool-down");
        assert_eq!(with(|_| ()).phases.total(), Duration::from_secs(2));
    }

    #[test]
    fn modes_belong_to_the_end_that_uses_them() {
        for (mode, word) in [(SendMode::Sendfile, "sendfile"), (SendMode::Splice, "splice")] {
            let uring = |s: &mut TcpStream| (s.engine, s.send_mode) = (Engine::Uring { outstanding: 2 }, mode);
            refused(&plan(connect(), uring), word);
            plan(listen(), uring).validate().unwrap();
        }
    }

    #[test]
    fn buffers_may_not_eat_the_memory() {
        let big = |s: &mut TcpStream| {
            (s.connections, s.message, s.engine) = (1, 64 << 20, Engine::Uring { outstanding: 64 });
        };
        refused(&plan(listen(), big), "payload buffers");
        plan(connect(), big).validate().unwrap();
        let both = |s: &mut TcpStream| {
            big(s);
            s.flow = Flow::Both;
        };
        refused(&plan(connect(), both), "payload buffers");
        plan(listen(), |s| {
            big(s);
            s.receive_mode = ReceiveMode::Discard;
        })
        .validate()
        .unwrap();
    }
}
