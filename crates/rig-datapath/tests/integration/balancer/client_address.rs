//! How backends are told of clients' addresses, on packets: every byte out.

use rig_datapath::balancer::{ClientAddress, CookieSecret, Drop, Service, SynProxy};
use rig_datapath::test_run::Verdict;
use rig_wire::tcp::flags::{ACK, FIN, RST, SYN};

use super::frames::icmp_error;
use super::lab::Lab;
use super::syn_proxy::{Segment, segment};
use super::{backend, config, full_nat, service, small};

const CLIENT: &str = "10.0.0.50:5000";
const SERVICE: &str = "10.0.0.200:80";
const BACKEND: &str = "10.0.0.10:8080";
const LOCAL: &str = "10.0.0.100";
const CLIENT_V6: &str = "[fd00::50]:5000";
const SERVICE_V6: &str = "[fd00::200]:80";
const BACKEND_V6: &str = "[fd00::10]:8080";
/// Kind, length, port 5000, address.
const TOA: [u8; 8] = [254, 8, 0x13, 0x88, 10, 0, 0, 50];
const TOA_V6: [u8; 20] = [254, 20, 0x13, 0x88, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x50];
/// As Linux has them: MSS, SACK, timestamps, window scale.
const OFFER: [u8; 20] = [2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 1, 0, 0, 0, 0, 0, 1, 3, 3, 9];
const TIMES: [u8; 12] = [1, 1, 8, 10, 0, 0, 1, 1, 0, 0, 9, 9];

fn lab(client_address: ClientAddress, syn_proxy: SynProxy) -> Option<Lab> {
    let one = |address, local, at| Service {
        client_address,
        syn_proxy,
        ..service(address, full_nat(&[local]), &[backend(at, 1)])
    };
    let lab = Lab::new(small(), &config(&[one(SERVICE, LOCAL, BACKEND), one(SERVICE_V6, "fd00::100", BACKEND_V6)]))?;
    lab.balancer.set_cookie_secret(CookieSecret::from(*b"sixteen bytes ..")).unwrap();
    lab.balancer.set_cookie_epoch(1001).unwrap();
    Some(lab)
}

fn toa() -> Option<Lab> {
    lab(ClientAddress::Toa, SynProxy::Off)
}

fn from_client(flags: u8, options: &[u8]) -> Segment {
    Segment {
        sequence: 7000,
        acknowledged: 900,
        window: 500,
        options: options.to_vec(),
        ..segment(CLIENT, SERVICE, flags)
    }
}

/// What goes on of it: to whom, with these options.
fn to_backend(said: &Segment, seen: &Segment, to: &str, options: &[&[u8]]) -> Segment {
    Segment { source: seen.source, destination: to.parse().unwrap(), options: options.concat(), ..said.clone() }
}

#[track_caller]
fn forwarded(lab: &Lab, said: &Segment, to: &str, options: &[&[u8]]) -> Segment {
    let seen = Segment::of(&lab.sent(&said.bytes()));
    assert_eq!(seen, to_backend(said, &seen, to, options));
    seen
}

