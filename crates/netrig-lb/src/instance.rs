//! The name by which a balancer is found.

use std::fmt;
use std::str::FromStr;

use rig_service::files::{ServiceFiles, ServiceKind};

/// The balancer's name, by which several on one machine are told apart: 1 to 32 of `[A-Za-z0-9_-]`. No dot, because the
/// names of directories on a bpf file system have none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name(String);

/// What [`Name::default`] is, for help texts.
pub const DEFAULT_NAME: &str = "lb";

impl Default for Name {
    fn default() -> Self {
        Self(DEFAULT_NAME.to_owned())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a name of a balancer: 1 to 32 letters, digits, '-' and '_'")]
pub struct InvalidName(String);

impl FromStr for Name {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let usable = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if text.is_empty() || text.len() > 32 || !text.chars().all(usable) {
            return Err(InvalidName(text.to_owned()));
        }
        Ok(Self(text.to_owned()))
    }
}

/// All balancers, for who speaks to one that was started over standard streams.
pub const BALANCER: ServiceKind = ServiceKind { protocol: "netrig-lb", directory: "lb", pins: "netrig" };

/// The files of the balancer of a name.
pub fn files(name: &Name) -> ServiceFiles {
    ServiceFiles::new(&BALANCER, name.to_string())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::*;

    #[test]
    fn names_are_file_names_and_nothing_else() {
        assert_eq!("edge-1_b".parse::<Name>().unwrap().to_string(), "edge-1_b");
        for refused in ["", "a/b", "..", "a.b", "ä", &"x".repeat(33)] {
            assert!(refused.parse::<Name>().is_err(), "{refused}");
        }
    }
}
