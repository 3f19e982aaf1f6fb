//! Addresses as plans write them.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// An address with the length of its subnet's prefix, or a subnet: `172.16.0.11/24`, `fd72:6967::/64` (RFC 4632).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cidr {
    pub address: IpAddr,
    pub prefix: u8,
}

/// A hardware address: `02:00:00:01:00:00`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Mac(pub [u8; 6]);

/// A text that is not what it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not {what}")]
pub struct ParseValueError {
    text: String,
    what: &'static str,
}

impl Cidr {
    /// The address alone: the whole of it is the prefix.
    pub fn host(address: IpAddr) -> Self {
        Self { address, prefix: if address.is_ipv4() { 32 } else { 128 } }
    }

    /// Everything, of the family of `like`.
    pub fn anywhere(like: IpAddr) -> Self {
        match like {
            IpAddr::V4(_) => Self { address: Ipv4Addr::UNSPECIFIED.into(), prefix: 0 },
            IpAddr::V6(_) => Self { address: Ipv6Addr::UNSPECIFIED.into(), prefix: 0 },
        }
    }

    /// The subnet that the address is in.
    pub fn network(self) -> Self {
        let prefix = u32::from(self.prefix);
        let address = match self.address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32u32.saturating_sub(prefix)).unwrap_or(0);
                Ipv4Addr::from_bits(address.to_bits() & mask).into()
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128u32.saturating_sub(prefix)).unwrap_or(0);
                Ipv6Addr::from_bits(address.to_bits() & mask).into()
            }
        };
        Self { address, ..self }
    }
}

impl Mac {
    /// The address of an interface, by the numbers of its node, of its namespace there and of itself: no two of a testbed
    /// have the same, and each has the same every time. Administered locally (IEEE 802, 8.4).
    pub fn of(node: usize, space: usize, interface: usize) -> Self {
        let [node_high, node_low] = (node as u16).to_be_bytes();
        let [high, low] = (interface as u16).to_be_bytes();
        Self([0x02, node_high, node_low, space as u8, high, low])
    }
}

impl From<(IpAddr, u8)> for Cidr {
    fn from((address, prefix): (IpAddr, u8)) -> Self {
        Self { address, prefix }
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

impl FromStr for Cidr {
    type Err = ParseValueError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = || {
            let (address, prefix) = text.split_once('/')?;
            let (address, prefix) = (address.parse::<IpAddr>().ok()?, prefix.parse::<u8>().ok()?);
            (prefix <= Self::host(address).prefix).then_some(Self { address, prefix })
        };
        parts().ok_or_else(|| ParseValueError { text: text.to_owned(), what: "an address with a prefix" })
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl FromStr for Mac {
    type Err = ParseValueError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bytes: Option<Vec<u8>> = text
            .split(':')
            .map(|part| u8::from_str_radix(part, 16).ok().filter(|_| part.len() == 2 && !part.starts_with('+')))
            .collect();
        let mac = bytes.and_then(|bytes| <[u8; 6]>::try_from(bytes).ok());
        mac.map(Self).ok_or_else(|| ParseValueError { text: text.to_owned(), what: "a hardware address" })
    }
}

macro_rules! as_text {
    ($($value:ty),*) => {$(
        impl From<$value> for String {
            fn from(value: $value) -> Self {
                value.to_string()
            }
        }

        impl TryFrom<String> for $value {
            type Error = ParseValueError;

            fn try_from(text: String) -> Result<Self, Self::Error> {
                text.parse()
            }
        }
    )*};
}
as_text!(Cidr, Mac);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_read_back_as_written_and_others_are_refused() {
        for text in ["172.16.0.11/24", "0.0.0.0/0", "fd72:6967::11/64", "2001:db8::1/128"] {
            assert_eq!(text.parse::<Cidr>().unwrap().to_string(), text);
        }
        for text in ["172.16.0.11", "172.16.0.11/33", "::/129", "/8", "a/8", "10.0.0.0/-1"] {
            assert!(text.parse::<Cidr>().is_err(), "{text} was taken");
        }
        assert_eq!("02:00:01:ff:00:0a".parse::<Mac>().unwrap().to_string(), "02:00:01:ff:00:0a");
        for text in
            ["", "02:00:01:ff:00", "02:00:01:ff:00:0a:01", "2:0:1:ff:0:a", "02:00:01:ff:00:zz", "+2:00:01:ff:00:0a"]
        {
            assert!(text.parse::<Mac>().is_err(), "{text} was taken");
        }
    }

    #[test]
    fn a_network_is_what_all_its_addresses_have_in_common() {
        let network = |text: &str| text.parse::<Cidr>().unwrap().network().to_string();
        assert_eq!(network("172.16.3.11/24"), "172.16.3.0/24");
        assert_eq!(network("172.16.3.11/32"), "172.16.3.11/32");
        assert_eq!(network("172.16.3.11/0"), "0.0.0.0/0");
        assert_eq!(network("fd72:6967:0:1::11/64"), "fd72:6967:0:1::/64");
        assert_eq!(network("fd72::11/0"), "::/0");
    }
}
