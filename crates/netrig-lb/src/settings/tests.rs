#![allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;
use std::time::Duration;

use proptest::prelude::*;
use rig_datapath::balancer::{
    ClientAddress, FragmentPolicy, Limits, Policy, PortReuse, PortShare, QuicIds, Rate, Scheduler, UnhandledPolicy,
};
use rig_sys::socket::Dscp;

use super::*;
use crate::health::check::{BackendCheck, Check, Destination, Exchange, Probe};
use crate::health::outlier::OutlierRules;
use crate::message::{
    ForwardingMethod, Protocol, RuleChange, ServiceKey, ServiceLimits, ServiceOptions, ServicePersistence, Tunnel,
};

fn parse(text: &str) -> Settings {
    Settings::parse("lb.toml", text, Completeness::Required).unwrap_or_else(|error| panic!("{error}"))
}

#[track_caller]
fn refused(text: &str) -> String {
    Settings::parse("lb.toml", text, Completeness::Required).unwrap_err().to_string()
}

/// The DPVS study's eight services with eight backends and fifty local addresses.
const STUDY: &str = r#"
devices = ["eth0", { name = "eth1", generic = true }]
workers = 2
connections = 8_000_000
metrics = "127.0.0.1:9180"

[policy]
fragments = "pass"

[timeouts]
established = "2m"

[[service]]
listen = "tcp 192.168.5.1-192.168.5.8:80"
scheduler = "rr"
local = "192.168.3.100-192.168.3.149"
backend = ["192.168.6.100-192.168.6.107:80"]

[[service]]
listen = ["udp 192.0.2.1:53", "udp [2001:db8::1]:53"]
scheduler = "mh"
forward = "nat"
timeouts = { udp_normal = "10s" }
"#;

#[test]
fn a_file_says_what_it_looks_like() {
    let settings = parse(STUDY);
    let devices = settings.start.devices.iter().map(|device| (device.name.as_str(), device.generic));
    assert_eq!(devices.collect::<Vec<_>>(), [("eth0", false), ("eth1", true)]);
    assert_eq!(settings.start.workers, Workers::Count(2.try_into().unwrap()));
    assert_eq!((settings.start.sizes.connections, settings.start.sizes.backends), (8_000_000, 4096));
    assert_eq!(settings.start.metrics, Some("127.0.0.1:9180".parse().unwrap()));
    let config = settings.rules.config(1000);
    assert_eq!(config.services.len(), 10);
    let eighth = &config.services[7];
    assert_eq!(eighth.address, "192.168.5.8:80".parse().unwrap());
    assert_eq!(eighth.forward.local().len(), 50);
    assert_eq!(eighth.backends.len(), 8);
    assert_eq!(eighth.backends[7].address, "192.168.6.107:80".parse().unwrap());
    assert_eq!(eighth.timeouts.established, Duration::from_secs(120));
    assert_eq!(config.services[9].timeouts.udp_normal, Duration::from_secs(10));
    assert_eq!(config.policy, Policy { fragments: FragmentPolicy::Pass, ..Policy::default() });
}

/// A service of IPv6 may have backends of IPv4, with local addresses of theirs.
#[test]
fn backends_of_the_other_family_need_local_addresses_of_theirs() {
    let with = |more: &str| format!("[[service]]\nlisten = '[2001:db8::1]:80'\n{more}");
    let text = with(
        "client_address = 'toa'\nlocal = ['10.0.0.200-10.0.0.201', 'fd00::9']\nbackend = ['10.0.0.1', '[fd00::1]:81']",
    );
    let settings = parse(&text);
    let config = settings.rules.config(1000);
    assert_eq!(config.validate(), Ok(()));
    assert_eq!(config.services[0].backends[0].address, "10.0.0.1:80".parse().unwrap());
    // What is written is what was read.
    let again = parse(&settings.to_toml());
    assert_eq!(again.rules, settings.rules);

    for (more, said) in [
        ("local = 'fd00::9'\nbackend = ['10.0.0.1', 'fd00::1']", "lacks a local address of IPv4"),
        ("local = '10.0.0.200'\nbackend = ['10.0.0.1', 'fd00::1']", "lacks a local address of IPv6"),
        ("forward = 'nat'\nbackend = ['10.0.0.1']", "10.0.0.1 is of the other address family: only a service of IPv6"),
        ("forward = 'route'\nbackend = ['10.0.0.1']", "10.0.0.1 is of the other address family"),
        ("forward = 'tunnel'\nlocal = 'fd00::9'\nbackend = ['10.0.0.1']", "10.0.0.1 is of the other address family"),
        (
            "local = ['10.0.0.200', 'fd00::9']\nbackend = ['fd00::1', '10.0.0.1']\n[service.check]\nkind = 'tcp'\nsource = 'fd00::2'",
            "checks from fd00::2 of a backend that is probed at 10.0.0.1",
        ),
        (
            "forward = 'route'\nbackend = ['fd00::1']\n[service.check]\nkind = 'tcp'\nsource = '10.0.0.2'",
            "checks from 10.0.0.2 of [2001:db8::1]:80",
        ),
        (
            "local = 'fd00::9'\nbackend = ['fd00::1']\n[service.check]\nkind = 'tcp'\nsource = '10.0.0.2'",
            "checks from 10.0.0.2 of a backend that is probed at fd00::1",
        ),
    ] {
        let refused = refused(&with(more));
        assert!(refused.contains(said), "{refused}");
    }
    // `nat` and `route` are no way out.
    let refused = refused(&with("local = 'fd00::9'\nbackend = ['10.0.0.1', 'fd00::1']"));
    assert!(refused.contains("of its own family") && !refused.contains("route"), "{refused}");
    let checked = parse(&with(
        "local = '10.0.0.200'\nbackend = ['10.0.0.1']\n[service.check]\nkind = 'tcp'\nsource = '10.0.0.2'",
    ));
    assert_eq!(parse(&checked.to_toml()).rules, checked.rules);
    // What a command says of it holds for files, too.
    let add = |backend: &str| {
        let options = crate::message::BackendOptions {
            local: vec!["10.0.0.200".parse().unwrap(), "fd00::9".parse().unwrap()],
            ..Default::default()
        };
        let service = checked.rules.services[0].key;
        crate::message::RuleChange::AddBackend { service, backend: backend.parse().unwrap(), options }
    };
    let mut rules = checked.rules.clone();
    let refused = rules.edit(&add("[fd00::1]:80")).unwrap_err().to_string();
    assert_eq!(
        refused,
        "service tcp [2001:db8::1]:80 is checked from 10.0.0.2, which is of the other family than fd00::1"
    );
    assert_eq!(rules, checked.rules);
    rules.edit(&add("10.0.0.3:80")).unwrap();
}

