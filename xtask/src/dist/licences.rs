//! The licences of what the static binary is linked from, in one file, to be passed on with the binary.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use cargo_metadata::{CargoOpt, DependencyKind, Metadata, MetadataCommand, Package, PackageId, TargetKind};
use spdx::{AdditionItem, Expression, ParseMode};

use super::{TARGET, libraries};
use crate::command::root;

/// A work of others that is linked into the binary.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Work {
    name: String,
    /// An SPDX expression, or words.
    licence: String,
    authors: Vec<String>,
    /// What it says itself; nothing if it brings no text.
    texts: Vec<String>,
}

/// C sources inside of libbpf-sys: name, licence, and the files with its text.
const SOURCES: [(&str, &str, &[&str]); 3] = [
    (
        "libbpf (in libbpf-sys)",
        "BSD-2-Clause OR LGPL-2.1-only",
        &["libbpf/LICENSE", "libbpf/LICENSE.BSD-2-Clause", "libbpf/LICENSE.LGPL-2.1"],
    ),
    (
        "libelf of elfutils (in libbpf-sys)",
        "LGPL-3.0-or-later OR GPL-2.0-or-later",
        &["elfutils/COPYING", "elfutils/COPYING-LGPLV3", "elfutils/COPYING-GPLV2"],
    ),
    ("zlib (in libbpf-sys)", "Zlib", &["zlib/LICENSE"]),
];

/// Where distributions have musl's own words.
const MUSL: [&str; 3] =
    ["/usr/share/doc/musl-dev/copyright", "/usr/share/doc/musl/copyright", "/usr/share/licenses/musl-libc/COPYRIGHT"];

/// Writes the licences of all works to `file`, and names the works that bring no text.
pub fn write(file: &Path) -> Result<()> {
    let mut works = crates(&metadata()?)?;
    works.extend(sources(&libraries::sources()?)?);
    works.push(standard_library()?);
    works.push(musl()?);
    for work in &mut works {
        if work.texts.is_empty() {
            eprintln!(
                "warning: {} brings no licence text: the standard text of {} stands for it",
                work.name, work.licence
            );
            work.texts = standard_texts(work)?;
        }
    }
    fs::write(file, document(&works)).with_context(|| format!("write {}", file.display()))
}

fn metadata() -> Result<Metadata> {
    let mut command = MetadataCommand::new();
    command.manifest_path(root().join("Cargo.toml"));
    command.features(CargoOpt::SomeFeatures(vec!["netrig/bgp".to_owned(), "rig-datapath/static".to_owned()]));
    command.other_options(["--locked", "--filter-platform", TARGET].map(str::to_owned).to_vec());
    command.exec().context("ask cargo what netrig is built from")
}

/// Crates of others that are linked: those of builds and of macros are not.
fn crates(metadata: &Metadata) -> Result<Vec<Work>> {
    let resolve = metadata.resolve.as_ref().context("cargo resolves no dependencies")?;
    let packages: BTreeMap<&PackageId, &Package> = metadata.packages.iter().map(|one| (&one.id, one)).collect();
    let nodes: BTreeMap<&PackageId, _> = resolve.nodes.iter().map(|node| (&node.id, node)).collect();
    let netrig = metadata.workspace_packages().into_iter().find(|package| package.name.as_str() == "netrig");
    let mut open = vec![&netrig.context("the workspace has no netrig")?.id];
    let mut seen: BTreeSet<&PackageId> = open.iter().copied().collect();
    let mut works = Vec::new();
    while let Some(id) = open.pop() {
        let (Some(package), Some(node)) = (packages.get(id), nodes.get(id)) else { bail!("cargo knows no {id}") };
        if package.targets.iter().any(|target| target.kind.contains(&TargetKind::ProcMacro)) {
            continue;
        }
        if !metadata.workspace_members.contains(id) {
            works.push(of_crate(package)?);
        }
        let linked = node.deps.iter().filter(|one| one.dep_kinds.iter().any(|of| of.kind == DependencyKind::Normal));
        open.extend(linked.map(|one| &one.pkg).filter(|id| seen.insert(id)));
    }
    works.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(works)
}

fn of_crate(package: &Package) -> Result<Work> {
    let folder = package.manifest_path.parent().context("a manifest is in no folder")?;
    let mut files = texts_in(folder.as_std_path())?;
    if let Some(named) = package.license_file().map(PathBuf::from) {
        files.insert(named);
    }
    Ok(Work {
        name: format!("{} {}", package.name, package.version),
        licence: package.license.clone().unwrap_or_else(|| "see its text".to_owned()),
        authors: package.authors.clone(),
        texts: read(files)?,
    })
}

