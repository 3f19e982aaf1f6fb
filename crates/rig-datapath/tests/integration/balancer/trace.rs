//! A traced packet is told what the next such packet meets, and nothing changes by it.

use std::collections::BTreeMap;
use std::fs;
use std::num::NonZeroU32;
use std::path::Path;

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use rig_datapath::balancer::{
    Backend, Direction, Drop, Encapsulation, ForwardingMethod, GUE_PORT, Kind, Pass, PortReuse, Protocol, Scheduler,
    Service, Sizes, Spreading, State, SynProxy, Trace, TracedTunnel, TunnelHeader,
};
use rig_datapath::test_run::Verdict;
use rig_wire::tcp::flags::{ACK, FIN, RST, SYN};

use super::changes::BpfFs;
use super::frames::{Frame, fragments, icmp_error, may_be_fragmented, see, tcp, udp};
use super::lab::Lab;
use super::syn_proxy::{Segment, segment};
use super::{backend, config, full_nat, limited, service, small, udp_service};

/// Keys and values of each table, one after the other: a map of all elements would take a slow machine seconds to compare.
type Content = BTreeMap<String, Vec<u8>>;

/// Every element of every table. The lab's own ARP, neighbour and listener discovery pass at any time.
fn content(tables: &Path) -> Content {
    let mut content = Content::new();
    for file in fs::read_dir(tables).unwrap() {
        let file = file.unwrap();
        let name = file.file_name().into_string().unwrap();
        let map = MapHandle::from_pinned_path(file.path()).unwrap();
        // Its elements are for programs alone.
        if map.map_type() == MapType::PerfEventArray {
            continue;
        }
        let bytes = content.entry(name.clone()).or_default();
        // A call for each key would be made millions of times.
        if matches!(map.map_type(), MapType::Array | MapType::Hash) {
            let elements = map.lookup_batch(map.max_entries(), MapFlags::ANY, MapFlags::ANY).unwrap();
            elements.for_each(|(key, value)| bytes.extend(key.into_iter().chain(value)));
            continue;
        }
        for key in map.keys() {
            let number = u32::from(key[0]);
            if name == "passes"
                && [Pass::NotIp, Pass::Protocol, Pass::IpOptions, Pass::OtherMac].map(Pass::number).contains(&number)
            {
                continue;
            }
            let value = if map.map_type().is_percpu() {
                map.lookup_percpu(&key, MapFlags::ANY).unwrap().unwrap().concat()
            } else {
                // A map of maps may have none.
                map.lookup(&key, MapFlags::ANY).unwrap().unwrap_or_default()
            };
            bytes.extend(key.into_iter().chain(value));
        }
    }
    content
}

struct TraceLab {
    lab: Lab,
    directory: BpfFs,
}

impl TraceLab {
    fn new(services: &[Service]) -> Option<Self> {
        let mut lab = Lab::new(Sizes { list_entries: 2048, ..small() }, &config(services))?;
        let directory = BpfFs::mount()?;
        let tables = directory.0.path().join("tables");
        fs::create_dir(&tables).unwrap();
        lab.balancer.keep(&tables).unwrap();
        Some(Self { lab, directory })
    }

    /// What would happen; nothing has changed, and then it happens so.
    #[track_caller]
    fn trace(&self, frame: &[u8]) -> Trace {
        let tables = self.directory.0.path().join("tables");
        let before = content(&tables);
        assert!(before.values().map(Vec::len).sum::<usize>() > 10_000);
        let trace = self.lab.balancer.trace(frame, Some(self.lab.interface)).unwrap();
        let after = content(&tables);
        let changed: Vec<_> = after
            .iter()
            .filter(|(name, bytes)| before.get(*name) != Some(bytes))
            .map(|(name, bytes)| (name, bytes.iter().zip(&before[name]).position(|(now, before)| now != before)))
            .collect();
        assert!(changed.is_empty() && before.len() == after.len(), "table and byte: {changed:?}");

        let drops = self.lab.drops();
        let outcome = self.lab.send(frame);
        assert_eq!((outcome.verdict, &outcome.frame), (trace.verdict, &trace.frame), "{trace:?}");
        let counted = self.lab.drops();
        let counted = counted.iter().find(|counted| !drops.contains(counted)).map(|(reason, _)| *reason);
        assert_eq!(counted, trace.drop);
        trace
    }
}

fn tunnel(local: &str) -> ForwardingMethod {
    ForwardingMethod::Tunnel { local: vec![local.parse().unwrap()] }
}

