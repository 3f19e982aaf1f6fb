//! What each stage of the packet path costs, by test runs of programs that stop behind it: bpf/balancer/stages.h.

use std::net::{Ipv4Addr, SocketAddr};

use zerocopy::IntoBytes;

use crate::Error;
use crate::maps::Map;
use crate::test_run::{self, TestRunResult};

use super::control::Balancer;
use super::shape;
use super::sizes::Sizes;

/// How far packets go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessingStage {
    /// A program that does nothing.
    Empty,
    /// The headers are written, as by all that follow: what these cost beyond it is the balancer's.
    Headers,
    Parse,
    /// The connection is looked up.
    Lookup,
    /// Out on the other side.
    Forward,
}

impl ProcessingStage {
    pub const ALL: [Self; 5] = [Self::Empty, Self::Headers, Self::Parse, Self::Lookup, Self::Forward];

    pub(super) fn program(self) -> &'static str {
        match self {
            Self::Empty => "stage_empty",
            Self::Headers => "stage_headers",
            Self::Parse => "stage_parse",
            Self::Lookup => "stage_lookup",
            Self::Forward => "stage_forward",
        }
    }
}

/// Which packets come: TCP over IPv4.
#[derive(Debug, Clone, Copy)]
pub enum Flows {
    /// The frame as it is.
    One,
    /// This many, a power of two, from clients from `first` on, 16,384 ports each. Every one comes once before the first
    /// comes again; they come in an order that jumps about when `jump` is set.
    Many { count: u64, first: Ipv4Addr, jump: bool },
    /// This many, a power of two, of those that [`collect_replies`] has made.
    Replies { count: u64 },
}

/// The map of [`collect_replies`].
pub(super) const REPLIES: &str = "replies";
/// Odd, so that multiples of it are all numbers below a power of two.
const STRIDE: u64 = 0x9e37_79b1;
/// Bytes of the headers that are written.
const HEADERS: usize = 54;

/// A balancer with the programs that measure.
pub fn load(sizes: Sizes) -> Result<Balancer, Error> {
    Balancer::open_bench(sizes, &ProcessingStage::ALL.map(ProcessingStage::program))
}

/// Prepares backends' packets to the connections that there are, with FullNAT over IPv4, in an order that jumps about. Gives how
/// many: the largest power of two that is not more than there are.
///
/// `balancer` was made by [`load`].
pub fn collect_replies(balancer: &Balancer) -> Result<u64, Error> {
    let mut replies = Vec::new();
    balancer.connections(|connection| {
        if let (SocketAddr::V4(from), Some(SocketAddr::V4(to))) = (connection.backend, connection.local) {
            let (addresses, ports) = ([from.ip(), to.ip()], [from.port(), to.port()]);
            replies
                .push(shape::Reply { addresses: addresses.map(Ipv4Addr::octets), ports: ports.map(u16::to_be_bytes) });
        }
    })?;
    let map = Map::of(&balancer.object, REPLIES, size_of::<shape::Reply>())?;
    replies.truncate(map.entries() as usize);
    let count = (replies.len() as u64 + 1).next_power_of_two() / 2;
    let jumps: Vec<_> = (0..count).map(|n| replies[((n * STRIDE) & (count - 1)) as usize]).collect();
    map.set_range(0, &jumps)?;
    Ok(count)
}

/// Sends `repeat` packets by `interface`, see [`test_run::run`]; gives what became of the last, and the mean time of one
/// in whole nanoseconds.
///
/// `frame` is a TCP packet over IPv4 without VLAN tag and options, at least 54 bytes; `balancer` was made by [`load`].
pub fn run(
    balancer: &Balancer,
    stage: ProcessingStage,
    frame: &[u8],
    interface: Option<u32>,
    flows: Flows,
    repeat: u32,
) -> Result<TestRunResult, Error> {
    let mut input = shape::StageInput::default();
    input.headers.as_mut_bytes()[..HEADERS].copy_from_slice(&frame[..HEADERS]);
    match flows {
        Flows::One => {}
        Flows::Many { count, first, jump } => {
            input.flow_mask = count.next_power_of_two() - 1;
            input.stride = if jump { STRIDE } else { 1 };
            input.client = first.into();
        }
        Flows::Replies { count } => {
            input.flow_mask = count.next_power_of_two() - 1;
            input.replies = 1;
        }
    }
    Map::of(&balancer.object, "stage_inputs", size_of::<shape::StageInput>())?.set(&0_u32, &input)?;
    test_run::run(&balancer.object, stage.program(), frame, interface, repeat)
}
