//! Packets, one for each branch of the program, with what becomes of each: verdict and every byte, or the reason why it
//! goes no further. The same are tested and timed.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;

use ipnet::IpNet;
use rig_datapath::balancer::replay::Packet;
use rig_datapath::balancer::{
    AccessLists, Backend, ClientAddress, Config, Drop, ExpiryPolicy, ForwardingMethod, Limits, Pass, PortReuse,
    Protocol, Scheduler, Service, Sizes, SynProxy, Timeouts,
};
use rig_wire::checksum;
use rig_wire::ethernet::{Ethernet, HEADER, Mac, TAG};
use rig_wire::tcp::flags::{ACK, RST, SYN};

use super::frames::{CLIENT_MAC, Frame, L4, NEAR_MAC, ethernet, icmp_error, ip, see};
use super::lab::Lab;

/// Hosts that are services, by how they are forwarded; 10.0.0.N and fd00::N for these N.
const FULL_NAT: u8 = 200;
const NAT: u8 = 201;
const ROUTE: u8 = 202;
const TUNNEL: u8 = 203;
const DRAINED: u8 = 204;
const FULL: u8 = 205;
const SILENT: u8 = 206;
const UNREACHABLE: u8 = 207;
const SECOND_NAT: u8 = 208;
const NOBODY: u8 = 209;
const PROXIED: u8 = 210;
const DENIED: u8 = 211;
const LIMITED: u8 = 212;
/// First local address; there are several, because their ports are shared out by CPU.
const LOCAL: u8 = 100;
const LOCALS: u8 = 16;
const SERVICE: u16 = 80;
const FIRST_LOCAL_PORT: u16 = 1024;

pub fn sizes() -> Sizes {
    Sizes {
        connections: 1 << 18,
        services: 64,
        backends: 64,
        local_addresses: 64,
        list_entries: 1 << 16,
        prefixes: 256,
        ..Sizes::default()
    }
}

fn host(number: u8, ipv6: bool) -> IpAddr {
    if ipv6 { format!("fd00::{number}").parse().unwrap() } else { [10, 0, 0, number].into() }
}

fn at(number: u8, ipv6: bool, port: u16) -> SocketAddr {
    SocketAddr::new(host(number, ipv6), port)
}

pub fn config() -> Config {
    let mut services = Vec::new();
    for ipv6 in [false, true] {
        let locals = || (LOCAL..LOCAL + LOCALS).map(|number| host(number, ipv6)).collect();
        let full_nat = || ForwardingMethod::FullNat { local: locals() };
        let backend = |number, port| Backend::new(at(number, ipv6, port), 1);
        let unreachable = if ipv6 { "[2001:db8::1]:8080" } else { "192.0.2.1:8080" };
        let unreachable = Backend::new(unreachable.parse().unwrap(), 1);
        let all = [
            (FULL_NAT, full_nat(), backend(10, 8080)),
            (NAT, ForwardingMethod::Nat, backend(11, 8080)),
            (ROUTE, ForwardingMethod::Route, backend(12, SERVICE)),
            (TUNNEL, ForwardingMethod::Tunnel { local: locals() }, backend(13, SERVICE)),
            (DRAINED, full_nat(), Backend { weight: 0, ..backend(10, 8080) }),
            (FULL, full_nat(), Backend { limit: NonZeroU32::new(1), ..backend(10, 8080) }),
            (SILENT, full_nat(), backend(77, 8080)),
            (UNREACHABLE, full_nat(), unreachable),
            (SECOND_NAT, ForwardingMethod::Nat, backend(11, 8080)),
            (PROXIED, full_nat(), backend(10, 8080)),
            (DENIED, full_nat(), backend(10, 8080)),
            (LIMITED, full_nat(), backend(10, 8080)),
        ];
        // One of them has all clients, beside others as long as single addresses.
        let prefix = |number, length| IpNet::new(host(number, ipv6), length).unwrap().trunc();
        let denied = (2..32).map(|number| prefix(number * 8, if ipv6 { 128 } else { 32 })).chain([prefix(1, 8)]);
        // All clients are one source.
        let limits = Limits { source_limit: NonZeroU32::new(1), source_prefix: Some(8), ..Limits::default() };
        let denying = AccessLists { deny: denied.collect(), ..AccessLists::default() };
        for (number, forward, backend) in all {
            for protocol in [Protocol::Tcp, Protocol::Udp] {
                services.push(Service {
                    protocol,
                    address: at(number, ipv6, SERVICE),
                    scheduler: Scheduler::RoundRobin,
                    forward: forward.clone(),
                    backends: vec![backend],
                    limit: None,
                    timeouts: Timeouts::default(),
                    expire: ExpiryPolicy::Never,
                    sloppy_tcp: false,
                    persistence: None,
                    quic: None,
                    one_packet: false,
                    dscp: None,
                    reuse: PortReuse::Reschedule,
                    syn_proxy: match (number, protocol) {
                        (PROXIED, Protocol::Tcp) => SynProxy::Always,
                        _ => SynProxy::Off,
                    },
                    client_address: ClientAddress::Off,
                    access: if number == DENIED { denying.clone() } else { AccessLists::default() },
                    limits: if number == LIMITED { limits } else { Limits::default() },
                });
            }
        }
    }
    Config { services, ..Config::default() }
}

