//! One thread of a fleet.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, TryLockError};
use std::time::Duration;

use rig_wire::ethernet::Mac;

use super::super::Nanos;
use super::super::config::{Config, ConfigError};
use super::super::counters::{Counters, Latencies};
use super::super::engine::Engine;
use super::super::family::Family;
use super::super::port::Port;
use super::super::rows::ServerCounters;
use super::super::run::{Clock, Monotonic, PassAction, PassResult, Usage, drive};
use super::orders::{Order, Orders};

/// How often what was counted is published.
const PUBLISH: Nanos = 1_000_000;
/// After so many passes that found nothing to do, another thread of this CPU may run.
const TIMEOUT: u32 = 2;
/// How often a thread with work offers its CPU to others: both ends of a load may have to share one. The scheduler would
/// let it go on until its next tick, some milliseconds, in which rings overflow. On a CPU of its own the offer costs a
/// system call of a hundredth of that.
const OFFER: Nanos = 20_000;
/// A thread that has the CPU for longer than this does not offer it in turn, as the other end of a load would. The scheduler lets it go
/// on until a tick, so a thread that went on offering would have 20 us of each 4 ms.
const ABSENCE: Nanos = 1_000_000;
/// What the scheduler takes a turn to be that is given up, see [`rig_sys::cpu::set_slice`].
pub(super) const TURN: Duration = Duration::from_micros(100);

/// Copies of a thread's counters for the reader, behind a lock for which the thread never waits.
#[derive(Debug, Default)]
pub(super) struct PublishedCounters {
    /// When; 0: not yet.
    pub at: Nanos,
    pub counters: Counters,
    pub usage: Usage,
    pub ready: bool,
    /// Nothing is opened any more.
    pub wound_down: bool,
    pub latencies: LatencyHandover,
}

/// Latencies change hands without their three quarters of a megabyte being copied.
#[derive(Debug, Default)]
pub(super) enum LatencyHandover {
    #[default]
    Nothing,
    /// Empty ones, for the thread to go on with.
    Offered(Latencies),
    /// The latencies until the exchange.
    Taken(Latencies),
}

/// Where the gateway of an interface is, as the thread says whose queue the answer came to.
#[derive(Debug, Default)]
pub(super) struct GatewayMac(AtomicU64);

impl GatewayMac {
    const KNOWN: u64 = 1 << 48;

    fn get(&self) -> Option<Mac> {
        let [_, known, mac @ ..] = self.0.load(Ordering::Relaxed).to_be_bytes();
        (known != 0).then_some(Mac(mac))
    }

    fn set(&self, mac: Mac) {
        let [a, b, c, d, e, f] = mac.0;
        self.0.store(Self::KNOWN | u64::from_be_bytes([0, 0, a, b, c, d, e, f]), Ordering::Relaxed);
    }
}

/// The result of a thread that has ended.
#[derive(Debug, Default)]
pub(super) struct ThreadResult {
    pub counters: Counters,
    pub latencies: Latencies,
    pub usage: Usage,
    pub rows: Vec<(SocketAddr, ServerCounters)>,
}

#[derive(Debug)]
pub(super) struct ThreadContext<'a> {
    pub orders: &'a Orders,
    pub published: &'a Mutex<PublishedCounters>,
    pub gateway_mac: &'a GatewayMac,
}

