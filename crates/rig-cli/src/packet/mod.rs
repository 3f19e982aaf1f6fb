//! The packet that a trace is asked about: how it is said, its bytes, and how those that leave are shown.

mod frame;
mod text;
mod words;

use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use frame::{frame, frame_with};
pub use text::{told, wrapped};
pub use words::{FlowError, flag_names, parse};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    Tcp,
    Udp,
}

/// The packet that is traced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flow {
    pub protocol: Protocol,
    pub source: SocketAddr,
    pub destination: SocketAddr,
    /// Of TCP, as in its header (RFC 9293, 3.1); a SYN when it is not said.
    pub tcp_flags: u8,
    /// Of the IP packet, bytes.
    pub length: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PacketOut {
    pub device: Option<String>,
    pub source_mac: String,
    pub destination_mac: String,
    /// e.g. `10.0.0.1:1025 > 10.0.0.2:80`, with the outer header first where there is one.
    pub flow: String,
    pub bytes: Vec<u8>,
}
