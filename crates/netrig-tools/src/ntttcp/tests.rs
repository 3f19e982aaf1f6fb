//! Every option of both originals, and what the layouts and files look like.

use std::time::Duration;

use proptest::prelude::*;
use rig_load::worker::embedded::{Counts, Protocol};

use super::options::{OptionError, OptionSpec, OptionUse, Value};
use super::report::{ConnectionFigures, Results};
use super::test_plan::{Layout, Length, LinuxOutput, Role, TestPlan, WindowsOutput};
use super::{Dialect, help, linux, linux_file, linux_text, times, windows, windows_text};
use crate::counters::{Difference, Snapshot};
use crate::ntttcp::sync::Cycle;
use crate::test_run::{EndReason, Measurement};

/// The short options of ntttcp-for-linux 1.4.3, as its call of getopt_long has them.
const LINUX_LETTERS: &str = "r::s::DMLeHm:P:a:n:l:6up:f::b:B:W:t:C:NO::x::j::QVh";
const LINUX_WORDS: [&str; 5] =
    ["--show-tcp-retrans", "--show-nic-packets", "--show-dev-interrupts", "--fq-rate-limit", "--no-delay"];

/// The options of NTttcp for Windows 5.40, as its usage lists them.
const WINDOWS_WORDS: [&str; 43] = [
    "-s", "-r", "-l", "-n", "-p", "-sp", "-ns", "-to", "-a", "-rb", "-sb", "-u", "-w", "-rt", "-d", "-t", "-cd", "-wu",
    "-v", "-6", "-wa", "-nic", "-xml", "-ndl", "-na", "-hpt", "-uso", "-uro", "-uc", "-x", "-hv", "-nsb", "-thr",
    "-brn", "-lm", "-icp", "-cfi", "-es", "-sam", "-qos", "-jm", "-ps", "-m",
];

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

fn linux(line: &str) -> Result<Option<Box<TestPlan>>, OptionError> {
    linux::parse(&words(line), &[0, 1])
}

fn windows(line: &str) -> Result<Option<Box<TestPlan>>, OptionError> {
    windows::parse(&words(line), None, &[0, 1])
}

#[track_caller]
fn plan(parsed: Result<Option<Box<TestPlan>>, OptionError>) -> TestPlan {
    *parsed.unwrap().unwrap()
}

/// Each honoured option, alone on a command line that is good without it, changes the test; each other is refused by
/// name with a reason. `value` gives a value that is not the default.
#[track_caller]
fn every_option_counts(
    options: &[OptionSpec],
    parse: impl Fn(&str) -> Result<Option<Box<TestPlan>>, OptionError>,
    base: impl Fn(&str) -> &'static str,
    value: impl Fn(&str) -> &'static str,
    told_otherwise: &[&str],
) {
    for spec in options {
        let base = base(spec.name);
        let given = if spec.value == Value::None { "" } else { value(spec.name) };
        let line = format!("{base} {} {given}", spec.name);
        match spec.use_of_it {
            OptionUse::Honoured if told_otherwise.contains(&spec.name) => {
                parse(&line).unwrap_or_else(|error| panic!("{line}: {error}"));
            }
            OptionUse::Honoured => {
                let changed = parse(&line).unwrap_or_else(|error| panic!("{line}: {error}"));
                assert_ne!(changed, parse(base).unwrap(), "{line}: taken, and nothing comes of it");
            }
            OptionUse::Refused(why) => {
                let error = parse(&line).unwrap_err();
                assert_eq!(error, OptionError::Refused { option: spec.name, why }, "{line}");
                let text = error.to_string();
                assert!(text.starts_with(spec.name) && why.contains(": ") && why.len() > 30, "{text}");
            }
        }
        if let Value::Needed(_) | Value::Several(_) = spec.value {
            let error = parse(&format!("{base} {}", spec.name)).unwrap_err();
            assert!(error.to_string().contains(spec.name), "{error}");
        }
    }
}

