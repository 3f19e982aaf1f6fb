//! What a trial's record tells of a receive spreader, by phase.

use std::ops::Range;

use rig_facts::programme::ScenarioLoad;
use rig_facts::record::{AgentRecord, CommandRecord, InterfaceDelta, PhaseRecord, TrialRecord};
use rig_load::record::{Direction, WorkerRecord};
use rig_spread::Tuning;
use rig_spread::history::History;
use rig_stats::series::Track;
use serde_json::Value;

use super::SPREADER;

/// The share of the packets of a stretch of time that a CPU has to process to count as engaged.
const ENGAGED: f64 = 0.01;
/// Points of a chart over time.
const BINS: u64 = 300;

/// A trial with a spreader at work.
#[derive(Debug)]
pub struct SpreaderTrial<'a> {
    trial: &'a TrialRecord,
    agent: &'a AgentRecord,
    track: &'a Track,
    pub history: History,
    pub tuning: Tuning,
    /// When the series begins, on the clock that all moments are of.
    begin_ns: u64,
}

/// A stretch of time, nanoseconds.
pub type Time = Range<u64>;

impl<'a> SpreaderTrial<'a> {
    /// None where the trial has no spreader, or nothing was counted over time.
    pub fn of(trial: &'a TrialRecord) -> Option<Self> {
        let at = trial.agents.iter().position(|agent| agent.name == SPREADER)?;
        let series = trial.series.as_ref()?;
        let (agent, track) = (trial.agents.get(at)?, series.agents.get(at)?);
        let histories: Vec<History> = serde_json::from_value(agent.state.more.get("histories")?.clone()).ok()?;
        let tuning = agent.settings.get("tuning").cloned().unwrap_or_default();
        Some(Self {
            trial,
            agent,
            track,
            history: histories.into_iter().next()?,
            tuning: serde_json::from_value(tuning).unwrap_or_default(),
            begin_ns: series.begin_ns,
        })
    }

    pub fn trial(&self) -> &TrialRecord {
        self.trial
    }

    /// The CPUs that may be used.
    pub fn cpus(&self) -> &[u32] {
        &self.agent.cpus
    }

    /// Of all the window.
    pub fn total(&self, counter: &str) -> u64 {
        self.agent.counters.counts.get(counter).copied().unwrap_or(0)
    }

    /// Packets that the node's interface received, as the kernel counts them.
    pub fn received(&self) -> u64 {
        self.interface().map_or(0, |interface| interface.rx_packets)
    }

    pub fn received_bytes(&self) -> u64 {
        self.interface().map_or(0, |interface| interface.rx_bytes)
    }

    fn interface(&self) -> Option<&InterfaceDelta> {
        let node = self.trial.nodes.iter().find(|node| node.name == self.agent.node)?;
        let own = format!("{}:{}", self.agent.node, self.history.interface);
        node.interfaces.iter().find(|interface| interface.name == own)
    }

    /// The status at the window's end.
    pub fn status(&self) -> Option<&Value> {
        self.agent.state.more.get("status")
    }

