//! ipvsadm's command line.

use std::ffi::OsString;

use crate::exit::{Exit, Failure};

pub const AFTER_HELP: &str = "";

pub fn execute(arguments: &[OsString]) -> Result<Exit, Failure> {
    todo!("{arguments:?}")
}
