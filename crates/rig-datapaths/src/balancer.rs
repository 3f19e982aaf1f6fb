//! netrig's own balancer, as `netrig lb run` runs it: the same settings, the same control plane, in this process.

mod commands;
mod settings;

use anyhow::{Context, Result, bail};
use netrig_lb::Service;
use netrig_lb::message::{Forward, Protocol as Carried, Reply, Request, ServiceEntry, Status};
use rig_datapath::balancer::{Balancer as Programs, Generic, Sizes};
use rig_sys::advice::{NAMESPACES, rights};
use rig_sys::netlink::{Netlink, VethPair};
use rig_sys::netns::NetNs;
use rig_testbed::datapath::{
    Asked, Attach, BackendState, Command, Counters, Datapath, Live, Machine, Missing, Mistake, Process, ServiceState,
    Settings, Site, State,
};
use serde_json::{Map, Value};

use super::{node, stands_between};

/// XDP programs on the wires to clients and servers.
#[derive(Debug)]
pub(crate) struct Balancer;

/// The smallest tables that there can be.
const SMALL: Sizes = Sizes { connections: 64, services: 1, backends: 1, local_addresses: 1, list_entries: 1 };

impl Datapath for Balancer {
    fn name(&self) -> &'static str {
        "balancer"
    }

    fn validate(&self, asked: &Asked<'_>) -> Result<(), Mistake> {
        stands_between(self.name(), asked)?;
        settings::validate(asked)
    }

    fn missing(&self, machine: &Machine) -> Option<Missing> {
        machine.rootless.then(|| Missing::new("XDP programs need root", rights(NAMESPACES)))
    }

    /// Attaches them to a veth interface that is made for it, in a namespace of its own.
    fn try_out(&self) -> Result<()> {
        let [here, there] = [NetNs::create()?, NetNs::create()?];
        let mut link = Netlink::open(&here)?;
        link.add_veth(&VethPair { name: "lb", peer: "peer", peer_ns: &there, queues: 1, mtu: 1500 })?;
        let index = link.index("lb")?;
        here.run(|| -> Result<()> {
            let mut programs = Programs::load(SMALL)?;
            programs.attach(index, Generic::Refused).map(drop)?;
            Ok(())
        })?
    }

    fn commands(&self) -> &'static [Command] {
        commands::ALL
    }

    fn check_command(&self, name: &str, arguments: &Settings) -> Result<(), Mistake> {
        commands::check(name, arguments)
    }

    fn process(&self) -> Process<'_> {
        Process::Agent(self)
    }
}

impl Attach for Balancer {
    fn attach(&self, site: &Site, settings: &Settings) -> Result<Box<dyn Live>> {
        Ok(Box::new(Balancing::start(site, settings).context("start the balancer")?))
    }
}

/// The balancer at work.
#[derive(Debug)]
struct Balancing {
    service: Service,
    settings: Settings,
}

impl Balancing {
    fn start(site: &Site, settings: &Settings) -> Result<Self> {
        let devices: Vec<String> = site.interfaces().iter().map(|interface| interface.name.clone()).collect();
        let settings = settings::in_force(settings);
        let file = settings::file(&settings, site.services()?, &devices, site.cpus())?;
        let spawn = |body: netrig_lb::Body| node::thread("balancer", body);
        let service = Service::start(file, spawn).map_err(|failure| failure.error)?;
        Ok(Self { service, settings })
    }

    fn status(&self) -> Result<Status> {
        match self.service.ask(Request::Status)? {
            Reply::Status(status) => Ok(*status),
            other => bail!("the balancer answered something else: {other:?}"),
        }
    }
}

impl Live for Balancing {
    fn version(&self) -> Result<String> {
        let forward = match self.settings.get("forward").and_then(Value::as_str) {
            Some("nat") => "NAT",
            _ => "FullNAT",
        };
        Ok(format!("netrig {}, XDP native on veth, {forward}", env!("CARGO_PKG_VERSION")))
    }

    fn settings(&self) -> Settings {
        self.settings.clone()
    }

    fn counters(&self) -> Result<Counters> {
        let counted = self.service.counters()?;
        Ok(Counters { counts: counted.counts, drops: counted.drops })
    }

    fn state(&self) -> Result<State> {
        let status = self.status()?;
        let services: Vec<ServiceState> = status.services.iter().map(service).collect();
        let backends = services.iter().flat_map(|service| &service.backends);
        let mut more = Map::new();
        more.insert("capacity".to_owned(), status.table.capacity.into());
        let said = self.service.said();
        if !said.is_empty() {
            more.insert("said".to_owned(), said.into());
        }
        Ok(State {
            connections: Some(backends.map(|backend| backend.active + backend.inactive).sum()),
            memory_bytes: Some(status.table.memory_bytes),
            services,
            more,
        })
    }

    fn command(&mut self, name: &str, arguments: &Value) -> Result<Value> {
        commands::execute(self, name, arguments)
    }
}

fn service(entry: &ServiceEntry) -> ServiceState {
    let forward = match entry.forward {
        Forward::FullNat => "FullNat",
        Forward::Nat => "Masq",
        Forward::Route => "Route",
        Forward::Tunnel => "Tunnel",
    };
    let backends = entry.backends.iter().map(|backend| BackendState {
        address: backend.address.to_string(),
        forward: forward.to_owned(),
        weight: backend.weight,
        active: backend.active.into(),
        inactive: backend.inactive.into(),
    });
    ServiceState {
        protocol: match entry.key.protocol {
            Carried::Tcp => "TCP".to_owned(),
            Carried::Udp => "UDP".to_owned(),
        },
        address: entry.key.address.to_string(),
        scheduler: entry.scheduler.clone(),
        backends: backends.collect(),
    }
}
