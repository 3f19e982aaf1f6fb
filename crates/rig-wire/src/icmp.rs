//! ICMP (RFC 792): messages by type and code, echo in full.

use crate::bytes::{be16, put, put16, room};
use crate::checksum::{self, PartialChecksum};
use crate::{BufferTooShort, Malformed};

/// Bytes of a header.
pub const HEADER: usize = 8;

/// Message types (IANA "ICMP Parameters").
pub mod kind {
    pub const ECHO_REPLY: u8 = 0;
    pub const UNREACHABLE: u8 = 3;
    pub const ECHO_REQUEST: u8 = 8;
}

/// A message.
#[derive(Debug, Clone, Copy)]
pub struct Icmp<'a>(&'a [u8]);

impl<'a> Icmp<'a> {
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        if bytes.len() < HEADER { Err(Malformed::IcmpShort) } else { Ok(Self(bytes)) }
    }

    pub fn verify(&self) -> Result<(), Malformed> {
        if PartialChecksum::ZERO.bytes(self.0).verifies() { Ok(()) } else { Err(Malformed::IcmpChecksum) }
    }

    pub fn kind(&self) -> u8 {
        self.0[0]
    }

    pub fn code(&self) -> u8 {
        self.0[1]
    }

    /// Of an echo: identifier and sequence number.
    pub fn echo(&self) -> (u16, u16) {
        (be16(self.0, 4), be16(self.0, 6))
    }

    /// Of an echo the data, of an error the packet that caused it, as far as it goes.
    pub fn payload(&self) -> &'a [u8] {
        &self.0[HEADER..]
    }
}

/// Writes an echo request or reply with its data; returns the message's length.
pub fn write_echo(buffer: &mut [u8], kind: u8, echo: (u16, u16), data: &[u8]) -> Result<usize, BufferTooShort> {
    let bytes = room(buffer, HEADER + data.len())?;
    put(bytes, 0, &[kind, 0, 0, 0]);
    put16(bytes, 4, echo.0);
    put16(bytes, 6, echo.1);
    put(bytes, HEADER, data);
    let checksum = checksum::of(bytes);
    put16(bytes, 2, checksum);
    Ok(bytes.len())
}
