#![allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]

use std::collections::BTreeMap;

use proptest::prelude::*;
use prost::Message;
use rig_datapath::vrouter::Encapsulation;
use rig_wire::ethernet::Mac;

use super::message as m;
use super::path::{of_message, to_message};
use super::route::{RouteAttributes, RouteChange, RouteSubject};
use super::*;
use crate::routes::{Destination, Route};
use crate::settings::Assigned;

/// The file of node b; node a has one of its own.
const B: &str = r#"
[router.bgp]
[[node]]
name = "b"
address = "192.0.2.2"
[[network]]
name = "red"
subnets = ["10.1.0.0/24", "fd00:1::/64"]
vni = 100
label = 199
[[security_group]]
name = "web"
id = 7
[[interface]]
name = "red-b"
node = "b"
network = "red"
device = "v1"
addresses = ["10.1.0.12", "fd00:1::12"]
mac = "02:00:00:00:00:0b"
label = 102
security_groups = ["web"]
[[route]]
network = "red"
prefix = "10.9.0.0/16"
via = ["red-b"]
"#;
const A: &str = r#"
[router.bgp]
[[node]]
name = "a"
address = "192.0.2.1"
[[network]]
name = "red"
subnets = ["10.1.0.0/24", "fd00:1::/64"]
vni = 100
[[security_group]]
name = "web-servers"
id = 7
[[interface]]
name = "red-a"
node = "a"
network = "red"
device = "v1"
addresses = ["10.1.0.11"]
"#;

fn parse(text: &str) -> Settings {
    Settings::parse("vrouter.toml", text).unwrap_or_else(|error| panic!("{error}"))
}

/// As a speaker of another node tells them.
fn told(settings: &Settings, node: &str) -> Vec<RouteChange> {
    let routes = announced::routes(settings, node);
    let there_and_back = |(subject, says): (&RouteSubject, &RouteAttributes)| {
        let message = m::Path { neighbor_ip: "192.0.2.2".to_owned(), ..to_message(subject, Some(says)) };
        // Through the letter of the messages.
        let told = of_message(&m::Path::decode(&message.encode_to_vec()[..]).unwrap()).unwrap();
        let same = RouteChange::Announced { subject: subject.clone(), says: says.clone(), is_local: false };
        assert_eq!(told, same);
        told
    };
    routes.iter().map(there_and_back).collect()
}

fn updates(routes: &mut BgpRoutes, settings: &Settings) -> RouteTable {
    routes.reload(settings, "a");
    let mut table = RouteTable::default();
    for update in routes.updates().unwrap() {
        assert!(table.apply(update));
    }
    table
}

fn connected() -> SpeakerEvent {
    SpeakerEvent::Connected { autonomous_system: 64512, identifier: "192.0.2.1".to_owned() }
}

