//! Links, addresses, routes and queueing disciplines over rtnetlink (rtnetlink(7)).
//!
//! Messages are netlink-packet-route's, over a plain socket with one request and one answer at a time, and not the asynchronous `rtnetlink`
//! of the same authors: a namespace belongs to a thread, and a runtime moves work between threads, but a socket that was opened
//! inside a namespace speaks to it from any. About 20 requests build a testbed, in 4 to 20 ms.

mod events;
mod filters;
mod frames;
mod links;
mod neighbors;
mod recorded;

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use netlink_packet_core::{
    DefaultNla, NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NLM_F_ECHO, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST,
    NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage, AddressScope};
use netlink_packet_route::link::{
    BridgeStpState, InfoBridge, InfoData, InfoIpVlan, InfoKind, InfoMacVlan, InfoVeth, InfoVxlan, IpVlanMode,
    LinkAttribute, LinkFlags, LinkInfo, LinkMessage, LinkXdp, MacVlanMode, State,
};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::neighbour_table::{NeighbourTableAttribute, NeighbourTableMessage, NeighbourTableParameter};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage, TcOption, TcStats2};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

use crate::error::{Error, ErrorContext, Result};
use crate::netns::NetNs;

pub use events::{Event, Events};
pub use filters::BpfFilter;
pub use frames::{LinkCounters, QueueCounters};
pub use links::{Link, PeerLink, Vlan};
pub use neighbors::{NeighborRefresh, NextHop, RuleInput};
pub use recorded::{InterfaceAddress, InterfaceNeighbor, InterfaceRoute, NotRecorded};

/// An rtnetlink socket that speaks to one network namespace, whichever thread uses it.
pub struct Netlink {
    socket: Socket,
    /// Number of the last request. Held until its answer is there, so that threads do not take each other's.
    sequence: Mutex<u32>,
}

impl std::fmt::Debug for Netlink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Netlink").field("fd", &self.socket.as_raw_fd()).finish_non_exhaustive()
    }
}

/// Two interfaces, each the other end of the same virtual cable (veth(4)).
#[derive(Debug, Clone, Copy)]
pub struct VethPair<'a> {
    pub name: &'a str,
    /// Name and namespace of the far end.
    pub peer: &'a str,
    pub peer_ns: &'a NetNs,
    /// Transmit and receive queues of both ends.
    pub queues: u32,
    /// Largest packet in bytes without the Ethernet header.
    pub mtu: u32,
}

/// A VXLAN interface (RFC 7348) with unicast remotes.
#[derive(Debug, Clone, Copy)]
pub struct Vxlan<'a> {
    pub name: &'a str,
    /// Network identifier, 24 bits.
    pub vni: u32,
    /// Where outer packets come from; its family is that of the underlay.
    pub local: IpAddr,
    pub port: u16,
    /// The interface that carries the outer packets.
    pub underlay: &'a str,
    pub mtu: u32,
}

/// A route of the main table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route<'a> {
    pub destination: IpAddr,
    /// 0 makes it the default route.
    pub prefix: u8,
    /// The router that takes the packets; without one, the destination itself is on the interface's link.
    pub gateway: Option<IpAddr>,
    /// By which interface. The kernel finds that of a gateway by itself, unless its address is one of the link's own.
    pub interface: Option<&'a str>,
}

/// A token bucket that limits what an interface sends (tc-tbf(8)).
#[derive(Debug, Clone, Copy)]
pub struct TokenBucket {
    /// Bytes per second, counted on Ethernet frames without preamble and checksum.
    pub rate: u64,
    /// Bucket size in bytes; at least the largest packet, or that packet can never leave.
    pub burst: u32,
    /// Bytes that may wait for tokens.
    pub limit: u32,
}

/// Counters of a queueing discipline (`struct gnet_stats_queue` of linux/gen_stats.h). They have 32 bits and wrap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueStats {
    /// Packets thrown away for want of room.
    pub drops: u32,
    /// Times that a packet had to wait for the limit.
    pub overlimits: u32,
}

impl Netlink {
    /// A socket into `ns`.
    pub fn open(ns: &NetNs) -> Result<Self> {
        ns.run(Self::here)?
    }

