//! IPv6 link-local addresses, which mean something on one link alone: two links between two namespaces, with the same
//! addresses on both.

use std::io::Read;
use std::process::{Child, Command, Output, Stdio};

use rig_sys::netlink::{Netlink, VethPair};
use rig_sys::netns::NetNs;
use serde_json::Value;

use super::lab::{SHORT, Server, TIMEOUT, client, fails_with};
use super::world::{own, until};

const SERVER: &str = "fe80::1";
const CLIENT: &str = "fe80::2";

/// The clients' namespace: the servers' is the test's own. `left0` and `left1` lead to its `right0` and `right1`.
fn links() -> NetNs {
    let (here, there) = (NetNs::of_current_thread().unwrap(), NetNs::create().unwrap());
    // The addresses that the kernel gives itself are there at once, and not taken.
    for ns in [&here, &there] {
        ns.sysctls(&[("net.ipv6.conf.all.disable_ipv6", "0"), ("net.ipv6.conf.default.accept_dad", "0")]).unwrap();
    }
    let [mut near, mut far] = [&here, &there].map(|ns| Netlink::open(ns).unwrap());
    far.set_up("lo").unwrap();
    for (name, peer) in [("left0", "right0"), ("left1", "right1")] {
        near.add_veth(&VethPair { name, peer, peer_ns: &there, queues: 1, mtu: 1500 }).unwrap();
        for (side, name, address) in [(&mut near, name, SERVER), (&mut far, peer, CLIENT)] {
            side.set_up(name).unwrap();
            side.add_address(name, address.parse().unwrap(), 64).unwrap();
        }
    }
    there
}

fn run(ns: &NetNs, mut command: Command) -> Output {
    ns.run(|| command.output().unwrap()).unwrap()
}

#[track_caller]
fn report_of(ns: &NetNs, port: u16, arguments: &[&str]) -> (Value, String) {
    let mut command = client(port, arguments);
    command.args(SHORT).args(["--format", "json"]);
    let output = run(ns, command);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?}: {said}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    (report["data"].clone(), said)
}

/// No address has the number of an interface beside it.
#[track_caller]
fn names_no_number(text: &str) {
    let after = |at: usize| text[at + 1..].starts_with(|c: char| c.is_ascii_digit());
    let found = text.match_indices('%').find(|&(at, _)| text[..at].ends_with(['1', '2']) && after(at));
    assert!(found.is_none(), "{text}");
}

#[test]
fn tests_between_two_machines_go_over_the_link_that_is_named() {
    own(|| {
        let there = links();
        for link in [0, 1] {
            let mut server = Server::with(&["--listen", &format!("{SERVER}%left{link}")]);
            let port = server.port;
            let host = format!("{SERVER}%right{link}");
            for load in [&["stream"][..], &["rr", "--connect"], &["udp", "--rate", "1mbit"], &["rr", "--udp"]] {
                let arguments = [load, &["-c", &host]].concat();
                let (data, said) = report_of(&there, port, &arguments);
                assert!(said.contains(&format!("Connected to [{SERVER}%right{link}]:{port}")), "{said}");
                assert_eq!(data["address"], format!("[{SERVER}%right{link}]:{port}"));
                assert_eq!(data["host"], host);
                let workers = &data["trials"][0]["workers"];
                for (worker, interface) in [(0, "right"), (1, "left")] {
                    let connection = &workers[worker]["connections"][0];
                    for end in ["local", "remote"] {
                        let address = connection[end].as_str().unwrap();
                        assert!(address.contains(&format!("%{interface}{link}]:")), "{load:?}: {address}");
                    }
                }
                names_no_number(&data.to_string());
                let line = server.says("done");
                assert!(line.starts_with(&format!("[{CLIENT}%left{link}]:")), "{line}");
            }
        }
    });
}

#[test]
fn an_interface_is_named_by_its_number_too_and_told_by_its_name() {
    own(|| {
        let there = links();
        let number = Netlink::open(&NetNs::of_current_thread().unwrap()).unwrap().index("left1").unwrap();
        let mut server = Server::with(&["--listen", &format!("{SERVER}%{number}")]);
        let number = Netlink::open(&there).unwrap().index("right1").unwrap();
        let host = format!("[{SERVER}%{number}]");
        let (data, said) = report_of(&there, server.port, &["stream", "-c", &host]);
        assert_eq!(data["address"], format!("[{SERVER}%right1]:{}", server.port));
        names_no_number(&said);
        assert!(server.says("done").contains("%left1]"));
    });
}

