//! System packages that the build and the tests need.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Result;

use crate::command::{is_root, run, works};

/// Something that is needed from outside Rust.
#[derive(Clone, Copy)]
pub struct Dependency {
    what: &'static str,
    is_there: fn() -> bool,
    debian: &'static [&'static str],
    fedora: &'static [&'static str],
}

/// Without these nothing can be built.
pub const BUILD: &[Dependency] = &[
    Dependency {
        what: "a C compiler with the C library's headers, for SQLite and libbpf, which are built from source",
        is_there: || compiles("CC", "cc", &[], "#include <stdio.h>\n#include <pthread.h>\n"),
        debian: &["gcc", "libc6-dev"],
        fedora: &["gcc", "glibc-devel"],
    },
    Dependency {
        what: "the headers of libelf and zlib, for libbpf",
        is_there: || compiles("CC", "cc", &[], "#include <gelf.h>\n#include <zlib.h>\n"),
        debian: &["libelf-dev", "zlib1g-dev"],
        fedora: &["elfutils-libelf-devel", "zlib-devel"],
    },
    Dependency {
        what: "make and pkg-config, for libbpf",
        is_there: || ["make", "pkg-config"].iter().all(|program| works(Command::new(program).arg("--version"))),
        debian: &["make", "pkg-config"],
        fedora: &["make", "pkgconf-pkg-config"],
    },
    Dependency {
        what: "clang with the target BPF, for the eBPF programs",
        is_there: || compiles("CLANG", "clang", &["-target", "bpf"], "int nothing;\n"),
        debian: &["clang"],
        fedora: &["clang"],
    },
];

/// For the static binary.
pub const MUSL: &[Dependency] = &[Dependency {
    what: "musl-gcc, for a binary that needs no library",
    is_there: || starts("musl-gcc", &[]),
    debian: &["musl-tools"],
    fedora: &["musl-gcc"],
}];

/// Without these some tests say SKIPPED, or fail where all are required.
pub const TESTS: &[Dependency] = &[
    Dependency {
        what: "nginx, which the packet engine's client and clients of the balancer ask in tests",
        is_there: || ["nginx", "/usr/sbin/nginx"].iter().any(|program| works(Command::new(program).arg("-v"))),
        debian: &["nginx-light"],
        fedora: &["nginx"],
    },
    Dependency {
        what: "curl, which asks the packet engine's server and, through the balancer, nginx in tests",
        is_there: || works(Command::new("curl").arg("--version")),
        debian: &["curl"],
        fedora: &["curl"],
    },
    Dependency {
        what: "wrk, which asks nginx through the balancer in tests",
        // It has no option that ends well without a server.
        is_there: || starts("wrk", &[]),
        debian: &["wrk"],
        fedora: &["wrk"],
    },
    Dependency {
        what: "ssh and dropbear's server, by which tests reach hosts on their own loopback; neither package starts a server",
        is_there: || ["ssh", "dropbear"].iter().all(|program| works(Command::new(program).arg("-V"))),
        debian: &["openssh-client", "dropbear-bin"],
        fedora: &["openssh-clients", "dropbear"],
    },
    Dependency {
        what: "sudo, by which tests become root on a host; it is given a file of its own that says who may",
        is_there: || works(Command::new("sudo").arg("-V")),
        debian: &["sudo"],
        fedora: &["sudo"],
    },
    Dependency {
        what: "iperf3, whose streams go through the vRouter in tests",
        is_there: || works(Command::new("iperf3").arg("--version")),
        debian: &["iperf3"],
        fedora: &["iperf3"],
    },
    Dependency {
        what: "ethtool, which switches segmentation of UDP off for a test of the vRouter",
        is_there: || {
            ["ethtool", "/usr/sbin/ethtool"].iter().any(|program| works(Command::new(program).arg("--version")))
        },
        debian: &["ethtool"],
        fedora: &["ethtool"],
    },
    Dependency {
        what: "tshark, which reads what the vRouter's tunnels make in tests",
        is_there: || works(Command::new("tshark").arg("--version")),
        debian: &["tshark"],
        fedora: &["wireshark-cli"],
    },
    NFTABLES,
    HAPROXY,
    Dependency {
        what: "keepalived and ipvsadm, which drive the balancer in tests",
        is_there: || {
            let works = |programs: [&str; 2]| programs.iter().any(|program| starts(program, &["--version"]));
            works(["keepalived", "/usr/sbin/keepalived"]) && works(["ipvsadm", "/usr/sbin/ipvsadm"])
        },
        debian: &["keepalived", "ipvsadm"],
        fedora: &["keepalived", "ipvsadm"],
    },
    Dependency {
        what: "the plug-ins of CNI, and iptables, by which they translate addresses, for containers of tests",
        is_there: || {
            let folders = ["/usr/lib/cni", "/usr/libexec/cni"];
            folders.iter().any(|folder| Path::new(folder).join("bridge").is_file())
        },
        debian: &["containernetworking-plugins", "iptables"],
        fedora: &["containernetworking-plugins", "iptables-nft"],
    },
    Dependency {
        what: "dockerd, and curl to ask it, for containers of tests",
        is_there: || {
            ["dockerd", "/usr/sbin/dockerd"].iter().any(|program| works(Command::new(program).arg("--version")))
        },
        debian: &["docker.io", "curl"],
        fedora: &["moby-engine", "curl"],
    },
    Dependency {
        what: "gobgpd and gobgp, by which routers learn each other's containers in tests",
        is_there: || works(Command::new("gobgpd").arg("--version")) && works(Command::new("gobgp").arg("--help")),
        debian: &["gobgpd"],
        fedora: &["gobgp"],
    },
];

