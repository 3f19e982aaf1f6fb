//! A worker whose load is packets: one end's fleet of engines, watched as any other load.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::SocketAddr;
use std::time::Duration;

use rig_packet::device::{Losses, Options};
use rig_packet::fleet::{self, Fleet, FleetResult, LaunchedEnd, LaunchedPort, ThreadTotals, Totals};
use rig_packet::plan::{Driver, Packets};
use rig_packet::{Client, Counters, Latencies, ServerCounters, Service, UdpServer};
use rig_stats::histogram::Histogram;
use rig_sys::clock::{self, monotonic_after, monotonic_ns, process_cpu_ns};

use super::reading_times::ReadingTimes;
use super::{ControlThread, ErrorContext, PeerLoad, RESPONDER_TIMEOUT, WorkerError, refuse};
use crate::command::{Command, CommandAction};
use crate::plan::{Engine, ReceiveMode, Role, SendMode, Times, WorkerPlan};
use crate::protocol::{Event, Order};
use crate::record::{
    CpuTime, End, PacketPhase, PacketPort, PacketRecord, PacketServer, PacketThread, Sample, ThreadRecord,
    TransactionRecord, WorkerPhase, WorkerRecord,
};

/// How long all gateways may take to say where they are.
const RESOLVE: Duration = Duration::from_secs(10);
/// Between two looks at whether they have.
const LOOK: Duration = Duration::from_millis(2);
/// How long nothing comes of what is not answered, before nothing is taken to be on its way, and how long that is waited for at most: RFC
/// 2544, 23 has 2 s.
const ON_ITS_WAY: Duration = Duration::from_millis(100);
const ON_ITS_WAY_MAX: Duration = Duration::from_secs(2);
/// Looks at a worker in a row that find it at work and nothing new, before it counts as done.
const QUIET: u32 = 3;

/// All counters at one moment.
struct Reading {
    totals: Totals,
    process_cpu_ns: (u64, u64),
}

impl Reading {
    fn take(fleet: &Fleet) -> Self {
        Self { totals: fleet.totals(), process_cpu_ns: process_cpu_ns() }
    }

    fn at(&self) -> u64 {
        self.totals.at
    }

    fn cpu_since(&self, before: &Self) -> CpuTime {
        CpuTime {
            user_ns: self.process_cpu_ns.0.saturating_sub(before.process_cpu_ns.0),
            system_ns: self.process_cpu_ns.1.saturating_sub(before.process_cpu_ns.1),
        }
    }
}

