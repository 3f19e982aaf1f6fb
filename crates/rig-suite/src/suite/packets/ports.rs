//! The interfaces and addresses that the two ends of a packet load have in a testbed.

use std::time::Duration;

use rig_load::record::End;
use rig_packet::plan::{
    AnswerScope, BURST, Capture, Driver, GatewayPlan, Packets, PortPlan, Range, ThreadPlan, Timeline,
};
use rig_testbed::topology::{Endpoint, Endpoints, NextHop, Pool, Topology, XdpHook, uplink};
use rig_testbed::{Dut, UPLINK};

use super::super::load::{LoadError, error};
use super::super::{RequestedLoad, Traffic};
use super::benchmark::check_frame;
use super::{PacketLoad, PacketThreads, PacketTraffic};

const HOP_LIMIT: u8 = 64;

/// One end of a pair.
#[derive(Debug, Clone, Copy)]
pub struct PortOf<'a> {
    pub own: &'a Endpoint,
    pub peer: &'a Endpoint,
    pub is_client: bool,
    /// The CPUs of its node, which workers take in turn; none before a testbed stands.
    pub cpus: &'a [u32],
    /// Of the peer's interface on each lane, where that is known.
    pub peer_macs: &'a [[u8; 6]],
    /// What stands between both, on the paths that have such.
    pub dut: Option<Dut>,
    /// How long connections are opened; zero where that is not known yet. What a connection rests for may be longer, and this
    /// then says how many are open at once.
    pub lasts: Duration,
}

impl PortOf<'_> {
    fn place(&self, worker: u32, queue: u32) -> ThreadPlan {
        ThreadPlan { cpu: self.cpus.get(worker as usize % self.cpus.len().max(1)).copied(), queue, response: None }
    }
}

/// What `end` of the load does in `topology`: on the paths of three nodes by a port on each lane, with one worker. `None`
/// where the topology has no such end.
pub fn at_port(load: &PacketLoad, traffic: &PacketTraffic, topology: &Topology, end: &PortOf<'_>) -> Option<Packets> {
    let mtu = u16::try_from(topology.endpoint_mtu()).unwrap_or(u16::MAX);
    let which = if end.is_client { End::Connect } else { End::Listen };
    // Either end goes on for as long as the client needs.
    let drain = load.service(End::Connect, mtu, topology.family()).drain();
    let port = |lane: u32| {
        let (pool, far) = (topology.lane_pool(end.own, lane)?, topology.lane_pool(end.peer, lane)?);
        let local = if end.is_client { traffic.client_addresses } else { traffic.server_addresses };
        let gateway = match (topology.next_hop(end.own, end.peer)?, end.peer_macs.get(lane as usize)) {
            (NextHop::Router(address), _) => GatewayPlan::Address(topology.on_lane(address, lane)),
            (NextHop::Peer(_), Some(mac)) => GatewayPlan::Mac(*mac),
            (NextHop::Peer(_), None) => GatewayPlan::Address(far.port()),
        };
        let (interface, threads) = match topology.path().is_of_three() {
            true => (uplink(lane), vec![end.place(lane, 0)]),
            false => (UPLINK.to_owned(), (0..traffic.workers.least()).map(|queue| end.place(queue, queue)).collect()),
        };
        Some(PortPlan {
            interface,
            driver: match (traffic.driver, topology.path().xdp_hook()) {
                // The driver would be there, and see nothing.
                (Driver::Auto, XdpHook::PassedBy) => Driver::XdpGeneric,
                (asked, _) => asked,
            },
            address: pool.port(),
            gateway,
            vlan: None,
            vxlan: None,
            local: vec![Range {
                first: pool.first(),
                count: if traffic.beside { local } else { topology.part(local, lane) },
            }],
            remote: remote(traffic, topology, end, lane)?,
            threads,
            mtu,
            // A thread receives at one end of each of their wires.
            live: !topology.path().is_of_three(),
            burst: BURST,
            take: Capture::Own,
            answer: AnswerScope::All,
            hop_limit: HOP_LIMIT,
            tos: 0,
        })
    };
    let lanes = if traffic.beside { topology.flood_lane()?..topology.client_wires() } else { 0..topology.lanes() };
    Some(Packets {
        ports: lanes.map(port).collect::<Option<_>>()?,
        service: load.service(which, mtu, topology.family()),
        capacity: None,
        course: Timeline { wait: Duration::ZERO, duration: end.lasts, drain },
    })
}

