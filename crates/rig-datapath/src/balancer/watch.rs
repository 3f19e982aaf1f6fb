//! Watching what routes and neighbours do, so that programs need not ask for a way again and again.
//!
//! Each change that may make a way another one advances a generation, and what programs have looked up before is of no use any
//! more. A lost event heals by itself, because the generation also advances each 30 s; a control plane that has ended, because
//! programs believe a generation only for 3 s without a word from it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rig_sys::clock::monotonic_ns;
use rig_sys::netlink::{Event, Events, Netlink, NextHop};

use crate::Error;

use super::load::Tables;
use super::shape::{Control, Routing, TICK_SHIFT, route_key};
use super::vlans;

/// How often the programs are told that routes are watched.
const RENEWED: Duration = Duration::from_secs(1);
/// How long the programs rely on that without being told again.
const BELIEVED: Duration = Duration::from_secs(3);
/// How often the generation advances without an event.
const HEALED: Duration = Duration::from_secs(30);
/// The kernel tells some changes before they are made (a route that is removed, a link that is set down): once more then. Also
/// what comes meanwhile is of one advance.
const SETTLED: Duration = Duration::from_millis(100);
/// Advances for events beyond one a second, which is as often as routes are looked up that are not watched.
const AT_ONCE: u32 = 16;

/// Tells the programs when routes and neighbours have changed.
pub(super) struct Routes {
    tables: Arc<Tables>,
    now: Mutex<WatchState>,
}

struct WatchState {
    routing: Routing,
    /// How often what routes to backends say may have changed.
    stirs: u64,
    backends: BTreeSet<IpAddr>,
    /// Neighbours of which the kernel has said something since they were last taken; none where that may be any.
    heard: Option<BTreeSet<NextHop>>,
}

/// Neighbours that are noted one by one. On a link with more of them than that all are looked at.
const MOST_HEARD: usize = 1 << 14;

impl Routes {
    /// Goes on from what was told before.
    pub(super) fn new(tables: Arc<Tables>) -> Result<Self, Error> {
        let routing = tables.routings.at(0)?;
        Ok(Self { tables, now: Mutex::new(WatchState { routing, stirs: 0, backends: BTreeSet::new(), heard: None }) })
    }

    fn now(&self) -> MutexGuard<'_, WatchState> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn stirs(&self) -> u64 {
        self.now().stirs
    }

    /// See [`WatchState::heard`].
    pub(super) fn take_heard(&self) -> Option<BTreeSet<NextHop>> {
        self.now().heard.replace(BTreeSet::new())
    }

    /// `None` if it may be any.
    pub(super) fn hear(&self, hop: Option<NextHop>) {
        let mut now = self.now();
        now.heard = now.heard.take().zip(hop).and_then(|(mut heard, hop)| {
            heard.insert(hop);
            (heard.len() <= MOST_HEARD).then_some(heard)
        });
    }

    /// Whether routes depend on more than the backend.
    pub(super) fn by_flows(&self) -> bool {
        self.now().routing.key != route_key::BY_BACKEND
    }

    /// Addresses that routes matter to.
    pub(super) fn set_backends(&self, backends: BTreeSet<IpAddr>) {
        self.now().backends = backends;
    }

    /// What routes to backends depend on as of this many stirs: if there have been more, it is looked at again.
    pub(super) fn set_key(&self, key: u16, stirs: u64) -> Result<(), Error> {
        let mut now = self.now();
        if now.stirs != stirs || now.routing.key == key {
            return Ok(());
        }
        now.routing.key = key;
        self.tables.routings.set(&0_u32, &now.routing)
    }

    /// Until routes have been looked at, they depend on all that they may: so that no connection's packets take different paths because
    /// those of others do.
    pub(super) fn stir(&self) -> Result<(), Error> {
        let mut now = self.now();
        now.stirs += 1;
        now.routing.key = route_key::BY_PORTS;
        self.tables.routings.set(&0_u32, &now.routing)
    }

    /// What has been looked up is of no use from here on.
    fn advance(&self) -> Result<(), Error> {
        let mut now = self.now();
        now.routing.generation = (now.routing.generation + 1) & 0x7fff;
        self.tables.routings.set(&0_u32, &now.routing)
    }

    fn renew(&self) -> Result<(), Error> {
        let control: Control = self.tables.controls.at(0)?;
        let mut now = self.now();
        // A clock that stands still has no time until which routes are watched.
        now.routing.watched_until = match control.fixed_tick {
            0 => ((monotonic_ns() + BELIEVED.as_nanos() as u64) >> TICK_SHIFT) as u32,
            _ => 0,
        };
        self.tables.routings.set(&0_u32, &now.routing)
    }

    /// Tells the programs of VLAN devices as they are; false where the kernel does not list links now.
    fn look_at_links(&self, netlink: &Netlink) -> Result<bool, Error> {
        let Ok(links) = netlink.links() else { return Ok(false) };
        vlans::set(&self.tables, &vlans::among(&links)).map(|()| true)
    }

    fn concerns_backends(&self, prefix: IpAddr, length: u8) -> bool {
        self.now().backends.iter().any(|backend| is_in(*backend, prefix, length))
    }
}

