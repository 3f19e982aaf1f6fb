//! A stream of UDP datagrams.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::batch::batch_at;
use super::limits::{CONNECTIONS, THREADS, memory, range, socket_buffer};
use super::value::PlanValue;
use super::{Direction, Flow, PlanError, SocketOptions};

/// UDP datagrams, each with a sequence number and the time of its sending. Both ends get the same value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Datagrams {
    pub flow: Flow,
    /// Threads at each end; thread i serves flows i, i + threads, ...
    pub threads: u32,
    /// Flows (connected socket pairs) for each thread.
    pub connections: u32,
    /// Payload bytes of each datagram, the sequence number and the time of sending among them.
    pub message: u32,
    /// Messages handed to the kernel, or taken from it, by one system call (sendmmsg, recvmmsg); 1 makes it sendmsg and
    /// recvmsg. At a rate fewer are sent together: see [`Self::sent_together`].
    pub batch: u32,
    /// Datagrams that one message of `batch` is cut into by the kernel (UDP_SEGMENT, generic segmentation offload);
    /// 1 switches it off.
    pub segments: u32,
    /// Lets the kernel hand over several datagrams as one message (UDP_GRO).
    pub coalesce: bool,
    /// Upper limit of payload bytes per second for each sending thread. `None`: as fast as the socket takes them.
    pub throttle: Option<u64>,
    pub pacing: Pacing,
    /// Both ends read the same CLOCK_MONOTONIC, because they run on one machine, or know how far theirs are apart
    /// ([`WorkerPlan::peer_clock_ns`](super::WorkerPlan::peer_clock_ns)): the time from sending to receiving means something.
    pub shared_clock: bool,
    /// SO_SNDBUF in bytes, as asked for. `None`: kernel's default.
    pub send_buffer: Option<u32>,
    /// SO_RCVBUF in bytes, as asked for. `None`: kernel's default.
    pub receive_buffer: Option<u32>,
    /// Options that change its packets.
    #[serde(default, skip_serializing_if = "SocketOptions::is_default")]
    pub options: SocketOptions,
}

/// Who keeps the sender to its `throttle`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Pacing {
    /// The load thread, which sleeps between batches.
    #[default]
    Thread,
    /// The kernel (SO_MAX_PACING_RATE), which needs the fq queueing discipline on the way out.
    Kernel,
}

impl Datagrams {
    /// Sequence number and time of sending, 8 bytes each.
    pub const HEADER: u32 = 16;
    /// The largest payload of a UDP datagram over IPv4: 65535 less the headers of IP (20) and UDP (8).
    pub const MESSAGE_MAX: u32 = 65_507;
    /// UIO_MAXIOV of linux/uio.h.
    pub const BATCH_MAX: u32 = 1024;
    /// UDP_MAX_SEGMENTS of linux/udp.h in kernels before 6.9, twice that since.
    pub const SEGMENTS_MAX: u32 = 64;

    /// Flows of all threads together.
    pub fn total_connections(&self) -> u32 {
        self.threads.saturating_mul(self.connections)
    }

    /// Messages that one call hands to the kernel: as many as last 100 us at the thread's rate, at least one and at most
    /// the batch. Below 10,000 messages per second each leaves by itself.
    pub fn sent_together(&self) -> u32 {
        let (most, unit) = (self.batch as usize, self.message as usize * self.segments as usize);
        self.throttle.map_or(self.batch, |rate| batch_at(rate, unit, most) as u32)
    }

