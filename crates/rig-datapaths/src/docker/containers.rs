//! The containers that a node's engine makes.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rig_engine::{
    AddressPool, Container, ContainerSpec, Engine, HeldContainer, Image, NetworkSpec, OwnImage, PublishedPort,
    without_empty,
};
use rig_sys::netns::NetNs;
use rig_testbed::datapath::Site;
use rig_testbed::host::ContainerAccess;
use rig_testbed::{LOAD_PORTS, UPLINK};
use serde_json::{Value, json};

use super::daemon::{Daemon, SOCKET};
use super::owner::{Owner, remove_from};
use super::{DockerSettings, HOST, OwnNetwork};
use crate::node::lead_outside;

/// Of networks over an interface: each node's engine gives addresses of a part of its own.
const SUBNET: &str = "10.89.0.0/16";
const GATEWAY: &str = "10.89.255.254";

/// A node's containers.
#[derive(Debug)]
pub(super) struct Containers {
    engine: Engine,
    owner: Owner,
    own: DockerSettings,
    image: Option<Image>,
    /// The id of the network, where it was made.
    made_network: Option<String>,
    network: Value,
    made: Vec<Made>,
    /// What this node's interface leads to, where it has none to another node.
    _outside: Option<NetNs>,
    /// Ends last.
    daemon: Option<Daemon>,
}

/// A container of the testbed.
#[derive(Debug)]
struct Made {
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
        let owner = Owner::of_this_process()?;
        let node = site.plan().nodes.get(site.number()).context("find the node in its plan")?;
        let names: Vec<&str> = node.spaces.iter().skip(1).map(|space| space.name.as_str()).collect();
        let of_others = |name: &&String| !site.has_container(name);
        if let Some(unknown) = own.publish.iter().find(of_others) {
            bail!("no container {unknown} to publish ports of: this node has {}", names.join(", "));
        }
        let is_alone = site.plan().nodes.len() == 1;
        let outside =
            (own.engine.is_none() && is_alone).then(lead_outside).transpose().context("give the node an interface")?;
        let (daemon, engine) = match &own.engine {
            None => Daemon::start(own, owner).map(|(daemon, engine)| (Some(daemon), engine))?,
            Some(socket) => (None, Engine::at(socket)?),
        };
        remove_from(&engine, owner)?;
        let mut containers = Self {
            engine,
            owner,
            own: own.clone(),
            image: None,
            made_network: None,
            network: Value::Null,
            made: Vec::new(),
            _outside: outside,
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
            self.made_network = Some(self.engine.make_network(&self.over_uplink(site, network))?);
        }
        let name = self.own.network();
        self.network = match self.engine.network(name) {
            Ok(network) => without_empty(network),
            Err(error) if error.is_absent() => {
                bail!(
                    "the container engine has no network '{name}': choose from {}",
                    self.engine.networks()?.join(", ")
                )
            }
            Err(error) => return Err(error.into()),
        };
        let own = OwnImage::new().context("read this program")?;
        let image = self.engine.import(&own, &format!("netrig/{}", self.owner), &self.owner.labels())?;
        self.image = Some(image.clone());
        for name in names {
            let held = self.engine.run(&image, &self.spec(site, name))?;
            let container = self.engine.container(&held.id).with_context(|| format!("look at {name}"))?;
            let path = PathBuf::from(format!("/proc/{}/ns/net", container.pid));
            let namespace = NetNs::open(&path).with_context(|| {
                format!("find the network namespace of {name}: the engine has to be on this machine")
            })?;
            let (addresses, reached_at) = self.addresses_of(site, name, &container);
            self.made.push(Made { name: (*name).to_owned(), held, namespace, container, addresses, reached_at });
        }
        Ok(())
    }

    /// Addresses by which engines of two nodes do not give the same to two containers.
    fn over_uplink(&self, site: &Site, network: OwnNetwork) -> NetworkSpec {
        let options = network.options.iter().copied().chain([("parent", UPLINK)]);
        NetworkSpec {
            name: network.name.to_owned(),
            driver: network.driver.to_owned(),
            options: options.map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
            pools: vec![AddressPool {
                subnet: SUBNET.to_owned(),
                range: Some(format!("10.89.{}.0/24", 1 + site.number())),
                gateway: Some(GATEWAY.to_owned()),
            }],
            labels: self.owner.labels(),
        }
    }

    fn spec(&self, site: &Site, name: &str) -> ContainerSpec {
        let both = |number| ["tcp", "udp"].map(|protocol| PublishedPort { number, protocol });
        let is_published = self.own.publish.iter().any(|published| published == name);
        ContainerSpec {
            name: format!("netrig-{}-{}", self.owner, name.replace('/', ".")),
            network: self.own.network().to_owned(),
            arguments: vec!["pause".to_owned()],
            cpuset: Some(site.cpus().to_string()),
            cpus: self.own.cpus,
            memory: self.own.memory.map(|memory| memory.0),
            published: if is_published { LOAD_PORTS.into_iter().flat_map(both).collect() } else { Vec::new() },
            labels: self.owner.labels(),
            // That of an engine of the node's own is for all of its containers.
            cgroup_parent: None,
        }
    }

    /// The addresses of a container, and those at which load reaches it where these are others.
    fn addresses_of(&self, site: &Site, name: &str, container: &Container) -> (Vec<IpAddr>, Vec<IpAddr>) {
        let node = site.plan().nodes.get(site.number()).and_then(|node| node.spaces.first());
        let of_node: Vec<IpAddr> = node
            .into_iter()
            .flat_map(|own| &own.interfaces)
            .flat_map(|interface| interface.addresses.iter().map(|address| address.addr()))
            .collect();
        let is_published = self.own.publish.iter().any(|published| published == name);
        if self.own.network() == HOST {
            let own =
                if of_node.is_empty() { vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()] } else { of_node };
            return (own, Vec::new());
        }
        let reached_at = match (is_published, of_node.is_empty()) {
            (false, _) => Vec::new(),
            (true, false) => of_node,
            // The engine's machine has no other address than that on its networks.
            (true, true) => container.gateways.clone(),
        };
        (container.addresses.clone(), reached_at)
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
        let command = self.image.iter().flat_map(|image| &image.command);
        let access = |made: &Made| {
            let start = ["in-container", &socket.to_string_lossy(), &made.held.id].map(ToOwned::to_owned);
            ContainerAccess {
                namespace: process.join("fd").join(made.namespace.raw_fd().to_string()),
                start: start.into_iter().chain(command.clone().cloned()).collect(),
            }
        };
        self.made.iter().map(|made| (made.name.clone(), access(made))).collect()
    }

    /// What the engine says of each, for the record.
    pub(super) fn told(&self) -> Value {
        let one = |made: &Made| json!({ "container": made.name, "addresses": made.addresses, "reached_at": made.reached_at, "inspect": made.container.told });
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
        for Made { held, .. } in &made {
            errors.extend(self.engine.remove_container(&held.id).err());
        }
        if let Some(id) = self.made_network.take() {
            errors.extend(self.engine.remove_network(&id).err());
        }
        if let Some(image) = self.image.take() {
            errors.extend(self.engine.remove_image(&image.id).err());
        }
        match errors.into_iter().reduce(|first, _| first) {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }
}

impl Drop for Containers {
    fn drop(&mut self) {
        // What is left, the next agent that asks this engine removes.
        let _ = self.remove_all();
    }
}
