//! Neighbours: where each address is, and which ones answer at all.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rig_packet::{AnswerScope, Config, Engine, Gateway, Port, Receive, Service, Transmit, V4, V6, memory};
use rig_wire::arp::{Arp, Operation};
use rig_wire::checksum::PartialChecksum;
use rig_wire::ethernet::{self, Ethernet, Mac, ethertype};
use rig_wire::icmp::{self, Icmp};
use rig_wire::icmpv6::{self, Icmpv6, Neighbor};
use rig_wire::ipv4::{self, Ipv4};
use rig_wire::ipv6::{self, Ipv6};
use rig_wire::{Malformed, protocol};

use super::rig::*;

/// What an engine sends when it is given `frames`.
pub fn answers<F: Hosts>(config: Config<F>, frames: &[Vec<u8>]) -> (Vec<Vec<u8>>, Engine<F>) {
    let (mut ours, mut theirs) = memory::pair(8);
    let mut engine = Engine::new(config, 0).unwrap();
    for frame in frames {
        theirs.halves().1.claim(frame.len()).unwrap().copy_from_slice(frame);
    }
    theirs.halves().1.flush();
    engine.pass(SECOND, &mut ours);
    let receive = theirs.halves().0;
    let sent = receive.poll();
    ((0..sent).map(|n| receive.frame(n).to_vec()).collect(), engine)
}

fn frame(destination: Mac, ethertype: u16, write: impl FnOnce(&mut [u8]) -> usize) -> Vec<u8> {
    let mut bytes = vec![0; 300];
    let header = ethernet::Header { destination, source: CLIENT_MAC, vlan: None, ethertype };
    let at = header.write(&mut bytes).unwrap();
    let length = at + write(&mut bytes[at..]);
    bytes.truncate(length);
    bytes
}

fn icmpv6(
    destination: Mac,
    ends: (Ipv6Addr, Ipv6Addr),
    length: usize,
    write: impl FnOnce(&mut [u8], PartialChecksum) -> usize,
) -> Vec<u8> {
    frame(destination, ethertype::IPV6, |bytes| {
        let (source, destination) = ends;
        let header = ipv6::Header { source, destination, protocol: protocol::ICMPV6, hop_limit: 255, traffic_class: 0 };
        let at = header.write(bytes, length).unwrap();
        at + write(&mut bytes[at..], PartialChecksum::pseudo_v6(source, destination, protocol::ICMPV6, length))
    })
}

fn udp<F: Hosts>() -> Config<F> {
    server::<F>(Service::UdpServer(udp_server()))
}

/// An ARP request of `sender` for the MAC address of `target`.
pub fn arp_request(sender: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
    arp(Operation::Request, (CLIENT_MAC, sender), target)
}

fn arp(operation: Operation, sender: (Mac, Ipv4Addr), target: Ipv4Addr) -> Vec<u8> {
    let arp = Arp { operation, sender, target: (Mac::default(), target) };
    frame(Mac::BROADCAST, ethertype::ARP, |bytes| arp.write(bytes).unwrap())
}

pub fn echo_request(to: Mac, source: Ipv4Addr, destination: Ipv4Addr) -> Vec<u8> {
    frame(to, ethertype::IPV4, |bytes| {
        let header = ipv4::Header { source, destination, protocol: 1, ttl: 64, tos: 0 };
        let at = header.write(bytes, 13).unwrap();
        at + icmp::write_echo(&mut bytes[at..], icmp::kind::ECHO_REQUEST, (7, 8), b"hello").unwrap()
    })
}

#[test]
fn arp_is_answered_for_our_addresses_only() {
    let ask = |target| arp_request(V4::CLIENT, target);
    let (sent, engine) = answers::<V4>(udp(), &[ask(V4::SERVER), ask(V4::CLIENT)]);
    assert_eq!(sent.len(), 1);
    let ethernet = Ethernet::parse(&sent[0]).unwrap();
    assert_eq!((ethernet.destination(), ethernet.source()), (CLIENT_MAC, SERVER_MAC));
    let reply = Arp { operation: Operation::Reply, sender: (SERVER_MAC, V4::SERVER), target: (CLIENT_MAC, V4::CLIENT) };
    assert_eq!(Arp::parse(ethernet.payload()), Ok(reply));
    assert_eq!((engine.counters().arp_rx, engine.counters().arp_tx), (2, 1));
}