#[test]
fn all_segments_have_it_until_the_backend_has_answered() {
    for (client, service, backend, option) in
        [(CLIENT, SERVICE, BACKEND, &TOA[..]), (CLIENT_V6, SERVICE_V6, BACKEND_V6, &TOA_V6)]
    {
        let Some(lab) = toa() else { return };
        let by = option.len() as u16;
        let said = |flags, options: &[u8]| Segment {
            source: client.parse().unwrap(),
            destination: service.parse().unwrap(),
            ..from_client(flags, options)
        };
        let local = forwarded(&lab, &said(SYN, &OFFER), backend, &[option, &OFFER]).source.to_string();
        // Once more, as it was lost.
        forwarded(&lab, &said(SYN, &OFFER), backend, &[option, &OFFER]);
        // The client is told that segments may be so much smaller.
        let answer = |flags, mss: u16| Segment {
            options: [&[1, 2, 4][..], &mss.to_be_bytes(), &[4, 2, 0]].concat(),
            ..segment(backend, &local, flags)
        };
        for _ in 0..2 {
            let seen = Segment::of(&lab.sent(&answer(SYN | ACK, 1460).bytes()));
            assert_eq!(seen.options, answer(SYN | ACK, 1460 - by).options);
        }
        // One that is small enough for any link stays.
        let seen = Segment::of(&lab.sent(&answer(SYN | ACK, 215 + by).bytes()));
        assert_eq!(seen.options, answer(SYN | ACK, 215 + by).options);
        let data = Segment { payload: b"GET /".to_vec(), ..said(ACK, &TIMES) };
        for _ in 0..2 {
            forwarded(&lab, &said(ACK, &TIMES), backend, &[option, &TIMES]);
            forwarded(&lab, &data, backend, &[option, &TIMES]);
        }
        // A reset ends it all, and says nothing.
        forwarded(&lab, &said(RST, &[]), backend, &[]);
        // So does a backend answer what it does not take, before the handshake is over.
        lab.sent(&segment(backend, &local, ACK).bytes());
        forwarded(&lab, &data, backend, &[option, &TIMES]);
        // Who says something has got it.
        lab.sent(&Segment { payload: b"2".to_vec(), ..segment(backend, &local, ACK) }.bytes());
        forwarded(&lab, &data, backend, &[&TIMES]);
        forwarded(&lab, &said(SYN, &OFFER), backend, &[&OFFER]);
        assert_eq!(lab.drops(), []);
    }
}

/// A client makes the backend acknowledge before the handshake is over, and says then who it is.
#[test]
fn an_acknowledgment_alone_lets_no_lie_through() {
    let lie = [254, 8, 0, 80, 127, 0, 0, 1];
    let void = [253, 8, 0, 80, 127, 0, 0, 1];
    for syn_proxy in [SynProxy::Off, SynProxy::Always] {
        let Some(lab) = lab(ClientAddress::Toa, syn_proxy) else { return };
        let said = |flags, sequence, acknowledged, options: &[u8]| {
            let segment = Segment { sequence, acknowledged, ..from_client(flags, options) };
            Segment::of(&lab.sent(&segment.bytes()))
        };
        let mut seen = said(SYN, 7000, 0, &OFFER);
        let mut expected = 101;
        if syn_proxy == SynProxy::Always {
            expected = seen.sequence.wrapping_add(1);
            seen = said(ACK, 7001, expected, &[]);
        }
        let local = seen.source.to_string();
        let of_backend = |flags, sequence| Segment { sequence, acknowledged: 7001, ..segment(BACKEND, &local, flags) };
        lab.sent(&of_backend(SYN | ACK, 100).bytes());
        let outside = said(ACK, 7001_u32.wrapping_sub(100_000), expected, &[]);
        assert_eq!(outside.options, TOA);
        lab.sent(&of_backend(ACK, 101).bytes());
        assert_eq!(said(ACK, 7001, expected, &lie).options, [TOA, void].concat());
        // Its end is as good as data.
        lab.sent(&of_backend(FIN | ACK, 101).bytes());
        assert!(said(ACK, 7001, expected, &[]).options.is_empty());
    }
}

#[test]
fn what_has_no_room_goes_without_and_is_counted() {
    let Some(lab) = toa() else { return };
    let full = [1; 40];
    forwarded(&lab, &from_client(SYN, &full[..32]), BACKEND, &[&TOA, &full[..32]]);
    assert_eq!(lab.drops(), []);
    forwarded(&lab, &from_client(SYN, &full[..36]), BACKEND, &[&full[..36]]);
    assert_eq!(lab.drops(), [(Drop::NotTold, 1)]);
    // Its connection does not begin with it.
    let (fast, void) = ([&[34, 34][..], &[7; 32]].concat(), [&[253, 34][..], &[7; 32]].concat());
    forwarded(&lab, &from_client(SYN, &[&fast[..], &[1; 2]].concat()), BACKEND, &[&void, &[1; 2]]);
    forwarded(&lab, &from_client(SYN, &[34, 6, 1, 2, 3, 4, 1, 1]), BACKEND, &[&TOA, &[34, 6, 1, 2, 3, 4, 1, 1]]);
    assert_eq!(lab.drops(), [(Drop::NotTold, 2)]);
    // The link's MTU is 1500.
    let of = |length: usize| Segment { payload: vec![7; length], ..from_client(ACK, &[]) };
    forwarded(&lab, &of(1452), BACKEND, &[&TOA]);
    let told = lab.send(&of(1453).bytes());
    assert_eq!(
        (told.frame[34..36].to_vec(), told.frame[40..42].to_vec()),
        (vec![3, 4], 1492_u16.to_be_bytes().to_vec())
    );
    assert_eq!(lab.drops(), [(Drop::TooBigTold, 1), (Drop::NotTold, 2)]);
    let refused = &lab.balancer.services().unwrap()[0].refused;
    assert!(refused.contains(&(Drop::NotTold, 2)), "{refused:?}");
}