#[test]
fn backends_are_short_or_long() {
    let settings = parse(
        "[[service]]\nlisten = '192.0.2.1:8000-8001'\nforward = 'route'\nbackend = ['10.0.0.1', \
         { address = '10.0.0.2', weight = 5, limit = 1000, drain = true }, { address = '10.0.0.3', limit = 0 }]",
    );
    let [first, second] = &settings.rules.services[..] else { panic!("{settings:?}") };
    assert_eq!(first.backends[0], Backend::new("10.0.0.1:8000".parse().unwrap()));
    assert_eq!(second.backends[1].address, "10.0.0.2:8001".parse().unwrap());
    assert_eq!((second.backends[1].weight, second.backends[1].effective_weight()), (5, 0));
    assert_eq!((second.backends[1].limit.map(Into::into), second.backends[2].limit), (Some(1000_u32), None));
}

#[test]
fn limits_of_those_who_begin_connections_are_of_each_service() {
    let settings = parse(
        "[[service]]\nlisten = ['192.0.2.1:80', '[2001:db8::1]:80']\nforward = 'nat'\nsource_limit = 5\nsource_rate = 10\n\
         source_burst = 30\nsource_prefix4 = 24\nnew_rate = 1000\n[[service]]\nlisten = '192.0.2.2:80'\nforward = 'nat'\n\
         source_limit = 0\nnew_rate = 0",
    );
    let config = settings.rules.config(1000);
    let [v4, v6, none] = &config.services[..] else { panic!("{config:?}") };
    assert_eq!((v4.limits.source_bits(false), v6.limits.source_bits(true)), (24, 64));
    assert_eq!(v4.limits.source_limit.map(u32::from), Some(5));
    let rate = |rate: Option<Rate>| rate.map(|rate| (rate.per_second.get(), rate.burst.get()));
    assert_eq!((rate(v6.limits.source_rate), rate(v6.limits.new_rate)), (Some((10, 30)), Some((1000, 1000))));
    assert_eq!(none.limits, Limits::default());
    assert_eq!(parse("[room]\nsources = 7").start.sizes.sources, 8);
}

#[test]
fn what_is_of_tcp_alone_holds_for_the_tcp_services_of_a_list() {
    let settings =
        parse("[[service]]\nlisten = ['udp 192.0.2.1:53', 'tcp 192.0.2.1:53']\nreuse = 'keep'\nsloppy_tcp = true");
    let held = settings.rules.services.iter().map(|service| (service.key.protocol, service.reuse, service.sloppy_tcp));
    let expected = [(Protocol::Udp, PortReuse::Reschedule, false), (Protocol::Tcp, PortReuse::Keep, true)];
    assert_eq!(held.collect::<Vec<_>>(), expected);
    // What runs since before this was told goes on.
    let text = "[[service]]\nlisten = 'udp 192.0.2.1:53'\nreuse = 'keep'";
    let kept = Settings::parse("kept", text, Completeness::Optional).unwrap();
    assert_eq!(kept.rules.services[0].reuse, PortReuse::Reschedule);
}

