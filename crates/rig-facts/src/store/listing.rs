//! All runs, read one by one: one that is damaged is named, and takes no other along.

use std::collections::BTreeMap;
use std::fmt;

use rig_stats::sample::Sample;
use rusqlite::types::FromSql;
use rusqlite::{Connection, Error, Row};
use serde::de::IgnoredAny;
use serde_json::Value;

use super::runner::Runner;
use super::{Label, Result, RunId, RunState, RunSummary, Store, StoreError};
use crate::record::Calibration;

/// What the calibration around a run's trials says of its machine.
#[derive(Debug, Clone, PartialEq)]
pub struct RunCalibration {
    /// The median over the trials, nanoseconds.
    pub work_ns: f64,
    /// How netrig was built, without from which sources.
    pub build_kind: String,
}

/// What of a store cannot be read, and why.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnreadablePart {
    pub what: UnreadableRuns,
    pub why: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum UnreadableRuns {
    One(RunId),
    /// Trials of a run that is not there.
    TrialsOf(RunId),
    /// All that was stored after this one, and before the next that is read.
    After(RunId),
    First,
}

impl fmt::Display for UnreadablePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.what {
            UnreadableRuns::One(run) => write!(f, "run {run}")?,
            UnreadableRuns::TrialsOf(run) => write!(f, "trials of run {run}")?,
            UnreadableRuns::After(run) => write!(f, "runs after run {run}")?,
            UnreadableRuns::First => f.write_str("the first runs")?,
        }
        write!(f, ": {}", self.why)
    }
}

/// What a row has that it must not have.
#[derive(Debug)]
pub(super) enum Fault {
    Sqlite(Error),
    Column(String),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Sqlite(error)
    }
}

/// A column of a row; the error names a value that the column cannot have.
pub(super) fn column<T: FromSql>(row: &Row<'_>, name: &str) -> std::result::Result<T, Fault> {
    row.get(name).map_err(|error| match error {
        Error::IntegralValueOutOfRange(_, value) => Fault::Column(format!("its {name} is {value}")),
        Error::InvalidColumnType(_, _, found) => {
            Fault::Column(format!("its {name} is of type {}", found.to_string().to_lowercase()))
        }
        Error::Utf8Error(..) => Fault::Column(format!("its {name} is no text")),
        other => Fault::Sqlite(other),
    })
}

/// Text that has to be JSON.
fn json(row: &Row<'_>, name: &str) -> std::result::Result<Option<String>, Fault> {
    let text: Option<String> = column(row, name)?;
    let read = text.as_deref().map(serde_json::from_str::<IgnoredAny>).transpose();
    read.map_err(|error| Fault::Column(format!("its {name} is no JSON ({error})")))?;
    Ok(text)
}

fn must<T>(value: Option<T>, name: &str) -> std::result::Result<T, Fault> {
    value.ok_or_else(|| Fault::Column(format!("it has no {name}")))
}

const HEAD: &str =
    "SELECT *, (SELECT count(*) FROM trial WHERE trial.run = run.id) AS stored_trials FROM run WHERE id = ?1";

/// The text columns of a run's row.
#[derive(Debug)]
pub(super) struct RunTexts {
    pub suite_file: String,
    pub suite_text: String,
    pub options: String,
    pub environment: String,
    pub rig_cost: Option<String>,
    pub goals: Option<String>,
}

/// What a run's row says; `None` without such a run.
pub(super) fn head(connection: &Connection, id: RunId) -> std::result::Result<Option<(RunSummary, RunTexts)>, Fault> {
    let mut statement = connection.prepare_cached(HEAD)?;
    let mut rows = statement.query([id.0])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let texts = RunTexts {
        suite_file: column(row, "suite_file")?,
        suite_text: column(row, "suite_text")?,
        options: must(json(row, "options")?, "options")?,
        environment: must(json(row, "environment")?, "environment")?,
        rig_cost: json(row, "rig_cost")?,
        goals: json(row, "goals")?,
    };
    Ok(Some((summary(row, &texts.options)?, texts)))
}

fn summary(row: &Row<'_>, options: &str) -> std::result::Result<RunSummary, Fault> {
    let ending: Option<String> = column(row, "ending")?;
    let state = match ending.as_deref() {
        Some("complete") => RunState::Complete,
        Some("failed") => RunState::Failed { reason: must(column(row, "failure")?, "failure")? },
        Some(_) => RunState::Interrupted,
        None => {
            let start = column::<i64>(row, "runner_start")? as u64;
            let runner = Runner { pid: column(row, "runner_pid")?, start, boot: column(row, "runner_boot")? };
            if runner.is_alive() { RunState::Running } else { RunState::Interrupted }
        }
    };
    Ok(RunSummary {
        id: RunId(column(row, "id")?),
        label: label_in(options),
        suite: column(row, "suite")?,
        title: column(row, "title")?,
        netrig_version: column(row, "netrig_version")?,
        started_unix_ms: column(row, "started_unix_ms")?,
        ended_unix_ms: column(row, "ended_unix_ms")?,
        state,
        planned_trials: column(row, "planned_trials")?,
        stored_trials: column(row, "stored_trials")?,
    })
}

/// The label that a run's options have.
fn label_in(options: &str) -> Option<Label> {
    let options: Value = serde_json::from_str(options).ok()?;
    Some(Label(options.get("label")?.as_str()?.to_owned()))
}

