//! The ring of buffers that a test sends from or receives into.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{MemfdFlags, memfd_create};

/// The most memory that a ring may take.
pub const LARGEST_RING: u64 = 1 << 30;

/// Buffers of one size, used in turn.
#[derive(Debug)]
pub struct Ring {
    bytes: Vec<u8>,
    starts: Vec<usize>,
    size: usize,
    next: usize,
}

/// How a ring lies in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingLayout {
    /// Buffers, at least one.
    pub width: u32,
    /// Bytes of each.
    pub size: u32,
    /// Each begins at `offset` behind a multiple of this.
    pub alignment: u32,
    pub offset: u32,
}

impl RingLayout {
    /// Of a way that a test does not go.
    pub const UNUSED: Self = Self { width: 1, size: 1, alignment: 1, offset: 0 };
    /// The most buffers that a ring has.
    pub const WIDEST: u32 = 1 << 16;

    /// Bytes of a ring of this layout, and of the list of its buffers.
    pub fn memory(self) -> u64 {
        let each = u64::from(self.size) + u64::from(self.alignment.max(1)) + u64::from(self.offset);
        let each = each.saturating_add(size_of::<usize>() as u64);
        each.saturating_mul(u64::from(self.width.max(1)))
    }

    /// # Errors
    /// More buffers than [`Self::WIDEST`], or more memory than `most` bytes.
    pub fn check(self, most: u64) -> io::Result<()> {
        if self.width > Self::WIDEST || self.memory() > most {
            let why = format!(
                "{} buffers of {} bytes: at most {} buffers, and {most} bytes of them with what they are aligned by",
                self.width,
                self.size,
                Self::WIDEST
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        Ok(())
    }
}

impl Ring {
    /// With bytes that do not repeat, as netperf's are not either, or with those of a file, again and again.
    ///
    /// # Errors
    /// A ring of more than [`LARGEST_RING`] bytes, or a file that cannot be read or is empty.
    pub fn new(layout: RingLayout, fill: Option<&Path>) -> io::Result<Self> {
        layout.check(LARGEST_RING)?;
        let (size, alignment) = (layout.size as usize, layout.alignment.max(1) as usize);
        let stride = size + alignment + layout.offset as usize;
        let mut bytes = vec![0_u8; stride * layout.width.max(1) as usize];
        let base = bytes.as_ptr().addr();
        let start = |at: usize| (base + at).next_multiple_of(alignment) - base + layout.offset as usize;
        let starts: Vec<usize> = (0..bytes.len()).step_by(stride).map(start).collect();
        match fill {
            None => fill_with_noise(&mut bytes),
            Some(path) => {
                let content = content(path, size * starts.len())?;
                let mut content = content.iter().copied().cycle();
                for &start in &starts {
                    bytes[start..start + size].iter_mut().zip(&mut content).for_each(|(byte, filled)| *byte = filled);
                }
            }
        }
        Ok(Self { bytes, starts, size, next: 0 })
    }

    /// The buffer whose turn it is.
    #[inline]
    pub fn current(&mut self) -> &mut [u8] {
        let start = self.starts[self.next];
        &mut self.bytes[start..start + self.size]
    }

    #[inline]
    pub fn advance(&mut self) {
        self.next += 1;
        if self.next == self.starts.len() {
            self.next = 0;
        }
    }

    pub fn width(&self) -> u32 {
        self.starts.len() as u32
    }

    pub fn size(&self) -> u32 {
        self.size as u32
    }
}

/// A file in memory with these bytes, and how many they are.
///
/// # Errors
/// When there is no memory for it.
pub fn memory_file(bytes: &[u8]) -> io::Result<(OwnedFd, u32)> {
    let mut file = File::from(memfd_create("netperf payload", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    Ok((file.into(), bytes.len() as u32))
}

/// What a file has, up to `most` bytes.
fn content(path: &Path, most: usize) -> io::Result<Vec<u8>> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("read {}: {error}", path.display()));
    let mut content = Vec::new();
    File::open(path).map_err(named)?.take(most as u64).read_to_end(&mut content).map_err(named)?;
    if content.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{} is empty", path.display())));
    }
    Ok(content)
}

/// xorshift64 (Marsaglia, Xorshift RNGs, 2003).
fn fill_with_noise(bytes: &mut [u8]) {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for chunk in bytes.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        chunk.copy_from_slice(&state.to_le_bytes()[..chunk.len()]);
    }
}

/// Width of a ring that no option says: enough buffers for what a socket holds, and at least two.
pub fn width_for(socket_buffer: u32, size: u32) -> u32 {
    (socket_buffer / size.max(1)).saturating_add(1).clamp(2, RingLayout::WIDEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(width: u32, size: u32, alignment: u32, offset: u32) -> RingLayout {
        RingLayout { width, size, alignment, offset }
    }

    #[test]
    fn buffers_are_aligned_and_take_turns() {
        let mut ring = Ring::new(of(3, 100, 4096, 7), None).unwrap();
        let mut starts = Vec::new();
        for _ in 0..4 {
            let buffer = ring.current();
            assert_eq!(buffer.len(), 100);
            assert_eq!((buffer.as_ptr().addr() - 7) % 4096, 0);
            starts.push(buffer.as_ptr().addr());
            ring.advance();
        }
        assert_eq!(starts[0], starts[3]);
        assert_ne!(starts[0], starts[1]);
        assert_eq!(width_for(16_384, 16_384), 2);
        assert_eq!(width_for(131_072, 16_384), 9);
    }

    #[test]
    fn a_file_fills_the_buffers_again_and_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fill");
        std::fs::write(&path, "abc").unwrap();
        let mut ring = Ring::new(of(2, 4, 1, 0), Some(&path)).unwrap();
        assert_eq!(ring.current(), b"abca");
        ring.advance();
        assert_eq!(ring.current(), b"bcab");
        std::fs::write(&path, "").unwrap();
        assert!(Ring::new(of(2, 4, 1, 0), Some(&path)).unwrap_err().to_string().contains("is empty"));
        assert!(Ring::new(of(2, 4, 1, 0), Some(&folder.path().join("none"))).is_err());
        for much in [
            of(1 << 20, 1 << 20, 1, 0),
            of(u32::MAX, 1, 0, 0),
            of(1 << 31, 2, u32::MAX, u32::MAX),
            of(1, u32::MAX, 1, 0),
        ] {
            assert!(Ring::new(much, None).unwrap_err().to_string().contains("at most"), "{much:?}");
        }
    }
}
