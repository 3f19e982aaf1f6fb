//! Configuring.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::Deref;
use std::path::PathBuf;
use std::time::Duration;

use crate::Error;
use crate::grace::GracePeriod;

use super::access::AccessTable;
use super::attach::TransmitMethod;
use super::config::{
    AccessLists, Config, ForwardingMethod, FragmentPolicy, Persistence, Policy, Protocol, Service, UnhandledPolicy,
};
use super::encapsulation;
use super::handle::BalancerHandle;
use super::one_packet;
use super::persistence::{self, ForgottenNumbers, Members};
use super::reason::{Drop, Pass};
use super::registry::{BackendEntry, Identity, ListSpan, LocalEntry, ServiceEntry, ServiceRegistry};
use super::removed::RemovedCounters;
use super::schedule;
use super::shape::{
    self, Address, CachedRoute, Control, FragmentKey, HoldDown, Load, PORT_SEQUENCES, PathMtu, PortSequence, RateLimit,
    Refusals, SETS_DSCP, ServiceKey, TICK_SHIFT, TrafficCount, ownership, port_of, service_flag,
};
use super::unsent::UnsentCounter;
use super::workers::Spreader;

pub(crate) const PROGRAM: &str = "balance";
pub(crate) const SWEEP: &str = "sweep";
pub(crate) const ADOPT: &str = "adopt";

/// What time it is for the balancer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    Kernel,
    /// It stands still at this many ticks of 2^27 ns (134 ms), at least 1. For tests.
    Fixed(u32),
}

/// A loaded balancer. Dropping it and its handles removes its programs and connections, unless they are kept (see
/// [`Balancer::keep`]). It is configured here; what any thread may do, and it too, is on its [`BalancerHandle`].
pub struct Balancer {
    pub(super) handle: BalancerHandle,
    pub(super) known: ServiceRegistry,
    /// Of this control plane.
    pub(super) gone: RemovedCounters,
    pub(super) access: AccessTable,
    /// What the map of that name has.
    pub(super) members: Members,
    pub(super) control: Control,
    /// Where packets are spread over workers.
    pub(super) spreader: Option<Spreader>,
    pub(super) unsent: UnsentCounter,
    pub(super) grace: GracePeriod,
    /// The directory in which the tables are pinned.
    pub(super) kept: Option<PathBuf>,
}

impl Deref for Balancer {
    type Target = BalancerHandle;

    fn deref(&self) -> &BalancerHandle {
        &self.handle
    }
}

impl fmt::Debug for Balancer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Balancer")
            .field("sizes", &self.handle.sizes)
            .field("known", &self.known)
            .finish_non_exhaustive()
    }
}

impl std::ops::Drop for Balancer {
    fn drop(&mut self) {
        if self.kept.is_none() {
            self.handle.neighbors().release(&self.handle.tables);
        }
    }
}

impl Balancer {
    pub fn handle(&self) -> BalancerHandle {
        self.handle.clone()
    }

    /// Changes services, backends, local addresses, schedules, timeouts and policy to what `config` says. No connection is
    /// broken by it: what is there no longer gets no new ones. On an error half of it may be done; applying again is safe.
    pub fn apply(&mut self, config: &Config) -> Result<(), Error> {
        config.validate()?;
        let applied = self.apply_valid(config);
        self.handle.publish(&self.known);
        applied
    }