#[test]
fn mistakes_are_named_with_their_line_and_the_next_step() {
    let service = "[[service]]\nlisten = 'tcp 192.0.2.1:80'\n";
    let with = |more: &str| format!("\n{service}{more}");
    let cases = [
        ("\nworker = 1".to_owned(), "lb.toml:2: unknown field `worker`", "`workers`"),
        ("devices = ['eth0', 'eth0']".to_owned(), "lb.toml:1: device 'eth0' is listed twice", ""),
        ("devices = [{ nam = 'eth0' }]".to_owned(), "lb.toml:1: unknown field `nam`", "`name`"),
        ("devices = ['a/b']".to_owned(), "'a/b' is not a network device", "ip link"),
        ("workers = 1\ncpus = '1'".to_owned(), "lb.toml:2: both", "either"),
        ("workers = 0".to_owned(), "lb.toml:1: 0 workers", "choose 1"),
        ("\nhand_over = {}".to_owned(), "lb.toml:2: 'hand_over' without workers", "'workers' or 'cpus'"),
        ("workers = 1\nhand_over = { queue = 0 }".to_owned(), "lb.toml:2: a queue for 0 packets", "1 to 16384"),
        ("workers = 1\nhand_over = { queue = 16385 }".to_owned(), "a queue for 16385 packets", "1 to 16384"),
        ("workers = 1\nhand_over = { priority = 100 }".to_owned(), "lb.toml:2: 'priority'", "1 to 99"),
        ("workers = 1\nhand_over = { room = 1 }".to_owned(), "lb.toml:2: unknown field `room`", "queue"),
        ("cpus = 'all'".to_owned(), "'all' is not a list of CPUs", "2-3"),
        ("connections = 10".to_owned(), "lb.toml:1: a balancer cannot be made for 10 connections", ""),
        ("\n[room]\nbackends = 70000".to_owned(), "lb.toml:2: a balancer cannot be made for 70000 backends", ""),
        ("metrics = 'here'".to_owned(), "lb.toml:1: 'here' is not an address", "127.0.0.1"),
        ("metrics = '[fe80::1]:9180'".to_owned(), "lb.toml:1: fe80::1 is a link-local address", "add %interface"),
        ("metrics = '[fe80::1%nosuch0]:9180'".to_owned(), "lb.toml:1: fe80::1%nosuch0", "no interface 'nosuch0'"),
        ("[timeouts]\nestablished = '10ms'".to_owned(), "lb.toml:2: timeout 'established' of 10ms", "30 days"),
        ("[timeouts]\n\nopen = '10s'".to_owned(), "lb.toml:3: there is no timeout 'open'", "established"),
        ("[policy]\noptions = 'keep'".to_owned(), "lb.toml:2: unknown variant `keep`", "`pass`"),
        (with("scheduler = 'dh'"), "lb.toml:4: there is no scheduler 'dh'", "rr, wrr, lc, wlc, sed, nq, sh, mh"),
        (with("persistence = '1500ms'"), "lb.toml:4: persistence of 1.5s", "whole seconds"),
        (with("persistence = '0s'"), "lb.toml:4: persistence of 0", "1 s to 30 days"),
        (with("persistence = '745h'"), "lb.toml:4: persistence is too long", "30 days"),
        (with("persistence_prefix4 = 24"), "lb.toml:4: persistence_prefix4 without persistence", "300s"),
        (with("persistence_group = 3"), "lb.toml:4: persistence_group without persistence", "300s"),
        (
            with("persistence = '5s'\npersistence_prefix6 = 64"),
            "lb.toml:5: persistence_prefix6 of an IPv4 service",
            "persistence_prefix4",
        ),
        (
            with("forward = 'nat'\nbackend = [{ address = '10.0.0.1', lower_limit = 5 }]"),
            "lb.toml:5: 'lower_limit' without a 'limit'",
            "add limit",
        ),
        (with("forward = 'nat'\ntunnel = 'gue'"), "lb.toml:5: 'tunnel' of a service that forwards", "tunnel"),
        (with("forward = 'tunnel'\ntunnel = 'vxlan'"), "lb.toml:5: there is no tunnel 'vxlan'", "ipip, gue, gre"),
        (with("forward = 'tunnel'\ntunnel = { type = 'gre', checksum = true }"), "lb.toml:5: gre has no checksum", "gue"),
        (with("forward = 'tunnel'\ntunnel_source = '172.16.0.0'"), "lb.toml:5: '172.16.0.0' is no prefix", "/16"),
        (
            with("forward = 'tunnel'\nlocal = '10.0.0.1'\ntunnel_source = '172.16.0.0/16'"),
            "lb.toml:6: a tunnel_source and local addresses",
            "remove one",
        ),
        (with("expire = 'soon'"), "lb.toml:4: there is no way to expire 'soon'", "never, removed, quiescent"),
        (with("source_limit = 5\nsource_burst = 9"), "lb.toml:5: source_burst without a rate", "source_rate"),
        (with("source_prefix4 = 24"), "lb.toml:4: source_prefix4 without a limit for sources", "source_limit"),
        (with("source_rate = 5\nsource_prefix4 = 33"), "lb.toml:5: source_prefix4 is too much", "1 to 32"),
        (with("source_rate = 5\nsource_prefix6 = 33"), "lb.toml:5: source_prefix6 of an IPv4 service", "source_prefix4"),
        (with("new_rate = 10_000_001"), "lb.toml:4: new_rate is too much", "10000000"),
        (with("source_limit = -1"), "lb.toml:4:", ""),
        ("\n[room]\nsources = 1 << 3".to_owned(), "lb.toml:3:", ""),
        ("\n[room]\nsources = 99_999_999".to_owned(), "lb.toml:2: a balancer cannot be made for 100000000 sources", ""),
        (with("reuse = 'maybe'"), "lb.toml:4: there is no way to reuse ports 'maybe'", "reschedule, keep"),
        (
            "[[service]]\nlisten = ['udp 192.0.2.1:53', 'udp 192.0.2.2:53']\nreuse = 'keep'".to_owned(),
            "lb.toml:3: 'reuse' of a UDP service",
            "no `listen` of the service is tcp",
        ),
        (
            "[[service]]\nlisten = 'udp 192.0.2.1:53'\nsloppy_tcp = false".to_owned(),
            "lb.toml:3: 'sloppy_tcp' of a UDP service",
            "remove it",
        ),
        (with("forward = 'dr'"), "lb.toml:4: there is no way to forward 'dr'", "route"),
        (
            with("backend = ['10.0.0.1:80']"),
            "lb.toml:3: tcp 192.0.2.1:80 forwards by full-nat and lacks a local",
            "local =",
        ),
        (with("forward = 'nat'\nlocal = ['10.0.0.1']"), "lb.toml:5: a service that does not translate", "full-nat"),
        (with("forward = 'nat'\nbackend = ['10.0.0.1:x']"), "lb.toml:5: 'x' is not a port", "10.0.0.1:80"),
        (
            with("forward = 'route'\nbackend = [\n'10.0.0.1:81']"),
            "lb.toml:6: service 192.0.2.1:80: backend 10.0.0.1:81 has another port",
            "",
        ),
        (
            with("forward = 'nat'\nbackend = [\n'10.0.0.1-10.0.0.3:80',\n'10.0.0.2:80']"),
            "lb.toml:7: tcp 192.0.2.1:80: backend 10.0.0.2:80 is listed twice",
            "",
        ),
        (
            with("forward = 'nat'\nbackend = [{ address = '10.0.0.1', weigth = 2 }]"),
            "lb.toml:5: unknown field `weigth`",
            "`weight`",
        ),
        (
            with("forward = 'nat'\nbackend = [{ address = '10.0.0.1', weight = 70000 }]"),
            "lb.toml:5: weight 70000",
            "65535",
        ),
        (with("forward = 'nat'\nbackend = ['fd00::1']"), "fd00::1 is of the other address family", ""),
        (with("local = ['10.0.0.9', 'fd00::9']\nbackend = ['fd00::1']"), "only a service of IPv6 that is forwarded by", ""),
        (with("[[service]]\nlisten = ['192.0.2.1:80']"), "lb.toml:5: tcp 192.0.2.1:80 is listed twice", ""),
        (
            "[[service]]\nlisten = ['192.0.2.1-192.0.2.2:80', '192.0.2.2:80']".to_owned(),
            "lb.toml:2: tcp 192.0.2.2:80 is listed twice",
            "",
        ),
        (
            "[[service]]\nlisten = '192.0.0.0-192.0.255.255:1-65535'".to_owned(),
            "lb.toml:2: '192.0.0.0-192.0.255.255:1-65535' wants 4294901760 more services, and there is room for 256",
            "[room] services",
        ),
        (
            "[room]\nservices = 65_535\n[[service]]\nlisten = ['192.0.0.0-192.0.127.255:80', '192.1.0.0-192.1.127.255:80']"
                .to_owned(),
            "wants 32768 more services, and there is room for 32767",
            "65535",
        ),
        (
            with("forward = 'nat'\nbackend = ['10.0.0.0-10.0.255.255:1-65535']"),
            "lb.toml:5: '10.0.0.0-10.0.255.255:1-65535' wants 4294901760 more backends of one service",
            "1024",
        ),
        (
            // Each of 256 services would have 1,024.
            "[[service]]\nlisten = '192.0.2.0-192.0.2.255:80'\nforward = 'nat'\nbackend = ['10.0.0.0-10.0.3.255:80']"
                .to_owned(),
            "lb.toml:4: '10.0.0.0-10.0.3.255:80' wants 1024 more backends, and there is room for 0",
            "[room] backends",
        ),
        (with("local = ['10.0.0.0-10.0.255.255']"), "lb.toml:4: '10.0.0.0-10.0.255.255' wants 65536 more local", "1024"),
        (
            "[room]\nservices = 65_535\nlocal_addresses = 65_535\n[[service]]\nlisten = '192.0.0.0-192.0.127.255:80'\n\
             local = '10.0.0.0-10.0.127.255'"
                .to_owned(),
            "lb.toml:5: '192.0.0.0-192.0.127.255:80' wants 32768 more local addresses in the lists of services",
            "schedule_entries",
        ),
        (
            with("deny = ['198.51.100.1/24']"),
            "lb.toml:4: '198.51.100.1/24' has bits set behind its length: write 198.51.100.0/24",
            "",
        ),
        (with("allow = '198.51.100'"), "lb.toml:4: '198.51.100' is not a prefix", "2001:db8::/32"),
        (with("deny_file = 'deny.list'"), "lb.toml:4: deny.list is not a whole path", ""),
        (with("allow_file = '/nowhere/list'"), "lb.toml:4: cannot read /nowhere/list: No such file", ""),
        (
            with("forward = 'nat'\nbackend = '10.0.0.1'").replace("backend = '10.0.0.1'", "backend = ['10.0.0.1']\nallow = '10.0.0.0/8'\ndeny = '10.0.0.0/8'"),
            "the prefix 10.0.0.0/8 is in both lists",
            "",
        ),
        (
            "deny = ['10.0.0.0/8', '2001:db8::/32']\n[room]\nprefixes = 3\n[[service]]\nlisten = '192.0.2.1-192.0.2.2:80'\n\
             deny = '10.0.0.1'"
                .to_owned(),
            "2 more prefixes of allow and deny, and there is room for 1",
            "[room] prefixes",
        ),
        ("[[service]]\nlisten = ['sctp 192.0.2.1:80']".to_owned(), "lb.toml:2: 'sctp' is not a protocol", "udp"),
        ("[[service]]\nlisten = ['192.0.2.1']".to_owned(), "lb.toml:2: '192.0.2.1' has no port", "192.0.2.1:80"),
        (
            "[[service]]\nlisten = ['127.0.0.1:80']\nforward = 'nat'".to_owned(),
            "lb.toml:2: service 127.0.0.1:80: 127.0.0.1 is unspecified, multicast, loopback or of IPv4 in IPv6: no service, backend or local address can be that",
            "",
        ),
        ("connections = ".to_owned(), "lb.toml:1:", ""),
    ];
    for (text, what, hint) in cases {
        let said = refused(&text);
        assert!(said.contains(what) && said.contains(hint), "{text}\n  says: {said}\n  lacks: {what} {hint}");
    }
}

