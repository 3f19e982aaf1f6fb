//! netrig without root: inside a user namespace, or not at all and then with the reason.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use rig_facts::record::Flag;
use rig_facts::store::{RunState, Store};
use rig_skip::{Lack, skip};
use rig_sys::cpu::CpuSet;
use rig_testbed::host::protocol::PROTOCOL;

use super::bench::one_node;
use super::world::{self, expect, netrig};

fn two_nodes_fit() -> bool {
    let fit = CpuSet::allowed().unwrap().len() >= 2;
    if !fit {
        skip(Lack::Cpus, "two nodes need two CPUs");
    }
    fit
}

#[test]
fn a_suite_runs_without_root() {
    world::unprivileged(|user| {
        if !two_nodes_fit() || !user.may_make_namespaces() {
            return;
        }
        let store = user.path("runs.sqlite");
        let only = ["run", "layers", "--quick", "--only", "A,D,D-vxlan,F-vxlan", "--window", "200ms", "--trials", "1"];
        let (_, said) = user.netrig(0, &[&only[..], &["--store", store.to_str().unwrap()]].concat());
        println!("{said}");
        let store = Store::open_to_read(&store).unwrap();
        let run = store.run(store.latest().unwrap()).unwrap();
        assert_eq!(run.summary.state, RunState::Complete);
        assert!(run.environment.rootless, "the report would not say that it was made without root");
        assert_eq!(run.trials.len(), 3);
        // tc programs are not for user namespaces.
        assert!(said.contains("D: tc programs need root: run netrig as root"), "{said}");
        for trial in &run.trials {
            assert!(trial.workers.iter().all(|worker| worker.bytes() > 0), "{}: nothing was carried", trial.scenario);
            let elsewhere = trial.flags.iter().find(|flag| matches!(flag, Flag::ReceiveElsewhere { .. }));
            assert_eq!(elsewhere, None, "{}", trial.scenario);
        }
    });
}

/// XDP is not for user namespaces, packet sockets are; that they were taken is told.
#[test]
fn packets_leave_without_root() {
    world::unprivileged(|user| {
        if !two_nodes_fit() || !user.may_make_namespaces() {
            return;
        }
        let store = user.path("runs.sqlite");
        let only = ["run", "packets", "--quick", "--only", "short", "--window", "300ms", "--trials", "1"];
        let (_, said) = user.netrig(0, &[&only[..], &["--store", store.to_str().unwrap()]].concat());
        println!("{said}");
        let store = Store::open_to_read(&store).unwrap();
        let run = store.run(store.latest().unwrap()).unwrap();
        let trial = &run.trials[0];
        for worker in &trial.workers {
            let packets = worker.packets.as_ref().unwrap();
            assert_eq!(packets.ports[0].driver, "AF_PACKET", "{packets:?}");
            assert!(packets.total["skOpen"] > 0, "{packets:?}");
        }
        let told = |flag: &&Flag| matches!(flag, Flag::NotGranted { what, .. } if what.contains("packet sockets"));
        assert_eq!(trial.flags.iter().filter(told).count(), 2, "{:?}", trial.flags);
    });
}

#[test]
fn a_testbed_is_up_without_root() {
    world::unprivileged(|user| {
        if !two_nodes_fit() || !user.may_make_namespaces() {
            return;
        }
        let (out, _) = user.netrig(0, &["up", "layers/D-vxlan"]);
        assert!(out.contains("a/sender"), "{out}");
        let (status, _) = user.netrig(0, &["shell", "a/sender", "cat", "/proc/self/status"]);
        let cpus: CpuSet =
            status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim().parse().unwrap();
        assert_eq!(cpus.as_slice()[0], CpuSet::allowed().unwrap().as_slice()[0]);
        for (place, bridge) in [("a/sender", false), ("b", true)] {
            let (interfaces, _) = user.netrig(0, &["shell", place, "ls", "/sys/class/net"]);
            let has = |name| interfaces.split_whitespace().any(|interface| interface == name);
            assert!(has("eth0") && has("br0") == bridge, "{place}: {interfaces}");
        }
        let (_, err) = user.netrig(2, &["up", "layers/D-vxlan"]);
        assert!(err.contains("is up already"), "{err}");
        let (_, err) = user.netrig(3, &["up", "layers/D", "--name", "other"]);
        assert!(err.contains("tc programs need root: run netrig as root"), "{err}");
        user.netrig(0, &["down"]);
        if world::is_root() {
            world::assert_nothing_left("after down");
        }
        let (_, err) = user.netrig(2, &["shell", "a/sender"]);
        assert!(err.contains("no testbed is up"), "{err}");
    });
}

