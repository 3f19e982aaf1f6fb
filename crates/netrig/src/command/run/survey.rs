//! What a machine can make of suites.

use std::path::Path;

use anyhow::Context;
use rig_cli::exit::{Exit, ExitContext, Failure};
use rig_facts::record::SkippedScenarios;
use rig_run::run::{DatapathTrials, add, leave_out, one_line, rehearse, why_not_here};
use rig_suite::suite::{Scenario, Suite};
use rig_sys::cpu::CpuSet;
use rig_testbed::Placement;
use rig_testbed::datapath::Machine;
use rig_testbed::host::{Host, Local, Remote};

use super::HostKind;
use crate::BUILD;
use crate::doctor::MachineSupport;

impl HostKind {
    fn start(self, program: &Path, rootless: bool) -> anyhow::Result<Box<dyn Host>> {
        Ok(match self {
            Self::Local => {
                let local = Local::new()?.with_program(program.to_owned()).of_build(BUILD, rootless);
                Box::new(local.with_datapaths(rig_datapaths::ALL.on(Machine { rootless })))
            }
            Self::Child => Box::new(Remote::child(program)?),
        })
    }
}

/// What a host and its machine can make of suites; nothing is built to stay.
pub struct Survey {
    pub host: Box<dyn Host>,
    /// The host's name, unless the nodes are the runner's own.
    pub elsewhere: Option<String>,
    cpus: CpuSet,
    cores: Vec<CpuSet>,
    support: MachineSupport,
    tried_out: DatapathTrials,
}

impl Survey {
    /// Of what these scenarios ask for, once privileges are gained; `rootless` says how.
    pub fn begin(kind: HostKind, rootless: bool, cpus: &CpuSet, scenarios: &[Scenario]) -> Result<Self, Failure> {
        let program = std::env::current_exe().context("find netrig's own program").or_exit(Exit::Failed)?;
        let host = kind.start(&program, rootless).or_exit(Exit::Failed)?;
        let cores = host.facts().or_exit(Exit::Failed)?.cores;
        let support = MachineSupport::of_host(host.as_ref(), scenarios).or_exit(Exit::Failed)?;
        let elsewhere = (kind != HostKind::Local).then(|| host.name().to_owned());
        let (cpus, tried_out) = (cpus.clone(), DatapathTrials::default());
        Ok(Self { host, elsewhere, cpus, cores, support, tried_out })
    }

    /// Takes scenarios that cannot be made here out of the suite, with the reasons.
    ///
    /// # Errors
    /// When the host cannot be asked.
    pub fn leave_out(&mut self, suite: &mut Suite) -> anyhow::Result<Vec<SkippedScenarios>> {
        let Self { host, cpus, cores, support, tried_out, .. } = self;
        let mut left_out = leave_out(suite, &mut |scenario| {
            let nodes = if scenario.topology.shares_cpus() { 0 } else { scenario.topology.share_count() };
            Placement::new(cpus, cores, nodes).err().map(|error| one_line(&error.into()))
        });
        suite.nodes = suite.nodes.min(cpus.len());
        let placement = Placement::new(cpus, cores, suite.nodes)?;
        let others = leave_out(suite, &mut |scenario| {
            why_not_here(scenario, &placement, rig_datapaths::ALL, host.as_ref())
                .or_else(|| support.why_not(scenario))
                .or_else(|| {
                    let refused = scenario.profile.then(|| host.prepare_stacks(cpus))?.err();
                    refused.map(|error| format!("sample stacks: {}", one_line(&error)))
                })
                .or_else(|| tried_out.why_not(scenario, host.as_ref()))
                .or_else(|| rehearse(scenario, &placement, host.as_mut()).err().map(|error| one_line(&error)))
        });
        others.iter().for_each(|one| one.scenarios.iter().for_each(|id| add(&mut left_out, id, one.reason.clone())));
        if !left_out.is_empty() {
            // One that is gone has refused nothing.
            host.facts()?;
        }
        Ok(left_out)
    }
}
