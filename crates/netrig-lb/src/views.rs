//! What the running balancer is looked at with: `netrig lb status | drops | trace | metrics`.

use std::env;

use anyhow::{Context, anyhow};
use clap::{Args, Subcommand};
use rig_cli::exit::{Exit, ExitContext, Failure};
use rig_cli::{packet, streams};

use super::client::{self, status};
use super::instance::Name;
use super::message::{Protocol, ReasonCount, Reply, Request, ServiceKey, SourceFilter, TraceRequest};
use super::settings::{ListenText, ServiceText, quic_id};
use super::{drops, metrics, overview, ready, sources_text, trace_text};

#[derive(Debug, Subcommand)]
pub enum View {
    /// Devices, workers, table, services and their rates on one screen
    #[command(
        after_help = "Examples:\n  netrig lb status\n  netrig lb status --ready    by keepalived, see docs/BALANCER.md"
    )]
    Status {
        /// Print nothing but why packets should go to another balancer, and end with status 1 if they should
        #[arg(long, conflicts_with = "json")]
        ready: bool,
        /// Print it as docs/schema/lb-status.json describes it
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        which: NameOption,
    },
    /// Why packets were dropped or left to the kernel, and what to do
    ///
    /// Each reason with its number, count, rate and remedy.
    #[command(after_help = "Examples:\n  netrig lb drops\n  netrig lb drops --all")]
    Drops {
        /// All reasons, also those that have not happened
        #[arg(long)]
        all: bool,
        /// Print every reason as JSON: the `drops` and `passes` of docs/schema/lb-status.json
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        which: NameOption,
    },
    /// What would happen to a packet, and why; changes nothing
    #[command(after_help = "Examples:\n  netrig lb trace 'tcp 198.51.100.9:40000 > 192.0.2.1:80 syn'")]
    Trace {
        /// The packet, in quotes: 'tcp 198.51.100.9:40000 > 192.0.2.1:80 [syn|ack|rst|fin] length 60', flags and length
        /// as needed, or the same without the >
        #[arg(required = true)]
        flow: Vec<String>,
        /// The balancer's device that it comes in by, or a VLAN device over it [default: the first that is there]
        #[arg(long, value_name = "DEV")]
        device: Option<String>,
        /// It is a datagram of QUIC with a short header, and this is the server ID in its connection ID, e.g. 7 or 0x7
        #[arg(long, value_name = "N", value_parser = a_quic_id)]
        quic_id: Option<u64>,
        /// Print it as docs/schema/lb-trace.json describes it
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        which: NameOption,
    },
    /// Who has the most connections, by service and source
    ///
    /// A source is an address, of IPv6 one's first 64 bits, or what `source_prefix4` and `source_prefix6` say.
    #[command(after_help = "Examples:\n  netrig lb sources\n  netrig lb sources tcp 192.0.2.1:80 --most 100 --json")]
    Sources {
        /// Of this service alone: tcp 192.0.2.1:80, udp `[2001:db8::1]:53`; tcp by default
        service: Vec<String>,
        /// No more sources than these
        #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        most: u32,
        /// Print it as docs/schema/lb-sources.json describes it
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        which: NameOption,
    },
    /// All counters as OpenMetrics text, e.g. for Prometheus
    #[command(after_help = "Examples:\n  netrig lb metrics > /var/lib/prometheus/node-exporter/lb.prom")]
    Metrics {
        #[command(flatten)]
        which: NameOption,
    },
}

/// The running balancer that is asked.
#[derive(Debug, Args)]
pub struct NameOption {
    /// The balancer's name, when several run [default: $NETRIG_LB, or lb]
    #[arg(long)]
    name: Option<Name>,
}

impl NameOption {
    /// See [`chosen`].
    pub fn chosen(&self) -> Result<Name, Failure> {
        chosen(self.name.as_ref())
    }
}

/// Scripts say by this which balancer they mean.
const NAME_VARIABLE: &str = "NETRIG_LB";

/// The balancer that is named, by the environment if not by an option, or the default one.
///
/// # Errors
/// When the environment's is no name.
pub fn chosen(name: Option<&Name>) -> Result<Name, Failure> {
    match (name, env::var(NAME_VARIABLE)) {
        (Some(name), _) => Ok(name.clone()),
        (None, Ok(name)) if !name.is_empty() => name.parse().context(NAME_VARIABLE).or_exit(Exit::BadInput),
        _ => Ok(Name::default()),
    }
}

