//! What it does while packets come, is told, and is cut off.

use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rig_sys::netns::NetNs;
use rig_sys::process::in_namespace;
use rustix::process::Signal;

use super::lab::{Lab, TIMEOUT};
use super::with_lab;
use super::world::until;

/// Some ten thousand datagrams a second of 16 flows, from one CPU, while `work` is done.
pub fn under_load<T>(lab: &Lab, cpu: u32, work: impl FnOnce() -> T) -> T {
    let (flows, _to) = lab.flows(16);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            rig_sys::cpu::set_affinity(&[cpu]).unwrap();
            while !done.load(Ordering::Relaxed) {
                // What finds no room, or no interface any more, is lost.
                flows.iter().for_each(|flow| drop(flow.send(&[0; 100])));
                thread::sleep(Duration::from_millis(1));
            }
        });
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        done.store(true, Ordering::Relaxed);
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[track_caller]
pub fn becomes(lab: &Lab, what: &str, holds: impl Fn(&serde_json::Value) -> bool) {
    let seen = until(TIMEOUT, || holds(&lab.json()["interfaces"][0]).then_some(()));
    assert!(seen.is_some(), "not {what}: {}", lab.json());
}

/// That its load was on one CPU: it has to have been there, for other programs can take that CPU away for a while. Where
/// one makes the sender's CPU hot just then, entries leave it as expansion, and nothing is left to coalesce.
fn was_brought_together(interface: &serde_json::Value) -> bool {
    let moved = |why: &str| interface["moves"]["total"][why].as_u64() > Some(0);
    moved("coalesce") || interface["situation"] == "coalesced" && moved("expand")
}

const TOGETHER: [&str; 2] = ["coalesce", "expand"];

/// The CPUs that entries are on.
pub fn on(interface: &serde_json::Value) -> Vec<i64> {
    let entries = interface["entries"].as_array().unwrap();
    let mut cpus: Vec<i64> = entries.iter().map(|entry| entry["receive_processor"].as_i64().unwrap()).collect();
    cpus.sort_unstable();
    cpus.dedup();
    cpus
}

#[test]
fn dynamic_spreading_coalesces_a_low_load_and_parks_when_it_ends() {
    with_lab(|lab| {
        let mut spreader = lab.start(&["in0", "--actuator", "napi", "--cpus", "0-1"]);
        becomes(lab, "parked", |interface| interface["situation"] == "parked" && on(interface) == [0, 1]);
        under_load(lab, 0, || {
            becomes(lab, "coalesced", was_brought_together);
        });
        becomes(lab, "parked again", |interface| interface["situation"] == "parked" && on(interface) == [0, 1]);
        // Each move is there with what came of it, those of parking too.
        let told = until(TIMEOUT, || {
            let (events, _) = lab.netrig(0, &["events", "in0", "--json"]);
            let events: Vec<serde_json::Value> =
                events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            let first = events.iter().position(|event| TOGETHER.iter().any(|why| event["moved"]["why"] == *why));
            let measured = |from: usize| events[from..].iter().any(|event| event["event"]["event"] == "effect");
            (measured(first?) && measured(events.iter().rposition(|event| event["moved"]["why"] == "park")?))
                .then_some(())
        });
        assert!(told.is_some(), "{}", lab.netrig(0, &["events", "in0"]).0);
        spreader.signal(Signal::TERM);
        spreader.ended(Some(0));
    });
}

#[test]
fn there_are_no_threads_while_one_cpu_is_enough() {
    with_lab(|lab| {
        let before = lab.as_it_is("in0");
        let mut spreader = lab.start(&["in0", "--actuator", "napi"]);
        let threads = |wanted: &str| until(TIMEOUT, || (lab.as_it_is("in0").0 == wanted).then_some(()));
        becomes(lab, "parked", |interface| interface["situation"] == "parked" && on(interface) == [0, 1]);
        assert!(threads("1").is_some());
        under_load(lab, 0, || {
            // Whose queues they are is told while they are polled so, for others on this machine can end it at any time.
            becomes(lab, "in place", |interface| {
                let entries = interface["entries"].as_array().unwrap();
                interface["in_place"] == true && entries.iter().all(|entry| entry["prepared"].is_u64())
            });
            assert!(threads("0").is_some());
            let said = || lab.netrig(0, &["show", "in0"]).0.contains("polled in place").then_some(());
            assert!(until(TIMEOUT, said).is_some());
            let told = || lab.netrig(0, &["metrics"]).0.contains("spread_in_place{interface=\"in0\"} 1").then_some(());
            assert!(until(TIMEOUT, told).is_some());
            // When the user names CPUs, threads poll on them.
            lab.netrig(0, &["set", "in0", "--cpus", "0-1"]);
            becomes(lab, "by threads", |interface| interface["in_place"] == false);
            assert!(threads("1").is_some());
            lab.netrig(0, &["set", "in0", "--cpus", "any"]);
            becomes(lab, "in place again", |interface| interface["in_place"] == true);
        });
        let (events, _) = lab.netrig(0, &["events", "in0"]);
        assert!(events.contains("queues are polled in place"), "{events}");
        assert!(events.contains("threads poll the queues, as the settings in force ask for"), "{events}");
        becomes(lab, "parked again", |interface| interface["situation"] == "parked");
        under_load(lab, 0, || {
            becomes(lab, "in place", |interface| interface["in_place"] == true);
            spreader.signal(Signal::KILL);
            spreader.ended(None);
        });
        let restored = until(TIMEOUT, || (lab.as_it_is("in0") == before).then_some(()));
        assert!(restored.is_some(), "{:?}", lab.as_it_is("in0"));
    });
}

