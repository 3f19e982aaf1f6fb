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
use super::agenda::{Agenda, Next};
use super::watch::{Ready, Watch, refused};
use super::{Book, Buffer, Connection, Course, Engine, Toll, Transactions, Trouble};
use crate::greeting::{self, Greeting, Kind};

/// A sweep for requests that were lost comes so often while one may be.
const SWEEPS: u64 = 10;
const SWEEP_LEAST_NS: u64 = 1_000_000;

/// Datagrams of one size go out and such of another come in.
#[derive(Debug)]
struct Mail {
    out: Buffer,
    inbox: Buffer,
    /// Bytes of a datagram that comes in.
    size: usize,
    /// Bytes of a number.
    digits: usize,
}

/// What a receive brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Letter {
    /// With these digits of its number.
    Payload(u64),
    Farewell,
    /// None of the load's, which is no matter.
    Stray,
}

impl Mail {
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
    fn receive(&mut self, connection: &Connection) -> Result<Result<Letter, Errno>, Trouble> {
        let length = match recv(&connection.socket, self.inbox.get_mut(), RecvFlags::empty()) {
            Ok((_, length)) => length,
            Err(errno) => return Ok(Err(errno)),
        };
        let datagram = &self.inbox.get()[..length];
        if greeting::is_greeting(datagram) {
            let farewell = Greeting::decode(datagram).is_some_and(|greeting| greeting.kind == Kind::Farewell);
            return Ok(Ok(if farewell { Letter::Farewell } else { Letter::Stray }));
        }
        if length == self.size {
            let mut digits = [0; 8];
            digits[..self.digits].copy_from_slice(&datagram[..self.digits]);
            return Ok(Ok(Letter::Payload(u64::from_le_bytes(digits))));
        }
        if length == 0 {
            // The socket has been shut down.
            return Ok(Ok(Letter::Stray));
        }
        let at_least = if length > self.size { "at least " } else { "" };
        let why = format!(
            "a datagram of {at_least}{length} bytes instead of {}: do both ends have the same sizes?",
            self.size
        );
        Err(super::super::trouble("receive from", connection, &why))
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
    mail: Mail,
    bytes: usize,
    timeout_ns: u64,
    book: Book,
}

impl BlockingRequester {
    /// Sets the time after which a receive over `connection` is given up.
    pub(super) fn new(load: &Transactions, connection: &Connection) -> Result<Self, Trouble> {
        set_socket_timeout(&connection.socket, Timeout::Recv, Some(load.timeout))
            .map_err(|errno| refused("set a socket's time-out", errno))?;
        Ok(Self {
            mail: Mail::new(load.request, load.response),
            bytes: load.request as usize + load.response as usize,
            timeout_ns: load.timeout.as_nanos() as u64,
            book: Book::new(load),
        })
    }
}

impl Engine for BlockingRequester {
    fn run(&mut self, connections: &[&Connection], course: &Course) -> Result<(), Trouble> {
        let connection = connections[0];
        self.book.open(course);
        let mut began_ns = monotonic_ns();
        let mut lost = 0;
        for number in 0.. {
            self.book.hear(course);
            if course.is_stopped() || self.book.is_over(began_ns) {
                break;
            }
            let digits = self.mail.digits(number);
            if let Err(errno) = self.mail.send(connection, digits) {
                self.book.unanswered(began_ns);
                return send_ended(connection, course, errno);
            }
            let now_ns = loop {
                let answered = match self.mail.receive(connection)? {
                    Ok(letter) => letter == Letter::Payload(digits),
                    Err(Errno::INTR | Errno::AGAIN) => false,
                    Err(errno) => {
                        self.book.unanswered(began_ns);
                        return receive_ended(connection, course, Err(errno));
                    }
                };
                let now_ns = monotonic_ns();
                if now_ns >= began_ns + self.timeout_ns {
                    lost += 1;
                    connection.tally.set_lost(lost);
                    self.book.lost(began_ns, began_ns, now_ns);
                    break now_ns;
                }
                if answered {
                    connection.tally.add(self.bytes);
                    self.book.complete(began_ns, began_ns, now_ns);
                    break now_ns;
                }
                if course.is_stopped() {
                    self.book.unanswered(began_ns);
                    return Ok(());
                }
            };
            began_ns = now_ns;
        }
        Mail::dismiss(connection);
        Ok(())
    }

