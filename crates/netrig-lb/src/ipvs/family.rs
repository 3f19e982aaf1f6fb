//! The family "IPVS" of generic netlink: what programs ask of it, and what the balancer answers. Numbers and layouts are those of
//! linux/ip_vs.h, errors those of the kernel's net/netfilter/ipvs/ip_vs_ctl.c.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use libc::{AF_INET, AF_INET6, EAFNOSUPPORT, EINVAL, ENOENT, EPROTONOSUPPORT, ERANGE, IPPROTO_TCP, IPPROTO_UDP};
use rig_datapath::balancer::MAX_WEIGHT;

use super::netlink::{Attributes, Message, Writer};
use crate::ipvsadm::MAX_TIMEOUT;
use crate::message::{
    BackendEntry, Counters, ForwardingMethod, Protocol, Rates, ServiceEntry, ServiceKey, ServicePersistence, Status,
    Tunnel,
};
use crate::settings::{SCHEDULERS, tunnel};

pub(super) const NAME: &str = "IPVS";
pub(super) const VERSION: u8 = 1;
/// The number of the family here: above those that the kernel gives out, which end at 1023 (GENL_MAX_ID).
pub(super) const ID: u16 = 0x7f00;
/// IPVS_CMD_ATTR_MAX.
const HIGHEST_ATTRIBUTE: u32 = 6;

pub(super) mod command {
    pub(in super::super) const NEW_SERVICE: u8 = 1;
    pub(in super::super) const SET_SERVICE: u8 = 2;
    pub(in super::super) const DEL_SERVICE: u8 = 3;
    pub(in super::super) const GET_SERVICE: u8 = 4;
    pub(in super::super) const NEW_DEST: u8 = 5;
    pub(in super::super) const SET_DEST: u8 = 6;
    pub(in super::super) const DEL_DEST: u8 = 7;
    pub(in super::super) const GET_DEST: u8 = 8;
    pub(in super::super) const NEW_DAEMON: u8 = 9;
    pub(in super::super) const DEL_DAEMON: u8 = 10;
    pub(in super::super) const GET_DAEMON: u8 = 11;
    pub(in super::super) const SET_CONFIG: u8 = 12;
    pub(in super::super) const GET_CONFIG: u8 = 13;
    pub(in super::super) const SET_INFO: u8 = 14;
    pub(in super::super) const GET_INFO: u8 = 15;
    pub(in super::super) const ZERO: u8 = 16;
    pub(in super::super) const FLUSH: u8 = 17;
}

pub(super) const SERVICE: u16 = 1;
pub(super) const DEST: u16 = 2;
pub(super) const TIMEOUT_TCP: u16 = 4;
pub(super) const TIMEOUT_TCP_FIN: u16 = 5;
pub(super) const TIMEOUT_UDP: u16 = 6;

const SVC_AF: u16 = 1;
const SVC_PROTOCOL: u16 = 2;
const SVC_ADDR: u16 = 3;
const SVC_PORT: u16 = 4;
const SVC_FWMARK: u16 = 5;
const SVC_SCHED_NAME: u16 = 6;
const SVC_FLAGS: u16 = 7;
const SVC_TIMEOUT: u16 = 8;
const SVC_NETMASK: u16 = 9;
const SVC_STATS: u16 = 10;
const SVC_PE_NAME: u16 = 11;
const SVC_STATS64: u16 = 12;

const PERSISTENT: u32 = 0x1;
const HASHED: u32 = 0x2;
const ONE_PACKET: u32 = 0x4;
/// IP_VS_SVC_F_SCHED2: of `sh` that the port counts, too (IP_VS_SVC_F_SCHED_SH_PORT), and the same of `mh`.
const HASHES_PORT: u32 = 0x10;

const DEST_ADDR: u16 = 1;
const DEST_PORT: u16 = 2;
const DEST_FWD_METHOD: u16 = 3;
const DEST_WEIGHT: u16 = 4;
const DEST_U_THRESH: u16 = 5;
const DEST_L_THRESH: u16 = 6;
const DEST_ACTIVE_CONNS: u16 = 7;
const DEST_INACT_CONNS: u16 = 8;
const DEST_PERSIST_CONNS: u16 = 9;
const DEST_STATS: u16 = 10;
const DEST_ADDR_FAMILY: u16 = 11;
const DEST_STATS64: u16 = 12;
const DEST_TUN_TYPE: u16 = 13;
const DEST_TUN_PORT: u16 = 14;
const DEST_TUN_FLAGS: u16 = 15;

