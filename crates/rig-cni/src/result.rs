//! What plug-ins answer (SPEC.md, section 5).

use std::net::IpAddr;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::Version;

/// What an ADD has made, as the last plug-in of a chain tells it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AddResult {
    #[serde(rename = "cniVersion")]
    pub version: Version,
    #[serde(default, deserialize_with = "null_is_none")]
    pub interfaces: Vec<Interface>,
    #[serde(default, deserialize_with = "null_is_none")]
    pub ips: Vec<IpConfig>,
    #[serde(default, deserialize_with = "null_is_none")]
    pub routes: Vec<Route>,
    /// All of it, as the plug-in wrote it: what this type does not know reaches later plug-ins, too.
    #[serde(skip)]
    pub object: Map<String, Value>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    pub name: String,
    #[serde(default)]
    pub mac: Option<String>,
    #[serde(default)]
    pub mtu: Option<u32>,
    /// The path of the container's namespace; empty for an interface of the node.
    #[serde(default)]
    pub sandbox: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IpConfig {
    /// With its prefix: `10.1.0.5/16`.
    pub address: String,
    #[serde(default)]
    pub gateway: Option<String>,
    /// Its interface, by the number in the result.
    #[serde(default)]
    pub interface: Option<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    pub dst: String,
    #[serde(default)]
    pub gw: Option<String>,
}

/// An error as a plug-in reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginError {
    pub code: i64,
    pub msg: String,
    pub details: String,
}

impl PluginError {
    pub fn new(code: i64, msg: impl Into<String>) -> Self {
        Self { code, msg: msg.into(), details: String::new() }
    }

    #[must_use]
    pub fn with(self, details: impl Into<String>) -> Self {
        Self { details: details.into(), ..self }
    }

    /// The error that a plug-in's output is, where it is one: it has a code and none of what results have.
    pub(crate) fn of(output: &Value) -> Option<Self> {
        let object = output.as_object()?;
        let is_result =
            ["interfaces", "ips", "routes", "dns", "supportedVersions"].iter().any(|key| object.contains_key(*key));
        let code = object.get("code").filter(|_| !is_result)?.as_i64()?;
        let text = |key: &str| match object.get(key) {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        };
        Some(Self { code, msg: text("msg"), details: text("details") })
    }

    /// What the specification says of its code.
    fn meaning(&self) -> Option<&'static str> {
        Some(match self.code {
            1 => "incompatible CNI version",
            2 => "unsupported field in the network configuration",
            3 => "unknown container",
            4 => "wrong environment variables",
            5 => "I/O failure",
            6 => "content cannot be decoded",
            7 => "wrong network configuration",
            11 => "try again later",
            50 => "not available",
            51 => "not available, and containers may have limited connectivity",
            _ => return None,
        })
    }
}

impl std::fmt::Display for PluginError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { code, msg, details } = self;
        match self.meaning() {
            Some(meaning) => write!(f, "error {code} ({meaning}): {}", msg.trim())?,
            None => write!(f, "error {code}: {}", msg.trim())?,
        }
        if details.trim().is_empty() { Ok(()) } else { write!(f, "; {}", details.trim()) }
    }
}

impl AddResult {
    /// Reads what a plug-in answered to an ADD.
    ///
    /// # Errors
    /// What it is instead of a result, in words.
    pub(crate) fn read(output: &Value) -> Result<Self, String> {
        let Value::Object(object) = output else { return Err("it is no JSON object".into()) };
        let read: Self = serde_json::from_value(output.clone()).map_err(|error| error.to_string())?;
        if !read.version.is_spoken() {
            return Err(format!(
                "it is of version {}, and netrig speaks {}",
                read.version,
                Version::list(&Version::SPOKEN)
            ));
        }
        for ip in &read.ips {
            parse_address(&ip.address).ok_or_else(|| format!("'{}' is no address with a prefix", ip.address))?;
            if ip.interface.is_some_and(|number| number >= read.interfaces.len()) {
                return Err(format!("address {} is of an interface that the result does not have", ip.address));
            }
        }
        Ok(Self { object: object.clone(), ..read })
    }

    /// The result as a plug-in that is called in `version` is given it.
    pub(crate) fn in_version(&self, version: Version) -> Value {
        let mut object = self.object.clone();
        object.insert("cniVersion".into(), version.to_string().into());
        for ip in object.get_mut("ips").and_then(Value::as_array_mut).into_iter().flatten() {
            let Value::Object(ip) = ip else { continue };
            let is_v6 = ip.get("address").and_then(Value::as_str).is_some_and(|address| address.contains(':'));
            if version.tells_ip_version() {
                ip.insert("version".into(), if is_v6 { "6" } else { "4" }.into());
            } else {
                ip.remove("version");
            }
        }
        Value::Object(object)
    }

