//! Requests and responses as UDP datagrams.
//!
//! A request carries its number in its first bytes, up to eight of them and no more than the response has, lowest first;
//! the response repeats them. So an answer that comes after its time is not taken for the next one's. Numbers of fewer
//! than eight bytes come round again: with one byte, after 256 requests.

use std::collections::VecDeque;

use rig_sys::clock::monotonic_ns;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::super::{Report, receive_ended, send_ended};
use super::scheduler::{NextAction, TransactionScheduler};
use super::watch::{ReadyConnection, Watch, refused};
use super::{Buffer, Connection, Engine, LoadProgress, ResponseLimiter, ThreadFailure, TransactionStats, Transactions};
use crate::greeting::{self, Greeting, Kind};

/// A sweep for requests that were lost comes so often while one may be.
const SWEEPS: u64 = 10;
const SWEEP_LEAST_NS: u64 = 1_000_000;

/// Datagrams of one size go out and such of another come in.
#[derive(Debug)]
struct DatagramBuffers {
    out: Buffer,
    inbox: Buffer,
    /// Bytes of a datagram that comes in.
    size: usize,
    /// Bytes of a number.
    digits: usize,
}

/// What a receive brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReceivedDatagram {
    /// With these digits of its number.
    Payload(u64),
    Farewell,
    /// None of the load's, which is no matter.
    Stray,
}

impl DatagramBuffers {
    fn new(out: u32, size: u32) -> Self {
        // A byte more than can come, so that something longer shows.
        let inbox = Buffer::new((size as usize).max(greeting::LENGTH) + 1);
        Self { out: Buffer::new(out as usize), inbox, size: size as usize, digits: out.min(size).min(8) as usize }
    }

    /// `number` as far as a datagram has room for it.
    fn digits(&self, number: u64) -> u64 {
        if self.digits == 8 { number } else { number & ((1 << (8 * self.digits)) - 1) }
    }

