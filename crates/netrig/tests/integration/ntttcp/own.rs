//! Both ends are netrig's, or the other end is a stranger.

use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::process::Command;

use super::process::{Process, free_base, netrig, pair, run_for_a_while, until_listening, until_logged};

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
        assert!((received - 1_024_000.0 / (1024.0 * 1024.0)).abs() < 1e-3, "{received}");
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
            // Datagrams without a receiver are lost, so the sender may come first.
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
    if let Err(error) = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)) {
        return rig_skip::skip(rig_skip::Lack::Ipv6, error);
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
    refused("-s -m 1,*,127.0.0.1 -rt", 2, &["-rt is not honoured", "netrig rr"]);
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

#[test]
fn who_asks_for_the_version_gets_it_and_the_command_ends() {
    let home = tempfile::tempdir().unwrap();
    for name in ["ntttcp", "ntttcps", "ntttcpr"] {
        let path = home.path().join(name);
        symlink(env!("CARGO_BIN_EXE_netrig"), &path).unwrap();
        for options in ["-V", "-VV", "-V -V", "--version"] {
            let said = Process::start(&mut Command::new(&path), options, home.path()).end().succeeded();
            assert!(said.out.contains(concat!("(netrig ", env!("CARGO_PKG_VERSION"), ")")), "{options}: {said:#?}");
            assert!(said.out.contains("-r"), "{options}: {said:#?}");
        }
    }
    // Details of a test, as always.
    let (receiving, _) = pair(1, "-r -P 1 -t 1 -V", "-s 127.0.0.1 -P 1 -n 1 -t 1 -V");
    assert!(receiving.succeeded().out.contains("server address"));
}
