//! What a command writes.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use anyhow::Context;

use crate::exit::{Exit, ExitContext, Failure};
use crate::look::{in_columns, shown};
use crate::visible::visible;

/// Writes text to standard output, with what would act on its reader made visible. A reader that went away is not an error: `netrig list | head` is fine.
///
/// # Errors
/// When standard output takes no more, with [`Exit::Failed`].
pub fn print(text: &str) -> Result<(), Failure> {
    print_on(text).map(drop)
}

/// As [`print()`], for commands that go on; `false` when the reader has closed its end.
///
/// # Errors
/// As [`print()`].
pub fn print_on(text: &str) -> Result<bool, Failure> {
    print_as_it_is(&visible(text))
}

/// As [`print_on()`], for text that drives the terminal itself: text of others in it has gone through [`visible()`] already.
///
/// # Errors
/// As [`print()`].
pub fn print_as_it_is(text: &str) -> Result<bool, Failure> {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    let is_read = !written.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe);
    done_or_closed(written).map(|()| is_read)
}

/// Columns of the terminal that standard output goes to; 80 where it goes elsewhere.
pub fn width() -> usize {
    let terminal = io::stdout().is_terminal();
    rig_sys::process::terminal_width().filter(|_| terminal).unwrap_or(80).into()
}

/// Writes a line to standard error, with what would act on its reader made visible. Its reader may have closed it, which is no reason to end otherwise.
pub fn note(text: impl Display) {
    let _ = writeln!(io::stderr(), "{}", shown(&visible(&text.to_string())));
}

/// As [`note()`], for sentences: on a terminal wrapped at its width, for programs and files each line as it is.
pub fn tell(text: impl Display) {
    // Before it is wrapped: what is made visible takes columns.
    let text = visible(&text.to_string()).into_owned();
    match rig_sys::process::error_terminal_width() {
        Some(columns) => note(in_columns(&text, columns.into())),
        None => note(text),
    }
}

/// As [`print()`] sees the end of writing.
///
/// # Errors
/// When it failed for another reason than a closed reader, with [`Exit::Failed`].
pub fn done_or_closed(result: io::Result<()>) -> Result<(), Failure> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result.context("write the output").or_exit(Exit::Failed),
    }
}
