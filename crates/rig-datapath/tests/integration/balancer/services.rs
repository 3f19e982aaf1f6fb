//! Configurations for random sequences: services of every kind, and changes of them.

use std::num::{NonZeroU16, NonZeroU32};
use std::time::Duration;

use rig_datapath::balancer::{
    AccessLists, Backend, ClientAddress, Config, Encapsulation, ExpiryPolicy, ForwardingMethod, FragmentPolicy,
    GUE_PORT, Limits, Persistence, Policy, PortReuse, Protocol, QuicIds, Rate, Scheduler, Service, SynProxy,
    TunnelHeader, UnhandledPolicy,
};

use rig_sys::socket::Dscp;

use super::{backend, config, full_nat, limited, service, udp_service};

fn with(scheduler: Scheduler, service: Service) -> Service {
    Service { scheduler, ..service }
}

fn lists(allow: &[&str], deny: &[&str]) -> AccessLists {
    let set = |prefixes: &[&str]| prefixes.iter().map(|prefix| prefix.parse().unwrap()).collect();
    AccessLists { allow: set(allow), deny: set(deny) }
}

fn rate(per_second: u32, burst: u32) -> Option<Rate> {
    NonZeroU32::new(per_second).zip(NonZeroU32::new(burst)).map(|(per_second, burst)| Rate { per_second, burst })
}

/// Services with limits of every kind, so low that they are met; other ones, and other sources, with `other`.
fn with_limits(mut services: Vec<Service>, other: bool) -> Vec<Service> {
    let by = |other, one, of_other| if other { of_other } else { one };
    for (nth, service) in services.iter_mut().enumerate() {
        let nth = nth + usize::from(other);
        service.limits = Limits {
            source_limit: NonZeroU32::new([0, 1, 2, 3][nth % 4]).filter(|_| !service.one_packet),
            // A tick is 134 ms.
            source_rate: [None, rate(1, 1), rate(2, 3), rate(9, 2)][nth / 2 % 4],
            source_prefix: match service.address.is_ipv6() {
                true => by(other, None, Some(127)),
                false => by(other, None, Some(31)),
            },
            new_rate: [None, rate(4, 4), None][nth % 3],
        };
    }
    services
}

fn always(service: Service) -> Service {
    Service { syn_proxy: SynProxy::Always, ..service }
}

fn toa(service: Service) -> Service {
    Service { client_address: ClientAddress::Toa, ..service }
}

fn proxy_v2(service: Service) -> Service {
    Service { client_address: ClientAddress::ProxyV2, ..service }
}

fn uoa(service: Service) -> Service {
    Service { client_address: ClientAddress::Uoa, ..service }
}

fn keep(service: Service) -> Service {
    Service { reuse: PortReuse::Keep, ..service }
}

fn persistent(seconds: u64, prefix: u8, service: Service) -> Service {
    let persistence = Some(Persistence { timeout: Duration::from_secs(seconds), prefix, group: None });
    Service { persistence, ..service }
}

/// The same in a group.
fn grouped(seconds: u64, prefix: u8, service: Service) -> Service {
    let group = NonZeroU32::new(7);
    let persistence = Some(Persistence { timeout: Duration::from_secs(seconds), prefix, group });
    Service { persistence, ..service }
}

fn once(service: Service) -> Service {
    Service { one_packet: true, ..service }
}

fn tunnel(local: &[&str]) -> ForwardingMethod {
    ForwardingMethod::Tunnel { local: local.iter().map(|address| address.parse().unwrap()).collect() }
}

const GUE: TunnelHeader = TunnelHeader::Gue { port: GUE_PORT, checksum: false };
const SUMMED: TunnelHeader = TunnelHeader::Gue { port: NonZeroU16::new(5555).unwrap(), checksum: true };
const GRE: TunnelHeader = TunnelHeader::Gre;

fn packed(backend: Backend, header: TunnelHeader, source_bits: u8) -> Backend {
    Backend { encapsulation: Encapsulation { header, source_bits }, ..backend }
}

