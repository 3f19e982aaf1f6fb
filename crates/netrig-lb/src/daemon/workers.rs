//! Workers: which CPUs run the program, and how packets come to them.
//!
//! Where every device has as many queues as there are workers, each queue gets a kernel thread on a worker's CPU
//! (threaded NAPI). Otherwise packets are handed over from CPU to CPU by their flow's hash; a device with one queue is
//! then taken from on the first worker's CPU, so that this one's share needs no handing over.

use anyhow::{Result, anyhow};
use rig_datapath::balancer::Spreading;
use rig_sys::cpu::CpuSet;

use crate::settings::{HandOver, Workers};

/// How packets come to the workers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Plan {
    /// On whatever CPUs the devices' queues are.
    AsReceived,
    /// Each device's queues are put onto these CPUs in turn.
    Queues(Vec<u32>),
    /// Handed over to these CPUs, of which one may receive.
    Handed { cpus: Vec<u32>, receiver: Option<u32>, how: HandOver },
}

/// The CPUs that `workers` means: of a count the highest numbered, because interrupts and whatever else is not told
/// otherwise tend to be on the lowest.
pub(super) fn cpus(workers: &Workers) -> Result<Vec<u32>> {
    let allowed = CpuSet::allowed()?;
    match workers {
        Workers::Unplaced => Ok(Vec::new()),
        Workers::Count(count) => {
            let (all, count) = (allowed.as_slice(), count.get() as usize);
            let first = all.len().checked_sub(count);
            let first = first
                .ok_or_else(|| anyhow!("{count} workers, and this process may use {} CPUs: {allowed}", all.len()))?;
            Ok(all[first..].to_vec())
        }
        Workers::Cpus(cpus) => {
            let missing = cpus.without(&allowed);
            if !missing.is_empty() {
                return Err(anyhow!("CPUs {missing} do not exist or may not be used: choose from {allowed}"));
            }
            Ok(cpus.as_slice().to_vec())
        }
    }
}

impl Plan {
    /// `queues` of each device. Where it is said how packets are handed over, they are, and queues stay where they are.
    pub(super) fn of(cpus: Vec<u32>, queues: &[u32], hand_over: Option<HandOver>) -> Self {
        let fewest = queues.iter().copied().min().unwrap_or(1) as usize;
        let Some(first) = cpus.first().copied() else { return Self::AsReceived };
        match hand_over {
            Some(how) => Self::Handed { cpus, receiver: None, how },
            None if fewest >= cpus.len() => Self::Queues(cpus),
            None => {
                let receiver = queues.iter().all(|queues| *queues == 1).then_some(first);
                Self::Handed { cpus, receiver, how: HandOver::default() }
            }
        }
    }

    /// Without putting any queue anywhere, which this machine does not let us; `None` when nothing is put anyway.
    pub(super) fn without_placing(&self) -> Option<Self> {
        match self {
            Self::AsReceived | Self::Handed { receiver: None, .. } => None,
            Self::Queues(cpus) | Self::Handed { cpus, .. } => {
                Some(Self::Handed { cpus: cpus.clone(), receiver: None, how: HandOver::default() })
            }
        }
    }

    pub(super) fn spreading(&self) -> Spreading {
        match self {
            Self::AsReceived | Self::Queues(_) => Spreading::AsReceived,
            Self::Handed { cpus, receiver, how } => {
                Spreading::Queues { workers: cpus.clone(), receiver: *receiver, packets: how.queue }
            }
        }
    }

    /// Of the threads that work the workers' queues off, where it is not the usual one.
    pub(super) fn priority(&self) -> Option<u8> {
        match self {
            Self::Handed { how, .. } => how.priority,
            Self::AsReceived | Self::Queues(_) => None,
        }
    }

    /// The CPUs that run the program; none where it is any that receives.
    pub(super) fn workers(&self) -> Vec<u32> {
        match self {
            Self::AsReceived => Vec::new(),
            Self::Queues(cpus) | Self::Handed { cpus, .. } => cpus.clone(),
        }
    }

    /// Where a device's queues are put.
    pub(super) fn places(&self) -> Vec<u32> {
        match self {
            Self::AsReceived => Vec::new(),
            Self::Queues(cpus) => cpus.clone(),
            Self::Handed { receiver, .. } => receiver.iter().copied().collect(),
        }
    }

    /// How packets of a device come to CPUs.
    pub(super) fn sentence(&self) -> String {
        let list = |cpus: &[u32]| CpuSet::new(cpus.iter().copied()).to_string();
        match self {
            Self::AsReceived => "packets are handled on the CPUs that take them from the device".to_owned(),
            Self::Queues(cpus) if cpus.len() == 1 => format!("its queues' threads are on CPU {}", list(cpus)),
            Self::Queues(cpus) => format!("its queues' threads are on CPUs {} in turn", list(cpus)),
            Self::Handed { cpus, receiver: Some(receiver), .. } => {
                format!("its queue's thread on CPU {receiver} hands flows over to CPUs {} by their hash", list(cpus))
            }
            Self::Handed { cpus, receiver: None, .. } => {
                format!("the CPU that takes packets from it hands flows over to CPUs {} by their hash", list(cpus))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_placed_where_there_are_enough_of_them() {
        let plan = |cpus, queues: &[u32]| Plan::of(cpus, queues, None);
        let handed = |cpus, receiver| Plan::Handed { cpus, receiver, how: HandOver::default() };
        assert_eq!(plan(vec![], &[1]), Plan::AsReceived);
        assert_eq!(plan(vec![3], &[1, 1]), Plan::Queues(vec![3]));
        assert_eq!(plan(vec![2, 3], &[2, 8]), Plan::Queues(vec![2, 3]));
        assert_eq!(plan(vec![2, 3], &[1, 1]), handed(vec![2, 3], Some(2)));
        assert_eq!(plan(vec![1, 2, 3], &[1, 2]), handed(vec![1, 2, 3], None));
        let unplaced = plan(vec![2, 3], &[2]).without_placing();
        assert_eq!(unplaced, Some(handed(vec![2, 3], None)));
        assert_eq!(unplaced.and_then(|plan| plan.without_placing()), None);
    }

    #[test]
    fn packets_are_handed_over_where_it_is_said_how() {
        let how = HandOver { queue: 16_384, priority: Some(1) };
        let plan = Plan::of(vec![2], &[1, 1], Some(how));
        assert_eq!(plan, Plan::Handed { cpus: vec![2], receiver: None, how });
        assert_eq!((plan.places(), plan.priority()), (vec![], Some(1)));
        assert_eq!(plan.spreading(), Spreading::Queues { workers: vec![2], receiver: None, packets: 16_384 });
        assert_eq!(Plan::of(vec![], &[1], Some(how)), Plan::AsReceived);
    }

    #[test]
    fn more_workers_than_cpus_are_refused() {
        let error = cpus(&Workers::Count(std::num::NonZeroU32::MAX)).map_err(|error| error.to_string());
        assert!(error.is_err_and(|error| error.contains("workers, and this process may use")));
        assert!(cpus(&Workers::Cpus(CpuSet::new([CpuSet::MAX]))).is_err());
    }
}
