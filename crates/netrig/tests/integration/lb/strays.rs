//! A flood of packets of no connection, beside clients with connections.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use netrig_lb::message::{ReasonCount, Status};
use rig_sys::cpu::CpuSet;
use socket2::{Domain, Socket, Type};

use super::lab::{Lab, TIMEOUT, exchange};
use super::{FIRST, scrape, with_lab};

const FLOOD: u32 = 20_000;
/// As long as one quota lasts, in nanoseconds.
const TICK: u64 = 1 << 27;
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 2);
const SERVICE: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);

/// The Internet checksum (RFC 1071).
fn checksum(bytes: &[u8]) -> [u8; 2] {
    let mut sum: u32 = bytes.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}

/// A segment of TCP with these flags and a right checksum, which is the packet's bytes 36 and 37.
pub fn segment(source: SocketAddrV4, destination: SocketAddrV4, flags: u8) -> Vec<u8> {
    let addresses = [source.ip().octets(), destination.ip().octets()].concat();
    let mut packet = vec![0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0];
    packet.extend(&addresses);
    let sum = checksum(&packet);
    packet[10..12].copy_from_slice(&sum);
    let mut tcp = [source.port().to_be_bytes(), destination.port().to_be_bytes()].concat();
    tcp.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, flags, 1, 0, 0, 0, 0, 0]);
    let sum = checksum(&[&addresses[..], &[0, 6, 0, 20], &tcp].concat());
    tcp[16..18].copy_from_slice(&sum);
    packet.extend(tcp);
    packet
}

/// A TCP acknowledgement that belongs to no connection.
fn stray(source: u16, destination: u16) -> Vec<u8> {
    segment(SocketAddrV4::new(CLIENT, source), SocketAddrV4::new(SERVICE, destination), 0x10)
}

/// Sends them as fast as that goes, from ports below those that sockets are given.
fn flood(lab: &Lab, port: u16) {
    // IPPROTO_RAW: with the IP header.
    let socket = lab.client.run(|| Socket::new(Domain::IPV4, Type::RAW, Some(255.into()))).unwrap();
    let socket = socket.unwrap();
    let at = SocketAddr::from((SERVICE, 0)).into();
    for n in 0..FLOOD {
        match socket.send_to(&stray(1024 + (n % 16_384) as u16, port), &at) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error()) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

fn packets(reasons: &[ReasonCount], key: &str) -> u64 {
    reasons.iter().find(|reason| reason.key == key).unwrap().packets
}

#[test]
fn a_flood_of_strays_does_not_reach_the_kernel() {
    with_lab(|lab| {
        // The kernel would answer each.
        lab.ip("address add 10.9.0.1/32 dev lo");
        lab.ip("link set lo up");
        let file = lab.file(FIRST);
        let text = std::fs::read_to_string(&file).unwrap();
        // Two in a tick.
        std::fs::write(&file, text.replace("[[service]]", "[policy]\nstrays = 14\n[[service]]")).unwrap();
        let _running = lab.run(&[&file, "--metrics", "127.0.0.1:9180"]);
        let own = lab.balancer.run(|| TcpListener::bind((SERVICE, 81)).unwrap()).unwrap();
        let mut local =
            lab.client.run(|| TcpStream::connect_timeout(&own.local_addr().unwrap(), TIMEOUT)).unwrap().unwrap();
        lab.serve(own);
        local.set_read_timeout(Some(TIMEOUT)).unwrap();
        let talk = lab.talk(4);
        let status = || -> Status { serde_json::from_str(&lab.netrig(0, &["status", "--json"]).0).unwrap() };
        // To the service, then to a port without a service.
        for (port, reason) in [(80, "no_connection"), (83, "no_service")] {
            // A flood may be over within one tick, whose quota the packets before it have used.
            thread::sleep(Duration::from_nanos(TICK));
            let before = status();
            let begun = Instant::now();
            flood(lab, port);
            let after = status();
            let ticks = begun.elapsed().as_nanos() as u64 / TICK + 2;
            let most = 2 * ticks * CpuSet::online().unwrap().len() as u64;
            let more = |of: fn(&Status) -> &[ReasonCount], key| packets(of(&after), key) - packets(of(&before), key);
            let (passed, dropped) = (more(|status| &status.passes, reason), more(|status| &status.drops, "strays"));
            assert!((1..=most).contains(&passed), "{reason}: {passed} of at most {most}");
            assert!(dropped > FLOOD as u64 / 2, "{passed} passed, {dropped} dropped");
            assert!(dropped <= FLOOD as u64, "{dropped}");
            talk.goes_on();
            // What this machine has itself goes on, too; it passes for the second reason, as what was counted above.
            flood(lab, port);
            exchange(&mut local, 100_000).unwrap();
        }
        assert!(talk.end() > 0);
        exchange(&mut lab.connect(), 300_000).unwrap();
        let metrics = scrape(lab);
        assert!(metrics.contains("reason=\"strays\""), "{metrics}");
        assert!(lab.netrig(0, &["drops"]).0.contains("strays"));
    });
}
