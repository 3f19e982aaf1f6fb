//! A connection of the balancer's own to a backend, which nobody can forge: whether it is answered.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use super::board::Outcome;
use super::checker::outcome_of_error;
use super::outlier::ANSWERED_WITHIN;
use super::probe::{StreamJudge, StreamProbe, words};

/// It is closed with this.
#[derive(Debug)]
pub struct OwnConnection {
    probe: StreamProbe,
    began: Instant,
}

/// What it has come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Accepted,
    /// By a reset.
    Refused(String),
    /// Nothing has come, or nothing can get there.
    Silence(String),
    /// It could not be made, for a reason of this machine: it says nothing of the backend.
    Unable(String),
}

impl Answer {
    fn of_error(error: &io::Error) -> Self {
        match outcome_of_error(error) {
            Outcome::Good => Self::Accepted,
            Outcome::Bad(why) if error.kind() == io::ErrorKind::ConnectionRefused => Self::Refused(why),
            Outcome::Bad(why) => Self::Silence(why),
            Outcome::Unable(why) => Self::Unable(why),
        }
    }
}

impl OwnConnection {
    /// Begins one; an error is what it has come to at once.
    pub fn start(to: SocketAddr, source: Option<IpAddr>, now: Instant) -> Result<Self, Answer> {
        let probe = StreamProbe::start(to, source, Vec::new(), StreamJudge::Connection);
        let probe = probe.map_err(|error| Answer::of_error(&error))?;
        Ok(Self { probe, began: now })
    }

    /// What it has come to; `None` while that is open.
    pub fn answer(&mut self, now: Instant) -> Option<Answer> {
        match self.probe.step() {
            Ok(Some(Ok(()))) => Some(Answer::Accepted),
            Ok(Some(Err(why))) => Some(Answer::Silence(why)),
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Some(match error.kind() {
                io::ErrorKind::ConnectionRefused => Answer::Refused(words::of_error(&error)),
                _ => Answer::Silence(words::of_error(&error)),
            }),
            _ if now.saturating_duration_since(self.began) < ANSWERED_WITHIN => None,
            _ => Some(Answer::Silence(self.probe.late(ANSWERED_WITHIN))),
        }
    }
}
