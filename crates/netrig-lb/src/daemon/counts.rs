//! Counters as listings show them: since they were last set to zero, and a second.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rig_datapath::Error;
use rig_datapath::balancer::{Balancer, Drop, Pass, ServiceStatus, Traffic};

use crate::message::{Counters, Rates, ReasonCount, ServiceKey};

/// A service under one way of forwarding, which is what has counters; with a backend, that of the service.
pub(super) type CounterLabels = (ServiceKey, &'static str, Option<SocketAddr>);

/// The counters of a moment, since the beginning.
#[derive(Debug, Clone)]
pub(super) struct Snapshot {
    at: Instant,
    pub(super) services: Vec<ServiceStatus>,
    traffic: HashMap<CounterLabels, Counters>,
    drops: Vec<u64>,
    passes: Vec<u64>,
}

pub(super) fn key_of(service: &ServiceStatus) -> ServiceKey {
    use crate::message::Protocol;
    let protocol = match service.protocol {
        rig_datapath::balancer::Protocol::Tcp => Protocol::Tcp,
        rig_datapath::balancer::Protocol::Udp => Protocol::Udp,
    };
    ServiceKey { protocol, address: service.address }
}

fn counters(traffic: &Traffic) -> Counters {
    Counters {
        connections: traffic.connections,
        in_packets: traffic.in_packets,
        out_packets: traffic.out_packets,
        in_bytes: traffic.in_bytes,
        out_bytes: traffic.out_bytes,
        refused: traffic.refused,
    }
}

fn combine(a: Counters, b: Counters, with: impl Fn(u64, u64) -> u64) -> Counters {
    Counters {
        connections: with(a.connections, b.connections),
        in_packets: with(a.in_packets, b.in_packets),
        out_packets: with(a.out_packets, b.out_packets),
        in_bytes: with(a.in_bytes, b.in_bytes),
        out_bytes: with(a.out_bytes, b.out_bytes),
        refused: with(a.refused, b.refused),
    }
}

impl Snapshot {
    pub(super) fn take(balancer: &Balancer) -> Result<Self, Error> {
        let services = balancer.services()?;
        let mut traffic = HashMap::new();
        for service in &services {
            let key = key_of(service);
            traffic.insert((key, service.forward, None), counters(&service.traffic));
            for backend in &service.backends {
                let cpus = backend.traffic.iter().map(counters);
                let sum = cpus.reduce(|a, b| combine(a, b, u64::wrapping_add)).unwrap_or_default();
                traffic.insert((key, service.forward, Some(backend.address)), sum);
            }
        }
        let drops = balancer.drops()?.into_iter().map(|(_, packets)| packets).collect();
        let passes = balancer.passes()?.into_iter().map(|(_, packets)| packets).collect();
        Ok(Self { at: Instant::now(), services, traffic, drops, passes })
    }

    /// What has been counted of a backend of a service as it is in force now.
    pub(super) fn backend(&self, service: &ServiceStatus, backend: SocketAddr) -> Option<Counters> {
        self.traffic.get(&(key_of(service), service.forward, Some(backend))).copied()
    }
}

/// What listings count from, and what rates are taken over.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// At the last setting to zero, of those that are still the same.
    zero: HashMap<CounterLabels, Counters>,
    /// One a second, the oldest first.
    past: VecDeque<Snapshot>,
}

/// More than a balancer has services and backends.
const MOST_ZEROS: usize = 1 << 18;
/// Rates are over two to three seconds.
const SNAPSHOTS: usize = 3;

/// The counters of one that has them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Figures {
    /// Since they were set to zero.
    pub(super) counters: Counters,
    /// Since the beginning.
    pub(super) total: Counters,
    pub(super) rates: Rates,
}

impl Counts {
    /// To be called once a second.
    pub(super) fn sample(&mut self, now: Snapshot) {
        // What has gone goes on when it comes again, unless the balancer has forgotten what it had counted.
        let crowded = self.zero.len() > MOST_ZEROS;
        self.zero.retain(|counted, zero| match now.traffic.get(counted) {
            Some(now) => now.connections >= zero.connections && now.in_packets >= zero.in_packets,
            None => !crowded,
        });
        if self.past.len() == SNAPSHOTS {
            self.past.pop_front();
        }
        self.past.push_back(now);
    }

    /// Sets one service's counters to zero, or all.
    pub(super) fn zero(&mut self, now: &Snapshot, service: Option<ServiceKey>) {
        let meant = now.traffic.iter().filter(|((key, ..), _)| service.is_none_or(|service| service == *key));
        self.zero.extend(meant.map(|(counted, counters)| (*counted, *counters)));
    }

    pub(super) fn view<'a>(&'a self, now: &'a Snapshot) -> View<'a> {
        View { counts: self, now, before: self.past.front().filter(|before| now.at > before.at) }
    }
}

/// Counters and rates at one moment.
#[derive(Debug)]
pub(super) struct View<'a> {
    counts: &'a Counts,
    now: &'a Snapshot,
    before: Option<&'a Snapshot>,
}

