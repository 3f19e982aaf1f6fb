//! A program run on one packet, without a network: bytes in, verdict and bytes out, and what it took.

use std::time::Duration;

use libbpf_rs::{Object, ProgramInput, ProgramOutput};
use rig_sys::signal;

use crate::Error;
use crate::kernel::version;
use crate::object::program as find;

/// What an XDP program decides (linux/bpf.h, `enum xdp_action`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// A defect of the program.
    Aborted,
    Drop,
    /// Left to the kernel.
    Pass,
    /// Out by the interface that it came in by.
    Transmit,
    /// Out by another interface.
    Redirect,
    Other(u32),
}

impl From<u32> for Verdict {
    fn from(action: u32) -> Self {
        match action {
            0 => Self::Aborted,
            1 => Self::Drop,
            2 => Self::Pass,
            3 => Self::Transmit,
            4 => Self::Redirect,
            other => Self::Other(other),
        }
    }
}

/// What came of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestRunResult {
    pub verdict: Verdict,
    /// The whole frame, as the last repetition left it.
    pub frame: Vec<u8>,
    /// Mean time of one repetition, in whole nanoseconds as the kernel measures it.
    pub each: Duration,
}

/// Since when the kernel takes the context of an XDP program.
const INTERFACES: (u32, u32) = (5, 15);

/// Room in front of and behind a frame for what a program may add.
const GROWTH: usize = 256;

/// Runs the XDP program `program` of a loaded object (`BPF_PROG_TEST_RUN`, bpf(2)) in the calling thread's network
/// namespace and on its CPU.
///
/// `frame` is at least an Ethernet header. `interface` is by whose first queue it comes in: one that has an XDP program
/// attached; none for the loopback interface. With `repeat` above 1 each repetition gets the frame as the one before
/// left it.
pub fn run(
    object: &Object,
    program: &'static str,
    frame: &[u8],
    interface: Option<u32>,
    repeat: u32,
) -> Result<TestRunResult, Error> {
    let mut out = vec![0; frame.len() + GROWTH];
    // struct xdp_md: data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex.
    let words = [0, frame.len() as u32, 0, interface.unwrap_or(0), 0, 0];
    let mut context: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let input = ProgramInput {
        context_in: interface.map(|_| context.as_mut_slice()),
        data_in: Some(frame),
        data_out: Some(&mut out),
        repeat,
        ..ProgramInput::default()
    };
    let output = all_repetitions(object, program, input).map_err(|error| match error {
        Error::TestRun { source, .. }
            if interface.is_some() && version().is_some_and(|version| version < INTERFACES) =>
        {
            Error::TestRunInterface { program, source }
        }
        error => error,
    })?;
    Ok(TestRunResult {
        verdict: output.return_value.into(),
        frame: output.data.map(|data| data.to_vec()).unwrap_or_default(),
        each: output.duration,
    })
}

/// Between two repetitions the kernel gives up as soon as there is a signal for the thread, though it be one that the process ignores, such as
/// SIGCHLD while another thread starts a program: so none comes before the last.
pub(crate) fn all_repetitions<'a>(
    object: &Object,
    program: &'static str,
    input: ProgramInput<'a>,
) -> Result<ProgramOutput<'a>, Error> {
    let found = find(object, program)?;
    let failed = |source| Error::TestRun { program, source };
    signal::deferred(|| found.test_run(input)).map_err(|error| failed(error.into()))?.map_err(failed)
}