#[test]
fn a_node_announces_what_others_need_to_get_there() {
    let settings = parse(B);
    let routes = announced::routes(&settings, "b");
    let number = settings.interfaces["red-b"].distinguisher;
    assert!(number > 0);
    let distinguisher = Assigned::ByAddress("192.0.2.2".parse().unwrap(), number);
    let of_network = settings.network_on("b", "red").unwrap().distinguisher;
    assert!(of_network > 0 && of_network != number);
    let of_network = Assigned::ByAddress("192.0.2.2".parse().unwrap(), of_network);
    let vpn = |prefix: &str| RouteSubject::Vpn { distinguisher, prefix: prefix.parse().unwrap() };
    let mac = Mac([2, 0, 0, 0, 0, 0xb]);
    let of_mac = |address: Option<&str>| {
        let address = address.map(|address| address.parse().unwrap());
        RouteSubject::Mac { distinguisher, tag: 0, mac, address }
    };
    let subjects = [
        vpn("10.1.0.12/32"),
        vpn("10.9.0.0/16"),
        vpn("fd00:1::12/128"),
        of_mac(None),
        of_mac(Some("10.1.0.12")),
        of_mac(Some("fd00:1::12")),
        RouteSubject::Multicast { distinguisher, tag: 0, originator: "192.0.2.2".parse().unwrap() },
        RouteSubject::Behind { distinguisher, tag: 0, prefix: "10.9.0.0/16".parse().unwrap() },
        // Of labels, which no route of identifiers has.
        RouteSubject::Multicast { distinguisher: of_network, tag: 0, originator: "192.0.2.2".parse().unwrap() },
    ];
    assert_eq!(routes.keys().collect::<BTreeSet<_>>(), subjects.iter().collect());
    let host = &routes[&vpn("10.1.0.12/32")];
    let mpls = BTreeSet::from([Encapsulation::MplsOverUdp, Encapsulation::MplsOverGre]);
    assert_eq!((host.label, &host.encapsulations, &host.groups), (102, &mpls, &BTreeSet::from([(64512, 7)])));
    assert_eq!(host.targets, BTreeSet::from([Assigned::TwoOctets(64512, 100)]));
    assert_eq!(routes[&vpn("10.9.0.0/16")].groups, BTreeSet::new());
    let of_mac = &routes[&of_mac(None)];
    assert_eq!((of_mac.label, &of_mac.encapsulations), (100, &BTreeSet::from([Encapsulation::Vxlan])));
    let behind = &routes[&subjects[7]];
    assert_eq!((behind.label, behind.mac, &behind.groups), (100, Some(mac), &BTreeSet::new()));
    assert_eq!(behind.encapsulations, BTreeSet::from([Encapsulation::Vxlan]));

    let vxlan = parse(&B.replace("vni = 100", "vni = 100\nencapsulation = ['vxlan']"));
    assert!(announced::routes(&vxlan, "b").keys().all(|subject| !matches!(subject, RouteSubject::Vpn { .. })));
    let to_all = &announced::routes(&vxlan, "b")[&subjects[6]];
    assert_eq!((to_all.label, &to_all.encapsulations), (100, &BTreeSet::from([Encapsulation::Vxlan])));
    assert!(!announced::routes(&vxlan, "b").contains_key(&subjects[8]));
    assert_eq!((routes[&subjects[8]].label, &routes[&subjects[8]].encapsulations), (199, &mpls));
    let quiet = parse(&B.replace("vni = 100\nlabel = 199", "vni = 100\nbroadcast = false"));
    let is_multicast = |subject: &RouteSubject| matches!(subject, RouteSubject::Multicast { .. });
    assert!(!announced::routes(&quiet, "b").keys().any(is_multicast));
    assert_eq!(announced::routes(&vxlan, "b")[&subjects[7]], *behind);
    let mpls = parse(&B.replace("vni = 100", "vni = 100\nencapsulation = ['mplsoudp']"));
    let mpls = announced::routes(&mpls, "b");
    assert!(mpls.keys().all(|subject| matches!(subject, RouteSubject::Vpn { .. }) || *subject == subjects[8]));
    assert_eq!(mpls[&subjects[8]].encapsulations, BTreeSet::from([Encapsulation::MplsOverUdp]));
    let silent = parse(&B.replace("address = \"192.0.2.2\"", "address = \"192.0.2.2\"\nbgp = false"));
    assert_eq!(announced::routes(&silent, "b"), BTreeMap::new());
}

