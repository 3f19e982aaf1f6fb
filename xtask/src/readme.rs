//! The parts of the README that come from a real run.

use std::fs;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};

use crate::command::{cargo, code, root, run, target};

const README: &str = "README.md";
/// Lines of a run's progress that the README shows.
const PROGRESS_LINES: usize = 14;

/// A suite that the README shows a run of.
struct Shown {
    suite: &'static str,
    /// The name between the markers of its results.
    part: &'static str,
    /// What of a Markdown report's results is shown.
    tables: fn(&[&str]) -> Vec<String>,
}

const SHOWN: [Shown; 2] = [
    Shown { suite: "layers", part: "results", tables: first_tables },
    Shown { suite: "namespaces", part: "namespaces", tables: overview },
];

/// Runs a suite, or all that the README shows, in full unless the arguments say less, and writes progress and results into
/// the README.
pub fn readme(arguments: &[String]) -> Result<ExitCode> {
    let built = run(&mut cargo(["build", "--release", "--package", "netrig"]))?;
    if !built.success() {
        return Ok(code(built));
    }
    let named = arguments.first().and_then(|first| SHOWN.iter().find(|shown| shown.suite == first));
    match named {
        Some(shown) => write_part(shown, &arguments[1..])?,
        None => SHOWN.iter().try_for_each(|shown| write_part(shown, arguments))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn write_part(shown: &Shown, arguments: &[String]) -> Result<()> {
    let suite = shown.suite;
    let netrig = target().join("release/netrig");
    // A store of its own: no other run can be the latest.
    let store = target().join("readme.sqlite");
    eprintln!("running the suite {suite}; netrig show {suite} tells how long that takes unless the arguments say less");
    let ran = Command::new(&netrig)
        .args(["run", suite, "--store"])
        .arg(&store)
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {}", netrig.display()))?;
    let progress = String::from_utf8(ran.stderr).context("read the run's progress")?;
    if !matches!(ran.status.code(), Some(0 | 1)) {
        bail!("the run failed:\n{progress}");
    }
    let report = Command::new(&netrig)
        .args(["report", "latest", "--format", "markdown", "--store"])
        .arg(&store)
        .output()
        .context("report the run")?;
    let report = String::from_utf8(report.stdout).context("read the report")?;

    let path = root().join(README);
    let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let mut text = replace(&text, shown.part, &results(&report, shown.tables)?)?;
    if suite == SHOWN[0].suite {
        text = replace(&text, "run", &still(arguments, &progress))?;
    }
    fs::write(&path, text).with_context(|| format!("write {}", path.display()))
}

/// The beginning of a run's progress as a code block.
fn still(arguments: &[String], progress: &str) -> String {
    let shown: Vec<&str> = progress.lines().take(PROGRESS_LINES).map(str::trim_end).collect();
    let more = if progress.lines().count() > PROGRESS_LINES { "\n ..." } else { "" };
    let command = [&["netrig run layers".to_owned()], arguments].concat().join(" ");
    format!("```text\n$ {command}\n{}{more}\n```", shown.join("\n"))
}

/// What a Markdown report says of the machine, some of its results and the claims.
fn results(report: &str, tables: fn(&[&str]) -> Vec<String>) -> Result<String> {
    let paragraphs: Vec<&str> = report.split("\n\n").map(str::trim).collect();
    let heading = |name: &str| {
        paragraphs.iter().position(|p| *p == format!("## {name}")).with_context(|| format!("the report has no {name}"))
    };
    let (begin, claims) = (heading("Results")? + 1, heading("Claims")? + 1);
    let claims_end = paragraphs[claims..].iter().position(|p| p.starts_with("## ")).map(|n| claims + n);
    // Before them stand the title, the question and its answer.
    let head = paragraphs.windows(2).find(|two| two[0].starts_with("Run "));
    let Some([run, machine]) = head else { bail!("the report has no head") };
    let mut shown = vec![format!("{machine}\\\n{run}")];
    shown.extend(tables(&paragraphs[begin..]));
    shown.extend(paragraphs[claims..claims_end.unwrap_or(paragraphs.len())].iter().map(|p| (*p).to_owned()));
    Ok(shown.join("\n\n"))
}

/// How the tables are to be read, then a caption and the table of both ends.
fn first_tables(results: &[&str]) -> Vec<String> {
    results.iter().take(3).map(|p| (*p).to_owned()).collect()
}

/// The tables of ratios, which stand before the first block of text. What they all say is said once.
fn overview(results: &[&str]) -> Vec<String> {
    let blocks = results.iter().position(|p| p.starts_with("```"));
    let mut shown: Vec<String> = Vec::new();
    // The paragraph before a block is its caption.
    for paragraph in &results[..blocks.map_or(results.len(), |at| at.saturating_sub(1))] {
        if !shown.iter().any(|seen| seen == paragraph) {
            shown.push((*paragraph).to_owned());
        }
    }
    shown
}

/// `text` with what stands between the markers of `part` replaced.
fn replace(text: &str, part: &str, with: &str) -> Result<String> {
    let (begin, end) =
        (format!("<!-- {part}: written by `cargo xtask readme` -->\n"), format!("<!-- end of {part} -->"));
    let (before, rest) = text.split_once(&begin).with_context(|| format!("{README} lacks the line {begin}"))?;
    let (_, after) = rest.split_once(&end).with_context(|| format!("{README} lacks the line {end}"))?;
    Ok(format!("{before}{begin}\n{with}\n\n{end}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_readme_has_its_markers_and_takes_a_part() {
        let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md")).unwrap();
        for part in ["run"].into_iter().chain(SHOWN.iter().map(|shown| shown.part)) {
            let once = replace(&text, part, "new").unwrap();
            assert!(once.contains("-->\n\nnew\n\n<!-- end of"));
            assert_eq!(replace(&once, part, "new").unwrap(), once);
        }
    }

    #[test]
    fn a_reports_tables_and_claims_are_found() {
        let report = "# T\n\n**An answer.**\n\nRun 1\n\nMachine\n\nx\n\n## Claims\n\n- holds\n\n## Results\n\n± is.\n\n**a**\n\n\
                      |1|\n\n**b**\n\n|2|\n\n## More\n\ny";
        let shown = results(report, first_tables).unwrap();
        assert!(shown.starts_with("Machine\\\nRun 1\n\n± is.\n\n**a**\n\n|1|\n\n- holds"), "{shown}");
        assert!(shown.ends_with("- holds") && !shown.contains("**b**"), "{shown}");
        assert!(results("# T\n\nrun\n\nmachine", first_tables).is_err());
    }

    #[test]
    fn an_overview_ends_before_the_blocks_and_repeats_nothing() {
        let shown = overview(&["± is.", "**a**", "|1|", "ratio", "**b**", "|2|", "ratio", "**block**", "```text", "x"]);
        assert_eq!(shown, ["± is.", "**a**", "|1|", "ratio", "**b**", "|2|"]);
    }
}
