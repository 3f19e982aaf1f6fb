//! Testbeds that stay up for trying things by hand.
//!
//! A *holder* process keeps the namespaces open; a small file tells other netrig processes which process that is and
//! which of its descriptors is which namespace. When the holder ends, also when it is killed, the testbed is gone: a file
//! that is left then is recognised by the process's start time and removed.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rig_service::run_directory::{self, RunDirectory, RunDirectoryError};
use rig_sys::cpu::CpuSet;
use rig_sys::netns::{self, NetNs};
use rig_sys::process;
use serde::{Deserialize, Serialize};

use super::Testbed;
use super::topology::check_name;

/// Where the calling user's testbeds are written down.
#[derive(Debug)]
pub struct TestbedRegistry {
    directory: PathBuf,
}

/// A testbed that a holder keeps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeldTestbed {
    pub name: String,
    /// `SUITE/SCENARIO` it was built from.
    pub origin: String,
    pub pid: u32,
    /// Start time of the holder, so that its number cannot be mistaken for a later process's.
    start_time: u64,
    /// The holder lives in a user namespace that must be entered first.
    rootless: bool,
    #[serde(rename = "places")]
    pub namespaces: Vec<HeldNamespace>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeldNamespace {
    /// `node` or `node/container`.
    pub name: String,
    /// Descriptor of the namespace in the holder.
    fd: i32,
    /// The CPUs of the place's node, as a CPU list.
    pub cpus: String,
    pub address: Option<String>,
}

/// A testbed of this name stands already.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("testbed '{0}' is up already: take it down with `netrig down {0}`, or choose another --name")]
pub struct NameTaken(pub String);

impl TestbedRegistry {
    /// The calling user's registry. To be opened before a user namespace is entered, in which every user is root.
    pub fn open() -> Result<Self, RunDirectoryError> {
        let directory = RunDirectory::of_user().make()?.to_owned();
        Ok(Self { directory })
    }

    /// As [`Self::open`], for a testbed that will be written down: what stands in the way is known before it is built.
    pub fn open_to_write() -> Result<Self, RunDirectoryError> {
        let directory = RunDirectory::of_user().make_to_write()?.to_owned();
        Ok(Self { directory })
    }

    /// Writes down what the calling process holds. The file appears whole or not at all.
    pub fn publish(&self, name: &str, origin: &str, rootless: bool, testbed: &Testbed<'_>) -> Result<()> {
        let pid = std::process::id();
        let mut namespaces = Vec::new();
        for node in &testbed.plan().nodes {
            for space in &node.spaces {
                let namespace = testbed.namespace(&space.name)?;
                namespaces.push(HeldNamespace {
                    name: namespace.name.clone(),
                    fd: namespace.ns.raw_fd(),
                    cpus: node.cpus.to_string(),
                    address: testbed.address(&namespace.name.parse()?).map(|a| a.to_string()),
                });
            }
        }
        let start_time = process::start_time(pid).context("read the holder's start time")?;
        let kept = HeldTestbed { name: name.into(), origin: origin.into(), pid, start_time, rootless, namespaces };
        let path = self.file(name)?;
        let _lock = self.lock()?;
        if read(&path)?.is_some() {
            return Err(NameTaken(name.to_owned()).into());
        }
        run_directory::replace(&path, serde_json::to_string(&kept)?.as_bytes()).context("write down the testbed")?;
        Ok(())
    }

    /// Forgets what the calling process holds and has published.
    ///
    /// # Errors
    /// When the file cannot be removed.
    pub fn withdraw(&self, name: &str) -> Result<()> {
        let path = self.file(name)?;
        let _lock = self.lock()?;
        fs::remove_file(&path).with_context(|| format!("remove {}", path.display()))
    }

    /// All testbeds of this user that stand, by name.
    pub fn list(&self) -> Result<Vec<HeldTestbed>> {
        let _lock = self.lock()?;
        let mut all = Vec::new();
        for entry in fs::read_dir(&self.directory).context("read the list of testbeds")? {
            let path = entry.context("read the list of testbeds")?.path();
            if path.extension().is_some_and(|e| e == "json") {
                all.extend(read(&path)?);
            }
        }
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(all)
    }

    /// The testbed of this name, if it stands.
    pub fn find(&self, name: &str) -> Result<Option<HeldTestbed>> {
        let path = self.file(name)?;
        let _lock = self.lock()?;
        read(&path)
    }

    /// Ends the holder, and with it everything the testbed consists of.
    pub fn take_down(&self, kept: &HeldTestbed) -> Result<()> {
        process::kill_started(kept.pid, kept.start_time)
            .with_context(|| format!("end the holder of testbed '{}'", kept.name))?;
        let deadline = Instant::now() + Duration::from_secs(5);
        while kept.stands() {
            if Instant::now() > deadline {
                bail!("process {} that holds testbed '{}' does not end", kept.pid, kept.name);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        // By now the name may be another testbed's: `find` removes its file only if that testbed's holder has ended.
        self.find(&kept.name).map(|_| ())
    }

    /// Keeps other netrig processes from writing here, or from forgetting what does not stand, as long as the value
    /// lives.
    fn lock(&self) -> Result<File> {
        let directory = File::open(&self.directory);
        directory
            .and_then(|directory| directory.lock().map(|()| directory))
            .with_context(|| format!("lock {}", self.directory.display()))
    }

    fn file(&self, name: &str) -> Result<PathBuf> {
        check_name(name)?;
        Ok(self.directory.join(format!("{name}.json")))
    }
}

impl HeldTestbed {
    fn stands(&self) -> bool {
        process::start_time(self.pid) == Some(self.start_time)
    }

    /// A place by name.
    pub fn namespace(&self, name: &str) -> Option<&HeldNamespace> {
        self.namespaces.iter().find(|namespace| namespace.name == name)
    }

    /// Moves the calling process, which must have one thread, into `namespace` and onto its node's CPUs.
    pub fn enter(&self, namespace: &HeldNamespace) -> Result<()> {
        if self.rootless {
            netns::join_user_namespace(self.pid)?;
        }
        NetNs::open(format!("/proc/{}/fd/{}", self.pid, namespace.fd))?.enter()?;
        // Tools that look below /sys are a convenience; where it may not be mounted, netlink tools still work.
        let _ = netns::remount_sysfs();
        namespace.cpus.parse::<CpuSet>()?.apply()?;
        Ok(())
    }
}

/// Reads one file; removes it when its holder is gone. The registry must be locked, or what is removed may be another's.
fn read(path: &Path) -> Result<Option<HeldTestbed>> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text.with_context(|| format!("read {}", path.display()))?,
    };
    let kept: HeldTestbed =
        serde_json::from_str(&text).with_context(|| format!("{} is not netrig's: move it away", path.display()))?;
    if kept.stands() {
        return Ok(Some(kept));
    }
    fs::remove_file(path).with_context(|| format!("remove {}", path.display()))?;
    Ok(None)
}