/// Files of a crate's folder that are named as licences are, and those in a folder of them.
fn texts_in(folder: &Path) -> Result<BTreeSet<PathBuf>> {
    const NAMES: [&str; 6] = ["licence", "license", "copying", "copyright", "notice", "unlicense"];
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        let path = entry.with_context(|| format!("read {}", folder.display()))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        if !NAMES.iter().any(|known| name.starts_with(known)) || name.ends_with(".rs") {
            continue;
        }
        if path.is_dir() {
            let inside = fs::read_dir(&path).with_context(|| format!("read {}", path.display()))?;
            found.extend(inside.flatten().map(|entry| entry.path()).filter(|path| path.is_file()));
        } else {
            found.insert(path);
        }
    }
    Ok(found)
}

fn read(files: impl IntoIterator<Item = PathBuf>) -> Result<Vec<String>> {
    let text = |file: PathBuf| {
        let bytes = fs::read(&file).with_context(|| format!("read {}", file.display()))?;
        // Names of authors may be in old encodings.
        Ok(String::from_utf8_lossy(&bytes).replace('\r', ""))
    };
    files.into_iter().map(text).collect()
}

fn sources(folder: &Path) -> Result<Vec<Work>> {
    let work = |(name, licence, files): (&str, &str, &[&str])| {
        let texts = read(files.iter().map(|file| folder.join(file)))?;
        Ok(Work { name: name.to_owned(), licence: licence.to_owned(), authors: Vec::new(), texts })
    };
    SOURCES.into_iter().map(work).collect()
}

/// rustc brings the words of its library and of the crates inside of it, as a page.
fn standard_library() -> Result<Work> {
    let rustc = Command::new("rustc").args(["--print", "sysroot"]).current_dir(root()).output();
    let sysroot = String::from_utf8_lossy(&rustc.context("cannot start rustc")?.stdout).trim().to_owned();
    let file = Path::new(&sysroot).join("share/doc/rust/COPYRIGHT-library.html");
    let page = fs::read_to_string(&file).with_context(|| format!("read {}, which rustup installs", file.display()))?;
    Ok(Work {
        name: "the Rust standard library, with the crates in it".to_owned(),
        licence: "MIT OR Apache-2.0, of some crates others".to_owned(),
        authors: Vec::new(),
        texts: vec![plain(&page)],
    })
}

fn musl() -> Result<Work> {
    let Some(file) = MUSL.map(PathBuf::from).into_iter().find(|file| file.is_file()) else {
        bail!("musl's licence is in none of {}: install musl's development package", MUSL.join(", "));
    };
    let name = "musl, the C library".to_owned();
    Ok(Work { name, licence: "MIT".to_owned(), authors: Vec::new(), texts: read([file])? })
}

/// What stands in a page, without its marks; empty lines once.
fn plain(page: &str) -> String {
    let body = page.split_once("<body>").map_or(page, |(_, body)| body);
    let mut text = String::new();
    let mut rest = body;
    while let Some((before, mark)) = rest.split_once('<') {
        text += before;
        rest = mark.split_once('>').map_or("", |(_, after)| after);
    }
    text += rest;
    for (name, letter) in [
        ("&#34;", "\""),
        ("&#39;", "'"),
        ("&quot;", "\""),
        ("&#60;", "<"),
        ("&lt;", "<"),
        ("&#62;", ">"),
        ("&gt;", ">"),
    ] {
        text = text.replace(name, letter);
    }
    // Last, or what it makes would be taken for one of the others.
    text = text.replace("&#38;", "&").replace("&amp;", "&");
    let mut lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines.dedup_by(|one, before| one.trim().is_empty() && before.trim().is_empty());
    lines.join("\n").trim().to_owned()
}

/// The texts that SPDX has of a work's licences, of which the work has none itself.
fn standard_texts(work: &Work) -> Result<Vec<String>> {
    let Ok(expression) = Expression::parse_mode(&work.licence, ParseMode::LAX) else {
        bail!("{} has no licence text, and SPDX does not know its licence, {}", work.name, work.licence);
    };
    let mut texts = Vec::new();
    for one in expression.requirements() {
        let Some(id) = one.req.license.id() else {
            bail!("{} has no licence text, and SPDX has none of {}", work.name, one.req);
        };
        texts.push(format!("{} ({}, the standard text)\n\n{}", id.full_name, id.name, id.text()));
        match &one.req.addition {
            None => {}
            Some(AdditionItem::Spdx(exception)) => {
                texts.push(format!("{} (the standard text)\n\n{}", exception.name, exception.text()));
            }
            Some(other) => bail!("{} has no licence text, and SPDX has none of {other}", work.name),
        }
    }
    Ok(texts)
}

