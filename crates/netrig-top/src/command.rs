//! `netrig top`: what may be said, and what is done.

use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::Args;
use netrig_lb::instance::{DEFAULT_NAME, Name};
use netrig_vrouter::client::RouterClient;
use rig_cli::exit::{Exit, ExitContext, Failure};
use rig_cli::streams::print_on;
use rig_stats::units::Span;
use rig_sys::cpu::CpuSet;
use rig_testbed::registry::{HeldTestbed, TestbedRegistry};

use crate::between::between;
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
    /// How often counters are read, 100ms to 1min
    #[arg(long, short = 'i', value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,
    /// End after this many samples
    #[arg(long, short = 'n', value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Print samples as JSON, a line each, in place of a screen; one, unless --count says more
    #[arg(long)]
    json: bool,
}

fn interval(text: &str) -> Result<Duration, String> {
    let Span(asked) = text.parse::<Span>().map_err(|error| error.to_string())?;
    if !(SHORTEST..=LONGEST).contains(&asked) {
        return Err("it is not between 100 ms and 1 min".to_owned());
    }
    Ok(asked)
}

/// # Errors
/// Where what is to be shown is not here, or cannot be shown.
pub fn execute(args: &TopArgs) -> Result<Exit, Failure> {
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
        return json(source, args.interval, args.count.unwrap_or(1));
    }
    screen::show(source, args.interval, args.count)
}

fn json(mut source: Source, interval: Duration, count: u64) -> Result<Exit, Failure> {
    let mut before = source.read()?;
    for _ in 0..count {
        rig_sys::clock::sleep_until(before.at_ns + interval.as_nanos() as u64);
        let now = source.read()?;
        let text = serde_json::to_string(&between(&before, &now)).context("write JSON").or_exit(Exit::Failed)?;
        if !print_on(&(text + "\n"))? {
            break;
        }
        before = now;
    }
    Ok(Exit::Done)
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
