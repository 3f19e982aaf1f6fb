//! The requesting end of a load that makes a connection for each transaction.
//!
//! Any of the responder's threads may have got any connection, so a thread that is done does not tell its counterpart:
//! the connections that stay are shut down when all threads are.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use rig_sys::clock::{monotonic_after, monotonic_ns};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::super::{Report, receive_ended, send_ended};
use super::dial::{ConnectOptions, RETRY, SMALLEST_SEGMENT, has_peer};
use super::line::{MessageState, ReceiveResult};
use super::scheduler::{NextAction, TransactionScheduler};
use super::timetable::Timetable;
use super::watch::{ReadyConnection, Watch, refused};
use super::{
    Buffer, Connection, Engine, LoadProgress, Payload, ThreadFailure, TransactionStats, Transactions, inbox, too_much,
};

/// One connection after the other, one system call at a time.
#[derive(Debug)]
pub(super) struct BlockingConnector {
    dial: ConnectOptions,
    request: Payload,
    response: usize,
    inbox: Buffer,
    stats: TransactionStats,
}

/// How an attempt ended that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TransactionEnd {
    Completed,
    /// The load was stopped, or the peer has gone and may.
    Interrupted,
}

impl BlockingConnector {
    pub(super) fn new(load: &Transactions, dial: ConnectOptions) -> Self {
        Self {
            dial,
            request: Payload::new(load.request),
            response: load.response as usize,
            inbox: inbox(load.response, 1),
            stats: TransactionStats::for_connections(load),
        }
    }

    /// Connects, however many attempts it takes. `None` when there will be no connection.
    fn connect(&mut self, kept: &Connection, progress: &LoadProgress) -> Result<Option<OwnedFd>, ThreadFailure> {
        loop {
            match self.dial.wait(progress)? {
                Ok(socket) => return Ok(socket),
                Err(_) => {
                    let now_ns = monotonic_ns();
                    self.stats.failed(now_ns);
                    if progress.is_stopped() || self.stats.is_over(now_ns) || !has_peer(kept, progress)? {
                        return Ok(None);
                    }
                    std::thread::park_timeout(RETRY);
                }
            }
        }
    }

    fn transact(
        &mut self,
        kept: &Connection,
        began_ns: u64,
        progress: &LoadProgress,
    ) -> Result<TransactionEnd, ThreadFailure> {
        let Some(socket) = self.connect(kept, progress)? else { return Ok(TransactionEnd::Interrupted) };
        let connected_ns = monotonic_ns();
        let mut left = self.request.size;
        while left > 0 {
            match self.request.push(&socket, left) {
                Ok(bytes) => left -= bytes,
                Err(Errno::INTR | Errno::AGAIN) if !progress.is_stopped() => {}
                Err(errno) => return send_ended(kept, progress, errno).map(|()| TransactionEnd::Interrupted),
            }
        }
        let mut left = self.response;
        while left > 0 {
            match recv(&socket, self.inbox.get_mut(), RecvFlags::empty()) {
                Ok((_, 0)) => return receive_ended(kept, progress, Ok(())).map(|()| TransactionEnd::Interrupted),
                Ok((_, bytes)) if bytes > left => return Err(excess(kept)),
                Ok((_, bytes)) => left -= bytes,
                Err(Errno::INTR | Errno::AGAIN) if !progress.is_stopped() => {}
                Err(errno) => return receive_ended(kept, progress, Err(errno)).map(|()| TransactionEnd::Interrupted),
            }
        }
        let now_ns = monotonic_ns();
        kept.tally.add(self.request.size + self.response);
        self.stats.complete(began_ns, began_ns, now_ns);
        self.stats.connected(began_ns, began_ns, connected_ns, now_ns);
        while self.response >= SMALLEST_SEGMENT && !progress.is_stopped() {
            match recv(&socket, self.inbox.get_mut(), RecvFlags::empty()) {
                Ok((_, 0)) => break,
                Ok(_) => return Err(excess(kept)),
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(errno) => return receive_ended(kept, progress, Err(errno)).map(|()| TransactionEnd::Completed),
            }
        }
        Ok(TransactionEnd::Completed)
    }
}

impl Engine for BlockingConnector {
    fn run(&mut self, connections: &[&Connection], progress: &LoadProgress) -> Result<(), ThreadFailure> {
        self.stats.open(progress);
        let kept = connections[0];
        while !progress.is_stopped() {
            // Not the end of the one before: closing its connection lies between.
            let began_ns = monotonic_ns();
            self.stats.hear(progress);
            if self.stats.is_over(began_ns) {
                break;
            }
            if self.transact(kept, began_ns, progress)? == TransactionEnd::Interrupted {
                self.stats.unanswered(began_ns);
                break;
            }
        }
        Ok(())
    }

    fn report(&mut self) -> Report {
        self.stats.report()
    }
}

fn excess(kept: &Connection) -> ThreadFailure {
    too_much(kept, "more than the response that was asked for")
}