#[test]
fn every_option_of_linux_is_honoured() {
    let mut letters: Vec<String> = LINUX_LETTERS.chars().filter(|c| *c != ':').map(|c| format!("-{c}")).collect();
    letters.extend(LINUX_WORDS.map(str::to_owned));
    let known: Vec<&str> = linux::OPTIONS.iter().map(|spec| spec.name).collect();
    assert!(letters.iter().all(|letter| known.contains(&letter.as_str())), "{known:?}");
    assert_eq!(known.len(), letters.len() + 2, "netrig's own two are --dialect and --help");
    // The arity, as the call of getopt_long says it.
    for spec in linux::OPTIONS.iter().filter(|spec| spec.name.len() == 2) {
        let after = LINUX_LETTERS.split_once(&spec.name[1..]).unwrap().1;
        let colons = after.chars().take_while(|c| *c == ':').count();
        let expected = match spec.value {
            Value::None => 0,
            Value::Needed(_) | Value::Several(_) => 1,
            Value::Optional(_) => 2,
        };
        assert_eq!(colons, expected, "{}", spec.name);
    }
    let receivers = ["-M", "-e", "-H", "-r"];
    every_option_counts(
        &linux::OPTIONS,
        linux,
        |name| match name {
            "-6" => "-s ::1",
            "-r" | "-s" => "",
            name if receivers.contains(&name) => "-r 127.0.0.1",
            _ => "-s 127.0.0.1",
        },
        |name| match name {
            "-r" | "-s" => "10.0.0.9",
            "-a" => "127.0.0.9",
            "-m" => "3,1,10.0.0.9",
            "-b" | "-B" | "--fq-rate-limit" => "32M",
            "-O" | "-x" | "-j" => "/dev/null",
            "--show-nic-packets" => "lo",
            "--show-dev-interrupts" => "eth",
            "--dialect" => "linux",
            "-f" => "30000",
            _ => "7",
        },
        &["--dialect"],
    );
}

#[test]
fn every_option_of_windows_is_honoured_or_refused_by_name() {
    let known: Vec<&str> = windows::OPTIONS.iter().map(|spec| spec.name).collect();
    assert!(WINDOWS_WORDS.iter().all(|word| known.contains(word)), "{known:?}");
    assert_eq!(known.len(), WINDOWS_WORDS.len() + 3, "netrig's own three are -h, --help and --dialect");
    let numa = std::path::Path::new("/sys/devices/system/node/node0").exists();
    if !numa {
        rig_skip::skip(rig_skip::Lack::NumaNodes, "-na");
    }
    let options: Vec<OptionSpec> = windows::OPTIONS.into_iter().filter(|spec| numa || spec.name != "-na").collect();
    every_option_counts(
        &options,
        windows,
        |name| match name {
            "-m" => "-s",
            "-s" | "-r" => "-m 1,*,127.0.0.1 -t 9",
            _ => "-s -m 1,*,127.0.0.1 -t 9",
        },
        |name| match name {
            "-m" => "2,1,10.0.0.9 1,*,contoso",
            "-l" => "32k",
            "-nic" => "127.0.0.9",
            "-xml" => "/dev/null",
            "-na" => "0",
            "-thr" => "500",
            "--dialect" => "windows",
            _ => "7",
        },
        // Without -m there is no test at all to compare with; output is never held back; without -s or -r it receives.
        &["--dialect", "-nsb", "-m", "-r"],
    );
}

