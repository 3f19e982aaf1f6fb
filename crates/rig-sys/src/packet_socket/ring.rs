//! The ring that a packet socket receives into (TPACKET_V2; Documentation/networking/packet_mmap.rst of the kernel), and
//! the batches that it sends (sendmmsg(2)).

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{Meter, Options, SharedSocket};
use crate::direct;
use crate::mapping::Mapping;
use crate::socket::set_option;

/// Bytes for frames in each direction.
const BYTES: usize = 8 << 20;
/// Bytes that the kernel takes together.
const BLOCK: usize = 128 << 10;
/// Frames that are received together at most.
const BURST: usize = 256;
/// Bytes of a VLAN tag, which the kernel takes out of frames.
const TAG: usize = 4;

/// Received frames.
#[derive(Debug)]
pub struct Receiver {
    shared: Arc<SharedSocket>,
    ring: Mapping,
    slot: usize,
    slots: usize,
    /// The slot of the burst's first frame.
    first: usize,
    /// Where each frame of the burst is in the ring.
    burst: Vec<(usize, usize)>,
}

/// Frames to send.
#[derive(Debug)]
pub struct Sender {
    shared: Arc<SharedSocket>,
    /// Declared before the memory that they point into.
    messages: Messages,
    memory: Mapping,
    slot: usize,
    /// Frames that wait: from `first`, `put` of them.
    first: usize,
    put: usize,
    /// Of these, those claimed since the last attempt to send.
    fresh: u32,
    burst: u32,
}

/// Headers of messages, one for each slot, that point to vectors of one part each, that point to the slots.
#[derive(Debug)]
struct Messages {
    headers: Vec<libc::mmsghdr>,
    parts: Vec<libc::iovec>,
}

// SAFETY: the pointers are to the vectors' own memory and to the sender's mapping, which move with it.
unsafe impl Send for Messages {}

