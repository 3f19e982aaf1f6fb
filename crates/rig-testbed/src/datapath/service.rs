//! A service of netrig at work on a node, as its runner sees it: `netrig vrouter run --on-stdio` and its like, started through the
//! node's host. It is what users run, and has its settings as the text of the file that they would write.

use std::fmt;

use anyhow::Result;
use rig_lines::{Protocol, Refusal};
use rig_service::protocol::{Answer, Question};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::node_process::NodeProcess;
use super::protocol::{Description, Reading};
use super::{Agent, Counters, Datapath, Site, Starting};
use crate::host::Host;

/// The process of a service on a node.
#[derive(Debug)]
pub struct ServiceProcess(NodeProcess);

impl ServiceProcess {
    /// Starts `netrig` with these arguments on the node, for a datapath, and has it begin with settings that are the text of a file,
    /// without waiting for it.
    ///
    /// # Errors
    /// When it cannot be started, or spoken to.
    pub fn start(
        host: &dyn Host,
        datapath: &dyn Datapath,
        site: &Site,
        arguments: &[&str],
        protocol: &Protocol,
        settings: &str,
    ) -> Result<Self> {
        let mut process =
            NodeProcess::start(host, datapath.name(), site.node(), arguments, protocol, datapath.answer_timeout())?;
        process.client.begin(&Question::<()>::Start { settings: settings.to_owned() })?;
        Ok(Self(process))
    }

    /// The node that it is on.
    pub fn node(&self) -> &str {
        self.0.node()
    }

    /// The version that it says it is.
    pub fn build(&self) -> &str {
        self.0.client.build().unwrap_or_default()
    }

    /// Asks what a client of the service asks. Not for what is answered in several parts.
    ///
    /// # Errors
    /// [`Refusal`], or [`LostPeer`](rig_lines::LostPeer).
    pub fn ask<A: DeserializeOwned + fmt::Debug>(&mut self, request: impl Serialize) -> Result<A> {
        match self.0.client.ask(&Question::Ask(request))? {
            Answer::Answer(answer) => Ok(answer),
            other => Err(self.unasked(&other)),
        }
    }

    /// Puts the settings of another text in force, or leaves all as it was.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub fn reload(&mut self, settings: &str) -> Result<()> {
        match self.0.client.ask(&Question::<()>::Reload { settings: Some(settings.to_owned()) })? {
            Answer::<Value>::Done(_) => Ok(()),
            other => Err(self.unasked(&other)),
        }
    }

    /// The last lines of its log.
    pub fn logged(&self) -> Vec<String> {
        self.0.client.last_lines()
    }

    /// What it has counted, with its clock.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub fn counters(&mut self) -> Result<Reading> {
        self.begin_reading()?;
        self.reading()
    }

    /// Of an answer to something else.
    pub fn unasked(&self, answer: &impl fmt::Debug) -> anyhow::Error {
        self.0.client.unasked(answer)
    }

    fn begin_reading(&mut self) -> Result<()> {
        self.0.client.begin(&Question::<()>::Counters)
    }

    fn begun(&mut self) -> Result<()> {
        match self.0.client.answer() {
            Ok(Answer::<Value>::Started { .. }) => Ok(()),
            Ok(other) => Err(self.unasked(&other)),
            Err(error) if error.is::<Refusal>() => Err(error.context(format!("start {}", self.0.client))),
            Err(error) => Err(error),
        }
    }

    fn reading(&mut self) -> Result<Reading> {
        match self.0.client.answer()? {
            Answer::<Value>::Counters(stamped) => {
                let counters = Counters { counts: stamped.counters.counts, drops: stamped.counters.drops };
                let (at_ns, cost_ns, process_cpu_ns) = (stamped.from_ns, stamped.cpu_ns, stamped.process_cpu_ns);
                Ok(Reading { at_ns, cost_ns, process_cpu_ns, counters })
            }
            other => Err(self.unasked(&other)),
        }
    }
}

/// What agents of a service tell of themselves and can be told, in its own requests and replies.
pub trait Control: fmt::Debug {
    /// When it has begun, for the first time that it is asked.
    ///
    /// # Errors
    /// What is not as it was asked for.
    fn begun(&mut self, service: &mut ServiceProcess) -> Result<()>;

    /// # Errors
    /// When it does not tell.
    fn describe(&mut self, service: &mut ServiceProcess) -> Result<Description>;

    /// As [`Agent::command`].
    ///
    /// # Errors
    /// As there.
    fn command(&mut self, service: &mut ServiceProcess, name: &str, arguments: &Value) -> Result<Value>;
}

/// An agent whose process is a service's.
#[derive(Debug)]
pub struct ServiceAgent<C> {
    service: ServiceProcess,
    control: C,
}

impl<C: Control> ServiceAgent<C> {
    pub fn new(service: ServiceProcess, control: C) -> Self {
        Self { service, control }
    }
}

impl<C: Control + 'static> Starting for ServiceAgent<C> {
    fn attached(mut self: Box<Self>) -> Result<Box<dyn Agent>> {
        self.service.begun()?;
        self.control.begun(&mut self.service)?;
        Ok(self)
    }
}

impl<C: Control> Agent for ServiceAgent<C> {
    fn name(&self) -> &'static str {
        self.service.0.datapath()
    }

    fn node(&self) -> &str {
        self.service.0.node()
    }

    fn begin_reading(&mut self) -> Result<()> {
        self.service.begin_reading()
    }

    fn reading(&mut self) -> Result<Reading> {
        self.service.reading()
    }

    fn describe(&mut self) -> Result<Description> {
        self.control.describe(&mut self.service)
    }

    fn command(&mut self, name: &str, arguments: &Value) -> Result<Value> {
        self.control.command(&mut self.service, name, arguments)
    }

    fn detach(self: Box<Self>) -> Result<()> {
        self.service.0.client.end()
    }
}