#[test]
fn what_commands_have_begun_can_be_kept() {
    let text = "[[service]]\nlisten = '192.0.2.1:80'\nforward = 'full-nat'\nbackend = ['10.0.0.1:80']";
    let settings = Settings::parse("kept", text, Completeness::Optional).unwrap();
    assert_eq!(settings.rules.services[0].lacks(), Some("a local address"));
    assert_eq!(settings.rules.config(1000).services, []);
}

/// Nothing of it is in a table before it is in force.
#[test]
fn what_commands_have_begun_is_kept_beyond_the_room_of_tables() {
    let room = "[room]\nservices = 1\nbackends = 1\nlocal_addresses = 1\nschedule_entries = 1\n";
    let lacks_local =
        "[[service]]\nlisten = '192.0.2.1:80'\nforward = 'full-nat'\nbackend = ['10.0.0.1-10.0.0.2:80']\n";
    let lacks_backend = "[[service]]\nlisten = '192.0.2.2:80'\nlocal = '198.51.100.1-198.51.100.3'\n";
    for (text, services) in
        [(lacks_local.to_owned(), 1), (lacks_backend.to_owned(), 1), (format!("{lacks_local}{lacks_backend}"), 2)]
    {
        let text = format!("{room}{text}");
        let settings = Settings::parse("kept", &text, Completeness::Optional).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((settings.rules.services.len(), settings.rules.config(1000).services), (services, vec![]));
        assert!(refused(&text).contains("there is room for"), "{text}");
    }
}

