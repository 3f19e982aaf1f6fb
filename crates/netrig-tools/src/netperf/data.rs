//! Moving a test's data: the loops of both ends, each on a thread of its own.
//!
//! Sockets block for at most [`LOOK`], so that a thread sees within that time that it shall stop. What it moved stands in [`Counters`],
//! which the thread that controls it reads at any time.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rig_stats::histogram::Histogram;
use rig_sys::clock::{monotonic_ns, sleep_until};
use rig_sys::socket::{ReceiveBatch, SendBatch, set_coalescing, set_segment_size};
use rustix::fs::sendfile;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

use super::buffers::Ring;
use super::options::Bursts;

/// The longest time that a call on a data socket blocks.
pub const LOOK: Duration = Duration::from_millis(100);
/// Datagrams that one call sends or receives.
const BATCH: usize = 32;
/// The most that the kernel cuts into datagrams at once: 64 datagrams (UDP_MAX_SEGMENTS before Linux 6.9) and one IP packet.
const MOST_SEGMENTS: usize = 64;
const LONGEST_SEGMENTED: usize = 65_507;

/// What a thread has moved. It alone writes.
#[derive(Debug, Default)]
pub struct Counters {
    pub sent_bytes: AtomicU64,
    pub received_bytes: AtomicU64,
    /// Of datagrams, how many.
    pub send_calls: AtomicU64,
    pub receive_calls: AtomicU64,
    pub failed_sends: AtomicU64,
    pub transactions: AtomicU64,
    /// Time that was slept for `-b` and `-w`, ns.
    pub paused_ns: AtomicU64,
    /// CLOCK_MONOTONIC of the last datagram or connection that came, ns.
    pub last_arrival_ns: AtomicU64,
}

/// A plain addition suffices, there is only one writer.
#[inline]
fn add(counter: &AtomicU64, amount: u64) {
    counter.store(counter.load(Ordering::Relaxed) + amount, Ordering::Relaxed);
}

impl Counters {
    #[inline]
    fn sent(&self, bytes: usize) {
        add(&self.sent_bytes, bytes as u64);
        add(&self.send_calls, 1);
    }

    #[inline]
    fn received(&self, bytes: usize, calls: u64) {
        add(&self.received_bytes, bytes as u64);
        add(&self.receive_calls, calls);
    }
}

/// What a loop needs beside its socket.
#[derive(Debug)]
pub struct LoopContext<'a> {
    pub counters: &'a Counters,
    pub stop: &'a AtomicBool,
    /// Bytes of a stream, or transactions, after which the test is over.
    pub units: Option<u64>,
    pub pace: Option<Pace>,
    /// Time of each call or transaction.
    pub latencies: Option<&'a mut Histogram>,
}

/// Why a loop ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndReason {
    /// It was told to stop.
    Stopped,
    /// All units were moved.
    Units,
    /// The peer closed the connection, or sent an empty datagram.
    Peer,
}

impl LoopContext<'_> {
    #[inline]
    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Whether all units are moved, after `amount` more.
    #[inline]
    fn are_all_moved(&mut self, amount: u64) -> bool {
        let Some(left) = &mut self.units else { return false };
        *left = left.saturating_sub(amount);
        *left == 0
    }

    #[inline]
    fn begin(&self) -> u64 {
        if self.latencies.is_some() { monotonic_ns() } else { 0 }
    }

    #[inline]
    fn finish(&mut self, begin_ns: u64) {
        if let Some(latencies) = &mut self.latencies {
            latencies.record(monotonic_ns().saturating_sub(begin_ns));
        }
    }

    #[inline]
    fn wait_for_turn(&mut self) {
        if let Some(pace) = &mut self.pace {
            add(&self.counters.paused_ns, pace.wait(self.stop));
        }
    }
}

/// `-b` and `-w`: so many units at once, then nothing until the interval is over.
#[derive(Debug, Clone)]
pub struct Pace {
    sends: u32,
    interval_ns: u64,
    left: u32,
    next_ns: u64,
}

