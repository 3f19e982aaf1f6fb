//! The kernel's IP Virtual Server in the middle, driven by ipvsadm. Servers see the client's own address and answer by way
//! of the middle, which is what IPVS calls masquerading.

use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use rig_sys::netns::NetNs;

use super::{CLOSING, Carrier, DATAGRAMS, ESTABLISHED, Job, Protocol, State, WEIGHT, has_program, said_by};
use crate::record::{MiddleBackend, MiddleService};

const TABLE: &str = "/proc/net/ip_vs";

/// What the machine lacks, and what to do about it.
pub fn lack() -> Option<(&'static str, &'static str)> {
    if !Path::new(TABLE).exists() {
        // A module that is there has only not been asked for yet.
        let mut load = Command::new("modprobe");
        load.arg("ip_vs").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let _ = load.status();
    }
    match Path::new(TABLE).exists() {
        false => Some(("the kernel has no IPVS", "use a kernel with CONFIG_IP_VS")),
        true if !has_program("ipvsadm") => Some(("no program ipvsadm", "apt-get install ipvsadm")),
        true => None,
    }
}

/// The services, which go with the namespace.
#[derive(Debug)]
pub struct Services {
    version: String,
    ns: NetNs,
}

impl Services {
    pub fn add(job: &Job, ns: &NetNs) -> Result<Self> {
        if let Some((found, remedy)) = lack() {
            bail!("{found}: {remedy}");
        }
        said_by(ns, "ipvsadm", &["-R"], &rules(job)?)?;
        let timeouts = [ESTABLISHED, CLOSING, DATAGRAMS].map(|seconds| seconds.to_string());
        said_by(ns, "ipvsadm", &["--set", &timeouts[0], &timeouts[1], &timeouts[2]], "")?;
        let version = said_by(ns, "ipvsadm", &["--version"], "")?;
        Ok(Self { version: version.split_whitespace().take(2).collect::<Vec<_>>().join(" "), ns: ns.try_clone()? })
    }
}

/// As ipvsadm-save writes them.
fn rules(job: &Job) -> Result<String> {
    let mut text = String::new();
    let kind = match job.protocol {
        Protocol::Tcp => "-t",
        Protocol::Udp => "-u",
    };
    for service in &job.services {
        writeln!(text, "-A {kind} {service} -s rr")?;
        for backend in job.backends_of(*service) {
            writeln!(text, "-a {kind} {service} -r {backend} -m -w {WEIGHT}")?;
        }
    }
    Ok(text)
}

impl Carrier for Services {
    fn system(&self) -> Result<String> {
        Ok(format!("IPVS, masquerading, set up by {}", self.version))
    }

    /// IPVS counts none.
    fn drops(&self) -> Result<Vec<(String, u64)>> {
        Ok(Vec::new())
    }

    fn state(&self) -> Result<State> {
        let listing = said_by(&self.ns, "ipvsadm", &["-L", "-n"], "")?;
        let services = read(&listing).with_context(|| format!("read ipvsadm's listing:\n{listing}"))?;
        let backends = services.iter().flat_map(|service| &service.backends);
        let connections = backends.map(|backend| backend.active + backend.inactive).sum();
        Ok(State { connections: Some(connections), memory_bytes: None, services })
    }
}

/// The layout of `ipvsadm -L -n`: services begin with their protocol, their backends with an arrow.
fn read(listing: &str) -> Option<Vec<MiddleService>> {
    let mut services: Vec<MiddleService> = Vec::new();
    for line in listing.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [protocol @ ("TCP" | "UDP"), address, scheduler, ..] => services.push(MiddleService {
                protocol: protocol.to_owned(),
                address: address.to_owned(),
                scheduler: scheduler.to_owned(),
                backends: Vec::new(),
            }),
            ["->", address, forward, weight, active, inactive] if weight != "Weight" => {
                services.last_mut()?.backends.push(MiddleBackend {
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
