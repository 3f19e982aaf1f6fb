//! Flags of trials, gathered.

use rig_study::record::Flag;
use rig_study::view::{RunView, ScenarioView};

use crate::document::{Align, Cell, Column, Label, Row, Table};

/// What kind of doubt a flag is.
fn kind(flag: &Flag) -> &'static str {
    match flag {
        Flag::ReceiveElsewhere { .. } => "Received on other CPUs",
        Flag::Stolen { .. } => "CPU time stolen",
        Flag::OtherLoad { .. } => "Other programs busy",
        Flag::Saturated { .. } => "CPUs saturated",
        Flag::SaturatedCpu { .. } => "A CPU saturated",
        Flag::SaturatedThread { .. } => "Load thread saturated",
        Flag::SharedCpu { .. } => "The DUT shares CPUs with the load",
        Flag::SharedCore { .. } => "Nodes share a core",
        Flag::Throttled { .. } => "Halted by a CPU limit",
        Flag::Dropped { .. } => "Packets dropped",
        Flag::NotOneSegment { .. } => "Large packets on the wire",
        Flag::WindowSkew { .. } => "Window met off time",
        Flag::NotGranted { .. } => "Kernel granted less",
        Flag::Unanswered { .. } => "Requests unanswered",
        Flag::NotConnected { .. } => "Connecting failed",
        Flag::Behind { .. } => "Behind the schedule",
        Flag::GeneratorBound { .. } => "Generator-bound",
        Flag::GeneratorBusy { .. } => "Packet worker busy",
        Flag::FailedConnections { .. } => "Connections failed",
        Flag::SentAgain { .. } => "Packets sent again",
        Flag::Late { .. } => "Begun late",
        Flag::NoLimit { .. } => "No limit found",
        Flag::NotReached { .. } => "Waited in vain",
        Flag::TicksDiffer { .. } => "Clock ticks say otherwise",
    }
}

/// What a flag is about: flags of the same kind and place are the same doubt.
fn place(flag: &Flag) -> String {
    match flag {
        Flag::ReceiveElsewhere { node, .. }
        | Flag::Stolen { node, .. }
        | Flag::OtherLoad { node, .. }
        | Flag::Saturated { node, .. }
        | Flag::SaturatedCpu { node, .. }
        | Flag::TicksDiffer { node, .. } => node.clone(),
        Flag::SharedCore { cpus, .. } | Flag::SharedCpu { cpus } => cpus.clone(),
        Flag::Throttled { .. } | Flag::GeneratorBound { .. } | Flag::NoLimit { .. } => String::new(),
        Flag::Dropped { place, .. } | Flag::NotOneSegment { place, .. } => place.clone(),
        Flag::WindowSkew { worker, .. }
        | Flag::SaturatedThread { worker, .. }
        | Flag::Unanswered { worker, .. }
        | Flag::NotConnected { worker, .. }
        | Flag::Behind { worker, .. }
        | Flag::GeneratorBusy { worker, .. }
        | Flag::FailedConnections { worker, .. }
        | Flag::SentAgain { worker, .. }
        | Flag::Late { worker, .. } => worker.clone(),
        Flag::NotReached { phase, .. } => phase.clone(),
        Flag::NotGranted { worker, what } => format!("{worker}: {what}"),
    }
}

/// How bad it is, among flags of the same kind.
fn weight(flag: &Flag) -> f64 {
    match flag {
        Flag::ReceiveElsewhere { percent, .. }
        | Flag::Stolen { percent, .. }
        | Flag::OtherLoad { percent, .. }
        | Flag::Saturated { percent, .. }
        | Flag::SaturatedCpu { percent, .. }
        | Flag::SaturatedThread { percent, .. }
        | Flag::GeneratorBound { percent }
        | Flag::GeneratorBusy { percent, .. } => *percent,
        Flag::Dropped { packets: count, .. }
        | Flag::Unanswered { requests: count, .. }
        | Flag::NotConnected { attempts: count, .. }
        | Flag::Behind { transactions: count, .. }
        | Flag::FailedConnections { connections: count, .. }
        | Flag::SentAgain { packets: count, .. }
        | Flag::Late { begins: count, .. } => *count as f64,
        Flag::NotOneSegment { bytes_per_packet, .. } => *bytes_per_packet,
        Flag::TicksDiffer { percent, by_ticks, .. } => (percent - by_ticks).abs(),
        Flag::WindowSkew { microseconds, .. }
        | Flag::Throttled { microseconds }
        | Flag::NotReached { microseconds, .. } => *microseconds as f64,
        Flag::NotGranted { .. } | Flag::SharedCpu { .. } | Flag::SharedCore { .. } | Flag::NoLimit { .. } => 0.0,
    }
}

