use super::*;

const ROOM: u32 = 1000;

fn key(address: &str) -> ServiceKey {
    ServiceKey { protocol: Protocol::Tcp, address: address.parse().unwrap() }
}

fn add_service(address: &str) -> RuleChange {
    RuleChange::AddService { service: key(address), options: ServiceOptions::default() }
}

fn add_backend(address: &str, forward: Option<ForwardingMethod>) -> RuleChange {
    let options = BackendOptions { forward, ..BackendOptions::default() };
    RuleChange::AddBackend { service: key("192.0.2.1:80"), backend: address.parse().unwrap(), options }
}

fn local(address: &str) -> RuleChange {
    RuleChange::AddLocal { service: key("192.0.2.1:80"), address: address.parse().unwrap() }
}

#[track_caller]
fn rules(edits: &[RuleChange]) -> Rules {
    let mut rules = Rules::default();
    edits.iter().for_each(|edit| rules.edit(edit).unwrap());
    rules
}

#[test]
fn a_service_comes_into_force_when_nothing_lacks() {
    let edits = [
        add_service("192.0.2.1:80"),
        add_backend("10.0.0.1:80", Some(ForwardingMethod::FullNat)),
        local("198.51.100.1"),
    ];
    let lacks = |count| rules(&edits[..count]).services[0].lacks();
    assert_eq!([lacks(1), lacks(2), lacks(3)], [Some("a backend"), Some("a local address"), None]);
    assert_eq!(rules(&edits[..2]).config(ROOM).services, []);
    let config = rules(&edits).config(ROOM);
    config.validate().unwrap();
    assert_eq!(config.services[0].scheduler, Scheduler::WeightedLeastConnections);
    assert_eq!(
        config.services[0].forward,
        datapath::ForwardingMethod::FullNat { local: vec!["198.51.100.1".parse().unwrap()] }
    );
    // In DPVS's order, too.
    let other = rules(&[edits[0].clone(), edits[2].clone(), edits[1].clone()]);
    assert_eq!(other, rules(&edits));
}

/// A command does not take a service out of force for want of a local address of a family.
#[test]
fn backends_of_the_other_family_need_local_addresses_of_theirs() {
    let service = key("[2001:db8::1]:80");
    let (v4, v6): (IpAddr, IpAddr) = ("198.51.100.1".parse().unwrap(), "fd00::9".parse().unwrap());
    let add = |backend: &str, local: &[IpAddr]| {
        let options = BackendOptions {
            forward: Some(ForwardingMethod::FullNat),
            local: local.to_vec(),
            ..BackendOptions::default()
        };
        RuleChange::AddBackend { service, backend: backend.parse().unwrap(), options }
    };
    let local = |address| RuleChange::AddLocal { service, address };
    let mut rules = rules(&[add_service("[2001:db8::1]:80"), local(v6), add("[fd00::1]:80", &[])]);
    let before = rules.clone();
    let lacks = EditError::LocalOfFamily(service, "a local address of IPv4");
    assert_eq!(rules.edit(&add("10.0.0.1:80", &[])), Err(lacks.clone()));
    assert_eq!(rules, before);
    rules.edit(&add("10.0.0.1:80", &[v4])).unwrap();
    assert_eq!(rules.services[0].local, [v6, v4]);
    rules.config(ROOM).validate().unwrap();
    let before = rules.clone();
    assert_eq!(rules.edit(&RuleChange::DeleteLocal { service, address: v4 }), Err(lacks));
    assert_eq!(rules, before);
    let other = rules.edit(&RuleChange::DeleteLocal { service, address: v6 });
    assert_eq!(other, Err(EditError::LocalOfFamily(service, "a local address of IPv6")));
}

