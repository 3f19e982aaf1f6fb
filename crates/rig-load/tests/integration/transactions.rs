//! Requests and responses over loopback between real worker processes.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has to panic")]

use std::cell::Cell;
use std::net::SocketAddr;
use std::time::Duration;

use crate::common::*;
use rig_load::driver::{Cancel, Driver, Worker};
use rig_load::plan::{ArrivalSpacing, Load, Phases, Role, Schedule, Transactions, WorkerPlan};
use rig_load::protocol::{Event, Order};
use rig_load::record::{Direction, TransactionRecord, WorkerRecord};
use rig_skip::{Lack, skip};
use rig_stats::histogram::Histogram;

fn transactions() -> Transactions {
    Transactions {
        threads: 1,
        connections: 1,
        request: 1,
        response: 1,
        in_flight: 1,
        schedule: Schedule::Closed,
        timeout: Duration::from_secs(1),
        send_buffer: None,
        receive_buffer: None,
        no_delay: true,
        congestion_control: None,
        options: Default::default(),
    }
}

fn plans(load: &Load, phases: Phases) -> (WorkerPlan, WorkerPlan) {
    let listen = plan("b/responder", Role::Listen { address: address(), only_from: None }, load.clone(), phases);
    (listen, plan("a/requester", Role::connect(address()), load.clone(), phases))
}

/// Runs one load. Returns the responder's and the requester's record.
fn run_load(load: &Load) -> (WorkerRecord, WorkerRecord) {
    let (listen, connect) = plans(load, PHASES);
    both(run(vec![pair(listen, connect)]).unwrap())
}

fn both(records: Vec<WorkerRecord>) -> (WorkerRecord, WorkerRecord) {
    let [responder, requester] = <[WorkerRecord; 2]>::try_from(records).unwrap();
    (responder, requester)
}

fn has_ipv6() -> bool {
    let bound = std::net::TcpListener::bind("[::1]:0");
    bound.inspect_err(|error| skip(Lack::Ipv6, error)).is_ok()
}

fn seen(record: &WorkerRecord) -> &TransactionRecord {
    record.transactions.as_ref().unwrap()
}

/// What must hold for any record of transactions over connections that stay.
fn check(record: &WorkerRecord, load: &Transactions, direction: Direction) {
    assert_eq!(record.direction, direction);
    assert_eq!(record.threads.len(), load.threads as usize);
    assert_eq!(record.connections.len(), (load.threads * load.connections) as usize);
    let both = u64::from(load.request) + u64::from(load.response);
    for connection in &record.connections {
        assert_eq!(connection.total_bytes % both, 0, "{connection:?}");
    }
    let operations = |record: &WorkerRecord| record.connections.iter().map(|c| c.operations).sum::<u64>();
    assert_eq!(record.samples.iter().map(|sample| sample.units).sum::<u64>(), operations(record));
    assert_eq!(record.samples.iter().map(|sample| sample.bytes).sum::<u64>(), record.bytes());
    let transactions = seen(record);
    assert!(transactions.window_ns > 0);
    assert_eq!((transactions.lost, transactions.failed, transactions.unanswered), (0, 0, 0));
    assert_eq!(transactions.connect, None);
    match direction {
        Direction::Request => {
            assert_eq!(transactions.window_ns, PHASES.window.as_nanos() as u64);
            let latency = transactions.latency.as_ref().unwrap().count();
            let is_open = load.schedule != Schedule::Closed;
            assert_eq!(transactions.service.is_some(), is_open);
            match &transactions.service {
                Some(service) => assert_eq!(latency, service.count() + transactions.censored),
                None => assert_eq!((latency, transactions.censored), (transactions.completed, 0)),
            }
            if let Schedule::Open { rate, arrivals: ArrivalSpacing::Uniform } = load.schedule {
                assert_eq!(latency as f64, rate * PHASES.window.as_secs_f64(), "all that was due");
            }
        }
        _ => {
            assert_eq!((&transactions.latency, &transactions.service), (&None, &None));
            assert_eq!(transactions.completed, operations(record));
        }
    }
}

