//! What interfaces have, recorded and given back.

use std::process::Command;

use rig_skip::{Lack, skip};
use rig_sys::ethtool::{self, Offload};
use rig_sys::netlink::{InterfaceAddress, InterfaceNeighbor, InterfaceRoute, Netlink, VethPair};
use rig_sys::netns::NetNs;
use rig_sys::process::in_namespace;

use crate::{privileged, until};

/// Carries out lines of ip(8) inside a namespace.
fn ip(ns: &NetNs, lines: &[&str]) {
    for line in lines {
        let output = in_namespace(Command::new("ip").args(line.split(' ')), ns).output().unwrap();
        assert!(output.status.success(), "ip {line}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

fn has_ip() -> bool {
    let there = Command::new("ip").arg("-V").output().is_ok();
    if !there {
        skip(Lack::Program("ip"), "addresses with all that they can have are added by it");
    }
    there
}

/// A namespace with `near`, whose other end is in the second.
fn pair() -> (NetNs, Netlink, NetNs) {
    let [a, b] = [(); 2].map(|()| NetNs::create().unwrap());
    let mut netlink = Netlink::open(&a).unwrap();
    netlink.add_veth(&VethPair { name: "near", peer: "far", peer_ns: &b, queues: 1, mtu: 1500 }).unwrap();
    Netlink::open(&b).unwrap().set_up("far").unwrap();
    (a, netlink, b)
}

/// As it comes back from a file.
fn kept<T: Clone + Into<String> + TryFrom<String>>(own: &[T]) -> Vec<T> {
    own.iter().map(|own| T::try_from(own.clone().into()).ok().unwrap()).collect()
}

#[test]
fn an_interface_that_was_elsewhere_has_all_that_it_had() {
    privileged(|| {
        if !has_ip() {
            return;
        }
        let (a, mut netlink, _b) = pair();
        ip(
            &a,
            &[
                "link set near up",
                "address add 192.0.2.1/24 brd + dev near label near:x",
                "address add 192.0.2.9/24 dev near",
                "address add 198.51.100.1 peer 198.51.100.2/32 dev near",
                "address add 203.0.113.1/24 dev near noprefixroute metric 7",
                "address add 203.0.114.1/24 dev near valid_lft 3000 preferred_lft 2000",
                "address add 2001:db8::1/64 dev near nodad",
                "address add 2001:db8:1::1/64 dev near noprefixroute",
                "route add 10.1.0.0/16 via 192.0.2.254 metric 50 mtu 1400 proto 99 src 192.0.2.9",
                "route add 10.2.0.0/16 via 10.99.0.1 dev near onlink table 77",
                "route add 10.3.0.0/16 dev near scope link",
                "route add 2001:db8:5::/48 via 2001:db8::ff metric 30 pref high",
                "neighbor add 192.0.2.7 lladdr 02:00:00:00:00:07 dev near nud permanent",
            ],
        );
        let index = netlink.index("near").unwrap();
        // What the kernel makes itself is there when duplicates have been looked for.
        until(|| (netlink.addresses_of(index).unwrap().len() == 8).then_some(()));
        let read = |netlink: &Netlink, index| {
            let neighbors = netlink.permanent_neighbors(index).unwrap();
            (netlink.addresses_of(index).unwrap(), netlink.routes_by(index).unwrap(), neighbors)
        };
        let (addresses, routes, neighbors) = read(&netlink, index);
        assert_eq!(neighbors.len(), 1);
        let of = |text: &str| addresses.iter().find(|own| own.to_string() == text).unwrap();
        assert!(of("203.0.113.1/24").is_without_route() && !of("192.0.2.1/24").is_without_route());
        assert!(of("203.0.114.1/24").is_leased() && !of("192.0.2.1/24").is_leased());
        assert_eq!(addresses.iter().filter(|own| own.is_of_link()).count(), 1, "{addresses:?}");
        let route = |text: &str| routes.iter().find(|own| own.to_string() == text).expect(text);
        let far = route("10.1.0.0/16 via 192.0.2.254");
        assert_eq!((far.metric(), far.source()), (50, Some([192, 0, 2, 9].into())));
        assert!(!far.is_of_kernel() && !far.is_shared() && far.is_of_main_table() && !far.is_default());
        assert!(route("192.0.2.0/24").is_of_kernel());
        assert_eq!(route("10.2.0.0/16 via 10.99.0.1 of table 77").table(), 77);

        let away = NetNs::create().unwrap();
        netlink.move_to("near", &away, "eth0", None).unwrap();
        let mut elsewhere = Netlink::open(&away).unwrap();
        assert!(elsewhere.link("eth0").is_ok_and(|link| !link.is_set_up) && netlink.link("near").is_err());
        assert_eq!(read(&elsewhere, index), (vec![], vec![], vec![]), "it took something with it");
        elsewhere.set_mtu("eth0", 9000).unwrap();
        elsewhere.set_up("eth0").unwrap();
        assert!(elsewhere.rename("eth0", "lo").is_err());
        elsewhere.set_down("eth0").unwrap();
        elsewhere.rename("eth0", "eth7").unwrap();
        assert_eq!(elsewhere.link("eth7").unwrap().mtu, 9000);
        elsewhere.move_to("eth7", &a, "near", Some(index + 7)).unwrap();
        let index = netlink.index("near").unwrap();

        netlink.set_mtu("near", 1500).unwrap();
        for address in kept::<InterfaceAddress>(&addresses) {
            netlink.put_address(index, &address).unwrap();
        }
        netlink.set_up("near").unwrap();
        for route in kept::<InterfaceRoute>(&routes) {
            netlink.put_route(index, &route).unwrap();
        }
        for neighbor in kept::<InterfaceNeighbor>(&neighbors) {
            netlink.put_permanent_neighbor(index, &neighbor).unwrap();
        }
        let (addresses_now, routes_now, neighbors_now) = read(&netlink, index);
        let alike = |now: &[InterfaceAddress]| {
            now.len() == addresses.len() && addresses.iter().all(|own| now.iter().any(|now| now.is_like(own)))
        };
        assert!(alike(&addresses_now), "{addresses_now:#?}\nwas {addresses:#?}");
        assert!(
            routes_now.len() == routes.len() && routes.iter().all(|own| routes_now.iter().any(|now| now.is_like(own))),
            "{routes_now:#?}\nwas {routes:#?}"
        );
        assert!(neighbors_now.len() == 1 && neighbors_now[0].is_like(&neighbors[0]));
        // Each is taken away by what was read of it.
        for address in &addresses_now {
            netlink.remove_address(index, address).unwrap();
        }
        for route in netlink.routes_by(index).unwrap() {
            netlink.remove_route(index, &route).unwrap();
        }
        netlink.remove_permanent_neighbor(index, &neighbors_now[0]).unwrap();
        netlink.remove_permanent_neighbor(index, &neighbors_now[0]).unwrap();
        assert_eq!(read(&netlink, index), (vec![], vec![], vec![]));
    });
}

#[test]
fn links_say_what_they_are_and_what_is_above_them() {
    privileged(|| {
        let (a, mut netlink, _b) = pair();
        netlink.add_bridge("br", 1500).unwrap();
        netlink.set_bridge("near", "br").unwrap();
        netlink.add_macvlan("above", "br", &a).unwrap();
        netlink.set_up("near").unwrap();
        let all = netlink.links().unwrap();
        let of = |name: &str| all.iter().find(|link| link.name == name).unwrap();
        assert_eq!(all.len(), 4);
        assert!(all.is_sorted_by_key(|link| link.index));
        assert!(of("near").is_ethernet && of("near").is_set_up && !of("lo").is_ethernet && !of("br").is_set_up);
        assert_eq!(of("near").kind.as_deref(), Some("veth"));
        assert_eq!(of("near").controller, Some(of("br").index));
        assert_eq!(of("above").far.map(|far| (far.index, far.namespace)), Some((of("br").index, None)));
        assert_eq!(*of("br"), netlink.link("br").unwrap());
        assert!(netlink.with_chosen_qdisc().unwrap().is_empty());
        netlink.set_qdisc("near", "pfifo").unwrap();
        assert!(netlink.with_chosen_qdisc().unwrap().contains(&of("near").index));
        let elsewhere = NetNs::create().unwrap();
        assert!(netlink.move_to("br", &elsewhere, "br", None).is_err());
        assert!(netlink.take_xdp_off("near").is_ok() && !of("near").has_xdp);
    });
}

#[test]
fn what_is_set_of_an_interface_is_read_and_set_again() {
    privileged(|| {
        let (a, _netlink, _b) = pair();
        let wanted = ethtool::wanted_features(&a, "near").unwrap();
        assert!(wanted["tx-tcp-segmentation"] && wanted.values().any(|on| !on), "{wanted:?}");
        ethtool::set(&a, "near", Offload::Tso, false).unwrap();
        ethtool::set(&a, "near", Offload::Gro, true).unwrap();
        assert_ne!(ethtool::wanted_features(&a, "near").unwrap(), wanted);
        ethtool::want_features(&a, "near", &wanted).unwrap();
        assert_eq!(ethtool::wanted_features(&a, "near").unwrap(), wanted);
        assert!(ethtool::wanted_features(&a, "nobody").is_err());

        let sysctls = a.interface_sysctls("near").unwrap();
        assert!(
            sysctls.contains_key("ipv4/conf/rp_filter") && sysctls.contains_key("ipv4/neigh/delay_first_probe_time")
        );
        a.set_interface_sysctl("near", "ipv4/conf/rp_filter", "2").unwrap();
        assert_eq!(a.interface_sysctls("near").unwrap()["ipv4/conf/rp_filter"], "2");
        assert!(a.set_interface_sysctl("near", "ipv4/conf/there_is_none", "2").is_err());
        assert!(a.interface_sysctls("nobody").unwrap().is_empty());

        let sysfs = a.sysfs().unwrap();
        assert_eq!(sysfs.device_settings("near").unwrap()["queues/rx-0/rps_cpus"].trim_matches(['0', ',']), "");
        assert!(sysfs.device_settings("nobody").is_err());
    });
}
