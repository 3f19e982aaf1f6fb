//! A comparison as a report.

mod hidden;
mod layers;
#[cfg(test)]
mod tests;

use rig_facts::claim::{Metric, Statistic};
use rig_facts::record::pace;
use rig_stats::compare::{Kind, Verdict};
use rig_stats::sample::Bound;
use rig_stats::units::counted;
use rig_suite::ends::SUITES;
use rig_verdict::compare::{Comparison, EffectData, FigureComparison, OtherMachine, RunRef, SampleData, TwoModesData};

use crate::build::doubts::in_words;
use crate::build::{capitalised, decimals, name, shown as in_unit, time, unit};
use crate::document::{Block, Cell, Column, Document, Headline, Interval, Label, Number, Row, Table};

/// The whole report of a comparison.
pub fn document(comparison: &Comparison) -> Document {
    let Comparison { old, new, .. } = comparison;
    Document {
        title: format!("{} against {}", capitalised(&new.name), old.name),
        headline: Some(Headline { question: None, answer: answer(comparison), caution: caution(comparison) }),
        summary: summary(comparison),
        lead: ratios(comparison).into_iter().chain(changes(comparison, 2)).collect(),
        blocks: blocks(comparison, 2),
        details: details(comparison, 2),
        data: serde_json::to_value(comparison).expect("strings, numbers and lists have a form in JSON"),
    }
}

/// What the new run has of the old one's results and costs, as ratios with their intervals, of tests between two machines that took
/// turns: they have a few figures, and ask for nothing else.
fn ratios(comparison: &Comparison) -> Vec<Block> {
    if comparison.blocks.is_none() || !SUITES.contains(&comparison.new.suite.as_str()) {
        return Vec::new();
    }
    let is_told = |metric| {
        use Statistic::{P50, P99};
        matches!(
            metric,
            Metric::Throughput
                | Metric::Transactions
                | Metric::Datagrams
                | Metric::ServiceDemand
                | Metric::TransactionDemand
                | Metric::Latency(P50 | P99)
        )
    };
    let ratio = |figure: &FigureComparison| {
        let metric = figure.metric.parse::<Metric>().ok().filter(|metric| is_told(*metric))?;
        let effect = figure.effect.filter(|effect| effect.kind == Kind::Ratio)?;
        let sign = effect.bound.map_or("", Bound::sign);
        let ends = match (effect.low, effect.high) {
            (Some(low), Some(high)) => format!(" ({low:.3} to {high:.3})"),
            _ => String::new(),
        };
        Some(format!("{}, {}: {sign}{:.3}{ends}", name(metric), figure.side, effect.value))
    };
    let items: Vec<String> = comparison.figures.iter().filter_map(ratio).collect();
    if items.is_empty() {
        return Vec::new();
    }
    let level = comparison.method.confidence_level_percent;
    let words = format!("New as a ratio of old, with its {level} % confidence interval:");
    vec![Block::paragraph(words), Block::List { items }]
}

/// Adds a comparison to the report of its new run.
pub fn append(document: &mut Document, comparison: &Comparison) {
    document.lead.push(Block::heading(2, format!("Against {}", comparison.old.name)));
    document.lead.push(Block::paragraph(answer(comparison)));
    document.lead.extend(caution(comparison).map(Block::warning));
    document.lead.extend(changes(comparison, 3));
    document.blocks.push(Block::heading(2, format!("What differs from {}", comparison.old.name)));
    document.blocks.push(Block::List { items: summary(comparison) });
    document.blocks.extend(blocks(comparison, 3));
    document.details.push(Block::heading(2, format!("Figure by figure against {}", comparison.old.name)));
    document.details.extend(details(comparison, 3));
    document.data["comparison"] =
        serde_json::to_value(comparison).expect("strings, numbers and lists have a form in JSON");
}

/// Says in the report of a run why it could not be compared with the run of that name.
pub fn append_failure(document: &mut Document, old: &str, why: &str) {
    document.lead.push(Block::warning(format!("Not compared with {old}: {why}")));
    let why = format!("not compared with {old}: {why}");
    // What failed before is there.
    let error = &mut document.data["error"];
    *error = error.as_str().map_or_else(|| why.clone(), |before| format!("{before}; then: {why}")).into();
}

