//! The containers that a node's network has: those of the testbed, and guests that come and go.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use rig_cni::{AddResult, Attachment, Call, ResultCache, Runtime};
use rig_sys::mounts::{enter_with_own, hide_namespace, show_namespace};
use rig_sys::netlink::{Netlink, VethPair};
use rig_sys::netns::NetNs;
use rig_testbed::UPLINK;
use rig_testbed::datapath::Site;
use rig_testbed::host::container_namespaces;
use rig_testbed::plan::DEFAULT_MTU;
use serde_json::{Map, Value, json};

use super::CniSettings;

/// Where plug-ins keep what is not to be the machine's: leases and results, locks, configurations.
const OWN: [&str; 3] = ["/run", "/var/lib/cni", "/etc/cni"];
const NAMESPACES: &str = "/run/netns";
const CONFIGURATIONS: &str = "/etc/cni/net.d";
const CACHE: &str = "/var/lib/cni";

/// A node's containers on its network.
#[derive(Debug)]
pub(super) struct Containers {
    runtime: Runtime,
    capabilities: Map<String, Value>,
    attached: Vec<Attached>,
    /// What the node's own interface leads to.
    _outside: NetNs,
}

/// A container of the testbed.
#[derive(Debug)]
struct Attached {
    /// `node/container`
    name: String,
    attachment: Attachment,
    result: AddResult,
    took: Duration,
    calls: Vec<Call>,
}

impl Containers {
    /// Gives each container of the node an interface.
    ///
    /// # Errors
    /// The first plug-in that fails, or that gives no address. What there is then goes with this process and the node.
    pub(super) fn attach(site: &Site, own: &CniSettings) -> Result<Self> {
        let namespaces = container_namespaces()?;
        enter_with_own(&OWN.map(Path::new))?;
        let outside = lead_outside().context("give the node an interface")?;
        let network = own.network()?;
        fs::create_dir_all(CONFIGURATIONS).and_then(|()| {
            let file = Path::new(CONFIGURATIONS).join(format!("{}.conflist", network.name));
            fs::write(file, &own.conflist)
        })?;
        let runtime = Runtime::new(&own.conflist, network, own.folders(), ResultCache::at(CACHE), own.time_limit())?;
        let mut containers =
            Self { runtime, capabilities: own.capabilities.clone(), attached: Vec::new(), _outside: outside };
        let node = site.plan().nodes.get(site.number()).context("find the node in its plan")?;
        for (number, space) in node.spaces.iter().skip(1).enumerate() {
            let namespace =
                namespaces.get(&space.name).with_context(|| format!("find the namespace of {}", space.name))?;
            let attached = containers.attach_one(&space.name, namespace, number)?;
            containers.attached.push(attached);
        }
        Ok(containers)
    }

    fn attach_one(&self, name: &str, namespace: &Path, number: usize) -> Result<Attached> {
        let id = name.replace('/', "-");
        let at = Path::new(NAMESPACES).join(&id);
        show_namespace(namespace, &at)?;
        let attachment = self.attachment(&id, at, number);
        let added = self.runtime.add(&attachment);
        let result = added.outcome.map_err(|failure| {
            let undone = match self.runtime.del(&attachment).outcome {
                Ok(()) => "the DEL that follows was carried out".to_owned(),
                Err(failure) => format!("the DEL that follows failed, too: {failure}"),
            };
            anyhow!("add {name} to network {}: {failure}; {undone}", self.runtime.network().name)
        })?;
        if result.addresses().is_empty() {
            bail!(
                "network {} gave {name} no address ({} was called): give its first plug-in an \"ipam\", for instance \"host-local\"",
                self.runtime.network().name,
                self.runtime.network().chain()
            );
        }
        Ok(Attached { name: name.to_owned(), attachment, result, took: added.took, calls: added.calls })
    }

    fn attachment(&self, id: &str, namespace: PathBuf, number: usize) -> Attachment {
        let mut attachment = Attachment::new(id, namespace, UPLINK);
        attachment.capabilities = capabilities_of(&self.capabilities, number);
        attachment
    }

    pub(super) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Those of the testbed.
    pub(super) fn valid(&self) -> Vec<Attachment> {
        self.attached.iter().map(|own| own.attachment.clone()).collect()
    }

    /// The namespace of the testbed's first container, from which others are to be reached.
    ///
    /// # Errors
    /// When there is none.
    pub(super) fn first(&self) -> Result<NetNs> {
        let first = self.attached.first().context("find a container to reach others from")?;
        Ok(NetNs::open(&first.attachment.namespace)?)
    }

