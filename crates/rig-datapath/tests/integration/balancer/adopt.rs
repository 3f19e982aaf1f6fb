//! Connections that one balancer is told of by another.

use std::num::NonZeroU32;
use std::ops::ControlFlow;

use rig_datapath::balancer::{
    Adopted, AdoptionRefusal, Balancer, Clock, Config, ForwardingMethod, PortShare, Scheduler, Service,
    SharedConnection, Sizes, State, SynProxy,
};
use rig_datapath::test_run::Verdict;
use rig_wire::tcp::flags::{ACK, FIN, RST, SYN};

use crate::pool::Pooled;

use super::frames::{see, tcp, udp};
use super::lab::Lab;
use super::{backend, config, full_nat, limited, service, small, udp_service};

/// Another machine's clock.
const OTHER_TICK: u32 = 5_000;

fn tunnel(local: &[&str]) -> ForwardingMethod {
    ForwardingMethod::Tunnel { local: local.iter().map(|address| address.parse().unwrap()).collect() }
}

fn each(balancer: &Balancer) -> Vec<SharedConnection> {
    let mut all = Vec::new();
    let note = |_, record: Option<rig_datapath::balancer::TableRecord>| {
        all.extend(record.map(|record| record.connection));
        ControlFlow::Continue(())
    };
    balancer.records(note).unwrap();
    all
}

fn other(config: &Config) -> Pooled<Balancer> {
    // What was configured before, and in which order, changes numbers.
    let before = super::config(&[service("10.0.0.220:99", ForwardingMethod::Nat, &[backend("10.0.0.13:99", 1)])]);
    let mut balancer = Pooled::<Balancer>::load(small()).unwrap();
    balancer.apply(&before).unwrap();
    let mut config = config.clone();
    config.services.reverse();
    config.services.iter_mut().for_each(|service| service.backends.reverse());
    balancer.apply(&config).unwrap();
    balancer.set_clock(Clock::Fixed(OTHER_TICK)).unwrap();
    balancer
}

fn tell(from: &Balancer, to: &Balancer) -> Vec<Adopted> {
    let adopter = to.adopter();
    each(from).iter().map(|told| adopter.adopt(told).unwrap()).collect()
}

/// `(active, others)` of all services.
fn loads(balancer: &Balancer) -> (u32, u32) {
    let services = balancer.services().unwrap();
    let backends = services.iter().flat_map(|service| &service.backends);
    backends.fold((0, 0), |sum, backend| (sum.0 + backend.active, sum.1 + backend.inactive))
}

/// `(client, service, forward)` in both families, by each forwarding method, of TCP.
fn services() -> Vec<(&'static str, Service)> {
    let v4 = [backend("10.0.0.10:8080", 1), backend("10.0.0.11:8080", 1)];
    let v6 = [backend("[fd00::10]:8080", 1), backend("[fd00::11]:8080", 1)];
    let direct = |at: &str, forward, hosts: [&str; 2]| service(at, forward, &hosts.map(|host| backend(host, 1)));
    vec![
        ("10.0.0.50:5000", service("10.0.0.200:80", full_nat(&["10.0.0.100", "10.0.0.101"]), &v4)),
        ("[fd00::50]:5000", service("[fd00::200]:80", full_nat(&["fd00::100"]), &v6)),
        ("[fd00::50]:5004", service("[fd00::204]:80", full_nat(&["fd00::100", "10.0.0.100"]), &v4)),
        ("10.0.0.50:5001", service("10.0.0.201:80", ForwardingMethod::Nat, &v4)),
        ("[fd00::50]:5001", service("[fd00::201]:80", ForwardingMethod::Nat, &v6)),
        ("10.0.0.50:5002", direct("10.0.0.202:80", ForwardingMethod::Route, ["10.0.0.10:80", "10.0.0.11:80"])),
        ("[fd00::50]:5002", direct("[fd00::202]:80", ForwardingMethod::Route, ["[fd00::10]:80", "[fd00::11]:80"])),
        ("10.0.0.50:5003", direct("10.0.0.203:80", tunnel(&["10.0.0.102"]), ["10.0.0.10:80", "10.0.0.11:80"])),
        ("[fd00::50]:5003", direct("[fd00::203]:80", tunnel(&["fd00::102"]), ["[fd00::10]:80", "[fd00::11]:80"])),
    ]
}

