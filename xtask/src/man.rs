//! Man pages, which netrig writes from its command line.

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::Result;

use crate::command::{LACKING, cargo, code, epoch, run, target};
use crate::packages;

pub fn man() -> Result<ExitCode> {
    if !packages::ensure(packages::BUILD)? {
        return Ok(ExitCode::from(LACKING));
    }
    let built = run(&mut cargo(["build", "--package", "netrig"]))?;
    if !built.success() {
        return Ok(code(built));
    }
    let directory = target().join("man");
    let written = write(&target().join("debug/netrig"), &directory)?;
    if written {
        println!("Written to {0}: man -l {0}/netrig.1", directory.display());
    }
    Ok(if written { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Has the program write its pages; false when it could not.
pub fn write(netrig: &Path, directory: &Path) -> Result<bool> {
    let mut man = Command::new(netrig);
    // Pages have the day of the sources where it is known.
    if let Ok(epoch) = epoch() {
        man.env("SOURCE_DATE_EPOCH", epoch);
    }
    Ok(run(man.arg("man").arg(directory))?.success())
}
