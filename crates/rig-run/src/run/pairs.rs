//! The workers of a load, each at its end of a testbed, and how they are started there.

use std::io;
use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result};
use rig_cli::exit::in_words;
use rig_load::driver::{Worker, WorkerPair};
use rig_load::plan::{Load, Phases, Role, WorkerPlan};
use rig_packet::plan::Packets;
use rig_suite::suite::{PortOf, RequestedLoad, Traffic, at_port};
use rig_sys::piped::PipedProcess;
use rig_testbed::host::Program;
use rig_testbed::topology::{Endpoint, uplink};
use rig_testbed::{Dut, LOAD_PORTS, Testbed};

use super::clocks::Clocks;

/// The listeners' port. It is free where an endpoint is a namespace of its own, which all are but containers on their machine's network.
pub(super) const PORT: u16 = LOAD_PORTS[0];
/// The port of the background load, which may end at the same endpoint as the measured load.
const BACKGROUND_PORT: u16 = LOAD_PORTS[1];

/// Where and how a load's workers run.
#[derive(Debug, Clone, Copy)]
pub(super) struct WorkerPlacement<'a> {
    pub testbed: &'a Testbed<'a>,
    pub clocks: &'a Clocks,
    pub dut: Option<Dut>,
    pub phases: Phases,
    /// Workers idle without.
    pub loaded: bool,
}

impl<'a> WorkerPlacement<'a> {
    /// The workers of the load that is measured, or of the one under it.
    pub(super) fn pairs(self, traffic: &Traffic, background: bool) -> Result<Vec<WorkerPair<'a>>> {
        let Self { testbed, loaded, .. } = self;
        let port = if background { BACKGROUND_PORT } else { PORT };
        let pairs = traffic.pairs.iter().map(|(from, to)| {
            let of = |address: Option<IpAddr>| {
                Ok::<SocketAddr, anyhow::Error>(
                    (address.with_context(|| format!("find the address of {to}"))?, port).into(),
                )
            };
            let listen = Role::Listen { address: of(testbed.own_address(to))?, only_from: None };
            let connect = Role::connect(of(testbed.address(to))?);
            let [listening, connecting] =
                if loaded { placed(self, traffic, from, to)? } else { [Load::Idle, Load::Idle] };
            Ok(WorkerPair {
                listen: self.worker([to, from], listen, listening, background)?,
                connect: self.worker([from, to], connect, connecting, background)?,
            })
        });
        pairs.collect()
    }

    fn worker(self, [end, peer]: [&Endpoint; 2], role: Role, load: Load, background: bool) -> Result<Worker<'a>> {
        let Self { testbed, clocks, phases, .. } = self;
        let cpus = testbed.cpus_of(end).with_context(|| format!("find endpoint {end}"))?.as_slice().to_vec();
        let space = end.to_string();
        let peer_clock_ns = clocks.between(&peer.node, &end.node).ns;
        let plan = WorkerPlan { name: space.clone(), cpus, role, load, phases, ceiling: None, peer_clock_ns };
        let spawn = move || -> io::Result<PipedProcess> {
            let started = testbed.host().start(&space, &Program::netrig(&["worker"]));
            started.map_err(|error| io::Error::other(in_words(&error)))
        };
        Ok(Worker { plan, spawn: Box::new(spawn), clock_ns: clocks.of_node(&end.node).ns, background })
    }
}

/// The load of the listening and of the connecting end, as each runs it in the testbed.
fn placed(placing: WorkerPlacement<'_>, traffic: &Traffic, from: &Endpoint, to: &Endpoint) -> Result<[Load; 2]> {
    let WorkerPlacement { testbed, dut, phases, .. } = placing;
    let topology = testbed.topology();
    let end = |own: &Endpoint, peer: &Endpoint, load: &RequestedLoad, is_client: bool| {
        load.try_map(|load| -> Result<Packets> {
            let needs = traffic.packets.as_ref().context("find what the packets need of a testbed")?;
            let number = |end: &Endpoint| topology.nodes().iter().position(|node| node.name == end.node);
            let cpus = testbed.turns(number(own).with_context(|| format!("find endpoint {own}"))?);
            let mac = |lane| {
                let (space, interface) = (peer.to_string(), uplink(lane));
                let planned = testbed.plan().mac(&space, &interface);
                Ok(planned.with_context(|| format!("find the hardware address of {space}:{interface}"))?.0)
            };
            let peer_macs: Vec<_> = (0..topology.lanes()).map(mac).collect::<Result<_>>()?;
            let lasts = phases.total();
            let port = PortOf { own, peer, is_client, cpus: &cpus, peer_macs: &peer_macs, dut, lasts };
            let placed = at_port(load, needs, topology, &port);
            placed.with_context(|| format!("find the addresses of {own}"))
        })
    };
    Ok([end(to, from, &traffic.listen, false)?, end(from, to, &traffic.connect, true)?])
}
