//! What becomes of conversations whose backend is removed: they go on, or end, as the service says.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rig_datapath::balancer::{Config, ExpiryPolicy, Pass, Protocol, Service};

use super::lab::{Lab, Plan, TIMEOUT, server, until};
use super::talk::Echo;
use super::{V4, backend, config, full_nat, sizes, tcp};

const PORT: u16 = 80;
const SERVERS: u16 = 7000;

/// TCP and UDP before servers of these numbers.
fn plan(expire: ExpiryPolicy, servers: &[u8]) -> Config {
    let backends = || servers.iter().map(|number| backend(server(*number, false, SERVERS), 1)).collect();
    let stream = Service { expire, ..tcp(V4, PORT, full_nat(V4), backends()) };
    let datagrams = Service { protocol: Protocol::Udp, ..stream.clone() };
    config([stream, datagrams])
}

/// Packets of no connection, which the kernel has no route for either.
fn strays(lab: &Lab) -> u64 {
    let passes = lab.balancer.passes().unwrap();
    passes.into_iter().find(|(reason, _)| *reason == Pass::NoConnection).unwrap().1
}

/// Which server answers a datagram from this socket.
fn asked(client: &UdpSocket, to: SocketAddr) -> u8 {
    let mut answer = [0; 8];
    let mut heard = 0;
    until("an answer", || {
        client.send_to(b"who", to).unwrap();
        heard = client.recv(&mut answer).unwrap_or(0);
        heard > 0
    });
    answer[0]
}

#[test]
fn a_removed_backend_keeps_its_conversations_or_loses_them() {
    let Some(mut lab) = Lab::new(Plan::default(), sizes(1024), &config([])) else { return };
    let at = SocketAddr::new(V4.parse().unwrap(), PORT);
    let stop = AtomicBool::new(false);
    let _echo = Echo::start(&lab.wires.servers[0], SERVERS);
    let sockets: Vec<UdpSocket> = (0..2)
        .map(|number| lab.wires.servers[number].run(|| UdpSocket::bind(("0.0.0.0", SERVERS)).unwrap()).unwrap())
        .collect();
    thread::scope(|scope| {
        for (number, socket) in sockets.iter().enumerate() {
            let stop = &stop;
            scope.spawn(move || {
                socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    if let Ok((_, from)) = socket.recv_from(&mut [0; 8]) {
                        socket.send_to(&[number as u8], from).unwrap();
                    }
                }
            });
        }
        struct Stop<'a>(&'a AtomicBool);
        impl std::ops::Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let _stop = Stop(&stop);
        for (expire, goes_on) in [(ExpiryPolicy::Never, true), (ExpiryPolicy::Removed, false)] {
            lab.balancer.apply(&plan(expire, &[0])).unwrap();
            let mut stream = lab.wires.client.run(|| TcpStream::connect_timeout(&at, TIMEOUT).unwrap()).unwrap();
            let datagrams = lab.wires.client.run(|| UdpSocket::bind("0.0.0.0:0").unwrap()).unwrap();
            datagrams.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
            stream.set_read_timeout(Some(TIMEOUT)).unwrap();
            let mut word = [0; 4];
            stream.write_all(b"here").unwrap();
            stream.read_exact(&mut word).unwrap();
            assert_eq!((&word, asked(&datagrams, at)), (b"here", 0));

            lab.balancer.apply(&plan(expire, &[1])).unwrap();
            lab.tend();
            let before = strays(&lab);
            stream.write_all(b"more").unwrap();
            if goes_on {
                stream.read_exact(&mut word).unwrap();
                assert_eq!((&word, asked(&datagrams, at)), (b"more", 0));
                assert_eq!(strays(&lab), before);
            } else {
                // The same socket, the same port.
                assert_eq!(asked(&datagrams, at), 1);
                lab.tend_until("what the stream goes on with", |lab| strays(lab) > before);
                stream.set_nonblocking(true).unwrap();
                assert_eq!(stream.read(&mut word).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
            }
            lab.balancer.flush(None, None).unwrap();
        }
    });
}
