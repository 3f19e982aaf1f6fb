//! That something is not done.

use serde::{Deserialize, Serialize};

/// Nothing was done, and more can be asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{what}{}", hint.as_deref().map(|hint| format!(": {hint}")).unwrap_or_default())]
pub struct Refusal {
    pub what: String,
    /// What the user may do.
    pub hint: Option<String>,
    /// Which of several changes is the one that cannot be made, counted from 0.
    #[serde(default)]
    pub edit: Option<usize>,
}

impl Refusal {
    pub fn new(what: impl Into<String>, hint: Option<String>) -> Self {
        Self { what: what.into(), hint, edit: None }
    }
}
