//! When connections end with their backends, and counters that outlive these.

use std::fs;
use std::num::NonZeroU32;

use rig_datapath::balancer::{Backend, BackendStatus, Balancer, ExpiryPolicy, Pass, Protocol, Service, Traffic};
use rig_wire::tcp::flags::{ACK, SYN};

use super::changes::BpfFs;
use super::frames::{see, tcp, udp};
use super::lab::Lab;
use super::{backend, config, full_nat, service, small, udp_service};

const T: &str = "10.0.0.200:80";
const U: &str = "10.0.0.200:53";
const TEN: &str = "10.0.0.10:8080";
const ELEVEN: &str = "10.0.0.11:8080";

fn client(port: u16) -> String {
    format!("10.0.0.60:{port}")
}

fn plan(expire: ExpiryPolicy, backends: &[Backend]) -> [Service; 2] {
    let local = || full_nat(&["10.0.0.100"]);
    let of = [service(T, local(), backends), udp_service(U, local(), backends)];
    of.map(|service| Service { expire, ..service })
}

fn talk(lab: &Lab) -> [String; 2] {
    let tcp = see(&lab.sent(&tcp(ACK, &client(5000), T).bytes())).destination;
    let udp = see(&lab.sent(&udp(&client(5000), U).bytes())).destination;
    [tcp, udp].map(|to| to.to_string())
}

/// A lab in which a stream and datagrams from a fixed port go to the first of two backends.
fn begun(expire: ExpiryPolicy) -> Option<Lab> {
    let mut lab = Lab::new(small(), &config(&plan(expire, &[backend(TEN, 1)])))?;
    lab.sent(&tcp(SYN, &client(5000), T).bytes());
    assert_eq!(talk(&lab), [TEN, TEN]);
    lab.balancer.apply(&config(&plan(expire, &[backend(TEN, 1), backend(ELEVEN, 1)]))).unwrap();
    Some(lab)
}

#[test]
fn connections_end_with_their_backend_as_the_service_says() {
    let removed = [backend(ELEVEN, 1)];
    let drained = [backend(TEN, 0), backend(ELEVEN, 1)];
    for (expire, change, ends) in [
        (ExpiryPolicy::Never, &removed[..], false),
        (ExpiryPolicy::Never, &drained[..], false),
        (ExpiryPolicy::Removed, &drained[..], false),
        (ExpiryPolicy::Removed, &removed[..], true),
        (ExpiryPolicy::Quiescent, &drained[..], true),
        (ExpiryPolicy::Quiescent, &removed[..], true),
    ] {
        let Some(mut lab) = begun(expire) else { return };
        lab.balancer.apply(&config(&plan(expire, change))).unwrap();
        assert_eq!(talk(&lab), [TEN, TEN], "{expire:?}: until the sweep");
        let expired = lab.balancer.sweep_all().unwrap().expired;
        assert_eq!(expired, if ends { 2 } else { 0 }, "{expire:?} {change:?}");
        if !ends {
            assert_eq!(talk(&lab), [TEN, TEN]);
            continue;
        }
        // The stream is over, the datagrams go to the remaining backend, and all connections of the other are counted as gone.
        lab.dropped(&tcp(ACK, &client(5000), T).bytes());
        assert_eq!(see(&lab.sent(&udp(&client(5000), U).bytes())).destination.to_string(), ELEVEN);
        let loads = lab.balancer.services().unwrap();
        let of_ten = loads.iter().flat_map(|service| &service.backends).filter(|of| of.address.to_string() == TEN);
        assert_eq!(of_ten.map(|of| of.active + of.inactive).sum::<u32>(), 0);
    }
}

