//! The plug-in's own keys of a network configuration.

use std::collections::BTreeSet;

use rig_cni::PluginError;
use rig_cni::plugin::{Ipam, PluginCall, code};
use serde_json::{Map, Value};

/// What the configuration says of the plug-in.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PluginConfig {
    /// The router's node; the only one that runs, where none is said.
    pub(super) node: Option<String>,
    /// A virtual network of the router's file.
    pub(super) network: String,
    pub(super) security_groups: BTreeSet<String>,
    /// What fits the network's tunnels, where none is said.
    pub(super) mtu: Option<u16>,
    /// As the runtime asks (`runtimeConfig.mac`).
    pub(super) mac: Option<[u8; 6]>,
    pub(super) ipam: Ipam,
    pub(super) dns: Option<Value>,
}

/// Keys of a configuration that are the specification's, or a runtime's; those that are left are the plug-in's own.
const OF_CNI: [&str; 15] = [
    "cniVersion",
    "cniVersions",
    "name",
    "type",
    "ipam",
    "dns",
    "args",
    "capabilities",
    "prevResult",
    "runtimeConfig",
    "disableCheck",
    "disableGC",
    "loadOnlyInlinedPlugins",
    "plugins",
    "ipMasq",
];
const OWN: [&str; 4] = ["node", "network", "security_groups", "mtu"];
/// IPv4 needs that much (RFC 791), and a packet has no more.
const MTU: std::ops::RangeInclusive<u64> = 576..=65_535;

impl PluginConfig {
    pub(super) fn of(call: &PluginCall) -> Result<Self, PluginError> {
        let config = &call.config;
        let other = |key: &&String| {
            !OF_CNI.contains(&key.as_str()) && !OWN.contains(&key.as_str()) && !key.starts_with("cni.dev/")
        };
        if let Some(key) = config.keys().find(other) {
            let what = format!("key '{key}' is none of netrig's");
            return Err(PluginError::new(code::UNSUPPORTED_FIELD, what).with(format!("its own are {}", OWN.join(", "))));
        }
        if config.get("ipMasq").is_some_and(|masquerade| *masquerade != Value::Bool(false)) {
            let what = "'ipMasq': packets of a virtual network do not leave by the node's own addresses";
            return Err(PluginError::new(code::UNSUPPORTED_FIELD, what));
        }
        let network = text(config, "network")?
            .ok_or_else(|| wrong("network", "names no virtual network of the router's file"))?;
        let security_groups = match config.get("security_groups") {
            None => BTreeSet::new(),
            Some(Value::Array(groups)) => {
                let name = |group: &Value| group.as_str().map(str::to_owned);
                let names: Option<BTreeSet<String>> = groups.iter().map(name).collect();
                names.ok_or_else(|| wrong("security_groups", "has one that is no name"))?
            }
            Some(_) => return Err(wrong("security_groups", "is no list")),
        };
        let mtu = match config.get("mtu") {
            None => None,
            // As other plug-ins take it for none.
            Some(value) if value.as_u64() == Some(0) => None,
            Some(value) => {
                let mtu = value.as_u64().filter(|mtu| MTU.contains(mtu)).and_then(|mtu| u16::try_from(mtu).ok());
                Some(mtu.ok_or_else(|| wrong("mtu", "is not 576 to 65535 bytes"))?)
            }
        };
        let mac = config.get("runtimeConfig").and_then(|runtime| runtime.get("mac")).and_then(Value::as_str);
        let mac = mac.filter(|text| !text.is_empty()).map(|text| {
            text.parse::<rig_wire::ethernet::Mac>()
                .map(|mac| mac.0)
                .map_err(|_| wrong("runtimeConfig.mac", "is no MAC address"))
        });
        Ok(Self {
            node: text(config, "node")?,
            network,
            security_groups,
            mtu,
            mac: mac.transpose()?,
            ipam: Ipam::of(call)?,
            dns: config.get("dns").cloned().filter(|dns| dns.as_object().is_some_and(|dns| !dns.is_empty())),
        })
    }
}

fn wrong(key: &str, what: &str) -> PluginError {
    PluginError::new(code::WRONG_CONFIGURATION, format!("'{key}' {what}"))
}

fn text(config: &Map<String, Value>, key: &str) -> Result<Option<String>, PluginError> {
    match config.get(key) {
        None => Ok(None),
        Some(Value::String(text)) if !text.is_empty() => Ok(Some(text.clone())),
        Some(_) => Err(wrong(key, "is no name")),
    }
}
