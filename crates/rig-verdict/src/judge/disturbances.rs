//! Measured disturbances of trials, such as CPU time of other programs.

use rig_facts::claim::{Claim, Disturbance, FigureRef, Metric, Side};
use rig_facts::figures::is_on;
use rig_facts::record::{Calibration, CpuUse, NodeRecord, TrialRecord};
use rig_stats::blocks::covariate::Covariate;

/// CPU time of other programs, as a factor of the node's: all but this share of it is never theirs.
const LEAST_OWN: f64 = 0.02;

type Measure = fn(&TrialRecord, Side) -> Option<f64>;

/// The CPU time of other programs, time that the hypervisor took, and the calibration around a trial: the name of each, and how it is
/// measured. The first is a known part of each figure that is CPU time, and a factor of that.
const MEASURES: [(&str, Measure); 6] = [
    (OTHERS, others),
    ("stolen time", |trial, side| mean(trial, side, |cpu| cpu.steal / 100.0)),
    ("the CPUs' speed", |trial, _| logarithm(trial.calibration.as_ref()?, Calibration::work_ns)),
    ("CPUs that share a core", |trial, _| logarithm(trial.calibration.as_ref()?, Calibration::sharing)),
    ("the memory's speed", |trial, _| logarithm(trial.calibration.as_ref()?, Calibration::memory_ns)),
    ("wake-up times", |trial, _| logarithm(trial.calibration.as_ref()?, Calibration::wake_ns)),
];
const OTHERS: &str = "other programs";

fn is_cpu_time(metric: Metric) -> bool {
    matches!(metric, Metric::Cpu | Metric::ServiceDemand | Metric::TransactionDemand)
}

/// The disturbances of all trials of a claim's figures, without those that are not known of each trial.
pub(super) fn of<'a>(
    claim: &Claim,
    blocks: &[u32],
    trial: &dyn Fn(&FigureRef, &u32) -> Option<&'a TrialRecord>,
) -> Vec<Disturbance> {
    let is_part = claim.figures().iter().all(|figure| is_cpu_time(figure.metric));
    let disturbance = |(name, measure): (&'static str, Measure)| {
        let of_block = |block: &u32| -> Option<Vec<f64>> {
            claim.figures().iter().map(|figure| measure(trial(figure, block)?, figure.side)).collect()
        };
        let blocks = blocks.iter().map(of_block).collect::<Option<_>>()?;
        Some(Disturbance { name, is_factor: is_part && name == OTHERS, blocks })
    };
    MEASURES.into_iter().filter_map(disturbance).collect()
}

/// How much more the second trial of each pair was disturbed than the first, by each disturbance that the figure depends on.
pub(crate) fn between(side: Side, metric: Metric, pairs: &[(&TrialRecord, &TrialRecord)]) -> Vec<Covariate> {
    let covariate = |(name, measure): (&str, Measure)| {
        let difference = |(old, new): &(&TrialRecord, &TrialRecord)| Some(measure(new, side)? - measure(old, side)?);
        let differences = pairs.iter().map(difference).collect::<Option<_>>()?;
        Some(Covariate { differences, slope: (is_cpu_time(metric) && name == OTHERS).then_some(1.0) })
    };
    MEASURES.into_iter().filter_map(covariate).collect()
}

fn logarithm(calibration: &Calibration, of: fn(&Calibration) -> Option<f64>) -> Option<f64> {
    of(calibration).filter(|value| *value > 0.0).map(f64::ln)
}

fn nodes(trial: &TrialRecord, side: Side) -> impl Iterator<Item = &NodeRecord> {
    trial.nodes.iter().filter(move |node| is_on(trial, node, side))
}

fn mean(trial: &TrialRecord, side: Side, of: fn(&CpuUse) -> f64) -> Option<f64> {
    let values: Vec<f64> = nodes(trial, side).flat_map(|node| &node.cpus).map(of).collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The factor, as a logarithm, by which other programs increase the CPU time of that side. Known where CPU time is counted exactly:
/// the time of all tasks, less that of the processes of all nodes on the same CPUs.
fn others(trial: &TrialRecord, side: Side) -> Option<f64> {
    let cpus: Vec<&CpuUse> = nodes(trial, side).flat_map(|node| &node.cpus).collect();
    let shares = |node: &&NodeRecord| node.cpus.iter().any(|own| cpus.iter().any(|cpu| cpu.cpu == own.cpu));
    let own = trial.nodes.iter().filter(shares).map(|node| Some(node.share?.processes)).sum::<Option<f64>>()?;
    let (tasks, busy) = cpus.iter().fold((0.0, 0.0), |sum, cpu| (sum.0 + cpu.user + cpu.system, sum.1 + cpu.busy()));
    let share = if busy > 0.0 { ((tasks - own) / busy).clamp(0.0, 1.0 - LEAST_OWN) } else { 0.0 };
    Some(-(1.0 - share).ln())
}

#[cfg(test)]
mod tests {
    use rig_facts::fixture::{TrialOptions, trial};
    use rig_facts::record::NodeShare;

    use super::*;

    fn disturbed(others: f64) -> TrialRecord {
        let mut record = trial(&TrialOptions::default());
        for node in &mut record.nodes {
            for cpu in &mut node.cpus {
                let old = CpuUse { cpu: cpu.cpu, ..Default::default() };
                *cpu = CpuUse { system: 10.0 + others, softirq: 5.0, idle: 85.0 - others, ..old };
            }
            node.share = Some(NodeShare { processes: 10.0 * node.cpus.len() as f64, ..Default::default() });
        }
        record
    }

    #[test]
    fn other_programs_are_known_where_time_is_counted_exactly() {
        assert_eq!(others(&disturbed(0.0), Side::Sender), Some(0.0));
        let found = others(&disturbed(15.0), Side::Sender).unwrap();
        assert!((found - 2f64.ln()).abs() < 1e-9, "30 % busy, of which half was the load's: {found}");
        let mut by_ticks = disturbed(15.0);
        by_ticks.nodes.iter_mut().for_each(|node| node.share = None);
        assert_eq!(others(&by_ticks, Side::Sender), None);
    }
}
