//! A router as tests list it.

use std::net::SocketAddr;

use rig_datapath::vrouter::Reason;

use crate::message::{
    AnalyserEntry, DroppedEntry, FlowEntry, FlowTable, ForwardingCounts, InterfaceEntry, LabelEntry, LabeledNextHop,
    LogCounts, LogEntry, MacEntry, NetworkEntry, NextHopEntry, NextHopTarget, PeerEntry, ReasonCount, RouteEntry,
    SpeakerEntry, Status, Table, TcpProgress, VniEntry,
};

fn via(next_hop: u32, label: u32) -> LabeledNextHop {
    LabeledNextHop { next_hop, label }
}

pub fn status() -> Status {
    let interface = |number: u32, name: &str, there: bool| InterfaceEntry {
        number,
        name: name.to_owned(),
        network: "red".to_owned(),
        vrf: 1,
        device: there.then(|| format!("veth-{name}")),
        device_index: there.then_some(10 + number),
        mac: format!("02:00:00:00:00:{number:02x}"),
        any_mac: there,
        known_mac: Some(if there { "02:42:0a:01:00:0b" } else { "02:00:00:00:00:02" }.to_owned()),
        foreign_mac: (!there).then(|| "02:42:0a:01:00:0c".to_owned()),
        addresses: vec![[10, 1, 0, 10 + number as u8].into(), "fd00:1::11".parse().unwrap()],
        label: 100 + number,
        next_hop: there.then_some(number),
        policy: there,
        most_flows: None,
        security_groups: vec!["web".to_owned()],
        mirror: there.then(|| "ids".to_owned()),
        fat_flows: vec!["udp 53".to_owned()],
        connections: 3,
        ended_early: 2,
        in_packets: 134,
        in_bytes: 15_697,
        out_packets: 8568,
        out_bytes: 945_944,
        flooded_frames: 4,
        flooded_copies: 12,
        foreign_frames: u64::from(number),
        drops: vec![ReasonCount::of(Reason::Policy, 2), ReasonCount::of(Reason::NoRoute, 1)],
    };
    let hop = |number, references, target| NextHopEntry { number, references, target };
    let tunnel = |encapsulation: &str, mac: Option<&str>| NextHopTarget::Tunnel {
        encapsulation: encapsulation.to_owned(),
        source: [192, 0, 2, 1].into(),
        destination: [192, 0, 2, 2].into(),
        gateway: [192, 0, 2, 254].into(),
        device_index: 2,
        mtu: 1468,
        mac: mac.map(str::to_owned),
    };
    Status {
        netrig_version: "0.1.0".to_owned(),
        node: "a".to_owned(),
        file: "vrouter.toml".to_owned(),
        process: 4711,
        uptime_seconds: 60,
        uptime_ms: 60_250,
        address: [192, 0, 2, 1].into(),
        mac: "00:00:5e:00:01:00".to_owned(),
        peers: vec![
            PeerEntry {
                node: Some("b".to_owned()),
                address: [192, 0, 2, 2].into(),
                gateway: Some([192, 0, 2, 254].into()),
                device: Some("eth1".to_owned()),
                mtu: Some(1500),
            },
            PeerEntry {
                node: Some("c".to_owned()),
                address: [192, 0, 2, 3].into(),
                gateway: None,
                device: None,
                mtu: None,
            },
        ],
        networks: vec![NetworkEntry {
            name: "red".to_owned(),
            vrf: 1,
            vni: 4242,
            encapsulation: vec!["mplsoudp".to_owned(), "vxlan".to_owned()],
            routes: 5,
            taken: ForwardingCounts {
                discards: 1,
                receives: 2,
                vrf_translates: 3,
                ecmp_composites: 4,
                mplsoudp_tunnels: 5,
                mplsogre_tunnels: 6,
                vxlan_tunnels: 7,
                l2_encaps: 8,
                encaps: 9,
            },
        }],
        interfaces: vec![interface(1, "client", true), interface(2, "web", false)],
        next_hops: vec![
            hop(0, 1, NextHopTarget::Discard),
            hop(1, 3, NextHopTarget::Interface { number: 1, vrf: 1, mac: "02:00:00:00:00:01".to_owned() }),
            hop(2, 1, NextHopTarget::Gateway),
            hop(3, 2, tunnel("mplsoudp", None)),
            hop(4, 1, tunnel("vxlan", Some("02:00:00:00:00:0b"))),
            hop(5, 1, NextHopTarget::Vrf(2)),
            hop(6, 1, NextHopTarget::Ecmp(vec![via(1, 0), via(3, 102)])),
            hop(
                7,
                1,
                NextHopTarget::Flood { next_hops: vec![via(1, 0), via(3, 299), via(4, 4242)], unknown_unicast: true },
            ),
        ],
        labels: vec![
            LabelEntry { label: 101, next_hop: 1 },
            LabelEntry { label: 300, next_hop: 7 },
            LabelEntry { label: 1_048_575, next_hop: 6 },
        ],
        vnis: vec![VniEntry { vni: 4242, next_hop: 5 }],
        flows: FlowTable { room: 131_072, ended: 7, begun: 20, connections: 11 },
        drops: Reason::ALL
            .iter()
            .map(|one| match one {
                Reason::Policy => ReasonCount::of_cpus(*one, &[0, 2]),
                Reason::NoPeer => ReasonCount::of_cpus(*one, &[3, 4]),
                _ => ReasonCount::of(*one, 0),
            })
            .collect(),
        drops_of_none: vec![ReasonCount::of_cpus(Reason::NoPeer, &[3, 4])],
        last_dropped: vec![DroppedEntry {
            seconds_ago: 1.5,
            cpu: 1,
            reason: Some("policy".to_owned()),
            interface: 1,
            protocol: 6,
            source: "10.1.0.11:40000".parse().unwrap(),
            destination: "10.1.0.12:22".parse().unwrap(),
            length: 60,
        }],
        log: LogCounts { told: 12, lost: 1, held_back: 3, kept: 10, pushed_out: 2 },
        analysers: vec![AnalyserEntry {
            name: "ids".to_owned(),
            address: [198, 51, 100, 2].into(),
            port: 4789,
            vni: 77,
            device: Some("eth2".to_owned()),
            mtu: Some(1500),
            packets: 9,
            bytes: 900,
            cut: 2,
            failed: 1,
        }],
        notes: vec!["interface 'web' is not there yet: there is no device veth-web".to_owned()],
        speaker: Some(SpeakerEntry {
            address: "127.0.0.1:50051".to_owned(),
            autonomous_system: Some(64512),
            identifier: Some("192.0.2.1".to_owned()),
            trouble: None,
            announced: 5,
            learned: 12,
            stale: 3,
        }),
    }
}