#[derive(Debug, Clone)]
pub enum ExpectedResult {
    /// Out by the same interface, with these bytes.
    Sent(Vec<u8>),
    /// Out by the same interface.
    Forwarded,
    /// Out by the same interface, and a connection has begun.
    Begun(FirstPacket),
    /// The frame is as it was.
    Dropped(Drop),
    Left(Pass),
}

/// The first packet of a connection, and what it becomes.
#[derive(Debug, Clone)]
pub struct FirstPacket {
    frame: Frame,
    /// The service that it is for, see [`config`].
    number: u8,
    /// Between which the balancer sends it on.
    link: (Mac, Mac),
}

impl FirstPacket {
    fn ipv6(&self) -> bool {
        self.frame.source.is_ipv6()
    }

    /// This first packet from another port of the client.
    pub fn with_port(&self, port: u16) -> Self {
        let source = SocketAddr::new(self.frame.source.ip(), port);
        Self { frame: Frame { source, ..self.frame.clone() }, ..self.clone() }
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.frame.bytes()
    }

    /// Every byte of what must come out, when `out` did: the local address and port are the program's choice, out of those
    /// that there are, and are taken from it.
    #[track_caller]
    pub fn forwarded(&self, out: &[u8]) -> Vec<u8> {
        let (client, ipv6) = (self.frame.source, self.ipv6());
        let (source, destination, outer) = match self.number {
            FULL_NAT => (see(out).source, at(10, ipv6, 8080), None),
            NAT => (client, at(11, ipv6, 8080), None),
            ROUTE => (client, self.frame.destination, None),
            TUNNEL => (client, self.frame.destination, Some(outer_source(out, ipv6))),
            other => panic!("service {other} is for no first packet"),
        };
        let local = if self.number == FULL_NAT { Some(source.ip()) } else { outer.map(|(local, _)| local) };
        if let Some(local) = local {
            assert!(is_local(local, ipv6), "{local}");
        }
        assert!(source == client || source.port() >= FIRST_LOCAL_PORT, "{source}");
        forwarded(self.link, &Frame { source, destination, ..self.frame.clone() }, outer)
    }
}

/// Whether it is a local address of [`config`]'s services.
fn is_local(address: IpAddr, ipv6: bool) -> bool {
    (LOCAL..LOCAL + LOCALS).any(|number| host(number, ipv6) == address)
}

/// An outer IP header's source, and its flow label, 0 with IPv4.
fn outer_source(out: &[u8], ipv6: bool) -> (IpAddr, u32) {
    let label = u32::from_be_bytes(out[HEADER..HEADER + 4].try_into().unwrap()) & 0xf_ffff;
    let source = if ipv6 { &out[HEADER + 8..HEADER + 24] } else { &out[HEADER + 12..HEADER + 16] };
    match <[u8; 16]>::try_from(source) {
        Ok(v6) => (IpAddr::from(v6), label),
        Err(_) => (IpAddr::from(<[u8; 4]>::try_from(source).unwrap()), 0),
    }
}

/// What leaves from `link`'s first to its second MAC, in a tunnel from a local address and with a flow label if there is one.
fn forwarded((near, far): (Mac, Mac), out: &Frame, outer: Option<(IpAddr, u32)>) -> Vec<u8> {
    let frame = routed(&out.bytes(), near, far);
    let Some((local, label)) = outer else { return frame };
    let (ipv6, ttl) = (local.is_ipv6(), 64);
    let mut packed = ethernet(&ip(local, host(13, ipv6), if ipv6 { 41 } else { 4 }, ttl, &frame[HEADER..]), None);
    packed[..12].copy_from_slice(&frame[..12]);
    if ipv6 {
        packed[HEADER..HEADER + 4].copy_from_slice(&(6 << 28 | label).to_be_bytes());
    }
    packed
}

