//! Compiles bpf/*/*.bpf.c to eBPF objects in OUT_DIR.
#![forbid(unsafe_code)]

use std::env;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Sources by folder and name, and the object of each.
const PROGRAMS: &[(&str, &str, &str)] = &[
    ("balancer", "balancer", "balancer"),
    ("balancer", "bench", "balancer_bench"),
    ("balancer", "datagrams", "datagrams"),
    ("balancer", "receiver", "receiver"),
    ("balancer", "spread", "spread"),
    ("balancer", "trace", "trace"),
    ("balancer", "unsent", "unsent"),
    ("measure", "cputime", "cputime"),
    ("measure", "known_softirq", "known_softirq"),
    ("measure", "napis", "napis"),
    ("measure", "receive", "receive"),
    ("measure", "spin", "spin"),
    ("spreader", "steer", "steer"),
    ("vrouter", "bench", "vrouter_bench"),
    ("vrouter", "trace", "vrouter_trace"),
    ("vrouter", "vrouter", "vrouter"),
];

/// Objects that there are for old kernels, too: see bpf/lib/old.h.
const OLD: &[&str] = &["balancer", "spin", "spread", "steer", "trace", "vrouter", "vrouter_trace"];

/// As xtask/src/packages.rs has it, which tests that.
const NEEDED: &str = "what the build needs:
  Debian, Ubuntu: sudo apt-get install -y gcc libc6-dev libelf-dev zlib1g-dev make pkg-config clang
  Fedora: sudo dnf install gcc glibc-devel elfutils-libelf-devel zlib-devel make pkgconf-pkg-config clang";

fn main() -> ExitCode {
    println!("cargo:rerun-if-changed=bpf");
    println!("cargo:rerun-if-env-changed=CLANG");
    for (folder, program, object) in PROGRAMS {
        let old = OLD.contains(object).then(|| (format!("{object}_old"), Some("-DOLD_KERNEL")));
        for (object, define) in [((*object).to_owned(), None)].into_iter().chain(old) {
            if let Err(error) = compile(folder, program, &object, define) {
                eprintln!("{error}");
                return ExitCode::FAILURE;
            }
        }
    }
    println!("cargo:rustc-env=EBPF_OBJECTS={}", hash());
    println!("cargo:rustc-env=CLANG_VERSION={}", version());
    ExitCode::SUCCESS
}

/// Of all objects. The hasher may be another one in another version of Rust.
fn hash() -> String {
    let directory = env::var_os("OUT_DIR").map(PathBuf::from).unwrap_or_default();
    let mut hasher = DefaultHasher::new();
    let old = OLD.iter().map(|object| format!("{object}_old"));
    for object in PROGRAMS.iter().map(|(_, _, object)| (*object).to_owned()).chain(old) {
        object.hash(&mut hasher);
        fs::read(directory.join(format!("{object}.bpf.o"))).unwrap_or_default().hash(&mut hasher);
    }
    format!("{:016x}", hasher.finish())
}

/// The first line of what the compiler says of itself.
fn version() -> String {
    let clang = env::var_os("CLANG").unwrap_or_else(|| "clang".into());
    let output = Command::new(clang).arg("--version").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.lines().next().unwrap_or_default().to_owned()
}

fn compile(folder: &str, program: &str, object: &str, define: Option<&str>) -> Result<(), String> {
    let variable = |name: &str| env::var_os(name).ok_or_else(|| format!("cargo does not say {name}"));
    let clang = env::var_os("CLANG").unwrap_or_else(|| "clang".into());
    let object = Path::new(&variable("OUT_DIR")?).join(format!("{object}.bpf.o"));
    let source = format!("bpf/{folder}/{program}.bpf.c");
    let mut command = Command::new(&clang);
    command.args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-Wshadow"]);
    // The same sources make the same object, wherever they lie.
    command.arg("-fdebug-compilation-dir=.");
    if let Some(include) = env::var_os("DEP_BPF_INCLUDE") {
        command.arg(format!("-ffile-prefix-map={}=libbpf", Path::new(&include).display()));
    }
    // Callbacks and programs have the arguments that the kernel gives them, needed or not.
    command.args(["-Wno-unused-parameter", "-Ibpf", "-I"]).arg(variable("DEP_BPF_INCLUDE")?);
    // Debian keeps <asm/types.h>, which the kernel's headers include, where only the machine's own compiler looks.
    let architecture = variable("CARGO_CFG_TARGET_ARCH")?.to_string_lossy().into_owned();
    let multiarch = PathBuf::from(format!("/usr/include/{architecture}-linux-gnu"));
    if multiarch.exists() {
        command.arg("-idirafter").arg(multiarch);
    }
    command.args(define);
    command.arg("-c").arg(&source).arg("-o").arg(object);
    let status = command.status().map_err(|error| {
        let clang = Path::new(&clang).display();
        format!("cannot run `{clang}`, which compiles the eBPF programs: {error}\nset CLANG, or install {NEEDED}")
    })?;
    if status.success() { Ok(()) } else { Err(format!("{source} does not compile: see above")) }
}
