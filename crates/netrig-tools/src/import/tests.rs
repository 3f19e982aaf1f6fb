//! Outputs as iperf3 3.12 and wrk 4.1 wrote them on loopback, and as the layouts of the others have them.

use rig_facts::claim::{Metric, Side, Statistic};
use serde_json::{Value, json};

use super::*;
use crate::store_run::ToolTest;

/// The one test of a text.
fn one(text: &str) -> ToolTest {
    let mut outputs = read(text, None, None).unwrap_or_else(|mistake| panic!("{mistake}\n{text}"));
    assert_eq!((outputs.tests.len(), outputs.failed.len()), (1, 0), "{text}");
    outputs.tests.remove(0)
}

fn figure(test: &ToolTest, side: Side, metric: Metric) -> Option<f64> {
    test.trial.figure(side, metric)
}

/// Within a millionth.
fn is_about(found: Option<f64>, expected: f64) -> bool {
    found.is_some_and(|found| (found - expected).abs() <= 1e-6 * expected.abs().max(1e-6))
}

#[track_caller]
fn has(test: &ToolTest, side: Side, metric: Metric, expected: f64) {
    let found = figure(test, side, metric);
    assert!(is_about(found, expected), "{side} {metric}: {found:?}, not {expected}");
}

#[track_caller]
fn lacks(test: &ToolTest, side: Side, metric: Metric) {
    assert_eq!(figure(test, side, metric), None, "{side} {metric}");
}

fn sum(seconds: f64, bytes: u64, more: &Value) -> Value {
    let mut sum = json!({"start": 0, "end": seconds, "seconds": seconds, "bytes": bytes, "bits_per_second": bytes as f64 * 8.0 / seconds});
    sum.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    sum
}

fn iperf3(protocol: &str, reverse: u32, end: &Value) -> Value {
    json!({
        "start": {
            "connected": [], "version": "iperf 3.12", "system_info": "Linux box 6.1.0 #1 SMP x86_64",
            "timestamp": {"time": "Sun, 29 Nov 2026 16:02:03 GMT", "timesecs": 1_795_968_123},
            "connecting_to": {"host": "10.0.0.2", "port": 5201}, "cookie": "gaz7rrgxaj3hxbuwpzdjem6uzl6pns2mtezw",
            "tcp_mss_default": 1448, "sock_bufsize": 0,
            "test_start": {"protocol": protocol, "num_streams": 2, "blksize": 131_072, "omit": 0, "duration": 1, "bytes": 0,
                "blocks": 0, "reverse": reverse, "tos": 0, "target_bitrate": 0},
        },
        "intervals": [],
        "end": end,
    })
}

fn tcp() -> Value {
    iperf3(
        "TCP",
        0,
        &json!({
            "streams": [],
            "sum_sent": sum(1.0, 1_000_000, &json!({"retransmits": 29, "sender": true})),
            "sum_received": sum(1.25, 1_000_000, &json!({"sender": true})),
            "cpu_utilization_percent": {"host_total": 27.5, "host_user": 1.5, "host_system": 26.0,
                "remote_total": 24.0, "remote_user": 2.5, "remote_system": 21.5},
        }),
    )
}

#[test]
fn iperf3_tells_what_both_ends_counted() {
    let test = one(&tcp().to_string());
    assert_eq!(test.run.name(), "iperf3 3.12");
    assert_eq!((test.run.test.as_str(), test.run.server.as_deref()), ("tcp-stream", Some("10.0.0.2")));
    assert_eq!(test.run.made_unix_ms, Some(1_795_968_123_000));
    assert_eq!(test.run.words(), "tcp-stream, streams 2, block size 131072 bytes, time 1 s");
    assert_eq!(test.trial.seconds, Some(1.25));
    has(&test, Side::Sender, Metric::Throughput, 8e6);
    has(&test, Side::Receiver, Metric::Throughput, 6.4e6);
    has(&test, Side::Sender, Metric::Retransmits, 29.0);
    lacks(&test, Side::Receiver, Metric::Retransmits);
    // CPU time of the process is no share of the machine's.
    has(&test, Side::Sender, Metric::ProcessCpu, 27.5);
    has(&test, Side::Receiver, Metric::ProcessCpu, 24.0);
    lacks(&test, Side::Sender, Metric::Cpu);
}

