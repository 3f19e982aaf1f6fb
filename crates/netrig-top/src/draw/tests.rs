#![allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]

use std::time::Duration;

use rig_cli::packet::Protocol;
use rig_spread::{Mode, MoveReason, Situation};

use super::*;
use crate::history::History;
use crate::sample::{
    Backend, Balancer, CounterSource, Cpu, Difference, Drop, Entry, Interface, InterfaceCpu, Rates, Router,
    RouterInterface, Sample, Service, ServiceRates, Spread, Spreader, ViewUsage,
};
use crate::view::ViewState;

const WIDE: Theme = Theme { colour: false, ascii: false, plain: false };
const ASCII: Theme = Theme { ascii: true, ..WIDE };

/// Seconds from 100 on; the second half of `entries` is on other CPUs from 140 on.
fn spread(second: u64, cpus: u32, entries: u32) -> Sample {
    let load = second as f64 / 160.0;
    let moved = second >= 140;
    let processor = |entry: u32| if moved { entry % cpus } else { 0 };
    let rate = |entry: u32| 10_000.0 * load * f64::from(entry % 4);
    let interface = Interface {
        name: "eth0".to_owned(),
        counted_by: CounterSource::Spreader,
        received: Rates {
            packets_per_s: 1.234e6 * load,
            bits_per_s: 10.3e9 * load,
            dropped_per_s: if moved { 0.0 } else { 17.0 },
        },
        sent: Rates { packets_per_s: 51_234.0, bits_per_s: 27.4e6, dropped_per_s: 0.0 },
        cpus: (0..cpus)
            .map(|cpu| InterfaceCpu {
                cpu,
                base: cpu == 0,
                entries: (0..entries).filter(|entry| processor(*entry) == cpu).count() as u32,
                packets_per_s: (0..entries).filter(|entry| processor(*entry) == cpu).map(rate).sum(),
                distributing: if cpu == 0 { 0.42 } else { 0.0 },
                processing: load * 0.3,
                other: 0.05,
            })
            .collect(),
        entries: (0..entries)
            .map(|entry| Entry {
                entry,
                receive_processor: if entry == 7 { -1 } else { processor(entry).into() },
                packets_per_s: rate(entry),
                ns_per_packet: (entry % 4 != 0).then_some(812.4),
                moves: Some(u64::from(moved)),
                last_move_ms: moved.then(|| (second - 140) * 1000 + 300),
                last_why: moved.then_some(MoveReason::Expand),
            })
            .collect(),
        spread: Some(Spread {
            actuator: "napi".to_owned(),
            in_place: false,
            situation: if moved { Situation::Spread } else { Situation::Saturated },
            mode_requested: Mode::Dynamic,
            mode_effective: Mode::StaticVrss,
            base: 0,
            cpus_in_use: if moved { cpus } else { 1 },
            differences: vec![Difference {
                words: "mode is static-vrss, not dynamic: single entries cannot be moved, only all at once".to_owned(),
                since_ms: 92_000,
                of_default: false,
            }],
            moves: if moved { 12 } else { 0 },
            moves_now: 0,
            undone: 1,
            refused: 0,
            past_queues: None,
        }),
    };
    Sample {
        at_ns: second * 1_000_000_000,
        seconds: 1.0,
        cpus: (0..cpus)
            .map(|cpu| Cpu { cpu, busy: load * 0.7, softirq: 0.2, processed_per_s: 123_456.0 * load, ..Cpu::default() })
            .collect(),
        interfaces: vec![interface],
        spreader: Some(Spreader { process: 4711, uptime_ms: 92_000, cpu: 0.002, waiting: Vec::new() }),
        own: ViewUsage { cpu: 0.0031, reading_ms: 1.2 },
        ..Sample::default()
    }
}

fn history(samples: impl IntoIterator<Item = Sample>) -> History {
    let mut history = History::default();
    samples.into_iter().for_each(|sample| history.push(sample));
    history
}

