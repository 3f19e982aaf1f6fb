//! What of the file fits together: found when all of it is read.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use rig_cli::mistakes::FileError;
use rig_datapath::vrouter::{Action, Encapsulation, MOST_MEMBERS, MOST_RULES};

use super::networks::overlap;
use super::read::{Reader, Result};
use super::{GroupRule, Network, Node, RuleEnd, Settings};

/// Finds out which networks are connected: those whose policies allow it, both of them.
pub(super) fn connect(settings: &mut Settings, reader: &Reader) -> Result<()> {
    let mut connected: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, network) in &settings.networks {
        for policy_name in &network.policies {
            let rules = settings.policies.get(policy_name).map_or(&[][..], |policy| &policy.rules);
            for rule in rules.iter().filter(|rule| rule.action == Action::Allow) {
                for (own, remote) in [(&rule.source, &rule.destination), (&rule.destination, &rule.source)] {
                    let named = matches!(own, RuleEnd::Network(own) if own == name);
                    match remote {
                        RuleEnd::Network(other) if other != name && (named || *own == RuleEnd::Any) => {
                            if !allows(settings, other, name) {
                                // Said by name it has to be so; `any` is each network that wants to.
                                if named {
                                    return Err(one_sided(reader, policy_name, name, other));
                                }
                                continue;
                            }
                            connected.entry(name.clone()).or_default().insert(other.clone());
                        }
                        RuleEnd::Any if named || *own == RuleEnd::Any => {
                            let others = settings.networks.keys().filter(|other| *other != name);
                            let others = others.filter(|other| allows(settings, other, name));
                            connected.entry(name.clone()).or_default().extend(others.cloned());
                        }
                        _ => {}
                    }
                }
            }
        }
    }
    for (name, connected) in connected {
        settings.networks.entry(name).and_modify(|network| network.connected = connected);
    }
    Ok(())
}

/// Whether a policy of network `of` has a rule that allows something between it and `other`.
fn allows(settings: &Settings, of: &str, other: &str) -> bool {
    let matches =
        |end: &RuleEnd, name: &str| *end == RuleEnd::Any || matches!(end, RuleEnd::Network(network) if network == name);
    let policies = settings.networks.get(of).into_iter().flat_map(|network| &network.policies);
    policies.filter_map(|policy| settings.policies.get(policy)).flat_map(|policy| &policy.rules).any(|rule| {
        let ends = [(&rule.source, &rule.destination), (&rule.destination, &rule.source)];
        rule.action == Action::Allow && ends.iter().any(|(own, far)| matches(own, of) && matches(far, other))
    })
}

fn one_sided(reader: &Reader, policy: &str, network: &str, other: &str) -> FileError {
    let span = reader.spans.policies.get(&(network.to_owned(), policy.to_owned())).cloned().unwrap_or_default();
    let what = format!(
        "policy '{policy}' connects network '{network}' with '{other}', and no policy of '{other}' connects it with \
         '{network}'"
    );
    reader.error(span, what, format!("add policies = [\"{policy}\"] to network '{other}'"))
}

/// How many interfaces a network has on which node.
type Members<'a> = BTreeMap<&'a str, BTreeMap<&'a str, usize>>;

/// # Errors
/// The first of what does not fit together.
pub(super) fn together(settings: &Settings, reader: &Reader) -> Result<()> {
    for name in settings.networks.keys() {
        overlaps(settings, reader, name)?;
    }
    let mut members = Members::new();
    for interface in settings.interfaces.values() {
        *members.entry(&interface.network).or_default().entry(&interface.node).or_default() += 1;
    }
    for (name, nodes) in &members {
        flood(settings, reader, name, nodes)?;
    }
    for from in settings.nodes.keys() {
        for network in settings.networks_of(from).keys() {
            tunnels(settings, reader, &members, from, network)?;
        }
    }
    for name in settings.interfaces.keys() {
        rules(settings, reader, name)?;
    }
    Ok(())
}

