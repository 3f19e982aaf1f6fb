//! Benchmarks by a standard, in the tables that the standards ask for.

use rig_facts::record::{BenchmarkRecord, TrialRecord};
use rig_packet::benchmark::{FrameTrial, NoBursts, Purpose, Standard, Test};
use rig_packet::mlrsearch::{Goal, GoalResult, trials_max};
use rig_stats::sample::{Bound, Sample};
use rig_stats::units::counted;
use rig_verdict::view::RunView;

use crate::document::{Axis, Block, Cell, Chart, Column, Label, Line, Lines, Number, Row, Table};

pub(super) const METHOD: &str = "evenly spaced frames of one size go one way, and are counted at both ends from the first to the last; a load that \
     was not sent in its time counts as lost (RFC 9971, 4.9.1). The highest load that upholds the loss ratio is searched in short \
     trials, and confirmed in whole windows";

/// A trial of benchmarks.
struct Case<'a> {
    /// Of its rows.
    label: String,
    record: &'a BenchmarkRecord,
}

impl Case<'_> {
    fn bits(&self, rate: f64) -> f64 {
        rate * f64::from(self.record.frame) * 8.0
    }
}

fn cases(view: &RunView) -> Vec<Case<'_>> {
    let sizes = view.scenarios.iter().flat_map(|scenario| &scenario.trials);
    let mut frames: Vec<u32> = sizes.filter_map(|trial| trial.benchmark.as_ref()).map(|record| record.frame).collect();
    let all = frames.len();
    frames.sort_unstable();
    frames.dedup();
    // A size says which scenario it is, unless several have it.
    let by_size = frames.len() == all;
    let of_scenario = view.scenarios.iter().flat_map(move |scenario| {
        let several = scenario.trials.len() > 1;
        scenario.trials.iter().filter_map(move |trial| {
            let record = trial.benchmark.as_ref()?;
            let label = match (by_size, several) {
                (true, _) => format!("{} bytes", record.frame),
                (false, false) => scenario.id.clone(),
                (false, true) => format!("{} #{}", scenario.id, trial.ordinal),
            };
            Some(Case { label, record })
        })
    });
    of_scenario.collect()
}

/// The tables; none where nothing was benchmarked.
pub(super) fn tables(view: &RunView) -> Vec<Block> {
    let cases = cases(view);
    let all = [
        throughput(&cases),
        goals(&cases),
        latency(&cases),
        frame_loss(&cases),
        back_to_back(&cases),
        recovery(&cases),
    ];
    all.into_iter().flatten().map(Block::Table).collect()
}

/// What RFC 2544 asks for as graphs.
pub(super) fn charts(view: &RunView) -> Vec<Block> {
    let cases = cases(view);
    let by_size = |value: &dyn Fn(&BenchmarkRecord) -> Option<f64>| {
        let point = |case: &Case<'_>| Some((f64::from(case.record.frame), value(case.record)?));
        let mut points: Vec<(f64, f64)> = cases.iter().filter_map(point).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points
    };
    let lines = [
        ("throughput", by_size(&BenchmarkRecord::throughput)),
        ("maximum", by_size(&|record| Some(record.max.nominal()))),
    ];
    let is_one_each = lines[0].1.windows(2).all(|pair| pair[0].0 < pair[1].0);
    let mut charts = Vec::new();
    if lines[0].1.len() > 1 && is_one_each {
        charts.push(Lines {
            title: "Throughput by frame size".to_owned(),
            x: Axis::new("Frame size", "bytes"),
            y: Axis::new("Frame rate", "1/s"),
            lines: lines.into_iter().map(|(label, points)| Line { label: label.to_owned(), points }).collect(),
        });
    }
    let curve = |case: &Case<'_>| {
        let of = case.record.max.nominal();
        let mut points: Vec<(f64, f64)> =
            case.record.results.frame_loss.iter().map(|at| (100.0 * at.rate / of, 100.0 * at.loss_ratio())).collect();
        points.reverse();
        Line { label: case.label.clone(), points }
    };
    let curves: Vec<Line> = cases.iter().map(curve).filter(|line| line.points.len() > 1).collect();
    if !curves.is_empty() {
        charts.push(Lines {
            title: "Frame loss rate".to_owned(),
            x: Axis::new("Frame rate offered", "% of the maximum"),
            y: Axis::new("Frames lost", "%"),
            lines: curves,
        });
    }
    charts.into_iter().map(|lines| Block::Figure(Chart::Lines(lines))).collect()
}