/// Works with their licences, then each text once, with the works that it is of.
fn document(works: &[Work]) -> String {
    let mut page = String::from(
        "Licences of what netrig is linked from\n\nnetrig itself has the licences MIT and Apache-2.0, of which you may choose one. Its \
         static binary also\ncontains the works of others that follow; their texts stand below.\n\n",
    );
    for work in works {
        let by = if work.authors.is_empty() { String::new() } else { format!(", by {}", work.authors.join(", ")) };
        page += &format!("{}: {}{by}\n", work.name, work.licence);
    }
    // Line breaks and indents are of no meaning.
    let same = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut texts: Vec<(String, &str, Vec<&str>)> = Vec::new();
    for work in works {
        for text in &work.texts {
            let key = same(text);
            match texts.iter_mut().find(|(known, ..)| *known == key) {
                Some((.., of)) => of.push(&work.name),
                None => texts.push((key, text, vec![&work.name])),
            }
        }
    }
    for (_, text, of) in texts {
        page += &format!("\n{}\n{}:\n\n{}\n", "=".repeat(80), of.join(", "), text.trim_end());
    }
    page
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::*;

    fn work(name: &str, licence: &str, texts: &[&str]) -> Work {
        let texts = texts.iter().map(|text| (*text).to_owned()).collect();
        Work { name: name.into(), licence: licence.into(), authors: vec!["Ann".into()], texts }
    }

    #[test]
    fn each_text_stands_once_with_the_works_that_it_is_of() {
        let works = [
            work("a 1", "MIT OR Apache-2.0", &["Apache\n  licence", "MIT of a"]),
            work("b 2", "Apache-2.0", &["Apache licence\n"]),
        ];
        let page = document(&works);
        assert!(page.contains("\na 1: MIT OR Apache-2.0, by Ann\nb 2: Apache-2.0, by Ann\n"), "{page}");
        assert!(page.contains("=\na 1, b 2:\n\nApache\n  licence\n"), "{page}");
        assert!(page.contains("=\na 1:\n\nMIT of a\n"), "{page}");
        assert_eq!(page.matches("Apache").count(), 4, "{page}");
    }

    #[test]
    fn what_brings_no_text_has_the_standard_ones_or_is_refused() {
        let texts = standard_texts(&work("a 1", "MIT/Apache-2.0", &[])).unwrap();
        assert_eq!(texts.len(), 2);
        assert!(texts[0].contains("Permission is hereby granted, free of charge"), "{}", texts[0]);
        assert!(texts[1].contains("Apache License"), "{}", texts[1]);
        for unknown in ["see its text", "LicenseRef-mine"] {
            let error = standard_texts(&work("a 1", unknown, &[])).unwrap_err().to_string();
            assert!(error.contains("a 1 has no licence text") && error.contains(unknown), "{error}");
        }
    }

    #[test]
    fn texts_are_found_by_their_names() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["LICENSE-MIT", "Copying.txt", "NOTICE", "license.rs", "README.md", "lib.rs"] {
            fs::write(path(name), name).unwrap();
        }
        fs::create_dir(path("LICENSES")).unwrap();
        fs::write(path("LICENSES/zlib.txt"), "zlib").unwrap();
        let found: Vec<PathBuf> = texts_in(folder.path()).unwrap().into_iter().collect();
        assert_eq!(found, ["Copying.txt", "LICENSE-MIT", "LICENSES/zlib.txt", "NOTICE"].map(path));
    }

    #[test]
    fn a_page_is_read_as_text() {
        let page = "<head><title>no</title></head><body>\n<h1>It&#39;s</h1>\n\n \n<p>a &lt;b&gt; &amp;lt;</p></body>";
        assert_eq!(plain(page), "It's\n\na <b> &lt;");
    }

    #[test]
    fn what_is_linked_is_found_and_what_only_builds_is_not() {
        let works = crates(&metadata().unwrap()).unwrap();
        let has = |name: &str| works.iter().any(|work| work.name.starts_with(&format!("{name} ")));
        for linked in ["clap", "libbpf-sys", "libsqlite3-sys", "inferno", "serde"] {
            assert!(has(linked), "no {linked}");
        }
        for other in ["netrig", "rig-stats", "spdx", "cc", "serde_derive", "insta", "libbpf-cargo"] {
            assert!(!has(other), "{other} is not linked, or is ours");
        }
        for work in works.iter().filter(|work| work.texts.is_empty()) {
            standard_texts(work).unwrap();
        }
    }
}
