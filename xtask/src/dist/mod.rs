//! The release artefacts: a static binary, its licences, Debian packages, an SBOM, checksums (docs/RELEASING.md).
//!
//! The binary has to run on any distribution that has the kernel for it. It is linked with musl: one of an old glibc would need that
//! distribution to be built, and libelf and libz where it runs; a static glibc loads NSS modules of the machine into a program that has
//! another glibc inside (`getaddrinfo`), which glibc itself calls unsafe. libelf and zlib are compiled here (`libraries`).
//!
//! What musl does otherwise and would change what is measured, three system calls, is made directly (`rig_sys::direct`). Its `memcpy` and
//! allocator are slower: payload of streams is copied by the kernel, and engines allocate nothing in the window, which tests count.

mod bare;
mod debian;
mod libraries;
mod licences;

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use crate::command::{LACKING, cargo, epoch, root, run, target, works};
use crate::{man, packages};

const TARGET: &str = "x86_64-unknown-linux-musl";
/// With optimisation across crates, which takes minutes.
const PROFILE: &str = "dist";
/// musl-gcc knows musl's headers alone; the kernel's are where the machine's own compiler looks.
const COMPILER: &str =
    "#!/bin/sh\nexec musl-gcc -idirafter /usr/include -idirafter /usr/include/x86_64-linux-gnu \"$@\"\n";
/// What the licences of what is linked are called, here and in the package.
const LICENCES: &str = "third-party-licences.txt";
const SHELLS: [(&str, &str); 3] = [("bash", "netrig"), ("zsh", "_netrig"), ("fish", "netrig.fish")];

pub fn dist(twice: bool) -> Result<ExitCode> {
    if !packages::ensure(&[packages::BUILD, packages::MUSL].concat())? || !tools() {
        return Ok(ExitCode::from(LACKING));
    }
    let out = target().join("dist");
    make(&target(), &out)?;
    bare::check(&out.join("netrig"))?;
    if twice {
        let again = target().join("dist-again");
        make(&again, &again.join("dist"))?;
        let sums = |out: &Path| fs::read_to_string(out.join("SHA256SUMS")).context("read SHA256SUMS");
        let (one, other) = (sums(&out)?, sums(&again.join("dist"))?);
        if one != other {
            bail!("not the same when built twice:\n{one}\n{other}");
        }
        println!("The same bytes when built twice, in two folders.");
        fs::remove_dir_all(&again).with_context(|| format!("remove {}", again.display()))?;
    }
    println!("{}\nin {}", fs::read_to_string(out.join("SHA256SUMS"))?, out.display());
    Ok(ExitCode::SUCCESS)
}

/// Whether the programs of cargo and rustup are there; those that are not are told with the command that brings them.
fn tools() -> bool {
    let has = |name: &str| works(&mut cargo([name, "--help"]));
    let library =
        Command::new("rustc").args(["--print", "target-libdir", "--target", TARGET]).current_dir(root()).output();
    let library = library.is_ok_and(|out| Path::new(String::from_utf8_lossy(&out.stdout).trim()).is_dir());
    let mut there = true;
    for (is_there, how) in [
        (library, format!("rustup target add {TARGET}")),
        (has("deb"), "cargo install --locked cargo-deb".to_owned()),
        (has("cyclonedx"), "cargo install --locked cargo-cyclonedx".to_owned()),
    ] {
        if !is_there {
            eprintln!("missing: {how}");
            there = false;
        }
    }
    there
}

/// All artefacts into `out`, built in `target`.
fn make(target: &Path, out: &Path) -> Result<()> {
    let work = target.join("dist-work");
    for folder in [out, &work] {
        let _ = fs::remove_dir_all(folder);
        fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    }
    let built = build(target, &work)?;
    let binary = out.join("netrig");
    fs::copy(&built, &binary).with_context(|| format!("copy {}", built.display()))?;
    let licences = out.join(LICENCES);
    licences::write(&licences)?;
    stage(&binary, &licences, &built.with_file_name("dist"))?;
    for variant in [None, Some("links")] {
        let mut deb =
            cargo(["deb", "--package", "netrig", "--profile", PROFILE, "--no-build", "--no-strip", "--no-dbgsym"]);
        deb.args(["--target", TARGET]);
        deb.env("CARGO_TARGET_DIR", target).env("SOURCE_DATE_EPOCH", epoch()?).arg("--output").arg(out);
        deb.args(variant.iter().flat_map(|name| ["--variant", name]));
        succeed(&mut deb)?;
    }
    sbom(out)?;
    let mut names: Vec<OsString> = fs::read_dir(out)?.flatten().map(|entry| entry.file_name()).collect();
    names.sort();
    let sums = Command::new("sha256sum").args(names).current_dir(out).output().context("cannot start sha256sum")?;
    fs::write(out.join("SHA256SUMS"), sums.stdout).context("write SHA256SUMS")
}

