//! How backends are told of clients' addresses.

use std::net::IpAddr;

use rig_wire::checksum::update;

use super::super::config::ClientAddress;
use super::packet::{Kind, Packet};
use super::syn_proxy::{edit, first, times};
use super::{ACK, Direction, Model, RST, SYN, ServiceId};

const TOA: u8 = 254;
const VOID: u8 = 253;
const MOST_OPTIONS: usize = 40;
const MOST_HEADER: usize = 60;
const LEAST_MSS: u16 = 216;

/// Whether an ICMP error says that a packet was too big.
fn says_too_big(icmp: &[u8], ipv6: bool) -> bool {
    if ipv6 { icmp[0] == 2 } else { icmp[..2] == [3, 4] }
}

impl Model {
    /// By how much a segment grows that tells its backend.
    pub(super) fn address_bytes(&self, service: ServiceId, packet: &Packet) -> usize {
        match (self.services[service.0].service.client_address, packet.is_ipv6()) {
            (ClientAddress::Off, _) => 0,
            (ClientAddress::Toa, false) => 8,
            (ClientAddress::Toa, true) => 20,
        }
    }

    /// A packet that is translated tells the backend of its client, or shows that this knows of it.
    pub(super) fn tell(&mut self, at: usize, packet: &mut Packet, frame: &mut Vec<u8>, direction: Direction, mtu: usize) {
        if !self.connections[at].tells {
            return;
        }
        let ipv6 = packet.is_ipv6();
        let tcp_flags = match packet.kind {
            Kind::Flow { tcp_flags } => tcp_flags,
            Kind::Error => {
                let too_big = says_too_big(&frame[packet.l4..], ipv6);
                self.connections[at].tells &= direction == Direction::Inward || !too_big;
                return;
            }
        };
        let outward = direction == Direction::Outward;
        let answers = tcp_flags & (SYN | ACK) == SYN | ACK;
        if tcp_flags & RST != 0 {
            return;
        }
        if outward && !answers {
            // Where the SYN proxy has made the SYN-ACK something else, that shows nothing.
            self.connections[at].tells &= tcp_flags & ACK == 0 || self.changed;
            return;
        }
        let by = if ipv6 { 20 } else { 8 };
        let l4 = packet.l4..packet.l3 + packet.length;
        let doff = usize::from(frame[l4.start + 12] >> 4) * 4;
        let there = &mut frame[l4.start..];
        edit(there, 16, |tcp| {
            for (at, option) in first(tcp, MOST_OPTIONS) {
                match option[..] {
                    [TOA, _, ..] => tcp[at] = VOID,
                    [2, 4, high, low] if outward => {
                        let mss = u16::from_be_bytes([high, low]);
                        let lower = if mss >= LEAST_MSS + by { mss - by } else { mss };
                        tcp[at + 2..at + 4].copy_from_slice(&lower.to_be_bytes());
                    }
                    _ => {}
                }
            }
        });
        if outward {
            return;
        }
        let by = usize::from(by);
        let full = doff + by > MOST_HEADER;
        if doff < 20 || doff > l4.len() || full && tcp_flags & SYN != 0 || packet.length + by > mtu {
            self.left_out = true;
            return;
        }
        let client = self.connections[at].client;
        let mut option = vec![TOA, by as u8];
        option.extend(client.port().to_be_bytes());
        match client.ip() {
            IpAddr::V4(v4) => option.extend(v4.octets()),
            IpAddr::V6(v6) => option.extend(v6.octets()),
        }
        let word = |bytes: &[u8], at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let mut checksum = word(frame, l4.start + 16);
        // A full header loses what is no timestamps.
        let replaced = if full { l4.start + 20..l4.start + doff } else { l4.start + 20..l4.start + 20 };
        if full {
            if let Some((own, echo)) = times(&frame[l4.start..]) {
                option.extend([&[1, 1, 8, 10][..], &own.to_be_bytes(), &echo.to_be_bytes()].concat());
            }
            option.resize(option.len().max(doff - 20), 1);
        }
        let by = option.len() - replaced.len();
        checksum = frame[replaced.clone()].chunks(2).fold(checksum, |checksum, pair| update(checksum, word(pair, 0), 0));
        let before = word(frame, l4.start + 12);
        frame[l4.start + 12] += (by as u8 / 4) << 4;
        checksum = update(checksum, before, word(frame, l4.start + 12));
        checksum = update(checksum, l4.len() as u16, (l4.len() + by) as u16);
        checksum = option.chunks(2).fold(checksum, |checksum, pair| update(checksum, 0, word(pair, 0)));
        frame[l4.start + 16..l4.start + 18].copy_from_slice(&checksum.to_be_bytes());
        frame.splice(replaced, option);
        packet.length += by;
        let ip = &mut frame[packet.l3..];
        if ipv6 {
            ip[4..6].copy_from_slice(&((packet.length - 40) as u16).to_be_bytes());
        } else {
            let checksum = update(word(ip, 10), word(ip, 2), packet.length as u16);
            ip[2..4].copy_from_slice(&(packet.length as u16).to_be_bytes());
            ip[10..12].copy_from_slice(&checksum.to_be_bytes());
        }
    }
}
