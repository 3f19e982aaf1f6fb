//! One end of a packet load while it runs: its threads, each with its engine, its port and its CPU, and what the
//! control side may ask and order.
//!
//! Threads share nothing with each other on their way. About once in a millisecond each leaves its counters where the
//! control side finds them, and looks whether an order came.

mod launch;
mod orders;
mod queue_thread;

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rig_sys::clock;
use rig_sys::cpu::{self, CpuSet};

pub use self::launch::{LaunchError, LaunchedEnd, LaunchedPort, check as check_plan, launch};
use self::orders::{Order, Orders, lock};
use self::queue_thread::{GatewayMac, LatencyHandover, PublishedCounters, TURN, ThreadContext, ThreadResult};
use super::Nanos;
pub use super::config::AnyConfig;
use super::config::ConfigError;
use super::counters::{Counters, Latencies};
use super::port::Port;
use super::rows::ServerCounters;
use super::run::Usage;

/// A thread before it runs.
#[derive(Debug)]
pub struct ThreadSpec<P> {
    pub config: AnyConfig,
    pub port: P,
    /// The CPU that its thread stays on; `None`: wherever it is put.
    pub cpu: Option<u32>,
    /// The name of its port. Threads on the same one tell each other where its gateway is.
    pub interface: String,
}

/// What a thread can be built around: a port, or one of several kinds that is known when the thread begins. Each kind has
/// code of its own, so that nothing is chosen per packet.
pub trait AnyPort: Send + 'static {
    fn hand_to<T: PortVisitor>(self, to: T) -> T::Output;
}

/// Code that is generic over the kind of port.
pub trait PortVisitor {
    type Output;

    fn take<P: Port>(self, port: P) -> Self::Output;
}

impl<P: Port + Send + 'static> AnyPort for P {
    fn hand_to<T: PortVisitor>(self, to: T) -> T::Output {
        to.take(self)
    }
}

/// All threads of one end. They end when this does.
#[derive(Debug)]
pub struct Fleet {
    orders: Arc<Orders>,
    threads: Vec<RunningThread>,
    /// What was taken from the threads since they began.
    latencies: Latencies,
    /// Empty ones, for the next exchange.
    spare: Vec<Latencies>,
}

#[derive(Debug)]
struct RunningThread {
    interface: String,
    gateway: Option<IpAddr>,
    cpu: Option<u32>,
    published: Arc<Mutex<PublishedCounters>>,
    thread: Option<JoinHandle<Result<ThreadResult, ConfigError>>>,
}

/// What has been counted so far.
#[derive(Debug, Clone, Default)]
pub struct Totals {
    /// Of CLOCK_MONOTONIC, when it was asked for; a thread's own counters may be older by about a millisecond.
    pub at: Nanos,
    /// The sums of all threads.
    pub counters: Counters,
    pub threads: Vec<ThreadTotals>,
}

#[derive(Debug, Clone, Default)]
pub struct ThreadTotals {
    pub interface: String,
    pub cpu: Option<u32>,
    pub counters: Counters,
    pub usage: Usage,
}

/// What a run leaves.
#[derive(Debug, Clone, Default)]
pub struct FleetResult {
    pub totals: Totals,
    /// Of all threads and the whole run.
    pub latencies: Latencies,
    /// What each server's address and port had, where there are at least 2, and at most 4096 of each thread.
    pub servers: BTreeMap<SocketAddr, ServerCounters>,
}

/// A port whose gateway was not found, and what was seen on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnresolvedGateway {
    pub interface: String,
    pub gateway: IpAddr,
    /// ARP requests or neighbor solicitations.
    pub asked: u64,
    /// Packets that the port could not send.
    pub refused: u64,
    /// Packets that came in, and those of them that were ARP or ICMPv6.
    pub received: u64,
    pub heard: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    #[error("no thread: there must be at least one")]
    NoThreads,
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("thread {number} of {interface}: {error}")]
    Cpu { number: usize, interface: String, error: rig_sys::Error },
    #[error("start thread {number} of {interface}: {error}")]
    Thread { number: usize, interface: String, error: std::io::Error },
    #[error("thread {number} of {interface} broke down; what it said is on standard error")]
    Panicked { number: usize, interface: String },
    #[error("{}", unresolved(.0, *.1))]
    Gateway(Vec<UnresolvedGateway>, Duration),
}

