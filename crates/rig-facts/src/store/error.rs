//! What can go wrong with the store, in words for the user who has to mend it.

use std::path::{Path, PathBuf};

use rusqlite::{ErrorCode, ffi};

use super::{Label, RunId, connection::TIMEOUT};

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    #[error(
        "no place for the store: NETRIG_STORE, XDG_DATA_HOME and HOME are all unset (or not absolute); \
         set NETRIG_STORE=FILE or give --store FILE"
    )]
    NoHome,
    #[error("no store at {}: `netrig run` makes one; name another with --store FILE", path.display())]
    Missing { path: PathBuf },
    #[error("cannot make the store's directory {}: {source}; name another place with --store FILE", path.display())]
    Directory { path: PathBuf, source: std::io::Error },
    #[error("{} is not a netrig store ({detail}): leave it be and name another with --store FILE", path.display())]
    NotAStore { path: PathBuf, detail: String },
    #[error(
        "the store {path} is damaged ({detail}): `netrig history --repair` says which runs can be read and keeps them; \
         where there are none, move it away and the next run makes a new one; what else is readable of it, \
         `sqlite3 '{path}' .recover | sqlite3 rescued.sqlite` rescues where sqlite3 was built with .recover, \
         then use --store rescued.sqlite",
        path = path.display()
    )]
    Corrupt { path: PathBuf, detail: String },
    #[error(
        "{} was written by a newer netrig (schema {found}, this one knows up to {known}): \
         use that version or another --store",
        path.display()
    )]
    Newer { path: PathBuf, found: u32, known: u32 },
    #[error(
        "{} was written by an older netrig (schema {found}, now {known}) and may not be written to: \
         copy it to where you may write and use --store COPY",
        path.display()
    )]
    OlderReadOnly { path: PathBuf, found: u32, known: u32 },
    #[error(
        "no space left for the store {}: make room or name another place with --store FILE; \
         what was stored before is intact",
        path.display()
    )]
    DiskFull { path: PathBuf },
    #[error(
        "may not use the store {} ({detail}): check the owner and the permissions of the file and its directory, \
         or name another with --store FILE",
        path.display()
    )]
    NoPermission { path: PathBuf, detail: String },
    #[error(
        "the store {} was locked by another program for more than {} s: end what holds it (`fuser '{}'` tells) \
         and try again",
        path.display(), TIMEOUT.as_secs(), path.display()
    )]
    Locked { path: PathBuf },
    #[error("cannot tell which process this is ({0}): netrig needs /proc mounted")]
    Runner(std::io::Error),
    #[error("run {run} is not in the store {}: `netrig history` lists those that are", path.display())]
    NoSuchRun { path: PathBuf, run: RunId },
    #[error("no run in the store {} is labelled `{label}`: `netrig history` lists the runs, and `latest` is the last", path.display())]
    NoSuchLabel { path: PathBuf, label: Label },
    #[error("run {run} is going on: end it first (Ctrl-C), then delete it")]
    GoingOn { run: RunId },
    #[error("the store {} holds no runs yet: `netrig run SUITE` makes one", path.display())]
    NoRuns { path: PathBuf },
    #[error("latest~{back} is not in the store {}, which has {runs} runs: see `netrig history`", path.display())]
    TooFarBack { path: PathBuf, back: u32, runs: usize },
    #[error("run {run} in the store {} is damaged: {why}; `netrig history --repair` says what it would drop", path.display())]
    DamagedRun { path: PathBuf, run: RunId, why: String },
    #[error("run {run} has ended already: its record is closed")]
    Ended { run: RunId },
    #[error("trial {ordinal} of scenario {scenario} is in run {run} already")]
    DuplicateTrial { run: RunId, scenario: String, ordinal: u32 },
    #[error("{what} cannot be stored, for it could not be read back ({source}); this is a fault of netrig")]
    Unstorable { what: String, source: serde_json::Error },
    #[error(
        "{what} in the store {} is not readable by netrig {} ({source}): use the version that wrote it",
        path.display(), env!("CARGO_PKG_VERSION")
    )]
    Unreadable { path: PathBuf, what: String, source: serde_json::Error },
    #[error("the store {}: {source}", path.display())]
    Sqlite { path: PathBuf, source: rusqlite::Error },
}

impl StoreError {
    /// What is damaged, where the error is one of the store's contents; other errors are given back.
    pub(super) fn damage(self) -> Result<String, Self> {
        match self {
            Self::DamagedRun { why, .. } => Ok(why),
            Self::Corrupt { detail, .. } => Ok(detail),
            Self::Unreadable { what, source, .. } => Ok(format!("{what} is not understood ({source})")),
            other => Err(other),
        }
    }

    /// Gives an error of SQLite the store's name and, where it is known, the next step.
    pub(super) fn from_sqlite(path: &Path, source: rusqlite::Error) -> Self {
        let path = path.to_owned();
        let detail = source.to_string();
        let Some(cause) = source.sqlite_error() else { return Self::Sqlite { path, source } };
        match (cause.code, cause.extended_code) {
            (ErrorCode::DiskFull, _) | (_, ffi::SQLITE_IOERR_SHMSIZE) => Self::DiskFull { path },
            (ErrorCode::NotADatabase, _) => Self::NotAStore { path, detail },
            (ErrorCode::DatabaseCorrupt, _) => Self::Corrupt { path, detail },
            (ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked, _) => Self::Locked { path },
            (ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied, _) => {
                Self::NoPermission { path, detail }
            }
            _ => Self::Sqlite { path, source },
        }
    }
}