/// Both ends saw the same transactions.
fn check_both(responder: &WorkerRecord, requester: &WorkerRecord, load: &Transactions) {
    check(responder, load, Direction::Respond);
    check(requester, load, Direction::Request);
    for asked in &requester.connections {
        let answered = responder.connections.iter().find(|c| c.remote == asked.local).unwrap();
        assert_eq!(answered.total_bytes, asked.total_bytes, "{load:?}");
    }
}

fn total_bytes(record: &WorkerRecord) -> u64 {
    record.connections.iter().map(|c| c.total_bytes).sum()
}

#[test]
fn both_ends_count_the_same_transactions() {
    for (threads, connections, in_flight) in [(1, 1, 1), (2, 1, 1), (1, 3, 1), (1, 1, 7), (2, 3, 5)] {
        let load = Transactions { threads, connections, in_flight, ..transactions() };
        let (responder, requester) = run_load(&Load::TcpRr(load.clone()));
        check_both(&responder, &requester, &load);
        assert!(requester.connections.iter().all(|c| c.total_bytes >= 2 * u64::from(in_flight)), "{requester:?}");
    }
}

#[test]
fn threads_that_end_with_the_window_keep_their_cpu_time() {
    let load = Load::TcpRr(transactions());
    let phases = Phases { cool_down: Duration::ZERO, ..PHASES };
    for _ in 0..3 {
        let (listen, connect) = plans(&load, phases);
        let (responder, requester) = both(run(vec![pair(listen, connect)]).unwrap());
        for record in [responder, requester] {
            assert!(seen(&record).completed == 0 || record.threads[0].cpu_ns > 0, "{record:?}");
        }
    }
}

#[test]
fn requests_and_responses_have_their_sizes() {
    let large = 3 << 20;
    for (request, response) in [(1, 1400), (1400, 1), (100_000, 300_000), (large, large), (300_000, 1)] {
        for (connections, in_flight) in [(1, 1), (3, 1), (1, 3)] {
            // Small buffers, so that sends and receives are partial.
            let (send_buffer, receive_buffer) = (Some(10_000), Some(10_000));
            let sized = Transactions { request, response, connections, in_flight, ..transactions() };
            let load = Transactions { send_buffer, receive_buffer, ..sized };
            let (responder, requester) = run_load(&Load::TcpRr(load.clone()));
            check_both(&responder, &requester, &load);
            assert!(total_bytes(&requester) > 0);
        }
    }
}

#[test]
fn the_largest_transaction_is_carried() {
    let load = Transactions { request: 64 << 20, response: 64 << 20, ..transactions() };
    let (responder, requester) = run_load(&Load::TcpRr(load.clone()));
    check_both(&responder, &requester, &load);
    assert!(total_bytes(&requester) >= 128 << 20);
}

#[test]
fn many_connections_take_their_turns() {
    let load = Transactions { threads: 2, connections: 300, in_flight: 2, ..transactions() };
    let (responder, requester) = run_load(&Load::TcpRr(load.clone()));
    check_both(&responder, &requester, &load);
    assert!(requester.connections.iter().all(|c| c.total_bytes >= 4), "one was never served");
}

#[test]
fn transactions_work_over_ipv6() {
    if !has_ipv6() {
        return;
    }
    for connections in [1, 2] {
        let load = Transactions { connections, ..transactions() };
        let (mut listen, mut connect) = plans(&Load::TcpRr(load.clone()), PHASES);
        listen.role = Role::Listen { address: "[::1]:0".parse().unwrap(), only_from: None };
        connect.role = Role::connect("[::1]:0".parse().unwrap());
        let (responder, requester) = both(run(vec![pair(listen, connect)]).unwrap());
        check_both(&responder, &requester, &load);
        assert!(requester.connections.iter().all(|c| c.remote.starts_with("[::1]")));
    }
}