#[test]
fn in_reverse_the_client_receives() {
    let mut document = tcp();
    document["start"]["test_start"]["reverse"] = 1.into();
    let test = one(&document.to_string());
    assert_eq!(test.run.test, "tcp-maerts");
    has(&test, Side::Receiver, Metric::ProcessCpu, 27.5);
    has(&test, Side::Sender, Metric::ProcessCpu, 24.0);
    has(&test, Side::Sender, Metric::Throughput, 8e6);
}

#[test]
fn of_both_ways_each_end_has_what_arrived_there() {
    let mut document = tcp();
    // 3.12 does not say in `test_start` that it goes both ways.
    document["end"]["sum_sent_bidir_reverse"] = sum(1.0, 3_000_000, &json!({"retransmits": 2, "sender": false}));
    document["end"]["sum_received_bidir_reverse"] = sum(1.0, 2_000_000, &json!({"sender": false}));
    let test = one(&document.to_string());
    assert_eq!(test.run.test, "tcp-stream-bidirectional");
    has(&test, Side::Local, Metric::Throughput, 16e6);
    has(&test, Side::Remote, Metric::Throughput, 6.4e6);
    has(&test, Side::Local, Metric::Retransmits, 29.0);
    has(&test, Side::Remote, Metric::Retransmits, 2.0);
    lacks(&test, Side::Sender, Metric::Throughput);
}

fn udp() -> Value {
    let lost =
        json!({"jitter_ms": 0.25, "lost_packets": 10, "packets": 110, "lost_percent": 9.090_909, "sender": false});
    let sent = json!({"jitter_ms": 0, "lost_packets": 0, "packets": 110, "lost_percent": 0, "sender": true});
    let stream = json!({"udp": {"out_of_order": 3, "sender": true}});
    iperf3(
        "UDP",
        0,
        &json!({
            "streams": [stream],
            "sum": sum(1.0, 110_000, &lost),
            "sum_sent": sum(1.0, 110_000, &sent),
            "sum_received": sum(1.0, 100_000, &lost),
        }),
    )
}

#[test]
fn datagrams_are_lost_and_late_where_they_arrive() {
    let test = one(&udp().to_string());
    has(&test, Side::Sender, Metric::Datagrams, 110.0);
    has(&test, Side::Receiver, Metric::Datagrams, 100.0);
    has(&test, Side::Receiver, Metric::Loss, 9.090_909);
    has(&test, Side::Receiver, Metric::Jitter, 250.0);
    has(&test, Side::Receiver, Metric::Reordered, 3.0);
    has(&test, Side::Receiver, Metric::Throughput, 800_000.0);
    lacks(&test, Side::Sender, Metric::Loss);
    // Without CPU time in the output there is none, and no 0.
    lacks(&test, Side::Sender, Metric::ProcessCpu);
}

#[test]
fn older_versions_have_one_sum_of_datagrams() {
    let mut document = udp();
    let end = document["end"].as_object_mut().unwrap();
    end.remove("sum_sent");
    end.remove("sum_received");
    let test = one(&document.to_string());
    has(&test, Side::Sender, Metric::Throughput, 880_000.0);
    has(&test, Side::Receiver, Metric::Loss, 9.090_909);
    has(&test, Side::Receiver, Metric::Datagrams, 100.0);
    lacks(&test, Side::Receiver, Metric::Throughput);
}

#[test]
fn a_servers_output_tells_of_the_server_alone() {
    let mut document = tcp();
    let start = document["start"].as_object_mut().unwrap();
    start.remove("connecting_to");
    start.insert("accepted_connection".into(), json!({"host": "10.0.0.1", "port": 40_000}));
    document["end"]["sum_sent"] = sum(1.0, 0, &json!({"sender": false}));
    document["end"]["cpu_utilization_percent"] = json!({"host_total": 24.0, "host_user": 4.0, "host_system": 20.0,
        "remote_total": 0, "remote_user": 0, "remote_system": 0});
    let test = one(&document.to_string());
    has(&test, Side::Receiver, Metric::Throughput, 6.4e6);
    has(&test, Side::Receiver, Metric::ProcessCpu, 24.0);
    lacks(&test, Side::Sender, Metric::Throughput);
    lacks(&test, Side::Sender, Metric::ProcessCpu);
}

/// As `--json-stream` writes it.
fn stream(document: &Value) -> String {
    let event = |name: &str, data: &Value| format!("{}\n", json!({"event": name, "data": data}));
    event("start", &document["start"])
        + &event("interval", &json!({"streams": [], "sum": {}}))
        + &event("end", &document["end"])
}

