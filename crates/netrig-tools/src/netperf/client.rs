//! netperf: asks a server for its end of a test, is the other end, and says what came of it.

mod ends;
mod load;

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use rig_cli::exit::{Exit, Failure, StoppedByUser, both, in_words};
use rig_cli::streams;
use rig_load::driver::Cancel;
use rig_stats::histogram::Histogram;
use rig_sys::clock::{monotonic_after, monotonic_ns};
use rig_sys::cpu;
use rig_sys::socket::{NamedAddress, ZonedAddress};
use socket2::{Domain, Socket};

use super::buffers::{Ring, RingLayout, width_for};
use super::classic::{self, BannerEnd};
use super::connections::CLIENT_PORTS;
use super::control::{Control, PATIENCE, addresses};
use super::data::{self, Counters};
use super::figures::{DataEnd, EndFigures, Figures, service_demand};
use super::layouts::Selection;
use super::options::{Layout, Length, Options};
use super::rounds::{Iteration, Rounds};
use super::sockets::{BufferSizes, SocketSettings, TransportFacts, any_of, bind};
use super::told::of_figures;
use super::units::Unit;
use super::usage::{Usage, between};
use super::values::{Direction, Family};
use super::wire::{CpuShares, Message, OmniResponse, OmniResults, message};
use super::{LONGEST_DATAGRAM, failed, not_stored};
use crate::store_run::{RunKeeper, ToolRunEnd, ToolTest};

/// How long results are waited for once the user wants to stop.
const AFTER_CANCEL: Duration = Duration::from_secs(2);

/// Runs a test and prints what it found. Where it is to be kept, each of its iterations is a test for the keeper: also those in front of one
/// that fails, and before anything is printed.
///
/// # Errors
/// What keeps it from being run, printed or kept.
pub fn run(options: &Options, cancel: &Cancel, keeper: Option<&mut dyn RunKeeper>) -> Result<(), Failure> {
    let selection = Selection::of(options).map_err(failed)?;
    for name in Selection::unknown(options) {
        streams::tell(format!("netperf: '{name}' is no selector and has no column: -k '?' names them all"));
    }
    if let Some(cpu) = options.cpu.local {
        let online = cpu::CpuSet::online().map_err(failed)?;
        if !online.contains(cpu) {
            return Err(failed(anyhow!("-T {cpu}: this machine has no CPU {cpu}; it has {online}")));
        }
        cpu::set_affinity(&[cpu]).map_err(|error| failed(anyhow!("-T {cpu}: {error}")))?;
    }
    let mut test = Test::prepare(options, cancel, &selection)?;
    if options.headers {
        print(&test.banner()?)?;
    }
    let mut rounds = Rounds::default();
    let mut last = None;
    let (mut told, mut failed_in) = (Vec::new(), None);
    while rounds.goes_on(options.confidence.as_ref()) {
        let round = match test.iterate() {
            Ok(round) => round,
            Err(failure) => {
                failed_in = Some(failure);
                break;
            }
        };
        rounds.add(round.iteration);
        // Stopped behind it, an iteration is whole.
        let is_cut_short = cancel.is_cancelled();
        if keeper.is_some() && is_cut_short {
            streams::tell("netperf: an iteration that was stopped is not stored");
        } else if keeper.is_some() {
            let mut own = Rounds::default();
            own.add(round.iteration);
            told.push(of_figures(&test.figures(&own, round.clone())));
        }
        last = Some(round);
        if is_cut_short {
            break;
        }
    }
    let kept = keeper.map_or(Ok(()), |keeper| keep(keeper, told, failed_in.as_ref(), cancel));
    if let Some(failure) = failed_in {
        return both(Err(failure), kept);
    }
    let Some(last) = last else { return kept };
    let figures = test.figures(&rounds, last);
    let report = match options.layout {
        Layout::Classic => classic::report(&figures),
        layout => {
            let mut report = selection.report(layout, &figures);
            if options.verbosity > 1 {
                report += &classic::histogram(&figures);
            }
            report
        }
    };
    let printed = print(&report);
    if let Some(control) = test.control.take() {
        control.into_inner().finish();
    }
    both(printed, kept)
}

