//! What libbpf says in its own words while it loads: it belongs to an error, not on standard error.

use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, Once, OnceLock, PoisonError};

use libbpf_rs::{ErrorExt as _, Object, OpenObject, PrintLevel, set_print};

use rig_sys::signal;

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

/// Where whole logs of the kernel's verifier go.
static LOGS: OnceLock<fn() -> Option<PathBuf>> = OnceLock::new();

/// The most that is kept of a log, from its end: what is refused after a million instructions has one of many megabytes.
const KEPT: usize = 1 << 20;

/// Has the verifier's log of what the kernel refuses written to a directory, which `directory` makes and no other user writes to: a file
/// for each program, with the last that was said of it. Errors name the file.
pub fn keep_verifier_logs(directory: fn() -> Option<PathBuf>) {
    // The first to say so is the program itself.
    let _ = LOGS.set(directory);
}

/// The file that the log of a program is in now; `None` where none is kept.
fn kept(directory: Option<PathBuf>, program: &str, log: &str) -> Option<PathBuf> {
    let path = directory?.join(format!("verifier-{program}.log"));
    fs::write(&path, &log.as_bytes()[log.len().saturating_sub(KEPT)..]).ok()?;
    Some(path)
}

/// The first line; in place of the log of the kernel's verifier what it refused, the last that it found, and where the log is.
fn in_a_line(message: &str) -> String {
    let mut lines = message.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default();
    let Some(of) = first.strip_suffix("-- BEGIN PROG LOAD LOG --") else { return first.to_owned() };
    let is_found = |line: &&str| !["-- END PROG LOAD LOG --", "processed "].iter().any(|other| line.starts_with(other));
    let found = lines.rfind(is_found).unwrap_or("refused");
    let program = of.split('\'').nth(1).unwrap_or("program");
    match kept(LOGS.get().and_then(|directory| directory()), program, message) {
        Some(path) => format!("{of}{found} (the verifier's log is in {})", path.display()),
        None => format!("{of}{found}"),
    }
}

/// Calls libbpf. When the kernel refuses, the error has libbpf's messages; those of a call of another thread at the same time may
/// be among them.
pub(crate) fn with<T>(act: impl FnOnce() -> libbpf_rs::Result<T>) -> libbpf_rs::Result<T> {
    said().clear();
    act().map_err(|error| {
        let said = without_consequences(&said()).join("; ");
        if said.is_empty() { error } else { error.context(said) }
    })
}

/// Without what libbpf says of a program or an object that failed to load because of what it has said before.
fn without_consequences(lines: &[String]) -> Vec<&str> {
    let is_consequence = |line: &str| line.contains("failed to load");
    let (consequences, causes): (Vec<&str>, Vec<&str>) =
        lines.iter().map(String::as_str).partition(|line| is_consequence(line));
    if causes.is_empty() { consequences } else { causes }
}

/// Loads an object. The verifier gives up with EAGAIN as soon as there is a signal for the thread, though it be one that the process
/// ignores; libbpf tries five times, which on a busy machine is not enough.
pub(crate) fn load(mut open: OpenObject, program: &'static str) -> Result<Object, Error> {
    let failed = |source| Error::Load { program, source };
    let loaded = signal::deferred(|| with(|| kernel::tell(&mut open).and_then(|()| open.load())));
    let object = loaded.map_err(|error| failed(error.into()))?.map_err(failed)?;
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

    #[test]
    fn a_refused_program_is_told_once() {
        let lines =
            ["prog 'a': invalid func bpf_loop#181", "prog 'a': failed to load: -EINVAL", "failed to load object 'o'"];
        let lines = lines.map(str::to_owned);
        assert_eq!(without_consequences(&lines), ["prog 'a': invalid func bpf_loop#181"]);
        assert_eq!(without_consequences(&lines[1..2]), ["prog 'a': failed to load: -EINVAL"]);
    }

    #[test]
    fn a_log_is_kept_in_one_file_for_each_program_from_its_end() {
        let directory = tempfile::tempdir().unwrap();
        let keep = |log: &str| kept(Some(directory.path().into()), "balance", log).unwrap();
        let long = format!("{}processed 7 insns", "; a line of the program\n".repeat(KEPT / 20));
        for log in ["0: R1=ctx()\nprocessed 1 insns", &long] {
            let path = keep(log);
            assert_eq!(path.file_name().unwrap(), "verifier-balance.log");
            let text = fs::read_to_string(path).unwrap();
            assert!(log.ends_with(&text) && text.len() == log.len().min(KEPT), "{} bytes", text.len());
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        assert_eq!(kept(None, "balance", "log"), None);
        assert_eq!(kept(Some(directory.path().join("gone")), "balance", "log"), None);
    }
}
