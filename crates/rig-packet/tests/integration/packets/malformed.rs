//! Frames that are no valid packets are counted under their reason, and have no other effect.

use rig_packet::{Service, V4, V6};
use rig_wire::{Malformed, checksum, protocol};

use super::peer::Peer;
use super::rig::*;

const ETHERNET: usize = 14;

/// A server that has heard nothing yet.
fn peer<F: Hosts>() -> Peer<F> {
    Peer::new(server(Service::TcpServer(tcp_server())), true)
}

/// An IP packet whose checksums, but the header's, are as they are.
fn packet<F: Hosts>(number: u8, payload: &[u8]) -> Vec<u8> {
    peer::<F>().frame(number, payload.len(), |bytes, _| bytes.copy_from_slice(payload))
}

/// The frame with a byte of its IP packet changed, and the checksum of an IPv4 header made right.
fn changed(mut frame: Vec<u8>, at: usize, value: u8) -> Vec<u8> {
    let ip = &mut frame[ETHERNET..];
    ip[at] = value;
    if ip[0] >> 4 == 4 && at < 20 {
        ip[10..12].fill(0);
        let sum = checksum::of(&ip[..20]);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    frame
}

/// The frame with so many bytes after the Ethernet header.
fn cut(mut frame: Vec<u8>, bytes: usize) -> Vec<u8> {
    frame.truncate(ETHERNET + bytes);
    frame
}

/// Ethernet with an EtherType, or a tag, and what comes behind it.
fn ethernet(payload: &[u8]) -> Vec<u8> {
    [&SERVER_MAC.0[..], &CLIENT_MAC.0, payload].concat()
}

/// A message of ICMPv6, its checksum right, that has come over so many hops that `hops` are left.
fn icmpv6(message: &[u8], hops: u8) -> Vec<u8> {
    let frame = peer::<V6>().frame(protocol::ICMPV6, message.len(), |bytes, pseudo| {
        bytes.copy_from_slice(message);
        let sum = pseudo.bytes(bytes).checksum();
        bytes[2..4].copy_from_slice(&sum.to_be_bytes());
    });
    changed(frame, 7, hops)
}

/// A neighbor solicitation with `options` behind its fixed part.
fn solicitation(options: &[u8]) -> Vec<u8> {
    [&[135, 0, 0, 0, 0, 0, 0, 0][..], &V6::SERVER.octets(), options].concat()
}

/// A SYN with options that are none; its checksum is right.
fn syn(options: [u8; 4]) -> Vec<u8> {
    let segment = [&[0x9c, 0x40, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x60, 2, 1, 0, 0, 0, 0, 0][..], &options].concat();
    peer::<V4>().frame(protocol::TCP, segment.len(), |bytes, pseudo| {
        bytes.copy_from_slice(&segment);
        let sum = pseudo.bytes(bytes).checksum();
        bytes[16..18].copy_from_slice(&sum.to_be_bytes());
    })
}

fn of_ipv4() -> Vec<(Malformed, Vec<u8>)> {
    use Malformed::*;
    let plain = || packet::<V4>(protocol::TCP, &[0; 40]);
    let mut wrong = plain();
    wrong[ETHERNET + 8] ^= 1;
    vec![
        (EthernetShort, vec![0; 13]),
        (VlanShort, ethernet(&[0x81, 0, 0])),
        (VlanDepth, ethernet(&[0x81, 0, 0, 1, 0x81, 0, 0, 2, 0x81, 0, 0, 3, 8, 0])),
        (ArpShort, ethernet(&[8, 6, 0, 1, 8, 0, 6, 4, 0, 1])),
        (ArpKind, ethernet(&[&[8, 6, 0, 9, 8, 0, 6, 4, 0, 1][..], &[0; 20]].concat())),
        (Ipv4Short, cut(plain(), 19)),
        (Ipv4Version, changed(plain(), 0, 0x65)),
        (Ipv4HeaderLength, changed(plain(), 0, 0x44)),
        (Ipv4TotalLength, changed(plain(), 3, 255)),
        (Ipv4Checksum, wrong),
        (TcpShort, packet::<V4>(protocol::TCP, &[0; 19])),
        (TcpHeaderLength, packet::<V4>(protocol::TCP, &[0; 20])),
        (TcpOption, syn([2, 9, 0, 0])),
        (TcpChecksum, packet::<V4>(protocol::TCP, &[&[0; 12][..], &[0x50], &[1; 7]].concat())),
        (UdpShort, packet::<V4>(protocol::UDP, &[0; 7])),
        (UdpLength, packet::<V4>(protocol::UDP, &[0, 1, 0, 2, 0, 99, 0, 0])),
        (UdpChecksum, packet::<V4>(protocol::UDP, &[0, 1, 0, 2, 0, 8, 1, 1])),
        (IcmpShort, packet::<V4>(protocol::ICMP, &[8, 0, 0])),
        (IcmpChecksum, packet::<V4>(protocol::ICMP, &[8, 0, 1, 2, 3, 4, 5, 6])),
        (Fragment, changed(plain(), 6, 0x20)),
    ]
}

fn of_ipv6() -> Vec<(Malformed, Vec<u8>)> {
    use Malformed::*;
    let plain = || packet::<V6>(protocol::TCP, &[0; 40]);
    vec![
        (Ipv6Short, cut(plain(), 39)),
        (Ipv6Version, changed(plain(), 0, 0x45)),
        (Ipv6PayloadLength, changed(plain(), 5, 99)),
        (Ipv6Extension, packet::<V6>(0, &[6, 9, 0, 0, 0, 0, 0, 0])),
        (Ipv6ExtensionDepth, packet::<V6>(60, &[60, 0, 0, 0, 0, 0, 0, 0].repeat(10))),
        (UdpChecksum, packet::<V6>(protocol::UDP, &[0, 1, 0, 2, 0, 8, 0, 0])),
        (IcmpShort, packet::<V6>(protocol::ICMPV6, &[135])),
        (IcmpChecksum, packet::<V6>(protocol::ICMPV6, &[135, 0, 1, 2, 3, 4, 5, 6])),
        (NdShort, icmpv6(&[135, 0, 0, 0, 0, 0, 0, 0], 255)),
        (NdOption, icmpv6(&solicitation(&[1, 0, 0, 0, 0, 0, 0, 0]), 255)),
        (NdHopLimit, icmpv6(&solicitation(&[]), 64)),
        (Fragment, packet::<V6>(44, &[&[6, 0, 0, 1, 0, 0, 0, 1][..], &[0; 20]].concat())),
    ]
}

fn counted<F: Hosts>(cases: &[(Malformed, Vec<u8>)]) {
    for (reason, frame) in cases {
        let mut peer = peer::<F>();
        peer.frames(std::slice::from_ref(frame));
        let counters = peer.counters();
        let seen = Malformed::ALL.iter().filter(|&&reason| counters.malformed[reason as usize] > 0);
        assert_eq!(seen.collect::<Vec<_>>(), [reason], "{reason}");
        assert_eq!((counters.bad_rx, counters.pkt_rx, counters.sk_open), (1, 1, 0));
        assert!(peer.sent_frames().is_empty(), "{reason}");
    }
}

#[test]
fn each_reason_is_counted() {
    counted::<V4>(&of_ipv4());
    counted::<V6>(&of_ipv6());
    let seen: Vec<Malformed> = of_ipv4().iter().chain(&of_ipv6()).map(|(reason, _)| *reason).collect();
    let tunnels = [Malformed::VxlanShort, Malformed::VxlanFlags];
    let missing = Malformed::ALL.iter().filter(|reason| !seen.contains(reason) && !tunnels.contains(reason));
    assert_eq!(missing.collect::<Vec<_>>(), Vec::<&Malformed>::new());
}
