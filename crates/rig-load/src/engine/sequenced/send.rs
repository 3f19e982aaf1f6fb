//! Sending numbered datagrams.

use rig_sys::clock::monotonic_ns;
use rig_sys::socket::{SendBatch, set_segment_size};
use rustix::io::Errno;

use super::write_header;
use crate::engine::pace::Pace;
use crate::engine::{Connection, Engine, LoadProgress, SharedBudget, ThreadFailure, failure};

/// Messages for each system call.
const MESSAGES: usize = 8;
/// Datagrams that the kernel cuts one message into; UDP_MAX_SEGMENTS is 64 before Linux 6.9.
const SEGMENTS: usize = 64;
/// The most payload of one message.
const LONGEST: usize = 65_507;

#[derive(Debug)]
pub(in crate::engine) struct Sender {
    /// The payload of each datagram, of the datagram's length.
    pub(in crate::engine) payload: Vec<u8>,
    pub(in crate::engine) wide: bool,
    /// Bytes per second.
    pub(in crate::engine) rate: Option<u64>,
    /// Datagrams that leave together whenever the rate allows one.
    pub(in crate::engine) burst: Option<u32>,
    pub(in crate::engine) budget: Option<SharedBudget>,
}

/// Messages of one shape.
struct Shape {
    batch: SendBatch,
    /// Datagrams in each.
    segments: usize,
}

impl Shape {
    fn new(messages: usize, segments: usize, payload: &[u8]) -> Self {
        Self { batch: SendBatch::new(messages, &payload.repeat(segments)), segments }
    }
}

impl Sender {
    /// Datagrams that the kernel may cut a message into; 1 where it cannot.
    fn most_segments(&self, connection: &Connection) -> usize {
        let length = self.payload.len().max(1);
        let segments = (LONGEST / length).clamp(1, SEGMENTS);
        match u32::try_from(length) {
            Ok(bytes) if segments > 1 && set_segment_size(&connection.socket, bytes).is_ok() => segments,
            _ => 1,
        }
    }

    /// Numbers, stamps and sends up to `count` datagrams of one shape. Returns how many left.
    fn push(&self, connection: &Connection, shape: &mut Shape, count: usize, next: u64) -> Result<usize, Errno> {
        let length = self.payload.len();
        let messages = (count / shape.segments).clamp(1, shape.batch.messages());
        let now_us = monotonic_ns() / 1_000;
        for message in 0..messages {
            for (index, datagram) in shape.batch.message(message).chunks_mut(length.max(1)).enumerate() {
                let number = next + (message * shape.segments + index) as u64;
                write_header(datagram, self.wide, now_us, number);
            }
        }
        shape.batch.send(&connection.socket, messages, true).map(|sent| sent * shape.segments)
    }
}

impl Engine for Sender {
    fn run(&mut self, connections: &[&Connection], progress: &LoadProgress) -> Result<(), ThreadFailure> {
        let connection = connections[0];
        let length = self.payload.len();
        let mut pace = Pace::new(self.rate);
        // How many may leave together at this rate.
        let together = match (&pace, self.burst) {
            (_, Some(burst)) => burst.max(1) as usize,
            (Some(pace), None) => pace.batch(length, MESSAGES * SEGMENTS),
            (None, None) => MESSAGES * SEGMENTS,
        };
        let segments = if together > 1 { self.most_segments(connection).min(together) } else { 1 };
        let mut cut = (segments > 1).then(|| Shape::new(MESSAGES, segments, &self.payload));
        let mut single = Shape::new(MESSAGES, 1, &self.payload);
        let mut next = 1;
        while !progress.is_ending() {
            if let Some(pace) = &mut pace
                && !pace.wait(progress)
            {
                break;
            }
            let mut left = together;
            while left > 0 && !progress.is_ending() {
                let allowed = match &self.budget {
                    None => left,
                    Some(budget) => match budget.claim(left, length) {
                        0 => return Ok(()),
                        allowed => allowed,
                    },
                };
                let shape = match &mut cut {
                    Some(shape) if allowed >= shape.segments => shape,
                    _ => &mut single,
                };
                let result = self.push(connection, shape, allowed, next);
                let sent = *result.as_ref().unwrap_or(&0);
                if let Some(budget) = &self.budget {
                    budget.give_back(allowed - sent, length);
                }
                match result {
                    Ok(sent) => {
                        next += sent as u64;
                        left -= sent.min(left);
                        connection.tally.add_units(sent as u64);
                        connection.tally.add(sent * length);
                        if let Some(pace) = &mut pace {
                            pace.spend(sent * length);
                        }
                    }
                    // A queue that is full and an answer that nobody listens do not end a stream of datagrams.
                    Err(Errno::INTR | Errno::AGAIN | Errno::NOBUFS | Errno::CONNREFUSED) => {}
                    // The way out has no room for what the kernel would cut, or cannot cut: one by one then.
                    Err(Errno::INVAL | Errno::IO | Errno::MSGSIZE | Errno::OPNOTSUPP) if cut.is_some() => {
                        let _ = set_segment_size(&connection.socket, 0);
                        cut = None;
                    }
                    Err(_) if progress.is_ending() => return Ok(()),
                    Err(errno) => return Err(failure("send to", connection, &std::io::Error::from(errno))),
                }
            }
        }
        Ok(())
    }
}