#[test]
fn what_is_unknown_or_out_of_range_is_named() {
    for (parsed, words) in [
        (linux("-s 127.0.0.1 -y"), &["-y", "-h"][..]),
        (linux("-s 127.0.0.1 --show"), &["--show", "--show-tcp-retrans"]),
        (linux("-s 127.0.0.1 --colour"), &["--colour"]),
        (linux("-s 127.0.0.1 --no-delay=1"), &["--no-delay", "'1'"]),
        (linux("-r -s 127.0.0.1"), &["-r and -s"]),
        (linux("-s 127.0.0.1 -P 513"), &["-P 513", "512"]),
        (linux("-s 127.0.0.1 -l 1001"), &["-l 1001", "1000"]),
        (linux("-s 127.0.0.1 -t -5"), &["-t -5"]),
        (linux("-s 127.0.0.1 -t 99999999"), &["-t 99999999"]),
        (linux("-s 127.0.0.1 -p 65530"), &["beyond 65535"]),
        (linux("-s 127.0.0.1 -p 1"), &["-p 1"]),
        (linux("-s 127.0.0.1 -b ten"), &["-b ten", "128K"]),
        (linux("-s 127.0.0.1 -B 1"), &["-B", "less than a byte"]),
        (linux("-s 127.0.0.1 -u --no-delay"), &["--no-delay", "-u"]),
        (linux("-r -L"), &["-L", "sender"]),
        (linux("-s 127.0.0.1 -M"), &["-M", "receiver"]),
        (linux("-r -a 127.0.0.1"), &["-a", "sender"]),
        (linux("-s -m 0,*,127.0.0.1"), &["-m 0,*,127.0.0.1", "1 to 512"]),
        (linux("-s -m 1,7,127.0.0.1"), &["CPU 7", "[0, 1]"]),
        (linux("-s -m 1,*"), &["-m 1,*", "4,*,10.0.1.4"]),
        (linux("-s -m 1,*,a -m 1,*,b"), &["one mapping"]),
        (linux("-s 127.0.0.1 -- more"), &["'more'"]),
        (windows("-s -t 5"), &["-m is missing"]),
        (windows("-s -m 1,*,"), &["-m 1,*,"]),
        (windows("-s -m 999,*,h 2,*,h"), &["1001 threads"]),
        (windows("-s -m 1,*,h -m 1,*,h"), &["-m", "once"]),
        (windows("-s -m 1,*,h -t 0"), &["-t 0"]),
        (windows("-s -m 1,*,h -a 64"), &["-a 64", "63"]),
        (windows("-s -m 1,*,h -l 1x"), &["-l 1x", "128k"]),
        (windows("-s -m 1,*,h -sb 0"), &["-sb 0", "not honoured"]),
        (windows("-s -m 1,*,h -u -a 2"), &["-a with -u"]),
        (windows("-s -m 1,*,h -u -l 70000"), &["65507"]),
        (windows("-r -m 1,*,h -u -ns"), &["-u with -ns", "-t"]),
        (windows("-r -m 1,*,h -thr 5"), &["-thr", "sender"]),
        (windows("-s -m 1,*,h -t 5 stray"), &["'stray'"]),
        (windows("-s -m 1,*,h -P 4 -M"), &["-M"]),
        (windows("-s -m 1,*,h -zz"), &["-zz", "--dialect windows"]),
        (windows("-s -m 1,*,h -na 1000"), &["-na 1000", "no such node"]),
    ] {
        let error = parsed.unwrap_err().to_string();
        words.iter().for_each(|word| assert!(error.contains(word), "'{word}' is not in: {error}"));
    }
}

#[test]
fn linux_options_are_read_as_getopt_reads_them() {
    let long = plan(linux("-s 10.0.0.1 -6 -V -P 4 -f -n 2 --fq-rate-limit 10G -t 9 -N"));
    let short = plan(linux("-6Vs10.0.0.1 -P4 -n2 -f --fq=10G -t9 -N"));
    assert_eq!(long, short);
    assert_eq!((long.source_port, long.pacing), (Some(25_001), Some(10_000_000_000u64.div_euclid(8 * 8))));
    assert_eq!((long.threads(), long.connections_per_thread), (8, 1));
    let mapped = plan(linux("-s -m 8,*,192.168.1.1 -n 16"));
    assert_eq!((mapped.ports(), mapped.threads()), (8, 128));
    assert_eq!(plan(linux("-s -n 16 -m 8,1,192.168.1.1")).threads(), 8);
    assert_eq!(plan(linux("-s -m 8,1,192.168.1.1")).cpus, [1]);
    let job_of = |line| plan(linux(line));
    assert_eq!(job_of("-s h.").source_port, None);
    assert_eq!(job_of("-s h. -f 80").source_port, Some(25_001));
    assert_eq!(job_of("-s h. -f0").source_port, None);
    assert_eq!(job_of("-s h. -t 0").length, Length::Endless);
    assert_eq!(job_of("-s h. -B 8G -P 1 -n 1").throttle, Some(1_000_000_000));
    assert_eq!(job_of("-s h. -u -b 1M").message, 65_507);
    assert_eq!(job_of("-r").message, 65_536);
    assert_eq!((job_of("-r").role, job_of("").role), (Role::Receiver, Role::Receiver));
    assert!(linux("-s 10.0.0.1 -h").unwrap().is_none() && linux("--help").unwrap().is_none());
}