/// For virtual machines with other kernels.
pub const GUESTS: &[Dependency] = &[
    Dependency {
        what: "QEMU, which boots other kernels",
        is_there: || works(Command::new("qemu-system-x86_64").arg("--version")),
        debian: &["qemu-system-x86"],
        fedora: &["qemu-system-x86-core"],
    },
    Dependency {
        what: "busybox without libraries, kmod, cpio and xz, for what a guest starts from",
        is_there: || {
            let programs = [("/sbin/depmod", "--version"), ("cpio", "--version"), ("xz", "--version")];
            Path::new("/bin/busybox").exists() && programs.iter().all(|(one, flag)| works(Command::new(one).arg(flag)))
        },
        debian: &["busybox-static", "kmod", "cpio", "xz-utils"],
        fedora: &["busybox", "kmod", "cpio", "xz"],
    },
    Dependency {
        what: "ip, and ethtool, for the cards of guests",
        is_there: || {
            let ethtool = ["ethtool", "/usr/sbin/ethtool"];
            works(Command::new("ip").arg("-V")) && ethtool.iter().any(|one| works(Command::new(one).arg("--version")))
        },
        debian: &["iproute2", "ethtool"],
        fedora: &["iproute", "ethtool"],
    },
];

const NFTABLES: Dependency = Dependency {
    what: "nft, for firewalls in tests and for the balancer's peer nftables",
    is_there: || ["nft", "/usr/sbin/nft"].iter().any(|program| works(Command::new(program).arg("--version"))),
    debian: &["nftables"],
    fedora: &["nftables"],
};

/// What the balancer is compared with.
pub const BALANCER: &[Dependency] = &[NFTABLES, HAPROXY];

const HAPROXY: Dependency = Dependency {
    what: "HAProxy, a peer of the balancer",
    is_there: || ["haproxy", "/usr/sbin/haproxy"].iter().any(|program| works(Command::new(program).arg("-v"))),
    debian: &["haproxy"],
    fedora: &["haproxy"],
};

/// Whatever comes of it: ipvsadm fails without the kernel's IPVS even where it is only asked for its version.
fn starts(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

/// Whether the C compiler that the environment's `variable` names, or else `compiler`, takes a program.
fn compiles(variable: &str, compiler: &str, arguments: &[&str], program: &str) -> bool {
    let compile = || -> std::io::Result<bool> {
        let compiler = std::env::var_os(variable).unwrap_or_else(|| compiler.into());
        let mut child = Command::new(compiler)
            .args(arguments)
            .args(["-x", "c", "-fsyntax-only", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        if let Some(mut source) = child.stdin.take() {
            // A compiler that stops reading says why by its status.
            let _ = source.write_all(program.as_bytes());
        }
        Ok(child.wait()?.success())
    };
    compile().unwrap_or(false)
}

/// Whether everything is there. Root on Debian or Ubuntu gets what is missing installed; other users are told how.
pub fn ensure(needs: &[Dependency]) -> Result<bool> {
    let missing: Vec<&Dependency> = needs.iter().filter(|need| !(need.is_there)()).collect();
    if missing.is_empty() {
        return Ok(true);
    }
    for need in &missing {
        eprintln!("missing: {}", need.what);
    }
    let names = |of: fn(&Dependency) -> &'static [&'static str]| missing.iter().flat_map(move |need| of(need)).copied();
    let has = |program: &str| works(Command::new(program).arg("--version"));
    if has("apt-get") {
        let packages: Vec<&str> = names(|need| need.debian).collect();
        if !is_root() {
            eprintln!("install it: sudo apt-get install -y {}", packages.join(" "));
            return Ok(false);
        }
        let apt =
            |arguments: &[&str]| run(Command::new("apt-get").env("DEBIAN_FRONTEND", "noninteractive").args(arguments));
        apt(&["update", "-q"])?;
        apt(&[&["install", "-q", "-y", "--no-install-recommends"], packages.as_slice()].concat())?;
        return Ok(missing.iter().all(|need| (need.is_there)()));
    }
    if has("dnf") {
        eprintln!("install it: sudo dnf install {}", names(|need| need.fedora).collect::<Vec<_>>().join(" "));
    } else {
        eprintln!("install it with this system's package manager");
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A user who builds without `cargo xtask` reads the names in these places.
    #[test]
    fn what_the_build_needs_is_said_alike_everywhere() {
        let names = |of: fn(&Dependency) -> &'static [&'static str]| {
            BUILD.iter().flat_map(of).copied().collect::<Vec<_>>().join(" ")
        };
        let (debian, fedora) = (names(|need| need.debian), names(|need| need.fedora));
        let commands = [format!("apt-get install -y {debian}\n"), format!("dnf install {fedora}")];
        for (place, text) in [
            ("README.md", include_str!("../../README.md")),
            ("crates/rig-datapath/build.rs", include_str!("../../crates/rig-datapath/build.rs")),
        ] {
            for command in &commands {
                assert!(text.contains(command.as_str()), "{place} lacks: {command}");
            }
        }
    }
}
