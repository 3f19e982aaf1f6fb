//! Sources whose connections stay together.

use std::time::Duration;

use rig_datapath::balancer::{
    BalancerHandle, Drop, ForwardingMethod, Persistence, PersistentSource, Service, Sizes, SynProxy,
};
use rig_wire::tcp::flags::{ACK, RST, SYN};

use super::changes::{BpfFs, hand_over};
use super::frames::{tcp, udp};
use super::lab::Lab;
use super::syn_proxy::{Segment, segment};
use super::{backend, config, full_nat, limited, service, small, udp_service};

const V: &str = "10.0.0.200:80";
const V6: &str = "[fd00::200]:80";
/// A second and a tick.
const SECOND: u32 = 8;

fn kept(seconds: u64, prefix: u8, service: Service) -> Service {
    Service { persistence: Some(Persistence { timeout: Duration::from_secs(seconds), prefix }), ..service }
}

const BACKENDS: [&str; 3] = ["10.0.0.10:8080", "10.0.0.11:8080", "10.0.0.12:8080"];

fn plan(seconds: u64, prefix: u8) -> Service {
    kept(seconds, prefix, service(V, full_nat(&["10.0.0.100"]), &BACKENDS.map(|address| backend(address, 1))))
}

fn syn(client: &str) -> Vec<u8> {
    tcp(SYN, client, if client.starts_with('[') { V6 } else { V }).bytes()
}

fn from_client(flags: u8, client: &str) -> Vec<u8> {
    tcp(flags, client, V).bytes()
}

/// The backend of a connection, by the last number of its address.
fn backend_of(balancer: &BalancerHandle, client: &str) -> String {
    let mut found = None;
    let client = client.parse().unwrap();
    balancer
        .connections(|connection| {
            if connection.client == client {
                found = Some(connection.backend.to_string());
            }
        })
        .unwrap();
    found.unwrap_or_else(|| panic!("no connection of {client}"))
}

fn goes(lab: &Lab, client: &str) -> String {
    lab.sent(&syn(client));
    backend_of(&lab.balancer, client)
}

fn left(lab: &Lab) -> Vec<(String, u32)> {
    let mut all: Vec<_> = lab.balancer.persistent_sources().unwrap();
    all.sort_by_key(|source| source.source);
    all.into_iter().map(|PersistentSource { source, left, .. }| (source.to_string(), left)).collect()
}

#[test]
fn connections_of_a_source_stay_together_until_its_time_is_over() {
    let Some(mut lab) = Lab::new(small(), &config(&[plan(60, 32)])) else { return };
    let first = goes(&lab, "10.0.0.60:5000");
    // Round robin otherwise.
    assert_ne!(goes(&lab, "10.0.0.61:5000"), first);
    assert_eq!(goes(&lab, "10.0.0.60:5001"), first);
    let trace = lab.balancer.trace(&syn("10.0.0.60:5002"), Some(lab.interface)).unwrap();
    let new = trace.new_connection.unwrap();
    assert_eq!((new.backend.unwrap().to_string(), new.kept), (first.clone(), true));
    // As long as it is not answered, no longer than that is remembered: 30 s, in ticks.
    assert_eq!(left(&lab), [("10.0.0.60".to_owned(), 224), ("10.0.0.61".to_owned(), 224)]);
    lab.sent(&from_client(ACK, "10.0.0.60:5000"));
    lab.balancer.sweep_all().unwrap();
    assert_eq!(left(&lab), [("10.0.0.60".to_owned(), 448), ("10.0.0.61".to_owned(), 224)]);
    // While there is a connection it does not end; packets go on.
    for _ in 0..10 {
        lab.later(50 * SECOND);
        lab.sent(&from_client(ACK, "10.0.0.60:5000"));
        lab.balancer.sweep_all().unwrap();
    }
    assert_eq!(goes(&lab, "10.0.0.60:5003"), first);
    assert_eq!(left(&lab).len(), 1);
    // Behind the last, for as long as is said; the next client would have had another one each time.
    lab.sent(&from_client(RST, "10.0.0.60:5000"));
    lab.balancer.sweep_all().unwrap();
    lab.later(11 * SECOND);
    lab.balancer.sweep_all().unwrap();
    lab.later(40 * SECOND);
    lab.balancer.sweep_all().unwrap();
    assert_eq!(goes(&lab, "10.0.0.60:5004"), first);
    lab.later(31 * SECOND);
    lab.balancer.sweep_all().unwrap();
    assert_eq!(left(&lab), []);
    let anew: Vec<_> = (5005..5008).map(|port| goes(&lab, &format!("10.0.0.60:{port}"))).collect();
    assert!(anew.iter().all(|backend| *backend == anew[0] && *backend != first), "{anew:?}, before {first}");
}

#[test]
fn a_source_is_a_prefix_and_of_both_families() {
    let six = service(V6, full_nat(&["fd00::100"]), &["[fd00::10]:80", "[fd00::11]:80"].map(|at| backend(at, 1)));
    let Some(lab) = Lab::new(small(), &config(&[plan(60, 31), kept(60, 124, six)])) else { return };
    let first = goes(&lab, "10.0.0.60:5000");
    assert_eq!(goes(&lab, "10.0.0.61:5000"), first);
    assert_ne!(goes(&lab, "10.0.0.62:5000"), first);
    let first = goes(&lab, "[fd00::60]:5000");
    assert_eq!(goes(&lab, "[fd00::61]:5000"), first);
    assert_ne!(goes(&lab, "[fd00::50]:5000"), first);
    let sources: Vec<_> = left(&lab).into_iter().map(|(source, _)| source).collect();
    assert_eq!(sources, ["10.0.0.60", "10.0.0.62", "fd00::50", "fd00::60"]);
}

