//! Scenarios that this machine cannot make: a run goes without them, and says so.

use std::env::split_paths;
use std::ffi::OsStr;
use std::path::Path as FilePath;

use rig_load::packet::Service;
use rig_load::plan::Load;
use serde::{Deserialize, Serialize};

use super::Options;
use crate::claim::Claim;
use crate::record::TrialRecord;
use crate::suite::{Scenario, Suite};
use crate::testbed::topology::Path;

/// Where a kernel that has IPVS lists its services.
const IPVS: &str = "/proc/net/ip_vs";

/// Scenarios that a run goes without, for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    pub scenarios: Vec<String>,
    /// Why, and what to do about it.
    pub reason: String,
}

impl LeftOut {
    /// Those of its scenarios that are `asked` for; `None` without any.
    pub fn of(&self, asked: &dyn Fn(&str) -> bool) -> Option<Self> {
        let scenarios: Vec<String> = self.scenarios.iter().filter(|id| asked(id)).cloned().collect();
        (!scenarios.is_empty()).then(|| Self { scenarios, reason: self.reason.clone() })
    }
}

impl std::fmt::Display for LeftOut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", in_short(&self.scenarios), self.reason)
    }
}

/// `cps-ipvs-1/2/4, pps-ipvs-1/2`: rows of a list together.
fn in_short(ids: &[String]) -> String {
    let parts = |id: &String| {
        let (list, row) = id.rsplit_once('-').filter(|(_, row)| row.parse::<u32>().is_ok())?;
        Some((list.to_owned(), row.to_owned()))
    };
    let mut text = String::new();
    let mut last = None;
    for id in ids {
        let own = parts(id);
        match (&own, &last) {
            (Some((list, row)), Some(of)) if list == of => {
                text.push('/');
                text.push_str(row);
            }
            _ => {
                text.push_str(if text.is_empty() { "" } else { ", " });
                text.push_str(id);
            }
        }
        last = own.map(|(list, _)| list);
    }
    text
}

/// What nodes in the middle can be made of here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Middles {
    /// CPUs that netrig may use.
    pub cpus: usize,
    /// Whether netrig is no root outside of its own user namespace.
    pub rootless: bool,
    pub has_nft: bool,
    pub has_haproxy: bool,
    pub has_ipvs: bool,
    pub has_ipvsadm: bool,
}

impl Middles {
    pub fn probe(cpus: usize, rootless: bool) -> Self {
        let path = std::env::var_os("PATH");
        let has = |program: &str| is_on(path.as_deref(), program);
        Self {
            cpus,
            rootless,
            has_nft: has("nft"),
            has_haproxy: has("haproxy"),
            has_ipvs: FilePath::new(IPVS).exists(),
            has_ipvsadm: has("ipvsadm"),
        }
    }

    /// Why the scenario cannot be made; `None` when it can.
    fn refuse(&self, scenario: &Scenario) -> Option<String> {
        let path = scenario.topology.path();
        if path == Path::Haproxy && scenario.loads().any(is_udp) {
            return Some("HAProxy balances TCP and no UDP".to_owned());
        }
        let missing = match path {
            Path::Balancer if self.rootless => "XDP programs need root: run netrig as root",
            Path::Nftables if !self.has_nft => "nft is not on PATH: apt-get install nftables",
            Path::Haproxy if !self.has_haproxy => "haproxy is not on PATH: apt-get install haproxy",
            Path::Ipvs if !self.has_ipvs => "the kernel has no IPVS: modprobe ip_vs, or use a kernel with CONFIG_IP_VS",
            Path::Ipvs if !self.has_ipvsadm => "ipvsadm is not on PATH: apt-get install ipvsadm",
            _ => {
                let workers = scenario.middle.map_or(0, |middle| middle.workers as usize);
                return (workers > self.cpus).then(|| {
                    let cpus = if self.cpus == 1 { "CPU" } else { "CPUs" };
                    format!("more workers than the {} {cpus} that netrig may use here", self.cpus)
                });
            }
        };
        Some(missing.to_owned())
    }
}

fn is_udp(load: &Load) -> bool {
    match load {
        Load::UdpStream(_) | Load::UdpRr(_) => true,
        Load::Packets(packets) => matches!(packets.service, Service::UdpClient(_) | Service::UdpServer(_)),
        Load::TcpStream(_) | Load::TcpRr(_) | Load::TcpCrr(_) | Load::Idle => false,
    }
}

fn is_on(path: Option<&OsStr>, program: &str) -> bool {
    path.is_some_and(|path| split_paths(path).any(|folder| folder.join(program).is_file()))
}

/// Takes the scenarios out of `suite` that cannot be made with `middles`, and says why of each.
pub fn leave_out(suite: &mut Suite, middles: &Middles) -> Vec<LeftOut> {
    let mut all: Vec<LeftOut> = Vec::new();
    suite.scenarios.retain(|scenario| {
        let Some(reason) = middles.refuse(scenario) else { return true };
        match all.iter_mut().find(|left_out| left_out.reason == reason) {
            Some(left_out) => left_out.scenarios.push(scenario.id.clone()),
            None => all.push(LeftOut { scenarios: vec![scenario.id.clone()], reason }),
        }
        false
    });
    all
}

/// Why a claim can have no verdict here, whatever its figures are: the run went without one of its scenarios, or workers of
/// a node in the middle had to share CPUs with the load, so that the figures are not those of so many workers.
pub fn no_verdict(claim: &Claim, options: &Options, trials: &[TrialRecord]) -> Option<String> {
    let scenarios = || claim.figures().iter().map(|figure| figure.scenario.as_str());
    if let Some((id, reason)) = scenarios().find_map(|id| Some((id, options.why_left_out(id)?))) {
        return Some(format!("{id} was left out: {reason}"));
    }
    let shares = |id: &str| {
        let middles = trials.iter().filter(|trial| trial.scenario == id).filter_map(|trial| trial.middle.as_ref());
        middles.clone().any(|middle| middle.workers.len() > 1 && !middle.shared.is_empty())
    };
    let id = scenarios().find(|id| shares(id))?;
    Some(format!("workers of {id} shared CPUs with the load, because the machine has no others"))
}

#[cfg(test)]
mod tests;
