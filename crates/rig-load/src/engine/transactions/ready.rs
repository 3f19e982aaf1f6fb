//! Several connections for each thread, several transactions under way on one, or transactions that begin on schedule
//! (epoll).
//!
//! Connections are watched edge-triggered: they are registered once, and a receive that did not fill its room has taken
//! all there was, so that a transaction costs one wait, one receive and one send.

use std::collections::VecDeque;

use rig_sys::clock::monotonic_ns;

use super::super::{Report, receive_ended, send_ended};
use super::agenda::{Agenda, Next};
use super::line::{Arrival, Line};
use super::watch::{Ready, Watch};
use super::{Book, Buffer, Connection, Course, Engine, Payload, Toll, Transactions, Trouble, dismiss, inbox, too_much};

/// Answers the requests of several connections.
#[derive(Debug)]
pub(super) struct Responder {
    request: usize,
    response: Payload,
    inbox: Buffer,
    in_flight: usize,
    lines: Vec<Line>,
    open: usize,
    toll: Toll,
}

impl Responder {
    pub(super) fn new(load: &Transactions, connections: usize) -> Self {
        Self {
            request: load.request as usize,
            response: Payload::new(load.response),
            inbox: inbox(load.request, load.in_flight),
            in_flight: load.in_flight as usize,
            lines: vec![Line::default(); connections],
            open: connections,
            toll: Toll::new(load, load.in_flight as usize),
        }
    }

    /// Answers what has come over one connection.
    fn turn(&mut self, connection: &Connection, ready: Ready, course: &Course) -> Result<(), Trouble> {
        let Self { request, response, inbox, in_flight, lines, open, toll } = self;
        let line = &mut lines[ready.index];
        if line.is_closed {
            return Ok(());
        }
        loop {
            if !toll.wait(course) {
                return Ok(());
            }
            let mut more = ready.has_ended;
            let end = match line.pull(&connection.socket, inbox, *request) {
                Ok(Arrival::Messages { count, filled }) => {
                    if line.queued(response) + count + usize::from(line.has_partial()) > *in_flight {
                        return Err(too_much(connection, "more requests than may be under way"));
                    }
                    line.queue(response, count);
                    toll.pay(count);
                    more |= filled;
                    None
                }
                Ok(Arrival::Nothing) => {
                    more = false;
                    None
                }
                Ok(Arrival::End) => Some(Ok(())),
                Err(errno) => Some(Err(errno)),
            };
            if let Some(end) = end {
                line.is_closed = true;
                *open -= 1;
                return receive_ended(connection, course, end);
            }
            match line.flush(&connection.socket, response) {
                Ok(sent) => (0..sent).for_each(|_| connection.tally.add(*request + response.size)),
                Err(errno) => {
                    line.is_closed = true;
                    *open -= 1;
                    return send_ended(connection, course, errno);
                }
            }
            if !more {
                return Ok(());
            }
        }
    }
}

impl Engine for Responder {
    fn run(&mut self, connections: &[&Connection], course: &Course) -> Result<(), Trouble> {
        let mut watch = Watch::new(connections.iter().map(|c| &c.socket), course)?;
        self.toll.begin(course);
        while self.open > 0 && !course.is_stopped() {
            watch.wait(None)?;
            while let Some(ready) = watch.next() {
                self.turn(connections[ready.index], ready, course)?;
            }
        }
        Ok(())
    }
}

/// When a transaction was due and when its request was handed to the socket.
#[derive(Debug, Clone, Copy)]
struct Begun {
    due_ns: u64,
    sent_ns: u64,
}

#[derive(Debug)]
pub(super) struct Requester {
    request: Payload,
    response: usize,
    inbox: Buffer,
    in_flight: usize,
    lines: Vec<Line>,
    /// The transactions under way on each line, oldest first: TCP answers in order.
    begun: Vec<VecDeque<Begun>>,
    under_way: usize,
    open: usize,
    book: Book,
    /// The times of requests, in the open loop.
    agenda: Option<Agenda>,
}

impl Requester {
    pub(super) fn new(load: &Transactions, connections: usize, agenda: Option<Agenda>) -> Self {
        let in_flight = load.in_flight as usize;
        Self {
            request: Payload::new(load.request),
            response: load.response as usize,
            inbox: inbox(load.response, load.in_flight),
            in_flight,
            lines: vec![Line::default(); connections],
            begun: (0..connections).map(|_| VecDeque::with_capacity(in_flight)).collect(),
            under_way: 0,
            open: connections,
            book: Book::new(load),
            agenda,
        }
    }

    /// Queues a request on a line. It goes out with the next [`Self::flush`].
    #[inline]
    fn begin(&mut self, index: usize, due_ns: u64, sent_ns: u64) {
        self.begun[index].push_back(Begun { due_ns, sent_ns });
        self.under_way += 1;
        self.lines[index].queue(&self.request, 1);
    }

