//! Names of servers and of addresses of one's own, and a name server that says nothing.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::world::{own, until};

/// Far less than the look-ups would take by themselves.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Every command that is given a server's name, those that are given that of an address to send from, and the status that each ends with when
/// it is stopped.
const COMMANDS: [(i32, &[&str]); 12] = [
    (130, &["stream", "--client", "server.example"]),
    (130, &["rr", "--client", "server.example"]),
    (130, &["udp", "--client", "server.example"]),
    (0, &["iperf3", "-c", "server.example"]),
    (130, &["netperf", "-H", "server.example"]),
    (130, &["netperf", "-N", "-H", "server.example"]),
    (130, &["netperf", "-N", "-H", "127.0.0.1", "--", "-H", "server.example"]),
    (0, &["iperf3", "-c", "127.0.0.1", "-B", "client.example"]),
    (0, &["iperf3", "-c", "127.0.0.1", "--sctp", "-X", "client.example"]),
    (130, &["netperf", "-H", "127.0.0.1", "-L", "client.example"]),
    (130, &["netperf", "-N", "-H", "127.0.0.1", "-L", "client.example"]),
    (130, &["ntttcp", "-s", "-m", "1,*,server.example"]),
];

/// What is asked where names are looked up from here on, and the files that say so.
fn name_server() -> (TempDir, UdpSocket) {
    let own = tempfile::tempdir().unwrap();
    for (file, text) in
        [("resolv.conf", "nameserver 127.0.0.1\noptions timeout:30 attempts:5\n"), ("nsswitch.conf", "hosts: dns\n")]
    {
        let path = own.path().join(file);
        fs::write(&path, text).unwrap();
        let mounted = Command::new("mount").arg("--bind").arg(&path).arg(format!("/etc/{file}")).status().unwrap();
        assert!(mounted.success(), "{file}");
    }
    (own, UdpSocket::bind("127.0.0.1:53").unwrap())
}

#[test]
fn a_look_up_of_a_name_ends_when_the_user_stops() {
    own(|| {
        let (_files, silent) = name_server();
        silent.set_read_timeout(Some(TIMEOUT)).unwrap();
        for (expected, arguments) in COMMANDS {
            let mut client = Command::new(env!("CARGO_BIN_EXE_netrig"))
                .args(arguments)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            silent.recv_from(&mut [0; 512]).unwrap_or_else(|error| panic!("{arguments:?}: {error}"));
            kill_process(Pid::from_child(&client), Signal::INT).unwrap();
            let status = until(TIMEOUT, || client.try_wait().unwrap());
            client.kill().unwrap();
            let said = String::from_utf8(client.wait_with_output().unwrap().stderr).unwrap();
            let status = status.unwrap_or_else(|| panic!("{arguments:?} did not end: {said}"));
            assert_eq!(status.code(), Some(expected), "{arguments:?}: {said}");
            // What is left of its questions.
            silent.set_nonblocking(true).unwrap();
            while silent.recv_from(&mut [0; 512]).is_ok() {}
            silent.set_nonblocking(false).unwrap();
        }
    });
}

/// Of a question about addresses of IPv4 (RFC 1035).
const A: [u8; 2] = [0, 1];

/// The answer to a question about a name's addresses: 127.0.0.1, or none of IPv6; and what kind it asks for.
fn answer(question: &[u8]) -> (Vec<u8>, [u8; 2]) {
    let end = 12 + question[12..].iter().position(|byte| *byte == 0).unwrap() + 5;
    let kind = [question[end - 4], question[end - 3]];
    let address = [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 127, 0, 0, 1];
    let address = if kind == A { &address[..] } else { &[] };
    // An answer with recursion, to one question, with one address or none.
    let counts = [0, 1, 0, u8::from(kind == A), 0, 0, 0, 0];
    ([&question[..2], &[0x81, 0x80], &counts, &question[12..end], address].concat(), kind)
}

#[test]
fn the_name_of_an_address_to_send_from_is_looked_up_once_for_all_streams() {
    own(|| {
        let (_files, names) = name_server();
        let netrig = |arguments: &[&str]| {
            let mut netrig = Command::new(env!("CARGO_BIN_EXE_netrig"));
            netrig.arg("iperf3").args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            netrig
        };
        let mut server = netrig(&["-s", "-1", "--forceflush"]).spawn().unwrap();
        let mut lines = BufReader::new(server.stdout.take().unwrap()).lines().map_while(Result::ok);
        assert!(lines.any(|line| line.contains("Server listening")));
        let asked = thread::spawn(move || {
            let (mut question, mut asked) = ([0; 512], Vec::new());
            loop {
                let (length, from) = names.recv_from(&mut question).unwrap();
                // Nothing is the end.
                if length == 0 {
                    return asked;
                }
                let (answer, family) = answer(&question[..length]);
                asked.push(family);
                names.send_to(&answer, from).unwrap();
            }
        });
        let client = netrig(&["-c", "127.0.0.1", "-B", "client.example", "-P", "4", "-n", "100K"]).output().unwrap();
        server.kill().unwrap();
        server.wait().unwrap();
        UdpSocket::bind("127.0.0.1:0").unwrap().send_to(&[], "127.0.0.1:53").unwrap();
        let [out, said] = [&client.stdout, &client.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
        assert!(client.status.success() && out.contains("[SUM]"), "{out}{said}");
        let asked = asked.join().unwrap();
        assert_eq!(asked.iter().filter(|family| **family == A).count(), 1, "{asked:?}");
    });
}
