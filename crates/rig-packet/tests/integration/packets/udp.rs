//! Requests over UDP and which answer is to which.

use std::time::Duration;

use rig_packet::{Config, Counters, Flood, Load, Payload, RequestRepeat, Service, UdpClient, UdpServer, V4, V6};
use rig_wire::ethernet::Ethernet;
use rig_wire::protocol;
use rig_wire::udp::{self, Udp};

use super::peer::Peer;
use super::rig::*;

/// One flow, whose requests have room for a number.
fn asking(interval: u64, requests: u16) -> UdpClient {
    let mut udp = udp_client();
    udp.client.load = Load::new(1e-6);
    let every = RequestRepeat::every(Duration::from_millis(interval));
    udp.client.repeat = Some(RequestRepeat { requests: Some(requests), ..every });
    udp.request = Payload::Filler(18);
    udp
}

fn answering(response: Payload) -> UdpServer {
    UdpServer { response, ..udp_server() }
}

/// A client and a server, and what becomes of answers.
fn rig<F: Hosts>(udp: UdpClient, response: Payload, to_client: FaultPlan) -> Rig<F> {
    let (a, b) = (client::<F>(Service::UdpClient(udp)), server::<F>(Service::UdpServer(answering(response))));
    let mut rig = Rig::with_faults(a, b, to_client, Box::new(|_, _| FrameFate::Pass));
    rig.run(3 * SECOND, MILLISECOND);
    rig
}

/// Sent, lost, late, repeated, without a number, and dropped.
fn books(counters: &Counters) -> [u64; 6] {
    let Counters { udp_tx, udp_rt, udp_late, udp_dup, udp_unnumbered, udp_drop, .. } = *counters;
    [udp_tx, udp_rt, udp_late, udp_dup, udp_unnumbered, udp_drop]
}

fn round_trips_beyond_the_interval<F: Hosts>() {
    let rig = rig::<F>(asking(10, 5), Payload::Filler(18), Box::new(|_, _| FrameFate::Later(15)));
    let counters = rig.client.counters();
    assert_eq!(books(counters), [5, 5, 5, 0, 0, 5], "{counters:?}");
    // Each was given up when the next was due, the last by `timeout`: it is as old as it was then.
    let latencies = rig.client.latencies();
    assert_eq!((latencies.transaction.count(), latencies.censored, counters.rtt_count), (5, 5, 0));
}

#[test]
fn an_answer_to_a_request_that_was_given_up_is_not_one_to_the_next() {
    round_trips_beyond_the_interval::<V4>();
    round_trips_beyond_the_interval::<V6>();
}

#[test]
fn an_answer_that_comes_twice_counts_once() {
    for nth in 0..5 {
        let twice = Box::new(move |n, _: &[u8]| if n == nth { FrameFate::Twice } else { FrameFate::Pass });
        let rig = rig::<V4>(asking(10, 5), Payload::Filler(18), twice);
        assert_eq!(books(rig.client.counters()), [5, 0, 0, 1, 0, 1], "{nth}");
        assert_eq!(rig.client.latencies().transaction.count(), 5);
    }
}

#[test]
fn of_datagrams_back_to_back_each_has_its_answer() {
    let mut udp = asking(0, 2);
    udp.client.repeat = udp.client.repeat.map(|repeat| RequestRepeat { pipeline: 3, ..repeat });
    // The first answer comes twice and the second is lost: two of three have theirs.
    let fates = Box::new(|n, _: &[u8]| match n {
        0 => FrameFate::Twice,
        1 => FrameFate::Drop,
        _ => FrameFate::Pass,
    });
    let rig = rig::<V6>(udp, Payload::Filler(18), fates);
    assert_eq!(books(rig.client.counters()), [6, 1, 0, 1, 0, 1]);
    // The one without an answer is among the six with its age.
    let latencies = rig.client.latencies();
    assert_eq!((latencies.transaction.count(), latencies.censored), (6, 1));
}

#[test]
fn a_flow_of_the_same_ends_does_not_take_the_answers_of_the_one_before() {
    // One port only, so that each flow has the ends of the one before; each answer takes longer than a flow lives.
    let mut udp = asking(0, 1);
    udp.client.repeat = None;
    udp.client.ports = 10_000..=10_000;
    udp.client.load = Load { hold: Some(1), ..Load::new(1e9) };
    udp.timeout = Duration::from_millis(10);
    let rig = rig::<V4>(udp, Payload::Filler(18), Box::new(|_, _| FrameFate::Later(15)));
    let counters = rig.client.counters();
    assert!(counters.sk_open > 200, "{counters:?}");
    assert_eq!((counters.sk_err, counters.rtt_count, counters.udp_late), (counters.sk_close, 0, counters.udp_rx));
}

