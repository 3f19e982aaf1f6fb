//! Where packets to backends go next, and whether they can: looked at without waiting for a packet.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use rig_sys::netlink::{Link, Netlink, NextHop};

use super::vlans;

/// Whether packets can go to a next hop. Of several the worst, the last one here, holds for the backend: each gets its share of
/// the connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NextHopState {
    /// The kernel knows its link-layer address.
    Ok,
    /// It has not answered yet, or no more.
    NoNeighbor,
    /// The device is set down, without carrier or gone.
    DeviceDown,
    /// The device is a VLAN device, and its tag is none that programs put into frames: one of two, or a provider's.
    NotCarried,
    /// There is none: the backend's address is this machine's own, where programs forward nothing to.
    Local,
    /// There is none: the kernel has no route to the backend.
    NoRoute,
}

/// A backend's next hops.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextHops {
    pub state: NextHopState,
    /// From when on the state is that, as far as known.
    pub since: Instant,
    /// Several where the route has several. Where the route went with its device, those that it had.
    pub hops: Vec<NextHopStatus>,
}

/// One next hop of a backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextHopStatus {
    pub address: IpAddr,
    /// Its name, also when it has gone.
    pub device: Arc<str>,
    /// Of a VLAN device.
    pub tagged_by: Option<TaggedBy>,
    pub state: NextHopState,
}

/// Where a VLAN device's frames leave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaggedBy {
    /// The link that it is on, where that is in this namespace.
    pub parent: Arc<str>,
    pub id: u16,
}

/// The kernel's route to a backend.
pub(super) struct Route<'a> {
    pub(super) to: IpAddr,
    /// There is none any more if not, and the hops are those of before.
    pub(super) there: bool,
    pub(super) hops: &'a [NextHop],
}

/// The next hops of all backends.
#[derive(Debug, Default)]
pub(super) struct Table {
    devices: BTreeMap<u32, Device>,
    resolved: BTreeMap<NextHop, bool>,
    backends: BTreeMap<IpAddr, NextHops>,
}

/// An interface that next hops are on.
#[derive(Debug)]
struct Device {
    name: Arc<str>,
    up: bool,
    without_neighbors: bool,
    tagged_by: Option<TaggedBy>,
    /// False of a VLAN device whose tag programs do not put into frames.
    carried: bool,
}

impl Device {
    fn of(netlink: &Netlink, number: u32, before: Option<Self>) -> Self {
        let Ok(link) = netlink.link_at(number) else {
            let (name, tagged_by) = before
                .map_or_else(|| (format!("number {number}").into(), None), |before| (before.name, before.tagged_by));
            return Self { name, up: false, without_neighbors: false, tagged_by, carried: true };
        };
        let parent = vlans::parent_of(&link).filter(|_| link.vlan.is_some());
        let parent = parent.and_then(|number| netlink.link_at(number).ok());
        let carried = link.vlan.is_none() || vlans::is_carried(&link, parent.as_ref());
        let tagged_by =
            link.vlan.zip(parent).map(|(vlan, parent)| TaggedBy { parent: parent.name.into(), id: vlan.id });
        let Link { name, up, without_neighbors, .. } = link;
        Self { name: name.into(), up, without_neighbors, tagged_by, carried }
    }
}

impl Table {
    pub(super) fn backends(&self) -> &BTreeMap<IpAddr, NextHops> {
        &self.backends
    }

