//! Several connections for each thread, several transactions under way on one, or transactions that begin on schedule
//! (epoll).
//!
//! Connections are watched edge-triggered: they are registered once, and a receive that did not fill its room has taken
//! all there was, so that a transaction costs one wait, one receive and one send.

use std::collections::VecDeque;

use rig_sys::clock::monotonic_ns;

use super::super::{Report, receive_ended, send_ended};
use super::line::{MessageState, ReceiveResult};
use super::scheduler::{NextAction, TransactionScheduler};
use super::watch::{ReadyConnection, Watch};
use super::{
    Buffer, Connection, Engine, LoadProgress, Payload, ResponseLimiter, ThreadFailure, TransactionStats, Transactions,
    dismiss, inbox, too_much,
};

/// Answers the requests of several connections.
#[derive(Debug)]
pub(super) struct Responder {
    request: usize,
    response: Payload,
    inbox: Buffer,
    in_flight: usize,
    lines: Vec<MessageState>,
    open: usize,
    limiter: ResponseLimiter,
}

impl Responder {
    pub(super) fn new(load: &Transactions, connections: usize) -> Self {
        Self {
            request: load.request as usize,
            response: Payload::new(load.response),
            inbox: inbox(load.request, load.in_flight),
            in_flight: load.in_flight as usize,
            lines: vec![MessageState::default(); connections],
            open: connections,
            limiter: ResponseLimiter::new(load, load.in_flight as usize),
        }
    }

    /// Answers what has come over one connection.
    fn turn(
        &mut self,
        connection: &Connection,
        ready: ReadyConnection,
        progress: &LoadProgress,
    ) -> Result<(), ThreadFailure> {
        let Self { request, response, inbox, in_flight, lines, open, limiter } = self;
        let line = &mut lines[ready.index];
        if line.is_closed {
            return Ok(());
        }
        loop {
            if !limiter.wait(progress) {
                return Ok(());
            }
            let mut more = ready.has_ended;
            let end = match line.pull(&connection.socket, inbox, *request) {
                Ok(ReceiveResult::Messages { count, filled }) => {
                    if line.queued(response) + count + usize::from(line.has_partial()) > *in_flight {
                        return Err(too_much(connection, "more requests than may be under way"));
                    }
                    line.queue(response, count);
                    limiter.pay(count);
                    more |= filled;
                    None
                }
                Ok(ReceiveResult::Nothing) => {
                    more = false;
                    None
                }
                Ok(ReceiveResult::End) => Some(Ok(())),
                Err(errno) => Some(Err(errno)),
            };
            if let Some(end) = end {
                line.is_closed = true;
                *open -= 1;
                return receive_ended(connection, progress, end);
            }
            match line.flush(&connection.socket, response) {
                Ok(sent) => (0..sent).for_each(|_| connection.tally.add(*request + response.size)),
                Err(errno) => {
                    line.is_closed = true;
                    *open -= 1;
                    return send_ended(connection, progress, errno);
                }
            }
            if !more {
                return Ok(());
            }
        }
    }
}

impl Engine for Responder {
    fn run(&mut self, connections: &[&Connection], progress: &LoadProgress) -> Result<(), ThreadFailure> {
        let mut watch = Watch::new(connections.iter().map(|c| &c.socket), progress)?;
        self.limiter.begin(progress);
        while self.open > 0 && !progress.is_stopped() {
            watch.wait(None)?;
            while let Some(ready) = watch.next() {
                self.turn(connections[ready.index], ready, progress)?;
            }
        }
        Ok(())
    }
}

/// When a transaction was due and when its request was handed to the socket.
#[derive(Debug, Clone, Copy)]
struct PendingTransaction {
    due_ns: u64,
    sent_ns: u64,
}

#[derive(Debug)]
pub(super) struct Requester {
    request: Payload,
    response: usize,
    inbox: Buffer,
    in_flight: usize,
    lines: Vec<MessageState>,
    /// The transactions under way on each line, oldest first: TCP answers in order.
    pending: Vec<VecDeque<PendingTransaction>>,
    under_way: usize,
    open: usize,
    stats: TransactionStats,
    /// The times of requests, in the open loop.
    scheduler: Option<TransactionScheduler>,
}

impl Requester {
    pub(super) fn new(load: &Transactions, connections: usize, scheduler: Option<TransactionScheduler>) -> Self {
        let in_flight = load.in_flight as usize;
        Self {
            request: Payload::new(load.request),
            response: load.response as usize,
            inbox: inbox(load.response, load.in_flight),
            in_flight,
            lines: vec![MessageState::default(); connections],
            pending: (0..connections).map(|_| VecDeque::with_capacity(in_flight)).collect(),
            under_way: 0,
            open: connections,
            stats: TransactionStats::new(load),
            scheduler,
        }
    }

    /// Queues a request on a line. It goes out with the next [`Self::flush`].
    #[inline]
    fn begin(&mut self, index: usize, due_ns: u64, sent_ns: u64) {
        self.pending[index].push_back(PendingTransaction { due_ns, sent_ns });
        self.under_way += 1;
        self.lines[index].queue(&self.request, 1);
    }

