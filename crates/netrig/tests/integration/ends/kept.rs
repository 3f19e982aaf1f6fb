//! Tests between two ends as runs: stored, reported again, compared, made in turn.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use rusqlite::Connection;
use serde_json::Value;

use super::lab::{SHORT, Server};

fn netrig(store: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_netrig")).args(arguments).env("NETRIG_STORE", store).output().unwrap()
}

#[track_caller]
fn text(output: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{:?}: {out}{err}", output.status);
    out.into_owned()
}

#[track_caller]
fn data(output: &Output) -> Value {
    serde_json::from_str::<Value>(&text(output)).unwrap()["data"].clone()
}

/// A test of this server, kept in this store.
#[track_caller]
fn kept(server: &Server, store: &Path, arguments: &[&str]) -> Output {
    let output = server.client(arguments).args(SHORT).env("NETRIG_STORE", store).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

const STREAM: [&str; 6] = ["stream", "-c", "127.0.0.1", "--trials", "3", "--quiet"];

fn with<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&STREAM, more].concat()
}

#[test]
fn a_test_is_a_run_of_the_store() {
    let (dir, server) = (tempfile::tempdir().unwrap(), Server::new());
    let store = &dir.path().join("runs");
    let first = kept(&server, store, &with(&["--rate", "80mbit", "--label", "before", "--format", "json"]));
    let first: Value = serde_json::from_slice(&first.stdout).unwrap();
    assert_eq!((&first["data"]["run"], &first["data"]["planned"]), (&"1".into(), &3.into()));
    kept(&server, store, &["rr", "-c", "127.0.0.1", "-q", "--request", "10"]);

    let history = data_of_history(&netrig(store, &["history", "--json"]));
    let said = |run: usize, key: &str| history[run][key].clone();
    assert_eq!((said(0, "suite"), said(1, "suite")), ("stream".into(), "rr".into()));
    assert_eq!((said(0, "label"), said(0, "state")), ("before".into(), "complete".into()));
    assert_eq!(said(0, "trials"), 3);

    // What was said then is said again.
    let again = netrig(store, &["report", "before", "--format", "json"]);
    let again: Value = serde_json::from_str(&text(&again)).unwrap();
    assert_eq!(again, first);
    let shown = text(&netrig(store, &["report", "before"]));
    assert!(shown.contains("tcp-stream to 127.0.0.1") && shown.contains("Throughput"), "{shown}");
    assert!(text(&netrig(store, &["series", "before"])).contains("tcp-stream,1,"));
    // Another load is nothing to compare with.
    let differ = netrig(store, &["compare", "1", "2"]);
    assert_eq!(differ.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&differ.stderr).contains("compare runs of one suite"), "{differ:?}");
}

fn data_of_history(output: &Output) -> Vec<Value> {
    serde_json::from_str::<Value>(&text(output)).unwrap()["runs"].as_array().unwrap().clone()
}

#[track_caller]
fn throughput(comparison: &Value) -> &Value {
    let figures = comparison["figures"].as_array().unwrap();
    figures.iter().find(|figure| figure["metric"] == "throughput").unwrap_or_else(|| panic!("{figures:?}"))
}

