//! `netrig vrouter`: what may follow it, and what is done.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::{ArgGroup, Args, CommandFactory, Parser, Subcommand, ValueEnum};
use rig_cli::exit::{Exit, ExitContext, Failure};
use rig_cli::help;
use rig_cli::packet;
use rig_cli::streams::{self, print};
use rig_service::AskError;
use rig_service::log::LogOptions;
use rig_stats::units::Span;
use rig_sys::socket::parse_address;
use serde::Serialize;

use crate::client::RouterClient;
use crate::listing::{self, Family};
use crate::message::{FlowEntry, FlowFilter, LogEntry, RouteDestination, Status, TraceRequest};
use crate::rates::{self, RefreshPace};
use crate::{check, daemon, docker, follow, metrics};

const EXAMPLES: &str = "\
Examples:
  netrig vrouter check vrouter.toml
  netrig vrouter run vrouter.toml --node a
  netrig vrouter trace 'tcp 10.1.0.11:40000 > 10.2.0.11:80'";

/// The overlay router of containers
#[derive(Debug, Parser)]
#[command(version, name = "netrig vrouter", bin_name = "netrig vrouter", max_term_width = 110, after_help = EXAMPLES)]
struct Vrouter {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the router of a node in the foreground, until Ctrl-C or SIGTERM
    ///
    /// On SIGHUP it reads its file again. docs/VROUTER.md describes the file.
    #[command(
        after_help = "Examples:\n  netrig vrouter run vrouter.toml --node a\n  netrig vrouter run vrouter.toml --node a --persist"
    )]
    Run {
        /// The settings of all nodes
        #[arg(required_unless_present = "on_stdio")]
        file: Option<PathBuf>,
        /// The node that runs in this network namespace
        #[arg(long)]
        node: String,
        /// Keep forwarding, by the last configuration, when this process ends or is killed, until it is run again or
        /// released; flows survive
        #[arg(long)]
        persist: bool,
        /// When this process ends or is killed, leave containers' interfaces open to this node's own services, and open
        /// those that an earlier run has closed [default: they stay closed until the router runs again or is released]
        #[arg(long)]
        fail_open: bool,
        /// Serve metrics for Prometheus at http://ADDRESS:PORT/metrics, e.g. 127.0.0.1:9300
        #[arg(long, value_name = "ADDRESS:PORT", value_parser = parse_address)]
        metrics: Option<SocketAddr>,
        /// Take the settings from standard input, be asked there, and end with it
        #[arg(long, hide = true, conflicts_with_all = ["file", "persist", "fail_open"])]
        on_stdio: bool,
        #[command(flatten)]
        log: LogOptions,
    },
    /// Serve Docker as its network driver, until Ctrl-C or SIGTERM
    ///
    /// `docker network create -d netrig` makes a network of the router's file one of Docker's. It runs in the network namespace that dockerd and
    /// the router run in. docs/VROUTER.md describes it.
    #[command(after_help = "Examples:\n  netrig vrouter docker --node a")]
    Docker {
        /// The router's node
        #[arg(long)]
        node: String,
        /// Where dockerd looks for it; the file's name is the driver's
        #[arg(long, value_name = "PATH", default_value = "/run/docker/plugins/netrig.sock")]
        socket: PathBuf,
        /// Where the networks are kept that Docker has made [default: /var/lib/netrig/docker/NODE.json]
        #[arg(long, value_name = "FILE")]
        state: Option<PathBuf>,
        #[command(flatten)]
        log: LogOptions,
    },
    /// Undo what a router has left behind that does not run any more: open the interfaces that it has closed; after
    /// --persist, detach its programs and forget its flows
    ///
    /// In the network namespace where it ran.
    #[command(after_help = "Examples:\n  netrig vrouter release --node a")]
    Release {
        /// Its node
        #[arg(long)]
        node: String,
    },
    /// Check a file and show what each node would do; changes nothing
    ///
    /// Ends with status 2 when the file is wrong; with --node with 3 when something that it names is not here.
    #[command(
        after_help = "Examples:\n  netrig vrouter check vrouter.toml\n  netrig vrouter check vrouter.toml --node a"
    )]
    Check {
        /// The settings of all nodes
        file: PathBuf,
        /// Only this node, and which of its interfaces are in this network namespace
        #[arg(long)]
        node: Option<String>,
    },
    /// Make the running router read its file again: flows go on
    ///
    /// A bad file changes nothing.
    #[command(after_help = "Examples:\n  netrig vrouter reload")]
    Reload {
        #[command(flatten)]
        which: NodeOption,
    },
    /// Peers, networks, interfaces, drops and settings not in force, on one screen
    #[command(after_help = "Examples:\n  netrig vrouter status\n  netrig vrouter status --json")]
    Status {
        /// Print it as docs/schema/vrouter-status.json describes it
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        which: NodeOption,
    },
    /// Interfaces and their counters, in the layout of Contrail's `vif`
    #[command(after_help = "Examples:\n  netrig vrouter vif --list\n  netrig vrouter vif --get 1 --rate")]
    Vif {
        #[command(flatten)]
        what: Interfaces,
        #[command(flatten)]
        often: RepeatOptions,
        #[command(flatten)]
        how: OutputOptions,
    },
    /// Next hops, in the layout of Contrail's `nh`
    #[command(after_help = "Examples:\n  netrig vrouter nh --list")]
    Nh {
        #[command(flatten)]
        what: ListOrGet,
        #[command(flatten)]
        how: OutputOptions,
    },
    /// The routes of a network, in the layout of Contrail's `rt`
    #[command(after_help = "Examples:\n  netrig vrouter rt --dump 1\n  netrig vrouter rt --get 10.1.0.11 --vrf 1")]
    Rt {
        #[command(flatten)]
        what: Routes,
        /// Which routes [default: inet, or what --get is asked with]
        #[arg(long, value_enum)]
        family: Option<FamilyName>,
        #[command(flatten)]
        how: OutputOptions,
    },
    /// MPLS labels of arriving packets, in the layout of Contrail's `mpls`
    #[command(after_help = "Examples:\n  netrig vrouter mpls --dump")]
    Mpls {
        #[command(flatten)]
        what: Dump,
        #[command(flatten)]
        how: OutputOptions,
    },
    /// VXLAN network identifiers of arriving frames, in the layout of Contrail's `vxlan`
    #[command(after_help = "Examples:\n  netrig vrouter vxlan --dump")]
    Vxlan {
        #[command(flatten)]
        what: Dump,
        #[command(flatten)]
        how: OutputOptions,
    },
    /// Flows, in the layout of Contrail's `flow`
    #[command(
        after_help = "Examples:\n  netrig vrouter flow -l\n  netrig vrouter flow --match '10.1.0.11:40000 & proto tcp'"
    )]
    Flow {
        #[command(flatten)]
        what: Flows,
        #[command(flatten)]
        often: RepeatOptions,
        #[command(flatten)]
        how: OutputOptions,
    },
    /// Packets that were dropped, by reason, in the layout of Contrail's `dropstats`
    #[command(after_help = "Examples:\n  netrig vrouter dropstats\n  netrig vrouter dropstats --log")]
    Dropstats {
        /// The last dropped packets, up to 256 of each CPU, the oldest first
        #[arg(long)]
        log: bool,
        /// Those alone that this CPU has dropped
        #[arg(long, value_name = "CPU")]
        core: Option<u32>,
        #[command(flatten)]
        how: OutputOptions,
    },
    /// Packets of each network by kind of next hop, in the layout of Contrail's `vrfstats`
    #[command(after_help = "Examples:\n  netrig vrouter vrfstats --dump")]
    Vrfstats {
        #[command(flatten)]
        what: DumpOrGet,
        #[command(flatten)]
        how: OutputOptions,
    },
    /// The last 4,096 decisions of rules with `log = true`, the oldest first
    #[command(after_help = "Examples:\n  netrig vrouter log --follow")]
    Log {
        /// Show new ones too, until Ctrl-C
        #[arg(long)]
        follow: bool,
        /// Print a line for each as docs/schema/vrouter-log.json describes it
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        which: NodeOption,
    },
    /// What would happen to a packet, and why; changes nothing
    ///
    /// Routes, flows, rules and tunnels, by a model of the datapath with the configuration and the flows of the running router.
    #[command(after_help = "Examples:\n  netrig vrouter trace 'tcp 10.1.0.11:40000 > 10.2.0.11:80 syn'")]
    Trace {
        /// The packet, in quotes: 'tcp 10.1.0.11:40000 > 10.2.0.11:80 [syn|ack|rst|fin] length 60', flags and length as
        /// needed, or the same without the >
        #[arg(required = true)]
        flow: Vec<String>,
        /// The container's interface that it comes from; with --peer the one that it goes to [default: the one that has the
        /// address]
        #[arg(long, value_name = "NAME")]
        interface: Option<String>,
        /// The other node that it comes from through a tunnel, or its address
        #[arg(long, value_name = "NODE|ADDRESS")]
        peer: Option<String>,
        #[command(flatten)]
        how: Traces,
    },
    /// All counters as OpenMetrics text, e.g. for Prometheus' textfile collector
    #[command(after_help = "Examples:\n  netrig vrouter metrics")]
    Metrics {
        #[command(flatten)]
        which: NodeOption,
    },
}

