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
