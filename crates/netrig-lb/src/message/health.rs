//! What is told of the health of services and backends.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServiceHealth {
    /// `tcp`, `http`, `https`, `udp`, `dns`, `icmp`, `command`; `none` where backends are found out by their clients' connections alone.
    pub check: String,
    /// Whether backends are taken out that their clients' connections fail at.
    #[serde(default)]
    pub outlier: bool,
    /// Of the backends that are up and not taken out, without sorry servers.
    pub healthy_weight: u64,
    pub quorum: u32,
    /// Whether that is enough, hysteresis considered.
    pub has_quorum: bool,
    /// What is done while it is not, in words.
    pub below_quorum: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BackendHealth {
    pub state: BackendHealthState,
    /// For how long it has been that, milliseconds, restarts of the control plane included.
    pub state_ms: u64,
    /// What new connections are distributed by: 0 for one that is down or taken out, or a sorry server that waits. While a backend of the service
    /// starts slowly, in tenths if all weights are below 10.
    pub weight_in_force: u32,
    pub sorry: bool,
    /// Why the last check has failed, or could not be made.
    pub reason: Option<String>,
    /// Checks in a row that speak against the state, and how many change it.
    pub contrary: u32,
    pub needed: u32,
    /// Checks since the control plane was started, by what they came to; `unable` could not be made for a reason of this machine.
    pub good: u64,
    pub bad: u64,
    pub unable: u64,
    /// Changes between up and down, and the first to down.
    pub transitions: u64,
    /// Duration of the last check, and of all that were good or bad; microseconds.
    pub last_us: Option<u64>,
    pub took_us: u64,
    /// When the first of the certificates ends that the backend showed to the last check by `https`, seconds since 1970 (UTC); `null` where
    /// none was shown.
    #[serde(default)]
    pub certificate_end: Option<u64>,
    /// What its clients' connections say; `null` where its service has no outlier detection, and for sorry servers.
    #[serde(default)]
    pub outlier: Option<BackendOutlier>,
}

/// What outlier detection has made of a backend.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BackendOutlier {
    /// For how long it has been out, milliseconds; `null` for one that is not.
    pub ejected_ms: Option<u64>,
    /// For how long it will be, at most.
    pub left_ms: Option<u64>,
    /// Why it is out.
    pub reason: Option<String>,
    /// How often it was taken out in a row, restarts of the control plane included.
    pub in_a_row: u32,
    /// What suspicions have led to since the control plane was started: it was taken out; it answered the balancer's own connection;
    /// that could not be made, for a reason of this machine; as many others were out as may be, or none answered its clients.
    pub ejected: u64,
    pub answered: u64,
    pub unable: u64,
    pub spared: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BackendHealthState {
    /// No check has ended yet: it gets connections, or none, as `begin` says.
    Unknown,
    Up,
    Down,
    /// A sorry server, or one without a check: it is taken to be healthy.
    NotChecked,
}

impl BackendHealth {
    /// Whether it gets no new connections because those of its clients have failed. One that is down besides is down.
    pub fn is_ejected(&self) -> bool {
        let is_out = self.outlier.as_ref().is_some_and(|outlier| outlier.left_ms.is_some());
        is_out && self.state != BackendHealthState::Down
    }
}
