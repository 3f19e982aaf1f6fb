//! The borders between the crates, documents, examples in comments, names of types, formatting, rustdoc, clippy, and what cargo-deny knows of dependencies.

use std::process::ExitCode;

use anyhow::Result;

use crate::command::{LACKING, cargo, run_all, works};
use crate::{borders, examples, links, names, packages, readme, suites};

/// Without a build: only what compiles nothing.
pub fn lint(without_build: bool) -> Result<ExitCode> {
    // Clippy runs build scripts, which compile C.
    if !without_build && !packages::ensure(packages::BUILD)? {
        return Ok(ExitCode::from(LACKING));
    }
    for component in ["fmt", "clippy"] {
        if !works(&mut cargo([component, "--version"])) {
            eprintln!("cargo {component} is missing: rustup component add rustfmt clippy");
            return Ok(ExitCode::from(LACKING));
        }
    }
    let faults = [
        borders::faults()?,
        examples::faults()?,
        links::faults()?,
        readme::faults()?,
        suites::faults()?,
        names::faults()?,
    ]
    .concat();
    if !faults.is_empty() {
        faults.iter().for_each(|fault| eprintln!("{fault}"));
        return Ok(ExitCode::FAILURE);
    }
    let mut commands = vec![cargo(["fmt", "--all", "--check"])];
    if !without_build {
        let mut doc = cargo(["doc", "--workspace", "--no-deps", "--quiet"]);
        doc.env("RUSTDOCFLAGS", "--deny warnings");
        commands.extend([
            // clippy::incompatible_msrv refuses what the oldest Rust that is promised lacks.
            cargo(["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"]),
            // For the tests the workspace has BGP; the binary that `cargo build` makes has not.
            cargo(["clippy", "--package", "netrig-lb", "--package", "netrig-vrouter", "--", "--deny", "warnings"]),
            doc,
        ]);
    }
    if works(&mut cargo(["deny", "--version"])) {
        // Advisories need a database from the network: `cargo deny check` asks for them, too.
        commands.push(cargo(["deny", "check", "--hide-inclusion-graph", "licenses", "bans", "sources"]));
    } else {
        eprintln!("NOT CHECKED for licences of dependencies: cargo install --locked cargo-deny");
    }
    run_all(commands)
}
