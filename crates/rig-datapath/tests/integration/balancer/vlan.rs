//! Tags: those of VLAN devices over the interface, which frames get, change and lose by the way that routes say, and those that nobody has, which stay.
//!
//! Other devices stand for VLAN devices, which not every kernel has: that they are such ones is known from the table alone.

use std::process::Command;

use rig_datapath::balancer::{Config, Drop, Pass, Service, SynProxy, VlanDevice};
use rig_datapath::test_run::Verdict;
use rig_sys::netlink::{Netlink, VethPair};
use rig_sys::netns::NetNs;
use rig_sys::process;
use rig_wire::ethernet::{Ethernet, Mac, ethertype};
use rig_wire::ipv4::Ipv4;
use rig_wire::tcp::flags::{ACK, SYN};

use super::frames::{Frame, L4, ParsedFrame, see, see_packet, tcp, udp};
use super::lab::{Lab, MTU, until};
use super::{backend, config, full_nat, service, small, udp_service};

/// The VLANs of two devices.
const TENTH: u16 = 10;
const TWENTIETH: u16 = 20;
/// A tag that no device has.
const NOBODYS: u16 = 7;
const SERVICE: &str = "10.0.0.200:80";
const DATAGRAMS: &str = "10.0.0.200:53";
/// Clients on the interface itself and in VLAN 10.
const HERE: &str = "10.0.0.50:5000";
const IN_TENTH: &str = "10.10.0.50:5000";
/// Backends on the interface itself and in VLAN 20.
const NEAR: &str = "10.0.0.10:8080";
const IN_TWENTIETH: &str = "10.20.0.10:8080";

fn device(id: u16) -> String {
    format!("v{id}")
}

/// The address of such a device, and that of all its neighbours.
fn mac(id: u16) -> Mac {
    Mac([2, 0, 0, 0, 1, id as u8])
}

fn neighbor(id: u16) -> Mac {
    Mac([2, 0, 0, 0, 2, id as u8])
}

#[track_caller]
fn ip(line: &str) {
    let here = NetNs::of_current_thread().unwrap();
    let mut command = Command::new("ip");
    let done = process::in_namespace(command.args(line.split_whitespace()), &here).status().unwrap();
    assert!(done.success(), "ip {line}");
}

struct Trunk {
    lab: Lab,
    vlans: Vec<VlanDevice>,
}

impl Trunk {
    fn new(config: &Config) -> Option<Self> {
        let lab = Lab::new(small(), config)?;
        let mut netlink = Netlink::here().unwrap();
        let add = |id| {
            let name = device(id);
            let pair = VethPair { name: &name, peer: &format!("to{id}"), peer_ns: &lab.far_ns, queues: 1, mtu: MTU };
            netlink.add_veth(&pair).unwrap();
            Netlink::open(&lab.far_ns).unwrap().set_up(&format!("to{id}")).unwrap();
            ip(&format!("link set {name} address {}", mac(id)));
            ip(&format!("address add 10.{id}.0.1/24 dev {name}"));
            ip(&format!("address add fd{id}::1/64 dev {name} nodad"));
            ip(&format!("link set {name} up"));
            for host in [10, 50] {
                ip(&format!("neigh replace 10.{id}.0.{host} lladdr {} nud permanent dev {name}", neighbor(id)));
                ip(&format!("neigh replace fd{id}::{host} lladdr {} nud permanent dev {name}", neighbor(id)));
            }
            until("the device", || netlink.is_operational(&name).unwrap());
            let interface = netlink.index(&name).unwrap();
            VlanDevice { interface, parent: lab.interface, id, mac: mac(id).0, ports: Vec::new() }
        };
        let vlans: Vec<VlanDevice> = [TENTH, TWENTIETH].map(add).into();
        lab.balancer.pretend_vlans(&vlans).unwrap();
        Some(Self { lab, vlans })
    }

    /// What the frame of this packet becomes, by whom it goes on, and its tag with its priority.
    #[track_caller]
    fn passed_on(&self, frame: &Frame) -> (ParsedFrame, Mac, Mac, Option<u16>) {
        self.passed_on_bytes(&frame.bytes())
    }

