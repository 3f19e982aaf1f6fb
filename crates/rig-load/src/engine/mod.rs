//! Moving bytes: what a load thread does between Go and stop.
//!
//! An engine is built before the clock runs (buffers filled, rings set up), then runs to the end of the load without an
//! allocation or a clock call per message. What it did stands in the tallies of its connections.

mod blocking;
pub(crate) mod datagrams;
mod modes;
mod pace;
mod ready;
mod recent;
pub(crate) mod sequenced;
mod splice;
pub(crate) mod transactions;
mod uring;

use std::fmt::{Debug, Display};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rig_sys::clock::monotonic_ns;
use rustix::io::Errno;

pub(crate) use self::modes::SharedBudget;
use self::modes::{Budgeted, CopyOut, Datagrams, DiscardIn, FileOut, QuotaSend, SendMethod, ZeroCopyOut};
pub(crate) use self::modes::{CopyIn, ReceiveMethod};
pub(crate) use self::recent::{RecentLatencies, Snapshot};
use self::splice::SpliceOut;
use crate::command::{Command, CommandAction};
pub(crate) use crate::plan::Times;
use crate::plan::{Engine as EngineKind, ReceiveMode, SendMode, TcpStream};
use crate::record::{Direction, TransactionRecord};
use crate::wait::EventFd;

/// What one connection has moved since it was opened. Written by its load thread alone, read by the control thread;
/// alone on its cache lines (two, because CPUs fetch lines in pairs), so that reading disturbs no other thread.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct ConnectionCounters {
    bytes: AtomicU64,
    operations: AtomicU64,
    copied: AtomicU64,
    units: AtomicU64,
    lost: AtomicU64,
}

/// The values of a [`ConnectionCounters`] at some moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CounterValues {
    pub(crate) bytes: u64,
    pub(crate) operations: u64,
    /// Zero-copy sends that the kernel copied after all.
    pub(crate) copied: u64,
    /// Datagrams.
    pub(crate) units: u64,
    /// Datagrams that are missing so far; some of them may still come.
    pub(crate) lost: u64,
}

impl ConnectionCounters {
    /// Counts one operation that moved `bytes`. A plain addition suffices, there is only one writer.
    #[inline]
    pub(crate) fn add(&self, bytes: usize) {
        self.bytes.store(self.bytes.load(Ordering::Relaxed) + bytes as u64, Ordering::Relaxed);
        self.operations.store(self.operations.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    pub(crate) fn add_copied(&self, sends: u64) {
        self.copied.store(self.copied.load(Ordering::Relaxed) + sends, Ordering::Relaxed);
    }

    pub(crate) fn add_units(&self, units: u64) {
        self.units.store(self.units.load(Ordering::Relaxed) + units, Ordering::Relaxed);
    }

    pub(crate) fn set_lost(&self, lost: u64) {
        self.lost.store(lost, Ordering::Relaxed);
    }

    /// Values of one moment, exact to one operation: a reader may lose its CPU between two of the values while the writer goes on. With
    /// a writer that is faster than this, of about one moment.
    pub(crate) fn read(&self) -> CounterValues {
        const ATTEMPTS: usize = 100;
        let mut count = self.load();
        for _ in 1..ATTEMPTS {
            let again = self.load();
            if again.operations == count.operations {
                return count;
            }
            count = again;
        }
        count
    }

    fn load(&self) -> CounterValues {
        CounterValues {
            operations: self.operations.load(Ordering::Acquire),
            bytes: self.bytes.load(Ordering::Acquire),
            copied: self.copied.load(Ordering::Relaxed),
            units: self.units.load(Ordering::Relaxed),
            lost: self.lost.load(Ordering::Relaxed),
        }
    }
}

/// One open connection, shared by the threads that serve it and the control thread.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) socket: OwnedFd,
    /// The load thread that serves it, or two that share it, one to send and one to receive.
    pub(crate) thread: u32,
    pub(crate) local: String,
    pub(crate) remote: String,
    /// What was sent, or exchanged.
    pub(crate) tally: ConnectionCounters,
    /// What a thread that only receives has received.
    pub(crate) inbound: ConnectionCounters,
    /// Of datagrams: the peer knows what was sent.
    pub(crate) taken: AtomicBool,
}

impl Connection {
    pub(crate) fn new(socket: OwnedFd, thread: u32, local: String, remote: String) -> Self {
        let (tally, inbound, taken) =
            (ConnectionCounters::default(), ConnectionCounters::default(), AtomicBool::new(false));
        Self { socket, thread, local, remote, tally, inbound, taken }
    }
}

impl Times {
    /// These times as a command changes them.
    pub(crate) fn after(self, command: Command) -> Self {
        match command.what {
            CommandAction::End => {
                let cool_down_ns = self.stop_ns.saturating_sub(self.end_ns);
                Self { end_ns: command.at_ns, stop_ns: command.at_ns.saturating_add(cool_down_ns), ..self }
            }
            CommandAction::Rate(_) | CommandAction::Mark => self,
        }
    }