impl<W: Write> ControlThread<'_, W> {
    pub(super) fn serve_packets(&mut self, plan: &WorkerPlan, packets: &Packets) -> Result<(), WorkerError> {
        let launched = fleet::launch(packets, &Options::default());
        let LaunchedEnd { fleet, ports, .. } = launched.failing(|| format!("open the ports of {}", plan.name))?;
        if let Role::Listen { address, .. } = &plan.role {
            self.report(&Event::Listening { port: address.port() })?;
        }
        let deadline_ns = monotonic_after(RESOLVE);
        while !fleet.unresolved().is_empty() && monotonic_ns() < deadline_ns {
            self.rest(&fleet, monotonic_after(LOOK))?;
        }
        // Says what is missing, if anything is.
        fleet.wait_ready(Duration::ZERO, || true).failing(|| "find the gateway".into())?;
        // Else the threads, which fill the CPU, would delay the window's edges by a time slice.
        clock::be_punctual();
        self.report(&Event::Connected)?;
        let start_ns = match self.order(None)? {
            Order::Go { start_ns } => start_ns,
            order => return Err(refuse(&order)),
        };
        let measured = self.measure_packets(plan, packets, &fleet, start_ns)?;
        let outcome = fleet.stop().failing(|| "end the packet load".into())?;
        let mut ports = ports.into_iter().map(|port| record_of(port, packets)).collect::<Result<Vec<_>, _>>()?;
        if let Some((port, _)) = ports.first_mut() {
            port.notes.extend(packets.service.doubts(&outcome.totals.counters));
        }
        let record = measured.into_record(plan, &packets.service, &outcome, ports);
        self.report(&Event::Done(Box::new(record)))
    }

    fn measure_packets(
        &mut self,
        plan: &WorkerPlan,
        packets: &Packets,
        fleet: &Fleet,
        start_ns: u64,
    ) -> Result<WindowReadings, WorkerError> {
        let ns = |time: Duration| time.as_nanos() as u64;
        let phases = &plan.phases;
        let planned = phases.starting_at(start_ns);
        let Times { begin_ns, end_ns, stop_ns, .. } = planned;
        fleet.set_peer_clock(plan.peer_clock_ns);
        fleet.open_from(start_ns.saturating_add(ns(packets.course.wait)));
        match plan.end() {
            End::Connect => fleet.wind_down_at(stop_ns),
            End::Listen => self.peer_load = PeerLoad::Awaited,
        }
        fleet.measure(begin_ns, end_ns);
        let mut ordered = Ordered {
            times: ReadingTimes::new(planned, phases.interval),
            begin_ns,
            winds_down: plan.end() == End::Connect,
            rate: packets.service.client().map(Client::rate),
        };
        self.takes_commands = true;
        self.fleet_until(fleet, &mut ordered, |_| begin_ns)?;
        let begin = Reading::take(fleet);
        let mut last = begin.totals.clone();
        let (mut samples, mut marks) = (Vec::new(), Vec::new());
        loop {
            self.fleet_until(fleet, &mut ordered, ReadingTimes::next_ns)?;
            let due = ordered.times.take();
            if due.mark {
                marks.push(Reading::take(fleet));
            }
            if due.sample {
                let now = fleet.totals();
                let sample = sample(&packets.service, &begin.totals, &last, &now);
                self.report(&Event::Sample(sample))?;
                samples.push(sample);
                last = now;
            }
            if due.end {
                break;
            }
        }
        let end = Reading::take(fleet);
        self.fleet_until(fleet, &mut ordered, ReadingTimes::stop_ns)?;
        self.takes_commands = false;
        let deadline_ns = ordered.times.stop_ns().saturating_add(ns(packets.course.drain));
        match plan.end() {
            End::Connect => self.drain(fleet, deadline_ns)?,
            End::Listen => {
                self.dismissed(fleet, deadline_ns)?;
                if let Service::UdpServer(UdpServer { one_way: true, .. }) = packets.service {
                    self.arrived(fleet)?;
                }
            }
        }
        Ok(WindowReadings { begin, end, samples, marks })
    }

    /// Waits until the moment that the edges give, which a command may move, and hands commands on to the fleet.
    fn fleet_until(
        &mut self,
        fleet: &Fleet,
        ordered: &mut Ordered,
        moment: impl Fn(&ReadingTimes) -> u64,
    ) -> Result<(), WorkerError> {
        loop {
            self.rest(fleet, moment(&ordered.times))?;
            if self.commands.is_empty() {
                return Ok(());
            }
            self.commands.drain(..).for_each(|command| ordered.obey(command, fleet));
        }
    }

    /// Waits until what was opened has come to its end.
    fn drain(&mut self, fleet: &Fleet, deadline_ns: u64) -> Result<(), WorkerError> {
        let mut last = fleet.totals();
        let mut quiet = 0;
        while quiet < QUIET && monotonic_ns() < deadline_ns {
            self.rest(fleet, monotonic_after(LOOK))?;
            let now = fleet.totals();
            let news =
                |of: fn(&ThreadTotals) -> u64| last.threads.iter().zip(&now.threads).all(|(a, b)| of(a) != of(b));
            // A worker that waits for its CPU may have connections to open that were due before.
            if now.counters != last.counters || now.counters.sk_con() > 0 {
                (quiet, last) = (0, now);
            } else if news(|worker| worker.usage.total) {
                (quiet, last) = (quiet + 1, now);
            }
        }
        Ok(())
    }

    /// Waits until the other end is done.
    fn dismissed(&mut self, fleet: &Fleet, deadline_ns: u64) -> Result<(), WorkerError> {
        // The other end's time-outs and its own way to say so come on top.
        let deadline_ns = deadline_ns.saturating_add(RESPONDER_TIMEOUT.as_nanos() as u64);
        self.rest_while(fleet, deadline_ns, |control| control.peer_load == PeerLoad::Awaited)
    }

    /// Waits until nothing comes any more: the sender of what is not answered does not know what is still on its way.
    fn arrived(&mut self, fleet: &Fleet) -> Result<(), WorkerError> {
        let deadline_ns = monotonic_after(ON_ITS_WAY_MAX);
        let (mut received, mut quiet_ns) = (fleet.totals().counters.udp_rx, monotonic_after(ON_ITS_WAY));
        while monotonic_ns() < deadline_ns.min(quiet_ns) {
            self.rest(fleet, monotonic_after(ON_ITS_WAY / 10))?;
            let now = fleet.totals().counters.udp_rx;
            if now != received {
                (received, quiet_ns) = (now, monotonic_after(ON_ITS_WAY));
            }
        }
        Ok(())
    }

    /// Waits until `until_ns` or for a command, as long as the driver is there and all threads are at work.
    fn rest(&mut self, fleet: &Fleet, until_ns: u64) -> Result<(), WorkerError> {
        self.rest_while(fleet, until_ns, |control| control.commands.is_empty())
    }

    fn rest_while(
        &mut self,
        fleet: &Fleet,
        until_ns: u64,
        is_awaited: impl Fn(&Self) -> bool,
    ) -> Result<(), WorkerError> {
        while monotonic_ns() < until_ns && is_awaited(self) {
            // A worker that breaks down says so itself; here it is enough not to wait for long.
            let second = monotonic_after(Duration::from_secs(1));
            self.pause(until_ns.min(second))?;
            fleet.check().failing(|| "carry the packet load".into())?;
        }
        Ok(())
    }
}

