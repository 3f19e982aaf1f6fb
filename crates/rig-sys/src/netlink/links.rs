//! Links as they are: numbers, addresses, and what is at the other end of a veth pair.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use netlink_packet_core::NLM_F_REQUEST;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    InfoData, InfoVlan, LinkAttribute, LinkFlags, LinkInfo, LinkLayerType, LinkMessage, LinkXdp, VlanProtocol,
    XdpAttached,
};
use netlink_packet_route::nsid::{NsidAttribute, NsidMessage};

use super::Netlink;
use crate::error::{Error, ErrorContext, Result};
use crate::netns::NetNs;

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    pub index: u32,
    pub name: String,
    /// None of what is no Ethernet.
    pub mac: Option<[u8; 6]>,
    /// Bytes.
    pub mtu: u32,
    /// It is set up and has a carrier.
    pub up: bool,
    /// Packets go out by it without the neighbour's link-layer address: there is one neighbour at most, or none has an address.
    pub without_neighbors: bool,
    pub far: Option<PeerLink>,
    /// It was set up, whether it has a carrier or not.
    pub is_set_up: bool,
    pub is_ethernet: bool,
    /// As `ip link add` calls it, e.g. `veth`; none of hardware.
    pub kind: Option<String>,
    /// Of a VLAN device, which is on the link that is its `far`.
    pub vlan: Option<Vlan>,
    /// The number of the bridge or bond that it is a port of.
    pub controller: Option<u32>,
    /// The hardware address that it was made with, where that is not chosen anew each time.
    pub permanent_mac: Option<[u8; 6]>,
    /// The kind of its queueing discipline.
    pub qdisc: Option<String>,
    /// An XDP program is on it.
    pub has_xdp: bool,
    /// The kernel says that it cannot go to another namespace; one before Linux 6.12 says nothing.
    pub is_immovable: bool,
}

/// The tag that a VLAN device's frames have on the link that it is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vlan {
    pub id: u16,
    /// It is one of 802.1Q, and not a provider's, of 802.1ad.
    pub is_8021q: bool,
}

impl Vlan {
    fn of(data: &[InfoVlan]) -> Option<Self> {
        let id = data.iter().find_map(|said| if let InfoVlan::Id(id) = said { Some(*id) } else { None })?;
        let other =
            |said: &InfoVlan| matches!(said, InfoVlan::Protocol(protocol) if *protocol != VlanProtocol::Ieee8021Q);
        Some(Self { id, is_8021q: !data.iter().any(other) })
    }
}

/// The link that another one leads to: the other end of a veth pair, or what a virtual link stands on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerLink {
    pub index: u32,
    /// The number that the link's namespace has for the other one's ([`Netlink::namespace_number`]); none for the same namespace.
    pub namespace: Option<i32>,
}

impl Link {
    fn of(message: &LinkMessage) -> Self {
        let flags = message.header.flags;
        let mut link = Self {
            index: message.header.index,
            name: String::new(),
            mac: None,
            mtu: 0,
            up: flags.contains(LinkFlags::Up | LinkFlags::LowerUp),
            without_neighbors: flags.intersects(LinkFlags::Noarp | LinkFlags::Pointopoint | LinkFlags::Loopback),
            far: None,
            is_set_up: flags.contains(LinkFlags::Up),
            is_ethernet: message.header.link_layer_type == LinkLayerType::Ether,
            kind: None,
            vlan: None,
            controller: None,
            permanent_mac: None,
            qdisc: None,
            has_xdp: false,
            is_immovable: false,
        };
        let (mut far, mut namespace) = (None, None);
        for attribute in &message.attributes {
            match attribute {
                LinkAttribute::IfName(name) => link.name.clone_from(name),
                LinkAttribute::Address(address) => link.mac = address.as_slice().try_into().ok(),
                LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
                LinkAttribute::Link(index) => far = Some(*index),
                LinkAttribute::LinkNetNsId(number) => namespace = Some(*number),
                LinkAttribute::Controller(index) => link.controller = Some(*index),
                LinkAttribute::PermAddress(address) => link.permanent_mac = address.as_slice().try_into().ok(),
                LinkAttribute::Qdisc(kind) => link.qdisc = Some(kind.clone()),
                LinkAttribute::NetnsImmutable(is_immovable) => link.is_immovable = *is_immovable,
                LinkAttribute::LinkInfo(infos) => {
                    link.kind = infos.iter().find_map(|info| match info {
                        LinkInfo::Kind(kind) => Some(kind.to_string()),
                        _ => None,
                    });
                    link.vlan = infos.iter().find_map(|info| match info {
                        LinkInfo::Data(InfoData::Vlan(data)) => Vlan::of(data),
                        _ => None,
                    });
                }
                LinkAttribute::Xdp(xdp) => {
                    link.has_xdp = xdp
                        .iter()
                        .any(|own| matches!(own, LinkXdp::Attached(attached) if *attached != XdpAttached::None));
                }
                _ => {}
            }
        }
        link.far = far.map(|index| PeerLink { index, namespace });
        link
    }
}

