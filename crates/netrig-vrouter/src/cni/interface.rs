//! The container's interface: what it is to be like, made and compared.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use rig_cni::plugin::{PluginCall, code};
use rig_cni::{AddResult, PluginError};
use rig_sys::netlink::{Link, Netlink, Route, VethPair};
use rig_sys::netns::NetNs;
use rig_wire::ethernet::Mac;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::config::PluginConfig;
use super::{DIFFERS, KERNEL, REFUSED};
use crate::message::NetworkTerms;
use crate::pair;

/// Keys of an IPAM plug-in's routes that are carried out.
const ROUTE_KEYS: [&str; 2] = ["dst", "gw"];

/// A veth pair that is to be made, with the addresses and routes of the container's end.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ContainerInterface {
    /// The node's end.
    pub(super) device: String,
    /// The container's.
    name: String,
    /// Of container and interface.
    hash: u64,
    mtu: u16,
    /// As the kernel draws it, where none is asked for.
    mac: Option<[u8; 6]>,
    pub(super) addresses: Vec<PlannedAddress>,
    pub(super) routes: Vec<PlannedRoute>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct PlannedAddress {
    pub(super) address: IpAddr,
    prefix: u8,
    /// The router's, in its subnet.
    gateway: IpAddr,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct PlannedRoute {
    to: IpNet,
    gateway: IpAddr,
}

/// Eight bytes of a hash.
fn hash(call: &PluginCall) -> u64 {
    let digest = Sha256::digest([call.container.as_bytes(), b"\0", call.interface.as_bytes()].concat());
    digest.iter().take(8).fold(0, |bits, byte| bits << 8 | u64::from(*byte))
}

/// In hexadecimal digits.
fn digest(call: &PluginCall) -> String {
    format!("{:016x}", hash(call))
}

/// The node's end: the same each time, because DEL is told no more than that. 15 bytes are the most (IFNAMSIZ of linux/if.h).
pub(super) fn device(call: &PluginCall) -> String {
    format!("nr{}", &digest(call)[..13])
}

/// The interface's name at the router, at most 64 bytes: unique by the hash, the rest is for who reads it.
pub(super) fn name(call: &PluginCall) -> String {
    let plain = |text: &str, most: usize| -> String {
        text.chars().map(|c| if c.is_ascii_alphanumeric() || "_.-".contains(c) { c } else { '_' }).take(most).collect()
    };
    format!("{}.{}.{}", plain(&call.container, 24), plain(&call.interface, 15), &digest(call)[..13])
}

#[allow(clippy::needless_pass_by_value, reason = "it is what `map_err` gives")]
pub(super) fn kernel(error: rig_sys::Error) -> PluginError {
    PluginError::new(KERNEL, error.to_string())
}

/// A prefix with the address that it is written with.
fn net(text: &str) -> Option<IpNet> {
    text.parse().ok()
}

/// The container's addresses of a result.
pub(super) fn addresses_of<'a>(call: &'a PluginCall, result: &'a AddResult) -> impl Iterator<Item = IpAddr> + 'a {
    let own = result.interfaces.iter().position(|one| !one.sandbox.is_empty() && one.name == call.interface);
    let ips = result.ips.iter().filter(move |ip| ip.interface.is_none() || ip.interface == own);
    ips.filter_map(|ip| net(&ip.address).map(|net| net.addr()))
}

impl ContainerInterface {
    /// What follows from what an IPAM plug-in has leased and the router has said of the network.
    pub(super) fn plan(
        call: &PluginCall,
        config: &PluginConfig,
        terms: &NetworkTerms,
        leased: &AddResult,
    ) -> Result<Self, PluginError> {
        let refused = |what: String| PluginError::new(REFUSED, what);
        let mut addresses = Vec::new();
        for ip in &leased.ips {
            let own =
                net(&ip.address).ok_or_else(|| refused(format!("'{}' is no address with a prefix", ip.address)))?;
            let subnet = terms.subnets.iter().find(|subnet| subnet.prefix.contains(&own.addr()));
            let subnet = subnet.ok_or_else(|| {
                let all = terms.subnets.iter().map(|subnet| subnet.prefix.to_string()).collect::<Vec<_>>().join(", ");
                let what = format!("IPAM has leased {own}, which is in no subnet of network '{}'", config.network);
                PluginError::new(REFUSED, what).with(format!("have it lease of {all}"))
            })?;
            addresses.push(PlannedAddress { address: own.addr(), prefix: own.prefix_len(), gateway: subnet.gateway });
        }
        if addresses.is_empty() {
            return Err(refused("IPAM has leased no address".to_owned()));
        }
        let routes = routes(leased, &addresses)?;
        Ok(Self {
            device: device(call),
            name: call.interface.clone(),
            hash: hash(call),
            mtu: config.mtu.unwrap_or(terms.mtu),
            mac: config.mac,
            addresses,
            routes,
        })
    }

    /// The node's end is down then.
    pub(super) fn make(&self, node: &mut Netlink, inside: &mut Netlink, namespace: &NetNs) -> Result<(), PluginError> {
        let pair =
            VethPair { name: &self.device, peer: &self.name, peer_ns: namespace, queues: 1, mtu: self.mtu.into() };
        let is_there = |node: &Netlink| node.link(&self.device).is_ok() || inside.link(&self.name).is_ok();
        pair::add(node, &pair, self.hash, is_there).map_err(kernel)?;
        if let Some(mac) = self.mac {
            inside.set_mac(&self.name, mac).map_err(kernel)?;
        }
        for own in &self.addresses {
            inside.add_address(&self.name, own.address, own.prefix).map_err(kernel)?;
        }
        inside.set_up(&self.name).map_err(kernel)?;
        for PlannedRoute { to, gateway } in &self.routes {
            let route = Route {
                destination: to.network(),
                prefix: to.prefix_len(),
                gateway: Some(*gateway),
                interface: Some(&self.name),
            };
            inside.install_route(&route).map_err(kernel)?;
        }
        Ok(())
    }

    /// The container's MAC address.
    pub(super) fn mac(&self, inside: &Netlink) -> Result<String, PluginError> {
        let link = inside.link(&self.name).map_err(kernel)?;
        let mac =
            link.mac.map(Mac).ok_or_else(|| PluginError::new(KERNEL, format!("{} has no MAC address", self.name)))?;
        Ok(mac.to_string())
    }

    /// What ADD answers.
    pub(super) fn result(
        &self,
        call: &PluginCall,
        config: &PluginConfig,
        leased: &AddResult,
        near: &Link,
        mac: &str,
    ) -> Value {
        let sandbox = call.namespace.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
        let near_mac = near.mac.map(|mac| Mac(mac).to_string()).unwrap_or_default();
        let ips = self.addresses.iter().map(|own| {
            let PlannedAddress { address, prefix, gateway } = own;
            json!({ "address": format!("{address}/{prefix}"), "gateway": gateway, "interface": 1 })
        });
        let routes = self.routes.iter().map(|PlannedRoute { to, gateway }| json!({ "dst": to, "gw": gateway }));
        let mut result = Map::new();
        result.insert(
            "interfaces".into(),
            json!([{ "name": self.device, "mac": near_mac, "mtu": self.mtu },
                   { "name": self.name, "mac": mac, "mtu": self.mtu, "sandbox": sandbox }]),
        );
        result.insert("ips".into(), ips.collect());
        result.insert("routes".into(), routes.collect());
        let dns = config.dns.as_ref().or_else(|| leased.object.get("dns"));
        result.insert("dns".into(), dns.cloned().unwrap_or_else(|| json!({})));
        Value::Object(result)
    }
}

/// Those of the IPAM plug-in, by the router where it says no gateway; and a default route of each family that it has none of.
fn routes(leased: &AddResult, addresses: &[PlannedAddress]) -> Result<Vec<PlannedRoute>, PluginError> {
    let listed = leased.object.get("routes").and_then(Value::as_array);
    for key in listed.into_iter().flatten().filter_map(Value::as_object).flat_map(Map::keys) {
        if !ROUTE_KEYS.contains(&key.as_str()) {
            let what = format!("IPAM has a route with '{key}', which is not carried out");
            return Err(PluginError::new(code::UNSUPPORTED_FIELD, what));
        }
    }
    let gateway_of =
        |is_ipv4: bool| addresses.iter().find(|own| own.address.is_ipv4() == is_ipv4).map(|own| own.gateway);
    let mut routes = Vec::new();
    for route in &leased.routes {
        let wrong = |what: &str| PluginError::new(REFUSED, format!("IPAM has a route to '{}' {what}", route.dst));
        let to = net(&route.dst).ok_or_else(|| wrong("that is no prefix"))?.trunc();
        let is_ipv4 = to.addr().is_ipv4();
        let said = route.gw.as_deref().filter(|gateway| !gateway.is_empty());
        let said = said.map(|gateway| gateway.parse().map_err(|_| wrong("by a gateway that is no address")));
        let gateway = said.transpose()?.or_else(|| gateway_of(is_ipv4));
        let gateway = gateway.ok_or_else(|| wrong("and no address of its family"))?;
        routes.push(PlannedRoute { to, gateway });
    }
    for (is_ipv4, all) in [(true, IpAddr::V4(Ipv4Addr::UNSPECIFIED)), (false, IpAddr::V6(Ipv6Addr::UNSPECIFIED))] {
        let is_default = |route: &PlannedRoute| route.to.prefix_len() == 0 && route.to.addr().is_ipv4() == is_ipv4;
        if let (Some(gateway), false) = (gateway_of(is_ipv4), routes.iter().any(is_default)) {
            routes.extend(IpNet::new(all, 0).ok().map(|to| PlannedRoute { to, gateway }));
        }
    }
    Ok(routes)
}

/// Whether both ends are as the result of ADD says, which plug-ins after this one may have added to.
pub(super) fn check(
    call: &PluginCall,
    result: &AddResult,
    node: &Netlink,
    inside: &Netlink,
) -> Result<(), PluginError> {
    let differs = |what: String| PluginError::new(DIFFERS, what);
    let name = &call.interface;
    let link = inside.link(name).map_err(|_| differs(format!("the container has no interface {name}")))?;
    let device = device(call);
    let near = node.link(&device).map_err(|_| differs(format!("the node has no interface {device}")))?;
    if link.far.map(|far| far.index) != Some(near.index) {
        return Err(differs(format!("{device} is not the other end of the container's {name}")));
    }
    for (link, what) in [(&link, name), (&near, &device)] {
        if !link.is_set_up {
            return Err(differs(format!("{what} is down")));
        }
    }
    let told = result.interfaces.iter().find(|one| !one.sandbox.is_empty() && one.name == *name);
    let told = told.ok_or_else(|| differs(format!("'prevResult' has no interface {name} of the container")))?;
    let mac = link.mac.map(|mac| Mac(mac).to_string());
    if told.mac.as_ref().is_some_and(|told| !told.is_empty() && mac.as_deref() != Some(told.to_lowercase().as_str())) {
        return Err(differs(format!("{name} has another MAC address, {}", mac.unwrap_or_default())));
    }
    if told.mtu.is_some_and(|mtu| mtu > 0 && mtu != link.mtu) {
        return Err(differs(format!("{name} has another MTU, {} bytes", link.mtu)));
    }
    let here = inside.addresses_of(link.index).map_err(kernel)?;
    for address in addresses_of(call, result) {
        if !here.iter().any(|own| own.address() == Some(address)) {
            return Err(differs(format!("{name} does not have {address}")));
        }
    }
    let routes = inside.routes_by(link.index).map_err(kernel)?;
    for to in result.routes.iter().filter_map(|route| net(&route.dst)) {
        let is_it = |(address, prefix): (Option<IpAddr>, u8)| match address {
            Some(address) => address == to.network() && prefix == to.prefix_len(),
            None => to.prefix_len() == 0 && prefix == 0,
        };
        if !routes.iter().any(|route| is_it(route.destination())) {
            return Err(differs(format!("the container has no route to {to} by {name}")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
