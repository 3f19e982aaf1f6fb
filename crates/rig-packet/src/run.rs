//! The loop around an engine.

use super::Nanos;
use super::engine::Engine;
use super::family::Family;
use super::port::Port;

/// Tells the time.
pub trait Clock {
    fn now(&mut self) -> Nanos;
}

/// CLOCK_MONOTONIC.
#[derive(Debug, Clone, Copy, Default)]
pub struct Monotonic;

impl Clock for Monotonic {
    #[inline]
    fn now(&mut self) -> Nanos {
        rig_sys::clock::monotonic_ns()
    }
}

/// Time of a loop, nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    pub total: Nanos,
    /// Of that, passes that found something to do.
    pub busy: Nanos,
}

impl Usage {
    /// Adds a pass.
    pub fn add(&mut self, time: Nanos, busy: bool) {
        self.total += time;
        self.busy += if busy { time } else { 0 };
    }

    /// What part of the time since `earlier` was busy, 0 to 1; 0 when no time has passed.
    pub fn busy_since(&self, earlier: &Self) -> f64 {
        let total = self.total.saturating_sub(earlier.total);
        if total == 0 { 0.0 } else { self.busy.saturating_sub(earlier.busy) as f64 / total as f64 }
    }
}

/// A pass that is over.
#[derive(Debug, Clone, Copy)]
pub struct PassResult {
    pub end: Nanos,
    /// Whether it found something to do.
    pub busy: bool,
    /// CPU usage of all passes so far.
    pub usage: Usage,
}

/// What comes after a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PassAction {
    /// What `go_on` did is a part of the next pass.
    Next,
    /// As before, but others had the CPU since the pass ended, and that is not the engine's work.
    Rested,
    Stop,
}

impl PassAction {
    pub fn next_if(condition: bool) -> Self {
        if condition { Self::Next } else { Self::Stop }
    }
}

/// Passes through `engine`, each with the time at its begin, until `go_on`, which sees the engine after each pass, says
/// to stop.
pub fn drive<F: Family, P: Port>(
    engine: &mut Engine<F>,
    port: &mut P,
    clock: &mut impl Clock,
    mut go_on: impl FnMut(&mut Engine<F>, PassResult) -> PassAction,
) -> Usage {
    let mut usage = Usage::default();
    let mut now = clock.now();
    loop {
        let busy = engine.pass(now, port);
        let end = clock.now();
        usage.add(end - now, busy);
        now = match go_on(engine, PassResult { end, busy, usage }) {
            PassAction::Next => end,
            PassAction::Rested => {
                let back = clock.now();
                usage.add(back - end, false);
                back
            }
            PassAction::Stop => return usage,
        };
    }
}
