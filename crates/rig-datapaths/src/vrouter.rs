//! netrig's own overlay router, on every node of the path.

mod commands;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use ipnet::IpNet;
use rig_datapath::vrouter::{
    Action, Config, Encapsulation, Interface, NextHop, Peer, ROUTER_MAC, Router, Sizes, Timeouts, Tunnel, Underlay,
    Vni, Vrf,
};
use rig_testbed::UPLINK;
use rig_testbed::datapath::{
    Asked, Command, Counters, Datapath, Live, Machine, Missing, Mistake, Settings, Site, State, read_settings,
};
use rig_testbed::plan::{Link, Node, Plan};
use rig_testbed::topology::{Endpoint, Topology};
use rig_wire::ethernet::Mac;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::commands::Told;

/// tc programs on the node's ends of containers' links and on the wire.
#[derive(Debug)]
pub(crate) struct Vrouter;

/// What a suite can say of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Own {
    #[serde(default)]
    encapsulation: Wrapping,
    /// Whether packets are held against rules, and are of flows.
    #[serde(default = "yes")]
    policy: bool,
    /// Rules of each container and direction that match nothing, before one that allows all.
    #[serde(default)]
    rules: u32,
}

#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Wrapping {
    #[default]
    MplsOUdp,
    MplsOGre,
    Vxlan,
}

fn yes() -> bool {
    true
}

/// The containers' network.
const VRF: u32 = 1;
const VNI: u32 = 42;
/// The label of a node's first container.
const FIRST_LABEL: u32 = 100;
/// How often flows that have ended are forgotten.
const SWEEP: Duration = Duration::from_secs(1);
/// The most rules that are asked for: one more allows.
const MOST_RULES: u32 = 1023;

impl Datapath for Vrouter {
    fn name(&self) -> &'static str {
        "vrouter"
    }

    fn validate(&self, asked: &Asked<'_>) -> Result<(), Mistake> {
        let own: Own = read_settings(asked.settings)?;
        check_rules(own.rules).map_err(|mistake| mistake.at("rules"))?;
        if own.rules > 0 && !own.policy {
            return Err(Mistake::new("rules without policy", "remove one of both").at("rules"));
        }
        Ok(())
    }

    fn missing(&self, machine: &Machine) -> Option<Missing> {
        machine.rootless.then(|| Missing::new("tc programs need root", "run netrig as root"))
    }

    fn commands(&self) -> &'static [Command] {
        commands::ALL
    }

    fn check_command(&self, name: &str, arguments: &Settings) -> Result<(), Mistake> {
        commands::check(name, arguments)
    }

    fn attach(&self, site: &Site<'_>, settings: &Settings) -> Result<Box<dyn Live>> {
        Ok(Box::new(Routing::start(site, settings).context("start the vRouter")?))
    }
}

fn check_rules(rules: u32) -> Result<(), Mistake> {
    match rules {
        0..=MOST_RULES => Ok(()),
        _ => Err(Mistake::new(format!("{rules} rules"), format!("choose up to {MOST_RULES}"))),
    }
}

/// The router of a node at work.
#[derive(Debug)]
struct Routing {
    router: Router,
    /// All that follows from the testbed: every route, and no rules.
    whole: Config,
    told: Told,
    /// Where tunnels to each node end; nowhere, of this one.
    ends: BTreeMap<String, Option<Ipv4Addr>>,
    settings: Settings,
    encapsulation: Encapsulation,
    interfaces: BTreeSet<u32>,
    sweeping: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Routing {
    fn start(site: &Site<'_>, settings: &Settings) -> Result<Self> {
        let own: Own = read_settings(settings)?;
        let netlink = site.node().netlink()?;
        let index = |name: &str| Ok(netlink.index(name)?);
        let whole = config(site.topology(), site.plan(), site.number(), own.encapsulation.into(), index)?;
        let policy = own.policy.then_some((own.rules, Action::Allow));
        let told = Told { policy, withdrawn: BTreeSet::new() };
        let config = told.of(&whole)?;
        let nodes = site.plan().nodes.iter().enumerate();
        let end = |number: usize, node: &Node| underlay(node).map(|(end, _)| end).filter(|_| number != site.number());
        let ends = nodes.map(|(number, node)| (node.name.clone(), end(number, node))).collect();
        let interfaces = config.interfaces.keys().copied().collect();
        let router = site.node().run(|| -> Result<Router> {
            let mut router = Router::load(Sizes::default())?;
            router.apply(&config)?;
            router.attach()?;
            Ok(router)
        })??;
        let sweeper = router.sweeper();
        let (stop, stopped) = channel();
        let sweeping = site.node().thread("vrouter", move || {
            while stopped.recv_timeout(SWEEP) == Err(RecvTimeoutError::Timeout) {
                // A table that cannot be read now can be the next time; flows that stay are counted where there are too many.
                let _ = sweeper.sweep(&Timeouts::default());
            }
        })?;
        let Value::Object(settings) = serde_json::to_value(&own)? else { anyhow::bail!("settings that are no table") };
        let encapsulation = own.encapsulation.into();
        let sweeping = Some((stop, sweeping));
        Ok(Self { router, whole, told, ends, settings, encapsulation, interfaces, sweeping })
    }

    /// Has the router do what it is told, from its next packet on.
    fn tell(&mut self, told: Told) -> Result<()> {
        self.router.apply(&told.of(&self.whole)?)?;
        if let Some((rules, _)) = told.policy {
            self.settings.insert("rules".to_owned(), rules.into());
        }
        self.told = told;
        Ok(())
    }

    fn connections(&self) -> Result<u64> {
        let each = self.interfaces.iter().map(|interface| self.router.connections(*interface));
        Ok(each.sum::<Result<u64, _>>()?)
    }
}

impl Drop for Routing {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.sweeping.take() {
            drop(stop);
            let _ = thread.join();
        }
    }
}

