//! Namespaces and what is in them.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;

use rig_sys::Error;
use rig_sys::counters::NamespaceCounters;
use rig_sys::ethtool::{self, Offload};
use rig_sys::netlink::{Netlink, TokenBucket, VethPair};
use rig_sys::netns::{self, NetNs};

use crate::{privileged, until};

/// Names of the interfaces that a thread inside `ns` sees.
fn interfaces(ns: &NetNs) -> BTreeSet<String> {
    let text = ns.run(|| fs::read_to_string("/proc/thread-self/net/dev")).unwrap().unwrap();
    text.lines().skip(2).map(|line| line.split(':').next().unwrap().trim().to_owned()).collect()
}

fn here() -> std::path::PathBuf {
    fs::read_link("/proc/thread-self/ns/net").unwrap()
}

/// Two namespaces joined by `near` in the first and `far` in the second, both with an address and up.
fn pair() -> [(NetNs, Netlink); 2] {
    let [a, b] = [(); 2].map(|()| NetNs::create().unwrap());
    let mut netlinks = [&a, &b].map(|ns| Netlink::open(ns).unwrap());
    let veth = VethPair { name: "near", peer: "far", peer_ns: &b, queues: 1, mtu: 1500 };
    netlinks[0].add_veth(&veth).unwrap();
    for (number, (netlink, name)) in (1..).zip(netlinks.iter_mut().zip(["near", "far"])) {
        netlink.add_address(name, IpAddr::from([192, 0, 2, number]), 24).unwrap();
        netlink.set_up(name).unwrap();
    }
    let [near, far] = netlinks;
    [(a, near), (b, far)]
}

fn address(number: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, number], 9))
}

#[test]
fn a_namespace_is_empty_and_nobody_moves_into_it_unasked() {
    privileged(|| {
        let before = here();
        let ns = NetNs::create().unwrap();
        assert!(interfaces(&ns).contains("lo"));
        let inside = ns.run(here).unwrap();
        assert_ne!(inside, before);
        assert_eq!(here(), before, "the caller was moved");
        // A namespace by path is the same one.
        let path = format!("/proc/self/fd/{}", ns.raw_fd());
        assert_eq!(NetNs::open(&path).unwrap().run(here).unwrap(), inside);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                ns.enter().unwrap();
                assert_eq!(here(), inside);
                assert_eq!(NetNs::of_current_thread().unwrap().run(here).unwrap(), inside);
            });
        });
        assert_eq!(here(), before);
    });
}

#[test]
fn a_namespace_ends_with_its_last_descriptor() {
    privileged(|| {
        let [(a, _near), (b, far)] = pair();
        assert!(interfaces(&a).contains("near"));
        // What happens inside does not keep it.
        b.run(|| assert!(Path::new("/proc/thread-self/net/dev").exists())).unwrap();
        drop((b, far));
        until(|| (!interfaces(&a).contains("near")).then_some(()));
    });
}

#[test]
fn a_panic_inside_a_namespace_is_handed_on() {
    privileged(|| {
        let ns = NetNs::create().unwrap();
        let panic = std::panic::catch_unwind(|| ns.run(|| panic!("inside")).unwrap()).unwrap_err();
        assert_eq!(panic.downcast_ref(), Some(&"inside"));
    });
}

