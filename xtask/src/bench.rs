//! Benchmarks of the crates.

use std::collections::BTreeMap;
use std::fs;
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::command::{BAD_INPUT, LACKING, cargo, root, run_all};
use crate::packages;

/// Of which several benchmarks are parts: the name, which is that of the last part, the parts, and the arguments of the
/// first unless there are others.
const WHOLE: (&str, [&str; 3], &str) = ("balancer", ["ladder", "cases", "balancer"], "8388608");

pub fn bench(name: Option<&str>, arguments: &[String]) -> Result<ExitCode> {
    let benches = benches()?;
    let Some(name) = name else {
        benches.keys().for_each(|name| println!("{name}"));
        return Ok(ExitCode::SUCCESS);
    };
    let (whole, parts, default) = WHOLE;
    let parts = if name == whole { &parts[..] } else { &[name] };
    let mut commands = Vec::new();
    for part in parts {
        let Some(package) = benches.get(*part) else {
            let names: Vec<_> = benches.into_keys().collect();
            eprintln!("no benchmark `{part}`: there are {}", names.join(", "));
            return Ok(ExitCode::from(BAD_INPUT));
        };
        let mut bench = cargo(["bench", "--package", package, "--bench", part, "--"]);
        if name != whole || *part == parts[0] {
            bench.args(arguments);
        }
        if name == whole && *part == parts[0] && arguments.is_empty() {
            bench.arg(default);
        }
        commands.push(bench);
    }
    let needs = if name == whole { [packages::BUILD, packages::BALANCER].concat() } else { packages::BUILD.to_vec() };
    if !packages::ensure(&needs)? {
        return Ok(ExitCode::from(LACKING));
    }
    run_all(commands)
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
