//! Frames to all of a network.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rig_datapath::vrouter::model::{Egress, Model};
use rig_datapath::vrouter::{Action, CopyCount, Encapsulation, List, NextHop, Policy, Reason, Side, Verdict};
use rig_sys::netns::NetNs;
use rig_wire::arp::{Arp, Operation};
use rig_wire::ethernet::{self, Mac, ethertype};
use rig_wire::protocol;

use super::frames::{Frame, L4};
use super::lab::{Lab, Node, TO_ALL, VNI, WIRE, mac_of, run, small, underlay_of, v4_of, v6_of};
use super::outer::{at, framed, rule};
use super::traffic::{carry, said};

const TIMEOUT: Duration = Duration::from_secs(20);
const PORT: u16 = 6767;
const ALL: IpAddr = IpAddr::V4(Ipv4Addr::BROADCAST);
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 7, 7, 7);
const NODES: IpAddr = IpAddr::V6(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1));

/// Two nodes with two containers each, which get each other's frames to all.
fn flooded(encapsulation: Encapsulation, unknown_unicast: bool) -> Option<Lab> {
    let mut lab = Lab::new(2, 2, encapsulation)?;
    lab.nodes[0].flood(&[1], unknown_unicast);
    lab.nodes[1].flood(&[0], unknown_unicast);
    Some(lab)
}

fn socket(container: &NetNs, to: IpAddr) -> UdpSocket {
    let any = if to.is_ipv4() { IpAddr::from([0; 4]) } else { IpAddr::from([0_u16; 8]) };
    let deadline = Instant::now() + TIMEOUT;
    let socket = loop {
        match container.run(|| UdpSocket::bind((any, PORT))).unwrap() {
            // A command that another test has just begun may still have the socket of before.
            Err(error) if error.kind() == ErrorKind::AddrInUse && Instant::now() < deadline => {
                thread::sleep(Duration::from_millis(10));
            }
            bound => break bound.unwrap(),
        }
    };
    socket.set_broadcast(true).unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    if to == IpAddr::from(GROUP) {
        container.run(|| socket.join_multicast_v4(&GROUP, &Ipv4Addr::UNSPECIFIED).unwrap()).unwrap();
    }
    socket
}

/// What one container sends to all each other gets once, wherever it is.
fn reaches_all(lab: &Lab, to: IpAddr) {
    let containers: Vec<&NetNs> = lab.nodes.iter().flat_map(|node| &node.containers).collect();
    let sockets: Vec<UdpSocket> = containers.iter().map(|container| socket(container, to)).collect();
    let target = |number: usize| match to {
        IpAddr::V6(v6) => {
            let scope = rustix::net::netdevice::name_to_index(&sockets[number], "eth0").unwrap();
            SocketAddr::V6(std::net::SocketAddrV6::new(v6, PORT, 0, scope))
        }
        v4 => SocketAddr::new(v4, PORT),
    };
    let mut buffer = [0; 2000];
    for (sender, from) in sockets.iter().enumerate() {
        for round in 0..3_u8 {
            // A container that has just come up has to find out that no other host has its addresses.
            let deadline = Instant::now() + TIMEOUT;
            while let Err(error) = from.send_to(&[sender as u8, round], target(sender)) {
                assert!(Instant::now() < deadline, "{sender} to {to}: {error}");
                thread::sleep(Duration::from_millis(20));
            }
            for (number, socket) in sockets.iter().enumerate().filter(|(number, _)| *number != sender) {
                let (length, _) = socket
                    .recv_from(&mut buffer)
                    .unwrap_or_else(|error| panic!("{number} does not hear {sender} to {to}: {error}: {}", said(lab)));
                assert_eq!(buffer[..length], [sender as u8, round], "{number} hears {sender} to {to}");
            }
            // A kernel gives what is sent to all to its own sockets, too; it does not come back from anywhere.
            from.set_nonblocking(true).unwrap();
            let own = std::iter::from_fn(|| from.recv(&mut buffer).ok()).count();
            from.set_nonblocking(false).unwrap();
            assert!(own <= 1, "{sender} hears himself {own} times");
        }
    }
    for socket in &sockets {
        socket.set_nonblocking(true).unwrap();
        let more = socket.recv(&mut buffer).ok().map(|length| buffer[..length].to_vec());
        assert_eq!(more, None, "to {to}");
    }
}

