//! The values in the maps, as bpf/spreader/steer.h has them.

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::balancer::hash::KEYS;
use crate::plain::plain;

/// Of a CPU in the table: the bucket does not wait for its old one.
pub(super) const AT_ONCE: u32 = 1 << 31;

plain! {
    pub(super) struct Steering: 104 {
        key: [u64; KEYS],
        queues: u32,
        strict: u32,
        completes: u32,
        cpus: u32,
    }

    /// The kernel's (linux/bpf.h).
    pub(super) struct BpfCpumapVal: 8 {
        qsize: u32,
        bpf_prog: i32,
    }

    pub(super) struct BucketState: 40 {
        packets: u64,
        bytes: u64,
        forced: u64,
        waits_since: u64,
        cpu: u32,
        receiver: u32,
    }

    pub(super) struct Processor: 64 {
        rounds: u64,
        slept: u64,
        time: u64,
        since: u64,
        packets: u64,
        refused: u64,
        softirq: u64,
        thread: u32,
        pad: u32,
    }
}
