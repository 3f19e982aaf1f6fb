//! The containers that a node's network has: those of the testbed, and test_containers that come and go.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use rig_cni::{AddResult, Attachment, Call, Operation, ResultCache, Runtime};
use rig_sys::mounts::{enter_with_own, hide_namespace, show_namespace, show_own_processes};
use rig_sys::netlink::Netlink;
use rig_sys::netns::NetNs;
use rig_testbed::UPLINK;
use rig_testbed::datapath::Site;
use rig_testbed::host::container_namespaces;
use serde_json::{Map, Value, json};

use super::CniSettings;
use super::ports::Ports;
use crate::node::lead_outside;

/// Where plug-ins keep what is not to be the machine's: leases and results, locks, configurations, logs. What is elsewhere they cannot
/// write.
const OWN: [&str; 7] = ["/run", "/var/lib/cni", "/etc/cni", "/var/log", "/tmp", "/var/tmp", "/dev/shm"];
const NAMESPACES: &str = "/run/netns";
const CONFIGURATIONS: &str = "/etc/cni/net.d";
const CACHE: &str = "/var/lib/cni";

/// A node's containers on its network.
#[derive(Debug)]
pub(super) struct Containers {
    runtime: Runtime,
    ports: Ports,
    /// How many test_containers there were: an id that a failed DEL has left with plug-ins is never another's.
    test_containers: AtomicUsize,
    attached: Vec<Attached>,
    /// What the node's own interface leads to.
    _outside: NetNs,
}

/// A container's id. Names of a testbed have no dot: `a-b/c` and `a/b-c` stay two.
fn id_of(name: &str) -> String {
    name.replace('/', ".")
}

/// Where the namespace of a container of the testbed is found.
fn shown_at(name: &str) -> PathBuf {
    Path::new(NAMESPACES).join(id_of(name))
}

fn is_own(folder: &Path) -> bool {
    OWN.iter().any(|own| folder.starts_with(own))
}

