//! The options of `netrig stream`, `rr`, `udp` and `serve`, and the load that they describe.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Arg, Args, value_parser};
use netrig_ends::limits::Limits;
use netrig_ends::server::Family;
use netrig_ends::wire::PORT;
use rig_facts::record::AbRun;
use rig_facts::store::Label;
use rig_load::plan::{
    ArrivalSpacing, Datagrams, Engine, Flow, Load, Pacing, Phases, ReceiveMode, Schedule, SendMode, SocketOptions,
    TcpStream, Transactions,
};
use rig_stats::units::{BitRate, Bytes, PerSecond, Span};
use rig_sys::cpu::CpuSet;
use rig_sys::socket::ZonedAddress;

use super::super::arguments::{HEADING, JudgeArgs, OutputArgs, StoreArgs};
use super::sockets::SocketArgs;

pub(super) const CLIENT: &str = "Options of the client";
const SERVER: &str = "Options of the server: what clients may ask for";

/// Refuses an option of the one role beside the other role. A conflict of groups would do the same, but its message names
/// every option of the group instead of the one that was given.
///
/// What is rarely said is left out of the help that has to fit a screen: `netrig help stream` has it.
pub fn of_one_role(arg: Arg) -> Arg {
    match arg.get_help_heading() {
        Some(CLIENT) => {
            let rare = RARE.contains(&arg.get_id().as_str());
            arg.conflicts_with("server").hide_short_help(rare)
        }
        Some(HEADING) => arg.conflicts_with("server").hide_short_help(true),
        Some(SERVER) => arg.conflicts_with_all(["client", "on"]).hide_short_help(true),
        _ => arg,
    }
}

/// Options of clients that the short help does without.
const RARE: [&str; 28] = [
    "hosts",
    "store",
    "no_store",
    "output",
    "batch",
    "gso",
    "gro",
    "kernel_pacing",
    "no_delay",
    "poisson",
    "timeout",
    "interval",
    "send_buffer",
    "receive_buffer",
    "server_cpus",
    "send_mode",
    "receive_mode",
    "outstanding",
    "congestion_control",
    "source",
    "device",
    "dscp",
    "ttl",
    "priority",
    "mss",
    "not_sent_low_water",
    "busy_poll",
    "mptcp",
];

/// After a window of that length load goes on for so long: neither end may stop in the other's window. Those of two machines may be apart by half
/// the shortest round trip, which is not known yet: half a second is that of a way around the earth by satellite. On one machine the clock is the
/// same, and it is no more than the window itself, of which a tenth of a second is the shortest.
pub fn cool_down_after(window: Duration, on_one_machine: bool) -> Duration {
    const APART: Duration = Duration::from_millis(500);
    if on_one_machine { window.clamp(Duration::from_millis(100), APART) } else { APART }
}

#[derive(Debug, Args)]
#[group(id = "which", required = true)]
pub struct RoleOptions {
    /// Be the server: wait for clients
    #[arg(long, short, conflicts_with_all = ["client", "on"])]
    pub server: bool,
    /// Be the client of the server on this host
    ///
    /// A name or an address; a link-local one with the interface that leads there: fe80::1%eth0.
    #[arg(long, short, value_name = "HOST")]
    pub client: Option<String>,
    /// Be the client, and start the server on this host
    ///
    /// A destination of ssh, or a name of the hosts file; netrig copies itself there. The server has a key of its own, and is gone after the
    /// test. Without --client, the address is one on a network that both machines are on, or the host's first.
    #[arg(long, value_name = "HOST", conflicts_with = "key_file")]
    pub on: Option<String>,
}

impl RoleOptions {
    /// Whether the server is known to be on the client's machine.
    pub fn is_on_one_machine(&self) -> bool {
        let is_own =
            |host: &str| host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        self.on.is_none() && self.client.as_deref().is_some_and(is_own)
    }
}

