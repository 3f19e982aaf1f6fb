//! Whose things of an engine and of the machine are: those of a process that has gone are left over.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rig_engine::{Engine, Labels};
use rig_sys::process::start_time;

/// The label, and what names of cgroups begin with.
pub(super) const LABEL: &str = "netrig.owner";
const CGROUP: &str = "netrig-";
const CGROUPS: &str = "/sys/fs/cgroup";

/// An agent's process: which namespace of processes it is seen from, its number there and when it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Owner {
    namespace: u64,
    pub(super) process: u32,
    start: u64,
}

impl Owner {
    /// This process, as its parent's namespace of processes sees it, which /proc still shows.
    ///
    /// # Errors
    /// When /proc does not tell.
    pub(super) fn of_this_process() -> Result<Self> {
        let number = fs::read_link("/proc/self").context("read /proc/self")?;
        let process = number.to_str().and_then(|number| number.parse().ok()).context("find this process in /proc")?;
        let status = fs::read_to_string("/proc/self/status").context("read /proc/self/status")?;
        let parent =
            status.lines().find_map(|line| line.strip_prefix("PPid:")).context("find this process's parent")?;
        let namespace = namespace_of(Path::new(&format!("/proc/{}/ns/pid", parent.trim())))?;
        let start = start_time(process).context("find out when this process started")?;
        Ok(Self { namespace, process, start })
    }

    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split('-');
        let mut next = || numbers.next()?.parse::<u64>().ok();
        let owner = Self { namespace: next()?, process: next()?.try_into().ok()?, start: next()? };
        numbers.next().is_none().then_some(owner)
    }

    /// Whether the process has gone, as far as can be seen from `namespace`.
    fn has_gone(self, namespace: u64) -> bool {
        self.namespace == namespace && start_time(self.process) != Some(self.start)
    }

    pub(super) fn labels(self) -> Labels {
        Labels::from([(LABEL.to_owned(), self.to_string())])
    }

    /// The cgroup that those of its containers are in.
    pub(super) fn cgroup(self) -> String {
        format!("/{CGROUP}{self}")
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.namespace, self.process, self.start)
    }
}

/// The number of a namespace of processes, from a link such as `pid:[4026531836]` (namespaces(7)).
fn namespace_of(link: &Path) -> Result<u64> {
    let target = fs::read_link(link).with_context(|| format!("read {}", link.display()))?;
    let number = target.to_str().and_then(|text| text.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok());
    number.with_context(|| format!("understand {}", target.display()))
}

/// Removes what processes that have gone have left with an engine.
///
/// # Errors
/// What the engine refuses.
pub(super) fn remove_from(engine: &Engine, own: Owner) -> Result<()> {
    let left = |all: Vec<(String, String)>| {
        all.into_iter().filter(|(_, owner)| Owner::parse(owner).is_some_and(|owner| owner.has_gone(own.namespace)))
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
    let namespace = namespace_of(Path::new("/proc/self/ns/pid"))?;
    let mut errors = Vec::new();
    // Of version 2 one hierarchy, of version 1 several (cgroups(7)).
    let top = Path::new(CGROUPS);
    for hierarchy in std::iter::once(top.to_owned()).chain(folders_in(top)) {
        let left = folders_in(&hierarchy).into_iter().filter(|folder| {
            let name = folder.file_name().and_then(|name| name.to_str());
            let owner = name.and_then(|name| Owner::parse(name.strip_prefix(CGROUP)?));
            owner.is_some_and(|owner| owner.has_gone(namespace))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_known_by_its_name_and_gone_when_its_process_is_another() {
        let own = Owner::of_this_process().unwrap();
        assert_eq!(Owner::parse(&own.to_string()), Some(own));
        assert!(!own.has_gone(own.namespace));
        let other = Owner { start: own.start + 1, ..own };
        assert!(other.has_gone(own.namespace));
        // Of processes of another namespace nothing is known.
        assert!(!other.has_gone(own.namespace + 1));
        assert_eq!(
            [Owner::parse("1-2"), Owner::parse("1-2-3-4"), Owner::parse("a-b-c"), Owner::parse("1-4294967296-3")],
            [None; 4]
        );
    }
}
