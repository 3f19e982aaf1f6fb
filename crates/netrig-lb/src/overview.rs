//! What `netrig lb status` prints: the balancer on one screen.

use std::collections::BTreeSet;

use rig_cli::packet::wrapped;
use rig_stats::units::counted;

use super::listing::{duration, forward_name, order, protocol};
use super::message::{
    BackendEntry, BackendHealth, BackendHealthState, BackendOutlier, BgpStatus, CountByReason, DeviceVlan, Hop,
    NextHop, NextHopState, PeerState, Rates, ReasonCount, ServiceEntry, ServiceHealth, Status, SyncPeer, SyncStatus,
};

/// `width` is that of the terminal, columns.
pub fn write(status: &Status, width: usize) -> String {
    let Status { name, netrig_version, process, persist, .. } = status;
    let ends = if *persist { "stays when it ends" } else { "ends with it" };
    let mut text =
        format!("{name}: netrig {netrig_version}, process {process} for {}, {ends}\n", duration(status.up_ms));
    let mut line = |what: &str, value: &str| {
        text += &wrapped(value, &format!("{what:<10}"), "          ", width);
    };
    if let Some(file) = &status.file {
        line("file", file);
    }
    for device in &status.devices {
        let queues = counted(device.queues, "queue", "queues");
        let slow = if device.mode == "generic" { " (slow: its driver has no XDP)" } else { "" };
        let value = format!("{} {}{slow}, {queues}: {}", device.name, device.mode, device.placement);
        line("device", &value);
        if !device.vlans.is_empty() {
            line("vlans", &format!("of {}: {}", device.name, vlans(&device.vlans)));
        }
    }
    let workers = match status.workers.as_slice() {
        [] => "not set: any CPU that takes packets from a device".to_owned(),
        [only] => format!("1, on CPU {only}"),
        several => format!("{}, on CPUs {}", several.len(), ranges(several)),
    };
    line("workers", &workers);
    line("table", &table(status));
    let timeouts = status.timeouts;
    line("timeouts", &format!("tcp {} s, after a FIN {} s, udp {} s", timeouts.tcp, timeouts.tcp_fin, timeouts.udp));
    line("drops", &drops(&status.drops));
    if status.withdrawn {
        line("state", "WITHDRAWN: it asks for no packets, `netrig lb announce` ends that");
    }
    if let Some(bgp) = &status.bgp {
        line("bgp", &bgp_words(bgp));
    }
    if let Some(sync) = &status.sync {
        line("sync", &sync_words(sync));
        sync.peers.iter().for_each(|peer| line("peer", &peer_words(peer)));
        if let Some(trouble) = &sync.trouble {
            line("sync", &format!("TROUBLE: {trouble}"));
        }
    }
    let backends = || status.services.iter().flat_map(|service| &service.backends);
    let missing = backends().filter(|backend| missing(backend).is_some()).count();
    if missing > 0 {
        let all = counted(backends().count(), "backend", "backends");
        line("next hops", &format!("missing for {missing} of {all}: see NEXT HOP MISSING below"));
    }
    let down = backends().filter(|backend| down(backend).is_some()).count();
    let missed =
        status.services.iter().filter(|service| service.health.as_ref().is_some_and(|of| !of.has_quorum)).count();
    let ejected = backends().filter(|backend| ejected(backend).is_some()).count();
    if ejected > 0 {
        let all = counted(backends().count(), "backend", "backends");
        line("outliers", &format!("{ejected} of {all} taken out: see EJECTED below, and -L --health"));
    }
    if down + missed > 0 {
        let all = counted(backends().count(), "backend", "backends");
        let quorum = if missed > 0 {
            format!(", {} without quorum", counted(missed, "service", "services"))
        } else {
            String::new()
        };
        line("health", &format!("{down} of {all} down{quorum}: see DOWN below, and -L --health"));
    }
    let mut services: Vec<&ServiceEntry> = status.services.iter().collect();
    services.sort_by_key(|service| order(service.key));
    if services.is_empty() {
        text += "no service: add one with `netrig lb -A`, or to the file\n";
        return text;
    }
    let over = match status.rate_span_ms {
        0 => "not taken yet".to_owned(),
        span => format!("over {:.1} s", span as f64 / 1000.0),
    };
    let title = ["conn", "in pkt", "out pkt", "in bit", "out bit", "active", "other"].map(str::to_owned);
    text.push('\n');
    text += &row(&format!("a second, {over}"), title);
    services.into_iter().for_each(|service| text += &service_rows(service, width));
    text
}

