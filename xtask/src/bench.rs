//! Benchmarks of the crates.

use std::collections::BTreeMap;
use std::fs;
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::command::{BAD_INPUT, LACKING, cargo, root, run_all};
use crate::packages;

pub fn bench(name: Option<&str>, arguments: &[String]) -> Result<ExitCode> {
    let benches = benches()?;
    match name {
        Some(name) => match benches.get(name) {
            Some(package) => {
                if !packages::ensure(packages::BUILD)? {
                    return Ok(ExitCode::from(LACKING));
                }
                let mut bench = cargo(["bench", "--package", package, "--bench", name, "--"]);
                bench.args(arguments);
                run_all([bench])
            }
            None => {
                let names: Vec<_> = benches.into_keys().collect();
                eprintln!("no benchmark `{name}`: there are {}", names.join(", "));
                Ok(ExitCode::from(BAD_INPUT))
            }
        },
        None => {
            benches.keys().for_each(|name| println!("{name}"));
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// The files of the crates' benches directories, which is where cargo finds benchmarks too, and each one's crate.
fn benches() -> Result<BTreeMap<String, String>> {
    let mut benches = BTreeMap::new();
    let crates = root().join("crates");
    for package in fs::read_dir(&crates).with_context(|| format!("cannot read {}", crates.display()))? {
        let package = package?;
        let directory = package.path().join("benches");
        if !directory.exists() {
            continue;
        }
        for entry in fs::read_dir(&directory).with_context(|| format!("cannot read {}", directory.display()))? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "rs") {
                let package = package.file_name().to_string_lossy().into_owned();
                benches.extend(path.file_stem().map(|name| (name.to_string_lossy().into_owned(), package)));
            }
        }
    }
    Ok(benches)
}
