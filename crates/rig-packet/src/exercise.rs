//! An engine against a peer that does anything: for fuzzing.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use rig_wire::checksum::{self, Checksum};
use rig_wire::ethernet::{self, Ethernet, Mac};
use rig_wire::protocol;
use rig_wire::tcp::{self, Header, Options, Tcp, flags};
use rig_wire::udp::{self, Udp};

use super::config::{
    Client, CloseMethod, Config, Load, MessageEnd, RequestRepeat, Server, Service, TcpClient, TcpServer, TcpTimes,
    TupleOrder, UdpClient, UdpServer,
};
use super::engine::Engine;
use super::family::link::{Gateway, Link};
use super::family::{Family, V4, V6};
use super::http::{self, Method};
use super::memory::{self, Memory};
use super::plan::AnswerScope;
use super::port::{Port, Receive, Transmit};
use super::{Nanos, Payload};

const OURS: Mac = Mac([2, 0, 0, 0, 0, 1]);
const THEIRS: Mac = Mac([2, 0, 0, 0, 0, 2]);
const MILLISECOND: Nanos = 1_000_000;
/// Ports of clients: as many connections are there at most.
const FLOWS: usize = 4;
const CLIENTS: u16 = 10_000;
const SERVER: u16 = 80;
/// Frames that one pass may send: a window for each connection, and what timers and the schedule add.
const BURST: usize = FLOWS * 24;
/// After so many steps a script ends.
const STEPS: usize = 500;

/// What a flow's next numbers are.
#[derive(Debug, Clone, Copy, Default)]
struct Flow {
    /// Of the peer.
    next: u32,
    /// Of the engine, as the peer has heard.
    expected: u32,
}

/// Plays `script`: its first byte chooses the engine, and each step is a byte and what follows of it: segments, in order
/// or not, datagrams, errors, anything else, and time that passes. Panics when the engine panics, sends without end,
/// sends what is no packet, loses count of its connections, or keeps one for ever that its peer has left. Returns how many
/// responses it received or sent.
pub fn exercise(script: &[u8]) -> u64 {
    let (&choice, steps) = script.split_first().unwrap_or((&0, &[]));
    if choice & 4 == 0 {
        ExerciseState::<V4>::new(choice, (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2))).run(steps)
    } else {
        let address = |n| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n);
        ExerciseState::<V6>::new(choice, (address(1), address(2))).run(steps)
    }
}

struct ExerciseState<F: Family> {
    engine: Engine<F>,
    ours: Memory,
    theirs: Memory,
    now: Nanos,
    is_client: bool,
    ends: (F::Address, F::Address),
    flows: [Flow; FLOWS],
}

fn service(choice: u8) -> Service {
    let says = |bit: u8| choice >> bit & 1 == 1;
    let (stays, large, bare, reset) = (says(3), says(4), says(5), says(6));
    let times =
        TcpTimes { time_wait: if says(7) { Duration::from_secs(5) } else { Duration::ZERO }, ..TcpTimes::default() };
    let expect = if bare { MessageEnd::Segment } else { MessageEnd::Http };
    let client = Client {
        ports: CLIENTS..=CLIENTS + FLOWS as u16 - 1,
        server_ports: SERVER..=SERVER,
        load: Load { hold: Some(FLOWS as u32), ..Load::new(100.0) },
        repeat: stays.then_some(RequestRepeat { requests: Some(3), ..RequestRepeat::every(Duration::from_millis(50)) }),
        walk: TupleOrder::Ports,
        flood: None,
    };
    let server = Server { ports: SERVER..=SERVER };
    let method = if large { Method::Post } else { Method::Get };
    match choice & 3 {
        0 => Service::TcpClient(TcpClient {
            client,
            times,
            request: http::request(method, "netrig", "/", if large { 600 } else { 85 }).into(),
            response: expect,
            close: if reset { CloseMethod::Reset } else { CloseMethod::Fin },
            delayed_ack: Duration::from_millis(10),
            mss: 1000,
            resets: true,
        }),
        1 => Service::TcpServer(TcpServer {
            server,
            times,
            request: expect,
            response: http::response(&vec![b'b'; if large { 30_000 } else { 14 }], !stays).into(),
            close: !stays,
            idle: Duration::from_secs(20),
            window: 16,
            mss: 1000,
            resets: true,
        }),
        2 => Service::UdpClient(UdpClient { client, request: Payload::Filler(18), timeout: Duration::from_secs(2) }),
        _ => Service::UdpServer(UdpServer { server, response: Payload::Filler(18), one_way: false }),
    }
}

