//! Buffers that the kernel chooses from as data comes (io_uring_register_buf_ring(3)).

use std::io;
use std::mem;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::BufRingEntry;
use io_uring::{IoUring, cqueue};

use crate::mapping::Mapping;

const PAGE: usize = 4096;
/// Most entries of a ring of buffers.
const MOST: u32 = 1 << 15;
/// IOU_PBUF_RING_INC of linux/io_uring.h (Linux 6.12): a buffer is filled bit by bit, and given back when it is full.
const INCREMENTAL: u16 = 2;

/// The only group of buffers of a ring.
pub(super) const GROUP: u16 = 0;

/// How many buffers there are when `count` are asked for: one is filled while another is looked at.
pub(super) fn granted(count: u32) -> u32 {
    count.clamp(2, MOST)
}

/// Buffers of `size` bytes, all with the kernel but those whose completions are looked at.
#[derive(Debug)]
pub(super) struct Pool {
    /// The ring's entries, whose number is a power of two, and from the next page on the buffers.
    memory: Mapping,
    entries: u16,
    /// Where the first buffer is.
    start: usize,
    /// From one buffer to the next.
    stride: usize,
    size: u32,
    tail: u16,
}

impl Pool {
    /// Registers [`granted`] of `count` buffers that are filled bit by bit. When what is received is `dropped`, they are one:
    /// nothing is written, but the kernel wants addresses.
    pub(super) fn new(ring: &IoUring, count: u32, size: u32, dropped: bool) -> io::Result<Self> {
        let count = granted(count) as u16;
        let entries = count.next_power_of_two();
        let start = (entries as usize * size_of::<BufRingEntry>()).next_multiple_of(PAGE);
        let stride = if dropped { 0 } else { size as usize };
        let memory = Mapping::memory(start + usize::from(count - 1) * stride + size as usize)?;
        let mut pool = Self { memory, entries, start, stride, size, tail: 0 };
        (0..count).for_each(|buffer| pool.put(buffer));
        let base = pool.memory.at(0).as_ptr() as u64;
        // SAFETY: the entries begin on a page and live as long as the pool, which outlives every operation that takes
        // from it, else is leaked; the kernel ends its use of the entries with the ring.
        unsafe { ring.submitter().register_buf_ring_with_flags(base, entries, GROUP, INCREMENTAL) }?;
        Ok(pool)
    }

    /// Gives the kernel the buffer back that a completion of `bytes` with `flags` has filled.
    pub(super) fn settle(&mut self, bytes: i32, flags: u32) {
        // A completion without bytes has used no buffer, even if an early kernel names one.
        if let Some(buffer) = cqueue::buffer_select(flags).filter(|_| bytes > 0)
            && !cqueue::buffer_more(flags)
            && buffer < self.entries
        {
            self.put(buffer);
        }
    }

    fn put(&mut self, buffer: u16) {
        let place = usize::from(self.tail & (self.entries - 1));
        let address = self.memory.at(self.start + usize::from(buffer) * self.stride).as_ptr() as u64;
        self.tail = self.tail.wrapping_add(1);
        let base = self.memory.at(0).as_ptr().cast::<BufRingEntry>();
        // SAFETY: the entry is within the mapping, whose every bit pattern is one. The kernel reads entries before the
        // tail alone, and this one is only now put before it; it has read what stood there, because there are no more
        // buffers than entries. The tail lies in bytes of the first entry that only this thread writes to.
        unsafe {
            let entry = &mut *base.add(place);
            entry.set_addr(address);
            entry.set_len(self.size);
            entry.set_bid(buffer);
            let tail = BufRingEntry::tail(base).cast::<AtomicU16>();
            (*tail).store(self.tail, Ordering::Release);
        }
    }

    /// The bytes of a buffer.
    #[cfg(test)]
    pub(super) fn buffer(&self, buffer: u16) -> &[u8] {
        let start = self.memory.at(self.start + usize::from(buffer) * self.stride);
        // SAFETY: within the mapping; tests look at it when nothing is in flight.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), self.size as usize) }
    }

    /// Never frees the buffers: the kernel may still use them.
    pub(super) fn leak(self) {
        mem::forget(self);
    }
}