    /// The addresses of the container, each with the interface that has it, where the result says that.
    pub fn addresses(&self) -> Vec<(IpAddr, Option<&Interface>)> {
        let of = |ip: &IpConfig| {
            let interface = ip.interface.and_then(|number| self.interfaces.get(number));
            let is_containers = interface.is_none_or(|interface| !interface.sandbox.is_empty());
            parse_address(&ip.address).filter(|_| is_containers).map(|address| (address, interface))
        };
        self.ips.iter().filter_map(of).collect()
    }

    /// The interfaces of the container.
    pub fn inside(&self) -> impl Iterator<Item = &Interface> {
        self.interfaces.iter().filter(|interface| !interface.sandbox.is_empty())
    }
}

/// Plug-ins in Go write an empty list as `null`.
fn null_is_none<'de, D: Deserializer<'de>, T: Deserialize<'de>>(value: D) -> Result<Vec<T>, D::Error> {
    Ok(Option::deserialize(value)?.unwrap_or_default())
}

/// The address of `10.1.0.5/16`.
fn parse_address(text: &str) -> Option<IpAddr> {
    let (address, prefix) = text.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    prefix.parse::<u8>().ok().filter(|prefix| *prefix <= most).map(|_| address)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn results_are_read_and_written_in_each_version() {
        let output = json!({ "cniVersion": "1.0.0", "own": 1,
            "interfaces": [{ "name": "cni0", "mac": "02:00:00:00:00:01" }, { "name": "eth0", "sandbox": "/run/netns/x" }],
            "ips": [{ "address": "10.1.0.5/16", "gateway": "10.1.0.1", "interface": 1 }, { "address": "fd00::5/64", "interface": 1 },
                    { "address": "10.1.0.1/16", "interface": 0 }], "routes": [{ "dst": "0.0.0.0/0" }] });
        let result = AddResult::read(&output).unwrap();
        let addresses: Vec<String> = result.addresses().iter().map(|(address, _)| address.to_string()).collect();
        assert_eq!(addresses, ["10.1.0.5", "fd00::5"], "that of the bridge is none of the container's");
        let old = result.in_version(Version::V0_4_0);
        assert_eq!(old.pointer("/ips/0/version"), Some(&json!("4")));
        assert_eq!(old.pointer("/ips/1/version"), Some(&json!("6")));
        assert_eq!((old.get("own"), old.get("cniVersion")), (Some(&json!(1)), Some(&json!("0.4.0"))));
        let empty = json!({ "cniVersion": "1.0.0", "interfaces": null, "ips": null });
        assert!(AddResult::read(&empty).unwrap().addresses().is_empty());
        let again = AddResult::read(&old).unwrap();
        assert_eq!(again.in_version(Version::V1_0_0), output);
    }

    #[test]
    fn what_is_no_result_says_why() {
        let wrong = |output: Value| AddResult::read(&output).unwrap_err();
        assert!(wrong(json!([])).contains("no JSON object"));
        assert!(wrong(json!({})).contains("cniVersion"));
        assert!(wrong(json!({ "cniVersion": "0.2.0" })).contains("netrig speaks"));
        let ip = |ip: Value| wrong(json!({ "cniVersion": "1.0.0", "ips": [ip] }));
        assert!(ip(json!({ "address": "10.1.0.5" })).contains("no address with a prefix"));
        assert!(ip(json!({ "address": "10.1.0.5/33" })).contains("no address with a prefix"));
        assert!(ip(json!({ "address": "10.1.0.5/16", "interface": 0 })).contains("does not have"));
    }

    #[test]
    fn errors_are_told_from_results() {
        let error =
            PluginError::of(&json!({ "cniVersion": "1.0.0", "code": 7, "msg": "no master", "details": "eth9" }))
                .unwrap();
        assert_eq!(error.to_string(), "error 7 (wrong network configuration): no master; eth9");
        assert_eq!(PluginError::of(&json!({ "cniVersion": "1.0.0", "ips": [], "code": 7 })), None);
        assert_eq!(PluginError::of(&json!({ "cniVersion": "1.0.0" })), None);
        let odd = PluginError::of(&json!({ "code": 5_000_000_000_u64, "msg": null, "details": ["a"] })).unwrap();
        assert_eq!(odd.to_string(), "error 5000000000: ; [\"a\"]");
    }
}
