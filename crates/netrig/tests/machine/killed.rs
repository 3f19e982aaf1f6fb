//! Runs that are stopped, killed or fail: nothing stays behind but what was measured.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use netrig::store::{Run, RunState, Store};
use rig_sys::cpu::CpuSet;
use rustix::process::{Pid, Signal, kill_process};

use crate::world::{self, Dice, netrig};

/// Longer than an interrupted run may take to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// A directory with a short suite of several testbeds, which is run into a store beside it. The suite has one node where
/// there is only one CPU.
struct Bench {
    directory: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let scenarios = match CpuSet::allowed().unwrap().len() {
            1 => "[[scenario]]\nid = \"C\"\nname = \"Colocated\"\ntestbed = \"one\"\npath = \"colocated\"\n\
                  from = \"a/x\"\nto = \"a/y\"\n"
                .to_owned(),
            _ => "[[scenario]]\nid = \"R\"\nname = \"Raw\"\ntestbed = \"two\"\npath = \"raw\"\nfrom = \"a\"\nto = \"b\"\n\
                  [[scenario]]\nid = \"V\"\nname = \"Overlay\"\ntestbed = \"two\"\npath = \"vxlan\"\n\
                  from = [\"a/x\", \"a/y\"]\nto = [\"b/x\", \"b/y\"]\n"
                .to_owned(),
        };
        let text = format!(
            "name = \"short\"\ntitle = \"A short suite\"\n\
             [defaults]\nwindow = \"100ms\"\nwarm_up = \"20ms\"\ncool_down = \"10ms\"\n\
             [defaults.load]\nkind = \"tcp-stream\"\nmessage = \"128k\"\n\
             [testbed.two]\nnodes = [\"a\", \"b\"]\nwire = {{ }}\n[testbed.one]\nnodes = [\"a\"]\n{scenarios}"
        );
        fs::write(directory.path().join("suite.toml"), text).unwrap();
        Self { directory }
    }

    fn store(&self) -> PathBuf {
        self.directory.path().join("runs.sqlite")
    }

    /// Starts a run of three trials a scenario, of which each takes some 150 ms.
    fn start(&self, more: &[&str]) -> Child {
        let mut command = netrig();
        command.arg("run").arg(self.directory.path().join("suite.toml")).args(["--trials", "3", "--store"]);
        command.arg(self.store()).args(more).stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    /// All runs that are stored, read to the last trial; none when there is no store yet.
    fn runs(&self) -> Vec<Run> {
        if !self.store().exists() {
            return Vec::new();
        }
        let check: String = rusqlite::Connection::open(self.store())
            .and_then(|store| store.pragma_query_value(None, "integrity_check", |row| row.get(0)))
            .unwrap();
        assert_eq!(check, "ok");
        let store = match Store::open_to_read(&self.store()) {
            // Killed before the first transaction.
            Err(_) if fs::metadata(self.store()).unwrap().len() == 0 => return Vec::new(),
            store => store.unwrap(),
        };
        store.runs().unwrap().into_iter().map(|run| store.run(run.id).unwrap()).collect()
    }
}

