//! Bytes of packets: zero-copy views, builders into a caller's buffer, checksums, the Toeplitz hash and flow keys.
//!
//! A view is made by `parse`, which checks every length once; after that no accessor can fail, and no bytes at all
//! make one panic. Bytes that are no packet give a [`Malformed`] with a numbered reason. A builder is a plain struct
//! whose `write` puts the header at the start of a buffer and returns its length, or says that the buffer is too short.
//! Numbers are in host byte order everywhere outside the buffers.

#![forbid(unsafe_code)]

pub mod arp;
mod bytes;
pub mod checksum;
pub mod ethernet;
mod flow;
pub mod icmp;
pub mod icmpv6;
pub mod ipv4;
pub mod ipv6;
mod malformed;
mod quoted;
pub mod tcp;
mod toeplitz;
pub mod udp;
pub mod vxlan;

pub use bytes::BufferTooShort;
pub use flow::FlowKey;
pub use malformed::Malformed;
pub use quoted::QuotedPacket;
pub use toeplitz::{MICROSOFT_KEY, Toeplitz};

/// Protocol numbers of the IPv4 protocol field and the IPv6 next header field (IANA "Protocol Numbers").
pub mod protocol {
    pub const ICMP: u8 = 1;
    pub const TCP: u8 = 6;
    pub const UDP: u8 = 17;
    pub const ICMPV6: u8 = 58;
}
