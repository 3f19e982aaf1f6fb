//! From samples to CPU time with intervals.

use rig_stats::blocks::Contrast;
use rig_stats::compare::Resampling;
use rig_stats::confidence::{Interval, Level};
use rig_stats::sample::{Range, Sample};
use rig_sys::perf::Clock;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::map::UNKNOWN_NUMBER;
use super::{CpuTimeOwner, Kind, LayersRecord, UNKNOWN, total};
use crate::record::{Accounting, CpuUse, TrialRecord};

/// The layer of the kernel's way into interrupts.
const INTERRUPTS: &str = "interrupts";
/// How far the busy time by samples may be from what was counted: percent of the CPUs' time, and a share of it.
const APART_POINTS: f64 = 3.0;
const APART_SHARE: f64 = 0.15;

/// What an end of a scenario spent, by layer. The parts add up to the total.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LayersData {
    pub end: CpuTimeOwner,
    /// Of all values: `us/KB`, `us/Tr`, `us/connection` or `us/packet`.
    pub unit: String,
    /// Tells the map from functions to layers.
    pub map: String,
    /// What said when a sample was due: `cycles` or `cpu-clock`. Null of older versions, which had the latter, and where trials differ.
    #[serde(default)]
    #[schemars(with = "Option<String>", extend("enum" = ["cycles", "cpu-clock", null]))]
    pub clock: Option<Clock>,
    /// Samples of CPUs that were not idle, in all trials together.
    pub samples: u64,
    /// CPU time without a layer, of the total.
    pub unknown_percent: f64,
    /// Trials in which the kernel's timer found the CPUs busy for clearly more or less time than was counted: their parts may
    /// be off. Cycles do not tell: how many a second has changes with the CPU's frequency.
    #[serde(default)]
    pub misplaced_trials: u32,
    /// Functions in which those ended, with samples, most first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown_functions: Vec<(String, u64)>,
    /// CPU time as it was counted in the measured windows of the trials that have samples, mean and confidence interval.
    pub total: f64,
    /// Null for a single trial.
    pub total_low: Option<f64>,
    pub total_high: Option<f64>,
    /// One for each trial that has samples, in order.
    pub totals: Vec<f64>,
    /// The trials' numbers, in the same order.
    pub trials: Vec<u32>,
    /// The blocks that they were made in, in the same order; empty where trials were not made in blocks, and of older versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocks: Vec<u32>,
    /// The same mean in the windows in which samples were taken, which cost CPU time themselves.
    pub sampled_total: Option<f64>,
    /// In the order of the map, without layers that no sample was in.
    pub parts: Vec<LayerPart>,
}

/// One layer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LayerPart {
    pub layer: String,
    pub title: String,
    pub samples: u64,
    /// Of the total: the Hodges-Lehmann estimate of the trials' shares, such that those of all layers add up to 100.
    pub percent: f64,
    /// The confidence interval of the share; null of older versions.
    #[serde(default)]
    pub percent_low: Option<f64>,
    #[serde(default)]
    pub percent_high: Option<f64>,
    /// The share of the total.
    pub mean: f64,
    /// The confidence interval. Of a single trial, that of the samples alone.
    pub low: f64,
    pub high: f64,
    /// One for each trial that has samples, in order.
    pub values: Vec<f64>,
    /// The same where shared work (copies, memory, locks) counts to the layer that called for it.
    pub with_called: f64,
}

/// How the trials of two sets belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pairing {
    /// Both sets are of one run, and belong together by block: trials of a block were made one after the other.
    Blocks,
    /// The sets are of two runs.
    None,
}

/// What one set of trials spent more than another, by layer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LayerDifferences {
    pub end: CpuTimeOwner,
    pub unit: String,
    /// Whether both were divided by the same map from functions to layers.
    pub same_map: bool,
    /// Whether the same said when samples were due, as far as it is known.
    #[serde(default = "yes")]
    pub same_clock: bool,
    pub total: LayerDifference,
    pub parts: Vec<LayerDifference>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LayerDifference {
    pub layer: String,
    pub title: String,
    pub old: f64,
    pub new: f64,
    /// New less old.
    pub difference: f64,
    /// The confidence interval; null where there is none, of totals of single trials.
    pub low: Option<f64>,
    pub high: Option<f64>,
}

fn yes() -> bool {
    true
}

