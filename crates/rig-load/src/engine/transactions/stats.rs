//! What one thread's transactions come to.

use std::sync::Arc;

use rig_stats::histogram::Histogram;

use super::super::{LoadProgress, RecentLatencies, Report, Times};
use crate::command::CommandAction;
use crate::plan::{Schedule, Transactions};
use crate::record::TransactionRecord;

/// Counts and latencies inside the window, by its phases.
///
/// Rates are counted by when an answer came. Latencies of a schedule belong to the phase in which the transaction was
/// *due*, and each that was due there is entered: late answers with what they took, up to the end of the wait after the
/// load, and what has no answer then with its age. Were they assigned by their end, a stall over the last part of the
/// window would leave no trace: what it delayed ends after the window. In the closed loop nothing is due, and the end
/// decides.
#[derive(Debug)]
pub(super) struct TransactionStats {
    times: Times,
    is_open: bool,
    /// By phase, in order; one where the window is not divided.
    phases: Vec<PhaseStats>,
    recent: Arc<RecentLatencies>,
    /// Commands that were looked at.
    heard: usize,
    /// The seed of random times.
    pub(super) seed: Option<u64>,
}

/// One phase of the window. All its memory is taken when it is made.
#[derive(Debug)]
struct PhaseStats {
    begin_ns: u64,
    completed: u64,
    /// Of the latencies, those that are ages.
    censored: u64,
    latency: Histogram,
    service: Option<Histogram>,
    connect: Option<Histogram>,
    failed: u64,
    /// Of the open loop: due inside the phase and not begun when the window was over.
    overdue: u64,
    unanswered: u64,
    lost: u64,
}

impl PhaseStats {
    fn new(begin_ns: u64, service: bool, connect: bool) -> Self {
        Self {
            begin_ns,
            completed: 0,
            censored: 0,
            latency: Histogram::new(),
            service: service.then(Histogram::new),
            connect: connect.then(Histogram::new),
            failed: 0,
            overdue: 0,
            unanswered: 0,
            lost: 0,
        }
    }

    fn into_record(self, end_ns: u64, seed: Option<u64>) -> TransactionRecord {
        TransactionRecord {
            completed: self.completed,
            failed: self.failed,
            overdue: self.overdue,
            unanswered: self.unanswered,
            latency: Some(self.latency),
            service: self.service,
            connect: self.connect,
            seed,
            lost: self.lost,
            censored: self.censored,
            window_ns: end_ns.saturating_sub(self.begin_ns),
        }
    }
}

impl TransactionStats {
    pub(super) fn new(load: &Transactions) -> Self {
        let is_open = load.schedule != Schedule::Closed;
        Self {
            times: Times::NEVER,
            is_open,
            phases: vec![PhaseStats::new(0, is_open, false)],
            recent: Arc::default(),
            heard: 0,
            seed: None,
        }
    }

    /// With room for what connecting takes.
    pub(super) fn for_connections(load: &Transactions) -> Self {
        let stats = Self::new(load);
        Self { phases: vec![PhaseStats::new(0, stats.is_open, true)], ..stats }
    }

    pub(super) fn open(&mut self, progress: &LoadProgress) {
        self.times = progress.times();
        self.recent = progress.measures();
        self.phases[0].begin_ns = self.times.begin_ns;
    }

    /// Takes in what has been said about the window since the last time. Gives the new rates of the load, each with the
    /// moment from which it holds.
    #[inline]
    pub(super) fn hear(&mut self, progress: &LoadProgress) -> Vec<(u64, f64)> {
        if progress.has_news(self.heard) { self.take(progress) } else { Vec::new() }
    }

    #[cold]
    fn take(&mut self, progress: &LoadProgress) -> Vec<(u64, f64)> {
        let mut rates = Vec::new();
        for command in progress.news(&mut self.heard) {
            match command.what {
                CommandAction::Rate(rate) => rates.push((command.at_ns, rate)),
                CommandAction::Mark => {
                    let last = &self.phases[self.phases.len() - 1];
                    let begin_ns = command.at_ns.clamp(last.begin_ns, self.times.end_ns.max(last.begin_ns));
                    self.phases.push(PhaseStats::new(begin_ns, last.service.is_some(), last.connect.is_some()));
                }
                CommandAction::End => self.times = self.times.after(command),
            }
        }
        rates
    }

    /// No transaction begins any more.
    #[inline]
    pub(super) fn is_over(&self, now_ns: u64) -> bool {
        now_ns >= self.times.stop_ns
    }

    pub(super) fn times(&self) -> Times {
        self.times
    }

