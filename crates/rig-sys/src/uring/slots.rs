//! The operations that a ring can have in flight, and their buffers.

use std::mem;

use super::Operation;

const PAGE: usize = 4096;

/// `depth` slots for each socket; slot s belongs to socket s / depth.
#[derive(Debug)]
pub(super) struct SocketSlots {
    depth: usize,
    /// For each socket, the slots that are free.
    free: Vec<Vec<u32>>,
    busy: usize,
    /// Busy slots whose result has come: zero-copy sends that still hold their pages.
    held: usize,
    buffers: Buffers,
}

#[derive(Debug)]
struct Buffers {
    /// One after the other, each from a page's begin. Written to by the kernel alone, through the pointer below.
    memory: Vec<u8>,
    start: *mut u8,
    stride: usize,
    length: usize,
}

impl SocketSlots {
    pub(super) fn new(sockets: usize, depth: usize, work: Operation, message: &[u8]) -> Self {
        let slots = sockets * depth;
        // All slots may send the same message. Dropped bytes are not written anywhere, but need an address.
        let count = if work == Operation::Receive { slots } else { 1 };
        let stride = if count == 1 { 0 } else { message.len().next_multiple_of(PAGE) };
        let mut memory = vec![0u8; count.saturating_sub(1) * stride + message.len() + PAGE];
        let offset = memory.as_ptr().align_offset(PAGE).min(PAGE);
        if work != Operation::Discard {
            for index in 0..count {
                memory[offset + index * stride..][..message.len()].copy_from_slice(message);
            }
        }
        let start = memory[offset..].as_mut_ptr();
        let free = (0..sockets).map(|socket| (0..depth).rev().map(|i| (socket * depth + i) as u32).collect()).collect();
        let buffers = Buffers { memory, start, stride, length: message.len() };
        Self { depth, free, busy: 0, held: 0, buffers }
    }

    pub(super) fn socket(&self, slot: usize) -> usize {
        slot / self.depth
    }

    pub(super) fn sockets(&self) -> usize {
        self.free.len()
    }

    pub(super) fn free(&self, socket: usize) -> usize {
        self.free[socket].len()
    }

    pub(super) fn busy(&self, socket: usize) -> usize {
        self.depth - self.free(socket)
    }

    pub(super) fn total_busy(&self) -> usize {
        self.busy
    }

    /// Slots whose result has not come.
    pub(super) fn total_unfinished(&self) -> usize {
        self.busy - self.held
    }

    /// Takes a free slot of the socket.
    pub(super) fn take(&mut self, socket: usize) -> Option<usize> {
        let slot = self.free[socket].pop()?;
        self.busy += 1;
        Some(slot as usize)
    }

    /// Notes that the result of a slot has come which stays taken.
    pub(super) fn hold(&mut self) {
        self.held += 1;
    }

    /// Frees a slot that was held.
    pub(super) fn release_held(&mut self, slot: usize) {
        self.held -= 1;
        self.release(slot);
    }

    /// Frees a slot.
    pub(super) fn release(&mut self, slot: usize) {
        let socket = self.socket(slot);
        self.free[socket].push(slot as u32);
        self.busy -= 1;
    }

    /// A slot's buffer. Only the kernel uses it while the slot is taken.
    pub(super) fn buffer(&self, slot: usize) -> (*mut u8, u32) {
        let Buffers { start, stride, length, .. } = self.buffers;
        // The last buffer ends inside the memory, so this neither wraps nor leaves it.
        (start.wrapping_add(slot * stride), length as u32)
    }

    /// The message, of which there is one when the work is to send.
    pub(super) fn message(&self) -> (*const u8, usize) {
        (self.buffers.start, self.buffers.length)
    }

    /// Never frees the buffers: the kernel may still use them.
    pub(super) fn leak(&mut self) {
        mem::forget(mem::take(&mut self.buffers.memory));
    }
}
