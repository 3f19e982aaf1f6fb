//! Says what netrig is built from, so that runs of different builds can be told apart.
#![forbid(unsafe_code)]

use std::env;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a build is made of: beside these, only what Cargo.lock names.
const SOURCES: [&str; 4] = ["Cargo.toml", "Cargo.lock", "crates", "suites"];
/// These are not compiled into netrig.
const NOT_BUILT: [&str; 5] = ["tests", "tests.rs", "benches", "snapshots", "target"];

fn main() {
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    // Of a package from a registry, the folder is all there is.
    let workspace = manifest.ancestors().nth(2).filter(|root| root.join("crates/netrig/build.rs").exists());
    let mut files = Vec::new();
    match workspace {
        Some(root) => SOURCES.iter().for_each(|source| collect(&root.join(source), &mut files)),
        None => collect(&manifest, &mut files),
    }
    files.sort();
    let root = workspace.unwrap_or(&manifest);
    for file in &files {
        println!("cargo:rerun-if-changed={}", file.display());
    }
    println!("cargo:rerun-if-env-changed=CARGO_ENCODED_RUSTFLAGS");

    let variable = |name: &str| env::var(name).unwrap_or_default();
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = output(Command::new(rustc).arg("--version")).unwrap_or_default();
    let version = version.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
    let mut build = format!("{}, {}, {version}", hash(root, &files), variable("PROFILE"));
    // Tests start netrig some thousand times, and in a program without optimisation that may lie anywhere 360,000 addresses are put right at each
    // start (docs/decisions/build-profiles.md).
    // Not with musl, whose programs are linked as position-independent by rustc itself.
    let is_glibc = variable("CARGO_CFG_TARGET_OS") == "linux" && variable("CARGO_CFG_TARGET_ENV") == "gnu";
    let is_static = variable("CARGO_CFG_TARGET_FEATURE").split(',').any(|feature| feature == "crt-static");
    if variable("PROFILE") == "debug" && is_glibc && !is_static {
        println!("cargo:rustc-link-arg=-no-pie");
    }

    // Where sources lie makes no other program.
    let flags = variable("CARGO_ENCODED_RUSTFLAGS");
    let flags: Vec<_> = flags.split('\u{1f}').filter(|flag| !flag.starts_with("--remap-path-prefix")).collect();
    let flags = flags.join(" ");
    if !flags.is_empty() {
        build += &format!(", {flags}");
    }
    println!("cargo:rustc-env=NETRIG_BUILD={build}");
    // A commit gives sources a name, no other contents. While netrig is worked on, it should not have to be built again.
    let commit = if variable("PROFILE") == "release" { commit(root) } else { None };
    println!("cargo:rustc-env=NETRIG_COMMIT={}", commit.unwrap_or_default());
}

/// The name of the sources in git, for a reader; `None` without git, as in an unpacked archive.
fn commit(root: &Path) -> Option<String> {
    let described = git(root, &["describe", "--tags", "--always", "--dirty"])?;
    for place in ["HEAD", "logs/HEAD"] {
        let path = git(root, &["rev-parse", "--git-path", place])?;
        println!("cargo:rerun-if-changed={}", root.join(path).display());
    }
    Some(described)
}

fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    // A source tree without a `.git` of its own may lie in a folder of another repository, whose commit says nothing of it.
    let own = root.join(".git").exists();
    own.then(|| output(Command::new("git").arg("-C").arg(root).args(arguments)))?
}

fn output(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

/// All files at or below `path` that are built from.
fn collect(path: &Path, files: &mut Vec<PathBuf>) {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if NOT_BUILT.contains(&name) || name.starts_with('.') {
        return;
    }
    match fs::read_dir(path) {
        Ok(entries) => entries.flatten().for_each(|entry| collect(&entry.path(), files)),
        Err(_) if path.is_file() => files.push(path.to_owned()),
        Err(_) => {}
    }
}

/// A hash of the files' names and contents. Another version of Rust may hash otherwise, but the build's name contains that
/// version as well.
fn hash(root: &Path, files: &[PathBuf]) -> String {
    let mut hasher = DefaultHasher::new();
    for file in files {
        file.strip_prefix(root).unwrap_or(file).hash(&mut hasher);
        let contents: io::Result<Vec<u8>> = fs::read(file);
        contents.unwrap_or_default().hash(&mut hasher);
    }
    format!("{:016x}", hasher.finish())
}
