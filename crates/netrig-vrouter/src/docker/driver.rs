//! What each call of dockerd does.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;
use rig_cli::exit::in_words;
use rig_service::AskError;
use rig_service::calls::{Call, CallAnswer, CallStatus};
use rig_sys::netlink::{Netlink, VethPair};
use rig_sys::netns::NetNs;
use rig_wire::ethernet::Mac;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tracing::{info, warn};

use super::messages::{
    EndpointCreation, EndpointInterface, EndpointReference, GatewayCheck, InterfaceName, JoinedEndpoint,
    NetworkCreation, NetworkDeletion, PoolData, StaticRoute,
};
use super::networks::{DockerNetwork, NetworkStore};
use super::options::{self, EndpointOptions, NetworkOptions};
use crate::client::RouterClient;
use crate::message::{NetworkTerms, PluggedEntry, SubnetTerms};
use crate::pair;
use crate::settings::PluggedInterface;
use crate::settings::plugged::PluggedAttachment;

/// The type of what plug-ins of Docker say (moby/pkg/plugins, `VersionMimetype`).
const CONTENT: &str = "application/vnd.docker.plugins.v1.2+json";
/// What names of Docker's interfaces at the router begin with.
const PREFIX: &str = "docker.";
/// As Docker's own drivers name interfaces in containers.
const DST_PREFIX: &str = "eth";
/// Docker's identifiers are of 64 hexadecimal digits, which it draws.
const DIGITS: usize = 64;

/// What the user is told; dockerd puts `remote: ` before it.
type Answer = Result<Value, String>;

#[derive(Debug)]
pub(super) struct Driver {
    node: String,
    pub(super) networks: NetworkStore,
}

/// A call that is none of the protocol's, or does not have what it should.
enum Unanswerable {
    NoSuchMethod,
    Malformed(String),
}

/// What becomes of an endpoint's identifier.
struct EndpointNames {
    /// The node's end of the pair. 15 bytes are the most (IFNAMSIZ of linux/if.h).
    device: String,
    /// The container's end, until dockerd moves it.
    peer: String,
    /// At the router. Labels are drawn from it, and with BGP it is unique among all nodes.
    interface: String,
    mac: Mac,
    hash: u64,
}

impl EndpointNames {
    fn of(endpoint: &str) -> Result<Self, String> {
        let is_digits = endpoint.len() == DIGITS && endpoint.bytes().all(|byte| byte.is_ascii_hexdigit());
        let hash = endpoint.get(..16).and_then(|digits| u64::from_str_radix(digits, 16).ok()).filter(|_| is_digits);
        let (Some(hash), Some(short)) = (hash, endpoint.get(..13)) else {
            return Err(format!("'{endpoint}' is no endpoint's identifier, which has {DIGITS} hexadecimal digits"));
        };
        let [a, b, c, d, e, ..] = hash.to_be_bytes();
        Ok(Self {
            device: format!("nr{short}"),
            peer: format!("nc{short}"),
            interface: format!("{PREFIX}{}", &endpoint[..12]),
            // Of no manufacturer and of no group (IEEE 802, 8.2).
            mac: Mac([0x02, a, b, c, d, e]),
            hash,
        })
    }
}

impl Driver {
    pub(super) fn new(node: &str, networks: NetworkStore) -> Self {
        Self { node: node.to_owned(), networks }
    }

    pub(super) fn answer(&self, call: &Call) -> CallAnswer {
        let (status, body) = match self.act(&call.path, &call.body) {
            Ok(Ok(answer)) => (CallStatus::Ok, answer),
            // What cannot be done is told with status 200, what cannot be understood is not.
            Ok(Err(error)) => {
                warn!("{}: {error}", call.path);
                (CallStatus::Ok, json!({ "Err": error }))
            }
            Err(Unanswerable::NoSuchMethod) => {
                (CallStatus::NotFound, json!({ "Err": format!("there is no {}", call.path) }))
            }
            Err(Unanswerable::Malformed(why)) => (CallStatus::BadRequest, json!({ "Err": why })),
        };
        CallAnswer { status, content: CONTENT, body: body.to_string() }
    }

