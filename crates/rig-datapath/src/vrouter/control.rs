//! The control plane: what a configuration says is put into the tables.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use ipnet::IpNet;
use libbpf_rs::Object;
use rig_sys::tc::Attached;
use rig_wire::ethernet::Mac;
use zerocopy::IntoBytes;

use crate::Error;
use crate::grace::GracePeriod;
use crate::maps;

use super::closed::ClosedFilters;
use super::config::{
    Analyser, Config, Encapsulation, Flood, Interface, NextHop, Peer, Policy, Service, Vni, Vrf, flood_tunnel,
};
use super::keep::Links;
use super::load::{self, Tables};
use super::numbers::Numbers;
use super::rules::CompiledRules;
use super::shape::{
    self, ANY_MAC, Control, HAS_POLICY, MAX_LISTS, MAX_MEMBERS, MAX_WAYS, Route, SERVES_DHCP, kind, v4,
};
use super::sizes::Sizes;
use super::spans::{ElementRange, Spans};
use super::status::ForwardingCounters;

/// A vRouter: its programs, its tables, and what they have been told.
pub struct Router {
    pub(super) object: Arc<Object>,
    pub(super) tables: Arc<Tables>,
    pub(super) sizes: Sizes,
    pub(super) control: Control,
    pub(super) known: MapContents,
    /// What was applied last, whole.
    applied: Config,
    pub(super) left: MovedCounts,
    pub(super) numbers: Allocations,
    grace: Arc<GracePeriod>,
    /// Ends when no program has any more what the last configuration has taken away.
    release: Option<JoinHandle<Result<(), Error>>>,
    /// Interfaces whose elements are to be emptied then.
    gone: BTreeSet<u32>,
    /// Programs on interfaces, by the kernel's numbers of these.
    pub(super) containers: BTreeMap<u32, Attached>,
    pub(super) underlay: BTreeMap<u32, Attached>,
    pub(super) mirrors: BTreeMap<u32, Attached>,
    /// Where these are kept.
    pub(super) links: Option<Links>,
    /// Programs on interfaces that are the configuration's no more.
    pub(super) left_behind: Vec<Attached>,
    /// What closes interfaces for when there is no router.
    pub(super) closing: Option<ClosedFilters>,
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Router").field("epoch", &self.control.epoch).finish_non_exhaustive()
    }
}

/// What has taken packets of interfaces, when they were in other VRFs than they are now.
#[derive(Debug, Default)]
pub(super) struct MovedCounts {
    /// By the VRFs where they were.
    pub(super) gone: BTreeMap<u32, ForwardingCounters>,
    /// By the interfaces' numbers.
    pub(super) before: BTreeMap<u32, ForwardingCounters>,
}

/// What the eBPF maps contain.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct MapContents {
    pub(super) vrfs: BTreeMap<u32, Arc<Table>>,
    pub(super) labels: BTreeMap<u32, u32>,
    pub(super) vnis: BTreeMap<u32, u32>,
    pub(super) peers: BTreeMap<Ipv4Addr, shape::Peer>,
    pub(super) interfaces: BTreeMap<u32, shape::Interface>,
    /// Interfaces that tunnels go over.
    pub(super) underlay: BTreeSet<u32>,
    /// Written when the program for copies is where they come by.
    pub(super) analysers: BTreeMap<u8, shape::Analyser>,
    pub(super) fat: BTreeMap<(u32, Service), u32>,
}

/// What the tables say of one VRF.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) hosts: BTreeMap<IpAddr, Route>,
    pub(super) prefixes: BTreeMap<IpNet, Route>,
    pub(super) macs: BTreeMap<Mac, Route>,
    /// Numbers of all next hops that these lead to, and of those which lead to several.
    hops: Vec<u32>,
    ways: Vec<u32>,
    floods: Vec<u32>,
}

/// A next hop in a table: itself, or the ways that it leads to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum NextHopKey {
    Itself(Vec<u8>),
    Several(Vec<(u32, u32)>),
    All(FloodMembers),
}

/// Members that get frames to all: those of this node, of which there are `here`, come first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FloodMembers {
    pub(super) ways: Vec<(u32, u32)>,
    pub(super) here: u32,
    pub(super) unknown_unicast: bool,
}

