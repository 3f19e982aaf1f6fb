//! `netrig iperf3` between two containers, each in a network namespace of its own.

use std::net::Ipv4Addr;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::bench::one_node;
use super::world::{self, NETRIG, expect, netrig, text};

/// Kills what it holds when a test fails.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn containers_are_measured_with_iperf3() {
    world::own(|| {
        let runtime = tempfile::tempdir().unwrap();
        let scenario = one_node(runtime.path(), "one", &["a/sender"], &["a/receiver"]);
        let command = |arguments: &[&str]| -> Command {
            let mut command = netrig();
            command.args(arguments).env("NETRIG_RUN", runtime.path().join("netrig"));
            command
        };
        expect(&command(&["up", &scenario]).output().unwrap(), 0);
        let (addresses, _) = expect(&command(&["shell", "a/receiver", "hostname", "-I"]).output().unwrap(), 0);
        let is_ipv4 = |word: &&str| word.parse::<Ipv4Addr>().is_ok();
        let address = addresses.split_whitespace().find(is_ipv4).unwrap_or_else(|| panic!("{addresses}"));
        let server = command(&["shell", "a/receiver", NETRIG, "iperf3", "-s"]).stdout(Stdio::null()).spawn().unwrap();
        let server = Running(server);
        let client = |options: &str| {
            let mut words = vec!["shell", "a/sender", NETRIG, "iperf3", "-c", address, "-J", "-t", "1"];
            words.extend(options.split_whitespace());
            command(&words).output().unwrap()
        };
        // The server may not listen yet.
        let mut tries = 0;
        while client("").status.code() != Some(0) {
            tries += 1;
            assert!(tries < 100, "{}", text(&client("").stdout));
            thread::sleep(Duration::from_millis(50));
        }
        for options in
            ["-P 2", "-R", "--bidir", "-u -b 20M", "-u -b 20M -R", "-Z --get-server-output", "--bind-dev eth0"]
        {
            let (out, _) = expect(&client(options), 0);
            let json: Value = serde_json::from_str(&out).unwrap();
            let bytes = json.pointer("/end/sum_received/bytes").and_then(Value::as_f64).unwrap();
            assert!(bytes > 0.0, "{options}: {json:#}");
            if options.contains("-u") {
                // What the interface carries without fragments: the control connection's segment size.
                let length = json.pointer("/start/test_start/blksize").and_then(Value::as_f64).unwrap();
                assert!((500.0..9000.0).contains(&length), "{options}: {length}");
            }
        }
        drop(server);
        expect(&command(&["down"]).output().unwrap(), 0);
        world::assert_nothing_left("after down");
    });
}
