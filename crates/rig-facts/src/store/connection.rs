//! Opening the file: whose it is, how new it is, and what this user may do with it.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};

use super::StoreError;

/// Marks a SQLite file as a netrig store: the letters `nrig` (PRAGMA application_id).
pub(super) const APPLICATION_ID: u32 = u32::from_be_bytes(*b"nrig");

/// The steps from an empty file to the newest schema. Step i leads from version i to version i + 1; a step that was
/// released is never changed, a new one is appended.
pub(super) const STEPS: &[&str] = &[include_str!("schema-1.sql")];

/// How long a program may hold the store before the others give up on it.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);

/// Opens for writing; makes the file and brings it up to date as needed.
pub(super) fn open_to_write(path: &Path, steps: &[&str]) -> Result<Connection, StoreError> {
    let fail = |e| StoreError::from_sqlite(path, e);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags).map_err(fail)?;
    connection.busy_timeout(TIMEOUT).map_err(fail)?;
    // Before anything is written: a database of another program must stay as it is.
    let version = identify(&connection, path, steps)?;
    if connection.is_readonly("main").map_err(fail)? {
        return Err(StoreError::NoPermission { path: path.to_owned(), detail: "it is read-only for this user".into() });
    }
    use_write_ahead_log(&connection).map_err(fail)?;
    // A commit returns when it is on the disk: a trial that was announced as stored survives a power cut too.
    connection.pragma_update(None, "synchronous", "FULL").map_err(fail)?;
    connection.pragma_update(None, "foreign_keys", true).map_err(fail)?;
    if version < newest(steps) {
        migrate(&mut connection, path, steps)?;
    }
    Ok(connection)
}

/// Opens for reading. Works in a directory that may not be written to.
pub(super) fn open_to_read(path: &Path, steps: &[&str]) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let fail = |e| StoreError::from_sqlite(path, e);
    let open = || -> Result<(Connection, u32), StoreError> {
        let connection = Connection::open_with_flags(path, flags).map_err(fail)?;
        connection.busy_timeout(TIMEOUT).map_err(fail)?;
        let version = identify(&connection, path, steps)?;
        Ok((connection, version))
    };
    let (connection, version) = match open() {
        // Without the right to make the -shm file a write-ahead log cannot be read, but where there is no log there
        // is no writer either, and the file alone is the whole store (https://sqlite.org/wal.html, "Read-only").
        Err(StoreError::NoPermission { .. }) if !has_log(path) => open_unchanging(path, steps)?,
        Err(corrupt @ StoreError::Corrupt { .. }) => {
            let (connection, version) = open_damaged(path, steps)?;
            // Where not even its tables are left, the first error says more than that one is missing.
            if connection.prepare("SELECT 1 FROM run, trial").is_err() {
                return Err(corrupt);
            }
            (connection, version)
        }
        other => other?,
    };
    if version == newest(steps) {
        return Ok(connection);
    }
    drop(connection);
    open_to_write(path, steps).map_err(|e| match e {
        StoreError::NoPermission { path, .. } => {
            StoreError::OlderReadOnly { path, found: version, known: newest(steps) }
        }
        e => e,
    })
}

/// A file that is shorter than it says: what is there of it can be read.
fn open_damaged(path: &Path, steps: &[&str]) -> Result<(Connection, u32), StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let fail = |e| StoreError::from_sqlite(path, e);
    let connection = Connection::open_with_flags(path, flags).map_err(fail)?;
    connection.busy_timeout(TIMEOUT).map_err(fail)?;
    // Has SQLite go on where the number of pages is wrong; nothing is written by this connection.
    connection.pragma_update(None, "writable_schema", true).map_err(fail)?;
    let version = identify(&connection, path, steps)?;
    Ok((connection, version))
}

fn open_unchanging(path: &Path, steps: &[&str]) -> Result<(Connection, u32), StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    let connection = Connection::open_with_flags(format!("{}?immutable=1", file_uri(path)), flags)
        .map_err(|e| StoreError::from_sqlite(path, e))?;
    let version = identify(&connection, path, steps)?;
    Ok((connection, version))
}

/// `path` as SQLite's URI file name, with everything escaped that has a meaning there (https://sqlite.org/uri.html).
fn file_uri(path: &Path) -> String {
    use std::os::unix::ffi::OsStrExt;
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"/-_.~".contains(&b);
    let escaped = path.as_os_str().as_bytes().iter().map(|&b| match plain(b) {
        true => char::from(b).to_string(),
        false => format!("%{b:02X}"),
    });
    std::iter::once("file:".to_owned()).chain(escaped).collect()
}

fn has_log(path: &Path) -> bool {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    // A log that cannot be looked at counts as there.
    std::fs::metadata(log).map_or_else(|e| e.kind() != std::io::ErrorKind::NotFound, |log| log.len() > 0)
}

fn newest(steps: &[&str]) -> u32 {
    steps.len() as u32
}

