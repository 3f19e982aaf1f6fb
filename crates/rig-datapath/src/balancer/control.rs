//! Configuring and sweeping.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use libbpf_rs::{Object, ProgramInput};
use zerocopy::{FromBytes, IntoBytes};

use crate::Error;
use crate::test_run::{self, Outcome};

use super::attach::Back;
use super::config::{Config, Forward, Policy, Protocol, Service, Unhandled};
use super::known::{Identity, Known, KnownBackend, KnownService, Part};
use super::load::Tables;
use super::reason::{Drop, Pass};
use super::schedule;
use super::shape::{
    self, Address, Control, Hop, Load, MISSED, ServiceKey, Sweep, TICK_SHIFT, Telling, TrafficCount, Tuning, ownership,
    port_of,
};
use super::sizes::Sizes;
use super::workers::Spreader;

pub(crate) const PROGRAM: &str = "balance";
pub(crate) const SWEEP: &str = "sweep";

/// What time it is for the balancer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    Kernel,
    /// It stands still at this many ticks of 2^27 ns (134 ms), at least 1. For tests.
    Fixed(u32),
}

/// What a sweep has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Swept {
    /// Connections ended.
    pub expired: u32,
    /// Places of earlier ended ones that can be used again.
    pub freed: u32,
    /// Connections that go on.
    pub live: u32,
}

/// A loaded balancer. Dropping it removes its programs and connections, unless they are kept (see [`Balancer::keep`]).
pub struct Balancer {
    pub(crate) object: Object,
    pub(crate) tables: Tables,
    pub(crate) known: Known,
    pub(super) sizes: Sizes,
    pub(super) tuning: Tuning,
    pub(super) slots: Range<u32>,
    pub(super) control: Control,
    /// Where the next partial sweep begins.
    pub(super) next_swept: u32,
    /// Where packets are spread over workers.
    pub(super) spreader: Option<Spreader>,
    /// The directory in which the tables are pinned.
    pub(super) kept: Option<PathBuf>,
}

impl fmt::Debug for Balancer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Balancer").field("sizes", &self.sizes).field("known", &self.known).finish_non_exhaustive()
    }
}

impl Balancer {
    /// Room in the tables.
    pub fn sizes(&self) -> Sizes {
        self.sizes
    }

