//! Next hops: the kernel is to know where they are before packets go there, and to notice when another device is there.
//!
//! A program can ask for no neighbour, and what it sends confirms none. So the kernel keeps those of backends fresh by itself,
//! as managed entries; where it cannot, they are asked for again and again.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use libbpf_rs::query::MapInfoIter;
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use rig_sys::netlink::{NeighborRefresh, Netlink, NextHop, RuleInput};
use rig_sys::netns::NetNs;
use zerocopy::{FromBytes, IntoBytes};

use crate::Error;

use super::handle::BalancerHandle;
use super::load::Tables;
use super::next_hops::{self, NextHops};
use super::shape::{self, Address, route_key};
use super::watch::{Routes, Watch};

/// How often routes and entries are looked at again; where the kernel does not keep entries fresh, also how often it asks.
const AGAIN: Duration = Duration::from_secs(10);
/// For how long a next hop is kept that no packet goes to any more, since routes have changed perhaps.
const NOTED: Duration = Duration::from_secs(3600);
/// At a time, beside those that are new.
const AT_ONCE: usize = 512;
/// The port whose datagrams are thrown away (RFC 863).
const DISCARD: u16 = 9;

#[derive(Default)]
pub(super) struct Neighbors {
    /// Of the namespace that it was first opened in.
    netlink: Option<Netlink>,
    backends: BTreeMap<u32, RouteState>,
    /// Which programs have seen for a backend, and when last.
    noted: BTreeMap<(u32, NextHop), Instant>,
    managed: BTreeSet<NextHop>,
    /// Inode of that namespace: value in the map `next_hops` of the neighbours that its kernel was told to keep, with 0 in place of a
    /// backend. Other balancers see by it which are theirs.
    namespace: u32,
    /// Entries of others, and those that this kernel does not keep.
    introduced: BTreeSet<NextHop>,
    rules: Option<(Instant, RuleInput)>,
    routes: Option<Arc<Routes>>,
    watch: Option<Watch>,
    /// Up to where changes of routes have been looked at.
    stirs: u64,
    next_hops: next_hops::Table,
    /// As if the kernel managed no neighbours.
    pub(super) unmanaged: bool,
}

struct RouteState {
    address: IpAddr,
    looked: Instant,
    /// Its route may be another one since.
    due: bool,
    /// If not, the kernel had no route when it was last looked at, and the hops are those of before.
    has_route: bool,
    hops: Vec<NextHop>,
}

fn failed(address: IpAddr) -> impl FnOnce(rig_sys::Error) -> Error {
    move |error| Error::Neighbor { address, source: error.source }
}

impl Neighbors {
    /// See [`BalancerHandle::ask_for_neighbors`].
    pub(super) fn tend(&mut self, handle: &BalancerHandle) -> Result<usize, Error> {
        let unknown: IpAddr = Ipv4Addr::UNSPECIFIED.into();
        if self.netlink.is_none() {
            self.netlink = Some(Netlink::here().map_err(failed(unknown))?);
            self.namespace = namespace_here().map_err(failed(unknown))?;
            self.managed = kept(&handle.tables.next_hops.entries_of_hash(), self.namespace);
        }
        let routes = match &self.routes {
            Some(routes) => Arc::clone(routes),
            None => Arc::clone(self.routes.insert(Arc::new(Routes::new(Arc::clone(&handle.tables))?))),
        };
        // Without it programs ask for ways more often; neighbours are to be known all the same.
        let watched = match &self.watch {
            Some(watch) if watch.goes_on() => Ok(()),
            _ => {
                // Events have not been listened to for a while.
                routes.hear(None);
                Watch::start(Arc::clone(&routes)).map(|watch| self.watch = Some(watch))
            }
        };
        let Some(netlink) = self.netlink.take() else { return Ok(0) };
        let tended = self.tend_by(&netlink, handle, &routes);
        self.netlink = Some(netlink);
        watched.and(tended)
    }

