//! What a control plane leaves behind and finds again: its lock, pinned tables and links, the configuration in force.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use rig_cli::exit::{Exit, Failure, OrExit};
use rig_cli::{bpf_file_system, run_directory};
use rig_datapath::balancer;

use super::placed::Placements;
use crate::place::Place;

/// Held by the one process that runs the balancer of a name.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

/// One that was told to end may need this long until it has.
const LAST_WORDS: Duration = Duration::from_millis(500);

impl Lock {
    pub(crate) fn take(place: &Place) -> Result<Self, Failure> {
        place.make_directory().or_exit(Exit::Lacking)?;
        let path = place.lock();
        let how = || format!("open {}", path.display());
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
        let mut file = opened.with_context(how).or_exit(Exit::Lacking)?;
        let deadline = Instant::now() + LAST_WORDS;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                Err(TryLockError::WouldBlock) => {
                    let mut process = String::new();
                    let _unknown = file.read_to_string(&mut process);
                    let name = place.name();
                    return Err(Failure::new(
                        Exit::BadInput,
                        anyhow!(
                            "a balancer named {name} is running already, as process {}: stop it with `netrig lb stop --name \
                         {name}`, or choose another --name",
                            process.trim()
                        ),
                    ));
                }
                Err(TryLockError::Error(error)) => {
                    return Err(Failure::new(Exit::Failed, anyhow!("lock {}: {error}", path.display())));
                }
            }
        }
        let written =
            file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{}", std::process::id()));
        written.with_context(|| format!("write to {}", path.display())).or_exit(Exit::Failed)?;
        Ok(Self { _file: file })
    }

    /// Waits until nobody holds the lock; says whether that has come.
    pub(crate) fn wait_until_free(place: &Place, patience: Duration) -> bool {
        let Ok(file) = File::open(place.lock()) else { return true };
        let deadline = Instant::now() + patience;
        loop {
            match file.try_lock_shared() {
                Ok(()) => return true,
                Err(_) if Instant::now() > deadline => return false,
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }
}

/// The balancer's directory on the bpf file system.
#[derive(Debug, Clone)]
pub(crate) struct Pins {
    directory: PathBuf,
    namespace: u64,
}

/// The number of this process's network namespace: interfaces have numbers of their own in each.
pub(super) fn namespace() -> u64 {
    let inode = fs::read_link("/proc/thread-self/ns/net").ok();
    let inode = inode.and_then(|link| link.to_str()?.trim_start_matches("net:[").trim_end_matches(']').parse().ok());
    inode.unwrap_or(0)
}

/// Pinned last when tables are kept, so where it is, all are.
const LAST_TABLE: &str = "tuning";
const LINK: &str = "link_";

impl Pins {
    pub(crate) fn of(place: &Place) -> Self {
        Self { directory: place.pins(), namespace: namespace() }
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Whether there are tables that a balancer can go on with.
    pub(crate) fn resumable(&self) -> bool {
        self.directory.join(LAST_TABLE).exists()
    }

    pub(crate) fn link(&self, interface: u32) -> PathBuf {
        self.directory.join(format!("{LINK}{}_{interface}", self.namespace))
    }

    /// Kept links that are none of `wanted`: their interfaces are the balancer's no more.
    pub(crate) fn remove_links_but(&self, wanted: &[PathBuf]) -> anyhow::Result<()> {
        let mut released = self.links()?.into_iter().filter(|link| !wanted.contains(link));
        Ok(released.try_for_each(|link| balancer::release(&link))?)
    }

    pub(crate) fn links(&self) -> io::Result<Vec<PathBuf>> {
        let entries = fs::read_dir(&self.directory)?.collect::<io::Result<Vec<_>>>()?;
        let links = entries.iter().filter(|entry| entry.file_name().to_string_lossy().starts_with(LINK));
        Ok(links.map(fs::DirEntry::path).collect())
    }

    /// Makes the directory, on a bpf file system that is mounted when there is none; says what it has done.
    pub(crate) fn prepare(&self) -> Result<Option<String>, Failure> {
        let said = bpf_file_system::have("netrig lb run --persist")?;
        let unfinished = self.directory.exists() && !self.resumable();
        let made = if unfinished { self.remove() } else { Ok(()) };
        let create = || Ok(fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?);
        let made = made.and_then(|()| create());
        made.with_context(|| format!("make {}", self.directory.display())).or_exit(Exit::Lacking)?;
        Ok(said)
    }

    /// Removes all that is pinned: links are detached by it, and tables go when nobody uses them.
    pub(crate) fn remove(&self) -> anyhow::Result<()> {
        if !self.directory.exists() {
            return Ok(());
        }
        // Links first, so that no program runs upon half of its tables' pins.
        self.remove_links_but(&[])?;
        Ok(fs::remove_dir_all(&self.directory)?)
    }
}

fn gone(error: &io::Error, kind: io::ErrorKind) -> io::Result<()> {
    if kind == io::ErrorKind::NotFound { Ok(()) } else { Err(io::Error::new(kind, error.to_string())) }
}

/// Writes the configuration in force. Whoever calls it holds the lock.
pub(super) fn write_configuration(place: &Place, text: &str) -> io::Result<()> {
    run_directory::replace(&place.configuration(), text.as_bytes())
}

/// Removes everything that a balancer has left whose control plane has ended, and puts its devices' queues back. False
/// when there was nothing.
pub(crate) fn remove_all(place: &Place) -> Result<bool, Failure> {
    let pins = Pins::of(place);
    let there = pins.resumable();
    balancer::release_kept_neighbors(pins.directory());
    let removed = pins.remove().with_context(|| format!("remove {}", pins.directory().display()));
    removed.or_exit(Exit::Failed)?;
    let placed = Placements::recall(place).undo_but(&[]);
    for path in [place.configuration(), place.socket()] {
        let removed = fs::remove_file(&path).or_else(|error| gone(&error, error.kind()));
        removed.with_context(|| format!("remove {}", path.display())).or_exit(Exit::Failed)?;
    }
    Ok(there || placed)
}
