//! What a vRouter forwards, and what it lets through, as a plain value.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::sync::Arc;

use ipnet::IpNet;
use rig_wire::ethernet::Mac;
use rig_wire::protocol::{TCP, UDP};

use crate::ConfigError;

/// The router's own MAC address towards containers, as Contrail's: the first virtual router's of RFC 5798, 7.3.
pub const ROUTER_MAC: Mac = Mac([0x00, 0x00, 0x5e, 0x00, 0x01, 0x00]);
/// Rules of one list.
pub const MOST_RULES: usize = 1024;
/// Lists that one interface may have in one direction: its security groups, and the policies of its network.
pub const MOST_LISTS: usize = 2;
/// Ways of one ECMP next hop.
pub const MOST_WAYS: usize = 64;
/// Members of a network that frames to all are copied to: interfaces of this node, and other nodes.
pub const MOST_MEMBERS: usize = 512;
/// MPLS labels below are reserved (RFC 3032, 2.1).
pub const FIRST_LABEL: u32 = 16;
/// Of 20 bits.
pub const LAST_LABEL: u32 = (1 << 20) - 1;
/// Of 31 bits.
pub const LAST_VRF: u32 = (1 << 31) - 1;
/// Of analysers.
pub const LAST_ANALYSER: u8 = 127;
/// Of 24 bits (RFC 7348).
pub const LAST_VNI: u32 = (1 << 24) - 1;

/// What one node's router does, whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Its MAC address towards containers.
    pub mac: Mac,
    /// The network that tunnels go over; a router without one joins containers of its node alone.
    pub underlay: Option<Underlay>,
    /// Tables of routes, by their numbers. What is shared with the configuration before costs nothing to apply.
    pub vrfs: BTreeMap<u32, Arc<Vrf>>,
    /// Containers' interfaces, by numbers that stay theirs as long as flows are to survive; 0 is none.
    pub interfaces: BTreeMap<u32, Interface>,
    /// Where packets that come with an MPLS label go; those of frames to all are [`Flood`]'s.
    pub labels: BTreeMap<u32, NextHop>,
    /// Where frames that come with a VXLAN network identifier go.
    pub vnis: BTreeMap<u32, Vni>,
    /// Lists of rules, by the numbers that interfaces name.
    pub lists: BTreeMap<u32, List>,
    /// Analysers that get copies of packets, by the numbers, from 1, that rules and interfaces name.
    pub analysers: BTreeMap<u8, Analyser>,
    /// Flows that an interface without a limit of its own may have at a time; none for no limit but the table's.
    pub most_flows: Option<NonZeroU32>,
}

/// Gets copies of packets: the frame as the container sends or gets it, in VXLAN (RFC 7348).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Analyser {
    /// Of the outer packets, their source and destination.
    pub source: Ipv4Addr,
    pub address: Ipv4Addr,
    /// Of UDP.
    pub port: u16,
    /// VXLAN network identifier.
    pub vni: u32,
    /// How it is reached; without a way no copies are made, which is counted.
    pub peer: Option<Peer>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mac: ROUTER_MAC,
            underlay: None,
            vrfs: BTreeMap::new(),
            interfaces: BTreeMap::new(),
            labels: BTreeMap::new(),
            vnis: BTreeMap::new(),
            lists: BTreeMap::new(),
            analysers: BTreeMap::new(),
            most_flows: None,
        }
    }
}

/// The node's own network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Underlay {
    /// Where tunnels begin and end.
    pub address: Ipv4Addr,
    /// Other routers: packets from other addresses are of no tunnel.
    pub peers: BTreeMap<Ipv4Addr, Peer>,
    /// Packets of a peer are taken by the interface alone that it is reached by.
    pub strict: bool,
}

/// How another router is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// The kernel's number of the interface.
    pub interface: u32,
    /// The next hop on the underlay, the peer itself where it is a neighbour.
    pub gateway: Ipv4Addr,
    /// The largest packet that gets there, outer header included, bytes.
    pub mtu: u16,
}

/// A table of routes, which are a virtual network's. A packet is dropped that comes from where its table would not send the
/// answer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Vrf {
    pub routes: BTreeMap<IpNet, NextHop>,
    /// Frames to these addresses are bridged.
    pub macs: BTreeMap<Mac, NextHop>,
    /// Members that get frames to all; without it such frames are dropped.
    pub flood: Option<Flood>,
}

