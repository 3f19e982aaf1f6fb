//! What would happen to a packet: a frame for the program to run on, and its notes in words.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use anyhow::{Result, anyhow};
use rig_datapath::balancer::{Direction, Kind, Trace as Traced};
use rig_datapath::test_run::Verdict;
use rig_stats::units::Span;
use rig_sys::netns::NetNs;
use rig_wire::checksum::Sum;
use rig_wire::ethernet::{self, Ethernet, Mac};
use rig_wire::{ipv4, ipv6, protocol, tcp, udp};

use super::counts::Snapshot;
use super::engine::{Engine, Refusal};
use crate::message::{Flow, PacketOut, Protocol, Trace, Traced as Asked};
use crate::settings::{Shown, scheduler_name};

/// Of a packet that has come one hop.
const TTL: u8 = 63;
/// linux/if_ether.h.
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;

impl Engine {
    /// Runs the program on the packet, as if it came in by the device, or by the first that is there.
    pub(super) fn trace(&self, Asked { flow, device }: &Asked) -> Result<Trace, Refusal> {
        let mut there = self.devices.numbers();
        let found = there.find(|(name, _)| device.as_ref().is_none_or(|device| device == name));
        let (name, index) = found.ok_or_else(|| Refusal {
            what: match device {
                Some(device) => format!("the balancer is not on a device {device} now, so no packet comes to it there"),
                None => "the balancer is on no device now, so no packet comes to it".into(),
            },
            hint: Some("see `netrig lb status`".into()),
        })?;
        let mac =
            mac(&NetNs::of_current_thread().and_then(|here| here.sysfs()?.read(name, "address")).unwrap_or_default());
        let frame = frame(flow, mac)?;
        let traced = self.balancer.trace(&frame, Some(index))?;
        let now = Snapshot::take(&self.balancer)?;
        let view = self.counts.view(&now);
        let dropped =
            traced.drop.and_then(|reason| view.drops().into_iter().find(|known| known.number == reason.number()));
        let passed =
            traced.pass.and_then(|reason| view.passes().into_iter().find(|known| known.number == reason.number()));
        let leaves = matches!(traced.verdict, Verdict::Transmit | Verdict::Redirect);
        // What is dropped and still leaves is an ICMP error to its sender, which goes back where the packet came from.
        let out = match (traced.verdict, traced.drop) {
            (Verdict::Transmit, _) | (_, Some(_)) => Some(index),
            _ => traced.interface,
        };
        let mut steps = steps(&traced);
        if traced.kind == Kind::Flow && traced.found.is_none() && traced.begun.is_none() {
            steps.push(self.whose(flow.destination));
        }
        Ok(Trace {
            device: name.to_owned(),
            steps,
            verdict: match (traced.drop, traced.verdict) {
                (None, Verdict::Pass) => "pass",
                (None, Verdict::Transmit | Verdict::Redirect) => "forward",
                (Some(_), _) | (None, Verdict::Drop | Verdict::Aborted | Verdict::Other(_)) => "drop",
            }
            .to_owned(),
            reason: dropped.or(passed),
            packet_out: if leaves { packet_out(&traced.frame, out.and_then(interface_name)) } else { None },
        })
    }
}

