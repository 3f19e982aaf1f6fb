//! `netrig spread simulate`: the policy on machines that are not there, beside rules of other programs, and on recorded traces.

mod guide;
mod plot;

use std::fs::File;
use std::io::{BufReader, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use clap::{Args, Subcommand};
use rig_cli::exit::{Exit, ExitContext, Failure};
use rig_cli::mistakes::closest;
use rig_cli::streams::{note, print, print_on};
use rig_spread::simulate::{Report, Rule, Scenario, all, run};
use rig_spread::trace::replay;

/// What it is asked for.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Simulate {
    #[command(subcommand)]
    what: Option<SimulateCommand>,
    /// Scenarios, e.g. S2 S9; --list names them [default: all]
    scenarios: Vec<String>,
    /// List the scenarios and rules
    #[arg(long, conflicts_with_all = ["json", "plot", "replay"])]
    list: bool,
    /// Rules that decide, e.g. dynamic,rss++ [default: all]
    #[arg(long, value_name = "RULES", value_delimiter = ',', value_parser = rule)]
    rules: Vec<Rule>,
    /// CPUs of the simulated machine, 8 to 64; S18 has 64 always
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u32).range(8..=64))]
    cpus: u32,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
    /// Draw scenarios over time as SVG: throughput, CPUs in use, where entries are; a file for one scenario, a directory for
    /// several, with a file for each
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Decide again, by this version's policy, on a recording of `netrig spread run --record`
    #[arg(long, value_name = "FILE", conflicts_with_all = ["scenarios", "rules", "plot"])]
    replay: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum SimulateCommand {
    /// The guide's activities on machines of 2 to 64 CPUs, with measured costs or the guide's
    ///
    /// Static spread at low and full load; dynamic: coalescing at low load, a second load, idle, bursts from parked and from
    /// coalesced. Loads are scaled to the costs as the guide's are to its machine.
    #[command(after_help = "Examples:\n  netrig spread simulate guide --cpus 8,16")]
    Guide(guide::Guide),
}

fn rule(text: &str) -> Result<Rule, String> {
    let found = Rule::ALL.into_iter().find(|rule| rule.name() == text);
    found.ok_or_else(|| format!("'{text}' is not a rule: one of {}", Rule::ALL.map(Rule::name).join(", ")))
}

pub(crate) fn execute(asked: Simulate) -> Result<Exit, Failure> {
    if let Some(SimulateCommand::Guide(asked)) = &asked.what {
        return guide::execute(asked);
    }
    if let Some(trace) = &asked.replay {
        return replayed(trace, asked.json);
    }
    let there = all(asked.cpus);
    if asked.list {
        let scenarios: String = there.iter().map(|one| format!("{:<5} {}\n", one.name, one.title)).collect();
        print(&format!("{scenarios}rules: {}\n", Rule::ALL.map(Rule::name).join(", ")))?;
        return Ok(Exit::Done);
    }
    let chosen = chosen(there, &asked.scenarios)?;
    let rules = if asked.rules.is_empty() { Rule::ALL.to_vec() } else { asked.rules };
    let several = chosen.len() > 1;
    if let Some(directory) = asked.plot.as_ref().filter(|_| several) {
        let how = || format!("make {}, a directory for {} plots", directory.display(), chosen.len());
        std::fs::create_dir_all(directory).with_context(how).or_exit(Exit::Failed)?;
    }
    let mut report = Report::default();
    for scenario in &chosen {
        for &rule in &rules {
            report.add(scenario, run(scenario, rule), asked.plot.is_some() || (asked.json && !several));
        }
        if let Some(to) = &asked.plot {
            let file = if several { to.join(format!("{}.svg", scenario.name)) } else { to.clone() };
            let how = || format!("write {}", file.display());
            let drawn = plot::draw(scenario, &report.courses);
            std::fs::write(&file, drawn).with_context(how).or_exit(Exit::Failed)?;
            note(format_args!("drawn in {}", file.display()));
            // Those of all scenarios together would be much.
            if several {
                report.courses.clear();
            }
        }
    }
    if asked.json {
        let text = serde_json::to_string(&report).context("write JSON").or_exit(Exit::Failed)?;
        print(&(text + "\n"))?;
    } else {
        print(&format!("Simulated: {} CPUs, costs of Microsoft's guide for RS5\n\n{report}", asked.cpus))?;
    }
    Ok(Exit::Done)
}

/// Those that are named, in the order of all.
fn chosen(there: Vec<Scenario>, named: &[String]) -> Result<Vec<Scenario>, Failure> {
    if named.is_empty() {
        return Ok(there);
    }
    for name in named {
        if !there.iter().any(|one| one.name.eq_ignore_ascii_case(name)) {
            let names: Vec<&str> = there.iter().map(|one| one.name.as_str()).collect();
            if name == "guide" {
                let error = anyhow!("what `guide` is asked for goes after it: netrig spread simulate guide --cpus 2,8");
                return Err(Failure::new(Exit::BadInput, error));
            }
            let hint = closest(&name.to_uppercase(), names.iter().copied())
                .map_or_else(|| "--list names them".to_owned(), |name| format!("did you mean {name}?"));
            return Err(Failure::new(Exit::BadInput, anyhow!("there is no scenario '{name}': {hint}")));
        }
    }
    let is_named = |one: &Scenario| named.iter().any(|name| one.name.eq_ignore_ascii_case(name));
    Ok(there.into_iter().filter(is_named).collect())
}

/// A line for each decision, or each as JSON.
fn replayed(path: &Path, json: bool) -> Result<Exit, Failure> {
    let file = File::open(path).with_context(|| format!("open {}", path.display())).or_exit(Exit::BadInput)?;
    let mut text = Vec::new();
    let mut written = Ok(());
    let outcome = replay(BufReader::new(file), |decided, _| {
        if decided.moves.is_empty() && decided.events.is_empty() {
            return;
        }
        let at = decided.now.as_secs_f64();
        let line = || -> anyhow::Result<()> {
            if json {
                serde_json::to_writer(&mut text, &decided)?;
                writeln!(text)?;
                return Ok(());
            }
            for moved in &decided.moves {
                let what = moved.entry.map_or("base".to_owned(), |entry| format!("entry {entry}"));
                writeln!(text, "{at:>10.3} s {what} from CPU {} to {}: {}", moved.from, moved.to, moved.why)?;
            }
            for event in &decided.events {
                writeln!(text, "{at:>10.3} s {event}")?;
            }
            Ok(())
        };
        if let Err(error) = { line }() {
            written = Err(error);
        }
    });
    outcome.with_context(|| format!("replay {}", path.display())).or_exit(Exit::BadInput)?;
    written.or_exit(Exit::Failed)?;
    print_on(&String::from_utf8_lossy(&text))?;
    Ok(Exit::Done)
}
