//! Objects, of which the kernel's helpers decide which is loaded.

use crate::Error;
use crate::kernel::lacking;

/// An object as it is, and as it is for old kernels: see bpf/lib/old.h.
pub(crate) struct Objects {
    pub(crate) new: &'static [u8],
    pub(crate) old: &'static [u8],
}

/// An object and its other one by their name.
macro_rules! objects {
    ($name:literal) => {
        $crate::objects::Objects {
            new: include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".bpf.o")),
            old: include_bytes!(concat!(env!("OUT_DIR"), "/", $name, "_old.bpf.o")),
        }
    };
}
pub(crate) use objects;

/// Set to 1, it has the programs for old kernels loaded on a new one, where they do the same: for tests.
pub(crate) const OLD_PROGRAMS: &str = "NETRIG_TEST_OLD_PROGRAMS";

impl Objects {
    /// The one for the running kernel.
    ///
    /// # Errors
    /// [`Error::Load`] of the `program` where the kernel does not tell its types.
    pub(crate) fn for_running(&self, program: &'static str) -> Result<&'static [u8], Error> {
        let wants_old = || std::env::var_os(OLD_PROGRAMS).is_some_and(|value| value == "1");
        let lacking = lacking().map_err(|source| Error::Load { program, source })?;
        Ok(if lacking.is_some() || wants_old() { self.old } else { self.new })
    }
}

/// Whether programs that there are for new kernels alone can be loaded.
///
/// # Errors
/// [`Error::Helper`] where they cannot.
pub(crate) fn check_is_new(program: &'static str) -> Result<(), Error> {
    match lacking().map_err(|source| Error::Load { program, source })? {
        Some((helper, since)) => Err(Error::Helper { program, helper, since }),
        None => Ok(()),
    }
}
