//! Examples in documentation comments: which crates have some. rustdoc reads the whole of a crate to find that it has none.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result};

use crate::command::root;
use crate::links::sources;

/// What a block may be called whose text rustdoc takes for Rust.
const RUST: [&str; 6] = ["rust", "no_run", "ignore", "should_panic", "compile_fail", "test_harness"];

/// The names of the crates, which are those of their folders.
pub fn crates() -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for path in sources()?.iter().filter(|path| path.extension().is_some_and(|extension| extension == "rs")) {
        let Ok(inside) = path.strip_prefix(root().join("crates")) else { continue };
        let mut parts = inside.iter();
        let (Some(name), Some(folder)) = (parts.next(), parts.next()) else { continue };
        if folder != "src" {
            continue;
        }
        let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        if has_example(&text) {
            names.insert(name.to_string_lossy().into_owned());
        }
    }
    Ok(names)
}

fn has_example(text: &str) -> bool {
    let comments = text.lines().filter_map(|line| {
        let line = line.trim_start();
        line.strip_prefix("//!").or_else(|| line.strip_prefix("///"))
    });
    let mut is_inside = false;
    for fence in comments.filter_map(|comment| comment.trim_start().strip_prefix("```")) {
        is_inside = !is_inside;
        let mut words = fence.split([',', ' ']).filter(|word| !word.is_empty());
        if is_inside && words.all(|word| RUST.contains(&word) || word.starts_with("edition")) {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_example_is_a_block_that_rustdoc_takes_for_rust() {
        for example in ["//! ```\n//! f();\n//! ```", "    /// ```no_run\n    /// ```", "/// ```rust,ignore\n"] {
            assert!(has_example(example), "{example}");
        }
        for other in ["//! ```text\n//! a ── b\n//! ```\nfn f() {}", "/// ```toml\n/// ```\n", "// ```\n", "//! `f`"]
        {
            assert!(!has_example(other), "{other}");
        }
    }

    #[test]
    fn the_driver_of_workers_has_one() {
        assert!(crates().unwrap().contains("rig-load"));
    }
}
