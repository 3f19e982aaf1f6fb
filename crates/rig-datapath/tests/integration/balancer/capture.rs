//! Packets that are dropped or left to the kernel, as who captures them sees them.

use std::time::Duration;

use rig_datapath::Error;
use rig_datapath::balancer::{
    CAPTURE_LEASE, Capture, CaptureReason, CaptureRequest, CapturedPacket, Drop, PacketEnd, Pass, Protocol, Service,
    SynProxy, UncapturedPackets,
};
use rig_datapath::test_run::Verdict;
use rig_wire::tcp::flags::{ACK, SYN};

use super::frames::{icmp_error, tcp, udp};
use super::lab::Lab;
use super::{backend, config, full_nat, service, small, udp_service};

const NO_BACKEND: CaptureReason = CaptureReason::Dropped(Drop::NoBackend);

fn request(reasons: &[CaptureReason]) -> CaptureRequest {
    CaptureRequest { reasons: reasons.to_vec(), service: None, length: 256, rate: 1000 }
}

/// What has come: programs run before this is asked.
fn all(capture: &Capture) -> Vec<CapturedPacket> {
    let mut packets = Vec::new();
    capture.wait(Duration::ZERO, |packet| packets.push(packet)).unwrap();
    packets
}

/// Services of both families, some without a backend.
fn lab() -> Option<Lab> {
    let without = |address: &str, local: &str| service(address, full_nat(&[local]), &[]);
    let services = [
        without("10.0.0.200:80", "10.0.0.100"),
        without("10.0.0.200:81", "10.0.0.100"),
        without("[fd00::200]:80", "fd00::100"),
        udp_service("10.0.0.200:80", full_nat(&["10.0.0.100"]), &[]),
        service("10.0.0.201:80", full_nat(&["10.0.0.100"]), &[backend("10.0.0.10:8080", 1)]),
        Service {
            syn_proxy: SynProxy::Always,
            ..service("10.0.0.202:80", full_nat(&["10.0.0.100"]), &[backend("10.0.0.10:8080", 1)])
        },
    ];
    Lab::new(small(), &config(&services))
}

#[test]
fn packets_of_a_reason_are_captured_as_they_came() {
    let Some(lab) = lab() else { return };
    let frames = [
        tcp(SYN, "10.0.0.60:5000", "10.0.0.200:80").payload(&[7; 900]).bytes(),
        tcp(SYN, "[fd00::60]:5000", "[fd00::200]:80").vlan(9).bytes(),
        udp("10.0.0.60:5000", "10.0.0.200:80").bytes(),
    ];
    // Before, and of another reason.
    frames.iter().for_each(|frame| assert_eq!(lab.dropped(frame), Drop::NoBackend));
    let capture = lab.balancer.capture(&request(&[NO_BACKEND])).unwrap();
    lab.sent(&tcp(SYN, "10.0.0.60:5000", "10.0.0.201:80").bytes());
    lab.passes(&udp("10.0.0.60:5000", "10.0.0.200:999").bytes(), Pass::NoService);
    assert_eq!(all(&capture), []);
    frames.iter().for_each(|frame| assert_eq!(lab.dropped(frame), Drop::NoBackend));
    let packets = all(&capture);
    assert_eq!(packets.len(), frames.len());
    for (packet, frame) in packets.iter().zip(&frames) {
        assert_eq!((packet.reason, packet.end), (NO_BACKEND, PacketEnd::Dropped));
        assert_eq!((packet.interface, packet.length as usize), (lab.interface, frame.len()));
        assert_eq!(packet.bytes, frame[..frame.len().min(256)]);
    }
    assert!(packets.is_sorted_by_key(|packet| packet.time));
    assert_eq!(capture.uncaptured().unwrap(), UncapturedPackets::default());
}

#[test]
fn what_is_left_to_the_kernel_and_what_is_answered_is_told_apart() {
    let Some(lab) = lab() else { return };
    let of = |reason| CaptureReason::Dropped(reason);
    let asked = [of(Drop::SynAnswered), of(Drop::NoConnection), CaptureReason::LeftToKernel(Pass::NoService)];
    let capture = lab.balancer.capture(&request(&asked)).unwrap();
    let left = udp("10.0.0.60:5000", "10.0.0.200:999").bytes();
    lab.passes(&left, Pass::NoService);
    let stray = tcp(SYN | ACK, "10.0.0.60:5000", "10.0.0.201:80").bytes();
    assert_eq!(lab.dropped(&stray), Drop::NoConnection);
    let answer = lab.send(&tcp(SYN, "10.0.0.60:5000", "10.0.0.202:80").bytes());
    assert_eq!(answer.verdict, Verdict::Transmit);
    let told: Vec<_> = all(&capture).into_iter().map(|packet| (packet.reason, packet.end, packet.bytes)).collect();
    assert_eq!(
        told,
        [
            (asked[2], PacketEnd::LeftToKernel, left),
            (asked[1], PacketEnd::Dropped, stray),
            (asked[0], PacketEnd::Answered, answer.frame),
        ]
    );
}