fn keep(
    keeper: &mut dyn RunKeeper,
    told: Vec<ToolTest>,
    failed_in: Option<&Failure>,
    cancel: &Cancel,
) -> Result<(), Failure> {
    if told.is_empty() {
        return Ok(());
    }
    let why = failed_in.map(|failure| in_words(&failure.error));
    let end = match &why {
        _ if cancel.is_cancelled() => ToolRunEnd::Stopped,
        Some(why) => ToolRunEnd::Failed(why),
        None => ToolRunEnd::Complete,
    };
    keeper.keep(told, end).map_err(not_stored)
}

/// The first address of a host, waited for until the user stops.
fn first_address(host: &str, family: Family, cancel: &Cancel) -> Result<ZonedAddress, Failure> {
    let name = host.to_owned();
    let found = cancel.unless_cancelled(move || addresses(&name, family)).map_err(failed)?;
    Ok(found.ok_or_else(stopped)?.map_err(|error| failed(anyhow!(error)))?[0])
}

fn print(text: &str) -> Result<(), Failure> {
    streams::print(text)
}

/// A test whose addresses are known and whose control connection is up.
struct Test<'a> {
    options: &'a Options,
    cancel: &'a Cancel,
    unit: Unit,
    control: Option<RefCell<Control>>,
    destination: ZonedAddress,
    source: ZonedAddress,
    settings: SocketSettings,
    usage: Option<Usage>,
    keeps_latencies: bool,
    /// The next port that a connection comes from.
    next_port: u16,
}

/// One iteration.
#[derive(Clone)]
struct Round {
    iteration: Iteration,
    local: EndFigures,
    remote: EndFigures,
    source: SocketAddr,
    destination: SocketAddr,
    elapsed: f64,
    transactions: u64,
    /// Seconds that were slept for `-b` and `-w`.
    paused: f64,
    facts: TransportFacts,
    latencies: Option<Histogram>,
}

fn stopped() -> Failure {
    Failure::new(Exit::Stopped, StoppedByUser)
}

/// The rings of both ways, of which a test may need one or both.
struct Rings {
    send: Ring,
    receive: Ring,
}

impl<'a> Test<'a> {
    /// Brings the control connection up, unless the test goes without one.
    fn prepare(options: &'a Options, cancel: &'a Cancel, selection: &Selection) -> Result<Self, Failure> {
        if options.no_control {
            return Self::new(options, cancel, selection, None);
        }
        let host = control_host(options);
        let (port, from_port) = (port_number(&options.port.remote)?, port_number(&options.port.local)?);
        let (name, family, from) = (host.to_owned(), options.control.remote.family, options.control.local.clone());
        let open = move || {
            let to = addresses(&name, family).map_err(|error| failed(anyhow!(error)))?;
            Ok::<_, Failure>(Control::open(&to, port, &from, from_port))
        };
        let opened = cancel.unless_cancelled(open).map_err(failed)?.ok_or_else(stopped)??;
        let advice =
            || format!("establish control: are you sure there is a netserver listening on {host} at port {port}?");
        let mut control = opened.with_context(advice).map_err(failed)?;
        if let Some(passphrase) = &options.passphrase {
            let phrase = Message::new(message::PASSPHRASE, 0).with_text(passphrase);
            control.send(&phrase).map_err(failed)?;
        }
        Self::new(options, cancel, selection, Some(control))
    }

