//! The search for the highest rate of a packet load that is carried without loss: each step a load of its own through the
//! testbed, with both ends' counters as the judge.
//!
//! A step starts from nothing, as a user who searches by hand starts the generator again: what an overload left behind,
//! open connections and full queues, is in no later step. The window of the trial is the confirmation.

use std::time::Duration;

use anyhow::Result;
use rig_facts::figures::packets::dropped;
use rig_facts::record::SearchedRate;
use rig_load::plan::Phases;
use rig_load::record::End;
use rig_packet::search::{Loss, RateSearch, SearchResult, Step, StepPurpose, losses};
use rig_suite::suite::{Scenario, SearchPlan, at_rate, opening};

use super::rig::Observation;

/// What a search found, and what was observed at the rate held.
pub(super) struct SearchWithObservation<O = Observation> {
    pub outcome: SearchResult,
    pub held: Option<O>,
}

/// Searches with `observe`, which carries a scenario's load through these phases, for a step of this purpose.
pub(super) fn search(
    scenario: &Scenario,
    plan: &SearchPlan,
    phases: Phases,
    observe: impl FnMut(&Scenario, Phases, StepPurpose) -> Result<Observation>,
) -> Result<SearchWithObservation> {
    steps(scenario, plan, phases, observe, |observed| lost(observed, plan.options.late))
}

/// [`search`] over observations of any type, so that tests need no load; `lost` tells what was lost in one.
fn steps<O>(
    scenario: &Scenario,
    plan: &SearchPlan,
    phases: Phases,
    mut observe: impl FnMut(&Scenario, Phases, StepPurpose) -> Result<O>,
    lost: impl Fn(&O) -> Vec<Loss>,
) -> Result<SearchWithObservation<O>> {
    let mut finder = RateSearch::new(plan.options)?;
    let mut held = None;
    while let Some(offer) = finder.next() {
        let window = if offer.purpose == StepPurpose::Confirm { phases.window } else { plan.step };
        let interval = phases.interval.min(window).max(Duration::from_millis(10));
        let warm_up = phases.warm_up.min(window);
        let offered = offered(scenario, plan.of, offer.rate);
        let phases = with_opening(&offered, plan.of, Phases { window, interval, warm_up, ..phases });
        if offered.traffic.falls_into(window).is_err() {
            // Of nothing that is sent nothing is lost.
            finder.give_up();
            break;
        }
        let observed = observe(&offered, phases, offer.purpose)?;
        let lost = lost(&observed);
        if offer.purpose == StepPurpose::Confirm && lost.is_empty() {
            held = Some(observed);
        }
        finder.report(lost);
    }
    let outcome = finder.outcome().unwrap_or_else(|| unreachable!("a search without a next step has an outcome"));
    let outcome = if plan.of == SearchedRate::Held { whole(outcome) } else { outcome };
    Ok(SearchWithObservation { outcome, held })
}

/// Phases in which all connections to be held are open when the window begins. Where something else is searched, the
/// suite's warm-up says how long that may take.
pub(super) fn with_opening(scenario: &Scenario, of: SearchedRate, phases: Phases) -> Phases {
    let opening = match of {
        SearchedRate::Held => opening(&scenario.traffic.connect),
        SearchedRate::Connections | SearchedRate::Requests => Duration::ZERO,
    };
    Phases { warm_up: phases.warm_up + opening, ..phases }
}

/// The connections that were held, which are whole where the steps of a search are not.
fn whole(outcome: SearchResult) -> SearchResult {
    let steps = outcome.steps.into_iter().map(|step| Step { rate: step.rate.round(), ..step });
    SearchResult {
        held: outcome.held.map(f64::round),
        lost: outcome.lost.map(f64::round),
        steps: steps.collect(),
        ..outcome
    }
}

/// `scenario` with another value of what is searched.
pub(super) fn offered(scenario: &Scenario, of: SearchedRate, rate: f64) -> Scenario {
    let mut scenario = scenario.clone();
    scenario.traffic.connect = at_rate(&scenario.traffic.connect, of, rate);
    scenario
}

/// What both ends lost from the window's begin to the end of all, and what stands between them inside the window.
fn lost(observed: &Observation, late: f64) -> Vec<Loss> {
    let dut = observed.dut.iter().flat_map(|dut| &dut.drops);
    let mut all: Vec<Loss> =
        dut.map(|(reason, count)| Loss { counter: format!("DUT {reason}"), count: *count }).collect();
    for worker in observed.workers.iter().filter(|worker| !worker.background) {
        let Some(packets) = &worker.packets else { continue };
        // Only the end that opens connections has a schedule, and so can be late.
        let (place, late) = match worker.end() {
            End::Connect => ("local", late),
            End::Listen => ("remote", 1.0),
        };
        all.extend(losses(place, |name| packets.count_since(name), late));
        let refused = packets.count("dropTx");
        let drops = dropped(packets) - refused;
        if drops > 0 {
            all.push(Loss { counter: format!("{place} port"), count: drops });
        }
    }
    all
}

#[cfg(test)]
mod tests;