#[test]
fn what_one_node_announces_is_what_the_other_one_would_read_of_it() {
    let (a, b) = (parse(A), parse(B));
    let mut routes = BgpRoutes::default();
    let now = Instant::now();
    routes.hear(connected(), now);
    routes.hear(SpeakerEvent::Changes(told(&b, "b")), now);
    let table = updates(&mut routes, &a);
    assert!(!routes.has_news());
    // The same as the file of both would say, but for names that are each node's own.
    let origin = |distinguisher: u16| format!("192.0.2.2:{distinguisher} by 192.0.2.2");
    let of_file: RouteTable = crate::routes::announced(&b, "b")
        .into_iter()
        .flat_map(|route| {
            // Labels and identifiers of frames to all are two routes.
            let (vxlan, mpls): (BTreeMap<_, _>, BTreeMap<_, _>) =
                route.encapsulations.iter().partition(|(one, _)| **one == Encapsulation::Vxlan);
            if route.key.destination != Destination::All {
                return vec![route];
            }
            let mut of_labels = Route { encapsulations: mpls, ..route.clone() };
            of_labels.key.origin = origin(b.network_on("b", "red").unwrap().distinguisher);
            vec![Route { encapsulations: vxlan, ..route }, of_labels]
        })
        .map(|mut route| {
            if route.key.origin == "red-b" {
                route.key.origin = origin(b.interfaces["red-b"].distinguisher);
            }
            if !route.security_groups.is_empty() {
                route.security_groups = BTreeSet::from(["web-servers".to_owned()]);
            }
            route
        })
        .collect();
    assert_eq!(table, of_file);
    assert_eq!(routes.next_hops(), BTreeSet::from(["192.0.2.2".parse().unwrap()]));
    assert_eq!(routes.count(&a, "a"), (9, 0));

    // What is for others, what is its own, and what it does not import.
    let other = parse(&A.replace("vni = 100", "vni = 101"));
    routes.reload(&other, "a");
    assert_eq!(routes.updates().unwrap().len(), of_file.iter().count());
    let import = parse(&A.replace("vni = 100", "vni = 101\nimport_targets = ['64512:100']"));
    routes.reload(&import, "a");
    assert_eq!(routes.updates().unwrap().len(), of_file.iter().count());
    let export = parse(&A.replace("vni = 100", "vni = 101\nexport_targets = ['64512:100']"));
    routes.reload(&export, "a");
    assert_eq!(routes.next_hops(), BTreeSet::new());
    let mut own = BgpRoutes::default();
    own.hear(SpeakerEvent::Changes(told(&a, "a")), now);
    assert_eq!((updates(&mut own, &a), own.count(&a, "a")), (RouteTable::default(), (0, 0)));

    let all = told(&b, "b");
    let [RouteChange::Announced { subject, .. }, ..] = &all[..] else { panic!("{all:?}") };
    routes.reload(&a, "a");
    routes.updates().unwrap();
    routes.hear(SpeakerEvent::Changes(vec![RouteChange::Withdrawn(subject.clone())]), now);
    routes.reload(&a, "a");
    assert!(routes.has_news());
    assert_eq!(routes.updates().unwrap().len(), 1, "{subject:?}");
}

#[test]
fn interfaces_that_share_an_address_are_several_ways_to_it() {
    let shared = "allowed_addresses = ['10.1.0.100']\nlabel = 10";
    let one = B.replace("label = 102", &format!("{shared}2"));
    let other =
        "[[interface]]\nname = 'red-c'\nnode = 'b'\nnetwork = 'red'\ndevice = 'v2'\naddresses = ['10.1.0.13']\n";
    let b = parse(&format!("{one}{other}{shared}3\n"));
    let mut routes = BgpRoutes::default();
    routes.hear(SpeakerEvent::Changes(told(&b, "b")), Instant::now());
    let table = updates(&mut routes, &parse(A));
    let to_shared = Destination::Prefix("10.1.0.100/32".parse().unwrap());
    let labels = table.iter().filter(|route| route.key.destination == to_shared);
    let labels: BTreeSet<u32> = labels.map(|route| route.encapsulations[&Encapsulation::MplsOverUdp]).collect();
    assert_eq!(labels, BTreeSet::from([102, 103]));
}

