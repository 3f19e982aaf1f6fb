//! Clients with few ports, which they use again and again.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use netrig_lb::message::{ServiceEntry, Status};
use rustix::process::Signal;
use socket2::{Domain, Socket, Type};

use super::lab::{Lab, SERVICE, TIMEOUT, exchange};
use super::world::until;
use super::{BOTH, FIRST, with_lab};

const PORTS: std::ops::Range<u16> = 40_000..40_050;

/// A connection from this port, which both ends know to be there and which ends by a reset; whether it came to be.
fn use_port(lab: &Lab, port: u16, time_limit: Duration) -> bool {
    let at: SocketAddr = SERVICE.parse().unwrap();
    lab.client
        .run(|| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            socket.set_reuse_address(true).unwrap();
            socket.bind(&SocketAddr::from(([10, 1, 0, 2], port)).into()).unwrap();
            if socket.connect_timeout(&at.into(), time_limit).is_err() {
                return false;
            }
            let mut stream = TcpStream::from(socket);
            stream.set_read_timeout(Some(TIMEOUT)).unwrap();
            exchange(&mut stream, 10).unwrap();
            Socket::from(stream).set_linger(Some(Duration::ZERO)).unwrap();
            true
        })
        .unwrap()
}

fn status(lab: &Lab) -> Status {
    serde_json::from_str(&lab.netrig(0, &["status", "--json"]).0).unwrap()
}

fn service(lab: &Lab) -> ServiceEntry {
    status(lab).services.remove(0)
}

#[test]
fn few_ports_reach_a_backend_that_was_added_and_are_counted_each_time() {
    with_lab(|lab| {
        let running = lab.run(&[&lab.file(FIRST)]);
        drop(lab.connect());
        let use_all = || PORTS.filter(|port| use_port(lab, *port, TIMEOUT)).count() as u64;
        assert_eq!(use_all(), 50);
        let before = service(lab).counters.connections;
        lab.file(BOTH);
        running.signal(Signal::HUP);
        let two = until(TIMEOUT, || (service(lab).backends.len() == 2).then_some(()));
        assert!(two.is_some(), "{}", running.said());
        let opened: u64 = (0..4).map(|_| use_all()).sum();
        let now = service(lab);
        assert_eq!((opened, now.counters.connections - before), (200, 200));
        let of_second = now.backends.iter().find(|backend| backend.address.to_string() == "10.2.0.3:8080").unwrap();
        assert_eq!(of_second.counters.connections, 100);
    });
}

/// Without a daemon the table is not swept: each connection takes a place, also when it uses a port again, until no place is
/// left. The next daemon has all counters, frees the places, and goes on.
#[test]
fn a_table_fills_while_no_control_plane_runs_and_is_swept_by_the_next() {
    with_lab(|lab| {
        let file = lab.file(FIRST);
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, text.replace("connections = 10_000", "connections = 200")).unwrap();
        let mut running = lab.run(&[&file, "--persist"]);
        drop(lab.connect());
        let before = service(lab).counters.connections;
        running.kill();
        let mut ports = PORTS.cycle();
        let opened =
            ports.by_ref().take(201).take_while(|port| use_port(lab, *port, Duration::from_secs(2))).count() as u64;
        let _running = lab.run(&["--persist"]);
        let now = status(lab);
        // Some of these may have to share their places (`index_full`).
        assert!((100..=200).contains(&(before + opened)), "{opened}");
        assert_eq!(now.services[0].counters.connections, before + opened);
        let full = now.drops.iter().filter(|drop| ["table_full", "index_full"].contains(&drop.key.as_str()));
        assert!(full.map(|drop| drop.packets).sum::<u64>() > 0, "{:?}", now.drops);
        // Swept, it takes more.
        assert_eq!(PORTS.filter(|port| use_port(lab, *port, TIMEOUT)).count(), 50);
        assert_eq!(service(lab).counters.connections, before + opened + 50);
    });
}