#[test]
fn windows_options_have_windows_meanings() {
    let job_of = |line| plan(windows(line));
    let study = job_of("-s -m 1,*,10.0.1.4 -l 128k -a 2 -t 15");
    assert_eq!((study.message, study.outstanding, study.length), (131_072, Some(2), Length::Seconds(15)));
    assert_eq!(study.cycle(), Cycle::Seconds(15));
    let study = job_of("-r -m 1,*,10.0.1.4 -rb 2M -a 16 -t 15");
    assert_eq!((study.receive_buffer, study.outstanding, study.message), (Some(2 << 20), Some(16), 65_536));
    let study = job_of("-s -a 8 -m 64,*,192.168.51.31 -t 9999 -thr 10000");
    assert_eq!((study.threads(), study.throttle), (64, Some(10_240_000)));
    assert_eq!(job_of("-S -M 1,*,h -T 5 -NDL -A").outstanding, Some(2));
    assert_eq!(job_of("-s -m 1,*,h").length, Length::Messages { each: 20_480, at_most: 10_800 });
    let counted = job_of("-s -m 1,*,h -n 5k -t 60 -wu 3 -cd 3");
    assert_eq!(counted.length, Length::Messages { each: 5120, at_most: 60 });
    assert_eq!((counted.warm_up, counted.cool_down), (0, 0), "-n disables them");
    assert!(counted.remarks.iter().any(|remark| remark.contains("-wu and -cd are left out")), "{:?}", counted.remarks);
    assert!(job_of("-s -m 1,*,h -t 60 -wu 3 -cd 3").remarks.is_empty());
    assert!(windows("-s -r -m 1,*,h -t 5").unwrap_err().to_string().contains("exclude each other"));
    assert_eq!(job_of("-r -m 1,*,h").length, Length::AsSender);
    assert_eq!(job_of("-s -m 1,*,h -u").message, 128);
    assert_eq!(job_of("-s -m 1,*,h -rb -1").receive_buffer, None);
    assert_eq!(job_of("-s -m 4,0,1.2.3.4 2,*,contoso -t 5").ports(), 6);
    assert_eq!(job_of("-s -m 1,*,h -to 0").stall_timeout, None);
    assert_eq!(job_of("-s -m 1,*,h").stall_timeout, Some(Duration::from_secs(600)));
    let named = |role| windows::parse(&words("-m 1,*,h"), Some(role), &[0]).unwrap().unwrap().role;
    assert_eq!((named(Role::Sender), named(Role::Receiver)), (Role::Sender, Role::Receiver));
}

#[test]
fn times_follow_what_is_agreed() {
    let seconds = Duration::from_secs;
    let job_of = |line| plan(linux(line));
    let test = job_of("-s h. -W 1 -t 5 -C 2");
    let longer = times(&test, Cycle::Seconds(60));
    assert_eq!((longer.warm_up, longer.window, longer.total), (seconds(1), Some(seconds(5)), Some(seconds(60))));
    let endless = times(&test, Cycle::Endless);
    assert_eq!((endless.window, endless.total), (None, None));
    assert_eq!(times(&job_of("-r -t 0"), Cycle::Seconds(9)).window, None);
}

#[test]
fn the_help_names_every_option() {
    for (dialect, options) in [(Dialect::Linux, &linux::OPTIONS[..]), (Dialect::Windows, &windows::OPTIONS[..])] {
        let text = help::text(dialect);
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for spec in options {
            assert!(words.contains(&format!(" {}", spec.name)) && words.contains(spec.help), "{}: {text}", spec.name);
        }
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    }
}

