//! What is simulated: machine, costs, flows, and what happens when.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::hash::mix;
use crate::machine::{Abilities, Machine, Order};
use crate::settings::{Mode, Settings, Tuning};

/// What packets cost, measured or taken from somewhere. As JSON the names have their units, and what is left out costs nothing.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// CPU time of processing a packet, in ns.
    #[serde(rename = "process_ns")]
    pub process: f64,
    /// CPU time of distributing a packet, in ns; 0: hardware does it, or the sender.
    #[serde(rename = "distribute_ns")]
    pub distribute: f64,
    /// CPU time of waking an idle CPU, in ns.
    #[serde(rename = "wake_ns", default)]
    pub wake: f64,
    /// What processing costs on another NUMA node than the base's, to what it costs there.
    #[serde(rename = "numa_factor", default = "one")]
    pub numa: f64,
    /// The length of a packet, all headers included.
    pub packet_bytes: f64,
    /// The link's rate in bits per second; without one it is never the limit.
    #[serde(rename = "link_bits", default, skip_serializing_if = "Option::is_none")]
    pub link: Option<f64>,
}

fn one() -> f64 {
    1.0
}

/// Costs that no packet has.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{name} is {value}, and has to be from {least} to {most}")]
pub struct CostsError {
    name: &'static str,
    value: f64,
    least: f64,
    most: f64,
}

impl Costs {
    /// On a machine whose CPUs all cost the same, behind a link that is never the limit.
    pub fn measured(process: f64, distribute: f64, packet_bytes: f64) -> Self {
        Self { process, distribute, wake: 0.0, numa: 1.0, packet_bytes, link: None }
    }

    /// # Errors
    /// When a value is out of the range in which the simulator is any good.
    pub fn check(&self) -> Result<(), CostsError> {
        let values = [
            ("process_ns", self.process, 1.0, 1e6),
            ("distribute_ns", self.distribute, 0.0, 1e6),
            ("wake_ns", self.wake, 0.0, 1e6),
            ("numa_factor", self.numa, 1.0, 4.0),
            ("packet_bytes", self.packet_bytes, 1.0, 65_536.0),
            ("link_bits", self.link.unwrap_or(1e12), 1e3, 1e15),
        ];
        match values.into_iter().find(|(_, value, least, most)| !(value >= least && value <= most)) {
            Some((name, value, least, most)) => Err(CostsError { name, value, least, most }),
            None => Ok(()),
        }
    }

    /// The costs from which all figures of Microsoft's validation guide follow: a CPU distributes 21.1 Gbit/s or processes
    /// 7.46 Gbit/s, behind a link of 40 Gbit/s, in packets of 1500 bytes.
    pub fn guide() -> Self {
        Self::from_rates(7.46e9, Some(21.1e9))
    }

    /// With hardware that places packets (VMMQ).
    pub fn guide_hardware() -> Self {
        Self::from_rates(7.46e9, None)
    }

    fn from_rates(process: f64, distribute: Option<f64>) -> Self {
        let bits = 1500.0 * 8.0;
        Self {
            process: bits / process * 1e9,
            distribute: distribute.map_or(0.0, |rate| bits / rate * 1e9),
            wake: 0.0,
            numa: 1.3,
            packet_bytes: 1500.0,
            link: Some(40e9),
        }
    }

    /// Packets per second for bits per second.
    pub fn packets(&self, bits: f64) -> f64 {
        bits / (self.packet_bytes * 8.0)
    }

    /// Packets per second that the link carries.
    pub fn link_packets(&self) -> f64 {
        self.link.map_or(f64::INFINITY, |bits| self.packets(bits))
    }

    pub fn bits(&self, packets: f64) -> f64 {
        packets * self.packet_bytes * 8.0
    }
}

/// One stream of packets.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    /// Its entry is the remainder of this by the number of entries.
    pub hash: u64,
    /// Packets per second that it has to send; a step may change it.
    pub rate: f64,
    /// It sends less when its packets wait (TCP), instead of losing them.
    pub elastic: bool,
}

/// An interface.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Port {
    pub abilities: Abilities,
    pub settings: Settings,
    pub flows: Vec<Flow>,
}

/// Something changes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// Every flow of a port has so many packets per second to send.
    Rate {
        port: usize,
        rate: f64,
    },
    /// One flow.
    FlowRate {
        port: usize,
        flow: usize,
        rate: f64,
    },
    /// A CPU is busy with other work by this fraction.
    Other {
        cpu: u32,
        load: f64,
    },
    Online {
        cpu: u32,
        online: bool,
    },
    /// Our policy's mode; the rules of others have none.
    Mode {
        port: usize,
        mode: Mode,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// In ms since the beginning.
    pub at: u64,
    pub change: Change,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Scenario {
    /// Short: `S14`.
    pub name: String,
    /// In words.
    pub title: String,
    pub machine: Machine,
    pub costs: Costs,
    pub tuning: Tuning,
    pub ports: Vec<Port>,
    /// In order of time.
    pub steps: Vec<Step>,
    /// In ms.
    pub length: u64,
    /// Distinct CPUs that a static spread has; the guide's machine has eight queues.
    pub static_pairs: u32,
    /// Measured values are wrong by up to this fraction.
    pub noise: f64,
    /// Share of moves that the actuator refuses.
    pub failing: f64,
    /// How long a move takes, in ms, at least 1.
    pub latency: u64,
    pub seed: u64,
}

/// Entries of the guide's machine.
pub const ENTRIES: u32 = 16;
pub const FLOWS: usize = 64;

/// All that an actuator in software can be able to do, with exact order.
pub fn able(entries: u32, distributes: bool) -> Abilities {
    Abilities {
        entries,
        single_moves: true,
        order: Order::Exact,
        distributes,
        base_moves: true,
        receiver_spreads: true,
        received_by: None,
        in_place: false,
        only_cpus: None,
    }
}

/// Flows by a seed, without load.
pub fn flows(count: usize, seed: u64) -> Vec<Flow> {
    (0..count as u64).map(|flow| Flow { hash: mix(seed << 32 | flow), rate: 0.0, elastic: true }).collect()
}

impl Scenario {
    /// One interface of the guide's machine without load, on so many CPUs.
    pub fn new(name: &str, title: &str, cpus: u32) -> Self {
        let costs = Costs::guide();
        Self {
            name: name.to_owned(),
            title: title.to_owned(),
            machine: Machine::uniform(cpus),
            costs,
            tuning: Tuning::default(),
            ports: vec![Port {
                abilities: able(ENTRIES, true),
                settings: Settings::default(),
                flows: flows(FLOWS, super::scenarios::GUIDE_SEED),
            }],
            steps: Vec::new(),
            length: 0,
            static_pairs: 8,
            noise: 0.0,
            failing: 0.0,
            latency: 1,
            seed: 1,
        }
    }

    /// All flows of the first port together have so many bits per second to send, from the end on for `length`.
    #[must_use]
    pub fn then(mut self, bits: f64, length: Duration) -> Self {
        let rate = self.costs.packets(bits) / self.ports[0].flows.len().max(1) as f64;
        let at = self.length;
        self = self.with(at, Change::Rate { port: 0, rate });
        self.length += u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
        self
    }

    #[must_use]
    pub fn with(mut self, at: u64, change: Change) -> Self {
        self.steps.push(Step { at, change });
        self.steps.sort_by_key(|step| step.at);
        self
    }
}
