//! The containers that a node's engine makes.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rig_engine::{
    AddressPool, Container, ContainerSpec, Engine, HeldContainer, Image, NetworkSpec, OwnImage, PublishedPort,
    without_empty,
};
use rig_sys::identity::ProcessIdentity;
use rig_sys::netns::NetNs;
use rig_testbed::datapath::Site;
use rig_testbed::host::ContainerAccess;
use rig_testbed::{LOAD_PORTS, UPLINK};
use serde_json::{Value, json};

use super::daemon::{Daemon, SOCKET};
use super::overlay::Overlay;
use super::owner::{labels, remove_from};
use super::{DockerSettings, HOST, OwnNetwork, overlay};
use crate::node::lead_outside;

/// Of networks over an interface: each node's engine gives addresses of a part of its own.
pub(super) const SUBNET: &str = "10.89.0.0/16";
pub(super) const GATEWAY: &str = "10.89.255.254";

/// A node's containers.
#[derive(Debug)]
pub(super) struct Containers {
    engine: Engine,
    owner: ProcessIdentity,
    own: DockerSettings,
    image: Option<Image>,
    /// The id of the network, where it was made.
    made_network: Option<String>,
    network: Value,
    made: Vec<RunningContainer>,
    /// What this node's interface leads to, where it has none to another node.
    _outside: Option<NetNs>,
    /// What the network's driver is, where it is netrig's.
    overlay: Option<Overlay>,
    /// Ends last.
    daemon: Option<Daemon>,
}

/// A container of the testbed.
#[derive(Debug)]
struct RunningContainer {
    /// `node/container`
    name: String,
    held: HeldContainer,
    namespace: NetNs,
    container: Container,
    addresses: Vec<IpAddr>,
    reached_at: Vec<IpAddr>,
}

impl Containers {
    /// Makes a container for each of the node's, and starts it.
    ///
    /// # Errors
    /// What the engine refuses; what was made until then is removed.
    pub(super) fn attach(site: &Site, own: &DockerSettings) -> Result<Self> {
        let owner = ProcessIdentity::own()?;
        let node = site.plan().nodes.get(site.number()).context("find the node in its plan")?;
        let names: Vec<&str> = node.spaces.iter().skip(1).map(|space| space.name.as_str()).collect();
        let of_others = |name: &&String| !site.has_container(name);
        if let Some(unknown) = own.publish.iter().find(of_others) {
            bail!("no container {unknown} to publish ports of: this node has {}", names.join(", "));
        }
        let is_alone = site.plan().nodes.len() == 1;
        if own.engine.is_some() && !site.plan().wires.is_empty() {
            bail!("two nodes of one machine have no engine of the machine's each: use one node, or leave engine out");
        }
        let published = names.iter().filter(|name| own.publish.iter().any(|published| published == *name));
        if published.count() > 1 {
            bail!("two containers of a node cannot be published at the same ports: publish one of them");
        }
        let outside =
            (own.engine.is_none() && is_alone).then(lead_outside).transpose().context("give the node an interface")?;
        let (daemon, engine) = match &own.engine {
            None => Daemon::start(own, &owner).map(|(daemon, engine)| (Some(daemon), engine))?,
            Some(socket) => (None, Engine::at(socket)?),
        };
        remove_from(&engine, &owner)?;
        let mut containers = Self {
            engine,
            owner,
            own: own.clone(),
            image: None,
            made_network: None,
            network: Value::Null,
            made: Vec::new(),
            _outside: outside,
            overlay: None,
            daemon,
        };
        match containers.make(site, &names) {
            Ok(()) => Ok(containers),
            Err(error) => match containers.remove() {
                Ok(()) => Err(error),
                Err(also) => Err(error.context(format!("what was made is not all removed: {also:#}"))),
            },
        }
    }