#[test]
fn an_open_loop_keeps_its_schedule() {
    for arrivals in [ArrivalSpacing::Uniform, ArrivalSpacing::Poisson] {
        for (threads, connections, in_flight) in [(1, 1, 1), (2, 2, 2)] {
            let schedule = Schedule::Open { rate: 2000.0, arrivals };
            let load = Transactions { threads, connections, in_flight, schedule, ..transactions() };
            let (responder, requester) = run_load(&Load::TcpRr(load.clone()));
            check_both(&responder, &requester, &load);
            let transactions = seen(&requester);
            assert_eq!(transactions.seed.is_some(), arrivals == ArrivalSpacing::Poisson);
            // 280 are due in the 140 ms of the load and 200 in the window. None is begun ahead of its time, and what is
            // due in the window is begun or said to be overdue, however slow this machine is.
            let begun = total_bytes(&requester) / 2;
            let of_window = begun + transactions.overdue;
            match arrivals {
                ArrivalSpacing::Uniform => assert!(begun <= 280 && of_window >= 200, "{begun} {transactions:?}"),
                // Six standard deviations.
                ArrivalSpacing::Poisson => assert!(begun <= 380 && of_window >= 115, "{begun} {transactions:?}"),
            }
            let latency = transactions.latency.as_ref().unwrap();
            let service = transactions.service.as_ref().unwrap();
            assert!(latency.max() >= service.max());
        }
    }
}

#[test]
fn what_an_overloaded_open_loop_does_not_begin_is_overdue() {
    let schedule = Schedule::Open { rate: 1e8, arrivals: ArrivalSpacing::Uniform };
    let load = Transactions { schedule, ..transactions() };
    let (responder, requester) = run_load(&Load::TcpRr(load.clone()));
    check_both(&responder, &requester, &load);
    let transactions = seen(&requester);
    // Ten million were due in the 100 ms of the window, and none of them can have begun in it that was due after the
    // time that transactions begun before took.
    let carried = total_bytes(&requester) / 2;
    assert!(transactions.overdue >= 10_000_000 - carried, "{transactions:?}");
    assert!(transactions.overdue <= 10_000_000);
    // The last that were completed had been due long before.
    let latency = transactions.latency.as_ref().unwrap();
    assert!(latency.max() > transactions.service.as_ref().unwrap().max());
}

fn crr(load: &Transactions) -> Load {
    Load::TcpCrr(load.clone())
}

/// What must hold where each transaction has a connection of its own.
fn check_connections(responder: &WorkerRecord, requester: &WorkerRecord, load: &Transactions) {
    assert_eq!(total_bytes(responder), total_bytes(requester), "{load:?}");
    assert!(total_bytes(requester) > 0);
    let asked = seen(requester);
    assert_eq!((asked.lost, asked.failed, asked.unanswered), (0, 0, 0));
    let count = |histogram: &Option<Histogram>| histogram.as_ref().unwrap().count();
    match load.schedule {
        Schedule::Closed => assert_eq!(count(&asked.latency), asked.completed),
        Schedule::Open { .. } => assert_eq!(count(&asked.latency), count(&asked.service) + asked.censored),
    }
    assert_eq!(count(&asked.connect) + asked.censored, count(&asked.latency));
    assert!(asked.connect.as_ref().unwrap().max() <= asked.latency.as_ref().unwrap().max());
    let answered = seen(responder);
    assert_eq!((&answered.latency, &answered.connect), (&None, &None));
}

#[test]
fn a_connection_for_each_transaction() {
    for (threads, connections) in [(1, 1), (2, 1), (1, 4), (2, 3)] {
        let load = Transactions { threads, connections, ..transactions() };
        let (responder, requester) = run_load(&crr(&load));
        check_connections(&responder, &requester, &load);
        assert_eq!(requester.connections.len(), (threads * connections) as usize);
    }
}