    fn flush(&mut self, connection: &Connection, index: usize, course: &Course) -> Result<(), Trouble> {
        match self.lines[index].flush(&connection.socket, &self.request) {
            Ok(_) => Ok(()),
            Err(errno) => {
                self.close(index);
                send_ended(connection, course, errno)
            }
        }
    }

    fn close(&mut self, index: usize) {
        self.lines[index].is_closed = true;
        self.open -= 1;
        self.under_way -= self.begun[index].len();
        self.abandon(index, monotonic_ns());
    }

    /// Gives up what is under way on a line.
    fn abandon(&mut self, index: usize, now_ns: u64) {
        for Begun { due_ns, .. } in self.begun[index].drain(..) {
            self.book.abandon(due_ns, now_ns);
        }
    }

    /// Takes what has come over one connection and, in the closed loop, lets the next transactions begin.
    fn turn(&mut self, connection: &Connection, ready: Ready, course: &Course) -> Result<(), Trouble> {
        let index = ready.index;
        if self.lines[index].is_closed {
            return Ok(());
        }
        loop {
            let mut more = ready.has_ended;
            match self.lines[index].pull(&connection.socket, &mut self.inbox, self.response) {
                Ok(Arrival::Messages { count, filled }) => {
                    self.complete(connection, index, count)?;
                    more |= filled;
                }
                Ok(Arrival::Nothing) => more = false,
                Ok(Arrival::End) => {
                    self.close(index);
                    return receive_ended(connection, course, Ok(()));
                }
                Err(errno) => {
                    self.close(index);
                    return receive_ended(connection, course, Err(errno));
                }
            }
            self.flush(connection, index, course)?;
            if self.lines[index].is_closed || !more {
                return Ok(());
            }
        }
    }

    #[inline]
    fn complete(&mut self, connection: &Connection, index: usize, count: usize) -> Result<(), Trouble> {
        let under_way = self.begun[index].len();
        if count + usize::from(self.lines[index].has_partial()) > under_way {
            return Err(too_much(connection, "more than the responses that were asked for"));
        }
        if count == 0 {
            return Ok(());
        }
        let now_ns = monotonic_ns();
        for Begun { due_ns, sent_ns } in self.begun[index].drain(..count) {
            connection.tally.add(self.request.size + self.response);
            self.book.complete(due_ns, sent_ns, now_ns);
        }
        self.under_way -= count;
        if let Some(agenda) = &mut self.agenda {
            if under_way == self.in_flight {
                agenda.release(index);
            }
        } else if !self.book.is_over(now_ns) {
            (0..count).for_each(|_| self.begin(index, now_ns, now_ns));
        }
        Ok(())
    }

    /// Of the open loop: begins what is due as far as lines have room for it. Returns when to look again; `None` when
    /// the load is over.
    fn begin_due(&mut self, connections: &[&Connection], course: &Course) -> Result<Option<u64>, Trouble> {
        loop {
            let Some(agenda) = &mut self.agenda else { return Ok(None) };
            let room = |place: usize| (!self.lines[place].is_closed).then(|| self.in_flight - self.begun[place].len());
            match agenda.next_in(&mut self.book, room) {
                Next::Begin { place, due_ns, now_ns } => {
                    self.begin(place, due_ns, now_ns);
                    self.flush(connections[place], place, course)?;
                }
                Next::Until(ns) => return Ok(Some(ns)),
                Next::Over => return Ok(None),
            }
        }
    }
}

impl Engine for Requester {
    fn run(&mut self, connections: &[&Connection], course: &Course) -> Result<(), Trouble> {
        let mut watch = Watch::new(connections.iter().map(|c| &c.socket), course)?;
        self.book.open(course);
        match &mut self.agenda {
            Some(agenda) => agenda.open(self.book.times().start_ns),
            None => {
                for (index, connection) in connections.iter().enumerate() {
                    let now_ns = monotonic_ns();
                    (0..self.in_flight).for_each(|_| self.begin(index, now_ns, now_ns));
                    self.flush(connection, index, course)?;
                }
            }
        }
        while self.open > 0 && !course.is_stopped() {
            for (at_ns, rate) in self.book.hear(course) {
                self.agenda.iter_mut().for_each(|agenda| agenda.change(at_ns, rate));
            }
            let again_ns = self.begin_due(connections, course)?;
            // In the closed loop one follows the other until the load is over.
            if again_ns.is_none() && self.under_way == 0 {
                break;
            }
            watch.wait(again_ns)?;
            while let Some(ready) = watch.next() {
                self.turn(connections[ready.index], ready, course)?;
            }
        }
        let now_ns = monotonic_ns();
        (0..self.begun.len()).for_each(|index| self.abandon(index, now_ns));
        if let Some(agenda) = &mut self.agenda {
            agenda.close(&mut self.book);
        }
        connections.iter().for_each(|connection| dismiss(connection));
        Ok(())
    }

    fn report(&mut self) -> Report {
        self.book.report()
    }
}