pub struct Case {
    pub name: String,
    pub frame: Vec<u8>,
    pub expected: ExpectedResult,
    /// Where the client's port is, for a packet that begins a connection.
    pub new_flow: Option<u32>,
    /// Bytes that are put in front of it; less than none where some are taken away.
    pub grows: i32,
}

impl Case {
    /// For repeating it.
    pub fn packet(&self) -> Packet<'_> {
        Packet { frame: &self.frame, grows: self.grows, port_at: self.new_flow }
    }
}

/// What a router does to an Ethernet frame: one hop less, and the link's own addresses.
fn routed(frame: &[u8], source: Mac, destination: Mac) -> Vec<u8> {
    let mut frame = frame.to_vec();
    frame[..6].copy_from_slice(&destination.0);
    frame[6..12].copy_from_slice(&source.0);
    let l3 = if frame[12..14] == [0x81, 0] { HEADER + TAG } else { HEADER };
    if frame[l3] >> 4 == 6 {
        frame[l3 + 7] -= 1;
    } else {
        frame[l3 + 8] -= 1;
        frame[l3 + 10..l3 + 12].fill(0);
        let sum = checksum::of(&frame[l3..l3 + 20]);
        frame[l3 + 10..l3 + 12].copy_from_slice(&sum.to_be_bytes());
    }
    frame
}

struct CaseBuilder<'a> {
    lab: &'a Lab,
    cases: Vec<Case>,
    /// The next client's port.
    port: u16,
}

/// Both directions of one connection.
struct Flow {
    l4: L4,
    client: SocketAddr,
    service: SocketAddr,
    /// What the backend sees.
    near: SocketAddr,
    backend: SocketAddr,
}

impl Flow {
    fn inward(&self) -> Frame {
        Frame::new(self.l4, self.client, self.service).payload(b"what the client says")
    }

    fn inward_out(&self) -> Frame {
        Frame { source: self.near, destination: self.backend, ..self.inward() }
    }

    fn outward(&self) -> Frame {
        Frame::new(self.l4, self.backend, self.near).payload(b"what the backend says")
    }

    fn outward_out(&self) -> Frame {
        Frame { source: self.service, destination: self.client, ..self.outward() }
    }
}

