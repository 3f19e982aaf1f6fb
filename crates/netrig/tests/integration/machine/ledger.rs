//! Losses that are forced at one place are found in that place's counter, and no frame is left over.

use rig_facts::ledger::{Flow, Ledger, Line, UNEXPLAINED, ledger};
use rig_facts::record::{Flag, TrialRecord};
use rig_run::run::Execute;
use rig_suite::suite::Suite;
use rig_testbed::Dut;

use super::dut::{as_root, is_lacking};
use super::world;

fn suite(nodes: &str, wire: &str, scenario: &str) -> Suite {
    let text = format!(
        "name = \"ledger\"\ntitle = \"Ledger\"\n\
         [defaults]\nwindow = \"200ms\"\nwarm_up = \"100ms\"\ncool_down = \"50ms\"\n\
         [testbed.bed]\nnodes = [{nodes}]\nwire = {{ {wire} }}\n\
         [[scenario]]\nid = \"S\"\nname = \"S\"\ntestbed = \"bed\"\n{scenario}\n"
    );
    Suite::parse("ledger.toml", &text).unwrap_or_else(|error| panic!("{error}"))
}

/// What must hold of every ledger here.
fn assert_explained(record: &TrialRecord) -> Ledger {
    let ledger = ledger(record).unwrap_or_else(|| panic!("no ledger of {record:?}"));
    let why = || format!("{ledger:#?} of {:#?}", (&record.frames, &record.workers));
    assert!(ledger.unexplained_share().abs() <= UNEXPLAINED, "{} frames: {}", ledger.unexplained(), why());
    assert!(!record.flags.iter().any(|flag| matches!(flag, Flag::Unexplained { .. })), "{:?}", record.flags);
    ledger
}

/// Over a wire between two nodes.
fn trial(wire: &str, scenario: &str) -> Option<Ledger> {
    let suite = suite("\"a\", \"b\"", wire, scenario);
    let mut rig = world::rig()?;
    let record = rig.trial(&suite.scenarios[0], 1, &suite.timing, &mut |_, _| ()).unwrap();
    Some(assert_explained(&record))
}

fn taken(ledger: &Ledger, place: &str, counter: &str) -> u64 {
    let lines = ledger.lines.iter().filter(|line| line.place == place && line.counter.contains(counter));
    lines.map(|line| line.frames).sum()
}

#[test]
fn datagrams_that_no_socket_had_room_for_are_in_its_counter() {
    world::own(|| {
        for (path, from, to) in [("raw", "a", "b"), ("bridge", "a/c", "b/d"), ("vxlan", "a/c", "b/d")] {
            // A batch is larger than the receiver's buffer, which can be no smaller.
            let ledger = trial(
                "",
                &format!(
                    "path = \"{path}\"\nfrom = \"{from}\"\nto = \"{to}\"\n\
                     load = {{ kind = \"udp-stream\", message = \"1000\", batch = 64, receive_buffer = \"2304\" }}"
                ),
            );
            let Some(ledger) = ledger else { return };
            assert!(ledger.missing() > 0, "{path}: {ledger:?}");
            let lost = taken(&ledger, to, "Udp.RcvbufErrors");
            assert!(lost > 0, "{path}: {ledger:?}");
        }
    });
}

#[test]
fn datagrams_that_a_queue_had_no_room_for_are_in_its_counter() {
    world::own(|| {
        // The sockets' send buffers hold more than the queue has room for.
        let load = "load = { kind = \"udp-stream\", message = \"1000\", connections = 16, send_buffer = \"200k\" }";
        let scenario = format!("path = \"raw\"\nfrom = \"a\"\nto = \"b\"\n{load}");
        let Some(ledger) = trial("rate = \"20Mbit/s\"", &scenario) else { return };
        assert!(taken(&ledger, "a:eth0", "qdisc tbf drops") > 0, "{ledger:?}");
        // The kernel tells IP of these drops, too, which are the same.
        assert_eq!(taken(&ledger, "a", "OutDiscards"), 0, "{ledger:?}");
    });
}

/// Each end of it may be kept from its CPU and be overrun, or not: whatever is lost is found.
#[test]
fn a_flood_loses_nothing_without_a_trace() {
    world::own(|| {
        for driver in ["auto", "packet"] {
            let load = format!(
                "load = {{ kind = \"packets\", protocol = \"udp\", driver = \"{driver}\", flood = true, \
                 connections_per_second = 1000000, client_addresses = 3 }}"
            );
            let Some(ledger) = trial("", &format!("path = \"raw\"\nfrom = \"a\"\nto = \"b\"\n{load}")) else { return };
            let ways: Vec<(&str, &str)> = ledger.flows.iter().map(|Flow { from, to, .. }| (&**from, &**to)).collect();
            assert_eq!(ways, [("a", "b"), ("b", "a")], "{driver}");
        }
    });
}

#[test]
fn what_a_balancer_drops_is_told_by_its_reason() {
    let load = "path = \"balancer\"\nfrom = \"client\"\nto = \"server\"\n\
                load = { kind = \"packets\", protocol = \"udp\", connections_per_second = 100, client_addresses = 3, \
                server_addresses = 3, timeout = \"100ms\" }\n[[scenario.datapath]]\nname = \"balancer\"\nlimit = 5";
    let mut suite = suite("\"client\", \"lb\", \"server\"", "", load);
    suite.scenarios[0].dut = Some(Dut { workers: 1, service_addresses: 2, local_addresses: 2, profile: false });
    as_root(|| {
        let Some(mut rig) = world::rig() else { return };
        let scenario = &suite.scenarios[0];
        if is_lacking(scenario, &rig) {
            return;
        }
        let ledger = assert_explained(&rig.trial(scenario, 1, &suite.timing, &mut |_, _| ()).unwrap());
        let [Line { place, frames, .. }] = &ledger.lines[..] else { panic!("{ledger:?}") };
        assert_eq!((place.as_str(), *frames as i64), ("balancer on lb", ledger.missing()), "{ledger:?}");
        assert!(*frames > 0, "{ledger:?}");
    });
}
