//! What else is not the same in two runs.

use std::collections::{BTreeMap, BTreeSet};

use super::Difference;
use crate::record::Environment;
use crate::report::build::environment as described;
use crate::report::export::{PhasesData, RunData, ScenarioData};
use crate::suite::{Scenario, Suite};

/// Load averages that differ by less say nothing, hundredths.
const LOAD_APART: u32 = 50;

/// Everything that a run's figures may depend on, as far as it is recorded.
pub(super) struct Conditions {
    environment: Environment,
    phases: PhasesData,
    cpus: Vec<String>,
    /// `None` when this netrig cannot read the run's suite.
    suite: Option<Suite>,
}

impl Conditions {
    pub fn of(run: &RunData) -> Self {
        Self {
            // The load is no setting: it is noise itself.
            environment: Environment { load_average_hundredths: 0, ..run.environment.clone() },
            phases: run.run.phases_s,
            cpus: run.run.cpus.clone(),
            suite: Suite::parse(&run.run.suite_file, &run.run.suite_text).ok(),
        }
    }

    fn scenario(&self, id: &str) -> Option<Scenario> {
        self.suite.as_ref()?.scenario(id).cloned().map(bare)
    }

    /// Whether a scenario was run under the same conditions in both.
    pub fn alike(&self, other: &Self, scenario: &str) -> bool {
        self.phases == other.phases
            && self.cpus == other.cpus
            && self.environment == other.environment
            && self.scenario(scenario).is_some_and(|own| other.scenario(scenario) == Some(own))
    }
}

/// The scenario without the words about it, and without what ends its repetition.
fn bare(scenario: Scenario) -> Scenario {
    Scenario { name: String::new(), about: String::new(), notes: Vec::new(), watched: Vec::new(), ..scenario }
}

/// All that differs, what decides most first.
pub(super) fn between(old: &RunData, new: &RunData, scenarios: &[(&ScenarioData, &ScenarioData)]) -> Vec<Difference> {
    let mut found = Vec::new();
    let mut note = |what: &str, old: String, new: String| {
        if old != new {
            found.push(Difference { what: what.to_owned(), old, new });
        }
    };
    let (one, other) = (&old.run, &new.run);
    let seconds = |s: f64| format!("{s} s");
    note("Warm-up", seconds(one.phases_s.warm_up), seconds(other.phases_s.warm_up));
    note("Window", seconds(one.phases_s.window), seconds(other.phases_s.window));
    note("Cool-down", seconds(one.phases_s.cool_down), seconds(other.phases_s.cool_down));
    note("CPUs of the nodes", one.cpus.join(" and "), other.cpus.join(" and "));
    note("Repetition", one.repetition.clone(), other.repetition.clone());
    let chosen = |run: &RunData| run.scenarios.iter().map(|s| s.id.as_str()).collect::<Vec<_>>().join(", ");
    note("Scenarios of the run, which take turns", chosen(old), chosen(new));
    found.extend(settings(&old.environment, &new.environment));
    found.extend(load(&old.environment, &new.environment));
    let suites = (Conditions::of(old), Conditions::of(new));
    found.extend(scenarios.iter().filter_map(|(one, other)| definition(one, other, &suites)));
    found.extend(scenarios.iter().flat_map(|(one, other)| doubts(one, other)));
    found
}

/// Machine and settings, in the words of the report.
fn settings(old: &Environment, new: &Environment) -> Vec<Difference> {
    // Compared elsewhere, with a tolerance.
    let still = |environment: &Environment| Environment { load_average_hundredths: 0, ..environment.clone() };
    let (one, other) = (described(&still(old)), described(&still(new)));
    let not_recorded = || "not recorded".to_owned();
    let values: BTreeMap<&str, &str> = other.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    let known: BTreeSet<&str> = one.iter().map(|(key, _)| key.as_str()).collect();
    let changed = one.iter().filter_map(|(key, value)| {
        let after = values.get(key.as_str()).map_or_else(not_recorded, |value| (*value).to_owned());
        (after != *value).then(|| Difference { what: key.clone(), old: value.clone(), new: after })
    });
    let gained = other.iter().filter(|(key, _)| !known.contains(key.as_str()));
    let gained = gained.map(|(key, value)| Difference { what: key.clone(), old: not_recorded(), new: value.clone() });
    changed.chain(gained).collect()
}

fn load(old: &Environment, new: &Environment) -> Option<Difference> {
    let (one, other) = (old.load_average_hundredths, new.load_average_hundredths);
    let show = |load: u32| format!("{:.2}", f64::from(load) / 100.0);
    (one.abs_diff(other) > LOAD_APART).then(|| Difference {
        what: "Load average at the begin".to_owned(),
        old: show(one),
        new: show(other),
    })
}

/// What the suites say about a scenario.
fn definition(old: &ScenarioData, new: &ScenarioData, suites: &(Conditions, Conditions)) -> Option<Difference> {
    let differ = |what: &str, one: String, other: String| {
        Some(Difference { what: format!("{} of scenario {}", what, old.id), old: one, new: other })
    };
    if old.load != new.load {
        return differ("Load", old.load.clone(), new.load.clone());
    }
    let (one, other) = (suites.0.scenario(&old.id), suites.1.scenario(&old.id));
    let readable = |scenario: &Option<Scenario>| if scenario.is_some() { "readable" } else { "not readable" };
    match (one, other) {
        (Some(one), Some(other)) if one == other => None,
        (Some(one), Some(other)) => {
            let switch = |scenario: &Scenario| if scenario.topology.segmentation_offload() { "on" } else { "off" };
            if switch(&one) != switch(&other) {
                return differ("Segmentation offload", switch(&one).to_owned(), switch(&other).to_owned());
            }
            let words = |scenario: &Scenario| scenario.topology.path().to_string();
            if words(&one) != words(&other) {
                return differ("Path", words(&one), words(&other));
            }
            differ("Testbed or load", "see the old run's suite".to_owned(), "see the new run's suite".to_owned())
        }
        (None, None) => None,
        (one, other) => differ("Suite's text", readable(&one).to_owned(), readable(&other).to_owned()),
    }
}

/// Flags of the trials: something disturbed one run more than the other.
fn doubts(old: &ScenarioData, new: &ScenarioData) -> Vec<Difference> {
    let count = |scenario: &ScenarioData| {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for trial in &scenario.trials {
            let flags = trial["flags"].as_array().into_iter().flatten();
            let kinds: BTreeSet<&str> = flags.filter_map(|flag| flag["flag"].as_str()).collect();
            for kind in kinds {
                *counts.entry(kind.to_owned()).or_default() += 1;
            }
        }
        counts
    };
    let (one, other) = (count(old), count(new));
    let kinds: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
    let (old_trials, new_trials) = (old.trials.len(), new.trials.len());
    kinds
        .into_iter()
        .filter_map(|kind| {
            let (before, after) = (one.get(kind).copied().unwrap_or(0), other.get(kind).copied().unwrap_or(0));
            // The same share of the trials in both is no difference.
            (before * new_trials != after * old_trials).then(|| Difference {
                what: format!("Trials of {} flagged {kind}", old.id),
                old: format!("{before} of {old_trials}"),
                new: format!("{after} of {new_trials}"),
            })
        })
        .collect()
}
