//! nftables in the middle: the destination is one backend after the other, the source the middle's own.

use std::fmt::Write;

use anyhow::{Context, Result};
use rig_sys::netns::{NetNs, NsFile};

use super::{CLOSING, Carrier, DATAGRAMS, ESTABLISHED, Job, SYN_RECEIVED, State, said_by};
use crate::record::MiddleService;

/// Ended connections are forgotten after a second, and not after the seven that the balancer has: how many the table has
/// room for is the machine's to say (`net.netfilter.nf_conntrack_max`), and seven seconds of them would be the limit, in
/// place of the CPU.
const ENDED: u32 = 1;

/// The rules, which go with the namespace.
#[derive(Debug)]
pub struct Rules {
    version: String,
    source: String,
    services: Vec<MiddleService>,
    ns: NetNs,
    statistics: NsFile,
}

impl Rules {
    pub fn load(job: &Job, ns: &NetNs) -> Result<Self> {
        said_by(ns, "nft", &["-f", "-"], &ruleset(job)?)?;
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
            ns.sysctl(&format!("net.netfilter.{name}"), &seconds.to_string())?;
        }
        let source = match job.local.len() {
            1 => "masquerade with random ports".to_owned(),
            count => format!("SNAT to {count} addresses with random ports"),
        };
        let version = said_by(ns, "nft", &["--version"], "")?;
        Ok(Self {
            version: version.split_whitespace().take(2).collect::<Vec<_>>().join(" "),
            source,
            services: job.listing("rr", "Masq"),
            ns: ns.try_clone()?,
            statistics: ns.run(|| NsFile::here("stat/nf_conntrack"))??,
        })
    }
}

/// Both translations. With one local address packets get the middle's own (masquerade); with several, those.
fn ruleset(job: &Job) -> Result<String> {
    let ip = if job.is_ipv4() { "ip" } else { "ip6" };
    let protocol = job.protocol.name();
    let mut text =
        format!("table {ip} netrig {{\n  chain to_backends {{\n    type nat hook prerouting priority dstnat;\n");
    for service in &job.services {
        let places = job.backends.iter().enumerate().map(|(turn, backend)| format!("{turn} : {backend}"));
        let map = places.collect::<Vec<_>>().join(", ");
        let (address, port, turns) = (service.ip(), service.port(), job.backends.len());
        writeln!(
            text,
            "    {ip} daddr {address} {protocol} dport {port} dnat to numgen inc mod {turns} map {{ {map} }}"
        )?;
    }
    text.push_str("  }\n  chain from_here {\n    type nat hook postrouting priority srcnat;\n");
    // A port that is kept as long as it is free is the same for two CPUs at once, and one of the connections is dropped.
    let source = match &job.local[..] {
        [first, .., last] => format!("snat to {first}-{last} fully-random"),
        _ => "masquerade fully-random".to_owned(),
    };
    let links = match &job.server_links[..] {
        [link] => format!("\"{link}\""),
        links => format!("{{ {} }}", links.iter().map(|link| format!("\"{link}\"")).collect::<Vec<_>>().join(", ")),
    };
    writeln!(text, "    oifname {links} ct status dnat {source}\n  }}\n}}")?;
    Ok(text)
}

impl Carrier for Rules {
    fn system(&self) -> Result<String> {
        Ok(format!("{}, DNAT in turns and {}", self.version, self.source))
    }

    /// Connection tracking's own, by CPU (net/netfilter/nf_conntrack_standalone.c): a line of names, then a line of
    /// hexadecimal numbers for each CPU.
    fn drops(&self) -> Result<Vec<(String, u64)>> {
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
        Ok(known.map(|(name, words)| (words.to_owned(), count(name))).into())
    }

    fn state(&self) -> Result<State> {
        let count = self.ns.run(|| std::fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_count"))?;
        let count = count.context("read how many connections are tracked")?;
        let connections = count.trim().parse().context("read how many connections are tracked")?;
        Ok(State { connections: Some(connections), memory_bytes: None, services: self.services.clone() })
    }
}
