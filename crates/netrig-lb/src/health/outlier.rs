//! Which backends clients' own connections speak against: counters in, suspects and ejections out. It has no clock and no sockets.
//!
//! What clients' packets come to is never enough to take a backend out, as clients can be forged: a SYN with a wrong checksum is answered
//! by nobody. It makes a backend a suspect, and what a connection of the balancer's own comes to decides.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime};

use rig_stats::units::counted;

use super::state::{Health, HealthState};

/// For how long a connection may be without an answer, and that of the balancer's own: a client's SYN is sent again after 1 s and 3 s
/// (RFC 6298, 2.1 and 5.5).
pub const ANSWERED_WITHIN: Duration = Duration::from_secs(3);

/// Intervals in use after which one time less is counted that a backend was taken out in a row, where that is longer than it was out for
/// the first time: it takes one of them, and a little more, to be found out again.
const FORGETS_AFTER: u32 = 3;

/// By how much the wall clock may be set back without an end of ejections: as time synchronisation does.
const CLOCK_STEP: Duration = Duration::from_secs(10);

/// The outlier detection of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutlierRules {
    /// Connections within `interval` that have failed.
    pub failures: u32,
    pub interval: Duration,
    /// For how long a backend is taken out for the first time, and so often as long as it was taken out in a row.
    pub eject: Duration,
    /// The longest that becomes.
    pub longest: Duration,
    /// Of the service's backends with a weight, how many may be out at a time; percent.
    pub most: u32,
    /// For how long the weight of a backend grows that is back.
    pub slow_start: Duration,
}

impl Default for OutlierRules {
    fn default() -> Self {
        Self {
            failures: 5,
            interval: Duration::from_secs(10),
            eject: Duration::from_secs(30),
            longest: Duration::from_secs(300),
            most: 50,
            slow_start: Duration::ZERO,
        }
    }
}

/// What the datapath has counted of a backend, since the beginning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BackendCounts {
    /// Connections begun.
    pub connections: u64,
    /// Packets from it.
    pub out_packets: u64,
    /// Of these, resets in place of an answer to a SYN.
    pub refused: u64,
}

impl BackendCounts {
    /// `None` where it counts from a later beginning.
    fn since(&self, before: &Self) -> Option<Self> {
        Some(Self {
            connections: self.connections.checked_sub(before.connections)?,
            out_packets: self.out_packets.checked_sub(before.out_packets)?,
            refused: self.refused.checked_sub(before.refused)?,
        })
    }
}

/// What speaks against a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// So many connections were refused.
    Refused(u64),
    /// So many were begun, and no packet of any kind has come.
    Silent(u64),
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let many = |count: u64| counted(count, "connection", "connections");
        match *self {
            Self::Refused(count) => write!(f, "{} refused", many(count)),
            Self::Silent(count) => write!(f, "no packet came for {}", many(count)),
        }
    }
}

/// A backend that is taken out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ejection {
    /// Of the wall clock, as they are kept over a restart.
    pub since: SystemTime,
    pub until: SystemTime,
    pub reason: String,
}

/// What has become of suspicions, since the control plane was started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    pub ejected: u64,
    /// The balancer's own connection was answered.
    pub answered: u64,
    /// It could not be made, for a reason of this machine.
    pub unable: u64,
    /// Too many others were out already, no other backend answered its clients, or the balancer's own connection failed in another way.
    pub spared: u64,
}

/// Why a suspect stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spared {
    /// The share that may be out is.
    Share,
    NoOtherAnswers,
    /// Clients were refused, and the balancer's own connection has had no answer: that is what a full accept queue looks like.
    NotRefused,
}

impl Spared {
    pub fn text(self) -> &'static str {
        match self {
            Self::Share => "as many backends as `most` allows are out",
            Self::NoOtherAnswers => "no other backend answers its clients",
            Self::NotRefused => "the balancer's own connection had no answer, which is no refusal",
        }
    }
}