#[test]
fn neighbor_solicitations_are_answered() {
    let (group, mac) = icmpv6::solicited_node(V6::SERVER);
    for source in [Some(CLIENT_MAC), None] {
        let message = Neighbor::Solicitation { target: V6::SERVER, source };
        let from = if source.is_some() { V6::CLIENT } else { Ipv6Addr::UNSPECIFIED };
        let question = icmpv6(mac, (from, group), message.len(), |bytes, pseudo| message.write(bytes, pseudo).unwrap());
        let (sent, engine) = answers::<V6>(udp(), &[question]);
        let ip = Ipv6::parse(Ethernet::parse(&sent[0]).unwrap().payload()).unwrap();
        let icmp = Icmpv6::parse(ip.payload()).unwrap();
        icmp.verify(ip.pseudo()).unwrap();
        let solicited = source.is_some();
        let answer = Neighbor::Advertisement { target: V6::SERVER, mac: Some(SERVER_MAC), solicited };
        assert_eq!(icmp.neighbor(ip.hop_limit()), Ok(Some(answer)));
        assert_eq!(ip.destination().is_multicast(), !solicited);
        assert_eq!(engine.counters().icmp_tx, 1);
    }
}

/// A neighbour that asks has told where it is: the engine sends to it without asking itself.
#[test]
fn a_gateway_that_asks_tells_where_it_is() {
    let asking = |gateway| {
        let mut config = udp();
        config.link.gateway = Gateway::Address(gateway);
        answers::<V4>(config, &[arp_request(V4::CLIENT, V4::SERVER)]).1
    };
    assert_eq!(asking(V4::CLIENT).gateway(), Some(CLIENT_MAC));
    assert!(asking(V4::CLIENT).is_ready());
    let other = Ipv4Addr::new(192, 0, 2, 1);
    assert!(!asking(other).is_ready(), "another neighbour asked");

    let (group, mac) = icmpv6::solicited_node(V6::SERVER);
    let asking = |source| {
        let message = Neighbor::Solicitation { target: V6::SERVER, source };
        let ends = (V6::CLIENT, group);
        let question = icmpv6(mac, ends, message.len(), |bytes, pseudo| message.write(bytes, pseudo).unwrap());
        let mut config = udp();
        config.link.gateway = Gateway::Address(V6::CLIENT);
        answers::<V6>(config, &[question]).1
    };
    assert_eq!(asking(Some(CLIENT_MAC)).gateway(), Some(CLIENT_MAC));
    assert!(!asking(None).is_ready(), "it did not say where it is");
}

#[test]
fn echoes_come_back() {
    let request = echo_request(SERVER_MAC, V4::CLIENT, V4::SERVER);
    let (sent, _) = answers::<V4>(udp(), &[request]);
    let ip = Ipv4::parse(Ethernet::parse(&sent[0]).unwrap().payload()).unwrap();
    let echo = Icmp::parse(ip.payload()).unwrap();
    assert_eq!((ip.verify(), echo.verify(), ip.destination()), (Ok(()), Ok(()), V4::CLIENT));
    assert_eq!((echo.kind(), echo.echo(), echo.payload()), (icmp::kind::ECHO_REPLY, (7, 8), &b"hello"[..]));

    let request = icmpv6(SERVER_MAC, (V6::CLIENT, V6::SERVER), 13, |bytes, pseudo| {
        icmpv6::write_echo(bytes, icmpv6::kind::ECHO_REQUEST, (7, 8), b"hello", pseudo).unwrap()
    });
    let (sent, _) = answers::<V6>(udp(), &[request]);
    let ip = Ipv6::parse(Ethernet::parse(&sent[0]).unwrap().payload()).unwrap();
    let echo = Icmpv6::parse(ip.payload()).unwrap();
    assert_eq!((echo.verify(ip.pseudo()), ip.destination()), (Ok(()), V6::CLIENT));
    assert_eq!((echo.kind(), echo.echo(), echo.payload()), (icmpv6::kind::ECHO_REPLY, (7, 8), &b"hello"[..]));
}

