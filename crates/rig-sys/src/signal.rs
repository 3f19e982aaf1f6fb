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
