//! Virtual networks: their subnets, and what is behind interfaces of them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use ipnet::IpNet;
use rig_cli::forms::TextOrTable;
use rig_datapath::vrouter::{FIRST_LABEL, LAST_LABEL, LAST_VNI, MOST_WAYS};
use toml::Spanned;

use super::allot::{self, NumberRequest};
use super::file::{File, NetworkFile, SubnetFile};
use super::read::{Reader, Result};
use super::{Interface, Network, Router, Settings, Subnet};

impl Reader<'_> {
    pub(super) fn networks(&mut self, file: &File, settings: &mut Settings) -> Result<()> {
        let mut asked = Vec::new();
        for entry in &file.network {
            let network = entry.get_ref();
            if let Some(vni) = &network.vni {
                self.range(vni, "VXLAN network identifier", 1, LAST_VNI)?;
            }
            if let Some(label) = &network.label {
                self.range(label, "label", FIRST_LABEL, LAST_LABEL)?;
            }
            let name = network.name.get_ref().clone();
            asked.push(NumberRequest { name: name.clone(), number: asked_number(network.vni.as_ref()) });
            settings.networks.insert(name, self.network(network, &settings.router)?);
        }
        // Route targets are made of them, and other nodes' files may have other networks.
        let allot = if settings.router.bgp.is_some() { allot::agreed } else { allot::numbers };
        let vnis = allot(&asked, 1..=LAST_VNI, &|name| self.draw("vni", name)).map_err(|twice| {
            let what = format!("networks '{}' and '{}' have one VNI, {}", twice.first, twice.second, twice.number);
            match twice.span.is_empty() {
                true => {
                    let span = self.names.networks.get(&twice.second).cloned().unwrap_or_default();
                    self.error(span, what, "set 'vni' of one of them")
                }
                false => self.error(twice.span, what, "give each its own, or leave it out"),
            }
        })?;
        for (name, vni) in vnis {
            settings.networks.entry(name).and_modify(|network| network.vni = vni);
        }
        self.targets(file, settings)
    }

    fn network(&mut self, file: &NetworkFile, router: &Router) -> Result<Network> {
        self.not_built(&file.dhcp, "answering DHCP")?;
        self.not_built(&file.dns, "answering DNS")?;
        let name = file.name.get_ref();
        let mut subnets: Vec<Subnet> = Vec::new();
        for entry in file.subnets.get_ref() {
            let subnet = self.subnet(entry)?;
            if let Some(other) = subnets.iter().find(|other| overlap(other.prefix, subnet.prefix)) {
                let what = format!("subnets {} and {} of network '{name}' overlap", other.prefix, subnet.prefix);
                return Err(self.error(entry.span(), what, "remove one, or choose another prefix"));
            }
            self.spans.subnets.insert((name.clone(), subnet.prefix), entry.span());
            subnets.push(subnet);
        }
        if subnets.is_empty() {
            let hint = "write subnets = [\"10.1.0.0/24\"]";
            return Err(self.error(file.subnets.span(), format!("network '{name}' has no subnet"), hint));
        }
        let encapsulation = match &file.encapsulation {
            None => router.encapsulation.clone(),
            Some(said) => self.encapsulations(said)?,
        };
        let mut policies = Vec::new();
        for policy in &file.policies {
            let policy_name = self.known("policy", policy, &self.names.policies)?;
            if policies.contains(&policy_name) {
                let what = format!("network '{name}' names policy '{policy_name}' twice");
                return Err(self.error(policy.span(), what, "remove one"));
            }
            self.spans.policies.insert((name.clone(), policy_name.clone()), policy.span());
            policies.push(policy_name);
        }
        let fat_flows = self.fat_flows(&file.fat_flows)?;
        let broadcast = file.broadcast.as_ref().is_none_or(|said| *said.get_ref());
        let flood_unknown_unicast = file.flood_unknown_unicast.as_ref().is_some_and(|said| *said.get_ref());
        if let Some(said) = file.flood_unknown_unicast.as_ref().filter(|_| flood_unknown_unicast && !broadcast) {
            let what = format!("network '{name}' copies frames to unknown addresses to all, and none to all");
            return Err(self.error(said.span(), what, "remove broadcast = false, or this key"));
        }
        if let Some(said) = file.label.as_ref().filter(|_| !broadcast) {
            let what = format!("network '{name}' has a label for frames to all, and copies none to all");
            return Err(self.error(said.span(), what, "remove broadcast = false, or the label"));
        }
        Ok(Network {
            subnets,
            encapsulation,
            policies,
            label: file.label.as_ref().map(|label| *label.get_ref()),
            broadcast,
            flood_unknown_unicast,
            fat_flows,
            ..Network::default()
        })
    }

    fn subnet(&self, entry: &Spanned<TextOrTable<SubnetFile>>) -> Result<Subnet> {
        let (text, gateway) = match entry.get_ref() {
            TextOrTable::Text(text) => (text, None),
            TextOrTable::Table(table) => (&table.prefix, table.gateway.as_ref()),
        };
        let prefix = self.prefix(text, entry.span())?;
        let room = prefix.max_prefix_len() - prefix.prefix_len();
        if !unicast(prefix.network()) || !unicast(prefix.broadcast()) || prefix.prefix_len() < 3 {
            return Err(self.error(
                entry.span(),
                format!("{prefix} is not for containers"),
                "choose unicast addresses",
            ));
        }
        if room < 2 {
            let what = format!("{prefix} has no room for a gateway and a container");
            return Err(self.error(entry.span(), what, "choose a shorter prefix"));
        }
        let gateway = match gateway {
            None => first_host(prefix),
            Some(text) => match text.parse::<IpAddr>() {
                Ok(gateway) if is_host(prefix, gateway) => gateway,
                _ => {
                    let hint = format!("choose an address of the subnet, such as {}", first_host(prefix));
                    return Err(self.error(entry.span(), format!("'{text}' is not a gateway of {prefix}"), hint));
                }
            },
        };
        Ok(Subnet { prefix, gateway })
    }

    pub(super) fn routes(&mut self, file: &File, settings: &mut Settings) -> Result<()> {
        for entry in &file.route {
            let route = entry.get_ref();
            let network_name = self.known("network", &route.network, &self.names.networks)?;
            let prefix = self.prefix(route.prefix.get_ref(), route.prefix.span())?;
            let mut via = Vec::new();
            for interface in route.via.get_ref() {
                let name = self.known("interface", interface, &self.names.interfaces)?;
                if settings.interfaces.get(&name).is_none_or(|interface| interface.network != network_name) {
                    let what = format!("interface '{name}' is not of network '{network_name}'");
                    return Err(self.error(interface.span(), what, "choose one that is"));
                }
                if via.contains(&name) {
                    return Err(self.error(interface.span(), format!("'{name}' is listed twice"), "remove one"));
                }
                via.push(name);
            }
            if via.is_empty() || via.len() > MOST_WAYS {
                let what = format!("a route to {prefix} by {} interfaces", via.len());
                return Err(self.error(route.via.span(), what, format!("choose 1 to {MOST_WAYS}")));
            }
            let said = |what: String, hint: &str| Err(self.error(route.prefix.span(), what, hint));
            let Some(network) = settings.networks.get_mut(&network_name) else { continue };
            if prefix.network().is_multicast() {
                return said(format!("{prefix} is multicast"), "routes are to unicast addresses");
            }
            if network.subnets.iter().any(|subnet| subnet.prefix == prefix) {
                let what = format!("{prefix} is a subnet of network '{network_name}' itself");
                return said(what, "a route is to what is behind an interface");
            }
            let hosts = settings.interfaces.values().filter(|interface| interface.network == network_name);
            let gateways = network.subnets.iter().map(|subnet| subnet.gateway);
            if hosts.flat_map(Interface::all_addresses).chain(gateways).any(|host| IpNet::from(host) == prefix) {
                return said(format!("{prefix} is the address of an interface or a gateway"), "remove the route");
            }
            if network.routes.insert(prefix, via).is_some() {
                let what = format!("network '{network_name}' has two routes to {prefix}");
                return said(what, "name all interfaces in one: via = [\"...\", \"...\"]");
            }
            self.spans.routes.insert((network_name, prefix), route.prefix.span());
        }
        Ok(())
    }
}

pub(super) fn asked_number(said: Option<&Spanned<u32>>) -> Option<(Range<usize>, u32)> {
    said.map(|number| (number.span(), *number.get_ref()))
}

pub(super) fn overlap(one: IpNet, other: IpNet) -> bool {
    one.contains(&other) || other.contains(&one)
}

/// Of one interface.
fn unicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => !v4.is_loopback() && !v4.is_multicast() && !v4.is_link_local() && v4.octets()[0] != 0,
        IpAddr::V6(v6) => !(v6.is_loopback() || v6.is_multicast() || v6.is_unspecified() || v6.is_unicast_link_local()),
    }
}

/// The network's own address, and IPv4's broadcast address, are no container's.
pub(super) fn is_host(prefix: IpNet, address: IpAddr) -> bool {
    prefix.contains(&address) && address != prefix.network() && (address.is_ipv6() || address != prefix.broadcast())
}

fn first_host(prefix: IpNet) -> IpAddr {
    match prefix.network() {
        IpAddr::V4(v4) => Ipv4Addr::from_bits(v4.to_bits() + 1).into(),
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() + 1).into(),
    }
}