    /// A socket into the calling thread's namespace, which takes no privileges.
    pub fn here() -> Result<Self> {
        let socket = || -> io::Result<Socket> {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            socket.bind_auto()?;
            socket.connect(&SocketAddr::new(0, 0))?;
            Ok(socket)
        };
        let socket = socket().during(|| "open an rtnetlink socket".into())?;
        Ok(Self { socket, sequence: Mutex::new(0) })
    }

    pub fn add_veth(&mut self, pair: &VethPair<'_>) -> Result<()> {
        self.add_veth_numbered(pair, [fresh_index(), fresh_index()])
    }

    /// The same with the numbers of both ends, for one of many processes that make such pairs and do not know each other's numbers.
    pub fn add_veth_numbered(&mut self, pair: &VethPair<'_>, numbers: [u32; 2]) -> Result<()> {
        let ends = [(pair.name, None, numbers[0]), (pair.peer, Some(pair.peer_ns), numbers[1])];
        let [near, far] = ends.map(|(name, ns, number)| {
            let mut message = link(name);
            message.header.index = number;
            message.attributes.extend([
                LinkAttribute::Mtu(pair.mtu),
                LinkAttribute::NumTxQueues(pair.queues),
                LinkAttribute::NumRxQueues(pair.queues),
            ]);
            message.attributes.extend(ns.map(|ns| LinkAttribute::NetNsFd(ns.raw_fd())));
            message
        });
        self.create(near, InfoKind::Veth, Some(InfoData::Veth(InfoVeth::Peer(far))))
            .during(|| format!("create veth pair {} - {}", pair.name, pair.peer))
    }

    /// A learning switch without spanning tree.
    pub fn add_bridge(&mut self, name: &str, mtu: u32) -> Result<()> {
        let mut message = link(name);
        message.attributes.push(LinkAttribute::Mtu(mtu));
        let options = vec![
            InfoBridge::StpState(BridgeStpState::Disabled),
            InfoBridge::ForwardDelay(0),
            InfoBridge::MulticastSnooping(false),
        ];
        self.create(message, InfoKind::Bridge, Some(InfoData::Bridge(options)))
            .during(|| format!("create bridge {name}"))
    }

    /// A macvlan interface in bridge mode over `parent`, which belongs to this socket's namespace; the new interface
    /// appears in `ns`.
    pub fn add_macvlan(&mut self, name: &str, parent: &str, ns: &NetNs) -> Result<()> {
        let index = self.index(parent)?;
        let create = |name: &str| {
            let mut message = link(name);
            message.attributes.extend([LinkAttribute::Link(index), LinkAttribute::NetNsFd(ns.raw_fd())]);
            let options = vec![InfoMacVlan::Mode(MacVlanMode::Bridge)];
            self.create(message, InfoKind::MacVlan, Some(InfoData::MacVlan(options)))
        };
        let operation = || format!("create macvlan {name} over {parent}");
        match create(name) {
            // Older kernels look for the name in this socket's namespace, too.
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {
                const NAME: &str = "netrig-macvlan";
                create(NAME).during(operation)?;
                let there = Self::open(ns)?;
                let mut message = link(name);
                message.header.index = there.index(NAME)?;
                there.request(RouteNetlinkMessage::SetLink(message), 0).during(operation)
            }
            made => made.during(operation),
        }
    }

    /// An ipvlan interface over `parent`, which belongs to this socket's namespace.
    pub fn add_ipvlan(&mut self, name: &str, parent: &str) -> Result<()> {
        let mut message = link(name);
        message.attributes.push(LinkAttribute::Link(self.index(parent)?));
        let options = vec![InfoIpVlan::Mode(IpVlanMode::L2)];
        let made = self.create(message, InfoKind::IpVlan, Some(InfoData::IpVlan(options)));
        made.during(|| format!("create ipvlan {name} over {parent}"))
    }

    pub fn add_vxlan(&mut self, vxlan: &Vxlan<'_>) -> Result<()> {
        let index = self.index(vxlan.underlay)?;
        let mut message = link(vxlan.name);
        message.attributes.push(LinkAttribute::Mtu(vxlan.mtu));
        let mut options = vec![
            InfoVxlan::Id(vxlan.vni),
            InfoVxlan::Link(index),
            InfoVxlan::Port(vxlan.port),
            InfoVxlan::Learning(true),
        ];
        // No checksum over the outer packet: the inner one has its own (RFC 7348, 5; over IPv6 RFC 6935).
        match vxlan.local {
            IpAddr::V4(local) => options.extend([InfoVxlan::Local(local), InfoVxlan::UDPCsum(false)]),
            IpAddr::V6(local) => options.extend([
                InfoVxlan::Local6(local),
                InfoVxlan::UDPZeroCsumTX(true),
                InfoVxlan::UDPZeroCsumRX(true),
            ]),
        }
        self.create(message, InfoKind::Vxlan, Some(InfoData::Vxlan(options)))
            .during(|| format!("create vxlan {} (VNI {})", vxlan.name, vxlan.vni))
    }

