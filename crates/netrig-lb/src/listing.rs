//! Listings in the layouts of ipvsadm 1.31, and of DPVS's edition for local addresses: titles, columns and widths are
//! theirs, as far as can be seen in their output.

use std::collections::HashMap;
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ipnet::Ipv4Net;
use schemars::JsonSchema;
use serde::Serialize;

use super::message::{
    BackendEntry, BackendHealth, BackendHealthState, ConnectionEntry, Counters, Filter, ForwardingMethod, Hop, NextHop,
    NextHopState, Protocol, Rates, ServiceEntry, ServiceHealth, ServiceKey, Status, Tunnel,
};
use super::names::Names;

/// What is asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Listing {
    pub what: ListingKind,
    pub service: Option<ServiceKey>,
    pub numeric: bool,
    pub exact: bool,
    pub sorted: bool,
    pub json: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub enum ListingKind {
    Rules,
    Stats,
    Rate,
    Thresholds,
    NextHops,
    Health,
    PersistentConnections,
    Tunnels,
    Timeout,
    Connections(Filter),
}

/// Which columns a listing of services has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    Rules,
    Stats,
    Rate,
    Thresholds,
    Persistent,
    Tunnels,
    /// Neither ipvsadm nor DPVS has these.
    NextHops,
    Health,
}

/// ipvsadm shows its kernel's version here and DPVS its own; of three numbers, for those who parse it.
fn version_line(status: &Status) -> String {
    format!("IP Virtual Server version {} (size={})\n", status.netrig_version, status.table.capacity)
}

fn title(style: Style) -> String {
    let columns = match style {
        Style::Rules => {
            return "Prot LocalAddress:Port Scheduler Flags\n  \
                    -> RemoteAddress:Port           Forward Weight ActiveConn InActConn\n"
                .to_owned();
        }
        Style::Tunnels => {
            return "Prot LocalAddress:Port Scheduler Flags\n  \
                    -> RemoteAddress:Port           Forward TunnelInfo    Weight ActiveConn InActConn\n"
                .to_owned();
        }
        Style::Stats => {
            format!("{:>8} {:>8} {:>8} {:>8} {:>8}", "Conns", "InPkts", "OutPkts", "InBytes", "OutBytes")
        }
        Style::Rate => format!("{:>8} {:>8} {:>8} {:>8} {:>8}", "CPS", "InPPS", "OutPPS", "InBPS", "OutBPS"),
        Style::Thresholds => {
            format!("{:<10} {:<10} {:<10} {:<10}", "Uthreshold", "Lthreshold", "ActiveConn", "InActConn")
        }
        Style::Persistent => {
            format!("{:<9} {:<11} {:<10} {:<10}", "Weight", "PersistConn", "ActiveConn", "InActConn")
        }
        Style::NextHops => format!("{:<11} {:<11} NextHop", "State", "For"),
        Style::Health => format!("{:<11} {:<11} {:<7} {:<9} Reason", "State", "For", "Weight", "Took"),
    };
    format!("{:<33} {columns}\n  -> RemoteAddress:Port\n", "Prot LocalAddress:Port")
}

/// The services, without those that were removed and only wait for the end of their connections.
pub fn services(status: &Status, listing: &Listing, style: Style, mut names: Names) -> String {
    // ipvsadm has no version line when one service is asked for.
    let mut text = if listing.service.is_none() { version_line(status) } else { String::new() };
    text += &title(style);
    let mut services: Vec<&ServiceEntry> = status.services.iter().filter(|service| service.open).collect();
    if listing.sorted {
        services.sort_by_key(|service| order(service.key));
    }
    for service in services {
        let mut backends: Vec<&BackendEntry> = service.backends.iter().filter(|backend| !backend.leaving).collect();
        if listing.sorted {
            backends.sort_by_key(|backend| backend.address);
        }
        let addresses = backends.iter().map(|backend| backend.address.ip());
        names.learn(addresses.chain([service.key.address.ip()]));
        let key = service.key;
        let name = format!("{:<4} {}", protocol(key.protocol), names.write(key.protocol, key.address));
        service_row(&mut text, style, service, &cut(name, key.address, 33), listing.exact);
        for backend in backends {
            let name = cut(names.write(key.protocol, backend.address), backend.address, 28);
            backend_row(&mut text, style, service.forward, backend, &name, listing.exact);
        }
    }
    text
}

/// ipvsadm's order: IPv4 first, then by protocol, address, port.
pub fn order(key: ServiceKey) -> (bool, Protocol, SocketAddr) {
    (key.address.is_ipv6(), key.protocol, key.address)
}

