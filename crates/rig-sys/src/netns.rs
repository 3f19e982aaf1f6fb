//! Network namespaces held by file descriptors, and user namespaces for running without root.
//!
//! A namespace lives as long as something refers to it: a process inside, or an open descriptor. [`NetNs`] is such a
//! descriptor and nothing else, so when the process that holds it ends, even by a crash, the kernel takes the namespace
//! down with every interface in it (namespaces(7)).

mod interface_settings;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;

use rustix::fs::{Dir, Mode, OFlags, openat};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, fsconfig_create, fsmount, fsopen,
    mount_change, move_mount,
};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

use crate::error::{Error, ErrorContext, Result};
use crate::socket::netns_cookie;

/// A network namespace, alive as long as this value.
#[derive(Debug)]
pub struct NetNs {
    fd: OwnedFd,
}

impl NetNs {
    /// Creates an empty namespace: nothing in it but `lo`, which is down.
    ///
    /// Needs CAP_SYS_ADMIN in the current user namespace.
    pub fn create() -> Result<Self> {
        on_new_thread(|| {
            // SAFETY: CLONE_NEWNET changes nothing that other code of this process relies on: only this thread, which
            // ends with this closure, moves, and file descriptors stay shared.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.during(|| "create a network namespace".into())?;
            Self::of_current_thread()
        })
    }

    /// By what to tell the calling thread's namespace from all others until the machine starts again: its cookie (SO_NETNS_COOKIE,
    /// kernel's net/core/sock.c). Before Linux 5.14 it is its inode number, which the kernel gives to another one once this one is gone.
    pub fn number_of_current_thread() -> Result<u64> {
        match UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).and_then(netns_cookie) {
            Ok(cookie) => Ok(cookie),
            Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => {
                Self::of_current_thread()?.inode().map(u64::from)
            }
            Err(error) => Err(error).during(|| "read a network namespace's cookie".into()),
        }
    }

    /// The namespace that the calling thread is in.
    pub fn of_current_thread() -> Result<Self> {
        Self::open("/proc/thread-self/ns/net")
    }

    /// A namespace by path, e.g. `/proc/PID/fd/N`.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let file = File::open(path).during(|| format!("open network namespace {}", path.display()))?;
        Ok(Self { fd: file.into() })
    }

    /// Moves the calling thread into this namespace for good.
    pub fn enter(&self) -> Result<()> {
        move_into_link_name_space(self.fd.as_fd(), Some(LinkNameSpaceType::Network))
            .during(|| "enter a network namespace".into())
    }

    /// Runs `work` inside the namespace, on a thread of its own: the caller's namespace never changes.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        on_new_thread(|| self.enter().map(|()| work()))
    }

    /// sysfs as seen from this namespace, without a mount point anywhere.
    pub fn sysfs(&self) -> Result<Sysfs> {
        self.run(Sysfs::open)?
    }

    /// Sets one of the namespace's own sysctls, e.g. `net.ipv4.ip_forward`.
    pub fn sysctl(&self, key: &str, value: &str) -> Result<()> {
        self.sysctls(&[(key, value)])
    }

    /// Sets several, in their order; the first that fails ends it.
    pub fn sysctls(&self, settings: &[(&str, &str)]) -> Result<()> {
        self.run(|| settings.iter().try_for_each(|(key, value)| set_sysctl(key, value)))?
    }

    /// Sets IPv4 here as a kernel starts with it: no forwarding, and the same checks of addresses and answers to ARP
    /// everywhere. A new namespace begins with what the machine is set to (net.core.devconf_inherit_init_net, kernel's
    /// Documentation/admin-guide/sysctl/net.rst), and a machine with Docker forwards.
    ///
    /// # Errors
    /// When a setting differs and the kernel does not let it be changed.
    pub fn reset_ipv4(&self) -> Result<()> {
        const CONFIGURATIONS: [&str; 3] = ["all", "default", "lo"];
        const SETTINGS: [&str; 6] =
            ["rp_filter", "accept_local", "arp_filter", "arp_ignore", "arp_announce", "proxy_arp"];
        let of = |configuration: &&str| SETTINGS.map(|setting| format!("net.ipv4.conf.{configuration}.{setting}"));
        let keys = ["net.ipv4.ip_forward".to_owned()].into_iter().chain(CONFIGURATIONS.iter().flat_map(of));
        self.run(|| {
            keys.into_iter().try_for_each(|key| match fs::read_to_string(sysctl_path(&key)) {
                Ok(value) if value.trim() != "0" => set_sysctl(&key, "0"),
                Ok(_) => Ok(()),
                Err(error) => Err(error).during(|| format!("read sysctl {key}")),
            })
        })?
    }

    /// The inode number of the namespace's file, by which the kernel knows it (namespaces(7)).
    pub fn inode(&self) -> Result<u32> {
        let number = rustix::fs::fstat(&self.fd).during(|| "look at a network namespace".into())?.st_ino;
        u32::try_from(number).map_err(std::io::Error::other).during(|| "take a namespace's inode number".into())
    }

    pub fn raw_fd(&self) -> i32 {
        self.fd.as_raw_fd()
    }

    /// Another handle of the same namespace, which keeps it alive too.
    pub fn try_clone(&self) -> Result<Self> {
        Ok(Self { fd: self.fd.try_clone().during(|| "keep a network namespace".into())? })
    }
}

