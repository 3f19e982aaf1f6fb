//! Outputs of other tools, read as the tests that they tell of.
//!
//! Whatever a text holds, it is read or refused with its line and what was expected there. A figure that it does not tell is none.

mod dperf;
mod iperf3;
mod lines;
mod netperf;
#[cfg(test)]
mod tests;
mod wrk;

use std::fmt;

use rig_facts::record::{ToolRun, ToolTrial};

pub use self::netperf::NetperfTest;
use crate::store_run::ToolTest;

/// A longer output is refused, bytes.
pub const LONGEST: u64 = 64 << 20;
/// Tests of one import.
pub const MOST_TESTS: usize = 10_000;

/// What an output can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputFormat {
    Iperf3,
    Netperf,
    Wrk,
    Wrk2,
    Dperf,
}

impl OutputFormat {
    pub const ALL: [Self; 5] = [Self::Iperf3, Self::Netperf, Self::Wrk, Self::Wrk2, Self::Dperf];

    pub fn name(self) -> &'static str {
        match self {
            Self::Iperf3 => "iperf3",
            Self::Netperf => "netperf",
            Self::Wrk => "wrk",
            Self::Wrk2 => "wrk2",
            Self::Dperf => "dperf",
        }
    }

    /// By how the text begins, or by a line that only one tool writes.
    fn of(text: &str) -> Option<Self> {
        if text.trim_start().starts_with('{') {
            return Some(Self::Iperf3);
        }
        let says = |is: fn(&str) -> bool| text.lines().any(is);
        let found = [
            (Self::Wrk, wrk::is_begin as fn(&str) -> bool),
            (Self::Dperf, dperf::is_of),
            (Self::Netperf, netperf::is_of),
        ];
        found.into_iter().find(|(_, is)| says(*is)).map(|(format, _)| format)
    }
}

/// A test that its tool did not carry out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedTest {
    pub tool: String,
    /// In the tool's words.
    pub why: String,
}

/// What an output holds, in its order.
#[derive(Debug, Default)]
pub struct Outputs {
    pub tests: Vec<ToolTest>,
    pub failed: Vec<FailedTest>,
}

impl Outputs {
    fn check_count(&self) -> Result<(), Mistake> {
        check_count(self.tests.len() + self.failed.len())
    }
}

fn check_count(tests: usize) -> Result<(), Mistake> {
    let too_many = || Mistake::whole(format!("it has more than {MOST_TESTS} tests"));
    if tests > MOST_TESTS { Err(too_many()) } else { Ok(()) }
}

/// Why a text is no output that is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// From 1; `None` where it is of the whole.
    pub line: Option<usize>,
    pub why: String,
}

impl Mistake {
    fn at(line: usize, why: impl Into<String>) -> Self {
        Self { line: Some(line), why: why.into() }
    }

    fn whole(why: impl Into<String>) -> Self {
        Self { line: None, why: why.into() }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        f.write_str(&self.why)
    }
}

impl std::error::Error for Mistake {}

/// Reads an output. `test` is what netperf was asked for, where its output does not say it.
///
/// # Errors
/// The line, and what was expected there.
pub fn read(text: &str, format: Option<OutputFormat>, test: Option<NetperfTest>) -> Result<Outputs, Mistake> {
    let text = text.trim_start_matches('\u{feff}');
    if text.trim().is_empty() {
        return Err(Mistake::whole("it is empty"));
    }
    let asked = format;
    let format = format.or(test.map(|_| OutputFormat::Netperf)).or_else(|| OutputFormat::of(text));
    let outputs = match format {
        Some(OutputFormat::Iperf3) => iperf3::read(text)?,
        Some(OutputFormat::Netperf) => netperf::read(text, test)?,
        Some(OutputFormat::Wrk | OutputFormat::Wrk2) => wrk::read(text, asked)?,
        Some(OutputFormat::Dperf) => dperf::read(text)?,
        None => return Err(unknown(text)),
    };
    outputs.check_count()?;
    match outputs.tests.len() + outputs.failed.len() {
        0 => Err(Mistake::whole("it has no test that came to its end")),
        _ => Ok(outputs),
    }
}