    /// Sends what a VXLAN interface does not know where to send to `remote` too.
    pub fn add_vxlan_remote(&mut self, name: &str, remote: IpAddr) -> Result<()> {
        let index = self.index(name)?;
        let mut message = NeighbourMessage::default();
        message.header.family = AddressFamily::Bridge;
        message.header.ifindex = index;
        message.header.state = NeighbourState::Permanent;
        message.header.flags = NeighbourFlags::Own;
        message.attributes = vec![
            NeighbourAttribute::LinkLayerAddress(vec![0; 6]),
            NeighbourAttribute::Destination(match remote {
                IpAddr::V4(remote) => NeighbourAddress::Inet(remote),
                IpAddr::V6(remote) => NeighbourAddress::Inet6(remote),
            }),
        ];
        self.request(RouteNetlinkMessage::NewNeighbour(message), NLM_F_CREATE | NLM_F_APPEND)
            .during(|| format!("add remote {remote} to {name}"))
    }

    /// Adds a permanent entry for the neighbour `address` of interface `name`, so that the kernel never has to ask.
    pub fn add_neighbor(&mut self, name: &str, address: IpAddr, mac: [u8; 6]) -> Result<()> {
        let mut message = NeighbourMessage::default();
        message.header.family = family(address);
        message.header.ifindex = self.index(name)?;
        message.header.state = NeighbourState::Permanent;
        message.attributes = vec![
            NeighbourAttribute::LinkLayerAddress(mac.to_vec()),
            NeighbourAttribute::Destination(match address {
                IpAddr::V4(address) => NeighbourAddress::Inet(address),
                IpAddr::V6(address) => NeighbourAddress::Inet6(address),
            }),
        ];
        self.request(RouteNetlinkMessage::NewNeighbour(message), NLM_F_CREATE | NLM_F_REPLACE)
            .during(|| format!("add neighbour {address} to {name}"))
    }

    /// Forgets where the neighbour `address` of interface `name` is, if that is known.
    pub fn forget_neighbor(&mut self, name: &str, address: IpAddr) -> Result<()> {
        let mut message = NeighbourMessage::default();
        message.header.family = family(address);
        message.header.ifindex = self.index(name)?;
        message.attributes = vec![NeighbourAttribute::Destination(match address {
            IpAddr::V4(address) => NeighbourAddress::Inet(address),
            IpAddr::V6(address) => NeighbourAddress::Inet6(address),
        })];
        match self.request(RouteNetlinkMessage::DelNeighbour(message), 0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result.during(|| format!("forget neighbour {address} of {name}")),
        }
    }

    /// Makes `name` a port of bridge `bridge`.
    pub fn set_bridge(&mut self, name: &str, bridge: &str) -> Result<()> {
        let bridge_index = self.index(bridge)?;
        let mut message = LinkMessage::default();
        message.header.index = self.index(name)?;
        message.attributes.push(LinkAttribute::Controller(bridge_index));
        self.request(RouteNetlinkMessage::SetLink(message), 0).during(|| format!("make {name} a port of {bridge}"))
    }

