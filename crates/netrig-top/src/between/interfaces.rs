//! What interfaces received, on which CPUs and by which entries.

use std::time::Duration;

use netrig_spread::message;
use rig_sys::counters;

use super::{busy, rise};
use crate::reading::{ProgramCounts, Reading};
use crate::sample::{CounterSource, Difference, Entry, Interface, InterfaceCpu, Rates, Spread};

pub(super) fn of(before: &Reading, now: &Reading, seconds: f64) -> Vec<Interface> {
    now.shown.iter().map(|name| one(name, before, now, seconds)).collect()
}

fn one(name: &str, before: &Reading, now: &Reading, seconds: f64) -> Interface {
    let net = now.interfaces.get(name).copied().unwrap_or_default();
    // An interface that has just come has no rates yet.
    let was = before.interfaces.get(name).copied().unwrap_or(net);
    let rates = |count: fn(&counters::Interface) -> [u64; 3]| {
        let [packets, bytes, dropped] = std::array::from_fn(|n| rise(count(&was)[n], count(&net)[n], seconds));
        Rates { packets_per_s: packets, bits_per_s: bytes * 8.0, dropped_per_s: dropped }
    };
    let mut interface = Interface {
        name: name.to_owned(),
        received: rates(|net| [net.rx_packets, net.rx_bytes, net.rx_dropped + net.rx_errors]),
        sent: rates(|net| [net.tx_packets, net.tx_bytes, net.tx_dropped + net.tx_errors]),
        ..Interface::default()
    };
    if let Some(status) = &now.spreader
        && let Some(taken) = status.interfaces.iter().find(|taken| taken.name == name)
    {
        let earlier = before.spreader.as_ref().filter(|earlier| earlier.process == status.process);
        spread(&mut interface, earlier, status, taken);
    } else if let Some(counted) = &now.counted
        && counted.queues.iter().any(|queue| queue.interface == name)
    {
        by_programs(&mut interface, before, now, counted);
    }
    interface
}

/// By what a spreader tells: its totals, or, where it has not looked since, what it had in its last second.
fn spread(
    interface: &mut Interface,
    before: Option<&message::Status>,
    status: &message::Status,
    taken: &message::Interface,
) {
    let was = before.and_then(|before| {
        let was = before.interfaces.iter().find(|was| was.index == taken.index)?;
        let span = status.at_ns.checked_sub(before.at_ns).filter(|span| *span > 0)?;
        Some((was, span as f64 / 1e9))
    });
    interface.counted_by = CounterSource::Spreader;
    // It looks for losses that the interface does not count, too, but only once a second.
    interface.received.dropped_per_s = interface.received.dropped_per_s.max(taken.received.dropped_per_s);
    let cpu = |cpu: &message::Cpu| {
        let was = was.and_then(|(was, seconds)| Some((was.cpus.iter().find(|was| was.cpu == cpu.cpu)?, seconds)));
        let [packets_per_s, distributing, processing, other] = match was {
            Some((was, seconds)) => [
                rise(was.packets, cpu.packets, seconds),
                rise(was.distributing_ns, cpu.distributing_ns, seconds) / 1e9,
                rise(was.processing_ns, cpu.processing_ns, seconds) / 1e9,
                rise(was.other_ns, cpu.other_ns, seconds) / 1e9,
            ],
            None => [cpu.packets_per_s, cpu.distributing, cpu.processing, cpu.other],
        };
        InterfaceCpu {
            cpu: cpu.cpu,
            base: cpu.base,
            entries: cpu.entries,
            packets_per_s,
            distributing,
            processing,
            other,
        }
    };
    interface.cpus = taken.cpus.iter().map(cpu).collect();
    let entry = |entry: &message::Entry| {
        let was =
            was.and_then(|(was, seconds)| Some((was.entries.iter().find(|was| was.entry == entry.entry)?, seconds)));
        let (packets_per_s, ns_per_packet) = match was {
            Some((was, seconds)) => {
                let packets = entry.packets.saturating_sub(was.packets);
                let cost = entry.cost_ns.zip(was.cost_ns).filter(|_| packets > 0);
                let each = cost.map(|(now, then)| now.saturating_sub(then) as f64 / packets as f64);
                (rise(was.packets, entry.packets, seconds), each)
            }
            None => (entry.packets_per_s, entry.cost_ns_per_packet),
        };
        Entry {
            entry: entry.entry,
            receive_processor: entry.receive_processor,
            packets_per_s,
            ns_per_packet,
            moves: Some(entry.moves),
            last_move_ms: entry.last_move_ms,
            last_why: entry.last_why,
        }
    };
    interface.entries = taken.entries.iter().map(entry).collect();
    let moves = |interface: &message::Interface| interface.moves.total.values().sum::<u64>();
    let uptime = Duration::from_millis(status.uptime_ms);
    let differences = taken.differences.iter().map(|standing| Difference {
        words: standing.difference.to_string(),
        since_ms: uptime.saturating_sub(standing.since).as_millis() as u64,
        of_default: standing.difference.is_of_default(),
    });
    interface.spread = Some(Spread {
        actuator: taken.actuator.to_string(),
        situation: taken.situation,
        in_place: taken.in_place,
        mode_requested: taken.requested.mode,
        mode_effective: taken.effective.mode,
        base: taken.base,
        cpus_in_use: interface.cpus.iter().filter(|cpu| cpu.packets_per_s > 0.0).count() as u32,
        differences: differences.collect(),
        moves: moves(taken),
        moves_now: was.map_or(0, |(was, _)| moves(taken).saturating_sub(moves(was))),
        undone: taken.moves.undone,
        refused: taken.moves.failed,
        past_queues: taken.past_queues.clone(),
    });
}

