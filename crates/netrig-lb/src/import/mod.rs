//! `netrig lb import`: configurations of IPVS's users as files for `netrig lb run`. What has no equal is named in comments at the top of
//! the file, with the line it was in.

mod checks;
mod groups;
mod keepalived;
mod lines;
#[cfg(test)]
mod tests;
mod tree;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use clap::{Args, Subcommand};
use rig_cli::exit::{Exit, ExitContext, Failure};
use rig_cli::mistakes;
use rig_cli::streams::{note, print};
use rig_cli::visible::visible;
use rig_stats::units::counted;

use crate::ipvs::{Forwarding, ForwardingOptions};
use crate::names::NameResolution;
use crate::settings::{Completeness, Rules, Settings};

#[derive(Debug, Args)]
pub struct ImportArgs {
    #[command(subcommand)]
    from: Source,
}

#[derive(Debug, Subcommand)]
enum Source {
    /// What `ipvsadm-save` or `ipvsadm -S` wrote
    #[command(after_help = "Examples:\n  ipvsadm-save -n | netrig lb import ipvsadm - > lb.toml")]
    Ipvsadm {
        /// The file; - for standard input
        file: PathBuf,
        #[command(flatten)]
        forwarding: ForwardingOptions,
    },
    /// A keepalived.conf, also of DPVS: virtual servers with their checks
    #[command(after_help = "Examples:\n  netrig lb import keepalived /etc/keepalived/keepalived.conf > lb.toml")]
    Keepalived {
        /// The file; - for standard input
        file: PathBuf,
        #[command(flatten)]
        forwarding: ForwardingOptions,
    },
}

/// As much as anybody writes, included files together.
pub(crate) const LONGEST: u64 = 16 << 20;

/// What was read, and what of it has no equal.
#[derive(Debug, Default)]
pub(crate) struct Imported {
    pub(crate) rules: Rules,
    notes: Vec<String>,
}

impl Imported {
    fn note(&mut self, place: impl std::fmt::Display, what: impl std::fmt::Display) {
        self.notes.push(format!("{place}: {what}"));
    }

    /// The file, which `netrig lb check` takes.
    pub(crate) fn text(self, from: &str) -> anyhow::Result<String> {
        let settings = Settings { rules: self.rules, ..Settings::default() };
        let body = settings.to_toml();
        // What is written is what is read, or nothing is.
        Settings::parse("the imported file", &body, Completeness::Required)?;
        let mut text = format!("# From {}.\n", visible(from));
        if !self.notes.is_empty() {
            // Writing into a string does not fail.
            let _ = writeln!(text, "# These have no equal, or another one:");
            for line in self.notes {
                let _ = writeln!(text, "# - {}", visible(&line));
            }
        }
        let _ = writeln!(text, "# Add the devices: devices = [\"eth0\", \"eth1\"]\n");
        Ok(text + &body)
    }
}

/// How the lines of a file are named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LineNumber(pub(crate) usize);

impl std::fmt::Display for LineNumber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}", self.0)
    }
}

fn text_of(file: &Path) -> Result<String, Failure> {
    // What is cut would be taken for all.
    let (read, from) = match file.as_os_str() == "-" {
        true => (mistakes::read_input_of(LONGEST), "standard input".to_owned()),
        false => (mistakes::read_text_of(file, LONGEST), file.display().to_string()),
    };
    read.context(from).or_exit(Exit::BadInput)
}

pub fn execute(arguments: &ImportArgs) -> Result<Exit, Failure> {
    let (file, imported) = match &arguments.from {
        Source::Ipvsadm { file, forwarding } => {
            let forwarding = forwarding.read()?;
            (file, Ok(lines::read(&text_of(file)?, &forwarding, NameResolution::System)))
        }
        Source::Keepalived { file, forwarding } => {
            let forwarding = forwarding.read()?;
            let folder = file.parent().unwrap_or(Path::new("")).to_owned();
            let mut files = tree::Files::below(&folder);
            (file, keepalived(&text_of(file)?, &forwarding, &mut files))
        }
    };
    let imported = imported.with_context(|| format!("{}", file.display())).or_exit(Exit::BadInput)?;
    if imported.rules.services.is_empty() {
        let what = imported.notes.join("\n  ");
        let error = anyhow!("{}: no service of it can be taken over\n  {what}", file.display());
        return Err(Failure::new(Exit::BadInput, error));
    }
    let count = imported.notes.len();
    print(&imported.text(&file.display().to_string()).or_exit(Exit::BadInput)?)?;
    if count > 0 {
        note(format_args!("{}, see the comments", counted(count, "thing has no equal", "things have no equal")));
    }
    Ok(Exit::Done)
}

/// Reads a configuration of keepalived.
pub(crate) fn keepalived(text: &str, forwarding: &Forwarding, files: &mut tree::Files) -> anyhow::Result<Imported> {
    let blocks = tree::read(text, files)?;
    Ok(keepalived::read(&blocks, forwarding))
}

/// Reads either kind without looking anywhere else.
#[cfg(any(test, feature = "fuzz"))]
pub(crate) fn play(text: &str) -> usize {
    let forwarding = crate::ipvs::stand::forwarding(text.len().is_multiple_of(2));
    let lines = lines::read(text, &forwarding, NameResolution::Numbers);
    let blocks = keepalived(text, &forwarding, &mut tree::Files::none());
    let mut services = 0;
    for imported in std::iter::once(lines).chain(blocks) {
        services += imported.rules.services.len();
        let text = imported.text("fuzz");
        // An error is an answer; a text has been read again.
        let _ = text.map_err(|error| format!("{error:#}"));
    }
    services
}
