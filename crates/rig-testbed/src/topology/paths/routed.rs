//! Path `routed`: containers are routed to one by one, without a bridge and without subnets of their own, as Calico does.
//!
//! Each container has a veth pair into its node, an address of its own and one router for everything, which is the node:
//! 169.254.1.1, which the node's end of the pair has not and answers for all the same (proxy ARP), or fe80::1, which it
//! has. The node has a route to each container by its interface, and one to those of the other node over the wire.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Definition, Endpoints, Layout, PlanBuilder};
use crate::plan::{IpNet, Route};
use crate::topology::address::{anywhere, subnet, v4, v6};
use crate::topology::{Endpoint, Family, NextHop, Topology, UPLINK};

pub(super) struct Routed;

impl Definition for Routed {
    fn name(&self) -> &'static str {
        "routed"
    }

    fn layout(&self) -> Layout {
        Layout::OneOrTwo
    }

    fn endpoints(&self) -> Endpoints {
        Endpoints::ContainersOrNode
    }

    fn plan(&self, draft: &mut PlanBuilder<'_>) {
        draft.wire();
        (0..draft.nodes()).for_each(|node| draft.address(node));
        let family = draft.topology.family();
        let router = router(family);
        for node in draft.nodes_with_containers() {
            draft.forward(node);
            if family == Family::Ipv4 {
                // The kernel answers for what it has a route to by another interface: in the field its default route.
                draft.own(node).routes.push(Route::on_link(IpNet::from(router), "lo"));
            }
            for container in 0..draft.containers(node) {
                let own = draft.topology.container_address(node, container);
                let (port, end) = draft.veth(node, container);
                match family {
                    Family::Ipv4 => port.proxy_arp = true,
                    Family::Ipv6 => port.addresses.push(subnet(router, 64)),
                }
                end.addresses.push(own);
                let port = port.name.clone();
                draft.own(node).routes.push(Route::on_link(own, port));
                let default = Route { interface: Some(UPLINK.to_owned()), ..Route::via(anywhere(router), router) };
                let on_link = (family == Family::Ipv4).then(|| Route::on_link(IpNet::from(router), UPLINK));
                draft.container(node, container).routes.extend(on_link.into_iter().chain([default]));
            }
        }
        draft.route_to_other(block);
    }

    fn pools(&self, draft: &mut PlanBuilder<'_>) {
        draft.route_pools(|topology, node, container| topology.container_address(node, container).addr());
    }

    fn container_address(&self, family: Family, node: usize, container: usize) -> IpNet {
        let (node, number) = (1 + node as u8, 3 + container as u8);
        IpNet::from(match family {
            Family::Ipv4 => v4(10, node, 0, number),
            Family::Ipv6 => v6(u16::from(node) << 8, 0, number.into()),
        })
    }

    fn next_hop(&self, topology: &Topology, (node, container): (usize, Option<usize>), _: &Endpoint) -> NextHop {
        NextHop::Router(match container {
            Some(_) => router(topology.family()),
            // A node without containers: the other one routes to its own.
            None => topology.node_address(1 - node).addr(),
        })
    }
}

/// Whom each container sends everything to.
fn router(family: Family) -> IpAddr {
    match family {
        Family::Ipv4 => Ipv4Addr::new(169, 254, 1, 1).into(),
        Family::Ipv6 => Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1).into(),
    }
}

/// The addresses that the containers of a node have theirs of.
fn block(topology: &Topology, node: usize) -> IpNet {
    let node = 1 + node as u8;
    match topology.family() {
        Family::Ipv4 => subnet(v4(10, node, 0, 0), 24),
        Family::Ipv6 => subnet(v6(u16::from(node) << 8, 0, 0), 64),
    }
}