#[derive(Debug, Args)]
pub struct AddressOptions {
    /// TCP port of control connections
    ///
    /// The load's ports are agreed on there. 0 lets the kernel choose when serving, which a server of --on does by itself.
    #[arg(long, short, value_name = "N", help = format!("TCP port of control connections [default: {PORT}]"))]
    port: Option<u16>,
    /// IPv4 only
    #[arg(long, short = '4', conflicts_with = "ipv6")]
    pub ipv4: bool,
    /// IPv6 only
    #[arg(long, short = '6')]
    pub ipv6: bool,
    /// Key that both ends share
    ///
    /// In a file that only its owner may read. A server then serves only clients with the key, a client trusts only servers
    /// with it. `-` takes the first line of standard input.
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// CPUs for this end of the load, e.g. 0-3 [default: all]
    ///
    /// All that it may use. A server offers them to its clients.
    #[arg(long, value_name = "LIST")]
    pub cpus: Option<CpuSet>,
}

impl AddressOptions {
    pub fn port(&self) -> u16 {
        self.port.unwrap_or(PORT)
    }

    /// Of a server that is started for one test.
    pub fn port_on_host(&self) -> u16 {
        self.port.unwrap_or(0)
    }

    pub fn family(&self) -> Family {
        match (self.ipv4, self.ipv6) {
            (true, _) => Family::V4,
            (_, true) => Family::V6,
            _ => Family::Any,
        }
    }
}

#[derive(Debug, Args)]
#[command(next_help_heading = SERVER)]
pub struct ServerOptions {
    /// Listen on this address alone, `::` for all [default: all with --key-file, else loopback]
    ///
    /// A link-local one with its interface: fe80::1%eth0.
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<ZonedAddress>,
    /// Longest test, warm-up and cool-down included
    #[arg(long, value_name = "SPAN", default_value = "10m", value_parser = seconds)]
    max_time: Span,
    /// Highest payload rate of a test, e.g. 1gbit; clients then have to give --rate [default: no limit]
    #[arg(long, value_name = "RATE")]
    max_rate: Option<BitRate>,
    /// Payload and socket buffers of a test
    #[arg(long, value_name = "BYTES", default_value = "256M")]
    max_memory: Bytes,
    /// Threads of a test
    #[arg(long, value_name = "N", default_value = "64", value_parser = value_parser!(u32).range(1..))]
    max_threads: u32,
    /// Connections of a test, all threads together
    #[arg(long, value_name = "N", default_value = "1000", value_parser = value_parser!(u32).range(1..))]
    max_connections: u32,
    /// Tests at once
    #[arg(long, value_name = "N", default_value = "8", value_parser = value_parser!(u32).range(1..))]
    max_tests: u32,
    /// Tests at once for one client address (for IPv6, one /64)
    #[arg(long, value_name = "N", default_value = "4", hide_short_help = true, value_parser = value_parser!(u32).range(1..))]
    max_tests_per_address: u32,
    /// Control connections at once
    #[arg(long, value_name = "N", default_value = "1000", hide_short_help = true, value_parser = value_parser!(u32).range(1..))]
    max_clients: u32,
    /// Control connections at once of one client address (for IPv6, one /64)
    #[arg(long, value_name = "N", default_value = "32", hide_short_help = true, value_parser = value_parser!(u32).range(1..))]
    max_clients_per_address: u32,
    /// Longest wait for the hello of a new control connection
    #[arg(long, value_name = "SPAN", default_value = "5s", value_parser = seconds, hide_short_help = true)]
    handshake_timeout: Span,
    /// Longest time of a control connection without a test
    #[arg(long, value_name = "SPAN", default_value = "30s", value_parser = seconds, hide_short_help = true)]
    idle_timeout: Span,
    /// The port of each test's load, one test at a time [default: any]
    ///
    /// For firewalls and services that let single ports through.
    #[arg(long, value_name = "N", hide_short_help = true, value_parser = value_parser!(u16).range(1..))]
    data_port: Option<u16>,
    /// Busy polling that a test may ask for, microseconds: CPU time of this machine's
    #[arg(long, value_name = "USEC", default_value = "0", hide_short_help = true)]
    max_busy_poll: u32,
    /// Serve a process that is joined to standard input and output, until it closes its end
    #[arg(long, hide = true)]
    pub on_stdio: bool,
}

