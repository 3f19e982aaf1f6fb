//! `netrig ab`: two runs that take turns, and what becomes of them when one fails or is stopped.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use rig_facts::store::RunState;
use rig_skip::{Lack, skip};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::bench::{Bench, assert_whole};
use super::world::{self, expect, netrig};

/// Longer than stopped runs may take to end.
const TIMEOUT: Duration = Duration::from_secs(30);

fn ab(bench: &Bench, more: &[&str]) -> Command {
    let mut command = netrig();
    command.arg("ab").arg(bench.path("suite.toml")).arg("--store").arg(bench.store()).args(more);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    command
}

#[test]
fn trials_of_both_variants_alternate_and_are_compared_block_by_block() {
    world::own(|| {
        let bench = Bench::new();
        let turns = bench.path("turns");
        let write = |word: &str| format!("printf {word} >> {}", turns.display());
        let (old, new, after) = (write("o"), write("n"), write("."));
        let options = ["--trials", "2", "--old", &old, "--new", &new, "--after", &after, "--label", "x"];
        let (out, said) = expect(&ab(&bench, &[&options[..], &["--format", "json"]].concat()).output().unwrap(), 0);
        let comparison: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(comparison["data"]["blocks"], 2, "{said}");
        let differences = comparison["data"]["differences"].as_array().unwrap();
        let command = differences.iter().find(|one| one["what"] == "Command before each trial").unwrap();
        assert_eq!((command["old"].as_str(), command["new"].as_str()), (Some(&*old), Some(&*new)));

        let runs = bench.runs();
        let [one, other] = &runs[..] else { panic!("{runs:?}") };
        for run in [one, other] {
            assert_whole(run);
            assert_eq!(run.summary.state, RunState::Complete);
        }
        assert_eq!(one.options["label"], "x-old");
        assert_eq!((&one.options["turns"]["side"], &other.options["turns"]["side"]), (&"old".into(), &"new".into()));
        assert_eq!(one.options["turns"]["pair"], other.options["turns"]["pair"]);
        // Both make the same trials in the same order, though now one and now the other is first.
        let order = |run: &rig_facts::store::Run| -> Vec<String> {
            run.trials.iter().map(|trial| format!("{} {:?}", trial.scenario, trial.block)).collect()
        };
        assert_eq!(order(one), order(other));
        let pairs = "onno".repeat(one.trials.len().div_ceil(2));
        assert_eq!(fs::read_to_string(&turns).unwrap(), format!("{}.", &pairs[..2 * one.trials.len()]));
        // One trial at a time, of either.
        let mut windows: Vec<(u64, u64)> =
            runs.iter().flat_map(|run| &run.trials).map(|t| (t.window_begin_ns, t.window_end_ns)).collect();
        windows.sort_unstable();
        assert!(windows.windows(2).all(|pair| pair[0].1 < pair[1].0), "{windows:?}");
        let store = bench.store();
        let compare = ["compare", "x-old", "x-new", "--all", "--store", store.to_str().unwrap()];
        let (words, _) = expect(&netrig().args(compare).output().unwrap(), 0);
        assert!(words.contains("The two took turns"), "{words}");
        world::assert_nothing_left("of two runs that took turns");
    });
}

#[test]
fn a_command_that_fails_ends_both_runs_which_keep_their_trials() {
    world::own(|| {
        let bench = Bench::new();
        let (counted, after) = (bench.path("count"), bench.path("after"));
        // It fails the third time.
        let new = format!("echo >> {0}; test $(wc -l < {0}) -lt 3", counted.display());
        let after_all = format!("touch {}", after.display());
        let output = ab(&bench, &["--trials", "9", "--new", &new, "--after", &after_all]).output().unwrap();
        let (_, said) = expect(&output, 4);
        assert!(
            said.contains("the command before trials of the new variant") && said.contains("exit status: 1"),
            "{said}"
        );
        assert!(said.contains("finished trials are kept: netrig compare 1 2 --store"), "{said}");
        assert!(after.exists(), "the machine is left as the user wants it");
        let runs = bench.runs();
        let trials: Vec<usize> = runs.iter().map(|run| run.trials.len()).collect();
        assert!(runs.iter().all(|run| run.summary.state == RunState::Interrupted), "{runs:?}");
        assert!(matches!(trials[..], [2 | 3, 2]), "{trials:?}");
        world::assert_nothing_left("of a command that failed");
    });
}

