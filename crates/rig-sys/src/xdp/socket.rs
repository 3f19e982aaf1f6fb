//! One AF_XDP socket with memory of its own: a queue of an interface.

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use super::error::OpenError;
use super::frames::{Assembled, Groups, ReceivedFrame};
use super::kernel_is_before;
use super::link::Link;
use super::live::{self, LiveFrameSender};
use super::port::{Attachment, Options};
use super::ring::{Consumer, Layout, Producer};
use crate::clock;
use crate::error::{Error, ErrorContext, Result};
use crate::mapping::Mapping;
use crate::socket::set_option;

/// Buffers to receive into, and entries of the rings that they go through; a power of two. So many frames of one buffer may come while
/// a worker does not look.
const RECEIVE: u32 = 4096;
/// Buffers to send from, and entries of their rings; a power of two.
const SEND: u32 = 2048;
/// Frames that are received together at most.
const BURST: u32 = 256;
/// XDP_PACKET_HEADROOM of the kernel, which it leaves free before each received frame.
const HEADROOM: usize = 256;
const CACHE_LINE: usize = 64;
/// Bytes of one page, the largest buffer.
const PAGE: usize = 4096;
/// Pieces of a frame at most: what a socket buffer has room for as most kernels are configured (MAX_SKB_FRAGS), which is more than the longest packet has.
const MOST_PIECES: usize = 17;
/// The shortest frame that takes several buffers.
pub(super) const BEYOND_A_PAGE: usize = PAGE - HEADROOM + 1;
/// How long a queue may take to be free again.
const RELEASE: Duration = Duration::from_secs(5);
/// System calls of one flush at most. In copy mode each sends 32 frames (TX_BATCH_SIZE of net/xdp/xsk.c).
const WAKEUPS: u32 = 2 * SEND / 32;

// linux/if_xdp.h of Linux 6.17: frames that one system call sends at most.
const XDP_MAX_TX_SKB_BUDGET: libc::c_int = 9;
// asm-generic/socket.h
const SO_BUSY_POLL: libc::c_int = 46;
const SO_PREFER_BUSY_POLL: libc::c_int = 69;
const SO_BUSY_POLL_BUDGET: libc::c_int = 70;

/// Where buffers are in a socket's memory.
#[derive(Debug, Clone, Copy)]
struct Buffers {
    /// Bytes of each, a power of two.
    size: usize,
    /// Bytes from the begin of one to that of the next.
    stride: usize,
    /// Buffers that a frame to send may take, side by side.
    pieces: u32,
}

impl Buffers {
    /// Where frames are copied, they are a cache line further apart than they are long. In buffers of 2 KiB side by side all
    /// frames begin at two places of their pages, and a cache keeps lines by their place in a page: it has room for an
    /// eighth of what it would hold otherwise.
    fn new((size, pieces): (usize, u32), copy: bool) -> Self {
        Self { size, stride: if copy { size + CACHE_LINE } else { size }, pieces }
    }

    /// Where buffers to send from begin, and from one to the next.
    fn to_send(self) -> (u64, u64) {
        let stride = (self.pieces as usize - 1) * self.size + self.stride;
        (self.address(RECEIVE), stride as u64)
    }

    /// How many frames can be under way; the rings have an entry for each piece.
    fn frames_to_send(self) -> u32 {
        SEND / self.pieces
    }

    fn bytes(self) -> usize {
        let (begin, stride) = self.to_send();
        (begin + stride * u64::from(self.frames_to_send())) as usize
    }

    /// Whether the kernel has to be told that buffers begin anywhere.
    fn is_unaligned(self) -> bool {
        self.stride != self.size
    }

    fn address(self, n: u32) -> u64 {
        u64::from(n) * self.stride as u64
    }

    /// The begin of the buffer of a frame that the kernel says is at `address`.
    fn begin(self, address: u64) -> u64 {
        match self.is_unaligned() {
            true => address & libc::XSK_UNALIGNED_BUF_ADDR_MASK,
            // Where the frame begins in its buffer is for the kernel to ignore.
            false => address & !(self.size as u64 - 1),
        }
    }

