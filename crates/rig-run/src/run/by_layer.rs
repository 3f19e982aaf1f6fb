//! The window of samples that follows the measured one.

use anyhow::{Context, Result};
use rig_facts::layers::{LayersRecord, Map, is_by_connection};
use rig_facts::record::TrialRecord;
use rig_load::plan::Phases;
use rig_suite::suite::Scenario;

use super::course::ProgrammeWindow;
use super::rig::{Stage, Trials};
use super::search::{offered, with_opening};

impl Trials {
    /// The load of the window that was measured once more, with the stacks of the nodes' CPUs.
    pub(super) fn by_layer(
        &self,
        map: &Map,
        stage: Stage<'_>,
        scenario: &Scenario,
        measured: &TrialRecord,
        (known, phases): (f64, Phases),
    ) -> Result<LayersRecord> {
        let stage = stage.sampled();
        let searched = measured.search.as_ref().filter(|_| scenario.programme.is_plain());
        let observed = match searched {
            Some(search) => {
                let rate = search.outcome.held.map_or(search.options.start, |held| held * search.share);
                let offered = offered(scenario, search.of, rate);
                let phases = with_opening(&offered, search.of, phases);
                self.observe(stage, &offered, phases, true, &mut |_, _| ())
            }
            None => {
                let course = ProgrammeWindow { programme: &scenario.programme, limit: known, phases, loaded: true };
                self.perform(stage, scenario, course, &mut |_, _| ())
            }
        };
        let observed = observed.context("sample what the CPUs ran")?;
        let stacks = observed.stacks.context("sample what the CPUs ran")?;
        let stacks = stacks.folded(stage.testbed.host())?;
        let sampled = TrialRecord {
            window_begin_ns: observed.window.0,
            window_end_ns: observed.window.1,
            nodes: observed.nodes,
            workers: observed.workers,
            dut: observed.dut,
            ..measured.clone()
        };
        Ok(LayersRecord::new(map, &stacks, &sampled, is_by_connection(&scenario.plan())))
    }
}
