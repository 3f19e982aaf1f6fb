//! Packets that are larger than a tunnel takes, and may be cut into pieces.

use std::net::UdpSocket;
use std::thread;
use std::time::{Duration, Instant};

use rig_datapath::vrouter::{Encapsulation, ROUTER_MAC, Reason, Side, Verdict};
use rig_sys::netns::NetNs;

use super::frames::{Frame, L4, ip};
use super::lab::{Lab, Node, mac_of, run, v4_of};
use super::outer::{at, framed};
use super::traffic::{data, said};

const TIMEOUT: Duration = Duration::from_secs(20);

/// Has containers send what is larger than a tunnel takes. Linux before 5.12 has a program run with nothing that its interface does not take.
fn give_room(node: &Node) {
    run(&node.ns, "link set c0 mtu 65535");
    run(&node.containers[0], "link set eth0 mtu 65535");
}

/// What the kernel lets no program make is no packet for a tunnel, cut or not.
#[test]
fn what_is_larger_than_a_program_can_make_is_refused_by_its_name() {
    let Some(lab) = Lab::new(2, 1, Encapsulation::MplsOverUdp) else { return };
    for node in &lab.nodes {
        give_room(node);
        // So that IPv4 packets may be fragmented on the way.
        let set = || std::fs::write("/proc/sys/net/ipv4/ip_no_pmtu_disc", "1").unwrap();
        node.containers[0].run(set).unwrap();
    }
    let socket = |ns: &NetNs, port| {
        let socket = ns.run(|| UdpSocket::bind(("0.0.0.0", port)).unwrap()).unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        socket
    };
    let [a, b] = &lab.nodes[..] else { panic!() };
    let (from, to) = (socket(&a.containers[0], 0), socket(&b.containers[0], 5353));
    let (data, mut buffer) = (data(), vec![0; 65_536]);
    // The first one finds the neighbour out, for which not many wait.
    from.send_to(&data[..1], (v4_of(1, 0), 5353)).unwrap();
    assert_eq!(to.recv(&mut buffer).ok(), Some(1), "{}", said(&lab));
    // The largest IP packet is one of 16,000 bytes.
    for length in [15_972, 15_973, 20_000, 60_000] {
        from.send_to(&data[..length], (v4_of(1, 0), 5353)).unwrap();
    }
    let received = to.recv(&mut buffer).unwrap_or_else(|error| panic!("{error}: {}", said(&lab)));
    assert!(buffer[..received] == data[..15_972], "{received} bytes");
    let deadline = Instant::now() + TIMEOUT;
    let too_big = || a.drops().get(&Reason::TooBig.number()).copied().unwrap_or(0);
    while too_big() < 3 {
        assert!(Instant::now() < deadline, "{}", said(&lab));
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(a.drops().get(&Reason::Push.number()), None);
}

/// The same packet without DF.
fn may_fragment(mut packet: Vec<u8>) -> Vec<u8> {
    packet[6..8].fill(0);
    packet[10..12].fill(0);
    let sum = rig_wire::checksum::of(&packet[..20]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// Its checksum (CRC32c, RFC 9260) is often left to the device, and pieces would be without.
#[test]
fn sctp_is_not_cut() {
    const SCTP: u8 = 132;
    let Some(lab) = Lab::new(2, 1, Encapsulation::MplsOverUdp) else { return };
    let node = &lab.nodes[0];
    give_room(node);
    let of = |protocol| may_fragment(ip(v4_of(0, 0).into(), v4_of(1, 0).into(), protocol, 64, &[0; 1600]));
    assert_eq!(node.refuses(&of(SCTP)), Reason::TooBig);
    // One that its sender has cut has its checksum; and of other protocols nothing is known.
    let mut first = of(SCTP);
    first[6] = 0x20;
    assert_eq!(node.send(&first).verdict, Verdict::Redirect, "{:?}", node.router.drops().unwrap());
    assert_eq!(node.send(&of(99)).verdict, Verdict::Redirect);
}

#[test]
fn nobody_has_packets_cut_without_end() {
    const PACKETS: u64 = 1000;
    let Some(mut lab) = Lab::new(2, 2, Encapsulation::MplsOverUdp) else { return };
    let node = &mut lab.nodes[0];
    let underlay = node.config.underlay.as_mut().unwrap();
    // 80 bytes in each piece.
    underlay.peers.values_mut().for_each(|peer| peer.mtu = 132);
    node.apply();
    let node = &lab.nodes[0];
    let datagram = |from| {
        let packet = Frame::new(L4::Udp, at(v4_of(0, from), 1000), at(v4_of(1, 0), 80)).payload(&[9; 3000]).packet();
        framed(mac_of(0, from), ROUTER_MAC, &may_fragment(packet))
    };
    let (frame, index) = (datagram(0), node.index("c0"));
    let many = || {
        let outcomes = (0..PACKETS).map(|_| node.router.test_run(Side::Container, &frame, index).unwrap());
        outcomes.filter(|outcome| outcome.verdict == Verdict::Redirect).count() as u64
    };
    let cut = node.ns.run(many).unwrap();
    let refused = node.drops().get(&Reason::ManyPieces.number()).copied().unwrap_or(0);
    // Of 38 pieces each, 500 at once.
    assert!(cut >= 500 / 38 && refused > 0, "{cut} packets cut, {refused} refused");
    assert_eq!(cut + refused, PACKETS);
    // Others' packets are cut.
    assert_eq!(node.give(Side::Container, &datagram(1), "c1").verdict, Verdict::Redirect);
}
