//! iperf3: its command line, its layouts and its wire protocol, client and server.
//!
//! The format of what goes over the wire is that of esnet/iperf's `src/iperf_api.h`, `iperf_api.c` and `iperf_udp.c`,
//! versions 3.12 to 3.21. What
//! both ends say is decided in [`control`] without I/O, and what is printed in `text` and `record` from figures alone.

mod authentication;
mod client;
mod console;
pub mod control;
mod error;
mod figures;
mod json;
mod load;
mod options;
mod record;
mod report;
mod server;
mod session;
mod settings;
mod sockets;
#[cfg(test)]
mod tests;
mod text;
pub(crate) mod told;
mod units;
mod wait;
mod wire;

use std::env;
use std::ffi::OsString;
use std::fs;

use rig_cli::exit::{Exit, Failure};
use rig_cli::streams;
use rig_load::driver::Cancel;
use rig_sys::cpu;

use self::authentication::{Authorizer, Credentials};
use self::client::{Ending, Outcome};
use self::console::Console;
use self::error::{Code, TestError};
use self::options::{OptionError, Parsed, SHORT_USAGE};
use self::report::{FEATURES, Report, SHOWN_VERSION, system_info};
use self::settings::{Role, Settings};
use crate::store_run::{RunKeeper, ToolRunEnd, ToolTest};

pub use self::options::help;

/// Set for the process that `-D` leaves in the background.
const IN_BACKGROUND: &str = "NETRIG_IPERF3_IN_BACKGROUND";

/// iperf3 has one status for everything that fails.
const FAILED: Exit = Exit::Refuted;

/// Does what the arguments say; `keeper` has what `--store-run` keeps. Exit status as iperf3 has it: 0 done or ended by a signal, 1 for any error.
///
/// # Errors
/// When nothing can be printed.
pub fn execute(arguments: &[OsString], keeper: &mut dyn RunKeeper) -> Result<Exit, Failure> {
    let words: Vec<String> = arguments.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let settings = match options::parse(&words) {
        Ok(Parsed::Run(settings)) => *settings,
        Ok(Parsed::Help) => return streams::print(&help()).map(|()| Exit::Done),
        Ok(Parsed::Version) => {
            streams::print(&format!("{SHOWN_VERSION}\n{}\n{FEATURES}\n", system_info()))?;
            return Ok(Exit::Done);
        }
        Err(error) => {
            streams::note(format_args!("iperf3: {error}\n\n{}", SHORT_USAGE.trim_end()));
            return Ok(FAILED);
        }
    };
    let authentication = Credentials::read(&settings.authentication)
        .and_then(|credentials| Authorizer::read(&settings.authentication).map(|authorizer| (credentials, authorizer)));
    let (credentials, authorizer) = match authentication {
        Ok(both) => both,
        Err(trouble) => {
            let error = OptionError::from(trouble);
            streams::note(format_args!("iperf3: {error}\n\n{}", SHORT_USAGE.trim_end()));
            return Ok(FAILED);
        }
    };
    settings.warnings.iter().for_each(|text| Console::warning(text));
    if settings.server.daemon && env::var_os(IN_BACKGROUND).is_none() {
        return super::go_into_background("iperf3", arguments, IN_BACKGROUND);
    }
    let title = settings.test.title.as_deref();
    let console = match Console::open(&settings.output, settings.role, title) {
        Ok(console) => console,
        Err(trouble) => {
            streams::note(format_args!("iperf3: error - {trouble}"));
            return Ok(FAILED);
        }
    };
    match run(settings, credentials.as_ref(), authorizer, &console, keeper) {
        Ok(exit) => Ok(exit),
        Err(trouble) => {
            console.error(&format!("error - {trouble}"));
            Ok(FAILED)
        }
    }
}

/// What the report of a whole test says that is not in the store.
pub(crate) const UNSTORED: &str = "error - --store-run: the test was made, and is not stored";

/// Keeps what a client has found; or says why not, in its report. The test was made, whatever comes of that.
fn keep(told: Result<ToolTest, String>, keeper: &mut dyn RunKeeper, report: &mut Report) -> Exit {
    let kept =
        told.and_then(|test| keeper.keep(vec![test], ToolRunEnd::Complete).map_err(|failure| failure.to_string()));
    let Err(why) = kept else { return Exit::Done };
    report.error(&format!("{UNSTORED}: {why}"));
    FAILED
}

/// A file with this process's number, which goes with the value.
struct PidFile(Option<String>);

impl PidFile {
    fn write(path: Option<&String>) -> Result<Self, TestError> {
        let Some(path) = path else { return Ok(Self(None)) };
        let other = fs::read_to_string(path).ok().and_then(|text| text.trim().parse::<u32>().ok());
        if other.is_some_and(|pid| pid != std::process::id() && fs::metadata(format!("/proc/{pid}")).is_ok()) {
            return Err(TestError::with(Code::PID_FILE, format!("{path} is that of a process that runs")));
        }
        fs::write(path, std::process::id().to_string()).map_err(|error| TestError::system(Code::PID_FILE, &error))?;
        Ok(Self(Some(path.clone())))
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            // It is only a note to others.
            let _ = fs::remove_file(path);
        }
    }
}

fn run(
    settings: Settings,
    credentials: Option<&Credentials>,
    authorizer: Option<Authorizer>,
    console: &Console,
    keeper: &mut dyn RunKeeper,
) -> Result<Exit, TestError> {
    if let Some(cpu) = settings.affinity {
        cpu::set_affinity(&[cpu]).map_err(|error| TestError::with(Code::AFFINITY, error.to_string()))?;
    }
    let cancel = Cancel::on_stop_signal().map_err(|error| TestError::with(Code::INIT, error.to_string()))?;
    let _pid_file = PidFile::write(settings.pid_file.as_ref())?;
    match settings.role {
        Role::Client => {
            let mut report = Report::new(&settings, console.clone(), settings.store_run.is_some());
            if let Some(label) = &settings.store_run
                && let Err(failure) = keeper.prepare(label.as_deref())
            {
                report.error(&format!("error - --store-run: {failure}"));
                report.finish(&settings.test, false);
                return Ok(FAILED);
            }
            let Outcome { test, ending } = client::run(&settings, credentials, &mut report, &cancel);
            match &ending {
                Ok(Ending::Completed) => {}
                Ok(Ending::Interrupted) => report.error("interrupt - the client has terminated"),
                Err(trouble) => report.failed(trouble),
            }
            let completed = ending == Ok(Ending::Completed);
            let told = report.told().filter(|_| completed && settings.store_run.is_some());
            let kept = told.map_or(Exit::Done, |told| keep(told, keeper, &mut report));
            report.finish(&test, completed);
            if ending.is_err() {
                return Ok(FAILED);
            }
            if settings.store_run.is_some() && !completed {
                console.error("a test that was stopped is not stored");
            }
            Ok(kept)
        }
        Role::Server => {
            let json = settings.output.json;
            server::run(settings, authorizer, console.clone(), &cancel)?;
            if cancel.is_cancelled() && !json {
                console.error("interrupt - the server has terminated");
            }
            Ok(Exit::Done)
        }
    }
}
