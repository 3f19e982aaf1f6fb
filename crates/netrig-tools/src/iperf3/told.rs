//! What iperf3's JSON tells of a test.
//!
//! The members are those of esnet/iperf's `iperf_api.c`, versions 3.12 to 3.21: throughputs are bits per second, jitter milliseconds, CPU percent of
//! one CPU.

use rig_facts::claim::{Metric, Side};
use rig_facts::record::{ToolRun, ToolTrial};
use serde_json::Value;

use crate::store_run::{ToolTest, tidy};

pub const TOOL: &str = "iperf3";

/// The test of one object.
///
/// # Errors
/// What it lacks.
pub fn test_of(document: &Value) -> Result<ToolTest, String> {
    let (start, end) = (&document["start"], &document["end"]);
    let asked = &start["test_start"];
    let protocol = asked["protocol"].as_str().ok_or(
        "not an object that iperf3 writes with -J: expected `start` with `test_start` and its `protocol`, and `end`",
    )?;
    if !end["sum_sent"].is_object() && !end["sum"].is_object() && !end["sum_received"].is_object() {
        return Err("expected `end` with `sum_sent`, `sum_received` or `sum`: the test has no results".to_owned());
    }
    let is_both = end["sum_sent_bidir_reverse"].is_object() || end["sum_bidir_reverse"].is_object();
    let is_reverse = asked["reverse"].as_u64() == Some(1);
    let suffix = match (is_both, is_reverse, protocol) {
        (true, ..) => "-bidirectional",
        (_, true, _) => "-reverse",
        _ => "",
    };
    let protocol = tidy(&protocol.to_ascii_lowercase());
    let version = start["version"].as_str().map(|version| tidy(version.strip_prefix("iperf ").unwrap_or(version)));
    let seconds = start["timestamp"]["timesecs"].as_i64().and_then(|seconds| seconds.checked_mul(1000));
    let host = &start["connecting_to"]["host"];
    let run = ToolRun {
        tool: TOOL.to_owned(),
        version,
        files: Vec::new(),
        made_unix_ms: start["timestamp"]["timemillisecs"].as_i64().or(seconds),
        test: match (protocol.as_str(), suffix) {
            ("tcp", "-reverse") => "tcp-maerts".to_owned(),
            (protocol, suffix) => format!("{protocol}-stream{suffix}"),
        },
        server: host.as_str().map(tidy),
        settings: settings(start, asked, end),
        machine: start["system_info"].as_str().map(|system| ("System".to_owned(), tidy(system))).into_iter().collect(),
    };
    let mut trial = ToolTrial::default();
    // Of the client's output both ends are known, of the server's only the server.
    let is_server = start["accepted_connection"].is_object() && host.is_null();
    for (suffix, by_server) in [("", is_reverse && !is_both), ("_bidir_reverse", true)] {
        one_way(&mut trial, end, suffix, (by_server, is_both), (&protocol, is_server));
    }
    cpu(&mut trial, end, is_reverse, is_both, is_server);
    if is_server {
        trial.notes.push("The server's output: what the client counted is not in it.".to_owned());
    }
    Ok(ToolTest { run, trial })
}

fn settings(start: &Value, asked: &Value, end: &Value) -> Vec<(String, String)> {
    // What is not asked for is 0 there.
    let names = [
        ("num_streams", "streams", ""),
        ("blksize", "block size", " bytes"),
        ("omit", "omitted", " s"),
        ("duration", "time", " s"),
        ("bytes", "amount", " bytes"),
        ("blocks", "amount", " blocks"),
        ("tos", "type of service", ""),
        ("target_bitrate", "rate of a stream", " bit/s"),
        ("fqrate", "pacing", " bit/s"),
        ("gso", "GSO", ""),
        ("gro", "GRO", ""),
    ];
    let of = |(member, name, unit): (&str, &str, &str)| {
        let value = asked[member].as_f64().filter(|value| *value != 0.0)?;
        Some((name.to_owned(), format!("{value}{unit}")))
    };
    let own = names.into_iter().filter_map(of);
    let sockets = [("tcp_mss", "MSS", " bytes"), ("sock_bufsize", "socket buffers", " bytes")];
    let of_start = |(member, name, unit): (&str, &str, &str)| {
        let value = start[member].as_f64().filter(|value| *value != 0.0)?;
        Some((name.to_owned(), format!("{value}{unit}")))
    };
    let algorithms = [
        ("sender_tcp_congestion", "sender's congestion control"),
        ("receiver_tcp_congestion", "receiver's congestion control"),
    ];
    let of_end = |(member, name): (&str, &str)| {
        let algorithm = end[member].as_str().map(tidy).filter(|algorithm| !algorithm.is_empty())?;
        Some((name.to_owned(), algorithm))
    };
    let own = own.chain(sockets.into_iter().filter_map(of_start));
    own.chain(algorithms.into_iter().filter_map(of_end)).collect()
}

