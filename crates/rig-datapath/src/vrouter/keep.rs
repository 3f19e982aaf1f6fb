//! What outlives the process: flows, counters, and the programs on interfaces, pinned on a bpf file system.
//!
//! Routes and rules are not among it. The router that goes on has tables of its own for them, made anew from the configuration, and a
//! later epoch than the one before: each flow's next packet is held against them, and its entry gets their numbers. Until
//! a program is exchanged for the new one, the old one forwards by the old tables.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use libbpf_rs::MapCore as _;
use rig_sys::tc::{self, Hook};

use crate::Error;
use crate::maps::Map;

use super::attach::OWNER;
use super::control::Router;
use super::load::{self, Tables};
use super::shape::Control;
use super::sizes::Sizes;

/// Tables that are gone on with.
pub(super) const KEPT: [&str; 15] = [
    "router_program",
    "flows",
    "begun",
    "ended",
    "ended_early",
    "fragments",
    "traffic",
    "copied",
    "drops",
    "dropped",
    "drop_turns",
    "log_ring",
    "log_counts",
    // Of old kernels.
    "locks",
    "mirrored",
];
/// Tells the epoch; pinned last, so that where it is, all are.
const CONTROLS: &str = "controls";
const LINK: &str = "link_";
const OUT: &str = "_out";
/// Of the calling thread.
const NAMESPACE: &str = "/proc/thread-self/ns/net";

fn failed(operation: &'static str, path: &Path, source: impl Into<libbpf_rs::Error>) -> Error {
    Error::Pin { operation, path: path.display().to_string(), source: source.into() }
}

/// Whether a router has been kept there that another can go on with.
pub fn is_kept(directory: &Path) -> bool {
    directory.join(CONTROLS).exists()
}

/// Takes what is kept in `directory` away, and it with it: programs go off their interfaces, and flows are forgotten where no
/// process has them.
///
/// # Errors
/// When something of it cannot be removed.
pub fn release(directory: &Path) -> Result<(), Error> {
    let removed = || -> io::Result<()> {
        // No program shall run for long upon half of its tables' pins.
        for link in links(directory)? {
            remove(&link)?;
        }
        fs::remove_dir_all(directory)
    };
    match removed() {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove", directory, error)),
        _ => Ok(()),
    }
}

fn links(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(directory)?.collect::<io::Result<Vec<_>>>()?;
    let is_link = |entry: &&fs::DirEntry| entry.file_name().to_string_lossy().starts_with(LINK);
    Ok(entries.iter().filter(is_link).map(fs::DirEntry::path).collect())
}

/// Takes a link away, and the filter that it may stand for.
fn remove(link: &Path) -> io::Result<()> {
    if let Some((namespace, interface, hook)) = named(link)
        && fs::metadata(NAMESPACE).is_ok_and(|here| here.ino() == namespace)
    {
        // Of a link there is none, and the file is all.
        let _ = tc::remove_filter(interface, hook, &OWNER);
    }
    fs::remove_file(link)
}

/// What the name of a link says: see [`Links::of`].
fn named(link: &Path) -> Option<(u64, u32, Hook)> {
    let name = link.file_name()?.to_str()?.strip_prefix(LINK)?;
    let (name, hook) = match name.strip_suffix(OUT) {
        Some(name) => (name, Hook::Egress),
        None => (name, Hook::Ingress),
    };
    let (namespace, interface) = name.split_once('_')?;
    Some((namespace.parse().ok()?, interface.parse().ok()?, hook))
}

/// Where links are kept, of interfaces of one network namespace: in another the same numbers are other interfaces'.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Links {
    directory: PathBuf,
    namespace: u64,
}

impl Links {
    /// For the namespace of the calling thread.
    fn here(directory: &Path) -> Result<Self, Error> {
        let path = Path::new(NAMESPACE);
        let namespace = fs::metadata(path).map_err(|error| failed("look at", path, error))?.ino();
        Ok(Self { directory: directory.to_owned(), namespace })
    }

    pub(super) fn of(&self, interface: u32, hook: Hook) -> PathBuf {
        let out = if hook == Hook::Egress { OUT } else { "" };
        self.directory.join(format!("{LINK}{}_{interface}{out}", self.namespace))
    }

    /// Takes the programs off all interfaces but these.
    pub(super) fn remove_but(&self, wanted: impl Iterator<Item = (u32, Hook)>) -> Result<(), Error> {
        let wanted: Vec<PathBuf> = wanted.map(|(interface, hook)| self.of(interface, hook)).collect();
        let all = links(&self.directory).map_err(|error| failed("list", &self.directory, error))?;
        for link in all.iter().filter(|link| !wanted.contains(link)) {
            remove(link).map_err(|error| failed("remove", link, error))?;
        }
        Ok(())
    }
}

/// Pins a table in place of one that may be there.
fn pin(map: &Map, path: &Path) -> Result<(), Error> {
    // A bpf file system knows no names with a dot.
    let mut beside = path.as_os_str().to_owned();
    beside.push("_new");
    let beside = PathBuf::from(beside);
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed("remove", &beside, error)),
        _ => {}
    }
    map.pin_as(&beside)?;
    fs::rename(&beside, path).map_err(|error| failed("rename", &beside, error))
}

impl Router {
    /// Loads the programs upon the flows and counters that another router has [kept](Self::keep) in `directory`. Its
    /// programs, where they are on interfaces, go on until [`attach`](Self::attach) exchanges them, from one packet to the
    /// next.
    ///
    /// # Errors
    /// [`Error::PinnedOtherwise`] where the tables are of other sizes, or another version's.
    pub fn resume(sizes: Sizes, directory: &Path) -> Result<Self, Error> {
        let otherwise = |_| Error::PinnedOtherwise { path: directory.display().to_string() };
        let before = Map::pinned(&directory.join(CONTROLS), CONTROLS, size_of::<Control>()).map_err(otherwise)?;
        let control: Control = before.at(0)?;
        let mut router = Self::open(sizes, load::for_running()?, Some(directory))?;
        (router.control.epoch, router.control.fat) = (control.epoch, control.fat);
        router.keep(directory)?;
        Ok(router)
    }

    /// Keeps flows, counters and attachments, from now on, in `directory` on a bpf file system, when this process has ended.
    /// The calling thread is in the network namespace of the interfaces.
    ///
    /// # Errors
    /// When the kernel does not take them there.
    pub fn keep(&mut self, directory: &Path) -> Result<(), Error> {
        let has = |name: &str| self.object.maps().any(|map| map.name() == name);
        for name in KEPT.into_iter().filter(|name| has(name)) {
            pin(&Map::any(&self.object, name)?, &directory.join(name))?;
        }
        self.links = Some(Links::here(directory)?);
        // It tells the epoch from the first configuration on.
        self.tables.controls.set(&0_u32, &self.control)?;
        pin(&self.tables.controls, &directory.join(CONTROLS))
    }
}

/// Whether tables that were kept have room for what these sizes say.
pub(super) fn are_of(tables: &Tables, sizes: &Sizes) -> bool {
    tables.flows.entries() == sizes.flows && tables.traffic.entries() == sizes.interfaces + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_links_name_says_reads_back() {
        let links = Links { directory: "/sys/fs/bpf/netrig".into(), namespace: 4_026_531_840 };
        for hook in [Hook::Ingress, Hook::Egress] {
            assert_eq!(named(&links.of(7, hook)), Some((4_026_531_840, 7, hook)));
        }
        assert_eq!(named(Path::new("/sys/fs/bpf/netrig/flows")), None);
    }
}
