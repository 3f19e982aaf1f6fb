//! Routes as BGP has them.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;
use rig_datapath::vrouter::Encapsulation;
use rig_wire::ethernet::Mac;

use crate::settings::Assigned;

/// What a route is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum RouteSubject {
    Vpn {
        distinguisher: Assigned,
        prefix: IpNet,
    },
    Mac {
        distinguisher: Assigned,
        tag: u32,
        mac: Mac,
        address: Option<IpAddr>,
    },
    /// Frames to all of a network are wanted.
    Multicast {
        distinguisher: Assigned,
        tag: u32,
        originator: IpAddr,
    },
    /// What is behind an interface.
    Behind {
        distinguisher: Assigned,
        tag: u32,
        prefix: IpNet,
    },
}

/// What is said of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteAttributes {
    pub next_hop: Ipv4Addr,
    /// MPLS label, or VXLAN network identifier.
    pub label: u32,
    pub targets: BTreeSet<Assigned>,
    pub encapsulations: BTreeSet<Encapsulation>,
    /// Security groups: whose number it is, and the number.
    pub groups: BTreeSet<(u16, u32)>,
    /// Router's MAC address (RFC 9135, 8.1): whom frames to what is behind an interface are for.
    pub mac: Option<Mac>,
}

/// What a speaker tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RouteChange {
    Announced {
        subject: RouteSubject,
        says: RouteAttributes,
        /// By another client of this speaker.
        is_local: bool,
    },
    Withdrawn(RouteSubject),
}

impl RouteSubject {
    pub fn distinguisher(&self) -> Assigned {
        match self {
            Self::Vpn { distinguisher, .. }
            | Self::Mac { distinguisher, .. }
            | Self::Multicast { distinguisher, .. }
            | Self::Behind { distinguisher, .. } => *distinguisher,
        }
    }
}
