//! `netrig spread`: what may follow it, and what is done.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use clap::{Args, CommandFactory, Parser, Subcommand};
use rig_cli::exit::{Exit, ExitContext, Failure};
use rig_cli::help;
use rig_cli::streams::{print, print_on};
use rig_service::AskError;
use rig_service::log::LogOptions;
use rig_spread::Tuning;
use rig_sys::socket::parse_address;
use serde::Serialize;

use crate::actuator::{self, Kind};
use crate::client;
use crate::daemon::{self, Run};
use crate::message::{Interface, Request, Status};
use crate::settings::{Pattern, Rule, SettingChanges, Settings};
use crate::simulate::{self, Simulate};
use crate::{instance, listing, metrics};

const EXAMPLES: &str = "\
Examples:
  netrig spread probe eth0
  netrig spread run eth0 --mode dynamic
  netrig spread show";

/// The receive spreader
#[derive(Debug, Parser)]
#[command(version, name = "netrig spread", bin_name = "netrig spread", max_term_width = 110, after_help = EXAMPLES)]
struct Spread {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Spread what interfaces receive over CPUs, in the foreground, until Ctrl-C or SIGTERM
    ///
    /// At the end everything is put back, even if this process is killed. On SIGHUP it reads its file again.
    /// docs/SPREAD.md describes the file.
    #[command(
        after_help = "Examples:\n  netrig spread run eth0\n  netrig spread run 'veth*' --mode dynamic\n`netrig spread help run` has all options."
    )]
    Run(RunArgs),
    /// Check a file: which interfaces its rules are for, and what could move their receive work
    ///
    /// Changes nothing. Ends with status 2 when the file is wrong, and with 3 when it names an interface that
    /// is not here.
    #[command(after_help = "Examples:\n  netrig spread check spread.toml")]
    Check {
        /// The settings
        file: PathBuf,
    },
    /// What could move the receive work of an interface, how finely and at what cost, and why the rest cannot
    ///
    /// Changes nothing. Ends with status 3 when nothing could be moved.
    #[command(after_help = "Examples:\n  netrig spread probe eth0")]
    Probe {
        interface: String,
        #[command(flatten)]
        how: OutputOptions,
    },
    /// Make the running spreader read its file again; a bad file changes nothing
    #[command(after_help = "Examples:\n  netrig spread reload")]
    Reload,
    /// Change settings of an interface while it is spread, until the spreader ends or reads its file again
    #[command(
        after_help = "Examples:\n  netrig spread set eth0 --mode static-vrss\n  netrig spread set eth0 --base 0 --cpus 0-7\n`netrig spread help set` has all options."
    )]
    Set {
        interface: String,
        #[command(flatten)]
        changes: SettingChanges,
    },
    /// Settings as requested and in force, why they differ and since when
    #[command(after_help = "Examples:\n  netrig spread get eth0")]
    Get {
        /// Only this one
        interface: Option<String>,
        #[command(flatten)]
        how: OutputOptions,
    },
    /// What CPUs and entries do, and which CPU each entry is on
    #[command(visible_alias = "status")]
    #[command(after_help = "Examples:\n  netrig spread show\n  netrig spread show eth0 --json")]
    Show {
        /// Only this one
        interface: Option<String>,
        #[command(flatten)]
        how: OutputOptions,
    },
    /// The CPU that an interface's packets reach first, and that has all of them when one is enough
    #[command(after_help = "Examples:\n  netrig spread base eth0")]
    Base {
        /// Only this one
        interface: Option<String>,
    },
    /// What the spreader did and saw: each move with its reason, the expected effect and the real one
    #[command(after_help = "Examples:\n  netrig spread events --follow")]
    Events {
        /// Only this one
        interface: Option<String>,
        /// Show new ones too, until Ctrl-C
        #[arg(long)]
        follow: bool,
        #[command(flatten)]
        how: OutputOptions,
    },
    /// All counters as OpenMetrics text
    #[command(after_help = "Examples:\n  netrig spread metrics")]
    Metrics,
    /// The policy on simulated machines of 8 to 64 CPUs, beside rules of other programs and the fewest CPUs needed
    ///
    /// The scenarios are the activities of Microsoft's validation guide, and others that a receive path meets; costs are those
    /// of the guide's machine.
    #[command(after_help = "Examples:\n  netrig spread simulate\n  netrig spread simulate guide --cpus 16")]
    Simulate(Simulate),
    /// End the running spreader
    #[command(after_help = "Examples:\n  netrig spread stop")]
    Stop,
    /// Waits for the end of the spreader that started it
    #[command(hide = true)]
    Guard,
}

