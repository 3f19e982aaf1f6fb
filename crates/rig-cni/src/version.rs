//! Versions of the CNI specification.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A version of the specification: by which plug-ins and runtimes know what results look like and which commands there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Version {
    major: u32,
    minor: u32,
    patch: u32,
}

impl Version {
    pub const V0_3_0: Self = Self::new(0, 3, 0);
    pub const V0_3_1: Self = Self::new(0, 3, 1);
    pub const V0_4_0: Self = Self::new(0, 4, 0);
    pub const V1_0_0: Self = Self::new(1, 0, 0);
    pub const V1_1_0: Self = Self::new(1, 1, 0);

    /// Those that this runtime speaks: before 0.3.0 there were no chains.
    pub const SPOKEN: [Self; 5] = [Self::V0_3_0, Self::V0_3_1, Self::V0_4_0, Self::V1_0_0, Self::V1_1_0];

    const fn new(major: u32, minor: u32, patch: u32) -> Self {
        Self { major, minor, patch }
    }

    pub fn is_spoken(self) -> bool {
        Self::SPOKEN.contains(&self)
    }

    /// CHECK came with 0.4.0, and with it the earlier result for DEL.
    pub fn has_check(self) -> bool {
        self >= Self::V0_4_0
    }

    pub fn has_gc_and_status(self) -> bool {
        self >= Self::V1_1_0
    }

    /// Until 1.0.0 each address of a result says of which IP version it is.
    pub(crate) fn tells_ip_version(self) -> bool {
        self < Self::V1_0_0
    }

    /// `0.3.0, 0.3.1, 0.4.0`
    pub fn list(versions: &[Self]) -> String {
        versions.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// Text that is no version of three numbers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no version: write it with three numbers, for instance \"1.0.0\"")]
pub struct NoVersion(String);

impl FromStr for Version {
    type Err = NoVersion;

    fn from_str(text: &str) -> Result<Self, NoVersion> {
        let wrong = || NoVersion(text.to_owned());
        let numbers: Vec<u32> =
            text.split('.').map(|part| part.parse().map_err(|_| wrong())).collect::<Result<_, _>>()?;
        match numbers[..] {
            [major, minor, patch] => Ok(Self { major, minor, patch }),
            _ => Err(wrong()),
        }
    }
}

impl From<Version> for String {
    fn from(version: Version) -> Self {
        version.to_string()
    }
}

impl TryFrom<String> for Version {
    type Error = NoVersion;

    fn try_from(text: String) -> Result<Self, NoVersion> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_in_order_and_what_is_none_is_refused() {
        let of = |text: &str| text.parse::<Version>();
        assert!(of("0.4.0").unwrap() < of("0.10.0").unwrap() && of("1.1.0").unwrap() > of("1.0.9").unwrap());
        assert!(of("0.3.1").is_ok_and(Version::is_spoken) && of("0.2.0").is_ok_and(|version| !version.is_spoken()));
        for wrong in ["", "1", "1.0", "1.0.0.0", "1.0.x", "v1.0.0"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }
}
