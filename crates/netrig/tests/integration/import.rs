//! Other tools' tests as runs: those made with `--store-run`, and those of their outputs.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;

use rusqlite::Connection;
use serde_json::Value;

use crate::iperf3::peers::{Peer, client, serve};
use crate::netperf;
use crate::world::{NETRIG, own};

fn netrig(home: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(NETRIG);
    command.args(arguments).current_dir(home).env("NETRIG_STORE", home.join("runs")).output().unwrap()
}

#[track_caller]
fn text(output: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{:?}: {out}{err}", output.status);
    out.into_owned()
}

#[track_caller]
fn refused(output: &Output, status: i32, why: &str) {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(status), "{said}");
    assert!(said.contains(why), "{why}: {said}");
}

#[track_caller]
fn data(home: &Path, arguments: &[&str]) -> Value {
    let all = [arguments, &["--format", "json"]].concat();
    serde_json::from_str::<Value>(&text(&netrig(home, &all))).unwrap()["data"].clone()
}

#[track_caller]
fn figure<'a>(run: &'a Value, side: &str, metric: &str) -> &'a Value {
    let figures = run["scenarios"][0]["figures"].as_array().unwrap();
    let found = figures.iter().find(|figure| figure["side"] == side && figure["metric"] == metric);
    found.unwrap_or_else(|| panic!("no {side} {metric}: {figures:#?}"))
}

/// A test of 1 s at 50 Mbit/s, by a client with these options besides.
#[track_caller]
fn iperf3(home: &Path, port: u16, options: &str) -> String {
    let mut command = Peer::Netrig.command();
    command.env("NETRIG_STORE", home.join("runs"));
    let words = format!("-c 127.0.0.1 -p {port} -t 1 -b 50M {options}");
    text(&command.args(words.split_whitespace()).current_dir(home).output().unwrap())
}

#[test]
fn iperf3s_tests_are_compared_with_those_that_are_stored() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path();
    let server = serve(&Peer::Netrig, "", home);
    for n in 0..3 {
        fs::write(home.join(format!("{n}.json")), iperf3(home, server.port, "-J")).unwrap();
    }
    let said = text(&netrig(home, &["import", "0.json", "1.json", "2.json", "--label", "old"]));
    assert!(said.contains("Imported tcp-stream by iperf3 to 127.0.0.1, 3 trials, as run 1"), "{said}");
    for _ in 0..2 {
        let said = iperf3(home, server.port, "--store-run=new");
        assert!(said.contains("iperf Done."), "text as ever: {said}");
    }

    let old = data(home, &["report", "old"]);
    assert_eq!(old["run"]["suite"], "iperf3");
    assert_eq!(old["run"]["tool"]["files"], serde_json::json!(["0.json", "1.json", "2.json"]));
    assert_eq!(old["environment"]["kernel"], "", "nobody knows the machine");
    let arrived = figure(&old, "receiver", "throughput");
    assert!((45e6..55e6).contains(&arrived["mean"].as_f64().unwrap()), "{arrived}");
    assert_eq!(arrived["values"].as_array().unwrap().len(), 3);
    assert!(old["scenarios"][0]["figures"].as_array().unwrap().iter().all(|figure| figure["metric"] != "cpu"));
    let new = data(home, &["report", "new"]);
    assert_ne!(new["environment"]["kernel"], "");
    assert_eq!(new["run"]["tool"]["files"], serde_json::json!([]));

    let comparison = data(home, &["compare", "old", "new", "--metrics", "throughput"]);
    assert_eq!(comparison["figures"].as_array().unwrap().len(), 2, "{comparison:#}");
    let told = comparison["differences"].as_array().unwrap();
    let what: Vec<&str> = told.iter().filter_map(|one| one["what"].as_str()).collect();
    assert!(what.contains(&"Told by") && what.contains(&"Machine and settings"), "{what:?}");
    assert!(!what.iter().any(|what| what.starts_with("Asked for")), "the same was asked for: {what:?}");

    let shown = text(&netrig(home, &["report", "old"]));
    assert!(shown.contains("imported") && shown.contains("Process CPU") && shown.contains("0.json"), "{shown}");
    for format in ["html", "markdown", "csv", "openmetrics"] {
        assert!(!text(&netrig(home, &["report", "new", "--format", format])).is_empty(), "{format}");
    }
    let history: Value = serde_json::from_str(&text(&netrig(home, &["history", "--json"]))).unwrap();
    let of = |run: usize, key: &str| history["runs"][run][key].clone();
    assert_eq!((of(0, "suite"), of(0, "trials"), of(0, "label")), ("iperf3".into(), 3.into(), "old".into()));
    assert_eq!((of(2, "suite"), of(2, "trials"), of(2, "label")), ("iperf3".into(), 1.into(), "new".into()));
    // A file that the report wrote is a run, too.
    fs::write(home.join("old.report"), text(&netrig(home, &["report", "old", "--format", "json"]))).unwrap();
    data(home, &["compare", "old.report", "new"]);
}