/// The service itself is removed; and one that says so only when its backend has gone already.
#[test]
fn connections_end_with_their_service_and_when_it_says_so_later() {
    let Some(mut lab) = begun(ExpiryPolicy::Removed) else { return };
    lab.balancer.apply(&config(&[])).unwrap();
    assert_eq!(lab.balancer.sweep_all().unwrap().expired, 2);
    lab.passes(&udp(&client(5000), U).bytes(), Pass::NoService);

    let Some(mut lab) = begun(ExpiryPolicy::Never) else { return };
    for (expire, expired) in [(ExpiryPolicy::Never, 0), (ExpiryPolicy::Removed, 2)] {
        lab.balancer.apply(&config(&plan(expire, &[backend(ELEVEN, 1)]))).unwrap();
        assert_eq!(lab.balancer.sweep_all().unwrap().expired, expired);
    }
    // A backend that comes back keeps what begins with it.
    lab.balancer.apply(&config(&plan(ExpiryPolicy::Removed, &[backend(TEN, 1)]))).unwrap();
    assert_eq!(see(&lab.sent(&udp(&client(5000), U).bytes())).destination.to_string(), TEN);
    assert_eq!(lab.balancer.sweep_all().unwrap().expired, 0);
}

/// A connection that has not come to be does not wait for a backend that gets no more.
#[test]
fn a_first_packet_that_is_sent_again_is_scheduled_anew() {
    for gone in [&[backend(ELEVEN, 1)][..], &[backend(TEN, 0), backend(ELEVEN, 1)]] {
        let Some(mut lab) = Lab::new(small(), &config(&plan(ExpiryPolicy::Never, &[backend(TEN, 1)]))) else { return };
        let syn = |lab: &Lab, port| see(&lab.sent(&tcp(SYN, &client(port), T).bytes())).destination.to_string();
        assert_eq!([syn(&lab, 5000), syn(&lab, 5000), syn(&lab, 5001)], [TEN; 3]);
        lab.sent(&tcp(ACK, &client(5001), T).bytes());
        lab.balancer.apply(&config(&plan(ExpiryPolicy::Never, gone))).unwrap();
        // One that has come to be goes on.
        assert_eq!([syn(&lab, 5000), syn(&lab, 5001)], [ELEVEN, TEN]);
        assert_eq!(lab.connections().len(), 2);
    }
}

#[test]
fn connections_are_flushed_by_service_and_backend() {
    let backends = [backend(TEN, 1), backend(ELEVEN, 1)];
    let Some(lab) = Lab::new(small(), &config(&plan(ExpiryPolicy::Never, &backends))) else { return };
    let fill = |lab: &Lab| {
        for port in 5000..5010 {
            lab.sent(&tcp(SYN, &client(port), T).bytes());
            lab.sent(&udp(&client(port), U).bytes());
        }
    };
    let (tcp_service, ten) = ((Protocol::Tcp, T.parse().unwrap()), TEN.parse().unwrap());
    fill(&lab);
    let flush = |service, backend| lab.balancer.flush(service, backend).unwrap();
    assert_eq!(flush(Some((Protocol::Udp, T.parse().unwrap())), None), 0);
    assert_eq!(flush(None, Some("10.0.0.12:8080".parse().unwrap())), 0);
    assert_eq!(flush(Some(tcp_service), Some(ten)), 5);
    assert_eq!(flush(Some(tcp_service), None), 5);
    assert!(lab.connections().iter().all(|line| line.contains(U)));
    assert_eq!((flush(None, Some(ten)), flush(None, None), flush(None, None)), (5, 5, 0));
    assert_eq!(lab.connections(), [""; 0]);
    // Clients that go on begin new connections.
    fill(&lab);
    assert_eq!((lab.connections().len(), flush(None, None)), (20, 20));
}

