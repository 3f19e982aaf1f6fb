//! Two nodes with a wire between them, each a namespace with a router in it, and containers behind them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;
use std::sync::Arc;

use rig_datapath::vrouter::{
    Config, Encapsulation, Flood, Interface, NextHop, Peer, Policy, ROUTER_MAC, Router, Sizes, Tunnel, Underlay, Vni,
    Vrf,
};
use rig_skip::{Lack, skip};
use rig_sys::netlink::{Netlink, VethPair};
use rig_sys::netns::{self, NetNs};
use rig_wire::ethernet::Mac;

use crate::pool::Pooled;

/// MTU of the wire.
pub const WIRE: u32 = 1500;
const VRF: u32 = 1;
pub const VNI: u32 = 4242;
/// Label of the network's frames to all; in configurations with several VRFs, of the first.
pub const TO_ALL: u32 = 300;

pub struct Node {
    pub ns: NetNs,
    pub router: Pooled<Router>,
    pub config: Config,
    pub containers: Vec<NetNs>,
    number: u8,
    encapsulation: Encapsulation,
}

pub struct Lab {
    pub nodes: Vec<Node>,
}

pub fn small() -> Sizes {
    Sizes {
        interfaces: 16,
        next_hops: 64,
        ways: 8,
        hosts: 64,
        prefixes: 64,
        macs: 64,
        vnis: 8,
        peers: 8,
        lists: 16,
        cuts: 4096,
        floods: 8,
        bounds: 4096,
        rows: 4096,
        alsos: 1024,
        fat: 64,
        flows: 1024,
    }
}

pub fn run(ns: &NetNs, arguments: &str) {
    let output = ns.run(|| Command::new("ip").args(arguments.split_whitespace()).output().unwrap()).unwrap();
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

pub fn mac_of(node: u8, container: usize) -> Mac {
    Mac([2, 0, 0, 0, node, container as u8])
}

/// The address of a container of a node, both from 0.
pub fn v4_of(node: usize, container: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 7, node as u8, 10 + container as u8)
}

pub fn v6_of(node: usize, container: usize) -> IpAddr {
    format!("fd07::{node}:{}", 10 + container).parse().unwrap()
}

pub fn underlay_of(node: usize) -> Ipv4Addr {
    Ipv4Addr::new(192, 0, 2, 1 + node as u8)
}

fn label_of(container: usize) -> u32 {
    100 + container as u32
}

impl Lab {
    /// Containers without rules, whose flows are remembered. `None`, said aloud, where eBPF programs cannot be loaded.
    pub fn new(nodes: usize, containers: usize, encapsulation: Encapsulation) -> Option<Self> {
        Self::with(nodes, containers, encapsulation, || Pooled::load(small()))
    }

    /// As `new`, with routers that `load` makes.
    pub fn with(
        nodes: usize,
        containers: usize,
        encapsulation: Encapsulation,
        load: impl Fn() -> Result<Pooled<Router>, rig_datapath::Error>,
    ) -> Option<Self> {
        let mtu = WIRE - u32::from(encapsulation.overhead());
        if !netns::may_create_namespaces() {
            skip(Lack::Root, "network namespaces and eBPF programs need it");
            return None;
        }
        let mut all = Vec::new();
        for number in 0..nodes {
            let router = match load() {
                Ok(router) => router,
                Err(error @ rig_datapath::Error::NotPermitted(_)) => {
                    skip(Lack::Root, error);
                    return None;
                }
                Err(error) => panic!("{error}: {:?}", std::error::Error::source(&error)),
            };
            let ns = NetNs::create().unwrap();
            let config = Config::default();
            all.push(Node { ns, router, config, containers: Vec::new(), number: number as u8, encapsulation });
        }
        if let [a, b] = &mut all[..] {
            let mut netlink = Netlink::open(&a.ns).unwrap();
            let pair = VethPair { name: "wire", peer: "wire", peer_ns: &b.ns, queues: 1, mtu: WIRE };
            netlink.add_veth(&pair).unwrap();
            for (at, node) in [a, b].into_iter().enumerate() {
                let mut netlink = Netlink::open(&node.ns).unwrap();
                netlink.add_address("wire", underlay_of(at).into(), 24).unwrap();
                netlink.set_up("wire").unwrap();
            }
        }
        let mut lab = Self { nodes: all };
        for number in 0..nodes {
            for container in 0..containers {
                lab.nodes[number].add_container(container, mtu);
            }
        }
        for number in 0..nodes {
            let config = lab.config(number, containers, encapsulation);
            let node = &mut lab.nodes[number];
            node.config = config;
            node.apply();
        }
        Some(lab)
    }

