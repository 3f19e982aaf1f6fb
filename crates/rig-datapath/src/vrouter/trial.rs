//! A packet given to a program without a network: what becomes of it.

use std::time::Duration;

use libbpf_rs::{Object, ProgramInput};

use crate::Error;
use crate::test_run::all_repetitions;

use super::control::Router;
use super::load::{FROM_CONTAINER, FROM_UNDERLAY};

/// From where a packet comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    Container,
    Underlay,
}

impl Side {
    pub(super) fn program(self) -> &'static str {
        match self {
            Self::Container => FROM_CONTAINER,
            Self::Underlay => FROM_UNDERLAY,
        }
    }
}

/// What a program decides (linux/pkt_cls.h, linux/bpf.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Left to the kernel.
    Pass,
    Drop,
    /// To another interface, or back.
    Redirect,
    Other(u32),
}

impl From<u32> for Verdict {
    fn from(action: u32) -> Self {
        match action {
            // To the program that is next there (TCX_NEXT).
            u32::MAX => Self::Pass,
            2 => Self::Drop,
            7 => Self::Redirect,
            other => Self::Other(other),
        }
    }
}

/// What came of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestRunResult {
    pub verdict: Verdict,
    /// The whole frame, as the last repetition left it.
    pub frame: Vec<u8>,
    /// Mean time of one repetition, in whole nanoseconds as the kernel measures it.
    pub each: Duration,
}

/// Room for what a program may add.
const GROWTH: usize = 256;
/// `struct __sk_buff`, and where in it the mark, the interface's number and how many segments it will be cut into are.
const CONTEXT: usize = 192;
const MARK: usize = 8;
const IFINDEX: usize = 40;
const SEGMENTS: usize = 164;
/// Of bpf/vrouter/flood.h: the mark of a copy, with the place of its member.
const COPY: u32 = 0xfd0d_0000;
/// Of bpf/vrouter/cut.h: that of a piece, with its place and how many times 8 bytes each has.
const PIECE: u32 = 0xfe00_0000;

impl Router {
    /// Runs a program on a frame (`BPF_PROG_TEST_RUN`, bpf(2)) that comes in by `interface`, the kernel's number of one of the
    /// calling thread's network namespace. Nothing is sent; flows and counters are as after a real one.
    ///
    /// # Errors
    /// When there is no such interface.
    pub fn test_run(&self, side: Side, frame: &[u8], interface: u32) -> Result<TestRunResult, Error> {
        self.run(side.program(), frame, interface, 1)
    }

    /// As [`Self::test_run`], with a copy of a container's frame to all, which is for a member on another node and has come back by its
    /// interface: `member` is its place among all, those of this node first.
    ///
    /// # Errors
    /// When there is no such interface.
    pub fn test_run_copy(&self, frame: &[u8], interface: u32, member: u16) -> Result<TestRunResult, Error> {
        let metadata = FrameMetadata { mark: COPY | u32::from(member), ..FrameMetadata::of(interface) };
        run(&self.object, FROM_CONTAINER, frame, metadata, 1)
    }

    /// As [`Self::test_run`], with a packet that has come back to become a piece of itself: the piece's number, and the length of all
    /// pieces but the last in units of 8 bytes.
    ///
    /// # Errors
    /// When there is no such interface.
    pub fn test_run_piece(&self, frame: &[u8], interface: u32, place: u8, eights: u16) -> Result<TestRunResult, Error> {
        let mark = PIECE | u32::from(place) << 16 | u32::from(eights);
        run(&self.object, FROM_CONTAINER, frame, FrameMetadata { mark, ..FrameMetadata::of(interface) }, 1)
    }

    /// As [`Self::test_run`], with a container's packet that is still to be cut into so many segments.
    ///
    /// # Errors
    /// When there is no such interface.
    pub fn test_run_segments(&self, frame: &[u8], interface: u32, segments: u16) -> Result<TestRunResult, Error> {
        let metadata = FrameMetadata { segments: segments.into(), ..FrameMetadata::of(interface) };
        run(&self.object, FROM_CONTAINER, frame, metadata, 1)
    }

    /// As [`Self::test_run`], with a program by its name. With `repeat` above 1 each repetition gets the frame as the one before left it.
    pub(super) fn run(
        &self,
        program: &'static str,
        frame: &[u8],
        interface: u32,
        repeat: u32,
    ) -> Result<TestRunResult, Error> {
        run(&self.object, program, frame, FrameMetadata::of(interface), repeat)
    }
}

/// What the kernel has with a frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct FrameMetadata {
    interface: u32,
    mark: u32,
    segments: u32,
}

impl FrameMetadata {
    pub(super) fn of(interface: u32) -> Self {
        Self { interface, mark: 0, segments: 0 }
    }
}

/// A program by its name, of a loaded object.
pub(super) fn run(
    object: &Object,
    program: &'static str,
    frame: &[u8],
    metadata: FrameMetadata,
    repeat: u32,
) -> Result<TestRunResult, Error> {
    let mut out = vec![0; frame.len() + GROWTH];
    let mut context = [0_u8; CONTEXT];
    for (at, word) in [(IFINDEX, metadata.interface), (MARK, metadata.mark), (SEGMENTS, metadata.segments)] {
        context[at..at + 4].copy_from_slice(&word.to_ne_bytes());
    }
    let input = ProgramInput {
        context_in: Some(&mut context),
        data_in: Some(frame),
        data_out: Some(&mut out),
        repeat,
        ..ProgramInput::default()
    };
    let output = all_repetitions(object, program, input)?;
    Ok(TestRunResult {
        verdict: output.return_value.into(),
        frame: output.data.map(|data| data.to_vec()).unwrap_or_default(),
        each: output.duration,
    })
}
