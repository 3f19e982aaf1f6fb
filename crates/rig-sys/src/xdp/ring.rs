//! Rings between the kernel and a socket (Documentation/networking/af_xdp.rst of the kernel): one side produces, the
//! other consumes, and each tells the other how far it has come.

use std::io;
use std::marker::PhantomData;
use std::mem::size_of;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::mapping::Mapping;

/// What the kernel says about where things are in a ring.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    pub offsets: libc::xdp_ring_offset,
    /// Where in the socket's descriptor the ring is mapped.
    pub page: i64,
    /// A power of two.
    pub entries: u32,
}

#[derive(Debug)]
struct Ring<T> {
    mapping: Mapping,
    layout: Layout,
    entry: PhantomData<T>,
}

impl<T: Copy> Ring<T> {
    fn map(fd: BorrowedFd<'_>, layout: Layout) -> io::Result<Self> {
        assert!(layout.entries.is_power_of_two());
        let length = layout.offsets.desc as usize + layout.entries as usize * size_of::<T>();
        Ok(Self { mapping: Mapping::shared(fd, layout.page, length)?, layout, entry: PhantomData })
    }

    fn counter(&self, offset: u64) -> &AtomicU32 {
        // SAFETY: within the mapping, aligned as the kernel lays it out, initialised, and only ever accessed atomically,
        // by both sides.
        unsafe { self.mapping.at(offset as usize).cast::<AtomicU32>().as_ref() }
    }

    fn producer(&self) -> &AtomicU32 {
        self.counter(self.layout.offsets.producer)
    }

    fn consumer(&self) -> &AtomicU32 {
        self.counter(self.layout.offsets.consumer)
    }

    fn needs_wakeup(&self) -> bool {
        self.counter(self.layout.offsets.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    #[inline]
    fn entry(&self, number: u32) -> NonNull<T> {
        let slot = (number & (self.layout.entries - 1)) as usize;
        self.mapping.at(self.layout.offsets.desc as usize + slot * size_of::<T>()).cast()
    }
}

/// A ring that this process fills.
#[derive(Debug)]
pub(super) struct Producer<T> {
    ring: Ring<T>,
    /// The next entry to write; what was submitted is behind it.
    next: u32,
    /// How far the kernel had come when last looked at.
    consumed: u32,
}

impl<T: Copy> Producer<T> {
    pub fn map(fd: BorrowedFd<'_>, layout: Layout) -> io::Result<Self> {
        Ok(Self { ring: Ring::map(fd, layout)?, next: 0, consumed: 0 })
    }

    /// Adds an entry, which the kernel sees after [`submit`](Self::submit); false when the ring is full.
    #[inline]
    pub fn put(&mut self, entry: T) -> bool {
        let entries = self.ring.layout.entries;
        if self.next.wrapping_sub(self.consumed) == entries {
            self.consumed = self.ring.consumer().load(Ordering::Acquire);
            if self.next.wrapping_sub(self.consumed) == entries {
                return false;
            }
        }
        // SAFETY: the entry is within the mapping; the kernel reads it only after it was submitted, and has read what
        // was there before, as its consumer counter says, which was loaded with acquire ordering.
        unsafe { self.ring.entry(self.next).write(entry) };
        self.next = self.next.wrapping_add(1);
        true
    }

    /// Whether so many entries can be added.
    pub fn has_room(&mut self, count: u32) -> bool {
        let entries = self.ring.layout.entries;
        if entries - self.next.wrapping_sub(self.consumed) < count {
            self.consumed = self.ring.consumer().load(Ordering::Acquire);
        }
        entries - self.next.wrapping_sub(self.consumed) >= count
    }

    /// Lets the kernel see what was put.
    #[inline]
    pub fn submit(&mut self) {
        self.ring.producer().store(self.next, Ordering::Release);
    }

    /// How many entries the kernel has not taken yet.
    pub fn waiting(&mut self) -> u32 {
        self.consumed = self.ring.consumer().load(Ordering::Acquire);
        self.next.wrapping_sub(self.consumed)
    }

    #[inline]
    pub fn needs_wakeup(&self) -> bool {
        self.ring.needs_wakeup()
    }
}

/// A ring that the kernel fills.
#[derive(Debug)]
pub(super) struct Consumer<T> {
    ring: Ring<T>,
    /// The oldest entry that is not given back.
    next: u32,
    /// How far the kernel had come when last looked at.
    produced: u32,
}

impl<T: Copy> Consumer<T> {
    pub fn map(fd: BorrowedFd<'_>, layout: Layout) -> io::Result<Self> {
        Ok(Self { ring: Ring::map(fd, layout)?, next: 0, produced: 0 })
    }

    /// How many entries there are to read.
    #[inline]
    pub fn available(&mut self) -> u32 {
        self.produced = self.ring.producer().load(Ordering::Acquire);
        self.produced.wrapping_sub(self.next)
    }

    /// The entry `n` after the oldest; below what [`available`](Self::available) said last.
    #[inline]
    pub fn get(&self, n: u32) -> T {
        debug_assert!(n < self.produced.wrapping_sub(self.next));
        // SAFETY: the entry is within the mapping, and any bytes are a value of the plain structures that rings hold. The
        // kernel does not write to it before it is given back, and had written it when its producer counter, which was
        // loaded with acquire ordering, said so.
        unsafe { self.ring.entry(self.next.wrapping_add(n)).read() }
    }

    /// Gives the oldest `n` entries back.
    #[inline]
    pub fn release(&mut self, n: u32) {
        self.next = self.next.wrapping_add(n);
        self.ring.consumer().store(self.next, Ordering::Release);
    }
}
