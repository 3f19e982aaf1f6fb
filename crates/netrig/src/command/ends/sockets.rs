//! Options of `netrig stream`, `rr` and `udp` about the sockets of the load.

use clap::Args;
use rig_load::plan::SocketOptions;
use rig_sys::socket::{Dscp, SourceBinding, ZonedAddress};

use super::options::CLIENT;

/// Those that every load has.
#[derive(Debug, Args)]
#[command(next_help_heading = CLIENT)]
pub struct SocketArgs {
    /// Send from this address of the client's
    ///
    /// The control connection does, too. A link-local one with its interface: fe80::2%eth0.
    #[arg(long, value_name = "ADDRESS")]
    source: Option<ZonedAddress>,
    /// Send and receive by this interface of the client's (SO_BINDTODEVICE)
    ///
    /// An interface or a VRF, whatever the routing table says. The control connection does, too.
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// DSCP of the load's packets, both ways: cs0 to cs7, af11 to af43, ef, or 0 to 63
    #[arg(long, value_name = "NAME")]
    dscp: Option<Dscp>,
    /// TTL, or hop limit, of the load's packets, both ways: 1 to 255 (IP_TTL, IPV6_UNICAST_HOPS)
    #[arg(long, value_name = "HOPS")]
    ttl: Option<u32>,
    /// Priority of packets in queueing disciplines, at both ends (SO_PRIORITY)
    ///
    /// Above 6 it takes CAP_NET_ADMIN, and a server refuses it.
    #[arg(long, value_name = "N")]
    priority: Option<u32>,
    /// Look for packets so many microseconds where a call waits, at both ends (SO_BUSY_POLL)
    ///
    /// More than net.core.busy_read takes CAP_NET_ADMIN, and a server's --max-busy-poll.
    #[arg(long, value_name = "USEC")]
    busy_poll: Option<u32>,
}

impl SocketArgs {
    pub fn source(&self) -> SourceBinding {
        SourceBinding { address: self.source, device: self.device.clone() }
    }

    /// With those that sockets of TCP alone have.
    pub fn options(&self, mss: Option<u32>, not_sent_low_water: Option<u32>) -> SocketOptions {
        SocketOptions {
            dscp: self.dscp,
            mss,
            hop_limit: self.ttl,
            priority: self.priority,
            not_sent_low_water,
            busy_poll_us: self.busy_poll,
            mptcp: false,
        }
    }
}
