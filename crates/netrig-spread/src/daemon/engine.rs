//! The loop: looks at what each interface received, and answers.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rig_cli::exit::{Exit, Failure, in_words};
use rig_datapath::receive::{Reading, Receive};
use rig_service::{Counters, End, KernelEventFilter, Refusal, Replies, Service, refusal};
use rig_sys::clock::own_cpu_ns;
use rig_sys::counters::NamespaceCounters;
use rig_sys::netlink::{Event as Change, Netlink};
use rig_sys::netns::{NetNs, Sysfs};
use tracing::{error, info, warn};

use super::keep::SavedInterfaces;
use super::log::Log;
use super::losses::Losses;
use super::machine::online;
use super::port::{LogEvents, Port};
use super::record::Record;
use super::{TEXT, introduction};
use crate::actuator::{Device, UnsupportedKind, choose};
use crate::message::{CpuLoad, LogEvent, ReceiveCounts, Reply, Request, SpreaderUsage, Status, WaitingInterface};
use crate::metrics;
use crate::settings::{Rule, SettingChanges, Settings};

/// While nothing is received.
const IDLE: Duration = Duration::from_millis(100);
/// How often losses are read.
const LOSSES: Duration = Duration::from_millis(100);
/// How long the rates are of that are told.
const SECOND: Duration = Duration::from_secs(1);

/// Where its settings come from.
#[derive(Debug, Clone)]
pub(super) enum Source {
    File {
        path: PathBuf,
        /// Of interfaces that the command line names: they go before the file's.
        said: Vec<Rule>,
    },
    /// The command line, or the program that it is in.
    CommandLine,
    /// What the process that has started it sends.
    Text,
}

#[derive(Debug)]
pub(super) struct Engine {
    begun: Instant,
    source: Source,
    settings: Settings,
    /// What was said while it runs, by interface.
    said: BTreeMap<String, SettingChanges>,
    ns: Arc<NetNs>,
    sysfs: Arc<Sysfs>,
    net: NamespaceCounters,
    receive: Arc<Receive>,
    kept: SavedInterfaces,
    ports: BTreeMap<String, Port>,
    waiting: BTreeMap<String, Vec<UnsupportedKind>>,
    /// Interfaces that could be had and were not, and why.
    failed: BTreeMap<String, String>,
    losses: Losses,
    log: Log,
    records: Option<PathBuf>,
    /// Interfaces with a file there that is this process's.
    recorded: BTreeSet<String>,
    reading: Reading,
    online: String,
    own: OwnTime,
    busy: Vec<(Duration, f64)>,
    next: Instant,
    next_losses: Instant,
    next_second: Instant,
}

#[derive(Debug, Default)]
struct OwnTime {
    looks: u64,
    longest: Duration,
    cpu_before: u64,
    share: f64,
}

impl Engine {
    /// Takes the interfaces that are there.
    ///
    /// # Errors
    /// Where nothing can be counted.
    pub(super) fn start(
        settings: Settings,
        source: Source,
        kept: SavedInterfaces,
        records: Option<PathBuf>,
    ) -> Result<Self> {
        let ns = Arc::new(NetNs::of_current_thread()?);
        let receive = Arc::new(Receive::attach()?);
        let reading = receive.read(0)?;
        let mut engine = Self {
            begun: Instant::now(),
            source,
            settings,
            said: BTreeMap::new(),
            sysfs: Arc::new(ns.sysfs()?),
            ns,
            net: NamespaceCounters::here()?,
            receive,
            kept,
            ports: BTreeMap::new(),
            waiting: BTreeMap::new(),
            failed: BTreeMap::new(),
            losses: Losses::default(),
            log: Log::default(),
            records,
            recorded: BTreeSet::new(),
            reading,
            online: online(),
            own: OwnTime { cpu_before: own_cpu_ns(), ..OwnTime::default() },
            busy: Vec::new(),
            next: Instant::now(),
            next_losses: Instant::now(),
            next_second: Instant::now() + SECOND,
        };
        engine.losses.read(&engine.net);
        engine.losses.used();
        engine.find();
        Ok(engine)
    }

    fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    pub(super) fn interfaces(&self) -> impl Iterator<Item = &str> {
        self.ports.keys().map(String::as_str)
    }

    pub(super) fn waiting(&self) -> &BTreeMap<String, Vec<UnsupportedKind>> {
        &self.waiting
    }

    fn tell(&mut self, interface: &str, what: LogEvent) {
        if let LogEvent::Said(words) = &what {
            info!("{interface}: {words}");
        }
        let at = self.now();
        self.log.add(interface, at, what);
    }

    fn tell_all(&mut self, interface: &str, told: LogEvents) {
        for what in told {
            self.tell(interface, what);
        }
    }

    /// Takes interfaces that rules name and that are not taken yet, and leaves those that are gone or have other queues.
    fn find(&mut self) {
        let Ok(netlink) = Netlink::here() else { return };
        self.losses.read(&self.net);
        let names: Vec<String> = self.losses.names().map(str::to_owned).collect();
        let is_gone =
            |port: &Port| netlink.index(&port.device.name).ok() != Some(port.index) || !port.actuator.is_intact();
        let gone: Vec<String> =
            self.ports.iter().filter(|(_, port)| is_gone(port)).map(|(name, _)| name.clone()).collect();
        for name in gone {
            self.leave(&name, "gone, down, or with other queues");
        }
        self.waiting.retain(|name, _| names.contains(name));
        self.failed.retain(|name, _| names.contains(name));
        for name in names {
            if self.ports.contains_key(&name) {
                continue;
            }
            if let (Some(_), Ok(index)) = (self.settings.rule_for(&name), netlink.index(&name)) {
                self.take(&name, index);
            }
        }
    }

    fn take(&mut self, name: &str, index: u32) {
        let Some(rule) = self.settings.rule_for(name).cloned() else { return };
        let device = Device { ns: self.ns.clone(), sysfs: self.sysfs.clone(), name: name.to_owned() };
        let first = self.ports.values().map(|port| port.first + port.places()).max().unwrap_or_default();
        let mut rule = rule;
        if let Some(changes) = self.said.get(name) {
            rule.settings = changes.over(&rule.settings);
        }
        let (actuator, lacks) = match choose(&rule.actuators, &device, &self.receive, first) {
            Ok(taken) => taken,
            Err(lacks) => {
                if self.waiting.get(name) != Some(&lacks) {
                    let why: Vec<String> = lacks.iter().map(|lack| format!("{}: {}", lack.kind, lack.why)).collect();
                    self.waiting.insert(name.to_owned(), lacks);
                    self.tell(name, LogEvent::Said(format!("not taken. {}", why.join(". "))));
                }
                return;
            }
        };
        let kept = self.kept.add(index, actuator.before());
        let now = self.now();
        let port = kept.and_then(|()| Port::new(device, index, first, actuator, lacks, rule, now));
        match port {
            Ok((mut port, told)) => {
                self.waiting.remove(name);
                self.failed.remove(name);
                if let Some(directory) = &self.records {
                    // A trace can begin anew: what is taken again goes on in its file.
                    let record = if self.recorded.contains(name) {
                        Record::go_on(directory, name)
                    } else {
                        Record::create(directory, name)
                    };
                    match record {
                        Ok(record) => {
                            self.recorded.insert(name.to_owned());
                            port.record_to(record);
                        }
                        Err(error) => warn!("{}", in_words(&error)),
                    }
                }
                self.ports.insert(name.to_owned(), port);
                self.tell_all(name, told);
                // Its queues count from here on.
                self.reading = self.read().unwrap_or_default();
            }
            Err(error) => {
                let _ = self.kept.give_back(index);
                let why = in_words(&error);
                self.failed.insert(name.to_owned(), why.clone());
                self.tell(name, LogEvent::Said(format!("not taken: {why}")));
            }
        }
    }

    fn leave(&mut self, name: &str, why: &str) {
        let Some(port) = self.ports.remove(name) else { return };
        let index = port.index;
        drop(port);
        let words = match self.kept.give_back(index) {
            Ok(()) => format!("left: {why}"),
            Err(error) => format!("released: {why}; not everything could be put back: {}", in_words(&error)),
        };
        self.tell(name, LogEvent::Said(words));
    }