fn table(status: &Status) -> String {
    let table = status.table;
    let share = 100.0 * table.connections as f64 / table.capacity.max(1) as f64;
    let memory = table.memory_bytes as f64 / 1e6;
    format!(
        "{} of {} connections ({share:.1} %), maps of {memory:.0} MB, last sweep {} ms",
        table.connections, table.capacity, table.sweep_ms
    )
}

fn bgp_words(bgp: &BgpStatus) -> String {
    let BgpStatus { speaker, autonomous_system, trouble, announced, .. } = bgp;
    let at = autonomous_system.map_or(String::new(), |number| format!(" of AS {number}"));
    match trouble {
        Some(trouble) => format!("NOT ANNOUNCED: speaker {speaker}: {trouble}"),
        None => format!("{} announced by {speaker}{at}", counted(announced.len(), "address", "addresses")),
    }
}

fn counts_words(counts: &[CountByReason]) -> String {
    counts.iter().map(|of| format!("{} {}", of.reason, of.count)).collect::<Vec<_>>().join(", ")
}

fn sync_words(sync: &SyncStatus) -> String {
    let SyncStatus { address, own, others, left_out, lag_ms, refused, .. } = sync;
    let lag = lag_ms.map_or("no look yet".to_owned(), |lag| format!("peers know what was there {lag} ms ago"));
    let left_out = if *left_out > 0 { format!(", {left_out} of the SYN proxy not shared") } else { String::new() };
    let refused = if refused.is_empty() { String::new() } else { format!("; refused: {}", counts_words(refused)) };
    let awaited: Vec<_> = sync.awaited.iter().map(ToString::to_string).collect();
    let awaited =
        if awaited.is_empty() { String::new() } else { format!("; NOT READY: awaits those of {}", awaited.join(", ")) };
    format!("at {address}: {own} own connections, {others} of others{left_out}; {lag}{refused}{awaited}")
}

fn peer_words(peer: &SyncPeer) -> String {
    let state = match (peer.state, peer.heard_ms) {
        (PeerState::Up, _) => "up".to_owned(),
        (_, Some(heard)) => format!("SILENT for {}", duration(heard)),
        (_, None) => "NEVER HEARD".to_owned(),
    };
    let refused =
        if peer.refused.is_empty() { String::new() } else { format!(", refused: {}", counts_words(&peer.refused)) };
    let SyncPeer { address, sent_records, created, updated, .. } = peer;
    format!("{address} {state}: {sent_records} records sent; {created} connections from it, {updated} changes{refused}")
}

/// The reasons that packets are being dropped for, or have been.
fn drops(drops: &[ReasonCount]) -> String {
    let mut happened: Vec<&ReasonCount> = drops.iter().filter(|reason| reason.packets > 0).collect();
    if happened.is_empty() {
        return "none".to_owned();
    }
    happened.sort_by_key(|reason| std::cmp::Reverse((reason.rate, reason.packets)));
    let words: Vec<String> = happened.iter().map(|r| format!("{} {} ({}/s)", r.key, r.packets, r.rate)).collect();
    format!("{}; `netrig lb drops` shows why", words.join(", "))
}

