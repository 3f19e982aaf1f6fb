//! Whether tables, local ports and limits are large enough for a rate of new connections.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rig_datapath::balancer::{MAX_RATE, PortShare, Scheduler};
use rig_stats::units::Span;

use super::daemon::{ROUND, grouped};
use super::message::{ForwardingMethod, Protocol};
use super::settings::{Backend, Rules, Service, ServiceText, Settings};

/// What clients will do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// New connections a second, over all services alike.
    pub rate: f64,
    /// How long a connection lasts, until both ends have closed it or the last datagram.
    pub lasts: Duration,
}

/// A key of the file, with what it allows for and what the load takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapacityNeed {
    /// As the file calls it: `connections`, `local of tcp 192.0.2.1:80`.
    pub key: String,
    pub has: u64,
    pub needs: u64,
    /// What to write where it is too small.
    pub remedy: String,
}

impl CapacityNeed {
    pub fn is_met(&self) -> bool {
        self.needs <= self.has
    }
}

/// A backend that closed first keeps a connection's ports for so long (TIME-WAIT of Linux).
const TIME_WAIT: f64 = 60.0;
/// As [`Sizes`](rig_datapath::balancer::Sizes) has them at most.
const MOST_CONNECTIONS: u64 = 1 << 29;
const SHARE_OUT: &str = "it cannot be so high: share the rate out to more balancers";
const MOST_LOCAL: u64 = 65_535;
/// Needs of one kind that are told one by one.
const TOLD: usize = 4;

impl Load {
    /// New connections a second of one service.
    fn of_each(&self, rules: &Rules) -> f64 {
        self.rate / rules.services.len().max(1) as f64
    }

    /// How long a record of the service stays, and the timeout that it ends by.
    fn stay(&self, service: &Service, rules: &Rules) -> (Duration, &'static str, Duration) {
        let timeouts = service.timeouts.over(rules.default_timeouts());
        let (name, timeout) = match (service.key.protocol, service.forward) {
            (Protocol::Udp, _) => ("udp_normal", timeouts.udp_normal),
            // What the backend closes does not pass here.
            (Protocol::Tcp, Some(ForwardingMethod::Route | ForwardingMethod::Tunnel)) => {
                ("fin_wait", timeouts.fin_wait)
            }
            (Protocol::Tcp, _) => ("time_wait", timeouts.time_wait),
        };
        (self.lasts + timeout + ROUND, name, timeout)
    }

    /// Records of one service at a time: none where each datagram goes by itself.
    fn records(&self, service: &Service, rules: &Rules) -> f64 {
        if service.one_packet {
            return 0.0;
        }
        self.of_each(rules) * self.stay(service, rules).0.as_secs_f64()
    }

    /// What it takes, table first.
    pub fn needs(&self, settings: &Settings) -> Vec<CapacityNeed> {
        let Settings { start, rules } = settings;
        let room = start.sizes.connections;
        let all: f64 = rules.services.iter().map(|service| self.records(service, rules)).sum();
        let mut needs = vec![CapacityNeed {
            key: "connections".to_owned(),
            has: room.into(),
            needs: whole(all),
            // From three quarters on, connections are ended early.
            remedy: match whole(all / 0.75) {
                least @ ..=MOST_CONNECTIONS => {
                    format!("write connections = {least} or more, of which three quarters are {}", whole(all))
                }
                _ => format!("a table has {MOST_CONNECTIONS} at most: share the rate out to more balancers"),
            },
        }];
        for service in &rules.services {
            let records = self.records(service, rules);
            if let Some(limit) = rules.limit_of(service, room) {
                needs.push(CapacityNeed {
                    key: format!("limit of {}", ServiceText(service.key)),
                    has: u64::from(limit.get()),
                    needs: whole(records),
                    remedy: up_to(
                        MOST_CONNECTIONS,
                        whole(records),
                        ["raise it, or connections where it is three quarters of them", SHARE_OUT],
                    ),
                });
            }
            needs.extend(service.limits.new_rate.map(|rate| CapacityNeed {
                key: format!("new_rate of {}", ServiceText(service.key)),
                has: rate.into(),
                needs: whole(self.of_each(rules)),
                remedy: up_to(MAX_RATE.into(), whole(self.of_each(rules)), ["raise it", SHARE_OUT]),
            }));
            for (backend, share) in shares(service) {
                needs.extend(backend.limit.map(|limit| CapacityNeed {
                    key: format!("limit of backend {} of {}", backend.address, ServiceText(service.key)),
                    has: u64::from(limit.get()),
                    needs: whole(records * share),
                    remedy: up_to(
                        MOST_CONNECTIONS,
                        whole(records * share),
                        ["raise it, or add backends", "add backends"],
                    ),
                }));
            }
        }
        needs.extend(self.ports(rules, settings.start.sizes.ports));
        needs
    }