fn table(caption: &str, columns: Vec<Column>, rows: Vec<Row>) -> Option<Table> {
    let filled = !rows.is_empty();
    filled.then(|| Table { columns, rows, ..Table::new(caption, "Frames of") })
}

fn number(label: &str, unit: &str) -> Column {
    Column::number(Label::new(label), Some(unit))
}

fn row(case: &Case<'_>, cells: Vec<Cell>) -> Row {
    Row { label: case.label.clone(), unit: None, cells }
}

/// A rate that may be the generator's.
fn rate(case: &Case<'_>, rate: f64, decimals: u8) -> Cell {
    let bound = case.record.is_generator_bound().then_some(Bound::AtLeast);
    Number::new(rate, decimals).with_bound(bound).into()
}

fn throughput(cases: &[Case<'_>]) -> Option<Table> {
    let of_case = |case: &Case<'_>| {
        let max = case.record.max.nominal();
        let cells = match case.record.throughput() {
            None => vec![Cell::missing("no load was upheld"); 3],
            Some(held) => {
                vec![rate(case, held, 0), rate(case, case.bits(held) / 1e6, 0), rate(case, 100.0 * held / max, 1)]
            }
        };
        row(case, [cells, vec![Cell::number(max, 0)]].concat())
    };
    let columns = vec![
        number("Throughput", "1/s"),
        number("Frames' bits", "Mbit/s"),
        number("Of the maximum", "%"),
        number("Maximum", "1/s"),
    ];
    let rfc2544 = |case: &&Case<'_>| case.record.plan.standard == Standard::Rfc2544;
    let is_rfc2544 = cases.iter().all(|case| rfc2544(&case));
    let is_rfc2544 = is_rfc2544 && cases.iter().all(|case| case.record.plan.goals.len() == 1);
    let caption = if is_rfc2544 { "Throughput (RFC 2544, 26.1)" } else { "Throughput at the first goal (RFC 9971)" };
    let mut table = table(caption, columns, cases.iter().map(of_case).collect())?;
    let is_line = cases.iter().all(|case| case.record.max.line.is_some());
    let maximum = match is_line {
        true => "The maximum is that of the link: 20 bytes are between two frames (RFC 2544, appendix B).",
        false => "The link has no rate: the maximum is what the generator carries with nothing between its ends.",
    };
    table.notes.push(maximum.to_owned());
    table.notes.push(
        "No learning frames are sent before a trial, and nothing rests for 2 and 5 s around it (RFC 2544, 23): the ends of each are \
         started anew."
            .to_owned(),
    );
    let irregular = |case: &&Case<'_>| {
        !case.record.is_generator_bound() && case.record.results.goals.first().is_some_and(|goal| !goal.regular)
    };
    let irregular: Vec<String> =
        cases.iter().filter(irregular).map(|case| format!("{} ({})", case.label, result(case, 0))).collect();
    table.notes.extend((!irregular.is_empty()).then(|| format!("Irregular: {}.", irregular.join("; "))));
    let mut deviations: Vec<String> = cases.iter().flat_map(|case| case.record.plan.deviations()).collect();
    deviations.sort();
    deviations.dedup();
    table.notes.extend(
        (!deviations.is_empty()).then(|| format!("Less than the standard asks for: {}.", deviations.join("; "))),
    );
    if cases.iter().any(|case| case.record.results.is_held_back()) {
        let text = "At the next higher load nothing was lost, but the sender did not send it in time: what the path does is \
                    done on the sender's CPU, or the sender lacks one.";
        table.notes.push(text.to_owned());
    }
    for (why, text) in [
        (NoBursts::MaximumUpheld, "what can be sent at most is forwarded (RFC 9004, 5)"),
        (NoBursts::MaximumNotOffered, "the generator does not send bursts at the maximum rate over this path"),
    ] {
        let without = |case: &&Case<'_>| {
            let record = case.record;
            record.plan.tests.contains(&Test::BackToBack) && record.results.no_bursts(record.max) == Some(why)
        };
        let without: Vec<&str> = cases.iter().filter(without).map(|case| case.label.as_str()).collect();
        table.notes.extend(
            (!without.is_empty()).then(|| format!("No back-to-back frames of {}: {text}.", without.join(", "))),
        );
    }
    Some(table)
}