/// Which numbers stand for what.
#[derive(Debug)]
pub(super) struct Allocations {
    pub(super) hops: Numbers<NextHopKey>,
    ways: Numbers<Vec<(u32, u32)>>,
    floods: Numbers<FloodMembers>,
    /// By the number that the configuration has for a list and what it says.
    lists: BTreeMap<u32, ListPlacement>,
    /// Lists that no interface has any more, and programs may still have.
    old_lists: Vec<ListPlacement>,
    list_numbers: Spans,
    cuts: Spans,
    bounds: Spans,
    rows: Spans,
    flow_actions: Spans,
}

/// A list in the tables.
#[derive(Debug)]
struct ListPlacement {
    list: super::config::List,
    /// The epoch that it came with.
    since: u32,
    number: ElementRange,
    cuts: ElementRange,
    bounds: ElementRange,
    rows: ElementRange,
    flow_actions: ElementRange,
}

impl Router {
    /// Loads the programs with empty tables.
    ///
    /// # Errors
    /// When the kernel does not let this process load programs, or has no room.
    pub fn load(sizes: Sizes) -> Result<Self, Error> {
        Self::open(sizes, load::for_running()?, None)
    }

    pub(super) fn open(sizes: Sizes, object: &[u8], kept: Option<&Path>) -> Result<Self, Error> {
        sizes.validate()?;
        let (object, tables) = load::load(&sizes, object, kept)?;
        Self::begin(object, tables, sizes)
    }

    /// As [`load`](Self::load) leaves it, but that the verifier is not asked again: the tables are emptied. `None` where somebody else
    /// has them. For tests, of which each would spend most of its time with the verifier.
    ///
    /// # Errors
    /// When the kernel refuses to empty a table.
    #[doc(hidden)]
    pub fn emptied(mut self) -> Result<Option<Self>, Error> {
        if self.links.is_some() {
            return Ok(None);
        }
        self.release()?;
        // Of a million elements, which only this control plane writes.
        self.known.labels.keys().try_for_each(|label| self.tables.labels.set(label, &0_u32))?;
        let (labels, sizes) = (self.tables.labels.name(), self.sizes);
        let (object, tables) = (Arc::clone(&self.object), Arc::clone(&self.tables));
        drop(self);
        let emptied = maps::emptied(object, tables, &[labels])?;
        emptied.map(|(object, tables)| Self::begin(object, tables, sizes)).transpose()
    }

    /// Goes on from loaded programs.
    fn begin(object: Object, tables: Tables, sizes: Sizes) -> Result<Self, Error> {
        let numbers = Allocations {
            hops: Numbers::new("next hops", 1, sizes.next_hops),
            ways: Numbers::new("next hops with several ways", 0, sizes.ways),
            floods: Numbers::new("networks with frames to all", 0, sizes.floods),
            lists: BTreeMap::new(),
            old_lists: Vec::new(),
            list_numbers: Spans::new("lists of rules", sizes.lists),
            cuts: Spans::new("ranges of addresses", sizes.cuts),
            bounds: Spans::new("ranges of ports", sizes.bounds),
            rows: Spans::new("rows of rules", sizes.rows),
            flow_actions: Spans::new("rules that log", sizes.alsos),
        };
        let mut router = Self {
            object: Arc::new(object),
            tables: Arc::new(tables),
            sizes,
            control: Control { epoch: 1, ..Control::default() },
            known: MapContents::default(),
            applied: Config::default(),
            left: MovedCounts::default(),
            numbers,
            grace: Arc::new(GracePeriod::new()?),
            release: None,
            gone: BTreeSet::new(),
            containers: BTreeMap::new(),
            underlay: BTreeMap::new(),
            mirrors: BTreeMap::new(),
            links: None,
            left_behind: Vec::new(),
            closing: None,
        };
        // List 0 is none.
        router.numbers.list_numbers.take(1)?;
        Ok(router)
    }

    /// Puts a configuration into the tables in place of the one before. Flows go on; with the next packet of each it is held
    /// against the new rules and routes.
    ///
    /// # Errors
    /// [`Error::Config`] and [`Error::NoRoom`] before anything that packets meet has changed.
    pub fn apply(&mut self, config: &Config) -> Result<(), Error> {
        self.apply_at_once(config)?;
        self.release()
    }

