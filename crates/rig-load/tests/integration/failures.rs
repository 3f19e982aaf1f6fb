//! What goes wrong: bad orders, ports that are taken, peers that die, drivers that lose time_limit.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has to panic")]

use std::cell::Cell;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::common::*;
use rig_load::driver::{Cancel, Driver, DriverError, Worker, WorkerPair};
use rig_load::plan::{Engine, Load, Role, SendMode, TcpStream, WorkerPlan};
use rig_load::protocol::{Event, Order};
use rig_skip::{Lack, skip};

/// A listening and a connecting worker whose connections stand.
fn connected(stream: &TcpStream) -> (BareWorker, BareWorker) {
    let mut receiver = BareWorker::with_plan(listener(stream, ENDLESS));
    let Some(Event::Listening { port }) = receiver.event() else { panic!("it does not listen") };
    let mut sender = BareWorker::with_plan(connect_to(port, stream));
    assert_eq!(sender.event(), Some(Event::Connected));
    assert_eq!(receiver.event(), Some(Event::Connected));
    (receiver, sender)
}

fn connect_to(port: u16, stream: &TcpStream) -> WorkerPlan {
    let mut to = address();
    to.set_port(port);
    WorkerPlan { role: Role::connect(to), ..connector(stream, ENDLESS) }
}

fn go() -> Order {
    Order::Go { start_ns: rig_sys::clock::monotonic_ns() }
}

#[test]
fn garbage_instead_of_a_plan() {
    let mut worker = BareWorker::new();
    worker.text("hello\n");
    worker.fails_with(&["line 2", "driver's orders"]);
}

#[test]
fn an_unknown_key_in_a_plan() {
    let mut text = serde_json::to_value(Order::Plan(listener(&stream(), PHASES).into())).unwrap();
    text["plan"]["colour"] = "blue".into();
    let mut worker = BareWorker::new();
    worker.text(&format!("{text}\n"));
    worker.fails_with(&["line 2", "colour"]);
}

#[test]
fn a_plan_out_of_range() {
    BareWorker::with_plan(listener(&TcpStream { threads: 0, ..stream() }, PHASES))
        .fails_with(&["b/receiver", "threads is 0"]);
}

#[test]
fn orders_out_of_turn() {
    let mut worker = BareWorker::new();
    worker.order(&go());
    worker.fails_with(&["'go'", "connections have to stand first"]);
    let mut worker = BareWorker::with_plan(listener(&stream(), PHASES));
    worker.order(&Order::Plan(listener(&stream(), PHASES).into()));
    worker.fails_with(&["'plan'", "one already"]);
    let (mut receiver, _sender) = connected(&stream());
    receiver.order(&Order::Plan(listener(&stream(), PHASES).into()));
    receiver.fails_with(&["'plan'"]);
}

#[test]
fn an_end_of_orders_stops_a_worker_at_any_point() {
    // In the middle of a plan.
    let mut worker = BareWorker::new();
    worker.text("{\"plan\":{");
    assert!(!worker.status().success());
    assert_eq!(worker.event(), None);

    // While it listens.
    let mut worker = BareWorker::with_plan(listener(&stream(), PHASES));
    assert!(matches!(worker.event(), Some(Event::Listening { .. })));
    assert!(!worker.status().success());
    assert_eq!(worker.event(), None);

    // Before the start.
    let (mut receiver, mut sender) = connected(&stream());
    assert!(!sender.status().success());
    assert!(!receiver.status().success());
}

#[test]
fn an_end_of_orders_stops_a_sender_whose_peer_does_not_read() {
    let uring = Engine::Uring { outstanding: 3 };
    let mut ways = vec![(Engine::Blocking, SendMode::Copy, None), (Engine::Blocking, SendMode::Copy, Some(1000))];
    ways.extend([SendMode::Sendfile, SendMode::Splice, SendMode::ZeroCopy].map(|mode| (Engine::Blocking, mode, None)));
    match rig_sys::uring::available() {
        Ok(()) => ways.extend([
            (uring, SendMode::Copy, None),
            (uring, SendMode::Copy, Some(1000)),
            (uring, SendMode::ZeroCopy, None),
        ]),
        Err(error) => skip(Lack::IoUring, error),
    }
    for (engine, send_mode, throttle) in ways {
        for connections in [1, 3] {
            let stream = TcpStream { engine, send_mode, throttle, connections, threads: 2, ..stream() };
            let (mut receiver, mut sender) = connected(&stream);
            // Only the sender runs, so its sends come to block, save where the throttle holds it.
            sender.order(&go());
            while !matches!(sender.event(), Some(Event::Sample(_))) {}
            assert!(!sender.status().success());
            assert!(!receiver.status().success());
        }
    }
}