#[derive(Debug, Args)]
struct OutputOptions {
    /// Print it as JSON, see docs/schema
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct RunArgs {
    /// Interfaces of this network namespace, or patterns of their names such as 'veth*'
    #[arg(value_name = "INTERFACE", required_unless_present_any = ["file", "on_stdio"])]
    interfaces: Vec<Pattern>,
    /// The settings; interfaces that are named here go before its rules
    #[arg(long, short = 'f', value_name = "FILE")]
    file: Option<PathBuf>,
    /// What moves their receive work, the most preferred first: napi, rss, cpumap, cpumap-bounded, rps, observe; see `netrig
    /// spread probe` [default: napi,rss,rps,observe]
    #[arg(long, value_name = "KINDS", value_delimiter = ',')]
    actuator: Vec<Kind>,
    #[command(flatten)]
    changes: SettingChanges,
    /// Serve metrics for Prometheus at http://ADDRESS:PORT/metrics, e.g. 127.0.0.1:9401
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = parse_address)]
    metrics: Option<SocketAddr>,
    /// Record what the spreader sees in DIRECTORY/INTERFACE.jsonl
    #[arg(long, value_name = "DIRECTORY", hide_short_help = true)]
    record: Option<PathBuf>,
    /// Take the settings from standard input, be asked there, and end with it
    #[arg(long, hide = true, conflicts_with_all = ["interfaces", "file", "actuator"])]
    on_stdio: bool,
    #[command(flatten)]
    log: LogOptions,
}

/// Ending takes a moment.
const ENDING: Duration = Duration::from_secs(10);

/// What may be said, for man pages and completions.
pub fn command_line() -> clap::Command {
    help::on_a_screen(Spread::command())
}

pub fn execute(arguments: &[OsString]) -> Result<Exit, Failure> {
    let program = OsString::from("netrig spread");
    match help::parse::<Spread>([program].iter().chain(arguments).cloned()).command {
        Command::Run(arguments) => run(arguments),
        Command::Check { file } => check(&file),
        Command::Probe { interface, how } => probe(&interface, how.json),
        Command::Reload => lines(&client::client()?.reload()?),
        Command::Set { changes, .. } if changes.is_empty() => {
            let error = anyhow!("give what to change, e.g. --mode dynamic: see `netrig spread set --help`");
            Err(Failure::new(Exit::BadInput, error))
        }
        Command::Set { interface, changes } => lines(&client::set(&interface, changes)?),
        Command::Get { interface, how } => {
            let status = of(interface.as_deref())?;
            if how.json { print_json(&status) } else { done(&listing::settings(&status)) }
        }
        Command::Show { interface, how } => {
            let status = of(interface.as_deref())?;
            if how.json { print_json(&status) } else { done(&listing::show(&status)) }
        }
        Command::Base { interface } => done(&listing::bases(&of(interface.as_deref())?)),
        Command::Events { interface, follow, how } => events(interface.as_deref(), follow, how.json),
        Command::Metrics => done(&metrics::render(&client::status()?)),
        Command::Simulate(asked) => simulate::execute(asked),
        Command::Stop => stop(),
        Command::Guard => daemon::guard(),
    }
}

