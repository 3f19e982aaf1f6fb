//! ARP for IPv4 over Ethernet (RFC 826).

use std::net::Ipv4Addr;

use crate::bytes::{array, be16, put, put16, room};
use crate::ethernet::{Mac, ethertype};
use crate::{BufferTooShort, Malformed};

/// Bytes of a packet.
pub const LEN: usize = 28;

/// What an ARP packet says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Request,
    Reply,
    /// Reverse ARP and others, which are not answered.
    Other(u16),
}

/// A packet: a view would be no smaller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arp {
    pub operation: Operation,
    pub sender: (Mac, Ipv4Addr),
    pub target: (Mac, Ipv4Addr),
}

impl Arp {
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        if bytes.len() < LEN {
            return Err(Malformed::ArpShort);
        }
        // Hardware type Ethernet, protocol type IPv4, their address lengths.
        if be16(bytes, 0) != 1 || be16(bytes, 2) != ethertype::IPV4 || bytes[4..6] != [6, 4] {
            return Err(Malformed::ArpKind);
        }
        let operation = match be16(bytes, 6) {
            1 => Operation::Request,
            2 => Operation::Reply,
            other => Operation::Other(other),
        };
        let end = |at| (Mac(array(bytes, at)), Ipv4Addr::from(array::<4>(bytes, at + 6)));
        Ok(Self { operation, sender: end(8), target: end(18) })
    }

    pub fn write(&self, buffer: &mut [u8]) -> Result<usize, BufferTooShort> {
        let bytes = room(buffer, LEN)?;
        put16(bytes, 0, 1);
        put16(bytes, 2, ethertype::IPV4);
        put(bytes, 4, &[6, 4]);
        let operation = match self.operation {
            Operation::Request => 1,
            Operation::Reply => 2,
            Operation::Other(other) => other,
        };
        put16(bytes, 6, operation);
        for (at, (mac, ip)) in [(8, self.sender), (18, self.target)] {
            put(bytes, at, &mac.0);
            put(bytes, at + 6, &ip.octets());
        }
        Ok(LEN)
    }
}
