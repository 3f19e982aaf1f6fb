//! What `netrig lb trace` prints: the way of a packet through the program, and the packet as it leaves.

use std::fmt::{Display, Write};
use std::net::IpAddr;

use rig_wire::checksum::{Checksum, Sum};
use rig_wire::ipv4::Ipv4;
use rig_wire::ipv6::Ipv6;
use rig_wire::tcp::Tcp;
use rig_wire::udp::Udp;
use rig_wire::{Malformed, protocol};

use super::drops;
use super::flow::flag_names;
use super::message::{Flow, PacketOut, Trace};

/// IP protocol numbers of IP in IP, IPv4 and IPv6 (RFC 2003, RFC 2473).
const IPIP: u8 = 4;
const IPV6_IN_IP: u8 = 41;

/// `width` is that of the terminal, columns.
pub fn write(flow: &Flow, trace: &Trace, width: usize) -> String {
    let mut text = format!("{flow}, in by {}\n", trace.device);
    for (number, step) in (1..).zip(&trace.steps) {
        let first = format!("{number:>3}. ");
        text += &drops::wrapped(step, &first, "     ", width);
    }
    text += &format!("verdict: {}\n", trace.verdict);
    if let Some(reason) = &trace.reason {
        text += &drops::wrapped(&format!("{} ({})", reason.text, reason.key), "  because: ", "           ", width);
        text += &drops::wrapped(&reason.remedy, "  remedy:  ", "           ", width);
    }
    if let Some(packet) = &trace.packet_out {
        // A packet that is dropped can have an ICMP error for its sender come back.
        text += if trace.reason.is_some() { "answered with an ICMP error, " } else { "" };
        text += &packet_out(packet);
    }
    text
}

/// Headers and a little more, bytes.
const SHOWN: usize = 128;

fn packet_out(packet: &PacketOut) -> String {
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
        other => {
            lines.push(format!("IP protocol {other}, {} bytes", payload.len()));
            Ok(())
        }
    }
}

fn read_udp(payload: &[u8], pseudo: Sum, packet: &[u8], lines: &mut Vec<String>) -> Result<(), Malformed> {
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
    use std::net::Ipv4Addr;

    use rig_wire::tcp::flags::SYN;
    use rig_wire::{ipv4, tcp};

    use super::*;
    use crate::flow;
    use crate::message::ReasonCount;

    fn syn(source: [u8; 4], destination: [u8; 4]) -> Vec<u8> {
        let (source, destination) = (Ipv4Addr::from(source), Ipv4Addr::from(destination));
        let mut packet = [0; 60];
        let ip = ipv4::Header { source, destination, protocol: protocol::TCP, ttl: 63, tos: 0 };
        let begin = ip.write(&mut packet, tcp::HEADER).unwrap();
        let header = tcp::Header {
            source_port: 1025,
            destination_port: 8080,
            sequence: 7,
            acknowledgment: 0,
            flags: SYN,
            window: 65_535,
            options: tcp::Options::default(),
        };
        let pseudo = Sum::pseudo_v4(source, destination, protocol::TCP, tcp::HEADER);
        let end = begin + header.write(&mut packet[begin..], 0, pseudo).unwrap();
        packet[..end].to_vec()
    }

    fn traced() -> Trace {
        Trace {
            device: "eth0".to_owned(),
            steps: vec!["for service tcp 192.0.2.1:80".to_owned(), "a new connection, to 10.0.0.2:8080".to_owned()],
            verdict: "forward".to_owned(),
            reason: None,
            packet_out: Some(PacketOut {
                device: Some("eth1".to_owned()),
                source_mac: "02:00:00:00:00:01".to_owned(),
                destination_mac: "02:00:00:00:00:02".to_owned(),
                flow: "10.0.0.1:1025 > 10.0.0.2:8080".to_owned(),
                bytes: syn([10, 0, 0, 1], [10, 0, 0, 2]),
            }),
        }
    }

    fn packet() -> Flow {
        flow::parse(&["tcp 198.51.100.9:40000 > 192.0.2.1:80".to_owned()]).unwrap()
    }

    #[test]
    fn a_packet_that_leaves_is_decoded() {
        insta::assert_snapshot!(write(&packet(), &traced(), 80));
    }

    #[test]
    fn a_drop_says_why_and_what_to_do() {
        let reason = ReasonCount {
            number: 5,
            key: "no_backend".to_owned(),
            text: "a new connection for a service that has no backend with a weight".to_owned(),
            remedy: "add a backend, or give one a weight".to_owned(),
            packets: 3,
            rate: 0,
        };
        let trace = Trace { verdict: "drop".to_owned(), reason: Some(reason), packet_out: None, ..traced() };
        insta::assert_snapshot!(write(&packet(), &trace, 80));
    }

    #[test]
    fn what_comes_back_for_a_drop_is_told_from_the_packet_and_is_cut() {
        let reason = ReasonCount {
            number: 12,
            key: "too_big_told".to_owned(),
            text: "too large".to_owned(),
            remedy: "nothing".to_owned(),
            packets: 1,
            rate: 0,
        };
        let mut trace = Trace { verdict: "drop".to_owned(), reason: Some(reason), ..traced() };
        trace.packet_out.as_mut().unwrap().bytes.resize(576, 0);
        let text = write(&packet(), &trace, 80);
        assert!(text.contains("\nanswered with an ICMP error, out by eth1"), "{text}");
        assert!(text.ends_with("  ... and 448 more bytes: --json has all\n"), "{text}");
        assert!(!text.contains("\n  0080 "), "{text}");
    }

    #[test]
    fn wrong_checksums_and_broken_packets_are_told() {
        let mut bytes = syn([10, 0, 0, 1], [10, 0, 0, 2]);
        bytes[8] = 1;
        bytes[39] ^= 1;
        let lines = headers(&bytes);
        assert!(lines[0].ends_with("checksum WRONG") && lines[1].ends_with("checksum WRONG"), "{lines:?}");
        assert!(headers(&bytes[..30])[0].starts_with("the rest cannot be read"), "{:?}", headers(&bytes[..30]));
        assert!(headers(&[])[0].starts_with("the rest cannot be read"));
    }
}
