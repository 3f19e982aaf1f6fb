//! `netrig compare` as CI uses it: exit status, stored runs and files, and the published JSON Schemas.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use assert_cmd::Command;
use netrig::schemas;
use rig_facts::record::{Environment, TrialRecord};
use rig_facts::store::{NewRun, RunEnd, Store};
use rig_suite::suite::Suite;
use serde_json::Value;

fn netrig(home: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_netrig"));
    command.timeout(Duration::from_secs(120)).current_dir(home);
    command.env("NETRIG_STORE", home.join("runs.sqlite")).env("NETRIG_RUN", home);
    command.args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Runs netrig and asserts its exit status; what it printed, and what it said.
#[track_caller]
fn ends(home: &Path, status: i32, arguments: &[&str]) -> (String, String) {
    let output = netrig(home, arguments);
    let (out, said) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {out}{said}");
    assert!(!said.contains("panicked"), "{said}");
    (out, said)
}

/// Stores a run of scenario B in which trial i moved `percent[i]` of what the recorded trial moved.
fn store(home: &Path, percent: &[u64]) {
    let suite = Suite::load("layers").unwrap();
    let mut store = Store::open(&home.join("runs.sqlite")).unwrap();
    let options = serde_json::json!({
        "quick": true, "only": ["B"], "cpus": ["0", "1"],
        "timing": { "phases": suite.timing.phases, "repeat": { "times": percent.len() } },
    });
    let new = NewRun {
        suite: suite.name,
        title: suite.title,
        suite_file: suite.file,
        suite_text: suite.text,
        options,
        environment: Environment { kernel: "6.18.5".into(), ..Environment::default() },
        planned_trials: percent.len() as u32,
        started_unix_ms: 1_700_000_000_000,
    };
    let run = store.begin_run(&new).unwrap();
    for (ordinal, percent) in (1..).zip(percent) {
        let mut trial: TrialRecord =
            serde_json::from_str(include_str!("../../../rig-facts/tests/records/trial-0.1.0.json")).unwrap();
        trial.ordinal = ordinal;
        trial.scenario = "B".to_owned();
        // Disturbed ones say nothing of what repetitions differ by.
        trial.flags.clear();
        for connection in trial.workers.iter_mut().flat_map(|worker| &mut worker.connections) {
            connection.bytes = connection.bytes / 100 * percent;
        }
        store.add_trial(run, &trial).unwrap();
    }
    let goals = serde_json::json!([{ "scenario": "B", "trials": percent.len(), "outcome": "fixed" }]);
    store.finish_run(run, &RunEnd::Complete, Some(&goals), 1_700_000_100_000).unwrap();
}

/// Run 1 as ever, 2 the same, 3 slower by a fifth, 4 scattered, 5 of two trials.
fn home() -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    for percent in [&[100; 4][..], &[100, 101, 99, 100], &[80, 81, 79, 80], &[100, 60, 140, 110], &[50, 50]] {
        store(home.path(), percent);
    }
    home
}

/// The noise of runs 1 to 5 together would hide everything: this comparison looks at no more than two runs.
fn apart(home: &Path, run: &str) -> String {
    let file = format!("run-{run}.json");
    ends(home, 0, &["report", run, "--format", "json", "--output", &file]);
    file
}

