//! Where one service of the machine is found, and where it keeps what outlives its process.

use std::fs;
use std::path::{Path, PathBuf};

use rig_cli::exit::{Exit, ExitContext, Failure};
use rig_lines::Protocol;
use sha2::{Digest, Sha256};

use crate::bpf_file_system;
use crate::lock::Lock;
use crate::protocol::{LONGEST, VERSION};
use crate::run_directory::RunDirectory;

/// A kind of service, by the names that it has for programs.
#[derive(Debug, PartialEq, Eq)]
pub struct ServiceKind {
    /// Of what is said to it.
    pub protocol: &'static str,
    /// In the run directory, of all services of this kind.
    pub directory: &'static str,
    /// On the bpf file system, of those of the machine's own run directory.
    pub pins: &'static str,
}

impl ServiceKind {
    /// As this version speaks it.
    pub fn protocol(&self) -> Protocol {
        Protocol { name: self.protocol, version: VERSION, longest: LONGEST }
    }
}

/// The files of one service. Two of the same kind and name are the same service where they have the same run directory, and share
/// nothing otherwise.
#[derive(Debug, Clone)]
pub struct ServiceFiles {
    run: RunDirectory,
    kind: &'static ServiceKind,
    instance: String,
}

const LOCK: &str = "lock";

impl ServiceFiles {
    /// Of the machine, or of what `$NETRIG_RUN` names.
    pub fn new(kind: &'static ServiceKind, instance: impl Into<String>) -> Self {
        Self { run: RunDirectory::of_machine(), kind, instance: instance.into() }
    }

    pub(crate) fn kind(&self) -> &'static ServiceKind {
        self.kind
    }

    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// Requests come by this one.
    pub fn socket(&self) -> PathBuf {
        self.file("sock")
    }

    /// The configuration in force of a service that persists.
    pub fn configuration(&self) -> PathBuf {
        self.file("toml")
    }

    /// Something of the service's own, by its extension.
    pub fn file(&self, extension: &str) -> PathBuf {
        self.run.path().join(self.kind.directory).join(format!("{}.{extension}", self.instance))
    }

    /// For the one process that runs the service; `taken` says what is wrong where another one does, whose number it is given.
    ///
    /// # Errors
    /// As `taken` says, and when there can be no such file.
    pub fn lock(&self, taken: impl FnOnce(&str) -> Failure) -> Result<Lock, Failure> {
        self.run.make_below(self.kind.directory).or_exit(Exit::Lacking)?;
        Lock::take(&self.lock_file(), taken)
    }

    pub fn lock_file(&self) -> PathBuf {
        self.file(LOCK)
    }

    pub fn is_running(&self) -> bool {
        Lock::is_held(&self.lock_file())
    }

    /// Services of a kind that run, by name.
    pub fn running(kind: &'static ServiceKind) -> Vec<String> {
        let directory = RunDirectory::of_machine().path().join(kind.directory);
        let Ok(files) = fs::read_dir(directory) else { return Vec::new() };
        let instance = |file: fs::DirEntry| {
            let instance = file.file_name().to_str()?.strip_suffix(&format!(".{LOCK}"))?.to_owned();
            Lock::is_held(&file.path()).then_some(instance)
        };
        let mut instances: Vec<String> = files.filter_map(|file| instance(file.ok()?)).collect();
        instances.sort();
        instances
    }

    /// The directory of what is pinned of a service that persists. A service of another run directory than the machine's has a
    /// directory that is named by that one, too: the bpf file system is one for all of them.
    pub fn pins(&self) -> PathBuf {
        let kind = self.kind.pins;
        let directory = match self.run.is_of_machine() {
            true => kind.to_owned(),
            false => format!("{kind}-{}", digest(&self.run.resolved())),
        };
        Path::new(bpf_file_system::ROOT).join(directory).join(&self.instance)
    }
}

/// Of a path: the same in each process and version, and short, because names on a bpf file system have no dots and no slashes.
fn digest(path: &Path) -> String {
    let digest = Sha256::digest(path.as_os_str().as_encoded_bytes());
    digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
impl ServiceFiles {
    pub(crate) fn at(run: &Path, kind: &'static ServiceKind, instance: &str) -> Self {
        Self { run: RunDirectory::at(run), kind, instance: instance.to_owned() }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const BALANCER: ServiceKind = ServiceKind { protocol: "netrig-lb", directory: "lb", pins: "netrig" };

    fn pins(run: &Path) -> PathBuf {
        ServiceFiles::at(run, &BALANCER, "lb").pins()
    }

    #[test]
    fn what_is_pinned_follows_the_run_directory() {
        // What a version before has left there is gone on with.
        for machine in ["/run/netrig", "/run/netrig/", "/run/../run/netrig"] {
            assert_eq!(pins(Path::new(machine)), Path::new("/sys/fs/bpf/netrig/lb"));
        }
        // It is read by another version, too.
        let other = pins(Path::new("/nonexistent/netrig"));
        assert_eq!(other, Path::new("/sys/fs/bpf/netrig-da07a55f5b0c0028/lb"));
        let home = tempfile::tempdir().unwrap();
        let [one, two, link] = ["one", "two", "link"].map(|name| home.path().join(name));
        assert_ne!(pins(&one), pins(&two));
        let before = pins(&one);
        fs::create_dir(&one).unwrap();
        symlink(&one, &link).unwrap();
        assert_eq!([pins(&one), pins(&link)], [before.clone(), before]);
    }
}