    fn new(
        options: &'a Options,
        cancel: &'a Cancel,
        selection: &Selection,
        control: Option<Control>,
    ) -> Result<Self, Failure> {
        let control = control.map(RefCell::new);
        let host = options.data.remote.host.as_deref();
        let family = match (options.data.remote.family, options.control.remote.family) {
            (Family::Unspecified, of_control) => of_control,
            (family, _) => family,
        };
        let destination = match (host, &control) {
            // Where the control connection has come up, data will too.
            (None, Some(control)) if options.data.remote.family == Family::Unspecified => {
                control.borrow().peer().map(ZonedAddress::from).map_err(failed)?
            }
            _ => first_address(host.unwrap_or(control_host(options)), family, cancel)?,
        };
        if destination.ip().is_multicast() {
            let why = format!("{}: no end joins a multicast group here", destination.ip());
            return Err(failed(anyhow!(why)));
        }
        let any = ZonedAddress::from(SocketAddr::new(any_of(destination.ip()), 0));
        let from = options.data.local.host.as_deref().or(options.control.local.host.as_deref());
        let source = match from {
            Some(host) => {
                let family = if destination.is_ipv6() { Family::Inet6 } else { Family::Inet };
                first_address(host, family, cancel)?
            }
            None => any,
        };
        let settings = SocketSettings {
            buffer: options.buffer.local,
            no_delay: options.no_delay,
            cork: options.cork,
            segment_size: options.segment_size,
            keep_alive: options.keep_alive,
            routed: options.routing_allowed(),
            priority: options.priority.local,
            type_of_service: options.type_of_service.local,
            pacing: options.pacing,
            congestion_control: options.congestion_control.local.clone(),
            keep_whole: options.keep_whole,
            fast_open: options.fast_open,
            tells_drops: options.direction == Direction { transmits: true, receives: false },
        };
        let (first, last) = options.client_ports.unwrap_or(CLIENT_PORTS);
        // Not always the same, so that a test after another does not meet its connections.
        let next_port = first + (std::process::id() % (u32::from(last - first) + 1)) as u16;
        Ok(Self {
            options,
            cancel,
            unit: options.unit(),
            control,
            destination,
            source,
            settings,
            usage: options.cpu_usage.local.then(Usage::start),
            keeps_latencies: options.statistics || options.verbosity > 1 || selection.needs_latencies(),
            next_port,
        })
    }

    fn banner(&self) -> Result<String, Failure> {
        let options = self.options;
        let host = |given: Option<&String>, address: ZonedAddress| {
            given.cloned().unwrap_or_else(|| NamedAddress::from(address.at(0)).host())
        };
        let family = |address: ZonedAddress| match address.is_ipv6() {
            true => Family::Inet6,
            false => Family::Inet,
        };
        let local = options.data.local.host.as_ref().or(options.control.local.host.as_ref());
        let remote = options.data.remote.host.as_ref().or(options.control.remote.host.as_ref());
        let end = |given, address: ZonedAddress, port| BannerEnd {
            name: host(given, address),
            address: address.ip().to_string(),
            port,
            family: family(address),
        };
        // As netperf names any address.
        let any = if self.source.is_ipv6() { "::0" } else { "0.0.0.0" }.to_owned();
        let source = end(local.or(Some(&any)), self.source, options.data_port.local);
        let localhost = "localhost".to_owned();
        let destination = end(remote.or(Some(&localhost)), self.destination, options.data_port.remote);
        Ok(classic::banner(options, &source, &destination))
    }

    fn domain(&self) -> Domain {
        if self.destination.is_ipv6() { Domain::IPV6 } else { Domain::IPV4 }
    }

    /// A data socket that is bound where it has to be.
    fn data_socket(&self) -> io::Result<Socket> {
        let socket = self.settings.open(self.domain(), self.options.transport)?;
        bind(&socket, self.source.at(self.options.data_port.local), self.options.transport)?;
        Ok(socket)
    }

    fn rings(&self, buffers: BufferSizes) -> io::Result<Rings> {
        let options = self.options;
        let send_size = options.request.or(options.send_size.local).unwrap_or(match options.transport.is_datagram() {
            true => buffers.send.clamp(1, LONGEST_DATAGRAM),
            false => buffers.send.max(1),
        });
        let receive_size = options.response.or(options.receive_size.local).unwrap_or(buffers.receive.max(1));
        let exchanges = options.request.is_some();
        let width = |asked: u32, buffer: u32, size: u32| match asked {
            0 if exchanges => 1,
            0 => width_for(buffer, size),
            asked => asked,
        };
        let (alignment, offset) = (options.alignment.local, options.offset.local);
        let send = RingLayout {
            width: width(options.width.send, buffers.send, send_size),
            size: send_size,
            alignment: alignment.send,
            offset: offset.send,
        };
        let receive = RingLayout {
            width: width(options.width.receive, buffers.receive, receive_size),
            size: receive_size,
            alignment: alignment.receive,
            offset: offset.receive,
        };
        let fill = options.fill_file.local.as_deref();
        Ok(Rings {
            send: if options.direction.transmits {
                Ring::new(send, fill)?
            } else {
                Ring::new(RingLayout::UNUSED, None)?
            },
            receive: if options.direction.receives {
                Ring::new(receive, None)?
            } else {
                Ring::new(RingLayout::UNUSED, None)?
            },
        })
    }