/// What outlives the control plane.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct History {
    pub ejection: Option<Ejection>,
    /// How often it was taken out in a row.
    pub in_a_row: u32,
    /// When it came back.
    pub returned: Option<SystemTime>,
}

#[derive(Debug, Clone, Default)]
pub struct OutlierState {
    samples: VecDeque<(Instant, BackendCounts)>,
    /// When it last answered a client, or the balancer's own connection.
    answered: Option<Instant>,
    pub history: History,
    pub tally: Tally,
}

/// A backend of the service that has a weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    pub address: SocketAddr,
    /// Its check takes it to be up, where it has one.
    pub is_up: bool,
    pub counts: BackendCounts,
}

/// The backends of one service.
#[derive(Debug, Clone, Default)]
pub struct Outliers {
    backends: HashMap<SocketAddr, OutlierState>,
}

impl OutlierState {
    fn sample(&mut self, counts: BackendCounts, interval: Duration, now: Instant) {
        match self.samples.back().map(|(_, before)| counts.since(before)) {
            Some(None) => self.samples.clear(),
            Some(Some(more)) if more.out_packets > more.refused => self.answered = Some(now),
            _ => {}
        }
        self.samples.push_back((now, counts));
        // The oldest is as old as the interval, or a little older.
        while self.samples.get(1).is_some_and(|(at, _)| now.saturating_duration_since(*at) >= interval) {
            self.samples.pop_front();
        }
    }

    /// What has happened since the oldest sample, up to the last one that is so old.
    fn up_to(&self, age: Duration) -> Option<BackendCounts> {
        let (now, first) = (self.samples.back()?.0, self.samples.front()?.1);
        let old = |(at, _): &&(Instant, BackendCounts)| now.saturating_duration_since(*at) >= age;
        self.samples.iter().rev().find(old)?.1.since(&first)
    }

    /// Whether it has answered within `interval`, whatever speaks against it: that may be forged.
    fn has_answered(&self, interval: Duration) -> bool {
        let now = self.samples.back().map(|(now, _)| *now);
        let since = now.zip(self.answered).map(|(now, answered)| now.saturating_duration_since(answered));
        since.is_some_and(|since| since <= interval)
    }

    fn evidence(&self, rules: &OutlierRules) -> Option<Evidence> {
        let failures = rules.failures;
        let now = self.up_to(Duration::ZERO)?;
        if now.refused >= failures.into() {
            return Some(Evidence::Refused(now.refused));
        }
        // Of a whole interval.
        self.up_to(rules.interval)?;
        let begun = self.up_to(ANSWERED_WITHIN)?.connections;
        (now.out_packets == 0 && begun >= failures.into()).then_some(Evidence::Silent(begun))
    }

    pub fn is_ejected(&self) -> bool {
        self.history.ejection.is_some()
    }

    /// As one that came up when it came back, for its slow start.
    pub fn recovery(&self) -> Option<HealthState> {
        let returned = self.history.returned.filter(|_| !self.is_ejected())?;
        Some(HealthState::of(Health::Up, returned, Some(returned)))
    }
}

impl Outliers {
    pub fn of(&self, backend: SocketAddr) -> Option<&OutlierState> {
        self.backends.get(&backend)
    }

    pub fn each(&self) -> impl Iterator<Item = (SocketAddr, &OutlierState)> {
        self.backends.iter().map(|(address, state)| (*address, state))
    }

    pub fn is_ejected(&self, backend: SocketAddr) -> bool {
        self.of(backend).is_some_and(OutlierState::is_ejected)
    }

    /// As an earlier control plane knew it.
    pub fn recall(&mut self, backend: SocketAddr, history: History) {
        self.backends.entry(backend).or_default().history = history;
    }

    pub fn retain(&mut self, is_there: impl Fn(SocketAddr) -> bool) {
        self.backends.retain(|address, _| is_there(*address));
    }

