//! Limits of connections and rates for each source, and of a service: by the file, by commands, and under a flood.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use netrig_lb::message::{SourceList, Status};
use rig_sys::netlink::Netlink;
use socket2::{Domain, Socket, Type};

use super::lab::{Lab, SERVICE, TIMEOUT, exchange};
use super::{FIRST, scrape, with_lab};

const OTHER: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 3);

fn status(lab: &Lab) -> Status {
    serde_json::from_str(&lab.netrig(0, &["status", "--json"]).0).unwrap()
}

fn refused(lab: &Lab, service: usize, reason: &str) -> u64 {
    let services = status(lab).services;
    services[service].refused.iter().find(|of| of.reason == reason).map_or(0, |of| of.packets)
}

/// A connection from this address of the client's; `None` when nobody answers for a while.
fn connect_from(lab: &Lab, source: IpAddr) -> Option<TcpStream> {
    let attempt = || -> io::Result<TcpStream> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.bind(&SocketAddr::new(source, 0).into())?;
        let at: SocketAddr = SERVICE.parse().unwrap();
        socket.connect_timeout(&at.into(), Duration::from_millis(2500))?;
        socket.set_read_timeout(Some(TIMEOUT))?;
        Ok(socket.into())
    };
    lab.client.run(attempt).unwrap().ok()
}

#[test]
fn a_source_at_its_limit_is_refused_while_another_is_served() {
    with_lab(|lab| {
        lab.ip("link set lo up");
        Netlink::open(&lab.client).unwrap().add_address("eth0", OTHER.into(), 24).unwrap();
        let file = lab.file(FIRST);
        let text = fs::read_to_string(&file).unwrap();
        let limited = text.replace("scheduler", "source_limit = 3\nscheduler");
        fs::write(&file, &limited).unwrap();
        let mut running = lab.run(&[&file, "--persist", "--metrics", "127.0.0.1:9180"]);
        let own: IpAddr = [10, 1, 0, 2].into();
        let mut held: Vec<TcpStream> = (0..3).map(|_| lab.connect()).collect();
        assert!(connect_from(lab, own).is_none());
        let mut other = connect_from(lab, OTHER.into()).unwrap();
        exchange(&mut other, 1000).unwrap();
        held.iter_mut().for_each(|stream| exchange(stream, 1000).unwrap());

        assert!(refused(lab, 0, "source_limit") > 0);
        let traced = lab.netrig(0, &["trace", "tcp", "10.1.0.2:1000", SERVICE]).0;
        assert!(traced.contains("source 10.1.0.2/32 has as many connections as source_limit = 3 allows"), "{traced}");
        let listed: SourceList = serde_json::from_str(&lab.netrig(0, &["sources", "--json"]).0).unwrap();
        let first = &listed.sources[0];
        assert_eq!((first.source.as_str(), first.connections, first.source_limit), ("10.1.0.2/32", 3, Some(3)));
        let listed = lab.netrig(0, &["sources", "tcp", SERVICE, "--most", "1"]).0;
        assert!(listed.contains("10.1.0.2/32") && !listed.contains("10.1.0.3"), "{listed}");
        assert!(lab.netrig(2, &["sources", "10.9.0.9:80"]).1.contains("No such service"));
        let told = lab.netrig(0, &["status"]).0;
        assert!(told.contains("limits: source_limit 3"), "{told}");
        let metrics = scrape(lab);
        assert!(metrics.contains("limit=\"source_limit\"} 3"), "{metrics}");
        assert!(metrics.contains("reason=\"source_limit\""), "{metrics}");
        let saved = lab.netrig(0, &["-S", "-n"]).0;
        assert!(saved.contains("--source-limit 3"), "{saved}");

        // By a command, for both are one source with these bits; and another control plane knows it.
        lab.netrig(0, &["-E", "-t", SERVICE, "--source-limit", "4", "--source-prefix4", "24"]);
        assert!(lab.netrig(0, &["save"]).0.contains("source_limit = 4\nsource_prefix4 = 24"));
        let more = connect_from(lab, OTHER.into());
        assert!(more.is_some());
        running.kill();
        drop(running);
        let mut running = lab.run(&["--persist"]);
        let (_, mistaken) = lab.netrig(2, &["-E", "-t", SERVICE, "--new-burst", "4"]);
        assert!(mistaken.contains("new_burst without a rate"), "{mistaken}");
        for _ in 0..3 {
            held.extend(connect_from(lab, own));
        }
        assert!(connect_from(lab, OTHER.into()).is_none());
        held.iter_mut().for_each(|stream| exchange(stream, 1000).unwrap());

        // What ends by command has its place back, and a reload says what the file says.
        lab.netrig(0, &["flush", "--all"]);
        assert!(connect_from(lab, OTHER.into()).is_some());
        running.kill();
        drop(running);
        let _running = lab.run(&[&file, "--persist"]);
        lab.netrig(0, &["-E", "-t", SERVICE, "--source-limit", "4", "--source-prefix4", "24"]);
        let told = lab.netrig(0, &["reload"]).0;
        assert!(told.contains("source_limit is now 3") && told.contains("source_prefix4 is no longer set"), "{told}");
        fs::write(&file, &text).unwrap();
        assert!(lab.netrig(0, &["reload"]).0.contains("source_limit is no longer set"));
        let many: Vec<_> = (0..6).map(|_| connect_from(lab, own).unwrap()).collect();
        drop(many);
        lab.netrig(0, &["stop", "--detach"]);
    });
}

