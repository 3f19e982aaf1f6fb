//! How tests end when the client, the server or a worker ends, is stopped or is killed.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::lab::{SHORT, Server, TIMEOUT, ask, fails_with, report};

#[test]
fn a_client_that_vanishes_takes_its_worker_along() {
    let server = Server::new();
    let (link, _) = server.opened(ask());
    server.has_workers(1);
    drop(link);
    server.has_workers(0);
    // With a test running.
    let mut client = server.client(&["stream", "-c", "127.0.0.1", "--rate", "8mbit", "-t", "100s"]).spawn().unwrap();
    let mut stderr = BufReader::new(client.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(stderr.any(|line| line.contains("of 100.0 s")), "no interim figures");
    server.has_workers(1);
    client.kill().unwrap();
    client.wait().unwrap();
    server.has_workers(0);
    report(&server, &["stream", "-c", "127.0.0.1", "--rate", "8mbit"]);
}

#[test]
fn a_worker_that_is_killed_is_told_of() {
    let server = Server::new();
    let client = server.client(&["stream", "-c", "127.0.0.1", "--rate", "8mbit", "-t", "100s"]).spawn().unwrap();
    server.has_workers(1);
    let worker = Pid::from_raw(server.workers()[0] as i32).unwrap();
    kill_process(worker, Signal::KILL).unwrap();
    fails_with(&client.wait_with_output().unwrap(), &["the server's end failed", "signal: 9"]);
    report(&server, &["stream", "-c", "127.0.0.1", "--rate", "8mbit"]);
}

#[test]
fn a_server_that_is_killed_is_told_of_and_can_start_again() {
    let mut server = Server::new();
    let client = server.client(&["stream", "-c", "127.0.0.1", "--rate", "8mbit", "-t", "100s"]).spawn().unwrap();
    server.has_workers(1);
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let output = client.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("closed the control connection") || said.contains("end failed"), "{said}");
    let port = server.port.to_string();
    let again = Server::on(&port, &[]);
    assert_eq!(again.port, server.port);
    report(&again, &["stream", "-c", "127.0.0.1", "--rate", "8mbit"]);
}

#[test]
fn a_server_that_is_told_to_stop_finishes_what_runs() {
    let mut server = Server::new();
    let idle = server.greeted();
    let client = server.client(&["stream", "-c", "127.0.0.1", "--rate", "8mbit", "-t", "3s", "-q"]).spawn().unwrap();
    server.has_workers(1);
    kill_process(server.pid(), Signal::TERM).unwrap();
    server.says("stopping");
    idle.expect_end("shutting down");
    let port = server.port;
    let begin = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_ok() {
        assert!(begin.elapsed() < TIMEOUT, "it still takes clients");
    }
    let output = client.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(server.ends(), 0);
}

#[test]
fn a_client_that_is_stopped_reports_what_was_done() {
    let server = Server::new();
    let mut command = server.client(&["stream", "-c", "127.0.0.1", "--rate", "8mbit", "--trials", "1000"]);
    let mut client = command.args(SHORT).spawn().unwrap();
    let mut lines = BufReader::new(client.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.starts_with("#3 ")), "no third trial");
    kill_process(Pid::from_child(&client), Signal::INT).unwrap();
    let output = client.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(report.contains("of 1000 trials were made") && report.contains("Throughput"), "{report}");
    drop(lines);
    server.has_workers(0);
}

#[test]
fn a_trial_that_is_stopped_is_reported_as_far_as_it_came() {
    let server = Server::new();
    let mut command = server.client(&["stream", "-c", "127.0.0.1", "--rate", "8mbit", "-t", "100s", "--warm-up", "0s"]);
    let mut client = command.args(["--interval", "100ms", "--format", "json"]).spawn().unwrap();
    let mut lines = BufReader::new(client.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains(" 0.3 of 100.0 s")), "no third interval");
    kill_process(Pid::from_child(&client), Signal::INT).unwrap();
    let output = client.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["data"]["trials"].as_array().unwrap().is_empty());
    let partial = &report["data"]["partial"];
    let seconds = partial["seconds"].as_f64().unwrap();
    assert!((0.29..100.0).contains(&seconds), "{partial}");
    for end in ["client", "server"] {
        let figures = partial["figures"].as_array().unwrap();
        let found = figures.iter().find(|figure| figure["end"] == end && figure["metric"] == "throughput").unwrap();
        assert!(found["value"].as_f64().unwrap() > 0.0, "{partial}");
    }
    let words = report.to_string();
    assert!(words.contains("was stopped"), "{words}");
}

