//! The values in the maps, as bpf/measure/receive.h has them.

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::plain::plain;

plain! {
    pub(super) struct QueueTime: 32 {
        time: u64,
        packets: u64,
        polls: u64,
        cpu: u32,
        pad: u32,
    }

    pub(super) struct CpuTime: 72 {
        idle_since: u64,
        idle: u64,
        since: u64,
        soft: u64,
        polls_of_idle: u64,
        watched: u64,
        foreign: u64,
        backlog: u64,
        backlog_packets: u64,
    }
}
