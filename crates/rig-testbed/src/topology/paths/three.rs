//! What the paths of client, DUT and server have in common: the lanes between them, and the CPUs on which each node receives.

use rig_sys::ethtool::Offload;
use rig_sys::napi::Urgency;

use super::PlanBuilder;
use crate::plan::{IpNet, Neighbour, Route, Threads};
use crate::topology::address::subnet;
use crate::topology::{DUT, Endpoint, NextHop, Topology, client_link, server_link, uplink};

/// Whose CPUs process what comes to the DUT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReceiveCpus {
    /// The DUT's own, by threads of this urgency.
    ByDut(Urgency),
    /// The ends' put it into the queues of the DUT's workers, as a network card would.
    ByEndpoints,
}

impl ReceiveCpus {
    /// The kernel itself carries packets: before everything else on its CPUs.
    pub const BY_KERNEL: Self = Self::ByDut(Urgency::RealTime(1));
}

/// A wire of a lane, seen from the DUT.
struct DutWire {
    lane: u32,
    /// The node at its other end.
    node: usize,
    /// The DUT's interface and its address there.
    link: String,
    dut: IpNet,
    /// The end's.
    far_link: String,
    far: IpNet,
}

/// Both wires of each lane of a testbed with a DUT, lane by lane, and then the client's of a flood.
fn wires(topology: &Topology) -> Vec<DutWire> {
    let on = |own: IpNet, lane| subnet(topology.on_lane(own.addr(), lane), own.prefix_len());
    let both = |lane| {
        let to = |node, link, dut| DutWire {
            lane,
            node,
            link,
            dut: on(dut, lane),
            far_link: uplink(lane),
            far: on(topology.node_address(node), lane),
        };
        [
            to(DUT - 1, client_link(lane), topology.node_address(DUT)),
            to(DUT + 1, server_link(lane), topology.dut_address()),
        ]
    };
    let mut wires: Vec<DutWire> = (0..topology.lanes()).flat_map(both).collect();
    wires.extend(topology.flood_lane().map(|lane| both(lane).into_iter().next()).into_iter().flatten());
    wires
}

/// Client and server alone, in one subnet on each lane.
pub(super) fn join_ends(draft: &mut PlanBuilder<'_>) {
    let topology = draft.topology;
    let Some(wire) = topology.wire() else { return };
    for lane in 0..topology.lanes() {
        let link = uplink(lane);
        draft.lay(wire, [(0, &link), (1, &link)]);
        for node in 0..2 {
            let own = topology.node_address(node);
            let address = subnet(topology.on_lane(own.addr(), lane), own.prefix_len());
            draft.own(node).interfaces[lane as usize].addresses.push(address);
        }
    }
    (0..2).for_each(|node| receive_at_end(draft, node, ReceiveCpus::BY_KERNEL));
}

/// Client, DUT and server: the ends' kernels reach each other and the DUT's pools through the DUT.
pub(super) fn put_between(draft: &mut PlanBuilder<'_>, datapath: &str, receiving: ReceiveCpus) {
    let topology = draft.topology;
    let Some(wire) = topology.wire() else { return };
    draft.node(DUT).datapath = Some(datapath.to_owned());
    draft.forward(DUT);
    let wires = wires(topology);
    for to in &wires {
        let ends = [(to.node, to.far_link.as_str()), (DUT, to.link.as_str())];
        // The client's end comes first, and the server's last.
        draft.lay(wire, if to.node < DUT { ends } else { [ends[1], ends[0]] });
        for (node, address) in [(DUT, to.dut), (to.node, to.far)] {
            if let Some(link) = draft.own(node).interfaces.last_mut() {
                link.addresses.push(address);
            }
        }
    }
    for [client, server] in wires.as_chunks::<2>().0 {
        for (own, other) in [(client, server), (server, client)] {
            draft.own(own.node).routes.push(Route::via(other.dut.trunc(), own.dut.addr()));
        }
    }
    // What the kernels themselves send to the DUT's pools, if anything, goes by the first lane.
    for (to, pool) in wires.iter().zip([topology.virtual_pool(), topology.local_pool()]) {
        draft.own(to.node).routes.push(Route::via(pool.subnet(), to.dut.addr()));
    }
    for node in [DUT - 1, DUT + 1] {
        receive_at_end(draft, node, receiving);
    }
    receive_at_dut(draft, receiving);
}

