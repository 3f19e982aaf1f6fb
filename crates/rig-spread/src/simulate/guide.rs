//! The activities of Microsoft's validation guide for dynamic vRSS, with costs and loads that are given.
//!
//! Costs are measured where there are few CPUs; this says what they come to where there are many. How far it is out is seen
//! where the same activities are carried out for real, on 2 CPUs for example: [`errors`].

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::rules::Rule;
use super::run::{Phase, Sample, SimulationResult, run};
use super::scenario::{Change, Costs, FLOWS, Flow, Port, Scenario, able, flows};
use super::scenarios::{FULL, GUIDE_SEED, LOW, MIDDLE};
use crate::settings::{Mode, Settings};

/// Bits per second that one CPU of the guide's machine processes, and that one distributes: its figure for full load.
const PROCESSED: f64 = 7.46e9;
const DISTRIBUTED: f64 = 21.1e9;

/// What is offered at one time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Load {
    /// Packets per second, of all flows together.
    pub rate: f64,
    /// Share of each CPU that other work takes, by its number; those left out have none. Senders and receivers are other work
    /// where they are on the machine itself.
    pub other: Vec<f64>,
}

impl From<f64> for Load {
    fn from(rate: f64) -> Self {
        Self { rate, other: Vec::new() }
    }
}

/// What is offered.
#[derive(Debug, Clone, PartialEq)]
pub struct Loads {
    /// One transfer, which one CPU can process.
    pub low: Load,
    /// Both transfers.
    pub middle: Load,
    /// As much as goes, or more.
    pub full: Load,
    /// Each has the same part of a load; its `rate` is not used.
    pub flows: Vec<Flow>,
}

impl Loads {
    /// In packets per second, from elsewhere, in flows like the guide's: 64 transfers that adapt, 11 of them on the base where
    /// 16 entries are spread over eight CPUs.
    pub fn new(low: f64, middle: f64, full: f64) -> Self {
        Self { low: low.into(), middle: middle.into(), full: full.into(), flows: flows(FLOWS, GUIDE_SEED) }
    }

    /// The guide's loads for other costs: one transfer takes as much of a CPU as there, two as well, and at full load so many
    /// times what can be carried is offered. With the guide's costs: 5.5, 10.3 and, from 3 CPUs on, 40 Gbit/s.
    pub fn like_the_guides(costs: &Costs, cpus: u32) -> Self {
        let processed = 1e9 / costs.process;
        let distributed = if costs.distribute > 0.0 { 1e9 / costs.distribute } else { f64::INFINITY };
        let possible = distributed.min(processed * f64::from(cpus)).min(costs.link_packets());
        Self::new(LOW / PROCESSED * processed, MIDDLE / PROCESSED * processed, FULL / DISTRIBUTED * possible)
    }
}

/// In the guide's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Name {
    StaticLow,
    StaticFull,
    /// From a static spread, at low load.
    Coalescing,
    SecondLoad,
    Idle,
    BurstFromParked,
    /// Not in the guide: what parking is worth.
    BurstFromCoalesced,
}

impl Name {
    pub const ALL: [Self; 7] = [
        Self::StaticLow,
        Self::StaticFull,
        Self::Coalescing,
        Self::SecondLoad,
        Self::Idle,
        Self::BurstFromParked,
        Self::BurstFromCoalesced,
    ];

    pub fn title(self) -> &'static str {
        match self {
            Self::StaticLow => "static, low",
            Self::StaticFull => "static, full",
            Self::Coalescing => "coalescing",
            Self::SecondLoad => "second load",
            Self::Idle => "idle",
            Self::BurstFromParked => "burst, parked",
            Self::BurstFromCoalesced => "burst, coalesced",
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.title())
    }
}

/// An activity as the simulator has it. Where nothing else is said, means of its last half.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Activity {
    pub name: Name,
    pub mode: Mode,
    /// Packets per second.
    pub offered_pps: f64,
    pub carried_pps: f64,
    /// CPUs with work for packets.
    pub cpus: f64,
    /// CPUs' worth of distributing and processing.
    pub cpu_time: f64,
    /// Load of the CPU that had most to do, other work included.
    pub highest: f64,
    /// CPUs that entries are on at its end; a base that only distributes is not among them.
    pub placed: u32,
    /// From its beginning until this number was what it stayed at, in ms; none: it changed in the last half.
    pub settled_ms: Option<u64>,
    /// From its beginning to 95 % of what was carried in its last second, in ms; none where the load did not grow.
    pub t95_ms: Option<u64>,
    /// Moves of entries, and those in the last half.
    pub moves: u64,
    pub late_moves: u64,
}

