//! nftables: the destination is one backend after the other, the source the node's own.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::SocketAddr;

use anyhow::{Context, Result};
use rig_sys::netns::{NetNs, NsFile};
use rig_testbed::datapath::{
    Attach, Counters, Datapath, DatapathRequest, Live, Machine, Missing, Mistake, Process, Protocol, ServiceState,
    Services, Settings, Site, State, UnknownCommand, read_settings,
};
use serde::Deserialize;
use serde_json::Value;

use super::{CLOSING, DATAGRAMS, ESTABLISHED, SYN_RECEIVED, WEIGHT, node, stands_between};

/// Ended connections are forgotten after a second, and not after the seven that the balancer has: how many the table has
/// room for is the machine's to say (`net.netfilter.nf_conntrack_max`), and seven seconds of them would be the limit, in
/// place of the CPU.
const ENDED: u32 = 1;

/// Who acknowledges a cookie gets a connection.
const SYNPROXY: &str = "ct state invalid,untracked synproxy mss 1460 wscale 7 timestamp sack-perm";

/// What a suite may say of it.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Options {
    /// Whether clients are answered by SYNPROXY, which opens a connection to a backend when they have acknowledged.
    syn_proxy: bool,
}

/// The kernel's NAT with connection tracking, set up by `nft`.
#[derive(Debug)]
pub(crate) struct Nftables;

impl Datapath for Nftables {
    fn name(&self) -> &'static str {
        "nftables"
    }

    fn validate(&self, asked: &DatapathRequest<'_>) -> Result<(), Mistake> {
        stands_between(self.name(), asked)?;
        let Options { syn_proxy } = read_settings(asked.settings)?;
        match asked.services {
            Some(services) if syn_proxy && services.protocol != Protocol::Tcp => {
                Err(Mistake::new("syn_proxy of a service of UDP", "remove it").at("syn_proxy"))
            }
            _ => Ok(()),
        }
    }

    fn missing(&self, machine: &Machine, settings: &Settings) -> Option<Missing> {
        let Options { syn_proxy } = read_settings(settings).ok()?;
        machine.lacks_program("nft", "nftables").or_else(|| {
            let error = syn_proxy.then(try_syn_proxy)?.err()?;
            let remedy = "load nft_synproxy, or use a kernel that has it (CONFIG_NFT_SYNPROXY, from Linux 5.3 on) and nft \
                          from 0.9.2 on";
            Some(Missing::new(format!("SYNPROXY: {error:#}"), remedy))
        })
    }

    fn process(&self) -> Process<'_> {
        Process::Agent(self)
    }
}

impl Attach for Nftables {
    fn attach(&self, site: &Site, settings: &Settings) -> Result<Box<dyn Live>> {
        Ok(Box::new(Rules::load(site, settings).context("set up nftables")?))
    }
}

/// The rules, which go with the node.
#[derive(Debug)]
struct Rules {
    version: String,
    settings: Settings,
    source: String,
    services: Vec<ServiceState>,
    statistics: NsFile,
}

impl Rules {
    fn load(site: &Site, settings: &Settings) -> Result<Self> {
        let services = site.services()?;
        let options: Options = read_settings(settings)?;
        node::output("nft", &["-f", "-"], &ruleset(services, &site.links_to(&services.servers), &options)?)?;
        if options.syn_proxy {
            // What is not tracked is not translated: it has to end here.
            let mut netlink = node::netlink()?;
            for address in services.hosts() {
                netlink.add_address("lo", address, if address.is_ipv4() { 32 } else { 128 })?;
            }
            // An acknowledgment without a connection must not begin one.
            node::set_sysctls(&[("net.netfilter.nf_conntrack_tcp_loose", "0")])?;
        }
        // They are there when the rules have called for connection tracking.
        let timeouts = [
            ("nf_conntrack_tcp_timeout_syn_sent", SYN_RECEIVED),
            ("nf_conntrack_tcp_timeout_syn_recv", SYN_RECEIVED),
            ("nf_conntrack_tcp_timeout_established", ESTABLISHED),
            ("nf_conntrack_tcp_timeout_fin_wait", CLOSING),
            ("nf_conntrack_tcp_timeout_close_wait", CLOSING),
            ("nf_conntrack_tcp_timeout_last_ack", CLOSING),
            ("nf_conntrack_tcp_timeout_time_wait", ENDED),
            ("nf_conntrack_tcp_timeout_close", ENDED),
            ("nf_conntrack_udp_timeout", DATAGRAMS),
            ("nf_conntrack_udp_timeout_stream", DATAGRAMS),
        ];
        for (name, seconds) in timeouts {
            node::set_sysctls(&[(&format!("net.netfilter.{name}"), &seconds.to_string())])?;
        }
        let source = match services.local.len() {
            1 => "masquerade with random ports".to_owned(),
            count => format!("SNAT to {count} addresses with random ports"),
        };
        let version = node::output("nft", &["--version"], "")?;
        Ok(Self {
            version: version.split_whitespace().take(2).collect::<Vec<_>>().join(" "),
            settings: settings.clone(),
            source,
            services: services.listing("rr", "Masq", WEIGHT),
            statistics: NsFile::here("stat/nf_conntrack")?,
        })
    }
}

