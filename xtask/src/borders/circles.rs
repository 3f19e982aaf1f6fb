//! Which top-level modules of a crate use each other in a circle.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result, anyhow};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

type Uses = BTreeMap<String, BTreeSet<String>>;

/// The circles of the crate whose root is `file`, without its tests: the modules of each.
pub fn of(file: &Path) -> Result<Vec<BTreeSet<String>>> {
    let root = tokens(file)?;
    let directory = file.parent().context("a file without a directory")?;
    let modules = declared(&root);
    let exported = exported(&root, &modules);
    let mut uses = Uses::new();
    for module in &modules {
        let mut files = Vec::new();
        let alone = directory.join(format!("{module}.rs"));
        if alone.is_file() {
            files.push((alone, 1));
        }
        collect(&directory.join(module), 1, &mut files)?;
        let used = uses.entry(module.clone()).or_default();
        for (file, depth) in files {
            let mut names = BTreeSet::new();
            from_root(tokens(&file)?, depth, &mut names);
            let found = names.into_iter().filter_map(|name| match modules.contains(&name) {
                true => Some(name),
                false => exported.get(&name).cloned(),
            });
            used.extend(found.filter(|other| other != module));
        }
    }
    Ok(circles(&uses))
}

fn tokens(file: &Path) -> Result<TokenStream> {
    let text = fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
    TokenStream::from_str(&text).map_err(|error| anyhow!("read {} as Rust: {error}", file.display()))
}

/// Files of a module's directory, with how deep below the crate's root what they say stands.
fn collect(directory: &Path, depth: usize, files: &mut Vec<(PathBuf, usize)>) -> Result<()> {
    let Ok(entries) = fs::read_dir(directory) else { return Ok(()) };
    for entry in entries {
        let path = entry.with_context(|| format!("read {}", directory.display()))?.path();
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
        if name == "tests" {
            continue;
        }
        if path.is_dir() {
            collect(&path, depth + 1, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push((path.clone(), if name == "mod" { depth } else { depth + 1 }));
        }
    }
    Ok(())
}

fn is(tree: Option<&TokenTree>, text: &str) -> bool {
    match tree {
        Some(TokenTree::Ident(ident)) => ident == text,
        Some(TokenTree::Punct(punct)) => text.len() == 1 && text.starts_with(punct.as_char()),
        _ => false,
    }
}

fn name(tree: Option<&TokenTree>) -> Option<String> {
    match tree {
        Some(TokenTree::Ident(ident)) => Some(ident.to_string()),
        _ => None,
    }
}

/// Modules in files of their own.
fn declared(root: &TokenStream) -> BTreeSet<String> {
    let all: Vec<TokenTree> = root.clone().into_iter().collect();
    let modules = all.windows(3).filter(|three| is(three.first(), "mod") && is(three.get(2), ";"));
    modules.filter_map(|three| name(three.get(1))).filter(|name| name != "tests").collect()
}

/// What the crate's root calls by its name from one of the modules, and that module.
fn exported(root: &TokenStream, modules: &BTreeSet<String>) -> BTreeMap<String, String> {
    let all: Vec<TokenTree> = root.clone().into_iter().collect();
    let mut exported = BTreeMap::new();
    for (at, _) in all.iter().enumerate().filter(|(_, tree)| is(Some(tree), "use")) {
        let rest = all[at + 1..].iter().take_while(|tree| !is(Some(tree), ";"));
        let mut names = Vec::new();
        idents(&rest.cloned().collect(), &mut names);
        let from = names.iter().find(|name| *name != "self" && *name != "crate").cloned();
        if let Some(from) = from.filter(|from| modules.contains(from)) {
            exported.extend(names.into_iter().map(|name| (name, from.clone())));
        }
    }
    exported
}

fn idents(stream: &TokenStream, names: &mut Vec<String>) {
    for tree in stream.clone() {
        match tree {
            TokenTree::Ident(ident) => names.push(ident.to_string()),
            TokenTree::Group(group) => idents(&group.stream(), names),
            _ => {}
        }
    }
}

/// The first names of all paths that begin at the crate's root, seen from so deep below it.
fn from_root(stream: TokenStream, depth: usize, names: &mut BTreeSet<String>) {
    let all: Vec<TokenTree> = stream.into_iter().collect();
    let path = |at: usize| is(all.get(at), ":") && is(all.get(at + 1), ":");
    let mut at = 0;
    while at < all.len() {
        if is(all.get(at), "#") && is_of_tests(all.get(at + 1)) {
            // `pub` and `pub(crate)` may come before.
            let public = usize::from(is(all.get(at + 2), "pub"));
            let within = usize::from(public > 0 && matches!(all.get(at + 3), Some(TokenTree::Group(_))));
            let item = at + 2 + public + within;
            if is(all.get(item), "mod") {
                at = item + 3;
                continue;
            }
        }
        if is(all.get(at), "mod")
            && let Some(TokenTree::Group(inner)) = all.get(at + 2)
        {
            from_root(inner.stream(), depth + 1, names);
            at += 3;
            continue;
        }
        let begins = is(all.get(at), "crate") || is(all.get(at), "super");
        if begins && path(at + 1) {
            let mut up = if is(all.get(at), "crate") { depth } else { 1 };
            at += 3;
            while is(all.get(at), "super") && path(at + 1) {
                up += 1;
                at += 3;
            }
            if up == depth {
                first_names(all.get(at), names);
            }
            continue;
        }
        if let TokenTree::Group(group) = &all[at] {
            from_root(group.stream(), depth, names);
        }
        at += 1;
    }
}

/// `[cfg(test)]`
fn is_of_tests(tree: Option<&TokenTree>) -> bool {
    tree.is_some_and(|tree| tree.to_string().replace(' ', "") == "[cfg(test)]")
}

/// A name, or the first of each path in braces.
fn first_names(tree: Option<&TokenTree>, names: &mut BTreeSet<String>) {
    match tree {
        Some(TokenTree::Ident(ident)) => {
            names.insert(ident.to_string());
        }
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
            let mut begins = true;
            for tree in group.stream() {
                if begins {
                    names.extend(name(Some(&tree)));
                }
                begins = is(Some(&tree), ",");
            }
        }
        _ => {}
    }
}