/// How long a load is offered, and what for.
struct LoadPhase<'a> {
    /// None: it prepares the next.
    name: Option<Name>,
    mode: Mode,
    load: &'a Load,
    seconds: u64,
}

/// All activities, in the order of [`Name::ALL`], on a machine of so many CPUs, at least 2, whose packets fall into so many
/// entries, at least 2. Static spreads are of at most eight CPUs, as the guide's; of the dynamic mode only what
/// [`Settings`] limits by itself. Deterministic. Costs have been checked.
pub fn activities(cpus: u32, entries: u32, costs: &Costs, loads: &Loads) -> Vec<Activity> {
    let nothing = Load::default();
    let part = |name, mode, load, seconds| LoadPhase { name, mode, load, seconds };
    let fixed = [
        part(Some(Name::StaticLow), Mode::StaticVrss, &loads.low, 20),
        part(Some(Name::StaticFull), Mode::StaticVrss, &loads.full, 20),
    ];
    // Each is as long as the longest hold allows for, and half as much again.
    let dynamic = [
        part(None, Mode::StaticVrss, &loads.low, 10),
        part(Some(Name::Coalescing), Mode::Dynamic, &loads.low, 90),
        part(Some(Name::SecondLoad), Mode::Dynamic, &loads.middle, 90),
        part(Some(Name::Idle), Mode::Dynamic, &nothing, 10),
        part(Some(Name::BurstFromParked), Mode::Dynamic, &loads.full, 90),
        part(None, Mode::Dynamic, &loads.low, 90),
        part(Some(Name::BurstFromCoalesced), Mode::Dynamic, &loads.full, 90),
    ];
    let machine = |title| {
        let port = Port {
            abilities: able(entries, costs.distribute > 0.0),
            settings: Settings::default(),
            flows: loads.flows.clone(),
        };
        Scenario { costs: *costs, ports: vec![port], ..Scenario::new("guide", title, cpus) }
    };
    let mut found = carry_out(machine("static activities"), Rule::StaticVrss, &fixed);
    found.extend(carry_out(machine("dynamic activities"), Rule::Dynamic, &dynamic));
    found
}

fn carry_out(mut scenario: Scenario, rule: Rule, parts: &[LoadPhase<'_>]) -> Vec<Activity> {
    let flows = scenario.ports[0].flows.len().max(1) as f64;
    let numbers: Vec<u32> = scenario.machine.cpus.iter().map(|cpu| cpu.number).collect();
    for part in parts {
        let at = scenario.length;
        // A load begins a phase, also where it is the same as before.
        scenario = scenario.with(at, Change::Rate { port: 0, rate: part.load.rate / flows });
        scenario = scenario.with(at, Change::Mode { port: 0, mode: part.mode });
        for (place, cpu) in numbers.iter().enumerate() {
            let load = part.load.other.get(place).copied().unwrap_or(0.0);
            scenario = scenario.with(at, Change::Other { cpu: *cpu, load });
        }
        scenario.length += u64::try_from(Duration::from_secs(part.seconds).as_millis()).unwrap_or(u64::MAX);
    }
    let outcome = run(&scenario, rule);
    let mut before = 0.0;
    let mut found = Vec::new();
    for (part, phase) in parts.iter().zip(&outcome.phases) {
        let grown = part.load.rate > before;
        before = part.load.rate;
        if let Some(name) = part.name {
            found.push(of(name, part, phase, grown, &scenario.costs, &outcome));
        }
    }
    found
}

fn of(
    name: Name,
    part: &LoadPhase<'_>,
    phase: &Phase,
    grown: bool,
    costs: &Costs,
    outcome: &SimulationResult,
) -> Activity {
    let Phase { from, to, .. } = *phase;
    let half = from + (to - from) / 2;
    let late: Vec<&Sample> = outcome.samples.iter().filter(|sample| sample.at > half && sample.at <= to).collect();
    let mean = |value: fn(&Sample) -> f64| late.iter().map(|sample| value(sample)).sum::<f64>() / late.len() as f64;
    // A look at the end of a step is at the beginning of the next.
    let moves = |after: u64| outcome.moved.iter().filter(|(at, _)| *at > after && *at <= to).count() as u64;
    let placed = outcome.placed.iter().rfind(|(at, _)| *at < to);
    let settled = placed.map_or(0, |(at, _)| at.saturating_sub(from));
    Activity {
        name,
        mode: part.mode,
        offered_pps: part.load.rate,
        carried_pps: costs.packets(mean(|sample| sample.bits)),
        cpus: mean(|sample| sample.cpus),
        cpu_time: mean(|sample| sample.work),
        highest: mean(|sample| sample.highest),
        placed: placed.map_or(0, |(_, placed)| *placed),
        settled_ms: (from + settled < half).then_some(settled),
        t95_ms: phase.t95.filter(|_| grown),
        moves: moves(from),
        late_moves: moves(half),
    }
}

/// What was measured of an activity that was carried out, in the terms of [`Activity`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct MeasuredActivity {
    pub name: Name,
    pub carried_pps: f64,
    pub cpus: f64,
    pub cpu_time: f64,
}

