//! What other threads see of a balancer that is being configured and swept.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rig_datapath::balancer::{Balancer, BalancerHandle, Scheduler, Sizes};
use rig_wire::tcp::flags::{ACK, SYN};

use super::frames::{see, tcp};
use super::lab::Lab;
use super::{backend, config, full_nat, service, small};

const V: &str = "10.0.0.200:80";

fn plan(backends: &[&str]) -> rig_datapath::balancer::Config {
    let backends: Vec<_> = backends.iter().map(|address| backend(address, 1)).collect();
    config(&[service(V, full_nat(&["10.0.0.100"]), &backends)])
}

fn open(lab: &Lab, ports: std::ops::Range<u16>) {
    for port in ports {
        lab.sent(&tcp(SYN, &format!("10.0.0.60:{port}"), V).bytes());
    }
}

#[test]
fn threads_look_while_others_configure_and_sweep() {
    fn shared<T: Send + Sync>(_: &T) {}
    let Some(mut lab) = Lab::new(Sizes { connections: 1024, ..small() }, &plan(&["10.0.0.10:8080"])) else { return };
    open(&lab, 5000..5500);
    let handle = lab.balancer.handle();
    shared(&handle);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let (done, handle) = (&done, &handle);
        let looking = scope.spawn(move || {
            let mut rounds = 0;
            while !done.load(Ordering::Relaxed) || rounds == 0 {
                let services = handle.services().unwrap();
                assert_eq!(services.len(), 1);
                assert!(services[0].backends.iter().any(|backend| backend.address.port() == 8080));
                let mut connections = 0;
                handle.connections(|_| connections += 1).unwrap();
                assert_eq!((connections, handle.occupancy().unwrap()), (500, 500));
                handle.drops().unwrap();
                rounds += 1;
            }
            rounds
        });
        let sweeper = handle.clone();
        let sweeping = scope.spawn(move || {
            while !done.load(Ordering::Relaxed) {
                assert_eq!(sweeper.sweep_all().unwrap().live, 500);
            }
        });
        for round in 0..20 {
            let other = format!("10.0.0.11:{}", 9000 + round % 3);
            lab.balancer.apply(&plan(&["10.0.0.10:8080", &other])).unwrap();
        }
        done.store(true, Ordering::Relaxed);
        assert!(looking.join().unwrap() > 0);
        sweeping.join().unwrap();
    });
    // The handle keeps its maps when the balancer is gone.
    let Lab { balancer, attachment, .. } = lab;
    drop((balancer, attachment));
    assert_eq!(handle.occupancy().unwrap(), 500);
}

#[test]
fn listings_can_be_broken_off() {
    let Some(lab) = Lab::new(small(), &plan(&["10.0.0.10:8080"])) else { return };
    open(&lab, 5000..5020);
    let mut seen = 0;
    let three = |_| {
        seen += 1;
        if seen == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    lab.balancer.connections_while(three).unwrap();
    assert_eq!(seen, 3);
}

#[test]
fn places_are_occupied_until_they_are_free_again() {
    let Some(mut lab) = Lab::new(small(), &plan(&["10.0.0.10:8080"])) else { return };
    let occupancy = |lab: &Lab| lab.balancer.occupancy().unwrap();
    assert_eq!(occupancy(&lab), 0);
    open(&lab, 5000..5020);
    assert_eq!(occupancy(&lab), 20);
    lab.later(1000);
    lab.balancer.sweep_all().unwrap();
    assert_eq!((occupancy(&lab), lab.connections().len()), (20, 0));
    lab.later(2);
    lab.balancer.sweep_all().unwrap();
    assert_eq!(occupancy(&lab), 0);
}

#[test]
fn cpus_tell_what_they_have_done_also_for_backends_that_are_gone() {
    let Some(mut lab) = Lab::new(small(), &plan(&["10.0.0.10:8080"])) else { return };
    let cpu = super::lab::stay_on_one_cpu();
    open(&lab, 5000..5003);
    let frame = tcp(ACK, "10.0.0.60:5000", V).payload(b"x").bytes();
    let sent = see(&lab.sent(&frame));
    lab.sent(&tcp(ACK, &sent.destination.to_string(), &sent.source.to_string()).bytes());
    lab.dropped(&tcp(ACK, "10.0.0.60:5000", V).ttl(1).bytes());
    let of = |handle: &BalancerHandle| handle.cpus().unwrap()[cpu as usize];
    let before = of(&lab.balancer);
    assert_eq!((before.cpu, before.dropped), (cpu, 1));
    let traffic = before.traffic;
    assert_eq!((traffic.connections, traffic.in_packets, traffic.out_packets), (3, 4, 1));
    assert_eq!(lab.balancer.services().unwrap()[0].scheduler, Some(Scheduler::RoundRobin));

    lab.later(1000);
    lab.balancer.sweep_all().unwrap();
    for _ in 0..3 {
        lab.balancer.apply(&plan(&["10.0.0.11:8080"])).unwrap();
    }
    assert_eq!(lab.balancer.services().unwrap()[0].backends.len(), 1);
    assert_eq!(of(&lab.balancer).traffic, traffic);
    // It is the same of a balancer as of a handle, and so is the memory.
    let memory = Balancer::handle(&lab.balancer).memory().unwrap();
    assert_eq!(memory, lab.balancer.memory().unwrap());
    assert!(memory.total() > 64 * 120);
}
