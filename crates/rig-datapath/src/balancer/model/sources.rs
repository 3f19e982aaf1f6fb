//! How many connections sources have, and how fast they and services begin them.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

use super::super::config::{Protocol, Rate};
use super::super::reason::Drop;
use super::super::shape::TICK_SHIFT;
use super::{Model, ServiceId};

/// A source of a service: protocol and address of that, and the source's prefix.
pub(super) type SourceId = (Protocol, SocketAddr, IpNet);

/// The time of a tick, nanoseconds.
fn time(tick: u32) -> u64 {
    u64::from(tick) << TICK_SHIFT
}

/// How far the next one of a rate is ahead: what a rate of before has left is no more than a burst that is used up.
fn ahead_by(rate: Rate, next: u64, tick: u32) -> u64 {
    let (gap, slack) = rate.gap_and_slack();
    let by = next.saturating_sub(time(tick));
    if by > slack + gap + 1_000_000_000 { slack } else { by }
}

/// Whether one more is within a rate, of which the next is due at `next`.
fn keeps(rate: Option<Rate>, next: u64, tick: u32) -> bool {
    rate.is_none_or(|rate| ahead_by(rate, next, tick) <= rate.gap_and_slack().1)
}

fn advance(rate: Option<Rate>, next: &mut u64, tick: u32) {
    if let Some(rate) = rate {
        *next = time(tick) + ahead_by(rate, *next, tick) + rate.gap_and_slack().0;
    }
}

impl Model {
    /// What a client's connection counts under, where the service limits its sources.
    fn source_of(&self, service: ServiceId, client: IpAddr) -> Option<SourceId> {
        let service = &self.services[service.0].service;
        let bits = service.limits.source_bits(client.is_ipv6());
        let source = IpNet::new(client, bits).ok()?.trunc();
        service.limits.of_sources().then_some((service.protocol, service.address, source))
    }

    pub(super) fn refusal_by_limit(&self, service: ServiceId, client: IpAddr, tick: u32) -> Option<Drop> {
        let known = &self.services[service.0];
        let limits = &known.service.limits;
        if let Some(source) = self.source_of(service, client) {
            let of_source = self.connections.iter().filter(|connection| connection.source == Some(source)).count();
            if limits.source_limit.is_some_and(|limit| of_source >= limit.get() as usize) {
                return Some(Drop::SourceLimit);
            }
            if !keeps(limits.source_rate, self.sources.get(&source).copied().unwrap_or(0), tick) {
                return Some(Drop::SourceRate);
            }
        }
        (!keeps(limits.new_rate, known.pace, tick)).then_some(Drop::NewRate)
    }

    /// A connection begins that has not been refused; what it counts under.
    pub(super) fn count_at_source(&mut self, service: ServiceId, client: IpAddr, tick: u32) -> Option<SourceId> {
        let limits = self.services[service.0].service.limits;
        let source = self.source_of(service, client);
        if let Some(source) = source {
            advance(limits.source_rate, self.sources.entry(source).or_default(), tick);
        }
        advance(limits.new_rate, &mut self.services[service.0].pace, tick);
        source
    }
}
