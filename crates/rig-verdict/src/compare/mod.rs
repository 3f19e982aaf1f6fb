//! The comparison of two runs: how each figure changed, how surely, and what else changed that could explain it.
//!
//! The statistics are [`rig_stats::compare`]'s; here is which values go in. A run is compared as its JSON shows it
//! ([`RunData`]), so that one from the store and one from a file are the same thing.

mod differences;
mod exercise;
mod layers;
mod machine;
mod noise;
mod result;
mod turns;

use std::collections::{BTreeMap, BTreeSet};

use rig_facts::claim::{Metric, Side};
use rig_stats::compare::{Effect, Judgement, Noise, Reason, Resampling, Rule, Verdict, compare_blocks};
use rig_stats::confidence::Level;
use rig_stats::sample::Sample;
use rig_stats::units::Percent;

pub use self::differences::Conditions;
pub use self::exercise::exercise;
pub use self::noise::is_undisturbed;
use self::turns::Blocks;
pub use self::turns::took_turns;
pub use crate::export::{
    Comparison, ComparisonKind, Difference, Doubt, EffectData, FigureComparison, FlagCount, LayerComparison, Method,
    NoiseData, NoiseRun, OtherMachine, RunRef, SampleData, ScenarioRef, Totals, TwoModesData,
};
use crate::export::{FigureData, RunData, ScenarioData};

/// A change of less than this share does not matter, unless the user says otherwise, percent.
pub const MINIMUM_PERCENT: f64 = 5.0;

/// What to compare and how surely.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    pub level: Level,
    /// The smallest relative change that matters.
    pub minimum: Percent,
    /// Scenarios to compare; empty for all that both runs have.
    pub only: Vec<String>,
    /// Metrics to compare; empty for all.
    pub metrics: Vec<Metric>,
}

/// A run with the name that the user gave it, e.g. `run 3` or a file's path.
#[derive(Debug, Clone, PartialEq)]
pub struct Input {
    pub name: String,
    pub data: RunData,
}

/// Why two runs cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompareError {
    #[error("{0} and {1} are the same run: name two runs, see `netrig history`")]
    SameRun(String, String),
    #[error(
        "{old} is of suite '{old_suite}' and {new} of suite '{new_suite}': compare runs of one suite, see `netrig history`"
    )]
    Suites { old: String, old_suite: String, new: String, new_suite: String },
    #[error(
        "{old} ({old_scenarios}) and {new} ({new_scenarios}) have no scenario in common: \
         run one again with --only and a scenario of the other"
    )]
    NothingInCommon { old: String, old_scenarios: String, new: String, new_scenarios: String },
    #[error("no scenario '{unknown}' in both runs: choose from {common}")]
    Scenario { unknown: String, common: String },
    #[error("neither run has a figure {unknown} in these scenarios: choose from {known}")]
    Metric { unknown: Metric, known: String },
}

/// Whether `old` can be the run that one of `suite` with these scenarios is held against. Known before a run begins.
///
/// # Errors
/// When it is of another suite or has none of the scenarios.
pub fn check(old: &Input, new_name: &str, suite: &str, scenarios: &[&str]) -> Result<(), CompareError> {
    let run = &old.data.run;
    if run.suite != suite {
        return Err(CompareError::Suites {
            old: old.name.clone(),
            old_suite: run.suite.clone(),
            new: new_name.to_owned(),
            new_suite: suite.to_owned(),
        });
    }
    if !scenarios.iter().any(|id| old.data.scenario(id).is_some()) {
        return Err(CompareError::NothingInCommon {
            old: old.name.clone(),
            old_scenarios: ids(&old.data),
            new: new_name.to_owned(),
            new_scenarios: scenarios.join(", "),
        });
    }
    Ok(())
}

fn ids(data: &RunData) -> String {
    data.scenarios.iter().map(|s| s.id.as_str()).collect::<Vec<_>>().join(", ")
}