impl Store {
    /// All runs that can be read, the oldest first. What cannot be is [`Self::unread`] from then on.
    ///
    /// # Errors
    /// When nothing of the store can be read.
    pub fn runs(&self) -> Result<Vec<RunSummary>> {
        let mut runs = Vec::new();
        for id in self.ids()? {
            match head(&self.connection, id).map_err(|fault| self.fault(id, fault)) {
                Ok(found) => runs.extend(found.map(|(summary, _)| summary)),
                Err(error) => self.go_without(id, error)?,
            }
        }
        Ok(runs)
    }

    /// The calibration of each run that recorded any. Runs that cannot be read have none, and are [`Self::unread`] from then on.
    ///
    /// # Errors
    /// When nothing of the store can be read.
    pub fn calibrated(&self) -> Result<BTreeMap<RunId, RunCalibration>> {
        let mut runs = BTreeMap::new();
        for id in self.ids()? {
            match self.calibration_of(id) {
                Ok(found) => runs.extend(found.map(|found| (id, found))),
                Err(error) => self.go_without(id, error)?,
            }
        }
        Ok(runs)
    }

    fn calibration_of(&self, id: RunId) -> Result<Option<RunCalibration>> {
        let sql = "SELECT record -> '$.calibration' AS calibration FROM trial \
                   WHERE run = ?1 AND record ->> '$.calibration' IS NOT NULL";
        let texts = || -> std::result::Result<Vec<String>, Fault> {
            let mut statement = self.connection.prepare_cached(sql)?;
            let mut rows = statement.query([id.0])?;
            let mut texts = Vec::new();
            while let Some(row) = rows.next()? {
                texts.push(column(row, "calibration")?);
            }
            Ok(texts)
        };
        let texts = texts().map_err(|fault| self.fault(id, fault))?;
        let mut times = Vec::new();
        for text in &texts {
            // A calibration that another version wrote cannot be used here, but is no damage.
            let Ok(calibration) = serde_json::from_str::<Calibration>(text) else { return Ok(None) };
            times.extend(calibration.work_ns());
        }
        let Some(work_ns) = Sample::from(times).median() else { return Ok(None) };
        let of_build = "SELECT environment FROM run WHERE id = ?1";
        let environment: std::result::Result<Value, Fault> = (|| {
            let mut statement = self.connection.prepare_cached(of_build)?;
            let mut rows = statement.query([id.0])?;
            let Some(row) = rows.next()? else { return Ok(Value::Null) };
            Ok(must(json(row, "environment")?, "environment")?.parse().unwrap_or_default())
        })();
        let environment = environment.map_err(|fault| self.fault(id, fault))?;
        let build = environment.get("netrig_build").and_then(Value::as_str);
        let kind = build.and_then(|build| build.split_once(", ")).map_or("", |(_, kind)| kind);
        Ok(Some(RunCalibration { work_ns, build_kind: kind.to_owned() }))
    }

    /// What could not be read of the store up to now.
    pub fn unread(&self) -> Vec<UnreadablePart> {
        let unread = self.unread.borrow();
        unread.iter().map(|(what, why)| UnreadablePart { what: *what, why: why.clone() }).collect()
    }

    /// Remembers that a run is not read, where it is damaged; other errors are given back.
    fn go_without(&self, id: RunId, error: StoreError) -> Result<()> {
        let why = error.damage()?;
        self.unread.borrow_mut().entry(UnreadableRuns::One(id)).or_insert(why);
        Ok(())
    }

    /// The numbers of all runs, upwards. Where the table is damaged, those before it and those behind.
    pub(super) fn ids(&self) -> Result<Vec<RunId>> {
        let (mut ids, stopped) = self.ids_by("SELECT id FROM run ORDER BY id");
        let Some(error) = stopped else { return Ok(ids) };
        let (behind, _) = self.ids_by("SELECT id FROM run ORDER BY id DESC");
        let last = ids.last().copied();
        let behind: Vec<RunId> = behind.into_iter().rev().filter(|id| last.is_none_or(|last| *id > last)).collect();
        if ids.is_empty() && behind.is_empty() {
            return Err(StoreError::from_sqlite(&self.path, error));
        }
        let why = StoreError::from_sqlite(&self.path, error).damage()?;
        self.unread.borrow_mut().entry(last.map_or(UnreadableRuns::First, UnreadableRuns::After)).or_insert(why);
        ids.extend(behind);
        Ok(ids)
    }

    /// As far as they can be read.
    fn ids_by(&self, sql: &str) -> (Vec<RunId>, Option<Error>) {
        let mut ids = Vec::new();
        let mut read = || -> rusqlite::Result<()> {
            let mut statement = self.connection.prepare(sql)?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                ids.push(RunId(row.get(0)?));
            }
            Ok(())
        };
        let stopped = read().err();
        (ids, stopped)
    }

    /// The latest run of that label.
    pub(super) fn labelled(&self, label: &Label) -> Result<RunId> {
        let runs = self.runs()?;
        let found = runs.iter().rev().find(|run| run.label.as_ref() == Some(label));
        found.map(|run| run.id).ok_or_else(|| StoreError::NoSuchLabel { path: self.path.clone(), label: label.clone() })
    }

    pub(super) fn fault(&self, run: RunId, fault: Fault) -> StoreError {
        let path = || self.path.clone();
        match fault {
            Fault::Column(why) => StoreError::DamagedRun { path: path(), run, why },
            Fault::Sqlite(error) => match StoreError::from_sqlite(&self.path, error) {
                StoreError::Sqlite { source, .. } => {
                    let why = source.to_string();
                    let why =
                        if why.contains("malformed JSON") { "of a trial its record is no JSON".into() } else { why };
                    StoreError::DamagedRun { path: path(), run, why }
                }
                other => other,
            },
        }
    }
}