#[test]
fn what_is_there_is_not_added_and_what_is_not_there_not_changed() {
    let mut rules = rules(&[add_service("192.0.2.1:80"), add_backend("10.0.0.1:80", None)]);
    let before = rules.clone();
    let options = BackendOptions::default();
    let (service, other) = (key("192.0.2.1:80"), key("192.0.2.2:80"));
    let (one, two) = ("10.0.0.1:80".parse().unwrap(), "10.0.0.2:80".parse().unwrap());
    let address = "198.51.100.1".parse().unwrap();
    let refused = [
        (add_service("192.0.2.1:80"), EditError::ServiceExists(service)),
        (add_service("0.0.0.0:80"), EditError::Address([0; 4].into())),
        (add_service("224.0.0.1:80"), EditError::Address([224, 0, 0, 1].into())),
        (add_backend("127.0.0.1:80", None), EditError::Unusable([127, 0, 0, 1].into())),
        (RuleChange::AddLocal { service, address: [0; 4].into() }, EditError::Unusable([0; 4].into())),
        (RuleChange::DeleteService { service: other }, EditError::NoService(other)),
        (RuleChange::EditService { service: other, options: ServiceOptions::default() }, EditError::NoService(other)),
        (add_backend("10.0.0.1:80", None), EditError::BackendExists(service, one)),
        (
            RuleChange::AddBackend { service: other, backend: one, options: options.clone() },
            EditError::NoService(other),
        ),
        (RuleChange::EditBackend { service, backend: two, options }, EditError::NoBackend(service, two)),
        (RuleChange::DeleteBackend { service, backend: two }, EditError::NoBackend(service, two)),
        (RuleChange::DeleteLocal { service, address }, EditError::NoLocal(service, address)),
        (
            RuleChange::EditService {
                service,
                options: ServiceOptions { scheduler: Some("dh".into()), timeout: Some(1), ..ServiceOptions::default() },
            },
            EditError::Scheduler("dh".into()),
        ),
    ];
    for (edit, error) in refused {
        assert_eq!(rules.edit(&edit), Err(error.clone()));
        assert_eq!(rules, before, "{error}");
    }
}

#[test]
fn a_service_forwards_in_one_way() {
    let mut rules = rules(&[add_service("192.0.2.1:80"), add_backend("10.0.0.1:80", None)]);
    assert_eq!(rules.services[0].forward, Some(ForwardingMethod::Route));
    let error = rules.edit(&add_backend("10.0.0.2:80", Some(ForwardingMethod::Nat))).unwrap_err();
    assert_eq!(
        error.to_string(),
        "service tcp 192.0.2.1:80 forwards by route, and one service forwards in one way: 10.0.0.2:80 cannot have nat"
    );
    let change = |forward| RuleChange::EditBackend {
        service: key("192.0.2.1:80"),
        backend: "10.0.0.1:80".parse().unwrap(),
        options: BackendOptions {
            forward: Some(forward),
            weight: Some(7),
            limit: Some(3),
            lower_limit: None,
            tunnel: None,
            quic_id: None,
            local: Vec::new(),
            drain_ms: None,
        },
    };
    // As long as it is the only one.
    rules.edit(&change(ForwardingMethod::Nat)).unwrap();
    rules.edit(&add_backend("10.0.0.2:80", None)).unwrap();
    assert!(rules.edit(&change(ForwardingMethod::Route)).is_err());
    let service = &rules.services[0];
    assert_eq!((service.forward, service.backends[0].weight), (Some(ForwardingMethod::Nat), 7));
    assert_eq!(service.backends[0].limit, NonZeroU32::new(3));
}