    fn act(&self, path: &str, body: &[u8]) -> Result<Answer, Unanswerable> {
        let Some(method) = path.strip_prefix("/NetworkDriver.") else {
            return match path {
                "/Plugin.Activate" => Ok(self.activate()),
                _ => Err(Unanswerable::NoSuchMethod),
            };
        };
        Ok(match method {
            // Networks are of one node each, and their containers reach those of other nodes.
            "GetCapabilities" => Ok(json!({ "Scope": "local", "ConnectivityScope": "global", "GwAllocChecker": true })),
            "GwAllocCheck" => gateway_check(&read::<GatewayCheck>(body)?),
            "AllocateNetwork" => {
                Err("netrig's networks are of one node each (scope local): make one on each node".to_owned())
            }
            "CreateNetwork" => self.create_network(&read(body)?),
            "DeleteNetwork" => self.delete_network(&read(body)?),
            "CreateEndpoint" => self.create_endpoint(&read(body)?),
            "DeleteEndpoint" => self.delete_endpoint(&read(body)?),
            "EndpointOperInfo" => endpoint_info(&read(body)?),
            "Join" => self.join(&read(body)?),
            "Leave" => leave(&read(body)?),
            "ProgramExternalConnectivity" => publish(&read(body)?),
            // Nothing was published. Nothing is allocated for networks of scope local, and other nodes are told of by BGP.
            "RevokeExternalConnectivity" | "FreeNetwork" | "DiscoverNew" | "DiscoverDelete" => Ok(json!({})),
            _ => return Err(Unanswerable::NoSuchMethod),
        })
    }

    fn router(&self) -> Result<RouterClient, String> {
        RouterClient::of(Some(&self.node)).map_err(|error| error.to_string())
    }

    fn activate(&self) -> Answer {
        self.forget_lost();
        Ok(json!({ "Implements": ["NetworkDriver"] }))
    }

    /// Takes interfaces from the router whose devices have gone with their containers, as where dockerd was killed, which tells nothing of
    /// these afterwards.
    pub(super) fn forget_lost(&self) {
        let Ok(router) = self.router() else { return };
        let (Ok(plugged), Ok(node)) = (plugged(&router), Netlink::here()) else { return };
        for PluggedEntry { name, interface, .. } in plugged {
            if node.link(&interface.device).is_err() {
                info!("interface '{name}' has gone with its device {}", interface.device);
                if let Err(error) = router.unplug(&name) {
                    warn!("interface '{name}': {error}");
                }
            }
        }
    }

    fn create_network(&self, creation: &NetworkCreation) -> Answer {
        let options = NetworkOptions::of(&creation.options)?;
        let router = self.router()?;
        let network = options.network.unwrap_or_default();
        let terms = router.network(&network).map_err(|error| match network.is_empty() {
            // Which there are, the router says.
            true => format!("{error}: say -o network=NAME"),
            false => error.to_string(),
        })?;
        let gateways = creation.ipv4.iter().chain(&creation.ipv6).map(|pool| gateway(&network, &terms, pool));
        let gateways = gateways.collect::<Result<BTreeSet<_>, _>>()?;
        has_groups(&terms, &options.security_groups)?;
        let made = DockerNetwork {
            network,
            security_groups: options.security_groups,
            mtu: options.mtu,
            gateways,
            routes: options.routes,
            gateway_bridge: options.gateway_bridge,
            internal: options.internal,
        };
        if let Some(route) = made.routes.iter().find(|route| made.gateway(route.addr().is_ipv4()).is_none()) {
            return Err(format!("'routes' has {route}, and the network has no address of that family"));
        }
        self.networks.add(&creation.network, made).map_err(|error| in_words(&error))?;
        Ok(json!({}))
    }

    fn delete_network(&self, NetworkDeletion { network }: &NetworkDeletion) -> Answer {
        // Docker has none on it any more: what is there has been lost sight of.
        let router = self.router()?;
        match plugged(&router) {
            Ok(plugged) => remove_where(&router, plugged, |one| one.attachment.configuration == *network)?,
            Err(error) if is_absent(&error) => {}
            Err(error) => return Err(error.to_string()),
        }
        self.networks.remove(network).map_err(|error| in_words(&error))?;
        Ok(json!({}))
    }

    fn network(&self, id: &str) -> Result<DockerNetwork, String> {
        let unknown = || format!("network {id} is not known here: remove it in Docker, and make it again");
        self.networks.get(id).ok_or_else(unknown)
    }

