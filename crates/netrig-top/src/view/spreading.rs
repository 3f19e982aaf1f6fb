//! Interfaces, the CPUs that process what they receive, and entries.

use super::{Cell, Column, Side, StatusNote, Table, TextStyle, View, Width, at, column, highest};
use crate::history::{History, Track};
use crate::sample::{CounterSource, Cpu, Interface, InterfaceCpu, Sample, Spread};
use netrig_spread::message::PastQueues;
use rig_cli::words::{ago, short};
use rig_stats::units::counted;

pub(super) fn fill(view: &mut View, history: &History, sample: &Sample, chosen: usize) {
    if !sample.interfaces.is_empty() {
        // For a single interface the lines above say all but its last minute.
        let several = sample.interfaces.len() > 1;
        let table = interfaces(history, sample, several.then_some(chosen));
        view.tables.push(Table { spare: !several, ..table });
    }
    let interface = sample.interfaces.get(chosen);
    match interface {
        Some(interface) => about(view, interface),
        None => view.notes.push(StatusNote::new(TextStyle::Plain, "no interface here but lo")),
    }
    let spreader = sample.spreader.iter();
    view.notes.extend(
        spreader
            .flat_map(|spreader| &spreader.waiting)
            .map(|waiting| StatusNote::new(TextStyle::Alarm, format!("not taken: {waiting}"))),
    );
    let detail = interface.filter(|interface| !interface.cpus.is_empty());
    match detail {
        Some(interface) => {
            let name = &interface.name;
            view.tables.push(cpus(&format!("CPUs of {name}"), history, sample, &interface.cpus, &[]));
            view.tables.push(entries(history, interface));
        }
        None => view.tables.push(kernel_cpus(history, sample)),
    }
}

fn about(view: &mut View, interface: &Interface) {
    let Interface { name, received, sent, .. } = interface;
    let tone = if received.dropped_per_s > 0.0 { TextStyle::Alarm } else { TextStyle::Plain };
    let text = format!(
        "{name}: in {} packets/s, {} bit/s, {} dropped/s; out {} packets/s, {} bit/s",
        short(received.packets_per_s),
        short(received.bits_per_s),
        short(received.dropped_per_s),
        short(sent.packets_per_s),
        short(sent.bits_per_s)
    );
    view.notes.push(StatusNote::new(tone, text));
    let Some(spread) = &interface.spread else { return };
    let Spread { actuator, situation, mode_requested, mode_effective, base, cpus_in_use, moves, moves_now, .. } =
        spread;
    let mut text = format!("{situation} by {actuator}, {mode_effective}");
    if mode_requested != mode_effective {
        text.push_str(&format!(" instead of {mode_requested}"));
    }
    if spread.in_place {
        text.push_str(", in place");
    }
    text.push_str(&format!(
        ", {} in use, base CPU {base}; {}, {moves_now} now",
        counted(u64::from(*cpus_in_use), "CPU", "CPUs"),
        counted(*moves, "move", "moves")
    ));
    for (count, what) in [(spread.undone, "undone"), (spread.refused, "refused")] {
        if count > 0 {
            text.push_str(&format!(", {count} {what}"));
        }
    }
    view.notes.push(StatusNote::new(TextStyle::Plain, text));
    if let Some(PastQueues { packets_per_s, why }) = &spread.past_queues {
        let text = format!("{} packets/s come past its receive queues: {why}", short(*packets_per_s));
        view.notes.push(StatusNote::new(TextStyle::Alarm, text));
    }
    for difference in &spread.differences {
        let tone = if difference.of_default { TextStyle::Faint } else { TextStyle::Alarm };
        view.notes.push(StatusNote::new(tone, format!("{} (for {})", difference.words, ago(difference.since_ms))));
    }
}

pub(super) fn interfaces(history: &History, sample: &Sample, chosen: Option<usize>) -> Table {
    let tracks: Vec<Track<f64>> = sample
        .interfaces
        .iter()
        .enumerate()
        .map(|(place, one)| {
            history.track(|sample| {
                Some(at(&sample.interfaces, place, |found| found.name == one.name)?.received.packets_per_s)
            })
        })
        .collect();
    let full = highest(&tracks);
    let row = |(one, track): (&Interface, Track<f64>)| {
        let situation = one.spread.as_ref().map_or("-", |spread| spread.situation.name());
        vec![
            Cell::of(&one.name),
            Cell::rate(one.received.packets_per_s),
            Cell::rate(one.received.bits_per_s),
            Cell::loss(one.received.dropped_per_s),
            Cell::rate(one.sent.packets_per_s),
            Cell::rate(one.sent.bits_per_s),
            Cell::loss(one.sent.dropped_per_s),
            Cell::of(situation),
            Cell::spark(track, full),
        ]
    };
    Table {
        title: "interfaces".to_owned(),
        legend: None,
        side: Side::Whole,
        spare: false,
        columns: vec![
            column("interface", 0, Width::Left),
            column("in packets/s", 0, Width::Right),
            column("in bit/s", 1, Width::Right),
            column("dropped/s", 1, Width::Right),
            column("out packets/s", 2, Width::Right),
            column("out bit/s", 4, Width::Right),
            column("dropped/s", 5, Width::Right),
            column("situation", 2, Width::Left),
            column("in, last minute", 3, Width::Between(15, 60)),
        ],
        rows: sample.interfaces.iter().zip(tracks).map(row).collect(),
        chosen,
    }
}

