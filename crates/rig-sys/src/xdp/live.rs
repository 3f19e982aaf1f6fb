//! Sending without socket buffers: frames that the kernel makes for a program that is run on purpose
//! (BPF_PROG_TEST_RUN with BPF_F_TEST_XDP_LIVE_FRAMES, Linux 5.18; Documentation/bpf/bpf_prog_run.rst of the kernel).
//!
//! Frames wait in a map that the kernel and this process share. Flushing runs the program once for each: it writes the
//! next one over the frame that the kernel made and redirects it into the interface (`ndo_xdp_xmit`).

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use super::assemble::{Assembler, Helper, JumpCondition, Label, Op, Register, Size};
use super::bpf::{self, MAPPABLE, MapKind};
use super::filter::{BEGIN, CONTEXT};
use super::port::Attachment;
use super::socket::Sender;
use crate::clock;
use crate::mapping::Mapping;
use crate::netdev::Questions;

/// Frames that wait at most; a power of two. A veth interface has room for 256 at once, but the kernel hands them over 64
/// at a time, and the peer takes these before the next come.
pub(super) const SLOTS: u32 = 256;
/// So many frames, or fewer, go by the socket. For any number of them, a system call that makes frames first makes 64 pages,
/// their pool and its registration, and in the end undoes all of it, which is about what sixteen socket buffers cost.
const FEW: u32 = 16;
/// Bytes of a slot: the frame's length, and the frame.
const SLOT: u32 = 4096;
/// Where in a slot the frame begins.
const FRAME: u32 = 8;
/// Bytes before the slots: which slot is next, and the length of the frames that the kernel makes.
const HEAD: u32 = 64;
const VALUE: u32 = HEAD + SLOTS * SLOT;
/// What a page leaves beside the kernel's own data.
const LONGEST: u32 = 3072;
/// Number of the worker, before each frame that the kernel makes.
const METADATA: usize = 4;

/// `enum xdp_action`.
const DROP: i32 = 1;
/// Offsets in `struct xdp_md`.
const META: i16 = 8;
const INGRESS: i16 = 12;

/// The maps of an interface's sending program.
#[derive(Debug)]
pub(super) struct Maps {
    frames: OwnedFd,
    interface: OwnedFd,
    memory: Mapping,
}

impl Maps {
    pub fn new(interface: u32, workers: u32) -> io::Result<Arc<Self>> {
        let frames = bpf::create_map(MapKind::Array, VALUE, workers, MAPPABLE)?;
        let memory = Mapping::shared(frames.as_fd(), 0, (VALUE * workers).next_multiple_of(4096) as usize)?;
        let devices = bpf::create_map(MapKind::Devmap, 4, 1, 0)?;
        bpf::update_map(devices.as_fd(), 0, interface)?;
        Ok(Arc::new(Self { frames, interface: devices, memory }))
    }

    /// What the program does first: a frame that does not come from `interface` is one to send.
    pub fn branch(&self, a: &mut Assembler, interface: u32) -> Label {
        let send = a.label();
        a.load(Size::Word, Register::R2, CONTEXT, INGRESS);
        a.jump_if32(JumpCondition::NotEqual, Register::R2, interface, send);
        send
    }

