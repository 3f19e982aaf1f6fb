//! IPv4 (RFC 791): options are skipped, fragments are recognised and not put together.

use std::net::Ipv4Addr;

use crate::bytes::{array, be16, put, put16, room};
use crate::checksum::{self, PartialChecksum};
use crate::{BufferTooShort, Malformed};

/// Bytes of a header without options.
pub const HEADER: usize = 20;
/// The offset of the header checksum.
pub const CHECKSUM: usize = 10;

/// A packet.
#[derive(Debug, Clone, Copy)]
pub struct Ipv4<'a> {
    bytes: &'a [u8],
    header: usize,
}

impl<'a> Ipv4<'a> {
    /// What lies behind the packet's total length, such as Ethernet's padding, is left out. The header checksum is not
    /// looked at: see [`verify`](Self::verify).
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        if bytes.len() < HEADER {
            return Err(Malformed::Ipv4Short);
        }
        if bytes[0] >> 4 != 4 {
            return Err(Malformed::Ipv4Version);
        }
        let header = usize::from(bytes[0] & 0xf) * 4;
        if header < HEADER || header > bytes.len() {
            return Err(Malformed::Ipv4HeaderLength);
        }
        let total = usize::from(be16(bytes, 2));
        if total < header || total > bytes.len() {
            return Err(Malformed::Ipv4TotalLength);
        }
        Ok(Self { bytes: &bytes[..total], header })
    }

    #[inline]
    pub fn verify(&self) -> Result<(), Malformed> {
        let right = PartialChecksum::ZERO.bytes(&self.bytes[..self.header]).verifies();
        if right { Ok(()) } else { Err(Malformed::Ipv4Checksum) }
    }

    #[inline]
    pub fn source(&self) -> Ipv4Addr {
        array::<4>(self.bytes, 12).into()
    }

    #[inline]
    pub fn destination(&self) -> Ipv4Addr {
        array::<4>(self.bytes, 16).into()
    }

    /// Differentiated services and ECN.
    pub fn tos(&self) -> u8 {
        self.bytes[1]
    }

    pub fn identification(&self) -> u16 {
        be16(self.bytes, 4)
    }

    pub fn dont_fragment(&self) -> bool {
        self.bytes[6] & 0x40 != 0
    }

    /// Whether this is a part of a packet: the first, a middle or the last one.
    #[inline]
    pub fn is_fragment(&self) -> bool {
        be16(self.bytes, 6) & 0x3fff != 0
    }

    pub fn ttl(&self) -> u8 {
        self.bytes[8]
    }

    #[inline]
    pub fn protocol(&self) -> u8 {
        self.bytes[9]
    }

    /// The options, padding included; 0 to 40 bytes.
    pub fn options(&self) -> &'a [u8] {
        &self.bytes[HEADER..self.header]
    }

    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        &self.bytes[self.header..]
    }

    /// The pseudo header's part of the payload's checksum.
    #[inline]
    pub fn pseudo(&self) -> PartialChecksum {
        PartialChecksum::ZERO.bytes(&self.bytes[12..20]).word(self.protocol().into()).word(self.payload().len() as u16)
    }
}

/// A header without options, of a packet that may not be fragmented.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub source: Ipv4Addr,
    pub destination: Ipv4Addr,
    pub protocol: u8,
    pub ttl: u8,
    pub tos: u8,
}

impl Header {
    /// `payload` bytes follow, at most 65,515. The identification is 0, which RFC 6864 allows where fragmentation is
    /// ruled out.
    pub fn write(&self, buffer: &mut [u8], payload: usize) -> Result<usize, BufferTooShort> {
        let bytes = room(buffer, HEADER)?;
        put(bytes, 0, &[0x45, self.tos]);
        put16(bytes, 2, (HEADER + payload) as u16);
        put(bytes, 4, &[0, 0, 0x40, 0, self.ttl, self.protocol, 0, 0]);
        put(bytes, 12, &self.source.octets());
        put(bytes, 16, &self.destination.octets());
        let checksum = checksum::of(bytes);
        put16(bytes, CHECKSUM, checksum);
        Ok(HEADER)
    }
}
