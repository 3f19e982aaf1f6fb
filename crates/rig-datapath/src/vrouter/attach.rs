//! The programs on interfaces.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use libbpf_rs::Object;
use rig_sys::tc::{Attached, Hook, Owner};

use crate::Error;
use crate::object::program;

use super::control::Router;
use super::keep::Links;
use super::load::{FROM_CONTAINER, FROM_UNDERLAY, TO_ANALYSER};

/// Its programs, where they are filters: before the one that [closes](super::closed) interfaces.
pub(super) const OWNER: Owner = Owner { name: "netrig vrouter", handle: 0x6e74_0001, preference: 1 };

impl Router {
    /// Attaches the programs to the interfaces of the configuration, which are of the calling thread's network namespace, and
    /// takes them off those that are of it no more. Dropping the router takes them off, too, unless it is
    /// [kept](Self::keep).
    ///
    /// # Errors
    /// Names the first interface that they cannot be attached to. All others have them.
    pub fn attach(&mut self) -> Result<(), Error> {
        let containers: BTreeSet<u32> = self.known.interfaces.values().map(|interface| interface.ifindex).collect();
        // Before the programs, so that an interface is never without one of both.
        let closed = self.close(&containers);
        let links = self.links.as_ref();
        let path = |hook| move |interface| links.map(|links: &Links| links.of(interface, hook));
        let ingress = path(Hook::Ingress);
        // The programs that take copies before those that make them.
        let copied = if self.known.analysers.is_empty() { BTreeSet::new() } else { containers.clone() };
        let held = hold(&self.object, (TO_ANALYSER, Hook::Egress), &mut self.mirrors, &copied, path(Hook::Egress));
        for (number, analyser) in &self.known.analysers {
            self.tables.analysers.set(&u32::from(*number), analyser)?;
        }
        // To take a program off the kernel waits as long as to attach it. Closed interfaces are closed by it, too: it drops what is of no
        // interface that it knows.
        if self.closing.is_some() {
            let left: Vec<u32> =
                self.containers.keys().filter(|interface| !containers.contains(interface)).copied().collect();
            self.left_behind.extend(left.iter().filter_map(|interface| self.containers.remove(interface)));
        }
        let own: BTreeSet<u32> = containers.iter().copied().filter(|interface| !self.is_led(*interface)).collect();
        let container = (FROM_CONTAINER, Hook::Ingress);
        let held = held.and(hold(&self.object, container, &mut self.containers, &own, ingress));
        let underlay = (FROM_UNDERLAY, Hook::Ingress);
        let held =
            closed.and(held).and(hold(&self.object, underlay, &mut self.underlay, &self.known.underlay, ingress));
        if let Some(links) = links {
            let ingress = own.iter().chain(&self.known.underlay).map(|interface| (*interface, Hook::Ingress));
            links.remove_but(ingress.chain(copied.iter().map(|interface| (*interface, Hook::Egress))))?;
        }
        held
    }

    /// Takes programs off interfaces that are the configuration's no more, which have dropped all packets since: each takes the kernel some
    /// milliseconds, but of devices that are gone.
    pub fn forget_left(&mut self) {
        self.left_behind.drain(..).for_each(Attached::take_off);
    }
}

/// Has a program on these interfaces and no others. `kept` says where links are.
fn hold(
    object: &Object,
    (name, hook): (&'static str, Hook),
    held: &mut BTreeMap<u32, Attached>,
    wanted: &BTreeSet<u32>,
    kept: impl Fn(u32) -> Option<PathBuf>,
) -> Result<(), Error> {
    let gone: Vec<u32> = held.keys().filter(|interface| !wanted.contains(interface)).copied().collect();
    gone.iter().filter_map(|interface| held.remove(interface)).for_each(Attached::take_off);
    let program = program(object, name)?;
    let mut first = Ok(());
    for interface in wanted {
        if held.contains_key(interface) {
            continue;
        }
        let path = kept(*interface);
        let attached = match path.as_deref().and_then(|path| gone_on_with(&program, path)) {
            Some(attached) => Ok(attached),
            None => attach(&program, *interface, hook, path.as_deref()),
        };
        match attached {
            Ok(attached) => drop(held.insert(*interface, attached)),
            Err(error) => first = first.and(Err(error)),
        }
    }
    first
}

/// The link that another router has left on an interface, which leads to this program now.
fn gone_on_with(program: &impl AsFd, path: &Path) -> Option<Attached> {
    let left = Attached::open(path).ok()?;
    // An interface that went took its program with it, though the link is there; then another is made.
    left.replace(program.as_fd()).ok().map(|()| left)
}

fn attach(program: &impl AsFd, interface: u32, hook: Hook, path: Option<&Path>) -> Result<Attached, Error> {
    let reason = || "is there such an interface?".to_owned();
    let refused = |source| Error::Attach { interface, reason: reason(), source };
    let mut attached =
        Attached::attach(program.as_fd(), interface, hook, &OWNER).map_err(|error| refused(error.into()))?;
    if let Some(path) = path {
        let _none = fs::remove_file(path);
        attached.pin(path).map_err(|error| refused(error.into()))?;
    }
    Ok(attached)
}