#[test]
fn new_connections_are_foreseen() {
    let v4 = ["10.0.0.10:8080", "10.0.0.11:8080"].map(|address| backend(address, 1));
    let v6 = ["[fd00::10]:8080", "[fd00::11]:8080"].map(|address| backend(address, 1));
    let least = Service {
        scheduler: Scheduler::LeastConnections,
        ..service("10.0.0.201:80", ForwardingMethod::Nat, &[limited("10.0.0.12:8080", 2), limited("10.0.0.13:8080", 1)])
    };
    let hashed = Service {
        scheduler: Scheduler::Maglev,
        ..udp_service("10.0.0.202:53", tunnel("10.0.0.100"), &["10.0.0.10:53", "10.0.0.11:53"].map(|at| backend(at, 1)))
    };
    let services = [
        service("10.0.0.200:80", full_nat(&["10.0.0.100", "10.0.0.101"]), &v4),
        service("[fd00::200]:80", full_nat(&["fd00::100"]), &v6),
        least,
        hashed,
        service("10.0.0.203:80", ForwardingMethod::Route, &[backend("10.0.0.13:80", 1)]),
        service("10.0.0.204:80", ForwardingMethod::Nat, &[]),
    ];
    let Some(traced) = TraceLab::new(&services) else { return };
    // Round robins go on, ports advance, the less loaded is chosen: each as it stands when the packet comes.
    for port in 5000..5006 {
        for (client, service) in [("10.0.0.60", "10.0.0.200:80"), ("[fd00::60]", "[fd00::200]:80")] {
            let trace = traced.trace(&tcp(SYN, &format!("{client}:{port}"), service).payload(b"x").bytes());
            let begun = trace.new_connection.unwrap();
            assert_eq!((begun.service.to_string().as_str(), begun.complete), (service, true));
            assert_eq!(begun.scheduler, Some(Scheduler::RoundRobin));
            let sent = see(&trace.frame);
            assert_eq!((begun.local, begun.backend), (Some(sent.source), Some(sent.destination)));
            assert_eq!((trace.kind, trace.connection, trace.state), (Kind::Flow, None, Some(State::SynReceived)));
            assert_eq!((trace.interface, trace.mtu), (Some(traced.lab.interface), Some(1500)));
            assert_eq!((trace.drop, trace.pass), (None, None));
        }
    }
    let backends: Vec<_> = (5000..5003)
        .map(|port| traced.trace(&tcp(SYN, &format!("10.0.0.60:{port}"), "10.0.0.201:80").bytes()))
        .map(|trace| trace.new_connection.unwrap().backend.unwrap().to_string())
        .collect();
    assert_eq!(backends, ["10.0.0.12:8080", "10.0.0.13:8080", "10.0.0.12:8080"]);
    let refused = traced.trace(&tcp(SYN, "10.0.0.60:5003", "10.0.0.201:80").bytes());
    assert_eq!((refused.drop, refused.new_connection.unwrap().complete), (Some(Drop::BackendsFull), false));

    let trace = traced.trace(&udp("10.0.0.60:5000", "10.0.0.202:53").payload(b"x").bytes());
    let packed = TracedTunnel { header: TunnelHeader::IpInIp, from: "10.0.0.100:0".parse().unwrap() };
    assert_eq!((trace.tunnel, trace.mtu), (Some(packed), Some(1480)));
    assert_eq!(
        (trace.new_connection.unwrap().scheduler, trace.state),
        (Some(Scheduler::Maglev), Some(State::UdpNormal))
    );
    let trace = traced.trace(&tcp(SYN, "10.0.0.60:5000", "10.0.0.203:80").bytes());
    assert_eq!((trace.tunnel, trace.new_connection.unwrap().local), (None, None));
    let trace = traced.trace(&tcp(SYN, "10.0.0.60:5000", "10.0.0.204:80").bytes());
    assert_eq!((trace.drop, trace.new_connection.unwrap().backend), (Some(Drop::NoBackend), None));
}

/// What it says of a tunnel is what the packet then has.
#[test]
fn tunnels_are_foreseen() {
    let gue = TunnelHeader::Gue { port: GUE_PORT, checksum: false };
    let kinds = [(gue, "10.0.0.200:53", 1468), (TunnelHeader::Gre, "10.0.0.201:53", 1476)];
    let services = kinds.map(|(header, service, _)| {
        let encapsulation = Encapsulation { header, source_bits: 2 };
        udp_service(service, tunnel("10.0.0.100"), &[Backend { encapsulation, ..backend("10.0.0.11:53", 1) }])
    });
    let Some(traced) = TraceLab::new(&services) else { return };
    for (header, service, mtu) in kinds {
        for client in (5000..5010).map(|port| format!("10.0.0.60:{port}")) {
            let trace = traced.trace(&udp(&client, service).payload(b"x").bytes());
            let packet = &trace.frame[14..];
            let source: [u8; 4] = packet[12..16].try_into().unwrap();
            let sent = if header == TunnelHeader::Gre { 0 } else { u16::from_be_bytes([packet[20], packet[21]]) };
            let packed = TracedTunnel { header, from: (source, sent).into() };
            assert_eq!((trace.tunnel, trace.mtu), (Some(packed), Some(mtu)));
        }
    }
}

