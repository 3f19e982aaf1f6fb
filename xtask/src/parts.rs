//! Parts of documents that programs write, between markers.

use std::fs;

use anyhow::{Context, Result, bail};

use crate::command::root;

/// Writes `text` between the markers of `part`, of which `command` says that it writes it.
pub fn write(page: &str, part: &str, command: &str, text: &str) -> Result<()> {
    let path = root().join(page);
    let old = fs::read_to_string(&path).with_context(|| format!("read {page}"))?;
    let new = replace(&old, part, command, text).with_context(|| format!("write into {page}"))?;
    fs::write(&path, new).with_context(|| format!("write {page}"))
}

fn replace(text: &str, part: &str, command: &str, with: &str) -> Result<String> {
    let begin = format!("<!-- {part}: written by `{command}` -->\n");
    let end = format!("<!-- end of {part} -->");
    let Some((before, rest)) = text.split_once(&begin) else { bail!("there is no line {begin}") };
    let Some((_, after)) = rest.split_once(&end) else { bail!("there is no line {end}") };
    Ok(format!("{before}{begin}\n{}\n\n{end}{after}", with.trim()))
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// The page has the markers of all these parts.
    pub fn has(page: &str, command: &str, parts: &[&str]) {
        let text = fs::read_to_string(root().join(page)).unwrap();
        for part in parts {
            let once = replace(&text, part, command, "new").unwrap();
            assert_eq!(replace(&once, part, command, "new").unwrap(), once);
        }
    }

    #[test]
    fn a_part_is_replaced_and_the_rest_stays() {
        let text = "a\n<!-- x: written by `w` -->\nold\n<!-- end of x -->\nb\n";
        let new = replace(text, "x", "w", "new\n").unwrap();
        assert_eq!(new, "a\n<!-- x: written by `w` -->\n\nnew\n\n<!-- end of x -->\nb\n");
        for (text, lacking) in [("a", "x: written by `w`"), ("<!-- x: written by `w` -->\n", "end of x")] {
            assert!(replace(text, "x", "w", "new").unwrap_err().to_string().contains(lacking));
        }
    }
}
