//! Benchmarks of the netrig crate.

use std::fs;
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::command::{BAD_INPUT, cargo, root, run_all};

pub fn bench(name: Option<&str>, arguments: &[String]) -> Result<ExitCode> {
    let names = names()?;
    match name {
        Some(name) if names.iter().any(|known| known == name) => {
            let mut bench = cargo(["bench", "--package", "netrig", "--bench", name, "--"]);
            bench.args(arguments);
            run_all([bench])
        }
        Some(name) => {
            eprintln!("no benchmark `{name}`: there are {}", names.join(", "));
            Ok(ExitCode::from(BAD_INPUT))
        }
        None => {
            names.iter().for_each(|name| println!("{name}"));
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// The files of the benches directory, which is where cargo finds benchmarks too.
fn names() -> Result<Vec<String>> {
    let directory = root().join("crates/netrig/benches");
    if !directory.exists() {
        return Ok(Vec::new());
    }
    let mut names = Vec::new();
    for entry in fs::read_dir(&directory).with_context(|| format!("cannot read {}", directory.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            names.extend(path.file_stem().map(|name| name.to_string_lossy().into_owned()));
        }
    }
    names.sort();
    Ok(names)
}