/// What was simulated less what was measured, as a fraction of what was measured. Nil where both are nil, none where only
/// what was measured is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Errors {
    pub name: Name,
    pub carried: Option<f64>,
    pub cpus: Option<f64>,
    pub cpu_time: Option<f64>,
}

/// The errors of each activity that was both simulated and measured, in the order of `simulated`.
pub fn errors(simulated: &[Activity], measured: &[MeasuredActivity]) -> Vec<Errors> {
    let pairs = simulated.iter().filter_map(|one| Some((one, measured.iter().find(|other| other.name == one.name)?)));
    pairs
        .map(|(simulated, measured)| Errors {
            name: simulated.name,
            carried: relative(simulated.carried_pps, measured.carried_pps),
            cpus: relative(simulated.cpus, measured.cpus),
            cpu_time: relative(simulated.cpu_time, measured.cpu_time),
        })
        .collect()
}

fn relative(simulated: f64, measured: f64) -> Option<f64> {
    let error = if simulated == measured { 0.0 } else { (simulated - measured) / measured };
    error.is_finite().then_some(error)
}

/// The activities on machines of one kind and several sizes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    pub costs: Costs,
    pub entries: u32,
    pub machines: Vec<Simulated>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Simulated {
    pub cpus: u32,
    pub activities: Vec<Activity>,
}

/// With loads like the guide's.
pub fn report(cpus: &[u32], entries: u32, costs: &Costs) -> Report {
    let of = |&cpus: &u32| {
        let loads = Loads::like_the_guides(costs, cpus);
        Simulated { cpus, activities: activities(cpus, entries, costs, &loads) }
    };
    Report { costs: *costs, entries, machines: cpus.iter().map(of).collect() }
}

/// A table of at most 80 columns.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let costs = &self.costs;
        let gbits = |packets: f64| costs.bits(packets) / 1e9;
        let time = |what, ns: f64| match ns {
            ns if ns > 0.0 => format!("{what} takes {ns:.0} ns, so that a CPU does {:.2} Gbit/s", gbits(1e9 / ns)),
            _ => format!("{what} takes no CPU time"),
        };
        writeln!(f, "packets of {} bytes, in {} entries", costs.packet_bytes, self.entries)?;
        writeln!(f, "{}", time("processing one", costs.process))?;
        writeln!(f, "{}", time("distributing one", costs.distribute))?;
        if costs.wake > 0.0 {
            writeln!(f, "waking an idle CPU takes {:.0} ns", costs.wake)?;
        }
        if let Some(link) = costs.link {
            writeln!(f, "behind a link of {:.2} Gbit/s", link / 1e9)?;
        }
        for machine in &self.machines {
            writeln!(f, "\n{} CPUs", machine.cpus)?;
            writeln!(
                f,
                "  {:<16} {:>6} {:>7} {:>5} {:>5} {:>4} {:>4} {:>7} {:>5} {:>5} {:>4}",
                "Gbit/s", "asked", "carried", "CPUs", "time", "high", "on", "settled", "t95", "moves", "late"
            )?;
            for one in &machine.activities {
                writeln!(
                    f,
                    "  {:<16} {:>6.2} {:>7.2} {:>5.2} {:>5.2} {:>3.0}% {:>4} {:>7} {:>5} {:>5} {:>4}",
                    one.name.title(),
                    gbits(one.offered_pps),
                    gbits(one.carried_pps),
                    one.cpus,
                    one.cpu_time,
                    one.highest * 100.0,
                    one.placed,
                    one.settled_ms.map_or("never".to_owned(), seconds),
                    one.t95_ms.map_or("-".to_owned(), seconds),
                    one.moves,
                    one.late_moves,
                )?;
            }
            let of = |name| machine.activities.iter().find(|one| one.name == name);
            if let [Some(low), Some(full), Some(coalesced), Some(burst)] =
                [Name::StaticLow, Name::StaticFull, Name::Coalescing, Name::BurstFromParked].map(of)
            {
                writeln!(
                    f,
                    "  dynamic to static: full load carried {:.2} x, CPU time a bit at low load {:.2} x",
                    burst.carried_pps / full.carried_pps,
                    (coalesced.cpu_time / coalesced.carried_pps) / (low.cpu_time / low.carried_pps)
                )?;
            }
        }
        Ok(())
    }
}

fn seconds(ms: u64) -> String {
    format!("{:.2}s", ms as f64 / 1000.0)
}