#[test]
fn a_full_table_is_foreseen_and_homes_that_are_full() {
    let services = [service("10.0.0.200:80", full_nat(&["10.0.0.100"]), &[backend("10.0.0.10:8080", 1)])];
    let Some(traced) = TraceLab::new(&services) else { return };
    let syn = |port| tcp(SYN, &format!("10.0.0.60:{port}"), "10.0.0.200:80").bytes();
    // Homes fill unevenly, so that some of these lie in the overflow.
    for port in 5000..5064 {
        assert!(traced.trace(&syn(port)).new_connection.unwrap().complete);
    }
    let trace = traced.trace(&syn(6000));
    assert_eq!((trace.drop, trace.new_connection.unwrap().complete, trace.state), (Some(Drop::TableFull), false, None));
}

#[test]
fn packets_of_a_connection_are_foreseen() {
    let services = [service("10.0.0.200:80", full_nat(&["10.0.0.100"]), &[backend("10.0.0.10:8080", 1)])];
    let Some(mut traced) = TraceLab::new(&services) else { return };
    let (client, service) = ("10.0.0.60:5000", "10.0.0.200:80");
    let sent = see(&traced.lab.sent(&tcp(SYN, client, service).bytes()));
    traced.lab.later(100);
    let trace = traced.trace(&tcp(ACK, client, service).bytes());
    let found = trace.connection.unwrap();
    assert_eq!((found.direction, found.ends), (Direction::Inward, false));
    assert_eq!((found.connection.local, found.connection.backend), (Some(sent.source), sent.destination));
    assert_eq!((found.connection.state, trace.state), (State::SynReceived, Some(State::Established)));
    // 30 s, 100 ticks later.
    assert_eq!(found.connection.expires.as_secs(), 16);
    assert_eq!(trace.new_connection, None);

    let answer = Frame { source: sent.destination, destination: sent.source, ..tcp(ACK, client, service) };
    let trace = traced.trace(&answer.clone().payload(b"answer").bytes());
    assert_eq!(trace.connection.unwrap().direction, Direction::Outward);
    let trace = traced.trace(&answer.clone().payload(&[1; 1500]).bytes());
    assert_eq!((trace.drop, trace.verdict), (Some(Drop::TooBigTold), Verdict::Transmit));
    let trace = traced.trace(&may_be_fragmented(&answer.clone().payload(&[1; 1500]).bytes()));
    assert_eq!((trace.drop, trace.mtu), (Some(Drop::TooBig), Some(1500)));
    assert_eq!(traced.trace(&answer.ttl(1).bytes()).drop, Some(Drop::Ttl));
    let about = tcp(ACK, service, client).packet();
    let trace = traced.trace(&icmp_error("10.0.0.99", "10.0.0.200", 3, 4, 1400, &about, 60));
    assert_eq!((trace.kind, trace.state), (Kind::IcmpError, Some(State::Established)));

    // Its port is used again after it has closed, and its backend is drained: another one takes its place.
    traced.lab.sent(&tcp(RST, client, service).bytes());
    let drained = [super::service(
        service,
        full_nat(&["10.0.0.100"]),
        &[backend("10.0.0.10:8080", 0), backend("10.0.0.11:8080", 1)],
    )];
    traced.lab.balancer.apply(&config(&drained)).unwrap();
    let trace = traced.trace(&tcp(SYN, client, service).bytes());
    let (found, begun) = (trace.connection.unwrap(), trace.new_connection.unwrap());
    assert!(found.ends && begun.complete);
    assert_eq!(found.connection.backend.to_string(), "10.0.0.10:8080");
    assert_eq!(begun.backend.unwrap().to_string(), "10.0.0.11:8080");
    assert_eq!(trace.state, Some(State::SynReceived));
}