    fn flush(&mut self, connection: &Connection, index: usize, progress: &LoadProgress) -> Result<(), ThreadFailure> {
        match self.lines[index].flush(&connection.socket, &self.request) {
            Ok(_) => Ok(()),
            Err(errno) => {
                self.close(index);
                send_ended(connection, progress, errno)
            }
        }
    }

    fn close(&mut self, index: usize) {
        self.lines[index].is_closed = true;
        self.open -= 1;
        self.under_way -= self.pending[index].len();
        self.abandon(index, monotonic_ns());
    }

    /// Gives up what is under way on a line.
    fn abandon(&mut self, index: usize, now_ns: u64) {
        for PendingTransaction { due_ns, .. } in self.pending[index].drain(..) {
            self.stats.abandon(due_ns, now_ns);
        }
    }

    /// Takes what has come over one connection and, in the closed loop, lets the next transactions begin.
    fn turn(
        &mut self,
        connection: &Connection,
        ready: ReadyConnection,
        progress: &LoadProgress,
    ) -> Result<(), ThreadFailure> {
        let index = ready.index;
        if self.lines[index].is_closed {
            return Ok(());
        }
        loop {
            let mut more = ready.has_ended;
            match self.lines[index].pull(&connection.socket, &mut self.inbox, self.response) {
                Ok(ReceiveResult::Messages { count, filled }) => {
                    self.complete(connection, index, count)?;
                    more |= filled;
                }
                Ok(ReceiveResult::Nothing) => more = false,
                Ok(ReceiveResult::End) => {
                    self.close(index);
                    return receive_ended(connection, progress, Ok(()));
                }
                Err(errno) => {
                    self.close(index);
                    return receive_ended(connection, progress, Err(errno));
                }
            }
            self.flush(connection, index, progress)?;
            if self.lines[index].is_closed || !more {
                return Ok(());
            }
        }
    }

    #[inline]
    fn complete(&mut self, connection: &Connection, index: usize, count: usize) -> Result<(), ThreadFailure> {
        let under_way = self.pending[index].len();
        if count + usize::from(self.lines[index].has_partial()) > under_way {
            return Err(too_much(connection, "more than the responses that were asked for"));
        }
        if count == 0 {
            return Ok(());
        }
        let now_ns = monotonic_ns();
        for PendingTransaction { due_ns, sent_ns } in self.pending[index].drain(..count) {
            connection.tally.add(self.request.size + self.response);
            self.stats.complete(due_ns, sent_ns, now_ns);
        }
        self.under_way -= count;
        if let Some(scheduler) = &mut self.scheduler {
            if under_way == self.in_flight {
                scheduler.release(index);
            }
        } else if !self.stats.is_over(now_ns) {
            (0..count).for_each(|_| self.begin(index, now_ns, now_ns));
        }
        Ok(())
    }

    /// Of the open loop: begins what is due as far as lines have room for it. Returns when to look again; `None` when
    /// the load is over.
    fn begin_due(
        &mut self,
        connections: &[&Connection],
        progress: &LoadProgress,
    ) -> Result<Option<u64>, ThreadFailure> {
        loop {
            let Some(scheduler) = &mut self.scheduler else { return Ok(None) };
            let room =
                |place: usize| (!self.lines[place].is_closed).then(|| self.in_flight - self.pending[place].len());
            match scheduler.next_in(&mut self.stats, room) {
                NextAction::Begin { place, due_ns, now_ns } => {
                    self.begin(place, due_ns, now_ns);
                    self.flush(connections[place], place, progress)?;
                }
                NextAction::Until(ns) => return Ok(Some(ns)),
                NextAction::Over => return Ok(None),
            }
        }
    }
}

impl Engine for Requester {
    fn run(&mut self, connections: &[&Connection], progress: &LoadProgress) -> Result<(), ThreadFailure> {
        let mut watch = Watch::new(connections.iter().map(|c| &c.socket), progress)?;
        self.stats.open(progress);
        match &mut self.scheduler {
            Some(scheduler) => scheduler.open(self.stats.times().start_ns),
            None => {
                for (index, connection) in connections.iter().enumerate() {
                    let now_ns = monotonic_ns();
                    (0..self.in_flight).for_each(|_| self.begin(index, now_ns, now_ns));
                    self.flush(connection, index, progress)?;
                }
            }
        }
        while self.open > 0 && !progress.is_stopped() {
            for (at_ns, rate) in self.stats.hear(progress) {
                self.scheduler.iter_mut().for_each(|scheduler| scheduler.change(at_ns, rate));
            }
            let again_ns = self.begin_due(connections, progress)?;
            // In the closed loop one follows the other until the load is over.
            if again_ns.is_none() && self.under_way == 0 {
                break;
            }
            watch.wait(again_ns)?;
            while let Some(ready) = watch.next() {
                self.turn(connections[ready.index], ready, progress)?;
            }
        }
        let now_ns = monotonic_ns();
        (0..self.pending.len()).for_each(|index| self.abandon(index, now_ns));
        if let Some(scheduler) = &mut self.scheduler {
            scheduler.close(&mut self.stats);
        }
        connections.iter().for_each(|connection| dismiss(connection));
        Ok(())
    }

    fn report(&mut self) -> Report {
        self.stats.report()
    }
}
