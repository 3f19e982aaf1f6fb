//! What would happen to a packet: the program decides, and the model, with the configuration and the flows of the datapath, says by
//! which routes and rules (docs/decisions/tracing.md).

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use anyhow::{Context, Result, anyhow, bail};
use ipnet::IpNet;
use rig_cli::packet::{self, PacketOut};
use rig_datapath::vrouter::model::{Egress, FlowEntry, Model, PacketResult, Step};
use rig_datapath::vrouter::{
    Action, Config, Decision, Encapsulation, Interface, NextHop, Peer, Reason, Rule, Side, Tunnel, Underlay, Verdict,
    Vrf,
};

use super::engine::Engine;
use crate::filter::protocol_name;
use crate::message::{ReasonCount, Trace, TraceRequest};

impl Engine {
    /// Nothing of the router changes: neither flows nor counters.
    pub(super) fn trace(&self, asked: &TraceRequest) -> Result<Trace> {
        let config = &self.compiled.config;
        let (name, number) = self.interface_of(asked)?;
        let peer = asked.peer.as_ref().map(|peer| self.address_of(peer)).transpose()?;
        let mut plain = packet::frame(&asked.flow, config.mac)?;
        let sources = self.router.sources()?;
        let known = sources.get(&number).and_then(|source| source.mac);
        if let Some(mac) = known.or_else(|| config.interfaces.get(&number).map(|interface| interface.mac)) {
            plain.get_mut(6..12).into_iter().for_each(|source| source.copy_from_slice(&mac.0));
        }
        let (side, index, frame) = match peer {
            None => {
                let index = config.interfaces.get(&number).map_or(0, |interface| interface.index);
                (Side::Container, index, plain)
            }
            Some(peer) => {
                let known = config.underlay.as_ref().and_then(|underlay| underlay.peers.get(&peer));
                // By the way that it is reached.
                (Side::Underlay, known.map_or(0, |peer| peer.interface), self.in_tunnel(asked, peer, name, &plain)?)
            }
        };
        let mut model = Model::new(2 * self.room as usize);
        model.apply(config);
        model.remember(self.router.flows().into_iter().map(FlowEntry::from), 0);
        model.remember_sources(sources);
        let outcome = model.packet(side, index, &frame, 0);
        let mut steps: Vec<String> = model.steps().iter().map(|step| self.step(step)).collect();
        for copy in model.mirrored() {
            let name = self.analyser_name(copy.analyser).unwrap_or("?");
            steps.push(format!("a copy of {} bytes goes to analyser {name}", copy.frame.len()));
        }
        steps.extend(outcome.out.and_then(|out| self.way_out(out)));
        let between = [asked.flow.source, asked.flow.destination].map(|end| end.ip());
        let decision = self.router.trace(side, &frame, index, between)?;
        steps.extend(disagreement(&outcome, &decision));
        let reason = decision.reason.map(|reason| {
            let so_far = self.drops_of(number).unwrap_or_default().into_iter().find(|(known, _)| *known == reason);
            ReasonCount::of_cpus(reason, so_far.as_ref().map_or(&[][..], |(_, cpus)| cpus.as_slice()))
        });
        let verdict = verdict(decision.verdict, decision.reason);
        let packet_out = self.packet_out(&outcome, &decision);
        Ok(Trace { interface: name.to_owned(), peer, steps, verdict: verdict.to_owned(), reason, packet_out })
    }

