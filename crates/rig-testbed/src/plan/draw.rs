//! A plan as text.

use rig_sys::cpu::CpuSet;
use rig_sys::ethtool::Offload;

use super::{DEFAULT_MTU, Interface, Link, NamespacePlan, Node, Plan, Wire};

/// Containers shown of one node; the rest is counted.
const SHOWN: usize = 4;
/// Nodes of a mesh in a row.
const ROW: usize = 2;
/// Nodes stand side by side as far as this goes: with an indent on a terminal of 80 columns.
const WIDEST: usize = 76;
/// Between one layer of a node and the next.
const JOINT: &str = "  │";

impl Plan {
    /// The testbed as a drawing: its nodes side by side with the wires between neighbours, or one below the other where they
    /// would be too wide for a terminal. Other wires are listed below.
    pub fn draw(&self) -> String {
        if self.is_mesh() {
            return self.draw_mesh();
        }
        self.row(&self.nodes, Self::label) + &self.other_wires()
    }

    fn other_wires(&self) -> String {
        let others = self.wires.iter().filter(|wire| !self.joins_neighbours(wire));
        let line = |wire: &Wire| {
            let [a, b] = &wire.ends;
            let label = self.wire_label(wire, 1);
            format!("{} {} ── {label} ── {} {}\n", a.space, a.interface, b.space, b.interface)
        };
        others.map(line).collect()
    }

    /// Whether there are more than two nodes, and a wire between each two of them.
    fn is_mesh(&self) -> bool {
        let count = self.nodes.len();
        count > 2 && self.wires.len() == count * (count - 1) / 2
    }

    /// Rows of nodes, and what is the same of all wires in a line of its own.
    fn draw_mesh(&self) -> String {
        let mut text: String = self.nodes.chunks(ROW).map(|nodes| self.row(nodes, |_, _, _| String::new())).collect();
        if let Some(wire) = self.wires.first() {
            text.push_str(&format!("between each two nodes: {}\n", self.wire_label(wire, 1)));
        }
        text
    }

    /// Nodes side by side, with what is to be said between two of them.
    fn row(&self, nodes: &[Node], between: impl Fn(&Self, &Node, &Node) -> String) -> String {
        let boxes: Vec<Vec<String>> = nodes.iter().map(|node| self.node_box(node)).collect();
        let labels: Vec<String> = nodes.windows(2).map(|pair| between(self, &pair[0], &pair[1])).collect();
        let wide: usize = boxes.iter().filter_map(|lines| lines.first()).map(|line| line.chars().count()).sum();
        let gaps: usize = labels.iter().map(|label| label.chars().count().saturating_sub(2)).sum();
        if wide + gaps > WIDEST {
            return stacked(&boxes, &labels);
        }
        let height = boxes.iter().map(Vec::len).max().unwrap_or(0);
        let boxes: Vec<Vec<String>> = boxes.iter().map(|lines| pad(lines, height)).collect();
        let mut text = String::new();
        for row in 0..height {
            let mut line = String::new();
            for (number, lines) in boxes.iter().enumerate() {
                line.push_str(&lines[row]);
                let Some(label) = labels.get(number) else { continue };
                // The wire leaves from the last line inside the boxes.
                match row + 2 == height && !label.is_empty() {
                    true => line.push_str(label),
                    false => line.push_str(&" ".repeat(label.chars().count().saturating_sub(2).max(1))),
                }
            }
            text.push_str(&line.replace("│├", "├").replace("┤│", "┤"));
            text.push('\n');
        }
        text
    }

    /// What the drawing says of the wires between two nodes that stand side by side; nothing without any.
    fn label(&self, left: &Node, right: &Node) -> String {
        let wires: Vec<&Wire> = self.wires_between(left, right).collect();
        wires.first().map_or_else(String::new, |wire| format!("├── {} ──┤", self.wire_label(wire, wires.len())))
    }

