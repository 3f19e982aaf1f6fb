//! What a plug-in is called with: environment variables and a configuration on standard input.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::Read;
use std::path::PathBuf;

use serde_json::{Map, Value};

use super::{SPOKEN, code};
use crate::conflist::is_name;
use crate::invoke::Command;
use crate::{AddResult, PluginError, Version};

/// An environment variable by its name.
pub(super) type Variables<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// A call. What its command does not need may be empty.
#[derive(Debug, Clone)]
pub struct PluginCall {
    pub command: Command,
    /// `CNI_CONTAINERID`
    pub container: String,
    /// `CNI_NETNS`; none where the container's namespace has gone.
    pub namespace: Option<PathBuf>,
    /// `CNI_IFNAME`
    pub interface: String,
    /// `CNI_ARGS` as it came.
    pub arguments: Option<OsString>,
    /// `CNI_PATH`
    pub folders: Vec<PathBuf>,
    pub version: Version,
    /// The network's name.
    pub network: String,
    /// What was read on standard input.
    pub config: Map<String, Value>,
    /// `prevResult`
    pub previous: Option<AddResult>,
}

/// Bytes of a configuration; libcni has no limit, and none is as long.
const LONGEST: u64 = 4 << 20;

type ReadError = (PluginError, Option<Version>);

impl PluginCall {
    pub(super) fn read(input: impl Read, variable: Variables) -> Result<Self, ReadError> {
        let command = command(variable).map_err(|error| (error, None))?;
        let config = config(input).map_err(|error| (error, None))?;
        let version = match version(&config) {
            // It is asked which ones there are.
            Err(_) if command == Command::Version => Version::V1_1_0,
            version => version.map_err(|error| (error, None))?,
        };
        Self::of(command, version, config, variable).map_err(|error| (error, Some(version)))
    }

    fn of(
        command: Command,
        version: Version,
        config: Map<String, Value>,
        variable: Variables,
    ) -> Result<Self, PluginError> {
        let text = |name: &str| {
            variable(name).unwrap_or_default().into_string().map_err(|_| {
                PluginError::new(code::WRONG_ENVIRONMENT, format!("environment variable {name} is no text in UTF-8"))
            })
        };
        let of_container = matches!(command, Command::Add | Command::Del | Command::Check);
        let call = Self {
            command,
            container: text("CNI_CONTAINERID")?,
            namespace: variable("CNI_NETNS").filter(|path| !path.is_empty()).map(PathBuf::from),
            interface: text("CNI_IFNAME")?,
            arguments: variable("CNI_ARGS").filter(|text| !text.is_empty()),
            folders: std::env::split_paths(&variable("CNI_PATH").unwrap_or_default()).collect(),
            version,
            network: config.get("name").and_then(Value::as_str).unwrap_or_default().to_owned(),
            previous: previous(&config)?,
            config,
        };
        if of_container {
            call.names_a_container()?;
        }
        if command != Command::Version {
            call.is_of_a_network()?;
        }
        let lacks = match command {
            Command::Check => !version.has_check(),
            Command::Gc | Command::Status => !version.has_gc_and_status(),
            Command::Add | Command::Del | Command::Version => false,
        };
        if lacks {
            let what = format!("version {version} of CNI has no {command}");
            return Err(PluginError::new(code::INCOMPATIBLE_VERSION, what));
        }
        Ok(call)
    }

    fn names_a_container(&self) -> Result<(), PluginError> {
        let wrong = |what: String| Err(PluginError::new(code::WRONG_ENVIRONMENT, what));
        if !is_name(&self.container) {
            return wrong(format!(
                "CNI_CONTAINERID '{}' is no container's id: letters, digits, '_', '.' and '-'",
                self.container
            ));
        }
        let odd = |c: char| c == '/' || c == ':' || c.is_whitespace();
        let name = self.interface.as_str();
        if !(1..16).contains(&name.len()) || name.contains(odd) || name == "." || name == ".." {
            return wrong(format!("CNI_IFNAME '{name}' is no name of an interface"));
        }
        if self.namespace.is_none() && self.command != Command::Del {
            return wrong("CNI_NETNS is not set: the container's network namespace is not known".to_owned());
        }
        Ok(())
    }

