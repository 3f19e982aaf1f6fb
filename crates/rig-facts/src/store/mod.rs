//! The runs of this machine, in one SQLite file.
//!
//! One transaction a trial: however the runner ends, every trial that was finished is stored and none is half there.
//! Several runners and readers may use one store at once.
//!
//! # What is kept, and how it stays readable
//! A run keeps the text of its suite file and a trial its [`TrialRecord`] as JSON, so that a report needs nothing but
//! the store. A record that was stored once is read by every later netrig:
//! - a field that a record type gains is an `Option` or has `#[serde(default)]`, and its default means *not recorded*;
//!   a reader never takes it for a measured zero;
//! - a field is never renamed, removed or given another meaning or unit, and a variant of an enum keeps its name;
//! - record types do not deny unknown fields, so that an older netrig reads what a newer one of the same schema wrote;
//! - what this cannot express is a new schema version: a step in `connection::STEPS` that rewrites the rows.
//!
//! `tests/integration/store.rs` of netrig holds records as they were written; they must go on being readable.

mod connection;
mod error;
mod listing;
mod repair;
mod runner;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rusqlite::{Connection, ErrorCode, OptionalExtension, Transaction, TransactionBehavior, params};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::error::Category;

pub use self::error::StoreError;
use self::listing::{Fault, column};
pub use self::listing::{RunCalibration, UnreadablePart, UnreadableRuns};
pub use self::repair::StoreCheck;
use self::runner::Runner;
use crate::record::{Environment, RigCost, TrialRecord};

type Result<T> = std::result::Result<T, StoreError>;

/// The number of a run in its store. Never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunId(i64);

