//! How ports begin, are refused, and end.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::{Command, Stdio};
use std::time::Duration;

use rig_packet::device::{self, Device, Options};
use rig_packet::plan::{Driver, PortPlan, ThreadPlan};
use rig_skip::{Lack, skip};
use rig_sys::xdp::SendPath;

use super::{Wire, is_root, plan, takes_several_pages, until};

/// Set for the child of the test below.
const CHILD: &str = "NETRIG_TEST_HOLDS_A_PORT";

#[test]
fn nothing_is_left_of_a_port_whose_process_was_killed() {
    if std::env::var_os(CHILD).is_some() {
        // In the parent's namespace.
        let opened = device::open(&plan("near", Driver::Xdp), &Options::default()).unwrap();
        println!("open: {}", opened.devices.len());
        // Long enough for the parent to kill this, and an end in any case.
        std::thread::sleep(Duration::from_secs(60));
        return;
    }
    if !is_root() {
        return;
    }
    let mut wire = Wire::new(1, 1500);
    let addresses = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];
    wire.links[0].add_address("near", addresses[0].into(), 24).unwrap();
    wire.links[1].add_address("far", addresses[1].into(), 24).unwrap();
    let child = wire.near.run(|| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "devices::life::nothing_is_left_of_a_port_whose_process_was_killed", "--nocapture"]);
        command.env(CHILD, "1").stdout(Stdio::piped()).spawn()
    });
    let mut child = child.unwrap().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("open: 1")), "the child has no port");
    let taken = wire.open(&plan("near", Driver::Xdp), &Options::default()).unwrap_err().to_string();
    assert!(taken.contains("another XDP program"), "{taken}");
    child.kill().unwrap();
    child.wait().unwrap();

    // The kernel takes the program and the sockets down by itself, and the interface works as before.
    let sockets = [(&wire.near, addresses[0]), (&wire.far, addresses[1])]
        .map(|(ns, address)| ns.run(|| UdpSocket::bind((address, 9))).unwrap().unwrap());
    sockets[1].set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    until(|| {
        sockets[0].send_to(b"x", SocketAddr::from((addresses[1], 9))).ok()?;
        sockets[1].recv(&mut [0; 10]).ok()
    });
    until(|| wire.open(&plan("near", Driver::Xdp), &Options::default()).ok());
}

#[test]
fn a_port_that_cannot_be_had_says_why() {
    if !is_root() {
        return;
    }
    let wire = Wire::new(1, 1500);
    let says = |plan: &PortPlan, words: &[&str]| {
        let error = wire.open(plan, &Options::default()).unwrap_err().to_string();
        for word in words {
            assert!(error.contains(word), "`{error}` lacks `{word}`");
        }
    };
    for driver in [Driver::Auto, Driver::Xdp, Driver::XdpGeneric, Driver::Packet] {
        let mut missing = plan("near", driver);
        missing.interface = "nothing".to_owned();
        let error = wire.near.run(|| device::open(&missing, &Options::default())).unwrap().unwrap_err().to_string();
        assert!(error.contains("no interface nothing"), "{error}");
        let mut queue = plan("near", driver);
        queue.threads = vec![ThreadPlan { cpu: None, queue: 1, response: None }];
        says(&queue, &["near has no queue 1", "it has one in use"]);
    }
    let _first = wire.device(&plan("near", Driver::Xdp), SendPath::Any);
    for driver in [Driver::Auto, Driver::Xdp, Driver::XdpGeneric] {
        says(&plan("near", driver), &["near has another XDP program", "number", "ip link set near xdp off"]);
    }
}

#[test]
fn interfaces_of_large_frames_are_opened_by_the_best_way_that_the_kernel_has() {
    if !is_root() {
        return;
    }
    let wire = Wire::new(1, 9000);
    let jumbo = |driver| PortPlan { mtu: 9000, ..plan("near", driver) };
    if takes_several_pages() {
        drop(wire);
        // Its own MTU, or its peer's, just beyond a page and far beyond.
        for (mtu, own) in [(9000, 9000), (9000, 1500), (3499, 3499), (3499, 1500), (3822, 3822), (3823, 1500)] {
            let wire = Wire::new(1, mtu);
            let opened = wire.open(&PortPlan { mtu: own, ..plan("near", Driver::Auto) }, &Options::default()).unwrap();
            assert!(!matches!(opened.devices[..], [Device::Packet(_)]), "{mtu}, {own}: {:?}", opened.notes);
        }
        return;
    }
    // The interface refuses the program.
    let error = wire.open(&plan("near", Driver::Xdp), &Options::default()).unwrap_err().to_string();
    assert!(error.contains("9000") && error.contains("3498"), "{error}");
    // A page does not hold the frame.
    let error = wire.open(&jumbo(Driver::Xdp), &Options::default()).unwrap_err().to_string();
    assert!(error.contains("9018 bytes") && error.contains("before Linux 6.6"), "{error}");
    let opened = wire.open(&jumbo(Driver::Auto), &Options::default()).unwrap();
    assert!(matches!(opened.devices[..], [Device::Packet(_)]));
    assert!(opened.notes[0].contains("packet sockets") && opened.notes[0].contains("9018"), "{:?}", opened.notes);
}

#[test]
fn an_interface_without_a_place_for_programs_gets_the_generic_hook() {
    if !is_root() {
        return;
    }
    let ns = rig_sys::netns::NetNs::create().unwrap();
    let mut link = rig_sys::netlink::Netlink::open(&ns).unwrap();
    link.add_bridge("near", 1500).unwrap();
    link.set_up("near").unwrap();
    let open = |driver| ns.run(|| device::open(&plan("near", driver), &Options::default())).unwrap();
    let error = open(Driver::Xdp).unwrap_err().to_string();
    assert!(error.contains("has no XDP"), "{error}");
    let opened = open(Driver::Auto).unwrap();
    assert!(opened.notes[0].contains("generic") && opened.notes[0].contains("slow"), "{:?}", opened.notes);
}

#[test]
fn packet_sockets_need_no_root() {
    if rig_sys::netns::may_create_namespaces() && std::env::var_os(CHILD).is_none() {
        // As a user without rights outside of a user namespace of their own.
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--net"]).arg(std::env::current_exe().unwrap());
        command.args(["--exact", "devices::life::packet_sockets_need_no_root", "--nocapture"]).env(CHILD, "1");
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && text.contains("1 passed"),
            "{text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        return;
    }
    if std::env::var_os(CHILD).is_none() {
        return skip(Lack::Root, "only root can make the test's namespaces");
    }
    let wire = Wire::new(1, 1500);
    let opened = wire.open(&plan("near", Driver::Auto), &Options::default()).unwrap();
    assert!(matches!(opened.devices[..], [Device::Packet(_)]));
    assert!(opened.notes[0].contains("not allowed: run as root of the machine"), "{:?}", opened.notes);
    let error = wire.open(&plan("near", Driver::Xdp), &Options::default()).unwrap_err().to_string();
    assert!(error.contains("outside of user namespaces; ports of driver `packet`"), "{error}");
}