const TUNNEL_GUE: u8 = 1;
const TUNNEL_GRE: u8 = 2;
/// IP_VS_TUNNEL_ENCAP_FLAG_CSUM, IP_VS_TUNNEL_ENCAP_FLAG_REMCSUM.
const TUNNEL_SUM: u16 = 1;
const TUNNEL_REMOTE_SUM: u16 = 2;

const METHOD_MASK: u32 = 0x7;
const MASQUERADE: u32 = 0;
const TUNNEL: u32 = 2;
const DIRECT: u32 = 3;

const INFO_VERSION: u16 = 1;
const INFO_SIZE: u16 = 2;
/// 1.2.1, which the kernel says since 2008.
const IPVS_VERSION: u32 = 0x01_02_01;

/// What is answered by a number of errno(3), and for the log why, where the number does not tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Errno {
    pub(super) number: i32,
    pub(super) why: Option<String>,
}

impl From<i32> for Errno {
    fn from(number: i32) -> Self {
        Self { number, why: None }
    }
}

fn because(number: i32, why: impl Into<String>) -> Errno {
    Errno { number, why: Some(why.into()) }
}

/// How destinations by masquerading are forwarded to, and what the kernel's IPVS does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forwarding {
    pub masquerade: ForwardingMethod,
    /// Given to services with FullNAT and tunnels, those of their family.
    pub local: Vec<IpAddr>,
}

impl Forwarding {
    /// Local addresses for what has an address of this family.
    pub fn local_for(&self, other: IpAddr) -> Vec<IpAddr> {
        self.local.iter().filter(|local| local.is_ipv4() == other.is_ipv4()).copied().collect()
    }
}

/// A service as a program adds or changes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WantedService {
    pub(super) scheduler: String,
    /// A time of 0 where there is to be none.
    pub(super) persistence: ServicePersistence,
    /// Each datagram is to be scheduled by itself.
    pub(super) is_one_packet: bool,
}

/// A destination as a program adds or changes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WantedDestination {
    pub(super) forward: ForwardingMethod,
    pub(super) weight: u32,
    pub(super) limit: u32,
    pub(super) lower_limit: u32,
    /// Of one that is forwarded to by a tunnel.
    pub(super) tunnel: Option<Tunnel>,
}

fn address(family: u16, bytes: [u8; 16]) -> Result<IpAddr, Errno> {
    match i32::from(family) {
        AF_INET => Ok(Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).into()),
        AF_INET6 => Ok(Ipv6Addr::from(bytes).into()),
        _ => Err(EAFNOSUPPORT.into()),
    }
}

fn family_of(address: IpAddr) -> u16 {
    (if address.is_ipv4() { AF_INET } else { AF_INET6 }) as u16
}

fn address_bytes(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&v4.octets());
            bytes
        }
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// Which service a request means.
pub(super) fn service(request: Attributes<'_>) -> Result<ServiceKey, Errno> {
    let said = request.nested(SERVICE).ok_or(EINVAL)?;
    let family = said.u16(SVC_AF).ok_or(EINVAL)?;
    if !matches!(i32::from(family), AF_INET | AF_INET6) {
        return Err(EAFNOSUPPORT.into());
    }
    if let Some(mark) = said.u32(SVC_FWMARK).filter(|mark| *mark != 0) {
        return Err(because(
            EINVAL,
            format!(
                "firewall mark {mark}: packets have no marks yet where the balancer takes them: name addresses and ports, and have them in one persistence_group"
            ),
        ));
    }
    let (protocol, bytes) = (said.u16(SVC_PROTOCOL).ok_or(EINVAL)?, said.array(SVC_ADDR).ok_or(EINVAL)?);
    let port = said.be16(SVC_PORT).ok_or(EINVAL)?;
    let address = SocketAddr::new(address(family, bytes)?, port);
    let protocol = match i32::from(protocol) {
        IPPROTO_TCP => Protocol::Tcp,
        IPPROTO_UDP => Protocol::Udp,
        other => {
            return Err(because(
                EPROTONOSUPPORT,
                format!("protocol {other} for {address}: the balancer has services of TCP and UDP"),
            ));
        }
    };
    Ok(ServiceKey { protocol, address })
}