#[test]
fn several_objects_and_streams_of_events_are_several_tests() {
    let whole = serde_json::to_string_pretty(&tcp()).unwrap();
    let read_all = |text: &str| read(text, None, None).unwrap();
    assert_eq!(read_all(&format!("{whole}\n{whole}\n")).tests.len(), 2);
    let events = stream(&tcp());
    assert_eq!(one(&events), one(&whole));
    assert_eq!(read_all(&format!("{events}{events}")).tests.len(), 2);
    // --json-stream-full-output: the whole object after its events is the same test.
    assert_eq!(read_all(&format!("{events}{whole}")).tests.len(), 1);
    let broken: String = events.lines().take(2).map(|line| format!("{line}\n")).collect();
    let outputs = read_all(&format!("{broken}{events}"));
    assert_eq!((outputs.tests.len(), outputs.failed.len()), (1, 1));
    assert_eq!(outputs.failed[0].why, "the output ends in the middle of the test");
}

#[test]
fn lines_are_counted_on_and_tests_are_bounded() {
    let whole = serde_json::to_string_pretty(&tcp()).unwrap();
    let mistake = read(&format!("{whole}\n\n{whole}\n{{}}"), None, None).unwrap_err();
    assert_eq!(mistake.line, Some(2 * whole.lines().count() + 2));
    let failed = "{\"error\": \"no\"}\n".repeat(MOST_TESTS + 1);
    assert_eq!(read(&failed, None, None).unwrap_err().to_string(), "it has more than 10000 tests");
}

#[test]
fn algorithms_of_both_ends_are_settings() {
    let mut document = tcp();
    document["end"]["sender_tcp_congestion"] = "cubic".into();
    document["end"]["receiver_tcp_congestion"] = "bbr".into();
    let words = one(&document.to_string()).run.words();
    assert!(words.ends_with("sender's congestion control cubic, receiver's congestion control bbr"), "{words}");
}

#[test]
fn failed_tests_say_why() {
    let failed = json!({"start": {"connected": [], "version": "iperf 3.12"}, "intervals": [], "end": {},
        "error": "unable to connect to server: Connection refused"});
    let outputs = read(&failed.to_string(), None, None).unwrap();
    assert!(outputs.tests.is_empty());
    assert_eq!(outputs.failed[0].why, "unable to connect to server: Connection refused");
}

const STREAM: &str = "\
MIGRATED TCP STREAM TEST from 0.0.0.0 (0.0.0.0) port 0 AF_INET to 10.0.0.2 (10.0.0.2) port 0 AF_INET : nodelay
Recv   Send    Send
Socket Socket  Message  Elapsed
Size   Size    Size     Time     Throughput
bytes  bytes   bytes    secs.    10^6bits/sec

131072  16384  16384    10.00    9415.52
";

const MAERTS: &str = "\
MIGRATED TCP MAERTS TEST from 0.0.0.0 (0.0.0.0) port 0 AF_INET to box () port 0 AF_INET
Recv   Send    Send                          Utilization       Service Demand
Socket Socket  Message  Elapsed              Recv     Send     Recv    Send
Size   Size    Size     Time     Throughput  local    remote   local   remote
bytes  bytes   bytes    secs.    KBytes  /s  % S      % U      us/KB   us/KB

131072  16384  16384    10.00      1000.00   25.00    -1.00    1.125   -1.000
";

const RR: &str = "\
MIGRATED TCP REQUEST/RESPONSE TEST from 0.0.0.0 (0.0.0.0) port 0 AF_INET to 10.0.0.2 () port 0 AF_INET : first burst 0
!!! WARNING
!!! Desired confidence was not achieved within the specified iterations.
!!! Confidence intervals: Throughput      : 12.345%

Local /Remote
Socket Size   Request  Resp.   Elapsed  Trans.
Send   Recv   Size     Size    Time     Rate
bytes  Bytes  bytes    bytes   secs.    per sec

16384  131072 100      1000    10.00    20000.50
16384  131072
";

const UDP: &str = "\
MIGRATED UDP STREAM TEST from 0.0.0.0 (0.0.0.0) port 0 AF_INET to 10.0.0.2 () port 0 AF_INET
Socket  Message  Elapsed      Messages
Size    Size     Time         Okay Errors   Throughput
bytes   bytes    secs            #      #   10^6bits/sec

212992    1000   10.00      100000      0      80.00
212992           10.00       90000             72.00
";

