//! What backends make of datagrams that tell of a client, frame in and frame out: `netrig lb receive` of UDP.

use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config as Runs, TestRunner};
use rig_datapath::balancer::{DatagramCounts, DatagramReceiver, DatagramSettings};
use rig_skip::{Lack, skip};

use super::frames::{ethernet, fragments, ip, see, udp};

const LOCAL: &str = "10.8.0.1:2000";
const OWN: &str = "10.7.0.2:53";
const LOCAL_V6: &str = "[fd08::1]:2000";
const OWN_V6: &str = "[fd07::2]:53";
const CLIENT: &str = "192.0.2.9:5000";
const CLIENT_V6: &str = "[2001:db8::9]:5000";

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn unbound(own: &str) -> SocketAddr {
    let own = at(own);
    SocketAddr::new(if own.is_ipv4() { [0; 4].into() } else { [0_u16; 8].into() }, own.port())
}

fn receiver(idle: Duration) -> Option<DatagramReceiver> {
    let from = ["10.8.0.0/24".parse().unwrap(), "fd08::/64".parse().unwrap()];
    match DatagramReceiver::load(&from, &DatagramSettings { clients: 256, idle }) {
        Ok(receiver) => Some(receiver),
        Err(error @ rig_datapath::Error::NotPermitted(_)) => {
            skip(Lack::Root, error);
            None
        }
        Err(error) => panic!("{error}: {:?}", std::error::Error::source(&error)),
    }
}

fn usual() -> Option<DatagramReceiver> {
    receiver(Duration::from_secs(300))
}

fn header(client: &str) -> Vec<u8> {
    let client = at(client);
    let (version, by) = if client.is_ipv4() { (0x10, 12) } else { (0x20, 24) };
    let mut header = vec![version, 17, 0, by, 31, by - 4];
    header.extend(client.port().to_be_bytes());
    match client.ip() {
        IpAddr::V4(v4) => header.extend(v4.octets()),
        IpAddr::V6(v6) => header.extend(v6.octets()),
    }
    header
}

fn plain(from: &str, own: &str) -> Vec<u8> {
    udp(from, own).payload(b"question").bytes()
}

/// With these bytes between the headers of IP and UDP.
fn with(from: &str, own: &str, header: &[u8]) -> Vec<u8> {
    let (from, own) = (at(from), at(own));
    let datagram = udp(&from.to_string(), &own.to_string()).payload(b"question").packet();
    let l4 = if from.is_ipv4() { 20 } else { 40 };
    ethernet(&ip(from.ip(), own.ip(), 248, 64, &[header, &datagram[l4..]].concat()), None)
}

fn telling(from: &str, own: &str, client: &str) -> Vec<u8> {
    with(from, own, &header(client))
}

#[test]
fn the_header_is_taken_off_and_the_client_is_known() {
    let Some(receiver) = usual() else { return };
    for (from, own, client) in [(LOCAL, OWN, CLIENT), (LOCAL_V6, OWN_V6, CLIENT_V6)] {
        assert_eq!(receiver.client(at(from), at(own)).unwrap(), None);
        let kept = receiver.test_run(&telling(from, own, client)).unwrap().unwrap();
        assert_eq!(kept, plain(from, own));
        see(&kept);
        for own in [at(own), unbound(own)] {
            assert_eq!(receiver.client(at(from), own).unwrap(), Some(at(client)));
        }
        // Another one has the port by now.
        let other = client.replace(":5000", ":5001");
        receiver.test_run(&telling(from, own, &other)).unwrap();
        assert_eq!(receiver.client(at(from), at(own)).unwrap(), Some(at(&other)));
        assert_eq!(receiver.client(at(from), unbound(own)).unwrap(), Some(at(&other)));
    }
    assert_eq!(receiver.counts().unwrap(), DatagramCounts { told: 4, ..DatagramCounts::default() });
    assert_eq!(receiver.known().unwrap(), 4);
}

