//! The first line of both sides.

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::error::start;

/// A protocol as a program speaks it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Protocol {
    /// As `netrig-host`.
    pub name: &'static str,
    /// Both sides have to have the same.
    pub version: u32,
    /// Bytes of the longest line either side may write, without its end.
    pub longest: usize,
}

/// Who speaks. Later versions may add fields: both sides have to understand each other's to find out that they are strangers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Greeting {
    pub protocol: String,
    pub version: u32,
    /// Of netrig, for messages and records. Two builds that speak the same version understand each other.
    #[serde(default)]
    pub build: String,
}

impl Protocol {
    pub fn greeting(&self, build: &str) -> Greeting {
        Greeting { protocol: self.name.to_owned(), version: self.version, build: build.to_owned() }
    }

    /// Reads the first line of the other side.
    ///
    /// # Errors
    /// When it is not one to speak to.
    pub fn check(&self, line: &[u8]) -> Result<Greeting, Error> {
        let greeting: Greeting = serde_json::from_slice(line).map_err(|_| Error::NoGreeting { start: start(line) })?;
        if greeting.protocol != self.name {
            return Err(Error::OtherProtocol { found: start(greeting.protocol.as_bytes()), expected: self.name });
        }
        if greeting.version != self.version {
            let (newer, older) = (greeting.version.max(self.version), greeting.version.min(self.version));
            return Err(Error::OtherVersion { newer, older });
        }
        Ok(greeting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: Protocol = Protocol { name: "netrig-host", version: 2, longest: 100 };

    #[test]
    fn strangers_are_told_apart() {
        let line = |greeting: &Greeting| serde_json::to_vec(greeting).unwrap();
        let same = HOST.greeting("0.2.0");
        assert_eq!(HOST.check(&line(&same)).unwrap(), same);
        // A later one may say more.
        assert!(HOST.check(br#"{"protocol":"netrig-host","version":2,"nonce":"x"}"#).is_ok());
        let said = |line: &[u8]| HOST.check(line).unwrap_err().to_string();
        let older = Protocol { version: 1, ..HOST }.greeting("0.1.0");
        assert_eq!(said(&line(&older)), "one side speaks version 2 and the other 1: use the same netrig on both");
        let other = Protocol { name: "netrig-agent", ..HOST }.greeting("0.2.0");
        assert_eq!(said(&line(&other)), "it speaks 'netrig-agent', not 'netrig-host'");
        assert_eq!(said(b"SSH-2.0\x1b[2J"), "no greeting of netrig's: 'SSH-2.0\u{fffd}[2J'");
        assert!(said(&vec![b'x'; 1000]).len() < 150);
    }
}
