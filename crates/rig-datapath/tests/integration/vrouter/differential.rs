//! Random configurations and packets: the programs do what the model says, byte for byte.
//!
//! NETRIG_TEST_SEED gives the seed of a run that is to be repeated, which each run prints; NETRIG_TEST_CASES how many
//! configurations are tried.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::test_runner::{Config as Runs, RngSeed, TestCaseError, TestRunner};
use rig_datapath::vrouter::model::{Egress, FlowEntry, Model, RuleRecord};
use rig_datapath::vrouter::{Config, Encapsulation, Log, Reason, Router, Side, Sizes, Timeouts, Verdict};
use rig_sys::netlink::{Netlink, VethPair};
use rig_sys::netns::{self, NetNs};
use rig_wire::ethernet::Mac;
use rustix::io::Errno;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SocketFlags, SocketType, recv, socket_with};

use super::bytes::{Corruption, InnerPacket, OuterHeader, Transport, address, framed, inner, mac, outer, spoil};
use super::cases;
use super::lab::{Lab, small};
use super::settings::{self, ANALYSERS, INTERFACES, UNDERLAY};
use rig_skip::{Lack, skip};

/// Directions of flows: so few that the table is full now and then.
const FLOWS: u32 = 20;
/// Configurations, each with up to `STEPS` steps.
const CASES: u32 = 64;
const STEPS: usize = 120;

#[derive(Debug, Clone)]
enum Step {
    /// By an interface, one more than there are; from the address that it has, or from another one.
    Send {
        by: u8,
        from: Option<u8>,
        to: u8,
        packet: InnerPacket,
        spoil: Corruption,
    },
    Tunnelled {
        outer: OuterHeader,
        packet: InnerPacket,
        spoil: Corruption,
    },
    /// Of a flow that there is; by the interface or tunnel that it was of.
    Known {
        flow: u16,
        packet: InnerPacket,
        outer: OuterHeader,
    },
    Arp {
        by: u8,
        sender: u8,
        target: u8,
        operation: u8,
        spoil: Corruption,
    },
    /// ARP requests and neighbour solicitations from behind a tunnel.
    PeerAsks {
        outer: OuterHeader,
        sender: u8,
        target: u8,
        operation: u8,
        spoil: Corruption,
    },
    PeerSolicits {
        outer: OuterHeader,
        from: u8,
        target: u8,
        hop_limit: u8,
        options: bool,
        spoil: Corruption,
    },
    Solicit {
        by: u8,
        from: u8,
        target: u8,
        hop_limit: u8,
        options: bool,
        piece: bool,
        spoil: Corruption,
    },
    Later {
        ticks: u16,
    },
    Sweep,
    Change {
        config: u8,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let by = || prop_oneof![20 => 1_u8..5, 1 => Just(5_u8)];
    let to = prop_oneof![8 => Just(0_u8), 2 => 1_u8..9, 2 => Just(9_u8), 1 => 0_u8..13];
    // Nearly all are of networks.
    let asks = || {
        outer().prop_map(|outer| match outer.is_of_frames() {
            true => outer,
            false => OuterHeader { encapsulation: Encapsulation::Vxlan, label: 4242 + outer.label % 4, ..outer },
        })
    };
    let hop_limit = prop_oneof![5 => Just(255_u8), 1 => any::<u8>()];
    let operation = || prop_oneof![6 => Just(1_u8), 1 => any::<u8>()];
    prop_oneof![
        20 => (by(), prop::option::weighted(0.1, 0_u8..13), to, inner(), spoil()).prop_map(|(by, from, to, packet, spoil)| {
            Step::Send { by, from, to, packet, spoil }
        }),
        12 => (outer(), inner(), spoil()).prop_map(|(outer, packet, spoil)| Step::Tunnelled { outer, packet, spoil }),
        12 => (any::<u16>(), inner(), outer()).prop_map(|(flow, packet, outer)| Step::Known { flow, packet, outer }),
        2 => (by(), 0_u8..13, 0_u8..13, operation(), spoil())
            .prop_map(|(by, sender, target, operation, spoil)| Step::Arp { by, sender, target, operation, spoil }),
        2 => (by(), 0_u8..13, 0_u8..13, hop_limit, any::<bool>(), prop::bool::weighted(0.2), spoil()).prop_map(
            |(by, from, target, hop_limit, options, piece, spoil)| {
                Step::Solicit { by, from, target, hop_limit, options, piece, spoil }
            }
        ),
        2 => (asks(), 5_u8..9, 0_u8..13, operation(), spoil()).prop_map(|(outer, sender, target, operation, spoil)| {
            Step::PeerAsks { outer, sender, target, operation, spoil }
        }),
        2 => (asks(), 5_u8..13, 0_u8..13, prop_oneof![5 => Just(255_u8), 1 => any::<u8>()], any::<bool>(), spoil()).prop_map(
            |(outer, from, target, hop_limit, options, spoil)| {
                Step::PeerSolicits { outer, from, target, hop_limit, options, spoil }
            }
        ),
        2 => (0_u16..400).prop_map(|ticks| Step::Later { ticks }),
        2 => Just(Step::Sweep),
        2 => (0_u8..3).prop_map(|config| Step::Change { config }),
    ]
}

struct ProgramAndModel<'a> {
    router: &'a mut Router,
    log: &'a mut Log,
    model: Model,
    configs: &'a [Config],
    applied: Config,
    /// The kernel's numbers of the interfaces, and one that the router does not know.
    indexes: Vec<u32>,
    /// What containers get, in the order of the interfaces.
    containers: &'a [OwnedFd],
    tick: u32,
    text: String,
    /// How many flows' verdicts.
    logged: u64,
    /// Of each analyser; none is reached.
    mirrored: BTreeMap<u8, u64>,
}