fn service_rows(service: &ServiceEntry, width: usize) -> String {
    let ServiceEntry { key, scheduler, forward, local, open, lacks, .. } = service;
    let mut text = format!("{} {}", protocol(key.protocol), key.address);
    // One that was removed has no scheduler any more.
    for word in [scheduler.as_str(), forward_name(*forward)].into_iter().filter(|word| !word.is_empty()) {
        text += &format!(" {word}");
    }
    if !local.is_empty() {
        text += &format!(", {} local", local.len());
    }
    if !open {
        text += ", removed";
    }
    if let Some(lacks) = lacks {
        text += &format!(", NOT IN FORCE: it lacks {lacks}");
    }
    if let Some(limit) = service.limit {
        text += &format!(", at most {limit} connections");
    }
    text.push('\n');
    let limits: Vec<String> = service.limits.said().map(|(key, value)| format!("{key} {value}")).collect();
    if !limits.is_empty() {
        text += &wrapped(&limits.join(", "), "  limits: ", "    ", width);
    }
    if service.one_packet {
        text += "  one_packet: each datagram is scheduled by itself, without a connection\n";
    }
    if !matches!(service.dscp.as_str(), "" | "keep") {
        text += &format!("  dscp: {} in packets to its backends\n", service.dscp);
    }
    if let Some(ids) = &service.quic {
        text += &format!("  quic: {ids}, connection IDs name backends\n");
    }
    if service.persistence.timeout.is_some() {
        let sources: u64 = service.backends.iter().map(|backend| u64::from(backend.persistent)).sum();
        let time = service.persistence.text(service.key.address.is_ipv6());
        text += &format!("  persistence: {time}; {}\n", counted(sources, "source", "sources"));
    }
    if service.unlimited > 0 {
        let unlimited = service.unlimited;
        let value =
            format!("{unlimited} connections began with no counter free for their sources: raise [room] sources");
        text += &wrapped(&value, "  NOT LIMITED: ", "    ", width);
    }
    if service.syn_proxy_answers {
        text += "  SYN PROXY: it answers clients' first packets itself";
        if service.unanswered > 0 {
            text += &format!(", {} connections are unanswered", service.unanswered);
        }
        text.push('\n');
    }
    if !service.refused.is_empty() {
        let reasons: Vec<_> = service.refused.iter().map(|of| format!("{} {}", of.reason, of.packets)).collect();
        text += &format!("  refused: {}\n", reasons.join(", "));
    }
    if let Some(health) = service.health.as_ref().filter(|health| !health.has_quorum) {
        let ServiceHealth { healthy_weight, quorum, below_quorum, .. } = health;
        text += &format!("  NO QUORUM: healthy weight {healthy_weight}, quorum {quorum}; {below_quorum}\n");
    }
    let sum = |count: fn(&BackendEntry) -> u32| service.backends.iter().map(|b| u64::from(count(b))).sum();
    text += &row("  all", cells(&service.rates, sum(|b| b.active), sum(|b| b.inactive)));
    for backend in &service.backends {
        let state = match (backend.leaving, backend.weight) {
            (true, _) => " removed",
            (false, _) if backend.health.as_ref().is_some_and(|health| health.sorry) => " sorry server",
            (false, 0) if backend.drain_ms.is_some() => " draining",
            (false, 0) => " weight 0",
            _ => "",
        };
        let name = format!("  {}{state}", backend.address);
        text += &row(&name, cells(&backend.rates, backend.active.into(), backend.inactive.into()));
        if let Some(left) = backend.drain_ms {
            text += &format!("    DRAINING: what is left of its connections ends in {}\n", duration(left));
        }
        if let Some(health) = down(backend) {
            let reason = health.reason.as_deref().unwrap_or("its checks are good again, and it is not up yet");
            text += &format!("    DOWN for {}: {reason}\n", duration(health.state_ms));
        }
        if let Some(outlier) = ejected(backend) {
            let (time, left) = (duration(outlier.ejected_ms.unwrap_or(0)), duration(outlier.left_ms.unwrap_or(0)));
            let reason = outlier.reason.as_deref().unwrap_or("-");
            let value = format!("for {time}, {left} left: {reason}");
            text += &wrapped(&value, "    EJECTED ", "      ", width);
        }
        if let Some(next_hop) = missing(backend) {
            text += &format!("    NEXT HOP MISSING for {}: {}\n", duration(next_hop.state_ms), why(next_hop));
        }
    }
    text
}

/// Tags with their devices, the first few.
fn vlans(vlans: &[DeviceVlan]) -> String {
    const SHOWN: usize = 16;
    let shown: Vec<String> = vlans.iter().take(SHOWN).map(|vlan| format!("{} ({})", vlan.id, vlan.name)).collect();
    match vlans.len() {
        count if count > SHOWN => format!("{} and {} more", shown.join(", "), count - SHOWN),
        _ => shown.join(", "),
    }
}

fn down(backend: &BackendEntry) -> Option<&BackendHealth> {
    backend.health.as_ref().filter(|health| health.state == BackendHealthState::Down)
}

fn ejected(backend: &BackendEntry) -> Option<&BackendOutlier> {
    backend.health.as_ref().filter(|health| health.is_ejected())?.outlier.as_ref()
}

fn missing(backend: &BackendEntry) -> Option<&NextHop> {
    backend.next_hop.as_ref().filter(|next_hop| next_hop.state != NextHopState::Ok)
}

/// What is missing, and of several next hops which ones.
fn why(next_hop: &NextHop) -> String {
    let hops = next_hop.hops.iter().filter(|hop| hop.state == next_hop.state);
    match next_hop.state {
        NextHopState::Ok => "ok".to_owned(),
        NextHopState::NoRoute => "no route".to_owned(),
        NextHopState::Local => "an address of this machine".to_owned(),
        NextHopState::NoNeighbor => {
            let hops: Vec<_> = hops.map(|hop| format!("{} dev {}", hop.address, hop.by())).collect();
            format!("no answer from {}", hops.join(", "))
        }
        NextHopState::DeviceDown => {
            let devices: BTreeSet<_> = hops.map(|hop| hop.device.as_str()).collect();
            format!("{} down", devices.into_iter().collect::<Vec<_>>().join(", "))
        }
        NextHopState::NotCarried => {
            let devices: BTreeSet<_> = hops.map(Hop::by).collect();
            let devices = devices.into_iter().collect::<Vec<_>>().join(", ");
            format!("frames cannot be sent by {devices}: of VLAN devices those with one tag of 802.1Q are carried")
        }
    }
}

