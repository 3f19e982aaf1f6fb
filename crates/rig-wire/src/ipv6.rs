//! IPv6 (RFC 8200): extension headers are walked, fragments are recognised and not put together.

use std::net::Ipv6Addr;

use crate::bytes::{array, be16, be32, put, put16, put32, room};
use crate::checksum::PartialChecksum;
use crate::{BufferTooShort, Malformed};

/// Bytes of the fixed header.
pub const HEADER: usize = 40;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION: u8 = 60;
const DEPTH: usize = 8;

/// A packet.
#[derive(Debug, Clone, Copy)]
pub struct Ipv6<'a> {
    bytes: &'a [u8],
    /// Bytes of the fixed header and the extension headers.
    header: usize,
    protocol: u8,
    fragment: bool,
}

impl<'a> Ipv6<'a> {
    /// Walks hop-by-hop, routing, fragment, authentication and destination headers, at most eight. What lies behind the
    /// payload length is left out.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        if bytes.len() < HEADER {
            return Err(Malformed::Ipv6Short);
        }
        if bytes[0] >> 4 != 6 {
            return Err(Malformed::Ipv6Version);
        }
        let total = HEADER + usize::from(be16(bytes, 4));
        if total > bytes.len() {
            return Err(Malformed::Ipv6PayloadLength);
        }
        let mut packet = Self { bytes: &bytes[..total], header: HEADER, protocol: bytes[6], fragment: false };
        if matches!(packet.protocol, HOP_BY_HOP | ROUTING | FRAGMENT | AUTHENTICATION | DESTINATION) {
            packet.walk()?;
        }
        Ok(packet)
    }

    #[cold]
    fn walk(&mut self) -> Result<(), Malformed> {
        for _ in 0..DEPTH {
            let [next, length, ..] = self.bytes[self.header..] else { return Err(Malformed::Ipv6Extension) };
            let length = match self.protocol {
                HOP_BY_HOP | ROUTING | DESTINATION => (usize::from(length) + 1) * 8,
                AUTHENTICATION => (usize::from(length) + 2) * 4,
                FRAGMENT => 8,
                _ => return Ok(()),
            };
            if self.header + length > self.bytes.len() {
                return Err(Malformed::Ipv6Extension);
            }
            if self.protocol == FRAGMENT {
                // RFC 6946: offset 0 and no more is a whole packet.
                let whole = be16(self.bytes, self.header + 2) & 0xfff9 == 0;
                self.fragment |= !whole;
            }
            self.protocol = next;
            self.header += length;
            // What follows within a later fragment is no header.
            if self.fragment {
                return Ok(());
            }
        }
        let more = matches!(self.protocol, HOP_BY_HOP | ROUTING | FRAGMENT | AUTHENTICATION | DESTINATION);
        if more { Err(Malformed::Ipv6ExtensionDepth) } else { Ok(()) }
    }

    #[inline]
    pub fn source(&self) -> Ipv6Addr {
        array::<16>(self.bytes, 8).into()
    }

    #[inline]
    pub fn destination(&self) -> Ipv6Addr {
        array::<16>(self.bytes, 24).into()
    }

    pub fn traffic_class(&self) -> u8 {
        (be16(self.bytes, 0) >> 4) as u8
    }

    /// 20 bits.
    pub fn flow_label(&self) -> u32 {
        be32(self.bytes, 0) & 0xf_ffff
    }

    pub fn hop_limit(&self) -> u8 {
        self.bytes[7]
    }

    /// The protocol after the extension headers.
    #[inline]
    pub fn protocol(&self) -> u8 {
        self.protocol
    }

    /// Whether this is a part of a packet: the first, a middle or the last one.
    #[inline]
    pub fn is_fragment(&self) -> bool {
        self.fragment
    }

    /// What follows the extension headers.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        &self.bytes[self.header..]
    }

    /// The pseudo header's part of the payload's checksum.
    #[inline]
    pub fn pseudo(&self) -> PartialChecksum {
        PartialChecksum::ZERO.bytes(&self.bytes[8..40]).word(self.protocol.into()).long(self.payload().len() as u32)
    }
}

/// A header without extension headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub source: Ipv6Addr,
    pub destination: Ipv6Addr,
    pub protocol: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
}

impl Header {
    /// `payload` bytes follow, at most 65,535. The flow label is 0.
    pub fn write(&self, buffer: &mut [u8], payload: usize) -> Result<usize, BufferTooShort> {
        let bytes = room(buffer, HEADER)?;
        put32(bytes, 0, 6 << 28 | u32::from(self.traffic_class) << 20);
        put16(bytes, 4, payload as u16);
        put(bytes, 6, &[self.protocol, self.hop_limit]);
        put(bytes, 8, &self.source.octets());
        put(bytes, 24, &self.destination.octets());
        Ok(HEADER)
    }
}
