//! Commands that are run inside nodes before each trial of a scenario.

use std::collections::BTreeMap;

use rig_cli::forms::OneOrMany;
use rig_cli::look::wrapped;
use rig_cli::mistakes::{self, FileError};
use rig_cli::source::Spanned;
use rig_facts::record::PreTrialCommand;
use rig_sys::cpu::CpuSet;
use rig_testbed::topology::Topology;

use super::resolve::{Resolver, Result};
use super::{Scenario, Suite};

impl Resolver<'_> {
    /// In the order of the testbed's nodes.
    pub(super) fn before(
        &self,
        said: &BTreeMap<String, Spanned<OneOrMany<String>>>,
        topology: &Topology,
    ) -> Result<Vec<PreTrialCommand>> {
        let places = places(topology);
        for (node, commands) in said {
            let wrong = |what: String, hint: &str| Err(self.error(commands.span(), what, Some(hint)));
            if let Some(hint) = no_place(node, &places) {
                return wrong(format!("a command before trials in '{node}', which the testbed does not have"), &hint);
            }
            let commands = commands.get_ref();
            if commands.is_empty() || commands.iter().any(|command| is_none(command)) {
                return wrong(format!("no command for {node}"), "write for instance \"ethtool -K eth0 gro off\"");
            }
        }
        let of = |node: String| {
            let commands = said.get(&node).into_iter().flat_map(|commands| commands.get_ref().iter());
            commands.map(move |command| PreTrialCommand { node: node.clone(), command: command.clone() })
        };
        Ok(places.into_iter().flat_map(of).collect())
    }
}

impl Suite {
    /// This suite with more commands before each trial of its scenarios, after those that it has by itself.
    ///
    /// # Errors
    /// When a scenario has no such node, or a command is empty.
    pub fn with_before(mut self, more: &[PreTrialCommand]) -> Result<Self, FileError> {
        for scenario in &mut self.scenarios {
            let places = places(&scenario.topology);
            for one in more {
                let hint = match no_place(&one.node, &places) {
                    Some(hint) => format!("{hint}; `--only` chooses scenarios that have it"),
                    None if is_none(&one.command) => "write for instance 'ethtool -K eth0 gro off'".to_owned(),
                    None => continue,
                };
                let what = match is_none(&one.command) {
                    true => format!("no command for {}", one.node),
                    false => format!("scenario '{}' has no '{}' to run a command in", scenario.id, one.node),
                };
                return Err(FileError { file: self.file, line: None, what, hint: Some(hint) });
            }
            scenario.before.extend_from_slice(more);
        }
        Ok(self)
    }
}

impl Scenario {
    /// The testbed as a drawing, with what it sets and what is run in it before a trial. `cpus` are the CPUs of each node, if they
    /// are known.
    pub fn describe(&self, cpus: &[CpuSet]) -> String {
        let run =
            |one: &PreTrialCommand| wrapped(&format!("before each trial {one}"), "run: ", "  ", Topology::DESCRIBED);
        self.topology.describe(cpus) + &self.before.iter().map(run).collect::<String>()
    }
}

/// Nodes and their containers, in the testbed's order.
fn places(topology: &Topology) -> Vec<String> {
    topology.plan(&[]).spaces().map(|space| space.name.clone()).collect()
}

/// What to write instead, where there is no such node.
fn no_place(node: &str, places: &[String]) -> Option<String> {
    let names = || places.iter().map(String::as_str);
    if names().any(|name| name == node) {
        return None;
    }
    let known = names().collect::<Vec<_>>().join(", ");
    let meant = mistakes::closest(node, names()).map_or_else(String::new, |name| format!("did you mean {name}? "));
    Some(format!("{meant}its nodes and containers are {known}"))
}

fn is_none(command: &str) -> bool {
    command.trim().is_empty()
}
