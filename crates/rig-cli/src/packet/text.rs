//! Packets for people.

use std::fmt::{Display, Write};
use std::net::IpAddr;

use rig_wire::checksum::{Checksum, PartialChecksum};
use rig_wire::ethernet::Ethernet;
use rig_wire::ipv4::Ipv4;
use rig_wire::ipv6::Ipv6;
use rig_wire::tcp::Tcp;
use rig_wire::udp::Udp;
use rig_wire::vxlan::{self, Vxlan};
use rig_wire::{Malformed, protocol};

use super::{PacketOut, flag_names};

/// IP protocol numbers of IP in IP, IPv4 and IPv6 (RFC 2003, RFC 2473).
const IPIP: u8 = 4;
const IPV6_IN_IP: u8 = 41;
const GRE: u8 = 47;
/// Its header without options, with the Ethernet type of MPLS (RFC 4023).
const GRE_OF_MPLS: [u8; 4] = [0, 0, 0x88, 0x47];
/// RFC 7510.
const MPLS_PORT: u16 = 6635;
/// Of its stack (RFC 3032, 2.1).
const LAST_LABEL: u32 = 0x100;

/// A paragraph with an indent, its lines ended.
pub fn wrapped(text: &str, first: &str, others: &str, width: usize) -> String {
    let options = textwrap::Options::new(width.max(40)).initial_indent(first).subsequent_indent(others);
    textwrap::wrap(text, options).into_iter().map(|line| format!("{line}\n")).collect()
}

/// A trace: `head`, what was decided in its order, and what comes of it; for a drop why, that reason's name, and what to do.
/// `width` is that of the terminal, columns.
pub fn told(
    head: &str,
    steps: &[String],
    verdict: &str,
    reason: Option<[&str; 3]>,
    out: Option<&PacketOut>,
    width: usize,
) -> String {
    let mut text = format!("{head}\n");
    for (number, step) in (1..).zip(steps) {
        let first = format!("{number:>3}. ");
        text += &wrapped(step, &first, "     ", width);
    }
    text += &format!("verdict: {verdict}\n");
    if let Some([why, key, remedy]) = reason {
        text += &wrapped(&format!("{why} ({key})"), "  because: ", "           ", width);
        text += &wrapped(remedy, "  remedy:  ", "           ", width);
    }
    if let Some(packet) = out {
        // A packet that is dropped can have an ICMP error for its sender come back.
        text += if reason.is_some() { "answered with an ICMP error, " } else { "" };
        text += &shown(packet);
    }
    text
}

/// Headers and a little more, bytes.
const SHOWN: usize = 128;

/// A packet that leaves: by what, its headers, and its bytes.
fn shown(packet: &PacketOut) -> String {
    let PacketOut { device, source_mac, destination_mac, flow, bytes } = packet;
    let by = device.as_ref().map(|device| format!(" by {device}")).unwrap_or_default();
    let mut text = format!("out{by}, {source_mac} > {destination_mac}, {} bytes of IP\n  {flow}\n", bytes.len());
    for line in headers(bytes) {
        text += &format!("  {line}\n");
    }
    text += &hex(&bytes[..bytes.len().min(SHOWN)]);
    if bytes.len() > SHOWN {
        text += &format!("  ... and {} more bytes: --json has all\n", bytes.len() - SHOWN);
    }
    text
}

/// Sixteen bytes a line, with their offset.
fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (row, line) in bytes.chunks(16).enumerate() {
        text += &format!("  {:04x} ", row * 16);
        for (at, byte) in line.iter().enumerate() {
            let gap = if at == 8 { "  " } else { " " };
            let written = write!(text, "{gap}{byte:02x}");
            debug_assert!(written.is_ok(), "writing to a string");
        }
        text.push('\n');
    }
    text
}

/// A line for each header that can be read.
fn headers(bytes: &[u8]) -> Vec<String> {
    let mut lines = Vec::new();
    if let Err(error) = read_ip(bytes, &mut lines) {
        lines.push(format!("the rest cannot be read: {error}"));
    }
    lines
}

fn read_ip(bytes: &[u8], lines: &mut Vec<String>) -> Result<(), Malformed> {
    let (protocol, payload, pseudo) = if bytes.first().is_some_and(|byte| byte >> 4 == 6) {
        let ip = Ipv6::parse(bytes)?;
        lines.push(ip_line(ip.source().into(), ip.destination().into(), "hop limit", ip.hop_limit(), ""));
        (ip.protocol(), ip.payload(), ip.pseudo())
    } else {
        let ip = Ipv4::parse(bytes)?;
        let checksum = if ip.verify().is_ok() { ", checksum right" } else { ", checksum WRONG" };
        lines.push(ip_line(ip.source().into(), ip.destination().into(), "ttl", ip.ttl(), checksum));
        (ip.protocol(), ip.payload(), ip.pseudo())
    };
    match protocol {
        IPIP | IPV6_IN_IP => read_ip(payload, lines),
        protocol::TCP => {
            let tcp = Tcp::parse(payload)?;
            lines.push(format!(
                "TCP {} > {} {} seq {} ack {}, {} bytes, {}",
                tcp.source_port(),
                tcp.destination_port(),
                flag_names(tcp.flags()),
                tcp.sequence(),
                tcp.acknowledgment(),
                tcp.payload().len(),
                verified(tcp.verify(pseudo)),
            ));
            Ok(())
        }
        protocol::UDP => read_udp(payload, pseudo, bytes, lines),
        GRE if payload.starts_with(&GRE_OF_MPLS) => {
            lines.push("GRE with MPLS".to_owned());
            read_mpls(&payload[GRE_OF_MPLS.len()..], lines)
        }
        other => {
            lines.push(format!("IP protocol {other}, {} bytes", payload.len()));
            Ok(())
        }
    }
}