#[test]
fn connections_carry_large_requests_and_responses() {
    for (request, response) in [(1, 1_000_000), (1_000_000, 1), (700_000, 300_000)] {
        for connections in [1, 3] {
            let (send_buffer, receive_buffer) = (Some(20_000), Some(20_000));
            let sized = Transactions { request, response, connections, ..transactions() };
            let congestion_control = Some("reno".into());
            let load = Transactions { send_buffer, receive_buffer, congestion_control, ..sized };
            let (responder, requester) = run_load(&crr(&load));
            check_connections(&responder, &requester, &load);
            assert_eq!(total_bytes(&requester) % u64::from(request + response), 0);
        }
    }
}

#[test]
fn connections_are_made_over_ipv6_and_on_schedule() {
    let schedule = Schedule::Open { rate: 500.0, arrivals: ArrivalSpacing::Poisson };
    for (connections, schedule) in [(1, Schedule::Closed), (3, Schedule::Closed), (1, schedule), (3, schedule)] {
        if schedule == Schedule::Closed && !has_ipv6() {
            continue;
        }
        let load = Transactions { connections, schedule, ..transactions() };
        let (mut listen, mut connect) = plans(&crr(&load), PHASES);
        if schedule == Schedule::Closed {
            listen.role = Role::Listen { address: "[::1]:0".parse().unwrap(), only_from: None };
            connect.role = Role::connect("[::1]:0".parse().unwrap());
        }
        let (responder, requester) = both(run(vec![pair(listen, connect)]).unwrap());
        check_connections(&responder, &requester, &load);
        assert_eq!(seen(&requester).service.is_some(), schedule != Schedule::Closed);
    }
}

#[test]
fn the_requester_keeps_its_ports() {
    // Were the requester's end to wait in TIME_WAIT, there would be one such socket for each transaction.
    // The third is a multiple of the largest segment on loopback.
    let all = [(1, 1), (3, 1), (1, 2 * 65_483), (3, 2 * 65_483)];
    for (number, (connections, response)) in (64..).zip(all) {
        let load = Transactions { connections, response, ..transactions() };
        // An address of its own: the port may be one that another load's listener had, whose connections wait still.
        let [.., high, low] = std::process::id().to_be_bytes();
        let ip = [127, number, high, low];
        let (mut listen, mut connect) = plans(&crr(&load), PHASES);
        listen.role = Role::Listen { address: (ip, 0).into(), only_from: None };
        connect.role = Role::connect((ip, 0).into());
        let (responder, requester) = both(run(vec![pair(listen, connect)]).unwrap());
        check_connections(&responder, &requester, &load);
        let remote: SocketAddr = requester.connections[0].remote.parse().unwrap();
        let remote = format!("{:08X}:{:04X}", u32::from_ne_bytes(ip), remote.port());
        let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
        let rows = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
        let waiting = rows.filter(|row| row[3] == "06" && row[2] == remote).count();
        // Those that stayed for the whole load.
        assert!(waiting <= connections as usize, "{waiting} of {load:?}");
        assert!(total_bytes(&requester) > u64::from(10 * connections), "{requester:?}");
    }
}

#[test]
fn datagrams_go_and_come() {
    for (threads, connections, in_flight) in [(1, 1, 1), (2, 1, 1), (1, 3, 1), (1, 1, 7), (2, 2, 5)] {
        for (request, response) in [(1, 1), (8, 1400), (100, 3), (40, 40)] {
            let load = Transactions { threads, connections, in_flight, request, response, ..transactions() };
            let (responder, requester) = run_load(&Load::UdpRr(load.clone()));
            check_both(&responder, &requester, &load);
            assert!(requester.connections.iter().all(|c| c.total_bytes > 0 && c.mss == 0), "{requester:?}");
        }
    }
}