/// Members that get a network's frames to all and to groups, but for the sender. A frame that came by a tunnel goes to this node's
/// members only.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Flood {
    /// Interfaces of this node, by their numbers.
    pub members: BTreeSet<u32>,
    /// MPLS label that others' frames to all come with, as Ethernet frames without a control word (RFC 7432, 11.2 and 18); none where they
    /// come by VXLAN alone.
    pub label: Option<u32>,
    /// Other routers, each with the encapsulation of frames to all and the MPLS label or VXLAN network identifier that it has given the
    /// network for it.
    pub peers: BTreeMap<Ipv4Addr, (Encapsulation, u32)>,
    /// Frames to unknown addresses are such, too.
    pub unknown_unicast: bool,
}

/// Where packets go.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum NextHop {
    /// Nowhere.
    Discard,
    /// To a container's interface, by its number.
    Interface(u32),
    /// To another router.
    Tunnel(Tunnel),
    /// The router itself, which is the network's gateway: it answers pings.
    Gateway,
    /// To where another table's route says.
    Vrf(u32),
    /// One of several, each flow always the same.
    Ecmp(Vec<NextHop>),
}

/// A tunnel to another router, and the label by which that router finds the receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tunnel {
    pub peer: Ipv4Addr,
    pub encapsulation: Encapsulation,
    /// MPLS label or VXLAN network identifier, which the peer has given out.
    pub label: u32,
    /// Destination of the inner frame, where there is one: the container's or that of the peer's router.
    pub mac: Mac,
}

/// How packets are wrapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Encapsulation {
    /// RFC 7510: 32 bytes.
    MplsOverUdp = 1,
    /// RFC 4023: 28 bytes.
    MplsOverGre = 2,
    /// RFC 7348: 50 bytes, the inner Ethernet header among them.
    Vxlan = 3,
}

impl Encapsulation {
    pub const ALL: [Self; 3] = [Self::MplsOverUdp, Self::MplsOverGre, Self::Vxlan];

    /// As configurations write it, Contrail's word.
    pub fn name(self) -> &'static str {
        match self {
            Self::MplsOverUdp => "mplsoudp",
            Self::MplsOverGre => "mplsogre",
            Self::Vxlan => "vxlan",
        }
    }

    /// Bytes that it adds to an IP packet, the outer Ethernet header not among them.
    pub fn overhead(self) -> u16 {
        match self {
            Self::MplsOverUdp => 20 + 8 + 4,
            Self::MplsOverGre => 20 + 4 + 4,
            Self::Vxlan => 20 + 8 + 8 + 14,
        }
    }

    /// As [`Self::overhead`], where the packet's Ethernet header goes along.
    pub fn overhead_of_frame(self) -> u16 {
        self.overhead() + if self == Self::Vxlan { 0 } else { 14 }
    }
}

/// The network or the interface that a VXLAN network identifier stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vni {
    /// A network: the inner frame's destination gives the interface.
    Vrf(u32),
    /// A container's interface by its number: no route is looked up.
    Interface(u32),
}

/// A container's interface, as the node has it: the other end of its veth pair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// The kernel's number of it.
    pub index: u32,
    pub vrf: u32,
    /// The container's MAC address, as others are told.
    pub mac: Mac,
    /// Whether its frames may come from other addresses, too; those for it go to the one that the last of them came from then. Else such
    /// frames are dropped.
    pub any_mac: bool,
    /// The router's own IPv4 address there, which its ICMP errors are from; without it there are none.
    pub gateway: Option<Ipv4Addr>,
    /// As `gateway`.
    pub gateway6: Option<Ipv6Addr>,
    /// What it may send and receive. Without it all is let through that the other end's lets, and packets are of a flow only
    /// where the other end is here and has one.
    pub policy: Option<Policy>,
    /// The analyser that gets copies of all packets of its flows, where no rule names another one. It takes a policy, which may be
    /// an empty one.
    pub mirror: Option<u8>,
    /// Services whose flows are fat: all flows from a client's address to such a service at a server's address are one flow, where
    /// either interface has it so. It takes a policy, which may be an empty one. Rules and routes do not look at the source port, so
    /// that they treat all of them alike; but the server may then send from the service's port to any port of the client, other than to
    /// open a TCP connection.
    pub fat: BTreeSet<Service>,
    /// Whether what it sends as a DHCP server (RFC 2131, RFC 8415) goes on to others.
    pub serves_dhcp: bool,
}

/// A service of TCP or UDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Service {
    /// 6 or 17.
    pub protocol: u8,
    pub port: u16,
}

/// Packets that an interface may send and receive: those that every list of a direction allows. Answers to packets that were let
/// through are let through, too.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy {
    /// Lists that what it sends is held against.
    pub outward: Vec<u32>,
    /// Lists that what it receives is held against.
    pub inward: Vec<u32>,
    /// Flows that it may have at a time, both directions of a connection counted as one; none for [`Config::most_flows`].
    pub most_flows: Option<NonZeroU32>,
}

