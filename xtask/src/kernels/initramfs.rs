//! What a guest starts from: a shell and the modules by which it reaches this machine's files.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::image::{Kernel, modules_root};
use crate::command::root as project;

/// The file systems of the guest's root, and the bus that they come over.
const MODULES: [&str; 4] = ["virtio_pci", "9pnet_virtio", "9p", "overlay"];

/// The first program. Its root is this machine's, which the guest reads by 9p and writes over in memory; modules are the guest's own.
/// The project may be in a directory that is the guest's own. `/run/checks` is the directory that both see.
const INIT: &str = r#"#!/bin/busybox sh
b=/bin/busybox
$b mount -t proc proc /proc; $b mount -t sysfs sys /sys; $b mount -t devtmpfs dev /dev
for module in $($b cat /order); do $b insmod /modules/$module || $b echo "cannot load $module"; done
share() { $b mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144,$3 "$1" "$2" || $b echo "cannot mount $1"; }
share root /below cache=loose,ro
$b mount -t tmpfs -o size=60% tmpfs /above; $b mkdir /above/upper /above/work
$b mount -t overlay -o lowerdir=/below,upperdir=/above/upper,workdir=/above/work overlay /new || $b echo "cannot mount the root"
$b mkdir -p /new/lib/modules; share modules /new/lib/modules cache=loose,ro
for directory in proc sys dev; do $b mount --move /$directory /new/$directory; done
for directory in run tmp; do $b mount -t tmpfs tmpfs /new/$directory; done
project=$($b cat /project); case $project in /tmp/*|/run/*) $b mkdir -p /new$project; $b mount --bind /below$project /new$project;; esac
$b mount -t bpf bpf /new/sys/fs/bpf; $b mount -t tracefs tracefs /new/sys/kernel/tracing
$b mount -t cgroup2 cgroup /new/sys/fs/cgroup; $b mkdir -p /new/dev/pts /new/dev/shm; $b mount -t devpts devpts /new/dev/pts
$b mount -t tmpfs tmpfs /new/dev/shm
$b mkdir -p /new/run/checks; share checks /new/run/checks access=any
exec $b switch_root /new /bin/sh /run/checks/main
"#;

/// Writes the archive to `file`.
pub fn write(kernel: &Kernel, file: &Path) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let root = scratch.path();
    for directory in ["bin", "modules", "proc", "sys", "dev", "below", "above", "new"] {
        fs::create_dir(root.join(directory))?;
    }
    fs::copy("/bin/busybox", root.join("bin/busybox")).context("cannot copy /bin/busybox")?;
    let mut order = String::new();
    for module in modules(kernel)? {
        let name = module.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let content = match name.rsplit_once('.') {
            Some((_, "xz")) => output_of(Command::new("xz").arg("-dc").arg(&module))?,
            Some((_, "zst")) => output_of(Command::new("zstd").arg("-dqc").arg(&module))?,
            Some((_, "gz")) => output_of(Command::new("gzip").arg("-dc").arg(&module))?,
            _ => fs::read(&module).with_context(|| format!("cannot read {}", module.display()))?,
        };
        let name = name.split_once(".ko").map_or(&*name, |(name, _)| name);
        fs::write(root.join("modules").join(name), content)?;
        order += &format!("{name}\n");
    }
    fs::write(root.join("order"), order)?;
    fs::write(root.join("project"), project().as_os_str().as_encoded_bytes())?;
    let init = root.join("init");
    fs::write(&init, INIT)?;
    fs::set_permissions(&init, fs::Permissions::from_mode(0o755))?;
    pack(root, file)
}

/// The files of the modules that the guest needs, in the order in which they are to be loaded.
fn modules(kernel: &Kernel) -> Result<Vec<PathBuf>> {
    let mut files = Vec::<PathBuf>::new();
    let root = modules_root(&kernel.modules);
    for module in MODULES {
        let mut modprobe = Command::new("/sbin/modprobe");
        modprobe.arg("-d").arg(root).args(["-S", &kernel.release, "--show-depends", module]);
        let text = output_of(&mut modprobe)?;
        // Those that are built in are lines `builtin NAME`.
        for line in String::from_utf8_lossy(&text).lines().filter_map(|line| line.strip_prefix("insmod ")) {
            let path = PathBuf::from(line.split_whitespace().next().unwrap_or(line));
            if !files.contains(&path) {
                files.push(path);
            }
        }
    }
    Ok(files)
}

fn output_of(command: &mut Command) -> Result<Vec<u8>> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {program}"))?;
    if !output.status.success() {
        bail!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(output.stdout)
}

/// Packs the directory `root` as Linux wants it (Documentation/driver-api/early-userspace/buffer-format.rst).
fn pack(root: &Path, file: &Path) -> Result<()> {
    let archive = fs::File::create(file).with_context(|| format!("cannot write {}", file.display()))?;
    let mut cpio = Command::new("cpio");
    cpio.args(["--create", "--format=newc", "--quiet", "--owner=0:0"]).current_dir(root);
    let mut child = cpio.stdin(Stdio::piped()).stdout(archive).spawn().context("cannot start cpio")?;
    let mut names = String::new();
    list(root, Path::new(""), &mut names)?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(names.as_bytes())?;
    }
    if !child.wait()?.success() {
        bail!("cpio has failed");
    }
    Ok(())
}

fn list(root: &Path, directory: &Path, names: &mut String) -> Result<()> {
    for entry in fs::read_dir(root.join(directory))? {
        let path = directory.join(entry?.file_name());
        *names += &format!("{}\n", path.display());
        if root.join(&path).is_dir() {
            list(root, &path, names)?;
        }
    }
    Ok(())
}