#[test]
fn datagrams_have_their_schedule_and_ipv6() {
    let schedule = Schedule::Open { rate: 2000.0, arrivals: ArrivalSpacing::Uniform };
    for (connections, schedule) in [(1, Schedule::Closed), (1, schedule), (3, schedule)] {
        if !has_ipv6() {
            return;
        }
        let load = Transactions { connections, schedule, ..transactions() };
        let (mut listen, mut connect) = plans(&Load::UdpRr(load.clone()), PHASES);
        listen.role = Role::Listen { address: "[::1]:0".parse().unwrap(), only_from: None };
        connect.role = Role::connect("[::1]:0".parse().unwrap());
        let (responder, requester) = both(run(vec![pair(listen, connect)]).unwrap());
        check_both(&responder, &requester, &load);
        if schedule != Schedule::Closed {
            let begun = total_bytes(&requester) / 2;
            assert!(begun <= 280 && begun + seen(&requester).overdue >= 200, "{begun}");
        }
    }
}

fn kinds(load: &Transactions) -> [Load; 3] {
    [Load::TcpRr(load.clone()), Load::TcpCrr(load.clone()), Load::UdpRr(load.clone())]
}

/// Workers whose plans need not agree, connected: the responder and the requester.
fn connected(listening: &Load, connecting: &Load) -> (BareWorker, BareWorker) {
    let mut responder = BareWorker::with_plan(plans(listening, ENDLESS).0);
    let Some(Event::Listening { port }) = responder.event() else { panic!("it does not listen") };
    let mut to = address();
    to.set_port(port);
    let plan = plans(connecting, ENDLESS).1;
    let mut requester = BareWorker::with_plan(WorkerPlan { role: Role::connect(to), ..plan });
    assert_eq!(requester.event(), Some(Event::Connected));
    assert_eq!(responder.event(), Some(Event::Connected));
    (responder, requester)
}

fn go(workers: [&mut BareWorker; 2]) {
    let start_ns = rig_sys::clock::monotonic_ns();
    for worker in workers {
        worker.order(&Order::Go { start_ns });
    }
}

#[test]
fn a_peer_that_dies_in_the_window_is_a_failure() {
    for connections in [1, 2] {
        for load in kinds(&Transactions { connections, ..transactions() }) {
            for victim in ["requester", "responder"] {
                if victim == "requester" && load.is_udp() {
                    // A responder that waits for datagrams is not told that the requester has died.
                    continue;
                }
                let (mut responder, mut requester) = connected(&load, &load);
                go([&mut responder, &mut requester]);
                let (mut dies, complains) =
                    if victim == "requester" { (requester, responder) } else { (responder, requester) };
                // A sample says that the window has begun.
                while !matches!(dies.event(), Some(Event::Sample(_))) {}
                dies.child.kill().unwrap();
                complains.fails_with(&["127.0.0.1", "before the window was over"]);
            }
        }
    }
}

#[test]
fn an_end_of_orders_stops_either_end() {
    for (connections, schedule) in [
        (1, Schedule::Closed),
        (2, Schedule::Closed),
        // The next is due after minutes.
        (1, Schedule::Open { rate: 0.002, arrivals: ArrivalSpacing::Uniform }),
    ] {
        for load in kinds(&Transactions { connections, schedule, ..transactions() }) {
            for first in ["requester", "responder"] {
                let (mut responder, mut requester) = connected(&load, &load);
                go([&mut responder, &mut requester]);
                while !matches!(responder.event(), Some(Event::Sample(_))) {}
                let (mut one, mut other) =
                    if first == "requester" { (requester, responder) } else { (responder, requester) };
                assert!(!one.status().success());
                assert!(!other.status().success());
            }
        }
    }
}

