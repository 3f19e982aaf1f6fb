//! VXLAN below a link.

use std::net::Ipv4Addr;

use rig_packet::{Config, Engine, Family, Gateway, Link, MessageEnd, Service, Tunnel, V4, V6};
use rig_wire::checksum;
use rig_wire::ethernet::{Ethernet, Mac, ethertype};
use rig_wire::ipv4::Ipv4;
use rig_wire::udp::Udp;
use rig_wire::vxlan::{self, Vxlan};
use rig_wire::{FlowKey, Malformed};

use super::neighbors::{answers, arp_request, echo_request};
use super::rig::*;

const CLIENT_VTEP: Ipv4Addr = Ipv4Addr::new(172, 16, 0, 1);
const SERVER_VTEP: Ipv4Addr = Ipv4Addr::new(172, 16, 0, 2);
const INNER_CLIENT: Mac = Mac([2, 0, 0, 0, 9, 1]);
const INNER_SERVER: Mac = Mac([2, 0, 0, 0, 9, 2]);
const VNI: u32 = 0x0a_bcde;
/// Ethernet, IPv4, UDP and VXLAN.
const OUTER: usize = 50;

/// Puts an end into a tunnel.
fn tunneled<F: Hosts>(mut config: Config<F>, is_client: bool, gateway: Gateway<Ipv4Addr>) -> Config<F> {
    let inner = if is_client { (INNER_CLIENT, INNER_SERVER) } else { (INNER_SERVER, INNER_CLIENT) };
    let (local, remote) = if is_client { (CLIENT_VTEP, SERVER_VTEP) } else { (SERVER_VTEP, CLIENT_VTEP) };
    let Link { mac, answer, announce, vlan, hop_limit, tos, verify, .. } = config.link;
    let below = Link { mac, address: local, answer, announce, vlan, gateway, hop_limit, tos, verify, tunnel: None };
    config.link.mac = inner.0;
    config.link.gateway = Gateway::Known(inner.1);
    config.link.vlan = None;
    config.link.tunnel = Some(Box::new(Tunnel { vni: VNI, local, remote, link: below }));
    config
}

fn known(is_client: bool) -> Gateway<Ipv4Addr> {
    Gateway::Known(if is_client { SERVER_MAC } else { CLIENT_MAC })
}

fn pair<F: Hosts>(service: (Service, Service), change: impl Fn(&mut Config<F>)) -> (Config<F>, Config<F>) {
    let (mut a, mut b) = (client::<F>(service.0), server::<F>(service.1));
    change(&mut a);
    change(&mut b);
    (tunneled(a, true, known(true)), tunneled(b, false, known(false)))
}

fn udp() -> (Service, Service) {
    (Service::UdpClient(udp_client()), Service::UdpServer(udp_server()))
}

/// The inner frame, with the outer headers verified; and the outer source port.
fn inner(frame: &[u8]) -> (&[u8], u16) {
    let ethernet = Ethernet::parse(frame).unwrap();
    let ip = Ipv4::parse(ethernet.payload()).unwrap();
    ip.verify().unwrap();
    let udp = Udp::parse(ip.payload()).unwrap();
    udp.verify(ip.pseudo(), true).unwrap();
    assert_eq!((udp.destination_port(), frame.len()), (vxlan::PORT, udp.payload().len() + 42));
    let vxlan = Vxlan::parse(udp.payload()).unwrap();
    assert_eq!(vxlan.vni(), VNI);
    (vxlan.payload(), udp.source_port())
}

#[test]
fn every_byte_of_a_datagram_in_a_tunnel() {
    let (a, b) = pair::<V4>(udp(), |_| {});
    let mut rig = Rig::new(a, b);
    rig.pass(1000);
    rig.client.wind_down();
    rig.run(10_000, 1000);
    let mut frame = rig.frames_of_client()[0].clone();
    let (_, source_port) = inner(&frame);
    assert!(source_port >= 49_152);
    frame[34..36].fill(0);
    #[rustfmt::skip]
    let expected = [
        2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, // Ethernet
        0x45, 0, 0, 82, 0, 0, 0x40, 0, 64, 17, 0xe2, 0x77, 172, 16, 0, 1, 172, 16, 0, 2, // IPv4
        0, 0, 0x12, 0xb5, 0, 62, 0, 0, // UDP, without a checksum
        8, 0, 0, 0, 0x0a, 0xbc, 0xde, 0, // VXLAN
        2, 0, 0, 0, 9, 2, 2, 0, 0, 0, 9, 1, 8, 0, // the inner Ethernet
        0x45, 0, 0, 32, 0, 0, 0x40, 0, 64, 17, 0x25, 0xcc, 10, 0, 0, 1, 10, 0, 1, 1,
        0x27, 0x10, 0, 80, 0, 12,
    ];
    assert_eq!(frame[..expected.len()], expected);
    assert_eq!(&frame[expected.len() + 2..], b"ping");
    assert_eq!((describe(&frame[OUTER..]), rig.client.counters().udp_rx), ("udp 4".to_owned(), 1));
    rig.assert_nothing_is_stuck();
}

