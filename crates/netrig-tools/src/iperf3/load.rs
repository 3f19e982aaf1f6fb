//! The streams of one test at work, and their figures.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rig_load::worker::embedded::streams::{Carrier, GivenSocket, Limit, StreamSettings, Streams};
use rig_sys::clock;
use rig_sys::socket::{self, sctp};
use rustix::event::{PollFd, PollFlags};
use socket2::Socket;

use super::error::{Code, TestError, without_number};
use super::figures::{Reading, SenderState, StreamFigures};
use super::settings::{Protocol, TestSettings};
use super::sockets::ends;
use super::text::StreamInterval;
use super::wait::{SECOND_NS, wait};
use super::wire::Results;

/// How long the last system call of a sender may take.
const LAST_SENDS_NS: u64 = SECOND_NS / 2;

/// Between two looks at what is on its way.
const DELIVERY_LOOK: Duration = Duration::from_millis(1);

/// CPU time of this process since some moment.
#[derive(Debug, Clone, Copy)]
pub struct CpuUsage {
    since_ns: u64,
    user_ns: u64,
    system_ns: u64,
}

impl CpuUsage {
    pub fn begin() -> Self {
        let (user_ns, system_ns) = clock::process_cpu_ns();
        Self { since_ns: clock::monotonic_ns(), user_ns, system_ns }
    }

    /// Total, user and system, percent of one CPU.
    pub fn percent(&self) -> [f64; 3] {
        let (user_ns, system_ns) = clock::process_cpu_ns();
        let past = clock::monotonic_ns().saturating_sub(self.since_ns).max(1) as f64;
        let of = |now: u64, before: u64| 100.0 * now.saturating_sub(before) as f64 / past;
        let (user, system) = (of(user_ns, self.user_ns), of(system_ns, self.system_ns));
        [user + system, user, system]
    }
}

/// What is sent again and again: digits, or random bytes.
fn payload(test: &TestSettings) -> Result<Arc<[u8]>, TestError> {
    let length = test.length as usize;
    if test.repeating_payload {
        return Ok((0..length).map(|index| b'0' + (index % 10) as u8).collect());
    }
    let mut bytes = vec![0; length];
    getrandom::fill(&mut bytes).map_err(|error| TestError::with(Code::INIT, error.to_string()))?;
    Ok(bytes.into())
}

/// A connected socket of a test.
#[derive(Debug)]
pub struct TestSocket {
    pub socket: Socket,
    pub sends: bool,
    pub label: i32,
}

impl Results {
    /// What an end tells the other of its streams.
    pub fn of(test: &TestSettings, load: Option<&Load>, cpu: [f64; 3], congestion: Option<String>) -> Self {
        let figures = load.map_or(&[][..], Load::figures);
        let sends = figures.iter().any(|stream| stream.sends);
        let has_retransmits = i64::from(test.protocol == Protocol::Tcp);
        Self {
            cpu,
            sender_has_retransmits: if sends { has_retransmits } else { -1 },
            congestion,
            streams: figures.iter().map(StreamFigures::result).collect(),
            server_output: None,
        }
    }
}

/// Streams with their figures, in the order in which they were opened.
#[derive(Debug)]
pub struct Load {
    streams: Streams,
    figures: Vec<StreamFigures>,
    protocol: Protocol,
    by_blocks: bool,
}

