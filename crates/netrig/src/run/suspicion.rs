//! What makes a reader doubt a trial, from its own counters.

use rig_load::record::WorkerRecord;

use crate::figures::node_of;
use crate::record::{CpuUse, Flag, NodeRecord, TrialRecord};
use crate::testbed::UPLINK;
use crate::testbed::topology::Topology;

/// Receive processing away from the node's CPUs that is still no more than stray packets, percent.
const ELSEWHERE_PERCENT: f64 = 5.0;
/// Stolen time that disturbs a result, percent of the node's CPU time.
const STOLEN_PERCENT: f64 = 2.0;
/// CPU time of other programs that disturbs a result, percent of the node's CPU time.
const OTHER_LOAD_PERCENT: f64 = 5.0;
/// From here on a node counts as saturated, percent.
const SATURATED_PERCENT: f64 = 97.0;
/// Distance of a worker's window from the runner's that moves a result, share of the window.
const SKEW_SHARE: f64 = 0.01;
/// Ethernet header; /proc/net/dev counts it.
const ETHERNET_HEADER: u32 = 14;
/// Fewer packets than this prove nothing about their size or place.
const PACKETS_MIN: u64 = 1000;

/// Every suspicion that the counters of `trial` give cause for.
pub(super) fn flags(trial: &TrialRecord, topology: &Topology) -> Vec<Flag> {
    let mut flags = Vec::new();
    for node in &trial.nodes {
        flags.extend(receive_elsewhere(node));
        flags.extend(stolen(node));
        flags.extend(other_load(trial, node));
        flags.extend(saturated(node));
        flags.extend(dropped(node));
        if !topology.segmentation_offload() {
            flags.extend(not_one_segment(node, topology));
        }
    }
    for worker in &trial.workers {
        flags.extend(skew(trial, worker));
        flags.extend(
            worker.notes.iter().map(|note| Flag::NotGranted { worker: worker.name.clone(), what: note.clone() }),
        );
    }
    flags
}

/// Each packet that an interface of the node received must have passed the receive path on the node's CPUs, once for
/// each interface.
fn receive_elsewhere(node: &NodeRecord) -> Option<Flag> {
    let expected: u64 = node
        .interfaces
        .iter()
        .filter(|interface| is_counted(&interface.name))
        .map(|interface| interface.rx_packets)
        .sum();
    let processed: u64 = node.cpus.iter().map(|cpu| cpu.packets_processed + cpu.backlog_drops).sum();
    if expected < PACKETS_MIN {
        return None;
    }
    let percent = expected.saturating_sub(processed) as f64 * 100.0 / expected as f64;
    (percent > ELSEWHERE_PERCENT).then(|| Flag::ReceiveElsewhere { node: node.name.clone(), percent })
}

/// Whether the packets of an interface (`place:name`) are counted by the CPU that receives them, one by one: those of
/// veth and macvlan interfaces are, but a VXLAN interface may merge them before, and a bridge forwards them uncounted.
fn is_counted(name: &str) -> bool {
    name.split_once(':').is_some_and(|(_, interface)| interface == UPLINK || interface.starts_with("port"))
}

fn stolen(node: &NodeRecord) -> Option<Flag> {
    let percent = node.mean(|cpu| cpu.steal);
    (percent > STOLEN_PERCENT).then(|| Flag::Stolen { node: node.name.clone(), percent })
}

/// User and system time on the node's CPUs that no worker of the node accounts for. The workers' own figure includes
/// interrupts taken while they ran, so this is the least that others can have used.
fn other_load(trial: &TrialRecord, node: &NodeRecord) -> Option<Flag> {
    let window_ns = trial.window_end_ns.saturating_sub(trial.window_begin_ns) as f64;
    if window_ns == 0.0 || node.cpus.is_empty() {
        return None;
    }
    let own_ns: u64 = trial
        .workers
        .iter()
        .filter(|worker| node_of(&worker.name) == node.name)
        .map(|worker| worker.process_cpu.user_ns + worker.process_cpu.system_ns)
        .sum();
    let own = own_ns as f64 * 100.0 / window_ns / node.cpus.len() as f64;
    let percent = node.mean(|cpu| cpu.user + cpu.system) - own;
    (percent > OTHER_LOAD_PERCENT).then(|| Flag::OtherLoad { node: node.name.clone(), percent })
}

fn saturated(node: &NodeRecord) -> Option<Flag> {
    let percent = node.mean(CpuUse::busy) + node.mean(|cpu| cpu.steal);
    (percent >= SATURATED_PERCENT).then(|| Flag::Saturated { node: node.name.clone(), percent })
}

fn dropped(node: &NodeRecord) -> Vec<Flag> {
    let backlogs = node.cpus.iter().map(|cpu| (format!("the backlog of CPU {}", cpu.cpu), cpu.backlog_drops));
    let interfaces =
        node.interfaces.iter().map(|i| (i.name.clone(), i.rx_dropped + i.tx_dropped + i.rx_errors + i.tx_errors));
    let limits = node.interfaces.iter().map(|i| (format!("{} rate limit", i.name), i.rate_limit_dropped));
    backlogs
        .chain(interfaces)
        .chain(limits)
        .filter(|(_, packets)| *packets > 0)
        .map(|(place, packets)| Flag::Dropped { place, packets })
        .collect()
}