/// By queue: an entry is a receive queue, and is where it was polled last.
fn by_programs(interface: &mut Interface, before: &Reading, now: &Reading, counted: &ProgramCounts) {
    interface.counted_by = CounterSource::Programs;
    let earlier = before.counted.as_ref();
    let seconds = earlier.map_or(0, |was| counted.reading.at.saturating_sub(was.reading.at)) as f64 / 1e9;
    let mut times = vec![Duration::ZERO; counted.reading.cpus.len()];
    let mut packets_on = vec![0; counted.reading.cpus.len()];
    for queue in counted.queues.iter().filter(|queue| queue.interface == interface.name) {
        let Some(total) = counted.reading.queues.get(queue.index as usize) else { continue };
        let was = earlier.and_then(|was| {
            let watched = was.queues.contains(queue);
            was.reading.queues.get(queue.index as usize).filter(|_| watched)
        });
        let was = was.copied().unwrap_or_default();
        let packets = total.packets.saturating_sub(was.packets);
        let time = total.time.saturating_sub(was.time);
        if let Some(on) = times.get_mut(total.cpu as usize) {
            *on += time;
            packets_on[total.cpu as usize] += packets;
        }
        interface.entries.push(Entry {
            entry: queue.queue,
            receive_processor: if total.polls > 0 { total.cpu.into() } else { -1 },
            packets_per_s: rise(0, packets, seconds),
            ns_per_packet: (packets > 0).then(|| time.as_nanos() as f64 / packets as f64),
            ..Entry::default()
        });
    }
    let steered = counted.steered.contains(&interface.name);
    // What was polled by a CPU is known exactly of all queues that are watched, not of one interface's.
    let alone = counted.queues.iter().all(|queue| queue.interface == interface.name);
    for cpu in now.ticks.keys().copied() {
        let rose = |of: fn(&rig_datapath::receive::Cpu) -> Duration| {
            let total = |reading: &ProgramCounts| reading.reading.cpus.get(cpu as usize).map(of).unwrap_or_default();
            total(counted).saturating_sub(earlier.map(total).unwrap_or_default())
        };
        let share = |time: Duration| if seconds > 0.0 { time.as_secs_f64() / seconds } else { 0.0 };
        let attributed = times.get(cpu as usize).copied().unwrap_or_default();
        let polls = share(if alone { rose(|cpu| cpu.watched) } else { attributed });
        let (distributing, processing) = if steered { (polls, share(rose(|cpu| cpu.backlog))) } else { (0.0, polls) };
        let here = |entry: &&Entry| entry.receive_processor == i64::from(cpu);
        interface.cpus.push(InterfaceCpu {
            cpu,
            base: false,
            entries: interface.entries.iter().filter(here).count() as u32,
            packets_per_s: rise(0, packets_on.get(cpu as usize).copied().unwrap_or(0), seconds),
            distributing,
            processing,
            other: (busy(before, now, cpu).unwrap_or(0.0) - distributing - processing).max(0.0),
        });
    }
}