    /// Notes what was counted.
    pub fn sample(&mut self, rules: &OutlierRules, candidates: &[Candidate], now: Instant) {
        for candidate in candidates {
            let state = self.backends.entry(candidate.address).or_default();
            if candidate.is_up && !state.is_ejected() {
                state.sample(candidate.counts, rules.interval, now);
            } else {
                // What comes while it gets no connections speaks neither for nor against it.
                state.samples.clear();
            }
        }
    }

    /// Backends that come back: their time is over, or there is no other left. A clock that was set back lengthens no ejection.
    pub fn take_returned(&mut self, candidates: &[Candidate], now: SystemTime) -> Vec<SocketAddr> {
        let others_left = candidates.iter().any(|other| other.is_up && !self.is_ejected(other.address));
        let mut returned = Vec::new();
        for (address, state) in &mut self.backends {
            let is_over = |ejection: &Ejection| now >= ejection.until || now + CLOCK_STEP < ejection.since;
            if state.history.ejection.as_ref().is_some_and(|ejection| !others_left || is_over(ejection)) {
                state.history.ejection = None;
                state.history.returned = Some(now);
                returned.push(*address);
            }
        }
        returned.sort_unstable();
        returned
    }

    /// Backends that clients' connections speak against.
    pub fn suspects(&self, rules: &OutlierRules, candidates: &[Candidate]) -> Vec<(SocketAddr, Evidence)> {
        let up = candidates.iter().filter(|candidate| candidate.is_up && !self.is_ejected(candidate.address));
        let suspects =
            up.filter_map(|candidate| Some((candidate.address, self.of(candidate.address)?.evidence(rules)?)));
        suspects.collect()
    }

    /// Whether one more may be out: there is a share for it, and another backend answers its clients, from which this one differs.
    ///
    /// # Errors
    /// Why not.
    pub fn may_eject(&self, rules: &OutlierRules, candidates: &[Candidate], backend: SocketAddr) -> Result<(), Spared> {
        let out = candidates.iter().filter(|candidate| self.is_ejected(candidate.address)).count() as u64;
        if (out + 1) * 100 > candidates.len() as u64 * u64::from(rules.most) {
            return Err(Spared::Share);
        }
        let answers = |state: &OutlierState| !state.is_ejected() && state.has_answered(rules.interval);
        let mut others = candidates.iter().filter(|other| other.address != backend && other.is_up);
        match others.any(|other| self.of(other.address).is_some_and(answers)) {
            true => Ok(()),
            false => Err(Spared::NoOtherAnswers),
        }
    }

    /// The balancer's own connection was answered.
    pub fn note_answer(&mut self, backend: SocketAddr, now: Instant) {
        self.backends.entry(backend).or_default().answered = Some(now);
    }

    /// What has become of a suspicion that has not led to an ejection; what led to it speaks against the backend no more.
    pub fn dismiss(&mut self, backend: SocketAddr, count: impl FnOnce(&mut Tally) -> &mut u64) {
        let state = self.backends.entry(backend).or_default();
        state.samples.clear();
        *count(&mut state.tally) += 1;
    }

    /// Takes a backend out; for how long. One that was in use for a while is out for less than the last time.
    pub fn eject(&mut self, rules: &OutlierRules, backend: SocketAddr, reason: String, now: SystemTime) -> Duration {
        let OutlierState { samples, history, tally, .. } = self.backends.entry(backend).or_default();
        let in_use = history.returned.and_then(|returned| now.duration_since(returned).ok()).unwrap_or_default();
        let unit = rules.eject.max(FORGETS_AFTER * rules.interval);
        let forgotten = u32::try_from(in_use.as_millis() / unit.as_millis().max(1)).unwrap_or(u32::MAX);
        history.in_a_row = history.in_a_row.saturating_sub(forgotten).saturating_add(1);
        let time = rules.eject.saturating_mul(history.in_a_row).min(rules.longest);
        history.ejection = Some(Ejection { since: now, until: now + time, reason });
        history.returned = None;
        samples.clear();
        tally.ejected += 1;
        time
    }
}

#[cfg(test)]
mod tests;
