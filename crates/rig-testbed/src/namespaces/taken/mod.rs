//! Interfaces of the host's that a testbed uses: taken into a node's namespace, and given back as they were, or shared.
//!
//! What an interface has is written to a journal first. It is given back from there by whoever has taken it or, where that was killed, by
//! the next netrig that starts in the host's namespace. Until then hardware is where the kernel has sent it, and a virtual interface went
//! with the node's namespace.

mod journal;
mod receive;
mod record;

use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rig_sys::netlink::{Link, Netlink};
use rig_sys::netns::NetNs;
use rig_sys::{Error, Result};

use self::journal::{Entry, Journal, LockedJournal};
use self::record::{Difference, InterfaceRecord};
use super::Uses;

/// An interface of the host's in a node's namespace.
#[derive(Debug)]
pub(super) struct TakenInterface {
    before: InterfaceRecord,
    /// `None` once it was given back, or when it was tried.
    journal: Option<Journal>,
    /// Where it belongs, and where it is.
    host: NetNs,
    there: NetNs,
    /// Its number there.
    index: u32,
}

/// An interface of the host's that a macvlan interface of a node stands on.
#[derive(Debug)]
pub(super) struct SharedInterface {
    _use: journal::SharedUse,
}

/// How long the kernel may take to send an interface back from the namespace of a process that was killed.
const RETURN_PATIENCE: Duration = Duration::from_secs(3);

impl TakenInterface {
    /// Takes `name` from the calling thread's namespace into `there`, where it is called `new_name`, is down, and has nothing
    /// but its hardware address and the settings of its device.
    ///
    /// # Errors
    /// Why the host cannot do without it, or who else has it. Nothing has changed then.
    pub(super) fn take(name: &str, there: &NetNs, new_name: &str) -> Result<Self> {
        let failed = |why: io::Error| Error::new(format!("take interface {name} of the host"), why);
        let words = |why: String| failed(io::Error::other(why));
        let mut netlink = Netlink::here()?;
        let host = NetNs::of_current_thread()?;
        let namespace = NetNs::number_of_current_thread()?;
        let directory = journal::directory().map_err(failed)?;
        let index = netlink.index(name).map_err(|error| match journal::taker(&directory, namespace, name) {
            Some(pid) => words(format!("process {pid} has taken it, another netrig")),
            None => error,
        })?;
        let LockedJournal { mut journal, entry } = Journal::lock(&directory, namespace, index).map_err(failed)?;
        if entry.is_some() {
            return Err(words("it is not yet given back by a netrig that was killed: `netrig host` does that".into()));
        }
        let given_up = |journal: Journal, error: Error| {
            // Without it there is nothing to be given back, and nothing says so.
            let _ = journal.remove();
            Err(error)
        };
        let prepare = |journal: &mut Journal| {
            let uses = Uses::read(&netlink)?;
            let link = uses.links.iter().find(|link| link.index == index);
            let link = link.ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
            if let Some(why) = uses.of(link) {
                return Err(words(why));
            }
            let before = InterfaceRecord::record(&netlink, &host, link)?;
            let entry = Entry::of_this_process(namespace, before).map_err(failed)?;
            journal.write(&entry).map_err(failed)?;
            Ok(entry.before)
        };
        let before = match prepare(&mut journal) {
            Ok(before) => before,
            Err(error) => return given_up(journal, error),
        };
        let there = match there.try_clone() {
            Ok(there) => there,
            Err(error) => return given_up(journal, error),
        };
        let moved = netlink.move_to(name, &there, new_name, None);
        let mut taken = Self { before, journal: Some(journal), host, there, index };
        let elsewhere = Netlink::open(&taken.there)?;
        match moved {
            Ok(()) => {
                taken.index = elsewhere.index(new_name)?;
                Ok(taken)
            }
            Err(error) => {
                // It may have been moved before it could not get its name; then it goes back.
                match elsewhere.index(name) {
                    Ok(index) => taken.index = index,
                    Err(_) => taken.journal.take().map_or(Ok(()), Journal::remove).map_err(failed)?,
                }
                Err(failed(io::Error::other(error)))
            }
        }
    }

    /// Moves it back, and gives it all that it had.
    ///
    /// # Errors
    /// What is not as it was. The journal stays then.
    pub(super) fn give_back(&mut self) -> Result<()> {
        let Some(journal) = self.journal.take() else { return Ok(()) };
        let failed = |why: io::Error| Error::new(format!("give interface {} back to the host", self.before.name), why);
        let mut netlink = Netlink::open(&self.host)?;
        let link = self.move_back(&netlink)?;
        match self.before.restore(&mut netlink, &self.host, &link) {
            Ok(()) => journal.remove().map_err(failed),
            Err(faults) => Err(failed(io::Error::other(faults.join("; ")))),
        }
    }
}

