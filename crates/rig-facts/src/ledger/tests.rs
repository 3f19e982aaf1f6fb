use rig_load::record::{DatagramRecord, PacketPort, WorkerRecord};
use rig_testbed::frames::{Counts, InterfaceFrames, NamespaceFrames, NodeFrames, QueueFrames};

use super::*;
use crate::fixture::TrialOptions;
use crate::fixture::loads::datagrams as datagram_trial;
use crate::record::AgentRecord;

fn counts(list: &[(&str, u64)]) -> Counts {
    list.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

fn namespace(name: &str, protocols: &[(&str, u64)], interfaces: Vec<InterfaceFrames>) -> NamespaceFrames {
    NamespaceFrames { name: name.into(), protocols: counts(protocols), interfaces }
}

fn node(name: &str, namespaces: Vec<NamespaceFrames>) -> NodeFrames {
    NodeFrames { node: name.into(), namespaces, ..NodeFrames::default() }
}

/// An end of a veth pair.
fn veth(far: &str, link: &[(&str, u64)], driver: &[(&str, u64)]) -> InterfaceFrames {
    InterfaceFrames {
        name: "eth0".into(),
        kind: Some("veth".into()),
        far: Some(format!("{far}:eth0")),
        link: counts(link),
        driver: counts(driver),
        ..InterfaceFrames::default()
    }
}

fn named(mut worker: WorkerRecord, name: &str) -> WorkerRecord {
    worker.name = name.into();
    worker
}

/// 1000 datagrams from a to b, of which so many came.
fn stream(received: u64, frames: Vec<NodeFrames>) -> TrialRecord {
    let mut trial = datagram_trial(&TrialOptions::default(), 1000, &DatagramRecord::default());
    let totals = [
        DatagramTotals { sent: 1000, farewells_sent: 3, ..DatagramTotals::default() },
        DatagramTotals { received, farewells_received: 1, ..DatagramTotals::default() },
    ];
    for (worker, total) in trial.workers.iter_mut().zip(totals) {
        let name = if total.sent > 0 { "a" } else { "b" };
        *worker = named(worker.clone(), name);
        worker.datagrams = Some(DatagramRecord { total: Some(total), ..DatagramRecord::default() });
        worker.connections.iter_mut().for_each(|connection| connection.remote = "172.16.0.1:5001".into());
    }
    trial.frames = Some(frames);
    trial
}

fn told(trial: &TrialRecord) -> (Vec<(String, String, u64)>, i64) {
    let ledger = ledger(trial).unwrap();
    let rest = ledger.unexplained();
    (ledger.lines.into_iter().map(|line| (line.place, line.counter, line.frames)).collect(), rest)
}

fn line(place: &str, counter: &str, frames: u64) -> (String, String, u64) {
    (place.into(), counter.into(), frames)
}

#[test]
fn what_no_counter_took_is_left_over() {
    let nothing = || vec![node("a", vec![namespace("a", &[], vec![])]), node("b", vec![namespace("b", &[], vec![])])];
    let flow = |received| Flow { from: "a".into(), to: "b".into(), sent: 1000, received };
    let all = ledger(&stream(1000, nothing())).unwrap();
    assert_eq!((&*all.flows, all.missing(), all.unexplained()), (&[flow(1000)][..], 0, 0));
    let lost = ledger(&stream(988, nothing())).unwrap();
    assert_eq!((&*lost.flows, lost.missing(), lost.unexplained()), (&[flow(988)][..], 12, 12));
    assert!((lost.unexplained_share() - 0.012).abs() < 1e-9);
    assert_eq!(told(&stream(1005, nothing())).1, -5, "some came twice");
}

#[test]
fn frames_that_are_not_counted_have_no_ledger() {
    let frames = || vec![node("a", vec![namespace("a", &[], vec![])])];
    let trial = stream(988, frames());
    assert!(ledger(&trial).is_some());
    assert!(ledger(&TrialRecord { frames: None, ..trial.clone() }).is_none(), "a record of an earlier version");
    let mut joined = trial.clone();
    joined.workers[1].datagrams.as_mut().unwrap().total = None;
    assert!(ledger(&joined).is_none(), "datagrams that kernels cut or join");
    let fragments = vec![node("a", vec![namespace("a", &[("Ip.FragCreates", 1)], vec![])])];
    assert!(ledger(&TrialRecord { frames: Some(fragments), ..trial.clone() }).is_none());
    let mut proxied = trial;
    proxied.agents.push(agent("haproxy", &[]));
    assert!(ledger(&proxied).is_none());
}

#[test]
fn a_full_backlog_is_one_line_and_not_five() {
    let mut receiver = node("b", vec![namespace("b", &[], vec![veth("a", &[("rx_dropped", 12)], &[])])]);
    receiver.backlog.insert(1, 12);
    // Without NAPI each of these functions hands its caller the failure of the one below.
    let counted = [("Ip.OutDiscards", 12), ("Udp.SndbufErrors", 12)];
    let sender = node("a", vec![namespace("a", &counted, vec![veth("b", &[("tx_dropped", 12)], &[])])]);
    let full = "CPU's backlog full (net.core.netdev_max_backlog) (rx_dropped, softnet_stat dropped)";
    assert_eq!(told(&stream(988, vec![sender, receiver])), (vec![line("b:eth0", full, 12)], 0));
}

#[test]
fn a_ring_that_is_full_is_told_by_the_sending_end_where_the_other_polls() {
    let polled = [("rx_queue_0_xdp_packets", 900)];
    let receiver = node("b", vec![namespace("b", &[], vec![veth("a", &[("rx_dropped", 5)], &polled)])]);
    let full = [("tx_queue_0_xdp_xmit_errors", 3)];
    let sender = node("a", vec![namespace("a", &[], vec![veth("b", &[("tx_dropped", 10)], &full)])]);
    // Three of XDP's are in both: 7 + 5 are lost.
    let expected =
        vec![line("a:eth0", "not sent (tx_dropped)", 7), line("b:eth0", "not taken by the node (rx_dropped)", 5)];
    assert_eq!(told(&stream(988, vec![sender, receiver])), (expected, 0));
}

#[test]
fn a_queue_is_told_and_not_the_layers_above_it() {
    let queue = QueueFrames { kind: "tbf".into(), is_ingress: false, drops: 10, waiting: 2 };
    let device = InterfaceFrames { queues: vec![queue], ..veth("b", &[], &[]) };
    let tunnel = |counter| InterfaceFrames {
        name: "vxlan0".into(),
        kind: Some("vxlan".into()),
        link: counts(&[(counter, 10)]),
        ..InterfaceFrames::default()
    };
    let sender =
        |counter| node("a", vec![namespace("a", &[("Ip.OutDiscards", 10)], vec![device.clone(), tunnel(counter)])]);
    let expected = vec![
        line("a:eth0", "queue full or early drop (qdisc tbf drops)", 10),
        line("a:eth0", "still queued at the end (qdisc tbf backlog)", 2),
    ];
    for counter in ["tx_dropped", "tx_errors"] {
        assert_eq!(told(&stream(988, vec![sender(counter)])), (expected.clone(), 0), "{counter}");
    }
}

#[test]
fn a_farewell_may_be_among_those_that_a_buffer_had_no_room_for() {
    let udp = [("Udp.RcvbufErrors", 14), ("Udp.InErrors", 15), ("Udp.InCsumErrors", 1), ("Udp.NoPorts", 1)];
    // What comes for a sender is none of its load, and IPv6 no part of a load over IPv4.
    let sender = node("a", vec![namespace("a", &[("Udp.RcvbufErrors", 4), ("Ip6InNoRoutes", 4)], vec![])]);
    let receiver = |udp| node("b", vec![namespace("b", udp, vec![])]);
    let full = "UDP socket's receive buffer full (Udp.RcvbufErrors)";
    let expected = vec![line("b", full, 14), line("b", "bad UDP checksum (Udp.InCsumErrors)", 1)];
    let (lines, rest) = told(&stream(987, vec![receiver(&udp), sender.clone()]));
    assert_eq!((lines, rest), (expected, 0), "15 counters for 13 datagrams and 2 farewells");
    let more = [("Udp.RcvbufErrors", 20)];
    assert_eq!(told(&stream(987, vec![sender.clone(), receiver(&more)])).1, -5);
    let asking = node("c", vec![namespace("c", &[("Icmp6OutMsgs", 4)], vec![])]);
    assert_eq!(told(&stream(987, vec![sender, receiver(&more), asking])).1, -1, "4 of them may be the kernel's own");
}

#[test]
fn a_card_tells_each_frame_once() {
    let card = |link: &[(&str, u64)], driver: &[(&str, u64)]| {
        let card = InterfaceFrames { kind: None, far: None, ..veth("", link, driver) };
        stream(900, vec![node("b", vec![namespace("b", &[], vec![card])])])
    };
    let missed = line("b:eth0", "no room in the card's ring (rx_missed_errors)", 100);
    let queues = [("rx_missed_errors", 100), ("rx_0_missed", 60), ("rx_1_missed", 40), ("tx_dropped_late", 0)];
    let same = [("rx_missed_errors", 100), ("rx_fifo_errors", 100), ("rx_errors", 100)];
    assert_eq!(told(&card(&same, &queues)), (vec![missed.clone()], 0));
    let by_driver = line("b:eth0", "not received by the driver (ethtool rx_out_of_buffer)", 100);
    let queues = [("rx_out_of_buffer", 100), ("rx0_out_of_buffer", 60), ("rx1_out_of_buffer", 40)];
    assert_eq!(told(&card(&[], &queues)), (vec![by_driver], 0));
    let damaged = [("rx_missed_errors", 90), ("rx_crc_errors", 10), ("rx_errors", 10)];
    let expected = vec![
        line("b:eth0", "no room in the card's ring (rx_missed_errors)", 90),
        line("b:eth0", "damaged frame (rx_crc_errors)", 10),
    ];
    assert_eq!(told(&card(&damaged, &[])), (expected, 0));
}

fn agent(name: &str, dropped: &[(&str, u64)]) -> AgentRecord {
    AgentRecord {
        read_ns: None,
        name: name.into(),
        node: "lb".into(),
        version: String::new(),
        cpus: Vec::new(),
        settings: Default::default(),
        counters: Default::default(),
        state: Default::default(),
        begun: None,
        dropped: Some(dropped.iter().map(|(reason, count)| ((*reason).to_owned(), *count)).collect()),
    }
}

/// A flood of 1000 frames that gets 500 answers, through a balancer.
fn flood(frames: Vec<NodeFrames>) -> TrialRecord {
    let text = include_str!("../../tests/records/trial-packets-0.1.0.json");
    let mut trial: TrialRecord = serde_json::from_str(text).unwrap();
    let totals: [&[(&str, u64)]; 2] =
        [&[("pktTx", 1002), ("arpTx", 2), ("pktRx", 500)], &[("pktTx", 500), ("pktRx", 901), ("arpRx", 1)]];
    for worker in &mut trial.workers {
        let is_client = worker.end() == rig_load::record::End::Connect;
        *worker = named(worker.clone(), if is_client { "client" } else { "server" });
        let packets = worker.packets.as_mut().unwrap();
        packets.total = counts(totals[usize::from(!is_client)]);
        packets.ports = vec![PacketPort {
            interface: "eth0".into(),
            driver: "AF_XDP".into(),
            notes: Vec::new(),
            drops: if is_client { Counts::new() } else { counts(&[("missed", 60)]) },
        }];
    }
    trial.agents = vec![agent("balancer", &[("no service", 30)])];
    trial.frames = Some(frames);
    trial
}

#[test]
fn the_way_is_told_from_the_client_to_the_server() {
    let polled = ("rx_queue_0_xdp_packets", 900);
    // The server had ended when the last ten came; 60 are the socket's own.
    let server = veth("lb", &[("rx_packets", 971), ("rx_dropped", 60), ("tx_packets", 500)], &[polled]);
    let frames = vec![
        node("client", vec![namespace("client", &[("Ip.InAddrErrors", 7)], vec![])]),
        node("lb", vec![namespace("lb", &[], vec![veth("client", &[], &[("rx_queue_0_xdp_drops", 30)])])]),
        node("server", vec![namespace("server", &[], vec![server])]),
    ];
    let expected = vec![
        line("balancer on lb", "no service", 30),
        line("server:eth0", "arrived and not read by the worker, as after its end (rx_packets without pktRx)", 10),
        line("server:eth0", "socket's ring full or without buffers (AF_XDP or packet socket)", 60),
    ];
    let trial = flood(frames);
    assert_eq!(told(&trial), (expected, 0));
    let flows = ledger(&trial).unwrap().flows;
    let ways: Vec<(&str, u64, u64)> = flows.iter().map(|flow| (&*flow.from, flow.sent, flow.received)).collect();
    assert_eq!(ways, [("client", 1000, 900), ("server", 500, 500)]);
}

#[test]
fn programs_that_nobody_answers_for_are_told_by_the_driver() {
    let at_lb = |drops| veth("client", &[], &[("rx_queue_0_xdp_drops", drops), ("rx_queue_1_xdp_drops", 10)]);
    let server = namespace("server", &[], vec![veth("lb", &[("rx_dropped", 60)], &[])]);
    let frames = vec![node("lb", vec![namespace("lb", &[], vec![at_lb(30)])]), node("server", vec![server])];
    let (lines, rest) = told(&flood(frames));
    assert_eq!(lines[1], line("lb", "dropped by an XDP program (xdp_drops)", 10), "40 without the balancer's 30");
    assert_eq!((lines.len(), rest), (3, 0));
}

#[test]
fn a_frame_that_a_packet_socket_offers_again_is_not_lost() {
    let queue = QueueFrames { kind: "fq".into(), is_ingress: false, drops: 4, waiting: 0 };
    let client = veth("server", &[("tx_packets", 1002), ("tx_dropped", 12)], &[]);
    let client = InterfaceFrames { queues: vec![queue], ..client };
    let link = [("rx_packets", 1002), ("rx_dropped", 12), ("tx_packets", 500)];
    let mut server = node("server", vec![namespace("server", &[], vec![veth("client", &link, &[])])]);
    server.backlog.insert(1, 12);
    let mut trial = flood(vec![node("client", vec![namespace("client", &[], vec![client])]), server]);
    trial.agents.clear();
    for worker in &mut trial.workers {
        worker.packets.as_mut().unwrap().ports[0].driver = "AF_PACKET".into();
    }
    let (lines, rest) = told(&trial);
    let frames: Vec<(&str, u64)> = lines.iter().map(|(place, _, frames)| (place.as_str(), *frames)).collect();
    assert_eq!((frames, rest), (vec![("server:eth0", 40), ("server:eth0", 60)], 0), "{lines:?}");
}