#[test]
fn what_is_sent_to_all_reaches_all_once() {
    Encapsulation::ALL.into_iter().for_each(reaches_all_by);
}

fn reaches_all_by(encapsulation: Encapsulation) {
    let Some(mut lab) = flooded(encapsulation, false) else { return };
    // A third node comes last, and is not there: what goes to the second one comes in by its interface once more.
    let underlay = lab.nodes[0].config.underlay.as_mut().unwrap();
    let peer = underlay.peers[&underlay_of(1)];
    underlay.peers.insert(underlay_of(2), peer);
    lab.nodes[0].flood(&[1, 2], false);
    // What containers ask by themselves before went to fewer.
    let packets = |node: &Node| node.router.traffic(1).unwrap().in_packets;
    let copies = |node: &Node| node.router.copied(1).unwrap();
    let before: Vec<_> = lab.nodes.iter().map(|node| (packets(node), copies(node))).collect();
    for to in [ALL, GROUP.into(), NODES] {
        reaches_all(&lab, to);
    }
    for ((node, (sent, begun)), each) in lab.nodes.iter().zip(before).zip([3, 2]) {
        // To the other container, and to the other nodes.
        let now = copies(node);
        let (frames, copied) = (now.frames - begun.frames, now.copies - begun.copies);
        assert!(frames >= 9 && copied == each * frames, "{begun:?} {now:?}");
        let of_container = packets(node) - sent;
        assert!(of_container >= frames && of_container < 2 * frames, "copies are counted as packets");
    }
}

/// The kernel's own VXLAN takes the place of a router. It knows of no address, and learns where they are.
#[test]
fn the_kernels_vxlan_learns_where_containers_are() {
    let Some(mut lab) = Lab::new(2, 2, Encapsulation::Vxlan) else { return };
    lab.nodes[0].flood(&[1], false);
    let mut kernel = lab.nodes.pop().unwrap();
    kernel.containers.clear();
    drop(kernel.router);
    for step in [
        format!(
            "link add vxlan0 address {} mtu 1450 type vxlan id {VNI} dstport 4789 local 192.0.2.2 remote 192.0.2.1 dev wire",
            mac_of(1, 0)
        ),
        format!("addr add {}/16 dev vxlan0", v4_of(1, 0)),
        format!("addr add {}/64 dev vxlan0 nodad", v6_of(1, 0)),
        "link set vxlan0 up".to_owned(),
    ] {
        run(&kernel.ns, &step);
    }
    let [a, b] = &lab.nodes[0].containers[..] else { panic!() };
    carry(&kernel.ns, a, v4_of(0, 0).into(), || said(&lab));
    carry(&kernel.ns, b, v6_of(0, 1), || said(&lab));
    carry(a, &kernel.ns, v4_of(1, 0).into(), || said(&lab));
    carry(b, &kernel.ns, v6_of(1, 0), || said(&lab));
    let neighbours = kernel.ns.run(|| std::process::Command::new("ip").args(["neigh"]).output().unwrap()).unwrap();
    let neighbours = String::from_utf8_lossy(&neighbours.stdout).into_owned();
    for (address, mac) in [(IpAddr::from(v4_of(0, 0)), mac_of(0, 0)), (v6_of(0, 1), mac_of(0, 1))] {
        assert!(neighbours.contains(&format!("{address} dev vxlan0 lladdr {mac}")), "{neighbours}");
    }
    let known = kernel.ns.run(|| std::process::Command::new("bridge").args(["fdb"]).output().unwrap()).unwrap();
    let known = String::from_utf8_lossy(&known.stdout).into_owned();
    assert!(known.contains(&format!("{} dev vxlan0 dst 192.0.2.1", mac_of(0, 0))), "{known}");

    // To all, both ways.
    let sockets = [a, b, &kernel.ns].map(|container| socket(container, ALL));
    let mut buffer = [0; 100];
    // A host without a route for all sends them by the address of its own network.
    for (sender, to) in [(0, ALL), (2, IpAddr::from([10, 7, 255, 255]))] {
        sockets[sender].send_to(b"to all", (to, PORT)).unwrap();
        for (number, socket) in sockets.iter().enumerate().filter(|(number, _)| *number != sender) {
            let got = socket.recv_from(&mut buffer).map(|(length, _)| length);
            assert_eq!(got.ok(), Some(6), "{number} does not hear {sender}: {}", said(&lab));
        }
    }
}