impl TakenInterface {
    /// What it is among the host's interfaces then. Where another one has its name meanwhile, it has one that is free.
    fn move_back(&self, host: &Netlink) -> Result<Link> {
        /// The kernel puts a number.
        const ANY: &str = "dev%d";
        let mut elsewhere = Netlink::open(&self.there)?;
        let name = elsewhere.link_at(self.index)?.name;
        let moved = elsewhere.move_to(&name, &self.host, &self.before.name, Some(self.before.index()));
        let Err(error) = moved else { return host.link(&self.before.name) };
        let found = || host.links().map(|links| self.before.find(&links).cloned());
        if let Some(link) = found()? {
            return Ok(link);
        }
        elsewhere.move_to(&name, &self.host, ANY, Some(self.before.index()))?;
        found()?.ok_or(error)
    }
}

impl Drop for TakenInterface {
    fn drop(&mut self) {
        // The journal says the rest to the next netrig.
        let _ = self.give_back();
    }
}

impl SharedInterface {
    /// Has nobody take `name` of the calling thread's namespace while the value is there.
    ///
    /// # Errors
    /// Who has taken it.
    pub(super) fn of(name: &str) -> Result<Self> {
        let failed = |why: io::Error| Error::new(format!("share interface {name} of the host"), why);
        let namespace = NetNs::number_of_current_thread()?;
        let directory = journal::directory().map_err(failed)?;
        let index = Netlink::here()?.index(name).map_err(|error| {
            let taken = |pid| failed(io::Error::other(format!("process {pid} has taken it, another netrig")));
            journal::taker(&directory, namespace, name).map_or(error, taken)
        })?;
        Ok(Self { _use: journal::SharedUse::lock(&directory, namespace, index).map_err(failed)? })
    }
}

/// Gives back what processes that were killed have left of interfaces of the calling thread's namespace. A line for each says what.
///
/// # Errors
/// When it cannot be found out.
pub(crate) fn mend() -> Result<Vec<String>> {
    let failed = |why: io::Error| Error::new("look for interfaces that a killed netrig had taken", why);
    let directory = journal::directory_if_used().map_err(failed)?;
    directory.map_or_else(|| Ok(Vec::new()), |directory| mend_by(&directory))
}

fn mend_by(directory: &Path) -> Result<Vec<String>> {
    let failed = |why: io::Error| Error::new("read the journals of interfaces", why);
    let host = NetNs::of_current_thread()?;
    let left = Journal::left(directory, NetNs::number_of_current_thread()?).map_err(failed)?;
    let mut said = Vec::new();
    for (journal, Entry { before, .. }) in left {
        let mut netlink = Netlink::here()?;
        let told = match found(&netlink, &before)? {
            Some(link) => mend_one(&mut netlink, &host, &before, &link)?,
            None => Some(format!("{}: a killed netrig had taken it, and it is not here any more", before.name)),
        };
        // Once: what cannot be put right now cannot be later, and meanwhile others may have put it right.
        journal.remove().map_err(failed)?;
        said.extend(told);
    }
    Ok(said)
}

/// Hardware's interface comes back when the kernel has taken the node's namespace down, which it does in its own time.
fn found(netlink: &Netlink, before: &InterfaceRecord) -> Result<Option<Link>> {
    let deadline = Instant::now() + RETURN_PATIENCE;
    loop {
        let link = before.find(&netlink.links()?).cloned();
        if link.is_some() || !before.is_of_hardware() || Instant::now() > deadline {
            return Ok(link);
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// What is said of it: nothing where the interface is as it was.
fn mend_one(netlink: &mut Netlink, host: &NetNs, before: &InterfaceRecord, link: &Link) -> Result<Option<String>> {
    let name = &before.name;
    let differences = before.differences(&InterfaceRecord::record(netlink, host, link)?);
    if differences.is_empty() {
        return Ok(None);
    }
    let was = |difference: Difference| difference.was;
    let all: Vec<String> = differences.into_iter().map(was).collect();
    Ok(Some(match before.restore(netlink, host, link) {
        Ok(()) => format!("{name}: given back what a killed netrig left: {}", all.join(", ")),
        Err(faults) => {
            format!("{name}: a killed netrig left it otherwise, and it is not as it was: {}", faults.join("; "))
        }
    }))
}
