//! UDP (RFC 768).

use crate::bytes::{be16, put16, room};
use crate::checksum::{Checksum, PartialChecksum};
use crate::{BufferTooShort, Malformed};

/// Bytes of a header.
pub const HEADER: usize = 8;
/// The offset of the checksum.
pub const CHECKSUM: usize = 6;

/// A datagram.
#[derive(Debug, Clone, Copy)]
pub struct Udp<'a>(&'a [u8]);

impl<'a> Udp<'a> {
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        if bytes.len() < HEADER {
            return Err(Malformed::UdpShort);
        }
        let length = usize::from(be16(bytes, 4));
        if length < HEADER || length > bytes.len() {
            return Err(Malformed::UdpLength);
        }
        Ok(Self(&bytes[..length]))
    }

    /// `pseudo` is the packet's. `optional`: whether a datagram may have none, as over IPv4 (RFC 768) and not over
    /// IPv6 (RFC 8200, 8.1).
    #[inline(always)]
    pub fn verify(&self, pseudo: PartialChecksum, optional: bool) -> Result<Checksum, Malformed> {
        let checked = match be16(self.0, CHECKSUM) {
            0 => optional.then_some(Checksum::Absent),
            field => Checksum::check(pseudo, self.0, field),
        };
        checked.ok_or(Malformed::UdpChecksum)
    }

    #[inline]
    pub fn source_port(&self) -> u16 {
        be16(self.0, 0)
    }

    #[inline]
    pub fn destination_port(&self) -> u16 {
        be16(self.0, 2)
    }

    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        &self.0[HEADER..]
    }
}

/// A header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub source_port: u16,
    pub destination_port: u16,
}

impl Header {
    /// Writes the header before the `payload` bytes that already stand behind it in the buffer, and the checksum over
    /// both.
    pub fn write(&self, buffer: &mut [u8], payload: usize, pseudo: PartialChecksum) -> Result<usize, BufferTooShort> {
        let bytes = room(buffer, HEADER + payload)?;
        put16(bytes, 0, self.source_port);
        put16(bytes, 2, self.destination_port);
        put16(bytes, 4, (HEADER + payload) as u16);
        put16(bytes, CHECKSUM, 0);
        let checksum = pseudo.bytes(bytes).udp_checksum();
        put16(bytes, CHECKSUM, checksum);
        Ok(HEADER)
    }
}
