//! What would happen to a packet: a frame for the program to run on, and its notes in words.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use ipnet::IpNet;
use rig_cli::packet::{self, Flow, Protocol};
use rig_datapath::balancer::{ClientAddress, Direction, Drop, Kind, Trace as Traced, TracedTunnel, TunnelHeader};
use rig_datapath::test_run::Verdict;
use rig_service::Refusal;
use rig_stats::units::Span;
use rig_sys::netlink::Netlink;
use rig_sys::netns::NetNs;

use super::counts::Snapshot;
use super::engine::Engine;
use super::status;
use crate::message::{PacketOut, ServiceKey, Trace, TraceRequest as Asked};
use crate::settings::{ListenText, Rules, Service, ServiceText, scheduler_name};

impl Engine {
    /// Runs the program on the packet, as if it came in by the device, or by the first that is there.
    pub(super) fn trace(&self, Asked { flow, device, quic_id }: &Asked) -> anyhow::Result<Trace> {
        let carries = quic_id.map_or(Ok(Vec::new()), |id| self.datagram_of_quic(flow, id))?;
        let mut there = self.devices.numbers();
        let found = there.find(|(name, _)| device.as_ref().is_none_or(|device| device == name));
        let vlan = device.as_ref().filter(|_| found.is_none()).and_then(|device| self.devices.vlan(device));
        let by_vlan = device.as_deref().zip(vlan.as_ref().map(|vlan| vlan.parent));
        let (name, index) = found.or(by_vlan).ok_or_else(|| {
            let what = match device {
                Some(device) => format!("the balancer is not on a device {device} now, so no packet comes to it there"),
                None => "the balancer is on no device now, so no packet comes to it".into(),
            };
            Refusal::new(what, Some("see `netrig lb status`".into()))
        })?;
        // Zeros where it has none.
        let mac = NetNs::of_current_thread().and_then(|here| here.sysfs()?.read(name, "address")).unwrap_or_default();
        let mut frame = packet::frame_with(flow, mac.trim().parse().unwrap_or_default(), &carries)?;
        if let Some(vlan) = &vlan {
            let [high, low] = vlan.id.to_be_bytes();
            frame.splice(BEFORE_TAG..BEFORE_TAG, [0x81, 0, high, low]);
        }
        let traced = self.balancer.trace(&frame, Some(index))?;
        let now = Snapshot::take(&self.balancer)?;
        let view = self.counts.view(&now);
        let dropped =
            traced.drop.and_then(|reason| view.drops().into_iter().find(|known| known.number == reason.number()));
        let passed =
            traced.pass.and_then(|reason| view.passes().into_iter().find(|known| known.number == reason.number()));
        // What tells a backend nothing goes on.
        let drop = traced.drop.filter(|reason| *reason != Drop::NotTold);
        let leaves = matches!(traced.verdict, Verdict::Transmit | Verdict::Redirect);
        // What is dropped and still leaves is an ICMP error to its sender, which goes back where the packet came from.
        let out = match drop {
            Some(_) => Some(vlan.map_or(index, |vlan| vlan.interface)),
            None => traced.interface.or(Some(index)),
        };
        let mut steps = steps(&traced);
        steps.extend(self.limit_of(&traced, flow.source.ip()));
        if traced.kind == Kind::Flow && traced.connection.is_none() && traced.new_connection.is_none() {
            steps.push(match drop {
                Some(Drop::SynAnswered) => answered(&self.rules, flow.protocol, flow.destination),
                _ => whose(&self.rules, flow.protocol, flow.destination),
            });
        }
        Ok(Trace {
            device: name.to_owned(),
            steps,
            verdict: match (drop, traced.verdict) {
                (None, Verdict::Pass) => "pass",
                (None, Verdict::Transmit | Verdict::Redirect) => "forward",
                (Some(_), _) | (None, Verdict::Drop | Verdict::Aborted | Verdict::Other(_)) => "drop",
            }
            .to_owned(),
            reason: dropped.or(passed),
            packet_out: if leaves { PacketOut::of(&traced.frame, out.and_then(interface_name)) } else { None },
        })
    }
}

