//! dperf's configuration language: a keyword and its arguments on each line.

use std::fmt;

use rig_cli::mistakes;
use rig_stats::units::counted;

use super::keywords::KEYWORDS;
use super::settings::Settings;

/// Longest line, in bytes, and most words of one, as in dperf.
const LONGEST: usize = 2047;
const MOST_WORDS: usize = 32;

/// What a file says that cannot be done, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct LineError {
    /// From 1. `None`: the file as a whole.
    pub line: Option<usize>,
    pub message: String,
}

impl LineError {
    pub fn at(line: impl Into<Option<usize>>, message: impl Into<String>) -> Self {
        Self { line: line.into(), message: message.into() }
    }
}

impl fmt::Display for LineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

/// Something that is done otherwise than the file's author may think.
pub type Warning = LineError;

/// What a file says, keyword by keyword, each checked for itself.
///
/// Blank lines and lines whose first word begins with `#` say nothing. Lines may come in any order. A byte order mark
/// before the first, which some editors write, says nothing either.
pub fn read(text: &str) -> Result<(Settings, Vec<Warning>), LineError> {
    let mut settings = Settings::default();
    let mut warnings = Vec::new();
    for (line, text) in (1..).zip(text.trim_start_matches('\u{feff}').lines()) {
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let Some((&name, arguments)) = words.split_first().filter(|(name, _)| !name.starts_with('#')) else { continue };
        let refuse = |message: String| LineError::at(line, message);
        if text.len() > LONGEST || words.len() > MOST_WORDS {
            return Err(refuse(format!("longer than {LONGEST} characters or {MOST_WORDS} words: divide it")));
        }
        if let Some(strange) = text.chars().find(|c| !c.is_ascii() || c.is_ascii_control() && !c.is_ascii_whitespace())
        {
            return Err(refuse(format!("the character {strange:?} is not of ASCII's printable ones: replace it")));
        }
        let Some(keyword) = KEYWORDS.iter().find(|keyword| keyword.name == name) else {
            let meant = mistakes::closest(name, KEYWORDS.iter().map(|keyword| keyword.name));
            let meant = meant.map_or_else(String::new, |meant| format!("did you mean '{meant}'? "));
            return Err(refuse(format!("there is no keyword '{name}': {meant}`netrig dperf -m` lists them all")));
        };
        if let Some(before) = settings.begin(name, line).filter(|_| !keyword.repeats) {
            return Err(refuse(format!("'{name}' is already in line {before}: remove one of them")));
        }
        let takes = |why: &dyn fmt::Display| {
            let usage = [keyword.name, keyword.arguments].join(" ");
            refuse(format!("{name}: {why}; write `{}`", usage.trim_end()))
        };
        if !keyword.count.contains(&arguments.len()) {
            return Err(takes(&counted(arguments.len(), "argument", "arguments")));
        }
        match (keyword.set)(&mut settings, arguments, line) {
            Ok(None) => {}
            Ok(Some(warning)) => warnings.push(Warning::at(line, format!("{name}: {warning}"))),
            Err(Refusal::Value(why)) => return Err(takes(&why)),
            Err(Refusal::Keyword(why)) => return Err(refuse(format!("{name}: {why}"))),
        }
    }
    Ok((settings, warnings))
}

/// Why a keyword is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// An argument of it is wrong.
    Value(String),
    /// The keyword itself; the reason says what to do instead.
    Keyword(String),
}

impl From<String> for Refusal {
    fn from(why: String) -> Self {
        Self::Value(why)
    }
}
