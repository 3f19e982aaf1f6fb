//! The body of a worker process: takes its orders from a pipe, carries the load, and reports what it saw.
//!
//! One control thread waits for three things at once (the driver's pipe, the load threads' bell, and the next absolute
//! time at which something is due) and never polls. The load threads do nothing but move bytes and count them.

pub mod embedded;
mod load_threads;
mod observe;
mod open;
mod orders;
mod packets;
mod reading_times;

use std::fmt::Display;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use rig_lines::encode;
use rig_sys::clock::{self, monotonic_after};
use rig_sys::{cpu, socket};
use rustix::event::{PollFd, PollFlags};
use serde::Serialize;

use self::load_threads::LoadThreads;
use self::observe::Observer;
use self::open::datagram::HelloResponder;
use self::open::{OpenedConnections, Sockets};
use self::orders::Orders;
use self::reading_times::ReadingTimes;
use crate::command::Command;
use crate::engine::Connection;
use crate::plan::{Load, WorkerPlan};
use crate::protocol::{Event, LONGEST_EVENT, Order, PROTOCOL};
use crate::record::{Direction, WorkerRecord};
use crate::wait::{DeadlinePoll, is_ready};

/// How long is waited after the cool-down for what is still under way: a receiver for the end of the stream, a
/// requester for the responses that are owed to it. What a slow wire has not delivered by then is given up.
const DRAIN: Duration = Duration::from_secs(1);

/// How long a responder waits for its requester to be done with that.
const RESPONDER_TIMEOUT: Duration = Duration::from_secs(2);

/// Why a worker ended before its load was carried.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// Reported to the driver as [`Event::Failed`] too.
    #[error("{what}: {why}")]
    Failed { what: String, why: String },
    /// Standard input was closed: the driver has gone or wants the worker to stop.
    #[error("the driver closed the worker's standard input")]
    Abandoned,
    #[error("write to the driver: {0}")]
    Report(#[source] io::Error),
}

/// Names what was being done when something failed.
pub(crate) trait ErrorContext<T> {
    fn failing(self, what: impl FnOnce() -> String) -> Result<T, WorkerError>;
}

impl<T, E: Display> ErrorContext<T> for Result<T, E> {
    fn failing(self, what: impl FnOnce() -> String) -> Result<T, WorkerError> {
        self.map_err(|why| WorkerError::Failed { what: what(), why: why.to_string() })
    }
}

/// Serves one plan: reads [`Order`]s from `stdin`, writes [`Event`]s to `stdout`, and returns when all is done.
///
/// Nothing may have been read from `stdin` through a buffer before. End of file on it stops the worker at once, at any
/// point. Raises the process's soft limit of open files to the hard one and ignores SIGPIPE.
///
/// # Errors
/// Everything that keeps the load from being carried as planned, a peer that goes away inside the window included. All but a
/// lost driver have been reported as [`Event::Failed`].
pub fn run(stdin: impl AsFd, stdout: impl Write) -> Result<(), WorkerError> {
    let waiter = DeadlinePoll::new().failing(|| "create a timer".into())?;
    let (orders, commands) = (Orders::new(stdin.as_fd()), Vec::new());
    let mut control = ControlThread {
        orders,
        commands,
        takes_commands: false,
        peer_load: PeerLoad::NotAwaited,
        out: stdout,
        waiter: &waiter,
    };
    control.say(&PROTOCOL.greeting(env!("CARGO_PKG_VERSION")))?;
    let result = control.serve();
    if let Err(WorkerError::Failed { what, why }) = &result {
        control.report(&Event::Failed { what: what.clone(), why: why.clone() })?;
    }
    result
}

/// The control thread's view of the world.
pub(crate) struct ControlThread<'a, W> {
    orders: Orders<'a>,
    /// Those that came and were not looked at.
    commands: Vec<Command>,
    /// Whether there is a load under way that can be told something.
    takes_commands: bool,
    peer_load: PeerLoad,
    out: W,
    waiter: &'a DeadlinePoll,
}

/// Whether the other end's load is over, which only the listening end of a packet load is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PeerLoad {
    NotAwaited,
    /// It is told at any time from the begin of the load: this end may be late.
    Awaited,
    Done,
}