fn sysctl_path(key: &str) -> String {
    format!("/proc/sys/{}", key.replace('.', "/"))
}

fn set_sysctl(key: &str, value: &str) -> Result<()> {
    fs::write(sysctl_path(key), value).during(|| format!("set sysctl {key} = {value}"))
}

impl AsFd for NetNs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A mount of sysfs that shows one network namespace's interfaces and hangs nowhere in the file tree.
#[derive(Debug)]
pub struct Sysfs {
    root: OwnedFd,
}

impl Sysfs {
    /// sysfs of the calling thread's network namespace. Needs CAP_SYS_ADMIN in the user namespaces that own the mount
    /// namespace and the network namespace, and Linux 5.2.
    fn open() -> Result<Self> {
        let mount = || -> rustix::io::Result<OwnedFd> {
            let context = fsopen("sysfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
            fsconfig_create(context.as_fd())?;
            fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
        };
        mount().map(|root| Self { root }).during(|| "mount sysfs for a network namespace".into())
    }

    /// Reads a file below `class/net/INTERFACE/`.
    pub fn read(&self, interface: &str, file: &str) -> Result<String> {
        let mut text = String::new();
        self.interface_file(interface, file, OFlags::RDONLY)?
            .read_to_string(&mut text)
            .during(|| format!("read {file} of {interface}"))?;
        Ok(text.trim_end().to_owned())
    }

    /// Writes a file below `class/net/INTERFACE/`.
    pub fn write(&self, interface: &str, file: &str, value: &str) -> Result<()> {
        self.interface_file(interface, file, OFlags::WRONLY)?
            .write_all(value.as_bytes())
            .during(|| format!("write {value} to {file} of {interface}"))
    }

    /// Names in a directory below `class/net/INTERFACE/`, of the interface's own where it is empty.
    pub fn list(&self, interface: &str, directory: &str) -> Result<Vec<String>> {
        let during = || format!("list {directory} of {interface}");
        let opened = self.interface_file(interface, directory, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut names = Vec::new();
        for entry in Dir::read_from(&opened).during(during)? {
            let name = entry.during(during)?.file_name().to_string_lossy().into_owned();
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn interface_file(&self, interface: &str, file: &str, flags: OFlags) -> Result<File> {
        // class/net/X is a symbolic link into devices/, which stays inside the mount.
        let path = format!("class/net/{interface}/{file}");
        openat(self.root.as_fd(), path.as_str(), flags | OFlags::CLOEXEC, Mode::empty())
            .map(File::from)
            .during(|| format!("open {file} of {interface}"))
    }
}

/// A procfs file that belongs to one network namespace and can be read again and again from any thread.
#[derive(Debug)]
pub struct NsFile {
    file: File,
    name: &'static str,
}

impl NsFile {
    /// Opens `/proc/thread-self/net/NAME` of the calling thread's namespace, which takes no privileges: entering a
    /// namespace does, even the one that the thread is in (setns(2)).
    pub fn here(name: &'static str) -> Result<Self> {
        let path = format!("/proc/thread-self/net/{name}");
        let file = File::open(&path).during(|| format!("open {path}"))?;
        Ok(Self { file, name })
    }

    /// The file's whole content as it is now.
    pub fn read(&self, into: &mut String) -> Result<()> {
        let mut bytes = std::mem::take(into).into_bytes();
        bytes.clear();
        let mut chunk = [0u8; 16 * 1024];
        loop {
            let n =
                self.file.read_at(&mut chunk, bytes.len() as u64).during(|| format!("read /proc/net/{}", self.name))?;
            if n == 0 {
                break;
            }
            bytes.extend_from_slice(&chunk[..n]);
        }
        *into =
            String::from_utf8(bytes).map_err(io::Error::other).during(|| format!("read /proc/net/{}", self.name))?;
        Ok(())
    }
}

/// Makes the calling process root of a new user namespace with a mount namespace of its own, so that it may create
/// network namespaces without being root (user_namespaces(7)).
///
/// The process must have a single thread: the kernel refuses otherwise.
pub fn enter_user_namespace() -> Result<()> {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    // SAFETY: the kernel refuses CLONE_NEWUSER for processes with several threads, so no other code runs; neither flag
    // touches file descriptors or memory.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNS) }
        .during(|| "create a user namespace".into())?;
    let write = |file: &str, value: String| {
        let path = format!("/proc/self/{file}");
        OpenOptions::new()
            .write(true)
            .open(&path)
            .and_then(|mut f| f.write_all(value.as_bytes()))
            .during(|| format!("write {path}"))
    };
    // The kernel lets an unprivileged process map groups only after it gave up setgroups(2).
    write("setgroups", "deny".into())?;
    write("uid_map", format!("0 {uid} 1"))?;
    write("gid_map", format!("0 {gid} 1"))
}

/// Joins the user and mount namespaces of another process of the same user. The calling process must have one thread.
pub fn join_user_namespace(pid: u32) -> Result<()> {
    for (name, kind) in [("user", LinkNameSpaceType::User), ("mnt", LinkNameSpaceType::Mount)] {
        let path = format!("/proc/{pid}/ns/{name}");
        let file = File::open(&path).during(|| format!("open {path}"))?;
        move_into_link_name_space(file.as_fd(), Some(kind)).during(|| format!("enter {path}"))?;
    }
    Ok(())
}

/// True when the process may create and configure network namespaces as it is: it has CAP_SYS_ADMIN and CAP_NET_ADMIN
/// (capabilities(7)). Starts no thread, so [`enter_user_namespace`] can follow.
pub fn may_create_namespaces() -> bool {
    const NEEDED: u64 = 1 << 21 | 1 << 12;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    effective.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & NEEDED == NEEDED)
}

/// Shows the interfaces of the current network namespace below /sys, for the calling process and its children alone, as
/// `ip netns exec` does. The calling process must have one thread.
pub fn remount_sysfs() -> Result<()> {
    // SAFETY: with one thread, nothing else relies on the shared mount namespace; descriptors stay as they are.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.during(|| "create a mount namespace".into())?;
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)
        .during(|| "keep mounts to this process".into())?;
    show_sysfs()
}

/// Mounts the sysfs of the calling thread's network namespace over /sys, in its mount namespace.
pub(crate) fn show_sysfs() -> Result<()> {
    let sysfs = Sysfs::open()?;
    move_mount(sysfs.root.as_fd(), "", rustix::fs::CWD, "/sys", MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
        .during(|| "mount sysfs on /sys".into())
}

/// Runs `work` on a thread of its own and hands its panic on.
fn on_new_thread<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("netns".into()).spawn_scoped(scope, work);
        match thread {
            Err(error) => Err(Error::new("start a thread", error)),
            Ok(handle) => handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
        }
    })
}