#[test]
fn iterations_of_netperf_are_trials() {
    own(|| {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path();
        let _server = netperf::server(netperf::netrig("netserver"), "");
        let mut command = netperf::netrig("netperf");
        command.env("NETRIG_STORE", home.join("runs"));
        netperf::run(command, "-H 127.0.0.1 -t TCP_RR -l 1 -c --store-run=own -i 3,3 -I 95,50 -- -r 100,200")
            .succeeded();
        let keys =
            netperf::run(netperf::netrig("netperf"), "-H 127.0.0.1 -t TCP_RR -l 1 -- -r 100,200 -k all").succeeded();
        fs::write(home.join("keys"), keys.out).unwrap();
        text(&netrig(home, &["import", "keys", "--label", "keys"]));

        let own = data(home, &["report", "own"]);
        assert_eq!(own["scenarios"][0]["id"], "tcp-rr");
        assert_eq!(figure(&own, "local", "transactions")["values"].as_array().unwrap().len(), 3);
        assert_eq!(figure(&own, "local", "cpu")["values"].as_array().unwrap().len(), 3);
        let figures = own["scenarios"][0]["figures"].as_array().unwrap();
        let of_server = figures.iter().any(|figure| figure["side"] == "remote" && figure["metric"] == "cpu");
        assert!(!of_server, "without -C nothing is known of the server's CPU time: {figures:#?}");
        let imported = data(home, &["report", "keys"]);
        assert!(figure(&imported, "local", "latency_p99")["mean"].as_f64().unwrap() > 0.0);
        let comparison = data(home, &["compare", "own", "keys", "--metrics", "transactions"]);
        assert_eq!(comparison["figures"].as_array().unwrap().len(), 1);
        let differences = comparison["differences"].to_string();
        assert!(comparison["differences"].is_array() && !differences.contains("Asked for"), "{differences}");
    });
}

/// Passes a control connection on, until the server has said so much.
fn cut_after(messages: usize) -> u16 {
    const MESSAGE: usize = 656;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, netperf::PORT)).unwrap();
        let (mut from_client, mut to_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        thread::spawn(move || io::copy(&mut from_client, &mut to_server));
        let mut message = [0; MESSAGE];
        for _ in 0..messages {
            server.read_exact(&mut message).unwrap();
            client.write_all(&message).unwrap();
        }
        [client, server].iter().for_each(|end| drop(end.shutdown(Shutdown::Both)));
    });
    port
}

#[test]
fn what_netperf_has_measured_is_stored_where_something_fails_after_it() {
    own(|| {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path();
        let _server = netperf::server(netperf::netrig("netserver"), "");
        let netperf = |options: &str, stdout: Stdio| {
            let mut command = netperf::netrig("netperf");
            command.env("NETRIG_STORE", home.join("runs")).stdout(stdout);
            command.args(options.split_whitespace()).output().unwrap()
        };
        let trials = |run: &Value| figure(run, "local", "transactions")["values"].as_array().unwrap().len();

        // The server answers each iteration twice: where its data goes to, and its results.
        let port = cut_after(2);
        let cut = netperf(
            &format!("-H 127.0.0.1 -p {port} -t TCP_RR -l 1 -i 3,3 -I 95,50 --store-run=cut -- -r 100,200"),
            Stdio::piped(),
        );
        assert_eq!(cut.status.code(), Some(255), "{cut:?}");
        let run = data(home, &["report", "cut"]);
        assert_eq!(trials(&run), 1, "{run}");
        let history: Value = serde_json::from_str(&text(&netrig(home, &["history", "--json"]))).unwrap();
        let state = history["runs"][0]["state"].as_str().unwrap();
        assert!(history["runs"][0]["trials"] == 1 && state.starts_with("failed: "), "{history}");

        let full = File::options().write(true).open("/dev/full").unwrap();
        let untold = netperf("-P 0 -H 127.0.0.1 -t TCP_RR -l 1 --store-run=untold -- -r 100,200", full.into());
        assert!(!untold.status.success(), "{untold:?}");
        let run = data(home, &["report", "untold"]);
        assert_eq!(trials(&run), 1, "{run}");
    });
}

