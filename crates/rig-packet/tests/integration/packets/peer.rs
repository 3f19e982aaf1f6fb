//! A peer that does what a test says, segment by segment.

use rig_packet::{
    Config, Counters, Engine, Latencies, Load, Nanos, Port, Receive, Service, TcpClient, Transmit, memory,
};
use rig_wire::checksum::PartialChecksum;
use rig_wire::ethernet::{self, Ethernet};
use rig_wire::tcp::{Header, Options, Tcp, flags};
use rig_wire::{ipv4::Ipv4, ipv6::Ipv6, protocol};

use super::rig::*;

/// One connection between an engine and a hand.
pub struct Peer<F: Hosts> {
    pub engine: Engine<F>,
    ours: memory::Memory,
    theirs: memory::Memory,
    pub now: Nanos,
    /// The hand's next sequence number, and the one that it expects.
    pub next: u32,
    pub expected: u32,
    pub window: u16,
    /// The scale of the window that its SYN offers, if it does.
    pub scale: Option<u8>,
    /// Of the hand and of the engine.
    ports: (u16, u16),
    is_client: bool,
    /// What the engine has sent that was not looked at.
    sent: Vec<Vec<u8>>,
}

pub const FIRST: u32 = 1_000_000;
pub const MSS: u16 = 1000;

impl<F: Hosts> Peer<F> {
    pub fn new(config: Config<F>, is_client: bool) -> Self {
        let (ours, theirs) = memory::pair(64);
        Self {
            engine: Engine::new(config, SECOND).unwrap(),
            ours,
            theirs,
            now: SECOND,
            next: FIRST,
            expected: 0,
            window: u16::MAX,
            scale: Some(0),
            ports: if is_client { (40_000, 80) } else { (80, 10_000) },
            is_client,
            sent: Vec::new(),
        }
    }

    /// The hand is the server of a client, which opens one connection; its first request was sent.
    pub fn serving(mut tcp: TcpClient) -> Self {
        tcp.client.load = Load::new(1e-6);
        let mut peer = Self::new(client(Service::TcpClient(tcp)), false);
        peer.pass(1000);
        assert_eq!(peer.sent(), ["SYN"]);
        peer.send(flags::SYN | flags::ACK, b"");
        peer
    }

    /// The hand is the client of a server, connected.
    pub fn connected(config: Config<F>) -> Self {
        let mut peer = Self::new(config, true);
        peer.send(flags::SYN, b"");
        assert_eq!(peer.sent(), ["SYN ACK"]);
        peer.send(flags::ACK, b"");
        assert_eq!(peer.sent(), Vec::<String>::new());
        peer
    }

    pub fn counters(&self) -> &Counters {
        self.engine.counters()
    }

    pub fn latencies(&self) -> &Latencies {
        self.engine.latencies()
    }

    /// Sends what comes next, and acknowledges all.
    pub fn send(&mut self, flags: u8, data: &[u8]) {
        let acknowledgment = if flags & flags::ACK == 0 { 0 } else { self.expected };
        self.segment(self.next, acknowledgment, flags, data);
        let controls = u32::from(flags & flags::SYN != 0) + u32::from(flags & flags::FIN != 0);
        self.next = self.next.wrapping_add(data.len() as u32 + controls);
    }

    /// Sends a segment of any numbers.
    pub fn segment(&mut self, sequence: u32, acknowledgment: u32, flags: u8, data: &[u8]) {
        let options = match flags & flags::SYN {
            0 => Options::default(),
            _ => Options { mss: Some(MSS), window_scale: self.scale, ..Options::default() },
        };
        let (source_port, destination_port) = self.ports;
        let header =
            Header { source_port, destination_port, sequence, acknowledgment, flags, window: self.window, options };
        let frame = self.frame(protocol::TCP, header.len() + data.len(), |bytes, pseudo| {
            bytes[header.len()..].copy_from_slice(data);
            header.write(bytes, data.len(), pseudo).unwrap();
        });
        self.frames(&[frame]);
    }

