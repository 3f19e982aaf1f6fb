//! Interfaces that are closed while no router takes their packets: a filter of tc that drops all that comes from the container.
//!
//! The router's own programs are tcx links, which the kernel asks before filters, and they end with every frame; so the filter
//! sees none while they are there. They go with the process that attached them, and filters stay. Before Linux 6.6 they are
//! filters themselves, with a lower preference: those of a router that was killed go on, by what it was told last.
//!
//! To attach a link the kernel waits for an RCU grace period (`tcx_entry_sync` of net/tcx.h), some 15 ms in which nobody else changes an
//! interface, and again to take it off; for a filter it does not. So interfaces that come while the router runs have the filter alone,
//! which leads to the router's program by an array. That is empty when nobody has it any more, neither a process nor a pin
//! (`prog_array_map_clear` of kernel/bpf/arraymap.c), and the filter drops then.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;

use rig_sys::netlink::Netlink;
use rig_sys::tc::{self, Hook, Owner};

use crate::Error;
use crate::object::program;

use super::control::Router;
use super::load::{CLOSED, FROM_CONTAINER};

/// The first to be asked of an interface behind the router's own.
const PREFERENCE: u16 = 2;

/// Filters of one node's router.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClosedFilters {
    /// By their handle alone they are known to be the router's own.
    owner: Owner,
    /// Interfaces that have one.
    closed: BTreeSet<u32>,
    /// Whether those that come are led to the router, and which ones are, which have no other program.
    leads: bool,
    led: BTreeSet<u32>,
}

impl ClosedFilters {
    fn of(node: &str) -> Self {
        let owner = Owner { name: CLOSED, handle: handle_of(node), preference: PREFERENCE };
        Self { owner, closed: BTreeSet::new(), leads: false, led: BTreeSet::new() }
    }

    /// Puts it on, also in place of one that is there.
    fn close(&mut self, program: BorrowedFd<'_>, interface: u32) -> Result<(), Error> {
        let put = tc::put_filter(program, interface, Hook::Ingress, &self.owner);
        put.map_err(|source| Error::Close { interface, source })?;
        self.closed.insert(interface);
        Ok(())
    }

    /// Takes it off; says whether it was there.
    fn open(&mut self, interface: u32) -> Result<bool, Error> {
        self.closed.remove(&interface);
        tc::remove_filter(interface, Hook::Ingress, &self.owner).map_err(|source| Error::Open { interface, source })
    }
}

/// FNV-1a of the name, with the upper bit, which none has that the kernel chooses.
fn handle_of(node: &str) -> u32 {
    const UPPER: u32 = 1 << 31;
    node.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)) | UPPER
}

/// Opens the interfaces of the calling thread's network namespace that a router of this node has [closed](Router::close_behind).
/// Their names.
///
/// # Errors
/// When one stays closed. All others are open.
pub fn open_all(node: &str) -> Result<Vec<String>, Error> {
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
        self.forget_left();
        self.closing.as_mut().map_or(Ok(()), |closing| closing.open(interface).map(drop))
    }

    /// Closes these interfaces, if so it shall be. All but the first are [led](Self::is_led) to the router by that.
    pub(super) fn close(&mut self, interfaces: &BTreeSet<u32>) -> Result<(), Error> {
        let Some(closing) = &mut self.closing else { return Ok(()) };
        closing.closed.retain(|interface| interfaces.contains(interface));
        closing.led.retain(|interface| interfaces.contains(interface));
        let closed = program(&self.object, CLOSED)?;
        if !closing.leads {
            let number = program(&self.object, FROM_CONTAINER)?.as_fd().as_raw_fd();
            self.tables.router_program.set(&0_u32, &number.to_ne_bytes())?;
        }
        let open: Vec<u32> = interfaces.difference(&closing.closed).copied().collect();
        let mut first = Ok(());
        for interface in open {
            let done = closing.close(closed.as_fd(), interface);
            if closing.leads && done.is_ok() {
                closing.led.insert(interface);
            }
            first = first.and(done);
        }
        closing.leads = true;
        first
    }

    /// Whether the filter leads an interface's packets to the router, and it has no other program.
    pub(super) fn is_led(&self, interface: u32) -> bool {
        self.closing.as_ref().is_some_and(|closing| closing.led.contains(&interface))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_has_a_handle_of_its_own() {
        // As its authors' tables have them.
        assert_eq!(handle_of("a"), 0xe40c_292c);
        assert_eq!(handle_of("foobar"), 0xbf9c_f968);
        assert_ne!(handle_of("node-1"), handle_of("node-2"));
        assert!(handle_of("") >= 1 << 31 && handle_of("b") >= 1 << 31);
    }
}
