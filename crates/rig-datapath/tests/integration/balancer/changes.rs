//! Changes of the configuration, expiry, a full table, a restart: connections that there are go on.

use std::collections::HashSet;
use std::fs;
use std::num::NonZeroU32;
use std::process::Command;
use std::sync::Barrier;
use std::thread;

use rig_datapath::Error;
use rig_datapath::balancer::{Balancer, Clock, Drop, ForwardingMethod, GenericXdp, Mode, Scheduler, Service, Sizes};
use rig_datapath::test_run::Verdict;
use rig_skip::{Lack, skip};
use rig_sys::cpu::CpuSet;
use rig_sys::netns::NetNs;
use rig_wire::tcp::flags::{ACK, FIN, RST, SYN};

use super::frames::{Frame, L4, see, tcp, udp};
use super::lab::{Lab, until};
use super::{backend, config, full_nat, limited, service, small, udp_service};

pub const V: &str = "10.0.0.200:80";

pub fn client(port: u16) -> String {
    format!("10.0.0.60:{port}")
}

/// Where a new connection's packet goes.
#[track_caller]
pub fn open(lab: &Lab, port: u16) -> String {
    see(&lab.sent(&tcp(SYN, &client(port), V).bytes())).destination.to_string()
}

/// Where an established connection's packet goes, there and back.
#[track_caller]
pub fn talk(lab: &Lab, port: u16) -> String {
    let seen = see(&lab.sent(&tcp(ACK, &client(port), V).payload(b"to").bytes()));
    let back =
        see(&lab.sent(&tcp(ACK, &seen.destination.to_string(), &seen.source.to_string()).payload(b"fro").bytes()));
    assert_eq!((back.source.to_string(), back.destination.to_string()), (V.to_owned(), client(port)));
    seen.destination.to_string()
}

pub fn plan(backends: &[rig_datapath::balancer::Backend]) -> Service {
    service(V, full_nat(&["10.0.0.100", "10.0.0.101"]), backends)
}

#[test]
fn no_change_breaks_a_connection() {
    let (ten, eleven, twelve) = ("10.0.0.10:8080", "10.0.0.11:8080", "10.0.0.12:8080");
    let Some(mut lab) = Lab::new(small(), &config(&[plan(&[backend(ten, 1), backend(eleven, 1)])])) else { return };
    let places: Vec<String> = (5000..5004).map(|port| open(&lab, port)).collect();
    assert_eq!(places, [ten, eleven, ten, eleven]);
    let all_go_on = |lab: &Lab| (5000..5004).zip(&places).for_each(|(port, place)| assert_eq!(&talk(lab, port), place));
    all_go_on(&lab);

    // One more; one drained; one removed; another scheduler; another forwarding method; the service removed.
    lab.balancer.apply(&config(&[plan(&[backend(ten, 1), backend(eleven, 1), backend(twelve, 1)])])).unwrap();
    all_go_on(&lab);
    lab.balancer.apply(&config(&[plan(&[backend(ten, 0), backend(eleven, 1)])])).unwrap();
    all_go_on(&lab);
    assert_eq!((open(&lab, 5010), open(&lab, 5011)), (eleven.to_owned(), eleven.to_owned()));
    lab.balancer.apply(&config(&[plan(&[backend(twelve, 1)])])).unwrap();
    all_go_on(&lab);
    assert_eq!(open(&lab, 5012), twelve);
    let leaving = &lab.balancer.services().unwrap()[0];
    assert_eq!(leaving.backends.iter().filter(|backend| backend.leaving).count(), 2);
    let hashed = Service { scheduler: Scheduler::Maglev, ..plan(&[backend(twelve, 1)]) };
    lab.balancer.apply(&config(&[hashed])).unwrap();
    all_go_on(&lab);
    lab.balancer.apply(&config(&[service(V, ForwardingMethod::Nat, &[backend("10.0.0.13:8080", 1)])])).unwrap();
    all_go_on(&lab);
    assert_eq!(see(&lab.sent(&tcp(SYN, &client(5020), V).bytes())).source.to_string(), client(5020));
    lab.balancer.apply(&config(&[])).unwrap();
    all_go_on(&lab);
    lab.passes(&tcp(SYN, &client(5030), V).bytes(), rig_datapath::balancer::Pass::NoService);

    // What was removed is gone for good when its last connection is.
    lab.later(100_000);
    lab.balancer.sweep_all().unwrap();
    assert_eq!(lab.connections(), [""; 0]);
    for _ in 0..2 {
        lab.balancer.apply(&config(&[])).unwrap();
    }
    assert_eq!(lab.balancer.services().unwrap(), []);
}