fn unresolved(ports: &[UnresolvedGateway], waited: Duration) -> String {
    let words: Vec<_> = ports.iter().map(ToString::to_string).collect();
    format!("no gateway within {} s: {}", waited.as_secs(), words.join("; "))
}

impl fmt::Display for UnresolvedGateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { interface, gateway, asked, refused, received, heard } = self;
        let questions = if gateway.is_ipv4() { "ARP requests" } else { "neighbor solicitations" };
        write!(f, "{interface}: gateway {gateway} did not say where it is: {asked} {questions} sent")?;
        if *refused > 0 {
            write!(f, " (and {refused} packets that the port had no room for)")?;
        }
        match (received, heard) {
            (0, _) => f.write_str(", nothing received: is the link up, and the other end running?"),
            (_, 0) => write!(f, ", {received} packets received, none of them an answer: is it the right network?"),
            _ => write!(f, ", {received} packets received, {heard} of them ARP or ICMPv6: is the address right?"),
        }
    }
}

impl Fleet {
    /// Starts all threads. They ask for their gateways and answer what is asked of them; clients open nothing before
    /// [`open_from`](Self::open_from) says when. The threads live in the caller's network namespace.
    pub fn start<P: AnyPort>(threads: Vec<ThreadSpec<P>>) -> Result<Self, FleetError> {
        if threads.is_empty() {
            return Err(FleetError::NoThreads);
        }
        threads.iter().try_for_each(|thread| thread.config.check())?;
        let mut fleet =
            Self { orders: Arc::default(), threads: Vec::new(), latencies: Latencies::default(), spare: Vec::new() };
        let mut gateway_macs: Vec<(String, Arc<GatewayMac>)> = Vec::new();
        let mut all_started = Vec::new();
        for (number, thread) in threads.into_iter().enumerate() {
            let gateway_mac = match gateway_macs.iter().find(|(interface, _)| *interface == thread.interface) {
                Some((_, gateway_mac)) => Arc::clone(gateway_mac),
                None => {
                    gateway_macs.push((thread.interface.clone(), Arc::default()));
                    Arc::clone(&gateway_macs[gateway_macs.len() - 1].1)
                }
            };
            let (running, started) = fleet.spawn(thread, number, gateway_mac)?;
            fleet.threads.push(running);
            all_started.push(started);
        }
        for (number, started) in all_started.iter().enumerate() {
            match started.recv() {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    let interface = fleet.threads[number].interface.clone();
                    return Err(FleetError::Cpu { number, interface, error });
                }
                Err(mpsc::RecvError) => return Err(fleet.threads[number].broken(number)),
            }
        }
        Ok(fleet)
    }

    fn spawn<P: AnyPort>(
        &self,
        thread: ThreadSpec<P>,
        number: usize,
        gateway_mac: Arc<GatewayMac>,
    ) -> Result<(RunningThread, Receiver<rig_sys::Result<()>>), FleetError> {
        let ThreadSpec { config, port, cpu, interface } = thread;
        let (published, orders) = (Arc::<Mutex<PublishedCounters>>::default(), Arc::clone(&self.orders));
        let (tell_started, started) = sync_channel(1);
        let gateway = config.gateway();
        let body = {
            let published = Arc::clone(&published);
            move || {
                work(
                    config,
                    port,
                    cpu,
                    &ThreadContext { orders: &orders, published: &published, gateway_mac: &gateway_mac },
                    &tell_started,
                )
            }
        };
        let thread = thread::Builder::new().name(format!("packets-{number}")).spawn(body);
        let thread = thread.map_err(|error| FleetError::Thread { number, interface: interface.clone(), error })?;
        Ok((RunningThread { interface, gateway, cpu, published, thread: Some(thread) }, started))
    }

    /// The ports whose gateway is not known yet.
    pub fn unresolved(&self) -> Vec<UnresolvedGateway> {
        let mut ports: Vec<UnresolvedGateway> = Vec::new();
        for running in &self.threads {
            let published = lock(&running.published);
            let Some(gateway) = running.gateway.filter(|_| !published.ready) else { continue };
            let counters = &published.counters;
            let (asked, heard) = (counters.arp_tx + counters.icmp_tx, counters.arp_rx + counters.icmp_rx);
            let known = ports.iter().position(|port| port.interface == running.interface);
            let at = known.unwrap_or_else(|| {
                let interface = running.interface.clone();
                ports.push(UnresolvedGateway { interface, gateway, asked: 0, refused: 0, received: 0, heard: 0 });
                ports.len() - 1
            });
            ports[at].asked += asked;
            ports[at].refused += counters.drop_tx;
            ports[at].received += counters.pkt_rx;
            ports[at].heard += heard;
        }
        ports
    }

    /// Waits until every gateway is known, at most for `timeout` and as long as `go_on` says so, which is asked every
    /// few milliseconds. False when it did not.
    pub fn wait_ready(&self, timeout: Duration, mut go_on: impl FnMut() -> bool) -> Result<bool, FleetError> {
        let deadline = clock::monotonic_after(timeout);
        loop {
            let missing = self.unresolved();
            if missing.is_empty() {
                return Ok(true);
            }
            self.check()?;
            if clock::monotonic_ns() >= deadline {
                return Err(FleetError::Gateway(missing, timeout));
            }
            if !go_on() {
                return Ok(false);
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Clients' schedules begin `at`, of CLOCK_MONOTONIC, ramps included.
    pub fn open_from(&self, at: Nanos) {
        self.orders.change(|order: &mut Order| order.open_from = Some(at));
    }

    /// Latencies are those of what is due from `begin` until before `end`, of CLOCK_MONOTONIC, whenever it is answered.
    /// What has no answer when the threads end is among them with its age.
    pub fn measure(&self, begin: Nanos, end: Nanos) {
        self.orders.change(|order| order.window = Some((begin, end)));
    }

    /// What is to be added to a time of the peer's CLOCK_MONOTONIC to have that of this machine: 0 unless it is said.
    pub fn set_peer_clock(&self, ns: i64) {
        self.orders.change(|order| order.peer_clock_ns = ns);
    }

    /// From `at`, of CLOCK_MONOTONIC, on nothing more becomes due, and connections that rest are closed when their next
    /// request would be. What was due before is opened even when it is late, so that the number of connections at a
    /// given rate does not depend on how busy the machine is.
    pub fn wind_down_at(&self, at: Nanos) {
        self.orders.change(|order| order.until = Some(at));
    }

    /// From `at`, of CLOCK_MONOTONIC, on each client opens `factor` times as many connections as its configuration says, or
    /// asks as often where that is given; zero is a pause. One that is not yet in force is overtaken.
    pub fn set_rate_at(&self, at: Nanos, factor: f64) {
        self.orders.change(|order| order.rate = Some((at, factor)));
    }

    /// Winds down now, even if requests are still due.
    pub fn wind_down(&self) {
        self.wind_down_at(0);
    }

    /// Whether each thread has wound down and no connection is open. What [`Fleet::totals`] says of open connections is
    /// not enough: it may be older than a connection that was opened just before a thread took note of the end.
    pub fn is_empty(&self) -> bool {
        self.threads.iter().all(|running| {
            let published = lock(&running.published);
            published.wound_down && published.counters.sk_con() == 0
        })
    }

    /// What each thread last said that it had counted.
    pub fn totals(&self) -> Totals {
        let threads = self.threads.iter().map(|running| {
            let published = lock(&running.published);
            running.totals(published.counters.clone(), published.usage)
        });
        Totals::of(threads.collect())
    }

    /// The latencies since they were last handed over. Takes about a millisecond of CPU time; what a thread does not hand
    /// over within `time_limit` comes with the next call.
    pub fn latencies(&mut self, time_limit: Duration) -> Latencies {
        let taken = self.hand_over(time_limit);
        self.sum(taken)
    }

    /// The latencies of each thread, not yet summed.
    fn hand_over(&mut self, time_limit: Duration) -> Vec<Latencies> {
        for running in &self.threads {
            let mut published = lock(&running.published);
            if matches!(published.latencies, LatencyHandover::Nothing) {
                published.latencies = LatencyHandover::Offered(self.spare.pop().unwrap_or_default());
            }
        }
        let deadline = clock::monotonic_after(time_limit);
        let mut taken = Vec::with_capacity(self.threads.len());
        let mut waiting: Vec<&RunningThread> = self.threads.iter().collect();
        while !waiting.is_empty() {
            waiting.retain(|running| {
                let mut published = lock(&running.published);
                match std::mem::take(&mut published.latencies) {
                    LatencyHandover::Taken(latencies) => {
                        taken.push(latencies);
                        false
                    }
                    other => {
                        published.latencies = other;
                        true
                    }
                }
            });
            if clock::monotonic_ns() >= deadline {
                break;
            }
            thread::sleep(Duration::from_micros(300));
        }
        taken
    }

    /// Sums up what was handed over.
    fn sum(&mut self, taken: Vec<Latencies>) -> Latencies {
        let mut interval = Latencies::default();
        for mut latencies in taken {
            interval.merge(&latencies);
            latencies.clear();
            self.spare.push(latencies);
        }
        self.latencies.merge(&interval);
        interval
    }

    /// Whether all threads are still at work.
    pub fn check(&self) -> Result<(), FleetError> {
        let ended = |running: &RunningThread| running.thread.as_ref().is_none_or(JoinHandle::is_finished);
        match self.threads.iter().position(ended) {
            None => Ok(()),
            Some(number) => {
                let interface = self.threads[number].interface.clone();
                Err(FleetError::Panicked { number, interface })
            }
        }
    }

    /// Ends all threads at once, and gives what they counted until then.
    pub fn stop(mut self) -> Result<FleetResult, FleetError> {
        self.orders.change(|order| order.stop = true);
        let mut latencies = std::mem::take(&mut self.latencies);
        let (mut threads, mut servers) = (Vec::new(), BTreeMap::<SocketAddr, ServerCounters>::new());
        for (number, running) in self.threads.iter_mut().enumerate() {
            let Some(thread) = running.thread.take() else { continue };
            let Ok(done) = thread.join() else {
                return Err(FleetError::Panicked { number, interface: running.interface.clone() });
            };
            let done = done?;
            latencies.merge(&done.latencies);
            if let LatencyHandover::Taken(taken) = std::mem::take(&mut lock(&running.published).latencies) {
                latencies.merge(&taken);
            }
            for (server, row) in done.rows {
                let sum = servers.entry(server).or_default();
                *sum = sum.plus(row);
            }
            threads.push(running.totals(done.counters, done.usage));
        }
        if servers.len() == 1 {
            // The sums say the same.
            servers.clear();
        }
        Ok(FleetResult { totals: Totals::of(threads), latencies, servers })
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.orders.change(|order| order.stop = true);
        for thread in self.threads.iter_mut().filter_map(|running| running.thread.take()) {
            // The owner dropped the fleet without asking for its counters, and a panic has been printed.
            let _ = thread.join();
        }
    }
}

impl RunningThread {
    fn totals(&self, counters: Counters, usage: Usage) -> ThreadTotals {
        ThreadTotals { interface: self.interface.clone(), cpu: self.cpu, counters, usage }
    }

    /// Why a thread ended before it began.
    fn broken(&mut self, number: usize) -> FleetError {
        let panicked = FleetError::Panicked { number, interface: self.interface.clone() };
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(Err(error))) => error.into(),
            _ => panicked,
        }
    }
}

