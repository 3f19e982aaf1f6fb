//! What is read before a load's first frame and after its last one, so that no frame is under way at either.

use std::time::Duration;

use anyhow::Result;
use rig_facts::ledger;
use rig_facts::record::{AgentRecord, Counters, NodeFrames};
use rig_load::record::WorkerRecord;
use rig_testbed::Testbed;

use super::rig::Stage;

/// Some drivers ask their cards once a second, and tell in between what they knew then (mlx5 and ice do it by a work item).
pub(super) const CARDS_REFRESH: Duration = Duration::from_millis(1500);

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

/// Whether frames are missing that cards may not have told of yet.
pub(super) fn may_be_told_later(testbed: &Testbed<'_>, workers: &[WorkerRecord]) -> bool {
    !testbed.host().members().is_empty()
        && ledger::flows(workers).is_some_and(|flows| flows.iter().any(|flow| flow.sent > flow.received))
}