/// Rules in their order: the first that matches decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct List {
    pub rules: Vec<Rule>,
    /// Where none matches.
    pub otherwise: Action,
}

/// A rule of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// IP protocol; any, where there is none.
    pub protocol: Option<u8>,
    /// Destination ports; of protocols without ports the number is 0, of ICMP it is the type.
    pub ports: RangeInclusive<u16>,
    /// Where the other end is: any address, where there are none.
    pub remote: BTreeSet<IpNet>,
    pub action: Action,
    pub flow_actions: FlowActions,
}

/// What else a rule has done with the flows that it decides about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct FlowActions {
    /// Each is logged once, and again when another verdict comes over it: see [`Log`](super::Log).
    pub log: bool,
    /// The analyser that gets copies of all their packets. Of several rules that let a flow through, the first names it, those of
    /// the sender before those of the receiver.
    pub mirror: Option<u8>,
}

/// What a rule does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    Allow,
    Deny,
}

impl Config {
    /// Whether next hops lead to the same in another configuration.
    pub(super) fn leads_alike(&self, other: &Self) -> bool {
        let whose = |config: &Self| -> Vec<(u32, u32, Mac)> {
            config.interfaces.iter().map(|(number, interface)| (*number, interface.index, interface.mac)).collect()
        };
        self.underlay == other.underlay && self.vrfs.keys().eq(other.vrfs.keys()) && whose(self) == whose(other)
    }

