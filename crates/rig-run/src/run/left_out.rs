//! Scenarios that this machine cannot make: a run goes without them, and says so.

use std::collections::BTreeMap;

use rig_cli::exit::in_words;
use rig_facts::record::SkippedScenarios;
use rig_facts::store::{RunId, Store, StoreError};
use rig_suite::suite::{Scenario, Suite};
use rig_testbed::datapath::DatapathRegistry;
use rig_testbed::host::Host;
use rig_testbed::{Dut, Placement};
use schemars::JsonSchema;
use serde::Serialize;

use super::not_here;

/// What a machine has not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct MissingResource {
    pub found: String,
    /// What does not work, or which figures suffer.
    pub effect: String,
    pub remedy: String,
}

/// Why the scenario cannot be made on a host's machine, and what to do about it; `None` when it can.
pub fn why_not_here(
    scenario: &Scenario,
    placement: &Placement,
    datapaths: DatapathRegistry,
    host: &dyn Host,
) -> Option<String> {
    // What is not to be had at all comes before how many CPUs it would take.
    let smallest = scenario.dut.map(|dut| Dut { workers: 1, ..dut });
    let of_one = Scenario { dut: smallest, ..scenario.clone() };
    match not_here(&of_one, placement, datapaths, host) {
        Ok(Some(MissingResource { found, remedy, .. })) => return Some(format!("{found}: {remedy}")),
        Ok(None) => {}
        Err(error) => return Some(in_words(&error)),
    }
    let workers = scenario.dut.map_or(0, |dut| dut.workers);
    (!placement.has_cpus_for(workers))
        .then(|| "more workers than netrig has CPUs here: use a machine with more, or name more with --cpus".to_owned())
}

/// Datapaths that were tried out on a host, each once, and why it does not take them, if so.
#[derive(Debug, Default)]
pub struct DatapathTrials(BTreeMap<String, Option<String>>);

impl DatapathTrials {
    /// Why a datapath of the scenario is not taken; `None` when all are. Asked of a scenario that nothing else speaks against.
    pub fn why_not(&mut self, scenario: &Scenario, host: &dyn Host) -> Option<String> {
        scenario.datapaths.iter().find_map(|setup| {
            let tried = || host.try_out(&setup.name).err().map(|error| one_line(&error));
            self.0.entry(setup.name.clone()).or_insert_with(tried).clone()
        })
    }
}

/// Takes the scenarios out of `suite` of which `why_not` says why they cannot be made.
pub fn leave_out(suite: &mut Suite, why_not: &mut dyn FnMut(&Scenario) -> Option<String>) -> Vec<SkippedScenarios> {
    let mut all = Vec::new();
    suite.scenarios.retain(|scenario| {
        let Some(reason) = why_not(scenario) else { return true };
        add(&mut all, &scenario.id, reason);
        false
    });
    all
}

/// Adds a scenario to those that a run goes without.
pub fn add(all: &mut Vec<SkippedScenarios>, id: &str, reason: String) {
    match all.iter_mut().find(|left_out| left_out.reason == reason) {
        Some(left_out) => left_out.scenarios.push(id.to_owned()),
        None => all.push(SkippedScenarios { scenarios: vec![id.to_owned()], reason }),
    }
}

/// A scenario's testbed, or what was to run on its nodes, that the machine did not let be made. It is no fault of a load: a run
/// goes without the scenario.
#[derive(Debug, thiserror::Error)]
#[error("{}", in_words(.0))]
pub struct TestbedUnavailable(anyhow::Error);

impl TestbedUnavailable {
    pub fn new(error: anyhow::Error) -> Self {
        Self(error)
    }
}

/// The host of the nodes is gone, and with it all that a suite could be run on.
#[derive(Debug, thiserror::Error)]
#[error("{}", in_words(.0))]
pub struct LostHost(anyhow::Error);

impl LostHost {
    pub fn new(error: anyhow::Error) -> Self {
        Self(error)
    }
}

/// The longest reason that is told; what a program's verifier says has no end.
const MOST: usize = 400;

/// What failed, in one line: why a run goes on without a scenario.
pub fn one_line(error: &anyhow::Error) -> String {
    let words = in_words(error);
    let line = words.lines().next().unwrap_or_default();
    match line.char_indices().nth(MOST) {
        None => line.to_owned(),
        Some((end, _)) => format!("{} ...", &line[..end]),
    }
}

/// Scenarios that a run goes without, stored with it as they become known.
#[derive(Debug)]
pub struct SkippedScenarioLog<'a> {
    store: &'a mut Store,
    run: RunId,
    all: &'a mut Vec<SkippedScenarios>,
}

impl<'a> SkippedScenarioLog<'a> {
    /// `all` are those that were known when the run was begun.
    pub fn of(store: &'a mut Store, run: RunId, all: &'a mut Vec<SkippedScenarios>) -> Self {
        Self { store, run, all }
    }

    pub fn has(&self, id: &str) -> bool {
        has(self.all, id)
    }

    pub fn add(&mut self, id: &str, reason: String) -> Result<(), StoreError> {
        add(self.all, id, reason);
        self.store.set_left_out(self.run, &*self.all)
    }

    pub(super) fn store(&mut self) -> &mut Store {
        self.store
    }

    pub fn all(&self) -> &[SkippedScenarios] {
        self.all
    }
}

/// No scenario of a suite can be made here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no scenario can be run here:{}", .0.iter().map(|one| format!("\n  {one}")).collect::<String>())]
pub struct NoScenarioLeft(pub Vec<SkippedScenarios>);

impl NoScenarioLeft {
    /// Refuses a run of a suite of which `left_out` has every scenario that is not taken away already.
    ///
    /// # Errors
    /// Itself.
    pub fn refuse(suite: &Suite, left_out: &[SkippedScenarios]) -> Result<(), Self> {
        match suite.scenarios.iter().all(|scenario| has(left_out, &scenario.id)) {
            true => Err(Self(left_out.to_vec())),
            false => Ok(()),
        }
    }
}

fn has(left_out: &[SkippedScenarios], id: &str) -> bool {
    left_out.iter().any(|one| one.scenarios.iter().any(|other| other == id))
}

#[cfg(test)]
mod tests;
