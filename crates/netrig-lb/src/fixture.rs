//! A balancer's status for tests of what is printed.

use std::net::SocketAddr;

use super::message::{
    BackendEntry, BackendHealth, BackendHealthState, BackendOutlier, BgpStatus, CountByReason, Counters,
    DefaultTimeouts, DeviceStatus, DeviceVlan, ForwardingMethod, Hop, NextHop, NextHopState, PeerState, Protocol,
    Rates, ReasonCount, RefusedPackets, ServiceEntry, ServiceHealth, ServiceKey, ServiceLimits, ServicePersistence,
    Status, SyncPeer, SyncStatus, TableStatus,
};

fn parsed(address: &str) -> SocketAddr {
    address.parse().unwrap_or_else(|_| unreachable!("{address}"))
}

/// One of two peers is there.
fn sync() -> SyncStatus {
    let count = |reason: &str, count| CountByReason { reason: reason.to_owned(), count };
    let peer = |address: &str, state, heard_ms| SyncPeer {
        address: parsed(address),
        state,
        heard_ms,
        sent_messages: 2000,
        sent_bytes: 2_500_000,
        sent_records: 70_000,
        unsent_messages: 0,
        passes: 12,
        received_messages: 1000,
        received_bytes: 1_250_000,
        received_records: 35_010,
        created: 30_000,
        updated: 4000,
        kept: 1000,
        refused: vec![count("no_backend", 10)],
    };
    SyncStatus {
        address: parsed("10.9.0.1:8849"),
        interval_ms: 1000,
        after_ms: 1000,
        full_ms: 20_000,
        own: 120_000,
        others: 110_000,
        left_out: 3,
        lag_ms: Some(700),
        round_ms: Some(150),
        refused: vec![count("wrong_key", 5)],
        trouble: None,
        awaited: vec![],
        peers: vec![
            peer("10.9.0.2:8849", PeerState::Up, Some(300)),
            peer("10.9.0.3:8849", PeerState::Silent, Some(75_000)),
        ],
    }
}