#[test]
fn the_base_is_where_packets_are_seen_to_come_first() {
    with_lab(|lab| {
        // A queue of a veth is polled on the CPU of the sender, also when its packets are steered to another CPU.
        for kind in ["rps", "cpumap"] {
            let mut spreader =
                lab.start(&["in0", "--actuator", kind, "--cpus", "0-1", "--base", "0", "--mode", "static-vrss"]);
            assert_eq!(lab.json()["interfaces"][0]["received_by"], serde_json::Value::Null, "nothing was seen yet");
            for cpu in [1, 0] {
                under_load(lab, cpu, || {
                    becomes(lab, kind, |interface| interface["received_by"] == cpu && interface["base"] == cpu);
                    let (said, _) = lab.netrig(0, &["base", "in0"]);
                    assert_eq!(said, format!("in0: CPU {cpu}, where packets come first\n"));
                    let (said, _) = lab.netrig(0, &["get", "in0"]);
                    let why = "base is 1, not 0: packets of the interface come to CPU 1 first";
                    assert_eq!(said.contains(why), cpu == 1, "{said}");
                });
            }
            let (events, _) = lab.netrig(0, &["events", "in0"]);
            assert!(events.contains("CPU 1 first"), "{events}");
            // What is static does not move with it.
            assert_eq!(lab.json()["interfaces"][0]["moves"]["total"], serde_json::json!({}));
            // Everything on one CPU that is asked for, and others receive.
            lab.netrig(0, &["set", "in0", "--mode", "static-vmq", "--base", "1"]);
            under_load(lab, 0, || becomes(lab, kind, |interface| interface["base"] == 1 && on(interface) == [1]));
            let (said, _) = lab.netrig(0, &["base", "in0"]);
            assert_eq!(said, "in0: CPU 1, packets come to CPU 0 first\n");
            spreader.signal(Signal::TERM);
            spreader.ended(Some(0));
        }
    });
}

pub fn ip_link(ns: &NetNs, arguments: &str) {
    let mut command = Command::new("ip");
    assert!(in_namespace(command.args(arguments.split(' ')), ns).status().unwrap().success(), "ip {arguments}");
}

#[test]
fn what_was_recorded_is_decided_on_again_also_after_a_flap_of_the_link() {
    with_lab(|lab| {
        let directory = lab.path("records");
        let arguments = ["in0", "--actuator", "napi", "--cpus", "0-1", "--record", directory.to_str().unwrap()];
        let mut spreader = lab.start(&arguments);
        let coalesced = || under_load(lab, 0, || becomes(lab, "coalesced", was_brought_together));
        coalesced();
        ip_link(&lab.receiver, "link set in0 down");
        spreader.says("in0: released");
        ip_link(&lab.receiver, "link set in0 up");
        let again = until(TIMEOUT, || (spreader.said().matches("in0: taken by").count() == 2).then_some(()));
        assert!(again.is_some(), "{}", spreader.said());
        coalesced();
        spreader.signal(Signal::TERM);
        spreader.ended(Some(0));
        let file = directory.join("in0.jsonl");
        let text = fs::read_to_string(&file).unwrap();
        let begun = text.lines().filter(|line| line.starts_with("{\"state\"")).count();
        assert_eq!(begun, 2, "it has not gone on after the flap");
        let (decided, _) = lab.netrig(0, &["simulate", "--replay", file.to_str().unwrap()]);
        assert!(TOGETHER.iter().any(|why| decided.contains(&format!(": {why}\n"))), "{decided}");
        let (decided, _) = lab.netrig(0, &["simulate", "--json", "--replay", file.to_str().unwrap()]);
        assert!(decided.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()));
        // A file of another time is not written over.
        let mut spreader = lab.start(&arguments);
        spreader.says("make ");
        assert_eq!(fs::read_to_string(&file).unwrap(), text);
        spreader.signal(Signal::TERM);
        spreader.ended(Some(0));
    });
}
