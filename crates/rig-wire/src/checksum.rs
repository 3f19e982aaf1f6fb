//! The Internet checksum (RFC 1071): the one's complement of the one's complement sum of 16-bit words.

use std::net::{Ipv4Addr, Ipv6Addr};

/// A sum that is not yet complemented. Parts can be added in any order, if each but the last has an even length.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PartialChecksum(u64);

impl PartialChecksum {
    pub const ZERO: Self = Self(0);

    /// Adds bytes that begin at an even place of what is summed; an odd last byte is padded with zero.
    #[inline]
    #[must_use]
    pub fn bytes(self, bytes: &[u8]) -> Self {
        // Words of 32 bits into a 64-bit sum: no carry is lost below 2^32 words. One's complement sums do not depend
        // on the word size (RFC 1071, 2(B) and 2(C)).
        let mut sum = self.0;
        let (words, rest) = bytes.as_chunks::<4>();
        for word in words {
            sum += u64::from(u32::from_be_bytes(*word));
        }
        sum += match *rest {
            [] => 0,
            [a] => u64::from(a) << 24,
            [a, b] => u64::from(a) << 24 | u64::from(b) << 16,
            [a, b, c, ..] => u64::from(a) << 24 | u64::from(b) << 16 | u64::from(c) << 8,
        };
        Self(sum)
    }

    #[inline]
    #[must_use]
    pub fn word(self, word: u16) -> Self {
        Self(self.0 + u64::from(word))
    }

    #[inline]
    #[must_use]
    pub fn long(self, long: u32) -> Self {
        Self(self.0 + u64::from(long))
    }

    /// Another sum.
    #[inline]
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self(self.0 + u64::from(other.folded()))
    }

    /// The pseudo header of TCP and UDP over IPv4 (RFC 9293, 3.1; RFC 768). `length` is header and data.
    pub fn pseudo_v4(source: Ipv4Addr, destination: Ipv4Addr, protocol: u8, length: usize) -> Self {
        Self::ZERO.bytes(&source.octets()).bytes(&destination.octets()).word(protocol.into()).long(length as u32)
    }

    /// The pseudo header over IPv6 (RFC 8200, 8.1). `length` is header and data.
    pub fn pseudo_v6(source: Ipv6Addr, destination: Ipv6Addr, protocol: u8, length: usize) -> Self {
        Self::ZERO.bytes(&source.octets()).bytes(&destination.octets()).word(protocol.into()).long(length as u32)
    }

    /// The sum in 16 bits, not complemented: what a partial checksum field holds.
    #[inline]
    pub fn folded(self) -> u16 {
        let mut sum = (self.0 >> 32) + (self.0 & 0xffff_ffff);
        sum = (sum >> 32) + (sum & 0xffff_ffff);
        let mut sum = (sum >> 16) + (sum & 0xffff);
        sum = (sum >> 16) + (sum & 0xffff);
        sum = (sum >> 16) + (sum & 0xffff);
        sum as u16
    }

    /// The checksum to write.
    #[inline]
    pub fn checksum(self) -> u16 {
        !self.folded()
    }

    /// The checksum to write into a UDP header, where 0 means "none" and its equal 0xffff stands for it (RFC 768).
    #[inline]
    pub fn udp_checksum(self) -> u16 {
        match self.checksum() {
            0 => 0xffff,
            other => other,
        }
    }

    /// Whether a sum over data that contains its own checksum is right.
    #[inline]
    pub fn verifies(self) -> bool {
        self.folded() == 0xffff
    }
}

/// What a checksum field that is not wrong says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checksum {
    /// Right.
    Complete,
    /// It holds the sum of the pseudo header alone: a sender on this machine left the rest to hardware that the packet
    /// never met (CHECKSUM_PARTIAL of the Linux kernel). Nothing is known of the content.
    Unfinished,
    /// None, where the protocol allows it.
    Absent,
}

impl Checksum {
    /// `pseudo` and `bytes`, of which the checksum `field` is a part. `None` when it is wrong.
    #[inline]
    pub(crate) fn check(pseudo: PartialChecksum, bytes: &[u8], field: u16) -> Option<Self> {
        if pseudo.bytes(bytes).verifies() {
            Some(Self::Complete)
        } else if field == pseudo.folded() {
            Some(Self::Unfinished)
        } else {
            None
        }
    }
}

/// The checksum of `bytes`.
pub fn of(bytes: &[u8]) -> u16 {
    PartialChecksum::ZERO.bytes(bytes).checksum()
}

/// The checksum after one 16-bit word of what it covers changed (RFC 1624, equation 3).
#[inline]
#[must_use]
pub fn update(checksum: u16, old: u16, new: u16) -> u16 {
    PartialChecksum::ZERO.word(!checksum).word(!old).word(new).checksum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The sum as RFC 1071 defines it, word by word.
    fn by_definition(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    #[test]
    fn the_example_of_rfc_1071() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(of(&bytes), !0xddf2);
    }

    #[test]
    fn the_example_of_rfc_1624() {
        // Section 4: a header whose checksum is 0xdd2f, of which a word 0x5555 becomes 0x3285, has 0x0000 after that.
        assert_eq!(update(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    proptest! {
        #[test]
        fn is_what_the_definition_says(bytes in prop::collection::vec(any::<u8>(), 0..3000)) {
            prop_assert_eq!(of(&bytes), by_definition(&bytes));
        }

        #[test]
        fn parts_add_up(a in prop::collection::vec(any::<u8>(), 0..100), b in prop::collection::vec(any::<u8>(), 0..99)) {
            let mut a = a;
            a.truncate(a.len() / 2 * 2);
            let parts = PartialChecksum::ZERO.bytes(&a).plus(PartialChecksum::ZERO.bytes(&b));
            prop_assert_eq!(parts.checksum(), of(&[a, b].concat()));
        }

        #[test]
        fn updated_is_computed_anew(mut bytes in prop::collection::vec(any::<u8>(), 4..80), at in any::<prop::sample::Index>(), new: u16) {
            // All zeroes is the one sum with two representations.
            prop_assume!(bytes[0] != 0);
            let at = (at.index(bytes.len() - 3) + 2) / 2 * 2;
            prop_assume!(at + 2 <= bytes.len());
            let old = u16::from_be_bytes([bytes[at], bytes[at + 1]]);
            let before = of(&bytes);
            bytes[at..at + 2].copy_from_slice(&new.to_be_bytes());
            prop_assert_eq!(update(before, old, new), of(&bytes));
        }

        #[test]
        fn what_contains_its_checksum_verifies(mut bytes in prop::collection::vec(any::<u8>(), 4..80), bit in any::<prop::sample::Index>()) {
            bytes[2..4].fill(0);
            let checksum = of(&bytes);
            bytes[2..4].copy_from_slice(&checksum.to_be_bytes());
            prop_assert!(PartialChecksum::ZERO.bytes(&bytes).verifies());
            let bit = bit.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(!PartialChecksum::ZERO.bytes(&bytes).verifies());
        }
    }
}
