//! The balancer and the vRouter.

use super::spreading::{cpus, interfaces, kernel_cpus};
use super::{Cell, Side, StatusNote, Table, TextStyle, View, Width, at, column, highest};
use crate::history::{History, Track};
use crate::sample::{Balancer, Drop, InterfaceCpu, Router, RouterInterface, Sample, Service, ServiceRates};
use rig_cli::words::short;
use rig_stats::units::counted;

pub(super) fn balancer(view: &mut View, history: &History, sample: &Sample, balancer: &Balancer, chosen: usize) {
    let dropped: f64 = balancer.drops.iter().map(|drop| drop.packets_per_s).sum();
    let workers: Vec<String> = balancer.workers.iter().map(u32::to_string).collect();
    let workers = if workers.is_empty() { "any CPU".to_owned() } else { format!("CPU {}", workers.join(",")) };
    let text = format!(
        "process {}: {} connections of {}, {} dropped/s, workers on {workers}",
        balancer.process,
        balancer.connections,
        balancer.capacity,
        short(dropped)
    );
    view.notes.push(StatusNote::new(if dropped > 0.0 { TextStyle::Alarm } else { TextStyle::Plain }, text));
    for service in &balancer.services {
        if let Some(lacks) = &service.lacks {
            view.notes.push(StatusNote::new(
                TextStyle::Alarm,
                format!("{} is not balanced: it lacks {lacks}", service.address),
            ));
        }
    }
    view.tables.push(services(history, balancer, chosen));
    if let Some(service) = balancer.services.get(chosen) {
        view.tables.push(backends(service));
    }
    view.tables.push(drops(&balancer.drops));
    devices(view, history, sample, &balancer.workers);
}

/// The devices, and what all their packets cost by CPU.
fn devices(view: &mut View, history: &History, sample: &Sample, workers: &[u32]) {
    let mut all: Vec<InterfaceCpu> = Vec::new();
    for one in sample.interfaces.iter().flat_map(|interface| &interface.cpus) {
        match all.iter_mut().find(|cpu| cpu.cpu == one.cpu) {
            Some(sum) => {
                sum.entries += one.entries;
                sum.packets_per_s += one.packets_per_s;
                sum.distributing += one.distributing;
                sum.processing += one.processing;
            }
            None => all.push(*one),
        }
    }
    for (place, cpu) in all.iter_mut().enumerate() {
        let busy = at(&sample.cpus, place, |one| one.cpu == cpu.cpu).map_or(0.0, |one| one.busy);
        cpu.other = (busy - cpu.distributing - cpu.processing).max(0.0);
    }
    view.tables.push(if all.is_empty() {
        kernel_cpus(history, sample)
    } else {
        cpus("CPUs", history, sample, &all, workers)
    });
    if !sample.interfaces.is_empty() {
        view.tables.push(Table { side: Side::Right, ..interfaces(history, sample, None) });
    }
}

fn of_rates(rates: &ServiceRates) -> [Cell; 5] {
    [
        Cell::rate(rates.connections_per_s),
        Cell::rate(rates.in_packets_per_s),
        Cell::rate(rates.out_packets_per_s),
        Cell::rate(rates.in_bits_per_s),
        Cell::rate(rates.out_bits_per_s),
    ]
}

fn services(history: &History, balancer: &Balancer, chosen: usize) -> Table {
    let tracks: Vec<Track<f64>> = balancer
        .services
        .iter()
        .enumerate()
        .map(|(place, one)| {
            history.track(|sample| {
                let is = |found: &Service| (found.protocol, found.address) == (one.protocol, one.address);
                let found = at(&sample.balancer.as_ref()?.services, place, is)?;
                Some(found.rates.in_packets_per_s + found.rates.out_packets_per_s)
            })
        })
        .collect();
    let full = highest(&tracks);
    let row = |(one, track): (&Service, Track<f64>)| {
        let protocol = match one.protocol {
            rig_cli::packet::Protocol::Tcp => "tcp",
            rig_cli::packet::Protocol::Udp => "udp",
        };
        let connections: u64 = one.backends.iter().map(|one| u64::from(one.active) + u64::from(one.inactive)).sum();
        let mut cells = vec![Cell::of(format!("{protocol} {}", one.address)), Cell::of(connections)];
        cells.extend(of_rates(&one.rates));
        cells.extend([Cell::loss(one.refused_per_s), Cell::of(&one.scheduler), Cell::spark(track, full)]);
        cells
    };
    Table {
        title: "services".to_owned(),
        legend: None,
        side: Side::Whole,
        spare: false,
        columns: vec![
            column("service", 0, Width::Left),
            column("conns", 0, Width::Right),
            column("new/s", 0, Width::Right),
            column("in packets/s", 1, Width::Right),
            column("out packets/s", 2, Width::Right),
            column("in bit/s", 3, Width::Right),
            column("out bit/s", 4, Width::Right),
            column("refused/s", 2, Width::Right),
            column("by", 6, Width::Left),
            column("packets, last minute", 5, Width::Between(20, 60)),
        ],
        rows: balancer.services.iter().zip(tracks).map(row).collect(),
        chosen: (balancer.services.len() > 1).then_some(chosen),
    }
}

