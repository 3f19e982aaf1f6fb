//! What the policy remembers from one look to the next.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::average::DecayingMean;
use crate::effective::{Config, EffectiveSettings, in_order};
use crate::event::{Event, MoveReason, Situation};
use crate::nanos;
use crate::settings::Mode;

/// Serializable, so that a daemon that starts again goes on where it was, and a trace begins anywhere.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// The CPU of each entry.
    pub table: Vec<u32>,
    /// The CPU that packets reach first.
    pub base: u32,
    pub situation: Situation,
    pub entries: Vec<EntryState>,
    /// How long the load has to be low now until fewer CPUs are tried, in ns.
    #[serde(with = "nanos")]
    pub hold: Duration,
    /// Whether the CPUs that packets reach first process them; [`State::table`] is then where entries are put when
    /// threads poll them again.
    #[serde(default)]
    pub in_place: bool,
    #[serde(default)]
    pub(crate) polling: PollingState,
    pub(crate) cpus: Vec<CpuState>,
    pub(crate) costs: Costs,
    pub(crate) totals: Totals,
    pub(crate) times: Times,
    /// Moves of entries with traffic in the last minute: when, and how many.
    pub(crate) paid: Vec<(u64, u32)>,
    pub(crate) watch: Option<Watch>,
    /// What came of moves, which is measured for a second.
    #[serde(default)]
    pub(crate) effects: Vec<ExpectedLoad>,
    /// CPUs that nothing goes to, and since when, in ns.
    pub(crate) avoid: Vec<(u32, u64)>,
    /// Limits that were told of, and when (ns), so that none is repeated at every look.
    pub(crate) told: Vec<(Limit, u64)>,
    /// What was in force at the last look.
    pub(crate) in_force: Option<EffectiveSettings>,
    /// Told at the next look.
    pub(crate) untold: Vec<Event>,
    /// Where the base was before its last move, and when that was, in ns.
    pub(crate) base_before: Option<(u32, u64)>,
}

/// What is known of an entry.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct EntryState {
    /// Its last move; none since the state was made.
    pub last: Option<LastMove>,
    /// When the actuator last refused to move it, in ns.
    #[serde(with = "nanos::option")]
    pub refused: Option<Duration>,
    pub(crate) rate: DecayingMean,
    /// Load in fractions of the CPU that it is on: of tens of milliseconds, and of a second.
    pub(crate) load: DecayingMean,
    pub(crate) slow: DecayingMean,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LastMove {
    /// In ns, since the moment that all times count from.
    #[serde(with = "nanos")]
    pub at: Duration,
    pub from: u32,
    pub to: u32,
    pub why: MoveReason,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct CpuState {
    pub number: u32,
    /// Other work, as a fraction: of tenths of a second, and of seconds.
    pub other: DecayingMean,
    pub other_slow: DecayingMean,
    /// All work, of tens of milliseconds.
    pub busy: DecayingMean,
    /// Looks in a row at which it was hot.
    pub hot: u32,
    /// Packets per second that it polled, of a second.
    #[serde(default)]
    pub received: DecayingMean,
}

/// How queues are polled, and what is known of the other way; moments in ns.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct PollingState {
    /// The last switch.
    pub since: u64,
    pub refused: Option<u64>,
    /// A CPU is full, and others have room.
    pub uneven: Option<u64>,
    pub pressed: Option<SaturationCheck>,
    pub trial: Option<PollTrial>,
    /// What threads carry that came because a CPU was full.
    pub proof: Option<PollTrial>,
    /// How long threads stay at least.
    pub apart: u64,
    pub verdict: Option<PollVerdict>,
    /// How long the last verdict held.
    pub holds: u64,
}

impl PollingState {
    /// Whether nothing is about to change although all CPUs are full.
    fn is_settled(&self) -> bool {
        let counted = self.pressed.is_some_and(|pressed| pressed.time > 1.0);
        counted && self.trial.is_none() && self.uneven.is_none()
    }
}

/// All CPUs are full: since when, and what was carried after a while, in seconds and packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct SaturationCheck {
    pub since: u64,
    pub time: f64,
    pub packets: u64,
}

/// The other way of polling is tried: what was carried before, packets per second, and now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct PollTrial {
    pub begun: u64,
    pub before: f64,
    pub time: f64,
    pub packets: u64,
}

/// What a trial has shown, and until when that holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct PollVerdict {
    pub in_place: bool,
    pub until: u64,
    /// Packets per second that were carried.
    pub rate: f64,
}