impl Engine {
    /// A datagram whose connection ID is as the packet's service has them.
    fn datagram_of_quic(&self, flow: &Flow, id: u64) -> anyhow::Result<Vec<u8>> {
        let service = service_at(&self.rules, flow.protocol, flow.destination);
        let ids = service.and_then(|service| service.quic).ok_or_else(|| {
            let what = format!("there is no service at {} that reads connection IDs of QUIC", flow.destination);
            Refusal::new(what, Some("leave --quic-id out, or see `netrig lb status`".into()))
        })?;
        if id > ids.most() {
            let what = format!("server ID {id} has more than the {} bytes that the service's have", ids.length);
            return Err(Refusal::new(what, Some(format!("choose one up to {}", ids.most()))).into());
        }
        Ok(ids.datagram(id))
    }

    /// Which limit of its service decides on a packet.
    fn limit_of(&self, traced: &Traced, client: IpAddr) -> Option<String> {
        let begun = traced.new_connection?;
        let key = status::key(begun.protocol, begun.service);
        let service = self.rules.service(key)?;
        let limits = service.limits;
        let source = || {
            let bits = limits.in_force(client.is_ipv6()).source_bits(client.is_ipv6());
            IpNet::new(client, bits).map_or_else(|_| client.to_string(), |source| source.trunc().to_string())
        };
        match traced.drop? {
            Drop::SourceLimit => Some(format!(
                "source {} has as many connections as source_limit = {} allows",
                source(),
                limits.source_limit?
            )),
            Drop::SourceRate => {
                let burst = limits.source_burst.or(limits.source_rate)?;
                Some(format!(
                    "source {} begins them faster than source_rate = {} a second, and has used its burst of {burst}",
                    source(),
                    limits.source_rate?
                ))
            }
            Drop::NewRate => {
                let burst = limits.new_burst.or(limits.new_rate)?;
                Some(format!(
                    "the service begins them faster than new_rate = {} a second, and has used its burst of {burst}",
                    limits.new_rate?
                ))
            }
            _ => None,
        }
    }
}

/// The service that has a destination's packets.
fn service_at(rules: &Rules, protocol: Protocol, destination: SocketAddr) -> Option<&Service> {
    let any_port = SocketAddr::new(destination.ip(), 0);
    [destination, any_port].into_iter().find_map(|address| rules.service(ServiceKey { protocol, address }))
}

/// Of which service a SYN is that its SYN proxy answers.
fn answered(rules: &Rules, protocol: Protocol, destination: SocketAddr) -> String {
    service_at(rules, protocol, destination).map_or_else(
        || whose(rules, protocol, destination),
        |service| format!("for service {}, whose SYN proxy begins connections", ServiceText(service.key)),
    )
}

/// What the balancer has at the address of a packet that is of no connection and begins none.
fn whose(rules: &Rules, protocol: Protocol, destination: SocketAddr) -> String {
    let service = service_at(rules, protocol, destination);
    if let Some(service) = service.filter(|service| service.lacks().is_none()) {
        return format!("for service {}, of which it begins no connection", ServiceText(service.key));
    }
    let here: Vec<String> = rules
        .services
        .iter()
        .filter(|service| service.key.address.ip() == destination.ip())
        .map(|service| {
            let lacks = service.lacks().map(|lacks| format!(" (not in force: it lacks {lacks})")).unwrap_or_default();
            format!("{}{lacks}", ServiceText(service.key))
        })
        .collect();
    if let [.., _] = here.as_slice() {
        let more = here.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        return format!("for no service; at its address there are {}{more}", here[..here.len().min(NAMED)].join(", "));
    }
    let local = rules.services.iter().find(|service| service.local.contains(&destination.ip()));
    if let Some(service) = local {
        let service = ServiceText(service.key);
        return format!("for a local address of service {service}, whose connections alone are let through");
    }
    let source = |service: &&Service| {
        service.is_tunnel() && service.tunnel_source.is_some_and(|prefix| prefix.contains(&destination.ip()))
    };
    rules.services.iter().find(source).map_or_else(
        || format!("no service has the address {}", destination.ip()),
        |service| {
            format!(
                "for the tunnel_source of service {}, of which the balancer takes ICMP errors about outer packets alone",
                ServiceText(service.key)
            )
        },
    )
}

/// Of a frame, its addresses.
const BEFORE_TAG: usize = 12;

/// So many services are named at most.
const NAMED: usize = 4;

pub(super) fn interface_name(index: u32) -> Option<String> {
    let socket = UdpSocket::bind(("127.0.0.1", 0)).or_else(|_| UdpSocket::bind(("0.0.0.0", 0))).ok()?;
    rustix::net::netdevice::index_to_name(&socket, index).ok()
}