    /// The server's next message. Once the user wants to stop, none is waited for longer than [`AFTER_CANCEL`].
    fn receive(&self, patience: Duration) -> Result<Option<Message>, Failure> {
        let Some(control) = &self.control else { return Ok(None) };
        let cancelled_at = Cell::new(None);
        let is_over = || {
            if self.cancel.is_cancelled() && cancelled_at.get().is_none() {
                cancelled_at.set(Some(Instant::now()));
            }
            cancelled_at.get().is_some_and(|at| at.elapsed() >= AFTER_CANCEL)
        };
        let message = control.borrow_mut().receive(patience, &is_over).map_err(failed)?;
        match message.number() {
            0 => Ok(Some(message)),
            super::wire::UNKNOWN_REQUEST => {
                Err(failed(anyhow!("netperf: remote error 998: the server does not know this kind of test")))
            }
            errno => {
                let text = io::Error::from_raw_os_error(errno).to_string();
                // Without the number that Rust adds.
                let text = text.split(" (os error").next().unwrap_or_default().to_owned();
                Err(failed(anyhow!("netperf: remote error {errno}: {text}")))
            }
        }
    }

    /// Makes one iteration.
    fn iterate(&mut self) -> Result<Round, Failure> {
        let options = self.options;
        let socket = self.data_socket().context("make the data socket").map_err(failed)?;
        let buffers = BufferSizes::of(&socket).map_err(failed)?;
        let mut rings = self.rings(buffers).map_err(failed)?;
        let request = self.request(&socket, &rings);
        if let Some(control) = &self.control {
            control.borrow_mut().send(&request.encode()).map_err(failed)?;
        }
        let response = self.receive(PATIENCE)?.map(|message| OmniResponse::decode(&message));
        let port = match &response {
            Some(response) => u16::try_from(response.data_port).context("the server's data port").map_err(failed)?,
            None => no_control_port(options),
        };
        let destination = self.destination.at(port);
        self.wait_before_data();
        let readings = self.usage.as_ref().map(Usage::read).transpose().map_err(failed)?;
        let begin_ns = monotonic_ns();
        let counters = Counters::default();
        let mut latencies = self.keeps_latencies.then(Histogram::new);
        let load = self.load(socket, destination, &mut rings, &counters, latencies.as_mut())?;
        let elapsed = load.end_ns.saturating_sub(begin_ns) as f64 / 1e9;
        let cpu = match (&self.usage, readings) {
            (Some(usage), Some(begin)) => Some(between(&begin, &usage.read().map_err(failed)?)),
            _ => None,
        };
        let what = || format!("data connection to {}", NamedAddress::from(destination));
        load.end.map_err(|error| failed(anyhow::Error::new(advised(error, options)).context(what())))?;
        let seconds = match options.length {
            Length::Seconds(seconds) => Duration::from_secs(seconds.into()),
            Length::Units(_) => Duration::ZERO,
        };
        let results = match self.receive(PATIENCE + seconds) {
            // What this end has seen is what there is.
            Err(_) if self.cancel.is_cancelled() => None,
            results => results?.map(|message| OmniResults::decode(&message)),
        };
        // Until then a server that sends may not be through.
        drop(load.connection);
        let mut local = self.local_figures(&counters, &rings, buffers, load.buffers, &load.facts);
        let mut remote = self.remote_figures(response.as_ref(), results.as_ref(), local.bytes_sent);
        let transactions = counters.transactions.load(Ordering::Relaxed);
        let (throughput, amount) = self.throughput(&local, &remote, transactions, elapsed);
        let demand = |cpu: Option<&CpuShares>| cpu.map_or(-1.0, |cpu| service_demand(self.unit, cpu, amount, elapsed));
        local.cpu = cpu;
        remote.cpu = results.as_ref().filter(|_| options.cpu_usage.remote).map(|results| results.cpu);
        let percent = |cpu: Option<&CpuShares>| cpu.map_or(-1.0, |cpu| cpu.busy.into());
        let iteration = Iteration {
            elapsed,
            throughput,
            local_cpu: percent(local.cpu.as_ref()),
            remote_cpu: percent(remote.cpu.as_ref()),
            local_demand: demand(local.cpu.as_ref()),
            remote_demand: demand(remote.cpu.as_ref()),
        };
        Ok(Round {
            iteration,
            local,
            remote,
            source: load.source,
            destination,
            elapsed,
            transactions,
            paused: counters.paused_ns.load(Ordering::Relaxed) as f64 / 1e9,
            facts: load.facts,
            latencies,
        })
    }

