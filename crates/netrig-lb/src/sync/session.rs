//! Whom a balancer believes: a peer's session, which begins with an answer to a challenge, and the messages of it that have come.
//!
//! No clock is part of it but for the rests between answers: clocks of machines differ, and are set.

use std::time::{Duration, Instant};

use super::wire::{Header, Hello, MessageRefusal};

/// Numbers behind the latest one that may still come, as datagrams overtake each other.
const WINDOW: u64 = 128;
/// At most so often a message is answered at once; otherwise with the next beat.
const ANSWERS: Duration = Duration::from_millis(50);

/// Which messages of a session have come: as IPsec does it (RFC 4303, 3.4.3).
#[derive(Debug, Clone, Copy)]
struct ReplayWindow {
    latest: u64,
    /// Bit n: the one n before the latest has come, or must not come any more.
    bits: u128,
}

impl ReplayWindow {
    /// What was before the first one of a session is of no use any more.
    fn beginning_with(sequence: u64) -> Self {
        Self { latest: sequence, bits: u128::MAX }
    }

    /// Notes a message; false if it has come before, or is too old to tell.
    fn note(&mut self, sequence: u64) -> bool {
        if sequence > self.latest {
            let ahead = sequence - self.latest;
            self.bits = if ahead >= WINDOW { 0 } else { self.bits << ahead };
            self.bits |= 1;
            self.latest = sequence;
            return true;
        }
        let behind = self.latest - sequence;
        let bit = if behind >= WINDOW { return false } else { 1_u128 << behind };
        let is_new = self.bits & bit == 0;
        self.bits |= bit;
        is_new
    }
}

/// What follows from a message of the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Accepted {
    /// It is part of a session; otherwise nothing that it says is believed.
    pub(crate) is_believed: bool,
    /// The session has begun with it: the peer has none of what was told before.
    pub(crate) is_new: bool,
    /// The peer waits for a hello.
    pub(crate) wants_answer: bool,
}

/// How it stands with one peer.
#[derive(Debug)]
pub(crate) struct PeerSession {
    /// This balancer's own session.
    own: u64,
    theirs: Option<(u64, ReplayWindow)>,
    /// What the peer has to answer with; 0 while it is believed.
    challenge: u64,
    /// What the peer waits to hear.
    echo: u64,
    answered: Option<Instant>,
    sequence: u64,
}

impl PeerSession {
    /// `own` and `challenge` are drawn, and not 0.
    pub(crate) fn new(own: u64, challenge: u64) -> Self {
        Self { own, theirs: None, challenge, echo: 0, answered: None, sequence: 0 }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.theirs.is_some()
    }

    /// Of the next message to the peer.
    pub(crate) fn next_header(&mut self) -> Header {
        self.sequence += 1;
        Header { session: self.own, to: self.theirs.map_or(0, |(session, _)| session), sequence: self.sequence }
    }

    /// `(challenge, echo)` of the next hello.
    pub(crate) fn challenges(&self) -> (u64, u64) {
        (self.challenge, self.echo)
    }

    /// Whether an answer may go out now.
    pub(crate) fn may_answer(&mut self, now: Instant) -> bool {
        let may = self.answered.is_none_or(|last| now >= last + ANSWERS);
        if may {
            self.answered = Some(now);
        }
        may
    }

