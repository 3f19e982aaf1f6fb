//! What an interface of the host's has, and how it gets all of it again.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use rig_sys::Result;
use rig_sys::ethtool;
use rig_sys::netlink::{InterfaceAddress, InterfaceNeighbor, InterfaceRoute, Link, Netlink};
use rig_sys::netns::NetNs;
use serde::{Deserialize, Serialize};

use super::receive::ReceiveRecord;
use crate::plan::Mac;

/// An interface of the host's as it was before it was taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(Default))]
pub(super) struct InterfaceRecord {
    pub(super) name: String,
    index: u32,
    mac: Option<Mac>,
    permanent_mac: Option<Mac>,
    /// As `ip link` calls it; none of hardware.
    kind: Option<String>,
    mtu: u32,
    is_set_up: bool,
    qdisc: Option<String>,
    has_xdp: bool,
    /// Of its device, that can be switched.
    features: BTreeMap<String, bool>,
    device: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "ReceiveRecord::is_empty")]
    receive: ReceiveRecord,
    sysctls: BTreeMap<String, String>,
    addresses: Vec<InterfaceAddress>,
    routes: Vec<InterfaceRoute>,
    neighbors: Vec<InterfaceNeighbor>,
}

/// In what an interface is not as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Difference {
    /// What it had: `MTU 1500`.
    pub(super) was: String,
    /// In words: `its MTU is 9000 and not 1500`.
    pub(super) is: String,
}

/// Longest time for the kernel to accept routes again: one from an IPv6 address waits until nobody else has that.
const ROUTE_PATIENCE: Duration = Duration::from_secs(3);

