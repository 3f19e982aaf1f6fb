//! What a worker process is asked to do. Plain values: they travel as JSON on the worker's standard input.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::datagrams::{Datagrams, Pacing};
pub use self::limits::PlanError;
pub use self::packets::PacketsError;
#[cfg(test)]
pub(crate) use self::packets::with_one_port;
pub use self::socket_options::SocketOptions;
pub use self::transactions::{ArrivalSpacing, Schedule, Transactions};
pub use self::value::{Pace, PlanValue};
use rig_packet::plan::Packets;
use rig_sys::socket::{SourceBinding, ZonedAddress};

pub(crate) mod batch;
mod datagrams;
mod limits;
mod packets;
mod socket_options;
mod transactions;
mod value;

const SHORTEST_TIMEOUT: Duration = Duration::from_millis(1);

/// The whole task of one worker process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkerPlan {
    /// The endpoint the worker stands for, e.g. `a/sender`. Appears in messages and in the record.
    pub name: String,
    /// CPUs the process may run on. Empty leaves the inherited affinity.
    pub cpus: Vec<u32>,
    pub role: Role,
    pub load: Load,
    pub phases: Phases,
    /// Payload bytes per second that this end may move at most, even if the load or the peer asks for more: it sends no faster, reads a
    /// TCP stream no faster than 9/8 of it, and fails when a stream of datagrams comes faster. `None`: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling: Option<u64>,
    /// What is to be added to a time of the peer's CLOCK_MONOTONIC to have that of this worker's: 0 on one machine.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub peer_clock_ns: i64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(ns: &i64) -> bool {
    *ns == 0
}

impl WorkerPlan {
    /// Which way payload goes as this worker sees it.
    pub fn direction(&self) -> Direction {
        match (&self.load, self.end()) {
            (Load::Idle, _) => Direction::Idle,
            (Load::TcpStream(TcpStream { flow, .. }) | Load::UdpStream(Datagrams { flow, .. }), end) => {
                flow.direction(end)
            }
            (Load::TcpRr(_) | Load::TcpCrr(_) | Load::UdpRr(_) | Load::Packets(_), End::Connect) => Direction::Request,
            (Load::TcpRr(_) | Load::TcpCrr(_) | Load::UdpRr(_) | Load::Packets(_), End::Listen) => Direction::Respond,
        }
    }

    pub fn end(&self) -> End {
        match self.role {
            Role::Connect { .. } => End::Connect,
            Role::Listen { .. } => End::Listen,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    Send,
    Receive,
    /// Payload goes both ways over the same connections.
    Both,
    /// Sends requests and waits for responses.
    Request,
    /// Answers requests.
    Respond,
    /// A worker that carried no load.
    Idle,
}

/// The two ends of a connection. netperf calls the connecting one local and the listening one remote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    Connect,
    Listen,
}

/// Which end of the connections this worker is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Accepts the connections. Port 0 lets the kernel choose; [`crate::protocol::Event::Listening`] tells which.
    Listen {
        address: SocketAddr,
        /// Takes connections from this address alone and closes all others unheard. `None`: from everywhere.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        only_from: Option<ZonedAddress>,
    },
    /// Opens the connections.
    Connect {
        to: SocketAddr,
        /// What its sockets are bound to before.
        #[serde(default, skip_serializing_if = "SourceBinding::is_default")]
        source: SourceBinding,
    },
}

impl Role {
    /// Connects from wherever the routing table says.
    pub fn connect(to: SocketAddr) -> Self {
        Self::Connect { to, source: SourceBinding::default() }
    }
}

