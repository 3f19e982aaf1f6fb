//! A server's end of an IP tunnel, for kernels without one: takes packets in IP out and gives them to the kernel again,
//! by a wire that begins and ends in the server's namespace.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rig_datapath::balancer::GUE_PORT;
use rig_sys::netlink::{Netlink, VethPair};
use rig_sys::netns::NetNs;
use rig_sys::packet_socket::{Options, Port};
use rig_sys::xdp::QueueCpu;
use rig_wire::ethernet::{self, Ethernet, Mac, ethertype};

use super::lab::{HOST, until};

/// IP in IP (RFC 2003), and IPv6 in IPv6 (RFC 2473).
const IPIP: u8 = 4;
const IPV6: u8 = 41;
const GRE: u8 = 47;
const UDP: u8 = 17;

pub struct Decapsulator {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Decapsulator {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(ended.is_some_and(|ended| ended.is_ok()) || thread::panicking(), "the tunnel's end has failed");
    }
}

impl Decapsulator {
    pub fn start(ns: &NetNs) -> Self {
        let mut link = Netlink::open(ns).unwrap();
        link.add_veth(&VethPair { name: "inner0", peer: "inner1", peer_ns: ns, queues: 1, mtu: 1500 }).unwrap();
        ["inner0", "inner1"].iter().for_each(|name| link.set_up(name).unwrap());
        until("the inner wire", || link.is_operational("inner1").unwrap());
        let open = |name| Port::open(name, &[QueueCpu { queue: 0, cpu: None }], &options()).unwrap();
        let (outer, inner) = ns.run(|| (open(HOST), open("inner0"))).unwrap();
        let to = ns.sysfs().unwrap().read("inner1", "address").unwrap();
        let mut destination = Mac::default();
        to.split(':').zip(&mut destination.0).for_each(|(hex, byte)| *byte = u8::from_str_radix(hex, 16).unwrap());
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = thread::spawn(move || unpack(outer, inner, destination, &stopped));
        Self { stop, thread: Some(thread) }
    }
}

fn options() -> Options {
    Options { frame: 2048, burst: 32, ..Options::default() }
}

/// What is in IP in IP, GRE without fields (RFC 2784), or UDP to 6080 and GUE, variant 0 (draft-ietf-intarea-gue).
fn inside(protocol: u8, packet: &[u8], ipv6: bool) -> Option<&[u8]> {
    let own = if ipv6 { IPV6 } else { IPIP };
    match protocol {
        GRE => packet.strip_prefix(if ipv6 { &[0, 0, 0x86, 0xdd] } else { &[0, 0, 0x08, 0x00] }),
        UDP => {
            let (udp, gue) = packet.split_at_checked(8)?;
            gue.strip_prefix(&[0, own, 0, 0]).filter(|_| udp[2..4] == GUE_PORT.get().to_be_bytes())
        }
        protocol => Some(packet).filter(|_| protocol == own),
    }
}

fn unpack(outer: Port, inner: Port, destination: Mac, stop: &AtomicBool) {
    let source = Mac(inner.mac);
    let (Some((mut receiver, _)), Some((_, mut sender))) =
        (outer.queues.into_iter().next(), inner.queues.into_iter().next())
    else {
        panic!("a port of one queue has one");
    };
    while !stop.load(Ordering::Relaxed) {
        let count = receiver.poll();
        for n in 0..count {
            let Ok(frame) = Ethernet::parse(receiver.frame(n)) else { continue };
            let packet = frame.payload();
            let (ethertype, inside) = match packet.first().map(|byte| byte >> 4) {
                Some(4) if packet.len() > 20 => (ethertype::IPV4, inside(packet[9], &packet[20..], false)),
                Some(6) if packet.len() > 40 => (ethertype::IPV6, inside(packet[6], &packet[40..], true)),
                _ => continue,
            };
            let Some(packet) = inside else { continue };
            // A full ring is a full wire.
            let Some(room) = sender.claim(ethernet::HEADER + packet.len()) else { continue };
            let header = ethernet::Header { destination, source, vlan: None, ethertype };
            let length = header.write(room).unwrap();
            room[length..].copy_from_slice(packet);
        }
        sender.flush();
        if count == 0 {
            thread::sleep(Duration::from_micros(200));
        }
    }
}