/// Removes everything; what has no connections is seen to have none.
fn forget(lab: &mut Lab) {
    for _ in 0..5 {
        lab.balancer.apply(&config(&[])).unwrap();
        lab.later(2);
        lab.balancer.sweep_all().unwrap();
    }
}

/// The same numbers are given again and again, and to other services' backends.
#[test]
fn numbers_are_used_again() {
    let sizes = Sizes { services: 3, backends: 3, local_addresses: 4, ..small() };
    let Some(mut lab) = Lab::new(sizes, &config(&[])) else { return };
    for round in 0..6_u16 {
        let address = format!("10.0.0.11:{}", 8000 + round);
        let locals = [100 + 2 * round, 101 + 2 * round].map(|host| format!("10.0.0.{host}"));
        let plan = service(V, full_nat(&[&locals[0], &locals[1]]), &[backend(&address, 1)]);
        lab.balancer.apply(&config(&[plan])).unwrap();
        let sent = see(&lab.sent(&tcp(SYN, &client(6000 + round), V).bytes()));
        assert_eq!(sent.destination.to_string(), address);
        assert!(locals.contains(&sent.source.ip().to_string()), "{}", sent.source);
        lab.later(100_000);
        forget(&mut lab);
    }
    // A connection keeps the place of its local address, which no other address gets until the last such connection ends.
    let of = |hosts: [u8; 4]| {
        let locals = hosts.map(|host| format!("10.0.0.{host}"));
        config(&[service(V, full_nat(&locals.each_ref().map(String::as_str)), &[backend("10.0.0.11:8000", 1)])])
    };
    lab.balancer.apply(&of([140, 141, 142, 143])).unwrap();
    open(&lab, 7000);
    talk(&lab, 7000);
    let full = |lab: &mut Lab| lab.balancer.apply(&of([150, 151, 152, 153]));
    for _ in 0..3 {
        let refused = full(&mut lab).unwrap_err();
        assert!(matches!(refused, Error::NoRoom { what: "local addresses", room: 4, .. }), "{refused}");
        lab.balancer.apply(&config(&[])).unwrap();
        lab.balancer.sweep_all().unwrap();
    }
    let refused = full(&mut lab).unwrap_err();
    assert!(matches!(refused, Error::NoRoom { what: "local addresses", room: 4, wanted: 5 }), "{refused}");
    talk(&lab, 7000);
    lab.later(100_000);
    forget(&mut lab);
    full(&mut lab).unwrap();
    forget(&mut lab);
    let four: Vec<_> = (1..=4).map(|port| backend(&format!("10.0.0.11:{port}"), 1)).collect();
    let refused = lab.balancer.apply(&config(&[plan(&four)])).unwrap_err();
    assert!(matches!(refused, Error::NoRoom { what: "backends", room: 3, .. }), "{refused}");
}

#[test]
fn silence_ends_connections_by_their_state() {
    let Some(mut lab) = Lab::new(small(), &config(&[plan(&[backend("10.0.0.10:8080", 1)])])) else { return };
    open(&lab, 5000);
    open(&lab, 5001);
    talk(&lab, 5001);
    open(&lab, 5002);
    lab.sent(&tcp(FIN | ACK, &client(5002), V).bytes());
    // 30 s, 60 s and 90 s are 224, 448 and 671 ticks.
    for (ticks, left) in [(223, 3), (1, 2), (223, 2), (1, 1), (222, 1), (1, 0)] {
        lab.later(ticks);
        lab.balancer.sweep_all().unwrap();
        assert_eq!(lab.connections().len(), left, "tick {}", lab.tick);
    }
    // An ended connection's packet begins another one, elsewhere.
    assert_eq!(lab.dropped(&tcp(SYN | ACK, &client(5001), V).bytes()), Drop::NoConnection);
    let swept = lab.balancer.sweep_all().unwrap();
    lab.later(2);
    assert_eq!((swept.freed, lab.balancer.sweep_all().unwrap().freed), (0, 1));
}

