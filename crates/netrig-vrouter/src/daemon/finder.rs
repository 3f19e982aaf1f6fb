//! What the node's kernel has: containers' interfaces, and the ways to other nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::time::{Duration, Instant};

use rig_datapath::vrouter::Peer;
use rig_sys::netlink::{Link, Netlink, PeerLink};
use rig_sys::netns::NetNs;
use rig_wire::ethernet::Mac;

use super::engines;
use crate::compile::{KernelInterface, Site};
use crate::settings::{Interface, InterfaceLocation, Settings};

/// Where ip-netns(8) has its namespaces.
const NAMESPACES: &str = "/run/netns";
/// A container engine is not asked more often for a container that it does not have.
const REST: Duration = Duration::from_secs(5);

/// Looks at the network namespace that it was made in.
#[derive(Debug)]
pub(crate) struct Finder {
    netlink: Netlink,
    own: NetNs,
    /// Node's ends of interfaces that are inside of something, by their names in the settings.
    inside: BTreeMap<String, VethEnd>,
    /// When a container engine was asked in vain, and why it was.
    asked: BTreeMap<String, (Instant, String)>,
}

/// The node's end of a veth pair, and what was found at the other one.
#[derive(Debug, Clone, PartialEq, Eq)]
struct VethEnd {
    place: InterfaceLocation,
    index: u32,
    far: Option<PeerLink>,
    mac: Option<Mac>,
}

/// What there is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FoundDevices {
    pub(crate) site: Site,
    /// Names of the node's ends, by the names of interfaces in the settings.
    pub(crate) devices: BTreeMap<String, String>,
    /// Names of the devices that peers are reached by.
    pub(crate) ways: BTreeMap<Ipv4Addr, String>,
}

impl FoundDevices {
    /// Whether it is worthwhile to look again although nothing has happened in this namespace.
    pub(crate) fn lacks_something(&self) -> bool {
        !self.site.missing.is_empty() || !self.site.unreached.is_empty()
    }
}

impl Finder {
    pub(crate) fn here() -> rig_sys::Result<Self> {
        let (netlink, own) = (Netlink::here()?, NetNs::of_current_thread()?);
        Ok(Self { netlink, own, inside: BTreeMap::new(), asked: BTreeMap::new() })
    }

    /// The next time all is looked up anew.
    pub(crate) fn forget(&mut self) {
        self.asked.clear();
        self.inside.clear();
    }

    /// All that the settings name of a node, which this machine is taken for, and the ways to its own and `more` routers.
    pub(crate) fn look(&mut self, settings: &Settings, name: &str, more: &BTreeSet<Ipv4Addr>) -> FoundDevices {
        let mut found = FoundDevices::default();
        let Some(node) = settings.nodes.get(name) else { return found };
        for (interface_name, interface) in settings.interfaces_of(name) {
            match self.interface(interface_name, interface) {
                Ok((link, mac)) => {
                    let there = KernelInterface { index: link.index, mac };
                    found.site.interfaces.insert(interface_name.clone(), there);
                    found.devices.insert(interface_name.clone(), link.name);
                }
                Err(why) => drop(found.site.missing.insert(interface_name.clone(), why)),
            }
        }
        let names: BTreeSet<&str> = settings.interfaces_of(name).map(|(name, _)| name.as_str()).collect();
        self.inside.retain(|name, _| names.contains(name.as_str()));
        self.asked.retain(|name, _| names.contains(name.as_str()));
        let others: BTreeSet<Ipv4Addr> = settings.nodes.values().map(|other| other.address).collect();
        for address in (&others | more).into_iter().filter(|other| *other != node.address) {
            match self.way(node.interface.as_deref(), address) {
                Ok((peer, device)) => {
                    found.site.peers.insert(address, peer);
                    found.ways.insert(address, device);
                }
                Err(why) => drop(found.site.unreached.insert(address, why)),
            }
        }
        let has_peers = !found.site.peers.is_empty();
        for address in settings.analysers.values().map(|analyser| analyser.address) {
            if found.site.peers.contains_key(&address) {
                continue;
            }
            match self.way(None, address) {
                Ok((peer, device)) => {
                    found.site.peers.insert(address, peer);
                    found.ways.insert(address, device);
                }
                Err(why) => drop(found.site.unreached.insert(address, why)),
            }
        }
        if has_peers && !self.has(node.address) {
            found.site.notes.insert(format!(
                "{} is not an address of this machine: other nodes do not reach it there",
                node.address
            ));
        }
        found
    }