/// The figures of one direction. The sums of both directions have names of their own.
fn one_way(
    trial: &mut ToolTrial,
    end: &Value,
    suffix: &str,
    (by_server, is_both): (bool, bool),
    (protocol, is_server): (&str, bool),
) {
    let sum = |name: &str| &end[format!("{name}{suffix}").as_str()];
    let (sent, received, older) = (sum("sum_sent"), sum("sum_received"), sum("sum"));
    if [sent, received, older].iter().all(|sum| !sum.is_object()) {
        return;
    }
    let (sender_known, receiver_known) = (!is_server || by_server, !is_server || !by_server);
    // Of a test both ways an end has what arrives there.
    let (sender, receiver) = match (is_both, by_server) {
        (false, _) => (Side::Sender, Side::Receiver),
        (true, false) => (Side::Local, Side::Remote),
        (true, true) => (Side::Remote, Side::Local),
    };
    let rate = |sum: &Value| sum["bits_per_second"].as_f64();
    if sender_known {
        let sent = if sent.is_object() { sent } else { older };
        if !is_both {
            trial.add(sender, Metric::Throughput, rate(sent));
        }
        trial.add(sender, Metric::Retransmits, sent["retransmits"].as_f64());
        trial.seconds = trial.seconds.or(sent["seconds"].as_f64());
    }
    if receiver_known {
        trial.add(receiver, Metric::Throughput, rate(received));
        trial.seconds = received["seconds"].as_f64().or(trial.seconds);
    }
    if protocol != "udp" {
        return;
    }
    let told = if received.is_object() { received } else { older };
    let per_second = |packets: Option<f64>, sum: &Value| Some(packets? / sum["seconds"].as_f64()?);
    if sender_known && !is_both {
        let packets = sent["packets"].as_f64().or(older["packets"].as_f64());
        trial.add(sender, Metric::Datagrams, per_second(packets, if sent.is_object() { sent } else { older }));
    }
    if receiver_known {
        let lost = told["lost_packets"].as_f64();
        let packets = told["packets"].as_f64();
        let arrived = packets.zip(lost).map(|(all, lost)| all - lost);
        trial.add(receiver, Metric::Datagrams, per_second(arrived, told));
        // Without a datagram there is nothing that a share could be of.
        let some = packets.is_some_and(|packets| packets > 0.0);
        trial.add(receiver, Metric::Loss, told["lost_percent"].as_f64().filter(|_| some));
        trial.add(receiver, Metric::Jitter, told["jitter_ms"].as_f64().map(|ms| ms * 1e3).filter(|_| some));
        let of_way = |stream: &&Value| !is_both || stream["sender"].as_bool() == Some(by_server == is_server);
        let streams = end["streams"].as_array().into_iter().flatten().map(|stream| &stream["udp"]).filter(of_way);
        let late: Option<Vec<f64>> = streams.map(|stream| stream["out_of_order"].as_f64()).collect();
        let late = late.filter(|late| !late.is_empty()).map(|late| late.iter().sum::<f64>());
        let share = late.zip(arrived).map(|(late, arrived)| 100.0 * late / arrived);
        trial.add(receiver, Metric::Reordered, share.filter(|share| *share <= 100.0));
    }
}

/// CPU time of the processes. Of a server's output the client's is 0, which is unknown.
fn cpu(trial: &mut ToolTrial, end: &Value, is_reverse: bool, is_both: bool, is_server: bool) {
    let told = &end["cpu_utilization_percent"];
    let of = |who: &str| {
        let all = ["total", "user", "system"].map(|what| told[format!("{who}_{what}").as_str()].as_f64());
        all[0].filter(|_| all.iter().any(|share| share.is_some_and(|share| share > 0.0)))
    };
    let (client, server) = if is_server { (None, of("host")) } else { (of("host"), of("remote")) };
    let (of_client, of_server) = match (is_both, is_reverse) {
        (true, _) => (Side::Local, Side::Remote),
        (false, false) => (Side::Sender, Side::Receiver),
        (false, true) => (Side::Receiver, Side::Sender),
    };
    trial.add(of_client, Metric::ProcessCpu, client);
    trial.add(of_server, Metric::ProcessCpu, server);
}