    fn wires_between<'a>(&'a self, left: &'a Node, right: &'a Node) -> impl Iterator<Item = &'a Wire> {
        let joins = |wire: &&Wire| {
            let is_of = |end: usize, node: &Node| wire.ends[end].space == node.name;
            is_of(0, left) && is_of(1, right) || is_of(0, right) && is_of(1, left)
        };
        self.wires.iter().filter(joins)
    }

    fn joins_neighbours(&self, wire: &Wire) -> bool {
        self.nodes.windows(2).any(|pair| self.wires_between(&pair[0], &pair[1]).any(|other| other == wire))
    }

    fn wire_label(&self, wire: &Wire, lanes: usize) -> String {
        let Some(end) = self.interface(&wire.ends[0]) else { return "wire".to_owned() };
        let mut label = match end.rate {
            Some(rate) => format!("wire {}", rig_stats::units::BitRate(rate)),
            None if lanes > 1 => format!("{lanes} wires"),
            None => "wire".into(),
        };
        if let Some(mtu) = end.mtu.filter(|mtu| *mtu != DEFAULT_MTU) {
            label.push_str(&format!(", MTU {mtu}"));
        }
        if end.queues > 1 {
            label.push_str(&format!(", {} queues", end.queues));
        }
        if end.offloads.get(&Offload::Gso) == Some(&false) {
            label.push_str(", no seg");
        }
        label
    }

    fn node_box(&self, node: &Node) -> Vec<String> {
        let mut lines = self.node_lines(node);
        let title = title(&node.name, &node.cpus);
        let width = lines.iter().map(|l| l.chars().count()).max().unwrap_or(0).max(title.chars().count() + 2);
        for line in &mut lines {
            let fill = width - line.chars().count();
            *line = format!("│ {line}{} │", " ".repeat(fill));
        }
        let rule = "─".repeat(width - title.chars().count() - 1);
        lines.insert(0, format!("┌─ {title} {rule}┐"));
        lines.push(format!("└{}┘", "─".repeat(width + 2)));
        lines
    }

    /// What packets pass in a node, from its containers down to its wires.
    fn node_lines(&self, node: &Node) -> Vec<String> {
        let Some((own, containers)) = node.spaces.split_first() else { return Vec::new() };
        let mut layers: Vec<Vec<String>> = Vec::new();
        if !containers.is_empty() {
            layers.push(container_lines(containers));
        }
        match &node.datapath {
            Some(datapath) => layers.push(vec![datapath.clone()]),
            None if containers.is_empty() => layers.push(vec!["network stack".to_owned()]),
            None if own.forwards() => layers.push(vec!["routing".to_owned()]),
            None => {}
        }
        for interface in &own.interfaces {
            match &interface.link {
                Link::Bridge => layers.insert(layers.len().min(1), vec![format!("{}, bridge", interface.name)]),
                Link::Vxlan { vni, port, .. } => {
                    layers.push(vec![format!("{}, VNI {vni}, UDP port {port}", interface.name)]);
                }
                Link::Wire | Link::Veth { .. } | Link::Far | Link::Macvlan { .. } | Link::OfHost { .. } => {}
            }
        }
        let wires = self.wire_lines(node, own);
        layers.extend((!wires.is_empty()).then_some(wires));
        layers.join(&[JOINT.to_owned()][..])
    }

    /// The node's end of a wire to each node that it has one to, with the addresses that it has.
    fn wire_lines(&self, node: &Node, own: &NamespacePlan) -> Vec<String> {
        if self.is_mesh() {
            // Their tunnels end at one address, whichever wire they come by.
            let ends: Vec<&Interface> = own.interfaces.iter().filter(|end| end.link == Link::Wire).collect();
            let [first, .., last] = ends.as_slice() else { return Vec::new() };
            let addresses = first.addresses.iter().map(|own| format!(" {}", own.addr()));
            return vec![format!("{} to {}{}", first.name, last.name, addresses.collect::<String>())];
        }
        let firsts = self.nodes.iter().filter_map(|other| self.wires_between(node, other).next());
        let ends = firsts.filter_map(|wire| wire.ends.iter().find(|end| end.space == node.name));
        ends.filter_map(|end| own.interface(&end.interface)).map(with_address).collect()
    }
}

/// The boxes one below the other with the wires between them.
fn stacked(boxes: &[Vec<String>], labels: &[String]) -> String {
    let mut text = String::new();
    for (number, lines) in boxes.iter().enumerate() {
        lines.iter().for_each(|line| text.push_str(&format!("{line}\n")));
        if let Some(label) = labels.get(number).filter(|label| !label.is_empty()) {
            let label = label.trim_matches(['├', '┤', '─', ' ']);
            text.push_str(&format!("  │ {label}\n"));
        }
    }
    text
}

fn title(name: &str, cpus: &CpuSet) -> String {
    match cpus.len() {
        0 => format!("node {name}"),
        1 => format!("node {name}, CPU {cpus}"),
        _ => format!("node {name}, CPUs {cpus}"),
    }
}

/// `eth0 172.16.0.11`
fn with_address(interface: &Interface) -> String {
    let addresses = interface.addresses.iter().map(|own| own.addr().to_string());
    std::iter::once(interface.name.clone()).chain(addresses).collect::<Vec<_>>().join(" ")
}

