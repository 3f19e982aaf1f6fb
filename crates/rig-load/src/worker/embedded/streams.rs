//! Streams over sockets that the caller has connected or accepted itself, one thread for each: for protocols whose connections
//! begin with words of their own.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::Counts;
pub use crate::engine::sequenced::track::DatagramCounts;
use crate::engine::sequenced::track::SharedTracker;
use crate::engine::{
    Connection, Engine, GivenDatagrams, GivenStream, LoadProgress, SharedBudget, ThreadFailure, Times,
};
use crate::record::Direction;
use crate::wait::DeadlinePoll;
use crate::worker::load_threads::LoadThreads;
use crate::worker::{ErrorContext, WorkerError};

/// One socket, connected, with blocking I/O.
#[derive(Debug)]
pub struct GivenSocket {
    pub socket: OwnedFd,
    /// This end sends over it; else it receives.
    pub sends: bool,
    /// Its two addresses, for messages.
    pub local: String,
    pub remote: String,
}

/// What the streams carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carrier {
    /// Bytes over TCP.
    Bytes {
        /// sendfile(2) instead of send(2).
        from_file: bool,
    },
    /// Datagrams that begin with the time and a number ([`DatagramCounts`]).
    Datagrams {
        /// Numbers have 64 bits instead of 32.
        wide: bool,
    },
}

/// What senders may send together before they end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    Bytes(u64),
    /// Messages or datagrams.
    Messages(u64),
}

/// What the streams of one end have in common.
#[derive(Clone)]
pub struct StreamSettings {
    /// A message, or a datagram with the place for time and number.
    pub payload: Arc<[u8]>,
    pub carrier: Carrier,
    /// Receivers leave the payload in the kernel, which throws it away.
    pub discard: bool,
    /// Payload bytes per second of each sender.
    pub rate: Option<u64>,
    /// Messages that leave together whenever the rate allows one.
    pub burst: Option<u32>,
    pub limit: Option<Limit>,
}

impl fmt::Debug for StreamSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { payload, carrier, discard, rate, burst, limit } = self;
        let mut shown = f.debug_struct("StreamSettings");
        shown.field("message", &payload.len()).field("carrier", carrier).field("discard", discard);
        shown.field("rate", rate).field("burst", burst).field("limit", limit).finish()
    }
}

/// Senders and receivers at work.
#[derive(Debug)]
pub struct Streams {
    load_threads: LoadThreads,
    sends: Vec<bool>,
    trackers: Vec<Arc<SharedTracker>>,
}

/// The peer decides when a stream that is received ends.
#[derive(Debug)]
struct EndsQuietly(Box<dyn Engine>);

impl Engine for EndsQuietly {
    fn run(&mut self, connections: &[&Connection], progress: &LoadProgress) -> Result<(), ThreadFailure> {
        let _ = self.0.run(connections, progress);
        Ok(())
    }
}

/// No end is planned, so that a sender that fails says so.
const UNTIL_STOPPED: Times = Times { start_ns: 0, begin_ns: 0, end_ns: u64::MAX, stop_ns: u64::MAX };

impl Streams {
    /// Starts the threads, which move nothing before [`Self::start`].
    ///
    /// # Errors
    /// When a thread cannot be started or lacks memory.
    pub fn open(settings: &StreamSettings, sockets: Vec<GivenSocket>) -> Result<Self, WorkerError> {
        rig_sys::socket::ignore_sigpipe();
        let sends: Vec<bool> = sockets.iter().map(|given| given.sends).collect();
        let trackers: Vec<Arc<SharedTracker>> = sends.iter().map(|_| Arc::default()).collect();
        let connections: Arc<[Connection]> = sockets
            .into_iter()
            .enumerate()
            .map(|(index, given)| Connection::new(given.socket, index as u32, given.local, given.remote))
            .collect();
        let is_udp = matches!(settings.carrier, Carrier::Datagrams { .. });
        let mut load_threads = LoadThreads::new(&connections, Direction::Both, is_udp)?;
        let budget = settings.limit.map(|limit| match limit {
            Limit::Bytes(bytes) => SharedBudget::bytes(bytes),
            Limit::Messages(messages) => SharedBudget::messages(messages),
        });
        for (index, (&sends, tracker)) in sends.iter().zip(&trackers).enumerate() {
            let (settings, tracker, budget) = (settings.clone(), tracker.clone(), budget.clone());
            load_threads.spawn(index as u32, move |_| engine(&settings, sends, tracker, budget))?;
        }
        let waiter = DeadlinePoll::new().failing(|| "create a timer".into())?;
        while !load_threads.is_ready() {
            load_threads.check()?;
            waiter.wait(&mut vec![load_threads.event_fd().entry()], None).failing(|| "wait".into())?;
            load_threads.event_fd().clear();
        }
        Ok(Self { load_threads, sends, trackers })
    }

