//! The samples of the last minute, one for each second.

use std::collections::VecDeque;

use crate::sample::Sample;

/// Seconds that are shown.
pub const SECONDS: usize = 60;

/// A value for each second, the oldest first.
pub type Track<T> = [Option<T>; SECONDS];

#[derive(Debug, Clone, Default)]
pub struct History {
    /// The oldest first; of several that end in one second the last.
    samples: VecDeque<Sample>,
}

const SECOND_NS: u64 = 1_000_000_000;

impl History {
    pub fn push(&mut self, sample: Sample) {
        let second = |sample: &Sample| sample.at_ns / SECOND_NS;
        if self.samples.back().is_some_and(|last| second(last) == second(&sample)) {
            self.samples.pop_back();
        }
        let oldest = second(&sample).saturating_sub(SECONDS as u64);
        self.samples.push_back(sample);
        while self.samples.front().is_some_and(|first| second(first) < oldest) && self.samples.len() > 1 {
            self.samples.pop_front();
        }
    }

    pub fn last(&self) -> Option<&Sample> {
        self.samples.back()
    }

    /// What `value` finds in them; a sample stands for all of its interval.
    pub fn track<T: Copy>(&self, value: impl Fn(&Sample) -> Option<T>) -> Track<T> {
        let mut track = [None; SECONDS];
        let Some(end) = self.last().map(|last| last.at_ns / SECOND_NS) else { return track };
        for sample in &self.samples {
            let found = value(sample);
            let to = sample.at_ns / SECOND_NS;
            // A second belongs to the sample that covers its end.
            let covered = ((sample.seconds + 0.5) as u64).clamp(1, SECONDS as u64);
            for second in to.saturating_sub(covered - 1)..=to {
                if let Some(ago) = end.checked_sub(second)
                    && let Some(place) = (SECONDS as u64 - 1).checked_sub(ago)
                {
                    track[place as usize] = found;
                }
            }
        }
        track
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at: f64, seconds: f64, value: u64) -> Sample {
        Sample {
            at_ns: (at * 1e9) as u64,
            seconds,
            own: crate::sample::ViewUsage { cpu: value as f64, ..Default::default() },
            ..Sample::default()
        }
    }

    fn values(history: &History) -> Track<u64> {
        history.track(|sample| Some(sample.own.cpu as u64))
    }

    #[test]
    fn each_second_has_its_last_sample() {
        let mut history = History::default();
        assert_eq!(values(&history), [None; SECONDS]);
        for (at, value) in [(100.1, 1), (100.6, 2), (101.1, 3)] {
            history.push(sample(at, 0.5, value));
        }
        let track = values(&history);
        assert_eq!(track[57..], [None, Some(2), Some(3)]);
    }

    #[test]
    fn a_long_interval_is_many_seconds_and_what_is_old_goes() {
        let mut history = History::default();
        for n in 0..50 {
            history.push(sample(1000.0 + 3.0 * f64::from(n), 3.0, u64::from(n as u32)));
        }
        let track = values(&history);
        assert_eq!(track[54..], [Some(48), Some(48), Some(48), Some(49), Some(49), Some(49)]);
        assert!(track.iter().all(Option::is_some), "{track:?}");
        assert!(history.samples.len() <= 22);
    }
}