    /// The same, but that what packets find no more is still in the tables when it returns: no program waits for that. It is given
    /// free by the next call of this or of [`release_if_unused`](Self::release_if_unused), some milliseconds later.
    ///
    /// # Errors
    /// As of [`apply`](Self::apply).
    pub fn apply_at_once(&mut self, config: &Config) -> Result<(), Error> {
        self.release_if_unused()?;
        // A program may still have a number from when it was another interface's.
        if config.interfaces.keys().any(|number| self.gone.contains(number)) {
            if self.release.is_some() { self.release()? } else { self.grace.wait()? }
        }
        let holds_more = self.release.is_some();
        match self.put(config) {
            Err(Error::NoRoom { .. }) if holds_more => {
                // Only what is put whole says what is not wanted any more.
                let applied = self.applied.clone();
                self.put(&applied)?;
                self.release()?;
                self.put(config)
            }
            done => done,
        }
    }

    fn put(&mut self, config: &Config) -> Result<(), Error> {
        let leads_alike = self.applied.leads_alike(config);
        let stays = |vrf: u32| leads_alike && self.applied.vrfs.get(&vrf) == config.vrfs.get(&vrf);
        let unchanged: BTreeSet<u32> = config.vrfs.keys().copied().filter(|vrf| stays(*vrf)).collect();
        config.validate_but(|vrf| unchanged.contains(&vrf))?;
        // What is wanted is not known again before all of it is put.
        self.release = None;
        self.numbers.hops.begin();
        self.numbers.ways.begin();
        self.numbers.floods.begin();
        let new_lists = self.place_lists(config)?;
        let mut lists: BTreeMap<u32, u32> =
            self.numbers.lists.iter().map(|(number, placed)| (*number, placed.number.first)).collect();
        lists.extend(new_lists.iter().map(|(number, placed)| (*number, placed.number.first)));
        let next = match self.translate(config, &lists, &unchanged) {
            Ok(next) => next,
            Err(error) => {
                new_lists.iter().for_each(|(_, placed)| self.numbers.give(placed));
                return Err(error);
            }
        };
        self.numbers.replace_lists(config, new_lists);
        let before = std::mem::take(&mut self.known);
        self.known = next;
        self.applied = config.clone();
        let (known, tables) = (&self.known, &self.tables);
        tables.exchange_fat(&before, known)?;
        if self.control.fat == 0 && !known.fat.is_empty() {
            // Those that there are stay fat when no others shall become it.
            self.control.fat = 1;
            tables.controls.set(&0_u32, &self.control)?;
        }
        tables.exchange(&before, known, &self.numbers.tables())?;
        for number in before.analysers.keys().filter(|number| !known.analysers.contains_key(number)) {
            tables.analysers.set(&u32::from(*number), &shape::Analyser::default())?;
        }
        self.control.epoch = self.control.epoch.checked_add(1).unwrap_or(1);
        self.control.address = config.underlay.as_ref().map_or(0, |underlay| v4(underlay.address));
        self.control.mac = config.mac.0;
        self.tables.controls.set(&0_u32, &self.control)?;
        self.leave(&before)?;
        let known = &self.known.interfaces;
        self.gone.extend(before.interfaces.keys());
        self.gone.retain(|number| !known.contains_key(number));
        // Ways and members go with a next hop.
        if self.numbers.hops.unwanted().is_empty() && self.gone.is_empty() && self.numbers.old_lists.is_empty() {
            return Ok(());
        }
        let grace = Arc::clone(&self.grace);
        match thread::Builder::new().name("grace".into()).spawn(move || grace.wait()) {
            Ok(waiting) => self.release = Some(waiting),
            Err(_) => {
                self.grace.wait()?;
                self.free()?;
            }
        }
        Ok(())
    }

    /// Gives free what packets find no more, if no program has it in its hands any more.
    ///
    /// # Errors
    /// The kernel's.
    pub fn release_if_unused(&mut self) -> Result<(), Error> {
        if self.release.as_ref().is_some_and(JoinHandle::is_finished) { self.release() } else { Ok(()) }
    }

    /// Whether there is something to be given free.
    pub fn has_unreleased(&self) -> bool {
        self.release.is_some()
    }

    /// Gives it free once no program has it.
    fn release(&mut self) -> Result<(), Error> {
        let Some(waiting) = self.release.take() else { return Ok(()) };
        // It does not panic.
        waiting.join().unwrap_or_else(|_| self.grace.wait())?;
        self.free()
    }