#[test]
fn netperfs_text_is_read_with_the_unit_of_its_titles() {
    let test = one(STREAM);
    assert_eq!((test.run.test.as_str(), test.run.server.as_deref()), ("tcp-stream", Some("10.0.0.2")));
    assert_eq!(test.run.words(), "tcp-stream, send size 16384 bytes, local TCP_NODELAY 1");
    has(&test, Side::Receiver, Metric::Throughput, 9_415_520_000.0);
    lacks(&test, Side::Sender, Metric::Throughput);
    lacks(&test, Side::Sender, Metric::Cpu);

    let test = one(MAERTS);
    assert_eq!((test.run.test.as_str(), test.run.server.as_deref()), ("tcp-maerts", Some("box")));
    // KBytes of 1024.
    has(&test, Side::Receiver, Metric::Throughput, 1000.0 * 1024.0 * 8.0);
    has(&test, Side::Receiver, Metric::Cpu, 25.0);
    has(&test, Side::Receiver, Metric::ServiceDemand, 1.125);
    lacks(&test, Side::Sender, Metric::Cpu);
    lacks(&test, Side::Sender, Metric::ServiceDemand);

    let test = one(RR);
    assert_eq!(test.run.words(), "tcp-rr, request 100 bytes, response 1000 bytes");
    has(&test, Side::Local, Metric::Transactions, 20_000.5);
    assert_eq!(test.trial.notes, ["netperf says: Desired confidence was not achieved."]);

    let test = one(UDP);
    has(&test, Side::Sender, Metric::Throughput, 80e6);
    has(&test, Side::Receiver, Metric::Throughput, 72e6);
    has(&test, Side::Sender, Metric::Datagrams, 10_000.0);
    has(&test, Side::Receiver, Metric::Datagrams, 9000.0);
    let both = read(&format!("{RR}{RR}"), None, None).unwrap();
    assert_eq!(both.tests.len(), 2, "a banner begins another test");
}

/// As `-P 0` leaves it.
fn untitled(text: &str, rows: usize) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    lines[lines.len() - rows..].iter().map(|line| format!("{line}\n")).collect()
}

#[test]
fn without_titles_a_test_is_named_or_its_rows_tell_it() {
    let (stream, rr, udp) = (untitled(STREAM, 1), untitled(RR, 2), untitled(UDP, 2));
    assert_eq!(one(&udp).run.test, "udp-stream");
    for text in [&stream, &rr] {
        let mistake = read(text, None, None).unwrap_err();
        assert!(mistake.to_string().starts_with("line 1: without titles (-P 0)"), "{mistake}");
    }
    let named = |text: &str, test| read(text, None, Some(test)).map(|outputs| outputs.tests);
    let tests = named(&format!("{stream}{stream}"), NetperfTest::TcpMaerts).unwrap();
    assert_eq!(tests.len(), 2);
    has(&tests[1], Side::Receiver, Metric::Throughput, 9_415_520_000.0);
    assert_eq!(named(&format!("{rr}{rr}"), NetperfTest::UdpRr).unwrap()[1].run.test, "udp-rr");
    let mistake = named(&rr, NetperfTest::TcpStream).unwrap_err().to_string();
    assert_eq!(mistake, "line 1: expected a row of 5 numbers, or 9 with CPU time, of TCP_STREAM, and found 6 numbers");
    // Messages of 1000 bytes, 10000 a second, are 80 x 10^6 bits a second and not 80 x 10^3.
    let mistake = read(&udp.replace("80.00", "80000.00"), None, None).unwrap_err().to_string();
    assert!(mistake.contains("messages' size times their number"), "{mistake}");
}

const KEYS: &str = "\
PROTOCOL=TCP
DIRECTION=Send|Recv
ELAPSED_TIME=10.00
THROUGHPUT=20000.00
THROUGHPUT_UNITS=Trans/s
REQUEST_SIZE=100
RESPONSE_SIZE=1000
LOCAL_CPU_UTIL=50.00
REMOTE_CPU_UTIL=-1.00
LOCAL_SD=50.000
REMOTE_SD=-1.000
SD_UNITS=usec/Tran
LOCAL_TRANSPORT_RETRANS=0
REMOTE_TRANSPORT_RETRANS=-1
P50_LATENCY=48
P99_LATENCY=-1
MAX_LATENCY=0
MEAN_LATENCY=49.93
DEST_ADDR=10.0.0.2
COMMAND_LINE=\"netperf -t TCP_RR, more\"
";

