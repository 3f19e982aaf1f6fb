//! What a plan sets that is not the kernel's default and that a drawing of boxes does not show, for readers.

use std::collections::{BTreeMap, BTreeSet};

use rig_stats::units::counted;
use rig_sys::cpu::CpuSet;
use rig_sys::ethtool::Offload;
use rig_sys::napi::Urgency;

use super::{Interface, Link, Node, Plan};

/// Interfaces that are named one by one; more are counted.
const NAMED: usize = 4;

impl Plan {
    /// One text for each kind of setting: queues, receive processing, offloads, queueing disciplines, sysctls.
    pub fn settings(&self) -> Vec<String> {
        let mut texts = Vec::new();
        texts.extend(self.queues());
        texts.extend(self.steering());
        texts.extend(self.threads());
        texts.extend(self.offloads());
        texts.extend(self.qdiscs());
        texts.extend(self.sysctls());
        texts
    }

    fn interfaces(&self) -> impl Iterator<Item = (&Node, &str, &Interface)> {
        self.nodes.iter().flat_map(|node| {
            node.spaces.iter().flat_map(move |space| {
                space.interfaces.iter().map(move |interface| (node, space.name.as_str(), interface))
            })
        })
    }

    /// A veth pair has as many queues as it is made with, however many CPUs the machine has; most network cards have a queue for
    /// each CPU.
    fn queues(&self) -> Option<String> {
        let ends = self.interfaces().filter(|(.., interface)| interface.link == Link::Wire);
        let queues: BTreeSet<u32> = ends.map(|(.., interface)| interface.queues).collect();
        let told: Vec<String> = queues.iter().map(|queues| counted(*queues, "queue", "queues")).collect();
        (!told.is_empty()).then(|| format!("each end of a wire is a veth with {} in each direction", told.join(" or ")))
    }

    fn steering(&self) -> Option<String> {
        let steered: Vec<(&str, &Interface, &CpuSet)> = self
            .interfaces()
            .filter_map(|(_, space, interface)| Some((space, interface, interface.steering.as_ref()?)))
            .collect();
        let text = match steered.as_slice() {
            [] => return None,
            all if all.len() > NAMED || all.iter().any(|(.., cpus)| cpus.is_empty()) => {
                format!(
                    "what {} receive is processed on the node's own CPUs",
                    names(all.iter().map(|one| (one.0, one.1)))
                )
            }
            all => {
                let each =
                    all.iter().map(|(space, interface, cpus)| format!("{space} {} to {}", interface.name, on(cpus)));
                each.collect::<Vec<_>>().join(", ")
            }
        };
        Some(format!("receive packet steering (RPS): {text}"))
    }

    fn threads(&self) -> Option<String> {
        let placed = self.interfaces().filter_map(|(_, space, interface)| {
            let threads = interface.threads.as_ref()?;
            let urgency = match threads.urgency {
                Urgency::Normal => String::new(),
                Urgency::RealTime(priority) => format!(", real-time priority {priority}"),
            };
            let cpus = on(&CpuSet::new(threads.cpus.iter().copied()));
            Some(format!("{space} {} on {cpus}{urgency}", interface.name))
        });
        let chosen = |on: bool| {
            let at: Vec<_> = self.interfaces().filter(|(.., interface)| interface.threaded == Some(on)).collect();
            let word = if on { "on" } else { "off" };
            (!at.is_empty()).then(|| format!("{word} at {}", names(at.iter().map(|(_, space, own)| (*space, *own)))))
        };
        let all: Vec<String> = placed.chain([true, false].into_iter().filter_map(chosen)).collect();
        (!all.is_empty()).then(|| format!("threaded NAPI: {}", all.join(", ")))
    }

    fn offloads(&self) -> Option<String> {
        let mut by_setting: BTreeMap<(&str, bool), Vec<(&str, &Interface)>> = BTreeMap::new();
        for (_, space, interface) in self.interfaces() {
            for (offload, is_on) in &interface.offloads {
                let name = match offload {
                    Offload::Tso => "TSO",
                    Offload::Gso => "GSO",
                    Offload::Gro => "GRO",
                    Offload::Checksum => "checksum offload",
                };
                by_setting.entry((name, *is_on)).or_default().push((space, interface));
            }
            for (name, is_on) in &interface.features {
                by_setting.entry((name, *is_on)).or_default().push((space, interface));
            }
        }
        let each = by_setting.into_iter().map(|((name, is_on), interfaces)| {
            format!("{name} {} at {}", if is_on { "on" } else { "off" }, names(interfaces.into_iter()))
        });
        let each: Vec<String> = each.collect();
        (!each.is_empty()).then(|| each.join("; "))
    }