/// Two threads, two seconds, round numbers.
fn measured() -> Measurement {
    let mut begin = Snapshot { at_ns: 1_000_000_000, cpus: 2, ..Snapshot::default() };
    let mut end = Snapshot { at_ns: 3_000_000_000, cpus: 2, process_ns: 500_000_000, ..Snapshot::default() };
    (end.cpu.user, end.cpu.system, end.cpu.softirq, end.cpu.idle) = (40, 60, 100, 200);
    begin.reading.idle_clocked = true;
    begin.reading.ticks.insert(0, begin.cpu);
    // Two CPUs' time, on one.
    end.reading.at_ns = 4_000_000_000;
    end.reading.ticks.insert(0, end.cpu);
    for (name, value) in [("Tcp.RetransSegs", 12), ("Tcp.OutSegs", 2000), ("Tcp.InSegs", 1000), ("Tcp.InErrs", 1)] {
        begin.protocols.insert(name.into(), 5);
        end.protocols.insert(name.into(), 5 + value);
    }
    end.extensions.insert("TcpExt.TCPLostRetransmit".into(), 3);
    (end.packets, end.chosen_interrupts, end.interrupts, end.receive_softirqs) = ((700, 300), 400, 500, 250);
    let thread = |bytes| Counts { bytes, operations: bytes / 100_000 };
    Measurement {
        machine: Difference { begin, end },
        threads: vec![thread(150_000_000), thread(100_000_000)],
        end: EndReason::Due,
        ran: Duration::from_secs(2),
    }
}

fn results<'a>(plan: &'a TestPlan, measured: &'a Measurement) -> Results<'a> {
    let extra = ConnectionFigures { connections: (plan.role == Role::Sender).then_some(2), rtt_us: Some(123) };
    Results { plan, measured, extra, mhz: Some(2500.0) }
}

#[test]
fn the_linux_log_has_the_originals_lines_and_formulas() {
    let test =
        plan(linux("-s 10.0.0.1 -P 2 -n 1 -V --show-tcp-retrans --show-nic-packets lo --show-dev-interrupts eth"));
    let Layout::Linux(output) = &test.layout else { panic!("{test:?}") };
    let lines = linux_text::lines(&results(&test, &measured()), output);
    let expected = [
        "\tThread\tTime(s)\tThroughput",
        "\t======\t=======\t==========",
        "\t0\t 2.00\t 600.00Mbps",
        "\t1\t 2.00\t 400.00Mbps",
        "2 connections tested",
        "#####  Totals:  #####",
        "test duration\t:2.00 seconds",
        "total bytes\t:250000000",
        // Not above 1000, so not a unit further: the original's rule.
        "\t throughput\t:1000.00Mbps",
        "\t retrans segs\t:12",
        "tcp retransmit:",
        "\t retrans_segments/sec\t:6.00",
        "\t lost_retrans/sec\t:1.50",
        "\t syn_retrans/sec\t:0.00",
        "\t fast_retrans/sec\t:0.00",
        "\t forward_retrans/sec\t:0.00",
        "\t slowStart_retrans/sec\t:0.00",
        "\t retrans_fail/sec\t:0.00",
        "total packets:",
        "\t tx_packets\t:700",
        "\t rx_packets\t:300",
        "interrupts:",
        "\t total\t\t:400",
        "\t interrupts/sec\t:200.000",
        "\t pkts/interrupt\t:2.50",
        "cpu cores\t:2",
        "\t cpu speed\t:2500.000MHz",
        "\t user\t\t:10.00%",
        "\t system\t\t:15.00%",
        "\t idle\t\t:50.00%",
        "\t iowait\t\t:0.00%",
        "\t softirq\t:25.00%",
        // 2500 MHz x 2 s x 2 CPUs x half of them busy, for 250 MB.
        "\t cycles/byte\t:20.00",
        "cpu busy (all)\t:25.00%",
        "tcpi rtt\t\t:123 us",
    ];
    assert_eq!(lines, expected);
    let receiver = plan(linux("-r -u"));
    let lines = linux_text::lines(&results(&receiver, &measured()), &LinuxOutput::default());
    assert!(!lines.iter().any(|line| line.contains("retrans") || line.contains("connections tested")), "{lines:?}");
}

#[test]
fn throughput_has_the_originals_units() {
    for (bytes, text) in [(0, "0.00bps"), (125, "1000.00bps"), (126, "1.01Kbps"), (12_500_000_000, "100.00Gbps")] {
        assert_eq!(linux_text::throughput(bytes, 1.0), text);
    }
    assert_eq!(linux_text::throughput(u64::MAX / 8, 1e-3), "18446744073709.55Gbps");
    assert_eq!(linux_text::throughput(5, 0.0), "0.00bps");
}