fn run(arguments: RunArgs) -> Result<Exit, Failure> {
    let RunArgs { interfaces, file, actuator, changes, metrics, record, on_stdio, log } = arguments;
    log.begin();
    if interfaces.is_empty() && (!changes.is_empty() || !actuator.is_empty()) {
        let error =
            anyhow!("settings on the command line need interfaces that are named there: name them, or use the file");
        return Err(Failure::new(Exit::BadInput, error));
    }
    let settings = changes.over(&rig_spread::Settings::default());
    settings.check().or_exit(Exit::BadInput)?;
    if let Some(directory) = &record {
        std::fs::create_dir_all(directory)
            .with_context(|| format!("make {}", directory.display()))
            .or_exit(Exit::Failed)?;
    }
    if on_stdio {
        return daemon::run_on_stdio(metrics, record);
    }
    // The name is each interface's.
    let rule = Rule {
        name: interfaces.first().cloned().map_or_else(|| "*".parse().map_err(anyhow::Error::msg), Ok)?,
        actuators: if actuator.is_empty() { Kind::PREFERRED.to_vec() } else { actuator },
        settings,
        tuning: Tuning::default(),
    };
    daemon::run(Run { file, interfaces, rule, metrics, records: record })
}

fn check(file: &Path) -> Result<Exit, Failure> {
    let settings = Settings::load(file)?;
    let (text, complete) = listing::check(file, &settings).or_exit(Exit::Failed)?;
    print(&text)?;
    Ok(if complete { Exit::Done } else { Exit::Lacking })
}

fn probe(interface: &str, json: bool) -> Result<Exit, Failure> {
    let probed = actuator::probe(interface).or_exit(Exit::Lacking)?;
    if json {
        print_json(&probed)?;
    } else {
        print(&listing::probed(&probed))?;
    }
    Ok(if probed.can_move() { Exit::Done } else { Exit::Lacking })
}

/// The status, with one interface alone where one is named.
fn of(interface: Option<&str>) -> Result<Status, Failure> {
    let mut status = client::status()?;
    let Some(name) = interface else { return Ok(status) };
    let names: Vec<String> = status.interfaces.iter().map(|interface| interface.name.clone()).collect();
    status.interfaces.retain(|interface: &Interface| interface.name == name);
    status.waiting.retain(|waiting| waiting.interface == name);
    if status.interfaces.is_empty() && status.waiting.is_empty() {
        let error = anyhow!("the spreader has not taken interface {name}; taken: {}", names.join(", "));
        return Err(Failure::new(Exit::BadInput, error));
    }
    Ok(status)
}

fn events(interface: Option<&str>, follow: bool, json: bool) -> Result<Exit, Failure> {
    const PAUSE: Duration = Duration::from_millis(200);
    let mut after = 0;
    loop {
        let new = match client::events(after) {
            Err(AskError::NotRunning { .. }) if follow && after > 0 => return Ok(Exit::Done),
            new => new?,
        };
        let mut text = String::new();
        for logged in &new {
            after = logged.number;
            if interface.is_some_and(|name| logged.interface != name) {
                continue;
            }
            if json {
                text.push_str(&serde_json::to_string(logged).context("write JSON").or_exit(Exit::Failed)?);
                text.push('\n');
            } else {
                text.push_str(&listing::event(logged));
            }
        }
        if !print_on(&text)? || !follow {
            return Ok(Exit::Done);
        }
        thread::sleep(PAUSE);
    }
}

fn stop() -> Result<Exit, Failure> {
    let lines_of = client::done(&Request::Stop)?;
    let files = instance::files().or_exit(Exit::Failed)?;
    let deadline = Instant::now() + ENDING;
    while files.is_running() {
        if Instant::now() > deadline {
            let error = anyhow!("the spreader was told to end, but its process is still there");
            return Err(Failure::new(Exit::Failed, error));
        }
        thread::sleep(Duration::from_millis(5));
    }
    lines(&lines_of)
}

fn lines(all: &[String]) -> Result<Exit, Failure> {
    done(&all.iter().map(|line| format!("{line}\n")).collect::<String>())
}

fn done(text: &str) -> Result<Exit, Failure> {
    print(text)?;
    Ok(Exit::Done)
}

fn print_json(value: &impl Serialize) -> Result<Exit, Failure> {
    let text = serde_json::to_string_pretty(value).context("write JSON").or_exit(Exit::Failed)?;
    done(&(text + "\n"))
}
