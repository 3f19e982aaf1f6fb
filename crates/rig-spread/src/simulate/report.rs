//! What came of scenarios under rules, as values and as a table for a terminal.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::rules::Rule;
use super::run::{Sample, SimulationResult, run};
use super::scenario::Scenario;
use crate::event::Move;

/// A scenario under a rule, in figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub scenario: String,
    pub title: String,
    pub rule: Rule,
    /// Seed of everything random in it.
    pub seed: u64,
    /// Means over time: CPUs at work, and CPUs that would do.
    pub cpus: f64,
    pub oracle: f64,
    /// `cpus` divided by `oracle`; 1 where both are nil.
    pub ratio: f64,
    /// Mean throughput in bits per second, and its share of what was possible.
    pub bits: f64,
    pub carried: f64,
    /// Share of packets dropped.
    pub lost: f64,
    pub moves: u32,
    /// Moves of entries with traffic, per minute.
    pub paid_per_minute: f64,
    /// Moves in the last half minute of the last phase that was constant for long.
    pub late_moves: Option<u32>,
    /// The time in ns that 99 of 100 packets waited at most.
    pub waited: f64,
    /// CPU seconds per second, other work included.
    pub cores: f64,
    /// Of the last change to a higher load, in ms.
    pub t95: Option<u64>,
}

/// A scenario under a rule, over time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SimulationTimeline {
    pub scenario: String,
    pub rule: Rule,
    pub samples: Vec<Sample>,
    /// In ms since the beginning.
    pub moves: Vec<(u64, Move)>,
    pub events: Vec<(u64, String)>,
}

/// A rule over all scenarios.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Mean {
    pub rule: Rule,
    /// Mean of the ratios of CPUs at work to those that would do, and of the shares of throughput.
    pub ratio: f64,
    pub carried: f64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    pub rows: Vec<Row>,
    pub means: Vec<Mean>,
    pub courses: Vec<SimulationTimeline>,
}

/// Runs every scenario under every rule. `courses`: also over time, which is much.
pub fn report(scenarios: &[Scenario], rules: &[Rule], courses: bool) -> Report {
    let mut report = Report::default();
    for scenario in scenarios {
        for rule in rules {
            report.add(scenario, run(scenario, *rule), courses);
        }
    }
    report
}

impl Row {
    pub fn of(scenario: &Scenario, outcome: &SimulationResult) -> Self {
        let seconds = scenario.length as f64 / 1000.0;
        let free = if outcome.free_seconds > 0.0 { outcome.free_seconds } else { seconds };
        let mut rises = outcome.phases.windows(2).filter(|pair| pair[1].bits > pair[0].bits * 1.2);
        Self {
            scenario: scenario.name.clone(),
            title: scenario.title.clone(),
            rule: outcome.rule,
            seed: scenario.seed,
            cpus: outcome.cpu_seconds / free,
            oracle: outcome.oracle_seconds / free,
            ratio: outcome.ratio(),
            bits: outcome.bits / seconds,
            carried: outcome.carried(),
            lost: outcome.lost,
            moves: outcome.moves,
            paid_per_minute: f64::from(outcome.paid) / seconds * 60.0,
            late_moves: outcome.phases.iter().rev().find_map(|phase| phase.late_moves),
            waited: outcome.waited,
            cores: outcome.busy_seconds / seconds,
            t95: rises.next_back().and_then(|pair| pair[1].t95),
        }
    }
}

impl Report {
    pub fn add(&mut self, scenario: &Scenario, outcome: SimulationResult, course: bool) {
        self.rows.push(Row::of(scenario, &outcome));
        if course {
            let SimulationResult { rule, samples, moved, events, .. } = outcome;
            self.courses.push(SimulationTimeline {
                scenario: scenario.name.clone(),
                rule,
                samples,
                moves: moved,
                events,
            });
        }
        self.means = Rule::ALL.into_iter().filter_map(|rule| self.mean(rule)).collect();
    }

    fn mean(&self, rule: Rule) -> Option<Mean> {
        let rows: Vec<&Row> = self.rows.iter().filter(|row| row.rule == rule).collect();
        let count = rows.len() as f64;
        let mean = |of: fn(&Row) -> f64| rows.iter().map(|row| of(row)).sum::<f64>() / count;
        (!rows.is_empty()).then(|| Mean { rule, ratio: mean(|row| row.ratio), carried: mean(|row| row.carried) })
    }
}

/// A table of at most 80 columns.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut scenario = "";
        for row in &self.rows {
            if row.scenario != scenario {
                if !scenario.is_empty() {
                    writeln!(f)?;
                }
                scenario = &row.scenario;
                writeln!(f, "{} {} (seed {})", row.scenario, row.title, row.seed)?;
                writeln!(
                    f,
                    "  {:<11} {:>5} {:>5} {:>5} {:>7} {:>6} {:>6} {:>7} {:>7} {:>5}",
                    "rule", "CPUs", "best", "ratio", "Gbit/s", "carry", "lost", "moves/m", "p99 us", "cores"
                )?;
            }
            writeln!(
                f,
                "  {:<11} {:>5.2} {:>5.2} {:>5.2} {:>7.2} {:>5.1}% {:>5.2}% {:>7.1} {:>7.0} {:>5.2}",
                row.rule.name(),
                row.cpus,
                row.oracle,
                row.ratio,
                row.bits / 1e9,
                row.carried * 100.0,
                row.lost * 100.0,
                row.paid_per_minute,
                row.waited / 1000.0,
                row.cores
            )?;
        }
        if self.rows.iter().any(|row| row.scenario != scenario) {
            writeln!(f, "\nmean over scenarios")?;
            for mean in &self.means {
                writeln!(
                    f,
                    "  {:<11} CPUs to the fewest that do {:>5.2}   carried {:>5.1}%",
                    mean.rule.name(),
                    mean.ratio,
                    mean.carried * 100.0
                )?;
            }
        }
        Ok(())
    }
}
