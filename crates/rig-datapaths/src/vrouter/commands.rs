//! What a vRouter at work can be told: other rules, and which nodes' routes it has.

use std::collections::BTreeSet;
use std::net::IpAddr;

use anyhow::{Result, bail};
use ipnet::IpNet;
use netrig_vrouter::message::NextHopTarget;
use rig_testbed::datapath::{Command, Mistake, ServiceProcess, Settings, UnknownCommand, read_settings};
use serde::Deserialize;
use serde_json::{Value, json};

use super::settings::{Policy, TestbedSettings};
use super::{Routing, Vrouter, check_rules, listed, status, tables};
use crate::arguments::{NoArguments, read};

pub(super) const ALL: &[Command] = &[
    Command {
        name: "policy",
        about: "sets the rules of all containers, both directions: { rules } that match nothing before one that does { action }, allow or deny",
    },
    Command { name: "withdraw", about: "forgets the routes to other nodes' containers: all, or those of { node }" },
    Command { name: "advertise", about: "gives routes back that were withdrawn: all, or those of { node }" },
    Command { name: "status", about: "tells rules, routes and flows" },
];

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

/// What is wrong with arguments whatever the testbed is.
pub(super) fn check(name: &str, arguments: &Settings) -> Result<(), Mistake> {
    match name {
        "policy" => read_settings::<SetPolicy>(arguments).and_then(|told| check_rules(told.rules)),
        "withdraw" | "advertise" => read_settings::<Routes>(arguments).map(drop),
        "status" => read_settings::<NoArguments>(arguments).map(drop),
        // That there is none is told where it is to be executed.
        _ => Ok(()),
    }
}

pub(super) fn execute(
    routing: &mut Routing,
    service: &mut ServiceProcess,
    name: &str,
    arguments: &Value,
) -> Result<Value> {
    let mut testbed = routing.testbed.clone();
    match name {
        "policy" => {
            let SetPolicy { rules, action } = read(arguments)?;
            if testbed.policy.is_none() {
                bail!("this vRouter is without policy: remove policy = false from its settings");
            }
            testbed.policy = Some(Policy { rules, allows: action == Verdict::Allow });
            routing.reload(service, testbed)?;
        }
        "withdraw" | "advertise" => {
            let Routes { node } = read(arguments)?;
            let meant = meant(&testbed, service.node(), node)?;
            match name {
                "withdraw" => testbed.withdrawn.extend(meant),
                _ => testbed.withdrawn.retain(|node| !meant.contains(node)),
            }
            routing.reload(service, testbed)?;
        }
        "status" => {
            let NoArguments {} = read(arguments)?;
        }
        _ => return Err(UnknownCommand::of(&Vrouter, name).into()),
    }
    told(&routing.testbed, service)
}

/// The node that is named, or all others; none where it is the router's own.
fn meant(testbed: &TestbedSettings, own: &str, node: Option<String>) -> Result<BTreeSet<String>> {
    let mut nodes = testbed.nodes();
    if let Some(name) = node {
        if !nodes.contains(&name) {
            bail!("there is no node {name}: choose from {}", listed(&nodes));
        }
        nodes = BTreeSet::from([name]);
    }
    nodes.remove(own);
    Ok(nodes)
}

/// What a router tells of itself.
fn told(testbed: &TestbedSettings, service: &mut ServiceProcess) -> Result<Value> {
    let (status, tables) = (status(service)?, tables(service)?);
    let carries = |next_hop: u32| {
        let target = status.next_hops.iter().find(|hop| hop.number == next_hop).map(|hop| &hop.target);
        matches!(target, Some(NextHopTarget::Interface { .. } | NextHopTarget::Tunnel { .. } | NextHopTarget::Ecmp(_)))
    };
    let several = testbed.has_several_networks();
    // By what they are about: a way to each that there are several to.
    let shown = |routes: BTreeSet<(&str, IpNet)>| -> Vec<String> {
        let shown = |(network, prefix): (&str, IpNet)| {
            let is_host = prefix.prefix_len() == prefix.max_prefix_len();
            let prefix = if is_host { IpAddr::to_string(&prefix.addr()) } else { prefix.to_string() };
            if several { format!("{network} {prefix}") } else { prefix }
        };
        routes.into_iter().map(shown).collect()
    };
    let routes = tables.iter().flat_map(|table| {
        let there = table.routes.iter().filter(|route| carries(route.via.next_hop));
        there.map(|route| (table.network.as_str(), route.prefix))
    });
    Ok(json!({
        "rules": testbed.policy.map(|policy| policy.rules),
        "action": testbed.policy.map(|policy| if policy.allows { "allow" } else { "deny" }),
        "routes": shown(routes.collect()),
        "withdrawn": shown(testbed.withdrawn_routes().collect()),
        "flows": status.interfaces.iter().map(|interface| interface.connections).sum::<u64>(),
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
}