    /// The times of a load that does not begin.
    pub(crate) const NEVER: Self = Self { start_ns: u64::MAX, begin_ns: u64::MAX, end_ns: u64::MAX, stop_ns: u64::MAX };
}

/// Where the load stands, as the load threads see it.
#[derive(Debug)]
pub(crate) struct LoadProgress {
    phase: AtomicU8,
    times: OnceLock<Times>,
    /// Payload bytes per second that each load thread may move.
    ceiling: Option<u64>,
    /// What a time of the peer's clock lacks to be one of this process's.
    peer_clock_ns: i64,
    /// Rung when the load stops, for threads that wait for more than a socket.
    pub(crate) stop: EventFd,
    /// Commands that have come, so that a thread reads one word that is written with each of them only.
    heard: AtomicUsize,
    commands: Mutex<Vec<Command>>,
    /// Rung with each command.
    pub(crate) news: EventFd,
    /// Latencies of the load threads that measure any.
    recent: Mutex<Vec<Arc<RecentLatencies>>>,
}

/// A thread that panicked while it held the lock left nothing half-done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const WAITING: u8 = 0;
const RUNNING: u8 = 1;
const ENDING: u8 = 2;
const STOPPED: u8 = 3;

impl LoadProgress {
    /// With a ceiling for each load thread, payload bytes per second.
    pub(crate) fn new(ceiling: Option<u64>) -> io::Result<Self> {
        Ok(Self {
            phase: AtomicU8::new(WAITING),
            times: OnceLock::new(),
            ceiling,
            peer_clock_ns: 0,
            stop: EventFd::new()?,
            heard: AtomicUsize::new(0),
            commands: Mutex::default(),
            news: EventFd::new()?,
            recent: Mutex::default(),
        })
    }

    /// With a peer whose clock shows so much less.
    pub(crate) fn with_peer_clock(self, peer_clock_ns: i64) -> Self {
        Self { peer_clock_ns, ..self }
    }

    /// What is to be added to a time of the peer's clock.
    pub(crate) fn peer_clock_ns(&self) -> i64 {
        self.peer_clock_ns
    }

    /// Tells the load threads. Parked threads have to be unparked.
    pub(crate) fn tell(&self, command: Command) {
        let mut commands = lock(&self.commands);
        commands.push(command);
        self.heard.store(commands.len(), Ordering::Release);
        drop(commands);
        self.news.notify();
    }

    /// The commands since the last look, of which `seen` keeps how many they were.
    #[inline]
    pub(crate) fn news(&self, seen: &mut usize) -> Vec<Command> {
        if self.heard.load(Ordering::Acquire) == *seen {
            return Vec::new();
        }
        let commands = lock(&self.commands);
        let news = commands[*seen..].to_vec();
        *seen = commands.len();
        news
    }

    /// Whether there is any that was not looked at.
    #[inline]
    pub(crate) fn has_news(&self, seen: usize) -> bool {
        self.heard.load(Ordering::Relaxed) != seen
    }