/// Services of every kind.
fn everything() -> Vec<Service> {
    let v4 = ["10.0.0.10:8080", "10.0.0.11:8080", "10.0.0.12:8080"].map(|address| backend(address, 2));
    let v6 = ["[fd00::10]:8080", "[fd00::11]:8080"].map(|address| backend(address, 1));
    let same = ["10.0.0.10:83", "10.0.0.11:83"].map(|address| backend(address, 1));
    let many: Vec<_> = (0..20)
        .map(|n| Backend { weight: 1 + n % 4, ..limited(&format!("10.0.0.{}:{}", 10 + n % 4, 9000 + n), n % 3) })
        .collect();
    vec![
        grouped(
            40,
            32,
            Service { sloppy_tcp: true, ..service("10.0.0.200:80", full_nat(&["10.0.0.100", "10.0.0.101"]), &v4) },
        ),
        uoa(with(Scheduler::Maglev, udp_service("10.0.0.200:53", full_nat(&["10.0.0.100"]), &v4))),
        toa(with(Scheduler::ShortestExpectedDelay, service("[fd00::200]:80", full_nat(&["fd00::100"]), &v6))),
        keep(with(
            Scheduler::LeastConnections,
            service(
                "10.0.0.201:80",
                ForwardingMethod::Nat,
                &[
                    Backend { lower_limit: NonZeroU32::new(2), ..limited("10.0.0.10:8080", 3) },
                    limited("10.0.0.13:8080", 2),
                ],
            ),
        )),
        keep(persistent(
            5,
            32,
            with(Scheduler::WeightedRoundRobin, service("10.0.0.202:83", ForwardingMethod::Route, &same)),
        )),
        with(
            Scheduler::SourceHash,
            service("10.0.0.203:83", tunnel(&["10.0.0.100", "10.0.0.101"]), &[same[0], packed(same[1], GRE, 0)]),
        ),
        udp_service("[fd00::204]:83", tunnel(&["fd00::300"]), &[packed(backend("[fd00::12]:83", 1), GUE, 8)]),
        persistent(60, 124, udp_service("[fd00::205]:53", ForwardingMethod::Nat, &v6)),
        // More backends than are all looked at, of which some are soon at their limits.
        toa(with(Scheduler::NeverQueue, service("10.0.0.207:80", full_nat(&["10.0.0.103"]), &many))),
        always(toa(service("10.0.0.208:80", full_nat(&["10.0.0.104"]), &v4))),
        always(service("[fd00::208]:80", ForwardingMethod::Nat, &[backend("[fd00::12]:8080", 1)])),
        Service {
            syn_proxy: SynProxy::Auto { from: NonZeroU32::new(2).unwrap() },
            ..keep(service("10.0.0.209:80", full_nat(&["10.0.0.104"]), &v4))
        },
        always(proxy_v2(service("[fd00::209]:80", full_nat(&["fd00::101"]), &[backend("[fd00::12]:8080", 1)]))),
        grouped(30, 32, proxy_v2(service("10.0.0.210:80", full_nat(&["10.0.0.105"]), &v4))),
        once(udp_service(
            "10.0.0.211:53",
            ForwardingMethod::Nat,
            &["10.0.0.10:5353", "10.0.0.11:5353"].map(|at| backend(at, 1)),
        )),
        once(persistent(
            9,
            31,
            with(Scheduler::SourceHash, udp_service("10.0.0.212:83", ForwardingMethod::Route, &same)),
        )),
        once(with(
            Scheduler::Maglev,
            udp_service(
                "[fd00::211]:83",
                tunnel(&["fd00::100", "fd00::101"]),
                &[packed(backend("[fd00::10]:83", 2), GRE, 0), packed(backend("[fd00::12]:83", 2), SUMMED, 0)],
            ),
        )),
        // A backend in common with the other one, and an address of this machine's.
        service("10.0.0.1:80", ForwardingMethod::Nat, &[backend("10.0.0.10:8080", 1)]),
        // Clients of IPv6, backends of IPv4, and of both.
        toa(service(
            "[fd00::213]:80",
            full_nat(&["10.0.0.106", "fd00::100", "10.0.0.107"]),
            &["10.0.0.10:8080", "[fd00::10]:8080", "10.0.0.11:8080"].map(|at| backend(at, 1)),
        )),
        uoa(udp_service("[fd00::214]:53", full_nat(&["10.0.0.100"]), &[backend("10.0.0.12:53", 1)])),
        always(proxy_v2(service("[fd00::215]:80", full_nat(&["10.0.0.106"]), &[backend("10.0.0.12:8080", 1)]))),
        Service {
            syn_proxy: SynProxy::Auto { from: NonZeroU32::new(3).unwrap() },
            sloppy_tcp: true,
            ..service("[fd00::216]:80", full_nat(&["10.0.0.106"]), &[backend("10.0.0.10:8080", 1)])
        },
        proxy_v2(service("[fd00::217]:80", full_nat(&["10.0.0.106"]), &[backend("10.0.0.13:8080", 1)])),
        // Of any port: beside others of the same addresses, which share backends, and in a group.
        with(
            Scheduler::LeastConnections,
            service(
                "10.0.0.201:0",
                ForwardingMethod::Nat,
                &[Backend { lower_limit: NonZeroU32::new(2), ..limited("10.0.0.10:0", 4) }, backend("10.0.0.11:0", 2)],
            ),
        ),
        keep(persistent(
            5,
            31,
            service("10.0.0.202:0", ForwardingMethod::Route, &["10.0.0.10:0", "10.0.0.12:0"].map(|at| backend(at, 1))),
        )),
        persistent(
            60,
            124,
            udp_service(
                "[fd00::205]:0",
                ForwardingMethod::Nat,
                &["[fd00::10]:0", "[fd00::11]:0"].map(|at| backend(at, 1)),
            ),
        ),
        with(
            Scheduler::Maglev,
            udp_service(
                "10.0.0.203:0",
                tunnel(&["10.0.0.100", "10.0.0.101"]),
                &[packed(backend("10.0.0.12:0", 1), GUE, 0)],
            ),
        ),
        always(service("[fd00::208]:0", ForwardingMethod::Nat, &[backend("[fd00::11]:0", 1)])),
        once(with(
            Scheduler::SourceHash,
            udp_service(
                "10.0.0.212:0",
                ForwardingMethod::Route,
                &["10.0.0.11:0", "10.0.0.13:0"].map(|at| backend(at, 1)),
            ),
        )),
        // Whose clients are admitted.
        always(service("10.0.0.218:83", ForwardingMethod::Route, &same)),
        Service {
            syn_proxy: SynProxy::Auto { from: NonZeroU32::new(2).unwrap() },
            ..keep(service("[fd00::218]:83", tunnel(&["fd00::102"]), &[backend("[fd00::12]:83", 1)]))
        },
        uoa(udp_service("[fd00::219]:53", full_nat(&["fd00::101"]), &[backend("[fd00::12]:8080", 1)])),
    ]
}

