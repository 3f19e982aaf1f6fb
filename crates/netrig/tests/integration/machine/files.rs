//! The files that a run uses: its store and its report.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use rig_facts::store::{RunState, Store};
use rig_sys::cpu::CpuSet;
use rusqlite::Connection;
use serde_json::Value;

use super::bench::{Bench, assert_whole, trials_told};
use super::world::{self, expect, netrig};

/// A store on a file system that is full from the beginning, or becomes so in the course of a run.
#[test]
fn a_full_disk_is_said_and_what_was_stored_stays() {
    world::own(|| {
        let bench = Bench::new();
        let place = bench.path("small");
        fs::create_dir(&place).unwrap();
        for size in ["60k", "160k"] {
            mount_tmpfs(&place, size);
            let store = place.join("runs.sqlite");
            let output = netrig()
                .arg("run")
                .arg(bench.path("suite.toml"))
                .args(["--trials", "100", "--store"])
                .arg(&store)
                .output()
                .unwrap();
            let (_, said) = expect(&output, 4);
            println!("{size}: {said}");
            assert!(said.contains("no space left for the store"), "{said}");
            assert!(said.contains(store.to_str().unwrap()) && said.contains("--store FILE"), "{said}");
            let told = trials_told(&said);
            assert_eq!(said.contains("finished trials are kept"), told > 0, "{said}");
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

/// All trials are there, and the run's end is not: what was measured is told all the same.
#[test]
fn a_store_that_refuses_the_end_of_a_run_leaves_its_report() {
    world::own(|| {
        let bench = Bench::new();
        let run = || {
            let mut command = netrig();
            command.arg("run").arg(bench.path("suite.toml")).args(["--trials", "3", "--format", "json", "--store"]);
            command.arg(bench.store()).output().unwrap()
        };
        expect(&run(), 0);
        let refuses = "CREATE TRIGGER of_ends BEFORE UPDATE OF ending ON run BEGIN SELECT room_for_ends(); END";
        Connection::open(bench.store()).unwrap().execute_batch(refuses).unwrap();
        let (report, said) = expect(&run(), 4);
        assert!(
            said.contains("no such function: room_for_ends") && said.contains("finished trials are kept"),
            "{said}"
        );
        let report: Value = serde_json::from_str(&report).unwrap();
        let scenarios = report["data"]["scenarios"].as_array().unwrap();
        assert!(!scenarios.is_empty() && report["data"]["run"]["id"] == "2", "{report}");
        world::assert_nothing_left("of a run without an end");
    });
}

fn mount_tmpfs(place: &Path, size: &str) {
    let options = format!("size={size}");
    let status = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(place).status();
    assert!(status.unwrap().success());
}

fn unmount(place: &Path) {
    assert!(Command::new("umount").arg(place).status().unwrap().success());
}

#[test]
fn a_store_that_may_not_be_written_to_is_refused_before_anything_is_measured_and_left_alone() {
    world::own(|| {
        let bench = Bench::new();
        drop(Store::open(&bench.store()).unwrap());
        let good = fs::read(bench.store()).unwrap();
        let newer = bench.path("newer.sqlite");
        fs::write(&newer, &good).unwrap();
        rusqlite::Connection::open(&newer).unwrap().pragma_update(None, "user_version", 99).unwrap();
        let corrupt = bench.path("corrupt.sqlite");
        let mut bytes = good;
        bytes[1024..].fill(0x5a);
        fs::write(&corrupt, bytes).unwrap();
        let text = bench.path("notes.txt");
        fs::write(&text, "remember the milk\n".repeat(100)).unwrap();
        let directory = bench.path("directory");
        fs::create_dir(&directory).unwrap();
        let below = text.join("runs.sqlite");
        for (path, expected) in [
            (&newer, "newer netrig"),
            (&corrupt, "damaged"),
            (&text, "is not a netrig store"),
            (&directory, "a directory"),
            (&below, "cannot make the store's directory"),
        ] {
            let before = fs::read(path).ok();
            let output = netrig().arg("run").arg(bench.path("suite.toml")).arg("--store").arg(path).output().unwrap();
            let (out, err) = expect(&output, 4);
            assert!(err.contains(expected), "'{err}' lacks '{expected}'");
            let named = if path.starts_with(&text) { &text } else { path };
            assert!(err.contains(named.to_str().unwrap()), "'{err}' does not name {}", path.display());
            assert!(err.contains("--store") || err.contains("move it away"), "no way out: {err}");
            assert_eq!((out.as_str(), trials_told(&err)), ("", 0), "something was measured: {err}");
            assert_eq!(fs::read(path).ok(), before, "{} was changed", path.display());
            world::assert_nothing_left("by a run without a store");
        }
    });
}

#[test]
fn a_run_whose_report_nobody_reads_is_done_all_the_same() {
    world::own(|| {
        let bench = Bench::new();
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let output = bench.command(&[]).stdout(writer).output().unwrap();
        expect(&output, 0);
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = bench.command(&[]).stdout(full).output().unwrap();
        let (_, err) = expect(&output, 4);
        assert!(err.contains("No space left"), "{err}");
        // The report failed, the run did not.
        assert!(bench.runs().iter().all(|run| run.summary.state == RunState::Complete));
        assert_eq!(bench.runs().len(), 2);
    });
}

#[test]
fn a_report_appears_when_the_run_is_over() {
    world::own(|| {
        let bench = Bench::new();
        let report = bench.path("report.md");
        let arguments = ["--format", "markdown", "--quiet", "--output", report.to_str().unwrap()];
        let (_, err) = expect(&bench.command(&arguments).output().unwrap(), 0);
        assert_eq!(err, "", "--quiet");
        let whole = fs::read_to_string(&report).unwrap();
        assert!(whole.contains("A short suite"), "{whole}");
        // A run that is killed leaves the older report, and no half of a new one.
        let mut run = bench.start(&arguments);
        world::until(std::time::Duration::from_secs(20), || (world::processes().len() >= 3).then_some(()));
        run.kill().unwrap();
        run.wait().unwrap();
        world::assert_nothing_left("by a run with a report");
        assert_eq!(fs::read_to_string(&report).unwrap(), whole);
        assert_eq!(names(report.parent().unwrap(), "runs.sqlite"), ["report.md", "suite.toml"]);
    });
}

/// The files of a directory whose names do not begin with `without`.
fn names(directory: &Path, without: &str) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| !name.starts_with(without));
    names.sort();
    names
}

#[test]
fn a_run_is_compared_with_the_one_before_it() {
    world::own(|| {
        let bench = Bench::new();
        let run = |more: &[&str]| -> (Option<i32>, serde_json::Value) {
            let mut command = netrig();
            command.arg("run").arg(bench.path("suite.toml")).args(["--trials", "3", "--format", "json", "--store"]);
            let output = command.arg(bench.store()).args(more).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            let value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {said}"));
            (output.status.code(), value)
        };
        assert!(run(&[]).1["data"]["comparison"].is_null());
        // What so short a run finds is not the question; that status and figures say the same is.
        let (status, report) = run(&["--against", "latest", "--fail-on-undecided"]);
        let comparison = &report["data"]["comparison"];
        assert_eq!(
            (comparison["old"]["name"].as_str(), comparison["new"]["name"].as_str()),
            (Some("run 1"), Some("run 2"))
        );
        let figures = comparison["figures"].as_array().unwrap();
        let decide =
            |verdict: &str| figures.iter().any(|figure| figure["gates"] == true && figure["verdict"] == verdict);
        let expected = match (decide("worse"), decide("undecided")) {
            (true, _) => 1,
            (false, true) => 5,
            (false, false) => 0,
        };
        assert_eq!(status, Some(expected), "{comparison}");
        assert!(figures.iter().any(|figure| figure["metric"] == "throughput" && !figure["effect"]["p"].is_null()));
        let what: Vec<&str> =
            comparison["differences"].as_array().unwrap().iter().map(|d| d["what"].as_str().unwrap()).collect();
        // What a busy machine does to two runs that are alike.
        let may_differ = ["Load average", "Trials of", "Machine, by the same arithmetic", "Cost of counting CPU time"];
        assert!(what.iter().all(|what| may_differ.iter().any(|may| what.starts_with(may))), "{what:?}");
        // Whether they were measured is known from the trials.
        let (status, report) = run(&["--against", "1", "--metrics", "delay_p99"]);
        let error = report["data"]["error"].as_str().unwrap();
        assert!(status == Some(4) && error.starts_with("not compared with run 1: "), "{status:?}: {error}");
        assert_eq!(report["data"]["run"]["id"], "3");
        assert!(report["data"]["scenarios"][0]["trials"][2].is_object(), "{report}");
        world::assert_nothing_left("of three runs");
    });
}

#[test]
fn names_of_files_are_bytes_which_need_not_be_text() {
    world::own(|| {
        let bench = Bench::new();
        let path = |name: &[u8]| bench.path("").join(OsStr::from_bytes(name));
        let (suite, store, report) = (path(b"s\xff.toml"), path(b"s\xff.sqlite"), path(b"r\xff.json"));
        fs::copy(bench.path("suite.toml"), &suite).unwrap();
        let scenario = if CpuSet::allowed().unwrap().len() == 1 { "C" } else { "R" };
        let command = |words: &[&OsStr]| {
            let output = netrig().args(words).arg("--store").arg(&store).env("NETRIG_RUN", path(b"run\xff")).output();
            expect(&output.unwrap(), 0)
        };
        let [run, json, write] = ["run", "--format=json", "--output"].map(OsStr::new);
        let few = ["--trials=2", "--only", scenario, "--no-aa"].map(OsStr::new);
        let (_, said) = command(&[&[run, suite.as_os_str(), json, write, report.as_os_str()], &few[..]].concat());
        assert_eq!(trials_told(&said), 2, "{said}");
        assert_eq!(Store::open_to_read(&store).unwrap().runs().unwrap().len(), 1);
        // What a report wrote is a run to compare with, by name.
        command(&[&[run, suite.as_os_str(), OsStr::new("--against"), report.as_os_str()], &few[..]].concat());
        let (out, _) = command(&[OsStr::new("compare"), report.as_os_str(), OsStr::new("latest")]);
        assert!(out.contains("r\u{fffd}.json"), "{out}");
        let kept =
            |words: &[&OsStr]| expect(&netrig().args(words).env("NETRIG_RUN", path(b"run\xff")).output().unwrap(), 0).0;
        let [show, up, shell, down] = ["show", "up", "shell", "down"].map(OsStr::new);
        assert!(kept(&[show, suite.as_os_str()]).contains("A short suite"));
        let mut of_suite = suite.clone().into_os_string();
        of_suite.push("/");
        of_suite.push(scenario);
        kept(&[up, &of_suite]);
        let first = if scenario == "C" { "a/x" } else { "a" };
        let echoed = kept(&[shell, OsStr::new(first), OsStr::new("ls"), OsStr::new("-b"), suite.as_os_str()]);
        assert!(echoed.contains("s\\377.toml"), "{echoed}");
        kept(&[down]);
        // A mistake is told with the name as far as it is text.
        let missing = netrig().arg("run").arg(path(b"missing\xff.toml")).output().unwrap();
        let (_, said) = expect(&missing, 2);
        assert!(said.contains("missing\u{fffd}.toml") && said.contains("No such file"), "{said}");
    });
}
