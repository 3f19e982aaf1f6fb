//! The store against the world outside: killed writers, several at once, a full disk, a place that may not be written.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;
use std::{env, fs, io};

use rig_facts::record::{Environment, TrialRecord};
use rig_facts::store::{NewRun, RunEnd, RunId, RunState, Store, StoreError};
use rusqlite::{Connection, OpenFlags};
use serde_json::json;

const NOBODY: u32 = 65534;

fn new_run() -> NewRun {
    NewRun {
        suite: "layers".to_owned(),
        title: "What a layer costs".to_owned(),
        suite_file: "layers.toml".to_owned(),
        suite_text: "name = \"layers\"\n".to_owned(),
        options: json!({}),
        environment: Environment::default(),
        planned_trials: 1,
        started_unix_ms: 1_700_000_000_000,
    }
}

/// A record as version 0.1.0 wrote it.
fn old_trial() -> TrialRecord {
    serde_json::from_str(include_str!("../../../rig-facts/tests/records/trial-0.1.0.json"))
        .expect("what was stored once stays readable")
}

fn trial(ordinal: u32) -> TrialRecord {
    TrialRecord { scenario: "A".to_owned(), ordinal, ..old_trial() }
}

/// The part of a helper process, chosen by [`PART`]; the store is [`STORE`].
const PART: &str = "NETRIG_TEST_PART";
const STORE: &str = "NETRIG_TEST_STORE";

#[test]
#[ignore = "is no test but the process that the tests of this file start, and kill"]
fn helper() {
    let part = env::var(PART).expect("started by a test of this file");
    let path = env::var_os(STORE).expect("started by a test of this file");
    let path = Path::new(&path);
    let outcome = match part.as_str() {
        "write for ever" => write_trials(path, u32::MAX),
        "write ten" => write_trials(path, 10),
        "read" => Store::open_to_read(path).and_then(|store| store.run(store.latest()?)).map(|run| run.trials.len()),
        other => panic!("unknown part `{other}`"),
    };
    match outcome {
        Ok(trials) => println!("\nhelper: {trials} trials"),
        Err(e) => println!("\nhelper: {e}"),
    }
}

fn write_trials(path: &Path, count: u32) -> Result<usize, StoreError> {
    let mut store = Store::open(path)?;
    let run = store.begin_run(&new_run())?;
    for ordinal in 1..=count {
        store.add_trial(run, &trial(ordinal))?;
    }
    store.finish_run(run, &RunEnd::Complete, None, 1_700_000_100_000)?;
    Ok(count as usize)
}

/// `program` with its arguments, followed by this test binary in the part of `part`.
fn helper_under(wrapper: &[&str], binary: &Path, part: &str, store: &Path) -> Command {
    let mut command = match wrapper {
        [] => Command::new(binary),
        [program, arguments @ ..] => {
            let mut command = Command::new(program);
            command.args(arguments).arg(binary);
            command
        }
    };
    command.args(["--exact", "store::helper", "--ignored", "--nocapture"]).env(PART, part).env(STORE, store);
    command
}

fn this_binary() -> PathBuf {
    env::current_exe().expect("the test binary has a path")
}

/// The helper's own line.
fn said(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find_map(|line| line.strip_prefix("helper: ")).map(str::to_owned);
    line.unwrap_or_else(|| panic!("the helper said nothing: {text}\n{}", String::from_utf8_lossy(&output.stderr)))
}

#[test]
fn a_killed_writer_loses_nothing_finished_and_stores_nothing_half() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("runs.sqlite");
    let mut stored = 0;
    // The moments differ from life to life by themselves: a commit takes a disk's time, the sleep a scheduler's.
    for life in 0..12_u64 {
        let mut writer = helper_under(&[], &this_binary(), "write for ever", &path)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        thread::sleep(Duration::from_millis(20 + life * 17));
        // What a reader sees is committed, so it must outlive the kill. A file not yet made, or made this moment, is no fault.
        let seen: Vec<u32> = match Store::open_to_read(&path).and_then(|store| store.runs()) {
            Ok(runs) => runs.iter().map(|run| run.stored_trials).collect(),
            Err(StoreError::Missing { .. }) => Vec::new(),
            Err(e) => panic!("life {life}: {e}"),
        };
        writer.kill().unwrap();
        writer.wait().unwrap();

        let Ok(store) = Store::open_to_read(&path) else {
            assert!(seen.is_empty(), "life {life}: the store is gone");
            continue;
        };
        let check: String =
            Connection::open(&path).unwrap().pragma_query_value(None, "integrity_check", |row| row.get(0)).unwrap();
        assert_eq!(check, "ok", "life {life}");
        let runs = store.runs().unwrap();
        for (index, summary) in runs.iter().enumerate() {
            assert_eq!(summary.state, RunState::Interrupted, "life {life}");
            let trials = store.run(summary.id).unwrap().trials;
            assert!(trials.iter().map(|trial| trial.ordinal).eq(1..=trials.len() as u32), "life {life}: gap");
            assert!(trials.len() >= seen.get(index).map_or(0, |&n| n as usize), "life {life}: a trial was lost");
        }
        stored = runs.iter().map(|run| run.stored_trials).sum();
    }
    assert!(stored > 0, "no life was long enough to store anything");
}