/// What is sent. A load of packets is `P`: in a worker's plan its [`Packets`]; before a load has interfaces, what is asked of
/// them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
#[allow(clippy::large_enum_variant, reason = "a plan has one")]
pub enum Load<P = Packets> {
    /// A bulk TCP stream.
    TcpStream(TcpStream),
    /// Transactions over TCP connections that stay.
    TcpRr(Transactions),
    /// Transactions over TCP, each over a connection of its own: connect, request, response, close.
    TcpCrr(Transactions),
    /// A stream of UDP datagrams.
    UdpStream(Datagrams),
    /// Transactions over UDP, one datagram each way.
    UdpRr(Transactions),
    /// Packets that the worker makes itself, over queues of an interface. Its port and address are the role's in name
    /// only: both are the plan's.
    Packets(Box<P>),
    /// No traffic: the worker does everything else, so that the rig's own cost can be measured.
    Idle,
}

impl<P> Load<P> {
    /// The same load with the packets that `packets` makes.
    ///
    /// # Errors
    /// That of `packets`.
    pub fn try_map<Q, E>(&self, packets: impl FnOnce(&P) -> Result<Q, E>) -> Result<Load<Q>, E> {
        Ok(match self {
            Self::TcpStream(load) => Load::TcpStream(load.clone()),
            Self::TcpRr(load) => Load::TcpRr(load.clone()),
            Self::TcpCrr(load) => Load::TcpCrr(load.clone()),
            Self::UdpStream(load) => Load::UdpStream(load.clone()),
            Self::UdpRr(load) => Load::UdpRr(load.clone()),
            Self::Packets(load) => Load::Packets(Box::new(packets(load)?)),
            Self::Idle => Load::Idle,
        })
    }

    /// As suite files and command lines call it; a stream whose flow is reversed is netperf's MAERTS.
    pub fn name(&self) -> &'static str {
        match self {
            Self::TcpStream(TcpStream { flow: Flow::Reverse, .. }) => "tcp-maerts",
            Self::TcpStream(_) => "tcp-stream",
            Self::TcpRr(_) => "tcp-rr",
            Self::TcpCrr(_) => "tcp-crr",
            Self::UdpStream(_) => "udp-stream",
            Self::UdpRr(_) => "udp-rr",
            Self::Packets(_) => "packets",
            Self::Idle => "idle",
        }
    }

    /// Whether its sockets are datagram sockets, which have no TCP state.
    pub fn is_udp(&self) -> bool {
        matches!(self, Self::UdpStream(_) | Self::UdpRr(_))
    }

    /// Options of its sockets; those of packets and of the idle load are the kernel's.
    pub fn socket_options(&self) -> SocketOptions {
        match self {
            Self::TcpStream(stream) => stream.options,
            Self::TcpRr(load) | Self::TcpCrr(load) | Self::UdpRr(load) => load.options,
            Self::UdpStream(datagrams) => datagrams.options,
            Self::Packets(_) | Self::Idle => SocketOptions::default(),
        }
    }

    /// Threads and connections, which both ends have to have in common; those of packets need not.
    pub fn shape(&self) -> (u32, u32) {
        match self {
            Self::TcpStream(l) => (l.threads, l.connections),
            Self::TcpRr(l) | Self::TcpCrr(l) | Self::UdpRr(l) => (l.threads, l.connections),
            Self::UdpStream(l) => (l.threads, l.connections),
            Self::Packets(_) | Self::Idle => (0, 0),
        }
    }
}

/// Which way payload goes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Flow {
    /// From the connecting end to the listening one.
    #[default]
    Forward,
    /// From the listening end to the connecting one.
    Reverse,
    /// Both ways at once, over the same connections.
    Both,
}

impl Flow {
    /// What `end` does.
    pub fn direction(self, end: End) -> Direction {
        match (self, end) {
            (Self::Both, _) => Direction::Both,
            (Self::Forward, End::Connect) | (Self::Reverse, End::Listen) => Direction::Send,
            (Self::Forward, End::Listen) | (Self::Reverse, End::Connect) => Direction::Receive,
        }
    }
}

