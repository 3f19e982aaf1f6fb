//! Docker's networks that are of this driver. Docker tells of them once, when they are made, and knows them as long as its own files are there:
//! so they are kept on disk, where a restart of the machine leaves them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder};
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, anyhow};
use ipnet::IpNet;
use rig_cli::exit::{Exit, ExitContext, Failure};
use rig_service::lock::Lock;
use rig_service::run_directory;
use serde::{Deserialize, Serialize};

/// A network of Docker's, as it was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DockerNetwork {
    /// The router's virtual network.
    pub(super) network: String,
    pub(super) security_groups: BTreeSet<String>,
    pub(super) mtu: Option<u16>,
    /// The router's, one of each family that the network has at most.
    pub(super) gateways: BTreeSet<IpAddr>,
    pub(super) routes: Vec<IpNet>,
    pub(super) gateway_bridge: bool,
    pub(super) internal: bool,
}

impl DockerNetwork {
    pub(super) fn gateway(&self, is_ipv4: bool) -> Option<IpAddr> {
        self.gateways.iter().copied().find(|gateway| gateway.is_ipv4() == is_ipv4)
    }
}

type Networks = BTreeMap<String, DockerNetwork>;

/// The networks by Docker's identifiers, in memory and in a file.
#[derive(Debug)]
pub(super) struct NetworkStore {
    path: PathBuf,
    networks: Mutex<Networks>,
    /// Of the file.
    _lock: Lock,
}

impl NetworkStore {
    /// # Errors
    /// When another process has the file, or it cannot be read or written.
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.with_context(|| format!("make {}", folder.display())).or_exit(Exit::Lacking)?;
        let lock = Lock::take(&path.with_extension("lock"), |process| {
            let what = anyhow!("process {process} has the networks of {}", path.display());
            Failure::new(Exit::BadInput, what).with_next("end it first, or name another file with --state")
        })?;
        let networks = match fs::read(path) {
            Ok(text) => serde_json::from_slice(&text).map_err(|error| {
                let what = anyhow!("networks of Docker cannot be read of {}: {error}", path.display());
                Failure::new(Exit::Failed, what)
                    .with_next("remove the file, and in Docker the networks of this driver, which are then made anew")
            })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Networks::new(),
            Err(error) => return Err(error).with_context(|| format!("read {}", path.display())).or_exit(Exit::Failed),
        };
        Ok(Self { path: path.to_owned(), networks: Mutex::new(networks), _lock: lock })
    }

    fn hold(&self) -> MutexGuard<'_, Networks> {
        self.networks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, id: &str) -> Option<DockerNetwork> {
        self.hold().get(id).cloned()
    }

    pub(super) fn len(&self) -> usize {
        self.hold().len()
    }

    /// # Errors
    /// When it cannot be written, or there is another one of this identifier. All is as it was then.
    pub(super) fn add(&self, id: &str, network: DockerNetwork) -> anyhow::Result<()> {
        let mut held = self.hold();
        match held.get(id) {
            Some(other) if *other == network => return Ok(()),
            Some(_) => return Err(anyhow!("there is a network {id} already, and another one")),
            None => {}
        }
        let mut networks = held.clone();
        networks.insert(id.to_owned(), network);
        self.write(&networks)?;
        *held = networks;
        Ok(())
    }

    /// Nothing, where it is not there.
    ///
    /// # Errors
    /// When that cannot be written.
    pub(super) fn remove(&self, id: &str) -> anyhow::Result<()> {
        let mut held = self.hold();
        let mut networks = held.clone();
        if networks.remove(id).is_some() {
            self.write(&networks)?;
            *held = networks;
        }
        Ok(())
    }

    fn write(&self, networks: &Networks) -> anyhow::Result<()> {
        let how = || format!("write to {}", self.path.display());
        let text = serde_json::to_vec_pretty(networks)?;
        run_directory::replace_durably(&self.path, &text).with_context(how)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::*;

    fn network(name: &str) -> DockerNetwork {
        DockerNetwork {
            network: name.to_owned(),
            security_groups: ["web".to_owned()].into(),
            mtu: Some(1400),
            gateways: ["10.1.0.1".parse().unwrap(), "fd00:1::1".parse().unwrap()].into(),
            routes: vec!["10.2.0.0/16".parse().unwrap()],
            gateway_bridge: true,
            internal: false,
        }
    }

    #[test]
    fn networks_are_there_again_and_one_process_has_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state/a.json");
        let store = NetworkStore::open(&path).unwrap();
        store.add("1", network("red")).unwrap();
        store.add("1", network("red")).unwrap();
        assert!(store.add("1", network("blue")).unwrap_err().to_string().contains("another one"));
        store.add("2", network("blue")).unwrap();
        store.remove("2").unwrap();
        store.remove("2").unwrap();
        let other = NetworkStore::open(&path).unwrap_err();
        assert!(other.to_string().contains("has the networks of"), "{other}");
        drop(store);
        let store = NetworkStore::open(&path).unwrap();
        assert_eq!((store.len(), store.get("1"), store.get("2")), (1, Some(network("red")), None));
        assert_eq!(network("red").gateway(false), Some("fd00:1::1".parse().unwrap()));
        drop(store);
        fs::write(&path, "nonsense").unwrap();
        let error = NetworkStore::open(&path).unwrap_err();
        assert!(error.to_string().contains("cannot be read") && error.next.is_some(), "{error}");
    }
}