/// `2 of 14 figures are worse, 1 is better; 8 are the same, 3 are undecided.`
fn answer(comparison: &Comparison) -> String {
    let totals = comparison.totals;
    let all = comparison.figures.len();
    if all == 0 {
        return "No figure was measured in either run.".to_owned();
    }
    let list = |parts: &[(usize, &str)]| -> Vec<String> {
        let known = parts.iter().filter(|(n, _)| *n > 0);
        known.map(|(n, word)| format!("{} {word}", counted(*n, "is", "are"))).collect()
    };
    let changed = list(&[(totals.worse, "worse"), (totals.better, "better")]);
    let rest = list(&[(totals.same, "the same"), (totals.undecided, "undecided")]);
    let figures = counted(all, "figure", "figures");
    match (changed.is_empty(), rest.is_empty()) {
        (true, _) if hidden::apart(comparison) > 0 => format!(
            "No change is decided, but {} by more than chance: of {figures} {}.",
            counted(hidden::apart(comparison), "figure differs", "figures differ"),
            rest.join(", ")
        ),
        (true, _) => format!("No change was found: of {figures} {}.", rest.join(", ")),
        (false, true) => format!("Of {figures} {}.", changed.join(", ")),
        (false, false) => format!("Of {figures} {}; {}.", changed.join(", "), rest.join(", ")),
    }
}

fn caution(comparison: &Comparison) -> Option<String> {
    let decided = comparison.totals.better + comparison.totals.worse;
    let unknown = (comparison.blocks.is_none() && decided > 0 && !knows_noise(comparison)).then(|| {
        "How much two runs of the same thing differ is not known: that needs 3 complete runs under the same conditions. \
         The machine itself may have caused this change."
            .to_owned()
    });
    let left_out = left_out(comparison).map(|runs| format!("Not in the noise floor: {runs}."));
    let words: Vec<String> = unknown.into_iter().chain(left_out).chain(hidden::disturbed(comparison)).collect();
    (!words.is_empty()).then(|| words.join(" "))
}

fn run(which: &str, run: &RunRef) -> String {
    let mut text = format!("{which}: {}", run.name);
    let own_name = format!("run {}", run.id);
    if run.name != own_name {
        text += &format!(" ({own_name} of its store)");
    }
    text += &match &run.tool {
        Some(tool) => format!(" of {tool}, {}", time(run.started_unix_ms)),
        None => format!(" of suite {}, {}", run.suite, time(run.started_unix_ms)),
    };
    if !run.netrig_version.is_empty() {
        text += &format!(", netrig {}", run.netrig_version);
    }
    if let Some(build) = &run.netrig_build {
        text += &format!(" (build {build})");
    }
    if !run.kernel.is_empty() {
        text += &format!(", Linux {}", run.kernel);
    }
    if !run.complete {
        text += ", not complete";
    }
    text
}

fn summary(comparison: &Comparison) -> Vec<String> {
    let turns = comparison.blocks.map(|blocks| {
        let blocks = counted(blocks, "block", "blocks");
        format!(
            "The two took turns, trial by trial: they are compared block by block, {blocks} or more of each scenario"
        )
    });
    turns.into_iter().chain([run("Old", &comparison.old), run("New", &comparison.new)]).collect()
}

/// What changed, worse first; what is not known in a line.
fn changes(comparison: &Comparison, level: u8) -> Vec<Block> {
    let mut blocks = Vec::new();
    for run in [&comparison.old, &comparison.new] {
        if !run.complete {
            let text = format!("{} did not make all its trials: its figures are those it has.", capitalised(&run.name));
            blocks.push(Block::warning(text));
        }
    }
    for (verdict, heading) in [(Verdict::Worse, "Worse"), (Verdict::Better, "Better")] {
        let found = comparison.figures.iter().filter(|figure| figure.verdict == verdict);
        let items: Vec<String> = found.map(|figure| format!("{}: {}", place(figure), change(figure))).collect();
        if !items.is_empty() {
            blocks.push(Block::heading(level, heading));
            blocks.push(Block::List { items });
        }
    }
    blocks.extend(hidden::blocks(comparison, level));
    blocks.extend(layers::blocks(comparison, level));
    let undecided = undecided(comparison);
    if !undecided.is_empty() {
        let n = comparison.totals.undecided;
        let (why, items) = match undecided.as_slice() {
            [(reason, places)] => (format!(": {reason}"), vec![places.clone()]),
            several => {
                let of = |(reason, places): &(String, String)| format!("{}. {places}", capitalised(reason));
                (String::new(), several.iter().map(of).collect())
            }
        };
        blocks.push(Block::Folded {
            summary: format!(
                "{} {} undecided{why}",
                counted(n, "figure", "figures"),
                if n == 1 { "is" } else { "are" }
            ),
            blocks: vec![Block::List { items }],
        });
    }
    if !comparison.differences.is_empty() {
        let names: Vec<&str> = comparison.differences.iter().map(|one| one.what.as_str()).collect();
        blocks.push(Block::paragraph(format!("What else differs: {}.", by_flag(&names).join("; "))));
    }
    blocks
}