/// The totals of removed backends stay in the service's and the CPUs', also after another process has taken over.
#[test]
fn totals_outlive_backends_and_restarts() {
    let Some(mut lab) = begun(ExpiryPolicy::Removed) else { return };
    let Some(directory) = BpfFs::mount() else { return };
    let tables = directory.0.path().join("tables");
    fs::create_dir(&tables).unwrap();
    lab.balancer.keep(&tables).unwrap();
    let totals = |balancer: &Balancer| {
        let services = balancer.services().unwrap();
        let of = services.iter().map(|of| (of.address, of.traffic)).collect::<Vec<_>>();
        (of, balancer.cpus().unwrap().iter().map(|cpu| cpu.traffic).collect::<Vec<_>>())
    };
    let before = totals(&lab.balancer);
    assert_eq!(before.0.iter().map(|(_, of)| of.in_packets).collect::<Vec<_>>(), [2, 1]);
    let change = config(&plan(ExpiryPolicy::Removed, &[backend(ELEVEN, 1)]));
    // It has gone when it was seen without connections twice.
    for _ in 0..4 {
        lab.balancer.apply(&change).unwrap();
        lab.balancer.sweep_all().unwrap();
    }
    let backends = |balancer: &Balancer| balancer.services().unwrap().iter().map(|of| of.backends.len()).sum::<usize>();
    assert_eq!((totals(&lab.balancer), backends(&lab.balancer)), (before.clone(), 2));
    let mut next = Balancer::resume(&tables).unwrap();
    assert_eq!(totals(&next), before);
    // The services go, too: the CPUs have done it all the same.
    for _ in 0..4 {
        next.apply(&config(&[])).unwrap();
    }
    assert_eq!(totals(&next), (Vec::new(), before.1.clone()));
    let next = Balancer::resume(&tables).unwrap();
    assert_eq!(totals(&next), (Vec::new(), before.1));
}

/// A backend or a service that is removed and comes again goes on counting, whether it had connections left in between or not, and
/// nothing is counted twice.
#[test]
fn counters_go_on_when_something_comes_again() {
    let Some(mut lab) = begun(ExpiryPolicy::Removed) else { return };
    let (both, one) = ([backend(TEN, 1), backend(ELEVEN, 1)], [backend(ELEVEN, 1)]);
    // What services were refused goes on, too.
    let full = |backends: &[Backend]| {
        let limited = |service| Service { limit: NonZeroU32::new(1), ..service };
        config(&plan(ExpiryPolicy::Removed, backends).map(limited))
    };
    lab.balancer.apply(&full(&both)).unwrap();
    lab.dropped(&tcp(SYN, &client(5001), T).bytes());
    let counted = |balancer: &Balancer| {
        let services = balancer.services().unwrap();
        let of_backend = |backend: &BackendStatus| {
            let counts: Vec<_> = backend.traffic.iter().map(|cpu| (cpu.connections, cpu.in_packets)).collect();
            (backend.address, counts)
        };
        let of = services.iter().map(|of| {
            (of.address, of.traffic, of.refused.clone(), of.backends.iter().map(of_backend).collect::<Vec<_>>())
        });
        (of.collect::<Vec<_>>(), balancer.cpus().unwrap().iter().map(|cpu| cpu.traffic).collect::<Vec<_>>())
    };
    let before = counted(&lab.balancer);
    assert_eq!(before.0.iter().map(|of| (of.1.connections, of.2.len())).collect::<Vec<_>>(), [(1, 1), (1, 0)]);
    for (change, wait) in [(full(&one), 0), (full(&one), 4), (config(&[]), 0), (config(&[]), 4), (config(&[]), 5)] {
        lab.balancer.apply(&change).unwrap();
        for _ in 0..wait {
            lab.balancer.sweep_all().unwrap();
            lab.balancer.apply(&change).unwrap();
        }
        lab.balancer.apply(&full(&both)).unwrap();
        assert_eq!(counted(&lab.balancer), before, "{change:?} {wait}");
    }
    // A backend that comes again is another service's own one.
    for _ in 0..5 {
        lab.balancer.apply(&config(&[])).unwrap();
        lab.balancer.sweep_all().unwrap();
    }
    lab.balancer.apply(&config(&[service("10.0.0.200:81", full_nat(&["10.0.0.100"]), &both)])).unwrap();
    let other = counted(&lab.balancer);
    assert!(other.0[0].3.iter().all(|(_, cpus)| cpus.iter().all(|count| *count == (0, 0))), "{other:?}");
    assert_eq!(other.1, before.1);
    lab.balancer.clear().unwrap();
    lab.balancer.apply(&full(&both)).unwrap();
    assert_eq!(counted(&lab.balancer).0[0].1, Traffic::default());
}
