//! The programs on interfaces.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd;

use libbpf_rs::Object;
use rig_sys::tc::Ingress;

use crate::Error;
use crate::object::program;

use super::control::Router;
use super::load::{FROM_CONTAINER, FROM_UNDERLAY};

impl Router {
    /// Attaches the programs to the interfaces of the configuration, which are of the calling thread's network namespace, and
    /// takes them off those that are of it no more. Dropping the router takes them off, too.
    ///
    /// # Errors
    /// Names the first interface that they cannot be attached to. Those before it have them.
    pub fn attach(&mut self) -> Result<(), Error> {
        let containers = self.known.interfaces.values().map(|interface| interface.ifindex).collect();
        hold(&self.object, FROM_CONTAINER, &mut self.containers, &containers)?;
        hold(&self.object, FROM_UNDERLAY, &mut self.underlay, &self.known.underlay)
    }
}

/// Has a program on these interfaces and no others.
fn hold(
    object: &Object,
    name: &'static str,
    held: &mut BTreeMap<u32, Ingress>,
    wanted: &BTreeSet<u32>,
) -> Result<(), Error> {
    held.retain(|interface, _| wanted.contains(interface));
    for interface in wanted {
        if held.contains_key(interface) {
            continue;
        }
        let program = program(object, name)?;
        let attached = Ingress::attach(program.as_fd(), *interface).map_err(|error| Error::Attach {
            interface: *interface,
            reason: "is there such an interface, and is this Linux 6.6 or later?".to_owned(),
            source: error.into(),
        })?;
        held.insert(*interface, attached);
    }
    Ok(())
}
