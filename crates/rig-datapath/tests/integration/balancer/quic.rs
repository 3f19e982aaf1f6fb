//! Connection IDs of QUIC: where packets of a client go that has moved, and of which no ID is looked at.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU32;

use rig_datapath::balancer::{
    Backend, BackendStatus, Drop, ExpiryPolicy, ForwardingMethod, QuicIds, Scheduler, Service, ServiceStatus,
};
use rig_wire::ethernet::HEADER;
use rig_wire::ipv4::Ipv4;

use super::frames::udp;
use super::lab::Lab;
use super::{backend, config, full_nat, small, udp_service};

const IDS: QuicIds = QuicIds { configuration: 1, length: 2 };

fn named(address: &str, id: u64) -> Backend {
    Backend { quic_id: Some(id), ..backend(address, 1) }
}

/// Whose schedule alone leads to the first backend, which has the highest weight by far.
fn quic(address: &str, forward: ForwardingMethod, backends: [Backend; 3]) -> Service {
    let backends = [Backend { weight: 1000, ..backends[0] }, backends[1], backends[2]];
    Service {
        quic: Some(IDS),
        scheduler: Scheduler::WeightedLeastConnections,
        ..udp_service(address, forward, &backends)
    }
}

/// A packet with a short header, whose connection ID is of the configuration with the server's ID.
fn short(configuration: u8, id: u16) -> Vec<u8> {
    let [high, low] = id.to_be_bytes();
    [&[0x40, configuration << 5 | 0x1f, high, low][..], &[0xab; 30]].concat()
}

/// One with a long header.
fn long(first: u8, version: u32, id: u16) -> Vec<u8> {
    let [high, low] = id.to_be_bytes();
    [&[first][..], &version.to_be_bytes(), &[8, 0x20, high, low], &[0xab; 40]].concat()
}

/// The last byte of the address that a frame of IPv4 is to.
fn to(frame: &[u8]) -> u8 {
    Ipv4::parse(&frame[HEADER..]).unwrap().destination().octets()[3]
}

/// How many connections backends have begun, by their addresses.
fn begun(lab: &Lab) -> BTreeMap<(SocketAddr, SocketAddr), u64> {
    let services = lab.balancer.services().unwrap();
    let of = |service: &ServiceStatus| {
        let begun = |backend: &BackendStatus| backend.traffic.iter().map(|cpu| cpu.connections).sum();
        let at = service.address;
        service.backends.iter().map(|backend| ((at, backend.address), begun(backend))).collect::<Vec<_>>()
    };
    services.iter().flat_map(of).collect()
}

#[test]
fn a_client_that_moves_goes_on_with_its_backend() {
    let of = |port: u16| ["10.0.0.10", "10.0.0.11", "10.0.0.12"].map(|host| format!("{host}:{port}"));
    let of6 = |port: u16| ["fd00::10", "fd00::11", "fd00::12"].map(|host| format!("[{host}]:{port}"));
    let with = |at: [String; 3]| {
        let mut ids = [0_u64, 7, 0xffff].into_iter();
        at.map(|at| named(&at, ids.next().unwrap()))
    };
    let services = [
        quic("10.0.0.200:443", full_nat(&["10.0.0.100"]), with(of(8443))),
        quic("[fd00::200]:443", full_nat(&["fd00::100"]), with(of6(8443))),
        quic("10.0.0.201:443", ForwardingMethod::Nat, with(of(8443))),
        quic("10.0.0.202:443", ForwardingMethod::Route, with(of(443))),
        Service {
            one_packet: true,
            scheduler: Scheduler::SourceHash,
            ..quic("[fd00::203]:443", ForwardingMethod::Nat, with(of6(9443)))
        },
    ];
    let Some(lab) = Lab::new(small(), &config(&services)) else { return };
    for service in &services {
        let (address, ipv6) = (service.address.to_string(), service.address.is_ipv6());
        let host = if ipv6 { "[fd00::50]" } else { "10.0.0.50" };
        let mut port = 6000;
        let mut sent = |payload: &[u8]| {
            port += 1;
            lab.sent(&udp(&format!("{host}:{port}"), &address).payload(payload).bytes())
        };
        let mut reached = |payload: &[u8]| {
            let before = begun(&lab);
            sent(payload);
            let more = begun(&lab).into_iter().find(|(of, count)| before.get(of).is_none_or(|before| before < count));
            more.unwrap().0.1
        };
        let [first, second, third] = [0, 1, 2].map(|at| service.backends[at].address);
        let own = service.scheduler != Scheduler::SourceHash;
        for (payload, host) in [
            (short(1, 7), second),
            (short(1, 0xffff), third),
            (short(1, 0), first),
            // Handshake packets of both versions: their IDs are the server's.
            (long(0xe0, 1, 7), second),
            (long(0xf0, 0x6b33_43cf, 0xffff), third),
        ] {
            assert_eq!(reached(&payload), host, "{address} {payload:x?}");
        }
        // What another configuration, nobody's ID, an ID of the client's own or a packet that is too short says is not looked at.
        let other = [
            short(2, 7),
            short(1, 8),
            long(0xc0, 1, 7),
            long(0xd0, 1, 0xffff),
            long(0xe0, 2, 7),
            short(1, 7)[..14].to_vec(),
        ];
        // The source hash has one for this client.
        let usual = if own { first } else { reached(&[0; 30]) };
        for payload in &other {
            assert_eq!(reached(payload), usual, "{address} {payload:x?}");
        }
    }
}