    fn create_endpoint(&self, creation: &EndpointCreation) -> Answer {
        let names = EndpointNames::of(&creation.endpoint)?;
        let network = self.network(&creation.network)?;
        let EndpointOptions { security_groups, label } = EndpointOptions::of(&creation.options)?;
        let groups = security_groups.unwrap_or_else(|| network.security_groups.clone());
        let asked = &creation.interface;
        let texts = [&asked.address, &asked.address_ipv6].into_iter().filter(|text| !text.is_empty());
        let addresses = texts.map(|text| address(text)).collect::<Result<BTreeSet<_>, _>>()?;
        if addresses.is_empty() {
            return Err("Docker gives no address: leave --ipam-driver null out".to_owned());
        }
        let mac = match asked.mac_address.as_str() {
            "" => names.mac,
            text => text.parse().map_err(|_| format!("'{text}' is no MAC address"))?,
        };
        let router = self.router()?;
        let terms = router.network(&network.network).map_err(|error| error.to_string())?;
        has_groups(&terms, &groups)?;
        let mut node = here()?;
        // Docker knows whose an address is: who has it on the same network is left over, and so are those whose devices have gone.
        remove_where(&router, plugged(&router).map_err(|error| error.to_string())?, |one| {
            let is_others = one.attachment.configuration == creation.network && !one.addresses.is_disjoint(&addresses);
            is_others || one.attachment.container == creation.endpoint || node.link(&one.device).is_err()
        })?;
        remove(&mut node, &names)?;
        let interface = PluggedInterface {
            network: network.network,
            device: names.device.clone(),
            addresses,
            mac: mac.to_string(),
            security_groups: groups,
            label,
            attachment: PluggedAttachment {
                configuration: creation.network.clone(),
                container: creation.endpoint.clone(),
                interface: names.peer.clone(),
            },
        };
        let mtu = network.mtu.unwrap_or(terms.mtu);
        let made = make(&mut node, &names, mtu, mac)
            .and_then(|()| router.plug(&names.interface, &interface).map_err(|error| error.to_string()));
        if let Err(error) = made {
            // The first error says why.
            let _ = router.unplug(&names.interface);
            let _ = remove(&mut node, &names);
            return Err(error);
        }
        let told = match asked.mac_address.is_empty() {
            true => EndpointInterface { mac_address: mac.to_string(), ..EndpointInterface::default() },
            // What was said is not to be said again.
            false => EndpointInterface::default(),
        };
        Ok(json!({ "Interface": told }))
    }

    fn delete_endpoint(&self, reference: &EndpointReference) -> Answer {
        let names = EndpointNames::of(&reference.endpoint)?;
        // First: it is not looked for then, and stays closed to the node until it is removed.
        let unplugged = match self.router()?.unplug(&names.interface) {
            Err(error) if !is_absent(&error) => Err(error.to_string()),
            _ => Ok(()),
        };
        let removed = here().and_then(|mut node| remove(&mut node, &names));
        unplugged.and(removed).map(|()| json!({}))
    }

    fn join(&self, reference: &EndpointReference) -> Answer {
        let names = EndpointNames::of(&reference.endpoint)?;
        let network = self.network(&reference.network)?;
        let mut node = here()?;
        // Nothing reaches the node before the router takes it.
        node.set_up(&names.device).map_err(|error| error.to_string())?;
        serde_json::to_value(joined(names.peer, &network)).map_err(|error| error.to_string())
    }
}

/// Whether the router does not run: what is taken from it then, it does not find when it is run again.
fn is_absent(error: &AskError) -> bool {
    matches!(error, AskError::NotRunning { .. } | AskError::Unattended { .. })
}

/// Docker's of the interfaces that were added to the router.
fn plugged(router: &RouterClient) -> Result<Vec<PluggedEntry>, AskError> {
    let plugged = router.plugged()?;
    let is_dockers = |PluggedEntry { name, interface, .. }: &PluggedEntry| {
        EndpointNames::of(&interface.attachment.container).is_ok_and(|names| names.interface == *name)
    };
    Ok(plugged.into_iter().filter(is_dockers).collect())
}