fn backends(service: &Service) -> Table {
    let row = |one: &crate::sample::Backend| {
        let mut cells = vec![
            Cell::of(one.address),
            Cell::of(if one.leaving { "leaves".to_owned() } else { one.weight.to_string() }),
            Cell::of(one.active),
            Cell::of(one.inactive),
        ];
        cells.extend(of_rates(&one.rates));
        cells
    };
    Table {
        title: format!("backends of {}", service.address),
        legend: None,
        side: Side::Left,
        spare: false,
        columns: vec![
            column("backend", 0, Width::Left),
            column("weight", 1, Width::Right),
            column("active", 0, Width::Right),
            column("inactive", 2, Width::Right),
            column("new/s", 0, Width::Right),
            column("in packets/s", 1, Width::Right),
            column("out packets/s", 3, Width::Right),
            column("in bit/s", 4, Width::Right),
            column("out bit/s", 5, Width::Right),
        ],
        rows: service.backends.iter().map(row).collect(),
        chosen: None,
    }
}

fn drops(drops: &[Drop]) -> Table {
    let mut sorted: Vec<&Drop> = drops.iter().collect();
    sorted.sort_by(|a, b| b.packets_per_s.total_cmp(&a.packets_per_s).then(b.packets.cmp(&a.packets)));
    let row = |drop: &&Drop| {
        vec![
            Cell::of(&drop.reason),
            Cell::loss(drop.packets_per_s),
            Cell::of(drop.packets),
            Cell::of(&drop.text),
            Cell::of(&drop.remedy),
        ]
    };
    Table {
        title: if drops.is_empty() { "nothing was dropped".to_owned() } else { "dropped, by reason".to_owned() },
        legend: None,
        side: Side::Right,
        spare: false,
        columns: vec![
            column("reason", 0, Width::Left),
            column("packets/s", 0, Width::Right),
            column("packets", 0, Width::Right),
            column("what it is", 1, Width::Between(16, 60)),
            column("what to do", 2, Width::Between(24, 100)),
        ],
        rows: sorted.iter().map(row).collect(),
        chosen: None,
    }
}

pub(super) fn router(view: &mut View, history: &History, sample: &Sample, router: &Router) {
    let text = format!(
        "process {}: {} of {}, {} begun/s, {} ended/s, {} packets refused/s",
        router.process,
        counted(router.connections, "connection", "connections"),
        router.room,
        short(router.begun_per_s),
        short(router.ended_per_s),
        short(router.refused_per_s)
    );
    view.notes
        .push(StatusNote::new(if router.refused_per_s > 0.0 { TextStyle::Alarm } else { TextStyle::Plain }, text));
    view.notes.extend(router.notes.iter().map(|note| StatusNote::new(TextStyle::Faint, note)));
    let tracks: Vec<Track<f64>> = router
        .interfaces
        .iter()
        .enumerate()
        .map(|(place, one)| {
            history.track(|sample| {
                let found = at(&sample.router.as_ref()?.interfaces, place, |found| found.name == one.name)?;
                Some(found.in_packets_per_s + found.out_packets_per_s)
            })
        })
        .collect();
    let full = highest(&tracks);
    let row = |(one, track): (&RouterInterface, Track<f64>)| {
        vec![
            Cell::of(&one.name),
            Cell::rate(one.in_packets_per_s),
            Cell::rate(one.out_packets_per_s),
            Cell::loss(one.dropped_per_s),
            Cell::of(one.connections),
            Cell::rate(one.in_bits_per_s),
            Cell::rate(one.out_bits_per_s),
            Cell::of(&one.network),
            Cell::of(one.device.as_deref().unwrap_or("not there")),
            Cell::spark(track, full),
        ]
    };
    view.tables.push(Table {
        title: "containers' interfaces".to_owned(),
        legend: None,
        side: Side::Whole,
        spare: false,
        columns: vec![
            column("interface", 0, Width::Left),
            column("in packets/s", 0, Width::Right),
            column("out packets/s", 0, Width::Right),
            column("dropped/s", 0, Width::Right),
            column("conns", 1, Width::Right),
            column("in bit/s", 2, Width::Right),
            column("out bit/s", 3, Width::Right),
            column("network", 4, Width::Left),
            column("device", 5, Width::Left),
            column("packets, last minute", 6, Width::Between(20, 60)),
        ],
        rows: router.interfaces.iter().zip(tracks).map(row).collect(),
        chosen: None,
    });
    view.tables.push(drops(&router.drops));
    devices(view, history, sample, &[]);
}
