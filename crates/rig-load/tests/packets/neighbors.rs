//! Who is where, and who is there at all.

use std::net::Ipv6Addr;

use rig_load::packet::{Config, Engine, Gateway, Port, Receive, Service, Transmit, V4, V6, memory};
use rig_wire::arp::{Arp, Operation};
use rig_wire::checksum::Sum;
use rig_wire::ethernet::{self, Ethernet, Mac, ethertype};
use rig_wire::icmp::{self, Icmp};
use rig_wire::icmpv6::{self, Icmpv6, Neighbor};
use rig_wire::ipv4::{self, Ipv4};
use rig_wire::ipv6::{self, Ipv6};
use rig_wire::{Malformed, protocol};

use crate::rig::*;

/// What an engine sends when it is given `frames`.
fn answers<F: Ends>(config: Config<F>, frames: &[Vec<u8>]) -> (Vec<Vec<u8>>, Engine<F>) {
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
    write: impl FnOnce(&mut [u8], Sum) -> usize,
) -> Vec<u8> {
    frame(destination, ethertype::IPV6, |bytes| {
        let (source, destination) = ends;
        let header = ipv6::Header { source, destination, protocol: protocol::ICMPV6, hop_limit: 255, traffic_class: 0 };
        let at = header.write(bytes, length).unwrap();
        at + write(&mut bytes[at..], Sum::pseudo_v6(source, destination, protocol::ICMPV6, length))
    })
}

fn udp<F: Ends>() -> Config<F> {
    server::<F>(Service::UdpServer(udp_server()))
}

#[test]
fn arp_is_answered_for_our_addresses_only() {
    let ask = |target| {
        let arp =
            Arp { operation: Operation::Request, sender: (CLIENT_MAC, V4::CLIENT), target: (Mac::default(), target) };
        frame(Mac::BROADCAST, ethertype::ARP, |bytes| arp.write(bytes).unwrap())
    };
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

#[test]
fn echoes_come_back() {
    let request = frame(SERVER_MAC, ethertype::IPV4, |bytes| {
        let header = ipv4::Header { source: V4::CLIENT, destination: V4::SERVER, protocol: 1, ttl: 64, tos: 0 };
        let at = header.write(bytes, 13).unwrap();
        at + icmp::write_echo(&mut bytes[at..], icmp::kind::ECHO_REQUEST, (7, 8), b"hello").unwrap()
    });
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
fn resolves<F: Ends>() {
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
        Box::new(|_, _| Fate::Drop),
        Box::new(|_, _| Fate::Pass),
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
