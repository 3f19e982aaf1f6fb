//! A connection of the balancer's own to a backend, which nobody can forge: whether it is answered.

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use super::board::Outcome;
use super::checker::outcome_of_error;
use super::outlier::ANSWERED_WITHIN;
use super::probe::{StreamJudge, StreamProbe};

/// It is closed with this.
#[derive(Debug)]
pub struct OwnConnection {
    probe: StreamProbe,
    began: Instant,
}

impl OwnConnection {
    /// Begins one; an error is what it has come to at once.
    pub fn start(to: SocketAddr, source: Option<IpAddr>, now: Instant) -> Result<Self, Outcome> {
        let probe = StreamProbe::start(to, source, Vec::new(), StreamJudge::Connection);
        let probe = probe.map_err(|error| outcome_of_error(&error))?;
        Ok(Self { probe, began: now })
    }

    /// What it has come to; `None` while that is open.
    pub fn outcome(&mut self, now: Instant) -> Option<Outcome> {
        match self.probe.go_on() {
            Some(verdict) => Some(verdict.map_or_else(Outcome::Bad, |()| Outcome::Good)),
            None if now.saturating_duration_since(self.began) < ANSWERED_WITHIN => None,
            None => Some(Outcome::Bad(self.probe.late(ANSWERED_WITHIN))),
        }
    }
}
