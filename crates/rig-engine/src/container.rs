//! Containers of an engine.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::{IpAddr, Shutdown};
use std::os::unix::net::UnixStream;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::http::escaped;
use crate::{Engine, EngineError, Image, Labels, Result};

/// A container to be made.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ContainerSpec {
    pub name: String,
    /// `host`, or the name of a network.
    pub network: String,
    /// On the network; the engine's choice where none is said.
    pub address: Option<IpAddr>,
    /// What the network's driver is told of it.
    pub driver_options: Labels,
    /// What its first process runs after the image's command: it should end with its standard input.
    pub arguments: Vec<String>,
    /// The CPUs that it may use, as `0-1,4`; all where that is not said.
    pub cpuset: Option<String>,
    /// How much CPU time a second, seconds.
    pub cpus: Option<f64>,
    /// Most bytes of memory.
    pub memory: Option<u64>,
    pub published: Vec<PublishedPort>,
    pub labels: Labels,
}

/// A port of an address of the machine that leads to the container's port of the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublishedPort {
    pub address: IpAddr,
    pub number: u16,
    /// `tcp` or `udp`.
    pub protocol: &'static str,
}

impl ContainerSpec {
    fn json(&self, image: &Image) -> Value {
        let key = |port: &PublishedPort| format!("{}/{}", port.number, port.protocol);
        let exposed: Map<String, Value> = self.published.iter().map(|port| (key(port), json!({}))).collect();
        let mut bindings: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for port in &self.published {
            let binding = json!({ "HostIp": port.address.to_string(), "HostPort": port.number.to_string() });
            bindings.entry(key(port)).or_default().push(binding);
        }
        let mut host = json!({
            "NetworkMode": self.network,
            "PortBindings": bindings,
            "AutoRemove": true,
        });
        let mut set = |key: &str, value: Option<Value>| {
            if let Some(value) = value {
                host[key] = value;
            }
        };
        set("CpusetCpus", self.cpuset.as_ref().map(|cpus| json!(cpus)));
        set("NanoCpus", self.cpus.map(|cpus| json!((cpus * 1e9).round() as u64)));
        set("Memory", self.memory.map(|bytes| json!(bytes)));
        // Of the host's network there is nothing to say.
        let mut endpoint = Map::new();
        if let Some(address) = self.address {
            let key = if address.is_ipv4() { "IPv4Address" } else { "IPv6Address" };
            endpoint.insert("IPAMConfig".into(), json!({ key: address }));
        }
        if !self.driver_options.is_empty() {
            endpoint.insert("DriverOpts".into(), json!(self.driver_options));
        }
        let mut endpoints = Map::new();
        if !endpoint.is_empty() {
            endpoints.insert(self.network.clone(), Value::Object(endpoint));
        }
        json!({
            "Image": image.id,
            "Cmd": image.command.iter().chain(&self.arguments).collect::<Vec<_>>(),
            "ExposedPorts": exposed,
            "Labels": self.labels,
            "AttachStdin": true,
            "OpenStdin": true,
            "StdinOnce": true,
            "HostConfig": host,
            "NetworkingConfig": { "EndpointsConfig": endpoints },
        })
    }
}

/// A container that runs as long as the value: its first process reads what is held here, and ends when that does, also when this process
/// is killed; the engine removes the container then.
#[derive(Debug)]
pub struct HeldContainer {
    pub id: String,
    stdin: UnixStream,
}

impl HeldContainer {
    /// Has its first process end.
    pub fn let_go(&self) {
        // The engine hears the end of the connection otherwise.
        let _ = self.stdin.shutdown(Shutdown::Both);
    }
}

