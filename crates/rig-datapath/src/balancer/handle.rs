//! What any thread may do with a loaded balancer, at any time: look at it and sweep it.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use libbpf_rs::{Object, ProgramInput, ProgramType};
use zerocopy::{FromBytes, IntoBytes};

use crate::Error;
use crate::object::program;
use crate::test_run::{self, TestRunResult};

use super::config::Protocol;
use super::control::{PROGRAM, SWEEP};
use super::hash::{Hasher, KEYS};
use super::load::Tables;
use super::neighbors::Neighbors;
use super::next_hops::NextHops;
use super::registry::{Identity, ServiceRegistry};
use super::shape::{ANY_SERVICE, Routing, Sweep, Tuning, route_key};
use super::shortage::ShortageMonitor;
use super::sizes::{Memory, Sizes};
use super::trace::Tracer;
use super::vlans::{self, VlanDevice};

/// What a sweep has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SweepReport {
    /// Connections ended.
    pub expired: u32,
    /// Places of earlier ended ones that can be used again.
    pub freed: u32,
    /// Connections that go on.
    pub live: u32,
    /// The table or local ports run short: it is to be swept as fast as can be.
    pub short: bool,
}

/// A balancer as all threads see it, while one of them configures it; clones are cheap. It is of use for as
/// long as there is a clone of it, also when the [`Balancer`](super::Balancer) has been dropped.
#[derive(Clone)]
pub struct BalancerHandle {
    pub(super) object: Arc<Object>,
    pub(super) tables: Arc<Tables>,
    pub(super) sizes: Sizes,
    pub(super) tuning: Tuning,
    pub(super) slots: Range<u32>,
    /// As the last change of the configuration has left it.
    known: Arc<RwLock<Arc<ServiceRegistry>>>,
    neighbors: Arc<Mutex<Neighbors>>,
    /// Held while sweeping.
    sweeping: Arc<Mutex<SweepState>>,
    /// Loaded when it is first of use.
    pub(super) tracer: Arc<Mutex<Option<Tracer>>>,
    /// Whether somebody captures.
    pub(super) capturing: Arc<AtomicBool>,
}

/// How far sweeping has come.
#[derive(Debug)]
struct SweepState {
    /// Where the next partial sweep begins.
    next: u32,
    rounds: SweepRounds,
    shortage: ShortageMonitor,
}

/// Rounds of sweeping, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SweepRounds {
    /// The one that goes on, or is next.
    pub(super) now: u32,
    /// The last one that has been through all of the table.
    pub(super) done: u32,
}

impl fmt::Debug for BalancerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("sizes", &self.sizes).field("known", &self.known()).finish_non_exhaustive()
    }
}

impl BalancerHandle {
    pub(super) fn new(object: Object, tables: Tables, sizes: Sizes, tuning: Tuning, slots: Range<u32>) -> Self {
        let sweeping = SweepState {
            next: slots.start,
            rounds: SweepRounds { now: 1, done: 0 },
            shortage: ShortageMonitor::default(),
        };
        let (object, tables) = (Arc::new(object), Arc::new(tables));
        Self {
            object,
            tables,
            sizes,
            tuning,
            slots,
            known: Arc::default(),
            neighbors: Arc::default(),
            sweeping: Arc::new(Mutex::new(sweeping)),
            tracer: Arc::default(),
            capturing: Arc::default(),
        }
    }