/// A program's socket of Multipath TCP is none that the option is of, and its numbers would count the prefix.
#[test]
fn clients_are_taken_for_ones_without_multipath_tcp() {
    let (offer, void) = ([30, 4, 1, 1], [253, 4, 1, 1]);
    for (how, option) in [(ClientAddress::Toa, &TOA[..]), (ClientAddress::ProxyV2, &[])] {
        let Some(lab) = lab(how, SynProxy::Off) else { return };
        forwarded(&lab, &from_client(SYN, &[&OFFER[..], &offer].concat()), BACKEND, &[option, &OFFER, &void]);
    }
}

/// What a client says of itself in its place is not what the backend reads.
#[test]
fn a_clients_own_option_is_void() {
    let Some(lab) = toa() else { return };
    let (lie, void) = ([254, 8, 0, 80, 127, 0, 0, 1], [253, 8, 0, 80, 127, 0, 0, 1]);
    forwarded(&lab, &from_client(SYN, &lie), BACKEND, &[&TOA, &void]);
    // Also where it is not on a word's boundary, behind many others, and where it leaves no room.
    let shifted = [&[1; 3][..], &lie, &[1; 21]].concat();
    forwarded(&lab, &from_client(ACK, &shifted), BACKEND, &[&TOA, &[1; 3], &void, &[1; 21]]);
    let last = [&[1; 31][..], &lie, &[0]].concat();
    forwarded(&lab, &from_client(SYN, &last), BACKEND, &[&[1; 31], &void, &[0]]);
}

/// As with the D-SACK that answers the SYN proxy: a header that is full has room without what is no timestamps.
#[test]
fn a_full_header_keeps_timestamps() {
    let Some(lab) = toa() else { return };
    forwarded(&lab, &from_client(SYN, &OFFER), BACKEND, &[&TOA, &OFFER]);
    let sack = [&[1, 1, 5, 26][..], &[7; 24]].concat();
    let full = [&TIMES[..], &sack].concat();
    forwarded(&lab, &from_client(ACK, &full), BACKEND, &[&TOA, &TIMES, &[1; 20]]);
    forwarded(&lab, &from_client(ACK, &[1; 40]), BACKEND, &[&TOA, &[1; 32]]);
    let six = |options: &[u8]| Segment {
        source: CLIENT_V6.parse().unwrap(),
        destination: SERVICE_V6.parse().unwrap(),
        payload: b"and data".to_vec(),
        ..from_client(ACK, options)
    };
    forwarded(&lab, &Segment { flags: SYN, ..six(&OFFER) }, BACKEND_V6, &[&TOA_V6, &OFFER]);
    let duplicate = [&TIMES[..], &[1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2]].concat();
    forwarded(&lab, &six(&duplicate), BACKEND_V6, &[&TOA_V6, &TIMES]);
    forwarded(&lab, &six(&full), BACKEND_V6, &[&TOA_V6, &TIMES, &[1; 8]]);
    forwarded(&lab, &six(&[1; 24]), BACKEND_V6, &[&TOA_V6, &[1; 4]]);
    assert_eq!(lab.drops(), []);
}