fn is_in(address: IpAddr, prefix: IpAddr, length: u8) -> bool {
    let differ = match (address, prefix) {
        (IpAddr::V4(a), IpAddr::V4(b)) => u128::from(a.to_bits() ^ b.to_bits()) << 96,
        (IpAddr::V6(a), IpAddr::V6(b)) => a.to_bits() ^ b.to_bits(),
        // A route of IPv4 may have a gateway of IPv6, but its destination is what it is.
        _ => return false,
    };
    differ.leading_zeros() >= u32::from(length)
}

/// When the generation advances.
struct AdvanceLimit {
    /// Advances for events that there may be at once.
    left: u32,
    filled: Instant,
    next: Option<Instant>,
    /// There has been an event since the last advance.
    more: bool,
    last: Instant,
}

impl AdvanceLimit {
    fn new(now: Instant) -> Self {
        Self { left: AT_ONCE, filled: now, next: None, more: false, last: now }
    }

    fn event(&mut self, now: Instant) {
        self.next = self.next.or(Some(now));
        self.more = true;
    }

    /// Whether it advances now.
    fn advances(&mut self, now: Instant) -> bool {
        let seconds = (now - self.filled).as_secs();
        self.left = AT_ONCE.min(self.left.saturating_add(seconds as u32));
        self.filled += Duration::from_secs(seconds);
        if self.left > 0 && self.next.is_some_and(|next| next <= now) {
            self.left -= 1;
            self.next = self.more.then(|| now + SETTLED);
            self.more = false;
        } else if now < self.last + HEALED {
            return false;
        }
        self.last = now;
        true
    }

    /// For how long nothing is to be done but to renew.
    fn rest(&self, now: Instant) -> Duration {
        match self.next {
            Some(next) if self.left > 0 => RENEWED.min(next.saturating_duration_since(now)),
            _ => RENEWED,
        }
    }
}

/// The neighbours that have been heard of, with their link-layer addresses.
#[derive(Default)]
struct NeighborCache(BTreeMap<NextHop, Vec<u8>>);

impl NeighborCache {
    /// Whether a way may be another one by it: an entry that is only confirmed or doubted is what it was.
    fn is_new(&mut self, hop: NextHop, link_layer: Option<&[u8]>) -> bool {
        match link_layer {
            Some(address) => self.0.insert(hop, address.to_vec()).as_deref() != Some(address),
            None => self.0.remove(&hop).is_some(),
        }
    }
}

/// A thread that watches, until it is dropped.
pub(super) struct Watch {
    events: Arc<Events>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Watches the calling thread's network namespace.
    pub(super) fn start(routes: Arc<Routes>) -> Result<Self, Error> {
        let failed = |source| Error::Watch { source };
        let events = Arc::new(Events::here().map_err(|error| failed(error.source))?);
        let netlink = Netlink::here().map_err(|error| failed(error.source))?;
        routes.look_at_links(&netlink)?;
        // What was looked up before events were listened to.
        routes.stir()?;
        routes.advance()?;
        let over = Arc::<AtomicBool>::default();
        let body = {
            let (events, over) = (Arc::clone(&events), Arc::clone(&over));
            // Without it programs ask again and again, and it is started anew.
            move || drop(watch(&events, &netlink, &routes, &over))
        };
        let thread = thread::Builder::new().name("routes".into()).spawn(body).map_err(failed)?;
        Ok(Self { events, over, thread: Some(thread) })
    }