impl ThreadContext<'_> {
    /// Runs an engine until it is told to stop. `begun` is called when it is made.
    pub fn run<F: Family, P: Port>(
        &self,
        config: Config<F>,
        mut port: P,
        begun: impl FnOnce(),
    ) -> Result<ThreadResult, ConfigError> {
        let begin = Monotonic.now();
        let mut engine = Engine::new(config, begin)?;
        engine.open_from(Nanos::MAX);
        begun();
        let mut gateway = None;
        let (mut seen, mut last_order) = (0, Order::default());
        // A rate to come.
        let mut rate = None;
        let mut publish_at = begin;
        let mut idle = 0;
        let mut offered_at = begin;
        let usage = drive(&mut engine, &mut port, &mut Monotonic, |engine, PassResult { end, busy, usage }| {
            if let Some(order) = self.orders.news(&mut seen) {
                if order.stop {
                    return PassAction::Stop;
                }
                obey(engine, order, last_order);
                rate = order.rate.filter(|_| last_order.rate != order.rate).or(rate);
                last_order = order;
            }
            if let Some((_, factor)) = rate.filter(|(at, _)| end >= *at) {
                engine.scale_rate(factor, end);
                rate = None;
            }
            if end >= publish_at && self.publish(engine, usage, end) {
                publish_at = end + PUBLISH;
                self.compare(engine, &mut gateway);
            }
            idle = if busy { 0 } else { idle + 1 };
            if idle < TIMEOUT && end < offered_at + OFFER {
                return PassAction::Next;
            }
            idle = 0;
            std::thread::yield_now();
            let back = Monotonic.now();
            offered_at = back + reserve(back - end);
            PassAction::Rested
        });
        engine.count_unfinished();
        engine.give_up(Monotonic.now());
        let mut latencies = Latencies::default();
        engine.exchange_latencies(&mut latencies);
        let rows = engine.rows().collect();
        Ok(ThreadResult { counters: engine.counters().clone(), latencies, usage, rows })
    }

    /// Publishes the counters unless the reader holds the lock. Returns whether it did.
    fn publish<F: Family>(&self, engine: &mut Engine<F>, usage: Usage, now: Nanos) -> bool {
        let mut published = match self.published.try_lock() {
            Ok(published) => published,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        published.at = now;
        published.counters.clone_from(engine.counters());
        published.usage = usage;
        published.ready = engine.is_ready();
        published.wound_down = engine.is_wound_down();
        published.latencies = match std::mem::take(&mut published.latencies) {
            LatencyHandover::Offered(mut latencies) => {
                engine.exchange_latencies(&mut latencies);
                LatencyHandover::Taken(latencies)
            }
            other => other,
        };
        true
    }

    /// Tells the others of this interface where the gateway is, or learns it from them. `last` is what both knew.
    fn compare<F: Family>(&self, engine: &mut Engine<F>, last: &mut Option<Mac>) {
        let (own, others) = (engine.gateway(), self.gateway_mac.get());
        match (own, others) {
            (Some(mac), _) if own != *last => self.gateway_mac.set(mac),
            (_, Some(mac)) if others != own => engine.learn_gateway(mac),
            _ => {}
        }
        *last = engine.gateway();
    }
}

/// How long a thread with work keeps its CPU to itself when it was without it for so long: half of that, so that two ends
/// that share a CPU with another process soon have short turns again when they are alone.
fn reserve(away: Nanos) -> Nanos {
    if away > ABSENCE { away / 2 } else { 0 }
}

fn obey<F: Family>(engine: &mut Engine<F>, order: Order, before: Order) {
    if let Some(at) = order.open_from.filter(|_| before.open_from != order.open_from) {
        engine.open_from(at);
    }
    if let Some((begin, end)) = order.window.filter(|_| before.window != order.window) {
        engine.measure(begin, end);
    }
    if before.peer_clock_ns != order.peer_clock_ns {
        engine.set_peer_clock(order.peer_clock_ns);
    }
    if let Some(at) = order.until.filter(|_| before.until != order.until) {
        engine.wind_down_at(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_was_kept_from_its_cpu_keeps_it_for_a_while() {
        assert_eq!(reserve(0), 0);
        assert_eq!(reserve(ABSENCE), 0);
        assert_eq!(reserve(4_000_000), 2_000_000);
        // Two ends in turn: what one keeps, the other is without.
        let turns = std::iter::successors(Some(100_000_000), |away| Some(reserve(*away))).take_while(|away| *away > 0);
        assert!(turns.count() < 10);
    }

    #[test]
    fn a_gateway_is_told_as_it_is() {
        let gateway_mac = GatewayMac::default();
        assert_eq!(gateway_mac.get(), None);
        for mac in [Mac([0; 6]), Mac([2, 0, 0, 0, 0, 1]), Mac([255; 6])] {
            gateway_mac.set(mac);
            assert_eq!(gateway_mac.get(), Some(mac));
        }
    }
}
