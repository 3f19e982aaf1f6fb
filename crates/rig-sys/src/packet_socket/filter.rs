//! Which frames a packet socket takes, as a classic BPF program (Documentation/networking/filter.rst of the kernel): in
//! contrast to eBPF it takes no privileges.

use std::net::{IpAddr, Ipv4Addr};

use crate::xdp::{Filter, PortAddresses};

const LOAD_WORD: u16 = 0x20;
const LOAD_HALF: u16 = 0x28;
const LOAD_BYTE: u16 = 0x30;
const SUBTRACT: u16 = 0x14;
const JUMP: u16 = 0x05;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_AT_LEAST: u16 = 0x35;
const RETURN: u16 = 0x06;
const ALL: u32 = u32::MAX;

/// Where the packet begins. The kernel takes the VLAN tag out before the filter sees the frame.
const PACKET: u32 = 14;
const IPV4_DESTINATION: u32 = PACKET + 16;
const ARP_TARGET: u32 = PACKET + 24;
const IPV6_DESTINATION: u32 = PACKET + 24;
const SOLICITED: u32 = PACKET + 48;

type Code = Vec<libc::sock_filter>;

/// The program of a filter; none for one that takes everything.
pub(super) fn program(filter: &Filter) -> Option<Code> {
    let Filter::Addresses(own) = filter else { return None };
    let v4 = own.addresses.iter().filter_map(|&(first, count)| match first {
        IpAddr::V4(first) => Some((first, count)),
        IpAddr::V6(_) => None,
    });
    let v4: Vec<_> = v4.collect();
    let all: Vec<_> = v4.iter().chain(&own.tunnels).copied().collect();
    let mut code = Vec::new();
    code.push(load(LOAD_HALF, 12));
    for (ethertype, part) in [(0x0806, within(ARP_TARGET, &all)), (0x0800, ipv4(own, &v4)), (0x86dd, ipv6(own))] {
        code.push(jump(JUMP_EQUAL, ethertype, 1, 0));
        code.push(jump(JUMP, part.len() as u32 + 1, 0, 0));
        code.extend(part);
        code.push(give(0));
    }
    code.push(give(0));
    Some(code)
}

fn ipv4(own: &PortAddresses, addresses: &[(Ipv4Addr, u32)]) -> Code {
    let mut code = within(IPV4_DESTINATION, addresses);
    // Version 4 without options, UDP, to VXLAN's port.
    let conditions = [(LOAD_BYTE, PACKET, 0x45), (LOAD_BYTE, PACKET + 9, 17), (LOAD_HALF, PACKET + 22, 4789)];
    if !own.tunnels.is_empty() {
        for (size, offset, value) in conditions {
            code.extend([load(size, offset), jump(JUMP_EQUAL, value, 1, 0), give(0)]);
        }
        code.extend(within(IPV4_DESTINATION, &own.tunnels));
    }
    code
}

fn ipv6(own: &PortAddresses) -> Code {
    let mut code = within_v6(IPV6_DESTINATION, own);
    // A neighbor solicitation right behind the header (RFC 4861, 4.3).
    for (offset, value) in [(PACKET + 6, 58), (PACKET + 40, 135)] {
        code.extend([load(LOAD_BYTE, offset), jump(JUMP_EQUAL, value, 1, 0), give(0)]);
    }
    code.extend(within_v6(SOLICITED, own));
    code
}

/// Takes the frame when the address at `offset` is in one of the ranges.
fn within(offset: u32, ranges: &[(Ipv4Addr, u32)]) -> Code {
    let one = |&(first, count): &(Ipv4Addr, u32)| {
        [
            load(LOAD_WORD, offset),
            libc::sock_filter { code: SUBTRACT, jt: 0, jf: 0, k: first.to_bits() },
            jump(JUMP_AT_LEAST, count, 1, 0),
            give(ALL),
        ]
    };
    ranges.iter().flat_map(one).collect()
}

fn within_v6(offset: u32, own: &PortAddresses) -> Code {
    let mut code = Vec::new();
    for (first, count) in own.segments() {
        let octets = first.octets();
        let words = octets.as_chunks::<4>().0.iter().map(|word| u32::from_be_bytes(*word));
        for ((n, word), rest) in (0..).zip(words).take(3).zip([8, 6, 4]) {
            code.extend([load(LOAD_WORD, offset + 4 * n), jump(JUMP_EQUAL, word, 0, rest)]);
        }
        code.extend(within(offset + 12, &[(Ipv4Addr::from_bits(first.to_bits() as u32), count)]));
    }
    code
}

/// Takes packets from these senders, all of one IP version. It begins at the IP header.
pub(super) fn from_senders(senders: &[IpAddr]) -> Code {
    const IPV4_SOURCE: u32 = 12;
    const IPV6_SOURCE: u32 = 8;
    let mut code = Vec::new();
    for sender in senders {
        match sender {
            IpAddr::V4(sender) => {
                let word = sender.to_bits();
                code.extend([load(LOAD_WORD, IPV4_SOURCE), jump(JUMP_EQUAL, word, 0, 1), give(ALL)]);
            }
            IpAddr::V6(sender) => {
                let octets = sender.octets();
                let words = octets.as_chunks::<4>().0.iter().map(|word| u32::from_be_bytes(*word));
                for ((n, word), rest) in (0..).zip(words).zip([7, 5, 3, 1]) {
                    code.extend([load(LOAD_WORD, IPV6_SOURCE + 4 * n), jump(JUMP_EQUAL, word, 0, rest)]);
                }
                code.push(give(ALL));
            }
        }
    }
    code.push(give(0));
    code
}

