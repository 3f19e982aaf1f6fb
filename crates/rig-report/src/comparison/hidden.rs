//! Changes that the trials of two runs show and the verdict does not: what the noise floor hides.

use rig_facts::claim::Metric;
use rig_stats::compare::{Kind, Verdict};
use rig_verdict::compare::{Comparison, FigureComparison};

use super::{change, look, place};
use crate::document::Block;

/// A noise floor beyond this ratio is not what repetitions of a rate or of CPU time differ by.
const PLAUSIBLE: f64 = 2.0;

/// Undecided figures whose interval excludes no change.
pub(super) fn apart(comparison: &Comparison) -> usize {
    let is_apart = |figure: &&FigureComparison| {
        let Some(effect) = figure.effect else { return false };
        let none = if effect.kind == Kind::Ratio { 1.0 } else { 0.0 };
        figure.verdict == Verdict::Undecided
            && (effect.low.is_some_and(|low| low > none) || effect.high.is_some_and(|high| high < none))
    };
    comparison.figures.iter().filter(is_apart).count()
}

/// Disturbed runs that are named at most; all are in the data.
const NAMED: usize = 8;

/// Runs that the noise floor goes without because they were disturbed.
pub(super) fn disturbed(comparison: &Comparison) -> Option<String> {
    let runs = &comparison.noise.disturbed;
    let more = match runs.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (!runs.is_empty()).then(|| {
        format!(
            "Not in the noise floor, since most trials of a scenario were disturbed from outside: {} {}{more}.",
            if runs.len() == 1 { "run" } else { "runs" },
            runs.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ")
        )
    })
}

/// Each change that the noise floor alone hides, with the runs that the floor comes from and what would decide.
pub(super) fn blocks(comparison: &Comparison, level: u8) -> Vec<Block> {
    let hidden = comparison.figures.iter().filter(|figure| !figure.noise_runs.is_empty());
    let items: Vec<String> =
        hidden.map(|figure| format!("{}: {}; {}", place(figure), change(figure), floor(figure))).collect();
    if items.is_empty() {
        return Vec::new();
    }
    vec![
        Block::heading(level, "Within the noise floor"),
        Block::List { items },
        Block::paragraph(
            "What decides: `netrig ab` measures both in turn and needs no history. A run that should not count is removed with \
             `netrig history --delete RUN`.",
        ),
    ]
}

fn floor(figure: &FigureComparison) -> String {
    let shown = look(figure);
    let runs = figure.noise_runs.iter();
    let runs: Vec<String> = runs.map(|run| format!("run {} {}", run.run, shown.readable(run.mean))).collect();
    let floor = figure.effect.and_then(|effect| Some((effect.kind, effect.noise_floor?)));
    let (amount, is_fault) = match floor {
        Some((Kind::Ratio, ratio)) => {
            (format!("{:.1} %", 100.0 * (ratio - 1.0)), ratio > PLAUSIBLE && is_steady(figure))
        }
        Some((Kind::Difference, size)) => (shown.readable(size), false),
        None => (String::from("as much"), false),
    };
    let fault = if is_fault {
        ". So much is no noise of this figure but a fault of the history: see which of these runs differs"
    } else {
        ""
    };
    format!("runs under the same conditions differ by up to {amount} ({}){fault}", runs.join(", "))
}

/// Whether repetitions of the figure are about the same: of rare events and tails of latency they need not be.
fn is_steady(figure: &FigureComparison) -> bool {
    figure.metric.parse().is_ok_and(|metric| {
        matches!(
            metric,
            Metric::Throughput
                | Metric::Transactions
                | Metric::Datagrams
                | Metric::Cpu
                | Metric::ServiceDemand
                | Metric::TransactionDemand
        )
    })
}
