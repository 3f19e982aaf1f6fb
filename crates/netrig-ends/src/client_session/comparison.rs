//! How far the clocks of a load's ends are apart, before and after it: by exchanges of datagrams over its way, and by questions over the
//! control connection, the better of which holds.

use rig_facts::record::{ClockOffset, Clocks, EndClocks, OffsetReading};
use rig_load::exchange::{PathMarks, PathOffset};
use rig_load::plan::Load;

use super::{ANSWER_TIMEOUT, Action, ClientSession, NAME, PING_TIME, PINGS, State, TestRecords, after};
use crate::server_session;
use crate::wire::Request;

#[derive(Debug)]
pub(super) struct Comparison {
    stage: ComparisonStage,
    path: Option<PathOffset>,
    asked: Option<Clocks>,
    /// What both ends saw of the load, when it is over, and what was found before it.
    pub(super) ends: Option<(TestRecords, OffsetReading)>,
}

#[derive(Debug)]
enum ComparisonStage {
    /// The server is to say where it answers.
    Asked,
    Exchanging,
    Pinging {
        number: u32,
        sent_ns: u64,
        since_ns: u64,
    },
}

impl Comparison {
    pub(super) fn is_asked(&self) -> bool {
        matches!(self.stage, ComparisonStage::Asked)
    }

    pub(super) fn exchanging(&mut self) {
        self.stage = ComparisonStage::Exchanging;
    }

    pub(super) fn is_answered(&self, answered: u32) -> bool {
        matches!(self.stage, ComparisonStage::Pinging { number, .. } if number == answered)
    }

    pub(super) fn answered(&mut self, now_ns: u64, server_ns: u64) {
        if let ComparisonStage::Pinging { sent_ns, .. } = self.stage {
            self.asked = Some(Clocks::with(self.asked, sent_ns, now_ns, server_ns));
        }
    }
}

impl ClientSession {
    /// Before the load, or with what both ends saw of it.
    pub(super) fn compare_clocks(&mut self, ends: Option<(TestRecords, OffsetReading)>, deadline_ns: u64) {
        let comparison = Comparison { stage: ComparisonStage::Asked, path: None, asked: None, ends };
        self.state = State::Comparing(Box::new(comparison));
        self.deadline_ns = deadline_ns;
        self.actions.push_back(Action::Send(Request::Clock(self.marks())));
    }

    /// What exchanges carry to go the load's way.
    pub(super) fn marks(&self) -> PathMarks {
        PathMarks::of(&self.test.client.socket_options())
    }

    /// What [`Action::Exchange`] found out: the server's clock less this one; `None` where it was not answered.
    pub fn exchanged(&mut self, path: Option<PathOffset>, now_ns: u64) {
        let State::Comparing(comparison) = &mut self.state else { return };
        comparison.path = path;
        comparison.stage = ComparisonStage::Pinging { number: 0, sent_ns: now_ns, since_ns: now_ns };
        self.compare_on(now_ns);
    }

    /// Asks once more, or goes on with what is known.
    pub(super) fn compare_on(&mut self, now_ns: u64) {
        let State::Comparing(comparison) = &mut self.state else { return };
        let ComparisonStage::Pinging { number, sent_ns, since_ns } = &mut comparison.stage else { return };
        let Some(asked) = comparison.asked.filter(|_| *number >= PINGS || now_ns >= after(*since_ns, PING_TIME)) else {
            *number += 1;
            *sent_ns = now_ns;
            self.deadline_ns = after(now_ns, ANSWER_TIMEOUT);
            return self.actions.push_back(Action::Send(Request::Ping { number: *number }));
        };
        let asked = ClockOffset { ns: asked.offset_ns, bound_ns: asked.bound_ns };
        let found = OffsetReading { at_ns: now_ns, path: comparison.path, asked };
        match comparison.ends.take() {
            None => {
                self.clocks_before = Some(found);
                self.open(now_ns);
            }
            Some((ends, before)) => {
                let end_clocks = Some(EndClocks::between(NAME, server_session::NAME, &before, &found));
                self.state = State::Idle;
                self.done(TestRecords { end_clocks, ..ends }, None);
            }
        }
    }

    /// Hands over what both ends saw. Delays that the clocks were not compared for to the end mean nothing: `uncompared` says why that is so.
    pub(super) fn done(&mut self, mut ends: TestRecords, uncompared: Option<String>) {
        if uncompared.is_some() {
            ends.uncompared = uncompared;
            let datagrams = [&mut ends.client, &mut ends.server].map(|end| end.datagrams.as_mut());
            datagrams.into_iter().flatten().for_each(|counted| counted.delay = None);
        }
        self.actions.push_back(Action::Done(Box::new(ends)));
    }

    /// The server's clock less this one, as far as one-way delays need it.
    pub(super) fn ahead_ns(&self) -> i64 {
        self.clocks_before.map_or(0, |before| before.best().ns)
    }

    /// A load as an end runs it, which has one-way delays where the clocks of both are known.
    pub(super) fn with_known_clocks(&self, load: &Load) -> Load {
        let mut load = load.clone();
        if let Load::UdpStream(datagrams) = &mut load {
            datagrams.shared_clock = self.clocks_before.is_some();
        }
        load
    }
}