/// Two services, one of each family and protocol, in an order that is not the listings'.
pub fn status() -> Status {
    let counters = Counters {
        connections: 1_234_567,
        in_packets: 123_456_789,
        out_packets: 99_999_999,
        in_bytes: 98_765_432_109,
        out_bytes: 1_234_567_890_123,
        refused: 12,
    };
    let rates =
        Rates { connections: 1021.4, in_packets: 102_142.0, out_packets: 99_999.6, in_bytes: 8.1e6, out_bytes: 1.2e8 };
    let next_hop = |address: &str, weight| {
        let state = if weight > 1 { NextHopState::NoNeighbor } else { NextHopState::Ok };
        let hops = vec![Hop { address: parsed(address).ip(), device: "eth0".to_owned(), vlan: None, state }];
        NextHop { state, state_ms: 75_000, hops }
    };
    let backend = |address: &str, weight, active| BackendEntry {
        address: parsed(address),
        weight,
        limit: (weight > 1).then_some(50_000),
        lower_limit: None,
        tunnel: None,
        quic_id: None,
        leaving: false,
        drain_ms: None,
        active,
        inactive: 17,
        persistent: 0,
        counters,
        total: Counters { connections: 2_000_000, ..counters },
        rates,
        next_hop: Some(next_hop(address, weight)),
        health: None,
    };
    let health = |state, reason: Option<&str>| BackendHealth {
        state,
        state_ms: 75_000,
        weight_in_force: u32::from(state == BackendHealthState::Up),
        sorry: false,
        reason: reason.map(str::to_owned),
        contrary: 1,
        needed: 3,
        good: 100,
        bad: 20,
        unable: 0,
        transitions: 3,
        last_us: Some(750),
        took_us: 120_000,
        certificate_end: Some(4_102_444_800),
        outlier: None,
    };
    let service_health = ServiceHealth {
        check: "https".to_owned(),
        outlier: false,
        healthy_weight: 1,
        quorum: 2,
        has_quorum: false,
        below_quorum: "those that are healthy go on alone".to_owned(),
    };
    let service = |protocol, address: &str| ServiceKey { protocol, address: parsed(address) };
    let reason = |number, key: &str, text: &str, remedy: &str, packets| ReasonCount {
        number,
        key: key.to_owned(),
        text: text.to_owned(),
        remedy: remedy.to_owned(),
        packets,
        rate: packets / 100,
    };
    let udp = ServiceEntry {
        key: service(Protocol::Udp, "[2001:db8::53]:53"),
        scheduler: "sh".to_owned(),
        forward: ForwardingMethod::Route,
        local: Vec::new(),
        timeout: Some(10),
        limit: None,
        limit_said: None,
        expire: "never".to_owned(),
        sloppy_tcp: false,
        reuse: "reschedule".to_owned(),
        syn_proxy: "off".to_owned(),
        syn_proxy_said: None,
        syn_proxy_answers: false,
        client_address: "off".to_owned(),
        unanswered: 0,
        limits: ServiceLimits::default(),
        unlimited: 0,
        persistence: ServicePersistence::default(),
        one_packet: false,
        dscp: "keep".to_owned(),
        quic: None,
        tunnel_source: None,
        open: true,
        lacks: None,
        counters: Counters::default(),
        total: Counters::default(),
        rates: Rates::default(),
        refused: Vec::new(),
        health: None,
        backends: vec![backend("[2001:db8:0:1::53]:53", 0, 0)],
    };
    let tcp = ServiceEntry {
        key: service(Protocol::Tcp, "192.0.2.1:80"),
        scheduler: "wlc".to_owned(),
        forward: ForwardingMethod::FullNat,
        local: vec![[10, 0, 0, 200].into(), [10, 0, 0, 201].into()],
        timeout: None,
        limit: Some(100_000),
        limit_said: Some(100_000),
        expire: "removed".to_owned(),
        sloppy_tcp: false,
        reuse: "reschedule".to_owned(),
        syn_proxy: "auto".to_owned(),
        syn_proxy_said: None,
        syn_proxy_answers: false,
        client_address: "off".to_owned(),
        unanswered: 0,
        limits: ServiceLimits {
            source_limit: Some(50),
            source_rate: Some(10),
            new_rate: Some(5000),
            ..ServiceLimits::default()
        },
        unlimited: 17,
        persistence: ServicePersistence::default(),
        one_packet: false,
        dscp: "keep".to_owned(),
        quic: None,
        tunnel_source: None,
        open: true,
        lacks: None,
        counters,
        total: Counters { connections: 2_000_000, ..counters },
        rates,
        refused: vec![RefusedPackets { reason: "service_full".to_owned(), packets: 1234 }],
        health: Some(service_health),
        backends: vec![
            BackendEntry { health: Some(health(BackendHealthState::Up, None)), ..backend("10.0.0.12:8080", 1, 2048) },
            BackendEntry {
                health: Some(health(BackendHealthState::Down, Some("status 503, expected 200-399"))),
                ..backend("10.0.0.9:8080", 100, 4096)
            },
            BackendEntry { leaving: true, ..backend("10.0.0.10:8080", 1, 1) },
        ],
    };
    let removed = ServiceEntry { key: service(Protocol::Tcp, "192.0.2.1:81"), open: false, ..udp.clone() };
    let drops = vec![
        reason(1, "fragment", "a fragment for one of the balancer's addresses", "lower the sender's MTU", 0),
        reason(5, "no_backend", "a new connection for a service without backends", "add a backend", 1234),
        reason(7, "table_full", "a new connection while the table is full", "load a larger table", 99),
        reason(
            12,
            "too_big",
            "the packet is larger than the next link's MTU",
            "raise the MTU, or lower the senders' (MSS), by what tunnels add: 20 to 32 bytes for IPv4, 40 to 52 for IPv6",
            567_890,
        ),
    ];
    let passes = vec![
        reason(1, "not_ip", "neither IPv4 nor IPv6", "nothing: ARP is among them", 56),
        reason(2, "malformed", "an impossible header or length", "find out who sends them", 0),
    ];
    Status {
        netrig_version: "0.1.0".to_owned(),
        name: "lb".to_owned(),
        process: 4321,
        up_ms: 3_723_000,
        persist: true,
        file: Some("/etc/netrig/lb.toml".to_owned()),
        devices: vec![
            DeviceStatus {
                name: "eth0".to_owned(),
                mode: "native".to_owned(),
                queues: 4,
                placement: "each queue's interrupts come to one of the workers' CPUs".to_owned(),
                vlans: vec![
                    DeviceVlan { name: "eth0.10".to_owned(), id: 10 },
                    DeviceVlan { name: "servers".to_owned(), id: 20 },
                ],
            },
            DeviceStatus {
                name: "eth1".to_owned(),
                mode: "absent".to_owned(),
                queues: 0,
                placement: "there is no such interface now".to_owned(),
                vlans: vec![],
            },
        ],
        workers: vec![0, 1, 2, 3],
        table: TableStatus { capacity: 8_650_752, connections: 1_234_567, memory_bytes: 1_040_000_000, sweep_ms: 120 },
        timeouts: DefaultTimeouts { tcp: 90, tcp_fin: 7, udp: 300 },
        services: vec![udp, tcp, removed],
        drops,
        passes,
        rate_span_ms: 2000,
        sync: Some(sync()),
        bgp: Some(BgpStatus {
            speaker: "127.0.0.1:50051".to_owned(),
            autonomous_system: Some(64_512),
            identifier: Some("192.0.2.250".to_owned()),
            trouble: None,
            announced: vec![parsed("192.0.2.1:80").ip()],
        }),
        withdrawn: false,
    }
}

