use std::env;
use std::path::Path;
use std::process::ExitCode;

use netrig::cli::{self, Cli};
use netrig::tool::Tool;
use rig_cli::help;
use rig_cli::streams::tell;
use rig_service::run_directory::RunDirectory;

fn main() -> ExitCode {
    if let Err(error) = rig_sys::signal::forget_inherited() {
        tell(format_args!("netrig: signals: {error}"));
        return ExitCode::FAILURE;
    }
    let mut arguments = env::args_os();
    let program = arguments.next().unwrap_or_else(|| "netrig".into());
    rig_datapath::keep_verifier_logs(|| RunDirectory::of_user().make().ok().map(Path::to_owned));
    // A runtime of containers gives a plug-in no arguments.
    if arguments.len() == 0 && netrig_vrouter::cni::is_called() {
        return netrig_vrouter::cni::execute();
    }
    let result = match Tool::of(&program) {
        Some(tool) => tool.execute(&arguments.collect::<Vec<_>>()),
        None => {
            let arguments: Vec<_> = [program].into_iter().chain(arguments).collect();
            let command = arguments.get(1).and_then(|word| word.to_str()).unwrap_or_default().to_owned();
            help::parse_or::<Cli>(arguments, |word| cli::instead(&command, word)).execute()
        }
    };
    match result {
        Ok(exit) => exit.into(),
        Err(failure) => {
            tell(format_args!("netrig: {failure}"));
            if let Some(next) = &failure.next {
                tell(format_args!("  {next}"));
            }
            failure.exit.into()
        }
    }
}