#[test]
fn the_exit_status_is_for_scripts() {
    let home = home();
    let home = home.path();
    let files: Vec<String> = ["1", "2", "3", "4", "5"].iter().map(|run| apart(home, run)).collect();
    // Without a store beside them, files are compared by their own trials.
    fs::rename(home.join("runs.sqlite"), home.join("elsewhere.sqlite")).unwrap();
    let compare = |status, old: usize, new: usize, more: &[&str]| {
        ends(home, status, &[&["compare", &files[old - 1], &files[new - 1]], more].concat()).0
    };
    assert!(compare(0, 1, 2, &[]).contains("are the same"));
    // Nor has one to be there that is named.
    assert!(compare(0, 1, 2, &["--store", "new.sqlite"]).contains("are the same"));
    assert!(!home.join("new.sqlite").exists());
    assert!(compare(1, 1, 3, &[]).contains("Worse"));
    assert!(compare(0, 3, 1, &[]).contains("Better"));
    assert!(compare(0, 1, 4, &[]).contains("undecided: the interval spans"));
    compare(5, 1, 4, &["--fail-on-undecided"]);
    compare(0, 1, 2, &["--fail-on-undecided"]);
    compare(1, 1, 3, &["--fail-on-undecided"]);
    // Half of the throughput on two trials is no proof.
    assert!(compare(0, 1, 5, &[]).contains("fewer than 3 trials"));
    // What is asked for decides.
    compare(0, 1, 3, &["--metrics", "cpu,retransmits"]);
    compare(0, 1, 3, &["--min-effect", "40%"]);
    compare(1, 1, 3, &["--min-effect", "5", "--level", "99", "--only", "B"]);
    compare(5, 1, 3, &["--level", "99.999%", "--metrics", "throughput", "--fail-on-undecided", "--min-effect", "19"]);
}

#[test]
fn runs_are_named_by_number_by_age_and_by_file() {
    let home = home();
    let home = home.path();
    let file = apart(home, "3");
    let title = |arguments: &[&str]| {
        let output = netrig(home, &[&["compare", "--metrics", "throughput"], arguments].concat());
        text(&output.stdout).lines().next().unwrap_or_default().to_owned()
    };
    assert_eq!(title(&[]), "Run 5 against run 4");
    assert_eq!(title(&["1"]), "Run 5 against run 1");
    assert_eq!(title(&["latest~3", "latest~0"]), "Run 5 against run 2");
    assert_eq!(title(&["1", &file]), "Run-3.json against run 1");
    let (out, _) = ends(home, 0, &["report", "latest~1"]);
    assert!(out.contains("Run 4 of suite layers"), "{out}");
}

#[test]
fn the_spread_of_stored_repetitions_is_taken_into_account() {
    let home = home();
    let (out, _) = ends(home.path(), 0, &["compare", "1", "3", "--metrics", "throughput", "--all"]);
    // Runs 2, 4 and 5 were made under the conditions of run 1, and 5 moved half.
    assert!(out.contains("differ by as much"), "{out}");
    assert!(out.contains("from 4 runs under these conditions"), "{out}");
}

#[test]
fn mistakes_are_refused_with_the_next_step() {
    let home = home();
    let home = home.path();
    let refused = |arguments: &[&str], expected: &[&str]| {
        let (out, said) = ends(home, 2, arguments);
        assert!(out.is_empty(), "{arguments:?} printed {out}");
        for words in expected {
            assert!(said.contains(words), "{arguments:?}: '{said}' lacks '{words}'");
        }
    };
    refused(&["compare", "1", "1"], &["run 1 and run 1 are the same run", "netrig history"]);
    refused(&["compare", "1", "9"], &["run 9 is not in the store", "netrig history"]);
    refused(&["compare", "latest~7", "1"], &["latest~7 is not in the store", "5 runs"]);
    refused(&["compare", "latest~x", "1"], &["`latest~x` names no run", "latest~1", "file"]);
    refused(&["compare", "no.json", "1"], &["`no.json` names no run", "netrig report --format json"]);
    refused(&["compare", "1", "2", "--only", "Z"], &["no scenario 'Z'", "choose from B"]);
    refused(&["compare", "1", "2", "--metrics", "speed"], &["unknown metric `speed`", "`throughput`"]);
    refused(&["compare", "1", "2", "--min-effect", "wide"], &["--min-effect", "wide"]);
    refused(&["compare", "1", "2", "--level", "100"], &["--level", "less than 100"]);
    for (content, expected) in [
        ("{", &["bad.json is not JSON", "netrig report --format json"][..]),
        ("{\"a\": 1}", &["bad.json is not a report of netrig"]),
        ("{\"format\": \"netrig-report\", \"version\": 99}", &["another netrig", "version 99"]),
        ("{\"format\": \"netrig-report\", \"version\": 2, \"data\": {}}", &["not a whole report"]),
    ] {
        fs::write(home.join("bad.json"), content).unwrap();
        refused(&["compare", "bad.json", "1"], expected);
    }
    ends(home, 0, &["compare", "1", "2", "--format", "json", "--output", "comparison.json"]);
    refused(&["compare", "comparison.json", "1"], &["holds a comparison, not a run"]);
    // Found before anything is built or measured.
    let run = |more: &[&str], expected: &[&str]| refused(&[&["run", "layers", "--only", "A"], more].concat(), expected);
    run(&["--against", "9"], &["run 9 is not in the store"]);
    run(&["--against", "1"], &["run 1 (B)", "this run (A)", "no scenario in common"]);
    run(&["--min-effect", "3%"], &["--min-effect", "--against RUN"]);
    run(&["--fail-on-undecided"], &["--fail-on-undecided", "--against RUN"]);
}

