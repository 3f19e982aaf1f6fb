//! The kernel's IP Virtual Server, driven by ipvsadm. Servers see the client's own address and answer by way of this node,
//! which is what IPVS calls masquerading.

use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use rig_testbed::datapath::{
    Attach, BackendState, Counters, Datapath, DatapathRequest, Live, Machine, Missing, Mistake, Process, Protocol,
    ServiceState, Services, Settings, Site, State, UnknownCommand,
};
use serde_json::Value;

use super::{CLOSING, DATAGRAMS, ESTABLISHED, WEIGHT, carries_as_it_is, node, none};

const TABLE: &str = "/proc/net/ip_vs";

/// IPVS of the kernel.
#[derive(Debug)]
pub(crate) struct Ipvs;

impl Datapath for Ipvs {
    fn name(&self) -> &'static str {
        "ipvs"
    }

    fn validate(&self, asked: &DatapathRequest<'_>) -> Result<(), Mistake> {
        carries_as_it_is(self.name(), asked)?;
        match asked.services.and_then(|services| services.local) {
            None => Ok(()),
            Some(_) => {
                let what = "'local_addresses' on path ipvs, which leaves packets their clients' addresses";
                Err(Mistake::new(what, "remove it").at("local_addresses"))
            }
        }
    }

    fn missing(&self, machine: &Machine, _: &Settings) -> Option<Missing> {
        if !Path::new(TABLE).exists() {
            // A module that is there has only not been asked for yet.
            let mut load = Command::new("modprobe");
            load.arg("ip_vs").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let _ = load.status();
        }
        match Path::new(TABLE).exists() {
            false => Some(Missing::new("the kernel has no IPVS", "use a kernel with CONFIG_IP_VS")),
            true => machine.lacks_program("ipvsadm", "ipvsadm"),
        }
    }

    fn process(&self) -> Process<'_> {
        Process::Agent(self)
    }
}

impl Attach for Ipvs {
    fn attach(&self, site: &Site, _settings: &Settings) -> Result<Box<dyn Live>> {
        if let Some(Missing { found, remedy }) = self.missing(&Machine { rootless: false }, &Settings::new()) {
            bail!("set up IPVS: {found}: {remedy}");
        }
        Ok(Box::new(Table::fill(site).context("set up IPVS")?))
    }
}

/// The services, which go with the node.
#[derive(Debug)]
struct Table {
    version: String,
}

impl Table {
    fn fill(site: &Site) -> Result<Self> {
        let services = site.services()?;
        // It takes what is for this node itself, so the addresses have to be on an interface here.
        node::own(services.hosts())?;
        node::output("ipvsadm", &["-R"], &rules(services)?)?;
        let timeouts = [ESTABLISHED, CLOSING, DATAGRAMS].map(|seconds| seconds.to_string());
        node::output("ipvsadm", &["--set", &timeouts[0], &timeouts[1], &timeouts[2]], "")?;
        let version = node::output("ipvsadm", &["--version"], "")?;
        Ok(Self { version: version.split_whitespace().take(2).collect::<Vec<_>>().join(" ") })
    }
}

/// As ipvsadm-save writes them.
fn rules(services: &Services) -> Result<String> {
    let mut text = String::new();
    let kind = match services.protocol {
        Protocol::Tcp => "-t",
        Protocol::Udp => "-u",
    };
    for service in &services.addresses {
        writeln!(text, "-A {kind} {service} -s rr")?;
        for backend in services.backends_of(*service) {
            writeln!(text, "-a {kind} {service} -r {backend} -m -w {WEIGHT}")?;
        }
    }
    Ok(text)
}

impl Live for Table {
    fn version(&self) -> Result<String> {
        Ok(format!("IPVS, masquerading, set up by {}", self.version))
    }

    fn settings(&self) -> Settings {
        none()
    }

    /// IPVS counts no drops, and `ipvsadm --stats` is a process that takes milliseconds.
    fn counters(&self) -> Result<Counters> {
        Ok(Counters::default())
    }

    fn state(&self) -> Result<State> {
        let listing = node::output("ipvsadm", &["-L", "-n"], "")?;
        let services = read(&listing).with_context(|| format!("read ipvsadm's listing:\n{listing}"))?;
        let backends = services.iter().flat_map(|service| &service.backends);
        let connections = backends.map(|backend| backend.active + backend.inactive).sum();
        Ok(State { connections: Some(connections), services, ..State::default() })
    }

    fn command(&mut self, name: &str, _arguments: &Value) -> Result<Value> {
        Err(UnknownCommand::of(&Ipvs, name).into())
    }
}

/// The layout of `ipvsadm -L -n`: services begin with their protocol, their backends with an arrow.
fn read(listing: &str) -> Option<Vec<ServiceState>> {
    let mut services: Vec<ServiceState> = Vec::new();
    for line in listing.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [protocol @ ("TCP" | "UDP"), address, scheduler, ..] => services.push(ServiceState {
                protocol: protocol.to_owned(),
                address: address.to_owned(),
                scheduler: scheduler.to_owned(),
                backends: Vec::new(),
            }),
            ["->", address, forward, weight, active, inactive] if weight != "Weight" => {
                services.last_mut()?.backends.push(BackendState {
                    address: address.to_owned(),
                    forward: forward.to_owned(),
                    weight: weight.parse().ok()?,
                    active: active.parse().ok()?,
                    inactive: inactive.parse().ok()?,
                });
            }
            _ => {}
        }
    }
    Some(services)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_is_read_service_by_service() {
        let listing = "IP Virtual Server version 1.2.1 (size=4096)\n\
                       Prot LocalAddress:Port Scheduler Flags\n  -> RemoteAddress:Port           Forward Weight ActiveConn InActConn\n\
                       TCP  198.18.1.1:80 rr\n  -> 198.19.0.1:80                Masq    100    7          12\n  \
                       -> 198.19.0.2:80                Masq    100    8          0\n\
                       UDP  [2001:2:0:101::1]:53 rr persistent 300\n  -> [2001:2:0:200::1]:53          Masq    100    0          3\n";
        let services = read(listing).unwrap();
        assert_eq!(services.len(), 2);
        assert_eq!((&services[0].address[..], services[0].backends.len()), ("198.18.1.1:80", 2));
        assert_eq!((services[0].backends[0].active, services[0].backends[0].inactive), (7, 12));
        assert_eq!((&services[1].protocol[..], &services[1].backends[0].address[..]), ("UDP", "[2001:2:0:200::1]:53"));
        assert_eq!(read("TCP  198.18.1.1:80 rr\n  -> 198.19.0.1:80 Masq many 7 12\n"), None);
    }
}