/// Learned, in ns of CPU time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Costs {
    /// Of processing a packet, on each NUMA node where packets were processed.
    pub process: Vec<(u32, DecayingMean)>,
    /// Of distributing a packet.
    pub distribute: DecayingMean,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Totals {
    /// Packets per second processed, dropped; load of processing.
    pub processed: DecayingMean,
    pub lost: DecayingMean,
    pub load: DecayingMean,
    /// Packets per second, of tenths of a second, and no more than it takes to be no longer idle: what was before is soon
    /// forgotten.
    pub trickle: DecayingMean,
    /// The highest load in each second of the last `most_hold`: second, load.
    pub peaks: Vec<(u64, f64)>,
}

/// Moments and lengths of time that rules wait for, in ns.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Times {
    pub idle_since: Option<u64>,
    pub coalesce_after: u64,
    pub coalesced: Option<u64>,
    /// When fewer CPUs last proved too few.
    pub mistake: Option<u64>,
    pub tried: Option<u64>,
    pub uneven_since: Option<u64>,
    pub base_busy_since: Option<u64>,
    /// When something last happened: moves, a hot CPU, a change of load.
    pub active: u64,
    /// When no move could help first and last, of those that followed each other.
    pub stuck: Option<(u64, u64)>,
    pub looked: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Limit {
    Elephant(u32),
    Distribution,
    NoCpu,
    Budget,
}

/// The second after moves.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Watch {
    pub begun: u64,
    pub at: u64,
    pub moves: Vec<WatchedMove>,
    /// Before the moves, packets per second.
    pub processed: f64,
    pub lost: f64,
    /// All entries' rates together, of tens of milliseconds as those of the moves.
    pub rate: f64,
    /// Since the moves had time to settle.
    pub after: MoveAftermath,
    /// CPU, predicted load.
    pub predicted: Vec<(u32, f64)>,
    /// CPUs that had no entries before.
    pub new: Vec<u32>,
    pub coalescing: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct WatchedMove {
    pub entry: Option<u32>,
    pub from: u32,
    pub to: u32,
    /// Packets per second before.
    pub rate: f64,
    /// Packets since.
    pub packets: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct MoveAftermath {
    pub time: f64,
    pub packets: u64,
    pub lost: u64,
    pub looks: u32,
    /// Looks at which a target of moves was full.
    pub full: u32,
}

/// A CPU that moves went to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ExpectedLoad {
    pub cpu: u32,
    /// When the last of them was made.
    pub at: u64,
    /// The entries; none: the base.
    pub moves: Vec<Option<u32>>,
    pub predicted: f64,
    /// Seconds since they had time to settle, and busy ones of them.
    pub time: f64,
    pub busy: f64,
}

impl State {
    /// The state without a history: a static mode keeps it for good, Dynamic until the first load. The actuator is given
    /// [`State::table`] as a whole.
    pub fn new(config: &Config) -> Self {
        let effective = &config.effective;
        let entries = config.abilities.entries as usize;
        let mut state = Self::found(config, layout(config, effective.base, entries, &effective.cpus), effective.base);
        if effective.mode == Mode::Dynamic {
            state.situation = Situation::Parked;
        }
        state
    }

    /// With the placement that was found, a CPU for each entry: the first look moves what has to move.
    pub fn found(config: &Config, table: Vec<u32>, base: u32) -> Self {
        let dynamic = config.effective.mode == Mode::Dynamic;
        Self {
            entries: vec![EntryState::default(); table.len()],
            table,
            base,
            situation: if dynamic { Situation::Spread } else { Situation::Fixed },
            hold: config.tuning.hold.0,
            in_force: Some(config.effective.clone()),
            ..Self::default()
        }
    }

    /// An entry is on another CPU than in [`State::table`], because the actuator refused to have it there from the beginning.
    #[must_use]
    pub fn found_at(mut self, entry: u32, cpu: u32, now: Duration) -> Self {
        if let (Some(state), Some(at)) = (self.entries.get_mut(entry as usize), self.table.get_mut(entry as usize)) {
            state.refused = Some(now);
            self.untold.push(Event::Refused { entry: Some(entry), at: cpu, asked: *at });
            *at = cpu;
        }
        self
    }

    /// Puts back the last move of an entry (none: of the base), which the actuator refused. Nothing happens if it was
    /// never moved. It is told of at the next look, and not tried again for the time of
    /// [`Tuning::retry`](crate::Tuning::retry), unless its CPU is gone.
    #[must_use]
    pub fn failed(mut self, entry: Option<u32>) -> Self {
        let Some(index) = entry.map(|entry| entry as usize) else {
            if let Some((from, at)) = self.base_before.take() {
                self.untold.push(Event::Refused { entry, at: from, asked: self.base });
                self.avoid.push((self.base, at));
                self.base = from;
            }
            self.unexpect(entry, 0.0);
            return self;
        };
        if let (Some(state), Some(cpu)) = (self.entries.get_mut(index), self.table.get_mut(index))
            && let Some(last) = state.last.take()
        {
            state.refused = Some(last.at);
            *cpu = last.from;
            self.untold.push(Event::Refused { entry, at: last.from, asked: last.to });
            let load = state.load.get();
            if let Some(watch) = &mut self.watch {
                watch.moves.retain(|watched| watched.entry != entry);
            }
            self.unexpect(entry, load);
        }
        self
    }

