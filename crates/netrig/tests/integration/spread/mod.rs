//! `netrig spread` as a service: what it takes, moves and leaves as it was.

mod actuators;
pub mod lab;
mod load;
mod past;
mod told;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rig_datapath::napi::{self, PlacementError};
use rig_skip::{Lack, skip};
use rig_sys::cpu::CpuSet;
use rustix::process::Signal;
use serde_json::json;

use self::lab::{Lab, QUEUES, TIMEOUT};
use self::world::{is_root, own_among_processes, until};
use crate::stdio::Conversation;
use crate::world;

fn with_lab(test: impl FnOnce(&Lab)) {
    if !is_root() {
        return skip(Lack::Root, "threads of the kernel are moved by root of the machine");
    }
    if CpuSet::allowed().unwrap().len() < 2 {
        return skip(Lack::Cpus, "what is spread needs two CPUs");
    }
    if let Err(lack @ PlacementError::Kernel) = napi::may_place() {
        return skip(Lack::Kernel, lack);
    }
    own_among_processes(|| test(&Lab::new()));
}

/// Where the thread of each queue may run.
fn placed(lab: &Lab, interface: &str) -> Vec<CpuSet> {
    let queues = napi::of(&lab.receiver, interface).unwrap();
    queues.iter().map(|queue| napi::cpus_of_thread(queue.thread.unwrap()).unwrap()).collect()
}

#[test]
fn an_interface_is_taken_shown_and_left_as_it_was() {
    with_lab(|lab| {
        let before = lab.as_it_is("in0");
        assert_eq!(before.0, "0");
        for (kind, order) in [("napi", "exact"), ("rps", "bounded")] {
            let mut spreader = lab.start(&["in0", "--actuator", kind, "--mode", "static-vrss", "--cpus", "0-1"]);
            let status = lab.json();
            let interface = &status["interfaces"][0];
            assert_eq!(interface["actuator"], kind);
            assert_eq!(interface["abilities"]["order"], order);
            assert_eq!(interface["entries"].as_array().unwrap().len() as u32, QUEUES);
            let cpus: Vec<i64> = interface["entries"]
                .as_array()
                .unwrap()
                .iter()
                .map(|entry| entry["receive_processor"].as_i64().unwrap())
                .collect();
            assert!(cpus.iter().all(|cpu| [0, 1].contains(cpu)), "{cpus:?}");
            assert_eq!(cpus.iter().filter(|&&cpu| cpu == 0).count() as u32, QUEUES / 2, "{cpus:?}");
            // The kernel has them there.
            let kernels: Vec<String> = match kind {
                "napi" => placed(lab, "in0").iter().map(ToString::to_string).collect(),
                _ => lab
                    .as_it_is("in0")
                    .2
                    .iter()
                    .map(|mask| (mask.trim_start_matches('0').len() / 2).to_string())
                    .collect(),
            };
            assert_eq!(kernels.len() as u32, QUEUES);
            if kind == "napi" {
                let told: Vec<String> = cpus.iter().map(ToString::to_string).collect();
                assert_eq!(kernels, told);
            } else {
                let masks: Vec<u32> =
                    lab.as_it_is("in0").2.iter().map(|mask| u32::from_str_radix(mask, 16).unwrap()).collect();
                let told: Vec<u32> = cpus.iter().map(|&cpu| 1 << cpu).collect();
                assert_eq!(masks, told);
            }
            let (shown, _) = lab.netrig(0, &["show", "in0"]);
            assert!(shown.starts_with(&format!("in0: static-vrss, fixed, {QUEUES} entries by {kind}")), "{shown}");
            assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
            let (metrics, _) = lab.netrig(0, &["metrics"]);
            assert!(
                metrics.contains("netrig_spread_entry_receive_processor{interface=\"in0\",entry=\"7\"}"),
                "{metrics}"
            );
            openmetrics_parser::openmetrics::parse_openmetrics(&metrics).unwrap();
            spreader.signal(Signal::TERM);
            spreader.ended(Some(0));
            assert_eq!(lab.as_it_is("in0"), before, "after {kind}");
        }
    });
}