#[test]
fn nobody_listens() {
    let free = std::net::TcpListener::bind(address()).unwrap().local_addr().unwrap().port();
    BareWorker::with_plan(connect_to(free, &stream())).fails_with(&[
        "connection 1 of 1",
        &free.to_string(),
        "connection refused",
    ]);
    BareWorker::with_plan(connector(&stream(), PHASES)).fails_with(&["127.0.0.1:0", "port"]);
}

#[test]
fn the_port_is_in_use() {
    let taken = std::net::TcpListener::bind(address()).unwrap();
    let address = taken.local_addr().unwrap();
    let plan = WorkerPlan { role: Role::Listen { address, only_from: None }, ..listener(&stream(), PHASES) };
    BareWorker::with_plan(plan).fails_with(&[&address.to_string(), "in use"]);
}

#[test]
fn a_congestion_control_that_is_not_there() {
    let stream = TcpStream { congestion_control: Some("no-such".into()), ..stream() };
    BareWorker::with_plan(listener(&stream, PHASES)).fails_with(&["no-such", "available", "reno"]);
}

#[test]
fn a_cpu_that_is_not_there() {
    let plan = WorkerPlan { cpus: vec![1023], ..listener(&stream(), PHASES) };
    BareWorker::with_plan(plan).fails_with(&["b/receiver", "1023"]);
}

#[test]
fn a_peer_that_dies_in_the_window_is_a_failure() {
    for victim in ["sender", "receiver"] {
        for connections in [1, 2] {
            let (mut receiver, mut sender) = connected(&TcpStream { connections, ..stream() });
            receiver.order(&go());
            sender.order(&go());
            let (dies, complains) = if victim == "sender" { (&mut sender, receiver) } else { (&mut receiver, sender) };
            // A sample says that the window has begun.
            while !matches!(dies.event(), Some(Event::Sample(_))) {}
            dies.child.kill().unwrap();
            complains.fails_with(&["127.0.0.1", "peer"]);
        }
    }
}