fn minute(cpus: u32, entries: u32) -> History {
    history((100..=160).map(|second| spread(second, cpus, entries)))
}

fn two_interfaces() -> History {
    history((150..=160).map(|second| {
        let mut sample = spread(second, 2, 4);
        let other =
            Interface { name: "veth1234567890".to_owned(), sent: sample.interfaces[0].sent, ..Interface::default() };
        sample.interfaces.push(other);
        sample
    }))
}

fn kernel_only() -> History {
    history((150..=160).map(|second| {
        let mut sample = spread(second, 4, 0);
        let one = &mut sample.interfaces[0];
        one.counted_by = CounterSource::Kernel;
        one.cpus.clear();
        one.spread = None;
        sample.spreader = None;
        sample.lacks = vec!["no counts by queue, only the kernel's by CPU and by interface: loading eBPF programs is not permitted here".to_owned()];
        sample
    }))
}

const RATES: ServiceRates = ServiceRates {
    connections_per_s: 5120.0,
    in_packets_per_s: 41_000.0,
    in_bits_per_s: 31.4e6,
    out_packets_per_s: 38_000.0,
    out_bits_per_s: 410.7e6,
};

fn drops() -> Vec<Drop> {
    let drop = |reason: &str, packets_per_s| Drop {
        reason: reason.to_owned(),
        text: "the table of connections is full".to_owned(),
        remedy: "give it more room: `connections` in the file".to_owned(),
        packets: 1234,
        packets_per_s,
    };
    vec![drop("no_service", 0.0), drop("table_full", 12.0)]
}

fn balancer() -> History {
    history((150..=160).map(|second| {
        let mut sample = Sample { interfaces: Vec::new(), spreader: None, ..spread(second, 2, 2) };
        let backend = |address: &str, leaving| Backend {
            address: address.parse().unwrap(),
            weight: 1,
            leaving,
            active: 800,
            inactive: 93,
            rates: RATES,
        };
        let service = |address: &str, lacks: Option<&str>| Service {
            protocol: Protocol::Tcp,
            address: address.parse().unwrap(),
            scheduler: "wlc".to_owned(),
            lacks: lacks.map(str::to_owned),
            rates: RATES,
            refused_per_s: 0.0,
            backends: vec![backend("10.0.0.1:80", false), backend("10.0.0.2:80", true)],
        };
        sample.balancer = Some(Balancer {
            name: "lb".to_owned(),
            process: 99,
            connections: 1786,
            capacity: 1_000_000,
            workers: vec![1],
            services: vec![service("192.0.2.1:80", None), service("[2001:db8::1]:443", Some("a local address"))],
            drops: drops(),
        });
        sample
    }))
}

fn router() -> History {
    history((150..=160).map(|second| {
        let mut sample = Sample { spreader: None, ..spread(second, 2, 2) };
        sample.interfaces[0].spread = None;
        let interface = |name: &str, device: Option<&str>| RouterInterface {
            name: name.to_owned(),
            network: "red".to_owned(),
            device: device.map(str::to_owned),
            connections: 42,
            in_packets_per_s: 41_000.0,
            in_bits_per_s: 31.4e6,
            out_packets_per_s: 38_000.0,
            out_bits_per_s: 410.7e6,
            dropped_per_s: 3.0,
        };
        sample.router = Some(Router {
            node: "a".to_owned(),
            process: 99,
            connections: 84,
            room: 262_144,
            begun_per_s: 512.0,
            ended_per_s: 500.0,
            refused_per_s: 0.0,
            interfaces: vec![interface("web", Some("toweb")), interface("client", None)],
            drops: drops(),
            notes: vec!["interface 'client' is not there: there is no namespace client".to_owned()],
        });
        sample
    }))
}

fn chosen() -> ViewState {
    ViewState { interval: Duration::from_secs(1), ..ViewState::default() }
}

