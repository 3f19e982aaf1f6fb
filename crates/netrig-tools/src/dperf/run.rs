//! A run: gateways, silence, ramp, duration, drain; statistics each second and in total.

use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow};
use rig_cli::exit::{Exit, ExitContext, Failure};
use rig_load::driver::Cancel;
use rig_packet::fleet::{
    Fleet, FleetError, FleetResult, LaunchError, LaunchedEnd, LaunchedPort, ThreadTotals, Totals, launch,
};
use rig_packet::plan::Packets;
use rig_packet::{Counters, Service, Usage, device};
use rig_sys::clock;
use rig_sys::counters::NamespaceCounters;
use rig_sys::netlink::Netlink;

use super::console::Console;
use super::record::{LatencySummaries, PortRecord, SecondRecord, named};
use super::resolve::LoadPlan;
use super::statistics::{Figures, Layout, Nic, heading, percentiles};

/// What is known of the gateways before a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gateways {
    Unknown,
    /// They said where they are in a run shortly before.
    Answered,
}

impl Gateways {
    /// How long they may take to say where they are: at first as long as in dperf.
    fn time_limit(self) -> Duration {
        match self {
            Self::Unknown => Duration::from_secs(60),
            Self::Answered => Duration::from_secs(5),
        }
    }
}

/// How long threads may take to hand over a second's latencies.
const HAND_OVER: Duration = Duration::from_millis(100);
/// Between two looks at what ends a run early.
const LOOK: Duration = Duration::from_millis(20);
/// From the order to begin to the beginning, so that all threads have heard of it.
const NOTICE: Duration = Duration::from_millis(10);

/// What a run leaves.
#[derive(Debug)]
pub struct RunResult {
    pub outcome: FleetResult,
    pub ports: Vec<PortRecord>,
    pub seconds: Vec<SecondRecord>,
    pub span: Duration,
    pub nic: Nic,
    /// Of a client whose connections have times of their own.
    pub offered: Option<OfferedRate>,
    pub interrupted: bool,
}

/// How much of a client's schedule was begun while it lasted: what was late by then is made up for later, but was not offered at the rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OfferedRate {
    /// Connections per second that the file asks for.
    pub asked: f64,
    /// Those that were begun in time, as a part of that rate.
    pub offered: f64,
    /// How many were not begun when the time was over.
    pub behind: f64,
}

impl OfferedRate {
    /// `counters` are those of the moment when the schedule is over.
    fn of(packets: &Packets, counters: &Counters) -> Option<Self> {
        let client = packets.service.client().filter(|client| client.flood.is_none() && client.load.hold.is_none())?;
        let [duration, ramp] = [packets.course.duration, client.load.ramp].map(|time| time.as_secs_f64());
        let rising = ramp.min(duration);
        let rate = client.load.rate;
        let risen = if ramp > 0.0 { rate * rising * rising / 2.0 / ramp } else { 0.0 };
        let due = risen + rate * (duration - rising);
        // What found no addresses and ports free was tried in time.
        let begun = counters.sk_open + counters.no_socket;
        let part = (begun as f64 / due).min(1.0);
        (due > 0.0).then(|| Self { asked: rate, offered: rate * part, behind: (due - begun as f64).max(0.0) })
    }

    /// Whether what was not offered is more than what a schedule's edges are.
    fn is_short(&self) -> bool {
        self.behind > 2.0 && self.offered < 0.99 * self.asked
    }
}

impl RunResult {
    /// The busiest thread's share of its seconds with something to do, 0 to 1. Parts of a second at the beginning and the end, with little
    /// to do, would hide a thread that has no time left.
    pub fn busiest(&self) -> f64 {
        let seconds = self.seconds.len();
        let busy = |(n, thread): (usize, &ThreadTotals)| match seconds {
            0 => thread.usage.busy_since(&Usage::default()),
            _ => self.seconds.iter().filter_map(|second| second.cpu_usage.get(n)).sum::<f64>() / seconds as f64,
        };
        self.outcome.totals.threads.iter().enumerate().map(busy).fold(0.0, f64::max)
    }
}