#[test]
fn the_driver_tells_a_killed_worker_from_its_complaining_peer() {
    for victim in ["a/sender", "b/receiver"] {
        let pid = Cell::new(0);
        let worker = |plan: WorkerPlan| {
            let pid = &pid;
            let is_victim = plan.name == victim;
            let spawn = move || {
                spawn().inspect(|child| {
                    if is_victim {
                        pid.set(child.id());
                    }
                })
            };
            Worker::here(plan, spawn)
        };
        let pair =
            WorkerPair { listen: worker(listener(&stream(), ENDLESS)), connect: worker(connector(&stream(), ENDLESS)) };
        let mut running = Driver::new(&Cancel::new().unwrap()).start(vec![pair]).unwrap();
        let (begin_ns, end_ns) = running.window();
        running.wait_until(begin_ns).unwrap();
        rig_sys::process::kill(pid.get()).unwrap();
        match running.wait_until(end_ns) {
            Err(DriverError::Worker(failure)) => {
                assert_eq!(failure.name, victim);
                assert!(failure.reason.contains("signal: 9"), "{failure}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_workers_last_words_are_in_the_error() {
    let mut broken = pair(listener(&stream(), PHASES), connector(&stream(), PHASES));
    broken.connect.spawn =
        Box::new(|| piped(Command::new("sh").args(["-c", "echo out of paper >&2; exit 3"]))?.try_into());
    let error = run(vec![broken]).unwrap_err().to_string();
    for word in ["a/sender", "exit status: 3", "out of paper"] {
        assert!(error.contains(word), "{error}");
    }

    let mut broken = pair(listener(&stream(), PHASES), connector(&stream(), PHASES));
    broken.listen.spawn = Box::new(|| piped(Command::new("echo").arg("hello"))?.try_into());
    let error = run(vec![broken]).unwrap_err().to_string();
    assert!(error.contains("b/receiver") && error.contains("greeting") && error.contains("hello"), "{error}");
}

#[test]
fn a_program_that_cannot_be_started_is_named() {
    let mut broken = pair(listener(&stream(), PHASES), connector(&stream(), PHASES));
    broken.connect.spawn = Box::new(|| piped(&mut Command::new("/no/such/program"))?.try_into());
    let error = run(vec![broken]).unwrap_err();
    assert!(matches!(&error, DriverError::Spawn { name, .. } if name == "a/sender"), "{error}");

    let mut broken = pair(listener(&stream(), PHASES), connector(&stream(), PHASES));
    broken.connect.spawn = Box::new(|| Command::new("true").spawn()?.try_into());
    let error = run(vec![broken]).unwrap_err().to_string();
    assert!(error.contains("pipes"), "{error}");
}

#[test]
fn a_worker_that_does_not_connect_is_named() {
    let mut broken = pair(listener(&stream(), PHASES), connector(&stream(), PHASES));
    broken.connect.spawn = Box::new(|| piped(Command::new("sleep").arg("600"))?.try_into());
    let driver = Driver::new(&Cancel::new().unwrap()).open_timeout(Duration::from_millis(200));
    // Neither end is connected; the listener comes first.
    match driver.start(vec![broken]) {
        Err(DriverError::Timeout { name, .. }) => assert_eq!(name, "b/receiver"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn cancelling_from_another_thread_ends_everything() {
    let pids = Cell::new(vec![]);
    let worker = |plan| {
        let pids = &pids;
        let spawn = move || {
            spawn().inspect(|child| {
                let mut all = pids.take();
                all.push(child.id());
                pids.set(all);
            })
        };
        Worker::here(plan, spawn)
    };
    let pair =
        WorkerPair { listen: worker(listener(&stream(), ENDLESS)), connect: worker(connector(&stream(), ENDLESS)) };
    let cancel = Cancel::new().unwrap();
    let mut running = Driver::new(&cancel).start(vec![pair]).unwrap();
    let (begin_ns, end_ns) = running.window();
    running.wait_until(begin_ns).unwrap();
    assert!(!cancel.is_cancelled());
    let other = cancel.clone();
    let canceller = std::thread::spawn(move || other.cancel());
    assert!(matches!(running.wait_until(end_ns), Err(DriverError::Cancelled)));
    canceller.join().unwrap();
    assert!(cancel.is_cancelled());
    drop(running);
    for pid in pids.take() {
        assert!(!Path::new(&format!("/proc/{pid}")).exists(), "worker {pid} lives");
    }
    // What is cancelled stays cancelled.
    let pair = self::pair(listener(&stream(), PHASES), connector(&stream(), PHASES));
    assert!(matches!(Driver::new(&cancel).start(vec![pair]), Err(DriverError::Cancelled)));
}

#[test]
fn plans_are_checked_before_anything_is_started() {
    let never = |plan| Worker::here(plan, || panic!("started"));
    let start = |listen, connect| {
        let pair = WorkerPair { listen: never(listen), connect: never(connect) };
        Driver::new(&Cancel::new().unwrap()).start(vec![pair]).unwrap_err().to_string()
    };
    let error = start(listener(&TcpStream { message: 0, ..stream() }, PHASES), connector(&stream(), PHASES));
    assert!(error.contains("b/receiver") && error.contains("message"), "{error}");
    let error = start(listener(&TcpStream { threads: 2, ..stream() }, PHASES), connector(&stream(), PHASES));
    assert!(error.contains("threads"), "{error}");
    let error = start(listener(&stream(), ENDLESS), connector(&stream(), PHASES));
    assert!(error.contains("phases"), "{error}");
    let idle = WorkerPlan { load: Load::Idle, ..connector(&stream(), PHASES) };
    let error = start(listener(&stream(), PHASES), idle);
    assert!(error.contains("kind of load"), "{error}");
    let error = start(listener(&stream(), PHASES), listener(&stream(), PHASES));
    assert!(error.contains("one has to listen"), "{error}");
}