#[test]
fn a_server_that_does_not_echo_is_answered_to_by_addresses_and_ports() {
    // As dperf's: with bytes of its own as payload.
    for own in [b"aaaaaaaaaaaaaaaaaa".as_slice(), b"12", b"hello dperf!"] {
        let udp = asking(10, 50);
        let service = Service::UdpClient(udp.clone());
        let rig = rig::<V4>(udp, own.into(), Box::new(|_, _| FrameFate::Pass));
        let counters = rig.client.counters();
        assert_eq!(books(counters), [50, 0, 0, 0, 50, 0]);
        assert_eq!(rig.client.latencies().transaction.count(), 50);
        let [doubt] = &service.doubts(counters)[..] else { panic!("nothing is said") };
        assert!(doubt.starts_with("50 answers did not begin with a request's number"), "{doubt}");
    }
}

#[test]
fn what_has_no_room_for_a_number_goes_without() {
    for request in [Payload::Filler(3), b"ping".into()] {
        let udp = UdpClient { request: request.clone(), ..asking(10, 5) };
        let rig = rig::<V4>(udp, Payload::Filler(18), Box::new(|_, _| FrameFate::Pass));
        assert_eq!(books(rig.client.counters()), [5, 0, 0, 0, 5, 0]);
        let sent = |frame: &Vec<u8>| frame[frame.len() - request.len() as usize..] == *request.bytes();
        assert!(rig.frames_of_client().iter().all(sent));
    }
}

/// What the hand has to say, in a datagram to the engine.
fn datagram<F: Hosts>(peer: &Peer<F>, (source_port, destination_port): (u16, u16), data: &[u8]) -> Vec<u8> {
    peer.frame(protocol::UDP, udp::HEADER + data.len(), |bytes, pseudo| {
        bytes[udp::HEADER..].copy_from_slice(data);
        udp::Header { source_port, destination_port }.write(bytes, data.len(), pseudo).unwrap();
    })
}

/// The payload of a frame, whose checksum is right.
fn payload<F: Hosts>(frame: &[u8]) -> Vec<u8> {
    assert!(describe(frame).starts_with("udp "));
    let packet = Ethernet::parse(frame).unwrap().payload();
    Udp::parse(&packet[F::HEADER..]).unwrap().payload().to_vec()
}

fn foreign<F: Hosts>() {
    // A server that echoes.
    let mut peer = Peer::<F>::new(client(Service::UdpClient(asking(0, 3))), false);
    peer.pass(1000);
    let mut numbers = Vec::new();
    for _ in 0..3 {
        let request = payload::<F>(&peer.sent_frames().remove(0));
        assert_eq!(&request[4..], [b'a'; 14]);
        numbers.push(u32::from_be_bytes(*request.first_chunk().unwrap()));
        peer.frames(&[datagram(&peer, (80, 10_000), &request)]);
    }
    assert!(numbers.is_sorted_by(|a, b| b.wrapping_sub(*a) == 1), "{numbers:?}");
    assert_eq!((books(peer.counters()), peer.counters().sk_close), ([3, 0, 0, 0, 0, 0], 1));

    // A client of another make is answered with what it sent, as far as there is room.
    let config: Config<F> = server(Service::UdpServer(answering(Payload::Filler(8))));
    let mut peer = Peer::new(config, true);
    for (request, response) in [(b"01234567".as_slice(), b"0123aaaa"), (b"0123", b"0123aaaa"), (b"012", b"aaaaaaaa")] {
        peer.frames(&[datagram(&peer, (40_000, 80), request)]);
        assert_eq!(payload::<F>(&peer.sent_frames().remove(0)), response);
    }
}

#[test]
fn others_take_part() {
    foreign::<V4>();
    foreign::<V6>();
}

