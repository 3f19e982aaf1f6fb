//! A store without what cannot be read of it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};

use super::listing::{UnreadablePart, UnreadableRuns};
use super::{Result, RunId, RunState, Store, StoreError};

/// What a store consists of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreCheck {
    /// Runs that can be read, or were written by another version of netrig, which can.
    pub whole: Vec<RunId>,
    pub damaged: Vec<UnreadablePart>,
}

impl Store {
    /// Reads everything.
    ///
    /// # Errors
    /// When nothing of the store can be read, or when it is locked.
    pub fn check(&self) -> Result<StoreCheck> {
        let (mut whole, mut damaged) = (Vec::new(), Vec::new());
        let ids = self.ids()?;
        for id in &ids {
            match self.run(*id) {
                Ok(_) => whole.push(*id),
                Err(StoreError::NoSuchRun { .. }) => {}
                Err(error @ StoreError::Unreadable { .. }) => match self.is_of_this_version(*id) {
                    true => damaged.push(UnreadablePart { what: UnreadableRuns::One(*id), why: error.damage()? }),
                    false => whole.push(*id),
                },
                Err(error) => damaged.push(UnreadablePart { what: UnreadableRuns::One(*id), why: error.damage()? }),
            }
        }
        let gaps = self.unread().into_iter().filter(|unread| !matches!(unread.what, UnreadableRuns::One(_)));
        damaged.extend(gaps);
        // Where the table of trials cannot be read, their runs have said so.
        let without_head = self.trials_of(&self.connection).unwrap_or_default();
        let without_head = without_head.into_iter().filter(|id| !ids.contains(id));
        let why = "the run itself is missing";
        damaged
            .extend(without_head.map(|id| UnreadablePart { what: UnreadableRuns::TrialsOf(id), why: why.to_owned() }));
        Ok(StoreCheck { whole, damaged })
    }

    fn trials_of(&self, connection: &Connection) -> rusqlite::Result<Vec<RunId>> {
        let mut statement = connection.prepare("SELECT DISTINCT run FROM trial")?;
        statement.query_map([], |row| Ok(RunId(row.get(0)?)))?.collect()
    }

    fn is_of_this_version(&self, id: RunId) -> bool {
        let head = super::listing::head(&self.connection, id);
        head.is_ok_and(|head| head.is_some_and(|(run, _)| run.netrig_version == env!("CARGO_PKG_VERSION")))
    }

    /// Makes the store at `path` one of the runs that can be read. What it was before stays, in a file beside it whose path is
    /// returned; `None` where nothing is damaged.
    ///
    /// # Errors
    /// When a run is going on, when nothing of the store can be read, and when there is no room for another.
    pub fn repair(path: &Path) -> Result<Option<(StoreCheck, PathBuf)>> {
        let old = Self::open_to_read(path)?;
        let checked = old.check()?;
        if checked.damaged.is_empty() {
            return Ok(None);
        }
        if let Some(run) = old.runs()?.into_iter().find(|run| run.state == RunState::Running) {
            return Err(StoreError::GoingOn { run: run.id });
        }
        let new_path = beside(path, ".repaired");
        remove(&new_path)?;
        let new = Self::open(&new_path)?;
        let copied = copy(&old, &new, &checked.whole);
        drop(new);
        let was = (1..).map(|n| beside(path, &format!(".damaged-{n}"))).find(|was| !was.exists());
        let was = was.unwrap_or_else(|| beside(path, ".damaged"));
        drop(old);
        let swapped = copied.and_then(|()| swap(path, &new_path, &was));
        if swapped.is_err() {
            remove(&new_path)?;
        }
        swapped.map(|()| Some((checked, was)))
    }
}

/// A file of that name with something behind.
fn beside(path: &Path, what: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(what);
    PathBuf::from(name)
}

/// The files that belong to a store.
const PARTS: [&str; 3] = ["-wal", "-shm", ""];

fn remove(path: &Path) -> Result<()> {
    let failed = |source| StoreError::Directory { path: path.to_owned(), source };
    PARTS.iter().try_for_each(|part| match fs::remove_file(beside(path, part)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
        _ => Ok(()),
    })
}

/// Another process that opens the store meanwhile finds a whole one, the old or the new.
fn swap(path: &Path, new: &Path, was: &Path) -> Result<()> {
    let failed = |source| StoreError::Directory { path: path.to_owned(), source };
    fs::hard_link(path, was).or_else(|_| fs::copy(path, was).map(drop)).map_err(failed)?;
    for part in &PARTS[..2] {
        match fs::rename(beside(path, part), beside(was, part)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
    }
    fs::rename(new, path).map_err(failed)
}

/// Rows as they are, in one transaction. Numbers of runs that were given stay given.
fn copy(old: &Store, new: &Store, runs: &[RunId]) -> Result<()> {
    let read = |error| StoreError::from_sqlite(&old.path, error);
    let write = |error| StoreError::from_sqlite(&new.path, error);
    let transaction = new.connection.unchecked_transaction().map_err(write)?;
    for id in runs {
        for (table, sql) in
            [("run", "SELECT * FROM run WHERE id = ?1"), ("trial", "SELECT * FROM trial WHERE run = ?1 ORDER BY id")]
        {
            let mut statement = old.connection.prepare_cached(sql).map_err(read)?;
            let columns: Vec<String> = statement.column_names().map(str::to_owned).collect();
            let marks: Vec<String> = (1..=columns.len()).map(|n| format!("?{n}")).collect();
            let insert = format!("INSERT INTO {table} ({}) VALUES ({})", columns.join(", "), marks.join(", "));
            let mut rows = statement.query([id.0]).map_err(read)?;
            while let Some(row) = rows.next().map_err(read)? {
                let values: rusqlite::Result<Vec<Value>> = (0..columns.len()).map(|at| row.get(at)).collect();
                let values = params_from_iter(values.map_err(read)?);
                transaction.prepare_cached(&insert).and_then(|mut insert| insert.execute(values)).map_err(write)?;
            }
        }
    }
    let given = "SELECT seq FROM sqlite_sequence WHERE name = 'run'";
    let given: Option<i64> = old.connection.query_row(given, [], |row| row.get(0)).ok();
    let most = given.into_iter().chain(old.ids()?.last().map(|id| id.0)).max().unwrap_or(0);
    let sql = "UPDATE sqlite_sequence SET seq = max(seq, ?1) WHERE name = 'run'";
    if transaction.execute(sql, [most]).map_err(write)? == 0 {
        transaction.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('run', ?1)", [most]).map_err(write)?;
    }
    transaction.commit().map_err(write)
}