    fn apply_valid(&mut self, config: &Config) -> Result<(), Error> {
        self.known.resting.clear();
        self.reclaim()?;
        self.reclaim_locals()?;
        self.prepare_syn_proxy(config)?;
        for service in &config.services {
            self.number_service(service)?;
        }
        // Before a service looks into them, which a new one does from its first packet on.
        self.apply_access(config, true)?;
        let has_entries_back = u16::from(one_packet::has_entries_back(config));
        self.control.has_entries_back |= has_entries_back;
        // Connections may go on that are of a backend which is not there any more.
        self.control.has_gue |= u8::from(encapsulation::has_gue(&config.services));
        let has_any_port = u8::from(config.services.iter().any(Service::is_of_any_port));
        self.control.has_any_port |= has_any_port;
        self.handle.tables.controls.set(&0_u32, &self.control)?;
        // What is there first, so that at no moment a new connection finds less than before or after.
        let mut drained = Vec::new();
        for service in &config.services {
            self.apply_service(service, &config.access, &mut drained)?;
        }
        for address in &config.others_local {
            self.local(*address)?;
        }
        // A packet may still choose from a list that was replaced, and has to find a backend there that takes it.
        if !self.known.resting.is_empty() {
            self.grace.wait()?;
        }
        for (number, value) in drained {
            self.handle.tables.backends.set(&number, &value)?;
        }
        self.leave_members(config)?;
        self.close_others(config)?;
        self.apply_access(config, false)?;
        self.leave_locals(config);
        self.apply_owned(config)?;
        self.control.has_entries_back = has_entries_back;
        self.control.has_any_port = has_any_port;
        self.apply_policy(config.policy)
    }

    /// Services and backends that are not in `config` get no new connections from here on.
    fn close_others(&mut self, config: &Config) -> Result<(), Error> {
        let wanted: Vec<Identity> = config.services.iter().map(identity).collect();
        let mut leaving = Vec::new();
        for (identity, known) in &mut self.known.services {
            if known.open && !wanted.contains(identity) {
                // Another one may have the address by now, under another forwarding method.
                let &Identity { protocol, address, .. } = identity;
                if !wanted.iter().any(|other| (other.protocol, other.address) == (protocol, address)) {
                    self.handle.tables.service_of.remove(&key(protocol, address))?;
                }
                known.open = false;
            }
            let service = config.services.iter().find(|service| self::identity(service) == *identity);
            let keeps = |address: SocketAddr| {
                service.is_some_and(|service| service.backends.iter().any(|backend| backend.address == address))
            };
            for (&(number, address), backend) in &mut self.known.backends {
                if number == known.number && !keeps(address) {
                    backend.leaving = backend.leaving.or(Some(false));
                    leaving.push((backend.number, known.expire));
                }
            }
        }
        for (number, expire) in leaving {
            let mut backend: shape::Backend = self.handle.tables.backends.at(number)?;
            backend.weight = 0;
            backend.ends = expire.ends(true, 0).into();
            self.handle.tables.backends.set(&number, &backend)?;
        }
        Ok(())
    }

    /// The number of a service, which may be new, and its lists.
    fn number_service(&mut self, service: &Service) -> Result<(u32, [ListSpan; 2]), Error> {
        let identity = identity(service);
        if let Some(known) = self.known.services.get(&identity) {
            return Ok((known.number, [known.schedule, known.locals]));
        }
        let new = self.known.new_service(self.handle.sizes.services)?;
        self.handle.tables.turns.set(&new, &0_u64)?;
        self.handle.tables.held.set(&new, &0_u64)?;
        self.handle.tables.unanswered.set(&new, &0_u64)?;
        self.begin_limits(new)?;
        self.begin_counting(new, identity)?;
        // In place before numbers are given to backends, so that no other one gets this one.
        self.known.services.insert(identity, ServiceEntry::new(new, service.expire));
        Ok((new, [ListSpan::default(); 2]))
    }