fn goals(cases: &[Case<'_>]) -> Option<Table> {
    // That of RFC 2544 has a table of its own.
    let is_plain = |case: &Case<'_>| {
        let tolerates = |goal: &Goal| goal.loss_ratio > 0.0 || goal.exceed_ratio > 0.0;
        case.record.plan.standard == Standard::Rfc2544
            && matches!(case.record.plan.goals.as_slice(), [goal] if !tolerates(goal))
    };
    let cases = cases.iter().filter(|case| !is_plain(case));
    let of_case = |case| (0..case_goals(case)).map(move |n| goal(case, n));
    let rows = cases.flat_map(of_case).collect();
    let columns = vec![
        number("Loss ratio", "%"),
        number("Exceed ratio", "%"),
        number("First trial", "s"),
        number("Trial", "s"),
        number("Duration sum", "s"),
        number("Width", "%"),
        number("Lower bound", "1/s"),
        number("Upper bound", "1/s"),
        number("Conditional throughput", "1/s"),
        Column::text(Label::new("Result")),
    ];
    let mut table = table("Search goals (RFC 9971)", columns, rows)?;
    table
        .notes
        .push("Loads are of one interface and one direction. The width is relative to the upper bound.".to_owned());
    Some(table)
}

fn case_goals(case: &Case<'_>) -> usize {
    case.record.results.goals.len()
}