    fn read(&self) -> Result<Reading> {
        let places = self.ports.values().map(|port| port.first + port.places()).max().unwrap_or_default();
        Ok(self.receive.read(places)?)
    }

    /// How long nothing has to be looked at.
    fn pace(&self) -> Duration {
        let wanted = self.ports.values().map(Port::next_look).min().unwrap_or(IDLE);
        wanted.clamp(self.settings.tick, IDLE)
    }

    fn look(&mut self) {
        let Ok(reading) = self.read() else { return };
        let before = std::mem::replace(&mut self.reading, reading);
        let now = self.now();
        let mut all = Vec::new();
        for (name, port) in &mut self.ports {
            let told = port.look(&before, &self.reading, &self.losses, now);
            if !told.is_empty() {
                all.push((name.clone(), told));
            }
        }
        for (name, told) in all {
            self.tell_all(&name, told);
        }
    }

    /// Finds out anew what is in force on some interfaces.
    fn configure(&mut self, which: impl Fn(&mut Port) -> bool) {
        let now = self.now();
        let mut failed = Vec::new();
        for (name, port) in &mut self.ports {
            if which(port)
                && let Err(error) = port.configure(port.rule.clone(), now)
            {
                failed.push((name.clone(), in_words(&error)));
            }
        }
        for (name, words) in failed {
            self.tell(&name, LogEvent::Said(words));
        }
    }

    /// What is done once a second.
    fn second(&mut self, over: Duration) {
        let online = online();
        let others = online != self.online;
        self.online = online;
        self.configure(|port| port.learn_receiver() || others);
        let mut told = Vec::new();
        for (name, port) in &mut self.ports {
            let received = self.losses.interface(name).map(|counted| ReceiveCounts {
                packets: counted.rx_packets,
                bytes: counted.rx_bytes,
                dropped: counted.rx_dropped,
                ..ReceiveCounts::default()
            });
            told.extend(port.roll(over, received).map(|what| (name.clone(), what)));
        }
        for (name, what) in told {
            self.tell(&name, what);
        }
        let cpu = own_cpu_ns();
        self.own.share = cpu.saturating_sub(self.own.cpu_before) as f64 / over.as_nanos().max(1) as f64;
        self.own.cpu_before = cpu;
        let (at, cpus) = (self.reading.at, &self.reading.cpus);
        let busy = cpus.iter().enumerate().map(|(cpu, now)| {
            let total = Duration::from_nanos(at).saturating_sub(now.idle);
            let share = self
                .busy
                .get(cpu)
                .map_or(0.0, |(before, _)| total.saturating_sub(*before).as_secs_f64() / over.as_secs_f64().max(1e-3));
            (total, share.min(1.0))
        });
        self.busy = busy.collect();
        // A link that goes down and up again has other queues, of which nothing tells in time.
        if self.ports.values().any(|port| !port.actuator.is_intact()) {
            self.find();
        }
    }

    fn set(&mut self, interface: &str, changes: &SettingChanges) -> Result<Vec<String>> {
        let now = self.now();
        let Some(port) = self.ports.get_mut(interface) else {
            let taken: Vec<&str> = self.ports.keys().map(String::as_str).collect();
            let taken = if taken.is_empty() { "none".to_owned() } else { taken.join(", ") };
            anyhow::bail!("interface {interface} is not taken by this spreader; taken: {taken}");
        };
        let settings = changes.over(&port.rule.settings);
        settings.check()?;
        let rule = crate::settings::Rule { settings, ..port.rule.clone() };
        port.configure(rule, now)?;
        let status = port.status(now);
        let said = self.said.entry(interface.to_owned()).or_default();
        *said = said.with(changes);
        self.tell(interface, LogEvent::Said("other settings are requested".into()));
        let mut lines = Vec::new();
        if status.differences.is_empty() {
            lines.push(format!("{interface}: in force as requested, until the spreader ends"));
        }
        lines.extend(status.differences.iter().map(|standing| format!("{interface}: {}", standing.difference)));
        Ok(lines)
    }

