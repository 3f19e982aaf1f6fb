//! `netrig vrouter`: what may follow it, and what is done.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context, anyhow};
use clap::{Args, Parser, Subcommand, ValueEnum};
use rig_cli::exit::{Exit, Failure, OrExit};
use rig_cli::streams::print;
use serde::Serialize;

use crate::client::Asked;
use crate::listing::{self, Family};
use crate::{check, daemon};

/// The overlay router of containers
#[derive(Debug, Parser)]
#[command(name = "netrig vrouter", bin_name = "netrig vrouter", max_term_width = 110)]
struct Vrouter {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the router of a node in the foreground, until Ctrl-C or SIGTERM
    ///
    /// SIGHUP has it read its file again. docs/VROUTER.md describes the file.
    Run {
        /// The settings of all nodes
        file: PathBuf,
        /// The node that this network namespace is
        #[arg(long)]
        node: String,
        /// Go on forwarding when this process ends or is killed, by what was last in force, until it is run again or
        /// released; flows go on with the next one
        #[arg(long)]
        persist: bool,
    },
    /// Take the programs of a router that persists off their interfaces, and forget its flows
    Release {
        /// The node that it was run as
        #[arg(long)]
        node: String,
    },
    /// Check a file and say what it would have each node do, without touching anything
    ///
    /// Ends with status 2 when the file is wrong; with --node with 3 when something that it names is not here.
    Check {
        /// The settings of all nodes
        file: PathBuf,
        /// This node alone, and what of it is in this network namespace
        #[arg(long)]
        node: Option<String>,
    },
    /// Have the running router read its file again: flows go on, and a bad file changes nothing
    Reload {
        #[command(flatten)]
        which: Which,
    },
    /// Peers, networks, interfaces, drops and what is not done on one screen
    Status {
        /// Print it as docs/schema/vrouter-status.json describes it
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        which: Which,
    },
    /// Interfaces and their counters, in the layout of Contrail's `vif`
    Vif {
        #[command(flatten)]
        what: ListOrGet,
        #[command(flatten)]
        how: How,
    },
    /// Next hops, in the layout of Contrail's `nh`
    Nh {
        #[command(flatten)]
        what: ListOrGet,
        #[command(flatten)]
        how: How,
    },
    /// The routes of a network, in the layout of Contrail's `rt`
    Rt {
        /// The number of the network's VRF, as `netrig vrouter status` tells it
        #[arg(long, value_name = "VRF")]
        dump: u32,
        /// Which routes
        #[arg(long, value_enum, default_value_t = FamilyName::Inet)]
        family: FamilyName,
        #[command(flatten)]
        how: How,
    },
    /// MPLS labels that packets come with, in the layout of Contrail's `mpls`
    Mpls {
        #[command(flatten)]
        what: Dump,
        #[command(flatten)]
        how: How,
    },
    /// VXLAN network identifiers that frames come with, in the layout of Contrail's `vxlan`
    Vxlan {
        #[command(flatten)]
        what: Dump,
        #[command(flatten)]
        how: How,
    },
    /// Flows, in the layout of Contrail's `flow`
    Flow {
        /// List them
        #[arg(short, required = true)]
        l: bool,
        #[command(flatten)]
        how: How,
    },
    /// Packets that were dropped, by reason, in the layout of Contrail's `dropstats`
    Dropstats {
        /// The packets that were dropped last, up to 256 of each CPU, the oldest first
        #[arg(long)]
        log: bool,
        #[command(flatten)]
        how: How,
    },
}

/// The running router that is asked.
#[derive(Debug, Args)]
struct Which {
    /// The router's node, when those of several run here
    #[arg(long)]
    node: Option<String>,
}

#[derive(Debug, Args)]
struct How {
    /// Print it as JSON, a part of docs/schema/vrouter-status.json, vrouter-routes.json or vrouter-flows.json
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    which: Which,
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

/// Does what the arguments after `netrig vrouter` say.
///
/// # Errors
/// With the status that the program ends with.
pub fn execute(arguments: &[OsString]) -> Result<Exit, Failure> {
    let program = OsString::from("netrig vrouter");
    match Vrouter::parse_from([program].iter().chain(arguments)).command {
        Command::Run { file, node, persist } => daemon::run(&file, &node, persist),
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
        Command::Vif { what, how } => vif(&what, &how),
        Command::Nh { what, how } => nh(&what, &how),
        Command::Rt { dump, family, how } => rt(dump, family.into(), &how),
        Command::Mpls { what: Dump { .. }, how } => {
            let status = how.which.ask()?.status()?;
            if how.json { print_json(&status.labels) } else { done(&listing::labels(&status)) }
        }
        Command::Vxlan { what: Dump { .. }, how } => {
            let status = how.which.ask()?.status()?;
            if how.json { print_json(&status.vnis) } else { done(&listing::vnis(&status)) }
        }
        Command::Flow { l: _, how } => {
            let asked = how.which.ask()?;
            let flows = asked.flows()?;
            if how.json { print_json(&flows) } else { done(&listing::flows(&asked.status()?, &flows)) }
        }
        Command::Dropstats { log, how } => {
            let status = how.which.ask()?.status()?;
            match (log, how.json) {
                (true, true) => print_json(&status.last_dropped),
                (true, false) => done(&listing::last_dropped(&status)),
                (false, true) => print_json(&status.drops),
                (false, false) => done(&listing::drops(&status.drops)),
            }
        }
    }
}

impl Which {
    fn ask(&self) -> Result<Asked, Failure> {
        Ok(Asked::of(self.node.as_deref())?)
    }
}

fn none(what: &str, number: u32) -> Failure {
    Failure::new(Exit::BadInput, anyhow!("there is no {what} {number}: see --list"))
}

fn vif(what: &ListOrGet, how: &How) -> Result<Exit, Failure> {
    let status = how.which.ask()?.status()?;
    let Some(number) = what.get else {
        return if how.json { print_json(&status.interfaces) } else { done(&listing::interfaces(&status)) };
    };
    let interface = status.interfaces.iter().find(|interface| interface.number == number);
    let interface = interface.ok_or_else(|| none("interface", number))?;
    if how.json { print_json(interface) } else { done(&listing::interface(interface, &status.next_hops)) }
}

fn nh(what: &ListOrGet, how: &How) -> Result<Exit, Failure> {
    let status = how.which.ask()?.status()?;
    let Some(number) = what.get else {
        return if how.json { print_json(&status.next_hops) } else { done(&listing::next_hops(&status)) };
    };
    let next_hop = status.next_hops.iter().find(|next_hop| next_hop.number == number);
    let next_hop = next_hop.ok_or_else(|| none("next hop", number))?;
    if how.json { print_json(next_hop) } else { done(&listing::next_hop(next_hop, &status.mac)) }
}

fn rt(vrf: u32, family: Family, how: &How) -> Result<Exit, Failure> {
    let tables = how.which.ask()?.routes(Some(vrf))?;
    if how.json {
        return print_json(&tables);
    }
    done(&tables.iter().map(|table| listing::routes(table, family)).collect::<String>())
}

fn done(text: &str) -> Result<Exit, Failure> {
    print(text).map(|()| Exit::Done)
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