pub fn logged() -> Vec<LogEntry> {
    let one = LogEntry {
        sequence: 11,
        unix_ms: 1_700_000_000_250,
        interface: 1,
        interface_name: Some("client".to_owned()),
        list: Some("out by policies of network red".to_owned()),
        rule: 1,
        rule_text: Some("tcp, port or type 80, 10.2.0.0/24".to_owned()),
        action: "allow".to_owned(),
        verdict: "allow".to_owned(),
        protocol: 6,
        source: "10.1.0.11:40000".parse().unwrap(),
        destination: "10.2.0.11:80".parse().unwrap(),
        icmp_type: None,
    };
    let gone = LogEntry {
        sequence: 12,
        interface_name: None,
        list: None,
        rule_text: None,
        verdict: "deny".to_owned(),
        protocol: 58,
        source: "[fd00:1::11]:9".parse().unwrap(),
        destination: "[fd00:1::12]:9".parse().unwrap(),
        icmp_type: Some(128),
        ..one.clone()
    };
    vec![one, gone]
}

pub fn table() -> Table {
    let route = |prefix: &str, via, mac: Option<&str>| RouteEntry {
        prefix: prefix.parse().unwrap(),
        via,
        mac: mac.map(str::to_owned),
    };
    Table {
        vrf: 1,
        network: "red".to_owned(),
        routes: vec![
            route("10.1.0.1/32", via(2, 0), None),
            route("10.1.0.11/32", via(1, 0), Some("02:00:00:00:00:01")),
            route("10.1.0.12/32", via(3, 102), None),
            route("10.9.0.0/16", via(6, 0), None),
            route("fd00:1::11/128", via(1, 0), Some("02:00:00:00:00:01")),
        ],
        macs: vec![
            MacEntry { mac: "02:00:00:00:00:01".to_owned(), via: via(1, 0) },
            MacEntry { mac: "02:00:00:00:00:0b".to_owned(), via: via(4, 4242) },
            MacEntry { mac: "ff:ff:ff:ff:ff:ff".to_owned(), via: via(7, 0) },
        ],
    }
}

pub fn entries() -> Vec<FlowEntry> {
    let [client, server]: [SocketAddr; 2] = ["10.1.0.11:40000".parse().unwrap(), "10.1.0.12:80".parse().unwrap()];
    let forward = FlowEntry {
        index: 101,
        reverse_index: Some(987_654_321),
        interface: 1,
        reverse_interface: 1,
        vrf: 1,
        protocol: 6,
        source: client,
        destination: server,
        packets: 5,
        bytes: 500,
        via: via(3, 102),
        forward: true,
        denied: false,
        fat: false,
        tcp: vec![TcpProgress::Syn, TcpProgress::SynReverse, TcpProgress::Established, TcpProgress::EstablishedReverse],
        tunnel_port: 50_000,
        mirror: Some("ids".to_owned()),
        idle_seconds: 0.5,
    };
    let back = FlowEntry {
        index: 987_654_321,
        reverse_index: Some(101),
        source: server,
        destination: client,
        packets: 4,
        bytes: 400,
        via: via(1, 0),
        forward: false,
        tcp: Vec::new(),
        tunnel_port: 0,
        mirror: None,
        ..forward.clone()
    };
    let alone = FlowEntry {
        index: 1_073_741_823,
        reverse_index: None,
        protocol: 17,
        source: "[fd00:1::11]:5353".parse().unwrap(),
        destination: "[fd00:1::12]:53".parse().unwrap(),
        reverse_interface: 9,
        denied: true,
        fat: true,
        tcp: Vec::new(),
        ..forward.clone()
    };
    vec![forward, alone, back]
}