    /// Looks at devices, and at those neighbours that are new or `changed`; at all where that is none.
    pub(super) fn look(
        &mut self,
        netlink: &Netlink,
        routes: &[Route<'_>],
        changed: Option<&BTreeSet<NextHop>>,
        now: Instant,
    ) {
        let hops: BTreeSet<NextHop> = routes.iter().flat_map(|route| route.hops).copied().collect();
        let numbers: BTreeSet<u32> = hops.iter().map(|hop| hop.interface).collect();
        let mut before = std::mem::take(&mut self.devices);
        self.devices =
            numbers.into_iter().map(|number| (number, Device::of(netlink, number, before.remove(&number)))).collect();
        self.resolved.retain(|hop, _| hops.contains(hop));
        for hop in hops {
            let before = self.resolved.get(&hop).copied();
            if before.is_none() || changed.is_none_or(|changed| changed.contains(&hop)) {
                // What cannot be looked at is as it was.
                let resolved = netlink.is_resolved(hop).ok().or(before).unwrap_or(false);
                self.resolved.insert(hop, resolved);
            }
        }
        self.conclude(routes, now);
    }

    fn conclude(&mut self, routes: &[Route<'_>], now: Instant) {
        let mut backends = BTreeMap::new();
        for Route { to, there, hops } in routes {
            let mut hops: Vec<NextHopStatus> = hops.iter().filter_map(|hop| self.hop(hop)).collect();
            let worst = hops.iter().map(|hop| hop.state).max();
            let state = match (there, worst) {
                (true, worst) => worst.unwrap_or(NextHopState::Local),
                // Why there is no route is told, where it is known.
                (false, Some(NextHopState::DeviceDown)) => NextHopState::DeviceDown,
                (false, _) => {
                    hops.clear();
                    NextHopState::NoRoute
                }
            };
            let since = self.backends.get(to).filter(|before| before.state == state).map_or(now, |before| before.since);
            backends.insert(*to, NextHops { state, since, hops });
        }
        self.backends = backends;
    }

    fn hop(&self, hop: &NextHop) -> Option<NextHopStatus> {
        let device = self.devices.get(&hop.interface)?;
        let state = match device.up {
            false => NextHopState::DeviceDown,
            true if !device.carried => NextHopState::NotCarried,
            true if device.without_neighbors || self.resolved.get(hop) == Some(&true) => NextHopState::Ok,
            true => NextHopState::NoNeighbor,
        };
        let (device, tagged_by) = (Arc::clone(&device.name), device.tagged_by.clone());
        Some(NextHopStatus { address: hop.address, device, tagged_by, state })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::NextHopState::{DeviceDown, Local, NoNeighbor, NoRoute, NotCarried, Ok};
    use super::*;

    const TO: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const UP: u32 = 1;
    const DOWN: u32 = 2;
    const WITHOUT: u32 = 3;
    const NOT_CARRIED: u32 = 4;

    fn hop(last: u8, interface: u32) -> NextHop {
        NextHop { address: IpAddr::from([10, 0, 0, last]), interface }
    }

    /// What a table that knows 10.0.0.1 alone says of a backend behind these.
    fn concluded(there: bool, hops: &[NextHop]) -> (NextHopState, usize) {
        let mut table = Table::default();
        table.resolved.extend([(hop(1, UP), true), (hop(2, UP), false), (hop(1, DOWN), true)]);
        for (number, up, without_neighbors) in
            [(UP, true, false), (DOWN, false, false), (WITHOUT, true, true), (NOT_CARRIED, true, false)]
        {
            let (tagged_by, carried) = (None, number != NOT_CARRIED);
            table.devices.insert(number, Device { name: "eth0".into(), up, without_neighbors, tagged_by, carried });
        }
        table.conclude(&[Route { to: TO, there, hops }], Instant::now());
        let backend = &table.backends[&TO];
        (backend.state, backend.hops.len())
    }

    #[test]
    fn the_worst_of_several_next_hops_is_the_backends() {
        assert_eq!(concluded(true, &[hop(1, UP)]), (Ok, 1));
        assert_eq!(concluded(true, &[hop(2, UP)]), (NoNeighbor, 1));
        assert_eq!(concluded(true, &[hop(1, UP), hop(2, UP)]), (NoNeighbor, 2));
        assert_eq!(concluded(true, &[hop(1, UP), hop(1, DOWN), hop(2, UP)]), (DeviceDown, 3));
        assert_eq!(concluded(true, &[hop(1, UP), hop(1, NOT_CARRIED)]), (NotCarried, 2));
        // Tunnels and the like have neighbours without addresses.
        assert_eq!(concluded(true, &[hop(3, WITHOUT)]), (Ok, 1));
        assert_eq!(concluded(true, &[]), (Local, 0));
    }

    #[test]
    fn without_a_route_the_device_is_named_that_it_went_with() {
        assert_eq!(concluded(false, &[]), (NoRoute, 0));
        assert_eq!(concluded(false, &[hop(1, UP)]), (NoRoute, 0));
        assert_eq!(concluded(false, &[hop(1, DOWN)]), (DeviceDown, 1));
    }

    #[test]
    fn a_state_is_as_old_as_it_has_lasted_also_of_two_services_backend() {
        let (mut table, begun) = (Table::default(), Instant::now());
        let mut at = |there, seconds| {
            let now = begun + Duration::from_secs(seconds);
            let route = || Route { to: TO, there, hops: &[] };
            table.conclude(&[route(), route()], now);
            (table.backends[&TO].since - begun).as_secs()
        };
        assert_eq!([at(false, 0), at(false, 5), at(true, 7), at(true, 9), at(false, 11)], [0, 0, 7, 7, 11]);
    }
}