/// What nobody is known to write.
fn unknown(text: &str) -> Mistake {
    let is_iperf3 = |line: &str| line.starts_with("[ ID]") || line.starts_with("Connecting to host ");
    if let Some(at) = text.lines().position(is_iperf3) {
        return Mistake::at(at + 1, "this is iperf3's text, which is rounded: import what iperf3 writes with -J");
    }
    let first = text.lines().position(|line| !line.trim().is_empty()).unwrap_or(0);
    Mistake::at(
        first + 1,
        "not an output that is known: expected iperf3's JSON (-J, --json-stream), netperf's (-o, -k, or its text), wrk's or wrk2's, or \
         dperf's",
    )
}

/// Tests as trials of one run.
///
/// # Errors
/// What differs between two of them, with where each comes from.
pub fn join(tests: Vec<(String, ToolTest)>) -> Result<(ToolRun, Vec<ToolTrial>), String> {
    let mut run: Option<(String, ToolRun)> = None;
    let mut trials = Vec::new();
    for (file, test) in tests {
        match &mut run {
            None => run = Some((file.clone(), ToolRun { files: vec![file], ..test.run })),
            Some((first, known)) => {
                if let Some(what) = difference(known, &test.run) {
                    return Err(format!(
                        "{first} and {file} are not trials of one test: {what}; import them as runs of their own"
                    ));
                }
                if !known.files.contains(&file) {
                    known.files.push(file);
                }
                known.made_unix_ms = known.made_unix_ms.into_iter().chain(test.run.made_unix_ms).min();
            }
        }
        trials.push(test.trial);
    }
    run.map(|(_, run)| (run, trials)).ok_or_else(|| "there is no test".to_owned())
}

/// What keeps two tests from being the same.
fn difference(one: &ToolRun, other: &ToolRun) -> Option<String> {
    let told = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".to_owned());
    let whole = [
        ("tool", one.tool.clone(), other.tool.clone()),
        ("version", told(&one.version), told(&other.version)),
        ("test", one.test.clone(), other.test.clone()),
        ("server", told(&one.server), told(&other.server)),
    ];
    let whole = whole.into_iter().map(|(what, one, other)| (what.to_owned(), one, other));
    let value = |pairs: &[(String, String)], name: &str| {
        let own = pairs.iter().find(|(own, _)| own == name);
        own.map_or_else(|| "none".to_owned(), |(_, value)| value.clone())
    };
    let of = |one: &'_ [(String, String)], other: &'_ [(String, String)]| -> Vec<(String, String, String)> {
        let names = one.iter().chain(other).map(|(name, _)| name);
        names.map(|name| (name.clone(), value(one, name), value(other, name))).collect()
    };
    let pairs = of(&one.settings, &other.settings).into_iter().chain(of(&one.machine, &other.machine));
    let (what, one, other) = whole.chain(pairs).find(|(_, one, other)| one != other)?;
    Some(format!("{what} is {one} in one and {other} in the other"))
}

/// What fuzzing plays: a text as each format, with and without a test that netperf was asked for, and its tests as trials of one run.
///
/// # Panics
/// Where a figure came out that no figure can be.
pub fn exercise(text: &str) {
    let tests = [None, Some(NetperfTest::TcpStream), Some(NetperfTest::UdpStream), Some(NetperfTest::TcpRr)];
    let asked = OutputFormat::ALL.into_iter().map(Some).chain([None]);
    for (format, test) in asked.flat_map(|format| tests.map(|test| (format, test))) {
        let Ok(outputs) = read(text, format, test) else { continue };
        let figures = outputs.tests.iter().flat_map(|test| &test.trial.figures);
        figures.for_each(|figure| assert!(figure.value >= 0.0 && figure.value.is_finite(), "{figure:?}"));
        let named = outputs.tests.into_iter().map(|test| ("a".to_owned(), test)).collect();
        let _ = join(named);
    }
}