#[test]
fn what_waits_at_the_end_is_counted() {
    let mut rig = rig::<V4>(asking(0, 1), Payload::Filler(18), Box::new(|_, _| FrameFate::Drop));
    rig.client.count_unfinished();
    assert_eq!((rig.client.counters().unfinished, rig.client.counters().udp_rt), (0, 1), "its time is over");
    let mut tcp = tcp_client();
    tcp.client.load = Load::new(1e-6);
    for (interval, left) in [(500, 0), (10_000, 1)] {
        tcp.client.repeat = Some(RequestRepeat::every(Duration::from_millis(interval)));
        let to = rig_packet::TcpServer { close: false, ..tcp_server() };
        let service = |tcp: &rig_packet::TcpClient| client::<V4>(Service::TcpClient(tcp.clone()));
        let mut rig = Rig::new(service(&tcp), server(Service::TcpServer(to)));
        rig.pass(1000);
        rig.client.count_unfinished();
        assert_eq!(rig.client.counters().unfinished, 1, "a SYN is under way");
        rig.run(MILLISECOND, 1000);
        rig.client.wind_down();
        rig.run(20 * SECOND, 10 * MILLISECOND);
        rig.client.count_unfinished();
        let counters = rig.client.counters();
        // One that would close long after the end is left as it is, and that is no loss.
        assert_eq!((counters.sk_con(), counters.unfinished, counters.sk_err), (left, 0, 0), "{interval} ms");
    }
}

/// A hundred frames of a size one way, of which the network drops some; what the server counted, and the frames.
fn one_way<F: Hosts>(payload: u32, peer_clock_ns: i64, lost: &'static [u64]) -> Rig<F> {
    let mut udp = udp_client();
    udp.client.load = Load::new(1000.0);
    udp.client.ports = 49_184..=49_184;
    udp.client.flood = Some(Flood { stamped: true, most: Some(100), ..Flood::default() });
    udp.request = Payload::Filler(payload);
    let server = UdpServer { one_way: true, ..udp_server() };
    let (a, b) = (client::<F>(Service::UdpClient(udp)), super::rig::server::<F>(Service::UdpServer(server)));
    let dropping = Box::new(move |n, _: &[u8]| if lost.contains(&n) { FrameFate::Drop } else { FrameFate::Pass });
    let mut rig = Rig::with_faults(a, b, Box::new(|_, _| FrameFate::Pass), dropping);
    rig.server.set_peer_clock(peer_clock_ns);
    rig.run(SECOND, MILLISECOND);
    rig
}

#[test]
fn frames_one_way_are_counted_timed_and_not_answered() {
    fn of<F: Hosts>(payload: u32, frame: u64) {
        let rig = one_way::<F>(payload, 0, &[]);
        let (sent, received) = (rig.client.counters(), rig.server.counters());
        assert_eq!((sent.udp_tx, sent.bits_tx, sent.udp_rx), (100, 100 * frame * 8, 0), "{sent:?}");
        assert_eq!((received.udp_rx, received.udp_tx, received.bad_rx, received.udp_drop), (100, 0, 0, 0));
        let latencies = rig.server.latencies();
        assert_eq!((latencies.transaction.count(), latencies.lost_before), (100, None));
        assert!(latencies.transaction.percentile(0.0) >= Some(1), "none comes before it was sent");
    }
    // Without the frame check sequence: 64 bytes and 1518 on the wire.
    of::<V4>(18, 60);
    of::<V4>(1472, 1514);
    of::<V6>(12, 74);
}

#[test]
fn a_frame_that_is_missing_tells_when_it_was_lost() {
    let whole = one_way::<V4>(18, 0, &[]);
    let rig = one_way::<V4>(18, 0, &[10, 40, 41]);
    assert_eq!(rig.server.counters().udp_rx, 97);
    let times = |rig: &Rig<V4>| -> Vec<u64> {
        let stamp = |frame: &Vec<u8>| u64::from_be_bytes(frame[42..50].try_into().unwrap());
        rig.frames_of_client().iter().map(stamp).collect()
    };
    assert_eq!(rig.server.latencies().lost_before, Some(times(&whole)[42]));
    // By the receiver's clock, behind which the sender's is.
    let ahead = one_way::<V4>(18, 1_000_000_000, &[10, 40, 41]);
    assert_eq!(ahead.server.latencies().lost_before, Some(times(&whole)[42] + 1_000_000_000));
}

#[test]
fn a_datagram_without_room_for_time_and_number_is_dropped() {
    let mut short = udp_client();
    short.client.load = Load::new(1000.0);
    short.client.flood = Some(Flood { most: Some(10), ..Flood::default() });
    for bytes in [1, 8, 11] {
        short.request = Payload::Filler(bytes);
        let server = UdpServer { one_way: true, ..udp_server() };
        let (a, b) = (client::<V4>(Service::UdpClient(short.clone())), super::rig::server(Service::UdpServer(server)));
        let mut rig = Rig::new(a, b);
        rig.run(SECOND, MILLISECOND);
        let counters = rig.server.counters();
        assert_eq!((counters.udp_rx, counters.udp_drop, rig.server.latencies().transaction.count()), (10, 10, 0));
    }
}
