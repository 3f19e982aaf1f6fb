//! Real connections between containers.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rig_datapath::vrouter::{Action, Encapsulation, LabeledNextHop, List, NextHopTarget, Policy, Reason};
use rig_skip::{Lack, skip};
use rig_sys::netns::NetNs;
use rig_wire::protocol;

use super::lab::{Lab, VNI, mac_of, run, underlay_of, v4_of, v6_of};
use super::outer::rule;

const TIMEOUT: Duration = Duration::from_secs(20);

pub fn data() -> Vec<u8> {
    (0..1_000_003_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// One connection; panics when it does not come.
fn accept(listener: &TcpListener) -> TcpStream {
    listener.set_nonblocking(true).unwrap();
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Ok((stream, _)) = listener.accept() {
            stream.set_nonblocking(false).unwrap();
            return stream;
        }
        assert!(Instant::now() < deadline, "no client connects");
        thread::sleep(Duration::from_millis(2));
    }
}

/// A megabyte there and back, byte for byte, and datagrams.
pub fn carry(client: &NetNs, server: &NetNs, to: IpAddr, said: impl Fn() -> String) {
    let data = data();
    let listener = server.run(|| TcpListener::bind((to, 8080)).unwrap()).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut stream = accept(&listener);
            stream.set_read_timeout(Some(TIMEOUT)).unwrap();
            let mut received = Vec::new();
            stream.read_to_end(&mut received).unwrap();
            stream.write_all(&received).unwrap();
        });
        let at = SocketAddr::new(to, 8080);
        let connected = client.run(|| TcpStream::connect_timeout(&at, Duration::from_secs(5))).unwrap();
        let mut stream = connected.unwrap_or_else(|error| panic!("{error}: {}", said()));
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.write_all(&data).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut back = Vec::new();
        stream.read_to_end(&mut back).unwrap_or_else(|error| panic!("{error}: {}", said()));
        assert!(back == data, "{} of {} bytes came back", back.len(), data.len());
    });
    let socket = server.run(|| UdpSocket::bind((to, 5353)).unwrap()).unwrap();
    let any: IpAddr = if to.is_ipv4() { [0; 4].into() } else { [0_u16; 8].into() };
    let client = client.run(|| UdpSocket::bind((any, 0)).unwrap()).unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    client.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut buffer = [0; 2000];
    for length in [0, 1, 1000, 1400] {
        client.send_to(&data[..length], (to, 5353)).unwrap();
        let (received, from) = socket.recv_from(&mut buffer).unwrap();
        assert_eq!(buffer[..received], data[..length]);
        socket.send_to(&data[..length], from).unwrap();
        let (received, _) = client.recv_from(&mut buffer).unwrap();
        assert_eq!(buffer[..received], data[..length]);
    }
}

pub fn said(lab: &Lab) -> String {
    let all = lab.nodes.iter().map(|node| {
        let router = &node.router;
        let last = router.last_dropped().unwrap();
        format!("{:?}\n{:#?}\n{:?}", router.drops().unwrap(), router.flows(), last)
    });
    all.collect::<Vec<_>>().join("\n")
}

#[test]
fn containers_of_one_node_talk() {
    let Some(lab) = Lab::new(1, 2, Encapsulation::MplsOverUdp) else { return };
    let [a, b] = &lab.nodes[0].containers[..] else { panic!() };
    carry(a, b, v4_of(0, 1).into(), || said(&lab));
    carry(a, b, v6_of(0, 1), || said(&lab));
}

fn talk_over(encapsulation: Encapsulation) {
    let Some(lab) = Lab::new(2, 1, encapsulation) else { return };
    let (a, b) = (&lab.nodes[0].containers[0], &lab.nodes[1].containers[0]);
    carry(a, b, v4_of(1, 0).into(), || said(&lab));
    carry(b, a, v6_of(0, 0), || said(&lab));
}

#[test]
fn containers_talk_by_mpls_over_udp() {
    talk_over(Encapsulation::MplsOverUdp);
}

#[test]
fn containers_talk_by_mpls_over_gre() {
    talk_over(Encapsulation::MplsOverGre);
}

#[test]
fn containers_talk_by_vxlan() {
    talk_over(Encapsulation::Vxlan);
}

