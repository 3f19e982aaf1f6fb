//! What a vRouter at work can be told: other rules, and which nodes' routes it has.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use anyhow::{Result, bail};
use ipnet::{IpNet, Ipv4Net};
use netrig_vrouter::routes::{Destination, Route, announced};
use rig_datapath::vrouter::{Action, Also, Config, List, Policy, Rule};
use rig_testbed::datapath::{Command, Mistake, Settings, UnknownCommand, read_settings};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Control, Routing, Vrouter, check_rules};
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

/// What a router has been told of policy, beside the configuration that follows from its testbed and its routes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Told {
    /// `None` where packets are held against none, and are of no flow.
    pub(super) policy: Option<(u32, Action)>,
}

impl Told {
    /// The configuration, which has none, with its rules.
    pub(super) fn with_rules(self, mut config: Config) -> Result<Config> {
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
            if routing.control.told.policy.is_none() {
                bail!("this vRouter is without policy: remove policy = false from its settings");
            }
            let action = match action {
                Verdict::Allow => Action::Allow,
                Verdict::Deny => Action::Deny,
            };
            let told = Told { policy: Some((rules, action)) };
            routing.tell(Control { told, ..routing.control.clone() })?;
        }
        "withdraw" | "advertise" => {
            let Routes { node } = read(arguments)?;
            let meant = meant(routing, node.as_deref())?;
            let mut control = routing.control.clone();
            match name {
                "withdraw" => control.source.withdraw(&meant),
                _ => control.source.give_back(&meant),
            }
            routing.tell(control)?;
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
    let control = &routing.control;
    let (rules, action) = control.told.policy.unzip();
    let own = announced(&control.settings, &control.node);
    let several = control.settings.networks.len() > 1;
    // By what they are about: a way to each that there are several to.
    let shown = |routes: BTreeSet<(&String, IpNet)>| -> Vec<String> {
        let shown = |(network, prefix): (&String, IpNet)| {
            let is_host = prefix.prefix_len() == prefix.max_prefix_len();
            let prefix = if is_host { IpAddr::to_string(&prefix.addr()) } else { prefix.to_string() };
            if several { format!("{network} {prefix}") } else { prefix }
        };
        routes.into_iter().map(shown).collect()
    };
    let action = action.map(|action| match action {
        Action::Allow => "allow",
        Action::Deny => "deny",
    });
    Ok(json!({
        "rules": rules,
        "action": action,
        "routes": shown(own.iter().chain(control.table.iter()).filter_map(prefix).collect()),
        "withdrawn": shown(control.source.withdrawn().filter_map(prefix).collect()),
        "flows": routing.connections()?,
    }))
}

/// The network and the prefix of a route, where it is to one.
fn prefix(route: &Route) -> Option<(&String, IpNet)> {
    match route.key.destination {
        Destination::Prefix(prefix) => Some((&route.key.network, prefix)),
        Destination::Mac(_) | Destination::All => None,
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use netrig_vrouter::compile::{KernelInterface, Site};

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
    fn containers_of_a_node_share_its_table_of_flows() {
        let interface = |number: u32| {
            format!(
                "[[interface]]\nname = 'c{number}'\nnode = 'a'\nnetwork = 'red'\ndevice = 'd{number}'\n\
                 addresses = ['10.1.0.1{number}']\n"
            )
        };
        let node = "[[node]]\nname = 'a'\naddress = '192.0.2.1'\n";
        let network = "[[network]]\nname = 'red'\nsubnets = ['10.1.0.0/24']\n";
        let text = [node, network, &interface(1), &interface(2)].concat();
        let settings = netrig_vrouter::settings::Settings::parse("vrouter.toml", &text).unwrap();
        let there = settings.interfaces.keys().cloned().zip(1..);
        let there = there.map(|(name, index)| (name, KernelInterface { index, mac: None }));
        let site = Site { interfaces: there.collect(), ..Site::default() };
        for policy in [None, Some((0, Action::Allow)), Some((9, Action::Allow))] {
            let mut control = Control::new(settings.clone(), site.clone(), "a", Told { policy });
            let config = control.config().unwrap();
            assert_eq!(config.most_flows, NonZeroU32::new(settings.router.flows / 2), "{policy:?}");
            let mut own = config.interfaces.values().filter_map(|interface| interface.policy.as_ref()?.most_flows);
            assert_eq!(own.next(), None, "{policy:?}");
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
