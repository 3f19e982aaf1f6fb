//! dperf: its configuration language and its statistics, over netrig's packet engine.

mod check;
mod console;
mod keywords;
pub mod language;
mod machine;
mod message;
pub mod record;
mod resolve;
mod run;
mod search;
mod settings;
mod statistics;
#[cfg(test)]
mod tests;
mod values;

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use clap::{Args, CommandFactory, Parser, ValueEnum};
use jiff::Timestamp;
use rig_cli::exit::{Exit, ExitContext, Failure};
use rig_cli::{help, mistakes, streams};
use rig_load::driver::Cancel;
use rig_packet::fleet::check_plan;
use rig_stats::units::Span;

use self::console::Console;
use self::language::Warning;
use self::record::{FORMAT, Mode, Record, SearchRecord, Total, VERSION};
use self::resolve::LoadPlan;
use self::run::Gateways;
use self::search::per_second;

/// Set for the process that `daemon` leaves in the background.
const IN_BACKGROUND: &str = "NETRIG_DPERF_IN_BACKGROUND";
/// The version whose language this is.
const LANGUAGE: &str = "1.9";

/// The options of `netrig dperf`; those in lower case are dperf's.
#[derive(Debug, Clone, Args)]
#[command(disable_version_flag = true)]
pub struct DperfArgs {
    /// Run with this configuration file
    #[arg(short = 'c', long = "conf", value_name = "FILE", required_unless_present_any = ["manual", "version"])]
    pub file: Option<PathBuf>,
    /// Check the file and that this machine has what it names, then end
    #[arg(short, long)]
    pub test: bool,
    /// Show all keywords of the configuration
    #[arg(short, long)]
    pub manual: bool,
    /// Show the version
    #[arg(short, long)]
    pub version: bool,
    /// Write the run's figures to this file, as docs/schema/dperf.json describes them
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Find the highest rate without loss, beginning with the file's
    #[arg(long, value_enum, value_name = "GOAL")]
    pub search: Option<SearchGoal>,
    /// How long the rate that --search finds must be held
    #[arg(long, value_name = "SPAN", default_value = "10s", requires = "search")]
    pub hold: Span,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SearchGoal {
    /// Nothing is dropped, sent again, failed or late
    LossFree,
}

impl DperfArgs {
    /// These options as arguments of a command line.
    fn arguments(&self, path: &Path) -> Vec<OsString> {
        let mut arguments = vec!["-c".into(), path.into()];
        if let Some(json) = &self.json {
            arguments.extend(["--json".into(), json.into()]);
        }
        if self.search.is_some() {
            let hold = format!("{}ns", self.hold.0.as_nanos());
            arguments.extend(["--search=loss-free", "--hold", &hold].map(OsString::from));
        }
        arguments
    }
}

/// The options as the whole command line of a link named `dperf`.
#[derive(Debug, Parser)]
#[command(name = "dperf", about = "Packet load in dperf's configuration language")]
struct Standalone {
    #[command(flatten)]
    options: DperfArgs,
}

/// What may be said to a program named `dperf`, for man pages and completions.
pub fn command_line() -> clap::Command {
    help::on_a_screen(Standalone::command())
}

/// Does what the arguments of a program named `dperf` say.
pub fn execute_as_dperf(arguments: &[OsString]) -> Result<Exit, Failure> {
    let all = std::iter::once(OsString::from("dperf")).chain(arguments.iter().cloned());
    execute(&help::parse::<Standalone>(all).options)
}

/// A file that was read.
struct Loaded {
    text: String,
    plan: LoadPlan,
    warnings: Vec<Warning>,
}

pub fn execute(options: &DperfArgs) -> Result<Exit, Failure> {
    if options.version {
        streams::print(&format!("netrig {}, language of dperf {LANGUAGE}\n", env!("CARGO_PKG_VERSION")))?;
        return Ok(Exit::Done);
    }
    if options.manual {
        streams::print(&keywords::manual())?;
        return Ok(Exit::Done);
    }
    let Some(path) = &options.file else { unreachable!("clap asks for it") };
    let Loaded { text, mut plan, warnings } = load(path)?;
    let mut lacks = machine::place(&mut plan, Path::new("/"));
    lacks.extend(machine::cpus(&plan).or_exit(Exit::Failed)?);
    if options.test {
        let all = warnings.iter().map(ToString::to_string).chain(lacks.iter().map(ToString::to_string));
        all.for_each(|warning| streams::note(format_args!("{}: {warning}", path.display())));
        if !lacks.is_empty() {
            let what = "the file can be read, but not be run on this machine, which lacks what is named above";
            return Err(Failure::new(Exit::Lacking, anyhow!("{}: {what}", path.display())));
        }
        streams::print("Config file OK\n")?;
        return Ok(Exit::Done);
    }
    if let Some(lack) = lacks.first() {
        return Err(Failure::new(Exit::Lacking, anyhow!("{}: {lack}", path.display())));
    }
    if let Some(json) = &options.json {
        // Not after an hour.
        may_write(json).with_context(|| format!("write {}", json.display())).or_exit(Exit::BadInput)?;
    }
    let mut console = Console::new(&plan)?;
    if plan.daemon && env::var_os(IN_BACKGROUND).is_none() {
        return crate::go_into_background("dperf", &options.arguments(path), IN_BACKGROUND);
    }
    warnings.iter().for_each(|warning| console.warn(&format!("{}: {warning}", path.display())));
    match perform(options, path, text, &plan, &mut console) {
        // A daemon has no terminal: its log is the only place for the error.
        Err(failure) if plan.daemon => {
            console.error(&failure.to_string());
            Ok(failure.exit)
        }
        result => result,
    }
}

/// Runs a plan, prints what came of it, and says whether all was well.
fn perform(
    options: &DperfArgs,
    path: &Path,
    text: String,
    plan: &LoadPlan,
    console: &mut Console,
) -> Result<Exit, Failure> {
    let cancel = Cancel::on_stop_signal().or_exit(Exit::Failed)?;
    let started = Timestamp::now();
    let (finished, search, failures) = match options.search {
        None => {
            run::announce(&plan.packets, console);
            let finished =
                run::run(plan, &plan.packets, Gateways::Unknown, &cancel, console)?.ok_or_else(run::stopped)?;
            let failures = run::failures(&plan.packets.service, &finished.outcome);
            (finished, None, failures)
        }
        Some(SearchGoal::LossFree) => {
            // Each step says for itself what came of it.
            console.quiet = true;
            let Span(hold) = options.hold;
            let found = search::search(plan, hold, &cancel, console)?.ok_or_else(run::stopped)?;
            let record = SearchRecord::new(&found, hold.as_secs_f64());
            let failures = search::failures(&found.outcome, found.of, record.hold_s);
            (found.last, Some(record), failures)
        }
    };
    plan.packets.service.doubts(&finished.outcome.totals.counters).iter().for_each(|doubt| console.warn(doubt));
    console.print(&match &search {
        None => run::totals(plan.layout, &finished, console.terminal, console.columns()),
        Some(search) => found(search),
    });
    failures.iter().for_each(|failure| console.error(failure));
    if let Some(json) = &options.json {
        let record = Record {
            format: FORMAT.to_owned(),
            version: VERSION,
            program_version: env!("CARGO_PKG_VERSION").to_owned(),
            started_unix_ms: started.as_millisecond(),
            file: path.display().to_string(),
            text,
            mode: if plan.is_client() { Mode::Client } else { Mode::Server },
            total: Total::new(finished.span.as_secs_f64(), &finished),
            seconds: if search.is_some() { Vec::new() } else { finished.seconds },
            interrupted: finished.interrupted || search.as_ref().is_some_and(|search| search.ending == "stopped"),
            ports: finished.ports,
            notes: std::mem::take(&mut console.notes),
            search,
            failures: failures.clone(),
        };
        write(json, &record).with_context(|| format!("write {}", json.display())).or_exit(Exit::Failed)?;
    }
    Ok(if failures.is_empty() { Exit::Done } else { Exit::Refuted })
}

/// Whether a file can be written there. Nothing of it is seen, however the process ends, and what is there stays until it is replaced.
fn may_write(path: &Path) -> io::Result<()> {
    if path.exists() {
        return fs::File::options().append(true).open(path).map(drop);
    }
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Without a name.
    tempfile::tempfile_in(directory).map(drop)
}

fn write(path: &Path, record: &Record) -> io::Result<()> {
    let mut text = serde_json::to_string_pretty(record)?;
    text.push('\n');
    fs::write(path, text)
}

fn load(path: &Path) -> Result<Loaded, Failure> {
    let name = path.display();
    let bytes = mistakes::read_bytes(path).with_context(|| format!("read {name}")).or_exit(Exit::BadInput)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let refuse = |error| anyhow!("{name}: {error}");
    let (settings, mut warnings) = language::read(&text).map_err(refuse).or_exit(Exit::BadInput)?;
    let plan = resolve::resolve(&settings, &mut warnings).map_err(refuse).or_exit(Exit::BadInput)?;
    check_plan(&plan.packets).with_context(|| name.to_string()).or_exit(Exit::BadInput)?;
    Ok(Loaded { text, plan, warnings })
}

/// What a search found, in words.
fn found(search: &SearchRecord) -> String {
    let SearchRecord { of, hold_s, held, lost, generator_bound, generator_late, .. } = search;
    let limit = match (held, lost) {
        (Some(held), Some(lost)) if *generator_late => format!(
            "\nat least {} {of}/s: held without loss for {hold_s} s; at {} the generator was behind its own schedule\n",
            per_second(*held),
            per_second(*lost)
        ),
        (Some(held), Some(lost)) => {
            format!(
                "\n{} {of}/s held without loss for {hold_s} s; {} lost something\n",
                per_second(*held),
                per_second(*lost)
            )
        }
        (Some(held), None) => {
            format!("\n{} {of}/s held without loss for {hold_s} s, and no more was tried\n", per_second(*held))
        }
        (None, _) => String::new(),
    };
    let bound = generator_bound.map_or(String::new(), |busy| {
        format!("generator-bound: its busiest thread had something to do {:.0} % of the time\n", busy * 100.0)
    });
    limit + &bound
}

/// Reads what may be a file as the program does, without a machine.
#[doc(hidden)]
pub fn fuzz(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    // Files beside the file are not for a fuzzer.
    if text.contains("payload_file") {
        return;
    }
    if let Ok((settings, mut warnings)) = language::read(&text)
        && let Ok(plan) = resolve::resolve(&settings, &mut warnings)
    {
        let _ = check_plan(&plan.packets);
    }
}