#[test]
fn a_full_table_refuses_new_ones_and_keeps_the_old() {
    let Some(mut lab) = Lab::new(small(), &config(&[plan(&[backend("10.0.0.10:8080", 1)])])) else { return };
    for port in 5000..5064 {
        open(&lab, port);
    }
    for port in 6000..6010 {
        assert_eq!(lab.dropped(&tcp(SYN, &client(port), V).bytes()), Drop::TableFull);
    }
    for port in 5000..5064 {
        talk(&lab, port);
    }
    let locals: HashSet<_> =
        lab.connections().iter().map(|line| line.split(" > ").nth(2).unwrap().to_owned()).collect();
    assert_eq!(locals.len(), 64);
    // Room again, after a rest.
    lab.later(672);
    assert_eq!(lab.balancer.sweep_all().unwrap().expired, 64);
    assert_eq!(lab.dropped(&tcp(SYN, &client(6000), V).bytes()), Drop::TableFull);
    lab.later(2);
    assert_eq!(lab.balancer.sweep_all().unwrap().freed, 64);
    open(&lab, 6000);
}

/// With one local address there are as many connections to a backend as there are ports, whichever CPU they come to; those
/// of another backend use the same ones again.
#[test]
fn local_ports_run_out_by_backend() {
    let sizes = Sizes { connections: 200_000, ..small() };
    let one = service(V, full_nat(&["10.0.0.100"]), &[backend("10.0.0.10:8080", 1)]);
    let other = service("10.0.0.201:80", full_nat(&["10.0.0.100"]), &[backend("10.0.0.11:8080", 1)]);
    let Some(lab) = Lab::new(sizes, &config(&[one, other])) else { return };
    open_many(&lab, 0..PORTS);
    assert_eq!(lab.dropped(&tcp(SYN, "10.0.0.60:5000", V).bytes()), Drop::NoLocalPort);
    lab.sent(&tcp(SYN, "10.0.0.60:5000", "10.0.0.201:80").bytes());
}

/// Local ports of one address.
const PORTS: u32 = 65_536 - 1024;

/// Sends the first packet of each of these clients, and sees to it that each has a connection then.
#[track_caller]
fn open_many(lab: &Lab, clients: std::ops::Range<u32>) {
    let begun = || lab.balancer.services().unwrap()[0].traffic.connections;
    let (before, count) = (begun(), clients.len() as u64);
    // These clients have no route back; packets to the backend do not need one.
    clients.for_each(|n| drop(lab.send(&tcp(SYN, &one_of_many(n), V).bytes())));
    assert_eq!(begun() - before, count, "{:?}", lab.drops());
}

fn one_of_many(n: u32) -> String {
    format!("10.7.{}.60:{}", n / 25_000, 5000 + n % 25_000)
}

fn one_address(connections: u32) -> Option<Lab> {
    let one = service(V, full_nat(&["10.0.0.100"]), &[backend("10.0.0.10:8080", 1)]);
    let mut lab = Lab::new(Sizes { connections, ..small() }, &config(std::slice::from_ref(&one)))?;
    // Ports from the first on.
    lab.balancer.clear().unwrap();
    lab.balancer.apply(&config(&[one])).unwrap();
    Some(lab)
}

/// A port that is due while thousands before it are those of connections that last.
#[test]
fn ports_of_connections_that_last_are_passed_over() {
    const LASTING: u32 = 5000;
    let Some(mut lab) = one_address(100_000) else { return };
    open_many(&lab, 0..PORTS);
    for n in 0..LASTING {
        lab.send(&tcp(ACK, &one_of_many(n), V).bytes());
    }
    // 30 s and 90 s are 224 and 671 ticks.
    lab.later(230);
    assert_eq!(lab.balancer.sweep_all().unwrap().expired, PORTS - LASTING);
    lab.later(2);
    lab.balancer.sweep_all().unwrap();
    // Round once, so that the lasting ones are in the way again and again.
    open_many(&lab, PORTS..PORTS + 2000);
    assert_eq!(lab.drops(), []);
}

