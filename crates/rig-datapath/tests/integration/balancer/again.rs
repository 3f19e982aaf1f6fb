//! Balancers that tests use one after another (pool.rs).

use rig_datapath::balancer::{Drop, ForwardingMethod, Service, Sizes, SynProxy};
use rig_datapath::test_run::Verdict;
use rig_wire::tcp::flags::{ACK, RST, SYN};

use super::frames::tcp;
use super::lab::Lab;
use super::syn_proxy::{Segment, segment};
use super::{backend, config, service, small};

/// What a test has left no later one finds.
#[test]
fn what_is_used_again_is_as_new() {
    const CLIENT: &str = "10.0.0.60:5000";
    const SERVICE: &str = "10.0.0.200:80";
    const ROUTED: &str = "10.0.0.201:80";
    // No other test's.
    let sizes = Sizes { fragments: 1000, ..small() };
    let nat = service(SERVICE, ForwardingMethod::Nat, &[backend("10.0.0.10:8080", 1)]);
    let route = service(ROUTED, ForwardingMethod::Route, &[backend("10.0.0.11:80", 1)]);
    let services = [nat, Service { syn_proxy: SynProxy::Always, ..route }];
    let Some(lab) = Lab::new(sizes, &config(&services)) else { return };
    lab.sent(&tcp(SYN, CLIENT, SERVICE).bytes());
    assert_eq!(lab.dropped(&tcp(ACK, "10.0.0.60:5001", SERVICE).bytes()), Drop::NoConnection);
    let routed = segment(CLIENT, ROUTED, SYN);
    let asked = Segment::of(&lab.sent(&routed.bytes())).acknowledged;
    let reset = Segment { sequence: asked, flags: RST, ..routed.clone() };
    assert_eq!(lab.dropped(&reset.bytes()), Drop::Admitted);
    assert_eq!(lab.connections().len(), 1);
    let keys = lab.balancer.hash_keys();
    drop(lab);

    let mut again = Lab::new(sizes, &config(&[])).unwrap();
    assert_eq!(again.balancer.hash_keys(), keys, "it is another one");
    assert!(again.connections().is_empty());
    assert!(again.balancer.drops().unwrap().iter().all(|(_, packets)| *packets == 0));
    // Nothing has its service's address any more.
    assert_eq!(again.send(&tcp(SYN, CLIENT, SERVICE).bytes()).verdict, Verdict::Pass);
    again.balancer.apply(&config(&services)).unwrap();
    assert_eq!(Segment::of(&again.sent(&routed.bytes())).flags, SYN | ACK, "its client is admitted");
}
