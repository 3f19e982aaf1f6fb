use std::ffi::OsString;
use std::time::Duration;

use rig_stats::histogram::Histogram;

use super::classic::{self, BannerEnd};
use super::command_line::parse;
use super::figures::{DataEnd, EndFigures, Figures, Widths};
use super::layouts::Selection;
use super::options::{Bursts, Layout, Length, Options, Request};
use super::units::Unit;
use super::values::{Direction, Family, SendReceive, Transport};
use super::wire::CpuShares;

fn request(line: &str) -> Request {
    let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
    parse(&words).unwrap_or_else(|error| panic!("{line}: {error}"))
}

fn options(line: &str) -> Options {
    match request(line) {
        Request::Test(options) => *options,
        other => panic!("{line}: {other:?}"),
    }
}

fn refusal(line: &str) -> String {
    let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
    match parse(&words) {
        Err(error) => error.to_string(),
        Ok(request) => panic!("{line}: {request:?}"),
    }
}

const BOTH: Direction = Direction { transmits: true, receives: true };

#[test]
fn without_options_it_is_a_stream_of_ten_seconds() {
    let options = options("");
    assert_eq!(
        (options.test.as_str(), options.length, options.transport),
        ("TCP_STREAM", Length::Seconds(10), Transport::Tcp)
    );
    assert_eq!(options.direction, Direction { transmits: true, receives: false });
    assert_eq!((options.unit(), options.port.remote.as_str()), (Unit::Bits(6), "12865"));
    assert!(options.headers && options.routing_allowed() && options.remarks.is_empty());
}

#[test]
fn names_of_tests_say_what_they_are() {
    for (test, transport, direction, connects, unit) in [
        ("tcp_maerts", Transport::Tcp, Direction { transmits: false, receives: true }, false, Unit::Bits(6)),
        ("TCP_RR", Transport::Tcp, BOTH, false, Unit::Transactions),
        ("TCP_CRR", Transport::Tcp, BOTH, true, Unit::Transactions),
        ("TCP_CC", Transport::Tcp, Direction::default(), true, Unit::Transactions),
        ("UDP_STREAM", Transport::Udp, Direction { transmits: true, receives: false }, false, Unit::Bits(6)),
        ("UDP_RR", Transport::Udp, BOTH, false, Unit::Transactions),
        ("SCTP_RR", Transport::Sctp, BOTH, false, Unit::Transactions),
        ("omni", Transport::Tcp, Direction { transmits: true, receives: false }, false, Unit::Bits(6)),
    ] {
        let options = options(&format!("-t {test}"));
        assert_eq!(
            (options.transport, options.direction, options.connects, options.unit()),
            (transport, direction, connects, unit),
            "{test}"
        );
        assert_eq!(options.request.is_some(), direction == BOTH, "{test}");
    }
    assert!(!options("-t UDP_STREAM").routing_allowed() && options("-t UDP_STREAM -- -R 1").routing_allowed());
    assert!(refusal("-t XTI_TCP_RR").contains("unknown to this netperf"));
    assert!(refusal("-t LOC_CPU").contains("counts CPU time"));
}

#[test]
fn flents_command_line_is_understood() {
    let options = options(
        "-P 0 -v 0 -D -0.20 -4 -Y CS5,CS5 -H 10.0.0.2 -p 12865 -t TCP_STREAM -l 5 -F /dev/urandom -f m -- -H 10.0.0.3 \
         -k THROUGHPUT,LOCAL_CONG_CONTROL -K cubic,cubic",
    );
    assert_eq!(options.demo, Some(Duration::from_millis(200)));
    assert_eq!((options.verbosity, options.headers, options.unit), (0, false, Some(Unit::Bits(6))));
    assert_eq!((options.type_of_service.local, options.type_of_service.remote), (Some(0xa0), Some(0xa0)));
    assert_eq!(options.data.remote.host.as_deref(), Some("10.0.0.3"));
    assert_eq!(options.congestion_control.remote.as_deref(), Some("cubic"));
    assert_eq!((options.layout, options.selection.as_deref()), (Layout::Keys, Some("THROUGHPUT,LOCAL_CONG_CONTROL")));
    assert_eq!((options.fill_file.local.is_some(), options.fill_file.remote), (true, None));
}