/// A response of many segments, whose length the outer headers follow.
fn streams<F: Hosts>(vlan: Option<u16>) {
    let (mut tcp, mut to) = (tcp_client(), tcp_server());
    (tcp.response, to.response) = (MessageEnd::Bytes(20_000), vec![b'x'; 20_000].into());
    let service = (Service::TcpClient(tcp), Service::TcpServer(to));
    let (a, b) = pair::<F>(service, |config| config.link.vlan = vlan);
    let mut rig = Rig::new(a, b);
    rig.pass(1000);
    rig.client.set_hold(Some(0));
    rig.run(MILLISECOND, 1000);
    rig.finish();
    rig.assert_nothing_is_stuck();
    assert_eq!((rig.client.counters().tcp_rsp, rig.client.counters().sk_err, rig.client.counters().bad_rx), (1, 0, 0));
    if vlan.is_none() {
        let ports: Vec<_> = rig.frames_of_server().iter().map(|frame| inner(frame).1).collect();
        assert!(ports.iter().all(|port| *port == ports[0]), "one flow, one port: {ports:?}");
    }
}

#[test]
fn streams_of_either_family_go_through_a_tunnel() {
    streams::<V4>(None);
    streams::<V6>(None);
    streams::<V4>(Some(100));
}

#[test]
fn flows_spread_over_source_ports() {
    let (mut udp, to) = (udp_client(), udp_server());
    udp.client.load.hold = Some(200);
    let (a, b) = pair::<V6>((Service::UdpClient(udp), Service::UdpServer(to)), |_| {});
    let mut rig = Rig::new(a, b);
    rig.run(20_000, 1000);
    let ports: std::collections::HashSet<_> =
        rig.frames_of_client().iter().take(200).map(|frame| inner(frame).1).collect();
    assert!(ports.len() > 180, "{} ports of 200 flows", ports.len());
}