    pub(super) fn goes_on(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.events.wake();
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

fn watch(events: &Events, netlink: &Netlink, routes: &Routes, over: &AtomicBool) -> Result<(), Error> {
    let (mut pace, mut heard, mut renewed) = (AdvanceLimit::new(Instant::now()), NeighborCache::default(), None);
    // Twice for each change, as the generation advances.
    let mut looks = 0;
    while !over.load(Ordering::Relaxed) {
        let now = Instant::now();
        // Changes are told to the programs first, or else these would go on to believe what they have looked up before.
        if pace.advances(now) {
            // Before that, so that ways which are looked up from here on are by links as they are.
            if looks > 0 && routes.look_at_links(netlink)? {
                looks -= 1;
            }
            routes.advance()?;
        }
        if renewed.is_none_or(|renewed| now >= renewed + RENEWED) {
            routes.renew()?;
            renewed = Some(now);
        }
        let Ok(happened) = events.wait(pace.rest(now)) else { return Ok(()) };
        let mut stirred = false;
        for event in happened {
            match event {
                Event::Neighbor { hop, .. } => routes.hear(Some(hop)),
                Event::Lost => routes.hear(None),
                _ => {}
            }
            match event {
                Event::Neighbor { hop, ref link_layer } if !heard.is_new(hop, link_layer.as_deref()) => continue,
                Event::Neighbor { .. } | Event::Interface => {}
                Event::Route { prefix, length } => stirred |= routes.concerns_backends(prefix, length),
                Event::Routing => stirred = true,
                Event::Links => (stirred, looks) = (true, 2),
                Event::Lost => {
                    heard = NeighborCache::default();
                    (stirred, looks) = (true, 2);
                }
            }
            pace.event(Instant::now());
        }
        if stirred {
            routes.stir()?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_of_events_is_two_advances_and_a_storm_one_a_second() {
        let begun = Instant::now();
        let at = |milliseconds| begun + Duration::from_millis(milliseconds);
        let mut pace = AdvanceLimit::new(begun);
        assert!(!pace.advances(at(0)));
        assert_eq!(pace.rest(at(0)), RENEWED);
        (0..100).for_each(|_| pace.event(at(1)));
        assert_eq!(pace.rest(at(1)), Duration::ZERO);
        assert!(pace.advances(at(1)));
        assert_eq!(pace.rest(at(1)), SETTLED);
        (2..90).for_each(|now| pace.event(at(now)));
        assert!(!pace.advances(at(90)));
        assert!(pace.advances(at(101)));
        // Those from 2 on may have been told before they were made, too.
        assert!(pace.advances(at(201)));
        assert!(!pace.advances(at(301)) && pace.rest(at(301)) == RENEWED);

        let mut count = 0;
        for now in 1000..101_000 {
            pace.event(at(now));
            count += u32::from(pace.advances(at(now)));
        }
        assert!((100..=100 + AT_ONCE).contains(&count), "{count}");
        assert!(pace.left <= 1);
    }

    #[test]
    fn the_generation_advances_by_itself() {
        let begun = Instant::now();
        let mut pace = AdvanceLimit::new(begun);
        let advances: Vec<u64> = (0..100).filter(|now| pace.advances(begun + Duration::from_secs(*now))).collect();
        assert_eq!(advances, [30, 60, 90]);
    }

    #[test]
    fn only_another_address_of_a_neighbor_is_new() {
        let hop = |interface| NextHop { address: IpAddr::from([10, 0, 0, 1]), interface };
        let mut heard = NeighborCache::default();
        assert!(!heard.is_new(hop(1), None));
        assert!(heard.is_new(hop(1), Some(&[1; 6])));
        assert!(!heard.is_new(hop(1), Some(&[1; 6])));
        assert!(heard.is_new(hop(2), Some(&[1; 6])));
        assert!(heard.is_new(hop(1), Some(&[2; 6])));
        assert!(heard.is_new(hop(1), None));
        assert!(!heard.is_new(hop(1), None));
    }

    #[test]
    fn prefixes_have_their_addresses() {
        let is_in = |address: &str, prefix: &str, length| {
            super::is_in(address.parse().unwrap(), prefix.parse().unwrap(), length)
        };
        assert!(
            is_in("10.1.2.3", "0.0.0.0", 0) && is_in("10.1.2.3", "10.1.2.0", 24) && is_in("10.1.2.3", "10.1.2.3", 32)
        );
        assert!(!is_in("10.1.2.3", "10.1.2.2", 32) && !is_in("10.1.2.3", "10.1.4.0", 23));
        assert!(is_in("fd00::1", "::", 0) && is_in("fd00::1", "fd00::1", 128) && !is_in("fd00::1", "fd00::2", 127));
        assert!(!is_in("fd00::1", "0.0.0.0", 0) && !is_in("10.1.2.3", "::", 0));
    }
}
