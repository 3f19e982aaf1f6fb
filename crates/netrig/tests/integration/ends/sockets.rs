//! Options of the load's sockets, as the packets between two namespaces have them, and what the client's are bound to.

use std::io::{ErrorKind, Read};
use std::net::IpAddr;
use std::process::Output;

use rig_sys::netlink::{Netlink, VethPair};
use rig_sys::netns::NetNs;
use serde_json::Value;
use socket2::{Domain, Protocol, Socket, Type};

use super::lab::{SHORT, Server, client, fails_with};
use super::world::own;

/// ETH_P_ALL of linux/if_ether.h.
const ALL_PROTOCOLS: u16 = 3;

/// Addresses of the server and of the client on each of two links.
const LINKS: [([&str; 2], [&str; 2]); 2] =
    [(["10.9.0.1", "fd09::1"], ["10.9.0.2", "fd09::2"]), (["10.8.0.1", "fd08::1"], ["10.8.0.2", "fd08::2"])];
/// One more of the client's, on the first link.
const OTHER: [&str; 2] = ["10.9.0.3", "fd09::3"];

/// The clients' namespace, whose `right0` and `right1` lead to `left0` and `left1` of the servers', the test's own.
fn links() -> NetNs {
    let (here, there) = (NetNs::of_current_thread().unwrap(), NetNs::create().unwrap());
    for ns in [&here, &there] {
        let settings = [
            ("net.ipv6.conf.all.disable_ipv6", "0"),
            ("net.ipv6.conf.default.accept_dad", "0"),
            ("net.ipv4.conf.all.rp_filter", "0"),
            ("net.ipv4.conf.default.rp_filter", "0"),
        ];
        ns.sysctls(&settings).unwrap();
    }
    let [mut near, mut far] = [&here, &there].map(|ns| Netlink::open(ns).unwrap());
    far.set_up("lo").unwrap();
    for (link, (servers, clients)) in LINKS.iter().enumerate() {
        let (name, peer) = (format!("left{link}"), format!("right{link}"));
        near.add_veth(&VethPair { name: &name, peer: &peer, peer_ns: &there, queues: 1, mtu: 1500 }).unwrap();
        for (side, name, addresses) in [(&mut near, &name, servers), (&mut far, &peer, clients)] {
            side.set_up(name).unwrap();
            add(side, name, addresses);
        }
    }
    add(&mut far, "right0", &OTHER);
    there
}

fn add(side: &mut Netlink, name: &str, addresses: &[&str; 2]) {
    for (address, bits) in addresses.iter().zip([24, 64]) {
        side.add_address(name, address.parse().unwrap(), bits).unwrap();
    }
}

fn run(ns: &NetNs, port: u16, arguments: &[&str]) -> Output {
    let mut command = client(port, arguments);
    command.args(SHORT).args(["--format", "json", "--quiet"]);
    ns.run(|| command.output().unwrap()).unwrap()
}

#[track_caller]
fn report_of(ns: &NetNs, port: u16, arguments: &[&str]) -> Value {
    let output = run(ns, port, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    report["data"].clone()
}

/// What of a packet the options decide.
#[derive(Debug)]
struct Packet {
    source: IpAddr,
    dscp: u8,
    hops: u8,
    protocol: u8,
    ports: [u16; 2],
    payload: usize,
    /// Of a segment that opens a connection.
    mss: Option<u16>,
}

impl Packet {
    const TCP: u8 = 6;
    const UDP: u8 = 17;

    /// `None` of a frame that is neither TCP nor UDP over IP.
    fn parse(frame: &[u8]) -> Option<Self> {
        let word = |bytes: &[u8], at: usize| Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().unwrap()));
        let ip = frame.get(14..)?;
        let (source, traffic_class, hops, protocol, transport) = match word(frame, 12)? {
            0x0800 => {
                let source: [u8; 4] = ip.get(12..16)?.try_into().unwrap();
                let all = ip.get(usize::from(ip[0] & 15) * 4..word(ip, 2)?.into())?;
                (IpAddr::from(source), ip[1], ip[8], ip[9], all)
            }
            0x86dd => {
                let source: [u8; 16] = ip.get(8..24)?.try_into().unwrap();
                let all = ip.get(40..40 + usize::from(word(ip, 4)?))?;
                (IpAddr::from(source), (ip[0] << 4) | (ip[1] >> 4), ip[7], ip[6], all)
            }
            _ => return None,
        };
        let (header, mss) = match protocol {
            Self::UDP => (8, None),
            Self::TCP => {
                let header = usize::from(*transport.get(12)? >> 4) * 4;
                let opens = transport[13] & 2 != 0;
                // The kernel's first option of such a segment (RFC 9293, 3.2: kind 2, length 4).
                (header, (opens && transport.get(20..22)? == [2, 4]).then(|| word(transport, 22)).flatten())
            }
            _ => return None,
        };
        let ports = [word(transport, 0)?, word(transport, 2)?];
        Some(Self { source, dscp: traffic_class >> 2, hops, protocol, ports, payload: transport.len() - header, mss })
    }
}

