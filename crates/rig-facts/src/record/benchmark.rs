//! Benchmarks by a standard.

use rig_packet::benchmark::{Benchmark, MaxRate, Results};
use serde::{Deserialize, Serialize};

/// Benchmarks of frames of one size. The trial's window is a trial at the throughput.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BenchmarkRecord {
    /// Bytes of a frame with its check sequence.
    pub frame: u32,
    pub plan: Benchmark,
    pub max: MaxRate,
    /// How far the clocks by which frames were sent and received may be from what they were taken for, nanoseconds, in any trial of latency or
    /// recovery.
    pub clock_bound_ns: u64,
    pub results: Results,
}

impl BenchmarkRecord {
    /// Frames per second that uphold the first goal.
    pub fn throughput(&self) -> Option<f64> {
        self.results.throughput()
    }

    /// Whether the throughput is what the generator can send.
    pub fn is_generator_bound(&self) -> bool {
        self.results.is_generator_bound(self.max)
    }
}