#[test]
fn the_syn_proxys_segments_have_it() {
    for (client, service, backend, option, mss) in
        [(CLIENT, SERVICE, BACKEND, &TOA[..], 1452_u16), (CLIENT_V6, SERVICE_V6, BACKEND_V6, &TOA_V6, 1420)]
    {
        let Some(mut lab) = lab(ClientAddress::Toa, SynProxy::Always) else { return };
        let said = |flags, options: &[u8]| Segment {
            source: client.parse().unwrap(),
            destination: service.parse().unwrap(),
            ..from_client(flags, options)
        };
        let answer = Segment::of(&lab.sent(&said(SYN, &OFFER).bytes()));
        assert_eq!(answer.options[..4], [&[2, 4][..], &mss.to_be_bytes()].concat());
        let ack = Segment {
            sequence: 7001,
            acknowledged: answer.sequence.wrapping_add(1),
            ..said(ACK, &[&[1, 1, 8, 10, 0, 0, 1, 1][..], &answer.options[8..12]].concat())
        };
        let begun = Segment::of(&lab.sent(&ack.bytes()));
        assert_eq!((begun.flags, &begun.options[..option.len()]), (SYN, option));
        assert_eq!(begun.options.len(), option.len() + 20);
        // The question repeats the SYN, with it.
        lab.later(1);
        assert_eq!(Segment::of(&lab.sent(&ack.bytes())), begun);
        let local = begun.source.to_string();
        let accepted = Segment {
            sequence: 100,
            acknowledged: 7001,
            options: OFFER.to_vec(),
            ..segment(backend, &local, SYN | ACK)
        };
        let opened = Segment::of(&lab.sent(&accepted.bytes()));
        assert_eq!(opened.payload, [0]);
        let seen = Segment::of(&lab.sent(&ack.bytes()));
        assert_eq!((seen.flags, seen.acknowledged, &seen.options[..option.len()]), (ACK, 101, option));
        let data = b"220".to_vec();
        lab.sent(
            &Segment { sequence: 101, acknowledged: 7001, payload: data, ..segment(backend, &local, ACK) }.bytes(),
        );
        let seen = Segment::of(&lab.sent(&ack.bytes()));
        assert_eq!(seen.options.len(), 12);
    }
}

const CLIENT_FIRST: u32 = 7001;

fn proxy_v2(syn_proxy: SynProxy) -> Option<Lab> {
    lab(ClientAddress::ProxyV2, syn_proxy)
}

/// As proxy-protocol.txt has it.
fn prefix(ipv6: bool) -> Vec<u8> {
    let signature = [0x0d, 0x0a, 0x0d, 0x0a, 0x00, 0x0d, 0x0a, 0x51, 0x55, 0x49, 0x54, 0x0a];
    if ipv6 {
        let six = |host: u8| [&[0xfd_u8][..], &[0; 14], &[host]].concat();
        // fd00::200 has two bytes of its own.
        let service = [&[0xfd_u8][..], &[0; 13], &[2, 0]].concat();
        return [&signature[..], &[0x21, 0x21, 0, 36], &six(0x50), &service, &[0x13, 0x88, 0, 80]].concat();
    }
    [&signature[..], &[0x21, 0x11, 0, 12, 10, 0, 0, 50, 10, 0, 0, 200, 0x13, 0x88, 0, 80]].concat()
}

