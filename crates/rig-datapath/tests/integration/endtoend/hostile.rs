//! Frames that no sane sender makes, at the attached program, while conversations go on.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use rig_datapath::balancer::{Config, Connection, Drop, Pass, Protocol, Service, Timeouts};
use rig_sys::packet_socket::{Options, Port, Sender};
use rig_sys::xdp::QueueCpu;
use rig_wire::ethernet::Mac;
use rig_wire::tcp::flags::{ACK, FIN, RST, SYN};

use super::frames::{Frame, L4, ethernet, icmp_error, ip};
use super::lab::{self, HOST, Lab, Plan, Random, server};
use super::steady::{LINES, PORTS, are_unbroken, echoes, plan, services};
use super::talk::{Conversations, NewConnections};
use super::{local, sizes};

/// Which frames a failure came from; the variable repeats them.
fn seed() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64;
    let seed = std::env::var("NETRIG_TEST_SEED").map_or(now, |seed| seed.parse().unwrap());
    eprintln!("NETRIG_TEST_SEED={seed}");
    seed
}

/// Sends frames from the client's interface.
pub struct Attacker {
    sender: Sender,
    balancer: Mac,
    sent: u64,
}

impl Attacker {
    pub fn new(lab: &Lab) -> Self {
        let options = Options { frame: 2048, burst: 32, ..Options::default() };
        let place = [QueueCpu { queue: 0, cpu: None }];
        let port = lab.wires.client.run(|| Port::open(HOST, &place, &options).unwrap()).unwrap();
        let (_, sender) = port.queues.into_iter().next().unwrap();
        let address = lab.wires.here.sysfs().unwrap().read(&lab.wires.interfaces[0], "address").unwrap();
        let mut balancer = Mac::default();
        address.split(':').zip(&mut balancer.0).for_each(|(hex, byte)| *byte = u8::from_str_radix(hex, 16).unwrap());
        Self { sender, balancer, sent: 0 }
    }

    /// To the balancer's interface: the frame's destination MAC address is replaced.
    pub fn send(&mut self, frame: &[u8]) {
        if let Some(room) = self.sender.claim(frame.len()) {
            room.copy_from_slice(frame);
            let link = room.len().min(6);
            room[..link].copy_from_slice(&self.balancer.0[..link]);
        }
        self.sent += 1;
        // The wire holds 256.
        if self.sent.is_multiple_of(64) {
            self.sender.flush();
            thread::sleep(Duration::from_micros(500));
        }
    }
}

struct Frames {
    random: Random,
    /// Source and destination of packets of conversations, as they come to the balancer.
    used: Vec<(SocketAddr, SocketAddr)>,
}

impl Frames {
    fn one_in(&mut self, n: usize) -> bool {
        self.random.below(n) == 0
    }

    fn port(&mut self) -> u16 {
        self.random.next() as u16
    }

    /// The address of a possible client: on the client's link, or anywhere.
    fn client(&mut self, ipv6: bool) -> SocketAddr {
        let host = 100 + self.random.below(100) as u8;
        let net = if self.one_in(2) { 10 } else { 77 };
        let ip = if ipv6 { format!("fd{net}:0::{host}").parse().unwrap() } else { IpAddr::from([10, net, 0, host]) };
        SocketAddr::new(ip, 1000 + self.random.below(20) as u16)
    }

    /// To a service, with flags that may be any.
    fn frame(&mut self, ipv6: bool) -> Frame {
        let service = services()[usize::from(ipv6)];
        let flags = [SYN, ACK, RST, FIN | ACK, SYN | ACK, SYN | FIN, 0, 0xff][self.random.below(8)];
        let l4 = if self.one_in(4) { L4::Udp } else { L4::Tcp(flags) };
        let client = self.client(ipv6);
        let most = if self.one_in(8) { 1400 } else { 40 };
        let length = self.random.below(most);
        Frame::new(l4, client, service).payload(&self.random.bytes(length))
    }

    fn spoilt(&mut self, mut bytes: Vec<u8>) -> Vec<u8> {
        for _ in 0..1 + self.random.below(4) {
            let at = 12 + self.random.below(bytes.len() - 12);
            bytes[at] = self.random.next() as u8;
        }
        bytes
    }

    /// An IPv6 packet with an extension header in front of its payload.
    fn extended(&mut self) -> Vec<u8> {
        let packet = self.frame(true).packet();
        let mut packet = [&packet[..40], &self.random.bytes(8), &packet[40..]].concat();
        packet[40] = packet[6];
        packet[6] = [0, 43, 44, 50, 51, 60, 135][self.random.below(7)];
        packet[5] = packet[5].wrapping_add(8);
        ethernet(&packet, None)
    }

