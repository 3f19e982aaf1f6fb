//! What of the machine's settings stands in the way, with the command that mends it. Nothing is changed here.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use ipnet::IpNet;
use rig_sys::xdp;

use crate::settings::Rules;

/// A line for each thing that will cost packets as the machine is now. Of the calling thread's network namespace.
pub(super) fn advice<'a>(rules: &Rules, devices: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<String> {
    let mut said = Vec::new();
    let addresses = |v4: bool| {
        let mut services = rules.services.iter();
        services.any(|service| service.key.address.is_ipv4() == v4 || service.translates_families())
    };
    let sysctls =
        [(addresses(true), "net.ipv4.ip_forward", "IPv4"), (addresses(false), "net.ipv6.conf.all.forwarding", "IPv6")];
    for (_, key, family) in sysctls.into_iter().filter(|(wanted, key, _)| *wanted && is_off(key)) {
        said.push(format!(
            "the kernel does not forward {family}, and packets are dropped (no_route): sysctl -w {key}=1"
        ));
    }
    let mut services = BTreeSet::new();
    let mut locals = BTreeSet::new();
    let mut backends = BTreeSet::new();
    for service in &rules.services {
        services.insert(service.key.address.ip());
        locals.extend(service.local.iter().copied());
        backends.extend(service.backends.iter().map(|backend| backend.address.ip()));
    }
    let unrouted: Vec<IpAddr> = backends.into_iter().filter(|address| !has_route(*address)).collect();
    if !unrouted.is_empty() {
        said.push(format!(
            "no route to {}, so packets are dropped (no_route): add one with `ip route add`",
            list(&unrouted)
        ));
    }
    for (what, addresses) in [("service", services), ("local", locals)] {
        let foreign: Vec<IpAddr> = addresses.into_iter().filter(|address| !is_own(*address)).collect();
        if let Some(first) = foreign.first() {
            let prefix = if first.is_ipv4() { 32 } else { 128 };
            said.push(format!(
                "{what} address{} {} {} on no interface here: routers must send {} to this machine, or, for hosts on the \
                 same link, ip address add {first}/{prefix} dev DEVICE",
                if foreign.len() == 1 { "" } else { "es" },
                list(&foreign),
                if foreign.len() == 1 { "is" } else { "are" },
                if foreign.len() == 1 { "it" } else { "them" },
            ));
        }
    }
    let sources =
        rules.services.iter().filter(|service| service.is_tunnel()).filter_map(|service| service.tunnel_source);
    said.extend(sent_on(sources.collect(), |address| has_route(address) && !is_own(address)));
    for (name, _) in devices.filter(|(_, driver)| *driver == "veth") {
        said.push(match xdp::offload_takes_redirected() {
            true => format!(
                "{name} is a veth: its peer takes what the balancer sends only with an XDP program or GRO: ethtool -K PEER gro on"
            ),
            false => format!(
                "{name} is a veth: its peer takes what the balancer sends only with an XDP program (from Linux 5.13 on GRO is enough): ip link \
                 set PEER xdpdrv object FILE section NAME, with one that returns XDP_PASS"
            ),
        });
    }
    said
}

/// Addresses of tunnels' sources are nobody's, and of what comes to them the balancer takes ICMP errors about tunnels alone: a line for each
/// prefix of which the kernel would send on the others, to the router that sent them here if it is its default one.
fn sent_on(sources: BTreeSet<IpNet>, goes_on: impl Fn(IpAddr) -> bool) -> Vec<String> {
    // The first one is the balancer's.
    let second = |prefix: &IpNet| match prefix.network() {
        IpAddr::V4(first) => IpAddr::from(Ipv4Addr::from_bits(first.to_bits() | 1)),
        IpAddr::V6(first) => IpAddr::from(Ipv6Addr::from_bits(first.to_bits() | 1)),
    };
    let line = |prefix: IpNet| {
        let command = if prefix.network().is_ipv4() { "ip route" } else { "ip -6 route" };
        format!(
            "what comes to tunnel_source {prefix} and is nothing for the balancer is sent on by this machine's routes, in circles if routers send the \
             prefix here: {command} add blackhole {prefix}"
        )
    };
    sources.into_iter().filter(|prefix| goes_on(second(prefix))).map(line).collect()
}

fn is_off(sysctl: &str) -> bool {
    let path = format!("/proc/sys/{}", sysctl.replace('.', "/"));
    fs::read_to_string(path).is_ok_and(|value| value.trim() == "0")
}

fn any(address: IpAddr) -> IpAddr {
    if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}

/// Connecting a datagram socket looks for a route and sends nothing.
fn has_route(address: IpAddr) -> bool {
    const ANY_PORT: u16 = 9;
    UdpSocket::bind((any(address), 0)).and_then(|socket| socket.connect((address, ANY_PORT))).is_ok()
}

/// One can bind to what is configured, unless net.ipv4.ip_nonlocal_bind is set; then nothing is said.
fn is_own(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

/// The first few.
fn list(addresses: &[IpAddr]) -> String {
    const SHOWN: usize = 3;
    let shown: Vec<String> = addresses.iter().take(SHOWN).map(IpAddr::to_string).collect();
    match addresses.len() {
        count if count > SHOWN => format!("{} and {} more", shown.join(", "), count - SHOWN),
        _ => shown.join(", "),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::*;

    #[test]
    fn sources_of_tunnels_that_would_be_sent_on_are_told() {
        let prefixes = || ["172.16.0.0/16", "10.0.0.0/31", "100::/64"].map(|prefix| prefix.parse().unwrap());
        let asked = std::cell::RefCell::new(Vec::new());
        let said = sent_on(prefixes().into(), |address| {
            asked.borrow_mut().push(address.to_string());
            address.to_string() != "10.0.0.1"
        });
        assert_eq!(*asked.borrow(), ["10.0.0.1", "172.16.0.1", "100::1"]);
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(said[0].ends_with(": ip route add blackhole 172.16.0.0/16"), "{said:?}");
        assert!(said[1].ends_with(": ip -6 route add blackhole 100::/64"), "{said:?}");
    }
}
