//! The clocks of the machines that a testbed stands on.

use std::time::Duration;

use anyhow::Result;
use rig_facts::record::HostRecord;
use rig_suite::suite::Traffic;
use rig_testbed::Testbed;
use rig_testbed::host::{ClockOffset, Host};
use rig_testbed::topology::Node;

/// How much longer than here the start command may take to reach the workers of another host, besides the delay that its clock's
/// bound tells of.
const LONGER_LEAD: Duration = Duration::from_millis(20);

/// How far clocks were from the runner's when a trial began.
#[derive(Debug)]
pub(super) struct Clocks {
    /// Of that by which the host has its marks.
    of_marks: ClockOffset,
    /// Of each node's machine, where they are several.
    of_nodes: Vec<(String, ClockOffset)>,
}

impl Clocks {
    /// Those of a testbed's host.
    pub fn of(testbed: &Testbed<'_>) -> Result<Self> {
        let (host, nodes) = (testbed.host(), testbed.topology().nodes());
        let of_node = |node: &Node| Some(host.member_of(&node.name)?.clock().map(|clock| (node.name.clone(), clock)));
        let of_nodes = nodes.iter().filter_map(of_node).collect::<Result<Vec<_>>>()?;
        // Where they are several, marks are by the runner's own clock, as far as the worst of theirs is known.
        let of_marks = match of_nodes.iter().map(|(_, clock)| clock.bound_ns).max() {
            Some(bound_ns) => ClockOffset { ns: 0, bound_ns },
            None => host.clock()?,
        };
        Ok(Self { of_marks, of_nodes })
    }

    /// A time of the host's marks by the runner's clock.
    pub fn here(&self, host_ns: u64) -> u64 {
        self.of_marks.here(host_ns)
    }

    /// That of a node's machine.
    pub fn of_node(&self, node: &str) -> ClockOffset {
        self.of_nodes.iter().find(|(name, _)| name == node).map_or(self.of_marks, |(_, clock)| *clock)
    }

    /// The clock of the end of a load's first pair that connects, against that of the end that listens.
    pub fn between(&self, traffic: &Traffic) -> ClockOffset {
        let Some((from, to)) = traffic.pairs.first() else { return ClockOffset::NONE };
        self.apart(&from.node, &to.node)
    }

    /// A node's clock against another's.
    pub fn apart(&self, one: &str, other: &str) -> ClockOffset {
        let is_one = !self.of_nodes.iter().any(|(name, _)| name == one || name == other);
        if is_one || one == other {
            return ClockOffset::NONE;
        }
        let (one, other) = (self.of_node(one), self.of_node(other));
        ClockOffset { ns: one.ns.saturating_sub(other.ns), bound_ns: one.bound_ns.saturating_add(other.bound_ns) }
    }

    /// How much longer than here the start command may take to reach all workers.
    pub fn longer_lead(&self) -> Duration {
        match self.of_marks {
            ClockOffset::NONE => Duration::ZERO,
            ClockOffset { bound_ns, .. } => LONGER_LEAD + 4 * Duration::from_nanos(bound_ns),
        }
    }

    /// The host of all nodes, unless they are the runner's own or each has its own, with its clock now, when the trial has ended.
    pub fn host(&self, host: &dyn Host) -> Result<Option<HostRecord>> {
        let is_one = host.local().is_none() && host.members().is_empty();
        is_one.then(|| record(host, self.of_marks)).transpose()
    }

    /// That of each node, where they are several.
    pub fn hosts(&self, host: &dyn Host) -> Result<Vec<(String, HostRecord)>> {
        let of_node = |(node, clock): &(String, ClockOffset)| {
            Some(record(host.member_of(node)?, *clock).map(|record| (node.clone(), record)))
        };
        self.of_nodes.iter().filter_map(of_node).collect()
    }
}

fn record(host: &dyn Host, clock_at_begin: ClockOffset) -> Result<HostRecord> {
    Ok(HostRecord { name: host.name().to_owned(), clock_at_begin, clock_at_end: host.clock()? })
}
