//! Packets that come past an interface's queues, and interfaces that are not there any more.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rig_sys::ethtool::{self, Offload};
use rig_sys::process::in_namespace;
use rustix::process::Signal;

use super::lab::{ADDRESS, Lab, PORT, TIMEOUT, ip};
use super::with_lab;
use super::world::until;

/// A stream goes to the end that receives, some thousand writes a second, until `seen` has something.
fn while_a_stream_goes<T>(lab: &Lab, seen: impl FnMut() -> Option<T>) -> Option<T> {
    let ends = AtomicBool::new(false);
    let listener = lab.receiver.run(|| TcpListener::bind((ip(ADDRESS), PORT)).unwrap()).unwrap();
    let mut stream = lab.sender.run(|| TcpStream::connect((ip(ADDRESS), PORT)).unwrap()).unwrap();
    let (mut receiver, _) = listener.accept().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let data = [7; 30_000];
            while !ends.load(Ordering::Relaxed) {
                stream.write_all(&data).unwrap();
                thread::sleep(Duration::from_millis(1));
            }
            drop(stream);
        });
        scope.spawn(move || {
            let mut buffer = [0; 65_536];
            while receiver.read(&mut buffer).is_ok_and(|read| read > 0) {}
        });
        let found = until(TIMEOUT, seen);
        ends.store(true, Ordering::Relaxed);
        found
    })
}

fn segmentation(lab: &Lab, on: bool) {
    for offload in [Offload::Gso, Offload::Tso] {
        ethtool::set(&lab.sender, "in0", offload, on).unwrap();
    }
}

/// The rate that no queue had, and whether any packets came, of the last second.
fn past(lab: &Lab) -> (Option<f64>, bool) {
    let interface = &lab.json()["interfaces"][0];
    (interface["past_queues"]["packets_per_s"].as_f64(), interface["received"]["packets_per_s"].as_f64() > Some(100.0))
}

#[test]
fn packets_that_come_past_the_queues_are_told_with_the_reason() {
    with_lab(|lab| {
        for actuator in ["napi", "observe"] {
            segmentation(lab, false);
            // Without it there would be nothing to look at.
            ethtool::set(&lab.receiver, "in0", Offload::Gro, true).unwrap();
            let mut spreader = lab.start(&["in0", "--actuator", actuator]);
            let seen = while_a_stream_goes(lab, || Some(past(lab)).filter(|(_, any)| *any));
            assert_eq!(seen, Some((None, true)));
            assert!(!spreader.said().contains("past its receive queues"), "{}", spreader.said());
            segmentation(lab, true);
            let seen = while_a_stream_goes(lab, || {
                past(lab).0?;
                let (shown, _) = lab.netrig(0, &["show", "in0"]);
                shown.contains("packets/s come past its receive queues: a veth").then_some(shown)
            });
            assert!(seen.is_some_and(|shown| shown.contains("ethtool -K PEER tso off")), "{}", spreader.said());
            let told = "in0: packets come past its receive queues, which nothing here sees or moves: a veth";
            assert_eq!(spreader.said().matches(told).count(), 1, "{}", spreader.said());
            spreader.signal(Signal::TERM);
            spreader.ended(Some(0));
        }
        let (said, _) = lab.netrig(0, &["probe", "in0"]);
        assert!(said.contains("may come past its receive queues: a veth"), "{said}");
    });
}

#[test]
fn what_is_not_there_any_more_is_told_and_not_put_back() {
    with_lab(|lab| {
        let mut spreader = lab.start(&["in0", "--actuator", "rps", "--mode", "static-vrss"]);
        let mut fewer = Command::new("ethtool");
        let set = in_namespace(fewer.args(["-L", "in0", "rx", "4"]), &lab.receiver).status().unwrap();
        assert!(set.success());
        spreader.says("in0: left: gone, down, or with other queues");
        assert!(until(TIMEOUT, || (lab.json()["interfaces"].as_array()?.len() == 1).then_some(())).is_some());
        lab.unplug("in0");
        let listed = until(TIMEOUT, || {
            let (shown, _) = lab.netrig(0, &["show"]);
            shown.contains("in0: not taken: there is no interface of this name").then_some(())
        });
        assert!(listed.is_some(), "{}", lab.netrig(0, &["show"]).0);
        assert!(!spreader.said().contains("not everything"), "{}", spreader.said());
        spreader.signal(Signal::TERM);
        spreader.ended(Some(0));
    });
}
