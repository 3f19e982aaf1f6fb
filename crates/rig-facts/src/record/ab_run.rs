//! Runs that took turns on a machine.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which of two runs that took turns this is, and which run was the other: the one whose pair has the same name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AbRun {
    pub pair: String,
    pub side: Side,
    /// The shell command that was run before each of its trials; empty for none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub command: String,
}

/// Of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    Old,
    New,
}

impl Side {
    pub const BOTH: [Self; 2] = [Self::Old, Self::New];
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Old => "old",
            Self::New => "new",
        })
    }
}

/// `PAIR:SIDE:COMMAND`, as the run is told on its command line.
impl FromStr for AbRun {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.splitn(3, ':');
        let pair = parts.next().filter(|pair| !pair.is_empty());
        let side = parts.next().and_then(|word| Side::BOTH.into_iter().find(|side| side.to_string() == word));
        match (pair, side, parts.next()) {
            (Some(pair), Some(side), Some(command)) => {
                Ok(Self { pair: pair.to_owned(), side, command: command.to_owned() })
            }
            _ => Err("it is PAIR:SIDE:COMMAND, with old or new for SIDE".to_owned()),
        }
    }
}

impl fmt::Display for AbRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.pair, self.side, self.command)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::*;

    #[test]
    fn what_a_run_is_told_reads_back() {
        for side in Side::BOTH {
            for command in ["", "a: b"] {
                let turns = AbRun { pair: "1a".to_owned(), side, command: command.to_owned() };
                assert_eq!(turns.to_string().parse::<AbRun>().unwrap(), turns);
            }
        }
        for wrong in ["", "old", ":old:", "a:old", "a:middle:"] {
            assert!(wrong.parse::<AbRun>().is_err(), "{wrong}");
        }
    }
}
