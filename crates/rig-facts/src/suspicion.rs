//! What makes a reader doubt a trial, from its own counters.

use std::collections::BTreeSet;

use rig_load::record::{End, PacketRecord, TransactionRecord, WorkerRecord};
use rig_packet::search::{BOUND, GeneratorBound, SearchEnding};
use rig_sys::cpu::CpuSet;
use rig_testbed::topology::Topology;
use rig_testbed::{UPLINK, split_cores};

use crate::figures::node_of;
use crate::figures::packets::{dropped as dropped_at_port, failed, sent_again};
use crate::ledger::{UNEXPLAINED, ledger};
use crate::record::{
    AgentRecord, BenchmarkRecord, CpuUse, Flag, NodeRecord, PhaseEnd, PhaseRecord, SearchRecord, TrialRecord,
};

/// Receive processing away from the node's CPUs that is still no more than stray packets, percent.
const ELSEWHERE_PERCENT: f64 = 5.0;
/// Stolen time that disturbs a result, percent of the node's CPU time.
const STOLEN_PERCENT: f64 = 2.0;
/// CPU time of other programs that disturbs a result, percent of the node's CPU time.
const OTHER_LOAD_PERCENT: f64 = 5.0;
/// The fewest ticks of a CPU in a second that Linux has been built for.
const TICKS_PER_S: f64 = 100.0;
/// Standard deviations beyond which ticks are not off by chance.
const TICKS_DEVIATIONS: f64 = 4.0;
/// A difference from what ticks say that is too small to matter, percent of the node's CPU time.
const TICKS_PERCENT: f64 = 3.0;
/// From here on a node, a CPU or a load thread counts as saturated, percent.
const SATURATED_PERCENT: f64 = 97.0;
/// Distance of a worker's window from the runner's that moves a result, share of the window.
const SKEW_SHARE: f64 = 0.01;
/// Ethernet header; /proc/net/dev counts it.
const ETHERNET_HEADER: u32 = 14;
/// Fewer packets than this prove nothing about their size or place.
const PACKETS_MIN: u64 = 1000;

/// A phase that waited for something until its deadline.
fn in_vain(phase: &PhaseRecord) -> Option<Flag> {
    let PhaseEnd::Deadline { condition, after_us } = &phase.ended else { return None };
    Some(Flag::NotReached { phase: phase.name.clone(), condition: condition.clone(), microseconds: *after_us })
}

/// Every suspicion that the counters of `trial` give cause for, made on a machine with these cores of several threads. `filled` are
/// the nodes whose CPUs are full by intention (`Scenario::filled` of rig-suite).
pub fn flags(trial: &TrialRecord, topology: &Topology, cores: &[CpuSet], filled: &BTreeSet<&str>) -> Vec<Flag> {
    let mut flags = shared_cores(trial, cores);
    flags.extend(trial.throttled_us.filter(|&us| us > 0).map(|microseconds| Flag::Throttled { microseconds }));
    flags.extend(trial.search.as_ref().and_then(of_search));
    flags.extend(trial.benchmark.as_ref().and_then(of_benchmark));
    flags.extend(trial.phases.iter().filter_map(in_vain));
    flags.extend(connections_differ(trial));
    flags.extend(unexplained(trial));
    let shared = trial.dut.as_ref().map(|dut| CpuSet::new(dut.shared.iter().copied()));
    flags.extend(shared.filter(|shared| !shared.is_empty()).map(|shared| Flag::SharedCpu { cpus: shared.to_string() }));
    let of_three = topology.shares_cpus();
    for node in &trial.nodes {
        let polled = is_polled(trial, node);
        if !topology.is_at_work(&node.name) {
            // Its CPUs are those of a node that is, of which the same would be said twice.
            flags.extend(dropped(node));
            continue;
        }
        if !polled {
            // Of three nodes, receive processing is placed; frames of XDP programs are seen by no counter of it.
            flags.extend(receive_elsewhere(node).filter(|_| !of_three));
            flags.extend(saturated(node).filter(|_| !filled.contains(&*node.name)));
        }
        flags.extend(stolen(node));
        flags.extend(ticks_differ(trial, node));
        // The ends share their CPUs, and the DUT's work is the kernel's and that of programs other than workers.
        flags.extend(other_load(trial, node).filter(|_| !of_three));
        flags.extend(dropped(node));
        if !topology.segmentation_offload() {
            flags.extend(not_one_segment(node, topology));
        }
    }
    for worker in &trial.workers {
        let by_intention =
            |flag: &Flag| matches!(flag, Flag::SaturatedThread { .. }) && filled.contains(node_of(&worker.name));
        flags.extend(of_worker(trial, worker).into_iter().filter(|flag| !by_intention(flag)));
    }
    flags
}