/// Its name, and of a VLAN device its tag.
fn with_tag(index: u32) -> Option<String> {
    let netlink = Netlink::here().ok()?;
    let link = netlink.link_at(index).ok()?;
    let below = link.far.filter(|far| far.namespace.is_none()).and_then(|far| netlink.link_at(far.index).ok());
    Some(match link.vlan.zip(below) {
        Some((vlan, below)) => format!("{} (VLAN {} of {})", link.name, vlan.id, below.name),
        None => link.name,
    })
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
    match &traced.connection {
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
                steps.push("that would end, and another one begin in its place".into());
            }
        }
        None if traced.answers_for.is_some() => {
            let service = traced.answers_for.map(|service| service.to_string()).unwrap_or_default();
            steps.push(format!("from a backend of service {service}, which schedules each datagram by itself"));
        }
        None if traced.kind == Kind::Flow => steps.push("of no connection that is known".into()),
        None => {}
    }
    if let Some(begun) = &traced.new_connection {
        steps.push(format!("for service {}", ListenText(begun.service)));
        if let Some(prefix) = traced.prefix {
            let does = if traced.drop == Some(Drop::Denied) { "refuses" } else { "allows" };
            steps.push(format!("{prefix}, the longest prefix of lists that the client is in, {does} it"));
        }
        if let Some(backend) = begun.backend {
            let by = begun.scheduler.map_or_else(String::new, |scheduler| format!("{} ", scheduler_name(scheduler)));
            steps.push(match (begun.kept, begun.stays) {
                _ if begun.named => format!("its QUIC connection ID names backend {backend}"),
                (true, _) => format!("persistence: backend {backend}, where the source's last connection went"),
                (_, true) => format!("reuse = \"keep\": backend {backend} again"),
                _ => format!("{by}chooses backend {backend}"),
            });
        }
        if let Some(local) = begun.local {
            steps.push(format!("which sees it come from {local}, the next local port of CPU {}", traced.cpu));
        }
        if begun.complete && begun.one_packet {
            steps.push("by itself: no connection is kept".into());
        } else if begun.complete {
            steps.push("a new connection".into());
        }
    }
    if let Some(state) = traced.state {
        steps.push(format!("the connection's state behind it: {}", state.name()));
    }
    match traced.tunnel {
        None => {}
        Some(TracedTunnel { header: TunnelHeader::IpInIp, from }) => {
            steps.push(format!("packed into IP from {}", from.ip()));
        }
        Some(TracedTunnel { header: TunnelHeader::Gre, from }) => {
            steps.push(format!("packed into GRE from {}", from.ip()));
        }
        Some(TracedTunnel { header: TunnelHeader::Gue { port, checksum }, from }) => {
            let sum = if checksum { "with" } else { "without" };
            steps.push(format!("packed into GUE from {from} to port {port}, {sum} a checksum"));
        }
    }
    let known = traced.connection.as_ref().map(|found| (found.connection.service, found.connection.backend));
    let begun = traced.new_connection.as_ref().and_then(|begun| Some((begun.service, begun.backend?)));
    if let Some((service, backend)) = begun.or(known)
        && service.is_ipv4() != backend.is_ipv4()
        && traced.interface.is_some()
        && traced.drop.is_none()
    {
        let outward =
            begun.is_none() && traced.connection.as_ref().is_some_and(|found| found.direction == Direction::Outward);
        let family = if outward { "IPv6" } else { "IPv4" };
        steps.push(format!("its headers are translated to {family}"));
    }
    if let Some(dscp) = traced.dscp {
        steps.push(format!("its DSCP is {dscp}, as the service says"));
    }
    match traced.tells {
        ClientAddress::Off => {}
        ClientAddress::Toa => steps.push("which is told the client's address by the option of TCP \"toa\"".into()),
        ClientAddress::Uoa => {
            steps.push("which is told the client's address by a header before that of UDP, \"uoa\"".into());
        }
        ClientAddress::ProxyV2 => {
            steps.push("which is told the client's address by the PROXY protocol's header".into());
        }
    }
    if let Some(interface) = traced.interface {
        let name = with_tag(interface).unwrap_or_else(|| format!("interface {interface}"));
        let mtu = traced.mtu.map(|mtu| format!(", for packets of up to {mtu} bytes")).unwrap_or_default();
        steps.push(format!("the way there is by {name}{mtu}"));
    }
    steps
}

#[cfg(test)]
mod tests {
    use rig_datapath::balancer::{self, Connection, NewConnection, Scheduler, State, TracedConnection};

    use super::*;
    use crate::settings::{Completeness, Settings};

