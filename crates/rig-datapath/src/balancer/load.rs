//! The programs and their tables: loaded anew, kept, and taken up again.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use libbpf_rs::{MapCore, MapFlags, MapHandle, Object, ObjectBuilder, OpenMapMut};
use zerocopy::{FromBytes, IntoBytes};

use crate::Error;
use crate::grace::GracePeriod;
use crate::libbpf_log;
use crate::maps::{self, Map};
use crate::object::program;
use crate::objects::{Objects, check_is_new, objects};
use crate::rights::check_may_load;

use super::access::AccessTable;
use super::config::ExpiryPolicy;
use super::control::{ADOPT, Balancer, PROGRAM, SWEEP, key, protocol};
use super::handle::BalancerHandle;
use super::hash::KEYS;
use super::persistence::Members;
use super::reason::{Drop, Pass};
use super::registry::{BackendEntry, Identity, ListSpan, LocalEntry, ServiceEntry, ServiceRegistry};
use super::removed::RemovedCounters;
use super::shape::{
    self, Address, CachedRoute, Control, Load, PORT_BLOCK, SHAPE_VERSION, TrafficCount, Tuning, socket,
};
use super::sizes::{BUCKET, Layout, PortShare, Sizes, possible_cpus, random};
use super::stages;
use super::syn_proxy::random_secret;
use super::unsent::UnsentCounter;

static OBJECTS: Objects = objects!("balancer");
/// Of new kernels, with the programs that benchmarks run.
static BENCH_OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/balancer_bench.bpf.o"));
/// The constants' section, and what its copy is called where it is kept.
const TUNING: &str = ".rodata.tuning";
const KEPT_TUNING: &str = "tuning";

/// The maps, by their names in bpf/balancer/maps.h.
#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) connections: Map,
    pub(crate) service_of: Map,
    pub(crate) owned: Map,
    pub(crate) services: Map,
    pub(crate) backends: Map,
    pub(crate) locals: Map,
    pub(crate) lists: Map,
    pub(crate) loads: Map,
    pub(crate) held: Map,
    pub(crate) refusals: Map,
    pub(crate) shortages: Map,
    pub(crate) cursors: Map,
    pub(crate) orders: Map,
    pub(crate) rests: Map,
    pub(crate) searches: Map,
    pub(crate) locals_met: Map,
    pub(crate) turns: Map,
    pub(crate) hops: Map,
    pub(crate) traffic: Map,
    pub(crate) drops: Map,
    pub(crate) passes: Map,
    pub(crate) controls: Map,
    /// Next hops, by themselves.
    pub(crate) missed: Map,
    pub(crate) next_hops: Map,
    pub(crate) routings: Map,
    pub(crate) vlans: Map,
    pub(crate) path_mtus: Map,
    pub(crate) past: Map,
    pub(crate) tellings: Map,
    pub(crate) strays: Map,
    pub(crate) shards: Map,
    pub(crate) unanswered: Map,
    /// The number of the map that has them, where there is one.
    pub(crate) splices: Map,
    pub(crate) cookie_keys: Map,
    /// The number of the map that has the lists in force, where there are any.
    pub(crate) access: Map,
    pub(crate) access_hits: Map,
    pub(crate) limits: Map,
    pub(crate) paces: Map,
    pub(crate) sources: Map,
    /// Connections by service that no counter of sources was free for.
    pub(crate) unlimited: Map,
    pub(crate) templates: Map,
    pub(crate) admitted: Map,
    /// What the first fragments of datagrams have said.
    pub(crate) fragments: Map,
    pub(crate) members: Map,
    /// Which packets are to be captured, those that were not, and who reads them.
    pub(crate) capture_filter: Map,
    pub(crate) capture_next: Map,
    pub(crate) uncaptured: Map,
    pub(crate) captures: Map,
    /// Only programs use these.
    others: [Map; 3],
    /// What old kernels' programs hold while they change tables (bpf/lib/atomic.h).
    locks: Option<Map>,
}

