//! Client, middle and server: the lanes between them, and who receives what on which CPU.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rig_sys::Result;
use rig_sys::ethtool::{self, Offload};
use rig_sys::napi::{self, Urgency};

use super::super::topology::{Endpoint, Family, MIDDLE, Path, Topology, WireOptions, client_link, server_link, uplink};
use super::{Testbed, lay};

/// A wire of a lane, seen from the middle.
struct ToEnd {
    /// The node at its other end.
    node: usize,
    /// The middle's interface and its address there.
    link: String,
    middle: (IpAddr, u8),
    /// The end's.
    far_link: String,
    far: (IpAddr, u8),
}

/// Both wires of each lane of a testbed with a middle, lane by lane.
fn wires(topology: &Topology) -> Vec<ToEnd> {
    let on = |(address, prefix), lane| (topology.on_lane(address, lane), prefix);
    let both = |lane| {
        let to = |node, link, middle| ToEnd {
            node,
            link,
            middle: on(middle, lane),
            far_link: uplink(lane),
            far: on(topology.node_address(node), lane),
        };
        [
            to(MIDDLE - 1, client_link(lane), topology.node_address(MIDDLE)),
            to(MIDDLE + 1, server_link(lane), topology.middle_address()),
        ]
    };
    (0..topology.lanes()).flat_map(both).collect()
}

impl Testbed {
    /// The CPUs of a node in the order in which packet workers take them. Where client and server have the same, the one
    /// begins with the first and the other with the last, so that they meet as late as can be.
    pub fn turns(&self, node: usize) -> Vec<u32> {
        let mut cpus = self.cpus(node).as_slice().to_vec();
        if self.topology.path().is_of_three() && node + 1 == self.nodes.len() {
            cpus.reverse();
        }
        cpus
    }

