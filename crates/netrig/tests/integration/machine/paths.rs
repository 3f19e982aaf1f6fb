//! Each path is built for real: what must be reachable is, what must not be is not, and the wire is what was promised.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use rig_sys::counters::Interface;
use rig_sys::cpu::CpuSet;
use rig_sys::netlink::Netlink;
use rig_sys::netns::NetNs;
use rig_testbed::datapath::{self, Agent, Settings, Site, Starting};
use rig_testbed::topology::{Endpoint, Endpoints, Family, Layout, Path, Topology, WireOptions};
use rig_testbed::{Namespace, Testbed, UPLINK};
use rustix::net::sockopt::{Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, set_ip_mtu_discover, set_ipv6_mtu_discover};

use super::world;

const PORT: u16 = 5001;
/// How long something that must come may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long something that must not come is waited for.
const IN_VAIN: Duration = Duration::from_millis(150);

/// The paths whose containers may talk to a node itself.
fn paths_to_nodes() -> impl Iterator<Item = Path> {
    Path::plain().filter(|path| path.endpoints() == Endpoints::ContainersOrNode)
}

fn named(name: &str) -> Path {
    name.parse().unwrap()
}

/// A testbed with its endpoints: `containers` on each node, or the nodes themselves on path raw.
struct EndpointTestbed {
    /// Of the path's datapath, where it has one; they end before the testbed does.
    _agents: Vec<Box<dyn Agent>>,
    testbed: Testbed<'static>,
    endpoints: Vec<Endpoint>,
}

/// What the nodes of a path have to run so that they carry anything.
pub(super) fn agents(testbed: &Testbed<'_>) -> Vec<Box<dyn Agent>> {
    let Some(name) = testbed.topology().path().datapath() else { return Vec::new() };
    let kind = rig_datapaths::ALL.find(name).unwrap();
    let attach = |node| {
        let site = Site::new(testbed, node, None).unwrap();
        let starting = datapath::start(testbed.host(), kind, &site, &Settings::new());
        starting.and_then(Starting::attached).unwrap_or_else(|error| panic!("{name}: {error:#}"))
    };
    (0..testbed.topology().nodes().len()).map(attach).collect()
}

impl EndpointTestbed {
    fn build(path: Path, containers: usize, wire: WireOptions) -> Self {
        Self::of_family(Family::Ipv4, path, containers, wire)
    }

    fn of_family(family: Family, path: Path, containers: usize, wire: WireOptions) -> Self {
        let cpu = CpuSet::new([CpuSet::allowed().unwrap().as_slice()[0]]);
        Self::build_on(family, path, containers, wire, &[cpu.clone(), cpu])
    }

    fn build_on(family: Family, path: Path, containers: usize, wire: WireOptions, cpus: &[CpuSet]) -> Self {
        let (topology, endpoints) = Self::topology(family, path, containers, wire);
        let plan = topology.plan(&cpus[..topology.nodes().len()]);
        Self::of(world::testbed(&topology, plan), endpoints)
    }

    /// What is built, without what makes it carry anything.
    fn idle(family: Family, path: Path) -> Self {
        let cpu = CpuSet::new([CpuSet::allowed().unwrap().as_slice()[0]]);
        let (topology, endpoints) = Self::topology(family, path, 2, WireOptions::default());
        let testbed = world::testbed(&topology, topology.plan(&[cpu.clone(), cpu][..topology.nodes().len()]));
        Self { _agents: Vec::new(), testbed, endpoints }
    }

    fn topology(family: Family, path: Path, containers: usize, wire: WireOptions) -> (Topology, Vec<Endpoint>) {
        let nodes: &[&str] = if path.layout() == Layout::One { &["a"] } else { &["a", "b"] };
        // A veth pair has two ends.
        let containers = if path == named("veth") { 2 } else { containers };
        let endpoints: Vec<Endpoint> = nodes
            .iter()
            .flat_map(|node| match path.endpoints() {
                Endpoints::Nodes => vec![(*node).to_owned()],
                _ => (0..containers).map(|number| format!("{node}/c{number}")).collect(),
            })
            .map(|name| name.parse().unwrap())
            .collect();
        let names: Vec<String> = nodes.iter().map(|&node| node.to_owned()).collect();
        let wire = (nodes.len() == 2).then_some(wire);
        let topology = Topology::new(&names, wire, path, &endpoints).unwrap().with_family(family).unwrap();
        (topology, endpoints)
    }

