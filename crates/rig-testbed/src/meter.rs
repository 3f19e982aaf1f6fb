//! Reads counters at the window's edges and tells what happened between: of nodes, or of the machine alone.

use std::collections::BTreeMap;
use std::io;

use anyhow::{Result, bail};
use rig_datapath::cputime::Account;
use rig_sys::Error;
use rig_sys::counters::{self, Interface, NamespaceCounters, Protocols, Softnet};
use rig_sys::netlink::QueueStats;

use crate::accounting::{CpuAccounting, CpuReading};
use crate::namespaces::{Namespace, NodeSpaces};
use crate::node::{CpuShares, CpuUse, InterfaceDelta, NodeRecord, ProtocolDelta};

/// All CPUs of the machine at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MachineReading {
    pub cpus: CpuReading,
    /// Receive processing before and after the other counters were read. On a busy machine milliseconds may pass
    /// between the two; from the first at the window's begin to the last at its end, each packet that an interface
    /// counted has been processed, so that none can seem to have been processed elsewhere.
    softnet: [BTreeMap<u32, Softnet>; 2],
}

impl From<CpuReading> for MachineReading {
    /// Without receive processing.
    fn from(cpus: CpuReading) -> Self {
        Self { cpus, ..Self::default() }
    }
}

impl MachineReading {
    /// Reads the CPUs, and then what `others` reads.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn take<T>(cpu_accounting: &CpuAccounting, others: impl FnOnce(&CpuReading) -> Result<T>) -> Result<(Self, T)> {
        let cpus = cpu_accounting.read()?;
        let before = counters::softnet()?;
        let others = others(&cpus)?;
        Ok((Self { cpus, softnet: [before, counters::softnet()?] }, others))
    }

    /// What a CPU did until `end`; `None` when it was not online at both.
    pub fn cpu_until(&self, end: &Self, cpu: u32) -> Option<CpuUse> {
        let shares = self.cpus.cpu_until(&end.cpus, cpu)?;
        let CpuShares { user, system, softirq, irq, steal, idle, accounting, busy_by_ticks, counting, irq_met_idle } =
            shares;
        let softnet = |softnet: &BTreeMap<u32, Softnet>| softnet.get(&cpu).copied().unwrap_or_default();
        let (before, after) = (softnet(&self.softnet[0]), softnet(&end.softnet[1]));
        Some(CpuUse {
            cpu,
            user,
            system,
            softirq,
            irq,
            steal,
            idle,
            packets_processed: wrapped(before.processed, after.processed),
            backlog_drops: wrapped(before.dropped, after.dropped),
            time_squeezes: wrapped(before.time_squeeze, after.time_squeeze),
            accounting,
            busy_by_ticks,
            counting,
            irq_met_idle,
        })
    }
}

/// The protocols' counters of a namespace; those of IPv6 where it has any.
///
/// # Errors
/// When the kernel does not tell.
pub fn protocols(counters: &NamespaceCounters, ipv6: bool) -> rig_sys::Result<Protocols> {
    let mut protocols = counters.protocols()?;
    if ipv6 {
        protocols.extend(counters.protocols_of_ipv6()?);
    }
    Ok(protocols)
}

/// All counters of nodes at one moment.
#[derive(Debug)]
pub struct Reading {
    machine: MachineReading,
    /// By node, then by namespace in the testbed's order.
    namespaces: Vec<Vec<NamespaceReading>>,
    /// By node: of limits of what interfaces send, by `namespace:interface`.
    limits: Vec<BTreeMap<String, QueueStats>>,
    throttled_us: Option<u64>,
}

#[derive(Debug)]
struct NamespaceReading {
    interfaces: BTreeMap<String, Interface>,
    protocols: Protocols,
}