    fn make(&mut self, site: &Site, names: &[&str]) -> Result<()> {
        if let Some(network) = self.own.own_network() {
            self.overlay = network.is_overlay().then(|| Overlay::start(site)).transpose()?;
            self.made_network = Some(self.engine.make_network(&self.own_network(site, network))?);
        }
        let name = self.own.network();
        // Podman has no object for it.
        if name != HOST {
            self.network = self.look_up(name)?;
        }
        if !self.own.publish.is_empty() && self.network.get("Driver").and_then(Value::as_str) != Some("bridge") {
            bail!("containers are published on networks of driver bridge, and {name} is none: remove publish");
        }
        let own = OwnImage::new().context("read this program")?;
        let image = self.engine.import(&own, &format!("netrig/{}", self.owner), &labels(&self.owner))?;
        self.image = Some(image.clone());
        // Where they are published may be known of others only.
        let (published, others): (Vec<&str>, Vec<&str>) = names.iter().partition(|name| self.is_published(name));
        for name in others.into_iter().chain(published) {
            let reached_at = self.reached_at_of(site, name)?;
            let held = self.engine.run(&image, &self.spec(site, name, &reached_at)?)?;
            let container = self.engine.container(&held.id).with_context(|| format!("look at {name}"))?;
            let namespace = namespace_of(&held.id, container.pid).with_context(|| {
                format!("find the network namespace of {name}: the engine has to be on this machine")
            })?;
            let addresses = self.addresses_of(site, &container);
            self.made.push(RunningContainer {
                name: name.to_owned(),
                held,
                namespace,
                container,
                addresses,
                reached_at,
            });
        }
        Ok(())
    }

