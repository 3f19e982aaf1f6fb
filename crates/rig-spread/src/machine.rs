//! What there is: CPUs, and what can move entries between them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The CPUs of a machine as its kernel tells of them (/sys/devices/system/cpu, /sys/devices/system/node).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Machine {
    /// In any order, each number once.
    pub cpus: Vec<Cpu>,
    /// The NUMA node that the interface is attached to, where it is known.
    pub interface_node: Option<u32>,
}

impl Machine {
    /// So many CPUs of one NUMA node with a cache for all, each a core of its own.
    pub fn uniform(cpus: u32) -> Self {
        Self { cpus: (0..cpus).map(Cpu::plain).collect(), interface_node: None }
    }

    pub fn cpu(&self, number: u32) -> Option<&Cpu> {
        self.cpus.iter().find(|cpu| cpu.number == number)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Cpu {
    pub number: u32,
    pub numa_node: u32,
    /// Which core it is a thread of, unique in the machine: SMT siblings have the same.
    pub core: u32,
    /// Which last-level cache it uses, unique in the machine.
    pub last_level_cache: u32,
    /// Kept free of other work by the kernel's command line (`isolcpus`, `nohz_full`).
    pub isolated: bool,
    pub online: bool,
}

impl Cpu {
    /// A core of its own, online, on NUMA node 0.
    pub fn plain(number: u32) -> Self {
        Self { number, numa_node: 0, core: number, last_level_cache: 0, isolated: false, online: true }
    }
}

/// What an actuator can do on an interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Abilities {
    /// How many entries the interface's packets fall into; 0: nothing can be moved, only observed.
    pub entries: u32,
    /// Whether one entry moves while the others stay.
    pub single_moves: bool,
    pub order: Order,
    /// Whether the base CPU pays for each packet while any entry is on another CPU. No where hardware places packets.
    pub distributes: bool,
    /// Whether the base, which packets reach first, can be moved to another CPU.
    pub base_moves: bool,
    /// Whether what is behind the interface spreads what it receives over CPUs of its own. No for a guest with a single
    /// queue; a network namespace of this kernel does.
    pub receiver_spreads: bool,
    /// The CPU that was seen to receive most of what the interface receives, before it is given to others; none: nothing was
    /// seen yet, or no CPU works for others.
    #[serde(default)]
    pub received_by: Option<u32>,
    /// Whether entries can be left to the CPUs that packets reach first, which then process them without threads, at less cost
    /// for each.
    #[serde(default)]
    pub in_place: bool,
    /// The CPUs that entries can be on, where these are not all: those that interrupts of a card's queues come to.
    #[serde(default)]
    pub only_cpus: Option<Vec<u32>>,
}

/// What becomes of the order of an entry's packets when it moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Kept by construction.
    Exact,
    /// Kept: a move waits until the old CPU has none of the entry's packets.
    Drained,
    /// Kept when the old CPU is done soon enough; else packets may overtake each other for a bounded time.
    Bounded,
}