#[test]
fn tests_are_compared_from_files_and_from_the_store() {
    let (dir, server) = (tempfile::tempdir().unwrap(), Server::new());
    let store = &dir.path().join("runs");
    let files = ["old.json", "new.json"].map(|name| dir.path().join(name));
    let [old, new] = files.each_ref().map(|path| path.to_str().unwrap());
    kept(&server, store, &with(&["--rate", "160mbit", "--format", "json", "--output", old]));
    kept(&server, store, &with(&["--rate", "16mbit", "--format", "json", "--output", new]));

    let elsewhere = &dir.path().join("none");
    let compared = netrig(elsewhere, &["compare", old, new, "--format", "json"]);
    assert!(matches!(compared.status.code(), Some(0 | 1)), "{}", String::from_utf8_lossy(&compared.stderr));
    let of_files = serde_json::from_slice::<Value>(&compared.stdout).unwrap()["data"].clone();
    let of_store = netrig(store, &["compare", "--format", "json"]);
    let of_store = serde_json::from_slice::<Value>(&of_store.stdout).unwrap()["data"].clone();
    for comparison in [&of_files, &of_store] {
        let figure = throughput(comparison);
        assert!(figure["old"]["mean"].as_f64() > figure["new"]["mean"].as_f64(), "{figure}");
        assert_eq!(figure["gates"], true);
        // Another load is told.
        let differences = comparison["differences"].as_array().unwrap();
        assert!(differences.iter().any(|one| one["what"] == "Load of scenario tcp-stream"), "{differences:?}");
    }
    assert_eq!(of_files["figures"], of_store["figures"]);
    // A file as versions before wrote it has neither number nor clocks in its trials.
    let mut report: Value = serde_json::from_str(&fs::read_to_string(old).unwrap()).unwrap();
    for key in ["run", "planned", "started_unix_ms"] {
        report["data"].as_object_mut().unwrap().remove(key);
    }
    for trial in report["data"]["trials"].as_array_mut().unwrap() {
        trial.as_object_mut().unwrap().remove("clocks");
        trial.as_object_mut().unwrap().remove("block");
    }
    fs::write(old, report.to_string()).unwrap();
    let compared = netrig(elsewhere, &["compare", old, new, "--format", "json"]);
    let compared = serde_json::from_slice::<Value>(&compared.stdout).unwrap()["data"].clone();
    assert_eq!(throughput(&compared), throughput(&of_files));
}