    /// Everything after `send`.
    pub fn send(&self, a: &mut Assembler, send: Label) {
        use std::os::fd::AsRawFd;
        let drop = a.label();
        a.place(send);
        a.load(Size::Word, Register::R2, CONTEXT, META);
        a.register(Op::Mov, Register::R3, Register::R2);
        a.immediate(Op::Add, Register::R3, METADATA as i32);
        a.jump_if_register(JumpCondition::Above, Register::R3, BEGIN, drop);
        a.load(Size::Word, Register::R1, Register::R2, 0);
        a.store(Size::Word, Register::R10, -4, Register::R1);
        a.map(Register::R1, self.frames.as_raw_fd());
        a.register(Op::Mov, Register::R2, Register::R10);
        a.immediate(Op::Add, Register::R2, -4);
        a.call(Helper::MapLookup);
        a.jump_if(JumpCondition::Equal, Register::R0, 0, drop);
        let (value, slot, length) = (Register::R0, Register::R9, Register::R8);
        a.load(Size::Word, Register::R1, value, 0);
        a.register(Op::Mov, Register::R2, Register::R1);
        a.immediate32(Op::Add, Register::R2, 1);
        a.store(Size::Word, value, 0, Register::R2);
        a.load(Size::Word, Register::R3, value, 4);
        a.immediate32(Op::And, Register::R1, SLOTS - 1);
        a.immediate(Op::Mul, Register::R1, SLOT as i32);
        a.register(Op::Mov, slot, value);
        a.register(Op::Add, slot, Register::R1);
        a.load(Size::Word, length, slot, HEAD as i16);
        a.jump_if(JumpCondition::Equal, length, 0, drop);
        a.jump_if(JumpCondition::Above, length, LONGEST as i32, drop);
        a.register(Op::Mov, Register::R1, CONTEXT);
        a.register(Op::Mov, Register::R2, length);
        a.register(Op::Sub, Register::R2, Register::R3);
        a.call(Helper::XdpAdjustTail);
        a.jump_if(JumpCondition::NotEqual, Register::R0, 0, drop);
        a.register(Op::Mov, Register::R1, CONTEXT);
        a.immediate(Op::Mov, Register::R2, 0);
        a.register(Op::Mov, Register::R3, slot);
        a.immediate(Op::Add, Register::R3, (HEAD + FRAME) as i32);
        a.register(Op::Mov, Register::R4, length);
        a.call(Helper::XdpStoreBytes);
        a.jump_if(JumpCondition::NotEqual, Register::R0, 0, drop);
        a.map(Register::R1, self.interface.as_raw_fd());
        a.immediate(Op::Mov, Register::R2, 0);
        a.immediate(Op::Mov, Register::R3, 0);
        a.call(Helper::RedirectMap);
        a.exit();
        a.place(drop);
        a.end(DROP);
    }
}

/// How often the interface is asked whether its peer takes frames: while it does not, and while it does.
const LOOK_WHILE_SLOW: u64 = 200_000_000;
const LOOK_WHILE_LIVE: u64 = 1_000_000_000;
/// Flushes of nothing between two looks at the clock.
const IDLE: u32 = 1024;

/// What senders of live frames count.
#[derive(Debug, Default)]
pub(super) struct Counters {
    /// Frames that the kernel would not make.
    pub refused: AtomicU64,
    /// The way that is taken now.
    pub is_live: AtomicBool,
}

/// Frames to send by way of the program while the interface's peer takes them and there are some, and of the socket
/// otherwise.
#[derive(Debug)]
pub struct LiveFrameSender {
    socket: Sender,
    maps: Arc<Maps>,
    attachment: Arc<Attachment>,
    counters: Arc<Counters>,
    questions: Questions,
    interface: u32,
    /// Number of the worker, and of its map entry.
    worker: u32,
    /// Slots that hold a frame, and the longest of those.
    put: u32,
    longest: u32,
    burst: u32,
    /// The bytes that the kernel's frames begin with.
    blank: Box<[u8]>,
    is_live: bool,
    /// When the interface is asked again, CLOCK_MONOTONIC.
    next_look: u64,
    idle: u32,
}

impl LiveFrameSender {
    pub(super) fn new(
        socket: Sender,
        maps: Arc<Maps>,
        attachment: Arc<Attachment>,
        interface: u32,
        worker: u32,
        burst: u32,
    ) -> io::Result<Self> {
        let mut blank = vec![0; METADATA + LONGEST as usize].into_boxed_slice();
        blank[..METADATA].copy_from_slice(&worker.to_ne_bytes());
        let mut sender = Self {
            socket,
            maps,
            attachment,
            counters: Arc::default(),
            questions: Questions::open()?,
            interface,
            worker,
            put: 0,
            longest: 0,
            burst: burst.clamp(1, SLOTS),
            blank,
            is_live: false,
            next_look: 0,
            idle: 0,
        };
        sender.look();
        Ok(sender)
    }

