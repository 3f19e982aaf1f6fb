//! Hosts by their names: what `--host` takes, and hosts.toml.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::Context;
use rig_cli::forms::OneOrMany;
use rig_cli::mistakes::{FileError, load_text};
use rig_cli::schema::{Schema, described};
use rig_cli::source::{Source, Spanned};
use rig_testbed::datapath::Machine;
use rig_testbed::host::{Host, HostAccess, Local, Remote};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::BUILD;

/// Where nodes are to be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum HostChoice {
    /// Namespaces of this process.
    #[default]
    Local,
    /// Namespaces of another process of this machine, by the protocol for other machines.
    Child,
    /// A host of hosts.toml, or a destination of ssh(1).
    Named(String),
}

impl FromStr for HostChoice {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text {
            "local" => Self::Local,
            "child" => Self::Child,
            name => Self::Named(name.to_owned()),
        })
    }
}

impl HostChoice {
    /// Whether the machine is another one, or may be.
    pub fn is_elsewhere(&self) -> bool {
        matches!(self, Self::Named(_))
    }

    /// Starts it. `rootless` says by which privileges, where this process has to have them.
    ///
    /// # Errors
    /// When it cannot be started or reached, or hosts.toml has a mistake.
    pub fn start(&self, file: Option<&Path>, rootless: bool) -> anyhow::Result<Box<dyn Host>> {
        let program = std::env::current_exe().context("find netrig's own program")?;
        Ok(match self {
            Self::Local => Box::new(local(rootless)?),
            Self::Child => Box::new(Remote::child(&program)?),
            Self::Named(name) => Box::new(Remote::reach(&access(name, file)?, &program)?),
        })
    }
}

/// This process as a host; `rootless` says whether it is inside a user namespace.
///
/// # Errors
/// As [`Local::new`].
pub fn local(rootless: bool) -> anyhow::Result<Local> {
    let local = Local::new()?.of_build(BUILD, rootless);
    Ok(local.with_datapaths(rig_datapaths::ALL.on(Machine { rootless })))
}

/// hosts.toml.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct HostsFile {
    /// By the names that `--host` takes.
    #[serde(default)]
    host: BTreeMap<String, Spanned<HostSettings>>,
}

/// How a host is reached, and with what.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct HostSettings {
    /// A destination of ssh(1); options may stand before it: `["-p", "2222", "web1"]`. Without `ssh` and `command` it is the host's name.
    ssh: Option<OneOrMany<String>>,
    /// A command line instead, which runs there what more words say: `["docker", "exec", "-i", "box"]`.
    command: Option<Vec<String>>,
    /// netrig there; without it the running program is copied.
    program: Option<String>,
    /// A file to copy instead of the running program, for a host of another architecture.
    binary: Option<PathBuf>,
    /// What makes netrig root there: `sudo -n`.
    r#become: Option<String>,
}

/// The JSON Schemas of this module's files.
pub fn schemas() -> [(&'static str, Schema); 1] {
    [(
        "hosts.json",
        described::<HostsFile>("netrig hosts", "Hosts that `netrig run --host NAME` reaches, by their names"),
    )]
}

/// The file that is read where none is named.
fn default_file() -> Option<PathBuf> {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".config"));
    let base = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).or_else(home)?;
    Some(base.join("netrig/hosts.toml")).filter(|file| file.exists())
}

fn access(name: &str, file: Option<&Path>) -> anyhow::Result<HostAccess> {
    let Some(file) = file.map(Path::to_owned).or_else(default_file) else {
        return Ok(HostAccess::ssh(name, &[name.to_owned()]));
    };
    let text = load_text(&file)?;
    Ok(access_in(name, &file.display().to_string(), &text)?)
}

/// Of a host that a file need not name.
fn access_in(name: &str, file: &str, text: &str) -> Result<HostAccess, FileError> {
    let source = Source { file, text };
    let mut hosts: HostsFile = source.read()?;
    let Some(settings) = hosts.host.remove(name) else { return Ok(HostAccess::ssh(name, &[name.to_owned()])) };
    let error = |what: &str| source.error(settings.span(), format!("host '{name}' {what}"), None);
    let HostSettings { ssh, command, program, binary, r#become } = settings.get_ref().clone();
    let access = match (ssh, command) {
        (Some(_), Some(_)) => return Err(error("has both `ssh` and `command`: one of them reaches it")),
        (None, Some(command)) if command.is_empty() => return Err(error("has an empty `command`")),
        (None, Some(command)) => HostAccess::command(name, command),
        (Some(OneOrMany::Many(words)), None) if words.is_empty() => return Err(error("has an empty `ssh`")),
        (Some(OneOrMany::Many(words)), None) => {
            HostAccess::ssh(name, &words.into_iter().map(Spanned::into_inner).collect::<Vec<_>>())
        }
        (Some(OneOrMany::One(destination)), None) => HostAccess::ssh(name, &[destination]),
        (None, None) => HostAccess::ssh(name, &[name.to_owned()]),
    };
    if program.is_some() && binary.is_some() {
        return Err(error("has `program`, which is there, and `binary`, which is copied: one of them"));
    }
    let run_as = r#become.unwrap_or_default().split_whitespace().map(str::to_owned).collect();
    // Relative to the file.
    let binary = binary.map(|binary| Path::new(file).parent().unwrap_or(Path::new("")).join(binary));
    Ok(HostAccess { program, binary, run_as, ..access })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
        [host.web1]
        become = "sudo -n"
        [host.web2]
        ssh = ["-p", "2222", "me@192.0.2.2"]
        program = "/opt/netrig"
        [host.box]
        command = ["docker", "exec", "-i", "box"]
        binary = "netrig-aarch64"
    "#;

    #[test]
    fn hosts_are_what_the_file_says_and_others_destinations_of_ssh() {
        let of = |name: &str| access_in(name, "/etc/hosts.toml", FILE).unwrap();
        let last = |access: &HostAccess| access.command.last().cloned().unwrap();
        assert_eq!(
            (last(&of("web1")), of("web1").run_as),
            ("web1".to_owned(), vec!["sudo".to_owned(), "-n".to_owned()])
        );
        assert_eq!(
            (last(&of("web2")), of("web2").program.as_deref()),
            ("me@192.0.2.2".to_owned(), Some("/opt/netrig"))
        );
        assert_eq!(of("box").command, ["docker", "exec", "-i", "box"]);
        assert_eq!(of("box").binary.as_deref(), Some(Path::new("/etc/netrig-aarch64")));
        assert_eq!(of("other"), HostAccess::ssh("other", &["other".to_owned()]));
    }

    #[test]
    fn mistakes_are_told_with_their_lines() {
        for (text, line, what) in [
            ("[host.a]\nssh = \"a\"\ncommand = [\"b\"]", 1, "both"),
            ("[host.b]\n[host.a]\ncommand = []", 2, "empty"),
            ("[host.a]\nssh = []", 1, "empty"),
            ("[host.a]\nprogram = \"x\"\nbinary = \"y\"", 1, "one of them"),
            ("[host.a]\nuser = \"x\"", 2, "user"),
        ] {
            let error = access_in("a", "hosts.toml", text).unwrap_err();
            assert_eq!(error.line, Some(line), "{error}");
            assert!(error.to_string().contains(what), "{error}");
        }
    }
}