/// Both ends look for each other before anything else is sent.
fn resolves<F: Hosts>() {
    let mut a = client::<F>(Service::TcpClient(tcp_client()));
    let mut b = server::<F>(Service::TcpServer(tcp_server()));
    a.link.gateway = Gateway::Address(F::SERVER);
    b.link.gateway = Gateway::Address(F::CLIENT);
    let mut rig = Rig::new(a, b);
    assert!(!rig.client.is_ready());
    rig.pass(1000);
    assert_eq!(rig.client.counters().tcp_tx, 0);
    rig.run(MILLISECOND, 1000);
    assert!(rig.client.is_ready() && rig.server.is_ready());
    assert!(rig.client.counters().tcp_rsp > 10);
    assert_eq!(rig.client.counters().sk_err, 0);
    let questions = |rig: &Rig<F>| rig.client.counters().arp_tx + rig.client.counters().icmp_tx;
    let before = questions(&rig);
    rig.run(31 * SECOND, 10 * MILLISECOND);
    assert_eq!(questions(&rig), before + 2, "one question and one answer, after half a minute");
}

#[test]
fn the_gateway_is_found_and_refreshed() {
    resolves::<V4>();
    resolves::<V6>();
}

#[test]
fn an_absent_gateway_is_asked_for_each_second() {
    let mut config = client::<V4>(Service::TcpClient(tcp_client()));
    config.link.gateway = Gateway::Address(V4::SERVER);
    let mut rig = Rig::with_faults(
        config,
        server::<V4>(Service::TcpServer(tcp_server())),
        Box::new(|_, _| FrameFate::Drop),
        Box::new(|_, _| FrameFate::Pass),
    );
    rig.run(5 * SECOND, MILLISECOND);
    assert_eq!((rig.client.counters().arp_tx, rig.client.counters().pkt_tx, rig.client.counters().sk_open), (5, 5, 0));
}

#[test]
fn what_is_no_packet_is_counted_by_its_reason() {
    let mut rig =
        Rig::new(client::<V4>(Service::TcpClient(tcp_client())), server::<V4>(Service::TcpServer(tcp_server())));
    rig.run(4000, 1000);
    let good = rig.frames_of_client()[1].clone();
    let damaged = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        bytes
    };
    let mut fragment = good.clone();
    fragment[20] = 0x20;
    fragment[24..26].fill(0);
    let checksum = rig_wire::checksum::of(&fragment[14..34]);
    fragment[24..26].copy_from_slice(&checksum.to_be_bytes());
    let cases = [
        (vec![1, 2, 3], Malformed::EthernetShort),
        (good[..30].to_vec(), Malformed::Ipv4Short),
        (damaged(14, 0x65), Malformed::Ipv4Version),
        (damaged(14, 0x44), Malformed::Ipv4HeaderLength),
        (damaged(17, 255), Malformed::Ipv4TotalLength),
        (damaged(22, 1), Malformed::Ipv4Checksum),
        (damaged(46, 0xf0), Malformed::TcpHeaderLength),
        (damaged(60, 0), Malformed::TcpChecksum),
        (fragment, Malformed::Fragment),
    ];
    let frames: Vec<_> = cases.iter().map(|(bytes, _)| bytes.clone()).collect();
    let (sent, engine) = answers::<V4>(server(Service::TcpServer(tcp_server())), &frames);
    assert!(sent.is_empty());
    for (_, reason) in &cases {
        assert_eq!(engine.counters().malformed[*reason as usize], 1, "{reason}");
    }
    assert_eq!((engine.counters().bad_rx, engine.counters().sk_open), (cases.len() as u64, 0));
}

/// The addresses that the frames announce, and the frames' destinations.
fn announced(frames: &[Vec<u8>]) -> Vec<(IpAddr, Mac)> {
    let address = |frame: &Vec<u8>| {
        let ethernet = Ethernet::parse(frame).unwrap();
        let address: IpAddr = match ethernet.ethertype() {
            ethertype::ARP => {
                let arp = Arp::parse(ethernet.payload()).unwrap();
                assert_eq!((arp.sender.0, arp.sender.1), (SERVER_MAC, arp.target.1), "gratuitous");
                arp.target.1.into()
            }
            _ => {
                let ip = Ipv6::parse(ethernet.payload()).unwrap();
                let icmp = Icmpv6::parse(ip.payload()).unwrap();
                icmp.verify(ip.pseudo()).unwrap();
                let Ok(Some(Neighbor::Advertisement { target, mac, solicited })) = icmp.neighbor(ip.hop_limit()) else {
                    panic!("no advertisement");
                };
                assert_eq!((mac, solicited, ip.source()), (Some(SERVER_MAC), false, target));
                assert_eq!(ip.destination(), Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1));
                target.into()
            }
        };
        (address, ethernet.destination())
    };
    frames.iter().map(address).collect()
}

