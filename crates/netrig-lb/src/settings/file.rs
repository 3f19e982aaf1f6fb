//! The letter of a configuration file: what serde reads, nothing decided. [`super::read`] turns it into
//! [`super::Settings`].

use std::collections::BTreeMap;
use std::path::PathBuf;

use rig_cli::forms::{OneOrMany, TextOrTable};
use rig_stats::units::Span;
use toml::Spanned;

use super::check::{BackendCheckFile, CheckFile};
use super::dscp::DscpFile;
use super::outlier::OutlierFile;
use super::quic::QuicFile;

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    #[serde(default)]
    pub devices: Vec<Spanned<TextOrTable<DeviceFile>>>,
    pub workers: Option<Spanned<u32>>,
    pub cpus: Option<Spanned<String>>,
    pub hand_over: Option<Spanned<HandOverFile>>,
    pub connections: Option<Spanned<u32>>,
    pub room: Option<Spanned<RoomFile>>,
    pub metrics: Option<Spanned<String>>,
    /// 0: none.
    pub service_limit: Option<u32>,
    pub sync: Option<Spanned<SyncFile>>,
    pub bgp: Option<Spanned<BgpFile>>,
    pub syn_proxy_secret: Option<PathBuf>,
    pub allow: Option<Spanned<OneOrMany<String>>>,
    pub deny: Option<Spanned<OneOrMany<String>>>,
    pub allow_file: Option<Spanned<PathBuf>>,
    pub deny_file: Option<Spanned<PathBuf>>,
    #[serde(default)]
    pub policy: PolicyFile,
    #[serde(default)]
    pub timeouts: TimeoutsFile,
    #[serde(default)]
    pub service: Vec<Spanned<ServiceFile>>,
}

pub(super) type TimeoutsFile = BTreeMap<String, Spanned<Span>>;

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DeviceFile {
    pub name: String,
    #[serde(default)]
    pub generic: bool,
}

#[derive(Debug, Clone, Copy, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HandOverFile {
    pub queue: Option<u32>,
    /// 0: none.
    pub priority: Option<u32>,
}

#[derive(Debug, Clone, Copy, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RoomFile {
    pub services: Option<u32>,
    pub backends: Option<u32>,
    pub local_addresses: Option<u32>,
    pub schedule_entries: Option<u32>,
    pub prefixes: Option<u32>,
    pub sources: Option<u32>,
    pub templates: Option<u32>,
    pub fragments: Option<u32>,
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SyncFile {
    pub address: Spanned<String>,
    pub peers: Vec<Spanned<String>>,
    pub key: std::path::PathBuf,
    pub interval: Option<Spanned<Span>>,
    pub after: Option<Spanned<Span>>,
    pub full: Option<Spanned<Span>>,
    /// Bytes a second.
    pub rate: Option<Spanned<u64>>,
    /// `1/2`.
    pub ports: Option<Spanned<String>>,
    pub local: Option<Spanned<OneOrMany<String>>>,
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BgpFile {
    pub gobgp: Option<String>,
    #[serde(default)]
    pub local: bool,
}

#[derive(Debug, Clone, Copy, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PolicyFile {
    #[serde(default)]
    pub fragments: Fragments,
    #[serde(default)]
    pub options: Unhandled,
    /// 0: no limit.
    pub strays: Option<u32>,
}

#[derive(Debug, Clone, Copy, Default, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Fragments {
    #[default]
    Forward,
    Drop,
    Pass,
}

#[derive(Debug, Clone, Copy, Default, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Unhandled {
    #[default]
    Drop,
    Pass,
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ServiceFile {
    pub listen: Spanned<OneOrMany<String>>,
    pub scheduler: Option<Spanned<String>>,
    pub forward: Option<Spanned<String>>,
    pub local: Option<Spanned<OneOrMany<String>>>,
    /// 0: none.
    pub limit: Option<u32>,
    #[serde(default)]
    pub timeouts: TimeoutsFile,
    pub expire: Option<Spanned<String>>,
    pub sloppy_tcp: Option<Spanned<bool>>,
    pub reuse: Option<Spanned<String>>,
    pub check: Option<Spanned<CheckFile>>,
    pub outlier: Option<Spanned<OutlierFile>>,
    pub syn_proxy: Option<Spanned<String>>,
    pub client_address: Option<Spanned<String>>,
    pub allow: Option<Spanned<OneOrMany<String>>>,
    pub deny: Option<Spanned<OneOrMany<String>>>,
    pub allow_file: Option<Spanned<PathBuf>>,
    pub deny_file: Option<Spanned<PathBuf>>,
    /// 0: no limit.
    pub source_limit: Option<Spanned<u32>>,
    pub source_rate: Option<Spanned<u32>>,
    pub source_burst: Option<Spanned<u32>>,
    pub source_prefix4: Option<Spanned<u32>>,
    pub source_prefix6: Option<Spanned<u32>>,
    pub new_rate: Option<Spanned<u32>>,
    pub new_burst: Option<Spanned<u32>>,
    pub persistence: Option<Spanned<Span>>,
    pub persistence_prefix4: Option<Spanned<u32>>,
    pub persistence_prefix6: Option<Spanned<u32>>,
    pub persistence_group: Option<Spanned<u32>>,
    pub one_packet: Option<Spanned<bool>>,
    pub dscp: Option<Spanned<DscpFile>>,
    pub quic: Option<Spanned<QuicFile>>,
    /// Of backends that do not say it themselves.
    pub tunnel: Option<Spanned<TextOrTable<TunnelFile>>>,
    pub tunnel_source: Option<Spanned<String>>,
    #[serde(default)]
    pub backend: Vec<Spanned<TextOrTable<BackendFile>>>,
}

impl ServiceFile {
    pub(super) fn limit(&self, key: &str) -> Option<&Spanned<u32>> {
        let all = [
            ("source_limit", &self.source_limit),
            ("source_rate", &self.source_rate),
            ("source_burst", &self.source_burst),
            ("source_prefix4", &self.source_prefix4),
            ("source_prefix6", &self.source_prefix6),
            ("new_rate", &self.new_rate),
            ("new_burst", &self.new_burst),
            ("persistence_prefix4", &self.persistence_prefix4),
            ("persistence_prefix6", &self.persistence_prefix6),
            ("persistence_group", &self.persistence_group),
        ];
        all.into_iter().find(|(name, _)| *name == key)?.1.as_ref()
    }
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BackendFile {
    pub address: String,
    pub weight: Option<u32>,
    /// 0: none.
    pub limit: Option<u32>,
    /// 0: none.
    pub lower_limit: Option<u32>,
    #[serde(default)]
    pub drain: bool,
    #[serde(default)]
    pub sorry: bool,
    pub check: Option<BackendCheckFile>,
    pub tunnel: Option<TextOrTable<TunnelFile>>,
    pub quic_id: Option<u64>,
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TunnelFile {
    #[serde(rename = "type")]
    pub kind: String,
    pub port: Option<u16>,
    pub checksum: Option<bool>,
}