impl CaseBuilder<'_> {
    fn add(&mut self, name: impl Into<String>, frame: Vec<u8>, expected: ExpectedResult) {
        let grows = match &expected {
            ExpectedResult::Sent(bytes) => (bytes.len() - frame.len()) as i32,
            _ => 0,
        };
        self.cases.push(Case { name: name.into(), frame, expected, new_flow: None, grows });
    }

    fn client(&mut self, ipv6: bool) -> SocketAddr {
        self.port += 1;
        at(60, ipv6, self.port)
    }

    fn to_backend(&self, frame: &[u8]) -> ExpectedResult {
        ExpectedResult::Sent(routed(frame, self.lab.near, self.lab.far))
    }

    /// The client is unknown: it is reached the way that its packet came.
    fn to_client(&self, frame: &[u8]) -> ExpectedResult {
        ExpectedResult::Sent(routed(frame, NEAR_MAC, CLIENT_MAC))
    }

    /// Begins a connection that packets of the other cases belong to.
    fn open(&mut self, number: u8, ipv6: bool, l4: L4) -> Flow {
        let first = if let L4::Tcp(_) = l4 { L4::Tcp(SYN) } else { l4 };
        let (client, service) = (self.client(ipv6), at(number, ipv6, SERVICE));
        let out = self.lab.sent(&Frame::new(first, client, service).bytes());
        let packet = Ethernet::parse(&out).unwrap();
        let (near, backend) = match number {
            TUNNEL => (client, service),
            _ => (see(&out).source, see(&out).destination),
        };
        assert!(!packet.payload().is_empty());
        Flow { l4, client, service, near, backend }
    }

    /// One way of forwarding: a packet in each direction, one whose checksum is unfinished, and a new connection's.
    fn forwarding(&mut self, number: u8, name: &str, ipv6: bool, l4: L4) {
        let kind = if let L4::Tcp(_) = l4 { "TCP" } else { "UDP" };
        let name = format!("{name}, {kind} over {}", if ipv6 { "IPv6" } else { "IPv4" });
        let flow = self.open(number, ipv6, l4);
        let link = (self.lab.near, self.lab.far);
        // Which local address and flow label a tunnel has is the program's choice.
        let local = (number == TUNNEL).then(|| outer_source(&self.lab.sent(&flow.inward().bytes()), ipv6));
        if let Some((local, label)) = local {
            assert!(is_local(local, ipv6), "{local}");
            assert_eq!(label != 0, ipv6);
        }
        let expected = ExpectedResult::Sent(forwarded(link, &flow.inward_out(), local));
        self.add(format!("{name}, to the backend"), flow.inward().bytes(), expected);
        if matches!(number, FULL_NAT | NAT) {
            let expected = self.to_client(&flow.outward_out().bytes());
            self.add(format!("{name}, to the client"), flow.outward().bytes(), expected);
        }
        let long = [7; 1400];
        let expected = ExpectedResult::Sent(forwarded(link, &flow.inward_out().payload(&long), local));
        let partial = flow.inward().payload(&long).partial();
        self.add(format!("{name}, to the backend, 1400 bytes, checksum unfinished"), partial, expected);

        let first = if let L4::Tcp(_) = l4 { L4::Tcp(SYN) } else { l4 };
        let client = self.client(ipv6);
        let frame = Frame::new(first, client, at(number, ipv6, SERVICE)).payload(b"the first words");
        let port_at = HEADER as u32 + if ipv6 { 40 } else { 20 };
        self.cases.push(Case {
            name: format!("{name}, new connection"),
            frame: frame.bytes(),
            expected: ExpectedResult::Begun(FirstPacket { frame, number, link }),
            new_flow: Some(port_at),
            grows: if number == TUNNEL { port_at as i32 - HEADER as i32 } else { 0 },
        });
    }

    /// First packets that the SYN proxy answers; tests of its own have the bytes, of which the cookie is not known here.
    fn proxied(&mut self) {
        for ipv6 in [false, true] {
            // As long as the answer, and as short as a flood's.
            for (name, payload) in [("as long as its answer", &[0; 12][..]), ("without options", &[])] {
                let client = self.client(ipv6);
                let frame = Frame::new(L4::Tcp(SYN), client, at(PROXIED, ipv6, SERVICE)).payload(payload).bytes();
                let expected = ExpectedResult::Sent(self.lab.sent(&frame));
                let name =
                    format!("a SYN {name} over {}, answered by the SYN proxy", if ipv6 { "IPv6" } else { "IPv4" });
                self.cases.push(Case { name, frame, expected, new_flow: None, grows: 0 });
            }
        }
    }

    fn errors(&mut self) {
        const NEEDED: u32 = 1400;
        for (number, name) in [(FULL_NAT, "FullNAT"), (NAT, "NAT")] {
            for ipv6 in [false, true] {
                let (kind, code) = if ipv6 { (2, 0) } else { (3, 4) };
                let family = if ipv6 { "IPv6" } else { "IPv4" };
                let flow = self.open(number, ipv6, L4::Tcp(ACK));
                let router = host(50, ipv6).to_string();
                let error = |from: &str, to: IpAddr, about: &Frame| {
                    icmp_error(from, &to.to_string(), kind, code, NEEDED, &about.packet(), 100)
                };
                // About what went to the backend.
                let frame = error(&router, flow.near.ip(), &flow.inward_out());
                // FullNAT hides the address of the router in front of the backend.
                let out = error(&flow.service.ip().to_string(), flow.client.ip(), &flow.inward());
                let expected = self.to_client(&out);
                self.add(format!("{name}, packet too big over {family}, to the client"), frame, expected);
                // About what went to the client. With NAT the router's own address stays the error's source.
                let frame = error(&router, flow.service.ip(), &flow.outward_out());
                let from = if number == NAT { router.clone() } else { flow.near.ip().to_string() };
                let expected = self.to_backend(&error(&from, flow.backend.ip(), &flow.outward()));
                self.add(format!("{name}, packet too big over {family}, to the backend"), frame, expected);
            }
        }
    }

    fn refusals(&mut self) {
        let tcp = |flags, client, number| Frame::new(L4::Tcp(flags), client, at(number, false, SERVICE));
        let refused = [
            (RST, FULL_NAT, Drop::NoConnection, "a reset of no connection"),
            (ACK, FULL_NAT, Drop::NoConnection, "from the middle of no connection"),
            (SYN, DRAINED, Drop::NoBackend, "no backend with a weight"),
            (SYN, DENIED, Drop::Denied, "a SYN from a denied client"),
            (SYN, SILENT, Drop::NoNeighbor, "a backend that does not answer"),
            (SYN, UNREACHABLE, Drop::NoRoute, "a backend without a route"),
        ];
        for (flags, number, reason, name) in refused {
            let client = self.client(false);
            self.add(name, tcp(flags, client, number).bytes(), ExpectedResult::Dropped(reason));
        }
        self.open(FULL, false, L4::Tcp(SYN));
        let client = self.client(false);
        self.add(
            "backends at their limit",
            tcp(SYN, client, FULL).bytes(),
            ExpectedResult::Dropped(Drop::BackendsFull),
        );
        self.open(LIMITED, false, L4::Tcp(SYN));
        let client = self.client(false);
        let limited = tcp(SYN, client, LIMITED).bytes();
        self.add("a SYN from a source at its limit", limited, ExpectedResult::Dropped(Drop::SourceLimit));
        let flow = self.open(NAT, false, L4::Tcp(SYN));
        let clash = tcp(SYN, flow.client, SECOND_NAT).bytes();
        self.add("a port that NAT has used", clash, ExpectedResult::Dropped(Drop::NatClash));
        let flow = self.open(FULL_NAT, false, L4::Tcp(ACK));
        self.add("no hop left", flow.inward().ttl(1).bytes(), ExpectedResult::Dropped(Drop::Ttl));

        let mut fragment = flow.inward().bytes();
        fragment[HEADER + 6] = 0x20;
        self.add("a fragment", fragment.clone(), ExpectedResult::Dropped(Drop::Fragment));
        let mut options = flow.inward().bytes();
        options[HEADER] = 0x46;
        self.add("IP options", options, ExpectedResult::Dropped(Drop::IpOptions));
        let packet = Frame::new(L4::Tcp(ACK), self.client(true), at(FULL_NAT, true, SERVICE)).packet();
        let mut extended = [&packet[..40], &[6, 0, 0, 0, 0, 0, 0, 0], &packet[40..]].concat();
        extended[5] += 8;
        extended[6] = 60;
        self.add("an IPv6 extension header", ethernet(&extended, None), ExpectedResult::Dropped(Drop::IpOptions));

        fragment[HEADER + 19] = NOBODY;
        self.add("a fragment for another host", fragment, ExpectedResult::Left(Pass::Fragment));
        let client = self.client(false);
        self.add("no service", tcp(SYN, client, NOBODY).bytes(), ExpectedResult::Left(Pass::NoService));
        let mut short = flow.inward().bytes();
        short.truncate(HEADER + 26);
        self.add("a header that ends early", short, ExpectedResult::Left(Pass::Malformed));
        let echo = ip(client.ip(), host(FULL_NAT, false), 1, 64, &[8; 16]);
        self.add("an echo request", ethernet(&echo, None), ExpectedResult::Left(Pass::Protocol));
        let mut other = flow.inward().bytes();
        other[5] ^= 1;
        self.add("a frame for another device", other, ExpectedResult::Left(Pass::OtherMac));
        let mut arp = flow.inward().bytes();
        arp[12..14].copy_from_slice(&[8, 6]);
        self.add("ARP", arp, ExpectedResult::Left(Pass::NotIp));
        let about = Frame::new(L4::Tcp(ACK), at(FULL_NAT, false, SERVICE), self.client(false)).packet();
        let error = icmp_error("10.0.0.50", "10.0.0.200", 3, 4, 1400, &about, 28);
        self.add("an ICMP error about nothing known", error, ExpectedResult::Left(Pass::IcmpUnknown));
    }
}

/// The cases, with the connections that they need begun in `lab`, which has [`config`].
pub fn all(lab: &Lab) -> Vec<Case> {
    let mut maker = CaseBuilder { lab, cases: Vec::new(), port: 5000 };
    for (number, name) in [(FULL_NAT, "FullNAT"), (NAT, "NAT"), (ROUTE, "direct routing"), (TUNNEL, "tunnel")] {
        for ipv6 in [false, true] {
            for l4 in [L4::Tcp(ACK), L4::Udp] {
                maker.forwarding(number, name, ipv6, l4);
            }
        }
    }
    let flow = maker.open(FULL_NAT, false, L4::Tcp(ACK));
    let expected = maker.to_backend(&flow.inward_out().vlan(77).bytes());
    maker.add("FullNAT, TCP over IPv4, tagged, to the backend", flow.inward().vlan(77).bytes(), expected);
    maker.proxied();
    maker.errors();
    maker.refusals();
    maker.cases
}