/// The store's schema version; 0 when the file is new. Refuses what is not a store, or too new a one.
fn identify(connection: &Connection, path: &Path, steps: &[&str]) -> Result<u32, StoreError> {
    // One snapshot: another program may be turning a new file into a store between two looks.
    let snapshot = connection.unchecked_transaction().map_err(|e| StoreError::from_sqlite(path, e))?;
    identify_within(&snapshot, path, steps)
}

fn identify_within(connection: &Connection, path: &Path, steps: &[&str]) -> Result<u32, StoreError> {
    let number = |sql: &str| {
        connection.query_row(sql, [], |row| row.get::<_, i64>(0)).map_err(|e| StoreError::from_sqlite(path, e))
    };
    let application = number("SELECT application_id FROM pragma_application_id")?;
    let found = number("SELECT user_version FROM pragma_user_version")?;
    if application == 0 && found == 0 && number("SELECT count(*) FROM sqlite_schema")? == 0 {
        return Ok(0);
    }
    if application != i64::from(APPLICATION_ID) {
        let detail = match application {
            0 => "a SQLite file without an application id".to_owned(),
            other => format!("a SQLite file of the application {other:#x}"),
        };
        return Err(StoreError::NotAStore { path: path.to_owned(), detail });
    }
    let known = newest(steps);
    match u32::try_from(found) {
        Ok(found) if found <= known => Ok(found),
        Ok(found) => Err(StoreError::Newer { path: path.to_owned(), found, known }),
        Err(_) => Err(StoreError::Corrupt { path: path.to_owned(), detail: format!("schema version {found}") }),
    }
}

/// Readers and one writer at a time do not wait for each other in this mode, which the file keeps.
fn use_write_ahead_log(connection: &Connection) -> rusqlite::Result<()> {
    // SQLite does not call its busy handler when two programs turn a new file over at the same moment.
    let give_up = Instant::now() + TIMEOUT;
    loop {
        match connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(())) {
            Err(e) if e.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) && Instant::now() < give_up => {
                thread::sleep(Duration::from_millis(5));
            }
            other => return other,
        }
    }
}

/// All steps that are missing, in one transaction.
fn migrate(connection: &mut Connection, path: &Path, steps: &[&str]) -> Result<(), StoreError> {
    let fail = |e| StoreError::from_sqlite(path, e);
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(fail)?;
    // Another program may have been faster.
    let version = identify_within(&transaction, path, steps)?;
    for step in &steps[version as usize..] {
        transaction.execute_batch(step).map_err(fail)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID).map_err(fail)?;
    transaction.pragma_update(None, "user_version", newest(steps)).map_err(fail)?;
    transaction.commit().map_err(fail)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEXT: &[&str] = &[STEPS[0], "ALTER TABLE run ADD COLUMN mood TEXT NOT NULL DEFAULT 'calm'"];

    fn version(connection: &Connection) -> u32 {
        connection.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap()
    }

    #[test]
    fn an_old_store_is_brought_up_to_date_and_its_rows_stay() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("runs.sqlite");
        let old = open_to_write(&path, STEPS).unwrap();
        old.execute(
            "INSERT INTO run (suite, title, suite_file, suite_text, options, environment, netrig_version,
                 planned_trials, started_unix_ms, runner_pid, runner_start, runner_boot)
             VALUES ('s', 't', 'f', '', '{}', '{}', '0', 1, 0, 1, 1, 'b')",
            [],
        )
        .unwrap();
        drop(old);
        let new = open_to_read(&path, NEXT).unwrap();
        assert_eq!(version(&new), 2);
        let row: (String, String) =
            new.query_row("SELECT suite, mood FROM run", [], |r| Ok((r.get(0)?, r.get(1)?))).unwrap();
        assert_eq!(row, ("s".to_owned(), "calm".to_owned()));
    }

    #[test]
    fn a_newer_store_is_refused_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("runs.sqlite");
        drop(open_to_write(&path, NEXT).unwrap());
        let before = std::fs::read(&path).unwrap();
        for open in [open_to_write, open_to_read] {
            let error = open(&path, STEPS).unwrap_err();
            assert!(matches!(error, StoreError::Newer { found: 2, known: 1, .. }), "{error}");
        }
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }

    #[test]
    fn a_step_that_fails_leaves_the_old_schema() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("runs.sqlite");
        drop(open_to_write(&path, STEPS).unwrap());
        let broken = &[STEPS[0], "CREATE TABLE half (a) STRICT; CREATE TABLE run (again INTEGER)"];
        assert!(open_to_write(&path, broken).is_err());
        let store = open_to_write(&path, STEPS).unwrap();
        assert_eq!(version(&store), 1);
        assert!(store.prepare("SELECT * FROM half").is_err());
    }

    #[test]
    fn a_uri_escapes_what_sqlite_would_read_as_its_own() {
        assert_eq!(file_uri(Path::new("/a b/50%?x#y.db")), "file:/a%20b/50%25%3Fx%23y.db");
    }
}
