//! Scenarios that a run went without.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Scenarios that a run goes without, for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SkippedScenarios {
    pub scenarios: Vec<String>,
    /// Why, and what to do about it.
    pub reason: String,
}

impl SkippedScenarios {
    /// This with only those of its scenarios that are `asked` for; `None` without any.
    pub fn of(&self, asked: &dyn Fn(&str) -> bool) -> Option<Self> {
        let scenarios: Vec<String> = self.scenarios.iter().filter(|id| asked(id)).cloned().collect();
        (!scenarios.is_empty()).then(|| Self { scenarios, reason: self.reason.clone() })
    }
}

impl fmt::Display for SkippedScenarios {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", in_short(&self.scenarios), self.reason)
    }
}

/// `cps-ipvs-1/2/4, pps-ipvs-1/2`: rows of a list together.
fn in_short(ids: &[String]) -> String {
    let parts = |id: &String| {
        let (list, row) = id.rsplit_once('-').filter(|(_, row)| row.parse::<u32>().is_ok())?;
        Some((list.to_owned(), row.to_owned()))
    };
    let mut text = String::new();
    let mut last = None;
    for id in ids {
        let own = parts(id);
        match (&own, &last) {
            (Some((list, row)), Some(of)) if list == of => {
                text.push('/');
                text.push_str(row);
            }
            _ => {
                text.push_str(if text.is_empty() { "" } else { ", " });
                text.push_str(id);
            }
        }
        last = own.map(|(list, _)| list);
    }
    text
}