/// A frame to all is copied so many times.
fn flood(settings: &Settings, reader: &Reader, name: &str, nodes: &BTreeMap<&str, usize>) -> Result<()> {
    if settings.networks.get(name).is_none_or(|network| !network.broadcast) {
        return Ok(());
    }
    let others = nodes.len() - 1;
    let Some((node, count)) = nodes.iter().find(|(_, count)| **count + others > MOST_MEMBERS) else { return Ok(()) };
    let what = format!(
        "network '{name}' has {count} interfaces on node '{node}' and {others} other nodes, and frames to all are copied to \
         {MOST_MEMBERS} at most"
    );
    let span = reader.names.networks.get(name).cloned().unwrap_or_default();
    Err(reader.error(span, what, "set broadcast = false for it"))
}

/// An address is of one network only, for all that can reach it. With those that others reach through it, a network has
/// nothing to do.
fn overlaps(settings: &Settings, reader: &Reader, name: &str) -> Result<()> {
    let Some(network) = settings.networks.get(name) else { return Ok(()) };
    let connected = network.connected.iter().filter_map(|other| settings.networks.get_key_value(other));
    let reached: Vec<(&str, &Network)> =
        std::iter::once((name, network)).chain(connected.map(|(name, network)| (name.as_str(), network))).collect();
    let between = |one: &str, other: &str| match one == name || other == name {
        true => format!("networks '{one}' and '{other}' are connected"),
        false => format!("networks '{one}' and '{other}' are both connected with '{name}'"),
    };
    let of = |(name, network): &(&'_ str, &'_ Network)| -> Vec<(IpNet, String)> {
        network.subnets.iter().map(|subnet| (subnet.prefix, (*name).to_owned())).collect()
    };
    // Prefixes overlap only if one holds the other; in this order the next one is then among those that it holds.
    let mut subnets: Vec<(IpNet, String)> = reached.iter().flat_map(of).collect();
    subnets.sort();
    for pair in subnets.windows(2) {
        let [(one, one_name), (other, other_name)] = pair else { continue };
        if overlap(*one, *other) {
            let what = format!("{}, and their subnets {one} and {other} overlap", between(one_name, other_name));
            let span = reader.spans.subnets.get(&(other_name.clone(), *other)).cloned().unwrap_or_default();
            return Err(reader.error(span, what, "choose another prefix for one of them"));
        }
    }
    let mut routes: BTreeMap<IpNet, &str> = BTreeMap::new();
    for (routes_of, routed) in reached {
        for prefix in routed.routes.keys() {
            let span = || reader.spans.routes.get(&(routes_of.to_owned(), *prefix)).cloned().unwrap_or_default();
            let before = subnets.partition_point(|(subnet, _)| subnet <= prefix);
            let holder = before.checked_sub(1).and_then(|at| subnets.get(at));
            if let Some((subnet, of)) = holder.filter(|(subnet, of)| of != routes_of && subnet.contains(prefix)) {
                let what = format!(
                    "{}, and the route of '{routes_of}' to {prefix} is to a part of {subnet}",
                    between(of, routes_of)
                );
                return Err(reader.error(span(), what, "remove the route, or choose another prefix"));
            }
            // Its own way is nearer than others'.
            match routes.insert(*prefix, routes_of) {
                Some(other) if other != name => {
                    let what = format!("{}, and both have a route to {prefix}", between(other, routes_of));
                    return Err(reader.error(span(), what, "remove one"));
                }
                Some(own) => routes.insert(*prefix, own),
                None => None,
            };
        }
    }
    Ok(())
}

