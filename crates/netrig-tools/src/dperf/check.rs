//! What keywords of a file have to do with each other.

use std::net::IpAddr;

use rig_packet::Service;
use rig_packet::plan::{Packets, Range};

use super::language::{LineError, Warning};
use super::resolve;
use super::settings::{Protocol, Settings};
use super::values::last;

type Result<T> = std::result::Result<T, LineError>;

/// Keywords that only one end, or only one protocol, has a use for.
pub fn roles(settings: &Settings) -> Result<()> {
    let refuse = |keyword: &str, why: &str| match settings.line(keyword) {
        Some(line) => Err(LineError::at(line, format!("{keyword}: {why}: remove the line"))),
        None => Ok(()),
    };
    let all = |keywords: &[&str], why: &str| keywords.iter().try_for_each(|keyword| refuse(keyword, why));
    let udp = settings.protocol == Protocol::Udp;
    if settings.server {
        const CLIENTS: &[&str] = &[
            "cps",
            "cc",
            "rps",
            "pps",
            "launch_num",
            "slow_start",
            "wait",
            "pipeline",
            "flood",
            "change_dip",
            "client_hop",
            "client_port_range",
            "lport_range",
            "fast_close",
            "disable_ack",
            "http_host",
            "http_path",
            "http_method",
        ];
        all(CLIENTS, "it is a client's, and this is a server's file")?;
        if let Some((_, Some(_))) = settings.keepalive {
            return refuse("keepalive", "a server leaves the number of requests to its clients: give the time alone");
        }
    } else {
        all(&["send_window", "neigh_ignore"], "it is a server's, and this is a client's file")?;
    }
    if udp {
        const TCPS: &[&str] = &["send_window", "mss", "fast_close", "disable_ack", "tcp_rst"];
        all(TCPS, "it is for TCP, and the protocol is udp")?;
    }
    if settings.protocol != Protocol::Http {
        all(&["http_host", "http_path", "http_method"], "it needs `protocol http`")?;
    }
    if settings.payload_file.is_some() {
        all(&["http_host", "http_path", "http_method", "payload_random"], "payload_file sets the message")?;
    }
    if settings.http_path.is_some() && !settings.post {
        all(&["payload_size", "packet_size"], "http_path sets the length of a GET")?;
    }
    if settings.fast_close && settings.keepalive.is_some() && settings.disable_ack {
        return refuse("disable_ack", "the last response of a connection is answered by the reset of fast_close");
    }
    if !settings.flood {
        all(&["change_dip"], "it needs `flood`")?;
    }
    if !settings.vxlans.is_empty() {
        all(&["vlan", "rss", "change_dip"], "it cannot be combined with vxlan")?;
    }
    if settings.line("rss").is_some() {
        all(&["flow_isolate"], "it cannot be combined with rss")?;
    }
    Ok(())
}

/// Workers of each port.
pub fn queues(settings: &Settings) -> Result<usize> {
    let (cpus, ports) = (settings.cpus.len(), settings.ports.len());
    if cpus == 0 {
        return Err(LineError::at(None, "no CPU: give `cpu` with one for each thread"));
    }
    if cpus % ports != 0 {
        let what = format!("cpu: {cpus} CPUs cannot be dealt out to {ports} ports evenly: give as many for each port");
        return Err(LineError::at(settings.line("cpu"), what));
    }
    let queues = cpus / ports;
    for (line, vxlan) in &settings.vxlans {
        if vxlan.local_count as usize != queues {
            let what =
                format!("vxlan: {} local ends for {queues} threads of the port: give one each", vxlan.local_count);
            return Err(LineError::at(*line, what));
        }
        if vxlan.remote_count != 1 && vxlan.remote_count as usize != queues {
            let what = format!(
                "vxlan: {} remote ends: give one, or one for each of the port's {queues} threads",
                vxlan.remote_count
            );
            return Err(LineError::at(*line, what));
        }
    }
    Ok(queues)
}