    fn of(testbed: Testbed<'static>, endpoints: Vec<Endpoint>) -> Self {
        Self { _agents: agents(&testbed), testbed, endpoints }
    }

    fn standard(path: Path) -> Self {
        Self::build(path, 2, WireOptions::default())
    }

    /// Two containers in the node named, and the other node plain.
    fn with_containers_in(node: &str, family: Family, path: Path) -> Self {
        let ends = if node == "a" { ["a/c0", "a/c1", "b"] } else { ["a", "b/c0", "b/c1"] };
        Self::between(family, path, ends.iter().map(|name| name.parse().unwrap()).collect())
    }

    /// These, of the nodes a and b.
    fn between(family: Family, path: Path, endpoints: Vec<Endpoint>) -> Self {
        let topology = Topology::new(&["a".into(), "b".into()], Some(WireOptions::default()), path, &endpoints);
        let topology = topology.unwrap().with_family(family).unwrap();
        let cpu = CpuSet::new([CpuSet::allowed().unwrap().as_slice()[0]]);
        Self::of(world::testbed(&topology, topology.plan(&[cpu.clone(), cpu])), endpoints)
    }

    fn place(&self, endpoint: &Endpoint) -> &Namespace {
        self.testbed.endpoint(endpoint).unwrap().0
    }

    fn address(&self, endpoint: &Endpoint) -> SocketAddr {
        (self.testbed.topology().address(endpoint).unwrap(), PORT).into()
    }

    /// An endpoint of the first and one of the last node; on one node two that differ.
    fn ends(&self) -> (&Endpoint, &Endpoint) {
        (&self.endpoints[0], self.endpoints.last().unwrap())
    }

    fn nodes(&self) -> usize {
        self.testbed.topology().nodes().len()
    }

    fn all_namespaces(&self) -> impl Iterator<Item = &Namespace> {
        (0..self.nodes()).flat_map(|node| self.testbed.namespaces(node))
    }

    fn node(&self, node: usize) -> &Namespace {
        self.testbed.namespaces(node).next().unwrap()
    }

    /// A socket of `endpoint`, usable from any thread.
    fn listen(&self, endpoint: &Endpoint) -> TcpListener {
        let address = self.address(endpoint);
        self.place(endpoint).ns.run(|| TcpListener::bind(address)).unwrap().unwrap()
    }

    fn connect(&self, from: &Endpoint, to: SocketAddr, time_limit: Duration) -> io::Result<TcpStream> {
        self.place(from).ns.run(|| TcpStream::connect_timeout(&to, time_limit)).unwrap()
    }

    /// Carries `bytes` over TCP from `from` to `to`, all the way into the receiver.
    fn carry(&self, from: &Endpoint, to: &Endpoint, bytes: usize) {
        let listener = self.listen(to);
        let mut sender = self.connect(from, self.address(to), TIMEOUT).unwrap();
        let (mut receiver, _) = listener.accept().unwrap();
        thread::scope(|scope| {
            scope.spawn(move || {
                let chunk = [7; 64 * 1024];
                for _ in 0..bytes / chunk.len() {
                    sender.write_all(&chunk).unwrap();
                }
            });
            assert_eq!(io::copy(&mut receiver, &mut io::sink()).unwrap(), bytes as u64);
        });
    }
}

/// Sends `greeting` on each connection that is accepted, for ever.
fn greet(listener: TcpListener, greeting: String) {
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let _ = (&stream).write_all(greeting.as_bytes());
        }
    });
}