fn text(history: &History, chosen: &ViewState, theme: Theme, width: u16, height: u16) -> String {
    let lines = compose(&[View::of(history, chosen)], theme, width, height);
    lines.iter().map(|line| format!("{}\n", line.to_string().trim_end())).collect()
}

#[test]
fn an_interface_that_is_spread() {
    let history = minute(2, 8);
    for (width, height) in [(60, 20), (80, 24), (120, 30), (200, 24)] {
        insta::assert_snapshot!(format!("spread-{width}"), text(&history, &chosen(), WIDE, width, height));
    }
    insta::assert_snapshot!("spread-ascii", text(&history, &chosen(), ASCII, 120, 30));
}

#[test]
fn many_cpus_and_entries_are_scrolled() {
    let history = minute(64, 128);
    let scrolled = ViewState { scroll: 30, ..chosen() };
    insta::assert_snapshot!("many", text(&history, &scrolled, WIDE, 200, 24));
    let end = ViewState { scroll: 1000, ..chosen() };
    assert!(text(&history, &end, WIDE, 80, 30).contains("more above"));
}

#[test]
fn other_sources() {
    insta::assert_snapshot!("interfaces", text(&two_interfaces(), &ViewState { index: 1, ..chosen() }, WIDE, 80, 24));
    insta::assert_snapshot!("kernel", text(&kernel_only(), &chosen(), WIDE, 80, 24));
    for width in [60, 120, 200] {
        insta::assert_snapshot!(format!("balancer-{width}"), text(&balancer(), &chosen(), WIDE, width, 24));
        insta::assert_snapshot!(format!("router-{width}"), text(&router(), &chosen(), WIDE, width, 24));
    }
}

#[test]
fn what_keys_do_is_told_and_can_be_scrolled() {
    let help = ViewState { help: true, frozen: true, message: Some("asked for dynamic".to_owned()), ..chosen() };
    insta::assert_snapshot!("help", text(&minute(2, 8), &help, WIDE, 60, 45));
    let low = ViewState { scroll: 1000, ..help };
    assert!(text(&minute(2, 8), &low, WIDE, 60, 20).contains("+ is above 61"));
}

#[test]
fn every_size_is_drawn_and_no_line_is_too_long() {
    let help = ViewState { help: true, ..chosen() };
    for history in
        [History::default(), minute(2, 8), minute(64, 128), two_interfaces(), kernel_only(), balancer(), router()]
    {
        for chosen in [&chosen(), &help] {
            let view = View::of(&history, chosen);
            for width in [0, 1, 2, 3, 7, 20, 40, 59, 60, 149, 150, 151, 300] {
                for height in [0, 1, 2, 3, 4, 5, 6, 9, 24, 300] {
                    let lines = compose(std::slice::from_ref(&view), WIDE, width, height);
                    assert!(lines.len() <= height.into(), "{width}x{height}: {} lines", lines.len());
                    for line in &lines {
                        assert!(line.width() <= usize::from(width.max(1)), "{width}x{height}: {line}");
                    }
                }
            }
        }
    }
}

#[test]
fn ascii_is_ascii_and_names_cannot_move_the_cursor() {
    let mut odd = spread(160, 2, 8);
    odd.interfaces[0].name = "v\u{1b}[2Jé".to_owned();
    for history in [minute(64, 128), kernel_only(), balancer(), router(), history([odd])] {
        let text = text(&history, &chosen(), ASCII, 120, 50);
        assert!(text.is_ascii() && !text.contains('\u{1b}'), "{text}");
    }
}

#[test]
fn colours_only_where_they_are_wanted() {
    let coloured = |theme: Theme| {
        let lines = compose(&[View::of(&minute(2, 8), &chosen())], theme, 200, 24);
        let mut styles =
            lines.iter().flat_map(|line| std::iter::once(line.style).chain(line.spans.iter().map(|span| span.style)));
        styles.any(|style| style.fg.is_some() || style.bg.is_some())
    };
    assert!(coloured(Theme { colour: true, ..WIDE }));
    assert!(!coloured(WIDE));
}
