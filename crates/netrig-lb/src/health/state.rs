//! Whether a backend is healthy: results of probes in, transitions out. It has no clock of its own.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::check::Beginning;

/// What is known of a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// No probe has ended yet.
    Unknown,
    Up,
    Down,
}

impl Health {
    /// Whether it gets connections; one that is unknown as `begin` says.
    pub fn is_up(self, begin: Beginning) -> bool {
        match self {
            Self::Unknown => begin == Beginning::Up,
            Self::Up => true,
            Self::Down => false,
        }
    }
}

/// A backend between its probes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HealthState {
    pub health: Health,
    /// Of the wall clock: it is kept over a restart.
    pub since: SystemTime,
    /// When it came up after it had been down.
    pub recovered: Option<SystemTime>,
    /// Results in a row that speak against the state.
    contrary: u32,
}

impl HealthState {
    pub fn new(now: SystemTime) -> Self {
        Self { health: Health::Unknown, since: now, recovered: None, contrary: 0 }
    }

    /// As it was kept.
    pub fn of(health: Health, since: SystemTime, recovered: Option<SystemTime>) -> Self {
        Self { health, since, recovered, contrary: 0 }
    }

    /// Results against the state so far, and how many change it.
    pub fn progress(&self, rise: u32, fall: u32) -> (u32, u32) {
        (self.contrary, if self.health == Health::Down { rise } else { fall })
    }

    /// Takes a result; gives the new state where that has changed. The first result decides at once.
    pub fn take(&mut self, good: bool, (rise, fall): (u32, u32), now: SystemTime) -> Option<Health> {
        let speaks_for = match self.health {
            Health::Unknown => {
                let health = if good { Health::Up } else { Health::Down };
                (self.health, self.since) = (health, now);
                return Some(health);
            }
            Health::Up => good,
            Health::Down => !good,
        };
        if speaks_for {
            self.contrary = 0;
            return None;
        }
        self.contrary += 1;
        let (wanted, next) = if self.health == Health::Up { (fall, Health::Down) } else { (rise, Health::Up) };
        if self.contrary < wanted {
            return None;
        }
        let recovered = (next == Health::Up).then_some(now);
        *self = Self { health: next, since: now, recovered, contrary: 0 };
        Some(next)
    }

    /// After which time it gets another tenth, where it does not have all.
    pub fn grows_after(&self, slow_start: Duration, now: SystemTime) -> Option<Duration> {
        let tenths = Some(self.tenths(slow_start, now)).filter(|tenths| *tenths < 10)?;
        let elapsed = now.duration_since(self.recovered?).ok()?;
        // Tenths are of whole milliseconds.
        let next = Duration::from_millis((slow_start.as_millis() as u64 * u64::from(tenths)).div_ceil(10));
        Some(next.saturating_sub(elapsed))
    }

    /// Tenths of its weight that it gets, 1 to 10.
    pub fn tenths(&self, slow_start: Duration, now: SystemTime) -> u32 {
        let Some(recovered) = self.recovered.filter(|_| self.health == Health::Up) else { return 10 };
        // A clock that was set back lengthens no start.
        let Ok(elapsed) = now.duration_since(recovered) else { return 10 };
        if elapsed >= slow_start {
            return 10;
        }
        (1 + (10 * elapsed.as_millis() / slow_start.as_millis().max(1)) as u32).min(10)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const AT: SystemTime = SystemTime::UNIX_EPOCH;

    fn at(seconds: u64) -> SystemTime {
        AT + Duration::from_secs(seconds)
    }

    #[test]
    fn the_first_result_decides_and_later_ones_in_a_row() {
        let mut state = HealthState::new(AT);
        assert_eq!(state.take(false, (2, 3), at(1)), Some(Health::Down));
        assert_eq!(state.take(true, (2, 3), at(2)), None);
        assert_eq!(state.progress(2, 3), (1, 2));
        assert_eq!(state.take(false, (2, 3), at(3)), None);
        assert_eq!(state.progress(2, 3), (0, 2));
        assert_eq!(state.take(true, (2, 3), at(4)), None);
        assert_eq!(state.take(true, (2, 3), at(5)), Some(Health::Up));
        assert_eq!((state.since, state.recovered), (at(5), Some(at(5))));
        let failures: Vec<_> = (6..9).map(|second| state.take(false, (2, 3), at(second))).collect();
        assert_eq!(failures, [None, None, Some(Health::Down)]);
        assert_eq!(state.recovered, None);
    }

    #[test]
    fn weight_grows_in_tenths_after_a_recovery_alone() {
        let slow = Duration::from_secs(100);
        let mut state = HealthState::new(AT);
        state.take(true, (1, 1), at(0));
        assert_eq!(state.tenths(slow, at(1)), 10);
        state.take(false, (1, 1), at(2));
        state.take(true, (1, 1), at(1000));
        let tenths = [1000, 1009, 1010, 1055, 1099, 1100, 5].map(|second| state.tenths(slow, at(second)));
        assert_eq!(tenths, [1, 1, 2, 6, 10, 10, 10]);
        assert_eq!(state.tenths(Duration::ZERO, at(1000)), 10);
    }

    #[test]
    fn each_tenth_comes_when_that_was_said() {
        let mut state = HealthState::new(AT);
        for (good, second) in [(true, 0), (false, 1), (true, 1000)] {
            state.take(good, (1, 1), at(second));
        }
        for slow in [1, 999, 1000, 77_777].map(Duration::from_millis) {
            let (mut now, mut tenths) = (at(1000), 1);
            while let Some(after) = state.grows_after(slow, now) {
                assert!(after.is_zero() || state.tenths(slow, now + after - Duration::from_nanos(1)) == tenths);
                now += after;
                assert!(state.tenths(slow, now) > tenths, "{slow:?} {tenths}");
                tenths = state.tenths(slow, now);
            }
            assert_eq!(tenths, 10);
        }
    }

    proptest! {
        /// By the definition: it is down after `fall` failures in a row, up after `rise` successes in a row, and else as before.
        #[test]
        fn a_state_changes_when_the_last_results_agree(
            results in prop::collection::vec(any::<bool>(), 1..200), rise in 1_u32..6, fall in 1_u32..6
        ) {
            let mut state = HealthState::new(AT);
            let mut is_up = None;
            for (n, good) in results.iter().enumerate() {
                let last = |count: u32| n + 1 >= count as usize && results[n + 1 - count as usize..=n].iter().all(|of| of == good);
                let before = is_up;
                is_up = match before {
                    None => Some(*good),
                    Some(up) if up != *good && last(if *good { rise } else { fall }) => Some(*good),
                    other => other,
                };
                let changed = state.take(*good, (rise, fall), at(n as u64));
                prop_assert_eq!(state.health == Health::Up, is_up == Some(true));
                prop_assert_eq!(changed.is_some(), before != is_up);
            }
        }
    }
}
