//! What fails behind a trial that was measured: its record is kept all the same.

use anyhow::Result;
use rig_cli::exit::in_words;
use rig_facts::record::TrialRecord;

/// A trial that was measured, and what failed after that. For who does not ask for the record it is that failure, in the same words.
#[derive(Debug, thiserror::Error)]
#[error("{}", in_words(.error))]
pub struct FailedAfterTrial {
    record: Box<TrialRecord>,
    error: anyhow::Error,
}

impl FailedAfterTrial {
    pub fn new(record: TrialRecord, error: anyhow::Error) -> Self {
        Self { record: Box::new(record), error }
    }

    /// The error with another failure in place of its own; a record that it brings stays.
    pub(super) fn with_failure(
        error: anyhow::Error,
        change: impl FnOnce(anyhow::Error) -> anyhow::Error,
    ) -> anyhow::Error {
        match error.downcast::<Self>() {
            Ok(Self { record, error }) => Self { record, error: change(error) }.into(),
            Err(error) => change(error),
        }
    }
}

/// The trial where one was measured, with what failed after that.
///
/// # Errors
/// What failed before.
pub fn measured(made: Result<TrialRecord>) -> Result<(TrialRecord, Result<()>)> {
    match made {
        Ok(record) => Ok((record, Ok(()))),
        Err(error) => match error.downcast::<FailedAfterTrial>() {
            Ok(FailedAfterTrial { record, error }) => Ok((*record, Err(error))),
            Err(error) => Err(error),
        },
    }
}