#[test]
fn a_prefix_is_before_the_first_byte() {
    for (client, service, backend, ipv6) in
        [(CLIENT, SERVICE, BACKEND, false), (CLIENT_V6, SERVICE_V6, BACKEND_V6, true)]
    {
        let Some(lab) = proxy_v2(SynProxy::Off) else { return };
        let (prefix, by) = (prefix(ipv6), if ipv6 { 52_u32 } else { 28 });
        assert_eq!(prefix.len(), by as usize);
        let said = |flags, sequence, payload: &[u8]| Segment {
            sequence,
            source: client.parse().unwrap(),
            destination: service.parse().unwrap(),
            payload: payload.to_vec(),
            ..from_client(flags, &TIMES)
        };
        // A cookie of TCP Fast Open would let data through before it.
        let (fast, void) = ([34, 10, 1, 2, 3, 4, 5, 6, 7, 8, 1, 1], [253, 10, 1, 2, 3, 4, 5, 6, 7, 8, 1, 1]);
        let syn = Segment { options: [&OFFER[..], &fast].concat(), ..said(SYN, CLIENT_FIRST - 1, b"") };
        let local = forwarded(&lab, &syn, backend, &[&OFFER, &void]).source.to_string();
        let is_forwarded = |said: &Segment, sequence, payload: &[&[u8]]| {
            let seen = Segment::of(&lab.sent(&said.bytes()));
            let expected =
                Segment { sequence, payload: payload.concat(), ..to_backend(said, &seen, backend, &[&TIMES]) };
            assert_eq!(seen, expected);
        };
        let answer = |flags, acknowledged, options: &[u8]| Segment {
            sequence: 900,
            acknowledged,
            options: options.to_vec(),
            ..segment(backend, &local, flags)
        };
        let seen = Segment::of(&lab.sent(&answer(SYN | ACK, CLIENT_FIRST, &[2, 4, 5, 0xb4]).bytes()));
        let mss = (1460 - by as u16).to_be_bytes();
        assert_eq!((seen.acknowledged, &seen.options[..]), (CLIENT_FIRST, &[2, 4, mss[0], mss[1]][..]));
        // A backend that speaks first is told by the acknowledgment; what was lost comes again with the same bytes.
        for _ in 0..2 {
            is_forwarded(&said(ACK, CLIENT_FIRST, b""), CLIENT_FIRST, &[&prefix]);
            is_forwarded(&said(ACK, CLIENT_FIRST, b"GET /"), CLIENT_FIRST, &[&prefix, b"GET /"]);
            is_forwarded(&said(ACK, CLIENT_FIRST, b"G"), CLIENT_FIRST, &[&prefix, b"G"]);
        }
        // What is behind the first is so much further, also where it comes before it.
        is_forwarded(&said(ACK, CLIENT_FIRST + 5, b"index"), CLIENT_FIRST + 5 + by, &[b"index"]);
        // What is before the first would come where the prefix belongs.
        assert_eq!(lab.send(&said(ACK, CLIENT_FIRST.wrapping_sub(by), &prefix).bytes()).verdict, Verdict::Drop);
        assert_eq!(lab.send(&said(FIN | ACK, CLIENT_FIRST - 1, b"").bytes()).verdict, Verdict::Drop);
        assert_eq!(lab.drops(), [(Drop::BeforeFirst, 2)]);
        // It asks for an acknowledgment.
        is_forwarded(&said(ACK, CLIENT_FIRST - 1, b""), CLIENT_FIRST - 1, &[]);
        // A reset says nothing, and ends what has begun with it.
        is_forwarded(&said(RST, CLIENT_FIRST, b""), CLIENT_FIRST + by, &[]);
        let acknowledged = |said: &Segment| {
            let seen = Segment::of(&lab.sent(&said.bytes()));
            assert_eq!((seen.source, seen.sequence), (service.parse().unwrap(), 900));
            (seen.acknowledged, seen.options)
        };
        // Of a part of it the client has heard nothing.
        assert_eq!(acknowledged(&answer(ACK, CLIENT_FIRST + 11, &TIMES)), (CLIENT_FIRST, TIMES.to_vec()));
        is_forwarded(&said(ACK, CLIENT_FIRST, b"G"), CLIENT_FIRST, &[&prefix, b"G"]);
        let block = |from: u32| [&[1, 1, 5, 10][..], &from.to_be_bytes(), &(from + 5).to_be_bytes()].concat();
        let seen = acknowledged(&answer(ACK, CLIENT_FIRST + by, &block(CLIENT_FIRST + by + 5)));
        assert_eq!(seen, (CLIENT_FIRST, block(CLIENT_FIRST + 5)));
        // All of it is there: the first byte of the client's is like the others.
        is_forwarded(&said(ACK, CLIENT_FIRST, b"GET /"), CLIENT_FIRST + by, &[b"GET /"]);
        assert_eq!(acknowledged(&answer(ACK, CLIENT_FIRST + by + 10, &[])), (CLIENT_FIRST + 10, vec![]));
        is_forwarded(&said(RST, CLIENT_FIRST + 10, b""), CLIENT_FIRST + 10 + by, &[]);
        assert_eq!(lab.drops(), [(Drop::BeforeFirst, 2)]);
    }
}

