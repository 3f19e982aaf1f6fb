//! What was put into the balancer, for one that is started again without it or has read its file again: programs that drive IPVS count on
//! a kernel that does not forget.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::answers::backend_of;
use crate::message::{BackendEntry, BackendOptions, RuleChange, ServiceEntry, ServiceKey, ServiceOptions, Status};

#[derive(Debug, Default)]
pub(super) struct AppliedRules {
    services: BTreeMap<ServiceKey, AppliedService>,
    /// Seconds of TCP, of TCP after a FIN, and of UDP; 0 where nothing was said.
    timeouts: [u32; 3],
}

#[derive(Debug, Default)]
struct AppliedService {
    /// `None`: another has made it.
    options: Option<ServiceOptions>,
    /// Without local addresses, which are the same for all.
    backends: BTreeMap<SocketAddr, BackendOptions>,
}

fn without_local(options: &BackendOptions) -> BackendOptions {
    BackendOptions {
        forward: options.forward,
        weight: options.weight,
        limit: options.limit,
        lower_limit: options.lower_limit,
        tunnel: options.tunnel,
        quic_id: options.quic_id.clone(),
        drain_ms: options.drain_ms,
        local: Vec::new(),
    }
}

impl AppliedRules {
    /// A change that was made.
    pub(super) fn learn(&mut self, change: &RuleChange) {
        match change {
            RuleChange::AddService { service, options } => {
                let options = Some(options.clone());
                self.services.insert(*service, AppliedService { options, ..AppliedService::default() });
            }
            RuleChange::EditService { service, options } => {
                if let Some(known) = self.services.get_mut(service).and_then(|known| known.options.as_mut()) {
                    known.clone_from(options);
                }
            }
            RuleChange::DeleteService { service } => drop(self.services.remove(service)),
            // Of a service that another has made, too: where it is there again, so shall be this.
            RuleChange::AddBackend { service, backend, options } => {
                self.services.entry(*service).or_default().backends.insert(*backend, without_local(options));
            }
            RuleChange::EditBackend { service, backend, options } => {
                let backends = self.services.get_mut(service).map(|known| &mut known.backends);
                if let Some(known) = backends.and_then(|backends| backends.get_mut(backend)) {
                    *known = without_local(options);
                }
            }
            RuleChange::DeleteBackend { service, backend } => {
                self.services.get_mut(service).and_then(|known| known.backends.remove(backend));
            }
            RuleChange::Timeouts { tcp, tcp_fin, udp } => {
                for (known, said) in self.timeouts.iter_mut().zip([*tcp, *tcp_fin, *udp]) {
                    if said != 0 {
                        *known = said;
                    }
                }
            }
            RuleChange::Clear => self.services.clear(),
            // What no program of IPVS says.
            RuleChange::AddLocal { .. }
            | RuleChange::DeleteLocal { .. }
            | RuleChange::Allow { .. }
            | RuleChange::Deny { .. }
            | RuleChange::RemovePrefix { .. } => {}
        }
    }

    /// A change that was refused because it is so already: programs take that for done, and it may be an earlier one of theirs whose answer
    /// was lost, or from before this was started again.
    pub(super) fn learn_as_it_is(&mut self, change: &RuleChange) {
        match change {
            RuleChange::AddService { service, options } => {
                self.services.entry(*service).or_default().options.get_or_insert_with(|| options.clone());
            }
            RuleChange::AddBackend { service, backend, options } => {
                let known = self.services.entry(*service).or_default();
                known.backends.entry(*backend).or_insert_with(|| without_local(options));
            }
            RuleChange::DeleteService { .. } | RuleChange::DeleteBackend { .. } => self.learn(change),
            _ => {}
        }
    }

    /// The changes after which a balancer has it all.
    pub(super) fn missing(&self, status: &Status) -> Vec<RuleChange> {
        let mut edits = Vec::new();
        let [tcp, tcp_fin, udp] = self.timeouts;
        let has = [status.timeouts.tcp, status.timeouts.tcp_fin, status.timeouts.udp];
        if self.timeouts.iter().zip(has).any(|(said, has)| *said != 0 && *said != has) {
            edits.push(RuleChange::Timeouts { tcp, tcp_fin, udp });
        }
        for (key, AppliedService { options, backends }) in &self.services {
            let there = status.services.iter().find(|service| service.open && service.key == *key);
            match (there, options) {
                (None, None) => continue,
                (None, Some(options)) => {
                    edits.push(RuleChange::AddService { service: *key, options: options.clone() });
                }
                (Some(there), Some(options)) if is_another(there, options) => {
                    edits.push(RuleChange::EditService { service: *key, options: options.clone() });
                }
                _ => {}
            }
            for (backend, options) in backends {
                let (service, backend) = (*key, *backend);
                match there.and_then(|service| backend_of(service, backend)) {
                    None => edits.push(RuleChange::AddBackend { service, backend, options: options.clone() }),
                    Some(has) if differs(has, options) => {
                        edits.push(RuleChange::EditBackend { service, backend, options: options.clone() });
                    }
                    Some(_) => {}
                }
            }
        }
        edits
    }
}

fn is_another(has: &ServiceEntry, options: &ServiceOptions) -> bool {
    let wanted = has.persistence.changed(&options.persistence);
    options.scheduler.as_ref().is_some_and(|scheduler| *scheduler != has.scheduler)
        || wanted != Ok(has.persistence)
        || options.one_packet.is_some_and(|once| once != has.one_packet)
}

fn differs(has: &BackendEntry, options: &BackendOptions) -> bool {
    options.weight.is_some_and(|weight| weight != has.weight)
        || options.limit.is_some_and(|limit| limit != has.limit.unwrap_or(0))
        || options.lower_limit.is_some_and(|limit| limit != has.lower_limit.unwrap_or(0))
        || (options.tunnel.is_some() && options.tunnel != has.tunnel)
}