impl ProgramAndModel<'_> {
    fn apply(&mut self, config: u8) {
        let mut config = self.configs[usize::from(config) % self.configs.len()].clone();
        for interface in config.interfaces.values_mut() {
            interface.index = self.indexes[interface.index as usize - 1];
        }
        let peers = config.underlay.iter_mut().flat_map(|underlay| underlay.peers.values_mut());
        for peer in peers.filter(|peer| peer.interface == UNDERLAY) {
            peer.interface = self.indexes[UNDERLAY as usize - 1];
        }
        self.router.apply(&config).unwrap();
        self.model.apply(&config);
        self.applied = config;
    }

    fn packet(&mut self, side: Side, by: u8, frame: &[u8]) -> Result<(), TestCaseError> {
        let index = self.indexes[usize::from(by.saturating_sub(1)) % self.indexes.len()];
        // What ends within its IP header the kernel gives to no test run.
        if matches!(frame[12..14], [8, 0]) && frame.len() < 34
            || matches!(frame[12..14], [0x86, 0xdd]) && frame.len() < 54
        {
            return Ok(());
        }
        let expected = self.model.packet(side, index, frame, self.tick);
        let outcome =
            self.router.test_run(side, frame, index).map_err(|error| TestCaseError::fail(format!("{error:?}")))?;
        let _ = writeln!(self.text, "{:?} {:?} {:?}", expected.verdict, expected.reason, expected.out);
        if outcome.verdict != expected.verdict || expected.reason.is_some() {
            self.same_drops(frame)?;
        }
        let logged: Vec<RuleRecord> = self.log.read().unwrap().into_iter().map(RuleRecord::from).collect();
        prop_assert_eq!(&logged, &self.model.logged(), "{}\nframe {:02x?}", self.text, frame);
        self.logged += logged.len() as u64;
        for copy in self.model.mirrored() {
            *self.mirrored.entry(copy.analyser).or_default() += 1;
        }
        prop_assert_eq!(outcome.verdict, expected.verdict, "{}\nframe {:02x?}", self.text, frame);
        if outcome.verdict != Verdict::Drop {
            // The link's addresses of a tunnel's packet are the kernel's to fill in.
            let from = if matches!(expected.out, Some(Egress::Tunnel(_))) { 12 } else { 0 };
            prop_assert_eq!(&outcome.frame[from..], &expected.frame[from..], "{}\nframe {:02x?}", self.text, frame);
        }
        if let Some(Egress::Pieces { count, eights }) = expected.out {
            return self.pieces(index, &expected.frame, (count, eights));
        }
        let members = self.members(side, index);
        for (out, copy) in &expected.copies {
            let got = match out {
                Egress::Pieces { .. } => None,
                Egress::Interface(number) => received(&self.containers[*number as usize - 1]),
                Egress::Tunnel(tunnel) => {
                    let at = members.iter().position(|member| *member == Some(tunnel.peer)).unwrap();
                    let again = self.router.test_run_copy(frame, index, at as u16);
                    let again = again.map_err(|error| TestCaseError::fail(format!("{error:?}")))?;
                    prop_assert_eq!(again.verdict, Verdict::Redirect, "{}\nframe {:02x?}", self.text, frame);
                    Some(again.frame)
                }
            };
            let from = if matches!(out, Egress::Tunnel(_)) { 12 } else { 0 };
            let got = got.as_ref().map(|got| &got[from..]);
            prop_assert_eq!(got, Some(&copy[from..]), "{:?} {}\nframe {:02x?}", out, self.text, frame);
        }
        Ok(())
    }

    /// A packet has come in once more to be cut: each of its pieces.
    fn pieces(&mut self, index: u32, frame: &[u8], (count, eights): (u8, u16)) -> Result<(), TestCaseError> {
        for place in 0..count {
            let expected = self.model.piece(index, frame, (place, eights), self.tick);
            let outcome = self.router.test_run_piece(frame, index, place, eights);
            let outcome = outcome.map_err(|error| TestCaseError::fail(format!("{error:?}")))?;
            prop_assert_eq!(outcome.verdict, expected.verdict, "{} {}\nframe {:02x?}", place, self.text, frame);
            if outcome.verdict != Verdict::Drop {
                let from = if matches!(expected.out, Some(Egress::Tunnel(_))) { 12 } else { 0 };
                let (got, wanted) = (&outcome.frame[from..], &expected.frame[from..]);
                prop_assert_eq!(got, wanted, "{} {}\nframe {:02x?}", place, self.text, frame);
            }
        }
        Ok(())
    }

    /// The receivers of frames to all of an interface's network, in their order: `None` is a member of this node.
    fn members(&self, side: Side, index: u32) -> Vec<Option<Ipv4Addr>> {
        let config = &self.applied;
        let interface = config.interfaces.values().find(|interface| interface.index == index);
        let vrf = interface.filter(|_| side == Side::Container).and_then(|interface| config.vrfs.get(&interface.vrf));
        let Some(flood) = vrf.and_then(|vrf| vrf.flood.as_ref()) else { return Vec::new() };
        flood.members.iter().map(|_| None).chain(flood.peers.keys().map(|peer| Some(*peer))).collect()
    }

    fn same_drops(&self, frame: &[u8]) -> Result<(), TestCaseError> {
        let mut counted = BTreeMap::<(u32, Reason), u64>::new();
        for interface in 0..=INTERFACES {
            for (reason, cpus) in self.router.drops_of(interface).unwrap() {
                let sum = cpus.iter().sum();
                if sum > 0 {
                    counted.insert((interface, reason), sum);
                }
            }
        }
        prop_assert_eq!(&counted, self.model.drops(), "{}\nframe {:02x?}", self.text, frame);
        Ok(())
    }

    fn same_state(&self) -> Result<(), TestCaseError> {
        let mut flows: Vec<FlowEntry> = self.router.flows().into_iter().map(FlowEntry::from).collect();
        flows.sort();
        prop_assert_eq!(flows, self.model.flows(), "{}", self.text);
        for analyser in 1..=ANALYSERS {
            let copies = self.router.mirrored(analyser).unwrap();
            let expected = self.mirrored.get(&analyser).copied().unwrap_or(0);
            prop_assert_eq!((copies.packets, copies.failed), (0, expected), "{}", self.text);
        }
        for interface in 1..=INTERFACES {
            let traffic = self.router.traffic(interface).unwrap();
            prop_assert_eq!(traffic, self.model.traffic(interface), "interface {}\n{}", interface, self.text);
            let connections = self.router.connections(interface).unwrap();
            prop_assert_eq!(connections, self.model.connections(interface) as u64, "{}", self.text);
        }
        prop_assert_eq!(&self.router.sources().unwrap(), self.model.sources(), "{}", self.text);
        for interface in 0..=INTERFACES {
            let copied = self.router.copied(interface).unwrap();
            prop_assert_eq!(copied, self.model.copied(interface), "interface {}\n{}", interface, self.text);
        }
        Ok(())
    }

    fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        let _ = write!(self.text, "{step:?} -> ");
        match step {
            Step::Send { by, from, to, packet, spoil } => {
                // Nearly all send from their own addresses.
                let source = if (1..=4).contains(&packet.source) { *by } else { packet.source };
                let packet = InnerPacket { source, ..packet.clone() };
                let mut frame = framed(mac(*to), mac(from.unwrap_or(*by)), &packet.bytes(), packet.is_v6);
                spoil.apply(&mut frame);
                self.packet(Side::Container, *by, &frame)
            }
            Step::Tunnelled { outer, packet, spoil } => {
                // Nearly all are from elsewhere.
                let source = if (1..=4).contains(&packet.source) { packet.source + 4 } else { packet.source };
                let packet = InnerPacket { source, ..packet.clone() };
                let mut frame = outer.wrap(&packet.bytes(), packet.is_v6);
                spoil.apply(&mut frame);
                self.packet(Side::Underlay, UNDERLAY as u8, &frame)
            }
            Step::Known { flow, packet, outer } => self.known(*flow, packet, outer),
            Step::Arp { by, sender, target, operation, spoil } => {
                let mut frame = arp(*by, *sender, *target, *operation);
                spoil.apply(&mut frame);
                self.packet(Side::Container, *by, &frame)
            }
            Step::Solicit { by, from, target, hop_limit, options, piece, spoil } => {
                let mut frame = solicitation(*by, *from, *target, *hop_limit, (*options, *piece));
                spoil.apply(&mut frame);
                self.packet(Side::Container, *by, &frame)
            }
            Step::PeerAsks { outer, sender, target, operation, spoil } => {
                let mut frame = outer.wrap_frame(&arp(outer.macs.1, *sender, *target, *operation));
                spoil.apply(&mut frame);
                self.packet(Side::Underlay, UNDERLAY as u8, &frame)
            }
            Step::PeerSolicits { outer, from, target, hop_limit, options, spoil } => {
                let question = solicitation(outer.macs.1, *from, *target, *hop_limit, (*options, false));
                let mut frame = outer.wrap_frame(&question);
                spoil.apply(&mut frame);
                self.packet(Side::Underlay, UNDERLAY as u8, &frame)
            }
            Step::Later { ticks } => {
                self.tick += u32::from(*ticks);
                self.router.set_tick(self.tick).unwrap();
                let _ = writeln!(self.text);
                Ok(())
            }
            Step::Sweep => {
                let runs_short = self.tick % 2 == 1;
                let ended = self.router.sweeper().sweep(&Timeouts::default(), runs_short).unwrap();
                let expected = self.model.sweep(&Timeouts::default(), runs_short, self.tick);
                let _ = writeln!(self.text, "{expected}");
                prop_assert_eq!(ended, expected as u64, "{}", self.text);
                self.same_state()
            }
            Step::Change { config } => {
                self.apply(*config);
                let _ = writeln!(self.text);
                Ok(())
            }
        }
    }

    /// A packet of a flow that there is, by its interface, or by a tunnel to it.
    fn known(&mut self, flow: u16, like: &InnerPacket, outer: &OuterHeader) -> Result<(), TestCaseError> {
        let flows = self.model.flows();
        let Some(at) = usize::from(flow).checked_rem(flows.len()) else {
            let _ = writeln!(self.text);
            return Ok(());
        };
        let flow = flows[at];
        let number_of = |of| (0..super::bytes::ADDRESSES).find(|number| address(*number, like.is_v6) == of);
        let is_v6 = flow.source.is_ipv6();
        let like = InnerPacket { is_v6, ..like.clone() };
        let number_of = |of: std::net::IpAddr| {
            number_of(of).or_else(|| (0..super::bytes::ADDRESSES).find(|number| address(*number, is_v6) == of))
        };
        let (Some(source), Some(destination)) = (number_of(flow.source.ip()), number_of(flow.destination.ip())) else {
            let _ = writeln!(self.text, "spoilt");
            return Ok(());
        };
        let port = |of: u16| [80, 443, 5000].iter().position(|port| *port == of).map_or(0, |at| at as u8);
        let above = match (flow.protocol, &like.above) {
            (6, Transport::Tcp(_)) | (17, Transport::Udp) | (1 | 58, Transport::Icmp { .. }) => like.above.clone(),
            (6, _) => Transport::Tcp(0x10),
            (17, _) => Transport::Udp,
            (1 | 58, _) => Transport::Icmp { kind: if is_v6 { 129 } else { 0 }, id: flow.source.port() as u8 },
            (other, _) => Transport::Other(other),
        };
        let ports = (port(flow.source.port()), port(flow.destination.port()));
        let packet = InnerPacket { source, destination, ports, above, off: 0, ..like };
        let frame = framed(mac(0), mac(flow.interface as u8), &packet.bytes(), is_v6);
        // From a container here, or from elsewhere.
        if (1..=4).contains(&source) {
            return self.packet(Side::Container, flow.interface as u8, &frame);
        }
        let label = if outer.encapsulation == Encapsulation::Vxlan { 4242 } else { 99 };
        let label = if label == 99 { label + flow.interface } else { label };
        let outer = OuterHeader { label, off: (0, 0), macs: (flow.interface as u8, 5), ..outer.clone() };
        self.packet(Side::Underlay, UNDERLAY as u8, &outer.wrap(&packet.bytes(), is_v6))
    }
}

