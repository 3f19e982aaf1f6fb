//! Random sequences of packets, changes and silences: the program does what the model says, byte for byte.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config as Runs, TestCaseError, TestError, TestRunner};
use rig_datapath::balancer::model::{Model, Route};
use rig_datapath::balancer::{Balancer, CookieSecret, Drop, Pass, Protocol, Sizes};
use rig_wire::ethernet::Mac;
use rig_wire::tcp::flags::{ACK, FIN, RST, SYN};
use serde::{Deserialize, Serialize};

use crate::pool::Pooled;

use super::frames::{CLIENT_MAC, Frame, L4, NEAR_MAC, ethernet, fragments, icmp_error, may_be_fragmented, with_class};
use super::lab::{Lab, MTU, NEIGHBORS, stay_on_one_cpu};
use super::services::configs;
use super::syn_proxy::{Segment, segment};
use super::{config, small};

#[derive(Debug, Clone, Serialize, Deserialize)]
enum Step {
    /// From a client to a service: which client, port and service, which flags, how long, and how it is spoilt.
    In {
        client: u8,
        port: u8,
        service: u8,
        flags: u8,
        payload: u16,
        spoil: Corruption,
    },
    /// From a backend, of a connection that there is.
    Out {
        connection: u16,
        flags: u8,
        payload: u16,
        spoil: Corruption,
    },
    /// An ICMP error: about a packet to a client or, outward, to a backend.
    Error {
        connection: u16,
        outward: bool,
        kind: u8,
        quoted: u8,
    },
    /// A first packet to a service that the SYN proxy may answer, with options.
    Open {
        client: u8,
        port: u8,
        service: u8,
        options: u8,
    },
    /// From a client that the SYN proxy has answered, one of the last: its third packet, or a question, or something near.
    Acknowledge {
        nth: u8,
        probe: bool,
        wrong: u8,
        options: u8,
        flags: u8,
    },
    /// From a client that the SYN proxy has answered, one of the last: a reset with the number that was acknowledged, or something near.
    Refuse {
        nth: u8,
        wrong: u8,
    },
    /// From a backend that the SYN proxy has sent a SYN.
    Accept {
        connection: u16,
        refuse: bool,
        wrong: u8,
        options: u8,
    },
    /// From a backend whose service schedules each datagram by itself, or near it; or an ICMP error about what went there.
    Back {
        backend: u8,
        client: u8,
        payload: u16,
        about: bool,
        spoil: Corruption,
    },
    /// With options, either way.
    Numbers {
        connection: u16,
        outward: bool,
        options: u8,
        flags: u8,
    },
    Later {
        ticks: u16,
    },
    Sweep,
    Change {
        config: u8,
    },
    /// A process watches routes for so many ticks. With routes that do not change this must change nothing.
    Watch {
        ticks: u16,
        generation: u16,
    },
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
enum Corruption {
    Nothing,
    Partial,
    /// A byte of the frame is another one.
    Byte {
        at: u8,
        xor: u8,
    },
    Short {
        by: u8,
    },
    Ttl(u8),
    Vlan,
    NoChecksum,
    MayBeFragmented,
    /// One of the two fragments that it is cut into.
    Part {
        later: bool,
        id: u8,
    },
}

fn spoil() -> impl Strategy<Value = Corruption> {
    prop_oneof![
        12 => Just(Corruption::Nothing),
        2 => Just(Corruption::Partial),
        // From the link's addresses to the payload.
        3 => (0_u8..80, 1_u8..).prop_map(|(at, xor)| Corruption::Byte { at, xor }),
        1 => (1_u8..60).prop_map(|by| Corruption::Short { by }),
        1 => (0_u8..3).prop_map(Corruption::Ttl),
        1 => Just(Corruption::Vlan),
        1 => Just(Corruption::NoChecksum),
        1 => Just(Corruption::MayBeFragmented),
        4 => (any::<bool>(), 0_u8..2).prop_map(|(later, id)| Corruption::Part { later, id }),
    ]
}

/// What a client says: of most that have the length one that is or may be QUIC, with a short or a long header and an ID of some server.
fn said(port: u8, length: u16) -> Vec<u8> {
    let mut bytes = vec![port; length.into()];
    let kind = usize::from(length % 8) + usize::from(port);
    let id = [(port % 3) << 5 | 9, length as u8 / 8 % 2, port % 4, port % 4, port % 4];
    let packet = match kind % 6 {
        0 | 1 => [&[0x40][..], &id].concat(),
        2 => [&[0xe3, 0, 0, 0, 1, 5][..], &id].concat(),
        3 => [&[0xf3, 0x6b, 0x33, 0x43, 0xcf, 2][..], &id].concat(),
        4 => [&[0xc3, 0, 0, 0, 1, 5][..], &id].concat(),
        _ => Vec::new(),
    };
    if packet.len() <= bytes.len() {
        bytes[..packet.len()].copy_from_slice(&packet);
    }
    bytes
}

fn flags() -> impl Strategy<Value = u8> {
    prop_oneof![6 => Just(SYN), 6 => Just(ACK), 2 => Just(FIN | ACK), 1 => Just(RST), 1 => Just(RST | ACK), 1 => Just(SYN | ACK), 1 => any::<u8>()]
}

fn payload() -> impl Strategy<Value = u16> {
    prop_oneof![6 => 0_u16..64, 1 => 1400_u16..1500]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        22 => (0_u8..4, 0_u8..12, 0_u8..33, flags(), payload(), spoil()).prop_map(
            |(client, port, service, flags, payload, spoil)| Step::In { client, port, service, flags, payload, spoil }
        ),
        10 => (any::<u16>(), flags(), payload(), spoil())
            .prop_map(|(connection, flags, payload, spoil)| Step::Out { connection, flags, payload, spoil }),
        4 => (any::<u16>(), any::<bool>(), prop_oneof![4 => Just(3_u8), 2 => Just(1), 2 => Just(2), 2 => Just(4), 1 => 8_u8..13], 20_u8..80)
            .prop_map(|(connection, outward, kind, quoted)| Step::Error { connection, outward, kind, quoted }),
        14 => (0_u8..4, 0_u8..12, 0_u8..13, any::<u8>())
            .prop_map(|(client, port, service, options)| Step::Open { client, port, service, options }),
        12 => (any::<u8>(), any::<bool>(), 0_u8..16, any::<u8>(), flags()).prop_map(
            |(nth, probe, wrong, options, flags)| Step::Acknowledge { nth, probe, wrong, options, flags }
        ),
        4 => (any::<u8>(), 0_u8..8).prop_map(|(nth, wrong)| Step::Refuse { nth, wrong }),
        8 => (any::<u16>(), prop::bool::weighted(0.2), 0_u8..16, any::<u8>())
            .prop_map(|(connection, refuse, wrong, options)| Step::Accept { connection, refuse, wrong, options }),
        5 => (0_u8..6, 0_u8..4, payload(), any::<bool>(), spoil())
            .prop_map(|(backend, client, payload, about, spoil)| Step::Back { backend, client, payload, about, spoil }),
        6 => (any::<u16>(), any::<bool>(), any::<u8>(), flags())
            .prop_map(|(connection, outward, options, flags)| Step::Numbers { connection, outward, options, flags }),
        3 => (0_u16..60).prop_map(|ticks| Step::Later { ticks }),
        2 => Just(Step::Sweep),
        1 => (0_u8..7).prop_map(|config| Step::Change { config }),
        2 => (0_u16..60, 0_u16..3).prop_map(|(ticks, generation)| Step::Watch { ticks, generation }),
    ]
}