#[test]
fn pairs_are_for_both_or_for_one() {
    let test = options("-T 1,2 -a 4096 -b 3 -w 500us -- -m 1400 -M 3000 -s 64K -S 128K,1M -r 10,200 -P ,5001 -D");
    assert_eq!((test.cpu.local, test.cpu.remote), (Some(1), Some(2)));
    assert_eq!(test.alignment.local, SendReceive { send: 4096, receive: 4096 });
    assert_eq!(test.bursts.local, Some(Bursts { sends: 3, interval: Duration::from_micros(500) }));
    assert_eq!((test.send_size.local, test.send_size.remote), (Some(1400), None));
    assert_eq!((test.receive_size.local, test.receive_size.remote), (None, Some(3000)));
    assert_eq!(test.buffer.local, SendReceive { send: Some(65_536), receive: Some(65_536) });
    assert_eq!(test.buffer.remote, SendReceive { send: Some(131_072), receive: Some(1 << 20) });
    assert_eq!((test.data_port.local, test.data_port.remote), (0, 5001));
    assert_eq!(test.request, None, "a stream has no requests");
    let loose = options("-t TCP_RR -- -G 1460b -b 09 -m 0 -s 0 -W 1K -e 1.5 -p 5000");
    assert_eq!((loose.segment_size, loose.first_burst, loose.width.send), (Some(1460), 9, 1024));
    assert_eq!((loose.send_size.local, loose.buffer.local.send), (None, None), "0 is netperf's default");
    assert_eq!((loose.receive_timeout, loose.client_ports), (Some(Duration::from_secs(1)), Some((5000, 5000))));
    assert_eq!(options("-t TCP_RR -- -r 10,200").response, Some(200));
}

#[test]
fn omni_takes_its_direction_from_its_options() {
    assert_eq!(options("-t omni -- -d rr").request, Some(1));
    assert_eq!(options("-t omni -- -m ,100").direction, Direction { transmits: false, receives: true });
    assert_eq!(options("-t omni -- -r 1,1 -T udp").transport, Transport::Udp);
    assert_eq!(options("-t omni -- -c").direction, Direction::default(), "connections alone");
    assert!(refusal("-t omni -- -c -d xmit").contains("both directions"));
    assert!(refusal("-t omni -- -c -d rr -T udp").contains("with connections"));
}

#[test]
fn confidence_is_bounded_as_netperf_bounds_it() {
    let of = |line: &str| options(line).confidence.unwrap();
    let asked = of("-I 99,5 -i 100,1");
    assert_eq!((asked.level, asked.most, asked.least, asked.result_only), (99, 30, 3, false));
    assert!((asked.width - 0.05).abs() < 1e-9);
    assert!(of("-r -i 5").result_only && of("-I 95 -r").result_only);
    assert!((of("-I 95").width - 0.05).abs() < 1e-9, "the level is no width");
    assert_eq!((of("-i 5").level, of("-i 3,9").most), (99, 9));
    assert_eq!(refusal("-I 90"), "Only 95% and 99% confidence level is supported");
    assert!(refusal("-I 95,0").contains("above 0"));
}

#[test]
fn a_time_of_gos_is_what_netperf_makes_of_it_and_a_remark() {
    let odd = options("-l 1m0s");
    assert_eq!(odd.length, Length::Seconds(1_000_000));
    assert!(odd.remarks[0].starts_with("-l 1m0s is 1000000 s"), "{:?}", odd.remarks);
    assert_eq!(options("-l 10s").length, Length::Seconds(10));
    assert_eq!(options("-l -1M").length, Length::Units(1 << 20));
    assert!(options("-l -1000").remarks.is_empty());
    assert!(refusal("-l 9999999999").contains("up to"));
    assert!(refusal("-t UDP_RR -l -100").contains("give a time"));
}