impl<W: Write> ControlThread<'_, W> {
    fn serve(&mut self) -> Result<(), WorkerError> {
        socket::ignore_sigpipe();
        rig_sys::process::raise_file_limit();
        let plan = match self.order(None)? {
            Order::Plan(plan) => plan,
            order => return Err(refuse(&order)),
        };
        plan.validate().failing(|| format!("check the plan of {}", plan.name))?;
        cpu::set_affinity(&plan.cpus).failing(|| format!("place {}", plan.name))?;
        if let Load::Packets(packets) = &plan.load {
            return self.serve_packets(&plan, packets);
        }
        let opened = match &plan.load {
            Load::TcpStream(stream) => open::open(self, &plan.role, &stream.into())?,
            Load::TcpRr(load) | Load::TcpCrr(load) => {
                open::open(self, &plan.role, &Sockets::of_transactions(load, plan.direction(), true))?
            }
            Load::UdpRr(load) => {
                open::datagram::open(self, &plan.role, &Sockets::of_transactions(load, plan.direction(), false))?
            }
            Load::UdpStream(datagrams) => open::datagram::open(self, &plan.role, &datagrams.into())?,
            Load::Packets(_) | Load::Idle => OpenedConnections::default(),
        };
        let connections = Arc::from(opened.connections);
        let mut load_threads = LoadThreads::assemble(&plan, &connections, opened.listener)?;
        // Else the load threads, which fill the CPU, would delay the window's edges by a time slice. Where it is refused,
        // the recorded moments tell.
        clock::be_punctual();
        self.until(&load_threads, None, LoadThreads::is_ready)?;
        self.report(&Event::Connected)?;
        let start_ns = match self.order(opened.hello_responder.as_ref())? {
            Order::Go { start_ns } => start_ns,
            order => return Err(refuse(&order)),
        };
        let mut record = self.measure(&plan, &mut load_threads, start_ns)?;
        record.notes.splice(0..0, opened.notes);
        if plan.load.socket_options().mptcp {
            tell_mptcp(&mut record, &connections)?;
        }
        self.report(&Event::Done(Box::new(record)))
    }

    fn measure(
        &mut self,
        plan: &WorkerPlan,
        load_threads: &mut LoadThreads,
        start_ns: u64,
    ) -> Result<WorkerRecord, WorkerError> {
        let phases = &plan.phases;
        let planned = phases.starting_at(start_ns);
        let mut times = ReadingTimes::new(planned, phases.interval);
        self.takes_commands = true;
        self.rest_until(load_threads, &mut times, |_| start_ns)?;
        load_threads.go(planned);
        self.rest_until(load_threads, &mut times, |_| planned.begin_ns)?;
        let mut observer = Observer::begin(load_threads);
        loop {
            self.rest_until(load_threads, &mut times, ReadingTimes::next_ns)?;
            let due = times.take();
            let sample = observer.look(load_threads, due);
            if let Some(sample) = sample {
                self.report(&Event::Sample(sample))?;
            }
            if due.end {
                break;
            }
        }
        self.rest_until(load_threads, &mut times, ReadingTimes::stop_ns)?;
        self.takes_commands = false;
        let time_limit = match load_threads.direction() {
            Direction::Receive | Direction::Request | Direction::Both => Some(DRAIN),
            // It tells the receiver how much it has sent.
            Direction::Send if load_threads.is_udp() => Some(DRAIN),
            Direction::Respond => Some(RESPONDER_TIMEOUT),
            Direction::Send | Direction::Idle => None,
        };
        if load_threads.direction() == Direction::Both && !load_threads.is_udp() {
            load_threads.end_sending(|_| true);
        }
        if let Some(time_limit) = time_limit {
            self.until(load_threads, Some(monotonic_after(time_limit)), LoadThreads::is_finished)?;
        }
        load_threads.stop()?;
        observer.record(plan, load_threads)
    }

    /// Waits until the moment that `times` gives, which a command may move, and hands commands on to the load threads.
    fn rest_until(
        &mut self,
        load_threads: &LoadThreads,
        times: &mut ReadingTimes,
        moment: impl Fn(&ReadingTimes) -> u64,
    ) -> Result<(), WorkerError> {
        loop {
            self.until(load_threads, Some(moment(times)), |_| false)?;
            if self.commands.is_empty() {
                return Ok(());
            }
            for command in self.commands.drain(..) {
                times.hear(command);
                load_threads.tell(command);
            }
        }
    }

    /// Waits for `done`, which the load threads bring about, for a command, or until `deadline_ns`. Ends early with the error when a
    /// load thread fails, the driver goes away, or it sends an order out of turn.
    fn until(
        &mut self,
        load_threads: &LoadThreads,
        deadline_ns: Option<u64>,
        done: impl Fn(&LoadThreads) -> bool,
    ) -> Result<(), WorkerError> {
        loop {
            self.refuse_read_order()?;
            load_threads.check()?;
            if done(load_threads) || !self.commands.is_empty() {
                return Ok(());
            }
            let mut fds =
                vec![PollFd::from_borrowed_fd(self.orders.fd, PollFlags::IN), load_threads.event_fd().entry()];
            self.waiter.wait(&mut fds, deadline_ns).failing(|| "wait".into())?;
            let (order, event_fd) = (is_ready(&fds[0]), is_ready(&fds[1]));
            if event_fd {
                load_threads.event_fd().clear();
            }
            if order {
                self.refuse_order()?;
            }
            if !order && !event_fd {
                return Ok(());
            }
        }
    }

    /// Waits until one of `flags` holds for `fd` or the deadline has come; tells which.
    fn ready(&mut self, fd: impl AsFd, flags: PollFlags, deadline_ns: u64) -> Result<bool, WorkerError> {
        self.any_ready(&[fd.as_fd()], flags, deadline_ns)
    }

    /// Waits until one of `flags` holds for any of `watched` or the deadline has come; tells which.
    fn any_ready(
        &mut self,
        watched: &[BorrowedFd<'_>],
        flags: PollFlags,
        deadline_ns: u64,
    ) -> Result<bool, WorkerError> {
        loop {
            self.refuse_read_order()?;
            let mut fds = vec![PollFd::from_borrowed_fd(self.orders.fd, PollFlags::IN)];
            fds.extend(watched.iter().map(|&fd| PollFd::from_borrowed_fd(fd, flags)));
            self.waiter.wait(&mut fds, Some(deadline_ns)).failing(|| "wait".into())?;
            let (order, ready) = (is_ready(&fds[0]), fds[1..].iter().any(is_ready));
            if order {
                self.refuse_order()?;
            }
            if ready || !order {
                return Ok(ready);
            }
        }
    }

    /// Sleeps until `until_ns` or until something is said, unless the driver goes away.
    fn pause(&mut self, until_ns: u64) -> Result<(), WorkerError> {
        if self.refuse_read_order()? {
            return Ok(());
        }
        let mut fds = vec![PollFd::from_borrowed_fd(self.orders.fd, PollFlags::IN)];
        self.waiter.wait(&mut fds, Some(until_ns)).failing(|| "wait".into())?;
        if is_ready(&fds[0]) { self.refuse_order() } else { Ok(()) }
    }

    /// The next order, however long it takes. Meanwhile the doorman answers.
    fn order(&mut self, mut hello_responder: Option<&HelloResponder>) -> Result<Order, WorkerError> {
        loop {
            let mut fds = vec![PollFd::from_borrowed_fd(self.orders.fd, PollFlags::IN)];
            fds.extend(
                hello_responder.map(|hello_responder| PollFd::from_borrowed_fd(hello_responder.fd(), PollFlags::IN)),
            );
            // An order that came in one piece with the one before it makes no descriptor ready.
            if let Some(order) = self.orders.take()? {
                return Ok(order);
            }
            self.waiter.wait(&mut fds, None).failing(|| "wait".into())?;
            let (order, greeted) = (is_ready(&fds[0]), fds.get(1).is_some_and(is_ready));
            if greeted {
                hello_responder = hello_responder.filter(|hello_responder| hello_responder.answer());
            }
            if order && let Some(order) = self.orders.read()? {
                return Ok(order);
            }
        }
    }

    /// Reads the orders that have come. While the load runs only commands are allowed; they are kept for the thread that waits
    /// for them.
    fn refuse_order(&mut self) -> Result<(), WorkerError> {
        if let Some(order) = self.orders.read()? {
            self.keep_or_refuse(&order)?;
        }
        // Several may have come in one piece.
        self.refuse_read_order().map(drop)
    }

    fn keep_or_refuse(&mut self, order: &Order) -> Result<(), WorkerError> {
        match order {
            Order::Command(command) if self.takes_commands => {
                self.commands.push(*command);
                Ok(())
            }
            Order::Done if self.peer_load == PeerLoad::Awaited => {
                self.peer_load = PeerLoad::Done;
                Ok(())
            }
            order => Err(refuse(order)),
        }
    }

    /// An order that came in one piece with the one before it makes no descriptor ready. Whether there was one.
    fn refuse_read_order(&mut self) -> Result<bool, WorkerError> {
        let mut came = false;
        while let Some(order) = self.orders.take()? {
            self.keep_or_refuse(&order)?;
            came = true;
        }
        Ok(came)
    }

    fn report(&mut self, event: &Event) -> Result<(), WorkerError> {
        self.say(event)
    }

    fn say(&mut self, message: &impl Serialize) -> Result<(), WorkerError> {
        let line = encode(message, LONGEST_EVENT).map_err(|error| WorkerError::Report(io::Error::other(error)))?;
        self.out.write_all(&line).and_then(|()| self.out.flush()).map_err(WorkerError::Report)
    }
}

