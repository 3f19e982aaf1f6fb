//! What an interface has, read so that it can be given to it again: addresses, routes and permanent neighbours, each as the kernel
//! tells it, without what the kernel alone decides. A record that named the parts it knows would lose the others.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::net::IpAddr;

use netlink_packet_core::{Emitable, NLM_F_APPEND, NLM_F_CREATE, NLM_F_REPLACE, Parseable};
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage, AddressScope};
use netlink_packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteVia,
};
use netlink_packet_route::tc::TcMessage;
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use serde::{Deserialize, Serialize};

use super::Netlink;
use crate::error::{ErrorContext, Result};

/// An address of an interface.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct InterfaceAddress(AddressMessage);

/// A route that goes out by an interface.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct InterfaceRoute(RouteMessage);

/// A neighbour whose link-layer address is written down.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct InterfaceNeighbor(NeighbourMessage);

/// Flags of an address that those who add it choose (linux/if_addr.h).
const CHOSEN: AddressFlags = AddressFlags::Nodad
    .union(AddressFlags::Homeaddress)
    .union(AddressFlags::Managetempaddr)
    .union(AddressFlags::Noprefixroute)
    .union(AddressFlags::Mcautojoin);

/// `RT_TABLE_LOCAL`, which the kernel fills by itself.
const LOCAL_TABLE: u32 = 255;

/// Of the times in `struct rta_cacheinfo`, a second.
const USER_HZ: u32 = 100;

impl InterfaceAddress {
    fn of(mut message: AddressMessage) -> Self {
        // The kernel makes a temporary one of another address, and it is told by this flag alone.
        let temporary = match message.header.family {
            AddressFamily::Inet6 => AddressHeaderFlags::Secondary & message.header.flags,
            _ => AddressHeaderFlags::empty(),
        };
        message.header.flags = temporary;
        message.attributes.retain_mut(|attribute| match attribute {
            AddressAttribute::Flags(flags) => {
                *flags &= CHOSEN;
                !flags.is_empty()
            }
            AddressAttribute::CacheInfo(life) => {
                (life.cstamp, life.tstamp) = (0, 0);
                life.ifa_valid != u32::MAX || life.ifa_preferred != u32::MAX
            }
            AddressAttribute::TargetNetNsId(_) => false,
            _ => true,
        });
        Self(message)
    }

    /// The number of the interface that has it.
    pub fn interface(&self) -> u32 {
        self.0.header.index
    }

    /// The interface's own address; a peer's is another one.
    pub fn address(&self) -> Option<IpAddr> {
        let (mut local, mut other) = (None, None);
        for attribute in &self.0.attributes {
            match attribute {
                AddressAttribute::Local(address) => local = Some(*address),
                AddressAttribute::Address(address) => other = Some(*address),
                _ => {}
            }
        }
        local.or(other)
    }

    pub fn prefix(&self) -> u8 {
        self.0.header.prefix_len
    }

    /// It holds on the link alone.
    pub fn is_of_link(&self) -> bool {
        self.0.header.scope == AddressScope::Link
    }

    /// No route to its prefix was made with it.
    pub fn is_without_route(&self) -> bool {
        self.flags().contains(AddressFlags::Noprefixroute)
    }

    /// It ends by itself.
    pub fn is_leased(&self) -> bool {
        self.0.attributes.iter().any(|attribute| matches!(attribute, AddressAttribute::CacheInfo(_)))
    }

    /// The kernel has made it of another address, and will again (RFC 8981).
    pub fn is_temporary(&self) -> bool {
        self.0.header.flags.contains(AddressHeaderFlags::Secondary)
    }

    /// Whether they differ by nothing but the time that they have left, and the interface's number.
    pub fn is_like(&self, other: &Self) -> bool {
        let lasting = |own: &Self| {
            let mut message = own.0.clone();
            message.header.index = 0;
            message.attributes.retain(|attribute| !matches!(attribute, AddressAttribute::CacheInfo(_)));
            message
        };
        lasting(self) == lasting(other)
    }

    fn flags(&self) -> AddressFlags {
        let flags = self.0.attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Flags(flags) => Some(*flags),
            _ => None,
        });
        flags.unwrap_or(AddressFlags::empty())
    }
}

