//! Containers' interfaces while no router runs: closed to the node's own services, unless it is said otherwise.

use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6, TcpListener, TcpStream};
use std::process::Command;
use std::thread;
use std::time::Duration;

use rig_sys::netlink::Netlink;
use rig_sys::process::in_namespace;
use rustix::process::Signal;

use super::lab::{ADDRESSES, Daemon, Lab, TIMEOUT, exchange, run};
use super::until;

/// The port of the node's own service.
const OWN: u16 = 9000;
/// A peer that is reached has answered by then.
const SOON: Duration = Duration::from_secs(1);

/// A service of node a, and ways to it that need no router: the link-local address of the node's end, and IPv4 by routes that know the
/// link.
fn serve(lab: &Lab) {
    let listener = lab.nodes[0].run(|| TcpListener::bind(("::", OWN)).unwrap()).unwrap();
    thread::spawn(move || listener.incoming().map_while(Result::ok).for_each(drop));
    run(&lab.client, "route add 192.0.2.1/32 dev eth0");
    run(&lab.nodes[0], "route add 10.1.0.11/32 dev toclient");
}

/// As RFC 4291, appendix A, has it.
fn link_local(mac: [u8; 6]) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac;
    let word = |high, low| u16::from_be_bytes([high, low]);
    Ipv6Addr::new(0xfe80, 0, 0, 0, word(a ^ 2, b), word(c, 0xff), word(0xfe, d), word(e, f))
}

/// Whether the container is let in, by both ways or none.
fn is_let_in(lab: &Lab) -> [bool; 2] {
    let mac = Netlink::open(&lab.nodes[0]).unwrap().link("toclient").unwrap().mac.unwrap();
    let index = Netlink::open(&lab.client).unwrap().link("eth0").unwrap().index;
    let ways = [
        SocketAddr::from(SocketAddrV6::new(link_local(mac), OWN, 0, index)),
        SocketAddr::new("192.0.2.1".parse().unwrap(), OWN),
    ];
    // Both at once: one that is closed is found so when the time is over.
    let asks = |to| move || lab.client.run(|| TcpStream::connect_timeout(&to, SOON)).unwrap().is_ok();
    thread::scope(|scope| ways.map(|to| scope.spawn(asks(to))).map(|asked| asked.join().unwrap()))
}

#[track_caller]
fn is_open(lab: &Lab) {
    let open = until(TIMEOUT, || (is_let_in(lab) == [true; 2]).then_some(()));
    assert!(open.is_some(), "not by IPv6, IPv4: {:?}", is_let_in(lab));
}

#[track_caller]
fn is_closed(lab: &Lab) {
    assert_eq!(is_let_in(lab), [false; 2], "by IPv6, IPv4");
}

#[track_caller]
fn stop(mut router: Daemon) -> Daemon {
    router.signal(Signal::TERM);
    assert_eq!(router.ended(), Some(0));
    router
}

pub fn without_a_router(lab: &Lab) {
    serve(lab);
    is_open(lab);
    let file = lab.file("8080");
    let _b = lab.start(1, &file);
    lab.plug_web();

    let mut a = lab.start(0, &file);
    exchange(&mut lab.connect());
    is_closed(lab);
    a.kill();
    is_closed(lab);
    // What answers is the router, and it alone.
    lab.is_left_alone(&lab.client, ADDRESSES[1]);
    let a = lab.start(0, &file);
    exchange(&mut lab.connect());
    is_closed(lab);
    stop(a).says(
        "its containers' interfaces stay closed: run it again, or open them with `netrig vrouter release --node a`",
    );
    is_closed(lab);

    // An interface in the place of another is closed when the router sees it.
    let mut a = lab.start(0, &file);
    run(&lab.nodes[0], "link delete toclient");
    a.says("interface 'client' is not there yet");
    lab.plug(0, "toclient", &lab.client, "02:00:00:00:00:01");
    run(&lab.client, "route add 192.0.2.1/32 dev eth0");
    run(&lab.nodes[0], "route add 10.1.0.11/32 dev toclient");
    a.says("interface 'client' is there: toclient");
    exchange(&mut lab.connect());
    a.kill();
    is_closed(lab);

    // `--fail-open` opens an interface that a router before has closed.
    let mut a = lab.start_with(0, &file, &["--fail-open"]);
    a.says("open again without a router: toclient");
    exchange(&mut lab.connect());
    is_closed(lab);
    a.kill();
    is_open(lab);
    let a = lab.start_with(0, &file, &["--fail-open"]);
    is_closed(lab);
    drop(stop(a));
    is_open(lab);
}

