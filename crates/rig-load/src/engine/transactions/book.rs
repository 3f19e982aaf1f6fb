//! What one thread's transactions come to.

use rig_stats::histogram::Histogram;

use super::super::{Report, Times};
use crate::plan::{Schedule, Transactions};
use crate::record::TransactionRecord;

/// Counts and latencies inside the window. All its memory is taken when it is made.
///
/// Rates are counted by when an answer came. Latencies of a schedule belong to the window in which the transaction was
/// *due*, and each that was due there is entered: late answers with what they took, up to the end of the wait after the
/// load, and what has no answer then with its age. Were they assigned by their end, a stall over the last part of the
/// window would leave no trace: what it delayed ends after the window. In the closed loop nothing is due, and the end
/// decides.
#[derive(Debug)]
pub(super) struct Book {
    times: Times,
    is_open: bool,
    completed: u64,
    /// Of the latencies, those that are ages.
    censored: u64,
    latency: Histogram,
    service: Option<Histogram>,
    connect: Option<Histogram>,
    failed: u64,
    /// Of the open loop: due inside the window and not begun when it was over.
    pub(super) overdue: u64,
    pub(super) unanswered: u64,
    /// What random times were made of.
    pub(super) seed: Option<u64>,
    lost: u64,
}

impl Book {
    pub(super) fn new(load: &Transactions) -> Self {
        Self {
            times: Times::NEVER,
            is_open: load.schedule != Schedule::Closed,
            completed: 0,
            censored: 0,
            latency: Histogram::new(),
            service: (load.schedule != Schedule::Closed).then(Histogram::new),
            connect: None,
            failed: 0,
            overdue: 0,
            unanswered: 0,
            seed: None,
            lost: 0,
        }
    }

    /// With room for what connecting takes.
    pub(super) fn for_connections(load: &Transactions) -> Self {
        Self { connect: Some(Histogram::new()), ..Self::new(load) }
    }

    pub(super) fn open(&mut self, times: Times) {
        self.times = times;
    }

    /// No transaction begins any more.
    #[inline]
    pub(super) fn is_over(&self, now_ns: u64) -> bool {
        now_ns >= self.times.stop_ns
    }

    pub(super) fn times(&self) -> Times {
        self.times
    }

    /// Of the open loop: enters when a transaction that was due began.
    #[inline]
    pub(super) fn began(&mut self, due_ns: u64, now_ns: u64) {
        let Times { begin_ns, end_ns, .. } = self.times;
        self.overdue += u64::from(now_ns >= end_ns && (begin_ns..end_ns).contains(&due_ns));
    }

    fn is_inside(&self, ns: u64) -> bool {
        (self.times.begin_ns..self.times.end_ns).contains(&ns)
    }

    /// Whether the times of a transaction that was due and is complete at these moments belong to the window.
    #[inline]
    fn has_times(&self, due_ns: u64, now_ns: u64) -> bool {
        self.is_inside(if self.is_open { due_ns } else { now_ns })
    }

    /// Enters a transaction that was due, was sent, and is complete at these moments.
    #[inline]
    pub(super) fn complete(&mut self, due_ns: u64, sent_ns: u64, now_ns: u64) {
        self.completed += u64::from(self.is_inside(now_ns));
        if self.has_times(due_ns, now_ns) {
            self.latency.record(now_ns.saturating_sub(due_ns));
            if let Some(service) = &mut self.service {
                service.record(now_ns - sent_ns);
            }
        }
    }

    /// Enters what connecting took of a transaction that is complete.
    #[inline]
    pub(super) fn connected(&mut self, due_ns: u64, begun_ns: u64, connected_ns: u64, now_ns: u64) {
        if self.has_times(due_ns, now_ns)
            && let Some(connect) = &mut self.connect
        {
            connect.record(connected_ns - begun_ns);
        }
    }

    /// Enters `count` transactions that were due at this moment and will have no answer: of a schedule they took as long
    /// as has been waited, or longer.
    fn age(&mut self, due_ns: u64, now_ns: u64, count: u64) {
        if self.is_open && self.is_inside(due_ns) {
            self.latency.record_n(now_ns.saturating_sub(due_ns), count);
            self.censored += count;
        }
    }

    /// Enters a transaction that has begun, or that had no place to begin, and is not waited for any more.
    pub(super) fn abandon(&mut self, due_ns: u64, now_ns: u64) {
        self.unanswered += 1;
        self.age(due_ns, now_ns, 1);
    }

    /// Enters transactions that were due inside the window and did not begin.
    pub(super) fn never_began(&mut self, due_ns: u64, now_ns: u64, count: u64) {
        self.overdue += count;
        self.age(due_ns, now_ns, count);
    }

    /// Enters a request that was not answered in time. It belongs to the window when it was sent there, else a time-out
    /// longer than the window would hide the loss.
    pub(super) fn lost(&mut self, due_ns: u64, sent_ns: u64, now_ns: u64) {
        self.lost += u64::from(self.is_inside(sent_ns));
        self.age(due_ns, now_ns, 1);
    }

    /// Enters an attempt to connect that failed.
    pub(super) fn failed(&mut self, now_ns: u64) {
        self.failed += u64::from(self.is_inside(now_ns));
    }

    pub(super) fn report(&mut self) -> Report {
        let record = TransactionRecord {
            completed: self.completed,
            failed: self.failed,
            overdue: self.overdue,
            unanswered: self.unanswered,
            latency: Some(std::mem::take(&mut self.latency)),
            service: self.service.take(),
            connect: self.connect.take(),
            seed: self.seed,
            lost: self.lost,
            censored: self.censored,
            window_ns: self.times.end_ns - self.times.begin_ns,
        };
        Report { transactions: Some(record), ..Report::default() }
    }
}
