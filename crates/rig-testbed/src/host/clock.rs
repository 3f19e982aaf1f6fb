//! How far a host's clock is from the runner's.

use anyhow::Result;
use rig_sys::clock::monotonic_ns;
use serde::{Deserialize, Serialize};

/// What is to be added to a time of the runner's CLOCK_MONOTONIC to have that of a host's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockOffset {
    pub ns: i64,
    /// The true offset is not further from `ns` than this, as long as the clocks run alike.
    pub bound_ns: u64,
}

/// Questions that are asked; the one that was answered fastest bounds best.
const QUESTIONS: usize = 8;

/// Asks for a host's time several times. It was read between question and answer, so that half the time between both
/// bounds the error (Cristian, "Probabilistic clock synchronization", 1989).
pub(super) fn measure(now: impl Fn() -> Result<u64>) -> Result<ClockOffset> {
    let ask = || -> Result<ClockOffset> {
        let asked = monotonic_ns();
        let theirs = now()?;
        Ok(ClockOffset::from(asked, theirs, monotonic_ns()))
    };
    let mut best = ask()?;
    for _ in 1..QUESTIONS {
        let next = ask()?;
        if next.bound_ns < best.bound_ns {
            best = next;
        }
    }
    Ok(best)
}

impl ClockOffset {
    /// The offset of the runner's own clock to itself.
    pub const NONE: Self = Self { ns: 0, bound_ns: 0 };

    /// A time of the host's clock by the runner's.
    pub fn here(self, host_ns: u64) -> u64 {
        host_ns.saturating_add_signed(self.ns.saturating_neg())
    }

    /// The offset of that clock of which `other` is the offset, to the clock of which this one is.
    pub fn to(self, other: Self) -> Self {
        other.plus(self.reversed())
    }

    /// The offset of a clock that is `further` from the one of which this is the offset.
    pub fn plus(self, further: Self) -> Self {
        let bound_ns = self.bound_ns.saturating_add(further.bound_ns);
        Self { ns: self.ns.saturating_add(further.ns), bound_ns }
    }

    /// That of the runner's clock to the host's.
    pub fn reversed(self) -> Self {
        Self { ns: self.ns.saturating_neg(), ..self }
    }

    fn from(asked: u64, theirs: u64, answered: u64) -> Self {
        let halfway = answered.saturating_sub(asked).div_ceil(2);
        let ns = i128::from(theirs) - i128::from(asked + halfway);
        Self { ns: i64::try_from(ns).unwrap_or(if ns < 0 { i64::MIN } else { i64::MAX }), bound_ns: halfway }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_true_offset_is_within_the_bound_however_the_way_is_divided() {
        for (out, back) in [(0, 0), (1, 0), (0, 1), (10, 30), (30, 11), (1000, 0)] {
            for truth in [-5_000_000_000_i64, -1, 0, 1, 5_000_000_000] {
                let asked = 10_000_000_000_u64;
                let theirs = (asked + out).checked_add_signed(truth).unwrap();
                let offset = ClockOffset::from(asked, theirs, asked + out + back);
                assert!((offset.ns - truth).unsigned_abs() <= offset.bound_ns, "{out} {back} {truth}: {offset:?}");
                assert_eq!(offset.bound_ns, (out + back).div_ceil(2));
                assert!(offset.here(theirs).abs_diff(asked + out) <= offset.bound_ns, "{offset:?}");
            }
        }
    }
}