/// The same, and a backend that is up is taken out.
pub fn status_with_an_outlier() -> Status {
    let mut status = status();
    for health in status.services.iter_mut().filter_map(|service| service.health.as_mut()) {
        health.outlier = true;
    }
    let backends = status.services.iter_mut().flat_map(|service| &mut service.backends);
    let healths = backends.filter_map(|backend| backend.health.as_mut());
    for health in healths.filter(|health| health.state == BackendHealthState::Up) {
        health.weight_in_force = 0;
        health.outlier = Some(BackendOutlier {
            ejected_ms: Some(12_000),
            left_ms: Some(48_000),
            reason: Some("7 connections refused, and the balancer's own: connection refused".to_owned()),
            in_a_row: 2,
            ejected: 2,
            answered: 1,
            unable: 0,
            spared: 3,
        });
    }
    status
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::listing::LocalCounts;
    use crate::message::{ConnectionEntry, PacketOut, SourceEntry, SourceList, Trace};
    use crate::schemas;

    fn faults(name: &str, value: &impl serde::Serialize) -> Vec<String> {
        let schema = schemas().into_iter().find(|(of, _)| *of == name).unwrap().1;
        let validator = jsonschema::validator_for(schema.as_value()).unwrap();
        let value: Value = serde_json::from_str(&serde_json::to_string(value).unwrap()).unwrap();
        validator.iter_errors(&value).map(|fault| format!("{}: {fault}", fault.instance_path())).collect()
    }

    #[test]
    fn what_is_written_as_json_is_what_the_schemas_say() {
        let none: Vec<String> = Vec::new();
        let status = status();
        assert_eq!(faults("lb-status.json", &status), none);
        assert_eq!(faults("lb-local.json", &LocalCounts::default().of(&status)), none);
        let connection = ConnectionEntry {
            protocol: Protocol::Udp,
            state: "UDP".to_owned(),
            expires: 300,
            client: "[2001:db8::9]:40000".parse().unwrap(),
            service: "[2001:db8::53]:53".parse().unwrap(),
            local: None,
            backend: "[2001:db8:0:1::53]:53".parse().unwrap(),
        };
        assert_eq!(faults("lb-connections.json", &connection), none);
        let packet_out = PacketOut {
            device: None,
            source_mac: "02:00:00:00:00:01".to_owned(),
            destination_mac: "02:00:00:00:00:02".to_owned(),
            flow: String::new(),
            bytes: vec![0x45, 0xff],
        };
        let trace = Trace {
            device: "eth0".to_owned(),
            steps: Vec::new(),
            verdict: "forward".to_owned(),
            reason: Some(status.drops[0].clone()),
            packet_out: Some(packet_out),
        };
        assert_eq!(faults("lb-trace.json", &trace), none);
        let source = SourceEntry {
            service: status.services[0].key,
            source: "10.0.0.1/32".to_owned(),
            connections: 7,
            source_limit: None,
        };
        let list = SourceList { sources: vec![source], fewer_may_be_missing: 0 };
        assert_eq!(faults("lb-sources.json", &list), none);
        assert_ne!(faults("lb-status.json", &connection), none);
    }
}
