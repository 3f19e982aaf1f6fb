//! netrig's own balancer, `netrig lb run` on the node between clients and servers.

mod commands;
mod settings;

use anyhow::Result;
use netrig_lb::BALANCER;
use netrig_lb::message::{ForwardingMethod, Protocol as LbProtocol, Reply, Request, ServiceEntry, Status};
use rig_datapath::balancer::{Balancer as Programs, GenericXdp, PortShare, Sizes};
use rig_sys::advice::{NAMESPACES, rights};
use rig_sys::netlink::{Netlink, VethPair};
use rig_sys::netns::NetNs;
use rig_testbed::datapath::protocol::Description;
use rig_testbed::datapath::{
    BackendState, Command, Control, Datapath, DatapathRequest, Machine, Missing, Mistake, Process, ServiceAgent,
    ServiceProcess, ServiceState, Settings, Site, Start, Starting, State,
};
use rig_testbed::host::Host;
use serde_json::{Map, Value};

use super::stands_between;

/// XDP programs on the wires to clients and servers.
#[derive(Debug)]
pub(crate) struct Balancer;

/// The smallest tables that there can be.
const SMALL: Sizes = Sizes {
    connections: 64,
    services: 1,
    backends: 1,
    local_addresses: 1,
    list_entries: 1,
    prefixes: 1,
    sources: 2,
    templates: 1,
    fragments: 1,
    ports: PortShare::WHOLE,
};

impl Datapath for Balancer {
    fn name(&self) -> &'static str {
        "balancer"
    }

    fn validate(&self, asked: &DatapathRequest<'_>) -> Result<(), Mistake> {
        stands_between(self.name(), asked)?;
        settings::validate(asked)
    }

    fn missing(&self, machine: &Machine, _: &Settings) -> Option<Missing> {
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
            programs.attach(index, GenericXdp::Refused).map(drop)?;
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
        Process::Service(self)
    }
}

impl Start for Balancer {
    fn start(&self, host: &dyn Host, site: &Site, settings: &Settings) -> Result<Box<dyn Starting>> {
        let devices: Vec<String> = site.interfaces().iter().map(|interface| interface.name.clone()).collect();
        let settings = settings::in_force(settings);
        let text = settings::text(&settings, site.services()?, &devices, site.cpus())?;
        let service = ServiceProcess::start(host, self, site, &ARGUMENTS, &BALANCER.protocol(), &text)?;
        Ok(Box::new(ServiceAgent::new(service, Balancing { settings })))
    }
}

/// What it logs is what happens to its work.
const ARGUMENTS: [&str; 5] = ["lb", "run", "--on-stdio", "--log-level", "error,netrig_lb::daemon::engine=info"];

/// The balancer at work.
#[derive(Debug)]
struct Balancing {
    settings: Settings,
}

fn status(service: &mut ServiceProcess) -> Result<Status> {
    match service.ask(Request::Status)? {
        Reply::Status(status) => Ok(*status),
        other => Err(service.unasked(&other)),
    }
}

impl Control for Balancing {
    fn begun(&mut self, _service: &mut ServiceProcess) -> Result<()> {
        Ok(())
    }

    fn describe(&mut self, service: &mut ServiceProcess) -> Result<Description> {
        let status = status(service)?;
        let forward = match self.settings.get("forward").and_then(Value::as_str) {
            Some("nat") => "NAT",
            _ => "FullNAT",
        };
        let services: Vec<ServiceState> = status.services.iter().map(state).collect();
        let backends = services.iter().flat_map(|service| &service.backends);
        let mut more = Map::new();
        more.insert("capacity".to_owned(), status.table.capacity.into());
        let said = service.logged();
        if !said.is_empty() {
            more.insert("said".to_owned(), said.into());
        }
        Ok(Description {
            version: format!("netrig {}, XDP native on veth, {forward}", status.netrig_version),
            settings: self.settings.clone(),
            state: State {
                connections: Some(backends.map(|backend| backend.active + backend.inactive).sum()),
                memory_bytes: Some(status.table.memory_bytes),
                services,
                more,
                ..State::default()
            },
        })
    }

    fn command(&mut self, service: &mut ServiceProcess, name: &str, arguments: &Value) -> Result<Value> {
        commands::execute(service, name, arguments)
    }
}

fn state(entry: &ServiceEntry) -> ServiceState {
    let forward = match entry.forward {
        ForwardingMethod::FullNat => "FullNat",
        ForwardingMethod::Nat => "Masq",
        ForwardingMethod::Route => "Route",
        ForwardingMethod::Tunnel => "Tunnel",
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
            LbProtocol::Tcp => "TCP".to_owned(),
            LbProtocol::Udp => "UDP".to_owned(),
        },
        address: entry.key.address.to_string(),
        scheduler: entry.scheduler.clone(),
        backends: backends.collect(),
    }
}
