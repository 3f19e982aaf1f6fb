//! What a daemon logs: time, level, target and words, a line of standard error each. Nothing is logged for each packet.

use std::io::{self, Write};

use clap::{Args, ValueEnum};
use rig_cli::visible::visible;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt, registry};

/// Options of all commands that run a service.
#[derive(Debug, Clone, Args)]
pub struct LogOptions {
    /// How log lines are written: text, or a JSON document each
    #[arg(long, value_name = "FORMAT", default_value = "text", hide_short_help = true, hide_possible_values = true)]
    log_format: LogFormat,
    /// Which lines are: off, error, warn, info, debug or trace; or by target, e.g. info,netrig_vrouter::bgp=debug
    #[arg(long, value_name = "LEVEL", default_value = "info", hide_short_help = true, value_parser = levels)]
    log_level: Targets,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

/// A word alone is a level: as a target it would have nearly nothing written.
fn levels(text: &str) -> Result<Targets, String> {
    let is_level = |part: &str| !part.is_empty() && part.parse::<LevelFilter>().is_ok();
    let other = text.split(',').find(|part| !part.contains('=') && !is_level(part));
    match other {
        Some(part) => Err(format!("'{part}' is not a level: off, error, warn, info, debug or trace")),
        None => text.parse::<Targets>().map_err(|error| error.to_string()),
    }
}

impl LogOptions {
    /// Has the log of this process written, from now on.
    pub fn begin(&self) {
        let lines = fmt::layer().with_ansi(false).with_writer(VisibleErrors);
        let lines = match self.log_format {
            LogFormat::Text => lines.boxed(),
            LogFormat::Json => lines.json().flatten_event(true).boxed(),
        };
        // Another log of this process stays what it is.
        let _other = registry().with(lines.with_filter(self.log_level.clone())).try_init();
    }
}

/// Standard error, with what would act on its reader made visible. Its reader may have closed it, which is no reason to end.
#[derive(Debug, Clone, Copy)]
struct VisibleErrors;

impl Write for VisibleErrors {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let _unread = io::stderr().write_all(visible(&String::from_utf8_lossy(line)).as_bytes());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for VisibleErrors {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        *self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_refused_that_are_none() {
        for good in ["info", "off", "warn,netrig_vrouter::bgp=debug"] {
            assert!(levels(good).is_ok(), "{good}");
        }
        for bad in ["loud", "info,netrig_lb", "netrig_lb=loud", ""] {
            assert!(levels(bad).is_err(), "{bad}");
        }
    }
}