    fn free(&mut self) -> Result<(), Error> {
        let gone = std::mem::take(&mut self.gone);
        gone.iter().try_for_each(|number| self.tables.interfaces.set(number, &shape::Interface::default()))?;
        let hops = self.numbers.hops.unwanted();
        hops.iter().try_for_each(|number| self.tables.next_hops.set(number, &shape::NextHop::default()))?;
        let old_lists = std::mem::take(&mut self.numbers.old_lists);
        old_lists.iter().for_each(|placed| self.numbers.give(placed));
        self.numbers.hops.release();
        self.numbers.ways.release();
        self.numbers.floods.release();
        Ok(())
    }

    /// Puts down what has taken packets of interfaces that have left their VRF.
    fn leave(&mut self, before: &MapContents) -> Result<(), Error> {
        for (number, was) in &before.interfaces {
            if self.known.interfaces.get(number).is_some_and(|is| is.vrf == was.vrf) {
                continue;
            }
            let now = self.traffic(*number)?.taken;
            let counted = self.left.before.insert(*number, now).unwrap_or_default();
            let gone = self.left.gone.entry(was.vrf).or_default();
            *gone = gone.and(now.since(counted));
        }
        self.left.gone.retain(|vrf, _| self.known.vrfs.contains_key(vrf));
        Ok(())
    }

    /// Since which epoch each list says what it says, by its number.
    pub fn lists_since(&self) -> BTreeMap<u32, u32> {
        self.numbers.lists.iter().map(|(number, placed)| (*number, placed.since)).collect()
    }

    /// Puts lists that have changed beside the old ones.
    fn place_lists(&mut self, config: &Config) -> Result<Vec<(u32, ListPlacement)>, Error> {
        let mut new = Vec::new();
        for (number, list) in &config.lists {
            if self.numbers.lists.get(number).is_some_and(|placed| placed.list == *list) {
                continue;
            }
            let compiled = CompiledRules::new(list);
            let since = self.control.epoch.checked_add(1).unwrap_or(1);
            let written = self.numbers.take(list, since, &compiled).and_then(|placed| {
                self.write_list(*number, &placed, &compiled)?;
                Ok(placed)
            });
            match written {
                Ok(placed) => new.push((*number, placed)),
                Err(error) => {
                    new.iter().for_each(|(_, placed)| self.numbers.give(placed));
                    return Err(error);
                }
            }
        }
        Ok(new)
    }

    fn write_list(&self, number: u32, placed: &ListPlacement, compiled: &CompiledRules) -> Result<(), Error> {
        let base = placed.rows.first;
        self.tables.rows.set_range(base, &compiled.rows)?;
        let cuts: Vec<shape::Cut> = compiled
            .cuts
            .iter()
            .map(|(from, row)| shape::Cut { from: [(from >> 64) as u64, *from as u64], row: base + row, pad: 0 })
            .collect();
        self.tables.cuts.set_range(placed.cuts.first, &cuts)?;
        let bounds: Vec<shape::Bound> =
            compiled.bounds.iter().map(|(from, row)| shape::Bound { from: *from, row: base + row }).collect();
        self.tables.bounds.set_range(placed.bounds.first, &bounds)?;
        self.tables.alsos.set_range(placed.flow_actions.first, &compiled.flow_actions)?;
        let list = shape::List {
            cuts_first: placed.cuts.first,
            cuts_count: placed.cuts.count,
            bounds_first: placed.bounds.first,
            bounds_count: placed.bounds.count,
            allow_row: base + compiled.allowing,
            allow_otherwise: compiled.otherwise.into(),
            also_first: placed.flow_actions.first,
            also_count: placed.flow_actions.count,
            number,
            since: placed.since,
        };
        self.tables.lists.set(&placed.number.first, &list)
    }

