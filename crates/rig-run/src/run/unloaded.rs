//! What is read before a load's first frame and after its last one, so that no frame is under way at either.

use std::time::Duration;

use anyhow::Result;
use rig_facts::ledger;
use rig_facts::record::{AgentRecord, Counters, NodeFrames};
use rig_load::record::WorkerRecord;

use super::rig::Stage;

/// Some drivers ask their cards once a second, and tell in between what they knew then (mlx5 and ice do it by a work item).
const CARDS_REFRESH: Duration = Duration::from_millis(1500);
/// The threads that receive for a DUT may have waited for a CPU that both ends kept busy to their end.
const LAST_FRAMES: Duration = Duration::from_millis(50);

/// Counters of nodes and agents while no load runs.
pub(super) struct Unloaded {
    nodes: Vec<NodeFrames>,
    agents: Vec<Counters>,
}

impl Unloaded {
    pub fn read(stage: Stage<'_>) -> Result<Self> {
        Ok(Self { nodes: stage.testbed.host().lost_frames()?, agents: stage.agents.totals()? })
    }

    /// Where frames were lost since `before`; agents get theirs.
    pub fn complete(&self, stage: Stage<'_>, before: &Self, agents: &mut [AgentRecord]) -> Vec<NodeFrames> {
        stage.agents.complete(agents, &before.agents, &self.agents);
        self.nodes.iter().zip(&before.nodes).map(|(after, before)| after.since(before)).collect()
    }
}

/// How long to wait after the load where frames are missing that may still be under way, or that cards may not have told of yet, for which
/// steps that are not kept do not wait.
pub(super) fn settling(stage: Stage<'_>, workers: &[WorkerRecord]) -> Duration {
    let is_missing = ledger::flows(workers).is_some_and(|flows| flows.iter().any(|flow| flow.sent > flow.received));
    match is_missing {
        true if stage.samples && !stage.testbed.host().members().is_empty() => CARDS_REFRESH,
        true => LAST_FRAMES,
        false => Duration::ZERO,
    }
}