impl View<'_> {
    pub(super) fn span(&self) -> Duration {
        self.before.map_or(Duration::ZERO, |before| self.now.at - before.at)
    }

    pub(super) fn of(&self, counted: CounterLabels) -> Figures {
        let total = self.now.traffic.get(&counted).copied().unwrap_or_default();
        let zero = self.counts.zero.get(&counted).copied().unwrap_or_default();
        let counters = combine(total, zero, u64::saturating_sub);
        // Over the time that it has been there.
        let past = self.counts.past.iter().filter(|past| self.now.at > past.at);
        let before = past.filter_map(|past| Some((past.at, past.traffic.get(&counted)?))).next();
        let rates = before.map_or_else(Rates::default, |(at, before)| {
            let more = combine(total, *before, u64::saturating_sub);
            let a_second = |count: u64| count as f64 / (self.now.at - at).as_secs_f64();
            Rates {
                connections: a_second(more.connections),
                in_packets: a_second(more.in_packets),
                out_packets: a_second(more.out_packets),
                in_bytes: a_second(more.in_bytes),
                out_bytes: a_second(more.out_bytes),
            }
        });
        Figures { counters, total, rates }
    }

    pub(super) fn drops(&self) -> Vec<ReasonCount> {
        let reasons = Drop::ALL.iter().map(|reason| (reason.number(), reason.key(), reason.text(), reason.remedy()));
        self.reasons(reasons, |snapshot| &snapshot.drops)
    }

    pub(super) fn passes(&self) -> Vec<ReasonCount> {
        let reasons = Pass::ALL.iter().map(|reason| (reason.number(), reason.key(), reason.text(), reason.remedy()));
        self.reasons(reasons, |snapshot| &snapshot.passes)
    }

    fn reasons<'r>(
        &self,
        reasons: impl Iterator<Item = (u32, &'r str, &'r str, &'r str)>,
        of: impl Fn(&Snapshot) -> &Vec<u64>,
    ) -> Vec<ReasonCount> {
        let at = |list: &[u64], n: usize| list.get(n).copied().unwrap_or(0);
        let count = |(n, (number, key, text, remedy)): (usize, (u32, &str, &str, &str))| {
            let now = at(of(self.now), n);
            let before = self.before.map_or(now, |before| at(of(before), n));
            ReasonCount {
                number,
                key: key.to_owned(),
                text: text.to_owned(),
                remedy: remedy.to_owned(),
                packets: now,
                rate: self.a_second(now.saturating_sub(before)).round() as u64,
            }
        };
        reasons.enumerate().map(count).collect()
    }

    fn a_second(&self, count: u64) -> f64 {
        let seconds = self.span().as_secs_f64();
        if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Protocol;

    fn counted() -> CounterLabels {
        (ServiceKey { protocol: Protocol::Tcp, address: ([192, 0, 2, 1], 80).into() }, "nat", None)
    }

    fn snapshot(at: Instant, connections: u64, dropped: u64) -> Snapshot {
        let traffic = HashMap::from([(counted(), Counters { connections, ..Counters::default() })]);
        let drops = vec![dropped; Drop::ALL.len()];
        Snapshot { at, services: Vec::new(), traffic, drops, passes: vec![0; Pass::ALL.len()] }
    }

    #[test]
    fn rates_are_over_the_last_seconds() {
        let (mut counts, begun) = (Counts::default(), Instant::now());
        let at = |seconds: u64| begun + Duration::from_secs(seconds);
        let first = snapshot(at(0), 100, 0);
        assert_eq!(counts.view(&first).of(counted()).rates.connections, 0.0);
        for second in 0..6 {
            counts.sample(snapshot(at(second), 100 + 10 * second, 4 * second));
        }
        let now = snapshot(at(6), 400, 24);
        let view = counts.view(&now);
        assert_eq!(view.span(), Duration::from_secs(3));
        let figures = view.of(counted());
        assert_eq!((figures.counters.connections, figures.rates.connections), (400, (400.0 - 130.0) / 3.0));
        assert_eq!((view.drops()[0].packets, view.drops()[0].rate), (24, 4));
    }

    #[test]
    fn listings_count_from_zero_and_metrics_go_on() {
        let (mut counts, now) = (Counts::default(), Instant::now());
        counts.zero(&snapshot(now, 100, 5), None);
        let later = snapshot(now + Duration::from_secs(1), 130, 7);
        let figures = counts.view(&later).of(counted());
        assert_eq!((figures.counters.connections, figures.total.connections), (30, 130));
        assert_eq!(counts.view(&later).drops()[0].packets, 7);
        // Another service's counters stay.
        let other = ServiceKey { protocol: Protocol::Udp, ..counted().0 };
        let mut counts = Counts::default();
        counts.zero(&snapshot(now, 100, 5), Some(other));
        assert_eq!(counts.view(&later).of(counted()).counters.connections, 130);
    }

    #[test]
    fn what_has_gone_and_come_again_goes_on() {
        let (mut counts, now) = (Counts::default(), Instant::now());
        let at = |seconds: u64| now + Duration::from_secs(seconds);
        counts.zero(&snapshot(at(0), 100, 0), None);
        let gone = |seconds| Snapshot { traffic: HashMap::new(), ..snapshot(at(seconds), 0, 0) };
        (1..4).for_each(|second| counts.sample(gone(second)));
        // When what it has counted happened is not known.
        let again = snapshot(at(4), 130, 0);
        let figures = counts.view(&again).of(counted());
        assert_eq!((figures.counters.connections, figures.rates.connections), (30, 0.0));
        counts.sample(again);
        let later = snapshot(at(6), 150, 0);
        assert_eq!(counts.view(&later).of(counted()).rates.connections, 10.0);
        // One that has begun anew.
        counts.sample(snapshot(at(7), 3, 0));
        let later = snapshot(at(8), 5, 0);
        let figures = counts.view(&later).of(counted());
        assert_eq!((figures.counters.connections, figures.total.connections), (5, 5));
    }
}
