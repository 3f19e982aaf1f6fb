//! Packets of any kind from a few numbers, right and wrong ones.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use rig_datapath::vrouter::{Encapsulation, ROUTER_MAC};
use rig_wire::checksum::{self, PartialChecksum};
use rig_wire::ethernet::Mac;
use rig_wire::protocol::{ICMP, ICMPV6, TCP, UDP};

use super::lab::{TO_ALL, mac_of, underlay_of};

pub const ADDRESSES: u8 = 13;

/// The gateway, four containers here, four elsewhere, an anycast address, one that no container has, a group's, the unspecified one.
pub fn address(number: u8, is_v6: bool) -> IpAddr {
    let host = [1, 10, 11, 12, 13, 20, 21, 22, 23, 50][usize::from(number.min(9))];
    match (number, is_v6) {
        (10, false) => Ipv4Addr::new(198, 51, 100, 7).into(),
        (10, true) => "2001:db8::7".parse().unwrap(),
        (11, false) => Ipv4Addr::new(224, 0, 0, 5).into(),
        (11, true) => "ff02::5".parse().unwrap(),
        (12, false) => Ipv4Addr::UNSPECIFIED.into(),
        (12, true) => Ipv6Addr::UNSPECIFIED.into(),
        (_, false) => Ipv4Addr::new(10, 7, 0, host).into(),
        (_, true) => Ipv6Addr::new(0xfd07, 0, 0, 0, 0, 0, 0, host.into()).into(),
    }
}

pub fn mac(number: u8) -> Mac {
    match number {
        0 => ROUTER_MAC,
        1..=8 => mac_of((number - 1) / 4, usize::from(number - 1) % 4),
        9 => Mac::BROADCAST,
        12 => Mac([1, 0, 0x5e, 0, 0, 5]),
        _ => Mac([6, 6, 6, 6, 6, number]),
    }
}

#[derive(Debug, Clone)]
pub enum Transport {
    Tcp(u8),
    Udp,
    /// Of the packet's own family.
    Icmp {
        kind: u8,
        id: u8,
    },
    /// About a packet that went the other way.
    Error {
        kind: u8,
        about: Box<Transport>,
        to: u8,
    },
    Other(u8),
}

#[derive(Debug, Clone, Copy)]
pub struct FragmentHeader {
    pub id: u8,
    pub offset: u8,
    pub more: bool,
}

#[derive(Debug, Clone)]
pub struct InnerPacket {
    pub is_v6: bool,
    pub source: u8,
    pub destination: u8,
    pub ports: (u8, u8),
    pub above: Transport,
    pub payload: u16,
    pub ttl: u8,
    pub class: u8,
    pub piece: Option<FragmentHeader>,
    pub may_fragment: bool,
    /// Words of IPv4 options; of IPv6, which extension headers come first.
    pub options: u8,
    /// By how much the IP header's length is wrong.
    pub off: i8,
    /// Bytes behind the packet.
    pub padding: u8,
    /// Of TCP, which ones of [`TCP_OPTIONS`].
    pub tcp_options: u8,
}

/// With a maximum segment size in front, behind others, at an odd place, behind the end, and of lengths that cannot be.
const TCP_OPTIONS: [&[u8]; 8] = [
    &[],
    &[2, 4, 0x05, 0xb4, 4, 2, 1, 1],
    &[8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 2, 4, 0x23, 0x28, 1, 1],
    &[3, 3, 7, 2, 4, 0xff, 0xff, 0],
    &[0, 2, 4, 0x05, 0xb4, 0, 0, 0],
    &[1, 1, 1, 1, 1, 1, 1, 2, 4, 5, 6, 7],
    &[3, 0, 2, 4],
    &[254, 60, 2, 4, 9, 9, 9, 9],
];

/// What is wrong with a frame.
#[derive(Debug, Clone, Copy)]
pub enum Corruption {
    Nothing,
    Byte { at: u8, xor: u8 },
    Short { by: u8 },
}

pub fn spoil() -> impl Strategy<Value = Corruption> {
    prop_oneof![
        10 => Just(Corruption::Nothing),
        3 => (0_u8..120, 1_u8..).prop_map(|(at, xor)| Corruption::Byte { at, xor }),
        1 => (1_u8..120).prop_map(|by| Corruption::Short { by }),
    ]
}