/// A wrong checksum of IP is not made right, and nobody is known by such a header.
#[test]
fn what_is_damaged_is_left_to_the_kernel() {
    let Some(receiver) = usual() else { return };
    let mut frame = telling(LOCAL, OWN, CLIENT);
    frame[24] ^= 1;
    assert_eq!(receiver.test_run(&frame).unwrap().unwrap(), frame);
    // Also where a router has cut it.
    for part in fragments(&telling(LOCAL, OWN, CLIENT), &[24], 7) {
        assert_eq!(receiver.test_run(&part).unwrap().unwrap(), part);
    }
    assert_eq!(receiver.known().unwrap(), 0);
}

/// Who has a balancer's port next may come without: as one that has no room for the header, or in fragments.
#[test]
fn who_comes_without_it_before_an_answer_is_nobody() {
    let Some(receiver) = usual() else { return };
    for (from, own, client) in [(LOCAL, OWN, CLIENT), (LOCAL_V6, OWN_V6, CLIENT_V6)] {
        let whole = plain(from, own);
        let part = fragments(&whole, &[8], 7).swap_remove(0);
        for without in [whole, part] {
            receiver.test_run(&telling(from, own, client)).unwrap();
            assert_eq!(receiver.client(at(from), at(own)).unwrap(), Some(at(client)));
            assert_eq!(receiver.test_run(&without).unwrap().unwrap(), without);
            assert_eq!(receiver.client(at(from), at(own)).unwrap(), None);
            assert_eq!(receiver.client(at(from), unbound(own)).unwrap(), None);
        }
    }
    assert_eq!(receiver.known().unwrap(), 0);
    assert_eq!(receiver.counts().unwrap(), DatagramCounts { told: 4, unknown: 4, ..DatagramCounts::default() });
}

#[test]
fn a_client_of_the_other_family_is_nobody() {
    let Some(receiver) = usual() else { return };
    receiver.test_run(&telling(LOCAL, OWN, CLIENT)).unwrap();
    assert_eq!(receiver.test_run(&telling(LOCAL, OWN, CLIENT_V6)).unwrap().unwrap(), plain(LOCAL, OWN));
    assert_eq!(receiver.known().unwrap(), 0);
    assert_eq!(receiver.test_run(&telling(LOCAL_V6, OWN_V6, CLIENT)).unwrap().unwrap(), plain(LOCAL_V6, OWN_V6));
    assert_eq!(receiver.known().unwrap(), 0);
}

/// A socket of any address cannot say which of them a datagram was to.
#[test]
fn two_addresses_of_one_port_are_told_apart_or_not_at_all() {
    let Some(receiver) = usual() else { return };
    let (other, client) = ("10.7.0.3:53", "192.0.2.10:5000");
    receiver.test_run(&telling(LOCAL, OWN, CLIENT)).unwrap();
    receiver.test_run(&telling(LOCAL, other, client)).unwrap();
    assert_eq!(receiver.client(at(LOCAL), at(OWN)).unwrap(), Some(at(CLIENT)));
    assert_eq!(receiver.client(at(LOCAL), at(other)).unwrap(), Some(at(client)));
    assert_eq!(receiver.client(at(LOCAL), unbound(OWN)).unwrap(), None);
    // Nor with one that tells nothing.
    let Some(receiver) = usual() else { return };
    receiver.test_run(&telling(LOCAL, OWN, CLIENT)).unwrap();
    receiver.test_run(&plain(LOCAL, other)).unwrap();
    assert_eq!(receiver.client(at(LOCAL), at(OWN)).unwrap(), Some(at(CLIENT)));
    assert_eq!(receiver.client(at(LOCAL), unbound(OWN)).unwrap(), None);
    receiver.test_run(&telling(LOCAL, OWN, client)).unwrap();
    assert_eq!(receiver.client(at(LOCAL), unbound(OWN)).unwrap(), None);
}

/// A balancer gives the port to another client then.
#[test]
fn what_was_disputed_long_ago_is_over() {
    let idle = Duration::from_millis(50);
    let Some(receiver) = receiver(idle) else { return };
    receiver.test_run(&telling(LOCAL, OWN, CLIENT)).unwrap();
    receiver.test_run(&plain(LOCAL, "10.7.0.3:53")).unwrap();
    thread::sleep(2 * idle);
    receiver.test_run(&telling(LOCAL, OWN, CLIENT)).unwrap();
    assert_eq!(receiver.client(at(LOCAL), unbound(OWN)).unwrap(), Some(at(CLIENT)));
}

