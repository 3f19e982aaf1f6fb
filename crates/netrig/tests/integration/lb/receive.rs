//! `netrig lb receive`: where it is put, and its end.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};

use rig_skip::{Lack, skip};
use rustix::process::{Pid, Signal, kill_process};

use super::world::is_root;

fn receive(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_netrig"));
    command.args(["lb", "receive", "--from", "127.0.0.0/8"]).args(arguments);
    command
}

#[test]
fn it_stays_until_it_is_told_to_end() {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    if !is_root() || !mounts.lines().any(|line| line.split(' ').nth(2) == Some("cgroup2")) {
        return skip(Lack::Root, "programs on a cgroup of version 2 need root and a mount of it");
    }
    let mut child = receive(&[]).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert!(
        line.starts_with("ready: programs of /")
            && line.ends_with("see the clients that 127.0.0.0/8 tell of; of UDP none without --device\n"),
        "{line}"
    );
    // Who says nothing is who it is.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (_far, from) = listener.accept().unwrap();
    assert_eq!(from, near.local_addr().unwrap());
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    let without = rest.strip_prefix("accepted: 0 of clients that were told, ").and_then(|rest| rest.split(' ').next());
    assert!(without.is_some_and(|without| without.parse::<u64>().unwrap() >= 1), "{rest}");
    assert!(child.wait().unwrap().success());
}

/// In place of a balancer, whose header the kernel does not know: it comes from this machine itself.
#[test]
fn datagrams_are_counted() {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    if !is_root() || !mounts.lines().any(|line| line.split(' ').nth(2) == Some("cgroup2")) {
        return skip(Lack::Root, "programs on a cgroup of version 2 need root and a mount of it");
    }
    let mut child = receive(&["--device", "lo", "--device", "lo", "--udp-clients", "1024", "--udp-idle", "30"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert!(line.ends_with("see the clients that 127.0.0.0/8 tell of; of UDP by lo\n"), "{line}");
    let (near, far) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
    near.send_to(b"plain", far.local_addr().unwrap()).unwrap();
    let mut heard = [0; 16];
    assert_eq!(far.recv_from(&mut heard).unwrap(), (5, near.local_addr().unwrap()));
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    let datagrams =
        rest.lines().find_map(|line| line.strip_prefix("datagrams: 0 that told a client, 0 of such clients, "));
    let without = datagrams.and_then(|rest| rest.split_once(" without, 0 from others, 0 broken"));
    assert!(without.is_some_and(|(without, _)| without.parse::<u64>().unwrap() >= 1), "{rest}");
    assert!(child.wait().unwrap().success());
}

#[test]
fn what_is_no_cgroup_is_refused() {
    let refused = |arguments: &[&str]| {
        let output = receive(arguments).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (status, said) = refused(&["--from", "10.0.0.1/8"]);
    assert!(status == Some(2) && said.contains("write 10.0.0.0/8"), "{said}");
    let (status, said) = refused(&["--from", "::/0"]);
    assert!(status == Some(2) && said.contains("--from ::/0 is of IPv6 and has all of IPv4 in it"), "{said}");
    let (status, said) = refused(&["--udp-idle", "30"]);
    assert!(status == Some(2) && said.contains("--device"), "{said}");
    if !is_root() {
        return skip(Lack::Root, "eBPF programs need root of the machine");
    }
    let (status, said) = refused(&["--cgroup", "/proc"]);
    assert!(status == Some(3) && said.contains("/proc, which has to be a directory of cgroup v2"), "{said}");
    let (status, said) = refused(&["--device", "nowhere"]);
    assert!(status == Some(3) && said.contains("--device nowhere"), "{said}");
    let (status, said) = refused(&["--cgroup", "/nowhere"]);
    assert!(status == Some(3) && said.contains("/nowhere"), "{said}");
}
