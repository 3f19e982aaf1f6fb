//! Where CPUs spent their time: flame graphs of what was sampled, and the hottest functions.

use std::collections::BTreeMap;

use rig_facts::flame::{IDLE, KERNEL, OTHER, PROGRAM};
use rig_facts::record::{Profile, TrialRecord};
use rig_verdict::view::ScenarioView;

use crate::document::{Align, Block, Cell, Column, Flame, Label, Row, Table};
use crate::text::shorten;

/// Functions that are named beside a flame graph.
const HOTTEST: usize = 12;
/// Characters of their names that are shown.
const NAME: usize = 56;

/// Whether a trial of the scenario has stacks.
pub(super) fn is_profiled(scenario: &ScenarioView) -> bool {
    scenario.trials.iter().any(|trial| !profiles(trial).is_empty())
}

/// The profiles of a trial, each with its owner: the device under test's from the window, or else the nodes' from the window in
/// which stacks are sampled.
fn profiles(trial: &TrialRecord) -> Vec<(String, &Profile)> {
    if let Some((dut, profile)) = trial.dut.as_ref().and_then(|dut| Some((dut, dut.profile.as_ref()?))) {
        return vec![(dut.system.clone(), profile)];
    }
    let nodes = trial.layers.iter().flat_map(|layers| &layers.nodes);
    nodes.filter_map(|node| Some((format!("node {}", node.node), node.profile.as_ref()?))).collect()
}

/// Where the time went in the first trial of `scenario` that was profiled: a picture and the hottest functions.
pub(super) fn of(scenario: &ScenarioView) -> Vec<Block> {
    let first = scenario.trials.iter().map(|trial| (trial.ordinal, profiles(trial))).find(|(_, all)| !all.is_empty());
    let Some((ordinal, all)) = first else { return Vec::new() };
    let several = all.len() > 1;
    let name = if scenario.name.is_empty() { &scenario.id } else { &scenario.name };
    let mut blocks = vec![Block::heading(3, name)];
    for (whose, profile) in all {
        let of = |what: &str| if several { format!("{what}, {whose}") } else { what.to_owned() };
        blocks.extend(profile.notes.iter().map(Block::warning));
        if profile.samples == 0 {
            continue;
        }
        blocks.push(Block::paragraph(format!("{whose}: {}", sampled(ordinal, profile))));
        blocks.extend(hottest(&of(&scenario.id), profile).map(Block::Table));
        blocks.push(Block::Flame(Flame { title: of(name), profile: profile.clone(), before: None }));
    }
    blocks
}

fn sampled(ordinal: u32, profile: &Profile) -> String {
    let cpus = rig_sys::cpu::CpuSet::new(profile.cpus.iter().copied());
    let several = if profile.cpus.len() == 1 { "CPU" } else { "CPUs" };
    let mut text =
        format!("{} samples of {several} {cpus} at {} Hz each in trial {ordinal}", profile.samples, profile.hertz);
    if profile.clock == Some(rig_sys::perf::Clock::Cycles) {
        text += ", of busy time by CPU cycles";
    }
    if profile.lost > 0 {
        text += &format!(", {} lost", profile.lost);
    }
    if profile.merged > 0 {
        text += &format!("; {} rare stacks are together under {OTHER}", profile.merged);
    }
    text + "."
}

/// A function of a stack: its name, and whose it is.
type Function<'a> = (&'a str, &'a str);

/// The functions in which most samples were taken; `None` where all were of idle CPUs.
fn hottest(id: &str, profile: &Profile) -> Option<Table> {
    let mut functions = BTreeMap::<Function<'_>, (u64, u64)>::new();
    let busy = || profile.stacks.iter().filter(|(stack, _)| stack != IDLE);
    for (stack, count) in busy().filter(|(stack, _)| stack != OTHER) {
        let (thread, frames) = stack.split_once(';').unwrap_or((stack, ""));
        let frames = frames.split(';').filter(|frame| !frame.is_empty());
        let frames: Vec<Function<'_>> = frames.map(|frame| function(thread, frame)).collect();
        for (depth, frame) in frames.iter().enumerate() {
            // Once for each stack, however often it calls itself.
            if !frames[..depth].contains(frame) {
                functions.entry(*frame).or_default().1 += count;
            }
        }
        if let Some(innermost) = frames.last() {
            functions.entry(*innermost).or_default().0 += count;
        }
    }
    let all: u64 = busy().map(|(_, count)| count).sum();
    let share = |count: u64| Cell::number(100.0 * count as f64 / all as f64, 1);
    let mut ordered: Vec<_> = functions.into_iter().filter(|(_, (own, _))| *own > 0).collect();
    ordered.sort_by_key(|(_, (own, _))| std::cmp::Reverse(*own));
    let mut table = Table::new(format!("Hottest functions of {id}"), "Function");
    table.columns = vec![
        Column { label: Label::new("Of"), unit: None, align: Align::Left },
        Column::number(Label::new("Itself"), Some("%")),
        Column::number(Label::new("With callees"), Some("%")),
    ];
    table.rows = ordered
        .into_iter()
        .take(HOTTEST)
        .map(|((name, of), (own, total))| {
            let cells = vec![Cell::text(of), share(own), share(total)];
            Row { label: shorten(name, NAME), unit: None, cells }
        })
        .collect();
    table.notes = vec!["Share of the samples of CPUs that were not idle, whatever ran there.".to_owned()];
    (!table.rows.is_empty()).then_some(table)
}

fn function<'a>(thread: &'a str, frame: &'a str) -> Function<'a> {
    let kernel = frame.strip_suffix(KERNEL).map(|name| (name, "kernel"));
    let program = || Some((frame.strip_suffix(PROGRAM)?.trim_start_matches("bpf:"), "BPF program"));
    kernel.or_else(program).unwrap_or((frame, thread))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hottest_functions_are_those_with_most_samples_of_their_own() {
        let stack = |text: &str, count| (text.to_owned(), count);
        let profile = Profile {
            stacks: vec![
                stack(IDLE, 100),
                stack("ksoftirqd/1;net_rx_action_[k];bpf:balance_[j]", 60),
                stack("ksoftirqd/1;net_rx_action_[k]", 20),
                stack("haproxy;again;again", 15),
                stack(OTHER, 5),
            ],
            ..Profile::default()
        };
        let table = hottest("one", &profile).unwrap();
        let row = |n: usize| {
            let figure = |cell: &Cell| if let Cell::Number(n) = cell { n.value } else { f64::NAN };
            let row: &Row = &table.rows[n];
            (row.label.as_str(), row.cells[0].clone(), figure(&row.cells[1]), figure(&row.cells[2]))
        };
        assert_eq!(row(0), ("balance", Cell::text("BPF program"), 60.0, 60.0));
        assert_eq!(row(1), ("net_rx_action", Cell::text("kernel"), 20.0, 80.0));
        assert_eq!(row(2), ("again", Cell::text("haproxy"), 15.0, 15.0));
        assert!(hottest("idle", &Profile { stacks: vec![stack(IDLE, 1)], ..Profile::default() }).is_none());
    }
}