    /// Sends a datagram with these digits. When the kernel has no room for it, it is lost like any other.
    #[inline]
    fn send(&mut self, connection: &Connection, digits: u64) -> Result<(), Errno> {
        self.out.get_mut()[..self.digits].copy_from_slice(&digits.to_le_bytes()[..self.digits]);
        loop {
            match send(&connection.socket, self.out.get(), SendFlags::NOSIGNAL) {
                Ok(_) | Err(Errno::AGAIN | Errno::NOBUFS) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Receives a datagram.
    #[inline]
    fn receive(&mut self, connection: &Connection) -> Result<Result<ReceivedDatagram, Errno>, ThreadFailure> {
        let length = match recv(&connection.socket, self.inbox.get_mut(), RecvFlags::empty()) {
            Ok((_, length)) => length,
            Err(errno) => return Ok(Err(errno)),
        };
        let datagram = &self.inbox.get()[..length];
        if greeting::is_greeting(datagram) {
            let farewell = Greeting::decode(datagram).is_some_and(|greeting| greeting.kind == Kind::Farewell);
            return Ok(Ok(if farewell { ReceivedDatagram::Farewell } else { ReceivedDatagram::Stray }));
        }
        if length == self.size {
            let mut digits = [0; 8];
            digits[..self.digits].copy_from_slice(&datagram[..self.digits]);
            return Ok(Ok(ReceivedDatagram::Payload(u64::from_le_bytes(digits))));
        }
        if length == 0 {
            // The socket has been shut down.
            return Ok(Ok(ReceivedDatagram::Stray));
        }
        let at_least = if length > self.size { "at least " } else { "" };
        let why = format!(
            "a datagram of {at_least}{length} bytes instead of {}: do both ends have the same sizes?",
            self.size
        );
        Err(super::super::failure("receive from", connection, &why))
    }

    /// Tells the responder that no request will follow. When that gets lost, it waits for a while in vain.
    fn dismiss(connection: &Connection) {
        let farewell = Greeting { kind: Kind::Farewell, flow: 0, token: 0, values: (0, 0) };
        let _ = send(&connection.socket, &farewell.encode(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }
}

/// One flow, one transaction at a time, one system call at a time.
#[derive(Debug)]
pub(super) struct BlockingRequester {
    buffers: DatagramBuffers,
    bytes: usize,
    timeout_ns: u64,
    stats: TransactionStats,
}

impl BlockingRequester {
    /// Sets the time after which a receive over `connection` is given up.
    pub(super) fn new(load: &Transactions, connection: &Connection) -> Result<Self, ThreadFailure> {
        set_socket_timeout(&connection.socket, Timeout::Recv, Some(load.timeout))
            .map_err(|errno| refused("set a socket's time-out", errno))?;
        Ok(Self {
            buffers: DatagramBuffers::new(load.request, load.response),
            bytes: load.request as usize + load.response as usize,
            timeout_ns: load.timeout.as_nanos() as u64,
            stats: TransactionStats::new(load),
        })
    }
}

impl Engine for BlockingRequester {
    fn run(&mut self, connections: &[&Connection], progress: &LoadProgress) -> Result<(), ThreadFailure> {
        let connection = connections[0];
        self.stats.open(progress);
        let mut began_ns = monotonic_ns();
        let mut lost = 0;
        for number in 0.. {
            self.stats.hear(progress);
            if progress.is_stopped() || self.stats.is_over(began_ns) {
                break;
            }
            let digits = self.buffers.digits(number);
            if let Err(errno) = self.buffers.send(connection, digits) {
                self.stats.unanswered(began_ns);
                return send_ended(connection, progress, errno);
            }
            let now_ns = loop {
                let answered = match self.buffers.receive(connection)? {
                    Ok(datagram) => datagram == ReceivedDatagram::Payload(digits),
                    Err(Errno::INTR | Errno::AGAIN) => false,
                    Err(errno) => {
                        self.stats.unanswered(began_ns);
                        return receive_ended(connection, progress, Err(errno));
                    }
                };
                let now_ns = monotonic_ns();
                if now_ns >= began_ns + self.timeout_ns {
                    lost += 1;
                    connection.tally.set_lost(lost);
                    self.stats.lost(began_ns, began_ns, now_ns);
                    break now_ns;
                }
                if answered {
                    connection.tally.add(self.bytes);
                    self.stats.complete(began_ns, began_ns, now_ns);
                    break now_ns;
                }
                if progress.is_stopped() {
                    self.stats.unanswered(began_ns);
                    return Ok(());
                }
            };
            began_ns = now_ns;
        }
        DatagramBuffers::dismiss(connection);
        Ok(())
    }

    fn report(&mut self) -> Report {
        self.stats.report()
    }
}

/// Answers the requests of one flow in blocking mode, or of several (epoll).
#[derive(Debug)]
pub(super) struct Responder {
    buffers: DatagramBuffers,
    bytes: usize,
    is_closed: Vec<bool>,
    limiter: ResponseLimiter,
}

impl Responder {
    pub(super) fn new(load: &Transactions, flows: usize) -> Self {
        Self {
            buffers: DatagramBuffers::new(load.response, load.request),
            bytes: load.request as usize + load.response as usize,
            is_closed: vec![false; flows],
            limiter: ResponseLimiter::new(load, 1),
        }
    }

    /// Answers one datagram. `None` when there was none; false when the flow has ended.
    fn answer(&mut self, connection: &Connection, progress: &LoadProgress) -> Result<Option<bool>, ThreadFailure> {
        if !self.limiter.wait(progress) {
            return Ok(Some(true));
        }
        match self.buffers.receive(connection)? {
            Ok(ReceivedDatagram::Payload(digits)) => {
                self.limiter.pay(1);
                if let Err(errno) = self.buffers.send(connection, digits) {
                    return send_ended(connection, progress, errno).map(|()| Some(false));
                }
                connection.tally.add(self.bytes);
                Ok(Some(true))
            }
            Ok(ReceivedDatagram::Farewell) => Ok(Some(false)),
            Ok(ReceivedDatagram::Stray) => {
                // What is none of the load's is taken in all the same.
                self.limiter.pay(1);
                Ok(Some(true))
            }
            Err(Errno::INTR) => Ok(Some(true)),
            Err(Errno::AGAIN) => Ok(None),
            Err(errno) => receive_ended(connection, progress, Err(errno)).map(|()| Some(false)),
        }
    }
}

impl Engine for Responder {
    fn run(&mut self, connections: &[&Connection], progress: &LoadProgress) -> Result<(), ThreadFailure> {
        self.limiter.begin(progress);
        if let [connection] = connections {
            while !progress.is_stopped() && self.answer(connection, progress)? != Some(false) {}
            return Ok(());
        }
        let mut watch = Watch::new(connections.iter().map(|c| &c.socket), progress)?;
        let mut open = connections.len();
        while open > 0 && !progress.is_stopped() {
            watch.wait(None)?;
            while let Some(ReadyConnection { index, .. }) = watch.next() {
                while !self.is_closed[index] && !progress.is_stopped() {
                    match self.answer(connections[index], progress)? {
                        Some(true) => {}
                        None => break,
                        Some(false) => {
                            self.is_closed[index] = true;
                            open -= 1;
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

/// A request without an answer.
#[derive(Debug, Clone, Copy)]
struct PendingRequest {
    digits: u64,
    due_ns: u64,
    sent_ns: u64,
}

#[derive(Debug, Default)]
struct Flow {
    number: u64,
    /// Oldest first.
    pending: VecDeque<PendingRequest>,
    lost: u64,
    is_closed: bool,
}

/// Several flows, several transactions under way on one, or transactions that begin on schedule (epoll).
#[derive(Debug)]
pub(super) struct PollingRequester {
    buffers: DatagramBuffers,
    bytes: usize,
    timeout_ns: u64,
    in_flight: usize,
    flows: Vec<Flow>,
    under_way: usize,
    open: usize,
    stats: TransactionStats,
    /// The times of requests, in the open loop.
    scheduler: Option<TransactionScheduler>,
}

impl PollingRequester {
    pub(super) fn new(load: &Transactions, flows: usize, scheduler: Option<TransactionScheduler>) -> Self {
        let in_flight = load.in_flight as usize;
        let flow = || Flow { pending: VecDeque::with_capacity(in_flight), ..Flow::default() };
        Self {
            buffers: DatagramBuffers::new(load.request, load.response),
            bytes: load.request as usize + load.response as usize,
            timeout_ns: load.timeout.as_nanos() as u64,
            in_flight,
            flows: (0..flows).map(|_| flow()).collect(),
            under_way: 0,
            open: flows,
            stats: TransactionStats::new(load),
            scheduler,
        }
    }

    fn begin(
        &mut self,
        connection: &Connection,
        index: usize,
        due_ns: u64,
        sent_ns: u64,
        progress: &LoadProgress,
    ) -> Result<(), ThreadFailure> {
        let flow = &mut self.flows[index];
        let digits = self.buffers.digits(flow.number);
        flow.number += 1;
        flow.pending.push_back(PendingRequest { digits, due_ns, sent_ns });
        self.under_way += 1;
        match self.buffers.send(connection, digits) {
            Ok(()) => Ok(()),
            Err(errno) => {
                self.close(index);
                send_ended(connection, progress, errno)
            }
        }
    }

    fn close(&mut self, index: usize) {
        let flow = &mut self.flows[index];
        flow.is_closed = true;
        self.open -= 1;
        self.under_way -= flow.pending.len();
        self.abandon(index, monotonic_ns());
    }

    /// Gives up what is under way over a flow.
    fn abandon(&mut self, index: usize, now_ns: u64) {
        for PendingRequest { due_ns, .. } in self.flows[index].pending.drain(..) {
            self.stats.abandon(due_ns, now_ns);
        }
    }

    fn lose(&mut self, connection: &Connection, index: usize, pending: PendingRequest, now_ns: u64) {
        let flow = &mut self.flows[index];
        flow.lost += 1;
        connection.tally.set_lost(flow.lost);
        self.stats.lost(pending.due_ns, pending.sent_ns, now_ns);
    }

    /// A transaction has left a flow: the closed loop lets the next one begin.
    fn follow(
        &mut self,
        connection: &Connection,
        index: usize,
        now_ns: u64,
        progress: &LoadProgress,
    ) -> Result<(), ThreadFailure> {
        self.under_way -= 1;
        match &mut self.scheduler {
            Some(scheduler) => {
                if self.flows[index].pending.len() + 1 == self.in_flight {
                    scheduler.release(index);
                }
                Ok(())
            }
            None if self.stats.is_over(now_ns) => Ok(()),
            None => self.begin(connection, index, now_ns, now_ns, progress),
        }
    }

    /// Takes what has come over one flow.
    fn turn(&mut self, connection: &Connection, index: usize, progress: &LoadProgress) -> Result<(), ThreadFailure> {
        while !self.flows[index].is_closed && !progress.is_stopped() {
            let digits = match self.buffers.receive(connection)? {
                Ok(ReceivedDatagram::Payload(digits)) => digits,
                Ok(_) | Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return Ok(()),
                Err(errno) => {
                    self.close(index);
                    return receive_ended(connection, progress, Err(errno));
                }
            };
            let pending = &mut self.flows[index].pending;
            let place = pending.iter().position(|pending| pending.digits == digits);
            // Else it is late and has been counted as lost, or came twice.
            let Some(answered) = place.and_then(|place| pending.remove(place)) else { continue };
            let PendingRequest { due_ns, sent_ns, .. } = answered;
            let is_last = pending.is_empty();
            let now_ns = monotonic_ns();
            if now_ns >= sent_ns + self.timeout_ns {
                self.lose(connection, index, answered, now_ns);
            } else {
                connection.tally.add(self.bytes);
                self.stats.complete(due_ns, sent_ns, now_ns);
            }
            self.follow(connection, index, now_ns, progress)?;
            // Nothing else was owed; what comes from now on makes an edge of its own.
            if is_last {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Gives up what has not been answered in time.
    fn sweep(&mut self, connections: &[&Connection], progress: &LoadProgress) -> Result<(), ThreadFailure> {
        let now_ns = monotonic_ns();
        for (index, connection) in connections.iter().enumerate() {
            while let Some(&oldest) = self.flows[index].pending.front()
                && now_ns >= oldest.sent_ns + self.timeout_ns
            {
                self.flows[index].pending.pop_front();
                self.lose(connection, index, oldest, now_ns);
                self.follow(connection, index, now_ns, progress)?;
            }
        }
        Ok(())
    }

    /// Of the open loop: begins what is due as far as flows have room for it. Returns when to look again; `None` when
    /// the load is over.
    fn begin_due(
        &mut self,
        connections: &[&Connection],
        progress: &LoadProgress,
    ) -> Result<Option<u64>, ThreadFailure> {
        loop {
            let Some(scheduler) = &mut self.scheduler else { return Ok(None) };
            let flows = &self.flows;
            let room = |place: usize| (!flows[place].is_closed).then(|| self.in_flight - flows[place].pending.len());
            match scheduler.next_in(&mut self.stats, room) {
                NextAction::Begin { place, due_ns, now_ns } => {
                    self.begin(connections[place], place, due_ns, now_ns, progress)?;
                }
                NextAction::Until(ns) => return Ok(Some(ns)),
                NextAction::Over => return Ok(None),
            }
        }
    }
}

impl Engine for PollingRequester {
    fn run(&mut self, connections: &[&Connection], progress: &LoadProgress) -> Result<(), ThreadFailure> {
        let mut watch = Watch::new(connections.iter().map(|c| &c.socket), progress)?;
        self.stats.open(progress);
        let times = self.stats.times();
        match &mut self.scheduler {
            Some(scheduler) => scheduler.open(times.start_ns),
            None => {
                for (index, connection) in connections.iter().enumerate() {
                    for _ in 0..self.in_flight {
                        let now_ns = monotonic_ns();
                        self.begin(connection, index, now_ns, now_ns, progress)?;
                    }
                }
            }
        }
        let distance_ns = (self.timeout_ns / SWEEPS).max(SWEEP_LEAST_NS);
        let mut sweep_ns = times.start_ns + distance_ns;
        while self.open > 0 && !progress.is_stopped() {
            for (at_ns, rate) in self.stats.hear(progress) {
                self.scheduler.iter_mut().for_each(|scheduler| scheduler.change(at_ns, rate));
            }
            let again_ns = self.begin_due(connections, progress)?;
            // In the closed loop one follows the other until the load is over.
            if again_ns.is_none() && self.under_way == 0 {
                break;
            }
            watch.wait(Some(again_ns.map_or(sweep_ns, |again_ns| again_ns.min(sweep_ns))))?;
            while let Some(ready) = watch.next() {
                self.turn(connections[ready.index], ready.index, progress)?;
            }
            if watch.has_reached(sweep_ns) {
                self.sweep(connections, progress)?;
                sweep_ns = monotonic_ns() + distance_ns;
            }
        }
        let now_ns = monotonic_ns();
        (0..self.flows.len()).for_each(|index| self.abandon(index, now_ns));
        if let Some(scheduler) = &mut self.scheduler {
            scheduler.close(&mut self.stats);
        }
        connections.iter().for_each(|connection| DatagramBuffers::dismiss(connection));
        Ok(())
    }

    fn report(&mut self) -> Report {
        self.stats.report()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;
    use std::time::{Duration, Instant};

    use super::super::super::Times;
    use super::super::tests::transactions;
    use super::*;

    /// Datagrams that are none of the load's cost a peer as much of its rate as requests do.
    #[test]
    fn strays_are_taken_in_no_faster_than_requests() {
        const STRAYS: u32 = 10;
        let load = Transactions { request: 1_000, response: 1_000, ..transactions() };
        let progress = LoadProgress::new(Some(100_000)).unwrap();
        let now_ns = monotonic_ns();
        progress.start(Times { start_ns: now_ns, begin_ns: now_ns, ..Times::NEVER });
        let (here, peer) = UnixDatagram::pair().unwrap();
        let connection = Connection::new(here.into(), 0, String::new(), String::new());
        let stray = Greeting { kind: Kind::Hello, flow: 0, token: 0, values: (0, 0) }.encode();
        (0..STRAYS).for_each(|_| assert_eq!(peer.send(&stray).unwrap(), stray.len()));
        peer.send(&[7; 1_000]).unwrap();
        let begun = Instant::now();
        let mut responder = Responder::new(&load, 1);
        responder.limiter.begin(&progress);
        for _ in 0..=STRAYS {
            assert_eq!(responder.answer(&connection, &progress).unwrap(), Some(true));
        }
        // Each has its 10 ms, of which one may be made up for.
        assert!(begun.elapsed() >= Duration::from_millis(10) * STRAYS, "{:?}", begun.elapsed());
        peer.set_nonblocking(true).unwrap();
        assert_eq!(peer.recv(&mut [0; 2_000]).unwrap(), 1_000, "the request is answered");
    }
}
