//! Flags of trials, gathered.

use rig_facts::record::{Flag, TrialRecord};
use rig_verdict::view::{RunView, ScenarioView};

use super::capitalised;

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
        Flag::Throttled { .. } => "Throttled by a CPU limit",
        Flag::Dropped { .. } => "Packets dropped",
        Flag::Unexplained { .. } => "Frames lost without a trace",
        Flag::NotOneSegment { .. } => "Large packets on the wire",
        Flag::WindowSkew { .. } => "Window edges missed",
        Flag::NotGranted { .. } => "Kernel granted less",
        Flag::Unanswered { .. } => "Requests unanswered",
        Flag::NotConnected { .. } => "Connecting failed",
        Flag::Behind { .. } => "Behind the schedule",
        Flag::GeneratorBound { .. } => "Generator-bound",
        Flag::GeneratorBusy { .. } => "Packet worker busy",
        Flag::ConnectionsDiffer { .. } => "Connections counted differ",
        Flag::FailedConnections { .. } => "Connections failed",
        Flag::SentAgain { .. } => "Retransmissions",
        Flag::Late { .. } => "Started late",
        Flag::NoLimit { .. } => "No limit found",
        Flag::NotReached { .. } => "Wait ended at deadline",
        Flag::TicksDiffer { .. } => "Clock ticks differ",
        Flag::OtherMachine { .. } => "Like a different machine",
    }
}

/// What happened in trials with a flag, by the name that records give it: the end of "trials in which ...".
pub(crate) fn in_words(flag: &str) -> String {
    let words = match flag {
        "receive-elsewhere" => "packets were processed on CPUs of other nodes",
        "stolen" => "the hypervisor took CPU time",
        "other-load" => "other programs used the CPUs that were measured",
        "saturated" => "a node's or machine's CPUs were all busy",
        "saturated-cpu" => "one CPU was busy all the time",
        "saturated-thread" => "a thread of the load was busy all the time",
        "shared-core" => "nodes shared a CPU core",
        "shared-cpu" => "the device under test shared CPUs with the load",
        "throttled" => "a CPU limit stopped netrig",
        "dropped" => "packets were dropped",
        "unexplained" => "frames were lost and no counter says where",
        "not-one-segment" => "packets on the wire were larger than one segment",
        "window-skew" => "an end began or ended its measuring too early or too late",
        "not-granted" => "the kernel did not grant a setting",
        "unanswered" => "requests had no answer",
        "not-connected" => "attempts to connect failed",
        "behind" => "the rate asked for was not reached",
        "generator-bound" => "the limit was that of the load generator",
        "generator-busy" => "a thread of the load generator was nearly always busy",
        "connections-differ" => "the datapath counted other connections than the load opened",
        "failed-connections" => "connections failed",
        "sent-again" => "segments were sent again",
        "late" => "connections or requests began late",
        "no-limit" => "no limit was found",
        "not-reached" => "a phase waited in vain",
        "other-machine" => "the machine was faster or slower than in most trials before",
        "ticks-differ" => "clock ticks show another CPU time than what was counted",
        // From a file of a netrig that knows more flags.
        other => return format!("there was the flag {other}"),
    };
    words.to_owned()
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
        Flag::Throttled { .. } | Flag::GeneratorBound { .. } | Flag::NoLimit { .. } | Flag::Unexplained { .. } => {
            String::new()
        }
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
        Flag::ConnectionsDiffer { agent, .. } => agent.clone(),
        Flag::OtherMachine { what, .. } => what.clone(),
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
        | Flag::Unexplained { frames: count, .. }
        | Flag::Unanswered { requests: count, .. }
        | Flag::NotConnected { attempts: count, .. }
        | Flag::Behind { transactions: count, .. }
        | Flag::FailedConnections { connections: count, .. }
        | Flag::SentAgain { packets: count, .. }
        | Flag::Late { begins: count, .. } => *count as f64,
        Flag::ConnectionsDiffer { counted, opened, .. } => counted.abs_diff(*opened) as f64,
        Flag::NotOneSegment { bytes_per_packet, .. } => *bytes_per_packet,
        Flag::TicksDiffer { percent, by_ticks, .. } => (percent - by_ticks).abs(),
        Flag::OtherMachine { percent, .. } => percent.abs(),
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

/// Whether the figures themselves do not say it: those that the load generator bounds are `>=`.
pub(super) const fn is_open(flag: &Flag) -> bool {
    !matches!(flag, Flag::GeneratorBound { .. })
}

/// Trials that carry the same kind of doubt.
pub(super) struct DoubtCount<'a> {
    pub kind: &'static str,
    pub trials: usize,
    pub worst: &'a Flag,
}

