//! eBPF programs where the kernel takes packets in and where it sends them: tcx links, which Linux has since 6.6, and filters of
//! tc in `clsact` before.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use crate::netlink::{BpfFilter, Netlink};
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

/// Whose programs, where they are filters: another one of its own takes its place, and those with a lower preference are asked before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// As tc shows it.
    pub name: &'static str,
    pub handle: u32,
    pub preference: u16,
}

impl Owner {
    fn filter(&self, interface: u32, hook: Hook) -> BpfFilter {
        BpfFilter { interface, egress: hook == Hook::Egress, handle: self.handle, preference: self.preference }
    }
}

/// A program at an interface, for as long as this is open or pinned. A filter stays, too, when the process is killed.
#[derive(Debug)]
pub struct Attached(Mechanism);

#[derive(Debug)]
enum Mechanism {
    Link(OwnedFd),
    Filter(Filter),
}

#[derive(Debug)]
struct Filter {
    /// In the interface's network namespace.
    netlink: Netlink,
    filter: BpfFilter,
    program: OwnedFd,
    is_kept: bool,
}

impl Filter {
    fn put(program: BorrowedFd<'_>, filter: BpfFilter, name: &str) -> io::Result<Self> {
        let mut netlink = Netlink::here().map_err(|error| error.source)?;
        let program = program.try_clone_to_owned()?;
        netlink.add_clsact(filter.interface).map_err(|error| error.source)?;
        netlink.put_filter(&filter, program.as_fd(), name).map_err(|error| error.source)?;
        Ok(Self { netlink, filter, program, is_kept: false })
    }
}

impl Drop for Filter {
    fn drop(&mut self) {
        if !self.is_kept {
            // The interface may be gone, and the filter with it.
            let _ = self.netlink.remove_filter(&self.filter);
        }
    }
}

/// Puts a program of the kind `SCHED_CLS` on an interface of the calling thread's network namespace as a filter, on each kernel, or in
/// place of its owner's that is there. It stays until it is [removed](remove_filter).
///
/// The queueing discipline that it needs, `clsact`, stays when it goes: the kernel removes that with all filters that are in it by
/// then, and another program may put one there at any moment.
///
/// # Errors
/// The kernel's: ENODEV without such an interface, EINVAL where another kind of filter has the preference.
pub fn put_filter(program: BorrowedFd<'_>, interface: u32, hook: Hook, owner: &Owner) -> io::Result<()> {
    let mut filter = Filter::put(program, owner.filter(interface, hook), owner.name)?;
    filter.is_kept = true;
    Ok(())
}

/// Takes an owner's filter off an interface of the calling thread's network namespace; says whether there was one.
///
/// # Errors
/// The kernel's.
pub fn remove_filter(interface: u32, hook: Hook, owner: &Owner) -> io::Result<bool> {
    let removed = Netlink::here().and_then(|mut netlink| netlink.remove_filter(&owner.filter(interface, hook)));
    removed.map_err(|error| error.source)
}

impl Attached {
    /// Attaches a program of the kind `SCHED_CLS` behind those that are there, to an interface of the calling thread's
    /// network namespace.
    ///
    /// # Errors
    /// The kernel's: ENODEV without such an interface.
    pub fn attach(program: BorrowedFd<'_>, interface: u32, hook: Hook, owner: &Owner) -> io::Result<Self> {
        let mechanism = match bpf::attach_tcx(program, interface, hook as u32) {
            // It has no tcx.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                Mechanism::Filter(Filter::put(program, owner.filter(interface, hook), owner.name)?)
            }
            link => Mechanism::Link(link?),
        };
        Ok(Self(mechanism))
    }

    /// The link that was [pinned](Self::pin) to `path`.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(Mechanism::Link(bpf::open_pinned(path)?)))
    }

    /// Puts another program in place of the one that is there, from one packet to the next.
    ///
    /// # Errors
    /// The kernel's: ENOLINK where the interface is gone, EINVAL where what was [opened](Self::open) is a filter's, which
    /// [another](Self::attach) of its owner replaces.
    pub fn replace(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        match &self.0 {
            Mechanism::Link(link) => bpf::update_link(link.as_fd(), program),
            Mechanism::Filter(_) => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// Keeps it when this process has ended: at `path`, on a bpf file system, whose file says of a filter that it is there.
    ///
    /// # Errors
    /// The kernel's.
    pub fn pin(&mut self, path: &Path) -> io::Result<()> {
        match &mut self.0 {
            Mechanism::Link(link) => bpf::pin(link.as_fd(), path),
            Mechanism::Filter(filter) => {
                bpf::pin(filter.program.as_fd(), path)?;
                filter.is_kept = true;
                Ok(())
            }
        }
    }

    /// Takes it off, kept or not; the file of one that is kept is the caller's to remove.
    pub fn take_off(mut self) {
        if let Mechanism::Filter(filter) = &mut self.0 {
            filter.is_kept = false;
        }
    }
}
