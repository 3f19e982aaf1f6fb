//! The signals that ask a program to stop.

use std::io;
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

/// Calls `stop` at the first SIGINT, SIGTERM or SIGHUP, on a thread of its own; the second ends the process at once, as
/// the signal would have done without this.
pub fn on_stop_signal(stop: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let watch = move || {
        let mut stop = Some(stop);
        for signal in signals.forever() {
            match stop.take() {
                Some(stop) => stop(),
                None => {
                    let _ = emulate_default_handler(signal);
                }
            }
        }
    };
    thread::Builder::new().name("signals".into()).spawn(watch).map(|_| ())
}

/// Calls `stop` at SIGINT and SIGTERM and `hang_up` at each SIGHUP, on a thread of its own, as daemons take them; a second
/// SIGINT or SIGTERM ends the process at once.
pub fn on_stop_or_hangup(
    stop: impl FnOnce() + Send + 'static,
    mut hang_up: impl FnMut() + Send + 'static,
) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let watch = move || {
        let mut stop = Some(stop);
        for signal in signals.forever() {
            match (signal, stop.take()) {
                (SIGHUP, not_yet) => {
                    stop = not_yet;
                    hang_up();
                }
                (_, Some(stop)) => stop(),
                (_, None) => {
                    let _ = emulate_default_handler(signal);
                }
            }
        }
    };
    thread::Builder::new().name("signals".into()).spawn(watch).map(|_| ())
}
