//! What a client does next: which connection it opens when, and when its connections ask again.

use std::ops::RangeInclusive;

use super::Nanos;
use super::config::{Client, TupleOrder, nanos};
use super::connection::{Key, State};
use super::engine_core::EngineCore;
use super::family::Family;
use super::schedule::{IdleConnections, LATE, Schedule};
use super::steering::Steer;

/// What a client opens next: when, and between which ends.
#[derive(Debug)]
pub(super) struct ConnectionOpener {
    walk: TupleSequence,
    steer: Option<Steer>,
    schedule: Schedule,
    hold: Option<u32>,
    /// When the schedule was told to begin.
    origin: Option<Nanos>,
    /// What is due from then on is not begun.
    until: Nanos,
    pub stopped: bool,
    /// How long after the end connections that rest are left as they are; `None`: all are closed in their turn.
    leaves: Option<Nanos>,
    /// When that is.
    left_at: Option<Nanos>,
}

impl ConnectionOpener {
    /// For what is due just before the end: a thousandth of the time, and at least what a thread that loses its CPU for a moment misses.
    const GRACE_SHARE: Nanos = 1000;
    const GRACE_LEAST: Nanos = 2_000_000;
    /// Combinations that are looked at for one that is free.
    const TRIES: usize = 64;
    /// Combinations that are looked at for one whose answers come to this thread.
    const STEPS: usize = 1024;

    /// `addresses` are how many there are: ours and the servers'.
    pub fn new(client: &Client, addresses: (usize, usize), steer: Option<Steer>) -> Self {
        let load = client.load;
        let together = load.launch.map_or(1, u64::from);
        Self {
            walk: TupleSequence::new(client, addresses),
            steer,
            schedule: Schedule::new(load.rate).with(load.ramp.as_secs_f64(), together).shifted(load.phase),
            hold: load.hold,
            origin: None,
            until: Nanos::MAX,
            stopped: false,
            leaves: client.leaves().map(nanos),
            left_at: None,
        }
    }

    /// How many were given up.
    pub fn set_rate(&mut self, rate: f64, now: Nanos) -> u64 {
        self.schedule.set_rate(rate, now)
    }

    /// The schedule begins then, and nothing is opened before.
    pub fn begin(&mut self, at: Nanos) {
        self.origin = Some(at);
        self.schedule.begin(at);
    }

    /// Connections that are due from `at` on are not opened; those that were due before are, even when they are late.
    pub fn end(&mut self, at: Nanos) {
        self.until = at;
        self.stopped = at == 0;
    }

    /// Stops shortly after the end, whatever is overdue then.
    pub fn stop_when_over(&mut self, now: Nanos) {
        if now < self.until {
            return;
        }
        let grace = self.until.saturating_sub(self.origin.unwrap_or(0)) / Self::GRACE_SHARE;
        self.stopped |= now >= self.until.saturating_add(grace.max(Self::GRACE_LEAST));
    }

    /// Whether a connection that rests now is left as it is, because there is no time any more to close it.
    pub fn leaves(&self, now: Nanos) -> bool {
        self.left_at.is_some_and(|left_at| now >= left_at)
    }

    /// When what is due at `now` at the latest is no more.
    pub fn due_until(&self, now: Nanos) -> Nanos {
        self.until.min(now)
    }

    /// Gives out the connections that are due and were not begun; while a number of them is held, none is.
    pub fn give_up(&mut self, now: Nanos, with: impl FnMut(Nanos)) {
        if self.hold.is_none() {
            self.schedule.give_up(self.due_until(now), with);
        }
    }

    pub fn set_hold(&mut self, hold: Option<u32>) {
        self.hold = hold;
    }

    /// A new connection that is due, and since when.
    #[inline]
    pub fn next<F: Family>(&mut self, core: &mut EngineCore<F>, now: Nanos) -> Option<(u32, Nanos)> {
        let due = self.due(core, now)?;
        let free = (0..Self::TRIES).map(|_| self.step()).find(|&key| core.table.find(key).is_none());
        let Some(slot) = free.and_then(|key| core.table.insert(key)) else {
            core.counters.no_socket += 1;
            return None;
        };
        core.opened(slot);
        core.counters.late += u64::from(now - due > LATE);
        Some((slot, due))
    }

    /// The ends of a connection that is due, of which nothing is kept.
    #[inline]
    pub fn next_key<F: Family>(&mut self, core: &mut EngineCore<F>, now: Nanos) -> Option<Key> {
        let due = self.due(core, now)?;
        core.counters.late += u64::from(now - due > LATE);
        Some(self.step())
    }