/// What the SYN proxy makes of packets, at each step of a connection.
#[test]
fn the_syn_proxy_is_foreseen() {
    let proxied = Service {
        syn_proxy: SynProxy::Always,
        ..service("10.0.0.200:80", full_nat(&["10.0.0.100"]), &[backend("10.0.0.10:8080", 1)])
    };
    let Some(traced) = TraceLab::new(&[proxied]) else { return };
    let (client, to) = ("10.0.0.60:5000", "10.0.0.200:80");
    let syn = Segment { sequence: 9, ..segment(client, to, SYN) };
    let answer = traced.trace(&syn.bytes());
    assert_eq!((answer.verdict, answer.drop), (Verdict::Transmit, Some(Drop::SynAnswered)));
    let cookie = Segment::of(&answer.frame).sequence;
    let third = Segment { sequence: 10, acknowledged: cookie.wrapping_add(1), ..segment(client, to, ACK) };
    let trace = traced.trace(&third.bytes());
    assert!(trace.new_connection.unwrap().complete);
    let local = Segment::of(&trace.frame).source.to_string();
    assert_eq!(traced.trace(&third.bytes()).drop, Some(Drop::ProxyWaits));
    let from =
        |flags, acknowledged| Segment { sequence: 700, acknowledged, ..segment("10.0.0.10:8080", &local, flags) };
    let reset = traced.trace(&from(ACK, 99).bytes());
    assert_eq!((reset.verdict, Segment::of(&reset.frame).flags), (Verdict::Transmit, RST));
    let opens = traced.trace(&from(SYN | ACK, 10).bytes());
    assert_eq!(Segment::of(&opens.frame).sequence, cookie);
    let goes_on = traced.trace(&third.bytes());
    assert_eq!((Segment::of(&goes_on.frame).acknowledged, goes_on.state), (701, Some(State::Established)));
    let data = traced.trace(&Segment { payload: b"220".to_vec(), ..from(ACK, 10) }.bytes());
    assert_eq!(Segment::of(&data.frame).sequence, cookie);
    // The backend answers another SYN: what it knew of this connection is gone.
    let reset = traced.trace(&from(SYN | ACK, 99).bytes());
    assert_eq!((reset.verdict, Segment::of(&reset.frame).sequence), (Verdict::Transmit, 99));
    assert_eq!(traced.lab.connections(), [""; 0]);
}

/// Room that the old connection would leave is there, although nothing has ended.
#[test]
fn a_port_that_is_used_again_is_foreseen() {
    let (client, address) = ("10.0.0.60:5000", "10.0.0.200:80");
    let two = [limited("10.0.0.10:80", 1), limited("10.0.0.11:80", 1)];
    let Some(mut traced) = TraceLab::new(&[]) else { return };
    for forward in [full_nat(&["10.0.0.100"]), ForwardingMethod::Nat, ForwardingMethod::Route, tunnel("10.0.0.100")] {
        for (reuse, reached) in [(PortReuse::Reschedule, ["10", "11", "11"]), (PortReuse::Keep, ["10", "10", "11"])] {
            for scheduler in [Scheduler::RoundRobin, Scheduler::WeightedLeastConnections] {
                let of = |backends: &[Backend]| {
                    let limit = NonZeroU32::new(1);
                    config(&[Service { reuse, scheduler, limit, ..service(address, forward.clone(), backends) }])
                };
                traced.lab.balancer.clear().unwrap();
                let mut seen = Vec::new();
                // Alone, with one more, and drained.
                let drained = [backend("10.0.0.10:80", 0), two[1]];
                for backends in [&two[..1], &two, &drained] {
                    traced.lab.balancer.apply(&of(backends)).unwrap();
                    let trace = traced.trace(&tcp(SYN, client, address).bytes());
                    let begun = trace.new_connection.unwrap();
                    assert_eq!((begun.complete, trace.drop), (true, None), "{forward:?} {backends:?}");
                    assert_eq!(trace.connection.is_some_and(|found| found.ends), !seen.is_empty());
                    let kept = reuse == PortReuse::Keep && seen.len() == 1;
                    assert_eq!(begun.stays, kept);
                    seen.push(begun.backend.unwrap().ip().to_string());
                    traced.lab.sent(&tcp(RST, client, address).bytes());
                }
                // The least loaded is the first where neither has any.
                let first = scheduler == Scheduler::WeightedLeastConnections;
                let expected = if first { ["10", "10", "11"] } else { reached };
                assert_eq!(seen, expected.map(|host| format!("10.0.0.{host}")), "{forward:?} {reuse:?} {scheduler:?}");
            }
        }
    }
}

