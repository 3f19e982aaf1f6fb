//! Containers' interfaces: where they are, their addresses, labels and MAC addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use rig_datapath::vrouter::{Encapsulation, FIRST_LABEL, LAST_LABEL, LAST_VNI};
use rig_wire::ethernet::Mac;
use toml::Spanned;

use super::allot::{self, NumberRequest};
use super::file::{File, InterfaceFile, NetworkFile};
use super::networks::{asked_number, is_host};
use super::read::{Reader, Result};
use super::{Interface, InterfaceLocation, Network, NodeNetworkIds, Settings};

/// In front of a network's name where it gets a number as interfaces of a node do; theirs have no blank in them.
pub(super) const OF_NETWORK: &str = "network ";

impl Reader<'_> {
    pub(super) fn interfaces(&mut self, file: &File, settings: &mut Settings) -> Result<()> {
        // Of each node, in the file's order: who comes later takes no label from who is there.
        let mut labels: BTreeMap<String, Vec<NumberRequest<u32>>> = BTreeMap::new();
        let mut macs: BTreeMap<String, Vec<NumberRequest<Mac>>> = BTreeMap::new();
        let mut addresses: BTreeMap<(String, IpAddr), (String, bool)> = BTreeMap::new();
        let mut places: BTreeMap<(String, InterfaceLocation), String> = BTreeMap::new();
        for entry in &file.interface {
            let said = entry.get_ref();
            let name = said.name.get_ref().clone();
            self.spans.interfaces.insert(name.clone(), said.name.span());
            let mut interface = self.interface(said, settings)?;
            for (shared, list) in [(false, said.addresses.get_ref()), (true, &said.allowed_addresses)] {
                for text in list {
                    let address = self.address(text, &interface.network, settings)?;
                    let key = (interface.network.clone(), address);
                    // Only allowed addresses can be several interfaces'.
                    match addresses.get(&key) {
                        Some((other, of_others)) if !(shared && *of_others) || *other == name => {
                            let what = format!("{address} is an address of '{other}' already");
                            let hint =
                                "choose another one; interfaces that share one list it under 'allowed_addresses'";
                            return Err(self.error(text.span(), what, hint));
                        }
                        _ => addresses.insert(key, (name.clone(), shared)),
                    };
                    if shared { &mut interface.allowed_addresses } else { &mut interface.addresses }.insert(address);
                }
            }
            if let Some(other) = places.insert((interface.node.clone(), interface.place.clone()), name.clone()) {
                let what = format!("'{other}' and '{name}' are the same device of node '{}'", interface.node);
                return Err(self.error(said.name.span(), what, "remove one, or choose another device"));
            }
            if let Some(label) = &said.label {
                self.range(label, "label", FIRST_LABEL, LAST_LABEL)?;
            }
            if let Some(vni) = &said.vni {
                interface.vni = Some(self.own_vni(vni, &name, &interface, settings)?);
            }
            let asked = NumberRequest { name: name.clone(), number: asked_number(said.label.as_ref()) };
            labels.entry(interface.node.clone()).or_default().push(asked);
            let mac = said.mac.as_ref().filter(|text| text.get_ref() != "any");
            interface.any_mac = mac.is_none();
            if let Some(text) = mac {
                interface.mac = self.mac(text)?;
                if interface.mac == settings.router.mac {
                    let what = format!("{} is the router's MAC address", interface.mac);
                    return Err(self.error(text.span(), what, "choose another one, or leave it out"));
                }
            }
            let asked = NumberRequest { name: name.clone(), number: mac.map(|text| (text.span(), interface.mac)) };
            macs.entry(interface.network.clone()).or_default().push(asked);
            settings.interfaces.insert(name, interface);
        }
        for (node, mut asked) in labels {
            asked.extend(networks_of(&node, file, settings));
            self.distinguish(&node, &asked, settings)?;
            let labels = allot::numbers(&asked, FIRST_LABEL..=LAST_LABEL, &|name| self.draw("label", name)).map_err(
                |twice| {
                    let [one, other] = [twice.first, twice.second].map(|name| match name.strip_prefix(OF_NETWORK) {
                        Some(network) => format!("network '{network}'"),
                        None => format!("'{name}'"),
                    });
                    let what = format!("{one} and {other} of node '{node}' have one label, {}", twice.number);
                    self.error(twice.span, what, "give each its own, or leave it out")
                },
            )?;
            for (name, label) in labels {
                if let Some(network) = name.strip_prefix(OF_NETWORK) {
                    settings.on_node(&node, network).label = label;
                } else if let Some(interface) = settings.interfaces.get_mut(&name) {
                    interface.label = label;
                }
            }
        }
        for (network, asked) in macs {
            let macs = allot::macs(&asked, settings.router.mac).map_err(|twice| {
                let (one, other, mac) = (twice.first, twice.second, twice.number);
                let what = format!("'{one}' and '{other}' of network '{network}' have one MAC address, {mac}");
                self.error(twice.span, what, "give each its own, or leave it out")
            })?;
            for (name, mac) in macs {
                settings.interfaces.entry(name).and_modify(|interface| interface.mac = mac);
            }
        }
        Ok(())
    }

    /// It is no other interface's on its node, and no network's.
    fn own_vni(&self, vni: &Spanned<u32>, name: &str, interface: &Interface, settings: &Settings) -> Result<u32> {
        self.range(vni, "VXLAN network identifier", 1, LAST_VNI)?;
        let number = *vni.get_ref();
        let has_it = |(_, network): &(&String, &Network)| network.vni == number;
        let other = settings.networks.iter().find(has_it).map(|(network, _)| format!("network '{network}'"));
        let on_node = |(_, other): &(&String, &Interface)| other.node == interface.node && other.vni == Some(number);
        let other = other.or_else(|| settings.interfaces.iter().find(on_node).map(|(other, _)| format!("'{other}'")));
        if let Some(other) = other {
            let what = format!("{other} and '{name}' have one VXLAN network identifier, {number}");
            return Err(self.error(vni.span(), what, "give each its own, or leave it out"));
        }
        let (network, vxlan) = (settings.networks.get(&interface.network), Encapsulation::Vxlan);
        let node = settings.nodes.get(&interface.node);
        let does = network.is_some_and(|network| network.encapsulation.contains(&vxlan))
            && node.is_some_and(|node| node.encapsulations.contains(&vxlan));
        if !does {
            let what = format!(
                "'{name}' has a VXLAN network identifier, and network '{}' on node '{}' does no VXLAN",
                interface.network, interface.node
            );
            return Err(self.error(vni.span(), what, "leave it out, or add \"vxlan\" to the encapsulations"));
        }
        Ok(number)
    }

    fn interface(&self, file: &InterfaceFile, settings: &Settings) -> Result<Interface> {
        let analyser = |name| self.known("analyser", name, &self.names.analysers);
        let mirror = file.mirror.as_ref().map(analyser).transpose()?;
        let name = file.name.get_ref();
        let node = self.known("node", &file.node, &self.names.nodes)?;
        let network = self.known("network", &file.network, &self.names.networks)?;
        let device = file.device.as_ref().map(|device| self.device(device)).transpose()?;
        let inside = || device.clone().unwrap_or_else(|| "eth0".to_owned());
        let place = match (&file.namespace, &file.container, &device) {
            (Some(_), Some(container), _) => {
                let hint = "give its place once: 'namespace' or 'container'";
                return Err(self.error(container.span(), format!("'{name}' is at two places"), hint));
            }
            (Some(namespace), None, _) => {
                InterfaceLocation::Namespace { name: self.place(namespace)?, device: inside() }
            }
            (None, Some(container), _) => {
                InterfaceLocation::Container { name: self.place(container)?, device: inside() }
            }
            (None, None, Some(device)) => InterfaceLocation::Node { device: device.clone() },
            (None, None, None) => {
                let what = format!("where is interface '{name}'?");
                let hint = "set device = \"...\", the node's end of its veth pair; or namespace = \"...\" or container = \"...\"";
                return Err(self.error(file.name.span(), what, hint));
            }
        };
        if file.addresses.get_ref().is_empty() {
            let what = format!("interface '{name}' has no address");
            return Err(self.error(file.addresses.span(), what, "give at least one of its network's subnets"));
        }
        let mut security_groups = BTreeSet::new();
        for group in &file.security_groups {
            security_groups.insert(self.known("security group", group, &self.names.groups)?);
        }
        let most_flows = file.most_flows.or(settings.router.most_flows);
        Ok(Interface {
            node,
            network,
            place,
            addresses: BTreeSet::new(),
            allowed_addresses: BTreeSet::new(),
            mac: Mac::default(),
            any_mac: true,
            label: 0,
            vni: None,
            distinguisher: 0,
            security_groups,
            most_flows,
            mirror,
            fat_flows: self.fat_flows(&file.fat_flows)?,
            dhcp_server: file.dhcp_server,
        })
    }

    fn address(&self, text: &Spanned<String>, network: &str, settings: &Settings) -> Result<IpAddr> {
        let subnets = settings.networks.get(network).map_or(&[][..], |network| &network.subnets);
        let Ok(address) = text.get_ref().parse::<IpAddr>() else {
            let what = format!("'{}' is not an IP address", text.get_ref());
            return Err(self.error(text.span(), what, "write 10.1.0.11 or fd00:1::11, without a prefix length"));
        };
        let all = || subnets.iter().map(|subnet| subnet.prefix.to_string()).collect::<Vec<_>>().join(", ");
        let Some(subnet) = subnets.iter().find(|subnet| subnet.prefix.contains(&address)) else {
            let what = format!("{address} is in no subnet of network '{network}'");
            return Err(self.error(text.span(), what, format!("choose one of {}", all())));
        };
        if address == subnet.gateway {
            let what = format!("{address} is the gateway of network '{network}'");
            return Err(self.error(text.span(), what, format!("choose another one of {}", subnet.prefix)));
        }
        if !is_host(subnet.prefix, address) {
            let what = format!("{address} names no host of {}", subnet.prefix);
            return Err(self.error(text.span(), what, format!("choose another one of {}", subnet.prefix)));
        }
        Ok(address)
    }
}

impl Settings {
    pub(super) fn on_node(&mut self, node: &str, network: &str) -> &mut NodeNetworkIds {
        self.on_nodes.entry(node.to_owned()).or_default().entry(network.to_owned()).or_default()
    }
}

/// Networks that a node has interfaces of and takes frames to all of, behind these: so what is drawn for an interface is no network's
/// to take.
fn networks_of(node: &str, file: &File, settings: &Settings) -> Vec<NumberRequest<u32>> {
    let here: BTreeSet<&String> = settings.interfaces_of(node).map(|(_, interface)| &interface.network).collect();
    let floods = |name: &String| settings.networks.get(name).is_some_and(|network| network.broadcast);
    let is_asked = |network: &&NetworkFile| here.contains(network.name.get_ref()) && floods(network.name.get_ref());
    let networks = file.network.iter().map(Spanned::get_ref).filter(is_asked);
    let asked = |network: &NetworkFile| NumberRequest {
        name: format!("{OF_NETWORK}{}", network.name.get_ref()),
        number: asked_number(network.label.as_ref()),
    };
    networks.map(asked).collect()
}
