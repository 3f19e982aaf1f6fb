//! What a client may ask of a server.

use std::time::Duration;

use rig_load::plan::{
    Datagrams, Engine, Flow, Load, PlanError, ReceiveMode, Schedule, SocketOptions, TcpStream, Transactions,
};
use rig_stats::units::{BitRate, Bytes, Span};
use rig_sys::socket::ZonedAddress;

use super::wire::TestRequest;

/// The samples that one test may have: what a record of them takes has to stay small.
const SAMPLES: u128 = 10_000;
/// What an idle socket's buffers take where the client leaves them to the kernel, bytes (the middle values of tcp_rmem
/// and tcp_wmem).
const DEFAULT_BUFFERS: u64 = (128 << 10) + (16 << 10);
/// IPv6 gives each machine at least this many bits of its own.
const OWN_BITS: u32 = 64;

/// The limits of a server. What a client asks beyond them is refused, not cut.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// Warm-up, window and cool-down together.
    pub time: Duration,
    /// Payload of one test in bits per second. With a limit, each test has to name its rate.
    pub rate: Option<u64>,
    /// Payload buffers and socket buffers of the server's end of one test, bytes.
    pub memory: u64,
    pub threads: u32,
    /// Connections of one test, all threads together.
    pub connections: u32,
    /// Tests at once.
    pub sessions: u32,
    /// Tests at once for each client address (for IPv6, each /64).
    pub sessions_per_address: u32,
    /// Control connections at once, whether a test runs on them or not.
    pub clients: u32,
    pub clients_per_address: u32,
    /// How long a new control connection may take to say hello.
    pub handshake: Duration,
    /// How long a control connection may stay without a test.
    pub idle: Duration,
    /// The port of every test's load, for firewalls and services that let single ports through; `None` where the kernel chooses one.
    pub data_port: Option<u16>,
    /// Microseconds of busy polling that a client may ask for, which take CPU time and a privilege.
    pub busy_poll_us: u32,
    /// CPUs that a client may choose for the server's end.
    pub cpus: Vec<u32>,
    /// Congestion controls that a client may choose. The kernel would load a module for an unknown name.
    pub congestion_controls: Vec<String>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            time: Duration::from_secs(600),
            rate: None,
            memory: 256 << 20,
            threads: 64,
            connections: 1000,
            sessions: 8,
            sessions_per_address: 4,
            clients: 1000,
            clients_per_address: 32,
            handshake: Duration::from_secs(5),
            idle: Duration::from_secs(30),
            data_port: None,
            busy_poll_us: 0,
            cpus: Vec::new(),
            congestion_controls: Vec::new(),
        }
    }
}

