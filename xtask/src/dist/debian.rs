//! What Debian's packages say of themselves: the copyright file in its form (DEP-5), and their own changelog.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::LICENCES;
use crate::command::{epoch, root};

/// Writes `changelog.Debian`: what changes is told by netrig's own changelog.
pub fn write_changelog(folder: &Path) -> Result<()> {
    let date = Command::new("date")
        .args(["--utc", "--rfc-email", "--date", &format!("@{}", epoch()?)])
        .env("LC_ALL", "C")
        .output();
    let date = date.context("cannot start date")?;
    if !date.status.success() {
        bail!("date: {}", String::from_utf8_lossy(&date.stderr).trim());
    }
    let text = changelog(env!("CARGO_PKG_VERSION"), String::from_utf8_lossy(&date.stdout).trim());
    fs::write(folder.join("changelog.Debian"), text).context("write changelog.Debian")
}

/// cargo-deb calls the first package of a version its revision 1.
fn changelog(version: &str, date: &str) -> String {
    format!(
        "netrig ({version}-1) unstable; urgency=medium\n\n  * Version {version}: changelog.gz has what is new.\n\n -- The netrig \
         authors <>  {date}\n"
    )
}

/// Writes `copyright`.
pub fn write_copyright(folder: &Path) -> Result<()> {
    let mit = fs::read_to_string(root().join("LICENSE-MIT")).context("read LICENSE-MIT")?;
    fs::write(folder.join("copyright"), copyright(&mit)).context("write copyright")
}

/// The first lines of LICENSE-MIT are its title and whose it is; what follows are the terms.
fn copyright(mit: &str) -> String {
    let holders: Vec<&str> = mit.lines().filter_map(|line| line.strip_prefix("Copyright (c) ")).collect();
    let terms = mit
        .split_once("Permission is hereby")
        .map_or_else(String::new, |(_, rest)| format!("Permission is hereby{rest}"));
    let terms = terms.trim_end().lines().map(|line| if line.is_empty() { " .".to_owned() } else { format!(" {line}") });
    let terms: Vec<String> = terms.collect();
    format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: netrig
Comment:
 The program is linked statically. The licences of the works of others in it
 are in /usr/share/doc/netrig/{LICENCES}.gz.

Files: *
Copyright: {holders}
License: MIT or Apache-2.0

License: MIT
{terms}

License: Apache-2.0
 On Debian systems the whole text of the Apache License, version 2.0, is in
 /usr/share/common-licenses/Apache-2.0.
",
        holders = holders.join("\n "),
        terms = terms.join("\n"),
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::*;

    #[test]
    fn the_changelog_has_version_and_date() {
        let text = changelog("1.2.3", "Thu, 01 Jan 1970 00:00:00 +0000");
        let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
        assert_eq!(lines[0], "netrig (1.2.3-1) unstable; urgency=medium");
        assert!(lines[1].starts_with("  * "), "{text}");
        assert_eq!(lines[2], " -- The netrig authors <>  Thu, 01 Jan 1970 00:00:00 +0000");
    }

    #[test]
    fn both_licences_are_named_and_all_terms_are_there() {
        let mit = fs::read_to_string(root().join("LICENSE-MIT")).unwrap();
        let text = copyright(&mit);
        assert!(text.contains("\nCopyright: 2026 ") && text.contains("\nLicense: MIT or Apache-2.0\n"), "{text}");
        for (name, first) in [("MIT", "Permission is hereby granted"), ("Apache-2.0", "On Debian systems")] {
            assert!(text.contains(&format!("\nLicense: {name}\n {first}")), "{text}");
        }
        let words = |text: &str| text.split_whitespace().filter(|word| *word != ".").count();
        let terms = text.split_once("License: MIT\n").unwrap().1.split_once("\n\nLicense").unwrap().0;
        let own = mit.split_once("Permission").unwrap().1;
        assert_eq!(words(terms), words(own) + 1, "{terms}");
        // A paragraph ends at an empty line, so that a licence's own is a dot.
        assert!(!terms.contains("\n\n") && terms.contains("\n .\n"), "{terms}");
    }
}
