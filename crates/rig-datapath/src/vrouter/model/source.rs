//! Which MAC addresses containers' frames come from, and which those for containers go to.

use std::collections::BTreeMap;

use rig_wire::ethernet::Mac;

use super::super::config::{Config, Interface};
use super::super::reason::Reason;
use super::super::status::Source;
use super::{Egress, EgressFrame, Model};

impl Model {
    /// The source addresses to begin with under another configuration: those seen so far of interfaces whose device and rule have not
    /// changed.
    pub(super) fn sources_under(&self, config: &Config) -> BTreeMap<u32, Source> {
        let met = |(number, interface): (&u32, &Interface)| {
            let rule = |one: &Interface| (one.index, one.mac, one.any_mac);
            let is_as_before = self.config.interfaces.get(number).is_some_and(|old| rule(old) == rule(interface));
            let anew = Source { mac: Some(interface.mac).filter(|_| !interface.any_mac), foreign: None };
            (*number, self.sources.get(number).copied().filter(|_| is_as_before).unwrap_or(anew))
        };
        config.interfaces.iter().map(met).collect()
    }

    /// From which MAC addresses frames of interfaces come, by the numbers of those that are in the configuration.
    pub fn sources(&self) -> &BTreeMap<u32, Source> {
        &self.sources
    }

    /// Takes over what a router knows of them, behind [`apply`](Self::apply).
    pub fn remember_sources(&mut self, sources: BTreeMap<u32, Source>) {
        self.sources.extend(sources);
    }

    /// What becomes of a frame by the address that it comes from.
    pub(super) fn meet(&mut self, number: u32, mac: Mac) -> Option<Reason> {
        let any_mac = self.config.interfaces.get(&number)?.any_mac;
        let source = self.sources.entry(number).or_default();
        if source.mac == Some(mac) {
            return None;
        }
        // No host can have it: it is not learned.
        let is_bad = mac.is_multicast() || mac == Mac::default() || mac == self.config.mac;
        let is_foreign = !any_mac || is_bad || source.mac.is_some();
        self.traffic.entry(number).or_default().foreign += u64::from(is_foreign);
        match any_mac {
            true if is_bad => {}
            true => source.mac = Some(mac),
            false => source.foreign = Some(mac),
        }
        (!any_mac).then_some(Reason::ForeignMac)
    }

    /// The address of a frame that an interface gets.
    pub(super) fn receiver_of(&self, number: u32) -> Mac {
        let known = self.sources.get(&number).and_then(|source| source.mac);
        known.unwrap_or_else(|| self.config.interfaces.get(&number).map_or(Mac::default(), |interface| interface.mac))
    }

    /// A frame to a container: from the router, unless it is bridged.
    pub(super) fn delivered(&self, mut frame: Vec<u8>, to: u32, bridged: bool) -> EgressFrame {
        frame[..6].copy_from_slice(&self.receiver_of(to).0);
        if !bridged {
            frame[6..12].copy_from_slice(&self.config.mac.0);
        }
        (Egress::Interface(to), frame)
    }
}