#[test]
fn all_addresses_are_announced_a_few_in_a_pass() {
    let mut config = udp::<V4>();
    (config.link.address, config.link.announce) = (Ipv4Addr::new(10, 0, 1, 250), true);
    config.local = vec![(V4::SERVER, 20)];
    let (mut ours, mut theirs) = memory::pair(8);
    let mut engine = Engine::new(config, 0).unwrap();
    let mut sent: Vec<Vec<Vec<u8>>> = Vec::new();
    for pass in 0..5 {
        engine.pass(SECOND + pass, &mut ours);
        let receive = theirs.halves().0;
        let frames = receive.poll();
        sent.push((0..frames).map(|n| receive.frame(n).to_vec()).collect());
    }
    assert_eq!(sent.iter().map(Vec::len).collect::<Vec<_>>(), [8, 8, 5, 0, 0]);
    let expected: Vec<IpAddr> = [250].into_iter().chain(1..=20).map(|n| Ipv4Addr::new(10, 0, 1, n).into()).collect();
    let announced = announced(&sent.concat());
    assert_eq!(announced.iter().map(|(address, _)| *address).collect::<Vec<_>>(), expected);
    assert!(announced.iter().all(|(_, mac)| *mac == Mac::BROADCAST));
    assert_eq!(engine.counters().arp_tx, 21);
}

#[test]
fn neighbors_learn_by_advertisements() {
    let mut config = udp::<V6>();
    config.link.announce = true;
    config.local = vec![(V6::SERVER, 2)];
    let (sent, _) = answers::<V6>(config, &[]);
    let all_nodes = Mac([0x33, 0x33, 0, 0, 0, 1]);
    let second: Ipv6Addr = (V6::SERVER.to_bits() + 1).into();
    assert_eq!(announced(&sent), [(V6::SERVER.into(), all_nodes), (second.into(), all_nodes)]);
}

#[test]
fn behind_direct_routing_only_the_port_is_answered_for_and_announced() {
    let mut config = udp::<V4>();
    let own = Ipv4Addr::new(10, 0, 1, 200);
    (config.link.address, config.link.answer, config.link.announce) = (own, AnswerScope::Port, true);
    let questions = [arp_request(V4::CLIENT, V4::SERVER), arp_request(V4::CLIENT, own)];
    let (sent, _) = answers::<V4>(config.clone(), &questions);
    let told: Vec<_> =
        sent.iter().map(|frame| Arp::parse(Ethernet::parse(frame).unwrap().payload()).unwrap()).collect();
    assert_eq!(told.iter().map(|arp| arp.sender.1).collect::<Vec<_>>(), [own, own], "an answer and an announcement");
    assert_eq!(told.iter().map(|arp| arp.operation).collect::<Vec<_>>(), [Operation::Reply, Operation::Request]);
    // The engine still answers packets to the service address.
    config.link.announce = false;
    let (sent, _) = answers::<V4>(config, &[echo_request(SERVER_MAC, V4::CLIENT, V4::SERVER)]);
    assert_eq!(sent.len(), 1);
}