/// Runs `packets`, which may be another load than the plan's own. `None`: stopped before it began.
pub fn run(
    plan: &LoadPlan,
    packets: &Packets,
    gateways: Gateways,
    cancel: &Cancel,
    console: &mut Console,
) -> Result<Option<RunResult>, Failure> {
    let options = device::Options { busy_poll: plan.busy_poll, ..device::Options::default() };
    let LaunchedEnd { fleet, ports, bytes } = launch(packets, &options).map_err(refused)?;
    console.debug(&format!("room for connections: {} MB, taken as they come", bytes.div_ceil(1_000_000)));
    for note in ports.iter().flat_map(|port| &port.notes) {
        console.info(note);
    }
    let told = clock::monotonic_after(Duration::from_secs(1));
    let mut tell = !fleet.unresolved().is_empty();
    let mut go_on = || {
        if tell && clock::monotonic_ns() > told {
            tell = false;
            let waiting = fleet.unresolved();
            let names: Vec<_> = waiting.iter().map(|port| format!("{} ({})", port.gateway, port.interface)).collect();
            let names = names.join(", ");
            console.info(&match gateways {
                Gateways::Unknown => format!("waiting for the gateway {names} to say where it is"),
                Gateways::Answered => format!("the gateway {names}, which answered before, does not answer"),
            });
        }
        !cancel.is_cancelled()
    };
    let ready = fleet.wait_ready(gateways.time_limit(), &mut go_on).map_err(|error| match (gateways, &error) {
        (Gateways::Answered, FleetError::Gateway(..)) => {
            let why = "the other end answered before and does not any more: it has ended, or the link is down";
            Failure::new(Exit::Failed, anyhow!("{why}: {error}"))
        }
        _ => Failure::new(Exit::Failed, error),
    })?;
    if !ready {
        return Ok(None);
    }
    let course = ActiveRun::new(plan.layout, packets, &fleet, ports)?;
    course.run(fleet, packets, cancel, console).map(Some)
}

fn refused(error: LaunchError) -> Failure {
    let exit = match &error {
        LaunchError::Divide(_) => Exit::BadInput,
        LaunchError::Port(_) => Exit::Lacking,
        LaunchError::Fleet(_) => Exit::Failed,
    };
    Failure::new(exit, error)
}

/// A run from the moment when all gateways are known.
struct ActiveRun {
    layout: Layout,
    ports: Vec<LaunchedPort>,
    kernel: NamespaceCounters,
    netlink: Netlink,
    nic_before: Nic,
    begin: u64,
    last: Totals,
    seconds: Vec<SecondRecord>,
}

/// Why a stretch of time ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StopReason {
    Time,
    Signal,
    /// No connection is open any more.
    Empty,
}

impl ActiveRun {
    fn new(layout: Layout, packets: &Packets, fleet: &Fleet, ports: Vec<LaunchedPort>) -> Result<Self, Failure> {
        let kernel = NamespaceCounters::here().or_exit(Exit::Failed)?;
        let netlink = Netlink::here().or_exit(Exit::Failed)?;
        let begin = clock::monotonic_after(NOTICE);
        let wait = packets.course.wait.as_nanos() as u64;
        let nanos = packets.course.duration.as_nanos() as u64;
        fleet.open_from(begin + wait);
        fleet.wind_down_at(begin.saturating_add(wait).saturating_add(nanos));
        let last = Totals { at: begin, threads: fleet.totals().threads, ..Totals::default() };
        let mut course =
            Self { layout, ports, kernel, netlink, nic_before: Nic::default(), begin, last, seconds: Vec::new() };
        course.nic_before = course.interfaces().or_exit(Exit::Failed)?;
        Ok(course)
    }

