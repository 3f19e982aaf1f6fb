//! No connection breaks, with any change of the configuration, and however full the table is.

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rig_datapath::balancer::{Config, Drop, ForwardingMethod, Pass, Scheduler, Service, Timeouts};
use rig_wire::tcp::flags::SYN;

use super::frames::{Frame, L4};
use super::hostile::Attacker;
use super::lab::{Lab, Plan, Wires, server};
use super::talk::{Conversations, Echo, NewConnections, again};
use super::{V4, V6, backend, config, full_nat, sizes, tcp};

pub const SERVICE: u16 = 80;
pub const PORTS: [u16; 2] = [7000, 7001];
/// Lines to each service.
pub const LINES: usize = 120;

pub fn services() -> [SocketAddr; 2] {
    [V4, V6].map(|address| SocketAddr::new(address.parse::<IpAddr>().unwrap(), SERVICE))
}

/// What has ended is forgotten soon.
fn brief() -> Timeouts {
    let second = Duration::from_secs(1);
    Timeouts {
        none: second,
        syn_received: second,
        fin_wait: second,
        close_wait: second,
        time_wait: second,
        close: second,
        ..Timeouts::default()
    }
}

/// Both services with these backends: server, port and weight of each.
pub fn plan(backends: &[(u8, u16, u32)]) -> Config {
    let one = |address: &str, ipv6| {
        let backends = backends.iter().map(|(number, port, weight)| backend(server(*number, ipv6, *port), *weight));
        let scheduler = Scheduler::WeightedRoundRobin;
        Service { scheduler, timeouts: brief(), ..tcp(address, SERVICE, full_nat(address), backends.collect()) }
    };
    config([one(V4, false), one(V6, true)])
}

pub fn echoes(wires: &Wires) -> Vec<Echo> {
    wires.servers.iter().flat_map(|ns| PORTS.map(|port| Echo::start(ns, port))).collect()
}

/// No echo has seen a reset.
#[track_caller]
pub fn are_unbroken(echoes: &[Echo]) {
    let broken: Vec<u64> = echoes.iter().map(|echo| echo.broken.load(Ordering::Relaxed)).collect();
    assert!(broken.iter().all(|broken| *broken == 0), "resets at the servers: {broken:?}");
}

fn accepted(echo: &Echo) -> u64 {
    echo.accepted.load(Ordering::Relaxed)
}

#[test]
fn no_change_of_the_configuration_breaks_a_conversation() {
    let both = [(0, PORTS[0], 1), (1, PORTS[0], 1)];
    let Some(mut lab) = Lab::new(Plan::default(), sizes(16_384), &plan(&both)) else { return };
    let echoes = echoes(&lab.wires);
    let talk = Conversations::start(&lab.wires.client, &services(), LINES);
    talk.goes_on(1, || lab.tend());
    let arrivals = NewConnections::start(&lab.wires.client, &services());
    let change = |lab: &mut Lab, config: &Config| {
        lab.balancer.apply(config).unwrap();
        talk.goes_on(2, || lab.tend());
        arrivals.go_on(|| lab.tend());
    };

    // The same again; other timeouts and another scheduler.
    change(&mut lab, &plan(&both));
    let mut other = plan(&both);
    for service in &mut other.services {
        service.scheduler = Scheduler::Maglev;
        service.timeouts.established = Duration::from_secs(300);
    }
    change(&mut lab, &other);
    // One more backend, then a drained one, which gets no new connections.
    change(&mut lab, &plan(&[both[0], both[1], (1, PORTS[1], 3)]));
    change(&mut lab, &plan(&[(0, PORTS[0], 0), both[1], (1, PORTS[1], 3)]));
    let before = accepted(&echoes[0]);
    arrivals.go_on(|| lab.tend());
    talk.goes_on(2, || lab.tend());
    assert_eq!(accepted(&echoes[0]), before, "a drained backend gets new connections");
    // It is removed; all others are, and one comes that was not there.
    change(&mut lab, &plan(&[both[1], (1, PORTS[1], 3)]));
    let leaving = lab.balancer.services().unwrap();
    assert!(leaving.iter().any(|service| service.backends.iter().any(|backend| backend.leaving)), "{leaving:?}");
    change(&mut lab, &plan(&[(0, PORTS[1], 1)]));
    // Changes one after the other, as fast as they go.
    for round in 0..40 {
        let backends = [(0, PORTS[0], round % 3), (0, PORTS[1], 1), (1, PORTS[round as usize % 2], 1 + round)];
        lab.balancer.apply(&plan(&backends)).unwrap();
        lab.tend();
    }
    change(&mut lab, &plan(&both));
    let served = arrivals.finish();
    assert!(served >= 70, "{served}");
    // Not even the services are left.
    lab.balancer.apply(&config([])).unwrap();
    talk.goes_on(2, || lab.tend());
    let open = lab.balancer.services().unwrap();
    assert!(open.iter().all(|service| !service.open), "{open:?}");
    lab.balancer.apply(&plan(&both)).unwrap();
    talk.goes_on(1, || lab.tend());

    lab.during(|| talk.finish());
    are_unbroken(&echoes);
    assert_eq!((lab.losses(), lab.wires.damage()), (vec![], vec![]));
    lab.is_left_clean();
}

