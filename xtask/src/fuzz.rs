//! Each fuzz target for a bounded time, beginning with its corpus.

use std::fs;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::command::{LACKING, code, root, run, target, works};

pub fn fuzz(seconds: u32) -> Result<ExitCode> {
    let nightly = |arguments: &[&str]| {
        let mut command = Command::new("cargo");
        // As a rustup proxy, which the cargo that runs this is not.
        command.env_remove("CARGO").env_remove("RUSTUP_TOOLCHAIN").arg("+nightly").args(arguments);
        command.current_dir(root());
        command
    };
    if !works(&mut nightly(&["fuzz", "--version"])) {
        eprintln!("Not fuzzed: rustup toolchain install nightly && cargo install --locked cargo-fuzz");
        return Ok(ExitCode::from(LACKING));
    }
    let targets = fs::read_dir(root().join("fuzz/fuzz_targets")).context("read fuzz/fuzz_targets")?;
    let mut targets: Vec<_> =
        targets.flatten().filter_map(|entry| entry.path().file_stem().map(ToOwned::to_owned)).collect();
    targets.sort();
    for name in targets {
        // The first folder gets new inputs: the corpus is kept by hand.
        let found = target().join("fuzz").join(&name);
        fs::create_dir_all(&found).with_context(|| format!("make {}", found.display()))?;
        let mut command = nightly(&["fuzz", "run"]);
        command.args([&name, found.as_os_str(), root().join("fuzz/corpus").join(&name).as_os_str()]);
        command.args(["--", &format!("-max_total_time={seconds}")]);
        // The address sanitizer takes libbpf's symbols for doubles.
        command.env("ASAN_OPTIONS", "detect_odr_violation=0");
        let status = run(&mut command)?;
        if !status.success() {
            return Ok(code(status));
        }
    }
    Ok(ExitCode::SUCCESS)
}
