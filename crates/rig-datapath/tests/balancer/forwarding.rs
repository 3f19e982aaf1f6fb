//! Each way of forwarding, both directions, both families.

use rig_wire::ethernet::Ethernet;
use rig_wire::tcp::flags::{ACK, SYN};

use crate::frames::{CLIENT_MAC, see, tcp};
use crate::lab::Lab;
use crate::{backend, config, full_nat, service, small};

#[test]
fn full_nat_translates_both_ends_both_ways() {
    let plan = config(&[service("10.0.0.200:80", full_nat(&["10.0.0.100"]), &[backend("10.0.0.10:8080", 1)])]);
    let Some(lab) = Lab::new(small(), &plan) else { return };
    let out = lab.sent(&tcp(SYN, "10.0.0.60:5000", "10.0.0.200:80").payload(b"odd").bytes());
    let seen = see(&out);
    assert_eq!(seen.source.ip().to_string(), "10.0.0.100");
    assert_eq!(seen.destination.to_string(), "10.0.0.10:8080");
    assert_eq!((seen.ttl, seen.flags, &seen.payload[..]), (63, SYN, &b"odd"[..]));
    let link = Ethernet::parse(&out).unwrap();
    assert_eq!((link.source(), link.destination()), (lab.near, lab.far));

    let back = tcp(SYN | ACK, "10.0.0.10:8080", &seen.source.to_string()).payload(b"answer").bytes();
    let out = lab.sent(&back);
    let seen = see(&out);
    assert_eq!(
        (seen.source.to_string(), seen.destination.to_string()),
        ("10.0.0.200:80".into(), "10.0.0.60:5000".into())
    );
    // The client has no neighbour entry: it is reached by whom its packet came from.
    let link = Ethernet::parse(&out).unwrap();
    assert_eq!(link.destination(), CLIENT_MAC);
}