/// Why a server does not do what it was asked for. Each names the limit and the option that sets it.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Refusal {
    #[error("{asked} {what} asked, this server allows {limit} ({option})")]
    Number { what: &'static str, asked: u64, limit: u64, option: &'static str },
    #[error("a test of {asked} asked, warm-up and cool-down included; this server allows {limit} (--max-time)")]
    Time { asked: Span, limit: Span },
    #[error("{asked} asked, this server allows {limit} (--max-rate)")]
    Rate { asked: String, limit: BitRate },
    #[error(
        "buffers of {asked} asked, this server allows {limit} (--max-memory): lower the connections, the message or \
         the socket buffers"
    )]
    Memory { asked: Bytes, limit: Bytes },
    #[error(
        "{what} of {asked} asked, which takes longer than the test at the {limit} that this server allows (--max-rate): \
         lower it"
    )]
    Burst { what: &'static str, asked: Bytes, limit: BitRate },
    #[error("more than {SAMPLES} intervals asked: make --interval longer")]
    Samples,
    #[error("CPU {cpu} of the server asked, it offers {offered} (--cpus)")]
    Cpu { cpu: u32, offered: String },
    #[error("congestion control '{asked}' asked, this server offers {offered}")]
    CongestionControl { asked: String, offered: String },
    #[error("socket priority {asked} asked, this server allows those up to {limit}, which take no privilege")]
    Priority { asked: u32, limit: u32 },
    #[error("a load of kind idle has no other end")]
    Idle,
    #[error("a server sends no packet load for clients: it could carry any address")]
    Packets,
    #[error("the plan cannot be carried out: {0}")]
    Plan(PlanError),
    #[error("the server is busy: {running} tests run, it allows {limit} at once ({option}); try again later")]
    Busy { running: u32, limit: u32, option: &'static str },
    #[error("the server has {open} control connections, it allows {limit} ({option}); try again later")]
    Crowded { open: u32, limit: u32, option: &'static str },
}

/// What a load takes of the machine that carries one end of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LoadDemand {
    threads: u32,
    connections: u32,
    /// Payload in bits per second, the busier direction; `None`: as much as there is.
    rate: Option<u64>,
    /// Buffers of the load threads and of the sockets, bytes.
    memory: u64,
}

impl Limits {
    /// Whether the test is within the limits.
    ///
    /// # Errors
    /// The first limit that it is not within.
    pub fn check(&self, ask: &TestRequest) -> Result<(), Refusal> {
        let demand = demand(&ask.load)?;
        let number = |what, asked: u32, limit: u32, option| {
            let (asked, limit) = (asked.into(), limit.into());
            if asked > limit { Err(Refusal::Number { what, asked, limit, option }) } else { Ok(()) }
        };
        number("threads", demand.threads, self.threads, "--max-threads")?;
        number("connections", demand.connections, self.connections, "--max-connections")?;
        self.check_phases(ask)?;
        if let Some(limit) = self.rate
            && demand.rate.is_none_or(|asked| asked > limit)
        {
            let asked = demand.rate.map_or_else(|| "no limit of the rate".into(), |rate| BitRate(rate).to_string());
            return Err(Refusal::Rate { asked, limit: BitRate(limit) });
        }
        self.check_burst(ask)?;
        if demand.memory > self.memory {
            return Err(Refusal::Memory { asked: Bytes(demand.memory), limit: Bytes(self.memory) });
        }
        if let Some(&cpu) = ask.cpus.iter().find(|cpu| !self.cpus.contains(cpu)) {
            let offered = rig_sys::cpu::CpuSet::new(self.cpus.iter().copied()).to_string();
            return Err(Refusal::Cpu { cpu, offered });
        }
        let busy_poll_us = ask.load.socket_options().busy_poll_us.unwrap_or(0);
        number("microseconds of busy polling", busy_poll_us, self.busy_poll_us, "--max-busy-poll")?;
        if let Some(asked) = ask.load.socket_options().priority.filter(|&asked| asked > SocketOptions::PRIORITY_OF_ALL)
        {
            // A server that runs as root does not lend that to its clients.
            return Err(Refusal::Priority { asked, limit: SocketOptions::PRIORITY_OF_ALL });
        }
        match congestion_control(&ask.load) {
            Some(name) if !self.congestion_controls.iter().any(|offered| offered == name) => {
                let offered = self.congestion_controls.join(", ");
                Err(Refusal::CongestionControl { asked: super::wire::words(name), offered })
            }
            _ => Ok(()),
        }
    }

    /// What a worker of a test may move, payload bytes per second.
    pub fn ceiling(&self) -> Option<u64> {
        self.rate.map(|rate| (rate / 8).max(1))
    }

    /// What goes out with one call is not sent before all of it may be.
    fn check_burst(&self, ask: &TestRequest) -> Result<(), Refusal> {
        let (Some(limit), Some(ceiling)) = (self.rate, self.ceiling()) else { return Ok(()) };
        let (what, asked) = match &ask.load {
            Load::TcpStream(stream) => ("a message", stream.message.into()),
            Load::TcpRr(l) | Load::TcpCrr(l) | Load::UdpRr(l) => {
                let both = u64::from(l.request.max(l.response));
                ("transactions in flight", both.saturating_mul(l.in_flight.into()))
            }
            Load::UdpStream(l) => ("a message", u64::from(l.message).saturating_mul(l.segments.into())),
            Load::Packets(_) | Load::Idle => return Ok(()),
        };
        let share = (ceiling / u64::from(ask.load.shape().0.max(1))).max(1);
        if asked as f64 / share as f64 > ask.phases.total().as_secs_f64() {
            return Err(Refusal::Burst { what, asked: Bytes(asked), limit: BitRate(limit) });
        }
        Ok(())
    }

    fn check_phases(&self, ask: &TestRequest) -> Result<(), Refusal> {
        let asked = ask.phases.total();
        if asked > self.time {
            return Err(Refusal::Time { asked: Span(asked), limit: Span(self.time) });
        }
        let samples = ask.phases.window.as_nanos().checked_div(ask.phases.interval.as_nanos());
        if samples.is_none_or(|samples| samples > SAMPLES) { Err(Refusal::Samples) } else { Ok(()) }
    }

    /// Whether one more test may run beside `running`, `of_address` of which are for the same address.
    ///
    /// # Errors
    /// When it may not.
    pub fn admit_test(&self, running: u32, of_address: u32) -> Result<(), Refusal> {
        let busy = |running, limit, option| Err(Refusal::Busy { running, limit, option });
        if running >= self.sessions {
            busy(running, self.sessions, "--max-tests")
        } else if of_address >= self.sessions_per_address {
            busy(of_address, self.sessions_per_address, "--max-tests-per-address")
        } else {
            Ok(())
        }
    }

    /// Whether one more control connection may stay beside `open`, `of_address` of which are of the same address.
    ///
    /// # Errors
    /// When it may not.
    pub fn admit_client(&self, open: u32, of_address: u32) -> Result<(), Refusal> {
        let crowded = |open, limit, option| Err(Refusal::Crowded { open, limit, option });
        if open >= self.clients {
            crowded(open, self.clients, "--max-clients")
        } else if of_address >= self.clients_per_address {
            crowded(of_address, self.clients_per_address, "--max-clients-per-address")
        } else {
            Ok(())
        }
    }
}

/// What the limits for each address count as one client: an IPv4 address, or the network that an IPv6 host can choose its
/// addresses from.
pub fn same_client(address: ZonedAddress) -> ZonedAddress {
    address.to_canonical().network(OWN_BITS)
}

fn demand(load: &Load) -> Result<LoadDemand, Refusal> {
    Ok(match load {
        Load::Idle => return Err(Refusal::Idle),
        Load::Packets(_) => return Err(Refusal::Packets),
        Load::TcpStream(stream) => of_stream(stream),
        Load::TcpRr(transactions) | Load::TcpCrr(transactions) | Load::UdpRr(transactions) => {
            of_transactions(transactions)
        }
        Load::UdpStream(datagrams) => of_datagrams(datagrams),
    })
}

fn of_stream(stream: &TcpStream) -> LoadDemand {
    let connections = stream.total_connections();
    let (buffers, ring) = match stream.engine {
        Engine::Uring { outstanding } => {
            let operations = u64::from(outstanding).saturating_mul(stream.connections.into());
            let buffers = rig_sys::uring::receive_buffers(stream.connections, outstanding, stream.message);
            let copies = stream.receive_mode == ReceiveMode::Copy;
            (if copies { buffers } else { 1 }, rig_sys::uring::memory(operations))
        }
        Engine::Blocking => (1, 0),
    };
    let payload = u64::from(stream.message).saturating_mul(buffers).saturating_add(ring);
    let payload = payload.saturating_mul(stream.threads.into()).saturating_mul(ways(stream.flow));
    LoadDemand {
        threads: stream.threads,
        connections,
        rate: total_rate(stream.throttle, stream.threads),
        memory: payload.saturating_add(sockets(connections, stream.send_buffer, stream.receive_buffer)),
    }
}

fn of_transactions(transactions: &Transactions) -> LoadDemand {
    let connections = transactions.total_connections();
    let larger = u64::from(transactions.request.max(transactions.response));
    let both = u64::from(transactions.request).saturating_add(transactions.response.into());
    let rate = match transactions.schedule {
        Schedule::Closed => None,
        // A float that is too large becomes the largest integer, one that is no number becomes 0.
        Schedule::Open { rate, .. } => Some((rate * larger as f64 * 8.0) as u64),
    };
    // What comes in is gathered for each connection.
    let payload = both.saturating_mul(connections.into());
    LoadDemand {
        threads: transactions.threads,
        connections,
        rate,
        memory: payload.saturating_add(sockets(connections, transactions.send_buffer, transactions.receive_buffer)),
    }
}

fn of_datagrams(datagrams: &Datagrams) -> LoadDemand {
    let connections = datagrams.total_connections();
    // A batch of messages, each of which holds what the kernel cuts or has put together, up to the largest there is.
    let each = if datagrams.coalesce {
        u64::from(u16::MAX)
    } else {
        u64::from(datagrams.message).saturating_mul(datagrams.segments.into())
    };
    let payload = each.saturating_mul(datagrams.batch.into()).saturating_mul(datagrams.threads.into());
    let payload = payload.saturating_mul(ways(datagrams.flow));
    LoadDemand {
        threads: datagrams.threads,
        connections,
        rate: total_rate(datagrams.throttle, datagrams.threads),
        memory: payload.saturating_add(sockets(connections, datagrams.send_buffer, datagrams.receive_buffer)),
    }
}

/// Each way has threads and buffers of its own.
fn ways(flow: Flow) -> u64 {
    if flow == Flow::Both { 2 } else { 1 }
}

/// Bytes per second of each thread as bits per second of all.
fn total_rate(throttle: Option<u64>, threads: u32) -> Option<u64> {
    throttle.map(|bytes| bytes.saturating_mul(8).saturating_mul(threads.into()))
}

/// The kernel doubles what it is asked for (socket(7)).
fn sockets(connections: u32, send: Option<u32>, receive: Option<u32>) -> u64 {
    let asked = |size: Option<u32>| size.map(|size| 2 * u64::from(size));
    let each = match (asked(send), asked(receive)) {
        (None, None) => DEFAULT_BUFFERS,
        (send, receive) => send.unwrap_or(16 << 10).saturating_add(receive.unwrap_or(128 << 10)),
    };
    each.saturating_mul(connections.into())
}

fn congestion_control(load: &Load) -> Option<&str> {
    match load {
        Load::TcpStream(stream) => stream.congestion_control.as_deref(),
        Load::TcpRr(transactions) | Load::TcpCrr(transactions) | Load::UdpRr(transactions) => {
            transactions.congestion_control.as_deref()
        }
        Load::UdpStream(_) | Load::Packets(_) | Load::Idle => None,
    }
}
