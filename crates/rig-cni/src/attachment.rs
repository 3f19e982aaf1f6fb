//! A container on a network.

use std::ffi::OsString;
use std::path::PathBuf;

use serde_json::{Map, Value};

use crate::invoke::parameter;

/// An interface of a container on a network.
#[derive(Debug, Clone, PartialEq)]
pub struct Attachment {
    /// `CNI_CONTAINERID`
    pub container: String,
    /// The path of the container's network namespace.
    pub namespace: PathBuf,
    /// `CNI_IFNAME`
    pub interface: String,
    /// `CNI_ARGS`
    pub arguments: Vec<(String, String)>,
    /// What plug-ins that have the capability are told, by its name.
    pub capabilities: Map<String, Value>,
}

impl Attachment {
    pub fn new(container: impl Into<String>, namespace: impl Into<PathBuf>, interface: impl Into<String>) -> Self {
        Self {
            container: container.into(),
            namespace: namespace.into(),
            interface: interface.into(),
            arguments: Vec::new(),
            capabilities: Map::new(),
        }
    }

    /// As environment variables of a call.
    pub(crate) fn parameters(&self) -> Vec<(&'static str, OsString)> {
        let mut parameters = vec![
            parameter("CNI_CONTAINERID", &self.container),
            parameter("CNI_NETNS", &self.namespace),
            parameter("CNI_IFNAME", &self.interface),
        ];
        if !self.arguments.is_empty() {
            let pairs: Vec<String> = self.arguments.iter().map(|(key, value)| format!("{key}={value}")).collect();
            parameters.push(parameter("CNI_ARGS", pairs.join(";")));
        }
        parameters
    }
}