    /// Gives an interface that is down its hardware address.
    pub fn set_mac(&mut self, name: &str, mac: [u8; 6]) -> Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = self.index(name)?;
        message.attributes.push(LinkAttribute::Address(mac.to_vec()));
        self.request(RouteNetlinkMessage::SetLink(message), 0).during(|| format!("set the address of {name}"))
    }

    /// Makes what is answered by proxy ARP at interface `name` be answered at once: it waits up to 0.8 s by default
    /// (`proxy_delay` of arp(7)). By rtnetlink, for the sysctl is not to be had in a user namespace.
    pub fn answer_proxies_at_once(&mut self, name: &str) -> Result<()> {
        let mut message = NeighbourTableMessage::default();
        message.header.family = AddressFamily::Inet;
        message.attributes = vec![
            NeighbourTableAttribute::Name("arp_cache".into()),
            NeighbourTableAttribute::Parms(vec![
                NeighbourTableParameter::Ifindex(self.index(name)?),
                NeighbourTableParameter::ProxyDelay(0),
            ]),
        ];
        self.request(RouteNetlinkMessage::SetNeighbourTable(message), 0)
            .during(|| format!("let {name} answer for others at once"))
    }

    /// Puts an XDP program, by its descriptor, on an interface whose driver runs such programs, or takes the one that is there off.
    /// It stays when the descriptor is closed.
    pub(crate) fn set_xdp(&mut self, name: &str, program: Option<RawFd>) -> Result<()> {
        const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;
        let mut message = LinkMessage::default();
        message.header.index = self.index(name)?;
        let program = LinkXdp::Fd(program.unwrap_or(-1));
        message.attributes.push(LinkAttribute::Xdp(vec![program, LinkXdp::Flags(XDP_FLAGS_DRV_MODE)]));
        self.request(RouteNetlinkMessage::SetLink(message), 0).during(|| format!("change the XDP program of {name}"))
    }

    pub fn set_up(&mut self, name: &str) -> Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = self.index(name)?;
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        self.request(RouteNetlinkMessage::SetLink(message), 0).during(|| format!("set {name} up"))
    }

    pub fn add_address(&mut self, name: &str, address: IpAddr, prefix: u8) -> Result<()> {
        let mut message = AddressMessage::default();
        message.header.family = family(address);
        message.header.prefix_len = prefix;
        message.header.index = self.index(name)?;
        message.header.scope = AddressScope::Universe;
        message.attributes = vec![AddressAttribute::Local(address), AddressAttribute::Address(address)];
        if address.is_ipv6() {
            // Duplicate detection would keep the address unusable for a second, and no other host of the testbed has it.
            message.header.flags = AddressHeaderFlags::Nodad;
            message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
        }
        self.request(RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE | NLM_F_EXCL)
            .during(|| format!("add address {address}/{prefix} to {name}"))
    }

    /// A route to `destination`/`prefix` by way of `gateway`. Prefix 0 makes it the default route.
    pub fn add_route(&mut self, destination: IpAddr, prefix: u8, gateway: IpAddr) -> Result<()> {
        self.install_route(&Route { destination, prefix, gateway: Some(gateway), interface: None })
    }

    /// Adds a route to the main table.
    pub fn install_route(&mut self, route: &Route<'_>) -> Result<()> {
        let Route { destination, prefix, gateway, interface } = *route;
        let mut message = RouteMessage::default();
        message.header.address_family = family(destination);
        message.header.destination_prefix_length = prefix;
        message.header.table = RouteHeader::RT_TABLE_MAIN;
        message.header.protocol = RouteProtocol::Static;
        // What is on the link is the scope of an IPv4 route without a gateway; IPv6 has no scopes.
        let on_link = gateway.is_none() && destination.is_ipv4();
        message.header.scope = if on_link { RouteScope::Link } else { RouteScope::Universe };
        message.header.kind = RouteType::Unicast;
        if prefix > 0 {
            message.attributes.push(RouteAttribute::Destination(route_address(destination)));
        }
        message.attributes.extend(gateway.map(|gateway| RouteAttribute::Gateway(route_address(gateway))));
        if let Some(interface) = interface {
            message.attributes.push(RouteAttribute::Oif(self.index(interface)?));
        }
        self.request(RouteNetlinkMessage::NewRoute(message), NLM_F_CREATE | NLM_F_EXCL)
            .during(|| format!("add {route}"))
    }

    /// Limits what `name` sends.
    pub fn set_token_bucket(&mut self, name: &str, bucket: TokenBucket) -> Result<()> {
        let mut message = TcMessage::with_index(self.index(name)? as i32);
        message.header.parent = TcHandle::ROOT;
        message.header.handle = TcHandle { major: 1, minor: 0 };
        message.attributes = vec![TcAttribute::Kind("tbf".into()), TcAttribute::Options(bucket.options()?)];
        self.request(RouteNetlinkMessage::NewQueueDiscipline(message), NLM_F_CREATE | NLM_F_EXCL)
            .during(|| format!("limit {name} to {} bytes per second", bucket.rate))
    }

    /// Has `name` send through a queueing discipline of this kind, with the kernel's settings of it.
    ///
    /// # Errors
    /// ENOENT when the kernel has none of this kind; what it says of one that cannot do without settings.
    pub fn set_qdisc(&mut self, name: &str, kind: &str) -> Result<()> {
        let mut message = TcMessage::with_index(self.index(name)? as i32);
        message.header.parent = TcHandle::ROOT;
        message.attributes = vec![TcAttribute::Kind(kind.into())];
        self.request(RouteNetlinkMessage::NewQueueDiscipline(message), NLM_F_CREATE | NLM_F_REPLACE)
            .during(|| format!("set qdisc {kind} of {name}"))
    }

    /// Takes the queueing discipline that somebody has given `name` away: it sends through the kernel's own again.
    pub fn reset_qdisc(&mut self, name: &str) -> Result<()> {
        let mut message = TcMessage::with_index(self.index(name)? as i32);
        message.header.parent = TcHandle::ROOT;
        self.request(RouteNetlinkMessage::DelQueueDiscipline(message), 0)
            .during(|| format!("reset the qdisc of {name}"))
    }

    /// What the queueing discipline through which `name` sends has done since it was made. These drops are not in the
    /// interface's own counters.
    pub fn queue_stats(&self, name: &str) -> Result<QueueStats> {
        let mut message = TcMessage::with_index(self.index(name)? as i32);
        message.header.parent = TcHandle::ROOT;
        // Kernels that answer a request for one discipline by announcing it do so to the asker only when told to echo.
        let reply = self
            .exchange(RouteNetlinkMessage::GetQueueDiscipline(message), NLM_F_REQUEST | NLM_F_ECHO)
            .during(|| format!("read the queueing discipline of {name}"))?;
        let attributes = match reply {
            Some(RouteNetlinkMessage::NewQueueDiscipline(message)) => message.attributes,
            _ => Vec::new(),
        };
        let queue = attributes.into_iter().find_map(|attribute| match attribute {
            TcAttribute::Stats2(stats) => stats.into_iter().find_map(|stats| match stats {
                TcStats2::Queue(queue) => Some(QueueStats { drops: queue.drops, overlimits: queue.overlimits }),
                _ => None,
            }),
            _ => None,
        });
        queue.ok_or_else(|| {
            let error = io::Error::other("an answer without statistics");
            Error::new(format!("read the queueing discipline of {name}"), error)
        })
    }

    /// The interface's number.
    pub fn index(&self, name: &str) -> Result<u32> {
        Ok(self.get(name)?.header.index)
    }

    /// Whether the interface carries packets (RFC 2863 ifOperStatus up). Being set up is not enough: until the kernel has
    /// worked off the change of carrier, what is sent is thrown away.
    pub fn is_operational(&self, name: &str) -> Result<bool> {
        Ok(self.get(name)?.attributes.contains(&LinkAttribute::OperState(State::Up)))
    }

    /// Packets that came while the device of an interface had no room for them (`rx_missed_errors`), since it is there.
    pub fn missed(&self, name: &str) -> Result<u64> {
        let attributes = self.get(name)?.attributes;
        let missed = attributes.iter().find_map(|attribute| match attribute {
            LinkAttribute::Stats64(stats) => Some(stats.rx_missed_errors),
            _ => None,
        });
        missed.ok_or_else(|| Error::new(format!("read the counters of {name}"), io::ErrorKind::NotFound))
    }

    pub(crate) fn get(&self, name: &str) -> Result<LinkMessage> {
        let reply = self
            .exchange(RouteNetlinkMessage::GetLink(link(name)), NLM_F_REQUEST)
            .during(|| format!("look up interface {name}"))?;
        match reply {
            Some(RouteNetlinkMessage::NewLink(message)) => Ok(message),
            _ => Err(Error::new(format!("look up interface {name}"), io::Error::other("no such answer"))),
        }
    }

    fn create(&self, mut message: LinkMessage, kind: InfoKind, data: Option<InfoData>) -> io::Result<()> {
        let mut info = vec![LinkInfo::Kind(kind)];
        info.extend(data.map(LinkInfo::Data));
        message.attributes.push(LinkAttribute::LinkInfo(info));
        self.request(RouteNetlinkMessage::NewLink(message), NLM_F_CREATE | NLM_F_EXCL)
    }

    fn request(&self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.exchange(message, NLM_F_REQUEST | NLM_F_ACK | flags).map(|_| ())
    }

    /// Sends one request and reads the one answer: an acknowledgement, an error or a single object.
    fn exchange(&self, message: RouteNetlinkMessage, flags: u16) -> io::Result<Option<RouteNetlinkMessage>> {
        let mut sequence = self.sequence.lock().unwrap_or_else(PoisonError::into_inner);
        *sequence = sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = flags;
        header.sequence_number = *sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(message));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;

        let (reply, _) = self.socket.recv_from_full()?;
        let reply = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&reply).map_err(io::Error::other)?;
        if reply.header.sequence_number != *sequence {
            return Err(io::Error::other("an answer to another request"));
        }
        match reply.payload {
            NetlinkPayload::Error(error) => match error.code {
                None => Ok(None),
                Some(_) => Err(error.to_io()),
            },
            NetlinkPayload::InnerMessage(message) => Ok(Some(message)),
            _ => Err(io::Error::other("an answer of an unexpected kind")),
        }
    }
}

