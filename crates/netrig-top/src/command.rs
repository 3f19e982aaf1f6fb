//! `netrig top`: what may be said, and what is done.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::Args;
use netrig_lb::instance::{DEFAULT_NAME, Name};
use netrig_vrouter::client::RouterClient;
use rig_cli::exit::{Exit, ExitContext, Failure};
use rig_cli::streams::{print_on, tell};
use rig_stats::units::Span;
use rig_sys::cpu::CpuSet;
use rig_testbed::registry::{HeldTestbed, TestbedRegistry};

use crate::between::between;
use crate::compact;
use crate::feed::{Feed, LocalSampler, outcome};
use crate::hosts::{HostEvent, Hosts, WatchedHost};
use crate::sample::Sample;
use crate::screen::{self, LONGEST, SHORTEST};
use crate::source::{Source, ViewTarget};

#[derive(Debug, Args)]
pub struct TopArgs {
    /// Interfaces; without any, those that the spreader has taken, or all where none runs
    #[arg(value_name = "INTERFACE", conflicts_with_all = ["lb", "vrouter"])]
    interfaces: Vec<String>,
    /// The balancer of this name
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = DEFAULT_NAME, conflicts_with = "vrouter")]
    lb: Option<Name>,
    /// The vRouter of this node; the only one, where none is named
    #[arg(long, value_name = "NODE", num_args = 0..=1)]
    vrouter: Option<Option<String>>,
    /// Look from inside a node or container of a testbed that is up, e.g. `a` or `a/sender`
    #[arg(long, value_name = "PLACE")]
    node: Option<String>,
    /// The testbed's name, when several are up
    #[arg(long, value_name = "NAME", requires = "node")]
    testbed: Option<String>,
    /// This host in place of this machine, below each other for several, each as `netrig run --on` reaches it
    #[arg(long, value_name = "HOST")]
    on: Vec<String>,
    /// How hosts are reached [default: ~/.config/netrig/hosts.toml]
    #[arg(long, value_name = "FILE", requires = "on")]
    hosts: Option<PathBuf>,
    /// How often counters are read, 100ms to 1min
    #[arg(long, short = 'i', value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,
    /// End after this many samples
    #[arg(long, short = 'n', value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Print samples as JSON, a line each, in place of a screen; one, unless --count says more
    #[arg(long)]
    json: bool,
    /// Without what is zero, for a netrig that looks at this machine from another one
    #[arg(long, hide = true, requires = "json")]
    compact: bool,
}

impl TopArgs {
    /// Names of hosts that are to be looked at, and the file that says how they are reached.
    pub fn hosts(&self) -> (&[String], Option<&Path>) {
        (&self.on, self.hosts.as_deref())
    }

    /// What a host's netrig is asked for.
    fn on_host(&self, count: Option<u64>) -> Vec<String> {
        // As long as it is looked at.
        let count = count.unwrap_or(u64::MAX).to_string();
        let interval = Span(self.interval).to_string();
        let mut words: Vec<String> =
            ["top", "--json", "--compact", "--interval", &interval, "--count", &count].map(str::to_owned).into();
        words.extend(self.lb.iter().map(|name| format!("--lb={name}")));
        let node =
            |node: &Option<String>| node.as_ref().map_or("--vrouter".to_owned(), |node| format!("--vrouter={node}"));
        words.extend(self.vrouter.iter().map(node));
        words.extend(self.node.iter().map(|place| format!("--node={place}")));
        words.extend(self.testbed.iter().map(|name| format!("--testbed={name}")));
        if !self.interfaces.is_empty() {
            words.extend([vec!["--".to_owned()], self.interfaces.clone()].concat());
        }
        words
    }
}

fn interval(text: &str) -> Result<Duration, String> {
    let Span(asked) = text.parse::<Span>().map_err(|error| error.to_string())?;
    if !(SHORTEST..=LONGEST).contains(&asked) {
        return Err("it is not between 100 ms and 1 min".to_owned());
    }
    Ok(asked)
}

