//! Samples as columns.

use rig_load::record::Sample;
use rig_stats::series::Track;

/// A worker's samples as columns.
pub fn track(samples: &[Sample]) -> Track {
    let mut track = Track::default();
    let mut before_us = 0;
    for sample in samples {
        let at_us = sample.at_ns / 1000;
        let latency = sample.latency.as_ref();
        let values = [
            ("bytes", sample.bytes),
            ("bytes_in", sample.bytes_in),
            ("units", sample.units),
            ("lost", sample.lost),
            ("retransmits", sample.retransmits.into()),
            ("latency_count", latency.map_or(0, |latency| latency.count)),
            ("latency_p50_ns", latency.map_or(0, |latency| latency.p50_ns)),
            ("latency_p90_ns", latency.map_or(0, |latency| latency.p90_ns)),
            ("latency_p99_ns", latency.map_or(0, |latency| latency.p99_ns)),
            ("latency_max_ns", latency.map_or(0, |latency| latency.max_ns)),
        ];
        track.push(at_us.saturating_sub(before_us), values);
        before_us = at_us;
    }
    track.finished()
}
