//! The node between the ends: what it did, what it listed, where its CPUs spent their time.

use std::collections::BTreeMap;

use rig_stats::units::counted;
use rig_study::flame::{IDLE, KERNEL, OTHER, PROGRAM};
use rig_study::record::{DutRecord, Profile, ServiceState, TrialRecord};
use rig_study::view::ScenarioView;

use crate::document::{Align, Block, Cell, Column, Flame, Label, Row, Table};
use crate::text::shorten;

/// Services and servers of a listing that are shown.
const SERVICES: usize = 3;
const BACKENDS: usize = 16;
/// Functions that are named beside a flame graph.
const HOTTEST: usize = 12;
/// Characters of their names that are shown.
const NAME: usize = 56;

/// What the device under test did in each trial; nothing on a path without one.
pub(super) fn details(scenario: &ScenarioView) -> Vec<Block> {
    let trials: Vec<(&TrialRecord, &DutRecord)> =
        scenario.trials.iter().filter_map(|trial| Some((trial, trial.dut.as_ref()?))).collect();
    let Some((_, last)) = trials.last() else { return Vec::new() };
    let cpus = |cpus: &[u32]| rig_sys::cpu::CpuSet::new(cpus.iter().copied()).to_string();
    let mut pairs = vec![
        ("Device under test".to_owned(), last.system.clone()),
        ("CPUs that carried packets".to_owned(), cpus(&last.workers)),
    ];
    if !last.shared.is_empty() {
        pairs.push(("Shared with the load".to_owned(), format!("CPUs {}", cpus(&last.shared))));
    }
    let mut blocks = vec![Block::KeyValues { caption: None, pairs }, Block::Table(counters(scenario, &trials))];
    if !last.services.is_empty() {
        let caption = Some("Services at the end of the last window".to_owned());
        blocks.push(Block::Preformatted { caption, text: listing(&last.services) });
    }
    blocks
}

fn counters(scenario: &ScenarioView, trials: &[(&TrialRecord, &DutRecord)]) -> Table {
    let mut table = Table::new(format!("Device under test of {}", scenario.id), "Trial");
    table.columns = trials.iter().map(|(t, _)| Column::number(Label::new(t.ordinal.to_string()), None)).collect();
    let row = |label: &str, unit: &str, cell: &dyn Fn(&TrialRecord, &DutRecord) -> Cell| Row {
        label: label.to_owned(),
        unit: Some(unit.to_owned()),
        cells: trials.iter().map(|(trial, dut)| cell(trial, dut)).collect(),
    };
    let rate = |trial: &TrialRecord, count: u64, decimals| Cell::number(count as f64 / trial.seconds(), decimals);
    let bits = |trial: &TrialRecord, bytes: u64| Cell::number(8.0 * bytes as f64 / trial.seconds(), 0);
    let told = |value: Option<f64>, decimals| {
        value.map_or_else(|| Cell::missing("this system does not tell"), |value| Cell::number(value, decimals))
    };
    table.rows = vec![
        row("Packets in", "1/s", &|trial, dut| rate(trial, dut.in_packets, 0)),
        row("Packets out", "1/s", &|trial, dut| rate(trial, dut.out_packets, 0)),
        row("Bits in", "bit/s", &|trial, dut| bits(trial, dut.in_bytes)),
        row("Bits out", "bit/s", &|trial, dut| bits(trial, dut.out_bytes)),
        row("Connections at the end", "", &|_, dut| told(dut.connections.map(|count| count as f64), 0)),
        row("Memory of connections", "MiB", &|_, dut| {
            told(dut.memory_bytes.map(|bytes| bytes as f64 / f64::from(1 << 20)), 1)
        }),
    ];
    let mut reasons: Vec<&str> = Vec::new();
    for (reason, _) in trials.iter().flat_map(|(_, dut)| &dut.drops) {
        if !reasons.contains(&reason.as_str()) {
            reasons.push(reason);
        }
    }
    for reason in &reasons {
        let count = |_: &TrialRecord, dut: &DutRecord| {
            let of_reason = dut.drops.iter().filter(|(own, _)| own == reason).map(|(_, count)| count);
            Cell::number(of_reason.sum::<u64>() as f64, 0)
        };
        table.rows.push(row(&format!("Dropped: {reason}"), "packets", &count));
    }
    if reasons.is_empty() {
        table.notes.push("It counted no drops inside the windows.".to_owned());
    }
    table
}

/// In ipvsadm's columns.
fn listing(services: &[ServiceState]) -> String {
    let mut text = "Prot LocalAddress:Port Scheduler\n".to_owned();
    text += "  -> RemoteAddress:Port           Forward Weight ActiveConn InActConn\n";
    for ServiceState { protocol, address, scheduler, backends } in services.iter().take(SERVICES) {
        text += &format!("{protocol:<4} {address} {scheduler}\n");
        for backend in backends.iter().take(BACKENDS) {
            let line = format!(
                "  -> {:<28} {:<7} {:<6} {:<10} {}",
                backend.address, backend.forward, backend.weight, backend.active, backend.inactive
            );
            text += line.trim_end();
            text.push('\n');
        }
        if let Some(more) = backends.len().checked_sub(BACKENDS).filter(|more| *more > 0) {
            text += &format!("  ... {more} more\n");
        }
    }
    if let Some(more) = services.len().checked_sub(SERVICES).filter(|more| *more > 0) {
        text += &format!("... {}\n", counted(more, "more service", "more services"));
    }
    text
}

/// Where the time went in the first trial of `scenario` that was profiled: a picture and its hottest functions.
pub(super) fn flames(scenario: &ScenarioView) -> Vec<Block> {
    let profiled = |trial: &TrialRecord| {
        let dut = trial.dut.as_ref()?;
        Some((trial.ordinal, dut.clone(), dut.profile.clone()?))
    };
    let Some((ordinal, dut, profile)) = scenario.trials.iter().find_map(profiled) else { return Vec::new() };
    let name = if scenario.name.is_empty() { &scenario.id } else { &scenario.name };
    let mut blocks = vec![Block::heading(3, name)];
    blocks.extend(profile.notes.iter().map(Block::warning));
    if profile.samples == 0 {
        return blocks;
    }
    blocks.push(Block::paragraph(format!("{}: {}", dut.system, sampled(ordinal, &profile))));
    blocks.extend(hottest(&scenario.id, &profile).map(Block::Table));
    blocks.push(Block::Flame(Flame { title: name.clone(), profile, before: None }));
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
    use rig_study::record::BackendState;

    use super::*;

    fn service(address: &str, backends: usize) -> ServiceState {
        let backend = |n| BackendState {
            address: format!("192.168.6.{}:80", 100 + n),
            forward: "FullNat".to_owned(),
            weight: 100,
            active: 0,
            inactive: 4,
        };
        ServiceState {
            protocol: "TCP".to_owned(),
            address: address.to_owned(),
            scheduler: "rr".to_owned(),
            backends: (0..backends).map(backend).collect(),
        }
    }

    #[test]
    fn services_are_listed_as_ipvsadm_lists_them() {
        let services: Vec<ServiceState> = (1..=5).map(|n| service(&format!("192.168.5.{n}:80"), 17)).collect();
        let text = listing(&services);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[2], "TCP  192.168.5.1:80 rr");
        assert_eq!(lines[3], "  -> 192.168.6.100:80             FullNat 100    0          4");
        assert_eq!(lines[1].find("Forward"), lines[3].find("FullNat"));
        assert_eq!(lines[19], "  ... 1 more");
        assert_eq!(lines.last(), Some(&"... 2 more services"));
    }

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