#[test]
fn windows_tables_have_the_originals_columns_and_formulas() {
    let test = plan(windows("-s -m 2,*,10.0.0.1 -l 100000 -t 2"));
    let Layout::Windows(output) = &test.layout else { panic!("{test:?}") };
    let text = windows_text::results(&results(&test, &measured()), output);
    let expected = "

Thread  Time(s) Throughput(KB/s) Avg B / Compl
======  ======= ================ =============
     0    2.000        73242.188    100000.000
     1    2.000        48828.125    100000.000


#####  Totals:  #####


   Bytes(MEG)    realtime(s) Avg Frame Size Throughput(MB/s)
================ =========== ============== ================
      238.418579       2.000     125000.000          119.209


Throughput(Buffers/s) Cycles/Byte       Buffers
===================== =========== =============
             1250.000      20.000      2500.000


DPCs(count/s) Pkts(num/DPC)   Intr(count/s) Pkts(num/intr)
============= ============= =============== ==============
      125.000         4.000         250.000          2.000


Packets Sent Packets Received Retransmits Errors Avg. CPU %
============ ================ =========== ====== ==========
        2000             1000          12      1     50.000
";
    assert_eq!(text, expected);
    // A receiver's frames are those that it received.
    let receiver = plan(windows("-r -m 2,*,10.0.0.1 -l 100000 -t 2 -hpt"));
    let Layout::Windows(output) = &receiver.layout else { panic!("{receiver:?}") };
    let text = windows_text::results(&results(&receiver, &measured()), output);
    assert!(
        text.contains("      238.418579       2.000     250000.000          119.209\n") && !text.contains("Thread")
    );
}

#[test]
fn nothing_measured_divides_by_nothing() {
    let nothing = Measurement {
        machine: Difference { begin: Snapshot::default(), end: Snapshot::default() },
        threads: vec![Counts::default()],
        end: EndReason::Interrupted,
        ran: Duration::ZERO,
    };
    for test in [plan(linux("-r -V")), plan(windows("-r -m 1,*,h"))] {
        let results = Results { plan: &test, measured: &nothing, extra: ConnectionFigures::default(), mhz: None };
        let text = match &test.layout {
            Layout::Linux(output) => {
                format!(
                    "{:?}{}{}",
                    linux_text::lines(&results, output),
                    linux_file::xml(&results, output),
                    linux_file::json(&results, output)
                )
            }
            Layout::Windows(output) => windows_text::results(&results, output) + &windows_text::xml(&results, output),
        };
        assert!(!text.contains("NaN") && !text.contains("inf<") && !text.contains("inf\""), "{text}");
    }
}

/// What the original wrote for a sender with -V --show-tcp-retrans, as `xmllint` would list it: names and metrics.
const LINUX_XML: &str = "parameters thread conns_tested total_bytes:MB realtime:s avg_bytes_per_compl:B \
    threads_avg_bytes_per_compl:B avg_frame_size:B throughput:MB/s throughput:mbps throughput:Bps total_buffers \
    throughput:buffers/s avg_packets_per_interrupt:packets/interrupt interrupts:count/sec total_interrupts:count \
    dpcs:count/sec avg_packets_per_dpc:packets/dpc packets_sent packets_received packets_retransmitted errors bufferCount \
    bufferLen tcp_retransmits:retrans_segs tcp_retransmits:retrans_segments_per_sec tcp_retransmits:lost_retrans_per_sec \
    tcp_retransmits:syn_retrans_per_sec tcp_retransmits:fast_retrans_per_sec tcp_retransmits:forward_retrans_per_sec \
    tcp_retransmits:slowStart_retrans_per_sec tcp_retransmits:retrans_fail_per_sec cpu_cores:cpu_cores cpu_speed:MHz \
    user:% system:% idle:% iowait:% softirq:% cycles_per_byte:cycles/byte cpu_busy_all:% io tcp_average_rtt:us os";