impl InterfaceRoute {
    fn of(mut message: RouteMessage) -> Self {
        message.header.flags &= RouteFlags::Onlink;
        let ends = message.attributes.iter().find_map(|attribute| match attribute {
            RouteAttribute::CacheInfo(info) if info.expires > 0 => Some(info.expires / USER_HZ),
            _ => None,
        });
        message.attributes.retain(|own| !matches!(own, RouteAttribute::CacheInfo(_) | RouteAttribute::Iif(_)));
        message.attributes.extend(ends.map(RouteAttribute::Expires));
        Self(message)
    }

    /// Where it leads; without an address to everywhere.
    pub fn destination(&self) -> (Option<IpAddr>, u8) {
        let address = self.0.attributes.iter().find_map(|attribute| match attribute {
            RouteAttribute::Destination(address) => ip(address),
            _ => None,
        });
        (address, self.0.header.destination_prefix_length)
    }

    pub fn is_default(&self) -> bool {
        self.0.header.destination_prefix_length == 0
    }

    pub fn gateway(&self) -> Option<IpAddr> {
        self.0.attributes.iter().find_map(|attribute| match attribute {
            RouteAttribute::Gateway(address) => ip(address),
            RouteAttribute::Via(RouteVia::Inet(address)) => Some((*address).into()),
            RouteAttribute::Via(RouteVia::Inet6(address)) => Some((*address).into()),
            _ => None,
        })
    }

    /// The address that packets have that no socket has chosen one for.
    pub fn source(&self) -> Option<IpAddr> {
        self.0.attributes.iter().find_map(|attribute| match attribute {
            RouteAttribute::PrefSource(address) => ip(address),
            _ => None,
        })
    }

    pub fn metric(&self) -> u32 {
        let metric = self.0.attributes.iter().find_map(|attribute| match attribute {
            RouteAttribute::Priority(metric) => Some(*metric),
            _ => None,
        });
        metric.unwrap_or(0)
    }

    pub fn table(&self) -> u32 {
        let table = self.0.attributes.iter().find_map(|attribute| match attribute {
            RouteAttribute::Table(table) => Some(*table),
            _ => None,
        });
        table.unwrap_or(self.0.header.table.into())
    }

    pub fn is_of_main_table(&self) -> bool {
        self.table() == RouteHeader::RT_TABLE_MAIN.into()
    }

    pub fn protocol(&self) -> RouteProtocol {
        self.0.header.protocol
    }

    pub fn scope(&self) -> RouteScope {
        self.0.header.scope
    }

    /// Other interfaces have a part of it, or it was made of a next hop that others may have, too.
    pub fn is_shared(&self) -> bool {
        let mut attributes = self.0.attributes.iter();
        attributes.any(|own| matches!(own, RouteAttribute::MultiPath(_) | RouteAttribute::NhId(_)))
    }

    /// The kernel made it, with an address or an interface that came up.
    pub fn is_of_kernel(&self) -> bool {
        self.protocol() == RouteProtocol::Kernel
    }

    /// It ends by itself.
    pub fn is_leased(&self) -> bool {
        self.0.attributes.iter().any(|own| matches!(own, RouteAttribute::Expires(_)))
    }

    /// Whether they differ by nothing but the time that they have left, and the interface's number.
    pub fn is_like(&self, other: &Self) -> bool {
        let lasting = |own: &Self| {
            let mut message = own.0.clone();
            let fleeting = |own: &RouteAttribute| matches!(own, RouteAttribute::Expires(_) | RouteAttribute::Oif(_));
            message.attributes.retain(|own| !fleeting(own));
            message
        };
        lasting(self) == lasting(other)
    }

    pub fn goes_out_by(&self, index: u32) -> bool {
        self.0.attributes.iter().any(|attribute| match attribute {
            RouteAttribute::Oif(own) => *own == index,
            RouteAttribute::MultiPath(hops) => hops.iter().any(|hop| hop.interface_index == index),
            _ => false,
        })
    }

    fn by(&self, index: u32) -> RouteMessage {
        let mut message = self.0.clone();
        for attribute in &mut message.attributes {
            if let RouteAttribute::Oif(own) = attribute {
                *own = index;
            }
        }
        message
    }
}

impl InterfaceNeighbor {
    fn of(mut message: NeighbourMessage) -> Self {
        message.attributes.retain(|own| {
            matches!(
                own,
                NeighbourAttribute::Destination(_)
                    | NeighbourAttribute::LinkLayerAddress(_)
                    | NeighbourAttribute::Protocol(_)
            )
        });
        Self(message)
    }

    fn by(&self, index: u32) -> NeighbourMessage {
        let mut message = self.0.clone();
        message.header.ifindex = index;
        message
    }

