//! What of the README comes from real runs: the picture, and what the tasks' commands print.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};

use crate::command::{code, root};
use crate::{parts, results};

const README: &str = "README.md";
const COMMAND: &str = "cargo xtask readme";
/// More is a manual.
const MOST_LINES: usize = 200;

/// The suite that the picture is of.
const PICTURED: &str = "layers";
/// Where the picture is, by the shape that `netrig report --picture` takes.
const PICTURES: [(&str, &str); 2] =
    [("wide", "docs/pictures/layers.svg"), ("narrow", "docs/pictures/layers-narrow.svg")];

/// A question that people come with.
struct Task {
    question: &'static str,
    /// Lines for a shell, as they are shown and as they are run, in one folder for all tasks.
    commands: &'static str,
    /// The printed lines that answer the question, each named by a text in it. A text that ends in `…` names a whole sentence, up to a
    /// full stop or an empty line.
    answer: &'static [&'static str],
    more: &'static str,
}

const TASKS: [Task; 5] = [
    Task {
        question: "What does an overlay cost?",
        commands: "netrig run layers --quick --only A2,B,D,D-vxlan",
        answer: &["B Containers", "D Containers", "D-vxlan Containers"],
        more: "The percentage of the raw stack's throughput (A2) that containers keep behind a bridge (B), over netrig's vRouter (D) \
               and over the kernel's VXLAN (D-vxlan) under the same load, and the CPU time of both ends for a byte (ns). Hold D and \
               D-vxlan against B for the overlay alone: the answer above the chart does. [HOWTO.md](docs/HOWTO.md) measures your own.",
    },
    Task {
        question: "Is my change slower?",
        commands: "netrig run layers --quick --only B,D --label before\n\
                   # ... change something: here, nothing was changed ...\n\
                   netrig run layers --quick --only B,D --against before",
        answer: &["No change was found…", "+ …"],
        more: "Status 1 if something is worse, which CI can act on; without `--quick` more is decided; `netrig ab` \
               measures both variants in turn ([COMPARING.md](docs/COMPARING.md)).",
    },
    Task {
        question: "How many connections does this balancer take?",
        commands: "netrig run balancer --quick --only cps-balancer-1,cps-nftables-1",
        answer: &["Workers, Rate", "1, netrig", "1, nftables"],
        more: "Thousands of new connections a second that one CPU carries before anything is lost: netrig's balancer beside \
               nftables, where `nft` is installed.",
    },
    Task {
        question: "Where is the limit without loss?",
        commands: "netrig run packets --quick --only limit --format markdown",
        answer: &["| Trial  ", "| Limit without loss", "| Connections"],
        more: "The packet generator's own limit over a bare wire, and what it carried at half of that; `>=` says that the generator was \
               the limit. `netrig dperf -c FILE --search loss-free` searches through whatever \
               stands between two machines ([DPERF.md](docs/DPERF.md); \
               [HOWTO.md](docs/HOWTO.md#-test-my-own-device-between-my-own-two-interfaces) does it step by step with a device of your \
               own).",
    },
    Task {
        question: "Can it stand in for ntttcp, dperf and ipvsadm?",
        commands: "ln -s \"$(command -v netrig)\" ntttcp\n\
                   ./ntttcp -r -m '1,*,127.0.0.1' -t 3 > receiver.txt & sleep 1\n\
                   ./ntttcp -s -m '1,*,127.0.0.1' -t 3",
        answer: &["INFO: \t throughput", "cycles/byte", "cpu busy"],
        more: "Links of these names to netrig take the same options and files ([NTTTCP.md](docs/NTTTCP.md), \
               [DPERF.md](docs/DPERF.md), [IPVSADM.md](docs/IPVSADM.md)).",
    },
];