fn client(number: u8, v6: bool) -> IpAddr {
    // The last has a neighbour entry.
    let host = [60, 61, 62, 50][usize::from(number)];
    if v6 { format!("fd00::{host}").parse().unwrap() } else { IpAddr::from([10, 0, 0, host]) }
}

/// One of some ports where a service is of any: also those that others at its address or its backends have.
fn asked(mut service: SocketAddr, which: u16) -> SocketAddr {
    if service.port() == 0 {
        service.set_port([7000, 7001, 8080, 80, 90, 53, 83, 0][usize::from(which) % 8]);
    }
    service
}

/// A frame as a step wants it.
fn bytes(mut frame: Frame, spoil: Corruption) -> Vec<u8> {
    // Of all kinds.
    let class = (frame.payload.len() as u8).wrapping_mul(43);
    match spoil {
        Corruption::Partial => return with_class(&frame.partial(), class),
        Corruption::Ttl(ttl) => frame.ttl = ttl,
        Corruption::Vlan => frame.vlan = Some(7),
        _ => {}
    }
    let mut bytes = with_class(&frame.bytes(), class);
    match spoil {
        Corruption::Byte { at, xor } => {
            if let Some(byte) = bytes.get_mut(usize::from(at)) {
                *byte ^= xor;
            }
        }
        Corruption::Short { by } => bytes.truncate((bytes.len() - usize::from(by).min(bytes.len())).max(14)),
        Corruption::MayBeFragmented if frame.source.is_ipv4() => bytes = may_be_fragmented(&bytes),
        Corruption::Part { later, id } => {
            let payload = frame.packet().len() - if frame.source.is_ipv4() { 20 } else { 40 };
            let mut parts = fragments(&bytes, if payload > 16 { &[16] } else { &[] }, id.into());
            bytes = if later { parts.pop() } else { parts.drain(..).next() }.unwrap_or(bytes);
        }
        Corruption::NoChecksum if frame.l4 == L4::Udp => {
            let at = if frame.source.is_ipv4() { 40 } else { 60 };
            bytes[at..at + 2].fill(0);
        }
        _ => {}
    }
    bytes
}