    pub(super) fn known(&self) -> Arc<ServiceRegistry> {
        Arc::clone(&self.known.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn publish(&self, known: &ServiceRegistry) {
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(known.clone());
    }

    /// Room in the tables.
    pub fn sizes(&self) -> Sizes {
        self.sizes
    }

    /// The hash of a packet's addresses, ports and protocol, see [`Trace::hash`](super::Trace::hash): keys are drawn anew
    /// for each balancer.
    pub fn hash(&self, protocol: Protocol, source: SocketAddr, destination: SocketAddr) -> u64 {
        Hasher { key: self.tuning.key }.hash(protocol, source, destination)
    }

    /// What [`Self::hash`] was drawn with, for [`Balancer::load_with_keys`](super::Balancer::load_with_keys).
    #[doc(hidden)]
    pub fn hash_keys(&self) -> [u64; KEYS] {
        self.tuning.key
    }

    /// What its maps take, also those that there are only for what is in use.
    pub fn memory(&self) -> Result<Memory, Error> {
        Ok(Memory { splices: self.memory_of_splices()?, ..self.sizes.memory_here()? })
    }

    /// Has the kernel know where backends' next hops are, and keep that fresh: as managed neighbours where it has those (Linux
    /// 5.16), which are released with the backend and with the [`Balancer`](super::Balancer), unless it is kept; otherwise by
    /// an empty datagram to the discard port (RFC 863), again each 10 s. Also has it ask for next hops, of backends and
    /// clients, for which packets were dropped for want of one. Says how many that were new. Works in the network namespace
    /// in which it was called first. To be called after each change of the configuration, which spares the first packets,
    /// and about once a second: a program cannot ask itself.
    ///
    /// # Errors
    /// The first next hop that could not be found or asked for, when all have been tried.
    pub fn ask_for_neighbors(&self) -> Result<usize, Error> {
        self.neighbors().tend(self)
    }

    /// The next hops of backends, by their addresses, as the last [`ask_for_neighbors`](Self::ask_for_neighbors) has found them:
    /// whether or not any packet has gone there. A backend that has not been looked at yet is not among them.
    pub fn next_hops(&self) -> BTreeMap<IpAddr, NextHops> {
        self.neighbors().next_hops().clone()
    }

    /// As on a kernel that has no managed neighbours. For tests.
    #[doc(hidden)]
    pub fn without_managed_neighbors(&self) {
        self.neighbors().unmanaged = true;
    }

    /// As if routes were watched in ticks up to `until`, and the generation was this one. For tests and measurements.
    #[doc(hidden)]
    pub fn pretend_watched(&self, until: u32, generation: u16) -> Result<(), Error> {
        let routing = Routing { watched_until: until, generation, key: route_key::BY_BACKEND };
        self.tables.routings.set(&0_u32, &routing)
    }

    /// As if these were the machine's VLAN devices. For tests.
    #[doc(hidden)]
    pub fn pretend_vlans(&self, devices: &[VlanDevice]) -> Result<(), Error> {
        vlans::set(&self.tables, devices)
    }

    /// The generation of routes and neighbours, while they are watched.
    #[doc(hidden)]
    pub fn generation(&self) -> Result<Option<u16>, Error> {
        let routing: Routing = self.tables.routings.at(0)?;
        Ok((self.tick()? <= routing.watched_until).then_some(routing.generation))
    }

    pub(super) fn neighbors(&self) -> MutexGuard<'_, Neighbors> {
        self.neighbors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks through the next `count` slots of the connection table, from the beginning again behind the last. Connections
    /// that have been silent for their state's timeout end; the slots of those that ended at least 2 ticks (268 ms) ago
    /// become free. While more than three quarters of the table, or of the local ports for a backend, are taken, connections
    /// (to that backend) without an answer end after 3 s and those that are closing after 7 s, even with longer timeouts; while a
    /// service or a backend has more than three quarters of its limit, its own unanswered ones. Those of backends that were removed
    /// or drained end, too, where their service says so, see [`ExpiryPolicy`](super::ExpiryPolicy). To be called so that a round takes about a second, by one process at a
    /// time; threads wait for each other.
    pub fn sweep(&self, slots: u32) -> Result<SweepReport, Error> {
        self.sweep_on(slots, &mut self.sweeping())
    }

    /// Places of the connection table: what a round of [`sweep`](Self::sweep) looks through.
    pub fn places(&self) -> u32 {
        self.slots.end - self.slots.start
    }

    /// All of the table.
    pub fn sweep_all(&self) -> Result<SweepReport, Error> {
        let mut sweeping = self.sweeping();
        if sweeping.next != self.slots.start {
            sweeping.next = self.slots.start;
            sweeping.rounds.now += 1;
        }
        self.sweep_on(u32::MAX, &mut sweeping)
    }

    fn sweeping(&self) -> MutexGuard<'_, SweepState> {
        self.sweeping.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn rounds(&self) -> SweepRounds {
        self.sweeping().rounds
    }

    fn sweep_on(&self, slots: u32, sweeping: &mut SweepState) -> Result<SweepReport, Error> {
        let SweepState { next, rounds, shortage } = sweeping;
        let shortage = shortage.look(self, *next == self.slots.start)?;
        let of_all =
            Sweep { unanswered: UNANSWERED, closing: CLOSING, early: shortage.table.bits(), ..Sweep::default() };
        let mut swept = SweepReport { short: shortage.is_of_all(), ..SweepReport::default() };
        let mut left = slots.min(self.slots.end - self.slots.start);
        while left > 0 {
            let count = left.min(SWEEP_AT_ONCE).min(self.slots.end - *next);
            let sweep = self.run_sweep(Sweep { from: *next, count, round: rounds.now, ..of_all })?;
            swept.expired += sweep.expired;
            swept.freed += sweep.freed;
            swept.live += sweep.live;
            left -= count;
            *next += count;
            if *next == self.slots.end {
                *next = self.slots.start;
                *rounds = SweepRounds { now: rounds.now + 1, done: rounds.now };
            }
        }
        Ok(swept)
    }

    /// Ends connections whether it is time or not: all, or those of a service, of a backend, of a backend of a service. Says
    /// how many there were. Packets that come for them later are as of no connection; others may begin meanwhile.
    pub fn flush(&self, service: Option<(Protocol, SocketAddr)>, backend: Option<SocketAddr>) -> Result<u64, Error> {
        let known = self.known();
        let named = |of: &Identity| service.is_none_or(|named| named == (of.protocol, of.address));
        // Under another forwarding method a service is another one.
        let services = || known.services.iter().filter(|(of, _)| named(of)).map(|(_, known)| known.number);
        let targets: Vec<Sweep> = match (service, backend) {
            (None, None) => vec![Sweep { service: ANY_SERVICE, ..Sweep::default() }],
            (Some(_), None) => services().map(|service| Sweep { service, ..Sweep::default() }).collect(),
            (_, Some(address)) => {
                let numbers = services().filter_map(|service| known.backends.get(&(service, address)));
                numbers.map(|backend| Sweep { backend: backend.number, ..Sweep::default() }).collect()
            }
        };
        let sweeping = self.sweeping();
        let mut ended = 0;
        for target in targets {
            for from in self.slots.clone().step_by(SWEEP_AT_ONCE as usize) {
                let count = SWEEP_AT_ONCE.min(self.slots.end - from);
                let sweep = self.run_sweep(Sweep { from, count, round: sweeping.rounds.now, ..target })?;
                ended += u64::from(sweep.expired);
            }
        }
        Ok(ended)
    }

    /// Ends all connections and frees all slots, whether it is time or not.
    pub(super) fn end_all(&self) -> Result<(), Error> {
        let _held = self.sweeping();
        // Once to end them, once to free their slots.
        for _ in 0..2 {
            for from in self.slots.clone().step_by(SWEEP_AT_ONCE as usize) {
                let count = SWEEP_AT_ONCE.min(self.slots.end - from);
                self.run_sweep(Sweep { from, count, all: 1, ..Sweep::default() })?;
            }
        }
        Ok(())
    }

    fn run_sweep(&self, sweep: Sweep) -> Result<Sweep, Error> {
        let result = |bytes: &[u8]| {
            Sweep::read_from_bytes(bytes).map_err(|_| Error::Missing { kind: "result of", name: SWEEP.to_owned() })
        };
        let failed = |source| Error::TestRun { program: SWEEP, source };
        let program = program(&self.object, SWEEP)?;
        if program.prog_type() == ProgramType::Xdp {
            // As old kernels do: it is run once for each slot, upon a frame that is the sweep.
            return result(&test_run::run(&self.object, SWEEP, sweep.as_bytes(), None, sweep.count)?.frame);
        }
        let mut bytes = [0; size_of::<Sweep>()];
        bytes.copy_from_slice(sweep.as_bytes());
        // The kernel writes the context back to where it was read from.
        program.test_run(ProgramInput { context_in: Some(&mut bytes), ..ProgramInput::default() }).map_err(failed)?;
        result(&bytes)
    }

    /// The time in ticks.
    pub(crate) fn tick(&self) -> Result<u32, Error> {
        Ok(self.run_sweep(Sweep { from: 1, ..Sweep::default() })?.tick)
    }

    /// Runs the program on one frame, see [`test_run::run`]. Connections and counters change as with any packet.
    pub fn test_run(&self, frame: &[u8], interface: Option<u32>) -> Result<TestRunResult, Error> {
        test_run::run(&self.object, PROGRAM, frame, interface, 1)
    }

    /// Instructions that the kernel has of each loaded program, by name.
    pub fn instructions(&self) -> Vec<(String, usize)> {
        let loaded = self.object.progs().filter(libbpf_rs::ProgramImpl::autoload);
        loaded.map(|program| (program.name().to_string_lossy().into_owned(), program.insn_cnt())).collect()
    }
}

/// Ticks after which a silent unanswered connection ends while something runs short, 3 s: the first time
/// that TCP sends again is 1 s (RFC 6298, 2.1).
const UNANSWERED: u32 = 23;
/// Ticks after which a silent closing connection ends while something runs short, 7 s, which DPVS gives them always.
const CLOSING: u32 = 53;

/// A sweep of this many slots takes some milliseconds, so that it ends soon when it shall.
const SWEEP_AT_ONCE: u32 = 1 << 18;