impl Engine {
    /// What the balancer has at an address that has no service at this port.
    fn whose(&self, destination: SocketAddr) -> String {
        let here: Vec<String> = self
            .rules
            .services
            .iter()
            .filter(|service| service.key.address.ip() == destination.ip())
            .map(|service| {
                let lacks =
                    service.lacks().map(|lacks| format!(" (not in force: it lacks {lacks})")).unwrap_or_default();
                format!("{}{lacks}", Shown(service.key))
            })
            .collect();
        if let [.., _] = here.as_slice() {
            let more = here.len().saturating_sub(NAMED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            return format!(
                "for no service; at its address there are {}{more}",
                here[..here.len().min(NAMED)].join(", ")
            );
        }
        let local = self.rules.services.iter().find(|service| service.local.contains(&destination.ip()));
        local.map_or_else(
            || format!("no service has the address {}", destination.ip()),
            |service| {
                format!(
                    "for a local address of service {}, whose connections alone are let through",
                    Shown(service.key)
                )
            },
        )
    }
}

/// So many services are named at most.
const NAMED: usize = 4;

/// As sysfs writes it; zeros when it does not.
fn mac(text: &str) -> Mac {
    let mut mac = Mac::default();
    for (byte, hex) in mac.0.iter_mut().zip(text.trim().split(':')) {
        *byte = u8::from_str_radix(hex, 16).unwrap_or(0);
    }
    mac
}

fn interface_name(index: u32) -> Option<String> {
    let socket = UdpSocket::bind(("127.0.0.1", 0)).or_else(|_| UdpSocket::bind(("0.0.0.0", 0))).ok()?;
    rustix::net::netdevice::index_to_name(&socket, index).ok()
}

/// The packet with an Ethernet header: from nobody in particular to `to`. What it carries is zeros.
fn frame(flow: &Flow, to: Mac) -> Result<Vec<u8>> {
    let from = Mac([0x02, 0, 0, 0, 0, 1]);
    let addresses = (flow.source.ip(), flow.destination.ip());
    let (number, transport) = match flow.protocol {
        Protocol::Tcp => (protocol::TCP, tcp::HEADER),
        Protocol::Udp => (protocol::UDP, udp::HEADER),
    };
    let network = match addresses {
        (IpAddr::V4(_), IpAddr::V4(_)) => ipv4::HEADER,
        (IpAddr::V6(_), IpAddr::V6(_)) => ipv6::HEADER,
        _ => return Err(anyhow!("{} and {} are of different address families", addresses.0, addresses.1)),
    };
    let length = usize::from(flow.length).max(network + transport);
    let payload = length - network - transport;
    let ethertype = if network == ipv4::HEADER { IPV4 } else { IPV6 };
    let ethernet = ethernet::Header { destination: to, source: from, vlan: None, ethertype };
    let mut bytes = vec![0; ethernet.len() + length];
    let begin = ethernet.write(&mut bytes)?;
    let (pseudo, begin) = match addresses {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let header = ipv4::Header { source, destination, protocol: number, ttl: TTL, tos: 0 };
            let written = header.write(&mut bytes[begin..], transport + payload)?;
            (Sum::pseudo_v4(source, destination, number, transport + payload), begin + written)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let header = ipv6::Header { source, destination, protocol: number, hop_limit: TTL, traffic_class: 0 };
            let written = header.write(&mut bytes[begin..], transport + payload)?;
            (Sum::pseudo_v6(source, destination, number, transport + payload), begin + written)
        }
        _ => return Err(anyhow!("an address of each family")),
    };
    let (source_port, destination_port) = (flow.source.port(), flow.destination.port());
    match flow.protocol {
        Protocol::Tcp => {
            let header = tcp::Header {
                source_port,
                destination_port,
                sequence: 1,
                acknowledgment: 0,
                flags: flow.tcp_flags,
                window: u16::MAX,
                options: tcp::Options::default(),
            };
            header.write(&mut bytes[begin..], payload, pseudo)?;
        }
        Protocol::Udp => {
            udp::Header { source_port, destination_port }.write(&mut bytes[begin..], payload, pseudo)?;
        }
    }
    Ok(bytes)
}

/// Closer than that a timer is not kept.
fn tenths(time: Duration) -> Duration {
    Duration::from_millis(time.as_millis().next_multiple_of(100).try_into().unwrap_or(u64::MAX))
}

/// What the program has noted, a sentence each.
fn steps(traced: &Traced) -> Vec<String> {
    let mut steps = Vec::new();
    if let Some(worker) = traced.worker {
        steps.push(format!("handed over to CPU {worker} by its flow's hash"));
    }
    match traced.kind {
        Kind::Flow => {}
        Kind::IcmpError => {
            steps.push("an ICMP error: it belongs to the connection of the packet that it quotes".into());
        }
        Kind::Left => steps.push("nothing that the balancer handles".into()),
        Kind::Fragment => steps.push("a fragment for one of the balancer's addresses".into()),
        Kind::Options => steps.push("it has IP options or extension headers".into()),
    }
    match &traced.found {
        Some(found) => {
            let connection = &found.connection;
            let way = match found.direction {
                Direction::Inward => "from its client",
                Direction::Outward => "from its backend",
            };
            let local = connection.local.map(|local| format!(" as {local}")).unwrap_or_default();
            steps.push(format!(
                "{way}, of the connection {} > {} at backend {}{local}: {}, expires in {}",
                connection.client,
                connection.service,
                connection.backend,
                connection.state.name(),
                Span(tenths(connection.expires)),
            ));
            if found.ends {
                steps.push("that has closed, and its backend gets no new ones: it would end".into());
            }
        }
        None if traced.kind == Kind::Flow => steps.push("of no connection that is known".into()),
        None => {}
    }
    if let Some(begun) = &traced.begun {
        steps.push(format!("for service {}", begun.service));
        if let Some(backend) = begun.backend {
            let by = begun.scheduler.map_or_else(String::new, |scheduler| format!("{} ", scheduler_name(scheduler)));
            steps.push(format!("{by}chooses backend {backend}"));
        }
        if let Some(local) = begun.local {
            steps.push(format!("which sees it come from {local}, the next local port of CPU {}", traced.cpu));
        }
        if begun.complete {
            steps.push("a new connection".into());
        }
    }
    if let Some(state) = traced.state {
        steps.push(format!("the connection's state behind it: {}", state.name()));
    }
    if let Some(from) = traced.tunnel_from {
        steps.push(format!("packed into IP from {from}"));
    }
    if let Some(interface) = traced.interface {
        let name = interface_name(interface).unwrap_or_else(|| format!("interface {interface}"));
        let mtu = traced.mtu.map(|mtu| format!(", for packets of up to {mtu} bytes")).unwrap_or_default();
        steps.push(format!("the way there is by {name}{mtu}"));
    }
    steps
}