/// What an engine tells of a container.
#[derive(Debug, Clone, PartialEq)]
pub struct Container {
    /// Of its first process, in the engine's namespace of processes.
    pub pid: u32,
    /// On all of its networks.
    pub addresses: Vec<IpAddr>,
    pub gateways: Vec<IpAddr>,
    /// All that the engine says.
    pub told: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Inspected {
    state: InspectedState,
    network_settings: InspectedNetworks,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct InspectedState {
    running: bool,
    pid: u32,
    #[serde(default)]
    error: String,
    #[serde(default)]
    exit_code: i64,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct InspectedNetworks {
    #[serde(default)]
    networks: BTreeMap<String, Endpoint>,
}

#[derive(Deserialize)]
struct Endpoint {
    #[serde(rename = "IPAddress", default)]
    ipv4: String,
    #[serde(rename = "GlobalIPv6Address", default)]
    ipv6: String,
    #[serde(rename = "Gateway", default)]
    gateway: String,
    #[serde(rename = "IPv6Gateway", default)]
    ipv6_gateway: String,
}

impl Engine {
    /// Makes a container and starts it.
    ///
    /// # Errors
    /// What the engine refuses; nothing is left then.
    pub fn run(&self, image: &Image, spec: &ContainerSpec) -> Result<HeldContainer> {
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Created {
            id: String,
        }
        let path = format!("/containers/create?name={}", escaped(&spec.name));
        let Created { id } =
            self.ask(&format!("make container {}", spec.name), "POST", &path, Some(&spec.json(image)))?;
        self.start(&id, &spec.name).inspect_err(|_| {
            // The first error says why.
            let _ = self.remove_container(&id);
        })
    }

    fn start(&self, id: &str, name: &str) -> Result<HeldContainer> {
        let at = format!("/containers/{}", escaped(id));
        let (mut stdin, _) =
            self.upgrade(&format!("attach to {name}"), &format!("{at}/attach?stream=1&stdin=1"), &json!({}))?;
        self.tell(&format!("start container {name}"), "POST", &format!("{at}/start"), None)?;
        stdin.flush().map_err(|why| EngineError::Lost { what: format!("attach to {name}"), why })?;
        Ok(HeldContainer { id: id.to_owned(), stdin })
    }

    /// What the engine tells of a container that runs.
    ///
    /// # Errors
    /// When it does not run, or the engine does not tell.
    pub fn container(&self, id: &str) -> Result<Container> {
        let what = format!("tell of container {id}");
        let told: Value = self.ask(&what, "GET", &format!("/containers/{}/json", escaped(id)), None)?;
        let garbled = |why: String| EngineError::Garbled { what: what.clone(), why };
        let Inspected { state, network_settings } =
            serde_json::from_value(told.clone()).map_err(|error| garbled(error.to_string()))?;
        if !state.running {
            let InspectedState { error, exit_code, .. } = state;
            return Err(garbled(format!("it does not run (exit status {exit_code}) {error}").trim().to_owned()));
        }
        let networks = network_settings.networks.values();
        let addresses = |of: fn(&Endpoint) -> [&String; 2]| {
            networks.clone().flat_map(of).filter_map(|text| text.parse().ok()).collect::<Vec<IpAddr>>()
        };
        Ok(Container {
            pid: state.pid,
            addresses: addresses(|own| [&own.ipv4, &own.ipv6]),
            gateways: addresses(|own| [&own.gateway, &own.ipv6_gateway]),
            told: without_empty(told),
        })
    }
}

/// Without what says nothing: null, "", 0, false, and lists and objects of such.
pub fn without_empty(value: Value) -> Value {
    let is_empty = |value: &Value| match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(all) => all.is_empty(),
        Value::Object(all) => all.is_empty(),
    };
    match value {
        Value::Array(all) => Value::Array(all.into_iter().map(without_empty).filter(|one| !is_empty(one)).collect()),
        Value::Object(all) => Value::Object(
            all.into_iter().map(|(key, one)| (key, without_empty(one))).filter(|(_, one)| !is_empty(one)).collect(),
        ),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn a_container_ends_with_who_holds_it_and_is_removed_then() {
        let image = Image { id: "sha256:1".into(), command: vec!["/netrig".into()] };
        let spec = ContainerSpec {
            name: "x".into(),
            network: "bridge".into(),
            arguments: vec!["pause".into()],
            cpus: Some(0.5),
            memory: Some(64 << 20),
            published: vec![PublishedPort {
                address: Ipv4Addr::new(10, 0, 0, 1).into(),
                number: 5001,
                protocol: "tcp",
            }],
            ..ContainerSpec::default()
        };
        let body = spec.json(&image);
        assert_eq!(body["Cmd"], json!(["/netrig", "pause"]));
        assert_eq!(
            (&body["OpenStdin"], &body["StdinOnce"], &body["HostConfig"]["AutoRemove"]),
            (&json!(true), &json!(true), &json!(true))
        );
        assert_eq!(
            (&body["HostConfig"]["NanoCpus"], &body["HostConfig"]["Memory"]),
            (&json!(500_000_000), &json!(67_108_864))
        );
        assert_eq!(
            body["HostConfig"]["PortBindings"],
            json!({ "5001/tcp": [{ "HostIp": "10.0.0.1", "HostPort": "5001" }] })
        );
        assert!(body["HostConfig"].get("CpusetCpus").is_none());
        assert_eq!(body["NetworkingConfig"]["EndpointsConfig"], json!({}));
        let own = ContainerSpec {
            network: "red".into(),
            address: Some(Ipv4Addr::new(10, 1, 0, 5).into()),
            driver_options: [("label".to_owned(), "101".to_owned())].into(),
            ..spec
        };
        assert_eq!(
            own.json(&image)["NetworkingConfig"]["EndpointsConfig"],
            json!({ "red": { "IPAMConfig": { "IPv4Address": "10.1.0.5" }, "DriverOpts": { "label": "101" } } })
        );
    }

    #[test]
    fn records_have_what_says_something() {
        let value = json!({ "a": null, "b": "", "c": [0, "", {}], "d": { "e": { "f": false } }, "g": 1, "h": true, "i": ["x", null] });
        assert_eq!(without_empty(value), json!({ "g": 1, "h": true, "i": ["x"] }));
    }
}
