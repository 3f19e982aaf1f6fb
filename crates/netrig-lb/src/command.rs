//! What may follow `netrig lb`, and which part does it: an option is ipvsadm's command line, a word is a command here.

use std::ffi::OsString;

use clap::{CommandFactory, Parser, Subcommand};
use rig_cli::exit::{Exit, Failure};
use rig_cli::help;

use super::{control, ipvsadm, views};

/// The layer-4 balancer
#[derive(Debug, Parser)]
#[command(name = "netrig lb", bin_name = "netrig lb", max_term_width = 110, after_help = ipvsadm::AFTER_HELP)]
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
