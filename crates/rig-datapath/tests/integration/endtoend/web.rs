//! Pages of nginx, fetched by curl and wrk, arrive whole in every way of forwarding, and datagrams do.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rig_datapath::balancer::{ForwardingMethod, GUE_PORT, Protocol, Service, TunnelHeader};
use rig_sys::netns::NetNs;

use super::lab::{Lab, Plan, Random, TIMEOUT, server};
use super::programs::{Nginx, Pages, fetch, has_web, run_well};
use super::unpack::Decapsulator;
use super::{V4, V6, backend, config, full_nat, sizes, tcp, tunnel};

/// Both families of one service, forwarded in this way to two servers.
fn web(forward: impl Fn(&str) -> ForwardingMethod, port: u16) -> Vec<Service> {
    let one = |address: &str, ipv6| {
        let backends = (0..2).map(|number| backend(server(number, ipv6, port), 1)).collect();
        tcp(address, 80, forward(address), backends)
    };
    vec![one(V4, false), one(V6, true)]
}

fn pages_arrive_whole(plan: Plan, forward: impl Fn(&str) -> ForwardingMethod) {
    if !has_web() {
        return;
    }
    let blind = matches!(forward(V4), ForwardingMethod::Route | ForwardingMethod::Tunnel { .. });
    let tunnels = matches!(forward(V4), ForwardingMethod::Tunnel { .. });
    let mut services = web(forward, if blind { 80 } else { 8080 });
    if tunnels && plan.offload {
        // One of each, and one by IP in IP. The servers' kernels, which see outer packets, too, count those of IPv6 without a checksum.
        let gue = |checksum| TunnelHeader::Gue { port: GUE_PORT, checksum };
        services[0].backends[0].encapsulation.header = gue(false);
        services[1].backends[0].encapsulation.header = TunnelHeader::Gre;
        services[1].backends[1].encapsulation.header = gue(true);
    }
    let Some(mut lab) = Lab::new(plan, sizes(4096), &config(services)) else { return };
    if blind {
        lab.wires.give_services(&[V4, V6]);
    }
    let _unpackers: Vec<Decapsulator> =
        if tunnels { lab.wires.servers.iter().map(Decapsulator::start).collect() } else { Vec::new() };
    let pages = Pages::new();
    let names = ["first", "second"];
    let _servers: Vec<Nginx> =
        lab.wires.servers.iter().zip(names).map(|(ns, name)| Nginx::start(ns, name, &pages)).collect();
    let client = NetNs::open(format!("/proc/self/fd/{}", lab.wires.client.raw_fd())).unwrap();
    let seen = lab.during(|| {
        let directory = tempfile::tempdir().unwrap();
        let mut seen = BTreeSet::new();
        for service in [V4.to_owned(), format!("[{V6}]")] {
            for name in pages.names {
                let expected = pages.content(name);
                for _ in 0..4 {
                    let (body, backend) = fetch(&client, &format!("http://{service}/{name}"), directory.path());
                    assert!(body == expected, "{name} from {backend}: {} of {} bytes", body.len(), expected.len());
                    seen.insert((service.clone(), backend));
                }
            }
            let url = format!("http://{service}/kilobyte");
            let said = run_well(&client, "wrk", &["-t1", "-c32", "-d1s", "--timeout", "30s", &url]);
            assert!(!said.contains("Socket errors") && !said.contains("Non-2xx"), "{said}");
            assert!(!said.contains(" 0 requests in"), "{said}");
        }
        seen
    });
    assert_eq!(seen.len(), 4, "{seen:?}");
    assert_eq!(lab.wires.damage(), []);
    assert_eq!(lab.losses(), []);
    let services = lab.balancer.services().unwrap();
    assert!(services.iter().all(|service| service.traffic.connections >= 12 + 32), "{services:?}");
    let answers = services.iter().all(|service| (service.traffic.out_packets > 0) != blind);
    assert!(answers, "{services:?}");
}

#[test]
fn pages_by_full_nat() {
    pages_arrive_whole(Plan::default(), full_nat);
}

#[test]
fn pages_by_full_nat_without_offloads() {
    pages_arrive_whole(Plan { offload: false, ..Plan::default() }, full_nat);
}

#[test]
fn pages_by_nat() {
    pages_arrive_whole(Plan::default(), |_| ForwardingMethod::Nat);
}

#[test]
fn pages_by_direct_routing_without_offloads() {
    pages_arrive_whole(Plan { offload: false, ..Plan::default() }, |_| ForwardingMethod::Route);
}

#[test]
fn pages_through_tunnels_without_offloads() {
    pages_arrive_whole(Plan { server_mtu: 1600, offload: false, ..Plan::default() }, tunnel);
}

#[test]
fn pages_by_direct_routing() {
    pages_arrive_whole(Plan::default(), |_| ForwardingMethod::Route);
}

/// The wires behind the balancer are wide enough for what it adds.
#[test]
fn pages_through_tunnels() {
    pages_arrive_whole(Plan { server_mtu: 1600, ..Plan::default() }, tunnel);
}

/// Sends datagrams back until told to stop.
fn echo(socket: &UdpSocket, stop: &AtomicBool) {
    socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let mut buffer = [0; 2000];
    while !stop.load(Ordering::Relaxed) {
        if let Ok((length, from)) = socket.recv_from(&mut buffer) {
            socket.send_to(&buffer[..length], from).unwrap();
        }
    }
}

fn datagrams_come_back(plan: Plan, forward: impl Fn(&str) -> ForwardingMethod) {
    let services: Vec<Service> =
        web(forward, 7).into_iter().map(|service| Service { protocol: Protocol::Udp, ..service }).collect();
    let Some(mut lab) = Lab::new(plan, sizes(4096), &config(services)) else { return };
    let bound: Vec<UdpSocket> = lab
        .wires
        .servers
        .iter()
        .zip(0..)
        .flat_map(|(ns, number)| {
            [false, true].map(|ipv6| ns.run(|| UdpSocket::bind(server(number, ipv6, 7)).unwrap()).unwrap())
        })
        .collect();
    let client = NetNs::open(format!("/proc/self/fd/{}", lab.wires.client.raw_fd())).unwrap();
    let stop = AtomicBool::new(false);
    lab.during(|| {
        thread::scope(|scope| {
            bound.iter().for_each(|socket| drop(scope.spawn(|| echo(socket, &stop))));
            let _stop = Stop(&stop);
            for at in [V4, V6] {
                let at = SocketAddr::new(at.parse::<IpAddr>().unwrap(), 80);
                let any: SocketAddr = if at.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }.parse().unwrap();
                let mut random = Random::new(7);
                for length in [0, 1, 2, 511, 1000, 1400, 1452] {
                    let socket = client.run(|| UdpSocket::bind(any).unwrap()).unwrap();
                    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
                    let sent = random.bytes(length);
                    socket.send_to(&sent, at).unwrap();
                    let mut buffer = [0; 2000];
                    let (received, from) = socket.recv_from(&mut buffer).unwrap();
                    assert_eq!((&buffer[..received], from), (&sent[..], at));
                }
            }
        });
    });
    assert_eq!(lab.wires.damage(), []);
    assert_eq!(lab.losses(), []);
}

struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn datagrams_by_full_nat() {
    datagrams_come_back(Plan::default(), full_nat);
}

#[test]
fn datagrams_by_full_nat_without_offloads() {
    datagrams_come_back(Plan { offload: false, ..Plan::default() }, full_nat);
}

#[test]
fn datagrams_by_nat() {
    datagrams_come_back(Plan::default(), |_| ForwardingMethod::Nat);
}