fn greeting(mut stream: TcpStream) -> String {
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

fn counters(place: &Namespace, interface: &str) -> Interface {
    place.counters.interfaces().unwrap()[interface]
}

const FAMILIES: [Family; 2] = [Family::Ipv4, Family::Ipv6];

fn all_reach_all(bed: &EndpointTestbed, what: &str) {
    for endpoint in &bed.endpoints {
        greet(bed.listen(endpoint), endpoint.to_string());
    }
    for from in &bed.endpoints {
        for to in bed.endpoints.iter().filter(|to| *to != from) {
            let stream = bed.connect(from, bed.address(to), TIMEOUT);
            let stream = stream.unwrap_or_else(|error| panic!("{what}: {from} to {to}: {error}"));
            assert_eq!(greeting(stream), to.to_string(), "{what}: {from} met another");
        }
    }
}

/// By a plan that was read from JSON, as what goes to another process.
#[test]
fn every_endpoint_reaches_every_other_by_a_plan_that_was_read() {
    world::own(|| {
        for (path, family) in Path::plain().flat_map(|path| FAMILIES.map(|family| (path, family))) {
            let (topology, ends) = EndpointTestbed::topology(family, path, 3, WireOptions::default());
            let cpu = CpuSet::new([CpuSet::allowed().unwrap().as_slice()[0]]);
            let json = serde_json::to_string(&topology.plan(&[cpu.clone(), cpu][..topology.nodes().len()])).unwrap();
            let plan = serde_json::from_str(&json).unwrap();
            let bed = EndpointTestbed::of(world::testbed(&topology, plan), ends);
            all_reach_all(&bed, &format!("{path} {family:?}"));
            for interface in bed.testbed.plan().spaces().flat_map(|space| &space.interfaces) {
                assert!(interface.mac.is_some() || interface.name == "br0", "{path}: {interface:?}");
            }
            for (place, space) in bed.all_namespaces().zip(bed.testbed.plan().spaces()) {
                for interface in space.interfaces.iter().filter_map(|own| Some((&own.name, own.mac?))) {
                    assert_eq!(place.mac(interface.0).unwrap(), interface.1.0, "{path}: {}", place.name);
                }
            }
        }
    });
}

/// No container of path routed has a link in common with another, or a subnet: its router is the same everywhere and no
/// address of the node's that others could reach.
#[test]
fn routed_containers_share_nothing_but_their_router() {
    world::own(|| {
        for (family, router) in [(Family::Ipv4, "169.254.1.1"), (Family::Ipv6, "fe80::1")] {
            let two = EndpointTestbed::of_family(family, named("routed"), 2, WireOptions::default());
            let ends = ["a/c0", "a/c1"].map(|end| end.parse::<Endpoint>().unwrap());
            let one = Topology::new(&["a".into()], None, named("routed"), &ends).unwrap().with_family(family).unwrap();
            let cpu = CpuSet::new([CpuSet::allowed().unwrap().as_slice()[0]]);
            let one = EndpointTestbed::of(world::testbed(&one, one.plan(&[cpu])), ends.into());
            for bed in [&two, &one] {
                all_reach_all(bed, &format!("routed {family:?}, {} nodes", bed.nodes()));
                for endpoint in &bed.endpoints {
                    let space = bed.testbed.plan().space(&endpoint.to_string()).unwrap();
                    let own = space.interfaces[0].addresses[0];
                    assert_eq!((own.addr(), own.trunc()), (bed.address(endpoint).ip(), own), "{endpoint}");
                    let hops = space.routes.iter().filter_map(|route| route.via).collect::<Vec<_>>();
                    assert_eq!(hops, [router.parse::<IpAddr>().unwrap()], "{endpoint}");
                }
                let node = bed.testbed.plan().space("a").unwrap();
                assert!(node.interfaces.iter().all(|own| own.bridge.is_none()), "{node:?}");
            }
        }
    });
}

#[test]
fn a_node_without_containers_reaches_the_containers_of_the_other() {
    world::own(|| {
        for path in paths_to_nodes() {
            for (node, family) in ["a", "b"].into_iter().flat_map(|node| FAMILIES.map(|family| (node, family))) {
                let bed = EndpointTestbed::with_containers_in(node, family, path);
                all_reach_all(&bed, &format!("{path} {family:?}, containers in {node}"));
            }
        }
    });
}

/// The first packet must not wait for an address to be found unique, or be lost while an interface comes up.
#[test]
fn addresses_are_of_one_family_and_ready_at_once() {
    world::own(|| {
        for (path, family) in Path::plain().flat_map(|path| FAMILIES.map(|family| (path, family))) {
            let bed = EndpointTestbed::idle(family, path);
            for endpoint in &bed.endpoints {
                let address = bed.address(endpoint).ip();
                assert_eq!(address.is_ipv6(), family == Family::Ipv6, "{path}: {address}");
                // An address that is not known to be unique yet cannot be bound to.
                bed.place(endpoint).ns.run(|| UdpSocket::bind((address, 0))).unwrap().unwrap();
            }
        }
    });
}

#[test]
fn a_node_has_as_many_containers_as_a_topology_may_ask_for() {
    world::own(|| {
        for path in Path::plain().filter(|path| path.endpoints() != Endpoints::Nodes && path.layout() != Layout::One) {
            // The other node has one: thousands of namespaces at a time keep the kernel from all others.
            let full = (0..Topology::CONTAINERS_MAX).map(|number| format!("a/c{number}"));
            let endpoints = full.chain(["b/c0".to_owned()]).map(|name| name.parse().unwrap()).collect();
            let bed = EndpointTestbed::between(Family::Ipv4, path, endpoints);
            assert_eq!(bed.testbed.namespaces(0).count(), 1 + Topology::CONTAINERS_MAX);
            let (from, to) = (&bed.endpoints[Topology::CONTAINERS_MAX - 1], &bed.endpoints[Topology::CONTAINERS_MAX]);
            greet(bed.listen(to), to.to_string());
            assert_eq!(greeting(bed.connect(from, bed.address(to), TIMEOUT).unwrap()), to.to_string(), "{path}");
        }
    });
}

#[test]
fn nothing_passes_between_endpoints_and_the_host() {
    world::own(|| {
        // The host's addresses: its loopback, one of its own, and one inside each of the testbeds' subnets.
        let host =
            [[127, 0, 0, 1], [192, 0, 2, 1], [172, 16, 0, 200], [172, 16, 1, 200], [10, 0, 1, 200], [10, 1, 0, 200]];
        let host = host.map(|address| SocketAddr::from((address, PORT)));
        let mut netlink = Netlink::open(&NetNs::of_current_thread().unwrap()).unwrap();
        for address in &host[1..] {
            netlink.add_address("lo", address.ip(), 32).unwrap();
        }
        greet(TcpListener::bind((Ipv6Addr::UNSPECIFIED, PORT)).unwrap(), "host".into());
        for address in &host {
            let stream = TcpStream::connect_timeout(address, TIMEOUT).unwrap();
            assert_eq!(greeting(stream), "host", "the test's own host does not answer at {address}");
        }
        for path in Path::plain() {
            let bed = EndpointTestbed::standard(path);
            let (from, to) = bed.ends();
            greet(bed.listen(to), to.to_string());
            bed.connect(from, bed.address(to), TIMEOUT).unwrap();
            let reached: Vec<_> = host.iter().filter(|address| bed.connect(from, **address, IN_VAIN).is_ok()).collect();
            assert_eq!(reached, Vec::<&SocketAddr>::new(), "{path}: {from} reached the host");
            for place in bed.all_namespaces() {
                let reached = place.ns.run(|| TcpStream::connect_timeout(&host[0], IN_VAIN).is_ok()).unwrap();
                assert!(!reached, "{path}: {} shares the host's loopback", place.name);
            }
            for endpoint in &bed.endpoints {
                let reached = TcpStream::connect_timeout(&bed.address(endpoint), IN_VAIN).is_ok();
                assert!(!reached, "{path}: the host reached {endpoint}");
            }
        }
    });
}

#[test]
fn two_testbeds_with_the_same_addresses_do_not_meet() {
    world::own(|| {
        for path in Path::plain() {
            let beds =
                [EndpointTestbed::standard(path), EndpointTestbed::standard(path), EndpointTestbed::standard(path)];
            let (from, to) = beds[0].ends();
            // The third has no listener.
            for (number, bed) in beds[..2].iter().enumerate() {
                greet(bed.listen(to), format!("testbed {number}"));
            }
            for (number, bed) in beds[..2].iter().enumerate() {
                let stream = bed.connect(from, bed.address(to), TIMEOUT).unwrap();
                assert_eq!(greeting(stream), format!("testbed {number}"), "{path}");
            }
            let refused = beds[2].connect(from, beds[2].address(to), TIMEOUT).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused, "{path}: {refused}");
        }
    });
}