    #[test]
    fn an_address_is_told_with_who_has_it() {
        let text = "[[service]]\nlisten = '192.0.2.1:80'\nbackend = ['10.0.0.1']\nforward = 'tunnel'\ntunnel_source = '172.16.0.0/16'\n\
                    [[service]]\nlisten = '192.0.2.2:80'\nbackend = ['10.0.0.1:80']\nlocal = '198.51.100.1'\n\
                    [[service]]\nlisten = '192.0.2.3:80'\nbackend = ['10.0.0.1:80']\nforward = 'nat'\nsyn_proxy = 'always'";
        let Ok(settings) = Settings::parse("lb.toml", text, Completeness::Optional) else { panic!("not read") };
        let at = |address: &str, port| SocketAddr::new(address.parse().unwrap_or([0; 4].into()), port);
        let said = |address: &str| whose(&settings.rules, Protocol::Tcp, at(address, 81));
        let service = "for no service; at its address there are tcp 192.0.2.1:80";
        assert_eq!(said("192.0.2.1"), service);
        assert!(said("198.51.100.1").starts_with("for a local address of service tcp 192.0.2.2:80"));
        for address in ["172.16.0.0", "172.16.255.255"] {
            assert!(said(address).starts_with("for the tunnel_source of service tcp 192.0.2.1:80"), "{address}");
        }
        assert_eq!(said("172.17.0.0"), "no service has the address 172.17.0.0");
        let proxied = "for service tcp 192.0.2.3:80, whose SYN proxy begins connections";
        assert_eq!(answered(&settings.rules, Protocol::Tcp, at("192.0.2.3", 80)), proxied);
        let begins_none = "for service tcp 192.0.2.3:80, of which it begins no connection";
        assert_eq!(whose(&settings.rules, Protocol::Tcp, at("192.0.2.3", 80)), begins_none);
        let other = "for no service; at its address there are tcp 192.0.2.3:80";
        assert_eq!(whose(&settings.rules, Protocol::Udp, at("192.0.2.3", 80)), other);
    }

    /// A SYN from the port of a connection that is over.
    fn port_used_again(stays: bool) -> Traced {
        let [client, service, backend] =
            ["198.51.100.9:40000", "192.0.2.1:80", "10.0.0.1:80"].map(|address| address.parse().unwrap());
        let connection = Connection {
            protocol: balancer::Protocol::Tcp,
            state: State::TimeWait,
            client,
            service,
            any_port: false,
            local: None,
            backend,
            expires: Duration::from_millis(1234),
        };
        Traced {
            kind: Kind::Flow,
            cpu: 0,
            hash: 0,
            worker: None,
            connection: Some(TracedConnection { connection, direction: Direction::Inward, ends: true }),
            new_connection: Some(NewConnection {
                protocol: balancer::Protocol::Tcp,
                service,
                scheduler: Some(Scheduler::RoundRobin),
                backend: Some(backend),
                stays,
                kept: false,
                named: false,
                local: None,
                complete: true,
                one_packet: false,
            }),
            answers_for: None,
            state: Some(State::SynReceived),
            verdict: Verdict::Transmit,
            drop: None,
            pass: None,
            prefix: None,
            tunnel: None,
            dscp: None,
            tells: ClientAddress::Off,
            interface: None,
            mtu: None,
            frame: Vec::new(),
        }
    }

    #[test]
    fn a_port_that_is_used_again_begins_another_connection() {
        let said = steps(&port_used_again(true));
        assert!(said[0].ends_with("at backend 10.0.0.1:80: TIME_WAIT, expires in 1.3s"), "{said:?}");
        let behind = |said: &[String]| said[1..4].to_vec();
        let [ends, service] = ["that would end, and another one begin in its place", "for service 192.0.2.1:80"];
        assert_eq!(behind(&said), [ends, service, "reuse = \"keep\": backend 10.0.0.1:80 again"]);
        let said = steps(&port_used_again(false));
        assert_eq!(behind(&said), [ends, service, "rr chooses backend 10.0.0.1:80"]);
        // What a list says of it comes behind the service.
        let prefix = Some("198.51.100.0/24".parse().unwrap());
        let listed = Traced { prefix, ..port_used_again(false) };
        let says = |traced: &Traced| steps(traced)[3].clone();
        assert_eq!(says(&listed), "198.51.100.0/24, the longest prefix of lists that the client is in, allows it");
        assert!(says(&Traced { drop: Some(Drop::Denied), ..listed }).ends_with("refuses it"));
    }
}