impl Corruption {
    /// Never less than an Ethernet header, which the kernel's test runs want.
    pub fn apply(self, frame: &mut Vec<u8>) {
        match self {
            Corruption::Nothing => {}
            Corruption::Byte { at, xor } => {
                let at = usize::from(at) % frame.len();
                frame[at] ^= xor;
            }
            Corruption::Short { by } => frame.truncate(frame.len().saturating_sub(by.into()).max(14)),
        }
    }
}

fn above(is_v6: bool) -> impl Strategy<Value = Transport> {
    let flags = prop_oneof![4 => Just(0x02_u8), 4 => Just(0x10), 2 => Just(0x12), 2 => Just(0x11), 1 => Just(4), 1 => any::<u8>()];
    let (request, reply) = if is_v6 { (128, 129) } else { (8, 0) };
    let kind = prop_oneof![4 => Just(request), 3 => Just(reply), 1 => any::<u8>()];
    let plain = prop_oneof![
        5 => flags.prop_map(Transport::Tcp),
        5 => Just(Transport::Udp),
        4 => (kind, 0_u8..3).prop_map(|(kind, id)| Transport::Icmp { kind, id }),
        1 => prop_oneof![any::<u8>(), Just(44_u8), Just(60), Just(132), Just(ICMP), Just(ICMPV6)].prop_map(Transport::Other),
    ];
    let errors = if is_v6 { vec![1_u8, 2, 3, 4, 5, 137] } else { vec![3, 11, 12, 5, 4] };
    let errors = (prop::sample::select(errors), plain.clone().boxed(), 0..ADDRESSES)
        .prop_map(|(kind, about, to)| Transport::Error { kind, about: Box::new(about), to });
    prop_oneof![8 => plain, 1 => errors]
}

pub fn inner() -> impl Strategy<Value = InnerPacket> {
    let piece = (0_u8..3, prop_oneof![Just(0_u8), 0_u8..4], any::<bool>())
        .prop_map(|(id, offset, more)| FragmentHeader { id, offset, more });
    let ends = (prop_oneof![10 => 1_u8..10, 1 => 0..ADDRESSES], prop_oneof![12 => 0_u8..10, 1 => 0..ADDRESSES]);
    let odd = (
        prop_oneof![6 => Just(None), 1 => piece.prop_map(Some)],
        prop::bool::weighted(0.3),
        prop_oneof![8 => Just(0_u8), 1 => 1_u8..6],
        prop_oneof![12 => Just(0_i8), 1 => -20_i8..20],
        prop_oneof![6 => Just(0_u8), 1 => 1_u8..60],
        0..TCP_OPTIONS.len() as u8,
    );
    let class = prop_oneof![2 => Just(0_u8), 1 => any::<u8>()];
    let payload = prop_oneof![8 => 0_u16..40, 1 => 100_u16..200, 1 => 500_u16..700, 1 => 1400_u16..1500];
    let ttl = prop_oneof![6 => Just(64_u8), 1 => 0_u8..3, 1 => Just(255_u8)];
    (any::<bool>(), ends, (0_u8..3, 0_u8..3), payload, ttl, class, odd).prop_flat_map(
        |(is_v6, (source, destination), ports, payload, ttl, class, odd)| {
            let (piece, may_fragment, options, off, padding, tcp_options) = odd;
            above(is_v6).prop_map(move |above| InnerPacket {
                is_v6,
                source,
                destination,
                ports,
                above,
                payload,
                ttl,
                class,
                piece,
                may_fragment,
                options,
                off,
                padding,
                tcp_options,
            })
        },
    )
}

fn port(number: u8) -> u16 {
    [80, 443, 5000][usize::from(number) % 3]
}