/// Every second one says what its backends' packets have.
fn marked(mut services: Vec<Service>, other: bool) -> Vec<Service> {
    for (nth, service) in services.iter_mut().enumerate() {
        let dscp = if other { [Some(63), None, Some(10)][nth % 3] } else { [None, Some(46), None, Some(0)][nth % 4] };
        service.dscp = dscp.and_then(|dscp| Dscp::try_from(dscp).ok());
    }
    services
}

/// IDs of QUIC name the backends of most services of UDP; other ones, of other services, with `other`.
fn named(mut services: Vec<Service>, other: bool) -> Vec<Service> {
    let of_udp = services.iter_mut().filter(|service| service.protocol == Protocol::Udp);
    for (nth, service) in of_udp.enumerate() {
        let nth = nth + usize::from(other);
        let has_ids = nth % 4 != 3;
        service.quic = has_ids.then_some(QuicIds { configuration: nth as u8 % 3, length: 1 + nth as u8 % 2 });
        for (id, backend) in service.backends.iter_mut().enumerate() {
            backend.quic_id = has_ids.then_some((id + usize::from(other)) as u64);
        }
    }
    services
}

pub fn configs() -> Vec<Config> {
    let all = named(marked(everything(), false), false);
    let mut drained = named(marked(all.clone(), true), true);
    drained.iter_mut().for_each(|service| service.backends[0].weight = 0);
    drained.iter_mut().step_by(2).for_each(|service| service.expire = ExpiryPolicy::Quiescent);
    let mut fewer = all.clone();
    fewer.truncate(4);
    fewer[0].backends.truncate(1);
    fewer[0].expire = ExpiryPolicy::Removed;
    fewer[0].reuse = PortReuse::Keep;
    fewer[1] = persistent(300, 31, fewer[1].clone());
    (fewer[0].client_address, fewer[0].sloppy_tcp) = (ClientAddress::Toa, false);
    (fewer[1].client_address, fewer[2].client_address) = (ClientAddress::Off, ClientAddress::Off);
    fewer[1].expire = ExpiryPolicy::Quiescent;
    fewer[3].forward = full_nat(&["10.0.0.102"]);
    let mut listed = all.clone();
    listed[0].access = lists(&["10.0.0.60/32"], &["10.0.0.50/32"]);
    listed[1].access = lists(&[], &["10.0.0.62/32"]);
    listed[2].access = lists(&["fd00::/32"], &["fd00::60/127", "::/0"]);
    // What was of one port is of any, and the other way round.
    listed[3].address.set_port(8080);
    listed[4].address.set_port(90);
    listed[4].backends.iter_mut().for_each(|backend| backend.address.set_port(90));
    listed = named(listed, true);
    listed[14].one_packet = false;
    listed[14].backends.rotate_left(1);
    listed[15].access = lists(&[], &["10.0.0.60/32"]);
    listed[5].backends = vec![packed(listed[5].backends[0], SUMMED, 0), packed(listed[5].backends[1], GUE, 0)];
    listed[9].access = lists(&["10.0.0.56/29"], &["10.0.0.61/32"]);
    listed[17].access = lists(&["0.0.0.0/0"], &[]);
    let pass = Policy { fragments: FragmentPolicy::Pass, options: UnhandledPolicy::Pass, ..Policy::default() };
    // Two in a tick.
    let few = Policy { strays: NonZeroU32::new(14), ..Policy::default() };
    vec![
        Config { policy: few, ..config(&all) },
        config(&drained),
        Config { policy: pass, ..config(&fewer) },
        config(&[]),
        Config { access: lists(&["10.0.0.50/32"], &["10.0.0.60/31", "fd00::61/128"]), ..config(&listed) },
        config(&marked(with_limits(all, false), true)),
        Config { access: lists(&[], &["10.0.0.60/32"]), ..config(&with_limits(listed, true)) },
    ]
}