impl LayerDifference {
    /// Whether the interval tells that there is one.
    pub fn is_sure(&self) -> bool {
        self.low.is_some_and(|low| low > 0.0) || self.high.is_some_and(|high| high < 0.0)
    }

    /// Whether an interval of `level` also does so as one of `all`: with Bonferroni's correction, by the quantiles of the normal
    /// distribution.
    pub fn is_sure_among(&self, all: usize, level: Level) -> bool {
        let wider = level.among(all).normal() / level.normal();
        let beyond =
            |end: Option<f64>| end.is_some_and(|end| self.difference.abs() > wider * (self.difference - end).abs());
        if self.difference > 0.0 { beyond(self.low) } else { beyond(self.high) }
    }
}

/// Both ends, and the device under test where there is one, as far as trials have samples.
pub fn of_scenario(trials: &[TrialRecord], level: Level) -> Vec<LayersData> {
    let all = CpuTimeOwner::ALL.into_iter().filter_map(|end| of_end(trials, end, level));
    let mut found: Vec<LayersData> = all.collect();
    // Where payload goes one way, the ends that connect and listen are the sender and the receiver under other names.
    if found.iter().any(|data| matches!(data.end, CpuTimeOwner::Sender | CpuTimeOwner::Receiver)) {
        found.retain(|data| !matches!(data.end, CpuTimeOwner::Local | CpuTimeOwner::Remote));
    }
    found
}

/// The samples of one trial's end.
struct TrialSamples {
    ordinal: u32,
    block: Option<u32>,
    /// As it was counted.
    total: f64,
    /// CPU time by layer: `own` by the innermost function's layer, `called` with shared work at the layer that called for it.
    own: Vec<f64>,
    called: Vec<f64>,
    /// By layer.
    samples: Vec<u64>,
    sampled_total: Option<f64>,
    /// Whether the sampling clock found the CPUs busy for another time than was counted.
    misplaced: bool,
}

impl TrialSamples {
    fn of(trial: &TrialRecord, layers: &LayersRecord, end: CpuTimeOwner) -> Option<Self> {
        let (total, _) = total(trial, end, layers.by_connection)?;
        let nodes = || trial.nodes.iter().filter(|node| end.is_of(trial, node));
        let sampled = || layers.nodes.iter().filter(|sampled| nodes().any(|node| node.name == sampled.node));
        let parts = || sampled().flat_map(|node| &node.parts);
        let mut samples = vec![0; layers.layers.len()];
        for part in parts() {
            *samples.get_mut(part.layer)? += part.samples;
        }
        let all: u64 = samples.iter().sum();
        if all == 0 {
            return None;
        }
        let (mut own, mut called) = (vec![0.0; samples.len()], vec![0.0; samples.len()]);
        let interrupts = layers.layers.iter().position(|(id, _)| id == INTERRUPTS);
        for (kind, share) in shares(nodes().flat_map(|node| &node.cpus), trial, end) {
            let of_kind = || parts().filter(|part| kind.is_none_or(|kind| part.kind == kind));
            let of_this: u64 = of_kind().map(|part| part.samples).sum();
            if of_this == 0 {
                // What runs with interrupts off is not seen by the sampling clock, and is theirs.
                let unseen = interrupts.filter(|_| kind != Some(Kind::Task)).unwrap_or(UNKNOWN_NUMBER);
                own[unseen] += share * total;
                called[unseen] += share * total;
            }
            for part in of_kind() {
                let value = share * total * part.samples as f64 / of_this as f64;
                own[part.layer] += value;
                *called.get_mut(part.caller)? += value;
            }
        }
        let sampled_total = layers.totals.iter().find(|(of, _)| *of == end).map(|(_, total)| *total);
        let seconds = layers.window_end_ns.saturating_sub(layers.window_begin_ns) as f64 / 1e9;
        let cpus: usize = sampled().map(|node| node.cpus.len()).sum();
        let by_samples = 100.0 * all as f64 / (seconds * f64::from(layers.hertz) * cpus as f64);
        let counted = sampled().map(|node| node.busy_percent * node.cpus.len() as f64).sum::<f64>() / cpus as f64;
        let misplaced =
            layers.clock != Some(Clock::Cycles) && (by_samples - counted).abs() > APART_POINTS + APART_SHARE * counted;
        Some(Self { ordinal: trial.ordinal, block: trial.block, total, own, called, samples, sampled_total, misplaced })
    }
}

