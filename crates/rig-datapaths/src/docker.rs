//! Containers of a container engine, Docker's or Podman's, on its networks.
//!
//! Where nothing else is said the node has an engine of its own: a dockerd that the agent starts in the node's network namespace, with
//! files and processes of its own, so that nothing of it is the machine's. With `engine` it is one that runs on the machine.

mod containers;
mod daemon;
mod overlay;
mod owner;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rig_engine::Engine;
use rig_stats::units::Bytes;
use rig_sys::probe;
use rig_testbed::datapath::{
    Attach, Counters, Datapath, DatapathRequest, Live, Machine, Missing, Mistake, Process, Settings, Site, State,
    UnknownCommand, read_settings,
};
use serde::Deserialize;
use serde_json::{Value, json};

use self::containers::Containers;

/// An engine that starts, takes an image and makes containers on a busy machine.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(180);
/// Where Docker is asked on most machines.
const CUSTOMARY_SOCKET: &str = "/var/run/docker.sock";
/// Least memory that Docker lets a container have.
const LEAST_MEMORY: u64 = 6 << 20;
/// CPU time of a container, CPUs.
const LEAST_CPUS: f64 = 0.01;
const MOST_CPUS: f64 = 1024.0;

#[derive(Debug)]
pub(crate) struct Docker;

/// What a suite says of it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct DockerSettings {
    /// `host`, a network of netrig's ([`OwnNetwork`]) or, of the machine's engine, the name of one.
    network: Option<String>,
    /// The socket of an engine of the machine.
    engine: Option<PathBuf>,
    /// Containers, `node/container`, that are reached at ports of their node.
    #[serde(default)]
    publish: Vec<String>,
    /// Whether published ports have a process of the engine's besides the kernel's rules.
    userland_proxy: Option<bool>,
    /// Most CPU time of each container a second, seconds.
    cpus: Option<f64>,
    memory: Option<Bytes>,
}

/// A network that is made, where there is no such one, in an engine of the node's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct OwnNetwork {
    name: &'static str,
    driver: &'static str,
    options: &'static [(&'static str, &'static str)],
}

impl OwnNetwork {
    /// Whether netrig's vRouter is its driver.
    fn is_overlay(&self) -> bool {
        self.driver == overlay::DRIVER
    }
}

/// Networks over the node's interface that leads outside.
const OWN_NETWORKS: [OwnNetwork; 4] = [
    OwnNetwork { name: "macvlan", driver: "macvlan", options: &[("macvlan_mode", "bridge")] },
    OwnNetwork { name: "ipvlan-l2", driver: "ipvlan", options: &[("ipvlan_mode", "l2")] },
    OwnNetwork { name: "ipvlan-l3", driver: "ipvlan", options: &[("ipvlan_mode", "l3")] },
    OwnNetwork { name: "vrouter", driver: overlay::DRIVER, options: &[("network", overlay::VIRTUAL_NETWORK)] },
];
/// Docker's own default.
const BRIDGE: &str = "bridge";
/// That of its machine.
const HOST: &str = "host";

impl DockerSettings {
    fn network(&self) -> &str {
        self.network.as_deref().unwrap_or(BRIDGE)
    }

    fn own_network(&self) -> Option<OwnNetwork> {
        OWN_NETWORKS.into_iter().find(|network| self.engine.is_none() && network.name == self.network())
    }

    fn check(&self) -> Result<(), Mistake> {
        let network = self.network();
        let known = [BRIDGE, HOST].into_iter().chain(OWN_NETWORKS.map(|network| network.name));
        if network == "none" {
            return Err(Mistake::new("network none has no addresses", "choose another network").at("network"));
        }
        if self.engine.is_none() && !known.clone().any(|name| name == network) {
            let known: Vec<&str> = known.collect();
            let hint = format!(
                "choose from {}, or name an engine of the machine that has it, with its socket: engine",
                known.join(", ")
            );
            return Err(
                Mistake::new(format!("no network '{network}' in an engine of the node's own"), hint).at("network")
            );
        }
        if let Some(socket) = self.engine.as_deref().filter(|socket| !socket.is_absolute()) {
            let what = format!("an engine at '{}'", socket.display());
            return Err(
                Mistake::new(what, format!("write the whole path of its socket, e.g. {CUSTOMARY_SOCKET}")).at("engine")
            );
        }
        if self.engine.is_some() && self.userland_proxy.is_some() {
            let hint = "remove it: an engine of the machine has settings of its own (/etc/docker/daemon.json)";
            return Err(Mistake::new("userland_proxy of an engine of the machine", hint).at("userland_proxy"));
        }
        if !self.publish.is_empty() && (network == HOST || self.own_network().is_some()) {
            let hint = "remove it: its containers are reached at addresses of their own";
            return Err(Mistake::new(format!("published ports on network {network}"), hint).at("publish"));
        }
        if let Some(cpus) = self.cpus.filter(|cpus| !(LEAST_CPUS..=MOST_CPUS).contains(cpus)) {
            return Err(Mistake::new(format!("{cpus} CPUs"), format!("choose {LEAST_CPUS} to {MOST_CPUS}")).at("cpus"));
        }
        if let Some(memory) = self.memory.filter(|memory| memory.0 < LEAST_MEMORY) {
            return Err(Mistake::new(
                format!("{memory} of memory"),
                format!("choose at least {}", Bytes(LEAST_MEMORY)),
            )
            .at("memory"));
        }
        Ok(())
    }
}