/// The orders that a fleet got.
struct Ordered {
    times: ReadingTimes,
    begin_ns: u64,
    /// Whether it opens connections, which ends with the load.
    winds_down: bool,
    /// Of one that has a schedule: the rate of its plan.
    rate: Option<f64>,
}

impl Ordered {
    fn obey(&mut self, command: Command, fleet: &Fleet) {
        self.times.hear(command);
        match (command.what, self.rate) {
            (CommandAction::Rate(rate), Some(planned)) => fleet.set_rate_at(command.at_ns, rate / planned),
            (CommandAction::End, _) => {
                fleet.measure(self.begin_ns, self.times.end_ns());
                if self.winds_down {
                    fleet.wind_down_at(self.times.stop_ns());
                }
            }
            (CommandAction::Rate(_), None) | (CommandAction::Mark, _) => {}
        }
    }
}

/// The window as the control thread saw it.
struct WindowReadings {
    begin: Reading,
    end: Reading,
    samples: Vec<Sample>,
    /// Between the phases, where there are several.
    marks: Vec<Reading>,
}

impl WindowReadings {
    fn into_record(
        self,
        plan: &WorkerPlan,
        service: &Service,
        last: &FleetResult,
        ports: Vec<(PacketPort, Vec<String>)>,
    ) -> WorkerRecord {
        let Self { begin, end, samples, marks } = self;
        let edges: Vec<&Reading> = std::iter::once(&begin).chain(&marks).chain([&end]).collect();
        let mut phases: Vec<WorkerPhase> = edges.windows(2).map(|edge| phase(service, edge[0], edge[1])).collect();
        if marks.is_empty() {
            // The window says the same.
            phases.clear();
        }
        // Of what was due in the window, whenever it was answered.
        let Latencies { handshake, first_byte, transaction, censored, lost_before } = last.latencies.clone();
        let (ports, notes): (Vec<PacketPort>, Vec<Vec<String>>) = ports.into_iter().unzip();
        let window = end.totals.counters.minus(&begin.totals.counters);
        let window_ns = end.at().saturating_sub(begin.at());
        let threads = threads_between(&begin, &end);
        let measured = |histogram: Histogram| Some(histogram).filter(|histogram| !histogram.is_empty());
        WorkerRecord {
            name: plan.name.clone(),
            direction: plan.direction(),
            end: Some(plan.end()),
            background: false,
            engine: Engine::Blocking,
            send_mode: SendMode::default(),
            receive_mode: ReceiveMode::default(),
            window_begin_ns: begin.at(),
            window_end_ns: end.at(),
            process_cpu: end.cpu_since(&begin),
            threads: Vec::<ThreadRecord>::new(),
            connections: Vec::new(),
            samples,
            phases,
            zerocopy_copied: 0,
            transactions: Some(TransactionRecord {
                completed: answered(service, &window),
                lost: window.udp_rt,
                censored,
                latency: measured(transaction),
                window_ns,
                ..TransactionRecord::default()
            }),
            datagrams: None,
            packets: Some(PacketRecord {
                counters: named(&window),
                after: named(&last.totals.counters.minus(&end.totals.counters)),
                total: named(&last.totals.counters),
                open: end.totals.counters.sk_con(),
                handshake: measured(handshake),
                first_byte: measured(first_byte),
                lost_before_ns: lost_before,
                workers: threads,
                ports,
                servers: last.servers.iter().map(server).collect(),
            }),
            notes: notes.concat(),
        }
    }
}