#[test]
fn written_as_one_would_by_hand() {
    assert_eq!(
        parse(STUDY).to_toml(),
        r#"devices = ["eth0", { name = "eth1", generic = true }]
workers = 2
connections = 8000000
metrics = "127.0.0.1:9180"

[policy]
fragments = "pass"

[timeouts]
established = "120s"

[[service]]
listen = ["tcp 192.168.5.1-192.168.5.8:80"]
scheduler = "rr"
forward = "full-nat"
local = ["192.168.3.100-192.168.3.149"]
backend = ["192.168.6.100-192.168.6.107:80"]

[[service]]
listen = [
    "udp 192.0.2.1:53",
    "udp [2001:db8::1]:53",
]
scheduler = "mh"
forward = "nat"
timeouts = { udp_normal = "10s" }
"#
    );
}

#[test]
fn changes_are_told_one_by_one() {
    let old = parse(STUDY).rules;
    assert_eq!(changes(&old, &old), Vec::<String>::new());
    let mut new = old.clone();
    new.services.remove(9);
    new.services[0].backends.remove(0);
    new.services[0].limits.source_limit = Some(20);
    new.services[0].backends[0].drain = true;
    new.services[0].backends[1].quic_id = Some(7);
    new.services[0].scheduler = rig_datapath::balancer::Scheduler::WeightedRoundRobin;
    new.services[1].local.pop();
    new.services[8].timeouts.set_main(rig_datapath::balancer::Protocol::Udp, Duration::from_secs(20));
    new.services.push(Service::new(ServiceKey { protocol: Protocol::Tcp, address: "192.0.2.9:443".parse().unwrap() }));
    new.policy.fragments = FragmentPolicy::Drop;
    new.policy.strays = None;
    assert_eq!(
        changes(&old, &new),
        [
            "udp [2001:db8::1]:53 removed; its connections go on",
            "tcp 192.168.5.1:80: scheduler rr is now wrr",
            "tcp 192.168.5.1:80: source_limit is now 20",
            "tcp 192.168.5.1:80: backend 192.168.6.100:80 removed; its connections go on",
            "tcp 192.168.5.1:80: backend 192.168.6.101:80: weight 1 is now weight 1, draining",
            "tcp 192.168.5.1:80: backend 192.168.6.102:80: quic_id is now 7",
            "tcp 192.168.5.2:80: 0 local addresses added, 1 removed",
            "udp 192.0.2.1:53: timeouts: UDP 10s is now 20s",
            "tcp 192.0.2.9:443 added with 0 backends",
            "fragments are now dropped",
            "packets of no connection are now passed to the kernel without limit",
        ]
    );
}

fn said() -> impl Strategy<Value = TimeoutOverrides> {
    let names: Vec<&str> = TimeoutOverrides::names().collect();
    proptest::collection::vec((proptest::sample::select(names), 1_000_u64..2_592_000_000), 0..4).prop_map(|list| {
        let mut said = TimeoutOverrides::default();
        for (name, ms) in list {
            assert!(said.set(name, Duration::from_millis(ms)));
        }
        said
    })
}

fn backend(v6: bool, n: u8, port: u16) -> SocketAddr {
    let ip: IpAddr = if v6 { [0xfd00, 0, 0, 0, 0, 0, 0, n.into()].into() } else { [10, 0, 0, n].into() };
    SocketAddr::new(ip, port)
}

/// None, one that is allowed, or several that are denied.
fn access(number: u32) -> Access {
    let mut access = Access::default();
    let said = |prefixes: &[&str]| prefixes.iter().map(|prefix| prefix.parse().unwrap()).collect();
    match number {
        0 => {}
        1 => access.allow.said = said(&["198.51.100.0/24"]),
        _ => access.deny.said = said(&["0.0.0.0/0", "2001:db8:1::/48", "2001:db8::7/128"]),
    }
    access
}