#[test]
fn netperfs_selectors_are_read_by_name_and_by_heading() {
    let test = one(KEYS);
    has(&test, Side::Local, Metric::Transactions, 20_000.0);
    has(&test, Side::Local, Metric::Cpu, 50.0);
    has(&test, Side::Local, Metric::TransactionDemand, 50.0);
    has(&test, Side::Local, Metric::Retransmits, 0.0);
    has(&test, Side::Local, Metric::Latency(Statistic::P50), 48.0);
    has(&test, Side::Local, Metric::Latency(Statistic::Mean), 49.93);
    for (side, metric) in [
        (Side::Remote, Metric::Cpu),
        (Side::Remote, Metric::TransactionDemand),
        (Side::Remote, Metric::Retransmits),
        (Side::Local, Metric::Latency(Statistic::P99)),
        (Side::Local, Metric::Latency(Statistic::Max)),
    ] {
        lacks(&test, side, metric);
    }
    assert_eq!(read(&format!("{KEYS}{KEYS}"), None, None).unwrap().tests.len(), 2);
    let csv = "\
OMNI Send TEST from 0.0.0.0 (0.0.0.0) port 0 AF_INET to 10.0.0.2 () port 0 AF_INET
Protocol,Direction,Throughput,Throughput Units,Local Send Throughput,Elapsed Time (sec),Command Line
TCP,Send,10.00,GBytes/s,11.00,10.00,\"netperf -t omni, -o\"
TCP,Send,12.00,GBytes/s,13.00,10.00,\"netperf -t omni, -o\"
";
    let tests = read(csv, None, None).unwrap().tests;
    assert_eq!((tests.len(), tests[0].run.server.as_deref()), (2, Some("10.0.0.2")));
    has(&tests[1], Side::Receiver, Metric::Throughput, 12.0 * 8.0 * 1024_f64.powi(3));
    has(&tests[1], Side::Sender, Metric::Throughput, 13.0 * 8.0 * 1024_f64.powi(3));
    let short = csv.replace("TCP,Send,12.00,", "TCP,");
    let mistake = read(&short, None, None).unwrap_err().to_string();
    assert_eq!(mistake, "line 4: expected 7 values, as many as the heading has names, and found 5");
    let unnamed = "THROUGHPUT=1.00\nELAPSED_TIME=1.00\n";
    let mistake = read(unnamed, None, None).unwrap_err().to_string();
    assert!(mistake.starts_with("line 1: the output does not say which test it is of: name it"), "{mistake}");
    assert_eq!(read(unnamed, None, Some(NetperfTest::TcpStream)).unwrap().tests[0].run.test, "tcp-stream");
}

#[test]
fn units_of_netperf_are_those_that_it_counts_in() {
    for text in [STREAM.replace("10^6bits/sec", "10^0bits/sec"), KEYS.replace("Trans/s", "10^0bits/s")] {
        let mistake = read(&text, None, None).unwrap_err().to_string();
        assert!(mistake.contains("netperf writes bytes under this title: use -f m or -f B"), "{mistake}");
    }
    let without = |text: &str, name: &str| -> String {
        text.lines().filter(|line| !line.starts_with(name)).map(|line| format!("{line}\n")).collect()
    };
    // With -f u netperf counts bytes.
    let of_time = without(&KEYS.replace("Trans/s", "Usec/s"), "SD_UNITS");
    let test = one(&of_time);
    lacks(&test, Side::Local, Metric::Transactions);
    has(&test, Side::Local, Metric::ServiceDemand, 50.0);
    has(&one(&format!("{of_time}TRANSACTION_RATE=7.000\n")), Side::Local, Metric::Transactions, 7.0);
    // What is taken for granted is told.
    let test = one(&without(KEYS, "THROUGHPUT_UNITS"));
    has(&test, Side::Local, Metric::Transactions, 20_000.0);
    assert!(test.trial.notes[0].ends_with("netperf's own choice, Trans/s."), "{:?}", test.trial.notes);
    assert!(one(&untitled(UDP, 2)).trial.notes[0].ends_with("netperf's own choice, 10^6bits/s."));
    assert!(one(KEYS).trial.notes.is_empty());
    // 0.01 of 2^30 bytes is all that two digits tell of 10 MB/s.
    let coarse = UDP.replace("10^6bits/sec", "GBytes  /s").replace("80.00", "0.01").replace("72.00", "0.01");
    has(&one(&coarse), Side::Sender, Metric::Throughput, 0.01 * 8.0 * 1024_f64.powi(3));
}