/// Whom an end talks to on a lane.
fn remote(traffic: &PacketTraffic, topology: &Topology, end: &PortOf<'_>, lane: u32) -> Option<Vec<Range>> {
    let total = if end.is_client { traffic.server_addresses } else { traffic.client_addresses };
    let far = |lane| {
        let first = topology.lane_pool(end.peer, lane)?.first();
        Some(Range { first, count: topology.part(total, lane) })
    };
    match (topology.path().has_dut(), end.is_client) {
        // What clients connect to is the DUT's, and so is what servers hear from.
        (true, true) => Some(vec![Range {
            first: topology.virtual_pool().first(),
            count: end.dut.map_or(1, |dut| dut.service_addresses),
        }]),
        (true, false) => {
            let own = [
                Range { first: topology.local_pool().first(), count: Pool::SIZE },
                Range { first: topology.on_lane(topology.dut_address().addr(), lane), count: 1 },
            ];
            // IPVS leaves the client's address as it is, and any client's connection may come to any server.
            own.into_iter().map(Some).chain((0..topology.lanes()).map(far)).collect()
        }
        (false, _) => Some(vec![far(lane)?]),
    }
}

/// Makes of `under`, which runs between the ends of another load of packets, a flood beside that, and gives the testbed a wire for it.
pub(in crate::suite) fn flood_beside(topology: Topology, under: &mut Traffic) -> Result<Topology, LoadError> {
    let (RequestedLoad::Packets(load), Some(packets)) = (&under.connect, &mut under.packets) else {
        return Ok(topology);
    };
    if load.client.flood.as_ref().is_none_or(|flood| flood.stamped) {
        let hint = "each would take the interface for itself: give this one a flood, endpoints of its own, or sockets";
        return error(&["kind"], "two loads of packets that are answered between the same ends", hint);
    }
    if packets.workers != PacketThreads::ONE {
        let hint = "it has a wire and a worker of its own: leave 'workers' out";
        return error(&["workers"], "several workers of a flood beside a load", hint);
    }
    packets.beside = true;
    // What it is answered by are the servers of the other load.
    under.listen = RequestedLoad::Idle;
    topology.with_flood().map_err(|error| LoadError::of_topology(error, &["flood"]))
}

/// Whether the path can carry the load; else why not, and what to do.
pub(in crate::suite) fn check_path(traffic: &PacketTraffic, topology: &Topology) -> Result<(), LoadError> {
    if topology.path().addresses_are_given() {
        return error(
            &["kind"],
            format!("packets over path {}", topology.path()),
            "its interfaces and addresses are not known before they are there: choose a load over sockets, for instance tcp-stream",
        );
    }
    check_frame(traffic, topology)?;
    let queues = topology.wire().map_or(1, |wire| wire.queues);
    match (topology.path(), traffic.workers) {
        (path, workers) if path.is_of_three() => {
            if queues > 1 {
                return error(
                    &["workers"],
                    format!("packets on wires of {queues} queues over path {path}"),
                    "what comes out of a DUT would come to the queue of any CPU: remove queues, and give the load workers",
                );
            }
            workers.check_addresses(traffic)?;
        }
        (path, PacketThreads::All) => {
            return error(
                &["workers"],
                format!("workers = \"all\" over path {path}"),
                "all is for client, DUT and server: give a number, and the wire as many queues",
            );
        }
        (path, PacketThreads::Number(workers)) => {
            let is_wire = path.endpoints() == Endpoints::Nodes;
            let queues = if is_wire { queues } else { 1 };
            if workers.get() > queues {
                let hint = match is_wire {
                    true => format!("give the wire as many: wire = {{ queues = {workers} }}"),
                    false => format!(
                        "a container's interface has one queue: use one worker, or path {}",
                        path.without_anything()
                    ),
                };
                return error(&["workers"], format!("{workers} workers on an interface of {queues} queues"), hint);
            }
        }
    }
    let (path, hint) = (topology.path(), "use driver \"xdp-generic\", \"packet\" or \"auto\"");
    match path.xdp_hook() {
        XdpHook::Absent if traffic.driver == Driver::Xdp => {
            return error(&["driver"], format!("driver 'xdp' on a {path} interface, which has no hook for it"), hint);
        }
        XdpHook::PassedBy if traffic.driver == Driver::Xdp => {
            return error(&["driver"], format!("driver 'xdp' on path {path}, whose packets pass it by"), hint);
        }
        _ => {}
    }
    if topology.endpoint_mtu() > 9000 {
        return error(
            &[],
            format!("packets of up to {} bytes", topology.endpoint_mtu()),
            "a frame has room for 9000: choose a smaller MTU",
        );
    }
    Ok(())
}