fn schema_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema").join(name)
}

/// `NETRIG_WRITE_SCHEMAS=1` writes them instead.
#[test]
fn the_published_schemas_are_those_of_the_types() {
    for (name, schema) in schemas() {
        let path = schema_file(name);
        let expected = serde_json::to_string_pretty(&schema).unwrap() + "\n";
        if std::env::var_os("NETRIG_WRITE_SCHEMAS").is_some() {
            fs::write(&path, expected).unwrap();
            continue;
        }
        let hint = "run this test with NETRIG_WRITE_SCHEMAS=1";
        let published = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}: {hint}", path.display()));
        assert!(published == expected, "docs/schema/{name} is not what the types say: {hint} and review the change");
    }
}

#[test]
fn what_is_written_is_what_the_schemas_say() {
    let home = home();
    let home = home.path();
    let validator = |name: &str| {
        let schema: Value = serde_json::from_str(&fs::read_to_string(schema_file(name)).unwrap()).unwrap();
        jsonschema::validator_for(&schema).unwrap()
    };
    let check = |name: &str, arguments: &[&str]| -> Value {
        let output = netrig(home, arguments);
        let value: Value = serde_json::from_slice(&output.stdout).unwrap();
        let faults: Vec<String> =
            validator(name).iter_errors(&value).map(|fault| format!("{}: {fault}", fault.instance_path())).collect();
        assert!(faults.is_empty(), "{arguments:?}: {faults:#?}");
        value
    };
    for run in ["1", "4", "5"] {
        check("run.json", &["report", run, "--format", "json"]);
        check("comparison.json", &["compare", "1", if run == "1" { "3" } else { run }, "--format", "json"]);
    }
    let history = check("history.json", &["history", "--json"]);
    assert!(history["runs"].as_array().is_some_and(|runs| runs.len() >= 5), "{history}");
    // The schemas do refuse what is something else.
    let mut run = check("run.json", &["report", "1", "--format", "json"]);
    assert!(!validator("comparison.json").is_valid(&run));
    run["data"]["scenarios"][0]["figures"][0]["mean"] = Value::from("fast");
    assert!(!validator("run.json").is_valid(&run));
}

#[test]
fn every_format_writes_a_comparison() {
    let home = home();
    for format in ["terminal", "markdown", "html", "json", "csv", "openmetrics"] {
        let (out, _) = ends(home.path(), 0, &["compare", "1", "2", "--format", format]);
        assert!(out.len() > 100, "{format}: {out}");
    }
    let (out, _) = ends(home.path(), 0, &["report", "1", "--format", "openmetrics"]);
    openmetrics_parser::openmetrics::parse_openmetrics(&out).unwrap();
}
