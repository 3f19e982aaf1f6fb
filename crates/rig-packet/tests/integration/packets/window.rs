//! Which latencies belong to a window: those of requests that were due in it, also when they were answered later or never.

use std::time::Duration;

use rig_packet::{Load, Nanos, RequestRepeat, Service, TcpTimes, V4, V6};

use super::rig::*;

const STEP: Nanos = 100_000;

/// A client, 1000 requests a second and a window of three seconds, in whose last third the server stands still, and for
/// `longer` beyond it.
fn stalled<F: Hosts>(from: Service, to: Service, longer: Nanos) -> Rig<F> {
    let mut rig = Rig::new(client::<F>(from), server::<F>(to));
    let begin = rig.now + SECOND / 10;
    let end = begin + 3 * SECOND;
    rig.client.measure(begin, end);
    rig.client.wind_down_at(end);
    rig.run(SECOND / 10, STEP);
    rig.run(2 * SECOND, STEP);
    while rig.now < end + longer {
        rig.client.pass(rig.now, &mut rig.to_client);
        rig.now += STEP;
    }
    rig
}

fn repeat() -> Option<RequestRepeat> {
    Some(RequestRepeat { rate: Some(1000.0), ..RequestRepeat::every(Duration::ZERO) })
}

fn tcp() -> (Service, Service) {
    let mut from = tcp_client();
    (from.client.load, from.client.repeat) = (Load { hold: Some(7), ..Load::new(1e9) }, repeat());
    let mut to = tcp_server();
    to.close = false;
    from.times = TcpTimes { retransmit: Duration::from_secs(10), ..from.times };
    (Service::TcpClient(from), Service::TcpServer(to))
}

fn udp() -> (Service, Service) {
    let mut from = udp_client();
    (from.client.load, from.client.repeat) = (Load { hold: Some(7), ..Load::new(1e9) }, repeat());
    from.timeout = Duration::from_secs(5);
    (Service::UdpClient(from), Service::UdpServer(udp_server()))
}

fn check<F: Hosts>(rig: &Rig<F>, censored: bool) {
    let latencies = rig.client.latencies();
    let (all, slow) = (latencies.transaction.count(), latencies.transaction.percentile(99.0).unwrap());
    assert!((2999..=3001).contains(&all), "each that was due: {all}");
    // A third was due while the server did not answer.
    assert!(slow > 900 * MILLISECOND, "{slow} ns");
    assert!(latencies.transaction.percentile(70.0).unwrap() > 50 * MILLISECOND);
    assert!(latencies.transaction.percentile(60.0).unwrap() < MILLISECOND);
    assert_eq!(latencies.censored > 0, censored, "{}", latencies.censored);
}

#[test]
fn answers_after_the_window_belong_to_it() {
    let (from, to) = tcp();
    let mut rig = stalled::<V4>(from, to, SECOND / 10);
    rig.run(SECOND, STEP);
    check(&rig, false);
    let (from, to) = udp();
    let mut rig = stalled::<V6>(from, to, SECOND / 10);
    rig.run(SECOND, STEP);
    check(&rig, false);
}

#[test]
fn what_is_never_answered_is_as_old_as_it_is() {
    let (from, to) = tcp();
    let mut rig = stalled::<V6>(from, to, SECOND / 10);
    rig.client.give_up(rig.now);
    check(&rig, true);
    let (from, to) = udp();
    let mut rig = stalled::<V4>(from, to, SECOND / 10);
    rig.client.give_up(rig.now);
    check(&rig, true);
}

/// A request that is lost took as long as was waited for it.
#[test]
fn lost_requests_are_among_the_slow_ones() {
    let (mut from, to) = udp();
    if let Service::UdpClient(udp) = &mut from {
        udp.timeout = Duration::from_millis(200);
    }
    let mut rig = stalled::<V4>(from, to, SECOND / 10);
    rig.run(3 * SECOND, STEP);
    let latencies = rig.client.latencies();
    assert!(rig.client.counters().udp_rt >= 28, "seven flows five times: {}", rig.client.counters().udp_rt);
    assert_eq!(latencies.censored, rig.client.counters().udp_rt);
    assert!((2999..=3001).contains(&latencies.transaction.count()), "{}", latencies.transaction.count());
    assert!(latencies.transaction.percentile(99.0).unwrap() > 900 * MILLISECOND);
}

/// Connections and requests over TCP that are given up while the load goes on took as long as was waited for them.
#[test]
fn failed_connections_are_among_the_slow_ones() {
    let (mut from, to) = tcp();
    if let Service::TcpClient(tcp) = &mut from {
        tcp.times = TcpTimes { retransmit: Duration::from_millis(50), retries: 1, ..tcp.times };
    }
    let mut rig = stalled::<V4>(from, to, SECOND / 10);
    let (latencies, errors) = (rig.client.latencies(), rig.client.counters().sk_err);
    assert!(errors >= 14, "seven connections twice: {errors}");
    assert!(latencies.censored >= errors - 7, "{} of {errors}", latencies.censored);
    assert!(latencies.handshake.max() >= Some(100 * MILLISECOND), "{:?}", latencies.handshake.max());
    rig.run(3 * SECOND, STEP);
    rig.client.give_up(rig.now);
    check(&rig, true);
}

/// A request that is answered by a reset has no answer.
#[test]
fn what_a_peer_resets_is_as_old_as_it_is() {
    let (from, to) = tcp();
    let mut rig = stalled::<V4>(from, to.clone(), SECOND / 10);
    // The server comes back and knows of nothing.
    rig.server = rig_packet::Engine::new(server::<V4>(to), rig.now).unwrap();
    rig.run(SECOND, STEP);
    assert!(rig.client.counters().sk_err >= 7, "{}", rig.client.counters().sk_err);
    rig.client.give_up(rig.now);
    check(&rig, true);
}