fn refuse(order: &Order) -> WorkerError {
    let (name, why) = match order {
        Order::Plan(_) => ("plan", "there is one already"),
        Order::Go { .. } => ("go", "all connections have to stand first, and it comes once"),
        Order::Command(_) => ("command", "it is for a load that runs and whose window is not over"),
        Order::Done => ("done", "it is for the listening end of a packet load, after the load"),
    };
    WorkerError::Failed { what: format!("obey the order '{name}'"), why: why.into() }
}

/// Says of each connection whether it is one of MPTCP, and how many are not.
fn tell_mptcp(record: &mut WorkerRecord, connections: &[Connection]) -> Result<(), WorkerError> {
    let (mut plain, mut unknown) = (0, 0);
    for (told, connection) in record.connections.iter_mut().zip(connections) {
        let what = || format!("ask whether the connection to {} is one of MPTCP", connection.remote);
        let is_mptcp = socket::is_mptcp(&connection.socket).failing(what)?;
        plain += usize::from(is_mptcp == Some(false));
        unknown += usize::from(is_mptcp.is_none());
        told.mptcp = is_mptcp;
    }
    if unknown > 0 {
        record.notes.push(
            "MPTCP: whether connections fell back to plain TCP is not known, this kernel does not tell (Linux 5.16 does)"
                .to_owned(),
        );
    }
    if plain > 0 {
        let all = record.connections.len();
        record.notes.push(format!(
            "MPTCP: {plain} of {all} connections fell back to plain TCP; the other end, or what is between, has none"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::pipe;

    use super::*;
    use crate::command::CommandAction;

    /// Has a control thread rest that was told these in one piece with `go`.
    fn told(
        orders: &[Order],
        takes_commands: bool,
        peer_load: PeerLoad,
    ) -> Result<(Vec<Command>, PeerLoad), WorkerError> {
        let (reader, mut writer) = pipe().unwrap();
        let waiter = DeadlinePoll::new().unwrap();
        let mut control = ControlThread {
            orders: Orders::new(reader.as_fd()),
            commands: Vec::new(),
            takes_commands,
            peer_load,
            out: Vec::new(),
            waiter: &waiter,
        };
        let mut text = encode(&PROTOCOL.greeting("x"), LONGEST_EVENT).unwrap();
        text.extend(encode(&Order::Go { start_ns: 1 }, LONGEST_EVENT).unwrap());
        orders.iter().for_each(|order| text.extend(encode(order, LONGEST_EVENT).unwrap()));
        writer.write_all(&text).unwrap();
        assert_eq!(control.order(None).unwrap(), Order::Go { start_ns: 1 });
        // A moment that does not come while a test runs.
        control.pause(u64::MAX)?;
        Ok((control.commands, control.peer_load))
    }

    #[test]
    fn what_came_in_one_piece_with_go_is_heard_at_once() {
        let command = Command { at_ns: 7, what: CommandAction::Mark };
        let heard = told(&[Order::Command(command), Order::Done], true, PeerLoad::Awaited).unwrap();
        assert_eq!(heard, (vec![command], PeerLoad::Done), "the other end is done while this one is in its window");
    }

    #[test]
    fn who_listens_for_nothing_of_it_is_not_told_that_the_other_end_is_done() {
        for (orders, word) in [(vec![Order::Done, Order::Done], "done"), (vec![Order::Go { start_ns: 2 }], "go")] {
            for peer_load in [PeerLoad::NotAwaited, PeerLoad::Done] {
                let error = told(&orders, true, peer_load).unwrap_err().to_string();
                assert!(error.contains(&format!("obey the order '{word}'")), "{error}");
            }
        }
    }
}