struct ProgramAndModel<'a> {
    lab: &'a mut Lab,
    model: Model,
    services: Vec<(Protocol, SocketAddr)>,
    drops: BTreeMap<Drop, u64>,
    /// The SYN proxy's answers.
    answers: Vec<Segment>,
    log: String,
}

impl ProgramAndModel<'_> {
    fn packet(&mut self, frame: &[u8]) -> Result<(), TestCaseError> {
        let expected = self.model.packet(frame, self.lab.tick);
        let outcome = self.lab.send(frame);
        let _ = writeln!(self.log, "{:?} {:?} {:?}", expected.verdict, expected.drop, expected.pass);
        if let Some(reason) = expected.drop {
            *self.drops.entry(reason).or_default() += 1;
        }
        if expected.drop == Some(Drop::SynAnswered) {
            self.answers.push(Segment::of(&outcome.frame));
        }
        prop_assert_eq!(outcome.verdict, expected.verdict, "{}\nframe {:02x?}\n{:?}", self.log, frame, expected);
        prop_assert_eq!(normal(&outcome.frame), normal(&expected.frame), "{}\nframe {:02x?}", self.log, frame);
        Ok(())
    }

    fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        let _ = write!(self.log, "{step:?} -> ");
        match *step {
            Step::In { client: number, port, service, flags, payload, spoil } => {
                // One more than there are.
                let (protocol, address) = self
                    .services
                    .get(usize::from(service))
                    .copied()
                    .unwrap_or((Protocol::Tcp, "10.0.0.200:81".parse().unwrap()));
                let address = asked(address, payload);
                let source = SocketAddr::new(client(number, address.is_ipv6()), 5000 + u16::from(port));
                let l4 = if protocol == Protocol::Tcp { L4::Tcp(flags) } else { L4::Udp };
                let frame = Frame::new(l4, source, address).payload(&said(port, payload));
                self.packet(&bytes(frame, spoil))
            }
            Step::Out { connection, flags, payload, spoil } => {
                let Some((protocol, source, destination)) = self.answer(connection) else { return Ok(()) };
                let l4 = if protocol == Protocol::Tcp { L4::Tcp(flags) } else { L4::Udp };
                let frame = Frame::new(l4, source, destination).payload(&vec![flags; payload.into()]);
                self.packet(&bytes(frame, spoil))
            }
            Step::Error { connection, outward, kind, quoted } => {
                let known = self.model.connections();
                let Some(nth) = usize::from(connection).checked_rem(known.len()) else { return Ok(()) };
                let (protocol, source, destination) = if outward {
                    let Some((protocol, backend, local)) = self.answer(connection) else { return Ok(()) };
                    (protocol, local, backend)
                } else {
                    let (client, service, ..) = known[nth];
                    let is_at = |port| self.services.iter().find(|(_, at)| *at == SocketAddr::new(service.ip(), port));
                    let known = is_at(service.port()).or_else(|| is_at(0));
                    (known.map_or(Protocol::Tcp, |(protocol, _)| *protocol), service, client)
                };
                let l4 = if protocol == Protocol::Tcp { L4::Tcp(ACK) } else { L4::Udp };
                let about = Frame::new(l4, source, destination).payload(b"quoted");
                let about = Frame { sequence: about.sequence + u32::from(quoted % 4), ..about }.packet();
                let from = if source.is_ipv6() { "fd00::99" } else { "10.0.0.99" };
                // What is too big, of which size; and what else there is, with pointers into headers.
                let (code, at) = (if quoted % 2 == 0 { 4 } else { quoted / 2 % 17 }, u32::from(quoted) - 20);
                let rest = match (kind, source.is_ipv6()) {
                    (4, true) => at,
                    (12, false) => at << 24,
                    _ => 1400,
                };
                let code = if matches!(kind, 4 | 12) { quoted % 3 } else { code };
                let error = icmp_error(from, &source.ip().to_string(), kind, code, rest, &about, quoted.into());
                self.packet(&with_class(&error, quoted.wrapping_mul(43)))
            }
            Step::Back { backend, client: number, payload, about, spoil } => {
                let hosts = [
                    "10.0.0.10:5353",
                    "10.0.0.11:5353",
                    "10.0.0.10:83",
                    "10.0.0.11:5354",
                    "[fd00::10]:83",
                    "10.0.0.12:5353",
                ];
                let source: SocketAddr = hosts[usize::from(backend)].parse().unwrap();
                let client = SocketAddr::new(client(number, source.is_ipv6()), 5000 + payload % 12);
                if about {
                    let about = Frame::new(L4::Udp, client, source).payload(b"quoted").packet();
                    let from = if source.is_ipv6() { "fd00::99" } else { "10.0.0.99" };
                    return self.packet(&icmp_error(
                        from,
                        &client.ip().to_string(),
                        3,
                        4,
                        1400,
                        &about,
                        payload.into(),
                    ));
                }
                self.packet(&bytes(Frame::new(L4::Udp, source, client).payload(&vec![number; payload.into()]), spoil))
            }
            Step::Open { client: number, port, service, options } => {
                let all = [
                    "10.0.0.208:80",
                    "[fd00::208]:80",
                    "10.0.0.209:80",
                    "[fd00::209]:80",
                    "10.0.0.210:80",
                    "10.0.0.207:80",
                    "[fd00::213]:80",
                    "[fd00::215]:80",
                    "[fd00::216]:80",
                    "[fd00::217]:80",
                    "[fd00::208]:81",
                    "10.0.0.218:83",
                    "[fd00::218]:83",
                ];
                let service = all[usize::from(service)];
                let address: SocketAddr = service.parse().unwrap();
                let source = SocketAddr::new(client(number, address.is_ipv6()), 5000 + u16::from(port));
                let segment = Segment { sequence: u32::from(options) << 25, ..segment_between(source, address, SYN) };
                self.packet(&Segment { options: some_options(options), ..segment }.bytes())
            }
            Step::Acknowledge { nth, probe, wrong, options, flags } => {
                let last = self.answers.len().saturating_sub(8);
                let Some(answer) = self.answers[last..].iter().rev().cycle().nth(nth.into()).cloned() else {
                    return Ok(());
                };
                let acknowledged = answer.sequence.wrapping_add(if wrong == 1 { 2 } else { 1 });
                let sequence = answer.acknowledged.wrapping_sub(u32::from(probe)).wrapping_add(u32::from(wrong == 2));
                let flags = if wrong == 3 { flags } else { ACK };
                let payload = vec![1; usize::from(options % 3)];
                let (source, destination) = (answer.destination, answer.source);
                let segment =
                    Segment { source, destination, sequence, acknowledged, flags, window: 300, payload, ..answer };
                self.packet(&Segment { options: some_options(options), ..segment }.bytes())
            }
            Step::Refuse { nth, wrong } => {
                let last = self.answers.len().saturating_sub(8);
                let Some(answer) = self.answers[last..].iter().rev().cycle().nth(nth.into()).cloned() else {
                    return Ok(());
                };
                let sequence = answer.acknowledged.wrapping_add(u32::from(wrong == 1));
                let flags = if wrong == 2 { RST | ACK } else { RST };
                let mut segment = Segment { sequence, ..segment_between(answer.destination, answer.source, flags) };
                if wrong == 3 {
                    segment.source.set_port(segment.source.port() ^ 1);
                }
                self.packet(&segment.bytes())
            }
            Step::Accept { connection, refuse, wrong, options } => {
                let waiting: Vec<_> =
                    (0..self.model.len()).filter(|nth| self.model.waits_for_backend(*nth).is_some()).collect();
                let Some(nth) = usize::from(connection).checked_rem(waiting.len()).map(|at| waiting[at]) else {
                    return Ok(());
                };
                let (Some(isn), Some((_, source, destination))) =
                    (self.model.waits_for_backend(nth), self.model.answer_of(nth))
                else {
                    return Ok(());
                };
                let acknowledged = isn.wrapping_add(if wrong == 1 { 2 } else { 1 });
                let flags = if refuse { RST | if wrong == 2 { 0 } else { ACK } } else { SYN | ACK };
                let flags = if wrong == 3 { ACK } else { flags };
                let segment = Segment {
                    acknowledged,
                    sequence: 0xffff_ff00,
                    window: 65_000,
                    ..segment_between(source, destination, flags)
                };
                self.packet(&Segment { options: some_options(options), ..segment }.bytes())
            }
            Step::Numbers { connection, outward, options, flags } => {
                let Some(nth) = usize::from(connection).checked_rem(self.model.len()) else { return Ok(()) };
                let (client, service, ..) = self.model.connections_in_order()[nth];
                let (source, destination) = match (outward, self.model.answer_of(nth)) {
                    (false, _) => (client, service),
                    (true, Some((Protocol::Tcp, source, destination))) => (source, destination),
                    _ => return Ok(()),
                };
                // Near the client's first number where that matters.
                let near = |far: u32| {
                    let behind = [0, 1, 1, 2, 6, 28, 29, 30, 52, 53, 54, 1 << 31][usize::from(flags ^ options) % 12];
                    self.model
                        .first_number_of(nth)
                        .filter(|_| options % 8 > 0)
                        .map_or(far, |isn| isn.wrapping_add(behind))
                };
                let segment = Segment {
                    acknowledged: if outward { near(77) } else { 77 },
                    sequence: if outward { 0xffff_fff0 } else { near(0xffff_fff0) },
                    window: 5000,
                    payload: vec![options; usize::from(options) % 5],
                    ..segment_between(source, destination, flags)
                };
                self.packet(&Segment { options: some_options(options), ..segment }.bytes())
            }
            Step::Later { ticks } => {
                self.lab.later(ticks.into());
                Ok(())
            }
            Step::Sweep => {
                self.lab.balancer.sweep_all().unwrap();
                self.model.sweep(self.lab.tick);
                self.same_connections()
            }
            Step::Watch { ticks, generation } => {
                self.lab.balancer.pretend_watched(self.lab.tick + u32::from(ticks), generation).unwrap();
                Ok(())
            }
            Step::Change { config } => {
                let config = &configs()[usize::from(config)];
                self.lab.balancer.apply(config).unwrap();
                self.model.apply(config);
                Ok(())
            }
        }
    }

    fn answer(&self, connection: u16) -> Option<(Protocol, SocketAddr, SocketAddr)> {
        self.model.answer_of(usize::from(connection).checked_rem(self.model.len())?)
    }

    fn same_connections(&self) -> Result<(), TestCaseError> {
        let mut ours = Vec::new();
        let each =
            |c: rig_datapath::balancer::Connection| ours.push((c.client, c.service, c.local, c.backend, c.state));
        self.lab.balancer.connections(each).unwrap();
        ours.sort();
        prop_assert_eq!(ours, self.model.connections(), "{}", self.log);
        Ok(())
    }
}