/// The differences, of flags one for each with the scenarios of which it flags another number of trials:
/// `in how many trials the hypervisor took CPU time (A, B)`.
fn by_flag(names: &[&str]) -> Vec<String> {
    let mut others = Vec::new();
    let mut flags: Vec<(String, Vec<String>)> = Vec::new();
    for name in names {
        let Some((scenario, flag)) = of_flag(name) else {
            others.push((*name).to_owned());
            continue;
        };
        let (scenario, flag) = (scenario.to_owned(), flag.to_owned());
        match flags.iter_mut().find(|(known, _)| *known == flag) {
            Some((_, scenarios)) => scenarios.push(scenario),
            None => flags.push((flag, vec![scenario])),
        }
    }
    let words =
        |(flag, of): (String, Vec<String>)| format!("in how many trials {} ({})", in_words(&flag), of.join(", "));
    others.extend(flags.into_iter().map(words));
    others
}

/// The scenario and the flag of a difference in how many trials have it.
fn of_flag(what: &str) -> Option<(&str, &str)> {
    what.strip_prefix("Trials of ")?.split_once(" flagged ")
}

fn blocks(comparison: &Comparison, level: u8) -> Vec<Block> {
    let mut blocks = Vec::new();
    if !comparison.doubts.is_empty() {
        blocks.push(Block::heading(level, "Doubts about both"));
        blocks.push(Block::Table(doubts(comparison)));
    }
    blocks.push(Block::heading(level, "What else differs"));
    blocks.extend(differences(comparison));
    blocks
}

/// Each reason once, with the figures it stands for: `The interval … narrow it. A sender throughput, cpu; B …`.
fn undecided(comparison: &Comparison) -> Vec<(String, String)> {
    /// Metrics by scenario and side.
    type Ends = Vec<(String, Vec<String>)>;
    let mut reasons: Vec<(&str, Ends)> = Vec::new();
    for figure in &comparison.figures {
        let Some(reason) = figure.reason.as_deref() else { continue };
        let end = format!("{} {}", figure.scenario, figure.side);
        let index = reasons.iter().position(|(text, _)| *text == reason).unwrap_or_else(|| {
            reasons.push((reason, Vec::new()));
            reasons.len() - 1
        });
        let ends = &mut reasons[index].1;
        match ends.last_mut().filter(|(last, _)| *last == end) {
            Some((_, metrics)) => metrics.push(words(&figure.metric)),
            None => ends.push((end, vec![words(&figure.metric)])),
        }
    }
    let list = |ends: &Ends| {
        ends.iter().map(|(end, metrics)| format!("{end} {}", metrics.join(", "))).collect::<Vec<_>>().join("; ")
    };
    reasons.into_iter().map(|(reason, ends)| (reason.to_owned(), list(&ends))).collect()
}

/// `latency p99.9` of `latency_p99_9`.
fn words(metric: &str) -> String {
    match metric.parse::<Metric>() {
        // Of these two, what programs call it is no word of people.
        Ok(metric @ Metric::CpusUsed) => name(metric).to_owned(),
        Ok(Metric::TransactionDemand) => words(Metric::ServiceDemand.name()),
        _ => metric.replace("p99_", "p99.").replace('_', " "),
    }
}

fn differences(comparison: &Comparison) -> Vec<Block> {
    let mut blocks = Vec::new();
    for (run, only) in [(&comparison.old, &comparison.only_in_old), (&comparison.new, &comparison.only_in_new)] {
        if !only.is_empty() {
            blocks.push(Block::info(format!("Only {} has {}: not compared.", run.name, only.join(", "))));
        }
    }
    if comparison.differences.is_empty() {
        let text = "Nothing that netrig records: same machine, settings, netrig, suite and options. What changed lies \
                    elsewhere, or is chance.";
        blocks.push(Block::paragraph(text));
        return blocks;
    }
    let mut table = Table::new("Any of these may explain a change", "What");
    table.columns = [&comparison.old.name, &comparison.new.name].map(|run| Column::text(Label::new(run))).into();
    table.rows = comparison
        .differences
        .iter()
        .map(|difference| Row {
            label: of_flag(&difference.what).map_or_else(
                || difference.what.clone(),
                |(scenario, flag)| format!("Trials of {scenario} in which {}", in_words(flag)),
            ),
            unit: None,
            cells: vec![Cell::text(shown(&difference.old)), Cell::text(shown(&difference.new))],
        })
        .collect();
    blocks.push(Block::Table(table));
    blocks
}

