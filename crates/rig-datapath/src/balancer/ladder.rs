//! What each step of a packet's way through the balancer costs, by test runs of programs that stop there.

use std::net::{Ipv4Addr, SocketAddr};

use zerocopy::IntoBytes;

use crate::Error;
use crate::maps::Map;
use crate::test_run::{self, Outcome};

use super::control::Balancer;
use super::shape;
use super::sizes::Sizes;

/// How far packets go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rung {
    /// A program that does nothing.
    Empty,
    /// The headers are written, as on all rungs above: what these cost beyond it is the balancer's.
    Headers,
    Parse,
    /// The connection is looked up.
    Find,
    /// Out on the other side.
    Through,
}

impl Rung {
    pub const ALL: [Self; 5] = [Self::Empty, Self::Headers, Self::Parse, Self::Find, Self::Through];

    pub(super) fn program(self) -> &'static str {
        match self {
            Self::Empty => "ladder_empty",
            Self::Headers => "ladder_headers",
            Self::Parse => "ladder_parse",
            Self::Find => "ladder_find",
            Self::Through => "ladder_through",
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
    /// This many, a power of two, of those that [`collect_answers`] has made.
    Answers { count: u64 },
}

/// The map of [`collect_answers`].
pub(super) const ANSWERS: &str = "answers";
/// Odd, so that multiples of it are all numbers below a power of two.
const STRIDE: u64 = 0x9e37_79b1;
/// Bytes of the headers that are written.
const HEADERS: usize = 54;

/// A balancer with the programs that measure.
pub fn load(sizes: Sizes) -> Result<Balancer, Error> {
    Balancer::open(sizes, None, &Rung::ALL.map(Rung::program))
}

/// Prepares backends' packets to the connections that there are, with FullNAT over IPv4, in an order that jumps about. Gives how
/// many: the largest power of two that is not more than there are.
///
/// `balancer` was made by [`load`].
pub fn collect_answers(balancer: &Balancer) -> Result<u64, Error> {
    let mut answers = Vec::new();
    balancer.connections(|connection| {
        if let (SocketAddr::V4(from), Some(SocketAddr::V4(to))) = (connection.backend, connection.local) {
            let (addresses, ports) = ([from.ip(), to.ip()], [from.port(), to.port()]);
            answers
                .push(shape::Answer { addresses: addresses.map(Ipv4Addr::octets), ports: ports.map(u16::to_be_bytes) });
        }
    })?;
    let map = Map::of(&balancer.object, ANSWERS, size_of::<shape::Answer>())?;
    answers.truncate(map.entries() as usize);
    let count = (answers.len() as u64 + 1).next_power_of_two() / 2;
    let jumps: Vec<_> = (0..count).map(|n| answers[((n * STRIDE) & (count - 1)) as usize]).collect();
    map.set_range(0, &jumps)?;
    Ok(count)
}

/// Sends `repeat` packets by `interface`, see [`test_run::run`]; gives what became of the last, and the mean time of one
/// in whole nanoseconds.
///
/// `frame` is a TCP packet over IPv4 without VLAN tag and options, at least 54 bytes; `balancer` was made by [`load`].
pub fn run(
    balancer: &Balancer,
    rung: Rung,
    frame: &[u8],
    interface: Option<u32>,
    flows: Flows,
    repeat: u32,
) -> Result<Outcome, Error> {
    let mut ladder = shape::Ladder::default();
    ladder.headers.as_mut_bytes()[..HEADERS].copy_from_slice(&frame[..HEADERS]);
    match flows {
        Flows::One => {}
        Flows::Many { count, first, jump } => {
            ladder.flow_mask = count.next_power_of_two() - 1;
            ladder.stride = if jump { STRIDE } else { 1 };
            ladder.client = first.into();
        }
        Flows::Answers { count } => {
            ladder.flow_mask = count.next_power_of_two() - 1;
            ladder.answers = 1;
        }
    }
    Map::of(&balancer.object, "ladders", size_of::<shape::Ladder>())?.set(&0_u32, &ladder)?;
    test_run::run(&balancer.object, rung.program(), frame, interface, repeat)
}