#[test]
fn a_spreader_is_run_over_standard_streams_and_leaves_all_as_it_was() {
    with_lab(|lab| {
        let before = lab.as_it_is("in0");
        let mut running = Conversation::begin(&mut lab.command(&["run", "--on-stdio"]), "netrig-spread");
        assert!(running.starts("[[interface]]\nname = \"in0\"\n").contains("in0"));
        assert_ne!(lab.as_it_is("in0"), before);
        assert!(running.counters()["own_cpu_ns"].as_u64() > Some(0));
        let status = running.asks(&json!({ "ask": "Status" })).unwrap();
        assert_eq!(status["answer"]["Status"]["interfaces"][0]["name"], "in0");
        lab.netrig(3, &["show"]);
        let (status, said) = running.ends();
        assert_eq!(status, Some(0), "{said}");
        assert_eq!(lab.as_it_is("in0"), before);
        assert!(!lab.path("run").exists());
    });
}

#[test]
fn a_killed_spreader_leaves_nothing_taken_and_there_is_one_in_a_namespace() {
    with_lab(|lab| {
        let before = lab.as_it_is("in0");
        let mut spreader = lab.start(&["in0"]);
        assert_eq!(lab.as_it_is("in0").0, "1");
        let (_, said) = lab.netrig(2, &["run", "in0"]);
        assert!(said.contains("a spreader runs in this network namespace already, as process"), "{said}");
        spreader.signal(Signal::KILL);
        spreader.ended(None);
        let restored = until(TIMEOUT, || (lab.as_it_is("in0") == before).then_some(()));
        assert!(restored.is_some(), "{:?}", lab.as_it_is("in0"));
        let (_, said) = lab.netrig(3, &["show"]);
        assert!(said.contains("no spreader runs in this network namespace"), "{said}");

        // When its guard is killed, too, the next spreader puts the interface back, even when it takes another one.
        let mut spreader = lab.start(&["in0"]);
        let guard = guard_of(spreader.pid());
        rig_sys::process::kill(guard).unwrap();
        spreader.signal(Signal::KILL);
        spreader.ended(None);
        assert_eq!(lab.as_it_is("in0").0, "1", "no process is left to put it back");
        lab.plug("in1");
        let mut spreader = lab.start(&["in1"]);
        spreader.says("what it had taken is put back first: in0");
        assert_eq!(lab.as_it_is("in0"), before);
        spreader.signal(Signal::INT);
        spreader.ended(Some(0));
        assert_eq!(lab.as_it_is("in1").0, "0");
    });
}

/// The process that it has started.
fn guard_of(spreader: u32) -> u32 {
    let children = || fs::read_to_string(format!("/proc/{spreader}/task/{spreader}/children")).ok();
    let guard = until(TIMEOUT, || children()?.split_whitespace().next()?.parse().ok());
    guard.expect("it has a guard")
}

#[test]
fn interfaces_that_come_are_taken_and_those_that_go_are_left() {
    with_lab(|lab| {
        let file = lab.path("spread.toml");
        fs::write(&file, "[[interface]]\nname = \"in*\"\nmode = \"static-vrss\"\n").unwrap();
        let file = file.display().to_string();
        let (said, _) = lab.netrig(0, &["check", &file]);
        assert!(said.contains("correct") && said.contains("here: in0"), "{said}");
        let mut spreader = lab.start(&["--file", &file]);
        lab.plug("in1");
        spreader.says("in1: taken by");
        lab.plug("out1");
        lab.unplug("in1");
        spreader.says("in1: left");
        lab.plug("in2");
        spreader.says("in2: taken by");
        assert!(!spreader.said().contains("out1"), "{}", spreader.said());

        // Another file; a bad one changes nothing.
        fs::write(&file, "[[interface]]\nname = \"in0\"\nmode = \"fast\"\n").unwrap();
        let (_, said) = lab.netrig(2, &["reload"]);
        assert!(said.contains("nothing changes") && said.contains("'fast' is not a mode"), "{said}");
        fs::write(&file, "[[interface]]\nname = \"in0\"\nmode = \"static-vmq\"\nmax_queue_pairs = 4\n").unwrap();
        lab.netrig(0, &["reload"]);
        spreader.says("in2: left: the file no longer names it");
        let moved = until(TIMEOUT, || {
            let one = placed(lab, "in0").windows(2).all(|pair| pair[0] == pair[1]);
            one.then_some(())
        });
        assert!(moved.is_some(), "{:?}", placed(lab, "in0"));
        let (said, _) = lab.netrig(0, &["get", "in0"]);
        assert!(said.contains("max_queue_pairs is 1, not 4: in mode static-vmq everything is on one CPU"), "{said}");
        spreader.signal(Signal::TERM);
        spreader.ended(Some(0));
    });
}

