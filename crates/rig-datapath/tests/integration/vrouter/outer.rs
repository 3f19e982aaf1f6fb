//! Packets of containers, and what tunnels make of them.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;

use rig_datapath::vrouter::{Action, Encapsulation, FlowActions, ROUTER_MAC, Rule};
use rig_wire::ethernet::{self, Mac, ethertype};
use rig_wire::tcp::Options;
use rig_wire::{ipv4, protocol, udp, vxlan};

use super::frames::{Frame, L4};
use super::lab::mac_of;

const MPLS: u16 = 6635;

pub fn framed(source: Mac, destination: Mac, packet: &[u8]) -> Vec<u8> {
    let kind = if packet[0] >> 4 == 4 { ethertype::IPV4 } else { ethertype::IPV6 };
    let mut bytes = vec![0; ethernet::HEADER];
    ethernet::Header { destination, source, vlan: None, ethertype: kind }.write(&mut bytes).unwrap();
    bytes.extend(packet);
    bytes
}

/// A packet that is no neighbour's question, so that nothing but the test is counted.
pub fn tcp(flags: u8, source: SocketAddr, destination: SocketAddr) -> Vec<u8> {
    Frame::new(L4::Tcp(flags), source, destination).packet()
}

/// With the largest segment that its sender takes.
pub fn with_mss(flags: u8, source: SocketAddr, destination: SocketAddr, mss: u16) -> Vec<u8> {
    let options = Options { mss: Some(mss), ..Options::default() };
    Frame { options, ..Frame::new(L4::Tcp(flags), source, destination) }.packet()
}

pub fn at(address: impl Into<IpAddr>, port: u16) -> SocketAddr {
    SocketAddr::new(address.into(), port)
}

/// The outer packet that a tunnel makes of an inner one.
pub fn wrapped(encapsulation: Encapsulation, inner: &[u8], ttl: u8, port: u16, from: usize) -> Vec<u8> {
    let address = |node: usize| Ipv4Addr::new(192, 0, 2, 1 + node as u8);
    let (source, destination) = (address(from), address(1 - from));
    let label = |label: u32| (label << 12 | 0x100 | u32::from(ttl)).to_be_bytes();
    let (proto, payload) = match encapsulation {
        Encapsulation::MplsOverGre => (47, [&[0, 0, 0x88, 0x47][..], &label(100), inner].concat()),
        Encapsulation::MplsOverUdp => (protocol::UDP, [&label(100)[..], inner].concat()),
        Encapsulation::Vxlan => {
            let mut header = vec![0; vxlan::HEADER];
            vxlan::write(&mut header, 4242).unwrap();
            (protocol::UDP, [header, framed(ROUTER_MAC, mac_of(1 - from as u8, 0), inner)].concat())
        }
    };
    let mut l4 = Vec::new();
    if proto == protocol::UDP {
        let to = if encapsulation == Encapsulation::Vxlan { vxlan::PORT } else { MPLS };
        l4 = vec![0; udp::HEADER];
        l4[..2].copy_from_slice(&port.to_be_bytes());
        l4[2..4].copy_from_slice(&to.to_be_bytes());
        l4[4..6].copy_from_slice(&((udp::HEADER + payload.len()) as u16).to_be_bytes());
    }
    l4.extend(payload);
    let mut ip = vec![0; 20];
    ipv4::Header { source, destination, protocol: proto, ttl: 64, tos: 0 }.write(&mut ip, l4.len()).unwrap();
    [ip, l4].concat()
}

pub fn rule(protocol: Option<u8>, ports: RangeInclusive<u16>, action: Action) -> Rule {
    Rule { protocol, ports, remote: BTreeSet::new(), action, flow_actions: FlowActions::default() }
}
