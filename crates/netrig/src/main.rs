use std::process::ExitCode;

use clap::Parser;
use netrig::cli::Cli;

fn main() -> ExitCode {
    match Cli::parse().execute() {
        Ok(exit) => exit.into(),
        Err(failure) => {
            eprintln!("netrig: {failure}");
            failure.exit.into()
        }
    }
}
