//! What one end of a packet load does, all its ports and threads: a plain value that front ends make, that travels, and
//! that is divided into one [`Config`](super::Config) per thread.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use rig_wire::ethernet::Mac;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::config::Service;
pub use super::family::link::AnswerScope;
use super::payload::Payload;

/// Frames that are sent together at most, unless a plan has a reason for another number: as many as a pass of the engine
/// receives. A smaller one only divides what a pass sends among more system calls (docs/decisions/af-xdp-ports.md).
pub const BURST: u16 = 256;

/// One end of a packet load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Packets {
    pub ports: Vec<PortPlan>,
    /// What all threads do together: rates, numbers of connections to hold and capacities are those of this end and are
    /// divided; ranges of ports are divided where threads would meet in them.
    pub service: Service,
    /// Connections that can be open at once, all threads together. `None`: as many as are to be held, or as the rate
    /// opens while a connection is given up.
    pub capacity: Option<u64>,
    pub course: Timeline,
}

/// How a run goes, from when every gateway is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Timeline {
    /// Silence before the first packet.
    pub wait: Duration,
    /// From then on, ramp included. A server answers for so long.
    pub duration: Duration,
    /// How long open connections have to come to their end after the last was opened.
    pub drain: Duration,
}

/// One interface, and the threads on it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PortPlan {
    pub interface: String,
    pub driver: Driver,
    /// The port's own address: it is answered for, and asks for the gateway.
    pub address: IpAddr,
    pub gateway: GatewayPlan,
    pub vlan: Option<u16>,
    pub vxlan: Option<VxlanPlan>,
    /// Ours, and those that we talk to.
    pub local: Vec<Range>,
    pub remote: Vec<Range>,
    /// One for each queue that is used.
    #[serde(rename = "workers")]
    pub threads: Vec<ThreadPlan>,
    /// Bytes of the largest IP packet.
    pub mtu: u16,
    /// Whether frames may leave without socket buffers, on a veth that allows it: not where a thread or a queue in memory
    /// takes them. Frames that are still on their way when a system call ends keep a pool of pages each for a second, and
    /// the kernel walks through all pools for each one that it then removes (`page_pool_release_retry`).
    pub live: bool,
    /// Frames that are sent together at most, 1 to 1024.
    pub burst: u16,
    /// Which frames of the interface are taken. The kernel gets the rest.
    pub take: Capture,
    /// For whose addresses ARP requests and neighbor solicitations are answered.
    pub answer: AnswerScope,
    /// Time to live, hop limit.
    pub hop_limit: u8,
    /// Type of service, traffic class.
    pub tos: u8,
}

/// Addresses that follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Range {
    pub first: IpAddr,
    pub count: u32,
}

/// Where a thread is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ThreadPlan {
    /// The CPU that it stays on; `None`: wherever it is put.
    pub cpu: Option<u32>,
    pub queue: u32,
    /// A server's response of this thread, in place of the service's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<Payload>,
}

/// By which way frames leave and enter the kernel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Driver {
    /// The first of those below that the interface and our rights allow; which one is said.
    #[default]
    Auto,
    /// AF_XDP behind a program in the driver.
    Xdp,
    /// AF_XDP behind a program in the kernel's generic hook: slow, for drivers without XDP.
    XdpGeneric,
    /// AF_PACKET rings.
    Packet,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Capture {
    /// What is for one of the port's addresses.
    #[default]
    Own,
    /// All.
    All,
}

/// Where all packets go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GatewayPlan {
    Mac([u8; 6]),
    Address(IpAddr),
}

impl GatewayPlan {
    pub fn mac(mac: Mac) -> Self {
        Self::Mac(mac.0)
    }
}

/// A tunnel that all packets of the port go through (RFC 7348), over IPv4.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct VxlanPlan {
    /// 24 bits.
    pub vni: u32,
    pub inner_source: [u8; 6],
    pub inner_destination: [u8; 6],
    /// One for each thread: answers come to the thread whose it is.
    pub local: Ipv4Addr,
    pub local_count: u32,
    pub remote: Ipv4Addr,
    /// 1, or one for each thread.
    pub remote_count: u32,
}