    /// A load thread's latencies, for the control thread to look at.
    pub(crate) fn measures(&self) -> Arc<RecentLatencies> {
        let recent = Arc::<RecentLatencies>::default();
        lock(&self.recent).push(recent.clone());
        recent
    }

    /// All latencies so far.
    pub(crate) fn latencies(&self) -> Snapshot {
        let mut sum = Snapshot::default();
        lock(&self.recent).iter().for_each(|recent| sum.add(recent));
        sum
    }

    /// Payload bytes per second that a load thread may send.
    pub(crate) fn ceiling(&self) -> Option<u64> {
        self.ceiling
    }

    /// Payload bytes per second that a load thread may receive: a little more, so that one that was kept from receiving
    /// for a while catches up with a sender that keeps to its rate.
    pub(crate) fn intake(&self) -> Option<u64> {
        self.ceiling.map(|rate| rate.saturating_add(rate / 8))
    }

    /// Lets the load begin. Threads that are parked in [`Self::wait_for_start`] have to be unparked.
    pub(crate) fn start(&self, times: Times) {
        // A load starts once.
        let _ = self.times.set(times);
        self.phase.store(RUNNING, Ordering::Release);
    }

    /// The planned moments; before the start [`Times::NEVER`].
    pub(crate) fn times(&self) -> Times {
        let planned = self.times.get().copied().unwrap_or(Times::NEVER);
        if self.heard.load(Ordering::Acquire) == 0 {
            return planned;
        }
        lock(&self.commands).iter().fold(planned, |times, command| times.after(*command))
    }

    /// The planned moments, for a thread that asks often: `seen` keeps how many commands they come of.
    #[inline]
    pub(crate) fn refresh(&self, times: &mut Times, seen: &mut usize) {
        if self.has_news(*seen) {
            self.news(seen);
            *times = self.times();
        }
    }

    /// Ends the sending of streams, while receiving goes on to their end. Threads that are blocked in sending or parked have to
    /// be woken.
    pub(crate) fn end(&self) {
        self.phase.store(ENDING, Ordering::Release);
        self.stop.notify();
    }

    /// Ends the load. Threads that are blocked in a socket or parked have to be woken.
    pub(crate) fn stop(&self) {
        self.phase.store(STOPPED, Ordering::Release);
        self.stop.notify();
    }

    #[inline]
    pub(crate) fn is_stopped(&self) -> bool {
        self.phase.load(Ordering::Relaxed) == STOPPED
    }

    /// Whether a sender of a stream has to end.
    #[inline]
    pub(crate) fn is_ending(&self) -> bool {
        self.phase.load(Ordering::Relaxed) >= ENDING
    }

    /// Parks until the load begins. False when it will not.
    pub(crate) fn wait_for_start(&self) -> bool {
        loop {
            match self.phase.load(Ordering::Acquire) {
                WAITING => std::thread::park(),
                // A thread that is late still receives what was sent meanwhile.
                phase => return phase != STOPPED,
            }
        }
    }

    /// True when a connection may end: the window is over by the clock that both ends share. (The peer may come to its
    /// end a little earlier than this worker.)
    pub(crate) fn may_end(&self) -> bool {
        self.is_ending() || monotonic_ns() >= self.times().end_ns
    }
}

/// Why a load thread could not go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ThreadFailure {
    pub(crate) what: String,
    pub(crate) why: String,
}

/// An error about a connection: `what` was done with the peer, and why it failed.
fn failure(what: &str, connection: &Connection, why: &dyn Display) -> ThreadFailure {
    ThreadFailure { what: format!("{what} {} (from {})", connection.remote, connection.local), why: why.to_string() }
}

/// Ends a connection's load: quietly when it may end, else as trouble.
fn send_ended(connection: &Connection, progress: &LoadProgress, errno: Errno) -> Result<(), ThreadFailure> {
    if progress.may_end() {
        return Ok(());
    }
    let why = match errno {
        Errno::PIPE | Errno::CONNRESET => {
            format!("the peer closed the connection before the window was over: {}", io::Error::from(errno))
        }
        _ => io::Error::from(errno).to_string(),
    };
    Err(failure("send to", connection, &why))
}

