//! Where lines and objects go, and what they begin with.

use std::fs::File;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Zoned;
use jiff::fmt::strtime;
use rig_cli::streams;
use rig_cli::visible::visible;

use super::error::{Code, TestError};
use super::json::{Json, object};
use super::settings::{OutputSettings, Role};

/// What is kept of what is printed for a client: tests without an end print without an end.
const MOST_CAPTURED: usize = 16 << 20;

/// The output of one test, or of a server between tests.
#[derive(Debug, Clone)]
pub struct Console {
    log: Option<Arc<Mutex<File>>>,
    timestamps: Option<String>,
    /// Before each line of a client.
    title: Option<String>,
    /// What a client wants to see of its server.
    captured: Option<Arc<Mutex<String>>>,
}

/// A time in strftime(3)'s format, with its locale's forms as they are in C.
///
/// # Errors
/// A format that has no meaning.
pub fn timestamp(format: &str, now: &Zoned) -> Result<String, String> {
    let format = format.replace("%c", "%a %b %e %H:%M:%S %Y").replace("%x", "%m/%d/%y").replace("%X", "%H:%M:%S");
    strtime::format(format, now).map_err(|error| error.to_string())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Console {
    /// # Errors
    /// When the log cannot be written, or the times have no format.
    pub fn open(settings: &OutputSettings, role: Role, title: Option<&str>) -> Result<Self, TestError> {
        let open = |path: &String| {
            let file = File::options().append(true).create(true).open(path);
            file.map(|file| Arc::new(Mutex::new(file))).map_err(|error| TestError::system(Code::LOG_FILE, &error))
        };
        if let Some(format) = &settings.timestamps {
            timestamp(format, &Zoned::now())
                .map_err(|why| TestError::with(Code::INIT, format!("--timestamps: {why}")))?;
        }
        Ok(Self {
            log: settings.log_file.as_ref().map(open).transpose()?,
            timestamps: settings.timestamps.clone(),
            title: title.filter(|_| role == Role::Client).map(str::to_owned),
            captured: None,
        })
    }

    /// The same for a test whose client wants to see what is printed.
    pub fn capturing(&self) -> Self {
        Self { captured: Some(Arc::default()), ..self.clone() }
    }

    /// What was printed since.
    pub fn captured(&self) -> String {
        self.captured.as_ref().map_or_else(String::new, |text| lock(text).clone())
    }

    fn stamp(&self) -> String {
        let stamp = self.timestamps.as_ref().map(|format| timestamp(format, &Zoned::now()).unwrap_or_default());
        stamp.unwrap_or_default()
    }

    fn write(&self, text: &str) {
        match &self.log {
            // A full disk or a reader that went away does not end a test.
            Some(log) => drop(lock(log).write_all(visible(text).as_bytes())),
            None => drop(streams::print_on(text)),
        }
    }

    /// Prints a line, or several that are one piece.
    pub fn line(&self, text: &str) {
        let title = self.title.as_ref().map_or_else(String::new, |title| format!("{title}:  "));
        let text = format!("{}{title}{text}", self.stamp());
        self.write(&text);
        if let Some(captured) = &self.captured {
            let mut captured = lock(captured);
            if captured.len() < MOST_CAPTURED {
                captured.push_str(&text);
                if captured.len() >= MOST_CAPTURED {
                    captured.push_str("... what follows is left out: it is more than 16 MiB\n");
                }
            }
        }
    }

    pub fn lines(&self, lines: &[String]) {
        lines.iter().for_each(|line| self.line(line));
    }

    /// The one object of a test.
    pub fn object(&self, json: &Json) {
        self.write(&format!("{}\n", json.pretty()));
    }

    /// One thing that happened.
    pub fn event(&self, name: &str, data: Json) {
        self.write(&format!("{}\n", object([("event", name.into()), ("data", data)]).compact()));
    }

    /// What goes wrong: to standard error, or to the log.
    pub fn error(&self, text: &str) {
        let line = format!("{}iperf3: {text}\n", self.stamp());
        match &self.log {
            Some(log) => drop(lock(log).write_all(visible(&line).as_bytes())),
            None => drop(io::stderr().write_all(visible(&line).as_bytes())),
        }
    }

    /// What is done otherwise than asked.
    pub fn warning(text: &str) {
        streams::note(format_args!("warning: {text}"));
    }
}