#[test]
fn what_is_not_of_the_tunnel_is_not_let_in() {
    let (a, b) = pair::<V4>(udp(), |_| {});
    let mut rig = Rig::new(a, b.clone());
    rig.pass(1000);
    let good = rig.frames_of_client()[0].clone();
    let changed = |at: usize, value: u8| {
        let mut frame = good.clone();
        frame[at] = value;
        let (start, end) = (14, 34);
        frame[24..26].fill(0);
        let sum = checksum::of(&frame[start..end]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        frame
    };
    // Shortened, lengths and all.
    let cut = |length: usize| {
        let mut frame = good[..length].to_vec();
        frame[16..18].copy_from_slice(&(length as u16 - 14).to_be_bytes());
        frame[38..40].copy_from_slice(&(length as u16 - 34).to_be_bytes());
        frame[24..26].fill(0);
        let sum = checksum::of(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        frame
    };
    let strangers = [
        changed(29, 9),    // another end point
        changed(33, 9),    // for another end point
        changed(36, 0),    // another port
        changed(46, 0xff), // another network
        changed(55, 9),    // for another inner MAC address
    ];
    let broken = [
        (good[..40].to_vec(), Malformed::Ipv4TotalLength),
        (cut(45), Malformed::VxlanShort),
        (changed(42, 0), Malformed::VxlanFlags),
        (cut(OUTER), Malformed::EthernetShort),
        (cut(OUTER + 20), Malformed::Ipv4Short),
        (changed(40, 7), Malformed::UdpChecksum),
    ];
    let frames: Vec<_> = strangers.iter().chain(broken.iter().map(|(frame, _)| frame)).cloned().collect();
    let (sent, engine) = answers::<V4>(b.clone(), &frames);
    assert!(sent.is_empty(), "{sent:?}");
    assert_eq!((engine.counters().other_rx, engine.counters().bad_rx), (strangers.len() as u64, broken.len() as u64));
    for (_, reason) in &broken {
        assert_eq!(engine.counters().malformed[*reason as usize], 1, "{reason}");
    }
    // Without the tunnel's headers nothing comes in, however right it is.
    let (sent, engine) = answers::<V4>(b.clone(), &[good[OUTER..].to_vec()]);
    assert_eq!((sent.len(), engine.counters().other_rx), (0, 1));
    let (sent, _) = answers::<V4>(b, &[good]);
    assert_eq!(sent.len(), 1);
}

#[test]
fn neighbors_are_answered_on_both_sides_of_a_tunnel() {
    let wrap = |frame: &[u8]| {
        let (a, b) = pair::<V4>(udp(), |_| {});
        let mut rig = Rig::new(a, b);
        rig.pass(1000);
        let mut outer = rig.frames_of_client()[0][..OUTER].to_vec();
        outer.extend_from_slice(frame);
        let length = outer.len() as u16;
        outer[16..18].copy_from_slice(&(length - 14).to_be_bytes());
        outer[38..40].copy_from_slice(&(length - 34).to_be_bytes());
        outer[24..26].fill(0);
        let sum = checksum::of(&outer[14..34]);
        outer[24..26].copy_from_slice(&sum.to_be_bytes());
        outer
    };
    let (_, b) = pair::<V4>(udp(), |_| {});
    let below = [arp_request(CLIENT_VTEP, SERVER_VTEP), arp_request(CLIENT_VTEP, V4::SERVER)];
    let inside = [
        wrap(&arp_request(V4::CLIENT, V4::SERVER)),
        wrap(&echo_request(INNER_SERVER, V4::CLIENT, V4::SERVER)),
        wrap(&arp_request(V4::CLIENT, SERVER_VTEP)),
    ];
    let (sent, engine) = answers::<V4>(b, &[&below[..], &inside[..]].concat());
    let ethertypes: Vec<_> = sent
        .iter()
        .map(|frame| {
            let outside = Ethernet::parse(frame).unwrap();
            match outside.ethertype() {
                ethertype::IPV4 => (true, Ethernet::parse(inner(frame).0).unwrap().ethertype()),
                other => (false, other),
            }
        })
        .collect();
    assert_eq!(ethertypes, [(false, ethertype::ARP), (true, ethertype::ARP), (true, ethertype::IPV4)]);
    assert_eq!((engine.counters().arp_rx, engine.counters().arp_tx, engine.counters().icmp_tx), (4, 2, 1));
}

#[test]
fn the_gateway_of_a_tunnel_is_asked_for_on_the_link_below() {
    let (mut a, mut b) = (client::<V6>(udp().0), server::<V6>(udp().1));
    (a.link.announce, b.link.announce) = (true, true);
    let a = tunneled(a, true, Gateway::Address(SERVER_VTEP));
    let b = tunneled(b, false, Gateway::Address(CLIENT_VTEP));
    let mut rig = Rig::new(a, b);
    rig.run(20_000, 1000);
    assert_eq!((rig.client.gateway(), rig.server.gateway()), (Some(SERVER_MAC), Some(CLIENT_MAC)));
    assert!(rig.client.counters().udp_rx > 1);
    // The inner addresses are announced nowhere: their link is the tunnel.
    let first = FlowKey::of(&rig.frames_of_client()[0]).unwrap();
    assert_eq!((first, rig.client.counters().icmp_tx), (None, 0));
}

#[test]
fn tunnels_that_cannot_be_are_refused() {
    let said = |change: &dyn Fn(&mut Config<V4>)| {
        let mut config = pair::<V4>(udp(), |_| {}).0;
        assert_eq!(config.check(), Ok(()));
        change(&mut config);
        config.check().unwrap_err().to_string()
    };
    let tunnel = |config: &mut Config<V4>| config.link.tunnel.clone().unwrap();
    assert_eq!(
        said(&|config| config.link.tunnel.as_mut().unwrap().vni = 1 << 24),
        "tunnel: a network identifier has 24 bits"
    );
    let nested = said(&|config| {
        let inner = tunnel(config);
        config.link.tunnel.as_mut().unwrap().link.tunnel = Some(inner);
    });
    assert!(nested.starts_with("tunnel: it goes through another tunnel"), "{nested}");
    let asked = said(&|config| config.link.gateway = Gateway::Address(V4::SERVER));
    assert!(asked.starts_with("tunnel: the MAC address within it"), "{asked}");
}

#[test]
fn engines_of_both_families_know_their_headers() {
    // A template's outer length is that of its family.
    for (length, config) in [(OUTER + 46, 4), (OUTER + 66, 6)] {
        let frame = if config == 4 { first::<V4>() } else { first::<V6>() };
        assert_eq!(frame.len(), length);
    }
}

fn first<F: Hosts + Family>() -> Vec<u8> {
    let (a, b) = pair::<F>(udp(), |_| {});
    assert!(Engine::new(a.clone(), 0).is_ok());
    let mut rig = Rig::new(a, b);
    rig.pass(1000);
    rig.frames_of_client()[0].clone()
}