/// A checksum of 0 and one of 0xffff say the same, and which one an incremental update gives depends on its order. The
/// forwarding tests see to it that all of them are right.
fn normal(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let l3 = if frame.get(12..14) == Some(&[0x81, 0]) { 18 } else { 14 };
    let mut zero = |at: usize| {
        if let Some(checksum) = frame.get_mut(at..at + 2)
            && checksum == [0xff, 0xff]
        {
            checksum.fill(0);
        }
    };
    // IPv4's; TCP's, UDP's and ICMP's behind either header.
    for at in [10, 20 + 16, 20 + 6, 20 + 2, 40 + 16, 40 + 6, 40 + 2] {
        zero(l3 + at);
    }
    frame
}

fn segment_between(source: SocketAddr, destination: SocketAddr, flags: u8) -> Segment {
    segment(&source.to_string(), &destination.to_string(), flags)
}

/// Options of a segment, among them such as are not where others have them, and such as end too late.
fn some_options(which: u8) -> Vec<u8> {
    let times = [8, 10, 0, 1, 2, 3, 0xff, 0xff, 0xff, 1];
    let sack = [&[5, 18][..], &[0xff; 8], &[1, 2, 3, 4, 5, 6, 7, 8]].concat();
    let offer = [&[2, 4, 5, 0xb4, 4, 2][..], &times, &[1, 3, 3, which % 16]].concat();
    let mut options = match which % 12 {
        0 => Vec::new(),
        1 => [&[1, 1][..], &times].concat(),
        2 => offer,
        3 => [&[1, 1][..], &times, &[1, 1], &sack].concat(),
        4 => [&[1][..], &times, &sack].concat(),
        5 => [&sack[..], &times].concat(),
        6 => vec![2, 4, 2, 0, 3, 3, 3, 4, 2],
        7 => vec![1; 40],
        8 => vec![5, 40, 1, 2],
        9 => vec![0, 8, 10, 1],
        10 => vec![8, 4, 1, 2, 3, 1, 4, 2],
        _ => [&[3, 3, 14][..], &[254, 7, 0, 0, 0, 0, 0], &times].concat(),
    };
    while options.len() % 4 > 0 {
        options.push(1);
    }
    options
}