/// A transaction under way.
#[derive(Debug)]
struct Call {
    due_ns: u64,
    /// The first attempt to connect.
    begun_ns: u64,
    /// When the connection was seen to stand, which is when it took the request.
    connected_ns: Option<u64>,
    /// `None` between two attempts.
    socket: Option<OwnedFd>,
    line: MessageState,
    /// The response is there, the end of the stream is not.
    is_answered: bool,
}

/// Several connections under way at once, or transactions that begin on schedule (epoll).
#[derive(Debug)]
pub(super) struct PollingConnector {
    dial: ConnectOptions,
    request: Payload,
    response: usize,
    inbox: Buffer,
    stats: TransactionStats,
    /// One place for each connection that may be under way.
    calls: Vec<Option<Call>>,
    under_way: usize,
    scheduler: TransactionScheduler,
    /// Those whose last attempt to connect failed, and when the next one is due.
    failed: VecDeque<(usize, u64)>,
    is_cut: bool,
}

impl PollingConnector {
    pub(super) fn new(load: &Transactions, dial: ConnectOptions, timetable: Option<Timetable>) -> Self {
        let places = load.connections as usize;
        Self {
            dial,
            request: Payload::new(load.request),
            response: load.response as usize,
            inbox: inbox(load.response, 1),
            stats: TransactionStats::for_connections(load),
            calls: (0..places).map(|_| None).collect(),
            under_way: 0,
            scheduler: TransactionScheduler::new(timetable, places),
            failed: VecDeque::new(),
            is_cut: false,
        }
    }

    /// Opens connections that are due and repeats attempts that failed. Returns when to look again, `u64::MAX` when only an event of a
    /// connection can change anything.
    fn begin_due(
        &mut self,
        watch: &Watch,
        kept: &[&Connection],
        progress: &LoadProgress,
    ) -> Result<u64, ThreadFailure> {
        loop {
            let now_ns = monotonic_ns();
            let mut again_ns = u64::MAX;
            if let Some(&(place, due_ns)) = self.failed.front() {
                if self.stats.is_over(now_ns) {
                    self.failed.pop_front();
                    self.give_up(place);
                    continue;
                }
                if due_ns <= now_ns {
                    self.failed.pop_front();
                    self.dial(place, watch, kept[place], progress)?;
                    continue;
                }
                again_ns = due_ns;
            }
            if self.is_cut {
                return Ok(again_ns);
            }
            let (place, due_ns) = match self.scheduler.next(now_ns, &mut self.stats) {
                NextAction::Begin { place, due_ns, .. } => (place, due_ns),
                NextAction::Until(ns) => return Ok(again_ns.min(ns)),
                NextAction::Over => return Ok(again_ns),
            };
            self.under_way += 1;
            let line = MessageState::with_queued(&self.request);
            self.calls[place] =
                Some(Call { due_ns, begun_ns: now_ns, connected_ns: None, socket: None, line, is_answered: false });
            self.dial(place, watch, kept[place], progress)?;
        }
    }

    /// One attempt to connect.
    fn dial(
        &mut self,
        place: usize,
        watch: &Watch,
        kept: &Connection,
        progress: &LoadProgress,
    ) -> Result<(), ThreadFailure> {
        match self.dial.begin()? {
            Ok(socket) => {
                watch.add(&socket, place).map_err(|errno| refused("watch a connection", errno))?;
                if let Some(call) = &mut self.calls[place] {
                    call.socket = Some(socket);
                }
                // Over a path that is quick enough the handshake is over by now.
                self.flush(place, kept, progress)
            }
            Err(_) => self.attempt_failed(place, kept, progress),
        }
    }

    fn attempt_failed(
        &mut self,
        place: usize,
        kept: &Connection,
        progress: &LoadProgress,
    ) -> Result<(), ThreadFailure> {
        self.stats.failed(monotonic_ns());
        if let Some(call) = &mut self.calls[place] {
            call.socket = None;
        }
        if has_peer(kept, progress)? {
            self.failed.push_back((place, monotonic_after(RETRY)));
        } else {
            self.is_cut = true;
            self.give_up(place);
        }
        Ok(())
    }

    fn give_up(&mut self, place: usize) {
        if let Some(Call { due_ns, is_answered: false, .. }) = self.calls[place] {
            self.stats.abandon(due_ns, monotonic_ns());
        }
        self.release(place);
    }

    /// Sends what the connection takes of the request.
    fn flush(&mut self, place: usize, kept: &Connection, progress: &LoadProgress) -> Result<(), ThreadFailure> {
        let Some(Call { socket: Some(socket), line, connected_ns, .. }) = &mut self.calls[place] else { return Ok(()) };
        if line.queued(&self.request) == 0 {
            return Ok(());
        }
        let now_ns = monotonic_ns();
        let result = line.flush(&*socket, &self.request);
        if line.has_sent(&self.request) {
            connected_ns.get_or_insert(now_ns);
        }
        match (result, connected_ns) {
            (Ok(_), _) => Ok(()),
            (Err(_), None) => self.attempt_failed(place, kept, progress),
            (Err(errno), Some(_)) => {
                self.is_cut = true;
                self.give_up(place);
                send_ended(kept, progress, errno)
            }
        }
    }

