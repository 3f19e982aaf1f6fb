//! UDP streams over loopback between real worker processes.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has to panic")]

mod common;

use std::net::{SocketAddr, UdpSocket};

use common::*;
use rig_load::plan::{Datagrams, Flow, Load, Pacing, Role};
use rig_load::protocol::Event;

fn datagrams() -> Datagrams {
    Datagrams {
        flow: Flow::Forward,
        threads: 1,
        connections: 1,
        message: 1000,
        batch: 8,
        segments: 1,
        coalesce: false,
        throttle: None,
        pacing: Pacing::Thread,
        send_buffer: None,
        receive_buffer: None,
    }
}

fn listening(load: &Datagrams, address: SocketAddr) -> Bare {
    Bare::with_plan(plan("b/receiver", Role::Listen { address }, Load::UdpStream(load.clone()), PHASES))
}

fn connecting(load: &Datagrams, to: SocketAddr) -> Bare {
    Bare::with_plan(plan("a/sender", Role::Connect { to }, Load::UdpStream(load.clone()), PHASES))
}

fn loopbacks() -> Vec<SocketAddr> {
    let all: [SocketAddr; 2] = ["127.0.0.1:0".parse().unwrap(), "[::1]:0".parse().unwrap()];
    let (there, missing): (Vec<_>, Vec<_>) = all.into_iter().partition(|address| UdpSocket::bind(address).is_ok());
    missing.iter().for_each(|address| eprintln!("skipped {address}: this machine has no such address"));
    there
}

#[test]
fn flows_stand_although_strangers_talk_and_greetings_get_lost() {
    for mut address in loopbacks() {
        let load = Datagrams { threads: 2, connections: 3, ..datagrams() };
        let mut listen = listening(&load, address);
        let Some(Event::Listening { port }) = listen.event() else { panic!("it does not listen") };
        address.set_port(port);
        let stranger = UdpSocket::bind(SocketAddr::new(address.ip(), 0)).unwrap();
        for length in [0, 1, 40, 41, 1000] {
            stranger.send_to(&vec![7; length], address).unwrap();
        }
        // A greeting of another format, and one that fits but for the number of flows.
        stranger.send_to(b"netrig\0\x02--------------------------------", address).unwrap();
        let mut hello = *b"netrig\0\x01\0\0\0\x01--------------------------------";
        stranger.send_to(&hello, address).unwrap();
        hello[12..16].fill(0);
        stranger.send_to(&hello, address).unwrap();
        let mut connect = connecting(&load, address);
        assert_eq!(connect.event(), Some(Event::Connected));
        assert_eq!(listen.event(), Some(Event::Connected));
        stranger.set_nonblocking(true).unwrap();
        assert!(stranger.recv(&mut [0; 100]).is_err());
    }
}

/// A greeting as it goes over the wire.
fn greeting(kind: u32, flow: u32, token: u64, flows: u64) -> Vec<u8> {
    [
        &b"netrig\0\x01"[..],
        &kind.to_be_bytes(),
        &flow.to_be_bytes(),
        &token.to_be_bytes(),
        &flows.to_be_bytes(),
        &[0; 8],
    ]
    .concat()
}

#[test]
fn a_greeting_that_is_repeated_is_answered_until_the_start() {
    for mut address in loopbacks() {
        let flows = 2;
        let mut listen = listening(&Datagrams { connections: flows, ..datagrams() }, address);
        let Some(Event::Listening { port }) = listen.event() else { panic!("it does not listen") };
        address.set_port(port);
        let (token, total) = (77, u64::from(flows));
        let mut sockets = vec![];
        for flow in 0..flows {
            let socket = UdpSocket::bind(SocketAddr::new(address.ip(), 0)).unwrap();
            socket.connect(address).unwrap();
            // Two that are not meant for this flow or this number of flows, and one of another run.
            socket.send(&greeting(1, flow + 1, token, total)).unwrap();
            socket.send(&greeting(1, flow, token, total + 1)).unwrap();
            if flow > 0 {
                socket.send(&greeting(1, flow, token + 1, total)).unwrap();
            }
            for _ in 0..3 {
                socket.send(&greeting(1, flow, token, total)).unwrap();
                let mut answer = [0; 100];
                let length = socket.recv(&mut answer).unwrap();
                assert_eq!(answer[..length], greeting(2, flow, token, 0));
            }
            sockets.push(socket);
        }
        assert_eq!(listen.event(), Some(Event::Connected));
        let (last, mut answer) = (sockets.last().unwrap(), [0; 100]);
        last.send(&greeting(1, flows - 1, token, total)).unwrap();
        assert_eq!(last.recv(&mut answer).unwrap(), 40);
    }
}

#[test]
fn nobody_listens() {
    for address in loopbacks() {
        let free = UdpSocket::bind(address).unwrap().local_addr().unwrap();
        connecting(&datagrams(), free).fails_with(&["flow 1 of 1", &free.to_string(), "connection refused"]);
    }
    connecting(&datagrams(), address()).fails_with(&["127.0.0.1:0", "port"]);
}

#[test]
fn the_port_is_in_use() {
    for address in loopbacks() {
        let taken = UdpSocket::bind(address).unwrap();
        listening(&datagrams(), taken.local_addr().unwrap()).fails_with(&["in use", "ss -lunp"]);
    }
}
