//! What each layer of the network costs: sampled stacks by the layer of their functions, scaled to the CPU time that was
//! counted. docs/MEASURING.md has the formulas, docs/decisions/layers.md the reasons.

mod estimate;
mod map;
mod record;

use std::fmt;

pub use self::record::MachineStacks;
use crate::claim::{Metric, Side};
use crate::figures::{Kind as LoadKind, cpu_time_per, figure, is_on};
pub use crate::record::{CpuTimeOwner, Kind, LayerSamples, LayersRecord, NodeLayers};
use crate::record::{CpuUse, NodeRecord, TrialRecord};
use crate::requested_load::RequestedLoad;

pub use estimate::{LayerDifference, LayerDifferences, LayerPart, LayersData, Pairing, differences, of_scenario};
pub use map::{APPLICATION, Layer, LayerMatcher, Map, MapError, OTHERS, SampleLayers, UNKNOWN, exercise};

/// Samples a second on each CPU, in a window of their own: odd, so that they do not keep step with the kernel's ticks.
pub const HERTZ: u32 = 997;

/// More than this share without a layer is said aloud, percent.
pub const MUCH_UNKNOWN: f64 = 5.0;

impl CpuTimeOwner {
    pub const ALL: [Self; 5] = [Self::Sender, Self::Receiver, Self::Local, Self::Remote, Self::Dut];

    /// `None` of the device under test, which is no end of the load.
    pub fn side(self) -> Option<Side> {
        match self {
            Self::Sender => Some(Side::Sender),
            Self::Receiver => Some(Side::Receiver),
            Self::Local => Some(Side::Local),
            Self::Remote => Some(Side::Remote),
            Self::Dut => None,
        }
    }

    pub fn name(self) -> &'static str {
        self.side().map_or("dut", Side::name)
    }

    /// Whether the node's CPU time is this end's.
    pub fn is_of(self, record: &TrialRecord, node: &NodeRecord) -> bool {
        match self.side() {
            Some(side) => is_on(record, node, side),
            None => record
                .dut
                .as_ref()
                .is_some_and(|dut| dut.shared.is_empty() && node.cpus.iter().any(|cpu| dut.workers.contains(&cpu.cpu))),
        }
    }
}

impl fmt::Display for CpuTimeOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What CPU time is divided by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CostUnit {
    /// 1024 bytes of payload.
    Kilobyte,
    Transaction,
    /// For a load that opens a connection for each request.
    Connection,
    /// For another load of packets: the packets that the end sent and received, or that the device under test received.
    Packet,
}

impl CostUnit {
    pub fn unit(self) -> &'static str {
        match self {
            Self::Kilobyte => "us/KB",
            Self::Transaction => "us/Tr",
            Self::Connection => "us/connection",
            Self::Packet => "us/packet",
        }
    }
}

/// Whether connections are what a load carries: each is opened for one request.
pub fn is_by_connection(load: &RequestedLoad) -> bool {
    match load {
        RequestedLoad::TcpCrr(_) => true,
        RequestedLoad::Packets(packets) => packets.is_tcp() && LoadKind::of(load) == Some(LoadKind::Connections),
        _ => false,
    }
}

/// CPU time of an end for each unit of what it carried, microseconds, as it was counted; `None` where the load has no such end
/// or carried nothing. `by_connection` has it for each connection where those of the load were counted.
pub fn total(record: &TrialRecord, end: CpuTimeOwner, by_connection: bool) -> Option<(f64, CostUnit)> {
    let opened = |side| figure(record, side, Metric::Connections);
    let Some(side) = end.side() else {
        let dut = record.dut.as_ref()?;
        let node = record.nodes.iter().find(|node| end.is_of(record, node))?;
        let own = node.cpus.iter().filter(|cpu| dut.workers.contains(&cpu.cpu));
        let (rate, per) = match opened(Side::Local).filter(|_| by_connection) {
            Some(connections) => (connections, CostUnit::Connection),
            None => (dut.in_packets as f64 / record.seconds(), CostUnit::Packet),
        };
        let spent = own.map(CpuUse::busy).sum::<f64>() * 10_000.0 / rate;
        return spent.is_finite().then_some((spent, per));
    };
    // A transaction of a load that connects for each is a connection.
    let transaction = if by_connection { CostUnit::Connection } else { CostUnit::Transaction };
    let known = [(Metric::ServiceDemand, CostUnit::Kilobyte), (Metric::TransactionDemand, transaction)];
    let found = known.into_iter().find_map(|(metric, per)| Some((figure(record, side, metric)?, per)));
    let connection = || {
        let rate = opened(side).or_else(|| opened(Side::Local)).filter(|_| by_connection)?;
        Some((cpu_time_per(record, side, rate)?, CostUnit::Connection))
    };
    found.or_else(connection).or_else(|| {
        let packets = [Metric::PacketsIn, Metric::PacketsOut].map(|metric| figure(record, side, metric));
        Some((cpu_time_per(record, side, packets[0]? + packets[1]?)?, CostUnit::Packet))
    })
}