#[test]
fn a_test_that_is_not_the_outputs_is_refused() {
    for (text, line) in [(STREAM, 1), (UDP, 1), (KEYS, 1)] {
        let mistake = read(text, None, Some(NetperfTest::TcpCrr)).unwrap_err();
        assert_eq!(mistake.line, Some(line));
        assert!(mistake.why.starts_with("--test TCP_CRR: the output is of another test"), "{mistake}");
    }
    assert!(read(RR, None, Some(NetperfTest::TcpRr)).is_ok());
    assert!(read(KEYS, None, Some(NetperfTest::TcpRr)).is_ok());
}

#[test]
fn sizes_that_nobody_asked_for_are_1() {
    let text = KEYS.replace("REQUEST_SIZE=100", "REQUEST_SIZE=-1").replace("RESPONSE_SIZE=1000", "RESPONSE_SIZE=-1");
    assert_eq!(one(&text).run.words(), "tcp-rr, request 1 bytes, response 1 bytes");
    let ends = format!("{KEYS}REMOTE_NODELAY=1\nREMOTE_CONG_CONTROL=bbr\n");
    let words = one(&ends).run.words();
    assert!(words.ends_with("remote TCP_NODELAY 1, remote congestion control bbr"), "{words}");
}

const WRK: &str = "\
Running 2s test @ http://127.0.0.1:8099/
  1 threads and 2 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     2.05ms    2.71ms  31.97ms   89.99%
    Req/Sec     1.29k   205.51     1.71k    65.00%
  Latency Distribution
     50%    0.99ms
     75%    2.66ms
     90%    4.78ms
     99%   12.02ms
  2573 requests in 2.00s, 1.87MB read
  Socket errors: connect 0, read 1, write 0, timeout 3
Requests/sec:   1285.71
Transfer/sec:      0.93MB
";

const WRK2: &str = "\
Running 30s test @ http://10.0.0.2/
  2 threads and 100 connections
  Thread calibration: mean lat.: 9747 usec, rate sampling interval: 21 msec
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     6.46ms    1.93ms  12.34ms   67.66%
    Req/Sec     1.05k     1.12k    2.50k    64.84%
  Latency Distribution (HdrHistogram - Recorded Latency)
 50.000%    6.67ms
 75.000%    7.78ms
 90.000%    9.14ms
 99.000%   11.18ms
 99.900%   12.30ms
 99.990%   12.45ms
 99.999%   12.50ms
100.000%   12.50ms

  Detailed Percentile spectrum:
       Value   Percentile   TotalCount 1/(1-Percentile)

       0.921     0.000000            1         1.00
#[Mean    =        6.460, StdDeviation   =        1.930]
  Latency Distribution (HdrHistogram - Uncorrected Latency (measured without taking delayed starts into account))
 50.000%    1.00ms
  60018 requests in 30.00s, 19.81MB read
Requests/sec:   2000.28
Transfer/sec:    676.18KB
";

#[test]
fn wrk_and_wrk2_tell_rates_and_latencies() {
    let test = one(WRK);
    assert_eq!((test.run.tool.as_str(), test.run.server.as_deref()), ("wrk", Some("http://127.0.0.1:8099/")));
    assert_eq!(test.run.words(), "http, time 2s, threads 1, connections 2");
    has(&test, Side::Local, Metric::Transactions, 1285.71);
    has(&test, Side::Local, Metric::Throughput, 0.93 * 1024.0 * 1024.0 * 8.0);
    has(&test, Side::Local, Metric::Latency(Statistic::Mean), 2050.0);
    has(&test, Side::Local, Metric::Latency(Statistic::P50), 990.0);
    has(&test, Side::Local, Metric::Latency(Statistic::P99), 12_020.0);
    has(&test, Side::Local, Metric::Latency(Statistic::Max), 31_970.0);
    lacks(&test, Side::Local, Metric::Latency(Statistic::P99_9));
    assert_eq!(test.trial.notes, ["Socket errors: connect 0, read 1, write 0, timeout 3."]);

    let test = one(WRK2);
    assert_eq!(test.run.tool, "wrk2");
    assert_eq!(test.trial.seconds, Some(30.0));
    // What was recorded, and not what is left of it without the delays.
    has(&test, Side::Local, Metric::Latency(Statistic::P50), 6670.0);
    has(&test, Side::Local, Metric::Latency(Statistic::P99_9), 12_300.0);
    has(&test, Side::Local, Metric::Latency(Statistic::P99_99), 12_450.0);
    has(&test, Side::Local, Metric::Latency(Statistic::Max), 12_340.0);
    assert_eq!(read(&format!("{WRK}{WRK}"), None, None).unwrap().tests.len(), 2);
    let broken: String = WRK.lines().take(6).map(|line| format!("{line}\n")).collect();
    let mistake = read(&broken, None, None).unwrap_err().to_string();
    assert!(mistake.starts_with("line 6: expected `Requests/sec:`"), "{mistake}");
    // Nothing was answered.
    let silent = WRK
        .replace("2.05ms    2.71ms  31.97ms   89.99%", "0.00us    0.00us   0.00us    -nan%")
        .replace("0.99ms", "0.00us")
        .replace("2573 requests", "0 requests")
        .replace("1285.71", "0.00");
    let silent = one(&silent);
    for statistic in [Statistic::Mean, Statistic::Max, Statistic::P50] {
        lacks(&silent, Side::Local, Metric::Latency(statistic));
    }
    assert!(silent.trial.notes.contains(&"Nothing was answered.".to_owned()));
}

