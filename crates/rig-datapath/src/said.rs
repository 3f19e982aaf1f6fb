//! What libbpf says in its own words while it loads: it belongs to an error, not on standard error.

use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use libbpf_rs::{ErrorExt as _, Object, OpenObject, PrintLevel, set_print};

use crate::Error;

/// Lines beyond these say the same again, or are the log of the kernel's verifier.
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
                said.push(line.lines().next().unwrap_or_default().trim().to_owned());
            }
        })));
    });
}

/// Does something with libbpf. When the kernel refuses it, the error has what libbpf says of that; what it says for another thread
/// at the same time may be among it.
pub(crate) fn with<T>(act: impl FnOnce() -> libbpf_rs::Result<T>) -> libbpf_rs::Result<T> {
    said().clear();
    act().map_err(|error| {
        let said = said().join("; ");
        if said.is_empty() { error } else { error.context(said) }
    })
}

/// Loads an object.
pub(crate) fn load(open: OpenObject, program: &'static str) -> Result<Object, Error> {
    with(|| open.load()).map_err(|source| Error::Load { program, source })
}
