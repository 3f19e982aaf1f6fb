//! What is run in nodes before a trial.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A command that is run inside a node before a trial.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PreTrialCommand {
    /// The node, or one of its containers: `a`, `a/sender`.
    pub node: String,
    /// What `sh` runs there.
    pub command: String,
}

impl fmt::Display for PreTrialCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "in {}: {}", self.node, self.command)
    }
}