impl Load {
    /// Starts the threads, which wait for [`Self::start`]. `limited`: the senders here end when what was asked for is sent.
    ///
    /// # Errors
    /// When there is no thread or no memory.
    pub fn open(test: &TestSettings, sockets: Vec<TestSocket>, limited: bool) -> Result<Self, TestError> {
        let carrier = match test.protocol {
            Protocol::Tcp => Carrier::Bytes { from_file: test.zerocopy },
            Protocol::Udp => Carrier::Datagrams { wide: test.udp_counters_64bit },
            // What sendfile(2) gives SCTP would be messages of a page each.
            Protocol::Sctp => Carrier::Bytes { from_file: false },
        };
        let limit = match (test.bytes, test.blocks) {
            (0, 0) => None,
            (0, blocks) => Some(Limit::Messages(blocks)),
            (bytes, _) => Some(Limit::Bytes(bytes)),
        };
        let settings = StreamSettings {
            payload: payload(test)?,
            carrier,
            // SCTP has no MSG_TRUNC.
            discard: test.skip_rx_copy && test.protocol != Protocol::Sctp,
            rate: (test.rate > 0).then(|| (test.rate / 8).max(1)),
            burst: (test.burst > 0).then_some(test.burst),
            limit: limit.filter(|_| limited),
        };
        let now_ns = clock::monotonic_ns();
        let mut figures = Vec::new();
        let mut given = Vec::new();
        for (index, TestSocket { socket, sends, label }) in sockets.into_iter().enumerate() {
            let mut of_stream = StreamFigures::new(index, sends, now_ns);
            of_stream.label = label;
            figures.push(of_stream);
            let (local, remote) = ends(&socket).map_err(|error| TestError::system(Code::INIT, &error))?;
            let (local, remote) = (local.to_string(), remote.to_string());
            given.push(GivenSocket { socket: OwnedFd::from(socket), sends, local, remote });
        }
        let streams = Streams::open(&settings, given);
        let streams = streams.map_err(|error| TestError::with(Code::INIT, error.to_string()))?;
        Ok(Self { streams, figures, protocol: test.protocol, by_blocks: test.blocks != 0 })
    }

    /// Time begins.
    pub fn begin(&mut self, now_ns: u64) {
        self.figures.iter_mut().for_each(|stream| stream.begin_again(Reading::default(), now_ns));
    }

    /// Load begins.
    pub fn start(&self) {
        self.streams.start();
    }

