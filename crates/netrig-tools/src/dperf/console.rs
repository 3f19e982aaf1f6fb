//! Where statistics and remarks go.

use std::env;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

use anyhow::Context;
use rig_cli::exit::{Exit, ExitContext, Failure};
use rig_cli::streams;
use rig_cli::visible::visible;

use super::resolve::LoadPlan;
use super::settings::LogLevel;

/// Where dperf leaves the statistics of a run in the background.
const DIRECTORY: &str = "/var/log/dperf";

/// Standard output or the log of a run in the background, and standard error.
#[derive(Debug)]
pub struct Console {
    log: Option<File>,
    level: LogLevel,
    /// Seconds are not shown.
    pub quiet: bool,
    /// Each second takes the place of the one before.
    clear: bool,
    /// What is written goes to a terminal.
    pub terminal: bool,
    /// What was said beside the figures.
    pub notes: Vec<String>,
}

impl Console {
    pub fn new(plan: &LoadPlan) -> Result<Self, Failure> {
        let log = if plan.daemon { Some(log(plan)?) } else { None };
        let terminal = log.is_none() && io::stdout().is_terminal() && env::var_os("TERM").is_some_and(|t| t != "dumb");
        let clear = terminal && plan.clear_screen;
        Ok(Self { log, level: plan.log_level, quiet: plan.quiet, clear, terminal, notes: Vec::new() })
    }

    /// Of the terminal, now.
    pub fn columns(&self) -> Option<usize> {
        let size = self.terminal.then(|| rustix::termios::tcgetwinsize(io::stdout()).ok()).flatten()?;
        (size.ws_col > 0).then_some(usize::from(size.ws_col))
    }

    /// Figures. The reader of the pipe may be gone, which is no reason to end.
    pub fn print(&mut self, text: &str) {
        let _ = match &mut self.log {
            Some(log) => log.write_all(text.as_bytes()),
            None => {
                let mut out = io::stdout().lock();
                out.write_all(text.as_bytes()).and_then(|()| out.flush())
            }
        };
    }

    /// The statistics of a second, and how far the run is.
    pub fn second(&mut self, text: &str, progress: &str) {
        if self.quiet {
            // A terminal shows at least that something goes on. Erase the line, write it, go to its begin (ECMA-48).
            if self.terminal {
                self.print(&format!("\x1b[2K{progress}\r"));
            }
            return;
        }
        let text = match (self.clear, self.terminal) {
            // Home, and erase all below (ECMA-48).
            (true, _) => format!("\x1b[H\x1b[J{text}{progress}\n"),
            (false, true) => format!("\n{text}{progress}\r"),
            (false, false) => format!("\n{text}"),
        };
        self.print(&text);
    }

    /// The end of what seconds showed.
    pub fn end_of_seconds(&mut self) {
        if self.terminal && !self.clear {
            self.print("\x1b[2K");
        }
    }

    pub fn warn(&mut self, text: &str) {
        self.say(LogLevel::Warn, text);
    }

    pub fn info(&mut self, text: &str) {
        self.say(LogLevel::Info, text);
    }

    pub fn debug(&mut self, text: &str) {
        self.say(LogLevel::Debug, text);
    }

    /// A search makes many runs, of which each would say the same.
    fn say(&mut self, level: LogLevel, text: &str) {
        if self.notes.iter().any(|note| note == text) {
            return;
        }
        self.notes.push(text.to_owned());
        if level <= self.level {
            self.error(text);
        }
    }

    /// A line beside the figures, at every level.
    pub fn error(&mut self, text: &str) {
        match self.log {
            Some(_) => self.print(&format!("netrig: {}\n", visible(text))),
            None => streams::note(format_args!("netrig: {text}")),
        }
    }
}

fn log(plan: &LoadPlan) -> Result<File, Failure> {
    let end = if plan.is_client() { "client" } else { "server" };
    let path = Path::new(DIRECTORY).join(format!("dperf-ctl-{end}.log"));
    let hint = || format!("daemon: write {}: make the directory first: mkdir {DIRECTORY}", path.display());
    File::create(&path).with_context(hint).or_exit(Exit::Lacking)
}
