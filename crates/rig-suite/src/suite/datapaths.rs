//! The datapaths of a scenario: that of its path, and what the file names besides.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use rig_cli::mistakes::{self, FileError};
use rig_cli::source::Spanned;
use rig_facts::programme::{Command, Phase};
use rig_testbed::Dut;
use rig_testbed::datapath::{
    Datapath, DatapathRegistry, DatapathRequest, Mistake, Protocol, RequestedServices, Settings,
};
use rig_testbed::topology::Topology;
use serde_json::Value;

use super::file::{DatapathFile, ScenarioFile};
use super::resolve::{Resolver, Result};
use super::{RequestedLoad, Scenario, Suite};

/// A datapath that a scenario has.
#[derive(Debug, Clone, PartialEq)]
pub struct DatapathSetup {
    /// By which it is known, e.g. `balancer`.
    pub name: String,
    /// The nodes that have an agent of it.
    pub nodes: Vec<String>,
    /// What the suite says; the rest is the datapath's to decide.
    pub settings: Settings,
    said: DatapathLines,
}

/// Where a file says what, for mistakes that are found later. Setups that are said elsewhere are the same.
#[derive(Debug, Clone, Default)]
struct DatapathLines {
    line: usize,
    keys: BTreeMap<String, usize>,
    /// Commands of phases, by the phase and their number among all of it.
    commands: BTreeMap<(String, usize), usize>,
}

impl PartialEq for DatapathLines {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl DatapathSetup {
    /// One that no file says anything of.
    pub fn new(name: impl Into<String>, nodes: Vec<String>, settings: Settings) -> Self {
        Self { name: name.into(), nodes, settings, said: DatapathLines::default() }
    }

    /// Whether the scenario's file has a key for it, in the scenario itself or among the datapath's settings.
    pub fn is_said(&self, key: &str) -> bool {
        self.said.keys.contains_key(key)
    }
}

/// What a scenario asks of one of its datapaths.
pub fn asked<'a>(scenario: &Scenario, setup: &'a DatapathSetup) -> DatapathRequest<'a> {
    let between = scenario.topology.dut().and_then(|node| scenario.topology.nodes().get(node));
    let is_there = between.is_some_and(|node| setup.nodes.contains(&node.name));
    let dut = scenario.dut.unwrap_or(ALONE);
    let services = server(scenario).filter(|_| is_there).map(|(protocol, _)| RequestedServices {
        protocol,
        addresses: dut.service_addresses,
        local: setup.is_said("local_addresses").then_some(dut.local_addresses),
    });
    DatapathRequest { settings: &setup.settings, services }
}

/// A node between the ends of which nothing is said.
pub const ALONE: Dut = Dut { workers: 1, service_addresses: 1, local_addresses: 1, profile: false };

/// What a scenario's servers speak, and the ports that they listen on, where its load is of packets.
pub fn server(scenario: &Scenario) -> Option<(Protocol, &RangeInclusive<u16>)> {
    let RequestedLoad::Packets(packets) = &scenario.traffic.listen else { return None };
    let protocol = if packets.is_tcp() { Protocol::Tcp } else { Protocol::Udp };
    Some((protocol, &packets.client.server_ports))
}

/// Keys of a scenario itself that say something of its path's datapath.
const OF_SCENARIO: [&str; 3] = ["workers", "service_addresses", "local_addresses"];