#[test]
fn wrk_and_wrk2_are_told_apart() {
    let as_tool = |text: &str, tool| read(text, Some(tool), None).map(|outputs| outputs.tests[0].run.tool.clone());
    // Without --latency its calibration tells it, and of a short test nothing does.
    let calibrated: String =
        WRK2.lines().filter(|line| !line.contains("Distribution")).map(|line| format!("{line}\n")).collect();
    assert_eq!(one(&calibrated).run.tool, "wrk2");
    let short = calibrated.replace("  Thread calibration: mean lat.: 9747 usec, rate sampling interval: 21 msec\n", "");
    assert_eq!(one(&short).run.tool, "wrk");
    assert_eq!(as_tool(&short, OutputFormat::Wrk2).unwrap(), "wrk2");
    let mistake = as_tool(&calibrated, OutputFormat::Wrk).unwrap_err().to_string();
    assert_eq!(mistake, "line 3: --tool wrk: only wrk2 writes this");
    let mistake = as_tool(WRK, OutputFormat::Wrk2).unwrap_err().to_string();
    assert_eq!(mistake, "line 6: --tool wrk2: only wrk writes this");
}

fn dperf_second(number: u32, opened: &str) -> String {
    format!(
        "seconds {number:<18} cpuUsage 40  52\n\
         pktRx   600,000            pktTx    599,000            bitsRx   390,000,000        bitsTx  380,000,000        dropTx  0\n\
         arpRx   0                  arpTx    0                  icmpRx   0                  icmpTx  0\n\
         synRx   {opened}            synTx    {opened}            finRx    0                  finTx   0                  rstRx   0          rstTx 0\n\
         synRt   1                  finRt    0                  ackRt    0                  pushRt  0\n\
         skOpen  {opened}            skClose  {opened}            skCon    1,472              skErr   2                  rtt(us) 1,000.5\n\
         httpGet {opened}            http2XX  {opened}            httpErr  0\n\n"
    )
}

#[test]
fn dperfs_rates_are_those_of_the_middle_second() {
    let seconds: String = [(0, "10"), (1, "100,000"), (2, "200,000"), (3, "201,000"), (4, "202,000")]
        .map(|(n, opened)| dperf_second(n, opened))
        .concat();
    let total = "-----------------------\ndperf Test Finished\nVersion: 1.8.0\n-----------------------\n\nTotal Numbers:\n\
                 pktRx   3,000,000          pktTx    2,995,000          bitsRx   1,950,000,000      bitsTx  1,900,000,000      dropTx  7\n\
                 synRt   5                  finRt    0                  ackRt    0                  pushRt  0\n\
                 skOpen  703,010            skClose  703,010            skCon    0                  skErr   12\n";
    let test = one(&format!("{seconds}{total}"));
    assert_eq!(test.run.name(), "dperf 1.8.0");
    assert_eq!(test.run.test, "packets-tcp");
    has(&test, Side::Local, Metric::Connections, 200_000.0);
    has(&test, Side::Local, Metric::Transactions, 200_000.0);
    has(&test, Side::Local, Metric::PacketsIn, 600_000.0);
    has(&test, Side::Local, Metric::Failed, 12.0);
    has(&test, Side::Local, Metric::Retransmits, 5.0);
    has(&test, Side::Local, Metric::Drops, 7.0);
    has(&test, Side::Local, Metric::Busy, 52.0);
    has(&test, Side::Local, Metric::Handshake(Statistic::Mean), 1000.5);
    let broken_off = one(&seconds);
    has(&broken_off, Side::Local, Metric::Failed, 10.0);
    assert!(broken_off.trial.notes.iter().any(|note| note.contains("broken off")));
    let damaged = seconds.replacen("599,000", "many", 1);
    assert_eq!(read(&damaged, None, None).unwrap_err().to_string(), "line 2: expected a number behind `pktTx`");
}

