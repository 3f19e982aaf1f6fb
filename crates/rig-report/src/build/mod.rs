//! From a run to its report.

pub mod accounting;
mod agents;
mod benchmark;
mod checks;
mod claims;
pub mod clocks;
pub mod doubts;
mod dut;
mod flames;
mod frames;
mod glance;
mod headline;
mod latency;
pub(crate) mod layers;
mod netperf;
mod operations;
mod overview;
mod phases;
mod results;
mod scenario;
mod search;
mod servers;
mod sheets;
mod tool;
mod workers;

use jiff::Timestamp;
use rig_facts::claim::{FigureRef, Metric, Side};
use rig_facts::figures::{self, Kind};
use rig_facts::record::{Environment, TrialRecord};
use rig_facts::record::{described, gibibytes};
use rig_stats::confidence::Level;
use rig_stats::sample::Sample;
use rig_stats::units::counted;
use rig_suite::suite::Form;
use rig_verdict::export::data;
use rig_verdict::view::{Certainty, RunView, ScenarioView, Status};

pub(crate) use claims::seen;

use super::document::{Block, Document, Interval, Number};

/// The whole report of a run.
pub fn document(view: &RunView) -> Document {
    if let Some(tool) = &view.tool {
        return tool::document(view, tool);
    }
    let lead = lead(view);
    let blocks = blocks(view, &lead);
    Document {
        title: view.title.clone(),
        headline: Some(headline::headline(view, &lead)),
        summary: summary(view),
        lead,
        blocks,
        details: details(view),
        data: serde_json::to_value(data(view)).expect("strings, numbers and lists have a form in JSON"),
    }
}

fn summary(view: &RunView) -> Vec<String> {
    let trials: usize = view.scenarios.iter().map(|s| s.trials.len()).sum();
    let run = format!(
        "Run {} of suite {}, {}: {} of {}",
        view.id,
        view.suite,
        time(view.started_unix_ms),
        status(view, trials),
        counted(view.scenarios.len(), "scenario", "scenarios"),
    );
    vec![run, machine(&view.environment)]
}

fn status(view: &RunView, trials: usize) -> String {
    match &view.status {
        Status::Complete => {
            let but = match view.scenarios.iter().filter_map(failure).count() {
                0 => String::new(),
                n => format!(" but for {} that failed", counted(n, "scenario", "scenarios")),
            };
            format!("complete{but}, {}", counted(trials, "trial", "trials"))
        }
        Status::Running { done, planned } => format!("running, {done} of at most {planned} trials done"),
        Status::Interrupted { done, planned } => format!("interrupted after {done} of at most {planned} trials"),
        Status::Failed { done, planned, .. } => format!("failed after {done} of at most {planned} trials"),
    }
}

pub fn machine(environment: &Environment) -> String {
    let of: [fn(&Environment) -> String; 6] = [
        |one| one.cpu_model.clone(),
        |one| counted(one.cpus_online as usize, "CPU", "CPUs"),
        |one| gibibytes(one.memory_bytes),
        |one| format!("Linux {}", one.kernel),
        |one| one.hypervisor.as_ref().map_or_else(String::new, |hypervisor| format!("under {hypervisor}")),
        |one| format!("netrig {}", one.netrig_version),
    ];
    let mut parts = of.map(|of| of_each_machine(environment, of)).to_vec();
    parts.retain(|part| !part.is_empty());
    parts.join(" · ")
}

/// What is told of the machine; of several, of each where it is not the same of all: `a: Linux 6.1; b: Linux 6.12`.
pub fn of_each_machine(environment: &Environment, of: impl Fn(&Environment) -> String) -> String {
    let each: Vec<(&String, String)> = environment.machines.iter().map(|(node, one)| (node, of(one))).collect();
    match each.as_slice() {
        [] => of(environment),
        [(_, first), rest @ ..] if rest.iter().all(|(_, other)| other == first) => first.clone(),
        several => several.iter().map(|(node, told)| format!("{node}: {told}")).collect::<Vec<_>>().join("; "),
    }
}

/// A sentence of words that begin small.
pub fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

pub fn time(unix_ms: i64) -> String {
    Timestamp::from_millisecond(unix_ms)
        .map_or_else(|_| format!("{unix_ms} ms after 1970"), |t| t.strftime("%Y-%m-%d %H:%M UTC").to_string())
}