impl Tables {
    fn of(object: &Object) -> Result<Self, Error> {
        let map = |name, value| Map::of(object, name, value);
        let number = size_of::<u32>();
        let long = size_of::<u64>();
        Ok(Self {
            connections: map("connections", size_of::<shape::Set>())?,
            service_of: map("service_of", number)?,
            owned: map("owned", number)?,
            services: map("services", size_of::<shape::Service>())?,
            backends: map("backends", size_of::<shape::Backend>())?,
            locals: map("locals", size_of::<Address>())?,
            lists: map("lists", number)?,
            loads: map("loads", size_of::<Load>())?,
            held: map("held", long)?,
            refusals: map("refusals", size_of::<shape::Refusals>())?,
            shortages: map("shortages", number)?,
            cursors: map("cursors", long)?,
            orders: map("orders", size_of::<shape::PortSequence>())?,
            rests: map("rests", size_of::<shape::HoldDown>())?,
            searches: map("searches", size_of::<shape::RateLimit>())?,
            locals_met: map("locals_met", number)?,
            turns: map("turns", long)?,
            hops: map("hops", size_of::<CachedRoute>())?,
            traffic: map("traffic", size_of::<TrafficCount>())?,
            drops: map("drops", long)?,
            passes: map("passes", long)?,
            controls: map("controls", size_of::<Control>())?,
            missed: map("missed", number)?,
            next_hops: map("next_hops", number)?,
            routings: map("routings", size_of::<shape::Routing>())?,
            vlans: map("vlans", size_of::<shape::Vlan>())?,
            path_mtus: map("path_mtus", size_of::<shape::PathMtu>())?,
            past: map("past", size_of::<TrafficCount>())?,
            tellings: map("tellings", size_of::<shape::RateLimit>())?,
            strays: map("strays", size_of::<shape::RateLimit>())?,
            shards: map("shards", size_of::<shape::ConnectionCount>())?,
            unanswered: map("unanswered", long)?,
            splices: map("splices", number)?,
            cookie_keys: map("cookie_keys", size_of::<shape::CookieKeys>())?,
            access: map("access", number)?,
            access_hits: map("access_hits", long)?,
            limits: map("limits", size_of::<shape::Limits>())?,
            paces: map("paces", long)?,
            sources: map("sources", size_of::<shape::SourceSet>())?,
            unlimited: map("unlimited", long)?,
            templates: map("templates", size_of::<shape::Template>())?,
            admitted: map("admitted", number)?,
            fragments: map("fragments", size_of::<shape::FirstFragment>())?,
            members: map("members", number)?,
            capture_filter: map("capture_filter", size_of::<shape::CaptureFilter>())?,
            capture_next: map("capture_next", long)?,
            uncaptured: map("uncaptured", size_of::<shape::Uncaptured>())?,
            captures: map("captures", number)?,
            others: [map("buckets", BUCKET)?, map("free_slots", number)?, map("pools", size_of::<shape::Pool>())?],
            locks: Map::any(object, "locks").ok(),
        })
    }