/// The busy time of an end's CPUs by kind, as shares of it; one share of all where it is not known exactly.
fn shares<'a>(
    cpus: impl Iterator<Item = &'a CpuUse>,
    trial: &TrialRecord,
    end: CpuTimeOwner,
) -> Vec<(Option<Kind>, f64)> {
    let workers = trial.dut.as_ref().filter(|_| end == CpuTimeOwner::Dut).map(|dut| &dut.workers);
    let cpus: Vec<&CpuUse> = cpus.filter(|cpu| workers.is_none_or(|workers| workers.contains(&cpu.cpu))).collect();
    let of = |kind: Kind| -> f64 {
        let part = |cpu: &CpuUse| match kind {
            Kind::Task => cpu.user + cpu.system,
            Kind::Softirq => cpu.softirq,
            Kind::Interrupt => cpu.irq,
        };
        cpus.iter().map(|cpu| part(cpu)).sum()
    };
    let all: f64 = Kind::ALL.into_iter().map(of).sum();
    let by_kind = |cpu: &&CpuUse| cpu.accounting == Accounting::Exact && !cpu.irq_met_idle;
    let is_exact = all > 0.0 && cpus.iter().all(by_kind);
    if is_exact { Kind::ALL.into_iter().map(|kind| (Some(kind), of(kind) / all)).collect() } else { vec![(None, 1.0)] }
}

fn of_end(trials: &[TrialRecord], end: CpuTimeOwner, level: Level) -> Option<LayersData> {
    // Trials of one run have one map.
    let sampled = || trials.iter().filter_map(|trial| Some((trial, trial.layers.as_ref()?)));
    let (first, layers) = sampled().next()?;
    let (_, per) = total(first, end, layers.by_connection)?;
    let taken: Vec<TrialSamples> = sampled()
        .filter(|(_, own)| own.map == layers.map)
        .filter_map(|(trial, layers)| TrialSamples::of(trial, layers, end))
        .collect();
    let mean = |value: &dyn Fn(&TrialSamples) -> f64| taken.iter().map(value).sum::<f64>() / taken.len() as f64;
    let samples: u64 = taken.iter().flat_map(|one| &one.samples).sum();
    if samples == 0 {
        return None;
    }
    let whole = mean(&|one| one.total);
    let total_interval = level.mean_interval(&positive(taken.iter().map(|one| one.total)));
    let own_shares = shares_of(&taken, layers.layers.len(), |one| &one.own);
    let called_shares = shares_of(&taken, layers.layers.len(), |one| &one.called);
    let part = |(index, (id, title)): (usize, &(String, String))| {
        let values: Vec<f64> = taken.iter().map(|one| one.own[index]).collect();
        let called = taken.iter().map(|one| one.called[index]);
        if values.iter().copied().chain(called).all(|value| value <= 0.0) {
            return None;
        }
        let share = own_shares[index];
        let of_trials: Vec<f64> = taken.iter().map(|one| one.own[index] / one.total).collect();
        let (share_low, share_high) = interval(&of_trials, share, (samples, 1.0), level);
        let (low, high) = interval(&values, share * whole, (samples, whole), level);
        Some(LayerPart {
            layer: id.clone(),
            title: title.clone(),
            samples: taken.iter().map(|one| one.samples[index]).sum(),
            percent: 100.0 * share,
            percent_low: Some(100.0 * share_low),
            percent_high: Some(100.0 * share_high),
            mean: share * whole,
            low,
            high,
            values,
            with_called: called_shares[index] * whole,
        })
    };
    let mut parts: Vec<LayerPart> = layers.layers.iter().enumerate().filter_map(part).collect();
    // The unknown part comes last, however large it is.
    parts.sort_by_key(|part| part.layer == UNKNOWN);
    let unknown = parts.iter().find(|part| part.layer == UNKNOWN).map_or(0.0, |part| part.percent);
    let sampled_totals: Option<Vec<f64>> = taken.iter().map(|one| one.sampled_total).collect();
    let nodes = |record: &TrialRecord| -> Vec<String> {
        record.nodes.iter().filter(|node| end.is_of(record, node)).map(|node| node.name.clone()).collect()
    };
    let mut functions = std::collections::BTreeMap::<String, u64>::new();
    for (trial, layers) in sampled() {
        let own = nodes(trial);
        let unknown = layers.nodes.iter().filter(|node| own.contains(&node.node)).flat_map(|node| &node.unknown);
        unknown.for_each(|(name, count)| *functions.entry(name.clone()).or_default() += count);
    }
    let mut functions: Vec<(String, u64)> = functions.into_iter().collect();
    functions.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    functions.truncate(10);
    Some(LayersData {
        end,
        unit: per.unit().to_owned(),
        map: layers.map.clone(),
        clock: layers.clock.filter(|_| sampled().all(|(_, own)| own.clock == layers.clock)),
        samples,
        unknown_percent: unknown,
        misplaced_trials: taken.iter().filter(|one| one.misplaced).count() as u32,
        unknown_functions: functions,
        total: whole,
        total_low: total_interval.map(|interval| interval.low),
        total_high: total_interval.map(|interval| interval.high),
        totals: taken.iter().map(|one| one.total).collect(),
        trials: taken.iter().map(|one| one.ordinal).collect(),
        blocks: taken.iter().map(|one| one.block).collect::<Option<_>>().unwrap_or_default(),
        sampled_total: sampled_totals.map(|totals| totals.iter().sum::<f64>() / totals.len() as f64),
        parts,
    })
}

