//! The versions of IP.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::WireOptions;

/// The version of IP that a testbed speaks, outside and inside of tunnels.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Family {
    #[default]
    Ipv4,
    Ipv6,
}

impl Family {
    /// Bytes of the IP header.
    pub fn header(self) -> u32 {
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
