//! An object that libbpf has loaded.

use libbpf_rs::{Object, ProgramMut};

use crate::Error;

/// A program by its name.
pub(crate) fn program<'a>(object: &'a Object, name: &'static str) -> Result<ProgramMut<'a>, Error> {
    let program = object.progs_mut().find(|program| program.name() == name);
    program.ok_or_else(|| Error::Missing { kind: "program", name: name.to_owned() })
}
