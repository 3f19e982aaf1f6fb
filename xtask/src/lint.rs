//! The borders between the crates, formatting, and clippy.

use std::process::ExitCode;

use anyhow::Result;

use crate::command::{LACKING, cargo, run_all, works};
use crate::{borders, packages};

pub fn lint() -> Result<ExitCode> {
    // Clippy runs build scripts, which compile C.
    if !packages::ensure(packages::BUILD)? {
        return Ok(ExitCode::from(LACKING));
    }
    for component in ["fmt", "clippy"] {
        if !works(&mut cargo([component, "--version"])) {
            eprintln!("cargo {component} is missing: rustup component add rustfmt clippy");
            return Ok(ExitCode::from(LACKING));
        }
    }
    let faults = borders::faults()?;
    if !faults.is_empty() {
        faults.iter().for_each(|fault| eprintln!("{fault}"));
        return Ok(ExitCode::FAILURE);
    }
    run_all([
        cargo(["fmt", "--all", "--check"]),
        cargo(["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"]),
    ])
}
