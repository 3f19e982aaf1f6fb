//! Packets that may be forged: resets with sequence numbers that the balancer cannot check, the middle of unknown connections,
//! frames for other devices, and two CPUs that begin connections with the same addresses.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use rig_datapath::balancer::{Balancer, Config, Drop, ForwardingMethod, Pass, Policy, Service, Sizes};
use rig_datapath::test_run::Verdict;
use rig_skip::{Lack, skip};
use rig_sys::cpu::CpuSet;
use rig_sys::netns::NetNs;
use rig_wire::tcp::flags::{ACK, FIN, RST, SYN};

use super::changes::BpfFs;
use super::frames::{Frame, icmp_error, see, tcp, udp};
use super::lab::Lab;
use super::{backend, config, full_nat, service, small};

const C: &str = "10.0.0.60:5000";
const V: &str = "10.0.0.200:80";
/// The lab's own.
const OWN: &str = "10.0.0.1:80";

fn plan(address: &str) -> Service {
    service(address, full_nat(&["10.0.0.100"]), &[backend("10.0.0.10:8080", 1)])
}

fn state(lab: &Lab) -> Option<String> {
    lab.connections().first().map(|line| line.rsplit_once(' ').unwrap().1.to_owned())
}

fn active(lab: &Lab) -> u32 {
    lab.balancer.services().unwrap()[0].backends[0].active
}

/// An established connection: the frames of its client and of its backend.
fn establish(lab: &Lab) -> impl Fn(u8, bool) -> Frame + use<> {
    let out = see(&lab.sent(&tcp(SYN, C, V).bytes()));
    lab.sent(&tcp(ACK, C, V).bytes());
    assert_eq!((state(lab).as_deref(), active(lab)), (Some("ESTABLISHED"), 1));
    let (backend, local) = (out.destination.to_string(), out.source.to_string());
    move |flags, from_backend| if from_backend { tcp(flags, &backend, &local) } else { tcp(flags, C, V) }
}

/// A reset that its receiver does not believe is followed by packets, of either side, and harms nothing; a real one by
/// silence, or by packets that are answered by resets.
#[test]
fn a_reset_ends_what_is_silent_behind_it() {
    for reset_by in [false, true] {
        for goes_on in [false, true] {
            let Some(mut lab) = Lab::new(small(), &config(&[plan(V)])) else { return };
            let frame = establish(&lab);
            lab.sent(&frame(RST, reset_by).bytes());
            assert_eq!((state(&lab).as_deref(), active(&lab)), (Some("CLOSE"), 0));
            lab.sent(&frame(RST | ACK, reset_by).bytes());
            // 10 s are 75 ticks.
            lab.later(74);
            assert_eq!(lab.balancer.sweep_all().unwrap().expired, 0);
            lab.sent(&frame(ACK, goes_on).bytes());
            assert_eq!((state(&lab).as_deref(), active(&lab)), (Some("ESTABLISHED"), 1));
            lab.later(300);
            assert_eq!(lab.balancer.sweep_all().unwrap().expired, 0);
            lab.sent(&frame(RST, !reset_by).bytes());
            lab.later(75);
            assert_eq!((lab.balancer.sweep_all().unwrap().expired, active(&lab)), (1, 0));
        }
    }
}

/// A connection that was closing is closing again after a reset and one more packet.
#[test]
fn a_closing_connection_stays_one_when_it_is_reset() {
    let Some(mut lab) = Lab::new(small(), &config(&[plan(V)])) else { return };
    let frame = establish(&lab);
    lab.sent(&frame(FIN | ACK, false).bytes());
    lab.sent(&frame(RST, true).bytes());
    assert_eq!(state(&lab).as_deref(), Some("CLOSE"));
    lab.sent(&frame(ACK, true).bytes());
    assert_eq!(state(&lab).as_deref(), Some("CLOSE_WAIT"));
    // Half closed and silent, as one whose backend thinks: 60 s are 448 ticks. What carries data stays.
    for _ in 0..3 {
        lab.later(447);
        assert_eq!(lab.balancer.sweep_all().unwrap().expired, 0);
        lab.sent(&frame(ACK, true).payload(b"more").bytes());
    }
    lab.sent(&frame(RST, false).bytes());
    lab.sent(&frame(FIN | ACK, true).bytes());
    assert_eq!(state(&lab).as_deref(), Some("TIME_WAIT"));
    // A port that is used again makes a new connection, even after resets of the old one.
    lab.sent(&frame(RST, true).bytes());
    lab.sent(&frame(SYN, false).bytes());
    assert_eq!(state(&lab).as_deref(), Some("SYN_RECV"));
}

