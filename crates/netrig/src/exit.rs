//! How the program ends.

use std::fmt;
use std::process::ExitCode;

use crate::suite::SuiteError;

/// The documented exit statuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Done, and every claim holds or is undecided.
    Done = 0,
    /// Done, and a claim is refuted.
    Refuted = 1,
    /// The user said something that cannot be done.
    BadInput = 2,
    /// The machine lacks something.
    Lacking = 3,
    /// A trial, the store or the output failed.
    Failed = 4,
    /// Stopped by a signal.
    Stopped = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// An error with the status that the program ends with.
#[derive(Debug)]
pub struct Failure {
    pub exit: Exit,
    pub error: anyhow::Error,
}

impl Failure {
    pub fn new(exit: Exit, error: impl Into<anyhow::Error>) -> Self {
        Self { exit, error: error.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&in_words(&self.error))
    }
}

/// An error and its causes in one line. Errors that say their cause themselves do not say it twice.
pub fn in_words(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |said, cause| match said {
        said if said.contains(&cause) => said,
        said if said.is_empty() => cause,
        said => format!("{said}: {cause}"),
    })
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        let exit = if error.is::<crate::run::Stopped>() { Exit::Stopped } else { Exit::Failed };
        Self::new(exit, error)
    }
}

impl From<SuiteError> for Failure {
    fn from(error: SuiteError) -> Self {
        Self::new(Exit::BadInput, error)
    }
}

/// Gives an error its exit status.
pub trait OrExit<T> {
    fn or_exit(self, exit: Exit) -> Result<T, Failure>;
}

impl<T, E: Into<anyhow::Error>> OrExit<T> for Result<T, E> {
    fn or_exit(self, exit: Exit) -> Result<T, Failure> {
        self.map_err(|error| Failure::new(exit, error))
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use anyhow::Context;

    use super::*;

    #[test]
    fn a_cause_is_said_once() {
        let kernel = rig_sys::Error::new("open the door", io::Error::from_raw_os_error(2));
        let error = anyhow::Error::new(kernel).context("go out");
        assert_eq!(in_words(&error), "go out: open the door: No such file or directory (os error 2)");
        let plain: anyhow::Error = Err::<(), _>(io::Error::from_raw_os_error(2)).context("go out").unwrap_err();
        assert_eq!(in_words(&plain), "go out: No such file or directory (os error 2)");
    }
}
