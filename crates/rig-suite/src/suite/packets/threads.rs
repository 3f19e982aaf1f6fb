//! How many packet workers an end has. On the paths of three nodes each has a lane of its own
//! ([`rig_testbed::topology`]); elsewhere they share an interface by its queues.

use std::num::NonZeroU32;

use rig_cli::source::Spanned;
use rig_facts::record::SearchedRate;
use rig_packet::Client;
use rig_testbed::Placement;
use rig_testbed::topology::{Topology, TopologyError};
use schemars::JsonSchema;
use serde::Deserialize;

use super::super::load::{LoadError, error};
use super::super::{RequestedLoad, Scenario, Traffic};
use super::PacketTraffic;

/// A number of workers, or as many as there are CPUs for.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a number of workers such as 2, or \"all\"")]
#[schemars(rename = "PacketThreads")]
pub(in crate::suite) enum PacketThreadsFile {
    Number(u32),
    Word(Word),
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(in crate::suite) enum Word {
    All,
}

/// The packet workers of each end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketThreads {
    Number(NonZeroU32),
    /// As many as the machine has CPUs for, each its own.
    All,
}

impl TryFrom<&Spanned<PacketThreadsFile>> for PacketThreads {
    type Error = LoadError;

    fn try_from(file: &Spanned<PacketThreadsFile>) -> Result<Self, LoadError> {
        match *file.get_ref() {
            PacketThreadsFile::Word(Word::All) => Ok(Self::All),
            PacketThreadsFile::Number(number) => NonZeroU32::new(number).map_or_else(
                || error(&["workers"], "a load without workers", "leave 'workers' out, or give at least 1"),
                |number| Ok(Self::Number(number)),
            ),
        }
    }
}

impl PacketThreads {
    pub const ONE: Self = Self::Number(NonZeroU32::MIN);

    /// How many there are; of all, as few as there can be, until a machine is known.
    pub fn least(self) -> u32 {
        match self {
            Self::Number(number) => number.get(),
            Self::All => 1,
        }
    }

    /// Refuses workers that would have no address of their own.
    pub(super) fn check_addresses(self, traffic: &PacketTraffic) -> Result<(), LoadError> {
        let workers = self.least();
        let addresses =
            [("client_addresses", traffic.client_addresses), ("server_addresses", traffic.server_addresses)];
        match addresses.into_iter().find(|(_, count)| *count < workers) {
            None => Ok(()),
            Some((key, count)) => error(
                &["workers"],
                format!("{workers} workers at each end with {key} = {count}"),
                format!("each worker has addresses of its own: give {key} = {workers} or more, or fewer workers"),
            ),
        }
    }

    /// Refuses workers that requests are divided over, and no connections.
    pub(super) fn check_held(self, client: &Client) -> Result<(), LoadError> {
        match most_that_hold(client) {
            most if self.least() <= most => Ok(()),
            most => error(
                &["workers"],
                format!("{} workers with hold = {most}", self.least()),
                "each makes its part of the requests, on connections of its own: hold more, or give fewer workers",
            ),
        }
    }
}

/// The most workers of which each has a connection for its requests.
fn most_that_hold(client: &Client) -> u32 {
    let asks = client.repeat.is_some_and(|repeat| repeat.rate.is_some());
    client.load.hold.filter(|_| asks).unwrap_or(u32::MAX)
}

/// `topology` with the lanes that the load's workers have.
pub(in crate::suite) fn with_lanes(topology: Topology, traffic: &mut Traffic) -> Result<Topology, LoadError> {
    let Some(packets) = traffic.packets.as_ref().filter(|_| topology.path().is_of_three()) else { return Ok(topology) };
    let wrong = |error| LoadError::of_topology(error, &["workers"]);
    if packets.workers == PacketThreads::All {
        // How many there are to be is not known yet; whether there may be several is.
        return topology.clone().with_lanes(2).map(|_| topology).map_err(wrong);
    }
    let lanes = packets.workers.least();
    traffic.spread(lanes);
    topology.with_lanes(lanes).map_err(wrong)
}

impl Traffic {
    /// Bounds a search for connections that are held by the addresses and ports that are left to each of so many lanes.
    fn spread(&mut self, lanes: u32) {
        let RequestedLoad::Packets(load) = &self.connect else { return };
        let (Some(packets), client) = (&mut self.packets, &load.client) else { return };
        let each = |addresses: u32| f64::from(addresses / lanes);
        let ports = client.ports.len() as f64 * client.server_ports.len() as f64;
        let pairs = each(packets.client_addresses) * each(packets.server_addresses) * ports * f64::from(lanes);
        if let Some(search) = packets.search.as_mut().filter(|search| search.of == SearchedRate::Held) {
            search.options.most = search.options.most.map(|most| most.min(pairs));
        }
    }

    /// The workers of each end, where they are as many as `placement` has CPUs for: there are addresses, and connections to
    /// ask on, for each.
    fn all_workers(&self, placement: &Placement) -> Option<NonZeroU32> {
        let packets = self.packets.as_ref().filter(|packets| packets.workers == PacketThreads::All)?;
        let RequestedLoad::Packets(load) = &self.connect else { return None };
        let bounds =
            [packets.client_addresses, packets.server_addresses, most_that_hold(&load.client), Topology::LANES_MAX];
        NonZeroU32::new(bounds.into_iter().fold(placement.of_each_end(), u32::min))
    }
}

impl Scenario {
    /// The scenario as a machine makes it: where its load has all workers that there are CPUs for, with so many.
    ///
    /// # Errors
    /// When its testbed cannot have them.
    pub fn on(&self, placement: &Placement) -> Result<Self, TopologyError> {
        let mut scenario = self.clone();
        for traffic in std::iter::once(&mut scenario.traffic).chain(&mut scenario.under) {
            let Some(workers) = traffic.all_workers(placement) else { continue };
            traffic.spread(workers.get());
            if let Some(packets) = &mut traffic.packets {
                packets.workers = PacketThreads::Number(workers);
            }
            scenario.topology = scenario.topology.with_lanes(workers.get())?;
        }
        Ok(scenario)
    }
}

#[cfg(test)]
mod tests;