    /// A packet to the engine, whose payload is written by `write`.
    pub fn frame(&self, protocol: u8, length: usize, write: impl FnOnce(&mut [u8], PartialChecksum)) -> Vec<u8> {
        let (ours, theirs) = if self.is_client { (CLIENT_MAC, SERVER_MAC) } else { (SERVER_MAC, CLIENT_MAC) };
        let (from, to) = if self.is_client { (F::CLIENT, F::SERVER) } else { (F::SERVER, F::CLIENT) };
        let mut frame = vec![0; ethernet::HEADER + F::HEADER + length];
        ethernet::Header { destination: theirs, source: ours, vlan: None, ethertype: F::ETHERTYPE }
            .write(&mut frame)
            .unwrap();
        let packet = &mut frame[ethernet::HEADER..];
        F::write(packet, (from, to), protocol, (64, 0), length);
        write(&mut packet[F::HEADER..], F::pseudo(from, to, protocol, length));
        frame
    }

    /// Gives frames to the engine, and takes what it sends.
    pub fn frames(&mut self, frames: &[Vec<u8>]) {
        for frame in frames {
            self.theirs.halves().1.claim(frame.len()).unwrap().copy_from_slice(frame);
        }
        self.theirs.halves().1.flush();
        self.pass(1000);
    }

    /// A pass of the engine.
    pub fn pass(&mut self, step: Nanos) {
        self.now += step;
        self.engine.pass(self.now, &mut self.ours);
        loop {
            let receive = self.theirs.halves().0;
            let frames = receive.poll();
            if frames == 0 {
                break;
            }
            let frames: Vec<Vec<u8>> = (0..frames).map(|n| receive.frame(n).to_vec()).collect();
            for frame in frames {
                let (sequence, data, bits) = numbers(&frame);
                let controls = u32::from(bits & flags::SYN != 0) + u32::from(bits & flags::FIN != 0);
                if bits & flags::SYN != 0 || sequence == self.expected {
                    self.expected = sequence.wrapping_add(data as u32 + controls);
                }
                self.sent.push(frame);
            }
        }
    }

    pub fn wait(&mut self, time: Nanos) {
        let end = self.now + time;
        while self.now < end {
            self.pass((end - self.now).min(50 * MILLISECOND));
        }
    }

    /// What the engine has sent since this was last asked.
    pub fn sent(&mut self) -> Vec<String> {
        self.sent_frames().iter().map(|frame| describe(frame)).collect()
    }

    pub fn sent_frames(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.sent)
    }

    /// Nothing is open, and so many connections have failed.
    pub fn assert_closed(&self, errors: u64) {
        let counters = self.counters();
        assert_eq!((counters.sk_con(), counters.sk_err), (0, errors), "{counters:?}");
    }
}

/// Sequence number, bytes of data and flags.
fn numbers(frame: &[u8]) -> (u32, usize, u8) {
    tcp(frame, |tcp| (tcp.sequence(), tcp.payload().len(), tcp.flags())).unwrap_or_default()
}

/// Sequence and acknowledgment number.
pub fn sequence(frame: &[u8]) -> (u32, u32) {
    tcp(frame, |tcp| (tcp.sequence(), tcp.acknowledgment())).unwrap()
}

pub fn options(frame: &[u8]) -> Options {
    tcp(frame, |tcp| tcp.options().unwrap()).unwrap()
}

fn tcp<T>(frame: &[u8], of: impl FnOnce(Tcp<'_>) -> T) -> Option<T> {
    let packet = Ethernet::parse(frame).unwrap().payload();
    let (number, payload) = match Ipv4::parse(packet) {
        Ok(ip) => (ip.protocol(), ip.payload()),
        Err(_) => Ipv6::parse(packet).map(|ip| (ip.protocol(), ip.payload())).ok()?,
    };
    (number == protocol::TCP).then(|| of(Tcp::parse(payload).unwrap()))
}
