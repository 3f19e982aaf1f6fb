//! Two engines joined in memory, a clock that is set by hand, and a network in between that does what a test says.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use rig_packet::{
    AnswerScope, Client, CloseMethod, Config, Engine, Family, Gateway, Link, Load, MessageEnd, Nanos, Port, Receive,
    Server, Service, TcpClient, TcpServer, TcpTimes, TupleOrder, UdpClient, UdpServer, V4, V6, memory,
};
use rig_wire::ethernet::{Ethernet, Mac};
use rig_wire::tcp::{Tcp, flags};
use rig_wire::udp::Udp;
use rig_wire::{ipv4::Ipv4, ipv6::Ipv6, protocol};

pub const CLIENT_MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
pub const SERVER_MAC: Mac = Mac([2, 0, 0, 0, 0, 2]);
pub const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: netrig\r\n\r\n";
pub const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
pub const MILLISECOND: Nanos = 1_000_000;
pub const SECOND: Nanos = 1_000_000_000;

/// What happens to a frame on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameFate {
    Pass,
    Drop,
    Twice,
    /// Arrives after so many passes more, behind what was sent later.
    Later(u32),
    /// With this bit of it wrong.
    Wrong(usize),
}

/// Decides about the nth frame of its direction, from 0.
pub type FaultPlan = Box<dyn FnMut(u64, &[u8]) -> FrameFate>;

/// A port behind a network with faults, which remembers what was sent into it.
pub struct FaultyPort {
    receive: FaultyReceive,
    inner: memory::Memory,
}

pub struct FaultyReceive {
    fates: FaultPlan,
    seen: u64,
    pass: u32,
    late: VecDeque<(u32, Vec<u8>)>,
    burst: Vec<Vec<u8>>,
    pub log: Vec<Vec<u8>>,
}

impl FaultyReceive {
    fn take(&mut self, frame: &[u8]) {
        self.log.push(frame.to_vec());
        let fate = (self.fates)(self.seen, frame);
        self.seen += 1;
        let mut frame = frame.to_vec();
        match fate {
            FrameFate::Pass => self.burst.push(frame),
            FrameFate::Drop => {}
            FrameFate::Twice => self.burst.extend([frame.clone(), frame]),
            FrameFate::Later(passes) => self.late.push_back((self.pass + passes, frame)),
            FrameFate::Wrong(bit) => {
                let bit = bit % (frame.len() * 8);
                frame[bit / 8] ^= 1 << (bit % 8);
                self.burst.push(frame);
            }
        }
    }
}

impl Receive for FaultyReceive {
    fn poll(&mut self) -> usize {
        self.burst.len()
    }

    fn frame(&self, n: usize) -> &[u8] {
        &self.burst[n]
    }
}

impl Port for FaultyPort {
    type Receive = FaultyReceive;
    type Transmit = memory::MemoryTransmit;

    fn halves(&mut self) -> (&mut FaultyReceive, &mut memory::MemoryTransmit) {
        let (receive, transmit) = self.inner.halves();
        self.receive.burst.clear();
        self.receive.pass += 1;
        let frames = receive.poll();
        (0..frames).for_each(|n| self.receive.take(receive.frame(n)));
        // Gives the batch back.
        let pass = self.receive.pass;
        while self.receive.late.front().is_some_and(|&(when, _)| when <= pass) {
            let frame = self.receive.late.pop_front();
            self.receive.burst.extend(frame.map(|(_, frame)| frame));
        }
        (&mut self.receive, transmit)
    }
}

/// A client and a server.
pub struct Rig<F: Family> {
    pub client: Engine<F>,
    pub server: Engine<F>,
    pub to_client: FaultyPort,
    pub to_server: FaultyPort,
    pub now: Nanos,
}

impl<F: Family> Rig<F> {
    pub fn new(client: Config<F>, server: Config<F>) -> Self {
        Self::with_faults(client, server, Box::new(|_, _| FrameFate::Pass), Box::new(|_, _| FrameFate::Pass))
    }

    pub fn with_faults(client: Config<F>, server: Config<F>, to_client: FaultPlan, to_server: FaultPlan) -> Self {
        let now = SECOND;
        let (a, b) = memory::pair(64);
        let faulty = |inner, fates| FaultyPort {
            receive: FaultyReceive {
                fates,
                seen: 0,
                pass: 0,
                late: VecDeque::new(),
                burst: Vec::new(),
                log: Vec::new(),
            },
            inner,
        };
        Self {
            client: Engine::new(client, now).unwrap(),
            server: Engine::new(server, now).unwrap(),
            to_client: faulty(a, to_client),
            to_server: faulty(b, to_server),
            now,
        }
    }

    /// One pass of each, `step` after the last.
    pub fn pass(&mut self, step: Nanos) {
        self.client.pass(self.now, &mut self.to_client);
        self.server.pass(self.now, &mut self.to_server);
        self.now += step;
    }

    pub fn run(&mut self, duration: Nanos, step: Nanos) {
        let end = self.now + duration;
        while self.now < end {
            self.pass(step);
        }
    }

    /// Ends the load and gives what is open time to end.
    pub fn finish(&mut self) {
        self.client.wind_down();
        self.run(SECOND, MILLISECOND);
        self.run(120 * SECOND, 250 * MILLISECOND);
    }