fn cells(rates: &Rates, active: u64, inactive: u64) -> [String; 7] {
    [
        count(rates.connections),
        count(rates.in_packets),
        count(rates.out_packets),
        count(rates.in_bytes * 8.0),
        count(rates.out_bytes * 8.0),
        active.to_string(),
        inactive.to_string(),
    ]
}

/// Of a row's name, so that rows have 80 columns in all. Longer names have a line of their own.
const NAME: usize = 29;

fn row(name: &str, cells: [String; 7]) -> String {
    let [connections, in_packets, out_packets, in_bits, out_bits, active, inactive] = cells;
    let (line, name) = if name.chars().count() > NAME { (format!("{name}\n"), "") } else { (String::new(), name) };
    format!(
        "{line}{name:<NAME$} {connections:>6} {in_packets:>6} {out_packets:>7} {in_bits:>6} {out_bits:>7} {active:>6} \
         {inactive:>6}\n"
    )
}

/// Three digits: 812, 1.23k, 45.6k, 7.89M.
fn count(value: f64) -> String {
    // What rounds to a thousand is one of the next unit.
    let fits = |size: f64| value >= 0.9995 * size;
    let (size, unit) = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")]
        .into_iter()
        .find(|(size, _)| fits(*size))
        .unwrap_or((1.0, ""));
    let scaled = value / size;
    let digits = match scaled {
        _ if unit.is_empty() => 0,
        ..9.995 => 2,
        ..99.95 => 1,
        _ => 0,
    };
    format!("{scaled:.digits$}{unit}")
}

/// `0-3,6`.
fn ranges(cpus: &[u32]) -> String {
    let mut sorted = cpus.to_vec();
    sorted.sort_unstable();
    let runs = sorted.chunk_by(|a, b| a + 1 == *b).filter_map(|run| match run {
        [only] => Some(only.to_string()),
        [first, .., last] => Some(format!("{first}-{last}")),
        [] => None,
    });
    runs.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn one_screen_tells_all() {
        let text = write(&fixture::status(), 80);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        insta::assert_snapshot!(text);
    }

    #[test]
    fn without_services_it_says_how_to_add_one() {
        let text = write(&Status { services: Vec::new(), ..fixture::status() }, 80);
        assert!(text.ends_with("no service: add one with `netrig lb -A`, or to the file\n"), "{text}");
    }

    #[test]
    fn one_that_is_taken_out_is_told() {
        let text = write(&fixture::status_with_an_outlier(), 80);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("outliers  1 of 5 backends taken out: see EJECTED below"), "{text}");
        let lines = "    EJECTED for 12 s, 48 s left: 7 connections refused, and the balancer's own:\n      connection refused\n";
        assert!(text.contains(lines), "{text}");
    }

    #[test]
    fn a_syn_proxy_that_answers_is_told() {
        let mut status = fixture::status();
        (status.services[1].syn_proxy_answers, status.services[1].unanswered) = (true, 4096);
        let text = write(&status, 80);
        let line = "  SYN PROXY: it answers clients' first packets itself, 4096 connections are unanswered\n";
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn what_is_not_in_force_is_told() {
        let mut status = fixture::status();
        status.services[0].lacks = Some("a local address".to_owned());
        status.workers.clear();
        let text = write(&status, 80);
        assert!(text.contains("sh Route, NOT IN FORCE: it lacks a local address\n"), "{text}");
        assert!(text.contains("workers   not set: any CPU that takes packets from a device\n"), "{text}");
    }

    #[test]
    fn figures_are_short() {
        let counts = [0.0, 0.4, 999.0, 1000.0, 9_996.0, 45_600.0, 99_999.6, 999_600.0, 7_891_234.0, 9e10].map(count);
        assert_eq!(counts, ["0", "0", "999", "1.00k", "10.0k", "45.6k", "100k", "1.00M", "7.89M", "90.0G"]);
        assert_eq!([900, 61_000, 3_660_000, 90_000_000].map(duration), ["0 s", "1 min 1 s", "1 h 1 min", "1 d 1 h"]);
        assert_eq!([&[0, 1, 2, 5][..], &[3], &[]].map(ranges), ["0-2,5", "3", ""]);
    }
}
