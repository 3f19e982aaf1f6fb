//! Carries a programme out: says to the loads what changes when, tells datapaths what they are to do, reads the counters at
//! the edges of phases and samples between them.
//!
//! What is to change is said ahead of its moment, because the threads that are to know it may be without a CPU just then.
//! Where a phase ends when something has come about, the moment lies a little after it was seen. Datapaths are told when the
//! counters at the edge have been read, so that nothing of what they do belongs to the phase before.

use std::time::Duration;

use anyhow::{Context, Result};
use rig_facts::claim::{Metric, Side};
use rig_facts::programme::{Command, Phase, PhaseLength, Programme, ScenarioLoad, WaitCondition};
use rig_facts::record::{CommandRecord, PhaseEnd};
use rig_load::driver::LEAD_OF_COMMANDS;

/// How long before a phase of known length ends its end is said.
const NOTICE: Duration = Duration::from_millis(60);

/// What carries the loads: a testbed with its workers, or in tests a fake with a clock of its own.
pub(super) trait UnderLoad {
    /// CLOCK_MONOTONIC.
    fn now_ns(&self) -> u64;

    fn wait_until(&mut self, at_ns: u64) -> Result<()>;

    /// Has a load go on with this rate from `at_ns` on.
    fn set_rate(&mut self, load: ScenarioLoad, rate: f64, at_ns: u64);

    /// Has the workers' next phase begin at `at_ns`.
    fn mark(&mut self, at_ns: u64);

    /// Has the window end at `at_ns`.
    fn end_at(&mut self, at_ns: u64);

    /// Has agents do something now, and hears what they answer.
    fn command(&mut self, command: &Command) -> Result<CommandRecord>;

    /// Reads all counters: an edge of a phase.
    fn read(&mut self) -> Result<()>;

    /// Reads what is sampled.
    fn sample(&mut self) -> Result<()>;

    /// A figure over the last interval; `None` before there was one.
    fn figure(&self, side: Side, metric: Metric) -> Option<f64>;
}

/// What came of a phase.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PhaseResult {
    pub ended: PhaseEnd,
    /// What datapaths answered when it began.
    pub commands: Vec<CommandRecord>,
}

/// Carries `programme` out in a window that begins at `begin_ns`: `window` is how long a phase takes that does not say it,
/// `limit` what its rates are shares of. Loads have begun with what the first phase says, and datapaths answered `before`
/// that to its commands.
pub(super) fn carry_out(
    stage: &mut impl UnderLoad,
    programme: &Programme,
    begin_ns: u64,
    window: Duration,
    limit: f64,
    before: Vec<CommandRecord>,
) -> Result<Vec<PhaseResult>> {
    let planned_ns = begin_ns + ns(programme.longest(window));
    let mut samples = Samples::new(programme.sample, begin_ns);
    stage.wait_until(begin_ns)?;
    stage.read()?;
    let mut at_ns = begin_ns;
    let mut commands = before;
    let mut outcomes = Vec::with_capacity(programme.phases.len());
    let mut rest = programme.phases.as_slice();
    while let [phase, following @ ..] = rest {
        let (end_ns, ended) = match &phase.lasts {
            PhaseLength::Until(wait) => wait_for(stage, &mut samples, wait, at_ns)?,
            lasts => {
                let end_ns = at_ns + ns(lasts.at_most(window));
                samples.until(stage, end_ns.saturating_sub(ns(NOTICE)).max(at_ns))?;
                (end_ns, PhaseEnd::Time)
            }
        };
        match following.first() {
            Some(next) => announce(stage, next, end_ns, limit),
            None if end_ns != planned_ns => stage.end_at(end_ns),
            None => {}
        }
        samples.until(stage, end_ns)?;
        stage.read()?;
        outcomes.push(PhaseResult { ended, commands });
        commands = match following.first() {
            Some(next) => tell(stage, next, begin_ns)?,
            None => Vec::new(),
        };
        (at_ns, rest) = (end_ns, following);
    }
    samples.finish(stage, at_ns)?;
    Ok(outcomes)
}

