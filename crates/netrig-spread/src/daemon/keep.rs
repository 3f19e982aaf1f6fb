//! What interfaces had before they were taken, in a file, because the process that puts it back may be another: a guard, which
//! sees that this one was killed, or the next spreader.

use std::fs;
use std::io::{self, Read};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};
use rig_cli::exit::{Exit, ExitContext, Failure};
use rig_service::files::ServiceFiles;
use rig_service::run_directory;
use rig_sys::netlink::Netlink;
use rig_sys::netns::NetNs;
use rig_sys::process::in_own_session;
use serde::{Deserialize, Serialize};
use tracing::{error, warn};

use crate::actuator::SavedState;
use crate::instance::{self, BEFORE};

/// An interface that was taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct TakenInterface {
    /// Its number, by which another one of its name is known.
    index: u32,
    before: SavedState,
}

/// All that is to be put back.
#[derive(Debug)]
pub(super) struct SavedInterfaces {
    /// None of a spreader whose namespace goes with it.
    files: Option<ServiceFiles>,
    taken: Vec<TakenInterface>,
}

impl SavedInterfaces {
    pub(super) fn new(files: Option<ServiceFiles>) -> Self {
        Self { files, taken: Vec::new() }
    }

    /// What another process has left, if it has.
    fn recall(files: &ServiceFiles) -> Self {
        let taken = fs::read(files.file(BEFORE)).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        Self { files: Some(files.clone()), taken: taken.unwrap_or_default() }
    }

    /// Remembers one, in the file before it is relied on.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(super) fn add(&mut self, index: u32, before: SavedState) -> Result<()> {
        self.taken.retain(|taken| taken.index != index);
        self.taken.push(TakenInterface { index, before });
        self.write()
    }

    /// Puts back one, and forgets it.
    ///
    /// # Errors
    /// When some of it could not be put back.
    pub(super) fn give_back(&mut self, index: u32) -> Result<()> {
        let (one, others) = std::mem::take(&mut self.taken).into_iter().partition(|taken| taken.index == index);
        self.taken = others;
        let one: Vec<TakenInterface> = one;
        let outcome = one.iter().try_for_each(TakenInterface::put_back);
        self.write()?;
        outcome
    }

    /// Puts back all: what could not be, in words.
    pub(super) fn give_back_all(&mut self) -> Vec<String> {
        let mut failed = Vec::new();
        for taken in std::mem::take(&mut self.taken) {
            if let Err(error) = taken.put_back() {
                let words = rig_cli::exit::in_words(&error);
                failed.push(format!("{} could not be left as it was: {words}", taken.before.interface()));
            }
        }
        if let Err(error) = self.write() {
            failed.push(rig_cli::exit::in_words(&error));
        }
        failed
    }

    fn write(&self) -> Result<()> {
        let Some(files) = &self.files else { return Ok(()) };
        let path = files.file(BEFORE);
        let written = if self.taken.is_empty() {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            }
        } else {
            run_directory::replace(&path, &serde_json::to_vec(&self.taken)?)
        };
        written.with_context(|| format!("write {}", path.display()))
    }
}

impl TakenInterface {
    /// The interface may be gone, and another one have its name.
    fn put_back(&self) -> Result<()> {
        let netlink = Netlink::here()?;
        let is_gone = || netlink.index(self.before.interface()).ok() != Some(self.index);
        if is_gone() {
            return Ok(());
        }
        match self.before.restore(&NetNs::of_current_thread()?) {
            // It went meanwhile, and what it had with it.
            Err(_) if is_gone() => Ok(()),
            outcome => outcome,
        }
    }
}

/// Puts back what another spreader of this namespace has left, which was killed together with its guard. To be called with
/// the lock held.
pub(super) fn put_back_of_others(files: &ServiceFiles) {
    let mut kept = SavedInterfaces::recall(files);
    if kept.taken.is_empty() {
        return;
    }
    let names: Vec<&str> = kept.taken.iter().map(|taken| taken.before.interface()).collect();
    warn!("the spreader before was killed; what it had taken is put back first: {}", names.join(", "));
    for failed in kept.give_back_all() {
        error!("{failed}");
    }
}

/// A process that waits for the end of this one, and then puts back what is left.
///
/// # Errors
/// When it cannot be started.
pub(super) fn start_guard() -> Result<Child> {
    let own = std::env::current_exe().context("find this program")?;
    let mut command = Command::new(own);
    command.args(["spread", "guard"]).current_dir("/");
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    in_own_session(&mut command).spawn().context("start the process that puts interfaces back when this one is killed")
}

/// What that process does.
pub(crate) fn guard() -> Result<Exit, Failure> {
    // The other end closes with the spreader, however it ends.
    let mut nothing = Vec::new();
    io::stdin().read_to_end(&mut nothing).context("wait for the spreader").or_exit(Exit::Failed)?;
    let files = instance::files().or_exit(Exit::Failed)?;
    // The next spreader puts it back itself.
    let Ok(_lock) = files.lock(instance::taken) else { return Ok(Exit::Done) };
    let failed = SavedInterfaces::recall(&files).give_back_all();
    Ok(if failed.is_empty() { Exit::Done } else { Exit::Failed })
}