#[test]
fn the_host_sees_no_interface_and_keeps_no_namespace() {
    world::own(|| {
        let (interfaces, namespaces) = (world::interfaces(), world::network_namespaces());
        for path in Path::plain() {
            let bed = EndpointTestbed::standard(path);
            assert_eq!(world::interfaces(), interfaces, "{path}: an interface shows on the host");
            let of_bed = bed.all_namespaces().count();
            assert_eq!(world::network_namespaces().len(), namespaces.len() + of_bed, "{path}");
            drop(bed);
            assert_eq!(world::network_namespaces(), namespaces, "{path}: a namespace is left");
            assert_eq!(world::interfaces(), interfaces, "{path}");
        }
    });
}

#[test]
fn a_packet_of_the_promised_mtu_passes_whole_and_one_byte_more_does_not() {
    world::own(|| {
        for (path, family) in Path::plain().flat_map(|path| FAMILIES.map(|family| (path, family))) {
            let (smallest, tunnel) = if family == Family::Ipv4 { (626, 50) } else { (1350, 70) };
            let (mtus, largest) = ([1500, 9000, smallest, 65_535], 16_000);
            let mtus = match path.layout() {
                Layout::One => &mtus[..1],
                _ if path == named("vrouter") => &[smallest, largest],
                _ => &mtus,
            };
            for &mtu in mtus {
                let bed = EndpointTestbed::of_family(family, path, 2, WireOptions { mtu, ..Default::default() });
                let (a, b) = bed.ends();
                let promised = bed.testbed.topology().endpoint_mtu();
                let overhead = if path == named("vxlan") {
                    tunnel
                } else if path == named("vrouter") {
                    50
                } else {
                    0
                };
                assert_eq!(promised, mtu - overhead);
                for (from, to) in [(a, b), (b, a)] {
                    exactly(&bed, from, to, promised as usize);
                }
            }
        }
    });
}

