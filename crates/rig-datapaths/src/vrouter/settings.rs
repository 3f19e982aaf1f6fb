//! A testbed as `vrouter.toml` would say it: each container's interface in its network.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use anyhow::{Context, Result};
use ipnet::IpNet;
use netrig_vrouter::settings::Router;
use rig_datapath::vrouter::Encapsulation;
use rig_testbed::UPLINK;
use rig_testbed::datapath::Site;
use rig_testbed::plan::{Link, NamespacePlan, Node};
use rig_testbed::topology::container_of_network;
use serde::Serialize;

/// The VXLAN network identifier of the first network.
const FIRST_VNI: u32 = 42;
/// The label of a node's first container.
const FIRST_LABEL: u32 = 101;
/// Of a node without a wire, for which no other asks (RFC 5737).
const ALONE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// The security group of all containers, where there are rules.
const GROUP: &str = "rules";

/// What a router of a testbed is told, of all nodes.
#[derive(Debug, Clone)]
pub(super) struct TestbedSettings {
    encapsulation: Encapsulation,
    pub(super) policy: Option<Policy>,
    /// Where tunnels to each node end.
    nodes: BTreeMap<String, Ipv4Addr>,
    /// The VXLAN network identifiers of networks, with their subnets.
    networks: BTreeMap<String, (u32, BTreeSet<IpNet>)>,
    interfaces: Vec<Interface>,
    /// What is behind containers' interfaces: the network, the prefix, and the names of the interfaces.
    routes: BTreeMap<(String, IpNet), Vec<String>>,
    /// Nodes of whose containers nothing is said.
    pub(super) withdrawn: BTreeSet<String>,
}

/// What all containers may send and receive; without one, packets are of no flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Policy {
    /// That match nothing.
    pub(super) rules: u32,
    /// Whether the rest is let through.
    pub(super) allows: bool,
}

#[derive(Debug, Clone, Serialize)]
struct Interface {
    name: String,
    node: String,
    network: String,
    /// The node's end.
    device: String,
    addresses: Vec<IpAddr>,
    mac: String,
    label: u32,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    security_groups: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    most_flows: Option<u32>,
}

/// The file.
#[derive(Serialize)]
struct File<'a> {
    router: RouterTable,
    node: Vec<NodeTable<'a>>,
    network: Vec<NetworkTable<'a>>,
    security_group: Vec<GroupTable>,
    interface: Vec<Interface>,
    route: Vec<RouteTable<'a>>,
}

#[derive(Serialize)]
struct RouterTable {
    encapsulation: [&'static str; 1],
}

#[derive(Serialize)]
struct NodeTable<'a> {
    name: &'a str,
    address: Ipv4Addr,
}

#[derive(Serialize)]
struct NetworkTable<'a> {
    name: &'a str,
    vni: u32,
    subnets: &'a BTreeSet<IpNet>,
    broadcast: bool,
}

#[derive(Serialize)]
struct RouteTable<'a> {
    network: &'a str,
    prefix: IpNet,
    via: Vec<&'a str>,
}

#[derive(Serialize)]
struct GroupTable {
    name: &'static str,
    #[serde(rename = "in")]
    inward: Vec<Rule>,
    #[serde(rename = "out")]
    outward: Vec<Rule>,
}

/// A rule that allows; all, where nothing is said.
#[derive(Clone, Default, Serialize)]
struct Rule {
    #[serde(skip_serializing_if = "Option::is_none")]
    protocol: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ports: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remote_prefix: Option<IpNet>,
}

impl TestbedSettings {
    /// Of all nodes of a testbed.
    pub(super) fn of(site: &Site, encapsulation: Encapsulation, policy: Option<Policy>) -> Result<Self> {
        let mut new = Self {
            encapsulation,
            policy,
            nodes: BTreeMap::new(),
            networks: BTreeMap::new(),
            interfaces: Vec::new(),
            routes: BTreeMap::new(),
            withdrawn: BTreeSet::new(),
        };
        for number in 1..=site.networks() {
            new.networks.insert(container_of_network(number), (FIRST_VNI + number - 1, BTreeSet::new()));
        }
        for node in &site.plan().nodes {
            new.nodes.insert(node.name.clone(), underlay(node).unwrap_or(ALONE));
            let Some((own, containers)) = node.spaces.split_first() else { continue };
            for (label, space) in (FIRST_LABEL..).zip(containers) {
                new.add(site, (node, own), space, label)
                    .with_context(|| format!("find the interface of {} in the testbed's plan", space.name))?;
            }
        }
        Ok(new)
    }