/// A user namespace in which no further ones may be made, and a process in it that has lost its capabilities: what a
/// hardened machine looks like. The limit is that namespace's alone (namespaces(7)).
#[test]
fn where_namespaces_are_forbidden_the_way_out_is_named() {
    const HARDEN: &str = "echo 0 > /proc/sys/user/max_user_namespaces && \
                          exec setpriv --bounding-set=-all --inh-caps=-all -- \"$@\"";
    world::own(|| {
        let directory = tempfile::tempdir().unwrap();
        let hardened = |program: &str, arguments: &[&str]| {
            let mut command = Command::new("unshare");
            command.args(["--user", "--map-root-user", "sh", "-c", HARDEN, "sh", program]).args(arguments);
            command.env("NETRIG_RUN", directory.path());
            command.output().unwrap()
        };
        let probe = hardened("unshare", &["--user", "true"]);
        let refusal = world::text(&probe.stderr);
        if probe.status.success() || !refusal.contains("unshare failed") {
            return skip(Lack::Hardening, refusal);
        }
        let store = directory.path().join("runs.sqlite");
        let program = netrig().get_program().to_str().unwrap().to_owned();
        let run = ["run", "layers", "--quick", "--only", "C", "--store", store.to_str().unwrap()];
        for arguments in [&run[..], &["up", &one_node(directory.path(), "one", &["a/x"], &["a/y"])]] {
            let (out, err) = expect(&hardened(&program, arguments), 3);
            assert_eq!(out, "");
            // The user is root in that namespace already, so "run it as root" would be no help.
            assert!(err.contains("root lacks CAP_SYS_ADMIN") && err.contains("netrig doctor"), "{arguments:?}: {err}");
            assert!(err.contains("user.max_user_namespaces"), "{arguments:?}: {err}");
            assert_eq!(err.matches("No space left on device").count(), 1, "the kernel's own reason, once: {err}");
        }
        assert!(!store.exists(), "a store was made for a run that could not be");
        world::assert_nothing_left("by what was refused");
    });
}

/// Whether a host says of itself that it is not the machine's root.
fn is_rootless(command: &mut Command) -> bool {
    let greeting = serde_json::to_string(&PROTOCOL.greeting("test")).unwrap();
    let mut host = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = host.stdin.take().unwrap();
    writeln!(stdin, "{greeting}\n{{\"number\":0,\"request\":\"environment\"}}").unwrap();
    let mut lines = BufReader::new(host.stdout.take().unwrap()).lines();
    let answer = lines.nth(1).map(Result::unwrap);
    drop(stdin);
    let ended = host.wait_with_output().unwrap();
    let answer = answer.unwrap_or_else(|| panic!("{}", world::text(&ended.stderr)));
    let (yes, no) = (answer.contains("\"rootless\":true"), answer.contains("\"rootless\":false"));
    assert!(yes != no, "{answer}");
    yes
}

/// As in a pod of Kubernetes, and in a container of a user without root.
#[test]
fn a_host_without_the_machines_root_says_so() {
    world::own(|| {
        let program = netrig().get_program().to_str().unwrap().to_owned();
        let under = |words: &[&str]| {
            let mut command = Command::new(words[0]);
            command.args(&words[1..]).args([&program, "host"]);
            command
        };
        if world::is_root() {
            assert!(!is_rootless(&mut under(&["env"])));
        }
        let probe = Command::new("unshare").args(["--user", "--map-root-user", "true"]).output().unwrap();
        if !probe.status.success() {
            return skip(Lack::Namespaces, world::text(&probe.stderr));
        }
        let in_container = ["unshare", "--user", "--map-root-user"];
        assert!(is_rootless(&mut under(&in_container)));
        // It may make no nodes.
        let without = [
            "sh",
            "-c",
            "echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all --inh-caps=-all -- \"$@\"",
            "sh",
        ];
        assert!(is_rootless(&mut under(&[&in_container[..], &without].concat())));
    });
}
