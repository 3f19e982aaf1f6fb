//! What every datagram of a stream begins with.
//!
//! ```text
//! bits    0              14    16                                             64
//!         +---------------+-----+----------------------------------------------+
//!         | 0x3690        |phase| sequence number                              |
//!         +---------------+-----+----------------------------------------------+
//!         | time of sending, nanoseconds of the sender's CLOCK_MONOTONIC       |
//!         +--------------------------------------------------------------------+
//! ```
//! Network byte order. The phase lets the receiver know which datagrams belong to the window without a clock in common.

use crate::plan::Datagrams;

pub(super) const LENGTH: usize = Datagrams::HEADER as usize;

/// Differs from the begin of every greeting.
const MAGIC: u64 = 0x3690 << 50;
const MAGIC_MASK: u64 = u64::MAX << 50;
const PHASE_SHIFT: u32 = 48;

/// One more than the largest sequence number: ten million a second for most of a year.
pub(super) const SEQUENCE_END: u64 = 1 << PHASE_SHIFT;

/// When a datagram was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Before,
    Window,
    After,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) phase: Phase,
    pub(super) sequence: u64,
    pub(super) sent_ns: u64,
}

impl Header {
    /// Writes the header to the begin of `datagram`, which has room for it.
    #[inline]
    pub(super) fn write(self, datagram: &mut [u8]) {
        let phase = match self.phase {
            Phase::Before => 0,
            Phase::Window => 1,
            Phase::After => 2,
        };
        let first = MAGIC | (phase << PHASE_SHIFT) | (self.sequence % SEQUENCE_END);
        datagram[..8].copy_from_slice(&first.to_be_bytes());
        datagram[8..LENGTH].copy_from_slice(&self.sent_ns.to_be_bytes());
    }

    /// `None` when `datagram` has no header.
    #[inline]
    pub(super) fn read(datagram: &[u8]) -> Option<Self> {
        let (first, rest) = datagram.split_first_chunk()?;
        let (first, sent_ns) = (u64::from_be_bytes(*first), u64::from_be_bytes(*rest.first_chunk()?));
        let phase = match (first & MAGIC_MASK == MAGIC, first >> PHASE_SHIFT & 3) {
            (true, 0) => Phase::Before,
            (true, 1) => Phase::Window,
            (true, 2) => Phase::After,
            _ => return None,
        };
        Some(Self { phase, sequence: first % SEQUENCE_END, sent_ns })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::greeting::{self, Greeting, Kind};

    proptest! {
        #[test]
        fn reads_back_as_it_was(
            phase in prop::sample::select(vec![Phase::Before, Phase::Window, Phase::After]),
            sequence in 0..SEQUENCE_END,
            sent_ns: u64,
            length in LENGTH..100,
        ) {
            let header = Header { phase, sequence, sent_ns };
            let mut datagram = vec![7; length];
            header.write(&mut datagram);
            prop_assert_eq!(Header::read(&datagram), Some(header));
            prop_assert!(!greeting::is_greeting(&datagram));
            prop_assert!(datagram[LENGTH..].iter().all(|&byte| byte == 7));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = Header::read(&bytes);
        }
    }

    #[test]
    fn a_greeting_is_no_payload() {
        let greeting = Greeting { kind: Kind::Farewell, flow: 0, token: 0, values: (0, 0) };
        assert_eq!(Header::read(&greeting.encode()), None);
        assert_eq!(Header::read(&[0x36; LENGTH - 1]), None);
    }
}
