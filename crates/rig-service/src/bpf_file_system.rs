//! The file system that eBPF programs and tables are kept on (bpf(2), BPF_OBJ_PIN).

use std::path::Path;
use std::{fs, io};

use anyhow::{Context, anyhow};

use rig_cli::exit::{Exit, ExitContext, Failure};

/// Where it is mounted.
pub const ROOT: &str = "/sys/fs/bpf";
/// linux/magic.h, `BPF_FS_MAGIC`.
const MAGIC: u32 = 0xcafe_4a11;

/// Mounts one where there is none, and says so. `command` is what wants it, for who has to enter it otherwise.
pub fn have(command: &str) -> Result<Option<String>, Failure> {
    let kind = rustix::fs::statfs(ROOT).map_err(io::Error::from);
    let kind = kind.with_context(|| format!("look at {ROOT}: is sysfs mounted?")).or_exit(Exit::Lacking)?;
    if kind.f_type as u32 == MAGIC {
        return Ok(None);
    }
    if mounts_are_its_own() {
        return Err(Failure::new(
            Exit::Lacking,
            anyhow!(
                "--persist needs a bpf file system, there is none at {ROOT}, and this process has mounts of its own, as \
                 `ip netns exec` gives it: what is mounted there would end with it. Enter the network namespace alone: \
                 nsenter --net=/run/netns/NAME {command} ..."
            ),
        ));
    }
    let flags =
        rustix::mount::MountFlags::NOSUID | rustix::mount::MountFlags::NODEV | rustix::mount::MountFlags::NOEXEC;
    let mounted = rustix::mount::mount("bpf", Path::new(ROOT), "bpf", flags, Some(c"mode=0700"));
    mounted
        .map_err(io::Error::from)
        .with_context(|| format!("mount a bpf file system at {ROOT}"))
        .or_exit(Exit::Lacking)?;
    Ok(Some(format!("mounted a bpf file system at {ROOT}")))
}

/// Takes away what is left of the pins of a service that were removed: the directory of its run directory, where
/// no other service has something in it.
pub fn leave(pins: &Path) {
    if let Some(directory) = pins.parent().filter(|directory| *directory != Path::new(ROOT)) {
        // Another service's pins are in it.
        let _kept = fs::remove_dir(directory);
    }
}

/// Whether what this process mounts goes with it and what it has started: one of those that have started it has other
/// mounts. Which ones may be looked at is up to the machine, the first process often may not.
fn mounts_are_its_own() -> bool {
    let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
    let parent = |process: &String| {
        let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        Some(status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().to_owned())
    };
    let own = namespace("self");
    let ancestors = std::iter::successors(Some("self".to_owned()), parent);
    ancestors.filter_map(|process| namespace(&process)).any(|other| Some(other) != own)
}