    /// Where in the memory that frame is.
    fn frame(self, address: u64) -> usize {
        match self.is_unaligned() {
            true => {
                let offset = address >> libc::XSK_UNALIGNED_BUF_OFFSET_SHIFT;
                (address & libc::XSK_UNALIGNED_BUF_ADDR_MASK) as usize + offset as usize
            }
            false => address as usize,
        }
    }
}

/// What both halves need as long as one of them is there.
#[derive(Debug)]
pub(super) struct SharedSocket {
    fd: OwnedFd,
    /// Buffers to receive into, then buffers to send from.
    memory: Mapping,
    buffers: Buffers,
    /// The program goes with the last socket.
    _attachment: Arc<Attachment>,
}

/// What the kernel counts at a socket (`struct xdp_statistics`), since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Frames for which there was no buffer.
    pub rx_no_buffer: u64,
    /// Frames that did not fit into a buffer.
    pub rx_too_long: u64,
    /// Frames for which the ring of received frames had no room.
    pub rx_ring_full: u64,
    /// Frames to send that the kernel did not understand.
    pub tx_invalid: u64,
    /// Live frames that the kernel would not make.
    pub tx_refused: u64,
}

/// Reads a socket's counters, from any thread.
#[derive(Debug, Clone)]
pub struct Meter {
    shared: Arc<SharedSocket>,
    live: Option<Arc<live::Counters>>,
}

/// Received frames.
#[derive(Debug)]
pub struct Receiver {
    shared: Arc<SharedSocket>,
    rx: Consumer<libc::xdp_desc>,
    fill: Producer<u64>,
    /// Entries of the frames that the caller looks at.
    burst: u32,
    /// Those frames, where one may be several entries.
    assembled: Option<Assembled>,
    busy_poll: bool,
}

/// Frames to send, by way of the socket.
#[derive(Debug)]
pub struct Sender {
    shared: Arc<SharedSocket>,
    tx: Producer<libc::xdp_desc>,
    completion: Consumer<u64>,
    /// Offsets of buffers that hold nothing. The last given back is the next to be used: it is still in the cache.
    free: Vec<u64>,
    /// Where a buffer is several of the kernel's.
    groups: Option<Box<Groups>>,
    /// Frames that were put and not yet shown to the kernel.
    put: u32,
    burst: u32,
    /// The kernel has not taken everything that it was shown.
    behind: bool,
}

/// Bytes of a buffer for frames of up to `frame` bytes, and how many buffers such a frame takes.
pub(super) fn buffer_for(frame: usize) -> Result<(usize, u32), OpenError> {
    let single = [PAGE / 2, PAGE].into_iter().find(|size| frame + HEADROOM <= *size);
    if let Some(size) = single {
        return Ok((size, 1));
    }
    if kernel_is_before(6, 6) {
        return Err(OpenError::Frame { frame, max: PAGE - HEADROOM, more: " before Linux 6.6" });
    }
    let pieces = frame.div_ceil(PAGE).max(2);
    match u32::try_from(pieces) {
        Ok(count) if pieces <= MOST_PIECES => Ok((PAGE, count)),
        _ => Err(OpenError::Frame { frame, max: MOST_PIECES * PAGE, more: "" }),
    }
}

