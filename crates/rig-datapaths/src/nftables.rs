//! nftables: the destination is one backend after the other, the source the node's own.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::{Context, Result};
use rig_sys::netns::NsFile;
use rig_testbed::datapath::{
    Attach, Counters, Datapath, DatapathRequest, Live, Machine, Missing, Mistake, Process, ServiceState, Services,
    Settings, Site, State, UnknownCommand,
};
use serde_json::Value;

use super::{CLOSING, DATAGRAMS, ESTABLISHED, SYN_RECEIVED, WEIGHT, carries_as_it_is, node, none};

/// Ended connections are forgotten after a second, and not after the seven that the balancer has: how many the table has
/// room for is the machine's to say (`net.netfilter.nf_conntrack_max`), and seven seconds of them would be the limit, in
/// place of the CPU.
const ENDED: u32 = 1;

/// The kernel's NAT with connection tracking, set up by `nft`.
#[derive(Debug)]
pub(crate) struct Nftables;

impl Datapath for Nftables {
    fn name(&self) -> &'static str {
        "nftables"
    }

    fn validate(&self, asked: &DatapathRequest<'_>) -> Result<(), Mistake> {
        carries_as_it_is(self.name(), asked)
    }

    fn missing(&self, machine: &Machine, _: &Settings) -> Option<Missing> {
        machine.lacks_program("nft", "nftables")
    }

    fn process(&self) -> Process<'_> {
        Process::Agent(self)
    }
}

impl Attach for Nftables {
    fn attach(&self, site: &Site, _settings: &Settings) -> Result<Box<dyn Live>> {
        Ok(Box::new(Rules::load(site).context("set up nftables")?))
    }
}

/// The rules, which go with the node.
#[derive(Debug)]
struct Rules {
    version: String,
    source: String,
    services: Vec<ServiceState>,
    statistics: NsFile,
}

impl Rules {
    fn load(site: &Site) -> Result<Self> {
        let services = site.services()?;
        node::output("nft", &["-f", "-"], &ruleset(services, &site.links_to(&services.servers))?)?;
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
            source,
            services: services.listing("rr", "Masq", WEIGHT),
            statistics: NsFile::here("stat/nf_conntrack")?,
        })
    }
}

/// Both translations. With one local address packets get the node's own (masquerade); with several, those.
fn ruleset(services: &Services, server_links: &[String]) -> Result<String> {
    let ip = if services.is_ipv4() { "ip" } else { "ip6" };
    let protocol = services.protocol.name();
    let mut text =
        format!("table {ip} netrig {{\n  chain to_backends {{\n    type nat hook prerouting priority dstnat;\n");
    for service in &services.addresses {
        let places = services.backends.iter().enumerate().map(|(turn, backend)| format!("{turn} : {backend}"));
        let map = places.collect::<Vec<_>>().join(", ");
        let (address, port, turns) = (service.ip(), service.port(), services.backends.len());
        writeln!(
            text,
            "    {ip} daddr {address} {protocol} dport {port} dnat to numgen inc mod {turns} map {{ {map} }}"
        )?;
    }
    text.push_str("  }\n  chain from_here {\n    type nat hook postrouting priority srcnat;\n");
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

impl Live for Rules {
    fn version(&self) -> Result<String> {
        Ok(format!("{}, DNAT in turns and {}", self.version, self.source))
    }

    fn settings(&self) -> Settings {
        none()
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
