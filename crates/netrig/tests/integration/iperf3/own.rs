//! netrig at both ends.

use serde_json::Value;

use super::peers::{Peer, client, json, pair, serve};

fn number(json: &Value, pointer: &str) -> f64 {
    json.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("no {pointer}: {json:#}"))
}

#[test]
fn both_ends_agree_on_what_arrived() {
    for (options, streams) in [
        ("-t 1", 1),
        ("-t 1 -P 3 -b 100M", 3),
        ("-t 1 -R", 1),
        ("-t 1 -R -P 2 -Z --skip-rx-copy -b 100M", 2),
        ("-t 1 --bidir -P 2", 4),
        ("-O 1 -t 1 -b 100M", 1),
        ("-t 1 -Z -N -M 1000 -w 256K -C reno -S 0x20 -l 64K -b 100M", 1),
        ("-t 1 -m -b 100M", 1),
        ("-t 1 -b 20M/4", 1),
        ("-t 1 -i 0 -b 100M", 1),
        ("-t 1 --repeating-payload --cntl-ka=10/2/3 --snd-timeout 5000 --fq-rate 1G", 1),
    ] {
        let json = json(&Peer::Netrig, &Peer::Netrig, options);
        let list = json.pointer("/end/streams").and_then(Value::as_array).unwrap();
        assert_eq!(list.len(), streams, "{options}");
        for stream in list {
            let (sent, received) = (number(stream, "/sender/bytes"), number(stream, "/receiver/bytes"));
            assert!(sent > 0.0 && received > 0.0, "{options}: {stream:#}");
            // What is on the way when counting ends, either way; a buffer's worth.
            assert!((sent - received).abs() <= 64e6, "{options}: {sent} sent, {received} received");
        }
        let sum = list.iter().map(|stream| number(stream, "/sender/bytes")).sum::<f64>();
        let both = json.pointer("/end/sum_sent_bidir_reverse/bytes").and_then(Value::as_f64).unwrap_or(0.0);
        assert_eq!(number(&json, "/end/sum_sent/bytes") + both, sum, "{options}");
        assert!(number(&json, "/end/cpu_utilization_percent/remote_total") >= 0.0);
        let omitted = json["intervals"].as_array().unwrap().iter().filter(|one| one["sum"]["omitted"] == true).count();
        assert_eq!(omitted > 0, options.contains("-O"), "{options}: {json:#}");
    }
}

#[test]
fn datagrams_are_all_accounted_for() {
    for options in [
        "-u -t 1 -b 10M -l 1000",
        "-u -t 1 -b 10M -l 1000 -R",
        "-u -t 1 -b 10M -l 1000 -P 2 --udp-counters-64bit",
        "-u -t 1 -b 10M -l 1000 --bidir",
        "-u -t 1 -b 5M/10 -l 500 --gsro --dont-fragment",
        "-u -t 1 -b 10M -l 1000 --skip-rx-copy",
        "-u -O 1 -t 1 -b 10M -l 1000",
        "-u -t 1",
    ] {
        let json = json(&Peer::Netrig, &Peer::Netrig, options);
        let (sent, received) = (number(&json, "/end/sum_sent/packets"), number(&json, "/end/sum_received/packets"));
        assert!(sent > 0.0 && received > 0.0, "{options}: {json:#}");
        let length = number(&json, "/start/test_start/blksize");
        assert_eq!(number(&json, "/end/sum_sent/bytes"), sent * length, "{options}");
        let lost = number(&json, "/end/sum_received/lost_packets");
        assert!(lost <= received, "{options}: {json:#}");
        if !options.contains("-O") {
            // Those that are on the way when either end counts.
            assert!(received <= sent + 200.0, "{options}: {received} of {sent}");
            assert_eq!(number(&json, "/end/sum_received/bytes"), (received - lost) * length, "{options}");
        }
    }
}