#[test]
fn stopped_runs_and_those_of_a_killed_starter_keep_their_trials_and_leave_nothing() {
    world::own(|| {
        for signal in [Signal::INT, Signal::KILL] {
            let bench = Bench::new();
            let mut starter = ab(&bench, &["--trials", "500"]).spawn().unwrap();
            let begun = world::until(TIMEOUT, || {
                (bench.runs().iter().map(|r| r.trials.len()).sum::<usize>() > 2).then_some(())
            });
            assert!(begun.is_some(), "no trial was made");
            kill_process(Pid::from_child(&starter), signal).unwrap();
            let status = starter.wait().unwrap();
            assert_eq!(status.code(), (signal == Signal::INT).then_some(130));
            // Runs whose starter was killed notice when they next write to it.
            let ended = || bench.runs().iter().all(|run| run.summary.state == RunState::Interrupted).then_some(());
            assert!(world::until(TIMEOUT, ended).is_some(), "{:?}", bench.runs());
            thread::sleep(Duration::from_millis(300));
            bench.runs().iter().for_each(assert_whole);
            world::assert_nothing_left("of stopped runs");
        }
    });
}

/// The others go on, trial by trial in turn, and it is told which side lost what, and why.
#[test]
fn a_side_that_loses_a_scenario_is_compared_by_the_others() {
    world::own(|| {
        let bench = Bench::new();
        let (suite, new_is_next) = (bench.path("suite.toml"), bench.path("new"));
        let text = fs::read_to_string(&suite).unwrap();
        if !text.contains("id = \"V\"") {
            return skip(Lack::Cpus, "two nodes need two CPUs");
        }
        let fails = format!("[scenario.before]\na = [\"test ! -e {}\"]\n", new_is_next.display());
        fs::write(&suite, text + &fails).unwrap();
        let [old, new] = ["rm -f", "touch"].map(|does| format!("{does} {}", new_is_next.display()));
        let options = ["--trials", "3", "--old", &old, "--new", &new, "--format", "json"];
        let (out, said) = expect(&ab(&bench, &options).output().unwrap(), 0);
        let comparison: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(comparison["data"]["blocks"], 3, "{said}");
        let runs = bench.runs();
        let blocks = |run: &rig_facts::store::Run, scenario: &str| -> Vec<u32> {
            let own = run.trials.iter().filter(|trial| trial.scenario == scenario);
            own.map(|trial| trial.block.unwrap()).collect()
        };
        let made = runs.iter().map(|run| (blocks(run, "R"), blocks(run, "V"))).collect::<Vec<_>>();
        assert_eq!(made, [(vec![1, 2, 3], vec![1, 2, 3]), (vec![1, 2, 3], vec![])], "{said}");
        // Between two trials of a block there is none of another scenario.
        let mut windows: Vec<(u64, &str)> = runs
            .iter()
            .flat_map(|run| &run.trials)
            .map(|trial| (trial.window_begin_ns, trial.scenario.as_str()))
            .collect();
        windows.sort_unstable();
        let of_r: Vec<usize> = (0..windows.len()).filter(|at| windows[*at].1 == "R").collect();
        assert!(of_r.chunks(2).all(|pair| pair[1] == pair[0] + 1), "{windows:?}");
        let store = bench.store();
        let compare = ["compare", "1", "2", "--all", "--store", store.to_str().unwrap()];
        let (words, _) = expect(&netrig().args(compare).output().unwrap(), 0);
        assert!(words.contains(" has V: not compared."), "{words}");
        let lost = comparison["data"]["differences"].as_array().unwrap();
        let lost = lost.iter().find(|one| one["what"] == "Scenarios left out").unwrap_or_else(|| panic!("{lost:?}"));
        assert_eq!(lost["old"], "none");
        let why = "V: the command before the trial in a: `test ! -e ";
        assert!(lost["new"].as_str().is_some_and(|new| new.starts_with(why)), "{lost}");
        world::assert_nothing_left("of a side that lost a scenario");
    });
}

#[test]
fn what_cannot_be_run_is_said_once() {
    world::own(|| {
        let bench = Bench::new();
        let (_, said) = expect(&ab(&bench, &["--old-program", "/nonexistent"]).output().unwrap(), 2);
        assert!(said.contains("find the program /nonexistent"), "{said}");
        // A program that does not take turns.
        let (_, said) = expect(&ab(&bench, &["--new-program", "/bin/false"]).output().unwrap(), 4);
        assert!(said.contains("the run of the new variant ended with status 1"), "{said}");
        let (_, said) = expect(&ab(&bench, &["--budget", "1ms"]).output().unwrap(), 2);
        assert_eq!(said.matches("too short").count(), 1, "{said}");
        let (_, said) = expect(&ab(&bench, &["--only", "nobody"]).output().unwrap(), 2);
        assert_eq!(said.matches("no scenario 'nobody'").count(), 1, "{said}");
        world::assert_nothing_left("of what was refused");
    });
}
