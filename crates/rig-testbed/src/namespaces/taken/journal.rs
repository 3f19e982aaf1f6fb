//! What netrig has to give back, written down before it is taken. The file is the lock, too: who has it open and locked has the
//! interface, and when a process ends, by whatever signal, the kernel unlocks it.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rig_service::run_directory::RunDirectory;
use serde::{Deserialize, Serialize};

use super::record::InterfaceRecord;

/// A journal that this process alone has.
#[derive(Debug)]
pub(super) struct Journal {
    file: File,
    path: PathBuf,
}

/// That this process uses an interface together with others, so that nobody takes it.
#[derive(Debug)]
pub(super) struct SharedUse {
    file: File,
    path: PathBuf,
}

/// What a journal says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    /// Of the machine; after another start nothing of it is left to be given back.
    boot: String,
    /// The network namespace that the interface belongs to: [`rig_sys::netns::NetNs::number_of_current_thread`].
    namespace: u64,
    /// For messages.
    pub(super) pid: u32,
    pub(super) before: InterfaceRecord,
}

impl Entry {
    pub(super) fn of_this_process(namespace: u64, before: InterfaceRecord) -> io::Result<Self> {
        Ok(Self { boot: boot()?, namespace, pid: std::process::id(), before })
    }
}

/// `None` is a file that is no journal of this boot: of a process that was killed before it had written it, so that nothing was taken.
#[derive(Debug)]
pub(super) struct LockedJournal {
    pub(super) journal: Journal,
    pub(super) entry: Option<Entry>,
}

fn boot() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// Below the user's own.
const DIRECTORY: &str = "interfaces";

/// Where journals are.
///
/// # Errors
/// When the directory cannot be made, or is not to be trusted.
pub(super) fn directory() -> io::Result<PathBuf> {
    RunDirectory::of_user().make_below(DIRECTORY).map_err(io::Error::other)
}

/// As [`directory`], where something was ever written there.
///
/// # Errors
/// As of that.
pub(super) fn directory_if_used() -> io::Result<Option<PathBuf>> {
    let is_there = RunDirectory::of_user().path().join(DIRECTORY).is_dir();
    is_there.then(directory).transpose()
}

/// Interfaces may change their names, but not their numbers in their namespace.
fn path(directory: &Path, namespace: u64, index: u32) -> PathBuf {
    directory.join(format!("{namespace}-{index}.json"))
}

/// Whether it is a [`path`] of that namespace.
fn is_of(path: &Path, namespace: u64) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".json"));
    name.and_then(|name| name.split_once('-')).is_some_and(|(of, _)| of == namespace.to_string())
}

impl Journal {
    /// The journal of an interface, for this process alone.
    ///
    /// # Errors
    /// That another process has it, and which.
    pub(super) fn lock(directory: &Path, namespace: u64, index: u32) -> io::Result<LockedJournal> {
        let path = path(directory, namespace, index);
        let file = open_locked(&path, true, File::try_lock)?;
        Self::found(file, path)
    }

    fn found(mut file: File, path: PathBuf) -> io::Result<LockedJournal> {
        let mut text = String::new();
        // A journal is written whole before anything is taken.
        let entry = file.read_to_string(&mut text).ok().and_then(|_| serde_json::from_str::<Entry>(&text).ok());
        let here = boot()?;
        Ok(LockedJournal { journal: Self { file, path }, entry: entry.filter(|entry| entry.boot == here) })
    }

    /// The journals of a namespace that nobody has: those of processes that were killed. Others of it that were left are removed.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub(super) fn left(directory: &Path, namespace: u64) -> io::Result<Vec<(Self, Entry)>> {
        let mut left = Vec::new();
        for file in fs::read_dir(directory)? {
            let path = file?.path();
            // Another namespace's is not even locked for a look: who asks for what is left there would pass it over.
            if !is_of(&path, namespace) {
                continue;
            }
            // What is locked has its owner, and what is gone has been given back meanwhile.
            let Ok(file) = open_locked(&path, false, File::try_lock) else { continue };
            let LockedJournal { journal, entry } = Self::found(file, path)?;
            match entry {
                Some(entry) => left.push((journal, entry)),
                None => journal.remove()?,
            }
        }
        Ok(left)
    }

    /// Writes it, so that it is there whatever happens from now on.
    pub(super) fn write(&mut self, entry: &Entry) -> io::Result<()> {
        self.file.rewind()?;
        self.file.set_len(0)?;
        self.file.write_all(&serde_json::to_vec(entry)?)?;
        self.file.sync_all()?;
        self.path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
    }

    /// There is nothing to be given back any more.
    pub(super) fn remove(self) -> io::Result<()> {
        fs::remove_file(&self.path)
    }
}