impl Node {
    fn broadcast(&self, packet: &[u8]) -> rig_datapath::vrouter::TestRunResult {
        self.give(Side::Container, &framed(mac_of(0, 0), Mac::BROADCAST, packet), "c0")
    }
}

fn udp(from: impl Into<IpAddr>, to: impl Into<IpAddr>, ports: [u16; 2], length: usize) -> Vec<u8> {
    Frame { payload: vec![7; length], ..Frame::new(L4::Udp, at(from, ports[0]), at(to, ports[1])) }.packet()
}

#[test]
fn what_is_sent_to_all_is_copied_as_the_model_says() {
    Encapsulation::ALL.into_iter().for_each(copied_by);
}

/// What stands in front of a frame to all, behind UDP or GRE.
fn shim(encapsulation: Encapsulation) -> &'static [u8] {
    match encapsulation {
        Encapsulation::Vxlan => &[8, 0, 0, 0, 0, 0x10, 0x92, 0],
        // Label 300, the last, with a time to live of its own.
        _ => &[0x00, 0x12, 0xc1, 64],
    }
}

fn copied_by(encapsulation: Encapsulation) {
    let Some(lab) = flooded(encapsulation, true) else { return };
    let node = &lab.nodes[0];
    let mut model = Model::new(small().flows as usize);
    model.apply(&node.config);
    let own = v4_of(0, 0);
    let discover = udp([0, 0, 0, 0], ALL, [68, 67], 300);
    let unknown = framed(mac_of(0, 0), Mac([2, 9, 9, 9, 9, 9]), &udp(own, [10, 7, 9, 9], [5, 5], 10));
    for frame in [framed(mac_of(0, 0), Mac::BROADCAST, &discover), unknown] {
        let expected = model.packet(Side::Container, node.index("c0"), &frame, 1);
        // To the other container first, then into the tunnel, as it is: the sender's own addresses, and its VNI.
        assert_eq!(expected.copies, [(Egress::Interface(2), frame.clone())]);
        let outcome = node.give(Side::Container, &frame, "c0");
        assert_eq!(outcome.verdict, Verdict::Redirect);
        assert_eq!(outcome.frame[12..], expected.frame[12..]);
        let (front, shim) = (usize::from(encapsulation.overhead_of_frame()), shim(encapsulation));
        assert_eq!(outcome.frame[front - shim.len()..front], *shim);
        assert_eq!(outcome.frame[front..], frame);
        // And out of it at the other node: to its containers, and never back.
        let arrived = lab.nodes[1].give(Side::Underlay, &outcome.frame, "wire");
        assert_eq!((arrived.verdict, &arrived.frame), (Verdict::Redirect, &frame));
    }
    // With them what containers' kernels tell groups by themselves.
    let CopyCount { frames, copies } = lab.nodes[1].router.copied(0).unwrap();
    assert!(frames >= 2 && copies == 2 * frames, "{frames} frames, {copies} copies");
}

#[test]
fn what_is_not_for_all_is_refused_with_a_reason() {
    Encapsulation::ALL.into_iter().for_each(refused_by);
}