impl Pace {
    pub fn new(bursts: Bursts) -> Option<Self> {
        let interval_ns = u64::try_from(bursts.interval.as_nanos()).ok()?;
        (bursts.sends > 0).then(|| Self {
            sends: bursts.sends,
            interval_ns,
            left: bursts.sends,
            next_ns: monotonic_ns() + interval_ns,
        })
    }

    /// How long it slept, ns.
    fn wait(&mut self, stop: &AtomicBool) -> u64 {
        self.left -= 1;
        if self.left > 0 {
            return 0;
        }
        self.left = self.sends;
        let begin_ns = monotonic_ns();
        if begin_ns >= self.next_ns {
            // What was late stays late: intervals that are gone are not made up for.
            self.next_ns = begin_ns + self.interval_ns;
            return 0;
        }
        let mut now_ns = begin_ns;
        while now_ns < self.next_ns && !stop.load(Ordering::Relaxed) {
            sleep_until(self.next_ns.min(now_ns + LOOK.as_nanos() as u64));
            now_ns = monotonic_ns();
        }
        self.next_ns += self.interval_ns;
        now_ns - begin_ns
    }
}

/// A call that found nothing to do within [`LOOK`], or was interrupted.
fn is_idle(errno: Errno) -> bool {
    matches!(errno, Errno::AGAIN | Errno::INTR)
}

