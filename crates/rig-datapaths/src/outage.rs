//! Wires that are cut while a load runs: of one between servers and what balances them, the servers behind it are dead.

use anyhow::{Context, Result};
use rig_testbed::datapath::{
    Attach, Command, Counters, Datapath, DatapathRequest, Live, Mistake, Process, Settings, Site, State,
    UnknownCommand, read_settings,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{node, none};
use crate::arguments::read;

#[derive(Debug)]
pub(crate) struct Outage;

/// Which wire is meant.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    /// Of those that lead from the node to another, from 1 on.
    wire: usize,
}

impl Datapath for Outage {
    fn name(&self) -> &'static str {
        "outage"
    }

    fn validate(&self, asked: &DatapathRequest<'_>) -> Result<(), Mistake> {
        match asked.settings.keys().next() {
            None => Ok(()),
            Some(key) => Err(Mistake::new(format!("outage has no setting '{key}'"), "remove it").at(key)),
        }
    }

    fn commands(&self) -> &'static [Command] {
        // To set it up again would not put right what the kernel has forgotten with it: routes, neighbours, IPv6 addresses and the
        // threads that receive.
        const CUT: Command = Command {
            name: "cut",
            about: "sets the node's end of a wire down for good: { wire }, by its number from 1 on",
        };
        &[CUT]
    }

    fn check_command(&self, _name: &str, arguments: &Settings) -> Result<(), Mistake> {
        match read_settings(arguments)? {
            Wire { wire: 0 } => Err(Mistake::new("wire 0", "wires are numbered from 1 on")),
            Wire { .. } => Ok(()),
        }
    }

    fn process(&self) -> Process<'_> {
        Process::Agent(self)
    }
}

impl Attach for Outage {
    fn attach(&self, site: &Site, _settings: &Settings) -> Result<Box<dyn Live>> {
        let wires = site.interfaces().iter().map(|interface| interface.name.clone()).collect();
        Ok(Box::new(Wires { wires }))
    }
}

/// The interfaces of a node that lead to others. What is cut goes with the node.
#[derive(Debug)]
struct Wires {
    wires: Vec<String>,
}

impl Live for Wires {
    fn version(&self) -> Result<String> {
        Ok(format!("netrig {}, wires that are cut", env!("CARGO_PKG_VERSION")))
    }

    fn settings(&self) -> Settings {
        none()
    }

    fn counters(&self) -> Result<Counters> {
        Ok(Counters::default())
    }

    fn state(&self) -> Result<State> {
        Ok(State::default())
    }

    fn command(&mut self, name: &str, arguments: &Value) -> Result<Value> {
        if !Outage.commands().iter().any(|command| command.name == name) {
            return Err(UnknownCommand::of(&Outage, name).into());
        }
        let Wire { wire } = read(arguments)?;
        let interface = wire.checked_sub(1).and_then(|at| self.wires.get(at));
        let interface =
            interface.with_context(|| format!("the node has wires 1 to {}, and no wire {wire}", self.wires.len()))?;
        node::netlink()?.set_down(interface)?;
        Ok(json!({ "interface": interface }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wire_is_named_by_its_number() {
        let check = |arguments: Value| {
            let checked = Outage.check_command("cut", arguments.as_object().unwrap());
            checked.map_err(|mistake| mistake.to_string())
        };
        assert_eq!(check(json!({ "wire": 2 })), Ok(()));
        for (wrong, word) in [(json!({ "wire": 0 }), "from 1"), (json!({ "link": 1 }), "link"), (json!({}), "wire")] {
            let said = check(wrong).unwrap_err();
            assert!(said.contains(word), "{said}");
        }
        let mut wires = Wires { wires: vec!["eth0".into()] };
        let said = wires.command("cut", &json!({ "wire": 2 })).unwrap_err().to_string();
        assert!(said.contains("wires 1 to 1, and no wire 2"), "{said}");
        let said = wires.command("mend", &json!({ "wire": 1 })).unwrap_err().to_string();
        assert!(said.contains("'mend'") && said.contains("choose from cut"), "{said}");
    }
}