/// By each forwarding method, in both families, a packet of either side leaves the other balancer byte by byte as it leaves the first.
#[test]
fn a_connection_goes_on_at_another_balancer() {
    let all = services();
    let plan = config(&all.iter().map(|(_, service)| service.clone()).collect::<Vec<_>>());
    let Some(mut lab) = Lab::new(small(), &plan) else { return };
    let second = other(&plan);
    for (client, service) in &all {
        let at = service.address.to_string();
        lab.sent(&tcp(SYN, client, &at).bytes());
        lab.sent(&tcp(ACK, client, &at).bytes());
    }
    lab.later(20);
    let told = tell(&lab.balancer, &second);
    assert_eq!(told.len(), all.len());
    assert!(told.iter().all(|adopted| matches!(adopted, Adopted::Created { tick, .. } if *tick == OTHER_TICK - 20)));
    assert_eq!(loads(&second), (all.len() as u32, 0));
    assert_eq!(second.occupancy().unwrap(), all.len() as u64);
    // What is there already is told again and again.
    assert!(tell(&lab.balancer, &second).iter().all(|adopted| *adopted == Adopted::Kept));
    for (client, service) in &all {
        let at = service.address.to_string();
        let inward = tcp(ACK, client, &at).payload(b"data").bytes();
        let out = lab.sent(&inward);
        let of_other = second.test_run(&inward, Some(lab.interface)).unwrap();
        assert_eq!((of_other.verdict, &of_other.frame), (Verdict::Transmit, &out), "{client} > {at}");
        if matches!(service.forward, ForwardingMethod::FullNat { .. } | ForwardingMethod::Nat) {
            let seen = see(&out);
            let back = tcp(ACK, &seen.destination.to_string(), &seen.source.to_string()).payload(b"back").bytes();
            let out = lab.sent(&back);
            let of_other = second.test_run(&back, Some(lab.interface)).unwrap();
            assert_eq!((of_other.verdict, &of_other.frame), (Verdict::Transmit, &out), "{at} > {client}");
        }
    }
    // What has begun here is counted here, and what was told of is not.
    let begun: u64 = second.services().unwrap().iter().map(|service| service.traffic.connections).sum();
    assert_eq!(begun, 0);
    // It ends by its own timeout, and leaves nothing.
    let mut second = second;
    for ticks in [1000, 1010] {
        second.set_clock(Clock::Fixed(OTHER_TICK + ticks)).unwrap();
        second.sweep_all().unwrap();
    }
    assert_eq!((loads(&second), second.occupancy().unwrap()), ((0, 0), 0));
}

#[test]
fn states_follow_and_what_is_later_here_stays() {
    let plan = config(&[service("10.0.0.200:80", full_nat(&["10.0.0.100"]), &[backend("10.0.0.10:8080", 1)])]);
    let Some(mut lab) = Lab::new(small(), &plan) else { return };
    let second = other(&plan);
    let (client, at) = ("10.0.0.50:5000", "10.0.0.200:80");
    lab.sent(&tcp(SYN, client, at).bytes());
    lab.sent(&tcp(ACK, client, at).bytes());
    assert!(matches!(tell(&lab.balancer, &second)[..], [Adopted::Created { .. }]));
    // Within the same tick.
    lab.sent(&tcp(FIN | ACK, client, at).bytes());
    assert!(matches!(tell(&lab.balancer, &second)[..], [Adopted::Updated { .. }]));
    assert_eq!((each(&second)[0].state, loads(&second)), (State::CloseWait, (0, 1)));
    lab.sent(&tcp(RST, client, at).bytes());
    tell(&lab.balancer, &second);
    assert_eq!((each(&second)[0].state, each(&second)[0].before), (State::Close, Some(State::CloseWait)));
    // A packet that comes to the other one takes the reset back; what the first one tells is older by then.
    lab.later(50);
    second.test_run(&tcp(ACK, client, at).bytes(), Some(lab.interface)).unwrap();
    assert_eq!(tell(&lab.balancer, &second), [Adopted::Kept]);
    assert_eq!(each(&second)[0].state, State::CloseWait);
    // And the first one learns of it.
    assert!(matches!(tell(&second, &lab.balancer)[..], [Adopted::Updated { .. }]));
    assert_eq!((each(&lab.balancer)[0].state, each(&lab.balancer)[0].idle), (State::CloseWait, 0));
}

