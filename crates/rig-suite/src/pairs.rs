//! Tests between all pairs of several hosts, as their runs keep them beside the trials.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use rig_load::plan::Load;
use rig_stats::units::counted;
use serde::{Deserialize, Serialize};

/// What stored runs have in place of a suite's name.
pub const PAIRS: &str = "pairs";
/// The same of pods.
pub const PODS: &str = "pods";

/// What was asked of all pairs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PairsTest {
    /// In the order of the tables.
    pub hosts: Vec<PairedHost>,
    /// From each host to each other one.
    pub stream: Load,
    /// Once for each pair.
    pub rr: Load,
    /// Where the hosts are pods of Kubernetes, what these are, and which of them are tested with each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods: Option<PodsTest>,
}

/// Pods of Kubernetes as hosts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PodsTest {
    /// Of kubectl's configuration; empty for the current one.
    pub context: String,
    pub namespace: String,
    /// Kubernetes' version.
    pub version: String,
    pub image: String,
    /// The node of each host that is a pod, by the host's name.
    pub nodes: BTreeMap<String, String>,
    /// What is measured, in the order of the tables.
    pub cases: Vec<PodCase>,
}

/// A way from one pod to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodCase {
    pub name: String,
    /// In words.
    pub way: String,
    /// By their numbers among the hosts, the client's being less.
    pub from: usize,
    pub to: usize,
}

/// A host of such a test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PairedHost {
    pub name: String,
    /// Where the other hosts reach it.
    #[serde(default)]
    pub addresses: BTreeSet<IpAddr>,
    /// By which of its interfaces.
    #[serde(default)]
    pub interfaces: BTreeSet<String>,
    /// Of hosts.toml, also where it is not reached.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Why it is in no pair; `None` where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out: Option<String>,
}

/// A load of a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PairLoad {
    Stream,
    Rr,
}

impl fmt::Display for PairLoad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stream => "stream",
            Self::Rr => "rr",
        })
    }
}

/// A load from one host to another, by their numbers in the test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PairScenario {
    /// The host that sends, or asks.
    pub from: usize,
    pub to: usize,
    pub load: PairLoad,
}

impl PairsTest {
    /// What its runs and reports are called.
    pub fn title(&self) -> String {
        match &self.pods {
            None => format!("All pairs of {}", counted(self.paired().len(), "host", "hosts")),
            Some(pods) if pods.context.is_empty() => "Pods of the current cluster".to_owned(),
            Some(pods) => format!("Pods of {}", pods.context),
        }
    }

    pub fn load(&self, load: PairLoad) -> &Load {
        match load {
            PairLoad::Stream => &self.stream,
            PairLoad::Rr => &self.rr,
        }
    }

    /// The hosts that are in pairs, by their numbers.
    pub fn paired(&self) -> Vec<usize> {
        (0..self.hosts.len()).filter(|host| self.hosts[*host].left_out.is_none()).collect()
    }

    /// All that is to be measured: a stream from each host to each other one, and transactions once for each pair.
    pub fn scenarios(&self) -> Vec<PairScenario> {
        if let Some(pods) = &self.pods {
            let is_here = |host: usize| self.hosts.get(host).is_some_and(|host| host.left_out.is_none());
            let cases = pods.cases.iter().filter(|case| is_here(case.from) && is_here(case.to));
            let both = |case: &PodCase| {
                let (from, to) = (case.from, case.to);
                [PairLoad::Stream, PairLoad::Rr].map(|load| PairScenario { from, to, load })
            };
            return cases.flat_map(both).collect();
        }
        let hosts = self.paired();
        let all = hosts.iter().flat_map(|from| hosts.iter().map(move |to| (*from, *to)));
        all.filter(|(from, to)| from != to)
            .flat_map(|(from, to)| {
                let of = move |load| PairScenario { from, to, load };
                [Some(of(PairLoad::Stream)), (from < to).then(|| of(PairLoad::Rr))].into_iter().flatten()
            })
            .collect()
    }

    /// The name of a scenario in records: `web1>web2 stream`.
    pub fn id(&self, scenario: PairScenario) -> String {
        format!("{} {}", self.between(scenario), scenario.load)
    }

    /// `web1>web2`; of pods the name of their case.
    pub fn between(&self, PairScenario { from, to, .. }: PairScenario) -> String {
        let mut cases = self.pods.iter().flat_map(|pods| &pods.cases);
        if let Some(case) = cases.find(|case| (case.from, case.to) == (from, to)) {
            return case.name.clone();
        }
        format!("{}>{}", self.hosts[from].name, self.hosts[to].name)
    }
}
