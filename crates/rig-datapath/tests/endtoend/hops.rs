//! Next hops of backends: known before packets come, however many there are; followed where they move; and each flow's own.

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rig_datapath::balancer::{Config, Drop, Sizes};
use rig_sys::netlink::Netlink;
use rig_sys::netns::NetNs;
use rig_sys::process;

use crate::lab::{HOST, Lab, Plan, server, until};
use crate::talk::{Echo, again};
use crate::{V4, backend, config, full_nat, sizes, tcp};

const SERVICE: u16 = 80;
const PORT: u16 = 7000;
/// More than the kernel keeps (gc_thresh1, 128).
const MANY: u8 = 200;

fn ip(ns: &NetNs, arguments: &str) -> String {
    let mut command = Command::new("ip");
    let output = process::in_namespace(command.args(arguments.split(' ')), ns).output().unwrap();
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn service() -> SocketAddr {
    SocketAddr::new(V4.parse().unwrap(), SERVICE)
}

/// The nth further address of the server of this number.
fn further(server: u8, n: u8) -> IpAddr {
    [10, 20 + server, 0, 20 + n].into()
}

fn plan(backends: impl Iterator<Item = SocketAddr>) -> Config {
    config([tcp(V4, SERVICE, full_nat(V4), backends.map(|at| backend(at, 1)).collect())])
}

fn connects(client: &NetNs, patience: Duration) -> bool {
    client.run(|| TcpStream::connect_timeout(&service(), patience).is_ok()).unwrap()
}

fn managed(lab: &Lab) -> usize {
    ip(&lab.wires.here, "neigh show").lines().filter(|line| line.contains("managed")).count()
}

#[test]
fn next_hops_are_known_of_more_backends_than_neighbors_are_kept() {
    let all = plan((0..MANY).map(|n| SocketAddr::new(further(0, n), PORT)));
    let sizes = Sizes { backends: 512, ..sizes(4096) };
    let Some(mut lab) = Lab::new(Plan { servers: 1, ..Plan::default() }, sizes, &config([])) else { return };
    let mut server = Netlink::open(&lab.wires.servers[0]).unwrap();
    (0..MANY).for_each(|n| server.add_address(HOST, further(0, n), 24).unwrap());
    let _echo = Echo::start(&lab.wires.servers[0], PORT);
    lab.balancer.apply(&all).unwrap();
    lab.tend();
    assert_eq!(managed(&lab), MANY.into());
    // What is learned from outside is exempt from garbage collection (net/core/neighbour.c, neigh_periodic_work).
    until("answers", || {
        let shown = ip(&lab.wires.here, "neigh show dev server0");
        let kept = |line: &&str| line.contains("managed") && line.contains("extern_learn") && line.contains("lladdr");
        shown.lines().filter(kept).count() == MANY.into()
    });
    let client = again(&lab.wires.client);
    let reached = lab.during(move || (0..MANY).filter(|_| connects(&client, Duration::from_secs(5))).count());
    assert_eq!((reached, lab.drops()), (MANY.into(), vec![]));

    // They go with their backends, and the last with the balancer.
    lab.balancer.apply(&plan([SocketAddr::new(further(0, 0), PORT)].into_iter())).unwrap();
    lab.tend_until("the end of connections", |lab| {
        lab.balancer.apply(&plan([SocketAddr::new(further(0, 0), PORT)].into_iter())).unwrap();
        managed(lab) == 1
    });
    let Lab { balancer, attachments, wires } = lab;
    drop((attachments, balancer));
    assert!(!ip(&wires.here, "neigh show").contains("managed"));
}

/// A backend is replaced by another machine, which does not announce itself.
#[track_caller]
fn another_machine_in_its_place(managed_by_kernel: bool) {
    let backends = plan([server(0, false, PORT)].into_iter());
    let Some(mut lab) = Lab::new(Plan { servers: 1, ..Plan::default() }, sizes(4096), &backends) else { return };
    if !managed_by_kernel {
        lab.balancer.without_managed_neighbors();
    }
    let _echo = Echo::start(&lab.wires.servers[0], PORT);
    lab.wires
        .here
        .sysctls(&[
            ("net.ipv4.neigh.server0.base_reachable_time_ms", "500"),
            ("net.ipv4.neigh.server0.delay_first_probe_time", "1"),
            ("net.ipv4.neigh.server0.retrans_time_ms", "100"),
        ])
        .unwrap();
    lab.tend();
    assert_eq!(managed(&lab), usize::from(managed_by_kernel));
    let client = again(&lab.wires.client);
    assert!(connects(&client, Duration::from_secs(5)));
    ip(&lab.wires.servers[0], &format!("link set {HOST} address 02:00:00:00:00:77"));
    assert!(!connects(&client, Duration::from_millis(200)), "it has announced itself");
    lab.tend_until("the new machine", |_| connects(&client, Duration::from_millis(200)));
    assert!(ip(&lab.wires.here, "neigh show dev server0").contains("02:00:00:00:00:77"));
}

#[test]
fn a_backend_that_moves_silently_is_found() {
    another_machine_in_its_place(true);
}

#[test]
fn a_backend_that_moves_silently_is_found_where_the_kernel_manages_no_neighbors() {
    another_machine_in_its_place(false);
}

/// Two servers have the backend's address; which of them a flow goes to is up to rules and routes.
#[test]
fn flows_go_where_routes_say() {
    let at: SocketAddr = ([10, 99, 0, 1], PORT).into();
    let Some(mut lab) = Lab::new(Plan::default(), sizes(4096), &config([])) else { return };
    for server in &lab.wires.servers {
        Netlink::open(server).unwrap().add_address("lo", at.ip(), 32).unwrap();
    }
    let echoes: Vec<Echo> = lab.wires.servers.iter().map(|server| Echo::start(server, PORT)).collect();
    let accepted = || echoes.iter().map(|echo| echo.accepted.load(Ordering::Relaxed)).collect::<Vec<_>>();
    let client = again(&lab.wires.client);
    // Local addresses are 10.8.0.1 and 10.8.0.2, in turn for 64 connections each.
    ip(&lab.wires.here, "route add 10.99.0.1/32 via 10.20.0.2");
    ip(&lab.wires.here, "rule add from 10.8.0.2 lookup 100");
    ip(&lab.wires.here, "route add 10.99.0.1/32 via 10.21.0.2 table 100");
    lab.balancer.apply(&plan([at].into_iter())).unwrap();
    lab.tend();
    let flows = |lab: &mut Lab| {
        let before = accepted();
        let client = again(&client);
        let made = lab.during(move || (0..40).filter(|_| connects(&client, Duration::from_secs(5))).count());
        assert_eq!((made, lab.drops()), (40, vec![]), "before: {before:?}, now: {:?}", accepted());
        // Backlogs are taken from one after the other.
        until("all of them", || accepted().iter().sum::<u64>() == before.iter().sum::<u64>() + 40);
        accepted().iter().zip(&before).map(|(now, before)| now - before).collect::<Vec<_>>()
    };
    // Each CPU takes its turns, so that one may have two of the same address before it has one of the other.
    let rounds =
        (0..5).map(|_| flows(&mut lab)).reduce(|sum, more| sum.iter().zip(&more).map(|(a, b)| a + b).collect());
    assert!(rounds.unwrap().iter().all(|count| *count > 12));

    // Without the rule, by ports: both next hops of one route.
    ip(&lab.wires.here, "rule del from 10.8.0.2 lookup 100");
    lab.wires.here.sysctl("net.ipv4.fib_multipath_hash_policy", "1").unwrap();
    ip(&lab.wires.here, "route replace 10.99.0.1/32 nexthop via 10.20.0.2 nexthop via 10.21.0.2");
    // Seen anew because the backend is.
    lab.balancer.apply(&plan([SocketAddr::new(at.ip(), PORT), ([10, 20, 0, 2], PORT).into()].into_iter())).unwrap();
    lab.tend();
    lab.balancer.apply(&plan([at].into_iter())).unwrap();
    lab.tend_until("another look at routes", |lab| {
        lab.tend();
        flows(lab).iter().all(|count| *count > 4)
    });
    assert_eq!(managed(&lab), 2);
    assert_eq!(lab.dropped(Drop::NoNeighbor), 0);
}
