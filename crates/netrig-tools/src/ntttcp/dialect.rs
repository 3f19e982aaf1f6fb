//! Whose options a command line has: docs/decisions/ntttcp-dialects.md.

use std::fmt;
use std::str::FromStr;

use rig_sys::socket::{AddressError, ZonedAddress};

use super::options::{OptionError, bad};
use super::{linux, windows};

/// An original's command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    Linux,
    Windows,
}

impl Dialect {
    /// As it is written in prose.
    pub fn system(self) -> &'static str {
        match self {
            Self::Linux => "Linux",
            Self::Windows => "Windows",
        }
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Linux => "linux",
            Self::Windows => "windows",
        })
    }
}

impl FromStr for Dialect {
    type Err = OptionError;

    fn from_str(text: &str) -> Result<Self, OptionError> {
        match text.to_ascii_lowercase().as_str() {
            "linux" => Ok(Self::Linux),
            "windows" => Ok(Self::Windows),
            _ => Err(bad("--dialect", text, "write linux or windows")),
        }
    }
}

/// The dialect of a command line: the one that is asked for, else the one whose options there are, else Linux's, whose
/// meaning of what both have is the same on the wire.
pub fn choose(arguments: &[String]) -> Result<Dialect, OptionError> {
    let (mut of_windows, mut of_linux) = (None, None);
    for (at, word) in arguments.iter().enumerate() {
        let following = arguments.get(at + 1).map(String::as_str);
        if word == "--dialect" {
            return following.unwrap_or_default().parse();
        }
        if let Some(name) = word.strip_prefix("--dialect=") {
            return name.parse();
        }
        // -rb -1 is a value.
        let before = at.checked_sub(1).map(|before| arguments[before].to_ascii_lowercase());
        if matches!(before.as_deref(), Some("-rb" | "-sb")) && word.parse::<i64>().is_ok() {
            continue;
        }
        let value = following.filter(|word| !word.starts_with('-'));
        match whose(word, value, arguments.get(at + 2).map(String::as_str)) {
            Some(Dialect::Windows) => drop(of_windows.get_or_insert(word)),
            Some(Dialect::Linux) => drop(of_linux.get_or_insert(word)),
            None => {}
        }
    }
    match (of_windows, of_linux) {
        (Some(windows), Some(linux)) => {
            Err(OptionError::TwoDialects { windows: windows.clone(), linux: linux.clone() })
        }
        (Some(_), None) => Ok(Dialect::Windows),
        (None, _) => Ok(Dialect::Linux),
    }
}

/// Whose option this word is, if it is that of one alone. `value` follows it, unless it is an option itself, and
/// `beyond` comes after.
fn whose(word: &str, value: Option<&str>, beyond: Option<&str>) -> Option<Dialect> {
    let letters = word.strip_prefix('-').filter(|letters| !letters.is_empty())?;
    if letters.starts_with('-') {
        return (letters != "-" && letters != "-help").then_some(Dialect::Linux);
    }
    let known_to_linux = |letter: char| {
        linux::OPTIONS.iter().any(|spec| spec.name.strip_prefix('-') == Some(letter.encode_utf8(&mut [0; 4])))
    };
    let first = letters.chars().next()?;
    if letters.len() > 1 {
        // A word of Windows, or letters and values together, as Linux takes them.
        return if windows::find(word).is_some() {
            Some(Dialect::Windows)
        } else {
            known_to_linux(first).then_some(Dialect::Linux)
        };
    }
    let is_count = |text: &str| text.parse::<u32>().is_ok();
    let of_windows = match first {
        's' | 'r' | 'p' | 't' | '6' | 'u' | 'h' => return None,
        // Several mappings.
        'm' => return beyond.filter(|word| !word.starts_with('-')).map(|_| Dialect::Windows),
        // A length, or a number of connections.
        'l' => match value {
            Some(text) if text.parse::<u32>().is_ok_and(|number| number <= 1000) => return None,
            value => value.is_some(),
        },
        // A number of buffers, or of threads.
        'n' => match value {
            Some(text) if is_count(text) => return None,
            value => value.is_some(),
        },
        // Outstanding I/Os, or an address.
        'a' => value.is_none_or(|text| matches!(text.parse::<ZonedAddress>(), Err(AddressError::NotAnAddress(_)))),
        // An array of packets, or a file.
        'x' => value.is_some_and(is_count),
        letter => !known_to_linux(letter) && windows::find(word).is_some(),
    };
    match of_windows {
        true => Some(Dialect::Windows),
        false => known_to_linux(first).then_some(Dialect::Linux),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(line: &str) -> Result<Dialect, OptionError> {
        choose(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn what_only_one_of_them_has_decides() {
        for line in [
            "-s -m 1,*,10.0.1.4 -l 128k -a 2 -t 15",
            "-r -m 1,*,10.0.1.4 -rb 2M -a 16 -t 15",
            "-s -m 1,*,172.16.0.22 -l 1390 -t 15 -ndl",
            "-s -a 8 -m 64,*,192.168.51.31 -t 9999 -thr 10000",
            "-r -a 8 -m 64,*,192.168.51.31 -t 9999",
            "-r -m 1,*,172.16.0.12 -rb -1",
            "-s -m 4,0,1.2.3.4 2,*,contoso -t 5",
            "-s -m 1,*,h -n 20K",
            "-s -m 1,*,h -l 1M",
            "-s -m 1,*,h -l 1390",
            "-s -m 1,*,h -a",
            "-S -m 1,*,h -NS",
            "-r -m 1,*,h -w",
            "-r -m 1,*,h -v",
            "-P 4 -r --dialect windows",
        ] {
            assert_eq!(chosen(line), Ok(Dialect::Windows), "{line}");
        }
        for line in [
            "",
            "-r",
            "-s 10.0.0.1",
            "-s10.0.0.1",
            "-s 192.168.1.1 -P 64 -n 16 -l 10 -f25001 -6 -V",
            "-r -m 8,*,192.168.1.1 -6",
            "-s 192.168.1.1 -n 64 -a 192.168.1.11",
            "-s 192.168.1.1 --fq-rate-limit 10G",
            "-s -m 1,*,10.0.1.4 -t 15",
            "-r -x",
            "-r -x result.xml -N",
            "-rV6",
            "-s h -b 1M -B 10G",
            "-s -m 1,*,10.0.1.4 -l 128k --dialect=linux",
            "-h",
        ] {
            assert_eq!(chosen(line), Ok(Dialect::Linux), "{line}");
        }
    }

    #[test]
    fn both_at_once_are_refused_and_named() {
        for (line, windows, linux) in [
            ("-s -m 1,*,h -l 128k -P 4", "-l", "-P"),
            ("-r -rb 2M -V", "-rb", "-V"),
            ("-s h --no-delay -ndl", "-ndl", "--no-delay"),
        ] {
            let error = chosen(line).unwrap_err();
            let expected = OptionError::TwoDialects { windows: windows.into(), linux: linux.into() };
            assert_eq!(error, expected, "{line}");
            assert!(error.to_string().contains("--dialect"), "{error}");
        }
        assert!(chosen("--dialect mac").is_err());
        assert!(chosen("--dialect").is_err());
    }
}
