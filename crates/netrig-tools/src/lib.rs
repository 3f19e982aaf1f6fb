//! The command lines, layouts and wire protocols of other tools, over netrig's own engines.
//!
//! A front end translates its original's options into a load of `rig-load`, talks to the original's other end, and
//! prints what the original would print. What they share is here: the counters of the machine ([`counters`]), and the course of a test in which an end of another kind takes part ([`test_run`]).

#![forbid(unsafe_code)]

pub mod counters;
pub mod dperf;
pub mod import;
pub mod iperf3;
pub mod netperf;
pub mod ntttcp;
pub mod store_run;
pub mod test_run;

use std::env;
use std::ffi::OsString;
use std::process::{Command, Stdio};

use anyhow::Context;
use rig_cli::exit::{Exit, ExitContext, Failure};
use rig_cli::schema::{Schema, described};
use rig_cli::streams;
use rig_sys::process;

/// Starts the same again, `netrig TOOL ARGUMENTS` with `marker` in its environment, in a session of its own and without a
/// terminal, and leaves it alone.
fn go_into_background(tool: &str, arguments: &[OsString], marker: &str) -> Result<Exit, Failure> {
    let program = env::current_exe().context("find this program").or_exit(Exit::Failed)?;
    let mut command = Command::new(program);
    command.arg(tool).args(arguments).env(marker, "1");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let child =
        process::in_own_session(&mut command).spawn().context("start in the background").or_exit(Exit::Failed)?;
    streams::print(&format!("runs in the background as process {}\n", child.id()))?;
    Ok(Exit::Done)
}

/// The JSON Schemas of what is published, by file name in docs/schema.
pub fn schemas() -> [(&'static str, Schema); 1] {
    let dperf = described::<dperf::record::Record>("A run of netrig dperf", "What `netrig dperf --json FILE` writes.");
    [("dperf.json", dperf)]
}