    /// What the tables are to say; new next hops are put into theirs, where nothing leads to them yet.
    fn translate(
        &mut self,
        config: &Config,
        lists: &BTreeMap<u32, u32>,
        unchanged: &BTreeSet<u32>,
    ) -> Result<MapContents, Error> {
        let mut known = MapContents::default();
        for (number, interface) in &config.interfaces {
            let next_hop = self.route(config, &NextHop::Interface(*number))?.next_hop;
            known.interfaces.insert(*number, describe(interface, next_hop, lists, config.most_flows));
        }
        for (vrf, table) in &config.vrfs {
            let table = match self.known.vrfs.get(vrf).filter(|_| unchanged.contains(vrf)) {
                Some(known) => {
                    self.numbers.hops.keep(&known.hops);
                    self.numbers.ways.keep(&known.ways);
                    self.numbers.floods.keep(&known.floods);
                    Arc::clone(known)
                }
                None => Arc::new(self.table(config, table)?),
            };
            known.vrfs.insert(*vrf, table);
        }
        for (label, next_hop) in &config.labels {
            known.labels.insert(*label, self.route(config, next_hop)?.next_hop);
        }
        for (vrf, table) in &config.vrfs {
            let all = known.vrfs.get(vrf).and_then(|table| table.macs.get(&Mac::BROADCAST));
            if let (Some(label), Some(all)) = (table.flood.as_ref().and_then(|flood| flood.label), all) {
                known.labels.insert(label, all.next_hop);
            }
        }
        for (vni, target) in &config.vnis {
            let next_hop = match target {
                Vni::Vrf(vrf) => NextHop::Vrf(*vrf),
                Vni::Interface(number) => NextHop::Interface(*number),
            };
            known.vnis.insert(*vni, self.route(config, &next_hop)?.next_hop);
        }
        if let Some(underlay) = &config.underlay {
            let peer = |peer: &Peer| shape::Peer {
                ifindex: peer.interface,
                gateway: v4(peer.gateway),
                comes_by: if underlay.strict { peer.interface } else { 0 },
            };
            known.peers = underlay.peers.iter().map(|(address, known)| (*address, peer(known))).collect();
            known.underlay = underlay.peers.values().map(|peer| peer.interface).collect();
        }
        known.analysers = config.analysers.iter().map(|(number, analyser)| (*number, described(analyser))).collect();
        for (number, interface) in &config.interfaces {
            known.fat.extend(interface.fat.iter().map(|service| ((*number, *service), 1)));
        }
        let all = |count: fn(&Table) -> usize| known.vrfs.values().map(|table| count(table)).sum();
        let room = [
            ("interfaces", self.sizes.interfaces, known.interfaces.keys().max().map_or(0, |most| *most as usize)),
            ("routes to addresses", self.sizes.hosts, all(|table| table.hosts.len())),
            ("routes", self.sizes.prefixes, all(|table| table.prefixes.len())),
            ("MAC addresses", self.sizes.macs, all(|table| table.macs.len())),
            ("network identifiers", self.sizes.vnis, known.vnis.len()),
            ("peers", self.sizes.peers, known.peers.len()),
            ("services with fat flows", self.sizes.fat, known.fat.len()),
        ];
        match room.into_iter().find(|(_, room, wanted)| wanted > &(*room as usize)) {
            Some((what, room, wanted)) => Err(Error::NoRoom { what, room, wanted }),
            None => Ok(known),
        }
    }

    fn table(&mut self, config: &Config, vrf: &Vrf) -> Result<Table, Error> {
        let mut table = Table::default();
        self.numbers.hops.lately();
        self.numbers.ways.lately();
        self.numbers.floods.lately();
        for (prefix, next_hop) in &vrf.routes {
            let route = self.route(config, next_hop)?;
            match prefix.prefix_len() == prefix.max_prefix_len() {
                true => table.hosts.insert(prefix.addr(), route),
                false => table.prefixes.insert(*prefix, route),
            };
        }
        for (mac, next_hop) in &vrf.macs {
            table.macs.insert(*mac, self.route(config, next_hop)?);
        }
        if let Some(flood) = &vrf.flood {
            table.macs.insert(Mac::BROADCAST, self.all_of(config, flood)?);
        }
        (table.hops, table.ways) = (self.numbers.hops.lately(), self.numbers.ways.lately());
        table.floods = self.numbers.floods.lately();
        Ok(table)
    }

