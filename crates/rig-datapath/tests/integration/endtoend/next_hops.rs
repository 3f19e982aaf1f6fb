//! Next hops of backends: known before packets come, however many there are; followed where they move; and each flow's own.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rig_datapath::balancer::{Balancer, Config, Drop, Sizes};
use rig_skip::{Lack, skip};
use rig_sys::netlink::Netlink;
use rig_sys::netns::NetNs;
use rig_sys::process;

use super::lab::{HOST, Lab, Plan, Wires, load, server, until};
use super::talk::{Echo, again};
use super::{V4, backend, config, full_nat, sizes, tcp};

const SERVICE: u16 = 80;
const PORT: u16 = 7000;
/// More than the kernel keeps (gc_thresh1, 128).
const MANY: u8 = 200;
const NO_MANAGED: &str = "the kernel manages no neighbours for others (Linux 5.16)";

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

fn connects(client: &NetNs, time_limit: Duration) -> bool {
    client.run(|| TcpStream::connect_timeout(&service(), time_limit).is_ok()).unwrap()
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
    if !lab.wires.manages_neighbors() {
        return skip(Lack::Kernel, NO_MANAGED);
    }
    lab.balancer.apply(&all).unwrap();
    lab.tend();
    assert_eq!(managed(&lab), usize::from(MANY));
    // What is learned from outside is exempt from garbage collection (net/core/neighbour.c, neigh_periodic_work).
    until("answers", || {
        let shown = ip(&lab.wires.here, "neigh show dev server0");
        let kept = |line: &&str| line.contains("managed") && line.contains("extern_learn") && line.contains("lladdr");
        shown.lines().filter(kept).count() == usize::from(MANY)
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

#[test]
fn next_hops_that_several_balancers_have_go_with_the_last() {
    let [ours, both, theirs] = [0, 1, 2].map(|n| further(0, n));
    let to = |hops: &[IpAddr]| plan(hops.iter().map(|at| SocketAddr::new(*at, PORT)));
    let Some(mut lab) = Lab::new(Plan { servers: 1, ..Plan::default() }, sizes(4096), &to(&[ours, both])) else {
        return;
    };
    if !lab.wires.manages_neighbors() {
        return skip(Lack::Kernel, NO_MANAGED);
    }
    lab.tend();
    // One that leaves with its backends still there, and one whose backends leave while it stays.
    for leaves in [true, false] {
        let Some(mut other) = load(sizes(4096)) else { return };
        other.apply(&to(&[both, theirs])).unwrap();
        other.ask_for_neighbors().unwrap();
        assert_eq!(managed(&lab), 3);
        if leaves {
            drop(other);
        } else {
            until("the end of its backends", || {
                other.apply(&to(&[])).unwrap();
                other.sweep_all().unwrap();
                other.ask_for_neighbors().unwrap();
                managed(&lab) < 3
            });
        }
        assert_eq!(managed(&lab), 2, "{leaves}");
    }
    // The one that was there first leaves first.
    let Some(mut last) = load(sizes(4096)) else { return };
    last.apply(&to(&[both])).unwrap();
    last.ask_for_neighbors().unwrap();
    let Lab { balancer, attachments, wires } = lab;
    drop((attachments, balancer));
    let left = || ip(&wires.here, "neigh show").lines().filter(|line| line.contains("managed")).count();
    assert_eq!(left(), 1);
    drop(last);
    assert_eq!(left(), 0);
}

/// A backend is replaced by another machine, which does not announce itself.
#[track_caller]
fn another_machine_in_its_place(managed_by_kernel: bool) {
    let backends = plan([server(0, false, PORT)].into_iter());
    let Some(mut lab) = Lab::new(Plan { servers: 1, ..Plan::default() }, sizes(4096), &backends) else { return };
    if managed_by_kernel && !lab.wires.manages_neighbors() {
        return skip(Lack::Kernel, NO_MANAGED);
    }
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
    // How long a neighbor is believed is decided when it answers.
    ip(&lab.wires.here, "neigh flush dev server0");
    lab.tend_until("a neighbor", |lab| managed(lab) == usize::from(managed_by_kernel));
    let client = again(&lab.wires.client);
    lab.tend_until("a conversation", |_| connects(&client, Duration::from_millis(200)));
    // With a word of the old machine still to be sent, the new one would ask for its neighbor, and be known by its question.
    // 0A is LISTEN, 06 is TIME_WAIT (include/net/tcp_states.h): neither sends anything by itself.
    let tcp = || std::fs::read_to_string("/proc/thread-self/net/tcp").unwrap();
    let silent = |line: &str| line.split_whitespace().nth(3).is_some_and(|state| ["0A", "06"].contains(&state));
    until("the end of all connections", || lab.wires.servers[0].run(tcp).unwrap().lines().skip(1).all(silent));
    ip(&lab.wires.servers[0], &format!("link set {HOST} address 02:00:00:00:00:77"));
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

/// What went wrong with so many conversations, one after the other: a line there and back each.
fn troubles(client: &NetNs, count: usize) -> Vec<String> {
    let talk = || -> std::io::Result<()> {
        let mut stream = TcpStream::connect_timeout(&service(), Duration::from_secs(5))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(b"there and back")?;
        stream.read_exact(&mut [0; 14])
    };
    let talks = || (0..count).filter_map(|n| talk().err().map(|error| format!("{n}: {error}"))).collect();
    client.run(talks).unwrap()
}

/// Two servers have the backend's address; which of them a flow goes to is up to rules and routes, from one packet to the
/// next of any other flow, and no flow changes over because of it.
#[test]
fn flows_go_where_routes_say() {
    let at: SocketAddr = ([10, 99, 0, 1], PORT).into();
    let Some(mut lab) = Lab::new(Plan::default(), sizes(16_384), &config([])) else { return };
    for server in &lab.wires.servers {
        Netlink::open(server).unwrap().add_address("lo", at.ip(), 32).unwrap();
    }
    let echoes: Vec<Echo> = lab.wires.servers.iter().map(|server| Echo::start(server, PORT)).collect();
    let accepted = || echoes.iter().map(|echo| echo.accepted.load(Ordering::Relaxed)).collect::<Vec<_>>();
    let client = again(&lab.wires.client);
    let flows = |lab: &mut Lab, count| {
        let before = accepted();
        let client = again(&client);
        let troubles = lab.during(move || troubles(&client, count));
        assert_eq!((troubles, lab.losses()), (vec![], vec![]), "before: {before:?}, now: {:?}", accepted());
        accepted().iter().zip(&before).map(|(now, before)| now - before).collect::<Vec<_>>()
    };
    // Local addresses are 10.8.0.1 and 10.8.0.2, in turn for 64 connections each.
    ip(&lab.wires.here, "route add 10.99.0.1/32 via 10.20.0.2");
    ip(&lab.wires.here, "route add 10.99.0.1/32 via 10.21.0.2 table 100");
    lab.balancer.apply(&plan([at].into_iter())).unwrap();
    lab.tend();
    assert_eq!(flows(&mut lab, 100), [100, 0]);
    ip(&lab.wires.here, "rule add from 10.8.0.2 lookup 100");
    // Each CPU takes its turns, so that one may have two of the same address before it has one of the other.
    let ruled = flows(&mut lab, 300);
    assert!(ruled.iter().all(|count| *count > 60), "{ruled:?}");

    // Without the rule, by ports: both next hops of one route.
    lab.wires.here.sysctl("net.ipv4.fib_multipath_hash_policy", "1").unwrap();
    ip(&lab.wires.here, "route replace 10.99.0.1/32 nexthop via 10.20.0.2 nexthop via 10.21.0.2");
    ip(&lab.wires.here, "rule del from 10.8.0.2 lookup 100");
    // Long enough for ways to be looked up again and again.
    for _ in 0..4 {
        let shared = flows(&mut lab, 500);
        assert!(shared.iter().all(|count| *count > 100), "{shared:?}");
    }
    lab.tend_until("both next hops to be kept", |lab| managed(lab) == 2);
    assert_eq!(lab.dropped(Drop::NoNeighbor), 0);
}

/// Whether a conversation goes on: what was said before may be answered now.
fn goes_on(mut stream: &TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    stream.write_all(b".").is_ok() && stream.read(&mut [0; 1024]).is_ok_and(|length| length > 0)
}

pub fn converse(client: &NetNs) -> TcpStream {
    client.run(|| TcpStream::connect_timeout(&service(), Duration::from_secs(5))).unwrap().unwrap()
}

/// Routes and neighbours on the ways to the client and to the first server come to lead nowhere, one after the other, and then
/// back: the conversation stops, and goes on.
#[track_caller]
pub fn follows(wires: &Wires, stream: &TcpStream, mut meanwhile: impl FnMut(&str)) {
    let mac = |ns: &NetNs| ns.sysfs().unwrap().read(HOST, "address").unwrap().trim().to_owned();
    let neighbor = |address: &str, lladdr: &str, dev: &str| {
        format!("neigh replace {address} lladdr {lladdr} nud permanent dev {dev}")
    };
    let ends = [("10.10.0.2", mac(&wires.client), "clients"), ("10.20.0.2", mac(&wires.servers[0]), "server0")];
    let changes = ends.iter().flat_map(|(address, mac, dev)| {
        let route = |what: &str| format!("route {what} blackhole {address}/32");
        [(route("add"), route("del")), (neighbor(address, "02:00:00:00:00:99", dev), neighbor(address, mac, dev))]
    });
    for (end, mend) in changes {
        assert!(goes_on(stream), "before {end}");
        ip(&wires.here, &end);
        until(&end, || {
            meanwhile(&end);
            !goes_on(stream)
        });
        ip(&wires.here, &mend);
        until(&mend, || {
            meanwhile(&mend);
            goes_on(stream)
        });
    }
}

#[test]
fn a_changed_route_or_neighbor_is_told_to_programs() {
    let backends = plan([server(0, false, PORT)].into_iter());
    let Some(mut lab) = Lab::new(Plan { servers: 1, ..Plan::default() }, sizes(4096), &backends) else { return };
    let _echo = Echo::start(&lab.wires.servers[0], PORT);
    assert_eq!(lab.balancer.generation().unwrap(), None);
    lab.tend();
    let told = |balancer: &Balancer, before| balancer.generation().unwrap().is_some_and(|now| Some(now) != before);
    until("a watcher", || told(&lab.balancer, None));
    let client = again(&lab.wires.client);
    let stream = converse(&client);
    let Lab { balancer, wires, attachments: _attachments } = lab;
    let mut last = String::new();
    let mut before = balancer.generation().unwrap();
    follows(&wires, &stream, |what| {
        if what != last {
            // Sooner than the generation advances by itself, each 30 s.
            let deadline = Instant::now() + Duration::from_secs(15);
            while !told(&balancer, before) {
                assert!(Instant::now() < deadline, "{what}: not told");
                std::thread::sleep(Duration::from_millis(5));
            }
            before = balancer.generation().unwrap();
        }
        last = what.to_owned();
        // It cannot ask for a backend to which there is no route.
        let _ = balancer.ask_for_neighbors();
    });
}
