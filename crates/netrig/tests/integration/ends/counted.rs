//! Figures of both ends.

use std::fs;
use std::net::TcpListener;

use rig_datapath::cputime::CpuTime;
use rig_skip::{Lack, skip};

use super::lab::{Server, fails_with, figure, moved, report, report_over, until};

#[test]
fn a_stream_is_counted_at_both_ends() {
    let server = Server::new();
    let data = report(&server, &["stream", "--client", "127.0.0.1", "--rate", "80mbit", "--trials", "2"]);
    for end in ["client", "server"] {
        assert!(figure(&data, end, "throughput") >= 0.0);
        // A slow stream may run between the timer ticks that CPU time is counted by.
        assert!((0.0..=100.0).contains(&figure(&data, end, "cpu")));
    }
    let (sent, arrived) = (moved(&data, 0), moved(&data, 1));
    assert!(arrived > 0 && arrived <= sent, "{arrived} of {sent} bytes arrived");
    assert_eq!(data["trials"].as_array().unwrap().len(), 2);
    let workers = &data["trials"][0]["workers"];
    assert_eq!((&workers[0]["name"], &workers[0]["direction"]), (&"client".into(), &"send".into()));
    assert_eq!((&workers[1]["name"], &workers[1]["direction"]), (&"server".into(), &"receive".into()));
    assert_eq!(workers[1]["samples"].as_array().unwrap().len(), 2);
    // Both ends have one clock here: what was found out about it over the network can be checked.
    for clocks in data["clocks"].as_array().unwrap() {
        let (offset, bound) = (clocks["offset_ns"].as_i64().unwrap(), clocks["bound_ns"].as_u64().unwrap());
        assert!(offset.unsigned_abs() <= bound, "{clocks}");
    }
}

/// Hundreds of timer ticks, at each of which something runs: the stream, or what keeps it from running.
#[test]
fn cpu_time_is_counted_at_both_ends() {
    let server = Server::new();
    let second = ["--time", "1s", "--warm-up", "50ms", "--interval", "500ms"];
    let data = report_over(&server, &["stream", "--client", "127.0.0.1"], &second);
    for end in ["client", "server"] {
        let busy = figure(&data, end, "cpu");
        assert!(busy > 0.0 && busy <= 100.0, "{busy} % at the {end}");
    }
}

#[test]
fn payload_goes_either_way_and_both() {
    let server = Server::new();
    let data = report(&server, &["stream", "-c", "localhost", "--reverse", "--rate", "80mbit"]);
    assert_eq!(data["trials"][0]["workers"][0]["direction"], "receive");
    assert!(moved(&data, 0) > 0);
    let data =
        report(&server, &["stream", "-c", "localhost", "--bidirectional", "--threads", "2", "--connections", "2"]);
    assert_eq!(data["trials"][0]["workers"][1]["connections"].as_array().unwrap().len(), 4);
    assert!(moved(&data, 0) > 0 && moved(&data, 1) > 0);
}

#[test]
fn requests_are_answered() {
    let server = Server::new();
    for kind in [&[][..], &["--connect"], &["--udp"], &["--rate", "200", "--in-flight", "4"]] {
        let data = report(&server, &[&["rr", "-c", "127.0.0.1"], kind].concat());
        for (worker, end) in ["client", "server"].into_iter().enumerate() {
            assert!(figure(&data, end, "transactions") >= 0.0);
            assert!(moved(&data, worker) > 0, "{kind:?}: nothing at the {end}");
        }
    }
}

#[test]
fn datagrams_are_counted_at_both_ends() {
    let server = Server::new();
    let data = report(&server, &["udp", "-c", "127.0.0.1", "--rate", "8mbit", "--message", "1000", "--gso", "4"]);
    for (worker, end) in ["client", "server"].into_iter().enumerate() {
        assert!(figure(&data, end, "datagrams") >= 0.0);
        assert!(moved(&data, worker) > 0, "nothing at the {end}");
    }
}