/// One port in 64,512 is free: a search finds it, of which a CPU makes 16 in 134 ms.
#[test]
fn the_only_free_port_is_found() {
    let Some(mut lab) = one_address(100_000) else { return };
    open_many(&lab, 0..PORTS);
    // Those without an answer would end early where no port is left.
    let answered = |lab: &Lab, n: u32| drop(lab.send(&tcp(ACK, &one_of_many(n), V).bytes()));
    (0..PORTS).for_each(|n| answered(&lab, n));
    for n in [40_000, 3] {
        // Nothing rests after a reset: 10 s are 75 ticks.
        lab.send(&tcp(RST, &one_of_many(n), V).bytes());
        lab.later(75);
        assert_eq!(lab.balancer.sweep_all().unwrap().expired, 1);
        let syn = tcp(SYN, &one_of_many(100_000 + n), V).bytes();
        let refused = (0..16).take_while(|_| lab.send(&syn).verdict == Verdict::Drop).count();
        assert!(refused < 16, "not found: {:?}", lab.drops());
        answered(&lab, 100_000 + n);
        assert_eq!(lab.dropped(&tcp(SYN, "10.0.0.60:5000", V).bytes()), Drop::NoLocalPort);
    }
    // The next clients are refused without another search, at next to no cost.
    lab.send(&tcp(RST, &one_of_many(7), V).bytes());
    let syn = tcp(SYN, "10.0.0.60:5000", V).bytes();
    for _ in 0..16 {
        assert_eq!(lab.dropped(&syn), Drop::NoLocalPort);
    }
    lab.later(75);
    lab.balancer.sweep_all().unwrap();
    assert!((0..16).any(|_| lab.send(&syn).verdict == Verdict::Transmit));
}

/// The backend that closes first has the connection in TIME-WAIT for 60 s, and its port is not used again meanwhile.
#[test]
fn a_port_in_time_wait_rests() {
    let Some(mut lab) = one_address(100_000) else { return };
    let out = see(&lab.sent(&tcp(SYN, &client(5000), V).bytes()));
    lab.sent(&tcp(ACK, &client(5000), V).bytes());
    let closed = out.source.port();
    lab.sent(&tcp(FIN | ACK, &out.destination.to_string(), &out.source.to_string()).bytes());
    lab.sent(&tcp(FIN | ACK, &client(5000), V).bytes());
    // The rest of the ports, until it is the closed one's turn; 30 s are 224 ticks.
    open_many(&lab, 1..PORTS);
    lab.later(225);
    assert_eq!(lab.balancer.sweep_all().unwrap().expired, PORTS);
    lab.later(2);
    lab.balancer.sweep_all().unwrap();
    let next = |lab: &Lab, n: u16| see(&lab.sent(&tcp(SYN, &client(6000 + n), V).bytes())).source.port();
    let ports: Vec<u16> = (0..64).map(|n| next(&lab, n)).collect();
    assert_eq!(ports, (closed + 64..closed + 128).collect::<Vec<_>>(), "the ports behind the lease of {closed}");
    // A minute later it is as good as any.
    open_many(&lab, 128..PORTS);
    lab.later(230);
    lab.balancer.sweep_all().unwrap();
    assert_eq!(next(&lab, 100), closed);
}

/// The ports that one service has taken towards a backend are not tried again for another.
#[test]
fn services_with_the_same_backend_take_ports_in_turn() {
    let of = |address| service(address, full_nat(&["10.0.0.100"]), &[backend("10.0.0.10:8080", 1)]);
    let other = "10.0.0.201:80";
    let Some(lab) = Lab::new(small(), &config(&[of(V), of(other)])) else { return };
    let port = |frame: Vec<u8>| see(&frame).source.port();
    let mut last = 0;
    for n in 0..40 {
        last = port(lab.sent(&tcp(SYN, &client(5000 + n), V).bytes()));
    }
    let next = port(lab.sent(&tcp(SYN, &client(5000), other).bytes()));
    assert_eq!(next, last + 1);
}