    /// The addresses that each was given.
    pub(super) fn addresses(&self) -> BTreeMap<String, Vec<IpAddr>> {
        let addresses = |own: &Attached| own.result.addresses().into_iter().map(|(address, _)| address).collect();
        self.attached.iter().map(|own| (own.name.clone(), addresses(own))).collect()
    }

    /// What plug-ins said and how long they took, for the record.
    pub(super) fn told(&self) -> Value {
        let one = |own: &Attached| {
            let calls: Vec<Value> = own
                .calls
                .iter()
                .map(|call| json!({ "plugin": call.plugin, "us": call.took.as_micros() as u64 }))
                .collect();
            json!({ "container": own.name, "add_us": own.took.as_micros() as u64, "plugins": calls, "result": own.result.object })
        };
        Value::Array(self.attached.iter().map(one).collect())
    }

    /// A container that is not of the testbed, with nothing in it.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(super) fn guest(&self, number: usize) -> Result<Guest> {
        let namespace = NetNs::create()?;
        Netlink::open(&namespace)?.set_up("lo")?;
        let id = format!("guest-{number}");
        let at = Path::new(NAMESPACES).join(&id);
        show_namespace(Path::new(&format!("/proc/thread-self/fd/{}", namespace.raw_fd())), &at)?;
        let attachment = self.attachment(&id, at, self.attached.len() + number);
        Ok(Guest { attachment, namespace: Some(namespace) })
    }

    /// Deletes the testbed's containers from the network.
    ///
    /// # Errors
    /// The first that a plug-in fails to delete; all others are deleted nevertheless.
    pub(super) fn delete(self) -> Result<()> {
        let mut first = Ok(());
        for own in &self.attached {
            let deleted = self.runtime.del(&own.attachment).outcome;
            first = first.and(deleted.map_err(|failure| anyhow!("delete {} from its network: {failure}", own.name)));
            hide_namespace(&own.attachment.namespace)?;
        }
        first
    }
}

/// A container that comes and goes.
#[derive(Debug)]
pub(super) struct Guest {
    pub(super) attachment: Attachment,
    /// `None` when it has gone.
    namespace: Option<NetNs>,
}

impl Guest {
    /// Its namespace.
    ///
    /// # Errors
    /// When it has gone.
    pub(super) fn namespace(&self) -> Result<&NetNs> {
        self.namespace.as_ref().context("find a namespace that has gone")
    }

    /// Ends its namespace, as a container's crash does.
    ///
    /// # Errors
    /// When it cannot be unmounted.
    pub(super) fn end_namespace(&mut self) -> Result<()> {
        if self.namespace.take().is_some() {
            hide_namespace(&self.attachment.namespace)?;
        }
        Ok(())
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // What cannot be unmounted goes with this process's mounts.
        let _ = self.end_namespace();
    }
}

/// An interface that leads out of the node, for plug-ins that ask for one (`master`): at its other end is nobody.
fn lead_outside() -> Result<NetNs> {
    let outside = NetNs::create()?;
    let mut netlink = Netlink::here()?;
    netlink.add_veth(&VethPair { name: UPLINK, peer: UPLINK, peer_ns: &outside, queues: 1, mtu: DEFAULT_MTU })?;
    netlink.set_up(UPLINK)?;
    Netlink::open(&outside)?.set_up(UPLINK)?;
    Ok(outside)
}

/// What a container is told besides: of several each has ports of the node of its own.
fn capabilities_of(all: &Map<String, Value>, number: usize) -> Map<String, Value> {
    let mut own = all.clone();
    let mappings = own.get_mut("portMappings").and_then(Value::as_array_mut);
    for mapping in mappings.into_iter().flatten() {
        let port = mapping.get("hostPort").and_then(Value::as_u64).filter(|port| *port > 0);
        if let (Some(port), Some(mapping)) = (port, mapping.as_object_mut()) {
            mapping.insert("hostPort".into(), (port + number as u64).into());
        }
    }
    own
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_container_has_ports_of_its_own() {
        let Value::Object(all) =
            json!({ "portMappings": [{ "hostPort": 8080, "containerPort": 80 }, { "containerPort": 1 }], "mac": "x" })
        else {
            panic!()
        };
        assert_eq!(capabilities_of(&all, 0), all);
        let third = Value::Object(capabilities_of(&all, 2));
        assert_eq!(third.pointer("/portMappings/0"), Some(&json!({ "hostPort": 8082, "containerPort": 80 })));
        assert_eq!(third.pointer("/mac"), Some(&json!("x")));
    }
}
