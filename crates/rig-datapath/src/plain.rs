//! Plain data whose bytes are what programs see.

use std::net::{IpAddr, Ipv6Addr};

use zerocopy::{FromBytes, Immutable, IntoBytes};

macro_rules! plain {
    ($($(#[$meta:meta])* $visibility:vis struct $name:ident: $size:literal { $($field:ident: $type:ty,)* })*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable)]
        #[repr(C)]
        $visibility struct $name {
            $(pub(crate) $field: $type,)*
        }
        const _: () = assert!(size_of::<$name>() == $size);
    )*};
}

pub(crate) use plain;

plain! {
    /// IPv4 addresses are IPv4-mapped.
    pub(crate) struct Address: 16 {
        bytes: [u64; 2],
    }
}

impl From<IpAddr> for Address {
    fn from(address: IpAddr) -> Self {
        let octets = match address {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            IpAddr::V6(v6) => v6.octets(),
        };
        let half = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&octets[at..at + 8]);
            u64::from_ne_bytes(bytes)
        };
        Self { bytes: [half(0), half(8)] }
    }
}

impl From<Address> for IpAddr {
    fn from(address: Address) -> Self {
        let mut octets = [0; 16];
        octets[..8].copy_from_slice(&address.bytes[0].to_ne_bytes());
        octets[8..].copy_from_slice(&address.bytes[1].to_ne_bytes());
        Ipv6Addr::from(octets).to_canonical()
    }
}

impl Address {
    /// As the program has them.
    pub(crate) fn words(self) -> [u64; 2] {
        self.bytes
    }
}