fn refused_by(encapsulation: Encapsulation) {
    let Some(mut lab) = flooded(encapsulation, false) else { return };
    let own = v4_of(0, 0);
    let node = &lab.nodes[0];
    let forged = udp(v4_of(0, 1), ALL, [5, 5], 10);
    assert_eq!(node.reason(|| node.broadcast(&forged)), Reason::InvalidSource);
    // A router advertisement from a container would make it the others' router.
    let advertisement = Frame::new(L4::Udp, at(v6_of(0, 0), 1), at(NODES, 1)).packet();
    let mut advertisement = advertisement;
    (advertisement[6], advertisement[40]) = (protocol::ICMPV6, 134);
    assert_eq!(node.reason(|| node.broadcast(&advertisement)), Reason::Claim);
    let no_route = Reason::L2NoRoute.number();
    // Unknown addresses are for all only where a network wants it.
    let unknown = framed(mac_of(0, 0), Mac([2, 9, 9, 9, 9, 9]), &udp(own, [10, 7, 9, 9], [5, 5], 10));
    let before = node.drops();
    assert_eq!(node.give(Side::Container, &unknown, "c0").verdict, Verdict::Drop);
    assert!(node.drops().get(&no_route) > before.get(&no_route));

    // What a tunnel does not take the others get. With it goes the packet's Ethernet header, in each encapsulation.
    let too_big = Reason::TooBig.number();
    let most = WIRE - u32::from(encapsulation.overhead_of_frame());
    for (length, dropped) in [(most, None), (most + 1, Some(&1))] {
        let large = udp(own, ALL, [5, 5], length as usize - 28);
        assert_eq!(node.broadcast(&large).verdict, Verdict::Redirect);
        assert_eq!(node.drops().get(&too_big), dropped, "{encapsulation:?}");
    }

    // Rules of the sender, and of each receiver.
    let node = &mut lab.nodes[0];
    let only =
        |port| List { rules: vec![rule(Some(protocol::UDP), port..=port, Action::Allow)], otherwise: Action::Deny };
    node.config.lists = [(1, only(67)), (2, only(68))].into();
    let policy = |outward: &[u32], inward: &[u32]| {
        Some(Policy { outward: outward.to_vec(), inward: inward.to_vec(), most_flows: None })
    };
    node.config.interfaces.get_mut(&1).unwrap().policy = policy(&[1], &[]);
    node.config.interfaces.get_mut(&2).unwrap().policy = policy(&[], &[2]);
    node.apply();
    let node = &lab.nodes[0];
    assert_eq!(node.reason(|| node.broadcast(&udp(own, ALL, [5, 68], 10))), Reason::Policy);
    let of_member = || node.router.drops_of(2).unwrap().into_iter().find(|(reason, _)| *reason == Reason::Policy);
    let count = |drops: Option<(Reason, Vec<u64>)>| drops.map_or(0, |(_, cpus)| cpus.iter().sum::<u64>());
    let before = count(of_member());
    // The other container does not take it; the tunnel does.
    assert_eq!(node.broadcast(&udp(own, ALL, [68, 67], 10)).verdict, Verdict::Redirect);
    let refused = count(of_member()) - before;
    // What the container's own kernel sends to a group meanwhile is refused, too.
    assert!((1..4).contains(&refused), "{refused} copies refused");
    assert_eq!(node.router.flows().iter().filter(|flow| flow.destination.ip() == ALL).count(), 0);
}

#[test]
fn nobody_has_frames_copied_without_end() {
    let Some(mut lab) = flooded(Encapsulation::MplsOverUdp, false) else { return };
    // To many other nodes at once, none of which is there.
    let node = &mut lab.nodes[0];
    let underlay = node.config.underlay.as_mut().unwrap();
    let peer = *underlay.peers.values().next().unwrap();
    underlay.peers.extend((3..9).map(|node| (underlay_of(node), peer)));
    node.flood(&[1, 3, 4, 5, 6, 7, 8], false);
    let (node, index) = (&lab.nodes[0], lab.nodes[0].index("c0"));
    let refused = || node.drops().get(&Reason::ManyCopies.number()).copied().unwrap_or(0);
    let frame = framed(mac_of(0, 0), Mac::BROADCAST, &udp(v4_of(0, 0), ALL, [5, 5], 10));
    let many = || {
        let outcomes = (0..10_000).map(|_| node.router.test_run(Side::Container, &frame, index).unwrap());
        outcomes.filter(|outcome| outcome.verdict == Verdict::Redirect).count()
    };
    let copied = node.ns.run(many).unwrap();
    assert!(copied >= 1000 / 9 && refused() > 0, "{copied} frames copied, {} refused", refused());
    // What the container's own kernel sends to a group meanwhile is refused, too.
    let counted = copied as u64 + refused();
    assert!((10_000..10_100).contains(&counted), "{counted}");
    // Others' frames are.
    let other = framed(mac_of(0, 1), Mac::BROADCAST, &udp(v4_of(0, 1), ALL, [5, 5], 1));
    assert_eq!(node.give(Side::Container, &other, "c1").verdict, Verdict::Redirect);
}

