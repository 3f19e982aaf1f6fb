//! A mount namespace in which some folders are a process's own.

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::Path;

use rustix::fs::{Mode, OFlags, open};
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive, mount_change, unmount,
};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::error::{ErrorContext, Result};
use crate::netns::show_sysfs;

/// Gives the calling thread, and those and the processes that it starts from now on, a mount namespace in which these folders are empty and
/// its own, and in which /sys shows the interfaces of its network namespace. What it does there is gone with the last of them.
///
/// # Errors
/// When the kernel refuses a mount.
pub fn enter_with_own(folders: &[&Path]) -> Result<()> {
    // SAFETY: only the calling thread moves, and its view of files is what it asks for; descriptors stay as they are.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.during(|| "create a mount namespace".into())?;
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)
        .during(|| "keep mounts to this process".into())?;
    folders.iter().try_for_each(|folder| own(folder))?;
    show_sysfs()
}

/// Has a network namespace be at a path, where programs look for it by name.
///
/// # Errors
/// When the path cannot be made, or the namespace is none.
pub fn show_namespace(namespace: &Path, at: &Path) -> Result<()> {
    let during = || format!("show a network namespace at {}", at.display());
    if let Some(folder) = at.parent() {
        fs::create_dir_all(folder).during(during)?;
    }
    fs::File::create(at).during(during)?;
    mount_bind(namespace, at).during(during)
}

/// Undoes [`show_namespace`].
///
/// # Errors
/// When there is none at the path.
pub fn hide_namespace(at: &Path) -> Result<()> {
    let during = || format!("hide the network namespace at {}", at.display());
    unmount(at, UnmountFlags::DETACH).during(during)?;
    fs::remove_file(at).during(during)
}

/// An empty folder in place of what is there. One that is not there is made without a trace elsewhere: all else of the folder that it is in
/// is shown as it was.
fn own(folder: &Path) -> Result<()> {
    let during = || format!("give this process its own {}", folder.display());
    if folder.is_dir() {
        return empty(folder).during(during);
    }
    let Some(above) = folder.ancestors().skip(1).find(|above| above.is_dir()) else { return Ok(()) };
    let before = open(above, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).during(during)?;
    let listed: Vec<_> = fs::read_dir(above).during(during)?.collect::<std::io::Result<_>>().during(during)?;
    empty(above).during(during)?;
    let before = format!("/proc/thread-self/fd/{}", before.as_raw_fd());
    for entry in listed {
        let (from, to) = (Path::new(&before).join(entry.file_name()), above.join(entry.file_name()));
        let kind = entry.file_type().during(during)?;
        if kind.is_symlink() {
            symlink(fs::read_link(&from).during(during)?, &to).during(during)?;
        } else if kind.is_dir() {
            fs::create_dir(&to).during(during)?;
            mount_bind_recursive(&from, &to).during(during)?;
        } else if !kind.is_fifo() {
            fs::File::create(&to).during(during)?;
            mount_bind(&from, &to).during(during)?;
        }
    }
    fs::create_dir_all(folder).during(during)
}

fn empty(folder: &Path) -> rustix::io::Result<()> {
    mount("netrig", folder, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, Some(c"mode=755"))
}

#[cfg(test)]
mod tests {
    use std::thread;

    use rig_skip::Lack;

    use super::*;

    #[test]
    fn what_is_written_into_own_folders_is_seen_by_nobody_else() {
        let outer = tempfile::tempdir().unwrap();
        let (there, absent) = (outer.path().join("there"), outer.path().join("lib/absent/deeper"));
        fs::create_dir_all(&there).unwrap();
        fs::create_dir_all(outer.path().join("lib/other")).unwrap();
        fs::write(outer.path().join("lib/file"), "text").unwrap();
        fs::write(there.join("old"), "old").unwrap();
        symlink("file", outer.path().join("lib/link")).unwrap();
        let lib = outer.path().join("lib");
        let inside = thread::scope(|scope| {
            let work = || -> Result<()> {
                enter_with_own(&[&there, &absent])?;
                assert!(fs::read_dir(&there).unwrap().next().is_none());
                fs::write(there.join("new"), "new").unwrap();
                fs::write(absent.join("new"), "new").unwrap();
                assert_eq!(fs::read_to_string(lib.join("link")).unwrap(), "text");
                fs::write(lib.join("other/kept"), "kept").unwrap();
                let at = there.join("ns/one");
                show_namespace(Path::new("/proc/thread-self/ns/net"), &at)?;
                hide_namespace(&at)?;
                assert!(!at.exists());
                Ok(())
            };
            scope.spawn(work).join().unwrap()
        });
        match inside {
            Err(error) if error.is_permission() => rig_skip::skip(Lack::Namespaces, error),
            inside => inside.unwrap(),
        }
        assert!(!absent.exists() && !lib.join("absent").exists());
        assert!(there.join("old").exists() && !there.join("new").exists());
        // What is no folder of its own is as it is elsewhere.
        assert!(lib.join("other/kept").exists());
    }
}
