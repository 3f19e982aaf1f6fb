//! `netrig doctor`.

use rig_cli::exit::{Exit, Failure};
use rig_cli::look;
use rig_cli::streams::{self, print_as_it_is};
use rig_facts::store::Store;

use crate::doctor::{Format, Readiness, examine, write};

pub fn doctor(json: bool) -> Result<Exit, Failure> {
    let findings = examine(Store::default_path());
    let format = if json { Format::Json } else { Format::for_stdout() };
    let text = write(&findings, format, streams::width());
    print_as_it_is(&if json { text } else { look::shown(&text).into_owned() })?;
    Ok(match Readiness::of(&findings) {
        Readiness::Ready => Exit::Done,
        Readiness::NotReady => Exit::Lacking,
    })
}