    fn tend_by(&mut self, netlink: &Netlink, handle: &BalancerHandle, routes: &Routes) -> Result<usize, Error> {
        let (mut asked, mut trouble, now) = (0, None, Instant::now());
        let known = handle.known();
        let addresses: BTreeMap<u32, IpAddr> =
            known.backends.iter().map(|((_, at), known)| (known.number, at.ip())).collect();
        // Before anything is looked at, so that what changes meanwhile is looked at again.
        routes.set_backends(addresses.values().copied().collect());
        let stirs = routes.stirs();
        if stirs != self.stirs {
            self.stirs = stirs;
            self.rules = None;
            self.backends.values_mut().for_each(|routed| routed.due = true);
        }
        self.backends.retain(|number, routed| addresses.get(number) == Some(&routed.address));

        // Where routes lead now, and what is to be looked at for it.
        let mut check: BTreeSet<NextHop> = BTreeSet::new();
        let mut again: Vec<(Instant, u32)> = Vec::new();
        for (number, routed) in &self.backends {
            if routed.due || !routed.has_route || now >= routed.looked + AGAIN {
                again.push((routed.looked, *number));
            }
        }
        again.sort_unstable();
        let new = addresses.keys().filter(|number| !self.backends.contains_key(number)).copied();
        let looked_at: Vec<u32> = new.chain(again.iter().take(AT_ONCE).map(|(_, number)| *number)).collect();
        for number in looked_at {
            let Some(&address) = addresses.get(&number) else { continue };
            match netlink.next_hops(address) {
                Ok(hops) => {
                    let noted = (number, first_hop())..(number + 1, first_hop());
                    check.extend(hops.iter().copied().chain(self.noted.range(noted).map(|((_, hop), _)| *hop)));
                    self.backends
                        .insert(number, RouteState { address, looked: now, due: false, has_route: true, hops });
                }
                Err(error) => {
                    let none = RouteState { address, looked: now, due: false, has_route: false, hops: Vec::new() };
                    let routed = self.backends.entry(number).or_insert(none);
                    // What packets went to before is kept, for when the route comes back.
                    (routed.looked, routed.due, routed.has_route) = (now, false, false);
                    trouble = trouble.or(Some(failed(address)(error)));
                }
            }
        }
        self.take_notes(handle, (&addresses, routes.by_flows(), now), &mut check, |hop| {
            asked += usize::from(ask(hop).is_ok());
        });

        let checked = check.clone();
        let mut unlisted = Vec::new();
        for hop in check {
            let upkeep = if self.unmanaged { Ok(NeighborRefresh::None) } else { netlink.manage_neighbor(hop) };
            match upkeep {
                Ok(NeighborRefresh::Kernel) => {
                    if self.managed.contains(&hop) {
                        continue;
                    }
                    match handle.tables.next_hops.set(&key_of(hop), &self.namespace) {
                        Ok(()) => asked += usize::from(self.managed.insert(hop)),
                        Err(error) => {
                            unlisted.push(hop);
                            trouble = trouble.or(Some(error));
                        }
                    }
                }
                Ok(upkeep) => {
                    if self.introduced.insert(hop) || upkeep == NeighborRefresh::None {
                        match ask(hop) {
                            Ok(()) => asked += 1,
                            Err(source) => trouble = trouble.or(Some(Error::Neighbor { address: hop.address, source })),
                        }
                    }
                }
                Err(error) => trouble = trouble.or(Some(failed(hop.address)(error))),
            }
        }
        if !unlisted.is_empty() {
            // Nobody would see whose they are, and they would stay when all are gone.
            release(netlink, unlisted, self.namespace);
        }
        self.let_go(netlink, handle);
        let changed = routes.take_heard().map(|heard| &heard | &checked);
        let found = self.backends.values();
        let found = found.map(|at| next_hops::Route { to: at.address, there: at.has_route, hops: &at.hops });
        let found: Vec<_> = found.collect();
        self.next_hops.look(netlink, &found, changed.as_ref(), now);
        self.set_route_key(netlink, routes, now)?;
        trouble.map_or(Ok(asked), Err)
    }