    pub fn phase(&self, name: &str) -> Option<&'a PhaseRecord> {
        self.trial.phases.iter().find(|phase| phase.name == name)
    }

    /// The whole of a phase.
    pub fn time(&self, phase: &str) -> Option<Time> {
        self.phase(phase).map(|phase| phase.begin_ns..phase.end_ns)
    }

    /// What the spreader was told when a phase began.
    pub fn told(&self, phase: &str, command: &str) -> Option<&'a CommandRecord> {
        let told = |one: &&CommandRecord| one.datapath == SPREADER && one.command == command;
        self.phase(phase)?.commands.iter().find(told)
    }

    /// How much a counter of the spreader rose in a stretch of time; intervals count as far as they are inside.
    pub fn count(&self, counter: &str, time: &Time) -> f64 {
        sum(self.track, counter, self.begin_ns, time)
    }

    /// Payload bits per second that arrived, of all loads.
    pub fn carried(&self, time: &Time) -> f64 {
        let Some(series) = &self.trial.series else { return 0.0 };
        let receivers = self.trial.workers.iter().zip(&series.workers);
        let of = |(worker, track): (&WorkerRecord, &Track)| match worker.direction {
            Direction::Receive => sum(track, "bytes", series.begin_ns, time),
            _ => 0.0,
        };
        receivers.map(of).sum::<f64>() * 8.0 / seconds(time)
    }

    /// Payload bits per second that were offered in a phase, where something was: each load has the rate that it was told
    /// last.
    pub fn offered(&self, phase: &str) -> Option<f64> {
        let at = self.trial.phases.iter().position(|one| one.name == phase)?;
        let told = |load: ScenarioLoad| {
            let rates = self.trial.phases[..=at].iter().rev().flat_map(|phase| &phase.rates);
            rates.into_iter().find(|rate| rate.load == load).map_or(0.0, |rate| rate.per_second)
        };
        let threads = |background: bool| {
            let sends = |worker: &&WorkerRecord| worker.direction == Direction::Send && worker.background == background;
            self.trial.workers.iter().filter(sends).map(|worker| worker.threads.len() as f64).sum::<f64>()
        };
        let offered = (told(ScenarioLoad::Own) * threads(false) + told(ScenarioLoad::Under) * threads(true)) * 8.0;
        (offered > 0.0).then_some(offered)
    }

    /// Share of one CPU that each of the CPUs spent on receiving: handing packets on, and processing them.
    pub fn receiving(&self, time: &Time) -> Vec<(u32, f64, f64)> {
        let share = |cpu: u32, what: &str| self.count(&format!("cpu{cpu}_{what}_ns"), time) / 1e9 / seconds(time);
        self.cpus().iter().map(|&cpu| (cpu, share(cpu, "distributing"), share(cpu, "processing"))).collect()
    }

    /// CPUs' worth of time spent on receiving.
    pub fn cores(&self, time: &Time) -> f64 {
        self.receiving(time).iter().map(|(_, distributing, processing)| distributing + processing).sum()
    }

    /// The CPUs that processed packets, but for the odd one.
    pub fn engaged(&self, time: &Time) -> Vec<u32> {
        let packets = |cpu: u32| self.count(&format!("cpu{cpu}_packets"), time);
        let all: f64 = self.cpus().iter().map(|&cpu| packets(cpu)).sum();
        self.cpus().iter().copied().filter(|&cpu| all > 0.0 && packets(cpu) >= ENGAGED * all).collect()
    }

    /// Packets of each entry.
    pub fn entries(&self, time: &Time) -> Vec<f64> {
        (0..self.history.table.len()).map(|entry| self.count(&format!("entry{entry}_packets"), time)).collect()
    }

    /// The window in equal parts for a chart, none shorter than what was sampled.
    fn bins(&self) -> Vec<Time> {
        let (from, to) = (self.trial.window_begin_ns, self.trial.window_end_ns);
        let shortest = self.trial.series.as_ref().map_or(1, |series| series.interval_us.max(1) * 1000);
        let length = (to.saturating_sub(from) / BINS).max(shortest);
        let count = to.saturating_sub(from) / length;
        (0..count).map(|at| from + at * length..from + (at + 1) * length).collect()
    }

    fn over_time(&self, value: impl Fn(&Time) -> f64) -> Vec<(f64, f64)> {
        let middle = |bin: &Time| f64::midpoint(self.second(bin.start), self.second(bin.end));
        self.bins().iter().map(|bin| (middle(bin), value(bin))).collect()
    }

    /// A moment in seconds from the window's begin.
    pub fn second(&self, at_ns: u64) -> f64 {
        (at_ns as f64 - self.trial.window_begin_ns as f64) / 1e9
    }

    /// How many CPUs were engaged, by seconds from the window's begin.
    pub fn engaged_over_time(&self) -> Vec<(f64, f64)> {
        self.over_time(|bin| self.engaged(bin).len() as f64)
    }

    /// CPUs' worth of time spent on receiving.
    pub fn cores_over_time(&self) -> Vec<(f64, f64)> {
        self.over_time(|bin| self.cores(bin))
    }

    /// What arrived, bits per second.
    pub fn carried_over_time(&self) -> Vec<(f64, f64)> {
        self.over_time(|bin| self.carried(bin))
    }
}

/// The part of a stretch of time from a moment after its begin on, as far as there is so much.
pub fn from(time: &Time, after_ns: u64) -> Time {
    (time.start + after_ns).min(time.end)..time.end
}

/// The phase without its edges, where an interval of the series may also hold a part of the neighbouring phase.
pub fn inner(time: &Time) -> Time {
    const EDGE_NS: u64 = 100_000_000;
    (time.start + EDGE_NS).min(time.end)..time.end.saturating_sub(EDGE_NS).max(time.start)
}

/// Its last part.
pub fn last(time: &Time, length_ns: u64) -> Time {
    time.end.saturating_sub(length_ns).max(time.start)..time.end
}

pub fn seconds(time: &Time) -> f64 {
    (time.end.saturating_sub(time.start) as f64 / 1e9).max(1e-9)
}

fn sum(track: &Track, column: &str, begin_ns: u64, time: &Time) -> f64 {
    let (from, to) = [time.start, time.end].map(|at| (at as f64 - begin_ns as f64) / 1e9).into();
    let values = track.intervals().zip(track.column(column));
    let inside = |interval: &Range<f64>| {
        let length = interval.end - interval.start;
        let common = interval.end.min(to) - interval.start.max(from);
        if length > 0.0 { (common / length).clamp(0.0, 1.0) } else { 0.0 }
    };
    values.map(|(interval, value)| value as f64 * inside(&interval)).sum()
}