    /// The node's end, and the container's MAC address where it is known.
    fn interface(&mut self, name: &str, interface: &Interface) -> Result<(Link, Option<Mac>), String> {
        if let InterfaceLocation::Node { device } = &interface.place {
            let link = self.netlink.link(device).map_err(|_| format!("there is no device {device}"))?;
            return Ok((link, None));
        }
        // A pair stays as long as both of its ends, so the one here tells of the other.
        if let Some(near) = self.inside.get(name).filter(|near| near.place == interface.place)
            && let Ok(link) = self.netlink.link_at(near.index)
            && link.far == near.far
        {
            return Ok((link, near.mac));
        }
        self.inside.remove(name);
        if let Some((_, why)) = self.asked.get(name).filter(|(at, _)| at.elapsed() < REST) {
            return Err(why.clone());
        }
        let (link, mac) = self.peer_of(&interface.place).inspect_err(|why| {
            if matches!(interface.place, InterfaceLocation::Container { .. }) {
                self.asked.insert(name.to_owned(), (Instant::now(), why.clone()));
            }
        })?;
        self.asked.remove(name);
        let near = VethEnd { place: interface.place.clone(), index: link.index, far: link.far, mac };
        self.inside.insert(name.to_owned(), near);
        Ok((link, mac))
    }

    /// The end in this namespace of a pair whose other end is somewhere else.
    fn peer_of(&self, place: &InterfaceLocation) -> Result<(Link, Option<Mac>), String> {
        let (what, namespace, device) = match place {
            // Looked up by name.
            InterfaceLocation::Node { device } => return Err(format!("there is no device {device}")),
            InterfaceLocation::Namespace { name, device } => {
                let namespace = NetNs::open(Path::new(NAMESPACES).join(name));
                (
                    format!("namespace '{name}'"),
                    namespace.map_err(|_| format!("there is no namespace '{name}'"))?,
                    device,
                )
            }
            InterfaceLocation::Container { name, device } => {
                let process = engines::process_of(name)?;
                let namespace = NetNs::open(format!("/proc/{process}/ns/net"));
                let namespace = namespace.map_err(|_| format!("container '{name}' has just ended"))?;
                (format!("container '{name}'"), namespace, device)
            }
        };
        let inside = Netlink::open(&namespace).map_err(|error| format!("{what} cannot be entered: {error}"))?;
        let end = inside.link(device).map_err(|_| format!("{what} has no device {device}"))?;
        let elsewhere = || format!("the other end of {what}'s {device} is not in this network namespace");
        let far = end.far.ok_or_else(|| format!("{what}'s {device} is not a veth"))?;
        let here = inside.namespace_number(&self.own).map_err(|error| error.to_string())?;
        if far.namespace.is_none() || far.namespace != here {
            return Err(elsewhere());
        }
        let link = self.netlink.link_at(far.index).map_err(|_| elsewhere())?;
        Ok((link, end.mac.map(Mac)))
    }

    /// How another node or an analyser is reached, and by which device.
    fn way(&self, asked: Option<&str>, to: Ipv4Addr) -> Result<(Peer, String), String> {
        let hops = self.netlink.next_hops(to.into()).map_err(|_| "there is no route".to_owned())?;
        if hops.is_empty() {
            return Err("it is an address of this machine".to_owned());
        }
        let link = |index| self.netlink.link_at(index).map_err(|error| error.to_string());
        let mut over = Vec::new();
        for hop in hops {
            let link = link(hop.interface)?;
            if asked.is_some_and(|asked| asked != link.name) {
                over.push(link.name);
                continue;
            }
            let IpAddr::V4(gateway) = hop.address else { return Err("the next hop is one of IPv6".to_owned()) };
            let mtu = link.mtu.min(u16::MAX.into()) as u16;
            return Ok((Peer { interface: link.index, gateway, mtu }, link.name));
        }
        let asked = asked.unwrap_or_default();
        Err(format!("the route goes over {}, and not over {asked}", over.join(", ")))
    }

    fn has(&self, address: Ipv4Addr) -> bool {
        self.netlink.next_hops(address.into()).is_ok_and(|hops| hops.is_empty())
    }
}