/// What is told may lead back to a connection without an answer: it is one more then, and one less when it ends.
#[test]
fn those_without_an_answer_are_counted_both_ways() {
    let of_proxy = Service {
        syn_proxy: SynProxy::Auto { from: NonZeroU32::new(100).unwrap() },
        ..service("10.0.0.200:80", full_nat(&["10.0.0.100"]), &[backend("10.0.0.10:8080", 1)])
    };
    let Some(mut lab) = Lab::new(small(), &config(&[of_proxy])) else { return };
    let (client, at) = ("10.0.0.50:5000", "10.0.0.200:80");
    let unanswered = |lab: &Lab| lab.balancer.services().unwrap()[0].unanswered;
    lab.sent(&tcp(SYN, client, at).bytes());
    assert_eq!(unanswered(&lab), 1);
    lab.sent(&tcp(ACK, client, at).bytes());
    assert_eq!(unanswered(&lab), 0);
    let told = each(&lab.balancer)[0];
    lab.later(20);
    let told = SharedConnection { state: State::Close, before: Some(State::SynReceived), idle: 0, ..told };
    assert!(matches!(lab.balancer.adopter().adopt(&told).unwrap(), Adopted::Updated { .. }));
    assert_eq!(unanswered(&lab), 1);
    // Ended by the first, and free by the second.
    for ticks in [10_000, 10] {
        lab.later(ticks);
        lab.balancer.sweep_all().unwrap();
    }
    assert_eq!((unanswered(&lab), lab.balancer.occupancy().unwrap()), (0, 0));
}

#[test]
fn a_later_connection_takes_the_place_of_an_earlier_one() {
    let backends = [backend("10.0.0.10:8080", 1), backend("10.0.0.11:8080", 1)];
    let plan = config(&[service("10.0.0.200:80", full_nat(&["10.0.0.100"]), &backends)]);
    let Some(mut lab) = Lab::new(small(), &plan) else { return };
    let mut second = other(&plan);
    let open = |balancer: &Balancer| {
        for flags in [SYN, ACK] {
            let frame = tcp(flags, "10.0.0.50:5000", "10.0.0.200:80").bytes();
            assert_eq!(balancer.test_run(&frame, Some(lab.interface)).unwrap().verdict, Verdict::Transmit);
        }
    };
    // Of one client with one port, with different local ports.
    open(&lab.balancer);
    open(&second);
    assert_eq!(tell(&lab.balancer, &second), [Adopted::Kept]);
    let (own, others) = (each(&second)[0], each(&lab.balancer)[0]);
    assert_ne!(own.local, others.local);
    second.set_clock(Clock::Fixed(OTHER_TICK + 10)).unwrap();
    assert!(matches!(tell(&lab.balancer, &second)[..], [Adopted::Created { .. }]));
    assert_eq!(each(&second), [others]);
    assert_eq!(loads(&second), (1, 0));
    // A local port that another connection of the backend has: the later one has it.
    let rival = SharedConnection { client: "10.0.0.51:6000".parse().unwrap(), ..others };
    let adopt = |told: &SharedConnection| second.adopter().adopt(told).unwrap();
    assert_eq!(adopt(&rival), Adopted::Refused(AdoptionRefusal::PortTaken));
    assert_eq!((each(&second), second.occupancy().unwrap()), (vec![others], 3));
    second.set_clock(Clock::Fixed(OTHER_TICK + 20)).unwrap();
    assert!(matches!(second.adopter().adopt(&rival).unwrap(), Adopted::Created { .. }));
    assert_eq!(each(&second), [rival]);
    lab.later(1);
}