/// Removes interfaces with their devices.
fn remove_where(
    router: &RouterClient,
    plugged: Vec<PluggedEntry>,
    is_one: impl Fn(&PluggedInterface) -> bool,
) -> Result<(), String> {
    for PluggedEntry { name, interface, .. } in plugged.into_iter().filter(|entry| is_one(&entry.interface)) {
        info!("interface '{name}' is one that Docker has lost sight of: it is removed");
        router.unplug(&name).map_err(|error| error.to_string())?;
        remove(&mut here()?, &EndpointNames::of(&interface.attachment.container)?)?;
    }
    Ok(())
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Unanswerable> {
    serde_json::from_slice(body).map_err(|error| Unanswerable::Malformed(error.to_string()))
}

/// The router is the gateway of each subnet, so that Docker gives its address to nobody.
fn gateway_check(check: &GatewayCheck) -> Answer {
    NetworkOptions::of(&check.options)?;
    Ok(json!({ "SkipIPv4": false, "SkipIPv6": false }))
}

/// The address by which the router is the gateway of a pool, which has to be Docker's, too.
fn gateway(network: &str, terms: &NetworkTerms, data: &PoolData) -> Result<IpAddr, String> {
    let pool: IpNet = data.pool.parse().map_err(|_| format!("'{}' is no subnet", data.pool))?;
    let Some(SubnetTerms { gateway, .. }) = terms.subnets.iter().find(|subnet| subnet.prefix.contains(&pool)) else {
        let known: Vec<String> = terms.subnets.iter().map(|subnet| subnet.prefix.to_string()).collect();
        let what = format!("{pool} is in no subnet of network '{network}'");
        return Err(format!("{what}: say --subnet, of {}", known.join(", ")));
    };
    let said = (!data.gateway.is_empty()).then(|| address(&data.gateway)).transpose()?;
    match said {
        Some(said) if said == *gateway => Ok(said),
        _ => Err(format!("the router is the gateway of {pool} by {gateway}: say --gateway {gateway}")),
    }
}

fn has_groups(terms: &NetworkTerms, groups: &BTreeSet<String>) -> Result<(), String> {
    let Some(unknown) = groups.difference(&terms.security_groups).next() else { return Ok(()) };
    let known = terms.security_groups.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    let known = if known.is_empty() { "none".to_owned() } else { known };
    Err(format!("there is no security group '{unknown}' in the router's file: there is {known}"))
}

/// Of one with the length of its prefix.
fn address(text: &str) -> Result<IpAddr, String> {
    let net: IpNet = text.parse().map_err(|_| format!("'{text}' is no address with a prefix"))?;
    Ok(net.addr())
}

fn here() -> Result<Netlink, String> {
    Netlink::here().map_err(|error| error.to_string())
}

fn make(node: &mut Netlink, names: &EndpointNames, mtu: u16, mac: Mac) -> Result<(), String> {
    let own = NetNs::of_current_thread().map_err(|error| error.to_string())?;
    let EndpointNames { device, peer, hash, .. } = names;
    let pair = VethPair { name: device, peer, peer_ns: &own, queues: 1, mtu: mtu.into() };
    let is_there = |node: &Netlink| node.link(device).is_ok() || node.link(peer).is_ok();
    pair::add(node, &pair, *hash, is_there).map_err(|error| error.to_string())?;
    node.set_mac(peer, mac.0).map_err(|error| error.to_string())
}

/// Removes the pair, where it is there.
fn remove(node: &mut Netlink, names: &EndpointNames) -> Result<(), String> {
    match node.remove_link(&names.device) {
        // It may have gone with its other end.
        Err(_) if node.link(&names.device).is_err() => Ok(()),
        removed => removed.map_err(|error| error.to_string()),
    }
}

/// What dockerd does with the container's end.
fn joined(peer: String, network: &DockerNetwork) -> JoinedEndpoint {
    let has_way_out = !network.internal && !network.gateway_bridge;
    let gateway = |is_ipv4: bool| {
        let gateway = network.gateway(is_ipv4).filter(|_| has_way_out);
        gateway.map(|gateway| gateway.to_string()).unwrap_or_default()
    };
    let route = |to: &IpNet| {
        let next_hop = network.gateway(to.addr().is_ipv4())?.to_string();
        Some(StaticRoute { destination: to.to_string(), route_type: 0, next_hop })
    };
    JoinedEndpoint {
        interface_name: InterfaceName { src_name: peer, dst_prefix: DST_PREFIX },
        gateway: gateway(true),
        gateway_ipv6: gateway(false),
        static_routes: network.routes.iter().filter_map(route).collect(),
        disable_gateway_service: !network.gateway_bridge,
    }
}

/// The node's end is set down: nothing of a container that has left is forwarded. The device goes with the endpoint, when dockerd has taken
/// its end out of the container.
fn leave(reference: &EndpointReference) -> Answer {
    let names = EndpointNames::of(&reference.endpoint)?;
    let mut node = here()?;
    match node.set_down(&names.device) {
        Err(_) if node.link(&names.device).is_err() => Ok(json!({})),
        done => done.map(|()| json!({})).map_err(|error| error.to_string()),
    }
}

fn endpoint_info(reference: &EndpointReference) -> Answer {
    let names = EndpointNames::of(&reference.endpoint)?;
    Ok(json!({ "Value": { "netrig.device": names.device, "netrig.interface": names.interface } }))
}

fn publish(reference: &EndpointReference) -> Answer {
    match options::publishes(&reference.options) {
        true => Err("ports cannot be published: the node itself is in no virtual network. Make the network with -o gwbridge=true, so \
                     that Docker's own bridge does that"
            .to_owned()),
        false => Ok(json!({})),
    }
}

#[cfg(test)]
mod tests;
