//! Where packets go, and by which way they have to come.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;

use super::super::config::{Config, NextHop};
use super::super::reason::Reason;
use super::packet::Tuple;

/// Tables that a route may lead through.
const MOST_TABLES: usize = 3;
/// Source ports of tunnels are dynamic ones (RFC 6335, 6), as RFC 7510 and RFC 7348 want them.
const FIRST_TUNNEL_PORT: u16 = 49152;

/// The interface or the peer's tunnel that a packet came by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ingress {
    Interface(u32),
    Peer(Ipv4Addr),
}

/// The most precise route of a table.
fn route_to(config: &Config, vrf: u32, to: IpAddr) -> Option<(&IpNet, &NextHop)> {
    let routes = config.vrfs.get(&vrf)?.routes.iter();
    routes.filter(|(prefix, _)| prefix.contains(&to)).max_by_key(|(prefix, _)| prefix.prefix_len())
}

/// The route of a table, and where it leads to another one that one's, each with the number of its table.
pub(super) fn routes(config: &Config, vrf: u32, to: IpAddr) -> impl Iterator<Item = (u32, &IpNet, &NextHop)> {
    let first = route_to(config, vrf, to).map(|(prefix, hop)| (vrf, prefix, hop));
    let next = move |(_, _, hop): &(u32, &IpNet, &NextHop)| {
        let NextHop::Vrf(vrf) = hop else { return None };
        route_to(config, *vrf, to).map(|(prefix, hop)| (*vrf, prefix, hop))
    };
    std::iter::successors(first, next).take(MOST_TABLES)
}

/// Where the last of the routes leads that follow one another from table to table.
fn through_tables(config: &Config, vrf: u32, to: IpAddr) -> Result<&NextHop, Reason> {
    let (count, last) = routes(config, vrf, to).fold((0, None), |(count, _), (.., hop)| (count + 1, Some(hop)));
    match last.ok_or(Reason::NoRoute)? {
        NextHop::Vrf(_) if count == MOST_TABLES => Err(Reason::InvalidNh),
        NextHop::Vrf(_) => Err(Reason::NoRoute),
        hop => Ok(hop),
    }
}

/// What takes a packet: an interface, a tunnel or the gateway.
pub(super) fn resolve(config: &Config, vrf: u32, to: IpAddr, hash: u32) -> Result<NextHop, Reason> {
    match through_tables(config, vrf, to)? {
        NextHop::Discard => Err(Reason::Discard),
        NextHop::Ecmp(next_hops) => {
            let index = (u64::from(hash) * next_hops.len() as u64) >> 32;
            next_hops.get(index as usize).cloned().ok_or(Reason::InvalidNh)
        }
        hop => Ok(hop.clone()),
    }
}

/// The way back to the sender, which must be the one by which its packet came (strict reverse path, RFC 3704, 2.2).
pub(super) fn way_back(config: &Config, vrf: u32, source: IpAddr, by: Ingress) -> Result<NextHop, Reason> {
    let is_by = |hop: &&NextHop| match (hop, by) {
        (NextHop::Interface(number), Ingress::Interface(own)) => *number == own,
        (NextHop::Tunnel(tunnel), Ingress::Peer(peer)) => tunnel.peer == peer,
        _ => false,
    };
    let hop = through_tables(config, vrf, source).map_err(|_| Reason::InvalidSource)?;
    let index = match hop {
        NextHop::Ecmp(next_hops) => next_hops.iter().find(is_by),
        hop => Some(hop).filter(is_by),
    };
    index.cloned().ok_or(Reason::InvalidSource)
}

/// A flow's hash, equal for all its packets in one direction. Any function that spreads well would do; this is the programs'.
pub(super) fn hash(tuple: &Tuple, protocol: u8) -> u32 {
    let halves = |address: IpAddr| {
        let octets = match address {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
            IpAddr::V6(v6) => v6.to_bits(),
        }
        .to_be_bytes();
        let half = |at: usize| std::array::from_fn(|byte| octets[at + byte]);
        (u64::from_ne_bytes(half(0)), u64::from_ne_bytes(half(8)))
    };
    let ((source_hi, source_lo), (to_hi, to_lo)) = (halves(tuple.source), halves(tuple.destination));
    let ports = u64::from(tuple.source_port.to_be()) << 16 | u64::from(tuple.destination_port.to_be());
    let terms = [
        (source_hi, 0x9e37_79b9_7f4a_7c15),
        (source_lo, 0xc2b2_ae3d_27d4_eb4f),
        (to_hi, 0x1656_67b1_9e37_79f9),
        (to_lo, 0xd6e8_feb8_6659_fd93),
        (ports | u64::from(protocol) << 32, 0xff51_afd7_ed55_8ccd_u64),
    ];
    let mut h = terms.iter().fold(0_u64, |sum, (word, by)| sum.wrapping_add(word.wrapping_mul(*by)));
    h ^= h >> 32;
    (h.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}

/// The source port of a flow's tunnel packets.
pub(super) fn tunnel_port(hash: u32) -> u16 {
    FIRST_TUNNEL_PORT + (hash >> 18) as u16
}