    /// Gives another object's map the table of that name, where there is one.
    pub(crate) fn share(&self, name: &str, map: &mut OpenMapMut<'_>) -> Result<(), Error> {
        let Some(table) = self.all().find(|table| table.name() == name) else { return Ok(()) };
        let refused = |source| Error::Map { map: table.name(), operation: "share", source };
        map.reuse_fd(table.as_fd()).map_err(refused)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Map> {
        let [a, b, c] = &self.others;
        let always = [
            &self.connections,
            &self.service_of,
            &self.owned,
            &self.services,
            &self.backends,
            &self.locals,
            &self.lists,
            &self.loads,
            &self.held,
            &self.refusals,
            &self.shortages,
            &self.cursors,
            &self.orders,
            &self.rests,
            &self.searches,
            &self.locals_met,
            &self.turns,
            &self.hops,
            &self.traffic,
            &self.drops,
            &self.passes,
            &self.controls,
            &self.missed,
            &self.next_hops,
            &self.routings,
            &self.vlans,
            &self.path_mtus,
            &self.past,
            &self.tellings,
            &self.strays,
            &self.shards,
            &self.unanswered,
            &self.splices,
            &self.cookie_keys,
            &self.access,
            &self.access_hits,
            &self.limits,
            &self.paces,
            &self.sources,
            &self.unlimited,
            &self.templates,
            &self.admitted,
            &self.fragments,
            &self.members,
            &self.capture_filter,
            &self.capture_next,
            &self.uncaptured,
            &self.captures,
            a,
            b,
            c,
        ];
        always.into_iter().chain(&self.locks)
    }
}

/// Loads `programs` of an object, with its maps as `prepare` makes them by their names.
pub(crate) fn load_object(
    object: &[u8],
    programs: &[&'static str],
    tuning: &Tuning,
    mut prepare: impl FnMut(&str, &mut OpenMapMut<'_>) -> Result<(), Error>,
) -> Result<Object, Error> {
    let program = programs.first().copied().unwrap_or(PROGRAM);
    check_may_load()?;
    let failed = |source| Error::Load { program, source };
    let mut builder = ObjectBuilder::default();
    builder.name("balancer").map_err(failed)?;
    let mut open = builder.open_memory(object).map_err(failed)?;
    for mut program in open.progs_mut() {
        let wanted = programs.iter().any(|name| program.name() == *name);
        program.set_autoload(wanted);
    }
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if name == TUNING {
            let refused = |source| Error::Map { map: KEPT_TUNING, operation: "write to", source };
            map.set_initial_value(tuning.as_bytes()).map_err(refused)?;
        } else {
            prepare(&name, &mut map)?;
        }
    }
    libbpf_log::load(open, program)
}

impl Balancer {
    /// Loads the programs with empty tables.
    pub fn load(sizes: Sizes) -> Result<Self, Error> {
        Self::open(sizes, None, tuning(&sizes)?, OBJECTS.for_running(PROGRAM)?, &[])
    }

    /// With keys of the hash that are given, see [`BalancerHandle::hash_keys`]. For tests that are played again.
    #[doc(hidden)]
    pub fn load_with_keys(sizes: Sizes, key: [u64; KEYS]) -> Result<Self, Error> {
        let tuning = Tuning { key, ..tuning(&sizes)? };
        Self::open(sizes, None, tuning, OBJECTS.for_running(PROGRAM)?, &[])
    }

    /// Loads the programs upon the tables that another balancer has kept in `directory`, connections and all.
    pub fn resume(directory: &Path) -> Result<Self, Error> {
        Self::open(Sizes::default(), Some(directory), kept_tuning(directory)?, OBJECTS.for_running(PROGRAM)?, &[])
    }

    /// As [`load`](Self::load) leaves it, keys apart, but that the verifier is not asked again: the tables are emptied. `None` where
    /// somebody else has a handle of it, or its tables are kept. No program of it may be attached. For tests, of which each would
    /// spend most of its time with the verifier.
    #[doc(hidden)]
    pub fn emptied(self) -> Result<Option<Self>, Error> {
        if self.kept.is_some() {
            return Ok(None);
        }
        let BalancerHandle { object, tables, sizes, tuning, .. } = self.handle();
        drop(self);
        let emptied = maps::emptied(object, tables, &[])?;
        emptied.map(|(object, tables)| Self::begin(object, tables, sizes, tuning, None)).transpose()
    }

    /// With programs that benchmarks run.
    pub(super) fn open_bench(sizes: Sizes, programs: &[&'static str]) -> Result<Self, Error> {
        check_is_new(programs.first().copied().unwrap_or(PROGRAM))?;
        Self::open(sizes, None, tuning(&sizes)?, BENCH_OBJECT, programs)
    }

    fn open(
        mut sizes: Sizes,
        kept: Option<&Path>,
        tuning: Tuning,
        object: &[u8],
        programs: &[&'static str],
    ) -> Result<Self, Error> {
        let programs = [&[PROGRAM, SWEEP, ADOPT], programs].concat();
        let object = load_object(object, &programs, &tuning, |name, map| match kept {
            Some(directory) => {
                let path = directory.join(name);
                let otherwise = |_| Error::PinnedOtherwise { path: directory.display().to_string() };
                if path.exists() { map.reuse_pinned_map(&path).map_err(otherwise) } else { Ok(()) }
            }
            None => {
                let Some((name, entries)) = entries_of(name, &sizes, &tuning) else { return Ok(()) };
                let refused = |source| Error::Map { map: name, operation: "size", source };
                map.set_max_entries(entries).map_err(refused)
            }
        })?;
        let tables = Tables::of(&object)?;
        // An older version's have no room for reasons that came later, and lack tables that did; every entry is there, so
        // nothing else tells.
        let counts = (Drop::ALL.len() + 1, Pass::ALL.len() + 1);
        if let Some(directory) = kept
            && ((tables.drops.entries() as usize, tables.passes.entries() as usize) != counts
                || tables.all().any(|table| !directory.join(table.name()).exists()))
        {
            return Err(Error::PinnedOtherwise { path: directory.display().to_string() });
        }
        if kept.is_some() {
            sizes = Sizes {
                connections: tuning.counters * tuning.connections_per_counter,
                services: tables.services.entries() - 1,
                backends: tables.backends.entries() - 1,
                local_addresses: tables.locals.entries() - 1,
                list_entries: tables.lists.entries(),
                ports: PortShare::of_tuning(&tuning),
                prefixes: Sizes::prefixes_of(tables.access_hits.entries(), tables.services.entries() - 1),
                sources: Sizes::sources_of(tables.sources.entries()),
                templates: tables.templates.entries(),
                fragments: tables.fragments.entries(),
            };
        }
        Self::begin(object, tables, sizes, tuning, kept)
    }

    /// Goes on from loaded programs, with tables that are empty or kept.
    fn begin(object: Object, tables: Tables, sizes: Sizes, tuning: Tuning, kept: Option<&Path>) -> Result<Self, Error> {
        let layout = Layout::of(tuning.sets, tuning.overflow);
        let control = tables.controls.at(0)?;
        let unsent = UnsentCounter::attach(&tables, &tuning)?;
        unsent.set_entry(0, &program(&object, PROGRAM)?)?;
        let mut balancer = Self {
            handle: BalancerHandle::new(object, tables, sizes, tuning, layout.slots()),
            known: ServiceRegistry::default(),
            gone: RemovedCounters::default(),
            access: AccessTable::default(),
            members: Members::default(),
            control,
            spreader: None,
            unsent,
            grace: GracePeriod::new()?,
            kept: kept.map(Path::to_path_buf),
        };
        if kept.is_none() {
            balancer.handle.set_cookie_secret(random_secret()?)?;
        }
        balancer.handle.turn_cookie_keys()?;
        // Of who captured when another process had these tables.
        balancer.handle.end_capture()?;
        if kept.is_none() {
            // Backends may remember the ports that another balancer has used last.
            balancer.begin_sequences(random() / u64::from(PORT_BLOCK) * u64::from(PORT_BLOCK))?;
        }
        if kept.is_some() {
            balancer.known = balancer.recall()?;
            balancer.access = balancer.recall_access()?;
            balancer.members = balancer.recall_members()?;
            balancer.handle.publish(&balancer.known);
        }
        Ok(balancer)
    }

    /// Pins the tables into `directory`, on a bpf file system, so that [`resume`](Self::resume) can go on with them after
    /// this process has ended. Attachments are kept by themselves, see [`Attachment::keep`](super::Attachment::keep), and
    /// with them the programs that they lead to, queues of workers included.
    pub fn keep(&mut self, directory: &Path) -> Result<(), Error> {
        for map in self.tables.all() {
            map.pin(directory)?;
        }
        // The program's constants cannot be pinned under a name with a dot in front.
        Map::of(&self.object, TUNING, size_of::<Tuning>())?.pin_as(&directory.join(KEPT_TUNING))?;
        self.kept = Some(directory.to_path_buf());
        self.keep_counting()
    }

    /// Numbers of local addresses that a list has.
    fn pool(&self, list: ListSpan) -> Result<BTreeSet<u32>, Error> {
        (list.offset..list.offset + list.length).map(|at| self.tables.lists.at(at)).collect()
    }

    /// What the tables say, for a control plane that has been started anew.
    fn recall(&self) -> Result<ServiceRegistry, Error> {
        let mut known = ServiceRegistry::default();
        for number in 1..=self.sizes.services {
            let service: shape::Service = self.tables.services.at(number)?;
            if service.protocol == 0 {
                continue;
            }
            let protocol = protocol(service.protocol);
            let address = socket(service.address, service.port);
            let open: Option<u32> = self.tables.service_of.get(&key(protocol, address))?;
            let entry = ServiceEntry {
                number,
                open: open == Some(number),
                schedule: ListSpan::of_word(service.schedule),
                locals: ListSpan::joined(service.locals, service.locals_v4),
                pools: [
                    self.pool(ListSpan::of_word(service.locals))?,
                    self.pool(ListSpan::of_word(service.locals_v4))?,
                ],
                expire: ExpiryPolicy::of_number(service.expire),
                scheduler: None,
            };
            known.services.insert(Identity { protocol, address, forward: service.forward }, entry);
        }
        for number in 1..=self.sizes.backends {
            let backend: shape::Backend = self.tables.backends.at(number)?;
            if backend.service != 0 {
                let at = (backend.service.into(), socket(backend.address, backend.port));
                // One that is not in the next configuration is removed then.
                known.backends.insert(at, BackendEntry { number, leaving: None });
            }
        }
        for number in 1..=self.sizes.local_addresses {
            let address: Address = self.tables.locals.at(number)?;
            if address != Address::default() {
                known.locals.insert(address.into(), LocalEntry { number, left: Some(0) });
                // Rounds are counted anew.
                self.tables.locals_met.set(&number, &0_u32)?;
            }
        }
        let named = known.services.keys().map(|identity| identity.address.ip());
        let named = named.chain(known.locals.keys().copied()).chain(known.backends.keys().map(|(_, at)| at.ip()));
        for address in named.collect::<BTreeSet<_>>() {
            if let Some(as_what) = self.tables.owned.get(&Address::from(address))? {
                known.owned.insert(address, as_what);
            }
        }
        Ok(known)
    }
}

/// Elements of the maps that are sized, and the names.
fn entries_of(name: &str, sizes: &Sizes, tuning: &Tuning) -> Option<(&'static str, u32)> {
    Some(match name {
        "connections" => {
            let cpus = possible_cpus().ok()? as u32;
            ("connections", Layout::of(tuning.sets, tuning.overflow).sets() as u32 + cpus)
        }
        "buckets" => ("buckets", sizes.buckets()),
        "free_slots" => ("free_slots", tuning.overflow),
        "service_of" => ("service_of", sizes.services),
        "owned" => ("owned", sizes.services + sizes.local_addresses + sizes.backends),
        "services" => ("services", sizes.services + 1),
        "held" => ("held", sizes.services + 1),
        "unanswered" => ("unanswered", sizes.services + 1),
        "refusals" => ("refusals", sizes.services + 1),
        "turns" => ("turns", sizes.services + 1),
        "past" => ("past", sizes.services + 1),
        "path_mtus" => ("path_mtus", sizes.backends + 1),
        "backends" => ("backends", sizes.backends + 1),
        "loads" => ("loads", sizes.backends + 1),
        "shortages" => ("shortages", sizes.backends + 1),
        "hops" => ("hops", sizes.cached_routes()),
        "next_hops" => ("next_hops", 2 * sizes.backends + 4096),
        "traffic" => ("traffic", sizes.backends + 1),
        "locals" => ("locals", sizes.local_addresses + 1),
        "rests" => ("rests", tuning.hold_mask + 1),
        "locals_met" => ("locals_met", sizes.local_addresses + 1),
        "lists" => ("lists", sizes.list_entries),
        "access_hits" => ("access_hits", sizes.access_numbers()),
        "limits" => ("limits", sizes.services + 1),
        "paces" => ("paces", sizes.services + 1),
        "unlimited" => ("unlimited", sizes.services + 1),
        "sources" => ("sources", tuning.source_sets),
        "templates" => ("templates", sizes.templates),
        "admitted" => ("admitted", sizes.sources),
        "fragments" => ("fragments", sizes.fragments),
        "members" => ("members", 3 * sizes.backends),
        stages::REPLIES => (stages::REPLIES, sizes.connections),
        _ => return None,
    })
}

/// Of new tables.
fn tuning(sizes: &Sizes) -> Result<Tuning, Error> {
    sizes.validate()?;
    sizes.tuning()
}

fn kept_tuning(directory: &Path) -> Result<Tuning, Error> {
    let path: PathBuf = directory.join(KEPT_TUNING);
    let opened = MapHandle::from_pinned_path(&path);
    let map = opened.map_err(|source| Error::Pin { operation: "open", path: path.display().to_string(), source })?;
    let read = |source| Error::Map { map: KEPT_TUNING, operation: "read", source };
    let bytes = map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).map_err(read)?;
    let tuning = bytes.and_then(|bytes| Tuning::read_from_bytes(&bytes).ok());
    let ours = tuning.filter(|tuning| tuning.version == SHAPE_VERSION);
    ours.ok_or_else(|| Error::PinnedOtherwise { path: directory.display().to_string() })
}
