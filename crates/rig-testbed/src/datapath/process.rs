//! An agent as its runner sees it: `netrig agent NAME` on the node, started through the node's host and asked in lines.

use anyhow::Result;
use serde_json::Value;

use super::node_process::NodeProcess;
use super::protocol::{Answer, Description, PROTOCOL, Question, Reading};
use super::{Agent, Datapath, Settings, Site, Starting, UnknownCommand};
use crate::host::Host;

/// The subcommand of netrig whose process is an agent.
pub const SUBCOMMAND: &str = "agent";

/// A datapath at work on a node, in a process of its own. Dropping it ends its work; what is left behind goes with the node.
#[derive(Debug)]
pub(super) struct AgentProcess {
    datapath: &'static dyn Datapath,
    process: NodeProcess,
}

impl AgentProcess {
    /// Starts netrig on the node and tells it to put `datapath` to work there.
    ///
    /// # Errors
    /// When it cannot be started, or spoken to.
    pub(super) fn start(
        host: &dyn Host,
        datapath: &'static dyn Datapath,
        site: &Site,
        settings: &Settings,
    ) -> Result<Self> {
        let name = datapath.name();
        let mut process =
            NodeProcess::start(host, name, site.node(), &[SUBCOMMAND, name], &PROTOCOL, datapath.answer_timeout())?;
        process.client.begin(&Question::Attach { site: Box::new(site.clone()), settings: settings.clone() })?;
        Ok(Self { datapath, process })
    }
}

impl Starting for AgentProcess {
    fn attached(mut self: Box<Self>) -> Result<Box<dyn Agent>> {
        match self.process.client.answer()? {
            Answer::Attached => Ok(self),
            other => Err(self.process.client.unasked(&other)),
        }
    }
}

impl Agent for AgentProcess {
    fn name(&self) -> &'static str {
        self.datapath.name()
    }

    fn node(&self) -> &str {
        self.process.node()
    }

    fn begin_reading(&mut self) -> Result<()> {
        self.process.client.begin(&Question::Counters)
    }

    fn reading(&mut self) -> Result<Reading> {
        match self.process.client.answer()? {
            Answer::Counters(reading) => Ok(reading),
            other => Err(self.process.client.unasked(&other)),
        }
    }

    fn describe(&mut self) -> Result<Description> {
        match self.process.client.ask(&Question::Describe)? {
            Answer::Description(description) => Ok(*description),
            other => Err(self.process.client.unasked(&other)),
        }
    }

    fn command(&mut self, name: &str, arguments: &Value) -> Result<Value> {
        if !self.datapath.commands().iter().any(|command| command.name == name) {
            return Err(UnknownCommand::of(self.datapath, name).into());
        }
        match self.process.client.ask(&Question::Command { name: name.to_owned(), arguments: arguments.clone() })? {
            Answer::Done { answer } => Ok(answer),
            other => Err(self.process.client.unasked(&other)),
        }
    }

    fn detach(mut self: Box<Self>) -> Result<()> {
        match self.process.client.ask(&Question::Detach)? {
            Answer::Detached => self.process.client.end(),
            other => Err(self.process.client.unasked(&other)),
        }
    }
}