impl<F: Family> ExerciseState<F> {
    fn new(choice: u8, ends: (F::Address, F::Address)) -> Self {
        let link = Link {
            mac: OURS,
            address: ends.0,
            answer: AnswerScope::All,
            announce: false,
            vlan: None,
            gateway: Gateway::Known(THEIRS),
            hop_limit: 64,
            tos: 0,
            verify: false,
            tunnel: None,
        };
        let config = Config {
            link,
            local: vec![(ends.0, 1)],
            remote: vec![(ends.1, 1)],
            capacity: FLOWS as u32,
            service: service(choice),
            steering: None,
        };
        let now = 1000 * MILLISECOND;
        let engine = Engine::new(config, now).expect("each choice is a configuration");
        let (ours, theirs) = memory::pair(64);
        let flows = [Flow { next: u32::MAX - 50, expected: 0 }; FLOWS];
        Self { engine, ours, theirs, now, is_client: choice & 1 == 0, ends, flows }
    }

    fn run(mut self, mut steps: &[u8]) -> u64 {
        self.pass(MILLISECOND);
        for _ in 0..STEPS {
            let Some(step) = take(&mut steps, 1).first().copied() else { break };
            self.step(step, &mut steps);
        }
        // The peer is silent from here: every connection ends.
        self.engine.wind_down();
        for _ in 0..200 {
            self.pass(1000 * MILLISECOND);
        }
        assert_eq!(self.engine.counters().sk_con(), 0, "a connection stays: {:?}", self.engine.counters());
        let counters = self.engine.counters();
        counters.tcp_rsp + if self.is_client { counters.udp_rx } else { counters.udp_tx }
    }

    fn step(&mut self, step: u8, steps: &mut &[u8]) {
        let n = usize::from(step >> 3) % FLOWS;
        let Flow { next, expected } = self.flows[n];
        let mut number = || take(steps, 1).first().copied().unwrap_or_default();
        match step & 7 {
            0 => {
                let length = usize::from(number());
                let bytes = take(steps, length).to_vec();
                self.give(&bytes);
            }
            1 => {
                let [bits, sequence, acknowledgment, window, length] = [(); 5].map(|()| number());
                let near = |number: u32, by: u8| number.wrapping_add_signed((by as i8).into());
                let (sequence, acknowledgment) = (near(next, sequence), near(expected, acknowledgment));
                let data = take(steps, length.into());
                self.segment(n, (sequence, acknowledgment), bits, u16::from(window) << 4, data);
            }
            2 => {
                let length = usize::from(number()) * if step & 0x80 == 0 { 1 } else { 5 };
                let data = take(steps, length);
                self.segment(n, (next, expected), flags::PSH | flags::ACK, u16::MAX, data);
                self.flows[n].next = next.wrapping_add(data.len() as u32);
            }
            3 => {
                let bits = if self.is_client { flags::SYN | flags::ACK } else { flags::SYN };
                self.segment(n, (next, expected), bits, u16::MAX, &[]);
                self.flows[n].next = next.wrapping_add(1);
            }
            4 => {
                self.segment(n, (next, expected), flags::FIN | flags::ACK, u16::MAX, &[]);
                self.flows[n].next = next.wrapping_add(1);
            }
            5 => {
                let wait = Nanos::from(number());
                self.pass(wait * wait * MILLISECOND);
            }
            6 => {
                let length = usize::from(number());
                let data = take(steps, length);
                let (source_port, destination_port) = self.ports(n);
                let header = udp::Header { source_port, destination_port };
                let frame = self.packet(protocol::UDP, udp::HEADER + data.len(), |bytes| {
                    bytes[udp::HEADER..].copy_from_slice(data);
                    header.write(bytes, data.len(), checksum::PartialChecksum::ZERO).expect("there is room");
                });
                self.give(&frame);
            }
            _ => {
                // Any protocol; an error of ICMP with its checksum right.
                let (kind, length) = (number(), usize::from(number()));
                let data = take(steps, length);
                let frame = self.packet(if kind & 1 == 0 { F::ICMP } else { kind }, length, |bytes| {
                    bytes[..data.len()].copy_from_slice(data);
                    if kind & 1 == 0 && bytes.len() >= 4 && F::ETHERTYPE == V4::ETHERTYPE {
                        bytes[2..4].fill(0);
                        let sum = checksum::of(bytes);
                        bytes[2..4].copy_from_slice(&sum.to_be_bytes());
                    }
                });
                self.give(&frame);
            }
        }
    }

    /// Source and destination port of what the peer sends.
    fn ports(&self, flow: usize) -> (u16, u16) {
        let client = CLIENTS + flow as u16;
        if self.is_client { (SERVER, client) } else { (client, SERVER) }
    }

    fn segment(&mut self, flow: usize, (sequence, acknowledgment): (u32, u32), flags: u8, window: u16, data: &[u8]) {
        let (source_port, destination_port) = self.ports(flow);
        let mss = (flags & flags::SYN != 0).then_some(500 + (sequence % 1000) as u16);
        let options = Options { mss, ..Options::default() };
        let header = Header { source_port, destination_port, sequence, acknowledgment, flags, window, options };
        let frame = self.packet(protocol::TCP, header.len() + data.len(), |bytes| {
            bytes[header.len()..].copy_from_slice(data);
            header.write(bytes, data.len(), checksum::PartialChecksum::ZERO).expect("there is room");
        });
        self.give(&frame);
    }