/// A question in a tunnel, as a host behind it sends it.
fn asked(target: Ipv4Addr) -> Vec<u8> {
    let mut question = vec![0; 42];
    let header =
        ethernet::Header { destination: Mac::BROADCAST, source: mac_of(1, 0), vlan: None, ethertype: ethertype::ARP };
    header.write(&mut question).unwrap();
    let (sender, target) = ((mac_of(1, 0), v4_of(1, 0)), (Mac::default(), target));
    Arp { operation: Operation::Request, sender, target }.write(&mut question[ethernet::HEADER..]).unwrap();
    question
}

#[test]
fn questions_from_behind_a_tunnel_are_answered_with_containers_addresses() {
    let Some(lab) = Lab::new(2, 1, Encapsulation::Vxlan) else { return };
    let node = &lab.nodes[0];
    let wrapped = |frame: &[u8]| {
        let outer =
            super::outer::wrapped(Encapsulation::Vxlan, &udp(v4_of(1, 0), v4_of(0, 0), [1, 1], 0), 64, 50000, 1);
        let mut outer = outer[..36].to_vec();
        outer[2..4].copy_from_slice(&(36 + frame.len() as u16).to_be_bytes());
        outer[24..26].copy_from_slice(&(16 + frame.len() as u16).to_be_bytes());
        framed(Mac([4; 6]), Mac([2; 6]), &[&outer, frame].concat())
    };
    let outcome = node.give(Side::Underlay, &wrapped(&asked(v4_of(0, 0))), "wire");
    assert_eq!(outcome.verdict, Verdict::Redirect);
    let frame = &outcome.frame;
    assert_eq!((&frame[26..30], &frame[30..34]), (&[192, 0, 2, 1][..], &[192, 0, 2, 2][..]));
    let inner = &frame[50..];
    assert_eq!((&inner[..6], &inner[6..12]), (&mac_of(1, 0).0[..], &mac_of(0, 0).0[..]));
    let answer = Arp::parse(&inner[14..]).unwrap();
    assert_eq!(answer.operation, Operation::Reply);
    assert_eq!(answer.sender, (mac_of(0, 0), v4_of(0, 0)));
    assert_eq!(answer.target, (mac_of(1, 0), v4_of(1, 0)));
    // This node answers neither for containers elsewhere nor for the gateway, which every node is.
    for target in [v4_of(1, 0), Ipv4Addr::new(10, 7, 0, 1), Ipv4Addr::new(10, 7, 9, 9)] {
        let before = node.drops();
        assert_eq!(node.give(Side::Underlay, &wrapped(&asked(target)), "wire").verdict, Verdict::Drop, "{target}");
        let unanswered = Reason::Unanswered.number();
        assert!(node.drops().get(&unanswered) > before.get(&unanswered), "{target}");
    }
}

/// A frame behind a label of MPLS over UDP, from the other node.
fn labelled(label: u32, frame: &[u8]) -> Vec<u8> {
    let shim = (label << 12 | 0x13f).to_be_bytes();
    let outer = udp(underlay_of(1), underlay_of(0), [50_000, 6635], shim.len() + frame.len());
    framed(Mac([4; 6]), Mac([2; 6]), &[&outer[..28], &shim, frame].concat())
}

