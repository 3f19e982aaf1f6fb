//! TCP (RFC 9293) with the options of RFC 9293 (MSS), RFC 7323 (window scale, timestamps) and RFC 2018 (SACK permitted).

use crate::bytes::{be16, be32, put, put16, put32, room};
use crate::checksum::{Checksum, PartialChecksum};
use crate::{BufferTooShort, Malformed};

/// Bytes of a header without options.
pub const HEADER: usize = 20;
/// The offset of the checksum.
pub const CHECKSUM: usize = 16;

/// Control bits.
pub mod flags {
    pub const FIN: u8 = 0x01;
    pub const SYN: u8 = 0x02;
    pub const RST: u8 = 0x04;
    pub const PSH: u8 = 0x08;
    pub const ACK: u8 = 0x10;
    pub const URG: u8 = 0x20;
}

/// A segment.
#[derive(Debug, Clone, Copy)]
pub struct Tcp<'a> {
    bytes: &'a [u8],
    header: usize,
}

impl<'a> Tcp<'a> {
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        if bytes.len() < HEADER {
            return Err(Malformed::TcpShort);
        }
        let header = usize::from(bytes[12] >> 4) * 4;
        if header < HEADER || header > bytes.len() {
            return Err(Malformed::TcpHeaderLength);
        }
        Ok(Self { bytes, header })
    }

    /// `pseudo` is the packet's.
    #[inline]
    pub fn verify(&self, pseudo: PartialChecksum) -> Result<Checksum, Malformed> {
        Checksum::check(pseudo, self.bytes, be16(self.bytes, CHECKSUM)).ok_or(Malformed::TcpChecksum)
    }

    #[inline]
    pub fn source_port(&self) -> u16 {
        be16(self.bytes, 0)
    }

    #[inline]
    pub fn destination_port(&self) -> u16 {
        be16(self.bytes, 2)
    }

    #[inline]
    pub fn sequence(&self) -> u32 {
        be32(self.bytes, 4)
    }

    /// Means something only with the ACK bit.
    #[inline]
    pub fn acknowledgment(&self) -> u32 {
        be32(self.bytes, 8)
    }

    /// The control bits of [`flags`], and the two of ECN above them.
    #[inline]
    pub fn flags(&self) -> u8 {
        self.bytes[13]
    }

    /// As it stands in the header, not scaled.
    #[inline]
    pub fn window(&self) -> u16 {
        be16(self.bytes, 14)
    }

    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        &self.bytes[self.header..]
    }

    /// The options that are known here; others are skipped.
    pub fn options(&self) -> Result<Options, Malformed> {
        let mut options = Options::default();
        let mut rest = &self.bytes[HEADER..self.header];
        while let [kind, tail @ ..] = rest {
            match kind {
                0 => break,
                1 => rest = tail,
                _ => {
                    let length = usize::from(*tail.first().ok_or(Malformed::TcpOption)?);
                    if length < 2 || length > rest.len() {
                        return Err(Malformed::TcpOption);
                    }
                    options.take(*kind, &rest[2..length])?;
                    rest = &rest[length..];
                }
            }
        }
        Ok(options)
    }
}

/// The options of a segment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// Largest segment that the sender takes, bytes of data.
    pub mss: Option<u16>,
    /// The power of two by which the sender's windows are to be scaled, 0 to 14.
    pub window_scale: Option<u8>,
    pub sack_permitted: bool,
    /// Value and echo reply.
    pub timestamps: Option<(u32, u32)>,
}

impl Options {
    /// The largest scale (RFC 7323, 2.3); a larger one counts as this.
    pub const MAX_SCALE: u8 = 14;

    fn take(&mut self, kind: u8, value: &[u8]) -> Result<(), Malformed> {
        match (kind, value.len()) {
            (2, 2) => self.mss = Some(be16(value, 0)),
            (3, 1) => self.window_scale = Some(value[0].min(Self::MAX_SCALE)),
            (4, 0) => self.sack_permitted = true,
            (8, 8) => self.timestamps = Some((be32(value, 0), be32(value, 4))),
            (2 | 3 | 4 | 8, _) => return Err(Malformed::TcpOption),
            _ => {}
        }
        Ok(())
    }

    /// Bytes when written: a multiple of 4, at most 24.
    pub const fn len(&self) -> usize {
        let mut len = 0_usize;
        len += if self.mss.is_some() { 4 } else { 0 };
        len += if self.window_scale.is_some() { 3 } else { 0 };
        len += if self.sack_permitted { 2 } else { 0 };
        len += if self.timestamps.is_some() { 10 } else { 0 };
        len.next_multiple_of(4)
    }

    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `bytes`, which has the options' length.
    fn write(&self, bytes: &mut [u8]) {
        let mut at = 0;
        let mut add = |option: &[u8]| {
            put(bytes, at, option);
            at += option.len();
        };
        if let Some(mss) = self.mss {
            let [high, low] = mss.to_be_bytes();
            add(&[2, 4, high, low]);
        }
        if self.sack_permitted {
            add(&[4, 2]);
        }
        if let Some((value, echo)) = self.timestamps {
            add(&[8, 10]);
            add(&value.to_be_bytes());
            add(&echo.to_be_bytes());
        }
        if let Some(scale) = self.window_scale {
            add(&[3, 3, scale.min(Self::MAX_SCALE)]);
        }
        bytes[at..].fill(0);
    }
}

/// A header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub source_port: u16,
    pub destination_port: u16,
    pub sequence: u32,
    pub acknowledgment: u32,
    /// See [`flags`].
    pub flags: u8,
    pub window: u16,
    pub options: Options,
}

impl Header {
    pub const fn len(&self) -> usize {
        HEADER + self.options.len()
    }

    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Writes the header before the `payload` bytes that already stand behind it in the buffer, and the checksum over
    /// both.
    pub fn write(&self, buffer: &mut [u8], payload: usize, pseudo: PartialChecksum) -> Result<usize, BufferTooShort> {
        let len = self.len();
        let bytes = room(buffer, len + payload)?;
        put16(bytes, 0, self.source_port);
        put16(bytes, 2, self.destination_port);
        put32(bytes, 4, self.sequence);
        put32(bytes, 8, self.acknowledgment);
        put(bytes, 12, &[(len as u8 / 4) << 4, self.flags]);
        put16(bytes, 14, self.window);
        put32(bytes, CHECKSUM, 0);
        self.options.write(&mut bytes[HEADER..len]);
        let checksum = pseudo.bytes(bytes).checksum();
        put16(bytes, CHECKSUM, checksum);
        Ok(len)
    }
}