/// What the lab's routes and neighbours are.
fn route_to(address: IpAddr, known: Route) -> Result<Route, Drop> {
    let host = match address {
        IpAddr::V4(v4) => match v4.octets() {
            // The network's own, the balancer's, and broadcast.
            [10, 0, 0, 0 | 1 | 255] => return Err(Drop::NoRoute),
            [10, 0, 0, host] => Some(host),
            _ => return Err(Drop::NoRoute),
        },
        IpAddr::V6(v6) => match v6.segments() {
            [0xfd00, 0, 0, 0, 0, 0, 0, 0 | 1] => return Err(Drop::NoRoute),
            // As it was written: fd00::10 is host 10.
            [0xfd00, 0, 0, 0, 0, 0, 0, host] => format!("{host:x}").parse().ok(),
            [0xfd00, 0, 0, 0, ..] => None,
            _ => return Err(Drop::NoRoute),
        },
    };
    if host.is_some_and(|host| NEIGHBORS.contains(&host)) { Ok(known) } else { Err(Drop::NoNeighbor) }
}

/// A sequence with all that its outcome depends on, as a run that fails writes it.
#[derive(Debug, Serialize, Deserialize)]
struct Sequence {
    /// Of the tables' hash, which choose places of connections and some backends.
    hash_keys: Vec<u64>,
    /// The time at its beginning.
    tick: u32,
    steps: Vec<Step>,
}