/// A datapath between the ends has to count each connection that they open exactly once. A connection that failed may have
/// failed before the datapath or behind it, so it need not be counted. Loads without answers (datagrams, floods) are not
/// compared: the datapath's connection may time out and begin again without the end opening another one.
fn connections_differ(trial: &TrialRecord) -> Vec<Flag> {
    let clients = trial.workers.iter().filter(|worker| worker.end() == End::Connect);
    let Some(clients) = clients.map(|worker| worker.packets.as_ref()).collect::<Option<Vec<_>>>() else {
        return Vec::new();
    };
    let total = |name: &str, of: &PacketRecord| of.total.get(name).copied().unwrap_or(0);
    let sum = |name: &str| clients.iter().map(|client| total(name, client)).sum::<u64>();
    if clients.iter().any(|client| total("synRx", client) == 0) {
        return Vec::new();
    }
    let opened = sum("skOpen");
    let least = opened.saturating_sub(sum("skErr") + sum("skUnfinished"));
    let of = |agent: &AgentRecord| {
        let counted = agent.begun.filter(|counted| !(least..=opened).contains(counted))?;
        Some(Flag::ConnectionsDiffer { agent: format!("{} on {}", agent.name, agent.node), counted, opened })
    };
    trial.agents.iter().filter_map(of).collect()
}

/// Frames that are missing and in no counter.
fn unexplained(trial: &TrialRecord) -> Option<Flag> {
    let ledger = ledger(trial)?;
    let frames = u64::try_from(ledger.unexplained()).ok()?;
    (ledger.unexplained_share() > UNEXPLAINED).then(|| Flag::Unexplained { frames, sent: ledger.sent() })
}

/// The suspicions that need no knowledge of how the machines are joined.
pub fn without_testbed(trial: &TrialRecord) -> Vec<Flag> {
    let of_node = |node| {
        [stolen(node), ticks_differ(trial, node), other_load(trial, node), saturated(node)].into_iter().flatten()
    };
    // Where both ends are on one machine, the same would be said twice.
    let machines = if trial.is_on_one_machine() { 1 } else { trial.nodes.len() };
    let nodes = trial.nodes.iter().take(machines).flat_map(of_node);
    nodes.chain(trial.workers.iter().flat_map(|worker| of_worker(trial, worker))).collect()
}

fn of_worker(trial: &TrialRecord, worker: &WorkerRecord) -> Vec<Flag> {
    // Another worker may have had the same endpoint.
    let name = worker.label();
    let mut flags: Vec<Flag> = skew(trial, worker, &name).into_iter().collect();
    flags.extend(saturated_thread(worker, &name));
    flags.extend(worker.notes.iter().map(|note| Flag::NotGranted { worker: name.clone(), what: note.clone() }));
    match &worker.packets {
        // A benchmark counts what was not sent in time as lost.
        Some(packets) => {
            let flags_of = of_packets(packets, &name).into_iter();
            flags.extend(flags_of.filter(|flag| trial.benchmark.is_none() || !matches!(flag, Flag::Late { .. })));
        }
        None => flags.extend(worker.transactions.iter().flat_map(|transactions| unserved(transactions, &name))),
    }
    flags
}

/// Whether a packet load's workers run on the node: they look for packets without rest, so that their CPUs are always
/// busy, and take packets before the kernel's receive path counts them.
fn is_polled(trial: &TrialRecord, node: &NodeRecord) -> bool {
    trial.workers.iter().any(|worker| worker.packets.is_some() && node_of(&worker.name) == node.name)
}

