use std::env;
use std::process::ExitCode;

use clap::Parser;
use netrig::cli::Cli;
use netrig::tool::Tool;
use rig_cli::streams::note;

fn main() -> ExitCode {
    let mut arguments = env::args_os();
    let result = match arguments.next().and_then(|program| Tool::of(&program)) {
        Some(tool) => tool.execute(&arguments.collect::<Vec<_>>()),
        None => Cli::parse().execute(),
    };
    match result {
        Ok(exit) => exit.into(),
        Err(failure) => {
            note(format_args!("netrig: {failure}"));
            if let Some(next) = &failure.next {
                note(format_args!("netrig: {next}"));
            }
            failure.exit.into()
        }
    }
}
