//! What this machine can do, what is missing and how to get it.
//!
//! [`Facts`] come from rig-sys; what they mean to a user of netrig is decided here, by pure functions of the facts.

mod findings;
mod print;

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rig_sys::probe::{Facts, Machine};
use serde::Serialize;

use crate::record::Environment;
use crate::store::{Store, StoreError};

pub use findings::findings;

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub area: Area,
    pub name: &'static str,
    #[serde(flatten)]
    pub state: State,
}

/// The parts of netrig that a finding matters to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Area {
    Privileges,
    Testbed,
    Cpus,
    Clock,
    LoadGenerator,
    Store,
    OtherLoad,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "state")]
pub enum State {
    Ok {
        found: String,
    },
    /// Everything works, but figures are less certain or less comparable.
    Doubtful(Lack),
    /// A part of netrig does not work; `netrig run layers` does.
    Lacking(Lack),
    /// `netrig run layers` does not work.
    Missing(Lack),
    Unknown {
        why: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Lack {
    pub found: String,
    /// What does not work, or which figures suffer.
    pub effect: String,
    pub remedy: String,
}

/// Whether `netrig run layers` can work here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    Ready,
    NotReady,
}

impl Readiness {
    pub fn of(findings: &[Finding]) -> Self {
        match findings.iter().any(|finding| matches!(finding.state, State::Missing(_))) {
            true => Self::NotReady,
            false => Self::Ready,
        }
    }
}

/// How findings are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Plain,
    Coloured,
    Json,
}

impl Format {
    /// For people on a terminal in colour, unless NO_COLOR (https://no-color.org) asks for none.
    pub fn for_stdout() -> Self {
        let colour = io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        if colour { Self::Coloured } else { Self::Plain }
    }
}

/// Long enough for a twentieth of a CPU to show in clock ticks of 10 ms.
const WATCH: Duration = Duration::from_millis(200);

/// Looks at the machine and writes what it finds. `store` is where runs would be kept.
///
/// Without root the process ends up in a user namespace (see [`Facts::gather`]): call it from a process that has one
/// thread and does nothing else afterwards.
pub fn run(store: Result<PathBuf, StoreError>, format: Format, out: &mut impl Write) -> anyhow::Result<Readiness> {
    // Before the user namespace, in which other users' files are nobody's.
    let store = store.and_then(|path| look_at_store(&path).map(|()| path)).map_err(|error| error.to_string());
    let findings = findings(&Facts::gather(WATCH), &store);
    match format {
        Format::Json => print::json(&findings, out)?,
        Format::Plain => print::text(&findings, print::Palette::NONE, out)?,
        Format::Coloured => print::text(&findings, print::Palette::ANSI, out)?,
    }
    Ok(Readiness::of(&findings))
}

/// Whether a run could be stored at `path`. Changes nothing there.
fn look_at_store(path: &Path) -> Result<(), StoreError> {
    let denied = |error: io::Error| StoreError::NoPermission { path: path.to_owned(), detail: error.to_string() };
    if path.exists() {
        Store::open_to_read(path)?;
        std::fs::OpenOptions::new().write(true).open(path).map_err(denied)?;
    }
    let absolute = std::path::absolute(path).map_err(denied)?;
    let directory = absolute.ancestors().skip(1).find(|directory| directory.exists()).unwrap_or(Path::new("/"));
    // A file without a name: it is gone when it is closed.
    tempfile::tempfile_in(directory).map(drop).map_err(denied)
}

/// What a run remembers of the machine it was made on.
pub fn environment(machine: &Machine, load_average: f64, rootless: bool) -> Environment {
    let unknown = || "unknown".to_owned();
    let sysctl = |name: &str, value: Option<u64>| Some((name.to_owned(), value?.to_string()));
    let sysctls =
        [sysctl("net.core.rmem_max", machine.receive_buffer_max), sysctl("net.core.wmem_max", machine.send_buffer_max)];
    Environment {
        netrig_version: env!("CARGO_PKG_VERSION").to_owned(),
        kernel: machine.kernel.clone(),
        cpu_model: machine.cpu_model.clone().unwrap_or_else(unknown),
        cpus_online: machine.online.len() as u32,
        memory_bytes: machine.memory_bytes,
        clock_source: machine.clock_source.clone().unwrap_or_else(unknown),
        congestion_control: machine.congestion_control.clone().unwrap_or_else(unknown),
        hypervisor: machine.hypervisor.clone(),
        rootless,
        load_average_hundredths: (load_average * 100.0).round() as u32,
        sysctls: sysctls.into_iter().flatten().collect(),
    }
}

#[cfg(test)]
mod tests;