/// The static binary.
fn build(target: &Path, work: &Path) -> Result<PathBuf> {
    let compiler = work.join("musl-cc");
    fs::write(&compiler, COMPILER).context("write musl-cc")?;
    fs::set_permissions(&compiler, fs::Permissions::from_mode(0o755)).context("write musl-cc")?;
    let libraries = libraries::build(&compiler, work)?;
    let places = places(target)?;
    let flags: Vec<String> =
        places.iter().map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display())).collect();
    let mut build = cargo(["build", "--profile", PROFILE, "--locked", "--package", "netrig"]);
    build.args(["--features", "bgp,rig-datapath/static", "--target", TARGET]);
    build.env("CARGO_TARGET_DIR", target).env("SOURCE_DATE_EPOCH", epoch()?);
    build.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"));
    // Line tables would have the machine's places in C objects; symbols stay.
    build.env("CARGO_PROFILE_DIST_DEBUG", "false").env("CARGO_PROFILE_DIST_STRIP", "debuginfo");
    build.env("CC_x86_64_unknown_linux_musl", &compiler);
    build.env("CFLAGS_x86_64_unknown_linux_musl", &libraries.flags);
    build.env("LIBBPF_SYS_LIBRARY_PATH_x86_64_unknown_linux_musl", &libraries.archives);
    // rustc brings its own musl and links by cc: musl-gcc takes -static-pie for a program with an interpreter.
    succeed(&mut build)?;
    let netrig = target.join(TARGET).join(PROFILE).join("netrig");
    let bytes = fs::read(&netrig).with_context(|| format!("read {}", netrig.display()))?;
    match places.iter().find(|(place, _)| contains(&bytes, &format!("{}/", place.display()))) {
        Some((place, _)) => bail!("{} has a path of this machine inside: {}/", netrig.display(), place.display()),
        None => Ok(netrig),
    }
}

/// Folders of this machine whose paths would get into the binary, and what it has in their place. If several fit, the last holds.
fn places(target: &Path) -> Result<[(PathBuf, &'static str); 3]> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home =
        home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo"))).context("no CARGO_HOME")?;
    Ok([(home, "cargo"), (root().to_owned(), "netrig"), (target.to_owned(), "target")])
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

/// What the packages have besides the binary.
fn stage(netrig: &Path, licences: &Path, stage: &Path) -> Result<()> {
    let _ = fs::remove_dir_all(stage);
    for folder in ["completions", "links", "man", "links-man", "doc"] {
        fs::create_dir_all(stage.join(folder)).with_context(|| format!("make {}", stage.display()))?;
    }
    if !man::write(netrig, &stage.join("man"))? {
        bail!("no man pages");
    }
    for page in ["ntttcp.1", "dperf.1", "ipvsadm.8"] {
        fs::rename(stage.join("man").join(page), stage.join("links-man").join(page))
            .with_context(|| page.to_owned())?;
    }
    let doc = stage.join("doc");
    fs::copy(root().join("CHANGELOG.md"), doc.join("changelog")).context("copy CHANGELOG.md")?;
    fs::copy(licences, doc.join(LICENCES)).with_context(|| format!("copy {}", licences.display()))?;
    debian::write_changelog(&doc)?;
    let pages = ["man", "links-man", "doc"].map(|folder| fs::read_dir(stage.join(folder)));
    let pages = pages.into_iter().flatten().flatten().flatten().map(|entry| entry.path());
    // Without a name and a time inside, so that what is built again is the same.
    succeed(Command::new("gzip").args(["-9", "-n"]).args(pages))?;
    debian::write_copyright(&doc)?;
    for (shell, file) in SHELLS {
        let text = Command::new(netrig).args(["completions", shell]).output().context("cannot start netrig")?;
        fs::write(stage.join("completions").join(file), text.stdout).context("write completions")?;
    }
    for (link, to) in [("ntttcp", "netrig"), ("dperf", "netrig"), ("ipvsadm", "../bin/netrig")] {
        symlink(to, stage.join("links").join(link)).with_context(|| format!("link {link}"))?;
    }
    Ok(())
}

/// CycloneDX of what the binary is built from. cargo-cyclonedx writes one beside each manifest.
fn sbom(out: &Path) -> Result<()> {
    const NAME: &str = "netrig-sbom";
    let file = format!("{NAME}.json");
    let mut cyclonedx = cargo(["cyclonedx", "--format", "json", "--spec-version", "1.5", "--target", TARGET]);
    cyclonedx.args(["--features", "bgp", "--override-filename", NAME]).env("SOURCE_DATE_EPOCH", epoch()?);
    cyclonedx.arg("--manifest-path").arg(root().join("crates/netrig/Cargo.toml"));
    succeed(&mut cyclonedx)?;
    let made = root().join("crates/netrig").join(&file);
    let text = fs::read_to_string(&made).with_context(|| format!("read {}", made.display()))?;
    let place = root().display().to_string();
    fs::write(out.join(format!("{NAME}.cdx.json")), text.replace(&place, "/netrig")).context("write the SBOM")?;
    let crates = fs::read_dir(root().join("crates"))?.flatten().map(|entry| entry.path());
    for folder in crates.chain([root().join("xtask")]) {
        let _ = fs::remove_file(folder.join(&file));
    }
    Ok(())
}

fn succeed(command: &mut Command) -> Result<()> {
    if run(command)?.success() { Ok(()) } else { bail!("the command above failed") }
}