pub fn protocol(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Tcp => "TCP",
        Protocol::Udp => "UDP",
    }
}

/// ipvsadm cuts names of IPv4 that would push columns to the right, and leaves those of IPv6.
fn cut(name: String, address: SocketAddr, width: usize) -> String {
    if address.is_ipv6() { name } else { name.chars().take(width).collect() }
}

fn service_row(text: &mut String, style: Style, service: &ServiceEntry, name: &str, exact: bool) {
    match style {
        Style::Rules | Style::Tunnels => {
            *text += &format!("{name} {}{}{}", service.scheduler, persistence(service), flags(service));
            if let Some(timeout) = service.timeout {
                *text += &format!(" conn-timeout {timeout}");
            }
        }
        Style::Stats => *text += &format!("{name:<33}{}", counters(&service.counters, exact)),
        Style::Rate => *text += &format!("{name:<33}{}", rates(&service.rates, exact)),
        Style::Thresholds | Style::Persistent | Style::NextHops => *text += &format!("{name} {}", service.scheduler),
        Style::Health => *text += &format!("{name} {}", service_health(service)),
    }
    text.push('\n');
}

fn backend_row(
    text: &mut String,
    style: Style,
    forward: ForwardingMethod,
    backend: &BackendEntry,
    name: &str,
    exact: bool,
) {
    let (BackendEntry { active, inactive, .. }, weight) = (backend, backend.weight_in_force());
    let columns = match style {
        Style::Rules => format!(" {:<7} {weight:<6} {active:<10} {inactive:<10}", forward_name(forward)),
        Style::Tunnels => {
            let tunnel = tunnel_info(backend.tunnel);
            format!(" {:<7} {tunnel:<13} {weight:<6} {active:<10} {inactive:<10}", forward_name(forward))
        }
        Style::Stats => counters(&backend.counters, exact),
        Style::Rate => rates(&backend.rates, exact),
        Style::Thresholds => {
            let (upper, lower) = (backend.limit.unwrap_or(0), backend.lower_limit.unwrap_or(0));
            format!(" {upper:<10} {lower:<10} {active:<10} {inactive:<10}")
        }
        Style::Persistent => {
            format!(" {weight:<9} {:<11} {active:<10} {inactive:<10}", backend.persistent)
        }
        Style::NextHops => match &backend.next_hop {
            None => format!(" {:<11} {:<11} -", "unknown", "-"),
            Some(hop) => format!(" {:<11} {:<11} {}", state_name(hop.state), duration(hop.state_ms), hops(hop)),
        },
        Style::Health => match &backend.health {
            None => format!(" {:<11} {:<11} {weight:<7} {:<9} -", "-", "-", "-"),
            Some(health) => health_columns(health),
        },
    };
    *text += &format!("  -> {name:<28}{columns}\n");
}

/// ipvsadm's `-M` of a service's persistence, where a source is more than an address.
pub fn mask(service: &ServiceEntry) -> Option<String> {
    match (service.key.address.is_ipv6(), service.persistence.prefix4, service.persistence.prefix6) {
        (true, _, Some(bits)) if bits != 128 => Some(bits.to_string()),
        (false, Some(bits), _) if bits != 32 => {
            Ipv4Net::new(Ipv4Addr::UNSPECIFIED, bits.try_into().ok()?).ok().map(|net| net.netmask().to_string())
        }
        _ => None,
    }
}

fn persistence(service: &ServiceEntry) -> String {
    let Some(seconds) = service.persistence.timeout else { return String::new() };
    let mask = mask(service).map(|mask| format!(" mask {mask}")).unwrap_or_default();
    let group = service.persistence.group.map(|group| format!(" group {group}")).unwrap_or_default();
    format!(" persistent {seconds}{mask}{group}")
}

/// As ipvsadm and DPVS have them behind the scheduler, and how backends are told of clients' addresses.
fn flags(service: &ServiceEntry) -> String {
    let proxies = match (service.syn_proxy.as_str(), service.syn_proxy_answers) {
        _ if service.one_packet => " ops",
        ("always", _) | ("auto", true) => " synproxy",
        _ => "",
    };
    match service.client_address.as_str() {
        "" | "off" => proxies.to_owned(),
        told => format!("{proxies} {told}"),
    }
}

