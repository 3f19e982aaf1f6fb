//! A mount namespace in which some folders are a process's own.

use std::ffi::OsString;
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive, mount_change,
    mount_remount, unmount,
};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::error::{ErrorContext, Result};
use crate::netns::show_sysfs;

/// What stays writable: there are no files of the machine's in it, and the kernel's own settings of a network namespace are.
const WRITABLE: [&str; 3] = ["/proc", "/sys", "/dev"];

/// Gives the calling thread, and those and the processes that it starts from now on, a mount namespace in which these folders are empty and
/// its own, no other file can be written, and /sys shows the interfaces of its network namespace. What is to be `shown` although it is below
/// one of them is there as before. What it does there is gone with the last of them.
///
/// # Errors
/// When the kernel refuses a mount.
pub fn enter_with_own(folders: &[&Path], shown: &[&Path]) -> Result<()> {
    // SAFETY: only the calling thread moves, and its view of files is what it asks for; descriptors stay as they are.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.during(|| "create a mount namespace".into())?;
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)
        .during(|| "keep mounts to this process".into())?;
    make_read_only()?;
    let shown: Vec<_> = shown.iter().filter_map(|at| open_folder(at).transpose()).collect::<Result<_>>()?;
    folders.iter().try_for_each(|folder| own(folder))?;
    // It has nothing mounted on it: cgroups are seen by who asks for them.
    show_sysfs()?;
    for (at, folder) in shown {
        let during = || format!("show {} again", at.display());
        fs::create_dir_all(at).during(during)?;
        mount_bind_recursive(format!("/proc/thread-self/fd/{}", folder.as_raw_fd()), at).during(during)?;
    }
    Ok(())
}

/// A folder with its path, where there is one.
fn open_folder(at: &Path) -> Result<Option<(&Path, OwnedFd)>> {
    match open(at, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()) {
        Ok(folder) => Ok(Some((at, folder))),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error).during(|| format!("open {}", at.display())),
    }
}

/// Mount by mount: mount_setattr(2), which takes all at once, came with Linux 5.12.
fn make_read_only() -> Result<()> {
    let file = "/proc/thread-self/mountinfo";
    let mounts = fs::read_to_string(file).during(|| format!("read {file}"))?;
    for (at, flags) in mounts.lines().filter_map(mount_of) {
        if WRITABLE.iter().any(|folder| at.starts_with(folder)) {
            continue;
        }
        let flags = flags | MountFlags::BIND | MountFlags::RDONLY;
        match mount_remount(&at, flags, "") {
            // Another mount covers it.
            Ok(()) | Err(Errno::INVAL | Errno::NOENT | Errno::NOTDIR) => {}
            Err(error) => return Err(error).during(|| format!("make {} read-only", at.display())),
        }
    }
    Ok(())
}

/// Where a mount is and with which flags, from a line of mountinfo (proc_pid_mountinfo(5)).
fn mount_of(line: &str) -> Option<(PathBuf, MountFlags)> {
    let mut fields = line.split(' ').skip(4);
    let (at, options) = (fields.next()?, fields.next()?);
    // Flags that are not said again go.
    let flag = |option: &str| match option {
        "nosuid" => MountFlags::NOSUID,
        "nodev" => MountFlags::NODEV,
        "noexec" => MountFlags::NOEXEC,
        "noatime" => MountFlags::NOATIME,
        "nodiratime" => MountFlags::NODIRATIME,
        "relatime" => MountFlags::RELATIME,
        _ => MountFlags::empty(),
    };
    let flags = options.split(',').map(flag).fold(MountFlags::empty(), |all, flag| all | flag);
    Some((PathBuf::from(OsString::from_vec(without_escapes(at.as_bytes()))), flags))
}

/// Blanks, tabs, line ends and backslashes are written as three octal digits behind a backslash.
fn without_escapes(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        match rest {
            [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..] => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = after;
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    bytes
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

/// Has /proc show this process's namespace of processes, by whose numbers programs find themselves.
///
/// # Errors
/// When the kernel refuses, as in a container that hides parts of /proc.
pub fn show_own_processes() -> Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", flags, None).during(|| "show the processes of this namespace in /proc".into())
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
        if to == folder {
            // A link that leads nowhere.
            continue;
        }
        match show(&from, &to, entry.file_type()) {
            // Others go on meanwhile: it has been renamed or removed since.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            shown => shown.during(during)?,
        }
    }
    fs::create_dir_all(folder).during(during)
}

/// Has what is at one path be at another, which is not there.
fn show(from: &Path, to: &Path, kind: std::io::Result<fs::FileType>) -> std::io::Result<()> {
    let kind = kind?;
    if kind.is_symlink() {
        symlink(fs::read_link(from)?, to)?;
    } else if kind.is_dir() {
        fs::create_dir(to)?;
        mount_bind_recursive(from, to)?;
    } else if !kind.is_fifo() {
        fs::File::create(to)?;
        mount_bind(from, to)?;
    }
    Ok(())
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
        fs::create_dir(there.join("bin")).unwrap();
        fs::write(there.join("bin/program"), "text").unwrap();
        symlink("file", outer.path().join("lib/link")).unwrap();
        let lib = outer.path().join("lib");
        let inside = thread::scope(|scope| {
            let work = || -> Result<()> {
                enter_with_own(&[&there, &absent], &[&there.join("bin"), &there.join("gone")])?;
                let left: Vec<_> = fs::read_dir(&there).unwrap().map(|entry| entry.unwrap().file_name()).collect();
                assert_eq!(left, ["bin"]);
                assert_eq!(fs::read_to_string(there.join("bin/program")).unwrap(), "text");
                fs::write(there.join("new"), "new").unwrap();
                fs::write(absent.join("new"), "new").unwrap();
                assert_eq!(fs::read_to_string(lib.join("link")).unwrap(), "text");
                let refused = fs::write(lib.join("other/new"), "new").unwrap_err();
                assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
                let refused = fs::write(outer.path().join("new"), "new").unwrap_err();
                assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
                // A network namespace's settings are below it.
                fs::write("/proc/thread-self/comm", "own").unwrap();
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
        fs::write(lib.join("other/new"), "new").unwrap();
    }

    #[test]
    fn mounts_are_read_with_their_flags() {
        let line = "36 35 98:0 /mnt1 /a\\040b\\134c rw,noatime,nosuid master:1 - ext3 /dev/root rw,errors=continue";
        let expected = (PathBuf::from("/a b\\c"), MountFlags::NOATIME | MountFlags::NOSUID);
        assert_eq!(mount_of(line), Some(expected));
        assert_eq!(mount_of("36 35"), None);
    }
}
