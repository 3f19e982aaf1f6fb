//! Memory that is shared with the kernel.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};

/// A mapping (mmap(2)), undone when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread; the code that dereferences `base` sees to it that the memory
// behind it is used by one thread at a time.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Zeroed memory that is there before it is touched, in large pages where the kernel has some to spare.
    pub fn memory(length: usize) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let mapping = Self::new(None, 0, length, flags)?;
        // SAFETY: the range is that of the mapping, and neither advice changes what the memory holds. Both may fail:
        // then pages are small, or come when they are touched.
        unsafe {
            libc::madvise(mapping.base.as_ptr().cast(), length, libc::MADV_HUGEPAGE);
            libc::madvise(mapping.base.as_ptr().cast(), length, libc::MADV_POPULATE_WRITE);
        }
        Ok(mapping)
    }

    /// Memory behind a descriptor, from `offset` of it.
    pub fn shared(fd: BorrowedFd<'_>, offset: i64, length: usize) -> io::Result<Self> {
        Self::new(Some(fd), offset, length, libc::MAP_SHARED | libc::MAP_POPULATE)
    }

    fn new(fd: Option<BorrowedFd<'_>>, offset: i64, length: usize, flags: i32) -> io::Result<Self> {
        let fd = fd.map_or(-1, |fd| fd.as_raw_fd());
        // SAFETY: the kernel chooses where the mapping goes, so it replaces none that is in use.
        let base =
            unsafe { libc::mmap(ptr::null_mut(), length, libc::PROT_READ | libc::PROT_WRITE, flags, fd, offset) };
        match NonNull::new(base.cast::<u8>()) {
            Some(base) if base.as_ptr().cast() != libc::MAP_FAILED => Ok(Self { base, length }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The byte at `offset`.
    ///
    /// # Panics
    /// When it is beyond the mapping.
    pub fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset < self.length, "offset {offset} in a mapping of {} bytes", self.length);
        // SAFETY: within the mapping.
        unsafe { self.base.add(offset) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is that of a mapping of ours, and its users are gone or hold a reference to this.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.length) };
    }
}