    pub(super) fn lay_lanes(&mut self, wire: WireOptions) -> Result<()> {
        for lane in 0..self.topology.lanes() {
            match &mut self.nodes[..] {
                [client, server] => lay(wire, (client, &uplink(lane)), (server, &uplink(lane)))?,
                [client, middle, server] => {
                    lay(wire, (client, &uplink(lane)), (middle, &client_link(lane)))?;
                    lay(wire, (middle, &server_link(lane)), (server, &uplink(lane)))?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// With nothing between them, the ends are in one subnet on each lane.
    pub(super) fn address_lanes(&mut self) -> Result<()> {
        for (number, node) in self.nodes.iter_mut().enumerate() {
            let (address, prefix) = self.topology.node_address(number);
            for lane in 0..self.topology.lanes() {
                node.place.netlink.add_address(&uplink(lane), self.topology.on_lane(address, lane), prefix)?;
            }
        }
        Ok(())
    }

    /// The ends' kernels reach each other and the middle's pools through the middle.
    pub(super) fn route_through_middle(&mut self) -> Result<()> {
        let forwarding = match self.topology.family() {
            Family::Ipv4 => "net.ipv4.ip_forward",
            Family::Ipv6 => "net.ipv6.conf.all.forwarding",
        };
        self.set_all_up()?;
        let wires = wires(&self.topology);
        self.nodes[MIDDLE].place.ns.sysctl(forwarding, "1")?;
        for wire in &wires {
            let ends = [(MIDDLE, &wire.link, wire.middle), (wire.node, &wire.far_link, wire.far)];
            for (node, link, (address, prefix)) in ends {
                self.nodes[node].place.netlink.add_address(link, address, prefix)?;
            }
        }
        for lane in wires.chunks(2) {
            for (own, other) in [(&lane[0], &lane[1]), (&lane[1], &lane[0])] {
                let (subnet, prefix) = network(other.middle);
                self.nodes[own.node].place.netlink.add_route(subnet, prefix, own.middle.0)?;
            }
        }
        // What the kernels themselves send to the middle's pools, if anything, goes by the first lane.
        let pools = [self.topology.virtual_pool(), self.topology.local_pool()];
        for (wire, pool) in wires.iter().zip(pools) {
            let (subnet, prefix) = pool.subnet();
            self.nodes[wire.node].place.netlink.add_route(subnet, prefix, wire.middle.0)?;
        }
        Ok(())
    }

    /// Lets the middle route to each end's pools, each on its lane.
    pub(super) fn route_lane_pools(&mut self) -> Result<()> {
        for (number, wire) in wires(&self.topology).into_iter().enumerate() {
            let end = &self.nodes[wire.node].place;
            let endpoint = Endpoint { node: end.name.clone(), container: None };
            let Some(pool) = self.topology.lane_pool(&endpoint, number as u32 / 2) else { continue };
            let (mac, (subnet, prefix)) = (end.mac(&wire.far_link)?, pool.subnet());
            let middle = &mut self.nodes[MIDDLE].place.netlink;
            middle.add_route(subnet, prefix, wire.far.0)?;
            // XDP programs cannot ask where it is: their first packets would be lost.
            middle.add_neighbor(&wire.link, wire.far.0, mac)?;
        }
        Ok(())
    }

    /// Places what nodes do to receive, each as it can carry most; see docs/decisions/three-nodes.md.
    pub(super) fn place_receiving(&self) -> Result<()> {
        let (path, middle) = (self.topology.path(), self.topology.middle());
        // What is received on the ends' CPUs is received by that of the worker that sent it, in whose cache it is, or that
        // is to have it.
        let workers = |end: usize, lane: usize| from(self.turns(end), lane);
        for (number, node) in self.nodes.iter().enumerate() {
            for (turn, interface) in node.place.interfaces.iter().enumerate() {
                let ns = &node.place.ns;
                // A veth interface that takes unsegmented TCP hands everything to the sender's softirq and not to the
                // peer's thread, as nothing would be left for the peer to merge (veth_xmit of drivers/net/veth.c).
                ethtool::set(ns, &interface.name, Offload::Tso, false)?;
                // Ends first, for they have little room for what waits.
                let (cpus, urgency) = match (path, middle == Some(number)) {
                    // Its workers have queues, which the ends' CPUs fill, as a network card would.
                    (Path::Balancer, true) => {
                        // Its interfaces are those to the client and to the server in turn, lane by lane.
                        let end = if turn % 2 == 0 { MIDDLE - 1 } else { MIDDLE + 1 };
                        (workers(end, turn / 2), Urgency::RealTime(1))
                    }
                    // Workers hand frames over themselves, which a veth takes with GRO only.
                    (Path::Balancer, false) => {
                        ethtool::set(ns, &interface.name, Offload::Gro, true)?;
                        continue;
                    }
                    // A proxy on the same CPU has to get its turn.
                    (Path::Haproxy, true) => (from(node.cpus.as_slice().to_vec(), turn), Urgency::Normal),
                    (_, true) => (from(node.cpus.as_slice().to_vec(), turn), Urgency::RealTime(1)),
                    (_, false) => (workers(number, turn), Urgency::RealTime(2)),
                };
                napi::place(ns, &interface.name, &cpus, urgency)?;
                let steered = middle == Some(number) && path != Path::Balancer && node.cpus.len() > 1;
                if let Some(wire) = self.topology.wire().filter(|_| steered) {
                    node.place.steer_receive(&interface.name, wire, &node.cpus)?;
                }
            }
        }
        Ok(())
    }
}

/// CPUs in turn, from the one with this number on.
fn from(mut cpus: Vec<u32>, first: usize) -> Vec<u32> {
    let by = first % cpus.len().max(1);
    cpus.rotate_left(by);
    cpus
}

/// The subnet that an address is in, with its prefix' length.
fn network((address, prefix): (IpAddr, u8)) -> (IpAddr, u8) {
    let network = match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
            Ipv4Addr::from_bits(address.to_bits() & mask).into()
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
            Ipv6Addr::from_bits(address.to_bits() & mask).into()
        }
    };
    (network, prefix)
}