/// At no moment of a change is there less than before or after it: no new connection is refused or left to the kernel.
#[test]
fn changes_are_seen_whole() {
    let Some(mut lab) = Lab::new(Plan::default(), sizes(1 << 18), &plan(&[(0, PORTS[0], 1)])) else { return };
    let _echoes = echoes(&lab.wires);
    let mut attacker = Attacker::new(&lab);
    let stop = AtomicBool::new(false);
    let mut configs: Vec<Config> = [
        [(0, PORTS[0], 1), (1, PORTS[0], 0)],
        [(0, PORTS[0], 0), (1, PORTS[0], 1)],
        [(0, PORTS[1], 1), (1, PORTS[1], 0)],
    ]
    .iter()
    .map(|backends| plan(backends))
    .collect();
    let mut nat = plan(&[(1, PORTS[1], 1)]);
    nat.services.iter_mut().for_each(|service| service.forward = ForwardingMethod::Nat);
    configs.push(nat);
    for config in &mut configs {
        config.services.iter_mut().for_each(|service| service.timeouts = Timeouts::default());
    }
    let sent = thread::scope(|scope| {
        let newcomers = scope.spawn(|| {
            let mut sent = 0_u32;
            while !stop.load(Ordering::Relaxed) && sent < 200_000 {
                let client =
                    SocketAddr::new([10, 10, 3 + (sent / 50_000) as u8, 77].into(), 2000 + (sent % 50_000) as u16);
                attacker.send(&Frame::new(L4::Tcp(SYN), client, services()[0]).bytes());
                sent += 1;
            }
            sent
        });
        for round in 0..100 {
            lab.balancer.apply(&configs[round % configs.len()]).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        newcomers.join().unwrap()
    });
    let begun: u64 = lab.balancer.services().unwrap().iter().map(|service| service.traffic.connections).sum();
    assert!(begun > 100, "{begun} of {sent}");
    let refused = [Drop::BackendsFull, Drop::NoBackend, Drop::NoLocalAddress, Drop::Internal];
    assert_eq!(refused.map(|reason| lab.dropped(reason)), [0; 4], "{begun} of {sent}: {:?}", lab.drops());
    let left = lab.balancer.passes().unwrap();
    assert!(left.contains(&(Pass::NoService, 0)), "{begun} of {sent}: {left:?}");
}

/// New connections are refused and counted, old ones go on, and when there is room again it is used.
#[test]
fn a_full_table_breaks_nobody() {
    let both = [(0, PORTS[0], 1), (1, PORTS[0], 1)];
    let room = 2 * LINES as u32 + 160;
    let Some(mut lab) = Lab::new(Plan::default(), sizes(room), &plan(&both)) else { return };
    let room = lab.balancer.sizes().connections as usize;
    let echoes = echoes(&lab.wires);
    let talk = Conversations::start(&lab.wires.client, &services(), LINES);
    talk.goes_on(1, || lab.tend());

    // A greedy client opens as many connections as the table has room for, and tries more.
    let client = again(&lab.wires.client);
    let at = services();
    let greedy = lab.during(|| {
        let connect = |number: usize| TcpStream::connect_timeout(&at[number % 2], Duration::from_secs(5));
        client.run(|| (0..room - 2 * LINES).map(|number| connect(number).unwrap()).collect::<Vec<_>>()).unwrap()
    });
    assert_eq!(lab.connections(), room);
    assert_eq!(lab.dropped(Drop::TableFull), 0);
    let refused = lab.during(|| {
        let refused = |number: usize| TcpStream::connect_timeout(&at[number % 2], Duration::from_millis(50)).is_err();
        client.run(|| (0..20).filter(|number| refused(*number)).count()).unwrap()
    });
    assert_eq!(refused, 20);
    assert!(lab.dropped(Drop::TableFull) >= 20, "{:?}", lab.drops());
    talk.goes_on(3, || lab.tend());
    // A changed configuration is put in place all the same.
    lab.balancer.apply(&plan(&[both[0], (1, PORTS[1], 2)])).unwrap();
    talk.goes_on(2, || lab.tend());
    assert_eq!(lab.connections(), room);

    drop(greedy);
    lab.tend_until("room", |lab| lab.connections() <= 2 * LINES);
    let arrivals = NewConnections::start(&lab.wires.client, &services());
    arrivals.go_on(|| lab.tend());
    talk.goes_on(2, || lab.tend());
    lab.during(|| arrivals.finish());
    lab.during(|| talk.finish());
    are_unbroken(&echoes);
    lab.losses().iter().for_each(|(reason, _)| assert_eq!(*reason, Drop::TableFull));
    assert_eq!(lab.wires.damage(), []);
    lab.is_left_clean();
}
