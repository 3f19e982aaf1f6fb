//! A testbed as settings of a set of nodes, as `vrouter.toml` would say them, and as what the kernel of one of them has.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use anyhow::{Context, Result};
use netrig_vrouter::compile::{KernelInterface, Site};
use netrig_vrouter::settings::{Interface, Network, Node, Place, Router, Settings};
use rig_datapath::vrouter::{Encapsulation, Peer};
use rig_testbed::UPLINK;
use rig_testbed::datapath::Site as Located;
use rig_testbed::plan::{DEFAULT_MTU, Link, Node as Planned, Plan, Space};
use rig_testbed::topology::container_of_network;

/// The VXLAN network identifier of the first network.
const FIRST_VNI: u32 = 42;
/// The label of a node's first container.
const FIRST_LABEL: u32 = 101;

/// What all nodes of a testbed shall do: each container's interface in its network, without rules.
pub(super) fn settings(site: &Located, encapsulation: Encapsulation) -> Result<Settings> {
    let router = Router { encapsulation: vec![encapsulation], ..Router::default() };
    let mut settings = Settings { router, ..Settings::default() };
    for number in 1..=site.networks() {
        let network = Network { vni: FIRST_VNI + number - 1, encapsulation: vec![encapsulation], ..Network::default() };
        settings.networks.insert(container_of_network(number), network);
    }
    for node in &site.plan().nodes {
        let of_node = Node {
            // Without a wire nobody asks for it.
            address: underlay(node).unwrap_or(Ipv4Addr::UNSPECIFIED),
            interface: None,
            encapsulations: BTreeSet::from([encapsulation]),
            mtu: None,
            bgp: false,
        };
        settings.nodes.insert(node.name.clone(), of_node);
        let Some((own, containers)) = node.spaces.split_first() else { continue };
        for (label, space) in (FIRST_LABEL..).zip(containers) {
            let container = site.container(&space.name)?;
            let interface = interface(container.network, (node, own), space, label)
                .with_context(|| format!("find the interface of {} in the testbed's plan", space.name))?;
            let network = settings.networks.get_mut(&interface.network).context("find a container's network")?;
            // Of packets that the endpoint makes itself.
            if let Some(pool) = container.pool {
                network.routes.entry(pool).or_default().push(space.name.clone());
            }
            settings.interfaces.insert(space.name.clone(), interface);
        }
    }
    Ok(settings)
}

fn interface(network: u32, (node, own): (&Planned, &Space), space: &Space, label: u32) -> Option<Interface> {
    let leads = |link: &Link| matches!(link, Link::Veth { far } if far.space == space.name);
    let port = own.interfaces.iter().find(|interface| leads(&interface.link))?;
    let end = space.interface(UPLINK)?;
    Some(Interface {
        node: node.name.clone(),
        network: container_of_network(network),
        place: Place::Node { device: port.name.clone() },
        addresses: end.addresses.iter().map(ipnet::IpNet::addr).collect(),
        allowed_addresses: BTreeSet::new(),
        mac: end.mac?,
        any_mac: true,
        label,
        vni: None,
        distinguisher: 0,
        security_groups: BTreeSet::new(),
        most_flows: None,
        mirror: None,
        fat_flows: BTreeSet::new(),
        dhcp_server: false,
    })
}

/// What the kernel of a node has of these settings.
pub(super) fn site(settings: &Settings, plan: &Plan, own: usize, index: impl Fn(&str) -> Result<u32>) -> Result<Site> {
    let node = plan.nodes.get(own).context("find the node in its plan")?;
    let mut site = Site::default();
    for (name, interface) in settings.interfaces_of(&node.name) {
        let Place::Node { device } = &interface.place else { continue };
        let found = KernelInterface { index: index(device)?, mac: Some(interface.mac) };
        site.interfaces.insert(name.clone(), found);
    }
    for (end, mtu, other) in wires(node, plan) {
        let gateway = settings.node(other)?.address;
        site.peers.insert(gateway, Peer { interface: index(end)?, gateway, mtu });
    }
    Ok(site)
}

/// Wires of a node: its own end, the largest packet, and whom they lead to.
fn wires<'a>(node: &'a Planned, plan: &'a Plan) -> impl Iterator<Item = (&'a str, u16, &'a str)> {
    plan.wires.iter().filter_map(|wire| {
        let [one, other] = &wire.ends;
        let (own, far) = if one.space == node.name { (one, other) } else { (other, one) };
        let mtu = plan.interface(own)?.mtu.unwrap_or(DEFAULT_MTU) as u16;
        (own.space == node.name).then_some((own.interface.as_str(), mtu, far.space.as_str()))
    })
}

/// Where a node's tunnels begin and end.
fn underlay(node: &Planned) -> Option<Ipv4Addr> {
    let uplink = node.spaces.first()?.interface(UPLINK)?;
    uplink.addresses.iter().find_map(|address| match address.addr() {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    })
}