#[test]
fn what_is_not_handled_is_foreseen() {
    let services = [service("10.0.0.200:80", full_nat(&["10.0.0.100"]), &[backend("10.0.0.10:8080", 1)])];
    let Some(traced) = TraceLab::new(&services) else { return };
    let to = |frame: Frame| traced.trace(&frame.bytes());
    let trace = to(tcp(SYN, "10.0.0.60:5000", "10.0.0.200:81"));
    assert_eq!((trace.pass, trace.verdict, trace.new_connection), (Some(Pass::NoService), Verdict::Pass, None));
    let trace = to(tcp(RST, "10.0.0.60:5000", "10.0.0.200:80"));
    assert_eq!((trace.drop, trace.connection), (Some(Drop::NoConnection), None));
    let mut fragment = tcp(FIN, "10.0.0.60:5000", "10.0.0.200:80").bytes();
    fragment[20] = 0x20;
    let trace = traced.trace(&fragment);
    assert_eq!((trace.kind, trace.drop), (Kind::Fragment, Some(Drop::Fragment)));
    // Those of a datagram are handled; the first one is needed for the others, when it has come and not when it is traced.
    let datagrams = udp_service("10.0.0.200:53", ForwardingMethod::Nat, &[backend("10.0.0.10:8053", 1)]);
    let Some(traced) = TraceLab::new(&[datagrams]) else { return };
    let parts = fragments(&udp("10.0.0.60:5000", "10.0.0.200:53").payload(&[1; 100]).bytes(), &[64], 1);
    assert_eq!(traced.trace(&parts[1]).drop, Some(Drop::Fragment));
    let trace = traced.trace(&parts[0]);
    assert_eq!((trace.kind, trace.verdict, trace.new_connection.is_some()), (Kind::Fragment, Verdict::Transmit, true));
    let trace = traced.trace(&parts[1]);
    assert_eq!((trace.kind, trace.verdict, trace.connection.is_some()), (Kind::Fragment, Verdict::Transmit, true));
    let mut options = tcp(FIN, "10.0.0.60:5000", "10.0.0.200:80").bytes();
    options[14] = 0x46;
    assert_eq!(traced.trace(&options).kind, Kind::Options);
    let mut arp = tcp(SYN, "10.0.0.60:5000", "10.0.0.200:80").bytes();
    arp[12..14].copy_from_slice(&[8, 6]);
    let trace = traced.trace(&arp);
    assert_eq!((trace.kind, trace.pass), (Kind::Left, Some(Pass::NotIp)));
}

#[test]
fn the_worker_is_named() {
    let services = [service("10.0.0.200:80", full_nat(&["10.0.0.100"]), &[backend("10.0.0.10:8080", 1)])];
    let Some(mut traced) = TraceLab::new(&services) else { return };
    let cpus: Vec<u32> = rig_sys::cpu::CpuSet::online().unwrap().as_slice().to_vec();
    let frame = |port| tcp(SYN, &format!("10.0.0.60:{port}"), "10.0.0.200:80").bytes();
    let worker =
        |traced: &TraceLab, frame: &[u8]| traced.lab.balancer.trace(frame, Some(traced.lab.interface)).unwrap().worker;
    assert_eq!(worker(&traced, &frame(1)), None);
    let queues = Spreading::Queues { workers: cpus.clone(), receiver: None, packets: 64 };
    traced.lab.balancer.spread_over(&queues).unwrap();
    let mut seen: Vec<u32> = (5000..5100).filter_map(|port| worker(&traced, &frame(port))).collect();
    assert_eq!(seen.len(), 100);
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen, cpus);
    assert_eq!(worker(&traced, &tcp(SYN, "10.0.0.60:1", "10.0.0.1:22").bytes()), None);
}

/// The program's hash is the one whose evenness is tested.
#[test]
fn the_hash_is_the_one_in_rust() {
    let Some(lab) = Lab::new(small(), &config(&[])) else { return };
    let ends = [
        ("10.0.0.60:5000", "10.0.0.200:80"),
        ("192.0.2.255:65535", "203.0.113.128:1"),
        ("255.255.255.254:128", "128.0.0.128:32768"),
        ("[fd00::60]:5000", "[fd00::200]:80"),
        ("[2001:db8:80:ff80:8000:8080:80:8081]:40000", "[8000:80:80ff:80:80:ffff:80:fffe]:443"),
    ];
    for (a, b) in ends {
        for (source, destination) in [(a, b), (b, a)] {
            for (frame, protocol) in
                [(tcp(SYN, source, destination), Protocol::Tcp), (udp(source, destination), Protocol::Udp)]
            {
                let hash = lab.balancer.trace(&frame.bytes(), Some(lab.interface)).unwrap().hash;
                let expected = lab.balancer.hash(protocol, source.parse().unwrap(), destination.parse().unwrap());
                assert_eq!(hash, expected, "{protocol:?} {source} {destination}");
            }
        }
    }
}
