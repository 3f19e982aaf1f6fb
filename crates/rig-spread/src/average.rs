//! Exponentially weighted means, without arithmetic that differs between machines.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A mean that forgets. Right from the first sample on: the weight of what was before it counts for nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct DecayingMean {
    sum: f64,
    weight: f64,
}

impl DecayingMean {
    /// `value` held `over` a time; `memory` is the time after which a value counts half as much and less.
    pub fn add(&mut self, value: f64, over: Duration, memory: Duration) {
        // The first-order filter of the implicit Euler method: no exponential function, stable for any step.
        let share = over.as_secs_f64() / (over + memory).as_secs_f64();
        if value.is_finite() && share.is_finite() {
            self.sum += share * (value - self.sum);
            self.weight += share * (1.0 - self.weight);
        }
    }

    pub fn get(&self) -> f64 {
        self.known().unwrap_or(0.0)
    }

    pub fn known(&self) -> Option<f64> {
        (self.weight > 0.0).then(|| self.sum / self.weight)
    }

    pub fn scale(&mut self, factor: f64) {
        self.sum *= factor;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(10);
    const MEMORY: Duration = Duration::from_millis(30);

    #[test]
    fn the_first_sample_is_believed_and_later_ones_take_over() {
        let mut average = DecayingMean::default();
        assert_eq!(average.known(), None);
        average.add(4.0, TICK, MEMORY);
        assert_eq!(average.get(), 4.0);
        for _ in 0..40 {
            average.add(8.0, TICK, MEMORY);
        }
        assert!((average.get() - 8.0).abs() < 0.001, "{average:?}");
        average.add(f64::NAN, TICK, MEMORY);
        average.add(1.0, Duration::ZERO, MEMORY);
        assert!((average.get() - 8.0).abs() < 0.001, "{average:?}");
    }
}