fn announce(stage: &mut impl UnderLoad, phase: &Phase, at_ns: u64, limit: f64) {
    stage.mark(at_ns);
    for (load, rate) in phase.rates() {
        stage.set_rate(load, rate.per_second(limit), at_ns);
    }
}

/// Tells datapaths what they do when `phase` begins. The first refusal ends the trial.
fn tell(stage: &mut impl UnderLoad, phase: &Phase, begin_ns: u64) -> Result<Vec<CommandRecord>> {
    let tell = |command: &Command| {
        let seconds = stage.now_ns().saturating_sub(begin_ns) as f64 / 1e9;
        stage.command(command).with_context(|| format!("begin phase {}, {seconds:.2} s into the window", phase.name))
    };
    phase.commands().map(tell).collect()
}

/// Waits until what the phase that began at `at_ns` waits for has come about, and held, or its deadline is near. Gives the
/// moment at which the phase is to end.
fn wait_for(
    stage: &mut impl UnderLoad,
    samples: &mut Samples,
    wait: &WaitCondition,
    at_ns: u64,
) -> Result<(u64, PhaseEnd)> {
    let deadline_ns = at_ns + ns(wait.deadline);
    let lead_ns = ns(LEAD_OF_COMMANDS);
    let condition = wait.condition.text.clone();
    let mut since_ns = None;
    loop {
        let (begin_ns, end_ns) = samples.next();
        if end_ns.saturating_add(lead_ns) >= deadline_ns {
            samples.until(stage, deadline_ns - lead_ns)?;
            return Ok((deadline_ns, PhaseEnd::Deadline { condition, after_us: (deadline_ns - at_ns) / 1000 }));
        }
        samples.until(stage, end_ns)?;
        let figure = stage.figure(wait.condition.side, wait.condition.metric);
        // An interval that began in the phase before says nothing of this one.
        let holds = begin_ns >= at_ns && figure.is_some_and(|value| wait.condition.holds(value));
        since_ns = if holds { since_ns.or(Some(end_ns)) } else { None };
        if let Some(from_ns) = since_ns.filter(|from_ns| end_ns - from_ns >= ns(wait.hold)) {
            let at = (stage.now_ns().max(end_ns) + lead_ns).min(deadline_ns);
            return Ok((at, PhaseEnd::Reached { condition, after_us: (from_ns - at_ns) / 1000 }));
        }
    }
}

/// When to sample: on a grid that begins with the window. Moments that were missed are left out.
struct Samples {
    /// 0: never.
    step_ns: u64,
    last_ns: u64,
    next_ns: u64,
}

impl Samples {
    fn new(step: Option<Duration>, begin_ns: u64) -> Self {
        let step_ns = step.map_or(0, ns);
        let next_ns = if step_ns == 0 { u64::MAX } else { begin_ns + step_ns };
        Self { step_ns, last_ns: begin_ns, next_ns }
    }

    /// The interval whose end is sampled next.
    fn next(&self) -> (u64, u64) {
        (self.last_ns, self.next_ns)
    }

    /// Waits until `at_ns` and samples meanwhile.
    fn until(&mut self, stage: &mut impl UnderLoad, at_ns: u64) -> Result<()> {
        while self.next_ns <= at_ns {
            stage.wait_until(self.next_ns)?;
            stage.sample()?;
            let missed = stage.now_ns().saturating_sub(self.next_ns) / self.step_ns;
            self.last_ns = self.next_ns + missed * self.step_ns;
            self.next_ns = self.last_ns + self.step_ns;
        }
        stage.wait_until(at_ns)
    }

    /// The rest of an interval that the window's end cut off.
    fn finish(&mut self, stage: &mut impl UnderLoad, end_ns: u64) -> Result<()> {
        if self.step_ns > 0 && self.last_ns < end_ns { stage.sample() } else { Ok(()) }
    }
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