    /// One network, in which every container has an IPv4 and an IPv6 address.
    fn config(&self, own: usize, containers: usize, encapsulation: Encapsulation) -> Config {
        let (mut vrf, mut interfaces, mut labels) = (Vrf::default(), BTreeMap::new(), BTreeMap::new());
        for node in 0..self.nodes.len() {
            for container in 0..containers {
                let number = 1 + container as u32;
                let next_hop = if node == own {
                    NextHop::Interface(number)
                } else {
                    let is_vxlan = encapsulation == Encapsulation::Vxlan;
                    NextHop::Tunnel(Tunnel {
                        peer: underlay_of(node),
                        encapsulation,
                        label: if is_vxlan { VNI } else { label_of(container) },
                        mac: mac_of(node as u8, container),
                    })
                };
                vrf.routes.insert(IpAddr::from(v4_of(node, container)).into(), next_hop.clone());
                vrf.routes.insert(v6_of(node, container).into(), next_hop.clone());
                vrf.macs.insert(mac_of(node as u8, container), next_hop);
            }
        }
        vrf.routes.insert("10.7.0.1/32".parse().unwrap(), NextHop::Gateway);
        vrf.routes.insert("fd07::1/128".parse().unwrap(), NextHop::Gateway);
        for container in 0..containers {
            let number = 1 + container as u32;
            let name = format!("c{container}");
            let index = Netlink::open(&self.nodes[own].ns).unwrap().index(&name).unwrap();
            interfaces.insert(
                number,
                Interface {
                    index,
                    vrf: VRF,
                    mac: mac_of(own as u8, container),
                    any_mac: true,
                    gateway: Some(Ipv4Addr::new(10, 7, 0, 1)),
                    gateway6: Some("fd07::1".parse().unwrap()),
                    policy: Some(Policy::default()),
                    mirror: None,
                    fat: BTreeSet::new(),
                    serves_dhcp: false,
                },
            );
            labels.insert(label_of(container), NextHop::Interface(number));
        }
        let underlay = (self.nodes.len() > 1).then(|| {
            let interface = Netlink::open(&self.nodes[own].ns).unwrap().index("wire").unwrap();
            let peers = (0..self.nodes.len()).filter(|node| *node != own).map(|node| {
                let address = underlay_of(node);
                (address, Peer { interface, gateway: address, mtu: WIRE as u16 })
            });
            Underlay { address: underlay_of(own), peers: peers.collect(), strict: true }
        });
        Config {
            mac: ROUTER_MAC,
            underlay,
            vrfs: BTreeMap::from([(VRF, Arc::new(vrf))]),
            interfaces,
            labels,
            vnis: BTreeMap::from([(VNI, Vni::Vrf(VRF))]),
            lists: BTreeMap::new(),
            analysers: BTreeMap::new(),
            most_flows: None,
        }
    }
}

impl Node {
    pub fn add_container(&mut self, container: usize, mtu: u32) {
        let ns = NetNs::create().unwrap();
        let name = format!("c{container}");
        let mut netlink = Netlink::open(&self.ns).unwrap();
        netlink.add_veth(&VethPair { name: &name, peer: "eth0", peer_ns: &ns, queues: 1, mtu }).unwrap();
        netlink.set_up(&name).unwrap();
        run(&ns, &format!("link set eth0 address {}", mac_of(self.number, container)));
        let mut inside = Netlink::open(&ns).unwrap();
        let node = usize::from(self.number);
        inside.add_address("eth0", v4_of(node, container).into(), 16).unwrap();
        inside.add_address("eth0", v6_of(node, container), 64).unwrap();
        inside.set_up("eth0").unwrap();
        inside.set_up("lo").unwrap();
        run(&ns, "route add default via 10.7.0.1");
        self.containers.push(ns);
    }

    /// Frames to all of its network go to its containers, and to these nodes.
    pub fn flood(&mut self, peers: &[usize], unknown_unicast: bool) {
        let members = self.config.interfaces.keys().copied().collect();
        let encapsulation = self.encapsulation;
        let (label, number) = match encapsulation {
            Encapsulation::Vxlan => (None, VNI),
            _ => (Some(TO_ALL), TO_ALL),
        };
        let peers = peers.iter().map(|node| (underlay_of(*node), (encapsulation, number))).collect();
        let vrf = self.config.vrfs.get_mut(&VRF).unwrap();
        Arc::make_mut(vrf).flood = Some(Flood { members, label, peers, unknown_unicast });
        self.apply();
    }

    pub fn apply(&mut self) {
        let Self { ns, router, config, .. } = self;
        ns.run(|| {
            router.apply(config).unwrap();
            router.attach().unwrap();
        })
        .unwrap();
    }
}