#[test]
fn nobody_else_is_believed() {
    let Some(receiver) = usual() else { return };
    for (from, own) in [("10.6.0.1:2000", OWN), ("[fd06::1]:2000", OWN_V6)] {
        let frame = telling(from, own, CLIENT);
        assert_eq!(receiver.test_run(&frame).unwrap().unwrap(), frame);
        receiver.test_run(&plain(from, own)).unwrap();
    }
    assert_eq!(receiver.known().unwrap(), 0);
    assert_eq!(receiver.counts().unwrap(), DatagramCounts { others: 2, ..DatagramCounts::default() });
}

/// Which family, whose client; which bytes behind Ethernet's header are others; how many are missing, and whether IP's checksum is right again.
type Lies = ((bool, bool), Vec<(usize, u8)>, usize, bool);

/// Whatever headers say: what the kernel goes on with is the frame as it came, or the datagram that was in it, whole; and a client is known by the
/// latter alone.
#[test]
fn lies_are_neither_passed_on_nor_believed() {
    let Some(receiver) = usual() else { return };
    let cases = (
        any::<(bool, bool)>(),
        prop::collection::vec((0_usize..90, any::<u8>()), 0..4),
        prop_oneof![3 => Just(0_usize), 1 => 0_usize..90],
        any::<bool>(),
    );
    let runs = Runs { cases: 3000, failure_persistence: None, ..Runs::default() };
    let each = |((v6, client_v6), changes, short, mends): Lies| {
        let (from, own) = if v6 { (LOCAL_V6, OWN_V6) } else { (LOCAL, OWN) };
        let mut frame = telling(from, own, if client_v6 { CLIENT_V6 } else { CLIENT });
        for (place, byte) in changes {
            if let Some(there) = frame.get_mut(14 + place) {
                *there = byte;
            }
        }
        if mends && !v6 {
            frame[24..26].fill(0);
            let checksum = rig_wire::checksum::of(&frame[14..34]);
            frame[24..26].copy_from_slice(&checksum.to_be_bytes());
        }
        // The kernel's test run takes none with less than a header of IP.
        frame.truncate((frame.len() - short.min(frame.len())).max(if v6 { 54 } else { 34 }));
        let known = receiver.known().unwrap();
        let kept = receiver.test_run(&frame).unwrap().unwrap();
        let (head, l4) = if v6 { (40, 54) } else { (20, 34) };
        if kept == frame {
            prop_assert!(receiver.known().unwrap() <= known);
            return Ok(());
        }
        let by = frame.len() - kept.len();
        prop_assert!(by == 12 || by == 24, "{by}");
        let told = &frame[l4..l4 + by];
        prop_assert_eq!(&told[..6], &[if by == 12 { 0x10 } else { 0x20 }, 17, 0, by as u8, 31, by as u8 - 4]);
        prop_assert_eq!(&kept[l4..], &frame[l4 + by..]);
        let length = |packet: &[u8]| match v6 {
            true => 40 + usize::from(u16::from_be_bytes([packet[4], packet[5]])),
            false => usize::from(u16::from_be_bytes([packet[2], packet[3]])),
        };
        let (before, after) = (&frame[14..], &kept[14..]);
        prop_assert_eq!(length(after) + by, length(before));
        prop_assert!(length(after) <= after.len() && length(after) >= head + 8);
        let of_udp = usize::from(u16::from_be_bytes([after[head + 4], after[head + 5]]));
        prop_assert!(of_udp >= 8 && of_udp <= length(after) - head);
        let (protocol, checked) = if v6 { (after[6], 0) } else { (after[9], rig_wire::checksum::of(&after[..20])) };
        prop_assert_eq!((protocol, checked), (17, 0));
        Ok(())
    };
    TestRunner::new(runs).run(&cases, each).unwrap();
    let counts = receiver.counts().unwrap();
    assert!(counts.told > 0 && counts.broken > 0, "{counts:?}");
}