fn not_one_segment(node: &NodeRecord, topology: &Topology) -> Option<Flag> {
    let wire = topology.wire()?;
    let interface = node.interfaces.iter().find(|i| i.name == format!("{}:{UPLINK}", node.name))?;
    if interface.tx_packets < PACKETS_MIN {
        return None;
    }
    let bytes_per_packet = interface.tx_bytes as f64 / interface.tx_packets as f64;
    (bytes_per_packet > f64::from(wire.mtu + ETHERNET_HEADER))
        .then(|| Flag::NotOneSegment { place: interface.name.clone(), bytes_per_packet })
}

fn skew(trial: &TrialRecord, worker: &WorkerRecord) -> Option<Flag> {
    let window = trial.window_end_ns.saturating_sub(trial.window_begin_ns) as f64;
    let begin = worker.window_begin_ns.abs_diff(trial.window_begin_ns);
    let end = worker.window_end_ns.abs_diff(trial.window_end_ns);
    let worst = begin.max(end);
    (worst as f64 > window * SKEW_SHARE)
        .then(|| Flag::WindowSkew { worker: worker.name.clone(), microseconds: worst / 1000 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::InterfaceDelta;
    use crate::testbed::topology::Path;

    fn node(busy: CpuUse, rx_packets: u64) -> NodeRecord {
        NodeRecord {
            name: "b".into(),
            cpus: vec![busy],
            interfaces: vec![InterfaceDelta { name: "b:eth0".into(), rx_packets, ..Default::default() }],
            protocol: Default::default(),
        }
    }

    fn trial(node: NodeRecord) -> TrialRecord {
        TrialRecord {
            scenario: "A".into(),
            ordinal: 1,
            started_unix_ms: 0,
            setup_us: 0,
            teardown_us: 0,
            total_us: 0,
            window_begin_ns: 0,
            window_end_ns: 1_000_000_000,
            nodes: vec![node],
            workers: Vec::new(),
            throttled_us: None,
            flags: Vec::new(),
        }
    }

    fn raw(segmentation_offload: bool) -> Topology {
        let wire = crate::testbed::topology::WireOptions { segmentation_offload, ..Default::default() };
        let ends = ["a".parse().unwrap(), "b".parse().unwrap()];
        Topology::new(&["a".into(), "b".into()], Some(wire), Path::Raw, &ends).unwrap()
    }

    #[test]
    fn packets_processed_on_a_foreign_cpu_are_noticed() {
        let at_home = node(CpuUse { packets_processed: 10_000, ..Default::default() }, 10_000);
        assert_eq!(flags(&trial(at_home), &raw(true)), []);
        let away = node(CpuUse { packets_processed: 1_000, ..Default::default() }, 10_000);
        assert_eq!(flags(&trial(away), &raw(true)), [Flag::ReceiveElsewhere { node: "b".into(), percent: 90.0 }]);
    }

    #[test]
    fn time_that_belongs_to_nobody_is_other_load() {
        let busy = node(CpuUse { user: 40.0, idle: 60.0, ..Default::default() }, 0);
        assert_eq!(flags(&trial(busy), &raw(true)), [Flag::OtherLoad { node: "b".into(), percent: 40.0 }]);
    }

    #[test]
    fn large_packets_without_segmentation_are_noticed() {
        let mut large = node(CpuUse { packets_processed: 10_000, ..Default::default() }, 10_000);
        large.interfaces[0].tx_packets = 2_000;
        large.interfaces[0].tx_bytes = 2_000 * 9_000;
        assert_eq!(flags(&trial(large.clone()), &raw(true)), []);
        assert_eq!(
            flags(&trial(large), &raw(false)),
            [Flag::NotOneSegment { place: "b:eth0".into(), bytes_per_packet: 9000.0 }]
        );
    }

    #[test]
    fn drops_steal_and_saturation_are_noticed() {
        let cpu = CpuUse { softirq: 96.0, steal: 4.0, backlog_drops: 7, ..Default::default() };
        let found = flags(&trial(node(cpu, 0)), &raw(true));
        assert!(found.contains(&Flag::Stolen { node: "b".into(), percent: 4.0 }));
        assert!(found.contains(&Flag::Saturated { node: "b".into(), percent: 100.0 }));
        assert!(found.contains(&Flag::Dropped { place: "the backlog of CPU 0".into(), packets: 7 }));
    }

    #[test]
    fn drops_of_a_rate_limit_are_told_from_those_of_its_interface() {
        let mut limited = node(CpuUse::default(), 0);
        limited.interfaces[0].rate_limit_dropped = 12;
        let dropped = |place: &str, packets| Flag::Dropped { place: place.into(), packets };
        assert_eq!(flags(&trial(limited.clone()), &raw(true)), [dropped("b:eth0 rate limit", 12)]);
        limited.interfaces[0].tx_dropped = 1;
        let both = [dropped("b:eth0", 1), dropped("b:eth0 rate limit", 12)];
        assert_eq!(flags(&trial(limited), &raw(true)), both);
    }
}
