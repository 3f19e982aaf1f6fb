//! Results that a runtime keeps between ADD and DEL, in the files that libcni keeps (`results/NETWORK-CONTAINER-INTERFACE`), so that
//! `cnitool` and plug-ins that look for them find them.

use std::io;
use std::path::{Path, PathBuf};

use base64::Engine;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{AddResult, Attachment};

/// A folder with a file for each attachment.
#[derive(Debug, Clone)]
pub struct ResultCache {
    folder: PathBuf,
}

/// What libcni writes into such a file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CachedInfo {
    kind: String,
    container_id: String,
    /// The network's configuration, in base 64.
    config: String,
    if_name: String,
    network_name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    netns: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    cni_args: Vec<[String; 2]>,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    capability_args: Map<String, Value>,
    result: Value,
}

const KIND: &str = "cniCacheV1";

impl ResultCache {
    /// `/var/lib/cni` is where libcni has it.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into().join("results") }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    fn file(&self, network: &str, attachment: &Attachment) -> PathBuf {
        self.folder.join(format!("{network}-{}-{}", attachment.container, attachment.interface))
    }

    pub(crate) fn keep(
        &self,
        network: &str,
        config: &str,
        attachment: &Attachment,
        result: &AddResult,
    ) -> io::Result<()> {
        std::fs::create_dir_all(&self.folder)?;
        let info = CachedInfo {
            kind: KIND.to_owned(),
            container_id: attachment.container.clone(),
            config: base64::engine::general_purpose::STANDARD.encode(config),
            if_name: attachment.interface.clone(),
            network_name: network.to_owned(),
            netns: Some(attachment.namespace.clone()),
            cni_args: attachment.arguments.iter().map(|(key, value)| [key.clone(), value.clone()]).collect(),
            capability_args: attachment.capabilities.clone(),
            result: Value::Object(result.object.clone()),
        };
        std::fs::write(self.file(network, attachment), serde_json::to_vec(&info)?)
    }

    /// What the last ADD of this attachment has made; `None` where that is not known.
    pub fn result(&self, network: &str, attachment: &Attachment) -> Option<AddResult> {
        let text = std::fs::read(self.file(network, attachment)).ok()?;
        let info: CachedInfo = serde_json::from_slice(&text).ok().filter(|info: &CachedInfo| info.kind == KIND)?;
        AddResult::read(&info.result).ok()
    }

    /// Forgets what the last ADD of this attachment has made, as a runtime does that has lost it.
    ///
    /// # Errors
    /// When the file cannot be removed.
    pub fn forget(&self, network: &str, attachment: &Attachment) -> io::Result<()> {
        match std::fs::remove_file(self.file(network, attachment)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}
