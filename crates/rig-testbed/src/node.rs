//! What a node of a testbed did over a window. Stored as JSON: fields are added, never renamed or given another meaning.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One node of the testbed over the window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeRecord {
    pub name: String,
    /// The CPUs that the node owns, with what they did.
    pub cpus: Vec<CpuUse>,
    /// Interfaces of the node and of its containers.
    pub interfaces: Vec<InterfaceDelta>,
    /// Protocol counters of the node's namespaces, summed.
    pub protocol: ProtocolDelta,
    /// What the node used and caused, on whichever CPU, where CPU time is counted exactly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<NodeShare>,
}

/// CPU time that a node used and caused, percent of one CPU's: also where nodes share CPUs. Stolen time is in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeShare {
    /// Of its processes, outside of softirqs, also of those that a system call ends with, and with the hard interrupts that met
    /// them, but where these are counted by themselves.
    pub processes: f64,
    /// Polls of its devices, by softirqs and by NAPI threads.
    pub network: f64,
    /// Work on the packet queues of the node's CPUs, in which those of other nodes may have been where CPUs are shared.
    pub queues: f64,
}

/// How shares of CPU time were counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Accounting {
    /// At clock ticks, as all figures of older versions.
    #[default]
    Ticks,
    /// The sum by the kernel's clock of idle time, to 10 ms, its parts by clock ticks.
    IdleClock,
    /// At each switch, softirq and interrupt; users' and the kernel's part of tasks is an estimate by clock ticks.
    Exact,
}

impl Accounting {
    /// For a reader.
    pub fn words(self) -> &'static str {
        match self {
            Self::Ticks => "at clock ticks",
            Self::IdleClock => "the kernel's clock of idle time, to 10 ms; its parts by clock ticks",
            Self::Exact => {
                "exact, counted by eBPF at each task switch, softirq and interrupt; user and system are split by clock ticks"
            }
        }
    }

    /// The part of [`Self::words`] that concerns the sum, for readers who do not see its parts.
    pub fn whole(self) -> &'static str {
        self.words().split("; ").next().unwrap_or_default()
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
    fn is_ticks(&self) -> bool {
        *self == Self::Ticks
    }
}

impl NodeRecord {
    /// Mean over the node's CPUs of the share of time that was not idle, percent.
    pub fn busy_percent(&self) -> f64 {
        self.mean(CpuUse::busy)
    }

    /// Mean of `part` over the node's CPUs.
    pub fn mean(&self, part: impl Fn(&CpuUse) -> f64) -> f64 {
        if self.cpus.is_empty() { 0.0 } else { self.cpus.iter().map(part).sum::<f64>() / self.cpus.len() as f64 }
    }
}

/// One CPU over the window: percent of the window's time; packets from /proc/net/softnet_stat.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuUse {
    pub cpu: u32,
    pub user: f64,
    pub system: f64,
    pub softirq: f64,
    pub irq: f64,
    pub steal: f64,
    pub idle: f64,
    /// Packets that passed the receive path on this CPU.
    pub packets_processed: u64,
    /// Packets dropped because the CPU's backlog was full.
    pub backlog_drops: u64,
    /// Times that receive processing ran out of budget with work left.
    pub time_squeezes: u64,
    /// How the shares were counted.
    #[serde(default, skip_serializing_if = "Accounting::is_ticks")]
    pub accounting: Accounting,
    /// What clock ticks say was busy, percent, where the shares are counted otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_by_ticks: Option<f64>,
    /// What the exact count itself took, percent. It is in the other shares.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counting: Option<f64>,
    /// Whether `irq` is of hard interrupts alone that met an idle CPU, and others are counted to what they met.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub irq_met_idle: bool,
}

impl CpuUse {
    /// Everything but idle (iowait counts as idle) and stolen time, percent.
    pub fn busy(&self) -> f64 {
        whole_of([self.user, self.system, self.softirq, self.irq])
    }
}

/// The sum of shares of a CPU's time, at most 100 %. Each share is rounded by itself, so for a CPU that was never idle the sum
/// may exceed 100 in its last digit, which a check of the record would reject as no percentage.
fn whole_of(shares: [f64; 4]) -> f64 {
    shares.iter().sum::<f64>().min(100.0)
}

/// The shares of a [`CpuUse`].
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CpuShares {
    pub user: f64,
    pub system: f64,
    pub softirq: f64,
    pub irq: f64,
    pub steal: f64,
    pub idle: f64,
    pub accounting: Accounting,
    pub busy_by_ticks: Option<f64>,
    pub counting: Option<f64>,
    pub irq_met_idle: bool,
}

impl CpuShares {
    /// As [`CpuUse::busy`].
    pub fn busy(&self) -> f64 {
        whole_of([self.user, self.system, self.softirq, self.irq])
    }
}

/// Counters of one interface over the window, from /proc/net/dev unless said otherwise.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceDelta {
    /// Namespace and interface, e.g. `a:eth0` or `a/sender:eth0`.
    pub name: String,
    pub rx_packets: u64,
    pub rx_bytes: u64,
    pub rx_dropped: u64,
    pub rx_errors: u64,
    pub tx_packets: u64,
    pub tx_bytes: u64,
    pub tx_dropped: u64,
    pub tx_errors: u64,
    /// Packets dropped by the limit of what the interface sends, which /proc/net/dev does not count; 0 without a limit.
    #[serde(default)]
    pub rate_limit_dropped: u64,
}

/// Protocol counters over the window (/proc/net/snmp).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProtocolDelta {
    pub tcp_segments_out: u64,
    pub tcp_segments_in: u64,
    pub tcp_retransmitted_segments: u64,
    pub tcp_in_errors: u64,
    pub ip_in_discards: u64,
    pub ip_out_discards: u64,
    pub udp_receive_buffer_errors: u64,
}
