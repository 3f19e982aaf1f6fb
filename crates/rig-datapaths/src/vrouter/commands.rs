//! What a vRouter at work can be told: other rules, and which nodes' routes it has.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use anyhow::{Result, bail};
use ipnet::Ipv4Net;
use rig_datapath::vrouter::{Action, Also, Config, List, NextHop, Policy, Rule};
use rig_testbed::datapath::{Command, Mistake, Settings, UnknownCommand, read_settings};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Routing, Vrouter, check_rules};
use crate::arguments::{Nothing, read};

pub(super) const ALL: &[Command] = &[
    Command {
        name: "policy",
        about: "sets the rules of all containers, both directions: { rules } that match nothing before one that does { action }, allow or deny",
    },
    Command { name: "withdraw", about: "forgets the routes to other nodes' containers: all, or those of { node }" },
    Command { name: "advertise", about: "gives routes back that were withdrawn: all, or those of { node }" },
    Command { name: "status", about: "tells rules, routes and flows" },
];

/// Outward and inward rules.
const LIST: u32 = 1;
const TCP: u8 = 6;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SetPolicy {
    #[serde(default)]
    rules: u32,
    #[serde(default)]
    action: Verdict,
}

/// What becomes of packets that no other rule matches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    #[default]
    Allow,
    Deny,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Routes {
    node: Option<String>,
}

/// What a router has been told, beside the configuration that follows from its testbed.
#[derive(Debug, Clone)]
pub(super) struct Told {
    /// `None` where packets are held against none, and are of no flow.
    pub(super) policy: Option<(u32, Action)>,
    /// Tunnel ends of nodes whose routes it has not.
    pub(super) withdrawn: BTreeSet<Ipv4Addr>,
}

impl Told {
    /// The configuration with its rules, and without the routes that are withdrawn.
    pub(super) fn of(&self, whole: &Config) -> Result<Config> {
        let mut config = whole.clone();
        let is_kept = |next_hop: &NextHop| self.has(next_hop);
        for vrf in config.vrfs.values_mut().map(Arc::make_mut) {
            vrf.routes.retain(|_, next_hop| is_kept(next_hop));
            vrf.macs.retain(|_, next_hop| is_kept(next_hop));
        }
        let policy = self.policy.map(|told| match told {
            (0, Action::Allow) => Policy::default(),
            _ => Policy { outward: vec![LIST], inward: vec![LIST], most_flows: None },
        });
        if let (Some(Policy { outward, .. }), Some((rules, action))) = (&policy, self.policy)
            && !outward.is_empty()
        {
            config.lists.insert(LIST, list(rules, action)?);
        }
        for interface in config.interfaces.values_mut() {
            interface.policy.clone_from(&policy);
        }
        Ok(config)
    }

    fn has(&self, next_hop: &NextHop) -> bool {
        !matches!(next_hop, NextHop::Tunnel(tunnel) if self.withdrawn.contains(&tunnel.peer))
    }
}

/// `rules` for as many prefixes of 100.64.0.0/10 (RFC 6598), of which no container is, and one for all.
fn list(rules: u32, action: Action) -> Result<List> {
    let remote = |number: u32| -> Result<BTreeSet<_>> {
        let address = Ipv4Addr::from(u32::from(Ipv4Addr::new(100, 64, 0, 0)) + number * 16);
        Ok(BTreeSet::from([Ipv4Net::new(address, 28)?.into()]))
    };
    let mut all = (0..rules)
        .map(|number| {
            let port = 1024 + number as u16;
            let (also, action) = (Also::default(), Action::Deny);
            Ok(Rule { protocol: Some(TCP), ports: port..=port, remote: remote(number)?, action, also })
        })
        .collect::<Result<Vec<_>>>()?;
    all.push(Rule { protocol: None, ports: 0..=u16::MAX, remote: BTreeSet::new(), action, also: Also::default() });
    Ok(List { rules: all, otherwise: Action::Deny })
}

/// What is wrong with arguments whatever the testbed is.
pub(super) fn check(name: &str, arguments: &Settings) -> Result<(), Mistake> {
    match name {
        "policy" => read_settings::<SetPolicy>(arguments).and_then(|told| check_rules(told.rules)),
        "withdraw" | "advertise" => read_settings::<Routes>(arguments).map(drop),
        "status" => read_settings::<Nothing>(arguments).map(drop),
        // That there is none is told where it is to be executed.
        _ => Ok(()),
    }
}

