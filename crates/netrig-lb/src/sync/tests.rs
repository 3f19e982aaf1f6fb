//! Balancers of one process that share connections over loopback.

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use rig_datapath::balancer::{Backend, Balancer, Clock, Config, ForwardingMethod, Protocol, Service, Sizes, State};
use rig_skip::{Lack, skip};
use rig_sys::netns::{self, NetNs};

use super::wire::{self, Header, Hello, Key, MessageRefusal};
use super::{Sync, SyncSettings};
use crate::message::{PeerState, SyncStatus};

const TIMEOUT: Duration = Duration::from_secs(120);
const KEY: [u8; 32] = [0x5a; 32];
const SERVICE: [u8; 4] = [192, 0, 2, 1];

#[track_caller]
fn until(what: &str, mut is: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !is() {
        assert!(Instant::now() < deadline, "{what}: it does not come");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn config(backends: u8) -> Config {
    let backend = |host| Backend::new(SocketAddr::from(([10, 0, 0, host], 80)), 1);
    let service = Service::new(
        Protocol::Tcp,
        SocketAddr::from((SERVICE, 80)),
        ForwardingMethod::FullNat { local: vec![[10, 0, 1, 1].into(), [10, 0, 1, 2].into()] },
        (1..=backends).map(backend).collect(),
    );
    Config { services: vec![service], ..Config::default() }
}

/// `None`, said aloud, where eBPF programs cannot be loaded.
fn balancer(backends: u8) -> Option<Balancer> {
    let loaded = Balancer::load(Sizes { connections: 1 << 17, ..Sizes::default() });
    let mut balancer = match loaded {
        Err(error @ rig_datapath::Error::NotPermitted(_)) => {
            skip(Lack::Root, error);
            return None;
        }
        loaded => loaded.unwrap(),
    };
    balancer.apply(&config(backends)).unwrap();
    Some(balancer)
}

/// A packet to the service: of loopback, whose address is zeros.
fn frame(client: u32, port: u16, flags: u8) -> Vec<u8> {
    let mut frame = vec![0; 54];
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14..16].copy_from_slice(&[0x45, 0]);
    frame[16..18].copy_from_slice(&40_u16.to_be_bytes());
    frame[22..24].copy_from_slice(&[64, 6]);
    frame[26..30].copy_from_slice(&client.to_be_bytes());
    frame[30..34].copy_from_slice(&SERVICE);
    frame[34..36].copy_from_slice(&port.to_be_bytes());
    frame[36..38].copy_from_slice(&80_u16.to_be_bytes());
    (frame[46], frame[47]) = (0x50, flags);
    frame
}

const SYN: u8 = 2;
const ACK: u8 = 16;
const FIRST_CLIENT: u32 = 0xc633_6401;

/// Opens established connections: 1000 of each client.
fn open(balancer: &Balancer, connections: std::ops::Range<u32>) {
    for n in connections {
        for flags in [SYN, ACK] {
            balancer.test_run(&frame(FIRST_CLIENT + n / 1000, 10_000 + (n % 1000) as u16, flags), None).unwrap();
        }
    }
}

type Pairs = BTreeMap<SocketAddr, (SocketAddr, Option<SocketAddr>, State)>;

/// Each client with its backend, its local address and port, and the state.
fn all(balancer: &Balancer) -> Pairs {
    let mut all = BTreeMap::new();
    let note = |_, record: Option<rig_datapath::balancer::TableRecord>| {
        all.extend(
            record.map(|of| (of.connection.client, (of.connection.backend, of.connection.local, of.connection.state))),
        );
        ControlFlow::Continue(())
    };
    balancer.records(note).unwrap();
    all
}

/// `(active, others)`, by backend.
fn loads(balancer: &Balancer) -> Vec<(u32, u32)> {
    let services = balancer.services().unwrap();
    services.iter().flat_map(|service| &service.backends).map(|backend| (backend.active, backend.inactive)).collect()
}

/// A network namespace with loopback alone, which the thread stays in; false, said aloud, where there can be none.
fn enter_world() -> bool {
    if !netns::may_create_namespaces() {
        skip(Lack::Root, "network namespaces and eBPF programs need it");
        return false;
    }
    let here = NetNs::create().unwrap();
    here.enter().unwrap();
    rig_sys::netlink::Netlink::here().unwrap().set_up("lo").unwrap();
    true
}

fn settings(own: u8, peers: &[u8]) -> SyncSettings {
    SyncSettings {
        address: at(own),
        peers: peers.iter().map(|peer| at(*peer)).collect(),
        key: "/etc/netrig/sync.key".into(),
        interval: Duration::from_millis(100),
        after: Duration::ZERO,
        full: Duration::from_secs(600),
        rate: 1 << 30,
    }
}

fn start(balancer: &Balancer, settings: &SyncSettings) -> Sync {
    Sync::start(balancer.handle(), settings, KEY, false).unwrap()
}

fn at(host: u8) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, host], 8849))
}

