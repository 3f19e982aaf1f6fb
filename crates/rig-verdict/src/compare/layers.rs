//! In which layers a change of CPU time lies.

use std::collections::BTreeMap;

use rig_facts::layers::{CpuTimeOwner, Pairing, differences};
use rig_facts::record::{Profile, TrialRecord};
use rig_stats::confidence::Level;

use super::{FigureComparison, LayerComparison};
use crate::export::ScenarioData;

/// Of each end whose stacks both runs sampled. `figures` are those of the same comparison; trials are paired by block in runs that
/// took turns.
pub(super) fn by_layer(
    chosen: &[(&ScenarioData, &ScenarioData)],
    figures: &[FigureComparison],
    took_turns: bool,
    level: Level,
) -> Vec<LayerComparison> {
    let pairing = if took_turns { Pairing::Blocks } else { Pairing::None };
    let of = |(old, new): &(&ScenarioData, &ScenarioData)| -> Vec<LayerComparison> {
        let end = |after: &rig_facts::layers::LayersData| {
            let before = old.layers.iter().find(|before| before.end == after.end)?;
            let changes = differences(before, after, pairing, level)?;
            let verdict = figures.iter().find(|figure| {
                let demand = ["service_demand", "transaction_demand"].contains(&figure.metric.as_str());
                demand && figure.scenario == new.id && figure.side == after.end.name()
            });
            Some(LayerComparison {
                scenario: new.id.clone(),
                verdict: verdict.map(|figure| figure.verdict),
                unknown_percent: before.unknown_percent.max(after.unknown_percent),
                changes,
                profiles: profile(old, after.end).zip(profile(new, after.end)),
            })
        };
        new.layers.iter().filter_map(end).collect()
    };
    chosen.iter().flat_map(of).collect()
}

/// The stacks of an end, which the first trial keeps.
fn profile(scenario: &ScenarioData, end: CpuTimeOwner) -> Option<Profile> {
    let trials = scenario.trials.iter().filter(|trial| trial["layers"].is_object());
    trials.filter_map(|trial| serde_json::from_value::<TrialRecord>(trial.clone()).ok()).find_map(|trial| {
        let own = |name: &str| trial.nodes.iter().any(|node| node.name == name && end.is_of(&trial, node));
        let nodes = trial.layers.as_ref()?.nodes.iter().filter(|node| own(&node.node));
        let mut profiles = nodes.filter_map(|node| node.profile.clone());
        let first = profiles.next()?;
        Some(profiles.fold(first, |sum, one| {
            let mut stacks: BTreeMap<String, u64> = sum.stacks.into_iter().collect();
            one.stacks.into_iter().for_each(|(stack, count)| *stacks.entry(stack).or_default() += count);
            let cpus = sum.cpus.into_iter().chain(one.cpus).collect();
            Profile {
                hertz: sum.hertz,
                clock: sum.clock,
                cpus,
                samples: sum.samples + one.samples,
                lost: sum.lost.max(one.lost),
                stacks: stacks.into_iter().collect(),
                merged: sum.merged + one.merged,
                notes: sum.notes,
            }
        }))
    })
}