/// That there are addresses, as many lines as ports where that matters, of one family, and none in two places.
pub fn addresses(settings: &Settings, warnings: &mut Vec<Warning>) -> Result<()> {
    let ports = settings.ports.len();
    if ports == 0 {
        return Err(LineError::at(None, "no port: give `port` with an interface, its address and its gateway"));
    }
    let servers = settings.servers.len();
    let clients = settings.clients.len();
    if servers != ports {
        let line = settings.servers.last().map(|(line, _)| *line);
        return Err(LineError::at(line, format!("{servers} `server` lines for {ports} ports: give one for each port")));
    }
    if clients == 0 || !settings.server && clients != ports {
        let line = settings.clients.last().map(|(line, _)| *line);
        return Err(LineError::at(line, format!("{clients} `client` lines for {ports} ports: give one for each port")));
    }
    if !settings.vxlans.is_empty() && settings.vxlans.len() != ports {
        let line = settings.line("vxlan");
        let count = settings.vxlans.len();
        return Err(LineError::at(line, format!("vxlan: {count} lines for {ports} ports: give one for each port")));
    }
    for (n, (line, port)) in settings.ports.iter().enumerate() {
        for (before, other) in &settings.ports[..n] {
            if port.device == other.device {
                return Err(LineError::at(
                    *line,
                    format!("port: line {before} has {} too: name each once", port.device),
                ));
            }
            if port.address == other.address {
                return Err(LineError::at(*line, format!("port: line {before} has the address {} too", port.address)));
            }
        }
    }
    let flat = |lines: &[(usize, Vec<Range>)]| -> Vec<(usize, Range)> {
        lines.iter().flat_map(|(line, ranges)| ranges.iter().map(|range| (*line, *range))).collect()
    };
    let clients = flat(&settings.clients);
    let v4 = settings.servers[0].1.first.is_ipv4();
    for (line, range) in clients.iter().chain(&settings.servers) {
        if range.first.is_ipv4() != v4 {
            return Err(LineError::at(
                *line,
                format!("{} is not of the family of {}", range.first, settings.servers[0].1.first),
            ));
        }
    }
    for (line, port) in &settings.ports {
        // The outer packet of a tunnel is IPv4, with IPv4 or IPv6 inside.
        if port.address.is_ipv4() != (v4 || !settings.vxlans.is_empty()) {
            let what = format!(
                "port: {} is not of the address family of its lines `client`, `server` and `vxlan`",
                port.address
            );
            return Err(LineError::at(*line, what));
        }
    }
    for (line, stride) in &settings.destinations {
        if stride.first.is_ipv4() != v4 {
            return Err(LineError::at(*line, format!("change_dip: {} is not of the clients' family", stride.first)));
        }
    }
    apart(&clients, &clients)?;
    apart(&settings.servers, &settings.servers)?;
    apart(&settings.servers, &clients)?;
    let (ours, theirs) = if settings.server { (&settings.servers, &clients) } else { (&clients, &settings.servers) };
    for (line, port) in &settings.ports {
        let among = |address: IpAddr, ranges: &[(usize, Range)]| {
            ranges.iter().find(|(_, range)| overlap(range, &Range { first: address, count: 1 })).map(|(line, _)| *line)
        };
        if let Some(other) = among(port.gateway, ours) {
            let what = format!("port: the gateway {} is one of our own addresses, line {other}", port.gateway);
            return Err(LineError::at(*line, what));
        }
        match (among(port.address, theirs), settings.server) {
            (Some(other), true) => {
                let what = format!("the port's address {} is one of the clients', line {other}", port.address);
                warnings.push(Warning::at(*line, format!("port: {what}: nothing will come from there")));
            }
            (Some(other), false) => {
                let what = format!("port: the port's address {} is one of the servers', line {other}", port.address);
                return Err(LineError::at(*line, what));
            }
            (None, _) => {}
        }
    }
    Ok(())
}

/// That no address of one list is in the other; in the same list, not twice.
fn apart(list: &[(usize, Range)], other: &[(usize, Range)]) -> Result<()> {
    let same = std::ptr::eq(list, other);
    for (n, (line, range)) in list.iter().enumerate() {
        for (before, earlier) in if same { &other[..n] } else { other } {
            if overlap(range, earlier) {
                let what = match range.count {
                    1 => format!("{}: line {before} has it too", range.first),
                    count => format!("{count} addresses from {}: line {before} has some of them too", range.first),
                };
                return Err(LineError::at(*line, what));
            }
        }
    }
    Ok(())
}

fn overlap(a: &Range, b: &Range) -> bool {
    let ends = |range: &Range| last(range).map(|last| (range.first, last));
    ends(a).zip(ends(b)).is_some_and(|((a, a_end), (b, b_end))| a <= b_end && b <= a_end && a.is_ipv4() == b.is_ipv4())
}

/// That a client's addresses and ports suffice for the connections that are to be open.
pub fn combinations(settings: &Settings, packets: &Packets) -> Result<()> {
    let client = match &packets.service {
        Service::TcpClient(tcp) => &tcp.client,
        Service::UdpClient(udp) => &udp.client,
        Service::TcpServer(_) | Service::UdpServer(_) => return Ok(()),
    };
    if client.flood.is_some() {
        return Ok(());
    }
    let count = |ranges: &[Range]| ranges.iter().map(|range| u64::from(range.count)).sum::<u64>();
    let ports = packets.ports.len() as u64;
    let timeout = resolve::times(settings).retransmit.as_secs();
    let waiting = (client.load.rate * timeout as f64 / ports as f64).ceil() as u64;
    let held = client.load.hold.map(|hold| u64::from(hold).div_ceil(ports));
    for (port, (line, _)) in packets.ports.iter().zip(&settings.clients) {
        let (clients, servers) = (count(&port.local), count(&port.remote));
        let (from, to) = (client.ports.len() as u64, client.server_ports.len() as u64);
        let sockets = clients * from * servers * to;
        let sum = format!("{clients} clients x {from} ports x {servers} servers x {to} ports = {sockets}");
        let more = "give more addresses to `client` or ports to `listen`";
        if let Some(held) = held.filter(|&held| held > sockets) {
            let what = format!("client: {sum} connections at most, and cc needs {held} on this port: {more}");
            return Err(LineError::at(*line, what));
        }
        if waiting > sockets {
            let what = format!(
                "client: {sum} connections at most, and at cps / {ports} ports x retransmit_timeout {timeout} s there may \
                 be {waiting} without an answer on this one: {more}"
            );
            return Err(LineError::at(*line, what));
        }
    }
    Ok(())
}