/// Whether nft and the kernel have it: tried in a namespace that is gone afterwards.
fn try_syn_proxy() -> Result<()> {
    let rules = format!(
        "table ip netrig {{\n  chain answered {{\n    type filter hook input priority filter;\n    tcp dport 80 {SYNPROXY}\n  }}\n}}\n"
    );
    NetNs::create()?.run(|| node::output("nft", &["-f", "-"], &rules))??;
    Ok(())
}

/// Both translations. With one local address packets get the node's own (masquerade); with several, those.
fn ruleset(services: &Services, server_links: &[String], options: &Options) -> Result<String> {
    let ip = if services.is_ipv4() { "ip" } else { "ip6" };
    let mut text = format!("table {ip} netrig {{\n");
    let mut destinations = vec!["to_backends {\n    type nat hook prerouting priority dstnat"];
    if options.syn_proxy {
        syn_proxy(&mut text, ip, services)?;
        // Its own SYNs to backends come from here.
        destinations.push("opened {\n    type nat hook output priority -100");
    }
    for chain in destinations {
        writeln!(text, "  chain {chain};")?;
        translations(&mut text, ip, services)?;
        text.push_str("  }\n");
    }
    text.push_str("  chain from_here {\n    type nat hook postrouting priority srcnat;\n");
    // A port that is kept as long as it is free is the same for two CPUs at once, and one of the connections is dropped.
    let source = match &services.local[..] {
        [first, .., last] => format!("snat to {first}-{last} fully-random"),
        _ => "masquerade fully-random".to_owned(),
    };
    let links = match server_links {
        [link] => format!("\"{link}\""),
        links => format!("{{ {} }}", links.iter().map(|link| format!("\"{link}\"")).collect::<Vec<_>>().join(", ")),
    };
    writeln!(text, "    oifname {links} ct status dnat {source}\n  }}\n}}")?;
    Ok(text)
}

/// SYNs are not tracked, and answered with a cookie; who acknowledges one is of no connection, and gets one (nft(8), SYNPROXY STATEMENT).
fn syn_proxy(text: &mut String, ip: &str, services: &Services) -> Result<()> {
    let meant = |service: &SocketAddr| format!("{ip} daddr {} tcp dport {}", service.ip(), service.port());
    text.push_str("  chain untracked {\n    type filter hook prerouting priority raw;\n");
    for service in &services.addresses {
        writeln!(text, "    {} tcp flags & (fin | syn | rst | ack) == syn notrack", meant(service))?;
    }
    text.push_str("  }\n  chain answered {\n    type filter hook input priority filter;\n");
    for service in &services.addresses {
        let meant = meant(service);
        writeln!(text, "    {meant} {SYNPROXY}")?;
        writeln!(text, "    {meant} ct state invalid drop")?;
    }
    text.push_str("  }\n");
    Ok(())
}

/// The backends of each service in turn.
fn translations(text: &mut String, ip: &str, services: &Services) -> Result<()> {
    let protocol = services.protocol.name();
    for service in &services.addresses {
        let places = services.backends.iter().enumerate().map(|(turn, backend)| format!("{turn} : {backend}"));
        let map = places.collect::<Vec<_>>().join(", ");
        let (address, port, turns) = (service.ip(), service.port(), services.backends.len());
        writeln!(
            text,
            "    {ip} daddr {address} {protocol} dport {port} dnat to numgen inc mod {turns} map {{ {map} }}"
        )?;
    }
    Ok(())
}

impl Live for Rules {
    fn version(&self) -> Result<String> {
        Ok(format!("{}, DNAT in turns and {}", self.version, self.source))
    }

