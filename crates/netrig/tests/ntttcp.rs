//! `netrig ntttcp` against itself, against recordings of the original, and, where it is on PATH, against the original.
//! All traffic is on loopback.
#![allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use netrig::frontend::ntttcp::sync::{Action, Cycle, Event, Receiver, Sender, Terms};
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;

/// Whatever is waited for has come about long before, unless it never will.
const PATIENCE: Duration = Duration::from_secs(60);

/// A port below some free ones: nobody else takes them, because they are below what the kernel hands out.
fn free_base(ports: u16) -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = 12_000 + (std::process::id() % 400) as u16 * 40;
    for _ in 0..400 {
        let base = start.wrapping_add(NEXT.fetch_add(ports + 2, Ordering::Relaxed)) % 30_000;
        let base = base.max(2_000);
        let free = |port| {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok()
                && UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok()
        };
        if (base..=base + ports).all(free) {
            return base + 1;
        }
    }
    panic!("no {ports} ports in a row are free");
}

fn netrig() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_netrig"));
    command.arg("ntttcp");
    command
}

/// The original, if it is on PATH.
fn original(test: &str) -> Option<PathBuf> {
    let found = std::env::split_paths(&std::env::var_os("PATH")?).map(|dir| dir.join("ntttcp")).find(|p| p.is_file());
    let told = found.as_ref().and_then(|path| Command::new(path).arg("-h").output().ok());
    match told.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()) {
        Some(text) if text.starts_with("NTTTCP for Linux") => {
            eprintln!("{test}: runs against {}", text.lines().next().unwrap_or_default());
            found
        }
        _ => {
            eprintln!("{test}: SKIPPED, because there is no ntttcp-for-linux on PATH");
            None
        }
    }
}

/// A process of a test; killed when the test fails.
struct Process(Option<Child>);

impl Process {
    fn start(command: &mut Command, options: &str, home: &Path) -> Self {
        let child = command.args(options.split_whitespace()).current_dir(home);
        Self(Some(child.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()))
    }

    fn interrupt(&self) {
        let pid = Pid::from_raw(self.0.as_ref().unwrap().id() as i32).unwrap();
        kill_process(pid, Signal::INT).unwrap();
    }

    fn is_running(&mut self) -> bool {
        self.0.as_mut().unwrap().try_wait().unwrap().is_none()
    }