/// Asserts that each trial of `run` is whole and that none is missing between the first and the last.
fn assert_whole(run: &Run) {
    for trial in &run.trials {
        assert_eq!(trial.workers.len() % 2, 0);
        assert!(!trial.workers.is_empty() && !trial.nodes.is_empty());
        let before =
            run.trials.iter().filter(|other| other.scenario == trial.scenario && other.ordinal < trial.ordinal);
        assert_eq!(
            before.count() as u32,
            trial.ordinal - 1,
            "a trial before {} #{} is lost",
            trial.scenario,
            trial.ordinal
        );
    }
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// How `child` ended, and what it wrote to standard error.
fn end_of(mut child: Child) -> (std::process::ExitStatus, String) {
    let status = world::until(PATIENCE, || child.try_wait().unwrap());
    if status.is_none() {
        child.kill().unwrap();
    }
    let said = std::io::read_to_string(child.stderr.take().unwrap()).unwrap();
    (status.unwrap_or_else(|| panic!("it does not end: {said}")), said)
}

#[test]
fn a_run_killed_at_any_moment_leaves_nothing_but_finished_trials() {
    world::own(|| {
        let bench = Bench::new();
        let mut dice = Dice::new();
        let mut in_a_testbed = 0;
        for life in 0..15 {
            let after = dice.up_to(Duration::from_millis(1300));
            let mut run = bench.start(&[]);
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
        assert!(stored > 0, "no life was long enough to store anything");
    });
}

#[test]
fn a_run_stopped_by_a_signal_keeps_its_trials_and_says_so() {
    world::own(|| {
        let bench = Bench::new();
        let mut dice = Dice::new();
        let mut caught = 0;
        for (life, how) in
            [Signal::INT, Signal::TERM, Signal::HUP, Signal::INT].into_iter().cycle().take(10).enumerate()
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
                    assert!(said.contains("stopped by the user"), "{when}");
                    let told = said.lines().filter(|line| line.contains(" Mbit/s ")).count();
                    if let Some(run) = new {
                        assert_eq!(run.state, RunState::Interrupted, "{when}");
                        assert_eq!(run.stored_trials as usize, told, "{when}");
                        assert!(said.contains(&format!("netrig report {}", run.id)), "{when}");
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
    });
}

#[test]
fn a_second_signal_ends_a_run_at_once_and_leaves_nothing_either() {
    world::own(|| {
        let bench = Bench::new();
        let run = bench.start(&["--window", "20s"]);
        world::until(PATIENCE, || (workers().len() >= 2).then_some(())).expect("workers are started");
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

#[test]
fn a_worker_that_is_killed_fails_the_run_by_name_and_keeps_its_trials() {
    world::own(|| {
        let bench = Bench::new();
        let mut run = bench.start(&["--window", "1s"]);
        let mut lines = BufReader::new(run.stderr.take().unwrap()).lines();
        let done = lines.by_ref().map(Result::unwrap).find(|line| line.contains(" Mbit/s ")).expect("a trial ends");
        println!("{done}");
        let victim = world::until(PATIENCE, || workers().pop()).expect("a worker is started");
        // Not in the middle of its start.
        thread::sleep(Duration::from_millis(100));
        kill_process(Pid::from_raw(victim as i32).unwrap(), Signal::KILL).unwrap();
        let said: Vec<String> = lines.map(Result::unwrap).collect();
        let said = said.join("\n");
        println!("{said}");
        assert_eq!(run.wait().unwrap().code(), Some(4), "{said}");
        world::assert_nothing_left("of a run whose worker was killed");
        let named = ["a: ", "b: ", "a/x: ", "a/y: ", "b/x: ", "b/y: "].iter().any(|name| said.contains(name));
        assert!(named, "no worker is named: {said}");
        assert!(said.contains("died") && said.contains("signal: 9"), "{said}");
        assert!(said.contains("scenario") && said.contains("trial"), "{said}");
        assert!(said.contains("netrig report 1"), "{said}");
        let runs = bench.runs();
        assert!(matches!(&runs[0].summary.state, RunState::Failed { reason } if reason.contains("died")));
        assert!(!runs[0].trials.is_empty());
        runs.iter().for_each(assert_whole);
    });
}

/// A store on a file system that is full from the beginning, or becomes so in the course of a run.
#[test]
fn a_full_disk_is_said_and_what_was_stored_stays() {
    world::own(|| {
        let bench = Bench::new();
        let place = bench.directory.path().join("small");
        fs::create_dir(&place).unwrap();
        for size in ["60k", "160k"] {
            mount_tmpfs(&place, size);
            let store = place.join("runs.sqlite");
            let output = netrig()
                .arg("run")
                .arg(bench.directory.path().join("suite.toml"))
                .args(["--trials", "100", "--store"])
                .arg(&store)
                .output()
                .unwrap();
            let (_, said) = world::expect(&output, 4);
            println!("{size}: {said}");
            assert!(said.contains("no space left for the store"), "{said}");
            assert!(said.contains(store.to_str().unwrap()) && said.contains("--store FILE"), "{said}");
            let told = said.lines().filter(|line| line.contains(" Mbit/s ")).count();
            match Store::open_to_read(&store).and_then(|store| store.run(store.latest()?)) {
                Ok(run) => {
                    assert_whole(&run);
                    assert_eq!(run.trials.len(), told, "{size}");
                }
                Err(error) => assert_eq!(told, 0, "{size}: {error}"),
            }
            world::assert_nothing_left("of a run without space");
            unmount(&place);
        }
    });
}

fn mount_tmpfs(place: &Path, size: &str) {
    let options = format!("size={size}");
    let status = std::process::Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(place).status();
    assert!(status.unwrap().success());
}

fn unmount(place: &Path) {
    assert!(std::process::Command::new("umount").arg(place).status().unwrap().success());
}
