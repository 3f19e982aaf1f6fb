//! What runs short, and whose connections then end early.

use std::num::NonZeroU32;

use rig_datapath::balancer::{Drop, Service, Sizes};
use rig_wire::tcp::flags::{ACK, FIN, SYN};

use super::frames::{see, tcp, udp};
use super::lab::Lab;
use super::{backend, config, full_nat, limited, service, small, udp_service};

const V: &str = "10.0.0.200:80";
const TEN: &str = "10.0.0.10:8080";
/// Local ports of an address.
const PORTS: u16 = 64_512;
/// 3 s, in ticks.
const UNANSWERED: u32 = 23;
/// 7 s.
const CLOSING: u32 = 53;

fn client(port: u16) -> String {
    format!("10.0.0.60:{port}")
}

fn expired(lab: &Lab) -> u32 {
    lab.balancer.sweep_all().unwrap().expired
}

/// A flood takes the ports of a service's only local address, in a table of which it is a quarter.
#[test]
fn unanswered_connections_go_first_when_local_ports_run_short() {
    let eleven = "10.0.0.11:8080";
    let flooded = service(V, full_nat(&["10.0.0.100"]), &[backend(TEN, 1)]);
    // The same ports of another backend, which there are plenty of, and two local addresses with the same backend.
    let beside = service("10.0.0.201:80", full_nat(&["10.0.0.100"]), &[backend(eleven, 1)]);
    let wide = service("10.0.0.202:80", full_nat(&["10.0.0.101", "10.0.0.102"]), &[backend(TEN, 1)]);
    let sizes = Sizes { connections: 4 * u32::from(PORTS), ..small() };
    let Some(mut lab) = Lab::new(sizes, &config(&[flooded, beside, wide])) else { return };
    for address in ["10.0.0.201:80", "10.0.0.202:80"] {
        lab.sent(&tcp(SYN, &client(900), address).bytes());
    }
    // One that is there, one that its client has closed, and strangers.
    for flags in [SYN, ACK] {
        lab.sent(&tcp(flags, &client(901), V).bytes());
        lab.sent(&tcp(flags, &client(902), V).bytes());
    }
    lab.sent(&tcp(FIN | ACK, &client(902), V).bytes());
    let most = PORTS - PORTS / 4;
    (0..most - 2).for_each(|n| drop(lab.sent(&tcp(SYN, &client(1000 + n), V).bytes())));
    lab.later(UNANSWERED);
    assert_eq!(expired(&lab), 0, "three quarters are not more than three quarters");
    lab.sent(&tcp(SYN, &client(903), V).bytes());
    assert_eq!(expired(&lab), u32::from(most) - 2);
    assert_eq!(lab.connections().len(), 5);
    // Until all are gone, of which the table alone knows nothing.
    for n in 0..PORTS - 3 {
        lab.sent(&tcp(SYN, &client(1000 + n), V).bytes());
    }
    assert_eq!(lab.dropped(&tcp(SYN, &client(904), V).bytes()), Drop::NoLocalPort);
    lab.later(CLOSING - UNANSWERED);
    lab.sent(&tcp(ACK, &client(901), V).bytes());
    // With the closing one, and what came while there was room.
    assert_eq!(expired(&lab), u32::from(PORTS) - 1);
    lab.sent(&tcp(SYN, &client(904), V).bytes());
    assert_eq!(lab.connections().len(), 4, "{:?}", lab.connections());
}

/// Connections count towards the limits of their own service and backend only, whether they are answered or not.
#[test]
fn unanswered_connections_go_first_at_limits() {
    let four = |service: Service| Service { limit: NonZeroU32::new(4), ..service };
    let local = || full_nat(&["10.0.0.100"]);
    let at_service = four(service(V, local(), &[backend(TEN, 1), backend("10.0.0.11:8080", 1)]));
    let at_backend = udp_service("10.0.0.201:53", local(), &[limited(TEN, 4), limited("10.0.0.11:8080", 40)]);
    let neither = service("10.0.0.202:80", local(), &[backend(TEN, 1)]);
    let Some(mut lab) = Lab::new(small(), &config(&[at_service, at_backend, neither])) else { return };
    let open = |lab: &Lab, port| see(&lab.sent(&tcp(SYN, &client(port), V).bytes()));
    // Of four, one is there and one closes.
    (0..4).for_each(|n| drop(open(&lab, 5000 + n)));
    lab.sent(&tcp(ACK, &client(5000), V).bytes());
    [ACK, FIN | ACK].iter().for_each(|flags| drop(lab.sent(&tcp(*flags, &client(5001), V).bytes())));
    // Four to each backend.
    (0..8).for_each(|n| drop(lab.sent(&udp(&client(5000 + n), "10.0.0.201:53").bytes())));
    (0..8).for_each(|n| drop(lab.sent(&tcp(SYN, &client(5000 + n), "10.0.0.202:80").bytes())));
    assert_eq!(lab.dropped(&tcp(SYN, &client(6000), V).bytes()), Drop::ServiceFull);
    lab.later(UNANSWERED - 1);
    assert_eq!(expired(&lab), 0);
    lab.later(1);
    assert_eq!(expired(&lab), 2 + 4);
    open(&lab, 6000);
    // Not more than three quarters, so that they stay.
    lab.later(CLOSING);
    assert_eq!(expired(&lab), 0, "{:?}", lab.connections());
    assert_eq!(lab.connections().len(), 3 + 4 + 8);
}