    /// Readable when something has ended; [`Self::clear`] silences it.
    pub fn news(&self) -> BorrowedFd<'_> {
        self.streams.news()
    }

    pub fn clear(&self) {
        self.streams.clear();
    }

    /// All senders have sent what they were to send.
    pub fn has_sent_all(&self) -> bool {
        let senders = self.figures.iter().filter(|stream| stream.sends).count();
        // Receivers end with the connection, which is after all has been sent.
        senders > 0 && self.streams.ended() >= senders
    }

    /// What kept a sender from going on.
    ///
    /// # Errors
    /// In the original's words.
    pub fn check(&self) -> Result<(), TestError> {
        self.streams.check().map_err(|error| {
            let text = error.to_string();
            let why = text.rsplit_once("): ").map_or(text.as_str(), |(_, why)| why);
            TestError::with(Code::STREAM_WRITE, without_number(why))
        })
    }

    fn readings(&self) -> Vec<Reading> {
        let (counts, datagrams) = (self.streams.counts(), self.streams.datagrams());
        let each = self.figures.iter().zip(counts).zip(datagrams).enumerate();
        each.map(|(index, ((stream, counts), datagrams))| Reading {
            bytes: counts.bytes,
            datagrams_sent: if self.protocol.connects() || !stream.sends { 0 } else { counts.operations },
            datagrams,
            sender: if stream.sends { self.sender_state(index) } else { None },
        })
        .collect()
    }

    fn sender_state(&self, index: usize) -> Option<SenderState> {
        let socket = self.streams.socket(index)?;
        match self.protocol {
            Protocol::Tcp => socket::tcp_info(socket).ok().map(SenderState::from),
            Protocol::Sctp => sctp::status(socket).ok().map(SenderState::from),
            Protocol::Udp => None,
        }
    }

    /// The interval that ends now.
    pub fn interval(&mut self, omitted: bool) -> Vec<StreamInterval> {
        let (readings, now_ns) = (self.readings(), clock::monotonic_ns());
        let each = self.figures.iter_mut().zip(readings);
        each.map(|(stream, reading)| StreamInterval {
            label: stream.label,
            sends: stream.sends,
            interval: stream.interval(reading, now_ns, omitted),
        })
        .collect()
    }

    /// What was so far is omitted.
    pub fn begin_again(&mut self) {
        let (readings, now_ns) = (self.readings(), clock::monotonic_ns());
        self.streams.forget_jitter();
        self.figures.iter_mut().zip(readings).for_each(|(stream, reading)| stream.begin_again(reading, now_ns));
    }

    /// Bytes or blocks that were moved in the direction that moved more, since the beginning.
    pub fn moved(&self) -> u64 {
        let counts = self.streams.counts();
        let total = |sends: bool| {
            let some = self.figures.iter().zip(&counts).filter(|(stream, _)| stream.sends == sends);
            some.map(|(_, counts)| if self.by_blocks { counts.operations } else { counts.bytes }).sum::<u64>()
        };
        total(true).max(total(false))
    }

    /// Bytes that were received since the beginning.
    pub fn received(&self) -> u64 {
        let counts = self.streams.counts();
        let some = self.figures.iter().zip(&counts).filter(|(stream, _)| !stream.sends);
        some.map(|(_, counts)| counts.bytes).sum()
    }

    /// Bytes that were moved either way since the beginning.
    pub fn moved_both_ways(&self) -> u64 {
        self.streams.counts().iter().map(|counts| counts.bytes).sum()
    }

    pub fn figures(&self) -> &[StreamFigures] {
        &self.figures
    }

    /// Ends sending, while receiving goes on, and waits until the senders have counted what they sent.
    pub fn end_sending(&self) {
        let senders = self.figures.iter().filter(|stream| stream.sends).count();
        if senders == 0 {
            return;
        }
        self.streams.end_sending();
        let give_up_ns = clock::monotonic_ns() + LAST_SENDS_NS;
        while self.streams.ended() < senders && clock::monotonic_ns() < give_up_ns {
            let news = self.streams.news();
            // When waiting fails there is nothing to wait for.
            if wait(&mut [PollFd::from_borrowed_fd(news, PollFlags::IN)], Some(give_up_ns)).is_err() {
                return;
            }
            self.streams.clear();
        }
    }

    /// Waits, for a while at most, until the peer's kernel has all that was sent over connections.
    pub fn await_delivery(&self) {
        let sending = |index: usize| {
            let Some(socket) = self.streams.socket(index) else { return false };
            match self.protocol {
                Protocol::Tcp => socket::tcp_info(socket).is_ok_and(|info| info.unacked > 0 || info.not_sent_bytes > 0),
                Protocol::Sctp => sctp::status(socket).is_ok_and(|status| status.unacknowledged > 0),
                Protocol::Udp => false,
            }
        };
        let give_up_ns = clock::monotonic_ns() + LAST_SENDS_NS;
        let senders = || self.figures.iter().enumerate().filter(|(_, stream)| stream.sends);
        while clock::monotonic_ns() < give_up_ns && senders().any(|(index, _)| sending(index)) {
            clock::sleep_until(clock::monotonic_after(DELIVERY_LOOK));
        }
        // A peer's threads have yet to read what its kernel has.
        clock::sleep_until(clock::monotonic_after(10 * DELIVERY_LOOK));
    }

    /// Waits, for a while at most, until everything that was sent here over connections has been read: the peer has ended the streams.
    pub fn await_ends(&self) {
        let give_up_ns = clock::monotonic_ns() + LAST_SENDS_NS;
        while self.protocol.connects() && !self.streams.is_ended() && clock::monotonic_ns() < give_up_ns {
            clock::sleep_until(clock::monotonic_after(DELIVERY_LOOK));
        }
    }

    /// Ends the threads and closes the sockets.
    pub fn stop(self) {
        self.streams.stop();
    }
}

/// Whether an interval is to be shown: a short one without data is not.
pub fn is_worth_showing(streams: &[StreamInterval], every: f64) -> bool {
    streams.iter().any(|stream| stream.interval.seconds() >= every * 0.1 || stream.interval.bytes > 0)
}