/// What a service shall be.
pub(super) fn wanted_service(request: Attributes<'_>) -> Result<WantedService, Errno> {
    let said = request.nested(SERVICE).ok_or(EINVAL)?;
    let scheduler = said.text(SVC_SCHED_NAME).ok_or(EINVAL)?;
    let flags: [u8; 8] = said.array(SVC_FLAGS).ok_or(EINVAL)?;
    let (timeout, mask) = (said.u32(SVC_TIMEOUT).ok_or(EINVAL)?, said.u32(SVC_NETMASK).ok_or(EINVAL)?);
    let half = |at: usize| u32::from_ne_bytes([flags[at], flags[at + 1], flags[at + 2], flags[at + 3]]);
    let flags = half(0) & half(4);
    if let Some(engine) = said.text(SVC_PE_NAME).filter(|name| !name.is_empty()) {
        return Err(because(
            ENOENT,
            format!("persistence engine '{engine}': persistence is by the client's address alone"),
        ));
    }
    if !SCHEDULERS.iter().any(|(known, _)| *known == scheduler) {
        let known = SCHEDULERS.map(|(name, _)| name).join(", ");
        return Err(because(ENOENT, format!("scheduler '{scheduler}': the balancer has {known}")));
    }
    if scheduler == "sh" && flags & HASHES_PORT != 0 {
        return Err(because(EINVAL, "sh-port: sh is by the client's address here; mh is by its address and port"));
    }
    let mut persistence = ServicePersistence { timeout: Some(0), ..ServicePersistence::default() };
    if flags & PERSISTENT != 0 {
        let is_ipv6 = said.u16(SVC_AF).map(i32::from) == Some(AF_INET6);
        let prefix = persistent_prefix(mask, is_ipv6)?;
        if !(1..=MAX_TIMEOUT).contains(&timeout) {
            return Err(because(EINVAL, format!("persistence for {timeout} s: it is for 1 s to 30 days")));
        }
        persistence.timeout = Some(timeout);
        *(if is_ipv6 { &mut persistence.prefix6 } else { &mut persistence.prefix4 }) = Some(prefix);
    }
    let is_one_packet = flags & ONE_PACKET != 0;
    Ok(WantedService { scheduler: scheduler.to_owned(), persistence, is_one_packet })
}

/// The bits of a source: of IPv6 that number is said, of IPv4 a mask.
fn persistent_prefix(mask: u32, is_ipv6: bool) -> Result<u32, Errno> {
    let bits = match is_ipv6 {
        true => Some(mask),
        false => ipnet::ipv4_mask_to_prefix(Ipv4Addr::from(mask.to_ne_bytes())).ok().map(u32::from),
    };
    let most = if is_ipv6 { 128 } else { 32 };
    bits.filter(|bits| (1..=most).contains(bits)).ok_or_else(|| {
        because(
            EINVAL,
            "the mask of persistence (-M, persistence_granularity) is not of ones, then zeros: sources are prefixes",
        )
    })
}

/// Which destination a request means.
pub(super) fn destination(request: Attributes<'_>, service: ServiceKey) -> Result<SocketAddr, Errno> {
    let said = request.nested(DEST).ok_or(EINVAL)?;
    let family = said.u16(DEST_ADDR_FAMILY).filter(|family| *family != 0);
    let family = family.unwrap_or(family_of(service.address.ip()));
    let address = address(family, said.array(DEST_ADDR).ok_or(EINVAL)?)?;
    let address = SocketAddr::new(address, said.be16(DEST_PORT).ok_or(EINVAL)?);
    if address.is_ipv6() && service.address.is_ipv4() {
        let why = format!("destination {address} of service {}: both have to be of one family", service.address);
        return Err(because(EINVAL, why));
    }
    Ok(address)
}

/// What a destination shall be.
pub(super) fn wanted_destination(
    request: Attributes<'_>,
    address: SocketAddr,
    forwarding: &Forwarding,
) -> Result<WantedDestination, Errno> {
    let said = request.nested(DEST).ok_or(EINVAL)?;
    let number = |kind| said.u32(kind).ok_or(Errno::from(EINVAL));
    let forward = match number(DEST_FWD_METHOD)? & METHOD_MASK {
        MASQUERADE => forwarding.masquerade,
        TUNNEL => ForwardingMethod::Tunnel,
        DIRECT => ForwardingMethod::Route,
        other => {
            let why = format!(
                "destination {address}: forwarding method {other} is not there; choose masquerading, routing or tunnelling"
            );
            return Err(because(EINVAL, why));
        }
    };
    if matches!(forward, ForwardingMethod::FullNat | ForwardingMethod::Tunnel)
        && forwarding.local_for(address.ip()).is_empty()
    {
        let why = format!(
            "destination {address}: FullNAT and tunnels need local addresses of its family: give `netrig lb ipvs` some with --local"
        );
        return Err(because(EINVAL, why));
    }
    let weight = number(DEST_WEIGHT)?;
    if weight > MAX_WEIGHT {
        return Err(because(ERANGE, format!("destination {address}: weights are 0 to {MAX_WEIGHT}")));
    }
    let (limit, lower) = (number(DEST_U_THRESH)?, number(DEST_L_THRESH)?);
    if lower > limit {
        let why = format!("destination {address}: a lower threshold without an upper one that is at least as high");
        return Err(because(ERANGE, why));
    }
    let tunnel = if forward == ForwardingMethod::Tunnel { Some(wanted_tunnel(said, address)?) } else { None };
    Ok(WantedDestination { forward, weight, limit, lower_limit: lower, tunnel })
}