#[test]
fn limits_and_strangers_are_respected() {
    let mut of_limit = service("10.0.0.202:80", ForwardingMethod::Nat, &[backend("10.0.0.12:80", 1)]);
    of_limit.limit = NonZeroU32::new(1);
    let plan = config(&[
        service("10.0.0.200:80", full_nat(&["10.0.0.100"]), &[backend("10.0.0.10:8080", 1)]),
        service("10.0.0.201:80", ForwardingMethod::Nat, &[limited("10.0.0.11:80", 1)]),
        of_limit,
        udp_service("10.0.0.203:53", ForwardingMethod::Nat, &[backend("10.0.0.13:53", 1)]),
    ]);
    let Some(lab) = Lab::new(small(), &plan) else { return };
    let second = other(&plan);
    for (port, at) in [(5000, "200:80"), (5001, "201:80"), (5002, "202:80")] {
        lab.sent(&tcp(SYN, &format!("10.0.0.50:{port}"), &format!("10.0.0.{at}")).bytes());
    }
    lab.sent(&udp("10.0.0.50:5003", "10.0.0.203:53").bytes());
    let all = each(&lab.balancer);
    let of = |port: u16| *all.iter().find(|told| told.client.port() == port).unwrap();
    let refused = |told: SharedConnection, why| {
        let before = (loads(&second), each(&second).len());
        assert_eq!(second.adopter().adopt(&told).unwrap(), Adopted::Refused(why), "{told:?}");
        assert_eq!((loads(&second), each(&second).len()), before);
    };
    let address = |text: &str| text.parse().unwrap();
    let full_nat = of(5000);
    refused(SharedConnection { service: address("10.0.0.210:80"), ..full_nat }, AdoptionRefusal::NoService);
    refused(SharedConnection { forward: 2, local: None, ..full_nat }, AdoptionRefusal::NoService);
    refused(SharedConnection { backend: address("10.0.0.10:8081"), ..full_nat }, AdoptionRefusal::NoBackend);
    refused(SharedConnection { local: Some(address("10.0.0.99:2000")), ..full_nat }, AdoptionRefusal::NoLocal);
    assert!(tell(&lab.balancer, &second).iter().all(|adopted| matches!(adopted, Adopted::Created { .. })));
    let another = |port| SharedConnection { client: address("10.0.0.51:7000"), ..of(port) };
    refused(another(5001), AdoptionRefusal::BackendFull);
    refused(another(5002), AdoptionRefusal::ServiceFull);
    let mut created = 0;
    let of_table = (8000..9000).find_map(|port| {
        let told = SharedConnection { client: format!("10.0.0.51:{port}").parse().unwrap(), ..of(5003) };
        match second.adopter().adopt(&told).unwrap() {
            Adopted::Refused(why) => Some(why),
            _ => {
                created += 1;
                None
            }
        }
    });
    assert_eq!(of_table, Some(AdoptionRefusal::TableFull));
    assert_eq!(created + 4, second.sizes().connections);
}

