//! Benchmarks of the crates.

use std::collections::BTreeMap;
use std::fs;
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::command::{BAD_INPUT, LACKING, cargo, root, run_all};
use crate::packages;

/// Several benchmarks under one name, which is that of one of them.
struct BenchSet {
    name: &'static str,
    parts: &'static [&'static str],
    /// Arguments of the first part, unless there are others.
    default: Option<&'static str>,
    /// Beyond those that every build needs.
    needs: &'static [packages::Dependency],
}

const WHOLES: [BenchSet; 4] = [
    BenchSet {
        name: "balancer",
        parts: &["stages", "cases", "balancer"],
        default: Some("8388608"),
        needs: packages::BALANCER,
    },
    BenchSet { name: "spreading", parts: &["spreading", "plan"], default: None, needs: &[] },
    BenchSet { name: "overlay", parts: &["overlay", "vrouter", "scale"], default: None, needs: &[] },
    BenchSet { name: "packets", parts: &["packets", "dperf"], default: None, needs: &[] },
];

pub fn bench(name: Option<&str>, arguments: &[String]) -> Result<ExitCode> {
    let benches = benches()?;
    let Some(name) = name else {
        benches.keys().for_each(|name| println!("{name}"));
        return Ok(ExitCode::SUCCESS);
    };
    let is_number = |argument: &String| argument.parse::<f64>().is_ok();
    // What chooses among the cases of the first part is for that one alone, when it has the name.
    let whole = WHOLES.iter().find(|whole| whole.name == name);
    let whole = whole.filter(|whole| whole.parts[0] != name || arguments.iter().all(is_number));
    let alone = [name];
    let parts = whole.map_or(&alone[..], |whole| whole.parts);
    let mut commands = Vec::new();
    for part in parts {
        let Some(package) = benches.get(*part) else {
            let names: Vec<_> = benches.into_keys().collect();
            eprintln!("no benchmark `{part}`: there are {}", names.join(", "));
            return Ok(ExitCode::from(BAD_INPUT));
        };
        let mut bench = cargo(["bench", "--package", package, "--bench", part, "--"]);
        if *part == parts[0] {
            bench.args(arguments);
            bench.args(whole.and_then(|whole| whole.default).filter(|_| arguments.is_empty()));
        }
        commands.push(bench);
    }
    let needs = [packages::BUILD, whole.map_or(&[][..], |whole| whole.needs)].concat();
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
