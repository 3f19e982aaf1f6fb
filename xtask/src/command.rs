//! Starting other programs.

use std::env;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};

use anyhow::{Context, Result, bail};

/// The machine lacks something.
pub const LACKING: u8 = 3;
/// What was asked for cannot be done.
pub const BAD_INPUT: u8 = 2;

/// The root of the workspace.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// Where cargo builds.
pub fn target() -> PathBuf {
    root().join(env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from))
}

/// The cargo that runs this.
pub fn cargo<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()).args(arguments);
    // What `cargo run` says of this program. Build scripts that read the like for their own packages, as ring's, would have all
    // that stands on them built again whenever cargo is started without and then by this program.
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")) {
            command.env_remove(name);
        }
    }
    command
}

/// Says what is run, and runs it on this terminal.
pub fn run(command: &mut Command) -> Result<ExitStatus> {
    let arguments = command.get_args().map(|argument| argument.to_string_lossy());
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program()).to_string_lossy();
    eprintln!("$ {}", std::iter::once(program).chain(arguments).collect::<Vec<_>>().join(" "));
    command.status().with_context(|| format!("cannot start {}", Path::new(command.get_program()).display()))
}

/// Runs one after the other and stops at the first that fails.
pub fn run_all(commands: impl IntoIterator<Item = Command>) -> Result<ExitCode> {
    for mut command in commands {
        let status = run(&mut command)?;
        if !status.success() {
            return Ok(code(status));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// True when `command` runs and ends well. Nothing of it is seen.
pub fn works(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Hands a child's status on to the caller of xtask; 128 and the signal's number for a child that was killed, as shells do.
pub fn code(status: ExitStatus) -> ExitCode {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))
}

pub fn is_root() -> bool {
    works(Command::new("sh").args(["-c", "test \"$(id -u)\" = 0"]))
}

/// When the sources were committed, in seconds since 1970.
pub fn epoch() -> Result<String> {
    if let Ok(given) = std::env::var("SOURCE_DATE_EPOCH") {
        return Ok(given);
    }
    let log = Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(root()).output();
    let time = String::from_utf8_lossy(&log.context("cannot start git")?.stdout).trim().to_owned();
    if time.is_empty() { bail!("no git here: set SOURCE_DATE_EPOCH") } else { Ok(time) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn cargo_is_started_without_what_cargo_says_of_this_program() {
        let command = cargo(["build"]);
        let changed: BTreeMap<_, _> = command.get_envs().collect();
        for name in ["CARGO_MANIFEST_DIR", "CARGO_PKG_NAME", "CARGO_PKG_VERSION"] {
            assert!(env::var_os(name).is_some(), "{name}: cargo says it to tests");
            assert_eq!(changed.get(std::ffi::OsStr::new(name)), Some(&None), "{name}");
        }
    }
}