    /// Local ports at each backend, of all services that have it.
    fn ports(&self, rules: &Rules, share: PortShare) -> impl Iterator<Item = CapacityNeed> {
        let mut at: BTreeMap<SocketAddr, (f64, BTreeSet<IpAddr>, String)> = BTreeMap::new();
        for service in rules.services.iter().filter(|service| service.forward == Some(ForwardingMethod::FullNat)) {
            for (backend, share) in shares(service) {
                let (records, local, name) = at.entry(backend.address).or_default();
                *records += self.records(service, rules) * share;
                local.extend(service.local.iter().filter(|local| local.is_ipv4() == backend.address.is_ipv4()));
                if name.is_empty() {
                    *name = ServiceText(service.key).to_string();
                }
            }
        }
        at.into_iter().map(move |(backend, (records, local, service))| {
            let needs = whole(records);
            CapacityNeed {
                key: format!("local of {service}, ports at backend {backend}"),
                has: local.len() as u64 * u64::from(share.ports()),
                needs,
                remedy: match needs.div_ceil(share.ports().into()) {
                    least @ ..=MOST_LOCAL => format!("write {least} addresses or more, or add backends"),
                    _ => "add backends: there are not so many local addresses to be had".to_owned(),
                },
            }
        })
    }

    /// New connections a second of one backend up to which no local port is used again while the backend may still keep it.
    fn rests(&self, rules: &Rules, share: PortShare) -> Option<String> {
        let (mut least, mut most) = (f64::INFINITY, 0.0_f64);
        let is_tcp = |service: &&Service| {
            service.key.protocol == Protocol::Tcp && service.forward == Some(ForwardingMethod::FullNat)
        };
        for service in rules.services.iter().filter(is_tcp) {
            for (backend, part) in shares(service) {
                let local = service.local.iter().filter(|local| local.is_ipv4() == backend.address.is_ipv4());
                let places = local.count() as f64 * f64::from(share.ports());
                least = least.min(places / (TIME_WAIT + self.lasts.as_secs_f64()));
                most = most.max(self.of_each(rules) * part);
            }
        }
        (most > least).then(|| {
            format!(
                "note: a backend that closes first keeps ports for 60 s (TIME-WAIT); with these local addresses they come again \
                 sooner from {least:.0} new connections a second of one backend, and {most:.0} are asked for"
            )
        })
    }