/// The run at a glance: what kept it from being whole, the overview, the claims.
fn lead(view: &RunView) -> Vec<Block> {
    let mut blocks = Vec::new();
    match &view.status {
        Status::Complete => {}
        Status::Running { .. } => blocks.push(Block::info("The run is not finished: figures will change.")),
        Status::Interrupted { .. } => {
            blocks.push(Block::warning(
                "The run was interrupted. The figures are those of the trials that were finished.",
            ));
        }
        Status::Failed { reason, .. } => {
            blocks.push(Block::warning(format!(
                "The run failed: {reason}. The figures are those of the trials that were finished."
            )));
        }
    }
    if !view.left_out.is_empty() {
        let n: usize = view.left_out.iter().map(|one| one.scenarios.len()).sum();
        let (are, they) = if n == 1 { ("is", "it") } else { ("are", "they") };
        blocks.push(Block::Folded {
            summary: format!("{} {are} left out: {they} cannot be made here", counted(n, "scenario", "scenarios")),
            blocks: vec![Block::List { items: view.left_out.iter().map(|one| format!("{one}.")).collect() }],
        });
    }
    let failed: Vec<String> = view.scenarios.iter().filter_map(failure).collect();
    if !failed.is_empty() {
        let n = counted(failed.len(), "scenario", "scenarios");
        blocks.push(Block::warning(format!("{n} failed, and the run went on without: {}.", failed.join("; "))));
    }
    blocks.extend(headline::some_doubted(view));
    blocks.extend(claims::beside_the_study(view));
    blocks.extend(glance::chart(view));
    blocks.extend(benchmark::tables(view));
    let trials = view.scenarios.iter().flat_map(|scenario| &scenario.trials);
    blocks.extend(accounting::cost_by_itself(trials).map(Block::paragraph));
    blocks.extend(operations::blocks(view));
    blocks.extend(checks::not_passed(view));
    // A run with sampled stacks was made for this.
    blocks.extend(layers::blocks(view));
    blocks.extend(claims::blocks(view));
    blocks
}

/// Why a scenario has fewer trials than it was to have, with their number.
fn failure(scenario: &ScenarioView) -> Option<String> {
    let Certainty::Failed(why) = &scenario.certainty else { return None };
    let kept = counted(scenario.trials.len(), "trial is", "trials are");
    Some(format!("{} {why} ({kept} kept)", scenario.id))
}

/// What the lead does not show already.
fn blocks(view: &RunView, lead: &[Block]) -> Vec<Block> {
    let mut blocks = checks::blocks(view);
    blocks.push(Block::heading(2, "Results"));
    blocks.push(Block::paragraph(results::key(view)));
    blocks.extend(results::tables(view));
    let charts = benchmark::charts(view).into_iter().chain(results::charts(view));
    let charts: Vec<Block> = charts.filter(|chart| !lead.contains(chart)).collect();
    if !charts.is_empty() {
        blocks.push(Block::heading(2, "Charts"));
        blocks.extend(charts);
    }
    let flames = results::flames(view);
    if !flames.is_empty() {
        blocks.push(Block::heading(2, "Where the CPUs' time went"));
        blocks.extend(flames);
    }
    blocks
}

fn details(view: &RunView) -> Vec<Block> {
    let mut blocks = Vec::new();
    let doubted = view.aa.as_ref().filter(|check| check.more_than_chance);
    let doubts: Vec<Block> = doubted
        .map(|check| Block::paragraph(format!("{check}.")))
        .into_iter()
        .chain(doubts::overview(view).map(Block::Table))
        .collect();
    if !doubts.is_empty() {
        blocks.push(Block::heading(2, "Doubts"));
        blocks.extend(doubts);
    }
    blocks.push(Block::heading(2, "Scenarios"));
    blocks.extend(view.scenarios.iter().flat_map(|s| scenario::blocks(s, view.level)));
    blocks.push(Block::heading(2, "How it was measured"));
    if !view.about.is_empty() {
        blocks.push(Block::paragraph(&view.about));
    }
    blocks.push(Block::KeyValues { caption: None, pairs: method(view) });
    blocks.push(Block::heading(2, "Environment"));
    blocks.push(Block::KeyValues { caption: None, pairs: described(&view.environment) });
    blocks
}

