//! An interface whose queues are taken over.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};

use super::assemble::{Assembler, Instruction};
use super::bpf::{self, Hook, MapKind};
use super::error::OpenError;
use super::filter::{self, Filter};
use super::kernel_is_before;
use super::link::{Link, all_multicast};
use super::live::{LiveFrameSender, Maps};
use super::socket::{self, Receiver, Sender, kernel};
use crate::error::Error;
use crate::ethtool;
use crate::napi;

/// Of Ethernet, with a tag.
const HEADER: usize = 18;
/// The kernel's own, which some drivers return (linux/errno.h).
const ENOTSUPP: i32 = 524;

/// Where the program that steers frames may stand.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mode {
    /// In the driver, and where the driver has no place for it, in the kernel's generic hook.
    #[default]
    Any,
    Driver,
    Generic,
}

/// By which way frames leave.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SendPath {
    /// Without socket buffers where the interface is a veth that allows it, otherwise by the socket. Where threads process
    /// what it receives, as they then probably do at its peer, it is the socket: frames that are still on their way when the
    /// system call ends keep a pool of pages each for a second.
    #[default]
    Any,
    Socket,
}

/// How a port is opened.
#[derive(Debug, Clone, Default)]
pub struct Options {
    pub mode: Mode,
    pub sending: SendPath,
    pub filter: Filter,
    /// Bytes of the largest frame, without frame check sequence.
    pub frame: usize,
    /// Frames that are sent together at most.
    pub burst: u32,
    /// Frames are copied even where the driver could do without.
    pub copy: bool,
    /// The receiving thread drives the driver, so many frames at a time.
    pub busy_poll: Option<u16>,
}

/// One queue, and the CPU that the thread that will use it stays on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueCpu {
    pub queue: u32,
    pub cpu: Option<u32>,
}

/// The program at the interface. It goes when this does, even if the process crashes.
#[derive(Debug)]
pub(super) struct Attachment {
    link: OnceLock<OwnedFd>,
    program: OwnedFd,
    sockets: OwnedFd,
    /// Questions of neighbor discovery are multicast (RFC 4861): this lets them through the interface's own filter.
    _multicast: Option<OwnedFd>,
}

impl Attachment {
    pub fn program(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }
}

/// An open port.
#[derive(Debug)]
pub struct Port {
    /// In the order in which they were asked for.
    pub queues: Vec<Queue>,
    pub mac: [u8; 6],
    /// Whether the program is in the kernel's generic hook.
    pub is_generic: bool,
    /// By which way frames go, and why not by a better one: sentences for the user.
    pub notes: Vec<String>,
}

/// Both directions of a queue.
#[derive(Debug)]
pub struct Queue {
    pub receiver: Receiver,
    pub transmitter: Transmitter,
}

/// By which way frames leave.
#[derive(Debug)]
pub enum Transmitter {
    Socket(Sender),
    Live(Box<LiveFrameSender>),
}

impl Port {
    /// Whether frames leave without socket buffers now.
    pub fn is_live(&self) -> bool {
        let live = |queue: &Queue| matches!(&queue.transmitter, Transmitter::Live(sender) if sender.is_live());
        !self.queues.is_empty() && self.queues.iter().all(live)
    }

    /// Takes queues of `interface`, which is one of the calling thread's network namespace.
    pub fn open(interface: &str, places: &[QueueCpu], options: &Options) -> Result<Self, OpenError> {
        let link = Link::read(interface)?;
        // Refusals that say more than the kernel's would.
        if let Some(place) = places.iter().find(|place| place.queue >= link.queues) {
            return Err(link.no_queue(place.queue));
        }
        if link.program.is_some() {
            return Err(link.occupied());
        }
        socket::buffer_for(options.frame)?;
        match open_any(&link, places, options) {
            // The MTU of the interface or of its peer is beyond a page: programs that know frames of several buffers are taken, however short those
            // are that the port is for.
            Err(OpenError::Mtu { .. }) if !kernel_is_before(6, 6) => {
                let frame = options.frame.max(link.mtu as usize + HEADER).max(socket::BEYOND_A_PAGE);
                open_any(&link, places, &Options { frame, ..options.clone() })
            }
            done => done,
        }
    }
}

