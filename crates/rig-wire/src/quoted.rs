//! The beginning of a packet, as errors of ICMP (RFC 792) and ICMPv6 (RFC 4443) quote it.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::bytes::{array, be16, be32};
use crate::{Malformed, ipv4, ipv6};

/// Bytes of the transport header that every error quotes (RFC 792).
const TRANSPORT: usize = 8;

/// What is known of a quoted packet: its checksums cannot be verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotedPacket<A> {
    pub source: A,
    pub destination: A,
    pub protocol: u8,
    /// Of TCP and UDP.
    pub source_port: u16,
    pub destination_port: u16,
    /// Of TCP.
    pub sequence: u32,
}

impl<A> QuotedPacket<A> {
    fn new(source: A, destination: A, protocol: u8, transport: &[u8]) -> Self {
        let (source_port, destination_port) = (be16(transport, 0), be16(transport, 2));
        Self { source, destination, protocol, source_port, destination_port, sequence: be32(transport, 4) }
    }
}

impl QuotedPacket<Ipv4Addr> {
    pub fn v4(bytes: &[u8]) -> Result<Self, Malformed> {
        if bytes.len() < ipv4::HEADER {
            return Err(Malformed::Ipv4Short);
        }
        if bytes[0] >> 4 != 4 {
            return Err(Malformed::Ipv4Version);
        }
        let header = usize::from(bytes[0] & 0xf) * 4;
        if header < ipv4::HEADER {
            return Err(Malformed::Ipv4HeaderLength);
        }
        let transport = bytes.get(header..header + TRANSPORT).ok_or(Malformed::Ipv4Short)?;
        Ok(Self::new(array::<4>(bytes, 12).into(), array::<4>(bytes, 16).into(), bytes[9], transport))
    }
}

impl QuotedPacket<Ipv6Addr> {
    /// Of a packet without extension headers.
    pub fn v6(bytes: &[u8]) -> Result<Self, Malformed> {
        let transport = bytes.get(ipv6::HEADER..ipv6::HEADER + TRANSPORT).ok_or(Malformed::Ipv6Short)?;
        if bytes[0] >> 4 != 6 {
            return Err(Malformed::Ipv6Version);
        }
        Ok(Self::new(array::<16>(bytes, 8).into(), array::<16>(bytes, 24).into(), bytes[6], transport))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_bytes_are_too_few_to_be_refused() {
        let mut v4 = vec![0; 28];
        v4[0] = 0x45;
        v4[20..28].copy_from_slice(&[0, 80, 1, 2, 0, 0, 0, 9]);
        let quoted = QuotedPacket::v4(&v4).expect("enough is there");
        assert_eq!((quoted.source_port, quoted.destination_port, quoted.sequence), (80, 0x102, 9));
        let mut v6 = vec![0; 48];
        v6[0] = 0x60;
        v6[40..48].copy_from_slice(&[0, 80, 1, 2, 0, 0, 0, 9]);
        let quoted = QuotedPacket::v6(&v6).expect("enough is there");
        assert_eq!((quoted.source_port, quoted.destination_port, quoted.sequence), (80, 0x102, 9));
        assert!((0..28).all(|length| QuotedPacket::v4(&v4[..length]).is_err()));
        assert!((0..48).all(|length| QuotedPacket::v6(&v6[..length]).is_err()));
        v4[0] = 0x4f;
        assert_eq!(QuotedPacket::v4(&v4), Err(Malformed::Ipv4Short));
        v4[0] = 0x44;
        assert_eq!(QuotedPacket::v4(&v4), Err(Malformed::Ipv4HeaderLength));
        assert_eq!(QuotedPacket::v6(&[v4, v6].concat()), Err(Malformed::Ipv6Version));
    }
}