/// Compares `new` with `old`. `history` are complete runs from which the noise floor is learnt, as far as they are
/// repetitions of one of the two; the two themselves may be among them.
///
/// # Errors
/// When the runs have nothing in common that could be compared.
pub fn compare(old: &Input, new: &Input, history: &[RunData], options: &Options) -> Result<Comparison, CompareError> {
    if old.data.is(&new.data) {
        return Err(CompareError::SameRun(old.name.clone(), new.name.clone()));
    }
    let in_new: Vec<&str> = new.data.scenarios.iter().map(|s| s.id.as_str()).collect();
    check(old, &new.name, &new.data.run.suite, &in_new)?;
    let common: Vec<(&ScenarioData, &ScenarioData)> =
        old.data.scenarios.iter().filter_map(|one| Some((one, new.data.scenario(&one.id)?))).collect();
    let names = || common.iter().map(|(one, _)| one.id.as_str());
    if let Some(unknown) = options.only.iter().find(|id| !names().any(|name| name == id.as_str())) {
        let common = names().collect::<Vec<_>>().join(", ");
        return Err(CompareError::Scenario { unknown: unknown.clone(), common });
    }
    let chosen: Vec<_> =
        common.into_iter().filter(|(one, _)| options.only.is_empty() || options.only.contains(&one.id)).collect();

    // Else a comparison of nothing would pass for one in which nothing is worse.
    let measured = |metric: Metric| {
        let has = |scenario: &ScenarioData| Side::ALL.iter().any(|&side| scenario.figure(side, metric).is_some());
        chosen.iter().any(|(one, other)| has(one) || has(other))
    };
    if let Some(&unknown) = options.metrics.iter().find(|&&metric| !measured(metric)) {
        let known = Metric::ALL.into_iter().filter(|&metric| measured(metric)).map(Metric::name);
        return Err(CompareError::Metric { unknown, known: known.collect::<Vec<_>>().join(", ") });
    }

    let conditions = (Conditions::of(&old.data), Conditions::of(&new.data));
    let took_turns = took_turns(&old.data, &new.data);
    let machine = machine::change(&conditions.0, &conditions.1);
    let history: Vec<(&RunData, Conditions)> = history.iter().map(|run| (run, Conditions::of(run))).collect();
    let mut figures = Vec::new();
    let mut alike = (BTreeSet::new(), BTreeSet::new());
    let mut others = BTreeMap::new();
    let mut disturbed = BTreeSet::new();
    let mut blocks = None;
    for (one, other) in &chosen {
        let shared = took_turns.then(|| Blocks::of(one, other)).flatten();
        blocks = blocks.into_iter().chain(shared.as_ref().map(Blocks::len)).min();
        // What runs differ by from one time to another is in both sides of a block.
        let (groups, machine) = match shared {
            Some(_) => (RepeatedRuns::default(), None),
            None => {
                let groups = alike_runs(&one.id, (&old.data, &conditions.0), (&new.data, &conditions.1), &history);
                (groups, machine)
            }
        };
        alike.0.extend(groups.old.iter().map(|run| run.run.id.clone()));
        alike.1.extend(groups.new.iter().map(|run| run.run.id.clone()));
        disturbed.extend(groups.disturbed.iter().map(|run| run.run.id.clone()));
        others.extend(groups.others.iter().map(|other| (other.run.clone(), other.clone())));
        let gates = |side, metric| !options.metrics.is_empty() || conditions.1.gates(&one.id, side, metric);
        figures.extend(compare_scenario((one, other), shared.as_ref(), &groups, machine, options, &gates));
    }
    family(&mut figures, options);
    let resampling = Resampling::default();
    let missing = |these: &RunData, those: &RunData| {
        these.scenarios.iter().filter(|s| those.scenario(&s.id).is_none()).map(|s| s.id.clone()).collect()
    };
    Ok(Comparison {
        kind: ComparisonKind::Comparison,
        old: RunRef::of(old),
        new: RunRef::of(new),
        method: Method {
            confidence_level_percent: options.level.percent(),
            minimum_effect_percent: options.minimum.get(),
            draws: resampling.draws,
            seed: resampling.seed,
        },
        noise: NoiseData {
            runs_like_old: alike.0.len(),
            runs_like_new: alike.1.len(),
            other_machines: others.into_values().collect(),
            disturbed: disturbed.into_iter().collect(),
        },
        blocks,
        totals: Totals::of(&figures),
        scenarios: chosen.iter().map(|(_, s)| ScenarioRef { id: s.id.clone(), name: s.name.clone() }).collect(),
        only_in_old: missing(&old.data, &new.data),
        only_in_new: missing(&new.data, &old.data),
        differences: differences::between(&old.data, &new.data, &conditions, &chosen),
        layers: layers::by_layer(&chosen, &figures, took_turns, options.level),
        doubts: chosen.iter().flat_map(|(one, other)| differences::of_both(one, other)).collect(),
        figures,
    })
}

/// The runs that say what repetitions of the two differ by.
#[derive(Default)]
struct RepeatedRuns<'a> {
    /// Like the old run, with it and without the new one.
    old: Vec<&'a RunData>,
    /// Like the new run, with it and without the old one; empty when both are alike.
    new: Vec<&'a RunData>,
    /// Runs that would be alike, but that another machine made.
    others: Vec<OtherMachine>,
    /// Runs that would be alike, but that had most of their trials disturbed from outside.
    disturbed: Vec<&'a RunData>,
}

