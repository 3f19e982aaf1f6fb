//! What an analyser gets: sockets of its own, and Wireshark's dissectors.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rig_datapath::vrouter::model::{MirrorCopy, Model};
use rig_datapath::vrouter::{Analyser, Encapsulation, MirrorCount, Peer, ROUTER_MAC, Side, Verdict};
use rig_skip::{Lack, skip};
use rig_sys::netlink::{Netlink, VethPair};
use rig_sys::netns::NetNs;
use rig_wire::ethernet::{Ethernet, ethertype};
use rig_wire::ipv4::Ipv4;
use rig_wire::ipv6::Ipv6;
use rig_wire::protocol;
use rig_wire::tcp::Tcp;
use rig_wire::tcp::flags::{ACK, SYN};
use rig_wire::vxlan;

use super::frames::{Frame, L4, ip};
use super::lab::{Lab, mac_of, small, underlay_of, v4_of, v6_of};
use super::outer::{at, framed, tcp, wrapped};
use super::traffic;

const NUMBER: u8 = 5;
const ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
const VNI: u32 = 77;
const TIMEOUT: Duration = Duration::from_secs(20);

/// An analyser behind the first node, which gets copies of all that its first container sends and gets.
fn with_analyser(lab: &mut Lab, port: u16, mtu: u16) -> NetNs {
    let ns = NetNs::create().unwrap();
    let node = &mut lab.nodes[0];
    let mut netlink = Netlink::open(&node.ns).unwrap();
    netlink.add_veth(&VethPair { name: "tap", peer: "tap", peer_ns: &ns, queues: 1, mtu: mtu.into() }).unwrap();
    netlink.add_address("tap", Ipv4Addr::new(198, 51, 100, 1).into(), 24).unwrap();
    netlink.set_up("tap").unwrap();
    let mut there = Netlink::open(&ns).unwrap();
    there.add_address("tap", ADDRESS.into(), 24).unwrap();
    there.set_up("tap").unwrap();
    let way = Peer { interface: netlink.index("tap").unwrap(), gateway: ADDRESS, mtu };
    let analyser = Analyser { source: underlay_of(0), address: ADDRESS, port, vni: VNI, peer: Some(way) };
    // Packets come from an address that is not of the link.
    there.add_route(underlay_of(0).into(), 32, Ipv4Addr::new(198, 51, 100, 1).into()).unwrap();
    node.config.analysers = BTreeMap::from([(NUMBER, analyser)]);
    node.config.interfaces.get_mut(&1).unwrap().mirror = Some(NUMBER);
    node.apply();
    ns
}

fn socket(ns: &NetNs, port: u16) -> UdpSocket {
    let socket = ns.run(|| UdpSocket::bind((ADDRESS, port)).unwrap()).unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, 16 << 20).unwrap();
    socket
}

/// The frame that a datagram has.
#[track_caller]
fn frame_of(datagram: &[u8]) -> &[u8] {
    let header = vxlan::Vxlan::parse(datagram).unwrap();
    assert_eq!(header.vni(), VNI);
    header.payload()
}

#[track_caller]
fn next(socket: &UdpSocket) -> Vec<u8> {
    let mut buffer = vec![0; 65_536];
    let (length, from) = socket.recv_from(&mut buffer).unwrap();
    assert_eq!(from.ip(), underlay_of(0));
    assert!(from.port() >= 49_152, "{from}");
    frame_of(&buffer[..length]).to_vec()
}

