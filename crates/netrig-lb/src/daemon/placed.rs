//! Devices' queues on CPUs: put there, held there and put back. What a device was like before is kept in a file, because
//! the process that puts it back may be another: the control plane ended where the balancer persists, or was killed.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use rig_datapath::napi::{self, Urgency};
use rig_service::files::ServiceFiles;
use rig_service::run_directory;
use rig_sys::ethtool::{self, Offload};
use rig_sys::netns::NetNs;
use serde::{Deserialize, Serialize};

use super::keep;

/// A device as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct DeviceSettings {
    namespace: u64,
    interface: u32,
    device: String,
    threaded: String,
    gro: bool,
}

/// The devices that were changed.
#[derive(Debug)]
pub(crate) struct Placements {
    /// None where nothing outlives this process.
    path: Option<PathBuf>,
    namespace: u64,
    changed: Vec<DeviceSettings>,
}

/// What became of a device's queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QueuePlacement {
    /// The device is down and has no threads; they come when it goes up.
    Later,
    There,
    /// They were there once, and elsewhere now.
    Again,
    New,
}

impl Placements {
    /// Those of this balancer that were not put back, of this process or another.
    pub(crate) fn recall(files: &ServiceFiles) -> Self {
        let path = files.file("placed");
        let kept = fs::read(&path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        Self { path: Some(path), namespace: keep::namespace(), changed: kept.unwrap_or_default() }
    }

    /// Has the queues of a device on `cpus` in turn.
    pub(super) fn put(&mut self, device: &str, interface: u32, cpus: &[u32]) -> Result<QueuePlacement> {
        let here = NetNs::of_current_thread()?;
        let known = self.is_of(interface, device);
        // Where that cannot be told, as when the threads are being exchanged, they are put again.
        if known && napi::is_placed(&here, device, cpus).is_ok_and(|placed| placed == Some(true)) {
            return Ok(QueuePlacement::There);
        }
        if !is_up(&here, device)? {
            return Ok(QueuePlacement::Later);
        }
        if !known {
            let threaded = here.sysfs()?.read(device, "threaded")?;
            let gro = ethtool::get(&here, device, Offload::Gro)?;
            let (namespace, device) = (self.namespace, device.to_owned());
            self.changed.push(DeviceSettings { namespace, interface, device, threaded, gro });
            self.write()?;
        }
        match napi::place(&here, device, cpus, Urgency::Normal) {
            Ok(()) if known => Ok(QueuePlacement::Again),
            Ok(()) => Ok(QueuePlacement::New),
            Err(_) if !is_up(&here, device).unwrap_or(false) => Ok(QueuePlacement::Later),
            Err(error) => Err(error.into()),
        }
    }

    fn is_of(&self, interface: u32, device: &str) -> bool {
        self.changed.iter().any(|before| before.is_of(self.namespace, interface, device))
    }

    /// Puts back all devices but those of these numbers and names; false when there were none.
    pub(crate) fn undo_but(&mut self, stay: &[(u32, &str)]) -> bool {
        let namespace = self.namespace;
        // Another namespace's cannot be reached from here.
        let stays = |before: &DeviceSettings| {
            before.namespace != namespace || stay.iter().any(|(number, name)| before.is_of(namespace, *number, name))
        };
        let (stay, leave): (Vec<_>, Vec<_>) = std::mem::take(&mut self.changed).into_iter().partition(stays);
        let undone = !leave.is_empty();
        self.changed = stay;
        // What cannot be seen here is for the next one to put back.
        self.changed.extend(leave.into_iter().filter(|device| device.undo().is_err()));
        if undone {
            // What is remembered for too long is put back once more.
            let _kept = self.write();
        }
        undone
    }

    fn write(&self) -> Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let written = match self.changed.is_empty() {
            true => fs::remove_file(path),
            false => run_directory::replace(path, &serde_json::to_vec(&self.changed)?),
        };
        written.with_context(|| format!("write {}", path.display()))
    }
}

impl Default for Placements {
    fn default() -> Self {
        Self { path: None, namespace: keep::namespace(), changed: Vec::new() }
    }
}

impl DeviceSettings {
    fn is_of(&self, namespace: u64, interface: u32, device: &str) -> bool {
        (self.namespace, self.interface, self.device.as_str()) == (namespace, interface, device)
    }

    /// The device may be gone, and another one have its name.
    fn undo(&self) -> Result<()> {
        let here = NetNs::of_current_thread()?;
        let sysfs = here.sysfs()?;
        if sysfs.read(&self.device, "ifindex").ok() != Some(self.interface.to_string()) {
            return Ok(());
        }
        let _gone = sysfs.write(&self.device, "threaded", &self.threaded);
        if !self.gro {
            let _gone = ethtool::set(&here, &self.device, Offload::Gro, false);
        }
        Ok(())
    }
}

/// A device that is down has no threads.
fn is_up(here: &NetNs, device: &str) -> Result<bool> {
    const IFF_UP: u32 = 1;
    let flags = here.sysfs()?.read(device, "flags")?;
    let flags = u32::from_str_radix(flags.trim_start_matches("0x"), 16);
    Ok(flags.with_context(|| format!("read the flags of {device}"))? & IFF_UP != 0)
}