/// The middle of a connection that is not known begins none, unless the service says so, and is no refused connection. It
/// goes to the kernel where that answers, and nowhere where it would be forwarded.
#[test]
fn the_middle_of_an_unknown_connection_begins_none() {
    let sloppy = "10.0.0.201:80";
    let v6 = service("[fd00::200]:80", full_nat(&["fd00::101"]), &[backend("[fd00::10]:8080", 1)]);
    let own_v6 = Service { address: "[fd00::1]:80".parse().unwrap(), ..v6.clone() };
    let services = [plan(V), plan(OWN), Service { sloppy_tcp: true, ..plan(sloppy) }, v6, own_v6];
    let Some(lab) = Lab::new(small(), &config(&services)) else { return };
    for flags in [ACK, FIN | ACK, 0] {
        assert_eq!(lab.dropped(&tcp(flags, C, V).bytes()), Drop::NoConnection);
        lab.passes(&tcp(flags, C, OWN).bytes(), Pass::NoConnection);
        assert_eq!(lab.dropped(&tcp(flags, "[fd00::60]:5000", "[fd00::200]:80").bytes()), Drop::NoConnection);
        lab.passes(&tcp(flags, "[fd00::60]:5000", "[fd00::1]:80").bytes(), Pass::NoConnection);
    }
    for flags in [RST, RST | ACK, SYN | ACK, SYN | RST] {
        for to in [V, OWN, sloppy] {
            assert_eq!(lab.dropped(&tcp(flags, C, to).bytes()), Drop::NoConnection);
        }
    }
    assert_eq!(lab.connections(), [""; 0]);
    assert!(lab.balancer.services().unwrap().iter().all(|service| service.refused.is_empty()));
    lab.sent(&tcp(ACK, C, sloppy).bytes());
    assert_eq!(lab.connections().len(), 1);
}

/// Packets that no socket waits for are left to the kernel two times in a tick, for each reason; those for a socket, always.
#[test]
fn strays_are_limited_where_the_kernel_would_answer_them() {
    let own_v6 = service("[fd00::1]:80", full_nat(&["fd00::101"]), &[backend("[fd00::10]:8080", 1)]);
    let services = [plan(OWN), own_v6];
    let of = |strays| {
        let policy = Policy { strays: NonZeroU32::new(strays), ..Policy::default() };
        Config { policy, ..config(&services) }
    };
    let Some(mut lab) = Lab::new(small(), &of(0)) else { return };
    let far = |at: &str| lab.far_ns.run(|| TcpStream::connect(at).unwrap()).unwrap();
    let listeners = ["10.0.0.1:81", "[fd00::1]:81"].map(|at| TcpListener::bind(at).unwrap());
    let streams = ["10.0.0.1:81", "[fd00::1]:81"].map(far);
    let sockets = ["10.0.0.1:82", "[fd00::1]:82"].map(|at| UdpSocket::bind(at).unwrap());
    lab.balancer.apply(&of(14)).unwrap();
    let clients = [C, "[fd00::60]:5000"];
    let of_no_service = |n: usize, port: u16| {
        let at = SocketAddr::new(listeners[n].local_addr().unwrap().ip(), port).to_string();
        [tcp(SYN, clients[n], &at), tcp(ACK, clients[n], &at), udp(clients[n], &at)].map(|frame| frame.bytes())
    };
    let about = tcp(ACK, OWN, "10.0.0.60:7").packet();
    let error = icmp_error("10.0.0.99", "10.0.0.1", 3, 1, 0, &about, about.len());
    for n in [0, 1] {
        lab.later(1);
        let own = if n == 0 { OWN } else { "[fd00::1]:80" };
        let stray = tcp(ACK, clients[n], own).bytes();
        let other = of_no_service(n, 83);
        for _ in 0..2 {
            lab.passes(&stray, Pass::NoConnection);
            lab.passes(&other[2], Pass::NoService);
            lab.passes(&error, Pass::IcmpUnknown);
        }
        // One to a port that is listened to is like any, and a reset is none of these.
        for frame in [&stray, &error].into_iter().chain(&other).chain(&of_no_service(n, 81)[..2]) {
            assert_eq!(lab.dropped(frame), Drop::Strays);
            assert_eq!(lab.balancer.trace(frame, Some(lab.interface)).unwrap().drop, Some(Drop::Strays));
        }
        assert_eq!(lab.dropped(&tcp(RST, clients[n], own).bytes()), Drop::NoConnection);
        // What goes on here, and what is for others.
        let stream = &streams[n];
        let ends = (stream.local_addr().unwrap().to_string(), stream.peer_addr().unwrap().to_string());
        lab.passes(&tcp(ACK, &ends.0, &ends.1).bytes(), Pass::NoService);
        lab.passes(&udp(clients[n], &sockets[n].local_addr().unwrap().to_string()).bytes(), Pass::NoService);
        lab.passes(&udp(clients[n], ["10.0.0.13:83", "[fd00::13]:83"][n]).bytes(), Pass::NoService);
        // Connections begin all the same.
        lab.sent(&tcp(SYN, clients[n], own).bytes());
    }
    lab.later(1);
    lab.balancer.apply(&of(0)).unwrap();
    for _ in 0..20 {
        lab.passes(&of_no_service(0, 83)[0], Pass::NoService);
    }
}