fn sizes() -> Sizes {
    Sizes { services: 48, backends: 160, ..small() }
}

/// The file of a sequence that is to be played in place of random ones.
const REPLAYED: &str = "NETRIG_TEST_SEQUENCE";

fn play(lab: &mut Lab, steps: &[Step]) -> Result<(), TestCaseError> {
    let route = Route { source: lab.near, destination: lab.far, mtu: MTU as usize };
    lab.balancer.clear().unwrap();
    let (handle, near) = (lab.balancer.handle(), lab.near);
    let own = [IpAddr::from([10, 0, 0, 1]), "fd00::1".parse().unwrap()];
    let hash = Box::new(move |protocol, source, destination| handle.hash(protocol, source, destination));
    let mut model = Model::new(64, (near, MTU as usize), &own, Box::new(move |address| route_to(address, route)), hash);
    let config = &configs()[0];
    let (secret, epoch) = (CookieSecret::from(*b"not known to all"), 1002);
    lab.balancer.set_cookie_secret(secret).unwrap();
    lab.balancer.set_cookie_epoch(epoch).unwrap();
    model.set_cookies(secret, epoch);
    lab.balancer.apply(config).unwrap();
    model.apply(config);
    let services = config.services.iter().map(|service| (service.protocol, service.address)).collect();
    let mut pair =
        ProgramAndModel { lab, model, services, drops: BTreeMap::new(), answers: Vec::new(), log: String::new() };
    for step in steps {
        pair.step(step)?;
    }
    pair.same_connections()?;
    let counted: BTreeMap<Drop, u64> =
        pair.lab.balancer.drops().unwrap().into_iter().filter(|(_, count)| *count > 0).collect();
    prop_assert_eq!(&counted, &pair.drops, "{}", pair.log);
    let refused: u64 = pair.lab.balancer.cpus().unwrap().iter().map(|cpu| cpu.traffic.refused).sum();
    prop_assert_eq!(refused, pair.model.refused(), "{}", pair.log);
    Ok(())
}

