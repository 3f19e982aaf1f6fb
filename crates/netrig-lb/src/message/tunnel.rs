//! How packets are packed for a backend.

use std::num::NonZeroU16;

use rig_datapath::balancer::TunnelHeader;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a tunnel has between its outer header and the packet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Tunnel {
    /// Nothing: IP in IP.
    #[default]
    Ipip,
    /// UDP to a port and Generic UDP Encapsulation, with a checksum of UDP or without.
    Gue { port: NonZeroU16, checksum: bool },
    /// GRE.
    Gre,
}

impl Tunnel {
    pub fn name(self) -> &'static str {
        match self {
            Self::Ipip => "ipip",
            Self::Gue { .. } => "gue",
            Self::Gre => "gre",
        }
    }

    pub fn header(self) -> TunnelHeader {
        match self {
            Self::Ipip => TunnelHeader::IpInIp,
            Self::Gue { port, checksum } => TunnelHeader::Gue { port, checksum },
            Self::Gre => TunnelHeader::Gre,
        }
    }
}