#[test]
fn one_that_gets_no_new_connections_keeps_those_that_are_its_own() {
    let plan = |weight: u32, limit: u32, expire: ExpiryPolicy| {
        let second = Backend { weight, limit: NonZeroU32::new(limit), ..named("10.0.0.11:8443", 7) };
        let first = named("10.0.0.10:8443", 1);
        let backends = [first, second, named("10.0.0.12:8443", 2)];
        let service =
            Service { backends: backends.to_vec(), ..quic("10.0.0.200:443", full_nat(&["10.0.0.100"]), backends) };
        config(&[Service { expire, scheduler: Scheduler::RoundRobin, ..service }])
    };
    let Some(mut lab) = Lab::new(small(), &plan(1, 1, ExpiryPolicy::Never)) else { return };
    let sent = |lab: &Lab, port: u16| {
        lab.sent(&udp(&format!("10.0.0.50:{port}"), "10.0.0.200:443").payload(&short(1, 7)).bytes())
    };
    // Beyond its limit, and while it drains.
    assert_eq!([6000, 6001, 6002].map(|port| to(&sent(&lab, port))), [11; 3]);
    lab.balancer.apply(&plan(0, 0, ExpiryPolicy::Never)).unwrap();
    assert_eq!(to(&sent(&lab, 6003)), 11);
    // Where its connections end with it, and once it has gone.
    lab.balancer.apply(&plan(0, 0, ExpiryPolicy::Quiescent)).unwrap();
    assert_ne!(to(&sent(&lab, 6004)), 11);
    let mut without = plan(1, 0, ExpiryPolicy::Never);
    without.services[0].backends.remove(1);
    lab.balancer.apply(&without).unwrap();
    assert_ne!(to(&sent(&lab, 6005)), 11);
    // Its ID is another one's now, and then nobody's.
    let mut other = without.clone();
    other.services[0].backends[1].quic_id = Some(7);
    lab.balancer.apply(&other).unwrap();
    assert_eq!([6006, 6007, 6008].map(|port| to(&sent(&lab, port))), [12; 3]);
    other.services[0].quic = None;
    other.services[0].backends.iter_mut().for_each(|backend| backend.quic_id = None);
    other.services[0].backends.iter_mut().for_each(|backend| backend.weight = 0);
    lab.balancer.apply(&other).unwrap();
    let frame = udp("10.0.0.50:6009", "10.0.0.200:443").payload(&short(1, 7)).bytes();
    assert_eq!(lab.dropped(&frame), Drop::NoBackend);
    // What it has begun goes on.
    assert_eq!(to(&sent(&lab, 6000)), 11);
}

/// A backend that has come to its limit by connections that are its own waits to fall below its lower one, as after any others.
#[test]
fn connections_that_an_id_names_count_towards_the_lower_limit() {
    /// Two of them are longer than `udp_normal`, and one is not.
    const LESS: u32 = 200 * 8;
    let second = Backend { limit: NonZeroU32::new(3), lower_limit: NonZeroU32::new(2), ..named("10.0.0.11:443", 7) };
    let others = ["10.0.0.10:443", "10.0.0.12:443"].map(|at| Backend { weight: 0, ..backend(at, 1) });
    let service = Service {
        backends: vec![others[0], second, others[1]],
        ..quic("10.0.0.200:443", ForwardingMethod::Route, [others[0], second, others[1]])
    };
    let Some(mut lab) = Lab::new(small(), &config(&[service])) else { return };
    let frame = |port: u16, id| udp(&format!("10.0.0.50:{port}"), "10.0.0.200:443").payload(&short(1, id)).bytes();
    let send = |lab: &mut Lab, ports: &[u16]| {
        lab.later(LESS);
        ports.iter().for_each(|port| drop(lab.sent(&frame(*port, 7))));
        lab.balancer.sweep_all().unwrap();
        lab.connections().len()
    };
    assert_eq!(send(&mut lab, &[6000, 6001, 6002, 6003]), 4);
    assert_eq!(lab.dropped(&frame(6100, 9)), Drop::BackendsFull);
    // Two that go on are as many as the lower limit, and one is fewer.
    assert_eq!((send(&mut lab, &[6000, 6001]), send(&mut lab, &[6000])), (4, 2));
    assert_eq!(lab.dropped(&frame(6100, 9)), Drop::BackendsFull);
    assert_eq!(send(&mut lab, &[6000]), 1);
    lab.sent(&frame(6100, 9));
    assert_eq!(lab.connections().len(), 2);
}

#[test]
fn a_traced_packet_is_told_that_its_id_names_the_backend() {
    let backends = [named("10.0.0.10:8443", 0), named("10.0.0.11:8443", 7), named("10.0.0.12:8443", 2)];
    let Some(lab) = Lab::new(small(), &config(&[quic("10.0.0.200:443", ForwardingMethod::Nat, backends)])) else {
        return;
    };
    let traced = |payload: &[u8]| {
        let frame = udp("10.0.0.50:6000", "10.0.0.200:443").payload(payload).bytes();
        let new = lab.balancer.trace(&frame, Some(lab.interface)).unwrap().new_connection.unwrap();
        (new.named, new.backend.unwrap().to_string())
    };
    assert_eq!(traced(&short(1, 7)), (true, "10.0.0.11:8443".to_owned()));
    assert_eq!(traced(&short(0, 7)), (false, "10.0.0.10:8443".to_owned()));
    assert_eq!(lab.connections(), Vec::<String>::new());
}