    fn look_up(&self, network: &str) -> Result<Value> {
        match self.engine.network(network) {
            Ok(told) => Ok(without_empty(told)),
            Err(error) if error.is_absent() => {
                bail!(
                    "the container engine has no network '{network}': choose from {}",
                    self.engine.networks()?.join(", ")
                )
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Addresses by which engines of two nodes do not give the same to two containers.
    fn own_network(&self, site: &Site, network: OwnNetwork) -> NetworkSpec {
        // The others are over the node's interface.
        let parent = (!network.is_overlay()).then_some(("parent", UPLINK));
        let options = network.options.iter().copied().chain(parent);
        NetworkSpec {
            name: network.name.to_owned(),
            driver: network.driver.to_owned(),
            options: options.map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
            pools: vec![AddressPool {
                subnet: SUBNET.to_owned(),
                range: Some(format!("10.89.{}.0/24", 1 + site.number())),
                gateway: Some(GATEWAY.to_owned()),
            }],
            labels: labels(&self.owner),
        }
    }

    fn is_published(&self, name: &str) -> bool {
        self.own.publish.iter().any(|published| published == name)
    }

    fn spec(&self, site: &Site, name: &str, reached_at: &[IpAddr]) -> Result<ContainerSpec> {
        let at = |address: &IpAddr| {
            let address = *address;
            LOAD_PORTS
                .into_iter()
                .flat_map(move |number| ["tcp", "udp"].map(|protocol| PublishedPort { address, number, protocol }))
        };
        let spaces = site.plan().nodes.get(site.number()).into_iter().flat_map(|node| node.spaces.iter().skip(1));
        let number = spaces.enumerate().find_map(|(number, space)| (space.name == name).then_some(number));
        let number = number.filter(|_| self.overlay.is_some());
        Ok(ContainerSpec {
            name: format!("netrig-{}-{}", self.owner, name.replace('/', ".")),
            network: self.own.network().to_owned(),
            address: number.map(|number| overlay::address(site.number(), number)).transpose()?,
            driver_options: number.map(overlay::options).unwrap_or_default(),
            arguments: vec!["pause".to_owned()],
            cpuset: Some(site.cpus().to_string()),
            cpus: self.own.cpus,
            memory: self.own.memory.map(|memory| memory.0),
            published: reached_at.iter().flat_map(at).collect(),
            labels: labels(&self.owner),
        })
    }

    /// The addresses at which load reaches a container, where these are not its own.
    fn reached_at_of(&self, site: &Site, name: &str) -> Result<Vec<IpAddr>> {
        if !self.is_published(name) {
            return Ok(Vec::new());
        }
        let of_node = addresses_of_node(site);
        // Where the node has no address but those on its engine's networks.
        let gateways = self.made.first().map_or(&[][..], |other| &other.container.gateways);
        let reached_at = if of_node.is_empty() { gateways.to_vec() } else { of_node };
        if reached_at.is_empty() {
            bail!("{name} cannot be published: network {} has no gateway", self.own.network());
        }
        Ok(reached_at)
    }

    /// The addresses of a container.
    fn addresses_of(&self, site: &Site, container: &Container) -> Vec<IpAddr> {
        if self.own.network() != HOST {
            return container.addresses.clone();
        }
        let of_node = addresses_of_node(site);
        if of_node.is_empty() { vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()] } else { of_node }
    }

    /// What they are on, in words.
    pub(super) fn version(&self) -> String {
        let driver = self.network.get("Driver").and_then(Value::as_str).unwrap_or_default();
        let network = self.own.network();
        let driver = if driver == network { String::new() } else { format!(" ({driver})") };
        format!("{}, network {network}{driver}", self.engine.version().words())
    }

    pub(super) fn addresses(&self) -> BTreeMap<String, Vec<IpAddr>> {
        self.made.iter().map(|made| (made.name.clone(), made.addresses.clone())).collect()
    }

    pub(super) fn reached_at(&self) -> BTreeMap<String, Vec<IpAddr>> {
        let published = self.made.iter().filter(|made| !made.reached_at.is_empty());
        published.map(|made| (made.name.clone(), made.reached_at.clone())).collect()
    }

    /// How the host gets at each.
    pub(super) fn access(&self) -> BTreeMap<String, ContainerAccess> {
        let process = Path::new("/proc").join(self.owner.process.to_string());
        // From outside, this process's own files are where its root is.
        let socket = match &self.own.engine {
            None => process.join("root").join(SOCKET.trim_start_matches('/')),
            Some(socket) => socket.clone(),
        };
        let program = self.image.as_ref().map_or(&[][..], |image| &image.command);
        let access = |made: &RunningContainer| ContainerAccess {
            namespace: process.join("fd").join(made.namespace.raw_fd().to_string()),
            engine: socket.clone(),
            id: made.held.id.clone(),
            program: program.to_vec(),
        };
        self.made.iter().map(|made| (made.name.clone(), access(made))).collect()
    }

    /// What the engine says of each, for the record.
    pub(super) fn told(&self) -> Value {
        let one = |made: &RunningContainer| json!({ "container": made.name, "addresses": made.addresses, "reached_at": made.reached_at, "inspect": made.container.told });
        Value::Array(self.made.iter().map(one).collect())
    }

    pub(super) fn told_of_network(&self) -> &Value {
        &self.network
    }

    /// Removes all that was made.
    ///
    /// # Errors
    /// What the engine refuses; all else is removed nevertheless.
    pub(super) fn remove(mut self) -> Result<()> {
        self.remove_all()
    }

    fn remove_all(&mut self) -> Result<()> {
        let mut errors = Vec::new();
        let made = std::mem::take(&mut self.made);
        made.iter().for_each(|made| made.held.let_go());
        if self.daemon.take().is_some() {
            // All of it ends with this process.
            return Ok(());
        }
        for RunningContainer { held, .. } in &made {
            errors.extend(self.engine.remove_container(&held.id).err());
        }
        if let Some(id) = self.made_network.take() {
            errors.extend(self.engine.remove_network(&id).err());
        }
        if let Some(image) = self.image.take() {
            errors.extend(self.engine.remove_image(&image.id).err());
        }
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        if errors.is_empty() { Ok(()) } else { bail!(errors.join("; ")) }
    }
}

/// Those of the wires to other nodes.
fn addresses_of_node(site: &Site) -> Vec<IpAddr> {
    let own = site.plan().nodes.get(site.number()).and_then(|node| node.spaces.first());
    let interfaces = own.into_iter().flat_map(|own| &own.interfaces);
    interfaces.flat_map(|interface| interface.addresses.iter().map(ipnet::IpNet::addr)).collect()
}

/// The network namespace of a container by its first process, as the engine says. Another machine's, or another namespace's, process of
/// that number is in no cgroup of the container.
fn namespace_of(id: &str, pid: u32) -> Result<NetNs> {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let namespace = NetNs::open(process.join("ns/net"))?;
    let cgroups = fs::read_to_string(process.join("cgroup")).context("read its cgroup")?;
    if !cgroups.contains(id) {
        bail!("process {pid} is in no cgroup of container {id}");
    }
    Ok(namespace)
}

impl Drop for Containers {
    fn drop(&mut self) {
        // What is left, the next agent that asks this engine removes.
        let _ = self.remove_all();
    }
}