/// The minute of a CPU's work of any kind.
fn work(history: &History, place: usize, cpu: u32) -> Cell {
    Cell::spark(history.track(|sample| Some(at(&sample.cpus, place, |one| one.cpu == cpu)?.busy)), 1.0)
}

const PROCESSED: Column = column("processed/s", 3, Width::Right);
const LOST: [Column; 2] = [column("dropped/s", 5, Width::Right), column("squeezed/s", 6, Width::Right)];
const BAR: Column = column("share", 2, Width::Between(8, 20));
const BUSY: Column = column("busy, last minute", 4, Width::Between(17, 60));

/// What each CPU does for an interface, or for several.
pub(super) fn cpus(title: &str, history: &History, sample: &Sample, of: &[InterfaceCpu], workers: &[u32]) -> Table {
    let row = |(place, one): (usize, &InterfaceCpu)| {
        let mark = match (one.base, workers.contains(&one.cpu)) {
            (true, _) => "*",
            (_, true) => "w",
            _ => " ",
        };
        let kernel = at(&sample.cpus, place, |cpu| cpu.cpu == one.cpu).copied().unwrap_or_default();
        vec![
            Cell::of(format!("{}{mark}", one.cpu)),
            Cell::rate(one.packets_per_s),
            Cell::rate(kernel.processed_per_s),
            Cell::share(one.distributing),
            Cell::share(one.processing),
            Cell::share(one.other),
            Cell::of(one.entries),
            Cell::Bar([one.distributing, one.processing, one.other]),
            work(history, place, one.cpu),
            Cell::loss(kernel.dropped_per_s),
            Cell::rate(kernel.squeezed_per_s),
        ]
    };
    Table {
        title: title.to_owned(),
        legend: Some(["distributing", "processing", "other"]),
        side: Side::Left,
        spare: false,
        columns: vec![
            column("CPU ", 0, Width::Right),
            column("outside/s", 0, Width::Right),
            PROCESSED,
            column("distr %", 0, Width::Right),
            column("proc %", 0, Width::Right),
            column("other %", 1, Width::Right),
            column("entries", 1, Width::Right),
            BAR,
            BUSY,
            LOST[0],
            LOST[1],
        ],
        rows: of.iter().enumerate().map(row).collect(),
        chosen: None,
    }
}

/// What each CPU does, where the kernel alone counts.
pub(super) fn kernel_cpus(history: &History, sample: &Sample) -> Table {
    let row = |(place, cpu): (usize, &Cpu)| {
        let other = (cpu.busy - cpu.softirq).max(0.0);
        vec![
            Cell::of(cpu.cpu),
            Cell::rate(cpu.processed_per_s),
            Cell::share(cpu.softirq),
            Cell::share(other),
            Cell::Bar([0.0, cpu.softirq, other]),
            work(history, place, cpu.cpu),
            Cell::loss(cpu.dropped_per_s),
            Cell::rate(cpu.squeezed_per_s),
        ]
    };
    Table {
        title: "CPUs".to_owned(),
        legend: Some(["", "softirq", "other"]),
        side: Side::Left,
        spare: false,
        columns: vec![
            column("CPU", 0, Width::Right),
            column("processed/s", 0, Width::Right),
            column("softirq %", 0, Width::Right),
            column("other %", 0, Width::Right),
            BAR,
            BUSY,
            LOST[0],
            LOST[1],
        ],
        rows: sample.cpus.iter().enumerate().map(row).collect(),
        chosen: None,
    }
}

fn entries(history: &History, interface: &Interface) -> Table {
    let name = &interface.name;
    let spread = interface.counted_by == CounterSource::Spreader;
    let row = |(place, one): (usize, &crate::sample::Entry)| {
        let heat = history.track(|sample| {
            let interface = sample.interfaces.iter().find(|interface| interface.name == *name)?;
            Some(at(&interface.entries, place, |found| found.entry == one.entry)?.receive_processor)
        });
        let mut cells = vec![
            Cell::of(one.entry),
            Cell::of(one.receive_processor),
            Cell::rate(one.packets_per_s),
            Cell::of(one.ns_per_packet.map_or("-".to_owned(), |cost| format!("{cost:.0}"))),
        ];
        if spread {
            let last = match (one.last_why, one.last_move_ms) {
                (Some(why), Some(ms)) => format!("{why}, {} ago", ago(ms)),
                _ => "-".to_owned(),
            };
            cells.extend([Cell::of(one.moves.unwrap_or_default()), Cell::of(last)]);
        }
        let rate = history.track(|sample| {
            let interface = sample.interfaces.iter().find(|interface| interface.name == *name)?;
            Some(at(&interface.entries, place, |found| found.entry == one.entry)?.packets_per_s)
        });
        cells.extend([Cell::Heat(Box::new(heat)), Cell::spark(rate, highest([&rate]))]);
        cells
    };
    let mut columns = vec![
        column("entry", 0, Width::Right),
        column("CPU", 0, Width::Right),
        column("packets/s", 0, Width::Right),
        column("ns/packet", 1, Width::Right),
    ];
    if spread {
        columns.extend([column("moves", 2, Width::Right), column("last move", 1, Width::Left)]);
    }
    columns.push(column("CPU, last minute", 3, Width::Between(16, 60)));
    columns.push(column("packets, last minute", 4, Width::Between(20, 60)));
    Table {
        title: format!("{} of {name}", if spread { "entries" } else { "receive queues" }),
        legend: None,
        side: Side::Right,
        spare: false,
        columns,
        rows: interface.entries.iter().enumerate().map(row).collect(),
        chosen: None,
    }
}
