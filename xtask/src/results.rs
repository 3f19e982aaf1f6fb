//! docs/RESULTS.md: what the suites found on the machine that wrote it.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode, ExitStatus, Stdio};

use anyhow::{Context, Result, bail};

use crate::command::{BAD_INPUT, cargo, code, run, target};
use crate::parts;

const PAGE: &str = "docs/RESULTS.md";
const COMMAND: &str = "cargo xtask results";

/// The suites of the page, and how they are run: all of them within half an hour.
const SUITES: [(&str, Extent, &[&str]); 5] = [
    ("layers", Extent::Tables, &["--budget", "5m"]),
    ("namespaces", Extent::Answer, &["--budget", "4m"]),
    ("overlay", Extent::Answer, &["--quick"]),
    ("balancer", Extent::Answer, &["--quick"]),
    ("spreading", Extent::Answer, &["--quick"]),
];

/// How much of a report the page has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// Its answer and first chart.
    Answer,
    /// Claims and tables, too.
    Tables,
}

/// Runs one suite or all of them, unless `stored` says that the last run's will do, and writes what they found into the page. The whole
/// report of each is beside its store.
pub fn results(suite: Option<&str>, stored: bool) -> Result<ExitCode> {
    let chosen: Vec<_> = SUITES.iter().filter(|(name, ..)| suite.is_none_or(|suite| suite == *name)).collect();
    if chosen.is_empty() {
        eprintln!("{PAGE} has no such suite; it has {}", SUITES.map(|(name, ..)| name).join(", "));
        return Ok(ExitCode::from(BAD_INPUT));
    }
    let built = build()?;
    if !built.success() {
        return Ok(code(built));
    }
    for (suite, extent, arguments) in chosen {
        if !stored {
            netrig(suite, &[&["run", suite], *arguments].concat())?;
        }
        let report = netrig(suite, &["report", "--format", "markdown"])?;
        let whole = store(suite).with_extension("md");
        fs::write(&whole, &report).with_context(|| format!("write {}", whole.display()))?;
        parts::write(PAGE, suite, COMMAND, &shown(&command(suite, arguments), &report, *extent)?)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn command(suite: &str, arguments: &[&str]) -> String {
    format!("netrig run {suite} {}", arguments.join(" "))
}

/// The program as users have it.
pub fn build() -> Result<ExitStatus> {
    run(&mut cargo(["build", "--release", "--package", "netrig"]))
}

pub fn program() -> PathBuf {
    target().join("release/netrig")
}

/// A store of its own for each suite: no other run can be the latest.
pub fn store(suite: &str) -> PathBuf {
    target().join("results").join(format!("{suite}.sqlite"))
}

/// What netrig writes on standard output, with the suite's store.
pub fn netrig(suite: &str, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program())
        .args(arguments)
        .env("NETRIG_STORE", store(suite))
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot run {}", program().display()))?;
    if !output.status.success() {
        bail!("netrig {} ended with {}", arguments.join(" "), output.status);
    }
    String::from_utf8(output.stdout).context("read what netrig wrote")
}

/// Where a report leaves its answers for what is looked up.
const LOOKED_UP: [&str; 3] = ["## Charts", "## Doubts", "## Scenarios"];

/// The command, and what the Markdown report of its run answers: all before its charts, without its title; what stands
/// below a heading is folded, and has no blocks of text.
fn shown(command: &str, report: &str, extent: Extent) -> Result<String> {
    let (_, body) = report.split_once("\n\n").context("the report has no title")?;
    let mut kept = vec![format!("`{command}`")];
    let mut below_heading = false;
    let mut paragraphs = paragraphs(body).into_iter().peekable();
    while let Some(paragraph) = paragraphs.next() {
        let is_beyond = extent == Extent::Answer && paragraph.starts_with("## ");
        if is_beyond || LOOKED_UP.contains(&paragraph.as_str()) {
            below_heading |= is_beyond;
            break;
        }
        if let Some(heading) = paragraph.strip_prefix("## ") {
            if below_heading {
                kept.push("</details>".to_owned());
            }
            below_heading = true;
            kept.push(format!("<details>\n<summary>{heading}</summary>"));
            continue;
        }
        let is_block = |text: &str| text.starts_with("```");
        let is_caption = paragraphs.peek().is_some_and(|next| is_block(next));
        // What tables say alike is said once.
        let is_said = !paragraph.starts_with(['|', '*']) && kept.contains(&paragraph);
        if below_heading && (is_block(&paragraph) || is_caption || is_said) {
            continue;
        }
        kept.push(paragraph);
    }
    if !below_heading {
        bail!("the report has nothing below its answer");
    }
    if extent == Extent::Tables {
        kept.push("</details>".to_owned());
    }
    Ok(kept.join("\n\n"))
}

/// Paragraphs; a block of text is one.
fn paragraphs(text: &str) -> Vec<String> {
    let mut paragraphs: Vec<String> = Vec::new();
    let mut inside = false;
    for paragraph in text.split("\n\n").map(|one| one.trim_matches('\n')) {
        match paragraphs.last_mut().filter(|_| inside) {
            Some(last) => last.push_str(&format!("\n\n{paragraph}")),
            None => paragraphs.push(paragraph.to_owned()),
        }
        inside ^= paragraph.lines().filter(|line| line.starts_with("```")).count() % 2 == 1;
    }
    paragraphs.retain(|one| !one.is_empty());
    paragraphs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_its_markers() {
        parts::tests::has(PAGE, COMMAND, &SUITES.map(|(name, ..)| name));
    }

    #[test]
    fn a_report_is_shown_up_to_its_charts() {
        let report = "# T\n\n**An answer.**\n\nRun 1\n\nMachine\n\n```text\na\n\nb\n```\n\n## Claims\n\n- holds\n\n## Results\n\n\
                      ± is.\n\n**a**\n\n|1|\n\nratio\n\n**b**\n\n|1|\n\nratio\n\n**block**\n\n```text\nx\n```\n\n## Charts\n\ny";
        let expected = "`run`\n\n**An answer.**\n\nRun 1\n\nMachine\n\n```text\na\n\nb\n```\n\n<details>\n\
                        <summary>Claims</summary>\n\n- holds\n\n</details>\n\n<details>\n<summary>Results</summary>\n\n\
                        ± is.\n\n**a**\n\n|1|\n\nratio\n\n**b**\n\n|1|\n\n</details>";
        assert_eq!(shown("run", report, Extent::Tables).unwrap(), expected);
        let answer = "`run`\n\n**An answer.**\n\nRun 1\n\nMachine\n\n```text\na\n\nb\n```";
        assert_eq!(shown("run", report, Extent::Answer).unwrap(), answer);
        assert!(shown("run", "# T\n\nrun\n\nmachine", Extent::Answer).is_err());
    }
}