/// Reads an option whose value is a plain structure, of which all zeroes are a value.
///
/// # Safety
/// Any bytes are a value of `T`.
unsafe fn get<T>(fd: &OwnedFd, option: libc::c_int) -> io::Result<T> {
    // SAFETY: as the caller says.
    let mut value: T = unsafe { zeroed() };
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: pointer and length are those of a writable value.
    let result =
        unsafe { libc::getsockopt(fd.as_raw_fd(), libc::SOL_XDP, option, (&raw mut value).cast(), &raw mut length) };
    match result {
        0 if length as usize == size_of::<T>() => Ok(value),
        // Linux before 5.4 knows shorter structures.
        0 => Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes a socket and binds it to a queue.
pub(super) fn open(
    link: &Link,
    queue: u32,
    options: &Options,
    attachment: &Arc<Attachment>,
) -> Result<(Receiver, Sender), OpenError> {
    // A veth interface always copies.
    let copy = options.copy || link.is_veth;
    let buffers = Buffers::new(buffer_for(options.frame)?, copy);
    // SAFETY: takes no pointers.
    let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        let error = io::Error::last_os_error();
        return Err(match error.raw_os_error() {
            Some(libc::EPERM) => OpenError::NotPermitted { operation: "making an AF_XDP socket".into() },
            Some(libc::EAFNOSUPPORT) => kernel("AF_XDP needs a kernel with CONFIG_XDP_SOCKETS"),
            _ => Error::new("make an AF_XDP socket", error).into(),
        });
    }
    // SAFETY: a new descriptor, which nothing else owns.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let bytes = buffers.bytes().next_multiple_of(PAGE);
    let memory = Mapping::memory(bytes).during(|| format!("take {bytes} bytes for frames"))?;
    let umem = libc::xdp_umem_reg {
        addr: memory.at(0).as_ptr() as u64,
        len: bytes as u64,
        chunk_size: buffers.size as u32,
        headroom: 0,
        flags: if buffers.is_unaligned() { libc::XDP_UMEM_UNALIGNED_CHUNK_FLAG } else { 0 },
        tx_metadata_len: 0,
    };
    set_option(&fd, libc::SOL_XDP, libc::XDP_UMEM_REG, &umem).map_err(|error| match error.raw_os_error() {
        Some(libc::ENOBUFS) => OpenError::LockedMemory { bytes },
        _ => Error::new("register memory for an AF_XDP socket", error).into(),
    })?;
    let (mut receiver, sender) = halves(fd, memory, buffers, attachment, options)?;
    for n in 0..RECEIVE {
        receiver.fill.put(buffers.address(n));
    }
    receiver.fill.submit();
    bind(&receiver.shared.fd, link, queue, copy, buffers.pieces > 1)?;
    Ok((receiver, sender))
}

fn halves(
    fd: OwnedFd,
    memory: Mapping,
    buffers: Buffers,
    attachment: &Arc<Attachment>,
    options: &Options,
) -> Result<(Receiver, Sender)> {
    let rings = [
        (libc::XDP_UMEM_FILL_RING, RECEIVE),
        (libc::XDP_RX_RING, RECEIVE),
        (libc::XDP_UMEM_COMPLETION_RING, SEND),
        (libc::XDP_TX_RING, SEND),
    ];
    for (option, entries) in rings {
        set_option(&fd, libc::SOL_XDP, option, &entries)
            .during(|| format!("make ring {option} of an AF_XDP socket"))?;
    }
    // SAFETY: a structure of integers.
    let offsets = unsafe { get::<libc::xdp_mmap_offsets>(&fd, libc::XDP_MMAP_OFFSETS) };
    let offsets = offsets.during(|| "ask for the rings of an AF_XDP socket".into())?;
    let layout = |offsets, page: u64, entries| Layout { offsets, page: page as i64, entries };
    let map = || "map the rings of an AF_XDP socket".to_owned();
    let ring = fd.as_fd();
    let rx = Consumer::map(ring, layout(offsets.rx, libc::XDP_PGOFF_RX_RING as u64, RECEIVE)).during(map)?;
    let tx = Producer::map(ring, layout(offsets.tx, libc::XDP_PGOFF_TX_RING as u64, SEND)).during(map)?;
    let fill = Producer::map(ring, layout(offsets.fr, libc::XDP_UMEM_PGOFF_FILL_RING, RECEIVE)).during(map)?;
    let completion = Consumer::map(ring, layout(offsets.cr, libc::XDP_UMEM_PGOFF_COMPLETION_RING, SEND)).during(map)?;
    // What is under way counts against the socket's buffer. Neither option is needed to work: both save system calls.
    let _ = set_option(&fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &(SEND as libc::c_int * 4096));
    let _ = set_option(&fd, libc::SOL_XDP, XDP_MAX_TX_SKB_BUDGET, &SEND);
    if let Some(budget) = options.busy_poll {
        busy_poll(&fd, budget)?;
    }
    let shared = Arc::new(SharedSocket { fd, memory, buffers, _attachment: attachment.clone() });
    let (begin, stride) = buffers.to_send();
    let in_pieces = buffers.pieces > 1;
    let receiver = Receiver {
        shared: shared.clone(),
        rx,
        fill,
        burst: 0,
        assembled: in_pieces.then(Assembled::default),
        busy_poll: options.busy_poll.is_some(),
    };
    let free = (0..u64::from(buffers.frames_to_send())).map(|n| begin + n * stride).collect();
    let groups = in_pieces.then(|| Box::new(Groups::new(begin, stride, buffers.frames_to_send())));
    let burst = options.burst.clamp(1, buffers.frames_to_send());
    Ok((receiver, Sender { shared, tx, completion, free, groups, put: 0, burst, behind: false }))
}

/// The thread that receives drives the interface's NAPI itself, in place of interrupts, `budget` frames at a time.
fn busy_poll(fd: &OwnedFd, budget: u16) -> Result<()> {
    let values: [(libc::c_int, libc::c_int); 3] =
        [(SO_PREFER_BUSY_POLL, 1), (SO_BUSY_POLL, 20), (SO_BUSY_POLL_BUDGET, budget.into())];
    for (option, value) in values {
        // ENOPROTOOPT: Linux before 5.11.
        set_option(fd, libc::SOL_SOCKET, option, &value).during(|| "switch busy polling on (Linux 5.11)".into())?;
    }
    Ok(())
}

fn bind(fd: &OwnedFd, link: &Link, queue: u32, copy: bool, in_pieces: bool) -> Result<(), OpenError> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        // Without XDP_COPY the kernel tries without copying first.
        sxdp_flags: libc::XDP_USE_NEED_WAKEUP
            | if copy { libc::XDP_COPY } else { 0 }
            | if in_pieces { libc::XDP_USE_SG } else { 0 },
        sxdp_ifindex: link.index,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: 0,
    };
    let try_once = || {
        // SAFETY: pointer and length are those of a socket address that lives through the call.
        let result = unsafe {
            libc::bind(fd.as_raw_fd(), (&raw const address).cast(), size_of_val(&address) as libc::socklen_t)
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    let deadline = clock::monotonic_after(RELEASE);
    let error = loop {
        match try_once() {
            Ok(()) => return Ok(()),
            // The kernel lets go of a closed socket's queue from a work queue (xp_put_pool of net/xdp/xsk_buff_pool.c).
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && clock::monotonic_ns() < deadline => {
                thread::sleep(Duration::from_millis(5));
            }
            Err(error) => break error,
        }
    };
    let interface = link.name.clone();
    Err(match error.raw_os_error() {
        Some(libc::EBUSY) => OpenError::QueueInUse { interface, queue },
        Some(libc::ENODEV) => OpenError::NoInterface(interface),
        Some(libc::EINVAL | libc::EOPNOTSUPP) if in_pieces => OpenError::Pieces { interface },
        Some(libc::EINVAL) => link.no_queue(queue),
        _ => Error::new(format!("bind an AF_XDP socket to queue {queue} of {interface}"), error).into(),
    })
}

pub(super) fn kernel(needed: &'static str) -> OpenError {
    OpenError::Kernel { needed, release: rustix::system::uname().release().to_string_lossy().into_owned() }
}

impl SharedSocket {
    /// Whether frames are sent and received without being copied.
    fn is_zero_copy(&self) -> bool {
        // SAFETY: a structure of one integer.
        let options = unsafe { get::<libc::xdp_options>(&self.fd, libc::XDP_OPTIONS) };
        options.is_ok_and(|options| options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0)
    }

    /// The bytes that an entry of the ring of received frames is for.
    #[inline]
    fn received(&self, entry: &libc::xdp_desc) -> &[u8] {
        let (start, length) = (self.buffers.frame(entry.addr), entry.len as usize);
        if start.saturating_add(length) > RECEIVE as usize * self.buffers.stride || length == 0 {
            return &[];
        }
        // SAFETY: within the part of the memory that is received into, in a buffer that the kernel filled and gave to
        // this process; it goes back in `Receiver::poll`, which needs alone what this was borrowed through.
        unsafe { std::slice::from_raw_parts(self.memory.at(start).as_ptr(), length) }
    }

    /// Receives nothing; makes the driver look for frames and buffers.
    fn wake_receive(&self) {
        // SAFETY: a null buffer of no length is not written to.
        unsafe { libc::recv(self.fd.as_raw_fd(), std::ptr::null_mut(), 0, libc::MSG_DONTWAIT) };
    }

    fn wake_transmit(&self) -> io::Result<()> {
        // SAFETY: a null buffer of no length is not read.
        let sent = unsafe { libc::send(self.fd.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl Meter {
    pub fn read(&self) -> Result<Statistics> {
        // SAFETY: a structure of integers.
        let statistics = unsafe { get::<libc::xdp_statistics>(&self.shared.fd, libc::XDP_STATISTICS) };
        let statistics = statistics.during(|| "read the counters of an AF_XDP socket".into())?;
        // The kernel counts both kinds together, and beside that how often it found no buffer; drivers that do without copying do so ahead of the
        // frames. Any frame fits into several buffers, and none is taken unless there are enough.
        let no_buffer = match self.shared.buffers.pieces {
            1 => statistics.rx_dropped.min(statistics.rx_fill_ring_empty_descs),
            _ => statistics.rx_dropped,
        };
        Ok(Statistics {
            rx_no_buffer: no_buffer,
            rx_too_long: statistics.rx_dropped - no_buffer,
            rx_ring_full: statistics.rx_ring_full,
            tx_invalid: statistics.tx_invalid_descs,
            tx_refused: self.live.as_ref().map_or(0, |live| live.refused.load(Ordering::Relaxed)),
        })
    }

    /// Whether frames leave without socket buffers now.
    pub fn is_live(&self) -> bool {
        self.live.as_ref().is_some_and(|live| live.is_live.load(Ordering::Relaxed))
    }

    /// Adds what a sender of live frames counts.
    #[must_use]
    pub fn with(self, sender: &LiveFrameSender) -> Self {
        Self { live: Some(sender.counters()), ..self }
    }
}

impl Receiver {
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.shared.fd.as_fd()
    }

    pub fn meter(&self) -> Meter {
        Meter { shared: self.shared.clone(), live: None }
    }

    pub fn is_zero_copy(&self) -> bool {
        self.shared.is_zero_copy()
    }

    /// Gives the frames of the last burst back to the kernel and takes the next, without waiting; how many there are.
    #[inline]
    pub fn poll(&mut self) -> usize {
        if self.burst > 0 {
            for n in 0..self.burst {
                let address = self.rx.get(n).addr;
                // There are as many entries as buffers: it is never full.
                self.fill.put(self.shared.buffers.begin(address));
            }
            self.fill.submit();
            self.rx.release(self.burst);
        }
        if self.busy_poll || self.fill.needs_wakeup() {
            self.shared.wake_receive();
        }
        let available = self.rx.available().min(BURST);
        let Some(assembled) = &mut self.assembled else {
            self.burst = available;
            return available as usize;
        };
        let shared = &self.shared;
        let rx = &self.rx;
        self.burst = assembled.take(available, |n| {
            let entry = rx.get(n);
            (entry.options & libc::XDP_PKT_CONTD == 0, shared.received(&entry))
        });
        assembled.count()
    }

    /// The frame `n` of the burst; empty beyond it.
    #[inline]
    pub fn frame(&self, n: usize) -> &[u8] {
        let entry = match &self.assembled {
            None if n < self.burst as usize => n as u32,
            None => return &[],
            Some(assembled) => match assembled.frame(n) {
                None => return &[],
                Some(ReceivedFrame::Bytes(bytes)) => return bytes,
                Some(ReceivedFrame::Entry(entry)) => entry,
            },
        };
        self.shared.received(&self.rx.get(entry))
    }
}

impl Sender {
    /// The bytes of the next frame, `length` of them, for the caller to fill. `None` when all buffers are under way, or
    /// the frame is longer than a buffer.
    #[inline]
    pub fn claim(&mut self, length: usize) -> Option<&mut [u8]> {
        if length > self.shared.buffers.size * self.shared.buffers.pieces as usize {
            return None;
        }
        if self.put >= self.burst {
            self.flush();
        }
        if self.free.is_empty() {
            self.reclaim();
        }
        let buffer = self.free.pop()?;
        if !self.put_entries(buffer, length) {
            self.free.push(buffer);
            return None;
        }
        self.put += 1;
        // SAFETY: a buffer of the half that is sent from, which the kernel does not read before the entry is submitted
        // in `flush`, which needs this value alone. The buffer was on the free list, so no other slice refers to it.
        Some(unsafe { std::slice::from_raw_parts_mut(self.shared.memory.at(buffer as usize).as_ptr(), length) })
    }

    /// Puts the entries of a frame. The ring has room for the pieces of all buffers.
    #[inline]
    fn put_entries(&mut self, buffer: u64, length: usize) -> bool {
        let Some(groups) = &mut self.groups else {
            return self.tx.put(libc::xdp_desc { addr: buffer, len: length as u32, options: 0 });
        };
        let size = self.shared.buffers.size;
        let pieces = length.div_ceil(size).max(1);
        if !self.tx.has_room(pieces as u32) || !groups.give(buffer, pieces as u8) {
            return false;
        }
        (0..pieces).all(|n| {
            let options = if n + 1 < pieces { libc::XDP_PKT_CONTD } else { 0 };
            let len = (length - n * size).min(size) as u32;
            self.tx.put(libc::xdp_desc { addr: buffer + (n * size) as u64, len, options })
        })
    }

    pub(super) fn has_claimed(&self) -> bool {
        self.put > 0
    }

    /// Whether so many more frames can be claimed.
    pub(super) fn has_room(&mut self, frames: u32) -> bool {
        if self.free.len() < frames as usize {
            self.reclaim();
        }
        // The ring has an entry for each buffer.
        self.free.len() >= frames as usize
    }

    /// Sends what was claimed, as far as the kernel takes it at once.
    #[inline]
    pub fn flush(&mut self) {
        if self.put > 0 || self.behind {
            self.send();
        }
    }

    fn send(&mut self) {
        self.tx.submit();
        self.put = 0;
        let mut waiting = self.tx.waiting();
        for _ in 0..WAKEUPS {
            if waiting == 0 || !self.tx.needs_wakeup() {
                break;
            }
            let woken = self.shared.wake_transmit();
            let left = self.tx.waiting();
            // A frame that the interface had no room for stays, or is dropped; without any progress, trying again at
            // once does not help.
            if woken.is_err() && left == waiting {
                break;
            }
            waiting = left;
        }
        self.behind = waiting > 0;
        self.reclaim();
    }

    /// Takes the buffers back that were sent.
    fn reclaim(&mut self) {
        let sent = self.completion.available();
        for n in 0..sent {
            let address = self.completion.get(n);
            match &mut self.groups {
                None => self.free.push(address),
                Some(groups) => self.free.extend(groups.take(address)),
            }
        }
        if sent > 0 {
            self.completion.release(sent);
        }
    }
}
