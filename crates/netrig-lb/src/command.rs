//! What may follow `netrig lb`, and which part does it: an option is ipvsadm's command line, a word is a command here.

use std::ffi::OsString;

use clap::{CommandFactory, Parser, Subcommand};
use rig_cli::exit::{Exit, Failure};
use rig_cli::help;

use super::{control, ipvsadm, views};

const EXAMPLES: &str = "\
Examples:
  netrig lb check lb.toml && netrig lb run lb.toml
  netrig lb status
  netrig lb trace 'tcp 198.51.100.9:40000 > 192.0.2.1:80'
Or by the options of ipvsadm, which `netrig lb help` lists:
  netrig lb -A -t 192.0.2.1:80 -s wlc
  netrig lb -a -t 192.0.2.1:80 -r 10.0.0.2:80 -b
  netrig lb -L -n --stats";

/// The layer-4 balancer
#[derive(Debug, Parser)]
#[command(name = "netrig lb", bin_name = "netrig lb", max_term_width = 110, after_help = EXAMPLES)]
#[command(after_long_help = format!("{EXAMPLES}\n\n{}", ipvsadm::AFTER_HELP))]
struct Lb {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    Control(control::Control),
    #[command(flatten)]
    View(views::View),
}

/// What may be said, for man pages and completions.
pub fn command_line() -> clap::Command {
    help::on_a_screen(Lb::command())
}

/// Does what the arguments after `netrig lb` say.
pub fn execute(arguments: &[OsString]) -> Result<Exit, Failure> {
    let first = arguments.first().map_or("", |word| word.to_str().unwrap_or_default());
    if first.starts_with('-') && !matches!(first, "-h" | "--help") {
        return ipvsadm::execute(arguments);
    }
    let program = OsString::from("netrig lb");
    match help::parse::<Lb>([program].iter().chain(arguments).cloned()).command {
        Command::View(view) => views::execute(&view),
        Command::Control(control) => control::execute(control),
    }
}
