//! What users say of networks and endpoints: `-o` and `--driver-opt`.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use ipnet::IpNet;
use serde_json::{Map, Value};

/// Under which Docker passes what `docker network create -o` has said.
const GENERIC: &str = "com.docker.network.generic";
/// Set by `docker network create --internal`.
const INTERNAL: &str = "com.docker.network.internal";
/// What begins with it is Docker's own.
const OF_DOCKER: &str = "com.docker.";
/// Docker's name for the key `mtu`, which its own drivers have.
const DOCKER_MTU: &str = "com.docker.network.driver.mtu";
/// Where Docker has ports that are to be published.
const PORTS: &str = "com.docker.network.portmap";

/// IPv4 needs that much (RFC 791), and a packet has no more.
const MTU: RangeInclusive<u16> = 576..=65_535;
/// Docker's client takes a comma for the begin of another option.
const SEPARATOR: char = '+';
const NETWORK_OPTIONS: [&str; 5] = ["network", "security_groups", "mtu", "routes", "gwbridge"];
const ENDPOINT_OPTIONS: [&str; 2] = ["security_groups", "label"];

/// What `docker network create` says of a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NetworkOptions {
    /// A virtual network of the router's file; nobody knows which, where that is not said.
    pub(super) network: Option<String>,
    /// Of containers that say none of their own.
    pub(super) security_groups: BTreeSet<String>,
    /// What fits the network's tunnels, where none is said.
    pub(super) mtu: Option<u16>,
    /// Prefixes that lead by the network's gateway, whoever has the default route.
    pub(super) routes: Vec<IpNet>,
    /// Whether Docker's own bridge has the default route, and publishes ports.
    pub(super) gateway_bridge: bool,
    /// Whether nothing but the network's subnets is reached.
    pub(super) internal: bool,
}

impl NetworkOptions {
    /// # Errors
    /// The first mistake.
    pub(super) fn of(options: &Map<String, Value>) -> Result<Self, String> {
        let mut own = Self {
            network: None,
            security_groups: BTreeSet::new(),
            mtu: None,
            routes: Vec::new(),
            gateway_bridge: false,
            internal: options.get(INTERNAL).is_some_and(|internal| *internal == Value::Bool(true)),
        };
        for (key, value) in options.get(GENERIC).and_then(Value::as_object).into_iter().flatten() {
            let text = value.as_str().ok_or_else(|| format!("option '{key}' is no text"))?;
            match key.as_str() {
                "network" => own.network = Some(text.to_owned()),
                "security_groups" => own.security_groups = names(text)?,
                "mtu" | DOCKER_MTU => own.mtu = Some(mtu(key, text)?),
                "routes" => own.routes = text.split(SEPARATOR).map(prefix).collect::<Result<_, _>>()?,
                "gwbridge" => own.gateway_bridge = yes_or_no(key, text)?,
                _ => {
                    let known = NETWORK_OPTIONS.join(", ");
                    return Err(format!("option '{key}' is none of netrig's networks: choose from {known}"));
                }
            }
        }
        if own.internal && (own.gateway_bridge || !own.routes.is_empty()) {
            return Err("an --internal network has no way out: leave 'gwbridge' and 'routes' out".to_owned());
        }
        Ok(own)
    }
}

/// What `docker run --network name=..,driver-opt=..` says of an endpoint.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct EndpointOptions {
    /// The network's, where none are said.
    pub(super) security_groups: Option<BTreeSet<String>>,
    /// MPLS label by which other nodes name it. The router says which there can be.
    pub(super) label: Option<u32>,
}

impl EndpointOptions {
    /// # Errors
    /// The first mistake.
    pub(super) fn of(options: &Map<String, Value>) -> Result<Self, String> {
        let mut own = Self::default();
        for (key, value) in options.iter().filter(|(key, _)| !key.starts_with(OF_DOCKER)) {
            let text = value.as_str().ok_or_else(|| format!("option '{key}' is no text"))?;
            match key.as_str() {
                "security_groups" => own.security_groups = Some(names(text)?),
                "label" => {
                    let label = text.parse().map_err(|_| format!("'label' is '{text}', which is no label"))?;
                    own.label = Some(label);
                }
                _ => {
                    let known = ENDPOINT_OPTIONS.join(", ");
                    return Err(format!("option '{key}' is none of netrig's endpoints: choose from {known}"));
                }
            }
        }
        Ok(own)
    }
}

