//! An interface whose queues are taken over.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use super::bpf::{self, Hook, MapKind};
use super::error::OpenError;
use super::filter::Filter;
use super::link::Link;
use super::socket::{self, Receiver, Sender, kernel};
use crate::error::Error;

/// Where the program that steers frames may stand.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mode {
    /// In the driver, and where the driver has no place for it, in the kernel's generic hook.
    #[default]
    Any,
    Driver,
    Generic,
}

/// How a port is opened.
#[derive(Debug, Clone, Default)]
pub struct Options {
    pub mode: Mode,
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

/// The program at the interface. It goes when this does, in whatever way the process ends.
#[derive(Debug)]
pub(super) struct Attachment {
    _link: std::sync::OnceLock<OwnedFd>,
    _program: OwnedFd,
    sockets: OwnedFd,
}

/// An open port.
#[derive(Debug)]
pub struct Port {
    /// One for each queue, in the order in which they were asked for.
    pub queues: Vec<(Receiver, Sender)>,
    pub mac: [u8; 6],
    /// The program stands in the kernel's generic hook.
    pub is_generic: bool,
}

impl Port {
    /// Takes `queues` of `interface`, which is one of the calling thread's network namespace.
    pub fn open(interface: &str, queues: &[u32], options: &Options) -> Result<Self, OpenError> {
        let link = Link::read(interface)?;
        // A refusal that says more than the kernel's would.
        if let Some(&queue) = queues.iter().find(|&&queue| queue >= link.queues.max(1)) {
            return Err(OpenError::NoQueue { interface: link.name.clone(), queue, advice: link.queues_in_words() });
        }
        if link.program.is_some() {
            return Err(link.occupied());
        }
        let modes: &[Mode] = match options.mode {
            Mode::Any => &[Mode::Driver, Mode::Generic],
            Mode::Driver => &[Mode::Driver],
            Mode::Generic => &[Mode::Generic],
        };
        let mut last = None;
        for &mode in modes {
            match Self::open_in(&link, queues, options, mode) {
                Err(error @ OpenError::NoDriverSupport { .. }) => last = Some(error),
                done => return done,
            }
        }
        Err(last.unwrap_or_else(|| OpenError::NoDriverSupport { interface: link.name.clone() }))
    }

    fn open_in(link: &Link, queues: &[u32], options: &Options, mode: Mode) -> Result<Self, OpenError> {
        let is_generic = mode == Mode::Generic;
        let entries = queues.iter().max().map_or(1, |last| last + 1);
        let sockets = bpf::create_map(MapKind::Xskmap, 4, entries, 0).map_err(|e| refused("make an XSKMAP", e))?;
        let program = bpf::load_program(&options.filter.program(sockets.as_fd()));
        let program = program.map_err(|e| refused("load an XDP program", e))?;
        let attachment = Arc::new(Attachment { _link: std::sync::OnceLock::new(), _program: program, sockets });
        let options = Options { copy: options.copy || is_generic, ..options.clone() };
        let mut opened = Vec::with_capacity(queues.len());
        for &queue in queues {
            let (receiver, sender) = socket::open(link, queue, &options, &attachment)?;
            bpf::update_map(attachment.sockets.as_fd(), queue, receiver.descriptor().as_raw_fd() as u32)
                .map_err(|e| refused("put an AF_XDP socket into a map", e))?;
            opened.push((receiver, sender));
        }
        let hook = if is_generic { Hook::Generic } else { Hook::Driver };
        let attached = bpf::attach(attachment._program.as_fd(), link.index, hook).map_err(|e| not_attached(link, e))?;
        let _ = attachment._link.set(attached);
        Ok(Self { queues: opened, mac: link.mac, is_generic })
    }
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
        Some(libc::EPERM) => OpenError::NotPermitted { operation: format!("attaching an XDP program to {interface}") },
        // The command, or the kind of link, is not known.
        Some(libc::EINVAL) if is_before_links() => kernel("XDP programs that go with their process need Linux 5.9"),
        _ => Error::new(format!("attach an XDP program to {interface}"), error).into(),
    }
}

fn is_before_links() -> bool {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    (numbers.next(), numbers.next()) < (Some(5), Some(9))
}
