//! Next hops: which ones the routes have, and what keeps their link-layer addresses fresh.

use std::io;
use std::net::IpAddr;

use netlink_packet_core::{
    NLM_F_CREATE, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourExtFlags, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteType, RouteVia};
use netlink_packet_route::rule::{RuleAttribute, RuleMessage};

use super::{Netlink, family, route_address};
use crate::error::{Error, ErrorContext, Result};

/// The neighbour that packets go to next, and its interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NextHop {
    pub address: IpAddr,
    /// The interface's number.
    pub interface: u32,
}

/// What keeps a neighbour's link-layer address fresh.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NeighborRefresh {
    /// The kernel asks for it again by itself, whether it is used or not (`NTF_EXT_MANAGED`, Linux 5.16), and garbage
    /// collection leaves it alone.
    Kernel,
    /// The creator of the entry: it is permanent, learned by another program, or of a link without neighbours.
    Other,
    /// Nothing: the entry is an ordinary one, as on kernels without that flag.
    None,
}

/// What routing rules look at beside the destination (ip-rule(8)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RuleInput {
    Destination,
    /// The source, or the interface that a packet has come in by.
    Source,
    /// Ports and protocol, too.
    Ports,
}

const ENOENT: i32 = 2;

impl Netlink {
    /// All next hops of the route that the kernel has for a destination; several where packets are shared out among them
    /// (`RTM_F_FIB_MATCH`, Linux 4.13). None for an address of its own.
    pub fn next_hops(&self, destination: IpAddr) -> Result<Vec<NextHop>> {
        let mut message = RouteMessage::default();
        message.header.address_family = family(destination);
        message.header.destination_prefix_length = if destination.is_ipv4() { 32 } else { 128 };
        message.header.flags = RouteFlags::FibMatch;
        message.attributes.push(RouteAttribute::Destination(route_address(destination)));
        let doing = || format!("look up the route to {destination}");
        match self.exchange(RouteNetlinkMessage::GetRoute(message), NLM_F_REQUEST).during(doing)? {
            Some(RouteNetlinkMessage::NewRoute(route)) if route.header.kind == RouteType::Unicast => {
                Ok(next_hops_of(&route.attributes, destination))
            }
            Some(RouteNetlinkMessage::NewRoute(route)) if route.header.kind == RouteType::Local => Ok(Vec::new()),
            _ => Err(Error::new(doing(), io::Error::from(io::ErrorKind::NetworkUnreachable))),
        }
    }

    /// Has the kernel find a neighbour and keep it fresh, unless the entry is permanent or another program's.
    pub fn manage_neighbor(&self, hop: NextHop) -> Result<NeighborRefresh> {
        match self.upkeep(hop)? {
            Some(upkeep @ (NeighborRefresh::Kernel | NeighborRefresh::Other)) => return Ok(upkeep),
            Some(NeighborRefresh::None) | None => {}
        }
        let mut message = neighbor(hop);
        // Without it the entry would be subject to garbage collection.
        message.header.flags = NeighbourFlags::ExtLearned;
        message.attributes.push(NeighbourAttribute::ExtFlags(NeighbourExtFlags::Managed));
        self.request(RouteNetlinkMessage::NewNeighbour(message), NLM_F_CREATE | NLM_F_REPLACE)
            .during(|| format!("have the kernel keep neighbour {} of interface {}", hop.address, hop.interface))?;
        // An older kernel ignores the flag, and has an entry now that it does not keep fresh.
        if self.upkeep(hop)? == Some(NeighborRefresh::Kernel) {
            return Ok(NeighborRefresh::Kernel);
        }
        self.remove_neighbor(hop)?;
        Ok(NeighborRefresh::None)
    }

    /// Undoes [`manage_neighbor`](Self::manage_neighbor): the entry is removed, and comes again when something is sent there.
    pub fn release_neighbor(&self, hop: NextHop) -> Result<()> {
        if self.upkeep(hop)? == Some(NeighborRefresh::Kernel) { self.remove_neighbor(hop) } else { Ok(()) }
    }