#[test]
fn what_was_learned_stays_for_a_while_when_the_speaker_goes() {
    let (a, b) = (parse(A), parse(B));
    let all = told(&b, "b");
    let (keep, begin) = (Duration::from_secs(100), Instant::now());
    let at = |seconds: u64| begin + Duration::from_secs(seconds);
    let mut routes = BgpRoutes::default();
    routes.hear(connected(), begin);
    routes.hear(SpeakerEvent::Changes(all.clone()), begin);
    assert!(!routes.expire(at(1000), keep));

    // It does not come back.
    let mut gone = routes.clone();
    gone.hear(SpeakerEvent::Lost("gone".to_owned()), at(0));
    gone.hear(SpeakerEvent::Lost("still gone".to_owned()), at(50));
    assert_eq!((gone.count(&a, "a"), gone.state.trouble.as_deref()), ((9, 9), Some("still gone")));
    assert!(!gone.expire(at(99), keep));
    assert!(gone.expire(at(100), keep));
    assert_eq!(gone.count(&a, "a"), (0, 0));
    assert_eq!(routes.count(&a, "a"), (9, 0), "a copy is another one");

    // It comes back, and some of it is told again.
    routes.hear(SpeakerEvent::Lost("gone".to_owned()), at(0));
    routes.hear(connected(), at(60));
    routes.hear(SpeakerEvent::Changes(all[..2].to_vec()), at(61));
    assert_eq!(routes.count(&a, "a"), (9, 7));
    assert!(!routes.expire(at(159), keep));
    assert!(routes.expire(at(160), keep));
    assert_eq!(routes.count(&a, "a"), (2, 0));

    // One that comes and goes does not keep them for ever.
    routes.hear(SpeakerEvent::Lost("gone".to_owned()), at(200));
    for turn in 1..20 {
        routes.hear(connected(), at(200 + 10 * turn));
        assert!(!routes.expire(at(200 + 10 * turn), keep));
        routes.hear(SpeakerEvent::Lost("gone".to_owned()), at(201 + 10 * turn));
    }
    routes.hear(connected(), at(399));
    assert!(!routes.expire(at(399), keep));
    assert!(routes.expire(at(400), keep));
}

#[test]
fn what_makes_no_sense_is_as_good_as_withdrawn() {
    let settings = parse(B);
    let routes = announced::routes(&settings, "b");
    for (subject, says) in &routes {
        let good = to_message(subject, Some(says));
        let withdrawn = Some(RouteChange::Withdrawn(subject.clone()));
        assert_eq!(of_message(&to_message(subject, None)), withdrawn);
        let mut bad = good.clone();
        bad.attributes.remove(1);
        assert_eq!(of_message(&bad), withdrawn, "no next hop");
        let unreached = m::Path { is_nexthop_invalid: true, ..good.clone() };
        assert_eq!(of_message(&unreached), withdrawn);
        let next_hop = |text: &str| {
            let mut path = good.clone();
            let reach = m::MpReachNLRIAttribute { next_hops: vec![text.to_owned()], ..Default::default() };
            path.attributes[1] = m::Any::of(&reach);
            of_message(&path)
        };
        assert_eq!(next_hop("fd00::1"), withdrawn, "tunnels go over IPv4");
        // Copies of frames go where their route says, which is the same address.
        let mapped = matches!(next_hop("::ffff:192.0.2.9"), Some(RouteChange::Announced { .. }));
        assert_eq!(mapped, !matches!(subject, RouteSubject::Multicast { .. }));
        assert!(matches!(next_hop("::ffff:192.0.2.2"), Some(RouteChange::Announced { .. })));
        for family in [None, Some(m::Family { afi: 1, safi: 1 })] {
            assert_eq!(of_message(&m::Path { family, ..good.clone() }), None);
        }
        if let RouteSubject::Behind { .. } = subject {
            let nlri = good.nlri.as_ref().unwrap().read::<m::EVPNIPPrefixRoute>().unwrap();
            let with =
                |route: m::EVPNIPPrefixRoute| of_message(&m::Path { nlri: Some(m::Any::of(&route)), ..good.clone() });
            assert!(matches!(with(nlri.clone()), Some(RouteChange::Announced { .. })));
            // It leads where a route to its gateway does, or one to its segment.
            assert_eq!(with(m::EVPNIPPrefixRoute { gateway: "10.1.0.12".to_owned(), ..nlri.clone() }), withdrawn);
            assert_eq!(with(m::EVPNIPPrefixRoute { gateway: "<nil>".to_owned(), ..nlri.clone() }), withdrawn);
            let segment = Some(m::EthernetSegmentIdentifier { kind: 0, value: vec![1; 9] });
            assert_eq!(with(m::EVPNIPPrefixRoute { segment, ..nlri.clone() }), withdrawn);
            assert_eq!(with(m::EVPNIPPrefixRoute { prefix_len: 33, ..nlri.clone() }), None);
            assert_eq!(with(m::EVPNIPPrefixRoute { prefix: "red".to_owned(), ..nlri }), None);
            for router in [None, Some("ff:ff:ff:ff:ff:ff"), Some("00:00:00:00:00:00"), Some("")] {
                let mut path = good.clone();
                let mut communities = path.attributes[2].read::<m::ExtendedCommunitiesAttribute>().unwrap();
                communities.communities.pop();
                let router = router.map(|mac| m::Any::of(&m::RouterMacExtended { mac: mac.to_owned() }));
                communities.communities.extend(router);
                path.attributes[2] = m::Any::of(&communities);
                assert_eq!(of_message(&path), withdrawn);
            }
        }
        if let RouteSubject::Multicast { .. } = subject {
            let tunnel = m::PmsiTunnelAttribute { flags: 0, kind: 6, label: 100, id: vec![192, 0, 2, 2] };
            for other in [
                m::PmsiTunnelAttribute { kind: 3, ..tunnel.clone() },
                m::PmsiTunnelAttribute { id: vec![192, 0, 2, 9], ..tunnel.clone() },
                m::PmsiTunnelAttribute { id: Vec::new(), ..tunnel },
            ] {
                let mut path = good.clone();
                path.attributes[3] = m::Any::of(&other);
                assert_eq!(of_message(&path), withdrawn, "{other:?}");
            }
            // In the field's upper 20 bits, or in all 24.
            let field = good.attributes[3].read::<m::PmsiTunnelAttribute>().unwrap().label;
            assert_eq!(field, if says.label == 199 { 199 << 4 } else { 100 });
            let of_both = |tunnel_types: [u32; 2]| {
                let mut path = good.clone();
                let mut communities = path.attributes[2].read::<m::ExtendedCommunitiesAttribute>().unwrap();
                communities.communities.retain(|one| one.read::<m::EncapExtended>().is_none());
                let tunnels = tunnel_types.map(|tunnel_type| m::Any::of(&m::EncapExtended { tunnel_type }));
                communities.communities.extend(tunnels);
                path.attributes[2] = m::Any::of(&communities);
                let Some(RouteChange::Announced { says, .. }) = of_message(&path) else { panic!() };
                (says.label, says.encapsulations.into_iter().collect::<Vec<_>>())
            };
            // What has an identifier has no label.
            assert_eq!(of_both([8, 13]), (field, vec![Encapsulation::Vxlan]));
            assert_eq!(of_both([11, 99]), (field >> 4, vec![Encapsulation::MplsOverGre]));
            let without = m::Path { attributes: good.attributes[..3].to_vec(), ..good.clone() };
            assert_eq!(of_message(&without), withdrawn);
        }
        assert_eq!(of_message(&m::Path { nlri: None, ..good }), None);
    }
}