fn of_search(search: &SearchRecord) -> Option<Flag> {
    let no_limit = |why: &str| Some(Flag::NoLimit { why: why.to_owned() });
    match (search.outcome.ending, search.bound) {
        (SearchEnding::Nothing, _) => no_limit("every rate that was tried lost something"),
        (SearchEnding::Exhausted, _) => no_limit("too many steps were needed: raise the first rate or the precision"),
        (SearchEnding::Ceiling, _) => no_limit("the highest rate allowed was carried: raise `most`"),
        (SearchEnding::Found, Some(GeneratorBound::Limit(share))) => {
            Some(Flag::GeneratorBound { percent: share * 100.0 })
        }
        // The worker's own flag, or the search's words, say it.
        (SearchEnding::Found, Some(GeneratorBound::Busy(_) | GeneratorBound::Late) | None) => None,
        (SearchEnding::Stopped, _) => no_limit("it was stopped"),
    }
}

fn of_benchmark(benchmark: &BenchmarkRecord) -> Option<Flag> {
    let no_limit = |why: &str| Some(Flag::NoLimit { why: why.to_owned() });
    match benchmark.throughput() {
        None => no_limit("every rate that was tried lost something"),
        Some(rate) if benchmark.is_generator_bound() => {
            Some(Flag::GeneratorBound { percent: (100.0 * rate / benchmark.max.generator).min(100.0) })
        }
        Some(_) => None,
    }
}