    fn add(
        &mut self,
        site: &Site,
        (node, own): (&Node, &NamespacePlan),
        space: &NamespacePlan,
        label: u32,
    ) -> Result<()> {
        let container = site.container(&space.name)?;
        let network = container_of_network(container.network);
        let leads = |link: &Link| matches!(link, Link::Veth { far } if far.space == space.name);
        let port = own.interfaces.iter().find(|interface| leads(&interface.link)).context("it has no link")?;
        let end = space.interface(UPLINK).context("it has no end")?;
        let (_, subnets) = self.networks.get_mut(&network).context("it is of no network")?;
        subnets.extend(end.addresses.iter().map(IpNet::trunc));
        let name = format!("{}.{}", node.name, port.name);
        // Of packets that the endpoint makes itself.
        if let Some(pool) = container.pool {
            self.routes.entry((network.clone(), pool)).or_default().push(name.clone());
        }
        self.interfaces.push(Interface {
            name,
            node: node.name.clone(),
            network,
            device: port.name.clone(),
            addresses: end.addresses.iter().map(IpNet::addr).collect(),
            mac: end.mac.context("its MAC address is not known")?.to_string(),
            label,
            security_groups: Vec::new(),
            most_flows: None,
        });
        Ok(())
    }

    /// All of them.
    pub(super) fn nodes(&self) -> BTreeSet<String> {
        self.nodes.keys().cloned().collect()
    }

    pub(super) fn has_several_networks(&self) -> bool {
        self.networks.len() > 1
    }

    fn is_withdrawn(&self, interface: &Interface) -> bool {
        self.withdrawn.contains(&interface.node)
    }

    /// Networks and addresses that are withdrawn.
    pub(super) fn withdrawn_routes(&self) -> impl Iterator<Item = (&str, IpNet)> {
        let gone = || self.interfaces.iter().filter(|interface| self.is_withdrawn(interface));
        let hosts = gone().flat_map(|interface| {
            interface.addresses.iter().map(move |address| (interface.network.as_str(), IpNet::from(*address)))
        });
        let is_behind = move |via: &[String]| gone().any(|interface| via.contains(&interface.name));
        let behind = self.routes.iter().filter(move |(_, via)| is_behind(via));
        hosts.chain(behind.map(|((network, prefix), _)| (network.as_str(), *prefix)))
    }

    /// The text of the file.
    pub(super) fn text(&self) -> Result<String> {
        let mut on_nodes = BTreeMap::<&str, usize>::new();
        for interface in &self.interfaces {
            *on_nodes.entry(&interface.node).or_default() += 1;
        }
        // Without a rule flows are had by a limit: that which the router gives an interface of which nothing is said.
        let limit = |node: &str| {
            let count = on_nodes.get(node).copied().unwrap_or(1);
            Router::default().share_of_flows(count)
        };
        let is_open = self.policy == Some(Policy { rules: 0, allows: true });
        let group = self.policy.filter(|_| !is_open).map(Policy::group).transpose()?;
        let interface = |interface: &Interface| Interface {
            security_groups: group.iter().map(|_| GROUP).collect(),
            most_flows: is_open.then(|| limit(&interface.node)),
            ..interface.clone()
        };
        let there = || self.interfaces.iter().filter(|interface| !self.is_withdrawn(interface));
        let names: BTreeSet<&str> = there().map(|interface| interface.name.as_str()).collect();
        let mut routes = Vec::new();
        for ((network, prefix), via) in &self.routes {
            let via: Vec<&str> = via.iter().map(String::as_str).filter(|name| names.contains(name)).collect();
            if !via.is_empty() {
                routes.push(RouteTable { network, prefix: *prefix, via });
            }
        }
        let file = File {
            router: RouterTable { encapsulation: [self.encapsulation.name()] },
            node: self.nodes.iter().map(|(name, address)| NodeTable { name, address: *address }).collect(),
            network: self
                .networks
                .iter()
                // A network without a container has nothing to be told of.
                .filter(|(_, (_, subnets))| !subnets.is_empty())
                .map(|(name, (vni, subnets))| NetworkTable { name, vni: *vni, subnets, broadcast: false })
                .collect(),
            interface: there().map(interface).collect(),
            route: routes,
            security_group: group.into_iter().collect(),
        };
        Ok(toml::to_string(&file)?)
    }
}

impl Policy {
    /// `rules` for TCP with as many prefixes of 100.64.0.0/10 (RFC 6598), of which no container is, and one for all where the rest is
    /// let through.
    fn group(self) -> Result<GroupTable> {
        let rule = |number: u32| -> Result<Rule> {
            let address = Ipv4Addr::from(u32::from(Ipv4Addr::new(100, 64, 0, 0)) + number * 16);
            let remote_prefix = Some(IpNet::new(address.into(), 28)?);
            Ok(Rule { protocol: Some("tcp"), ports: Some(1024 + number), remote_prefix })
        };
        let mut rules = (0..self.rules).map(rule).collect::<Result<Vec<Rule>>>()?;
        rules.extend(self.allows.then(Rule::default));
        Ok(GroupTable { name: GROUP, inward: rules.clone(), outward: rules })
    }
}