/// Scenarios that stand side by side; more have a row each.
const MOST_COLUMNS: usize = 12;

/// In how many trials of which scenario there was which kind of doubt; `None` when there was none.
pub(super) fn overview(view: &RunView) -> Option<Table> {
    let mut kinds: Vec<&str> = Vec::new();
    for flag in view.scenarios.iter().flat_map(|s| &s.trials).flat_map(|t| &t.flags) {
        if !kinds.contains(&kind(flag)) {
            kinds.push(kind(flag));
        }
    }
    if kinds.is_empty() {
        return None;
    }
    let are_rows = view.scenarios.len() > MOST_COLUMNS;
    let mut table = Table::new("Trials with a reason to doubt them", if are_rows { "Scenario" } else { "Reason" });
    let head = |name: &str| Column { label: Label::new(name), unit: None, align: Align::Right };
    let cell = |scenario: &ScenarioView, wanted: &str| {
        let hit = scenario.trials.iter().filter(|t| t.flags.iter().any(|f| kind(f) == wanted)).count();
        Cell::text(if hit == 0 { String::new() } else { format!("{hit}/{}", scenario.trials.len()) })
    };
    let row = |label: &str, cells: Vec<Cell>| Row { label: label.to_owned(), unit: None, cells };
    if are_rows {
        let doubtful = view.scenarios.iter().filter(|s| s.trials.iter().any(|trial| !trial.flags.is_empty()));
        table.rows = doubtful.map(|s| row(&s.id, kinds.iter().map(|wanted| cell(s, wanted)).collect())).collect();
        table.columns = kinds.into_iter().map(head).collect();
    } else {
        table.columns = view.scenarios.iter().map(|s| head(&s.id)).collect();
        let cells = |wanted| view.scenarios.iter().map(|s| cell(s, wanted)).collect();
        table.rows = kinds.into_iter().map(|wanted| row(wanted, cells(wanted))).collect();
    }
    table.notes.push("2/3: in two of three trials. The section of each scenario has the details.".to_owned());
    Some(table)
}

/// The kind of doubt that most trials carry.
pub(super) fn most_often(view: &RunView) -> Option<&'static str> {
    let mut kinds: Vec<(&'static str, usize)> = Vec::new();
    for trial in view.scenarios.iter().flat_map(|scenario| &scenario.trials) {
        let mut own: Vec<&'static str> = trial.flags.iter().map(kind).collect();
        own.sort_unstable();
        own.dedup();
        for kind in own {
            match kinds.iter_mut().find(|(known, _)| *known == kind) {
                Some((_, trials)) => *trials += 1,
                None => kinds.push((kind, 1)),
            }
        }
    }
    // Of as many the one that came first.
    kinds.into_iter().rev().max_by_key(|(_, trials)| *trials).map(|(kind, _)| kind)
}

/// The doubts of one scenario, each once, with the worst case and the number of trials.
pub(super) fn of(scenario: &ScenarioView) -> Vec<String> {
    let mut doubts: Vec<(&Flag, usize)> = Vec::new();
    for trial in &scenario.trials {
        let mut seen: Vec<(&str, String)> = Vec::new();
        for flag in &trial.flags {
            let same = |other: &Flag| kind(other) == kind(flag) && place(other) == place(flag);
            let known = doubts.iter().position(|(other, _)| same(other));
            let index = known.unwrap_or_else(|| {
                doubts.push((flag, 0));
                doubts.len() - 1
            });
            let (worst, trials) = &mut doubts[index];
            if weight(flag) > weight(worst) {
                *worst = flag;
            }
            // A trial counts once, however many flags of the kind it has.
            let key = (kind(flag), place(flag));
            if !seen.contains(&key) {
                seen.push(key);
                *trials += 1;
            }
        }
    }
    let all = scenario.trials.len();
    let words = |(worst, trials): (&Flag, usize)| match (trials, all) {
        (1, 1) => worst.to_string(),
        (1, _) => format!("1 of {all} trials: {worst}"),
        (n, _) => format!("{n} of {all} trials, at worst: {worst}"),
    };
    doubts.into_iter().map(words).collect()
}