    fn remove_neighbor(&self, hop: NextHop) -> Result<()> {
        let removed = self.request(RouteNetlinkMessage::DelNeighbour(neighbor(hop)), 0);
        match removed {
            Err(error) if error.raw_os_error() == Some(ENOENT) => Ok(()),
            removed => removed.during(|| format!("remove neighbour {} of interface {}", hop.address, hop.interface)),
        }
    }

    /// Whether the kernel knows the neighbour's link-layer address, or that it has none (`NUD_VALID`). One that does not answer is
    /// asked for again and again, so whether it is asked for at the moment says little.
    pub fn is_resolved(&self, hop: NextHop) -> Result<bool> {
        use NeighbourState::{Delay, Noarp, Permanent, Probe, Reachable, Stale};
        let state = self.entry(hop)?.map(|entry| entry.header.state);
        Ok(matches!(state, Some(Permanent | Noarp | Reachable | Probe | Stale | Delay)))
    }

    /// The neighbour's link-layer address, where the kernel knows it; empty where the link has none.
    pub fn link_layer_address(&self, hop: NextHop) -> Result<Option<Vec<u8>>> {
        let Some(entry) = self.entry(hop)? else { return Ok(None) };
        if matches!(entry.header.state, NeighbourState::Noarp) {
            return Ok(Some(Vec::new()));
        }
        Ok(entry.attributes.into_iter().find_map(|attribute| match attribute {
            NeighbourAttribute::LinkLayerAddress(address) => Some(address),
            _ => None,
        }))
    }

    /// The same, and has the kernel ask for it where nothing keeps it fresh and it is not known for sure (`NTF_USE`): as a packet by
    /// the kernel would. What comes of it is to be seen later.
    ///
    /// # Errors
    /// The kernel's.
    pub fn use_neighbor(&self, hop: NextHop) -> Result<Option<Vec<u8>>> {
        use NeighbourState::{Delay, Probe, Reachable};
        let fresh = self.entry(hop)?.is_some_and(|entry| matches!(entry.header.state, Reachable | Delay | Probe));
        // The flags of a request replace those of the entry, so that one that is managed would not be any more.
        if !fresh && matches!(self.upkeep(hop)?, None | Some(NeighborRefresh::None)) {
            let mut message = neighbor(hop);
            message.header.flags = NeighbourFlags::Use;
            self.request(RouteNetlinkMessage::NewNeighbour(message), NLM_F_CREATE)
                .during(|| format!("ask for neighbour {} of interface {}", hop.address, hop.interface))?;
        }
        self.link_layer_address(hop)
    }

    /// `None` where there is no entry.
    fn entry(&self, hop: NextHop) -> Result<Option<NeighbourMessage>> {
        match self.exchange(RouteNetlinkMessage::GetNeighbour(neighbor(hop)), NLM_F_REQUEST) {
            Ok(Some(RouteNetlinkMessage::NewNeighbour(entry))) => Ok(Some(entry)),
            Err(error) if error.raw_os_error() != Some(ENOENT) => {
                Err(Error::new(format!("look up neighbour {}", hop.address), error))
            }
            _ => Ok(None),
        }
    }

    /// `None` where there is no entry.
    fn upkeep(&self, hop: NextHop) -> Result<Option<NeighborRefresh>> {
        let Some(entry) = self.entry(hop)? else { return Ok(None) };
        let managed = entry.attributes.iter().any(|attribute| match attribute {
            NeighbourAttribute::ExtFlags(flags) => flags.contains(NeighbourExtFlags::Managed),
            _ => false,
        });
        let fixed = matches!(entry.header.state, NeighbourState::Permanent | NeighbourState::Noarp);
        Ok(Some(match managed {
            true => NeighborRefresh::Kernel,
            false if fixed || entry.header.flags.contains(NeighbourFlags::ExtLearned) => NeighborRefresh::Other,
            false => NeighborRefresh::None,
        }))
    }