#[test]
fn an_analyser_gets_frames_as_the_container_sends_and_gets_them() {
    for encapsulation in Encapsulation::ALL {
        let Some(mut lab) = Lab::new(2, 2, encapsulation) else { return };
        let ns = with_analyser(&mut lab, 9999, 1500);
        let socket = socket(&ns, 9999);
        let node = &lab.nodes[0];
        let mut model = Model::new(small().flows as usize);
        model.apply(&node.config);
        let (v4, v6) = ((v4_of(0, 0).into(), v4_of(1, 0).into()), (v6_of(0, 0), v6_of(1, 0)));
        for (own, other) in [v4, v6] {
            let local = if own == v4.0 { v4_of(0, 1).into() } else { v6_of(0, 1) };
            let send = |packet| (Side::Container, framed(mac_of(0, 0), ROUTER_MAC, packet), "c0");
            let get = |packet: &[u8]| {
                let outer = wrapped(encapsulation, packet, 64, 50_000, 1);
                (Side::Underlay, framed(mac_of(9, 9), mac_of(8, 8), &outer), "wire")
            };
            let all = [
                send(&tcp(SYN, at(own, 1000), at(other, 80))),
                get(&tcp(SYN | ACK, at(other, 80), at(own, 1000))),
                send(&Frame::new(L4::Udp, at(own, 1000), at(local, 5000)).payload(&[7; 1300]).packet()),
                get(&ip(other, own, 132, 64, &[0; 12])),
            ];
            for (side, frame, interface) in all {
                let index = node.index(interface);
                let expected = model.packet(side, index, &frame, 1);
                let outcome = node.give(side, &frame, interface);
                assert_eq!(
                    (outcome.verdict, expected.verdict),
                    (Verdict::Redirect, Verdict::Redirect),
                    "{:?}",
                    expected.reason
                );
                let from = if interface == "c0" && expected.frame.len() > frame.len() { 12 } else { 0 };
                assert_eq!(outcome.frame[from..], expected.frame[from..], "the original is another one");
                let copies = model.mirrored();
                let [MirrorCopy { analyser: NUMBER, frame }] = &copies[..] else { panic!("{copies:?}") };
                assert_eq!(next(&socket), *frame, "{encapsulation:?} {interface}");
            }
        }
        let copies = node.router.mirrored(NUMBER).unwrap();
        assert_eq!((copies.packets, copies.cut, copies.failed), (8, 0, 0));
        let flows = node.router.flows();
        assert!(!flows.is_empty() && flows.iter().all(|flow| flow.mirror == Some(NUMBER)), "{flows:?}");
        // Packets without a flow are not copied.
        node.give(
            Side::Container,
            &framed(mac_of(0, 1), ROUTER_MAC, &tcp(SYN, at(v4_of(0, 1), 1), at(v4_of(1, 1), 2))),
            "c1",
        );
        assert_eq!(node.router.mirrored(NUMBER).unwrap(), copies);
    }
}

#[test]
fn what_is_too_large_for_the_way_is_cut_and_what_has_none_is_counted() {
    let Some(mut lab) = Lab::new(1, 2, Encapsulation::MplsOverUdp) else { return };
    let ns = with_analyser(&mut lab, 4789, 1000);
    let socket = socket(&ns, 4789);
    let node = &mut lab.nodes[0];
    let large = Frame::new(L4::Udp, at(v4_of(0, 0), 1000), at(v4_of(0, 1), 80)).payload(&[9; 1200]).packet();
    let out = node.passes(&large);
    assert_eq!(out.len(), 14 + large.len());
    let copy = next(&socket);
    assert_eq!((copy.len(), &copy[14..]), (14 + 950, &large[..950]));
    let copies = node.router.mirrored(NUMBER).unwrap();
    assert_eq!(copies, MirrorCount { packets: 1, bytes: 964, cut: 1, failed: 0 });
    node.config.analysers.get_mut(&NUMBER).unwrap().peer = None;
    node.apply();
    assert_eq!(node.passes(&large), out);
    assert_eq!(node.router.mirrored(NUMBER).unwrap(), MirrorCount { failed: 1, ..copies });
    node.config.interfaces.get_mut(&1).unwrap().mirror = None;
    node.config.analysers.clear();
    node.apply();
    assert_eq!(node.passes(&large), out);
    assert_eq!(node.router.mirrored(NUMBER).unwrap(), MirrorCount { failed: 1, ..copies });
}

/// Bytes of TCP's streams, by their first in each direction.
#[derive(Default)]
struct Streams {
    first: BTreeMap<(IpAddr, u16), u32>,
    bytes: BTreeMap<(IpAddr, u16), BTreeMap<u32, Vec<u8>>>,
    /// Copies that do not have all of their packet: a segment that is sent alone and leaves no room for another header.
    cut: u64,
}

impl Streams {
    fn take(&mut self, frame: &[u8]) {
        let frame = Ethernet::parse(frame).unwrap();
        let (from, l4): (IpAddr, Vec<u8>) = match frame.ethertype() {
            ethertype::IPV4 => {
                let Ok(ip) = Ipv4::parse(frame.payload()) else { return self.cut += 1 };
                if ip.protocol() != protocol::TCP {
                    return;
                }
                (ip.source().into(), ip.payload().to_vec())
            }
            _ => {
                let Ok(ip) = Ipv6::parse(frame.payload()) else { return self.cut += 1 };
                if ip.protocol() != protocol::TCP {
                    return;
                }
                (ip.source().into(), ip.payload().to_vec())
            }
        };
        let tcp = Tcp::parse(&l4).unwrap();
        let who = (from, tcp.source_port());
        if tcp.flags() & SYN != 0 {
            self.first.insert(who, tcp.sequence().wrapping_add(1));
        } else if let Some(first) = self.first.get(&who).filter(|_| !tcp.payload().is_empty()) {
            let at = tcp.sequence().wrapping_sub(*first);
            self.bytes.entry(who).or_default().insert(at, tcp.payload().to_vec());
        }
    }

