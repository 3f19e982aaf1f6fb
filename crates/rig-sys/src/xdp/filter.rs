//! Which frames of an interface go to the port's sockets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, BorrowedFd};

use super::assemble::{Assembler, Helper, JumpCondition, Label, Op, Register, Size};

/// Frames that a port takes. The kernel gets the others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Filter {
    /// All.
    #[default]
    All,
    /// Those for addresses of the port, behind one VLAN tag too.
    Addresses(PortAddresses),
}

/// Addresses of a port.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PortAddresses {
    /// First address and number of each range: packets to these, and the questions of ARP and neighbor discovery for them.
    pub addresses: Vec<(IpAddr, u32)>,
    /// Ends of VXLAN tunnels: questions for them, and datagrams to port 4789 (RFC 7348) of them.
    pub tunnels: Vec<(Ipv4Addr, u32)>,
}

const VXLAN_PORT: u16 = 4789;
const UDP: u32 = 17;
const ICMPV6: u32 = 58;
const NEIGHBOR_SOLICITATION: u32 = 135;
/// `enum xdp_action`.
pub(super) const PASS: i32 = 2;

/// Offsets in `struct xdp_md`.
pub(super) const DATA: i16 = 0;
pub(super) const DATA_END: i16 = 4;
const RX_QUEUE: i16 = 16;

/// `ctx`, and the frame's begin and end.
pub(super) const CONTEXT: Register = Register::R6;
pub(super) const BEGIN: Register = Register::R7;
pub(super) const END: Register = Register::R8;
/// The header behind Ethernet's.
const PACKET: Register = Register::R9;

impl Filter {
    /// Whether multicast frames may be among those taken.
    pub(super) fn is_multicast(&self) -> bool {
        match self {
            Self::All => true,
            Self::Addresses(own) => own.addresses.iter().any(|(first, _)| first.is_ipv6()),
        }
    }

    /// Everything from the frame's begin to the program's end.
    pub(super) fn steer(&self, a: &mut Assembler, sockets: BorrowedFd<'_>) {
        let (take, pass) = (a.label(), a.label());
        if let Self::Addresses(own) = self {
            own.decide(a, take, pass);
            a.place(pass);
            a.end(PASS);
        }
        a.place(take);
        a.load(Size::Word, Register::R2, CONTEXT, RX_QUEUE);
        a.map(Register::R1, sockets.as_raw_fd());
        // What is done with frames of a queue without a socket.
        a.immediate(Op::Mov, Register::R3, PASS);
        a.call(Helper::RedirectMap);
        a.exit();
    }
}

pub(super) fn begin(a: &mut Assembler) {
    a.register(Op::Mov, CONTEXT, Register::R1);
    a.load(Size::Word, BEGIN, CONTEXT, DATA);
    a.load(Size::Word, END, CONTEXT, DATA_END);
}

/// Goes to `pass` when less than `length` bytes are left from `from`.
fn room(a: &mut Assembler, from: Register, length: i32, pass: Label) {
    a.register(Op::Mov, Register::R2, from);
    a.immediate(Op::Add, Register::R2, length);
    a.jump_if_register(JumpCondition::Above, Register::R2, END, pass);
}

/// A 16-bit number of a packet as a load sees it.
fn half(number: u16) -> u32 {
    u16::from_ne_bytes(number.to_be_bytes()).into()
}