    /// An ICMP error to a service or a local address about a packet that may never have been.
    fn error(&mut self, ipv6: bool) -> Vec<u8> {
        let service = services()[usize::from(ipv6)];
        let client = self.client(ipv6);
        let real = SocketAddr::new(lab::client(ipv6), self.port());
        let about = if self.one_in(2) { client } else { real };
        let about = Frame::new(L4::Tcp(ACK), service, about).payload(&self.random.bytes(8)).packet();
        let about = if self.one_in(3) { self.spoilt(about) } else { about };
        let kinds = if ipv6 { [1, 2, 3, 4] } else { [3, 3, 11, 12] };
        let (kind, code) = (kinds[self.random.below(4)], self.random.below(6) as u8);
        let to = if self.one_in(4) { local(&service.ip().to_string())[0] } else { service.ip() };
        let quoted = self.random.below(about.len() + 1);
        icmp_error(&client.ip().to_string(), &to.to_string(), kind, code, self.random.next() as u32, &about, quoted)
    }

    fn next(&mut self) -> Vec<u8> {
        let ipv6 = self.one_in(2);
        let service = services()[usize::from(ipv6)];
        let l3 = 14;
        match self.random.below(20) {
            // Resets of conversations that go on, from either end, with sequence numbers that neither end has sent: their receivers
            // ignore them (RFC 5961, 3.2).
            16..=19 => {
                let (source, destination) = self.used[self.random.below(self.used.len())];
                let flags = if self.one_in(2) { RST } else { RST | ACK };
                let sequence = self.random.next() as u32;
                Frame { sequence, ..Frame::new(L4::Tcp(flags), source, destination) }.bytes()
            }
            0..=2 => self.frame(ipv6).bytes(),
            3..=5 => {
                let frame = self.frame(ipv6).bytes();
                self.spoilt(frame)
            }
            // The source is the destination, an address of the balancer, or one that no host may send from.
            6 => {
                let own = SocketAddr::new(local(&service.ip().to_string())[0], self.port());
                let invalid = if ipv6 { ["::", "::1", "ff02::1"] } else { ["0.0.0.0", "127.0.0.1", "255.255.255.255"] };
                let invalid = SocketAddr::new(invalid[self.random.below(3)].parse().unwrap(), self.port());
                Frame { source: [service, own, invalid][self.random.below(3)], ..self.frame(ipv6) }.bytes()
            }
            // A backend's answer without a request.
            7 => {
                let port = 7002 + self.random.below(1000) as u16;
                let to = SocketAddr::new(local(&service.ip().to_string())[0], self.port());
                Frame { source: server(0, ipv6, port), destination: to, ..self.frame(ipv6) }.bytes()
            }
            // The real client's resets, from ports that its kernel does not give.
            8 => {
                let source = SocketAddr::new(lab::client(ipv6), self.port() % 30_000);
                Frame::new(L4::Tcp(RST), source, service).bytes()
            }
            9 => {
                let mut frame = self.frame(false).bytes();
                frame[l3 + 6] = self.random.next() as u8 & 0x3f;
                frame[l3 + 7] = self.random.next() as u8;
                frame
            }
            10 => {
                let mut frame = self.frame(false).bytes();
                frame[l3] = 0x40 | self.random.below(16) as u8;
                frame
            }
            11 => self.extended(),
            12 => self.error(ipv6),
            // Lengths that are not the frame's; frames that end too early.
            13 => {
                let mut frame = self.frame(ipv6).bytes();
                let at = l3 + if ipv6 { 4 } else { 2 };
                let length = self.port();
                let length = if self.one_in(2) { length % 100 } else { length };
                frame[at..at + 2].copy_from_slice(&length.to_be_bytes());
                frame
            }
            14 => {
                let mut frame = self.frame(ipv6).bytes();
                frame.truncate(14 + self.random.below(frame.len() - 14));
                frame
            }
            _ => match self.random.below(4) {
                0 => self.frame(ipv6).ttl(self.random.below(2) as u8).bytes(),
                1 => self.frame(ipv6).vlan(self.random.below(4096) as u16).bytes(),
                2 => {
                    let length = 20 + self.random.below(100);
                    let client = self.client(ipv6).ip();
                    let payload = self.random.bytes(length);
                    ethernet(&ip(client, service.ip(), self.random.next() as u8, 64, &payload), None)
                }
                _ => {
                    let mut bytes = self.random.bytes(100);
                    let kinds: [u16; 5] = [0x0800, 0x86dd, 0x0806, 0x8100, 0x88a8];
                    bytes[12..14].copy_from_slice(&kinds[self.random.below(5)].to_be_bytes());
                    bytes
                }
            },
        }
    }
}

/// As for conversations that must not break; what does not belong to one is forgotten soon. UDP too.
fn exposed() -> Config {
    let mut plan = plan(&[(0, PORTS[0], 1), (1, PORTS[0], 1)]);
    let brief = Duration::from_secs(2);
    for service in &mut plan.services {
        service.timeouts.established = Duration::from_secs(10);
        // For conversations that a forged reset has put into this state.
        service.timeouts.close = Timeouts::default().close;
    }
    let udp = |service: &Service| {
        let timeouts = Timeouts { udp_one_way: brief, udp_normal: brief, ..service.timeouts };
        Service { protocol: Protocol::Udp, timeouts, ..service.clone() }
    };
    let udp: Vec<Service> = plan.services.iter().map(udp).collect();
    plan.services.extend(udp);
    plan
}

