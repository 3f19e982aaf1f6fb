//! What changes while containers send to each other: rules, and interfaces that go away.

use std::fs;
use std::io::Write;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rig_sys::netns::NetNs;

use super::lab::{ADDRESSES, Lab, TIMEOUT, exchange, run};
use super::with_lab;
use super::world::until;

const RULES: &str = "in = [{ protocol = \"tcp\", ports = 8080 }]";
const UDP: u16 = 9000;
/// Another container beside the web server.
const OTHER: (&str, &str) = ("10.2.0.12", "02:00:00:00:00:03");

/// The file of both nodes with `more` rules that match nothing before the one that takes UDP, and with the other container.
fn file(lab: &Lab, more: usize) -> String {
    let path = lab.file("8080");
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(RULES));
    let closed: String = (0..more)
        .map(|i| format!("{{ protocol = \"udp\", ports = {}, remote_prefix = \"10.3.{}.0/24\" }}, ", 1000 + i, i % 256))
        .collect();
    let rules =
        format!("in = [{closed}{{ protocol = \"tcp\", ports = 8080 }}, {{ protocol = \"udp\", ports = {UDP} }}]");
    let (address, mac) = OTHER;
    let other = format!(
        "[[interface]]\nname = \"other\"\nnode = \"b\"\nnetwork = \"blue\"\ndevice = \"toother\"\n\
         addresses = [\"{address}\"]\nmac = \"{mac}\"\nsecurity_groups = [\"web\"]\n"
    );
    fs::write(&path, text.replace(RULES, &rules) + &other).unwrap();
    path
}

/// A container that sends each datagram back.
fn answer(container: &NetNs, address: &str) {
    let socket = container.run(|| UdpSocket::bind((address, UDP)).unwrap()).unwrap();
    // It ends with the test's world.
    thread::spawn(move || {
        let mut buffer = [0; 2048];
        while let Ok((read, from)) = socket.recv_from(&mut buffer) {
            let _gone = socket.send_to(&buffer[..read], from);
        }
    });
}

/// The client's datagrams, one after the other, until `done`: each must come back.
fn ask(client: &NetNs, address: &str, done: &AtomicBool, answered: &AtomicU64) {
    let socket = client.run(|| UdpSocket::bind("0.0.0.0:0").unwrap()).unwrap();
    socket.connect((address, UDP)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    while !done.load(Ordering::Relaxed) {
        let number = answered.load(Ordering::Relaxed).to_le_bytes();
        socket.send(&number).unwrap();
        let mut back = [0; 8];
        let read = socket.recv(&mut back).unwrap_or_else(|error| panic!("datagram {number:?} is lost: {error}"));
        assert_eq!(back[..read], number);
        answered.fetch_add(1, Ordering::Relaxed);
    }
}

/// Waits until so many more have been answered.
fn goes_on(answered: &AtomicU64, more: u64) {
    let from = answered.load(Ordering::Relaxed);
    let come = until(TIMEOUT, || (answered.load(Ordering::Relaxed) >= from + more).then_some(()));
    assert!(come.is_some(), "no datagram is answered any more");
}

/// Stops the load even when what it is there for fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn no_datagram_is_lost_while_rules_are_changed() {
    with_lab(|lab| {
        let path = file(lab, 0);
        let (_a, _b) = (lab.start(0, &path), lab.start(1, &path));
        lab.plug_web();
        answer(&lab.web, ADDRESSES[1]);
        exchange(&mut lab.connect());
        let (done, answered) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|scope| {
            let stop = Stop(&done);
            let load = scope.spawn(|| ask(&lab.client, ADDRESSES[1], &done, &answered));
            for more in [1000, 0, 1000, 1, 999, 0] {
                goes_on(&answered, 20);
                file(lab, more);
                let (said, _) = lab.netrig(0, 0, &["reload", "--node", "b"]);
                assert_eq!(said, "security group 'web' changed\n");
                assert!(!load.is_finished(), "the load has ended");
            }
            goes_on(&answered, 20);
            drop(stop);
        });
        assert_eq!(lab.dropped("policy") + lab.dropped("flow_action_drop"), 0);
    });
}

#[test]
fn an_interface_that_goes_away_under_load_harms_no_other() {
    with_lab(|lab| {
        let path = file(lab, 0);
        let (_a, b) = (lab.start(0, &path), lab.start(1, &path));
        lab.plug_web();
        let other = NetNs::create().unwrap();
        lab.plug_as(1, "toother", &other, OTHER.1, OTHER.0);
        b.says("interface 'other' is there: toother");
        answer(&other, OTHER.0);
        let mut stream = lab.connect();
        exchange(&mut stream);
        let (done, answered) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|scope| {
            let stop = Stop(&done);
            let load = scope.spawn(|| ask(&lab.client, OTHER.0, &done, &answered));
            // Its own load goes on into nothing: segments are sent again and again.
            goes_on(&answered, 20);
            stream.write_all(&[7; 100_000]).unwrap();
            run(&lab.nodes[1], "link delete toweb");
            b.says("interface 'web' is not there yet: there is no device toweb");
            goes_on(&answered, 200);
            lab.plug_web();
            exchange(&mut lab.connect());
            goes_on(&answered, 20);
            assert!(!load.is_finished(), "the load has ended");
            drop(stop);
        });
    });
}