/// A TCP sender, whose packets no router may fragment, is told when its path's MTU becomes smaller, and nothing is lost.
#[test]
fn a_connection_goes_on_when_its_way_takes_less() {
    for encapsulation in Encapsulation::ALL {
        let Some(mut lab) = Lab::new(2, 1, encapsulation) else { return };
        let to = SocketAddr::new(v4_of(1, 0).into(), 8080);
        let listener = lab.nodes[1].containers[0].run(|| TcpListener::bind(to).unwrap()).unwrap();
        let connect = || TcpStream::connect_timeout(&to, TIMEOUT).unwrap();
        let mut sender = lab.nodes[0].containers[0].run(connect).unwrap();
        let mut receiver = accept(&listener);
        receiver.set_read_timeout(Some(TIMEOUT)).unwrap();
        let read = thread::spawn(move || {
            let mut received = Vec::new();
            receiver.read_to_end(&mut received).map(|_| received)
        });
        let data = data();
        let (before, behind) = data.split_at(100_000);
        sender.write_all(before).unwrap();
        for node in &mut lab.nodes {
            node.config.underlay.as_mut().unwrap().peers.values_mut().for_each(|peer| peer.mtu = 900);
            node.apply();
        }
        sender.write_all(behind).unwrap();
        sender.shutdown(Shutdown::Write).unwrap();
        let received = read.join().unwrap().unwrap_or_else(|error| panic!("{error}: {}", said(&lab)));
        assert!(received == data, "{} of {} bytes", received.len(), data.len());
        let drops = lab.nodes[0].router.drops().unwrap();
        assert!(drops.iter().any(|(reason, _)| *reason == Reason::TooBigTold), "{drops:?}");
    }
}

/// Datagrams that were handed over many at once arrive once the sender's kernel takes them apart.
#[test]
fn datagrams_handed_over_together_arrive_where_the_sender_takes_them_apart() {
    if !Command::new("ethtool").arg("--version").output().is_ok_and(|output| output.status.success()) {
        return skip(Lack::Program("ethtool"), "no ethtool on PATH");
    }
    for encapsulation in Encapsulation::ALL {
        let Some(lab) = Lab::new(2, 1, encapsulation) else { return };
        let (a, b) = (&lab.nodes[0].containers[0], &lab.nodes[1].containers[0]);
        a.run(|| {
            let off = Command::new("ethtool").args(["-K", "eth0", "tx-udp-segmentation", "off"]).output().unwrap();
            assert!(off.status.success(), "{}", String::from_utf8_lossy(&off.stderr));
        })
        .unwrap();
        let to: IpAddr = v4_of(1, 0).into();
        let server = b.run(|| UdpSocket::bind((to, 5353)).unwrap()).unwrap();
        server.set_read_timeout(Some(TIMEOUT)).unwrap();
        let client = a.run(|| UdpSocket::bind((v4_of(0, 0), 0)).unwrap()).unwrap();
        rig_sys::socket::set_segment_size(&client, 1000).unwrap();
        client.send_to(&data()[..5000], (to, 5353)).unwrap();
        let mut buffer = [0; 2000];
        for _ in 0..5 {
            let length = server.recv(&mut buffer).unwrap_or_else(|error| panic!("{error}: {}", said(&lab)));
            assert_eq!(length, 1000);
        }
    }
}

/// Datagrams that are larger than the tunnel takes, and may be cut into pieces, arrive whole and with right checksums.
#[test]
fn what_is_larger_than_a_tunnel_takes_arrives_in_pieces() {
    for encapsulation in Encapsulation::ALL {
        let Some(lab) = Lab::new(2, 1, encapsulation) else { return };
        let ends = [&lab.nodes[0], &lab.nodes[1]].map(|node| (&node.ns, &node.containers[0]));
        for (node, container) in ends {
            run(node, "link set c0 mtu 9000");
            run(container, "link set eth0 mtu 9000");
            // So that IPv4 packets may be fragmented on the way.
            container.run(|| std::fs::write("/proc/sys/net/ipv4/ip_no_pmtu_disc", "1").unwrap()).unwrap();
        }
        let [(_, a), (_, b)] = ends;
        let socket = |ns: &NetNs, port| {
            let socket = ns.run(|| UdpSocket::bind(("0.0.0.0", port)).unwrap()).unwrap();
            socket.set_read_timeout(Some(TIMEOUT)).unwrap();
            socket
        };
        let (from, to) = (socket(a, 0), socket(b, 5353));
        let (data, mut buffer) = (data(), vec![0; 10_000]);
        // Of one piece more or less, of 9 bytes behind the first, and all that there can be at this MTU.
        for length in [1400, 1441, 1480, 2905, 5000, 8972] {
            from.send_to(&data[..length], (v4_of(1, 0), 5353)).unwrap();
            let (received, client) = to
                .recv_from(&mut buffer)
                .unwrap_or_else(|error| panic!("{length} bytes in {encapsulation:?}: {error}: {}", said(&lab)));
            assert!(buffer[..received] == data[..length], "{received} of {length} bytes in {encapsulation:?}");
            to.send_to(&data[..length], client).unwrap();
            let received = from
                .recv(&mut buffer)
                .unwrap_or_else(|error| panic!("{length} bytes back in {encapsulation:?}: {error}: {}", said(&lab)));
            assert!(buffer[..received] == data[..length], "{received} of {length} bytes in {encapsulation:?}");
        }
        for node in &lab.nodes {
            let too_big = [Reason::TooBig, Reason::TooBigTold];
            assert!(!node.router.drops().unwrap().iter().any(|(reason, _)| too_big.contains(reason)));
            // Pieces are counted as what they are.
            let flows = node.router.flows();
            let sent: u64 = flows.iter().filter(|flow| flow.protocol == 17).map(|flow| flow.packets).sum();
            assert!((26..50).contains(&sent), "{sent} packets of {encapsulation:?}: {flows:?}");
        }
        let errors = b.run(|| std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap()).unwrap();
        let udp: Vec<&str> = errors.lines().filter(|line| line.starts_with("Udp:")).collect();
        let place = udp[0].split(' ').position(|name| name == "InCsumErrors").unwrap();
        assert_eq!(udp[1].split(' ').nth(place), Some("0"), "wrong checksums in {encapsulation:?}");
    }
}

