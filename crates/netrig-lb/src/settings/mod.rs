//! The balancer's configuration file: TOML, read once into [`Settings`], which nothing checks again, and written from
//! them.
//!
//! ```text
//! text --file (letter)--> read (every name, unit and range, once) --> Settings { Start, Rules }
//! commands --Rules::edit--> Rules --config--> the datapath;  Settings --write--> text
//! ```

mod access;
mod any_port;
mod changes;
mod check;
mod client_address;
mod dscp;
mod family;
mod file;
mod limits;
mod misfit;
mod one_packet;
mod outlier;
mod persistence;
mod quic;
mod ranges;
mod read;
mod rules;
mod syn_proxy;
mod sync;
#[cfg(test)]
mod tests;
mod timeouts;
mod tunnel;
mod write;

use std::net::SocketAddr;
use std::num::NonZeroU32;

use rig_datapath::balancer::{QUEUE_PACKETS, Sizes};
use rig_sys::cpu::CpuSet;

pub use access::{Access, PrefixChange, PrefixFile, PrefixFileError, PrefixList, parse_prefix};
pub use any_port::ListenText;
pub use changes::changes;
pub use client_address::{CLIENT_ADDRESSES, client_address, client_address_name};
pub use dscp::{OR_KEEP, dscp, dscp_name};
pub use limits::{LIMITS, LimitError};
pub use misfit::Misfit;
pub use one_packet::ONE_PACKET_SCHEDULER;
pub use persistence::DEFAULT_PERSISTENCE;
pub use quic::{quic, quic_id};
pub(crate) use ranges::Addresses;
pub use rules::{
    Backend, DEFAULT_SCHEDULER, EXPIRES, EditError, FORWARDS, REUSES, Rules, SCHEDULERS, Service, ServiceText,
    expire_name, forward_name, protocol, reuse_name, scheduler, scheduler_name,
};
pub use syn_proxy::{DPVS, SYN_PROXIES, SynProxy, read_key, read_secret, syn_proxy, syn_proxy_name};
pub use sync::passes_in_time;
pub use timeouts::TimeoutOverrides;
pub use tunnel::{TUNNELS, tunnel, tunnel_source};

use rig_cli::mistakes::{self, FileError};

use crate::bgp::BgpSettings;
use crate::sync::SyncSettings;

/// All that a configuration file says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    pub start: Start,
    pub rules: Rules,
}

/// What is decided when the balancer starts. Devices can be added and removed later.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Start {
    pub devices: Vec<Device>,
    pub workers: Workers,
    /// Where it is said, packets are handed over to workers also where queues could be put onto their CPUs.
    pub hand_over: Option<HandOver>,
    pub sizes: Sizes,
    /// Where metrics are served.
    pub metrics: Option<SocketAddr>,
    /// How connections are shared with other balancers.
    pub sync: Option<SyncSettings>,
    /// How addresses are announced.
    pub bgp: Option<BgpSettings>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    pub name: String,
    /// Whether generic mode will do where the driver has no XDP.
    pub generic: bool,
}

/// The CPUs that run the program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Workers {
    /// Those on which the device's queues happen to be.
    #[default]
    Unplaced,
    Count(NonZeroU32),
    Cpus(CpuSet),
}

/// How packets wait for workers that they are handed over to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandOver {
    /// Room of each worker's queue, packets: 1 to [`rig_datapath::balancer::MOST_PACKETS`].
    pub queue: u32,
    /// Real-time priority of the kernel's threads that work the queues off, 1 to 99 (sched(7)); `None` for none.
    pub priority: Option<u8>,
}

impl Default for HandOver {
    fn default() -> Self {
        Self { queue: QUEUE_PACKETS, priority: None }
    }
}

/// Whether services may lack something, as they do between one command and the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Completeness {
    Required,
    Optional,
}

impl Settings {
    /// Reads the text of `file`, which is only named.
    pub fn parse(file: &str, text: &str, completeness: Completeness) -> Result<Self, FileError> {
        read::settings(file, text, completeness)
    }

    pub fn load(path: &std::path::Path, completeness: Completeness) -> Result<Self, FileError> {
        let file = path.display().to_string();
        let text = mistakes::load_text(path)?;
        Self::parse(&file, &text, completeness)
    }

    /// A file that says this.
    pub fn to_toml(&self) -> String {
        write::settings(self)
    }
}
