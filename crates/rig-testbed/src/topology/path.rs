//! The ways from one endpoint to another, and the versions of IP over them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{TopologyError, WireOptions};

/// How two endpoints are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Path {
    /// The nodes' own stacks over the wire: no container.
    Raw,
    /// Each container has a veth pair into its node, and the node routes.
    Etun,
    /// Each container has a veth pair into its node's bridge, and the wire is a port of that bridge.
    Bridge,
    /// Each container has a macvlan interface on its node's wire.
    Macvlan,
    /// Two containers of one node, joined by the node's bridge.
    Colocated,
    /// As bridge, but the bridges are joined by VXLAN over the wire.
    Vxlan,
    /// Client and server of the paths that follow, with nothing between them.
    Direct,
    /// Between client and server netrig's own balancer, as XDP programs.
    Balancer,
    /// Between client and server nftables, which translates both addresses of each packet.
    Nftables,
    /// Between client and server HAProxy, which ends each connection and makes another.
    Haproxy,
    /// Between client and server the kernel's IP Virtual Server.
    Ipvs,
}

impl Path {
    pub const ALL: [Self; 11] = [
        Self::Raw,
        Self::Etun,
        Self::Bridge,
        Self::Macvlan,
        Self::Colocated,
        Self::Vxlan,
        Self::Direct,
        Self::Balancer,
        Self::Nftables,
        Self::Haproxy,
        Self::Ipvs,
    ];
    /// Those that join two nodes, or containers of one, without anything that balances.
    pub const PLAIN: [Self; 6] = [Self::Raw, Self::Etun, Self::Bridge, Self::Macvlan, Self::Colocated, Self::Vxlan];

    pub fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Etun => "etun",
            Self::Bridge => "bridge",
            Self::Macvlan => "macvlan",
            Self::Colocated => "colocated",
            Self::Vxlan => "vxlan",
            Self::Direct => "direct",
            Self::Balancer => "balancer",
            Self::Nftables => "nftables",
            Self::Haproxy => "haproxy",
            Self::Ipvs => "ipvs",
        }
    }

    /// Whether a node stands between client and server, which connect to addresses of it.
    pub fn has_middle(self) -> bool {
        matches!(self, Self::Balancer | Self::Nftables | Self::Haproxy | Self::Ipvs)
    }

    /// Whether the testbed is one of client, middle and server, of which `direct` leaves the middle out: client and
    /// server share their CPUs then, in every scenario the same.
    pub fn is_of_three(self) -> bool {
        self.has_middle() || self == Self::Direct
    }

    /// Bytes that the path adds to each packet on the wire.
    pub fn overhead(self, family: Family) -> u32 {
        match self {
            // Outer IP, UDP 8, VXLAN 8, inner Ethernet 14 (RFC 7348).
            Self::Vxlan => family.header() + 30,
            _ => 0,
        }
    }

    /// Whether one end of the path may be a node without containers, so that the other end alone pays for the path.
    pub(super) fn joins_nodes(self) -> bool {
        matches!(self, Self::Etun | Self::Bridge | Self::Macvlan)
    }
}

/// The version of IP that a testbed speaks, outside and inside of tunnels.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Family {
    #[default]
    Ipv4,
    Ipv6,
}

impl Family {
    /// Bytes of the IP header.
    fn header(self) -> u32 {
        match self {
            Self::Ipv4 => 20,
            Self::Ipv6 => 40,
        }
    }

    /// The smallest MTU of an endpoint: what every host has to reassemble (RFC 1122, 3.3.2) and, of IPv6, what every
    /// link has to carry (RFC 8200, 5). An interface with less has no IPv6.
    pub(super) fn mtu_min(self) -> u32 {
        match self {
            Self::Ipv4 => *WireOptions::MTU.start(),
            Self::Ipv6 => 1280,
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Path {
    type Err = TopologyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|path| path.name() == text).ok_or_else(|| {
            TopologyError::new(
                format!("unknown path '{text}'"),
                format!("paths are {}", Self::ALL.map(Self::name).join(", ")),
            )
        })
    }
}
