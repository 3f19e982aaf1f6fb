//! What one thread's transactions come to.

use rig_stats::histogram::Histogram;

use super::super::{Report, Times};
use crate::plan::{Schedule, Transactions};
use crate::record::TransactionRecord;

/// Counts and latencies inside the window. All its memory is taken when it is made.
#[derive(Debug)]
pub(super) struct Book {
    times: Times,
    completed: u64,
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
            completed: 0,
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

    /// Enters a transaction that was due, was sent, and is complete at these moments.
    #[inline]
    pub(super) fn complete(&mut self, due_ns: u64, sent_ns: u64, now_ns: u64) {
        if (self.times.begin_ns..self.times.end_ns).contains(&now_ns) {
            self.completed += 1;
            self.latency.record(now_ns.saturating_sub(due_ns));
            if let Some(service) = &mut self.service {
                service.record(now_ns - sent_ns);
            }
        }
    }

    /// Enters what connecting took of a transaction that is complete.
    #[inline]
    pub(super) fn connected(&mut self, begun_ns: u64, connected_ns: u64, now_ns: u64) {
        if (self.times.begin_ns..self.times.end_ns).contains(&now_ns)
            && let Some(connect) = &mut self.connect
        {
            connect.record(connected_ns - begun_ns);
        }
    }

    /// Enters a request that was not answered in time. It belongs to the window when it was sent there, else a time-out
    /// longer than the window would hide the loss.
    pub(super) fn lost(&mut self, sent_ns: u64) {
        self.lost += u64::from((self.times.begin_ns..self.times.end_ns).contains(&sent_ns));
    }

    /// Enters an attempt to connect that failed.
    pub(super) fn failed(&mut self, now_ns: u64) {
        self.failed += u64::from((self.times.begin_ns..self.times.end_ns).contains(&now_ns));
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
            window_ns: self.times.end_ns - self.times.begin_ns,
        };
        Report { transactions: Some(record), ..Report::default() }
    }
}
