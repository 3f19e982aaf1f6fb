//! Whether a configuration would find room, with nothing changed.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use crate::Error;

use super::access;
use super::config::Config;
use super::control::{Balancer, identity};
use super::registry::{Identity, ServiceEntry, ServiceRegistry, within};
use super::schedule;

impl Balancer {
    /// Whether `config` is valid and finds room in the tables beside all that has a place there now: what was removed has one until
    /// its last connection has ended. [`apply`](Self::apply) may find more, since it takes back the places of what has ended.
    pub fn check(&self, config: &Config) -> Result<(), Error> {
        config.validate()?;
        let (known, sizes) = (&self.known, self.handle.sizes);
        let services: BTreeSet<Identity> =
            known.services.keys().copied().chain(config.services.iter().map(identity)).collect();
        fits(services.len(), sizes.services, "services")?;
        fits(access::prefixes(config), sizes.prefixes, "prefixes")?;
        let locals = config.services.iter().flat_map(|service| service.forward.local());
        let locals: BTreeSet<IpAddr> = known.locals.keys().chain(locals).copied().collect();
        fits(locals.len(), sizes.local_addresses, "local addresses")?;
        let new = config.services.iter().map(|service| {
            let number = known.services.get(&identity(service)).map(|known| known.number);
            let is_new = |address: SocketAddr| number.is_none_or(|of| !known.backends.contains_key(&(of, address)));
            service.backends.iter().filter(|backend| is_new(backend.address)).count()
        });
        fits(known.backends.len() + new.sum::<usize>(), sizes.backends, "backends")?;
        self.check_lists(config)
    }

    fn check_lists(&self, config: &Config) -> Result<(), Error> {
        let mut known = ServiceRegistry { resting: Vec::new(), ..self.known.clone() };
        for (at, service) in config.services.iter().enumerate() {
            let schedule = schedule::list(service.scheduler, &service.backends);
            // The number of a new one is not asked for.
            let new = || ServiceEntry::new(u32::MAX - at as u32, service.expire);
            let mut entry = known.services.get(&identity(service)).cloned().unwrap_or_else(new);
            let backend = |place: &usize| {
                let address = service.backends.get(*place)?.address;
                known.backends.get(&(entry.number, address)).map(|known| known.number)
            };
            let schedule: Vec<Option<u32>> = schedule.iter().map(backend).collect();
            let locals = service.locals_by_family().concat();
            let locals = locals.iter().map(|at| known.locals.get(at).map(|known| known.number));
            let locals: Vec<Option<u32>> = locals.collect();
            for (part, content) in [(&mut entry.schedule, schedule), (&mut entry.locals, locals)] {
                let same: Option<Vec<u32>> = content.iter().copied().collect();
                if same.is_some_and(|content| self.is_list(*part, &content).unwrap_or(false)) {
                    continue;
                }
                let new = known.new_list(content.len() as u32, self.handle.sizes.list_entries)?;
                known.resting.extend([*part, new].into_iter().filter(|part| part.length > 0));
                *part = new;
            }
            known.services.insert(identity(service), entry);
        }
        Ok(())
    }
}

fn fits(wanted: usize, room: u32, what: &'static str) -> Result<(), Error> {
    within(u32::try_from(wanted).unwrap_or(u32::MAX), room, what).map(|_| ())
}