impl ServerOptions {
    /// The limits, without those that the machine sets.
    pub fn limits(&self) -> Limits {
        Limits {
            time: self.max_time.0,
            rate: self.max_rate.map(|rate| rate.0),
            memory: self.max_memory.0,
            threads: self.max_threads,
            connections: self.max_connections,
            sessions: self.max_tests,
            sessions_per_address: self.max_tests_per_address,
            clients: self.max_clients,
            clients_per_address: self.max_clients_per_address,
            handshake: self.handshake_timeout.0,
            idle: self.idle_timeout.0,
            data_port: self.data_port,
            busy_poll_us: self.max_busy_poll,
            cpus: Vec::new(),
            congestion_controls: Vec::new(),
        }
    }
}

#[derive(Debug, Args)]
pub struct ServeArgs {
    #[command(flatten)]
    pub address: AddressOptions,
    #[command(flatten)]
    pub serving: ServerOptions,
}

#[derive(Debug, Args)]
#[command(next_help_heading = CLIENT)]
pub struct CommonOptions {
    /// Measured time; a plain number is seconds
    #[arg(long, short, value_name = "SPAN", default_value = "10s", value_parser = seconds)]
    time: Span,
    /// Load before the measured window
    #[arg(long, value_name = "SPAN", default_value = "1s", value_parser = seconds)]
    warm_up: Span,
    /// Show and keep interim figures this often
    #[arg(long, short, value_name = "SPAN", default_value = "1s", value_parser = seconds)]
    interval: Span,
    /// Trials, for means with their intervals
    #[arg(long, value_name = "N", default_value = "1", value_parser = value_parser!(u32).range(1..=1000))]
    pub trials: u32,
    /// Load threads at each end
    #[arg(long, value_name = "N", default_value = "1")]
    threads: u32,
    /// Connections of each thread
    #[arg(long, value_name = "N", default_value = "1")]
    connections: u32,
    /// SO_SNDBUF of each socket, e.g. 2M [default: the kernel's choice]
    #[arg(long, value_name = "BYTES", value_parser = size)]
    send_buffer: Option<u32>,
    /// SO_RCVBUF of each socket [default: the kernel's choice]
    #[arg(long, value_name = "BYTES", value_parser = size)]
    receive_buffer: Option<u32>,
    #[command(flatten)]
    pub sockets: SocketArgs,
    /// How hosts of --on are reached [default: ~/.config/netrig/hosts.toml]
    #[arg(long, value_name = "FILE", requires = "on")]
    pub hosts: Option<PathBuf>,
    /// CPUs for the server's end of the load, out of those it offers
    #[arg(long, value_name = "LIST")]
    pub server_cpus: Option<CpuSet>,
    /// No interim figures on standard error
    #[arg(long, short)]
    pub quiet: bool,
}

impl CommonOptions {
    pub fn phases(&self, on_one_machine: bool) -> Phases {
        let (warm_up, window, interval) = (self.warm_up.0, self.time.0, self.interval.0);
        Phases { warm_up, window, cool_down: cool_down_after(window, on_one_machine), interval }
    }

    /// Bits per second of all threads as bytes per second of each.
    fn throttle(&self, rate: Option<BitRate>) -> Option<u64> {
        rate.map(|rate| (rate.0 / 8 / u64::from(self.threads.max(1))).max(1))
    }
}

/// The test as a run of the store.
#[derive(Debug, Args)]
#[command(next_help_heading = CLIENT)]
pub struct StoreOptions {
    /// Name the run, for `report`, `compare` and --against
    #[arg(long, value_name = "LABEL")]
    pub label: Option<Label>,
    /// Compare with a run: number, label or JSON file
    ///
    /// Ends with status 1 if something is worse than in that earlier run.
    #[arg(long, value_name = "RUN")]
    pub against: Option<OsString>,
    /// Take turns with another run, as the process that started both says on standard input
    #[arg(long, hide = true, value_name = "PAIR:SIDE:COMMAND", conflicts_with = "against")]
    pub in_turn: Option<AbRun>,
    /// Keep nothing of it
    #[arg(long, conflicts_with_all = ["label", "store", "in_turn"])]
    pub no_store: bool,
    #[command(flatten)]
    pub store: StoreArgs,
    #[command(flatten)]
    pub judge: JudgeArgs,
}

