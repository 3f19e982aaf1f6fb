//! `netrig doctor`.

use super::print;
use crate::doctor::{self, Format, Readiness};
use crate::exit::{Exit, Failure};
use crate::store::Store;

/// Says what this machine can do. The status tells whether `netrig run layers` can work here.
pub fn doctor(json: bool) -> Result<Exit, Failure> {
    let findings = doctor::examine(Store::default_path());
    print(&doctor::write(&findings, if json { Format::Json } else { Format::for_stdout() }))?;
    Ok(match Readiness::of(&findings) {
        Readiness::Ready => Exit::Done,
        Readiness::NotReady => Exit::Lacking,
    })
}