#[derive(serde::Serialize)]
struct Reasons<'a> {
    drops: &'a [ReasonCount],
    passes: &'a [ReasonCount],
}

pub fn execute(view: &View) -> Result<Exit, Failure> {
    let (View::Status { which, .. }
    | View::Drops { which, .. }
    | View::Trace { which, .. }
    | View::Sources { which, .. }
    | View::Metrics { which }) = view;
    let name = chosen(which.name.as_ref())?;
    match view {
        View::Status { json: true, .. } => print_json(&status(&name)?)?,
        View::Status { ready: true, .. } => {
            let why = ready::unready(&status(&name)?);
            streams::print(&why.iter().map(|line| format!("{line}\n")).collect::<String>())?;
            if !why.is_empty() {
                return Ok(Exit::Refuted);
            }
        }
        View::Status { .. } => streams::print(&overview::write(&status(&name)?, streams::width()))?,
        View::Drops { json: true, .. } => {
            let status = status(&name)?;
            print_json(&Reasons { drops: &status.drops, passes: &status.passes })?;
        }
        View::Drops { all, .. } => streams::print(&drops::write(&status(&name)?, *all, streams::width()))?,
        View::Metrics { .. } => streams::print(&metrics::render(&status(&name)?))?,
        View::Sources { service, most, json, .. } => sources(&name, service, *most, *json)?,
        View::Trace { flow, device, quic_id, json, .. } => trace(&name, flow, (device.as_deref(), *quic_id), *json)?,
    }
    Ok(Exit::Done)
}

/// `tcp 192.0.2.1:80`, in one word or two; none where nothing is said.
pub(super) fn service_of(words: &[String]) -> Result<Option<ServiceKey>, Failure> {
    let text = words.join(" ");
    let words: Vec<&str> = text.split_whitespace().collect();
    let wrong = || {
        let error =
            anyhow!("'{text}' is not a service: write tcp 192.0.2.1:80, tcp 192.0.2.1:any or udp [2001:db8::1]:53");
        Failure::new(Exit::BadInput, error)
    };
    let (protocol, address) = match words[..] {
        [] => return Ok(None),
        [address] | ["tcp", address] => (Protocol::Tcp, address),
        ["udp", address] => (Protocol::Udp, address),
        _ => return Err(wrong()),
    };
    let ListenText(address) = address.parse().map_err(|_| wrong())?;
    Ok(Some(ServiceKey { protocol, address }))
}

fn sources(name: &Name, service: &[String], most: u32, json: bool) -> Result<(), Failure> {
    let service = service_of(service)?;
    if let Some(key) = service
        && !status(name)?.services.iter().any(|known| known.key == key)
    {
        return Err(Failure::new(Exit::BadInput, anyhow!("No such service: {}", ServiceText(key))));
    }
    let Reply::Sources(list) = client::ask(name, &Request::Sources(SourceFilter { service, most }))? else {
        return Err(client::foreign(name).into());
    };
    if json { print_json(&list) } else { streams::print(&sources_text::write(&list)) }
}

fn a_quic_id(text: &str) -> anyhow::Result<u64> {
    quic_id(text)?.ok_or_else(|| anyhow!("a number is asked for, 7 or 0x7"))
}

fn trace(
    name: &Name,
    words: &[String],
    (device, quic_id): (Option<&str>, Option<u64>),
    json: bool,
) -> Result<(), Failure> {
    let flow = packet::parse(words).or_exit(Exit::BadInput)?;
    let asked = TraceRequest { flow, device: device.map(str::to_owned), quic_id };
    let foreign = || client::foreign(name);
    let Reply::Trace(trace) = client::ask(name, &Request::Trace(asked))? else {
        return Err(foreign().into());
    };
    // An older control plane does not know that it was asked for one.
    if device.is_some_and(|device| device != trace.device) {
        return Err(foreign().into());
    }
    if json { print_json(&trace) } else { streams::print(&trace_text::write(&flow, &trace, streams::width())) }
}

/// One JSON document and a line's end.
pub(super) fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).context("write JSON").or_exit(Exit::Failed)?;
    streams::print(&format!("{text}\n"))
}