#[test]
fn what_cannot_be_is_refused_in_words() {
    with_lab(|lab| {
        let cases: [(i32, &[&str], &str); 7] = [
            (3, &["run", "nosuch"], "there is no interface nosuch in this network namespace"),
            (3, &["run", "lo"], "no interface can be taken"),
            (2, &["run", "in0", "--max-queue-pairs", "0"], "at least 1"),
            (2, &["run", "in0", "--mode", "fast"], "'fast' is not a mode"),
            (2, &["run", "in0", "--actuator", "irq"], "'irq' is not an actuator"),
            (2, &["set", "in0"], "give what to change"),
            (3, &["set", "in0", "--mode", "dynamic"], "no spreader runs"),
        ];
        for (status, arguments, words) in cases {
            let (_, said) = lab.netrig(status, arguments);
            assert!(said.contains(words), "{arguments:?}: {said}");
        }
        // CPUs that there are not.
        let mut spreader = lab.start(&["in0", "--cpus", "1,999", "--base", "5"]);
        let (said, _) = lab.netrig(0, &["get", "in0"]);
        assert!(said.contains("not on this machine: 999"), "{said}");
        assert!(said.contains("base is 1, not 5: this machine has no such CPU"), "{said}");
        let (_, said) = lab.netrig(2, &["set", "in7", "--mode", "dynamic"]);
        assert!(said.contains("interface in7 is not taken by this spreader; taken: in0"), "{said}");
        spreader.signal(Signal::TERM);
        spreader.ended(Some(0));
    });
}