#[derive(Debug, Args)]
#[group(id = "direction", multiple = false)]
#[command(next_help_heading = CLIENT)]
pub struct Direction {
    /// The server sends, the client receives
    #[arg(long, short = 'R')]
    reverse: bool,
    /// Both ends send, over the same connections
    #[arg(long)]
    bidirectional: bool,
}

impl Direction {
    fn flow(&self) -> Flow {
        match (self.reverse, self.bidirectional) {
            (true, _) => Flow::Reverse,
            (_, true) => Flow::Both,
            _ => Flow::Forward,
        }
    }
}

#[derive(Debug, Args)]
pub struct StreamArgs {
    #[command(flatten)]
    pub role: RoleOptions,
    #[command(flatten)]
    pub address: AddressOptions,
    #[command(flatten)]
    pub direction: Direction,
    #[command(flatten)]
    pub load: StreamLoad,
    #[command(flatten)]
    pub common: CommonOptions,
    #[command(flatten)]
    pub output: OutputArgs,
    #[command(flatten)]
    pub keeping: StoreOptions,
    #[command(flatten)]
    pub serving: ServerOptions,
}

#[derive(Debug, Args)]
#[command(next_help_heading = CLIENT)]
pub struct StreamLoad {
    /// Bytes of one send and of one receive
    #[arg(long, short, value_name = "BYTES", default_value = "128k", value_parser = size)]
    message: u32,
    /// Send at most this much, all threads together, e.g. 1gbit [default: as much as possible]
    #[arg(long, value_name = "RATE")]
    rate: Option<BitRate>,
    /// TCP_NODELAY
    #[arg(long)]
    no_delay: bool,
    /// TCP_CONGESTION, e.g. cubic [default: each system's own]
    #[arg(long, value_name = "NAME")]
    congestion_control: Option<String>,
    /// Largest payload of a TCP segment, at both ends: 88 to 32767 (TCP_MAXSEG)
    #[arg(long, value_name = "BYTES", value_parser = size)]
    mss: Option<u32>,
    /// Multipath TCP, where both ends and what is between have it; else plain TCP, which the report says
    #[arg(long)]
    mptcp: bool,
    /// Let the sender write only while less than this waits unsent in its socket (TCP_NOTSENT_LOWAT)
    #[arg(long, value_name = "BYTES", value_parser = size)]
    not_sent_low_water: Option<u32>,
    /// How payload leaves the sender
    #[arg(long, value_name = "MODE", default_value = "copy",
          value_parser = named(&["copy", "sendfile", "splice", "zero-copy"], send_mode))]
    send_mode: SendMode,
    /// How payload enters the receiver
    #[arg(long, value_name = "MODE", default_value = "copy",
          value_parser = named(&["copy", "discard"], receive_mode))]
    receive_mode: ReceiveMode,
    /// Use io_uring with this many operations outstanding on each connection; a receiver then gathers what comes in 100us
    /// [default: one system call at a time]
    #[arg(long, value_name = "N")]
    outstanding: Option<u32>,
}

impl StreamLoad {
    pub fn load(&self, direction: &Direction, common: &CommonOptions) -> Load {
        Load::TcpStream(TcpStream {
            flow: direction.flow(),
            threads: common.threads,
            connections: common.connections,
            message: self.message,
            send_buffer: common.send_buffer,
            receive_buffer: common.receive_buffer,
            no_delay: self.no_delay,
            throttle: common.throttle(self.rate),
            congestion_control: self.congestion_control.clone(),
            engine: self.outstanding.map_or(Engine::Blocking, |outstanding| Engine::Uring { outstanding }),
            send_mode: self.send_mode,
            receive_mode: self.receive_mode,
            options: SocketOptions { mptcp: self.mptcp, ..common.sockets.options(self.mss, self.not_sent_low_water) },
        })
    }
}