impl fmt::Display for Route<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "route {}/{}", self.destination, self.prefix)?;
        self.gateway.map_or(Ok(()), |gateway| write!(f, " via {gateway}"))?;
        self.interface.map_or(Ok(()), |interface| write!(f, " by {interface}"))
    }
}

impl TokenBucket {
    /// The option block of linux/pkt_sched.h: `struct tc_tbf_qopt` in TCA_TBF_PARMS, the 64-bit rate and the bucket in
    /// bytes. The kernel (from 3.13) takes times from the rate itself; the tables of older ones are not sent.
    fn options(self) -> Result<Vec<TcOption>> {
        const TCA_TBF_PARMS: u16 = 1;
        const TCA_TBF_RATE64: u16 = 4;
        const TCA_TBF_BURST: u16 = 6;
        const TC_LINKLAYER_ETHERNET: u8 = 1;
        if self.rate == 0 || self.burst == 0 {
            let error = io::Error::new(io::ErrorKind::InvalidInput, "rate and burst must be above zero");
            return Err(Error::new("shape an interface", error));
        }
        let mut parameters = Vec::with_capacity(36);
        // struct tc_ratespec: cell_log, linklayer, overhead, cell_align, mpu, rate
        parameters.extend([0, TC_LINKLAYER_ETHERNET, 0, 0, 0, 0, 0, 0]);
        parameters.extend(u32::try_from(self.rate).unwrap_or(u32::MAX).to_ne_bytes());
        parameters.extend([0; 12]); // peak rate: none
        parameters.extend(self.limit.to_ne_bytes());
        let ticks = (u128::from(self.burst) * PSCHED_TICKS_PER_SECOND / u128::from(self.rate)) as u64;
        parameters.extend(u32::try_from(ticks).unwrap_or(u32::MAX).to_ne_bytes());
        parameters.extend([0; 4]); // mtu of the peak bucket
        Ok(vec![
            TcOption::Other(DefaultNla::new(TCA_TBF_PARMS, parameters)),
            TcOption::Other(DefaultNla::new(TCA_TBF_RATE64, self.rate.to_ne_bytes().to_vec())),
            TcOption::Other(DefaultNla::new(TCA_TBF_BURST, self.burst.to_ne_bytes().to_vec())),
        ])
    }
}

/// The packet scheduler's clock: 64 ns a tick (net/pkt_sched.h, PSCHED_SHIFT 6).
const PSCHED_TICKS_PER_SECOND: u128 = 1_000_000_000 / 64;

/// An interface number that no other veth end of this process has. Left to itself the kernel numbers each namespace's
/// interfaces from 2, and when both ends have the same number it takes a pair for an ordinary device whose change of
/// carrier can wait: up to a second, in which a bridge does not forward (net/core/link_watch.c). A first connection took 1.01 s,
/// with numbers that differ 1.7 ms.
fn fresh_index() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(100);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn link(name: &str) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.attributes.push(LinkAttribute::IfName(name.to_owned()));
    message
}

fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

fn route_address(address: IpAddr) -> RouteAddress {
    match address {
        IpAddr::V4(address) => RouteAddress::Inet(address),
        IpAddr::V6(address) => RouteAddress::Inet6(address),
    }
}