/// Draws the picture of the latest run that docs/RESULTS.md shows, runs the tasks (with `stored` it uses their last output instead),
/// and writes the README.
pub fn readme(stored: bool) -> Result<ExitCode> {
    let built = results::build()?;
    if !built.success() {
        return Ok(code(built));
    }
    if !results::store(PICTURED).exists() {
        results::results(Some(PICTURED), false)?;
    }
    for (shape, path) in PICTURES {
        let path = root().join(path);
        let svg = results::netrig(PICTURED, &["report", "--picture", shape])?;
        fs::create_dir_all(path.parent().unwrap_or(root())).with_context(|| format!("make {}", path.display()))?;
        fs::write(&path, svg).with_context(|| format!("write {}", path.display()))?;
    }
    let folder = results::store("tasks").with_extension("");
    if !stored {
        carry_out(&folder)?;
    }
    let mut shown_tasks = Vec::new();
    for (number, task) in (1..).zip(&TASKS) {
        let path = printed(&folder, number);
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        shown_tasks.push(shown(task, &answer(task.answer, &text)?));
    }
    parts::write(README, "tasks", COMMAND, &shown_tasks.join("\n\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// Where what a task printed is kept.
fn printed(folder: &Path, number: usize) -> PathBuf {
    folder.join(format!("{number}.txt"))
}

fn carry_out(folder: &Path) -> Result<()> {
    // What an earlier time left there, this one would find.
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("clear {}", folder.display()))?;
    }
    fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    let program = results::program();
    let own = program.parent().unwrap_or(root()).to_owned();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(std::iter::once(own).chain(std::env::split_paths(&path))).context("make a PATH")?;
    for (number, task) in (1..).zip(&TASKS) {
        eprintln!("$ {}", task.commands);
        let file = printed(folder, number);
        let status = Command::new("sh")
            .args(["-ec", task.commands])
            .current_dir(folder)
            .env("PATH", &path)
            .env("NETRIG_STORE", folder.join("runs.sqlite"))
            .stdin(Stdio::null())
            .stdout(fs::File::create(&file).with_context(|| format!("make {}", file.display()))?)
            .status()
            .context("cannot start sh")?;
        if !status.success() {
            bail!("`{}` ended with {status}: {}", task.commands, file.display());
        }
    }
    Ok(())
}

/// The last line with each of them, in the order in which they were printed.
fn answer(marks: &[&str], printed: &str) -> Result<Vec<String>> {
    let lines: Vec<&str> = printed.lines().collect();
    let mut places = Vec::new();
    for mark in marks {
        let (words, whole) = mark.strip_suffix('…').map_or((*mark, false), |words| (words, true));
        let place = lines.iter().rposition(|line| line.contains(words));
        let first = place.with_context(|| format!("no line has `{words}`:\n{printed}"))?;
        places.push(first);
        let ends = |line: &str| line.is_empty() || line.ends_with('.');
        let mut next = first + 1;
        while whole && !ends(lines[next - 1]) && lines.get(next).is_some_and(|line| !line.is_empty()) {
            places.push(next);
            next += 1;
        }
    }
    places.sort_unstable();
    Ok(places.into_iter().map(|place| lines[place].trim_end().to_owned()).collect())
}

fn shown(task: &Task, answer: &[String]) -> String {
    let commands: Vec<String> = task
        .commands
        .lines()
        .map(|line| if line.starts_with('#') { line.to_owned() } else { format!("$ {line}") })
        .collect();
    let block = [commands, answer.to_vec()].concat().join("\n");
    format!("**{}** {}\n\n```console\n{block}\n```", task.question, task.more)
}

/// What is wrong with the README, in words.
pub fn faults() -> Result<Vec<String>> {
    let text = fs::read_to_string(root().join(README)).with_context(|| format!("read {README}"))?;
    let lines = text.lines().count();
    let long = || format!("{README} has {lines} lines, {MOST_LINES} are enough: what is looked up belongs below docs/");
    Ok(if lines > MOST_LINES { vec![long()] } else { Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_readme_has_its_markers_and_shows_the_picture() {
        parts::tests::has(README, COMMAND, &["tasks"]);
        let text = fs::read_to_string(root().join(README)).unwrap();
        for (_, path) in PICTURES {
            assert!(text.contains(&format!("\"{path}\"")), "{README} does not show {path}");
            assert!(root().join(path).exists(), "there is no {path}");
        }
    }

    #[test]
    fn the_readme_shows_the_commands_that_are_run() {
        let text = fs::read_to_string(root().join(README)).unwrap();
        for task in &TASKS {
            assert!(text.contains(shown(task, &[]).trim_end_matches("\n```")), "cargo xtask readme: {}", task.commands);
        }
    }

    #[test]
    fn an_answer_is_the_last_line_with_each_mark() {
        let printed = "B first\nx\n  B second\nD one\n";
        assert_eq!(answer(&["D o", "B "], printed).unwrap(), ["  B second", "D one"]);
        assert!(answer(&["E"], printed).is_err());
        let printed = "+ 5 figures are\n  undecided\n\nWhat else\ndiffers.\nmore\n";
        let expected = ["+ 5 figures are", "  undecided", "What else", "differs."];
        assert_eq!(answer(&["+ …", "What else…"], printed).unwrap(), expected);
    }
}