/// Protocol, header and payload. The router does not check checksums on the way, except in packets that it answers.
fn l4(above: &Transport, packet: &InnerPacket, ends: (IpAddr, IpAddr)) -> (u8, Vec<u8>) {
    let (source, destination) = (port(packet.ports.0), port(packet.ports.1));
    let payload = vec![0x5a; packet.payload.into()];
    let own = if packet.is_v6 { ICMPV6 } else { ICMP };
    let icmp = |kind: u8, rest: [u8; 4], data: &[u8]| {
        let mut message = [&[kind, 0, 0, 0][..], &rest, data].concat();
        let pseudo = match ends {
            (IpAddr::V6(a), IpAddr::V6(b)) => PartialChecksum::pseudo_v6(a, b, ICMPV6, message.len()),
            _ => PartialChecksum::ZERO,
        };
        let sum = pseudo.bytes(&message).checksum();
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        message
    };
    match above {
        Transport::Tcp(flags) => {
            let mut header = [source.to_be_bytes(), destination.to_be_bytes()].concat();
            let options = TCP_OPTIONS[usize::from(packet.tcp_options) % TCP_OPTIONS.len()];
            let words = 5 + options.len() as u8 / 4;
            header.extend([1, 2, 3, 4, 5, 6, 7, 8, words << 4, *flags, 3, 232, 0x12, 0x34, 0, 0]);
            (TCP, [&header[..], options, &payload].concat())
        }
        Transport::Udp => {
            let length = (8 + payload.len()) as u16;
            let words = [source, destination, length, 0].map(u16::to_be_bytes);
            (UDP, [words.concat(), payload].concat())
        }
        Transport::Icmp { kind, id } => (own, icmp(*kind, [0, *id, 0, 1], &payload)),
        Transport::Error { kind, about, to } => {
            let quoted = InnerPacket {
                source: packet.destination,
                destination: *to,
                ports: (packet.ports.1, packet.ports.0),
                above: (**about).clone(),
                piece: None,
                options: 0,
                off: 0,
                padding: 0,
                payload: packet.payload % 64,
                ..packet.clone()
            };
            (own, icmp(*kind, [0; 4], &quoted.bytes()))
        }
        Transport::Other(protocol) => (*protocol, payload),
    }
}

impl InnerPacket {
    pub fn ends(&self) -> (IpAddr, IpAddr) {
        (address(self.source, self.is_v6), address(self.destination, self.is_v6))
    }

    /// The IP packet, with what follows it.
    pub fn bytes(&self) -> Vec<u8> {
        let ends = self.ends();
        let (protocol, mut above) = l4(&self.above, self, ends);
        let mut header = match ends {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let options = vec![1; usize::from(self.options) * 4];
                let mut header = vec![0x45 + self.options, self.class];
                let length = (20 + options.len() + above.len()) as u16;
                header.extend(length.wrapping_add_signed(self.off.into()).to_be_bytes());
                let piece = self.piece.map_or(0, |piece| u16::from(piece.more) << 13 | u16::from(piece.offset));
                let piece = piece | if self.may_fragment || piece != 0 { 0 } else { 0x4000 };
                header.extend([0x12, self.piece.map_or(0, |piece| piece.id)]);
                header.extend(piece.to_be_bytes());
                header.extend([self.ttl, protocol, 0, 0]);
                header.extend([source.octets(), destination.octets()].concat());
                header.extend(options);
                let sum = checksum::of(&header);
                header[10..12].copy_from_slice(&sum.to_be_bytes());
                header
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let mut next = protocol;
                // What is in front of the protocol above, the innermost first: each one's number and length.
                let extensions: &[(u8, u8)] = match self.options {
                    0 => &[],
                    1 => &[(60, 0)],
                    2 => &[(60, 1), (0, 0)],
                    3 => &[(51, 4), (43, 2)],
                    4 => &[(60, 0); 5],
                    _ => &[(60, 8)],
                };
                for (number, length) in extensions {
                    let bytes = usize::from(*length) * if *number == 51 { 4 } else { 8 } + 8;
                    let mut header = vec![0; bytes];
                    (header[0], header[1]) = (next, *length);
                    above = [header, above].concat();
                    next = *number;
                }
                if let Some(piece) = self.piece {
                    let offset = u16::from(piece.offset) << 3 | u16::from(piece.more);
                    let header = [&[next, 0][..], &offset.to_be_bytes(), &[0, 0, 0x12, piece.id]].concat();
                    above = [header, above].concat();
                    next = 44;
                }
                let mut header = (0x6000_1234 | u32::from(self.class) << 20).to_be_bytes().to_vec();
                header.extend((above.len() as u16).wrapping_add_signed(self.off.into()).to_be_bytes());
                header.extend([next, self.ttl]);
                header.extend([source.octets(), destination.octets()].concat());
                header
            }
            _ => panic!("two families"),
        };
        header.extend(above);
        header.extend(vec![0xee; self.padding.into()]);
        header
    }
}