    /// For people: what stays how long, what that takes, and what is too small.
    pub fn words(&self, settings: &Settings) -> String {
        let rules = &settings.rules;
        let services = rules.services.len();
        let each = if services > 1 { format!(", over {services} services alike") } else { String::new() };
        let mut text = format!("  for {} new connections a second{each}:\n", grouped(whole(self.rate)));
        let stays: BTreeSet<String> = rules
            .services
            .iter()
            .filter(|service| !service.one_packet)
            .map(|service| {
                let (stay, name, timeout) = self.stay(service, rules);
                let lasts = if self.lasts.is_zero() { String::new() } else { format!("{} + ", Span(self.lasts)) };
                format!(
                    "    each is kept for {}: {lasts}{name} {} + {} until it is swept\n",
                    Span(stay),
                    Span(timeout),
                    Span(ROUND)
                )
            })
            .collect();
        text.extend(stays);
        let mut told: BTreeMap<&str, usize> = BTreeMap::new();
        let needs = self.needs(settings);
        // What is too small first, and of the rest what is used most.
        let mut order: Vec<&CapacityNeed> = needs.iter().collect();
        order.sort_by(|one, other| {
            let used = |need: &CapacityNeed| need.needs as f64 / need.has.max(1) as f64;
            used(other).total_cmp(&used(one))
        });
        for need in order {
            let kind = need.key.split(' ').next().unwrap_or_default();
            let count = told.entry(kind).or_default();
            *count += 1;
            if *count > TOLD || *count > 1 && need.is_met() {
                continue;
            }
            let verdict = if need.is_met() { String::new() } else { format!(": TOO SMALL, {}", need.remedy) };
            text +=
                &format!("    {}: {}, and {} are needed{verdict}\n", need.key, grouped(need.has), grouped(need.needs));
        }
        text.extend(self.rests(rules, settings.start.sizes.ports).map(|note| format!("    {note}\n")));
        text
    }
}

/// The part of a service's new connections that each backend gets.
fn shares(service: &Service) -> impl Iterator<Item = (&Backend, f64)> {
    let is_by_weight = !matches!(service.scheduler, Scheduler::RoundRobin | Scheduler::LeastConnections);
    // A sorry server takes what is refused elsewhere, and no share.
    let taking = |backend: &&Backend| !backend.sorry && backend.effective_weight() > 0;
    let weight = move |backend: &Backend| match backend.effective_weight() {
        weight if is_by_weight => f64::from(weight),
        0 => 0.0,
        _ => 1.0,
    };
    let sum: f64 = service.backends.iter().filter(taking).map(weight).sum();
    service.backends.iter().filter(taking).map(move |backend| (backend, weight(backend) / sum))
}

/// What to do where so many can be had, and where they cannot.
fn up_to(most: u64, needs: u64, [within, beyond]: [&str; 2]) -> String {
    if needs <= most { within } else { beyond }.to_owned()
}

