//! Names of servers and of addresses of one's own, and a name server that says nothing.

use std::fs;
use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::world::{own, until};

/// Far less than the look-ups would take by themselves.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Every command that is given a server's name, those that are given that of an address to send from, and the status that each ends with when
/// it is stopped.
const COMMANDS: [(i32, &[&str]); 11] = [
    (130, &["stream", "--client", "server.example"]),
    (130, &["rr", "--client", "server.example"]),
    (130, &["udp", "--client", "server.example"]),
    (0, &["iperf3", "-c", "server.example"]),
    (130, &["netperf", "-H", "server.example"]),
    (130, &["netperf", "-N", "-H", "server.example"]),
    (130, &["netperf", "-N", "-H", "127.0.0.1", "--", "-H", "server.example"]),
    (0, &["iperf3", "-c", "127.0.0.1", "-B", "client.example"]),
    (130, &["netperf", "-H", "127.0.0.1", "-L", "client.example"]),
    (130, &["netperf", "-N", "-H", "127.0.0.1", "-L", "client.example"]),
    (130, &["ntttcp", "-s", "-m", "1,*,server.example"]),
];

#[test]
fn a_look_up_of_a_name_ends_when_the_user_stops() {
    own(|| {
        let own = tempfile::tempdir().unwrap();
        for (file, text) in [
            ("resolv.conf", "nameserver 127.0.0.1\noptions timeout:30 attempts:5\n"),
            ("nsswitch.conf", "hosts: dns\n"),
        ] {
            let path = own.path().join(file);
            fs::write(&path, text).unwrap();
            let mounted = Command::new("mount").arg("--bind").arg(&path).arg(format!("/etc/{file}")).status().unwrap();
            assert!(mounted.success(), "{file}");
        }
        let silent = UdpSocket::bind("127.0.0.1:53").unwrap();
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
