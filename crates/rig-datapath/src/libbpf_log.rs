//! What libbpf says in its own words while it loads: it belongs to an error, not on standard error.

use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use libbpf_rs::{ErrorExt as _, Object, OpenObject, PrintLevel, set_print};

use crate::Error;
use crate::kernel;

/// Lines beyond these say the same again.
const MOST: usize = 3;

static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn said() -> MutexGuard<'static, Vec<String>> {
    SAID.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on libbpf prints nothing. It has one way of printing for the whole process.
pub(crate) fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        set_print(Some((PrintLevel::Warn, |_, line| {
            let mut said = said();
            if said.len() < MOST {
                said.push(in_a_line(&line));
            }
        })));
    });
}

/// The first line; in place of the log of the kernel's verifier what it refused, the last that it found.
fn in_a_line(message: &str) -> String {
    let mut lines = message.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default();
    let Some(of) = first.strip_suffix("-- BEGIN PROG LOAD LOG --") else { return first.to_owned() };
    let is_found = |line: &&str| !["-- END PROG LOAD LOG --", "processed "].iter().any(|other| line.starts_with(other));
    format!("{of}{}", lines.rfind(is_found).unwrap_or("refused"))
}

/// Calls libbpf. When the kernel refuses, the error has libbpf's messages; those of a call of another thread at the same time may
/// be among them.
pub(crate) fn with<T>(act: impl FnOnce() -> libbpf_rs::Result<T>) -> libbpf_rs::Result<T> {
    said().clear();
    act().map_err(|error| {
        let said = said().join("; ");
        if said.is_empty() { error } else { error.context(said) }
    })
}

/// Loads an object.
pub(crate) fn load(mut open: OpenObject, program: &'static str) -> Result<Object, Error> {
    let object = with(|| kernel::tell(&mut open).and_then(|()| open.load()))
        .map_err(|source| Error::Load { program, source })?;
    #[cfg(test)]
    loaded::note(&object, program);
    Ok(object)
}

/// For a test of what programs cost the verifier: see verified.rs.
#[cfg(test)]
pub(crate) mod loaded {
    use std::cell::RefCell;
    use std::collections::BTreeMap;
    use std::os::fd::{AsFd, AsRawFd};

    use libbpf_rs::{Object, ProgramImpl};

    thread_local! {
        /// Instructions that the verifier has walked through for each program that this thread has loaded, by object and name.
        pub(crate) static LOADED: RefCell<BTreeMap<String, u64>> = const { RefCell::new(BTreeMap::new()) };
    }

    /// Notes the programs of an object, whose first one is `first`.
    pub(crate) fn note(object: &Object, first: &str) {
        for program in object.progs().filter(ProgramImpl::autoload) {
            // kernel/bpf/syscall.c, bpf_prog_show_fdinfo: Linux 5.16 or later.
            let path = format!("/proc/self/fdinfo/{}", program.as_fd().as_raw_fd());
            let text = std::fs::read_to_string(path).unwrap_or_default();
            let verified = text.lines().find_map(|line| line.strip_prefix("verified_insns:")?.trim().parse().ok());
            let name = format!("{first}/{}", program.name().to_string_lossy());
            LOADED.with_borrow_mut(|all| all.insert(name, verified.unwrap_or_default()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_the_verifiers_log_the_line_is_told_that_ends_it() {
        let log = "prog 'closed': -- BEGIN PROG LOAD LOG --\n0: R1=ctx() R10=fp0\n; return 2; @ closed.h:9\n\
                   0: (85) call unknown#100000\ninvalid func unknown#100000\n\
                   processed 1 insns (limit 1000000) max_states_per_insn 0\n-- END PROG LOAD LOG --\n";
        assert_eq!(in_a_line(log), "prog 'closed': invalid func unknown#100000");
        assert_eq!(in_a_line("prog 'a': -- BEGIN PROG LOAD LOG --\n-- END PROG LOAD LOG --\n"), "prog 'a': refused");
        assert_eq!(in_a_line("prog 'a': failed to load: -22\n"), "prog 'a': failed to load: -22");
        assert_eq!(in_a_line(""), "");
    }
}