#[test]
fn what_cannot_be_stored_is_refused_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path();
    fs::write(home.join("notes"), "first\nsecond\n").unwrap();
    fs::write(home.join("failed.json"), "{\"start\": {}, \"end\": {}, \"error\": \"no route to host\"}").unwrap();
    fs::write(home.join("bytes"), [b'{', 0xff]).unwrap();
    let import = |files: &[&str]| netrig(home, &[&["import"], files].concat());
    refused(&import(&["notes"]), 2, "notes: line 1: not an output that is known: expected iperf3's JSON");
    refused(&import(&["absent"]), 2, "read absent");
    refused(&import(&["bytes"]), 2, "not text: byte 2 is not UTF-8");
    refused(&import(&["failed.json"]), 2, "no route to host");
    refused(&import(&["--tool", "wrk", "failed.json"]), 2, "failed.json: line 1: expected `Running ... test @ URL`");
    refused(&import(&["--tool", "wrk", "--test", "TCP_RR", "notes"]), 2, "--test is of netperf's outputs");
    assert!(!home.join("runs").exists(), "nothing was stored");

    refused(
        &netrig(home, &["iperf3", "-s", "--store-run"]),
        1,
        "--store-run is not honoured: a server's tests are its clients'",
    );
    refused(&netrig(home, &["netserver", "--store-run"]), 255, "--store-run: a server's tests are its clients'");
    // Before anything is sent.
    refused(&netrig(home, &["iperf3", "-c", "192.0.2.1", "--store-run=9"]), 1, "`9` is not a label");
    refused(&netrig(home, &["netperf", "-H", "192.0.2.1", "--store-run=9"]), 255, "`9` is not a label");
}

/// Its JSON can be imported when there is room again.
#[test]
fn a_test_of_iperf3_that_is_not_stored_says_so_in_its_json() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path();
    let server = serve(&Peer::Netrig, "", home);
    iperf3(home, server.port, "--store-run");
    let store = Connection::open(home.join("runs")).unwrap();
    let refusal = "CREATE TRIGGER of_trials BEFORE INSERT ON trial BEGIN SELECT room_for_trials(); END";
    store.execute_batch(refusal).unwrap();
    let port = server.port.to_string();
    let output = netrig(home, &["iperf3", "-c", "127.0.0.1", "-p", &port, "-t", "1", "-b", "1M", "-J", "--store-run"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let error = report["error"].as_str().unwrap();
    assert!(error.contains("the test was made, and is not stored: ") && error.contains("room_for_trials"), "{error}");
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(report["end"]["sum_received"]["bytes"].as_u64() > Some(0), "{report}");
    store.execute_batch("DROP TRIGGER of_trials").unwrap();
    fs::write(home.join("unstored.json"), &output.stdout).unwrap();
    let said = text(&netrig(home, &["import", "unstored.json"]));
    assert!(said.contains("Imported tcp-stream by iperf3"), "{said}");
}

#[test]
fn a_store_that_cannot_be_written_ends_a_test_before_it_begins() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path();
    fs::create_dir(home.join("runs")).unwrap();
    refused(&netrig(home, &["iperf3", "-c", "127.0.0.1", "-p", "1", "--store-run"]), 1, "--store-run");
    let server = serve(&Peer::Netrig, "-1", home);
    let stopped = client(&Peer::Netrig, server.port, "-t 1 -b 1M", home).end();
    assert_eq!(stopped.status, Some(0), "the server was free: {stopped:#?}");
}
