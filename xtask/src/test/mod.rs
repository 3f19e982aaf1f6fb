//! All tests.

pub mod executables;

use std::process::{Command, ExitCode};

use anyhow::Result;

use crate::command::{LACKING, cargo, is_root, run_all, works};
use crate::packages;

use self::executables::TestResults;

pub fn test(arguments: &[String]) -> Result<ExitCode> {
    if !packages::ensure(packages::BUILD)? {
        return Ok(ExitCode::from(LACKING));
    }
    // As the tests themselves read it, see crates/rig-skip.
    let all_required = std::env::var("NETRIG_TEST_REQUIRE_ALL").is_ok_and(|value| value == "1");
    let without = if all_required { "Tests that need it fail." } else { "Tests that need it say SKIPPED." };
    match packages::ensure(packages::TESTS) {
        Ok(true) => {}
        Ok(false) => eprintln!("{without}"),
        Err(error) => eprintln!("{error:#}. {without}"),
    }
    eprintln!("{}", what_runs(is_root(), || works(Command::new("unshare").args(["-Urn", "true"]))));
    if !arguments.is_empty() {
        // All tests even when one fails: a second failure is worth seeing too.
        let mut test = cargo(["test", "--no-fail-fast"]);
        // Unless the user has picked packages.
        if !arguments.iter().any(|argument| argument.starts_with("-p") || argument.starts_with("--package")) {
            test.arg("--workspace");
        }
        test.args(arguments);
        return run_all([test]);
    }
    let TestResults { failed, failed_beside_others } = executables::run()?;
    for one in failed_beside_others {
        println!(
            "failed beside others, and passed alone: {one}: its output is above, and says whether it was late or has a race"
        );
    }
    if failed.is_empty() {
        println!("all tests passed");
        return Ok(ExitCode::SUCCESS);
    }
    println!("failed:");
    failed.iter().for_each(|one| println!("  {one}"));
    Ok(ExitCode::FAILURE)
}

fn what_runs(root: bool, user_namespaces: impl FnOnce() -> bool) -> &'static str {
    if root {
        "Root: privileged tests run."
    } else if user_namespaces() {
        "Not root: tests that can do with a user namespace run in one; tests that need root say SKIPPED. \
         `sudo -E env PATH=$PATH cargo xtask test` runs all."
    } else {
        "Not root, and user namespaces are not allowed here: tests that need either say SKIPPED. \
         `sudo -E env PATH=$PATH cargo xtask test` runs all."
    }
}