    pub fn is_like(&self, other: &Self) -> bool {
        self.by(0) == other.by(0)
    }
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}

/// Why text is no record of one of them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not what the kernel says of an interface: {0}")]
pub struct NotRecorded(String);

/// Each is kept as the digits of the kernel's message.
macro_rules! kept_as_digits {
    ($own:ident, $message:ident) => {
        impl From<$own> for String {
            fn from(own: $own) -> Self {
                let mut bytes = vec![0; own.0.buffer_len()];
                own.0.emit(&mut bytes);
                bytes.iter().map(|byte| format!("{byte:02x}")).collect()
            }
        }

        impl TryFrom<String> for $own {
            type Error = NotRecorded;

            fn try_from(text: String) -> Result<Self, NotRecorded> {
                $message::parse(&bytes_of(&text)?[..]).map(Self).map_err(|error| NotRecorded(error.to_string()))
            }
        }

        impl fmt::Debug for $own {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({self})", stringify!($own))
            }
        }
    };
}

kept_as_digits!(InterfaceAddress, AddressMessage);
kept_as_digits!(InterfaceRoute, RouteMessage);
kept_as_digits!(InterfaceNeighbor, NeighbourMessage);

fn bytes_of(text: &str) -> Result<Vec<u8>, NotRecorded> {
    /// The shortest of the headers. The parser takes what is longer apart itself.
    const SHORTEST: usize = 12;
    let digits: Option<Vec<u8>> = text.chars().map(|digit| digit.to_digit(16).map(|value| value as u8)).collect();
    let bytes: Option<Vec<u8>> = digits
        .filter(|digits| digits.len() % 2 == 0)
        .map(|digits| digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect());
    bytes.filter(|bytes| bytes.len() >= SHORTEST).ok_or_else(|| NotRecorded(text.to_owned()))
}

impl fmt::Display for InterfaceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address() {
            Some(address) => write!(f, "{address}/{}", self.prefix()),
            None => f.write_str("an address of another family"),
        }
    }
}

impl fmt::Display for InterfaceRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.destination() {
            (_, 0) => f.write_str("default")?,
            (Some(address), prefix) => write!(f, "{address}/{prefix}")?,
            (None, prefix) => write!(f, "?/{prefix}")?,
        }
        self.gateway().map_or(Ok(()), |gateway| write!(f, " via {gateway}"))?;
        match self.table() {
            table if table == u32::from(RouteHeader::RT_TABLE_MAIN) => Ok(()),
            table => write!(f, " of table {table}"),
        }
    }
}

impl fmt::Display for InterfaceNeighbor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = self.0.attributes.iter().find_map(|attribute| match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(address)) => Some(IpAddr::from(*address)),
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(address)) => Some(IpAddr::from(*address)),
            _ => None,
        });
        match address {
            Some(address) => address.fmt(f),
            None => f.write_str("a neighbour of another family"),
        }
    }
}

impl Netlink {
    /// The addresses of all interfaces, in the kernel's order, in which they can be added again.
    pub fn addresses(&self) -> Result<Vec<InterfaceAddress>> {
        let all = self.dump(RouteNetlinkMessage::GetAddress(AddressMessage::default()));
        let own = |message| match message {
            RouteNetlinkMessage::NewAddress(address) => Some(InterfaceAddress::of(address)),
            _ => None,
        };
        Ok(all.during(|| "list the addresses of interfaces".into())?.into_iter().filter_map(own).collect())
    }

    /// Those of one interface.
    pub fn addresses_of(&self, index: u32) -> Result<Vec<InterfaceAddress>> {
        let mut addresses = self.addresses()?;
        addresses.retain(|address| address.interface() == index);
        Ok(addresses)
    }

