//! What tunnels make of packets, as another program reads it: Wireshark's dissectors.

use std::process::{Command, Stdio};

use rig_datapath::vrouter::Encapsulation;
use rig_skip::{Lack, skip};
use rig_wire::tcp::flags::SYN;

use super::frames::{Frame, L4, ip};
use super::lab::{Lab, VNI, v4_of, v6_of};
use super::outer::{at, tcp, with_mss};

/// A capture file of Ethernet frames, one each millisecond (draft-ietf-opsawg-pcap).
fn capture(frames: &[Vec<u8>]) -> Vec<u8> {
    let words = [0xa1b2_c3d4_u32, 2 | 4 << 16, 0, 0, 65_535, 1];
    let mut file: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    for (frame, number) in frames.iter().zip(0..) {
        let length = frame.len() as u32;
        file.extend([0, 1000 * number, length, length].iter().flat_map(|word: &u32| word.to_le_bytes()));
        file.extend(frame);
    }
    file
}

/// Fields of each frame as tshark reads them, several of one name joined by commas, with all checksums checked.
fn fields(file: &std::path::Path, names: &[&str]) -> Vec<Vec<String>> {
    let mut tshark = Command::new("tshark");
    tshark.args(["-n", "-T", "fields", "-r"]).arg(file);
    for preference in ["ip.check_checksum:TRUE", "tcp.check_checksum:TRUE", "udp.check_checksum:TRUE"] {
        tshark.args(["-o", preference]);
    }
    for name in names {
        tshark.args(["-e", name]);
    }
    let output = tshark.stdin(Stdio::null()).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "tshark: {error}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

#[test]
fn captures_of_tunnels_are_read_by_tshark() {
    if Command::new("tshark").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
        return skip(Lack::Program("tshark"), "no tshark on PATH");
    }
    for encapsulation in Encapsulation::ALL {
        let Some(lab) = Lab::new(2, 1, encapsulation) else { return };
        let node = &lab.nodes[0];
        let (v4, v6) = ((v4_of(0, 0).into(), v4_of(1, 0).into()), (v6_of(0, 0), v6_of(1, 0)));
        let mut frames = Vec::new();
        for (from, to) in [v4, v6] {
            frames.push(node.passes(&tcp(SYN, at(from, 1000), at(to, 80))));
            frames.push(node.passes(&with_mss(SYN, at(from, 1001), at(to, 80), 1460)));
            frames.push(node.passes(&Frame::new(L4::Udp, at(from, 1000), at(to, 5000)).payload(&[7; 100]).packet()));
            // Of a protocol that has no ports.
            frames.push(node.passes(&ip(from, to, 132, 64, &[0; 12])));
        }
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("tunnel.pcap");
        std::fs::write(&file, capture(&frames)).unwrap();
        let (outer, label) = match encapsulation {
            Encapsulation::MplsOverUdp => ("eth:ethertype:ip:udp:mpls", "mpls.label"),
            Encapsulation::MplsOverGre => ("eth:ethertype:ip:gre:mpls", "mpls.label"),
            Encapsulation::Vxlan => ("eth:ethertype:ip:udp:vxlan:eth:ethertype", "vxlan.vni"),
        };
        let names =
            ["frame.protocols", label, "mpls.bottom", "_ws.malformed", "ip.checksum.status", "tcp.checksum.status"];
        let all = fields(&file, &names);
        assert_eq!(all.len(), frames.len());
        let expected = if encapsulation == Encapsulation::Vxlan { VNI } else { 100 };
        for (seen, number) in all.iter().zip(0..) {
            let inner = if number < 4 { "ip" } else { "ipv6" };
            let above = ["tcp", "tcp", "udp:data", "sctp"][number % 4];
            assert_eq!(seen[0], format!("{outer}:{inner}:{above}"), "{seen:?}");
            assert_eq!(seen[1], expected.to_string(), "{seen:?}");
            let bottom = if encapsulation == Encapsulation::Vxlan { "" } else { "1" };
            assert_eq!(seen[2], bottom, "{seen:?}");
            assert_eq!(seen[3], "", "malformed: {seen:?}");
            // 1 is good.
            assert_eq!(seen[4], if inner == "ip" { "1,1" } else { "1" }, "{seen:?}");
            assert_eq!(seen[5], if above == "tcp" { "1" } else { "" }, "{seen:?}");
        }
    }
}
