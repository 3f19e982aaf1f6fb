//! What the underlay is trusted with, and what it is not.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use rig_sys::netlink::{Netlink, VethPair};
use rustix::process::Signal;

use super::lab::{Lab, TIMEOUT, exchange, run};
use super::until;

/// Each wire between the nodes leads to another node, too, so that packets of tunnels are taken by both; and node a sends by the second
/// what node b sends back by the first.
pub fn by_one_way_alone(lab: &Lab) {
    let [a, b] = &lab.nodes;
    let pair = VethPair { name: "second", peer: "second", peer_ns: b, queues: 1, mtu: 1500 };
    Netlink::open(a).unwrap().add_veth(&pair).unwrap();
    for (node, address) in [(a, "198.51.100.1"), (b, "198.51.100.2")] {
        run(node, &format!("addr add {address}/24 dev second"));
        run(node, "link set second up");
    }
    run(a, "route add 192.0.2.2/32 via 198.51.100.2");
    let node = |name, address| format!("[[node]]\nname = \"{name}\"\naddress = \"{address}\"\n");
    let file = lab.file("8080");
    let text = fs::read_to_string(&file).unwrap() + &node("c", "198.51.100.3") + &node("d", "192.0.2.4");
    fs::write(&file, &text).unwrap();
    let (_a, b) = (lab.start(0, &file), lab.start(1, &file));
    lab.plug_web();
    b.says("interface 'web' is there: toweb");
    let dropped = until(TIMEOUT, || {
        assert!(lab.try_connect(Duration::from_millis(500)).is_err(), "it is taken by the other wire");
        (lab.dropped("peer_interface") > 0).then_some(())
    });
    assert!(dropped.is_some(), "it does not arrive by the other wire");
    let (said, _) = lab.netrig(0, 0, &["status", "--node", "b"]);
    assert!(said.contains("peer_interface") && said.contains("strict_underlay = false"), "{said}");
    let (said, _) = lab.netrig(0, 0, &["dropstats", "--log", "--node", "b"]);
    assert!(said.contains("peer_interface") && said.contains("192.0.2.1"), "{said}");

    fs::write(&file, format!("{text}[router]\nstrict_underlay = false\n")).unwrap();
    for node in ["a", "b"] {
        let (said, _) = lab.netrig(0, 0, &["reload", "--node", node]);
        assert_eq!(said, "[router] changed\n");
    }
    exchange(&mut lab.connect());
    let before = lab.dropped("peer_interface");
    fs::write(&file, &text).unwrap();
    lab.netrig(0, 0, &["reload", "--node", "b"]);
    assert!(lab.try_connect(Duration::from_secs(1)).is_err(), "it is taken again");
    assert!(lab.dropped("peer_interface") > before);
    // By the way back it is as ever.
    run(&lab.nodes[0], "route delete 192.0.2.2/32");
    exchange(&mut lab.connect());
}

const KEY: &str = "not a word of this is ever shown";

pub fn numbers_from_a_key(lab: &Lab) {
    let key = |name: &str, text: &str, mode: u32| {
        lab.write(name, text);
        fs::set_permissions(lab.path(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    let plain = lab.file("8080");
    let text = fs::read_to_string(&plain).unwrap();
    let with = |key: &str| format!("{text}\n[router]\nkey_file = \"{key}\"\n");
    let (file, other) = (lab.write("keyed.toml", &with("vrouter.key")), lab.write("other.toml", &with("other.key")));
    let (_, said) = lab.netrig(2, 0, &["check", &file]);
    assert!(said.contains("the key file 'vrouter.key' is of no use: No such file"), "{said}");
    key("vrouter.key", KEY, 0o644);
    let (_, said) = lab.netrig(2, 0, &["check", &file]);
    assert!(said.contains("all users may read or write it") && !said.contains(KEY), "{said}");
    key("vrouter.key", KEY, 0o600);
    key("other.key", &KEY.to_uppercase(), 0o600);
    let [checked, without] = [&file, &plain].map(|file| lab.netrig(0, 0, &["check", file]).0);
    let numbers = |text: &str| -> Vec<u32> {
        let words: Vec<&str> = text.split([' ', '\n', ',']).collect();
        let named = words.windows(2).filter(|pair| ["VNI", "label"].contains(&pair[0]));
        named.map(|pair| pair[1].parse().unwrap()).collect()
    };
    assert!(numbers(&checked).iter().all(|number| !numbers(&without).contains(number)), "{checked}{without}");
    assert!(checked.contains("drawn from a key") && numbers(&checked).len() == numbers(&without).len());

    let (_a, mut b) = (lab.start(0, &file), lab.start(1, &file));
    lab.plug_web();
    exchange(&mut lab.connect());
    let shown =
        [&["status"][..], &["status", "--json"], &["mpls", "--dump"], &["vxlan", "--dump"], &["metrics"], &["log"]];
    let mut all = checked;
    for arguments in shown {
        all += &lab.netrig(0, 0, &[arguments, &["--node", "a"]].concat()).0;
    }
    all += &fs::read_to_string(lab.path("a.log")).unwrap();
    assert!(!all.contains(KEY), "{all}");

    // A node with another key is refused.
    b.signal(Signal::TERM);
    assert_eq!(b.ended(), Some(0));
    let _b = lab.start(1, &other);
    let refused = until(TIMEOUT, || {
        assert!(lab.try_connect(Duration::from_millis(500)).is_err(), "a label of another key is taken");
        (lab.dropped("invalid_label") > 0).then_some(())
    });
    assert!(refused.is_some(), "nothing arrives");
    key("other.key", KEY, 0o600);
    let (said, _) = lab.netrig(0, 0, &["reload", "--node", "b"]);
    assert!(said.contains("interface 'web' changed") && said.contains("network 'blue' changed"), "{said}");
    exchange(&mut lab.connect());
}