    /// Puts a service in place; `drained` gets the entries that backends without new connections shall have when no packet
    /// chooses from the old schedule any more.
    fn apply_service(
        &mut self,
        service: &Service,
        of_all: &AccessLists,
        drained: &mut Vec<(u32, shape::Backend)>,
    ) -> Result<(), Error> {
        let (number, old) = self.number_service(service)?;
        let identity = identity(service);
        let entry = self.known.services.entry(identity).or_insert_with(|| ServiceEntry::new(number, service.expire));
        let was_open = entry.open;
        entry.expire = service.expire;
        let [own, others] = service.locals_by_family();
        let in_order = own.iter().chain(&others).map(|address| self.local(*address));
        let locals = in_order.collect::<Result<Vec<_>, _>>()?;
        let mut numbers = Vec::with_capacity(service.backends.len());
        for backend in &service.backends {
            let (number, waits) = self.backend(number, service, backend)?;
            drained.extend(waits.map(|value| (number, value)));
            numbers.push(number);
        }
        self.add_members(number, service)?;
        let list = schedule::list(service.scheduler, &service.backends);
        let schedule: Vec<u32> = list.into_iter().map(|place| numbers[place]).collect();
        let limited = self.apply_limits(number, service)?;
        let schedule = self.list(old[0], &schedule)?;
        let (of_family, of_other) = locals.split_at(own.len());
        let pools = [of_family, of_other].map(|numbers| numbers.iter().copied().collect());
        let locals = self.list(old[1], &locals)?;
        let (of_family, of_other) = locals.split(own.len() as u32);
        let value = shape::Service {
            address: service.address.ip().into(),
            port: port_of(service.address.port()),
            protocol: service.protocol.number(),
            forward: service.forward.number(),
            scheduler: service.scheduler.number(),
            schedule: schedule.word(),
            locals: of_family.word(),
            locals_v4: of_other.word(),
            timeout: service.timeouts.ticks(),
            limit: service.limit.map_or(0, std::num::NonZero::get),
            flags: flags_of(service),
            dscp: service.dscp.map_or(0, |dscp| dscp.type_of_service() | SETS_DSCP),
            expire: service.expire.number(),
            reuse: service.reuse.number(),
            syn_proxy: service.syn_proxy.number(),
            proxy_from: service.syn_proxy.from(),
            client_address: service.client_address.number(),
            access: AccessTable::lists_of(&service.access, of_all) | limited,
            persistent_bits: persistence::bits_of(service),
            persistence: service.persistence.map_or(0, Persistence::ticks),
            quic_length: service.quic.map_or(0, |quic| quic.length),
            quic_configuration: service.quic.map_or(0, |quic| quic.configuration),
            pad: [0; 5],
        };
        self.handle.tables.services.set(&number, &value)?;
        if !was_open {
            self.handle.tables.service_of.set(&key(service.protocol, service.address), &number)?;
        }
        if let Some(known) = self.known.services.get_mut(&identity) {
            known.open = true;
            known.schedule = schedule;
            known.locals = locals;
            known.pools = pools;
            known.scheduler = Some(service.scheduler);
        }
        Ok(())
    }

    /// The backend's number, with its entry as it shall be; or the entry that it shall have when a schedule without it is
    /// in place.
    fn backend(
        &mut self,
        number: u32,
        service: &Service,
        backend: &super::Backend,
    ) -> Result<(u32, Option<shape::Backend>), Error> {
        let value = shape::Backend {
            address: backend.address.ip().into(),
            port: port_of(backend.address.port()),
            protocol: service.protocol.number(),
            weight: service.scheduler.weight(backend.weight) as u16,
            limit: backend.limit.map_or(0, std::num::NonZero::get),
            lower: backend.lower_limit.map_or(0, std::num::NonZero::get),
            service: number as u16,
            ends: service.expire.ends(false, backend.weight).into(),
            encapsulation: backend.encapsulation.header.number(),
            has_sum: backend.encapsulation.header.has_sum().into(),
            tunnel_port: backend.encapsulation.header.port(),
            source_bits: backend.encapsulation.source_bits,
            pad: [0; 3],
        };
        let at = (number, backend.address);
        if let Some(known) = self.known.backends.get_mut(&at) {
            known.leaving = None;
            if value.weight == 0 {
                return Ok((known.number, Some(value)));
            }
            self.handle.tables.backends.set(&known.number, &value)?;
            return Ok((known.number, None));
        }
        let new = self.known.new_backend(self.handle.sizes.backends)?;
        // The backend that had the number before has left its counters and cached routes.
        self.handle.tables.loads.set(&new, &Load::default())?;
        match self.gone.backends.take(&(identity(service), backend.address)) {
            Some(counts) => {
                self.change_past(number, &counts, TrafficCount::subtract)?;
                self.handle.tables.traffic.set_per_cpu(new, &counts)?;
            }
            None => self.handle.tables.traffic.set_all_cpus(new, &TrafficCount::default())?,
        }
        self.handle.tables.path_mtus.set(&new, &PathMtu::default())?;
        self.handle.tables.hops.set_all_cpus(new, &CachedRoute::default())?;
        self.handle.neighbors().expect_backend()?;
        self.handle.tables.backends.set(&new, &value)?;
        self.known.backends.insert(at, BackendEntry { number: new, leaving: None });
        Ok((new, None))
    }