    /// What the rules of a family look at beyond those that the kernel begins with.
    pub fn rule_input(&self, ipv4: bool) -> Result<RuleInput> {
        let mut message = RuleMessage::default();
        message.header.family = family(if ipv4 { [0; 4].into() } else { [0_u16; 8].into() });
        let rules = self.dump(RouteNetlinkMessage::GetRule(message)).during(|| "list routing rules".into())?;
        let inputs = rules.iter().filter_map(|rule| match rule {
            RouteNetlinkMessage::NewRule(rule) => Some(input_of(rule)),
            _ => None,
        });
        Ok(inputs.max().unwrap_or(RuleInput::Destination))
    }

    /// The many answers to one request. The kernel says when what is listed has changed meanwhile, so that some may be missing; then it is
    /// asked again.
    pub(super) fn dump(&self, message: RouteNetlinkMessage) -> io::Result<Vec<RouteNetlinkMessage>> {
        const ATTEMPTS: usize = 20;
        for _ in 1..ATTEMPTS {
            match self.dump_once(message.clone()) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                outcome => return outcome,
            }
        }
        self.dump_once(message)
    }

    fn dump_once(&self, message: RouteNetlinkMessage) -> io::Result<Vec<RouteNetlinkMessage>> {
        let mut sequence = self.sequence.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *sequence = sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | NLM_F_DUMP;
        header.sequence_number = *sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(message));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        let mut answers = Vec::new();
        let mut is_whole = true;
        loop {
            let (datagram, _) = self.socket.recv_from_full()?;
            let mut rest = &datagram[..];
            while !rest.is_empty() {
                let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest).map_err(io::Error::other)?;
                // Messages begin at multiples of four bytes (netlink(7)).
                let length = (answer.header.length as usize).next_multiple_of(4).max(4);
                rest = rest.get(length..).unwrap_or_default();
                is_whole &= answer.header.flags & NLM_F_DUMP_INTR == 0;
                match answer.payload {
                    NetlinkPayload::Done(_) if is_whole => return Ok(answers),
                    NetlinkPayload::Done(_) => return Err(io::ErrorKind::Interrupted.into()),
                    NetlinkPayload::Error(error) => return Err(error.to_io()),
                    NetlinkPayload::InnerMessage(message) => answers.push(message),
                    _ => {}
                }
            }
        }
    }
}

fn neighbor(hop: NextHop) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = family(hop.address);
    message.header.ifindex = hop.interface;
    message.attributes = vec![NeighbourAttribute::Destination(match hop.address {
        IpAddr::V4(address) => NeighbourAddress::Inet(address),
        IpAddr::V6(address) => NeighbourAddress::Inet6(address),
    })];
    message
}

fn next_hops_of(attributes: &[RouteAttribute], destination: IpAddr) -> Vec<NextHop> {
    let gateway = attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Gateway(RouteAddress::Inet(v4)) | RouteAttribute::Via(RouteVia::Inet(v4)) => Some((*v4).into()),
        RouteAttribute::Gateway(RouteAddress::Inet6(v6)) | RouteAttribute::Via(RouteVia::Inet6(v6)) => {
            Some((*v6).into())
        }
        _ => None,
    });
    let mut hops = Vec::new();
    for attribute in attributes {
        match attribute {
            RouteAttribute::Oif(interface) => {
                hops.push(NextHop { address: gateway.unwrap_or(destination), interface: *interface });
            }
            RouteAttribute::MultiPath(paths) => {
                for path in paths {
                    let interface = RouteAttribute::Oif(path.interface_index);
                    let attributes: Vec<_> = path.attributes.iter().cloned().chain([interface]).collect();
                    hops.extend(next_hops_of(&attributes, destination));
                }
            }
            _ => {}
        }
    }
    hops.sort_unstable();
    hops.dedup();
    hops
}

fn input_of(rule: &RuleMessage) -> RuleInput {
    let input = |attribute: &RuleAttribute| match attribute {
        RuleAttribute::SourcePortRange(_) | RuleAttribute::DestinationPortRange(_) | RuleAttribute::IpProtocol(_) => {
            RuleInput::Ports
        }
        RuleAttribute::Source(_) | RuleAttribute::Iifname(_) | RuleAttribute::L3MDev(_) => RuleInput::Source,
        _ => RuleInput::Destination,
    };
    rule.attributes.iter().map(input).max().unwrap_or(RuleInput::Destination)
}
