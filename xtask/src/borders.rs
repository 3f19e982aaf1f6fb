//! The borders inside the workspace: which crate may use which, and that no modules of a crate use each other in a circle.

mod circles;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result};
use cargo_metadata::{DependencyKind, MetadataCommand, Package};

use crate::command::root;

/// What each crate may use of the others: the table of docs/ARCHITECTURE.md.
const MAY_USE: &[(&str, &[&str])] = &[
    ("rig-lines", &[]),
    ("rig-bgp", &[]),
    ("rig-wire", &[]),
    ("rig-stats", &[]),
    ("rig-sys", &[]),
    ("rig-skip", &[]),
    ("rig-spread", &["rig-stats"]),
    ("rig-cli", &["rig-sys", "rig-wire"]),
    ("rig-cni", &["rig-sys"]),
    ("rig-engine", &[]),
    ("rig-service", &["rig-cli", "rig-lines", "rig-sys"]),
    ("rig-datapath", &["rig-sys", "rig-wire"]),
    ("rig-packet", &["rig-stats", "rig-sys", "rig-wire"]),
    ("rig-load", &["rig-lines", "rig-packet", "rig-stats", "rig-sys"]),
    ("rig-testbed", &["rig-cli", "rig-datapath", "rig-lines", "rig-service", "rig-stats", "rig-sys", "rig-wire"]),
    (
        "rig-datapaths",
        &[
            "netrig-lb",
            "netrig-spread",
            "netrig-vrouter",
            "rig-cni",
            "rig-datapath",
            "rig-engine",
            "rig-spread",
            "rig-stats",
            "rig-sys",
            "rig-testbed",
        ],
    ),
    ("rig-facts", &["rig-cli", "rig-load", "rig-packet", "rig-stats", "rig-sys", "rig-testbed"]),
    (
        "rig-suite",
        &["rig-cli", "rig-facts", "rig-load", "rig-packet", "rig-spread", "rig-stats", "rig-sys", "rig-testbed"],
    ),
    ("rig-verdict", &["rig-cli", "rig-facts", "rig-load", "rig-stats", "rig-suite", "rig-sys"]),
    (
        "rig-run",
        &[
            "rig-cli",
            "rig-datapath",
            "rig-facts",
            "rig-load",
            "rig-packet",
            "rig-stats",
            "rig-suite",
            "rig-sys",
            "rig-testbed",
            "rig-verdict",
        ],
    ),
    (
        "rig-report",
        &[
            "rig-cli",
            "rig-facts",
            "rig-load",
            "rig-packet",
            "rig-service",
            "rig-spread",
            "rig-stats",
            "rig-suite",
            "rig-sys",
            "rig-verdict",
        ],
    ),
    ("netrig-lb", &["rig-bgp", "rig-cli", "rig-datapath", "rig-service", "rig-stats", "rig-sys", "rig-wire"]),
    ("netrig-spread", &["rig-cli", "rig-datapath", "rig-service", "rig-spread", "rig-stats", "rig-sys"]),
    (
        "netrig-vrouter",
        &["rig-bgp", "rig-cli", "rig-cni", "rig-datapath", "rig-service", "rig-stats", "rig-sys", "rig-wire"],
    ),
    (
        "netrig-top",
        &[
            "netrig-lb",
            "netrig-spread",
            "netrig-vrouter",
            "rig-cli",
            "rig-datapath",
            "rig-service",
            "rig-spread",
            "rig-stats",
            "rig-sys",
            "rig-testbed",
        ],
    ),
    ("netrig-tools", &["rig-cli", "rig-facts", "rig-load", "rig-packet", "rig-stats", "rig-sys", "rig-testbed"]),
    (
        "netrig-ends",
        &[
            "rig-cli",
            "rig-datapath",
            "rig-facts",
            "rig-load",
            "rig-report",
            "rig-stats",
            "rig-suite",
            "rig-sys",
            "rig-testbed",
            "rig-verdict",
        ],
    ),
    (
        "netrig",
        &[
            "netrig-ends",
            "netrig-lb",
            "netrig-spread",
            "netrig-tools",
            "netrig-top",
            "netrig-vrouter",
            "rig-cli",
            "rig-cni",
            "rig-datapath",
            "rig-datapaths",
            "rig-load",
            "rig-packet",
            "rig-engine",
            "rig-facts",
            "rig-report",
            "rig-run",
            "rig-service",
            "rig-spread",
            "rig-stats",
            "rig-suite",
            "rig-sys",
            "rig-testbed",
            "rig-verdict",
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
    "netrig-spread",
    "netrig-tools",
    "netrig-top",
    "netrig-vrouter",
    "rig-cli",
    "rig-datapaths",
    "rig-run",
    "rig-service",
    "rig-suite",
    "rig-testbed",
    "xtask",
];

/// Everything that is on the wrong side of a border, in words.
pub fn faults() -> Result<Vec<String>> {
    let workspace = MetadataCommand::new()
        .manifest_path(root().join("Cargo.toml"))
        .no_deps()
        .other_options(["--offline".to_owned()])
        .exec()
        .context("ask cargo about the workspace")?;
    let members: BTreeMap<&str, &Package> = workspace.packages.iter().map(|p| (p.name.as_str(), p)).collect();
    let mut faults = Vec::new();
    let known: BTreeSet<&str> = MAY_USE.iter().map(|(name, _)| *name).collect();
    let there: BTreeSet<&str> = members.keys().copied().collect();
    for name in there.symmetric_difference(&known) {
        faults.push(format!("{name} is not both in the workspace and in the table of xtask/src/borders.rs"));
    }
    for (name, package) in &members {
        let may_use = MAY_USE.iter().find(|(of, _)| of == name).map_or(&[][..], |(_, may_use)| may_use);
        for used in uses(package) {
            if known.contains(used) && !may_use.contains(&used) {
                faults.push(format!("{name} uses {used}, and may use only {may_use:?}"));
            }
            if used == "anyhow" && !ANYHOW.contains(name) {
                faults.push(format!("{name} uses anyhow, and its errors are for callers"));
            }
        }
        // A binary beside a library is the library's: the workspace's lints deny it unsafe code.
        let library = package.targets.iter().find(|target| target.is_lib());
        let target = library.or_else(|| package.targets.iter().find(|target| target.is_bin()));
        let file = &target.with_context(|| format!("{name} is neither a library nor a binary"))?.src_path;
        let text = fs::read_to_string(file).with_context(|| format!("read {file}"))?;
        if text.lines().any(|line| line == "#![forbid(unsafe_code)]") == UNSAFE.contains(name) {
            faults.push(format!("{file}: is #![forbid(unsafe_code)] where it belongs?"));
        }
        for circle in circles::of(file.as_std_path())? {
            let modules: Vec<&str> = circle.iter().map(String::as_str).collect();
            faults.push(format!("modules of {name} use each other in a circle: {}", modules.join(", ")));
        }
    }
    Ok(faults)
}

/// What a crate is built from; its tests may use more.
fn uses(package: &Package) -> impl Iterator<Item = &str> {
    package.dependencies.iter().filter(|d| d.kind != DependencyKind::Development).map(|d| d.name.as_str())
}

#[cfg(test)]
mod tests {
    #[test]
    fn everything_is_on_its_side_of_the_borders() {
        let faults = super::faults().expect("cargo knows this workspace");
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }
}