impl InterfaceRecord {
    /// What `link`, which is in `ns`, has now; `netlink` speaks to that namespace.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub(super) fn record(netlink: &Netlink, ns: &NetNs, link: &Link) -> Result<Self> {
        let mut addresses = netlink.addresses_of(link.index)?;
        addresses.retain(|address| !address.is_temporary());
        Ok(Self {
            name: link.name.clone(),
            index: link.index,
            mac: link.mac.map(Mac),
            permanent_mac: link.permanent_mac.map(Mac),
            kind: link.kind.clone(),
            mtu: link.mtu,
            is_set_up: link.is_set_up,
            qdisc: link.qdisc.clone(),
            has_xdp: link.has_xdp,
            features: ethtool::wanted_features(ns, &link.name)?,
            device: ns.sysfs()?.device_settings(&link.name)?,
            receive: ReceiveRecord::record(ns, &link.name)?,
            sysctls: ns.interface_sysctls(&link.name)?,
            addresses,
            routes: netlink.routes_by(link.index)?,
            neighbors: netlink.permanent_neighbors(link.index)?,
        })
    }

    pub(super) fn index(&self) -> u32 {
        self.index
    }

    /// The kernel makes hardware's interface again, or sends it back, where it lets a virtual one go with its namespace.
    pub(super) fn is_of_hardware(&self) -> bool {
        self.permanent_mac.is_some()
    }

    /// Which of these is the interface: what was killed may have left it with another name, and the kernel may have numbered it anew.
    pub(super) fn find<'a>(&self, links: &'a [Link]) -> Option<&'a Link> {
        let is_alike = |link: &&Link| link.kind == self.kind;
        let by_number = |link: &&Link| link.index == self.index && link.mac.map(Mac) == self.mac;
        let by_address = |link: &&Link| self.is_of_hardware() && link.permanent_mac.map(Mac) == self.permanent_mac;
        let mut alike = links.iter().filter(is_alike);
        alike.clone().find(by_number).or_else(|| alike.find(by_address))
    }

    /// Makes `link` of the namespace `ns` what it was.
    ///
    /// # Errors
    /// In what it is another one than it was, and what the kernel refused.
    pub(super) fn restore(&self, netlink: &mut Netlink, ns: &NetNs, link: &Link) -> Result<(), Vec<String>> {
        let mut refused = Vec::new();
        if let Err(error) = self.carry_out(netlink, ns, link, &mut refused) {
            refused.push(error.to_string());
        }
        let now = netlink.link_at(link.index).and_then(|link| Self::record(netlink, ns, &link));
        let mut faults: Vec<String> = match now {
            // What moves interrupts on this machine may have done so since they were put back.
            Ok(mut now) => {
                now.receive = now.receive.with_interrupts_of(&self.receive);
                self.differences(&now).into_iter().map(|difference| difference.is).collect()
            }
            Err(error) => vec![error.to_string()],
        };
        if faults.is_empty() {
            return Ok(());
        }
        faults.append(&mut refused);
        Err(faults)
    }

    /// What one step cannot do must not keep the others from being done.
    fn carry_out(&self, netlink: &mut Netlink, ns: &NetNs, link: &Link, refused: &mut Vec<String>) -> Result<()> {
        let mut note = |outcome: Result<()>| refused.extend(outcome.err().map(|error| error.to_string()));
        let is_down_for = link.name != self.name || link.mac.map(Mac) != self.mac;
        if link.is_set_up && (is_down_for || !self.is_set_up) {
            note(netlink.set_down(&link.name));
        }
        if link.name != self.name {
            note(netlink.rename(&link.name, &self.name));
        }
        let link = netlink.link_at(link.index)?;
        let (name, index) = (link.name.as_str(), link.index);
        let now = Self::record(netlink, ns, &link)?;
        if let Some(mac) = self.mac.filter(|mac| now.mac != Some(*mac)) {
            note(netlink.set_mac(name, mac.0));
        }
        if now.mtu != self.mtu {
            note(netlink.set_mtu(name, self.mtu));
        }
        if now.has_xdp && !self.has_xdp {
            note(netlink.take_xdp_off(name));
        }
        if netlink.with_chosen_qdisc()?.contains(&index) {
            note(netlink.reset_qdisc(name));
        }
        for (setting, value) in other(&self.sysctls, &now.sysctls) {
            note(ns.set_interface_sysctl(name, setting, value));
        }
        note(self.receive.restore_queues(&now.receive, ns, (name, index)));
        // Some can be set only with a feature on: a veth has threads with GRO.
        let sysfs = ns.sysfs()?;
        for (setting, value) in other(&self.device, &sysfs.device_settings(name)?) {
            note(sysfs.write(name, setting, value));
        }
        note(ethtool::want_features(ns, name, &self.features));
        for (setting, value) in other(&self.device, &sysfs.device_settings(name)?) {
            note(sysfs.write(name, setting, value));
        }
        for address in now.addresses.iter().filter(|own| !self.addresses.iter().any(|before| before.is_like(own))) {
            note(netlink.remove_address(index, address));
        }
        // The kernel has the oldest IPv4 address first, and the newest of IPv6.
        let is_ipv6 = |own: &&InterfaceAddress| own.address().is_some_and(|address| address.is_ipv6());
        let ipv4 = self.addresses.iter().filter(|own| !is_ipv6(own));
        for address in ipv4.chain(self.addresses.iter().rev().filter(is_ipv6)) {
            note(netlink.put_address(index, address));
        }
        if self.is_set_up {
            note(netlink.set_up(name));
        }
        self.receive.restore(ns, (name, index), &mut note)?;
        self.restore_routes(netlink, index, &mut note)?;
        let neighbors = netlink.permanent_neighbors(index)?;
        for neighbor in neighbors.iter().filter(|own| !self.neighbors.iter().any(|before| before.is_like(own))) {
            note(netlink.remove_permanent_neighbor(index, neighbor));
        }
        for neighbor in &self.neighbors {
            note(netlink.put_permanent_neighbor(index, neighbor));
        }
        self.receive.restore_interrupts(ns, name, &mut note);
        Ok(())
    }

    fn restore_routes(&self, netlink: &mut Netlink, index: u32, note: &mut impl FnMut(Result<()>)) -> Result<()> {
        let deadline = Instant::now() + ROUTE_PATIENCE;
        let mut missing: Vec<&InterfaceRoute> = self.routes.iter().collect();
        // A gateway is reached by another route, which may come behind it.
        loop {
            let mut last = None;
            let before = missing.len();
            missing.retain(|route| match netlink.put_route(index, route) {
                Ok(()) => false,
                Err(error) => {
                    last = Some(error);
                    true
                }
            });
            let Some(error) = last else { break };
            if Instant::now() > deadline {
                note(Err(error));
                break;
            }
            if missing.len() == before {
                thread::sleep(Duration::from_millis(50));
            }
        }
        for route in netlink.routes_by(index)? {
            if !self.routes.iter().any(|before| before.is_like(&route)) {
                note(netlink.remove_route(index, &route));
            }
        }
        Ok(())
    }

    /// In what `now`, the same interface, differs.
    pub(super) fn differences(&self, now: &Self) -> Vec<Difference> {
        let mut found = Differences::default();
        if now.name != self.name {
            found.add("name".into(), format!("its name is {}", now.name));
        }
        if now.index != self.index {
            found.add("number".into(), format!("its number is {} and not {}", now.index, self.index));
        }
        if let (Some(was), Some(is)) = (self.mac, now.mac)
            && was != is
        {
            found.add(format!("address {was}"), format!("its hardware address is {is} and not {was}"));
        }
        if now.mtu != self.mtu {
            found.add(format!("MTU {}", self.mtu), format!("its MTU is {} and not {}", now.mtu, self.mtu));
        }
        if now.is_set_up != self.is_set_up {
            let [was, is] = [self.is_set_up, now.is_set_up].map(|is_up| if is_up { "up" } else { "down" });
            found.add(was.into(), format!("it is {is}"));
        }
        if now.has_xdp && !self.has_xdp {
            found.add("no XDP program".into(), "an XDP program is on it".into());
        }
        // It gets one when it comes up.
        if let (Some(was), Some(is), true) = (&self.qdisc, &now.qdisc, self.is_set_up && now.is_set_up)
            && was != is
        {
            found.add(format!("qdisc {was}"), format!("its qdisc is {is} and not {was}"));
        }
        let word = |on: bool| if on { "on" } else { "off" };
        let features = other(&self.features, &now.features).map(|(name, was)| format!("{name} is {}", word(!was)));
        found.add_all(features, ["offload", "offloads"]);
        let device = other(&self.device, &now.device);
        let settings = device.chain(other(&self.sysctls, &now.sysctls)).map(|(name, was)| {
            let is = now.device.get(name).or_else(|| now.sysctls.get(name));
            format!("{name} is {} and not {was}", is.map_or("?", String::as_str))
        });
        found.add_all(settings, ["setting", "settings"]);
        self.receive.differences(&now.receive, &mut found);
        found.add_things(&self.addresses, &now.addresses, InterfaceAddress::is_like, ["address", "addresses"]);
        found.add_things(&self.routes, &now.routes, InterfaceRoute::is_like, ["route", "routes"]);
        found.add_things(&self.neighbors, &now.neighbors, InterfaceNeighbor::is_like, ["neighbour", "neighbours"]);
        found.0
    }
}