    /// Queues are polled as before, because the actuator refused to have it otherwise. It is not asked again for 10 s.
    #[must_use]
    pub fn polled_as_before(mut self, in_place: bool, now: Duration) -> Self {
        self.in_place = in_place;
        let holds = self.polling.holds;
        self.polling =
            PollingState { since: nanos::of(now), refused: Some(nanos::of(now)), holds, ..PollingState::default() };
        self
    }

    /// A move was not made after all.
    fn unexpect(&mut self, entry: Option<u32>, load: f64) {
        let last = self.times.looked;
        for effect in self.effects.iter_mut().filter(|effect| effect.at == last) {
            let before = effect.moves.len();
            effect.moves.retain(|moved| *moved != entry);
            if effect.moves.len() < before {
                effect.predicted -= load;
            }
        }
        self.effects.retain(|effect| !effect.moves.is_empty());
    }

    /// After which time to look again: seldom when nothing is about to change, which keeps the price of looking low. While
    /// it is [parked](Situation::Parked) and the interface's own counter of packets has not moved, an observation without
    /// entries and CPUs will do.
    pub fn next_look(&self, config: &Config) -> Duration {
        let quiet = self.times.looked.saturating_sub(self.times.active);
        let millis = match self.situation {
            _ if config.effective.mode != Mode::Dynamic => 1000,
            Situation::Parked => 20,
            // All CPUs are full, and how to poll has been decided.
            _ if self.in_place && self.polling.is_settled() => 50,
            _ if quiet < nanos::of(Duration::from_secs(2)) => 10,
            _ if quiet < nanos::of(Duration::from_secs(5)) => 50,
            _ => 100,
        };
        Duration::from_millis(millis)
    }

    /// Distinct CPUs that entries are on.
    pub fn cpus(&self) -> BTreeSet<u32> {
        self.table.iter().copied().collect()
    }

    /// Packets per second of an entry, of the last tens of milliseconds.
    pub fn rate(&self, entry: u32) -> f64 {
        self.entries.get(entry as usize).map_or(0.0, |entry| entry.rate.get())
    }

    /// Load of an entry over the last second, as a fraction of the CPU that it is on.
    pub fn load(&self, entry: u32) -> f64 {
        self.entries.get(entry as usize).map_or(0.0, |entry| entry.slow.get())
    }

    /// What distributing a packet was learned to cost; none: not seen yet.
    pub fn distribute_cost(&self) -> Option<Duration> {
        self.costs.distribute.known().map(|nanos| Duration::from_secs_f64(nanos.max(0.0) / 1e9))
    }

    /// What processing a packet was learned to cost, for each NUMA node where packets were processed.
    pub fn process_costs(&self) -> Vec<(u32, Duration)> {
        let cost = |(node, cost): &(u32, DecayingMean)| (*node, Duration::from_secs_f64(cost.get().max(0.0) / 1e9));
        self.costs.process.iter().map(cost).collect()
    }

    /// Moves of entries with traffic in the minute before the last look.
    pub fn moves_last_minute(&self) -> u32 {
        self.paid.iter().map(|(_, count)| count).sum()
    }
}

/// The placement without load: everything on the base, or spread. `cpus` are those to be used, best first.
pub(crate) fn layout(config: &Config, base: u32, entries: usize, cpus: &[u32]) -> Vec<u32> {
    let effective = &config.effective;
    if effective.mode == Mode::StaticVmq {
        return vec![base; entries];
    }
    let most = effective.max_queue_pairs as usize;
    let width = match effective.mode {
        Mode::Dynamic => most.min(config.tuning.park_cpus.max(effective.min_queue_pairs) as usize),
        _ => most,
    };
    let first = effective.static_first.filter(|_| effective.mode == Mode::StaticVrss).unwrap_or(base);
    let order =
        if first == base { cpus.to_vec() } else { in_order(&config.machine, &cpus.iter().copied().collect(), first) };
    let begin = std::iter::once(first).filter(|first| cpus.contains(first));
    let all = begin.chain(order.into_iter().filter(|cpu| *cpu != first));
    let allowed = all.filter(|cpu| *cpu != base || !effective.exclude_primary);
    let used: Vec<u32> = allowed.take(width.max(1)).collect();
    (0..entries).map(|entry| used.get(entry % used.len().max(1)).copied().unwrap_or(base)).collect()
}