fn receive_ended(
    connection: &Connection,
    progress: &LoadProgress,
    end: Result<(), Errno>,
) -> Result<(), ThreadFailure> {
    if progress.may_end() {
        return Ok(());
    }
    let why = match end {
        Ok(()) => "the peer closed the connection".to_owned(),
        Err(errno) => io::Error::from(errno).to_string(),
    };
    Err(failure("receive from", connection, &format_args!("{why} before the window was over")))
}

/// The load of one thread, ready to start.
pub(crate) trait Engine: Debug {
    /// Moves bytes over `connections` until the load stops or every connection has ended.
    fn run(&mut self, connections: &[&Connection], progress: &LoadProgress) -> Result<(), ThreadFailure>;

    /// What cannot be told from the tallies. Asked for once, after [`Self::run`].
    fn report(&mut self) -> Report {
        Report::default()
    }
}

/// What a load thread knows in the end that is in no [`ConnectionCounters`].
#[derive(Debug, Clone, Default)]
pub(crate) struct Report {
    pub(crate) transactions: Option<TransactionRecord>,
    /// The transactions of each phase of the window, where it has several.
    pub(crate) phases: Vec<TransactionRecord>,
    pub(crate) datagrams: Option<datagrams::Findings>,
    /// Notes for the reader of the report.
    pub(crate) notes: Vec<String>,
}

impl Report {
    /// Adds another thread's.
    pub(crate) fn merge(&mut self, other: Self) {
        match (&mut self.transactions, other.transactions) {
            (Some(mine), Some(theirs)) => mine.merge(&theirs),
            (mine @ None, theirs) => *mine = theirs,
            (Some(_), None) => {}
        }
        for (index, theirs) in other.phases.into_iter().enumerate() {
            match self.phases.get_mut(index) {
                Some(mine) => mine.merge(&theirs),
                None => self.phases.push(theirs),
            }
        }
        match (&mut self.datagrams, other.datagrams) {
            (Some(mine), Some(theirs)) => mine.merge(&theirs),
            (mine @ None, theirs) => *mine = theirs,
            (Some(_), None) => {}
        }
        for note in other.notes {
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
    }
}

/// Builds the engine of one thread of a stream. Runs on that thread.
pub(crate) fn stream(
    stream: &TcpStream,
    direction: Direction,
    connections: &[&Connection],
) -> Result<Box<dyn Engine>, ThreadFailure> {
    let message = stream.message as usize;
    match (stream.engine, direction) {
        (EngineKind::Uring { outstanding }, _) => uring::build(stream, outstanding, direction, connections, None),
        (EngineKind::Blocking, Direction::Send) => Ok(match stream.send_mode {
            SendMode::Copy => sender(stream, CopyOut::new(message)),
            SendMode::Sendfile => sender(stream, FileOut::new(message)?),
            SendMode::Splice => sender(stream, SpliceOut::new(message)?),
            SendMode::ZeroCopy => sender(stream, ZeroCopyOut::new(message, connections)?),
        }),
        (EngineKind::Blocking, _) => Ok(match stream.receive_mode {
            ReceiveMode::Copy => receiver(stream, CopyIn::new(message)),
            ReceiveMode::Discard => receiver(stream, DiscardIn::new(message)),
        }),
    }
}

/// Builds the sending engine of one thread that is done after `quota` messages, or whose connections are connected
/// datagram sockets. It copies its payload.
pub(crate) fn counted(
    stream: &TcpStream,
    connections: &[&Connection],
    quota: Option<u64>,
    datagrams: bool,
) -> Result<Box<dyn Engine>, ThreadFailure> {
    if let EngineKind::Uring { outstanding } = stream.engine {
        return uring::build(stream, outstanding, Direction::Send, connections, quota);
    }
    let (copy, quota) = (CopyOut::new(stream.message as usize), quota.unwrap_or(u64::MAX));
    Ok(if datagrams {
        sender(stream, QuotaSend { push: Datagrams(copy), quota })
    } else {
        sender(stream, QuotaSend { push: copy, quota })
    })
}

/// Builds the receiving engine of one thread with several operations outstanding on its only connection.
pub(crate) fn deep_receiver(
    stream: &TcpStream,
    outstanding: u32,
    connection: &Connection,
) -> Result<Box<dyn Engine>, ThreadFailure> {
    uring::build(stream, outstanding, Direction::Receive, &[connection], None)
}

fn sender(stream: &TcpStream, push: impl SendMethod + 'static) -> Box<dyn Engine> {
    let (message, throttle) = (stream.message as usize, stream.throttle);
    match stream.connections {
        1 => Box::new(blocking::Sender { push, message, throttle, burst: 1 }),
        _ => Box::new(ready::Sender { push, message, throttle }),
    }
}

fn receiver(stream: &TcpStream, pull: impl ReceiveMethod + 'static) -> Box<dyn Engine> {
    match stream.connections {
        1 => Box::new(blocking::Receiver { pull }),
        _ => Box::new(ready::Receiver { pull }),
    }
}

/// One stream of bytes over a connection of its own, as an embedded end that was given the connection has it.
#[derive(Debug, Clone)]
pub(crate) struct GivenStream {
    /// What is sent, again and again; as many bytes are asked of one receive.
    pub(crate) payload: Arc<[u8]>,
    /// Of sending: sendfile(2) instead of send(2).
    pub(crate) from_file: bool,
    /// Of receiving: the kernel throws the payload away.
    pub(crate) discard: bool,
    /// Bytes per second.
    pub(crate) rate: Option<u64>,
    /// Messages that leave together whenever the rate allows one.
    pub(crate) burst: u32,
    pub(crate) budget: Option<SharedBudget>,
}

impl GivenStream {
    pub(crate) fn sender(self) -> Result<Box<dyn Engine>, ThreadFailure> {
        if self.from_file {
            let push = FileOut::holding(&self.payload)?;
            Ok(self.pushing(push))
        } else {
            let push = CopyOut::holding(&self.payload);
            Ok(self.pushing(push))
        }
    }