    /// What programs have seen: next hops that they had packets for, and those that were not known.
    fn take_notes(
        &mut self,
        handle: &BalancerHandle,
        (addresses, by_flows, now): (&BTreeMap<u32, IpAddr>, bool, Instant),
        check: &mut BTreeSet<NextHop>,
        mut ask: impl FnMut(NextHop),
    ) {
        for missed in handle.tables.missed.keys::<shape::NextHop>() {
            // First, so that it is noted again where a packet comes before the answer. One that stays is asked for again.
            let _stays = handle.tables.missed.remove(&missed);
            let hop = hop_of(&missed);
            if addresses.contains_key(&missed.backend) && self.noted.insert((missed.backend, hop), now).is_none() {
                check.insert(hop);
            } else {
                ask(hop);
            }
        }
        if !self.noted.is_empty() || by_flows {
            for seen in handle.tables.next_hops.keys::<shape::NextHop>() {
                if seen.backend == 0 {
                    continue;
                }
                // Out of the table, so that it is noted again as long as packets go there. It may have gone by itself.
                let _gone = handle.tables.next_hops.remove(&seen);
                let hop = hop_of(&seen);
                if addresses.contains_key(&seen.backend) && self.noted.insert((seen.backend, hop), now).is_none() {
                    check.insert(hop);
                }
            }
        }
        self.noted.retain(|(backend, _), seen| addresses.contains_key(backend) && now < *seen + NOTED);
    }

    /// What no backend needs any more.
    fn let_go(&mut self, netlink: &Netlink, handle: &BalancerHandle) {
        let routed = self.backends.values().flat_map(|routed| &routed.hops);
        let needed: BTreeSet<NextHop> = routed.chain(self.noted.keys().map(|(_, hop)| hop)).copied().collect();
        self.introduced.retain(|hop| needed.contains(hop));
        let leave: BTreeSet<NextHop> = self.managed.difference(&needed).copied().collect();
        if leave.is_empty() {
            return;
        }
        self.managed.retain(|hop| needed.contains(hop));
        self.leave(netlink, &handle.tables, leave);
    }

    /// Takes next hops out of the table, and has the kernel keep them no longer for this balancer.
    fn leave(&self, netlink: &Netlink, tables: &Tables, hops: BTreeSet<NextHop>) {
        for hop in &hops {
            // What stays there, or has gone by itself, is no reason to have the kernel keep it.
            let _stays = tables.next_hops.remove(&key_of(*hop));
        }
        release(netlink, hops, self.namespace);
    }

    /// Tells the programs what ways depend on.
    fn set_route_key(&mut self, netlink: &Netlink, routes: &Routes, now: Instant) -> Result<(), Error> {
        let families = [true, false].map(|ipv4| (ipv4, self.backends.values().any(|at| at.address.is_ipv4() == ipv4)));
        let used = || families.into_iter().filter(|(_, used)| *used).map(|(ipv4, _)| ipv4);
        let rules = match self.rules {
            Some((looked, rules)) if now < looked + AGAIN => rules,
            _ => {
                let inputs = used().map(|ipv4| netlink.rule_input(ipv4)).collect::<Result<Vec<_>, _>>();
                let inputs = inputs.map_err(failed(Ipv4Addr::UNSPECIFIED.into()))?;
                let input = inputs.into_iter().max().unwrap_or(RuleInput::Destination);
                self.rules = (!self.backends.is_empty()).then_some((now, input));
                input
            }
        };
        let shared = self.backends.values().any(|routed| routed.hops.len() > 1);
        let paths = match shared {
            true if used().any(hashes_ports) => RuleInput::Ports,
            true => RuleInput::Source,
            false => RuleInput::Destination,
        };
        let key = match rules.max(paths) {
            RuleInput::Destination => route_key::BY_BACKEND,
            RuleInput::Source => route_key::BY_SOURCE,
            RuleInput::Ports => route_key::BY_PORTS,
        };
        if self.backends.values().any(|routed| routed.due) {
            return Ok(());
        }
        routes.set_key(key, self.stirs)
    }

    /// By backends' addresses.
    pub(super) fn next_hops(&self) -> &BTreeMap<IpAddr, NextHops> {
        self.next_hops.backends()
    }

    /// There is a backend whose routes have not been looked at yet.
    pub(super) fn expect_backend(&self) -> Result<(), Error> {
        self.routes.as_ref().map_or(Ok(()), |routes| routes.stir())
    }

    /// Has the kernel keep none any more.
    pub(super) fn release(&mut self, tables: &Tables) {
        let Some(netlink) = &self.netlink else { return };
        let leave = std::mem::take(&mut self.managed);
        self.leave(netlink, tables, leave);
    }
}

