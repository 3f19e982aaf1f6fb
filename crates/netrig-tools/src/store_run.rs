//! `--store-run`: tests of other tools' command lines that stay in netrig's store.

use std::ffi::OsString;

use rig_cli::exit::Failure;
use rig_facts::record::{ToolRun, ToolTrial};

/// One test, as a tool's output tells it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolTest {
    pub run: ToolRun,
    pub trial: ToolTrial,
}

/// Where tests are kept. Front ends know of no store.
pub trait RunKeeper {
    /// Finds out whether a run could be kept, before anything is measured. With the label that the user gave it.
    ///
    /// # Errors
    /// Why not.
    fn prepare(&mut self, label: Option<&str>) -> Result<(), Failure>;

    /// Keeps tests as trials of one run.
    ///
    /// # Errors
    /// Why it cannot.
    fn keep(&mut self, tests: Vec<ToolTest>, end: ToolRunEnd<'_>) -> Result<(), Failure>;
}

/// What came behind the tests of a run that are kept.
#[derive(Debug, Clone, Copy)]
pub enum ToolRunEnd<'a> {
    /// Nothing: all that was wanted was measured.
    Complete,
    /// The user stopped it.
    Stopped,
    /// One that failed, and why.
    Failed(&'a str),
}

const OPTION: &str = "--store-run";

/// Whether a test is to be kept, and what its run is to be called.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoreRun {
    pub is_asked: bool,
    pub label: Option<String>,
}

/// Takes `--store-run` or `--store-run=LABEL` out of a tool's command line. Behind `--` words belong to the tool.
pub fn take(arguments: &[OsString]) -> (Vec<OsString>, StoreRun) {
    let mut asked = StoreRun::default();
    let own = arguments.iter().position(|word| word == "--").unwrap_or(arguments.len());
    let mut rest = Vec::new();
    for (at, word) in arguments.iter().enumerate() {
        let option = word.to_str().filter(|_| at < own).and_then(|word| word.strip_prefix(OPTION));
        match option {
            Some("") => asked.is_asked = true,
            Some(label) if label.starts_with('=') => {
                let label = Some(label[1..].to_owned()).filter(|label| !label.is_empty());
                asked = StoreRun { is_asked: true, label };
            }
            _ => rest.push(word.clone()),
        }
    }
    (rest, asked)
}

/// A text from a wire or a file as one value: bounded, and in one line.
pub fn tidy(text: &str) -> String {
    const LONGEST: usize = 200;
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(LONGEST).collect();
    line.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_option_is_taken_out_before_the_words_of_a_test() {
        let words = |text: &str| -> Vec<OsString> { text.split_whitespace().map(OsString::from).collect() };
        for (line, rest, asked) in [
            ("-H a -l 3", "-H a -l 3", (false, None)),
            ("-H a --store-run -l 3", "-H a -l 3", (true, None)),
            ("--store-run=before -c b", "-c b", (true, Some("before"))),
            ("--store-run= -c b", "-c b", (true, None)),
            ("-H a -- --store-run", "-H a -- --store-run", (false, None)),
            ("--store-runs -H a", "--store-runs -H a", (false, None)),
        ] {
            let found = take(&words(line));
            let label = asked.1.map(str::to_owned);
            assert_eq!(found, (words(rest), StoreRun { is_asked: asked.0, label }), "{line}");
        }
    }
}