#[test]
fn seconds_that_begin_again_are_another_test() {
    let test = |opened: &str| dperf_second(0, opened) + &dperf_second(1, opened);
    let tests = read(&format!("{}{}", test("100"), test("200")), None, None).unwrap().tests;
    assert_eq!(tests.len(), 2);
    has(&tests[1], Side::Local, Metric::Connections, 200.0);
    let coloured = test("100").replace("skErr   2", "\u{1b}[31mskErr   2\u{1b}[0m");
    assert_eq!(one(&coloured), one(&test("100")));
}

#[test]
fn what_is_not_known_is_refused_with_its_line() {
    for (text, said) in [
        ("", "it is empty"),
        ("\n\nhello\n", "line 3: not an output that is known"),
        ("{\"a\": ", "line 1: not the JSON that iperf3 writes with -J"),
        ("{}", "line 1: not an object that iperf3 writes with -J"),
        ("Connecting to host a, port 5201\n[ ID] Interval\n", "line 1: this is iperf3's text"),
        (
            "MIGRATED SCTP STREAM TEST from a () port 0 AF_INET to b () port 0 AF_INET\n1 2 3\n",
            "line 1: `MIGRATED SCTP STREAM` is none of the tests",
        ),
    ] {
        let mistake = read(text, None, None).unwrap_err().to_string();
        assert!(mistake.starts_with(said), "{text:?}: {mistake}");
    }
    let mistake = read(WRK, Some(OutputFormat::Dperf), None).unwrap_err().to_string();
    assert!(mistake.contains("first line of a second of dperf's"), "{mistake}");
}

#[test]
fn trials_are_of_one_test() {
    let named = |name: &str, text: &str| (name.to_owned(), one(text));
    let (run, trials) = join(vec![named("a", &tcp().to_string()), named("b", &tcp().to_string())]).unwrap();
    assert_eq!((run.files.as_slice(), trials.len()), (["a".to_owned(), "b".to_owned()].as_slice(), 2));
    let mut other = tcp();
    other["start"]["test_start"]["num_streams"] = 4.into();
    let why = join(vec![named("a", &tcp().to_string()), named("b", &other.to_string())]).unwrap_err();
    assert!(why.contains("streams is 2 in one and 4 in the other"), "{why}");
    let why = join(vec![named("a", WRK), named("b", WRK2)]).unwrap_err();
    assert!(why.contains("tool is wrk in one and wrk2 in the other"), "{why}");
}

/// Beginnings, ends, and bytes of others in their middle.
#[test]
fn no_damage_is_more_than_a_mistake() {
    let whole = [
        tcp().to_string(),
        udp().to_string(),
        stream(&tcp()),
        [STREAM, MAERTS, RR, UDP].concat(),
        untitled(UDP, 2),
        KEYS.to_owned(),
        WRK.to_owned(),
        WRK2.to_owned(),
        dperf_second(1, "100,000"),
    ];
    // xorshift64 (Marsaglia 2003), so that each time the same is tried.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below.max(1) as u64) as usize
    };
    let spare: Vec<char> = "0123456789-+.,:;={}[]\"\\%/ \n\tnaeEinfNaNKMG|\u{e9}\u{0}\u{feff}".chars().collect();
    for text in &whole {
        let letters: Vec<char> = text.chars().collect();
        for step in 0..40 {
            let cut = letters.len() * step / 40;
            exercise(&letters[..cut].iter().collect::<String>());
            exercise(&letters[cut..].iter().collect::<String>());
        }
        for _ in 0..200 {
            let mut damaged = letters.clone();
            for _ in 0..=next(4) {
                let at = next(damaged.len());
                match next(3) {
                    0 => damaged[at] = spare[next(spare.len())],
                    1 => drop(damaged.remove(at)),
                    _ => damaged.insert(at, spare[next(spare.len())]),
                }
            }
            exercise(&damaged.into_iter().collect::<String>());
        }
    }
    exercise(&"[".repeat(100_000));
    exercise(&"{\"event\":".repeat(10_000));
    exercise(&format!("seconds 1 cpuUsage 1\npktRx {}\n", "9".repeat(10_000)));
    exercise(&"1 2\n".repeat(20_000));
}