/// Where a node's tunnels begin and end.
fn underlay(node: &Node) -> Option<Ipv4Addr> {
    let uplink = node.spaces.first()?.interface(UPLINK)?;
    uplink.addresses.iter().find_map(|address| match address.addr() {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::num::NonZeroU32;

    use netrig_vrouter::compile::expected;
    use netrig_vrouter::settings::Settings;
    use rig_datapath::vrouter::{Action, Config, List};

    use super::*;

    /// Two nodes with two containers each.
    fn testbed(policy: Option<Policy>) -> TestbedSettings {
        let interface = |node: &str, number: u32| Interface {
            name: format!("{node}.port{number}"),
            node: node.to_owned(),
            network: "net1".to_owned(),
            device: format!("port{number}"),
            addresses: vec![Ipv4Addr::new(172, 16, if node == "a" { 1 } else { 2 }, 3 + number as u8).into()],
            mac: format!("02:00:00:00:{}:0{number}", if node == "a" { "0a" } else { "0b" }),
            label: FIRST_LABEL + number,
            security_groups: Vec::new(),
            most_flows: None,
        };
        let pool = |prefix: &str| ("net1".to_owned(), prefix.parse().unwrap());
        TestbedSettings {
            encapsulation: Encapsulation::MplsOverUdp,
            policy,
            nodes: BTreeMap::from([("a".into(), [192, 168, 255, 1].into()), ("b".into(), [192, 168, 255, 2].into())]),
            networks: BTreeMap::from([(
                "net1".into(),
                (FIRST_VNI, BTreeSet::from(["172.16.0.0/16".parse().unwrap()])),
            )]),
            interfaces: vec![interface("a", 0), interface("a", 1), interface("b", 0), interface("b", 1)],
            routes: BTreeMap::from([
                (pool("198.18.0.0/24"), vec!["a.port0".to_owned()]),
                (pool("198.19.0.0/24"), vec!["b.port0".to_owned()]),
            ]),
            withdrawn: BTreeSet::new(),
        }
    }

    fn config(testbed: &TestbedSettings) -> Config {
        let text = testbed.text().unwrap();
        let settings = Settings::parse("vrouter.toml", &text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        expected(&settings, "a").unwrap()
    }

    const OPEN: Policy = Policy { rules: 0, allows: true };

    #[test]
    fn containers_of_a_node_share_its_table_of_flows() {
        for policy in [None, Some(OPEN), Some(Policy { rules: 9, allows: true })] {
            let config = config(&testbed(policy));
            let share = NonZeroU32::new(Router::default().flows / 2);
            assert_eq!(config.most_flows, share, "{policy:?}");
            for interface in config.interfaces.values() {
                assert_eq!(interface.policy.is_some(), policy.is_some(), "{policy:?}");
                let own = interface.policy.as_ref().and_then(|policy| policy.most_flows);
                assert!(own.is_none() || own == share, "{policy:?}: {own:?}");
            }
        }
    }

    #[test]
    fn rules_that_match_nothing_are_before_what_is_for_all() {
        assert!(config(&testbed(Some(OPEN))).lists.is_empty());
        for (rules, allows) in [(1000, true), (1023, true), (1023, false), (0, false)] {
            let config = config(&testbed(Some(Policy { rules, allows })));
            assert_eq!(config.lists.len(), 2, "inward and outward");
            for List { rules: all, otherwise } in config.lists.values() {
                let nothing: Vec<_> = all.iter().filter(|rule| rule.remote.len() == 1).collect();
                assert_eq!((nothing.len(), *otherwise), (rules as usize, Action::Deny));
                assert_eq!(all.len(), nothing.len() + usize::from(allows));
                let last = all.last().filter(|_| allows);
                assert!(last.is_none_or(|rule| rule.protocol.is_none() && rule.remote.is_empty()));
            }
            assert!(config.interfaces.values().all(|interface| {
                interface.policy.as_ref().is_some_and(|policy| policy.outward.len() == 1 && policy.inward.len() == 1)
            }));
        }
    }

    #[test]
    fn of_a_node_that_is_withdrawn_nothing_is_said() {
        let mut some = testbed(Some(OPEN));
        let before = config(&some);
        some.withdrawn.insert("b".to_owned());
        let text = some.text().unwrap();
        assert!(text.contains("192.168.255.2") && !text.contains("b.port") && !text.contains("198.19.0.0"), "{text}");
        let gone: Vec<String> =
            some.withdrawn_routes().map(|(network, prefix)| format!("{network} {prefix}")).collect();
        assert_eq!(gone, ["net1 172.16.2.3/32", "net1 172.16.2.4/32", "net1 198.19.0.0/24"]);
        let after = config(&some);
        let routes = |config: &Config| config.vrfs.values().map(|vrf| vrf.routes.len()).sum::<usize>();
        assert_eq!(routes(&before) - routes(&after), 3);
        some.withdrawn.clear();
        assert_eq!(config(&some), before);
    }
}
