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
    )*
    /// What a test holds against the programs' types.
    #[cfg(test)]
    pub(crate) fn layouts() -> Vec<$crate::plain::layout::Layout> {
        vec![$($crate::plain::layout::layout!($name { $($field),* }),)*]
    }
    };
}

pub(crate) use plain;

plain! {
    /// IPv4 addresses are IPv4-mapped.
    pub(crate) struct Address: 16 {
        hi: u64,
        lo: u64,
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
        Self { hi: half(0), lo: half(8) }
    }
}

impl From<Address> for IpAddr {
    fn from(address: Address) -> Self {
        let mut octets = [0; 16];
        octets[..8].copy_from_slice(&address.hi.to_ne_bytes());
        octets[8..].copy_from_slice(&address.lo.to_ne_bytes());
        Ipv6Addr::from(octets).to_canonical()
    }
}

impl Address {
    /// As the program has them.
    pub(crate) fn words(self) -> [u64; 2] {
        [self.hi, self.lo]
    }
}

/// What a test holds against the programs' types: see layout.rs.
#[cfg(test)]
pub(crate) mod layout {
    /// A structure as Rust has it.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct Layout {
        pub(crate) name: &'static str,
        pub(crate) size: usize,
        pub(crate) fields: Vec<Field>,
    }

    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct Field {
        pub(crate) name: String,
        pub(crate) offset: usize,
        pub(crate) size: usize,
    }

    impl Field {
        /// `of` leads to the field. Names that Rust has for itself end in an underscore.
        pub(crate) fn new<T, F>(name: &str, offset: usize, _of: impl Fn(&T) -> &F) -> Self {
            Self { name: name.trim_end_matches('_').to_owned(), offset, size: size_of::<F>() }
        }
    }

    /// The [`Layout`] of a structure with these fields.
    macro_rules! layout {
        ($type:ident { $($field:ident),* $(,)? }) => {
            $crate::plain::layout::Layout {
                name: stringify!($type),
                size: size_of::<$type>(),
                fields: vec![$(
                    $crate::plain::layout::Field::new(
                        stringify!($field),
                        std::mem::offset_of!($type, $field),
                        |value: &$type| &value.$field,
                    ),
                )*],
            }
        };
    }

    pub(crate) use layout;
}