    /// The phase of a moment; the first or the last one of a moment outside of the window.
    #[inline]
    fn phase(&mut self, ns: u64) -> &mut PhaseStats {
        let last = self.phases.len() - 1;
        if ns >= self.phases[last].begin_ns {
            return &mut self.phases[last];
        }
        let at = self.phases.iter().rposition(|phase| phase.begin_ns <= ns);
        &mut self.phases[at.unwrap_or(0)]
    }

    /// Of the open loop: enters when a transaction that was due began.
    #[inline]
    pub(super) fn began(&mut self, due_ns: u64, now_ns: u64) {
        let Times { begin_ns, end_ns, .. } = self.times;
        if now_ns >= end_ns && (begin_ns..end_ns).contains(&due_ns) {
            self.phase(due_ns).overdue += 1;
        }
    }

    fn is_inside(&self, ns: u64) -> bool {
        (self.times.begin_ns..self.times.end_ns).contains(&ns)
    }

    /// The phase that the times of a transaction belong to that was due and is complete at these moments.
    #[inline]
    fn phase_of(&mut self, due_ns: u64, now_ns: u64) -> Option<&mut PhaseStats> {
        let ns = if self.is_open { due_ns } else { now_ns };
        self.is_inside(ns).then(|| self.phase(ns))
    }

    /// Enters a transaction that was due, was sent, and is complete at these moments.
    #[inline]
    pub(super) fn complete(&mut self, due_ns: u64, sent_ns: u64, now_ns: u64) {
        let latency_ns = now_ns.saturating_sub(due_ns);
        self.recent.record(latency_ns);
        if self.is_inside(now_ns) {
            self.phase(now_ns).completed += 1;
        }
        if let Some(phase) = self.phase_of(due_ns, now_ns) {
            phase.latency.record(latency_ns);
            if let Some(service) = &mut phase.service {
                service.record(now_ns - sent_ns);
            }
        }
    }

    /// Enters what connecting took of a transaction that is complete.
    #[inline]
    pub(super) fn connected(&mut self, due_ns: u64, begun_ns: u64, connected_ns: u64, now_ns: u64) {
        if let Some(PhaseStats { connect: Some(connect), .. }) = self.phase_of(due_ns, now_ns) {
            connect.record(connected_ns - begun_ns);
        }
    }

    /// Enters `count` transactions that were due at this moment and will have no answer: of a schedule they took as long
    /// as has been waited, or longer.
    fn age(&mut self, due_ns: u64, now_ns: u64, count: u64) {
        if self.is_open && self.is_inside(due_ns) {
            let phase = self.phase(due_ns);
            phase.latency.record_n(now_ns.saturating_sub(due_ns), count);
            phase.censored += count;
        }
    }

    /// Enters a transaction of the closed loop that will have no answer.
    pub(super) fn unanswered(&mut self, began_ns: u64) {
        self.phase(began_ns).unanswered += 1;
    }

    /// Enters a transaction that has begun, or that had no place to begin, and is not waited for any more.
    pub(super) fn abandon(&mut self, due_ns: u64, now_ns: u64) {
        self.unanswered(due_ns);
        self.age(due_ns, now_ns, 1);
    }

    /// Enters transactions that were due inside the window and did not begin.
    pub(super) fn never_began(&mut self, due_ns: u64, now_ns: u64, count: u64) {
        self.phase(due_ns).overdue += count;
        self.age(due_ns, now_ns, count);
    }

    /// Enters a request that was not answered in time. It belongs to the window when it was sent there, of a schedule when
    /// it was due there as its age does, else a time-out longer than the window would hide the loss.
    pub(super) fn lost(&mut self, due_ns: u64, sent_ns: u64, now_ns: u64) {
        let ns = if self.is_open { due_ns } else { sent_ns };
        if self.is_inside(ns) {
            self.phase(ns).lost += 1;
        }
        self.age(due_ns, now_ns, 1);
    }

    /// Enters an attempt to connect that failed.
    pub(super) fn failed(&mut self, now_ns: u64) {
        if self.is_inside(now_ns) {
            self.phase(now_ns).failed += 1;
        }
    }

    /// The window, and its phases where it has several.
    pub(super) fn report(&mut self) -> Report {
        let (seed, end_ns) = (self.seed, self.times.end_ns);
        let ends: Vec<u64> = self.phases.iter().skip(1).map(|phase| phase.begin_ns).chain([end_ns]).collect();
        let phases = std::mem::take(&mut self.phases).into_iter().zip(ends);
        let mut phases: Vec<TransactionRecord> =
            phases.map(|(phase, end_ns)| phase.into_record(end_ns, seed)).collect();
        let mut whole = if phases.len() == 1 { phases.remove(0) } else { TransactionRecord::default() };
        phases.iter().for_each(|phase| whole.merge(phase));
        whole.window_ns = end_ns - self.times.begin_ns;
        Report { transactions: Some(whole), phases, ..Report::default() }
    }
}