/// Sends datagrams that may not be cut up (DF) from `from` to `to`: one whose packet has `mtu` bytes, and a larger one.
fn exactly(bed: &EndpointTestbed, from: &Endpoint, to: &Endpoint, mtu: usize) {
    let ipv6 = bed.testbed.topology().family() == Family::Ipv6;
    // IP and UDP headers.
    let payload = mtu - if ipv6 { 40 } else { 20 } - 8;
    let socket = |endpoint| {
        let address = bed.address(endpoint);
        bed.place(endpoint).ns.run(|| UdpSocket::bind(address)).unwrap().unwrap()
    };
    let (sender, receiver) = (socket(from), socket(to));
    match ipv6 {
        true => set_ipv6_mtu_discover(&sender, Ipv6PathMtuDiscovery::DO).unwrap(),
        false => set_ip_mtu_discover(&sender, Ipv4PathMtuDiscovery::DO).unwrap(),
    }
    let what = format!("{} from {from} to {to}, {mtu} bytes", bed.testbed.topology().path());

    sender.send_to(&vec![1; payload], bed.address(to)).unwrap_or_else(|error| panic!("{what}: {error}"));
    receiver.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut buffer = vec![0; 70_000];
    let received = receiver.recv(&mut buffer).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(received, payload, "{what}");

    let error = sender.send_to(&vec![1; payload + 1], bed.address(to)).expect_err(&what);
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::MSGSIZE.raw_os_error()), "{what}: {error}");
    for place in bed.all_namespaces() {
        assert_eq!(place.counters.protocols().unwrap()["Ip.FragCreates"], 0, "{what}: {} cut it up", place.name);
    }
}

#[test]
fn a_wire_has_the_queues_asked_for_and_all_are_steered_to_the_nodes_cpus() {
    world::own(|| {
        let cpus = CpuSet::allowed().unwrap();
        let cpus = [CpuSet::new(cpus.as_slice().first().copied()), CpuSet::new(cpus.as_slice().last().copied())];
        for queues in [1, 3] {
            let bed = EndpointTestbed::build_on(
                Family::Ipv4,
                named("raw"),
                0,
                WireOptions { queues, ..Default::default() },
                &cpus,
            );
            for (node, cpus) in cpus.iter().enumerate() {
                let sysfs = bed.node(node).ns.sysfs().unwrap();
                for queue in 0..queues {
                    let mask = sysfs.read(UPLINK, &format!("queues/rx-{queue}/rps_cpus")).unwrap();
                    let mask = u32::from_str_radix(&mask.replace(',', ""), 16).unwrap();
                    assert_eq!(mask, 1 << cpus.as_slice()[0], "receive queue {queue} of node {node}");
                    sysfs.read(UPLINK, &format!("queues/tx-{queue}/tx_timeout")).unwrap();
                }
                for beyond in [format!("queues/rx-{queues}/rps_cpus"), format!("queues/tx-{queues}/tx_timeout")] {
                    assert!(sysfs.read(UPLINK, &beyond).is_err(), "there is a {beyond}");
                }
            }
        }
    });
}

