//! Path `etun`: each container has a veth pair into its node, with a subnet of its own, and the node routes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Definition, Endpoints, Layout, PlanBuilder};
use crate::plan::{IpNet, Route};
use crate::topology::address::{anywhere, subnet, v4, v6};
use crate::topology::{Endpoint, Family, NextHop, Topology};

pub(super) struct Etun;

impl Definition for Etun {
    fn name(&self) -> &'static str {
        "etun"
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
        for node in draft.nodes_with_containers() {
            draft.forward(node);
            for container in 0..draft.containers(node) {
                let own = draft.topology.container_address(node, container);
                let gateway = gateway(own.addr());
                let (port, end) = draft.veth(node, container);
                port.addresses.push(subnet(gateway, own.prefix_len()));
                end.addresses.push(own);
                draft.container(node, container).routes.push(Route::via(anywhere(gateway), gateway));
            }
        }
        draft.route_to_other(containers_subnet);
    }

    fn pools(&self, draft: &mut PlanBuilder<'_>) {
        draft.route_pools(|topology, node, container| topology.container_address(node, container).addr());
    }

    fn container_address(&self, family: Family, node: usize, container: usize) -> IpNet {
        match family {
            Family::Ipv4 => {
                let [high, low] = (container as u16 * 4 + 2).to_be_bytes();
                subnet(v4(10, 1 + node as u8, high, low), 30)
            }
            Family::Ipv6 => subnet(v6((1 + node as u16) << 8 | container as u16, 0, 2), 64),
        }
    }

    fn next_hop(&self, topology: &Topology, (node, container): (usize, Option<usize>), _: &Endpoint) -> NextHop {
        NextHop::Router(match container {
            Some(container) => gateway(topology.container_address(node, container).addr()),
            // A node without containers: the other one routes to its own.
            None => topology.node_address(1 - node).addr(),
        })
    }
}

/// The node's address on its link to a container, the first of that subnet.
fn gateway(container: IpAddr) -> IpAddr {
    match container {
        IpAddr::V4(address) => Ipv4Addr::from_bits(address.to_bits() - 1).into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() - 1).into(),
    }
}

/// The subnet that all links between a node and its containers are in, so that other nodes need one route.
fn containers_subnet(topology: &Topology, node: usize) -> IpNet {
    match topology.family() {
        Family::Ipv4 => subnet(v4(10, 1 + node as u8, 0, 0), 16),
        Family::Ipv6 => subnet(v6((1 + node as u16) << 8, 0, 0), 56),
    }
}
