//! The spreader as OpenMetrics 1.0 text, which Prometheus scrapes.

use rig_service::openmetrics::Exposition;
use rig_spread::Situation;

use crate::message::{Interface, Status};

const SITUATIONS: [Situation; 5] =
    [Situation::Fixed, Situation::Parked, Situation::Coalesced, Situation::Spread, Situation::Saturated];

/// All metrics; counters count since the interface was taken.
pub(crate) fn render(status: &Status) -> String {
    let mut text = Exposition::default();
    let version = [("version", env!("CARGO_PKG_VERSION"))];
    text.gauge("spread_build_info", "", "The spreader's version.", &version, 1.0);
    let help = "Since the process was started.";
    text.gauge("spread_up", "seconds", help, &[], status.uptime_ms as f64 / 1e3);
    let help = "CPU time of the spreader itself.";
    text.add("counter", "spread_own_cpu", "seconds", help, &[], status.own.cpu_ns as f64 / 1e9);
    let help = "Interfaces that a rule names and that could not be taken.";
    text.gauge("spread_waiting", "", help, &[], status.waiting.len() as f64);
    for interface in &status.interfaces {
        of_interface(&mut text, interface);
    }
    text.to_string()
}

fn of_interface(text: &mut Exposition, interface: &Interface) {
    let name = ("interface", interface.name.as_str());
    for situation in SITUATIONS {
        let help = "1 for the present placing of entries on CPUs.";
        let labels = [name, ("situation", situation.name())];
        text.gauge("spread_situation", "", help, &labels, f64::from(interface.situation == situation));
    }
    let in_use = interface.cpus.iter().filter(|cpu| cpu.packets_per_s > 0.0).count();
    text.gauge("spread_cpus_used", "", "CPUs that process packets of the interface.", &[name], in_use as f64);
    let help = "1 while the CPUs that packets reach first process them, without threads.";
    text.gauge("spread_in_place", "", help, &[name], f64::from(interface.in_place));
    let help = "Settings that differ from what was requested: see `netrig spread get`.";
    text.gauge("spread_differences", "", help, &[name], interface.differences.len() as f64);
    for (why, count) in &interface.moves.total {
        let labels = [name, ("why", why.name())];
        text.add("counter", "spread_moves", "", "Entries that were moved, by reason.", &labels, *count as f64);
    }
    let mut counter = |metric, help, value: u64| text.add("counter", metric, "", help, &[name], value as f64);
    counter("spread_moves_refused", "Moves that the kernel refused.", interface.moves.failed);
    counter("spread_moves_undone", "Moves that were taken back, because things got worse.", interface.moves.undone);
    if let Some(hurried) = interface.moves.hurried {
        let help = "Moves that did not wait for the old CPU, so that packets may have overtaken each other.";
        counter("spread_moves_hurried", help, hurried);
    }
    counter("spread_received_packets", "Packets, as the interface counts them.", interface.received.packets);
    counter("spread_received_dropped", "Packets that the interface dropped.", interface.received.dropped);
    let help = "Bytes, as the interface counts them.";
    text.add("counter", "spread_received_bytes", "bytes", help, &[name], interface.received.bytes as f64);
    if let Some(first) = interface.received_by {
        let help = "The CPU that was seen to receive most packets before they are given to others.";
        text.gauge("spread_received_by", "", help, &[name], first.into());
    }
    for cpu in &interface.cpus {
        let number = cpu.cpu.to_string();
        let labels = [name, ("cpu", number.as_str())];
        text.gauge("spread_cpu_entries", "", "Entries that are on the CPU.", &labels, cpu.entries.into());
        text.gauge(
            "spread_cpu_base",
            "",
            "1 for the base CPU, which all is on when one will do.",
            &labels,
            f64::from(cpu.base),
        );
        let help = "Packets of entries that were on the CPU.";
        text.add("counter", "spread_cpu_packets", "", help, &labels, cpu.packets as f64);
        for (kind, ns) in
            [("distributing", cpu.distributing_ns), ("processing", cpu.processing_ns), ("other", cpu.other_ns)]
        {
            let labels = [labels[0], labels[1], ("kind", kind)];
            let help = "CPU time: handing the interface's packets to other CPUs, processing them, and all else.";
            text.add("counter", "spread_cpu_time", "seconds", help, &labels, ns as f64 / 1e9);
        }
    }
    for entry in &interface.entries {
        let number = entry.entry.to_string();
        let labels = [name, ("entry", number.as_str())];
        let help = "The CPU that processes the entry; -1 where it has none.";
        text.gauge("spread_entry_receive_processor", "", help, &labels, entry.receive_processor as f64);
        text.add("counter", "spread_entry_packets", "", "Packets of the entry.", &labels, entry.packets as f64);
        if let Some(ns) = entry.cost_ns {
            let help = "CPU time of processing the entry.";
            text.add("counter", "spread_entry_time", "seconds", help, &labels, ns as f64 / 1e9);
        }
    }
}
