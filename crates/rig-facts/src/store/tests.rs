use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::record::{Calibration, CalibrationTimes, CpuUse, Flag, InterfaceDelta, NodeRecord, ProtocolDelta};

mod damaged;

fn store() -> (TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("deep/er/runs.sqlite")).unwrap();
    (dir, store)
}

/// Runs of older versions recorded no calibration, and trials may lack one.
#[test]
fn a_run_is_calibrated_by_the_median_of_its_trials() {
    let (_dir, mut store) = store();
    let build = "0123, release, rustc 1.90.0".to_owned();
    let environment = Environment { netrig_build: Some(build), ..Environment::default() };
    let run = store.begin_run(&NewRun { environment, ..new_run("layers") }).unwrap();
    let older = store.begin_run(&new_run("layers")).unwrap();
    for (ordinal, ns) in [(1, Some(300)), (2, Some(100)), (3, None), (4, Some(200))] {
        let gauge =
            |ns| CalibrationTimes { work_ns: vec![(0, ns)], together_ns: Vec::new(), memory_ns: None, wake_ns: None };
        let calibration = ns.map(|ns| Calibration { before: gauge(ns), after: gauge(ns) });
        store.add_trial(run, &TrialRecord { calibration, ..trial("A", ordinal) }).unwrap();
    }
    store.add_trial(older, &trial("A", 1)).unwrap();
    let calibrated = store.calibrated().unwrap();
    let expected = RunCalibration { work_ns: 200.0, build_kind: "release, rustc 1.90.0".into() };
    assert_eq!(calibrated.into_iter().collect::<Vec<_>>(), [(run, expected)]);
}

fn new_run(suite: &str) -> NewRun {
    NewRun {
        suite: suite.to_owned(),
        title: "What a layer costs".to_owned(),
        suite_file: "layers.toml".to_owned(),
        suite_text: "name = \"layers\" # ümläut\n".to_owned(),
        options: json!({"quick": true, "only": ["A", "B"]}),
        environment: Environment { kernel: "6.18.44".to_owned(), cpus_online: 2, ..Environment::default() },
        planned_trials: 18,
        started_unix_ms: 1_700_000_000_000,
    }
}

fn trial(scenario: &str, ordinal: u32) -> TrialRecord {
    let cpu = CpuUse { cpu: 1, user: 0.5, system: 40.25, softirq: 12.0, idle: 47.25, ..CpuUse::default() };
    TrialRecord {
        scenario: scenario.to_owned(),
        ordinal,
        block: None,
        calibration: None,
        clocks: None,
        end_clocks: None,
        uncompared: None,
        started_unix_ms: 1_700_000_001_000,
        setup_us: 80_000,
        teardown_us: 20_000,
        total_us: 15_000_000,
        window_begin_ns: 1,
        window_end_ns: u64::MAX,
        nodes: vec![NodeRecord {
            name: "a".to_owned(),
            cpus: vec![cpu],
            interfaces: vec![InterfaceDelta { name: "a:eth0".to_owned(), rx_bytes: 7, ..InterfaceDelta::default() }],
            protocol: ProtocolDelta::default(),
            share: None,
        }],
        workers: Vec::new(),
        throttled_us: Some(1500),
        search: None,
        benchmark: None,
        agents: Vec::new(),
        phases: Vec::new(),
        series: None,
        limit: None,
        dut: None,
        host: None,
        hosts: Vec::new(),
        layers: None,
        set: Vec::new(),
        before: Vec::new(),
        frames: None,
        tool: None,
        flags: vec![Flag::Stolen { node: "a".to_owned(), percent: 3.5 }],
    }
}

