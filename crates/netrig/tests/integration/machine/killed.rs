//! Runs that are stopped, killed or fail: nothing stays behind but what was measured.

use std::io::{BufRead, BufReader};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rig_facts::store::RunState;
use rig_sys::cpu::CpuSet;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;

use super::bench::{Bench, assert_whole, trials_told};
use super::world::{self, RandomSource, expect, netrig};

/// Longer than an interrupted run may take to end.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Sends a signal as a terminal does: to all that were started with the run.
fn signal(run: &Child, signal: Signal) {
    kill_process_group(Pid::from_child(run), signal).unwrap();
}

/// How `child` ended, and what it wrote to standard error.
fn end_of(mut child: Child) -> (std::process::ExitStatus, String) {
    let status = world::until(TIMEOUT, || child.try_wait().unwrap());
    if status.is_none() {
        child.kill().unwrap();
    }
    let said = std::io::read_to_string(child.stderr.take().unwrap()).unwrap();
    (status.unwrap_or_else(|| panic!("it does not end: {said}")), said)
}

/// Asserts that every run, complete or not, is in the history and can be reported.
fn assert_reportable(bench: &Bench) {
    let store = bench.store();
    let store = ["--store", store.to_str().unwrap()];
    let (history, _) = expect(&netrig().arg("history").args(store).output().unwrap(), 0);
    println!("{history}");
    for run in bench.runs() {
        let id = run.summary.id.to_string();
        let line = history.lines().find(|line| line.split_whitespace().next() == Some(&id)).unwrap();
        // Behind it may stand that the machine was another.
        assert!(line.contains(&format!("  {}", run.summary.state)), "{line}");
        for format in ["terminal", "json"] {
            let (out, _) = expect(&netrig().args(["report", &id, "--format", format]).args(store).output().unwrap(), 0);
            assert!(out.contains("A short suite"), "{out}");
            let cut_short = run.summary.state == RunState::Interrupted;
            assert_eq!(out.contains("interrupted after "), cut_short, "{out}");
        }
    }
}

#[test]
fn a_run_killed_at_any_moment_leaves_nothing_but_finished_trials() {
    world::own(|| {
        let bench = Bench::new();
        let mut dice = RandomSource::new();
        let mut in_a_testbed = 0;
        for life in 0..8 {
            let after = dice.up_to(Duration::from_millis(1300));
            let mut run = bench.start(&[]);
            let mut lines = BufReader::new(run.stderr.take().unwrap()).lines().map(Result::unwrap);
            // The last lives long enough on any machine to store something.
            if life == 7 {
                assert!(lines.any(|line| trials_told(&line) > 0), "no trial ends");
            }
            thread::sleep(after);
            in_a_testbed += u32::from(world::network_namespaces().len() > 1);
            run.kill().unwrap();
            run.wait().unwrap();
            let when = format!("of life {life}, killed after {after:?}");
            println!("{when}");
            world::assert_nothing_left(&when);
            for run in bench.runs() {
                assert_whole(&run);
                let complete = run.trials.len() == run.summary.planned_trials as usize;
                assert!(run.summary.state == RunState::Interrupted || complete, "{:?} {when}", run.summary);
            }
        }
        assert!(in_a_testbed > 0, "no moment fell into a trial");
        let stored: usize = bench.runs().iter().map(|run| run.trials.len()).sum();
        assert!(stored > 0, "nothing was stored");
        assert_reportable(&bench);
    });
}

#[test]
fn a_run_stopped_by_a_signal_keeps_its_trials_and_says_so() {
    world::own(|| {
        let bench = Bench::new();
        let mut dice = RandomSource::new();
        let mut caught = 0;
        for (life, how) in [Signal::INT, Signal::TERM, Signal::HUP, Signal::INT].into_iter().cycle().take(6).enumerate()
        {
            let before = bench.runs().len();
            let after = dice.up_to(Duration::from_millis(1300));
            let run = bench.start(&[]);
            thread::sleep(after);
            signal(&run, how);
            let (status, said) = end_of(run);
            let when = format!("of life {life}, {how:?} after {after:?}: {status}\n{said}");
            println!("{when}");
            world::assert_nothing_left(&when);
            let runs = bench.runs();
            runs.iter().for_each(assert_whole);
            let new = (runs.len() > before).then(|| &runs.last().unwrap().summary);
            match (status.code(), status.signal()) {
                (Some(130), _) => {
                    caught += 1;
                    let reason = said.find("stopped by the user").unwrap_or_else(|| panic!("{when}"));
                    let remains = said.find("finished trials are kept");
                    assert!(remains.is_none_or(|remains| reason < remains), "the reason comes first {when}");
                    let told = trials_told(&said);
                    if let Some(run) = new {
                        assert_eq!(run.state, RunState::Interrupted, "{when}");
                        assert!(run.ended_unix_ms.is_some(), "its end was not stored {when}");
                        assert_eq!(run.stored_trials as usize, told, "{when}");
                        // Of a run without trials there is nothing to report.
                        let kept = said.contains(&format!("netrig report {} --store", run.id));
                        assert_eq!(kept, told > 0, "{when}");
                    }
                }
                // Before netrig listens to signals there is nothing to keep.
                (_, Some(number)) if number == how.as_raw() => assert_eq!(new, None, "{when}"),
                // The last trial was over.
                (Some(0 | 1), _) => assert_eq!(new.map(|run| &run.state), Some(&RunState::Complete), "{when}"),
                _ => panic!("{when}"),
            }
        }
        assert!(caught > 0, "no moment fell into a run");
        assert_reportable(&bench);
    });
}

