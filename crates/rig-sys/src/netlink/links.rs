//! Links as they are: numbers, addresses, and what is at the other end of a veth pair.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use netlink_packet_core::NLM_F_REQUEST;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
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
        };
        let (mut far, mut namespace) = (None, None);
        for attribute in &message.attributes {
            match attribute {
                LinkAttribute::IfName(name) => link.name.clone_from(name),
                LinkAttribute::Address(address) => link.mac = address.as_slice().try_into().ok(),
                LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
                LinkAttribute::Link(index) => far = Some(*index),
                LinkAttribute::LinkNetNsId(number) => namespace = Some(*number),
                _ => {}
            }
        }
        link.far = far.map(|index| PeerLink { index, namespace });
        link
    }
}

impl Netlink {
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