    /// The interface that is asked for, or that has the address of the packet's near end.
    fn interface_of<'a>(&'a self, asked: &'a TraceRequest) -> Result<(&'a str, u32)> {
        let near = if asked.peer.is_some() { asked.flow.destination } else { asked.flow.source }.ip();
        let own = || self.settings.interfaces_of(&self.node);
        let name = match &asked.interface {
            Some(name) => name,
            None => match own().filter(|(_, one)| one.all_addresses().any(|is| is == near)).collect::<Vec<_>>()[..] {
                [(name, _)] => name,
                [] => bail!("no interface of node '{}' has {near}: choose one with --interface", self.node),
                ref several => {
                    let names: Vec<&str> = several.iter().map(|(name, _)| name.as_str()).collect();
                    bail!("{} have {near}: choose one with --interface", names.join(", "))
                }
            },
        };
        if !own().any(|(known, _)| known == name) {
            bail!("node '{}' has no interface '{name}'", self.node);
        }
        let number =
            self.numbers.interfaces.get(name).filter(|number| self.compiled.config.interfaces.contains_key(number));
        Ok((name, number.with_context(|| format!("interface '{name}' is not there"))?))
    }

    /// Of a node by its name, or as it is said.
    fn address_of(&self, peer: &str) -> Result<Ipv4Addr> {
        let known = self.settings.nodes.get(peer).map(|node| node.address);
        let address = known.or_else(|| peer.parse().ok());
        address.ok_or_else(|| anyhow!("'{peer}' is neither a node nor an IPv4 address"))
    }

    /// The packet as another router sends it to the one of this node: in the encapsulation that nodes of the settings would
    /// choose, for the interface.
    fn in_tunnel(&self, asked: &TraceRequest, peer: Ipv4Addr, name: &str, plain: &[u8]) -> Result<Vec<u8>> {
        let config = &self.compiled.config;
        let own = config.underlay.as_ref().map(|underlay| underlay.address);
        let own = own.context("this router knows of no other node, and takes nothing out of tunnels")?;
        let settings = &self.settings;
        let interface = settings.interfaces.get(name).context("it has just gone")?;
        let network = settings.networks.get(&interface.network).context("its network has just gone")?;
        let here = settings.node(&self.node)?;
        let there = settings.nodes.values().find(|node| node.address == peer);
        let can = |way: &&Encapsulation| {
            here.encapsulations.contains(way) && there.is_none_or(|there| there.encapsulations.contains(way))
        };
        let encapsulation = *network.encapsulation.iter().find(can).context("there is no encapsulation for it")?;
        let label = if encapsulation == Encapsulation::Vxlan { network.vni } else { interface.label };
        let tunnel = NextHop::Tunnel(Tunnel { peer: own, encapsulation, label, mac: interface.mac });
        // Back to the sender, too: a packet from an address that has no way back is dropped.
        let [to, from] = [asked.flow.destination, asked.flow.source].map(|end| IpNet::from(end.ip()));
        let routes = BTreeMap::from([(from, NextHop::Interface(1)), (to, tunnel)]);
        let mac = config.mac;
        let sender = Config {
            mac,
            underlay: Some(Underlay {
                address: peer,
                peers: BTreeMap::from([(own, Peer { interface: 1, gateway: own, mtu: u16::MAX })]),
                strict: true,
            }),
            vrfs: BTreeMap::from([(1, Vrf { routes, ..Vrf::default() }.into())]),
            interfaces: BTreeMap::from([(
                1,
                Interface {
                    index: 1,
                    vrf: 1,
                    mac,
                    any_mac: true,
                    gateway: None,
                    gateway6: None,
                    policy: None,
                    mirror: None,
                    fat: BTreeSet::new(),
                    serves_dhcp: false,
                },
            )]),
            ..Config::default()
        };
        let mut model = Model::new(1);
        model.apply(&sender);
        Ok(model.packet(Side::Container, 1, plain, 0).frame)
    }

    fn packet_out(&self, outcome: &PacketResult, decision: &Decision) -> Option<PacketOut> {
        if decision.verdict != Verdict::Redirect {
            return None;
        }
        match outcome.out? {
            // Each goes its own way.
            Egress::Pieces { .. } => None,
            Egress::Interface(number) => {
                let device = self.interface_name(number).and_then(|name| self.found.devices.get(name).cloned());
                PacketOut::of(&decision.frame, device)
            }
            Egress::Tunnel(tunnel) => {
                let out = PacketOut::of(&decision.frame, self.found.ways.get(&tunnel.peer).cloned())?;
                Some(PacketOut { source_mac: "-".to_owned(), destination_mac: "-".to_owned(), ..out })
            }
        }
    }

    fn way_out(&self, out: Egress) -> Option<String> {
        match out {
            Egress::Pieces { count, eights } => {
                let bytes = 8 * u32::from(eights);
                Some(format!("is cut into {count} pieces of up to {bytes} bytes, which go the same way each by itself"))
            }
            Egress::Interface(number) => Some(format!("goes to {}", self.hop(&NextHop::Interface(number)))),
            Egress::Tunnel(tunnel) => {
                let peer = self.compiled.config.underlay.as_ref()?.peers.get(&tunnel.peer)?;
                let (gateway, mtu) = (peer.gateway, peer.mtu);
                let hop = self.hop(&NextHop::Tunnel(tunnel));
                Some(format!("goes by {hop}; the next hop there is {gateway}, for packets of up to {mtu} bytes"))
            }
        }
    }

    fn step(&self, step: &Step) -> String {
        match step {
            Step::Tunnel { peer, encapsulation, label } => {
                format!("out of a tunnel from {}: {}", self.node_at(*peer), labelled(*encapsulation, *label))
            }
            Step::Bridge { vrf, mac, to } => format!("bridged in {} for {mac}, to {}", self.vrf(*vrf), self.hop(to)),
            Step::Route { vrf, prefix, to } => format!("route {prefix} of {}, to {}", self.vrf(*vrf), self.hop(to)),
            Step::Back { vrf, prefix, to } => {
                format!("its answers take route {prefix} of {}, to {}", self.vrf(*vrf), self.hop(to))
            }
            Step::Flow(None) => "of no flow that is known".to_owned(),
            Step::Flow(Some(known)) => {
                let direction = if known.forward { "this direction" } else { "the other direction" };
                let denied = if known.denied { ", and rules have forbidden it since" } else { "" };
                format!("of a flow with {} packets so far, that began in {direction}{denied}", known.packets)
            }
            Step::List { interface, sends, list, rule, action } => {
                let who = self.hop(&NextHop::Interface(*interface));
                let what = if *sends { "may send" } else { "may receive" };
                let name = self.numbers.lists.iter().find(|(_, number)| number == list).map_or("?", |(name, _)| name);
                let rules = self.compiled.config.lists.get(list).map_or(&[][..], |list| &list.rules);
                let decides = match rule.and_then(|at| Some((at, rules.get(at)?))) {
                    Some((at, rule)) => {
                        let logs = if rule.flow_actions.log { ", and logs it" } else { "" };
                        format!("rule {} of {} {}{logs}: {}", at + 1, rules.len(), does(*action), words(rule))
                    }
                    None => format!("none of {} rules matches, which {}", rules.len(), does(*action)),
                };
                format!("what {who} {what}, '{name}': {decides}")
            }
            Step::Begun => "a new connection, which would be remembered".to_owned(),
        }
    }

    fn vrf(&self, vrf: u32) -> String {
        let name = self.numbers.vrfs.iter().find(|(_, number)| *number == vrf);
        name.map_or_else(|| format!("VRF {vrf}"), |(name, _)| format!("VRF {vrf} ({name})"))
    }

    pub(super) fn analyser_name(&self, number: u8) -> Option<&str> {
        self.numbers.analysers.iter().find(|(_, known)| *known == u32::from(number)).map(|(name, _)| name)
    }

    fn interface_name(&self, number: u32) -> Option<&str> {
        self.numbers.interfaces.iter().find(|(_, known)| *known == number).map(|(name, _)| name)
    }

    fn node_at(&self, address: Ipv4Addr) -> String {
        let name = self.settings.nodes.iter().find(|(_, node)| node.address == address).map(|(name, _)| name);
        name.map_or_else(|| address.to_string(), |name| format!("node {name}, {address}"))
    }

    fn hop(&self, hop: &NextHop) -> String {
        match hop {
            NextHop::Discard => "nowhere".to_owned(),
            NextHop::Interface(number) => {
                format!("interface {} (vif0/{number})", self.interface_name(*number).unwrap_or("?"))
            }
            NextHop::Tunnel(Tunnel { peer, encapsulation, label, .. }) => {
                format!("the tunnel to {}: {}", self.node_at(*peer), labelled(*encapsulation, *label))
            }
            NextHop::Gateway => "the router itself".to_owned(),
            NextHop::Vrf(vrf) => self.vrf(*vrf),
            NextHop::Ecmp(next_hops) => {
                let next_hops: Vec<String> = next_hops.iter().map(|way| self.hop(way)).collect();
                format!("one of {}: {}", next_hops.len(), next_hops.join("; "))
            }
        }
    }
}

