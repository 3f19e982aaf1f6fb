//! Changes of the configuration, expiry, a full table, a restart: connections that there are go on.

use std::collections::HashSet;
use std::fs;
use std::process::Command;
use std::sync::Barrier;
use std::thread;

use rig_datapath::Error;
use rig_datapath::balancer::{Balancer, Clock, Drop, Forward, Generic, Mode, Scheduler, Service, Sizes};
use rig_datapath::test_run::Verdict;
use rig_sys::cpu::CpuSet;
use rig_sys::netlink::{Netlink, VethPair};
use rig_sys::netns::NetNs;
use rig_sys::process;
use rig_wire::tcp::flags::{ACK, FIN, SYN};

use crate::frames::{Frame, L4, see, tcp};
use crate::lab::{Lab, skip, until};
use crate::{backend, config, full_nat, limited, service, small};

const V: &str = "10.0.0.200:80";

fn client(port: u16) -> String {
    format!("10.0.0.60:{port}")
}

/// Where a new connection's packet goes.
#[track_caller]
fn open(lab: &Lab, port: u16) -> String {
    see(&lab.sent(&tcp(SYN, &client(port), V).bytes())).destination.to_string()
}

/// Where an established connection's packet goes, there and back.
#[track_caller]
fn talk(lab: &Lab, port: u16) -> String {
    let seen = see(&lab.sent(&tcp(ACK, &client(port), V).payload(b"to").bytes()));
    let back =
        see(&lab.sent(&tcp(ACK, &seen.destination.to_string(), &seen.source.to_string()).payload(b"fro").bytes()));
    assert_eq!((back.source.to_string(), back.destination.to_string()), (V.to_owned(), client(port)));
    seen.destination.to_string()
}