impl Reading {
    /// Of nodes that stand.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn take(nodes: &[NodeSpaces], cpu_accounting: &CpuAccounting) -> Result<Self> {
        let of_namespace = |node: &NodeSpaces, namespace: &Namespace| {
            let protocols = protocols(&namespace.counters, node.is_ipv6())?;
            Ok(NamespaceReading { interfaces: namespace.counters.interfaces()?, protocols })
        };
        let of_node = |node: &NodeSpaces| node.counted().map(|namespace| of_namespace(node, namespace)).collect();
        let (machine, (namespaces, limits)) = MachineReading::take(cpu_accounting, |cpus| {
            for cpu in nodes.iter().flat_map(|node| node.cpus().as_slice()) {
                // Else it would pass for one that did nothing.
                if !cpus.ticks.contains_key(cpu) {
                    let why = "it went offline, or a container hides it (lxcfs): choose others with --cpus";
                    return Err(Error::new(format!("find CPU {cpu} in /proc/stat"), io::Error::other(why)).into());
                }
            }
            let namespaces = nodes.iter().map(of_node).collect::<rig_sys::Result<_>>()?;
            let limits = nodes.iter().map(NodeSpaces::rate_limits).collect::<rig_sys::Result<_>>()?;
            Ok((namespaces, limits))
        })?;
        Ok(Self { machine, namespaces, limits, throttled_us: counters::throttled_us() })
    }

    /// CLOCK_MONOTONIC when the CPU counters were read.
    pub fn at_ns(&self) -> u64 {
        self.machine.cpus.at_ns
    }

    /// What each node did from `self` until `end`; `accounts` are those of the nodes.
    ///
    /// # Errors
    /// When an interface went away meanwhile: what the load did is not what was to be measured.
    pub fn until(&self, end: &Self, nodes: &[NodeSpaces], accounts: &[Option<Account>]) -> Result<Vec<NodeRecord>> {
        if let Some(gone) = self.gone_at(end, nodes) {
            bail!("interface {gone} went away while it was measured");
        }
        let account = |node: usize| accounts.get(node).copied().flatten();
        let nodes = nodes.iter().enumerate();
        Ok(nodes.map(|(number, node)| self.node_until(end, node, number, account(number))).collect())
    }

    /// The first interface that is there no more.
    fn gone_at(&self, end: &Self, nodes: &[NodeSpaces]) -> Option<String> {
        let namespaces = nodes.iter().flat_map(NodeSpaces::counted);
        let readings = self.namespaces.iter().flatten().zip(end.namespaces.iter().flatten());
        namespaces.zip(readings).find_map(|(namespace, (begin, end))| {
            let gone = begin.interfaces.keys().find(|name| !end.interfaces.contains_key(*name))?;
            Some(format!("{gone} of {}", namespace.name))
        })
    }

    /// For how long the machine's CPU limits halted netrig from `self` until `end`, microseconds.
    pub fn throttled_until(&self, end: &Self) -> Option<u64> {
        Some(end.throttled_us?.saturating_sub(self.throttled_us?))
    }

    fn node_until(&self, end: &Self, node: &NodeSpaces, number: usize, account: Option<Account>) -> NodeRecord {
        let own = node.cpus().as_slice();
        // No CPU of the node is missing: each reading fails when one is offline.
        let cpus = own.iter().filter_map(|&cpu| self.machine.cpu_until(&end.machine, cpu)).collect();
        let mut interfaces = Vec::new();
        let mut protocol = ProtocolDelta::default();
        let readings = self.namespaces[number].iter().zip(&end.namespaces[number]);
        for (namespace, (begin, end)) in node.counted().zip(readings) {
            for (name, after) in &end.interfaces {
                let before = begin.interfaces.get(name).copied().unwrap_or_default();
                interfaces.push(interface_delta(format!("{}:{name}", namespace.name), before, *after));
            }
            add_protocols(&mut protocol, &begin.protocols, &end.protocols);
        }
        let limits = [&self.limits[number], &end.limits[number]];
        for interface in &mut interfaces {
            if let [Some(before), Some(after)] = limits.map(|limits| limits.get(&interface.name)) {
                interface.rate_limit_dropped = after.drops.wrapping_sub(before.drops).into();
            }
        }
        let share = account.and_then(|account| self.machine.cpus.share_until(&end.machine.cpus, account, own));
        NodeRecord { name: node.name().to_owned(), cpus, interfaces, protocol, share }
    }
}

/// The per-CPU counters of receive processing have 32 bits and wrap.
fn wrapped(before: u64, after: u64) -> u64 {
    u64::from((after as u32).wrapping_sub(before as u32))
}

fn interface_delta(name: String, before: Interface, after: Interface) -> InterfaceDelta {
    let delta = |field: fn(&Interface) -> u64| field(&after).saturating_sub(field(&before));
    InterfaceDelta {
        name,
        rx_packets: delta(|i| i.rx_packets),
        rx_bytes: delta(|i| i.rx_bytes),
        rx_dropped: delta(|i| i.rx_dropped),
        rx_errors: delta(|i| i.rx_errors),
        tx_packets: delta(|i| i.tx_packets),
        tx_bytes: delta(|i| i.tx_bytes),
        tx_dropped: delta(|i| i.tx_dropped),
        tx_errors: delta(|i| i.tx_errors),
        rate_limit_dropped: 0,
    }
}

/// Adds what the counters of a namespace rose by.
pub fn add_protocols(sum: &mut ProtocolDelta, before: &Protocols, after: &Protocols) {
    let delta = |name: &str| {
        let read = |counters: &Protocols| counters.get(name).copied().unwrap_or(0);
        read(after).saturating_sub(read(before))
    };
    let both = |ipv4, ipv6| delta(ipv4) + delta(ipv6);
    sum.tcp_segments_out += delta("Tcp.OutSegs");
    sum.tcp_segments_in += delta("Tcp.InSegs");
    sum.tcp_retransmitted_segments += delta("Tcp.RetransSegs");
    sum.tcp_in_errors += delta("Tcp.InErrs");
    sum.ip_in_discards += both("Ip.InDiscards", "Ip6InDiscards");
    sum.ip_out_discards += both("Ip.OutDiscards", "Ip6OutDiscards");
    sum.udp_receive_buffer_errors += both("Udp.RcvbufErrors", "Udp6RcvbufErrors");
}
