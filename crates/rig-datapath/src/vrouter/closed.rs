//! Interfaces that are closed while no router takes their packets: a filter of tc that drops all that comes from the container.
//!
//! The router's own programs are tcx links, which the kernel asks before filters, and they end with every frame; so the filter
//! sees none while they are there. They go with the process that attached them, and filters stay. Before Linux 6.6 they are
//! filters themselves, with a lower preference: those of a router that was killed go on, by what it was told last.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use libbpf_rs::{ErrorKind, TC_INGRESS, TcHook, TcHookBuilder};
use rig_sys::netlink::Netlink;

use crate::Error;
use crate::libbpf_log;
use crate::object::program;

use super::control::Router;
use super::load::CLOSED;

/// The first to be asked of an interface behind the router's own.
const PREFERENCE: u32 = 2;

/// Filters of one node's router: by their handle alone they are known to be its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClosedFilters {
    handle: u32,
    /// Interfaces that have one.
    closed: BTreeSet<u32>,
}

impl ClosedFilters {
    fn of(node: &str) -> Self {
        Self { handle: handle_of(node), closed: BTreeSet::new() }
    }

    /// Of a filter on an interface; the program matters where one is put there.
    fn hook(&self, program: BorrowedFd<'_>, interface: u32, is_our_qdisc: bool) -> TcHook {
        let mut builder = TcHookBuilder::new(program);
        let handle = if is_our_qdisc { self.handle | OUR_QDISC } else { self.handle };
        builder.ifindex(interface as i32).replace(true).handle(handle).priority(PREFERENCE);
        builder.hook(TC_INGRESS)
    }

    /// Puts it on, also in place of one that is there.
    fn close(&mut self, program: BorrowedFd<'_>, interface: u32) -> Result<(), Error> {
        let is_there = self.hook(program, interface, true).query().is_ok();
        let failed = |source| Error::Close { interface, source };
        let is_our_qdisc = is_there
            || Netlink::here()
                .and_then(|mut netlink| netlink.add_clsact(interface))
                .map_err(|error| failed(io::Error::other(error).into()))?;
        let mut hook = self.hook(program, interface, is_our_qdisc);
        if let Err(source) = libbpf_log::with(|| hook.attach()) {
            if is_our_qdisc {
                remove_empty_qdisc(interface);
            }
            return Err(failed(source));
        }
        self.closed.insert(interface);
        Ok(())
    }

    /// Takes it off; says whether it was there.
    fn open(&mut self, interface: u32) -> Result<bool, Error> {
        self.closed.remove(&interface);
        let is_open = [true, false].map(|is_our_qdisc| self.take_off(interface, is_our_qdisc));
        let [ours, other] = is_open;
        Ok(ours? | other?)
    }

    fn take_off(&self, interface: u32, is_our_qdisc: bool) -> Result<bool, Error> {
        // Any file does: none is put on.
        let none = io::stderr();
        let mut hook = self.hook(none.as_fd(), interface, is_our_qdisc);
        let failed = |source| Error::Open { interface, source };
        match hook.query() {
            Ok(_) => {
                libbpf_log::with(|| hook.detach()).map_err(failed)?;
                if is_our_qdisc {
                    remove_empty_qdisc(interface);
                }
                Ok(true)
            }
            // None by the handle, another kind of filter in its place, or no queueing discipline for filters.
            Err(error) if [ErrorKind::NotFound, ErrorKind::InvalidInput].contains(&error.kind()) => Ok(false),
            Err(_) if Netlink::here().is_ok_and(|netlink| netlink.link_at(interface).is_err()) => Ok(false),
            Err(error) => Err(failed(error)),
        }
    }
}

/// What the filter needed, unless others have filters there by now. One that stays does no harm.
fn remove_empty_qdisc(interface: u32) {
    let _ = Netlink::here().and_then(|mut netlink| netlink.remove_empty_clsact(interface));
}

/// Of a filter's handle: the queueing discipline that it is in was made for it.
const OUR_QDISC: u32 = 1 << 30;

/// FNV-1a of the name, without [`OUR_QDISC`]. With the upper bit, which none has that the kernel chooses.
fn handle_of(node: &str) -> u32 {
    const UPPER: u32 = 1 << 31;
    let hash = node.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    (hash | UPPER) & !OUR_QDISC
}

/// Opens the interfaces of the calling thread's network namespace that a router of this node has [closed](Router::close_behind).
/// Their names.
///
/// # Errors
/// When one stays closed. All others are open.
pub fn open_all(node: &str) -> Result<Vec<String>, Error> {
    libbpf_log::listen();
    let mut closing = ClosedFilters::of(node);
    let path = Path::new("/proc/thread-self/net/dev");
    let failed = |source: io::Error| Error::Interfaces { source };
    let text = fs::read_to_string(path).map_err(failed)?;
    let netlink = Netlink::here().map_err(|error| failed(io::Error::other(error)))?;
    let (mut opened, mut first) = (Vec::new(), Ok(()));
    for name in text.lines().filter_map(|line| Some(line.split_once(':')?.0.trim())) {
        // One that is gone since is not closed.
        let Ok(link) = netlink.link(name) else { continue };
        match closing.open(link.index) {
            Ok(true) => opened.push(name.to_owned()),
            Ok(false) => {}
            Err(error) => first = first.and(Err(error)),
        }
    }
    first.map(|()| opened)
}

impl Router {
    /// From the next [`attach`](Self::attach) on containers' interfaces are closed before the programs are put on them, and
    /// stay so even if this process dies, until they are [given back](Self::give_back), or [all](open_all) of the node's are.
    pub fn close_behind(&mut self, node: &str) {
        self.closing = Some(ClosedFilters::of(node));
    }

    /// Gives an interface back that was closed. It must not be of the configuration any more, whose interfaces are closed again.
    ///
    /// # Errors
    /// The kernel's.
    pub fn give_back(&mut self, interface: u32) -> Result<(), Error> {
        self.closing.as_mut().map_or(Ok(()), |closing| closing.open(interface).map(drop))
    }

    /// Closes these interfaces, if so it shall be.
    pub(super) fn close(&mut self, interfaces: &BTreeSet<u32>) -> Result<(), Error> {
        let Some(closing) = &mut self.closing else { return Ok(()) };
        closing.closed.retain(|interface| interfaces.contains(interface));
        let program = program(&self.object, CLOSED)?;
        let open: Vec<u32> = interfaces.difference(&closing.closed).copied().collect();
        let mut first = Ok(());
        for interface in open {
            first = first.and(closing.close(program.as_fd(), interface));
        }
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_has_a_handle_of_its_own() {
        // As its authors' tables have them.
        assert_eq!(handle_of("a"), 0xe40c_292c & !OUR_QDISC);
        assert_eq!(handle_of("foobar"), 0xbf9c_f968);
        assert_ne!(handle_of("node-1"), handle_of("node-2"));
        assert!(handle_of("") >= 1 << 31 && handle_of("b") >= 1 << 31);
    }
}