    /// A route by the numbers that its next hop has in the tables.
    fn route(&mut self, config: &Config, next_hop: &NextHop) -> Result<Route, Error> {
        let mut hop = shape::NextHop::default();
        let mut label = 0;
        match next_hop {
            NextHop::Discard => return Ok(Route::default()),
            NextHop::Gateway => hop.kind = kind::TO_GATEWAY,
            NextHop::Vrf(vrf) => (hop.kind, hop.number) = (kind::TO_VRF, *vrf),
            NextHop::Interface(number) => {
                // It is there: the configuration has been checked.
                let Some(interface) = config.interfaces.get(number) else { return Ok(Route::default()) };
                (hop.kind, hop.number, hop.ifindex, hop.mac) =
                    (kind::TO_INTERFACE, *number, interface.index, interface.mac.0);
            }
            NextHop::Tunnel(tunnel) => {
                let underlay = config.underlay.as_ref();
                let Some((underlay, peer)) =
                    underlay.and_then(|underlay| Some((underlay, underlay.peers.get(&tunnel.peer)?)))
                else {
                    return Ok(Route::default());
                };
                hop = through(tunnel.encapsulation, underlay.address, tunnel.peer, peer, tunnel.mac);
                label = tunnel.label;
            }
            NextHop::Ecmp(all) => return self.several(config, all),
        }
        let (number, is_new) = self.numbers.hops.want(&NextHopKey::Itself(hop.as_bytes().to_vec()))?;
        if is_new {
            self.tables.next_hops.set(&number, &hop)?;
        }
        Ok(Route { next_hop: number, label })
    }

    fn all_of(&mut self, config: &Config, flood: &Flood) -> Result<Route, Error> {
        let here = flood.members.iter().map(|member| NextHop::Interface(*member));
        let all = here.chain(flood.peers.iter().map(|(peer, way)| flood_tunnel(*peer, *way)));
        let routes = all.map(|member| self.route(config, &member)).collect::<Result<Vec<_>, _>>()?;
        let (here, count) = (flood.members.len() as u32, routes.len() as u16);
        let ways = routes.iter().map(|route| (route.next_hop, route.label)).collect();
        let members = FloodMembers { ways, here, unknown_unicast: flood.unknown_unicast };
        let (place, is_new) = self.numbers.floods.want(&members)?;
        if is_new {
            let mut value = [Route::default(); MAX_MEMBERS];
            value.iter_mut().zip(&routes).for_each(|(to, from)| *to = *from);
            self.tables.members.set(&place, &value)?;
        }
        let (number, is_new) = self.numbers.hops.want(&NextHopKey::All(members))?;
        if is_new {
            let unknown = u32::from(flood.unknown_unicast);
            let hop = shape::NextHop { kind: kind::TO_ALL, mtu: count, number: place, ..shape::NextHop::default() };
            self.tables.next_hops.set(&number, &shape::NextHop { source: here, destination: unknown, ..hop })?;
        }
        Ok(Route { next_hop: number, label: 0 })
    }

    fn several(&mut self, config: &Config, all: &[NextHop]) -> Result<Route, Error> {
        let routes = all.iter().map(|way| self.route(config, way)).collect::<Result<Vec<_>, _>>()?;
        let ways: Vec<(u32, u32)> = routes.iter().map(|route| (route.next_hop, route.label)).collect();
        let (place, is_new) = self.numbers.ways.want(&ways)?;
        if is_new {
            let mut value = [Route::default(); MAX_WAYS];
            value.iter_mut().zip(&routes).for_each(|(to, from)| *to = *from);
            self.tables.ways.set(&place, &value)?;
        }
        let count = ways.len() as u16;
        let (number, is_new) = self.numbers.hops.want(&NextHopKey::Several(ways))?;
        if is_new {
            let hop = shape::NextHop { kind: kind::TO_ONE, mtu: count, number: place, ..shape::NextHop::default() };
            self.tables.next_hops.set(&number, &hop)?;
        }
        Ok(Route { next_hop: number, label: 0 })
    }
}

impl Allocations {
    /// Numbers of next hops that lead to another table.
    fn tables(&self) -> BTreeSet<u32> {
        let leads_on =
            |hop: &NextHopKey| matches!(hop, NextHopKey::Itself(bytes) if bytes.first() == Some(&kind::TO_VRF));
        self.hops.iter().filter(|(hop, _)| leads_on(hop)).map(|(_, number)| number).collect()
    }

    /// Lists that have come, in place of those with the same number and of those that are not configured any more.
    fn replace_lists(&mut self, config: &Config, new: Vec<(u32, ListPlacement)>) {
        for (number, placed) in new {
            self.old_lists.extend(self.lists.insert(number, placed));
        }
        let gone: Vec<u32> = self.lists.keys().filter(|number| !config.lists.contains_key(number)).copied().collect();
        self.old_lists.extend(gone.iter().filter_map(|number| self.lists.remove(number)));
    }