/// A bulk TCP stream. Both ends get the same value except for `engine` and the copy modes, which belong to one end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TcpStream {
    pub flow: Flow,
    /// Threads at each end; thread i serves connections i, i + threads, ...
    pub threads: u32,
    /// Connections for each thread.
    pub connections: u32,
    /// Bytes handed to the kernel by one send, and asked of it by one receive.
    pub message: u32,
    /// SO_SNDBUF in bytes, as asked for (the kernel doubles it for its own book-keeping). `None`: kernel's autotuning.
    pub send_buffer: Option<u32>,
    /// SO_RCVBUF in bytes, as asked for. `None`: kernel's autotuning.
    pub receive_buffer: Option<u32>,
    /// TCP_NODELAY on the sending side.
    pub no_delay: bool,
    /// Upper limit of payload bytes per second for each sending thread.
    pub throttle: Option<u64>,
    /// TCP_CONGESTION. `None`: the system's default.
    pub congestion_control: Option<String>,
    pub engine: Engine,
    pub send_mode: SendMode,
    pub receive_mode: ReceiveMode,
    /// Options that change its packets.
    #[serde(default, skip_serializing_if = "SocketOptions::is_default")]
    pub options: SocketOptions,
}

impl TcpStream {
    /// Connections of all threads together.
    pub fn total_connections(&self) -> u32 {
        self.threads.saturating_mul(self.connections)
    }
}

/// How a thread talks to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// One system call at a time for each thread.
    Blocking,
    /// io_uring with this many operations outstanding for each connection (NTttcp's `-a`). From Linux 6.12 on, a receiver
    /// has one that stays, with at least as many buffers, and is woken at most each 100 us while data comes.
    Uring { outstanding: u32 },
}

/// How payload leaves the process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SendMode {
    /// send(2): the kernel copies the payload.
    #[default]
    Copy,
    /// sendfile(2) from a memory file: the kernel takes references to its pages.
    Sendfile,
    /// splice(2) from a pipe that tee(2) refills: the kernel takes references to pages that it holds already, and needs
    /// to look none up. The cheapest of all.
    Splice,
    /// MSG_ZEROCOPY: the kernel pins the pages; over veth and loopback it copies after all, and says so.
    ZeroCopy,
}

/// How payload enters the process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReceiveMode {
    /// recv(2): the kernel copies the payload.
    #[default]
    Copy,
    /// recv(2) with MSG_TRUNC: the kernel throws the payload away uncopied.
    Discard,
}

impl fmt::Display for SendMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Copy => "copy",
            Self::Sendfile => "sendfile",
            Self::Splice => "splice",
            Self::ZeroCopy => "MSG_ZEROCOPY",
        })
    }
}

impl fmt::Display for ReceiveMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Copy => "copy",
            Self::Discard => "discard, MSG_TRUNC",
        })
    }
}

/// The times of a trial, counted from the common start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phases {
    /// Load runs, nothing is counted.
    pub warm_up: Duration,
    /// Load runs and is counted.
    pub window: Duration,
    /// Load goes on for this long after the window, so that no end sees the other stop inside it.
    pub cool_down: Duration,
    /// Distance of the interim samples inside the window.
    pub interval: Duration,
}

/// The planned moments of a load, in nanoseconds of the worker's own CLOCK_MONOTONIC. Both ends have the same ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// Start of the load.
    pub start_ns: u64,
    /// Edges of the window.
    pub begin_ns: u64,
    pub end_ns: u64,
    /// End of the load.
    pub stop_ns: u64,
}

impl Phases {
    /// The moments of a load that starts at `start_ns`: for the driver of suites, for workers and for the sessions between two machines.
    /// These three and the front ends' `course` share what is alike, not one loop: sessions do no I/O, on which their fuzzing and
    /// tests with clocks that go astray stand, and a transfer of a given size has no end that could be planned.
    pub fn starting_at(&self, start_ns: u64) -> Times {
        let after = |ns: u64, time: Duration| ns.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        let begin_ns = after(start_ns, self.warm_up);
        let end_ns = after(begin_ns, self.window);
        Times { start_ns, begin_ns, end_ns, stop_ns: after(end_ns, self.cool_down) }
    }
}