/// Sends a stream.
///
/// # Errors
/// Those of send(2).
pub fn send_stream(socket: &OwnedFd, ring: &mut Ring, context: &mut LoopContext<'_>) -> io::Result<EndReason> {
    loop {
        if context.is_stopped() {
            return Ok(EndReason::Stopped);
        }
        let begin_ns = context.begin();
        match send(socket, ring.current(), SendFlags::NOSIGNAL) {
            Ok(sent) => {
                context.counters.sent(sent);
                context.finish(begin_ns);
                ring.advance();
                if context.are_all_moved(sent as u64) {
                    return Ok(EndReason::Units);
                }
                context.wait_for_turn();
            }
            Err(errno) if is_idle(errno) => {}
            Err(Errno::NOBUFS | Errno::NOMEM) => add(&context.counters.failed_sends, 1),
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Sends a stream from a file, from its begin again and again (sendfile(2)).
///
/// # Errors
/// Those of sendfile(2).
pub fn send_file(socket: &OwnedFd, file: &OwnedFd, size: u32, context: &mut LoopContext<'_>) -> io::Result<EndReason> {
    loop {
        if context.is_stopped() {
            return Ok(EndReason::Stopped);
        }
        let begin_ns = context.begin();
        match sendfile(socket, file, Some(&mut 0), size as usize) {
            Ok(sent) => {
                context.counters.sent(sent);
                context.finish(begin_ns);
                if context.are_all_moved(sent as u64) {
                    return Ok(EndReason::Units);
                }
                context.wait_for_turn();
            }
            Err(errno) if is_idle(errno) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Receives a stream to its end.
///
/// # Errors
/// Those of recv(2).
pub fn receive_stream(socket: &OwnedFd, ring: &mut Ring, context: &mut LoopContext<'_>) -> io::Result<EndReason> {
    loop {
        if context.is_stopped() {
            return Ok(EndReason::Stopped);
        }
        let begin_ns = context.begin();
        match recv(socket, ring.current(), RecvFlags::empty()).map(|(_, received)| received) {
            Ok(0) => return Ok(EndReason::Peer),
            Ok(received) => {
                context.counters.received(received, 1);
                context.finish(begin_ns);
                ring.advance();
                if context.are_all_moved(received as u64) {
                    return Ok(EndReason::Units);
                }
            }
            Err(errno) if is_idle(errno) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Sends datagrams of one size over a connected socket. Several leave with one call, cut by the kernel where it can, unless each call is
/// to be timed or they go in bursts.
///
/// # Errors
/// Those of send(2), without those of a peer that is not there: its answers are no error of a load that nobody has to take.
pub fn send_datagrams(socket: &OwnedFd, datagram: &[u8], context: &mut LoopContext<'_>) -> io::Result<EndReason> {
    let alone = context.pace.is_some() || context.latencies.is_some();
    let segments = (LONGEST_SEGMENTED / datagram.len().max(1)).clamp(1, MOST_SEGMENTS);
    let mut together = 1;
    if !alone && segments > 1 && set_segment_size(socket, datagram.len() as u32).is_ok() {
        together = segments;
    }
    let one_by_one = |messages| SendBatch::new(messages, datagram);
    let mut batch = match together {
        1 => one_by_one(if alone { 1 } else { BATCH }),
        _ => SendBatch::new(1, &datagram.repeat(together)),
    };
    loop {
        if context.is_stopped() {
            return Ok(EndReason::Stopped);
        }
        let begin_ns = context.begin();
        let count = batch.messages();
        match batch.send(socket, count, true) {
            Ok(sent) => {
                let datagrams = sent * together;
                add(&context.counters.sent_bytes, (datagrams * datagram.len()) as u64);
                add(&context.counters.send_calls, datagrams as u64);
                context.finish(begin_ns);
                context.wait_for_turn();
            }
            Err(errno) if is_idle(errno) => {}
            Err(Errno::NOBUFS | Errno::NOMEM | Errno::CONNREFUSED) => {
                add(&context.counters.failed_sends, together as u64);
            }
            // A datagram is longer than the path's packets, which the kernel does not cut it for, or the device computes no checksums.
            Err(Errno::INVAL | Errno::MSGSIZE | Errno::IO | Errno::OPNOTSUPP) if together > 1 => {
                set_segment_size(socket, 0)?;
                together = 1;
                batch = one_by_one(BATCH);
            }
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Receives datagrams until an empty one.
///
/// # Errors
/// Those of recv(2).
pub fn receive_datagrams(socket: &OwnedFd, size: u32, context: &mut LoopContext<'_>) -> io::Result<EndReason> {
    // What the kernel hands over together is counted by the datagram, and needs room for a whole packet of them.
    let coalesced = set_coalescing(socket, true).is_ok();
    let room = if coalesced { rig_sys::socket::LONGEST_MESSAGE } else { size as usize };
    let mut batch = ReceiveBatch::new(BATCH, room, coalesced);
    loop {
        if context.is_stopped() {
            return Ok(EndReason::Stopped);
        }
        match batch.receive(socket, true) {
            Ok(_) => {
                let (mut bytes, mut datagrams, mut over) = (0, 0, false);
                for datagram in batch.messages().flat_map(rig_sys::socket::Arrived::datagrams) {
                    over |= datagram.is_empty();
                    // A longer one is cut off at the size that was asked for, as recv(2) with a buffer of it does.
                    bytes += datagram.len().min(size as usize);
                    datagrams += u64::from(!datagram.is_empty());
                }
                context.counters.received(bytes, datagrams);
                context.counters.last_arrival_ns.store(monotonic_ns(), Ordering::Relaxed);
                if over {
                    return Ok(EndReason::Peer);
                }
            }
            Err(errno) if is_idle(errno) || errno == Errno::CONNREFUSED => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// What came of a message that was waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arrival {
    Whole,
    /// Nothing came in the time there was.
    Late,
    /// The peer closed the connection, or an empty datagram came.
    End,
    Stopped,
}

/// Takes one message: of a stream all of its bytes, of datagrams one.
fn receive_message(
    socket: &OwnedFd,
    ring: &mut Ring,
    datagram: bool,
    deadline_ns: Option<u64>,
    context: &LoopContext<'_>,
) -> Result<Arrival, Errno> {
    let (mut filled, mut calls) = (0, 0);
    let flags = if datagram { RecvFlags::empty() } else { RecvFlags::WAITALL };
    let buffer = ring.current();
    loop {
        match recv(socket, &mut buffer[filled..], flags).map(|(_, received)| received) {
            Ok(0) => return Ok(Arrival::End),
            Ok(received) => {
                filled += received;
                calls += 1;
                if datagram || filled == buffer.len() {
                    context.counters.received(filled, calls);
                    return Ok(Arrival::Whole);
                }
            }
            Err(errno) if is_idle(errno) => {
                if context.is_stopped() {
                    return Ok(Arrival::Stopped);
                }
                if deadline_ns.is_some_and(|until_ns| monotonic_ns() >= until_ns) {
                    return Ok(Arrival::Late);
                }
            }
            Err(errno) => return Err(errno),
        }
    }
}

/// Hands one message to the kernel, whole. False where it was told to stop meanwhile.
fn send_message(socket: &OwnedFd, ring: &mut Ring, context: &LoopContext<'_>) -> Result<bool, Errno> {
    let mut given = 0;
    let buffer = ring.current();
    loop {
        match send(socket, &buffer[given..], SendFlags::NOSIGNAL) {
            Ok(sent) => {
                given += sent;
                if given == buffer.len() {
                    context.counters.sent(given);
                    return Ok(true);
                }
            }
            Err(errno) if is_idle(errno) => {
                if context.is_stopped() {
                    return Ok(false);
                }
            }
            Err(errno) => return Err(errno),
        }
    }
}

/// How a client makes transactions over one connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Exchanges {
    pub datagrams: bool,
    /// Requests on their way beside the one that is waited for.
    pub burst: u32,
    /// After this long without a response all is taken for lost, and begun again. Of datagrams alone: a stream has no place to begin
    /// again at.
    pub timeout: Option<Duration>,
}

/// Sends requests and takes responses.
///
/// # Errors
/// Those of send(2) and recv(2).
pub fn exchange(
    socket: &OwnedFd,
    requests: &mut Ring,
    responses: &mut Ring,
    exchanges: Exchanges,
    context: &mut LoopContext<'_>,
) -> io::Result<EndReason> {
    let mut begins = VecDeque::with_capacity(exchanges.burst as usize + 1);
    loop {
        // With all of the burst on its way this is one request for each response.
        while begins.len() <= exchanges.burst as usize {
            if context.is_stopped() {
                return Ok(EndReason::Stopped);
            }
            let begin_ns = context.begin();
            match send_message(socket, requests, context) {
                Ok(true) => begins.push_back(begin_ns),
                Ok(false) => return Ok(EndReason::Stopped),
                Err(Errno::NOBUFS | Errno::NOMEM) => add(&context.counters.failed_sends, 1),
                // Nobody listens there yet, or any more: the datagram is lost as any other may be.
                Err(Errno::CONNREFUSED) if exchanges.datagrams => begins.push_back(begin_ns),
                Err(errno) => return Err(errno.into()),
            }
            requests.advance();
        }
        let until_ns = exchanges.timeout.map(|timeout| monotonic_ns() + timeout.as_nanos() as u64);
        match receive_message(socket, responses, exchanges.datagrams, until_ns, context) {
            Ok(Arrival::Whole) => {
                let begin_ns = begins.pop_front().unwrap_or_default();
                context.finish(begin_ns);
                add(&context.counters.transactions, 1);
                responses.advance();
                if context.are_all_moved(1) {
                    return Ok(EndReason::Units);
                }
                context.wait_for_turn();
            }
            Ok(Arrival::Late) => begins.clear(),
            Ok(Arrival::End) => return Ok(if context.is_stopped() { EndReason::Stopped } else { EndReason::Peer }),
            Ok(Arrival::Stopped) => return Ok(EndReason::Stopped),
            Err(Errno::CONNREFUSED) if exchanges.datagrams => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Takes requests and sends responses, to the end of the connection, or of datagrams to an empty one.
///
/// # Errors
/// Those of send(2) and recv(2).
pub fn answer(
    socket: &OwnedFd,
    requests: &mut Ring,
    responses: &mut Ring,
    datagrams: bool,
    context: &mut LoopContext<'_>,
) -> io::Result<EndReason> {
    loop {
        if context.is_stopped() {
            return Ok(EndReason::Stopped);
        }
        match receive_message(socket, requests, datagrams, None, context) {
            Ok(Arrival::Whole) => {}
            Ok(Arrival::Late) => continue,
            Ok(Arrival::End) => return Ok(EndReason::Peer),
            Ok(Arrival::Stopped) => return Ok(EndReason::Stopped),
            Err(Errno::CONNREFUSED) if datagrams => continue,
            Err(errno) => return Err(errno.into()),
        }
        requests.advance();
        if datagrams {
            context.counters.last_arrival_ns.store(monotonic_ns(), Ordering::Relaxed);
        }
        match send_message(socket, responses, context) {
            Ok(true) => add(&context.counters.transactions, 1),
            Ok(false) => return Ok(EndReason::Stopped),
            Err(Errno::NOBUFS | Errno::NOMEM | Errno::CONNREFUSED) if datagrams => {
                add(&context.counters.failed_sends, 1);
            }
            Err(errno) => return Err(errno.into()),
        }
        responses.advance();
        context.wait_for_turn();
    }
}

/// What a socket is asked for by transactions with a connection each.
pub trait Connect {
    /// A connection to the server. `None` where there was none this time and another may come up, or it was told to stop.
    ///
    /// # Errors
    /// When there will be none.
    fn connect(&mut self, stop: &AtomicBool) -> io::Result<Option<OwnedFd>>;

    /// Whether this end closes first: the other one is no netserver.
    fn closes_first(&self) -> bool;

    /// Whether messages are exchanged, and not only connections made.
    fn exchanges(&self) -> bool;

    /// Looks at a connection before it is closed.
    fn look(&mut self, connection: &OwnedFd);
}

/// Makes a connection for each transaction, until the server has closed it.
///
/// # Errors
/// Those of `connections`, of send(2) and recv(2).
pub fn connect_and_exchange(
    connections: &mut impl Connect,
    requests: &mut Ring,
    responses: &mut Ring,
    context: &mut LoopContext<'_>,
) -> io::Result<EndReason> {
    loop {
        if context.is_stopped() {
            return Ok(EndReason::Stopped);
        }
        let begin_ns = context.begin();
        let Some(connection) = connections.connect(context.stop)? else { continue };
        if connections.exchanges() {
            if !send_message(&connection, requests, context)? {
                return Ok(EndReason::Stopped);
            }
            match receive_message(&connection, responses, false, None, context)? {
                Arrival::Whole => {}
                Arrival::Stopped => return Ok(EndReason::Stopped),
                Arrival::Late | Arrival::End => continue,
            }
        }
        connections.look(&connection);
        if connections.closes_first() {
            // It fails where the peer was faster.
            let _ = shutdown(&connection, Shutdown::Write);
        }
        if !drain(&connection, context) {
            return Ok(EndReason::Stopped);
        }
        drop(connection);
        context.finish(begin_ns);
        add(&context.counters.transactions, 1);
        if context.are_all_moved(1) {
            return Ok(EndReason::Units);
        }
        context.wait_for_turn();
    }
}

/// Reads to the peer's end of the stream, or its reset. False where it was told to stop before.
pub fn drain(connection: impl AsFd, context: &LoopContext<'_>) -> bool {
    let mut rest = [0_u8; 4096];
    loop {
        match recv(&connection, &mut rest, RecvFlags::empty()).map(|(_, received)| received) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(errno) if is_idle(errno) => {
                if context.is_stopped() {
                    return false;
                }
            }
            Err(_) => return true,
        }
    }
}

/// Serves transactions with a connection each: one after the other, as they come.
///
/// # Errors
/// Those of accept(2).
pub fn accept_and_answer(
    mut accept: impl FnMut() -> Result<OwnedFd, Errno>,
    exchanges: bool,
    requests: &mut Ring,
    responses: &mut Ring,
    mut look: impl FnMut(&OwnedFd),
    context: &mut LoopContext<'_>,
) -> io::Result<EndReason> {
    loop {
        match accept() {
            Ok(connection) => {
                context.counters.last_arrival_ns.store(monotonic_ns(), Ordering::Relaxed);
                // A client that goes in the middle ends its connection, and not the test.
                let whole = !exchanges
                    || (matches!(receive_message(&connection, requests, false, None, context), Ok(Arrival::Whole))
                        && matches!(send_message(&connection, responses, context), Ok(true)));
                look(&connection);
                drop(connection);
                if whole {
                    add(&context.counters.transactions, 1);
                    if context.are_all_moved(1) {
                        return Ok(EndReason::Units);
                    }
                    context.wait_for_turn();
                }
            }
            Err(errno) if is_idle(errno) || errno == Errno::CONNABORTED => {}
            Err(errno) => return Err(errno.into()),
        }
        if context.is_stopped() {
            return Ok(EndReason::Stopped);
        }
    }
}