fn positive(values: impl IntoIterator<Item = f64>) -> Sample {
    let mut sample = Sample::within(Range { low: 0.0, high: f64::INFINITY });
    sample.extend(values);
    sample
}

/// The trials' shares by layer, put together such that a trial which something else disturbed moves them little: Hodges and
/// Lehmann's estimate of each, of which all together are made 1.
fn shares_of(taken: &[TrialSamples], layers: usize, parts: impl Fn(&TrialSamples) -> &[f64]) -> Vec<f64> {
    let centre = |layer: usize| {
        let shares = taken.iter().map(|one| parts(one)[layer] / one.total).collect();
        Contrast::of(shares).map_or(0.0, |shares| shares.centre())
    };
    let centres: Vec<f64> = (0..layers).map(centre).collect();
    let all: f64 = centres.iter().sum();
    centres.into_iter().map(|centre| if all > 0.0 { centre / all } else { 0.0 }).collect()
}

/// Where the centre of the trials' values lies, about the estimate of it, but never narrower than what the samples of the whole can
/// tell: few trials may agree by chance, or all have none.
fn interval(values: &[f64], estimate: f64, (samples, whole): (u64, f64), level: Level) -> (f64, f64) {
    let (low, high) = wilson(estimate / whole, samples, level);
    let (low, high) = ((low * whole).min(estimate), (high * whole).max(estimate));
    let Some((centre, trials)) = about(values, level) else { return (low, high) };
    let moved = estimate - centre;
    (low.min(trials.low + moved).max(0.0), high.max(trials.high + moved))
}

/// The centre of values, with its interval: `None` of a single one.
fn about(values: &[f64], level: Level) -> Option<(f64, Interval)> {
    let values = Contrast::of(values.to_vec())?;
    Some((values.centre(), values.interval(level, Resampling::default())?))
}

/// Wilson's score interval of a share (JASA 22 (1927), 209-212).
fn wilson(p: f64, samples: u64, level: Level) -> (f64, f64) {
    let (n, z) = (samples as f64, level.normal());
    let middle = p + z * z / (2.0 * n);
    let half = z * (p * (1.0 - p) / n + z * z / (4.0 * n * n)).sqrt();
    let whole = 1.0 + z * z / n;
    (((middle - half) / whole).max(0.0), ((middle + half) / whole).min(1.0))
}

