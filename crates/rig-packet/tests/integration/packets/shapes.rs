//! How much is sent, when, on which connection: exact counts by a clock that is set by hand.

use std::net::Ipv4Addr;
use std::time::Duration;

use rig_packet::{
    AddressStride, Config, Engine, Flood, FloodPackets, Load, Port, Receive, RequestRepeat, Service, TupleOrder,
    UdpClient, V4, V6, memory,
};
use rig_wire::{FlowKey, protocol};

use super::rig::*;

/// A load of datagrams that are answered.
fn udp(load: Load, repeat: Option<RequestRepeat>) -> UdpClient {
    let mut udp = udp_client();
    (udp.client.load, udp.client.repeat) = (load, repeat);
    udp
}

fn rig(udp: UdpClient) -> Rig<V4> {
    Rig::new(client::<V4>(Service::UdpClient(udp)), server::<V4>(Service::UdpServer(udp_server())))
}

fn rate(rate: f64) -> Option<RequestRepeat> {
    Some(RequestRepeat { rate: Some(rate), ..RequestRepeat::every(Duration::ZERO) })
}

fn hold(connections: u32) -> Load {
    Load { hold: Some(connections), ..Load::new(1e9) }
}

/// What an engine sends without an answer, pass by pass, `step` apart.
fn alone(config: Config<V4>, duration: u64, step: u64) -> (Vec<Vec<FlowKey>>, Engine<V4>) {
    let (mut ours, mut theirs) = memory::pair(64);
    let mut engine = Engine::new(config, 0).unwrap();
    let mut passes = Vec::new();
    for now in (0..duration).step_by(step as usize) {
        engine.pass(SECOND + now, &mut ours);
        let mut pass = Vec::new();
        loop {
            let receive = theirs.halves().0;
            let frames = receive.poll();
            if frames == 0 {
                break;
            }
            pass.extend((0..frames).map(|n| FlowKey::of(receive.frame(n)).unwrap().unwrap()));
        }
        passes.push(pass);
    }
    (passes, engine)
}

#[test]
fn requests_keep_a_rate_of_their_own_on_whoever_has_rested_longest() {
    let mut rig = rig(udp(hold(7), rate(1000.0)));
    rig.run(SECOND, 100_000);
    // At 0, 1, 2 ... 999 ms, each answered before the next.
    let counters = rig.client.counters();
    assert_eq!((counters.udp_tx, counters.udp_rx, counters.sk_open, counters.late), (1000, 1000, 7, 0));
    let ports: Vec<_> =
        rig.frames_of_client().iter().map(|frame| FlowKey::of(frame).unwrap().unwrap().source.port()).collect();
    // The first flow had its answer before the others were opened.
    for (n, port) in ports[1..].iter().enumerate() {
        assert_eq!(*port, 10_000 + (n % 7) as u16, "request {}", n + 1);
    }
    let latency = rig.client.latencies().transaction.max().unwrap();
    assert!(latency <= 101_000, "{latency} ns from when it was due");
    rig.finish();
    rig.assert_nothing_is_stuck();
    assert_eq!(rig.client.counters().sk_err, 0);
}

#[test]
fn a_request_that_finds_nobody_resting_is_late_and_not_lost() {
    // One flow whose answers take 5 ms: it carries 200 requests of 1000 a second.
    let mut rig = rig(udp(hold(1), rate(1000.0)));
    rig.run(SECOND, 5 * MILLISECOND);
    let asked = rig.client.counters().udp_tx;
    assert!((195..=201).contains(&asked), "{asked}");
    let waited = rig.client.latencies().transaction.max().unwrap();
    assert!(waited > 700 * MILLISECOND, "{waited} ns");
    assert!(rig.client.counters().late >= asked - 2);
    // When the network is faster again, all that were due are made up for.
    rig.run(SECOND, 10_000);
    let asked = rig.client.counters().udp_tx;
    assert!((1999..=2001).contains(&asked), "{asked} in two seconds");
    // And when the rate changes, what is overdue is given up, and counted.
    rig.run(SECOND / 2, 5 * MILLISECOND);
    let before = rig.client.counters().udp_tx;
    let now = rig.now;
    rig.client.set_request_rate(100.0, now);
    let missed = rig.client.counters().missed;
    assert!((2490..=2510).contains(&(before + missed)), "{before} and {missed}");
    rig.run(SECOND, 10_000);
    let counters = rig.client.counters();
    assert!((99..=102).contains(&(counters.udp_tx - before)), "{}", counters.udp_tx - before);
}