    fn local(&mut self, address: IpAddr) -> Result<u32, Error> {
        if let Some(known) = self.known.locals.get_mut(&address) {
            known.left = None;
            return Ok(known.number);
        }
        let number = self.known.new_local(self.handle.sizes.local_addresses)?;
        self.handle.tables.locals.set(&number, &Address::from(address))?;
        self.known.locals.insert(address, LocalEntry { number, left: None });
        Ok(number)
    }

    /// Local addresses that no service has any more.
    fn leave_locals(&mut self, config: &Config) {
        let round = self.handle.rounds().now;
        let wanted: BTreeSet<IpAddr> = config
            .services
            .iter()
            .flat_map(|service| service.forward.local())
            .chain(&config.others_local)
            .copied()
            .collect();
        let others = self.known.locals.iter_mut().filter(|(address, _)| !wanted.contains(*address));
        others.for_each(|(_, known)| known.left = known.left.or(Some(round)));
    }

    /// Gives back the numbers of local addresses that no connection has: two whole rounds of sweeping since they were left
    /// have met none.
    fn reclaim_locals(&mut self) -> Result<(), Error> {
        let done = self.handle.rounds().done;
        let mut gone = Vec::new();
        for (address, known) in &self.known.locals {
            if let Some(left) = known.left {
                let met: u32 = self.handle.tables.locals_met.at(known.number)?;
                if done >= left.max(met) + 2 {
                    gone.push((*address, known.number));
                }
            }
        }
        for (address, number) in gone {
            self.handle.tables.locals.set(&number, &Address::default())?;
            self.known.locals.remove(&address);
        }
        Ok(())
    }

    /// The next leases of local ports are from `first` on, whichever the backend is, and none rests.
    pub(super) fn begin_sequences(&self, first: u64) -> Result<(), Error> {
        self.handle
            .tables
            .orders
            .set_range(0, &vec![PortSequence { block: first, search: first }; PORT_SEQUENCES as usize])?;
        let rests = self.handle.tables.rests.entries();
        self.handle.tables.rests.set_range(0, &vec![HoldDown::default(); rests as usize])
    }

    /// The list with this content: the old one when it is the same, otherwise a new one beside it.
    fn list(&mut self, old: ListSpan, content: &[u32]) -> Result<ListSpan, Error> {
        if self.is_list(old, content)? {
            return Ok(old);
        }
        let new = self.known.new_list(content.len() as u32, self.handle.sizes.list_entries)?;
        self.handle.tables.lists.set_range(new.offset, content)?;
        // Also keeps the next list of this service from it until both are in its entry.
        self.known.resting.extend([old, new].into_iter().filter(|part| part.length > 0));
        Ok(new)
    }

    /// Whether a list has this content.
    pub(super) fn is_list(&self, list: ListSpan, content: &[u32]) -> Result<bool, Error> {
        let mut same = list.length == content.len() as u32;
        for (at, number) in (list.offset..).zip(content) {
            same = same && self.handle.tables.lists.at::<u32>(at)? == *number;
        }
        Ok(same)
    }

    /// Which addresses' packets are the balancer's: to open services and their pools, and from backends that answer to
    /// clients' addresses.
    fn apply_owned(&mut self, config: &Config) -> Result<(), Error> {
        let mut wanted: BTreeMap<IpAddr, u32> = BTreeMap::new();
        for service in &config.services {
            let to = [service.address.ip()].into_iter().chain(service.forward.local().iter().copied());
            to.for_each(|address| *wanted.entry(address).or_default() |= ownership::TO);
            if service.forward == ForwardingMethod::Nat {
                let from = service.backends.iter().map(|backend| backend.address.ip());
                from.for_each(|address| *wanted.entry(address).or_default() |= ownership::FROM);
            }
        }
        config.others_local.iter().for_each(|address| *wanted.entry(*address).or_default() |= ownership::TO);
        for (address, as_what) in &wanted {
            if self.known.owned.get(address) != Some(as_what) {
                self.handle.tables.owned.set(&Address::from(*address), as_what)?;
            }
        }
        for address in self.known.owned.keys().filter(|address| !wanted.contains_key(*address)) {
            self.handle.tables.owned.remove(&Address::from(*address))?;
        }
        self.known.owned = wanted;
        Ok(())
    }

