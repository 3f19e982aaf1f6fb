//! Differentiated Services code points.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A code point of Differentiated Services (RFC 2474), 0 to 63: the upper six bits of IPv4's type of service and of IPv6's traffic class;
/// the lower two are those of ECN (RFC 3168).
///
/// Read as a name, or as a number, decimal or `0x`: `cs0` to `cs7` (RFC 2474), `af11` to `af43` (RFC 2597), `ef` (RFC 3246).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct Dscp(u8);

/// What is no code point.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DscpError {
    #[error("'{0}' is no DSCP: it has to be a name (cs0 to cs7, af11 to af43, ef) or a number from 0 to 63")]
    Text(String),
    #[error("a DSCP of {0}: it has to be from 0 to 63")]
    Number(u8),
}

impl Dscp {
    const MAX: u8 = 63;
    const EF: Self = Self(46);

    /// By its name alone, in letters of either case.
    pub fn of_name(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        if let Some(&[class @ b'0'..=b'7']) = name.strip_prefix("cs").map(str::as_bytes) {
            return Some(Self((class - b'0') << 3));
        }
        if let Some(&[class @ b'1'..=b'4', drop @ b'1'..=b'3']) = name.strip_prefix("af").map(str::as_bytes) {
            return Some(Self(((class - b'0') << 3) + ((drop - b'0') << 1)));
        }
        (name == "ef").then_some(Self::EF)
    }

    /// The whole byte, with the bits of ECN zero, as IP_TOS and IPV6_TCLASS take it.
    pub fn type_of_service(self) -> u8 {
        self.0 << 2
    }
}

impl TryFrom<u8> for Dscp {
    type Error = DscpError;

    fn try_from(number: u8) -> Result<Self, DscpError> {
        if number <= Self::MAX { Ok(Self(number)) } else { Err(DscpError::Number(number)) }
    }
}

impl From<Dscp> for u8 {
    fn from(dscp: Dscp) -> Self {
        dscp.0
    }
}

impl FromStr for Dscp {
    type Err = DscpError;

    fn from_str(text: &str) -> Result<Self, DscpError> {
        let number = || match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
            Some(digits) => u8::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        };
        let found = Self::of_name(text).or_else(|| number().and_then(|number| Self::try_from(number).ok()));
        found.ok_or_else(|| DscpError::Text(text.to_owned()))
    }
}

/// Its name where it has one, else the number.
impl fmt::Display for Dscp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (*self, self.0 >> 3, self.0 & 7) {
            (Self::EF, ..) => f.write_str("ef"),
            (_, class, 0) => write!(f, "cs{class}"),
            (_, class @ 1..=4, drop @ (2 | 4 | 6)) => write!(f, "af{class}{}", drop / 2),
            _ => write!(f, "{}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_points_have_names_and_numbers() {
        for (text, number, name) in [
            ("cs0", 0, "cs0"),
            ("CS7", 56, "cs7"),
            ("af11", 10, "af11"),
            ("AF43", 38, "af43"),
            ("ef", 46, "ef"),
            ("46", 46, "ef"),
            ("0x2E", 46, "ef"),
            ("1", 1, "1"),
            ("63", 63, "63"),
            ("44", 44, "44"),
        ] {
            let dscp: Dscp = text.parse().unwrap();
            assert_eq!((u8::from(dscp), dscp.to_string().as_str()), (number, name), "{text}");
        }
        assert_eq!(Dscp::EF.type_of_service(), 0xb8);
        for text in ["64", "cs8", "cs+1", "cs", "af14", "af51", "af4é", "-1", "", "0x40", "lowdelay"] {
            assert!(text.parse::<Dscp>().is_err(), "{text}");
        }
        for number in 0..=Dscp::MAX {
            let name = Dscp(number).to_string();
            assert_eq!(name.parse(), Ok(Dscp(number)), "{name}");
        }
        assert!(Dscp::try_from(64).is_err());
    }
}