/// The kernel's own VXLAN takes the place of a router, and of the container behind it.
#[test]
fn a_container_talks_to_the_kernels_vxlan() {
    let Some(mut lab) = Lab::new(2, 1, Encapsulation::Vxlan) else { return };
    let kernel = lab.nodes.pop().unwrap();
    drop(kernel.router);
    let (near, far) = (underlay_of(0), underlay_of(1));
    let [own, other] = [(0, mac_of(0, 0)), (1, mac_of(1, 0))];
    for step in [
        format!(
            "link add vxlan0 address {} mtu 1450 type vxlan id {VNI} dstport 4789 local {far} remote {near} dev wire nolearning",
            other.1
        ),
        format!("addr add {}/16 dev vxlan0", v4_of(1, 0)),
        format!("addr add {}/64 dev vxlan0 nodad", v6_of(1, 0)),
        "link set vxlan0 up".to_owned(),
        // Questions for addresses are not what a router's packets are about.
        format!("neigh replace {} lladdr {} dev vxlan0", v4_of(own.0, 0), own.1),
        format!("neigh replace {} lladdr {} dev vxlan0", v6_of(own.0, 0), own.1),
    ] {
        run(&kernel.ns, &step);
    }
    let a = &lab.nodes[0].containers[0];
    carry(a, &kernel.ns, v4_of(1, 0).into(), || said(&lab));
    carry(&kernel.ns, a, v6_of(0, 0), || said(&lab));
}

#[test]
fn tables_are_told_by_their_numbers() {
    let Some(lab) = Lab::new(2, 1, Encapsulation::MplsOverUdp) else { return };
    let router = &lab.nodes[0].router;
    let hops: BTreeMap<u32, NextHopTarget> = router.next_hops().into_iter().collect();
    let own = router.next_hop_of(1).unwrap();
    assert_eq!(hops[&own], NextHopTarget::Interface(1));
    let route = |to: IpAddr| router.routes().into_iter().find(|(_, prefix, _)| *prefix == to.into()).unwrap().2;
    assert_eq!(route(v4_of(0, 0).into()), LabeledNextHop { next_hop: own, label: 0 });
    let tunnel = route(v6_of(1, 0));
    assert_eq!(tunnel.label, 100);
    let NextHopTarget::Tunnel { encapsulation, source, destination, mtu, .. } = hops[&tunnel.next_hop] else {
        panic!("{:?}", hops[&tunnel.next_hop])
    };
    assert_eq!((encapsulation, mtu), (Encapsulation::MplsOverUdp, 1500 - 32));
    assert_eq!([source, destination].map(|address| address.to_string()), ["192.0.2.1", "192.0.2.2"]);
    assert_eq!((router.labels(), router.macs().len()), (vec![(100, own)], 2));
    assert!(router.vnis().iter().all(|(_, hop)| matches!(hops[hop], NextHopTarget::Vrf(_))));
}