fn open_any(link: &Link, places: &[QueueCpu], options: &Options) -> Result<Port, OpenError> {
    match options.mode {
        Mode::Driver => open_in(link, places, options, Hook::Driver),
        Mode::Generic => open_in(link, places, options, Hook::Generic),
        Mode::Any => match open_in(link, places, options, Hook::Driver) {
            Err(OpenError::NoDriverSupport { .. } | OpenError::NoSpareQueues { .. }) => {
                open_in(link, places, options, Hook::Generic)
            }
            done => done,
        },
    }
}

fn open_in(link: &Link, places: &[QueueCpu], options: &Options, hook: Hook) -> Result<Port, OpenError> {
    let is_generic = hook == Hook::Generic;
    let mut notes = Vec::new();
    if is_generic {
        notes.push(format!(
            "{}: XDP in the kernel's generic hook, which is slow: each frame is a socket buffer first",
            link.name
        ));
    }
    let entries = places.iter().map(|place| place.queue + 1).max().unwrap_or(1);
    let sockets = bpf::create_map(MapKind::Xskmap, 4, entries, 0).map_err(|e| refused("make an XSKMAP", e))?;
    let mut maps = None;
    if link.is_veth && !is_generic && options.sending == SendPath::Any && !napi::is_threaded(&link.name) {
        match live_maps(link, places) {
            Ok(made) => maps = Some(made),
            Err(why) => {
                notes.push(format!("{}: each frame leaves as a socket buffer, which is slow: {why}", link.name))
            }
        }
    }
    let flags = if socket::buffer_for(options.frame)?.1 > 1 { bpf::HAS_FRAGS } else { 0 };
    let load = |maps| bpf::load_program(&program(&options.filter, &sockets, maps, link.index), flags);
    let program = load(maps.as_deref()).map_err(|e| refused("load an XDP program", e))?;
    let multicast = if options.filter.is_multicast() { Some(all_multicast(&link.name)?) } else { None };
    let attachment = Arc::new(Attachment { link: OnceLock::new(), program, sockets, _multicast: multicast });
    let options = Options { copy: options.copy || is_generic, ..options.clone() };
    let mut opened = Vec::with_capacity(places.len());
    for place in places {
        let (receiver, sender) = socket::open(link, place.queue, &options, &attachment)?;
        bpf::update_map(attachment.sockets.as_fd(), place.queue, receiver.descriptor().as_raw_fd() as u32)
            .map_err(|e| refused("put an AF_XDP socket into a map", e))?;
        opened.push((receiver, sender));
    }
    let attached = bpf::attach(attachment.program(), link.index, hook).map_err(|e| not_attached(link, e))?;
    let _ = attachment.link.set(attached);

    let mut queues = Vec::with_capacity(opened.len());
    for (worker, (receiver, sender)) in (0..).zip(opened) {
        let transmitter = match &maps {
            None => Transmitter::Socket(sender),
            Some(maps) => {
                let live =
                    LiveFrameSender::new(sender, maps.clone(), attachment.clone(), link.index, worker, options.burst);
                let live = live.map_err(|e| refused("ask what the interface can do", e))?;
                Transmitter::Live(Box::new(live))
            }
        };
        queues.push(Queue { receiver, transmitter });
    }
    notes.extend(unread(link, places));
    notes.extend(way(link, &queues));
    Ok(Port { queues, mac: link.mac, is_generic, notes })
}

