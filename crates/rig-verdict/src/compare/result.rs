//! From judgements to the plain values of [`crate::export`].

use rig_facts::claim::{Metric, Side};
use rig_stats::compare::{ModeChange, TwoModes, Verdict};
use rig_stats::sample::Bound;

use super::{Effect, EffectData, FigureComparison, Input, Judgement, RunRef, SampleData, Totals};
use crate::export::{FigureData, ModesData, TwoModesData};

impl RunRef {
    pub(super) fn of(input: &Input) -> Self {
        let data = &input.data;
        Self {
            name: input.name.clone(),
            id: data.run.id.clone(),
            suite: data.run.suite.clone(),
            started_unix_ms: data.run.started_unix_ms,
            netrig_version: data.environment.netrig_version.clone(),
            netrig_build: data.environment.netrig_build.clone(),
            kernel: data.environment.kernel.clone(),
            tool: data.run.tool.as_ref().map(|tool| match tool.is_imported() {
                true => format!("{}, imported", tool.name()),
                false => tool.name(),
            }),
            complete: data.run.status == crate::export::RunStatus::Complete,
        }
    }
}

impl Totals {
    pub(super) fn of(figures: &[FigureComparison]) -> Self {
        let count = |verdict| figures.iter().filter(|figure| figure.verdict == verdict).count();
        Self {
            better: count(Verdict::Better),
            worse: count(Verdict::Worse),
            same: count(Verdict::Same),
            undecided: count(Verdict::Undecided),
        }
    }
}

impl From<Effect> for EffectData {
    fn from(effect: Effect) -> Self {
        Self {
            kind: effect.kind,
            value: effect.value,
            low: effect.interval.filter(|_| !effect.bound.is_some_and(Bound::is_open_below)).map(|i| i.low),
            high: effect.interval.filter(|_| !effect.bound.is_some_and(Bound::is_open_above)).map(|i| i.high),
            bound: effect.bound,
            p: effect.p,
            p_welch: effect.p_welch,
            p_corrected: None,
            minimum: effect.minimum,
            noise_floor: effect.noise_floor,
        }
    }
}

impl From<ModeChange> for ModesData {
    fn from(modes: ModeChange) -> Self {
        let of = |modes: TwoModes| TwoModesData { low: modes.low, high: modes.high, share_high: modes.share_high };
        Self { old: modes.old.map(of), new: modes.new.map(of), share_p: modes.share_p }
    }
}

impl FigureComparison {
    pub(super) fn new(
        scenario: &str,
        (side, metric): (Side, Metric),
        gates: bool,
        judgement: &Judgement,
        old: Option<&FigureData>,
        new: Option<&FigureData>,
    ) -> Self {
        let sample = |figure: &FigureData| SampleData {
            mean: figure.mean,
            low: figure.low,
            high: figure.high,
            values: figure.values.clone(),
            bound: figure.bound,
        };
        Self {
            scenario: scenario.to_owned(),
            side: side.name().to_owned(),
            metric: metric.name().to_owned(),
            unit: metric.unit().to_owned(),
            better: metric.row().policy.better,
            gates,
            verdict: judgement.verdict,
            reason: judgement.reason.map(|reason| reason.to_string()),
            effect: judgement.effect.map(EffectData::from),
            modes: judgement.modes.map(ModesData::from),
            old: old.map(sample),
            new: new.map(sample),
            noise_runs: Vec::new(),
        }
    }
}