/// One that gets no new connections gets none of those either, and the source stays where it goes instead.
#[test]
fn a_source_leaves_a_backend_that_drains_or_is_full() {
    let Some(mut lab) = Lab::new(small(), &config(&[plan(60, 32)])) else { return };
    let first = goes(&lab, "10.0.0.60:5000");
    let mut drained = plan(60, 32);
    drained.backends.iter_mut().filter(|backend| backend.address.to_string() == first).for_each(|one| one.weight = 0);
    lab.balancer.apply(&config(&[drained])).unwrap();
    let second = goes(&lab, "10.0.0.60:5001");
    assert_ne!(second, first);
    // The old one's connection goes on, and does not lead the source back.
    lab.sent(&from_client(ACK, "10.0.0.60:5000"));
    lab.balancer.sweep_all().unwrap();
    lab.balancer.apply(&config(&[plan(60, 32)])).unwrap();
    assert_eq!([goes(&lab, "10.0.0.60:5002"), goes(&lab, "10.0.0.60:5003")], [second.clone(), second.clone()]);
    // Neither does a backend beyond its limit get more.
    let mut full = plan(60, 32);
    full.backends = BACKENDS.map(|address| limited(address, 3)).to_vec();
    lab.balancer.apply(&config(&[full])).unwrap();
    let third = goes(&lab, "10.0.0.60:5004");
    assert_ne!(third, second);
    assert_eq!(goes(&lab, "10.0.0.60:5005"), third);
    // Removed and forgotten, its number is another one's.
    let mut fewer = plan(60, 32);
    fewer.backends.retain(|backend| backend.address.to_string() != third);
    lab.balancer.apply(&config(&[fewer.clone()])).unwrap();
    assert_ne!(goes(&lab, "10.0.0.60:5006"), third);
    lab.later(200 * SECOND);
    lab.balancer.sweep_all().unwrap();
    for _ in 0..3 {
        lab.balancer.apply(&config(&[fewer.clone()])).unwrap();
    }
    assert!(lab.balancer.persistent_sources().unwrap().iter().all(|source| source.backend.to_string() != third));
}

/// What finds no room begins without, and is counted; those that are over give it back.
#[test]
fn where_there_is_no_room_connections_begin_without() {
    let sizes = Sizes { templates: 2, ..small() };
    let datagrams = udp_service("10.0.0.200:53", full_nat(&["10.0.0.100"]), &[backend("10.0.0.10:53", 1)]);
    let Some(mut lab) = Lab::new(sizes, &config(&[kept(60, 32, datagrams)])) else { return };
    let first = |lab: &Lab, host: u8| drop(lab.sent(&udp(&format!("10.0.0.{host}:5000"), "10.0.0.200:53").bytes()));
    (60..63).for_each(|host| first(&lab, host));
    let no_room = |lab: &Lab| {
        let services = lab.balancer.services().unwrap();
        let refused = services[0].refused.iter().find(|(reason, _)| *reason == Drop::NoTemplate);
        refused.map_or(0, |(_, count)| *count)
    };
    assert_eq!((no_room(&lab), left(&lab).len()), (1, 2));
    // Those that are known are renewed.
    first(&lab, 60);
    assert_eq!(no_room(&lab), 1);
    lab.later(61 * SECOND);
    assert_eq!(lab.balancer.forget_sources_that_are_over().unwrap(), 0);
    lab.balancer.flush(None, None).unwrap();
    lab.later(61 * SECOND);
    assert_eq!(lab.balancer.forget_sources_that_are_over().unwrap(), 2);
    (70..72).for_each(|host| first(&lab, host));
    assert_eq!((no_room(&lab), left(&lab).len()), (1, 2));
}

/// Nothing is remembered of what the SYN proxy answers, only of who acknowledges it.
#[test]
fn forged_first_packets_that_the_proxy_answers_are_not_remembered() {
    let proxied = Service { syn_proxy: SynProxy::Always, ..plan(60, 32) };
    let Some(lab) = Lab::new(small(), &config(&[proxied])) else { return };
    let client = "10.0.0.60:5000";
    let answer = Segment::of(&lab.sent(&Segment { sequence: 9, ..segment(client, V, SYN) }.bytes()));
    assert_eq!(left(&lab), []);
    let acknowledged = answer.sequence.wrapping_add(1);
    lab.sent(&Segment { sequence: 10, acknowledged, ..segment(client, V, ACK) }.bytes());
    assert_eq!(left(&lab).len(), 1);
}

#[test]
fn another_control_plane_goes_on_with_what_is_kept() {
    let nat = service(V, ForwardingMethod::Nat, &BACKENDS.map(|address| backend(address, 1)));
    let plans = config(&[kept(60, 32, nat)]);
    let Some(mut lab) = Lab::new(small(), &plans) else { return };
    let Some(directory) = BpfFs::mount() else { return };
    let first = goes(&lab, "10.0.0.60:5000");
    hand_over(&mut lab, &directory);
    assert_eq!((left(&lab).len(), lab.balancer.sizes().templates), (1, small().templates));
    lab.balancer.apply(&plans).unwrap();
    assert_eq!(goes(&lab, "10.0.0.60:5001"), first);
}
