//! What a balancer tells of its backends' next hops and of its devices before a client comes.

use netrig_lb::message::{NextHopState, Status};

use super::lab::{Lab, SERVICE, TIMEOUT};
use super::world::until;
use super::{BOTH, FIRST, with_lab};

/// Waits until a command's output has this in it.
#[track_caller]
fn told(lab: &Lab, arguments: &[&str], what: &str) {
    let says = || lab.netrig(0, arguments).0.contains(what).then_some(());
    assert!(until(TIMEOUT, says).is_some(), "{what} in {}", lab.netrig(0, arguments).0);
}

#[test]
fn a_missing_next_hop_is_told_before_a_client_comes() {
    with_lab(|lab| {
        let backends = format!("{BOTH}, \"10.2.0.9:8080\", \"192.0.2.9:8080\", \"10.2.0.1:8080\"");
        let _running = lab.run(&[&lab.file(&backends)]);
        let states = || -> Vec<NextHopState> {
            let status: Status = serde_json::from_str(&lab.netrig(0, &["status", "--json"]).0).unwrap();
            status.services[0].backends.iter().map(|backend| backend.next_hop.as_ref().unwrap().state).collect()
        };
        use NextHopState::{DeviceDown, Local, NoNeighbor, NoRoute, Ok};
        let wanted = [Ok, Ok, NoNeighbor, NoRoute, Local];
        assert!(until(TIMEOUT, || (states() == wanted).then_some(())).is_some(), "{:?}", states());

        let shown = lab.netrig(0, &["status"]).0;
        assert!(shown.contains("next hops missing for 3 of 5 backends: see NEXT HOP MISSING below\n"), "{shown}");
        let reasons = shown.lines().filter_map(|line| line.strip_prefix("    NEXT HOP MISSING for ")?.split_once(": "));
        let reasons: Vec<&str> = reasons.map(|(_, reason)| reason).collect();
        assert_eq!(reasons, ["no answer from 10.2.0.9 dev lb1", "no route", "an address of this machine"]);
        let listed = lab.netrig(0, &["-L", "-n", "--next-hops", "-t", SERVICE]).0;
        let mut rows = listed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        assert_eq!(rows.next().unwrap()[2..], ["State", "For", "NextHop"], "{listed}");
        let row = |address: &str| rows.clone().find(|row| row.get(1) == Some(&address)).unwrap();
        let ends = |row: &[&str]| (row[2].to_owned(), row[5..].join(" "));
        assert_eq!(ends(&row("10.2.0.2:8080")), ("ok".to_owned(), "10.2.0.2 dev lb1".to_owned()));
        assert_eq!(ends(&row("192.0.2.9:8080")), ("no_route".to_owned(), "-".to_owned()));

        let ok = |backend: &str, value: u8| {
            let labels = format!("balancer=\"lb\",protocol=\"tcp\",service=\"{SERVICE}\",backend=\"{backend}:8080\"");
            told(lab, &["metrics"], &format!("netrig_lb_backend_next_hop_ok{{{labels}}} {value}\n"));
        };
        ok("10.2.0.2", 1);
        ok("192.0.2.9", 0);
        lab.ip("link set lb1 down");
        let wanted = [DeviceDown, DeviceDown, DeviceDown, NoRoute, Local];
        assert!(until(TIMEOUT, || (states() == wanted).then_some(())).is_some(), "{:?}", states());
        told(lab, &["status"], ": lb1 down\n");
        ok("10.2.0.2", 0);
        lab.ip("link set lb1 up");
        ok("10.2.0.2", 1);
    });
}

#[test]
fn a_device_that_is_not_attached_to_is_told_with_the_reason() {
    with_lab(|lab| {
        let _running = lab.run(&[&lab.file(FIRST)]);
        let attached = |name: &str, value: u8| {
            let sample = format!("netrig_lb_device_attached{{balancer=\"lb\",device=\"{name}\"}} {value}\n");
            told(lab, &["metrics"], &sample);
        };
        attached("lb0", 1);
        lab.unplug();
        attached("lb0", 0);
        told(lab, &["status"], "device    lb0 absent, 0 queues: there is no such interface now\n");
        attached("lb1", 1);
        // A device of this name whose driver has no XDP.
        lab.ip("link add lb0 type bridge");
        told(lab, &["status"], "device    lb0 absent, 0 queues: attach to lb0: ");
        attached("lb0", 0);
        lab.ip("link delete lb0");
        told(lab, &["status"], "device    lb0 absent, 0 queues: there is no such interface now\n");
        lab.plug();
        attached("lb0", 1);
        let shown = lab.netrig(0, &["status"]).0;
        assert!(!shown.contains("next hops") && !shown.contains("NEXT HOP"), "{shown}");
    });
}