fn any_bytes() -> impl Strategy<Value = m::Any> {
    const NAMES: [&str; 7] = [
        "EVPNMACIPAdvertisementRoute",
        "EVPNInclusiveMulticastEthernetTagRoute",
        "EVPNIPPrefixRoute",
        "PmsiTunnelAttribute",
        "LabeledVPNIPAddressPrefix",
        "MpReachNLRIAttribute",
        "x",
    ];
    let name = proptest::sample::select(&NAMES[..]);
    (name, proptest::collection::vec(any::<u8>(), 0..60))
        .prop_map(|(name, value)| m::Any { type_url: format!("type.googleapis.com/apipb.{name}"), value })
}

proptest! {
    /// Whatever a speaker says of a route, it is told or left.
    #[test]
    fn nothing_that_a_speaker_says_does_harm(
        nlri in any_bytes(),
        attributes in proptest::collection::vec(any_bytes(), 0..3),
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        family in proptest::sample::select(&[(1, 128), (2, 128), (25, 70), (0, 0)][..]),
    ) {
        let family = Some(m::Family { afi: family.0, safi: family.1 });
        let mut routes = BgpRoutes::default();
        let paths = [m::Path { nlri: Some(nlri), attributes, family, ..m::Path::default() }];
        let decoded = m::WatchEventResponse::decode(&bytes[..]).unwrap_or_default().table.unwrap_or_default();
        let told = paths.iter().chain(&decoded.paths).filter_map(of_message);
        routes.hear(SpeakerEvent::Changes(told.collect()), Instant::now());
        updates(&mut routes, &parse(A));
    }
}
