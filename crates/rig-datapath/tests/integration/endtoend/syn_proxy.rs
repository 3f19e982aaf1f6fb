//! The kernel's own TCP on both sides of the SYN proxy.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rig_datapath::balancer::{Drop, ForwardingMethod, Service, SynProxy, Timeouts, TransmitMethod};
use rig_sys::netns::NetNs;
use rig_wire::tcp::flags::SYN;

use super::frames::{Frame, L4};
use super::hostile::Attacker;
use super::lab::{Lab, Plan, Random, TIMEOUT, counter, server, until};
use super::talk::{Conversations, Echo, NewConnections};
use super::unpack::Decapsulator;
use super::{V4, V6, backend, config, full_nat, sizes, tcp};

const PORT: u16 = 7000;
const SERVICE: u16 = 80;
const LENGTH: usize = 6_000_001;

fn proxied(address: &str, forward: ForwardingMethod, port: u16) -> Service {
    let ipv6 = address.contains(':');
    let timeouts = Timeouts {
        time_wait: Duration::from_secs(1),
        close: Duration::from_secs(1),
        fin_wait: Duration::from_secs(1),
        close_wait: Duration::from_secs(1),
        ..Timeouts::default()
    };
    Service {
        syn_proxy: SynProxy::Always,
        timeouts,
        ..tcp(address, SERVICE, forward, vec![backend(server(0, ipv6, port), 1)])
    }
}

fn at(address: &str) -> SocketAddr {
    SocketAddr::new(address.parse::<IpAddr>().unwrap(), SERVICE)
}

fn lab(forward: fn(&str) -> ForwardingMethod) -> Option<Lab> {
    let services = [V4, V6].map(|address| proxied(address, forward(address), PORT));
    let plan = Plan { servers: 1, ..Plan::default() };
    on_veth(Lab::new(plan, sizes(16_384), &config(services)))
}

/// What goes back by the wire that it came by wakes its peer.
fn on_veth(lab: Option<Lab>) -> Option<Lab> {
    let mut lab = lab?;
    lab.balancer.set_back(TransmitMethod::Redirect).unwrap();
    Some(lab)
}

fn connect(client: &NetNs, to: SocketAddr) -> TcpStream {
    let stream = client.run(|| TcpStream::connect_timeout(&to, TIMEOUT).unwrap()).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.set_write_timeout(Some(TIMEOUT)).unwrap();
    stream
}

fn send_all(mut stream: &TcpStream, data: &[u8]) {
    stream.write_all(data).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
}

fn receive_all(mut stream: &TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    all
}

/// Some MB each way at once on one connection.
fn both_ways(lab: &mut Lab, address: &str) {
    let any: SocketAddr = ([0_u16; 8], PORT).into();
    let listener = lab.wires.servers[0].run(|| TcpListener::bind(any).unwrap()).unwrap();
    let client = super::talk::again(&lab.wires.client);
    let to = at(address);
    lab.during(|| {
        let (up, down) = (Random::new(1).bytes(LENGTH), Random::new(2).bytes(LENGTH));
        let (near, far) = thread::scope(|scope| {
            let accepted = scope.spawn(|| {
                let (mut far, _) = listener.accept().unwrap();
                far.read_exact(&mut [0; 5]).unwrap();
                far
            });
            let mut near = connect(&client, to);
            // The client speaks first.
            near.write_all(b"first").unwrap();
            (near, accepted.join().unwrap())
        });
        far.set_read_timeout(Some(TIMEOUT)).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| send_all(&near, &up));
            scope.spawn(|| send_all(&far, &down));
            let arrived = scope.spawn(|| receive_all(&far));
            assert!(receive_all(&near) == down, "what the backend sent");
            assert!(arrived.join().unwrap() == up, "what the client sent");
        });
    });
}

fn translates(forward: fn(&str) -> ForwardingMethod) {
    for address in [V4, V6] {
        let Some(mut lab) = lab(forward) else { return };
        both_ways(&mut lab, address);
        // A SYN may be sent again on a slow machine.
        assert!(lab.dropped(Drop::SynAnswered) >= 1, "{:?}", lab.drops());
        let mut losses = lab.losses();
        losses.retain(|(reason, _)| *reason != Drop::SynAnswered);
        assert_eq!((losses, lab.wires.damage()), (vec![], vec![]));
        // Timestamps are those that both sides expect (RFC 7323, 5.3).
        for ns in [&lab.wires.client, &lab.wires.servers[0]] {
            assert_eq!(counter(ns, "TcpExtPAWSEstab"), 0);
        }
        lab.is_left_clean();
    }
}

