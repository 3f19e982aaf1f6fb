use std::process::ExitCode;

use clap::Parser;
use netrig::cli::Cli;
use netrig::command;

fn main() -> ExitCode {
    match Cli::parse().execute() {
        Ok(exit) => exit.into(),
        Err(failure) => {
            command::note(format_args!("netrig: {failure}"));
            failure.exit.into()
        }
    }
}