/// What `new` spent more than `old`, by layer: layers of either, in the order of `new`'s map. `None` where they are of different
/// ends or in different units.
pub fn differences(old: &LayersData, new: &LayersData, pairing: Pairing, level: Level) -> Option<LayerDifferences> {
    if (old.end, &old.unit) != (new.end, &new.unit) {
        return None;
    }
    let pairs = match pairing {
        Pairing::Blocks => pairs(old, new),
        Pairing::None => None,
    };
    let none = |part: &LayerPart, of: &LayersData| {
        let values = vec![0.0; of.totals.len()];
        let (low, high) = interval(&values, 0.0, (of.samples, of.total), level);
        let percent = |value: f64| Some(100.0 * value / of.total);
        let (percent_low, percent_high) = (percent(low), percent(high));
        LayerPart {
            samples: 0,
            percent: 0.0,
            percent_low,
            percent_high,
            mean: 0.0,
            low,
            high,
            values,
            with_called: 0.0,
            ..part.clone()
        }
    };
    let of = |data: &LayersData, layer: &str| data.parts.iter().find(|part| part.layer == layer).cloned();
    let only_old = old.parts.iter().filter(|part| of(new, &part.layer).is_none());
    let mut parts: Vec<LayerDifference> = new
        .parts
        .iter()
        .chain(only_old)
        .map(|part| {
            let before = of(old, &part.layer).unwrap_or_else(|| none(part, old));
            let after = of(new, &part.layer).unwrap_or_else(|| none(part, new));
            let difference = after.mean - before.mean;
            let (low, high) = match &pairs {
                Some(pairs) => {
                    // By the samples alone, and by the blocks.
                    let by_samples = |part: &LayerPart, of: &LayersData| {
                        let (low, high) = wilson(part.mean / of.total, of.samples, level);
                        (part.mean, ((low * of.total).min(part.mean), (high * of.total).max(part.mean)))
                    };
                    let least = mover(by_samples(&before, old), by_samples(&after, new));
                    let changes = pairs.iter().map(|&(old, new)| after.values[new] - before.values[old]);
                    let blocks = by_blocks(changes, difference, level);
                    blocks.map_or(least, |blocks| (least.0.min(blocks.0), least.1.max(blocks.1)))
                }
                None => mover((before.mean, (before.low, before.high)), (after.mean, (after.low, after.high))),
            };
            LayerDifference {
                layer: part.layer.clone(),
                title: part.title.clone(),
                old: before.mean,
                new: after.mean,
                difference,
                low: Some(low),
                high: Some(high),
            }
        })
        .collect();
    parts.sort_by_key(|part| part.layer == UNKNOWN);
    let whole = |data: &LayersData| Some((data.total, (data.total_low?, data.total_high?)));
    let total = match &pairs {
        Some(pairs) => {
            let changes = pairs.iter().map(|&(before, after)| new.totals[after] - old.totals[before]);
            by_blocks(changes, new.total - old.total, level)
        }
        None => whole(old).zip(whole(new)).map(|(old, new)| mover(old, new)),
    };
    Some(LayerDifferences {
        end: new.end,
        unit: new.unit.clone(),
        same_map: old.map == new.map,
        same_clock: old.clock.unwrap_or_default() == new.clock.unwrap_or_default(),
        total: LayerDifference {
            layer: "total".to_owned(),
            title: "All".to_owned(),
            old: old.total,
            new: new.total,
            difference: new.total - old.total,
            low: total.map(|(low, _)| low),
            high: total.map(|(_, high)| high),
        },
        parts,
    })
}

/// The places of the trials of two sets that were made in the same block, as (old, new): by the blocks' numbers, or the trials'
/// where there are none. `None` where they are too few to speak for both sets.
fn pairs(old: &LayersData, new: &LayersData) -> Option<Vec<(usize, usize)>> {
    let has_blocks = [old, new].iter().all(|data| data.blocks.len() == data.trials.len());
    let (before, after) = if has_blocks { (&old.blocks, &new.blocks) } else { (&old.trials, &new.trials) };
    let place = |(new, block): (usize, &u32)| Some((before.iter().position(|old| old == block)?, new));
    let pairs: Vec<(usize, usize)> = after.iter().enumerate().filter_map(place).collect();
    (2 * pairs.len() > before.len().max(after.len())).then_some(pairs)
}

/// Where the differences by block lie, with the estimate in it.
fn by_blocks(changes: impl Iterator<Item = f64>, difference: f64, level: Level) -> Option<(f64, f64)> {
    let (_, blocks) = about(&changes.collect::<Vec<_>>(), level)?;
    Some((blocks.low.min(difference), blocks.high.max(difference)))
}

/// The interval of a difference from those of two independent estimates: the method of variance estimates recovery (Zou and
/// Donner, Statistics in Medicine 27 (2008), 1693-1702), which needs no symmetric ones.
fn mover(old: (f64, (f64, f64)), new: (f64, (f64, f64))) -> (f64, f64) {
    let ((a, (a_low, a_high)), (b, (b_low, b_high))) = (old, new);
    let difference = b - a;
    (difference - (b - b_low).hypot(a_high - a), difference + (b_high - b).hypot(a - a_low))
}

#[cfg(test)]
mod tests;
