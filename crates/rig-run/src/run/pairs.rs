//! The workers of a load, each at its end of a testbed, and how they are started there.

use std::io;
use std::time::Duration;

use anyhow::{Context, Result};
use rig_cli::exit::in_words;
use rig_load::driver::{Pair, Worker};
use rig_load::plan::{Load, Phases, Role, WorkerPlan};
use rig_packet::plan::Packets;
use rig_suite::suite::{AskedLoad, PortOf, Traffic, at_port};
use rig_sys::piped::Piped;
use rig_testbed::host::{ClockOffset, Program};
use rig_testbed::topology::{Endpoint, uplink};
use rig_testbed::{Dut, Testbed};

/// How much longer than here it may take until the workers of another host have heard that they are to go, beside what its
/// clock's bound says of the way.
const LONGER_LEAD: Duration = Duration::from_millis(20);

/// How much longer than here it may take until all workers of a host with this clock have heard that they are to go.
pub(super) fn longer_lead(clock: ClockOffset) -> Duration {
    match clock {
        ClockOffset::NONE => Duration::ZERO,
        ClockOffset { bound_ns, .. } => LONGER_LEAD + 4 * Duration::from_nanos(bound_ns),
    }
}

/// The workers of `traffic`, with a word that tells them from others and their listeners' port. They idle unless `loaded`.
pub(super) fn pairs_of<'a>(
    on: (&'a Testbed<'a>, ClockOffset),
    traffic: &Traffic,
    dut: Option<Dut>,
    (word, port): (&str, u16),
    phases: Phases,
    loaded: bool,
) -> Result<Vec<Pair<'a>>> {
    let (testbed, _) = on;
    let pairs = traffic.pairs.iter().map(|(from, to)| {
        let address = testbed.topology().address(to).with_context(|| format!("find the address of {to}"))?;
        let address = (address, port).into();
        let (listen, connect) = (Role::Listen { address, only_from: None }, Role::Connect { to: address });
        let [listening, connecting] =
            if loaded { placed(testbed, traffic, dut, from, to, phases)? } else { [Load::Idle, Load::Idle] };
        Ok(Pair {
            listen: worker(on, to, word, listen, listening, phases)?,
            connect: worker(on, from, word, connect, connecting, phases)?,
        })
    });
    pairs.collect()
}

fn worker<'a>(
    (testbed, clock): (&'a Testbed<'a>, ClockOffset),
    place: &Endpoint,
    word: &str,
    role: Role,
    load: Load,
    phases: Phases,
) -> Result<Worker<'a>> {
    let cpus = testbed.cpus_of(place).with_context(|| format!("find endpoint {place}"))?.as_slice().to_vec();
    let plan = WorkerPlan { name: format!("{place}{word}"), cpus, role, load, phases, ceiling: None };
    let space = place.to_string();
    let spawn = move || -> io::Result<Piped> {
        let started = testbed.host().start(&space, &Program::netrig(&["worker"]));
        started.map_err(|error| io::Error::other(in_words(&error)))
    };
    Ok(Worker { plan, spawn: Box::new(spawn), clock_ns: clock.ns })
}

/// The load of the listening and of the connecting end, as each runs it in the testbed.
fn placed(
    testbed: &Testbed<'_>,
    traffic: &Traffic,
    dut: Option<Dut>,
    from: &Endpoint,
    to: &Endpoint,
    phases: Phases,
) -> Result<[Load; 2]> {
    let topology = testbed.topology();
    let end = |own: &Endpoint, peer: &Endpoint, load: &AskedLoad, is_client: bool| {
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
            at_port(load, needs, topology, &port).with_context(|| format!("find the addresses of {own}"))
        })
    };
    Ok([end(to, from, &traffic.listen, false)?, end(from, to, &traffic.connect, true)?])
}