/// Sets of modules of which each can be reached from each other one.
fn circles(uses: &Uses) -> Vec<BTreeSet<String>> {
    let reached = |from: &str| {
        let (mut reached, mut open) = (BTreeSet::new(), vec![from.to_owned()]);
        while let Some(module) = open.pop() {
            let next = uses.get(&module).into_iter().flatten();
            open.extend(next.filter(|next| reached.insert((*next).clone())).cloned());
        }
        reached
    };
    let reached: BTreeMap<&String, BTreeSet<String>> = uses.keys().map(|module| (module, reached(module))).collect();
    let mut circles = BTreeSet::new();
    for (module, others) in reached.iter().filter(|(module, others)| others.contains(**module)) {
        let back = others.iter().filter(|other| reached.get(other).is_some_and(|all| all.contains(*module)));
        circles.insert(back.cloned().collect::<BTreeSet<String>>());
    }
    circles.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str, depth: usize) -> Vec<String> {
        let mut names = BTreeSet::new();
        from_root(text.parse().expect("it is Rust"), depth, &mut names);
        names.into_iter().collect()
    }

    #[test]
    fn paths_from_the_root_are_found_wherever_they_stand() {
        assert_eq!(names("use crate::a::B; fn f() -> crate::c::D { vec![crate::e::f()] }", 1), ["a", "c", "e"]);
        assert_eq!(names("use crate::{a, b::{c, d}, e as f};", 1), ["a", "b", "e"]);
        assert_eq!(names("use super::a::B; use super::super::c; use self::d;", 1), ["a"]);
        assert_eq!(names("use super::a::B; use super::super::c;", 2), ["c"]);
        assert_eq!(names("mod inner { use super::a; use super::super::b; }", 1), ["b"]);
        for public in ["", "pub", "pub(crate)"] {
            let text = format!("#[cfg(test)] {public} mod tests {{ use crate::a; }} use crate::b;");
            assert_eq!(names(&text, 1), ["b"], "{public}");
        }
        // Neither words nor other crates' paths.
        assert!(names("/// crate::a\nfn f() { \"crate::b\"; std::c::d() }", 1).is_empty());
    }

    #[test]
    fn circles_are_found_and_chains_are_not() {
        let uses = |all: &[(&str, &[&str])]| -> Uses {
            let one = |(of, used): &(&str, &[&str])| ((*of).to_owned(), used.iter().map(ToString::to_string).collect());
            all.iter().map(one).collect()
        };
        assert!(circles(&uses(&[("a", &["b", "c"]), ("b", &["c"]), ("c", &[])])).is_empty());
        let found =
            circles(&uses(&[("a", &["b"]), ("b", &["c"]), ("c", &["a"]), ("d", &["a"]), ("e", &["f"]), ("f", &["e"])]));
        let found: Vec<Vec<&str>> = found.iter().map(|circle| circle.iter().map(String::as_str).collect()).collect();
        assert_eq!(found, [vec!["a", "b", "c"], vec!["e", "f"]]);
    }
}
