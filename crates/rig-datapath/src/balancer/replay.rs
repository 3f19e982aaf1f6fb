//! What any one packet costs, by test runs that begin each repetition with the packet as it was.

use zerocopy::{FromZeros, IntoBytes};

use crate::Error;
use crate::maps::Map;
use crate::test_run::{self, TestRunResult};

use super::control::Balancer;
use super::shape;
use super::sizes::Sizes;

/// What each repetition runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplayProgram {
    /// Making the packet what it was, which is to be taken off.
    Nothing,
    /// That, and the balancer's program.
    Forward,
}

impl ReplayProgram {
    fn program(self) -> &'static str {
        match self {
            Self::Nothing => "replay_nothing",
            Self::Forward => "replay_forward",
        }
    }
}

/// A packet to repeat.
#[derive(Debug, Clone, Copy)]
pub struct Packet<'a> {
    /// The whole frame. What is behind its first 256 bytes must come out as it went in.
    pub frame: &'a [u8],
    /// Bytes that the program puts in front of it; less than none where it takes some away.
    pub grows: i32,
    /// Where the client's port is, below 64: each repetition takes the next one, from 1 on, and so is another flow.
    pub port_at: Option<u32>,
}

/// A balancer with the programs that measure.
pub fn load(sizes: Sizes) -> Result<Balancer, Error> {
    Balancer::open_bench(sizes, &[ReplayProgram::Nothing, ReplayProgram::Forward].map(ReplayProgram::program))
}

/// Sends a packet `repeat` times by `interface`, see [`test_run::run`]; gives what became of the last, and the mean time
/// of one in whole nanoseconds. `balancer` was made by [`load`].
pub fn run(
    balancer: &Balancer,
    what: ReplayProgram,
    packet: Packet<'_>,
    interface: Option<u32>,
    repeat: u32,
) -> Result<TestRunResult, Error> {
    let mut replay = shape::Replay::new_zeroed();
    let words = replay.frame.as_mut_bytes();
    let written = packet.frame.len().min(words.len());
    words[..written].copy_from_slice(&packet.frame[..written]);
    replay.length = packet.frame.len() as u32;
    replay.written = written as u32;
    // Nothing is put in front by a program that does nothing.
    replay.grows = if what == ReplayProgram::Forward { packet.grows } else { 0 };
    replay.port_at = packet.port_at.unwrap_or(0);
    Map::of(&balancer.object, "replays", size_of::<shape::Replay>())?.set(&0_u32, &replay)?;
    test_run::run(&balancer.object, what.program(), packet.frame, interface, repeat)
}