    #[track_caller]
    fn passed_on_bytes(&self, frame: &[u8]) -> (ParsedFrame, Mac, Mac, Option<u16>) {
        let sent = self.lab.sent(frame);
        let (seen, link) = (see(&sent), Ethernet::parse(&sent).unwrap());
        let kind = if link.payload()[0] >> 4 == 4 { ethertype::IPV4 } else { ethertype::IPV6 };
        assert_eq!(link.ethertype(), kind);
        let has_tag = sent[12..14] == [0x81, 0];
        // Nothing is behind the packet, and nothing is lost of it.
        let word = |at: usize| usize::from(u16::from_be_bytes([link.payload()[at], link.payload()[at + 1]]));
        let length = if kind == ethertype::IPV4 { word(2) } else { 40 + word(4) };
        assert_eq!(sent.len(), if has_tag { 18 } else { 14 } + length);
        let tag = has_tag.then(|| u16::from_be_bytes([sent[14], sent[15]]));
        (seen, link.source(), link.destination(), tag)
    }
}

fn with_priority(frame: &Frame, priority: u8) -> Vec<u8> {
    let mut bytes = frame.bytes();
    bytes[14] |= priority << 5;
    bytes
}

fn to(backend_address: &str) -> Config {
    config(&[service(SERVICE, full_nat(&["10.0.0.100"]), &[backend(backend_address, 1)])])
}

fn answer(to: &ParsedFrame) -> Frame {
    Frame::new(L4::Tcp(SYN | ACK), to.destination, to.source)
}

#[test]
fn a_tag_is_put_into_what_goes_to_a_vlan_device_and_taken_from_what_comes_back() {
    let Some(trunk) = Trunk::new(&to(IN_TWENTIETH)) else { return };
    let (seen, source, destination, tag) = trunk.passed_on(&tcp(SYN, HERE, SERVICE));
    assert_eq!((seen.destination.to_string(), tag), (IN_TWENTIETH.into(), Some(TWENTIETH)));
    assert_eq!((source, destination), (mac(TWENTIETH), neighbor(TWENTIETH)));
    let (back, source, destination, tag) = trunk.passed_on_bytes(&with_priority(&answer(&seen).vlan(TWENTIETH), 5));
    assert_eq!((back.destination.to_string(), tag), (HERE.into(), None));
    assert_eq!((source, destination), (trunk.lab.near, trunk.lab.far));
}

#[test]
fn a_tag_is_taken_from_what_comes_by_a_vlan_device_and_put_into_answers() {
    let Some(trunk) = Trunk::new(&to(NEAR)) else { return };
    let (seen, source, destination, tag) =
        trunk.passed_on_bytes(&with_priority(&tcp(SYN, IN_TENTH, SERVICE).vlan(TENTH), 3));
    assert_eq!((seen.destination.to_string(), tag), (NEAR.into(), None));
    assert_eq!((source, destination), (trunk.lab.near, trunk.lab.far));
    let (back, source, destination, tag) = trunk.passed_on(&answer(&seen));
    assert_eq!((back.destination.to_string(), tag), (IN_TENTH.into(), Some(TENTH)));
    assert_eq!((source, destination), (mac(TENTH), neighbor(TENTH)));
}

#[test]
fn a_tag_is_another_one_between_vlan_devices_and_keeps_its_priority() {
    let Some(trunk) = Trunk::new(&to(IN_TWENTIETH)) else { return };
    let (seen, _, destination, tag) =
        trunk.passed_on_bytes(&with_priority(&tcp(SYN, IN_TENTH, SERVICE).vlan(TENTH), 5));
    assert_eq!((destination, tag), (neighbor(TWENTIETH), Some(5 << 13 | TWENTIETH)));
    let (_, _, destination, tag) = trunk.passed_on(&answer(&seen).vlan(TWENTIETH));
    assert_eq!((destination, tag), (neighbor(TENTH), Some(TENTH)));
    // Within one VLAN it is the same one.
    let (seen, _, destination, tag) =
        trunk.passed_on_bytes(&with_priority(&tcp(SYN, "10.20.0.50:5000", SERVICE).vlan(TWENTIETH), 1));
    assert_eq!((destination, tag), (neighbor(TWENTIETH), Some(1 << 13 | TWENTIETH)));
    let (_, _, destination, tag) = trunk.passed_on(&answer(&seen).vlan(TWENTIETH));
    assert_eq!((destination, tag), (neighbor(TWENTIETH), Some(TWENTIETH)));
}

