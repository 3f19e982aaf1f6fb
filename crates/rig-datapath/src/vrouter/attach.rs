//! The programs on interfaces.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::fd::AsFd;

use libbpf_rs::Object;
use rig_sys::tc::Ingress;

use crate::Error;
use crate::object::program;

use super::control::Router;
use super::keep::Links;
use super::load::{FROM_CONTAINER, FROM_UNDERLAY};

impl Router {
    /// Attaches the programs to the interfaces of the configuration, which are of the calling thread's network namespace, and
    /// takes them off those that are of it no more. Dropping the router takes them off, too, unless it is
    /// [kept](Self::keep).
    ///
    /// # Errors
    /// Names the first interface that they cannot be attached to. All others have them.
    pub fn attach(&mut self) -> Result<(), Error> {
        let containers = self.known.interfaces.values().map(|interface| interface.ifindex).collect();
        let links = self.links.as_ref();
        let held = hold(&self.object, FROM_CONTAINER, &mut self.containers, &containers, links);
        let held = held.and(hold(&self.object, FROM_UNDERLAY, &mut self.underlay, &self.known.underlay, links));
        if let Some(links) = links {
            links.remove_but(containers.iter().chain(&self.known.underlay).copied())?;
        }
        held
    }
}

/// Has a program on these interfaces and no others.
fn hold(
    object: &Object,
    name: &'static str,
    held: &mut BTreeMap<u32, Ingress>,
    wanted: &BTreeSet<u32>,
    links: Option<&Links>,
) -> Result<(), Error> {
    held.retain(|interface, _| wanted.contains(interface));
    let program = program(object, name)?;
    let mut first = Ok(());
    for interface in wanted {
        if held.contains_key(interface) {
            continue;
        }
        let attached = match links.and_then(|links| gone_on_with(&program, *interface, links)) {
            Some(attached) => Ok(attached),
            None => attach(&program, *interface, links),
        };
        match attached {
            Ok(attached) => drop(held.insert(*interface, attached)),
            Err(error) => first = first.and(Err(error)),
        }
    }
    first
}

/// The link that another router has left on an interface, which leads to this program now.
fn gone_on_with(program: &impl AsFd, interface: u32, links: &Links) -> Option<Ingress> {
    let left = Ingress::open(&links.of(interface), interface).ok()?;
    // An interface that went took its program with it, though the link is there; then another is made.
    left.replace(program.as_fd()).ok().map(|()| left)
}

fn attach(program: &impl AsFd, interface: u32, links: Option<&Links>) -> Result<Ingress, Error> {
    let reason = || "is there such an interface, and is this Linux 6.6 or later?".to_owned();
    let refused = |source| Error::Attach { interface, reason: reason(), source };
    let attached = Ingress::attach(program.as_fd(), interface).map_err(|error| refused(error.into()))?;
    if let Some(path) = links.map(|links| links.of(interface)) {
        let _none = fs::remove_file(&path);
        attached.pin(&path).map_err(|error| refused(error.into()))?;
    }
    Ok(attached)
}