/// A frame with a question for an IPv4 address.
fn arp(by: u8, sender: u8, target: u8, operation: u8) -> Vec<u8> {
    let v4 = |number: u8| match address(number, false) {
        IpAddr::V4(v4) => v4.octets(),
        IpAddr::V6(_) => [0; 4],
    };
    let fixed = [0, 1, 8, 0, 6, 4, 0, operation];
    let body = [&fixed[..], &mac(by).0, &v4(sender), &[0; 6], &v4(target), &[0; 18]].concat();
    [&Mac::BROADCAST.0[..], &mac(by).0, &[8, 6], &body].concat()
}

/// One for an IPv6 address, with an option, and in pieces.
fn solicitation(by: u8, from: u8, target: u8, hop_limit: u8, (option, piece): (bool, bool)) -> Vec<u8> {
    let octets = |number: u8| match address(number, true) {
        IpAddr::V6(v6) => v6.octets(),
        IpAddr::V4(_) => [0; 16],
    };
    let mut message = [&[135, 0, 0, 0, 0, 0, 0, 0][..], &octets(target)].concat();
    if option {
        message.extend([&[1, 1][..], &mac(by).0].concat());
    }
    let mut next = 58;
    if piece {
        message = [&[58, 0, 0, 0, 0, 0, 0, 9][..], &message].concat();
        next = 44;
    }
    let length = (message.len() as u16).to_be_bytes();
    let group = "ff02::1:ff00:a".parse::<std::net::Ipv6Addr>().unwrap().octets();
    let header = [&[0x6e, 0, 0, 7][..], &length, &[next, hop_limit], &octets(from), &group].concat();
    framed(Mac([0x33, 0x33, 0xff, 0, 0, 10]), mac(by), &[header, message].concat(), true)
}

