//! What happens in a window, and what is counted in it.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use rig_facts::programme::{Phase, Programme, Rate, ScenarioLoad};
use rig_facts::record::{NodeRecord, PhaseRecord, RateRecord, TrialRecord};
use rig_load::driver::WorkerPair;
use rig_load::plan::Phases;
use rig_stats::units::Span;
use rig_suite::suite::{Scenario, Traffic};
use rig_testbed::host::Mark;

use super::agents::{self, Observed};
use super::pairs::WorkerPlacement;
use super::programme::PhaseResult;
use super::rig::Stage;
use super::stacks::Sampling;

/// A programme in a window.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProgrammeWindow<'a> {
    pub programme: &'a Programme,
    /// What its rates are shares of.
    pub limit: f64,
    pub phases: Phases,
    /// Workers idle without.
    pub loaded: bool,
}

impl ProgrammeWindow<'_> {
    /// The rate that a load begins with, where it has one.
    pub fn first_rate(&self, which: ScenarioLoad) -> Option<f64> {
        self.programme.first_rate(which).map(|rate| rate.per_second(self.limit))
    }

    /// The workers of all loads of a scenario.
    pub fn pairs<'t>(&self, stage: Stage<'t>, scenario: &Scenario) -> Result<Vec<WorkerPair<'t>>> {
        let Self { programme, phases, loaded, .. } = *self;
        // Workers know the longest that it can take, and are told when it ends before.
        let window = programme.longest(phases.window);
        let phases = Phases { window, interval: programme.sample.unwrap_or(phases.interval), ..phases };
        let placing =
            WorkerPlacement { testbed: stage.testbed, clocks: stage.clocks, dut: scenario.dut, phases, loaded };
        let beginning = |traffic: &Traffic, which| match self.first_rate(which).filter(|rate| *rate > 0.0) {
            Some(rate) => traffic.at_rate(rate),
            None => traffic.clone(),
        };
        let mut pairs = placing.pairs(&beginning(&scenario.traffic, ScenarioLoad::Own), false)?;
        if let Some(under) = &scenario.under {
            pairs.extend(placing.pairs(&beginning(under, ScenarioLoad::Under), true)?);
        }
        Ok(pairs)
    }

    /// Its phases as they went, but for those without a name.
    pub fn records(&self, stage: Stage<'_>, marks: &[Mark], outcomes: Vec<PhaseResult>) -> Result<Vec<PhaseRecord>> {
        let record = |(phase, (edge, PhaseResult { ended, commands })): (&Phase, (&[Mark], PhaseResult))| {
            let (begin, end) = (edge[0], edge[1]);
            Ok(PhaseRecord {
                name: phase.name.clone(),
                begin_ns: stage.clocks.here(begin.at_ns),
                end_ns: stage.clocks.here(end.at_ns),
                ended,
                rates: phase.rates().map(|(load, rate)| rate_record(load, rate, self.limit)).collect(),
                commands,
                nodes: stage.testbed.host().between(begin, end)?.nodes,
            })
        };
        let edges = self.programme.phases.iter().zip(marks.windows(2).zip(outcomes));
        edges.filter(|(phase, _)| !phase.name.is_empty()).map(record).collect()
    }
}

fn rate_record(load: ScenarioLoad, rate: Rate, limit: f64) -> RateRecord {
    let share = match rate {
        Rate::At(_) => None,
        Rate::OfLimit(share) => Some(share),
    };
    RateRecord { load, per_second: rate.per_second(limit), share }
}

/// Refuses a trial of which a worker measured at another time than the nodes were counted: its figures would be of two different loads. Hosts that
/// hear late of the start, or of the window's edges, make such.
///
/// # Errors
/// With that worker's name.
pub(super) fn refuse_missed_window(trial: &TrialRecord) -> Result<()> {
    for worker in &trial.workers {
        let late = worker.window_begin_ns.saturating_sub(trial.window_end_ns);
        let early = trial.window_begin_ns.saturating_sub(worker.window_end_ns);
        let apart = late.max(early);
        if apart > 0 {
            let apart = Span(Duration::from_millis(apart / 1_000_000));
            bail!(
                "{} measured {apart} away from the time in which its nodes were counted: the link to a host stalled, or a machine stood still",
                worker.name
            );
        }
    }
    Ok(())
}

/// What is counted from a window's begin to its end, beside the nodes' own counters.
#[derive(Default)]
pub(super) struct Counting {
    agents: Option<agents::Window>,
    stacks: Option<Sampling>,
}

impl Counting {
    pub fn begin(&mut self, Stage { testbed, agents, samples, stacks, .. }: Stage<'_>) -> Result<()> {
        self.agents = Some(agents.begin(testbed.host(), samples)?);
        if stacks {
            self.stacks = Some(Sampling::of_nodes(testbed)?);
        }
        Ok(())
    }

    pub fn end(self, stage: Stage<'_>, nodes: &[NodeRecord]) -> Result<(Observed, Option<Sampling>)> {
        let host = stage.testbed.host();
        let begun = self.agents.context("the agents were not read at the window's begin")?;
        let observed = stage.agents.end(host, begun, nodes)?;
        self.stacks.as_ref().map(|sampling| sampling.stop(host)).transpose()?;
        Ok((observed, self.stacks))
    }
}

#[cfg(test)]
mod tests {
    use rig_facts::fixture::{TrialOptions, trial};

    use super::*;

    #[test]
    fn a_worker_that_measures_at_another_time_is_no_trial() {
        let whole = trial(&TrialOptions::default());
        refuse_missed_window(&whole).unwrap();
        let (begin, end) = (whole.window_begin_ns, whole.window_end_ns);
        for (from, to) in [(end + 2_000_000_000, end + 3_000_000_000), (0, begin - 1)] {
            let mut missed = whole.clone();
            (missed.workers[0].window_begin_ns, missed.workers[0].window_end_ns) = (from, to);
            let why = refuse_missed_window(&missed).unwrap_err().to_string();
            assert!(why.starts_with(&missed.workers[0].name) && why.contains("the link to a host stalled"), "{why}");
        }
        // Late, and not beside it: that is a doubt.
        let mut late = whole.clone();
        late.workers[0].window_begin_ns = end - 1;
        refuse_missed_window(&late).unwrap();
    }
}