#[test]
fn limits_count_connections_and_let_new_ones_in_when_others_end() {
    let backends = [limited("10.0.0.10:8080", 2), limited("10.0.0.11:8080", 1)];
    let Some(mut lab) = Lab::new(small(), &config(&[plan(&backends)])) else { return };
    let places: Vec<String> = (5000..5003).map(|port| open(&lab, port)).collect();
    assert_eq!(places, ["10.0.0.10:8080", "10.0.0.11:8080", "10.0.0.10:8080"]);
    assert_eq!(lab.dropped(&tcp(SYN, &client(5003), V).bytes()), Drop::BackendsFull);
    lab.later(225);
    lab.balancer.sweep_all().unwrap();
    open(&lab, 5004);
}

#[test]
fn another_process_goes_on_with_what_was_kept() {
    let (ten, eleven) = ("10.0.0.10:8080", "10.0.0.11:8080");
    let first = config(&[plan(&[backend(ten, 1), backend(eleven, 1)])]);
    let Some(mut lab) = Lab::new(small(), &first) else { return };
    let Some(directory) = BpfFs::mount() else { return };
    let places: Vec<String> = (5000..5004).map(|port| open(&lab, port)).collect();
    hand_over(&mut lab, &directory);
    assert_eq!(lab.balancer.sizes().connections, 64);
    for (port, place) in (5000..5004).zip(&places) {
        assert_eq!(&talk(&lab, port), place);
    }
    // The second balancer knows its backends and reuses none of their numbers for another one.
    assert_eq!(lab.balancer.services().unwrap()[0].backends.len(), 2);
    lab.balancer.apply(&config(&[plan(&[backend(eleven, 1), backend("10.0.0.12:8080", 1)])])).unwrap();
    for (port, place) in (5000..5004).zip(&places) {
        assert_eq!(&talk(&lab, port), place);
    }
    let new: HashSet<String> = (5010..5014).map(|port| open(&lab, port)).collect();
    assert_eq!(new, HashSet::from([eleven.to_owned(), "10.0.0.12:8080".to_owned()]));
}

/// There were fewer reasons for drops once, and fewer tables.
#[test]
fn tables_of_an_older_version_are_refused() {
    let Some(mut lab) = Lab::new(small(), &config(&[])) else { return };
    let Some(directory) = BpfFs::mount() else { return };
    let tables = directory.0.path().join("tables");
    fs::create_dir(&tables).unwrap();
    lab.balancer.keep(&tables).unwrap();
    let options = libbpf_rs::libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_rs::libbpf_sys::bpf_map_create_opts>() as u64,
        ..Default::default()
    };
    let reasons = lab.balancer.drops().unwrap().len() as u32;
    let kind = libbpf_rs::MapType::PercpuArray;
    let mut older = libbpf_rs::MapHandle::create(kind, Some("drops"), 4, 8, reasons, &options).unwrap();
    fs::remove_file(tables.join("drops")).unwrap();
    older.pin(tables.join("drops")).unwrap();
    let refused = || {
        let error = Balancer::resume(&tables).unwrap_err();
        assert!(matches!(error, rig_datapath::Error::PinnedOtherwise { .. }), "{error}");
    };
    refused();
    // A table that there was not then.
    fs::remove_dir_all(&tables).unwrap();
    fs::create_dir(&tables).unwrap();
    lab.balancer.keep(&tables).unwrap();
    assert!(Balancer::resume(&tables).is_ok());
    fs::remove_file(tables.join("missed")).unwrap();
    refused();
}

/// Keeps tables and attachment, and has another balancer go on with them as if it were of another process.
pub fn hand_over(lab: &mut Lab, directory: &BpfFs) {
    let tables = directory.0.path().join("tables");
    fs::create_dir(&tables).unwrap();
    lab.balancer.keep(&tables).unwrap();
    let link = directory.0.path().join("link");
    lab.attachment.keep(&link).unwrap();

    let mut second = Balancer::resume(&tables).unwrap();
    second.set_clock(Clock::Fixed(lab.tick)).unwrap();
    let attachment = second.take_over(&link, lab.interface).unwrap();
    lab.balancer = second.into();
    lab.attachment = attachment;
}

/// A bpf file system; what is pinned there goes with it.
pub struct BpfFs(pub tempfile::TempDir);

impl BpfFs {
    pub fn mount() -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount").args(["-t", "bpf", "bpf"]).arg(directory.path()).status();
        if !mounted.is_ok_and(|status| status.success()) {
            skip(Lack::BpfFs, "mount -t bpf fails");
            return None;
        }
        Some(Self(directory))
    }
}

