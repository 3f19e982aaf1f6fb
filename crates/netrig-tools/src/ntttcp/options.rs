//! What options there are in each dialect, and the errors of a command line.

use std::path::PathBuf;

use rig_sys::socket::{AddressError, ZonedAddress};

use super::Dialect;
use super::test_plan::Mapping;

/// One option of an original.
#[derive(Debug, Clone, Copy)]
pub struct OptionSpec {
    /// With its dash or dashes.
    pub name: &'static str,
    pub value: Value,
    pub use_of_it: OptionUse,
    /// One line for `-h`.
    pub help: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value {
    None,
    Needed(&'static str),
    /// May be left out.
    Optional(&'static str),
    /// One or more words.
    Several(&'static str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OptionUse {
    Honoured,
    /// Why not, and what to use instead.
    Refused(&'static str),
}

/// A command line that cannot be obeyed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    #[error("unknown option {option}: `netrig ntttcp -h --dialect {dialect}` lists those of NTttcp for {system}", system = .dialect.system())]
    Unknown { option: String, dialect: Dialect },
    #[error("{option} is not honoured: {why}")]
    Refused { option: &'static str, why: &'static str },
    #[error("{option} needs a value: {value}")]
    NoValue { option: String, value: &'static str },
    #[error("{option} takes no value, but has '{value}'")]
    NeedlessValue { option: String, value: String },
    #[error("{option} {value}: {why}")]
    BadValue { option: String, value: String, why: String },
    #[error("'{0}' belongs to no option: leave it out, or put the option before it")]
    Stray(String),
    #[error("{0}")]
    Conflict(String),
    #[error(
        "{windows} is an option of NTttcp for Windows and {linux} one of NTttcp for Linux, and one command line speaks one \
         dialect: leave one out, or choose with --dialect windows or --dialect linux"
    )]
    TwoDialects { windows: String, linux: String },
    #[error("an argument is not UTF-8: '{0}'")]
    NotText(String),
}

pub fn bad(option: &str, value: &str, why: impl Into<String>) -> OptionError {
    OptionError::BadValue { option: option.into(), value: value.into(), why: why.into() }
}

/// A whole number in a range.
pub fn number(option: &str, text: &str, least: u64, most: u64) -> Result<u64, OptionError> {
    match text.parse() {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        Ok(_) => Err(bad(option, text, format!("it has to be from {least} to {most}"))),
        Err(_) => Err(bad(option, text, format!("write a whole number from {least} to {most}"))),
    }
}

/// [`number`] for values whose range fits 32 bits.
pub fn small(option: &str, text: &str, least: u32, most: u32) -> Result<u32, OptionError> {
    number(option, text, least.into(), most.into()).map(|number| number as u32)
}

/// A number that may have a fraction and ends in k, m or g, either case, in steps of `unit`.
pub fn scaled(option: &str, text: &str, unit: f64, least: u64, most: u64) -> Result<u64, OptionError> {
    let why = || format!("write a number from {least} to {most}, which K, M or G may follow, as in 128K");
    let (digits, power) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 1),
        Some((at, 'm' | 'M')) => (&text[..at], 2),
        Some((at, 'g' | 'G')) => (&text[..at], 3),
        _ => (text, 0),
    };
    if !digits.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return Err(bad(option, text, why()));
    }
    let value = digits.parse::<f64>().map_err(|_| bad(option, text, why()))? * unit.powi(power);
    if value >= least as f64 && value <= most as f64 { Ok(value as u64) } else { Err(bad(option, text, why())) }
}

/// A mapping: threads, CPU or `*`, receiver.
pub fn mapping(text: &str, most: u32, cpus: &[u32]) -> Result<Mapping, OptionError> {
    let why = "write threads,CPU,receiver with * for any CPU, as in 4,*,10.0.1.4";
    let mut parts = text.splitn(3, ',').map(str::trim);
    let (Some(ports), Some(cpu), Some(host)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(bad("-m", text, why));
    };
    if host.is_empty() || host.contains(',') {
        return Err(bad("-m", text, why));
    }
    let ports =
        small("-m", ports, 1, most).map_err(|_| bad("-m", text, format!("threads have to be 1 to {most}; {why}")))?;
    let cpu = match cpu {
        "*" => None,
        number => match number.parse() {
            Ok(cpu) if cpus.contains(&cpu) => Some(cpu),
            Ok(cpu) => {
                return Err(bad("-m", text, format!("this process may not run on CPU {cpu}: choose from {cpus:?}")));
            }
            Err(_) => return Err(bad("-m", text, why)),
        },
    };
    Ok(Mapping { ports, cpu, host: host.to_owned() })
}

/// An address of this machine that packets leave from.
pub fn source(option: &str, text: &str) -> Result<ZonedAddress, OptionError> {
    text.parse().map_err(|error: AddressError| match error {
        AddressError::NotAnAddress(_) => bad(option, text, "it has to be an address of this machine"),
        error => bad(option, text, error.to_string()),
    })
}

/// A file that results go to. That it can be written is found out before the test.
pub fn file(option: &str, text: &str) -> Result<PathBuf, OptionError> {
    let path = PathBuf::from(text);
    let existed = path.exists();
    match std::fs::File::options().append(true).create(true).open(&path) {
        Ok(_) => {
            if !existed {
                // It was only a trial.
                let _ = std::fs::remove_file(&path);
            }
            Ok(path)
        }
        Err(error) => Err(bad(option, text, format!("cannot be written: {error}"))),
    }
}