/// Whether the nth goal's result is regular, and why not.
fn result(case: &Case<'_>, n: usize) -> &'static str {
    let results = &case.record.results;
    let made = results.trials.iter().filter(|trial| trial.purpose == Purpose::Search).count();
    let Some(GoalResult { lower, upper, regular, .. }) = results.goals.get(n) else { return "not searched" };
    match (regular, lower, upper) {
        (true, ..) => "regular",
        _ if made >= trials_max(&case.record.plan.goals) => "irregular: too many trials were needed",
        (false, None, _) => "irregular: the least load was not upheld",
        (false, Some(_), None) => "irregular: the most that can be sent was upheld",
        (false, Some(_), Some(_)) => "irregular: the bounds are further apart than the width",
    }
}

fn goal(case: &Case<'_>, n: usize) -> Row {
    let GoalResult { goal, lower, upper, conditional_throughput, .. } = &case.record.results.goals[n];
    let bound = |load: &Option<f64>, why: &str| load.map_or_else(|| Cell::missing(why), |load| Cell::number(load, 0));
    row(
        case,
        vec![
            Cell::number(goal.loss_ratio * 100.0, 2),
            Cell::number(goal.exceed_ratio * 100.0, 0),
            Cell::number(goal.initial_duration, 1),
            Cell::number(goal.final_duration, 1),
            Cell::number(goal.duration_sum, 1),
            Cell::number(goal.width * 100.0, 2),
            bound(lower, "no load was upheld"),
            bound(upper, "all loads were upheld"),
            bound(conditional_throughput, "no load was upheld"),
            Cell::text(result(case, n)),
        ],
    )
}

fn latency(cases: &[Case<'_>]) -> Option<Table> {
    let of_case = |case: &&Case<'_>| {
        let trials = &case.record.results.latency;
        let us = |ns: f64| ns / 1e3;
        let means: Sample = trials.iter().map(|trial| us(trial.mean_ns)).collect::<Vec<_>>().into();
        let max = trials.iter().map(|trial| trial.max_ns).max().unwrap_or(0);
        let bound_us = us(case.record.clock_bound_ns as f64);
        let too_small = means.mean().is_some_and(|mean| mean <= bound_us);
        let time = |value: Option<f64>| match value {
            _ if too_small => {
                Cell::missing(format!("it is less than how well the clocks are known, ±{bound_us:.1} us"))
            }
            Some(us) => Cell::number(us, 1),
            None => Cell::missing("too few frames"),
        };
        let p99: Option<Vec<f64>> = trials.iter().map(|trial| trial.p99_ns.map(|ns| us(ns as f64))).collect();
        let cells = vec![
            case.record.throughput().map_or_else(|| Cell::missing("no throughput"), |held| Cell::number(held, 0)),
            time(means.mean()),
            time(p99.and_then(|all| Sample::from(all).mean())),
            time(Some(us(max as f64))),
        ];
        row(case, cells)
    };
    let has: Vec<&Case<'_>> = cases.iter().filter(|case| !case.record.results.latency.is_empty()).collect();
    let columns = vec![number("Rate", "1/s"), number("Mean", "us"), number("p99", "us"), number("Longest", "us")];
    let mut table = table("Latency at the throughput (RFC 2544, 26.2)", columns, has.iter().map(of_case).collect())?;
    let trials = has.iter().map(|case| case.record.results.latency.len()).max().unwrap_or(0);
    table.notes.push(format!(
        "One way, of all frames of {}, from the pass of the sender's loop that sends one to the end of the receiver's that takes it; \
         the mean of the trials' means and 99th percentiles.",
        counted(trials, "trial", "trials")
    ));
    let bound = has.iter().map(|case| case.record.clock_bound_ns).max().unwrap_or(0);
    table.notes.extend(
        (bound > 0).then(|| format!("The ends have two clocks, which are known to ±{:.1} us.", bound as f64 / 1e3)),
    );
    Some(table)
}

fn frame_loss(cases: &[Case<'_>]) -> Option<Table> {
    let percent = |case: &Case<'_>, at: &FrameTrial| (100.0 * at.rate / case.record.max.nominal()).round() as u32;
    let has = || cases.iter().filter(|case| !case.record.results.frame_loss.is_empty());
    let mut shares: Vec<u32> =
        has().flat_map(|case| case.record.results.frame_loss.iter().map(move |at| percent(case, at))).collect();
    shares.sort_unstable_by(|a, b| b.cmp(a));
    shares.dedup();
    let of_case = |case: &Case<'_>| {
        let cell = |share: &u32| {
            let found = case.record.results.frame_loss.iter().find(|at| percent(case, at) == *share);
            match found {
                Some(at) if at.is_short() => Cell::number(100.0 * at.loss_ratio(), 2),
                Some(at) => Cell::number(100.0 * at.loss_ratio(), 3),
                None if f64::from(*share) / 100.0 * case.record.max.nominal() > case.record.max.generator => {
                    Cell::missing("the generator cannot send it")
                }
                None => Cell::missing("two higher loads lost nothing"),
            }
        };
        row(case, shares.iter().map(cell).collect())
    };
    let columns = shares.iter().map(|share| number(&format!("{share} %"), "% lost")).collect();
    let mut table = table("Frame loss rate (RFC 2544, 26.3)", columns, has().map(of_case).collect())?;
    table.notes.push(
        "By the share of the maximum that was to be sent; what was not sent in its time counts as lost.".to_owned(),
    );
    Some(table)
}

fn back_to_back(cases: &[Case<'_>]) -> Option<Table> {
    let of_case = |case: &Case<'_>| {
        let found = case.record.results.back_to_back.as_ref()?;
        let (mean, least, most, deviation) = found.summary()?;
        let (max, held) = (case.record.max.nominal(), case.record.throughput()?);
        let (implied, corrected) = found.buffer_time(max, held)?;
        let bound = (found.unbounded > 0).then_some(Bound::AtLeast);
        let bounded = |value: f64, decimals| Cell::from(Number::new(value, decimals).with_bound(bound));
        let cells = vec![
            bounded(mean, 0),
            Cell::number(least as f64, 0),
            bounded(most as f64, 0),
            Cell::number(deviation, 0),
            bounded(implied * 1e3, 3),
            bounded(corrected * 1e3, 3),
        ];
        Some(row(case, cells))
    };
    let columns = vec![
        number("Mean", "frames"),
        number("Least", "frames"),
        number("Most", "frames"),
        number("Deviation", "frames"),
        number("Implied buffer time", "ms"),
        number("Corrected", "ms"),
    ];
    let mut table = table("Back-to-back frames (RFC 9004)", columns, cases.iter().filter_map(of_case).collect())?;
    let tests =
        cases.iter().filter_map(|case| case.record.results.back_to_back.as_ref()).map(|found| found.bursts.len());
    let tests = counted(tests.max().unwrap_or(0), "test", "tests");
    table.notes.push(format!(
        "The longest bursts at the maximum rate without loss, of {tests} by bisection to 2 %. The buffer time is the mean over the \
         maximum frame rate; corrected, less what is forwarded meanwhile (6.4)."
    ));
    Some(table)
}

fn recovery(cases: &[Case<'_>]) -> Option<Table> {
    let of_case = |case: &Case<'_>| {
        let found = &case.record.results.recovery;
        let first = found.first()?;
        let lost: Vec<f64> = found.iter().filter_map(|one| one.seconds).collect();
        let time = match Sample::from(lost.clone()).mean() {
            None => Cell::missing("the overload lost nothing"),
            Some(mean) if mean * 1e9 <= case.record.clock_bound_ns as f64 && case.record.clock_bound_ns > 0 => {
                Cell::missing("it is less than how well the clocks are known")
            }
            Some(mean) => Cell::number(mean * 1e3, 2),
        };
        let cells = vec![
            Cell::number(first.overload, 0),
            Cell::number(first.reduced, 0),
            time,
            Cell::number(lost.len() as f64, 0),
        ];
        Some(row(case, cells))
    };
    let columns =
        vec![number("Overload", "1/s"), number("Reduced to", "1/s"), number("Recovery", "ms"), number("Of trials", "")];
    let mut table = table("System recovery (RFC 2544, 26.5)", columns, cases.iter().filter_map(of_case).collect())?;
    table.notes.push(
        "From when the rate is reduced until the last frame that is lost was sent, as numbers that are missing tell; the mean of the \
         trials whose overload lost something. A frame that comes late counts as lost."
            .to_owned(),
    );
    Some(table)
}

/// All streams of a trial, in their order.
pub(super) fn trail(trial: &TrialRecord) -> Option<Table> {
    let record = trial.benchmark.as_ref()?;
    let mut table = Table::new(format!("Benchmarks of trial {}", trial.ordinal), "Stream");
    table.columns = vec![
        Column::text(Label::new("For")),
        number("Load", "1/s"),
        number("Time", "s"),
        number("Sent", "frames"),
        number("Received", "frames"),
        number("Lost", "%"),
    ];
    let row = |(n, at): (usize, &FrameTrial)| Row {
        label: (n + 1).to_string(),
        unit: None,
        cells: vec![
            Cell::text(purpose(at.purpose)),
            Cell::number(at.rate, 0),
            Cell::number(at.seconds, 3),
            Cell::number(at.sent as f64, 0),
            Cell::number(at.received as f64, 0),
            Cell::number(100.0 * at.loss_ratio(), 3),
        ],
    };
    table.rows = record.results.trials.iter().enumerate().map(row).collect();
    table.notes = vec![format!("The generator's own limit is {:.0} frames/s.", record.max.generator)];
    Some(table)
}

fn purpose(of: Purpose) -> &'static str {
    match of {
        Purpose::Search => "throughput",
        Purpose::Latency => "latency",
        Purpose::FrameLoss => "frame loss rate",
        Purpose::BackToBack => "back-to-back frames",
        Purpose::Recovery => "system recovery",
    }
}