#[test]
fn ends_that_do_not_agree_about_sizes_find_out() {
    let small = Transactions { request: 10, response: 10, ..transactions() };
    for connections in [1, 2] {
        let small = Transactions { connections, ..small.clone() };
        let asks_more = Transactions { request: 25, ..small.clone() };
        let answers_more = Transactions { response: 25, ..small.clone() };
        for ((listen, connect), requester_complains) in [
            ((kinds(&small), kinds(&asks_more)), [false, false, false]),
            ((kinds(&answers_more), kinds(&small)), [true, true, true]),
        ] {
            for ((listen, connect), requester_complains) in listen.iter().zip(&connect).zip(requester_complains) {
                let (mut responder, mut requester) = connected(listen, connect);
                go([&mut responder, &mut requester]);
                let complains = if requester_complains { requester } else { responder };
                complains.fails_with(&["127.0.0.1", "do both ends have the same sizes?"]);
            }
        }
    }
    let never = |plan| Worker::here(plan, || panic!("started"));
    let large = Transactions { response: 11, ..small.clone() };
    let listen = never(plans(&Load::TcpRr(small), PHASES).0);
    let connect = never(plans(&Load::TcpRr(large), PHASES).1);
    let error = Driver::new(&Cancel::new().unwrap()).start(vec![rig_load::driver::WorkerPair { listen, connect }]);
    assert!(error.unwrap_err().to_string().contains("sizes"));
}

/// Runs `load` while its responder stands still for `stall` at the window's begin. Returns the requester's record.
fn run_stalled(load: &Load, stall: Duration) -> WorkerRecord {
    run_stalled_from(load, 4 * stall, Duration::ZERO, stall)
}

/// Runs `load` for a window while its responder stands still for `stall`, `after` the window's begin.
fn run_stalled_from(load: &Load, window: Duration, after: Duration, stall: Duration) -> WorkerRecord {
    use rustix::process::{Pid, Signal, kill_process};
    let phases = Phases { window, ..PHASES };
    let (listen, connect) = plans(load, phases);
    let pid = Cell::new(0);
    let spawn_responder = || spawn().inspect(|child| pid.set(child.id()));
    let listen = Worker::here(listen, spawn_responder);
    let connect = Worker::here(connect, spawn);
    let pair = rig_load::driver::WorkerPair { listen, connect };
    let mut running = Driver::new(&Cancel::new().unwrap()).start(vec![pair]).unwrap();
    running.wait_until(running.window().0 + after.as_nanos() as u64).unwrap();
    let responder = Pid::from_raw(pid.get() as i32).unwrap();
    kill_process(responder, Signal::STOP).unwrap();
    std::thread::sleep(stall);
    kill_process(responder, Signal::CONT).unwrap();
    running.finish().unwrap().pop().unwrap()
}

fn slower_than(histogram: &rig_stats::histogram::Histogram, limit: Duration) -> u64 {
    histogram.values().filter(|(ns, _)| *ns > limit.as_nanos() as u64).map(|(_, count)| count).sum()
}

#[test]
fn a_stall_shows_in_every_transaction_that_it_delayed() {
    let stall = Duration::from_millis(160);
    let schedule = Schedule::Open { rate: 1000.0, arrivals: ArrivalSpacing::Uniform };
    for load in kinds(&Transactions { schedule, ..transactions() }) {
        let requester = run_stalled(&load, stall);
        let transactions = seen(&requester);
        let latency = slower_than(transactions.latency.as_ref().unwrap(), stall / 4);
        let service = slower_than(transactions.service.as_ref().unwrap(), stall / 4);
        // One a millisecond was due, of which those of the last quarter may have been quick. What did not begin in the
        // window because the stall lasted (or this machine stalled too) is said.
        assert!(latency + transactions.overdue >= 100, "{load:?} {transactions:?}");
        // One at a time, so that not more than that many can have taken a quarter of the stall.
        assert!(service <= 16, "{load:?} {transactions:?}");
    }
}