    fn pushing(self, push: impl SendMethod + 'static) -> Box<dyn Engine> {
        let (message, throttle, burst) = (self.payload.len(), self.rate, self.burst.max(1));
        match self.budget {
            None => Box::new(blocking::Sender { push, message, throttle, burst }),
            Some(budget) => {
                let push = Budgeted { push, budget, message };
                Box::new(blocking::Sender { push, message, throttle, burst })
            }
        }
    }

    pub(crate) fn receiver(&self) -> Box<dyn Engine> {
        let message = self.payload.len();
        if self.discard {
            Box::new(blocking::Receiver { pull: DiscardIn::new(message) })
        } else {
            Box::new(blocking::Receiver { pull: CopyIn::new(message) })
        }
    }
}

/// Numbered datagrams over a socket of their own.
#[derive(Debug, Clone)]
pub(crate) struct GivenDatagrams {
    /// Of each datagram, time and number included.
    pub(crate) payload: Arc<[u8]>,
    /// Numbers of 64 bits.
    pub(crate) wide: bool,
    pub(crate) discard: bool,
    pub(crate) rate: Option<u64>,
    pub(crate) burst: Option<u32>,
    pub(crate) budget: Option<SharedBudget>,
}

impl GivenDatagrams {
    pub(crate) fn sender(self) -> Box<dyn Engine> {
        let Self { payload, wide, rate, burst, budget, .. } = self;
        Box::new(sequenced::Sender { payload: payload.to_vec(), wide, rate, burst, budget })
    }

    pub(crate) fn receiver(&self, tracker: Arc<sequenced::track::SharedTracker>) -> Box<dyn Engine> {
        let Self { payload, wide, discard, .. } = self;
        Box::new(sequenced::Receiver { length: payload.len(), wide: *wide, discard: *discard, tracker })
    }
}

/// Whether the engine of `stream` wants its sockets in non-blocking mode.
pub(crate) fn needs_nonblocking(stream: &TcpStream) -> bool {
    stream.engine == EngineKind::Blocking && stream.connections > 1
}