    /// What the result is in its unit, and the amount that CPU time is told by.
    fn throughput(&self, local: &EndFigures, remote: &EndFigures, transactions: u64, elapsed: f64) -> (f64, f64) {
        let local_bytes = local.bytes_sent as f64 + local.bytes_received as f64;
        if self.unit.counts_transactions() && self.options.is_transactions() {
            return (self.unit.rate(transactions as f64, elapsed), transactions as f64);
        }
        // What came is what was carried, whoever received it.
        let carried = match self.options.direction.transmits {
            true => remote.bytes_sent as f64 + remote.bytes_received as f64,
            false => local_bytes,
        };
        (self.unit.rate(carried, elapsed), local_bytes)
    }

    /// `-s`, and not longer where the user stops it.
    fn wait_before_data(&self) {
        let until = monotonic_after(self.options.wait);
        while monotonic_ns() < until && !self.cancel.is_cancelled() {
            let left = Duration::from_nanos(until.saturating_sub(monotonic_ns()));
            std::thread::sleep(left.min(data::LOOK));
        }
    }

    /// All iterations, and what the last one had.
    fn figures(&self, rounds: &Rounds, last: Round) -> Figures<'a> {
        let options = self.options;
        let (mut local, mut remote) = (last.local, last.remote);
        local.cpu_percent = rounds.mean(|iteration| iteration.local_cpu);
        remote.cpu_percent = rounds.mean(|iteration| iteration.remote_cpu);
        local.service_demand = rounds.mean(|iteration| iteration.local_demand);
        remote.service_demand = rounds.mean(|iteration| iteration.remote_demand);
        let confidence = options.confidence.as_ref();
        let rate = if options.is_transactions() { last.transactions as f64 / last.elapsed } else { 0.0 };
        let outstanding = if options.connects { 1.0 } else { 1.0 + f64::from(options.first_burst) };
        let end = |address: SocketAddr| DataEnd {
            host: NamedAddress::from(address).host(),
            port: address.port(),
            // AF_INET and AF_INET6 of Linux.
            family: if address.is_ipv6() { 10 } else { 2 },
        };
        Figures {
            options,
            unit: self.unit,
            local,
            remote,
            source: end(last.source),
            destination: end(last.destination),
            elapsed: rounds.mean(|iteration| iteration.elapsed),
            throughput: rounds.mean(|iteration| iteration.throughput),
            transaction_rate: rate,
            round_trip: match last.transactions {
                0 => -1.0,
                made => (last.elapsed - last.paused).max(0.0) * 1e6 / made as f64 * outstanding,
            },
            iterations: rounds.count(),
            widths: confidence.map(|confidence| rounds.widths(confidence)).unwrap_or_default(),
            unconfident: confidence.is_some_and(|confidence| !rounds.is_confident(confidence)),
            segment_size: last.facts.segment_size.map_or(-1, i64::from),
            latencies: last.latencies,
        }
    }
}

/// The machine of netserver: this one where nothing else is said.
fn control_host(options: &Options) -> &str {
    options.control.remote.host.as_deref().unwrap_or(match options.control.remote.family {
        Family::Inet6 => "::1",
        _ => "localhost",
    })
}

/// Errors that an option of netperf can mend.
fn advised(error: io::Error, options: &Options) -> io::Error {
    let unreachable = matches!(error.kind(), io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable);
    if unreachable && !options.routing_allowed() {
        let why = format!("{error}: one-way datagrams leave a machine's own networks only with -R 1 (of the test)");
        return io::Error::new(error.kind(), why);
    }
    error
}

/// Without a control connection the well-known services of RFC 862 to 864 are the other end.
fn no_control_port(options: &Options) -> u16 {
    const ECHO: u16 = 7;
    const DISCARD: u16 = 9;
    const CHARGEN: u16 = 19;
    match options.data_port.remote {
        0 if options.is_transactions() => ECHO,
        0 if options.direction.transmits => DISCARD,
        0 => CHARGEN,
        port => port,
    }
}

/// A port, or the name of a service that is one of netperf's.
fn port_number(text: &str) -> Result<u16, Failure> {
    text.parse().map_err(|_| failed(anyhow!("-p {text}: a port from 0 to 65535")))
}