/// Lets the DUT route to each end's pools, each on its lane.
pub(super) fn route_pools(draft: &mut PlanBuilder<'_>) {
    let topology = draft.topology;
    let built = topology.plan(&[]);
    for to in wires(topology) {
        let end = draft.own(to.node).name.clone();
        let endpoint = Endpoint { node: end.clone(), container: None };
        let Some(pool) = topology.lane_pool(&endpoint, to.lane) else { continue };
        let dut = draft.own(DUT);
        dut.routes.push(Route::via(pool.subnet(), to.far.addr()));
        // XDP programs cannot ask where it is: their first packets would be lost.
        let mac = built.mac(&end, &to.far_link);
        let neighbour = mac.map(|mac| Neighbour { interface: to.link, address: to.far.addr(), mac });
        dut.neighbours.extend(neighbour);
    }
}

/// Where the DUT takes the packets of both ends.
pub(super) fn next_hop(topology: &Topology, node: usize) -> Option<NextHop> {
    topology.dut().map(|dut| {
        NextHop::Router(if node < dut { topology.node_address(dut).addr() } else { topology.dut_address().addr() })
    })
}

// Where nodes receive, each as it can carry most; see docs/decisions/three-nodes.md. A veth interface that takes unsegmented
// TCP hands everything to the sender's softirq and not to the peer's thread, as nothing would be left for the peer to merge
// (veth_xmit of drivers/net/veth.c): TSO is off everywhere.

/// The threads that receive for an end run on the CPU of the worker that sent the packet, in whose cache it is, or of the worker
/// that gets it. They have precedence over the DUT's threads, because the queues of the ends are short.
fn receive_at_end(draft: &mut PlanBuilder<'_>, node: usize, receiving: ReceiveCpus) {
    let turns = draft.topology.turns(node, draft.cpus(node));
    for (lane, interface) in draft.own(node).interfaces.iter_mut().enumerate() {
        interface.offloads.insert(Offload::Tso, false);
        match receiving {
            ReceiveCpus::ByDut(_) => {
                interface.threads = Some(Threads { cpus: from(&turns, lane), urgency: Urgency::RealTime(2) });
            }
            // Workers hand frames over themselves, which a veth takes with GRO only.
            ReceiveCpus::ByEndpoints => drop(interface.offloads.insert(Offload::Gro, true)),
        }
    }
}

fn receive_at_dut(draft: &mut PlanBuilder<'_>, receiving: ReceiveCpus) {
    let own = draft.cpus(DUT).clone();
    let ends = [DUT - 1, DUT + 1].map(|end| draft.topology.turns(end, draft.cpus(end)));
    // The interfaces are those to the client and to the server in turn, lane by lane.
    for (turn, interface) in draft.own(DUT).interfaces.iter_mut().enumerate() {
        interface.offloads.insert(Offload::Tso, false);
        interface.threads = Some(match receiving {
            ReceiveCpus::ByEndpoints => {
                Threads { cpus: from(&ends[turn % 2], turn / 2), urgency: Urgency::RealTime(1) }
            }
            ReceiveCpus::ByDut(urgency) => Threads { cpus: from(own.as_slice(), turn), urgency },
        });
        if receiving != ReceiveCpus::ByEndpoints && own.len() > 1 {
            interface.steering = Some(own.clone());
        }
    }
}

/// CPUs in turn, from the one with this number on.
fn from(cpus: &[u32], first: usize) -> Vec<u32> {
    let mut cpus = cpus.to_vec();
    let by = first % cpus.len().max(1);
    cpus.rotate_left(by);
    cpus
}