    fn run(
        mut self,
        mut fleet: Fleet,
        packets: &Packets,
        cancel: &Cancel,
        console: &mut Console,
    ) -> Result<RunResult, Failure> {
        let course = &packets.course;
        let whole = course.wait.saturating_add(course.duration);
        let stretch = whole.as_secs_f64();
        let progress = |seconds: f64| {
            let filled = (seconds / stretch * 20.0).clamp(0.0, 20.0) as usize;
            let phase = match seconds {
                seconds if seconds < course.wait.as_secs_f64() => "wait",
                seconds if seconds < (course.wait + ramp(&packets.service)).as_secs_f64() => "slow start",
                seconds if seconds < stretch => "steady",
                _ => "drain",
            };
            let bar = format!("{}{}", "#".repeat(filled), ".".repeat(20 - filled));
            format!("[{bar}] {seconds:.0} of {stretch:.0} s, {phase}")
        };
        let ends = self.begin.saturating_add(whole.as_nanos() as u64);
        let main = self.watch(&mut fleet, ends, false, cancel, console, &progress)?;
        let interrupted = main == StopReason::Signal;
        let offered = OfferedRate::of(packets, &fleet.totals().counters).filter(|_| !interrupted);
        if interrupted {
            fleet.wind_down();
        }
        let drained = clock::monotonic_ns().max(self.last.at).saturating_add(course.drain.as_nanos() as u64);
        // A second signal ends the process; the first has done its work.
        let patient = Cancel::new().or_exit(Exit::Failed)?;
        self.watch(&mut fleet, drained, true, &patient, console, &progress)?;
        console.end_of_seconds();
        let nic = self.nic().or_exit(Exit::Failed)?;
        let outcome = fleet.stop().or_exit(Exit::Failed)?;
        let span = Duration::from_nanos(outcome.totals.at.saturating_sub(self.begin));
        let ports = self.ports.into_iter().map(|port| PortRecord { interface: port.interface, notes: port.notes });
        Ok(RunResult { outcome, ports: ports.collect(), seconds: self.seconds, span, nic, offered, interrupted })
    }

    /// Shows each second until `ends`; with `empty`, until no connection is open.
    fn watch(
        &mut self,
        fleet: &mut Fleet,
        ends: u64,
        empty: bool,
        cancel: &Cancel,
        console: &mut Console,
        progress: &dyn Fn(f64) -> String,
    ) -> Result<StopReason, Failure> {
        loop {
            let due = self.begin.saturating_add((self.seconds.len() as u64 + 1) * 1_000_000_000);
            let until = due.min(ends);
            while clock::monotonic_ns() < until {
                if cancel.is_cancelled() {
                    return Ok(StopReason::Signal);
                }
                if empty && fleet.is_empty() {
                    return Ok(StopReason::Empty);
                }
                let left = Duration::from_nanos(until.saturating_sub(clock::monotonic_ns()));
                thread::sleep(left.min(LOOK));
            }
            if until == due {
                fleet.check().or_exit(Exit::Failed)?;
                self.second(fleet, console, progress)?;
            }
            if clock::monotonic_ns() >= ends {
                return Ok(StopReason::Time);
            }
        }
    }

    fn second(
        &mut self,
        fleet: &mut Fleet,
        console: &mut Console,
        progress: &dyn Fn(f64) -> String,
    ) -> Result<(), Failure> {
        let latencies = fleet.latencies(HAND_OVER);
        let now = fleet.totals();
        let counters = now.counters.minus(&self.last.counters);
        let threads = now.threads.iter().zip(&self.last.threads);
        let busy: Vec<f64> = threads.map(|(now, last)| now.usage.busy_since(&last.usage)).collect();
        let nic = self.nic().or_exit(Exit::Failed)?;
        let open = now.counters.sk_con();
        let second = self.seconds.len() as u64;
        let figures = Figures { counters: &counters, open, nic };
        let block = self.layout.block(&figures, console.terminal, console.columns());
        let seconds = now.at.saturating_sub(self.begin) as f64 / 1e9;
        console.second(&format!("{}{block}{}", heading(second, &busy), percentiles(&latencies)), &progress(seconds));
        self.seconds.push(SecondRecord {
            second,
            span_s: now.at.saturating_sub(self.last.at) as f64 / 1e9,
            cpu_usage: busy,
            counters: named(&counters),
            open,
            latency: LatencySummaries::of(&latencies),
        });
        self.last = now;
        Ok(())
    }