/// Flags that trials of both runs carry.
fn doubts(comparison: &Comparison) -> Table {
    let mut table = Table::new("Trials of both runs with the same reason to doubt them", "Reason");
    table.columns = [&comparison.old.name, &comparison.new.name].map(|run| Column::text(Label::new(run))).into();
    table.rows = comparison
        .doubts
        .iter()
        .map(|doubt| Row {
            label: format!("{}: {}", doubt.scenario, in_words(&doubt.flag)),
            unit: None,
            cells: vec![Cell::text(doubt.old.to_string()), Cell::text(doubt.new.to_string())],
        })
        .collect();
    table.notes.push(
        "What disturbed both runs alike may hide a change, or be all that was measured; the reports of the runs have the \
         details."
            .to_owned(),
    );
    table
}

fn shown(value: &str) -> &str {
    if value.is_empty() { "not recorded" } else { value }
}

fn details(comparison: &Comparison, level: u8) -> Vec<Block> {
    let mut blocks = vec![Block::heading(level, "Figures")];
    blocks.extend(comparison.scenarios.iter().filter_map(|scenario| {
        let figures = comparison.figures.iter().filter(|figure| figure.scenario == scenario.id);
        let rows: Vec<Row> = figures.map(|figure| row(figure, comparison)).collect();
        let mut table = Table::new(format!("{} – {}", scenario.id, scenario.name), "Figure");
        table.columns = vec![
            Column::number(Label::new("old"), None),
            Column::number(Label::new("new"), None),
            // The unit of a row is that of the figures, not of their ratio.
            Column::number(Label::new("new / old"), Some("")),
        ];
        if knows_noise(comparison) {
            table.columns.push(Column::text(Label::new("noise floor")));
        }
        table.columns.push(Column::text(Label::new("verdict")));
        table.rows = rows;
        (!table.rows.is_empty()).then_some(Block::Table(table))
    }));
    blocks.extend(layers::details(comparison));
    blocks.push(Block::heading(level, "How it was compared"));
    blocks.push(Block::KeyValues { caption: None, pairs: method(comparison) });
    blocks
}

fn knows_noise(comparison: &Comparison) -> bool {
    comparison.figures.iter().any(|figure| figure.effect.is_some_and(|effect| effect.noise_floor.is_some()))
}

/// Runs that the noise floor goes without; `None` where there are none.
fn left_out(comparison: &Comparison) -> Option<String> {
    let others = &comparison.noise.other_machines;
    let one = |other: &OtherMachine| {
        let pace = pace(other.slower_percent);
        format!("run {}, whose CPUs were {pace} than in run {}", other.run, other.unlike)
    };
    (!others.is_empty()).then(|| {
        format!(
            "{} under these conditions, by calibration made on another machine: {}",
            counted(others.len(), "run", "runs"),
            others.iter().map(one).collect::<Vec<_>>().join("; ")
        )
    })
}

