//! ICMPv6 (RFC 4443) with neighbor solicitation and advertisement (RFC 4861).

use std::net::Ipv6Addr;

use crate::bytes::{array, be16, put, put16, room};
use crate::checksum::PartialChecksum;
use crate::ethernet::Mac;
use crate::{BufferTooShort, Malformed};

/// Bytes of the fixed part of every message here.
pub const HEADER: usize = 8;
/// Bytes of a solicitation or advertisement with its link-layer address option.
pub const NEIGHBOR: usize = 32;

/// Message types (IANA "ICMPv6 Parameters").
pub mod kind {
    pub const UNREACHABLE: u8 = 1;
    pub const TOO_BIG: u8 = 2;
    pub const ECHO_REQUEST: u8 = 128;
    pub const ECHO_REPLY: u8 = 129;
    pub const NEIGHBOR_SOLICITATION: u8 = 135;
    pub const NEIGHBOR_ADVERTISEMENT: u8 = 136;
}

const SOURCE_LINK_LAYER: u8 = 1;
const TARGET_LINK_LAYER: u8 = 2;

/// A message.
#[derive(Debug, Clone, Copy)]
pub struct Icmpv6<'a>(&'a [u8]);

impl<'a> Icmpv6<'a> {
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        if bytes.len() < HEADER { Err(Malformed::IcmpShort) } else { Ok(Self(bytes)) }
    }

    /// `pseudo` is the packet's: unlike ICMP's, the checksum covers the addresses.
    pub fn verify(&self, pseudo: PartialChecksum) -> Result<(), Malformed> {
        if pseudo.bytes(self.0).verifies() { Ok(()) } else { Err(Malformed::IcmpChecksum) }
    }

    pub fn kind(&self) -> u8 {
        self.0[0]
    }

    pub fn code(&self) -> u8 {
        self.0[1]
    }

    /// Of an echo: identifier and sequence number.
    pub fn echo(&self) -> (u16, u16) {
        (be16(self.0, 4), be16(self.0, 6))
    }

    /// What follows the first eight bytes.
    pub fn payload(&self) -> &'a [u8] {
        &self.0[HEADER..]
    }

    /// The neighbor discovery that this is; `None` for other messages. `hop_limit` is the packet's: anything else than
    /// 255 has come over a router and is not to be believed (RFC 4861, 7.1).
    pub fn neighbor(&self, hop_limit: u8) -> Result<Option<Neighbor>, Malformed> {
        let solicitation = match self.kind() {
            kind::NEIGHBOR_SOLICITATION => true,
            kind::NEIGHBOR_ADVERTISEMENT => false,
            _ => return Ok(None),
        };
        if hop_limit != 255 {
            return Err(Malformed::NdHopLimit);
        }
        let options = self.0.get(24..).ok_or(Malformed::NdShort)?;
        let target = Ipv6Addr::from(array::<16>(self.0, 8));
        let wanted = if solicitation { SOURCE_LINK_LAYER } else { TARGET_LINK_LAYER };
        let mac = link_layer(options, wanted)?;
        Ok(Some(match solicitation {
            true => Neighbor::Solicitation { target, source: mac },
            false => Neighbor::Advertisement { target, mac, solicited: self.0[4] & 0x40 != 0 },
        }))
    }
}

/// The Ethernet address in the option `wanted`, if it is there.
fn link_layer(mut options: &[u8], wanted: u8) -> Result<Option<Mac>, Malformed> {
    let mut found = None;
    while let [kind, units, ..] = *options {
        let length = usize::from(units) * 8;
        if length == 0 || length > options.len() {
            return Err(Malformed::NdOption);
        }
        if kind == wanted {
            found = Some(Mac(array(options, 2)));
        }
        options = &options[length..];
    }
    if options.is_empty() { Ok(found) } else { Err(Malformed::NdOption) }
}

/// Neighbor discovery: a question for the MAC address of `target`, and the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Neighbor {
    /// `source` is missing when the sender has no address yet (RFC 4862, duplicate detection).
    Solicitation { target: Ipv6Addr, source: Option<Mac> },
    /// An advertisement overrides what was known, and is from a host, not a router, when written here.
    Advertisement { target: Ipv6Addr, mac: Option<Mac>, solicited: bool },
}

impl Neighbor {
    /// Writes the message, with the option when there is an address; returns its length. `pseudo` is the packet's for
    /// a payload of that length: [`Neighbor::len`].
    pub fn write(&self, buffer: &mut [u8], pseudo: PartialChecksum) -> Result<usize, BufferTooShort> {
        let bytes = room(buffer, self.len())?;
        let (message, target, mac, option, bits) = match *self {
            Self::Solicitation { target, source } => {
                (kind::NEIGHBOR_SOLICITATION, target, source, SOURCE_LINK_LAYER, 0)
            }
            Self::Advertisement { target, mac, solicited } => {
                let bits = 0x20 | if solicited { 0x40 } else { 0 };
                (kind::NEIGHBOR_ADVERTISEMENT, target, mac, TARGET_LINK_LAYER, bits)
            }
        };
        put(bytes, 0, &[message, 0, 0, 0, bits, 0, 0, 0]);
        put(bytes, 8, &target.octets());
        if let Some(mac) = mac {
            put(bytes, 24, &[option, 1]);
            put(bytes, 26, &mac.0);
        }
        let checksum = pseudo.bytes(bytes).checksum();
        put16(bytes, 2, checksum);
        Ok(bytes.len())
    }

    /// Bytes of the message.
    pub const fn len(&self) -> usize {
        match self {
            Self::Solicitation { source: None, .. } | Self::Advertisement { mac: None, .. } => NEIGHBOR - 8,
            _ => NEIGHBOR,
        }
    }

    pub const fn is_empty(&self) -> bool {
        false
    }
}

/// The multicast address that listens for solicitations of `target` (RFC 4291, 2.7.1) and its MAC (RFC 2464, 7).
pub fn solicited_node(target: Ipv6Addr) -> (Ipv6Addr, Mac) {
    let [.., a, b, c] = target.octets();
    let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(a), u16::from(b) << 8 | u16::from(c));
    (group, Mac([0x33, 0x33, 0xff, a, b, c]))
}

/// Writes an echo request or reply with its data; returns the message's length.
pub fn write_echo(
    buffer: &mut [u8],
    kind: u8,
    echo: (u16, u16),
    data: &[u8],
    pseudo: PartialChecksum,
) -> Result<usize, BufferTooShort> {
    let bytes = room(buffer, HEADER + data.len())?;
    put(bytes, 0, &[kind, 0, 0, 0]);
    put16(bytes, 4, echo.0);
    put16(bytes, 6, echo.1);
    put(bytes, HEADER, data);
    let checksum = pseudo.bytes(bytes).checksum();
    put16(bytes, 2, checksum);
    Ok(bytes.len())
}