#[test]
fn a_label_for_frames_to_all_is_for_nothing_else() {
    let Some(mut lab) = flooded(Encapsulation::MplsOverUdp, false) else { return };
    let own = |lab: &Lab, reason: Reason| lab.nodes[0].drops().get(&reason.number()).copied().unwrap_or(0);
    let drops = |lab: &Lab, frame: &[u8], reason| {
        let before = own(lab, reason);
        assert_eq!(lab.nodes[0].give(Side::Underlay, frame, "wire").verdict, Verdict::Drop);
        assert!(own(lab, reason) > before, "{reason:?}: {:?}", lab.nodes[0].drops());
    };
    let from = v4_of(1, 0);
    let packet = udp(from, ALL, [68, 67], 10);
    let to_all = framed(mac_of(1, 0), Mac::BROADCAST, &packet);
    assert_eq!(lab.nodes[0].give(Side::Underlay, &labelled(TO_ALL, &to_all), "wire").verdict, Verdict::Redirect);
    // A packet without its frame; an ARP request; a frame for one MAC address; the frame behind an interface's label, and behind an
    // unknown one.
    drops(&lab, &labelled(TO_ALL, &packet), Reason::InvalidProtocol);
    drops(&lab, &labelled(TO_ALL, &packet[..13]), Reason::InvalidPacket);
    drops(&lab, &labelled(TO_ALL, &asked(v4_of(0, 0))), Reason::Unanswered);
    let for_one = framed(mac_of(1, 0), mac_of(0, 0), &udp(from, v4_of(0, 0), [5, 5], 10));
    drops(&lab, &labelled(TO_ALL, &for_one), Reason::L2NoRoute);
    drops(&lab, &labelled(100, &to_all), Reason::InvalidPacket);
    drops(&lab, &labelled(TO_ALL + 1, &to_all), Reason::InvalidLabel);
    // Forged, as in every encapsulation.
    let forged = framed(mac_of(1, 0), Mac::BROADCAST, &udp(v4_of(0, 1), ALL, [5, 5], 10));
    drops(&lab, &labelled(TO_ALL, &forged), Reason::InvalidSource);

    // A network without it has no such label any more.
    lab.nodes[0].config.vrfs.values_mut().for_each(|vrf| Arc::make_mut(vrf).flood = None);
    lab.nodes[0].apply();
    drops(&lab, &labelled(TO_ALL, &to_all), Reason::InvalidLabel);
}

#[test]
fn a_label_for_frames_to_all_is_no_interfaces() {
    let Some(mut lab) = flooded(Encapsulation::MplsOverGre, false) else { return };
    let node = &mut lab.nodes[0];
    node.config.labels.insert(TO_ALL, NextHop::Interface(1));
    let refused = node.config.validate().unwrap_err().to_string();
    assert!(refused.contains("label 300 of frames to all has another meaning, too"), "{refused}");
}

/// A container that gets a frame for another MAC address knows that it is not its own, the last member as the others.
#[test]
fn a_frame_for_an_address_that_nobody_has_is_nobodys_own() {
    let places = [(1, (0, 1)), (2, (1, 0)), (2, (1, 1))];
    for (encapsulation, (nodes, target)) in [Encapsulation::Vxlan, Encapsulation::MplsOverGre]
        .into_iter()
        .flat_map(|encapsulation| places.map(|place| (encapsulation, place)))
    {
        let Some(mut lab) = Lab::new(nodes, 2, encapsulation) else { return };
        for number in 0..nodes {
            let others: Vec<usize> = (0..nodes).filter(|other| *other != number).collect();
            lab.nodes[number].flood(&others, true);
        }
        let (node, container) = target;
        let (from, to) = (&lab.nodes[0].containers[0], &lab.nodes[node].containers[container]);
        let address = v4_of(node, container);
        run(from, &format!("neigh replace {address} lladdr 06:06:06:06:06:06 dev eth0"));
        let (sender, receiver) = (socket(from, ALL), socket(to, ALL));
        sender.send_to(b"for none", (address, PORT)).unwrap();
        sender.send_to(b"for all", (ALL, PORT)).unwrap();
        let mut buffer = [0; 100];
        let (length, _) = receiver.recv_from(&mut buffer).unwrap_or_else(|error| panic!("{error}: {}", said(&lab)));
        assert_eq!(buffer[..length], *b"for all", "{nodes} nodes, container {container} of node {node}");
        assert!(lab.nodes[0].router.copied(1).unwrap().frames >= 2, "{}", said(&lab));
    }
}
