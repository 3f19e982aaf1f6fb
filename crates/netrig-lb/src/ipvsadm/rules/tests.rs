use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU16;

use proptest::prelude::*;

use super::*;
use crate::fixture;
use crate::message::{BackendEntry, BackendOptions, Counters, Rates, ServiceKey, ServiceLimits, ServicePersistence};

#[test]
fn rules_are_lines_of_ipvsadm() {
    let expected = "\
-A -t 192.0.2.1:80 -s wlc --limit 100000 --expire removed --source-limit 50 --source-rate 10 --new-rate 5000
-P -t 192.0.2.1:80 -z 10.0.0.200
-P -t 192.0.2.1:80 -z 10.0.0.201
-a -t 192.0.2.1:80 -r 10.0.0.12:8080 -b -w 1
-a -t 192.0.2.1:80 -r 10.0.0.9:8080 -b -w 100 -x 50000
-A -u [2001:db8::53]:53 -s sh --conn-timeout 10
-a -u [2001:db8::53]:53 -r [2001:db8:0:1::53]:53 -g -w 0
";
    assert_eq!(save(&fixture::status(), Names::Numeric), expected);
}

#[test]
fn lines_may_begin_with_the_program_and_may_be_comments() {
    let text = "# by hand\n\n  ipvsadm -C\n/sbin/ipvsadm -A -t 192.0.2.1:80\nnetrig lb -D -t 192.0.2.1:80\n\
                -P -t 192.0.2.1:80 -z 10.0.0.200 -F eth1\n";
    let rules = parse(text, NameResolution::Numbers).unwrap();
    assert_eq!(rules.edits.len(), 4);
    assert_eq!(rules.edits[0], RuleChange::Clear);
    assert_eq!(rules.devices.into_iter().collect::<Vec<_>>(), ["eth1"]);
    assert_eq!(parse("", NameResolution::Numbers).unwrap(), Rules::default());
}

#[test]
fn what_is_no_rule_is_refused_with_its_line() {
    for (text, why) in [
        ("-C\n-A -t 192.0.2.1:80 --pe sip", "line 2: --pe is refused"),
        ("-C\n\n-L -n", "line 3: '-L -n' changes no rule"),
        ("-R", "line 1: '-R' changes no rule"),
        ("-C --name other", "line 1: '-C --name other' changes no rule"),
        ("drop table", "line 1: no command is given"),
    ] {
        let error = parse(text, NameResolution::Numbers).unwrap_err().to_string();
        assert!(error.contains(why), "{text}: {error}");
    }
}

/// What the lines make of no service at all.
fn made_by(edits: &[RuleChange]) -> Vec<ServiceEntry> {
    let mut made: Vec<ServiceEntry> = Vec::new();
    let find = |made: &mut Vec<ServiceEntry>, key| made.iter().position(|service| service.key == key).unwrap();
    for edit in edits {
        match edit.clone() {
            RuleChange::AddService { service, options } => {
                let (scheduler, timeout) = (options.scheduler.unwrap(), options.timeout);
                made.push(ServiceEntry {
                    limit_said: options.limit,
                    expire: options.expire.unwrap_or("never".to_owned()),
                    sloppy_tcp: options.sloppy_tcp.unwrap_or_default(),
                    reuse: options.reuse.unwrap_or("reschedule".to_owned()),
                    syn_proxy_said: options.syn_proxy,
                    limits: options.limits,
                    persistence: options.persistence,
                    one_packet: options.one_packet.unwrap_or_default(),
                    dscp: options.dscp.unwrap_or("keep".to_owned()),
                    tunnel_source: options.tunnel_source,
                    ..of(service, scheduler, timeout, ForwardingMethod::Route, Vec::new(), Vec::new())
                });
            }
            RuleChange::AddLocal { service, address } => {
                let at = find(&mut made, service);
                made[at].local.push(address);
            }
            RuleChange::AddBackend {
                service,
                backend,
                options: BackendOptions { forward, weight, limit, lower_limit, tunnel, .. },
            } => {
                let at = find(&mut made, service);
                made[at].forward = forward.unwrap();
                let is_tunnel = forward == Some(ForwardingMethod::Tunnel);
                let tunnel = is_tunnel.then_some(tunnel.unwrap_or_default());
                let backend = backend_of(backend, weight.unwrap(), limit, lower_limit);
                made[at].backends.push(BackendEntry { tunnel, ..backend });
            }
            other => panic!("{other:?} is not what -S writes"),
        }
    }
    made
}

fn of(
    key: ServiceKey,
    scheduler: String,
    timeout: Option<u32>,
    forward: ForwardingMethod,
    local: Vec<std::net::IpAddr>,
    backends: Vec<BackendEntry>,
) -> ServiceEntry {
    let (counters, total, rates) = (Counters::default(), Counters::default(), Rates::default());
    let refused = Vec::new();
    ServiceEntry {
        key,
        scheduler,
        forward,
        local,
        timeout,
        limit: None,
        limit_said: None,
        expire: "never".to_owned(),
        sloppy_tcp: false,
        reuse: "reschedule".to_owned(),
        syn_proxy: "off".to_owned(),
        syn_proxy_said: None,
        syn_proxy_answers: false,
        client_address: "off".to_owned(),
        unanswered: 0,
        limits: ServiceLimits::default(),
        unlimited: 0,
        persistence: ServicePersistence::default(),
        one_packet: false,
        dscp: "keep".to_owned(),
        quic: None,
        tunnel_source: None,
        open: true,
        lacks: None,
        counters,
        total,
        rates,
        refused,
        health: None,
        backends,
    }
}