/// As ipvsadm has it: the type, GUE's port, and whether there is a checksum.
fn tunnel_info(tunnel: Option<Tunnel>) -> String {
    match tunnel {
        None => String::new(),
        Some(Tunnel::Ipip) => "ipip".to_owned(),
        Some(Tunnel::Gue { port, checksum: true }) => format!("gue:{port}:+c"),
        Some(Tunnel::Gue { port, checksum: false }) => format!("gue:{port}:-c"),
        Some(Tunnel::Gre) => "gre:-c".to_owned(),
    }
}

/// As in JSON, and as drops have it for their reason.
pub fn state_name(state: NextHopState) -> &'static str {
    match state {
        NextHopState::Ok => "ok",
        NextHopState::NoNeighbor => "no_neighbor",
        NextHopState::DeviceDown => "device_down",
        NextHopState::NotCarried => "not_carried",
        NextHopState::Local => "local",
        NextHopState::NoRoute => "no_route",
    }
}

/// As in JSON.
pub fn health_name(state: BackendHealthState) -> &'static str {
    match state {
        BackendHealthState::Unknown => "unknown",
        BackendHealthState::Up => "up",
        BackendHealthState::Down => "down",
        BackendHealthState::NotChecked => "not_checked",
    }
}

fn service_health(service: &ServiceEntry) -> String {
    match &service.health {
        None => "not checked".to_owned(),
        Some(ServiceHealth { check, outlier, healthy_weight, quorum, has_quorum, .. }) => {
            let has = if *has_quorum { "" } else { ", MISSED" };
            let check = match (check.as_str(), outlier) {
                ("none", _) => "outliers".to_owned(),
                (check, true) => format!("{check} and outliers"),
                (check, false) => check.to_owned(),
            };
            format!("{check}, healthy weight {healthy_weight}, quorum {quorum}{has}")
        }
    }
}

fn health_columns(health: &BackendHealth) -> String {
    let ejected = health.outlier.as_ref().filter(|_| health.is_ejected());
    let state = match ejected {
        Some(_) => "ejected",
        None if health.sorry => "sorry",
        None => health_name(health.state),
    };
    let time = match (ejected.and_then(|outlier| outlier.ejected_ms), health.state) {
        (Some(ms), _) => duration(ms),
        (None, BackendHealthState::NotChecked) => "-".to_owned(),
        (None, _) => duration(health.state_ms),
    };
    let took = health.last_us.map_or_else(|| "-".to_owned(), |us| format!("{:.1} ms", us as f64 / 1000.0));
    let reason = match ejected {
        Some(outlier) => outlier.reason.as_deref(),
        None => health.reason.as_deref(),
    };
    let certificate = || {
        let end = jiff::Timestamp::from_second(i64::try_from(health.certificate_end?).ok()?).ok()?;
        Some(format!("certificate until {}", end.strftime("%Y-%m-%d %H:%M UTC")))
    };
    let reason = reason.map(str::to_owned).or_else(certificate).unwrap_or_else(|| "-".to_owned());
    format!(" {state:<11} {time:<11} {:<7} {took:<9} {reason}", health.weight_in_force)
}

/// In the words of ip-neighbour(8); each with its state where there are several.
fn hops(next_hop: &NextHop) -> String {
    let several = next_hop.hops.len() > 1;
    let hop = |hop: &Hop| match several {
        true => format!("{} dev {} {}", hop.address, hop.by(), state_name(hop.state)),
        false => format!("{} dev {}", hop.address, hop.by()),
    };
    match next_hop.hops.as_slice() {
        [] => "-".to_owned(),
        hops => hops.iter().map(hop).collect::<Vec<_>>().join(", "),
    }
}

pub fn forward_name(forward: ForwardingMethod) -> &'static str {
    match forward {
        ForwardingMethod::FullNat => "FullNat",
        ForwardingMethod::Nat => "Masq",
        ForwardingMethod::Route => "Route",
        ForwardingMethod::Tunnel => "Tunnel",
    }
}

fn counters(counters: &Counters, exact: bool) -> String {
    let Counters { connections, in_packets, out_packets, in_bytes, out_bytes, refused: _ } = *counters;
    [connections, in_packets, out_packets, in_bytes, out_bytes].map(|number| column(number, exact)).concat()
}

fn rates(rates: &Rates, exact: bool) -> String {
    let Rates { connections, in_packets, out_packets, in_bytes, out_bytes } = *rates;
    let whole = |rate: f64| column(rate.round() as u64, exact);
    [connections, in_packets, out_packets, in_bytes, out_bytes].map(whole).concat()
}