    fn read_again(&mut self, text: Option<&str>) -> Result<Vec<String>> {
        let (new, name) = match (text, &self.source) {
            (Some(text), _) => (Settings::parse(TEXT, text), TEXT.to_owned()),
            (None, Source::File { path, .. }) => (Settings::load(path), path.display().to_string()),
            (None, Source::CommandLine | Source::Text) => {
                let hint = "use `netrig spread set`".to_owned();
                return Err(Refusal::new("it was started without a file", Some(hint)).into());
            }
        };
        let mut new =
            new.map_err(|error| Refusal::new(format!("the file is refused, and nothing changes: {error}"), None))?;
        if let Source::File { said, .. } = &self.source {
            new.rules.splice(0..0, said.iter().cloned());
        }
        let mut lines = vec![format!("{name} is in force")];
        if new.metrics != self.settings.metrics {
            lines.push("`metrics` has changed in the file, which needs a restart".into());
        }
        self.settings = Settings { metrics: self.settings.metrics, ..new };
        // What was said meanwhile gives way to the file.
        self.said.clear();
        let now = self.now();
        let names: Vec<String> = self.ports.keys().cloned().collect();
        for name in names {
            let Some(rule) = self.settings.rule_for(&name).cloned() else {
                self.leave(&name, "the file no longer names it");
                continue;
            };
            let Some(port) = self.ports.get_mut(&name) else { continue };
            if rule.actuators != port.rule.actuators {
                self.leave(&name, "to be taken with other actuators");
            } else if let Err(error) = port.configure(rule, now) {
                lines.push(format!("{name}: {}", in_words(&error)));
            }
        }
        self.find();
        self.next = Instant::now();
        Ok(lines)
    }

    /// Interfaces that it was told to take and has not.
    fn not_taken(&self) -> Vec<WaitingInterface> {
        let lacking = self.waiting.iter().map(|(interface, lacks)| WaitingInterface {
            interface: interface.clone(),
            lacks: lacks.clone(),
            why: None,
        });
        let because = |interface: &str, why: &str| WaitingInterface {
            interface: interface.to_owned(),
            lacks: Vec::new(),
            why: Some(why.to_owned()),
        };
        let failed = self.failed.iter().filter(|(name, _)| !self.waiting.contains_key(*name));
        let named: BTreeSet<String> =
            self.settings.rules.iter().filter(|rule| rule.name.is_name()).map(|rule| rule.name.to_string()).collect();
        let is_there = |name: &String| self.losses.names().any(|there| there == name);
        let absent = named.iter().filter(|name| !self.ports.contains_key(*name) && !is_there(name));
        lacking
            .chain(failed.map(|(name, why)| because(name, why)))
            .chain(absent.map(|name| because(name, "there is no interface of this name in this network namespace")))
            .collect()
    }

    pub(super) fn status(&self) -> Status {
        let now = self.now();
        let cpu = |(cpu, (busy, share)): (usize, &(Duration, f64))| CpuLoad {
            cpu: cpu as u32,
            busy_ns: busy.as_nanos() as u64,
            busy: *share,
        };
        let online: rig_sys::cpu::CpuSet = self.online.trim().parse().unwrap_or_default();
        Status {
            process: std::process::id(),
            uptime_ms: now.as_millis() as u64,
            at_ns: self.reading.at,
            interfaces: self.ports.values().map(|port| port.status(now)).collect(),
            waiting: self.not_taken(),
            cpus: self.busy.iter().enumerate().map(cpu).filter(|load| online.contains(load.cpu)).collect(),
            own: SpreaderUsage {
                cpu_ns: own_cpu_ns(),
                looks: self.own.looks,
                longest_look_ns: self.own.longest.as_nanos() as u64,
                share: self.own.share,
            },
        }
    }
}

impl Service for Engine {
    type Request = Request;
    type Reply = Reply;

    const WATCHES: Option<KernelEventFilter> = Some(KernelEventFilter {
        what: "links",
        concerns: |change| !matches!(change, Change::Neighbor { .. } | Change::Route { .. }),
    });

    fn introduction(&self) -> String {
        introduction(self)
    }

