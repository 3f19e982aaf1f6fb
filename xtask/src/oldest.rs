//! Builds with the oldest Rust that the workspace promises.

use std::fs;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::command::{LACKING, code, root, run, target, works};

pub fn oldest() -> Result<ExitCode> {
    let version = env!("CARGO_PKG_RUST_VERSION");
    let rustup = |arguments: &[&str]| {
        let mut command = Command::new("rustup");
        // The toolchain that runs this is named in the environment.
        command.env_remove("CARGO").env_remove("RUSTUP_TOOLCHAIN").args(["run", version]).args(arguments);
        command.current_dir(root());
        command
    };
    if !works(&mut rustup(&["cargo", "--version"])) {
        eprintln!("Not checked with Rust {version}: rustup toolchain install {version} --profile minimal");
        return Ok(ExitCode::from(LACKING));
    }
    // A folder of its own, so that it throws away nothing that another Rust has built.
    let folder = target().join("oldest");
    let mut check = rustup(&["cargo", "check", "--workspace", "--locked"]);
    let status = run(check.env("CARGO_TARGET_DIR", &folder))?;
    if !status.success() {
        return Ok(code(status));
    }
    fs::remove_dir_all(&folder).with_context(|| format!("remove {}", folder.display()))?;
    Ok(ExitCode::SUCCESS)
}