fn of_packets(packets: &PacketRecord, worker: &str) -> Vec<Flag> {
    let place = |what: &str| format!("{worker}'s port {what}");
    let (failed, again, refused) = (failed(packets), sent_again(packets), packets.count("dropTx"));
    let received = dropped_at_port(packets).saturating_sub(refused);
    let unanswered = packets.count_since("udpRt");
    let (late, busy) = (packets.count("late"), packets.busy());
    let worker = || worker.to_owned();
    [
        (busy >= BOUND).then(|| Flag::GeneratorBusy { worker: worker(), percent: busy * 100.0 }),
        (failed > 0).then(|| Flag::FailedConnections { worker: worker(), connections: failed }),
        (again > 0).then(|| Flag::SentAgain { worker: worker(), packets: again }),
        (unanswered > 0).then(|| Flag::Unanswered { worker: worker(), requests: unanswered }),
        (refused > 0).then(|| Flag::Dropped { place: place("(no room to send)"), packets: refused }),
        (received > 0).then(|| Flag::Dropped { place: place("(received)"), packets: received }),
        (late > 0).then(|| Flag::Late { worker: worker(), begins: late }),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Transactions that should have been made, and were not: the others' latency does not tell of them.
fn unserved(transactions: &TransactionRecord, worker: &str) -> Vec<Flag> {
    let TransactionRecord { lost, failed, overdue, .. } = *transactions;
    let worker = || worker.to_owned();
    [
        (lost > 0).then(|| Flag::Unanswered { worker: worker(), requests: lost }),
        (failed > 0).then(|| Flag::NotConnected { worker: worker(), attempts: failed }),
        (overdue > 0).then(|| Flag::Behind { worker: worker(), transactions: overdue }),
    ]
    .into_iter()
    .flatten()
    .collect()
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

/// What clock ticks say of a node's CPUs, where it is too far from what was counted to be their own error. Each looks once
/// at what its CPU does, so that the share that `n` of them find has a standard deviation of sqrt(share (1 - share) / n). That
/// holds for work at random times; what keeps step with the tick is always found, or never.
fn ticks_differ(trial: &TrialRecord, node: &NodeRecord) -> Option<Flag> {
    let by_ticks: Vec<f64> = node.cpus.iter().filter_map(|cpu| cpu.busy_by_ticks).collect();
    if by_ticks.is_empty() {
        return None;
    }
    let by_ticks = by_ticks.iter().sum::<f64>() / by_ticks.len() as f64;
    let percent = node.busy_percent();
    let ticks = trial.seconds() * TICKS_PER_S * node.cpus.len() as f64;
    let share = (percent / 100.0).clamp(0.0, 1.0);
    let deviation = (share * (1.0 - share) / ticks.max(1.0)).sqrt() * 100.0;
    let differs = (percent - by_ticks).abs() > (TICKS_DEVIATIONS * deviation).max(TICKS_PERCENT);
    differs.then(|| Flag::TicksDiffer { node: node.name.clone(), percent, by_ticks })
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
        .filter(|worker| trial.is_on_one_machine() || node_of(&worker.name) == node.name)
        .map(|worker| worker.process_cpu.user_ns + worker.process_cpu.system_ns)
        .sum();
    let own = own_ns as f64 * 100.0 / window_ns / node.cpus.len() as f64;
    let percent = node.mean(|cpu| cpu.user + cpu.system) - own;
    (percent > OTHER_LOAD_PERCENT).then(|| Flag::OtherLoad { node: node.name.clone(), percent })
}

fn shared_cores(trial: &TrialRecord, cores: &[CpuSet]) -> Vec<Flag> {
    let mut owned: Vec<CpuSet> = Vec::new();
    for node in &trial.nodes {
        let own = CpuSet::new(node.cpus.iter().map(|cpu| cpu.cpu));
        // Client and server of three nodes have the same ones.
        if !owned.contains(&own) {
            owned.push(own);
        }
    }
    let flag = |core: &CpuSet| {
        let sharing = trial.nodes.iter().filter(|node| node.cpus.iter().any(|cpu| core.contains(cpu.cpu)));
        Flag::SharedCore { nodes: sharing.map(|node| node.name.clone()).collect(), cpus: core.to_string() }
    };
    split_cores(&owned, cores).map(flag).collect()
}

/// CPU time that is not there to be used.
fn taken(cpu: &CpuUse) -> f64 {
    cpu.busy() + cpu.steal
}

/// How busy all CPUs of a node of a trial together were, percent, where they were full; `None` too where workers that look for packets
/// without rest keep them so.
pub fn full(trial: &TrialRecord, node: &NodeRecord) -> Option<f64> {
    Some(node.mean(taken)).filter(|percent| *percent >= SATURATED_PERCENT && !is_polled(trial, node))
}

/// The node as a whole, or else the busiest of its CPUs.
fn saturated(node: &NodeRecord) -> Option<Flag> {
    let name = || node.name.clone();
    let percent = node.mean(taken);
    if percent >= SATURATED_PERCENT {
        return Some(Flag::Saturated { node: name(), percent });
    }
    let busiest = node.cpus.iter().max_by(|one, other| taken(one).total_cmp(&taken(other)))?;
    let percent = taken(busiest);
    (percent >= SATURATED_PERCENT).then(|| Flag::SaturatedCpu { node: name(), cpu: busiest.cpu, percent })
}

/// The busiest thread of a worker.
fn saturated_thread(worker: &WorkerRecord, name: &str) -> Option<Flag> {
    let window = worker.window_end_ns.saturating_sub(worker.window_begin_ns);
    let used = worker.threads.iter().map(|thread| thread.cpu_ns).max().filter(|_| window > 0)?;
    let percent = used as f64 * 100.0 / window as f64;
    (percent >= SATURATED_PERCENT).then(|| Flag::SaturatedThread { worker: name.to_owned(), percent })
}

fn dropped(node: &NodeRecord) -> Vec<Flag> {
    let backlogs = node.cpus.iter().map(|cpu| (format!("the backlog of CPU {}", cpu.cpu), cpu.backlog_drops));
    let interfaces =
        node.interfaces.iter().map(|i| (i.name.clone(), i.rx_dropped + i.tx_dropped + i.rx_errors + i.tx_errors));
    let limits = node.interfaces.iter().map(|i| (format!("{} rate limit", i.name), i.rate_limit_dropped));
    let sockets = (format!("the UDP socket buffers of node {}", node.name), node.protocol.udp_receive_buffer_errors);
    backlogs
        .chain(interfaces)
        .chain(limits)
        .chain([sockets])
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

fn skew(trial: &TrialRecord, worker: &WorkerRecord, name: &str) -> Option<Flag> {
    let window = trial.window_end_ns.saturating_sub(trial.window_begin_ns) as f64;
    let begin = worker.window_begin_ns.abs_diff(trial.window_begin_ns);
    let end = worker.window_end_ns.abs_diff(trial.window_end_ns);
    let worst = begin.max(end);
    (worst as f64 > window * SKEW_SHARE)
        .then(|| Flag::WindowSkew { worker: name.to_owned(), microseconds: worst / 1000 })
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::record::InterfaceDelta;

    fn node(busy: CpuUse, rx_packets: u64) -> NodeRecord {
        NodeRecord {
            name: "b".into(),
            cpus: vec![busy],
            interfaces: vec![InterfaceDelta { name: "b:eth0".into(), rx_packets, ..Default::default() }],
            protocol: Default::default(),
            share: None,
        }
    }

    fn trial(node: NodeRecord) -> TrialRecord {
        TrialRecord {
            scenario: "A".into(),
            ordinal: 1,
            block: None,
            calibration: None,
            clocks: None,
            end_clocks: None,
            uncompared: None,
            started_unix_ms: 0,
            setup_us: 0,
            teardown_us: 0,
            total_us: 0,
            window_begin_ns: 0,
            window_end_ns: 1_000_000_000,
            nodes: vec![node],
            workers: Vec::new(),
            throttled_us: None,
            search: None,
            benchmark: None,
            agents: Vec::new(),
            phases: Vec::new(),
            series: None,
            limit: None,
            dut: None,
            host: None,
            hosts: Vec::new(),
            layers: None,
            set: Vec::new(),
            before: Vec::new(),
            frames: None,
            tool: None,
            flags: Vec::new(),
        }
    }

    /// The flags of a load that is not meant to fill any CPU.
    fn flags(trial: &TrialRecord, topology: &Topology, cores: &[CpuSet]) -> Vec<Flag> {
        super::flags(trial, topology, cores, &BTreeSet::new())
    }

    fn raw(segmentation_offload: bool) -> Topology {
        let wire = rig_testbed::topology::WireOptions { segmentation_offload, ..Default::default() };
        let ends = ["a".parse().unwrap(), "b".parse().unwrap()];
        Topology::new(&["a".into(), "b".into()], Some(wire), "raw".parse().unwrap(), &ends).unwrap()
    }

    #[test]
    fn packets_processed_on_a_foreign_cpu_are_noticed() {
        let at_home = node(CpuUse { packets_processed: 10_000, ..Default::default() }, 10_000);
        assert_eq!(flags(&trial(at_home), &raw(true), &[]), []);
        let away = node(CpuUse { packets_processed: 1_000, ..Default::default() }, 10_000);
        assert_eq!(flags(&trial(away), &raw(true), &[]), [Flag::ReceiveElsewhere { node: "b".into(), percent: 90.0 }]);
    }

    #[test]
    fn ticks_that_keep_step_with_the_work_are_noticed() {
        let counted = |by_ticks| CpuUse { user: 27.0, idle: 73.0, busy_by_ticks: by_ticks, ..Default::default() };
        let quiet = |cpu| ticks_differ(&trial(node(cpu, 0)), &node(cpu, 0));
        assert_eq!(
            quiet(counted(Some(1.8))),
            Some(Flag::TicksDiffer { node: "b".into(), percent: 27.0, by_ticks: 1.8 })
        );
        // 100 looks at 27 % find 27 +- 4.4 %.
        assert_eq!(quiet(counted(Some(12.0))), None);
        assert_eq!(quiet(counted(None)), None);
        let idle = CpuUse { idle: 100.0, busy_by_ticks: Some(2.0), ..Default::default() };
        assert_eq!(quiet(idle), None);
    }

    #[test]
    fn time_that_belongs_to_nobody_is_other_load() {
        let busy = node(CpuUse { user: 40.0, idle: 60.0, ..Default::default() }, 0);
        assert_eq!(flags(&trial(busy), &raw(true), &[]), [Flag::OtherLoad { node: "b".into(), percent: 40.0 }]);
    }

    /// Each end's CPUs are the other's, too: what the other end did is no other program's work, and is said of neither twice.
    #[test]
    fn ends_on_one_machine_are_doubted_once() {
        let mut ends = crate::fixture::trial(&crate::fixture::TrialOptions::default());
        let window_ns = ends.window_end_ns - ends.window_begin_ns;
        let names = ["client".to_owned(), "server".to_owned()];
        for ((node, worker), name) in ends.nodes.iter_mut().zip(&mut ends.workers).zip(&names) {
            let busy = CpuUse { user: 20.0, system: 80.0, ..Default::default() };
            node.cpus = vec![busy];
            (node.name, worker.name) = (name.clone(), name.clone());
            worker.process_cpu.user_ns = 0;
            worker.process_cpu.system_ns = window_ns * 2 / 5;
            worker.threads.clear();
        }
        let clocks = |offset_ns| crate::record::Clocks {
            offset_ns,
            bound_ns: 10,
            round_trips: 1,
            shortest_ns: 20,
            longest_ns: 20,
        };
        let mut told = |offset_ns| {
            ends.clocks = Some(clocks(offset_ns));
            without_testbed(&ends)
        };
        let both = |name: &String, other| {
            [
                Flag::OtherLoad { node: name.clone(), percent: other },
                Flag::Saturated { node: name.clone(), percent: 100.0 },
            ]
        };
        assert_eq!(told(9), both(&names[0], 20.0));
        assert_eq!(told(11), [both(&names[0], 60.0), both(&names[1], 60.0)].concat(), "two machines");
    }

    #[test]
    fn an_end_that_measured_another_time_is_noticed() {
        let trial = crate::fixture::trial(&crate::fixture::TrialOptions::default());
        let mut worker = trial.workers[0].clone();
        (worker.window_begin_ns, worker.window_end_ns) = (trial.window_begin_ns, trial.window_end_ns);
        assert_eq!(skew(&trial, &worker, "sender"), None);
        worker.window_end_ns += (trial.window_end_ns - trial.window_begin_ns) / 50;
        let words = skew(&trial, &worker, "sender").unwrap().to_string();
        assert!(words.starts_with("sender began or ended its measuring "), "{words}");
        assert!(words.ends_with(" too early or too late"), "{words}");
    }

    #[test]
    fn large_packets_without_segmentation_are_noticed() {
        let mut large = node(CpuUse { packets_processed: 10_000, ..Default::default() }, 10_000);
        large.interfaces[0].tx_packets = 2_000;
        large.interfaces[0].tx_bytes = 2_000 * 9_000;
        assert_eq!(flags(&trial(large.clone()), &raw(true), &[]), []);
        assert_eq!(
            flags(&trial(large), &raw(false), &[]),
            [Flag::NotOneSegment { place: "b:eth0".into(), bytes_per_packet: 9000.0 }]
        );
    }

    #[test]
    fn drops_steal_and_saturation_are_noticed() {
        let cpu = CpuUse { softirq: 96.0, steal: 4.0, backlog_drops: 7, ..Default::default() };
        let found = flags(&trial(node(cpu, 0)), &raw(true), &[]);
        assert!(found.contains(&Flag::Stolen { node: "b".into(), percent: 4.0 }));
        assert!(found.contains(&Flag::Saturated { node: "b".into(), percent: 100.0 }));
        assert!(found.contains(&Flag::Dropped { place: "the backlog of CPU 0".into(), packets: 7 }));
    }

    #[test]
    fn what_is_full_by_intention_is_no_doubt() {
        let text = include_str!("../tests/records/trial-0.1.0.json");
        let mut worker = serde_json::from_str::<TrialRecord>(text).unwrap().workers.remove(0);
        (worker.window_begin_ns, worker.window_end_ns) = (0, 1_000_000_000);
        (worker.name, worker.notes) = ("b/one".into(), Vec::new());
        worker.threads = vec![rig_load::record::ThreadRecord { bytes: 1, operations: 1, cpu_ns: 990_000_000 }];
        let mut trial = trial(node(CpuUse { softirq: 99.0, steal: 0.5, ..Default::default() }, 0));
        trial.workers.push(worker);
        let found = |filled: &[&str]| super::flags(&trial, &raw(true), &[], &filled.iter().copied().collect());
        let doubts = [
            Flag::Saturated { node: "b".into(), percent: 99.5 },
            Flag::SaturatedThread { worker: "b/one".into(), percent: 99.0 },
        ];
        assert_eq!(found(&["a"]), doubts);
        assert_eq!(found(&["b"]), []);
        assert_eq!(full(&trial, &trial.nodes[0]), Some(99.5));
        trial.nodes[0].cpus[0].softirq = 50.0;
        assert_eq!(full(&trial, &trial.nodes[0]), None);
    }

    #[test]
    fn the_busiest_cpu_of_a_node_that_is_not_busy_itself_is_named() {
        let cpu = |cpu, softirq| CpuUse { cpu, softirq, idle: 100.0 - softirq, ..Default::default() };
        let mut node = node(cpu(2, 10.0), 0);
        node.cpus.push(cpu(3, 98.0));
        let one = Flag::SaturatedCpu { node: "b".into(), cpu: 3, percent: 98.0 };
        assert_eq!(flags(&trial(node.clone()), &raw(true), &[]), [one]);
        node.cpus[0] = cpu(2, 100.0);
        let all = Flag::Saturated { node: "b".into(), percent: 99.0 };
        assert_eq!(flags(&trial(node.clone()), &raw(true), &[]), [all], "one flag a node");
        node.cpus = vec![cpu(2, 50.0), cpu(3, 96.9)];
        assert_eq!(flags(&trial(node), &raw(true), &[]), []);
    }

    #[test]
    fn a_load_thread_that_never_rests_is_named() {
        let text = include_str!("../tests/records/trial-0.1.0.json");
        let mut worker = serde_json::from_str::<TrialRecord>(text).unwrap().workers.remove(0);
        worker.window_end_ns = worker.window_begin_ns + 1_000_000_000;
        let thread = |cpu_ns| rig_load::record::ThreadRecord { bytes: 1, operations: 1, cpu_ns };
        worker.threads = vec![thread(100_000_000), thread(990_000_000)];
        let found = Flag::SaturatedThread { worker: worker.name.clone(), percent: 99.0 };
        assert_eq!(saturated_thread(&worker, &worker.name), Some(found));
        worker.threads[1].cpu_ns = 960_000_000;
        assert_eq!(saturated_thread(&worker, &worker.name), None);
        worker.window_end_ns = worker.window_begin_ns;
        assert_eq!(saturated_thread(&worker, &worker.name), None);
    }

    #[test]
    fn connections_that_are_counted_otherwise_than_opened_are_noticed() {
        let text = include_str!("../tests/records/trial-packets-0.1.0.json");
        let workers = serde_json::from_str::<TrialRecord>(text).unwrap().workers;
        let agent = |begun| AgentRecord {
            read_ns: None,
            name: "balancer".into(),
            node: "lb".into(),
            version: String::new(),
            cpus: Vec::new(),
            settings: Default::default(),
            counters: Default::default(),
            state: Default::default(),
            begun,
            dropped: None,
        };
        let with = |begun, counters: &[(&str, u64)]| {
            let mut trial = trial(node(CpuUse::default(), 0));
            (trial.workers, trial.agents) = (workers.clone(), vec![agent(begun)]);
            let client = trial.workers.iter_mut().find(|worker| worker.end() == End::Connect).unwrap();
            let total = &mut client.packets.as_mut().unwrap().total;
            total.extend(counters.iter().map(|(name, count)| ((*name).to_owned(), *count)));
            connections_differ(&trial)
        };
        let differs = |counted| [Flag::ConnectionsDiffer { agent: "balancer on lb".into(), counted, opened: 550 }];
        assert_eq!(with(Some(549), &[]), differs(549));
        assert_eq!(with(Some(551), &[]), differs(551));
        // What failed, or was waited for at the end, may have been seen there or not.
        let failed = [("skErr", 2), ("skUnfinished", 1)];
        assert_eq!(with(Some(546), &failed), differs(546));
        assert_eq!(with(Some(551), &failed), differs(551));
        for (begun, counters) in
            [(Some(550), &[][..]), (Some(547), &failed), (Some(550), &failed), (None, &[]), (Some(1), &[("synRx", 0)])]
        {
            assert_eq!(with(begun, counters), [], "{begun:?} {counters:?}");
        }
        let said = differs(551)[0].to_string();
        assert_eq!(said, "balancer on lb counted 551 of the 550 connections that the load opened");
    }

    #[test]
    fn nodes_on_one_core_and_halts_of_the_kernel_are_noticed() {
        let own = |name: &str, cpu| {
            let mut node = node(CpuUse { cpu, ..Default::default() }, 0);
            node.name = name.into();
            node
        };
        let mut trial = trial(own("a", 0));
        trial.nodes.push(own("b", 4));
        let cores = [CpuSet::new([0, 4]), CpuSet::new([1, 5])];
        let shared = Flag::SharedCore { nodes: vec!["a".into(), "b".into()], cpus: "0,4".into() };
        assert_eq!(flags(&trial, &raw(true), &cores), [shared]);
        trial.throttled_us = Some(0);
        assert_eq!(flags(&trial, &raw(true), &[]), []);
        trial.throttled_us = Some(1500);
        assert_eq!(flags(&trial, &raw(true), &[]), [Flag::Throttled { microseconds: 1500 }]);
    }

    #[test]
    fn drops_of_a_rate_limit_are_told_from_those_of_its_interface() {
        let mut limited = node(CpuUse::default(), 0);
        limited.interfaces[0].rate_limit_dropped = 12;
        let dropped = |place: &str, packets| Flag::Dropped { place: place.into(), packets };
        assert_eq!(flags(&trial(limited.clone()), &raw(true), &[]), [dropped("b:eth0 rate limit", 12)]);
        limited.interfaces[0].tx_dropped = 1;
        let both = [dropped("b:eth0", 1), dropped("b:eth0 rate limit", 12)];
        assert_eq!(flags(&trial(limited), &raw(true), &[]), both);
    }

    #[test]
    fn datagrams_that_no_socket_took_are_noticed() {
        let mut full = node(CpuUse::default(), 0);
        full.protocol.udp_receive_buffer_errors = 3;
        let dropped = Flag::Dropped { place: "the UDP socket buffers of node b".into(), packets: 3 };
        assert_eq!(flags(&trial(full), &raw(true), &[]), [dropped]);
    }

    #[test]
    fn transactions_that_were_not_made_are_noticed() {
        let text = include_str!("../tests/records/trial-0.1.0.json");
        let mut worker = serde_json::from_str::<TrialRecord>(text).unwrap().workers.remove(0);
        worker.transactions = Some(TransactionRecord { completed: 9, ..Default::default() });
        let mut trial = trial(node(CpuUse::default(), 0));
        (trial.window_begin_ns, trial.window_end_ns) = (worker.window_begin_ns, worker.window_end_ns);
        (worker.name, worker.notes, worker.threads) = ("b".into(), Vec::new(), Vec::new());
        trial.workers.push(worker.clone());
        assert_eq!(flags(&trial, &raw(true), &[]), []);
        let short = TransactionRecord { completed: 9, lost: 1, failed: 2, overdue: 3, ..Default::default() };
        // The background load's worker is told apart from the other worker of the same endpoint.
        trial.workers.push(WorkerRecord { transactions: Some(short), background: true, ..worker });
        let worker = || "b (background)".to_owned();
        assert_eq!(
            flags(&trial, &raw(true), &[]),
            [
                Flag::Unanswered { worker: worker(), requests: 1 },
                Flag::NotConnected { worker: worker(), attempts: 2 },
                Flag::Behind { worker: worker(), transactions: 3 },
            ]
        );
    }
}
