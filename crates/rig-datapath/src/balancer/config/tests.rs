use super::super::encapsulation::TunnelHeader;
use super::*;

fn service() -> Service {
    Service::new(
        Protocol::Tcp,
        "192.0.2.1:80".parse().unwrap(),
        ForwardingMethod::FullNat { local: vec!["198.51.100.1".parse().unwrap()] },
        vec![Backend::new("203.0.113.1:8080".parse().unwrap(), 1)],
    )
}

fn refused(change: impl FnOnce(&mut Service)) -> ConfigError {
    let mut changed = service();
    change(&mut changed);
    Config { services: vec![changed], ..Config::default() }.validate().unwrap_err()
}

#[test]
fn what_cannot_be_done_is_refused_by_name() {
    assert_eq!(Config { services: vec![service()], ..Config::default() }.validate(), Ok(()));
    let twice = Config { services: vec![service(), service()], ..Config::default() };
    assert!(matches!(twice.validate(), Err(ConfigError::DuplicateService { .. })));
    let none = |s: &mut Service| s.forward = ForwardingMethod::FullNat { local: vec![] };
    assert!(matches!(refused(none), ConfigError::NoLocalAddress { forward: "fullnat", .. }));
    let port = |s: &mut Service| s.forward = ForwardingMethod::Route;
    assert!(matches!(refused(port), ConfigError::BackendPort { forward: "route", .. }));
    let family = |s: &mut Service| s.backends[0].address = "[2001:db8::1]:8080".parse().unwrap();
    assert!(matches!(refused(family), ConfigError::Family { .. }));
    let mapped = |s: &mut Service| s.address = "[::ffff:192.0.2.1]:80".parse().unwrap();
    assert!(matches!(refused(mapped), ConfigError::ServiceAddress { .. } | ConfigError::Family { .. }));
    assert!(matches!(refused(|s| s.backends.push(s.backends[0])), ConfigError::DuplicateBackend { .. }));
    assert!(matches!(refused(|s| s.backends[0].weight = 65_536), ConfigError::Weight { .. }));
    let lower = |limit, lower: u32| {
        let limits = (NonZeroU32::new(limit), NonZeroU32::new(lower));
        refused(|s: &mut Service| (s.backends[0].limit, s.backends[0].lower_limit) = limits)
    };
    assert!(matches!(lower(0, 5), ConfigError::LowerLimit { .. }));
    assert!(matches!(lower(4, 5), ConfigError::LowerLimit { .. }));
    assert!(matches!(refused(|s| s.address.set_port(0)), ConfigError::AnyPortFullNat { .. }));
    assert!(matches!(refused(|s| s.backends[0].address.set_port(0)), ConfigError::NoBackendPort { .. }));
    let any = |s: &mut Service| {
        s.address.set_port(0);
        s.forward = ForwardingMethod::Nat;
    };
    assert!(matches!(refused(any), ConfigError::AnyPortBackend { .. }));
    let once = |s: &mut Service| {
        any(s);
        s.backends[0].address.set_port(0);
        (s.protocol, s.one_packet) = (Protocol::Udp, true);
    };
    assert!(refused(once).to_string().contains("would be taken for answers"));
    let local = |s: &mut Service| s.forward = ForwardingMethod::FullNat { local: vec![s.address.ip()] };
    assert!(matches!(refused(local), ConfigError::LocalIsService { .. }));
    let same = |s: &mut Service| s.forward = ForwardingMethod::FullNat { local: vec![s.backends[0].address.ip()] };
    assert!(matches!(refused(same), ConfigError::LocalIsBackend { .. }));
    let mut another = service();
    another.address.set_port(81);
    another.backends[0].address.set_ip(service().forward.local()[0]);
    another.forward = ForwardingMethod::Nat;
    let of_another = Config { services: vec![service(), another], ..Config::default() };
    assert!(matches!(of_another.validate(), Err(ConfigError::LocalIsBackend { .. })));
    let told = |s: &mut Service| {
        (s.client_address, s.forward) = (ClientAddress::Toa, ForwardingMethod::Nat);
    };
    assert!(matches!(refused(told), ConfigError::ClientAddress { .. }));
    let datagrams = |s: &mut Service| {
        (s.client_address, s.protocol) = (ClientAddress::Toa, Protocol::Udp);
    };
    assert!(matches!(refused(datagrams), ConfigError::ClientAddress { .. }));
    let picked_up = |s: &mut Service| (s.client_address, s.sloppy_tcp) = (ClientAddress::Toa, true);
    assert!(matches!(refused(picked_up), ConfigError::PickedUpClient { .. }));
    let kept = |seconds, prefix| {
        let timeout = Duration::from_secs(seconds);
        refused(|s: &mut Service| s.persistence = Some(Persistence { timeout, prefix, group: None }))
    };
    assert!(matches!(kept(0, 32), ConfigError::Limits { .. }));
    assert!(matches!(kept(30 * 24 * 3600 + 1, 32), ConfigError::Limits { .. }));
    assert!(matches!(kept(300, 33), ConfigError::Limits { .. }));
    let packed = |local: &str, header, source_bits| {
        refused(|s: &mut Service| {
            s.forward = ForwardingMethod::Tunnel { local: vec![local.parse().unwrap()] };
            s.backends[0].address.set_port(80);
            s.backends[0].encapsulation = Encapsulation { header, source_bits };
        })
    };
    assert!(matches!(packed("198.51.100.1", TunnelHeader::IpInIp, 1), ConfigError::Limits { .. }));
    assert!(matches!(packed("198.51.0.0", TunnelHeader::Gre, 33), ConfigError::Limits { .. }));
    let gue = |s: &mut Service| s.backends[0].encapsulation.header = TunnelHeader::Gre;
    assert!(matches!(refused(gue), ConfigError::Limits { .. }));
    let zero = |s: &mut Service| s.timeouts.close = Duration::ZERO;
    assert!(matches!(refused(zero), ConfigError::Timeout { name: "close", .. }));
}

#[test]
fn timeouts_are_rounded_up_to_ticks() {
    let ticks = Timeouts::default().ticks();
    // 90 s and 10 s over 2^27 ns.
    assert_eq!((ticks[State::Established as usize], ticks[State::Close as usize]), (671, 75));
}
