//! Limits of services and of each of their sources, which the program keeps to: bpf/balancer/sources.h.

use std::ops::ControlFlow;

use crate::Error;

use super::config::{Limits, Service};
use super::control::Balancer;
use super::handle::BalancerHandle;
use super::persistence::group_of;
use super::shape::{self, SOURCE_LENGTHS, SOURCE_WAYS, Source, SourceSet, access};

/// Of IPv4 written in IPv6.
const MAPPED: u8 = 96;

/// As the program has it, after `before`; `None` where all places for lengths are those of connections that there are.
fn limits(wanted: &Limits, is_ipv6: bool, before: shape::Limits, is_idle: bool) -> Option<shape::Limits> {
    let pace = |rate: Option<super::Rate>| rate.map_or((0, 0), super::Rate::gap_and_slack);
    let ((gap, slack), (source_gap, source_slack)) = (pace(wanted.new_rate), pace(wanted.source_rate));
    let source_limit = wanted.source_limit.map_or(0, std::num::NonZero::get);
    let mut now = shape::Limits { gap, slack, source_gap, source_slack, source_limit, current: 0, ..before };
    if !wanted.of_sources() {
        return Some(now);
    }
    let length = wanted.source_bits(is_ipv6) + if is_ipv6 { 0 } else { MAPPED };
    let has = |now: &shape::Limits, wanted| (1..SOURCE_LENGTHS).find(|at| now.length[*at] == wanted);
    let mut at = has(&now, length).or_else(|| has(&now, 0));
    if at.is_none() && is_idle {
        // One that begins at this moment does so under what is in force.
        let keep = before.current as usize;
        (1..SOURCE_LENGTHS).filter(|at| *at != keep).for_each(|at| now.length[at] = 0);
        at = has(&now, 0);
    }
    let at = at?;
    now.length[at] = length;
    now.current = at as u32;
    Some(now)
}

/// Counters of sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SourceTable {
    /// Connections that count at any.
    pub connections: u64,
    /// Sources that have some.
    pub sources: u64,
}

impl BalancerHandle {
    /// What sources have, of all services together. Read from the whole table, which takes a call for 16,384 counters.
    pub fn source_table(&self) -> Result<SourceTable, Error> {
        let mut sum = SourceTable::default();
        self.tables.sources.each(|_, set: SourceSet| {
            let counts = set.iter().map(|source| u64::from(source.word as u32));
            sum.connections += counts.clone().sum::<u64>();
            sum.sources += counts.filter(|count| *count > 0).count() as u64;
            ControlFlow::Continue(())
        })?;
        Ok(sum)
    }
}

impl Balancer {
    /// A new service has none.
    pub(super) fn begin_limits(&self, number: u32) -> Result<(), Error> {
        let tables = &self.handle.tables;
        tables.limits.set(&number, &shape::Limits::default())?;
        tables.paces.set(&number, &0_u64)?;
        tables.unlimited.set_all_cpus(number, &0_u64)
    }

    /// Puts a service's limits in place; the bit that has its first packets asked about.
    pub(super) fn apply_limits(&self, number: u32, service: &Service) -> Result<u8, Error> {
        let tables = &self.handle.tables;
        let before: shape::Limits = tables.limits.at(number)?;
        let is_idle = tables.held.at::<u64>(number)? == 0;
        let most = SOURCE_LENGTHS - 1;
        let now = limits(&service.limits, service.address.is_ipv6(), before, is_idle)
            .ok_or(Error::SourcePrefixes { service: service.address, most })?;
        let now = shape::Limits { group: group_of(service), ..now };
        if now != before {
            // A packet that finds a length in force finds what it is.
            tables.limits.set(&number, &shape::Limits { length: now.length, ..before })?;
            tables.limits.set(&number, &now)?;
        }
        Ok(if service.limits.is_empty() { 0 } else { access::LIMITED })
    }

    /// As if no source had begun anything.
    pub(super) fn forget_sources(&self) -> Result<(), Error> {
        let sources = &self.handle.tables.sources;
        sources.set_range(0, &vec![[Source::default(); SOURCE_WAYS]; sources.entries() as usize])
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    fn of(source_prefix: u8) -> Limits {
        Limits { source_limit: NonZeroU32::new(5), source_prefix: Some(source_prefix), ..Limits::default() }
    }

    /// A connection is found under the length that it has begun with, as long as there is one.
    #[test]
    fn lengths_stay_as_long_as_connections_may_have_them() {
        let mut known = shape::Limits::default();
        for (nth, bits) in [32, 24, 16, 8, 31, 30, 29].into_iter().enumerate() {
            known = limits(&of(bits), false, known, false).unwrap();
            assert_eq!((known.current as usize, known.length[nth + 1]), (nth + 1, bits + 96));
        }
        let again = limits(&of(24), false, known, false).unwrap();
        assert_eq!((again.current, again.length), (2, known.length));
        assert_eq!(limits(&Limits::default(), false, again, false).unwrap().length, known.length);
        assert_eq!(limits(&of(28), false, again, false), None);
        let anew = limits(&of(28), false, again, true).unwrap();
        assert_eq!((anew.current, anew.length), (1, [0, 124, 120, 0, 0, 0, 0, 0]));
    }
}