impl Resolver<'_> {
    /// What a scenario says of its datapaths. Whether they exist and what they say of their settings is asked by
    /// [`Suite::check_datapaths`].
    pub(super) fn datapaths(&self, scenario: &ScenarioFile, topology: &Topology) -> Result<Vec<DatapathSetup>> {
        let between = topology.dut().and_then(|node| topology.nodes().get(node)).map(|node| vec![node.name.clone()]);
        let all = || topology.nodes().iter().map(|node| node.name.clone()).collect();
        let mut own = topology.path().datapath().map(|name| {
            let nodes = between.unwrap_or_else(all);
            let given =
                [&scenario.service_addresses, &scenario.local_addresses].map(|key| key.as_ref().map(Spanned::span));
            let spans = [scenario.workers.as_ref().map(Spanned::span)].into_iter().chain(given);
            let keys =
                OF_SCENARIO.iter().zip(spans).filter_map(|(key, span)| Some(((*key).to_owned(), self.line(&span?))));
            let said = DatapathLines {
                line: self.line(&scenario.path.span()),
                keys: keys.collect(),
                ..DatapathLines::default()
            };
            DatapathSetup { name: name.to_owned(), nodes, settings: Settings::new(), said }
        });
        let mut others = Vec::new();
        let mut seen = BTreeSet::new();
        for file in &scenario.datapath {
            let setup = self.datapath(file, topology, own.as_ref())?;
            if !seen.insert(setup.name.clone()) {
                let what = format!("datapath '{}' is described twice", setup.name);
                return Err(self.error(file.span(), what, Some("put both together")));
            }
            match &mut own {
                Some(own) if own.name == setup.name => {
                    own.settings = setup.settings;
                    own.said.line = setup.said.line;
                    own.said.keys.extend(setup.said.keys);
                }
                _ => others.push(setup),
            }
        }
        Ok(own.into_iter().chain(others).collect())
    }

    fn datapath(
        &self,
        file: &Spanned<DatapathFile>,
        topology: &Topology,
        own: Option<&DatapathSetup>,
    ) -> Result<DatapathSetup> {
        let DatapathFile { name, nodes, settings: given } = file.get_ref();
        let Some(name) = name else {
            return Err(self.error(
                file.span(),
                "a datapath without a name",
                Some("write for instance name = \"balancer\""),
            ));
        };
        let toml::Value::String(text) = name.get_ref() else {
            return Err(self.error(
                name.span(),
                "a name that is not text",
                Some("write for instance name = \"balancer\""),
            ));
        };
        let known: Vec<&str> = topology.nodes().iter().map(|node| node.name.as_str()).collect();
        let nodes = match (nodes, own) {
            (None, Some(own)) if own.name == *text => own.nodes.clone(),
            (None, _) => {
                let hint = format!("give the nodes that it runs on: nodes = [\"{}\"]", known.join("\", \""));
                return Err(self.error(file.span(), format!("datapath '{text}' is on no node"), Some(&hint)));
            }
            (Some(given), Some(own)) if own.name == *text => {
                let what = format!("path {text} has its datapath on node {}", own.nodes.join(", "));
                return Err(self.error(given.span(), what, Some("remove 'nodes'")));
            }
            (Some(given), _) => self.nodes(given, &known)?,
        };
        let mut keys = BTreeMap::new();
        let mut settings = Settings::new();
        for (key, value) in given {
            keys.insert(key.clone(), self.line(&value.span()));
            let value = serde_json::to_value(value.get_ref()).map_err(|error| {
                let what = format!("'{key}' cannot be read: {error}");
                self.error(value.span(), what, None)
            })?;
            settings.insert(key.clone(), value);
        }
        let said = DatapathLines { line: self.line(&file.span()), keys, ..DatapathLines::default() };
        Ok(DatapathSetup { name: text.clone(), nodes, settings, said })
    }

    /// Remembers where the scenario's phases say which command.
    pub(super) fn note_commands(&self, scenario: &ScenarioFile, datapaths: &mut [DatapathSetup]) {
        for phase in scenario.phase.iter().map(Spanned::get_ref) {
            for (number, command) in phase.command.iter().enumerate() {
                let name = command.get_ref().datapath.get_ref();
                if let Some(setup) = datapaths.iter_mut().find(|setup| setup.name == *name) {
                    let key = (phase.name.get_ref().clone(), number);
                    setup.said.commands.insert(key, self.line(&command.span()));
                }
            }
        }
    }

    fn nodes(&self, given: &Spanned<toml::Value>, known: &[&str]) -> Result<Vec<String>> {
        let hint = format!("write a list of nodes: {}", known.join(", "));
        let wrong = |what: &str| self.error(given.span(), what, Some(&hint));
        let list = given.get_ref().as_array().filter(|list| !list.is_empty());
        let list = list.ok_or_else(|| wrong("'nodes' is not a list of nodes"))?;
        let mut nodes: Vec<String> = Vec::new();
        for node in list {
            let name = node.as_str().ok_or_else(|| wrong("'nodes' is not a list of nodes"))?;
            if !known.contains(&name) {
                return Err(wrong(&format!("no node '{name}'")));
            }
            if nodes.iter().any(|other| other == name) {
                return Err(wrong(&format!("node '{name}' twice")));
            }
            nodes.push(name.to_owned());
        }
        Ok(nodes)
    }
}