#[test]
fn without_an_interface_it_is_asked_for() {
    own(|| {
        let there = links();
        let server = Server::with(&["--listen", &format!("{SERVER}%left0")]);
        let missing =
            ["is a link-local address", "add %interface", "interfaces with link-local addresses: right0, right1"];
        let output = run(&there, client(server.port, &["stream", "-c", SERVER]));
        fails_with(&output, &missing);
        fails_with(&output, &["fe80::1%right0"]);
        let output = run(&there, client(server.port, &["stream", "-c", "fe80::1%left0"]));
        fails_with(&output, &["there is no interface 'left0' here", "link-local addresses: right0, right1"]);
        let output = run(&there, client(server.port, &["stream", "-c", "::1%lo"]));
        fails_with(&output, &["leave %lo out"]);
        for (arguments, words) in [
            (&["serve", "--listen", CLIENT][..], "add %interface, as in fe80::2%right0"),
            (&["serve", "--listen", "fe80::2%left0"], "there is no interface 'left0' here"),
            (&["ntttcp", "-6", "-s", SERVER, "-t", "1"], "add %interface, as in fe80::1%right0"),
            (&["ntttcp", "-6", "-r", CLIENT, "-t", "1"], "add %interface, as in fe80::2%right0"),
            (&["ntttcp", "-6", "-s", "fe80::1%right0", "-a", CLIENT], "add %interface, as in fe80::2%right0"),
            (&["ntttcp", "-s", "-m", "1,*,fe80::1", "-6", "-l", "64k"], "add %interface, as in fe80::1%right0"),
            (&["lb", "run", "--metrics", "[fe80::2]:9180"], "add %interface, as in fe80::2%right0"),
        ] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_netrig"));
            command.args(arguments).stdin(Stdio::null());
            let output = run(&there, command);
            let said = [output.stdout, output.stderr].concat();
            let said = String::from_utf8_lossy(&said);
            assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
            assert!(said.contains(words), "'{words}' is not in: {said}");
        }
        // An address of another link is none of this machine's on this one.
        let output = run(&there, client(server.port, &["stream", "-c", "fe80::1%right1"]));
        fails_with(&output, &["[fe80::1%right1]", "nothing listens there"]);
    });
}

/// An `ntttcp` in the background, killed when dropped.
struct Ntttcp(Child);

impl Ntttcp {
    fn start(options: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_netrig"));
        command.arg("ntttcp").args(options.split_whitespace()).stdin(Stdio::null()).stdout(Stdio::piped());
        Self(command.spawn().unwrap())
    }

    #[track_caller]
    fn end(mut self) -> String {
        let status = until(TIMEOUT, || self.0.try_wait().unwrap()).expect("it ends");
        let mut said = String::new();
        self.0.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(status.success(), "{said}");
        said
    }
}

impl Drop for Ntttcp {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn ntttcp_takes_the_link_that_is_named_in_both_dialects() {
    own(|| {
        let there = links();
        for (receiver, sender, source, is_linux) in [
            ("-6 -V -P 1 -t 1 -r fe80::1%left1", "-6 -V -P 1 -n 1 -t 1 -s fe80::1%right1", "", true),
            ("-6 -V -P 1 -t 1 -r fe80::1%left1", "-6 -V -P 1 -n 1 -t 1 -s fe80::1%right1", "-a fe80::2%right1", true),
            ("-r -v -6 -t 1 -m 1,*,fe80::1%left1", "-s -v -6 -t 1 -m 1,*,fe80::1%right1", "-nic fe80::2%right1", false),
        ] {
            let receiving = Ntttcp::start(receiver);
            // The sender tries again until the receiver listens.
            let sending = there.run(|| Ntttcp::start(&format!("{sender} {source}"))).unwrap();
            let (received, sent) = (receiving.end(), sending.end());
            for said in [&received, &sent] {
                names_no_number(said);
            }
            for words in ["ntttcp server is listening on [fe80::1%left1]:", "Sync connection: [fe80::2%left1]:"] {
                assert!(received.contains(words), "'{words}' is not in: {received}");
            }
            for words in ["local:[fe80::2%right1]:", "--> [fe80::1%right1]:"] {
                assert!(sent.contains(words), "'{words}' is not in: {sent}");
            }
            if is_linux && !source.is_empty() {
                assert!(sent.lines().any(|line| line.contains("client address") && line.ends_with("fe80::2%right1")));
            }
        }
    });
}
