//! Whose things of an engine and of the machine are: those of a process that has gone are left over.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use rig_engine::{Engine, Labels};
use rig_sys::identity::{ProcessFate, ProcessIdentity};

/// The label, and what names of cgroups begin with.
pub(super) const LABEL: &str = "netrig.owner";
const CGROUP: &str = "netrig-";
pub(super) const CGROUPS: &str = "/sys/fs/cgroup";

/// The labels of what a process has an engine make.
pub(super) fn labels(owner: &ProcessIdentity) -> Labels {
    Labels::from([(LABEL.to_owned(), owner.to_string())])
}

/// The cgroup that those of its containers are in.
pub(super) fn cgroup(owner: &ProcessIdentity) -> String {
    format!("/{CGROUP}{owner}")
}

/// Removes what processes that have gone have left with an engine.
///
/// # Errors
/// What the engine refuses.
pub(super) fn remove_from(engine: &Engine, own: &ProcessIdentity) -> Result<()> {
    let left = |all: Vec<(String, String)>| {
        let has_ended = |owner: &ProcessIdentity| owner.fate_as_seen_by(own) == ProcessFate::Ended;
        all.into_iter().filter(move |(_, owner)| owner.parse().is_ok_and(|owner| has_ended(&owner)))
    };
    for (id, _) in left(engine.containers_with(LABEL)?) {
        engine.remove_container(&id)?;
    }
    for (id, _) in left(engine.networks_with(LABEL)?) {
        engine.remove_network(&id)?;
    }
    for (id, _) in left(engine.images_with(LABEL)?) {
        engine.remove_image(&id)?;
    }
    Ok(())
}

/// Removes the cgroups of processes that have gone. To be called in the namespace of processes from which these were seen.
///
/// # Errors
/// Those that cannot be removed; all others are gone.
pub(super) fn remove_cgroups() -> Result<()> {
    let mut errors = Vec::new();
    // Of version 2 one hierarchy, of version 1 several (cgroups(7)).
    let top = Path::new(CGROUPS);
    for hierarchy in std::iter::once(top.to_owned()).chain(folders_in(top)) {
        let left = folders_in(&hierarchy).into_iter().filter(|folder| {
            let name = folder.file_name().and_then(|name| name.to_str());
            let owner = name.and_then(|name| name.strip_prefix(CGROUP)?.parse::<ProcessIdentity>().ok());
            owner.is_some_and(|owner| owner.fate() == ProcessFate::Ended)
        });
        for folder in left {
            if let Err(error) = remove_tree(&folder) {
                errors.push(format!("remove {}: {error}", folder.display()));
            }
        }
    }
    if errors.is_empty() { Ok(()) } else { bail!(errors.join("; ")) }
}

fn folders_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()).collect()
}

/// A cgroup's files go with it.
fn remove_tree(folder: &Path) -> io::Result<()> {
    folders_in(folder).iter().try_for_each(|below| remove_tree(below))?;
    match fs::remove_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