    /// Changes services, backends, local addresses, schedules, timeouts and policy to what `config` says. No connection is
    /// broken by it: what is there no longer gets no new ones. On an error half of it may be done; applying again is safe.
    pub fn apply(&mut self, config: &Config) -> Result<(), Error> {
        config.validate()?;
        self.known.resting.clear();
        self.reclaim()?;
        // What is there first, so that at no moment a new connection finds less than before or after.
        for service in &config.services {
            self.apply_service(service)?;
        }
        self.close_others(config)?;
        self.apply_owned(config)?;
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
                    self.tables.service_of.remove(&key(protocol, address))?;
                }
                known.open = false;
            }
            let service = config.services.iter().find(|service| self::identity(service) == *identity);
            let keeps = |address: SocketAddr| {
                service.is_some_and(|service| service.backends.iter().any(|backend| backend.address == address))
            };
            for (&(number, address), backend) in &mut self.known.backends {
                if number == known.number && backend.leaving.is_none() && !keeps(address) {
                    backend.leaving = Some(false);
                    leaving.push(backend.number);
                }
            }
        }
        for number in leaving {
            let mut backend: shape::Backend = self.tables.backends.at(number)?;
            backend.weight = 0;
            self.tables.backends.set(&number, &backend)?;
        }
        Ok(())
    }

    fn apply_service(&mut self, service: &Service) -> Result<(), Error> {
        let identity = identity(service);
        let (number, old) = match self.known.services.get(&identity) {
            Some(known) => (known.number, [known.schedule, known.locals]),
            None => {
                let new = self.known.new_service(self.sizes.services)?;
                self.tables.turns.set(&new, &0_u64)?;
                (new, [Part::default(); 2])
            }
        };
        // In place before numbers are given to backends, so that nobody else gets this one.
        let entry = self.known.services.entry(identity).or_insert_with(|| KnownService {
            number,
            open: false,
            schedule: Part::default(),
            locals: Part::default(),
            past: TrafficCount::default(),
        });
        let was_open = entry.open;
        let locals =
            service.forward.local().iter().map(|address| self.local(*address)).collect::<Result<Vec<_>, _>>()?;
        let mut numbers = Vec::with_capacity(service.backends.len());
        let mut drained = Vec::new();
        for backend in &service.backends {
            let (number, waits) = self.backend(number, service, backend)?;
            drained.extend(waits.map(|value| (number, value)));
            numbers.push(number);
        }
        let list = schedule::list(service.scheduler, &service.backends);
        let schedule: Vec<u32> = list.into_iter().map(|place| numbers[place]).collect();
        let schedule = self.list(old[0], &schedule)?;
        let locals = self.list(old[1], &locals)?;
        let value = shape::Service {
            address: service.address.ip().into(),
            port: port_of(service.address.port()),
            protocol: service.protocol.number(),
            forward: service.forward.number(),
            scheduler: service.scheduler.number(),
            schedule: schedule.word(),
            locals: locals.word(),
            timeout: service.timeouts.ticks(),
            ..shape::Service::default()
        };
        self.tables.services.set(&number, &value)?;
        for (number, value) in drained {
            self.tables.backends.set(&number, &value)?;
        }
        if !was_open {
            self.tables.service_of.set(&key(service.protocol, service.address), &number)?;
        }
        if let Some(known) = self.known.services.get_mut(&identity) {
            known.open = true;
            known.schedule = schedule;
            known.locals = locals;
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
            weight: service.scheduler.weight(backend.weight),
            limit: backend.limit.map_or(0, std::num::NonZero::get),
            service: number,
            ..shape::Backend::default()
        };
        let at = (number, backend.address);
        if let Some(known) = self.known.backends.get_mut(&at) {
            known.leaving = None;
            if value.weight == 0 {
                return Ok((known.number, Some(value)));
            }
            self.tables.backends.set(&known.number, &value)?;
            return Ok((known.number, None));
        }
        let new = self.known.new_backend(self.sizes.backends)?;
        // Whoever had the number before has left its counters and what CPUs remember of the way.
        self.tables.loads.set(&new, &Load::default())?;
        self.tables.traffic.set_all_cpus(new, &TrafficCount::default())?;
        self.tables.hops.set_all_cpus(new, &Hop::default())?;
        self.tables.cursors.set_all_cpus(new, &0_u64)?;
        self.tables.backends.set(&new, &value)?;
        self.known.backends.insert(at, KnownBackend { number: new, leaving: None });
        Ok((new, None))
    }

    fn local(&mut self, address: IpAddr) -> Result<u32, Error> {
        if let Some(number) = self.known.locals.get(&address) {
            return Ok(*number);
        }
        let number = self.known.new_local(self.sizes.local_addresses)?;
        self.tables.locals.set(&number, &Address::from(address))?;
        self.known.locals.insert(address, number);
        Ok(number)
    }

    /// The list with this content: the old one when it is the same, otherwise a new one beside it.
    fn list(&mut self, old: Part, content: &[u32]) -> Result<Part, Error> {
        let length = content.len() as u32;
        if old.length == length {
            let mut same = true;
            for (at, number) in (old.offset..).zip(content) {
                same = same && self.tables.lists.at::<u32>(at)? == *number;
            }
            if same {
                return Ok(old);
            }
        }
        let new = self.known.new_list(length, self.sizes.list_entries)?;
        self.tables.lists.set_range(new.offset, content)?;
        // Also keeps the next list of this service from it until both are in its entry.
        self.known.resting.extend([old, new].into_iter().filter(|part| part.length > 0));
        Ok(new)
    }

    /// Which addresses' packets are the balancer's: to open services and their pools, and from backends that answer to
    /// clients' addresses.
    fn apply_owned(&mut self, config: &Config) -> Result<(), Error> {
        let mut wanted: BTreeMap<IpAddr, u32> = BTreeMap::new();
        for service in &config.services {
            let to = [service.address.ip()].into_iter().chain(service.forward.local().iter().copied());
            to.for_each(|address| *wanted.entry(address).or_default() |= ownership::TO);
            if service.forward == Forward::Nat {
                let from = service.backends.iter().map(|backend| backend.address.ip());
                from.for_each(|address| *wanted.entry(address).or_default() |= ownership::FROM);
            }
        }
        for (address, as_what) in &wanted {
            if self.known.owned.get(address) != Some(as_what) {
                self.tables.owned.set(&Address::from(*address), as_what)?;
            }
        }
        for address in self.known.owned.keys().filter(|address| !wanted.contains_key(*address)) {
            self.tables.owned.remove(&Address::from(*address))?;
        }
        self.known.owned = wanted;
        Ok(())
    }

    fn apply_policy(&mut self, policy: Policy) -> Result<(), Error> {
        let number = |unhandled| match unhandled {
            Unhandled::Drop => 0,
            Unhandled::Pass => 1,
        };
        self.control.fragments = number(policy.fragments);
        self.control.options = number(policy.options);
        self.tables.controls.set(&0_u32, &self.control)
    }

    pub fn set_clock(&mut self, clock: Clock) -> Result<(), Error> {
        self.control.fixed_tick = match clock {
            Clock::Kernel => 0,
            Clock::Fixed(tick) => tick.max(1),
        };
        self.tables.controls.set(&0_u32, &self.control)
    }

    /// How packets leave by the interface that they came in by, for all interfaces.
    pub fn set_back(&mut self, back: Back) -> Result<(), Error> {
        self.control.redirects_back = match back {
            Back::Transmit => 0,
            Back::Redirect => 1,
        };
        self.tables.controls.set(&0_u32, &self.control)
    }

    /// Says that packets leave in the buffers in which they came, offloads and all, as they do in generic mode.
    pub(crate) fn set_keeps_offload(&mut self, keeps: bool) -> Result<(), Error> {
        self.control.keeps_offload = keeps.into();
        self.tables.controls.set(&0_u32, &self.control)
    }

    /// Gives back the numbers of what was removed and has no connections left. A packet that is on its way when the last
    /// one ends has ended itself by the next time.
    fn reclaim(&mut self) -> Result<(), Error> {
        let mut gone = Vec::new();
        for (at, backend) in &mut self.known.backends {
            if let Some(seen) = &mut backend.leaving {
                let load: Load = self.tables.loads.at(backend.number)?;
                match load.connections as u32 {
                    0 if *seen => gone.push((*at, backend.number)),
                    0 => *seen = true,
                    _ => *seen = false,
                }
            }
        }
        for (at, number) in gone {
            let traffic = self.sum(number)?;
            if let Some(service) = self.known.services.values_mut().find(|service| service.number == at.0) {
                service.past.add(&traffic);
            }
            self.tables.backends.set(&number, &shape::Backend::default())?;
            self.known.backends.remove(&at);
        }
        let backends = &self.known.backends;
        let idle = |number| !backends.keys().any(|(service, _)| *service == number);
        let closed: Vec<_> =
            self.known.services.iter().filter(|(_, known)| !known.open && idle(known.number)).collect();
        for identity in closed.into_iter().map(|(identity, known)| (*identity, known.number)).collect::<Vec<_>>() {
            self.tables.services.set(&identity.1, &shape::Service::default())?;
            self.known.services.remove(&identity.0);
        }
        Ok(())
    }

    /// A backend's counters over all CPUs.
    pub(crate) fn sum(&self, backend: u32) -> Result<TrafficCount, Error> {
        let mut sum = TrafficCount::default();
        self.tables.traffic.per_cpu(backend)?.iter().for_each(|cpu| sum.add(cpu));
        Ok(sum)
    }

    /// Has the kernel ask for the neighbours without which packets to backends were dropped, by sending each backend an
    /// empty datagram to the discard port (RFC 863) from the calling thread's network namespace; says to how many. To be
    /// called about once a second: a program cannot ask itself.
    pub fn ask_for_neighbors(&self) -> Result<usize, Error> {
        let mut asked = 0;
        for ((_, address), backend) in &self.known.backends {
            let hops: Vec<Hop> = self.tables.hops.per_cpu(backend.number)?;
            if hops.iter().any(|hop| hop.known == MISSED) {
                let unspecified: IpAddr =
                    if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
                let sent =
                    UdpSocket::bind((unspecified, 0)).and_then(|socket| socket.send_to(&[], (address.ip(), DISCARD)));
                sent.map_err(|source| Error::Neighbor { address: address.ip(), source })?;
                asked += 1;
            }
        }
        Ok(asked)
    }

    /// Looks through the next `slots` places of the connection table, from the beginning again behind the last. Connections
    /// that have been silent for their state's timeout end; the places of those that ended at least 2 ticks (268 ms) ago
    /// become free. To be called so that a round takes about a second, by one process at a time.
    pub fn sweep(&mut self, slots: u32) -> Result<Swept, Error> {
        let mut swept = Swept::default();
        let mut left = slots.min(self.slots.end - self.slots.start);
        while left > 0 {
            let count = left.min(SWEEP_AT_ONCE).min(self.slots.end - self.next_swept);
            let sweep = self.run_sweep(Sweep { from: self.next_swept, count, ..Sweep::default() })?;
            swept.expired += sweep.expired;
            swept.freed += sweep.freed;
            swept.live += sweep.live;
            left -= count;
            self.next_swept += count;
            if self.next_swept == self.slots.end {
                self.next_swept = self.slots.start;
            }
        }
        Ok(swept)
    }

    /// All of the table.
    pub fn sweep_all(&mut self) -> Result<Swept, Error> {
        self.next_swept = self.slots.start;
        self.sweep(u32::MAX)
    }

    /// Removes all services, ends all connections and sets all counters to zero. While the program is attached, a packet
    /// that comes meanwhile may still be forwarded.
    pub fn clear(&mut self) -> Result<(), Error> {
        self.apply(&Config::default())?;
        // Once to end them, once to free their places.
        for _ in 0..2 {
            for from in self.slots.clone().step_by(SWEEP_AT_ONCE as usize) {
                let count = SWEEP_AT_ONCE.min(self.slots.end - from);
                self.run_sweep(Sweep { from, count, all: 1, ..Sweep::default() })?;
            }
            self.reclaim()?;
        }
        self.known.resting.clear();
        for reason in Drop::ALL {
            self.tables.drops.set_all_cpus(reason.number(), &0_u64)?;
        }
        self.tables.tellings.set_all_cpus(0, &Telling::default())?;
        for reason in Pass::ALL {
            self.tables.passes.set_all_cpus(reason.number(), &0_u64)?;
        }
        Ok(())
    }

    fn run_sweep(&self, sweep: Sweep) -> Result<Sweep, Error> {
        let failed = |source| Error::TestRun { program: SWEEP, source };
        let program = self.object.progs_mut().find(|program| program.name() == SWEEP);
        let program = program.ok_or_else(|| Error::Missing { kind: "program", name: SWEEP.to_owned() })?;
        let mut bytes = [0; size_of::<Sweep>()];
        bytes.copy_from_slice(sweep.as_bytes());
        // The kernel writes the context back to where it was read from.
        program.test_run(ProgramInput { context_in: Some(&mut bytes), ..ProgramInput::default() }).map_err(failed)?;
        Sweep::read_from_bytes(&bytes).map_err(|_| Error::Missing { kind: "result of", name: SWEEP.to_owned() })
    }

    /// The time in ticks.
    pub(crate) fn tick(&self) -> Result<u32, Error> {
        Ok(self.run_sweep(Sweep { from: 1, ..Sweep::default() })?.tick)
    }

    /// Runs the program on one frame, see [`test_run::run`]. Connections and counters change as with any packet.
    pub fn test_run(&self, frame: &[u8], interface: Option<u32>) -> Result<Outcome, Error> {
        test_run::run(&self.object, PROGRAM, frame, interface, 1)
    }

    /// Instructions that the kernel has of each loaded program, by name.
    pub fn instructions(&self) -> Vec<(String, usize)> {
        let loaded = self.object.progs().filter(libbpf_rs::ProgramImpl::autoload);
        loaded.map(|program| (program.name().to_string_lossy().into_owned(), program.insn_cnt())).collect()
    }
}

/// The port whose datagrams are thrown away.
const DISCARD: u16 = 9;

/// A sweep of this many slots takes some milliseconds, so that it ends soon when it shall.
const SWEEP_AT_ONCE: u32 = 1 << 18;

fn identity(service: &Service) -> Identity {
    Identity { protocol: service.protocol, address: service.address, forward: service.forward.number() }
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
