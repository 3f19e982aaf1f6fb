//! What was put into the balancer, for one that is started again without it: programs that drive IPVS count on a kernel that does not
//! forget.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::message::{BackendOptions, RuleChange, ServiceKey, ServiceOptions, Status};

#[derive(Debug, Default)]
pub(super) struct AppliedRules {
    services: BTreeMap<ServiceKey, AppliedService>,
    timeouts: Option<RuleChange>,
}

#[derive(Debug, Default)]
struct AppliedService {
    options: ServiceOptions,
    backends: BTreeMap<SocketAddr, BackendOptions>,
}

impl AppliedRules {
    /// A change that was made.
    pub(super) fn learn(&mut self, change: &RuleChange) {
        match change {
            RuleChange::AddService { service, options } => {
                self.services
                    .insert(*service, AppliedService { options: options.clone(), ..AppliedService::default() });
            }
            RuleChange::EditService { service, options } => {
                if let Some(known) = self.services.get_mut(service) {
                    known.options.clone_from(options);
                }
            }
            RuleChange::DeleteService { service } => drop(self.services.remove(service)),
            // Of a service that another has made, too: where it is there again, so shall be this.
            RuleChange::AddBackend { service, backend, options } => {
                if let Some(known) = self.services.get_mut(service) {
                    known.backends.insert(*backend, options.clone());
                }
            }
            RuleChange::EditBackend { service, backend, options } => {
                let backends = self.services.get_mut(service).map(|known| &mut known.backends);
                if let Some(known) = backends.and_then(|backends| backends.get_mut(backend)) {
                    known.clone_from(options);
                }
            }
            RuleChange::DeleteBackend { service, backend } => {
                self.services.get_mut(service).and_then(|known| known.backends.remove(backend));
            }
            RuleChange::Timeouts { .. } => self.timeouts = Some(change.clone()),
            RuleChange::Clear => self.services.clear(),
            // What no program of IPVS says.
            RuleChange::AddLocal { .. }
            | RuleChange::DeleteLocal { .. }
            | RuleChange::Allow { .. }
            | RuleChange::Deny { .. }
            | RuleChange::RemovePrefix { .. } => {}
        }
    }

    /// The changes after which a balancer has it all.
    pub(super) fn missing(&self, status: &Status) -> Vec<RuleChange> {
        let has = status.timeouts;
        let differs = |change: &&RuleChange| match change {
            RuleChange::Timeouts { tcp, tcp_fin, udp } => [(*tcp, has.tcp), (*tcp_fin, has.tcp_fin), (*udp, has.udp)]
                .iter()
                .any(|(said, has)| *said != 0 && said != has),
            _ => false,
        };
        let mut edits: Vec<RuleChange> = self.timeouts.iter().filter(differs).cloned().collect();
        for (key, AppliedService { options, backends }) in &self.services {
            let there = status.services.iter().find(|service| service.open && service.key == *key);
            if there.is_none() {
                edits.push(RuleChange::AddService { service: *key, options: options.clone() });
            }
            for (backend, options) in backends {
                if !there.is_some_and(|service| super::answers::has(service, *backend)) {
                    let options = options.clone();
                    edits.push(RuleChange::AddBackend { service: *key, backend: *backend, options });
                }
            }
        }
        edits
    }
}