/// Has the kernel keep next hops no longer that are out of the caller's table, but for those that another balancer has in its own.
///
/// Two that leave at once both take theirs out before either looks: one of them finds nobody, and releases.
fn release(netlink: &Netlink, leave: impl IntoIterator<Item = NextHop>, namespace: u32) {
    let others = kept_by_balancers(namespace);
    for hop in leave.into_iter().filter(|hop| !others.contains(hop)) {
        // Its interface may have gone, and the entry with it.
        let _gone = netlink.release_neighbor(hop);
    }
}

/// What all balancers of this machine have the kernel keep in a network namespace. To look needs CAP_SYS_ADMIN: without it, nothing.
fn kept_by_balancers(namespace: u32) -> BTreeSet<NextHop> {
    let of_balancers = MapInfoIter::default().filter(|map| {
        map.name == "next_hops"
            && map.key_size as usize == size_of::<shape::NextHop>()
            && map.value_size as usize == size_of::<u32>()
    });
    // One that is gone meanwhile has none.
    let maps = of_balancers.filter_map(|map| MapHandle::from_map_id(map.id).ok());
    maps.flat_map(|map| kept(&entries(&map), namespace)).collect()
}

fn namespace_here() -> rig_sys::Result<u32> {
    NetNs::of_current_thread()?.inode()
}

/// Has the kernel keep none of the next hops any more that a balancer has left which kept its tables in `directory`; to be
/// called in its network namespace. One whose interface has gone has gone with it.
pub fn release_kept_neighbors(directory: &Path) {
    let Ok(map) = MapHandle::from_pinned_path(directory.join("next_hops")) else { return };
    let (Ok(netlink), Ok(namespace)) = (Netlink::here(), namespace_here()) else { return };
    let leave = kept(&entries(&map), namespace);
    for hop in &leave {
        // What stays there keeps another balancer from releasing it, no more.
        let _stays = map.delete(key_of(*hop).as_bytes());
    }
    release(&netlink, leave, namespace);
}

fn entries(map: &MapHandle) -> Vec<(shape::NextHop, u32)> {
    let entry = |key: Vec<u8>| {
        let value = map.lookup(&key, MapFlags::ANY).ok()??;
        Some((shape::NextHop::read_from_bytes(&key).ok()?, u32::read_from_bytes(&value).ok()?))
    };
    map.keys().filter_map(entry).collect()
}

fn kept(entries: &[(shape::NextHop, u32)], namespace: u32) -> BTreeSet<NextHop> {
    let managed = entries.iter().filter(|(hop, value)| hop.backend == 0 && *value == namespace);
    managed.map(|(hop, _)| hop_of(hop)).collect()
}

/// None is less.
fn first_hop() -> NextHop {
    NextHop { address: Ipv4Addr::UNSPECIFIED.into(), interface: 0 }
}

fn hop_of(hop: &shape::NextHop) -> NextHop {
    NextHop { address: hop.address.into(), interface: hop.ifindex }
}

fn key_of(hop: NextHop) -> shape::NextHop {
    shape::NextHop { address: Address::from(hop.address), ifindex: hop.interface, backend: 0 }
}

/// Sends an empty datagram, from the calling thread's network namespace, so that the kernel asks where that is.
fn ask(hop: NextHop) -> std::io::Result<()> {
    let (any, to): (IpAddr, SocketAddr) = match hop.address {
        IpAddr::V4(address) => (Ipv4Addr::UNSPECIFIED.into(), (address, DISCARD).into()),
        // Routers' addresses hold on their links.
        IpAddr::V6(address) => {
            (Ipv6Addr::UNSPECIFIED.into(), SocketAddrV6::new(address, DISCARD, 0, hop.interface).into())
        }
    };
    UdpSocket::bind((any, 0)).and_then(|socket| socket.send_to(&[], to)).map(|_| ())
}

/// Whether packets are shared out among next hops by more than their addresses (ip-sysctl.rst, fib_multipath_hash_policy).
fn hashes_ports(ipv4: bool) -> bool {
    let family = if ipv4 { "ipv4" } else { "ipv6" };
    let policy = fs::read_to_string(format!("/proc/sys/net/{family}/fib_multipath_hash_policy"));
    policy.is_ok_and(|policy| policy.trim() != "0")
}
