//! An agent as its runner sees it: `netrig agent NAME` on the node, started through the node's host and asked in lines.

use anyhow::Result;
use serde_json::Value;

use super::client::ProcessClient;
use super::protocol::{Answer, Description, PROTOCOL, Question, Reading, Refusal};
use super::{Agent, Datapath, Settings, Site, Starting, UnknownCommand};
use crate::host::Host;

/// The subcommand of netrig whose process is an agent.
pub const SUBCOMMAND: &str = "agent";

/// A datapath at work on a node, in a process of its own. Dropping it ends its work; what is left behind goes with the node.
#[derive(Debug)]
pub(super) struct AgentProcess {
    datapath: &'static dyn Datapath,
    client: ProcessClient,
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
        let client = ProcessClient::start(host, name, site.node(), &[SUBCOMMAND, name], &PROTOCOL)?;
        let mut new = Self { datapath, client };
        new.client.begin(&Question::Attach { site: Box::new(site.clone()), settings: settings.clone() })?;
        Ok(new)
    }

    fn answer(&mut self) -> Result<Answer> {
        self.client.answer()?.map_err(Refusal::into_error)
    }

    fn ask(&mut self, question: &Question) -> Result<Answer> {
        self.client.ask(question)?.map_err(Refusal::into_error)
    }
}

impl Starting for AgentProcess {
    fn attached(mut self: Box<Self>) -> Result<Box<dyn Agent>> {
        match self.answer()? {
            Answer::Attached => Ok(self),
            other => Err(self.client.unasked(&other)),
        }
    }
}

impl Agent for AgentProcess {
    fn name(&self) -> &'static str {
        self.client.name()
    }

    fn node(&self) -> &str {
        self.client.node()
    }

    fn begin_reading(&mut self) -> Result<()> {
        self.client.begin(&Question::Counters)
    }

    fn reading(&mut self) -> Result<Reading> {
        match self.answer()? {
            Answer::Counters(reading) => Ok(reading),
            other => Err(self.client.unasked(&other)),
        }
    }

    fn describe(&mut self) -> Result<Description> {
        match self.ask(&Question::Describe)? {
            Answer::Description(description) => Ok(*description),
            other => Err(self.client.unasked(&other)),
        }
    }

    fn command(&mut self, name: &str, arguments: &Value) -> Result<Value> {
        let question = Question::Command { name: name.to_owned(), arguments: arguments.clone() };
        match self.client.ask::<Answer, Refusal>(&question)? {
            Ok(Answer::Done { answer }) => Ok(answer),
            Ok(other) => Err(self.client.unasked(&other)),
            Err(refusal) if refusal.unknown_command => Err(UnknownCommand::of(self.datapath, name).into()),
            Err(refusal) => Err(refusal.into_error()),
        }
    }

    fn detach(mut self: Box<Self>) -> Result<()> {
        match self.ask(&Question::Detach)? {
            Answer::Detached => self.client.end(),
            other => Err(self.client.unasked(&other)),
        }
    }
}
