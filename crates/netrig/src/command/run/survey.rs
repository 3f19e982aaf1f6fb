//! What a machine can make of suites.

use rig_cli::exit::{Exit, ExitContext, Failure};
use rig_facts::record::SkippedScenarios;
use rig_run::run::{DatapathTrials, add, leave_out, one_line, rehearse, why_not_here};
use rig_suite::suite::{Scenario, Suite};
use rig_sys::cpu::CpuSet;
use rig_testbed::Placement;
use rig_testbed::host::{Facts, Host};

use super::super::chosen_cpus;
use crate::doctor::{MachineSupport, SuitePurpose};

/// What a host and its machine can make of suites; nothing is built to stay.
pub struct Survey {
    pub host: Box<dyn Host>,
    /// The host's name, unless the nodes are the runner's own.
    pub elsewhere: Option<String>,
    pub cpus: CpuSet,
    cores: Vec<CpuSet>,
    support: MachineSupport,
    tried_out: DatapathTrials,
}

impl Survey {
    /// Of what these scenarios ask for, on CPUs that are named or all that the host may use.
    ///
    /// # Errors
    /// When the host cannot be asked, or may not use the CPUs.
    pub fn begin(host: Box<dyn Host>, cpus: Option<&CpuSet>, scenarios: &[Scenario]) -> Result<Self, Failure> {
        let Facts { cores, cpus: allowed, .. } = host.facts().or_exit(Exit::Failed)?;
        let cpus = chosen_cpus(cpus, &allowed)?;
        let support = MachineSupport::of_host(host.as_ref(), scenarios, SuitePurpose::Run).or_exit(Exit::Failed)?;
        let elsewhere = host.local().is_none().then(|| host.name().to_owned());
        Ok(Self { host, elsewhere, cpus, cores, support, tried_out: DatapathTrials::default() })
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
