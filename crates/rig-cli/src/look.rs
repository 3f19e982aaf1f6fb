//! What the place that is written to can show.

use std::borrow::Cow;
use std::env;
use std::ffi::OsString;
use std::io::{self, IsTerminal};

/// Whether standard output takes colours: on a terminal, unless NO_COLOR (<https://no-color.org>) or TERM=dumb says otherwise.
pub fn colour() -> bool {
    io::stdout().is_terminal() && takes_colour(env::var_os)
}

/// Whether a line on standard error can be drawn over: on a terminal, unless TERM=dumb says that it only goes on.
pub fn redraws() -> bool {
    io::stderr().is_terminal() && takes_control(env::var_os)
}

/// A paragraph with an indent, its lines ended; names with hyphens stay whole.
pub fn wrapped(text: &str, first: &str, others: &str, width: usize) -> String {
    textwrap::wrap(text, between_words(first, others, width)).into_iter().map(|line| format!("{line}\n")).collect()
}

fn between_words<'a>(first: &'a str, others: &'a str, width: usize) -> textwrap::Options<'a> {
    textwrap::Options::new(width.max(40))
        .initial_indent(first)
        .subsequent_indent(others)
        .word_splitter(textwrap::WordSplitter::NoHyphenation)
}

/// Sentences wrapped between words, each line's rest below its first word. Lines with columns stay whole, and so do words that
/// are too long, such as paths, which are there to be copied.
pub fn in_columns(text: &str, width: usize) -> String {
    let wrapped = |line: &str| {
        let words = line.trim_start_matches(' ');
        let indent = &line[..line.len() - words.len()];
        if words.contains("  ") {
            return line.to_owned();
        }
        let deeper = format!("{indent}  ");
        textwrap::wrap(words, between_words(indent, &deeper, width).break_words(false)).join("\n")
    };
    text.lines().map(wrapped).collect::<Vec<_>>().join("\n")
}

/// Whether nothing but ASCII can be shown.
pub fn is_ascii() -> bool {
    has_only_ascii(env::var_os)
}

/// The text as it can be shown: as it is, or in ASCII where the locale says so.
pub fn shown(text: &str) -> Cow<'_, str> {
    if is_ascii() { Cow::Owned(in_ascii(text)) } else { Cow::Borrowed(text) }
}

fn takes_colour(variable: impl Fn(&'static str) -> Option<OsString>) -> bool {
    variable("NO_COLOR").is_none_or(|value| value.is_empty()) && takes_control(variable)
}

fn takes_control(variable: impl Fn(&'static str) -> Option<OsString>) -> bool {
    variable("TERM").is_none_or(|term| term != "dumb")
}

/// By the first of LC_ALL, LC_CTYPE and LANG that is set (locale(7)). Where none is, which is so in containers and services,
/// the reader is taken to read UTF-8.
pub fn has_only_ascii(variable: impl Fn(&'static str) -> Option<OsString>) -> bool {
    let set = |name| variable(name).filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
    locale.is_some_and(|locale| {
        let locale = locale.to_string_lossy().to_lowercase();
        !locale.contains("utf-8") && !locale.contains("utf8")
    })
}

/// The text with other signs for what is not ASCII, each as wide as what it stands for, so that columns stay in place.
pub fn in_ascii(text: &str) -> String {
    let mut ascii = String::with_capacity(text.len());
    for sign in text.chars() {
        match sign {
            // One column more, which blanks before it in the line give where there are several.
            '±' => {
                let line = ascii.rfind('\n').map_or(0, |end| end + 1);
                let indent = ascii[line..].len() - ascii[line..].trim_start_matches(' ').len();
                if let Some(blanks) = ascii[line + indent..].rfind("  ") {
                    ascii.remove(line + indent + blanks);
                }
                ascii.push_str("+-");
            }
            '≠' => ascii.push('!'),
            '─' | '━' | '╶' | '╴' | '–' | '—' | '‐' | '▄' => ascii.push('-'),
            '═' | '▍' | '▎' | '▏' | '▒' | '▅' => ascii.push('='),
            '│' | '┃' | '║' => ascii.push('|'),
            '┌' | '┐' | '└' | '┘' | '├' | '┤' | '┬' | '┴' | '┼' | '╸' | '╺' | '▆' | '✓' => {
                ascii.push('+');
            }
            '█' | '▉' | '▊' | '▋' | '▌' | '▓' => ascii.push('#'),
            '░' | '…' | '·' | '▂' => ascii.push('.'),
            '▁' => ascii.push('_'),
            '▃' => ascii.push(':'),
            '▇' => ascii.push('*'),
            '✗' | '×' => ascii.push('x'),
            'µ' | 'μ' => ascii.push('u'),
            '→' => ascii.push('>'),
            '\u{a0}' => ascii.push(' '),
            sign if sign.is_ascii() => ascii.push(sign),
            _ => ascii.push('?'),
        }
    }
    ascii
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of<T>(ask: impl Fn(&dyn Fn(&'static str) -> Option<OsString>) -> T, set: &[(&str, &str)]) -> T {
        ask(&|name| set.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value)))
    }

    #[test]
    fn the_environment_decides() {
        let colour = |set: &[(&str, &str)]| of(|variable| takes_colour(variable), set);
        assert!(colour(&[]) && colour(&[("TERM", "xterm"), ("NO_COLOR", "")]));
        assert!(!colour(&[("TERM", "dumb")]) && !colour(&[("NO_COLOR", "1")]));
        let control = |set: &[(&str, &str)]| of(|variable| takes_control(variable), set);
        assert!(control(&[]) && control(&[("TERM", "xterm"), ("NO_COLOR", "1")]) && !control(&[("TERM", "dumb")]));
        let ascii = |set: &[(&str, &str)]| of(|variable| has_only_ascii(variable), set);
        assert!(ascii(&[("LC_ALL", "C"), ("LANG", "de_DE.UTF-8")]) && ascii(&[("LANG", "POSIX")]));
        assert!(!ascii(&[]) && !ascii(&[("LC_ALL", ""), ("LANG", "C.utf8")]));
    }

    #[test]
    fn sentences_are_wrapped_between_words() {
        let path = "/a/path/that/is/longer/than/the/terminal/is/wide.toml";
        let text = format!(
            "netrig: {path}: this key is known neither here nor there\n  write one of a-long-name and b, or none at all"
        );
        let expected = format!(
            "netrig:\n  {path}:\n  this key is known neither here nor\n  there\n  write one of a-long-name and b, or\n    none at all"
        );
        assert_eq!(in_columns(&text, 40), expected);
        assert_eq!(in_columns(&text, 200), text);
    }

    #[test]
    fn lines_with_columns_are_not_wrapped() {
        let table = "name    what it is and does, at length, in a line";
        assert_eq!(in_columns(table, 40), table);
    }

    #[test]
    fn columns_stay_in_their_places() {
        let table = "─────\n  36.7 µs   ±1.2 %  ✓ holds\n ██▌░ … 3 × 4";
        let ascii = in_ascii(table);
        assert_eq!(ascii, "-----\n  36.7 us  +-1.2 %  + holds\n ###. . 3 x 4");
        assert!(ascii.is_ascii());
        assert_eq!(in_ascii("5 ±1"), "5 +-1");
        assert_eq!(in_ascii("A  ██    109 ±57 %  █   0.62 ±8 %"), "A  ##   109 +-57 %  #  0.62 +-8 %");
        assert_eq!(in_ascii("x\n  the ± of it"), "x\n  the +- of it", "an indent stays");
    }
}
