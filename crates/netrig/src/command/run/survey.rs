//! What a machine, or several, can make of suites.

use std::collections::BTreeMap;

use rig_cli::exit::{Exit, ExitContext, Failure};
use rig_facts::record::SkippedScenarios;
use rig_run::run::{DatapathTrials, add, leave_out, one_line, prepare_stacks, rehearse, why_not_here};
use rig_suite::suite::{Scenario, Suite};
use rig_sys::cpu::CpuSet;
use rig_testbed::Placement;
use rig_testbed::host::{Facts, Host};

use super::super::chosen_cpus;
use super::super::hosts::NodesOnHosts;
use super::queues;
use crate::doctor::{MachineSupport, SuitePurpose};

/// What a host and its machine, or several, can make of suites; nothing is built to stay.
pub struct Survey {
    pub host: Box<dyn Host>,
    /// The host's name, unless the nodes are the runner's own.
    pub elsewhere: Option<String>,
    machines: Machines,
    /// Of each machine, by its name where there are several.
    support: Vec<(Option<String>, MachineSupport)>,
    tried_out: DatapathTrials,
}

enum Machines {
    /// One, of which nodes share the CPUs, some of which are threads of one core.
    One { cpus: CpuSet, cores: Vec<CpuSet> },
    /// One for each node.
    Each(Placement),
}

impl Machines {
    /// For suites of so many nodes that share the CPUs, where there is one.
    fn placement(&self, nodes: usize) -> anyhow::Result<Placement> {
        match self {
            Self::One { cpus, cores } => Ok(Placement::new(cpus, cores, nodes)?),
            Self::Each(placement) => Ok(placement.clone()),
        }
    }
}

impl Survey {
    /// Of what these scenarios ask for, on CPUs that are named or all that the host may use.
    ///
    /// # Errors
    /// When the host cannot be asked, or may not use the CPUs.
    pub fn begin(host: Box<dyn Host>, cpus: Option<&CpuSet>, scenarios: &[Scenario]) -> Result<Self, Failure> {
        let Facts { cores, cpus: allowed, .. } = host.facts().or_exit(Exit::Failed)?;
        let machines = Machines::One { cpus: chosen_cpus(cpus, &allowed)?, cores };
        let support = MachineSupport::of_host(host.as_ref(), scenarios, SuitePurpose::Run).or_exit(Exit::Failed)?;
        let elsewhere = host.local().is_none().then(|| host.name().to_owned());
        Ok(Self { host, elsewhere, machines, support: vec![(None, support)], tried_out: DatapathTrials::default() })
    }

    /// As [`Self::begin`], where each node has a machine of its own.
    ///
    /// # Errors
    /// As there.
    pub fn of_nodes(started: NodesOnHosts, cpus: Option<&CpuSet>, scenarios: &[Scenario]) -> Result<Self, Failure> {
        let NodesOnHosts { hosts, cpus: of_hosts } = started;
        let (mut nodes, mut support) = (BTreeMap::new(), Vec::new());
        for (node, host) in hosts.members() {
            let allowed = host.facts().or_exit(Exit::Failed)?.cpus;
            nodes.insert(node.to_owned(), chosen_cpus(of_hosts.get(node).or(cpus), &allowed)?);
            let own = MachineSupport::of_host(host, scenarios, SuitePurpose::Run).or_exit(Exit::Failed)?;
            support.push((Some(host.name().to_owned()), own));
        }
        let machines = Machines::Each(Placement::of_machines(nodes, hosts.lanes()));
        let elsewhere = Some(hosts.name().to_owned());
        Ok(Self { host: Box::new(hosts), elsewhere, machines, support, tried_out: DatapathTrials::default() })
    }

    /// Takes scenarios that cannot be made here out of the suite, with the reasons.
    ///
    /// # Errors
    /// When the host cannot be asked.
    pub fn leave_out(&mut self, suite: &mut Suite) -> anyhow::Result<Vec<SkippedScenarios>> {
        let Self { host, machines, support, tried_out, .. } = self;
        let mut left_out = leave_out(suite, &mut |scenario| {
            let nodes = if scenario.topology.shares_cpus() { 0 } else { scenario.topology.share_count() };
            machines.placement(nodes).err().map(|error| one_line(&error))
        });
        let all = match machines {
            Machines::One { cpus, .. } => {
                suite.nodes = suite.nodes.min(cpus.len());
                cpus.clone()
            }
            Machines::Each(_) => CpuSet::default(),
        };
        let placement = machines.placement(suite.nodes)?;
        let others = leave_out(suite, &mut |scenario| {
            why_not_here(scenario, &placement, rig_datapaths::ALL, host.as_ref())
                .or_else(|| support.iter().find_map(|(name, support)| why_not(name.as_deref(), support, scenario)))
                .or_else(|| {
                    let refused = scenario.profile.then(|| prepare_stacks(host.as_ref(), &all))?.err();
                    refused.map(|error| format!("sample stacks: {}", one_line(&error)))
                })
                .or_else(|| arrange(scenario, &placement, host.as_ref()).err().map(|error| one_line(&error)))
                .or_else(|| tried_out.why_not(scenario, host.as_ref()))
                .or_else(|| rehearse(scenario, &placement, host.as_mut()).err().map(|error| one_line(&error)))
        });
        others.iter().for_each(|one| one.scenarios.iter().for_each(|id| add(&mut left_out, id, one.reason.clone())));
        if !left_out.is_empty() {
            // One that is gone has refused nothing.
            host.clock()?;
        }
        Ok(left_out)
    }

    /// On which receive queues of the machines' cards the flows of scenarios will come in, as far as that is known: sentences.
    ///
    /// # Errors
    /// When a host cannot be asked.
    pub fn receive_queues(&self, suite: &Suite) -> anyhow::Result<Vec<String>> {
        queues::told(suite, &self.machines.placement(suite.nodes)?, self.host.as_ref())
    }

    /// The host, the CPUs of the nodes of a suite, and the cores of several threads that nodes share.
    ///
    /// # Errors
    /// When there are fewer CPUs than nodes.
    pub fn into_parts(self, suite: &Suite) -> anyhow::Result<(Box<dyn Host>, Placement, Vec<CpuSet>)> {
        let placement = self.machines.placement(suite.nodes)?;
        let cores = match self.machines {
            Machines::One { cores, .. } => cores,
            Machines::Each(_) => Vec::new(),
        };
        Ok((self.host, placement, cores))
    }
}

/// Why a machine cannot make a scenario, with its name where there are others.
fn why_not(machine: Option<&str>, support: &MachineSupport, scenario: &Scenario) -> Option<String> {
    let why = support.why_not(scenario)?;
    Some(match machine {
        Some(machine) => format!("{machine}: {why}"),
        None => why,
    })
}

/// Whether the machines' network can be what the scenario has between its nodes.
fn arrange(scenario: &Scenario, placement: &Placement, host: &dyn Host) -> anyhow::Result<()> {
    let scenario = &scenario.on(placement)?;
    let cpus = placement.of(&scenario.topology, scenario.dut)?;
    host.arrange(scenario.topology.plan(&cpus)).map(drop)
}