#[track_caller]
fn tc(lab: &Lab, arguments: &str) -> String {
    let mut command = Command::new("tc");
    let output = in_namespace(command.args(arguments.split(' ')), &lab.nodes[0]).output().unwrap();
    assert!(output.status.success(), "tc {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Each way to open an interface takes off the router's filter, and leaves others' there.
pub fn leaves_others_filters(lab: &Lab) {
    let file = lab.file("8080");
    let shown = |direction: &str| tc(lab, &format!("filter show dev toclient {direction}"));
    let release = || lab.netrig(0, 0, &["release", "--node", "a"]);
    let close = || {
        // Twice, as the second router finds the first one's filter.
        for _ in 0..2 {
            lab.start(0, &file).kill();
            let shown = shown("ingress");
            assert!(shown.contains("closed") && shown.matches("direct-action").count() == 1, "{shown}");
        }
    };
    close();
    release();
    assert_eq!(shown("ingress"), "");

    for direction in ["ingress", "egress"] {
        close();
        tc(lab, &format!("filter add dev toclient {direction} pref 7 protocol all u32 match u32 0 0 classid 1:1"));
        release();
        let shown = shown(direction);
        assert!(shown.contains("u32") && !shown.contains("closed"), "{shown}");
        tc(lab, &format!("filter del dev toclient {direction} pref 7"));
    }

    // An interface that is not the file's any more.
    let a = lab.start(0, &file);
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("name = \"client\"\nnode = \"a\"", "name = \"client\"\nnode = \"b\"")).unwrap();
    lab.netrig(0, 0, &["reload", "--node", "a"]);
    assert_eq!(shown("ingress"), "");
    drop(stop(a));
}

pub fn opened_again(lab: &Lab) {
    serve(lab);
    let file = lab.file("8080");
    let release = |node: &str| lab.netrig(0, 0, &["release", "--node", node]).0;
    lab.start(0, &file).kill();
    is_closed(lab);
    // The interface is not node b's to release.
    assert_eq!(release("b"), "nothing of it was kept: node b\n");
    is_closed(lab);
    assert_eq!(release("a"), "released: node a\nopen again without a router: toclient\n");
    is_open(lab);
    assert_eq!(release("a"), "nothing of it was kept: node a\n");

    // An interface that the file no longer has is opened.
    let a = lab.start(0, &file);
    is_closed(lab);
    let text = std::fs::read_to_string(&file).unwrap();
    let other = text.replace("namespace = \"client\"", "namespace = \"other\"");
    std::fs::write(&file, &other).unwrap();
    lab.netrig(0, 0, &["reload", "--node", "a"]);
    // The file still has this one, but in another namespace, so it stays closed.
    is_closed(lab);
    std::fs::write(&file, &text).unwrap();
    lab.netrig(0, 0, &["reload", "--node", "a"]);
    is_closed(lab);
    std::fs::write(&file, text.replace("name = \"client\"\nnode = \"a\"", "name = \"client\"\nnode = \"b\"")).unwrap();
    lab.netrig(0, 0, &["reload", "--node", "a"]);
    is_open(lab);
    std::fs::write(&file, &text).unwrap();
    drop(stop(a));

    // A router whose programs go on without a process (`--persist`), and are released then.
    let mounted = Command::new("mount").args(["-t", "bpf", "bpf", "/sys/fs/bpf"]).status().unwrap();
    assert!(mounted.success(), "no bpf file system of its own");
    lab.start_with(0, &file, &["--persist"]).kill();
    is_closed(lab);
    assert_eq!(release("a"), "released: node a\nopen again without a router: toclient\n");
    is_open(lab);
}

/// A filter of another program has the place: it stays, the router runs, and says that it cannot close the interface.
pub fn with_anothers_filter(lab: &Lab) {
    let netlink = Netlink::open(&lab.nodes[0]).unwrap();
    let index = netlink.link("toclient").unwrap().index;
    let tc = |arguments: &str| {
        let mut command = Command::new("tc");
        in_namespace(command.args(arguments.split(' ')), &lab.nodes[0]).output().unwrap()
    };
    assert!(tc("qdisc add dev toclient clsact").status.success());
    let filter = "filter add dev toclient ingress pref 2 protocol all u32 match u32 0 0 classid 1:1";
    let added = tc(filter);
    assert!(added.status.success(), "{}", String::from_utf8_lossy(&added.stderr));
    let file = lab.file("8080");
    let (a, _b) = (lab.start(0, &file), lab.start(1, &file));
    a.says(&format!("cannot close interface {index} for when there is no router"));
    lab.plug_web();
    exchange(&mut lab.connect());
    let (said, _) = lab.netrig(0, 0, &["status", "--node", "a"]);
    assert!(said.contains("preference 2 of the interface's ingress filters"), "{said}");
    let shown = tc("filter show dev toclient ingress");
    assert!(String::from_utf8_lossy(&shown.stdout).contains("u32"), "{shown:?}");
    // As soon as the place is free.
    assert!(tc("filter del dev toclient ingress pref 2").status.success());
    let shows = || String::from_utf8_lossy(&tc("filter show dev toclient ingress").stdout).contains("closed");
    assert!(until(TIMEOUT, || shows().then_some(())).is_some(), "it is not closed");
}