/// Two numbers of which a backend with SYN cookies would take either, and a prefix of the client's own that ends up at the other one.
#[test]
fn a_client_has_one_first_number() {
    for later in [CLIENT_FIRST - 1 - 100, CLIENT_FIRST - 1 + 100] {
        for answered in [true, false] {
            let Some(lab) = proxy_v2(SynProxy::Off) else { return };
            let said = |flags, sequence, payload: &[u8]| {
                Segment { sequence, payload: payload.to_vec(), ..from_client(flags, &[]) }.bytes()
            };
            let local = Segment::of(&lab.sent(&said(SYN, CLIENT_FIRST - 1, b""))).source.to_string();
            let answer = |isn: u32| Segment { acknowledged: isn + 1, ..segment(BACKEND, &local, SYN | ACK) }.bytes();
            if !answered {
                lab.sent(&said(SYN, later, b""));
            }
            lab.sent(&answer(CLIENT_FIRST - 1));
            // A repeated one is forwarded again.
            lab.sent(&answer(CLIENT_FIRST - 1));
            lab.sent(&said(SYN, later, b""));
            assert_eq!(lab.send(&answer(later)).verdict, Verdict::Drop);
            assert_eq!(lab.send(&said(ACK, CLIENT_FIRST - 28, &prefix(false))).verdict, Verdict::Drop);
            assert_eq!(lab.drops(), [(Drop::BeforeFirst, 2)]);
            let seen = Segment::of(&lab.sent(&said(ACK, CLIENT_FIRST, b"GET /")));
            assert_eq!((seen.sequence, seen.payload), (CLIENT_FIRST, [&prefix(false)[..], b"GET /"].concat()));
        }
    }
}

/// Before the backend has the prefix it expects a reset's number without it.
#[test]
fn a_reset_has_the_number_that_the_backend_expects() {
    let Some(lab) = proxy_v2(SynProxy::Off) else { return };
    let said = |flags, sequence| Segment { sequence, ..from_client(flags, &[]) }.bytes();
    lab.sent(&said(SYN, CLIENT_FIRST - 1));
    for _ in 0..2 {
        assert_eq!(Segment::of(&lab.sent(&said(RST, CLIENT_FIRST))).sequence, CLIENT_FIRST);
    }
    lab.sent(&said(ACK, CLIENT_FIRST));
    assert_eq!(Segment::of(&lab.sent(&said(RST, CLIENT_FIRST))).sequence, CLIENT_FIRST + 28);
}

#[test]
fn a_client_is_told_what_fits_beside_the_prefix() {
    let Some(lab) = proxy_v2(SynProxy::Off) else { return };
    let syn = forwarded(&lab, &Segment { sequence: CLIENT_FIRST - 1, ..from_client(SYN, &OFFER) }, BACKEND, &[&OFFER]);
    let of = |length: usize| Segment { sequence: CLIENT_FIRST, payload: vec![7; length], ..from_client(ACK, &[]) };
    let seen = Segment::of(&lab.sent(&of(1460 - 28).bytes()));
    assert_eq!(seen.payload.len(), 1460);
    let told = lab.send(&of(1460 - 27).bytes());
    assert_eq!(
        (told.frame[34..36].to_vec(), told.frame[40..42].to_vec()),
        (vec![3, 4], 1472_u16.to_be_bytes().to_vec())
    );
    assert_eq!(lab.drops(), [(Drop::TooBigTold, 1)]);
    // And by a router behind: with a number that the client knows, and so much less.
    let about = Segment { sequence: CLIENT_FIRST + 28 + 1000, ..segment(&syn.source.to_string(), BACKEND, ACK) };
    let error = icmp_error("10.0.0.99", LOCAL, 3, 4, 1400, &about.bytes()[14..], 40);
    let seen = lab.sent(&error);
    assert_eq!((&seen[40..42], &seen[66..70]), (&1372_u16.to_be_bytes()[..], &(CLIENT_FIRST + 1000).to_be_bytes()[..]));
    assert_eq!((rig_wire::checksum::of(&seen[34..]), rig_wire::checksum::of(&seen[42..62])), (0, 0));
}