#[test]
fn a_tag_that_no_device_has_stays_on_the_interface_itself() {
    let services = [
        service(SERVICE, full_nat(&["10.0.0.100"]), &[backend(NEAR, 1)]),
        service("10.0.0.201:80", full_nat(&["10.0.0.100"]), &[backend(IN_TWENTIETH, 1)]),
    ];
    let Some(trunk) = Trunk::new(&config(&services)) else { return };
    let (seen, _, destination, tag) = trunk.passed_on_bytes(&with_priority(&tcp(SYN, HERE, SERVICE).vlan(NOBODYS), 2));
    assert_eq!((destination, tag), (trunk.lab.far, Some(2 << 13 | NOBODYS)));
    let (_, _, destination, tag) = trunk.passed_on(&answer(&seen).vlan(NOBODYS));
    assert_eq!((destination, tag), (trunk.lab.far, Some(NOBODYS)));
    // A frame to a VLAN device has that one's tag, and no other.
    let (seen, _, destination, tag) = trunk.passed_on(&tcp(SYN, HERE, "10.0.0.201:80").vlan(NOBODYS));
    assert_eq!((destination, tag), (neighbor(TWENTIETH), Some(TWENTIETH)));
    let (_, _, _, tag) = trunk.passed_on(&answer(&seen).vlan(TWENTIETH));
    assert_eq!(tag, None);
}

#[test]
fn a_vlan_device_has_an_address_of_its_own() {
    let Some(trunk) = Trunk::new(&to(NEAR)) else { return };
    let frame = |vlan: Option<u16>, destination: Mac| {
        let mut bytes = Frame { vlan, ..tcp(SYN, IN_TENTH, SERVICE) }.bytes();
        bytes[..6].copy_from_slice(&destination.0);
        bytes
    };
    // Its own and, as with the kernel, the interface's.
    trunk.passed_on_bytes(&frame(Some(TENTH), mac(TENTH)));
    trunk.passed_on_bytes(&frame(Some(TENTH), trunk.lab.near));
    for (vlan, destination) in
        [(None, mac(TENTH)), (Some(NOBODYS), mac(TENTH)), (Some(TWENTIETH), mac(TENTH)), (Some(TENTH), neighbor(TENTH))]
    {
        trunk.lab.passes(&frame(vlan, destination), Pass::OtherMac);
    }
}

/// Rules look at the VLAN device, and not at the interface below.
#[test]
fn routes_are_those_of_the_vlan_device_that_a_packet_came_by() {
    let Some(trunk) = Trunk::new(&to(NEAR)) else { return };
    ip("route add blackhole default table 77");
    ip(&format!("rule add iif {} lookup 77", device(TENTH)));
    assert_eq!(trunk.lab.dropped(&tcp(SYN, IN_TENTH, SERVICE).vlan(TENTH).bytes()), Drop::NoRoute);
    trunk.passed_on(&tcp(SYN, HERE, SERVICE));
    trunk.passed_on(&tcp(SYN, "10.20.0.50:5000", SERVICE).vlan(TWENTIETH));
}

/// A client whose link address the kernel does not know is reached where its packets came from, in its VLAN.
#[test]
fn a_strangers_answers_go_by_its_vlan() {
    let Some(trunk) = Trunk::new(&to(NEAR)) else { return };
    let request = tcp(SYN, "10.10.0.77:5000", SERVICE).vlan(TENTH).bytes();
    let came_from = Ethernet::parse(&request).unwrap().source();
    let (seen, ..) = trunk.passed_on_bytes(&request);
    let (_, _, destination, tag) = trunk.passed_on(&answer(&seen));
    assert_eq!((destination, tag), (came_from, Some(TENTH)));
}

#[test]
fn what_the_balancer_answers_itself_goes_back_with_the_tag_that_came() {
    let proxied =
        Service { syn_proxy: SynProxy::Always, ..service(SERVICE, full_nat(&["10.0.0.100"]), &[backend(NEAR, 1)]) };
    let of_udp = udp_service(DATAGRAMS, full_nat(&["10.0.0.100"]), &[backend(IN_TWENTIETH, 1)]);
    let Some(trunk) = Trunk::new(&config(&[proxied, of_udp])) else { return };
    let request = with_priority(&tcp(SYN, IN_TENTH, SERVICE).vlan(TENTH), 4);
    let (seen, _, destination, tag) = trunk.passed_on_bytes(&request);
    assert_eq!((seen.destination.to_string(), seen.flags), (IN_TENTH.into(), SYN | ACK));
    assert_eq!((destination, tag), (Ethernet::parse(&request).unwrap().source(), Some(4 << 13 | TENTH)));
    // What does not fit by the VLAN device that it is to leave by.
    ip(&format!("link set {} mtu 1400", device(TWENTIETH)));
    let large = udp(IN_TENTH, DATAGRAMS).payload(&[1; 1401 - 28]).vlan(TENTH);
    let told = trunk.lab.sent(&large.bytes());
    let message = Ipv4::parse(Ethernet::parse(&told).unwrap().payload()).unwrap();
    assert_eq!(
        (message.destination().to_string(), &told[12..16]),
        ("10.10.0.50".into(), &[0x81, 0, 0, TENTH as u8][..])
    );
    assert_eq!(message.payload()[..2], [3, 4]);
    assert_eq!(message.payload()[4..8], 1400_u32.to_be_bytes());
    trunk.passed_on(&udp(IN_TENTH, DATAGRAMS).payload(&[1; 1400 - 28]).vlan(TENTH));
}

