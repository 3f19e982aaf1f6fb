//! What is chosen of a wire.

use super::TopologyError;
use crate::plan::DEFAULT_MTU;

/// The properties of a wire between two nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WireOptions {
    /// Bits per second that either end may send. `None`: as fast as the CPUs are. A limit hides in the CPU figure what a layer costs:
    /// with a bucket of 10 Gbit/s a raw path carried 9.5 Gbit/s, without one 27 Gbit/s.
    pub rate: Option<u64>,
    /// Largest packet in bytes without the Ethernet header.
    pub mtu: u32,
    /// Whether packets of up to 64 KiB may travel unsegmented (TSO and GSO at the sender, GRO at the receiver). When
    /// off, every packet is one segment from the sender's socket to the receiver's, on each interface of the path.
    pub segmentation_offload: bool,
    /// Transmit and receive queues of each end.
    pub queues: u32,
}

impl Default for WireOptions {
    fn default() -> Self {
        Self { rate: None, mtu: DEFAULT_MTU, segmentation_offload: true, queues: 1 }
    }
}

impl WireOptions {
    pub const MTU: std::ops::RangeInclusive<u32> = 576..=65_535;
    pub const QUEUES: std::ops::RangeInclusive<u32> = 1..=64;
    /// A rate below this would need minutes to carry one message.
    pub const RATE_MIN: u64 = 100_000;

    pub fn check(&self) -> Result<(), TopologyError> {
        Self::check_mtu(self.mtu)?;
        Self::check_queues(self.queues)?;
        self.rate.map_or(Ok(()), Self::check_rate)
    }

    pub fn check_mtu(mtu: u32) -> Result<(), TopologyError> {
        if Self::MTU.contains(&mtu) {
            return Ok(());
        }
        let hint = format!("choose {} to {} bytes", Self::MTU.start(), Self::MTU.end());
        Err(TopologyError::new(format!("an MTU of {mtu} bytes is impossible"), hint))
    }

    pub fn check_queues(queues: u32) -> Result<(), TopologyError> {
        if Self::QUEUES.contains(&queues) {
            return Ok(());
        }
        let hint = format!("choose {} to {}", Self::QUEUES.start(), Self::QUEUES.end());
        Err(TopologyError::new(format!("{queues} queues are impossible"), hint))
    }

    pub fn check_rate(rate: u64) -> Result<(), TopologyError> {
        if rate >= Self::RATE_MIN {
            return Ok(());
        }
        Err(TopologyError::new("the wire's rate is too low", "choose at least 100kbit, or leave rate out"))
    }
}
