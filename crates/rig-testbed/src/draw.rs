//! A topology as text.

use rig_sys::cpu::CpuSet;

use super::build::{SERVER_LINK, UPLINK};
use super::topology::{Path, Topology, WireOptions};

/// Containers shown of one node; the rest is counted.
const SHOWN: usize = 4;

impl Topology {
    /// The testbed as a drawing of lines up to about 100 columns. `cpus` are the CPUs of each node, if they are known.
    pub fn draw(&self, cpus: &[CpuSet]) -> String {
        let boxes: Vec<Vec<String>> = (0..self.nodes().len()).map(|node| self.node_box(node, cpus.get(node))).collect();
        let mut text = String::new();
        let Some(wire) = self.wire().filter(|_| boxes.len() > 1) else {
            for line in boxes.iter().flatten() {
                text.push_str(line);
                text.push('\n');
            }
            return text;
        };
        let label = format!("├── {} ──┤", wire_label(wire, self.lanes()));
        let gap = " ".repeat(label.chars().count() - 2);
        let height = boxes.iter().map(Vec::len).max().unwrap_or(0);
        let boxes: Vec<Vec<String>> = boxes.iter().map(|lines| pad(lines, height)).collect();
        for row in 0..height {
            let lines: Vec<&str> = boxes.iter().map(|lines| lines[row].as_str()).collect();
            // The wire leaves from the last line inside the boxes.
            text.push_str(&match row + 2 == height {
                false => lines.join(&gap),
                true => lines.join(&label).replace("│├", "├").replace("┤│", "┤"),
            });
            text.push('\n');
        }
        text
    }