impl RunId {
    pub fn get(self) -> i64 {
        self.0
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How a user names a run: `latest`, `latest~1` for the one before it, its number, or its label.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum RunName {
    #[default]
    Latest,
    /// So many runs before the latest.
    Before(u32),
    Number(RunId),
    /// The latest run of that label.
    Label(Label),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` names no run: give a number or a label from `netrig history`, `latest`, or `latest~1` for the one before"
)]
pub struct BadRunName(String);

/// What a user calls a run. No two ways to name a run look alike, so it begins with a letter, has no dot as files have, and is
/// not `latest`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Label(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a label: it begins with a letter, has letters, digits and _ + - after it, 40 in all at most, and is not `latest`"
)]
pub struct BadLabel(String);

impl FromStr for Label {
    type Err = BadLabel;

    fn from_str(text: &str) -> std::result::Result<Self, BadLabel> {
        let good = |c: char| c.is_alphanumeric() || "_+-".contains(c);
        let fits = text.starts_with(char::is_alphabetic) && text.chars().all(good) && text.chars().count() <= 40;
        if fits && !text.eq_ignore_ascii_case("latest") {
            Ok(Self(text.to_owned()))
        } else {
            Err(BadLabel(text.to_owned()))
        }
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for RunName {
    type Err = BadRunName;

    fn from_str(text: &str) -> std::result::Result<Self, BadRunName> {
        if let Some(back) = text.strip_prefix("latest~") {
            return back.parse().map(Self::Before).map_err(|_| BadRunName(text.to_owned()));
        }
        match text.parse::<i64>() {
            _ if text == "latest" => Ok(Self::Latest),
            Ok(number) if number > 0 => Ok(Self::Number(RunId(number))),
            _ => text.parse().map(Self::Label).map_err(|_| BadRunName(text.to_owned())),
        }
    }
}

impl fmt::Display for RunName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Latest => f.write_str("latest"),
            Self::Before(back) => write!(f, "latest~{back}"),
            Self::Number(id) => id.fmt(f),
            Self::Label(label) => label.fmt(f),
        }
    }
}

/// What is known of a run when it begins.
#[derive(Debug, Clone, PartialEq)]
pub struct NewRun {
    pub suite: String,
    pub title: String,
    /// Name of the suite file as the user gave it, for messages.
    pub suite_file: String,
    /// The complete text of the suite file.
    pub suite_text: String,
    /// The options that the run was started with.
    pub options: Value,
    pub environment: Environment,
    /// Trials that the run will make at most.
    pub planned_trials: u32,
    /// Milliseconds since the Unix epoch.
    pub started_unix_ms: i64,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunEnd {
    Complete,
    /// The user stopped it.
    Interrupted,
    Failed {
        reason: String,
    },
}

/// What became of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "state")]
pub enum RunState {
    Running,
    Complete,
    /// The user stopped it, or its runner was killed.
    Interrupted,
    Failed {
        reason: String,
    },
}

impl fmt::Display for RunState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Running => f.write_str("running"),
            Self::Complete => f.write_str("complete"),
            Self::Interrupted => f.write_str("interrupted"),
            Self::Failed { reason } => write!(f, "failed: {reason}"),
        }
    }
}

/// A run without its trials.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunSummary {
    pub id: RunId,
    /// What the user calls it.
    pub label: Option<Label>,
    pub suite: String,
    pub title: String,
    pub netrig_version: String,
    /// Milliseconds since the Unix epoch.
    pub started_unix_ms: i64,
    /// `None` while the run works, and for one whose runner was killed.
    pub ended_unix_ms: Option<i64>,
    #[serde(flatten)]
    pub state: RunState,
    pub planned_trials: u32,
    pub stored_trials: u32,
}

/// A run with everything that a report needs.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    pub summary: RunSummary,
    pub suite_file: String,
    pub suite_text: String,
    pub options: Value,
    pub environment: Environment,
    /// `None` when the run ended before it was measured.
    pub rig_cost: Option<RigCost>,
    /// What each scenario reached of the confidence asked for; `None` when the run ended before that was known.
    pub goals: Option<Value>,
    /// In the order in which they were stored.
    pub trials: Vec<TrialRecord>,
}

#[derive(Debug)]
pub struct Store {
    connection: Connection,
    path: PathBuf,
    /// What could not be read up to now.
    unread: RefCell<BTreeMap<UnreadableRuns, String>>,
}

impl Store {
    /// `$NETRIG_STORE`, else `$XDG_DATA_HOME/netrig/runs.sqlite`, else `~/.local/share/netrig/runs.sqlite` (XDG Base
    /// Directory Specification: a relative `XDG_DATA_HOME` is ignored).
    pub fn default_path() -> Result<PathBuf> {
        default_path(|name| std::env::var_os(name))
    }

    /// Opens the store for writing; makes the file and its directory when they are not there.
    pub fn open(path: &Path) -> Result<Self> {
        refuse_directory(path)?;
        if let Some(parent) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
            std::fs::create_dir_all(parent)
                .map_err(|source| StoreError::Directory { path: parent.to_owned(), source })?;
        }
        Ok(Self::on(connection::open_to_write(path, connection::STEPS)?, path))
    }

    /// Opens a store that is there for reading, also where this user may not write.
    pub fn open_to_read(path: &Path) -> Result<Self> {
        if std::fs::metadata(path).is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound) {
            return Err(StoreError::Missing { path: path.to_owned() });
        }
        refuse_directory(path)?;
        Ok(Self::on(connection::open_to_read(path, connection::STEPS)?, path))
    }

    fn on(connection: Connection, path: &Path) -> Self {
        Self { connection, path: path.to_owned(), unread: RefCell::default() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the head of a run that this process is about to make.
    pub fn begin_run(&mut self, new: &NewRun) -> Result<RunId> {
        let runner = Runner::this_process().map_err(StoreError::Runner)?;
        let options = storable("the run's options", &new.options)?;
        let environment = storable("the run's environment", &new.environment)?;
        self.write(|transaction| {
            transaction.execute(
                "INSERT INTO run (suite, title, suite_file, suite_text, options, environment, netrig_version,
                     planned_trials, started_unix_ms, runner_pid, runner_start, runner_boot)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
                params![
                    new.suite,
                    new.title,
                    new.suite_file,
                    new.suite_text,
                    options,
                    environment,
                    env!("CARGO_PKG_VERSION"),
                    new.planned_trials,
                    new.started_unix_ms,
                    runner.pid,
                    runner.start as i64,
                    runner.boot,
                ],
            )?;
            Ok(RunId(transaction.last_insert_rowid()))
        })
    }

    /// Stores one trial; when this returns, the trial is on the disk.
    pub fn add_trial(&mut self, run: RunId, trial: &TrialRecord) -> Result<()> {
        let TrialRecord { scenario, ordinal, started_unix_ms, .. } = trial;
        let record = storable(&format!("trial {ordinal} of scenario {scenario}"), trial)?;
        let added = self.write(|transaction| {
            transaction.execute(
                "INSERT INTO trial (run, scenario, ordinal, started_unix_ms, record)
                 SELECT id, ?2, ?3, ?4, ?5 FROM run WHERE id = ?1 AND ending IS NULL",
                params![run.0, scenario, ordinal, started_unix_ms, record],
            )
        });
        match added {
            Ok(0) => Err(self.not_open(run)),
            Ok(_) => Ok(()),
            Err(StoreError::Sqlite { source, .. })
                if source.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) && *ordinal > 0 =>
            {
                Err(StoreError::DuplicateTrial { run, scenario: scenario.clone(), ordinal: *ordinal })
            }
            Err(e) => Err(e),
        }
    }

    pub fn set_rig_cost(&mut self, run: RunId, cost: &RigCost) -> Result<()> {
        let cost = storable("the rig's cost", cost)?;
        self.update_open(run, "UPDATE run SET rig_cost = ?2 WHERE id = ?1 AND ending IS NULL", params![run.0, cost])
    }

    /// Which scenarios the run goes without, as its options say it.
    pub fn set_left_out(&mut self, run: RunId, left_out: &impl Serialize) -> Result<()> {
        let left_out = serde_json::to_value(left_out).and_then(|value| serde_json::to_string(&value));
        let what = || "the scenarios that were left out".to_owned();
        let left_out = left_out.map_err(|source| StoreError::Unstorable { what: what(), source })?;
        let sql = "UPDATE run SET options = json_set(options, '$.left_out', json(?2)) WHERE id = ?1 AND ending IS NULL";
        self.update_open(run, sql, params![run.0, left_out])
    }

    /// Closes a run: `goals` is what each scenario reached of the confidence asked for.
    pub fn finish_run(&mut self, run: RunId, ending: &RunEnd, goals: Option<&Value>, unix_ms: i64) -> Result<()> {
        let goals = goals.map(|goals| storable("the scenarios' goals", goals)).transpose()?;
        let (ending, failure) = match ending {
            RunEnd::Complete => ("complete", None),
            RunEnd::Interrupted => ("interrupted", None),
            RunEnd::Failed { reason } => ("failed", Some(reason)),
        };
        self.update_open(
            run,
            "UPDATE run SET ending = ?2, failure = ?3, goals = ?4, ended_unix_ms = ?5 WHERE id = ?1 AND ending IS NULL",
            params![run.0, ending, failure, goals, unix_ms],
        )
    }

    /// The run that was begun last.
    pub fn latest(&self) -> Result<RunId> {
        self.ids()?.last().copied().ok_or_else(|| StoreError::NoRuns { path: self.path.clone() })
    }

    fn before_latest(&self, back: u32) -> Result<RunId> {
        let ids = self.ids()?;
        let found = ids.iter().rev().nth(back as usize).copied();
        found.ok_or_else(|| StoreError::TooFarBack { path: self.path.clone(), back, runs: ids.len() })
    }

    /// Removes a run with its trials, for good, and says what it was.
    ///
    /// # Errors
    /// Where there is no such run, where it is going on, and where it is damaged.
    pub fn delete(&mut self, run: RunId) -> Result<RunSummary> {
        let deleted = self.write(|transaction| {
            let found = match listing::head(transaction, run) {
                Ok(found) => found.map(|(summary, _)| summary),
                Err(Fault::Sqlite(error)) => return Err(error),
                Err(fault) => return Ok(Err(fault)),
            };
            if found.as_ref().is_some_and(|found| found.state != RunState::Running) {
                // Its trials go with it, see the schema.
                transaction.execute("DELETE FROM run WHERE id = ?1", [run.0])?;
            }
            Ok(Ok(found))
        })?;
        match deleted.map_err(|fault| self.fault(run, fault))? {
            None => Err(self.no_such_run(run)),
            Some(going_on) if going_on.state == RunState::Running => Err(StoreError::GoingOn { run }),
            Some(deleted) => Ok(deleted),
        }
    }

    /// The run that `name` stands for.
    pub fn resolve(&self, name: &RunName) -> Result<RunId> {
        let id = match name {
            RunName::Latest => return self.latest(),
            RunName::Before(back) => return self.before_latest(*back),
            RunName::Number(id) => *id,
            RunName::Label(label) => return self.labelled(label),
        };
        let there = self.connection.query_row("SELECT 1 FROM run WHERE id = ?1", [id.0], |_| Ok(())).optional();
        there.map_err(|e| self.fail(e))?.map(|()| id).ok_or_else(|| self.no_such_run(id))
    }

    /// A run with all trials that are stored by now.
    pub fn run(&self, id: RunId) -> Result<Run> {
        // One read transaction, or a run that is being written would change between head and trials.
        let snapshot = self.connection.unchecked_transaction().map_err(|e| self.fail(e))?;
        let head = listing::head(&snapshot, id).map_err(|fault| self.fault(id, fault))?;
        let (summary, texts) = head.ok_or_else(|| self.no_such_run(id))?;
        Ok(Run {
            summary,
            options: self.parse(&texts.options, || format!("options of run {id}"))?,
            environment: self.parse(&texts.environment, || format!("environment of run {id}"))?,
            rig_cost: self.parse_if_any(texts.rig_cost.as_deref(), || format!("rig cost of run {id}"))?,
            goals: self.parse_if_any(texts.goals.as_deref(), || format!("goals of run {id}"))?,
            trials: self.trials(&snapshot, id)?,
            suite_file: texts.suite_file,
            suite_text: texts.suite_text,
        })
    }

    fn trials(&self, snapshot: &Transaction<'_>, id: RunId) -> Result<Vec<TrialRecord>> {
        let failed = |error| self.fault(id, Fault::Sqlite(error));
        let mut statement = snapshot
            .prepare("SELECT scenario, ordinal, record FROM trial WHERE run = ?1 ORDER BY id")
            .map_err(failed)?;
        let mut rows = statement.query([id.0]).map_err(failed)?;
        let mut trials = Vec::new();
        while let Some(row) = rows.next().map_err(failed)? {
            let texts = || Ok((column(row, "scenario")?, column(row, "ordinal")?, column(row, "record")?));
            let in_a_trial = |fault| match fault {
                Fault::Column(why) => Fault::Column(format!("of a trial {why}")),
                other => other,
            };
            let texts: std::result::Result<(String, u32, String), Fault> = texts();
            let (scenario, ordinal, record) = texts.map_err(|fault| self.fault(id, in_a_trial(fault)))?;
            let trial = || format!("trial {ordinal} of scenario {scenario}");
            // What is no JSON no version understands.
            match serde_json::from_str(&record) {
                Ok(record) => trials.push(record),
                Err(source) if source.classify() == Category::Data => {
                    let (path, what) = (self.path.clone(), format!("{} of run {id}", trial()));
                    return Err(StoreError::Unreadable { path, what, source });
                }
                Err(error) => {
                    let why = format!("{} is no JSON ({error})", trial());
                    return Err(StoreError::DamagedRun { path: self.path.clone(), run: id, why });
                }
            }
        }
        Ok(trials)
    }

    fn write<T>(&mut self, change: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>) -> Result<T> {
        // Takes the write lock at once, where SQLite waits for another writer; a lock taken later fails without waiting.
        let transact = |connection: &mut Connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let value = change(&transaction)?;
            transaction.commit()?;
            Ok(value)
        };
        transact(&mut self.connection).map_err(|e| StoreError::from_sqlite(&self.path, e))
    }

    fn update_open(&mut self, run: RunId, sql: &str, params: impl rusqlite::Params) -> Result<()> {
        match self.write(|transaction| transaction.execute(sql, params))? {
            0 => Err(self.not_open(run)),
            _ => Ok(()),
        }
    }

    fn not_open(&self, run: RunId) -> StoreError {
        match self.resolve(&RunName::Number(run)) {
            Ok(_) => StoreError::Ended { run },
            Err(e) => e,
        }
    }

    fn no_such_run(&self, run: RunId) -> StoreError {
        StoreError::NoSuchRun { path: self.path.clone(), run }
    }

    fn fail(&self, error: rusqlite::Error) -> StoreError {
        StoreError::from_sqlite(&self.path, error)
    }

    fn parse<T: DeserializeOwned>(&self, json: &str, what: impl FnOnce() -> String) -> Result<T> {
        serde_json::from_str(json).map_err(|source| StoreError::Unreadable {
            path: self.path.clone(),
            what: what(),
            source,
        })
    }

    fn parse_if_any<T: DeserializeOwned>(
        &self,
        json: Option<&str>,
        what: impl FnOnce() -> String,
    ) -> Result<Option<T>> {
        json.map(|json| self.parse(json, what)).transpose()
    }
}

/// SQLite would call it a matter of permissions.
fn refuse_directory(path: &Path) -> Result<()> {
    match path.is_dir() {
        true => Err(StoreError::NotAStore { path: path.to_owned(), detail: "a directory".to_owned() }),
        false => Ok(()),
    }
}

/// `value` as JSON that is known to be readable again (a float that is no number would not be).
fn storable<T: Serialize + DeserializeOwned>(what: &str, value: &T) -> Result<String> {
    serde_json::to_string(value)
        .and_then(|json| serde_json::from_str::<T>(&json).map(|_| json))
        .map_err(|source| StoreError::Unstorable { what: what.to_owned(), source })
}

fn default_path(variable: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf> {
    let of = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(file) = of("NETRIG_STORE") {
        return Ok(file);
    }
    let data = of("XDG_DATA_HOME").filter(|dir| dir.is_absolute());
    let home = || of("HOME").filter(|dir| dir.is_absolute()).map(|home| home.join(".local/share"));
    data.or_else(home).map(|dir| dir.join("netrig/runs.sqlite")).ok_or(StoreError::NoHome)
}

#[cfg(test)]
mod tests;
