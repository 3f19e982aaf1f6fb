//! What changes in the kernel's view of the network, as it says so by itself (rtnetlink(7), multicast groups).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_ROUTE;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use super::NextHop;
use crate::error::{ErrorContext, Result};

/// Groups of linux/rtnetlink.h (`RTNLGRP_*`) by whose changes a packet's way may become another one: links, neighbours,
/// addresses, routes, rules, settings of interfaces (`NETCONF`), next hops.
const GROUPS: [u32; 11] = [1, 3, 5, 7, 8, 9, 11, 19, 24, 25, 32];
const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_NEWADDR: u16 = 20;
const RTM_NEWNEIGH: u16 = 28;
const RTM_DELNEIGH: u16 = 29;
const RTM_NEWNETCONF: u16 = 80;
const RTM_DELNETCONF: u16 = 81;
/// Bytes for events that have not been read yet: some thousand.
const ROOM: usize = 1 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A neighbour's entry, with its link-layer address as long as it is valid.
    Neighbor { hop: NextHop, link_layer: Option<Vec<u8>> },
    /// Routes to the addresses whose first `length` bits are those of `prefix`.
    Route { prefix: IpAddr, length: u8 },
    /// Rules, next hops that routes share, addresses with which routes go without a word: any route may be another one.
    Routing,
    /// Links, with which routes go without a word, too.
    Links,
    /// A new address, or a setting of an interface.
    Interface,
    /// The socket's buffer overflowed: events of any kind were lost.
    Lost,
}

/// Changes in one network namespace, from when this is made on.
#[derive(Debug)]
pub struct Events {
    socket: Socket,
    bell: OwnedFd,
}

impl Events {
    /// Of the calling thread's namespace. Takes no privileges.
    pub fn here() -> Result<Self> {
        let open = || -> io::Result<Self> {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            socket.bind_auto()?;
            socket.set_rx_buf_sz(ROOM as u32)?;
            socket.set_non_blocking(true)?;
            for group in GROUPS {
                // One that this kernel does not have tells nothing.
                match socket.add_membership(group) {
                    Err(error) if error.kind() != io::ErrorKind::InvalidInput => return Err(error),
                    _ => {}
                }
            }
            Ok(Self { socket, bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)? })
        };
        open().during(|| "listen to events of rtnetlink".into())
    }

    /// Has [`wait`](Self::wait) return at once, now or next time.
    pub fn wake(&self) {
        // It is only full when it has been rung long ago.
        let _full = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    /// All that has happened since the last call; waits for `time_limit` at most.
    ///
    /// # Errors
    /// The socket is of no more use.
    pub fn wait(&self, time_limit: Duration) -> io::Result<Vec<Event>> {
        let mut ready = [PollFd::new(&self.socket, PollFlags::IN), PollFd::new(&self.bell, PollFlags::IN)];
        let time_limit = Timespec { tv_sec: time_limit.as_secs() as _, tv_nsec: time_limit.subsec_nanos() as _ };
        match poll(&mut ready, Some(&time_limit)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let _none = rustix::io::read(&self.bell, &mut [0; 8]);
        let mut events = Vec::new();
        loop {
            match self.socket.recv_from_full() {
                // From the kernel, not from another process.
                Ok((datagram, from)) if from.port_number() == 0 => events.extend(events_of(&datagram)),
                Ok(_) => {}
                Err(error) if error.raw_os_error() == Some(Errno::NOBUFS.raw_os_error()) => events.push(Event::Lost),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(events),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn events_of(mut datagram: &[u8]) -> Vec<Event> {
    let mut events = Vec::new();
    // Length, kind (netlink(7), struct nlmsghdr).
    while let [a, b, c, d, low, high, ..] = *datagram {
        let length = (u32::from_ne_bytes([a, b, c, d]) as usize).max(16);
        let kind = u16::from_ne_bytes([low, high]);
        let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(datagram).map(|message| message.payload);
        match message {
            Ok(NetlinkPayload::InnerMessage(message)) => events.extend(event_of(&message, kind)),
            // Of a kind that the library does not know, or with something that it does not expect.
            _ => events.push(of_kind(kind)),
        }
        datagram = datagram.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    events
}

fn of_kind(kind: u16) -> Event {
    match kind {
        RTM_NEWLINK | RTM_DELLINK => Event::Links,
        RTM_NEWADDR | RTM_NEWNEIGH | RTM_DELNEIGH | RTM_NEWNETCONF | RTM_DELNETCONF => Event::Interface,
        _ => Event::Routing,
    }
}

fn event_of(message: &RouteNetlinkMessage, kind: u16) -> Option<Event> {
    Some(match message {
        RouteNetlinkMessage::NewNeighbour(entry) => neighbor(entry, true)?,
        RouteNetlinkMessage::DelNeighbour(entry) => neighbor(entry, false)?,
        RouteNetlinkMessage::NewRoute(route) | RouteNetlinkMessage::DelRoute(route) => self::route(route),
        _ => of_kind(kind),
    })
}

/// `None` of what is no neighbour of IP, such as a bridge's entry.
fn neighbor(entry: &NeighbourMessage, there: bool) -> Option<Event> {
    let address = entry.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::Destination(NeighbourAddress::Inet(v4)) => Some(IpAddr::from(*v4)),
        NeighbourAttribute::Destination(NeighbourAddress::Inet6(v6)) => Some(IpAddr::from(*v6)),
        _ => None,
    })?;
    let valid = matches!(
        entry.header.state,
        NeighbourState::Permanent
            | NeighbourState::Noarp
            | NeighbourState::Reachable
            | NeighbourState::Probe
            | NeighbourState::Stale
            | NeighbourState::Delay
    );
    let link_layer = entry.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::LinkLayerAddress(bytes) if there && valid => Some(bytes.clone()),
        _ => None,
    });
    Some(Event::Neighbor { hop: NextHop { address, interface: entry.header.ifindex }, link_layer })
}

fn route(route: &RouteMessage) -> Event {
    let destination = route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Destination(RouteAddress::Inet(v4)) => Some(IpAddr::from(*v4)),
        RouteAttribute::Destination(RouteAddress::Inet6(v6)) => Some(IpAddr::from(*v6)),
        _ => None,
    });
    // Without one it is the default route.
    let any = || match route.header.address_family {
        AddressFamily::Inet => Some(Ipv4Addr::UNSPECIFIED.into()),
        AddressFamily::Inet6 => Some(Ipv6Addr::UNSPECIFIED.into()),
        _ => None,
    };
    match destination.or_else(any) {
        Some(prefix) => Event::Route { prefix, length: route.header.destination_prefix_length },
        None => Event::Routing,
    }
}

#[cfg(test)]
mod tests;
