//! Links of the documents, and the source files that they name: each file and each heading that they lead to is there.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::command::root;

/// Messages about every link of a document that leads nowhere, and every source file that a document names and that does not exist.
pub fn faults() -> Result<Vec<String>> {
    let mut faults = Vec::new();
    let sources = sources()?;
    for file in documents()? {
        let text = fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
        let name = file.strip_prefix(root()).unwrap_or(&file).display().to_string();
        for (line, link) in links(&text) {
            if let Some(why) = broken(&file, &text, &link) {
                faults.push(format!("{name}:{line}: {link}: {why}"));
            }
        }
        // What has changed is told as it was.
        if name == "CHANGELOG.md" {
            continue;
        }
        for (line, source) in named_sources(&text) {
            if !is_there(source, &sources) {
                faults.push(format!("{name}:{line}: `{source}`: no such source file"));
            }
        }
    }
    Ok(faults)
}

/// Markdown at the top and below docs.
fn documents() -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![root().join("docs")];
    let top = fs::read_dir(root()).context("read the project's folder")?;
    found.extend(top.flatten().map(|entry| entry.path()).filter(|path| is_markdown(path)));
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("read {}", folder.display()))?.flatten() {
            match entry.path() {
                path if path.is_dir() => folders.push(path),
                path if is_markdown(&path) => found.push(path),
                _ => {}
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Every source file of the project.
pub fn sources() -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> = ["crates", "xtask", "fuzz"].map(|folder| root().join(folder)).into();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("read {}", folder.display()))?.flatten() {
            match entry.path() {
                path if path.is_dir() && !path.ends_with("target") => folders.push(path),
                path if is_source(&path) => found.push(path),
                _ => {}
            }
        }
    }
    Ok(found)
}

fn is_source(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "rs" || extension == "h")
}

/// Words between backticks that are source files, and the lines that they are on.
fn named_sources(text: &str) -> Vec<(usize, &str)> {
    let is_path = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '_' | '-' | '.');
    let words = |line| str::split(line, '`').skip(1).step_by(2);
    let named = prose(text).flat_map(|(number, line)| words(line).map(move |word| (number, word)));
    named.filter(|(_, word)| is_source(Path::new(word)) && word.chars().all(is_path)).collect()
}

/// `host/serve.rs` is any file of that name in such a folder.
fn is_there(source: &str, sources: &[PathBuf]) -> bool {
    sources.iter().any(|path| path.ends_with(source))
}

fn is_markdown(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "md")
}

/// Why a link leads nowhere. Addresses of the web are not asked.
fn broken(file: &Path, text: &str, link: &str) -> Option<String> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (path, heading) = link.split_once('#').map_or((link, None), |(path, heading)| (path, Some(heading)));
    let target = if path.is_empty() { file.to_owned() } else { file.parent()?.join(path) };
    if !target.exists() {
        return Some("no such file".to_owned());
    }
    let heading = heading?;
    let there = if path.is_empty() { text.to_owned() } else { fs::read_to_string(&target).ok()? };
    let known = anchors(&there);
    (!known.contains(heading)).then(|| format!("no heading #{heading} there"))
}

/// Lines outside of code blocks, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut code = false;
    text.lines().enumerate().filter_map(move |(number, line)| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        (!code && !fence).then_some((number + 1, line))
    })
}

/// What stands in `](...)`, in `[name]: ...` and in HTML's attributes, and the line that it is on.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        // Words between backticks are no links.
        let plain: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
        for after in plain.split("](").skip(1) {
            let target = after.split([')', ' ']).next().unwrap_or_default();
            found.push((number, target.to_owned()));
        }
        if let Some((_, target)) = line.strip_prefix('[').and_then(|rest| rest.split_once("]: ")) {
            found.push((number, target.split(' ').next().unwrap_or_default().to_owned()));
        }
        for attribute in ["href=\"", "src=\"", "srcset=\""] {
            let targets = plain.split(attribute).skip(1).filter_map(|after| after.split('"').next());
            found.extend(targets.map(|target| (number, target.to_owned())));
        }
    }
    found
}

/// The anchors that a forge makes of headings: small letters, spaces as hyphens, without other signs; a second one of the same
/// name has `-1`.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for (_, line) in prose(text) {
        let Some(heading) = line.strip_prefix('#').map(|rest| rest.trim_start_matches('#')) else { continue };
        let Some(heading) = heading.strip_prefix(' ') else { continue };
        let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
        let name: String =
            heading.trim().to_lowercase().chars().filter(kept).map(|c| if c == ' ' { '-' } else { c }).collect();
        let name =
            (0..).map(|n| if n == 0 { name.clone() } else { format!("{name}-{n}") }).find(|one| !anchors.contains(one));
        anchors.extend(name);
    }
    anchors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_are_found_as_forges_name_them() {
        let text = "# One `netrig` thing\n## Two, three\n```\n# no heading\n```\n## Two, three\n#none\n";
        let expected = ["one-netrig-thing", "two-three", "two-three-1"];
        assert_eq!(anchors(text).into_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_link_that_leads_nowhere_is_told() {
        let file = root().join("docs/TOP.md");
        let text =
            "# Top\n[a](#top) [b](#bottom) `[c](d)` [e](../README.md)\n[f](nothing.md) [g](https://example.org)\n";
        let broken: Vec<_> = links(text).into_iter().filter(|(_, link)| broken(&file, text, link).is_some()).collect();
        assert_eq!(broken, [(2, "#bottom".to_owned()), (3, "nothing.md".to_owned())]);
    }

    #[test]
    fn pictures_and_links_by_name_are_links_too() {
        let text = "<source srcset=\"a.svg\"><img src=\"b.svg\">\n[name]: c.md \"title\"\n`<a href=\"d\">`\n";
        let targets: Vec<_> = links(text).into_iter().map(|(line, target)| format!("{line} {target}")).collect();
        assert_eq!(targets, ["1 b.svg", "1 a.svg", "2 c.md"]);
    }

    #[test]
    fn source_files_that_are_named_are_looked_for() {
        let text = "`links.rs` and `src/links.rs`,\nnot `nowhere.rs` nor `lib/links.rs`; `a::b` and `struct bpf_map` are none\n";
        let sources = sources().unwrap();
        let missing: Vec<_> =
            named_sources(text).into_iter().filter(|(_, source)| !is_there(source, &sources)).collect();
        assert_eq!(missing, [(2, "nowhere.rs"), (2, "lib/links.rs")]);
    }

    #[test]
    fn every_link_of_the_documents_leads_somewhere() {
        let faults = faults().unwrap();
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }
}