/// Whether a node gets to all others that have interfaces of a network, and with packets of what size.
fn tunnels(settings: &Settings, reader: &Reader, members: &Members, from: &str, name: &str) -> Result<()> {
    let (Some(node), Some(network)) = (settings.nodes.get(from), settings.networks.get(name)) else { return Ok(()) };
    for to in members.get(name).into_iter().flat_map(BTreeMap::keys).copied().filter(|to| *to != from) {
        let Some(other) = settings.nodes.get(to) else { continue };
        let Some(encapsulation) = settings.encapsulation(network, node, other) else {
            let can = |node: &Node| names(node.encapsulations.iter());
            let what = format!(
                "nodes '{from}' and '{to}' have no encapsulation in common for network '{name}': it wants {}, they can {} and {}",
                names(network.encapsulation.iter()),
                can(node),
                can(other)
            );
            let span = reader.names.nodes.get(from).cloned().unwrap_or_default();
            let hint = "add one to 'encapsulations' of a node, or to 'encapsulation' of the network or [router]";
            return Err(reader.error(span, what, hint));
        };
        let Some((mtu, of)) =
            [(node.mtu, from), (other.mtu, to)].into_iter().filter_map(|(mtu, of)| Some((mtu?, of))).min()
        else {
            continue;
        };
        if let Some(what) = network.too_small(mtu, encapsulation, name) {
            let span = reader.names.nodes.get(of).cloned().unwrap_or_default();
            let hint = format!("raise the MTU of the underlay to at least {}", network.smallest_mtu(encapsulation));
            return Err(reader.error(span, format!("node '{of}': {what}"), hint));
        }
    }
    Ok(())
}

fn names<'a>(ways: impl Iterator<Item = &'a Encapsulation>) -> String {
    ways.map(|way| way.name()).collect::<Vec<_>>().join(", ")
}

/// Whether what an interface may send and receive can be said in lists.
fn rules(settings: &Settings, reader: &Reader, name: &str) -> Result<()> {
    let Some(interface) = settings.interfaces.get(name) else { return Ok(()) };
    let refused = |what: String, hint: String| {
        let span = reader.spans.interfaces.get(name).cloned().unwrap_or_default();
        Err(reader.error(span, what, hint))
    };
    let groups = || interface.security_groups.iter().filter_map(|group| settings.security_groups.get(group));
    let count = |rules: &[GroupRule]| rules.iter().map(|rule| rule.packets.ports.len()).sum::<usize>();
    let inward: usize = groups().map(|group| count(&group.inward)).sum();
    let outward: usize = groups().filter_map(|group| group.outward.as_deref()).map(count).sum();
    let too_many = |of: &str, most: usize| {
        let what = format!("{of} of interface '{name}' have {most} rules in one direction");
        refused(what, format!("{MOST_RULES} are the most; each range of ports counts as one"))
    };
    if inward.max(outward) > MOST_RULES {
        return too_many("the security groups", inward.max(outward));
    }
    // The last rule is that the network itself is allowed.
    let (mut inward, mut outward) = (1, 1);
    for policy_name in settings.networks.get(&interface.network).into_iter().flat_map(|network| &network.policies) {
        for rule in settings.policies.get(policy_name).into_iter().flat_map(|policy| &policy.rules) {
            for (from, to) in rule.orientations() {
                for (own, count) in [(from, &mut outward), (to, &mut inward)] {
                    match own {
                        RuleEnd::Network(own) if *own != interface.network => {}
                        RuleEnd::Any | RuleEnd::Network(_) => *count += rule.packets.ports.len(),
                        RuleEnd::Prefix(prefix) => {
                            let family = |address: &IpAddr| address.is_ipv4() == prefix.addr().is_ipv4();
                            let inside: BTreeSet<bool> = interface
                                .all_addresses()
                                .filter(family)
                                .map(|address| prefix.contains(&address))
                                .collect();
                            if inside.len() > 1 {
                                let what = format!(
                                    "policy '{policy_name}' has a rule for {prefix}, and interface '{name}' has addresses \
                                     inside and outside of it"
                                );
                                let hint =
                                    "rules are for whole interfaces: choose another prefix, or make two interfaces";
                                return refused(what, hint.to_owned());
                            }
                            *count += if inside.contains(&true) { rule.packets.ports.len() } else { 0 };
                        }
                    }
                }
            }
        }
    }
    if inward.max(outward) > MOST_RULES {
        return too_many("the policies of the network", inward.max(outward));
    }
    Ok(())
}