    pub(super) fn counters(&self) -> Arc<Counters> {
        self.counters.clone()
    }

    /// Whether frames leave by way of the program now.
    pub fn is_live(&self) -> bool {
        self.is_live
    }

    fn word(&self, offset: u32) -> &AtomicU32 {
        let at = self.worker * VALUE + offset;
        // SAFETY: within the mapping, aligned, initialised, and accessed by this thread and by the program that it runs.
        unsafe { self.maps.memory.at(at as usize).cast::<AtomicU32>().as_ref() }
    }

    /// The bytes of the next frame, `length` of them, for the caller to fill. `None` when there is no room for it.
    #[inline]
    pub fn claim(&mut self, length: usize) -> Option<&mut [u8]> {
        if !self.is_live || length > LONGEST as usize {
            // Frames leave in the order in which they were claimed.
            if self.put > 0 {
                self.send();
            }
            return self.socket.claim(length);
        }
        if self.socket.has_claimed() {
            self.socket.flush();
        }
        if self.put == self.burst {
            self.send();
        }
        let offset = HEAD + self.put * SLOT;
        self.word(offset).store(length as u32, Ordering::Relaxed);
        self.put += 1;
        self.longest = self.longest.max(length as u32);
        let at = self.maps.memory.at((self.worker * VALUE + offset + FRAME) as usize);
        // SAFETY: a slot of this worker, which the kernel reads only during the system call in `run`, which needs this
        // value alone; it is in the mapping as a whole, and `length` is below its size.
        Some(unsafe { &mut *ptr::slice_from_raw_parts_mut(at.as_ptr(), length) })
    }

    /// Sends what was claimed.
    #[inline]
    pub fn flush(&mut self) {
        let sends = self.put > 0 || self.socket.has_claimed();
        self.socket.flush();
        if self.put > 0 {
            self.send();
        }
        self.idle = if sends { IDLE } else { self.idle + 1 };
        if self.idle < IDLE {
            return;
        }
        self.idle = 0;
        if clock::monotonic_ns() >= self.next_look {
            self.look();
        }
    }

    #[cold]
    fn look(&mut self) {
        let features = self.questions.features(self.interface).unwrap_or_default();
        self.is_live = features.takes_redirected();
        self.counters.is_live.store(self.is_live, Ordering::Relaxed);
        self.next_look = clock::monotonic_ns() + if self.is_live { LOOK_WHILE_LIVE } else { LOOK_WHILE_SLOW };
    }

    fn send(&mut self) {
        if self.put <= FEW && self.socket.has_room(self.put) { self.hand_over() } else { self.run() }
    }

    /// Sends by the socket.
    fn hand_over(&mut self) {
        for n in 0..self.put {
            let offset = HEAD + n * SLOT;
            let length = self.word(offset).load(Ordering::Relaxed) as usize;
            let frame = self.maps.memory.at((self.worker * VALUE + offset + FRAME) as usize);
            // SAFETY: `claim` lent these bytes of the mapping, within a slot of this worker; nothing writes to them before
            // the next `claim`, which needs this value alone.
            let frame = unsafe { &*ptr::slice_from_raw_parts(frame.as_ptr(), length) };
            if let Some(buffer) = self.socket.claim(length) {
                buffer.copy_from_slice(frame);
            }
        }
        self.socket.flush();
        (self.put, self.longest) = (0, 0);
    }

    fn run(&mut self) {
        // No shorter than an Ethernet header, below which the kernel makes none.
        let length = self.longest.max(14);
        self.word(0).store(0, Ordering::Relaxed);
        self.word(4).store(length, Ordering::Relaxed);
        let blank = &self.blank[..METADATA + length as usize];
        let mut done = 0;
        while done < self.put {
            let run = bpf::run_live(self.attachment.program(), blank, METADATA as u32, self.put - done);
            let now = self.word(0).load(Ordering::Relaxed);
            // A signal may cut a run short.
            if run.is_err() && now == done {
                self.counters.refused.fetch_add((self.put - done).into(), Ordering::Relaxed);
                break;
            }
            done = now;
        }
        (self.put, self.longest) = (0, 0);
    }
}