    fn report(&mut self) -> Report {
        self.book.report()
    }
}

/// Answers the requests of one flow in blocking mode, or of several (epoll).
#[derive(Debug)]
pub(super) struct Responder {
    mail: Mail,
    bytes: usize,
    is_closed: Vec<bool>,
    toll: Toll,
}

impl Responder {
    pub(super) fn new(load: &Transactions, flows: usize) -> Self {
        Self {
            mail: Mail::new(load.response, load.request),
            bytes: load.request as usize + load.response as usize,
            is_closed: vec![false; flows],
            toll: Toll::new(load, 1),
        }
    }

    /// Answers one datagram. `None` when there was none; false when the flow has ended.
    fn answer(&mut self, connection: &Connection, course: &Course) -> Result<Option<bool>, Trouble> {
        if !self.toll.wait(course) {
            return Ok(Some(true));
        }
        match self.mail.receive(connection)? {
            Ok(Letter::Payload(digits)) => {
                self.toll.pay(1);
                if let Err(errno) = self.mail.send(connection, digits) {
                    return send_ended(connection, course, errno).map(|()| Some(false));
                }
                connection.tally.add(self.bytes);
                Ok(Some(true))
            }
            Ok(Letter::Farewell) => Ok(Some(false)),
            Ok(Letter::Stray) => {
                // What is none of the load's is taken in all the same.
                self.toll.pay(1);
                Ok(Some(true))
            }
            Err(Errno::INTR) => Ok(Some(true)),
            Err(Errno::AGAIN) => Ok(None),
            Err(errno) => receive_ended(connection, course, Err(errno)).map(|()| Some(false)),
        }
    }
}

impl Engine for Responder {
    fn run(&mut self, connections: &[&Connection], course: &Course) -> Result<(), Trouble> {
        self.toll.begin(course);
        if let [connection] = connections {
            while !course.is_stopped() && self.answer(connection, course)? != Some(false) {}
            return Ok(());
        }
        let mut watch = Watch::new(connections.iter().map(|c| &c.socket), course)?;
        let mut open = connections.len();
        while open > 0 && !course.is_stopped() {
            watch.wait(None)?;
            while let Some(Ready { index, .. }) = watch.next() {
                while !self.is_closed[index] && !course.is_stopped() {
                    match self.answer(connections[index], course)? {
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
struct Asked {
    digits: u64,
    due_ns: u64,
    sent_ns: u64,
}

#[derive(Debug, Default)]
struct Flow {
    number: u64,
    /// Oldest first.
    asked: VecDeque<Asked>,
    lost: u64,
    is_closed: bool,
}

/// Several flows, several transactions under way on one, or transactions that begin on schedule (epoll).
#[derive(Debug)]
pub(super) struct PollingRequester {
    mail: Mail,
    bytes: usize,
    timeout_ns: u64,
    in_flight: usize,
    flows: Vec<Flow>,
    under_way: usize,
    open: usize,
    book: Book,
    /// The times of requests, in the open loop.
    agenda: Option<Agenda>,
}

impl PollingRequester {
    pub(super) fn new(load: &Transactions, flows: usize, agenda: Option<Agenda>) -> Self {
        let in_flight = load.in_flight as usize;
        let flow = || Flow { asked: VecDeque::with_capacity(in_flight), ..Flow::default() };
        Self {
            mail: Mail::new(load.request, load.response),
            bytes: load.request as usize + load.response as usize,
            timeout_ns: load.timeout.as_nanos() as u64,
            in_flight,
            flows: (0..flows).map(|_| flow()).collect(),
            under_way: 0,
            open: flows,
            book: Book::new(load),
            agenda,
        }
    }

    fn begin(
        &mut self,
        connection: &Connection,
        index: usize,
        due_ns: u64,
        sent_ns: u64,
        course: &Course,
    ) -> Result<(), Trouble> {
        let flow = &mut self.flows[index];
        let digits = self.mail.digits(flow.number);
        flow.number += 1;
        flow.asked.push_back(Asked { digits, due_ns, sent_ns });
        self.under_way += 1;
        match self.mail.send(connection, digits) {
            Ok(()) => Ok(()),
            Err(errno) => {
                self.close(index);
                send_ended(connection, course, errno)
            }
        }
    }

    fn close(&mut self, index: usize) {
        let flow = &mut self.flows[index];
        flow.is_closed = true;
        self.open -= 1;
        self.under_way -= flow.asked.len();
        self.abandon(index, monotonic_ns());
    }

    /// Gives up what is under way over a flow.
    fn abandon(&mut self, index: usize, now_ns: u64) {
        for Asked { due_ns, .. } in self.flows[index].asked.drain(..) {
            self.book.abandon(due_ns, now_ns);
        }
    }

    fn lose(&mut self, connection: &Connection, index: usize, asked: Asked, now_ns: u64) {
        let flow = &mut self.flows[index];
        flow.lost += 1;
        connection.tally.set_lost(flow.lost);
        self.book.lost(asked.due_ns, asked.sent_ns, now_ns);
    }

    /// A transaction has left a flow: the closed loop lets the next one begin.
    fn follow(&mut self, connection: &Connection, index: usize, now_ns: u64, course: &Course) -> Result<(), Trouble> {
        self.under_way -= 1;
        match &mut self.agenda {
            Some(agenda) => {
                if self.flows[index].asked.len() + 1 == self.in_flight {
                    agenda.release(index);
                }
                Ok(())
            }
            None if self.book.is_over(now_ns) => Ok(()),
            None => self.begin(connection, index, now_ns, now_ns, course),
        }
    }

    /// Takes what has come over one flow.
    fn turn(&mut self, connection: &Connection, index: usize, course: &Course) -> Result<(), Trouble> {
        while !self.flows[index].is_closed && !course.is_stopped() {
            let digits = match self.mail.receive(connection)? {
                Ok(Letter::Payload(digits)) => digits,
                Ok(_) | Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return Ok(()),
                Err(errno) => {
                    self.close(index);
                    return receive_ended(connection, course, Err(errno));
                }
            };
            let asked = &mut self.flows[index].asked;
            let place = asked.iter().position(|asked| asked.digits == digits);
            // Else it is late and has been counted as lost, or came twice.
            let Some(answered) = place.and_then(|place| asked.remove(place)) else { continue };
            let Asked { due_ns, sent_ns, .. } = answered;
            let is_last = asked.is_empty();
            let now_ns = monotonic_ns();
            if now_ns >= sent_ns + self.timeout_ns {
                self.lose(connection, index, answered, now_ns);
            } else {
                connection.tally.add(self.bytes);
                self.book.complete(due_ns, sent_ns, now_ns);
            }
            self.follow(connection, index, now_ns, course)?;
            // Nothing else was owed; what comes from now on makes an edge of its own.
            if is_last {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Gives up what has not been answered in time.
    fn sweep(&mut self, connections: &[&Connection], course: &Course) -> Result<(), Trouble> {
        let now_ns = monotonic_ns();
        for (index, connection) in connections.iter().enumerate() {
            while let Some(&oldest) = self.flows[index].asked.front()
                && now_ns >= oldest.sent_ns + self.timeout_ns
            {
                self.flows[index].asked.pop_front();
                self.lose(connection, index, oldest, now_ns);
                self.follow(connection, index, now_ns, course)?;
            }
        }
        Ok(())
    }

    /// Of the open loop: begins what is due as far as flows have room for it. Returns when to look again; `None` when
    /// the load is over.
    fn begin_due(&mut self, connections: &[&Connection], course: &Course) -> Result<Option<u64>, Trouble> {
        loop {
            let Some(agenda) = &mut self.agenda else { return Ok(None) };
            let flows = &self.flows;
            let room = |place: usize| (!flows[place].is_closed).then(|| self.in_flight - flows[place].asked.len());
            match agenda.next_in(&mut self.book, room) {
                Next::Begin { place, due_ns, now_ns } => {
                    self.begin(connections[place], place, due_ns, now_ns, course)?;
                }
                Next::Until(ns) => return Ok(Some(ns)),
                Next::Over => return Ok(None),
            }
        }
    }
}

impl Engine for PollingRequester {
    fn run(&mut self, connections: &[&Connection], course: &Course) -> Result<(), Trouble> {
        let mut watch = Watch::new(connections.iter().map(|c| &c.socket), course)?;
        self.book.open(course);
        let times = self.book.times();
        match &mut self.agenda {
            Some(agenda) => agenda.open(times.start_ns),
            None => {
                for (index, connection) in connections.iter().enumerate() {
                    for _ in 0..self.in_flight {
                        let now_ns = monotonic_ns();
                        self.begin(connection, index, now_ns, now_ns, course)?;
                    }
                }
            }
        }
        let distance_ns = (self.timeout_ns / SWEEPS).max(SWEEP_LEAST_NS);
        let mut sweep_ns = times.start_ns + distance_ns;
        while self.open > 0 && !course.is_stopped() {
            for (at_ns, rate) in self.book.hear(course) {
                self.agenda.iter_mut().for_each(|agenda| agenda.change(at_ns, rate));
            }
            let again_ns = self.begin_due(connections, course)?;
            // In the closed loop one follows the other until the load is over.
            if again_ns.is_none() && self.under_way == 0 {
                break;
            }
            watch.wait(Some(again_ns.map_or(sweep_ns, |again_ns| again_ns.min(sweep_ns))))?;
            while let Some(ready) = watch.next() {
                self.turn(connections[ready.index], ready.index, course)?;
            }
            if watch.has_reached(sweep_ns) {
                self.sweep(connections, course)?;
                sweep_ns = monotonic_ns() + distance_ns;
            }
        }
        let now_ns = monotonic_ns();
        (0..self.flows.len()).for_each(|index| self.abandon(index, now_ns));
        if let Some(agenda) = &mut self.agenda {
            agenda.close(&mut self.book);
        }
        connections.iter().for_each(|connection| Mail::dismiss(connection));
        Ok(())
    }

    fn report(&mut self) -> Report {
        self.book.report()
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
        let course = Course::new(Some(100_000)).unwrap();
        let now_ns = monotonic_ns();
        course.start(Times { start_ns: now_ns, begin_ns: now_ns, ..Times::NEVER });
        let (here, peer) = UnixDatagram::pair().unwrap();
        let connection = Connection::new(here.into(), 0, String::new(), String::new());
        let stray = Greeting { kind: Kind::Hello, flow: 0, token: 0, values: (0, 0) }.encode();
        (0..STRAYS).for_each(|_| assert_eq!(peer.send(&stray).unwrap(), stray.len()));
        peer.send(&[7; 1_000]).unwrap();
        let begun = Instant::now();
        let mut responder = Responder::new(&load, 1);
        responder.toll.begin(&course);
        for _ in 0..=STRAYS {
            assert_eq!(responder.answer(&connection, &course).unwrap(), Some(true));
        }
        // Each has its 10 ms, of which one may be made up for.
        assert!(begun.elapsed() >= Duration::from_millis(10) * STRAYS, "{:?}", begun.elapsed());
        peer.set_nonblocking(true).unwrap();
        assert_eq!(peer.recv(&mut [0; 2_000]).unwrap(), 1_000, "the request is answered");
    }
}
