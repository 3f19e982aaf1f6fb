//! Stores with damaged cells that no netrig has written: all else stays readable.

use rusqlite::types::Value as Cell;

use super::*;
use crate::record::CalibrationTimes;

/// Three runs of two trials with calibrations, the first two labelled, all ended; the path of the store.
fn three_runs() -> (TempDir, PathBuf) {
    let (dir, mut store) = store();
    for (label, trials) in [("first", 2), ("second", 2), ("third", 2)] {
        let options = json!({"quick": true, "label": label});
        let id = store.begin_run(&NewRun { options, ..new_run("layers") }).unwrap();
        let gauge =
            || CalibrationTimes { work_ns: vec![(0, 100)], together_ns: Vec::new(), memory_ns: None, wake_ns: None };
        let calibration = || Some(Calibration { before: gauge(), after: gauge() });
        for ordinal in 1..=trials {
            store.add_trial(id, &TrialRecord { calibration: calibration(), ..trial("A", ordinal) }).unwrap();
        }
        let cost = RigCost { nodes: vec![("a".to_owned(), 0.125)], busy: Vec::new() };
        store.set_rig_cost(id, &cost).unwrap();
        store.finish_run(id, &RunEnd::Complete, Some(&json!([])), 1_700_000_100_000).unwrap();
    }
    let path = store.path().to_owned();
    (dir, path)
}

fn numbers(runs: &[RunSummary]) -> Vec<i64> {
    runs.iter().map(|run| run.id.get()).collect()
}

/// Runs `sql` without checks and foreign keys. Tells whether SQLite changed a row.
fn damage(path: &Path, sql: &str, value: &Cell) -> bool {
    let connection = Connection::open(path).unwrap();
    connection.execute_batch("PRAGMA ignore_check_constraints = ON; PRAGMA foreign_keys = OFF").unwrap();
    connection.execute(sql, [value]).is_ok_and(|rows| rows > 0)
}

fn columns(path: &Path, table: &str) -> Vec<String> {
    let connection = Connection::open(path).unwrap();
    let statement = connection.prepare(&format!("SELECT * FROM {table}")).unwrap();
    statement.column_names().map(str::to_owned).collect()
}

#[test]
fn whatever_is_in_a_column_of_a_run_the_others_are_read() {
    let (dir, whole) = three_runs();
    let path = dir.path().join("damaged.sqlite");
    let values: [Cell; 8] = [
        Cell::Integer(-1),
        Cell::Integer(i64::MAX),
        Cell::Integer(1 << 32),
        Cell::Null,
        Cell::Text(String::new()),
        Cell::Text("{\"a\":".to_owned()),
        Cell::Text("[1]".to_owned()),
        Cell::Text("-1".to_owned()),
    ];
    let (mut taken, mut found) = (0, 0);
    for (table, of_run) in [("run", "id"), ("trial", "run")] {
        for column in columns(&whole, table) {
            for value in &values {
                std::fs::copy(&whole, &path).unwrap();
                if !damage(&path, &format!("UPDATE {table} SET {column} = ?1 WHERE {of_run} = 2"), value) {
                    continue;
                }
                taken += 1;
                let what = format!("{table}.{column} = {value:?}");
                let store = Store::open_to_read(&path).unwrap();
                let runs = numbers(&store.runs().unwrap());
                assert!(runs.contains(&1) && runs.contains(&3), "{what}: {runs:?}");
                let calibrated = store.calibrated().unwrap();
                assert!([1, 3].iter().all(|id| calibrated.contains_key(&RunId(*id))), "{what}");
                for id in [1, 3] {
                    assert_eq!(store.run(RunId(id)).unwrap().trials.len(), 2, "{what}");
                }
                for (label, id) in [("first", 1), ("third", 3)] {
                    assert_eq!(store.resolve(&label.parse().unwrap()).unwrap(), RunId(id), "{what}");
                }
                let checked = store.check().unwrap();
                assert!([1, 3].iter().all(|id| checked.whole.contains(&RunId(*id))), "{what}: {checked:?}");
                // What cannot be read is named, and nothing else.
                let unread: Vec<_> = store.unread().iter().map(|one| one.what).collect();
                assert!(unread.iter().all(|one| *one == UnreadableRuns::One(RunId(2))), "{what}: {unread:?}");
                if store.run(RunId(2)).is_err() && runs.contains(&2) {
                    let named = checked.damaged.iter().any(|one| one.what == UnreadableRuns::One(RunId(2)));
                    assert!(named || !unread.is_empty() || column == "run", "{what}: {checked:?}");
                }
                found += usize::from(!checked.damaged.is_empty());
                drop(store);
                repaired(&path, &what);
            }
        }
    }
    assert!(taken > 60 && found > 20, "{taken} of them were taken, {found} were found");
}

/// What is repaired can be read whole, has the other runs, and keeps what it was.
fn repaired(path: &Path, what: &str) {
    let before = std::fs::read(path).unwrap();
    let Some((checked, was)) = Store::repair(path).unwrap() else { return };
    assert_eq!(std::fs::read(&was).unwrap(), before, "{what}");
    let mut store = Store::open(path).unwrap();
    let left = store.check().unwrap();
    assert_eq!((left.whole, left.damaged), (checked.whole, Vec::new()), "{what}");
    for id in [1, 3] {
        assert_eq!(store.run(RunId(id)).unwrap().trials.len(), 2, "{what}");
    }
    if what.starts_with("run.id") {
        return;
    }
    assert!(store.begin_run(&new_run("layers")).unwrap() > RunId(3), "{what}: a number is given once");
    drop(store);
    std::fs::remove_file(was).unwrap();
}

