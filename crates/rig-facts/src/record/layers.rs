//! What a trial keeps of its sampled stacks.

use rig_sys::perf::Clock;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Profile;

/// Stacks of a window of its own, which follows the measured one in the same testbed with the same load.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LayersRecord {
    /// The digest of the map from functions to layers that was used.
    pub map: String,
    /// The layers of that map, in its order: name, and title for a reader.
    pub layers: Vec<(String, String)>,
    /// Samples that each CPU gave a second; by cycles, of a second in which it was busy, about.
    pub hertz: u32,
    /// What said when a sample was due. Older records have none: the kernel's timer did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<Clock>,
    pub window_begin_ns: u64,
    pub window_end_ns: u64,
    pub nodes: Vec<NodeLayers>,
    /// CPU time of each end for what it carried in this window, in the unit of [`CpuTimeOwner`]: sampling is in it.
    pub totals: Vec<(CpuTimeOwner, f64)>,
    /// Whether CPU time is that of a connection, because the load opens one for each request. Older records have that of a transaction
    /// or of a packet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_connection: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// The samples of a node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeLayers {
    pub node: String,
    /// CPUs that were sampled: of a device under test those that carry packets.
    pub cpus: Vec<u32>,
    /// The share of their time in this window that was not idle, percent, as it was counted.
    pub busy_percent: f64,
    /// Samples of CPUs that were not idle, by layer, as numbers in [`LayersRecord::layers`].
    pub parts: Vec<LayerSamples>,
    /// Samples of idle tasks, whose time is idle time; in `awake` of them they did not wait.
    pub idle: u64,
    pub awake: u64,
    /// Samples of the thread that takes the samples, which are left out.
    pub own: u64,
    /// Functions in which stacks without a layer ended, most frequent first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<(String, u64)>,
    /// The stacks; of the first trial only, since they are large.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerSamples {
    pub kind: Kind,
    /// By the innermost function that has a layer.
    pub layer: usize,
    /// The layer when shared work counts to the layer that called for it.
    pub caller: usize,
    pub samples: u64,
}

/// What a CPU was in, as far as time is counted apart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A process or a thread of the kernel.
    #[default]
    Task,
    Softirq,
    Interrupt,
}

/// Whose CPU time it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CpuTimeOwner {
    Sender,
    Receiver,
    Local,
    Remote,
    /// The device under test.
    Dut,
}
