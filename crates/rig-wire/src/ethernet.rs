//! Ethernet II frames with up to two VLAN tags (IEEE 802.3, 802.1Q, 802.1ad). No preamble, no frame check sequence.

use std::fmt;
use std::str::FromStr;

use crate::bytes::{array, be16, put, put16, room};
use crate::{BufferTooShort, Malformed};

/// Bytes of a header without tags.
pub const HEADER: usize = 14;
/// Bytes that a tag adds.
pub const TAG: usize = 4;

/// EtherTypes (IEEE registration authority).
pub mod ethertype {
    pub const IPV4: u16 = 0x0800;
    pub const ARP: u16 = 0x0806;
    pub const VLAN: u16 = 0x8100;
    pub const IPV6: u16 = 0x86dd;
    pub const SERVICE_VLAN: u16 = 0x88a8;
}

/// A MAC address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// Broadcast is one too.
    #[inline]
    pub fn is_multicast(self) -> bool {
        self.0[0] & 1 == 1
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// What `Display` writes, in either case.
impl FromStr for Mac {
    type Err = InvalidMac;

    fn from_str(text: &str) -> Result<Self, InvalidMac> {
        let mut mac = Self::default();
        let mut bytes = text.split(':');
        for to in &mut mac.0 {
            let byte =
                bytes.next().filter(|byte| byte.len() == 2 && byte.bytes().all(|digit| digit.is_ascii_hexdigit()));
            *to = byte.and_then(|byte| u8::from_str_radix(byte, 16).ok()).ok_or(InvalidMac)?;
        }
        if bytes.next().is_none() { Ok(mac) } else { Err(InvalidMac) }
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Mac {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Mac {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(|error| serde::de::Error::custom(format_args!("'{text}': {error}")))
    }
}

/// A text that is no MAC address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidMac;

impl fmt::Display for InvalidMac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no MAC address: write six bytes, as in 02:00:00:00:00:01")
    }
}

impl std::error::Error for InvalidMac {}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A frame.
#[derive(Debug, Clone, Copy)]
pub struct Ethernet<'a> {
    bytes: &'a [u8],
    tags: u8,
}

impl<'a> Ethernet<'a> {
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        if bytes.len() < HEADER {
            return Err(Malformed::EthernetShort);
        }
        let mut tags = 0;
        while matches!(be16(bytes, 12 + tags * TAG), ethertype::VLAN | ethertype::SERVICE_VLAN) {
            tags += 1;
            if tags > 2 {
                return Err(Malformed::VlanDepth);
            }
            if bytes.len() < HEADER + tags * TAG {
                return Err(Malformed::VlanShort);
            }
        }
        Ok(Self { bytes, tags: tags as u8 })
    }

    #[inline]
    pub fn destination(&self) -> Mac {
        Mac(array(self.bytes, 0))
    }

    #[inline]
    pub fn source(&self) -> Mac {
        Mac(array(self.bytes, 6))
    }

    /// The VLAN identifiers, 0 to 4095, the outer one first.
    #[inline]
    pub fn vlans(&self) -> impl Iterator<Item = u16> + use<'a> {
        let bytes = self.bytes;
        (0..usize::from(self.tags)).map(move |tag| be16(bytes, HEADER + tag * TAG) & 0xfff)
    }

    /// The EtherType after the tags; below 1536 it is the length of an IEEE 802.3 frame.
    #[inline]
    pub fn ethertype(&self) -> u16 {
        be16(self.bytes, 12 + usize::from(self.tags) * TAG)
    }

    /// What follows the header and its tags, padding included.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        &self.bytes[HEADER + usize::from(self.tags) * TAG..]
    }
}

/// A header with at most one tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub destination: Mac,
    pub source: Mac,
    /// The tag's identifier, of which 12 bits are used; priority 0.
    pub vlan: Option<u16>,
    pub ethertype: u16,
}

impl Header {
    pub const fn len(&self) -> usize {
        HEADER + if self.vlan.is_some() { TAG } else { 0 }
    }

    pub const fn is_empty(&self) -> bool {
        false
    }

    pub fn write(&self, buffer: &mut [u8]) -> Result<usize, BufferTooShort> {
        let len = self.len();
        let bytes = room(buffer, len)?;
        put(bytes, 0, &self.destination.0);
        put(bytes, 6, &self.source.0);
        if let Some(vlan) = self.vlan {
            put16(bytes, 12, ethertype::VLAN);
            put16(bytes, 14, vlan & 0xfff);
        }
        put16(bytes, len - 2, self.ethertype);
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mac_address_is_read_as_it_is_written() {
        let mac = Mac([2, 0, 0xab, 0, 0, 0x0c]);
        assert_eq!(mac.to_string().parse(), Ok(mac));
        assert_eq!("02:00:AB:00:00:0C".parse(), Ok(mac));
        for text in ["", "02:00:ab:00:00", "02:00:ab:00:00:0c:00", "02:00:ab:00:00:+c", "2:0:ab:0:0:c", "0200ab00000c"]
        {
            assert_eq!(text.parse::<Mac>(), Err(InvalidMac), "{text}");
        }
    }
}
