//! What `netrig lb trace` prints: the way of a packet through the program, and the packet as it leaves.

use rig_cli::packet;

use super::message::{Flow, Trace};

/// `width` is that of the terminal, columns.
pub fn write(flow: &Flow, trace: &Trace, width: usize) -> String {
    let reason = trace.reason.as_ref().map(|reason| [reason.text.as_str(), &reason.key, &reason.remedy]);
    let head = format!("{flow}, in by {}", trace.device);
    packet::told(&head, &trace.steps, &trace.verdict, reason, trace.packet_out.as_ref(), width)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use std::net::Ipv4Addr;

    use rig_wire::checksum::PartialChecksum;
    use rig_wire::tcp::flags::SYN;
    use rig_wire::{ipv4, protocol, tcp};

    use super::*;
    use crate::message::{PacketOut, ReasonCount};

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
        let pseudo = PartialChecksum::pseudo_v4(source, destination, protocol::TCP, tcp::HEADER);
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
        packet::parse(&["tcp 198.51.100.9:40000 > 192.0.2.1:80".to_owned()]).unwrap()
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
}