impl std::ops::Drop for BpfFs {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("-l").arg(self.0.path()).status();
        assert!(unmounted.is_ok_and(|status| status.success()) || std::thread::panicking());
    }
}

#[test]
fn an_interface_that_is_not_there_is_named() {
    let Some(mut lab) = Lab::new(small(), &config(&[])) else { return };
    let error = lab.balancer.attach(999_999, GenericXdp::Refused).unwrap_err();
    assert!(error.to_string().starts_with("cannot attach to interface 999999"), "{error}");
}

/// Two CPUs get the packets of the same flows at the same time, while a third program ends earlier connections and frees
/// their places: each flow is one connection, with one local port, counted once.
#[test]
fn cpus_do_not_make_the_same_connection_twice() {
    const FLOWS: u16 = 2000;
    let sizes = Sizes { connections: 8192, ..small() };
    let Some(mut lab) =
        Lab::new(sizes, &config(&[plan(&[backend("10.0.0.10:8080", 1), backend("10.0.0.11:8080", 1)])]))
    else {
        return;
    };
    let cpus = CpuSet::online().unwrap().as_slice().to_vec();
    if cpus.len() < 2 {
        return skip(Lack::Cpus, "a machine with one CPU does nothing at the same time");
    }
    let Some(directory) = BpfFs::mount() else { return };
    let tables = directory.0.path().join("tables");
    fs::create_dir(&tables).unwrap();
    lab.balancer.keep(&tables).unwrap();
    let here = NetNs::of_current_thread().unwrap();
    // Connections that have expired, for the sweep to end while others begin; 30 s are 224 ticks.
    for n in 0..FLOWS {
        lab.send(&tcp(SYN, &one_of_many(n.into()), V).bytes());
    }
    lab.later(225);
    let start = Barrier::new(3);
    let interface = lab.interface;
    thread::scope(|scope| {
        for cpu in &cpus[..2] {
            let (here, start, tables) = (&here, &start, &tables);
            scope.spawn(move || {
                here.enter().unwrap();
                CpuSet::new([*cpu]).apply().unwrap();
                let one = Balancer::resume(tables).unwrap();
                start.wait();
                for n in 0..FLOWS {
                    let syn = tcp(SYN, &client(5000 + n), V).bytes();
                    let outcome = one.test_run(&syn, Some(interface)).unwrap();
                    assert_eq!(outcome.verdict, Verdict::Transmit, "flow {n}");
                }
            });
        }
        start.wait();
        // A part at a time, so that it goes on for as long as connections begin.
        let (mut ended, mut freed) = (0, 0);
        until("the end of the earlier ones", || {
            for _ in 0..16 {
                let swept = lab.balancer.sweep(lab.balancer.places() / 64).unwrap();
                (ended, freed) = (ended + swept.expired, freed + swept.freed);
            }
            // Their places are used again meanwhile.
            lab.later(1);
            // And those that one CPU gave up because the other had made the same connection.
            freed >= u32::from(FLOWS)
        });
        assert_eq!(ended, u32::from(FLOWS));
    });
    let connections = lab.connections();
    assert_eq!(connections.len(), usize::from(FLOWS));
    let part = |at: usize| connections.iter().map(|line| line.split(" > ").nth(at).unwrap()).collect::<HashSet<_>>();
    assert_eq!(part(0).len(), usize::from(FLOWS));
    // Local addresses and ports with their backends.
    let places = connections.iter().map(|line| line.splitn(3, " > ").nth(2).unwrap().rsplit_once(' ').unwrap().0);
    assert_eq!(places.collect::<HashSet<_>>().len(), usize::from(FLOWS));
    let services = lab.balancer.services().unwrap();
    let loads: u32 = services[0].backends.iter().map(|backend| backend.inactive + backend.active).sum();
    assert_eq!((loads, services[0].traffic.connections), (FLOWS.into(), 2 * u64::from(FLOWS)));
    (0..FLOWS).for_each(|n| drop(talk(&lab, 5000 + n)));
    lab.later(100_000);
    assert_eq!(lab.balancer.sweep_all().unwrap().expired, u32::from(FLOWS));
    let empty = lab.balancer.services().unwrap();
    assert!(empty[0].backends.iter().all(|backend| backend.inactive + backend.active == 0));
}