pub fn framed(destination: Mac, source: Mac, packet: &[u8], is_v6: bool) -> Vec<u8> {
    let kind = if is_v6 { [0x86, 0xdd] } else { [8, 0] };
    [&destination.0[..], &source.0, &kind, packet].concat()
}

/// What stands in front of a packet that comes by a tunnel.
#[derive(Debug, Clone)]
pub struct OuterHeader {
    /// 0 is this router's, others are peers and a stranger.
    pub from: u8,
    pub encapsulation: Encapsulation,
    pub label: u32,
    /// Of the inner frame.
    pub macs: (u8, u8),
    pub class: u8,
    pub not_last: bool,
    pub is_fragment: bool,
    /// By how much the lengths of the outer headers are wrong.
    pub off: (i8, i8),
}

pub fn outer() -> impl Strategy<Value = OuterHeader> {
    let label = (0_u32..15, any::<u32>(), prop::bool::weighted(0.05));
    let off = prop_oneof![10 => Just((0_i8, 0_i8)), 1 => (-30_i8..30, -30_i8..30)];
    let odd = (prop::bool::weighted(0.05), prop::bool::weighted(0.05), off);
    let from = prop_oneof![8 => 1_u8..3, 1 => 0_u8..5];
    let macs = (prop_oneof![4 => Just(0_u8), 2 => Just(9), 4 => 0_u8..13], 0_u8..12);
    let class = prop_oneof![2 => Just(0_u8), 1 => any::<u8>()];
    (from, prop::sample::select(Encapsulation::ALL.to_vec()), label, macs, class, odd).prop_map(
        |(from, encapsulation, (label, guessed, is_guessed), macs, class, (not_last, is_fragment, off))| {
            let label = match label {
                _ if is_guessed => guessed & 0xf_ffff,
                label if encapsulation == Encapsulation::Vxlan => 4242 + label % 4,
                label if label < 6 => 100 + label % 4,
                label if label < 12 => 200 + label - 6,
                label => TO_ALL + label - 12,
            };
            OuterHeader { from, encapsulation, label, macs, class, not_last, is_fragment, off }
        },
    )
}

impl OuterHeader {
    pub fn wrap(&self, inner: &[u8], is_v6: bool) -> Vec<u8> {
        self.wrap_frame(&framed(mac(self.macs.0), mac(self.macs.1), inner, is_v6))
    }

    /// Whether the label, or identifier, is for frames.
    pub fn is_of_frames(&self) -> bool {
        self.encapsulation == Encapsulation::Vxlan || self.label >= TO_ALL
    }

    /// A frame, of which packets behind a label of MPLS have what is behind Ethernet.
    pub fn wrap_frame(&self, frame: &[u8]) -> Vec<u8> {
        let entry = self.label << 12 | if self.not_last { 0 } else { 0x100 } | 63;
        let shim = match self.encapsulation {
            Encapsulation::Vxlan => {
                let flags = if self.not_last { [0; 4] } else { [8, 0, 0, 0] };
                [&flags[..], &(self.label << 8).to_be_bytes(), frame].concat()
            }
            _ => [&entry.to_be_bytes()[..], &frame[if self.is_of_frames() { 0 } else { 14 }..]].concat(),
        };
        let (protocol, l4) = if self.encapsulation == Encapsulation::MplsOverGre {
            (47, [&[0, 0, 0x88, 0x47][..], &shim].concat())
        } else {
            let to = if self.encapsulation == Encapsulation::Vxlan { 4789 } else { 6635_u16 };
            let length = (8 + shim.len() as u16).wrapping_add_signed(self.off.1.into());
            let words = [50_000, to, length, 0].map(u16::to_be_bytes);
            (UDP, [words.concat(), shim].concat())
        };
        let length = (20 + l4.len() as u16).wrapping_add_signed(self.off.0.into());
        let mut ip = [&[0x45, self.class][..], &length.to_be_bytes(), &[0, 1]].concat();
        ip.extend(if self.is_fragment { [0x20, 0] } else { [0x40, 0] });
        ip.extend([64, protocol, 0, 0]);
        ip.extend([underlay_of(self.from.into()).octets(), underlay_of(0).octets()].concat());
        let sum = checksum::of(&ip);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        framed(Mac([2; 6]), Mac([4; 6]), &[ip, l4].concat(), false)
    }
}