#[test]
fn wrong_options_are_told_in_getopts_words() {
    for (line, said) in [
        ("-0", "netperf: invalid option -- '0'"),
        ("-l", "netperf: option requires an argument -- 'l'"),
        ("-- -z", "netperf: invalid option -- 'z'"),
    ] {
        match request(line) {
            Request::Usage(Some(text)) => assert_eq!(text, said),
            other => panic!("{line}: {other:?}"),
        }
    }
    assert!(matches!(request("-h"), Request::Usage(None)));
    assert!(matches!(request("-- -h"), Request::TestUsage));
    assert!(matches!(request("-V"), Request::Version));
    assert!(matches!(request("-t TCP_RR -- -k ?"), Request::Selectors { lines: false }));
    assert!(matches!(request("-t TCP_RR -- -O ?"), Request::Selectors { lines: true }));
    assert!(matches!(request("-t UUID"), Request::Uuid(uuid) if uuid.len() == 36));
}

#[test]
fn what_has_no_meaning_here_is_refused_by_name() {
    for line in [
        "-k 1",
        "-K 1",
        "-- -B",
        "-- -g",
        "-- -i 1",
        "-- -j 4",
        "-- -V",
        "-- -w 1",
        "-- -H 10.0.0.0/24",
        "-- -l 4",
        "-t TCP_CRR -- -p 6000 -P ,6000",
    ] {
        assert!(refusal(line).len() > 20, "{line}");
    }
    assert!(options("stray -l 1").remarks[0].contains("'stray'"));
}

fn figures<'a>(options: &'a Options, latencies: Option<Histogram>) -> Figures<'a> {
    let cpu =
        CpuShares { busy: 25.0, user: 1.5, system: 20.0, cpus: 4, peak: 80.0, peak_cpu: 2, ..CpuShares::default() };
    let end = EndFigures {
        buffer: SendReceive { send: 16_384, receive: 131_072 },
        buffer_end: SendReceive { send: 2_626_560, receive: 6_291_456 },
        send_size: 16_384,
        receive_size: 131_072,
        width: SendReceive { send: 2, receive: 2 },
        alignment: SendReceive { send: 8, receive: 8 },
        bytes_sent: 1_250_000_000,
        bytes_received: 1_250_000_000,
        send_calls: 76_294,
        receive_calls: 10_000,
        cpu: Some(cpu),
        cpu_percent: if options.cpu_usage.local { 25.0 } else { -1.0 },
        service_demand: if options.cpu_usage.local { 8.192 } else { -1.0 },
        cpu_method: if options.cpu_usage.local { 'S' } else { 'U' },
        cpus: 4,
        priority: -1,
        type_of_service: -1,
        congestion_control: "cubic".into(),
        ..EndFigures::default()
    };
    let data = |host: &str, port| DataEnd { host: host.into(), port, family: 2 };
    Figures {
        options,
        unit: options.unit(),
        local: end.clone(),
        remote: end,
        source: data("10.0.0.1", 40_000),
        destination: data("10.0.0.2", 40_001),
        elapsed: 10.0,
        throughput: 1000.0,
        transaction_rate: 1000.0,
        round_trip: 1000.0,
        iterations: 1,
        widths: Widths { throughput: 7.5, local_cpu: 3.25, remote_cpu: 1.0 },
        unconfident: options.confidence.is_some(),
        segment_size: 1448,
        latencies,
    }
}

#[test]
fn classic_layouts_are_netperfs() {
    let mut all = String::new();
    for line in [
        "",
        "-c -C",
        "-P 0 -B brand",
        "-P 0 -v 0 -B brand",
        "-v 0 -c",
        "-v 2",
        "-t TCP_MAERTS -c",
        "-t TCP_MAERTS -v 2",
        "-t TCP_RR",
        "-t TCP_RR -c -C",
        "-t TCP_RR -f m",
        "-t TCP_RR -f k -c",
        "-t TCP_RR -f u -c",
        "-t TCP_RR -v 2",
        "-t TCP_CRR",
        "-t TCP_CRR -c",
        "-t TCP_CRR -v 2",
        "-t UDP_STREAM",
        "-t UDP_STREAM -c -C",
        "-t UDP_STREAM -v 0",
        "-t UDP_RR",
        "-I 95,5",
    ] {
        let options = options(line);
        all += &format!("netperf {line}\n{}--\n", classic::report(&figures(&options, None)));
    }
    insta::assert_snapshot!(all);
}

