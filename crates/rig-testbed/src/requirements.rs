//! What a machine has to have for what is put on its nodes.

use std::fmt;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Of a datapath by key, as in the suite's file. What is not said is the datapath's to decide.
pub type Settings = Map<String, Value>;

/// A machine or a user that lacks something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Missing {
    pub found: String,
    pub remedy: String,
}

impl Missing {
    pub fn new(found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { found: found.into(), remedy: remedy.into() }
    }
}

/// What can be put on nodes of a machine, each by its name. What has another name lacks nothing.
pub trait MachineChecks: fmt::Debug {
    /// What the machine lacks for it, with these settings.
    fn missing(&self, name: &str, settings: &Settings) -> Option<Missing>;

    /// Has the machine take what it is made of, and lets it go.
    ///
    /// # Errors
    /// What was refused.
    fn try_out(&self, name: &str) -> Result<()>;
}
