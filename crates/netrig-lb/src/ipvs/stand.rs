//! A balancer that is its rules alone, for tests and fuzz targets.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use rig_service::{AskError, Refusal};

use super::answers::{Answers, Balancer};
use super::family::Forwarding;
use super::netlink::messages;
use super::session;
use crate::message::{
    BackendEntry, Counters, DefaultTimeouts, ForwardingMethod, Rates, Reply, Request, RuleChange, ServiceEntry,
    ServiceLimits, Status, TableStatus,
};
use crate::settings::{Rules, Service, scheduler_name};

/// The rules, and how many requests to change them were refused.
#[derive(Debug, Default)]
pub(super) struct OfRules(pub(super) Mutex<Rules>, pub(super) AtomicUsize);

fn entry(service: &Service) -> ServiceEntry {
    let backends = service.backends.iter().map(|backend| BackendEntry {
        address: backend.address,
        weight: backend.weight,
        limit: backend.limit.map(Into::into),
        lower_limit: backend.lower_limit.map(Into::into),
        tunnel: service.is_tunnel().then_some(backend.tunnel),
        quic_id: backend.quic_id,
        drain_ms: None,
        leaving: false,
        active: 3,
        inactive: 4,
        persistent: 0,
        counters: Counters { connections: 7, ..Counters::default() },
        total: Counters::default(),
        rates: Rates::default(),
        next_hop: None,
        health: None,
    });
    ServiceEntry {
        key: service.key,
        scheduler: scheduler_name(service.scheduler).to_owned(),
        forward: service.forward.unwrap_or(ForwardingMethod::Route),
        local: service.local.clone(),
        timeout: None,
        limit: None,
        limit_said: None,
        expire: String::new(),
        sloppy_tcp: false,
        reuse: String::new(),
        syn_proxy: String::new(),
        syn_proxy_said: None,
        syn_proxy_answers: false,
        client_address: String::new(),
        unanswered: 0,
        limits: ServiceLimits::default(),
        unlimited: 0,
        persistence: service.persistence,
        one_packet: service.one_packet,
        dscp: String::new(),
        quic: None,
        tunnel_source: None,
        open: true,
        lacks: None,
        counters: Counters { connections: u64::from(u32::MAX) + 6, in_bytes: 1 << 40, ..Counters::default() },
        total: Counters::default(),
        rates: Rates { connections: 2.5, out_bytes: 1e30, ..Rates::default() },
        refused: Vec::new(),
        health: None,
        backends: backends.collect(),
    }
}

impl OfRules {
    fn status(&self) -> Status {
        let rules = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        Status {
            netrig_version: String::new(),
            name: String::new(),
            process: 1,
            up_ms: 0,
            persist: false,
            file: None,
            devices: Vec::new(),
            workers: Vec::new(),
            table: TableStatus { capacity: 10_000, ..TableStatus::default() },
            timeouts: DefaultTimeouts { tcp: 90, tcp_fin: 120, udp: 300 },
            services: rules.services.iter().map(entry).collect(),
            drops: Vec::new(),
            passes: Vec::new(),
            rate_span_ms: 0,
            sync: None,
            bgp: None,
            withdrawn: false,
        }
    }

    fn edit(&self, edits: &[RuleChange]) -> Result<Reply, AskError> {
        let mut rules = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut new = rules.clone();
        for edit in edits {
            new.edit(edit).map_err(|error| {
                self.1.fetch_add(1, Ordering::Relaxed);
                Refusal::new(error.to_string(), None)
            })?;
        }
        *rules = new;
        Ok(Reply::Done(Vec::new()))
    }
}

impl Balancer for OfRules {
    fn ask(&self, request: &Request) -> Result<Reply, AskError> {
        match request {
            Request::Status => Ok(Reply::Status(Box::new(self.status()))),
            Request::Edit(edit) => self.edit(std::slice::from_ref(edit)),
            Request::Edits(edits) => self.edit(edits),
            Request::Zero(Some(key)) if !self.status().services.iter().any(|service| service.key == *key) => {
                Err(Refusal::new("No such service", None).into())
            }
            _ => Ok(Reply::Done(Vec::new())),
        }
    }
}

pub(crate) fn forwarding(local: bool) -> Forwarding {
    let local = if local { vec![[10, 8, 0, 1].into(), [10, 8, 0, 2].into()] } else { Vec::new() };
    let masquerade = if local.is_empty() { ForwardingMethod::Nat } else { ForwardingMethod::FullNat };
    Forwarding { masquerade, local }
}

/// Gives bytes to a balancer as a program's datagram; each answer has to be whole messages. How many services there are then.
///
/// # Panics
/// When an answer is cut.
pub(crate) fn play(bytes: &[u8]) -> usize {
    let answers = Answers::new(OfRules::default(), forwarding(bytes.first().is_some_and(|first| first % 2 == 0)));
    // What the kernel would be asked is thrown away.
    for datagram in session::answers_to(bytes, &answers) {
        let read: usize = messages(&datagram).map(|message| message.bytes.len().next_multiple_of(4)).sum();
        assert_eq!(read, datagram.len(), "an answer of {} bytes", datagram.len());
    }
    let rules = answers.balancer().0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    rules.services.len()
}
