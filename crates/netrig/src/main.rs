use std::env;
use std::process::ExitCode;

use clap::Parser;
use netrig::cli::Cli;
use netrig::command;
use netrig::frontend::Tool;

fn main() -> ExitCode {
    let mut arguments = env::args_os();
    let result = match arguments.next().and_then(|program| Tool::of(&program)) {
        Some(tool) => tool.execute(&arguments.collect::<Vec<_>>()),
        None => Cli::parse().execute(),
    };
    match result {
        Ok(exit) => exit.into(),
        Err(failure) => {
            command::note(format_args!("netrig: {failure}"));
            if let Some(next) = &failure.next {
                command::note(format_args!("netrig: {next}"));
            }
            failure.exit.into()
        }
    }
}