impl Totals {
    fn of(threads: Vec<ThreadTotals>) -> Self {
        let counters = threads.iter().fold(Counters::default(), |sum, thread| sum.plus(&thread.counters));
        Self { at: clock::monotonic_ns(), counters, threads }
    }
}

/// The body of a thread.
fn work<P: AnyPort>(
    config: AnyConfig,
    port: P,
    cpu: Option<u32>,
    work: &ThreadContext<'_>,
    started: &SyncSender<rig_sys::Result<()>>,
) -> Result<ThreadResult, ConfigError> {
    // There is room for the one message.
    if let Err(error) = CpuSet::new(cpu).apply() {
        let _ = started.try_send(Err(error));
        return Ok(ThreadResult::default());
    }
    // Refused to a thread of real time, which yields to its equals at once.
    let _ = cpu::set_slice(TURN);
    port.hand_to(Run { config, work, started })
}

/// A thread that lacks only its port.
struct Run<'a> {
    config: AnyConfig,
    work: &'a ThreadContext<'a>,
    started: &'a SyncSender<rig_sys::Result<()>>,
}

impl PortVisitor for Run<'_> {
    type Output = Result<ThreadResult, ConfigError>;

    fn take<P: Port>(self, port: P) -> Self::Output {
        let report = || drop(self.started.try_send(Ok(())));
        match self.config {
            AnyConfig::V4(config) => self.work.run(config, port, report),
            AnyConfig::V6(config) => self.work.run(config, port, report),
        }
    }
}

#[cfg(test)]
mod tests;