fn packet_out(frame: &[u8], device: Option<String>) -> Option<PacketOut> {
    let ethernet = Ethernet::parse(frame).ok()?;
    let mac = |mac: Mac| mac.0.map(|byte| format!("{byte:02x}")).join(":");
    let bytes = ethernet.payload().to_vec();
    Some(PacketOut {
        device,
        source_mac: mac(ethernet.source()),
        destination_mac: mac(ethernet.destination()),
        flow: flow_of(&bytes),
        bytes,
    })
}

/// `10.0.0.1:1025 > 10.0.0.2:80`, with the outer header first where there is one.
fn flow_of(packet: &[u8]) -> String {
    /// IP protocol numbers of IP in IP, IPv4 and IPv6 (RFC 2003, RFC 2473).
    const IN_IP: [u8; 2] = [4, 41];
    let (source, destination, number, payload): (IpAddr, IpAddr, u8, &[u8]) =
        if packet.first().is_some_and(|byte| byte >> 4 == 6) {
            let Ok(ip) = ipv6::Ipv6::parse(packet) else { return "no IP packet".to_owned() };
            (ip.source().into(), ip.destination().into(), ip.protocol(), ip.payload())
        } else {
            let Ok(ip) = ipv4::Ipv4::parse(packet) else { return "no IP packet".to_owned() };
            (ip.source().into(), ip.destination().into(), ip.protocol(), ip.payload())
        };
    match (number, payload) {
        (protocol::TCP | protocol::UDP, [a, b, c, d, ..]) => {
            let port = |high: u8, low: u8| u16::from_be_bytes([high, low]);
            let (from, to) = (SocketAddr::new(source, port(*a, *b)), SocketAddr::new(destination, port(*c, *d)));
            format!("{from} > {to}")
        }
        (number, inner) if IN_IP.contains(&number) => format!("{source} > {destination}, inside {}", flow_of(inner)),
        _ => format!("{source} > {destination}"),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::*;

    fn flow(protocol: Protocol, source: &str, destination: &str) -> Flow {
        let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
        Flow { protocol, source, destination, tcp_flags: tcp::flags::SYN, length: 100 }
    }

    #[test]
    fn frames_are_what_the_flow_says() {
        for (protocol, source, destination) in
            [(Protocol::Tcp, "10.0.0.1:1000", "10.0.0.2:80"), (Protocol::Udp, "[fd00::1]:1000", "[fd00::2]:80")]
        {
            let frame = frame(&flow(protocol, source, destination), mac("02:00:00:00:00:aa")).unwrap();
            assert_eq!(frame.len(), 114);
            let out = packet_out(&frame, None).unwrap();
            assert_eq!(out.flow, format!("{source} > {destination}"));
            assert_eq!(out.destination_mac, "02:00:00:00:00:aa");
        }
        let mixed = frame(&flow(Protocol::Tcp, "10.0.0.1:1", "[fd00::2]:80"), Mac::default());
        assert!(mixed.unwrap_err().to_string().contains("different address families"));
        // As short as headers are.
        let short = Flow { length: 0, ..flow(Protocol::Tcp, "10.0.0.1:1", "10.0.0.2:80") };
        assert_eq!(frame(&short, Mac::default()).unwrap().len(), 54);
    }
}