/// A datagram to the service from an address that nobody has.
fn forged(n: u32) -> Vec<u8> {
    let length = 20 + 8 + 4_u8;
    let mut packet = vec![0x45, 0, 0, length, 0, 0, 0x40, 0, 64, 17, 0, 0];
    packet.extend(Ipv4Addr::from(0xc633_0000 + n % 0xffff).octets());
    packet.extend([10, 9, 0, 1]);
    let sum: u32 = packet.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    packet[10..12].copy_from_slice(&(!(((sum & 0xffff) + (sum >> 16)) as u16)).to_be_bytes());
    // Without a checksum.
    packet.extend([0x12, 0x34, 0, 53, 0, 12, 0, 0]);
    packet.extend([0; 4]);
    packet
}

#[test]
fn a_flood_of_forged_datagrams_leaves_what_is_established() {
    with_lab(|lab| {
        let file = lab.file(FIRST);
        let text = fs::read_to_string(&file).unwrap();
        let udp = "[[service]]\nlisten = \"udp 10.9.0.1:53\"\nlocal = \"10.8.0.1-10.8.0.4\"\nbackend = [\"10.2.0.2:5353\"]\n\
                   source_rate = 5\nnew_rate = 20\nnew_burst = 30\n";
        fs::write(&file, format!("{text}{udp}")).unwrap();
        let _running = lab.run(&[&file]);
        let server = lab.server.run(|| UdpSocket::bind("10.2.0.2:5353")).unwrap().unwrap();
        server.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let client = lab.client.run(|| UdpSocket::bind("10.1.0.2:4000")).unwrap().unwrap();
        client.connect("10.9.0.1:53").unwrap();
        client.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut buffer = [0; 64];
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    if let Ok((length, from)) = server.recv_from(&mut buffer) {
                        // A flood's own answers go nowhere.
                        let _ = server.send_to(&buffer[..length], from);
                    }
                }
            });
            let ask = |n: u32| {
                let deadline = std::time::Instant::now() + TIMEOUT;
                let mut buffer = [0; 64];
                while std::time::Instant::now() < deadline {
                    client.send(&n.to_be_bytes()).unwrap();
                    while let Ok(length) = client.recv(&mut buffer) {
                        if buffer[..length] == n.to_be_bytes() {
                            return;
                        }
                    }
                }
                panic!("no answer to {n}");
            };
            ask(0);
            let raw = lab.client.run(|| Socket::new(Domain::IPV4, Type::RAW, Some(255.into()))).unwrap().unwrap();
            let at = SocketAddr::from(([10, 9, 0, 1], 0)).into();
            let begun = std::time::Instant::now();
            for n in 0..10_000 {
                match raw.send_to(&forged(n), &at) {
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error()) => {}
                    Err(error) => panic!("{error}"),
                }
                if n % 1000 == 0 {
                    ask(n + 1);
                }
            }
            let took = begun.elapsed().as_secs() + 1;
            let begun = status(lab).services[1].total.connections;
            assert!(begun >= 20 && begun <= 31 + 20 * took, "{begun} in {took} s");
            assert!(refused(lab, 1, "new_rate") > 1000);
            let traced = lab.netrig(0, &["drops"]).0;
            assert!(traced.contains("new_rate"), "{traced}");
            // The other service has its room, and the flow goes on.
            exchange(&mut lab.connect(), 1000).unwrap();
            ask(u32::MAX);
            done.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    });
}