fn count(status: &SyncStatus, why: MessageRefusal) -> u64 {
    status.refused.iter().find(|of| of.reason == why.key()).map_or(0, |of| of.count)
}

fn is_up(sync: &Sync) -> bool {
    sync.status().peers.iter().all(|peer| peer.state == PeerState::Up)
}

/// A hundred thousand connections are at the other balancer as they are here, are counted there, and come back to one that has lost them;
/// clocks differ.
#[test]
fn a_balancer_has_the_connections_of_another_and_gives_them_back() {
    const MANY: u32 = 100_000;
    if !enter_world() {
        return;
    }
    let (Some(mut first), Some(mut second)) = (balancer(4), balancer(4)) else { return };
    first.set_clock(Clock::Fixed(9_000_000)).unwrap();
    second.set_clock(Clock::Fixed(1_000)).unwrap();
    open(&first, 0..MANY / 2);
    let one = start(&first, &settings(1, &[2]));
    let other = start(&second, &settings(2, &[1]));
    // What was there before they met, and what comes later.
    open(&first, MANY / 2..MANY);
    until("all connections", || second.occupancy().unwrap() == u64::from(MANY));
    let there = all(&first);
    assert_eq!(there.len(), MANY as usize);
    assert_eq!(all(&second), there);
    assert_eq!(loads(&second), [(MANY / 4, 0); 4]);
    // Those that have no answer are not shared.
    first.test_run(&frame(1, 1, SYN), None).unwrap();
    until("a look", || other.status().others == u64::from(MANY) && one.status().own == u64::from(MANY) + 1);
    assert_eq!(other.status().own, 0);
    let sent = &one.status().peers[0];
    // Of IPv4 with a local address: 32 bytes, and as many to a datagram as docs/BALANCER.md says.
    assert!(sent.sent_bytes / sent.sent_records < 36, "{sent:?}");

    // The first dies, and what its clients send comes to the second.
    drop(one);
    drop(first);
    second.set_clock(Clock::Fixed(1_100)).unwrap();
    for n in 0..1000 {
        second.test_run(&frame(FIRST_CLIENT, 10_000 + n, ACK), None).unwrap();
    }
    assert_eq!(second.services().unwrap()[0].traffic.connections, 0);
    until("a look", || other.status().own == 1000);
    // It comes back, and gets them all: those of others, too, which were its own.
    let Some(mut first) = balancer(4) else { return };
    first.set_clock(Clock::Fixed(77)).unwrap();
    let one = start(&first, &settings(1, &[2]));
    // It is not to be sent packets before.
    until("the end of a pass", || !one.is_settling());
    assert_eq!(first.occupancy().unwrap(), u64::from(MANY));
    assert_eq!(all(&first), there);
    assert_eq!(loads(&first), [(MANY / 4, 0); 4]);
    drop((one, other));
}

/// A message that was lost is made up for by the next pass; the receiver's backends need not be the sender's.
#[test]
fn what_was_lost_comes_again_and_unknown_backends_are_counted() {
    if !enter_world() {
        return;
    }
    let (Some(first), Some(mut second)) = (balancer(4), balancer(2)) else { return };
    open(&first, 0..400);
    let full = |own, peer| SyncSettings { full: Duration::from_secs(1), ..settings(own, &[peer]) };
    let one = start(&first, &full(1, 2));
    let _other = start(&second, &full(2, 1));
    let of_known = || second.occupancy().unwrap() == 200;
    until("connections of known backends", of_known);
    second.apply(&config(4)).unwrap();
    until("those of the others", || second.occupancy().unwrap() == 400);
    let status = _other.status();
    let refused = &status.peers[0].refused;
    assert!(refused.iter().any(|of| of.reason == "no_backend" && of.count >= 200), "{refused:?}");
    until("a second pass", || one.status().peers[0].passes >= 2);
}