    /// A packet to the engine.
    fn packet(&self, protocol: u8, length: usize, write: impl FnOnce(&mut [u8])) -> Vec<u8> {
        let mut frame = vec![0; ethernet::HEADER + F::HEADER + length];
        let header = ethernet::Header { destination: OURS, source: THEIRS, vlan: None, ethertype: F::ETHERTYPE };
        header.write(&mut frame).expect("there is room");
        let packet = &mut frame[ethernet::HEADER..];
        F::write(packet, (self.ends.1, self.ends.0), protocol, (255, 0), length);
        write(&mut packet[F::HEADER..]);
        frame
    }

    fn give(&mut self, frame: &[u8]) {
        let transmit = self.theirs.halves().1;
        transmit.claim(frame.len()).expect("what was sent before has been read").copy_from_slice(frame);
        transmit.flush();
        self.pass(MILLISECOND / 100);
    }

    fn pass(&mut self, step: Nanos) {
        self.now += step;
        self.engine.pass(self.now, &mut self.ours);
        let mut sent = 0;
        loop {
            let frames = self.theirs.halves().0.poll();
            if frames == 0 {
                break;
            }
            sent += frames;
            for n in 0..frames {
                let frame = self.theirs.halves().0.frame(n).to_vec();
                self.check(&frame);
            }
        }
        assert!(sent <= BURST, "{sent} frames in a pass");
        let counters = self.engine.counters();
        assert_eq!(counters.sk_con(), self.engine.in_use() as u64, "{counters:?}");
        assert_eq!(counters.bad_rx, counters.malformed.iter().sum::<u64>());
        assert_eq!(counters.drop_tx, 0);
        assert!(counters.tcp_rsp <= counters.tcp_req && counters.http_2xx <= counters.tcp_rsp, "{counters:?}");
    }

    /// What the engine sends are packets.
    fn check(&mut self, frame: &[u8]) {
        let ethernet = Ethernet::parse(frame).expect("it sends frames");
        if ethernet.ethertype() != F::ETHERTYPE {
            return;
        }
        let packet = F::parse(ethernet.payload()).expect("it sends packets");
        if packet.protocol == protocol::UDP {
            let datagram = Udp::parse(packet.payload).expect("it sends datagrams");
            assert_eq!(datagram.verify(packet.pseudo, false), Ok(Checksum::Complete));
        }
        if packet.protocol != protocol::TCP {
            return;
        }
        let segment = Tcp::parse(packet.payload).expect("it sends segments");
        assert_eq!(segment.verify(packet.pseudo), Ok(Checksum::Complete));
        assert!(segment.payload().len() + tcp::HEADER <= 1020, "no larger than was announced");
        let client = if self.is_client { segment.source_port() } else { segment.destination_port() };
        let Some(flow) = self.flows.get_mut(usize::from(client.wrapping_sub(CLIENTS))) else { return };
        let bits = segment.flags();
        let controls = u32::from(bits & flags::SYN != 0) + u32::from(bits & flags::FIN != 0);
        if bits & flags::SYN != 0 || segment.sequence() == flow.expected {
            flow.expected = segment.sequence().wrapping_add(segment.payload().len() as u32 + controls);
        }
    }
}

/// The next `length` bytes, or as many as are left.
fn take<'a>(script: &mut &'a [u8], length: usize) -> &'a [u8] {
    let (head, tail) = script.split_at(length.min(script.len()));
    *script = tail;
    head
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Steps that mean something more often than random bytes do.
    fn steps() -> impl Strategy<Value = Vec<u8>> {
        let data = prop_oneof![
            Just(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_vec()),
            Just(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n".to_vec()),
            Just(b"HTTP/1.0 200 OK\r\n\r\n".to_vec()),
            Just(b"GET / HTTP/1.1\r\n\r\n".to_vec()),
            Just(b"HEAD / HTTP/1.0\r\n\r\n".to_vec()),
            Just(b"POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\n01234".to_vec()),
            prop::collection::vec(any::<u8>(), 0..30),
        ];
        let near = || prop_oneof![4 => Just(0u8), 1 => any::<u8>()];
        let step = prop_oneof![
            (0u8..4, data.clone()).prop_map(|(n, data)| [&[n << 3 | 2, data.len() as u8], &data[..]].concat()),
            (0u8..4, any::<u8>(), near(), near(), any::<u8>(), data).prop_map(|(n, bits, a, b, window, data)| {
                [&[n << 3 | 1, bits & 0x1f, a, b, window, data.len() as u8], &data[..]].concat()
            }),
            (0u8..4, prop_oneof![Just(3u8), Just(4u8)]).prop_map(|(n, step)| vec![n << 3 | step]),
            any::<u8>().prop_map(|wait| vec![5, wait]),
            prop::collection::vec(any::<u8>(), 1..40),
        ];
        prop::collection::vec(step, 0..40).prop_map(|steps| steps.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn an_engine_survives_its_peer(choice: u8, steps in steps()) {
            exercise(&[&[choice], &steps[..]].concat());
        }
    }
}