#[test]
fn tcp_keeps_a_rate_of_requests() {
    let mut tcp = tcp_client();
    (tcp.client.load, tcp.client.repeat) = (hold(10), rate(2000.0));
    let mut to = tcp_server();
    to.close = false;
    let mut rig = Rig::new(client::<V6>(Service::TcpClient(tcp)), server::<V6>(Service::TcpServer(to)));
    rig.run(SECOND, 50_000);
    let counters = rig.client.counters();
    // The first is due when the first connection is there, two passes later.
    assert!((1999..=2000).contains(&counters.tcp_req), "{}", counters.tcp_req);
    assert_eq!((counters.sk_open, counters.late), (10, 0));
    let sent = rig.sent_by_client();
    assert_eq!(sent[..2], ["SYN", "ACK"], "no request before its turn");
    assert_eq!(sent[2..11], ["SYN"; 9]);
    assert_eq!(sent[11], "PSH ACK 32");
    assert_eq!(sent[12..21], ["ACK"; 9]);
    let latencies = rig.client.latencies();
    assert_eq!((latencies.first_byte.count(), latencies.transaction.count()), (counters.tcp_rsp, counters.tcp_rsp));
    rig.finish();
    rig.assert_nothing_is_stuck();
    assert_eq!((rig.client.counters().sk_err, rig.server.counters().sk_err), (0, 0));
}

#[test]
fn a_rate_of_requests_outlives_a_bad_network() {
    let mut tcp = tcp_client();
    (tcp.client.load, tcp.client.repeat) = (hold(10), rate(1000.0));
    tcp.client.repeat.as_mut().unwrap().requests = Some(20);
    tcp.times.retransmit = Duration::from_millis(5);
    let mut to = tcp_server();
    (to.close, to.times.retransmit) = (false, Duration::from_millis(6));
    let fates = |every: u64| -> FaultPlan {
        Box::new(move |n, _| if n % every == every - 1 { FrameFate::Drop } else { FrameFate::Pass })
    };
    let (a, b) = (client::<V4>(Service::TcpClient(tcp)), server::<V4>(Service::TcpServer(to)));
    let mut rig = Rig::with_faults(a, b, fates(31), fates(23));
    rig.run(20 * SECOND, 500_000);
    let counters = rig.client.counters();
    assert!(counters.tcp_req > 15_000 && counters.push_rt > 300, "{counters:?}");
    rig.finish();
    rig.assert_nothing_is_stuck();
}

#[test]
fn a_pipeline_is_sent_back_to_back_and_waited_for() {
    let mut repeat = RequestRepeat { pipeline: 5, requests: Some(3), ..RequestRepeat::every(Duration::ZERO) };
    let mut pair = rig(udp(hold(1), Some(repeat)));
    pair.pass(1000);
    assert_eq!(pair.client.counters().udp_tx, 5);
    pair.pass(1000);
    assert_eq!((pair.client.counters().udp_rx, pair.client.counters().udp_tx), (5, 10));
    // One answer of the third time is lost: it is counted alone, and the flow has failed.
    repeat.requests = Some(1);
    let lost: FaultPlan = Box::new(|n, _| if n == 2 { FrameFate::Drop } else { FrameFate::Pass });
    let (a, b) = (client(Service::UdpClient(udp(hold(1), Some(repeat)))), server(Service::UdpServer(udp_server())));
    let mut pair = Rig::<V4>::with_faults(a, b, lost, Box::new(|_, _| FrameFate::Pass));
    pair.pass(MILLISECOND);
    pair.client.wind_down();
    pair.run(2 * SECOND, MILLISECOND);
    let counters = pair.client.counters();
    assert_eq!((counters.udp_tx, counters.udp_rx, counters.udp_rt), (5, 4, 1));
    assert_eq!((counters.sk_err, counters.sk_con(), counters.rtt_count), (1, 0, 4));
    assert_eq!(counters.rtt_sum, 4 * MILLISECOND);
}