    fn take(
        &mut self,
        list: &super::config::List,
        since: u32,
        compiled: &CompiledRules,
    ) -> Result<ListPlacement, Error> {
        let mut placed = ListPlacement {
            list: list.clone(),
            since,
            number: ElementRange::default(),
            cuts: ElementRange::default(),
            bounds: ElementRange::default(),
            rows: ElementRange::default(),
            flow_actions: ElementRange::default(),
        };
        let taken = (|| {
            placed.number = self.list_numbers.take(1)?;
            placed.cuts = self.cuts.take(compiled.cuts.len() as u32)?;
            placed.bounds = self.bounds.take(compiled.bounds.len() as u32)?;
            placed.rows = self.rows.take(compiled.rows.len() as u32)?;
            placed.flow_actions = self.flow_actions.take(compiled.flow_actions.len() as u32)?;
            Ok(())
        })();
        if let Err(error) = taken {
            self.give(&placed);
            return Err(error);
        }
        Ok(placed)
    }

    fn give(&mut self, placed: &ListPlacement) {
        self.list_numbers.give(placed.number);
        self.cuts.give(placed.cuts);
        self.bounds.give(placed.bounds);
        self.rows.give(placed.rows);
        self.flow_actions.give(placed.flow_actions);
    }
}

/// An interface as the table has it.
fn describe(
    interface: &Interface,
    next_hop: u32,
    lists: &BTreeMap<u32, u32>,
    most_flows: Option<NonZeroU32>,
) -> shape::Interface {
    let numbers = |of: &[u32]| {
        let mut numbers = [0; MAX_LISTS];
        let known = of.iter().filter_map(|list| lists.get(list).copied());
        numbers.iter_mut().zip(known).for_each(|(to, from)| *to = from);
        numbers
    };
    let none = Policy::default();
    let policy = interface.policy.as_ref().unwrap_or(&none);
    shape::Interface {
        ifindex: interface.index,
        vrf: interface.vrf,
        next_hop,
        most_flows: policy.most_flows.or(most_flows).map_or(0, NonZeroU32::get),
        outward: numbers(&policy.outward),
        inward: numbers(&policy.inward),
        mac: interface.mac.0,
        mirror: interface.mirror.unwrap_or(0),
        flags: if interface.policy.is_some() { HAS_POLICY } else { 0 }
            | if interface.serves_dhcp { SERVES_DHCP } else { 0 }
            | if interface.any_mac { ANY_MAC } else { 0 },
        known_mac: if interface.any_mac { 0 } else { shape::word_of_mac(interface.mac) },
        gateway: [
            interface.gateway.map(IpAddr::from).map(Into::into).unwrap_or_default(),
            interface.gateway6.map(IpAddr::from).map(Into::into).unwrap_or_default(),
        ],
        ..shape::Interface::default()
    }
}

/// An analyser as the table has it; one without a way is none.
fn described(analyser: &Analyser) -> shape::Analyser {
    let Some(peer) = &analyser.peer else { return shape::Analyser::default() };
    let next_hop = shape::NextHop {
        mtu: peer.mtu.min(LARGEST),
        ifindex: peer.interface,
        source: v4(analyser.source),
        destination: v4(analyser.address),
        gateway: v4(peer.gateway),
        ..shape::NextHop::default()
    };
    shape::Analyser { next_hop, port: analyser.port.to_be(), pad: 0, vni: analyser.vni }
}

/// Bytes of the largest packet that a tc program may make (the kernel's SKB_MAX_ALLOC, of four pages); those that are still to
/// be cut into segments may be larger.
pub(super) const LARGEST: u16 = 16_000;

fn through(encapsulation: Encapsulation, own: Ipv4Addr, to: Ipv4Addr, peer: &Peer, mac: Mac) -> shape::NextHop {
    shape::NextHop {
        kind: kind::TO_TUNNEL,
        encapsulation: encapsulation as u8,
        mtu: peer.mtu.min(LARGEST).saturating_sub(encapsulation.overhead()),
        ifindex: peer.interface,
        source: v4(own),
        destination: v4(to),
        gateway: v4(peer.gateway),
        mac: mac.0,
        ..shape::NextHop::default()
    }
}