    #[inline]
    fn due<F: Family>(&mut self, core: &EngineCore<F>, now: Nanos) -> Option<Nanos> {
        if now >= self.until && !self.schedule.is_due_before(self.until) {
            self.stopped = true;
        }
        if self.stopped {
            if self.left_at.is_none() {
                self.left_at = self.leaves.map(|leaves| now.saturating_add(leaves));
            }
            return None;
        }
        let due = self.schedule.due(now)?;
        if self.hold.is_some_and(|hold| core.counters.sk_con() >= hold.into()) {
            // Nothing is missed while enough are open.
            self.schedule.put_off(now);
            return None;
        }
        self.schedule.take();
        Some(due)
    }

    /// The next combination whose answers come here.
    #[inline]
    fn step(&mut self) -> Key {
        let mut key = self.walk.next();
        if let Some(steer) = &self.steer {
            for _ in 0..Self::STEPS {
                if steer.is_ours(key) {
                    break;
                }
                key = self.walk.next();
            }
        }
        key
    }
}

/// All combinations of addresses and ports, again and again. Servers take turns, so that each has its share from the
/// beginning; our ports change when all have had one, or together with our addresses each time.
#[derive(Debug)]
struct TupleSequence {
    ports: RangeInclusive<u16>,
    server_ports: RangeInclusive<u16>,
    locals: u16,
    remotes: u16,
    /// Whether port and address change together; then how many combinations there are until both are where they were,
    /// and how many of them are left.
    diagonal: Option<(u32, u32)>,
    /// Combinations of our addresses and ports that are left in a round of the diagonal.
    left: u64,
    /// The next one.
    port: u16,
    local: u16,
    /// Address and port.
    server: (u16, u16),
    /// The one that the round began with.
    first: (u16, u16),
}

impl TupleSequence {
    fn new(client: &Client, (locals, remotes): (usize, usize)) -> Self {
        let (ports, locals) = (client.ports.len() as u64, locals as u64);
        // The least common multiple, which is less than 2^32.
        let diagonal = (ports / divisor(ports, locals) * locals) as u32;
        Self {
            ports: client.ports.clone(),
            server_ports: client.server_ports.clone(),
            locals: locals as u16,
            remotes: remotes as u16,
            diagonal: (client.walk == TupleOrder::Hop).then_some((diagonal, diagonal)),
            left: ports * locals,
            port: *client.ports.start(),
            local: 0,
            server: (0, *client.server_ports.start()),
            first: (0, *client.server_ports.start()),
        }
    }

    #[inline]
    fn next(&mut self) -> Key {
        let (remote, server_port) = self.server;
        let key = Key::new(self.local, self.port, remote, server_port);
        let around = self.next_server();
        if let Some((length, left)) = &mut self.diagonal {
            *left -= 1;
            if *left == 0 {
                *left = *length;
                self.next_port();
            }
            self.next_port();
            self.next_local();
            self.left -= 1;
            if self.left == 0 {
                self.next_round();
            }
        } else if around && self.next_port() {
            self.next_local();
        }
        key
    }

    /// Whether that is the first again.
    #[inline]
    fn next_port(&mut self) -> bool {
        let around = self.port == *self.ports.end();
        self.port = if around { *self.ports.start() } else { self.port + 1 };
        around
    }

    #[inline]
    fn next_local(&mut self) {
        self.local = if self.local + 1 == self.locals { 0 } else { self.local + 1 };
    }

    /// Whether that is the first again.
    #[inline]
    fn next_server(&mut self) -> bool {
        let (remote, port) = &mut self.server;
        *remote = if *remote + 1 == self.remotes { 0 } else { *remote + 1 };
        if *remote != 0 {
            return false;
        }
        let around = *port == *self.server_ports.end();
        *port = if around { *self.server_ports.start() } else { *port + 1 };
        around
    }

    /// All of our addresses and ports have had one server each: each gets the one after it.
    #[cold]
    fn next_round(&mut self) {
        (self.port, self.local) = (*self.ports.start(), 0);
        self.left = self.ports.len() as u64 * u64::from(self.locals);
        if let Some((length, left)) = &mut self.diagonal {
            *left = *length;
        }
        self.server = self.first;
        self.next_server();
        self.first = self.server;
    }
}

/// The greatest common divisor (Euclid).
fn divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// When a connection's next request is due.
#[derive(Debug)]
pub(super) enum RequestPace {
    /// So long after the one before was, nanoseconds; zero: when that one is answered.
    Interval(Nanos),
    /// When it is its turn.
    Rate(Requests),
}

impl RequestPace {
    pub fn new(client: &Client, capacity: u32) -> Self {
        match client.repeat.map(|repeat| (repeat.rate, nanos(repeat.interval))) {
            Some((Some(rate), _)) => {
                let schedule = Schedule::new(rate).with(client.load.ramp.as_secs_f64(), 1).shifted(client.load.phase);
                Self::Rate(Requests { schedule, resting: IdleConnections::new(capacity), begun: false })
            }
            Some((None, interval)) => Self::Interval(interval),
            None => Self::Interval(0),
        }
    }