#[test]
fn datagrams_without_an_answer_in_time_are_lost_and_the_load_goes_on() {
    // Slow, and with the stall inside the window: each that is lost takes the timeout, and those that a busy machine has left over from before the
    // window are not the window's.
    let schedule = Schedule::Open { rate: 200.0, arrivals: ArrivalSpacing::Uniform };
    let timeout = Duration::from_millis(20);
    let (begin, stall) = (Duration::from_millis(50), Duration::from_millis(100));
    for (connections, schedule) in [(1, Schedule::Closed), (3, Schedule::Closed), (1, schedule)] {
        for size in [1, 8] {
            let sized = Transactions { request: size, response: size, ..transactions() };
            let load = Transactions { connections, schedule, timeout, ..sized };
            let requester = run_stalled_from(&Load::UdpRr(load), 4 * stall, begin, stall);
            let transactions = seen(&requester);
            assert!(transactions.lost > 0, "{transactions:?}");
            assert!(requester.samples.iter().map(|sample| sample.lost).sum::<u64>() > 0, "{requester:?}");
            let slowest = transactions.service.as_ref().or(transactions.latency.as_ref()).unwrap().max();
            // The histogram is exact to a thousandth.
            assert!(slowest.is_none_or(|ns| ns as f64 <= timeout.as_nanos() as f64 * 1.001), "{transactions:?}");
            let latency = transactions.latency.as_ref().unwrap();
            match &transactions.service {
                None => assert_eq!(latency.count(), transactions.completed),
                // What is lost took as long as was waited for it, or longer.
                Some(service) => {
                    assert_eq!(latency.count(), service.count() + transactions.censored);
                    assert!(transactions.censored >= transactions.lost && latency.max() >= service.max());
                }
            }
        }
    }
}

/// What a stall delays ends after the window, if at all. It was due inside of it, so that its latency belongs there.
#[test]
fn a_stall_at_the_windows_end_shows_in_the_percentiles() {
    let window = Duration::from_millis(600);
    let third = window / 3;
    // They wait, mostly, and so all do at once.
    std::thread::scope(|scope| {
        for arrivals in [ArrivalSpacing::Uniform, ArrivalSpacing::Poisson] {
            // The second stall outlasts all waiting: those without an answer are entered with their age.
            for stall in [third + Duration::from_millis(100), third + Duration::from_millis(1800)] {
                scope.spawn(move || check_stall_at_the_windows_end(window, arrivals, stall));
            }
        }
    });
}

/// Loads whose responder stands still from the last third of the window on.
fn check_stall_at_the_windows_end(window: Duration, arrivals: ArrivalSpacing, stall: Duration) {
    let schedule = Schedule::Open { rate: 1000.0, arrivals };
    for (connections, in_flight) in [(1, 1), (2, 8)] {
        let load = Transactions { schedule, connections, in_flight, ..transactions() };
        // A connection for each carries one.
        let possible = |kind: &Load| in_flight == 1 || !matches!(kind, Load::TcpCrr(_));
        for load in kinds(&load).into_iter().filter(possible) {
            let requester = run_stalled_from(&load, window, 2 * window / 3, stall);
            let transactions = seen(&requester);
            let latency = transactions.latency.as_ref().unwrap();
            if arrivals == ArrivalSpacing::Uniform {
                assert_eq!(latency.count(), 600, "each that was due: {load:?} {transactions:?}");
            }
            let slow = |percent: f64| latency.percentile(percent).unwrap();
            // A third was due while the server did not answer, on average half a third before the window was over.
            let least = Duration::from_millis(100).as_nanos() as u64;
            assert!(slow(99.0) >= 2 * least, "{load:?} {transactions:?}");
            assert!(slow(90.0) >= least, "{load:?} {transactions:?}");
            if stall > Duration::from_secs(1) {
                assert!(transactions.censored > 0, "{load:?} {transactions:?}");
            }
        }
    }
}
