//! VXLAN (RFC 7348).

use crate::bytes::{be32, put32, room};
use crate::{BufferTooShort, Malformed};

/// Bytes of a header.
pub const HEADER: usize = 8;
/// The UDP destination port.
pub const PORT: u16 = 4789;

const VALID: u32 = 1 << 27;

/// What a UDP datagram to [`PORT`] carries.
#[derive(Debug, Clone, Copy)]
pub struct Vxlan<'a>(&'a [u8]);

impl<'a> Vxlan<'a> {
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        if bytes.len() < HEADER {
            return Err(Malformed::VxlanShort);
        }
        if be32(bytes, 0) & VALID == 0 {
            return Err(Malformed::VxlanFlags);
        }
        Ok(Self(bytes))
    }

    /// The network identifier, 24 bits.
    pub fn vni(&self) -> u32 {
        be32(self.0, 4) >> 8
    }

    /// The inner Ethernet frame.
    pub fn payload(&self) -> &'a [u8] {
        &self.0[HEADER..]
    }
}

/// Writes the header of a frame in network `vni`, of which 24 bits are used.
pub fn write(buffer: &mut [u8], vni: u32) -> Result<usize, BufferTooShort> {
    let bytes = room(buffer, HEADER)?;
    put32(bytes, 0, VALID);
    put32(bytes, 4, vni << 8);
    Ok(HEADER)
}