#[test]
fn no_frame_harms_a_conversation() {
    const FRAMES: u64 = 60_000;
    let seed = seed();
    let Some(mut lab) = Lab::new(Plan::default(), sizes(1 << 17), &exposed()) else { return };
    let echoes = echoes(&lab.wires);
    let talk = Conversations::start(&lab.wires.client, &services(), LINES / 4);
    talk.goes_on(1, || lab.tend());
    let arrivals = NewConnections::start(&lab.wires.client, &services());
    let mut attacker = Attacker::new(&lab);
    let mut used = Vec::new();
    let both_ways = |of: Connection| {
        let local = of.local.unwrap();
        used.extend([(of.client, of.service), (of.backend, local)]);
    };
    lab.balancer.connections(both_ways).unwrap();
    assert!(used.len() >= LINES, "{}", used.len());
    let mut frames = Frames { random: Random::new(seed), used };
    let count = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let attack = scope.spawn(|| {
            // Everything until `stop` happens under attack.
            while !stop.load(Ordering::Relaxed) || count.load(Ordering::Relaxed) < FRAMES {
                attacker.send(&frames.next());
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        let _stop = Stop(&stop);
        talk.goes_on(10, || lab.tend());
        arrivals.go_on(|| lab.tend());
        lab.balancer.apply(&exposed()).unwrap();
        talk.goes_on(5, || lab.tend());
        arrivals.go_on(|| lab.tend());
        stop.store(true, Ordering::Relaxed);
        while !attack.is_finished() {
            lab.tend();
            thread::sleep(Duration::from_millis(10));
        }
    });
    talk.goes_on(2, || lab.tend());
    lab.during(|| arrivals.finish());
    lab.during(|| talk.finish());
    are_unbroken(&echoes);
    for reason in [Drop::Fragment, Drop::IpOptions, Drop::Ttl, Drop::NoConnection] {
        assert!(lab.dropped(reason) > 0, "{reason:?}: {:?}", lab.drops());
    }
    for reason in [Pass::NotIp, Pass::Malformed, Pass::Protocol, Pass::NoService, Pass::IcmpUnknown] {
        let passes = lab.balancer.passes().unwrap();
        assert!(passes.iter().any(|(of, count)| *of == reason && *count > 0), "{reason:?}: {passes:?}");
    }
    lab.is_left_clean();
}

struct Stop<'a>(&'a AtomicBool);

impl std::ops::Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// SYNs from everywhere take all the room that there is. Connections that are there stay, new ones are refused and counted, until
/// the flood is over.
#[test]
fn a_flood_fills_the_table_and_ends() {
    let mut random = Random::new(seed());
    let room = 2 * LINES as u32 + 500;
    let Some(mut lab) = Lab::new(Plan::default(), sizes(room), &exposed()) else { return };
    let room = lab.balancer.sizes().connections as usize;
    let echoes = echoes(&lab.wires);
    let talk = Conversations::start(&lab.wires.client, &services(), LINES);
    talk.goes_on(1, || lab.tend());
    let mut attacker = Attacker::new(&lab);
    let mut flood = |attacker: &mut Attacker| {
        for _ in 0..512 {
            let word = random.next().to_be_bytes();
            let v4 = SocketAddr::new([172, 16, word[0], word[1]].into(), u16::from_be_bytes([word[2], word[3]]));
            let v6 = SocketAddr::new(format!("fd77::{:x}:{:x}", word[0], word[1]).parse().unwrap(), v4.port());
            let service: SocketAddr = services()[usize::from(word[4] & 1)];
            let source = if service.is_ipv4() { v4 } else { v6 };
            attacker.send(&Frame::new(L4::Tcp(SYN), source, service).bytes());
        }
    };
    lab.tend_until("a full table", |lab| {
        flood(&mut attacker);
        lab.dropped(Drop::TableFull) > 2000
    });
    assert!(lab.connections() <= room, "{}", lab.connections());
    let full = lab.dropped(Drop::TableFull);
    talk.goes_on(5, || {
        flood(&mut attacker);
        lab.tend();
    });
    assert!(lab.dropped(Drop::TableFull) > full);
    // The attack's unfinished connections go; new clients are served.
    lab.tend_until("room", |lab| lab.connections() <= 2 * LINES);
    let arrivals = NewConnections::start(&lab.wires.client, &services());
    arrivals.go_on(|| lab.tend());
    talk.goes_on(1, || lab.tend());
    lab.during(|| arrivals.finish());
    lab.during(|| talk.finish());
    are_unbroken(&echoes);
    lab.is_left_clean();
}