#[test]
fn tunnels_are_from_a_prefix_or_from_local_addresses() {
    let from = |prefix: &str| RuleChange::EditService {
        service: key("192.0.2.1:80"),
        options: ServiceOptions { tunnel_source: Some(prefix.to_owned()), ..ServiceOptions::default() },
    };
    let local = RuleChange::AddLocal { service: key("192.0.2.1:80"), address: "10.0.0.200".parse().unwrap() };
    let tunnel = |forward, tunnel| RuleChange::AddBackend {
        service: key("192.0.2.1:80"),
        backend: "10.0.0.1:80".parse().unwrap(),
        options: BackendOptions { forward: Some(forward), tunnel: Some(tunnel), ..BackendOptions::default() },
    };
    let mut rules = rules(&[add_service("192.0.2.1:80"), from("172.16.0.0/16")]);
    for (edit, said) in [
        (&from("100::/64"), "is of another family"),
        (&from("172.16.0.1/16"), "bits behind"),
        (&from("192.0.0.0/16"), "the service's own address"),
        (&local, "a tunnel_source and local addresses"),
        (&tunnel(ForwardingMethod::Nat, Tunnel::Gre), "nat is no tunnel"),
        (&add_backend("10.0.0.1:80", Some(ForwardingMethod::Route)), "forwards in another way"),
    ] {
        let before = rules.clone();
        let error = rules.edit(edit).unwrap_err();
        assert!(error.to_string().contains(said) && !error.hint().is_empty(), "{error}");
        assert_eq!(rules, before);
    }
    rules.edit(&tunnel(ForwardingMethod::Tunnel, Tunnel::Gre)).unwrap();
    let service = &rules.services[0];
    assert_eq!((service.lacks(), service.local.len()), (None, 0));
    let [service] = &rules.config(1000).services[..] else { panic!("{rules:?}") };
    assert_eq!(service.forward.local(), ["172.16.0.0".parse::<IpAddr>().unwrap()]);
    let packed = datapath::Encapsulation { header: datapath::TunnelHeader::Gre, source_bits: 16 };
    assert_eq!(service.backends[0].encapsulation, packed);
    rules.edit(&from("off")).unwrap();
    assert_eq!(rules.services[0].lacks(), Some("a local address"));
    rules.edit(&local).unwrap();
    assert!(rules.edit(&from("172.16.0.0/16")).is_err());
}

#[test]
fn commands_add_no_more_than_there_can_be() {
    let mut rules = rules(&[add_service("192.0.2.1:80")]);
    let backend = |n: usize| add_backend(&format!("10.0.{}.{}:80", n / 256, n % 256), None);
    (0..datapath::MAX_BACKENDS).for_each(|n| rules.edit(&backend(n)).unwrap());
    let most = EditError::TooMany { what: "destinations of the service", most: 1024 };
    assert_eq!(rules.edit(&backend(datapath::MAX_BACKENDS)), Err(most));
}

#[test]
fn one_of_several_services_does_not_take_all_of_the_table() {
    let limits = |rules: &Rules| {
        rules.config(ROOM).services.iter().map(|service| service.limit.map_or(0, NonZeroU32::get)).collect::<Vec<_>>()
    };
    let add = |address: &str| {
        [
            add_service(address),
            RuleChange::AddBackend {
                service: key(address),
                backend: "10.0.0.1:80".parse().unwrap(),
                options: BackendOptions { forward: Some(ForwardingMethod::Nat), ..BackendOptions::default() },
            },
        ]
    };
    let mut rules = rules(&add("192.0.2.1:80"));
    assert_eq!(limits(&rules), [0]);
    add("192.0.2.2:80").iter().for_each(|edit| rules.edit(edit).unwrap());
    assert_eq!(limits(&rules), [750, 750]);
    rules.service_limit = Some(20);
    let limit = |limit| RuleChange::EditService {
        service: key("192.0.2.1:80"),
        options: ServiceOptions { limit: Some(limit), ..ServiceOptions::default() },
    };
    rules.edit(&limit(900)).unwrap();
    assert_eq!(limits(&rules), [900, 20]);
    rules.edit(&limit(0)).unwrap();
    assert_eq!(limits(&rules), [0, 20]);
}

#[test]
fn timeouts_are_those_of_the_service_then_those_of_all_then_the_defaults() {
    let set = RuleChange::Timeouts { tcp: 100, tcp_fin: 0, udp: 50 };
    let options = ServiceOptions { timeout: Some(30), scheduler: Some("rr".into()), ..ServiceOptions::default() };
    let edits = [
        add_service("192.0.2.1:80"),
        add_backend("10.0.0.1:80", None),
        set,
        RuleChange::EditService { service: key("192.0.2.1:80"), options },
    ];
    let seconds = |count: usize| rules(&edits[..count]).config(ROOM).services[0].timeouts.established.as_secs();
    assert_eq!([seconds(2), seconds(3), seconds(4)], [90, 100, 30]);
    let timeouts = rules(&edits).default_timeouts();
    assert_eq!((timeouts.fin_wait.as_secs(), timeouts.udp_normal.as_secs()), (120, 50));
}