#[test]
fn one_way_delays_are_known_as_well_as_the_clocks() {
    let server = Server::new();
    for (kind, receiving) in
        [(&[][..], &["server"][..]), (&["--reverse"], &["client"]), (&["--bidirectional"], &["client", "server"])]
    {
        let udp = ["udp", "-c", "127.0.0.1", "--rate", "8mbit", "--message", "1000", "--trials", "2"];
        let data = report(&server, &[&udp[..], kind].concat());
        for trial in data["trials"].as_array().unwrap() {
            let clocks = &trial["end_clocks"];
            assert_eq!((&clocks["from"], &clocks["to"]), (&"client".into(), &"server".into()));
            // One clock is not further from itself than it is known to be.
            let of = |at: &str| (clocks[at]["ns"].as_i64().unwrap(), clocks[at]["bound_ns"].as_u64().unwrap());
            for (ns, bound_ns) in ["at_begin", "at_end"].map(of) {
                assert!(ns.unsigned_abs() <= bound_ns, "{clocks}");
            }
            assert!(clocks["path_at_begin"]["exchanges"].as_u64().unwrap() > 0, "{clocks}");
            for (worker, end) in ["client", "server"].into_iter().enumerate() {
                let delay = &trial["workers"][worker]["datagrams"]["delay"];
                assert_eq!(delay.is_null(), !receiving.contains(&end), "{end} of {kind:?}: {delay}");
            }
        }
        // Less than the bound is not given.
        for figure in data["figures"].as_array().unwrap().iter().filter(|figure| figure["metric"] == "delay_p50") {
            assert!(receiving.contains(&figure["end"].as_str().unwrap()), "{figure}");
            assert_eq!(figure["unit"], "us");
        }
    }
    let said = server.client(&["udp", "-c", "127.0.0.1", "--rate", "8mbit", "-t", "300ms"]).output().unwrap();
    let said = String::from_utf8_lossy(&said.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("the clocks of client and server are known to ±"), "{said}");
}

#[test]
fn slow_datagrams_leave_one_by_one() {
    let server = Server::new();
    // 200 datagrams of 250 bytes a second, with the batch that there is without a word.
    for kind in [&["--threads", "2"][..], &["--reverse"], &["--gso", "2"]] {
        let udp = ["udp", "-c", "127.0.0.1", "--rate", "400kbit", "--message", "250"];
        let data = report(&server, &[&udp[..], kind].concat());
        let workers = data["trials"][0]["workers"].as_array().unwrap();
        let sender = workers.iter().find(|worker| worker["direction"] == "send").unwrap();
        let (sent, calls) = (&sender["datagrams"]["sent"], &sender["datagrams"]["calls"]);
        let each = if kind[0] == "--gso" { 2 } else { 1 };
        assert!(calls.as_u64().unwrap() > 1, "{sender}");
        assert_eq!(sent.as_u64().unwrap(), each * calls.as_u64().unwrap(), "{kind:?}");
    }
    let words = ["a datagram leaves each 1.400s", "window of 300ms"];
    let nothing = server.client(&["udp", "-c", "127.0.0.1", "--rate", "8kbit", "-t", "300ms"]).output().unwrap();
    let said = String::from_utf8_lossy(&nothing.stderr);
    assert_eq!(nothing.status.code(), Some(2), "{said}");
    assert!(words.iter().all(|word| said.contains(word)), "{said}");
}

#[test]
fn both_families_of_addresses() {
    if let Err(error) = TcpListener::bind("[::1]:0") {
        return rig_skip::skip(rig_skip::Lack::Ipv6, error);
    }
    let server = Server::new();
    let data = report(&server, &["stream", "-c", "::1", "--rate", "8mbit"]);
    assert!(data["address"].as_str().unwrap().starts_with("[::1]"));
    assert!(data["trials"][0]["workers"][1]["connections"][0]["remote"].as_str().unwrap().starts_with("[::1]"));
    let only_v4 = Server::with(&["-4"]);
    fails_with(&only_v4.client(&["stream", "-c", "::1"]).output().unwrap(), &["[::1]", "nothing listens there"]);
    fails_with(&server.client(&["stream", "-c", "127.0.0.1", "-6"]).output().unwrap(), &["no IPv6 address", "-4"]);
}

/// The programs that count slow every switch and interrupt of the machine down.
#[test]
fn cpu_time_is_counted_only_while_a_test_runs() {
    if let Err(why) = CpuTime::attach() {
        return skip(Lack::Root, why);
    }
    let server = Server::new();
    let counts = || {
        let open = fs::read_dir(format!("/proc/{}/fd", server.child.id())).unwrap();
        let to = open.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        to.filter(|to| to.to_str().is_some_and(|to| to.contains("bpf"))).count()
    };
    // It has tried whether it can.
    until("the server does not count yet", || counts() == 0);
    let mut client = server.client(&["stream", "-c", "127.0.0.1", "--rate", "8mbit", "-t", "100s"]).spawn().unwrap();
    server.has_workers(1);
    until("the server counts", || counts() > 0);
    client.kill().unwrap();
    client.wait().unwrap();
    server.has_workers(0);
    until("the server counts no more", || counts() == 0);
}