impl Netlink {
    /// Removes a virtual interface. It is gone when this returns, whereas one whose namespace goes may stay for a moment.
    pub fn remove_link(&mut self, name: &str) -> Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = self.index(name)?;
        self.request(RouteNetlinkMessage::DelLink(message), 0).during(|| format!("remove {name}"))
    }

    /// All interfaces of the namespace, in the order of their numbers.
    pub fn links(&self) -> Result<Vec<Link>> {
        let all = self.dump(RouteNetlinkMessage::GetLink(LinkMessage::default()));
        let all = all.during(|| "list interfaces".into())?;
        let mut links: Vec<Link> = all
            .iter()
            .filter_map(|message| match message {
                RouteNetlinkMessage::NewLink(message) => Some(Link::of(message)),
                _ => None,
            })
            .collect();
        links.sort_by_key(|link| link.index);
        Ok(links)
    }

    pub fn set_down(&mut self, name: &str) -> Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = self.index(name)?;
        message.header.change_mask = LinkFlags::Up;
        self.request(RouteNetlinkMessage::SetLink(message), 0).during(|| format!("set {name} down"))
    }

    pub fn set_mtu(&mut self, name: &str, mtu: u32) -> Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = self.index(name)?;
        message.attributes.push(LinkAttribute::Mtu(mtu));
        self.request(RouteNetlinkMessage::SetLink(message), 0).during(|| format!("set the MTU of {name} to {mtu}"))
    }

    /// Gives an interface that is down another name.
    pub fn rename(&mut self, name: &str, to: &str) -> Result<()> {
        let mut message = super::link(to);
        message.header.index = self.index(name)?;
        self.request(RouteNetlinkMessage::SetLink(message), 0).during(|| format!("rename {name} to {to}"))
    }

    /// Takes the XDP program off an interface, whoever has put it there; not one that a BPF link holds.
    pub fn take_xdp_off(&mut self, name: &str) -> Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = self.index(name)?;
        message.attributes.push(LinkAttribute::Xdp(vec![LinkXdp::Fd(-1)]));
        self.request(RouteNetlinkMessage::SetLink(message), 0).during(|| format!("take the XDP program off {name}"))
    }

    /// Moves an interface to another namespace, where it is down, has `new_name` and nothing of what it had here beside its hardware address
    /// and settings of its device: no addresses, routes, queueing discipline or sysctls. It keeps its number, or gets `new_index`,
    /// where that is free there; otherwise the kernel gives it another one.
    pub fn move_to(&mut self, name: &str, ns: &NetNs, new_name: &str, new_index: Option<u32>) -> Result<()> {
        let index = self.index(name)?;
        let request = |number: Option<u32>| {
            let mut message = super::link(new_name);
            message.header.index = index;
            message.attributes.push(LinkAttribute::NetNsFd(ns.raw_fd()));
            message.attributes.extend(number.map(|number| LinkAttribute::NewIfIndex(number as i32)));
            self.request(RouteNetlinkMessage::SetLink(message), 0)
        };
        let moved = match new_index.filter(|number| *number != index) {
            // Another interface has the number there, or the kernel cannot choose one (before Linux 5.13).
            Some(number) => request(Some(number)).or_else(|_| request(None)),
            None => request(None),
        };
        moved.during(|| format!("move {name} to another namespace as {new_name}"))
    }

    pub fn link(&self, name: &str) -> Result<Link> {
        Ok(Link::of(&self.get(name)?))
    }

    /// The interface with this number.
    pub fn link_at(&self, index: u32) -> Result<Link> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        let doing = || format!("look up interface {index}");
        match self.exchange(RouteNetlinkMessage::GetLink(message), NLM_F_REQUEST).during(doing)? {
            Some(RouteNetlinkMessage::NewLink(message)) => Ok(Link::of(&message)),
            _ => Err(Error::new(doing(), io::Error::other("no such answer"))),
        }
    }

    /// The number that this namespace has for another one, where it has one: links into it get one when they are told of
    /// (`RTM_GETNSID`).
    pub fn namespace_number(&self, other: &NetNs) -> Result<Option<i32>> {
        let doing = || "look up the number of a network namespace".to_owned();
        let mut message = NsidMessage::default();
        message.attributes.push(NsidAttribute::Fd(other.as_fd().as_raw_fd() as u32));
        match self.exchange(RouteNetlinkMessage::GetNsId(message), NLM_F_REQUEST).during(doing)? {
            Some(RouteNetlinkMessage::NewNsId(answer)) => {
                Ok(answer.attributes.iter().find_map(|attribute| match attribute {
                    NsidAttribute::Id(number) if *number >= 0 => Some(*number),
                    _ => None,
                }))
            }
            _ => Err(Error::new(doing(), io::Error::other("no such answer"))),
        }
    }
}