#[test]
fn answers_that_come_late_or_twice_are_dropped_and_counted() {
    let twice: FaultPlan = Box::new(|n, _| match n {
        0 => FrameFate::Twice,
        1 => FrameFate::Later(30),
        _ => FrameFate::Pass,
    });
    let repeat = RequestRepeat::every(Duration::from_millis(10));
    let (a, b) = (client(Service::UdpClient(udp(hold(1), Some(repeat)))), server(Service::UdpServer(udp_server())));
    let mut rig = Rig::<V4>::with_faults(a, b, twice, Box::new(|_, _| FrameFate::Pass));
    // The second answer comes 30 ms late, while the flow rests.
    rig.run(60 * MILLISECOND, MILLISECOND);
    let counters = rig.client.counters();
    assert_eq!((counters.udp_tx, counters.udp_rx, counters.udp_rt, counters.udp_drop), (6, 7, 1, 2));
}

#[test]
fn connections_are_launched_together() {
    let udp = udp(Load { launch: Some(5), ..Load::new(1000.0) }, None);
    let (passes, _) = alone(client(Service::UdpClient(udp)), 20 * MILLISECOND, MILLISECOND);
    let counts: Vec<_> = passes.iter().map(Vec::len).collect();
    assert_eq!(counts, [5, 0, 0, 0, 0].repeat(4));
}

#[test]
fn a_number_is_held_and_replaced_no_faster_than_the_rate() {
    // Flows end after two requests, 10 ms apart: without a rate 4 of them would make 400 a second.
    let repeat = Some(RequestRepeat { requests: Some(2), ..RequestRepeat::every(Duration::from_millis(10)) });
    let mut rig = rig(udp(Load { hold: Some(4), ..Load::new(100.0) }, repeat));
    rig.run(SECOND, 100_000);
    let counters = rig.client.counters();
    assert!((98..=101).contains(&counters.sk_open), "{}", counters.sk_open);
    let now = rig.now;
    rig.client.set_rate(1e6, now);
    let mut most = 0;
    for _ in 0..10_000 {
        rig.pass(100_000);
        most = most.max(rig.client.counters().sk_con());
    }
    assert_eq!(most, 4);
    let opened = rig.client.counters().sk_open - 100;
    assert!((380..=405).contains(&opened), "{opened}: as fast as they end");
    rig.client.set_hold(Some(9));
    rig.run(10 * MILLISECOND, 100_000);
    assert_eq!(rig.client.counters().sk_con(), 9);
    rig.client.set_hold(Some(2));
    rig.run(50 * MILLISECOND, 100_000);
    assert_eq!(rig.client.counters().sk_con(), 2);
}

#[test]
fn a_rate_changes_without_a_burst_or_a_gap() {
    let (mut ours, mut theirs) = memory::pair(64);
    let udp = udp(Load::new(1000.0), None);
    let mut config = client::<V4>(Service::UdpClient(udp));
    config.capacity = 100_000;
    let mut engine = Engine::new(config, 0).unwrap();
    let mut sent = Vec::new();
    for tick in 0..40_000u64 {
        let now = SECOND + tick * 50_000;
        if tick == 10_000 {
            engine.set_rate(5000.0, now);
        }
        if tick == 20_000 {
            engine.set_rate(0.0, now);
        }
        if tick == 30_000 {
            engine.set_rate(200.0, now);
        }
        engine.pass(now, &mut ours);
        sent.push(theirs.halves().0.poll());
    }
    let between = |range: std::ops::Range<usize>| sent[range].iter().sum::<usize>();
    assert_eq!([between(0..10_000), between(10_000..20_000), between(20_000..30_000)], [500, 2500, 0]);
    assert_eq!(between(30_000..40_000), 100);
    assert!(sent.iter().all(|&frames| frames <= 1), "no burst");
    assert_eq!((engine.counters().missed, engine.counters().late), (0, 0));
}

