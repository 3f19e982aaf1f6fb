//! What interfaces may send and receive, as lists of rules: security groups in one, the network's policies in the other.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use rig_datapath::vrouter::{Action, FlowActions, List, Rule};

use super::NameNumbers;
use crate::routes::{Destination, RouteTable};
use crate::settings::{GroupRule, Interface, Network, Packets, Remote, RuleEnd, SecurityGroup, Settings};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Direction {
    /// What the container sends.
    Outward,
    /// What it receives.
    Inward,
}

impl Direction {
    fn name(self) -> &'static str {
        match self {
            Self::Outward => "out",
            Self::Inward => "in",
        }
    }

    fn rules_of(self, group: &SecurityGroup) -> &[GroupRule] {
        match self {
            Self::Outward => group.outward.as_deref().unwrap_or_default(),
            Self::Inward => &group.inward,
        }
    }
}

/// Whom rules may name, as addresses.
pub(super) struct Remotes<'a> {
    settings: &'a Settings,
    /// Addresses of the members of a security group in a network, on all nodes.
    members: BTreeMap<(&'a str, &'a str), BTreeSet<IpNet>>,
    /// Those of networks: what the settings say and what other nodes have announced.
    prefixes: BTreeMap<&'a str, BTreeSet<IpNet>>,
    /// Prefixes that rules of a network's policies are for in place of a network.
    own_ends: BTreeMap<&'a str, BTreeSet<IpNet>>,
    /// Security groups with rules for members of groups.
    by_group: BTreeSet<(&'a str, Direction)>,
    analysers: NameNumbers,
}

/// What a list is made of.
pub(super) struct Source<'a> {
    /// The same for lists that are the same.
    pub(super) name: String,
    interface: &'a Interface,
    direction: Direction,
    rules: Rules<'a>,
}