impl Datapath for Docker {
    fn name(&self) -> &'static str {
        "docker"
    }

    fn validate(&self, asked: &DatapathRequest<'_>) -> Result<(), Mistake> {
        read_settings::<DockerSettings>(asked.settings)?.check()
    }

    fn missing(&self, machine: &Machine, settings: &Settings) -> Option<Missing> {
        if machine.rootless {
            return Some(Missing::new("a container engine's namespaces are root's", "run as root"));
        }
        let own: DockerSettings = read_settings(settings).ok()?;
        let Some(socket) = &own.engine else {
            let kernel = own.own_network().filter(|network| network.driver == "ipvlan").map(|_| probe::ipvlan());
            return machine.lacks_program("dockerd", "docker.io").or_else(|| {
                let error = kernel?.err()?;
                Some(Missing::new(
                    format!("ipvlan: {error}"),
                    "load ipvlan, or use a kernel that has it (CONFIG_IPVLAN)",
                ))
            });
        };
        // What else is not there its agent says.
        let error = Engine::at(socket).err()?;
        let remedy = "start it (`systemctl start docker`, `podman system service`), or name its socket";
        Some(Missing::new(error.to_string(), remedy))
    }

    fn answer_timeout(&self) -> Duration {
        ANSWER_TIMEOUT
    }

    fn starts_programs(&self) -> bool {
        true
    }

    fn makes_things_of_the_machine(&self) -> bool {
        true
    }

    fn remove_leftovers(&self) -> Result<()> {
        owner::remove_cgroups()
    }

    fn process(&self) -> Process<'_> {
        Process::Agent(self)
    }
}

impl Attach for Docker {
    fn attach(&self, site: &Site, settings: &Settings) -> Result<Box<dyn Live>> {
        let own: DockerSettings = read_settings(settings)?;
        let containers = Containers::attach(site, &own)?;
        Ok(Box::new(LiveDocker { containers: Some(containers), settings: settings.clone() }))
    }
}

#[derive(Debug)]
struct LiveDocker {
    /// `None` when they were removed.
    containers: Option<Containers>,
    settings: Settings,
}

impl LiveDocker {
    fn containers(&self) -> Result<&Containers> {
        self.containers.as_ref().context("find the containers, which are removed")
    }
}

impl Live for LiveDocker {
    fn version(&self) -> Result<String> {
        Ok(self.containers()?.version())
    }

    fn settings(&self) -> Settings {
        self.settings.clone()
    }

    fn counters(&self) -> Result<Counters> {
        Ok(Counters::default())
    }

    fn state(&self) -> Result<State> {
        let made = self.containers()?;
        let Value::Object(more) = json!({ "containers": made.told(), "network": made.told_of_network() }) else {
            bail!("no object")
        };
        let (addresses, reached_at) = (made.addresses(), made.reached_at());
        Ok(State { addresses, reached_at, containers: made.access(), more, ..State::default() })
    }

    fn command(&mut self, name: &str, _: &Value) -> Result<Value> {
        bail!(UnknownCommand::of(&Docker, name))
    }

    fn detach(mut self: Box<Self>) -> Result<()> {
        self.containers.take().map_or(Ok(()), Containers::remove)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn mistake(settings: Value) -> Option<(Option<String>, String)> {
        let Value::Object(settings) = settings else { panic!("{settings}") };
        let asked = DatapathRequest { settings: &settings, services: None };
        Docker.validate(&asked).err().map(|mistake| (mistake.key.clone(), mistake.to_string()))
    }

    #[test]
    fn mistakes_are_told_before_there_is_an_engine() {
        for fine in [
            json!({}),
            json!({ "network": "ipvlan-l3", "cpus": 0.5, "memory": "64MiB" }),
            json!({ "network": "mine", "engine": "/run/podman/podman.sock", "publish": ["a/server"] }),
            json!({ "publish": ["a/server"], "userland_proxy": false }),
        ] {
            assert_eq!(mistake(fine), None);
        }
        for (settings, key, words) in [
            (
                json!({ "network": "mine" }),
                "network",
                "choose from bridge, host, macvlan, ipvlan-l2, ipvlan-l3, vrouter, or name an engine",
            ),
            (json!({ "network": "none" }), "network", "no addresses"),
            (json!({ "engine": "docker.sock" }), "engine", "/var/run/docker.sock"),
            (json!({ "engine": "/s", "userland_proxy": true }), "userland_proxy", "daemon.json"),
            (json!({ "network": "host", "publish": ["a/server"] }), "publish", "addresses of their own"),
            (json!({ "network": "macvlan", "publish": ["a/server"] }), "publish", "addresses of their own"),
            (json!({ "cpus": 0 }), "cpus", "choose 0.01 to 1024"),
            (json!({ "memory": "1MiB" }), "memory", "at least 6MiB"),
            (json!({ "networks": "bridge" }), "networks", "networks"),
        ] {
            let (at, said) = mistake(settings).unwrap();
            assert!(at.as_deref() == Some(key) && said.contains(words), "{at:?} {said}");
        }
    }
}