/// Tags and other headers do not get into each other's way.
#[test]
fn tags_are_changed_around_tunnels_and_between_families() {
    let tunnel = rig_datapath::balancer::ForwardingMethod::Tunnel { local: vec!["10.0.0.100".parse().unwrap()] };
    let services = [
        service(SERVICE, tunnel, &[backend("10.20.0.10:80", 1)]),
        service("[fd00::200]:80", full_nat(&["10.0.0.100"]), &[backend(IN_TWENTIETH, 1)]),
    ];
    let Some(trunk) = Trunk::new(&config(&services)) else { return };
    for vlan in [None, Some(TENTH)] {
        let client = if vlan.is_some() { IN_TENTH } else { HERE };
        let sent = trunk.lab.sent(&Frame { vlan, ..tcp(SYN, client, SERVICE) }.bytes());
        assert_eq!(sent[12..16], [0x81, 0, 0, TWENTIETH as u8]);
        let outer = Ipv4::parse(Ethernet::parse(&sent).unwrap().payload()).unwrap();
        outer.verify().unwrap();
        assert_eq!((outer.destination().to_string(), outer.protocol()), ("10.20.0.10".into(), 4));
        assert_eq!(see_packet(outer.payload()).source.to_string(), client);

        let client = if vlan.is_some() { "[fd10::50]:5000" } else { "[fd00::50]:5000" };
        let (seen, _, destination, tag) = trunk.passed_on(&Frame { vlan, ..tcp(SYN, client, "[fd00::200]:80") });
        assert_eq!(
            (seen.destination.to_string(), destination, tag),
            (IN_TWENTIETH.into(), neighbor(TWENTIETH), Some(TWENTIETH))
        );
        let (back, _, _, tag) = trunk.passed_on(&answer(&seen).vlan(TWENTIETH));
        assert_eq!((back.destination.to_string(), tag), (client.into(), vlan));
    }
}

#[test]
fn a_vlan_device_that_goes_takes_the_ways_by_it_along() {
    let Some(mut trunk) = Trunk::new(&to(IN_TWENTIETH)) else { return };
    trunk.passed_on(&tcp(SYN, HERE, SERVICE));
    let next = tcp(ACK, HERE, SERVICE).bytes();
    trunk.lab.balancer.pretend_vlans(&trunk.vlans[..1]).unwrap();
    assert_eq!(trunk.lab.send(&next).verdict, Verdict::Drop);
    assert_eq!(trunk.lab.drops(), [(Drop::NoRoute, 1)]);
    // With another tag.
    trunk.vlans[1].id = 21;
    trunk.lab.balancer.pretend_vlans(&trunk.vlans).unwrap();
    assert_eq!(trunk.passed_on_bytes(&next).3, Some(21));
    // Where it is on no link that is known, frames leave by itself.
    trunk.lab.balancer.pretend_vlans(&[]).unwrap();
    trunk.lab.later(8);
    assert_eq!(trunk.lab.send(&next).verdict, Verdict::Redirect);
}

#[test]
fn a_trace_names_the_vlan_device() {
    let Some(trunk) = Trunk::new(&to(IN_TWENTIETH)) else { return };
    let frame = tcp(SYN, IN_TENTH, SERVICE).vlan(TENTH).bytes();
    let traced = trunk.lab.balancer.trace(&frame, Some(trunk.lab.interface)).unwrap();
    assert_eq!((traced.interface, traced.drop), (Some(trunk.vlans[1].interface), None));
    assert_eq!(traced.frame, trunk.lab.sent(&frame));
}
