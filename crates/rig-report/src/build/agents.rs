//! What runs on nodes, agent by agent: what it was set to, and what it counted. What the node between the ends did besides
//! is in [`super::dut`].

use rig_facts::record::{AgentRecord, TrialRecord};
use rig_suite::suite::shown;
use rig_verdict::view::ScenarioView;

use crate::document::{Block, Cell, Column, Label, Row, Table};

/// The agents of the scenario's trials; nothing of records that know of none.
pub(super) fn details(scenario: &ScenarioView) -> Vec<Block> {
    let Some(last) = scenario.trials.iter().rfind(|trial| !trial.agents.is_empty()) else { return Vec::new() };
    let mut pairs = Vec::new();
    for agent in &last.agents {
        let settings = if agent.settings.is_empty() { String::new() } else { format!(": {}", shown(&agent.settings)) };
        pairs.push((format!("{} on {}", agent.name, agent.node), format!("{}{settings}", agent.version)));
    }
    let mut blocks = vec![Block::KeyValues { caption: Some("Agents".to_owned()), pairs }];
    blocks.extend(last.agents.iter().filter_map(|agent| counters(scenario, agent)).map(Block::Table));
    blocks
}

/// What an agent counted in each trial; nothing where it counts nothing but drops, which the node's table has.
fn counters(scenario: &ScenarioView, agent: &AgentRecord) -> Option<Table> {
    let is_same = |other: &&AgentRecord| (&other.name, &other.node) == (&agent.name, &agent.node);
    let of = |trial: &TrialRecord| trial.agents.iter().find(is_same).cloned();
    let trials: Vec<(&TrialRecord, AgentRecord)> =
        scenario.trials.iter().filter_map(|trial| Some((trial, of(trial)?))).collect();
    let mut table = Table::new(format!("Counted by {} on {} of {}", agent.name, agent.node, scenario.id), "Trial");
    table.columns = trials.iter().map(|(t, _)| Column::number(Label::new(t.ordinal.to_string()), None)).collect();
    for name in agent.counters.counts.keys() {
        let cell = |(trial, agent): &(&TrialRecord, AgentRecord)| match agent.counters.counts.get(name) {
            Some(count) => Cell::number(*count as f64 / trial.seconds(), 0),
            None => Cell::missing("it did not count this"),
        };
        table.rows.push(Row {
            label: name.replace('_', " "),
            unit: Some("1/s".to_owned()),
            cells: trials.iter().map(cell).collect(),
        });
    }
    (!table.rows.is_empty()).then_some(table)
}

#[cfg(test)]
mod tests {
    use rig_verdict::fixture::balancer::balancer_view;
    use serde_json::json;

    use super::*;

    #[test]
    fn an_agent_is_shown_with_its_settings_and_counters_and_old_records_as_ever() {
        let mut view = balancer_view();
        let scenario = &mut view.scenarios[0];
        assert_eq!(details(scenario), []);
        let agent: AgentRecord = serde_json::from_value(json!({
            "name": "balancer", "node": "lb", "version": "netrig 0.1.0", "cpus": [0], "settings": {"scheduler": "wlc"},
            "counters": {"counts": {"in_packets": 5000}, "drops": []}, "state": {},
        }))
        .unwrap();
        for trial in &mut scenario.trials {
            trial.agents = vec![agent.clone()];
            (trial.window_begin_ns, trial.window_end_ns) = (0, 2_000_000_000);
        }
        let [Block::KeyValues { pairs, .. }, Block::Table(table)] = &details(scenario)[..] else {
            panic!("two blocks")
        };
        assert_eq!(pairs[..], [("balancer on lb".to_owned(), "netrig 0.1.0: scheduler wlc".to_owned())]);
        assert_eq!(table.rows[0].label, "in packets");
        assert_eq!(table.rows[0].cells, [2500.0; 3].map(|rate| Cell::number(rate, 0)));
    }
}
