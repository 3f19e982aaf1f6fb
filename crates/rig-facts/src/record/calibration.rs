//! What two looks at the machine, before a trial and after it, say together.

use rig_stats::sample::Sample;

use super::{Calibration, CalibrationTimes};

impl Calibration {
    /// The time of the arithmetic on a CPU, nanoseconds: the mean over the CPUs, before and after the trial.
    pub fn work_ns(&self) -> Option<f64> {
        let times = [&self.before, &self.after].into_iter().flat_map(|gauge| &gauge.work_ns);
        times.map(|(_, ns)| *ns as f64).collect::<Sample>().mean()
    }

    /// By what factor the work takes longer with all CPUs at it, mean over the CPUs, before and after.
    pub fn sharing(&self) -> Option<f64> {
        let of_one = |gauge: &CalibrationTimes| {
            let mean = |times: &[(u32, u64)]| times.iter().map(|(_, ns)| *ns as f64).collect::<Sample>().mean();
            Some(mean(&gauge.together_ns)? / mean(&gauge.work_ns).filter(|alone| *alone > 0.0)?)
        };
        [&self.before, &self.after].into_iter().filter_map(of_one).collect::<Sample>().mean()
    }

    pub fn memory_ns(&self) -> Option<f64> {
        self.of_both(|gauge| gauge.memory_ns)
    }

    pub fn wake_ns(&self) -> Option<f64> {
        self.of_both(|gauge| gauge.wake_ns)
    }

    fn of_both(&self, of: impl Fn(&CalibrationTimes) -> Option<u64>) -> Option<f64> {
        [&self.before, &self.after].into_iter().filter_map(of).map(|ns| ns as f64).collect::<Sample>().mean()
    }
}