#[test]
fn sysfs_and_sysctls_belong_to_one_namespace() {
    privileged(|| {
        let [(a, _), (b, _)] = pair();
        let sysfs = a.sysfs().unwrap();
        assert_eq!(sysfs.read("near", "mtu").unwrap(), "1500");
        sysfs.write("near", "mtu", "1400").unwrap();
        assert_eq!(a.sysfs().unwrap().read("near", "mtu").unwrap(), "1400");
        let error = sysfs.read("far", "mtu").unwrap_err();
        assert_eq!((error.errno(), error.to_string().contains("mtu of far")), (Some(2), true), "{error}");
        assert!(sysfs.write("near", "mtu", "many").unwrap_err().to_string().contains("write many to mtu of near"));

        let forwarding = |ns: &NetNs| ns.run(|| fs::read_to_string("/proc/sys/net/ipv4/ip_forward")).unwrap().unwrap();
        let outside = fs::read_to_string("/proc/sys/net/ipv4/ip_forward").unwrap();
        b.sysctl("net.ipv4.ip_forward", "0").unwrap();
        a.sysctl("net.ipv4.ip_forward", "1").unwrap();
        assert_eq!((forwarding(&a).as_str(), forwarding(&b).as_str()), ("1\n", "0\n"));
        assert_eq!(fs::read_to_string("/proc/sys/net/ipv4/ip_forward").unwrap(), outside, "the host was changed");
        let error = a.sysctl("net.ipv4.no_such_thing", "1").unwrap_err().to_string();
        assert!(error.contains("net.ipv4.no_such_thing = 1"), "{error}");
    });
}

/// What a namespace begins with is up to the machine, on which Docker forwards and a distribution filters.
#[test]
fn ipv4_is_reset_to_what_a_kernel_starts_with() {
    privileged(|| {
        let ns = NetNs::create().unwrap();
        let keys = ["net.ipv4.ip_forward", "net.ipv4.conf.default.rp_filter", "net.ipv4.conf.lo.forwarding"];
        ns.sysctls(&[(keys[0], "1"), (keys[1], "2")]).unwrap();
        let read = || keys.map(|key| ns.run(|| fs::read_to_string(format!("/proc/sys/{}", key.replace('.', "/")))));
        assert_eq!(read().map(|value| value.unwrap().unwrap()), ["1\n", "2\n", "1\n"]);
        ns.reset_ipv4().unwrap();
        assert_eq!(read().map(|value| value.unwrap().unwrap()), ["0\n", "0\n", "0\n"]);
    });
}

#[test]
fn counters_count_what_passes_and_nothing_else() {
    const DATAGRAMS: u64 = 50;
    const PAYLOAD: usize = 1000;
    privileged(|| {
        let [(a, _near), (b, _far)] = pair();
        let counters = [&a, &b].map(|ns| NamespaceCounters::open(ns).unwrap());
        let sender = a.run(|| UdpSocket::bind(address(1))).unwrap().unwrap();
        let receiver = b.run(|| UdpSocket::bind(address(2))).unwrap().unwrap();
        let mut buffer = [0; 2 * PAYLOAD];
        // Once to have the addresses of the link layer resolved.
        sender.send_to(&[1; PAYLOAD], address(2)).unwrap();
        receiver.recv(&mut buffer).unwrap();
        let read = || [0, 1].map(|end| (counters[end].interfaces().unwrap(), counters[end].protocols().unwrap()));
        let before = read();
        // Read from another thread than the one that opened them.
        std::thread::scope(|scope| scope.spawn(read).join().unwrap());
        for _ in 0..DATAGRAMS {
            sender.send_to(&[1; PAYLOAD], address(2)).unwrap();
            assert_eq!(receiver.recv(&mut buffer).unwrap(), PAYLOAD);
        }
        let [near, far] = read();
        // UDP, IPv4 and Ethernet headers.
        let bytes = DATAGRAMS * (PAYLOAD as u64 + 8 + 20 + 14);
        let (sent, received) = (near.0["near"], far.0["far"]);
        let tx = (sent.tx_packets - before[0].0["near"].tx_packets, sent.tx_bytes - before[0].0["near"].tx_bytes);
        let rx = (received.rx_packets - before[1].0["far"].rx_packets, received.rx_bytes - before[1].0["far"].rx_bytes);
        // Neighbour discovery of IPv6 may add a packet or two of its own.
        assert!((DATAGRAMS..DATAGRAMS + 10).contains(&tx.0) && (bytes..bytes + 2000).contains(&tx.1), "{tx:?}");
        assert!((DATAGRAMS..DATAGRAMS + 10).contains(&rx.0) && (bytes..bytes + 2000).contains(&rx.1), "{rx:?}");
        assert_eq!(near.1["Udp.OutDatagrams"] - before[0].1["Udp.OutDatagrams"], DATAGRAMS);
        assert_eq!(far.1["Udp.InDatagrams"] - before[1].1["Udp.InDatagrams"], DATAGRAMS);
        assert_eq!(far.1["Udp.OutDatagrams"], 0);
        assert!(!near.0.contains_key("lo") && !near.0.contains_key("far"));
    });
}

