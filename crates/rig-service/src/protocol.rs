//! What is said between a service and a client: `rig-lines` has the frame, a service its own requests and answers.

use std::collections::BTreeMap;

use rig_cli::exit::in_words;
use rig_lines::Refusal;
use serde::{Deserialize, Serialize};

/// Both sides must have the same, which their greetings say.
pub(crate) const VERSION: u32 = 1;
/// Bytes of a line: a restore of thousands of rules is some hundred bytes each.
pub(crate) const LONGEST: usize = 64 << 20;
/// Of this netrig.
pub(crate) const BUILD: &str = env!("CARGO_PKG_VERSION");

/// What any service can be asked, and what is asked of this one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Question<Q> {
    /// Over standard streams, as the first one: begin with these settings, which are the text of a file. Answered by
    /// [`Answer::Started`].
    Start { settings: String },
    /// Put these settings in force, or those of the file, which is read again. Answered by [`Answer::Done`].
    Reload { settings: Option<String> },
    /// Answered by [`Answer::Counters`].
    Counters,
    /// Answered by any number of [`Answer::Answer`].
    Ask(Q),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer<A> {
    Started {
        introduction: String,
    },
    /// What was done, where there is something to say.
    Done(Vec<String>),
    Counters(Stamped),
    Answer(A),
}

/// Counters with the time that they were read at.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamped {
    /// CLOCK_MONOTONIC in nanoseconds, before and after: they were read in between.
    pub from_ns: u64,
    pub to_ns: u64,
    /// CPU time that it took.
    #[serde(default)]
    pub cpu_ns: u64,
    /// That of the whole process since it was started.
    #[serde(default)]
    pub process_cpu_ns: u64,
    #[serde(flatten)]
    pub counters: Counters,
}

/// The refusal that an error is, or else its words.
pub fn refusal(error: anyhow::Error) -> Refusal {
    error.downcast().unwrap_or_else(|error| Refusal::new(in_words(&error), None))
}

/// Counts since a service began, read at one time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// By name.
    pub counts: BTreeMap<String, u64>,
    /// Dropped packets by reason, in words.
    pub drops: Vec<(String, u64)>,
}

/// An answer on its way from a service to where it is written.
#[derive(Debug)]
pub(crate) enum Outcome<A> {
    Part(Answer<A>),
    Answer(Answer<A>),
    Refused(Refusal),
}