fn plan(backends: &[rig_datapath::balancer::Backend]) -> Service {
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
    lab.balancer.apply(&config(&[service(V, Forward::Nat, &[backend("10.0.0.13:8080", 1)])])).unwrap();
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

/// The same numbers are given again and again, and to other services' backends.
#[test]
fn numbers_are_used_again() {
    let sizes = Sizes { services: 3, backends: 3, local_addresses: 4, ..small() };
    let Some(mut lab) = Lab::new(sizes, &config(&[])) else { return };
    for round in 0..6_u16 {
        let address = format!("10.0.0.11:{}", 8000 + round);
        lab.balancer.apply(&config(&[plan(&[backend(&address, 1)])])).unwrap();
        assert_eq!(open(&lab, 6000 + round), address);
        lab.later(100_000);
        lab.balancer.sweep_all().unwrap();
        lab.balancer.apply(&config(&[])).unwrap();
        lab.balancer.apply(&config(&[])).unwrap();
    }
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
    // 7 s, 30 s and 90 s are 53, 224 and 671 ticks.
    for (ticks, left) in [(52, 3), (1, 2), (170, 2), (1, 1), (446, 1), (1, 0)] {
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

/// With one local address there are as many connections to a backend as this CPU has ports; those of another backend
/// use the same ones again.
#[test]
fn local_ports_run_out_by_backend() {
    let sizes = Sizes { connections: 200_000, ..small() };
    let one = service(V, full_nat(&["10.0.0.100"]), &[backend("10.0.0.10:8080", 1)]);
    let other = service("10.0.0.201:80", full_nat(&["10.0.0.100"]), &[backend("10.0.0.11:8080", 1)]);
    let Some(lab) = Lab::new(sizes, &config(&[one, other])) else { return };
    let ports = 64_511 / lab.cpus();
    let send = |n: u32, service: &str| {
        let client = format!("10.0.{}.{}:{}", 1 + n / 25_000, 60, 5000 + n % 25_000);
        let gateway = tcp(SYN, &client, service).bytes();
        lab.send(&gateway)
    };
    for n in 0..ports {
        send(n, V);
    }
    // No route back to these clients, which is nobody's matter on the way in.
    assert_eq!(lab.balancer.services().unwrap()[0].traffic.connections, u64::from(ports));
    assert_eq!(lab.dropped(&tcp(SYN, "10.0.0.60:5000", V).bytes()), Drop::NoLocalPort);
    lab.sent(&tcp(SYN, "10.0.0.60:5000", "10.0.0.201:80").bytes());
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
    let tables = directory.0.path().join("tables");
    fs::create_dir(&tables).unwrap();
    lab.balancer.keep(&tables).unwrap();
    let link = directory.0.path().join("link");
    lab.attachment.keep(&link).unwrap();

    let mut second = Balancer::resume(&tables).unwrap();
    second.set_clock(Clock::Fixed(lab.tick)).unwrap();
    assert_eq!(second.sizes().connections, 64);
    let attachment = second.take_over(&link, lab.interface).unwrap();
    lab.balancer = second;
    lab.attachment = attachment;
    for (port, place) in (5000..5004).zip(&places) {
        assert_eq!(&talk(&lab, port), place);
    }
    // It knows whom it has and gives nobody's number to anybody else.
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

/// A bpf file system; what is pinned there goes with it.
pub struct BpfFs(pub tempfile::TempDir);

impl BpfFs {
    pub fn mount() -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount").args(["-t", "bpf", "bpf"]).arg(directory.path()).status();
        if !mounted.is_ok_and(|status| status.success()) {
            skip("cannot mount a bpf file system");
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
fn an_unknown_backend_is_asked_for() {
    let backends = [backend("10.0.0.14:8080", 1)];
    let Some(lab) = Lab::new(small(), &config(&[plan(&backends)])) else { return };
    let syn = tcp(SYN, &client(5000), V).bytes();
    assert_eq!(lab.dropped(&syn), Drop::NoNeighbor);
    until("the backend", || {
        lab.balancer.ask_for_neighbors().unwrap();
        lab.send(&syn).verdict == Verdict::Transmit
    });
    assert_eq!(lab.balancer.ask_for_neighbors().unwrap(), 0);
    assert_eq!(open(&lab, 5001), "10.0.0.14:8080");
}

/// Clients behind another interface than the one that their packets come in by: on its link, and behind routers there.
#[test]
fn next_hops_to_clients_are_asked_for() {
    let backends = ["10.0.0.10:8080", "[fd00::10]:8080"].map(|address| backend(address, 1));
    let services = [plan(&backends[..1]), service("[fd00::200]:80", full_nat(&["fd00::100"]), &backends[1..])];
    let Some(lab) = Lab::new(small(), &config(&services)) else { return };
    let here = NetNs::of_current_thread().unwrap();
    // An address that is being tried out is none to ask from.
    here.sysctl("net.ipv6.conf.default.accept_dad", "0").unwrap();
    let mut netlink = Netlink::open(&here).unwrap();
    netlink.add_veth(&VethPair { name: "lb1", peer: "far1", peer_ns: &lab.far_ns, queues: 1, mtu: 1500 }).unwrap();
    let ip = |ns: &NetNs, arguments: &str| {
        let mut command = Command::new("ip");
        let done = process::in_namespace(command.args(arguments.split(' ')), ns).status().unwrap();
        assert!(done.success(), "ip {arguments}");
    };
    ip(&here, "address add 10.1.0.1/24 dev lb1");
    ip(&here, "link set lb1 up");
    ip(&lab.far_ns, "link set far1 up");
    for address in ["10.1.0.60/24", "10.1.0.99/24", "fe80::99/64"] {
        let nodad = if address.contains(':') { " nodad" } else { "" };
        ip(&lab.far_ns, &format!("address add {address} dev far1{nodad}"));
    }
    ip(&here, "route add 192.0.2.0/24 via 10.1.0.99");
    ip(&here, "route add fd02::/64 via fe80::99 dev lb1");
    until("the link", || netlink.is_operational("lb1").unwrap());
    let asked = || lab.balancer.ask_for_neighbors().unwrap();
    assert_eq!(asked(), 2, "the backends");
    let neighbors = || {
        let mut command = Command::new("ip");
        let shown = process::in_namespace(command.args(["neigh", "show", "dev", "lb1"]), &here).output().unwrap();
        String::from_utf8(shown.stdout).unwrap()
    };
    for (client, to, next_hop) in [
        ("10.1.0.60:5000", V, "10.1.0.60"),
        ("192.0.2.5:5000", V, "10.1.0.99"),
        ("[fd02::5]:5000", "[fd00::200]:80", "fe80::99"),
    ] {
        let seen = see(&lab.sent(&tcp(SYN, client, to).bytes()));
        let answer = tcp(SYN | ACK, &seen.destination.to_string(), &seen.source.to_string()).bytes();
        assert_eq!(asked(), 0, "{client}: nothing was to be sent there yet");
        let known = |text: String| text.lines().any(|line| line.starts_with(next_hop) && line.contains("lladdr"));
        // Something of IPv6 may have told the router's.
        ip(&here, "neigh flush dev lb1");
        // Tracing it asks for nobody.
        assert_eq!(lab.balancer.trace(&answer, Some(lab.interface)).unwrap().drop, Some(Drop::NoNeighbor));
        assert_eq!(asked(), 0);
        for _ in 0..2 {
            assert_eq!(lab.dropped(&answer), Drop::NoNeighbor, "{client}");
        }
        assert_eq!((asked(), asked()), (1, 0), "{client}: asked for once, and forgotten");
        until("the neighbour", || known(neighbors()));
        let back = lab.send(&answer);
        assert_eq!(back.verdict, Verdict::Redirect, "{client}");
        assert_eq!(see(&back.frame).destination.to_string(), client);
    }
    // One on the link that its packets come from is reached without.
    open(&lab, 5001);
    talk(&lab, 5001);
    assert_eq!(asked(), 0);
}

#[test]
fn a_new_backend_is_asked_for_before_the_first_packet() {
    let backends = ["10.0.0.14:8080", "10.0.0.15:8080"].map(|address| backend(address, 1));
    let Some(mut lab) = Lab::new(small(), &config(&[plan(&backends[..1])])) else { return };
    let asked = |lab: &Lab| lab.balancer.ask_for_neighbors().unwrap();
    assert_eq!((asked(&lab), asked(&lab)), (1, 0));
    lab.balancer.apply(&config(&[plan(&backends)])).unwrap();
    assert_eq!((asked(&lab), asked(&lab)), (1, 0));
    lab.balancer.apply(&config(&[plan(&backends[..1])])).unwrap();
    lab.balancer.apply(&config(&[plan(&backends[..1])])).unwrap();
    lab.balancer.apply(&config(&[plan(&backends[..1])])).unwrap();
    assert_eq!(asked(&lab), 0);
    // It was gone, so it is new again.
    lab.balancer.apply(&config(&[plan(&backends)])).unwrap();
    assert_eq!(asked(&lab), 1);
}

#[test]
fn an_interface_that_is_not_there_is_named() {
    let Some(mut lab) = Lab::new(small(), &config(&[])) else { return };
    let error = lab.balancer.attach(999_999, Generic::Refused).unwrap_err();
    assert!(error.to_string().starts_with("cannot attach to interface 999999"), "{error}");
}

/// Two CPUs get the packets of the same flows at the same time, while a third program sweeps: each flow is one
/// connection, with one local port, counted once.
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
        return skip("a machine with one CPU does nothing at the same time");
    }
    let Some(directory) = BpfFs::mount() else { return };
    let tables = directory.0.path().join("tables");
    fs::create_dir(&tables).unwrap();
    lab.balancer.keep(&tables).unwrap();
    let here = NetNs::of_current_thread().unwrap();
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
        for _ in 0..50 {
            lab.balancer.sweep_all().unwrap();
        }
    });
    let connections = lab.connections();
    assert_eq!(connections.len(), FLOWS.into());
    let part = |at: usize| connections.iter().map(|line| line.split(" > ").nth(at).unwrap()).collect::<HashSet<_>>();
    assert_eq!(part(0).len(), FLOWS.into());
    let services = lab.balancer.services().unwrap();
    let loads: u32 = services[0].backends.iter().map(|backend| backend.inactive + backend.active).sum();
    assert_eq!((loads, services[0].traffic.connections), (FLOWS.into(), FLOWS.into()));
    (0..FLOWS).for_each(|n| drop(talk(&lab, 5000 + n)));
    lab.later(100_000);
    assert_eq!(lab.balancer.sweep_all().unwrap().expired, FLOWS.into());
    let empty = lab.balancer.services().unwrap();
    assert!(empty[0].backends.iter().all(|backend| backend.inactive + backend.active == 0));
}

/// The loopback driver has no XDP. In generic mode the kernel finishes partial checksums itself, so they stay partial,
/// over the new addresses.
#[test]
fn generic_mode_is_said_and_keeps_partial_checksums() {
    const LOOPBACK: u32 = 1;
    let Some(mut lab) = Lab::new(small(), &config(&[plan(&[backend("10.0.0.10:8080", 1)])])) else { return };
    let refused = lab.balancer.attach(LOOPBACK, Generic::Refused).unwrap_err();
    assert!(refused.to_string().contains("its driver has no XDP"), "{refused}");
    let attachment = lab.balancer.attach(LOOPBACK, Generic::Allowed).unwrap();
    assert_eq!(attachment.mode(), Mode::Generic);

    let frame = tcp(SYN, &client(5000), V).payload(b"unfinished");
    let whole = see(&lab.sent(&frame.bytes()));
    let out = lab.sent(&frame.partial());
    let expected = Frame::new(L4::Tcp(SYN), whole.source, whole.destination).payload(b"unfinished").partial();
    assert_eq!(out[50..52], expected[50..52]);
}