impl Suite {
    /// Asks the datapaths of all scenarios whether they are there, and what they say of their settings and of the commands
    /// that phases have for them.
    ///
    /// # Errors
    /// The first mistake, at its line.
    pub fn check_datapaths(&self, datapaths: DatapathRegistry) -> std::result::Result<(), FileError> {
        for (scenario, setup) in
            self.scenarios.iter().flat_map(|one| one.datapaths.iter().map(move |setup| (one, setup)))
        {
            let error = |line: usize, what: String, hint: Option<String>| {
                Err(FileError { file: self.file.clone(), line: (line > 0).then_some(line), what, hint })
            };
            let Some(datapath) = datapaths.find(&setup.name) else {
                let hint = format!("datapaths are {}", datapaths.names());
                return error(setup.said.line, format!("no datapath '{}'", setup.name), Some(hint));
            };
            if let Err(Mistake { key, what, hint }) = datapath.validate(&asked(scenario, setup)) {
                let line = key.and_then(|key| setup.said.keys.get(&key).copied()).unwrap_or(setup.said.line);
                return error(line, what, hint);
            }
            for (phase, number, command) in commands(scenario, setup) {
                if let Err(Mistake { what, hint, .. }) = check_command(datapath, command) {
                    let line = setup.said.commands.get(&(phase.to_owned(), number)).copied();
                    return error(line.unwrap_or(setup.said.line), what, hint);
                }
            }
        }
        Ok(())
    }
}

/// What a scenario's phases tell one of its datapaths, with the phase and the command's number in it.
fn commands<'a>(
    scenario: &'a Scenario,
    setup: &'a DatapathSetup,
) -> impl Iterator<Item = (&'a str, usize, &'a Command)> {
    let of_phase = |phase: &'a Phase| {
        phase.commands().enumerate().map(move |(number, command)| (phase.name.as_str(), number, command))
    };
    let all = scenario.programme.phases.iter().flat_map(of_phase);
    all.filter(|(.., command)| command.datapath == setup.name)
}

fn check_command(
    datapath: &dyn Datapath,
    Command { name, arguments, .. }: &Command,
) -> std::result::Result<(), Mistake> {
    let known = datapath.commands();
    if known.iter().any(|command| command.name == name) {
        let of = |mistake: Mistake| Mistake { what: format!("command '{name}': {}", mistake.what), ..mistake };
        return datapath.check_command(name, arguments).map_err(of);
    }
    let what = format!("{} has no command '{name}'", datapath.name());
    let names = || known.iter().map(|command| command.name);
    let hint = match mistakes::closest(name, names()) {
        _ if known.is_empty() => "it takes none".to_owned(),
        Some(meant) => format!("did you mean '{meant}'?"),
        None => format!("it has {}", names().collect::<Vec<_>>().join(", ")),
    };
    Err(Mistake::new(what, hint))
}

/// A setting as a person would write it.
pub fn shown(settings: &Settings) -> String {
    let one = |(key, value): (&String, &Value)| match value {
        Value::String(text) => format!("{key} {text}"),
        Value::Object(inner) => format!("{key} {{ {} }}", shown(inner)),
        other => format!("{key} {other}"),
    };
    settings.iter().map(one).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
