//! What users choose to be set on a testbed, beside what its path sets: offloads, queueing disciplines, sysctls, and the CPUs that
//! process received packets.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use rig_cli::mistakes;
use rig_sys::cpu::CpuSet;

use super::{Topology, TopologyError};
use crate::plan::{Interface, Link, Plan, Sysctl};

/// Something that is set on interfaces and namespaces of a testbed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TestbedSettings {
    /// Nodes, each with its containers, and single containers; empty for all.
    pub nodes: Vec<String>,
    /// Names of interfaces; empty for the ends of wires and of the containers' links.
    pub interfaces: Vec<String>,
    /// By the kernel's or ethtool's name.
    pub offloads: BTreeMap<String, bool>,
    /// Kind of the queueing discipline that interfaces send through.
    pub qdisc: Option<String>,
    /// By name: `net.ipv4.tcp_ecn`.
    pub sysctls: BTreeMap<String, String>,
    /// Receive packet steering.
    pub rps: Option<Rps>,
    /// Whether threads of the kernel process what interfaces receive.
    pub threaded: Option<bool>,
}

/// Where receive packet steering takes what an interface receives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rps {
    /// Nowhere: a veth's packets are processed by the CPU that sent them.
    Off,
    /// To the CPUs of the interface's node.
    Node,
    /// To these.
    Cpus(CpuSet),
}

impl TestbedSettings {
    fn is_of_interfaces(&self) -> bool {
        !self.offloads.is_empty() || self.qdisc.is_some() || self.rps.is_some() || self.threaded.is_some()
    }