/// The new run never counts among those like the old one: the change that is asked for would pass for noise.
fn alike_runs<'a>(
    scenario: &str,
    old: (&'a RunData, &Conditions),
    new: (&'a RunData, &Conditions),
    history: &[(&'a RunData, Conditions)],
) -> RepeatedRuns<'a> {
    let (mut others, mut disturbed) = (Vec::new(), Vec::new());
    let mut like = |(own, conditions): (&'a RunData, &Conditions)| -> Vec<&'a RunData> {
        let repeated =
            history.iter().filter(|(run, other)| !run.is(old.0) && !run.is(new.0) && conditions.alike(other, scenario));
        let mut alike = vec![own];
        for (run, other) in repeated {
            match machine::change(conditions, other) {
                None => alike.push(run),
                Some(ratio) => others.push(OtherMachine {
                    run: run.run.id.clone(),
                    unlike: own.run.id.clone(),
                    slower_percent: 100.0 * (ratio - 1.0),
                }),
            }
        }
        alike.retain(|run| {
            let is_sound = run.scenario(scenario).is_none_or(noise::is_sound);
            if !is_sound {
                disturbed.push(*run);
            }
            is_sound
        });
        alike
    };
    let both_alike = old.1.alike(new.1, scenario);
    let old = like(old);
    let new = if both_alike { Vec::new() } else { like(new) };
    RepeatedRuns { old, new, others, disturbed }
}

/// Takes back what is not sure enough among all figures that decide together.
fn family(figures: &mut [FigureComparison], options: &Options) {
    let alpha = options.level.alpha();
    let p_of = |figure: &FigureComparison| figure.effect.and_then(|effect| effect.p_welch).filter(|_| figure.gates);
    let p: Vec<f64> = figures.iter().filter_map(p_of).collect();
    let mut corrected = rig_stats::blocks::holm(&p).into_iter();
    for figure in figures.iter_mut().filter(|figure| p_of(figure).is_some()) {
        let (Some(corrected), Some(effect)) = (corrected.next(), &mut figure.effect) else { continue };
        effect.p_corrected = Some(corrected);
        if matches!(figure.verdict, Verdict::Better | Verdict::Worse) && corrected > alpha {
            figure.verdict = Verdict::Undecided;
            figure.reason = Some(Reason::Family { p: corrected, figures: p.len() }.to_string());
        }
    }
}

/// `blocks` are those that both have, where the runs took turns.
fn compare_scenario(
    (old, new): (&ScenarioData, &ScenarioData),
    blocks: Option<&Blocks>,
    alike: &RepeatedRuns<'_>,
    machine: Option<f64>,
    options: &Options,
    gates: &dyn Fn(Side, Metric) -> bool,
) -> Vec<FigureComparison> {
    let wanted = |metric: &Metric| options.metrics.is_empty() || options.metrics.contains(metric);
    let pairs = Side::ALL.into_iter().flat_map(|side| Metric::ALL.into_iter().map(move |metric| (side, metric)));
    pairs
        .filter(|(_, metric)| wanted(metric))
        .filter(|&(side, metric)| old.figure(side, metric).is_some() || new.figure(side, metric).is_some())
        .map(|(side, metric)| {
            let (before, after) = (old.figure(side, metric), new.figure(side, metric));
            let policy = metric.row().policy;
            let rule = Rule {
                level: options.level,
                minimum: options.minimum,
                resolution: policy.resolution,
                better: policy.better,
                is_fact: policy.is_fact,
                resampling: Resampling::default(),
            };
            let runs = |runs: &[&RunData]| noise::runs(runs, &old.id, (side, metric));
            let (like_old, like_new) = (runs(&alike.old), runs(&alike.new));
            let judgement = match (blocks, before, after) {
                (Some(blocks), Some(before), Some(after)) => {
                    let (one, other) = blocks.samples(before, after);
                    compare_blocks(&one, &other, &blocks.disturbances(side, metric), &rule)
                }
                _ => {
                    let noise =
                        Noise::new([&like_old, &like_new].map(|runs| runs.iter().map(|run| run.mean).collect()));
                    let noise = machine.into_iter().fold(noise, Noise::on_another_machine);
                    let sample = |figure: Option<&FigureData>| figure.map_or_else(Sample::default, FigureData::sample);
                    rig_stats::compare::compare(&sample(before), &sample(after), &rule, &noise)
                }
            };
            let noise_runs = match judgement.reason {
                Some(Reason::WithinNoise) => like_old.into_iter().chain(like_new).collect(),
                _ => Vec::new(),
            };
            let found = FigureComparison::new(&old.id, (side, metric), gates(side, metric), &judgement, before, after);
            FigureComparison { noise_runs, ..found }
        })
        .collect()
}