    /// What was lost before the threads saw it, since the run began.
    fn nic(&self) -> anyhow::Result<Nic> {
        let mut nic = self.interfaces()?.minus(self.nic_before);
        for port in &self.ports {
            let losses = port.losses()?;
            nic.imissed += losses.missed;
            nic.ierrors += losses.unfit;
            nic.oerrors += losses.refused;
        }
        Ok(nic)
    }

    /// What the interfaces themselves count.
    fn interfaces(&self) -> anyhow::Result<Nic> {
        let all = self.kernel.interfaces()?;
        let mut nic = Nic::default();
        for port in &self.ports {
            let counted = all.get(&port.interface).with_context(|| format!("{} is gone", port.interface))?;
            nic.ierrors += counted.rx_errors;
            nic.oerrors += counted.tx_errors;
            nic.imissed += self.netlink.missed(&port.interface)?;
        }
        Ok(nic)
    }
}

fn ramp(service: &Service) -> Duration {
    service.client().map_or(Duration::ZERO, |client| client.load.ramp)
}

/// Says at the beginning how long a run takes; the steps of a search have times of their own.
pub fn announce(packets: &Packets, console: &mut Console) {
    if let Some(text) = announcement(packets.course.wait, ramp(&packets.service), packets.course.duration) {
        console.info(&text);
    }
}

/// How long a run takes where that is not what `duration` says: a file without `slow_start` has 30 s of it. `duration` here has the ramp
/// in it.
fn announcement(wait: Duration, ramp: Duration, duration: Duration) -> Option<String> {
    let seconds = |time: Duration| format!("{} s", time.as_secs_f64());
    let parts: Vec<String> = [(wait, "of silence (wait)"), (ramp, "of slow start (slow_start)")]
        .into_iter()
        .filter(|(time, _)| !time.is_zero())
        .map(|(time, what)| format!("{} {what}", seconds(time)))
        .collect();
    let steady = duration.saturating_sub(ramp);
    (!parts.is_empty()).then(|| {
        let whole = seconds(wait.saturating_add(duration));
        format!("this run takes {whole}: {}, then {} at the full rate (duration)", parts.join(", "), seconds(steady))
    })
}

/// What went wrong in a run, in words.
pub fn failures(service: &Service, outcome: &FleetResult) -> Vec<String> {
    let counters: &Counters = &outcome.totals.counters;
    let mut failures = Vec::new();
    let mut count = |count: u64, what: &str| {
        if count > 0 {
            failures.push(format!("{count} {what}"));
        }
    };
    count(counters.sk_err, "connections failed (skErr)");
    let Some(client) = service.client() else { return failures };
    if client.flood.is_some() {
        return failures;
    }
    count(counters.udp_rt, "datagrams had no answer in time (udpRt)");
    count(counters.http_err, "responses were no success (httpErr)");
    count(counters.no_socket, "connections could not be opened (noSocket): no addresses and ports were free");
    count(counters.unfinished, "connections were without an answer at the end (skUnfinished)");
    if counters.sk_open == 0 {
        failures.push("no connection was opened".to_owned());
    }
    failures
}