fn verdict(verdict: Verdict, reason: Option<Reason>) -> &'static str {
    match (verdict, reason) {
        (Verdict::Pass, _) => "pass",
        (Verdict::Redirect, None) => "forward",
        _ => "drop",
    }
}

/// The program does what it does, whatever the steps lead to: then one of the two is wrong.
fn disagreement(model: &PacketResult, program: &Decision) -> Option<String> {
    let comes_to = |what: Verdict, reason: Option<Reason>| match reason {
        Some(reason) => format!("{} ({})", verdict(what, Some(reason)), reason.key()),
        None => verdict(what, None).to_owned(),
    };
    let (steps, decision) = (comes_to(model.verdict, model.reason), comes_to(program.verdict, program.reason));
    (steps != decision).then(|| {
        format!("these steps lead to: {steps}; the program's tables lead to: {decision}, which is what happens. Please report it")
    })
}

fn labelled(encapsulation: Encapsulation, label: u32) -> String {
    let what = if encapsulation == Encapsulation::Vxlan { "VNI" } else { "label" };
    format!("{}, {what} {label}", encapsulation.name())
}

fn does(action: Action) -> &'static str {
    match action {
        Action::Allow => "allows it",
        Action::Deny => "denies it",
    }
}

/// `tcp, ports 80 to 89, 10.2.0.0/24`.
pub(super) fn words(rule: &Rule) -> String {
    /// Prefixes that are named.
    const NAMED: usize = 4;
    let mut parts = vec![rule.protocol.map_or_else(|| "any protocol".to_owned(), protocol_name)];
    let (first, last) = (rule.ports.start(), rule.ports.end());
    match (first, last) {
        (0, &u16::MAX) => {}
        (first, last) if first == last => parts.push(format!("port or type {first}")),
        (first, last) => parts.push(format!("ports or types {first} to {last}")),
    }
    let named: Vec<String> = rule.remote.iter().take(NAMED).map(ToString::to_string).collect();
    let more = rule.remote.len().saturating_sub(NAMED);
    parts.extend((!named.is_empty()).then(|| named.join(", ")));
    parts.extend((more > 0).then(|| format!("{more} more prefixes")));
    parts.extend(rule.remote.is_empty().then(|| "from and to anywhere".to_owned()));
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_program_and_model_differ_the_trace_says_so() {
        let outcome =
            |verdict, reason| PacketResult { verdict, reason, out: None, frame: Vec::new(), copies: Vec::new() };
        let decision = |verdict, reason| Decision { verdict, reason, frame: Vec::new() };
        let told = (Verdict::Redirect, Some(Reason::TtlTold));
        for (verdict, reason) in [(Verdict::Redirect, None), (Verdict::Drop, Some(Reason::Policy)), told] {
            assert_eq!(disagreement(&outcome(verdict, reason), &decision(verdict, reason)), None);
        }
        let lost = disagreement(&outcome(Verdict::Redirect, None), &decision(Verdict::Drop, Some(Reason::NoRoute)));
        let words =
            "these steps lead to: forward; the program's tables lead to: drop (no_route), which is what happens";
        assert!(lost.as_ref().is_some_and(|lost| lost.starts_with(words)), "{lost:?}");
        assert!(disagreement(&outcome(told.0, told.1), &decision(Verdict::Drop, Some(Reason::TtlExceeded))).is_some());
    }
}