/// curl fetches what a policy lets it, and nothing else.
#[test]
fn curl_is_held_against_rules() {
    if Command::new("curl").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
        return skip(Lack::Program("curl"), "no curl on PATH");
    }
    for encapsulation in Encapsulation::ALL {
        let Some(mut lab) = Lab::new(2, 1, encapsulation) else { return };
        // The server takes connections to one port, and begins none.
        let node = &mut lab.nodes[1];
        let web = vec![rule(Some(protocol::TCP), 8080..=8080, Action::Allow)];
        let nothing = List { rules: Vec::new(), otherwise: Action::Deny };
        node.config.lists = BTreeMap::from([(1, List { rules: web, otherwise: Action::Deny }), (2, nothing)]);
        node.config.interfaces.get_mut(&1).unwrap().policy =
            Some(Policy { outward: vec![2], inward: vec![1], most_flows: None });
        node.apply();
        let (client, server) = (&lab.nodes[0].containers[0], &lab.nodes[1].containers[0]);
        let (data, address) = (data(), v4_of(1, 0));
        let curl = |seconds: &str, port: u16| {
            let mut curl = Command::new("curl");
            curl.args(["--silent", "--show-error", "--noproxy", "*", "--connect-timeout", seconds, "--max-time", "20"]);
            curl.arg(format!("http://{address}:{port}/")).stdin(Stdio::null());
            rig_sys::process::in_namespace(&mut curl, client).output().unwrap()
        };
        for (port, is_allowed) in [(8080, true), (8081, false)] {
            let listener = server.run(|| TcpListener::bind((address, port)).unwrap()).unwrap();
            if !is_allowed {
                // curl's status for a connection that does not come (curl(1)).
                assert_eq!(curl("1", port).status.code(), Some(28), "{encapsulation:?}");
                continue;
            }
            let output = thread::scope(|scope| {
                scope.spawn(|| {
                    let mut stream = accept(&listener);
                    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
                    let mut asked = [0; 4096];
                    let length = stream.read(&mut asked).unwrap();
                    assert!(asked[..length].starts_with(b"GET / HTTP/1.1\r\n"));
                    let header =
                        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", data.len());
                    stream.write_all(&[header.as_bytes(), &data].concat()).unwrap();
                });
                curl("5", port)
            });
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && output.stdout == data, "{encapsulation:?} {error}: {}", said(&lab));
        }
        let node = &lab.nodes[1];
        assert!(node.router.drops().unwrap().iter().any(|(reason, _)| *reason == Reason::Policy), "{}", said(&lab));
        assert!(node.router.flows().iter().filter(|flow| flow.protocol == protocol::TCP).count() >= 2);
    }
}

/// Streams and datagrams of iperf3 go where a policy lets them, and nowhere else.
#[test]
fn iperf3_is_held_against_rules() {
    if Command::new("iperf3").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
        return skip(Lack::Program("iperf3"), "no iperf3 on PATH");
    }
    for encapsulation in Encapsulation::ALL {
        let Some(mut lab) = Lab::new(2, 1, encapsulation) else { return };
        let node = &mut lab.nodes[1];
        let [tcp, udp] = [protocol::TCP, protocol::UDP].map(|kind| rule(Some(kind), 5201..=5201, Action::Allow));
        let nothing = List { rules: Vec::new(), otherwise: Action::Deny };
        node.config.lists =
            BTreeMap::from([(1, List { rules: vec![tcp, udp], otherwise: Action::Deny }), (2, nothing)]);
        node.config.interfaces.get_mut(&1).unwrap().policy =
            Some(Policy { outward: vec![2], inward: vec![1], most_flows: None });
        node.apply();
        let (client, server) = (&lab.nodes[0].containers[0], &lab.nodes[1].containers[0]);
        let address = v4_of(1, 0).to_string();
        let iperf3 = |arguments: &[&str]| {
            let mut iperf3 = Command::new("iperf3");
            iperf3.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            iperf3
        };
        for (port, load, is_allowed) in [
            ("5201", &[][..], true),
            ("5201", &["--udp", "--bitrate", "20M", "--length", "1000"][..], true),
            ("5202", &[], false),
        ] {
            let mut listens = iperf3(&["--server", "--one-off", "--port", port]);
            let mut listening = rig_sys::process::in_namespace(&mut listens, server).spawn().unwrap();
            let fixed = ["--client", &address, "--port", port, "--time", "1", "--connect-timeout", "1000"];
            let run = || {
                let mut asks = iperf3(&[&fixed[..], load].concat());
                rig_sys::process::in_namespace(&mut asks, client).output().unwrap()
            };
            // It may not listen yet.
            let mut output = run();
            for _ in 0..20 {
                if !is_allowed || output.status.success() {
                    break;
                }
                thread::sleep(Duration::from_millis(100));
                output = run();
            }
            let _ended = listening.kill();
            listening.wait().unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.success(), is_allowed, "{encapsulation:?} {port} {load:?} {text}: {}", said(&lab));
            // The line of what arrived (iperf3(1)).
            assert_eq!(text.lines().any(|line| line.ends_with("receiver")), is_allowed, "{text}");
        }
        let node = &lab.nodes[1];
        assert!(node.router.drops().unwrap().iter().any(|(reason, _)| *reason == Reason::Policy), "{}", said(&lab));
        let carried = |kind: u8| -> u64 {
            node.router.flows().iter().filter(|flow| flow.protocol == kind).map(|flow| flow.packets).sum()
        };
        assert!(carried(protocol::TCP) > 100 && carried(protocol::UDP) > 100, "{}", said(&lab));
    }
}
