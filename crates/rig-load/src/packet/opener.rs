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
    walk: Walker,
    steer: Option<Steer>,
    schedule: Schedule,
    hold: Option<u32>,
    /// What is due from then on is not begun.
    until: Nanos,
    pub stopped: bool,
}

impl Opener {
    /// Combinations that are looked at for one that is free.
    const TRIES: usize = 64;
    /// Combinations that are looked at for one whose answers come to this worker.
    const STEPS: usize = 1024;

    /// `addresses` are how many there are: ours and the servers'.
    pub fn new(client: &Client, addresses: (usize, usize), steer: Option<Steer>) -> Self {
        let load = client.load;
        let together = load.launch.map_or(1, u64::from);
        Self {
            walk: Walker::new(client, addresses),
            steer,
            schedule: Schedule::new(load.rate).with(load.ramp.as_secs_f64(), together),
            hold: load.hold,
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
    pub fn next_ends<F: Family>(&mut self, core: &mut Core<F>, now: Nanos) -> Option<Key> {
        let due = self.due(core, now)?;
        core.counters.late += u64::from(now - due > LATE);
        Some(self.step())
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

/// All combinations of addresses and ports, again and again. Servers' ports and addresses change first, so that all of
/// them have their share of any number of connections, then source ports, then our addresses; or all of it together.
#[derive(Debug)]
struct Walker {
    ports: RangeInclusive<u16>,
    server_ports: RangeInclusive<u16>,
    locals: u16,
    remotes: u16,
    /// Whether all change together.
    hops: Option<Hops>,
    /// The next one.
    port: u16,
    local: u16,
    remote: u16,
    server_port: u16,
}

/// What is left until walks of two lengths are both where they began: their least common multiple of steps. One of them
/// then takes a step more, which happens as often as their greatest common divisor says until every pair was met.
#[derive(Debug)]
struct Hops {
    /// Of our addresses and our ports.
    own: Countdown,
    /// Of those pairs and the servers.
    all: Countdown,
    /// All combinations of our addresses and ports, and of these and the servers.
    rounds: (Countdown, Countdown),
}

#[derive(Debug)]
struct Countdown {
    length: u64,
    left: u64,
}

impl Countdown {
    fn new(length: u64) -> Self {
        Self { length, left: length }
    }

    /// Whether that was the last step; then it begins again.
    #[inline]
    fn step(&mut self) -> bool {
        self.left -= 1;
        let over = self.left == 0;
        if over {
            self.left = self.length;
        }
        over
    }
}

impl Walker {
    fn new(client: &Client, (locals, remotes): (usize, usize)) -> Self {
        let hops = || {
            let (ports, locals) = (client.ports.len() as u64, locals as u64);
            let (own, servers) = (ports * locals, client.server_ports.len() as u64 * remotes as u64);
            Hops {
                own: Countdown::new(ports / divisor(ports, locals) * locals),
                all: Countdown::new(own / divisor(own, servers) * servers),
                rounds: (Countdown::new(own), Countdown::new(own * servers)),
            }
        };
        Self {
            ports: client.ports.clone(),
            server_ports: client.server_ports.clone(),
            locals: locals as u16,
            remotes: remotes as u16,
            hops: (client.walk == Walk::Hop).then(hops),
            port: *client.ports.start(),
            local: 0,
            remote: 0,
            server_port: *client.server_ports.start(),
        }
    }

    #[inline]
    fn next(&mut self) -> Key {
        let key = Key::new(self.local, self.port, self.remote, self.server_port);
        if self.hops.is_some() {
            self.hop();
        } else if self.next_server() && self.next_port() {
            self.next_local();
        }
        key
    }

    fn hop(&mut self) {
        let Some(Hops { own, all, rounds }) = &mut self.hops else { return };
        let (own, all) = (own.step(), all.step());
        let (own_around, all_around) = (rounds.0.step(), rounds.1.step());
        self.next_port();
        self.next_local();
        self.next_server();
        if own {
            self.next_port();
        }
        if all {
            self.next_server();
        }
        if own_around {
            (self.port, self.local) = (*self.ports.start(), 0);
        }
        if all_around {
            (self.server_port, self.remote) = (*self.server_ports.start(), 0);
        }
    }

    /// Whether that is the first again.
    #[inline]
    fn next_server(&mut self) -> bool {
        if self.server_port != *self.server_ports.end() {
            self.server_port += 1;
            return false;
        }
        self.server_port = *self.server_ports.start();
        self.remote = if self.remote + 1 == self.remotes { 0 } else { self.remote + 1 };
        self.remote == 0
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
    use std::collections::{HashMap, HashSet};

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
                walk: if hops { Walk::Hop } else { Walk::Ports },
                flood: None,
            };
            let mut walker = Walker::new(&client, (locals, remotes));
            let all = usize::from(ports) * usize::from(server_ports) * locals * remotes;
            let round: Vec<u64> = (0..all).map(|_| walker.next().0).collect();
            prop_assert_eq!(round.iter().collect::<HashSet<_>>().len(), all);
            let again: Vec<u64> = (0..all).map(|_| walker.next().0).collect();
            prop_assert_eq!(&round, &again);
            // Each server once before any comes again, save where a hop begins its next diagonal.
            let servers = usize::from(server_ports) * remotes;
            let server = |&key: &u64| (Key(key).remote(), Key(key).remote_port());
            for turn in round.chunks(servers).filter(|_| !hops) {
                prop_assert_eq!(turn.iter().map(server).collect::<HashSet<_>>().len(), servers);
            }
            let mut shares = HashMap::new();
            round[..all / 2].iter().for_each(|key| *shares.entry(server(key)).or_insert(0_usize) += 1);
            let fair = all / 2 / servers;
            let spread = servers + 1;
            prop_assert!(shares.values().all(|&share| share.abs_diff(fair) <= spread), "{:?} of {}", shares, fair);
            // In each round of our own ends.
            let own = usize::from(ports) * locals;
            for pair in round.chunks(own).flat_map(|own| own.windows(2)).filter(|_| hops && ports > 2 && locals > 1) {
                let (a, b) = (Key(pair[0]), Key(pair[1]));
                prop_assert!(a.local() != b.local() && a.local_port() != b.local_port());
            }
        }
    }
}
