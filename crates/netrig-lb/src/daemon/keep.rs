//! What a control plane leaves behind and finds again: its lock, pinned tables and links, the configuration in force.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

use anyhow::{Context, anyhow};
use rig_cli::exit::{Exit, ExitContext, Failure};
use rig_datapath::balancer;
use rig_service::files::ServiceFiles;
use rig_service::{bpf_file_system, run_directory};
use rig_sys::netns::NetNs;

use super::placed::Placements;

/// That another process runs the balancer of a name.
pub(crate) fn taken(name: &str, process: &str) -> Failure {
    let error = anyhow!(
        "a balancer named {name} is running already, as process {process}: stop it with `netrig lb stop --name {name}`, or \
         choose another --name"
    );
    Failure::new(Exit::BadInput, error)
}

/// The balancer's directory on the bpf file system.
#[derive(Debug, Clone)]
pub(crate) struct Pins {
    directory: PathBuf,
    namespace: u64,
}

/// The number of this process's network namespace: interfaces have numbers of their own in each.
pub(super) fn namespace() -> u64 {
    NetNs::of_current_thread().and_then(|here| here.inode()).map_or(0, u64::from)
}

/// Pinned last when tables are kept, so where it is, all are.
const LAST_TABLE: &str = "tuning";
const LINK: &str = "link_";

impl Pins {
    pub(crate) fn of(files: &ServiceFiles) -> Self {
        Self { directory: files.pins(), namespace: namespace() }
    }

    /// Where this is, all tables are.
    pub(crate) fn last_table(&self) -> PathBuf {
        self.directory.join(LAST_TABLE)
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Whether there are tables that a balancer can go on with.
    pub(crate) fn resumable(&self) -> bool {
        self.last_table().exists()
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

    /// Removes all that is pinned: links are detached by it, and tables go when no process uses them.
    pub(crate) fn remove(&self) -> anyhow::Result<()> {
        if !self.directory.exists() {
            return Ok(());
        }
        // Links first, so that no program runs upon half of its tables' pins.
        self.remove_links_but(&[])?;
        fs::remove_dir_all(&self.directory)?;
        bpf_file_system::leave(&self.directory);
        Ok(())
    }
}

fn gone(error: &io::Error, kind: io::ErrorKind) -> io::Result<()> {
    if kind == io::ErrorKind::NotFound { Ok(()) } else { Err(io::Error::new(kind, error.to_string())) }
}

/// Writes the configuration in force. The caller holds the lock.
pub(super) fn write_configuration(files: &ServiceFiles, text: &str) -> io::Result<()> {
    run_directory::replace(&files.configuration(), text.as_bytes())
}

/// Removes everything that a balancer has left whose control plane has ended, and puts its devices' queues back. False
/// when there was nothing.
pub(crate) fn remove_all(files: &ServiceFiles) -> Result<bool, Failure> {
    let pins = Pins::of(files);
    let there = pins.resumable();
    balancer::release_kept_neighbors(pins.directory());
    let removed = pins.remove().with_context(|| format!("remove {}", pins.directory().display()));
    removed.or_exit(Exit::Failed)?;
    let placed = Placements::recall(files).undo_but(&[]);
    for path in [files.configuration(), files.socket(), super::health::file(files)] {
        let removed = fs::remove_file(&path).or_else(|error| gone(&error, error.kind()));
        removed.with_context(|| format!("remove {}", path.display())).or_exit(Exit::Failed)?;
    }
    Ok(there || placed)
}