    fn node_box(&self, node: usize, cpus: Option<&CpuSet>) -> Vec<String> {
        let mut lines = self.node_lines(node);
        let name = &self.nodes()[node].name;
        let title = match cpus {
            Some(cpus) if cpus.len() == 1 => format!("node {name}, CPU {cpus}"),
            Some(cpus) => format!("node {name}, CPUs {cpus}"),
            None => format!("node {name}"),
        };
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

    fn node_lines(&self, node: usize) -> Vec<String> {
        let own = self.node_address(node).0;
        if self.middle() == Some(node) {
            let stands = match self.path() {
                Path::Balancer => "balancer (XDP)",
                Path::Nftables => "nftables, DNAT and masquerade",
                Path::Haproxy => "HAProxy, TCP mode",
                _ => "IPVS, NAT",
            };
            let other = self.middle_address().0;
            return vec![stands.into(), "  │".into(), format!("{UPLINK} {own}"), format!("{SERVER_LINK} {other}")];
        }
        let containers = &self.nodes()[node].containers;
        if containers.is_empty() {
            return vec!["network stack".into(), "  │".into(), format!("eth0 {own}")];
        }
        let (joint, below): (&str, Vec<String>) = match self.path() {
            Path::Raw | Path::Etun => ("veth", vec!["  │".into(), "routing".into()]),
            Path::Bridge | Path::Colocated => ("veth", vec!["  │".into(), "br0, bridge".into()]),
            Path::Vxlan => {
                let rest = ["  │", "br0, bridge", "  │", "vxlan0, VNI 42, UDP port 4789"];
                ("veth", rest.map(str::to_owned).to_vec())
            }
            Path::Macvlan => ("macvlan", vec!["  │".into()]),
            // These paths have no containers.
            Path::Direct | Path::Balancer | Path::Nftables | Path::Haproxy | Path::Ipvs => ("veth", vec!["  │".into()]),
        };
        let mut lines: Vec<String> = containers
            .iter()
            .enumerate()
            .take(SHOWN)
            .map(|(index, name)| format!("[{name}] eth0 {} ({joint})", self.container_address(node, index).0))
            .collect();
        if containers.len() > SHOWN {
            lines.push(format!("... and {} more", containers.len() - SHOWN));
        }
        lines.extend(below);
        if self.wire().is_some() {
            if self.path() != Path::Macvlan {
                lines.push("  │".into());
            }
            let addressed = matches!(self.path(), Path::Etun | Path::Vxlan);
            lines.push(if addressed { format!("eth0 {own}") } else { "eth0".into() });
        }
        lines
    }
}

fn wire_label(wire: WireOptions, lanes: u32) -> String {
    let mut label = match wire.rate {
        Some(rate) => format!("wire {}", rig_stats::units::BitRate(rate)),
        None if lanes > 1 => format!("{lanes} wires"),
        None => "wire".into(),
    };
    if wire.mtu != WireOptions::default().mtu {
        label.push_str(&format!(", MTU {}", wire.mtu));
    }
    if wire.queues > 1 {
        label.push_str(&format!(", {} queues", wire.queues));
    }
    if !wire.segmentation_offload {
        label.push_str(", no seg");
    }
    label
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
    use super::super::topology::Family;
    use super::*;

    #[test]
    fn a_middle_is_drawn_between_its_wires() {
        let names = ["client", "balancer", "server"].map(str::to_owned);
        let ends = ["client", "server"].map(|end| end.parse().unwrap());
        for path in Path::ALL.into_iter().filter(|path| path.is_of_three()) {
            for family in [Family::Ipv4, Family::Ipv6] {
                let wire = Some(WireOptions::default());
                let topology = Topology::new(&names, wire, path, &ends).unwrap().with_family(family).unwrap();
                let drawing = topology.draw(&[CpuSet::new([1]), CpuSet::new([0]), CpuSet::new([1])]);
                let widths: Vec<usize> = drawing.lines().map(|line| line.chars().count()).collect();
                assert!(widths.iter().all(|w| *w == widths[0] && *w <= 120), "{path}:\n{drawing}");
                let wires = if path.has_middle() { 2 } else { 1 };
                assert_eq!(drawing.matches("├── wire ──┤").count(), wires, "{path}:\n{drawing}");
                let other = format!("eth1 {} ", topology.middle_address().0);
                assert_eq!(drawing.contains(&other), path.has_middle(), "{path}:\n{drawing}");
            }
        }
    }

    #[test]
    fn every_line_of_a_drawing_is_as_wide_as_the_first() {
        let names = ["a".to_owned(), "b".to_owned()];
        for (path, left, right) in [
            (Path::Raw, vec!["a"], vec!["b"]),
            (Path::Etun, vec!["a/one"], vec!["b/two"]),
            (Path::Bridge, vec!["a/1", "a/2", "a/3", "a/4", "a/5", "a/6"], vec!["b/1"]),
            (Path::Vxlan, vec!["a/sender"], vec!["b/receiver"]),
            (Path::Macvlan, vec!["a/sender"], vec!["b/receiver"]),
            (Path::Etun, vec!["a/sender"], vec!["b"]),
            (Path::Macvlan, vec!["a"], vec!["b/receiver"]),
        ] {
            let ends: Vec<_> = left.iter().chain(&right).map(|e| e.parse().unwrap()).collect();
            let wire = WireOptions { rate: Some(10_000_000_000), segmentation_offload: false, ..Default::default() };
            for family in [Family::Ipv4, Family::Ipv6] {
                let topology = Topology::new(&names, Some(wire), path, &ends).unwrap().with_family(family).unwrap();
                let drawing = topology.draw(&[CpuSet::new([0]), CpuSet::new([1, 2])]);
                let widths: Vec<usize> = drawing.lines().map(|line| line.chars().count()).collect();
                assert!(widths.iter().all(|w| *w == widths[0] && *w <= 120), "{path}:\n{drawing}");
                assert!(drawing.contains("CPUs 1-2") && drawing.contains("wire 10Gbit, no seg"), "{path}:\n{drawing}");
                for end in &ends {
                    let address = format!("eth0 {} ", topology.address(end).unwrap());
                    assert!(drawing.contains(&address) || ends.len() > 4, "{path}:\n{drawing}lacks {address}");
                }
            }
        }
    }
}
