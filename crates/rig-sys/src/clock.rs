//! The monotonic clock, which all processes of one machine share.

use std::time::Duration;

use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec, clock_gettime};

/// Nanoseconds of CLOCK_MONOTONIC.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Sleeps until `deadline_ns` of CLOCK_MONOTONIC; returns at once when it has passed.
pub fn sleep_until(deadline_ns: u64) {
    let deadline = Timespec { tv_sec: (deadline_ns / 1_000_000_000) as _, tv_nsec: (deadline_ns % 1_000_000_000) as _ };
    // An absolute sleep that a signal cut short is simply started again.
    while clock_nanosleep_absolute(ClockId::Monotonic, &deadline).is_err() && monotonic_ns() < deadline_ns {}
}

/// [`monotonic_ns`] plus `delay`.
pub fn monotonic_after(delay: Duration) -> u64 {
    monotonic_ns() + delay.as_nanos() as u64
}
