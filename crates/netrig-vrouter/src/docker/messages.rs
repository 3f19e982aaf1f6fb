//! What dockerd calls a network driver with, and what it is answered.
//!
//! The remote driver's protocol of libnetwork (github.com/moby/moby, daemon/libnetwork/docs/remote.md and drivers/remote/api).

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

/// What Go writes for a map or a slice that is nil.
fn or_empty<'de, T: Deserialize<'de> + Default, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// `GwAllocCheck`
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct GatewayCheck {
    #[serde(default, deserialize_with = "or_empty")]
    pub(super) options: Map<String, Value>,
}

/// `CreateNetwork`
#[derive(Debug, Deserialize)]
pub(super) struct NetworkCreation {
    #[serde(rename = "NetworkID")]
    pub(super) network: String,
    #[serde(rename = "Options", default, deserialize_with = "or_empty")]
    pub(super) options: Map<String, Value>,
    #[serde(rename = "IPv4Data", default, deserialize_with = "or_empty")]
    pub(super) ipv4: Vec<PoolData>,
    #[serde(rename = "IPv6Data", default, deserialize_with = "or_empty")]
    pub(super) ipv6: Vec<PoolData>,
}

/// A subnet, of which Docker gives addresses.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct PoolData {
    pub(super) pool: String,
    /// With the length of the prefix.
    #[serde(default)]
    pub(super) gateway: String,
}

/// `DeleteNetwork`
#[derive(Debug, Deserialize)]
pub(super) struct NetworkDeletion {
    #[serde(rename = "NetworkID")]
    pub(super) network: String,
}

/// `CreateEndpoint`
#[derive(Debug, Deserialize)]
pub(super) struct EndpointCreation {
    #[serde(rename = "NetworkID")]
    pub(super) network: String,
    #[serde(rename = "EndpointID")]
    pub(super) endpoint: String,
    #[serde(rename = "Interface", default, deserialize_with = "or_empty")]
    pub(super) interface: EndpointInterface,
    #[serde(rename = "Options", default, deserialize_with = "or_empty")]
    pub(super) options: Map<String, Value>,
}

/// What is said of a container's interface; empty where that is open.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct EndpointInterface {
    /// With the length of the prefix.
    pub(super) address: String,
    #[serde(rename = "AddressIPv6")]
    pub(super) address_ipv6: String,
    pub(super) mac_address: String,
}

/// `Join`, `Leave`, `DeleteEndpoint`, `EndpointOperInfo` and those of external connectivity.
#[derive(Debug, Deserialize)]
pub(super) struct EndpointReference {
    #[serde(rename = "NetworkID")]
    pub(super) network: String,
    #[serde(rename = "EndpointID")]
    pub(super) endpoint: String,
    #[serde(rename = "Options", default, deserialize_with = "or_empty")]
    pub(super) options: Map<String, Value>,
}

/// What `Join` is answered: dockerd moves the interface into the container, and gives it its name, addresses and routes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct JoinedEndpoint {
    pub(super) interface_name: InterfaceName,
    pub(super) gateway: String,
    #[serde(rename = "GatewayIPv6")]
    pub(super) gateway_ipv6: String,
    pub(super) static_routes: Vec<StaticRoute>,
    /// Whether the container does without Docker's own bridge docker_gwbridge.
    pub(super) disable_gateway_service: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct InterfaceName {
    pub(super) src_name: String,
    /// What a number is put behind.
    pub(super) dst_prefix: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct StaticRoute {
    pub(super) destination: String,
    /// By a next hop (`NEXTHOP` of libnetwork/types).
    pub(super) route_type: u8,
    pub(super) next_hop: String,
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::*;

    #[test]
    fn what_dockerd_writes_is_read() {
        // As Docker 20.10 has written it.
        let text = r#"{"NetworkID":"a7","Options":{"com.docker.network.enable_ipv6":false,"com.docker.network.generic":{"network":"red"}},
            "IPv4Data":[{"AddressSpace":"LocalDefault","Gateway":"10.1.0.1/24","Pool":"10.1.0.0/24"}],"IPv6Data":null}"#;
        let NetworkCreation { network, options, ipv4, ipv6 } = serde_json::from_str(text).unwrap();
        assert_eq!((network.as_str(), options.len(), ipv6.len()), ("a7", 2, 0));
        assert_eq!(ipv4, [PoolData { pool: "10.1.0.0/24".into(), gateway: "10.1.0.1/24".into() }]);
        let text = r#"{"NetworkID":"a7","EndpointID":"f6","Interface":{"Address":"10.1.0.2/24","AddressIPv6":"","MacAddress":""},
            "Options":{"com.docker.network.portmap":[],"security_groups":"web"}}"#;
        let creation: EndpointCreation = serde_json::from_str(text).unwrap();
        assert_eq!((creation.interface.address.as_str(), creation.options.len()), ("10.1.0.2/24", 2));
        let reference: EndpointReference =
            serde_json::from_str(r#"{"NetworkID":"a7","EndpointID":"f6","SandboxKey":"/x","Options":null}"#).unwrap();
        assert_eq!((reference.endpoint.as_str(), reference.options.len()), ("f6", 0));
    }
}
