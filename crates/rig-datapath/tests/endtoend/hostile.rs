//! Frames that nobody in his right mind sends, at the attached program, while conversations go on.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rig_datapath::balancer::{Config, Drop, Protocol, Service};
use rig_sys::netns::NetNs;
use rig_sys::packet_socket::{Options, Port, Sender};
use rig_sys::xdp::Place;
use rig_wire::ethernet::Mac;
use rig_wire::tcp::flags::{ACK, FIN, RST, SYN};

use crate::frames::{Frame, L4, ethernet, icmp_error, ip};
use crate::lab::{self, HOST, Lab, Plan, Random, Wires};
use crate::steady::{LINES, PORTS, SERVICE, are_unbroken, echoes, plan, services};
use crate::talk::{Arrivals, Talk, again};
use crate::{V4, V6, local, sizes};

/// Where what is sent from a client's namespace goes.
struct Attacker {
    sender: Sender,
    balancer: Mac,
    random: Random,
}

impl Attacker {
    fn new(client: &NetNs, balancer: Mac, seed: u64) -> Self {
        let options = Options { frame: 2048, burst: 32, ..Options::default() };
        let port = client.run(|| Port::open(HOST, &[Place { queue: 0, cpu: None }], &options).unwrap()).unwrap();
        let (_, sender) = port.queues.into_iter().next().unwrap();
        Self { sender, balancer, random: Random::new(seed) }
    }

    /// To the balancer's interface, whatever else the frame says.
    fn send(&mut self, frame: &[u8]) {
        // A full ring waits for the wire.
        let room = loop {
            if self.sender.claim(0).is_some() {
                break self.sender.claim(frame.len());
            }
            self.sender.flush();
            thread::sleep(Duration::from_micros(100));
        };
        if let Some(room) = room {
            room.copy_from_slice(frame);
            let link = room.len().min(6);
            room[..link].copy_from_slice(&self.balancer.0[..link]);
        }
    }
}
