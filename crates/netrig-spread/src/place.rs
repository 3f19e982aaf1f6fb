//! Where the spreader of a network namespace is found: its socket, its lock, and what it has to put back.

use std::path::PathBuf;

use anyhow::{Context, anyhow};
use rig_cli::exit::{Exit, Failure, OrExit};
use rig_service::lock::Lock;
use rig_service::run_directory::RunDirectory;
use rig_sys::netns::NetNs;

/// Of all spreaders, in the directory of what runs.
const DIRECTORY: &str = "spread";

/// The files of the spreader of one network namespace: there is one at most, so that no interface has two.
#[derive(Debug, Clone)]
pub struct Place {
    run: RunDirectory,
    namespace: u32,
}

impl Place {
    /// Of the namespace that this process is in.
    ///
    /// # Errors
    /// Where the kernel does not tell which it is.
    pub fn here() -> anyhow::Result<Self> {
        let namespace = NetNs::of_current_thread().and_then(|here| here.inode());
        let namespace = namespace.context("find out which network namespace this is")?;
        Ok(Self { run: RunDirectory::of_machine(), namespace })
    }

    /// Requests come by this one.
    pub fn socket(&self) -> PathBuf {
        self.file("sock")
    }

    /// What interfaces had before they were taken.
    pub fn kept(&self) -> PathBuf {
        self.file("before")
    }

    /// For the one process that runs the spreader.
    pub(crate) fn lock(&self) -> Result<Lock, Failure> {
        self.run.make_below(DIRECTORY).or_exit(Exit::Lacking)?;
        Lock::take(&self.file("lock"), |process| {
            let error = anyhow!("a spreader runs in this network namespace already, as process {process}");
            Failure::new(Exit::BadInput, error)
                .with_next("give it another interface by its file and `netrig spread reload`, or end it first")
        })
    }

    pub(crate) fn is_running(&self) -> bool {
        Lock::is_held(&self.file("lock"))
    }

    fn file(&self, extension: &str) -> PathBuf {
        self.run.path().join(DIRECTORY).join(format!("net-{}.{extension}", self.namespace))
    }
}