/// The next frame of those that a namespace got; none where none comes.
fn received(container: &OwnedFd) -> Option<Vec<u8>> {
    let deadline = Instant::now() + Duration::from_secs(2);
    let mut frame = vec![0; 4096];
    while Instant::now() < deadline {
        match recv(container, &mut *frame, RecvFlags::DONTWAIT) {
            Ok((length, _)) => {
                frame.truncate(length);
                return Some(frame);
            }
            Err(Errno::AGAIN) => thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
    None
}

/// Gets all frames that come in by any interface of the calling thread's namespace.
fn listen() -> OwnedFd {
    /// Of linux/if_ether.h, in network byte order.
    const ALL: u32 = 0x0003_u16.to_be() as u32;
    let all = Protocol::from_raw(ALL.try_into().unwrap());
    socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC, Some(all)).unwrap()
}

/// Interfaces with nothing behind them that sends, so that only the test's frames are counted; and a listening socket behind each.
fn interfaces() -> Option<(Vec<NetNs>, Vec<u32>, Vec<OwnedFd>)> {
    if !netns::may_create_namespaces() {
        skip(Lack::Root, "network namespaces and eBPF programs need it");
        return None;
    }
    // Without IPv6 a namespace says nothing by itself.
    let silent = || {
        let ns = NetNs::create().unwrap();
        let set = || std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").unwrap();
        ns.run(set).unwrap();
        ns
    };
    let mut all = vec![silent()];
    let mut netlink = Netlink::open(&all[0]).unwrap();
    let (mut indexes, mut containers) = (Vec::new(), Vec::new());
    for number in 0..=INTERFACES {
        let (name, other) = (format!("c{number}"), silent());
        netlink.add_veth(&VethPair { name: &name, peer: &name, peer_ns: &other, queues: 1, mtu: 2000 }).unwrap();
        netlink.set_up(&name).unwrap();
        Netlink::open(&other).unwrap().set_up(&name).unwrap();
        indexes.push(netlink.index(&name).unwrap());
        containers.push(other.run(listen).unwrap());
        all.push(other);
    }
    Some((all, indexes, containers))
}

#[test]
fn the_programs_do_what_the_model_says() {
    let Some((namespaces, indexes, containers)) = interfaces() else { return };
    let number = |name: &str| std::env::var(name).ok().map(|value| value.parse::<u64>().expect("a number"));
    let clock = || std::time::UNIX_EPOCH.elapsed().map_or(1, |time| time.as_nanos() as u64);
    let seed = number("NETRIG_TEST_SEED").unwrap_or_else(clock);
    println!("NETRIG_TEST_SEED={seed}");
    let cases = number("NETRIG_TEST_CASES").map_or(CASES, |cases| cases as u32);
    let runs = Runs {
        cases,
        failure_persistence: None,
        max_shrink_iters: 1000,
        // What does not come is waited for.
        max_shrink_time: 30_000,
        rng_seed: RngSeed::Fixed(seed),
        ..Runs::default()
    };
    let all = (prop::collection::vec(settings::config(), 3), prop::collection::vec(step(), 1..STEPS));
    let (met, copies) = (Mutex::new(BTreeMap::<Option<Reason>, u64>::new()), Mutex::new(0));
    let (logged, mirrored) = (AtomicU64::new(0), AtomicU64::new(0));
    let router = match Router::load(Sizes { next_hops: 512, ways: 64, hosts: 256, macs: 128, flows: FLOWS, ..small() })
    {
        Err(error @ rig_datapath::Error::NotPermitted(_)) => return skip(Lack::Root, error),
        router => router.unwrap(),
    };
    let log = router.log().unwrap();
    let both = Mutex::new((router, log));
    // What proptest makes of these strategies needs more stack than threads have.
    let large = std::thread::Builder::new().stack_size(256 << 20);
    let run = || {
        namespaces[0].enter().unwrap();
        TestRunner::new(runs).run(&all, |(configs, steps)| {
            let (router, log) = &mut *both.lock().unwrap_or_else(PoisonError::into_inner);
            let model = Model::new(FLOWS as usize);
            router.clear().unwrap();
            log.read().unwrap();
            let mut pair = ProgramAndModel {
                router,
                log,
                model,
                configs: &configs,
                applied: Config::default(),
                indexes: indexes.clone(),
                containers: &containers,
                tick: 1000,
                text: String::new(),
                logged: 0,
                mirrored: BTreeMap::new(),
            };
            pair.router.set_tick(pair.tick).unwrap();
            pair.apply(0);
            for step in &steps {
                pair.step(step)?;
            }
            pair.same_drops(&[])?;
            pair.same_state()?;
            logged.fetch_add(pair.logged, Ordering::Relaxed);
            mirrored.fetch_add(pair.mirrored.values().sum(), Ordering::Relaxed);
            for container in &containers {
                let more = recv(container, &mut [0_u8; 4096][..], RecvFlags::DONTWAIT).map(|(length, _)| length);
                prop_assert_eq!(more, Err(Errno::AGAIN), "{}", pair.text);
            }
            let mut met = met.lock().unwrap();
            for ((_, reason), count) in pair.model.drops() {
                *met.entry(Some(*reason)).or_default() += count;
            }
            let out: u64 = (1..=INTERFACES).map(|interface| pair.model.traffic(interface).out_packets).sum();
            *met.entry(None).or_default() += out;
            *copies.lock().unwrap() += (0..=INTERFACES).map(|number| pair.model.copied(number).copies).sum::<u64>();
            Ok(())
        })
    };
    let result = std::thread::scope(|scope| large.spawn_scoped(scope, run).unwrap().join().unwrap());
    println!("{:?}, copies {}, {logged:?} logged, {mirrored:?} mirrored", met.lock().unwrap(), copies.lock().unwrap());
    if let Err(error) = result {
        panic!("NETRIG_TEST_SEED={seed} {error}");
    }
}

#[test]
fn what_is_timed_is_what_the_model_says() {
    for encapsulation in Encapsulation::ALL {
        let Some(mut lab) = Lab::new(2, 2, encapsulation) else { return };
        let mut models: Vec<Model> = lab.nodes.iter().map(|_| Model::new(small().flows as usize)).collect();
        let (mut rules, mut applied) = (cases::Rules::default(), false);
        for case in cases::all(encapsulation) {
            let before = rules;
            cases::prepare(&mut lab, &case, &mut rules);
            if before != rules || !applied {
                models.iter_mut().zip(&lab.nodes).for_each(|(model, node)| model.apply(&node.config));
                applied = true;
            }
            let node = &lab.nodes[case.node];
            let index = Netlink::open(&node.ns).unwrap().index(case.interface).unwrap();
            if let Some(port) = case.port_at {
                assert_eq!(case.frame[port as usize..][..2], 1000_u16.to_be_bytes(), "{}", case.name);
            }
            // The first packet begins the flow, the second is of one that is known.
            for _ in 0..2 {
                let expected = models[case.node].packet(case.side, index, &case.frame, 1);
                let outcome = node.ns.run(|| node.router.test_run(case.side, &case.frame, index)).unwrap().unwrap();
                let verdicts = (outcome.verdict, expected.verdict);
                assert_eq!(verdicts, (case.verdict, case.verdict), "{}: {:?}", case.name, expected.reason);
                if case.verdict == Verdict::Redirect {
                    let from = if matches!(expected.out, Some(Egress::Tunnel(_))) { 12 } else { 0 };
                    assert_eq!(outcome.frame[from..], expected.frame[from..], "{}", case.name);
                }
            }
        }
    }
}
