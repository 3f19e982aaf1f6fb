//! Single-letter options as getopt(3) reads them: letters may share one dash, a value stands in the same word or in the next.

use std::ffi::OsString;

/// One option, as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenOption {
    pub letter: char,
    /// Where the letter asks for a value. Empty otherwise.
    pub value: String,
}

/// What getopt(3) says of a letter that it cannot take.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GetoptError {
    #[error("invalid option -- '{0}'")]
    Unknown(char),
    #[error("option requires an argument -- '{0}'")]
    NoValue(char),
}

/// A command line that is read from left to right, up to `--` or its end.
#[derive(Debug, Clone)]
pub struct CommandLine {
    words: Vec<String>,
    next: usize,
    /// Letters of the present word that were not looked at.
    rest: String,
    /// CommandLine that are no options and belong to none.
    pub strays: Vec<String>,
}

impl CommandLine {
    pub fn new(arguments: &[OsString]) -> Self {
        let words = arguments.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        Self { words, next: 0, rest: String::new(), strays: Vec::new() }
    }

    /// The next option of those that `letters` has, where a colon says that the letter before it takes a value. `None` at the end, or
    /// at `--`, after which options of another set may follow.
    ///
    /// # Errors
    /// A letter that there is not, or one without its value.
    pub fn option(&mut self, letters: &str) -> Result<Option<GivenOption>, GetoptError> {
        if self.rest.is_empty() {
            loop {
                let Some(word) = self.words.get(self.next).cloned() else { return Ok(None) };
                self.next += 1;
                match word.strip_prefix('-') {
                    Some("-") => return Ok(None),
                    Some(rest) if !rest.is_empty() => {
                        rest.clone_into(&mut self.rest);
                        break;
                    }
                    _ => self.strays.push(word),
                }
            }
        }
        let mut rest = self.rest.chars();
        let Some(letter) = rest.next() else { return Ok(None) };
        let rest = rest.as_str().to_owned();
        let known = letters.char_indices().find(|&(_, known)| known == letter && letter != ':');
        let Some((at, _)) = known else {
            self.rest = rest;
            return Err(GetoptError::Unknown(letter));
        };
        if !letters[at + letter.len_utf8()..].starts_with(':') {
            self.rest = rest;
            return Ok(Some(GivenOption { letter, value: String::new() }));
        }
        self.rest.clear();
        if !rest.is_empty() {
            return Ok(Some(GivenOption { letter, value: rest }));
        }
        let value = self.words.get(self.next).cloned().ok_or(GetoptError::NoValue(letter))?;
        self.next += 1;
        Ok(Some(GivenOption { letter, value }))
    }

    /// The next word, if it `is` what an option takes that may stand without.
    pub fn next_if(&mut self, is: impl Fn(&str) -> bool) -> Option<String> {
        // An option with letters behind it in its word has no word of its own.
        let word = self.words.get(self.next).filter(|word| self.rest.is_empty() && is(word))?.clone();
        self.next += 1;
        Some(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(arguments: &[&str], letters: &str) -> (Vec<(char, String)>, Vec<String>) {
        let mut words = CommandLine::new(&arguments.iter().map(OsString::from).collect::<Vec<_>>());
        let mut read = Vec::new();
        while let Some(option) = words.option(letters).unwrap() {
            read.push((option.letter, option.value));
        }
        (read, words.strays)
    }

    #[test]
    fn letters_share_a_dash_and_values_stand_in_the_word_or_the_next() {
        let (read, strays) =
            read(&["-cC", "-l10", "-t", "TCP_RR", "-D-0.2", "stray", "-P", "-1", "--", "-x"], "cCl:t:D:P:");
        let expected = [("c", ""), ("C", ""), ("l", "10"), ("t", "TCP_RR"), ("D", "-0.2"), ("P", "-1")];
        let read: Vec<(String, String)> = read.into_iter().map(|(letter, value)| (letter.to_string(), value)).collect();
        let expected: Vec<(String, String)> = expected.iter().map(|(l, v)| ((*l).into(), (*v).into())).collect();
        assert_eq!(read, expected);
        assert_eq!(strays, ["stray"]);
    }

    #[test]
    fn what_follows_the_two_dashes_is_read_with_other_letters() {
        let mut words = CommandLine::new(&["-a", "--", "-k", "X,Y", "-D"].map(OsString::from));
        assert_eq!(words.option("a").unwrap().unwrap().letter, 'a');
        assert_eq!(words.option("a"), Ok(None));
        assert_eq!(words.option("kD").unwrap().unwrap().letter, 'k');
        assert_eq!(words.next_if(|word| !word.starts_with('-')).as_deref(), Some("X,Y"));
        assert_eq!(words.next_if(|word| !word.starts_with('-')), None);
        assert_eq!(words.option("kD").unwrap().unwrap().letter, 'D');
    }

    #[test]
    fn errors_are_those_of_getopt() {
        let mut words = CommandLine::new(&["-é", "-z", "-l"].map(OsString::from));
        assert_eq!(words.option("l:").unwrap_err().to_string(), "invalid option -- 'é'");
        assert_eq!(words.option("l:").unwrap_err().to_string(), "invalid option -- 'z'");
        assert_eq!(words.option("l:").unwrap_err().to_string(), "option requires an argument -- 'l'");
        assert_eq!(CommandLine::new(&[OsString::from("-:")]).option("l:").unwrap_err(), GetoptError::Unknown(':'));
    }
}