    pub fn requests(&mut self) -> Option<&mut Requests> {
        match self {
            Self::Rate(requests) => Some(requests),
            Self::Interval(_) => None,
        }
    }

    pub fn is_rate(&self) -> bool {
        matches!(self, Self::Rate(_))
    }
}

/// Requests of all connections together, each on the one that has rested longest.
#[derive(Debug)]
pub(super) struct Requests {
    schedule: Schedule,
    resting: IdleConnections,
    /// Whether a connection has rested, which is when the schedule begins.
    begun: bool,
}

/// What comes next on a connection that rests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IdleAction {
    /// A request that was due then.
    Request(Nanos),
    /// Nothing more.
    Close,
}

impl Requests {
    /// How many were given up.
    pub fn set_rate(&mut self, rate: f64, now: Nanos) -> u64 {
        self.schedule.set_rate(rate, now)
    }

    /// Gives out the requests that are due and found no connection that rests.
    pub fn give_up(&mut self, until: Nanos, with: impl FnMut(Nanos)) {
        self.schedule.give_up(until, with);
    }

    /// A connection rests from now on.
    #[inline]
    pub fn rest<F: Family>(&mut self, core: &mut EngineCore<F>, slot: u32) {
        core.table.all[slot as usize].state = State::Resting;
        self.resting.push(slot);
    }

    /// Whether a connection waits for its turn.
    pub fn has(&self, slot: u32) -> bool {
        self.resting.has(slot)
    }

    /// How long a connection that begins to rest can expect to, nanoseconds.
    pub fn wait(&self) -> Nanos {
        self.schedule.interval(self.resting.len() as u64)
    }

    /// A connection whose turn it is. A request that is due while none rests waits for one. What would be due after
    /// `opener` ends is none any more.
    #[inline]
    pub fn next<F: Family>(
        &mut self,
        core: &EngineCore<F>,
        now: Nanos,
        opener: &ConnectionOpener,
    ) -> Option<(u32, IdleAction)> {
        if !self.begun {
            if self.resting.len() == 0 {
                return None;
            }
            self.begun = true;
            self.schedule.join(opener.origin, now);
        }
        let turn = if now >= opener.until && !self.schedule.is_due_before(opener.until) {
            IdleAction::Close
        } else {
            IdleAction::Request(self.schedule.due(now)?)
        };
        let slot = loop {
            let slot = self.resting.pop()?;
            if core.table.all[slot as usize].state == State::Resting {
                break slot;
            }
        };
        if turn != IdleAction::Close {
            self.schedule.take();
        }
        Some((slot, turn))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::super::config::Load;
    use super::*;

    #[test]
    fn divisors() {
        assert_eq!((divisor(12, 18), divisor(7, 3), divisor(5, 1), divisor(4, 4)), (6, 1, 1, 4));
    }

    proptest! {
        #[test]
        fn every_combination_comes_once_in_a_round(
            ports in 1u16..20,
            at_end: bool,
            server_ports in 1u16..4,
            locals in 1usize..20,
            remotes in 1usize..4,
            hops: bool,
        ) {
            let range = |count: u16| if at_end { u16::MAX - (count - 1)..=u16::MAX } else { 1..=count };
            let client = Client {
                ports: range(ports),
                server_ports: range(server_ports),
                load: Load::new(1.0),
                repeat: None,
                walk: if hops { TupleOrder::Hop } else { TupleOrder::Ports },
                flood: None,
            };
            let mut walker = TupleSequence::new(&client, (locals, remotes));
            let all = usize::from(ports) * usize::from(server_ports) * locals * remotes;
            let round: Vec<u64> = (0..all).map(|_| walker.next().0).collect();
            prop_assert_eq!(round.iter().collect::<HashSet<_>>().len(), all);
            let again: Vec<u64> = (0..all).map(|_| walker.next().0).collect();
            prop_assert_eq!(&round, &again);
            // Neighbors go to different servers, and hops from different addresses and ports too.
            let stretch = usize::from(ports) * locals;
            for pair in round.chunks(stretch).flat_map(|stretch| stretch.windows(2)) {
                let (a, b) = (Key(pair[0]), Key(pair[1]));
                let same = (a.remote(), a.remote_port()) == (b.remote(), b.remote_port());
                prop_assert_eq!(same, usize::from(server_ports) * remotes == 1);
                if hops && ports > 2 && locals > 1 {
                    prop_assert!(a.local() != b.local() && a.local_port() != b.local_port());
                }
            }
        }
    }
}