/// The end of a run, as it is printed.
pub fn totals(layout: Layout, finished: &RunResult, colour: bool, columns: Option<usize>) -> String {
    use std::fmt::Write;

    let counters = &finished.outcome.totals.counters;
    let rule = "-----------------------";
    let mut text = format!("\n{rule}\nnetrig dperf Test Finished\nVersion: {}\n{rule}\n", env!("CARGO_PKG_VERSION"));
    let figures = Figures { counters, open: counters.sk_con(), nic: finished.nic };
    let _ = write!(text, "\nTotal Numbers:\n{}", layout.block(&figures, colour, columns));
    let latencies = percentiles(&finished.outcome.latencies);
    if !latencies.is_empty() {
        let _ = write!(text, "\n{latencies}");
    }
    for (name, value) in [
        ("noSocket", counters.no_socket),
        ("late", counters.late),
        ("unreachable", counters.unreachable),
        ("skUnfinished", counters.unfinished),
        ("udpUnnumbered", counters.udp_unnumbered),
    ] {
        if value > 0 {
            let _ = writeln!(text, "{name:<8} {}", super::statistics::thousands(value));
        }
    }
    if let Some(OfferedRate { asked, offered, .. }) = finished.offered.filter(OfferedRate::is_short) {
        let [offered, asked] = [offered, asked].map(super::per_second);
        let _ =
            writeln!(text, "offered {offered}/s of {asked}/s: this machine was behind the times of the connections");
    }
    for (reason, count) in counters.reasons() {
        let _ = writeln!(text, "badRx: {count} {reason}");
    }
    let longest = finished.outcome.servers.keys().map(|server| server.to_string().len()).max();
    if longest.is_some() {
        let names = ["opened", "requests", "responses", "errors"].map(|name| format!("{name:>15}")).concat();
        let _ = writeln!(text, "\n{:<longest$}{names}", "server", longest = longest.unwrap_or(0));
    }
    for (server, row) in &finished.outcome.servers {
        let [opened, requests, responses, errors] =
            [row.opened, row.requests, row.responses, row.errors].map(super::statistics::thousands);
        let server = server.to_string();
        let longest = longest.unwrap_or(0);
        let _ = writeln!(text, "{server:<longest$}{opened:>15}{requests:>15}{responses:>15}{errors:>15}");
    }
    text
}

/// Nothing was done because a signal came first.
pub fn stopped() -> Failure {
    Failure::new(Exit::Stopped, anyhow!("stopped before the gateways were known"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client of so many connections per second for 4 s, the first two of them with a rising rate.
    fn client(rate: f64) -> Packets {
        let text = format!(
            "mode client\ncpu 0\nport dp0 10.99.0.1 10.99.0.2\nclient 10.99.1.1 10\nserver 10.99.2.1 2\nslow_start 2\n\
             duration 2\ncps {rate}\n"
        );
        let (settings, mut warnings) = super::super::language::read(&text).unwrap();
        super::super::resolve::resolve(&settings, &mut warnings).unwrap().packets
    }

    #[test]
    fn what_was_begun_in_time_was_offered() {
        let offered = |opened: u64, no_socket: u64| {
            let counters = Counters { sk_open: opened, no_socket, ..Counters::default() };
            OfferedRate::of(&client(2000.0), &counters).unwrap()
        };
        // 2000 while the rate rises for 2 s, and 4000 in two seconds at the full rate.
        for (opened, no_socket, per_second, is_short) in [
            (6000, 0, 2000.0, false),
            (5990, 0, 1996.666, false),
            (3000, 3000, 2000.0, false),
            (3000, 0, 1000.0, true),
            (0, 0, 0.0, true),
        ] {
            let rate = offered(opened, no_socket);
            assert!((rate.offered - per_second).abs() < 0.01 && rate.asked == 2000.0, "{rate:?}");
            assert_eq!(rate.is_short(), is_short, "{rate:?}");
        }
        // The last of a few connections may not be due yet.
        let counters = Counters { sk_open: 2, ..Counters::default() };
        assert!(!OfferedRate::of(&client(1.0), &counters).unwrap().is_short());
    }

    #[test]
    fn a_run_that_is_longer_than_its_duration_says_so() {
        let s = Duration::from_secs;
        let said = announcement(s(3), s(30), s(38)).unwrap();
        let expected = "this run takes 41 s: 3 s of silence (wait), 30 s of slow start (slow_start), then 8 s at the full rate \
                        (duration)";
        assert_eq!(said, expected);
        assert_eq!(announcement(s(0), s(0), s(8)), None);
        assert!(announcement(s(0), s(1), s(3)).unwrap().starts_with("this run takes 3 s: 1 s of slow start"));
    }
}