fn wanted_tunnel(said: Attributes<'_>, address: SocketAddr) -> Result<Tunnel, Errno> {
    let name = match said.u8(DEST_TUN_TYPE) {
        None | Some(0) => "ipip",
        Some(TUNNEL_GUE) => "gue",
        Some(TUNNEL_GRE) => "gre",
        Some(other) => {
            return Err(because(EINVAL, format!("destination {address}: there is no tunnel of type {other}")));
        }
    };
    let flags = said.u16(DEST_TUN_FLAGS).unwrap_or(0);
    if flags & TUNNEL_REMOTE_SUM != 0 {
        let why = format!("destination {address}: remote checksum offload (--tun-remcsum) is not there");
        return Err(because(EINVAL, why));
    }
    if flags & !TUNNEL_SUM != 0 {
        let why = format!("destination {address}: flags {flags:#x} of its tunnel are not all known");
        return Err(because(EINVAL, why));
    }
    // IPVS, too, wants one to be said.
    let port = if name == "gue" { Some(said.be16(DEST_TUN_PORT).unwrap_or(0)) } else { None };
    tunnel(name, port, Some(flags & TUNNEL_SUM != 0))
        .map_err(|misfit| because(EINVAL, format!("destination {address}: {misfit}")))
}

/// `false` where a program has another idea than the balancer of what a scheduler does.
pub(super) fn says_port_of_maglev(request: Attributes<'_>) -> bool {
    let flags = request.nested(SERVICE).and_then(|said| said.array::<8>(SVC_FLAGS)).unwrap_or_default();
    u32::from_ne_bytes([flags[0], flags[1], flags[2], flags[3]]) & HASHES_PORT != 0
}

/// What is answered about the family itself (CTRL_CMD_NEWFAMILY).
pub(super) fn described(to: &Message<'_>) -> Vec<u8> {
    let mut answer = Writer::generic(to, 0, 1, 2);
    answer.put_text(2, NAME).put_u16(1, ID).put_u32(3, VERSION.into()).put_u32(4, 0).put_u32(5, HIGHEST_ATTRIBUTE);
    answer.end()
}

/// Whether CTRL_CMD_GETFAMILY is about this family.
pub(super) fn is_meant(request: Attributes<'_>) -> bool {
    request.text(2) == Some(NAME) || request.u16(1) == Some(ID)
}

pub(super) fn info(to: &Message<'_>, status: &Status) -> Vec<u8> {
    let mut answer = Writer::generic(to, 0, command::SET_INFO, VERSION);
    let size = u32::try_from(status.table.capacity).unwrap_or(u32::MAX);
    answer.put_u32(INFO_VERSION, IPVS_VERSION).put_u32(INFO_SIZE, size);
    answer.end()
}

pub(super) fn config(to: &Message<'_>, status: &Status) -> Vec<u8> {
    let mut answer = Writer::generic(to, 0, command::SET_CONFIG, VERSION);
    let timeouts = status.timeouts;
    answer
        .put_u32(TIMEOUT_TCP, timeouts.tcp)
        .put_u32(TIMEOUT_TCP_FIN, timeouts.tcp_fin)
        .put_u32(TIMEOUT_UDP, timeouts.udp);
    answer.end()
}

/// By how many the last rates per second can be told.
fn whole(rate: f64) -> u64 {
    rate.round().clamp(0.0, u64::MAX as f64) as u64
}