/// Where a plug-in's host-local keeps its leases, where it is told to (`ipam.dataDir`).
fn data_folder(plugin: &Map<String, Value>) -> Option<&Path> {
    let folder = plugin.get("ipam")?.get("dataDir")?.as_str().map(Path::new)?;
    (folder.is_absolute() && !is_own(folder)).then_some(folder)
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
        let network = own.network()?;
        let folders = own.folders();
        // On NixOS all programs are below /run.
        let shown: Vec<&Path> = folders.iter().map(PathBuf::as_path).filter(|folder| is_own(folder)).collect();
        let leases = network.plugins.iter().filter_map(|plugin| data_folder(&plugin.object));
        let own_folders: Vec<&Path> = OWN.iter().map(Path::new).chain(leases).collect();
        enter_with_own(&own_folders, &shown)?;
        let node = site.plan().nodes.get(site.number()).context("find the node in its plan")?;
        for space in node.spaces.iter().skip(1) {
            let namespace = namespaces.get(&space.name);
            show_namespace(
                namespace.with_context(|| format!("find the namespace of {}", space.name))?,
                &shown_at(&space.name),
            )?;
        }
        // Where namespaces are is said by processes outside, which are not seen from here on.
        show_own_processes()?;
        let outside = lead_outside().context("give the node an interface")?;
        fs::create_dir_all(CONFIGURATIONS).and_then(|()| {
            let file = Path::new(CONFIGURATIONS).join(format!("{}.conflist", network.name));
            fs::write(file, &own.conflist)
        })?;
        let runtime = Runtime::new(&own.conflist, network, folders, ResultCache::at(CACHE), own.time_limit())?;
        let mut containers = Self {
            runtime,
            ports: Ports::of(&own.capabilities),
            test_containers: AtomicUsize::new(0),
            attached: Vec::new(),
            _outside: outside,
        };
        for (number, space) in node.spaces.iter().skip(1).enumerate() {
            match containers.attach_one(&space.name, number) {
                Ok(attached) => containers.attached.push(attached),
                // Those before it are on the network, and what made them is about to end.
                Err(error) => {
                    return Err(match containers.delete() {
                        Ok(()) => error,
                        Err(also) => anyhow!("{error:#}; and of those added before it: {also:#}"),
                    });
                }
            }
        }
        Ok(containers)
    }

    fn attach_one(&self, name: &str, number: usize) -> Result<Attached> {
        let attachment = self.attachment(&id_of(name), shown_at(name), number);
        let added = self.runtime.add(&attachment);
        let network = self.runtime.network();
        let result = match added.outcome {
            Ok(result) if !result.addresses().is_empty() => result,
            other => {
                let why = match other {
                    Ok(_) => format!(
                        "network {} gave {name} no address ({} was called): give its first plug-in an \"ipam\", for instance \"host-local\"",
                        network.name,
                        network.chain()
                    ),
                    Err(failure) => format!("add {name} to network {}: {failure}", network.name),
                };
                match self.runtime.del(&attachment).outcome {
                    Ok(()) => bail!("{why}; the DEL that follows was carried out"),
                    Err(failure) => bail!("{why}; the DEL that follows failed, too: {failure}"),
                }
            }
        };
        Ok(Attached { name: name.to_owned(), attachment, result, took: added.took, calls: added.calls })
    }

    fn attachment(&self, id: &str, namespace: PathBuf, number: usize) -> Attachment {
        let mut attachment = Attachment::new(id, namespace, UPLINK);
        attachment.capabilities = self.ports.capabilities(number);
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

    /// A container that is not of the testbed, with nothing in it. `number` is its place among those that are there with it, the first 0.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(super) fn test_container(&self, number: usize) -> Result<TestContainer<'_>> {
        let namespace = NetNs::create()?;
        Netlink::open(&namespace)?.set_up("lo")?;
        let id = self.unused_id();
        let at = Path::new(NAMESPACES).join(&id);
        show_namespace(Path::new(&format!("/proc/thread-self/fd/{}", namespace.raw_fd())), &at)?;
        let attachment = self.attachment(&id, at, self.attached.len() + number);
        Ok(TestContainer {
            runtime: &self.runtime,
            attachment,
            namespace: Some(namespace),
            owes_del: AtomicBool::new(false),
        })
    }

    /// The id of a container that there never was. Two dots, where those of the testbed have one.
    fn unused_id(&self) -> String {
        format!("netrig.test.{}", self.test_containers.fetch_add(1, Ordering::Relaxed))
    }

    /// A container whose namespace is not there.
    pub(super) fn absent(&self) -> TestContainer<'_> {
        let id = self.unused_id();
        let attachment = Attachment::new(&id, Path::new(NAMESPACES).join(&id), UPLINK);
        TestContainer { runtime: &self.runtime, attachment, namespace: None, owes_del: AtomicBool::new(false) }
    }

    /// Deletes the testbed's containers from the network.
    ///
    /// # Errors
    /// All that a plug-in fails to delete, or that cannot be unmounted; all others are deleted nevertheless.
    pub(super) fn delete(self) -> Result<()> {
        let mut errors = Vec::new();
        for own in self.attached.iter().rev() {
            if let Err(failure) = self.runtime.del(&own.attachment).outcome {
                errors.push(format!("delete {} from its network: {failure}", own.name));
            }
            if let Err(error) = hide_namespace(&own.attachment.namespace) {
                errors.push(format!("{error:#}"));
            }
        }
        if errors.is_empty() { Ok(()) } else { bail!(errors.join("; ")) }
    }
}

/// A container that comes and goes. An ADD that no DEL has followed is deleted with it, so that a trial that ends early leaves nothing.
#[derive(Debug)]
pub(super) struct TestContainer<'c> {
    runtime: &'c Runtime,
    pub(super) attachment: Attachment,
    /// `None` when it has gone.
    namespace: Option<NetNs>,
    owes_del: AtomicBool,
}

impl TestContainer<'_> {
    pub(super) fn add(&self) -> Operation<AddResult> {
        self.owes_del.store(true, Ordering::Relaxed);
        self.runtime.add(&self.attachment)
    }

    pub(super) fn check(&self) -> Option<Operation<()>> {
        self.runtime.check(&self.attachment)
    }

    /// Whether no DEL has followed its ADD.
    pub(super) fn owes_del(&self) -> bool {
        self.owes_del.load(Ordering::Relaxed)
    }

    pub(super) fn del(&self) -> Operation<()> {
        self.owes_del.store(false, Ordering::Relaxed);
        self.runtime.del(&self.attachment)
    }

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

impl Drop for TestContainer<'_> {
    fn drop(&mut self) {
        if self.owes_del() {
            let _ = self.del();
        }
        // What cannot be unmounted goes with this process's mounts.
        let _ = self.end_namespace();
    }
}