    fn qdiscs(&self) -> Option<String> {
        let mut by_kind: BTreeMap<&str, Vec<(&str, &Interface)>> = BTreeMap::new();
        for (_, space, interface) in self.interfaces() {
            if let Some(kind) = &interface.qdisc {
                by_kind.entry(kind).or_default().push((space, interface));
            }
        }
        let each = by_kind.into_iter().map(|(kind, at)| format!("{kind} at {}", names(at.into_iter())));
        let each: Vec<String> = each.collect();
        (!each.is_empty()).then(|| format!("qdisc: {}", each.join("; ")))
    }

    fn sysctls(&self) -> Option<String> {
        let mut by_setting: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
        for space in self.nodes.iter().flat_map(|node| &node.spaces) {
            for sysctl in space.sysctls.iter().chain(&space.chosen) {
                by_setting.entry(format!("{}={}", sysctl.key, sysctl.value)).or_default().insert(&space.name);
            }
        }
        let each: Vec<String> = by_setting
            .into_iter()
            .map(|(setting, spaces)| match spaces.len() {
                0..=NAMED => format!("{setting} in {}", spaces.into_iter().collect::<Vec<_>>().join(", ")),
                many => format!("{setting} in {many} namespaces"),
            })
            .collect();
        (!each.is_empty()).then(|| format!("sysctls: {}", each.join("; ")))
    }
}

fn on(cpus: &CpuSet) -> String {
    let several = if cpus.len() == 1 { "CPU" } else { "CPUs" };
    format!("{several} {cpus}")
}

/// `a eth0 and b eth0`, of many `12 interfaces`.
fn names<'a>(interfaces: impl Iterator<Item = (&'a str, &'a Interface)>) -> String {
    let names: Vec<String> = interfaces.map(|(space, interface)| format!("{space} {}", interface.name)).collect();
    match names.as_slice() {
        [] => String::new(),
        [only] => only.clone(),
        all if all.len() > NAMED => format!("{} interfaces", all.len()),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::paths::tests::named;
    use crate::topology::{Topology, WireOptions};

    fn settings(path: &str, wire: WireOptions, cpus: &[CpuSet]) -> Vec<String> {
        let names = ["a".to_owned(), "b".to_owned()];
        let ends = match path {
            "raw" => ["a", "b"],
            _ => ["a/sender", "b/receiver"],
        };
        let topology = Topology::new(&names, Some(wire), named(path), &ends.map(|end| end.parse().unwrap())).unwrap();
        topology.plan(cpus).settings()
    }

    #[test]
    fn what_the_testbed_sets_is_listed() {
        let cpus = [CpuSet::new([0]), CpuSet::new([1, 2])];
        let said = settings("raw", WireOptions::default(), &cpus);
        assert_eq!(said[0], "each end of a wire is a veth with 1 queue in each direction");
        assert_eq!(said[1], "receive packet steering (RPS): a eth0 to CPU 0, b eth0 to CPUs 1-2");
        assert!(!said.iter().any(|text| text.contains("off at")), "{said:?}");

        // Before a machine is known.
        let said = settings("raw", WireOptions::default(), &[]);
        assert!(said[1].ends_with("what a eth0 and b eth0 receive is processed on the node's own CPUs"), "{said:?}");

        let wire = WireOptions { segmentation_offload: false, queues: 16, ..WireOptions::default() };
        let said = settings("bridge", wire, &cpus).join("\n");
        assert!(said.contains("16 queues in each direction") && said.contains("TSO off at "), "{said}");

        let said = settings("etun", WireOptions::default(), &cpus).join("\n");
        assert!(said.contains("sysctls: ") && said.contains("net.ipv4.ip_forward=1 in a, b"), "{said}");
    }
}