#[test]
fn a_run_that_is_damaged_is_named_with_what_is_wrong() {
    let (_dir, path) = three_runs();
    assert!(damage(&path, "UPDATE run SET planned_trials = ?1 WHERE id = 2", &Cell::Integer(-1)));
    assert!(damage(&path, "UPDATE trial SET record = ?1 WHERE run = 3", &Cell::Text("{".to_owned())));
    let store = Store::open_to_read(&path).unwrap();
    assert_eq!(numbers(&store.runs().unwrap()), [1, 3], "what is wrong with a trial shows in its trials");
    store.calibrated().unwrap();
    let unread: Vec<_> = store.unread().iter().map(ToString::to_string).collect();
    assert_eq!(unread, ["run 2: its planned_trials is -1", "run 3: of a trial its record is no JSON"]);
    let error = store.run(RunId(2)).unwrap_err().to_string();
    assert!(error.contains("planned_trials is -1") && error.contains("netrig history --repair"), "{error}");
    let error = store.run(RunId(3)).unwrap_err().to_string();
    assert!(error.contains("trial 1 of scenario A is no JSON"), "{error}");
}

#[test]
fn what_another_version_wrote_is_not_dropped() {
    let (_dir, path) = three_runs();
    let record = Cell::Text(r#"{"of": "tomorrow"}"#.to_owned());
    assert!(damage(&path, "UPDATE trial SET record = ?1 WHERE run = 2", &record));
    let dropped = || Store::open_to_read(&path).unwrap().check().unwrap().damaged.len();
    assert_eq!(dropped(), 1, "this version cannot have written it");
    assert!(damage(&path, "UPDATE run SET netrig_version = ?1 WHERE id = 2", &Cell::Text("9.0.0".to_owned())));
    assert_eq!(dropped(), 0);
}

#[test]
fn trials_without_their_run_are_found_and_dropped() {
    let (_dir, path) = three_runs();
    assert!(damage(&path, "DELETE FROM run WHERE id = ?1", &Cell::Integer(2)));
    let store = Store::open_to_read(&path).unwrap();
    assert_eq!(numbers(&store.runs().unwrap()), [1, 3]);
    let said: Vec<_> = store.check().unwrap().damaged.iter().map(ToString::to_string).collect();
    assert_eq!(said, ["trials of run 2: the run itself is missing"]);
    drop(store);
    repaired(&path, "a run is missing");
}

#[test]
fn a_run_that_is_going_on_is_not_repaired_around() {
    let (_dir, path) = three_runs();
    assert!(damage(&path, "UPDATE run SET planned_trials = ?1 WHERE id = 2", &Cell::Integer(-1)));
    let mut store = Store::open(&path).unwrap();
    let going_on = store.begin_run(&new_run("layers")).unwrap();
    assert!(matches!(Store::repair(&path), Err(StoreError::GoingOn { run }) if run == going_on));
}

/// However short the file is, and wherever a page is not what it was.
#[test]
fn a_file_that_lacks_a_part_is_read_as_far_as_it_goes() {
    let (_dir, mut store) = store();
    for _ in 0..30 {
        let id = store.begin_run(&new_run("layers")).unwrap();
        store.add_trial(id, &trial("A", 1)).unwrap();
        store.finish_run(id, &RunEnd::Complete, None, 5).unwrap();
    }
    let path = store.path().to_owned();
    drop(store);
    let whole = std::fs::read(&path).unwrap();
    let pages = whole.len() / 4096;
    assert!(pages > 12, "{pages} pages");
    let mut least_and_most = (usize::MAX, 0);
    let mut look = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        let Ok(store) = Store::open_to_read(&path) else { return };
        let Ok(runs) = store.runs() else { return };
        let _ = (store.calibrated(), store.latest(), store.resolve(&"before".parse().unwrap()));
        let read = runs.iter().filter(|run| store.run(run.id).is_ok()).count();
        let Ok(checked) = store.check() else { return };
        assert!(read == checked.whole.len() && (read == 30 || !checked.damaged.is_empty()), "{read}: {checked:?}");
        least_and_most = (least_and_most.0.min(read), least_and_most.1.max(read));
        drop(store);
        if let Ok(Some((checked, was))) = Store::repair(&path) {
            let left = Store::open_to_read(&path).unwrap().check().unwrap();
            assert_eq!((left.whole, left.damaged), (checked.whole, Vec::new()));
            std::fs::remove_file(was).unwrap();
        }
    };
    for left in 1..pages {
        look(&whole[..left * 4096]);
        look(&whole[..left * 4096 - 100]);
    }
    for page in 1..pages {
        let mut bytes = whole.clone();
        bytes[page * 4096..(page + 1) * 4096].fill(0xa5);
        look(&bytes);
    }
    let (least, most) = least_and_most;
    assert!(least < 30 && most > 15, "{least} to {most} runs were read");
}
