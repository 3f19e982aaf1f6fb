//! The borders between the crates, and what no file of the project may contain.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package};

/// What each crate may use of the others.
const MAY_USE: &[(&str, &[&str])] = &[
    ("rig-wire", &[]),
    ("rig-stats", &[]),
    ("rig-sys", &[]),
    ("rig-skip", &[]),
    ("rig-cli", &["rig-sys"]),
    ("rig-datapath", &["rig-sys", "rig-wire"]),
    ("rig-packet", &["rig-stats", "rig-sys", "rig-wire"]),
    ("rig-load", &["rig-packet", "rig-stats", "rig-sys"]),
    ("rig-testbed", &["rig-cli", "rig-datapath", "rig-stats", "rig-sys"]),
    ("rig-datapaths", &["netrig-lb", "rig-sys", "rig-testbed"]),
    ("rig-study", &["rig-cli", "rig-datapath", "rig-load", "rig-packet", "rig-stats", "rig-sys", "rig-testbed"]),
    ("rig-report", &["rig-cli", "rig-load", "rig-packet", "rig-stats", "rig-study", "rig-sys"]),
    ("netrig-lb", &["rig-cli", "rig-datapath", "rig-stats", "rig-sys", "rig-wire"]),
    ("netrig-tools", &["rig-cli", "rig-load", "rig-packet", "rig-stats", "rig-sys", "rig-testbed"]),
    (
        "netrig-ends",
        &["rig-cli", "rig-datapath", "rig-load", "rig-report", "rig-stats", "rig-study", "rig-sys", "rig-testbed"],
    ),
    (
        "netrig",
        &[
            "netrig-ends",
            "netrig-lb",
            "netrig-tools",
            "rig-cli",
            "rig-datapath",
            "rig-datapaths",
            "rig-load",
            "rig-packet",
            "rig-report",
            "rig-stats",
            "rig-study",
            "rig-sys",
            "rig-testbed",
        ],
    ),
    ("xtask", &[]),
];

/// The crates that may contain unsafe code.
const UNSAFE: &[&str] = &["rig-sys"];
/// The crates whose errors are for people, not for callers.
const ANYHOW: &[&str] = &[
    "netrig",
    "netrig-ends",
    "netrig-lb",
    "netrig-tools",
    "rig-cli",
    "rig-datapaths",
    "rig-study",
    "rig-testbed",
    "xtask",
];

fn workspace() -> Metadata {
    MetadataCommand::new()
        .manifest_path(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .no_deps()
        .other_options(["--offline".to_owned()])
        .exec()
        .expect("cargo knows this workspace")
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// What a crate is built from; its tests may use more.
fn uses(package: &Package) -> impl Iterator<Item = &str> {
    package.dependencies.iter().filter(|d| d.kind != DependencyKind::Development).map(|d| d.name.as_str())
}

#[test]
fn no_crate_uses_what_lies_outside_its_border() {
    let workspace = workspace();
    let members: BTreeMap<_, _> = workspace.packages.iter().map(|p| (p.name.as_str(), p)).collect();
    let known: BTreeSet<_> = MAY_USE.iter().map(|(name, _)| *name).collect();
    assert_eq!(members.keys().copied().collect::<BTreeSet<_>>(), known, "a crate without a border: add it here");
    for (name, may_use) in MAY_USE {
        let internal: Vec<_> = uses(members[name]).filter(|used| known.contains(used)).collect();
        for used in internal {
            assert!(may_use.contains(&used), "{name} uses {used}, and may use only {may_use:?}");
        }
    }
}

#[test]
fn anyhow_stays_where_errors_are_for_people() {
    for package in &workspace().packages {
        let uses_anyhow = uses(package).any(|used| used == "anyhow");
        assert!(!uses_anyhow || ANYHOW.contains(&package.name.as_str()), "{} uses anyhow", package.name);
    }
}

#[test]
fn unsafe_stays_where_it_may_stand() {
    for package in &workspace().packages {
        // A binary beside a library is the library's: the workspace's lints deny it unsafe code.
        let library = package.targets.iter().find(|target| target.is_lib());
        let root = library.or_else(|| package.targets.iter().find(|target| target.is_bin()));
        let path = &root.expect("each crate is a library or a binary").src_path;
        let text = fs::read_to_string(path).expect("cargo names a file that is there");
        let forbidden = text.lines().any(|line| line == "#![forbid(unsafe_code)]");
        let expected = !UNSAFE.contains(&package.name.as_str());
        assert_eq!(forbidden, expected, "{path}: is #![forbid(unsafe_code)] there?");
    }
}

/// Every file of the repository, as git knows it; `None` outside a repository, such as in an unpacked archive.
fn files() -> Option<Vec<PathBuf>> {
    let output = Command::new("git").args(["ls-files", "-z"]).current_dir(root()).output().ok()?;
    let names = String::from_utf8(output.stdout).ok()?;
    let files: Vec<_> = names.split_terminator('\0').map(|name| root().join(name)).collect();
    (output.status.success() && !files.is_empty()).then_some(files)
}

/// A test that prints by itself that it was not made is not seen where all tests are required.
#[test]
fn tests_are_skipped_in_one_way_only() {
    let Some(files) = files() else {
        return rig_skip::skip(rig_skip::Lack::Repository, "not a git repository, no list of files");
    };
    let (crates, own) = (root().join("crates"), root().join("crates/rig-skip"));
    // Put together here, or this file would be the first to be found.
    let ways = [
        "\"SKIP".to_owned() + "PED",
        " SKIP".to_owned() + "PED",
        "\"skip".to_owned() + "ped",
        "fn sk".to_owned() + "ip(",
    ];
    let mut found = Vec::new();
    let is_test = |file: &Path| file.extension().is_some_and(|e| e == "rs") && !file.starts_with(&own);
    for file in files.iter().filter(|file| file.starts_with(&crates) && is_test(file)) {
        let Ok(text) = fs::read_to_string(file) else { continue };
        for (number, line) in text.lines().enumerate() {
            let by_itself = ways.iter().any(|way| line.contains(way.as_str()));
            found.extend(by_itself.then(|| format!("{}:{}: {}", file.display(), number + 1, line.trim())));
        }
    }
    assert!(found.is_empty(), "use rig_skip::skip in:\n{}", found.join("\n"));
}

#[test]
fn no_file_names_a_place_on_somebodys_machine() {
    let Some(files) = files() else {
        return rig_skip::skip(rig_skip::Lack::Repository, "not a git repository, no list of files");
    };
    // Put together here, or this file would be the first to be found.
    let places = ["/work", "/root", "/home/runner", "/Users"].map(|place| format!("{place}/"));
    let mut found = Vec::new();
    for file in files {
        // A file that git knows and somebody has removed, or one that is no text, has no lines to look at.
        let Ok(text) = fs::read_to_string(&file) else { continue };
        for (number, line) in text.lines().enumerate() {
            let here = places.iter().filter(|place| line.contains(place.as_str()));
            found.extend(here.map(|place| format!("{}:{}: {place}", file.display(), number + 1)));
        }
    }
    assert!(found.is_empty(), "machine paths in:\n{}", found.join("\n"));
}
