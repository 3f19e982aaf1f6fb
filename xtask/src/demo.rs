//! From a fresh machine to an answer and a report by one command.

use std::fs;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::command::{LACKING, cargo, code, run, target};
use crate::packages;

pub fn demo() -> Result<ExitCode> {
    if !packages::ensure(packages::BUILD)? {
        return Ok(ExitCode::from(LACKING));
    }
    let netrig = target().join("release/netrig");
    if !netrig.exists() {
        eprintln!(
            "Now cargo builds netrig, about 6 minutes with 2 CPUs, and lists what it compiles. Then `netrig run layers \
             --quick` measures for a minute and prints its answer."
        );
    }
    let built = run(&mut cargo(["build", "--release", "--package", "netrig"]))?;
    if !built.success() {
        return Ok(code(built));
    }
    let ran = run(Command::new(&netrig).args(["run", "layers", "--quick"]))?;
    if !ran.success() {
        eprintln!("`{} doctor` tells what this machine lacks", netrig.display());
        return Ok(code(ran));
    }
    let directory = target().join("demo");
    fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
    let html = directory.join("layers.html");
    let reported = run(Command::new(&netrig).args(["report", "latest", "--format", "html", "--output"]).arg(&html))?;
    if !reported.success() {
        return Ok(code(reported));
    }
    println!("\nWith charts and tables, as a page: {}", html.display());
    println!(
        "`netrig` above is {}; to have it on PATH: cargo install --locked --profile dist --path crates/netrig",
        netrig.display()
    );
    Ok(ExitCode::SUCCESS)
}
