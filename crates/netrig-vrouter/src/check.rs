//! `netrig vrouter check`: what a file would have nodes do.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

use rig_cli::exit::{Exit, ExitContext, Failure};
use rig_cli::streams::print;

use crate::bgp::{announced, probe};
use crate::daemon::finder::Finder;
use crate::settings::{Analyser, Assigned, Interface, InterfaceLocation, Settings};

/// Of all nodes; or of one, which this network namespace is taken for.
pub(crate) fn check(file: &Path, node: Option<&str>) -> Result<Exit, Failure> {
    let settings = Settings::load(file)?;
    let Some(node) = node else {
        let nodes = settings.nodes.keys().map(|name| would_do(&settings, name));
        let text = format!("{}: correct\n{}", file.display(), nodes.collect::<String>());
        return print(&text).map(|()| Exit::Done);
    };
    settings.node(node).or_exit(Exit::BadInput)?;
    let found = Finder::here().or_exit(Exit::Failed)?.look(&settings, node, &BTreeSet::new());
    let missing = found.site.missing.iter().map(|(name, why)| format!("interface '{name}': {why}"));
    let unreached = found.site.unreached.iter().map(|(address, why)| format!("{address}: {why}"));
    let speaker = settings.router.bgp.as_ref().filter(|_| settings.nodes.get(node).is_some_and(|node| node.bgp));
    let unheard = speaker.and_then(|bgp| {
        let why = probe(&bgp.gobgp).err()?;
        Some(format!("speaker {}: {why}", bgp.gobgp))
    });
    let otherwise = settings.interfaces_of(node).filter_map(|(name, interface)| {
        let mac = found.site.interfaces.get(name)?.mac?;
        interface.foreign(name, mac)
    });
    let otherwise: Vec<String> = otherwise.collect();
    let lacking = missing.chain(unreached).chain(found.site.notes.iter().cloned()).chain(unheard);
    let lacking: Vec<String> = lacking.collect();
    let verdict = match (lacking.is_empty(), otherwise.is_empty()) {
        (true, true) => "correct",
        (true, false) => "correct, but not all of it is so here",
        (false, _) => "correct, but not all of it is here",
    };
    let mut text = format!("{}: {verdict}\n{}", file.display(), would_do(&settings, node));
    for what in &lacking {
        text.push_str(&format!("not here: {what}\n"));
    }
    for what in &otherwise {
        text.push_str(&format!("otherwise here: {what}\n"));
    }
    print(&text)?;
    Ok(if lacking.is_empty() && otherwise.is_empty() { Exit::Done } else { Exit::Lacking })
}

/// What the router of a node would do.
pub(crate) fn would_do(settings: &Settings, node_name: &str) -> String {
    let Some(node) = settings.nodes.get(node_name) else { return String::new() };
    let mut text = format!("node {node_name}, {}\n", node.address);
    let mut line = |words: String| {
        let written = writeln!(text, "  {words}");
        debug_assert!(written.is_ok(), "writing to a string");
    };
    if settings.router.has_key {
        line("labels and network identifiers are drawn from a key".to_owned());
    }
    let bgp = settings.router.bgp.as_ref().filter(|_| node.bgp);
    if let Some(bgp) = bgp {
        let routes = announced::routes(settings, node_name).len();
        line(format!("routes by BGP: {routes} of its own, through the speaker {}", bgp.gobgp));
    }
    for (name, interface) in settings.interfaces_of(node_name) {
        let addresses: Vec<String> = interface.all_addresses().map(|address| address.to_string()).collect();
        let Interface { network, mac, any_mac, label, .. } = interface;
        let place = at(&interface.place);
        let mac = if *any_mac { format!("any MAC address, others are told {mac}") } else { format!("{mac} alone") };
        line(format!("interface {name}: {place}; network {network}, {}, {mac}, label {label}", addresses.join(", ")));
        if !interface.security_groups.is_empty() {
            let groups: Vec<&str> = interface.security_groups.iter().map(String::as_str).collect();
            line(format!("  security groups {}", groups.join(", ")));
        }
    }
    for (name, analyser) in &settings.analysers {
        let Analyser { address, port, vni } = analyser;
        line(format!("analyser {name}: copies in VXLAN to {address}, UDP port {port}, VNI {vni}"));
    }
    for (name, is_local) in settings.networks_of(node_name) {
        let Some(network) = settings.networks.get(name) else { continue };
        let why = if is_local { "" } else { ", which its networks are connected with" };
        let policies = if network.policies.is_empty() { "no policies".to_owned() } else { network.policies.join(", ") };
        let label = settings.label_to_all(node_name, name);
        let label = label.map(|label| format!(", label {label} of frames to all")).unwrap_or_default();
        line(format!("network {name}{why}: VNI {}{label}, {policies}", network.vni));
        if bgp.is_some() {
            let list = |targets: &BTreeSet<Assigned>| match targets.is_empty() {
                true => "none".to_owned(),
                false => targets.iter().map(Assigned::to_string).collect::<Vec<_>>().join(" "),
            };
            line(format!("  route targets: import {}, export {}", list(&network.import), list(&network.export)));
        }
        for (other_name, other) in settings.nodes.iter().filter(|(_, other)| other.address != node.address) {
            let has = settings.interfaces_of(other_name).any(|(_, interface)| interface.network == *name);
            if let (true, Some(way)) = (has, settings.encapsulation(network, node, other)) {
                line(format!("  to node {other_name}, {}: {}", other.address, way.name()));
            }
        }
    }
    text
}

fn at(place: &InterfaceLocation) -> String {
    match place {
        InterfaceLocation::Node { device } => format!("device {device}"),
        InterfaceLocation::Namespace { name, device } => format!("{device} of namespace {name}"),
        InterfaceLocation::Container { name, device } => format!("{device} of container {name}"),
    }
}