prop_compose! {
    fn service()(
        udp in any::<bool>(), v6 in any::<bool>(), n in 1_u8..250, port in 1_u16..1000,
        scheduler in 0_usize..SCHEDULERS.len(), forward in proptest::option::of(0_usize..FORWARDS.len()),
        local in proptest::collection::btree_set(any::<u8>(), 0..6), shuffled in any::<bool>(),
        timeouts in said(), most in 0_u32..3,
        backends in proptest::collection::btree_map(1_u8..250, (0_u32..3, 0_u32..3, any::<bool>(), any::<bool>()), 0..8),
    ) -> Service {
        let protocol = if udp { Protocol::Udp } else { Protocol::Tcp };
        let ip: IpAddr =
            if v6 { [0x2001, 0xdb8, 0, 0, 0, 0, 0, n.into()].into() } else { [192, 0, 2, n].into() };
        let mut service = Service::new(ServiceKey { protocol, address: SocketAddr::new(ip, port) });
        service.scheduler = SCHEDULERS[scheduler].1;
        service.forward = forward.map(|forward| FORWARDS[forward].1);
        if service.forward.is_none() && !backends.is_empty() {
            service.forward = Some(ForwardingMethod::FullNat);
        }
        let keeps_port = matches!(service.forward, Some(ForwardingMethod::Route | ForwardingMethod::Tunnel));
        if !matches!(service.forward, Some(ForwardingMethod::Nat | ForwardingMethod::Route)) {
            service.local = local.into_iter().map(|n| match v6 {
                true => [0xfd01, 0, 0, 0, 0, 0, 0, n.into()].into(),
                false => IpAddr::from([198, 51, 100, n]),
            }).collect();
            if shuffled {
                service.local.reverse();
            }
        }
        service.timeouts = timeouts;
        service.access = access(most);
        service.limit = (most != 1).then_some(most);
        if shuffled {
            let both = ServiceLimits { source_prefix4: Some(24), source_prefix6: Some(56), ..ServiceLimits::default() };
            let limits = ServiceLimits { source_limit: Some(1 + most), new_rate: Some(7), ..both };
            service.limits = limits.of_family(service.key.address.is_ipv6());
            let both = ServicePersistence { timeout: Some(1 + most % 9), prefix4: Some(24), prefix6: Some(56), group: Some(9) };
            service.persistence = both.of_family(service.key.address.is_ipv6());
        }
        service.dscp = [None, Dscp::of_name("ef"), Dscp::try_from(63).ok()][most as usize % 3];
        service.expire = EXPIRES[most as usize % EXPIRES.len()].1;
        if !udp {
            service.one_packet = shuffled && service.key.protocol == Protocol::Udp;
            if service.one_packet {
                (service.forward, service.scheduler, service.limit) = (Some(ForwardingMethod::Nat), Scheduler::Maglev, None);
            }
            service.sloppy_tcp = shuffled && service.forward != Some(ForwardingMethod::FullNat);
            service.reuse = REUSES[most as usize % REUSES.len()].1;
            if matches!(service.forward, Some(ForwardingMethod::FullNat | ForwardingMethod::Nat)) {
                let eject = Duration::from_secs((1 + most % 3600).into());
                let longest = if most % 2 == 0 { Duration::from_secs(86_400) } else { eject.max(Duration::from_secs(300)) };
                let usual = OutlierRules::default();
                service.outlier = shuffled.then_some(OutlierRules { failures: 1 + most % 9, eject, longest, most: 1 + most % 100, ..usual });
            }
        }
        let told = CLIENT_ADDRESSES[most as usize % CLIENT_ADDRESSES.len()].1;
        if service.forward == Some(ForwardingMethod::FullNat) && told.fits(rules::protocol(service.key.protocol)) {
            service.client_address = told;
        }
        service.backends = backends.into_iter().map(|(n, (weight, limit, drain, other))| Backend {
            address: backend(v6, n, if other && !keeps_port { 8080 } else { port }),
            weight,
            limit: limit.try_into().ok(),
            lower_limit: if drain { NonZeroU32::new(limit / 2) } else { None },
            drain,
            drained: false,
            sorry: shuffled && drain,
            check: match limit % 4 {
                0 => BackendCheck::Off,
                1 => BackendCheck::At { address: None, port: Some(port) },
                2 => BackendCheck::At { address: Some(backend(v6, n, port).ip()), port: udp.then_some(port) },
                _ => BackendCheck::AsService,
            },
            tunnel: match (service.is_tunnel(), weight) {
                (true, 1) => Tunnel::Gre,
                (true, 2) => Tunnel::Gue { port: NonZeroU16::new(port).unwrap(), checksum: drain },
                _ => Tunnel::Ipip,
            },
            quic_id: (udp && shuffled).then_some(n.into()),
        }).collect();
        service.quic = (udp && shuffled).then_some(QuicIds { configuration: (most % 7) as u8, length: 1 + (n % 7) });
        if service.is_tunnel() && service.local.is_empty() {
            service.tunnel_source = Some(if v6 { "100::/64" } else { "172.16.0.0/16" }.parse().unwrap());
        }
        service.check = shuffled.then(|| {
            let probe = Probe::Tcp(Exchange { send: vec![most as u8, 0xff], expect: b"0x\n\"'".to_vec() });
            let rise = 1 + most % 100;
            Box::new(Check { rise, port: udp.then_some(port), ..Check::new(probe, Destination::Service) })
        });
        service
    }
}