    /// Waits for its end, and tells its status and all that it said.
    #[track_caller]
    fn end(mut self) -> Said {
        let deadline = Instant::now() + PATIENCE;
        while self.is_running() {
            assert!(Instant::now() < deadline, "a process does not end");
            thread::sleep(Duration::from_millis(10));
        }
        let Output { status, stdout, stderr } = self.0.take().unwrap().wait_with_output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Said { status: status.code(), out: text(stdout), err: text(stderr) }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[derive(Debug)]
struct Said {
    status: Option<i32>,
    out: String,
    err: String,
}

impl Said {
    #[track_caller]
    fn succeeded(self) -> Self {
        assert_eq!(self.status, Some(0), "{self:#?}");
        self
    }

    /// The total of bytes in the Linux layout.
    #[track_caller]
    fn bytes(&self) -> u64 {
        let line = self.out.lines().find_map(|line| line.split_once("total bytes\t:"));
        line.unwrap_or_else(|| panic!("no total: {self:#?}")).1.trim().parse().unwrap()
    }

    /// The numbers below a heading of the Windows layout.
    #[track_caller]
    fn row(&self, heading: &str) -> Vec<f64> {
        let mut lines = self.out.lines().skip_while(|line| !line.trim().starts_with(heading));
        let row = lines.nth(2).unwrap_or_else(|| panic!("no '{heading}': {self:#?}"));
        row.split_whitespace().map(|word| word.parse().unwrap()).collect()
    }
}

/// Waits until someone listens on a TCP port. Looks at the kernel's table: a connection would take part in the test.
#[track_caller]
fn until_listening(port: u16) {
    let deadline = Instant::now() + PATIENCE;
    let pattern = format!(":{port:04X} ");
    let listens = |path: &str| {
        let table = fs::read_to_string(path).unwrap_or_default();
        table.lines().any(|line| {
            let mut words = line.split_whitespace().skip(1);
            words.next().is_some_and(|local| format!("{local} ").ends_with(&pattern)) && words.nth(1) == Some("0A")
        })
    };
    while !listens("/proc/net/tcp") && !listens("/proc/net/tcp6") {
        assert!(Instant::now() < deadline, "nobody listens on port {port}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until a log (`-O`) has a line with `text`.
#[track_caller]
fn until_logged(log: &Path, text: &str) {
    let deadline = Instant::now() + PATIENCE;
    while !fs::read_to_string(log).unwrap_or_default().contains(text) {
        assert!(Instant::now() < deadline, "'{text}' does not come into {}", log.display());
        thread::sleep(Duration::from_millis(10));
    }
}

/// Lets a test run for a while: long enough for some bytes wherever it runs.
fn run_for_a_while(log: &Path) {
    until_logged(log, "Network activity progressing...");
    thread::sleep(Duration::from_millis(700));
}

/// A receiver and its sender, both netrig, with `-p` and the options given.
#[track_caller]
fn pair(ports: u16, receiver: &str, sender: &str) -> (Said, Said) {
    let home = tempfile::tempdir().unwrap();
    let base = free_base(ports);
    let receiving = Process::start(&mut netrig(), &format!("{receiver} -p {base}"), home.path());
    until_listening(base + ports - 1);
    let sending = Process::start(&mut netrig(), &format!("{sender} -p {base}"), home.path());
    (receiving.end(), sending.end())
}

#[test]
fn the_studies_commands_run_as_they_are_written() {
    for (ports, receiver, sender, length) in [
        (1, "-r -m 1,*,127.0.0.1 -rb 2M -t 1", "-s -m 1,*,127.0.0.1 -l 128k -t 1", 131_072.0),
        (1, "-r -m 1,*,127.0.0.1 -rb 2M -a 16 -t 1", "-s -m 1,*,127.0.0.1 -l 128k -a 2 -t 1", 131_072.0),
        (1, "-r -m 1,*,127.0.0.1 -rb 2M -t 1 -ndl", "-s -m 1,*,127.0.0.1 -l 1390 -t 1 -ndl", 1390.0),
        (64, "-r -a 8 -m 64,*,127.0.0.1 -t 1", "-s -a 8 -m 64,*,127.0.0.1 -t 1 -thr 100", 65_536.0),
    ] {
        let (receiving, sending) = pair(ports, receiver, sender);
        for said in [&receiving, &sending] {
            assert_eq!(said.status, Some(0), "{said:#?}");
            for heading in [
                "Thread  Time(s) Throughput(KB/s) Avg B / Compl",
                "#####  Totals:  #####",
                "   Bytes(MEG)    realtime(s) Avg Frame Size Throughput(MB/s)",
                "Throughput(Buffers/s) Cycles/Byte       Buffers",
                "DPCs(count/s) Pkts(num/DPC)   Intr(count/s) Pkts(num/intr)",
                "Packets Sent Packets Received Retransmits Errors Avg. CPU %",
            ] {
                assert!(said.out.contains(heading), "no '{heading}': {said:#?}");
            }
            let threads = said.out.lines().skip_while(|line| !line.starts_with("======")).skip(1);
            let rows: Vec<&str> = threads.take_while(|line| !line.is_empty()).collect();
            assert_eq!(rows.len(), usize::from(ports), "{said:#?}");
            assert!(said.row("Bytes(MEG)")[0] > 0.0, "{said:#?}");
        }
        let each = sending.row("Thread  Time(s)")[3];
        assert!(each == length || each == 0.0, "{each} bytes a send: {sending:#?}");
    }
}

#[test]
fn a_throttled_sender_keeps_to_its_rate() {
    let (receiving, sending) = pair(4, "-r -m 4,*,127.0.0.1 -t 2 -v", "-s -m 4,*,127.0.0.1 -t 2 -l 8k -thr 500");
    // 500 KB/s are 512 bytes a millisecond.
    let most = 4.0 * 512_000.0 / (1024.0 * 1024.0) * 1.05;
    for said in [receiving.succeeded(), sending.succeeded()] {
        let (seconds, rate) = (said.row("Bytes(MEG)")[1], said.row("Bytes(MEG)")[3]);
        // A message for each thread may go beforehand.
        let most = most + 4.0 * 8.0 / 1024.0 / seconds;
        assert!(rate > 0.0 && rate <= most, "{rate} MB/s of {most}: {said:#?}");
    }
}

#[test]
fn a_number_of_buffers_is_sent_to_the_last() {
    for (receiver, sender) in [
        ("-r -m 2,*,127.0.0.1 -v", "-s -m 2,*,127.0.0.1 -l 10k -n 50"),
        ("-r -m 2,*,127.0.0.1 -ns -a 4", "-s -m 2,*,127.0.0.1 -l 10k -n 50 -ns -a 3"),
    ] {
        let (receiving, sending) = pair(2, receiver, sender);
        assert_eq!(sending.succeeded().row("Throughput(Buffers/s)")[2], 100.0);
        let received = receiving.succeeded().row("Bytes(MEG)")[0];
        assert!(received > 0.0 && received <= 1_024_000.0 / (1024.0 * 1024.0), "{received}");
    }
}

#[test]
fn programs_called_by_the_originals_names_are_the_originals() {
    let home = tempfile::tempdir().unwrap();
    for (receiver, sender) in [("ntttcp", "ntttcp"), ("ntttcpr", "ntttcps")] {
        let link = |name: &str| {
            let path = home.path().join(name);
            let _ = symlink(env!("CARGO_BIN_EXE_netrig"), &path);
            Command::new(path)
        };
        let base = free_base(1);
        let (r, s) = if receiver == "ntttcp" { ("-r", "-s") } else { ("", "") };
        let receiving =
            Process::start(&mut link(receiver), &format!("{r} -m 1,*,127.0.0.1 -t 1 -p {base}"), home.path());
        until_listening(base);
        let sending = Process::start(&mut link(sender), &format!("{s} -m 1,*,127.0.0.1 -t 1 -p {base}"), home.path());
        for said in [receiving.end().succeeded(), sending.end().succeeded()] {
            let windows = said.out.contains("Bytes(MEG)");
            assert_eq!(windows, receiver == "ntttcpr", "{said:#?}");
        }
    }
}

#[test]
fn the_linux_dialect_prints_the_linux_layout_and_both_ends_agree() {
    let (receiving, sending) =
        pair(2, "-r 127.0.0.1 -P 2 -W 1 -t 1 -C 1 -V", "-s 127.0.0.1 -P 2 -n 2 -l 2 -W 1 -t 1 -C 1 -V -b 32K");
    let labels = [
        "*** sender role",
        "connections:\t\t\t 2 X 2 X 2",
        "4 threads created",
        "8 connections created in",
        "Network activity progressing...",
        "Real-time throughput: ",
        "Test warmup completed.",
        "Test run completed.",
        "Test cooldown is in progress...",
        "Test cycle finished.",
        "\tThread\tTime(s)\tThroughput",
        "8 connections tested",
        "#####  Totals:  #####",
        "test duration\t:",
        "total bytes\t:",
        "\t throughput\t:",
        "\t retrans segs\t:",
        "cpu cores\t:",
        "\t cpu speed\t:",
        "\t user\t\t:",
        "\t system\t\t:",
        "\t idle\t\t:",
        "\t iowait\t\t:",
        "\t softirq\t:",
        "\t cycles/byte\t:",
        "cpu busy (all)\t:",
        "tcpi rtt\t\t:",
    ];
    let (sending, receiving) = (sending.succeeded(), receiving.succeeded());
    let mut rest = sending.out.as_str();
    for label in labels {
        let at = rest.find(label).unwrap_or_else(|| panic!("no '{label}' where it belongs: {sending:#?}"));
        rest = &rest[at + label.len()..];
    }
    assert!(receiving.out.contains("3 threads created") && !receiving.out.contains("connections tested"));
    assert!(sending.bytes() > 0 && receiving.bytes() > 0);
    // Complete sends of 32 KB, all of them.
    assert_eq!(sending.bytes() % 32_768, 0);
}

#[test]
fn without_synchronisation_the_first_connection_starts_the_clock() {
    for (receiver, sender) in [
        ("-r -m 2,*,127.0.0.1 -t 1 -N", "-s -m 2,*,127.0.0.1 -t 1 -N"),
        ("-r 127.0.0.1 -P 1 -t 1 -N -u", "-s 127.0.0.1 -P 1 -n 1 -t 2 -N -u -b 1K -B 80M"),
    ] {
        let home = tempfile::tempdir().unwrap();
        let base = free_base(2);
        let receiving = Process::start(&mut netrig(), &format!("{receiver} -p {base}"), home.path());
        if receiver.contains("-u") {
            // Datagrams that nobody takes are lost, so the sender may come first.
        } else {
            until_listening(base + 1);
        }
        let sending = Process::start(&mut netrig(), &format!("{sender} -p {base}"), home.path());
        assert!(sending.end().succeeded().bytes() > 0);
        assert!(receiving.end().succeeded().bytes() > 0);
    }
}

#[test]
fn datagrams_and_version_6() {
    let (receiving, sending) = pair(0, "-r 127.0.0.1 -P 2 -t 1 -u", "-s 127.0.0.1 -P 2 -n 1 -l 2 -t 1 -u -b 1K -B 80M");
    let (sent, received) = (sending.succeeded().bytes(), receiving.succeeded().bytes());
    assert!(sent > 0 && sent % 1024 == 0 && received > 0 && received % 1024 == 0, "{sent} {received}");
    if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
        eprintln!("datagrams_and_version_6: SKIPPED its second part, because ::1 is not there");
        return;
    }
    for options in ["-6 -P 2", "-6 -P 2 -u -b 1K"] {
        let (receiving, sending) = pair(0, &format!("-r ::1 {options} -t 1"), &format!("-s ::1 {options} -n 1 -t 1"));
        assert!(sending.succeeded().bytes() > 0 && receiving.succeeded().bytes() > 0);
    }
}

#[test]
fn several_clients_begin_when_the_last_has_come() {
    let home = tempfile::tempdir().unwrap();
    let base = free_base(1);
    let receiving = Process::start(&mut netrig(), &format!("-r 127.0.0.1 -P 1 -t 1 -M -V -p {base}"), home.path());
    until_listening(base);
    let client = |last: &str| {
        Process::start(&mut netrig(), &format!("-s 127.0.0.1 -P 1 -n 1 -t 1 -p {base} {last}"), home.path())
    };
    let early = client("-O early.log");
    until_logged(&home.path().join("early.log"), "waiting for the last client");
    let last = client("-L");
    let early = early.end().succeeded();
    assert!(early.out.contains("waiting for the last client to join the test"), "{early:#?}");
    assert!(last.end().succeeded().bytes() > 0 && early.bytes() > 0 && receiving.end().succeeded().bytes() > 0);
}

#[test]
fn a_receiver_that_holds_serves_test_after_test_until_it_is_interrupted() {
    let home = tempfile::tempdir().unwrap();
    let base = free_base(1);
    let receiving = Process::start(&mut netrig(), &format!("-r 127.0.0.1 -P 1 -t 1 -H -p {base}"), home.path());
    until_listening(base);
    for _ in 0..2 {
        let options = format!("-s 127.0.0.1 -P 1 -n 1 -t 1 -p {base}");
        assert!(Process::start(&mut netrig(), &options, home.path()).end().succeeded().bytes() > 0);
    }
    receiving.interrupt();
    let said = receiving.end();
    assert_eq!(said.status, Some(130), "{said:#?}");
    assert_eq!(said.out.matches("#####  Totals:  #####").count(), 2, "{said:#?}");
}

#[test]
fn an_interrupted_end_prints_its_totals_and_tells_the_other() {
    let home = tempfile::tempdir().unwrap();
    for (options, sender_first) in [("-t 500", true), ("-t 0", true), ("-t 500", false)] {
        let base = free_base(1);
        let receiving = Process::start(&mut netrig(), &format!("-r 127.0.0.1 -P 1 {options} -p {base}"), home.path());
        until_listening(base);
        let log = home.path().join(format!("{base}.log"));
        let all = format!("-s 127.0.0.1 -P 1 -n 1 {options} -p {base} -O {}", log.display());
        let mut sending = Process::start(&mut netrig(), &all, home.path());
        run_for_a_while(&log);
        assert!(sending.is_running());
        if sender_first { &sending } else { &receiving }.interrupt();
        let (sent, received) = (sending.end(), receiving.end());
        assert!(sent.bytes() > 0 && received.bytes() > 0);
        assert_eq!(received.status, Some(0), "{received:#?}");
        // A sender whose receiver goes away says so.
        assert_eq!(sent.status, Some(if sender_first { 0 } else { 4 }), "{sent:#?}");
        assert_eq!(received.out.contains("test exited because sender side was interrupted"), sender_first);
    }
}

#[test]
fn files_have_what_the_original_writes() {
    let home = tempfile::tempdir().unwrap();
    let base = free_base(1);
    let more = "-V --show-tcp-retrans --show-nic-packets lo --show-dev-interrupts LOC";
    let receiving =
        Process::start(&mut netrig(), &format!("-r 127.0.0.1 -P 1 -t 1 -x -j -O -p {base} {more}"), home.path());
    until_listening(base);
    let options = format!("-s 127.0.0.1 -P 1 -n 1 -t 1 -xs.xml -j s.json -p {base} {more}");
    let sending = Process::start(&mut netrig(), &options, home.path()).end().succeeded();
    let receiving = receiving.end().succeeded();
    let read = |name: &str| fs::read_to_string(home.path().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    for (xml, root, json, said) in [
        ("s.xml", "ntttcps", "s.json", &sending),
        ("ntttcp-for-linux-log.xml", "ntttcpr", "ntttcp-for-linux-log.json", &receiving),
    ] {
        let (xml, json): (String, serde_json::Value) = (read(xml), serde_json::from_str(&read(json)).unwrap());
        let megabytes = format!("{:.6}", said.bytes() as f64 / 1e6);
        assert!(
            xml.starts_with(&format!("<{root} computername=\"")) && xml.ends_with(&format!("</{root}>\n")),
            "{xml}"
        );
        assert!(xml.contains(&format!("\t<total_bytes metric=\"MB\">{megabytes}</total_bytes>\n")), "{xml}");
        assert_eq!(json[root]["totalBytes"]["value"], megabytes);
        assert_eq!(json[root]["parameters"]["syncPort"], (base - 1).to_string());
        assert_eq!(json[root]["threads"][0]["index"], "0");
        assert_eq!(json[root]["tcp_retransmits"].as_array().unwrap().len(), 8);
    }
    let log = read("ntttcp-for-linux-log.log");
    assert!(log.lines().all(|line| receiving.out.contains(line)) && log.contains("total bytes\t:"), "{log}");
    for label in ["tcp retransmit:", "\t slowStart_retrans/sec\t:", "\t tx_packets\t:", "\t pkts/interrupt\t:"] {
        assert!(sending.out.contains(label), "no '{label}': {sending:#?}");
    }
    // Windows' XML is appended to, and takes the place of the tables.
    for _ in 0..2 {
        let base = free_base(1);
        let receiving =
            Process::start(&mut netrig(), &format!("-r -m 1,*,127.0.0.1 -t 1 -xml -p {base} -rb -1"), home.path());
        until_listening(base);
        Process::start(&mut netrig(), &format!("-s -m 1,*,127.0.0.1 -t 1 -p {base} -hpt -l 64k"), home.path())
            .end()
            .succeeded();
        assert!(!receiving.end().succeeded().out.contains("Totals"));
    }
    let xml = read("xml.txt");
    assert_eq!(xml.matches("<ntttcpr computername=").count(), 2, "{xml}");
    assert!(
        xml.contains("\t\t<recv_socket_buff>-1</recv_socket_buff>\n") && xml.contains("<thread index=\"0\">"),
        "{xml}"
    );
}

#[test]
fn what_cannot_be_had_is_named_with_the_next_step() {
    let home = tempfile::tempdir().unwrap();
    let refused = |options: &str, status: i32, words: &[&str]| {
        let said = Process::start(&mut netrig(), options, home.path()).end();
        assert_eq!(said.status, Some(status), "{options}: {said:#?}");
        let all = format!("{}{}", said.out, said.err);
        words.iter().for_each(|word| assert!(all.contains(word), "{options}: no '{word}' in {all}"));
    };
    let base = free_base(1);
    let taken = TcpListener::bind((Ipv4Addr::UNSPECIFIED, base)).unwrap();
    refused(&format!("-r -P 1 -p {base}"), 4, &[&format!("port {base} is in use"), "ss -lntup"]);
    drop(taken);
    let _taken = TcpListener::bind((Ipv4Addr::UNSPECIFIED, base - 1)).unwrap();
    refused(&format!("-r -P 1 -p {base}"), 4, &[&format!("sync port {} is in use", base - 1), "-p"]);
    let quiet = free_base(1);
    refused(&format!("-s 127.0.0.1 -P 1 -p {quiet}"), 4, &[&format!("127.0.0.1:{}", quiet - 1), "start it first"]);
    refused(&format!("-s 127.0.0.1 -P 1 -p {quiet} -N"), 4, &[&format!("127.0.0.1:{quiet}"), "nothing listens"]);
    refused("-r 192.0.2.1 -P 1 -N", 4, &["192.0.2.1", "no interface"]);
    refused("-s -P 1", 2, &["-s needs the receiver's address"]);
    refused("-s -m 1,*,127.0.0.1 -rt", 2, &["-rt is not honoured", "tcp-rr"]);
    refused("-s -m 1,*,127.0.0.1 -l 128k -P 4", 2, &["-l", "-P", "--dialect"]);
    refused("-s 127.0.0.1 -y", 2, &["unknown option -y", "-h"]);
    refused("-r -x /nowhere/at/all.xml", 2, &["/nowhere/at/all.xml", "cannot be written"]);
    refused("-r 127.0.0.1 extra", 2, &["'extra'"]);
    refused("-r --show-nic-packets nosuch0", 2, &["nosuch0", "ip link"]);
}

/// A receiver is bothered in many ways, and then used.
#[test]
fn hostile_peers_neither_stop_nor_occupy_a_receiver() {
    let home = tempfile::tempdir().unwrap();
    let base = free_base(1);
    let mut receiving = Process::start(&mut netrig(), &format!("-r 127.0.0.1 -P 1 -t 1 -p {base}"), home.path());
    until_listening(base - 1);
    let connect = |port: u16| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    let mut silent: Vec<TcpStream> = Vec::new();
    for number in 0..1000u32 {
        let mut stream = connect(base - 1);
        // Some say nothing, some half a message, some nonsense, some agree and never begin, some ask for ages.
        let words: &[u8] = match number % 6 {
            0 => b"",
            1 => &[0, 0],
            2 => b"GET / HTTP/1.0\r\n\r\n",
            3 => &[0, 0, 0, 88, 0, 0, 0, 5],
            4 => &[0, 0, 0, 88, 0x7f, 0xff, 0xff, 0xff],
            _ => &[0, 0, 0, 69, 0xff, 0xff, 0xff, 0xff],
        };
        // The receiver may have closed it already.
        let _ = stream.write_all(words);
        silent.push(stream);
        if number % 50 == 0 {
            silent.push(connect(base));
        }
    }
    assert!(receiving.is_running());
    let pid = receiving.0.as_ref().unwrap().id();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let kilobytes: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(kilobytes < 64 * 1024, "{kilobytes} kB");
    let sending = Process::start(&mut netrig(), &format!("-s 127.0.0.1 -P 1 -n 1 -t 1 -p {base}"), home.path());
    assert!(sending.end().succeeded().bytes() > 0);
    assert!(receiving.end().succeeded().bytes() > 0);
}

#[test]
fn a_receiver_survives_a_sender_that_vanishes() {
    let home = tempfile::tempdir().unwrap();
    let base = free_base(1);
    let receiving = Process::start(&mut netrig(), &format!("-r 127.0.0.1 -P 1 -t 500 -p {base}"), home.path());
    until_listening(base);
    let all = format!("-s 127.0.0.1 -P 1 -n 1 -t 500 -p {base} -O sender.log");
    let mut sending = Process::start(&mut netrig(), &all, home.path());
    run_for_a_while(&home.path().join("sender.log"));
    assert!(sending.is_running());
    drop(sending);
    // Its test is over, long before its time.
    assert!(receiving.end().succeeded().bytes() > 0);
}

#[derive(Deserialize)]
struct Exchanges {
    tool: String,
    exchange: Vec<Exchange>,
}

#[derive(Deserialize)]
struct Exchange {
    name: String,
    receiver: String,
    senders: Vec<String>,
    own: u32,
    many: bool,
    lines: Vec<String>,
}

enum Line {
    ToReceiver(u32, Vec<u8>),
    ToSender(u32, Vec<u8>),
    Over,
}

impl Exchange {
    fn lines(&self) -> Vec<Line> {
        let line = |line: &String| {
            if line == "over" {
                return Line::Over;
            }
            let (head, hex) = line.split_once(' ').unwrap();
            let bytes = (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
            let client = head[..1].parse().unwrap();
            if head.ends_with('>') { Line::ToReceiver(client, bytes) } else { Line::ToSender(client, bytes) }
        };
        self.lines.iter().map(line).collect()
    }
}

fn exchanges() -> Exchanges {
    let exchanges: Exchanges = toml::from_str(include_str!("ntttcp/exchanges.toml")).unwrap();
    assert_eq!(exchanges.tool, "NTTTCP for Linux 1.4.3");
    assert!(exchanges.exchange.iter().all(|e| !e.receiver.is_empty() && !e.senders.is_empty()));
    exchanges
}

/// What the original's senders said gets the answers that the original's receiver gave.
#[test]
fn our_receiver_answers_recorded_senders_as_the_original_did() {
    for exchange in exchanges().exchange {
        let mut receiver = Receiver::new(Terms::AtLeast(Cycle::Seconds(exchange.own)), exchange.many);
        (0..exchange.senders.len() as u32).for_each(|client| receiver.connected(client));
        let mut replies: Vec<(u32, Vec<u8>)> = Vec::new();
        for line in exchange.lines() {
            match line {
                Line::ToReceiver(client, bytes) => {
                    let actions = receiver.bytes(client, &bytes);
                    replies.extend(actions.into_iter().filter_map(|action| match action {
                        Action::Reply(client, message) => Some((client, message.to_vec())),
                        _ => None,
                    }));
                }
                Line::ToSender(client, bytes) => match replies.iter().position(|(to, _)| *to == client) {
                    Some(at) => assert_eq!(replies.remove(at), (client, bytes), "{}", exchange.name),
                    // Said twice to the last client.
                    None => assert_eq!((exchange.many, bytes), (true, vec![0, 0, 0, b'R']), "{}", exchange.name),
                },
                Line::Over => receiver.finished(),
            }
        }
        assert!(replies.is_empty(), "{}: not recorded: {replies:?}", exchange.name);
    }
}

/// What the original's receiver said makes our senders say what the original's senders said.
#[test]
fn our_senders_answer_a_recorded_receiver_as_the_originals_did() {
    for exchange in exchanges().exchange {
        let option = |text: &str, name: &str| -> u32 {
            let mut words = text.split_whitespace().skip_while(|word| *word != name);
            words.nth(1).map_or(0, |word| word.parse().unwrap())
        };
        for (client, command) in exchange.senders.iter().enumerate() {
            let cycle = ["-W", "-t", "-C"].iter().map(|name| option(command, name)).sum();
            let (mut sender, hello) = Sender::new(Cycle::Seconds(cycle));
            let mut says: Vec<Vec<u8>> = vec![hello.to_vec()];
            for line in exchange.lines() {
                match line {
                    Line::ToReceiver(from, bytes) if from == client as u32 => {
                        // An interruption and a farewell are whoever holds the sender's.
                        let expected = if says.is_empty() { sender.exit().to_vec() } else { says.remove(0) };
                        assert_eq!(bytes, expected, "{}", exchange.name);
                    }
                    Line::ToSender(to, bytes) if to == client as u32 => match sender.bytes(&bytes) {
                        Ok(events) => {
                            for event in events {
                                match event {
                                    Event::Free { next } => says.push(next.to_vec()),
                                    Event::Agreed(_) => says.push(sender.start(command.ends_with("-L")).to_vec()),
                                    Event::Wait | Event::Run | Event::State(_) => {}
                                }
                            }
                        }
                        Err(error) => assert!(exchange.name.contains("busy"), "{}: {error}", exchange.name),
                    },
                    _ => {}
                }
            }
            assert!(says.is_empty(), "{}: not recorded: {says:?}", exchange.name);
        }
    }
}

/// The same over sockets: a sender that does what the recording says, against the whole receiver.
#[test]
fn the_receiver_process_serves_a_recorded_sender() {
    let exchange = exchanges().exchange.into_iter().find(|e| e.name == "a test of equal times").unwrap();
    let home = tempfile::tempdir().unwrap();
    let base = free_base(1);
    let receiving = Process::start(&mut netrig(), &format!("-r 127.0.0.1 -P 1 -t 1 -p {base}"), home.path());
    until_listening(base);
    until_listening(base - 1);
    let to = |port| TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).unwrap();
    let (mut sync, mut data) = (to(base - 1), to(base));
    sync.set_read_timeout(Some(PATIENCE)).unwrap();
    for line in exchange.lines() {
        match line {
            Line::ToReceiver(_, bytes) => sync.write_all(&bytes).unwrap(),
            Line::ToSender(_, bytes) => {
                let mut answer = vec![0; bytes.len()];
                sync.read_exact(&mut answer).unwrap();
                assert_eq!(answer, bytes);
            }
            Line::Over => {}
        }
    }
    let until = Instant::now() + Duration::from_millis(500);
    while Instant::now() < until {
        data.write_all(&[b'A'; 10_000]).unwrap();
        thread::sleep(Duration::from_millis(5));
    }
    drop((sync, data));
    assert!(receiving.end().succeeded().bytes() > 0);
}

/// And a receiver that does what the recording says, against the whole sender.
#[test]
fn the_sender_process_is_served_by_a_recorded_receiver() {
    let exchange = exchanges().exchange.into_iter().find(|e| e.name == "a test of equal times").unwrap();
    let home = tempfile::tempdir().unwrap();
    let base = free_base(1);
    let listen = |port| TcpListener::bind(SocketAddr::new(IpAddr::from(Ipv4Addr::LOCALHOST), port)).unwrap();
    let (sync, data) = (listen(base - 1), listen(base));
    let sending = Process::start(&mut netrig(), &format!("-s 127.0.0.1 -P 1 -n 1 -t 1 -p {base}"), home.path());
    let (mut sync, _) = sync.accept().unwrap();
    sync.set_read_timeout(Some(PATIENCE)).unwrap();
    let reader = thread::spawn(move || {
        let (mut data, _) = data.accept().unwrap();
        let (mut total, mut buffer) = (0u64, vec![0; 1 << 20]);
        while let Ok(n @ 1..) = data.read(&mut buffer) {
            total += n as u64;
        }
        total
    });
    for line in exchange.lines() {
        match line {
            Line::ToReceiver(_, bytes) => {
                let mut question = vec![0; bytes.len()];
                sync.read_exact(&mut question).unwrap();
                assert_eq!(question, bytes);
            }
            Line::ToSender(_, bytes) => sync.write_all(&bytes).unwrap(),
            Line::Over => {}
        }
    }
    // Our sender asks whether the test is over before it goes; the original's receiver says nothing any more.
    let mut question = [0; 4];
    sync.read_exact(&mut question).unwrap();
    assert_eq!(question, [0, 0, 0, b'X']);
    drop(sync);
    let sent = sending.end().succeeded().bytes();
    let received = reader.join().unwrap();
    assert!(sent > 0 && received >= sent, "{sent} sent, {received} received");
}

/// Our options and the original's for the other end, and what the original's end is called.
#[track_caller]
fn with_the_original(test: &str, ports: u16, we_send: bool, receiver: &str, sender: &str) {
    let Some(original) = original(test) else { return };
    let home = tempfile::tempdir().unwrap();
    let base = free_base(ports);
    let (mut theirs, mut ours) = (Command::new(original), netrig());
    let (receiving, sending) = if we_send { (&mut theirs, &mut ours) } else { (&mut ours, &mut theirs) };
    let receiving = Process::start(receiving, &format!("{receiver} -p {base}"), home.path());
    match receiver.contains("-u") {
        true => thread::sleep(Duration::from_millis(500)),
        false => until_listening(base + ports - 1),
    }
    if !receiver.contains("-N") {
        until_listening(base - 1);
    }
    let sending = Process::start(sending, &format!("{sender} -p {base}"), home.path());
    let sending = sending.end();
    let receiving = receiving.end();
    for said in [&sending, &receiving] {
        assert_eq!(said.status, Some(0), "{sending:#?}\n{receiving:#?}");
        if said.out.contains("Bytes(MEG)") {
            assert!(said.row("Bytes(MEG)")[0] > 0.0, "{said:#?}");
        } else {
            assert!(said.bytes() > 0, "{sending:#?}\n{receiving:#?}");
        }
    }
}

#[test]
fn live_we_send_to_the_original() {
    for (ports, receiver, sender) in [
        (2, "-r 127.0.0.1 -P 2 -t 1", "-s 127.0.0.1 -P 2 -n 2 -l 2 -t 1"),
        (2, "-r 127.0.0.1 -P 2 -t 1 -e -W 1 -C 1", "-s 127.0.0.1 -P 2 -n 1 -W 1 -t 1 -C 1"),
        (1, "-r 127.0.0.1 -P 1 -t 2", "-s 127.0.0.1 -P 1 -n 1 -t 1"),
        (1, "-r -m 1,*,127.0.0.1 -t 1", "-s -m 1,*,127.0.0.1 -l 128k -a 2 -t 1"),
        (2, "-r -m 2,*,127.0.0.1 -t 1 -N", "-s -m 2,*,127.0.0.1 -t 1 -N"),
        (1, "-r 127.0.0.1 -P 1 -t 1 -u", "-s 127.0.0.1 -P 1 -n 1 -t 1 -u -b 1K -B 80M"),
    ] {
        with_the_original("live_we_send_to_the_original", ports, true, receiver, sender);
    }
    if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok() {
        with_the_original("live_we_send_to_the_original", 1, true, "-6 -r ::1 -P 1 -t 1", "-6 -s ::1 -P 1 -n 1 -t 1");
    }
}

#[test]
fn live_the_original_sends_to_us() {
    for (ports, receiver, sender) in [
        (2, "-r 127.0.0.1 -P 2 -t 1", "-s 127.0.0.1 -P 2 -n 2 -l 2 -t 1"),
        (2, "-r 127.0.0.1 -P 2 -t 1 -W 1 -C 1", "-s 127.0.0.1 -P 2 -n 1 -W 1 -t 1 -C 1"),
        (1, "-r 127.0.0.1 -P 1 -t 2", "-s 127.0.0.1 -P 1 -n 1 -t 1"),
        (1, "-r -m 1,*,127.0.0.1 -rb 2M -a 16 -t 1", "-s -m 1,*,127.0.0.1 -t 1"),
        (2, "-r -m 2,*,127.0.0.1 -t 1 -N", "-s -m 2,*,127.0.0.1 -t 1 -N"),
        (1, "-r 127.0.0.1 -P 1 -t 1 -u", "-s 127.0.0.1 -P 1 -n 1 -t 1 -u -b 1K -B 80M"),
    ] {
        with_the_original("live_the_original_sends_to_us", ports, false, receiver, sender);
    }
    if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok() {
        with_the_original("live_the_original_sends_to_us", 1, false, "-6 -r ::1 -P 1 -t 1", "-6 -s ::1 -P 1 -n 1 -t 1");
    }
}

#[test]
fn live_clients_of_both_kinds_share_a_test() {
    let Some(original) = original("live_clients_of_both_kinds_share_a_test") else { return };
    let home = tempfile::tempdir().unwrap();
    for we_receive in [true, false] {
        let base = free_base(1);
        let (mut ours, mut theirs) = (netrig(), Command::new(&original));
        let receiver = if we_receive { &mut ours } else { &mut theirs };
        let receiving = Process::start(receiver, &format!("-r 127.0.0.1 -P 1 -t 2 -M -p {base}"), home.path());
        until_listening(base);
        until_listening(base - 1);
        let client = format!("-s 127.0.0.1 -P 1 -n 1 -t 1 -p {base}");
        let early = Process::start(&mut netrig(), &format!("{client} -O {base}.log"), home.path());
        until_logged(&home.path().join(format!("{base}.log")), "waiting for the last client");
        let mut last = if we_receive { Command::new(&original) } else { netrig() };
        let last = Process::start(&mut last, &format!("{client} -L"), home.path());
        assert!(early.end().succeeded().bytes() > 0 && last.end().succeeded().bytes() > 0);
        assert!(receiving.end().succeeded().bytes() > 0);
    }
}

#[test]
fn live_an_interrupted_sender_ends_the_other_end() {
    let Some(original) = original("live_an_interrupted_sender_ends_the_other_end") else { return };
    let home = tempfile::tempdir().unwrap();
    for we_send in [true, false] {
        let base = free_base(1);
        let (mut ours, mut theirs) = (netrig(), Command::new(&original));
        let (receiver, sender) = if we_send { (&mut theirs, &mut ours) } else { (&mut ours, &mut theirs) };
        let receiving = Process::start(receiver, &format!("-r 127.0.0.1 -P 1 -t 500 -p {base}"), home.path());
        until_listening(base);
        until_listening(base - 1);
        let all = format!("-s 127.0.0.1 -P 1 -n 1 -t 500 -p {base} -O {base}.log");
        let sending = Process::start(sender, &all, home.path());
        run_for_a_while(&home.path().join(format!("{base}.log")));
        sending.interrupt();
        assert!(sending.end().succeeded().bytes() > 0 && receiving.end().succeeded().bytes() > 0);
    }
}