#[test]
fn banners_have_what_is_in_use() {
    let end = |name: &str, address: &str| BannerEnd {
        name: name.into(),
        address: address.into(),
        port: 0,
        family: Family::Inet,
    };
    let (source, destination) = (end("0.0.0.0", "0.0.0.0"), end("server", "10.0.0.2"));
    let banner = |line: &str| classic::banner(&options(line), &source, &destination);
    assert_eq!(
        banner(""),
        "MIGRATED TCP STREAM TEST from 0.0.0.0 (0.0.0.0) port 0 AF_INET to server (10.0.0.2) port 0 AF_INET\n"
    );
    assert!(
        banner("-t TCP_RR -I 99,5 -D 1 -T 1,1 -- -D -b 4")
            .ends_with(" : +/-2.500% @ 99% conf.  : nodelay : demo : first burst 4 : cpu bind\n")
    );
    assert!(banner("-t omni").starts_with("OMNI Send TEST from"));
    assert!(banner("-t TCP_CRR").starts_with("MIGRATED TCP Connect/Request/Response TEST from"));
}

fn latencies() -> Histogram {
    let mut latencies = Histogram::new();
    (1..=100).for_each(|us| latencies.record(us * 1000));
    latencies
}

#[test]
fn selectors_are_lines_columns_or_a_table() {
    let options = options("-t TCP_RR -- -o MIN_LATENCY,P50_LATENCY,P99_LATENCY,THROUGHPUT,THROUGHPUT_UNITS,NONSENSE");
    let selection = Selection::of(&options).unwrap();
    assert!(selection.needs_latencies());
    assert_eq!(Selection::unknown(&options), ["NONSENSE"]);
    let figures = figures(&options, Some(latencies()));
    assert_eq!(
        selection.report(Layout::Csv, &figures),
        "Minimum Latency Microseconds,50th Percentile Latency Microseconds,99th Percentile Latency \
         Microseconds,Throughput,Throughput Units\n1,50,99,1000.00,Trans/s\n"
    );
    assert_eq!(
        selection.report(Layout::Keys, &figures),
        "MIN_LATENCY=1\nP50_LATENCY=50\nP99_LATENCY=99\nTHROUGHPUT=1000.00\nTHROUGHPUT_UNITS=Trans/s\n"
    );
    insta::assert_snapshot!(selection.report(Layout::Columns, &figures));
}

#[test]
fn selections_come_from_words_files_and_the_test() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("selectors");
    std::fs::write(&path, "throughput,elapsed time (sec)\nPROTOCOL,what\n").unwrap();
    let of = |list: &str| {
        let options = options(&format!("-- -k {list}"));
        Selection::of(&options).unwrap().report(Layout::Keys, &figures(&options, None))
    };
    assert_eq!(of(path.to_str().unwrap()), "THROUGHPUT=1000.00\nELAPSED_TIME=10.00\nPROTOCOL=TCP\nOUTPUT_NONE= \n");
    assert_eq!(of("throughput"), "THROUGHPUT=1000.00\n");
    assert_eq!(of("THROUGHPUT;PROTOCOL"), "THROUGHPUT=1000.00\nPROTOCOL=TCP\n");
    let every = of("all");
    assert_eq!(every.lines().count(), 173, "all but the two that say nothing");
    for line in [
        "LOCAL_CPU_PERCENT_USER=1.50",
        "DIRECTION=Send",
        "REMOTE_SOCKET_TOS=0xffffffff",
        "LSS_SIZE_REQ=-1",
        "BURST_SIZE=0",
    ] {
        assert!(every.lines().any(|each| each == line), "{line}\n{every}");
    }
    let without = options("-t TCP_MAERTS -c -- -k");
    let shown = Selection::of(&without).unwrap().report(Layout::Keys, &figures(&without, None));
    assert!(
        shown.starts_with("RSS_SIZE_END=")
            && shown.contains("LOCAL_CPU_METHOD=S")
            && shown.ends_with("SD_UNITS=usec/KB\n"),
        "{shown}"
    );
    assert!(Selection::of(&options("-- -o no-such-file")).unwrap_err().to_string().contains("no-such-file"));
}

#[test]
fn histograms_have_a_row_for_each_power_of_ten() {
    let options = options("-t TCP_RR -v 2");
    let mut latencies = latencies();
    latencies.record(250_000_000_000);
    insta::assert_snapshot!(classic::histogram(&figures(&options, Some(latencies))));
}