fn container_lines(containers: &[NamespacePlan]) -> Vec<String> {
    let line = |space: &NamespacePlan| {
        let name = space.name.split_once('/').map_or(space.name.as_str(), |(_, name)| name);
        let ends: Vec<String> = space
            .interfaces
            .iter()
            .map(|end| {
                let joint = if matches!(end.link, Link::Macvlan { .. }) { "macvlan" } else { "veth" };
                format!("{} ({joint})", with_address(end))
            })
            .collect();
        format!("[{name}] {}", ends.join(", "))
    };
    let mut lines: Vec<String> = containers.iter().take(SHOWN).map(line).collect();
    if containers.len() > SHOWN {
        lines.push(format!("... and {} more", containers.len() - SHOWN));
    }
    lines
}

/// The box made `height` lines high by empty lines below its title.
fn pad(lines: &[String], height: usize) -> Vec<String> {
    let mut lines = lines.to_vec();
    let width = lines[0].chars().count();
    while lines.len() < height {
        lines.insert(1, format!("│{}│", " ".repeat(width - 2)));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::paths::tests::named;
    use crate::topology::{Family, Path, Topology, WireOptions};

    /// Whether the drawing fits, and each line of a box is as wide as the one above it.
    fn is_even(drawing: &str) -> bool {
        let mut width = None;
        drawing.lines().all(|line| {
            let own = line.chars().count();
            if line.starts_with("  │") {
                width = None;
                return own <= WIDEST;
            }
            own <= WIDEST && *width.get_or_insert(own) == own
        })
    }

    #[test]
    fn a_dut_is_drawn_between_its_wires() {
        let names = ["client", "balancer", "server"].map(str::to_owned);
        let ends = ["client", "server"].map(|end| end.parse().unwrap());
        for path in Path::all().filter(|path| path.is_of_three()) {
            for family in [Family::Ipv4, Family::Ipv6] {
                let wire = Some(WireOptions::default());
                let topology = Topology::new(&names, wire, path, &ends).unwrap().with_family(family).unwrap();
                let drawing = topology.draw(&[CpuSet::new([1]), CpuSet::new([0]), CpuSet::new([1])]);
                assert!(is_even(&drawing), "{path}:\n{drawing}");
                let wires = if path.has_dut() { 2 } else { 1 };
                assert_eq!(
                    drawing.matches("─ wire ─").count() + drawing.matches("  │ wire\n").count(),
                    wires,
                    "{path}:\n{drawing}"
                );
                let other = format!("eth1 {} ", topology.dut_address().addr());
                assert_eq!(drawing.contains(&other), path.has_dut(), "{path}:\n{drawing}");
            }
        }
    }

    #[test]
    fn many_nodes_are_drawn_in_rows_with_their_wires_in_a_line() {
        let names: Vec<String> = (0..7).map(|number| format!("n{number}")).collect();
        let ends = ["n0/sender", "n6/receiver"].map(|end| end.parse().unwrap());
        let topology = Topology::of_networks(3, &names, Some(WireOptions::default()), named("vrouter"), &ends).unwrap();
        let drawing = topology.draw(&[CpuSet::new([0])]);
        insta::assert_snapshot!(drawing);
        assert!(drawing.lines().all(|line| line.chars().count() <= 120), "{drawing}");
    }

    #[test]
    fn every_line_of_a_drawing_is_as_wide_as_the_first() {
        let names = ["a".to_owned(), "b".to_owned()];
        for (path, left, right) in [
            (named("raw"), vec!["a"], vec!["b"]),
            (named("etun"), vec!["a/one"], vec!["b/two"]),
            (named("bridge"), vec!["a/1", "a/2", "a/3", "a/4", "a/5", "a/6"], vec!["b/1"]),
            (named("vxlan"), vec!["a/sender"], vec!["b/receiver"]),
            (named("vrouter"), vec!["a/sender"], vec!["b/receiver"]),
            (named("macvlan"), vec!["a/sender"], vec!["b/receiver"]),
            (named("etun"), vec!["a/sender"], vec!["b"]),
            (named("macvlan"), vec!["a"], vec!["b/receiver"]),
        ] {
            let ends: Vec<_> = left.iter().chain(&right).map(|e| e.parse().unwrap()).collect();
            let wire = WireOptions { rate: Some(10_000_000_000), segmentation_offload: false, ..Default::default() };
            for family in [Family::Ipv4, Family::Ipv6] {
                let topology = Topology::new(&names, Some(wire), path, &ends).unwrap().with_family(family).unwrap();
                let drawing = topology.draw(&[CpuSet::new([0]), CpuSet::new([1, 2])]);
                assert!(is_even(&drawing), "{path}:\n{drawing}");
                assert!(drawing.contains("CPUs 1-2") && drawing.contains("wire 10Gbit, no seg"), "{path}:\n{drawing}");
                for end in &ends {
                    let address = format!("eth0 {} ", topology.address(end).unwrap());
                    assert!(drawing.contains(&address) || ends.len() > 4, "{path}:\n{drawing}lacks {address}");
                }
            }
        }
    }
}
