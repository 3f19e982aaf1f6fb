use std::process::Command;
use std::time::Instant;

use rig_skip::{Lack, skip};

use super::*;
use crate::netns::{self, NetNs};
use crate::process;

const TIMEOUT: Duration = Duration::from_secs(20);

/// Until one of them is `wanted`; what came.
fn until(events: &Events, wanted: impl Fn(&Event) -> bool) -> Vec<Event> {
    let deadline = Instant::now() + TIMEOUT;
    let mut all = Vec::new();
    while !all.iter().any(&wanted) {
        assert!(Instant::now() < deadline, "it does not come: {all:?}");
        all.extend(events.wait(Duration::from_millis(100)).unwrap());
    }
    all
}

#[test]
fn changes_of_routes_neighbors_rules_and_links_are_told() {
    if !netns::may_create_namespaces() {
        return skip(Lack::Root, "network namespaces need it");
    }
    let ns = NetNs::create().unwrap();
    let ip = |arguments: &str| {
        let mut command = Command::new("ip");
        let done = process::in_namespace(command.args(arguments.split(' ')), &ns).status().unwrap();
        assert!(done.success(), "ip {arguments}");
    };
    let events = ns.run(Events::here).unwrap().unwrap();
    assert_eq!(events.wait(Duration::ZERO).unwrap(), []);
    ip("link add one type veth peer name two");
    until(&events, |event| *event == Event::Links);
    ip("link set two up");
    ip("link set one up");
    events.wait(Duration::ZERO).unwrap();
    ip("address add 10.0.0.1/24 dev one");
    let prefix = "10.0.0.0".parse().unwrap();
    let told = until(&events, |event| *event == Event::Route { prefix, length: 24 });
    assert!(told.contains(&Event::Interface), "{told:?}");
    ip("route add default via 10.0.0.2");
    let prefix = "0.0.0.0".parse().unwrap();
    until(&events, |event| *event == Event::Route { prefix, length: 0 });
    ip("-6 route add fd00:1::/32 dev one");
    let prefix = "fd00:1::".parse().unwrap();
    until(&events, |event| *event == Event::Route { prefix, length: 32 });
    ip("rule add from 10.8.0.2 lookup 100");
    until(&events, |event| *event == Event::Routing);
    ip("nexthop add id 7 via 10.0.0.2 dev one");
    until(&events, |event| *event == Event::Routing);
    let neighbor = |link_layer: Option<Vec<u8>>| {
        move |event: &Event| match event {
            Event::Neighbor { hop, link_layer: is } => {
                hop.address == IpAddr::from([10, 0, 0, 2]) && hop.interface != 0 && *is == link_layer
            }
            _ => false,
        }
    };
    ip("neigh add 10.0.0.2 lladdr 02:00:00:00:00:77 dev one");
    until(&events, neighbor(Some(vec![2, 0, 0, 0, 0, 0x77])));
    ip("neigh del 10.0.0.2 dev one");
    until(&events, neighbor(None));
}

#[test]
fn whoever_waits_is_woken() {
    let events = Events::here().unwrap();
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| events.wait(TIMEOUT).unwrap());
        events.wake();
        waits.join().unwrap();
    });
    assert!(begun.elapsed() < TIMEOUT);
}

#[test]
fn what_was_lost_is_told() {
    if !netns::may_create_namespaces() {
        return skip(Lack::Root, "network namespaces need it");
    }
    let ns = NetNs::create().unwrap();
    let events = ns.run(Events::here).unwrap().unwrap();
    events.socket.set_rx_buf_sz(1_u32).unwrap();
    let commands: String = (0..200).map(|n| format!("address add 10.0.0.{n}/32 dev lo\n")).collect();
    let mut command = Command::new("ip");
    let child = process::in_namespace(command.args(["-batch", "-"]), &ns);
    let mut child = child.stdin(std::process::Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), commands.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    until(&events, |event| *event == Event::Lost);
}