#[test]
fn a_prefix_is_behind_the_syn_proxy_too() {
    let Some(lab) = proxy_v2(SynProxy::Always) else { return };
    let syn = Segment { sequence: CLIENT_FIRST - 1, ..from_client(SYN, &OFFER) };
    let answer = Segment::of(&lab.sent(&syn.bytes()));
    assert_eq!(answer.options[..4], [&[2, 4][..], &1432_u16.to_be_bytes()].concat());
    let ack =
        Segment { sequence: CLIENT_FIRST, acknowledged: answer.sequence.wrapping_add(1), ..from_client(ACK, &[]) };
    let begun = Segment::of(&lab.sent(&ack.bytes()));
    assert_eq!((begun.flags, begun.sequence, begun.payload.len()), (SYN, CLIENT_FIRST - 1, 0));
    let local = begun.source.to_string();
    let accepted = Segment { sequence: 100, acknowledged: CLIENT_FIRST, ..segment(BACKEND, &local, SYN | ACK) };
    let opened = Segment::of(&lab.sent(&accepted.bytes()));
    assert_eq!((&opened.payload[..], opened.acknowledged), (&[0][..], CLIENT_FIRST));
    let seen = Segment::of(&lab.sent(&ack.bytes()));
    assert_eq!((seen.sequence, seen.acknowledged, seen.payload), (CLIENT_FIRST, 101, prefix(false)));
    let forged = Segment { sequence: CLIENT_FIRST - 28, payload: prefix(false), ..ack.clone() };
    assert_eq!(lab.send(&forged.bytes()).verdict, Verdict::Drop);
    let says = Segment { sequence: 101, acknowledged: CLIENT_FIRST + 28, ..segment(BACKEND, &local, ACK) };
    let seen = Segment::of(&lab.sent(&says.bytes()));
    assert_eq!((seen.sequence, seen.acknowledged), (answer.sequence.wrapping_add(1), CLIENT_FIRST));
    let seen = Segment::of(&lab.sent(&Segment { payload: b"EHLO".to_vec(), ..ack }.bytes()));
    assert_eq!((seen.sequence, seen.acknowledged, &seen.payload[..]), (CLIENT_FIRST + 28, 101, &b"EHLO"[..]));
}

/// What fits the path without it is not made to exceed it again and again. Nor does a message that anyone can forge end it.
#[test]
fn a_client_is_told_what_a_router_leaves_beside_the_option() {
    let Some(lab) = toa() else { return };
    let syn = forwarded(&lab, &from_client(SYN, &[]), BACKEND, &[&TOA]);
    let about = segment(&syn.source.to_string(), BACKEND, ACK).bytes()[14..].to_vec();
    let error = |kind, code| icmp_error("10.0.0.99", LOCAL, kind, code, 1400, &about, 28);
    lab.sent(&error(3, 1));
    let seen = lab.sent(&error(3, 4));
    assert_eq!((&seen[40..42], &seen[66..70]), (&1392_u16.to_be_bytes()[..], &about[24..28]));
    assert_eq!((rig_wire::checksum::of(&seen[34..]), rig_wire::checksum::of(&seen[42..62])), (0, 0));
    forwarded(&lab, &from_client(ACK, &[]), BACKEND, &[&TOA]);
}

/// A client that uses its port again while the old connection closes, or whose backend knows nothing of that one any more.
#[test]
fn another_connection_of_the_same_ports_is_told_too() {
    for how in [ClientAddress::Toa, ClientAddress::ProxyV2] {
        let Some(lab) = lab(how, SynProxy::Off) else { return };
        let by = if how == ClientAddress::Toa { 0 } else { 28 };
        let said = |flags, sequence| Segment { sequence, ..from_client(flags, &[]) };
        let mut local = String::new();
        let open = |isn: u32, with_syn: bool, local: &mut String| {
            let seen = Segment::of(&lab.sent(&said(SYN, isn).bytes()));
            *local = seen.source.to_string();
            assert_eq!(seen.options.len(), if with_syn && by == 0 { 8 } else { 0 });
            let answer = Segment { acknowledged: isn.wrapping_add(1), ..segment(BACKEND, local, SYN | ACK) };
            assert_eq!(Segment::of(&lab.sent(&answer.bytes())).acknowledged, isn.wrapping_add(1));
            let seen = Segment::of(&lab.sent(&said(ACK, isn.wrapping_add(1)).bytes()));
            assert_eq!((seen.options.len(), seen.payload.len()), if by == 0 { (8, 0) } else { (0, 28) });
            assert_eq!(seen.sequence, isn.wrapping_add(1));
            let payload = vec![1; usize::from(by == 0)];
            let heard = Segment { acknowledged: isn.wrapping_add(1 + by), payload, ..segment(BACKEND, local, ACK) };
            assert_eq!(Segment::of(&lab.sent(&heard.bytes())).acknowledged, isn.wrapping_add(1));
            let seen = Segment::of(&lab.sent(&said(ACK, isn.wrapping_add(1)).bytes()));
            assert_eq!((seen.options.len(), seen.payload.len()), (0, 0));
            assert_eq!(seen.sequence, isn.wrapping_add(1 + by));
        };
        open(7000, true, &mut local);
        // The backend was started anew: it takes the SYN of what is established here.
        open(0xffff_fff0, false, &mut local);
        // The client has closed, and begins again.
        lab.sent(&said(FIN | ACK, 1).bytes());
        open(50_000, true, &mut local);
        assert_eq!(lab.drops(), []);
    }
}