#[test]
fn an_amount_ends_a_test() {
    for (options, bytes) in [
        ("-n 10M", 10 << 20),
        ("-k 7 -l 1000", 7000),
        ("-n 1000001 -l 1000 -P 2", 1_001_000),
        ("-u -n 100K -l 1000 -b 10M", 103_000),
        ("-u -k 10 -l 1000 -b 0", 10_000),
    ] {
        let json = json(&Peer::Netrig, &Peer::Netrig, options);
        assert_eq!(number(&json, "/end/sum_sent/bytes"), f64::from(bytes), "{options}");
    }
    // The other way the client counts.
    let json = json(&Peer::Netrig, &Peer::Netrig, "-n 1M -R");
    assert!(number(&json, "/end/sum_received/bytes") >= 1_048_576.0);
}

#[test]
fn the_servers_output_comes_to_the_client() {
    let (client, server) = pair(&Peer::Netrig, "", &Peer::Netrig, "-t 1 --get-server-output -T title");
    assert!(client.out.contains("title:  [  5] local 127.0.0.1 port "), "{client:#?}");
    let shown = client.out.split("Server output:\n").nth(1).unwrap_or_else(|| panic!("{client:#?}"));
    let line = server.out.lines().find(|line| line.contains("receiver")).unwrap();
    assert!(shown.contains(line) && shown.contains("Accepted connection from 127.0.0.1, port "), "{client:#?}");
    let (client, _) = pair(&Peer::Netrig, "-J", &Peer::Netrig, "-t 1 -J --get-server-output --extra-data extra");
    let json: Value = serde_json::from_str(&client.out).unwrap();
    assert!(json.pointer("/server_output_json/end/sum_received/bytes").is_some(), "{json:#}");
    assert_eq!(json["extra_data"], "extra");
}

#[test]
fn events_come_as_lines() {
    let (client, server) =
        pair(&Peer::Netrig, "--json-stream", &Peer::Netrig, "-t 1 --json-stream --json-stream-full-output");
    let mut lines = client.out.lines();
    let mut events = Vec::new();
    for line in lines.by_ref().take_while(|line| *line != "{") {
        let event: Value = serde_json::from_str(line).unwrap();
        events.push(event["event"].as_str().unwrap().to_owned());
    }
    assert_eq!(events, ["start", "interval", "end"], "{client:#?}");
    assert!(lines.any(|line| line.contains("\"intervals\"")), "the whole object follows: {client:#?}");
    assert!(server.out.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{server:#?}");
}

#[test]
fn several_clients_are_served_at_once() {
    let home = tempfile::tempdir().unwrap();
    let server = serve(&Peer::Netrig, "", home.path());
    // The first goes on until all the others have come and gone.
    let first = client(&Peer::Netrig, server.port, "-t 0 -b 1M --connect-timeout 5000", home.path());
    let some: Vec<_> =
        ["-t 1 -b 100M", "-t 1 -R -b 100M", "-u -t 1 -P 2", "-u -t 1 -R", "-u -t 1 --bidir", "-t 1 --bidir -b 100M"]
            .map(|options| client(&Peer::Netrig, server.port, options, home.path()))
            .into_iter()
            .collect();
    for one in some {
        let said = one.end().succeeded();
        assert!(said.out.contains("receiver"), "{said:#?}");
    }
    first.interrupt();
    let said = first.end().succeeded();
    assert!(said.err.contains("interrupt - the client has terminated"), "{said:#?}");
    server.process.interrupt();
    let said = server.process.end().succeeded();
    assert!(
        said.err.contains("the client has terminated") && said.err.contains("the server has terminated"),
        "{said:#?}"
    );
}

#[test]
fn output_goes_where_it_is_sent() {
    let (said, _) = pair(&Peer::Netrig, "", &Peer::Netrig, "-t 1 --logfile log --timestamps=%Y: -f M -I pid");
    assert!(said.out.is_empty() && said.status == Some(0), "{said:#?}");
    let said = std::process::Command::new(env!("CARGO_BIN_EXE_netrig")).args(["iperf3", "-v"]).output().unwrap();
    assert!(String::from_utf8_lossy(&said.stdout).starts_with("iperf 3."));
}
