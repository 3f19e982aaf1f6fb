//! A bpf file system that hangs nowhere in the file tree: what is pinned there goes with the test, however it ends.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;

use rig_skip::{Lack, skip};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

pub struct Pins(OwnedFd);

impl Pins {
    pub fn mount() -> Option<Self> {
        let mount = || -> rustix::io::Result<OwnedFd> {
            let context = fsopen("bpf", FsOpenFlags::FSOPEN_CLOEXEC)?;
            fsconfig_create(context.as_fd())?;
            fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
        };
        match mount() {
            Ok(root) => Some(Self(root)),
            Err(error) => {
                skip(Lack::BpfFs, error);
                None
            }
        }
    }

    /// Also for other processes, as long as this one lives.
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd()).into()
    }
}