/// A trace says so, and foresees every byte.
#[test]
fn it_is_foreseen() {
    let traced = |lab: &Lab, said: &Segment| lab.balancer.trace(&said.bytes(), Some(lab.interface)).unwrap();
    let syn = Segment { sequence: CLIENT_FIRST - 1, ..from_client(SYN, &OFFER) };
    let ack = Segment { sequence: CLIENT_FIRST, ..from_client(ACK, &TIMES) };
    for (how, with_syn) in [(ClientAddress::Toa, ClientAddress::Toa), (ClientAddress::ProxyV2, ClientAddress::Off)] {
        let Some(lab) = lab(how, SynProxy::Off) else { return };
        for (said, tells) in [(&syn, with_syn), (&ack, how), (&ack, how)] {
            let foreseen = traced(&lab, said);
            assert_eq!((foreseen.tells, foreseen.drop), (tells, None));
            let sent = lab.sent(&said.bytes());
            let [mut foreseen, mut seen] = [Segment::of(&foreseen.frame), Segment::of(&sent)];
            // Another CPU has another port.
            (foreseen.source, seen.source) = (foreseen.destination, seen.destination);
            assert_eq!(foreseen, seen);
        }
        // What has no room for an option goes on.
        let full = Segment { options: vec![1; 40], ..syn.clone() };
        if how == ClientAddress::Toa {
            let foreseen = traced(&lab, &full);
            assert_eq!((foreseen.tells, foreseen.drop), (ClientAddress::Off, Some(Drop::NotTold)));
        }
    }
}

/// A client that begins again while its old connection closes is told of as the service says now.
#[test]
fn a_reload_is_for_connections_that_begin_behind_it() {
    let how = |client_address| {
        let of = service(SERVICE, full_nat(&[LOCAL]), &[backend(BACKEND, 1)]);
        config(&[Service { client_address, ..of }])
    };
    let Some(mut lab) = Lab::new(small(), &how(ClientAddress::Off)) else { return };
    for (now, options, payload) in [
        (ClientAddress::Off, vec![], vec![]),
        (ClientAddress::ProxyV2, vec![], prefix(false)),
        (ClientAddress::Toa, TOA.to_vec(), vec![]),
        (ClientAddress::Off, vec![], vec![]),
    ] {
        lab.balancer.apply(&how(now)).unwrap();
        let said = |flags, sequence| Segment { sequence, ..from_client(flags, &[]) }.bytes();
        lab.sent(&said(SYN, CLIENT_FIRST - 1));
        let seen = Segment::of(&lab.sent(&said(ACK, CLIENT_FIRST)));
        assert_eq!((seen.sequence, seen.options, seen.payload), (CLIENT_FIRST, options, payload));
        lab.sent(&said(FIN | ACK, CLIENT_FIRST));
    }
}

#[test]
fn tagged_frames_have_it() {
    let Some(lab) = toa() else { return };
    let mut tagged = from_client(SYN, &OFFER).bytes();
    tagged.splice(12..12, [0x81, 0, 0, 7]);
    let mut seen = lab.sent(&tagged);
    assert_eq!(seen.drain(12..16).collect::<Vec<_>>(), [0x81, 0, 0, 7]);
    assert_eq!(Segment::of(&seen).options, [&TOA[..], &OFFER].concat());
}