#[test]
fn a_flood_sends_at_its_rate_and_keeps_nothing() {
    let mut udp = udp(Load::new(1e6), None);
    udp.client.flood = Some(Flood::default());
    let mut config = client(Service::UdpClient(udp));
    config.capacity = 1;
    let (passes, engine) = alone(config, 10 * MILLISECOND, 10_000);
    let counters = engine.counters();
    assert_eq!((counters.udp_tx, counters.sk_open, counters.sk_con(), counters.no_socket), (9991, 9991, 0, 0));
    let flows: Vec<_> = passes.concat();
    let unique: std::collections::HashSet<_> = flows.iter().collect();
    assert_eq!(unique.len(), flows.len(), "each is between ends of its own");
}

#[test]
fn a_flood_of_syns_goes_to_its_destinations_in_turn() {
    let mut tcp = tcp_client();
    tcp.client.load = Load::new(1000.0);
    let stride = |first: [u8; 4], step, count| AddressStride { first: first.into(), step, count };
    let destinations = vec![stride([10, 5, 0, 1], 256, 3), stride([10, 6, 0, 9], 1, 1)];
    tcp.client.flood = Some(Flood { destinations, ..Flood::default() });
    let (passes, engine) = alone(client(Service::TcpClient(tcp)), 8 * MILLISECOND, MILLISECOND);
    let flows: Vec<_> = passes.concat();
    let expected = [[10, 5, 0, 1], [10, 5, 1, 1], [10, 5, 2, 1], [10, 6, 0, 9]].map(Ipv4Addr::from).repeat(2);
    assert_eq!(flows.iter().map(|flow| flow.destination.ip()).collect::<Vec<_>>(), expected);
    assert!(flows.iter().all(|flow| flow.protocol == protocol::TCP && flow.destination.port() == 80));
    assert_eq!((engine.counters().syn_tx, engine.counters().tcp_tx), (8, 8));
}

#[test]
fn a_flood_may_be_of_acknowledgments_or_of_all_in_turn() {
    for (packets, counted, udp) in [(FloodPackets::Ack, (0, 9), 0), (FloodPackets::Mixed, (3, 6), 3)] {
        let mut tcp = tcp_client();
        tcp.client.load = Load::new(1000.0);
        tcp.client.flood = Some(Flood { packets, ..Flood::default() });
        let (passes, engine) = alone(client(Service::TcpClient(tcp)), 9 * MILLISECOND, MILLISECOND);
        let counters = engine.counters();
        assert_eq!((counters.syn_tx, counters.tcp_tx), counted, "{packets:?}");
        assert_eq!((counters.udp_tx, counters.sk_con()), (udp, 0), "{packets:?}");
        let datagrams = passes.concat().iter().filter(|flow| flow.protocol == protocol::UDP).count();
        assert_eq!(datagrams as u64, udp, "{packets:?}");
    }
}

/// Services have their turns as the kinds of packets have.
#[test]
fn each_service_gets_each_kind_of_a_mixed_flood() {
    for services in [1, 3, 4, 6, 9] {
        let mut tcp = tcp_client();
        (tcp.client.load, tcp.client.walk) = (Load::new(1e6), TupleOrder::Hop);
        (tcp.client.ports, tcp.client.flood) =
            (1024..=65000, Some(Flood { packets: FloodPackets::Mixed, ..Flood::default() }));
        let mut config = client::<V4>(Service::TcpClient(tcp));
        (config.local, config.remote) = (vec![(V4::CLIENT, 8)], vec![(V4::SERVER, services)]);
        let (passes, engine) = alone(config, u64::from(services) * 300_000, 1000);
        let flows = passes.concat();
        assert_eq!(flows.len() as u64, u64::from(services) * 300);
        assert_eq!(engine.counters().udp_tx, u64::from(services) * 100, "{services}");
        let mut datagrams = std::collections::HashMap::<_, (u32, u32)>::new();
        for flow in &flows {
            let (all, udp) = datagrams.entry(flow.destination.ip()).or_default();
            (*all, *udp) = (*all + 1, *udp + u32::from(flow.protocol == protocol::UDP));
        }
        assert_eq!(datagrams.len(), services as usize);
        for (service, (all, udp)) in datagrams {
            assert!((60..=140).contains(&udp), "{service} of {services}: {udp} of {all}");
        }
    }
}

