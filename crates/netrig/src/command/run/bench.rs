//! The machine that a run is made on.

use anyhow::Context;
use jiff::Timestamp;
use rig_cli::exit::{Exit, ExitContext, Failure};
use rig_facts::record::SkippedScenarios;
use rig_load::driver::Cancel;
use rig_run::run::Rig;

use super::super::cancel_on_signal;
use super::lacking;
use super::selection::Selection;
use super::survey::Survey;

/// A machine that is ready for trials.
pub struct Bench {
    pub rig: Rig,
    pub started: Timestamp,
    /// From which the order of trials follows.
    pub seed: u64,
    pub elsewhere: Option<String>,
    pub left_out: Vec<SkippedScenarios>,
    pub cancel: Cancel,
}

impl Bench {
    pub fn open(
        survey: Survey,
        left_out: Vec<SkippedScenarios>,
        selection: &Selection,
        seed: Option<u64>,
    ) -> Result<Self, Failure> {
        let elsewhere = survey.elsewhere.clone();
        let Selection { suite, layers, .. } = selection;
        let started = Timestamp::now();
        // Any order will do as long as it is drawn at random.
        let seed = seed.unwrap_or_else(|| started.as_nanosecond() as u64 & 0xffff_ffff);
        let cancel = cancel_on_signal()?;
        let (host, placement, cores) = survey.into_parts(suite).map_err(lacking)?;
        let mut rig = Rig::on(host, placement, cores, cancel.clone(), rig_datapaths::ALL).map_err(lacking)?;
        match layers {
            Some(map) => rig.divide_by(map.clone()).or_exit(Exit::Lacking)?,
            None if suite.scenarios.iter().any(|scenario| scenario.profile) => {
                rig.prepare_samples().context("sample stacks, as `profile = true` asks").or_exit(Exit::Lacking)?;
            }
            None => {}
        }
        Ok(Self { rig, started, seed, elsewhere, left_out, cancel })
    }

    /// Whether the machine turned out not to let the scenario be made.
    pub fn is_left_out(&self, id: &str) -> bool {
        self.left_out.iter().any(|one| one.scenarios.iter().any(|other| other == id))
    }
}