/// The kinds of doubts, that of most trials first.
pub(super) fn by_frequency(view: &RunView) -> Vec<DoubtCount<'_>> {
    let mut kinds: Vec<DoubtCount<'_>> = Vec::new();
    for trial in view.scenarios.iter().flat_map(|scenario| &scenario.trials) {
        let mut own: Vec<&'static str> = Vec::new();
        for flag in trial.flags.iter().filter(|flag| is_open(flag)) {
            let kind = kind(flag);
            let known = match kinds.iter().position(|known| known.kind == kind) {
                Some(place) => &mut kinds[place],
                None => {
                    kinds.push(DoubtCount { kind, trials: 0, worst: flag });
                    let last = kinds.len() - 1;
                    &mut kinds[last]
                }
            };
            if weight(flag) > weight(known.worst) {
                known.worst = flag;
            }
            // A trial counts once, however many flags of the kind it has.
            if !own.contains(&kind) {
                own.push(kind);
                known.trials += 1;
            }
        }
    }
    // Among kinds of equally many trials, those from outside come first: full CPUs, for one, are often a consequence of them. The
    // sort is stable, so others stay in the order in which they came.
    kinds.sort_by_key(|often| (std::cmp::Reverse(often.trials), !is_from_outside(often.worst)));
    kinds
}

/// Whether something other than the testbed and its load takes the CPUs.
const fn is_from_outside(flag: &Flag) -> bool {
    matches!(flag, Flag::OtherLoad { .. } | Flag::Stolen { .. } | Flag::Throttled { .. })
}

/// The doubts about trials of the same thing, each once, with the trials that carry it and the worst case, of which `words` are
/// the words.
pub fn of<'a>(trials: &'a [TrialRecord], words: impl Fn(&Flag) -> String) -> Vec<(&'a Flag, String)> {
    struct Doubt<'a> {
        worst: &'a Flag,
        worst_in: u32,
        trials: Vec<u32>,
    }
    let mut doubts: Vec<Doubt<'_>> = Vec::new();
    for trial in trials {
        for flag in &trial.flags {
            let same = |known: &&mut Doubt<'_>| kind(known.worst) == kind(flag) && place(known.worst) == place(flag);
            let Some(known) = doubts.iter_mut().find(same) else {
                doubts.push(Doubt { worst: flag, worst_in: trial.ordinal, trials: vec![trial.ordinal] });
                continue;
            };
            if weight(flag) > weight(known.worst) {
                (known.worst, known.worst_in) = (flag, trial.ordinal);
            }
            // A trial counts once, however many flags of the kind it has.
            if known.trials.last() != Some(&trial.ordinal) {
                known.trials.push(trial.ordinal);
            }
        }
    }
    let all = trials.len();
    let told = |Doubt { worst: flag, worst_in, trials }: Doubt<'a>| {
        let worst = words(flag);
        let text = match (trials.len(), all) {
            (1, 1) => capitalised(&worst),
            (1, _) => format!("Trial {worst_in} of {all}: {worst}"),
            (n, _) if n == all => format!("Each of the {all} trials, at worst trial {worst_in}: {worst}"),
            (n, _) => format!("{n} of {all} trials ({}), at worst trial {worst_in}: {worst}", ranges(&trials)),
        };
        (flag, text)
    };
    doubts.into_iter().map(told).collect()
}

/// `1-3, 5` of ascending numbers.
fn ranges(numbers: &[u32]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => ranges.push((*number, *number)),
        }
    }
    let text = |(first, last): &(u32, u32)| match last - first {
        0 => first.to_string(),
        1 => format!("{first}, {last}"),
        _ => format!("{first}-{last}"),
    };
    ranges.iter().map(text).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::*;

    #[test]
    fn comparisons_have_words_for_each_flag() {
        let manual = include_str!("../../../../docs/REFERENCE.md");
        let table = manual.split_once("| flag | raised when").unwrap().1.split_once("\n\n").unwrap().0;
        let heads = table.lines().skip(2).filter_map(|row| row.split('|').nth(1));
        let flags: Vec<&str> = heads.flat_map(|head| head.split('`').skip(1).step_by(2)).collect();
        assert_eq!(flags.len(), 27, "{flags:?}");
        for flag in flags {
            assert!(!in_words(flag).starts_with("there was the flag"), "{flag} has no words");
        }
    }
}