#[test]
fn packets_of_one_service_are_captured_alone() {
    let Some(lab) = lab() else { return };
    let to = |destination: &str| tcp(SYN, "10.0.0.60:5000", destination).bytes();
    let (right, fragment) = (to("10.0.0.200:80"), {
        let mut fragment = to("10.0.0.200:80");
        // Its second part: More Fragments off, an offset of 8 bytes.
        fragment[14 + 6..14 + 8].copy_from_slice(&[0, 1]);
        fragment
    });
    let about = udp("10.0.0.200:80", "10.0.0.60:5000").bytes();
    let error = icmp_error("10.0.0.60", "10.0.0.200", 3, 3, 0, &about[14..], 28);
    let service = Some((Protocol::Tcp, "10.0.0.200:80".parse().unwrap()));
    let reasons: Vec<_> = CaptureReason::all().collect();
    let capture = lab.balancer.capture(&CaptureRequest { service, ..request(&reasons) }).unwrap();
    lab.send(&to("10.0.0.200:81"));
    lab.send(&udp("10.0.0.60:5000", "10.0.0.200:80").bytes());
    lab.send(&to("10.0.0.77:80"));
    lab.send(&error);
    assert_eq!(all(&capture).into_iter().map(|packet| packet.bytes).collect::<Vec<_>>(), Vec::<Vec<u8>>::new());
    lab.send(&right);
    lab.send(&fragment);
    let told: Vec<_> = all(&capture).into_iter().map(|packet| (packet.reason.key(), packet.bytes)).collect();
    assert_eq!(told, [("no_backend", right), ("fragment", fragment)]);
}

#[test]
fn no_more_are_captured_than_the_rate_says_and_one_captures_at_a_time() {
    let Some(lab) = lab() else { return };
    let frame = tcp(SYN, "10.0.0.60:5000", "10.0.0.200:80").bytes();
    let few = CaptureRequest { rate: 1, length: 20, ..request(&[NO_BACKEND]) };
    let capture = lab.balancer.capture(&few).unwrap();
    assert!(matches!(lab.balancer.capture(&few), Err(Error::Capturing)));
    for _ in 0..5 {
        lab.dropped(&frame);
    }
    let packets = all(&capture);
    let beyond = capture.uncaptured().unwrap();
    assert_eq!((packets.len() as u64 + beyond.beyond_rate, beyond.no_room), (5, 0));
    assert!(!packets.is_empty());
    assert_eq!(packets[0].bytes, frame[..20]);
    drop(capture);
    // Nobody captures, so that nobody is refused, and nothing is left of before.
    lab.dropped(&frame);
    let many = CaptureRequest { rate: 1_000_000, length: 1500, ..request(&[NO_BACKEND]) };
    let next = lab.balancer.capture(&many).unwrap();
    assert_eq!((all(&next), next.uncaptured().unwrap()), (Vec::new(), UncapturedPackets::default()));
    lab.dropped(&frame);
    assert_eq!(all(&next).len(), 1);
    // More than there is room for while nobody reads.
    for _ in 0..2000 {
        lab.send(&tcp(SYN, "10.0.0.60:5000", "10.0.0.200:80").payload(&[1; 1300]).bytes());
    }
    let (read, lost) = (all(&next).len() as u64, next.uncaptured().unwrap());
    assert_eq!(read + lost.no_room + lost.beyond_rate, 2000);
    assert!(lost.no_room > 0, "{lost:?}, {read}");
}

/// As where the reader's process was killed, and the balancer goes on: nothing stays on that costs each packet something.
#[test]
fn without_a_reader_it_is_off() {
    let Some(lab) = lab() else { return };
    let frame = tcp(SYN, "10.0.0.60:5000", "10.0.0.200:80").bytes();
    let capture = lab.balancer.capture(&request(&[NO_BACKEND])).unwrap();
    lab.dropped(&frame);
    std::thread::sleep(CAPTURE_LEASE + Duration::from_millis(100));
    (0..3).for_each(|_| assert_eq!(lab.dropped(&frame), Drop::NoBackend));
    // What there was before is read, and from then on there is a reader again.
    assert_eq!((all(&capture).len(), capture.uncaptured().unwrap()), (1, UncapturedPackets::default()));
    lab.dropped(&frame);
    assert_eq!(all(&capture).len(), 1);
    // One that ends it from elsewhere is not in its way either.
    lab.balancer.handle().end_capture().unwrap();
    lab.dropped(&frame);
    assert_eq!((all(&capture).len(), capture.uncaptured().unwrap()), (0, UncapturedPackets::default()));
}