/// What was and is otherwise now; what is not there now at all cannot be set.
pub(super) fn other<'a, V: PartialEq>(
    was: &'a BTreeMap<String, V>,
    is: &'a BTreeMap<String, V>,
) -> impl Iterator<Item = (&'a str, &'a V)> {
    let differs = |(name, value): &(&'a String, &'a V)| is.get(*name).is_some_and(|is| is != *value);
    was.iter().filter(differs).map(|(name, value)| (name.as_str(), value))
}

#[derive(Default)]
pub(super) struct Differences(Vec<Difference>);

impl Differences {
    pub(super) fn add(&mut self, was: String, is: String) {
        self.0.push(Difference { was, is });
    }

    /// Several of one kind, which are counted when it is told what they were.
    pub(super) fn add_all(&mut self, all: impl Iterator<Item = String>, [one, several]: [&str; 2]) {
        let all: Vec<String> = all.collect();
        match all.len() {
            0 => {}
            count => self.add(format!("{count} {}", if count == 1 { one } else { several }), all.join(", ")),
        }
    }

    #[cfg(test)]
    pub(super) fn into_words(self) -> Vec<(String, String)> {
        self.0.into_iter().map(|Difference { was, is }| (was, is)).collect()
    }

    fn add_things<T: std::fmt::Display>(
        &mut self,
        was: &[T],
        is: &[T],
        alike: impl Fn(&T, &T) -> bool,
        words: [&str; 2],
    ) {
        let lacks = |all: &[T], own: &T| !all.iter().any(|other| alike(other, own));
        let missing = was.iter().filter(|own| lacks(is, own)).map(|own| format!("{} {own} is missing", words[0]));
        self.add_all(missing, words);
        let foreign: Vec<String> =
            is.iter().filter(|own| lacks(was, own)).map(|own| format!("{} {own} was not there", words[0])).collect();
        if !foreign.is_empty() {
            self.add(format!("no other {}", words[1]), foreign.join(", "));
        }
    }
}
