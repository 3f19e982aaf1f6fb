//! What a service may have beside its way to forward: packets that are timed beside the same ones without it. Every byte of what becomes of
//! them is other tests' business.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::time::Duration;

use ipnet::IpNet;
use rig_datapath::balancer::{
    AccessLists, Backend, ClientAddress, Config, Encapsulation, ForwardingMethod, GUE_PORT, Limits, Persistence,
    Protocol, QuicIds, Rate, Service, SynProxy, TunnelHeader,
};
use rig_sys::socket::Dscp;
use rig_wire::ethernet::HEADER;
use rig_wire::tcp::flags::{ACK, SYN};

use super::cases::{Case, ExpectedResult};
use super::frames::{Frame, L4, see};
use super::lab::Lab;

const PORT: u16 = 80;
const FIRST: u8 = 200;
/// Of more packets than any measurement has, so that none is refused.
const PLENTY: NonZeroU32 = NonZeroU32::new(10_000_000).unwrap();

struct Feature {
    name: &'static str,
    service: Service,
    /// Behind the TCP or UDP header.
    payload: Vec<u8>,
}

fn host(number: u8) -> IpAddr {
    [10, 0, 0, number].into()
}

/// Each with a service of its own.
fn features() -> Vec<Feature> {
    let locals = || (100..116).map(host).collect();
    let (nat, full_nat) = (ForwardingMethod::Nat, ForwardingMethod::FullNat { local: locals() });
    let tunnel = ForwardingMethod::Tunnel { local: locals() };
    let backend = |host: u8, port| Backend::new(SocketAddr::new([10, 0, 0, host].into(), port), 1);
    let (behind, beside) = (backend(10, 8080), backend(11, 8080));
    let mut features: Vec<Feature> = Vec::new();
    let mut add = |name, protocol, forward: &ForwardingMethod, backend, with: &dyn Fn(&mut Feature)| {
        let address = SocketAddr::new(host(FIRST + features.len() as u8), PORT);
        let service = Service::new(protocol, address, forward.clone(), vec![backend]);
        let mut feature = Feature { name, service, payload: b"what the client says".to_vec() };
        with(&mut feature);
        features.push(feature);
    };
    let (tcp, udp) = (Protocol::Tcp, Protocol::Udp);
    let by_header = |header| Backend { encapsulation: Encapsulation { header, source_bits: 0 }, ..backend(13, PORT) };
    let gue = |checksum| by_header(TunnelHeader::Gue { port: GUE_PORT, checksum });

    add("TCP, FullNAT", tcp, &full_nat, behind, &|_| ());
    add("DSCP set", tcp, &full_nat, behind, &|feature| feature.service.dscp = Dscp::try_from(46).ok());
    add("32 denied prefixes", tcp, &full_nat, behind, &|feature| {
        let denied = (2..34).map(|number| IpNet::new([10, number, 0, 0].into(), 16).unwrap());
        feature.service.access = AccessLists { deny: denied.collect(), ..AccessLists::default() };
    });
    add("limits and rates of sources", tcp, &full_nat, behind, &|feature| {
        let rate = Some(Rate { per_second: PLENTY, burst: PLENTY });
        feature.service.limits =
            Limits { source_limit: Some(PLENTY), source_rate: rate, new_rate: rate, ..Limits::default() };
    });
    add("persistence", tcp, &full_nat, behind, &|feature| {
        feature.service.persistence = Some(Persistence { timeout: Duration::from_secs(300), prefix: 24, group: None });
    });
    add("TOA", tcp, &full_nat, behind, &|feature| feature.service.client_address = ClientAddress::Toa);
    add("PROXY v2", tcp, &full_nat, behind, &|feature| feature.service.client_address = ClientAddress::ProxyV2);
    add("SYN proxy", tcp, &full_nat, behind, &|feature| feature.service.syn_proxy = SynProxy::Always);
    add("TCP, NAT", tcp, &nat, behind, &|_| ());
    add("any port", tcp, &nat, backend(12, 0), &|feature| feature.service.address.set_port(0));
    add("IPv6 client, IPv4 backend", tcp, &full_nat, behind, &|feature| {
        feature.service.address = "[fd00::200]:80".parse().unwrap();
    });
    add("TCP, tunnel of IP in IP", tcp, &tunnel, backend(13, PORT), &|_| ());
    add("tunnel of GRE", tcp, &tunnel, by_header(TunnelHeader::Gre), &|_| ());
    add("tunnel of GUE", tcp, &tunnel, gue(false), &|_| ());
    add("tunnel of GUE with its checksum", tcp, &tunnel, gue(true), &|_| ());
    add("tunnel, admission", tcp, &tunnel, backend(13, PORT), &|feature| feature.service.syn_proxy = SynProxy::Always);
    add("UDP, FullNAT", udp, &full_nat, behind, &|_| ());
    add("UOA", udp, &full_nat, behind, &|feature| feature.service.client_address = ClientAddress::Uoa);
    // A short header, the first byte of the ID and the server's ID.
    let quic = |server: u8| {
        move |feature: &mut Feature| {
            feature.service.quic = Some(QuicIds { configuration: 0, length: 2 });
            feature.service.backends[0].quic_id = Some(7);
            feature.payload[..4].copy_from_slice(&[0x40, 0x1f, 0, server]);
        }
    };
    add("an ID of QUIC that names the backend", udp, &full_nat, behind, &quic(7));
    add("an ID of QUIC that names nobody", udp, &full_nat, behind, &quic(8));
    add("UDP, NAT", udp, &nat, behind, &|_| ());
    add("one packet at a time", udp, &nat, beside, &|feature| feature.service.one_packet = true);
    features
}