impl PortAddresses {
    fn decide(&self, a: &mut Assembler, take: Label, pass: Label) {
        let (tagged, untagged) = (a.label(), a.label());
        let (arp, ipv4, ipv6) = (a.label(), a.label(), a.label());
        room(a, BEGIN, 18, pass);
        a.register(Op::Mov, PACKET, BEGIN);
        a.immediate(Op::Add, PACKET, 14);
        a.load(Size::Half, Register::R3, BEGIN, 12);
        for tag in [0x8100, 0x88a8] {
            a.jump_if32(JumpCondition::Equal, Register::R3, half(tag), tagged);
        }
        a.jump(untagged);
        a.place(tagged);
        a.load(Size::Half, Register::R3, BEGIN, 16);
        a.immediate(Op::Add, PACKET, 4);
        a.place(untagged);
        for (ethertype, label) in [(0x0800, ipv4), (0x0806, arp), (0x86dd, ipv6)] {
            a.jump_if32(JumpCondition::Equal, Register::R3, half(ethertype), label);
        }
        a.jump(pass);

        let addresses = self.addresses.iter().filter_map(|&(first, count)| match first {
            IpAddr::V4(first) => Some((first, count)),
            IpAddr::V6(_) => None,
        });
        let addresses: Vec<_> = addresses.collect();
        a.place(arp);
        // The target's protocol address of RFC 826.
        room(a, PACKET, 28, pass);
        a.load(Size::Word, Register::R1, PACKET, 24);
        a.network32(Register::R1);
        within(a, &addresses, take);
        within(a, &self.tunnels, take);
        a.jump(pass);

        a.place(ipv4);
        room(a, PACKET, 24, pass);
        a.load(Size::Word, Register::R1, PACKET, 16);
        a.network32(Register::R1);
        within(a, &addresses, take);
        if !self.tunnels.is_empty() {
            // Version 4 without options.
            a.load(Size::Byte, Register::R2, PACKET, 0);
            a.jump_if32(JumpCondition::NotEqual, Register::R2, 0x45, pass);
            a.load(Size::Byte, Register::R2, PACKET, 9);
            a.jump_if32(JumpCondition::NotEqual, Register::R2, UDP, pass);
            a.load(Size::Half, Register::R2, PACKET, 22);
            a.jump_if32(JumpCondition::NotEqual, Register::R2, half(VXLAN_PORT), pass);
            within(a, &self.tunnels, take);
        }
        a.jump(pass);

        a.place(ipv6);
        let segments = self.segments();
        room(a, PACKET, 40, pass);
        within_v6(a, &segments, 24, take);
        a.load(Size::Byte, Register::R2, PACKET, 6);
        a.jump_if32(JumpCondition::NotEqual, Register::R2, ICMPV6, pass);
        // Type and target address of RFC 4861, 4.3, behind 40 bytes of IPv6.
        room(a, PACKET, 64, pass);
        a.load(Size::Byte, Register::R2, PACKET, 40);
        a.jump_if32(JumpCondition::NotEqual, Register::R2, NEIGHBOR_SOLICITATION, pass);
        within_v6(a, &segments, 48, take);
        // Falls through to where frames are passed.
    }

    /// The ranges of IPv6 in parts that differ in their last 32 bits only: the first address and how many follow.
    pub(crate) fn segments(&self) -> Vec<(Ipv6Addr, u32)> {
        let mut segments = Vec::new();
        for &(first, count) in &self.addresses {
            let IpAddr::V6(first) = first else { continue };
            let room = u64::from(u32::MAX) + 1 - (first.to_bits() & u128::from(u32::MAX)) as u64;
            let here = room.min(count.into()) as u32;
            segments.push((first, here));
            if here < count {
                segments.push((Ipv6Addr::from_bits(first.to_bits().wrapping_add(here.into())), count - here));
            }
        }
        segments
    }
}

/// Goes to `take` when the address in `R1` is in one of the ranges.
fn within(a: &mut Assembler, ranges: &[(Ipv4Addr, u32)], take: Label) {
    for &(first, count) in ranges {
        a.register(Op::Mov, Register::R2, Register::R1);
        a.immediate32(Op::Sub, Register::R2, first.to_bits());
        a.jump_if32(JumpCondition::Below, Register::R2, count, take);
    }
}

/// Goes to `take` when the address at `offset` of the packet is in one of the segments.
fn within_v6(a: &mut Assembler, segments: &[(Ipv6Addr, u32)], offset: i16, take: Label) {
    let words = [Register::R1, Register::R3, Register::R4, Register::R5];
    for (register, n) in words.into_iter().zip(0..) {
        a.load(Size::Word, register, PACKET, offset + 4 * n);
    }
    a.network32(Register::R5);
    for &(first, count) in segments {
        let next = a.label();
        let octets = first.octets();
        for (register, part) in words.into_iter().zip(octets.as_chunks::<4>().0).take(3) {
            a.jump_if32(JumpCondition::NotEqual, register, u32::from_ne_bytes(*part), next);
        }
        a.register(Op::Mov, Register::R2, Register::R5);
        a.immediate32(Op::Sub, Register::R2, first.to_bits() as u32);
        a.jump_if32(JumpCondition::Below, Register::R2, count, take);
        a.place(next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_ipv6_is_cut_where_its_last_word_overflows() {
        let own = |first: &str, count| PortAddresses {
            addresses: vec![(first.parse().unwrap(), count)],
            ..PortAddresses::default()
        };
        assert_eq!(own("fd00::1", 3).segments(), [("fd00::1".parse().unwrap(), 3)]);
        assert_eq!(own("192.0.2.1", 3).segments(), []);
        let cut = [("fd00::ffff:fffe".parse().unwrap(), 2), ("fd00::1:0:0".parse().unwrap(), 8)];
        assert_eq!(own("fd00::ffff:fffe", 10).segments(), cut);
        let whole = [("fd00::ffff:fffe".parse().unwrap(), 2)];
        assert_eq!(own("fd00::ffff:fffe", 2).segments(), whole);
    }
}