    fn is_of_a_network(&self) -> Result<(), PluginError> {
        if is_name(&self.network) {
            return Ok(());
        }
        let what = format!("the network's name '{}' is none", self.network);
        Err(PluginError::new(code::WRONG_CONFIGURATION, what))
    }

    /// Attachments that are to stay, as (container, interface), where the call is a GC.
    ///
    /// # Errors
    /// When there is no such list: all would go.
    pub fn valid_attachments(&self) -> Result<BTreeSet<(String, String)>, PluginError> {
        let key = "cni.dev/valid-attachments";
        let wrong = |what: &str| PluginError::new(code::WRONG_CONFIGURATION, format!("'{key}' {what}"));
        let listed = match self.config.get(key) {
            Some(Value::Array(listed)) => listed.as_slice(),
            // Runtimes in Go write an empty list so.
            Some(Value::Null) => &[],
            Some(_) => return Err(wrong("is no list")),
            None => return Err(wrong("is not there")),
        };
        let text = |one: &Value, key: &str| one.get(key).and_then(Value::as_str).map(str::to_owned);
        let one = |one: &Value| {
            text(one, "containerID")
                .zip(text(one, "ifname"))
                .ok_or_else(|| wrong("has one without containerID or ifname"))
        };
        listed.iter().map(one).collect()
    }

    /// The same of another container, whose namespace is not known: for a DEL of what GC drops.
    #[must_use]
    pub fn of_attachment(&self, container: &str, interface: &str) -> Self {
        let mut other = Self {
            command: Command::Del,
            container: container.to_owned(),
            interface: interface.to_owned(),
            namespace: None,
            arguments: None,
            previous: None,
            ..self.clone()
        };
        other.config.retain(|key, _| !key.starts_with("cni.dev/"));
        other
    }
}

fn command(variable: Variables) -> Result<Command, PluginError> {
    let name = variable("CNI_COMMAND").unwrap_or_default();
    let all = [Command::Add, Command::Del, Command::Check, Command::Gc, Command::Status, Command::Version];
    all.into_iter().find(|command| name == command.to_string().as_str()).ok_or_else(|| {
        let what = format!("CNI_COMMAND '{}' is no command of CNI", name.to_string_lossy());
        PluginError::new(code::WRONG_ENVIRONMENT, what)
    })
}

fn config(input: impl Read) -> Result<Map<String, Value>, PluginError> {
    let mut text = Vec::new();
    input.take(LONGEST).read_to_end(&mut text).map_err(|error| {
        PluginError::new(code::IO_FAILURE, format!("the configuration cannot be read on standard input: {error}"))
    })?;
    serde_json::from_slice(&text).map_err(|error| {
        PluginError::new(code::NOT_DECODED, format!("the configuration on standard input is no JSON object: {error}"))
    })
}

fn version(config: &Map<String, Value>) -> Result<Version, PluginError> {
    let text = config.get("cniVersion").and_then(Value::as_str).unwrap_or_default();
    let version: Option<Version> = text.parse().ok();
    version.filter(|version| SPOKEN.contains(version)).ok_or_else(|| {
        let what = format!("version '{text}' of CNI is not spoken");
        PluginError::new(code::INCOMPATIBLE_VERSION, what).with(Version::list(&SPOKEN))
    })
}

fn previous(config: &Map<String, Value>) -> Result<Option<AddResult>, PluginError> {
    let Some(value) = config.get("prevResult").filter(|value| !value.is_null()) else { return Ok(None) };
    let read = AddResult::read(value);
    read.map(Some).map_err(|why| PluginError::new(code::NOT_DECODED, format!("'prevResult' is no result: {why}")))
}