fn method(comparison: &Comparison) -> Vec<(String, String)> {
    let method = comparison.method;
    let noise = &comparison.noise;
    let minimum = method.minimum_effect_percent;
    let level = method.confidence_level_percent;
    let known = if knows_noise(comparison) {
        "a change within it is never called better or worse"
    } else {
        "not known, at least 3 are needed"
    };
    let builds = match (&comparison.old.netrig_build, &comparison.new.netrig_build) {
        (Some(old), Some(new)) if old == new => "both runs were made by the same build",
        (Some(_), Some(_)) => "the runs were made by different builds, each compared with runs of its own",
        (None, None) => "neither run says which build made it",
        _ => "only one run says which build made it, so that they count as made by different ones",
    };
    let like = match noise.runs_like_new {
        0 => format!("{} under these conditions", counted(noise.runs_like_old, "run", "runs")),
        new => format!(
            "{} under the old conditions, {} under the new",
            counted(noise.runs_like_old, "run", "runs"),
            counted(new, "run", "runs")
        ),
    };
    let left_out = left_out(comparison).map_or_else(String::new, |runs| format!("; left out: {runs}"));
    let same = format!(
        "the interval of two one-sided tests, {:.3} %, lies within the minimum effect",
        (2.0 * level - 100.0).max(50.0)
    )
    .replace(".000", "");
    let minimum = format!("{minimum} % of the smaller mean: less does not matter");
    if let Some(blocks) = comparison.blocks {
        return in_turn(comparison, blocks, [minimum, same, builds.to_owned()]);
    }
    let pairs = [
        ("Effect", "ratio of the means over trials, new to old; difference of the means where a value is zero".to_owned()),
        (
            "Interval",
            format!("{level} %, the wider of Welch's and the bootstrap's ({} draws) at either end", method.draws),
        ),
        ("Minimum effect", minimum),
        ("Same", same),
        (
            "Better, worse",
            "the whole interval lies beyond the minimum effect, on at least 3 trials of each run, a permutation test agrees, \
             and so does Welch's test corrected for all figures that decide together (Holm); figures that are only watched \
             decide nothing"
                .to_owned(),
        ),
        ("Noise floor", format!("from {like}; {known}{left_out}")),
        ("Builds of netrig", builds.to_owned()),
    ];
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// How runs that took turns are compared.
fn in_turn(comparison: &Comparison, blocks: usize, [minimum, same, builds]: [String; 3]) -> Vec<(String, String)> {
    let level = comparison.method.confidence_level_percent;
    let pairs = [
        (
            "Trials",
            format!(
                "made in turn with those of the other run and compared with them block by block, {} or more of each scenario",
                counted(blocks, "block", "blocks")
            ),
        ),
        (
            "Effect",
            "centre of the blocks' ratios (Hodges and Lehmann), new to old; of their differences where a value is zero"
                .to_owned(),
        ),
        (
            "Interval",
            format!(
                "{level} %, exact from the ranks of the blocks' means (Walsh), of fewer blocks than 6 Student's; without what \
                 disturbed trials, where that is known and makes blocks scatter less"
            ),
        ),
        ("Minimum effect", minimum),
        ("Same", same),
        (
            "Better, worse",
            "the whole interval lies beyond the minimum effect, on at least 3 blocks, the sign-flip test agrees, and so does \
             the t test of the trimmed mean corrected for all figures that decide together (Holm); figures that are only \
             watched decide nothing"
                .to_owned(),
        ),
        ("Noise floor", "none: what runs differ by from one time to another is in both".to_owned()),
        ("Builds of netrig", builds),
    ];
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// `B receiver throughput`.
fn place(figure: &FigureComparison) -> String {
    format!("{} {} {}", figure.scenario, figure.side, words(&figure.metric))
}

/// How a figure is shown: unit, factor and digits.
struct FigureFormat {
    unit: String,
    scale: f64,
    decimals: u8,
}

impl FigureFormat {
    /// `1.30 Gbit/s`
    fn readable(&self, value: f64) -> String {
        crate::readable::figure(&Number::new(value * self.scale, self.decimals), &self.unit)
    }
}

fn look(figure: &FigureComparison) -> FigureFormat {
    match figure.metric.parse::<Metric>() {
        Ok(metric) => {
            FigureFormat { unit: unit(metric).to_owned(), scale: in_unit(metric, 1.0), decimals: decimals(metric) }
        }
        // From a file of a netrig that knows more metrics.
        Err(_) => FigureFormat { unit: figure.unit.clone(), scale: 1.0, decimals: 3 },
    }
}

fn number(sample: Option<&SampleData>, look: &FigureFormat) -> Cell {
    let Some(sample) = sample else { return Cell::missing("not measured in that run") };
    let interval = sample.low.zip(sample.high);
    let interval = interval.map(|(low, high)| Interval { low: low * look.scale, high: high * look.scale });
    Number::new(sample.mean * look.scale, look.decimals).with_interval(interval).with_bound(sample.bound).into()
}

fn row(figure: &FigureComparison, comparison: &Comparison) -> Row {
    let look = look(figure);
    let why = figure.reason.as_deref().unwrap_or("no effect");
    let effect = match &figure.effect {
        None => Cell::missing(why),
        Some(effect) if effect.kind == Kind::Ratio => {
            let interval = effect.low.zip(effect.high).map(|(low, high)| Interval { low, high });
            Number::new(effect.value, 3).with_interval(interval).with_bound(effect.bound).into()
        }
        Some(effect) => Cell::text(amount(effect, &look)),
    };
    let floor = figure.effect.and_then(|effect| Some((effect.kind, effect.noise_floor?)));
    let floor = match floor {
        None if figure.old.as_ref().or(figure.new.as_ref()).is_some_and(|sample| sample.bound.is_some()) => {
            Cell::missing("limits of the load generator say nothing about how runs differ")
        }
        None => Cell::missing("fewer than 3 runs under the same conditions have this figure"),
        Some((Kind::Ratio, floor)) => Cell::text(format!("±{:.1} %", (floor - 1.0) * 100.0)),
        Some((Kind::Difference, floor)) => Cell::text(format!("±{}", look.readable(floor))),
    };
    let metric =
        figure.metric.parse::<Metric>().map_or_else(|_| figure.metric.clone(), |metric| name(metric).to_owned());
    let mut cells = vec![number(figure.old.as_ref(), &look), number(figure.new.as_ref(), &look), effect];
    if knows_noise(comparison) {
        cells.push(floor);
    }
    let watched = if figure.gates { "" } else { " (watched)" };
    cells.push(Cell::text(format!("{}{watched}", figure.verdict)));
    Row { label: format!("{metric}, {}", figure.side), unit: Some(look.unit), cells }
}

/// `-6.9 % (-8.6 to -5.1), from 9.51 Gbit/s to 8.86 Gbit/s`.
fn change(figure: &FigureComparison) -> String {
    let look = look(figure);
    let Some(effect) = &figure.effect else { return String::new() };
    let show = |sample: Option<&SampleData>| {
        let shown = |s: &SampleData| {
            let number = Number::new(s.mean * look.scale, look.decimals).with_bound(s.bound);
            crate::readable::figure(&number, &look.unit)
        };
        sample.map_or("–".to_owned(), shown)
    };
    let (old, new) = (show(figure.old.as_ref()), show(figure.new.as_ref()));
    format!("{}, from {old} to {new}{}", amount(effect, &look), modes(figure, &look))
}

/// `; two-valued: 1.00 Gbit/s or 1.30 Gbit/s (50 % of the trials), then 1.00 Gbit/s or 1.31 Gbit/s (58 % of the trials)`.
fn modes(figure: &FigureComparison, look: &FigureFormat) -> String {
    let Some(modes) = figure.modes else { return String::new() };
    let of = |modes: Option<TwoModesData>| match modes {
        None => "one value".to_owned(),
        Some(modes) => {
            let (low, high) = (look.readable(modes.low), look.readable(modes.high));
            format!("{low} or {high} ({:.0} % of the trials)", modes.share_high * 100.0)
        }
    };
    format!("; two-valued: {}, then {}", of(modes.old), of(modes.new))
}

/// The change with its interval: of ratios in percent, of differences as the figure is read.
fn amount(effect: &EffectData, look: &FigureFormat) -> String {
    let interval = effect.low.zip(effect.high);
    let (none, factor, decimals, unit) = match effect.kind {
        Kind::Ratio => (1.0, 100.0, 1, "%"),
        Kind::Difference => {
            let ends = [Some(effect.value), effect.low, effect.high].into_iter().flatten();
            let largest = ends.map(|end| (end * look.scale).abs()).fold(0.0, f64::max);
            let scaled = crate::readable::scale(&look.unit, largest, interval.is_some_and(|(low, high)| low < high));
            let (unit, factor) = scaled.unwrap_or((&look.unit, 1.0));
            let factor = look.scale * factor;
            let interval = interval.map(|(low, high)| Interval { low: low * factor, high: high * factor });
            let number = Number::new(effect.value * factor, look.decimals).with_interval(interval).rounded();
            (0.0, factor, number.decimals, unit)
        }
    };
    let show = |change: f64| {
        let number = Number::new((change - none) * factor, decimals);
        let text = number.to_string();
        if number.value > 0.0 && text.contains(|c: char| ('1'..='9').contains(&c)) { format!("+{text}") } else { text }
    };
    let value = format!("{}{} {unit}", effect.bound.map_or("", Bound::sign), show(effect.value));
    match (effect.low, effect.high) {
        (Some(low), Some(high)) => format!("{value} ({} to {})", show(low), show(high)),
        (Some(low), None) => format!("{value} ({} or more)", show(low)),
        (None, Some(high)) => format!("{value} ({} or less)", show(high)),
        (None, None) => value,
    }
}