prop_compose! {
    fn settings()(
        services in proptest::collection::btree_map((0_u8..3, 0_u16..3), service(), 0..6), timeouts in said(),
        alike in any::<bool>(), pass in any::<(bool, bool)>(), connections in 64_u32..9_000_000,
        backends in 1_u32..65_536, generic in any::<bool>(), workers in 0_u32..3, metrics in any::<Option<u16>>(),
        hand_over in proptest::option::of((1_u32..=16_384, proptest::option::of(1_u8..100))),
    ) -> Settings {
        let mut services: Vec<Service> = services.into_values().collect();
        services.sort_by_key(|service| service.key);
        services.dedup_by_key(|service| service.key);
        if alike && let Some(first) = services.first().cloned() {
            // One that is written into the same table.
            let mut next = first.key;
            next.address.set_ip(if next.address.is_ipv4() { [203, 0, 113, 1].into() } else { [0xfd02, 0, 0, 0, 0, 0, 0, 1].into() });
            services.insert(1, Service { key: next, ..first });
        }
        let fragments = [FragmentPolicy::Forward, FragmentPolicy::Drop, FragmentPolicy::Pass][usize::from(pass.0) + usize::from(generic && pass.0)];
        let unhandled = |pass: bool| if pass { UnhandledPolicy::Pass } else { UnhandledPolicy::Drop };
        let mut settings = Settings {
            rules: Rules { services, access: access(workers), policy: Policy { fragments, options: unhandled(pass.1), strays: metrics.and_then(|most| u32::from(most).try_into().ok()) }, timeouts, service_limit: metrics.map(Into::into), syn_proxy_secret: metrics.map(|_| "/etc/a secret".into()), others_local: Vec::new() },
            ..Settings::default()
        };
        settings.start.sizes.connections = connections;
        settings.start.sizes.backends = backends;
        settings.start.devices = vec![Device { name: "eth\"0".into(), generic }];
        settings.start.workers = match workers {
            0 => Workers::Unplaced,
            1 => Workers::Count(3.try_into().unwrap()),
            _ => Workers::Cpus("1-2,5".parse().unwrap()),
        };
        let hand_over = hand_over.filter(|_| settings.start.workers != Workers::Unplaced);
        settings.start.hand_over = hand_over.map(|(queue, priority)| HandOver { queue, priority });
        settings.start.metrics = metrics.map(|port| SocketAddr::new([127, 0, 0, 1].into(), port));
        if let Some(port) = metrics.filter(|port| *port > 1) {
            let at = |host| SocketAddr::new([10, 9, 0, host].into(), port);
            settings.start.sync = Some(SyncSettings {
                address: at(1),
                peers: vec![at(2), at(3)],
                key: "/etc/a key".into(),
                interval: Duration::from_millis(100 + u64::from(port % 100)),
                after: Duration::from_millis(u64::from(port)),
                full: Duration::from_secs(1),
                rate: 10_000 + u64::from(port),
            });
            settings.start.bgp = Some(BgpSettings { speaker: format!("127.0.0.1:{port}"), local: generic });
            let of = 1 + port % PortShare::MOST;
            settings.start.sizes.ports = PortShare { share: 1 + port / 16 % of, of };
            settings.rules.others_local = (0..port % 3).map(|host| [10, 8, 0, host as u8].into()).collect();
        }
        settings
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read_the_same(settings in settings()) {
        let text = settings.to_toml();
        let read = Settings::parse("lb.toml", &text, Completeness::Optional);
        prop_assert_eq!(read.map_err(|error| format!("{error}\n{text}")), Ok(settings));
    }

    #[test]
    fn no_text_makes_it_panic(text in "(\\[\\[service\\]\\]|listen|local|backend|=|\\[|\\]|'|\"|[0-9.:-]|\n| ){0,40}") {
        let _ = Settings::parse("lb.toml", &text, Completeness::Required);
    }
}

#[test]
fn the_syn_proxy_is_off_unless_it_is_asked_for() {
    let service = |more: &str| format!("[[service]]\nlisten = '192.0.2.1:80'\nbackend = ['10.0.0.1:80']\n{more}");
    let said = |more: &str| parse(&service(more)).rules.services[0].syn_proxy();
    let full_nat = "local = '198.51.100.1'\n";
    assert_eq!(said(full_nat), SynProxy::Off);
    assert_eq!(said(&format!("{full_nat}syn_proxy = 'auto'")), SynProxy::Auto);
    assert_eq!(said("forward = 'route'"), SynProxy::Off);
    assert_eq!(said(&format!("{full_nat}syn_proxy = 'always'")), SynProxy::Always);
    let off = parse(&service("forward = 'nat'\nsyn_proxy = 'off'"));
    assert_eq!(off.rules.services[0].syn_proxy(), SynProxy::Off);
    assert!(off.to_toml().contains("syn_proxy = \"off\"\n"), "{}", off.to_toml());
    let refused =
        |more: &str| Settings::parse("lb.toml", &service(more), Completeness::Required).unwrap_err().to_string();
    assert!(refused("forward = 'nat'\nsyn_proxy = 'on'").contains("there is no SYN proxy 'on'"));
    assert_eq!(said("forward = 'route'\nsyn_proxy = 'always'"), SynProxy::Always);
}

#[test]
fn clients_addresses_are_told_by_full_nat_alone() {
    let service = |more: &str| format!("[[service]]\nlisten = '192.0.2.1:80'\nbackend = ['10.0.0.1:80']\n{more}");
    let full_nat = "local = '198.51.100.1'\n";
    assert_eq!(parse(&service(full_nat)).rules.services[0].client_address, ClientAddress::Off);
    let toa = parse(&service(&format!("{full_nat}client_address = 'toa'")));
    assert_eq!(toa.rules.services[0].client_address, ClientAddress::Toa);
    assert!(toa.to_toml().contains("client_address = \"toa\"\n"), "{}", toa.to_toml());
    let config = toa.rules.config(1000);
    assert_eq!((config.services[0].client_address, config.validate()), (ClientAddress::Toa, Ok(())));
    let unknown = refused(&service(&format!("{full_nat}client_address = 'tao'")));
    assert!(unknown.contains("lb.toml:5: there is no way to tell clients' addresses 'tao'"), "{unknown}");
    for other in ["nat", "route"] {
        let refused = refused(&service(&format!("forward = '{other}'\nclient_address = 'toa'")));
        assert!(refused.contains(&format!("lb.toml:5: 'client_address' with forward = \"{other}\"")), "{refused}");
    }
    let udp = |how| {
        format!(
            "[[service]]\nlisten = 'udp 192.0.2.1:53'\nlocal = '198.51.100.1'\nclient_address = '{how}'\nbackend = ['10.0.0.1:53']"
        )
    };
    for how in ["toa", "proxy_v2"] {
        let refused = refused(&udp(how));
        assert!(refused.contains(&format!("lb.toml:4: client_address = \"{how}\" without")), "{refused}");
        assert!(refused.contains("say \"uoa\""), "{refused}");
    }
    let read = parse(&udp("uoa"));
    let config = read.rules.config(1000);
    assert_eq!((config.services[0].client_address, config.validate()), (ClientAddress::Uoa, Ok(())));
    let of_tcp = refused(&service(&format!("{full_nat}client_address = 'uoa'")));
    assert!(of_tcp.contains("lb.toml:5: client_address = \"uoa\" without") && of_tcp.contains("\"toa\""), "{of_tcp}");
    for how in ["toa", "proxy_v2"] {
        let refused = refused(&service(&format!("{full_nat}sloppy_tcp = true\nclient_address = '{how}'")));
        assert!(refused.contains("lb.toml:5: 'sloppy_tcp' with 'client_address'"), "{refused}");
    }
    let mut rules = toa.rules;
    let options = ServiceOptions { sloppy_tcp: Some(true), ..ServiceOptions::default() };
    let change = RuleChange::EditService { service: rules.services[0].key, options };
    let refused = rules.edit(&change).unwrap_err();
    assert!(refused.to_string().contains("client_address"), "{refused}");
}

fn with_sync(sync: &str, more: &str) -> Result<Settings, String> {
    let text = format!(
        "{more}[sync]\naddress = '10.9.0.1:8849'\npeers = ['10.9.0.2:8849']\nkey = '/etc/netrig/sync.key'\n{sync}\n[[service]]\nlisten = \
         '192.0.2.1:80'\nlocal = '10.0.0.200'\nbackend = ['10.0.0.1:80']\n"
    );
    Settings::parse("lb.toml", &text, Completeness::Required).map_err(|error| error.to_string())
}

#[test]
fn connections_are_shared_as_the_file_says() {
    let usual = with_sync("", "").unwrap();
    let sync = usual.start.sync.unwrap();
    assert_eq!(
        (sync.interval, sync.after, sync.full, sync.rate),
        (Duration::from_secs(1), Duration::from_secs(1), Duration::from_secs(20), 5_000_000)
    );
    assert_eq!(usual.start.sizes.ports, PortShare::WHOLE);
    let said =
        with_sync("ports = '2/3'\nlocal = '10.0.0.201-10.0.0.203'\nafter = '0s'\ninterval = '100ms'", "").unwrap();
    assert_eq!((said.start.sizes.ports, said.rules.others_local.len()), (PortShare { share: 2, of: 3 }, 3));
    for (sync, more, expected) in [
        ("ports = '3/2'", "", "'3/2' is not a share of local ports"),
        ("ports = '0/2'", "", "not a share"),
        ("ports = '1/17'", "", "not a share"),
        ("interval = '99ms'", "", "'interval' of 99ms"),
        ("after = '2h'", "", "'after' of 7200s"),
        ("rate = 9999", "", "a rate of 9999 bytes a second"),
        ("full = '31s'", "", "more than a third of the timeout 'established'"),
        ("", "timeouts = { established = '59s' }\n", "more than a third of the timeout 'established'"),
        ("multicast = true", "", "unknown field"),
        ("local = '192.0.2.1'", "", "192.0.2.1"),
    ] {
        let error = with_sync(sync, more).unwrap_err();
        assert!(error.contains(expected), "{sync} {more}: {error}");
    }
    let peers = |peers: &str| {
        let text = format!("[sync]\naddress = '10.9.0.1:8849'\npeers = [{peers}]\nkey = '/etc/netrig/sync.key'\n");
        Settings::parse("lb.toml", &text, Completeness::Required).map_err(|error| error.to_string())
    };
    for (wrong, expected) in [
        ("", "0 peers"),
        ("'10.9.0.1:8849'", "this balancer itself"),
        ("'10.9.0.2:8849', '10.9.0.2:8849'", "listed twice"),
        ("'[fd00::1]:8849'", "another family"),
        ("'10.9.0.2'", "not a balancer's address"),
        ("'0.0.0.0:8849'", "not a balancer's address"),
        ("'224.0.0.81:8848'", "not a balancer's address"),
    ] {
        let error = peers(wrong).unwrap_err();
        assert!(error.contains(expected), "{wrong}: {error}");
    }
}

#[test]
fn a_speaker_is_at_an_address_or_a_socket() {
    let bgp = |said: &str| {
        let text = format!("[bgp]\n{said}\n");
        Settings::parse("lb.toml", &text, Completeness::Required).map(|settings| settings.start.bgp.unwrap())
    };
    assert_eq!(bgp("").unwrap(), BgpSettings { speaker: "127.0.0.1:50051".to_owned(), local: false });
    assert_eq!(bgp("gobgp = 'unix:/run/gobgpd.sock'\nlocal = true").unwrap().speaker, "unix:/run/gobgpd.sock");
    for wrong in ["gobgp = 'gobgpd'", "gobgp = 'unix:gobgpd.sock'", "peers = []"] {
        assert!(bgp(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn datagrams_are_scheduled_by_themselves_where_no_connection_is_needed() {
    let service = |more: &str| format!("[[service]]\nlisten = 'udp 192.0.2.1:53'\nbackend = ['10.0.0.1:53']\n{more}");
    let once = parse(&service("forward = 'nat'\none_packet = true"));
    let first = &once.rules.services[0];
    assert_eq!((first.one_packet, first.scheduler), (true, Scheduler::WeightedRoundRobin));
    assert!(
        once.to_toml().contains("scheduler = \"wrr\"\nforward = \"nat\"\none_packet = true\n"),
        "{}",
        once.to_toml()
    );
    assert_eq!(parse(&service("forward = 'nat'\none_packet = false")).rules.services[0].scheduler, DEFAULT_SCHEDULER);
    // Of a list of both, the TCP one has connections and what these are counted by.
    let both = parse(
        &service("forward = 'route'\none_packet = true")
            .replace("'udp 192.0.2.1:53'", "['udp 192.0.2.1:53', 'tcp 192.0.2.1:53']"),
    );
    let each = both.rules.services.iter().map(|service| (service.key.protocol, service.one_packet, service.scheduler));
    let tcp = (Protocol::Tcp, false, DEFAULT_SCHEDULER);
    assert_eq!(each.collect::<Vec<_>>(), [(Protocol::Udp, true, Scheduler::WeightedRoundRobin), tcp]);
    for (more, said) in [
        ("forward = 'full-nat'\nlocal = '198.51.100.1'\none_packet = true", "lb.toml:6: one_packet with full-nat"),
        ("forward = 'nat'\nscheduler = 'wlc'\none_packet = true", "lb.toml:6: one_packet with a scheduler that counts"),
        ("forward = 'nat'\nlimit = 5\none_packet = true", "lb.toml:6: one_packet with a limit of connections"),
        ("forward = 'nat'\nsource_limit = 5\none_packet = true", "lb.toml:6: one_packet with a limit of connections"),
    ] {
        let refused = refused(&service(more));
        assert!(refused.contains(said), "{refused}");
    }
    let tcp = refused(&service("forward = 'nat'\none_packet = true").replace("udp ", "tcp "));
    assert!(tcp.contains("lb.toml:5: one_packet of a TCP service"), "{tcp}");
    let nat = service("forward = 'nat'\none_packet = true\n");
    let two = refused(&format!("{nat}{}", nat.replace("192.0.2.1", "192.0.2.2")));
    assert!(two.contains("backend 10.0.0.1:53 is also one of 192.0.2.1:53"), "{two}");
    let limits =
        parse(&service("forward = 'nat'\nsource_rate = 5\nnew_rate = 9\npersistence = '60s'\none_packet = true"));
    limits.rules.config(1000).validate().unwrap();
}