/// Garbage, other versions, forged, replayed and reflected messages are dropped and counted, whoever sends them; the peer is heard all the
/// same.
#[test]
fn hostile_messages_are_counted_and_dropped() {
    if !enter_world() {
        return;
    }
    let (Some(first), Some(second)) = (balancer(4), balancer(4)) else { return };
    // The peer's own messages pass through this socket, so that they can be kept.
    let between = UdpSocket::bind(at(9)).unwrap();
    between.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    // What the flood has in its way is made up for.
    let of = |own| SyncSettings { full: Duration::from_secs(1), ..settings(own, &[9]) };
    let victim = start(&second, &of(2));
    let peer = start(&first, &of(1));
    let mut kept: Vec<Vec<u8>> = Vec::new();
    let mut buffer = [0; 2048];
    let mut relay = |kept: &mut Vec<Vec<u8>>| {
        while let Ok((length, from)) = between.recv_from(&mut buffer) {
            let to = if from == at(1) { at(2) } else { at(1) };
            if to == at(2) {
                kept.push(buffer[..length].to_vec());
            }
            between.send_to(&buffer[..length], to).unwrap();
        }
    };
    until("the peers", || {
        relay(&mut kept);
        is_up(&victim) && is_up(&peer)
    });
    open(&first, 0..100);
    until("connections", || {
        relay(&mut kept);
        second.occupancy().unwrap() == 100
    });
    let before = all(&second);
    let expects = |why: MessageRefusal, messages: &[Vec<u8>]| {
        let had = count(&victim.status(), why);
        for message in messages {
            between.send_to(message, at(2)).unwrap();
        }
        until(why.key(), || count(&victim.status(), why) >= had + messages.len() as u64);
    };
    let records = kept.iter().filter(|message| message[5] == 2).max_by_key(|message| message.len()).unwrap().clone();
    let changed = |at: usize, byte: u8| {
        let mut changed = records.clone();
        changed[at] = byte;
        changed
    };
    expects(MessageRefusal::Replayed, std::slice::from_ref(&records));
    expects(MessageRefusal::Version, &[changed(4, 2)]);
    expects(MessageRefusal::Code, &[changed(40, records[40] ^ 1), records[..60].to_vec()]);
    expects(
        MessageRefusal::Foreign,
        &[Vec::new(), records[..20].to_vec(), b"GET / HTTP/1.0\r\n\r\n".to_vec(), vec![7; 1401]],
    );
    let header = Header { session: 77, to: 88, sequence: 1 };
    let hello = Hello { challenge: 5, echo: 6, share: 1, of: 1 };
    expects(MessageRefusal::Code, &[wire::hello(&Key::new([1; 32]), header, hello)]);
    // With the right key, but of no session.
    expects(MessageRefusal::Session, &[wire::records(&Key::new(KEY), header, 0, &[])]);
    let (of_victim, _) = wire::open(&Key::new(KEY), &records).unwrap();
    let reflected = Header { session: of_victim.to, to: of_victim.session, sequence: 1 };
    expects(MessageRefusal::Reflected, &[wire::hello(&Key::new(KEY), reflected, hello)]);
    let stranger = UdpSocket::bind(at(7)).unwrap();
    let had = count(&victim.status(), MessageRefusal::Stranger);
    stranger.send_to(&records, at(2)).unwrap();
    until("a stranger", || count(&victim.status(), MessageRefusal::Stranger) == had + 1);
    // A flood of it.
    let mut random = 1_u64;
    for n in 0..20_000_usize {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let garbage: Vec<u8> = (0..n % 1500).map(|at| (random >> (at % 57)) as u8 ^ at as u8).collect();
        drop(stranger.send_to(&garbage, at(2)));
        let at_byte = random as usize % records.len();
        drop(between.send_to(&changed(at_byte, records[at_byte] ^ 0x80), at(2)));
    }
    assert_eq!(all(&second), before);
    // All that was said, again and again: nothing of it is believed, and the peer goes on.
    for message in kept.iter().chain(&kept) {
        between.send_to(message, at(2)).unwrap();
    }
    open(&first, 100..200);
    until("connections", || {
        relay(&mut kept);
        second.occupancy().unwrap() == 200
    });
    assert!(is_up(&victim));
    assert_eq!((victim.status().peers[0].created, all(&second)), (200, all(&first)));
}