#[test]
fn a_run_comes_back_as_it_was_stored() {
    let (_dir, mut store) = store();
    let id = store.begin_run(&new_run("layers")).unwrap();
    let trials = vec![trial("A", 1), trial("B", 1), trial("A", 2)];
    for trial in &trials {
        store.add_trial(id, trial).unwrap();
    }
    let cost = RigCost { nodes: vec![("a".to_owned(), 0.125)], busy: vec![("a".to_owned(), 1.5)] };
    store.set_rig_cost(id, &cost).unwrap();

    let running = store.run(id).unwrap();
    assert_eq!(running.summary.state, RunState::Running);
    assert_eq!((running.summary.planned_trials, running.summary.stored_trials), (18, 3));
    assert_eq!((running.summary.ended_unix_ms, &running.goals), (None, &None));

    let goals = json!({"A": {"throughput": "met"}});
    store.finish_run(id, &RunEnd::Complete, Some(&goals), 1_700_000_100_000).unwrap();
    let run = Store::open_to_read(store.path()).unwrap().run(id).unwrap();
    let new = new_run("layers");
    assert_eq!(run.trials, trials);
    assert_eq!((run.suite_file, run.suite_text), (new.suite_file, new.suite_text));
    assert_eq!((run.options, run.environment), (new.options, new.environment));
    assert_eq!((run.rig_cost, run.goals), (Some(cost), Some(goals)));
    assert_eq!(run.summary.state, RunState::Complete);
    assert_eq!(run.summary.ended_unix_ms, Some(1_700_000_100_000));
    assert_eq!(run.summary.netrig_version, env!("CARGO_PKG_VERSION"));
}