    fn settings(&self) -> Settings {
        self.settings.clone()
    }

    /// Connection tracking's own, by CPU (net/netfilter/nf_conntrack_standalone.c): a line of names, then a line of
    /// hexadecimal numbers for each CPU.
    fn counters(&self) -> Result<Counters> {
        let mut text = String::new();
        self.statistics.read(&mut text)?;
        let mut lines = text.lines();
        let names: Vec<&str> = lines.next().unwrap_or_default().split_whitespace().collect();
        let mut sums = vec![0; names.len()];
        for line in lines {
            for (sum, number) in sums.iter_mut().zip(line.split_whitespace()) {
                *sum += u64::from_str_radix(number, 16).context("read connection tracking's counters")?;
            }
        }
        let known = [
            ("drop", "connection tracking: no room for a connection, or none could be made"),
            ("early_drop", "connection tracking: a connection not yet answered made room for another"),
            ("insert_failed", "connection tracking: two packets began the same connection"),
            ("invalid", "connection tracking: of no connection"),
        ];
        let count = |name| names.iter().position(|of| *of == name).map_or(0, |at| sums[at]);
        let drops = known.map(|(name, words)| (words.to_owned(), count(name))).into();
        Ok(Counters { counts: BTreeMap::new(), drops })
    }

    fn state(&self) -> Result<State> {
        let count = node::sysctl("net.netfilter.nf_conntrack_count")?;
        let connections = count.parse().context("read how many connections are tracked")?;
        Ok(State { connections: Some(connections), services: self.services.clone(), ..State::default() })
    }

    fn command(&mut self, name: &str, _arguments: &Value) -> Result<Value> {
        Err(UnknownCommand::of(&Nftables, name).into())
    }
}

#[cfg(test)]
mod tests {
    use rig_testbed::datapath::RequestedServices;
    use serde_json::json;

    use super::*;

    #[test]
    fn only_connections_of_tcp_have_a_syn_proxy() {
        let asked = |protocol, settings: Value| {
            let settings = settings.as_object().unwrap();
            let services = Some(RequestedServices { protocol, addresses: 1, local: None });
            Nftables.validate(&DatapathRequest { settings, services }).map_err(|mistake| mistake.to_string())
        };
        assert_eq!(asked(Protocol::Tcp, json!({"syn_proxy": true})), Ok(()));
        assert_eq!(asked(Protocol::Udp, json!({"syn_proxy": false})), Ok(()));
        let refused = asked(Protocol::Udp, json!({"syn_proxy": true})).unwrap_err();
        assert!(refused.contains("UDP"), "{refused}");
        let unknown = asked(Protocol::Tcp, json!({"cookies": true})).unwrap_err();
        assert!(unknown.contains("cookies"), "{unknown}");
    }

    #[test]
    fn a_syn_proxy_that_is_not_there_is_missing_only_where_it_is_asked_for() {
        let missing = |settings: Value| Nftables.missing(&Machine { rootless: false }, settings.as_object().unwrap());
        let (without, with) = (missing(json!({"syn_proxy": false})), missing(json!({"syn_proxy": true})));
        assert_eq!(without, Machine { rootless: false }.lacks_program("nft", "nftables"));
        // Who may not make a namespace cannot know, and there the reason is another one.
        let tried = try_syn_proxy().map_err(|error| format!("SYNPROXY: {error:#}"));
        if without.is_none() {
            assert_eq!(with.map(|missing| missing.found), tried.err());
        }
    }

    #[test]
    fn a_syn_proxy_keeps_syns_from_being_tracked() {
        let services = Services {
            protocol: Protocol::Tcp,
            addresses: vec!["198.18.1.1:80".parse().unwrap()],
            backends: vec!["198.19.0.1".parse().unwrap()],
            local: vec!["198.18.2.1".parse().unwrap()],
            clients: "c".into(),
            servers: "s".into(),
        };
        let rules = |syn_proxy| ruleset(&services, &["eth1".to_owned()], &Options { syn_proxy }).unwrap();
        let (with, without) = (rules(true), rules(false));
        assert_eq!(with.matches("dnat to").count(), 2, "{with}");
        assert!(with.contains("tcp dport 80 tcp flags & (fin | syn | rst | ack) == syn notrack"), "{with}");
        assert!(!without.contains("synproxy") && without.matches("dnat to").count() == 1, "{without}");
    }
}