pub fn config() -> Config {
    Config { services: features().into_iter().map(|feature| feature.service).collect(), ..Config::default() }
}

/// A packet of a known connection to the backend, one back, and one that begins a connection, of each that has them; with the connections
/// begun in `lab`, which has [`config`].
pub fn all(lab: &Lab) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut port = 5000;
    for Feature { name, service, payload } in features() {
        let is_tcp = service.protocol == Protocol::Tcp;
        let (first, later) = if is_tcp { (L4::Tcp(SYN), L4::Tcp(ACK)) } else { (L4::Udp, L4::Udp) };
        let mut to = service.address;
        to.set_port(PORT);
        let mut client = || {
            port += 1;
            let host = if to.is_ipv6() { "fd00::50".parse().unwrap() } else { host(50) };
            SocketAddr::new(host, port)
        };
        let mut add = |what: &str, frame: &Frame, new_flow: Option<u32>| {
            let frame = frame.bytes();
            let grows = lab.sent(&frame).len() as i32 - frame.len() as i32;
            let expected = ExpectedResult::Forwarded;
            cases.push(Case { name: format!("{name}: {what}"), frame, expected, new_flow, grows });
        };
        let port_at = HEADER as u32 + if to.is_ipv6() { 40 } else { 20 };
        let opening = Frame::new(first, client(), to);
        let opening = if is_tcp { opening } else { opening.payload(&payload) };
        if service.syn_proxy == SynProxy::Always {
            add("a SYN, answered", &opening, None);
            continue;
        }
        let out = lab.sent(&opening.bytes());
        if !service.one_packet {
            let new = Frame { source: client(), ..opening.clone() };
            add("a new connection", &new, Some(port_at));
        }
        // Its first bytes have the header before them, once.
        if service.client_address == ClientAddress::ProxyV2 {
            continue;
        }
        let inward = Frame::new(later, opening.source, to).payload(&payload);
        add("to the backend", &inward, None);
        let translates = !matches!(service.forward, ForwardingMethod::Tunnel { .. });
        if translates && service.client_address == ClientAddress::Off {
            let (near, backend) = (see(&out).source, see(&out).destination);
            add("to the client", &Frame::new(later, backend, near).payload(&payload), None);
        }
    }
    cases
}