/// The loopback driver has no XDP. In generic mode the kernel finishes partial checksums itself, so they stay partial,
/// over the new addresses.
#[test]
fn generic_mode_is_said_and_keeps_partial_checksums() {
    const LOOPBACK: u32 = 1;
    let Some(mut lab) = Lab::new(small(), &config(&[plan(&[backend("10.0.0.10:8080", 1)])])) else { return };
    let refused = lab.balancer.attach(LOOPBACK, GenericXdp::Refused).unwrap_err();
    assert!(refused.to_string().contains("its driver has no XDP"), "{refused}");
    let attachment = lab.balancer.attach(LOOPBACK, GenericXdp::Allowed).unwrap();
    assert_eq!(attachment.mode(), Mode::Generic);

    let frame = tcp(SYN, &client(5000), V).payload(b"unfinished");
    let whole = see(&lab.sent(&frame.bytes()));
    let out = lab.sent(&frame.partial());
    let expected = Frame::new(L4::Tcp(SYN), whole.source, whole.destination).payload(b"unfinished").partial();
    assert_eq!(out[50..52], expected[50..52]);
}

/// Of many backends two are drawn, and the less loaded one gets the connection: with all connections lasting, loads stay as
/// even as weights say, and a backend at its limit is left out while another one has room.
#[test]
fn many_backends_are_loaded_evenly_by_two_choices() {
    const BACKENDS: u32 = 100;
    let many: Vec<_> =
        (0..BACKENDS).map(|n| backend(&format!("10.0.0.{}:{}", 10 + n % 4, 9000 + n), 1 + n % 2)).collect();
    let least = |backends: &[_]| Service { scheduler: Scheduler::WeightedLeastConnections, ..plan(backends) };
    let sizes = Sizes { connections: 8192, backends: 256, ..small() };
    let Some(mut lab) = Lab::new(sizes, &config(&[least(&many)])) else { return };
    // 20 for each of weight 1, 40 of weight 2.
    for n in 0..BACKENDS * 30 {
        lab.send(&tcp(SYN, &one_of_many(n), V).bytes());
    }
    let status = lab.balancer.services().unwrap().remove(0);
    for backend in &status.backends {
        let (has, due) = (backend.inactive, 20 * backend.weight);
        // One choice would leave the fullest some 11 and 16 above their share (a deviation of 4.5 and 6.3). Those with fewer
        // are not pushed as hard: they wait to be drawn.
        let weight = backend.weight;
        assert!(has <= due + 4 * weight && has + 10 * weight >= due, "{has} of {due}: {:?}", backend.address);
    }
    assert_eq!(status.traffic.connections, u64::from(BACKENDS * 30));

    // Where both backends that were drawn are at their limits the program looks at 64 more, and at the next try at the 64 behind:
    // so two tries find each backend that has room, until none has.
    let limits = many.iter().map(|backend| limited(&backend.address.to_string(), 1)).collect::<Vec<_>>();
    lab.balancer.apply(&config(&[])).unwrap();
    lab.later(100_000);
    lab.balancer.sweep_all().unwrap();
    lab.balancer.apply(&config(&[least(&limits)])).unwrap();
    let tries = |lab: &Lab, n: usize| {
        let syn = tcp(SYN, &client(5000 + n as u16), V).bytes();
        let tries = (0..2).take_while(|_| lab.send(&syn).verdict == Verdict::Drop).count();
        assert!(tries < 2, "{n}: {:?}", lab.drops());
        tries
    };
    (0..BACKENDS as usize).for_each(|n| assert!(tries(&lab, n) < 2));
    assert_eq!(lab.connections().len(), BACKENDS as usize);
    let mut refused = 0;
    for (n, one) in limits.iter().enumerate() {
        assert_eq!(lab.balancer.flush(None, Some(one.address)).unwrap(), 1);
        refused += tries(&lab, BACKENDS as usize + n);
    }
    assert!(refused > 0, "no walk has ended before it has found the only one");
    for _ in 0..4 {
        assert_eq!(lab.dropped(&tcp(SYN, &client(6000), V).bytes()), Drop::BackendsFull);
    }
}