/// Of these hosts, or of this machine where there are none.
///
/// # Errors
/// Where what is to be shown is not here, or cannot be shown.
pub fn execute(args: &TopArgs, hosts: Vec<WatchedHost>) -> Result<Exit, Failure> {
    let is_screen = !args.json && io::stdout().is_terminal();
    let count = args.count.or_else(|| (!is_screen).then_some(1));
    if !hosts.is_empty() {
        let hosts = Hosts::watch(hosts, &args.on_host(count)).or_exit(Exit::Failed)?;
        return if args.json { json_of_hosts(&hosts) } else { screen::show(Feed::Hosts(hosts), args.interval, count) };
    }
    if let Some(place) = &args.node {
        enter(place, args.testbed.as_deref())?;
    }
    let wanted = match (&args.lb, &args.vrouter) {
        (Some(name), _) => ViewTarget::Balancer(name.clone()),
        (None, Some(node)) => ViewTarget::Router(RouterClient::of(node.as_deref())?),
        (None, None) => ViewTarget::Interfaces(args.interfaces.clone()),
    };
    let source = Source::open(wanted)?;
    if args.json {
        let write = if args.compact { compact::line } else { serde_json::to_string };
        return json(source, args.interval, count.unwrap_or(1), write);
    }
    screen::show(Feed::Local(Box::new(LocalSampler::new(source, args.interval, count)?)), args.interval, count)
}

fn json(
    mut source: Source,
    interval: Duration,
    count: u64,
    write: fn(&Sample) -> serde_json::Result<String>,
) -> Result<Exit, Failure> {
    let mut before = source.read()?;
    for _ in 0..count {
        rig_sys::clock::sleep_until(before.at_ns + interval.as_nanos() as u64);
        let now = source.read()?;
        let text = write(&between(&before, &now)).context("write JSON").or_exit(Exit::Failed)?;
        if !print_on(&(text + "\n"))? {
            break;
        }
        before = now;
    }
    Ok(Exit::Done)
}

/// A line for each sample of each host, as they come.
fn json_of_hosts(hosts: &Hosts) -> Result<Exit, Failure> {
    let names = hosts.names();
    let mut ended = Vec::new();
    while ended.len() < names.len() {
        let Some((number, event)) = hosts.next(Duration::MAX) else { break };
        let name = names.get(number).map(String::as_str).unwrap_or_default();
        match event {
            HostEvent::Sample(sample) => {
                let sample = Sample { host: Some(name.to_owned()), ..*sample };
                let text = serde_json::to_string(&sample).context("write JSON").or_exit(Exit::Failed)?;
                if !print_on(&(text + "\n"))? {
                    return Ok(Exit::Done);
                }
            }
            HostEvent::Ended(result) => {
                // The others may go on for long.
                if let (Err(why), true) = (&result, ended.len() + 1 < names.len()) {
                    tell(format_args!("netrig: {name}: {why}"));
                }
                ended.push((name, result));
            }
        }
    }
    outcome(ended.iter().map(|(name, result)| (*name, result)))
}

/// Moves this process, which has one thread, into a place of a testbed; its CPUs stay the node's own.
fn enter(place: &str, testbed: Option<&str>) -> Result<(), Failure> {
    let registry = TestbedRegistry::open().or_exit(Exit::Lacking)?;
    let mut all = registry.list()?;
    let names = all.iter().map(|kept| kept.name.as_str()).collect::<Vec<_>>().join(", ");
    let bad = |what: String| Failure::new(Exit::BadInput, anyhow!(what));
    let kept: HeldTestbed = match testbed {
        Some(name) => match all.into_iter().find(|kept| kept.name == name) {
            Some(kept) => kept,
            None if names.is_empty() => return Err(bad(format!("no testbed '{name}': none is up"))),
            None => return Err(bad(format!("no testbed '{name}': up are {names}"))),
        },
        None => match all.len() {
            0 => return Err(bad("no testbed is up: start one with `netrig up layers/B`".to_owned())),
            1 => all.remove(0),
            _ => return Err(bad(format!("several testbeds are up: choose one with --testbed ({names})"))),
        },
    };
    let Some(found) = kept.namespace(place) else {
        let places = kept.namespaces.iter().map(|place| place.name.as_str()).collect::<Vec<_>>().join(", ");
        return Err(bad(format!("testbed '{}' has no '{place}': choose from {places}", kept.name)));
    };
    let before = CpuSet::allowed().or_exit(Exit::Failed)?;
    kept.enter(found).or_exit(Exit::Failed)?;
    before.apply().or_exit(Exit::Failed)
}