/// What a program that sends needs, or why it would not do.
fn live_maps(link: &Link, places: &[QueueCpu]) -> Result<Arc<Maps>, String> {
    // A veth peer takes redirected frames into the queue that has the number of the CPU, modulo its queues.
    let elsewhere = |place: &&QueueCpu| place.cpu.map(|cpu| cpu % link.queues) != Some(place.queue);
    if let Some(place) = places.iter().find(elsewhere).filter(|_| link.queues > 1) {
        return Err(format!(
            "the worker of queue {} would have to stay on a CPU whose number is that of the queue modulo {}, the number \
             of queues",
            place.queue, link.queues
        ));
    }
    // Before, veth interfaces tell of themselves what is true of their peers.
    if kernel_is_before(6, 7) {
        return Err("to send without needs Linux 6.7".to_owned());
    }
    Maps::new(link.index, places.len() as u32).map_err(|error| format!("make a map of frames: {error}"))
}

/// Queues that nothing reads here. Some drivers switch more on with a program, so the driver is asked when it has that.
fn unread(link: &Link, places: &[QueueCpu]) -> Option<String> {
    let (name, read) = (&link.name, places.len() as u32);
    // A frame comes to the queue of a veth interface that it was sent by at its peer.
    let queues = ethtool::queues(name).map_or(link.queues, |(receive, _)| receive);
    (read < queues && !link.is_veth).then(|| {
        let are = if read == 1 { "is" } else { "are" };
        format!(
            "{name}: {read} of its {queues} receive queues {are} read here, and what comes by the others goes to the kernel: \
             `ethtool -L {name} combined {read}` leaves no others"
        )
    })
}

fn way(link: &Link, queues: &[Queue]) -> Option<String> {
    let name = &link.name;
    match queues.first() {
        Some(Queue { transmitter: Transmitter::Live(live), .. }) if !live.is_live() => Some(format!(
            "{name}: each frame leaves as a socket buffer, which is slow, until the peer of {name} receives by NAPI: with \
             an XDP program, or with generic receive offload (`ethtool -K PEER gro on`)"
        )),
        Some(Queue { transmitter: Transmitter::Live(_), .. }) => {
            Some(format!("{name}: AF_XDP in the driver; frames leave without socket buffers"))
        }
        Some(queue) if queue.receiver.is_zero_copy() => Some(format!("{name}: AF_XDP without copying")),
        _ => None,
    }
}

fn program(filter: &Filter, sockets: &OwnedFd, maps: Option<&Maps>, interface: u32) -> Vec<Instruction> {
    let mut a = Assembler::default();
    filter::begin(&mut a);
    let send = maps.map(|maps| (maps, maps.branch(&mut a, interface)));
    filter.steer(&mut a, sockets.as_fd());
    if let Some((maps, label)) = send {
        maps.send(&mut a, label);
    }
    a.finish()
}

fn refused(operation: &str, error: io::Error) -> OpenError {
    match error.raw_os_error() {
        Some(libc::EPERM) => OpenError::NotPermitted { operation: format!("to {operation}") },
        Some(libc::ENOSYS) => kernel("XDP needs a kernel with bpf(2)"),
        _ => Error::new(operation, error).into(),
    }
}

fn not_attached(link: &Link, error: io::Error) -> OpenError {
    let interface = link.name.clone();
    match error.raw_os_error() {
        Some(libc::EBUSY | libc::EEXIST) => Link::read(&interface).unwrap_or_else(|_| link.clone()).occupied(),
        Some(libc::EOPNOTSUPP) => OpenError::NoDriverSupport { interface },
        Some(libc::ERANGE) => OpenError::Mtu { interface, mtu: link.mtu },
        Some(libc::ENOSPC) => OpenError::Queues { interface },
        Some(libc::ENOMEM) => OpenError::NoSpareQueues { interface },
        // What drivers say whose programs see frames of one buffer alone, each in its own words.
        Some(libc::EINVAL | libc::E2BIG | ENOTSUPP) if link.mtu > 1500 => OpenError::Mtu { interface, mtu: link.mtu },
        Some(libc::EPERM) => OpenError::NotPermitted { operation: format!("attaching an XDP program to {interface}") },
        // The command, or the kind of link, is not known.
        Some(libc::EINVAL) if kernel_is_before(5, 9) => {
            kernel("XDP programs that go with their process need Linux 5.9")
        }
        _ => Error::new(format!("attach an XDP program to {interface}"), error).into(),
    }
}