#[test]
fn a_run_goes_on_when_the_terminal_is_closed_that_nohup_left() {
    world::own(|| {
        let bench = Bench::new();
        let command = bench.command(&[]);
        // Some parents ignore the ends of their children, too.
        let mut run = Command::new("env");
        run.args(["--ignore-signal=HUP", "--ignore-signal=CHLD"]).arg(command.get_program()).args(command.get_args());
        run.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let run = run.stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0).spawn().unwrap();
        world::until(TIMEOUT, || (workers().len() >= 2).then_some(())).expect("workers are started");
        signal(&run, Signal::HUP);
        let (status, said) = end_of(run);
        assert!(matches!(status.code(), Some(0 | 1)), "{status}: {said}");
        assert_eq!(bench.runs()[0].summary.state, RunState::Complete, "{said}");
        world::assert_nothing_left("of a run that a signal did not stop");
    });
}

#[test]
fn a_second_signal_ends_a_run_at_once_and_leaves_nothing_either() {
    world::own(|| {
        let bench = Bench::new();
        let run = bench.start(&["--window", "20s"]);
        world::until(TIMEOUT, || (workers().len() >= 2).then_some(())).expect("workers are started");
        let begin = Instant::now();
        signal(&run, Signal::INT);
        signal(&run, Signal::INT);
        let (status, said) = end_of(run);
        assert!(status.code() == Some(130) || status.signal() == Some(Signal::INT.as_raw()), "{status}: {said}");
        assert!(begin.elapsed() < Duration::from_secs(10), "it waited for the window's end");
        world::assert_nothing_left("after the second signal");
        assert_eq!(bench.runs()[0].summary.state, RunState::Interrupted);
    });
}

/// The worker processes that run.
fn workers() -> Vec<u32> {
    world::processes().into_iter().filter(|process| process.command.ends_with(" worker")).map(|p| p.pid).collect()
}

/// Kills a worker of the second trial or a later one, and gives what the run said.
fn with_a_worker_killed(bench: &Bench, more: &[&str]) -> (i32, String) {
    let mut run = bench.start(&[&["--window", "1s"][..], more].concat());
    let mut lines = BufReader::new(run.stderr.take().unwrap()).lines();
    // A trial of each scenario: nothing has to be left out then.
    for _ in 0..CpuSet::allowed().unwrap().len().min(2) {
        let done = lines.by_ref().map(Result::unwrap).find(|line| line.contains("bit/s ")).expect("a trial ends");
        println!("{done}");
    }
    let victim = world::until(TIMEOUT, || workers().pop()).expect("a worker is started");
    // Not in the middle of its start.
    thread::sleep(Duration::from_millis(100));
    kill_process(Pid::from_raw(victim as i32).unwrap(), Signal::KILL).unwrap();
    let said: Vec<String> = lines.map(Result::unwrap).collect();
    let said = said.join("\n");
    println!("{said}");
    (run.wait().unwrap().code().unwrap(), said)
}

#[test]
fn a_scenario_whose_worker_is_killed_is_closed_by_name_and_the_rest_is_measured() {
    world::own(|| {
        for (number, (more, of_two)) in
            [(&["--no-aa"][..], 0), (&["--no-aa", "--strict"][..], 4)].into_iter().enumerate()
        {
            let bench = Bench::new();
            let (status, said) = with_a_worker_killed(&bench, more);
            world::assert_nothing_left("of a run whose worker was killed");
            let named = ["a: ", "b: ", "a/x: ", "a/y: ", "b/x: ", "b/y: "].iter().any(|name| said.contains(name));
            assert!(named, "no worker is named: {said}");
            assert!(said.contains("died") && said.contains("signal: 9") && said.contains("trial"), "{said}");
            let runs = bench.runs();
            let run = &runs[0];
            assert_whole(run);
            if CpuSet::allowed().unwrap().len() < 2 {
                // Nothing else is left to measure.
                assert_eq!(status, 4, "{said}");
                assert!(said.contains("netrig report 1 --store"), "{said}");
                assert!(matches!(&run.summary.state, RunState::Failed { reason } if reason.contains("died")));
                continue;
            }
            assert_eq!((status, &run.summary.state), (of_two, &RunState::Complete), "{said}");
            assert_eq!(said.contains("--strict asks for all"), number == 1, "{said}");
            let report = netrig().args(["report", "1", "--format", "json", "--store"]).arg(bench.store()).output();
            let json: Value = serde_json::from_str(&expect(&report.unwrap(), 0).0).unwrap();
            let scenarios = json["data"]["scenarios"].as_array().unwrap();
            let (failed, whole): (Vec<_>, Vec<_>) = scenarios.iter().partition(|one| one["certainty"] == "failed");
            let ([failed], [whole]) = (failed.as_slice(), whole.as_slice()) else { panic!("{json}") };
            let [kept, all] = [failed, whole].map(|one| one["trials"].as_array().unwrap().len());
            assert!((1..3).contains(&kept) && all == 3, "{kept} and {all}: {said}");
            let why = failed["certainty_missed"].as_str().unwrap();
            assert!(why.starts_with(&format!("failed in trial {}: ", kept + 1)) && why.contains("signal: 9"), "{why}");
            let words = netrig().args(["report", "1", "--store"]).arg(bench.store()).output().unwrap();
            let (words, _) = expect(&words, 0);
            let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(words.contains("complete but for 1 scenario that failed"), "{words}");
            assert!(words.contains("1 scenario failed, and the run went on without: "), "{words}");
        }
    });
}