#[test]
fn several_runs_at_once_share_a_store() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("runs.sqlite");
    // All of them meet a store that is not there yet.
    let writers: Vec<_> = (0..4)
        .map(|_| {
            helper_under(&[], &this_binary(), "write ten", &path).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
        })
        .collect::<io::Result<_>>()
        .unwrap();
    for writer in writers {
        assert_eq!(said(&writer.wait_with_output().unwrap()), "10 trials");
    }
    let store = Store::open_to_read(&path).unwrap();
    let runs = store.runs().unwrap();
    assert_eq!(runs.len(), 4);
    for run in runs {
        assert_eq!((run.state, run.stored_trials), (RunState::Complete, 10));
    }
}

#[test]
fn a_full_file_system_is_said_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let private = if is_root(dir.path()) { "-m" } else { "-Urm" };
    let works = Command::new("unshare").args([private, "true"]).stderr(Stdio::null()).status();
    if !works.is_ok_and(|status| status.success()) {
        return rig_skip::skip(rig_skip::Lack::Namespaces, format_args!("`unshare {private}` does not work"));
    }
    let script = "mount -t tmpfs -o size=400k tmpfs \"$0\" && \"$@\"; \
                  NETRIG_TEST_PART=read; export NETRIG_TEST_PART; \"$@\"";
    let mount = dir.path().to_str().unwrap();
    let output = helper_under(
        &["unshare", private, "sh", "-c", script, mount],
        &this_binary(),
        "write for ever",
        &dir.path().join("runs.sqlite"),
    )
    .output()
    .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("helper: ")).collect();
    let [written, read] = lines[..] else { panic!("{text}\n{}", String::from_utf8_lossy(&output.stderr)) };
    assert!(written.starts_with("no space left for the store"), "{written}");
    let trials: u32 = read.strip_suffix(" trials").and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{read}"));
    assert!(trials > 0, "{text}");
}

/// A copy of this binary in `dir`, which every user may execute.
fn public_copy(dir: &Path) -> PathBuf {
    let binary = dir.join("store::helper");
    // By another program: a file that this process held open for writing could be inherited, for a moment, by what
    // another test starts, and a file that is open for writing cannot be executed (ETXTBSY).
    let copied = Command::new("cp").arg(this_binary()).arg(&binary).status().expect("cp is everywhere");
    assert!(copied.success());
    fs::set_permissions(&binary, fs::Permissions::from_mode(0o755)).expect("it is our own file");
    binary
}

/// Runs the helper as a user that is not root.
fn as_nobody(binary: &Path, part: &str, store: &Path) -> Output {
    let mut command = helper_under(&[], binary, part, store);
    command.current_dir("/");
    if is_root(binary) {
        command.uid(NOBODY).gid(NOBODY);
    }
    command.output().expect("the copy starts")
}

fn is_root(own: &Path) -> bool {
    fs::metadata(own).expect("it was made just now").uid() == 0
}

#[test]
fn where_nothing_may_be_written_a_report_still_works() {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let place = dir.path().join("archive");
    fs::create_dir(&place).unwrap();
    let path = place.join("runs.sqlite");
    assert_eq!(write_trials(&path, 3).unwrap(), 3);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    fs::set_permissions(&place, fs::Permissions::from_mode(0o555)).unwrap();

    let binary = public_copy(dir.path());
    let read = as_nobody(&binary, "read", &path);
    let written = as_nobody(&binary, "write ten", &path);
    let made = as_nobody(&binary, "write ten", &place.join("new.sqlite"));
    let made_deep = as_nobody(&binary, "write ten", &place.join("new/runs.sqlite"));
    fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).unwrap();

    assert_eq!(said(&read), "3 trials");
    assert!(said(&written).starts_with("may not use the store"), "{}", said(&written));
    assert!(said(&made).starts_with("may not use the store"), "{}", said(&made));
    assert!(said(&made_deep).starts_with("cannot make the store's directory"), "{}", said(&made_deep));
}

