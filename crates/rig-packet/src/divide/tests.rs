use std::collections::{BTreeMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use proptest::prelude::*;
use rig_wire::{FlowKey, MICROSOFT_KEY, Toeplitz, protocol};

use super::super::config::{Load, RequestRepeat, Server, TupleOrder, UdpClient, UdpServer};
use super::super::memory;
use super::super::payload::Payload;
use super::super::plan::{AnswerScope, Capture, Driver, Timeline};
use super::super::port::{Port as _, Receive as _};
use super::super::{Engine, Flood};
use super::*;

fn client() -> UdpClient {
    let client = Client {
        ports: 1000..=1999,
        server_ports: 80..=81,
        load: Load::new(1e9),
        repeat: None,
        walk: TupleOrder::Ports,
        flood: None,
    };
    UdpClient { client, request: Payload::Filler(4), timeout: Duration::from_secs(1) }
}

fn range(first: &str, count: u32) -> Range {
    Range { first: first.parse().unwrap(), count }
}

fn port(n: u8, threads: u32, servers: u32) -> PortPlan {
    PortPlan {
        interface: format!("eth{n}"),
        driver: Driver::Auto,
        address: format!("10.{n}.0.1").parse().unwrap(),
        gateway: GatewayPlan::Mac([2, 0, 0, 0, 0, 9]),
        vlan: None,
        vxlan: None,
        local: vec![range(&format!("10.{n}.1.1"), 3)],
        remote: vec![range(&format!("10.{n}.2.1"), servers - 1), range(&format!("10.{n}.3.1"), 1)],
        threads: (0..threads).map(|queue| ThreadPlan { cpu: None, queue, response: None }).collect(),
        mtu: 1500,
        live: true,
        burst: 64,
        take: Capture::Own,
        answer: AnswerScope::All,
        hop_limit: 64,
        tos: 0,
    }
}

fn plan(ports: Vec<PortPlan>, service: Service) -> Packets {
    let [wait, duration, drain] = [0, 10, 1].map(Duration::from_secs);
    Packets { ports, service, capacity: None, course: Timeline { wait, duration, drain } }
}

fn rss(queues: u32) -> Rss {
    Rss { hash: Toeplitz::new(&MICROSOFT_KEY), table: (0..128).map(|n| n % queues).collect() }
}

fn hardware(spread: Spread, ports: usize) -> Vec<Hardware> {
    vec![Hardware { mac: Mac([2, 0, 0, 0, 0, 1]), spread }; ports]
}

/// The ends of the first `count` datagrams that a thread sends when it keeps nothing of them.
fn sent(thread: &ThreadAssignment, count: usize) -> Vec<FlowKey> {
    let AnyConfig::V4(config) = &thread.config else { panic!("IPv4") };
    let mut config = config.clone();
    config.link.announce = false;
    let client = config.service.client_mut().unwrap();
    (client.load, client.repeat, client.flood) = (Load::new(1e9), None, Some(Flood::default()));
    let (mut ours, mut theirs) = memory::pair(64);
    let mut engine = Engine::new(config, 0).unwrap();
    let mut flows = Vec::new();
    let mut now = 1_000_000;
    while flows.len() < count {
        engine.pass(now, &mut ours);
        now += 1000;
        let receive = theirs.halves().0;
        let frames = receive.poll();
        flows.extend((0..frames).map(|n| FlowKey::of(receive.frame(n)).unwrap().unwrap()));
    }
    flows.truncate(count);
    flows
}

#[test]
fn answers_come_to_the_thread_that_asked() {
    let rss = rss(3);
    // Threads on all queues of the card, and on some.
    for threads in 1..=3 {
        let plan = plan(vec![port(0, threads, 4)], Service::UdpClient(client()));
        let division = divide(&plan, &hardware(Spread::Rss(rss.clone()), 1)).unwrap();
        for thread in &division.threads {
            for flow in sent(thread, 1500) {
                assert_eq!(rss.queue(&flow.reversed()), Some(thread.thread_plan.queue), "{flow:?}");
            }
        }
        assert_eq!(division.notes.len(), 1);
    }
}

#[test]
fn every_combination_is_somebodys() {
    let mut service = client();
    (service.client.ports, service.client.server_ports) = (1000..=1049, 80..=81);
    for walk in [TupleOrder::Ports, TupleOrder::Hop] {
        service.client.walk = walk;
        let plan = plan(vec![port(0, 3, 4)], Service::UdpClient(service.clone()));
        for spread in [Spread::Mirrored, Spread::ByServer, Spread::Unknown, Spread::Rss(rss(3))] {
            let by_rss = matches!(spread, Spread::Rss(_));
            let division = divide(&plan, &hardware(spread, 1)).unwrap();
            let mut seen = HashSet::new();
            let all = 3 * 50 * 4 * 2;
            for (n, thread) in division.threads.iter().enumerate() {
                let ours = match &thread.config {
                    AnyConfig::V4(config) if !by_rss => {
                        combinations::<V4>(&config.service, &config.local, &config.remote)
                    }
                    // Counts flows until the first of them comes again.
                    AnyConfig::V4(_) => {
                        let flows = sent(thread, all as usize);
                        flows.iter().skip(1).take_while(|flow| **flow != flows[0]).count() as u64 + 1
                    }
                    AnyConfig::V6(_) => panic!("IPv4"),
                };
                for flow in sent(thread, ours as usize) {
                    assert!(seen.insert(flow), "thread {n} uses {flow:?} too");
                }
            }
            assert_eq!(seen.len() as u64, all, "{walk:?}");
        }
    }
}

#[test]
fn both_hop() {
    let mut service = client();
    (service.client.ports, service.client.walk) = (1000..=1005, TupleOrder::Hop);
    let plan = plan(vec![port(0, 1, 2)], Service::UdpClient(service));
    let flows = sent(&divide(&plan, &hardware(Spread::Unknown, 1)).unwrap().threads[0], 18);
    for pair in flows.windows(2) {
        assert_ne!(pair[0].source.ip(), pair[1].source.ip());
        assert_ne!(pair[0].source.port(), pair[1].source.port());
    }
    let unique: HashSet<_> = flows.iter().map(|flow| flow.source).collect();
    assert_eq!(unique.len(), 18, "3 addresses with 6 ports each");
}

#[test]
fn each_thread_has_a_tunnel_of_its_own() {
    let mut port = port(0, 2, 4);
    port.vxlan = Some(VxlanPlan {
        vni: 7,
        inner_source: [2, 0, 0, 0, 1, 1],
        inner_destination: [2, 0, 0, 0, 1, 2],
        local: [172, 16, 0, 10].into(),
        local_count: 2,
        remote: [172, 16, 0, 20].into(),
        remote_count: 1,
    });
    let mut plan = plan(vec![port], Service::UdpClient(client()));
    let division = divide(&plan, &hardware(Spread::Unknown, 1)).unwrap();
    let ends = |thread: &ThreadAssignment| {
        let AnyConfig::V4(config) = &thread.config else { panic!("IPv4") };
        let tunnel = config.link.tunnel.as_ref().unwrap();
        let Service::UdpClient(udp) = &config.service else { panic!("a client") };
        (tunnel.local.octets()[3], tunnel.remote.octets()[3], udp.client.ports.clone())
    };
    assert_eq!(division.threads.iter().map(ends).collect::<Vec<_>>(), [(10, 20, 1000..=1499), (11, 20, 1500..=1999)]);
    assert_eq!(division.notes.len(), 2);
    assert!(division.notes[1].1.contains("dst-ip 172.16.0.11 action 1"), "{:?}", division.notes[1]);
    // Headers of the tunnel count.
    let Service::UdpClient(udp) = &mut plan.service else { panic!("a client") };
    udp.request = Payload::Filler(1500 - 28 - 50);
    assert!(divide(&plan, &hardware(Spread::Unknown, 1)).is_ok());
    let Service::UdpClient(udp) = &mut plan.service else { panic!("a client") };
    udp.request = Payload::Filler(1500 - 28 - 50 + 1);
    let said = divide(&plan, &hardware(Spread::Unknown, 1)).unwrap_err().to_string();
    assert!(said.starts_with("eth0: a request of 1423 bytes, and an MTU of 1500 leaves 1422"), "{said}");
    plan.ports[0].vxlan.as_mut().unwrap().local_count = 1;
    let said = divide(&plan, &hardware(Spread::Unknown, 1)).unwrap_err().to_string();
    assert!(said.starts_with("eth0: 1 local tunnel end points for 2 threads"), "{said}");
}

#[test]
fn servers_have_all_addresses_and_responses_of_their_own() {
    let mut port = port(0, 2, 4);
    port.threads[1].response = Some(Payload::Filler(900));
    let server = UdpServer { server: Server { ports: 80..=80 }, response: Payload::Filler(10), one_way: false };
    let division = divide(&plan(vec![port], Service::UdpServer(server)), &hardware(Spread::Unknown, 1)).unwrap();
    let response = |thread: &ThreadAssignment| {
        let AnyConfig::V4(config) = &thread.config else { panic!("IPv4") };
        assert_eq!((count(&config.local), count(&config.remote), config.capacity), (3, 4, 1));
        let Service::UdpServer(udp) = &config.service else { panic!("a server") };
        (udp.response.len(), config.link.announce)
    };
    assert_eq!(division.threads.iter().map(response).collect::<Vec<_>>(), [(10, true), (900, false)]);
    assert!(division.notes.is_empty());
}

/// What is said to a change of a plan for two threads that is right.
fn said(spread: Spread, change: impl FnOnce(&mut Packets)) -> String {
    let mut plan = plan(vec![port(0, 2, 2), port(1, 2, 2)], Service::UdpClient(client()));
    assert!(divide(&plan, &hardware(spread.clone(), 2)).is_ok());
    change(&mut plan);
    divide(&plan, &hardware(spread, 2)).unwrap_err().to_string()
}

fn service(plan: &mut Packets) -> &mut Client {
    plan.service.client_mut().unwrap()
}

#[test]
fn each_refusal_says_why_and_what_to_do() {
    let one = Spread::Unknown;
    let mirrored = Spread::Mirrored;
    let cases = [
        (
            said(one.clone(), |plan| plan.ports[1].remote = vec![range("10.9.9.9", 1)]),
            "eth1: 1 server addresses for 2 threads. How the interface spreads",
        ),
        (said(mirrored.clone(), |plan| service(plan).ports = 5..=5), "eth0: 1 source ports for 2 threads"),
        (said(one.clone(), |plan| plan.ports[0].threads[1].queue = 0), "eth0: two threads on queue 0"),
        (said(one.clone(), |plan| plan.ports[0].threads.clear()), "eth0 has no thread"),
        (
            said(Spread::Rss(rss(2)), |plan| plan.ports[0].threads[1].queue = 5),
            "eth0: its indirection table names queue 5",
        ),
        (
            said(one.clone(), |plan| {
                let other = plan.ports[0].clone();
                (plan.ports[1].local, plan.ports[1].remote) = (other.local, other.remote);
            }),
            "eth0 and eth1 use the same client addresses with the same servers",
        ),
        (said(one.clone(), |plan| plan.ports[0].local.push(range("10.0.1.3", 1))), "eth0: local address 10.0.1.3 and"),
        (said(one.clone(), |plan| plan.ports[0].local.push(range("10.0.2.1", 1))), "eth0: an address is both ours"),
        (
            said(one.clone(), |plan| plan.ports[0].remote.push(range("fd00::1", 1))),
            "eth0: fd00::1 is of another family",
        ),
        (
            said(one.clone(), |plan| plan.ports[0].gateway = GatewayPlan::Address("fd00::1".parse().unwrap())),
            "eth0: fd00::1 is of another family",
        ),
        (
            said(one.clone(), |plan| plan.ports[0].threads[1].response = Some(Payload::Filler(1))),
            "a response for the thread on queue 1",
        ),
        (
            said(mirrored, |plan| service(plan).load.hold = Some(50_000)),
            "eth0: a thread is to hold 12500 connections open (50000 over 4 threads), and has addresses and ports for 6000: \
             3 client addresses x 500 source ports x 2 server addresses x 2 server ports",
        ),
        (
            said(one.clone(), |plan| plan.capacity = Some(1 << 40)),
            "thread 0 would need room for 274877906944 connections",
        ),
        (
            said(one, |plan| {
                service(plan).repeat = Some(RequestRepeat { pipeline: 0, ..RequestRepeat::every(Duration::ZERO) });
            }),
            "eth0, thread 0: datagrams back to back of 0: give 1 to 100",
        ),
    ];
    for (said, expected) in cases {
        assert!(said.starts_with(expected), "{said}");
    }
}

#[test]
fn capacity_follows_from_what_is_asked_for() {
    let of = |change: &dyn Fn(&mut Packets)| {
        let mut plan = plan(vec![port(0, 2, 2)], Service::UdpClient(client()));
        service(&mut plan).load.rate = 1001.0;
        change(&mut plan);
        let division = divide(&plan, &hardware(Spread::Mirrored, 1)).unwrap();
        let capacities: Vec<_> = division.threads.iter().map(|thread| thread.config.capacity()).collect();
        (capacities, division.bytes)
    };
    // As many as are opened until one is given up, a second later.
    assert_eq!(of(&|_| {}).0, [501, 500]);
    assert_eq!(of(&|plan| service(plan).load.hold = Some(7)).0, [4, 3]);
    assert_eq!(of(&|plan| plan.capacity = Some(2_000_001)).0, [1_000_001, 1_000_000]);
    assert_eq!(of(&|plan| service(plan).flood = Some(Flood::default())).0, [1, 1]);
    // Endless ones stay as long as the run is, and no more than there are combinations.
    let endless = Some(RequestRepeat::every(Duration::from_millis(1)));
    assert_eq!(of(&|plan| service(plan).repeat = endless).0, [5511, 5500]);
    let (_, bytes) = of(&|plan| plan.capacity = Some(2_000_000));
    assert!((2 * 48_000_000..2 * 70_000_000).contains(&bytes), "{bytes}");
}

#[test]
fn threads_take_turns() {
    let phases = |ports: Vec<PortPlan>| -> Vec<f64> {
        let hardware = hardware(Spread::Mirrored, ports.len());
        let threads = divide(&plan(ports, Service::UdpClient(client())), &hardware).unwrap().threads;
        threads.iter().map(|thread| thread.config.service().client().unwrap().load.phase).collect()
    };
    assert_eq!(phases(vec![port(1, 1, 4)]), [0.0], "one that is alone begins at once");
    assert_eq!(phases(vec![port(1, 2, 4)]), [0.25, 0.75]);
    assert_eq!(phases(vec![port(1, 2, 4), port(2, 2, 4)]), [0.125, 0.375, 0.625, 0.875], "of all ports together");
}

#[test]
fn requests_without_a_number_are_told() {
    let notes = |request: Payload| {
        let plan = plan(vec![port(1, 1, 4)], Service::UdpClient(UdpClient { request, ..client() }));
        divide(&plan, &hardware(Spread::Mirrored, 1)).unwrap().notes
    };
    assert_eq!(notes(Payload::Filler(4)), []);
    for (request, why) in
        [(Payload::Filler(3), "requests of 3 bytes have no room"), (b"ping".into(), "as they were given")]
    {
        let notes = notes(request);
        assert!(notes.len() == 1 && notes[0].1.contains(why), "{notes:?}");
    }
}

#[test]
fn parts_of_a_rate() {
    assert_eq!([0, 1, 2].map(|n| share_of_rate(1000.5, 3, n)), [334.5, 333.0, 333.0]);
    assert_eq!([0, 1, 2, 3].map(|n| share_of_rate(1.0, 4, n)), [0.25; 4]);
    assert_eq!(share_of_rate(2.5, 1, 0), 2.5);
}

fn ends(flow: &FlowKey) -> (SocketAddr, SocketAddr) {
    (flow.source, flow.destination)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn nothing_is_lost_and_nothing_is_shared(
        threads in 1u32..6,
        more_ports in 0u8..2,
        servers in 6u32..12,
        rate in 1u32..1_000_000,
        hold in prop::option::of(0u32..3000),
        requests in prop::option::of(1u32..1_000_000),
        first_port in 1u16..60_000,
        count in 6u16..2000,
        hops: bool,
        spread in 0usize..4,
    ) {
        let mut udp = client();
        udp.client.ports = first_port..=first_port + count - 1;
        udp.client.walk = if hops { TupleOrder::Hop } else { TupleOrder::Ports };
        udp.client.load.rate = rate.into();
        udp.client.load.hold = hold;
        udp.client.repeat = requests.map(|rate| RequestRepeat { rate: Some(rate.into()), ..RequestRepeat::every(Duration::ZERO) });
        let ports = (0..=more_ports).map(|n| port(n, threads, servers)).collect();
        let plan = plan(ports, Service::UdpClient(udp.clone()));
        let spread = [Spread::Mirrored, Spread::ByServer, Spread::Unknown, Spread::Rss(rss(threads))][spread].clone();
        let division = divide(&plan, &hardware(spread, plan.ports.len()));
        // Few ports may be too few to hold so many: then that is what is said.
        let Ok(division) = division else {
            let DivideError::Sockets { hold, available, .. } = division.unwrap_err() else { panic!("another reason") };
            prop_assert!(u64::from(hold) > available);
            return Ok(());
        };
        let clients: Vec<_> = division.threads.iter().filter_map(|thread| thread.config.service().client()).collect();
        prop_assert_eq!(clients.len() as u32, threads * (u32::from(more_ports) + 1));
        let sum = |of: fn(&Client) -> f64| clients.iter().map(|client| of(client)).sum::<f64>();
        if f64::from(rate) >= clients.len() as f64 {
            prop_assert_eq!(sum(|client| client.load.rate), f64::from(rate));
        }
        prop_assert!((sum(|client| client.load.rate) - f64::from(rate)).abs() < 1e-9);
        prop_assert_eq!(sum(|client| client.load.hold.unwrap_or(0).into()), f64::from(hold.unwrap_or(0)));
        let requested = sum(|client| client.repeat.and_then(|repeat| repeat.rate).unwrap_or(0.0));
        prop_assert!((requested - f64::from(requests.unwrap_or(0))).abs() < 1e-9);
        // What the threads really send.
        let mut owner: BTreeMap<(SocketAddr, SocketAddr), usize> = BTreeMap::new();
        for (n, thread) in division.threads.iter().enumerate() {
            let AnyConfig::V4(config) = &thread.config else { panic!("IPv4") };
            let of = combinations::<V4>(&config.service, &config.local, &config.remote);
            for flow in sent(thread, (of / u64::from(threads) / 4).clamp(1, 300) as usize) {
                let before = owner.insert(ends(&flow), n);
                prop_assert!(before.is_none_or(|before| before == n), "{before:?} and {n} use {flow:?}");
            }
        }
    }

    #[test]
    fn parts_add_up(total: u64, of in 1usize..100) {
        let parts: Vec<_> = (0..of).map(|n| share(total, of, n)).collect();
        prop_assert_eq!(parts.iter().map(|&part| u128::from(part)).sum::<u128>(), u128::from(total));
        prop_assert!(parts.iter().max().unwrap() - parts.iter().min().unwrap() <= 1);
    }
}

#[test]
fn queues_of_a_flow_are_those_of_the_table() {
    let rss = Rss { hash: Toeplitz::new(&MICROSOFT_KEY), table: Arc::from([3, 4]) };
    let end = |ip: [u8; 4], port| SocketAddr::new(IpAddr::from(ip), port);
    // Microsoft's first vector: 0x51ccc178 is even.
    let flow = FlowKey {
        protocol: protocol::TCP,
        source: end([66, 9, 149, 187], 2794),
        destination: end([161, 142, 100, 80], 1766),
    };
    assert_eq!(rss.queue(&flow), Some(3));
}
