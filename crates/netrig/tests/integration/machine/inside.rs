//! Commands inside nodes before trials: of a suite, of a run, and of a side of `netrig ab`.

use std::fs;
use std::process::Command;

use rig_skip::{Lack, skip};
use serde_json::Value;

use super::bench::Bench;
use super::world::{self, expect, netrig};

/// Whether there are two nodes here.
fn has_two(bench: &Bench) -> bool {
    let has_two = fs::read_to_string(bench.path("suite.toml")).unwrap().contains("id = \"R\"");
    if !has_two {
        skip(Lack::Cpus, "two nodes need two CPUs");
    }
    has_two
}

fn on(bench: &Bench, command: &str, more: &[&str]) -> Command {
    let mut netrig = netrig();
    netrig.arg(command).arg(bench.path("suite.toml")).args(["--only", "R", "--store"]).arg(bench.store()).args(more);
    netrig
}

#[test]
fn commands_of_a_side_change_its_nodes_before_each_of_its_trials_and_nothing_of_them_stays() {
    world::own(|| {
        let bench = Bench::new();
        if !has_two(&bench) {
            return;
        }
        let (old, new, swept) = (bench.path("old"), bench.path("new"), bench.path("swept"));
        // What each finds, what it changes, and where it is: the interfaces below /sys are the node's.
        let change = |value: u32, to: &std::path::Path| {
            let key = "/proc/sys/net/ipv4/tcp_ecn";
            format!("{{ cat {key}; echo {value} > {key}; cat {key}; ls /sys/class/net; }} | xargs >> {}", to.display())
        };
        let (of_old, of_new) = (change(1, &old), change(0, &new));
        // What it leaves running would write once the trial is made.
        let stays = format!("(sleep 1; touch {}) & sleep 1000 &", swept.display());
        let options =
            ["--trials", "2", "--old-in", "b", &of_old, "--new-in", "b", &of_new, "--new-in", "a", &stays, "--format"];
        let (out, said) = expect(&on(&bench, "ab", &[&options[..], &["json"]].concat()).output().unwrap(), 0);
        let interfaces = "eth0 lo";
        assert_eq!(fs::read_to_string(&old).unwrap(), format!("2 1 {interfaces}\n").repeat(2));
        assert_eq!(fs::read_to_string(&new).unwrap(), format!("2 0 {interfaces}\n").repeat(2));
        std::thread::sleep(std::time::Duration::from_millis(1100));
        assert!(!swept.exists(), "what a command left running went on");
        world::assert_nothing_left("of commands in nodes");

        // Where the runs are told of, the commands are.
        let comparison: Value = serde_json::from_str(&out).unwrap();
        let differences = comparison["data"]["differences"].as_array().unwrap();
        let inside = differences.iter().find(|one| one["what"] == "Commands in nodes before each trial");
        let inside = inside.unwrap_or_else(|| panic!("{differences:?} {said}"));
        assert_eq!(inside["old"], format!("in b: {of_old}"));
        assert_eq!(inside["new"], format!("in a: {stays}; in b: {of_new}"));
        let store = bench.store();
        let report = ["report", "2", "--all", "--store", store.to_str().unwrap()];
        let (words, _) = expect(&netrig().args(report).output().unwrap(), 0);
        assert!(words.contains("run: before each trial in b: {"), "{words}");
        let trials = bench.runs().into_iter().flat_map(|run| run.trials);
        assert!(trials.into_iter().all(|trial| trial.before.iter().any(|one| one.node == "b")));
    });
}

#[test]
fn a_command_in_a_node_that_fails_ends_the_run_with_its_words() {
    world::own(|| {
        let bench = Bench::new();
        if !has_two(&bench) {
            return;
        }
        let fails = "echo nobody knows why >&2; exit 3";
        let (_, said) = expect(&on(&bench, "ab", &["--trials", "1", "--new-in", "b", fails]).output().unwrap(), 4);
        let told = format!("the command before the trial in b: `{fails}` failed: exit status: 3: nobody knows why");
        assert!(said.contains(&told), "{said}");
        assert!(said.contains("the run of the new variant ended with status 4"), "{said}");
        let (_, said) = expect(&on(&bench, "run", &["--in", "nobody", "true"]).output().unwrap(), 2);
        assert!(said.contains("scenario 'R' has no 'nobody' to run a command in"), "{said}");
        assert!(said.contains("its nodes and containers are a, b"), "{said}");
        world::assert_nothing_left("of a command that failed");
    });
}

#[test]
fn a_suite_says_what_runs_in_its_nodes_and_layers_of_the_difference_are_told() {
    world::own_among_processes(|| {
        let bench = Bench::new();
        if !has_two(&bench) || !Command::new("ethtool").arg("--version").output().is_ok_and(|out| out.status.success())
        {
            return skip(Lack::Program("ethtool"), "nothing switches offloads");
        }
        let path = bench.path("suite.toml");
        let seen = bench.path("seen");
        let look = format!("ethtool -k eth0 | grep ^generic-receive >> {}", seen.display());
        let text = fs::read_to_string(&path).unwrap().replace(
            "[[scenario]]\nid = \"V\"",
            &format!("[scenario.before]\nb = [\"ethtool -K eth0 gro on\", '{look}']\n[[scenario]]\nid = \"V\""),
        );
        fs::write(&path, text).unwrap();
        let off = format!("ethtool -K eth0 gro off; {look}");
        let options = ["--trials", "2", "--window", "500ms", "--new-in", "b", &off, "--format", "json"];
        let sampled = rig_sys::perf::probe().is_ok();
        let layers: &[&str] = if sampled { &["--layers"] } else { &[] };
        let (out, said) = expect(&on(&bench, "ab", &[&options[..], layers].concat()).output().unwrap(), 0);
        let seen = fs::read_to_string(&seen).unwrap();
        let [on, off] = ["generic-receive-offload: on", "generic-receive-offload: off"];
        let times = |word: &str| seen.lines().filter(|line| *line == word).count();
        // The side without a command of its own has that of the suite, and so has the other, first.
        assert_eq!((times(on), times(off)), (4, 2), "{seen}");
        let comparison: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(comparison["data"]["blocks"], 2, "{said}");
        if !sampled {
            return skip(Lack::Sampling, "stacks cannot be sampled");
        }
        let layers = comparison["data"]["layers"].as_array().unwrap();
        assert!(!layers.is_empty(), "{out}");
    });
}