#[test]
fn a_test_is_held_against_an_earlier_one() {
    let (dir, server) = (tempfile::tempdir().unwrap(), Server::new());
    let store = &dir.path().join("runs");
    kept(&server, store, &with(&["--rate", "160mbit", "--label", "before"]));
    let options = ["--rate", "16mbit", "--against", "before", "--metrics", "throughput", "--format", "json"];
    let output = server.client(&with(&options)).args(SHORT).env("NETRIG_STORE", store).output().unwrap();
    assert!(matches!(output.status.code(), Some(0 | 1)), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let verdict = &throughput(&report["data"]["comparison"])["verdict"];
    assert_eq!(output.status.code() == Some(1), verdict == "worse", "{verdict}");
    refused_with(&server.client(&with(&["--against", "nothing"])).output().unwrap(), &["nothing"]);
    refused_with(&server.client(&with(&["--metrics", "cpu"])).output().unwrap(), &["--against RUN"]);
}

/// A user who has no store and did not ask for one can make tests all the same.
#[test]
fn a_test_without_a_store_is_made_and_says_so() {
    let (dir, server) = (tempfile::tempdir().unwrap(), Server::new());
    let output = kept(&server, dir.path(), &with(&["--rate", "16mbit"]));
    assert!(String::from_utf8_lossy(&output.stderr).contains("This test is not stored"), "{output:?}");
    let asked = server.client(&with(&["--label", "x"])).args(SHORT).env("NETRIG_STORE", dir.path()).output().unwrap();
    assert_eq!(asked.status.code(), Some(4), "{asked:?}");
}

/// What a store refuses: trials, and the end of a run.
const REFUSALS: [&str; 2] = [
    "CREATE TRIGGER of_trials BEFORE INSERT ON trial BEGIN SELECT room_for_trials(); END",
    "CREATE TRIGGER of_ends BEFORE UPDATE OF ending ON run BEGIN SELECT room_for_ends(); END",
];

#[test]
fn what_is_not_stored_or_not_compared_is_told_with_the_reason() {
    let (dir, server) = (tempfile::tempdir().unwrap(), Server::new());
    let [trials, ends] = REFUSALS;
    for (refused, made, why) in [
        (&[trials][..], 1, &["no such function: room_for_trials"][..]),
        (&[ends], 3, &["no such function: room_for_ends"]),
        (&[trials, ends], 1, &["no such function: room_for_trials", "; then: ", "no such function: room_for_ends"]),
    ] {
        let store = &dir.path().join(format!("runs{}", refused.concat().len()));
        kept(&server, store, &["rr", "-c", "127.0.0.1", "-q"]);
        let connection = Connection::open(store).unwrap();
        refused.iter().for_each(|refused| connection.execute_batch(refused).unwrap());
        drop(connection);
        let arguments = with(&["--rate", "16mbit", "--format", "json"]);
        let output = server.client(&arguments).args(SHORT).env("NETRIG_STORE", store).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(4), "{said}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let (told, error) = (report["data"]["trials"].as_array().unwrap(), report["data"]["error"].to_string());
        assert_eq!(told.len(), made, "{refused:?}: {said}");
        assert!(why.iter().all(|why| said.contains(why) && error.contains(why)), "{why:?}: {said}{error}");
        let is_whole = report["blocks"].to_string().contains("All was measured, and then this failed: ");
        assert_eq!((is_whole, said.contains("after 1 of 3 trials")), (made == 3, made == 1), "{said}");
    }

    let store = &dir.path().join("runs");
    kept(&server, store, &with(&["--rate", "16mbit"]));
    // Whether there are transactions is known from the trials.
    for format in ["json", "terminal"] {
        let options = ["--rate", "16mbit", "--against", "1", "--metrics", "transactions", "--format", format];
        let output = server.client(&with(&options)).args(SHORT).env("NETRIG_STORE", store).output().unwrap();
        let [out, said] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
        assert_eq!(output.status.code(), Some(4), "{said}");
        assert!(said.lines().any(|line| line.starts_with("netrig: ") && line.contains("transactions")), "{said}");
        match serde_json::from_str::<Value>(&out) {
            Ok(report) => {
                let error = report["data"]["error"].as_str().unwrap();
                assert!(error.starts_with("not compared with run 1: "), "{error}");
                assert_eq!(report["data"]["trials"].as_array().unwrap().len(), 3);
            }
            Err(_) => assert!(out.contains("Not compared with run 1: ") && out.contains("Throughput"), "{out}"),
        }
    }
}

#[test]
fn two_ways_to_one_peer_take_turns() {
    let (dir, server) = (tempfile::tempdir().unwrap(), Server::new());
    let store = &dir.path().join("runs");
    let port = server.port.to_string();
    let ends = ["--old-client", "127.0.0.1", "--new-client", "localhost", "--new-under", "env A=b"];
    let options = ["--", "-4", "--port", &port, "--rate", "16mbit", "--time", "200ms", "--warm-up", "50ms"];
    let ours = ["--trials", "3", "--quiet", "--label", "way"];
    let made = netrig(store, &[&["ab", "stream"], &ends[..], &ours[..], &options[..]].concat());
    assert!(matches!(made.status.code(), Some(0 | 1)), "{}", String::from_utf8_lossy(&made.stderr));
    let said = String::from_utf8_lossy(&made.stdout);
    let ratio = said.split("Throughput, receiver: ").nth(1).unwrap_or_else(|| panic!("{said}"));
    assert!(ratio.lines().next().unwrap().ends_with(')'), "{said}");
    let compared = netrig(store, &["compare", "way-old", "way-new", "--format", "json"]);
    let compared = serde_json::from_slice::<Value>(&compared.stdout).unwrap();
    // Every form of a comparison begins with the ratios, also when it is asked for later.
    let lead = &compared["lead"];
    assert!(lead[0]["text"].as_str().unwrap().starts_with("New as a ratio of old"), "{lead}");
    let items: Vec<&str> = lead[1]["items"].as_array().unwrap().iter().map(|item| item.as_str().unwrap()).collect();
    assert!(!items.is_empty() && items.iter().all(|item| said.contains(&format!("- {item}\n"))), "{items:?} {said}");
    let comparison = compared["data"].clone();
    assert_eq!(comparison["blocks"], 3);
    let differences = comparison["differences"].as_array().unwrap();
    let server_of = |one: &Value| one["what"] == "Server" && one["new"] == "localhost (127.0.0.1)";
    assert!(differences.iter().any(server_of), "{differences:?}");
    let stored = data(&netrig(store, &["report", "way-new", "--format", "json"]));
    assert_eq!((&stored["turns"]["side"], &stored["trials"][2]["block"]), (&"new".into(), &3.into()));

    let refused = |arguments: &[&str], words: &[&str]| {
        let output = netrig(store, &[&["ab"], arguments].concat());

        refused_with(&output, words);
    };
    refused(&["stream"], &["--old-client HOST"]);
    refused(&["rr", "--old-client", "h", "--only", "A"], &["--only", "suites"]);
    refused(&["layers", "--new-client", "h"], &["--new-client", "netrig ab stream"]);
    refused(&["udp", "--old-client", "h", "--", "--trials=3"], &["--trials=3", "before `--`"]);
}

#[track_caller]
fn refused_with(output: &Output, words: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(words.iter().all(|word| said.contains(word)), "{said}");
}