/// What each worker did between two readings.
fn threads_between(begin: &Reading, end: &Reading) -> Vec<PacketThread> {
    let both = begin.totals.threads.iter().zip(&end.totals.threads);
    both.map(|(before, after)| PacketThread {
        interface: after.interface.clone(),
        cpu: after.cpu,
        busy: after.usage.busy_since(&before.usage),
        counters: named(&after.counters.minus(&before.counters)),
    })
    .collect()
}

/// What a phase between two readings came to. Latencies are those of the window only.
fn phase(service: &Service, begin: &Reading, end: &Reading) -> WorkerPhase {
    let counters = end.totals.counters.minus(&begin.totals.counters);
    WorkerPhase {
        begin_ns: begin.at(),
        end_ns: end.at(),
        process_cpu: end.cpu_since(begin),
        transactions: Some(TransactionRecord {
            completed: answered(service, &counters),
            lost: counters.udp_rt,
            window_ns: end.at().saturating_sub(begin.at()),
            ..TransactionRecord::default()
        }),
        packets: Some(PacketPhase {
            counters: named(&counters),
            open: end.totals.counters.sk_con(),
            workers: threads_between(begin, end),
        }),
        ..WorkerPhase::default()
    }
}

/// Requests answered: at the client, answers that came; at the server, answers sent, or what came where nothing is answered.
fn answered(service: &Service, counters: &Counters) -> u64 {
    match service {
        Service::TcpClient(_) | Service::TcpServer(_) => counters.tcp_rsp,
        Service::UdpServer(UdpServer { one_way: false, .. }) => counters.udp_tx,
        Service::UdpClient(_) | Service::UdpServer(_) => counters.udp_rx.saturating_sub(counters.udp_drop),
    }
}

fn sample(service: &Service, begin: &Totals, last: &Totals, now: &Totals) -> Sample {
    let counters = now.counters.minus(&last.counters);
    let repeats = service.client().is_some_and(|client| client.repeat.is_some());
    Sample {
        at_ns: now.at.saturating_sub(begin.at),
        span_ns: now.at.saturating_sub(last.at),
        bytes: counters.bits_tx / 8,
        bytes_in: counters.bits_rx / 8,
        units: if repeats { answered(service, &counters) } else { counters.sk_open },
        lost: counters.udp_rt + counters.sk_err,
        rtt_us: 0,
        congestion_window: 0,
        retransmits: u32::try_from(counters.syn_rt + counters.fin_rt + counters.push_rt).unwrap_or(u32::MAX),
        latency: None,
    }
}

/// The counters that are not zero.
fn named(counters: &Counters) -> BTreeMap<String, u64> {
    let fields = counters.fields().filter(|(_, count)| *count > 0);
    fields.map(|(name, count)| (name.to_owned(), count)).collect()
}

/// What a port leaves behind. Its threads have ended, so that its counters stand still.
fn record_of(port: LaunchedPort, packets: &Packets) -> Result<(PacketPort, Vec<String>), WorkerError> {
    let Losses { missed, unfit, refused } =
        port.losses().failing(|| format!("read the counters of port {}", port.interface))?;
    let drops = [("missed", missed), ("unfit", unfit), ("refused", refused)];
    let drops = drops.into_iter().filter(|(_, count)| *count > 0).map(|(name, count)| (name.to_owned(), count));
    let is_asked = packets.ports.iter().any(|plan| plan.interface == port.interface && plan.driver != Driver::Auto);
    // A slow driver that the user has not asked for.
    let doubts = if port.driver.is_slow() && !is_asked { port.notes.clone() } else { Vec::new() };
    let LaunchedPort { interface, driver, notes, .. } = port;
    Ok((PacketPort { interface, driver: driver.name().to_owned(), notes, drops: drops.collect() }, doubts))
}

fn server((address, row): (&SocketAddr, &ServerCounters)) -> PacketServer {
    let ServerCounters { opened, requests, responses, errors } = *row;
    PacketServer { address: *address, opened, requests, responses, errors }
}