pub(super) fn halves(shared: SharedSocket, options: &Options) -> io::Result<(Receiver, Sender)> {
    let slot = (size_of::<libc::tpacket2_hdr>() + 64 + TAG + options.frame).next_power_of_two().max(2048);
    let slots = (BYTES / slot).max(64);
    set_option(&shared.fd, libc::SOL_PACKET, libc::PACKET_VERSION, &(libc::tpacket_versions::TPACKET_V2 as i32))?;
    set_option(&shared.fd, libc::SOL_PACKET, libc::PACKET_RESERVE, &(TAG as u32))?;
    let block = BLOCK.max(slot);
    let request = libc::tpacket_req {
        tp_block_size: block as u32,
        tp_block_nr: (slots * slot / block) as u32,
        tp_frame_size: slot as u32,
        tp_frame_nr: slots as u32,
    };
    set_option(&shared.fd, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
    let ring = Mapping::shared(shared.fd.as_fd(), 0, slots * slot)?;
    // What is under way counts against the socket's buffer; the first takes privileges.
    let wanted = 4i32 << 20;
    let _ = set_option(&shared.fd, libc::SOL_SOCKET, libc::SO_SNDBUF, &wanted);
    let _ = set_option(&shared.fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &wanted);
    let shared = Arc::new(shared);
    let receiver = Receiver { shared: shared.clone(), ring, slot, slots, first: 0, burst: Vec::with_capacity(BURST) };
    let memory = Mapping::memory(slots * slot)?;
    let messages = Messages::new(&memory, slot, slots);
    let sender = Sender { shared, messages, memory, slot, first: 0, put: 0, fresh: 0, burst: options.burst.max(1) };
    Ok((receiver, sender))
}

impl Receiver {
    pub fn meter(&self) -> Meter {
        Meter(self.shared.clone())
    }

    pub(super) fn descriptor(&self) -> &OwnedFd {
        &self.shared.fd
    }

    fn status(&self, slot: usize) -> &AtomicU32 {
        // SAFETY: the first word of a slot's header, within the mapping, aligned, and accessed atomically by both sides.
        unsafe { self.ring.at(slot % self.slots * self.slot).cast::<AtomicU32>().as_ref() }
    }

    /// Gives the frames of the last burst back to the kernel and takes the next, without waiting; how many there are.
    pub fn poll(&mut self) -> usize {
        for n in 0..self.burst.len() {
            self.status(self.first + n).store(libc::TP_STATUS_KERNEL, Ordering::Release);
        }
        self.first = (self.first + self.burst.len()) % self.slots;
        self.burst.clear();
        while self.burst.len() < BURST {
            let slot = self.first + self.burst.len();
            let status = self.status(slot).load(Ordering::Acquire);
            if status & libc::TP_STATUS_USER == 0 {
                break;
            }
            let frame = self.take(slot % self.slots * self.slot, status);
            self.burst.push(frame);
        }
        self.burst.len()
    }

    /// Where the frame of a slot that the kernel gave is, its tag put back.
    fn take(&mut self, offset: usize, status: u32) -> (usize, usize) {
        // SAFETY: the slot's header, aligned, which the kernel has written and does not touch until it is given back.
        let header = unsafe { *self.ring.at(offset).cast::<libc::tpacket2_hdr>().as_ptr() };
        let (mac, length) = (usize::from(header.tp_mac), header.tp_snaplen as usize);
        if mac < TAG || length < 12 || mac + length > self.slot {
            return (offset, 0);
        }
        let start = offset + mac;
        if status & libc::TP_STATUS_VLAN_VALID == 0 {
            return (start, length);
        }
        let kind = if status & libc::TP_STATUS_VLAN_TPID_VALID != 0 { header.tp_vlan_tpid } else { 0x8100 };
        let ([a, b], [c, d]) = (kind.to_be_bytes(), header.tp_vlan_tci.to_be_bytes());
        // SAFETY: the slot belongs to this process now; TAG bytes were reserved before the frame, and its addresses, 12
        // bytes, are there.
        unsafe {
            let to = self.ring.at(start - TAG).as_ptr();
            ptr::copy(to.add(TAG), to, 12);
            ptr::copy_nonoverlapping([a, b, c, d].as_ptr(), to.add(12), TAG);
        }
        (start - TAG, length + TAG)
    }

    /// The frame `n` of the burst; empty beyond it.
    #[inline]
    pub fn frame(&self, n: usize) -> &[u8] {
        let Some(&(start, length)) = self.burst.get(n) else { return &[] };
        // SAFETY: within a slot of this process, as `take` found; it goes back in `poll`, which needs this value alone.
        unsafe { std::slice::from_raw_parts(self.ring.at(start).as_ptr(), length) }
    }
}

impl Messages {
    fn new(memory: &Mapping, slot: usize, slots: usize) -> Self {
        let part = |n| libc::iovec { iov_base: memory.at(n * slot).as_ptr().cast(), iov_len: 0 };
        let mut parts: Vec<_> = (0..slots).map(part).collect();
        let header = |part: &mut libc::iovec| {
            // SAFETY: a plain structure, for which zeroes are a value: no address, no control data.
            let mut header: libc::mmsghdr = unsafe { zeroed() };
            header.msg_hdr.msg_iov = part;
            header.msg_hdr.msg_iovlen = 1;
            header
        };
        let headers = parts.iter_mut().map(header).collect();
        Self { headers, parts }
    }
}

impl Sender {
    fn slots(&self) -> usize {
        self.messages.parts.len()
    }

    /// The bytes of the next frame, `length` of them, for the caller to fill. `None` when all buffers wait to be sent, or
    /// the frame is longer than a buffer.
    #[inline]
    pub fn claim(&mut self, length: usize) -> Option<&mut [u8]> {
        if self.fresh >= self.burst {
            self.flush();
        }
        if self.put == self.slots() || length > self.slot {
            return None;
        }
        let slot = (self.first + self.put) % self.slots();
        self.messages.parts[slot].iov_len = length;
        self.put += 1;
        self.fresh += 1;
        // SAFETY: a slot of this sender's own memory, of at least `length` bytes; the kernel reads it only during the
        // system call in `flush`, which needs this value alone.
        Some(unsafe { std::slice::from_raw_parts_mut(self.memory.at(slot * self.slot).as_ptr(), length) })
    }

    /// Sends what was claimed, as far as the kernel takes it at once.
    pub fn flush(&mut self) {
        self.fresh = 0;
        while self.put > 0 {
            let count = self.put.min(self.slots() - self.first);
            let headers = &mut self.messages.headers[self.first..self.first + count];
            // SAFETY: so many headers, each of which points to a part, which points to memory that lives as long.
            let sent = unsafe {
                direct::sendmmsg(self.shared.fd.as_raw_fd(), headers.as_mut_ptr(), headers.len(), libc::MSG_DONTWAIT)
            };
            let done = match usize::try_from(sent) {
                Ok(sent) => sent,
                Err(_) => match io::Error::last_os_error().raw_os_error() {
                    // The kernel has no room at the moment, or was called away.
                    Some(libc::EAGAIN | libc::ENOBUFS | libc::EINTR) => return,
                    // Too long, or no interface to send by: this frame will never be sent.
                    _ => {
                        self.shared.tx_refused.fetch_add(1, Ordering::Relaxed);
                        1
                    }
                },
            };
            if done == 0 {
                return;
            }
            self.first = (self.first + done) % self.slots();
            self.put -= done;
        }
    }
}