    /// The routes of all tables, but for those that the kernel keeps for its own addresses.
    pub fn routes(&self) -> Result<Vec<InterfaceRoute>> {
        let mut routes = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut request = RouteMessage::default();
            request.header.address_family = family;
            let all = self.dump(RouteNetlinkMessage::GetRoute(request));
            let own = |message| match message {
                RouteNetlinkMessage::NewRoute(route) if !route.header.flags.contains(RouteFlags::Cloned) => {
                    Some(InterfaceRoute::of(route))
                }
                _ => None,
            };
            let all = all.during(|| "list routes".into())?.into_iter().filter_map(own);
            routes.extend(all.filter(|route| route.table() != LOCAL_TABLE));
        }
        Ok(routes)
    }

    /// Those that go out by an interface.
    pub fn routes_by(&self, index: u32) -> Result<Vec<InterfaceRoute>> {
        let mut routes = self.routes()?;
        routes.retain(|route| route.goes_out_by(index));
        Ok(routes)
    }

    /// The permanent neighbours of an interface.
    pub fn permanent_neighbors(&self, index: u32) -> Result<Vec<InterfaceNeighbor>> {
        let mut neighbors = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut request = NeighbourMessage::default();
            request.header.family = family;
            let all = self.dump(RouteNetlinkMessage::GetNeighbour(request));
            let own = |message| match message {
                RouteNetlinkMessage::NewNeighbour(own)
                    if own.header.ifindex == index && own.header.state == NeighbourState::Permanent =>
                {
                    Some(own)
                }
                _ => None,
            };
            let all = all.during(|| format!("list the neighbours of interface {index}"))?;
            neighbors.extend(all.into_iter().filter_map(own).map(InterfaceNeighbor::of));
        }
        Ok(neighbors)
    }

    /// The numbers of the interfaces that somebody has given a queueing discipline, or filters of what comes: those that the kernel gives
    /// by itself have no number.
    pub fn with_chosen_qdisc(&self) -> Result<BTreeSet<u32>> {
        let all = self.dump(RouteNetlinkMessage::GetQueueDiscipline(TcMessage::default()));
        let chosen = |message| match message {
            RouteNetlinkMessage::NewQueueDiscipline(own) if own.header.handle.major != 0 => {
                u32::try_from(own.header.index).ok()
            }
            _ => None,
        };
        Ok(all.during(|| "list queueing disciplines".into())?.into_iter().filter_map(chosen).collect())
    }

    /// Gives an interface an address that one had; one that is there already gets its times.
    pub fn put_address(&mut self, index: u32, address: &InterfaceAddress) -> Result<()> {
        let mut message = address.0.clone();
        message.header.index = index;
        self.request(RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE | NLM_F_REPLACE)
            .during(|| format!("add address {address} to interface {index}"))
    }

    /// One that is gone already, as a second address is with the first of its prefix, is no failure.
    pub fn remove_address(&mut self, index: u32, address: &InterfaceAddress) -> Result<()> {
        let mut message = address.0.clone();
        message.header.index = index;
        match self.request(RouteNetlinkMessage::DelAddress(message), 0) {
            Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => Ok(()),
            outcome => outcome.during(|| format!("remove address {address} of interface {index}")),
        }
    }

    /// Adds a route that there was, beside those to the same destination by other interfaces. One that is there is no failure.
    pub fn put_route(&mut self, index: u32, route: &InterfaceRoute) -> Result<()> {
        let flags = match route.0.header.address_family {
            AddressFamily::Inet => NLM_F_CREATE | NLM_F_APPEND,
            _ => NLM_F_CREATE,
        };
        match self.request(RouteNetlinkMessage::NewRoute(route.by(index)), flags) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            outcome => outcome.during(|| format!("add route {route} by interface {index}")),
        }
    }

    pub fn remove_route(&mut self, index: u32, route: &InterfaceRoute) -> Result<()> {
        const ESRCH: i32 = 3;
        match self.request(RouteNetlinkMessage::DelRoute(route.by(index)), 0) {
            Err(error) if error.raw_os_error() == Some(ESRCH) => Ok(()),
            outcome => outcome.during(|| format!("remove route {route} by interface {index}")),
        }
    }

    pub fn put_permanent_neighbor(&mut self, index: u32, neighbor: &InterfaceNeighbor) -> Result<()> {
        self.request(RouteNetlinkMessage::NewNeighbour(neighbor.by(index)), NLM_F_CREATE | NLM_F_REPLACE)
            .during(|| format!("add neighbour {neighbor} of interface {index}"))
    }

    pub fn remove_permanent_neighbor(&mut self, index: u32, neighbor: &InterfaceNeighbor) -> Result<()> {
        match self.request(RouteNetlinkMessage::DelNeighbour(neighbor.by(index)), 0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            outcome => outcome.during(|| format!("remove neighbour {neighbor} of interface {index}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_is_no_record_is_refused() {
        for text in ["", "zz", "0", "0a", "00000000000000000000000000000", "äöü0000000000000000000000000000"] {
            assert!(InterfaceAddress::try_from(text.to_owned()).is_err(), "{text}");
            assert!(InterfaceRoute::try_from(text.to_owned()).is_err(), "{text}");
            assert!(InterfaceNeighbor::try_from(text.to_owned()).is_err(), "{text}");
        }
    }
}