#[test]
fn what_a_rate_limit_drops_is_counted_where_the_interface_does_not() {
    const DATAGRAMS: u32 = 200;
    privileged(|| {
        let [(a, mut near), (b, far)] = pair();
        let counters = NamespaceCounters::open(&a).unwrap();
        // 1 Mbit/s, and room for some ten of the datagrams.
        near.set_token_bucket("near", TokenBucket { rate: 125_000, burst: 3000, limit: 10_000 }).unwrap();
        let sender = a.run(|| UdpSocket::bind(address(1))).unwrap().unwrap();
        let receiver = b.run(|| UdpSocket::bind(address(2))).unwrap().unwrap();
        let mut buffer = [0; 2000];
        // Once to have the addresses of the link layer resolved.
        sender.send_to(&[1; 1000], address(2)).unwrap();
        receiver.recv(&mut buffer).unwrap();
        let before = near.queue_stats("near").unwrap();
        assert_eq!(before.drops, 0);
        for _ in 0..DATAGRAMS {
            // The kernel may tell the sender of the drop.
            let _ = sender.send_to(&[1; 1000], address(2));
        }
        let after = near.queue_stats("near").unwrap();
        // A burst of 200 kB takes far less time than the 1.6 s in which the limit would let it pass.
        assert!((DATAGRAMS / 4..=DATAGRAMS).contains(&after.drops), "{after:?}");
        assert!(after.overlimits > before.overlimits, "{after:?}");
        let interface = counters.interfaces().unwrap()["near"];
        assert_eq!((interface.tx_dropped, interface.tx_errors), (0, 0));
        // The other end has the kernel's own discipline, which dropped nothing.
        assert_eq!(far.queue_stats("far").unwrap().drops, 0);
        let error = near.queue_stats("nothing").unwrap_err().to_string();
        assert!(error.contains("interface nothing"), "{error}");
    });
}

#[test]
fn counters_of_more_interfaces_than_one_read_returns_are_complete() {
    privileged(|| {
        let ns = NetNs::create().unwrap();
        let mut netlink = Netlink::open(&ns).unwrap();
        let counters = NamespaceCounters::open(&ns).unwrap();
        let before = counters.interfaces().unwrap().len();
        for number in 0..150 {
            let (name, peer) = (format!("a{number}"), format!("b{number}"));
            let veth = VethPair { name: &name, peer: &peer, peer_ns: &ns, queues: 1, mtu: 1500 };
            netlink.add_veth(&veth).unwrap();
        }
        let after = counters.interfaces().unwrap();
        assert_eq!(after.len() - before, 300);
        assert!(after.contains_key("a149") && after.contains_key("b149"));
    });
}

#[test]
fn the_ends_of_a_veth_pair_have_different_numbers() {
    privileged(|| {
        let [(_a, near), (_b, far)] = pair();
        assert_ne!(near.index("near").unwrap(), far.index("far").unwrap());
    });
}

#[test]
fn an_ipv6_address_can_be_used_at_once() {
    privileged(|| {
        if !Path::new("/proc/sys/net/ipv6").exists() {
            return rig_skip::skip(rig_skip::Lack::Ipv6, "the kernel has no IPv6");
        }
        let [(a, mut near), _b] = pair();
        let address: IpAddr = "fd00::1".parse().unwrap();
        near.add_address("near", address, 64).unwrap();
        a.run(|| UdpSocket::bind((address, 0))).unwrap().unwrap();
    });
}

