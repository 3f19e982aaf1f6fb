//! `netrig calibrate`: how surely this machine tells two things apart.

use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use clap::Args;
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use rig_cli::exit::{Exit, ExitContext, Failure};
use rig_cli::streams::{note, print};
use rig_facts::claim::{Metric, Side};
use rig_facts::figures::figure;
use rig_facts::record::TrialRecord;
use rig_run::run::{Execute, Rig, measured};
use rig_stats::blocks::order;
use rig_stats::confidence::Level;
use rig_stats::units::{Span, minutes};
use rig_suite::suite::{Scenario, Suite};
use rig_sys::cpu::CpuSet;
use rig_verdict::calibrate::PairedSeries;

use super::{cancel_on_signal, gain_privilege, refuse_if_lacking, usable_cpus};
use crate::doctor::SuitePurpose;

const SUITE: &str = include_str!("calibrate.toml");
/// Fewer blocks show no scatter that anything could be drawn from.
const BLOCKS_LEAST: u32 = 6;
const BLOCKS_MOST: u32 = 500;
const TIME: Duration = Duration::from_secs(120);
/// Runs of so many blocks are judged.
const RUNS: [usize; 3] = [6, 12, 30];
/// What does not matter, as in comparisons.
const MARGIN: f64 = 0.05;

/// The loads, and the figures of each that are told.
const LOADS: [(&str, &[(Side, Metric)]); 3] = [
    ("stream", &[(Side::Receiver, Metric::Throughput), (Side::Sender, Metric::ServiceDemand)]),
    ("rr", &[(Side::Local, Metric::Transactions), (Side::Local, Metric::TransactionDemand)]),
    ("packets", &[(Side::Local, Metric::Busy), (Side::Remote, Metric::Busy)]),
];

#[derive(Debug, Args)]
pub struct CalibrateArgs {
    /// Measure for about this long, e.g. 5m [default: 2m]
    #[arg(long, value_name = "SPAN")]
    pub time: Option<Span>,
    /// Only these loads: stream, rr, packets
    #[arg(long, value_delimiter = ',', value_name = "LOADS")]
    pub only: Vec<String>,
    /// Seed of the order of trials and of the runs that are judged
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// CPUs that the nodes may own, e.g. 0-3 [default: all that this process may use]
    #[arg(long, value_name = "LIST")]
    pub cpus: Option<CpuSet>,
    /// No progress on standard error
    #[arg(long, short)]
    pub quiet: bool,
}

pub fn calibrate(args: &CalibrateArgs) -> Result<Exit, Failure> {
    let known: Vec<&str> = LOADS.iter().map(|(load, _)| *load).collect();
    if let Some(unknown) = args.only.iter().find(|load| !known.contains(&load.as_str())) {
        let error = anyhow!("no load '{unknown}': choose from {}", known.join(", "));
        return Err(Failure::new(Exit::BadInput, error));
    }
    let chosen = |load: &str| args.only.is_empty() || args.only.iter().any(|only| only == load);
    let loads: Vec<_> = LOADS.iter().filter(|(load, _)| chosen(load)).collect();
    let again: Vec<String> = loads.iter().map(|(load, _)| (*load).to_owned()).collect();
    let names: Vec<String> = again.iter().flat_map(|load| [load.clone(), changed(load)]).collect();
    let suite = Suite::parse("calibrate.toml", SUITE)?.only(&names)?.again(&again)?;
    let cpus = usable_cpus(args.cpus.as_ref())?;
    gain_privilege()?;
    refuse_if_lacking(&suite, SuitePurpose::Run)?;
    let cancel = cancel_on_signal()?;
    let program = std::env::current_exe().context("find netrig's own program").or_exit(Exit::Failed)?;
    let mut rig = Rig::new(program, &cpus, suite.nodes, cancel, rig_datapaths::ALL).or_exit(Exit::Lacking)?;

    let time = args.time.map_or(TIME, |time| time.0);
    let (trials, took) = measure(&suite, &mut rig, time, args)?;
    let blocks = trials.iter().filter_map(|trial| trial.block).max().unwrap_or(0);
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled).set_header([
        "load",
        "figure",
        "the same twice",
        "with a change",
        "blocks",
        "same",
        "wrong",
        "finds from",
    ]);
    for (load, figures) in loads {
        for (side, metric) in *figures {
            let values = |id: &str| values(&trials, id, *side, *metric, blocks);
            let arms = [values(load), values(&Suite::name_of_again(load)), values(&changed(load))];
            rows(&mut table, args.seed, load, &format!("{side} {metric}"), &arms);
        }
    }
    for column in 4..8 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
    let window = Span(suite.timing.phases.window);
    let (head, lines) = (format!("{blocks} blocks in {}, windows of {window}", minutes(took)), lines.join("\n"));
    print(&format!("{head}\n{lines}\n\n{}\n", explained(&suite)))?;
    Ok(Exit::Done)
}