    pub(super) fn validate(&self, direction: Direction) -> Result<(), PlanError> {
        range(PlanValue::Threads, self.threads, 1, THREADS)?;
        range(PlanValue::Connections, self.connections, 1, CONNECTIONS)?;
        range(PlanValue::AllConnections, self.total_connections(), 1, CONNECTIONS)?;
        range(PlanValue::Datagram, self.message, Self::HEADER.into(), Self::MESSAGE_MAX.into())?;
        range(PlanValue::Batch, self.batch, 1, Self::BATCH_MAX.into())?;
        range(PlanValue::Segments, self.segments, 1, Self::SEGMENTS_MAX.into())?;
        let together = u64::from(self.segments) * u64::from(self.message);
        range(PlanValue::SegmentsTogether, together, 1, Self::MESSAGE_MAX.into())?;
        self.throttle.map_or(Ok(()), |rate| range(PlanValue::Throttle, rate, 1, u64::MAX))?;
        if self.pacing == Pacing::Kernel && self.throttle.is_none() {
            return Err(PlanError::PacingWithoutRate);
        }
        let sending = if direction == Direction::Receive { 0 } else { together };
        let receiving = match (direction, self.coalesce) {
            (Direction::Send, _) => 0,
            (_, true) => u64::from(u16::MAX),
            (_, false) => self.message.into(),
        };
        memory((sending + receiving) * u64::from(self.batch) * u64::from(self.threads))?;
        socket_buffer(PlanValue::SendBuffer, self.send_buffer)?;
        socket_buffer(PlanValue::ReceiveBuffer, self.receive_buffer)?;
        self.options.validate_for_datagrams()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagrams() -> Datagrams {
        Datagrams {
            flow: Flow::Forward,
            threads: 1,
            connections: 1,
            message: 1400,
            batch: 32,
            segments: 1,
            coalesce: false,
            throttle: None,
            pacing: Pacing::Thread,
            shared_clock: true,
            send_buffer: None,
            receive_buffer: None,
            options: Default::default(),
        }
    }

    #[track_caller]
    fn refused(load: &Datagrams, word: &str) {
        for direction in [Direction::Send, Direction::Receive, Direction::Both] {
            let error = load.validate(direction).unwrap_err().to_string();
            assert!(error.contains(word), "'{word}' is not in: {error}");
        }
    }

    #[test]
    fn the_limits_themselves_are_allowed() {
        let all = [
            Datagrams { message: 16, segments: 64, batch: 1024, ..datagrams() },
            Datagrams { message: 65_507, batch: 1, ..datagrams() },
            Datagrams { message: 1023, segments: 64, coalesce: true, ..datagrams() },
            Datagrams { threads: 1024, batch: 1, throttle: Some(1), pacing: Pacing::Kernel, ..datagrams() },
        ];
        for load in all {
            load.validate(Direction::Both).unwrap();
        }
    }

    #[test]
    fn what_is_out_of_range_is_named() {
        refused(&Datagrams { threads: 0, ..datagrams() }, "threads");
        refused(&Datagrams { connections: 0, ..datagrams() }, "connections");
        refused(&Datagrams { threads: 1000, connections: 21, ..datagrams() }, "threads x connections");
        refused(&Datagrams { message: 15, ..datagrams() }, "datagram is 15");
        refused(&Datagrams { message: 65_508, ..datagrams() }, "datagram");
        refused(&Datagrams { batch: 0, ..datagrams() }, "batch");
        refused(&Datagrams { batch: 1025, ..datagrams() }, "batch");
        refused(&Datagrams { segments: 0, ..datagrams() }, "segments");
        refused(&Datagrams { segments: 65, message: 16, ..datagrams() }, "segments");
        refused(&Datagrams { segments: 47, ..datagrams() }, "segments x datagram");
        refused(&Datagrams { throttle: Some(0), ..datagrams() }, "throttle");
        refused(&Datagrams { pacing: Pacing::Kernel, ..datagrams() }, "pacing");
        refused(&Datagrams { send_buffer: Some(0), ..datagrams() }, "send buffer");
        refused(&Datagrams { receive_buffer: Some(1 << 30), ..datagrams() }, "receive buffer");
        let options = SocketOptions { mss: Some(536), ..Default::default() };
        refused(&Datagrams { options, ..datagrams() }, "the MSS is an option of TCP");
    }

    #[test]
    fn buffers_may_not_eat_the_memory() {
        let big = Datagrams { threads: 100, batch: 1024, segments: 40, coalesce: true, ..datagrams() };
        refused(&big, "payload buffers");
        Datagrams { segments: 20, ..big.clone() }.validate(Direction::Send).unwrap();
        Datagrams { coalesce: false, ..big }.validate(Direction::Receive).unwrap();
    }
}