/// Writes a sequence that fails to a file, which it names.
fn write_down(hash_keys: &[u64], tick: u32, steps: Vec<Step>) -> String {
    let file = tempfile::Builder::new().prefix("netrig-balancer-").suffix(".json").tempfile().unwrap();
    let sequence = Sequence { hash_keys: hash_keys.to_vec(), tick, steps };
    serde_json::to_writer(file.as_file(), &sequence).unwrap();
    file.into_temp_path().keep().unwrap().display().to_string()
}

fn replay(path: &str) {
    let sequence: Sequence = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let keys = sequence.hash_keys.try_into().unwrap();
    let Some(mut lab) = Lab::with(&config(&[]), || Balancer::load_with_keys(sizes(), keys).map(Pooled::from)) else {
        return;
    };
    stay_on_one_cpu();
    lab.later(sequence.tick - lab.tick);
    if let Err(error) = play(&mut lab, &sequence.steps) {
        panic!("{error}");
    }
}

#[test]
fn the_program_does_what_the_model_says() {
    if let Ok(path) = std::env::var(REPLAYED) {
        return replay(&path);
    }
    let Some(lab) = Lab::new(sizes(), &config(&[])) else { return };
    stay_on_one_cpu();
    // 32 cases of up to 250 steps take some seconds; proptest's own variable says another number.
    let usual = Runs::default();
    let cases = std::env::var_os("PROPTEST_CASES").map_or(32, |_| usual.cases);
    let mut runner = TestRunner::new(Runs { cases, failure_persistence: None, max_shrink_iters: 300, ..usual });
    let steps = prop::collection::vec(step(), 1..250);
    let hash_keys = lab.balancer.hash_keys();
    // When the last one began that failed: what is kept is as short as it became, and fails last.
    let (lab, failed) = (RefCell::new(lab), Cell::new(0));
    let result = runner.run(&steps, |steps| {
        let lab = &mut *lab.borrow_mut();
        let begun = lab.tick;
        play(lab, &steps).inspect_err(|_| failed.set(begun))
    });
    match result {
        Ok(()) => {}
        Err(TestError::Fail(reason, steps)) => {
            let file = write_down(&hash_keys, failed.get(), steps);
            panic!("{reason}\n{file} has the sequence: {REPLAYED}={file} plays it again");
        }
        Err(error) => panic!("{error}"),
    }
}

/// What a run that fails has written is what it has played.
#[test]
fn a_sequence_is_played_again_from_its_file() {
    let mut runner = TestRunner::deterministic();
    let steps: Vec<Step> = prop::collection::vec(step(), 200).new_tree(&mut runner).unwrap().current();
    let path = write_down(&[7; 11], 5_000_000, steps.clone());
    let sequence: Sequence = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!(format!("{:?}", sequence.steps), format!("{steps:?}"));
    replay(&path);
    std::fs::remove_file(path).unwrap();
}

#[test]
fn the_model_leaves_arp_alone() {
    let mut model = Model::new(64, (NEAR_MAC, 1500), &[], Box::new(|_| Err(Drop::NoRoute)), Box::new(|_, _, _| 0));
    let mut frame = ethernet(&[0x45; 20], None);
    let mut for_another = frame.clone();
    for_another[5] ^= 1;
    assert_eq!(model.packet(&for_another, 1).pass, Some(Pass::OtherMac));
    frame[12..14].copy_from_slice(&[8, 6]);
    assert_eq!(model.packet(&frame, 1).pass, Some(Pass::NotIp));
    assert_eq!(frame[6..12], CLIENT_MAC.0);
    assert_ne!(CLIENT_MAC, Mac::default());
}