#[test]
fn a_gateway_that_moves_is_followed() {
    let mut config = client::<V4>(Service::UdpClient(udp_client()));
    config.link.gateway = Gateway::Address(V4::SERVER);
    let (mut ours, mut theirs) = memory::pair(8);
    let mut engine = Engine::new(config, 0).unwrap();
    let elsewhere = Mac([2, 0, 0, 0, 0, 77]);
    let mut tell = |engine: &mut Engine<V4>, frame: &[u8], now| {
        theirs.halves().1.claim(frame.len()).unwrap().copy_from_slice(frame);
        theirs.halves().1.flush();
        engine.pass(now, &mut ours);
    };
    tell(&mut engine, &arp(Operation::Reply, (SERVER_MAC, V4::SERVER), V4::CLIENT), SECOND);
    assert_eq!(engine.gateway(), Some(SERVER_MAC));
    // It announces itself from another place, and so does another host.
    tell(&mut engine, &arp(Operation::Request, (elsewhere, V4::SERVER), V4::SERVER), 2 * SECOND);
    assert_eq!(engine.gateway(), Some(elsewhere));
    let other = Ipv4Addr::new(10, 0, 1, 99);
    tell(&mut engine, &arp(Operation::Request, (CLIENT_MAC, other), other), 3 * SECOND);
    assert_eq!(engine.gateway(), Some(elsewhere));
    // A question for us says where it comes from, too.
    tell(&mut engine, &arp(Operation::Request, (SERVER_MAC, V4::SERVER), V4::CLIENT), 4 * SECOND);
    assert_eq!(engine.gateway(), Some(SERVER_MAC));
    tell(&mut engine, &arp(Operation::Request, (elsewhere, other), V4::CLIENT), 5 * SECOND);
    assert_eq!(engine.gateway(), Some(SERVER_MAC));
}

/// "Port unreachable" of `packet`, which starts with its IP header.
fn port_unreachable(packet: &[u8]) -> Vec<u8> {
    frame(CLIENT_MAC, ethertype::IPV4, |bytes| {
        let header =
            ipv4::Header { source: V4::SERVER, destination: V4::CLIENT, protocol: protocol::ICMP, ttl: 64, tos: 0 };
        let at = header.write(bytes, icmp::HEADER + packet.len()).unwrap();
        let message = &mut bytes[at..][..icmp::HEADER + packet.len()];
        message.fill(0);
        (message[0], message[1]) = (icmp::kind::UNREACHABLE, 3);
        message[icmp::HEADER..].copy_from_slice(packet);
        let sum = rig_wire::checksum::of(message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        at + message.len()
    })
}

#[test]
fn a_port_that_nobody_listens_to_fails_the_flow() {
    let mut rig =
        Rig::new(client::<V4>(Service::UdpClient(udp_client())), server::<V4>(Service::UdpServer(udp_server())));
    rig.pass(1000);
    let sent = rig.frames_of_client()[0][14..].to_vec();
    let quoted = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut packet = sent.clone();
        change(&mut packet);
        port_unreachable(&packet)
    };
    let count = |frames: &[Vec<u8>]| {
        let (mut ours, mut theirs) = memory::pair(8);
        let mut engine = Engine::new(client::<V4>(Service::UdpClient(udp_client())), 0).unwrap();
        engine.pass(SECOND, &mut ours);
        engine.set_hold(Some(0));
        for frame in frames {
            theirs.halves().1.claim(frame.len()).unwrap().copy_from_slice(frame);
        }
        theirs.halves().1.flush();
        engine.pass(SECOND + 1000, &mut ours);
        let counters = engine.counters();
        (counters.unreachable, counters.sk_err, counters.sk_con())
    };
    // The header and eight bytes are enough.
    assert_eq!(count(&[quoted(&|packet| packet.truncate(28))]), (1, 1, 0));
    let garbage = [
        quoted(&|packet| packet.truncate(27)),
        quoted(&Vec::clear),
        quoted(&|packet| packet[0] = 0x4f),
        quoted(&|packet| packet[0] = 0x65),
        quoted(&|packet| packet[9] = protocol::TCP),
        quoted(&|packet| packet[15] = 99),
        quoted(&|packet| packet[21] ^= 1),
    ];
    for (n, frame) in garbage.into_iter().enumerate() {
        assert_eq!(count(&[frame]), (0, 0, 1), "{n}");
    }
}

#[test]
fn packets_with_a_type_of_service_are_counted() {
    fn tos<F: Hosts>(tos: u8) -> u64 {
        let mut config = client::<F>(Service::UdpClient(udp_client()));
        config.link.tos = tos;
        let mut rig = Rig::new(config, server::<F>(Service::UdpServer(udp_server())));
        rig.pass(1000);
        assert_eq!(rig.client.counters().tos_rx, 0);
        rig.server.counters().tos_rx
    }
    assert_eq!([tos::<V4>(0), tos::<V4>(0x28), tos::<V6>(0), tos::<V6>(0xff)], [0, 1, 0, 1]);
}