pub(super) fn execute(routing: &mut Routing, name: &str, arguments: &Value) -> Result<Value> {
    match name {
        "policy" => {
            let SetPolicy { rules, action } = read(arguments)?;
            if routing.told.policy.is_none() {
                bail!("this vRouter is without policy: remove policy = false from its settings");
            }
            let action = match action {
                Verdict::Allow => Action::Allow,
                Verdict::Deny => Action::Deny,
            };
            let told = Told { policy: Some((rules, action)), ..routing.told.clone() };
            routing.tell(told)?;
        }
        "withdraw" | "advertise" => {
            let Routes { node } = read(arguments)?;
            let meant = meant(routing, node.as_deref())?;
            let mut withdrawn = routing.told.withdrawn.clone();
            match name {
                "withdraw" => withdrawn.extend(meant),
                _ => withdrawn.retain(|end| !meant.contains(end)),
            }
            let told = Told { withdrawn, ..routing.told.clone() };
            routing.tell(told)?;
        }
        "status" => {
            let Nothing {} = read(arguments)?;
        }
        _ => return Err(UnknownCommand::of(&Vrouter, name).into()),
    }
    status(routing)
}

/// Where tunnels to the node that is named end, or to all others; nowhere where it is this one.
fn meant(routing: &Routing, node: Option<&str>) -> Result<BTreeSet<Ipv4Addr>> {
    let ends: &BTreeMap<String, Option<Ipv4Addr>> = &routing.ends;
    match node {
        None => Ok(ends.values().flatten().copied().collect()),
        Some(name) => match ends.get(name) {
            Some(end) => Ok(end.iter().copied().collect()),
            None => {
                let names: Vec<&str> = ends.keys().map(String::as_str).collect();
                bail!("there is no node {name}: choose from {}", names.join(", "))
            }
        },
    }
}

fn status(routing: &Routing) -> Result<Value> {
    let (rules, action) = routing.told.policy.unzip();
    let routes = routing.whole.vrfs.values().flat_map(|vrf| &vrf.routes);
    let (kept, withdrawn): (Vec<_>, Vec<_>) = routes.partition(|(_, next_hop)| routing.told.has(next_hop));
    let shown = |routes: &[(&ipnet::IpNet, &NextHop)]| -> Vec<String> {
        let shown = |prefix: &ipnet::IpNet| match prefix.prefix_len() == prefix.max_prefix_len() {
            true => IpAddr::to_string(&prefix.addr()),
            false => prefix.to_string(),
        };
        routes.iter().map(|(prefix, _)| shown(prefix)).collect()
    };
    let action = action.map(|action| match action {
        Action::Allow => "allow",
        Action::Deny => "deny",
    });
    Ok(json!({
        "rules": rules,
        "action": action,
        "routes": shown(&kept),
        "withdrawn": shown(&withdrawn),
        "flows": routing.connections()?,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(value: Value) -> Settings {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn arguments_are_checked_before_anything_runs() {
        for (name, arguments) in [
            ("policy", json!({})),
            ("policy", json!({"rules": 1023, "action": "deny"})),
            ("withdraw", json!({"node": "b"})),
            ("advertise", json!({})),
            ("status", json!({})),
        ] {
            check(name, &settings(arguments)).unwrap();
        }
        for (name, arguments, said) in [
            ("policy", json!({"rules": 1024}), "1024 rules"),
            ("policy", json!({"action": "drop"}), "`drop`"),
            ("policy", json!({"rule": 1}), "`rule`"),
            ("withdraw", json!({"nodes": ["b"]}), "`nodes`"),
            ("advertise", json!({"node": 1}), "invalid type"),
            ("status", json!({"node": "b"}), "`node`"),
        ] {
            let mistake = check(name, &settings(arguments)).unwrap_err();
            assert!(mistake.what.contains(said), "{name}: {} lacks {said}", mistake.what);
        }
    }

    #[test]
    fn a_list_of_rules_that_match_nothing_ends_with_what_is_for_all() {
        for action in [Action::Allow, Action::Deny] {
            let List { rules, .. } = list(1000, action).unwrap();
            let (last, before) = rules.split_last().unwrap();
            assert_eq!((before.len(), last.action, last.protocol), (1000, action, None));
            assert!(last.remote.is_empty() && before.iter().all(|rule| rule.remote.len() == 1));
        }
    }
}