/// The scenario of a load with its known change.
fn changed(load: &str) -> String {
    format!("{load}-other")
}

fn explained(suite: &Suite) -> String {
    let changes: Vec<&str> =
        LOADS.iter().filter_map(|(load, _)| Some(&*suite.scenario(&changed(load))?.name)).collect();
    format!(
        "Ratios with 95 % intervals, by block. With a change: {}.\n\
         The last columns are of runs of so many blocks, 400 drawn from the scatter of the same measured twice:\n  \
         same: how often chance alone is called the same within 5 %; wrong: how often it is called more than that;\n  \
         finds from: the true difference from which on nine of ten runs find one.\n\
         Whole runs at other times differ by more than blocks of one: docs/COMPARING.md, the noise floor.",
        changes.join("; ")
    )
}

/// Blocks of one trial of each scenario until the time is up.
fn measure(
    suite: &Suite,
    rig: &mut Rig,
    time: Duration,
    args: &CalibrateArgs,
) -> Result<(Vec<TrialRecord>, Duration), Failure> {
    let begin = Instant::now();
    let mut trials = Vec::new();
    for block in 0..BLOCKS_MOST {
        let each = begin.elapsed() / block.max(1);
        if block > 0 && each * BLOCKS_LEAST > time {
            let needed = Span(Duration::from_secs((each * (BLOCKS_LEAST + 1)).as_secs() + 1));
            let error = anyhow!(
                "{} are too short for {BLOCKS_LEAST} blocks, which take about {needed} here: give --time {needed}, or fewer \
                 loads with --only",
                Span(time)
            );
            return Err(Failure::new(Exit::BadInput, error));
        }
        if block >= BLOCKS_LEAST && begin.elapsed() + each > time {
            break;
        }
        for index in order(args.seed, block, suite.scenarios.len()) {
            let scenario: &Scenario = &suite.scenarios[index];
            let made = measured(rig.trial(scenario, block + 1, &suite.timing, &mut |_, _| ()));
            let record = made
                .and_then(|(record, afterwards)| afterwards.map(|()| record))
                .with_context(|| format!("block {} of {}", block + 1, scenario.id))?;
            trials.push(TrialRecord { block: Some(block + 1), ..record });
        }
        if !args.quiet && (block + 1) % 5 == 0 {
            let took = begin.elapsed();
            let left = minutes(time.saturating_sub(took));
            note(format_args!("{} blocks after {}, {left} left", block + 1, minutes(took)));
        }
    }
    Ok((trials, begin.elapsed()))
}

/// Of each block, NaN where there is none.
fn values(trials: &[TrialRecord], id: &str, side: Side, metric: Metric, blocks: u32) -> Vec<f64> {
    let of = |block: u32| trials.iter().find(|trial| trial.scenario == id && trial.block == Some(block));
    (1..=blocks).map(|block| of(block).and_then(|trial| figure(trial, side, metric)).unwrap_or(f64::NAN)).collect()
}

fn rows(table: &mut Table, seed: u64, load: &str, figure: &str, [own, again, other]: &[Vec<f64>; 3]) {
    let level = Level::default();
    let told = |pair: &PairedSeries| {
        let interval = pair.interval(level).map_or_else(String::new, |i| format!(" ({:.3} to {:.3})", i.low, i.high));
        format!("{:.3}{interval}", pair.ratio())
    };
    let (Some(same), Some(change)) = (PairedSeries::of(own, again), PairedSeries::of(own, other)) else {
        table.add_row([load, figure, "not measured"]);
        return;
    };
    let verdict = match same.is_same(MARGIN, level) {
        Some(true) => "same",
        Some(false) => "wrongly different",
        None => "undecided",
    };
    let found = if change.is_different(level) { "found" } else { "not found" };
    for (row, runs) in RUNS.into_iter().enumerate() {
        let power = same.power(runs, MARGIN, level, seed);
        let first = |text: String| if row == 0 { text } else { String::new() };
        table.add_row([
            first(load.to_owned()),
            first(figure.to_owned()),
            first(format!("{} {verdict}", told(&same))),
            first(format!("{} {found}", told(&change))),
            runs.to_string(),
            format!("{:.0} %", power.same * 100.0),
            format!("{:.1} %", power.differs * 100.0),
            power.found_from.map_or_else(|| "> 30 %".to_owned(), |from| format!("{from} %")),
        ]);
    }
}
