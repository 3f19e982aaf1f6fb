//! The addresses of all parts of a testbed, and the next hop of packets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{DUT, Endpoint, Family, Topology};
use crate::plan::IpNet;

/// The DUT's pools stand beside those of the ends' first containers.
pub(super) const DUTS_POOL: u8 = 1;

impl Topology {
    /// The address of a node on the wire, in its subnet; of the DUT, that on the client's wire.
    pub fn node_address(&self, node: usize) -> IpNet {
        let host = 11 + node as u8;
        if self.path.has_dut() && node > DUT {
            return self.on_servers_wire(host);
        }
        match self.family {
            // A node that stands beside containers on one wire is in their subnet.
            Family::Ipv4 if self.path.definition().nodes_are_beside_containers() => subnet(v4(172, 16, 0, host), 16),
            Family::Ipv4 => subnet(v4(172, 16, 0, host), 24),
            // Written, the last group looks as the host does in IPv4.
            Family::Ipv6 => subnet(v6(0, 0, 0x11 + node as u16), 64),
        }
    }

    /// The DUT's address on the server's wire, in its subnet.
    pub fn dut_address(&self) -> IpNet {
        self.on_servers_wire(11 + DUT as u8)
    }

    fn on_servers_wire(&self, host: u8) -> IpNet {
        match self.family {
            Family::Ipv4 => subnet(v4(172, 16, 1, host), 24),
            Family::Ipv6 => subnet(v6(1, 0, u16::from(host - 11) + 0x11), 64),
        }
    }

    /// Addresses of the DUT that clients connect to. No interface has them unless something there listens to them;
    /// the client's packets reach the DUT as those of any router do.
    pub fn virtual_pool(&self) -> Pool {
        self.pool_of(0, DUTS_POOL)
    }

    /// Addresses of the DUT that its packets to servers may come from.
    pub fn local_pool(&self) -> Pool {
        self.pool_of(1, DUTS_POOL)
    }

    /// The address of a container, with its subnet.
    pub fn container_address(&self, node: usize, container: usize) -> IpNet {
        self.path.definition().container_address(self.family, node, self.number_in_network(node, container))
    }

    /// The pool of addresses of an endpoint that makes its packets itself: none of them is the kernel's. Pools are parts of
    /// 198.18.0.0/15 (RFC 2544, C.2.2) and 2001:2::/48 (RFC 5180, 8), which are reserved for such tests. The IPv4 pools of the
    /// third node and of further ones find no room there and are parts of 10.0.0.0/8.
    pub fn pool(&self, endpoint: &Endpoint) -> Option<Pool> {
        let (node, container) = self.place_of(endpoint)?;
        let side = if self.path.has_dut() { node / 2 } else { node };
        Some(self.pool_of(side as u8, container.unwrap_or(0) as u8))
    }

    fn pool_of(&self, side: u8, number: u8) -> Pool {
        Pool(match self.family {
            Family::Ipv4 if side > 1 => v4(10, 18 + side, number, 0),
            Family::Ipv4 => v4(198, 18 + side, number, 0),
            Family::Ipv6 => Ipv6Addr::new(0x2001, 2, 0, u16::from_be_bytes([1 + side, number]), 0, 0, 0, 0).into(),
        })
    }

    /// The subnet that all pools of a node are in.
    pub fn pools_subnet(&self, node: usize) -> IpNet {
        let node = node as u8;
        match self.family {
            Family::Ipv4 => subnet(v4(198, 18 + node, 0, 0), 16),
            Family::Ipv6 => {
                subnet(Ipv6Addr::new(0x2001, 2, 0, u16::from_be_bytes([1 + node, 0]), 0, 0, 0, 0).into(), 56)
            }
        }
    }

    /// The next hop of what `endpoint` sends to `peer`.
    pub fn next_hop(&self, endpoint: &Endpoint, peer: &Endpoint) -> Option<NextHop> {
        let place = self.place_of(endpoint)?;
        Some(self.path.definition().next_hop(self, place, peer))
    }

    /// Its node, and its container there.
    fn place_of(&self, endpoint: &Endpoint) -> Option<(usize, Option<usize>)> {
        let node = self.nodes.iter().position(|n| n.name == endpoint.node)?;
        let Some(name) = &endpoint.container else { return Some((node, None)) };
        Some((node, Some(self.nodes[node].containers.iter().position(|c| c == name)?)))
    }

    /// The address at which load reaches `endpoint`; none where the path's datapath gives it one
    /// ([`Testbed::address`](crate::Testbed::address)).
    pub fn address(&self, endpoint: &Endpoint) -> Option<IpAddr> {
        if self.path.addresses_are_given() {
            return None;
        }
        match self.place_of(endpoint)? {
            (node, None) => Some(self.node_address(node).addr()),
            (node, Some(container)) => Some(self.container_address(node, container).addr()),
        }
    }
}

/// The addresses of an endpoint that makes its packets itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pool(pub(super) IpAddr);

impl Pool {
    /// Addresses beside the port's own.
    pub const SIZE: u32 = 253;

    /// The first address; the others follow.
    pub fn first(self) -> IpAddr {
        self.at(1)
    }

    /// The port's own address, which asks for the router.
    pub fn port(self) -> IpAddr {
        self.at(Self::SIZE + 1)
    }

    /// The first `count` addresses.
    pub fn addresses(self, count: u32) -> impl Iterator<Item = IpAddr> {
        (1..=count.min(Self::SIZE)).map(move |host| self.at(host))
    }

    pub fn subnet(self) -> IpNet {
        subnet(self.0, if self.0.is_ipv4() { 24 } else { 64 })
    }

    pub(super) fn at(self, host: u32) -> IpAddr {
        match self.0 {
            IpAddr::V4(subnet) => Ipv4Addr::from_bits(subnet.to_bits() + host).into(),
            IpAddr::V6(subnet) => Ipv6Addr::from_bits(subnet.to_bits() + u128::from(host)).into(),
        }
    }
}

/// The next hop of an endpoint that makes its packets itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextHop {
    /// The other end, on the same link.
    Peer(Endpoint),
    /// A kernel that routes.
    Router(IpAddr),
}

/// An address in its subnet, or a subnet: a prefix is of no more bits than an address has.
pub(super) fn subnet(address: IpAddr, prefix: u8) -> IpNet {
    IpNet::new_assert(address, prefix)
}

/// Every address of the family of `like`.
pub(super) fn anywhere(like: IpAddr) -> IpNet {
    match like {
        IpAddr::V4(_) => subnet(Ipv4Addr::UNSPECIFIED.into(), 0),
        IpAddr::V6(_) => subnet(Ipv6Addr::UNSPECIFIED.into(), 0),
    }
}

pub(crate) fn v4(a: u8, b: u8, c: u8, d: u8) -> IpAddr {
    Ipv4Addr::new(a, b, c, d).into()
}

/// An address of fd72:6967::/48, which RFC 4193 leaves to local use; the global ID spells "rig".
pub(crate) fn v6(subnet: u16, high: u16, low: u16) -> IpAddr {
    Ipv6Addr::new(0xfd72, 0x6967, 0, subnet, 0, 0, high, low).into()
}
