#![allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use rig_wire::ethernet::Mac;

use super::super::memory::{self, Memory};
use super::super::{
    AnswerScope, Client, CloseMethod, Config, Gateway, Link, Load, MessageEnd, Payload, Server, Service, TcpClient,
    TcpServer, TcpTimes, TupleOrder,
};
use super::*;

const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 9);
const TIMEOUT: Duration = Duration::from_secs(60);

fn config(client: bool, ports: std::ops::RangeInclusive<u16>, rate: f64) -> AnyConfig {
    let (ours, theirs, mac) = if client { (CLIENT, SERVER, 1) } else { (SERVER, CLIENT, 2) };
    let times = TcpTimes::default();
    let service = if client {
        Service::TcpClient(TcpClient {
            client: Client {
                ports,
                server_ports: 80..=80,
                load: Load::new(rate),
                repeat: None,
                walk: TupleOrder::Ports,
                flood: None,
            },
            times,
            request: Payload::Filler(85),
            response: MessageEnd::Segment,
            close: CloseMethod::Fin,
            delayed_ack: Duration::ZERO,
            mss: 1460,
            resets: true,
        })
    } else {
        Service::TcpServer(TcpServer {
            server: Server { ports: 80..=80 },
            times,
            request: MessageEnd::Segment,
            response: Payload::Filler(99),
            close: true,
            idle: Duration::from_secs(60),
            window: 4,
            mss: 1460,
            resets: true,
        })
    };
    let link = Link {
        mac: Mac([2, 0, 0, 0, 0, mac]),
        address: ours,
        answer: AnswerScope::All,
        announce: false,
        vlan: None,
        gateway: Gateway::Address(theirs),
        hop_limit: 64,
        tos: 0,
        verify: true,
        tunnel: None,
    };
    AnyConfig::V4(Config {
        link,
        local: vec![(ours, 1)],
        remote: vec![(theirs, 1)],
        capacity: 20_000,
        service,
        steering: None,
    })
}

fn thread<P>(config: AnyConfig, port: P, interface: &str) -> ThreadSpec<P> {
    ThreadSpec { config, port, cpu: None, interface: interface.into() }
}

fn wait_for(fleet: &Fleet, enough: impl Fn(&Counters) -> bool) {
    let deadline = clock::monotonic_after(TIMEOUT);
    while !enough(&fleet.totals().counters) {
        fleet.check().unwrap();
        assert!(clock::monotonic_ns() < deadline, "{:?}", fleet.totals());
        thread::sleep(Duration::from_millis(1));
    }
}

/// Two clients of a thousand connections a second together against two servers, in memory.
fn ends(rate: f64) -> (Fleet, Fleet) {
    let (mut clients, mut servers) = (Vec::new(), Vec::new());
    for n in 0..2 {
        let (a, b) = memory::pair(64);
        let first = 1000 + n * 1000;
        clients.push(thread(config(true, first..=first + 999, rate / 2.0), a, &format!("c{n}")));
        servers.push(thread(config(false, 1..=1, 1.0), b, &format!("s{n}")));
    }
    let server = Fleet::start(servers).unwrap();
    let client = Fleet::start(clients).unwrap();
    assert!(client.wait_ready(TIMEOUT, || true).unwrap());
    assert!(server.wait_ready(TIMEOUT, || true).unwrap());
    (client, server)
}

#[test]
fn a_bounded_run_opens_what_is_due_and_no_more() {
    let (mut client, server) = ends(1000.0);
    assert_eq!(client.totals().counters.sk_open, 0, "nothing is opened before it is said when");
    let begin = clock::monotonic_after(Duration::from_millis(20));
    client.open_from(begin);
    client.wind_down_at(begin + 1_000_000_000);
    wait_for(&client, |counters| counters.sk_open > 100);
    let first = client.latencies(TIMEOUT);
    assert!(first.handshake.count() >= 50, "{first:?}");
    wait_for(&client, |counters| counters.sk_close == 1000);
    let outcome = client.stop().unwrap();
    let counters = &outcome.totals.counters;
    assert_eq!(outcome.totals.threads.len(), 2);
    assert_eq!((counters.sk_open, counters.sk_err), (1000, 0), "{counters:?}");
    assert!(counters.syn_rt > 0 || counters.tcp_tx == 3000, "{counters:?}");
    assert_eq!(outcome.latencies.handshake.count(), counters.sk_open, "each is counted once, also those taken before");
    wait_for(&server, |served| served.sk_close == 1000);
    let served = server.stop().unwrap().totals;
    assert_eq!(served.counters.tcp_rx, counters.tcp_tx);
    assert!(served.threads.iter().all(|thread| thread.usage.total >= thread.usage.busy));
}

#[test]
fn a_run_that_is_ended_at_any_moment_is_empty_when_all_is_answered() {
    for _ in 0..20 {
        let (client, server) = ends(20_000.0);
        client.open_from(clock::monotonic_ns());
        wait_for(&client, |counters| counters.sk_close > 10);
        assert!(!client.is_empty(), "more is to come");
        client.wind_down();
        let begin = Instant::now();
        while !client.is_empty() {
            assert!(begin.elapsed() < TIMEOUT);
        }
        let counters = client.stop().unwrap().totals.counters;
        assert_eq!((counters.unfinished, counters.sk_con(), counters.sk_err), (0, 0, 0), "{counters:?}");
        drop(server);
    }
}

#[test]
fn threads_of_a_port_learn_the_gateway_from_each_other() {
    let (a, b) = memory::pair(64);
    let (deaf, _nobody) = memory::pair(2);
    let server = Fleet::start(vec![thread(config(false, 1..=1, 1.0), b, "s")]).unwrap();
    let pair = vec![thread(config(true, 1..=9, 1.0), a, "c"), thread(config(true, 10..=19, 1.0), deaf, "c")];
    let client = Fleet::start(pair).unwrap();
    assert!(client.wait_ready(TIMEOUT, || true).unwrap());
    drop((client, server));
}

#[test]
fn a_gateway_that_is_silent_is_named() {
    let (a, _nobody) = memory::pair(64);
    let client = Fleet::start(vec![thread(config(true, 1..=9, 1.0), a, "port7")]).unwrap();
    wait_for(&client, |counters| counters.arp_tx > 0);
    let error = client.wait_ready(Duration::ZERO, || true).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("port7: gateway 10.0.0.9 did not say where it is: "), "{text}");
    assert!(text.contains("nothing received"), "{text}");
    assert!(!client.wait_ready(TIMEOUT, || false).unwrap(), "the caller can give up");
}

#[test]
fn what_cannot_run_is_refused() {
    assert!(matches!(Fleet::start(Vec::<ThreadSpec<Memory>>::new()), Err(FleetError::NoThreads)));
    let (a, _b) = memory::pair(2);
    let refused = Fleet::start(vec![thread(config(true, 1..=9, 0.0), a, "c")]);
    assert!(matches!(refused, Err(FleetError::Config(ConfigError::Rate { .. }))), "{refused:?}");
    let (a, _b) = memory::pair(2);
    let nowhere = ThreadSpec { cpu: Some(1023), ..thread(config(true, 1..=9, 1.0), a, "c") };
    let error = Fleet::start(vec![nowhere]).unwrap_err().to_string();
    assert!(error.contains("thread 0 of c") && error.contains("1023"), "{error}");
}