fn method(view: &RunView) -> Vec<(String, String)> {
    let seconds = |d: std::time::Duration| format!("{} s", d.as_secs_f64());
    let phases = &view.phases;
    let mut pairs = vec![
        ("Warm-up", format!("{}; load runs, nothing is counted", seconds(phases.warm_up))),
        ("Window", format!("{}; counters are read at both edges", seconds(phases.window))),
        ("Cool-down", format!("{}; load continues after the window", seconds(phases.cool_down))),
        ("Samples", format!("every {} inside the window", seconds(phases.interval))),
        (
            "Order",
            if view.scenarios.iter().flat_map(|s| &s.trials).any(|trial| trial.block.is_some()) {
                "in blocks of one trial of each scenario, in random order and the next block backwards".to_owned()
            } else {
                "scenarios take turns, trial by trial".to_owned()
            },
        ),
        ("Repetition", view.repetition.clone()),
        (
            "Intervals",
            format!("{} % confidence of the mean over trials, Student's t distribution", view.level.percent()),
        ),
        ("CPU", "share of time that was neither idle nor stolen, mean over the node's CPUs".to_owned()),
        (
            "Service demand",
            "CPU time of the node for each KB (1024 bytes) of payload or for each transaction, netperf's formula"
                .to_owned(),
        ),
    ];
    let has = |wanted: &dyn Fn(Kind) -> bool| view.scenarios.iter().filter_map(|s| Kind::of(&s.plan)).any(wanted);
    if has(&|kind| kind != Kind::Stream) {
        pairs.push(("Ends", "local is the one that connects, remote the one that listens".to_owned()));
    }
    if has(&|kind| matches!(kind, Kind::Transactions | Kind::Connections | Kind::Requests)) {
        pairs.push((
            "Latency",
            "from the sending of a request, or with a rate given from when it was due, to the end of its response; \
             percentiles of each trial, and of all trials together in charts"
                .to_owned(),
        ));
    }
    if has(&Kind::is_packets) {
        pairs.push((
            "Packets",
            "both ends make them, so that the kernels' TCP takes no part; a worker looks for packets without rest, so that \
             its CPU is always busy, and `busy` is the share of its time in which there was something to do"
                .to_owned(),
        ));
    }
    if view.scenarios.iter().flat_map(|s| &s.trials).any(|trial| trial.search.is_some()) {
        pairs.push(("Limits", search::METHOD.to_owned()));
    }
    if view.scenarios.iter().flat_map(|s| &s.trials).any(|trial| trial.benchmark.is_some()) {
        pairs.push(("Benchmarks", benchmark::METHOD.to_owned()));
    }
    if has(&|kind| matches!(kind, Kind::Datagrams | Kind::TwoWayDatagrams)) {
        pairs.push((
            "Loss",
            "sequence numbers that never came while later ones did; jitter is that of RFC 3550, 6.4.1".to_owned(),
        ));
    }
    pairs.extend(layers::method(view).map(|text| ("Sampled stacks", text)));
    if view.tables.iter().any(|table| matches!(table.form, Form::Netperf(_))) {
        pairs.push(("netperf's layout", netperf::DIFFERS.to_owned()));
    }
    if !view.options.is_empty() {
        pairs.push(("Options", view.options.clone()));
    }
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// A value in the unit that it is shown in, from that of [`Metric::unit`].
pub fn shown(metric: Metric, value: f64) -> f64 {
    if metric.shown_unit() == "Mbit/s" { value / 1e6 } else { value }
}

pub fn name(metric: Metric) -> &'static str {
    metric.label()
}

/// The unit that a figure is shown in.
pub fn unit(metric: Metric) -> &'static str {
    metric.shown_unit()
}

pub fn decimals(metric: Metric) -> u8 {
    metric.row().decimals
}

/// The figure in all trials, in the unit it is shown in.
fn sample(trials: &[TrialRecord], side: Side, metric: Metric) -> Sample {
    figures::sample(trials, side, metric).scaled(shown(metric, 1.0))
}

/// Mean and interval over all trials, or why there is none.
fn mean(scenario: &ScenarioView, side: Side, metric: Metric, level: Level) -> Result<Number, String> {
    let trials = &scenario.trials;
    let figure = FigureRef { scenario: scenario.id.clone(), phase: None, side, metric };
    // The row names the figure, and the same reason is given once.
    let brief = |what: String| match what.strip_suffix(&format!(" and has no {metric}")) {
        Some(load) => format!("{load}, which has no such figure"),
        None => what,
    };
    figures::check(&scenario.plan, &figure).map_err(|error| brief(error.what))?;
    if let Some(why) = latency::too_few(trials, side, metric) {
        return Err(why);
    }
    let why = match metric {
        metric if metric.is_background() => "no load runs in the background",
        _ => "no trial gave this figure",
    };
    Ok(mean_of(trials, side, metric, level).ok_or(why)?)
}

/// Mean and interval over all trials; `None` when none gave the figure.
pub fn mean_of(trials: &[TrialRecord], side: Side, metric: Metric, level: Level) -> Option<Number> {
    let sample = sample(trials, side, metric);
    let interval = level.mean_interval(&sample).map(|i| Interval { low: i.low, high: i.high });
    Some(Number::new(sample.mean()?, decimals(metric)).with_interval(interval).with_bound(sample.bound()))
}

#[cfg(test)]
mod tests;