/// A number of at most eight digits to the right of nine columns: from 100 million on in thousands, millions and so on,
/// rounded down.
fn column(number: u64, exact: bool) -> String {
    const UNITS: [(u64, &str); 5] =
        [(1, ""), (1_000, "K"), (1_000_000, "M"), (1_000_000_000, "G"), (1_000_000_000_000, "T")];
    /// Up to where each is used: thousands up to a million of them, the others up to a hundred thousand.
    const BELOW: [u64; 4] = [100_000_000, 1_000_000_000, 100_000_000_000, 100_000_000_000_000];
    if exact {
        return format!(" {number:>8}");
    }
    let (unit, letter) = UNITS[BELOW.iter().take_while(|below| number >= **below).count()];
    let digits = if letter.is_empty() { 9 } else { 8 };
    format!("{:>digits$}{letter}", number / unit)
}

pub fn timeouts(status: &Status) -> String {
    let timeouts = status.timeouts;
    format!("Timeout (tcp tcpfin udp): {} {} {}\n", timeouts.tcp, timeouts.tcp_fin, timeouts.udp)
}

/// ipvsadm's, and one column more.
pub const CONNECTIONS_TITLE: &str = "IPVS connection entries\n\
    pro expire state       source             virtual            destination        local\n";

pub fn connection(entry: &ConnectionEntry, names: &mut Names) -> String {
    let mut name = |address| names.write(entry.protocol, address);
    let [client, service, backend] = [entry.client, entry.service, entry.backend].map(&mut name);
    let local = entry.local.map(name);
    let expires = format!("{:02}:{:02}", entry.expires / 60, entry.expires % 60);
    let state = &entry.state;
    let mut line = format!("{:<3} {expires:<6} {state:<11} {client:<18} {service:<18} ", protocol(entry.protocol));
    let written = match local {
        Some(local) => writeln!(line, "{backend:<18} {local}"),
        None => writeln!(line, "{backend}"),
    };
    debug_assert!(written.is_ok(), "writing to a string");
    line
}

pub fn addresses_of(entry: &ConnectionEntry) -> impl Iterator<Item = IpAddr> {
    [Some(entry.client), Some(entry.service), Some(entry.backend), entry.local].into_iter().flatten().map(|a| a.ip())
}

/// How many connections have each local address.
#[derive(Debug, Default)]
pub struct LocalCounts(HashMap<(ServiceKey, IpAddr), u64>);

/// A service's local addresses: what `-G --json` prints of each.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ServiceLocals {
    #[serde(flatten)]
    pub key: ServiceKey,
    /// What backends see as the client, with FullNAT.
    pub local: Vec<LocalAddress>,
}

#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LocalAddress {
    pub address: IpAddr,
    /// That use it now.
    pub connections: u64,
}

impl LocalCounts {
    pub fn count(&mut self, entry: &ConnectionEntry) {
        if let Some(local) = entry.local {
            let key = ServiceKey { protocol: entry.protocol, address: entry.service };
            *self.0.entry((key, local.ip())).or_default() += 1;
        }
    }

    pub fn of(&self, status: &Status) -> Vec<ServiceLocals> {
        let mut services: Vec<&ServiceEntry> = status.services.iter().filter(|service| service.open).collect();
        services.sort_by_key(|service| order(service.key));
        let address = |key, address: &IpAddr| LocalAddress {
            address: *address,
            connections: self.0.get(&(key, *address)).copied().unwrap_or(0),
        };
        let locals = |service: &ServiceEntry| service.local.iter().map(|local| address(service.key, local)).collect();
        services.into_iter().map(|service| ServiceLocals { key: service.key, local: locals(service) }).collect()
    }
}

/// DPVS's listing of local addresses. A conflict is a port that was tried and taken; tries are not counted by address,
/// and where all fail the drop is counted as `no_local_port`.
pub fn locals(services: &[ServiceLocals]) -> String {
    let row = |columns: [&str; 5]| {
        let [service, total, address, conflicts, connections] = columns;
        let row = format!("{service:<20} {total:<8} {address:<20} {conflicts:<10} {connections:<10}");
        format!("{}\n", row.trim_end())
    };
    let mut text = row(["VIP:VPORT", "TOTAL", "SNAT_IP", "CONFLICTS", "CONNS"]);
    for service in services {
        text += &row([&service.key.address.to_string(), &service.local.len().to_string(), "", "", ""]);
        for LocalAddress { address, connections } in &service.local {
            text += &row(["", "", &address.to_string(), "-", &connections.to_string()]);
        }
    }
    text
}

pub fn duration(ms: u64) -> String {
    let seconds = ms / 1000;
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, ..) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests;