/// The running router that is asked.
#[derive(Debug, Args)]
struct NodeOption {
    /// The router's node, when those of several run here
    #[arg(long)]
    node: Option<String>,
}

#[derive(Debug, Args)]
struct Traces {
    /// Print it as docs/schema/vrouter-trace.json describes it
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    which: NodeOption,
}

#[derive(Debug, Args)]
struct OutputOptions {
    /// Print it as JSON, a part of docs/schema/vrouter-status.json, vrouter-routes.json or vrouter-flows.json
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    which: NodeOption,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
struct Interfaces {
    /// All of them
    #[arg(long, conflicts_with = "get")]
    list: bool,
    /// The one with this number
    #[arg(long, value_name = "NUMBER")]
    get: Option<u32>,
    /// What they carry per second, all of them or the one that --get names, until Ctrl-C; with
    /// --json a line each time, as docs/schema/vrouter-interface-rates.json describes it
    #[arg(long)]
    rate: bool,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct ListOrGet {
    /// All of them
    #[arg(long)]
    list: bool,
    /// The one with this number
    #[arg(long, value_name = "NUMBER")]
    get: Option<u32>,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct DumpOrGet {
    /// All of them
    #[arg(long)]
    dump: bool,
    /// The one whose VRF has this number (see `netrig vrouter status`)
    #[arg(long, value_name = "VRF")]
    get: Option<u32>,
}

#[derive(Debug, Args)]
#[group(skip)]
#[command(group = ArgGroup::new("routes").required(true))]
struct Routes {
    /// All of the network whose VRF has this number (see `netrig vrouter status`)
    #[arg(long, group = "routes", value_name = "VRF")]
    dump: Option<u32>,
    /// The route of an address (the longest match), all of a prefix, or the one of a MAC address
    #[arg(long, group = "routes", value_name = "PREFIX|ADDRESS", requires = "vrf")]
    get: Option<RouteDestination>,
    /// The number of the VRF that --get looks in
    #[arg(long, value_name = "NUMBER", conflicts_with = "dump")]
    vrf: Option<u32>,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
struct Flows {
    /// List them
    #[arg(short, conflicts_with_all = ["get", "rate"])]
    l: bool,
    /// List those with these ends, protocol and VRF, e.g. '10.1.0.11:40000,10.2.0.11:80 & proto tcp & vrf 1',
    /// '[fd00::11]:80' or '*:80'; either direction
    #[arg(long = "match", value_name = "EXPRESSION", conflicts_with_all = ["get", "rate"])]
    matching: Option<FlowFilter>,
    /// The one with this number and its other direction, in detail
    #[arg(long, value_name = "INDEX", conflicts_with = "rate")]
    get: Option<u32>,
    /// How many connections begin, end and are refused per second, a line each time until Ctrl-C; with --json as
    /// docs/schema/vrouter-flow-rates.json describes it
    #[arg(short = 'r')]
    rate: bool,
}

/// Of what is shown again and again.
#[derive(Debug, Args)]
struct RepeatOptions {
    /// Time between two, at least 100ms
    #[arg(long, value_name = "TIME", default_value = "1s", requires = "rate", value_parser = interval)]
    interval: Span,
    /// End after this many
    #[arg(long, value_name = "NUMBER", requires = "rate")]
    count: Option<u64>,
}

impl From<&RepeatOptions> for RefreshPace {
    fn from(often: &RepeatOptions) -> Self {
        Self { interval: often.interval.0, count: often.count }
    }
}

fn interval(text: &str) -> Result<Span, String> {
    let span: Span = text.parse().map_err(|error: rig_stats::units::UnitError| error.to_string())?;
    if span.0 < Duration::from_millis(100) { Err("at least 100ms".to_owned()) } else { Ok(span) }
}

#[derive(Debug, Args)]
struct Dump {
    /// All of them
    #[arg(long, required = true)]
    dump: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum FamilyName {
    Inet,
    Inet6,
    Bridge,
}

impl From<FamilyName> for Family {
    fn from(name: FamilyName) -> Self {
        match name {
            FamilyName::Inet => Self::Inet,
            FamilyName::Inet6 => Self::Inet6,
            FamilyName::Bridge => Self::Bridge,
        }
    }
}

/// What may be said, for man pages and completions.
pub fn command_line() -> clap::Command {
    help::on_a_screen(Vrouter::command())
}

/// Does what the arguments after `netrig vrouter` say.
///
/// # Errors
/// With the status that the program ends with.
pub fn execute(arguments: &[OsString]) -> Result<Exit, Failure> {
    let program = OsString::from("netrig vrouter");
    match help::parse::<Vrouter>([program].iter().chain(arguments).cloned()).command {
        Command::Run { file, node, persist, fail_open, metrics, log, .. } => {
            log.begin();
            match file {
                Some(file) => daemon::run(&file, &node, daemon::ExitPolicy { persist, fail_open }, metrics),
                None => daemon::run_on_stdio(&node, metrics),
            }
        }
        Command::Docker { node, socket, state, log } => {
            log.begin();
            docker::serve(&node, &socket, state.as_deref())
        }
        Command::Release { node } => daemon::release(&node),
        Command::Check { file, node } => check::check(&file, node.as_deref()),
        Command::Reload { which } => {
            let said = which.ask()?.reload()?;
            let lines = if said.is_empty() { vec!["nothing has changed".to_owned()] } else { said };
            done(&(lines.join("\n") + "\n"))
        }
        Command::Status { json, which } => {
            let status = which.ask()?.status()?;
            if json { print_json(&status) } else { done(&listing::overview(&status)) }
        }
        Command::Vif { what: Interfaces { rate: true, get, .. }, often, how } => vif_rate(get, &often, &how),
        Command::Vif { what, how, .. } => vif(what.get, &how),
        Command::Nh { what, how } => nh(&what, &how),
        Command::Rt { what, family, how } => rt(&what, family.map(Family::from), &how),
        Command::Mpls { what: Dump { .. }, how } => {
            let status = how.which.ask()?.status()?;
            if how.json { print_json(&status.labels) } else { done(&listing::labels(&status)) }
        }
        Command::Vxlan { what: Dump { .. }, how } => {
            let status = how.which.ask()?.status()?;
            if how.json { print_json(&status.vnis) } else { done(&listing::vnis(&status)) }
        }
        Command::Flow { what: Flows { rate: true, .. }, often, how } => flow_rate(&often, &how),
        Command::Flow { what: Flows { get: Some(number), .. }, how, .. } => flow(number, &how),
        Command::Flow { what: Flows { matching, .. }, how, .. } => {
            let asked = how.which.ask()?;
            let flows = matching.as_ref().map_or_else(|| asked.flows(), |filter| asked.flows_of(filter))?;
            match how.json {
                true => print_json(&flows),
                false => done(&listing::flows(&asked.status()?, &flows, matching.as_ref())),
            }
        }
        Command::Trace { flow, interface, peer, how } => {
            let flow = packet::parse(&flow).or_exit(Exit::BadInput)?;
            let trace = how.which.ask()?.trace(TraceRequest { flow, interface, peer })?;
            if how.json { print_json(&trace) } else { done(&listing::trace(&flow, &trace, streams::width())) }
        }
        Command::Vrfstats { what, how } => vrfstats(&what, &how),
        Command::Log { follow, json, which } => {
            let asked = which.ask()?;
            let line = |entry: &LogEntry| if json { json_line(entry) } else { Ok(listing::logged(entry)) };
            follow::log(follow, |from| Ok(asked.log(from)?), line)
        }
        Command::Metrics { which } => done(&metrics::render(&which.ask()?.status()?)),
        Command::Dropstats { log, core, how } => dropstats(log, core, &how),
    }
}

impl NodeOption {
    fn ask(&self) -> Result<RouterClient, Failure> {
        Ok(RouterClient::of(self.node.as_deref())?)
    }
}

fn none(what: &str, number: u32) -> Failure {
    Failure::new(Exit::BadInput, anyhow!("there is no {what} {number}: see --list"))
}

fn vif(get: Option<u32>, how: &OutputOptions) -> Result<Exit, Failure> {
    let status = how.which.ask()?.status()?;
    let Some(number) = get else {
        return if how.json { print_json(&status.interfaces) } else { done(&listing::interfaces(&status)) };
    };
    let interface = status.interfaces.iter().find(|interface| interface.number == number);
    let interface = interface.ok_or_else(|| none("interface", number))?;
    if how.json { print_json(interface) } else { done(&listing::interface(interface, &status.next_hops)) }
}

fn dropstats(log: bool, core: Option<u32>, how: &OutputOptions) -> Result<Exit, Failure> {
    let mut status = how.which.ask()?.status()?;
    if let Some(cpu) = core {
        status.last_dropped.retain(|dropped| dropped.cpu == cpu);
        status.drops = listing::of_cpu(&status.drops, cpu);
    }
    match (log, how.json) {
        (true, true) => print_json(&status.last_dropped),
        (true, false) => done(&listing::last_dropped(&status)),
        (false, true) => print_json(&status.drops),
        (false, false) => done(&listing::drops(&status.drops)),
    }
}

fn vrfstats(what: &DumpOrGet, how: &OutputOptions) -> Result<Exit, Failure> {
    let mut networks = how.which.ask()?.status()?.networks;
    if let Some(vrf) = what.get {
        networks.retain(|network| network.vrf == vrf);
        if networks.is_empty() {
            return Err(Failure::new(Exit::BadInput, anyhow!("there is no VRF {vrf}: see --dump")));
        }
    }
    if how.json { print_json(&networks) } else { done(&listing::taken(&networks)) }
}

fn nh(what: &ListOrGet, how: &OutputOptions) -> Result<Exit, Failure> {
    let status = how.which.ask()?.status()?;
    let Some(number) = what.get else {
        return if how.json { print_json(&status.next_hops) } else { done(&listing::next_hops(&status)) };
    };
    let next_hop = status.next_hops.iter().find(|next_hop| next_hop.number == number);
    let next_hop = next_hop.ok_or_else(|| none("next hop", number))?;
    if how.json { print_json(next_hop) } else { done(&listing::next_hop(next_hop, &status.mac)) }
}

fn vif_rate(one: Option<u32>, often: &RepeatOptions, how: &OutputOptions) -> Result<Exit, Failure> {
    let asked = how.which.ask()?;
    let status = asked.status()?;
    if let Some(number) = one.filter(|number| !status.interfaces.iter().any(|interface| interface.number == *number)) {
        return Err(none("interface", number));
    }
    rates::repeat(
        often.into(),
        || Ok(asked.status()?),
        |before, now| {
            let rates = rates::of_interfaces(before, now, one);
            rates
                .map(|rates| if how.json { json_line(&rates) } else { Ok(rates::in_place(&rates::interfaces(&rates))) })
                .transpose()
        },
    )
}

fn flow_rate(often: &RepeatOptions, how: &OutputOptions) -> Result<Exit, Failure> {
    let asked = how.which.ask()?;
    rates::repeat(
        often.into(),
        || Ok(asked.status()?),
        |before, now| {
            let rates = rates::of_flows(before, now);
            rates.map(|rates| if how.json { json_line(&rates) } else { Ok(rates::flows(&rates)) }).transpose()
        },
    )
}

/// Both directions of a flow, the one that was asked for first.
fn flow(number: u32, how: &OutputOptions) -> Result<Exit, Failure> {
    let asked = how.which.ask()?;
    let mut flows = asked.flows_of(&FlowFilter { number: Some(number), ..FlowFilter::default() })?;
    flows.sort_by_key(|flow| flow.index != number);
    if flows.is_empty() {
        return Err(Failure::new(Exit::BadInput, anyhow!("there is no flow {number}: see -l")));
    }
    if how.json {
        return print_json(&flows);
    }
    let status = asked.status()?;
    let texts: Result<Vec<String>, Failure> =
        flows.iter().map(|one| with_routes(&asked, &status, one, &flows)).collect();
    done(&texts?.join("\n"))
}

fn with_routes(asked: &RouterClient, status: &Status, flow: &FlowEntry, all: &[FlowEntry]) -> Result<String, Failure> {
    let route = |to: IpAddr| match asked.route(flow.vrf, RouteDestination::Prefix(to.into())) {
        Ok(table) => Ok(Some(table)),
        // It may have gone since.
        Err(AskError::Refused(_)) => Ok(None),
        Err(error) => Err(Failure::from(error)),
    };
    let (source, destination) = (route(flow.source.ip())?, route(flow.destination.ip())?);
    let reverse = all.iter().find(|one| Some(one.index) == flow.reverse_index);
    Ok(listing::flow(status, flow, reverse, [source.as_ref(), destination.as_ref()]))
}

fn rt(what: &Routes, family: Option<Family>, how: &OutputOptions) -> Result<Exit, Failure> {
    let asked = how.which.ask()?;
    let (tables, of) = match (what.get, what.vrf) {
        (Some(to), Some(vrf)) => {
            let of = match to {
                RouteDestination::Prefix(prefix) if prefix.addr().is_ipv4() => Family::Inet,
                RouteDestination::Prefix(_) => Family::Inet6,
                RouteDestination::Mac(_) => Family::Bridge,
            };
            if family.is_some_and(|family| family != of) {
                return Err(Failure::new(
                    Exit::BadInput,
                    anyhow!("--get {to} is not of the --family that is asked for"),
                ));
            }
            (vec![asked.route(vrf, to)?], of)
        }
        _ => (asked.routes(what.dump)?, family.unwrap_or(Family::Inet)),
    };
    if how.json {
        return print_json(&tables);
    }
    done(&tables.iter().map(|table| listing::routes(table, of)).collect::<String>())
}

fn done(text: &str) -> Result<Exit, Failure> {
    print(text).map(|()| Exit::Done)
}

fn json_line(value: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(value).map(|line| line + "\n").context("write JSON").or_exit(Exit::Failed)
}

/// One JSON document and a line's end.
fn print_json(value: &impl Serialize) -> Result<Exit, Failure> {
    let text = serde_json::to_string_pretty(value).context("write JSON").or_exit(Exit::Failed)?;
    done(&format!("{text}\n"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn help_says_what_each_command_does() {
        let mut command = Vrouter::command();
        command.build();
        let mut text = command.render_long_help().to_string();
        for one in command.get_subcommands_mut().filter(|one| one.get_name() != "help") {
            let name = one.get_name().to_owned();
            text += &format!("\n--- {name}\n{}", one.render_long_help());
        }
        insta::assert_snapshot!("help", text);
    }
}