#[test]
fn records_of_former_versions_stay_readable() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("runs.sqlite");
    let mut store = Store::open(&path).unwrap();
    let run: RunId = store.begin_run(&new_run()).unwrap();
    store.add_trial(run, &old_trial()).unwrap();
    drop(store);
    // Under the very bytes of the old version, and with a field that only a later one knows.
    let connection = Connection::open_with_flags(&path, OpenFlags::SQLITE_OPEN_READ_WRITE).unwrap();
    let mut record: serde_json::Value =
        serde_json::from_str(include_str!("../../../rig-facts/tests/records/trial-0.1.0.json")).unwrap();
    record["of_a_later_version"] = json!(1);
    record["nodes"][0]["of_a_later_version"] = json!(1);
    connection.execute("UPDATE trial SET record = ?1", [record.to_string()]).unwrap();
    let read = Store::open_to_read(&path).unwrap().run(run).unwrap().trials;
    assert_eq!(read, [old_trial()]);
    assert_eq!(read[0].nodes[1].cpus[0].softirq, 31.5);
    assert_eq!(read[0].workers[1].bytes(), 12_500_000_000);
}

/// netrig with a store, and what it says on both outputs.
fn netrig(store: &Path, arguments: &[&str]) -> (String, String) {
    let mut netrig = Command::new(env!("CARGO_BIN_EXE_netrig"));
    let output = netrig.args(arguments).arg("--store").arg(store).output().expect("netrig can be started");
    let text = |bytes| String::from_utf8(bytes).expect("what netrig says is text");
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    (text(output.stdout), text(output.stderr))
}

#[test]
fn a_damaged_run_is_named_the_others_are_shown_and_it_is_dropped_when_that_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("runs.sqlite");
    for _ in 0..3 {
        write_trials(&path, 1).unwrap();
    }
    let history = |arguments: &[&str]| netrig(&path, &[&["history"], arguments].concat()).0;
    assert!(history(&["--repair"]).starts_with("Nothing is damaged: 3 runs"), "{}", history(&["--repair"]));
    let connection = Connection::open(&path).unwrap();
    connection.execute_batch("PRAGMA ignore_check_constraints = ON").unwrap();
    connection.execute("UPDATE run SET planned_trials = -1 WHERE id = 2", []).unwrap();
    drop(connection);

    let why = "run 2: its planned_trials is -1";
    let said = history(&[]);
    assert!(said.contains(&format!("Damaged and left out: {why}")), "{said}");
    assert_eq!(said.matches("layers").count(), 2, "{said}");
    let json: serde_json::Value = serde_json::from_str(&history(&["--json"])).unwrap();
    assert_eq!(json["damaged"], json!([{ "run": 2, "why": "its planned_trials is -1" }]));
    assert_eq!(json["runs"].as_array().unwrap().len(), 2);

    let said = history(&["--repair"]);
    assert!(said.contains(&format!("Damaged: {why}")) && said.contains("2 runs would be kept"), "{said}");
    assert!(history(&[]).contains(why), "nothing was dropped before it was asked for");
    let said = history(&["--repair", "--yes"]);
    assert!(said.contains(&format!("Dropped: {why}")) && said.contains("runs.sqlite.damaged-1"), "{said}");
    assert!(!history(&[]).contains("Damaged"));
    assert!(
        Store::open_to_read(&dir.path().join("runs.sqlite.damaged-1")).unwrap().check().unwrap().damaged.len() == 1
    );
}

/// Whether `whole` has all that `part` has; objects may have more.
fn has(whole: &serde_json::Value, part: &serde_json::Value) -> bool {
    use serde_json::Value::{Array, Object};
    match (whole, part) {
        (Object(whole), Object(part)) => {
            part.iter().all(|(key, value)| whole.get(key).is_some_and(|own| has(own, value)))
        }
        (Array(whole), Array(part)) => {
            whole.len() == part.len() && whole.iter().zip(part).all(|(own, value)| has(own, value))
        }
        _ => whole == part,
    }
}

/// A store of two trials, and what `report --format json` said of them, as netrig wrote both once.
#[test]
fn a_run_of_an_earlier_netrig_has_the_same_figures_and_verdicts() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("runs.sqlite");
    fs::write(&path, include_bytes!("../stores/small.sqlite")).unwrap();
    let report = |format: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_netrig"));
        let output = command.args(["report", "1", "--format", format, "--store"]).arg(&path).output().unwrap();
        assert!(output.status.success(), "{format}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let then: serde_json::Value = serde_json::from_str(include_str!("../stores/small.json")).unwrap();
    let now: serde_json::Value = serde_json::from_str(&report("json")).unwrap();
    for (key, value) in then.as_object().unwrap() {
        assert!(has(&now["data"][key], value), "{key} was {value:#}\nand is {:#}", now["data"][key]);
    }
    for format in ["terminal", "markdown", "html", "csv", "openmetrics"] {
        assert!(report(format).contains("hroughput"), "{format}");
    }
}
