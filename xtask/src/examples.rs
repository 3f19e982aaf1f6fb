//! Documentation comments have no examples in Rust: cargo builds them in a round of its own, with other features than the workspace's, so that all
//! of a crate's dependencies are compiled and kept a second time. What shall be tried is a test, or a program in `examples/`, which the comment links to.

use std::fs;

use anyhow::{Context, Result};

use crate::links::sources;

/// What a block may be called whose text rustdoc takes for Rust.
const RUST: [&str; 6] = ["rust", "no_run", "ignore", "should_panic", "compile_fail", "test_harness"];

/// A line for each file that has one.
pub fn faults() -> Result<Vec<String>> {
    let mut faults = Vec::new();
    for path in sources()?.iter().filter(|path| path.extension().is_some_and(|extension| extension == "rs")) {
        let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        if has_example(&text) {
            faults.push(format!(
                "{}: a documentation comment has an example in Rust, which no test compiles: write a test or a program in examples/, and \
                 link to it",
                path.display()
            ));
        }
    }
    Ok(faults)
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
}
