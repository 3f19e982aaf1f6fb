//! The cases that are timed, and that timing them does not change what becomes of them.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rig_datapath::balancer::ServiceStatus;
use rig_datapath::balancer::replay::{self, ReplayProgram};
use rig_datapath::test_run::Verdict;

use crate::pool::Pooled;

use super::cases::{self, Case, ExpectedResult};
use super::features;
use super::lab::Lab;

#[track_caller]
fn is_as_expected(lab: &Lab, case: &Case) {
    let name = &case.name;
    match &case.expected {
        ExpectedResult::Sent(bytes) => assert_eq!(lab.sent(&case.frame), *bytes, "{name}"),
        ExpectedResult::Forwarded => drop(lab.sent(&case.frame)),
        ExpectedResult::Begun(first) => {
            let out = lab.sent(&case.frame);
            assert_eq!(out, first.forwarded(&out), "{name}");
        }
        ExpectedResult::Dropped(reason) => assert_eq!(lab.dropped(&case.frame), *reason, "{name}"),
        ExpectedResult::Left(reason) => lab.passes(&case.frame, *reason),
    }
}

#[test]
fn each_case_ends_as_it_shall() {
    let Some(lab) = Lab::new(cases::sizes(), &cases::config()) else { return };
    let cases = cases::all(&lab);
    assert!(cases.len() > 60, "{}", cases.len());
    // Twice: the first packet must not be a special one.
    for case in cases.iter().chain(&cases) {
        is_as_expected(&lab, case);
    }
}

const REPEAT: u16 = 100;

/// Each repetition begins with the packet as it was, so the last one ends as the first does.
#[test]
fn a_case_that_is_repeated_stays_the_same() {
    let Some(lab) = Lab::with(&cases::config(), || replay::load(cases::sizes()).map(Pooled::from)) else { return };
    let begun = |services: &[ServiceStatus]| -> u64 { services.iter().map(|s| s.traffic.connections).sum() };
    for mut case in cases::all(&lab) {
        // Only the port is counted up, so this is the one whose checksum is right in the end.
        let last = match &case.expected {
            ExpectedResult::Begun(first) => Some(first.with_port(REPEAT)),
            _ => None,
        };
        if let Some(last) = &last {
            case.frame = last.bytes();
        }
        let (name, before) = (&case.name, lab.balancer.services().unwrap());
        let packet = case.packet();
        let outcome =
            replay::run(&lab.balancer, ReplayProgram::Forward, packet, Some(lab.interface), REPEAT.into()).unwrap();
        let (verdict, frame) = match &case.expected {
            ExpectedResult::Sent(bytes) => (Verdict::Transmit, bytes.clone()),
            ExpectedResult::Forwarded => (Verdict::Transmit, outcome.frame.clone()),
            ExpectedResult::Begun(_) => (Verdict::Transmit, last.as_ref().unwrap().forwarded(&outcome.frame)),
            ExpectedResult::Dropped(_) => (Verdict::Drop, case.frame.clone()),
            ExpectedResult::Left(_) => (Verdict::Pass, case.frame.clone()),
        };
        assert_eq!((outcome.verdict, outcome.frame), (verdict, frame), "{name}: {:?}", lab.drops());
        let begun = begun(&lab.balancer.services().unwrap()) - begun(&before);
        assert!(last.is_none() || begun == u64::from(REPEAT), "{name}: {begun}");
    }
}

/// What is timed is the same packet again and again, and each new one begins a connection.
#[test]
fn what_services_may_have_is_repeated_as_it_is() {
    let load = || replay::load(cases::sizes()).map(Pooled::from);
    let Some(lab) = Lab::with(&features::config(), load) else { return };
    let begun = || -> u64 { lab.balancer.services().unwrap().iter().map(|service| service.traffic.connections).sum() };
    for case in features::all(&lab) {
        let once = case.new_flow.is_none().then(|| lab.sent(&case.frame));
        let (name, before) = (&case.name, begun());
        let repeated =
            replay::run(&lab.balancer, ReplayProgram::Forward, case.packet(), Some(lab.interface), REPEAT.into())
                .unwrap();
        assert_eq!(repeated.verdict, Verdict::Transmit, "{name}: {:?}", lab.drops());
        match once {
            Some(once) => assert_eq!(repeated.frame, once, "{name}"),
            None => assert_eq!(begun() - before, u64::from(REPEAT), "{name}"),
        }
    }
}

/// The kernel gives up repetitions as soon as a signal is there. A process whose threads start others gets SIGCHLD on any of its threads.
#[test]
fn no_signal_cuts_repetitions_short() {
    let Some(lab) = Lab::with(&cases::config(), || replay::load(cases::sizes()).map(Pooled::from)) else { return };
    let case = cases::all(&lab).into_iter().find(|case| matches!(case.expected, ExpectedResult::Dropped(_))).unwrap();
    let done = AtomicBool::new(false);
    let starts_others = || {
        while !done.load(Ordering::Relaxed) {
            Command::new("true").status().unwrap();
        }
    };
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(starts_others);
        }
        let outcomes: Vec<_> = (0..30)
            .map(|_| {
                replay::run(&lab.balancer, ReplayProgram::Forward, case.packet(), Some(lab.interface), 100_000)
                    .map(|outcome| outcome.verdict)
            })
            .collect();
        done.store(true, Ordering::Relaxed);
        assert!(outcomes.iter().all(|outcome| matches!(outcome, Ok(Verdict::Drop))), "{outcomes:?}");
    });
}