/// Local addresses that others give out are translated, and not given out.
#[test]
fn others_local_addresses_are_taken_over() {
    let of = |local: &str| service("10.0.0.200:80", full_nat(&[local]), &[backend("10.0.0.10:8080", 1)]);
    let plan = |own: &str, others: &str| Config { others_local: vec![others.parse().unwrap()], ..config(&[of(own)]) };
    let Some(lab) = Lab::new(small(), &plan("10.0.0.100", "10.0.0.101")) else { return };
    let second = other(&plan("10.0.0.101", "10.0.0.100"));
    for flags in [SYN, ACK] {
        lab.sent(&tcp(flags, "10.0.0.50:5000", "10.0.0.200:80").bytes());
    }
    assert!(matches!(tell(&lab.balancer, &second)[..], [Adopted::Created { .. }]));
    let local = each(&lab.balancer)[0].local.unwrap();
    assert_eq!(local.ip().to_string(), "10.0.0.100");
    let back = tcp(ACK, "10.0.0.10:8080", &local.to_string()).bytes();
    let out = second.test_run(&back, Some(lab.interface)).unwrap();
    assert_eq!((out.verdict, out.frame), (Verdict::Transmit, lab.sent(&back)));
    let own = second.test_run(&tcp(SYN, "10.0.0.50:5001", "10.0.0.200:80").bytes(), Some(lab.interface)).unwrap();
    assert_eq!(see(&own.frame).source.ip().to_string(), "10.0.0.101");
}

/// Balancers with the same local addresses never give out the same port.
#[test]
fn shares_of_local_ports_do_not_meet() {
    let plan = config(&[service("10.0.0.200:80", full_nat(&["10.0.0.100"]), &[backend("10.0.0.10:8080", 1)])]);
    let share = |share| Sizes { connections: 16_384, ports: PortShare { share, of: 16 }, ..small() };
    let Some(lab) = Lab::new(share(1), &plan) else { return };
    let mut second = Pooled::<Balancer>::load(share(16)).unwrap();
    second.apply(&plan).unwrap();
    let ports = |balancer: &Balancer| {
        let mut ports = std::collections::BTreeSet::new();
        for client in 0..5000_u32 {
            let frame = tcp(SYN, &format!("10.0.0.60:{}", 10_000 + client), "10.0.0.200:80").bytes();
            let out = balancer.test_run(&frame, Some(lab.interface)).unwrap();
            if out.verdict == Verdict::Transmit {
                assert!(ports.insert(see(&out.frame).source.port()));
            }
        }
        ports
    };
    let (one, other) = (ports(&lab.balancer), ports(&second));
    // All of a share can be used, and no more.
    assert_eq!((one.len(), other.len()), (4032, 4032));
    assert_eq!(one.intersection(&other).count(), 0);
    assert_eq!((one.first(), other.last()), (Some(&1024), Some(&65_535)));
}

/// The same client goes to the same backend at each of them, whatever was configured before and in which order.
#[test]
fn hashes_choose_the_same_backend_at_all_balancers() {
    let backends: Vec<_> = ["10.0.0.10:80", "10.0.0.11:80", "10.0.0.12:80"].map(|at| backend(at, 1)).into();
    for scheduler in [Scheduler::Maglev, Scheduler::SourceHash] {
        let mut of = service("10.0.0.200:80", ForwardingMethod::Route, &backends);
        (of.scheduler, of.sloppy_tcp) = (scheduler, true);
        let plan = config(&[of]);
        let Some(lab) = Lab::new(small(), &plan) else { return };
        let second = other(&plan);
        for port in 5000..5050 {
            // From the middle: the first packet went elsewhere.
            let frame = tcp(ACK, &format!("10.0.0.50:{port}"), "10.0.0.200:80").bytes();
            let (here, there) = (lab.send(&frame), second.test_run(&frame, Some(lab.interface)).unwrap());
            assert_eq!((here.verdict, here.frame), (there.verdict, there.frame));
        }
        let of = |balancer: &Balancer| {
            let mut all: Vec<_> = each(balancer).iter().map(|told| (told.client, told.backend)).collect();
            all.sort();
            all
        };
        assert_eq!((of(&lab.balancer), of(&lab.balancer).len()), (of(&second), 50));
    }
}
