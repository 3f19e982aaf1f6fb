//! Numbers at fixed places, and buffers that may be too short.

use std::error::Error;
use std::fmt;

/// The buffer is shorter than what shall be written into it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferTooShort {
    /// Bytes that were needed.
    pub needed: usize,
    /// Bytes that were there.
    pub available: usize,
}

impl fmt::Display for BufferTooShort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a header of {} bytes does not fit into a buffer of {}", self.needed, self.available)
    }
}

impl Error for BufferTooShort {}

/// The `N` bytes at `at`. The caller has checked the length.
#[inline(always)]
pub(crate) fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

#[inline(always)]
pub(crate) fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(array(bytes, at))
}

#[inline(always)]
pub(crate) fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(array(bytes, at))
}

#[inline(always)]
pub(crate) fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

#[inline(always)]
pub(crate) fn put16(bytes: &mut [u8], at: usize, value: u16) {
    put(bytes, at, &value.to_be_bytes());
}

#[inline(always)]
pub(crate) fn put32(bytes: &mut [u8], at: usize, value: u32) {
    put(bytes, at, &value.to_be_bytes());
}

/// The first `needed` bytes of a buffer.
#[inline(always)]
pub(crate) fn room(buffer: &mut [u8], needed: usize) -> Result<&mut [u8], BufferTooShort> {
    let available = buffer.len();
    buffer.get_mut(..needed).ok_or(BufferTooShort { needed, available })
}
