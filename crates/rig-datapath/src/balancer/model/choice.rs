//! Which backend a connection goes to.

use std::net::SocketAddr;

use super::super::config::Scheduler;
use super::super::encapsulation::Encapsulation;
use super::super::quic;
use super::super::reason::Drop;
use super::super::schedule::{self, LEAST_SCANNED};
use super::super::shape::State;
use super::packet::{Packet, Tuple};
use super::{BackendState, Model, ServiceId};

const LEAST_WALKED: usize = 64;
const SCHEDULE_TRIES: usize = 32;

impl BackendState {
    /// One that gets no connections yet.
    pub(super) fn new(service: ServiceId, address: SocketAddr) -> Self {
        Self {
            service,
            address,
            weight: 0,
            limit: 0,
            lower: 0,
            encapsulation: Encapsulation::default(),
            reached: 0,
            leaving: None,
            gone: false,
        }
    }
}

impl Model {
    /// Connections of a backend: all, and those that are established.
    pub(super) fn load(&self, backend: usize) -> (u64, u64) {
        let of = || self.connections.iter().filter(|connection| connection.backend == backend);
        (of().count() as u64, of().filter(|connection| connection.state == State::Established).count() as u64)
    }

    pub(super) fn admits(&self, backend: usize) -> bool {
        let BackendState { weight, limit, lower, reached, .. } = self.backends[backend];
        let most = if reached == limit && lower > 0 { lower } else { limit };
        weight > 0 && (limit == 0 || self.load(backend).0 < u64::from(most.min(limit)))
    }

    /// The one that a connection ID of QUIC names.
    pub(super) fn named_backend(&self, service: ServiceId, packet: &Packet, frame: &[u8]) -> Option<usize> {
        const UDP_HEADER: usize = 8;
        let known = &self.services[service.0].service;
        let id = quic::server_of(known.quic?, frame.get(packet.l4 + UDP_HEADER..)?)?;
        let named = known.backends.iter().find(|backend| backend.quic_id == Some(id))?;
        let backend = self.backends.iter().position(|known| {
            known.service == service && known.address == named.address && !known.gone && known.leaving.is_none()
        })?;
        (!known.expire.ends(false, self.backends[backend].weight)).then_some(backend)
    }

    /// A connection to it begins.
    pub(super) fn count_towards(&mut self, backend: usize) {
        let before = self.load(backend).0;
        let known = &mut self.backends[backend];
        if known.lower > 0 && before + 1 >= u64::from(known.limit) {
            known.reached = known.limit;
        } else if known.reached != known.limit || before < u64::from(known.lower) || known.lower == 0 {
            known.reached = 0;
        }
    }

    pub(super) fn schedule(&mut self, service: ServiceId, tuple: Tuple) -> Result<usize, Drop> {
        let client = tuple.source;
        let known = &self.services[service.0];
        let length = known.list.len();
        if length == 0 {
            return Err(Drop::NoBackend);
        }
        let first = match known.service.scheduler {
            Scheduler::LeastConnections
            | Scheduler::WeightedLeastConnections
            | Scheduler::ShortestExpectedDelay
            | Scheduler::NeverQueue => {
                let scheduler = known.service.scheduler;
                let list = known.list.clone();
                let open = list.iter().copied().filter(|backend| self.admits(*backend));
                let cost = |backend: usize| {
                    let (all, established) = self.load(backend);
                    let itself = match scheduler {
                        Scheduler::ShortestExpectedDelay => 256,
                        Scheduler::NeverQueue if all > 0 => 256,
                        _ => 0,
                    };
                    (established * 256 + all - established + itself, u64::from(self.backends[backend].weight))
                };
                let less = |best: usize, next: usize| {
                    let ((a, a_weight), (b, b_weight)) = (cost(best), cost(next));
                    if b * a_weight < a * b_weight { next } else { best }
                };
                let few = length <= LEAST_SCANNED;
                let of_two = (length > LEAST_SCANNED).then(|| {
                    let hash = (self.hash)(known.service.protocol, client, tuple.destination);
                    let (one, other) = (hash as u32, (hash >> 32) as u32);
                    let [one, mut other] = [one, other].map(|half| ((u64::from(half) * length as u64) >> 32) as usize);
                    if other == one {
                        other = (one + 1) % length;
                    }
                    [list[one], list[other]].into_iter().filter(|backend| self.admits(*backend)).reduce(less)
                });
                let least = match of_two.flatten() {
                    None if few => open.reduce(less),
                    None => {
                        let from = self.services[service.0].turn as usize % length;
                        let walked = list.iter().copied().cycle().skip(from).take(LEAST_WALKED.min(length));
                        let least = walked.filter(|backend| self.admits(*backend)).reduce(less);
                        self.services[service.0].turn += LEAST_WALKED as u64;
                        least
                    }
                    of_two => of_two,
                };
                return least.ok_or(Drop::BackendsFull);
            }
            Scheduler::RoundRobin | Scheduler::WeightedRoundRobin => {
                let turn = &mut self.services[service.0].turn;
                *turn += 1;
                (*turn - 1) as usize % length
            }
            Scheduler::SourceHash => schedule::hash_source(client, false) as usize % length,
            Scheduler::Maglev => schedule::hash_source(client, true) as usize % length,
        };
        let list = self.services[service.0].list.clone();
        let tried = list.iter().cycle().skip(first).take(SCHEDULE_TRIES);
        tried.copied().find(|backend| self.admits(*backend)).ok_or(Drop::BackendsFull)
    }
}
