//! Commands to loads that run, over loopback between real worker processes.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has to panic")]

use std::time::Duration;

use crate::common::*;
use rig_load::driver::{Cancel, Driver, LEAD_OF_COMMANDS, RunningLoad};
use rig_load::plan::{ArrivalSpacing, Datagrams, Flow, Load, Pacing, Phases, Role, Schedule, Transactions, WorkerPlan};
use rig_load::record::{WorkerPhase, WorkerRecord};

const MS: u64 = 1_000_000;

/// Three phases of 100 ms, unless the end is moved.
const LONG: Phases = Phases { window: Duration::from_millis(300), interval: Duration::from_millis(20), ..PHASES };

fn plans(load: &Load, phases: Phases) -> (WorkerPlan, WorkerPlan) {
    let listen = plan("b/server", Role::Listen { address: address(), only_from: None }, load.clone(), phases);
    (listen, plan("a/client", Role::connect(address()), load.clone(), phases))
}

/// The listening and the connecting end's record of a load to which `say` says something, given the window's begin. Nothing
/// is said later than its lead before it is to hold.
fn told(load: &Load, say: impl FnOnce(&mut RunningLoad<'_>, u64)) -> [WorkerRecord; 2] {
    let (listen, connect) = plans(load, LONG);
    let mut running = Driver::new(&Cancel::new().unwrap()).start(vec![pair(listen, connect)]).unwrap();
    assert_eq!(running.workers(), 2);
    let (begin_ns, _) = running.window();
    say(&mut running, begin_ns);
    running.finish().unwrap().try_into().unwrap()
}

fn transactions(arrivals: ArrivalSpacing) -> Transactions {
    Transactions {
        threads: 2,
        connections: 2,
        request: 1,
        response: 1,
        in_flight: 4,
        schedule: Schedule::Open { rate: 1000.0, arrivals },
        timeout: Duration::from_secs(1),
        send_buffer: None,
        receive_buffer: None,
        no_delay: true,
        congestion_control: None,
        options: Default::default(),
    }
}

/// How many transactions were due in a phase: each is entered there, however late its answer.
fn due(phase: &WorkerPhase) -> u64 {
    phase.transactions.as_ref().unwrap().latency.as_ref().unwrap().count()
}

fn lasts(phase: &WorkerPhase) -> u64 {
    phase.transactions.as_ref().unwrap().window_ns
}

/// The whole is the sum of its parts.
fn check_sums(record: &WorkerRecord) {
    let whole = record.transactions.as_ref().unwrap();
    let sum = |of: fn(&WorkerPhase) -> u64| record.phases.iter().map(of).sum::<u64>();
    assert_eq!(sum(|phase| phase.operations), record.connections.iter().map(|c| c.operations).sum::<u64>());
    assert_eq!(sum(|phase| phase.bytes), record.bytes());
    assert_eq!(sum(|phase| phase.transactions.as_ref().unwrap().completed), whole.completed);
    assert_eq!(record.samples.iter().map(|sample| sample.bytes).sum::<u64>(), record.bytes());
    assert_eq!(record.phases[0].begin_ns, record.window_begin_ns);
    assert_eq!(record.phases.last().unwrap().end_ns, record.window_end_ns);
    for pair in record.phases.windows(2) {
        assert_eq!(pair[0].end_ns, pair[1].begin_ns);
    }
    if let Some(latency) = &whole.latency {
        assert_eq!(sum(due), latency.count());
        assert_eq!(sum(lasts), whole.window_ns);
    }
    for index in 0..record.phases.len() {
        let alone = record.of_phase(index).unwrap();
        assert_eq!(alone.bytes(), record.phases[index].bytes);
        assert_eq!(alone.transactions, record.phases[index].transactions);
    }
    assert_eq!(record.of_phase(record.phases.len()), None);
}

#[test]
fn a_schedule_changes_its_rate_on_time_whatever_is_late() {
    for load in [Load::TcpRr, Load::UdpRr, Load::TcpCrr] {
        let mut open = transactions(ArrivalSpacing::Uniform);
        let load = match load(open.clone()) {
            Load::TcpCrr(_) => {
                open.in_flight = 1;
                load(open)
            }
            load => load,
        };
        let [answers, asks] = told(&load, |running, begin_ns| {
            running.set_rate(1, 3000.0, begin_ns + 100 * MS);
            running.set_rate(1, 0.0, begin_ns + 200 * MS);
            running.mark(begin_ns + 100 * MS);
            running.mark(begin_ns + 200 * MS);
        });
        let counts: Vec<u64> = asks.phases.iter().map(due).collect();
        // Both threads may have one at each edge.
        for (count, expected) in counts.iter().zip([100u64, 300, 0]) {
            assert!(count.abs_diff(expected) <= 2, "{} of {}: {counts:?}", count, load.name());
        }
        assert!(asks.phases.iter().all(|phase| lasts(phase) == 100 * MS), "{:?}", asks.phases);
        check_sums(&asks);
        check_sums(&answers);
        let measured = asks.samples.iter().filter_map(|sample| sample.latency);
        let answered = asks.samples.iter().map(|sample| sample.units).sum::<u64>();
        // What is answered between the reading of the one and of the other is in another interval.
        assert!(measured.map(|latency| latency.count).sum::<u64>().abs_diff(answered) <= 8, "{:?}", asks.samples);
        assert!(answers.samples.iter().all(|sample| sample.latency.is_none()));
    }
}

#[test]
fn random_times_keep_their_law_across_a_change() {
    let [_, asks] = told(&Load::TcpRr(transactions(ArrivalSpacing::Poisson)), |running, begin_ns| {
        running.set_rate(1, 4000.0, begin_ns + 100 * MS);
        running.mark(begin_ns + 100 * MS);
    });
    // Means of 100 and 800; five standard deviations.
    let [before, after] = [due(&asks.phases[0]), due(&asks.phases[1])];
    assert!((50..=150).contains(&before) && (659..=941).contains(&after), "{before}, {after}");
    check_sums(&asks);
}

#[test]
fn a_load_is_stopped_and_started_again() {
    let datagrams = Datagrams {
        flow: Flow::Forward,
        threads: 1,
        connections: 2,
        message: 1000,
        batch: 2,
        segments: 1,
        coalesce: false,
        throttle: Some(2_000_000),
        pacing: Pacing::Thread,
        shared_clock: true,
        send_buffer: None,
        receive_buffer: None,
        options: Default::default(),
    };
    let stream = rig_load::plan::TcpStream { message: 1000, throttle: Some(2_000_000), ..stream() };
    let several = rig_load::plan::TcpStream { connections: 2, ..stream.clone() };
    let ring = rig_load::plan::TcpStream { engine: rig_load::plan::Engine::Uring { outstanding: 2 }, ..stream.clone() };
    let loads = [Load::UdpStream(datagrams), Load::TcpStream(stream), Load::TcpStream(several), Load::TcpStream(ring)];
    for load in loads {
        if matches!(&load, Load::TcpStream(stream) if stream.engine != rig_load::plan::Engine::Blocking)
            && rig_sys::uring::available().is_err()
        {
            continue;
        }
        let [receives, sends] = told(&load, |running, begin_ns| {
            for (rate, at_ns) in [(0.0, 100 * MS), (4_000_000.0, 200 * MS)] {
                running.set_rate(1, rate, begin_ns + at_ns);
                running.mark(begin_ns + at_ns);
            }
        });
        let sent: Vec<u64> = sends.phases.iter().map(|phase| phase.bytes).collect();
        // A batch may have been on its way, and with io_uring two messages of each connection.
        assert!(sent[0] > 0 && sent[1] <= 4000 && sent[2] > 0, "{}: {sent:?}", load.name());
        assert_eq!(sent.iter().sum::<u64>(), sends.bytes());
        assert_eq!(receives.phases.len(), 3);
    }
}

#[test]
fn the_window_ends_when_it_is_told_to() {
    for load in [Load::TcpRr(transactions(ArrivalSpacing::Uniform)), Load::TcpStream(stream())] {
        let (listen, connect) = plans(&load, ENDLESS);
        let mut running = Driver::new(&Cancel::new().unwrap()).start(vec![pair(listen, connect)]).unwrap();
        let (begin_ns, planned_ns) = running.window();
        running.wait_until(begin_ns + 50 * MS).unwrap();
        let end_ns = rig_sys::clock::monotonic_ns() + LEAD_OF_COMMANDS.as_nanos() as u64;
        running.end_at(end_ns);
        assert_eq!(running.window(), (begin_ns, end_ns));
        assert!(end_ns < planned_ns);
        let records = running.finish().unwrap();
        for record in &records {
            assert!(record.phases.is_empty());
            assert!(record.window_end_ns >= end_ns && record.window_end_ns < planned_ns, "{record:?}");
        }
        if let Some(transactions) = &records[1].transactions {
            assert_eq!(transactions.window_ns, end_ns - begin_ns);
        }
    }
}

#[test]
fn before_the_load_there_is_nothing_to_tell() {
    let (listen, _) = plans(&Load::TcpStream(stream()), LONG);
    let mut worker = BareWorker::with_plan(listen);
    let command = rig_load::command::Command { at_ns: 0, what: rig_load::command::CommandAction::Mark };
    worker.order(&rig_load::protocol::Order::Command(command));
    assert!(worker.failure().contains("obey the order 'command'"));
}
