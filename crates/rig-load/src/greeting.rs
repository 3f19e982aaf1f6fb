//! What the two ends of a UDP flow say to each other beside the load: that the flow stands, and what went through it.
//!
//! All are datagrams of 40 bytes: a magic number, then the kind, the flow's number, the run's token and two values,
//! each in network byte order. The magic number tells them from payload.
//!
//! ```text
//! connecting end                       listening end
//!   Hello (repeated until welcomed) ------->           connects a socket of its own to the sender
//!           <------------------------- Welcome         (once for each Hello)
//!   ... load ...
//! sending end                          receiving end
//!   Farewell (repeated until taken) ------->           knows what was sent inside the window
//!           <------------------------- Taken
//! ```

/// Bytes of a greeting.
pub(crate) const LENGTH: usize = 40;

/// "netrig", and a version of this format.
const MAGIC: [u8; 8] = *b"netrig\0\x01";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `values.0`: flows in all.
    Hello,
    Welcome,
    /// `values`: the first sequence number that was sent inside the window, and the first one after it.
    Farewell,
    Taken,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Greeting {
    pub(crate) kind: Kind,
    pub(crate) flow: u32,
    /// Chosen by the connecting end; greetings of other runs have another.
    pub(crate) token: u64,
    pub(crate) values: (u64, u64),
}

/// Whether a datagram is a greeting, of any run, and no payload.
#[inline]
pub(crate) fn is_greeting(datagram: &[u8]) -> bool {
    datagram.len() == LENGTH && datagram.starts_with(&MAGIC)
}

impl Greeting {
    pub(crate) fn encode(&self) -> [u8; LENGTH] {
        let kind: u32 = match self.kind {
            Kind::Hello => 1,
            Kind::Welcome => 2,
            Kind::Farewell => 3,
            Kind::Taken => 4,
        };
        let mut bytes = [0; LENGTH];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&kind.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.flow.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.token.to_be_bytes());
        bytes[24..32].copy_from_slice(&self.values.0.to_be_bytes());
        bytes[32..].copy_from_slice(&self.values.1.to_be_bytes());
        bytes
    }

    /// `None` for anything else.
    pub(crate) fn decode(datagram: &[u8]) -> Option<Self> {
        let bytes: &[u8; LENGTH] = datagram.try_into().ok()?;
        if !is_greeting(bytes) {
            return None;
        }
        let u32_at = |at: usize| bytes[at..at + 4].iter().fold(0, |value, &byte| value << 8 | u32::from(byte));
        let u64_at = |at: usize| u64::from(u32_at(at)) << 32 | u64::from(u32_at(at + 4));
        let kind = match u32_at(8) {
            1 => Kind::Hello,
            2 => Kind::Welcome,
            3 => Kind::Farewell,
            4 => Kind::Taken,
            _ => return None,
        };
        Some(Self { kind, flow: u32_at(12), token: u64_at(16), values: (u64_at(24), u64_at(32)) })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn reads_back_as_it_was(
            kind in prop::sample::select(vec![Kind::Hello, Kind::Welcome, Kind::Farewell, Kind::Taken]),
            flow: u32,
            token: u64,
            values: (u64, u64),
        ) {
            let greeting = Greeting { kind, flow, token, values };
            let bytes = greeting.encode();
            prop_assert!(is_greeting(&bytes));
            prop_assert_eq!(Greeting::decode(&bytes), Some(greeting));
            prop_assert_eq!(Greeting::decode(&bytes[1..]), None);
        }

        #[test]
        fn other_datagrams_are_none(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            prop_assert_eq!(Greeting::decode(&bytes), None);
        }

        #[test]
        fn an_unknown_kind_is_none_but_no_payload_either(kind in 5u32..) {
            let mut bytes = Greeting { kind: Kind::Hello, flow: 0, token: 0, values: (0, 0) }.encode();
            bytes[8..12].copy_from_slice(&kind.to_be_bytes());
            prop_assert!(is_greeting(&bytes));
            prop_assert_eq!(Greeting::decode(&bytes), None);
        }
    }
}
