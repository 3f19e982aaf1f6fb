//! The cases that are timed, and that timing them does not change what becomes of them.

use rig_datapath::balancer::replay::{self, Replayed};
use rig_datapath::test_run::Verdict;

use crate::cases::{self, Case, Expected};
use crate::lab::Lab;

#[track_caller]
fn is_as_expected(lab: &Lab, case: &Case) {
    let name = &case.name;
    match &case.expected {
        Expected::Sent(bytes) if bytes.is_empty() => drop(lab.sent(&case.frame)),
        Expected::Sent(bytes) => assert_eq!(lab.sent(&case.frame), *bytes, "{name}"),
        Expected::Dropped(reason) => assert_eq!(lab.dropped(&case.frame), *reason, "{name}"),
        Expected::Left(reason) => lab.passes(&case.frame, *reason),
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

/// Each repetition begins with the packet as it was, so the last one ends as the first does.
#[test]
fn a_case_that_is_repeated_stays_the_same() {
    let Some(lab) = Lab::with(&cases::config(), || replay::load(cases::sizes())) else { return };
    for case in cases::all(&lab) {
        let (name, before) = (&case.name, lab.balancer.services().unwrap());
        let packet = case.packet();
        let outcome = replay::run(&lab.balancer, Replayed::Through, packet, Some(lab.interface), 100).unwrap();
        match &case.expected {
            Expected::Sent(bytes) => {
                assert_eq!(outcome.verdict, Verdict::Transmit, "{name}: {:?}", lab.drops());
                assert!(bytes.is_empty() || outcome.frame == *bytes, "{name}: {:x?} {bytes:x?}", outcome.frame);
            }
            Expected::Dropped(_) => assert_eq!((outcome.verdict, outcome.frame), (Verdict::Drop, case.frame), "{name}"),
            Expected::Left(_) => assert_eq!((outcome.verdict, outcome.frame), (Verdict::Pass, case.frame), "{name}"),
        }
        let begun = |services: &[rig_datapath::balancer::ServiceStatus]| -> u64 {
            services.iter().map(|service| service.traffic.connections).sum()
        };
        let begun = begun(&lab.balancer.services().unwrap()) - begun(&before);
        if case.new_flow.is_some() {
            assert_eq!(begun, 100, "{name}");
        }
    }
}
