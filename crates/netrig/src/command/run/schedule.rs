//! How a run spends its time.

use std::time::Instant;

use rig_cli::exit::{Exit, ExitContext, Failure};
use rig_cli::streams::note;
use rig_facts::record::TrialRecord;
use rig_run::run::budget::{FirstBlocks, Forecast, ForecastBasis};
use rig_run::run::{Execute, add, ends_runs, measured, one_line};
use rig_stats::blocks::order;
use rig_suite::suite::{Suite, Timing};

use super::super::report;
use super::RunArgs;
use super::bench::Bench;
use super::selection::Selection;

/// Trials to plan a time by.
pub struct PastTrials {
    trials: Vec<TrialRecord>,
    learnt: ForecastBasis,
}

impl PastTrials {
    /// What runs before this one let it expect, where it is to plan its time.
    pub fn of(args: &RunArgs, suite: &Suite) -> Result<Self, Failure> {
        let trials = match args.budget {
            Some(_) => report::past(&args.store, suite)?,
            None => Vec::new(),
        };
        let learnt = if trials.is_empty() { ForecastBasis::Nothing } else { ForecastBasis::Before(trials.len()) };
        Ok(Self { trials, learnt })
    }

    /// Short blocks where nothing is known, so that a first run, too, plans by how this machine scatters. They are no part of the run,
    /// nor of its time: the plan was chosen by them. What cannot be made is taken out of the selection.
    pub fn with_first_blocks(
        self,
        args: &RunArgs,
        selection: &mut Selection,
        bench: &mut Bench,
    ) -> Result<Self, Failure> {
        // Of two runs that take turns neither may be at work while the other is.
        let is_wanted = self.learnt == ForecastBasis::Nothing && args.in_turn.is_none();
        let Some(time) = args.budget.filter(|_| is_wanted) else { return Ok(self) };
        let Selection { suite, timing, .. } = selection;
        let Some(first) = FirstBlocks::of(suite, timing, time.0) else { return Ok(self) };
        if !args.quiet {
            note(format_args!("No complete run of this suite is stored: {first} show first how trials scatter here"));
        }
        let begin = Instant::now();
        let mut trials = Vec::new();
        for block in 0..first.blocks {
            // What takes longer than was thought is not worth it.
            if block > 1 && begin.elapsed() > first.most {
                break;
            }
            for index in order(bench.seed, block, suite.scenarios.len()) {
                let scenario = &suite.scenarios[index];
                if bench.is_left_out(&scenario.id) {
                    continue;
                }
                let made = measured(bench.rig.trial(scenario, block + 1, &first.timing, &mut |_, _| ()));
                let made = made.and_then(|(record, afterwards)| {
                    trials.push(TrialRecord { block: Some(block + 1), ..record });
                    afterwards
                });
                match made {
                    Err(error) if ends_runs(&error) => {
                        return Err(error.context(format!("first block {} of {}", block + 1, scenario.id)).into());
                    }
                    Err(error) if block == 0 => add(&mut bench.left_out, &scenario.id, one_line(&error)),
                    // One that failed later has shown how it scatters, and the run tells whether it fails again.
                    Ok(()) | Err(_) => {}
                }
            }
        }
        suite.scenarios.retain(|scenario| !bench.is_left_out(&scenario.id));
        let learnt = ForecastBasis::FirstBlocks(trials.len());
        Ok(Self { trials, learnt })
    }
}

/// Which trials are made, how long they are and how often they are repeated.
pub struct Schedule {
    pub suite: Suite,
    pub timing: Timing,
    pub forecast: Option<Forecast>,
    /// The scenario that is measured twice in each block, to check the judge of the claims.
    pub aa: Option<String>,
}

impl Schedule {
    /// As was asked for, or as a time is best spent.
    pub fn plan(args: &RunArgs, selection: &Selection, past: &PastTrials) -> Result<Self, Failure> {
        Self::of(args, selection.suite.clone(), selection.timing, past)
    }

    fn of(args: &RunArgs, suite: Suite, asked: Timing, past: &PastTrials) -> Result<Self, Failure> {
        let Some(time) = args.budget else { return Ok(Self { suite, timing: asked, forecast: None, aa: None }) };
        let window = args.window.map(|window| window.0);
        let forecast =
            Forecast::of(&suite, &asked, time.0, window, &past.trials, past.learnt).or_exit(Exit::BadInput)?;
        Ok(Self { suite, timing: forecast.timing, forecast: Some(forecast), aa: None })
    }

    /// With a scenario measured twice, where there is one to check the judge by and time enough.
    pub fn with_twin(self, args: &RunArgs, selection: &Selection, past: &PastTrials) -> Self {
        let id = self.suite.twin(&self.timing).map(|scenario| scenario.id.clone());
        let Some(id) = id.filter(|_| !args.no_aa && args.again.is_empty()) else { return self };
        // Within a time, what is measured twice leaves fewer blocks.
        match Self::of(args, self.suite.clone().with_twin(&id), selection.timing, past) {
            Ok(of_both) if of_both.suite.twin(&of_both.timing).is_some() => Self { aa: Some(id), ..of_both },
            _ => self,
        }
    }
}
