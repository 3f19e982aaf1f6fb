//! What is said over the socket of captured packets.

use rig_datapath::balancer::{CaptureReason, Drop, Pass};
use serde::{Deserialize, Serialize};

use super::ServiceKey;

/// Which packets are wanted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureOrder {
    pub reasons: Vec<NamedReason>,
    pub service: Option<ServiceKey>,
    /// Of each packet, bytes.
    pub length: u32,
    /// A second.
    pub rate: u32,
}

/// A reason by its counter's name: of drops and of packets that are left to the kernel some have the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NamedReason {
    Dropped(String),
    LeftToKernel(String),
}

impl From<CaptureReason> for NamedReason {
    fn from(reason: CaptureReason) -> Self {
        match reason {
            CaptureReason::Dropped(_) => Self::Dropped(reason.key().to_owned()),
            CaptureReason::LeftToKernel(_) => Self::LeftToKernel(reason.key().to_owned()),
        }
    }
}

impl NamedReason {
    /// `None` for one that this version does not have.
    pub fn reason(&self) -> Option<CaptureReason> {
        match self {
            Self::Dropped(key) => {
                Drop::ALL.iter().find(|reason| reason.key() == key).map(|reason| CaptureReason::Dropped(*reason))
            }
            Self::LeftToKernel(key) => {
                Pass::ALL.iter().find(|reason| reason.key() == key).map(|reason| CaptureReason::LeftToKernel(*reason))
            }
        }
    }
}

/// Packets, of which there may be none: then it is said that the balancer goes on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapturedBatch {
    pub packets: Vec<PacketCopy>,
    /// Packets that were asked for and not captured so far: because they came faster than the rate, because nobody had read those
    /// before them, and because their CPU came online after the beginning.
    pub beyond_rate: u64,
    pub no_room: u64,
    #[serde(default)]
    pub no_reader: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketCopy {
    pub reason: NamedReason,
    /// The sender was answered, and this is the answer.
    pub answered: bool,
    /// Since 1970-01-01 00:00 UTC, nanoseconds.
    pub time_ns: u64,
    /// By which it came in.
    pub device: String,
    /// Of the whole frame, bytes.
    pub length: u32,
    /// Its beginning, with the Ethernet header.
    pub bytes: Vec<u8>,
}