/// A flood to one service leaves room for the others, and is counted as its own.
#[test]
fn a_service_at_its_limit_leaves_room_for_others() {
    let limited = Service { limit: NonZeroU32::new(10), ..plan(&[backend("10.0.0.10:8080", 1)]) };
    let other = service("10.0.0.201:80", full_nat(&["10.0.0.100"]), &[backend("10.0.0.11:8080", 1)]);
    let Some(mut lab) = Lab::new(small(), &config(&[limited, other])) else { return };
    for n in 0..10 {
        open(&lab, 5000 + n);
        // Answered, so that it does not end early.
        talk(&lab, 5000 + n);
    }
    for n in 0..100 {
        assert_eq!(lab.dropped(&tcp(SYN, &client(6000 + n), V).bytes()), Drop::ServiceFull);
    }
    lab.sent(&tcp(SYN, &client(5000), "10.0.0.201:80").bytes());
    let refused = |lab: &Lab| lab.balancer.services().unwrap().into_iter().map(|of| of.refused).collect::<Vec<_>>();
    assert_eq!(refused(&lab), [vec![(Drop::ServiceFull, 100)], vec![]]);
    // Its connections count until they end, whichever way it comes to that.
    lab.sent(&tcp(RST, &client(5003), V).bytes());
    lab.later(75);
    assert_eq!(lab.balancer.sweep_all().unwrap().expired, 1);
    open(&lab, 6000);
    assert_eq!(lab.dropped(&tcp(SYN, &client(6001), V).bytes()), Drop::ServiceFull);
    // Clients that are refused for another reason do not count either.
    let none = Service { limit: NonZeroU32::new(11), ..plan(&[super::limited("10.0.0.10:8080", 10)]) };
    lab.balancer.apply(&config(&[none])).unwrap();
    for n in 0..5 {
        assert_eq!(lab.dropped(&tcp(SYN, &client(7000 + n), V).bytes()), Drop::BackendsFull);
    }
    assert_eq!(refused(&lab)[0], [(Drop::BackendsFull, 5), (Drop::ServiceFull, 101)]);
}

/// While the table fills, unanswered connections go after 3 s; before, and answered ones, after their timeouts.
#[test]
fn unanswered_connections_go_first_when_the_table_fills() {
    let Some(mut lab) = Lab::new(small(), &config(&[plan(&[backend("10.0.0.10:8080", 1)])])) else { return };
    (0..8).for_each(|n| drop(open(&lab, 5000 + n)));
    (0..8).for_each(|n| drop(talk(&lab, 5000 + n)));
    (0..40).for_each(|n| drop(open(&lab, 6000 + n)));
    lab.later(23);
    assert_eq!(lab.balancer.sweep_all().unwrap().expired, 0, "48 of 64");
    open(&lab, 7000);
    assert_eq!(lab.balancer.sweep_all().unwrap().expired, 40);
    (0..8).for_each(|n| drop(talk(&lab, 5000 + n)));
    assert_eq!(lab.connections().len(), 9);
}

/// With direct return the balancer does not see whether a backend answers: clients' datagrams are not taken for a flood's.
#[test]
fn datagrams_whose_answers_pass_elsewhere_do_not_count_as_unanswered() {
    let full = full_nat(&["10.0.0.100"]);
    let of = |address, forward| udp_service(address, forward, &[backend("10.0.0.10:80", 1)]);
    let plan = config(&[of("10.0.0.200:80", ForwardingMethod::Route), of("10.0.0.201:80", full)]);
    let Some(mut lab) = Lab::new(small(), &plan) else { return };
    for service in ["10.0.0.200:80", "10.0.0.201:80"] {
        (0..25).for_each(|n| drop(lab.sent(&udp(&client(5000 + n), service).bytes())));
    }
    lab.later(24);
    assert_eq!(lab.balancer.sweep_all().unwrap().expired, 25, "50 of 64");
    assert!(lab.connections().iter().all(|line| line.contains("> 10.0.0.200:80 >")), "{:?}", lab.connections());
    // 30 s with its pauses, and as long as answered ones.
    lab.later(260);
    assert_eq!((lab.balancer.sweep_all().unwrap().expired, lab.connections().len()), (0, 25));
}