#[test]
fn a_flood_of_flows_repeats_at_their_interval_or_in_turn() {
    for (repeat, steps) in [(RequestRepeat::every(Duration::from_millis(5)), 3), (rate(600.0).unwrap(), 1)] {
        let load = Load { launch: Some(3), ..hold(3) };
        let mut udp = udp(load, Some(RequestRepeat { pipeline: 2, ..repeat }));
        udp.client.flood = Some(Flood::default());
        let (passes, engine) = alone(client(Service::UdpClient(udp)), SECOND, 100_000);
        let counters = engine.counters();
        // Three flows each 5 ms, or one of them 600 times a second; two datagrams each time.
        assert!((1196..=1200).contains(&counters.udp_tx), "{}", counters.udp_tx);
        assert_eq!((counters.sk_open, counters.sk_con(), counters.late), (3, 3, 0));
        let first = passes.iter().find(|pass| !pass.is_empty()).unwrap();
        assert_eq!(first.len(), 2 * steps);
        assert_eq!(first[0], first[1]);
    }
}

#[test]
fn hopping_changes_address_and_port() {
    let mut udp = udp(Load::new(1e6), None);
    (udp.client.ports, udp.client.walk, udp.client.flood) = (100..=105, TupleOrder::Hop, Some(Flood::default()));
    let mut config = client::<V4>(Service::UdpClient(udp));
    config.local = vec![(V4::CLIENT, 4)];
    let (passes, _) = alone(config, 24_000, 1000);
    let flows = passes.concat();
    for pair in flows.windows(2) {
        assert!(pair[0].source.ip() != pair[1].source.ip() && pair[0].source.port() != pair[1].source.port());
    }
    let unique: std::collections::HashSet<_> = flows.iter().map(|flow| flow.source).collect();
    assert_eq!((flows.len(), unique.len()), (24, 24), "all combinations, each once");
}

#[test]
fn each_server_has_a_row() {
    let mut udp =
        udp(hold(6), Some(RequestRepeat { requests: Some(2), ..RequestRepeat::every(Duration::from_millis(1)) }));
    (udp.client.ports, udp.client.server_ports) = (500..=500, 80..=81);
    let mut to = udp_server();
    to.server.ports = 80..=81;
    let mut a = client::<V4>(Service::UdpClient(udp));
    let mut b = server::<V4>(Service::UdpServer(to));
    (a.remote, b.local) = (vec![(V4::SERVER, 3)], vec![(V4::SERVER, 3)]);
    // What is for the second address and port 81 does not come.
    let lost: FaultPlan = Box::new(|_, frame| {
        let flow = FlowKey::of(frame).unwrap().unwrap();
        let lost = flow.destination == (Ipv4Addr::new(10, 0, 1, 2), 81).into();
        if lost { FrameFate::Drop } else { FrameFate::Pass }
    });
    let mut rig = Rig::with_faults(a, b, Box::new(|_, _| FrameFate::Pass), lost);
    rig.run(2000, 1000);
    assert_eq!(rig.client.counters().sk_open, 6);
    rig.client.set_hold(Some(0));
    rig.run(2 * SECOND, MILLISECOND / 2);
    let rows = |engine: &Engine<V4>| {
        engine
            .rows()
            .map(|(end, row)| (end.to_string(), row.opened, row.requests, row.responses, row.errors))
            .collect::<Vec<_>>()
    };
    let client = rows(&rig.client);
    assert_eq!(client.len(), 6);
    for (end, opened, requests, responses, errors) in client {
        let expected = if end == "10.0.1.2:81" { (1, 2, 0, 2) } else { (1, 2, 2, 0) };
        assert_eq!((opened, requests, responses, errors), expected, "{end}");
    }
    let served: Vec<_> =
        rows(&rig.server).into_iter().map(|(end, _, requests, responses, _)| (end, requests, responses)).collect();
    assert_eq!(served[0], ("10.0.1.1:80".to_owned(), 2, 2));
    assert_eq!(served[3], ("10.0.1.2:81".to_owned(), 0, 0));
    // Threads with one server each are told apart by it.
    let mut rig = self::rig(self::udp(hold(1), None));
    rig.run(MILLISECOND, 1000);
    let row = rows(&rig.client);
    let counters = rig.client.counters();
    let (asked, answered) = (counters.udp_tx, counters.udp_rx);
    assert_eq!(row, [("10.0.1.1:80".to_owned(), counters.sk_open, asked, answered, 0)]);
    assert!(answered > 0);
}