    /// Lets the threads begin.
    pub fn start(&self) {
        self.load_threads.go(UNTIL_STOPPED);
    }

    /// Readable when a thread has ended; [`Self::clear`] silences it.
    pub fn news(&self) -> BorrowedFd<'_> {
        self.load_threads.event_fd().as_fd()
    }

    pub fn clear(&self) {
        self.load_threads.event_fd().clear();
    }

    /// All threads have come to their end: the budget is spent, or the peers ended the streams.
    pub fn is_ended(&self) -> bool {
        self.load_threads.is_finished()
    }

    /// Threads that have come to their end.
    pub fn ended(&self) -> usize {
        self.load_threads.finished()
    }

    /// What a sender that could not go on met with.
    ///
    /// # Errors
    /// That of the first one.
    pub fn check(&self) -> Result<(), WorkerError> {
        self.load_threads.check()
    }

    /// The socket of a stream, by its place in the list that was given.
    pub fn socket(&self, index: usize) -> Option<BorrowedFd<'_>> {
        self.load_threads.connections().get(index).map(|connection| connection.socket.as_fd())
    }

    /// What each stream has moved so far, in the order of the sockets; operations are datagrams where it carries these.
    pub fn counts(&self) -> Vec<Counts> {
        let udp = self.load_threads.is_udp();
        let each = self.load_threads.connections().iter().zip(&self.sends);
        each.map(|(connection, sends)| {
            let values = if *sends { connection.tally.read() } else { connection.inbound.read() };
            Counts { bytes: values.bytes, operations: if udp { values.units } else { values.operations } }
        })
        .collect()
    }

    /// What each receiver of datagrams concluded so far, in the order of the sockets.
    pub fn datagrams(&self) -> Vec<DatagramCounts> {
        self.trackers.iter().map(|tracker| tracker.read()).collect()
    }

    /// Lets the jitter of all receivers begin anew.
    pub fn forget_jitter(&self) {
        self.trackers.iter().for_each(|tracker| tracker.ask_again());
    }

    /// Ends sending, while receiving goes on.
    pub fn end_sending(&self) {
        self.load_threads.end_sending(|index| self.sends[index]);
    }

    /// Ends the threads and closes the sockets.
    pub fn stop(mut self) {
        // A failure was asked for by `check`, if anybody cared.
        let _ = self.load_threads.stop();
    }
}

fn engine(
    settings: &StreamSettings,
    sends: bool,
    tracker: Arc<SharedTracker>,
    budget: Option<SharedBudget>,
) -> Result<Box<dyn Engine>, ThreadFailure> {
    let StreamSettings { payload, carrier, discard, rate, burst, .. } = settings;
    let (payload, discard, rate) = (payload.clone(), *discard, *rate);
    match *carrier {
        Carrier::Bytes { from_file } => {
            let stream = GivenStream { payload, from_file, discard, rate, burst: burst.unwrap_or(1), budget };
            if sends { stream.sender() } else { Ok(Box::new(EndsQuietly(stream.receiver()))) }
        }
        Carrier::Datagrams { wide } => {
            let datagrams = GivenDatagrams { payload, wide, discard, rate, burst: *burst, budget };
            Ok(if sends { datagrams.sender() } else { datagrams.receiver(tracker) })
        }
    }
}

#[cfg(test)]
mod tests;
