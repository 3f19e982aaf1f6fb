//! Child processes, signals and CPUs.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rig_sys::counters::{cpu_ticks, softnet};
use rig_sys::cpu::{CpuSet, set_affinity};
use rig_sys::netns::NetNs;
use rig_sys::{process, signal};
use rustix::process::{Pid, Signal, kill_process};

use crate::{again, privileged, until};

/// Set in the second life of a test: the process that is to be watched from the first.
const SECOND: &str = "RIG_SYS_TEST_SECOND";

/// The calling test as a process of its own.
fn second_life() -> Child {
    let mut command = again(Command::new(env::current_exe().unwrap()));
    command.env(SECOND, "1").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    command.spawn().unwrap()
}

fn is_second_life() -> bool {
    env::var_os(SECOND).is_some()
}

/// What the second life says after `word`.
fn hear(from: &mut Child, word: &str) -> String {
    let lines = BufReader::new(from.stdout.as_mut().unwrap()).lines();
    // The test runner may have begun the line.
    let mut words =
        lines.map_while(Result::ok).filter_map(|line| line.split_once(word).map(|(_, rest)| rest.to_owned()));
    words.next().unwrap_or_else(|| panic!("it never said '{word}'"))
}

/// A field of /proc/PID/stat, numbered as in proc_pid_stat(5), from the third on.
fn stat_field(pid: u32, number: usize) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(number - 3).map(str::to_owned)
}

fn runs(pid: u32) -> bool {
    stat_field(pid, 3).is_some_and(|state| state != "Z" && state != "X")
}

fn sleeper() -> Command {
    let mut command = Command::new("sleep");
    command.arg("1000").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

#[test]
fn a_child_lives_in_the_namespace_it_was_started_in() {
    privileged(|| {
        let ns = NetNs::create().unwrap();
        let inside = ns.run(|| fs::read_link("/proc/thread-self/ns/net")).unwrap().unwrap();
        let mut command = Command::new("readlink");
        let output = process::in_namespace(command.arg("/proc/self/ns/net"), &ns).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), inside.to_str().unwrap());
        assert_ne!(fs::read_link("/proc/thread-self/ns/net").unwrap(), inside);
    });
}

#[test]
fn a_child_dies_with_its_parent_however_that_ends() {
    if is_second_life() {
        let mut child = process::die_with_parent(&mut sleeper()).spawn().unwrap();
        println!("child {}", child.id());
        child.wait().unwrap();
        return;
    }
    let mut parent = second_life();
    let child: u32 = hear(&mut parent, "child ").trim().parse().unwrap();
    assert!(runs(child));
    parent.kill().unwrap();
    parent.wait().unwrap();
    until(|| (!runs(child)).then_some(()));
}

#[test]
fn a_child_dies_with_the_thread_that_started_it() {
    let mut child = thread::spawn(|| process::die_with_parent(&mut sleeper()).spawn().unwrap()).join().unwrap();
    let status = until(|| child.try_wait().unwrap());
    assert_eq!(status.signal(), Some(9));
}

#[test]
fn groups_and_sessions_are_the_childs_own() {
    for (start, group, session) in [
        (process::in_own_group as fn(&mut Command) -> &mut Command, true, false),
        (process::in_own_session, true, true),
    ] {
        let mut child = start(&mut sleeper()).spawn().unwrap();
        let own = child.id().to_string();
        // Process group and session (proc_pid_stat(5)); exec comes after both.
        let fields = until(|| {
            let name = fs::read_to_string(format!("/proc/{}/comm", child.id())).ok()?;
            (name.trim() == "sleep").then(|| [5, 6].map(|field| stat_field(child.id(), field).unwrap()))
        });
        assert_eq!(fields.map(|field| field == own), [group, session]);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn a_process_has_a_start_time_until_it_ends() {
    let me = process::start_time(std::process::id()).unwrap();
    assert_eq!(process::start_time(std::process::id()), Some(me));
    let mut child = sleeper().spawn().unwrap();
    let its = process::start_time(child.id()).unwrap();
    assert!(its >= me);
    process::kill(child.id()).unwrap();
    // Ended, and its parent has not collected it yet.
    until(|| process::start_time(child.id()).is_none().then_some(()));
    assert!(fs::exists(format!("/proc/{}", child.id())).unwrap());
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    assert_eq!(process::start_time(child.id()), None);
}

#[test]
fn killing_what_is_gone_is_no_error_and_hits_nobody_else() {
    let mut child = sleeper().spawn().unwrap();
    process::kill(child.id()).unwrap();
    child.wait().unwrap();
    process::kill(child.id()).unwrap();
    // Zero and negative numbers would stand for groups of processes (kill(2)).
    process::kill(0).unwrap();
    process::kill(u32::MAX).unwrap();
}

#[test]
fn the_first_signal_asks_and_the_second_ends() {
    if is_second_life() {
        signal::on_stop_signal(|| println!("asked to stop")).unwrap();
        println!("ready");
        thread::sleep(Duration::from_secs(1000));
        return;
    }
    for how in [Signal::INT, Signal::TERM, Signal::HUP] {
        let mut child = second_life();
        hear(&mut child, "ready");
        let pid = Pid::from_child(&child);
        kill_process(pid, how).unwrap();
        hear(&mut child, "asked to stop");
        assert!(runs(child.id()));
        kill_process(pid, how).unwrap();
        let mut rest = String::new();
        child.stdout.as_mut().unwrap().read_to_string(&mut rest).unwrap();
        assert!(!rest.contains("asked to stop"), "it was asked twice");
        assert_eq!(child.wait().unwrap().signal(), Some(how.as_raw()));
    }
}

#[test]
fn an_affinity_holds_for_the_thread_that_asked_and_what_it_starts() {
    let allowed = CpuSet::allowed().unwrap();
    let one = CpuSet::new(allowed.as_slice().last().copied());
    let (inside, child) = thread::scope(|scope| {
        let thread = scope.spawn(|| {
            set_affinity(&[]).unwrap();
            assert_eq!(CpuSet::allowed().unwrap(), allowed, "an empty list changed something");
            set_affinity(one.as_slice()).unwrap();
            let child = Command::new("cat").arg("/proc/self/status").output().unwrap();
            (CpuSet::allowed().unwrap(), String::from_utf8(child.stdout).unwrap())
        });
        thread.join().unwrap()
    });
    assert_eq!(inside, one);
    let list = child.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    assert_eq!(list.trim().parse::<CpuSet>().unwrap(), one);
    assert_eq!(CpuSet::allowed().unwrap(), allowed, "another thread was moved");
    let error = CpuSet::new([CpuSet::MAX]).apply().unwrap_err();
    assert!(error.to_string().contains(&format!("CPUs {}", CpuSet::MAX)), "{error}");
}

#[test]
fn every_cpu_that_is_on_is_counted_and_counters_only_grow() {
    let online = CpuSet::online().unwrap();
    let (ticks, packets) = (cpu_ticks().unwrap(), softnet().unwrap());
    assert!(ticks.keys().eq(online.as_slice()), "{:?}", ticks.keys());
    assert!(packets.keys().eq(online.as_slice()), "{:?}", packets.keys());
    // Longer than a tick.
    thread::sleep(Duration::from_millis(50));
    let later: u64 = cpu_ticks().unwrap().values().map(|cpu| cpu.total()).sum();
    let sooner: u64 = ticks.values().map(|cpu| cpu.total()).sum();
    assert!(later > sooner);
}