#[test]
fn history_lists_what_became_of_each_run() {
    let (_dir, mut store) = store();
    assert!(matches!(store.latest(), Err(StoreError::NoRuns { .. })));
    let endings =
        [RunEnd::Complete, RunEnd::Interrupted, RunEnd::Failed { reason: "node b: veth is not there".to_owned() }];
    for ending in &endings {
        let id = store.begin_run(&new_run("layers")).unwrap();
        store.finish_run(id, ending, None, 5).unwrap();
    }
    let running = store.begin_run(&new_run("namespaces")).unwrap();
    let killed = store.begin_run(&new_run("namespaces")).unwrap();
    // As a runner leaves it that was killed before the machine was started anew.
    store.connection.execute("UPDATE run SET runner_boot = 'before' WHERE id = ?1", [killed.get()]).unwrap();

    let runs = store.runs().unwrap();
    let states: Vec<_> = runs.iter().map(|run| run.state.to_string()).collect();
    let failed = "failed: node b: veth is not there";
    assert_eq!(states, ["complete", "interrupted", failed, "running", "interrupted"]);
    assert_eq!(runs.iter().map(|run| run.id.get()).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    assert_eq!(runs[4].ended_unix_ms, None);

    assert_eq!(store.resolve(&"latest".parse().unwrap()).unwrap(), killed);
    assert_eq!(store.resolve(&"4".parse().unwrap()).unwrap(), running);
    let error = store.resolve(&"6".parse().unwrap()).unwrap_err();
    assert!(error.to_string().contains("run 6 is not in the store"), "{error}");
    assert!(error.to_string().contains("netrig history"), "{error}");
}

#[test]
fn a_name_is_latest_a_positive_number_or_a_label() {
    assert_eq!("latest".parse(), Ok(RunName::Latest));
    assert_eq!("12".parse(), Ok(RunName::Number(RunId(12))));
    assert_eq!("latest~2".parse(), Ok(RunName::Before(2)));
    for name in ["latest", "latest~2", "12"] {
        assert_eq!(name.parse::<RunName>().unwrap().to_string(), name);
    }
    for bad in ["latest~", "latest~-1", "latest~x", "latest~1~", "", "0", "-1", "1.5", "Latest", "99999999999999999999"]
    {
        assert_eq!(bad.parse::<RunName>(), Err(BadRunName(bad.to_owned())));
    }
}

#[test]
fn runs_are_counted_back_from_the_latest() {
    let (_dir, mut store) = store();
    let ids: Vec<RunId> = (0..3).map(|_| store.begin_run(&new_run("layers")).unwrap()).collect();
    for (back, id) in ids.iter().rev().enumerate() {
        assert_eq!(store.resolve(&RunName::Before(back as u32)).unwrap(), *id);
    }
    let error = store.resolve(&RunName::Before(3)).unwrap_err().to_string();
    assert!(error.contains("latest~3 is not in the store") && error.contains("3 runs"), "{error}");
}

#[test]
fn what_has_ended_or_was_never_begun_takes_no_more() {
    let (_dir, mut store) = store();
    let id = store.begin_run(&new_run("layers")).unwrap();
    store.add_trial(id, &trial("A", 1)).unwrap();
    let twice = store.add_trial(id, &trial("A", 1)).unwrap_err();
    assert!(matches!(twice, StoreError::DuplicateTrial { ordinal: 1, .. }), "{twice}");
    store.finish_run(id, &RunEnd::Complete, None, 5).unwrap();
    assert!(matches!(store.add_trial(id, &trial("A", 2)), Err(StoreError::Ended { .. })));
    assert!(matches!(store.finish_run(id, &RunEnd::Interrupted, None, 6), Err(StoreError::Ended { .. })));
    assert!(matches!(store.add_trial(RunId(9), &trial("A", 2)), Err(StoreError::NoSuchRun { .. })));
    assert_eq!(store.run(id).unwrap().trials.len(), 1);
}

#[test]
fn a_trial_that_could_not_be_read_back_is_refused() {
    let (_dir, mut store) = store();
    let id = store.begin_run(&new_run("layers")).unwrap();
    let mut broken = trial("A", 1);
    broken.nodes[0].cpus[0].steal = f64::NAN;
    let error = store.add_trial(id, &broken).unwrap_err();
    assert!(error.to_string().starts_with("trial 1 of scenario A cannot be stored"), "{error}");
    assert!(store.run(id).unwrap().trials.is_empty());
}

#[test]
fn a_full_disk_is_said_and_loses_nothing() {
    let (_dir, mut store) = store();
    let id = store.begin_run(&new_run("layers")).unwrap();
    let pages: i64 = store.connection.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
    store.connection.pragma_update_and_check(None, "max_page_count", pages + 8, |_| Ok(())).unwrap();
    let mut stored = 0;
    let error = loop {
        match store.add_trial(id, &trial("A", stored + 1)) {
            Ok(()) => stored += 1,
            Err(e) => break e,
        }
    };
    assert!(matches!(error, StoreError::DiskFull { .. }), "{error}");
    assert!(stored > 0, "the limit came too early to show anything");
    assert_eq!(store.run(id).unwrap().trials.len(), stored as usize);
    store.connection.pragma_update_and_check(None, "max_page_count", 100_000, |_| Ok(())).unwrap();
    store.add_trial(id, &trial("A", stored + 1)).unwrap();
}

#[test]
fn a_lock_that_is_held_too_long_is_said() {
    let (_dir, mut store) = store();
    let other = Connection::open(store.path()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    store.connection.busy_timeout(Duration::from_millis(20)).unwrap();
    let error = store.begin_run(&new_run("layers")).unwrap_err();
    assert!(matches!(error, StoreError::Locked { .. }), "{error}");
    assert!(store.runs().unwrap().is_empty(), "readers do not wait for a writer");
}

#[test]
fn a_file_of_somebody_else_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().join("notes.txt");
    std::fs::write(&text, "my notes, longer than the header of a SQLite file. ".repeat(40)).unwrap();
    let foreign = dir.path().join("other.sqlite");
    let other = Connection::open(&foreign).unwrap();
    other.execute_batch("CREATE TABLE mine (a); PRAGMA application_id = 7;").unwrap();
    drop(other);
    let unmarked = dir.path().join("unmarked.sqlite");
    Connection::open(&unmarked).unwrap().execute_batch("CREATE TABLE mine (a)").unwrap();

    for (path, reason) in [
        (text.as_path(), "file is not a database"),
        (&foreign, "a SQLite file of the application 0x7"),
        (&unmarked, "a SQLite file without an application id"),
        (dir.path(), "a directory"),
    ] {
        let before = std::fs::read(path).ok();
        for open in [Store::open, Store::open_to_read] {
            let error = open(path).unwrap_err();
            assert!(matches!(error, StoreError::NotAStore { .. }), "{error}");
            assert!(error.to_string().contains(reason), "{error}");
            assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
        }
        assert_eq!(std::fs::read(path).ok(), before, "{}", path.display());
    }
}

#[test]
fn damage_is_named_with_the_way_out() {
    let (_dir, mut store) = store();
    let id = store.begin_run(&new_run("layers")).unwrap();
    for ordinal in 1..=50 {
        store.add_trial(id, &trial("A", ordinal)).unwrap();
    }
    let path = store.path().to_owned();
    drop(store);
    let mut bytes = std::fs::read(&path).unwrap();
    let page = 4096;
    bytes[page..].fill(0xa5);
    std::fs::write(&path, bytes).unwrap();
    let error = Store::open_to_read(&path).and_then(|store| store.run(id)).unwrap_err();
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
    assert!(error.to_string().contains(".recover"), "{error}");
}

#[test]
fn a_record_that_is_not_understood_is_named() {
    let (_dir, mut store) = store();
    let id = store.begin_run(&new_run("layers")).unwrap();
    store.add_trial(id, &trial("A", 1)).unwrap();
    store.connection.execute("UPDATE trial SET record = '{\"scenario\":\"A\"}'", []).unwrap();
    let error = store.run(id).unwrap_err().to_string();
    assert!(error.starts_with("trial 1 of scenario A of run 1 in the store"), "{error}");
    assert!(error.contains("missing field"), "{error}");
}

#[test]
fn an_empty_file_becomes_a_store_but_holds_no_runs_for_a_reader() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("runs.sqlite");
    assert!(matches!(Store::open_to_read(&path), Err(StoreError::Missing { .. })));
    std::fs::write(&path, "").unwrap();
    assert!(Store::open(&path).unwrap().runs().unwrap().is_empty());
    assert!(Store::open_to_read(&path).unwrap().runs().unwrap().is_empty());
}

