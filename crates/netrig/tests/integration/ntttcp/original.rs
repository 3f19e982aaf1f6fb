//! One end is the original, where it is on PATH.

use std::net::{Ipv6Addr, TcpListener};
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use super::process::{Process, free_base, netrig, run_for_a_while, until_listening, until_logged};

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
            rig_skip::skip(rig_skip::Lack::Program("ntttcp"), "no ntttcp-for-linux on PATH");
            None
        }
    }
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
