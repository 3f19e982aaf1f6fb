//! One phase of data: a thread moves it, this one watches the time and the control connection.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use rig_sys::clock::monotonic_ns;

use super::data::LOOK;

/// What comes of a look at a phase that goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watch {
    /// The next look is not later than at this time of CLOCK_MONOTONIC, ns; `None` leaves it to the phase.
    GoesOn(Option<u64>),
    Stops,
}

/// Has `work` done on a thread of its own, and looks at it with `watch` until it has ended. `work` sees `stop` set once a look says so.
///
/// # Panics
/// When `work` does.
pub fn run_phase<T: Send>(stop: &AtomicBool, work: impl FnOnce() -> T + Send, mut watch: impl FnMut() -> Watch) -> T {
    thread::scope(|scope| {
        let (done, ended) = channel::<()>();
        let worker = scope.spawn(move || {
            let result = work();
            // Nobody listens any more only where the watch has panicked.
            let _ = done.send(());
            result
        });
        let mut look = LOOK;
        while ended.recv_timeout(look) == Err(RecvTimeoutError::Timeout) {
            look = match watch() {
                Watch::GoesOn(at_ns) => {
                    let left = at_ns.map(|at_ns| Duration::from_nanos(at_ns.saturating_sub(monotonic_ns())));
                    left.map_or(LOOK, |left| left.min(LOOK))
                }
                Watch::Stops => {
                    stop.store(true, Ordering::Relaxed);
                    LOOK
                }
            };
        }
        match worker.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}