#[test]
fn the_default_place_follows_the_environment() {
    let place = |set: &[(&str, &str)]| {
        let set: Vec<(String, OsString)> = set.iter().map(|(k, v)| ((*k).to_owned(), v.into())).collect();
        default_path(|name| set.iter().find(|(k, _)| k == name).map(|(_, v)| v.clone())).ok()
    };
    let home = ("HOME", "/h");
    assert_eq!(place(&[("NETRIG_STORE", "x.db"), ("XDG_DATA_HOME", "/d"), home]), Some("x.db".into()));
    assert_eq!(place(&[("NETRIG_STORE", ""), ("XDG_DATA_HOME", "/d"), home]), Some("/d/netrig/runs.sqlite".into()));
    let at_home = Some("/h/.local/share/netrig/runs.sqlite".into());
    assert_eq!(place(&[("XDG_DATA_HOME", "relative"), home]), at_home);
    assert_eq!(place(&[home]), at_home);
    assert_eq!(place(&[("HOME", "")]), None);
}

#[test]
fn a_label_names_the_latest_run_that_has_it() {
    let (_dir, mut store) = store();
    let labelled = |label: &str| NewRun { options: json!({"quick": true, "label": label}), ..new_run("layers") };
    let first = store.begin_run(&labelled("before")).unwrap();
    let second = store.begin_run(&labelled("before")).unwrap();
    let other = store.begin_run(&new_run("layers")).unwrap();
    let name: RunName = "before".parse().unwrap();
    assert_eq!(store.resolve(&name).unwrap(), second);
    let labels: Vec<_> =
        store.runs().unwrap().into_iter().map(|run| (run.id, run.label.map(|l| l.to_string()))).collect();
    let before = || Some("before".to_owned());
    assert_eq!(labels, [(first, before()), (second, before()), (other, None)]);
    let error = store.resolve(&"after".parse().unwrap()).unwrap_err().to_string();
    assert!(error.contains("`after`") && error.contains("netrig history"), "{error}");
    for bad in ["", "latest", "7", "7up", "a b", "run.json", "-x", "../x", &"a".repeat(41)] {
        assert!(bad.parse::<Label>().is_err(), "{bad}");
    }
}

#[test]
fn a_run_is_deleted_with_its_trials_unless_it_is_going_on() {
    let (_dir, mut store) = store();
    let (kept, gone) = (store.begin_run(&new_run("layers")).unwrap(), store.begin_run(&new_run("latency")).unwrap());
    for run in [kept, gone] {
        store.add_trial(run, &trial("A", 1)).unwrap();
    }
    assert!(matches!(store.delete(gone), Err(StoreError::GoingOn { run }) if run == gone));
    assert_eq!(store.run(gone).unwrap().trials.len(), 1);
    store.finish_run(gone, &RunEnd::Interrupted, None, 1_700_000_002_000).unwrap();
    let was = store.delete(gone).unwrap();
    assert_eq!((was.id, was.suite.as_str(), was.stored_trials), (gone, "latency", 1));
    assert!(matches!(store.delete(gone), Err(StoreError::NoSuchRun { .. })));
    let trials: i64 = store.connection.query_row("SELECT count(*) FROM trial", [], |row| row.get(0)).unwrap();
    assert_eq!((trials, store.run(kept).unwrap().trials.len()), (1, 1));
    // A number stands for one run for ever.
    assert!(store.begin_run(&new_run("layers")).unwrap() > gone);
}
