//! IPv4 and IPv6, as far as they differ.

pub(crate) mod link;
pub(crate) mod neighbor;
pub(crate) mod unreachable;

use std::fmt::Debug;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rig_wire::checksum::PartialChecksum;
use rig_wire::ethernet::{Ethernet, Mac, ethertype};
use rig_wire::ipv4::{self, Ipv4};
use rig_wire::ipv6::{self, Ipv6};
use rig_wire::{Malformed, protocol};

use self::link::Link;
use self::neighbor::NeighborMessage;
use self::unreachable::Unreachable;

/// A packet of the family, its header checksum verified.
#[derive(Debug)]
pub struct Packet<'a, A> {
    pub source: A,
    pub destination: A,
    pub protocol: u8,
    pub hop_limit: u8,
    /// Type of service, traffic class.
    pub tos: u8,
    /// The pseudo header's part of the payload's checksum.
    pub pseudo: PartialChecksum,
    pub payload: &'a [u8],
}

/// An address family, at compile time: every offset in a packet follows from it.
pub trait Family: Copy + Debug + Send + 'static {
    type Address: Copy + Eq + Debug + Send;
    /// Bytes of the header that is written.
    const HEADER: usize;
    const ETHERTYPE: u16;
    const ICMP: u8;
    const UNSPECIFIED: Self::Address;
    /// Whether UDP may go without a checksum.
    const BARE_UDP: bool;

    fn parse(bytes: &[u8]) -> Result<Packet<'_, Self::Address>, Malformed>;

    /// Writes a header of a packet with `payload` bytes, into a buffer that has room for it.
    fn write(buffer: &mut [u8], ends: (Self::Address, Self::Address), protocol: u8, hops: (u8, u8), payload: usize);

    /// The sum over the pseudo header.
    fn pseudo(source: Self::Address, destination: Self::Address, protocol: u8, length: usize) -> PartialChecksum;

    fn sum(address: Self::Address) -> PartialChecksum;

    /// Puts the addresses and, with `added` bytes more than `sum` knows of, the length into the header at the start of
    /// `packet`. `sum` is that of the header without addresses and checksum.
    fn finish(packet: &mut [u8], source: Self::Address, destination: Self::Address, sum: PartialChecksum, added: u16);

    /// Writes a question for the MAC address of `target`, link header and all; returns the frame's length.
    fn ask(buffer: &mut [u8], link: &Link<Self>, local: Self::Address, target: Self::Address) -> usize
    where
        Self: Sized;

    /// Writes what makes known where `address` is, link header and all; returns the frame's length.
    fn announce(buffer: &mut [u8], link: &Link<Self>, address: Self::Address) -> usize
    where
        Self: Sized;

    /// What a frame other than TCP and UDP says about neighbours to a host with the addresses `mine`. `mine` is called with an address,
    /// and with whether the frame tells where that address is.
    fn parse_neighbor<'a>(
        frame: &Ethernet<'a>,
        mine: impl Fn(Self::Address, bool) -> bool,
    ) -> Result<NeighborMessage<'a, Self>, Malformed>
    where
        Self: Sized;

    /// Writes the answer to what was heard from `to`; returns the frame's length. The buffer has room for the longest.
    fn answer(buffer: &mut [u8], link: &Link<Self>, to: Mac, message: &NeighborMessage<'_, Self>) -> usize
    where
        Self: Sized;

    /// The error that a packet of ICMP or ICMPv6 reports, if it is one.
    fn unreachable(packet: &Packet<'_, Self::Address>) -> Result<Option<Unreachable<Self::Address>>, Malformed>;

    /// The `n`th address after `first`, of which there are at least so many.
    fn after(first: Self::Address, n: u32) -> Self::Address;

    /// An address as one of either family.
    fn ip(address: Self::Address) -> IpAddr;

    /// An address if it is of this family.
    fn of(address: IpAddr) -> Option<Self::Address>;

    /// How many addresses after `first` this one is, if fewer than 2^32.
    fn distance(first: Self::Address, address: Self::Address) -> Option<u32>;
}

/// IPv4.
#[derive(Debug, Clone, Copy)]
pub struct V4;

/// IPv6.
#[derive(Debug, Clone, Copy)]
pub struct V6;

impl Family for V4 {
    type Address = Ipv4Addr;
    const HEADER: usize = ipv4::HEADER;
    const ETHERTYPE: u16 = ethertype::IPV4;
    const ICMP: u8 = protocol::ICMP;
    const UNSPECIFIED: Ipv4Addr = Ipv4Addr::UNSPECIFIED;
    const BARE_UDP: bool = true;

    #[inline]
    fn parse(bytes: &[u8]) -> Result<Packet<'_, Ipv4Addr>, Malformed> {
        let ip = Ipv4::parse(bytes)?;
        ip.verify()?;
        if ip.is_fragment() {
            return Err(Malformed::Fragment);
        }
        Ok(Packet {
            source: ip.source(),
            destination: ip.destination(),
            protocol: ip.protocol(),
            hop_limit: ip.ttl(),
            tos: ip.tos(),
            pseudo: ip.pseudo(),
            payload: ip.payload(),
        })
    }

    fn write(buffer: &mut [u8], ends: (Ipv4Addr, Ipv4Addr), protocol: u8, (ttl, tos): (u8, u8), payload: usize) {
        let header = ipv4::Header { source: ends.0, destination: ends.1, protocol, ttl, tos };
        header.write(buffer, payload).expect("the caller has made room");
    }

    fn pseudo(source: Ipv4Addr, destination: Ipv4Addr, protocol: u8, length: usize) -> PartialChecksum {
        PartialChecksum::pseudo_v4(source, destination, protocol, length)
    }

    #[inline(always)]
    fn sum(address: Ipv4Addr) -> PartialChecksum {
        PartialChecksum::ZERO.long(address.to_bits())
    }

    #[inline(always)]
    fn finish(packet: &mut [u8], source: Ipv4Addr, destination: Ipv4Addr, sum: PartialChecksum, added: u16) {
        let header = &mut packet[..ipv4::HEADER];
        if added > 0 {
            let length = u16::from_be_bytes([header[2], header[3]]) + added;
            header[2..4].copy_from_slice(&length.to_be_bytes());
        }
        let sum = sum.long(source.to_bits()).long(destination.to_bits()).word(added);
        header[10..12].copy_from_slice(&sum.checksum().to_be_bytes());
        header[12..16].copy_from_slice(&source.octets());
        header[16..20].copy_from_slice(&destination.octets());
    }

    fn ask(buffer: &mut [u8], link: &Link<Self>, local: Ipv4Addr, target: Ipv4Addr) -> usize {
        neighbor::v4::ask(buffer, link, local, target)
    }

    fn announce(buffer: &mut [u8], link: &Link<Self>, address: Ipv4Addr) -> usize {
        neighbor::v4::announce(buffer, link, address)
    }

    fn parse_neighbor<'a>(
        frame: &Ethernet<'a>,
        mine: impl Fn(Ipv4Addr, bool) -> bool,
    ) -> Result<NeighborMessage<'a, Self>, Malformed> {
        neighbor::v4::parse(frame, mine)
    }

    fn answer(buffer: &mut [u8], link: &Link<Self>, to: Mac, message: &NeighborMessage<'_, Self>) -> usize {
        neighbor::v4::answer(buffer, link, to, message)
    }

    fn unreachable(packet: &Packet<'_, Ipv4Addr>) -> Result<Option<Unreachable<Ipv4Addr>>, Malformed> {
        unreachable::v4(packet)
    }

    fn after(first: Ipv4Addr, n: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(first.to_bits().wrapping_add(n))
    }

    fn ip(address: Ipv4Addr) -> IpAddr {
        address.into()
    }

    fn of(address: IpAddr) -> Option<Ipv4Addr> {
        match address {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        }
    }

    #[inline(always)]
    fn distance(first: Ipv4Addr, address: Ipv4Addr) -> Option<u32> {
        Some(address.to_bits().wrapping_sub(first.to_bits()))
    }
}

