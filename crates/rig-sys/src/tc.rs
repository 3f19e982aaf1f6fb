//! eBPF programs where the kernel takes packets in and where it sends them (tcx, Linux 6.6).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use crate::xdp::bpf;

/// Which packets of an interface a program gets (linux/bpf.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Hook {
    /// Those that it receives.
    Ingress = bpf::ATTACH_TCX_INGRESS,
    /// Those that it sends.
    Egress = bpf::ATTACH_TCX_EGRESS,
}

/// A program at an interface, for as long as this is open or pinned.
#[derive(Debug)]
pub struct Attached {
    link: OwnedFd,
    interface: u32,
}

impl Attached {
    /// Attaches a program of the kind `SCHED_CLS` behind those that are there, to an interface of the calling thread's
    /// network namespace.
    ///
    /// # Errors
    /// The kernel's: EINVAL where it has no tcx, ENODEV without such an interface.
    pub fn attach(program: BorrowedFd<'_>, interface: u32, hook: Hook) -> io::Result<Self> {
        let link = bpf::attach_tcx(program, interface, hook as u32)?;
        Ok(Self { link, interface })
    }

    /// The one that was [pinned](Self::pin) to `path`.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open(path: &Path, interface: u32) -> io::Result<Self> {
        Ok(Self { link: bpf::open_pinned(path)?, interface })
    }

    /// The kernel's number of the interface.
    pub fn interface(&self) -> u32 {
        self.interface
    }

    /// Puts another program in place of the one that is there, from one packet to the next.
    ///
    /// # Errors
    /// The kernel's: ENOLINK where the interface is gone.
    pub fn replace(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        bpf::update_link(self.link.as_fd(), program)
    }

    /// Keeps it at `path`, on a bpf file system, when this process has ended.
    ///
    /// # Errors
    /// The kernel's.
    pub fn pin(&self, path: &Path) -> io::Result<()> {
        bpf::pin(self.link.as_fd(), path)
    }
}