    fn is_in(&self, space: &str) -> bool {
        let holds = |own: &String| {
            space.strip_prefix(own.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.nodes.is_empty() || self.nodes.iter().any(holds)
    }

    fn is_at(&self, interface: &Interface) -> bool {
        match self.interfaces.as_slice() {
            [] => matches!(interface.link, Link::Wire | Link::Veth { .. } | Link::Far),
            names => names.contains(&interface.name),
        }
    }

    /// The interfaces that it is about, with their namespaces' names.
    fn interfaces<'p>(&self, plan: &'p Plan) -> impl Iterator<Item = (&'p str, &'p Interface)> {
        let spaces = plan.spaces().filter(|space| self.is_in(&space.name));
        spaces.flat_map(|space| {
            let own = space.interfaces.iter().filter(|interface| self.is_at(interface));
            own.map(|interface| (space.name.as_str(), interface))
        })
    }

    /// Adds it to what is built.
    fn add_to(&self, plan: &mut Plan) {
        for node in &mut plan.nodes {
            let cpus = &node.cpus;
            for space in node.spaces.iter_mut().filter(|space| self.is_in(&space.name)) {
                space.chosen.extend(self.sysctls.iter().map(|(key, value)| Sysctl::new(key, value)));
                for interface in space.interfaces.iter_mut().filter(|interface| self.is_at(interface)) {
                    interface.features.extend(self.offloads.iter().map(|(name, on)| (name.clone(), *on)));
                    if self.qdisc.is_some() {
                        interface.qdisc.clone_from(&self.qdisc);
                    }
                    if self.threaded.is_some() {
                        interface.threaded = self.threaded;
                    }
                    match &self.rps {
                        None => {}
                        Some(Rps::Off) => interface.steering = None,
                        Some(Rps::Node) => interface.steering = Some(cpus.clone()),
                        Some(Rps::Cpus(cpus)) => interface.steering = Some(cpus.clone()),
                    }
                }
            }
        }
    }

    /// What is wrong with it in a testbed that is built as `plan`.
    fn check(&self, plan: &Plan) -> Result<(), TopologyError> {
        let unknown = |what: &str, name: &str, known: BTreeSet<&str>| {
            let meant = mistakes::closest(name, known.iter().copied());
            let meant = meant.map_or_else(String::new, |meant| format!("did you mean {meant}? "));
            let known = known.into_iter().collect::<Vec<_>>().join(", ");
            Err(TopologyError::new(
                format!("no {what} '{name}' to set something on"),
                format!("{meant}there are {known}"),
            ))
        };
        let spaces: BTreeSet<&str> = plan.spaces().map(|space| space.name.as_str()).collect();
        if let Some(node) = self.nodes.iter().find(|node| !spaces.contains(node.as_str())) {
            return unknown("node", node, spaces);
        }
        for key in self.sysctls.keys() {
            check_sysctl(key)?;
        }
        if !self.is_of_interfaces() {
            let what =
                if self.sysctls.is_empty() { "nothing is set" } else { "interfaces, and nothing to set on them" };
            let hint = "give it offloads, qdisc, rps or threaded";
            let is_idle = self.sysctls.is_empty() || !self.interfaces.is_empty();
            return if is_idle { Err(TopologyError::new(what, hint)) } else { Ok(()) };
        }
        let all = plan.spaces().filter(|space| self.is_in(&space.name)).flat_map(|space| &space.interfaces);
        let all: BTreeSet<&str> = all.map(|interface| interface.name.as_str()).collect();
        if let Some(name) = self.interfaces.iter().find(|name| !all.contains(name.as_str())) {
            return unknown("interface", name, all);
        }
        if self.interfaces(plan).next().is_none() {
            return Err(TopologyError::new("nothing to set something on", "name nodes that have interfaces"));
        }
        let limited = self.interfaces(plan).find(|(_, interface)| interface.rate.is_some());
        match (limited, &self.qdisc) {
            (Some((space, interface)), Some(qdisc)) => {
                let what = format!("qdisc {qdisc} on {} of {space}, whose wire has a rate", interface.name);
                Err(TopologyError::new(
                    what,
                    "the rate is a qdisc itself: remove one of them, or name other interfaces",
                ))
            }
            _ => Ok(()),
        }
    }
}

/// Only what a network namespace has of its own is set: nothing of the machine.
fn check_sysctl(key: &str) -> Result<(), TopologyError> {
    let is_part =
        |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    let what = || format!("sysctl '{key}'");
    match key.split('.').collect::<Vec<_>>().as_slice() {
        ["net", rest @ ..] if !rest.is_empty() && rest.iter().all(|part| is_part(part)) => Ok(()),
        ["net", ..] => Err(TopologyError::new(what(), "write it with dots, for instance net.ipv4.tcp_ecn")),
        _ => Err(TopologyError::new(what(), "only those of a network namespace can be set: they begin with net.")),
    }
}

impl Topology {
    /// This testbed with more set on it; when two set the same thing, the last holds.
    ///
    /// # Errors
    /// When it names what the testbed does not have, or sets nothing.
    pub fn with_chosen(mut self, chosen: Vec<TestbedSettings>) -> Result<Self, TopologyError> {
        let plan = self.plan(&[]);
        chosen.iter().try_for_each(|one| one.check(&plan))?;
        self.chosen.extend(chosen);
        Ok(self)
    }

    /// What users chose to be set.
    pub fn chosen(&self) -> &[TestbedSettings] {
        &self.chosen
    }

    pub(super) fn choose(&self, plan: &mut Plan) {
        self.chosen.iter().for_each(|one| one.add_to(plan));
    }
}

impl fmt::Display for Rps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Node => f.write_str("node"),
            Self::Cpus(cpus) => cpus.fmt(f),
        }
    }
}