/// A device hears what is for others when it listens to all, or a switch does not know better.
#[test]
fn frames_for_another_device_are_left_alone() {
    let Some(lab) = Lab::new(small(), &config(&[plan(V)])) else { return };
    for other in [[2, 0, 0, 0, 0, 0x1c], [3, 0, 0, 0, 0, 0x1b], [0xff; 6], [1, 0, 0x5e, 0, 0, 1]] {
        for frame in [tcp(SYN, C, V), tcp(SYN, C, V).vlan(7)] {
            let mut frame = frame.bytes();
            frame[..6].copy_from_slice(&other);
            lab.passes(&frame, Pass::OtherMac);
            assert_eq!(lab.balancer.trace(&frame, Some(lab.interface)).unwrap().pass, Some(Pass::OtherMac));
        }
    }
    assert_eq!(lab.connections(), [""; 0]);
}

/// Two services under NAT whose backend is the same, each asked from the same port at the same time on another CPU: one of
/// them has the connection.
#[test]
fn a_clash_is_seen_while_the_other_is_not_complete() {
    const CLIENTS: u32 = 4000;
    let of = |address| service(address, ForwardingMethod::Nat, &[backend("10.0.0.10:8080", 1)]);
    let services = [V, "10.0.0.201:80"];
    let sizes = Sizes { connections: 1 << 14, ..small() };
    let Some(mut lab) = Lab::new(sizes, &config(&services.map(of))) else { return };
    let cpus = CpuSet::online().unwrap().as_slice().to_vec();
    if cpus.len() < 2 {
        return skip(Lack::Cpus, "a machine with one CPU does nothing at the same time");
    }
    let Some(directory) = BpfFs::mount() else { return };
    let tables = directory.0.path().join("tables");
    fs::create_dir(&tables).unwrap();
    lab.balancer.keep(&tables).unwrap();
    let (here, interface) = (NetNs::of_current_thread().unwrap(), lab.interface);
    // The client that each CPU is at: neither is more than one ahead.
    let at = [AtomicU32::new(0), AtomicU32::new(0)];
    let begun: Vec<Vec<bool>> = thread::scope(|scope| {
        let one = |side: usize| {
            let (here, tables, at, cpu, service) = (&here, &tables, &at, cpus[side], services[side]);
            scope.spawn(move || {
                here.enter().unwrap();
                CpuSet::new([cpu]).apply().unwrap();
                let one = Balancer::resume(tables).unwrap();
                let each = (0..CLIENTS).map(|n| {
                    let client = SocketAddr::new([10, 0, 0, 60].into(), 1000 + n as u16);
                    let syn = tcp(SYN, &client.to_string(), service).bytes();
                    at[side].store(n + 1, Ordering::SeqCst);
                    while at[1 - side].load(Ordering::SeqCst) <= n {
                        std::hint::spin_loop();
                    }
                    one.test_run(&syn, Some(interface)).unwrap().verdict == Verdict::Transmit
                });
                let begun = each.collect();
                at[side].store(u32::MAX, Ordering::SeqCst);
                begun
            })
        };
        [one(0), one(1)].into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let both: Vec<_> = (0..CLIENTS as usize).filter(|n| begun[0][*n] == begun[1][*n]).collect();
    assert_eq!(both, [0; 0], "neither or both have begun");
    assert!(begun.iter().all(|side| side.contains(&true)), "they were never at the same time");
    assert_eq!(lab.connections().len(), CLIENTS as usize);
}
