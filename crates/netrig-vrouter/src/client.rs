//! Asking a running router.

use std::ops::ControlFlow;

use rig_service::{AskError, Client, Refusal};

use crate::instance::{files, running};
use crate::message::{
    FlowEntry, FlowFilter, Log, NetworkTerms, PluggedEntry, Reply, Request, RouteDestination, Status, Table, Trace,
    TraceRequest,
};
use crate::settings::PluggedInterface;

/// A router that runs here.
#[derive(Debug, Clone)]
pub struct RouterClient(Client);

fn client(node: &str) -> Client {
    let absent =
        format!("the router of node '{node}' does not run here: start it with `netrig vrouter run FILE --node {node}`");
    Client::new(files(node), format!("the router of node '{node}'"), absent)
}

impl RouterClient {
    /// The one of a node; the only one, where no node is named.
    ///
    /// # Errors
    /// Where no router or several could be meant.
    pub fn of(node: Option<&str>) -> Result<Self, AskError> {
        if let Some(node) = node {
            return Ok(Self(client(node)));
        }
        match &running()[..] {
            [] => {
                let absent = "no router runs here: start it with `netrig vrouter run FILE --node NAME`".to_owned();
                Err(AskError::NotRunning { absent })
            }
            [node] => Ok(Self(client(node))),
            several => {
                let what =
                    format!("routers of several nodes run here: choose one with --node, one of {}", several.join(", "));
                Err(Refusal::new(what, None).into())
            }
        }
    }

    fn foreign(&self) -> AskError {
        self.0.foreign("an answer to something else")
    }

    pub fn status(&self) -> Result<Status, AskError> {
        match self.0.ask(&Request::Status)? {
            Reply::Status(status) => Ok(*status),
            _ => Err(self.foreign()),
        }
    }

    /// Of a VRF, or of all.
    pub fn routes(&self, vrf: Option<u32>) -> Result<Vec<Table>, AskError> {
        match self.0.ask(&Request::Routes(vrf))? {
            Reply::Routes(tables) => Ok(tables),
            _ => Err(self.foreign()),
        }
    }

    /// The one that something takes, in a table of its own.
    pub fn route(&self, vrf: u32, to: RouteDestination) -> Result<Table, AskError> {
        match self.0.ask(&Request::Route { vrf, to })? {
            Reply::Routes(tables) => tables.into_iter().next().ok_or_else(|| self.foreign()),
            _ => Err(self.foreign()),
        }
    }

    pub fn trace(&self, traced: TraceRequest) -> Result<Trace, AskError> {
        match self.0.ask(&Request::Trace(traced))? {
            Reply::Trace(trace) => Ok(*trace),
            _ => Err(self.foreign()),
        }
    }

    /// What rules have logged, from a sequence number on.
    pub fn log(&self, from: u64) -> Result<Log, AskError> {
        match self.0.ask(&Request::Log { from })? {
            Reply::Log(log) => Ok(log),
            _ => Err(self.foreign()),
        }
    }

    pub fn reload(&self) -> Result<Vec<String>, AskError> {
        self.0.reload()
    }

    /// What an interface of a network has to be like.
    pub fn network(&self, name: &str) -> Result<NetworkTerms, AskError> {
        match self.0.ask(&Request::Network(name.to_owned()))? {
            Reply::Network(terms) => Ok(terms),
            _ => Err(self.foreign()),
        }
    }

    /// Adds an interface; it is in force then.
    pub fn plug(&self, name: &str, interface: &PluggedInterface) -> Result<(), AskError> {
        self.done(&Request::Plug { name: name.to_owned(), interface: interface.clone() })
    }

    /// Takes away what was added so, where it is there.
    pub fn unplug(&self, name: &str) -> Result<(), AskError> {
        self.done(&Request::Unplug { name: name.to_owned() })
    }

    pub fn plugged(&self) -> Result<Vec<PluggedEntry>, AskError> {
        match self.0.ask(&Request::Plugged)? {
            Reply::Plugged(plugged) => Ok(plugged),
            _ => Err(self.foreign()),
        }
    }

    fn done(&self, request: &Request) -> Result<(), AskError> {
        match self.0.ask(request)? {
            Reply::Done => Ok(()),
            _ => Err(self.foreign()),
        }
    }

    pub fn flows(&self) -> Result<Vec<FlowEntry>, AskError> {
        self.listed(&Request::Flows)
    }

    pub fn flows_of(&self, filter: &FlowFilter) -> Result<Vec<FlowEntry>, AskError> {
        self.listed(&Request::FlowsOf(filter.clone()))
    }

    fn listed(&self, request: &Request) -> Result<Vec<FlowEntry>, AskError> {
        let mut all = Vec::new();
        let listed = self.0.stream(request, |reply| {
            let Reply::Flows(flows) = reply else { return ControlFlow::Break(()) };
            all.extend(flows);
            ControlFlow::Continue(())
        })?;
        if listed.is_break() { Err(self.foreign()) } else { Ok(all) }
    }
}
