//! The machine that a run is made on.

use std::path::Path;

use anyhow::Context;
use jiff::Timestamp;
use rig_cli::exit::{Exit, ExitContext, Failure};
use rig_facts::record::SkippedScenarios;
use rig_load::driver::Cancel;
use rig_run::run::{DatapathTrials, NoScenarioLeft, Rig, leave_out, why_not_here, why_not_on};
use rig_sys::perf;
use rig_testbed::Placement;
use rig_testbed::datapath::Machine;
use rig_testbed::host::{Host, Local, Remote};

use super::super::{cancel_on_signal, gain_privilege};
use super::HostKind;
use super::selection::Selection;
use crate::doctor::{MachineSupport, SuitePurpose};

impl HostKind {
    fn start(self, program: &Path, rootless: bool) -> anyhow::Result<Box<dyn Host>> {
        Ok(match self {
            Self::Local => {
                let local = Local::new()?.with_program(program.to_owned());
                Box::new(local.with_datapaths(rig_datapaths::ALL.on(Machine { rootless })))
            }
            Self::Child => Box::new(Remote::child(program)?),
        })
    }
}

/// What this machine can make of what is asked for; nothing is built yet.
pub struct Survey {
    host: Box<dyn Host>,
    /// The host's name, unless the nodes are the runner's own.
    elsewhere: Option<String>,
    rootless: bool,
    left_out: Vec<SkippedScenarios>,
}

impl Survey {
    /// Takes scenarios that this machine cannot make out of the selection.
    pub fn make(kind: HostKind, selection: &mut Selection) -> Result<Self, Failure> {
        let rootless = gain_privilege()?;
        let program = std::env::current_exe().context("find netrig's own program").or_exit(Exit::Failed)?;
        let host = kind.start(&program, rootless).or_exit(Exit::Failed)?;
        let cores = host.facts().or_exit(Exit::Failed)?.cores;
        let suite = &mut selection.suite;
        let placement = Placement::new(&selection.cpus, &cores, suite.nodes).or_exit(Exit::Lacking)?;
        let obstacles = MachineSupport::look_for(&suite.scenarios, SuitePurpose::Run);
        let tried_out = DatapathTrials::new(host.as_ref());
        let left_out = leave_out(suite, &|scenario| {
            why_not_on(scenario, host.as_ref())
                .or_else(|| why_not_here(scenario, &placement, rig_datapaths::ALL, host.as_ref()))
                .or_else(|| obstacles.why_not(scenario))
                .or_else(|| scenario.profile.then(perf::probe)?.err().map(|error| format!("sample stacks: {error}")))
                .or_else(|| tried_out.why_not(scenario))
        });
        NoScenarioLeft::refuse(suite, &left_out).or_exit(Exit::Lacking)?;
        let elsewhere = (kind != HostKind::Local).then(|| host.name().to_owned());
        Ok(Self { host, elsewhere, rootless, left_out })
    }
}

/// A machine that is ready for trials.
pub struct Bench {
    pub rig: Rig,
    pub started: Timestamp,
    /// From which the order of trials follows.
    pub seed: u64,
    pub elsewhere: Option<String>,
    pub rootless: bool,
    /// How CPU time is counted.
    pub cpu_time: String,
    pub left_out: Vec<SkippedScenarios>,
    pub cancel: Cancel,
}

impl Bench {
    pub fn open(survey: Survey, selection: &Selection, seed: Option<u64>) -> Result<Self, Failure> {
        let Survey { host, elsewhere, rootless, left_out } = survey;
        let Selection { suite, cpus, layers, .. } = selection;
        let started = Timestamp::now();
        // Any order will do as long as it is drawn at random.
        let seed = seed.unwrap_or_else(|| started.as_nanosecond() as u64 & 0xffff_ffff);
        let cancel = cancel_on_signal()?;
        let mut rig = Rig::on(host, cpus, suite.nodes, cancel.clone(), rig_datapaths::ALL).or_exit(Exit::Lacking)?;
        match layers {
            Some(map) => rig.divide_by(map.clone()).or_exit(Exit::Lacking)?,
            None if suite.scenarios.iter().any(|scenario| scenario.profile) => {
                rig.prepare_samples().context("sample stacks, as `profile = true` asks").or_exit(Exit::Lacking)?;
            }
            None => {}
        }
        rig.rehearse(suite).or_exit(Exit::Lacking)?;
        let cpu_time = rig.accounting().or_exit(Exit::Failed)?;
        Ok(Self { rig, started, seed, elsewhere, rootless, cpu_time, left_out, cancel })
    }

    /// Whether the machine turned out not to let the scenario be made.
    pub fn is_left_out(&self, id: &str) -> bool {
        self.left_out.iter().any(|one| one.scenarios.iter().any(|other| other == id))
    }
}