/// All frames of an interface, from now on.
struct Capture(Socket);

impl Capture {
    fn new() -> Self {
        let socket =
            Socket::new(Domain::PACKET, Type::RAW, Some(Protocol::from(i32::from(ALL_PROTOCOLS.to_be())))).unwrap();
        socket.set_recv_buffer_size(16 << 20).unwrap();
        socket.set_nonblocking(true).unwrap();
        Self(socket)
    }

    /// Packets of the load: those that open a connection or carry data, but not those of the control connection. The kernel answers for
    /// a connection that is gone with options of its own.
    fn of_load(&mut self, control: u16) -> Vec<Packet> {
        let (mut bytes, mut packets) = (vec![0; 1 << 17], Vec::new());
        loop {
            match self.0.read(&mut bytes) {
                Ok(length) => packets.extend(Packet::parse(&bytes[..length])),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        packets.retain(|packet| !packet.ports.contains(&control) && (packet.payload > 0 || packet.mss.is_some()));
        packets
    }
}

#[test]
fn packets_of_both_ends_have_what_was_asked_for() {
    own(|| {
        let there = links();
        let server = Server::with(&["--listen", "::"]);
        for family in [0, 1] {
            let ends = [LINKS[0].0[family], LINKS[0].1[family]];
            let ends = ends.map(|address| address.parse::<IpAddr>().unwrap());
            let host = ends[0].to_string();
            for (load, tcp) in [
                (&["stream", "--bidirectional", "--rate", "1mbit", "--message", "4k"][..], true),
                (&["rr"], true),
                (&["rr", "--connect", "--rate", "200", "--connections", "2"], true),
                (&["rr", "--connect"], true),
                (&["udp", "--bidirectional", "--rate", "1mbit"], false),
                (&["rr", "--udp"], false),
            ] {
                let mut capture = Capture::new();
                let mut arguments = load.to_vec();
                arguments.extend([
                    "-c",
                    &host,
                    "--source",
                    LINKS[0].1[family],
                    "--dscp",
                    "af41",
                    "--ttl",
                    "9",
                    "--priority",
                    "6",
                ]);
                arguments.extend(tcp.then_some(["--mss", "1000"]).iter().flatten());
                arguments.extend((load[0] == "stream").then_some(["--not-sent-low-water", "64k"]).iter().flatten());
                let data = report_of(&there, server.port, &arguments);
                let packets = capture.of_load(server.port);
                for end in ends {
                    let own: Vec<_> = packets.iter().filter(|packet| packet.source == end).collect();
                    assert!(own.iter().any(|packet| packet.payload > 0), "{load:?}: nothing of {end} in {packets:?}");
                    for packet in &own {
                        let protocol = if tcp { Packet::TCP } else { Packet::UDP };
                        assert_eq!(
                            (packet.protocol, packet.dscp, packet.hops),
                            (protocol, 34, 9),
                            "{load:?}: {packet:?}"
                        );
                    }
                    let mut opening = own.iter().filter_map(|packet| packet.mss).peekable();
                    assert_eq!(opening.peek().is_some(), tcp, "{load:?}");
                    assert!(opening.all(|mss| mss == 1000), "{load:?}: {own:?}");
                }
                let said = data["load"]["client"]["options"].clone();
                assert_eq!((&said["dscp"], &said["hop_limit"]), (&34.into(), &9.into()), "{said}");
            }
            // Without them everything is as the kernel has it.
            let mut capture = Capture::new();
            let data = report_of(&there, server.port, &["rr", "-c", &host]);
            let packets = capture.of_load(server.port);
            let plain =
                |packet: &Packet| packet.dscp == 0 && packet.hops == 64 && packet.mss.is_none_or(|mss| mss > 1400);
            assert!(!packets.is_empty() && packets.iter().all(plain), "{packets:?}");
            assert_eq!(data["load"]["client"].get("options"), None);
        }
    });
}

#[test]
fn clients_send_from_the_address_and_by_the_device_that_are_named() {
    own(|| {
        let there = links();
        let mut server = Server::with(&["--listen", "::"]);
        for family in [0, 1] {
            let (host, first, second) = (LINKS[0].0[family], LINKS[0].1[family], LINKS[1].1[family]);
            for load in [&["stream"][..], &["rr", "--connect"], &["udp", "--rate", "1mbit"], &["rr", "--udp"]] {
                // By default IPv6 has the address that came last (RFC 6724), IPv4 the first.
                let mut bindings = vec![
                    (vec!["--source", first], first, format!("from {first}")),
                    (vec!["--source", OTHER[family]], OTHER[family], format!("from {}", OTHER[family])),
                ];
                if family == 0 {
                    // IPv6 needs a route by the interface, IPv4 takes what it knows no route to for a neighbour.
                    bindings.push((vec!["--device", "right1"], second, "by right1".to_owned()));
                }
                for (bound, from, words) in bindings {
                    let arguments = [load, &["-c", host], &bound].concat();
                    let data = report_of(&there, server.port, &arguments);
                    let local = data["trials"][0]["workers"][0]["connections"][0]["local"].as_str().unwrap();
                    let local = local.rsplit_once(':').unwrap().0.trim_matches(['[', ']']);
                    assert_eq!(local, from, "{arguments:?}");
                    let line = server.says("done");
                    assert!(line.contains(from), "{arguments:?}: {line}");
                    assert_eq!(data.get("source").and_then(Value::as_str), Some(words.as_str()));
                }
            }
        }
    });
}

#[test]
fn what_cannot_be_had_is_told_in_words() {
    own(|| {
        let there = links();
        let server = Server::with(&["--listen", "::"]);
        let (v4, v6) = (LINKS[0].0[0], LINKS[0].0[1]);
        for (arguments, words) in [
            (&["stream", "-c", v4, "--source", "192.0.2.77"][..], "192.0.2.77: it belongs to no interface here"),
            (&["udp", "-c", v4, "--device", "no-such"], "no-such: there is no interface of this name here"),
            (&["rr", "-c", v4, "--source", "fd09::2"], "has no IPv6 address that --source fd09::2 could send to"),
            (&["stream", "-c", v6, "--priority", "7"], "socket priority 7 asked, this server allows those up to 6"),
        ] {
            fails_with(&run(&there, server.port, arguments), &[words]);
        }
        for (arguments, words) in [
            (&["stream", "-c", v4, "--dscp", "64"][..], "'64' is no DSCP"),
            (&["stream", "-c", v4, "--mss", "87"], "the MSS is 87: it has to be from 88 to 32767"),
            (&["udp", "-c", v4, "--ttl", "0"], "the hop limit is 0"),
            (&["rr", "--udp", "-c", v4, "--mss", "1000"], "cannot be used with"),
            (&["rr", "-c", v4, "--device", "a/b"], "'a/b' is no name of an interface"),
            (&["serve", "--dscp", "ef"], "unexpected argument"),
        ] {
            let output = run(&there, server.port, arguments);
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
            assert!(said.contains(words), "'{words}' is not in: {said}");
        }
    });
}

#[test]
fn connections_of_mptcp_say_that_they_are() {
    own(|| {
        let there = links();
        let server = Server::with(&["--listen", "::"]);
        let host = LINKS[0].0[0];
        let loads = [&["stream", "--rate", "8mbit", "--message", "4k"][..], &["rr"]];
        if !rig_sys::socket::has_mptcp() {
            let output = run(&there, server.port, &["stream", "-c", host, "--mptcp"]);
            assert!(String::from_utf8_lossy(&output.stderr).contains("MPTCP"), "{output:?}");
            return;
        }
        for load in loads {
            for (more, expected) in [(&["--mptcp"][..], Value::Bool(true)), (&[], Value::Null)] {
                let data = report_of(&there, server.port, &[load, &["-c", host], more].concat());
                for worker in data["trials"][0]["workers"].as_array().unwrap() {
                    assert_eq!(worker["connections"][0]["mptcp"], expected, "{load:?}: {worker:#}");
                }
            }
        }
        // Where it is switched off, the test fails with what to do.
        let here = NetNs::of_current_thread().unwrap();
        there.sysctls(&[("net.mptcp.enabled", "0")]).unwrap();
        let output = run(&there, server.port, &["rr", "-c", host, "--mptcp"]);
        assert_eq!(output.status.code(), Some(4), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("net.mptcp.enabled"), "{output:?}");
        there.sysctls(&[("net.mptcp.enabled", "1")]).unwrap();
        here.sysctls(&[("net.mptcp.enabled", "0")]).unwrap();
        let output = run(&there, server.port, &["rr", "-c", host, "--mptcp"]);
        assert!(String::from_utf8_lossy(&output.stderr).contains("net.mptcp.enabled"), "{output:?}");
        for load in ["--udp", "--connect"] {
            let output = run(&there, server.port, &["rr", "-c", host, load, "--mptcp"]);
            assert_eq!(output.status.code(), Some(2), "{load} has none: {output:?}");
        }
    });
}

#[test]
fn busy_polling_is_the_servers_to_allow() {
    own(|| {
        let there = links();
        let host = LINKS[0].0[0];
        let careful = Server::with(&["--listen", "::"]);
        let asked = ["rr", "-c", host, "--busy-poll", "50"];
        let output = run(&there, careful.port, &asked);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("50 microseconds of busy polling asked") && said.contains("--max-busy-poll"), "{said}");
        let output = run(&there, careful.port, &["rr", "-c", host, "--busy-poll", "100001"]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let generous = Server::with(&["--listen", "::", "--max-busy-poll", "50"]);
        let output = run(&there, generous.port, &asked);
        if output.status.success() {
            let report: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(report["data"]["load"]["client"]["options"]["busy_poll_us"], 50);
        } else {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(said.contains("CAP_NET_ADMIN") || said.contains("CONFIG_NET_RX_BUSY_POLL"), "{said}");
        }
    });
}
