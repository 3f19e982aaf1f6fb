//! An interface that is looked at and left as it is.

use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use rig_datapath::receive::{Reading, Receive};
use rig_spread::{Abilities, EntryObservation};

use super::queues::Queues;
use super::{Actuator, Device, EntryMove, Kind};

#[derive(Debug)]
pub(super) struct QueueObservation {
    queues: Queues,
    polled_by: Vec<Option<u32>>,
}

impl QueueObservation {
    pub(super) fn of(device: &Device, receive: &Arc<Receive>, first: u32) -> anyhow::Result<Self> {
        let queues = Queues::watch(device, receive, first)?;
        Ok(Self { polled_by: vec![None; queues.len()], queues })
    }
}

impl Actuator for QueueObservation {
    fn kind(&self) -> Kind {
        Kind::Observe
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            entries: 0,
            single_moves: false,
            order: self.kind().order(),
            distributes: false,
            base_moves: false,
            receiver_spreads: true,
            received_by: None,
            in_place: false,
            only_cpus: None,
        }
    }

    fn queues(&self) -> usize {
        self.queues.len()
    }

    fn placed(&self) -> anyhow::Result<Vec<Option<u32>>> {
        Ok(self.polled_by.clone())
    }

    fn apply(&mut self, placings: &[EntryMove]) -> Vec<anyhow::Result<()>> {
        placings.iter().map(|_| bail!("nothing is moved where it is only looked at")).collect()
    }

    fn seen(&mut self, before: &Reading, after: &Reading) -> Vec<EntryObservation> {
        self.polled_by = self.queues.polled_by(after);
        self.queues.seen(before, after, true)
    }

    fn distributing(&self, _: &Reading, _: &Reading, _: u32) -> Duration {
        Duration::ZERO
    }

    fn processing(&self, before: &Reading, after: &Reading, cpu: u32) -> Duration {
        self.queues.polls_on(before, after, cpu)
    }

    fn is_intact(&self) -> bool {
        self.queues.are_intact()
    }

    fn before(&self) -> super::SavedState {
        super::SavedState::Nothing { interface: self.queues.device().name.clone() }
    }
}