#[test]
fn a_trial_that_is_stopped_before_its_window_says_that_nothing_was_measured() {
    let mut server = Server::new();
    let client = server.client(&["stream", "-c", "127.0.0.1", "--rate", "8mbit", "--warm-up", "100s"]).spawn().unwrap();
    server.says("tcp-stream for");
    kill_process(Pid::from_child(&client), Signal::INT).unwrap();
    let output = client.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.contains("nothing was measured") && output.stdout.is_empty(), "{said}");
}

#[test]
fn a_client_that_is_done_is_not_refused() {
    let mut server = Server::new();
    let client = server.client(&["stream", "-c", "127.0.0.1", "--rate", "8mbit", "-t", "2s", "-q"]).spawn().unwrap();
    server.has_workers(1);
    kill_process(server.pid(), Signal::TERM).unwrap();
    server.says("done");
    assert!(client.wait_with_output().unwrap().status.success());
    let rest: Vec<String> = server.log.iter().collect();
    assert!(!rest.iter().any(|line| line.contains("refused")), "{rest:?}");
}

/// What a test that fails writes where JSON is asked for.
#[track_caller]
fn told(server: &str, port: u16, options: &[&str], why: &str) {
    let port = port.to_string();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_netrig"));
    command.args(["stream", "-c", server, "--port", &port, "-t", "1s", "--format", "json", "--no-store", "-q"]);
    let output = command.args(options).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    // A key that cannot be read is a mistake of the command line's.
    let status = if why.starts_with("--key-file") { 2 } else { 4 };
    assert_eq!(output.status.code(), Some(status), "{said}");
    assert!(said.contains(why), "{why}: {said}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let data = &report["data"];
    assert_eq!((&data["kind"], &data["trials"]), (&"test".into(), &Value::Array(Vec::new())), "{data:#}");
    let error = data["error"].as_str().unwrap_or_default();
    assert!(error.contains(why), "{why}: {error}");
}

#[test]
fn a_failed_test_says_why_in_json() {
    let dir = tempfile::tempdir().unwrap();
    let key = |name: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, format!("{name} {}", "x".repeat(40))).unwrap();
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&path, private).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (own, other) = (key("own"), key("other"));
    // Nobody listens there any more.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    told("127.0.0.1", free, &[], "nothing listens there");
    told("no.such.name.invalid", free, &[], "cannot find the address");
    told("127.0.0.1", free, &["--key-file", "/nonexistent"], "--key-file /nonexistent");
    let locked = Server::with(&["--listen", "127.0.0.1", "--key-file", &own]);
    told("127.0.0.1", locked.port, &["--key-file", &other], "does not have this server's key");
    told("127.0.0.1", locked.port, &[], "asks for its key");
    let mut small = Server::with(&["--max-tests", "1", "--max-threads", "2"]);
    told("127.0.0.1", small.port, &["--threads", "3"], "--max-threads");
    let (link, _) = small.opened(ask());
    told("127.0.0.1", small.port, &[], "the server is busy");
    drop(link);
    small.has_workers(0);
    let mut long =
        small.client(&["stream", "-c", "127.0.0.1", "--rate", "8mbit", "-t", "100s", "-q", "--format", "json"]);
    let long = long.spawn().unwrap();
    small.has_workers(1);
    small.child.kill().unwrap();
    small.child.wait().unwrap();
    let output = long.wait_with_output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let error = report["data"]["error"].as_str().unwrap_or_default();
    assert!(error.contains("closed the control connection") || error.contains("end failed"), "{report:#}");
}