fn backend_of(address: SocketAddr, weight: u32, limit: Option<u32>, lower_limit: Option<u32>) -> BackendEntry {
    let (counters, total, rates) = (Counters::default(), Counters::default(), Rates::default());
    BackendEntry {
        address,
        weight,
        limit,
        lower_limit,
        tunnel: None,
        quic_id: None,
        leaving: false,
        drain_ms: None,
        active: 0,
        inactive: 0,
        persistent: 0,
        counters,
        total,
        rates,
        next_hop: None,
        health: None,
    }
}

fn address(six: bool) -> BoxedStrategy<std::net::IpAddr> {
    if six { any::<Ipv6Addr>().prop_map(Into::into).boxed() } else { any::<Ipv4Addr>().prop_map(Into::into).boxed() }
}

fn service() -> impl Strategy<Value = ServiceEntry> {
    let forward = prop::sample::select(vec![
        ForwardingMethod::FullNat,
        ForwardingMethod::Nat,
        ForwardingMethod::Route,
        ForwardingMethod::Tunnel,
    ]);
    let scheduler = prop::sample::select(vec!["rr", "wrr", "lc", "wlc", "sed", "nq", "sh", "mh"]);
    let protocol = prop::sample::select(vec![Protocol::Tcp, Protocol::Udp]);
    (any::<bool>(), protocol, 1..=u16::MAX, forward, scheduler, prop::option::of(1..=2_592_000_u32)).prop_flat_map(
        |(six, protocol, port, forward, scheduler, timeout)| {
            // The port stays as it is where packets are not translated.
            let keeps_port = matches!(forward, ForwardingMethod::Route | ForwardingMethod::Tunnel);
            let backend = (address(six), 1..=u16::MAX, 0..=65_535_u32, prop::option::of(1..u32::MAX)).prop_map(
                move |(ip, own, weight, limit)| {
                    let lower = limit.filter(|limit| limit % 2 == 0).map(|limit| limit / 2);
                    let own = NonZeroU16::new(own).unwrap();
                    let kinds = [Tunnel::Ipip, Tunnel::Gre, Tunnel::Gue { port: own, checksum: weight % 2 == 0 }];
                    let tunnel = (forward == ForwardingMethod::Tunnel).then_some(kinds[weight as usize % kinds.len()]);
                    let address = SocketAddr::new(ip, if keeps_port { port } else { own.get() });
                    BackendEntry { tunnel, ..backend_of(address, weight, limit, lower) }
                },
            );
            let local = prop::collection::vec(address(six), 0..4);
            (address(six), local, prop::collection::vec(backend, 1..5)).prop_map(move |(ip, local, backends)| {
                let key = ServiceKey { protocol, address: SocketAddr::new(ip, port) };
                let more = u32::from(port);
                ServiceEntry {
                    limit_said: (port % 3 > 0).then_some(more / 3),
                    expire: ["never", "removed", "quiescent"][usize::from(port % 3)].to_owned(),
                    sloppy_tcp: port % 2 == 0 && protocol == Protocol::Tcp,
                    reuse: ["reschedule", "keep"][usize::from(port % 2 > 0 && protocol == Protocol::Tcp)].to_owned(),
                    syn_proxy_said: [None, Some("always".to_owned())]
                        [usize::from(port % 5 > 2 && protocol == Protocol::Tcp)]
                    .clone(),
                    limits: match port % 3 {
                        0 => ServiceLimits::default(),
                        1 => ServiceLimits {
                            source_rate: Some(more),
                            source_prefix6: Some(48),
                            ..ServiceLimits::default()
                        },
                        _ => ServiceLimits { new_rate: Some(more), new_burst: Some(9), ..ServiceLimits::default() },
                    },
                    one_packet: port % 2 == 0 && protocol == Protocol::Udp,
                    dscp: ["keep", "ef", "cs0", "63"][usize::from(port % 4)].to_owned(),
                    tunnel_source: (forward == ForwardingMethod::Tunnel && port % 7 == 0)
                        .then(|| if six { "100::/64" } else { "172.16.0.0/16" }.to_owned()),
                    persistence: match (port % 4, six) {
                        (0, _) => ServicePersistence::default(),
                        (1, false) => ServicePersistence {
                            timeout: Some(more),
                            prefix4: Some(24),
                            prefix6: None,
                            group: Some(more),
                        },
                        (1, true) => {
                            ServicePersistence { timeout: Some(more), prefix4: None, prefix6: Some(56), group: None }
                        }
                        _ => ServicePersistence { timeout: Some(more), ..ServicePersistence::default() },
                    },
                    ..of(key, scheduler.to_owned(), timeout, forward, local, backends)
                }
            })
        },
    )
}

proptest! {
    #[test]
    fn what_is_saved_is_restored(services in prop::collection::vec(service(), 0..6)) {
        let mut services = services;
        services.sort_by_key(|service| order(service.key));
        services.dedup_by_key(|service| service.key);
        let status = Status { services: services.clone(), ..fixture::status() };
        let text = save(&status, Names::Numeric);
        let rules = parse(&text, NameResolution::Numbers).unwrap();
        prop_assert_eq!(made_by(&rules.edits), services, "{}", text);
    }

    #[test]
    fn nothing_panics(text in "(-[A-Za-z]|--[a-z-]{1,12}|--set|1\\.1\\.1\\.1:80|\\[::1\\]:?80|[0-9]{1,12}| |=|\n){0,12}") {
        let _ = parse(&text, NameResolution::Numbers);
    }
}
