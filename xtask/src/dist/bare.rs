//! The binary where there is nothing else: a root file system with it, the kernel's own file systems, and no library, shell or
//! name.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::command::{is_root, run, target};

/// In namespaces of its own, so that nothing is left of the mounts.
const INSIDE: &str = "set -e
mount -t tmpfs tmpfs \"$1\"
mkdir -p \"$1/proc\" \"$1/sys\" \"$1/dev\" \"$1/tmp\"
cp \"$0\" \"$1/netrig\"
mount -t proc proc \"$1/proc\"
mount --rbind /sys \"$1/sys\"
mount --rbind /dev \"$1/dev\"
find \"$1\" -xdev -type f
export HOME=/tmp PATH=
/usr/sbin/chroot \"$1\" /netrig --version
/usr/sbin/chroot \"$1\" /netrig show layers >/dev/null
/usr/sbin/chroot \"$1\" /netrig run layers --quick --only B,D --trials 1 --window 200ms
";

pub fn check(netrig: &Path) -> Result<()> {
    if !is_root() {
        println!("Not tried in a bare root file system: that needs root.");
        return Ok(());
    }
    let root = target().join("dist-work/bare");
    fs::create_dir_all(&root).with_context(|| format!("make {}", root.display()))?;
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--propagation", "private", "sh", "-c", INSIDE]).arg(netrig).arg(&root);
    if !run(&mut command)?.success() {
        bail!("{} does not run in a bare root file system", netrig.display());
    }
    Ok(())
}