#[test]
fn a_wire_carries_no_more_than_its_rate() {
    const RATE: u64 = 100_000_000;
    world::own(|| {
        for path in Path::plain().filter(|path| path.layout() != Layout::One) {
            let bed = EndpointTestbed::build(path, 1, WireOptions { rate: Some(RATE), ..Default::default() });
            let (from, to) = bed.ends();
            let listener = bed.listen(to);
            let mut sender = bed.connect(from, bed.address(to), TIMEOUT).unwrap();
            let (receiver, _) = listener.accept().unwrap();
            let sending = thread::spawn(move || while sender.write_all(&[7; 64 * 1024]).is_ok() {});
            let receiving = thread::spawn({
                let mut receiver = receiver.try_clone().unwrap();
                move || io::copy(&mut receiver, &mut io::sink())
            });
            let begin = Instant::now();
            let before = counters(bed.node(0), UPLINK);
            thread::sleep(Duration::from_millis(500));
            let after = counters(bed.node(0), UPLINK);
            let seconds = begin.elapsed().as_secs_f64();
            receiver.shutdown(std::net::Shutdown::Both).unwrap();
            sending.join().unwrap();
            let _ = receiving.join().unwrap();

            let bits = (after.tx_bytes - before.tx_bytes) * 8;
            assert!(bits > 0, "{path}: nothing passed");
            let most = RATE as f64 * seconds * 1.1;
            assert!((bits as f64) < most, "{path}: {bits} bits in {seconds} s, more than {most}");
        }
    });
}

#[test]
fn without_segmentation_offload_every_packet_is_one_segment() {
    const BYTES: usize = 8 << 20;
    const MTU: u32 = 1500;
    world::own(|| {
        for (path, interfaces) in [
            ("raw", 2),
            // The wire's ends, the containers' and the nodes' ends of their links.
            ("etun", 6),
            ("bridge", 6),
            ("macvlan", 4),
            ("vxlan", 8),
            ("routed", 6),
        ] {
            let path = named(path);
            for (segmentation_offload, family) in [true, false].into_iter().flat_map(|on| FAMILIES.map(|f| (on, f))) {
                let wire = WireOptions { mtu: MTU, segmentation_offload, ..Default::default() };
                let bed = EndpointTestbed::of_family(family, path, 1, wire);
                let (from, to) = bed.ends();
                bed.carry(from, to, BYTES);
                // Without IP and TCP headers, and the timestamps in each segment.
                let ip = if family == Family::Ipv4 { 20 } else { 40 };
                let payload = u64::from(bed.testbed.topology().endpoint_mtu() - ip - 20 - 12);
                let segments = BYTES as u64 / payload;
                let mut looked_at = 0;
                for place in bed.all_namespaces() {
                    // A macvlan interface's packets are cut where they enter the wire.
                    let uncut = path == named("macvlan") && place.name.contains('/');
                    for (name, now) in place.counters.interfaces().unwrap() {
                        // The payload went one way, acknowledgements the other; a bridge counts only its node's own.
                        let (packets, bytes) = (now.tx_packets.max(now.rx_packets), now.tx_bytes.max(now.rx_bytes));
                        if bytes < BYTES as u64 {
                            continue;
                        }
                        looked_at += 1;
                        let what = format!("{path}, {}:{name}: {bytes} bytes in {packets} packets", place.name);
                        if segmentation_offload {
                            assert!(bytes / packets > u64::from(MTU) + 14, "{what}, although larger ones may travel");
                        } else if !uncut {
                            assert!(packets >= segments, "{what}, fewer than {segments} segments");
                            assert!(bytes / packets <= u64::from(MTU) + 14, "{what}");
                        }
                    }
                }
                assert_eq!(looked_at, interfaces, "{path}: interfaces that carried the payload");
            }
        }
    });
}

/// The addresses that endpoints are reached at do not depend on what else runs: a user can rely on what `up` prints.
#[test]
fn endpoints_have_the_addresses_that_the_topology_says() {
    world::own(|| {
        for path in Path::plain() {
            let bed = EndpointTestbed::idle(Family::Ipv4, path);
            for endpoint in &bed.endpoints {
                let address = bed.address(endpoint).ip();
                let bound = |ip: IpAddr| bed.place(endpoint).ns.run(|| UdpSocket::bind((ip, 0)).is_ok()).unwrap();
                assert!(bound(address), "{path}: {endpoint} does not have {address}");
                let other = bed.endpoints.iter().find(|other| *other != endpoint).unwrap();
                assert!(!bound(bed.address(other).ip()), "{path}: {endpoint} has {other}'s address");
            }
        }
    });
}