#[test]
fn the_linux_xml_has_the_originals_elements_in_order() {
    let test = plan(linux("-s 10.0.0.1 -P 1 -n 2 -V --show-tcp-retrans"));
    let Layout::Linux(output) = &test.layout else { panic!("{test:?}") };
    let xml = linux_file::xml(&results(&test, &measured()), output);
    let mut names = Vec::new();
    for line in
        xml.lines().filter(|line| line.starts_with('\t') && !line.starts_with("\t\t") && !line.starts_with("\t</"))
    {
        let (tag, _) = line.trim_start_matches(['\t', '<']).split_once('>').unwrap();
        let name = tag.replace("cpu cores", "cpu_cores").replace(" metric=\"", ":").replace('"', "");
        names.push(name.split_once(' ').map_or(name.clone(), |(name, _)| name.to_owned()));
    }
    names.dedup_by(|one, other| one == "thread" && other == "thread");
    // Netrig's own stands behind all of the original's.
    assert_eq!(names.pop().as_deref(), Some("cpu_accounting"));
    assert_eq!(names.join(" "), LINUX_XML);
    for value in [
        "<total_bytes metric=\"MB\">250.000000<",
        "<throughput metric=\"KB/s\">75000.000<",
        "<run_time>60<",
        "<sync_port>5000<",
    ] {
        assert!(xml.contains(value), "no {value}: {xml}");
    }
    let json: serde_json::Value =
        serde_json::from_str(&linux_file::json(&results(&test, &measured()), output)).unwrap();
    let body = &json["ntttcps"];
    assert_eq!(body["throughputs"][1], serde_json::json!({"metric": "mbps", "value": "1000.000"}));
    assert_eq!(body["tcpAverageRtt metric"], "123 us");
    assert_eq!(body["cpu"]["value"], "25.000");
    assert_eq!(body["parameters"]["useIOComplPorts"], "NA");
}

#[test]
fn what_would_break_xml_is_escaped() {
    let mut xml = linux_file::XmlWriter::new();
    xml.open("a", &[("name", "<\"&'>\u{7}")]);
    xml.leaf("b", None, "1 < 2 & 3");
    xml.close("a");
    assert_eq!(xml.text(), "<a name=\"&lt;&quot;&amp;&apos;&gt;\">\n\t<b>1 &lt; 2 &amp; 3</b>\n</a>\n");
}

#[test]
fn the_windows_output_of_a_datagram_test_is_of_datagrams() {
    let test = plan(windows("-r -m 1,*,10.0.0.1 -u -l 1000 -t 2"));
    let output = WindowsOutput {
        xml: None,
        hide_threads: true,
        send_buffer: -1,
        receive_buffer: -1,
        timeout_ms: 0,
        throughput_bytes_per_ms: 0,
    };
    assert_eq!(test.protocol, Protocol::Udp);
    let mut measured = measured();
    measured.machine.end.protocols.insert("Udp.InDatagrams".into(), 250_000);
    let text = windows_text::results(&results(&test, &measured), &output);
    assert!(text.contains("       2.000       1000.000 "), "{text}");
    assert!(text.contains("           0           250000           0      0     50.000\n"), "{text}");
}

/// A word of a command line that names no file to be written.
fn word() -> impl Strategy<Value = String> {
    let option = |spec: &OptionSpec| !["-O", "-x", "-j", "-xml"].contains(&spec.name);
    let names: Vec<&str> =
        linux::OPTIONS.iter().chain(&windows::OPTIONS).filter(|spec| option(spec)).map(|spec| spec.name).collect();
    prop_oneof![
        4 => prop::sample::select(names).prop_map(str::to_owned),
        2 => prop::sample::select(vec!["1,*,h", "0", "-1", "16", "128k", "10.0.0.1", "::1", "99999999999999999999", ""])
            .prop_map(str::to_owned),
        1 => "-?-?[a-ik-wy-zé0-9=,*.]{0,6}",
    ]
}

proptest! {
    #[test]
    fn no_command_line_breaks_the_parsers(words in prop::collection::vec(word(), 0..8)) {
        // A letter among others may ask for a file after all.
        prop_assume!(!words.iter().any(|word| word.starts_with('-') && word.contains(['x', 'j', 'O'])));
        let _ = super::dialect::choose(&words);
        for parsed in [linux::parse(&words, &[0, 1]), windows::parse(&words, None, &[0, 1])] {
            match parsed {
                Ok(Some(plan)) => {
                    prop_assert!(plan.threads() > 0 && plan.port > 1 && !plan.mappings.is_empty());
                    prop_assert!(u32::from(plan.port) + plan.ports() - 1 <= 65_535);
                }
                Ok(None) => {}
                Err(error) => prop_assert!(!error.to_string().is_empty()),
            }
        }
    }
}
