//! Reads the counters of a testbed's nodes again and again while a load runs.
//!
//! A reading here is less than [`crate::meter::Reading`], because it must not disturb: CPU time and packets of each CPU, what
//! the interfaces of the nodes' own namespaces carried, and what TCP sent again. What the
//! readings of a trial took is told with it.

use std::collections::BTreeMap;

use anyhow::Result;
use rig_stats::series::Track;
use rig_sys::counters::{self, Interface, Protocols, Softnet};
use serde::{Deserialize, Serialize};

use crate::accounting::{CpuAccounting, CpuReading};
use crate::namespaces::NodeSpaces;

/// The counters of all nodes over time.
#[derive(Debug)]
pub struct Sampler {
    last: CounterSnapshot,
    /// By node.
    tracks: Vec<Track>,
    /// What the last interval was like.
    latest: Vec<NodeSample>,
    /// CPU time that the readings took, nanoseconds.
    cost_ns: u64,
}

/// One node over one interval.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeSample {
    pub cpus: Vec<CpuSample>,
}

/// One CPU over one interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuSample {
    pub cpu: u32,
    /// Percent.
    pub busy: f64,
    /// Packets that passed the receive path here.
    pub packets: u64,
}

#[derive(Debug)]
struct CounterSnapshot {
    at_ns: u64,
    cpus: CpuReading,
    softnet: BTreeMap<u32, Softnet>,
    /// By node.
    nodes: Vec<(BTreeMap<String, Interface>, Protocols)>,
}

impl CounterSnapshot {
    fn take(nodes: &[NodeSpaces], cpu_accounting: &CpuAccounting) -> Result<Self> {
        let cpus = cpu_accounting.read()?;
        let own = nodes.iter().filter_map(|node| node.namespaces().first());
        let nodes = own.map(|namespace| Ok((namespace.counters.interfaces()?, namespace.counters.protocols()?)));
        let nodes = nodes.collect::<rig_sys::Result<_>>()?;
        Ok(Self { at_ns: cpus.at_ns, cpus, softnet: counters::softnet()?, nodes })
    }
}

impl Sampler {
    /// Counts from now on.
    ///
    /// # Errors
    /// When a counter cannot be read.
    pub fn start(nodes: &[NodeSpaces], cpu_accounting: &CpuAccounting) -> Result<Self> {
        let last = CounterSnapshot::take(nodes, cpu_accounting)?;
        let latest = vec![NodeSample::default(); nodes.len()];
        Ok(Self { last, tracks: vec![Track::default(); nodes.len()], latest, cost_ns: 0 })
    }

    /// Reads what has happened since the last time.
    ///
    /// # Errors
    /// When a counter cannot be read.
    pub fn sample(&mut self, nodes: &[NodeSpaces], cpu_accounting: &CpuAccounting) -> Result<()> {
        let before_ns = rig_sys::clock::own_cpu_ns();
        let now = CounterSnapshot::take(nodes, cpu_accounting)?;
        let span_us = now.at_ns.saturating_sub(self.last.at_ns) / 1000;
        for (node, (track, spaces)) in self.tracks.iter_mut().zip(nodes).enumerate() {
            let sample = node_sample(&self.last, &now, spaces.cpus().as_slice());
            let mut values = Vec::new();
            for CpuSample { cpu, busy, packets } in &sample.cpus {
                values.push((format!("cpu{cpu}_busy_us"), (busy * span_us as f64 / 100.0).round() as u64));
                values.push((format!("cpu{cpu}_packets"), *packets));
            }
            let ((before, protocols_before), (after, protocols)) = (&self.last.nodes[node], &now.nodes[node]);
            for (name, after) in after {
                let before = before.get(name).copied().unwrap_or_default();
                let mut add = |what: &str, after: u64, before: u64| {
                    values.push((format!("{name}_{what}"), after.saturating_sub(before)));
                };
                add("rx_packets", after.rx_packets, before.rx_packets);
                add("rx_bytes", after.rx_bytes, before.rx_bytes);
                add("tx_packets", after.tx_packets, before.tx_packets);
                add("tx_bytes", after.tx_bytes, before.tx_bytes);
                add("dropped", after.rx_dropped + after.tx_dropped, before.rx_dropped + before.tx_dropped);
            }
            let sent_again = |protocols: &Protocols| protocols.get("Tcp.RetransSegs").copied().unwrap_or(0);
            let again = sent_again(protocols).saturating_sub(sent_again(protocols_before));
            values.push(("tcp_retransmitted".to_owned(), again));
            track.push(span_us, values.iter().map(|(name, value)| (name.as_str(), *value)));
            self.latest[node] = sample;
        }
        self.last = now;
        self.cost_ns += rig_sys::clock::own_cpu_ns().saturating_sub(before_ns);
        Ok(())
    }

    /// Each node over the last interval.
    pub fn latest(&self) -> &[NodeSample] {
        &self.latest
    }

    /// The course of each node, and the CPU time in nanoseconds that it took to read it.
    pub fn finish(self) -> (Vec<Track>, u64) {
        (self.tracks.into_iter().map(Track::finished).collect(), self.cost_ns)
    }
}

fn node_sample(before: &CounterSnapshot, after: &CounterSnapshot, cpus: &[u32]) -> NodeSample {
    let processed = |glance: &CounterSnapshot, cpu| glance.softnet.get(&cpu).map_or(0, |softnet| softnet.processed);
    let sample = |&cpu| CpuSample {
        cpu,
        busy: before.cpus.cpu_until(&after.cpus, cpu).unwrap_or_default().busy(),
        // The kernel's counter has 32 bits.
        packets: (processed(after, cpu) as u32).wrapping_sub(processed(before, cpu) as u32).into(),
    };
    NodeSample { cpus: cpus.iter().map(sample).collect() }
}
