//! Processes by names that no other one ever has, for what they leave with others: whether who made something still lives.

use std::fmt;
use std::fs;
use std::path::Path;
use std::str::FromStr;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use crate::error::{Error, ErrorContext, Result};
use crate::process::start_time;

/// A process of a boot of a machine: its number in a namespace of processes (pid_namespaces(7)) and when it started. Written in
/// lower-case letters, digits and `-`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessIdentity {
    /// Of the boot, without its hyphens (random(4), `boot_id`).
    boot: String,
    namespace: u64,
    pub process: u32,
    start: u64,
}

/// What is known of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessFate {
    Lives,
    Ended,
    /// It is, or was, of another machine, another boot or another namespace of processes, or this user may not see it.
    Unknown,
}

impl ProcessIdentity {
    /// This process, as the namespace of processes that /proc shows has it.
    ///
    /// # Errors
    /// When /proc does not tell.
    pub fn own() -> Result<Self> {
        let number = fs::read_link("/proc/self").during(|| "read /proc/self".into())?;
        let process = number.to_str().and_then(|number| number.parse().ok()).ok_or_else(|| unknown("this process"))?;
        // Its own namespace may be below the one that /proc shows, which is its parent's then.
        let status = fs::read_to_string("/proc/self/status").during(|| "read /proc/self/status".into())?;
        let is_seen_from_outside = std::process::id() != process;
        let of = match status.lines().find_map(|line| line.strip_prefix("PPid:")) {
            Some(parent) if is_seen_from_outside => format!("/proc/{}/ns/pid", parent.trim()),
            _ => "/proc/self/ns/pid".to_owned(),
        };
        let start = start_time(process).ok_or_else(|| unknown("when this process started"))?;
        Ok(Self { boot: boot()?, namespace: namespace_of(Path::new(&of))?, process, start })
    }

    /// Whether it lives, as far as this process can see: to be asked where /proc shows this process's own namespace.
    pub fn fate(&self) -> ProcessFate {
        let here = namespace_of(Path::new("/proc/self/ns/pid"));
        self.fate_among(here.ok())
    }

    /// The same by the namespace of processes that /proc shows, which `seen_by` is in, too.
    pub fn fate_as_seen_by(&self, seen_by: &Self) -> ProcessFate {
        self.fate_among(Some(seen_by.namespace))
    }

    fn fate_among(&self, namespace: Option<u64>) -> ProcessFate {
        if namespace != Some(self.namespace) || boot().ok().as_ref() != Some(&self.boot) {
            return ProcessFate::Unknown;
        }
        match start_time(self.process) {
            Some(start) if start == self.start => ProcessFate::Lives,
            Some(_) => ProcessFate::Ended,
            // Other users' processes may be hidden (proc(5), hidepid).
            None if self.is_only_hidden() => ProcessFate::Unknown,
            None => ProcessFate::Ended,
        }
    }

    /// Whether there is a process of this number that is no zombie's, though /proc does not show it.
    fn is_only_hidden(&self) -> bool {
        let shown = Path::new("/proc").join(self.process.to_string()).exists();
        let pid = i32::try_from(self.process).ok().and_then(Pid::from_raw);
        !shown && pid.is_some_and(|pid| test_kill_process(pid) == Err(Errno::PERM))
    }
}

impl fmt::Display for ProcessIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { boot, namespace, process, start } = self;
        write!(f, "{boot}-{namespace}-{process}-{start}")
    }
}

impl FromStr for ProcessIdentity {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let read = || {
            let mut words = text.split('-');
            let boot =
                words.next().filter(|boot| boot.len() == 32 && boot.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
            let mut number = || words.next()?.parse::<u64>().ok();
            let own = Self {
                boot: boot.to_owned(),
                namespace: number()?,
                process: number()?.try_into().ok()?,
                start: number()?,
            };
            words.next().is_none().then_some(own)
        };
        read().ok_or_else(|| unknown(&format!("the process '{text}'")))
    }
}

fn boot() -> Result<String> {
    let file = "/proc/sys/kernel/random/boot_id";
    Ok(fs::read_to_string(file).during(|| format!("read {file}"))?.trim().replace('-', ""))
}

/// The number of a namespace of processes, from a link such as `pid:[4026531836]` (namespaces(7)).
fn namespace_of(link: &Path) -> Result<u64> {
    let target = fs::read_link(link).during(|| format!("read {}", link.display()))?;
    let number = target.to_str().and_then(|text| text.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok());
    number.ok_or_else(|| unknown(&link.display().to_string()))
}

fn unknown(what: &str) -> Error {
    Error::new(format!("find out {what}"), std::io::Error::from(std::io::ErrorKind::InvalidData))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_name_and_ended_when_its_number_is_anothers() {
        let own = ProcessIdentity::own().unwrap();
        assert_eq!(own.to_string().parse::<ProcessIdentity>().unwrap(), own);
        assert_eq!((own.fate(), own.fate_as_seen_by(&own)), (ProcessFate::Lives, ProcessFate::Lives));
        let another = ProcessIdentity { start: own.start + 1, ..own.clone() };
        assert_eq!(another.fate(), ProcessFate::Ended);
        // Of processes of another namespace, or of another boot, nothing is known.
        let elsewhere = ProcessIdentity { namespace: own.namespace + 1, ..another.clone() };
        let before = ProcessIdentity { boot: "0".repeat(32), ..another };
        assert_eq!([elsewhere.fate(), before.fate()], [ProcessFate::Unknown; 2]);
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let its = ProcessIdentity { process: child.id(), start: start_time(child.id()).unwrap(), ..own.clone() };
        assert_eq!(its.fate(), ProcessFate::Lives);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(its.fate(), ProcessFate::Ended);
        for none in ["", "1-2-3", "x-1-2-3", &format!("{own}-4")] {
            assert!(none.parse::<ProcessIdentity>().is_err(), "{none}");
        }
    }
}