    /// Nothing is open at either end.
    pub fn assert_nothing_is_stuck(&self) {
        assert_eq!(self.client.counters().sk_con(), 0, "client: {:?}", self.client.counters());
        assert_eq!(self.server.counters().sk_con(), 0, "server: {:?}", self.server.counters());
    }

    /// The TCP segments, in the order in which they were sent, each as its flags and bytes of data.
    pub fn sent_by_client(&self) -> Vec<String> {
        self.to_server.receive.log.iter().map(|frame| describe(frame)).collect()
    }

    pub fn sent_by_server(&self) -> Vec<String> {
        self.to_client.receive.log.iter().map(|frame| describe(frame)).collect()
    }

    pub fn frames_of_client(&self) -> &[Vec<u8>] {
        &self.to_server.receive.log
    }

    pub fn frames_of_server(&self) -> &[Vec<u8>] {
        &self.to_client.receive.log
    }
}

/// `SYN ACK`, `PSH ACK FIN 41` ... and `udp 18`, checksums verified.
pub fn describe(frame: &[u8]) -> String {
    let ethernet = Ethernet::parse(frame).unwrap();
    let (number, pseudo, payload) = match Ipv4::parse(ethernet.payload()) {
        Ok(ip) => {
            ip.verify().unwrap();
            (ip.protocol(), ip.pseudo(), ip.payload())
        }
        Err(_) => {
            let Ok(ip) = Ipv6::parse(ethernet.payload()) else { return "other".to_owned() };
            (ip.protocol(), ip.pseudo(), ip.payload())
        }
    };
    if number == protocol::UDP {
        let udp = Udp::parse(payload).unwrap();
        udp.verify(pseudo, false).unwrap();
        return format!("udp {}", udp.payload().len());
    }
    let tcp = Tcp::parse(payload).unwrap();
    tcp.verify(pseudo).unwrap();
    let names =
        [(flags::SYN, "SYN"), (flags::RST, "RST"), (flags::PSH, "PSH"), (flags::ACK, "ACK"), (flags::FIN, "FIN")];
    let mut words: Vec<String> =
        names.iter().filter(|(bit, _)| tcp.flags() & bit != 0).map(|(_, name)| (*name).to_owned()).collect();
    if !tcp.payload().is_empty() {
        words.push(tcp.payload().len().to_string());
    }
    words.join(" ")
}

pub trait Hosts: Family {
    const CLIENT: Self::Address;
    const SERVER: Self::Address;
}

impl Hosts for V4 {
    const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 1);
}

impl Hosts for V6 {
    const CLIENT: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
    const SERVER: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 1, 0, 0, 0, 1);
}

fn link<F: Family>(mac: Mac, address: F::Address, gateway: Mac) -> Link<F> {
    let gateway = Gateway::Known(gateway);
    Link {
        mac,
        address,
        answer: AnswerScope::All,
        announce: false,
        vlan: None,
        gateway,
        hop_limit: 64,
        tos: 0,
        verify: true,
        tunnel: None,
    }
}

pub fn load(connections: u32) -> Client {
    Client {
        ports: 10_000..=19_999,
        server_ports: 80..=80,
        load: Load { hold: Some(connections), ..Load::new(1e9) },
        repeat: None,
        walk: TupleOrder::Ports,
        flood: None,
    }
}

pub fn tcp_client() -> TcpClient {
    TcpClient {
        client: load(1),
        times: TcpTimes::default(),
        request: REQUEST.into(),
        response: MessageEnd::Bytes(RESPONSE.len() as u32),
        close: CloseMethod::Fin,
        delayed_ack: Duration::from_millis(100),
        mss: 1460,
        resets: true,
    }
}

pub fn tcp_server() -> TcpServer {
    TcpServer {
        server: Server { ports: 80..=80 },
        times: TcpTimes { retransmit: Duration::from_millis(2200), ..TcpTimes::default() },
        request: MessageEnd::Bytes(REQUEST.len() as u32),
        response: RESPONSE.into(),
        close: true,
        idle: Duration::from_secs(60),
        window: 16,
        mss: 1460,
        resets: true,
    }
}

pub fn udp_client() -> UdpClient {
    UdpClient { client: load(1), request: b"ping".into(), timeout: Duration::from_secs(1) }
}

pub fn udp_server() -> UdpServer {
    UdpServer { server: Server { ports: 80..=80 }, response: b"pong!".into(), one_way: false }
}

pub fn client<F: Hosts>(service: Service) -> Config<F> {
    Config {
        link: link(CLIENT_MAC, F::CLIENT, SERVER_MAC),
        local: vec![(F::CLIENT, 1)],
        remote: vec![(F::SERVER, 1)],
        capacity: 1000,
        service,
        steering: None,
    }
}

pub fn server<F: Hosts>(service: Service) -> Config<F> {
    Config {
        link: link(SERVER_MAC, F::SERVER, CLIENT_MAC),
        local: vec![(F::SERVER, 1)],
        remote: vec![(F::CLIENT, 1)],
        capacity: 1000,
        service,
        steering: None,
    }
}