impl SharedUse {
    /// # Errors
    /// That another process has taken the interface, and which.
    pub(super) fn lock(directory: &Path, namespace: u64, index: u32) -> io::Result<Self> {
        let path = path(directory, namespace, index);
        Ok(Self { file: open_locked(&path, true, File::try_lock_shared)?, path })
    }
}

impl Drop for SharedUse {
    fn drop(&mut self) {
        // The last one removes it. What is in it, a killed process has left.
        let is_last = self.file.try_lock().is_ok();
        if is_last && self.file.metadata().is_ok_and(|metadata| metadata.len() == 0) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Who looks through all journals has each for a moment.
const MOMENT: Duration = Duration::from_millis(200);

fn open_locked(path: &Path, create: bool, lock: fn(&File) -> Result<(), TryLockError>) -> io::Result<File> {
    let deadline = Instant::now() + MOMENT;
    loop {
        let file = OpenOptions::new().read(true).write(true).create(create).mode(0o600).open(path)?;
        match lock(&file) {
            Ok(()) => {}
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if create && Instant::now() < deadline => {
                thread::sleep(Duration::from_millis(5));
                continue;
            }
            Err(TryLockError::WouldBlock) => return Err(io::Error::new(io::ErrorKind::ResourceBusy, owner(path))),
        }
        // Its owner before may have removed it after it was opened here.
        let is_there = fs::metadata(path).and_then(|there| Ok(there.ino() == file.metadata()?.ino()));
        match is_there {
            Ok(true) => return Ok(file),
            Ok(false) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound && create => {}
            Err(error) => return Err(error),
        }
    }
}

fn owner(path: &Path) -> String {
    let entry = fs::read(path).ok().and_then(|text| serde_json::from_slice::<Entry>(&text).ok());
    match entry {
        Some(entry) => format!("process {} has taken it, another netrig", entry.pid),
        None => "another netrig uses it".into(),
    }
}

/// Who has taken an interface that is called so, of this namespace.
pub(super) fn taker(directory: &Path, namespace: u64, name: &str) -> Option<u32> {
    let entries = fs::read_dir(directory).ok()?.flatten();
    let read = |path: PathBuf| serde_json::from_slice::<Entry>(&fs::read(path).ok()?).ok();
    let mut entries = entries.filter_map(|entry| read(entry.path()));
    let found = entries.find(|entry| entry.namespace == namespace && entry.before.name == name)?;
    Some(found.pid)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn what_is_left_in_a_namespace_is_found_while_others_look_for_theirs() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let left = path(directory, 7, 2);
        let entry = Entry::of_this_process(7, InterfaceRecord::default()).unwrap();
        fs::write(&left, serde_json::to_vec(&entry).unwrap()).unwrap();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    assert!(Journal::left(directory, 70).unwrap().is_empty());
                }
            });
            let found: usize = (0..500).map(|_| Journal::left(directory, 7).unwrap().len()).sum();
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(found, 500);
        });
    }

    /// As netrig wrote them before it recorded what decides where a device receives.
    #[test]
    fn a_journal_of_an_older_netrig_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let before = r#"{"name":"eth1","index":3,"mac":"52:54:00:00:00:01","permanent_mac":"52:54:00:00:00:01","kind":null,"mtu":1500,
            "is_set_up":true,"qdisc":"mq","has_xdp":false,"features":{"rx-gro":true},"device":{"tx_queue_len":"1000"},
            "sysctls":{"ipv4/conf/rp_filter":"2"},"addresses":[],"routes":[],"neighbors":[]}"#;
        let entry = format!(r#"{{"boot":"{}","namespace":7,"pid":1,"before":{before}}}"#, boot().unwrap());
        fs::write(path(directory, 7, 3), entry).unwrap();
        let left = Journal::left(directory, 7).unwrap();
        let [(_, Entry { before, .. })] = &left[..] else { panic!("{left:?}") };
        assert_eq!((before.name.as_str(), before.differences(before)), ("eth1", Vec::new()));
        // What is not known is not written.
        assert!(!serde_json::to_string(before).unwrap().contains("receive"));
    }
}