fn stats(to: &mut Writer, narrow: u16, wide: u16, counters: &Counters, rates: &Rates) {
    let Counters { connections, in_packets, out_packets, in_bytes, out_bytes, refused: _ } = *counters;
    let figures = [connections, in_packets, out_packets, in_bytes, out_bytes];
    let rates = [rates.connections, rates.in_packets, rates.out_packets, rates.in_bytes, rates.out_bytes].map(whole);
    let figures = figures.into_iter().chain(rates);
    to.nest(narrow, |to| {
        for (kind, figure) in (1..).zip(figures.clone()) {
            match kind {
                4 | 5 => to.put_u64(kind, figure),
                // The kernel's are the lower 32 bits of its counters.
                1..=3 => to.put_u32(kind, figure as u32),
                _ => to.put_u32(kind, u32::try_from(figure).unwrap_or(u32::MAX)),
            };
        }
    });
    to.nest(wide, |to| {
        for (kind, figure) in (1..).zip(figures.clone()) {
            to.put_u64(kind, figure);
        }
    });
}

pub(super) fn service_entry(to: &Message<'_>, flags: u16, entry: &ServiceEntry) -> Vec<u8> {
    let mut answer = Writer::generic(to, flags, command::NEW_SERVICE, VERSION);
    let ServiceKey { protocol, address } = entry.key;
    let protocol = match protocol {
        Protocol::Tcp => IPPROTO_TCP,
        Protocol::Udp => IPPROTO_UDP,
    };
    // What `mh` does here is what IPVS's does by mh-port.
    let says = HASHED
        | if entry.scheduler == "mh" { HASHES_PORT } else { 0 }
        | if entry.persistence.timeout.is_some() { PERSISTENT } else { 0 }
        | if entry.one_packet { ONE_PACKET } else { 0 };
    let bits = entry.persistence.prefix(address.is_ipv6());
    let mask = if address.is_ipv6() { bits.into() } else { (u32::MAX << (32 - bits.clamp(1, 32))).to_be() };
    answer.nest(SERVICE, |to| {
        to.put_u16(SVC_AF, family_of(address.ip())).put_u16(SVC_PROTOCOL, protocol as u16);
        to.put(SVC_ADDR, &address_bytes(address.ip())).put_be16(SVC_PORT, address.port());
        to.put_text(SVC_SCHED_NAME, &entry.scheduler);
        to.put(SVC_FLAGS, &[says.to_ne_bytes(), u32::MAX.to_ne_bytes()].concat());
        to.put_u32(SVC_TIMEOUT, entry.persistence.timeout.unwrap_or(0)).put_u32(SVC_NETMASK, mask);
        stats(to, SVC_STATS, SVC_STATS64, &entry.counters, &entry.rates);
    });
    answer.end()
}

pub(super) fn destination_entry(
    to: &Message<'_>,
    flags: u16,
    forward: ForwardingMethod,
    entry: &BackendEntry,
) -> Vec<u8> {
    let mut answer = Writer::generic(to, flags, command::NEW_DEST, VERSION);
    let method = match forward {
        ForwardingMethod::FullNat | ForwardingMethod::Nat => MASQUERADE,
        ForwardingMethod::Route => DIRECT,
        ForwardingMethod::Tunnel => TUNNEL,
    };
    answer.nest(DEST, |to| {
        to.put(DEST_ADDR, &address_bytes(entry.address.ip())).put_be16(DEST_PORT, entry.address.port());
        to.put_u32(DEST_FWD_METHOD, method).put_u32(DEST_WEIGHT, entry.weight);
        to.put_u32(DEST_U_THRESH, entry.limit.unwrap_or(0)).put_u32(DEST_L_THRESH, entry.lower_limit.unwrap_or(0));
        to.put_u32(DEST_ACTIVE_CONNS, entry.active)
            .put_u32(DEST_INACT_CONNS, entry.inactive)
            .put_u32(DEST_PERSIST_CONNS, entry.persistent);
        to.put_u16(DEST_ADDR_FAMILY, family_of(entry.address.ip()));
        let (kind, port, flags) = match entry.tunnel {
            None | Some(Tunnel::Ipip) => (0, 0, 0),
            Some(Tunnel::Gue { port, checksum }) => (TUNNEL_GUE, port.get(), if checksum { TUNNEL_SUM } else { 0 }),
            Some(Tunnel::Gre) => (TUNNEL_GRE, 0, 0),
        };
        to.put(DEST_TUN_TYPE, &[kind]).put_be16(DEST_TUN_PORT, port).put_u16(DEST_TUN_FLAGS, flags);
        stats(to, DEST_STATS, DEST_STATS64, &entry.counters, &entry.rates);
    });
    answer.end()
}
