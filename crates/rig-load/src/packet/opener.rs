//! What a client does next: which connection it opens when, and when its connections ask again.

use std::ops::RangeInclusive;

use super::Nanos;
use super::config::{Client, Walk, nanos};
use super::connection::{Key, State};
use super::engine::{Core, LATE};
use super::family::Family;
use super::schedule::{Resting, Schedule};
use super::steering::Steer;

/// What a client opens next: when, and between which ends.
#[derive(Debug)]
pub(super) struct Opener {
    ports: RangeInclusive<u16>,
    server_ports: RangeInclusive<u16>,
    walk: Walk,
    steer: Option<Steer>,
    schedule: Schedule,
    hold: Option<u32>,
    /// Combinations of addresses and ports that have been tried.
    walked: u64,
    /// What is due from then on is not begun.
    until: Nanos,
    pub stopped: bool,
}

impl Opener {
    /// Combinations that are looked at for one that is free.
    const TRIES: usize = 64;
    /// Combinations that are looked at for one whose answers come to this worker.
    const STEPS: usize = 1024;

    pub fn new(client: &Client, steer: Option<Steer>) -> Self {
        let load = client.load;
        let together = load.launch.map_or(1, u64::from);
        Self {
            ports: client.ports.clone(),
            server_ports: client.server_ports.clone(),
            walk: client.walk,
            steer,
            schedule: Schedule::new(load.rate).with(load.ramp.as_secs_f64(), together),
            hold: load.hold,
            walked: 0,
            until: Nanos::MAX,
            stopped: false,
        }
    }

    /// How many were given up.
    pub fn set_rate(&mut self, rate: f64, now: Nanos) -> u64 {
        self.schedule.set_rate(rate, now)
    }

    /// The schedule begins then, and nothing is opened before.
    pub fn begin(&mut self, at: Nanos) {
        self.schedule.begin(at);
    }

    /// What is due from `at` on is not begun; what was due before is, even when it is late.
    pub fn end(&mut self, at: Nanos) {
        self.until = at;
        self.stopped = at == 0;
    }

    pub fn set_hold(&mut self, hold: Option<u32>) {
        self.hold = hold;
    }

    /// A new connection that is due, and since when.
    #[inline]
    pub fn next<F: Family>(&mut self, core: &mut Core<F>, now: Nanos) -> Option<(u32, Nanos)> {
        let due = self.due(core, now)?;
        let free = (0..Self::TRIES).map(|_| self.step(core)).find(|&key| core.table.find(key).is_none());
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
    pub fn next_ends<F: Family>(&mut self, core: &mut Core<F>, now: Nanos) -> Option<Key> {
        let due = self.due(core, now)?;
        core.counters.late += u64::from(now - due > LATE);
        Some(self.step(core))
    }

    #[inline]
    fn due<F: Family>(&mut self, core: &Core<F>, now: Nanos) -> Option<Nanos> {
        if now >= self.until && !self.schedule.is_due_before(self.until) {
            self.stopped = true;
        }
        if self.stopped {
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
    fn step<F: Family>(&mut self, core: &Core<F>) -> Key {
        let key = self.combination(core);
        match &self.steer {
            None => key,
            Some(steer) if steer.is_ours(key) => key,
            Some(_) => self.steered(core, key),
        }
    }

    fn steered<F: Family>(&mut self, core: &Core<F>, mut key: Key) -> Key {
        for _ in 0..Self::STEPS {
            key = self.combination(core);
            if self.steer.as_ref().is_none_or(|steer| steer.is_ours(key)) {
                break;
            }
        }
        key
    }

    /// The next combination: source ports change first, or together with addresses, then ports and addresses of servers.
    /// All are used once before one is used again. Servers take turns, so that each has its share from the beginning.
    #[inline]
    fn combination<F: Family>(&mut self, core: &Core<F>) -> Key {
        let walked = self.walked;
        self.walked += 1;
        let (ports, locals) = (self.ports.len() as u64, core.local.len() as u64);
        let (server_ports, remotes) = (self.server_ports.len() as u64, core.remote.len() as u64);
        let servers = server_ports * remotes;
        let (server, port, local) = match self.walk {
            Walk::Ports => {
                let n = walked / servers;
                (walked % servers, n % ports, n / ports % locals)
            }
            Walk::Hop => {
                let (n, round) = (walked % (ports * locals), walked / (ports * locals));
                // Both go round, and when both are at their first again, the ports go one further.
                let port = (n + n / (ports / divisor(ports, locals) * locals)) % ports;
                // Each round begins at another server.
                ((n + round) % servers, port, n % locals)
            }
        };
        let (remote, server_port) = (server % remotes, self.server_ports.start() + (server / remotes) as u16);
        Key::new(local as u16, self.ports.start() + port as u16, remote as u16, server_port)
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
pub(super) enum Pace {
    /// So long after the one before was, nanoseconds; zero: when that one is answered.
    Interval(Nanos),
    /// When it is its turn.
    Rate(Requests),
}

impl Pace {
    pub fn new(client: &Client, capacity: u32) -> Self {
        match client.repeat.map(|repeat| (repeat.rate, nanos(repeat.interval))) {
            Some((Some(rate), _)) => {
                let schedule = Schedule::new(rate).with(client.load.ramp.as_secs_f64(), 1);
                Self::Rate(Requests { schedule, resting: Resting::new(capacity), begun: false })
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
    resting: Resting,
    /// Whether a connection has rested, which is when the schedule begins.
    begun: bool,
}

/// What comes next on a connection that rests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// A request that was due then.
    Ask(Nanos),
    /// Nothing more.
    End,
}

impl Requests {
    /// How many were given up.
    pub fn set_rate(&mut self, rate: f64, now: Nanos) -> u64 {
        self.schedule.set_rate(rate, now)
    }

    /// A connection rests from now on.
    #[inline]
    pub fn rest<F: Family>(&mut self, core: &mut Core<F>, slot: u32) {
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
    pub fn next<F: Family>(&mut self, core: &Core<F>, now: Nanos, opener: &Opener) -> Option<(u32, Turn)> {
        self.begun |= self.resting.len() > 0;
        if !self.begun {
            return None;
        }
        let turn = if now >= opener.until && !self.schedule.is_due_before(opener.until) {
            Turn::End
        } else {
            Turn::Ask(self.schedule.due(now)?)
        };
        let slot = loop {
            let slot = self.resting.pop()?;
            if core.table.all[slot as usize].state == State::Resting {
                break slot;
            }
        };
        if turn != Turn::End {
            self.schedule.take();
        }
        Some((slot, turn))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divisors() {
        assert_eq!((divisor(12, 18), divisor(7, 3), divisor(5, 1), divisor(4, 4)), (6, 1, 1, 4));
    }
}