enum Rules<'a> {
    OfGroups(Vec<&'a SecurityGroup>),
    OfPolicies(&'a Network),
}

impl<'a> Remotes<'a> {
    pub(super) fn of(settings: &'a Settings, node: &'a str, routes: &'a RouteTable, analysers: NameNumbers) -> Self {
        let mut remotes = Self {
            settings,
            members: BTreeMap::new(),
            prefixes: BTreeMap::new(),
            own_ends: BTreeMap::new(),
            by_group: BTreeSet::new(),
            analysers,
        };
        for (name, network) in &settings.networks {
            remotes.prefixes.insert(name, network.prefixes());
            let policies = network.policies.iter().filter_map(|policy| settings.policies.get(policy));
            let ends = policies.flat_map(|policy| &policy.rules).flat_map(|rule| [&rule.source, &rule.destination]);
            let prefix = |end: &RuleEnd| if let RuleEnd::Prefix(prefix) = end { Some(*prefix) } else { None };
            remotes.own_ends.insert(name, ends.filter_map(prefix).collect());
        }
        for (name, group) in &settings.security_groups {
            for direction in [Direction::Outward, Direction::Inward] {
                if direction.rules_of(group).iter().any(|rule| matches!(rule.remote, Remote::Group(_))) {
                    remotes.by_group.insert((name, direction));
                }
            }
        }
        for (_, interface) in settings.interfaces_of(node) {
            for group in &interface.security_groups {
                let members = remotes.members.entry((group, &interface.network)).or_default();
                members.extend(interface.all_addresses().map(IpNet::from));
            }
        }
        for route in routes.iter() {
            let Destination::Prefix(prefix) = route.key.destination else { continue };
            for group in &route.security_groups {
                remotes.members.entry((group, &route.key.network)).or_default().insert(prefix);
            }
            if let Some(prefixes) = remotes.prefixes.get_mut(route.key.network.as_str())
                && !prefixes.iter().any(|known| known.contains(&prefix))
            {
                prefixes.insert(prefix);
            }
        }
        remotes
    }

    /// What the list of an interface's security groups is made of; none, where all is let through.
    pub(super) fn groups(&self, interface: &'a Interface, direction: Direction) -> Option<Source<'a>> {
        let names = &interface.security_groups;
        let groups: Vec<&SecurityGroup> =
            names.iter().filter_map(|group| self.settings.security_groups.get(group)).collect();
        // One group that lets everything out is enough.
        let lets_all = groups.iter().any(|group| direction == Direction::Outward && group.outward.is_none());
        if groups.is_empty() || lets_all {
            return None;
        }
        let by_group = names.iter().any(|group| self.by_group.contains(&(group, direction)));
        let of = if by_group { format!(" in network {}", interface.network) } else { String::new() };
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let name = format!("{} by security groups {}{of}", direction.name(), names.join(","));
        Some(Source { name, interface, direction, rules: Rules::OfGroups(groups) })
    }

    /// What the list of the policies of an interface's network is made of; none, where it has no policies.
    pub(super) fn policies(&self, interface: &'a Interface, direction: Direction) -> Option<Source<'a>> {
        let network = self.settings.networks.get(&interface.network)?;
        if network.policies.is_empty() {
            return None;
        }
        // Rules for prefixes are for some interfaces of a network and not for others, which then have different lists.
        let ends = self.own_ends.get(interface.network.as_str()).into_iter().flatten();
        let ends = ends.filter(|prefix| interface.all_addresses().any(|address| prefix.contains(&address)));
        let ends: String = ends.map(|prefix| format!(" {prefix}")).collect();
        let name = format!("{} by policies of network {}{ends}", direction.name(), interface.network);
        Some(Source { name, interface, direction, rules: Rules::OfPolicies(network) })
    }

    pub(super) fn list(&self, source: &Source) -> List {
        let rules = match &source.rules {
            Rules::OfGroups(groups) => {
                let rules = groups.iter().flat_map(|group| source.direction.rules_of(group));
                self.of_groups(rules, &source.interface.network)
            }
            Rules::OfPolicies(network) => self.of_policies(network, source.interface, source.direction),
        };
        List { rules, otherwise: Action::Deny }
    }

    fn of_groups<'r>(&self, of_groups: impl Iterator<Item = &'r GroupRule>, network: &str) -> Vec<Rule> {
        let mut rules = Vec::new();
        for rule in of_groups {
            let remote = match &rule.remote {
                Remote::Any => BTreeSet::new(),
                Remote::Prefix(prefix) => BTreeSet::from([*prefix]),
                Remote::Group(group) => match self.members(group, network) {
                    // Without addresses it would be a rule for all.
                    none if none.is_empty() => continue,
                    members => members,
                },
            };
            let flow_actions = FlowActions { log: rule.log, mirror: None };
            rules.extend(each(&rule.packets, &remote, Action::Allow, flow_actions));
        }
        rules
    }

    fn of_policies(&self, network: &Network, interface: &Interface, direction: Direction) -> Vec<Rule> {
        let mut rules = Vec::new();
        let policies = network.policies.iter().filter_map(|policy| self.settings.policies.get(policy));
        for rule in policies.flat_map(|policy| &policy.rules) {
            for (from, to) in rule.orientations() {
                let (own, far) = match direction {
                    Direction::Outward => (from, to),
                    Direction::Inward => (to, from),
                };
                let like = match own {
                    RuleEnd::Any => None,
                    RuleEnd::Network(own) if *own == interface.network => None,
                    RuleEnd::Prefix(prefix) if interface.all_addresses().any(|address| prefix.contains(&address)) => {
                        Some(*prefix)
                    }
                    RuleEnd::Network(_) | RuleEnd::Prefix(_) => continue,
                };
                let Some(remote) = self.far(far, like) else { continue };
                let flow_actions =
                    FlowActions { log: rule.log, mirror: rule.mirror.as_ref().and_then(|name| self.analyser(name)) };
                rules.extend(each(&rule.packets, &remote, rule.action, flow_actions));
            }
        }
        let mut own = self.prefixes.get(interface.network.as_str()).cloned().unwrap_or_default();
        if network.broadcast {
            own.extend(of_all(direction));
        }
        let all = Packets { protocol: None, ports: vec![0..=u16::MAX] };
        rules.extend(each(&all, &own, Action::Allow, FlowActions::default()));
        rules
    }

    fn analyser(&self, name: &str) -> Option<u8> {
        self.analysers.get(name).and_then(|number| number.try_into().ok())
    }

    /// Who can be reached from a network: elsewhere the same addresses may be another container's.
    fn members(&self, group: &str, network: &str) -> BTreeSet<IpNet> {
        let connected = self.settings.networks.get(network).into_iter().flat_map(|network| &network.connected);
        let networks = connected.map(String::as_str).chain([network]);
        networks.filter_map(|network| self.members.get(&(group, network))).flatten().copied().collect()
    }

    /// Addresses of an end, all for none; `None` for an end without members. Who talks from an IPv4 address talks to IPv4
    /// addresses.
    fn far(&self, end: &RuleEnd, like: Option<IpNet>) -> Option<BTreeSet<IpNet>> {
        let all = match end {
            RuleEnd::Any => {
                return Some(like.map(everything).into_iter().collect());
            }
            RuleEnd::Prefix(prefix) => BTreeSet::from([*prefix]),
            RuleEnd::Network(network) => self.prefixes.get(network.as_str()).cloned().unwrap_or_default(),
        };
        let same = |prefix: &IpNet| like.is_none_or(|like| like.addr().is_ipv4() == prefix.addr().is_ipv4());
        let all: BTreeSet<IpNet> = all.into_iter().filter(same).collect();
        (!all.is_empty()).then_some(all)
    }
}

/// Ends of frames to all, which stay in their network: all and groups, and who has no address there yet.
fn of_all(direction: Direction) -> Vec<IpNet> {
    let net = |address: IpAddr, length| IpNet::new(address, length).ok();
    let of = match direction {
        Direction::Outward => [
            net(Ipv4Addr::BROADCAST.into(), 32),
            net(Ipv4Addr::new(224, 0, 0, 0).into(), 4),
            net(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0).into(), 8),
        ],
        Direction::Inward => [
            net(Ipv4Addr::UNSPECIFIED.into(), 32),
            net(Ipv6Addr::UNSPECIFIED.into(), 128),
            net(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0).into(), 10),
        ],
    };
    of.into_iter().flatten().collect()
}

fn everything(like: IpNet) -> IpNet {
    match like {
        IpNet::V4(_) => Ipv4Net::default().into(),
        IpNet::V6(_) => Ipv6Net::default().into(),
    }
}

fn each(
    packets: &Packets,
    remote: &BTreeSet<IpNet>,
    action: Action,
    flow_actions: FlowActions,
) -> impl Iterator<Item = Rule> {
    let protocol = packets.protocol;
    packets.ports.iter().map(move |ports| Rule {
        protocol,
        ports: ports.clone(),
        remote: remote.clone(),
        action,
        flow_actions,
    })
}
