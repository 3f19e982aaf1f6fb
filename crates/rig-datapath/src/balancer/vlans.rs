//! VLAN devices, whose frames come and leave by the link that they are on, with a tag: XDP can send by that one alone.

use std::collections::BTreeMap;

use rig_sys::netlink::Link;

use crate::Error;

use super::load::Tables;
use super::shape::{self, MOST_VLANS, WITH_TAG};

/// A VLAN device that the programs know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VlanDevice {
    pub interface: u32,
    /// The link by which its frames leave, with this tag.
    pub parent: u32,
    pub id: u16,
    pub mac: [u8; 6],
    /// Of a bond that is the parent: by any of them frames may come.
    pub ports: Vec<u32>,
}

/// Whether programs may put a VLAN device's tag into frames: it is one of 802.1Q, and on a link that is here and none itself.
pub(super) fn is_carried(link: &Link, parent: Option<&Link>) -> bool {
    link.vlan.is_some_and(|vlan| vlan.is_8021q) && parent.is_some_and(|parent| parent.vlan.is_none())
}

/// The number of the link that another one is on, where that is in the same namespace.
pub(super) fn parent_of(link: &Link) -> Option<u32> {
    link.far.filter(|far| far.namespace.is_none()).map(|far| far.index)
}

impl VlanDevice {
    /// Those among all links of a namespace.
    pub fn among(links: &[Link]) -> Vec<Self> {
        among(links)
    }
}

pub(super) fn among(links: &[Link]) -> Vec<VlanDevice> {
    let by_number: BTreeMap<u32, &Link> = links.iter().map(|link| (link.index, link)).collect();
    let of = |link: &Link| {
        let parent = parent_of(link).and_then(|number| by_number.get(&number)).copied();
        let (parent, vlan, mac) = (parent.filter(|_| is_carried(link, parent))?, link.vlan?, link.mac?);
        let is_port = |port: &&Link| port.controller == Some(parent.index) && parent.kind.as_deref() == Some("bond");
        let ports = links.iter().filter(is_port).map(|port| port.index).collect();
        Some(VlanDevice { interface: link.index, parent: parent.index, id: vlan.id, mac, ports })
    };
    links.iter().filter_map(of).collect()
}

/// Key and value of each entry that the programs look for.
fn entries(devices: &[VlanDevice]) -> BTreeMap<(u32, u32), (u32, u16, [u8; 6])> {
    let mut entries = BTreeMap::new();
    for VlanDevice { interface, parent, id, mac, .. } in devices {
        entries.insert((*interface, 0), (*parent, *id, *mac));
        entries.insert((*parent, WITH_TAG | u32::from(*id)), (*interface, *id, *mac));
    }
    for VlanDevice { interface, id, mac, ports, .. } in devices {
        for port in ports {
            // A VLAN device on the port itself comes first, as with the kernel.
            entries.entry((*port, WITH_TAG | u32::from(*id))).or_insert((*interface, *id, *mac));
        }
    }
    entries
}

/// Tells the programs of these and no others.
pub(super) fn set(tables: &Tables, devices: &[VlanDevice]) -> Result<(), Error> {
    let mut wanted = entries(devices);
    while wanted.len() > MOST_VLANS {
        wanted.pop_last();
    }
    let there: Vec<(shape::VlanKey, shape::Vlan)> = tables.vlans.entries_of_hash();
    for (key, _) in there.iter().filter(|(key, _)| !wanted.contains_key(&(key.ifindex, key.tag))) {
        tables.vlans.remove(key)?;
    }
    let there: BTreeMap<_, _> =
        there.into_iter().map(|(key, is)| ((key.ifindex, key.tag), (is.ifindex, is.id, is.mac))).collect();
    for ((ifindex, tag), value) in wanted.into_iter().filter(|(key, value)| there.get(key) != Some(value)) {
        let (leads_to, id, mac) = value;
        tables.vlans.set(&shape::VlanKey { ifindex, tag }, &shape::Vlan { ifindex: leads_to, id, mac })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rig_sys::netlink::{PeerLink, Vlan};

    use super::*;

    fn link(index: u32) -> Link {
        Link {
            index,
            name: format!("eth{index}"),
            mac: Some([2, 0, 0, 0, 0, index as u8]),
            mtu: 1500,
            up: true,
            without_neighbors: false,
            far: None,
            is_set_up: true,
            is_ethernet: true,
            kind: None,
            vlan: None,
            controller: None,
            permanent_mac: None,
            qdisc: None,
            has_xdp: false,
            is_immovable: false,
        }
    }

    fn vlan(index: u32, parent: u32, id: u16) -> Link {
        let far = Some(PeerLink { index: parent, namespace: None });
        Link { far, kind: Some("vlan".into()), vlan: Some(Vlan { id, is_8021q: true }), ..link(index) }
    }

    #[test]
    fn frames_of_vlan_devices_are_known_both_ways() {
        let bond = Link { kind: Some("bond".into()), ..link(4) };
        let [port, bridged] = [5, 6].map(|index| Link { controller: Some(4), ..link(index) });
        let bridge = Link { kind: Some("bridge".into()), ..link(7) };
        let bridged = Link { controller: Some(7), ..bridged };
        let links =
            [link(2), vlan(3, 2, 10), bond, port, bridged, bridge, vlan(8, 4, 10), vlan(9, 5, 10), vlan(10, 7, 10)];
        let known = entries(&among(&links));
        let leads_to = |interface: u32, id: u32| known.get(&(interface, WITH_TAG | id)).map(|value| value.0);
        let by = |interface: u32| known.get(&(interface, 0)).map(|value| (value.0, value.1));
        assert_eq!([2, 4, 5, 7].map(|at| leads_to(at, 10)), [Some(3), Some(8), Some(9), Some(10)]);
        assert_eq!([3, 8, 9, 10].map(by), [Some((2, 10)), Some((4, 10)), Some((5, 10)), Some((7, 10))]);
        assert_eq!((leads_to(2, 11), leads_to(6, 10), by(2)), (None, None, None));
        assert_eq!(known[&(3, 0)].2, [2, 0, 0, 0, 0, 3]);
        assert_eq!(known.len(), 8);
        // Without its own VLAN device a port's frames are the bond's.
        let known = entries(&among(&[&links[..7], &links[8..]].concat()));
        assert_eq!(known.get(&(5, WITH_TAG | 10)).map(|value| value.0), Some(8));
    }

    #[test]
    fn what_has_two_tags_or_a_providers_or_is_on_anothers_link_is_not_carried() {
        let provider = Link { vlan: Some(Vlan { id: 10, is_8021q: false }), ..vlan(3, 2, 10) };
        let elsewhere = Link { far: Some(PeerLink { index: 2, namespace: Some(0) }), ..vlan(4, 2, 11) };
        let links = [link(2), provider, elsewhere, vlan(5, 2, 12), vlan(6, 5, 13), vlan(7, 99, 14)];
        let known: Vec<u32> = among(&links).iter().map(|device| device.interface).collect();
        assert_eq!(known, [5]);
    }
}
