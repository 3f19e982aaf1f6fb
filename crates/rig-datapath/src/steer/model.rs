//! The program's rules in plain Rust: which bucket a frame is in, and when a bucket may go to another CPU.

use crate::balancer::hash::{Hasher, KEYS};
use crate::balancer::sizes::random;

use super::Steer;

/// The key of a hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key([u64; KEYS]);

impl Key {
    pub(super) fn random() -> Self {
        Self(std::array::from_fn(|_| random()))
    }

    pub(super) fn words(self) -> [u64; KEYS] {
        self.0
    }

    /// The bucket of an Ethernet frame; `None` of one that is left where it came in.
    pub fn bucket_of(self, frame: &[u8]) -> Option<u32> {
        let words = words_of(frame)?;
        Some((Hasher { key: self.0 }.of_words(words) % u64::from(Steer::BUCKETS)) as u32)
    }
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2).map(|bytes| u16::from_ne_bytes([bytes[0], bytes[1]]))
}

/// Addresses as the program has them, in memory order.
fn address(bytes: &[u8]) -> Option<[u64; 2]> {
    let octets = match *bytes {
        [a, b, c, d] => std::net::Ipv4Addr::new(a, b, c, d).to_ipv6_mapped().octets(),
        _ => bytes.try_into().ok()?,
    };
    let (high, low) = octets.split_at(8);
    Some([u64::from_ne_bytes(high.try_into().ok()?), u64::from_ne_bytes(low.try_into().ok()?)])
}

fn words_of(frame: &[u8]) -> Option<[u64; 5]> {
    const TAGS: [[u8; 2]; 2] = [[0x81, 0x00], [0x88, 0xa8]];
    let kind = frame.get(12..14)?;
    let (kind, l3) = if TAGS.iter().any(|tag| tag == kind) {
        (frame.get(16..18)?, frame.get(18..)?)
    } else {
        (kind, frame.get(14..)?)
    };
    let (source, destination, protocol, l4, whole) = match kind {
        [0x08, 0x00] => {
            let header = l3.get(..20)?;
            if header[0] >> 4 != 4 || header[0] & 15 < 5 {
                return None;
            }
            let whole = u16::from_be_bytes([header[6], header[7]]) & 0x3fff == 0;
            (&header[12..16], &header[16..20], header[9], usize::from(header[0] & 15) * 4, whole)
        }
        [0x86, 0xdd] => {
            let header = l3.get(..40)?;
            if header[0] >> 4 != 6 {
                return None;
            }
            (&header[8..24], &header[24..40], header[6], 40, true)
        }
        _ => return None,
    };
    // Eight bytes: UDP's header, and the first of TCP's.
    let ports = l3.get(l4..l4 + 8).filter(|_| whole && (protocol == 6 || protocol == 17));
    let last = match ports {
        Some(ports) => {
            let [from, to] = [half(ports, 0)?, half(ports, 2)?];
            u64::from(protocol) << 32 | u64::from(to) << 16 | u64::from(from)
        }
        None => 0,
    };
    let [a, b] = [address(source)?, address(destination)?];
    Some([a[0], a[1], b[0], b[1], last])
}

/// The thread that processes a CPU's queue, as the program sees it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Processor {
    rounds: u64,
    slept: u64,
}

impl Processor {
    /// It has taken a batch.
    pub fn took(&mut self) {
        self.rounds += 1;
    }

    /// It found its queue empty and lay down.
    pub fn lay_down(&mut self) {
        self.slept = self.rounds;
    }
}

/// What a receiving CPU has put into another one's queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Link {
    open: bool,
    rounds: u64,
}

impl Link {
    /// Those that were on their way are in the queue, or dropped.
    pub fn put(&mut self, processor: &Processor) {
        self.open = false;
        self.rounds = processor.rounds;
    }

    fn is_done(&self, processor: &Processor) -> bool {
        !self.open && processor.slept > self.rounds
    }
}

/// A bucket's packets of one receive queue: where they go, and which CPU received the last one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BucketState {
    to: Option<(usize, usize)>,
}

impl BucketState {
    /// Where the next packet goes, received on `receiver`, of a bucket that is to be on `wanted`: `links` is by receiving CPU and
    /// by that which processes.
    pub fn next(&mut self, wanted: usize, receiver: usize, links: &mut [Vec<Link>], processors: &[Processor]) -> usize {
        let cpu = match self.to {
            Some((cpu, last)) if cpu != wanted && !links[last][cpu].is_done(&processors[cpu]) => cpu,
            _ => wanted,
        };
        self.to = Some((cpu, receiver));
        links[receiver][cpu].open = true;
        cpu
    }
}