#[test]
fn data_goes_both_ways_with_full_nat() {
    translates(full_nat);
}

#[test]
fn data_goes_both_ways_with_nat() {
    translates(|_| ForwardingMethod::Nat);
}

/// The backend's connection is there before the client has said a word.
#[test]
fn the_backend_may_speak_first() {
    let Some(mut lab) = lab(full_nat) else { return };
    let any: SocketAddr = ([0_u16; 8], PORT).into();
    let listener = lab.wires.servers[0].run(|| TcpListener::bind(any).unwrap()).unwrap();
    let client = super::talk::again(&lab.wires.client);
    lab.during(|| {
        for address in [V4, V6] {
            let greeting = thread::scope(|scope| {
                scope.spawn(|| listener.accept().unwrap().0.write_all(b"220 ready").unwrap());
                receive_all(&connect(&client, at(address)))
            });
            assert_eq!(greeting, b"220 ready");
        }
    });
    lab.is_left_clean();
}

/// Its client was connected already, and learns of it by a reset.
#[test]
fn a_backend_that_refuses_resets_the_client() {
    let Some(mut lab) = lab(full_nat) else { return };
    let client = super::talk::again(&lab.wires.client);
    lab.during(|| {
        for address in [V4, V6] {
            let refused = || TcpStream::connect_timeout(&at(address), TIMEOUT)?.read(&mut [0]);
            // The reset may be there before the connection is looked at.
            let error = client.run(refused).unwrap().unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
        }
    });
    lab.is_left_clean();
}

/// A client that uses one port for one connection after the other.
#[test]
fn a_port_that_is_used_again_opens_another_connection() {
    let Some(mut lab) = lab(full_nat) else { return };
    let echo = Echo::start(&lab.wires.servers[0], PORT);
    lab.wires.client.sysctls(&[("net.ipv4.ip_local_port_range", "40000 40003")]).unwrap();
    let client = super::talk::again(&lab.wires.client);
    lab.during(|| {
        client.run(|| {
            for number in 0..24 {
                // Ended by a reset: no port waits in TIME-WAIT.
                let mut stream = TcpStream::connect_timeout(&at(V4), TIMEOUT).unwrap();
                stream.set_read_timeout(Some(TIMEOUT)).unwrap();
                stream.write_all(&[number]).unwrap();
                let mut heard = [0];
                stream.read_exact(&mut heard).unwrap();
                assert_eq!(heard, [number]);
                rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
            }
        })
    })
    .unwrap();
    assert_eq!(echo.accepted.load(Ordering::Relaxed), 24);
    lab.is_left_clean();
}

/// SYNs of one service from addresses that nobody has, some thousands of them.
fn flood(lab: &Lab, address: &str, stop: &AtomicBool) -> u64 {
    let mut attacker = Attacker::new(lab);
    let mut sent = 0;
    while !stop.load(Ordering::Relaxed) && sent < 60_000 {
        let client =
            SocketAddr::new(Ipv4Addr::from_bits(0x0a4d_0000 + (sent as u32 >> 3)).into(), 1024 + (sent & 7) as u16);
        attacker.send(&Frame::new(L4::Tcp(SYN), client, at(address)).bytes());
        sent += 1;
    }
    sent
}