/// Whether ports are to be published.
pub(super) fn publishes(options: &Map<String, Value>) -> bool {
    options.get(PORTS).and_then(Value::as_array).is_some_and(|ports| !ports.is_empty())
}

/// None, of an empty text.
fn names(text: &str) -> Result<BTreeSet<String>, String> {
    if text.is_empty() {
        return Ok(BTreeSet::new());
    }
    let name = |name: &str| match name.is_empty() {
        true => Err(format!("'security_groups' is '{text}', with a name that is empty")),
        false => Ok(name.to_owned()),
    };
    text.split(SEPARATOR).map(name).collect()
}

fn mtu(key: &str, text: &str) -> Result<u16, String> {
    let mtu = text.parse().ok().filter(|mtu| MTU.contains(mtu));
    mtu.ok_or_else(|| format!("'{key}' is '{text}', and not {} to {} bytes", MTU.start(), MTU.end()))
}

fn prefix(text: &str) -> Result<IpNet, String> {
    let net: IpNet =
        text.parse().map_err(|_| format!("'routes' has '{text}', which is no prefix such as 10.2.0.0/16"))?;
    match net.trunc() == net {
        true => Ok(net),
        false => Err(format!("'routes' has {net}: did you mean {}?", net.trunc())),
    }
}

fn yes_or_no(key: &str, text: &str) -> Result<bool, String> {
    text.parse().map_err(|_| format!("'{key}' is '{text}', and neither true nor false"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(generic: &Value, internal: bool) -> Result<NetworkOptions, String> {
        let options = json!({ "com.docker.network.enable_ipv6": false, GENERIC: generic, INTERNAL: internal });
        NetworkOptions::of(options.as_object().unwrap())
    }

    #[test]
    fn options_of_networks_are_read_or_refused_by_name() {
        let all = json!({ "network": "red", "security_groups": "web+db", "com.docker.network.driver.mtu": "1400",
                          "routes": "10.2.0.0/16+fd00:2::/64", "gwbridge": "true" });
        let own = of(&all, false).unwrap();
        assert_eq!((own.network.as_deref(), own.mtu, own.gateway_bridge), (Some("red"), Some(1400), true));
        assert_eq!(own.security_groups, ["db", "web"].map(str::to_owned).into());
        assert_eq!(own.routes.iter().map(ToString::to_string).collect::<Vec<_>>(), ["10.2.0.0/16", "fd00:2::/64"]);
        assert!(of(&json!({}), true).unwrap().internal);
        for (options, internal, said) in [
            (json!({ "netwrok": "red" }), false, "'netwrok' is none of netrig's networks: choose from network,"),
            (json!({ "network": 5 }), false, "'network' is no text"),
            (json!({ "mtu": "500" }), false, "'mtu' is '500', and not 576 to 65535 bytes"),
            (json!({ "mtu": "66000" }), false, "and not 576 to 65535"),
            (json!({ "routes": "10.2.0.1/16" }), false, "did you mean 10.2.0.0/16?"),
            (json!({ "routes": "" }), false, "no prefix"),
            (json!({ "gwbridge": "yes" }), false, "neither true nor false"),
            (json!({ "security_groups": "web++db" }), false, "a name that is empty"),
            (json!({ "gwbridge": "true" }), true, "no way out"),
        ] {
            let error = of(&options, internal).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn options_of_endpoints_are_read_or_refused_by_name() {
        let of = |options: &Value| EndpointOptions::of(options.as_object().unwrap());
        let docker = json!({ "com.docker.network.endpoint.exposedports": [], PORTS: [] });
        assert_eq!(of(&docker), Ok(EndpointOptions::default()));
        assert!(!publishes(docker.as_object().unwrap()));
        let ports = json!({ PORTS: [{ "Proto": 6, "Port": 80, "HostPort": 8080 }] });
        assert!(publishes(ports.as_object().unwrap()));
        let own = of(&json!({ "security_groups": "web", "label": "101" })).unwrap();
        assert_eq!(own, EndpointOptions { security_groups: Some(["web".to_owned()].into()), label: Some(101) });
        assert_eq!(of(&json!({ "security_groups": "" })).unwrap().security_groups, Some(BTreeSet::new()));
        for (options, said) in [
            (json!({ "security_group": "web" }), "choose from security_groups, label"),
            (json!({ "security_groups": ["web"] }), "'security_groups' is no text"),
            (json!({ "label": "x" }), "no label"),
        ] {
            let error = of(&options).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}
