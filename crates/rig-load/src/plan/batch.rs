//! How many messages leave with one call at a rate.

/// What is handed to the kernel with one call takes at most this long at the rate, unless a single message takes longer.
/// Below ten thousand messages a second each leaves by itself.
pub(crate) const BATCH_NS: f64 = 100e3;

/// At a rate in bytes per second, of messages of so many bytes; `most` at any rate.
pub(crate) fn batch_at(rate: u64, bytes: usize, most: usize) -> usize {
    batch(1e9 / rate as f64, bytes, most)
}

/// As [`batch_at`], with a byte's time in place of the rate.
#[inline]
pub(crate) fn batch(ns_per_byte: f64, bytes: usize, most: usize) -> usize {
    ((BATCH_NS / (ns_per_byte * bytes as f64)) as usize).clamp(1, most.max(1))
}
