//! What is said while a test runs, as the originals say it.

use std::cell::RefCell;
use std::env;
use std::fs::File;
use std::io::{self, IsTerminal, Write};

use jiff::Zoned;
use rig_cli::exit::{Exit, Failure};

use super::linux_text::throughput;
use super::test_plan::{Layout, TestPlan};
use crate::test_run::TestObserver;

/// Standard output, and the log file of `-O`.
#[derive(Debug)]
pub struct Console {
    linux: bool,
    verbose: bool,
    quiet: bool,
    /// A line may be written over by the next.
    rewrites: bool,
    log: RefCell<Option<File>>,
}

impl Console {
    pub fn open(plan: &TestPlan) -> Result<Self, Failure> {
        let log = match &plan.layout {
            Layout::Linux(output) => output.console_log.as_ref(),
            Layout::Windows(_) => None,
        };
        let open = |path| {
            let refuse = |error: io::Error| {
                Failure::new(Exit::BadInput, anyhow::anyhow!("-O {}: {error}", std::path::Path::display(path)))
            };
            File::create(path).map_err(refuse)
        };
        let log = RefCell::new(log.map(|path| open(path.as_path())).transpose()?);
        let rewrites = io::stdout().is_terminal() && env::var_os("TERM").is_none_or(|term| term != "dumb");
        Ok(Self { linux: plan.is_linux(), verbose: plan.verbose, quiet: plan.quiet, rewrites, log })
    }

    /// A line as it is.
    pub fn plain(&self, text: &str) {
        self.write(&format!("{text}\n"));
    }

    /// A line of the Linux log; on Windows there are none.
    pub fn info(&self, text: &str) {
        if self.linux {
            self.stamped("INFO", text);
        }
    }

    /// What both originals say when traffic begins.
    pub fn progressing(&self) {
        let text = "Network activity progressing...";
        if self.linux { self.info(text) } else { self.plain(text) }
    }

    /// A line that only verbose output has.
    pub fn detail(&self, text: &str) {
        match (self.verbose, self.linux) {
            (true, true) => self.stamped("DBG ", text),
            (true, false) => self.plain(text),
            (false, _) => {}
        }
    }

    /// What went wrong, or what the user must know to judge the figures.
    pub fn error(&self, text: &str) {
        if self.linux {
            self.stamped("ERR ", text);
        } else {
            rig_cli::streams::note(format_args!("ntttcp: {text}"));
        }
    }

    /// Something worth knowing that is no failure.
    pub fn remark(&self, text: &str) {
        if self.linux {
            self.stamped("INFO", text);
        } else {
            rig_cli::streams::note(format_args!("ntttcp: {text}"));
        }
    }

    fn stamped(&self, kind: &str, text: &str) {
        let line = format!("{} {kind}: {text}\n", Zoned::now().strftime("%H:%M:%S"));
        self.write(&line);
        if let Some(log) = &mut *self.log.borrow_mut() {
            // A full disk must not end a measurement; standard output has the line.
            let _ = log.write_all(line.as_bytes());
        }
    }

    /// The reader of the pipe may be gone, which is no reason to end.
    fn write(&self, text: &str) {
        let mut out = io::stdout().lock();
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }
}

/// The console as the witness of a test.
#[derive(Debug)]
pub struct Progress<'a>(pub &'a Console);

impl TestObserver for Progress<'_> {
    fn tick(&mut self, bytes: u64, seconds: f64) {
        let Console { linux: true, quiet: false, rewrites, .. } = self.0 else { return };
        let line = format!("Real-time throughput: {}", throughput(bytes, seconds));
        // Erase the line, write it, and go back to its begin (ECMA-48).
        self.0.write(&if *rewrites { format!("\x1b[2K{line}\r") } else { format!("{line}\n") });
    }

    fn warmed_up(&mut self) {
        self.0.info("Test warmup completed.");
    }

    fn measured(&mut self, cooling: bool) {
        self.0.info("Test run completed.");
        if cooling {
            self.0.info("Test cooldown is in progress...");
        }
    }

    fn finished(&mut self) {
        self.0.info("Test cycle finished.");
    }

    fn interrupted(&mut self) {
        self.0.remark("Interrupted by Ctrl+C");
    }
}