    /// A message whose code is right. `drawn` is a new challenge.
    pub(crate) fn accept(
        &mut self,
        header: Header,
        hello: Option<&Hello>,
        drawn: u64,
    ) -> Result<Accepted, MessageRefusal> {
        if header.session == self.own {
            return Err(MessageRefusal::Reflected);
        }
        if let Some((session, window)) = &mut self.theirs
            && (*session, self.own) == (header.session, header.to)
        {
            if !window.note(header.sequence) {
                return Err(MessageRefusal::Replayed);
            }
            let wants_answer = hello.is_some_and(|hello| hello.challenge != 0);
            if let Some(hello) = hello {
                self.echo = hello.challenge;
                if self.challenge != 0 && hello.echo == self.challenge {
                    self.challenge = 0;
                }
            }
            return Ok(Accepted { is_believed: true, is_new: false, wants_answer });
        }
        let hello = hello.ok_or(MessageRefusal::Session)?;
        self.echo = hello.challenge;
        if self.challenge != 0 && hello.echo == self.challenge {
            self.theirs = Some((header.session, ReplayWindow::beginning_with(header.sequence)));
            self.challenge = 0;
            return Ok(Accepted { is_believed: true, is_new: true, wants_answer: hello.challenge != 0 });
        }
        // It may be an old one that someone sends again: only who answers now is believed.
        if self.challenge == 0 {
            self.challenge = drawn;
        }
        Ok(Accepted { is_believed: false, is_new: false, wants_answer: true })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::*;

    fn says(session: &mut PeerSession) -> (Header, Hello) {
        let header = session.next_header();
        let (challenge, echo) = session.challenges();
        (header, Hello { challenge, echo, share: 1, of: 1 })
    }

    fn hears(
        session: &mut PeerSession,
        (header, hello): &(Header, Hello),
        drawn: u64,
    ) -> Result<Accepted, MessageRefusal> {
        session.accept(*header, Some(hello), drawn)
    }

    /// Until both believe each other; what was said meanwhile.
    fn meet(one: &mut PeerSession, other: &mut PeerSession) -> Vec<(Header, Hello)> {
        let mut said = Vec::new();
        for round in 0.. {
            assert!(round < 4, "they do not meet");
            said.push(says(one));
            hears(other, said.last().unwrap(), 1000 + round).unwrap();
            let back = says(other);
            hears(one, &back, 2000 + round).unwrap();
            if one.is_open() && other.is_open() && one.challenges().0 == 0 && other.challenges().0 == 0 {
                return said;
            }
        }
        said
    }

    #[test]
    fn two_meet_and_what_was_said_is_not_believed_again() {
        let (mut one, mut other) = (PeerSession::new(1, 11), PeerSession::new(2, 22));
        let said = meet(&mut one, &mut other);
        let record = one.next_header();
        assert!(other.accept(record, None, 5).unwrap().is_believed);
        assert_eq!(other.accept(record, None, 5), Err(MessageRefusal::Replayed));
        for old in &said {
            assert!(!hears(&mut other, old, 5).is_ok_and(|accepted| accepted.is_believed), "{old:?}");
        }
        assert_eq!(one.accept(one_of(&one), None, 5), Err(MessageRefusal::Reflected));
        // Replayed greetings do not keep them apart.
        assert!(other.accept(one.next_header(), None, 5).unwrap().is_believed);
    }

    fn one_of(session: &PeerSession) -> Header {
        Header { session: session.own, to: 2, sequence: 99 }
    }

    #[test]
    fn a_peer_that_was_restarted_is_believed_when_it_answers() {
        let (mut one, mut other) = (PeerSession::new(1, 11), PeerSession::new(2, 22));
        let old = meet(&mut one, &mut other);
        let old_record = one.next_header();
        let mut again = PeerSession::new(3, 33);
        meet(&mut again, &mut other);
        assert_eq!(other.accept(old_record, None, 5), Err(MessageRefusal::Session));
        for hello in &old {
            assert!(!hears(&mut other, hello, 99).is_ok_and(|accepted| accepted.is_believed || accepted.is_new));
        }
        // Greetings of the dead only cost an answer; the living one is heard all the same.
        assert!(other.accept(again.next_header(), None, 5).unwrap().is_believed);
    }

    #[test]
    fn messages_may_overtake_each_other_and_come_once() {
        let mut window = ReplayWindow::beginning_with(10);
        assert!(!window.note(10) && !window.note(9) && window.note(12) && window.note(11) && !window.note(11));
        assert!(window.note(12 + WINDOW - 1) && !window.note(12) && window.note(13));
        assert!(window.note(u64::MAX) && !window.note(u64::MAX) && !window.note(140) && window.note(u64::MAX - 127));
        assert!(!window.note(u64::MAX - 128));
    }

    #[test]
    fn answers_have_rests() {
        let (mut session, now) = (PeerSession::new(1, 2), Instant::now());
        assert!(session.may_answer(now) && !session.may_answer(now + ANSWERS / 2) && session.may_answer(now + ANSWERS));
    }
}