    fn answer(&mut self, request: Request, replies: Replies<Reply>) -> ControlFlow<Replies<Reply>> {
        match request {
            Request::Status => replies.answer(Reply::Status(Box::new(self.status()))),
            Request::Events { after } => replies.answer(Reply::Events(self.log.after(after))),
            Request::Set { interface, changes } => {
                self.next = Instant::now();
                replies.finish(self.set(&interface, &changes).map(Reply::Done).map_err(refusal));
            }
            Request::Stop => return ControlFlow::Break(replies),
        }
        ControlFlow::Continue(())
    }

    fn reload(&mut self, settings: Option<&str>) -> std::result::Result<Vec<String>, Refusal> {
        self.read_again(settings).map_err(refusal)
    }

    fn due(&self) -> Instant {
        self.next
    }

    fn tick(&mut self) {
        let begun = Instant::now();
        if begun >= self.next_losses {
            self.losses.read(&self.net);
            self.next_losses = begun + LOSSES;
        }
        self.look();
        self.losses.used();
        if begun >= self.next_second {
            self.second(begun.duration_since(self.next_second) + SECOND);
            self.next_second = begun + SECOND;
        }
        self.own.looks += 1;
        self.own.longest = self.own.longest.max(begun.elapsed());
        self.next = begun + self.pace();
    }

    fn changed(&mut self) {
        self.find();
        self.configure(|port| port.has_another_receiver());
    }

    fn metrics(&mut self) -> Result<String> {
        Ok(metrics::render(&self.status()))
    }

    fn counters(&mut self) -> Result<Counters> {
        Ok(counters(&self.status()))
    }

    fn stop(mut self, end: End<Reply>) -> std::result::Result<Exit, Failure> {
        // All interfaces are left as they were.
        self.ports.clear();
        let failed = self.kept.give_back_all();
        failed.iter().for_each(|line| error!("{line}"));
        if let End::Request(replies) = end {
            replies.answer(Reply::Done(vec!["the spreader has ended".into()]));
        }
        Ok(if failed.is_empty() { Exit::Done } else { Exit::Failed })
    }
}

/// What is counted of it in `status`.
fn counters(status: &Status) -> Counters {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    let mut add = |name: String, count: u64| *counts.entry(name).or_default() += count;
    let mut dropped = 0;
    for interface in &status.interfaces {
        // Where there are several, each has entries of its own.
        let own = if status.interfaces.len() > 1 { format!("{}_", interface.name) } else { String::new() };
        for cpu in &interface.cpus {
            add(format!("cpu{}_packets", cpu.cpu), cpu.packets);
            add(format!("cpu{}_processing_ns", cpu.cpu), cpu.processing_ns);
            add(format!("cpu{}_distributing_ns", cpu.cpu), cpu.distributing_ns);
        }
        for entry in &interface.entries {
            add(format!("{own}entry{}_packets", entry.entry), entry.packets);
        }
        add("received_packets".to_owned(), interface.received.packets);
        add("received_bytes".to_owned(), interface.received.bytes);
        add("moves".to_owned(), interface.moves.total.values().sum());
        add("moves_failed".to_owned(), interface.moves.failed);
        add("moves_undone".to_owned(), interface.moves.undone);
        dropped += interface.received.dropped;
    }
    for cpu in &status.cpus {
        add(format!("cpu{}_busy_ns", cpu.cpu), cpu.busy_ns);
    }
    add("own_cpu_ns".to_owned(), status.own.cpu_ns);
    Counters { counts, drops: vec![("at the interface".to_owned(), dropped)] }
}

/// Why no interface could be taken, for who starts it.
///
/// # Errors
/// Always.
pub(super) fn lacking(waiting: &BTreeMap<String, Vec<UnsupportedKind>>) -> Result<()> {
    let words = |(name, lacks): (&String, &Vec<UnsupportedKind>)| {
        let lacks: Vec<String> = lacks.iter().map(|lack| format!("{}: {}", lack.kind, lack.why)).collect();
        format!("{name}: {}", lacks.join("; "))
    };
    let all: Vec<String> = waiting.iter().map(words).collect();
    Err(anyhow::anyhow!("{}", all.join("\n  "))).context("no interface can be taken")
}