    /// What share of `data` each stream has; of a busy machine's copies some are lost on their way, as others' packets are.
    fn shares(&self, data: &[u8]) -> Vec<f64> {
        let share = |pieces: &BTreeMap<u32, Vec<u8>>| {
            let mut end = 0;
            let mut covered = 0;
            for (at, piece) in pieces {
                let at = *at as usize;
                assert!(data.get(at..at + piece.len()) == Some(&piece[..]), "other bytes from {at} on");
                let to = at + piece.len();
                covered += to.saturating_sub(end.max(at));
                end = end.max(to);
            }
            covered as f64 / data.len() as f64
        };
        self.bytes.values().map(share).collect()
    }
}

#[test]
fn all_of_a_stream_is_copied_while_it_goes_on_as_ever() {
    for encapsulation in Encapsulation::ALL {
        let Some(mut lab) = Lab::new(2, 1, encapsulation) else { return };
        // Segments that leave no room for another header become smaller ones in the copy.
        let ns = with_analyser(&mut lab, 4789, 1500);
        let socket = socket(&ns, 4789);
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let done = AtomicBool::new(false);
        let [a, b] = &lab.nodes[..] else { panic!() };
        let streams = thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let (mut streams, mut buffer) = (Streams::default(), vec![0; 65_536]);
                let deadline = Instant::now() + 3 * TIMEOUT;
                while Instant::now() < deadline {
                    match socket.recv(&mut buffer) {
                        Ok(length) => streams.take(frame_of(&buffer[..length])),
                        Err(_) if done.load(Ordering::Relaxed) => break,
                        Err(_) => {}
                    }
                }
                streams
            });
            for to in [v4_of(1, 0).into(), v6_of(1, 0)] {
                traffic::carry(&a.containers[0], &b.containers[0], to, || format!("{:?}", a.router.drops()));
            }
            done.store(true, Ordering::Relaxed);
            reader.join().unwrap()
        });
        let copies = a.router.mirrored(NUMBER).unwrap();
        // Several segments in one that came by GRE cannot stay one in VXLAN, nor be cut to one.
        let is_gre = encapsulation == Encapsulation::MplsOverGre;
        let whole = if is_gre { 2 } else { 4 };
        let shares = streams.shares(&traffic::data());
        let copied = shares.iter().filter(|share| **share > 0.8).count();
        assert!(copied >= whole, "{encapsulation:?}: {shares:?} {copies:?}");
        assert!(streams.cut <= copies.cut, "{} are cut, {copies:?}", streams.cut);
        // A single segment that came by a tunnel and leaves no room for VXLAN's header.
        assert!(is_gre || copies.failed * 20 <= copies.packets, "{encapsulation:?} {copies:?}");
    }
}

#[test]
fn copies_are_read_by_tshark() {
    if Command::new("tshark").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
        return skip(Lack::Program("tshark"), "no tshark on PATH");
    }
    let Some(mut lab) = Lab::new(1, 2, Encapsulation::MplsOverUdp) else { return };
    let ns = with_analyser(&mut lab, 4789, 1500);
    let _somebody = socket(&ns, 4789);
    let mut tshark = Command::new("tshark");
    tshark.args(["-n", "-l", "-i", "tap", "-c", "4", "-f", "udp port 4789", "-T", "fields"]);
    for preference in ["ip.check_checksum:TRUE", "tcp.check_checksum:TRUE"] {
        tshark.args(["-o", preference]);
    }
    for name in ["frame.protocols", "vxlan.vni", "_ws.malformed", "ip.checksum.status", "tcp.checksum.status", "ip.dst"]
    {
        tshark.args(["-e", name]);
    }
    tshark.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = rig_sys::process::in_namespace(&mut tshark, &ns).spawn().unwrap();
    let node = &lab.nodes[0];
    let deadline = Instant::now() + 3 * TIMEOUT;
    // It says that it captures before it does.
    while child.try_wait().unwrap().is_none() {
        node.passes(&tcp(SYN, at(v4_of(0, 0), 1000), at(v4_of(0, 1), 80)));
        assert!(Instant::now() < deadline, "tshark sees nothing");
        thread::sleep(Duration::from_millis(50));
    }
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let to = v4_of(0, 1);
    let line = format!("eth:ethertype:ip:udp:vxlan:eth:ethertype:ip:tcp\t{VNI}\t\t1,1\t1\t{ADDRESS},{to}");
    assert_eq!(text.lines().collect::<Vec<_>>(), [&line[..]; 4]);
}