    /// # Errors
    /// The first mistake.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.validate_but(|_| false)
    }

    /// As [`Self::validate`], without the tables that are known to be right.
    pub(super) fn validate_but(&self, is_right: impl Fn(u32) -> bool) -> Result<(), ConfigError> {
        let wrong = |what: String| Err(ConfigError::Vrouter(what));
        for (number, interface) in &self.interfaces {
            if *number == 0 || interface.index == 0 {
                return wrong(format!("interface {number}: numbers begin with 1"));
            }
            if interface.vrf > LAST_VRF {
                return wrong(format!("interface {number} is in VRF {}, and {LAST_VRF} is the last", interface.vrf));
            }
            if !self.vrfs.contains_key(&interface.vrf) {
                return wrong(format!("interface {number} is in VRF {}, which does not exist", interface.vrf));
            }
            if interface.mirror.is_some_and(|number| !self.analysers.contains_key(&number)) {
                return wrong(format!("interface {number} names an analyser that does not exist"));
            }
            let Some(policy) = &interface.policy else {
                if interface.mirror.is_some() || !interface.fat.is_empty() {
                    let what = "has an analyser or fat flows, and no policy, and so no flows";
                    return wrong(format!("interface {number} {what}"));
                }
                continue;
            };
            if interface.fat.iter().any(|service| ![TCP, UDP].contains(&service.protocol)) {
                return wrong(format!("interface {number} has fat flows of a protocol without ports"));
            }
            for lists in [&policy.outward, &policy.inward] {
                if lists.len() > MOST_LISTS {
                    return wrong(format!(
                        "interface {number} has {} lists in one direction, and {MOST_LISTS} are the most",
                        lists.len()
                    ));
                }
                if let Some(missing) = lists.iter().find(|list| !self.lists.contains_key(list)) {
                    return wrong(format!("interface {number} names list {missing}, which does not exist"));
                }
            }
        }
        let indexes: BTreeSet<u32> = self.interfaces.values().map(|interface| interface.index).collect();
        if indexes.len() < self.interfaces.len() {
            return wrong("two interfaces are the same one of the kernel's".to_owned());
        }
        for (number, list) in &self.lists {
            if list.rules.len() > MOST_RULES {
                return wrong(format!("list {number} has {} rules, and {MOST_RULES} are the most", list.rules.len()));
            }
            if list.rules.iter().any(|rule| rule.ports.is_empty()) {
                return wrong(format!("list {number} has a rule for no port at all"));
            }
        }
        let mirrors = self.lists.iter().flat_map(|(list, said)| said.rules.iter().map(move |rule| (list, rule)));
        for (list, rule) in mirrors {
            if rule.flow_actions.mirror.is_some_and(|number| !self.analysers.contains_key(&number)) {
                return wrong(format!("list {list} names an analyser that does not exist"));
            }
        }
        for (number, analyser) in &self.analysers {
            if !(1..=LAST_ANALYSER).contains(number) || analyser.vni > LAST_VNI {
                return wrong(format!(
                    "analyser {number}: choose numbers from 1 to {LAST_ANALYSER}, and a VNI to {LAST_VNI}"
                ));
            }
        }
        for (number, vrf) in self.vrfs.iter().filter(|(number, _)| !is_right(**number)) {
            for (prefix, next_hop) in &vrf.routes {
                if *prefix != prefix.trunc() {
                    return wrong(format!("VRF {number}: {prefix} has bits behind its prefix"));
                }
                self.check(next_hop, || format!("VRF {number}, {prefix}"))?;
            }
            for (mac, next_hop) in &vrf.macs {
                if mac.is_multicast() {
                    return wrong(format!("VRF {number}: {mac} is a group's, and no single interface's"));
                }
                self.check(next_hop, || format!("VRF {number}, {mac}"))?;
            }
            if let Some(flood) = &vrf.flood {
                self.check_flood(*number, flood)?;
            }
        }
        let mut labels: BTreeSet<u32> = self.labels.keys().copied().collect();
        for label in self.vrfs.values().filter_map(|vrf| vrf.flood.as_ref()?.label) {
            if !labels.insert(label) {
                return wrong(format!("label {label} of frames to all has another meaning, too"));
            }
        }
        if let Some(label) = labels.iter().find(|label| !(FIRST_LABEL..=LAST_LABEL).contains(*label)) {
            return wrong(format!("label {label}: choose from {FIRST_LABEL} to {LAST_LABEL}"));
        }
        for (label, next_hop) in &self.labels {
            self.check(next_hop, || format!("label {label}"))?;
        }
        for (vni, target) in &self.vnis {
            let exists = match target {
                Vni::Vrf(vrf) => self.vrfs.contains_key(vrf),
                Vni::Interface(number) => self.interfaces.contains_key(number),
            };
            if *vni > LAST_VNI || !exists {
                return wrong(format!("network identifier {vni} names {target:?}, which does not exist"));
            }
        }
        Ok(())
    }

    fn check_flood(&self, number: u32, flood: &Flood) -> Result<(), ConfigError> {
        let wrong = |what: String| Err(ConfigError::Vrouter(format!("VRF {number}, frames to all: {what}")));
        let members = flood.members.len() + flood.peers.len();
        if members > MOST_MEMBERS {
            return wrong(format!("{members} members, and {MOST_MEMBERS} are the most"));
        }
        let is_in = |member: &u32| self.interfaces.get(member).is_some_and(|interface| interface.vrf == number);
        if let Some(other) = flood.members.iter().find(|member| !is_in(member)) {
            return wrong(format!("interface {other} is not in it"));
        }
        flood
            .peers
            .iter()
            .try_for_each(|(peer, way)| self.check(&flood_tunnel(*peer, *way), || format!("VRF {number}")))
    }

    fn check(&self, next_hop: &NextHop, of: impl Fn() -> String + Copy) -> Result<(), ConfigError> {
        let wrong = |what: String| Err(ConfigError::Vrouter(format!("{}: {what}", of())));
        match next_hop {
            NextHop::Discard | NextHop::Gateway => Ok(()),
            NextHop::Interface(number) if self.interfaces.contains_key(number) => Ok(()),
            NextHop::Interface(number) => wrong(format!("there is no interface {number}")),
            NextHop::Vrf(number) if self.vrfs.contains_key(number) => Ok(()),
            NextHop::Vrf(number) => wrong(format!("there is no VRF {number}")),
            NextHop::Tunnel(tunnel) => {
                let peers = self.underlay.as_ref().map(|underlay| &underlay.peers);
                if !peers.is_some_and(|peers| peers.contains_key(&tunnel.peer)) {
                    return wrong(format!("there is no peer {}", tunnel.peer));
                }
                let last = if tunnel.encapsulation == Encapsulation::Vxlan { LAST_VNI } else { LAST_LABEL };
                if tunnel.label > last {
                    return wrong(format!("label {} is more than {last}", tunnel.label));
                }
                Ok(())
            }
            NextHop::Ecmp(next_hops) => {
                if next_hops.is_empty() || next_hops.len() > MOST_WAYS {
                    return wrong(format!("{} ways: choose from 1 to {MOST_WAYS}", next_hops.len()));
                }
                next_hops.iter().try_for_each(|way| match way {
                    NextHop::Interface(_) | NextHop::Tunnel(_) => self.check(way, of),
                    _ => wrong("ways lead to interfaces and through tunnels".to_owned()),
                })
            }
        }
    }
}

/// The tunnel by which frames to all go to another router.
pub(super) fn flood_tunnel(peer: Ipv4Addr, (encapsulation, label): (Encapsulation, u32)) -> NextHop {
    NextHop::Tunnel(Tunnel { peer, encapsulation, label, mac: Mac::default() })
}