#[derive(Debug, Args)]
pub struct RrArgs {
    #[command(flatten)]
    pub role: RoleOptions,
    #[command(flatten)]
    pub address: AddressOptions,
    #[command(flatten)]
    pub load: RrLoad,
    #[command(flatten)]
    pub common: CommonOptions,
    #[command(flatten)]
    pub output: OutputArgs,
    #[command(flatten)]
    pub keeping: StoreOptions,
    #[command(flatten)]
    pub serving: ServerOptions,
}

#[derive(Debug, Args)]
#[command(next_help_heading = CLIENT)]
pub struct RrLoad {
    /// Over UDP, one datagram each way
    #[arg(long, short, conflicts_with_all = ["connect", "no_delay", "congestion_control", "mss", "mptcp"])]
    udp: bool,
    /// A new connection for each transaction
    ///
    /// Connect, request, response, close.
    #[arg(long, conflicts_with = "mptcp")]
    connect: bool,
    /// Bytes of a request
    #[arg(long, value_name = "BYTES", default_value = "1", value_parser = size)]
    request: u32,
    /// Bytes of a response
    #[arg(long, value_name = "BYTES", default_value = "1", value_parser = size)]
    response: u32,
    /// Transactions under way on a connection
    #[arg(long, value_name = "N", default_value = "1")]
    in_flight: u32,
    /// Begin so many transactions per second [default: closed loop]
    ///
    /// Whether those before are answered or not; without it the next begins as soon as one is answered. Latency then counts from the scheduled time.
    #[arg(long, value_name = "PER_SECOND")]
    rate: Option<PerSecond>,
    /// Exponentially distributed gaps between the transactions of a --rate, as from many independent users
    #[arg(long, requires = "rate")]
    poisson: bool,
    /// After this time a UDP request without an answer is lost
    #[arg(long, value_name = "SPAN", default_value = "1s", value_parser = seconds, requires = "udp")]
    timeout: Span,
    /// TCP_NODELAY at both ends
    #[arg(long)]
    no_delay: bool,
    /// TCP_CONGESTION, e.g. cubic [default: each system's own]
    #[arg(long, value_name = "NAME")]
    congestion_control: Option<String>,
    /// Largest payload of a TCP segment, at both ends: 88 to 32767 (TCP_MAXSEG)
    #[arg(long, value_name = "BYTES", value_parser = size)]
    mss: Option<u32>,
    /// Multipath TCP, where both ends and what is between have it; else plain TCP, which the report says
    #[arg(long)]
    mptcp: bool,
}

impl RrLoad {
    pub fn load(&self, common: &CommonOptions) -> Load {
        let arrivals = if self.poisson { ArrivalSpacing::Poisson } else { ArrivalSpacing::Uniform };
        let transactions = Transactions {
            threads: common.threads,
            connections: common.connections,
            request: self.request,
            response: self.response,
            in_flight: self.in_flight,
            schedule: self.rate.map_or(Schedule::Closed, |rate| Schedule::Open { rate: rate.get(), arrivals }),
            timeout: self.timeout.0,
            send_buffer: common.send_buffer,
            receive_buffer: common.receive_buffer,
            no_delay: self.no_delay,
            congestion_control: self.congestion_control.clone(),
            options: SocketOptions { mptcp: self.mptcp, ..common.sockets.options(self.mss, None) },
        };
        match (self.udp, self.connect) {
            (true, _) => Load::UdpRr(transactions),
            (_, true) => Load::TcpCrr(transactions),
            _ => Load::TcpRr(transactions),
        }
    }
}

#[derive(Debug, Args)]
pub struct UdpArgs {
    #[command(flatten)]
    pub role: RoleOptions,
    #[command(flatten)]
    pub address: AddressOptions,
    #[command(flatten)]
    pub direction: Direction,
    #[command(flatten)]
    pub load: UdpLoad,
    #[command(flatten)]
    pub common: CommonOptions,
    #[command(flatten)]
    pub output: OutputArgs,
    #[command(flatten)]
    pub keeping: StoreOptions,
    #[command(flatten)]
    pub serving: ServerOptions,
}