/// A table that the flood is many times as large as.
fn stands_a_flood(syn_proxy: SynProxy, forward: ForwardingMethod) {
    const ROOM: u32 = 4096;
    let blind = forward == ForwardingMethod::Route;
    let port = if blind { SERVICE } else { PORT };
    let service = Service { syn_proxy, ..proxied(V4, forward, port) };
    let plan = Plan { servers: 1, ..Plan::default() };
    let Some(mut lab) = on_veth(Lab::new(plan, sizes(ROOM), &config([service]))) else { return };
    if blind {
        lab.wires.give_services(&[V4]);
    }
    let _echo = Echo::start(&lab.wires.servers[0], port);
    let talk = Conversations::start(&lab.wires.client, &[at(V4)], 8);
    talk.goes_on(1, || lab.tend());
    let arrivals = NewConnections::start(&lab.wires.client, &[at(V4)]);
    let stop = AtomicBool::new(false);
    let mut most = 0;
    let sent = thread::scope(|scope| {
        let lab = &mut lab;
        let attacker = {
            let (lab, stop) = (&*lab, &stop);
            // Tending takes no more than a handle.
            let flood = scope.spawn(move || flood(lab, V4, stop));
            let handle = lab.balancer.handle();
            let tend = || {
                handle.expect_syn_proxy().unwrap();
                handle.turn_cookie_keys().unwrap();
                handle.sweep_all().unwrap();
                most = most.max(handle.occupancy().unwrap());
            };
            let mut tend = tend;
            talk.goes_on(3, &mut tend);
            arrivals.go_on(&mut tend);
            let answers = || handle.drops().unwrap().into_iter().find(|(of, _)| *of == Drop::SynAnswered).unwrap().1;
            until("answers to the flood", || {
                tend();
                answers() > 500
            });
            // Clients come and go while SYNs are answered.
            arrivals.go_on(&mut tend);
            arrivals.go_on(&mut tend);
            stop.store(true, Ordering::Relaxed);
            flood
        };
        attacker.join().unwrap()
    });
    let served = arrivals.finish();
    lab.during(|| talk.finish());
    let answered = lab.dropped(Drop::SynAnswered);
    assert!(served >= 20 && sent > 1000, "{served} served, {sent} sent");
    assert!(answered > 500, "{answered} answered of {sent}");
    assert_eq!(lab.dropped(Drop::TableFull), 0);
    assert!(most < u64::from(ROOM), "{most} places taken");
    let services = lab.balancer.services().unwrap();
    assert!(services[0].refused.contains(&(Drop::SynAnswered, answered)), "{services:?}");
}

#[test]
fn a_flood_leaves_room_for_clients() {
    stands_a_flood(SynProxy::Always, full_nat(V4));
}

#[test]
fn a_flood_is_seen_and_leaves_room_for_clients() {
    stands_a_flood(SynProxy::Auto { from: NonZeroU32::new(256).unwrap() }, full_nat(V4));
}

#[test]
fn a_flood_leaves_room_for_clients_of_backends_that_answer_by_themselves() {
    stands_a_flood(SynProxy::Auto { from: NonZeroU32::new(256).unwrap() }, ForwardingMethod::Route);
}

/// The kernel's client refuses what it is asked to, and sends its SYN again.
fn admits(forward: fn(&str) -> ForwardingMethod) {
    let services = [V4, V6].map(|address| proxied(address, forward(address), SERVICE));
    let plan = Plan { servers: 1, ..Plan::default() };
    let Some(mut lab) = on_veth(Lab::new(plan, sizes(16_384), &config(services))) else { return };
    lab.wires.give_services(&[V4, V6]);
    let tunnels = matches!(forward(V4), ForwardingMethod::Tunnel { .. });
    let _unpacker = tunnels.then(|| Decapsulator::start(&lab.wires.servers[0]));
    let echo = Echo::start(&lab.wires.servers[0], SERVICE);
    let client = super::talk::again(&lab.wires.client);
    lab.during(|| {
        for address in [V4, V6, V4, V6] {
            let mut stream = connect(&client, at(address));
            stream.write_all(b"x").unwrap();
            let mut heard = [0];
            stream.read_exact(&mut heard).unwrap();
            assert_eq!(&heard, b"x");
        }
    });
    assert_eq!(echo.accepted.load(Ordering::Relaxed), 4);
    // One for each address; on a slow machine some may be sent again.
    assert!(lab.dropped(Drop::Admitted) >= 2 && lab.dropped(Drop::SynAnswered) >= 2, "{:?}", lab.drops());
    assert_eq!(lab.wires.damage(), []);
    lab.is_left_clean();
}

#[test]
fn clients_of_a_routed_service_are_admitted() {
    admits(|_| ForwardingMethod::Route);
}

#[test]
fn clients_of_a_tunneled_service_are_admitted() {
    admits(super::tunnel);
}