fn load(size: u16, offset: u32) -> libc::sock_filter {
    libc::sock_filter { code: size, jt: 0, jf: 0, k: offset }
}

fn jump(code: u16, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}

fn give(bytes: u32) -> libc::sock_filter {
    libc::sock_filter { code: RETURN, jt: 0, jf: 0, k: bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the few instructions that are used here.
    fn takes(code: &Code, frame: &[u8]) -> bool {
        let (mut at, mut a) = (0usize, 0u32);
        loop {
            let i = &code[at];
            at += 1;
            let k = i.k as usize;
            let word =
                |n: usize| frame.get(k..k + n).map(|b| b.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte)));
            let loaded = match i.code {
                LOAD_WORD => word(4),
                LOAD_HALF => word(2),
                LOAD_BYTE => word(1),
                SUBTRACT => Some(a.wrapping_sub(i.k)),
                JUMP => {
                    at += k;
                    Some(a)
                }
                JUMP_EQUAL => {
                    at += usize::from(if a == i.k { i.jt } else { i.jf });
                    Some(a)
                }
                JUMP_AT_LEAST => {
                    at += usize::from(if a >= i.k { i.jt } else { i.jf });
                    Some(a)
                }
                RETURN => return i.k > 0,
                other => panic!("instruction {other:#x}"),
            };
            // A load beyond the frame ends the program without taking it.
            let Some(loaded) = loaded else { return false };
            a = loaded;
        }
    }

    fn frame(ethertype: u16, at: usize, bytes: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; 100];
        frame[12..14].copy_from_slice(&ethertype.to_be_bytes());
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        frame
    }

    #[test]
    fn packets_of_senders_are_told_from_others() {
        let packet = |at: usize, address: &[u8]| {
            let mut packet = vec![0; 60];
            packet[at..at + address.len()].copy_from_slice(address);
            packet
        };
        let code = from_senders(&[[192, 0, 2, 1].into(), [192, 0, 2, 9].into()]);
        for (taken, address) in [(true, [192, 0, 2, 1]), (true, [192, 0, 2, 9]), (false, [192, 0, 2, 2])] {
            assert_eq!(takes(&code, &packet(12, &address)), taken);
        }
        let v6 = |address: &str| address.parse::<std::net::Ipv6Addr>().unwrap();
        let code = from_senders(&[v6("fd00::1").into(), v6("fd00:1::2").into()]);
        for (taken, address) in [(true, "fd00::1"), (true, "fd00:1::2"), (false, "fd00::2"), (false, "fd00:1::1")] {
            assert_eq!(takes(&code, &packet(8, &v6(address).octets())), taken, "{address}");
        }
        assert!(!takes(&from_senders(&[]), &packet(0, &[])));
        assert!(from_senders(&[v6("::1").into(); super::super::PacketTap::MOST_SENDERS]).len() <= 4096);
    }

    #[test]
    fn own_frames_are_told_from_others() {
        let own = PortAddresses {
            addresses: vec![([192, 0, 2, 250].into(), 10), ("fd00::ffff:fffe".parse().unwrap(), 4)],
            tunnels: vec![([198, 51, 100, 1].into(), 1)],
        };
        let code = program(&Filter::Addresses(own)).unwrap();
        assert!(code.len() < 4096 && program(&Filter::All).is_none());
        let v6 = |address: &str| address.parse::<std::net::Ipv6Addr>().unwrap().octets();
        for (inside, address) in
            [(false, [192, 0, 2, 249]), (true, [192, 0, 2, 250]), (true, [192, 0, 3, 3]), (false, [192, 0, 3, 4])]
        {
            assert_eq!(takes(&code, &frame(0x0800, 30, &address)), inside, "to {address:?}");
            assert_eq!(takes(&code, &frame(0x0806, 38, &address)), inside, "who has {address:?}");
            assert!(!takes(&code, &frame(0x88cc, 30, &address)));
        }
        for (inside, address) in
            [(false, "fd00::ffff:fffd"), (true, "fd00::ffff:ffff"), (true, "fd00::1:0:1"), (false, "fd00::1:0:2")]
        {
            assert_eq!(takes(&code, &frame(0x86dd, 38, &v6(address))), inside, "to {address}");
            let mut question = frame(0x86dd, 62, &v6(address));
            (question[20], question[54]) = (58, 135);
            assert_eq!(takes(&code, &question), inside, "who has {address}");
            question[54] = 136;
            assert!(!takes(&code, &question));
        }
        let mut tunnel = frame(0x0800, 30, &[198, 51, 100, 1]);
        assert!(!takes(&code, &tunnel));
        (tunnel[14], tunnel[23]) = (0x45, 17);
        tunnel[36..38].copy_from_slice(&4789u16.to_be_bytes());
        assert!(takes(&code, &tunnel));
        assert!(takes(&code, &frame(0x0806, 38, &[198, 51, 100, 1])));
        assert!(!takes(&code, &[0; 13]), "no frame at all");
    }
}
