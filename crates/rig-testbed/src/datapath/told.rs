//! What an agent tells of itself: values that stay in records.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::host::ContainerAccess;

/// Since the agent was attached, or over a window.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// By names such as `connections`, `in_packets`, `out_bytes`.
    #[serde(default)]
    pub counts: BTreeMap<String, u64>,
    /// Packets dropped and connections refused, by reason in words.
    #[serde(default)]
    pub drops: Vec<(String, u64)>,
}

impl Counters {
    /// What came after `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let count = |(name, now): (&String, &u64)| {
            let before = earlier.counts.get(name).copied().unwrap_or(0);
            (name.clone(), now.saturating_sub(before))
        };
        let drop = |(reason, now): &(String, u64)| {
            let before = earlier.drops.iter().find(|(of, _)| of == reason).map_or(0, |(_, count)| *count);
            (reason.clone(), now.saturating_sub(before))
        };
        Self { counts: self.counts.iter().map(count).collect(), drops: self.drops.iter().map(drop).collect() }
    }

    /// Without the reasons that did not occur.
    #[must_use]
    pub fn only_drops_that_occurred(mut self) -> Self {
        self.drops.retain(|(_, count)| *count > 0);
        self
    }
}

/// What an agent knows at one moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Connections that it knows of, where it tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<u64>,
    /// Of its connection table, bytes, where it tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<ServiceState>,
    /// Those that it has given containers, by `node/container`, where it does.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub addresses: BTreeMap<String, Vec<IpAddr>>,
    /// Those of others at which load reaches containers, by `node/container`, where these are not their own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub reached_at: BTreeMap<String, Vec<IpAddr>>,
    /// Those that it has made in place of the plan's, by `node/container`, where it does.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub containers: BTreeMap<String, ContainerAccess>,
    /// What else it tells, by name.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub more: Map<String, Value>,
}

/// A service as a balancer lists it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceState {
    /// `TCP` or `UDP`.
    pub protocol: String,
    /// Address and port.
    pub address: String,
    pub scheduler: String,
    pub backends: Vec<BackendState>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackendState {
    pub address: String,
    /// As ipvsadm writes it, e.g. `FullNat`.
    pub forward: String,
    pub weight: u32,
    pub active: u64,
    pub inactive: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_has_what_came_in_it() {
        let counters = |connections: u64, drops: &[(&str, u64)]| Counters {
            counts: BTreeMap::from([("connections".to_owned(), connections)]),
            drops: drops.iter().map(|(reason, count)| ((*reason).to_owned(), *count)).collect(),
        };
        let (begin, end) = (counters(7, &[("full", 2)]), counters(10, &[("full", 2), ("late", 3)]));
        assert_eq!(end.since(&begin), counters(3, &[("full", 0), ("late", 3)]));
        assert_eq!(end.since(&begin).only_drops_that_occurred(), counters(3, &[("late", 3)]));
        // Counters that start anew give differences of zero, not below it.
        assert_eq!(begin.since(&end), counters(0, &[("full", 0)]));
    }
}