#[derive(Debug, Args)]
#[command(next_help_heading = CLIENT)]
pub struct UdpLoad {
    /// Payload of a datagram
    #[arg(long, short, value_name = "BYTES", default_value = "1400", value_parser = size)]
    message: u32,
    /// Send at most this much payload, all threads together, e.g. 1gbit [default: as much as the socket takes]
    #[arg(long, value_name = "RATE")]
    rate: Option<BitRate>,
    /// Let the kernel pace the sender (SO_MAX_PACING_RATE, needs the fq queueing discipline) [default: sleep in between]
    #[arg(long, requires = "rate")]
    kernel_pacing: bool,
    /// Most messages for each system call; with --rate no more than last 100 us
    #[arg(long, value_name = "N", default_value = "32")]
    batch: u32,
    /// Datagrams that the kernel cuts out of each message (UDP_SEGMENT); 1 is off
    #[arg(long, value_name = "N", default_value = "1")]
    gso: u32,
    /// Let the kernel hand over several datagrams as one message (UDP_GRO)
    #[arg(long)]
    gro: bool,
}

impl UdpLoad {
    pub fn load(&self, direction: &Direction, common: &CommonOptions) -> Load {
        Load::UdpStream(Datagrams {
            flow: direction.flow(),
            threads: common.threads,
            connections: common.connections,
            message: self.message,
            batch: self.batch,
            segments: self.gso,
            coalesce: self.gro,
            throttle: common.throttle(self.rate),
            pacing: if self.kernel_pacing { Pacing::Kernel } else { Pacing::Thread },
            shared_clock: false,
            send_buffer: common.send_buffer,
            receive_buffer: common.receive_buffer,
            options: common.sockets.options(None, None),
        })
    }
}

/// A time with its unit, or a number of seconds as other tools take it.
fn seconds(text: &str) -> Result<Span, String> {
    let plain = text.chars().all(|c| c.is_ascii_digit() || c == '.') && !text.is_empty();
    let text = if plain { format!("{text}s") } else { text.to_owned() };
    text.parse().map_err(|error: rig_stats::units::UnitError| error.to_string())
}

/// A size that a socket option or a system call can take.
fn size(text: &str) -> Result<u32, String> {
    let bytes: Bytes = text.parse().map_err(|error: rig_stats::units::UnitError| error.to_string())?;
    u32::try_from(bytes.0).map_err(|_| format!("{bytes} is more than 4 GiB"))
}

fn named<T: Clone + Send + Sync + 'static>(
    names: &'static [&'static str],
    value: fn(&str) -> T,
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(names).map(move |name| value(&name))
}

fn send_mode(name: &str) -> SendMode {
    match name {
        "sendfile" => SendMode::Sendfile,
        "splice" => SendMode::Splice,
        "zero-copy" => SendMode::ZeroCopy,
        _ => SendMode::Copy,
    }
}

fn receive_mode(name: &str) -> ReceiveMode {
    if name == "discard" { ReceiveMode::Discard } else { ReceiveMode::Copy }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_goes_on_behind_the_window_of_another_machine_however_short_this_one_is() {
        let milliseconds =
            |window, on_one_machine| cool_down_after(Duration::from_millis(window), on_one_machine).as_millis();
        assert_eq!([10, 100, 300, 10_000].map(|window| milliseconds(window, false)), [500; 4]);
        assert_eq!([10, 100, 300, 10_000].map(|window| milliseconds(window, true)), [100, 100, 300, 500]);
        let is_one = |client: Option<&str>, on: Option<&str>| {
            let [client, on] = [client, on].map(|host| host.map(str::to_owned));
            RoleOptions { server: false, client, on }.is_on_one_machine()
        };
        for own in ["127.0.0.1", "::1", "localhost"] {
            assert!(is_one(Some(own), None), "{own}");
            assert!(!is_one(Some(own), Some("far")), "{own} of another host");
        }
        assert!(!is_one(Some("192.0.2.1"), None) && !is_one(None, Some("far")));
    }
}
