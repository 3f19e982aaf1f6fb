//! Where a running balancer is found: its socket, its lock and the configuration kept beside them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rig_service::run_directory::{RunDirectory, RunDirectoryError};

/// The balancer's name, by which several on one machine are told apart: 1 to 32 of `[A-Za-z0-9_-]`. No dot, because the
/// names of directories on a bpf file system have none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name(String);

/// What [`Name::default`] is, for help texts.
pub const DEFAULT_NAME: &str = "lb";

impl Default for Name {
    fn default() -> Self {
        Self(DEFAULT_NAME.to_owned())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a name of a balancer: 1 to 32 letters, digits, '-' and '_'")]
pub struct NotAName(String);

impl FromStr for Name {
    type Err = NotAName;

    fn from_str(text: &str) -> Result<Self, NotAName> {
        let usable = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if text.is_empty() || text.len() > 32 || !text.chars().all(usable) {
            return Err(NotAName(text.to_owned()));
        }
        Ok(Self(text.to_owned()))
    }
}

/// The files of one balancer, and its directory on the bpf file system.
#[derive(Debug, Clone)]
pub struct Place {
    run: RunDirectory,
    name: Name,
}

/// Of all balancers, in the directory of what runs.
const DIRECTORY: &str = "lb";

/// What persists is pinned below this.
const BPF_FILE_SYSTEM: &str = "/sys/fs/bpf";

impl Place {
    pub fn of(name: &Name) -> Self {
        Self { run: RunDirectory::of_machine(), name: name.clone() }
    }

    pub fn name(&self) -> &Name {
        &self.name
    }

    /// Has a directory for the files.
    pub fn make_directory(&self) -> Result<(), RunDirectoryError> {
        self.run.make_below(DIRECTORY).map(drop)
    }

    /// Requests come by this one.
    pub fn socket(&self) -> PathBuf {
        self.file("sock")
    }

    /// Locked by whoever runs the balancer, whose process it names.
    pub fn lock(&self) -> PathBuf {
        self.file("lock")
    }

    /// The configuration in force of a balancer that persists.
    pub fn configuration(&self) -> PathBuf {
        self.file("toml")
    }

    /// What was changed of network devices, to be put back.
    pub fn placements(&self) -> PathBuf {
        self.file("placed")
    }

    /// Where tables and links of a balancer that persists are pinned.
    pub fn pins(&self) -> PathBuf {
        Path::new(BPF_FILE_SYSTEM).join("netrig").join(&self.name.0)
    }

    fn file(&self, extension: &str) -> PathBuf {
        self.run.path().join(DIRECTORY).join(format!("{}.{extension}", self.name))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::*;

    #[test]
    fn names_are_file_names_and_nothing_else() {
        assert_eq!("edge-1_b".parse::<Name>().unwrap().to_string(), "edge-1_b");
        for refused in ["", "a/b", "..", "a.b", "ä", &"x".repeat(33)] {
            assert!(refused.parse::<Name>().is_err(), "{refused}");
        }
    }
}
