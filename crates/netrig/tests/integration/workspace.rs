//! What no file of the project may contain.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Every file of the repository, as git knows it; `None` outside a repository, such as in an unpacked archive.
fn files() -> Option<Vec<PathBuf>> {
    let output = Command::new("git").args(["ls-files", "-z"]).current_dir(root()).output().ok()?;
    let names = String::from_utf8(output.stdout).ok()?;
    let files: Vec<_> = names.split_terminator('\0').map(|name| root().join(name)).collect();
    (output.status.success() && !files.is_empty()).then_some(files)
}

/// A test that prints by itself that it was not made is not seen where all tests are required.
#[test]
fn tests_are_skipped_in_one_way_only() {
    let Some(files) = files() else {
        return rig_skip::skip(rig_skip::Lack::Repository, "not a git repository, no list of files");
    };
    let (crates, own) = (root().join("crates"), root().join("crates/rig-skip"));
    // Put together here, or this file would be the first to be found.
    let ways = [
        "\"SKIP".to_owned() + "PED",
        " SKIP".to_owned() + "PED",
        "\"skip".to_owned() + "ped",
        "fn sk".to_owned() + "ip(",
    ];
    let mut found = Vec::new();
    let is_test = |file: &Path| file.extension().is_some_and(|e| e == "rs") && !file.starts_with(&own);
    for file in files.iter().filter(|file| file.starts_with(&crates) && is_test(file)) {
        let Ok(text) = fs::read_to_string(file) else { continue };
        for (number, line) in text.lines().enumerate() {
            let by_itself = ways.iter().any(|way| line.contains(way.as_str()));
            found.extend(by_itself.then(|| format!("{}:{}: {}", file.display(), number + 1, line.trim())));
        }
    }
    assert!(found.is_empty(), "use rig_skip::skip in:\n{}", found.join("\n"));
}

/// Advice about rights comes from `rig_sys::advice`, which knows whether the user is root already: root may lack rights, too.
#[test]
fn what_to_do_about_a_lack_of_rights_is_said_in_one_place() {
    let Some(files) = files() else {
        return rig_skip::skip(rig_skip::Lack::Repository, "not a git repository, no list of files");
    };
    let advice = root().join("crates/rig-sys/src/advice.rs");
    let is_source = |file: &&PathBuf| {
        let inside = file.strip_prefix(root().join("crates")).ok().and_then(|inside| inside.to_str());
        inside.is_some_and(|inside| inside.contains("/src/") && inside.ends_with(".rs")) && **file != advice
    };
    let mut found = Vec::new();
    for file in files.iter().filter(is_source) {
        let Ok(text) = fs::read_to_string(file) else { continue };
        let told = |line: &&str| line.contains("run netrig as root") || line.contains("needs root, or");
        let lines = text.lines().map(str::trim).filter(|line| !line.starts_with("//")).filter(told);
        found.extend(lines.map(|line| format!("{}: {line}", file.display())));
    }
    assert!(found.is_empty(), "use rig_sys::advice::rights in:\n{}", found.join("\n"));
}

#[test]
fn no_file_names_a_place_on_somebodys_machine() {
    let Some(files) = files() else {
        return rig_skip::skip(rig_skip::Lack::Repository, "not a git repository, no list of files");
    };
    // Put together here, or this file would be the first to be found.
    let namespaces = ["/work", "/root", "/home/runner", "/Users"].map(|place| format!("{place}/"));
    let mut found = Vec::new();
    for file in files {
        // A file that git knows and that has been removed, or one that is no text, has no lines to look at.
        let Ok(text) = fs::read_to_string(&file) else { continue };
        for (number, line) in text.lines().enumerate() {
            let here = namespaces.iter().filter(|place| line.contains(place.as_str()));
            found.extend(here.map(|place| format!("{}:{}: {place}", file.display(), number + 1)));
        }
    }
    assert!(found.is_empty(), "machine paths in:\n{}", found.join("\n"));
}
