//! Counting what devices did not take, for which the kernel has tracepoints only.

use std::os::fd::AsFd;

use libbpf_rs::{Link, Object, Program, ProgramMut};

use crate::Error;
use crate::maps::Map;
use crate::object::program;

use super::load::{Tables, load_object};
use super::shape::Tuning;

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/unsent.bpf.o"));
/// Programs, and what their attachments are called where they are kept.
const COUNTING: [&str; 3] = ["count_unsent", "count_refused_redirect", "count_unsent_back"];

/// Programs at the tracepoints.
pub(crate) struct UnsentCounter {
    object: Object,
    pub(super) links: Vec<(&'static str, Link)>,
}

impl UnsentCounter {
    /// Counts into `drops` of `tables`, nothing before it knows an [entry](Self::set_entry).
    pub(super) fn attach(tables: &Tables, tuning: &Tuning) -> Result<Self, Error> {
        let object = load_object(OBJECT, &COUNTING, tuning, |name, map| tables.share(name, map))?;
        let attach = |name: &'static str| {
            let link =
                program(&object, name)?.attach_trace().map_err(|source| Error::Load { program: name, source })?;
            Ok((name, link))
        };
        let links = COUNTING.into_iter().map(attach).collect::<Result<_, Error>>()?;
        Ok(Self { object, links })
    }

    /// A program on whose behalf packets are redirected, at one of two places.
    pub(super) fn set_entry(&self, place: u32, program: &ProgramMut<'_>) -> Result<(), Error> {
        let failed = |source| Error::Map { map: "entries", operation: "find the program's number for", source };
        let number = Program::id_from_fd(program.as_fd()).map_err(failed)?;
        Map::of(&self.object, "entries", size_of::<u32>())?.set(&place, &number)
    }
}
