//! How the program ends.

use std::fmt;
use std::process::ExitCode;

/// The documented exit statuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Done, and nothing that was compared is worse.
    Done = 0,
    /// Done, and something is worse than in the run it was compared with, or a claim does not hold that has to.
    Refuted = 1,
    /// The user said something that cannot be done.
    BadInput = 2,
    /// The machine lacks something.
    Lacking = 3,
    /// A trial, the store or the output failed.
    Failed = 4,
    /// Done and nothing is worse, but a compared figure is undecided and the user asked to fail on that.
    Undecided = 5,
    /// Stopped by a signal.
    Stopped = 130,
    /// A test of `netrig netperf` failed: netperf ends with -1 then.
    MinusOne = 255,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// The user asked to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("stopped by the user")]
pub struct StoppedByUser;

/// An error with the status that the program ends with.
#[derive(Debug)]
pub struct Failure {
    pub exit: Exit,
    pub error: anyhow::Error,
    /// What the user may do next, told after the error.
    pub next: Option<String>,
}

impl Failure {
    pub fn new(exit: Exit, error: impl Into<anyhow::Error>) -> Self {
        Self { exit, error: error.into(), next: None }
    }

    /// With what the user may do next.
    #[must_use]
    pub fn with_next(self, next: impl Into<String>) -> Self {
        Self { next: Some(next.into()), ..self }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&in_words(&self.error))
    }
}

/// An error with its causes, each once: those of libraries name their cause themselves. Where it is one of a limit or of rights,
/// what to do about that is added.
pub fn in_words(error: &anyhow::Error) -> String {
    let words = causes(error);
    match rig_sys::advice::in_words(&words) {
        Some(advice) if !words.contains(&advice) => format!("{words}: {advice}"),
        _ => words,
    }
}

fn causes(error: &anyhow::Error) -> String {
    let mut words = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string).filter(|cause| !cause.is_empty()) {
        if !words.contains(&cause) {
            words = format!("{words}: {cause}");
        }
    }
    words
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        let exit = if error.is::<StoppedByUser>() { Exit::Stopped } else { Exit::Failed };
        Self::new(exit, error)
    }
}

/// An error that another one may come behind: both are told, and the first is what it counts as.
pub trait FailureChain: Sized {
    /// The same failure, with what failed behind it. What says nothing new is not told.
    #[must_use]
    fn then(self, behind: Self) -> Self;
}

impl FailureChain for anyhow::Error {
    fn then(self, behind: Self) -> Self {
        let (first, second) = (in_words(&self), in_words(&behind));
        // What cannot be done for the same reason has it as its cause.
        if first.contains(&second) || second.ends_with(&first) {
            return self;
        }
        self.context(format!("{first}; then: {second}"))
    }
}

impl FailureChain for Failure {
    fn then(self, behind: Self) -> Self {
        Self { exit: self.exit, error: self.error.then(behind.error), next: self.next.or(behind.next) }
    }
}

/// The outcome of two things that are both done, whatever comes of the first.
///
/// # Errors
/// What failed: of two failures the first, with the second [behind](FailureChain::then) it.
pub fn both<T, E: FailureChain>(first: Result<T, E>, second: Result<(), E>) -> Result<T, E> {
    match (first, second) {
        (first, Ok(())) => first,
        (Ok(_), Err(second)) => Err(second),
        (Err(first), Err(second)) => Err(first.then(second)),
    }
}

/// Gives an error its exit status.
pub trait ExitContext<T> {
    fn or_exit(self, exit: Exit) -> Result<T, Failure>;
}

impl<T, E: Into<anyhow::Error>> ExitContext<T> for Result<T, E> {
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
    fn each_cause_is_told_once() {
        let kernel = || io::Error::from_raw_os_error(95);
        let error = Err::<(), _>(rig_sys::Error::new("create vxlan vxlan0", kernel())).context("build the testbed");
        let failure = Failure::new(Exit::Failed, error.unwrap_err());
        assert_eq!(failure.to_string(), format!("build the testbed: create vxlan vxlan0: {}", kernel()));
        let many = anyhow::Error::new(io::Error::from_raw_os_error(24)).context("create a network namespace");
        let said = in_words(&many);
        assert!(said.contains("files open: raise the limit"), "{said}");
        assert_eq!(in_words(&anyhow::Error::msg(said.clone())), said, "advice is given once");
        let plain = Failure::new(Exit::Failed, anyhow::Error::new(kernel()).context("write it"));
        assert_eq!(plain.to_string(), format!("write it: {}", kernel()));
    }

    #[test]
    fn of_two_failures_both_are_told_and_the_first_decides() {
        let words = |outcome: anyhow::Result<u8>| in_words(&outcome.unwrap_err());
        let fails = |text: &'static str| Err(anyhow::anyhow!(text));
        assert_eq!(both(Ok::<_, anyhow::Error>(1), Ok(())).unwrap(), 1);
        assert_eq!(words(both(fails("the worker died"), Ok(()))), "the worker died");
        assert_eq!(words(both(Ok(1), Err(anyhow::anyhow!("eth1 is gone")))), "eth1 is gone");
        let down = Err(anyhow::anyhow!("eth1 is gone").context("take down"));
        assert_eq!(words(both(fails("the worker died"), down)), "the worker died; then: take down: eth1 is gone");
        // One reason is told once.
        let down = Err(anyhow::anyhow!("host m2 is gone").context("take down"));
        assert_eq!(words(both(fails("host m2 is gone"), down)), "host m2 is gone");
        assert_eq!(words(both(fails("host m2 is gone"), Err(anyhow::anyhow!("m2 is gone")))), "host m2 is gone");

        let stopped = anyhow::Error::from(StoppedByUser).then(anyhow::anyhow!("eth1 is gone"));
        assert!(stopped.is::<StoppedByUser>(), "the kind of the first stays");
        let lacking = Failure::new(Exit::Lacking, anyhow::anyhow!("no room")).with_next("make room");
        let both = lacking.then(Failure::new(Exit::Failed, anyhow::anyhow!("gone")).with_next("look"));
        assert_eq!(
            (both.exit, both.to_string(), both.next.as_deref()),
            (Exit::Lacking, "no room; then: gone".to_owned(), Some("make room"))
        );
    }
}