impl Family for V6 {
    type Address = Ipv6Addr;
    const HEADER: usize = ipv6::HEADER;
    const ETHERTYPE: u16 = ethertype::IPV6;
    const ICMP: u8 = protocol::ICMPV6;
    const UNSPECIFIED: Ipv6Addr = Ipv6Addr::UNSPECIFIED;
    const BARE_UDP: bool = false;

    #[inline]
    fn parse(bytes: &[u8]) -> Result<Packet<'_, Ipv6Addr>, Malformed> {
        let ip = Ipv6::parse(bytes)?;
        if ip.is_fragment() {
            return Err(Malformed::Fragment);
        }
        Ok(Packet {
            source: ip.source(),
            destination: ip.destination(),
            protocol: ip.protocol(),
            hop_limit: ip.hop_limit(),
            tos: ip.traffic_class(),
            pseudo: ip.pseudo(),
            payload: ip.payload(),
        })
    }

    fn write(buffer: &mut [u8], ends: (Ipv6Addr, Ipv6Addr), protocol: u8, hops: (u8, u8), payload: usize) {
        let (hop_limit, traffic_class) = hops;
        let header = ipv6::Header { source: ends.0, destination: ends.1, protocol, hop_limit, traffic_class };
        header.write(buffer, payload).expect("the caller has made room");
    }

    fn pseudo(source: Ipv6Addr, destination: Ipv6Addr, protocol: u8, length: usize) -> PartialChecksum {
        PartialChecksum::pseudo_v6(source, destination, protocol, length)
    }

    #[inline(always)]
    fn sum(address: Ipv6Addr) -> PartialChecksum {
        PartialChecksum::ZERO.bytes(&address.octets())
    }

    #[inline(always)]
    fn finish(packet: &mut [u8], source: Ipv6Addr, destination: Ipv6Addr, _: PartialChecksum, added: u16) {
        let header = &mut packet[..ipv6::HEADER];
        if added > 0 {
            let length = u16::from_be_bytes([header[4], header[5]]) + added;
            header[4..6].copy_from_slice(&length.to_be_bytes());
        }
        header[8..24].copy_from_slice(&source.octets());
        header[24..40].copy_from_slice(&destination.octets());
    }

    fn ask(buffer: &mut [u8], link: &Link<Self>, local: Ipv6Addr, target: Ipv6Addr) -> usize {
        neighbor::v6::ask(buffer, link, local, target)
    }

    fn announce(buffer: &mut [u8], link: &Link<Self>, address: Ipv6Addr) -> usize {
        neighbor::v6::announce(buffer, link, address)
    }

    fn parse_neighbor<'a>(
        frame: &Ethernet<'a>,
        mine: impl Fn(Ipv6Addr, bool) -> bool,
    ) -> Result<NeighborMessage<'a, Self>, Malformed> {
        neighbor::v6::parse(frame, mine)
    }

    fn answer(buffer: &mut [u8], link: &Link<Self>, to: Mac, message: &NeighborMessage<'_, Self>) -> usize {
        neighbor::v6::answer(buffer, link, to, message)
    }

    fn unreachable(packet: &Packet<'_, Ipv6Addr>) -> Result<Option<Unreachable<Ipv6Addr>>, Malformed> {
        unreachable::v6(packet)
    }

    fn after(first: Ipv6Addr, n: u32) -> Ipv6Addr {
        Ipv6Addr::from_bits(first.to_bits().wrapping_add(n.into()))
    }

    fn ip(address: Ipv6Addr) -> IpAddr {
        address.into()
    }

    fn of(address: IpAddr) -> Option<Ipv6Addr> {
        match address {
            IpAddr::V6(address) => Some(address),
            IpAddr::V4(_) => None,
        }
    }

    #[inline(always)]
    fn distance(first: Ipv6Addr, address: Ipv6Addr) -> Option<u32> {
        address.to_bits().wrapping_sub(first.to_bits()).try_into().ok()
    }
}

/// Addresses by number and numbers by address.
#[derive(Debug)]
pub(super) struct Addresses<F: Family> {
    all: Box<[F::Address]>,
    /// First address, how many there are, and the number of the first.
    ranges: Box<[(F::Address, u32, u16)]>,
}

impl<F: Family> Addresses<F> {
    /// Of ranges that [`Config`](super::Config) has checked.
    pub fn new(ranges: &[(F::Address, u32)]) -> Self {
        let mut all = Vec::new();
        let mut numbered = Vec::new();
        for &(first, count) in ranges {
            numbered.push((first, count, all.len() as u16));
            all.extend((0..count).map(|n| F::after(first, n)));
        }
        Self { all: all.into(), ranges: numbered.into() }
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    #[inline]
    pub fn get(&self, number: usize) -> F::Address {
        self.all[number]
    }

    #[inline]
    pub fn find(&self, address: F::Address) -> Option<u16> {
        self.ranges.iter().find_map(|&(first, count, number)| {
            let distance = F::distance(first, address).filter(|&distance| distance < count)?;
            Some(number + distance as u16)
        })
    }
}
