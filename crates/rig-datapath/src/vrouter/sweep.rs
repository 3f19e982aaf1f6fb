//! Flows that have been silent for too long.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use libbpf_rs::{Object, ProgramInput, ProgramType};
use zerocopy::{FromBytes as _, IntoBytes as _};

use crate::Error;
use crate::maps::Map;
use crate::object::program;
use crate::test_run;

use super::control::Router;
use super::load::{NOTE_SHARES, SWEEP, Tables};
use super::shape::{FlowKey, Sweep, TICK_SHIFT};

/// How long a flow may be silent in both directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Contrail's for all flows, 180 s.
    pub established: Duration,
    /// TCP connections that one side has begun and the other has not answered.
    pub opening: Duration,
    /// TCP connections that both sides have closed, or that one has reset.
    pub closed: Duration,
    /// All other protocols.
    pub other: Duration,
    /// Unanswered connections of all protocols, while more than three quarters of the table, or of what their
    /// interface may have, are taken.
    pub unanswered: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            established: seconds(180),
            opening: seconds(30),
            closed: seconds(4),
            other: seconds(180),
            unanswered: seconds(5),
        }
    }
}

/// In ticks, the next whole one.
fn ticks(duration: Duration) -> u32 {
    duration.as_nanos().div_ceil(1 << TICK_SHIFT).try_into().unwrap_or(u32::MAX)
}

/// Ends flows, beside the router that has them and from any thread.
#[derive(Clone)]
pub struct Sweeper {
    object: Arc<Object>,
    tables: Arc<Tables>,
}

impl fmt::Debug for Sweeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sweeper").finish_non_exhaustive()
    }
}

impl Router {
    pub fn sweeper(&self) -> Sweeper {
        Sweeper { object: Arc::clone(&self.object), tables: Arc::clone(&self.tables) }
    }
}

impl Sweeper {
    /// Whether more than three quarters of a table with `room` for so many connections are taken.
    ///
    /// # Errors
    /// When the counts cannot be read.
    pub fn runs_short(&self, room: u32) -> Result<bool, Error> {
        let (begun, ended) = self.tables.begun_and_ended()?;
        Ok(begun.saturating_sub(ended) * 4 > u64::from(room) * 3)
    }

    /// Ends flows that have been silent for longer than `timeouts`, to 134 ms; how many. Unanswered ones end early
    /// where their interface's share or the table `runs_short`.
    ///
    /// # Errors
    /// When the kernel refuses to run the program.
    pub fn sweep(&self, timeouts: &Timeouts, runs_short: bool) -> Result<u64, Error> {
        let [established, opening, closed, other] =
            [timeouts.established, timeouts.opening, timeouts.closed, timeouts.other].map(ticks);
        let (unanswered, runs_short) = (ticks(timeouts.unanswered), runs_short.into());
        let shortest = established.min(opening).min(closed).min(other).min(unanswered);
        let mut sweep =
            Sweep { established, opening, closed, other, unanswered, runs_short, shortest, ..Sweep::default() };
        let found = program(&self.object, SWEEP)?;
        if found.prog_type() == ProgramType::Xdp {
            return self.sweep_by_keys(&sweep);
        }
        let input = ProgramInput { context_in: Some(sweep.as_mut_bytes()), ..ProgramInput::default() };
        found.test_run(input).map_err(|source| Error::TestRun { program: SWEEP, source })?;
        Ok(sweep.ended)
    }

    /// As old kernels do: a program is run for each key that it is told of (bpf/vrouter/sweep.h).
    fn sweep_by_keys(&self, sweep: &Sweep) -> Result<u64, Error> {
        let run = |program, repeat| {
            let after = test_run::run(&self.object, program, sweep.as_bytes(), None, repeat)?.frame;
            let after = Sweep::read_from_bytes(&after);
            after.map(|sweep| sweep.ended).map_err(|_| Error::Missing { kind: "result of", name: program.into() })
        };
        run(NOTE_SHARES, self.tables.interfaces.entries())?;
        let swept = Map::of(&self.object, "swept", size_of::<FlowKey>())?;
        let mut ended = 0;
        for keys in self.tables.flows.keys::<FlowKey>().chunks(swept.entries() as usize) {
            swept.set_range(0, keys)?;
            ended += run(SWEEP, keys.len() as u32)?;
        }
        Ok(ended)
    }
}