    fn apply_policy(&mut self, policy: Policy) -> Result<(), Error> {
        self.control.fragments = match policy.fragments {
            FragmentPolicy::Drop => 0,
            FragmentPolicy::Pass => 1,
            FragmentPolicy::Forward => 2,
        };
        self.control.options = match policy.options {
            UnhandledPolicy::Drop => 0,
            UnhandledPolicy::Pass => 1,
        };
        self.control.strays = policy.strays_per_tick();
        self.handle.tables.controls.set(&0_u32, &self.control)
    }

    pub fn set_clock(&mut self, clock: Clock) -> Result<(), Error> {
        self.control.fixed_tick = match clock {
            Clock::Kernel => 0,
            Clock::Fixed(tick) => tick.max(1),
        };
        self.handle.tables.controls.set(&0_u32, &self.control)
    }

    /// How packets leave by the interface that they came in by, for all interfaces.
    pub fn set_back(&mut self, back: TransmitMethod) -> Result<(), Error> {
        self.control.redirects_back = match back {
            TransmitMethod::Transmit => 0,
            TransmitMethod::Redirect => 1,
        };
        self.handle.tables.controls.set(&0_u32, &self.control)
    }

    /// Says whether packets leave in the buffers in which they came, offloads and all, as they do in generic mode; of all
    /// interfaces. Attaching to one in generic mode says so, and it is kept with the tables until it is said otherwise.
    pub fn set_keeps_offload(&mut self, keeps: bool) -> Result<(), Error> {
        self.control.keeps_offload = keeps.into();
        self.handle.tables.controls.set(&0_u32, &self.control)
    }

    /// Gives back the numbers of what was removed and has no connections left. A packet that is on its way when the last
    /// one ends has ended itself by the next time.
    fn reclaim(&mut self) -> Result<(), Error> {
        let mut gone = Vec::new();
        for (at, backend) in &mut self.known.backends {
            if let Some(seen) = &mut backend.leaving {
                let load: Load = self.handle.tables.loads.at(backend.number)?;
                match load.connections as u32 {
                    0 if *seen => gone.push((*at, backend.number)),
                    0 => *seen = true,
                    _ => *seen = false,
                }
            }
        }
        let mut forgotten = ForgottenNumbers::default();
        for (at, number) in gone {
            let traffic: Vec<TrafficCount> = self.handle.tables.traffic.per_cpu(number)?;
            self.change_past(at.0, &traffic, TrafficCount::add)?;
            let of = self.known.services.iter().find(|(_, known)| known.number == at.0);
            if let Some((identity, _)) = of {
                self.gone.backends.put((*identity, at.1), traffic, self.handle.sizes.backends);
            }
            self.handle.tables.backends.set(&number, &shape::Backend::default())?;
            self.known.backends.remove(&at);
            forgotten.backends.insert(number);
        }
        let backends = &self.known.backends;
        let idle = |number| !backends.keys().any(|(service, _)| *service == number);
        let closed: Vec<_> =
            self.known.services.iter().filter(|(_, known)| !known.open && idle(known.number)).collect();
        for identity in closed.into_iter().map(|(identity, known)| (*identity, known.number)).collect::<Vec<_>>() {
            let past: Vec<TrafficCount> = self.handle.tables.past.per_cpu(identity.1)?;
            self.change_past(0, &past, TrafficCount::add)?;
            let refusals: Vec<Refusals> = self.handle.tables.refusals.per_cpu(identity.1)?;
            self.gone.services.put(identity.0, (past, refusals), self.handle.sizes.services);
            self.handle.tables.past.set_all_cpus(identity.1, &TrafficCount::default())?;
            self.handle.tables.services.set(&identity.1, &shape::Service::default())?;
            self.known.services.remove(&identity.0);
            forgotten.services.insert(identity.1);
        }
        self.handle.forget_sources_of(&forgotten)?;
        Ok(())
    }

