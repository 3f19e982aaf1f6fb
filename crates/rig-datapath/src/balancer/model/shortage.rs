//! What runs short.

use super::super::config::ForwardingMethod;
use super::{Connection, Model, local_ports};

impl Model {
    /// Whether connections to a backend end early: unanswered ones, and those that are closing.
    pub(super) fn short(&self, backend: usize) -> (bool, bool) {
        let short = |taken: usize, of: usize| taken * 4 > of * 3;
        let count = |of: &dyn Fn(&&Connection) -> bool| self.connections.iter().filter(of).count();
        let known = &self.backends[backend];
        let service = &self.services[known.service.0].service;
        let table = short(self.connections.len() + self.dead.len(), self.capacity);
        let pools = service.locals_by_family();
        let pool = &pools[usize::from(service.translates_family(known.address))];
        let takes_port = |of: &&Connection| {
            self.backends[of.backend].address == known.address
                && self.services[of.service.0].service.protocol == service.protocol
                && of.local.is_some_and(|local| pool.contains(&local.ip()))
        };
        let translated = matches!(service.forward, ForwardingMethod::FullNat { .. });
        let ports = translated && short(count(&takes_port), pool.len() * local_ports::PORTS);
        let held = count(&|of| of.service == known.service);
        let at_service = service.limit.is_some_and(|limit| short(held, limit.get() as usize));
        let at_backend = known.limit > 0 && short(self.load(backend).0 as usize, known.limit as usize);
        (table || ports || at_service || at_backend, table || ports)
    }
}