fn whole(number: f64) -> u64 {
    // Above what a u64 holds it stays the highest.
    number.ceil() as u64
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::*;
    use crate::settings::Completeness;

    fn file(head: &str, listen: &str, service: &str) -> Settings {
        let text = format!(
            "devices = [\"eth0\"]\n{head}\n[[service]]\nlisten = \"{listen}\"\nbackend = [\"10.0.0.1:80\", \"10.0.0.2:80\"]\n{service}\n"
        );
        Settings::parse("lb.toml", &text, Completeness::Required).unwrap()
    }

    /// FullNAT with one local address.
    fn settings(head: &str, service: &str) -> Settings {
        file(head, "tcp 192.0.2.1:80", &format!("local = \"198.51.100.1\"\n{service}"))
    }

    fn load(rate: f64, lasts: u64) -> Load {
        Load { rate, lasts: Duration::from_secs(lasts) }
    }

    fn need(settings: &Settings, load: Load, key: &str) -> (u64, u64) {
        let needs = load.needs(settings);
        let need = needs.iter().find(|need| need.key == key).unwrap_or_else(|| panic!("{needs:?}"));
        (need.has, need.needs)
    }

    #[test]
    fn what_no_balancer_can_have_is_not_advised() {
        let remedies: Vec<String> =
            load(1e9, 3600).needs(&settings("", "")).into_iter().map(|need| need.remedy).collect();
        assert!(remedies[0].starts_with("a table has 536870912 at most"), "{remedies:?}");
        assert!(
            remedies.iter().any(|remedy| remedy.starts_with("add backends: there are not so many")),
            "{remedies:?}"
        );
        let limits = settings("", "limit = 10\nnew_rate = 10\n");
        let of = |rate: f64, key: &str| {
            let needs = load(rate, 100).needs(&limits);
            needs.into_iter().find(|need| need.key.starts_with(key)).unwrap_or_else(|| panic!("{key}")).remedy
        };
        assert_eq!(of(1e7, "new_rate"), "raise it");
        assert_eq!([of(2e7, "new_rate"), of(2e7, "limit")], [SHARE_OUT; 2]);
        assert!(of(1000.0, "limit").starts_with("raise it, or connections"));
    }

    #[test]
    fn a_table_holds_what_comes_while_a_record_stays() {
        let table = |head: &str, service: &str, load: Load| need(&settings(head, service), load, "connections");
        // 7 s of time_wait and 1 s until the sweep.
        assert_eq!(table("connections = 4096", "", load(1000.0, 0)), (4096, 8000));
        assert_eq!(table("", "", load(1000.0, 20)), (1 << 20, 28_000));
        assert_eq!(table("", "timeouts = { time_wait = \"1s\" }", load(1000.0, 0)).1, 2000);
        let route = |listen: &str, more: &str| {
            let file = file("", listen, &format!("forward = \"route\"\n{more}"));
            need(&file, load(10.0, 0), "connections").1
        };
        assert_eq!(route("tcp 192.0.2.1:80", ""), 1210, "only the client's end is seen: fin_wait");
        assert_eq!(route("udp 192.0.2.1:80", ""), 3010);
        assert_eq!(route("udp 192.0.2.1:80", "one_packet = true\n"), 0);
        // Two services have half of the rate each.
        let second = "[[service]]\nlisten = \"udp 192.0.2.1:53\"\nforward = \"route\"\nbackend = \"10.0.0.1:53\"";
        let second = second.replace("\"10.0.0.1:53\"", "[\"10.0.0.1:53\"]");
        assert_eq!(route("tcp 192.0.2.1:80", &second), 605 + 1505);
    }

    #[test]
    fn local_ports_are_each_backends_own() {
        let ports = |service: &str, rate: f64| {
            need(&settings("", service), load(rate, 0), "local of tcp 192.0.2.1:80, ports at backend 10.0.0.1:80")
        };
        assert_eq!(ports("", 10_000.0), (64_512, 40_000));
        assert_eq!(ports("scheduler = \"rr\"", 20_000.0), (64_512, 80_000));
        let told = load(20_000.0, 0).words(&settings("", ""));
        assert!(
            told.contains("ports at backend 10.0.0.1:80: 64,512, and 80,000 are needed: TOO SMALL, write 2 addresses"),
            "{told}"
        );
        assert!(told.contains("come again sooner from 1075 new connections a second of one backend"), "{told}");
        // By weight: three quarters go to the first.
        let mut weighted = settings("", "");
        weighted.rules.services[0].backends[0].weight = 3;
        let key = "local of tcp 192.0.2.1:80, ports at backend 10.0.0.1:80";
        assert_eq!(need(&weighted, load(10_000.0, 0), key).1, 60_000);
    }

    #[test]
    fn limits_are_told_by_their_keys() {
        let limited = settings("", "limit = 1000");
        assert_eq!(need(&limited, load(1000.0, 0), "limit of tcp 192.0.2.1:80"), (1000, 8000));
        let paced = settings("", "new_rate = 700");
        assert_eq!(need(&paced, load(1000.0, 0), "new_rate of tcp 192.0.2.1:80"), (700, 1000));
        let told = load(1000.0, 0).words(&limited);
        assert!(told.contains("limit of tcp 192.0.2.1:80: 1,000, and 8,000 are needed: TOO SMALL"), "{told}");
        assert!(told.contains("each is kept for 8s: time_wait 7s + 1s until it is swept"), "{told}");
        assert!(load(100.0, 0).needs(&settings("", "")).iter().all(CapacityNeed::is_met));
    }
}