#[test]
fn an_interface_tells_what_its_device_missed() {
    privileged(|| {
        let [(a, _near), (_b, _far)] = pair();
        let netlink = Netlink::open(&a).unwrap();
        assert_eq!(netlink.missed("near").unwrap(), 0, "a veth interface has no device that could");
        assert!(netlink.missed("there-is-none").is_err());
    });
}

#[test]
fn offloads_are_switched_one_by_one() {
    privileged(|| {
        let [(a, _near), (b, _far)] = pair();
        for offload in [Offload::Tso, Offload::Gso, Offload::Gro] {
            for on in [false, true, false] {
                ethtool::set(&a, "near", offload, on).unwrap();
                assert_eq!(ethtool::get(&a, "near", offload).unwrap(), on, "{offload:?}");
            }
        }
        assert!(ethtool::get(&b, "far", Offload::Tso).unwrap(), "the other end was switched too");
        let error = ethtool::set(&a, "far", Offload::Tso, false).unwrap_err();
        assert!(error.to_string().contains("Tso of far off"), "{error}");
        assert!(ethtool::get(&a, &"n".repeat(16), Offload::Tso).is_err());
    });
}

#[test]
fn what_the_kernel_refuses_is_named() {
    privileged(|| {
        let [(_a, mut near), (b, _far)] = pair();
        let says = |error: Error, operation: &str, errno: Option<i32>| {
            assert!(error.to_string().contains(operation), "'{error}' lacks '{operation}'");
            assert_eq!(error.errno(), errno, "{error}");
        };
        let veth = |name| VethPair { name, peer: "other", peer_ns: &b, queues: 1, mtu: 1500 };
        says(near.add_veth(&veth("near")).unwrap_err(), "create veth pair near - other", Some(17));
        says(near.add_bridge("near", 1500).unwrap_err(), "create bridge near", Some(17));
        says(near.set_up("nothing").unwrap_err(), "interface nothing", Some(19));
        let error = near.set_bridge("near", "near").unwrap_err();
        assert!(error.to_string().contains("make near a port of near"), "{error}");
        let gateway = IpAddr::from([198, 51, 100, 1]);
        says(near.add_route(IpAddr::from([0, 0, 0, 0]), 0, gateway).unwrap_err(), "via 198.51.100.1", Some(101));
        says(near.add_address("near", IpAddr::from([192, 0, 2, 1]), 24).unwrap_err(), "192.0.2.1/24 to near", Some(17));
        let bucket = TokenBucket { rate: 0, burst: 1500, limit: 1500 };
        says(near.set_token_bucket("near", bucket).unwrap_err(), "shape", None);
        // After every refusal the socket is as good as before.
        near.set_up("near").unwrap();
    });
}

#[test]
fn a_user_namespace_is_refused_to_a_process_with_threads() {
    let error = netns::enter_user_namespace().unwrap_err();
    assert_eq!(error.source.kind(), io::ErrorKind::InvalidInput, "{error}");
    assert!(error.to_string().starts_with("create a user namespace"), "{error}");
}

#[test]
fn a_link_says_what_is_at_its_other_end() {
    privileged(|| {
        let [(a, near), (b, far)] = pair();
        let (here, there) = (near.link("near").unwrap(), far.link("far").unwrap());
        assert_eq!((&*here.name, here.mtu, here.mac.is_some()), ("near", 1500, true));
        assert_eq!(near.link_at(here.index).unwrap(), here);
        let led = [(&here, &there, &near, &b), (&there, &here, &far, &a)];
        for (link, other, netlink, its) in led {
            let far = link.far.unwrap();
            assert_eq!(far.index, other.index);
            assert_eq!(far.namespace, netlink.namespace_number(its).unwrap());
            assert!(far.namespace.is_some());
        }
        assert_ne!(here.far.unwrap().namespace, near.namespace_number(&NetNs::create().unwrap()).unwrap());
        assert_eq!(near.link("lo").unwrap().far, None);
        assert!(near.link("nobody").is_err() && near.link_at(4711).is_err());
    });
}