/// `rx-gro off, qdisc fq at eth0 of b`
impl fmt::Display for TestbedSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let switch = |on: bool| if on { "on" } else { "off" };
        let mut parts: Vec<String> = self.offloads.iter().map(|(name, on)| format!("{name} {}", switch(*on))).collect();
        parts.extend(self.qdisc.iter().map(|kind| format!("qdisc {kind}")));
        parts.extend(self.rps.iter().map(|rps| format!("RPS {rps}")));
        parts.extend(self.threaded.map(|on| format!("threaded NAPI {}", switch(on))));
        parts.extend(self.sysctls.iter().map(|(key, value)| format!("{key} = {value}")));
        f.write_str(&parts.join(", "))?;
        if !self.interfaces.is_empty() {
            write!(f, " at {}", self.interfaces.join(", "))?;
        }
        if !self.nodes.is_empty() {
            write!(f, " of {}", self.nodes.join(", "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::paths::tests::named;
    use crate::topology::{Endpoint, WireOptions};

    fn on(path: &str, wire: WireOptions, chosen: TestbedSettings) -> Result<Topology, TopologyError> {
        let ends: [Endpoint; 2] = ["a/x", "b/y"].map(|end| end.parse().unwrap());
        Topology::new(&["a".to_owned(), "b".to_owned()], Some(wire), named(path), &ends)?.with_chosen(vec![chosen])
    }

    fn of(nodes: &[&str]) -> TestbedSettings {
        TestbedSettings { nodes: nodes.iter().map(ToString::to_string).collect(), ..TestbedSettings::default() }
    }

    #[test]
    fn what_is_chosen_is_set_where_it_is_chosen_and_told() {
        let gro = BTreeMap::from([("rx-gro".to_owned(), false)]);
        let sysctls = BTreeMap::from([("net.ipv4.tcp_ecn".to_owned(), "0".to_owned())]);
        let chosen = TestbedSettings { offloads: gro.clone(), sysctls, rps: Some(Rps::Off), ..of(&["b"]) };
        assert_eq!(chosen.to_string(), "rx-gro off, RPS off, net.ipv4.tcp_ecn = 0 of b");
        let topology = on("bridge", WireOptions::default(), chosen).unwrap();
        let plan = topology.plan(&[CpuSet::new([0]), CpuSet::new([1])]);
        let set = |space: &str, name: &str| plan.space(space).unwrap().interface(name).unwrap().features == gro;
        // Ends of the wire and of the container's link, and not the bridge between them.
        assert!(set("b", "eth0") && set("b", "port0") && set("b/y", "eth0"));
        assert!(!set("b", "br0") && !set("a", "eth0") && !set("a/x", "eth0"));
        assert_eq!(plan.space("b").unwrap().interface("eth0").unwrap().steering, None);
        assert_eq!(plan.space("a").unwrap().interface("eth0").unwrap().steering, Some(CpuSet::new([0])));
        assert!(plan.space("b/y").unwrap().chosen.len() == 1 && plan.space("a").unwrap().chosen.is_empty());
        let told = plan.settings().join("\n");
        assert!(told.contains("rx-gro off at b eth0, b port0 and b/y eth0"), "{told}");
        assert!(told.contains("net.ipv4.tcp_ecn=0 in b, b/y"), "{told}");
        assert!(told.contains("receive packet steering (RPS): a eth0 to CPU 0"), "{told}");
    }

    #[test]
    fn what_cannot_be_set_is_refused_by_name() {
        let wrong =
            |path: &str, wire: WireOptions, chosen: TestbedSettings| on(path, wire, chosen).unwrap_err().to_string();
        let plain = |chosen: TestbedSettings| wrong("bridge", WireOptions::default(), chosen);
        let sysctl = |key: &str| TestbedSettings {
            sysctls: BTreeMap::from([(key.to_owned(), "1".to_owned())]),
            ..TestbedSettings::default()
        };
        assert!(plain(TestbedSettings::default()).starts_with("nothing is set"));
        assert!(plain(TestbedSettings { threaded: Some(true), ..of(&["c"]) }).contains("no node 'c'"));
        let interfaces = vec!["eth1".to_owned()];
        let error = plain(TestbedSettings {
            interfaces: interfaces.clone(),
            threaded: Some(true),
            ..TestbedSettings::default()
        });
        assert!(error.contains("no interface 'eth1'") && error.contains("br0, eth0, port0"), "{error}");
        assert!(plain(TestbedSettings { interfaces, ..sysctl("net.ipv4.tcp_ecn") }).contains("nothing to set on them"));
        for key in ["kernel.panic", "net", "net.ipv4..x", "net.ipv4/x", "net.ipv4.../../kernel"] {
            assert!(plain(sysctl(key)).contains(&format!("sysctl '{key}'")), "{key}");
        }
        let limited = WireOptions { rate: Some(1_000_000_000), ..WireOptions::default() };
        let qdisc = TestbedSettings { qdisc: Some("fq".to_owned()), ..TestbedSettings::default() };
        assert!(wrong("bridge", limited, qdisc.clone()).contains("qdisc fq on eth0 of a, whose wire has a rate"));
        on("bridge", limited, TestbedSettings { nodes: vec!["b/y".to_owned()], ..qdisc }).unwrap();
    }
}
