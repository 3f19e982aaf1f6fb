//! What a hot packet costs, by test runs that begin each repetition with the packet as it was.

use std::os::fd::{AsFd, AsRawFd};

use zerocopy::IntoBytes;

use crate::Error;
use crate::maps::Map;
use crate::object::program;
use crate::objects::check_is_new;

use super::control::Router;
use super::load::BENCH_OBJECT;
use super::shape;
use super::sizes::Sizes;
use super::trial::{Side, TestRunResult, Verdict};

/// The program that restores a packet before it calls the measured one; and one that only makes room in front of it and takes it away.
const REPLAY: &str = "replay";
const REPLAY_ROOM: &str = "replay_room";
/// The program that does nothing.
const NOTHING: &str = "nothing";

/// The time of a repetition, and its outcome.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// Mean of the program above one that does nothing, ns.
    pub program: f64,
    /// Of the last repetition.
    pub verdict: Verdict,
}

/// A router that measures. What its programs wrap is not marked as encapsulated (bpf/vrouter/bench.bpf.c), so that nothing of it
/// should reach a network.
pub fn load(sizes: Sizes) -> Result<Router, Error> {
    check_is_new(REPLAY)?;
    Router::open(sizes, BENCH_OBJECT, None)
}

/// Times a program with one packet over and over: see [`Router::test_run`] for `frame` and `interface`. With `port_at`, where
/// the frame has its source port, each repetition has the next one, from 1 on, and so is of another flow.
///
/// The program's own room for an outer header, made or taken away, is half of what making it and taking it away costs;
/// the other half is the preparation's, and not in the figure.
///
/// # Errors
/// When there is no such interface.
pub fn cost(
    router: &Router,
    side: Side,
    frame: &[u8],
    interface: u32,
    port_at: Option<u32>,
    repeat: u32,
) -> Result<Cost, Error> {
    let once = router.test_run(side, frame, interface)?;
    let mut replay = shape::Replay { grows: once.frame.len() as i32 - frame.len() as i32, ..shape::Replay::default() };
    replay.port_at = port_at.unwrap_or(0);
    let words = replay.frame.as_mut_bytes();
    let written = frame.len().min(words.len());
    words[..written].copy_from_slice(&frame[..written]);
    replay.written = written as u32;
    let replays = Map::of(&router.object, "replays", size_of::<shape::Replay>())?;
    let replayed = Map::of(&router.object, "replayed", size_of::<u32>())?;
    let run = |by: &'static str, whom: &'static str, grows: i32| {
        replays.set(&0_u32, &shape::Replay { grows, ..replay })?;
        let whom = program(&router.object, whom)?.as_fd().as_raw_fd() as u32;
        replayed.set(&0_u32, &whom)?;
        router.run(by, frame, interface, repeat)
    };
    let nanoseconds = |outcome: &TestRunResult| outcome.each.as_nanos() as f64;
    let nothing = nanoseconds(&run(REPLAY, NOTHING, 0)?);
    let room = nanoseconds(&run(REPLAY_ROOM, NOTHING, replay.grows)?);
    let through = run(REPLAY, side.program(), replay.grows)?;
    let program = nanoseconds(&through) - nothing - (room - nothing) / 2.0;
    Ok(Cost { program, verdict: through.verdict })
}
