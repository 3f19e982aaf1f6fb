//! Mistakes in files and words that users hand in, told so that the next step is clear.

use std::fmt;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;

use crate::exit::{Exit, Failure};
use crate::visible::visible_line;

/// The one of `known` that `word` is most likely meant to be.
pub fn closest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // One wrong letter in three: "arival" is `arrivals`, and "rate" is not `name`. Of one letter nothing would be left.
    let length = word.chars().count();
    let most = length.div_ceil(3).min(4).min(length.saturating_sub(1));
    let distance = |name: &str| strsim::damerau_levenshtein(word, name);
    let near = known.into_iter().map(|name| (distance(name), name)).filter(|(distance, _)| *distance <= most);
    near.min().map(|(_, name)| name)
}

/// What serde says of a file with a hint of its own: of many names that it expects, the one that was meant is enough.
pub fn of_serde(message: &str) -> (String, Option<String>) {
    // A message may have been put together of several, each with an end of its own.
    let parts = message.lines().map(|line| line.trim_matches(|c: char| c == ';' || c.is_whitespace()));
    let message = parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ");
    let Some((what, expected)) = message.split_once(", expected ") else { return (message, None) };
    if !what.starts_with("unknown field `") && !what.starts_with("unknown variant `") {
        return (message, None);
    }
    // Names stand between backticks, in both halves.
    let word = what.split('`').nth(1).unwrap_or_default();
    let known: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
    let hint = match closest(word, known.iter().copied()) {
        Some(name) => format!("did you mean `{name}`?"),
        None if known.is_empty() => return (message, None),
        None => match known.len().checked_sub(NAMED) {
            Some(more @ 1..) => format!("it is one of `{}` and {more} more", known[..NAMED].join("`, `")),
            _ => format!("it is one of `{}`", known.join("`, `")),
        },
    };
    (what.to_owned(), Some(hint))
}

/// Where a file is wrong, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct FileError {
    pub file: String,
    pub line: Option<usize>,
    pub what: String,
    pub hint: Option<String>,
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&visible_line(&self.file))?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}", self.what)?;
        self.hint.as_ref().map_or(Ok(()), |hint| write!(f, "\n  {hint}"))
    }
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Self {
        Self::new(Exit::BadInput, error)
    }
}

/// In which line of the text something begins, from 1.
pub fn line(text: &str, span: &Range<usize>) -> usize {
    let end = span.start.min(text.len());
    text.as_bytes()[..end].iter().filter(|&&byte| byte == b'\n').count() + 1
}

/// More than any file has that a user writes; a device has no end.
const MOST_BYTES: u64 = 256 << 20;

/// The text of a file; of one that holds none, where it ends to be text.
///
/// # Errors
/// When it cannot be read, is no text or has more than 256 MiB.
pub fn read_text(path: &Path) -> io::Result<String> {
    read_text_of(path, MOST_BYTES)
}

fn text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        io::Error::new(io::ErrorKind::InvalidData, format!("it is not text: byte {} is not UTF-8", at + 1))
    })
}

/// As [`read_text()`], of no more bytes than `most`.
///
/// # Errors
/// As there, and when there are more.
pub fn read_text_of(path: &Path, most: u64) -> io::Result<String> {
    text(read_bytes_of(path, most)?)
}

/// The bytes of a file of any kind.
///
/// # Errors
/// When it cannot be read or has more than 256 MiB.
pub fn read_bytes(path: &Path) -> io::Result<Vec<u8>> {
    read_bytes_of(path, MOST_BYTES)
}

fn read_bytes_of(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    bytes_of(std::fs::File::open(path)?, most)
}

/// As [`read_text_of()`], of standard input.
///
/// # Errors
/// As there.
pub fn read_input_of(most: u64) -> io::Result<String> {
    text(bytes_of(io::stdin().lock(), most)?)
}

fn bytes_of(from: impl Read, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let what = format!("it has more than {} MiB, the most that is read", most >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
    }
    Ok(bytes)
}

/// How many names a message has room for.
const NAMED: usize = 24;

/// Names for a message: all, or the first and how many more there are.
pub fn some(names: &[&str]) -> String {
    match names.len().checked_sub(NAMED) {
        Some(more @ 1..) => format!("{} and {more} more", names[..NAMED].join(", ")),
        _ => names.join(", "),
    }
}

/// As [`read_text()`], with the file in the error.
///
/// # Errors
/// When it cannot be read, or is no text.
pub fn load_text(path: &Path) -> Result<String, FileError> {
    read_text(path).map_err(|error| FileError {
        file: path.display().to_string(),
        line: None,
        what: format!("cannot read it: {error}"),
        hint: None,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::*;

    #[test]
    fn what_is_nearly_a_name_is_taken_for_it_and_nothing_else() {
        let known = ["rate", "arrivals", "request", "response", "ramp", "retries"];
        for (word, meant) in [
            ("arival", Some("arrivals")),
            ("arrivls", Some("arrivals")),
            ("requests", Some("request")),
            ("raet", Some("rate")),
            ("x", None),
            ("C5", None),
            ("", None),
            ("message", None),
        ] {
            assert_eq!(closest(word, known), meant, "{word}");
        }
    }

    #[test]
    fn of_many_names_the_one_that_was_meant_is_told() {
        let message = "unknown field `mesage`, expected one of `kind`, `message`, `window`";
        assert_eq!(
            of_serde(message),
            ("unknown field `mesage`".to_owned(), Some("did you mean `message`?".to_owned()))
        );
        let (what, _) = of_serde("`1Mbit` is not a rate; write `10k`\n; `throttle` limits streams\n");
        assert_eq!(what, "`1Mbit` is not a rate; write `10k`; `throttle` limits streams");
        let (_, hint) = of_serde("unknown variant `zzz`, expected `tcp` or `udp`");
        assert_eq!(hint.unwrap(), "it is one of `tcp`, `udp`");
        let many: Vec<String> = (0..30).map(|number| format!("key{number}")).collect();
        let (_, hint) = of_serde(&format!("unknown field `zzz`, expected one of `{}`", many.join("`, `")));
        assert!(hint.unwrap().ends_with("`key23` and 6 more"));
        for other in
            ["missing field `window`", "unknown field `x`, there are no fields", "invalid type: a, expected b\n"]
        {
            assert_eq!(of_serde(other), (other.trim().to_owned(), None));
        }
    }

    #[test]
    fn a_file_that_is_no_text_is_told_with_its_place() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("suite.toml");
        std::fs::write(&path, b"name\xff\xfe").unwrap();
        assert_eq!(read_text(&path).unwrap_err().to_string(), "it is not text: byte 5 is not UTF-8");
        std::fs::write(&path, "näme").unwrap();
        assert_eq!(read_text(&path).unwrap(), "näme");
        assert_eq!(read_text(directory.path().join("none").as_path()).unwrap_err().kind(), io::ErrorKind::NotFound);
        let endless = read_text_of(Path::new("/dev/zero"), 1 << 20).unwrap_err();
        assert_eq!(endless.to_string(), "it has more than 1 MiB, the most that is read");
    }
}