    fn turn(
        &mut self,
        ready: ReadyConnection,
        kept: &Connection,
        progress: &LoadProgress,
    ) -> Result<(), ThreadFailure> {
        let place = ready.index;
        self.flush(place, kept, progress)?;
        loop {
            let Some(Call { socket: Some(socket), line, connected_ns: Some(_), is_answered, .. }) =
                &mut self.calls[place]
            else {
                return Ok(());
            };
            let end = match line.pull(&*socket, &mut self.inbox, self.response) {
                Ok(ReceiveResult::Messages { .. }) if *is_answered => return Err(excess(kept)),
                Ok(ReceiveResult::Messages { count: 0, filled }) if filled || ready.has_ended => continue,
                Ok(ReceiveResult::Nothing | ReceiveResult::Messages { count: 0, .. }) => return Ok(()),
                Ok(ReceiveResult::Messages { count: 1, .. })
                    if !line.has_partial() && line.queued(&self.request) == 0 =>
                {
                    self.complete(place, kept);
                    if self.response < SMALLEST_SEGMENT {
                        self.release(place);
                    }
                    continue;
                }
                Ok(ReceiveResult::Messages { .. }) => return Err(excess(kept)),
                Ok(ReceiveResult::End) if *is_answered => {
                    self.release(place);
                    return Ok(());
                }
                Ok(ReceiveResult::End) => Ok(()),
                Err(errno) => Err(errno),
            };
            self.is_cut = true;
            self.give_up(place);
            return receive_ended(kept, progress, end);
        }
    }

    /// Enters a transaction whose response is there.
    fn complete(&mut self, place: usize, kept: &Connection) {
        let now_ns = monotonic_ns();
        if let Some(Call { due_ns, begun_ns, connected_ns, is_answered, .. }) = &mut self.calls[place] {
            *is_answered = true;
            kept.tally.add(self.request.size + self.response);
            self.stats.complete(*due_ns, *begun_ns, now_ns);
            self.stats.connected(*due_ns, *begun_ns, connected_ns.unwrap_or(now_ns), now_ns);
        }
    }

    /// Closes a connection and makes its place free.
    fn release(&mut self, place: usize) {
        self.calls[place] = None;
        self.under_way -= 1;
        self.scheduler.release(place);
    }
}

impl Engine for PollingConnector {
    fn run(&mut self, connections: &[&Connection], progress: &LoadProgress) -> Result<(), ThreadFailure> {
        let mut watch = Watch::new([], progress)?;
        self.stats.open(progress);
        self.scheduler.open(self.stats.times().start_ns);
        while !progress.is_stopped() {
            for (at_ns, rate) in self.stats.hear(progress) {
                self.scheduler.change(at_ns, rate);
            }
            let again_ns = self.begin_due(&watch, connections, progress)?;
            if self.under_way == 0 && (self.is_cut || self.stats.is_over(monotonic_ns())) {
                break;
            }
            watch.wait((again_ns != u64::MAX).then_some(again_ns))?;
            while let Some(ready) = watch.next() {
                self.turn(ready, connections[ready.index], progress)?;
            }
        }
        let now_ns = monotonic_ns();
        for call in self.calls.iter().flatten().filter(|call| !call.is_answered) {
            self.stats.abandon(call.due_ns, now_ns);
        }
        self.scheduler.close(&mut self.stats);
        Ok(())
    }

    fn report(&mut self) -> Report {
        self.stats.report()
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::Duration;

    use rig_sys::socket::SourceBinding;

    use super::super::super::Times;
    use super::super::tests::{connection, transactions};
    use super::*;

    /// A peer that is there but refuses connections: each attempt is counted, none is silent, and the load ends.
    #[test]
    fn attempts_that_fail_are_counted_and_repeated() {
        for connections in [1, 3] {
            let (kept, _peer) = (0..connections).map(|_| connection()).unzip::<_, _, Vec<_>, Vec<_>>();
            let kept: Vec<&Connection> = kept.iter().collect();
            let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
            let load = Transactions { connections, ..transactions() };
            let dial = ConnectOptions::new(&load, free, SourceBinding::default());
            let mut engine: Box<dyn Engine> = match connections {
                1 => Box::new(BlockingConnector::new(&load, dial)),
                _ => Box::new(PollingConnector::new(&load, dial, None)),
            };
            let progress = LoadProgress::new(None).unwrap();
            let begin_ns = monotonic_ns();
            let stop_ns = begin_ns + Duration::from_millis(30).as_nanos() as u64;
            progress.start(Times { start_ns: begin_ns, begin_ns, end_ns: stop_ns, stop_ns });
            engine.run(&kept, &progress).unwrap();
            assert!(monotonic_ns() >= stop_ns);
            let record = engine.report().transactions.unwrap();
            assert!(record.failed >= u64::from(connections), "{record:?}");
            assert_eq!((record.completed, record.unanswered), (0, connections.into()));
        }
    }
}