fn read_udp(payload: &[u8], pseudo: PartialChecksum, packet: &[u8], lines: &mut Vec<String>) -> Result<(), Malformed> {
    let udp = Udp::parse(payload)?;
    // Over IPv4 there may be no checksum.
    let optional = packet.first().is_some_and(|byte| byte >> 4 == 4);
    lines.push(format!(
        "UDP {} > {}, {} bytes, {}",
        udp.source_port(),
        udp.destination_port(),
        udp.payload().len(),
        verified(udp.verify(pseudo, optional)),
    ));
    match udp.destination_port() {
        MPLS_PORT => read_mpls(udp.payload(), lines),
        vxlan::PORT => {
            let vxlan = Vxlan::parse(udp.payload())?;
            let frame = Ethernet::parse(vxlan.payload())?;
            lines.push(format!("VXLAN {}, {} > {}", vxlan.vni(), frame.source(), frame.destination()));
            read_ip(frame.payload(), lines)
        }
        _ => Ok(()),
    }
}

/// Labels in front of an IP packet (RFC 3032).
fn read_mpls(mut bytes: &[u8], lines: &mut Vec<String>) -> Result<(), Malformed> {
    while let Some((entry, rest)) = bytes.split_first_chunk() {
        let entry = u32::from_be_bytes(*entry);
        lines.push(format!("MPLS label {}, ttl {}", entry >> 12, entry & 0xff));
        if entry & LAST_LABEL != 0 {
            return read_ip(rest, lines);
        }
        bytes = rest;
    }
    lines.push("no last MPLS label".to_owned());
    Ok(())
}

fn ip_line(source: IpAddr, destination: IpAddr, lifetime: &str, hops: u8, more: impl Display) -> String {
    let version = if source.is_ipv4() { "IPv4" } else { "IPv6" };
    format!("{version} {source} > {destination}, {lifetime} {hops}{more}")
}

fn verified(checksum: Result<Checksum, Malformed>) -> &'static str {
    match checksum {
        Ok(Checksum::Complete) => "checksum right",
        Ok(Checksum::Unfinished) => "checksum unfinished",
        Ok(Checksum::Absent) => "no checksum",
        Err(_) => "checksum WRONG",
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::*;
    use crate::packet;

    fn syn() -> Vec<u8> {
        let flow = packet::parse(&["tcp 10.0.0.1:1025 > 10.0.0.2:8080".to_owned()]).unwrap();
        PacketOut::of(&packet::frame(&flow, rig_wire::ethernet::Mac::default()).unwrap(), None).unwrap().bytes
    }

    #[test]
    fn wrong_checksums_and_broken_packets_are_told() {
        let mut bytes = syn();
        bytes[8] = 1;
        bytes[39] ^= 1;
        let lines = headers(&bytes);
        assert!(lines[0].ends_with("checksum WRONG") && lines[1].ends_with("checksum WRONG"), "{lines:?}");
        assert!(headers(&bytes[..30])[0].starts_with("the rest cannot be read"), "{:?}", headers(&bytes[..30]));
        assert!(headers(&[])[0].starts_with("the rest cannot be read"));
    }

    #[test]
    fn what_is_in_a_tunnel_is_read_too() {
        let inner = syn();
        let wrapped = |protocol: u8, between: &[u8]| {
            let mut packet = vec![0; rig_wire::ipv4::HEADER];
            let (source, destination) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
            let header = rig_wire::ipv4::Header { source, destination, protocol, ttl: 64, tos: 0 };
            header.write(&mut packet, between.len() + inner.len()).unwrap();
            [&packet[..], between, &inner].concat()
        };
        let udp = |to: u16, shim: &[u8]| {
            let length = (8 + shim.len() + inner.len()) as u16;
            [&[0xc3, 0x50], &to.to_be_bytes()[..], &length.to_be_bytes(), &[0, 0], shim].concat()
        };
        let mpls = [0, 6, 0x61, 62];
        let vxlan = [&[8, 0, 0, 0, 0, 0x10, 0x92, 0][..], &[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]].concat();
        for (packet, line) in [
            (wrapped(17, &udp(6635, &mpls)), "MPLS label 102, ttl 62"),
            (wrapped(47, &[&GRE_OF_MPLS[..], &mpls].concat()), "MPLS label 102, ttl 62"),
            (wrapped(17, &udp(4789, &vxlan)), "VXLAN 4242, 02:00:00:00:00:02 > 02:00:00:00:00:01"),
        ] {
            let lines = headers(&packet);
            assert!(
                lines[0].starts_with("IPv4 192.0.2.1 > 192.0.2.2") && lines.iter().any(|is| is == line),
                "{lines:?}"
            );
            assert!(lines.last().unwrap().starts_with("TCP 1025 > 8080 [syn]"), "{lines:?}");
        }
        // A stack without an end.
        let lines = headers(&wrapped(17, &udp(6635, &[0, 6, 0x60, 62])));
        assert!(
            lines.last().unwrap() == "no last MPLS label" || lines.last().unwrap().starts_with("the rest"),
            "{lines:?}"
        );
    }
}