#[test]
fn packets_stay_in_order_over_moves_of_threads() {
    with_lab(|lab| {
        const FLOWS: usize = 16;
        let mut spreader = lab.start(&["in0", "--actuator", "napi", "--mode", "static-vmq", "--base", "0"]);
        let (flows, to) = lab.flows(FLOWS);
        to.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        // What waits for the neighbour's address leaves when it is known, beside what is sent just then: out of order.
        let known = until(TIMEOUT, || {
            flows[0].send(&[0]).ok()?;
            to.recv(&mut [0; 16]).ok()
        });
        assert!(known.is_some(), "nothing arrives");
        while to.recv(&mut [0; 16]).is_ok() {}
        let done = AtomicBool::new(false);
        let received = thread::scope(|scope| {
            scope.spawn(|| {
                let begun = Instant::now();
                for sequence in 0_u64.. {
                    if done.load(Ordering::Relaxed) || begun.elapsed() > TIMEOUT {
                        break;
                    }
                    for flow in &flows {
                        // What finds no room is lost, and lost is not reordered.
                        let _ = flow.send(&sequence.to_be_bytes());
                    }
                    if sequence % 8 == 0 {
                        thread::sleep(Duration::from_micros(500));
                    }
                }
            });
            let receive = scope.spawn(|| {
                let mut last: BTreeMap<SocketAddr, u64> = BTreeMap::new();
                let mut count = 0_u64;
                let mut datagram = [0; 16];
                loop {
                    match to.recv_from(&mut datagram) {
                        Ok((8, from)) => {
                            let sequence = u64::from_be_bytes(datagram[..8].try_into().unwrap());
                            let before = last.insert(from, sequence);
                            assert!(
                                before.is_none_or(|before| before < sequence),
                                "{from}: {sequence} after {before:?}"
                            );
                            count += 1;
                        }
                        Ok(_) => unreachable!("no other socket sends"),
                        Err(_) if done.load(Ordering::Relaxed) => return (count, last.len()),
                        Err(_) => {}
                    }
                }
            });
            for turn in 0..40 {
                lab.netrig(0, &["set", "in0", "--base", ["1", "0"][turn % 2]]);
                thread::sleep(Duration::from_millis(20));
            }
            done.store(true, Ordering::Relaxed);
            receive.join().unwrap()
        });
        assert_eq!(received.1, FLOWS, "some flows were not seen at all");
        let status = lab.json();
        let interface = &status["interfaces"][0];
        let moves: u64 = interface["moves"]["total"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum();
        assert!(moves >= 100, "{moves} moves");
        assert_eq!(interface["moves"]["failed"], 0);
        let entries = interface["entries"].as_array().unwrap();
        let counted: u64 = entries.iter().map(|entry| entry["packets"].as_u64().unwrap()).sum();
        assert!(counted >= received.0, "{counted} counted, {} received", received.0);
        // Each move is in the log with its reason.
        let (events, _) = lab.netrig(0, &["events", "in0"]);
        assert!(events.contains("from CPU 0 to 1: mode"), "{events}");
        spreader.signal(Signal::TERM);
        spreader.ended(Some(0));
    });
}

#[test]
fn what_is_on_a_cpu_that_goes_offline_moves_and_comes_back_with_it() {
    with_lab(|lab| {
        // The world's own view of it: the CPU itself stays, as others use it.
        let online = "/sys/devices/system/cpu/online";
        let all = fs::read_to_string(online).unwrap();
        let told = lab.path("online");
        fs::write(&told, &all).unwrap();
        let mounted = std::process::Command::new("mount").arg("--bind").arg(&told).arg(online).status().unwrap();
        assert!(mounted.success(), "the list of CPUs cannot be covered");
        let before = lab.as_it_is("in0");
        for kind in ["napi", "rps", "cpumap"] {
            let mut spreader = lab.start(&["in0", "--actuator", kind, "--mode", "static-vrss", "--cpus", "0-1"]);
            let are_on = |cpus: &[i64]| {
                let on = || {
                    let status = lab.json();
                    let entries = status["interfaces"][0]["entries"].as_array().unwrap().clone();
                    let used: BTreeSet<i64> =
                        entries.iter().map(|entry| entry["receive_processor"].as_i64().unwrap()).collect();
                    used.iter().copied().eq(cpus.iter().copied()).then_some(())
                };
                assert!(until(TIMEOUT, on).is_some(), "not on {cpus:?}: {}\n{}", lab.json(), spreader.said());
            };
            are_on(&[0, 1]);
            fs::write(&told, "0\n").unwrap();
            are_on(&[0]);
            if kind == "napi" {
                assert!(placed(lab, "in0").iter().all(|cpus| cpus.to_string() == "0"), "{:?}", placed(lab, "in0"));
            }
            let (events, _) = lab.netrig(0, &["events", "in0"]);
            assert!(events.contains("from CPU 1 to 0: cpu-offline"), "{events}");
            assert!(events.contains("CPU 1 cannot be used any more"), "{events}");
            // What is in force, and why it is not what was asked for.
            let (shown, _) = lab.netrig(0, &["show", "in0"]);
            assert!(shown.contains("mode is static-vmq, not static-vrss: CPU 0 is the only one"), "{shown}");
            assert!(shown.contains("cpus is 0, not 0-1: CPUs offline: 1"), "{shown}");
            fs::write(&told, &all).unwrap();
            are_on(&[0, 1]);
            spreader.signal(Signal::TERM);
            spreader.ended(Some(0));
            assert_eq!(lab.as_it_is("in0"), before, "after {kind}");
        }
    });
}