    /// The counters of a service that has got a number: those that it had when it went, if it was there before.
    fn begin_counting(&mut self, number: u32, identity: Identity) -> Result<(), Error> {
        let tables = &self.handle.tables;
        let Some((past, refusals)) = self.gone.services.take(&identity) else {
            // Its backends' would be more than its own.
            self.gone.backends.retain(|(of, _)| *of != identity);
            tables.refusals.set_all_cpus(number, &Refusals::default())?;
            return tables.past.set_all_cpus(number, &TrafficCount::default());
        };
        tables.refusals.set_per_cpu(number, &refusals)?;
        tables.past.set_per_cpu(number, &past)?;
        self.change_past(0, &past, TrafficCount::subtract)
    }

    /// The counters of what is gone are kept by the number of its service, and those of services that are gone under 0.
    fn change_past(
        &self,
        service: u32,
        counts: &[TrafficCount],
        change: impl Fn(&mut TrafficCount, &TrafficCount),
    ) -> Result<(), Error> {
        let mut past: Vec<TrafficCount> = self.handle.tables.past.per_cpu(service)?;
        past.iter_mut().zip(counts).for_each(|(past, cpu)| change(past, cpu));
        self.handle.tables.past.set_per_cpu(service, &past)
    }

    /// Removes all services, ends all connections and sets all counters to zero; local ports begin anew. While the program
    /// is attached, a packet that comes meanwhile may still be forwarded.
    pub fn clear(&mut self) -> Result<(), Error> {
        self.apply(&Config::default())?;
        // What is gone is seen to be gone twice.
        for _ in 0..2 {
            self.handle.end_all()?;
            self.reclaim()?;
        }
        self.known.resting.clear();
        self.gone = RemovedCounters::default();
        self.forget_sources()?;
        for datagram in self.handle.tables.fragments.keys::<FragmentKey>() {
            self.handle.tables.fragments.remove(&datagram)?;
        }
        for client in self.handle.tables.admitted.keys::<Address>() {
            self.handle.tables.admitted.remove(&client)?;
        }
        self.handle.tables.past.set_all_cpus(0, &TrafficCount::default())?;
        self.handle.publish(&self.known);
        for reason in Drop::ALL {
            self.handle.tables.drops.set_all_cpus(reason.number(), &0_u64)?;
        }
        self.handle.tables.tellings.set_all_cpus(0, &RateLimit::default())?;
        for cursor in 0..PORT_SEQUENCES {
            self.handle.tables.cursors.set_all_cpus(cursor, &0_u64)?;
        }
        self.handle.tables.searches.set_all_cpus(0, &RateLimit::default())?;
        self.begin_sequences(0)?;
        for reason in Pass::ALL {
            self.handle.tables.strays.set_all_cpus(reason.number(), &RateLimit::default())?;
            self.handle.tables.passes.set_all_cpus(reason.number(), &0_u64)?;
        }
        Ok(())
    }
}

pub(super) fn identity(service: &Service) -> Identity {
    Identity { protocol: service.protocol, address: service.address, forward: service.forward.number() }
}

fn flags_of(service: &Service) -> u8 {
    let sloppy = if service.sloppy_tcp { service_flag::SLOPPY_TCP } else { 0 };
    sloppy | if service.one_packet { service_flag::ONE_PACKET } else { 0 }
}

pub(crate) fn key(protocol: Protocol, address: SocketAddr) -> ServiceKey {
    ServiceKey {
        address: address.ip().into(),
        port: port_of(address.port()),
        protocol: protocol.number(),
        ..ServiceKey::default()
    }
}

pub(crate) fn protocol(number: u8) -> Protocol {
    if number == Protocol::Udp.number() { Protocol::Udp } else { Protocol::Tcp }
}

/// How long `ticks` are.
pub(crate) fn duration(ticks: u32) -> Duration {
    Duration::from_nanos(u64::from(ticks) << TICK_SHIFT)
}
