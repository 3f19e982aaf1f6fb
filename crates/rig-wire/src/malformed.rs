//! Why bytes are no packet.

use std::error::Error;
use std::fmt;

macro_rules! reasons {
    ($($(#[$meta:meta])* $name:ident = $number:literal, $text:literal;)*) => {
        /// Why bytes are no packet of the kind that they were taken for. The numbers are stored in records: they are
        /// never given to another reason.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Malformed {
            $($(#[$meta])* $name = $number,)*
        }

        impl Malformed {
            /// All reasons, in the order of their numbers.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            fn text(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

reasons! {
    EthernetShort = 0, "Ethernet frame shorter than its header";
    VlanShort = 1, "frame ends within a VLAN tag";
    VlanDepth = 2, "more than two VLAN tags";
    ArpShort = 3, "ARP packet shorter than 28 bytes";
    ArpKind = 4, "ARP for something else than IPv4 over Ethernet";
    Ipv4Short = 5, "IPv4 packet shorter than its header";
    Ipv4Version = 6, "IPv4 EtherType with another version";
    Ipv4HeaderLength = 7, "IPv4 header length below 20 or beyond the packet";
    Ipv4TotalLength = 8, "IPv4 total length below its header or beyond the frame";
    Ipv4Checksum = 9, "IPv4 header checksum wrong";
    Ipv6Short = 10, "IPv6 packet shorter than its header";
    Ipv6Version = 11, "IPv6 EtherType with another version";
    Ipv6PayloadLength = 12, "IPv6 payload length beyond the frame";
    Ipv6Extension = 13, "IPv6 extension header beyond the packet";
    Ipv6ExtensionDepth = 14, "more than eight IPv6 extension headers";
    TcpShort = 15, "TCP segment shorter than 20 bytes";
    TcpHeaderLength = 16, "TCP data offset below 20 bytes or beyond the segment";
    TcpOption = 17, "TCP option with an impossible length";
    TcpChecksum = 18, "TCP checksum wrong";
    UdpShort = 19, "UDP datagram shorter than 8 bytes";
    UdpLength = 20, "UDP length below 8 or beyond the packet";
    UdpChecksum = 21, "UDP checksum wrong, or none over IPv6";
    IcmpShort = 22, "ICMP message shorter than 8 bytes";
    IcmpChecksum = 23, "ICMP checksum wrong";
    NdShort = 24, "neighbor discovery message shorter than its fixed part";
    NdOption = 25, "neighbor discovery option with an impossible length";
    NdHopLimit = 26, "neighbor discovery with a hop limit other than 255";
    VxlanShort = 27, "VXLAN header shorter than 8 bytes";
    VxlanFlags = 28, "VXLAN header without a valid network identifier";
    /// Not wrong in itself: netrig does not reassemble.
    Fragment = 29, "fragment of an IP packet";
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl Error for Malformed {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_numbered_without_gaps() {
        // A gap or a double number would make a table indexed by the number lie.
        for (n, reason) in Malformed::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, n, "{reason:?}");
        }
    }
}