impl From<Wrapping> for Encapsulation {
    fn from(wrapping: Wrapping) -> Self {
        match wrapping {
            Wrapping::MplsOUdp => Self::MplsOverUdp,
            Wrapping::MplsOGre => Self::MplsOverGre,
            Wrapping::Vxlan => Self::Vxlan,
        }
    }
}

/// A container as its node and others see it.
struct Container {
    name: String,
    number: u32,
    /// The node's end of its link.
    port: String,
    mac: Mac,
    addresses: Vec<IpAddr>,
}

fn containers(node: &Node) -> Vec<Container> {
    let Some((own, containers)) = node.spaces.split_first() else { return Vec::new() };
    let port_of = |space: &str| {
        let leads = |link: &Link| matches!(link, Link::Veth { far } if far.space == space);
        own.interfaces.iter().find(|interface| leads(&interface.link))
    };
    let container = |(number, space): (u32, &rig_testbed::plan::Space)| {
        let (port, end) = (port_of(&space.name)?, space.interface(UPLINK)?);
        Some(Container {
            name: space.name.clone(),
            number,
            port: port.name.clone(),
            mac: Mac(end.mac?.0),
            addresses: end.addresses.iter().map(|address| address.address).collect(),
        })
    };
    (1..).zip(containers).filter_map(container).collect()
}

/// Where a node's tunnels begin and end.
fn underlay(node: &Node) -> Option<(Ipv4Addr, u16)> {
    let uplink = node.spaces.first()?.interface(UPLINK)?;
    let address = uplink.addresses.iter().find_map(|address| match address.address {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    });
    Some((address?, uplink.mtu.unwrap_or(rig_testbed::plan::DEFAULT_MTU) as u16))
}

/// What the router of node `own` of a testbed does, without rules.
fn config(
    topology: &Topology,
    plan: &Plan,
    own: usize,
    encapsulation: Encapsulation,
    index: impl Fn(&str) -> Result<u32>,
) -> Result<Config> {
    let mut config = Config { mac: ROUTER_MAC, ..Config::default() };
    let mut vrf = Vrf::default();
    let here = plan.nodes.get(own).context("find the node in its plan")?;
    if let (Some((address, mtu)), true) = (underlay(here), plan.nodes.len() > 1) {
        let interface = index(UPLINK)?;
        let others = plan.nodes.iter().enumerate().filter(|(node, _)| *node != own);
        let peers = others.filter_map(|(_, node)| underlay(node));
        let peers = peers.map(|(peer, _)| (peer, Peer { interface, gateway: peer, mtu })).collect();
        config.underlay = Some(Underlay { address, peers });
    }
    for (number, node) in plan.nodes.iter().enumerate() {
        for container in containers(node) {
            let next_hop = if number == own {
                NextHop::Interface(container.number)
            } else {
                let (peer, _) = underlay(node).context("find where the other node's tunnels end")?;
                let label = match encapsulation {
                    Encapsulation::Vxlan => VNI,
                    _ => FIRST_LABEL + container.number,
                };
                NextHop::Tunnel(Tunnel { peer, encapsulation, label, mac: container.mac })
            };
            for address in container.addresses {
                vrf.routes.insert(address.into(), next_hop.clone());
            }
            // Of packets that the endpoint makes itself.
            let endpoint: Option<Endpoint> = container.name.parse().ok();
            if let Some(pool) = endpoint.and_then(|endpoint| topology.pool(&endpoint)) {
                let (address, length) = pool.subnet();
                vrf.routes.insert(IpNet::new(address, length)?, next_hop.clone());
            }
            vrf.macs.insert(container.mac, next_hop);
        }
    }
    for container in containers(here) {
        let interface = Interface {
            index: index(&container.port)?,
            vrf: VRF,
            mac: container.mac,
            gateway: None,
            gateway6: None,
            policy: None,
            mirror: None,
            fat: BTreeSet::new(),
        };
        config.interfaces.insert(container.number, interface);
        config.labels.insert(FIRST_LABEL + container.number, NextHop::Interface(container.number));
    }
    config.vnis.insert(VNI, Vni::Vrf(VRF));
    config.vrfs.insert(VRF, vrf.into());
    Ok(config)
}

impl Live for Routing {
    fn version(&self) -> Result<String> {
        Ok(format!("netrig {}, tc programs, {}", env!("CARGO_PKG_VERSION"), self.encapsulation.name()))
    }

    fn settings(&self) -> Settings {
        self.settings.clone()
    }

    fn counters(&self) -> Result<Counters> {
        let mut counts = BTreeMap::new();
        for interface in &self.interfaces {
            let traffic = self.router.traffic(*interface)?;
            for (name, count) in [
                ("in_packets", traffic.in_packets),
                ("in_bytes", traffic.in_bytes),
                ("out_packets", traffic.out_packets),
                ("out_bytes", traffic.out_bytes),
            ] {
                *counts.entry(name.to_owned()).or_insert(0) += count;
            }
        }
        let drops = self.router.drops()?.into_iter().map(|(reason, count)| (reason.text().to_owned(), count));
        Ok(Counters { counts, drops: drops.collect() })
    }

    fn state(&self) -> Result<State> {
        Ok(State { connections: Some(self.connections()?), ..State::default() })
    }

    fn command(&mut self, name: &str, arguments: &Value) -> Result<Value> {
        commands::execute(self, name, arguments)
    }
}
