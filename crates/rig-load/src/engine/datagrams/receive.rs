//! The receiving side of a datagram stream.

use std::io;
use std::sync::atomic::Ordering;

use rig_stats::histogram::Histogram;
use rig_sys::clock::monotonic_ns;
use rig_sys::socket::ReceiveBatch;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{SendFlags, send};

use super::super::pace::ReceiveLimit;
use super::super::ready::{TurnResult, serve};
use super::super::{Connection, Engine, LoadProgress, Report, ThreadFailure, Times, failure};
use super::tracker::{ArrivalOrder, Jitter, Tracker};
use super::wire::{Header, Phase, SEQUENCE_END};
use super::{Findings, phase, room, totals};
use crate::greeting::{Greeting, Kind, is_greeting};
use crate::plan::Datagrams;
use crate::record::DatagramRecord;

#[derive(Debug)]
pub(super) struct Receiver {
    batch: ReceiveBatch,
    message: usize,
    /// Bytes of a batch as the peer may send it.
    burst: usize,
    /// Another thread sends over the same connections, and waits for answers that arrive here.
    duplex: bool,
    flows: Vec<Flow>,
    record: DatagramRecord,
    delay: Option<Delay>,
}

/// What one flow has received.
#[derive(Debug)]
struct Flow {
    tracker: Tracker,
    jitter: Jitter,
    /// Distinct numbers of the window, the lowest, and one more than the highest.
    received: u64,
    first: u64,
    end: u64,
    /// The numbers of the window in the sender's words.
    farewell: Option<(u64, u64)>,
}

impl Flow {
    fn new() -> Self {
        let (tracker, jitter) = (Tracker::new(), Jitter::default());
        Self { tracker, jitter, received: 0, first: u64::MAX, end: 0, farewell: None }
    }

    /// Takes one datagram of the load.
    #[inline]
    fn arrive(&mut self, header: Header, now_ns: u64, record: &mut DatagramRecord) -> bool {
        let arrival = self.tracker.arrive(header.sequence);
        if header.phase != Phase::Window {
            return false;
        }
        match arrival {
            ArrivalOrder::InOrder => {}
            ArrivalOrder::Reordered => record.reordered += 1,
            ArrivalOrder::Duplicate => {
                record.duplicated += 1;
                return false;
            }
            ArrivalOrder::Late => {
                record.late += 1;
                return false;
            }
        }
        self.received += 1;
        self.first = self.first.min(header.sequence);
        self.end = self.end.max(header.sequence + 1);
        self.jitter.arrive(header.sent_ns, now_ns);
        true
    }

    /// Numbers of the window that have not arrived.
    fn lost(&self) -> u64 {
        let (first, end) = self.farewell.unwrap_or((self.first, self.end));
        end.saturating_sub(first).saturating_sub(self.received)
    }
}

/// One-way delays. Datagrams that were sent together and arrived together have the same. Where the clocks of both ends are known
/// less well than the delay is long, one may seem to be less than none: it counts as the shortest.
#[derive(Debug, Default)]
struct Delay {
    histogram: Histogram,
    /// What is to be added to a time of sending to have it by the receiver's clock.
    peer_clock_ns: i64,
    sent_ns: u64,
    count: u64,
}

impl Delay {
    #[inline]
    fn add(&mut self, sent_ns: u64, now_ns: u64) {
        if sent_ns != self.sent_ns {
            self.settle(now_ns);
            self.sent_ns = sent_ns;
        }
        self.count += 1;
    }

    /// Has to be called before the time of arrival changes.
    fn settle(&mut self, now_ns: u64) {
        if self.count > 0 {
            let sent_ns = self.sent_ns.wrapping_add_signed(self.peer_clock_ns);
            let delay_ns = (now_ns.wrapping_sub(sent_ns) as i64).max(0);
            self.histogram.record_n(delay_ns as u64, std::mem::take(&mut self.count));
        }
    }
}

impl Receiver {
    pub(super) fn new(load: &Datagrams, duplex: bool, flows: usize) -> Self {
        Self {
            batch: ReceiveBatch::new(load.batch as usize, room(load), load.coalesce),
            message: load.message as usize,
            burst: load.message as usize * load.segments as usize * load.batch as usize,
            duplex,
            flows: (0..flows).map(|_| Flow::new()).collect(),
            record: DatagramRecord { total: totals(load), ..DatagramRecord::default() },
            delay: load.shared_clock.then(Delay::default),
        }
    }

    /// Takes what has arrived on a flow; blocks on a blocking socket.
    fn take(
        &mut self,
        index: usize,
        connection: &Connection,
        progress: &LoadProgress,
        times: &Times,
        intake: &mut Option<ReceiveLimit>,
    ) -> Result<TurnResult, ThreadFailure> {
        match self.batch.receive(&connection.socket, true) {
            // The socket has been shut down.
            Ok(_) if progress.is_stopped() => return Ok(TurnResult::Ended),
            Ok(_) => {}
            Err(Errno::INTR | Errno::AGAIN) => return Ok(TurnResult::Next),
            Err(_) if progress.may_end() => return Ok(TurnResult::Ended),
            Err(Errno::CONNREFUSED) => {
                return Err(failure("receive from", connection, &"the peer has closed its socket (port unreachable)"));
            }
            Err(errno) => return Err(failure("receive from", connection, &io::Error::from(errno))),
        }
        let now_ns = monotonic_ns();
        let counts = u64::from(phase(times, now_ns) == Phase::Window);
        let Self { batch, message, flows, record, delay, .. } = self;
        let flow = &mut flows[index];
        let (mut datagrams, mut of_window, mut bytes) = (0, false, 0);
        // The kernel joins none where these are counted: each message is a datagram.
        let (mut arrivals, mut farewells) = (0, 0);
        for arrived in batch.messages() {
            arrivals += 1;
            if arrived.truncated {
                bytes += *message;
                record.malformed += counts;
                continue;
            }
            for datagram in arrived.datagrams() {
                bytes += datagram.len();
                match Header::read(datagram) {
                    Some(header) if datagram.len() == *message => {
                        datagrams += 1;
                        of_window |= header.phase == Phase::Window;
                        if flow.arrive(header, now_ns, record)
                            && let Some(delay) = delay
                        {
                            delay.add(header.sent_ns, now_ns);
                        }
                    }
                    _ if is_greeting(datagram) => {
                        arrivals -= 1;
                        farewells += u64::from(flow.hear(index, connection, datagram));
                    }
                    _ => record.malformed += counts,
                }
            }
        }
        if let Some(delay) = delay {
            delay.settle(now_ns);
        }
        record.calls += u64::from(of_window);
        if let Some(total) = &mut record.total {
            total.received += arrivals;
            total.farewells_received += farewells;
        }
        connection.inbound.add(datagrams * *message);
        connection.inbound.add_units(datagrams as u64);
        connection.inbound.set_lost(flow.tracker.missing());
        if let (Some(intake), Some(rate)) = (intake, progress.ceiling())
            && !intake.take(bytes, now_ns)
        {
            let why = format!("it sends more than the {rate} bytes per second that one thread's flows may");
            return Err(failure("receive from", connection, &why));
        }
        let parted = flow.farewell.is_some() && (!self.duplex || connection.taken.load(Ordering::Relaxed));
        Ok(if parted { TurnResult::Ended } else { TurnResult::Next })
    }
}

impl Flow {
    /// Takes what is no payload; whether it is a farewell.
    #[cold]
    fn hear(&mut self, index: usize, connection: &Connection, datagram: &[u8]) -> bool {
        match Greeting::decode(datagram) {
            Some(Greeting { kind: Kind::Farewell, values: (first, end), .. })
                if first <= end && end <= SEQUENCE_END =>
            {
                self.farewell = Some((first, end));
                let taken = Greeting { kind: Kind::Taken, flow: index as u32, token: 0, values: (0, 0) };
                // When it gets lost, the sender asks again or gives up.
                let _ = send(&connection.socket, &taken.encode(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
                return true;
            }
            Some(Greeting { kind: Kind::Taken, .. }) => connection.taken.store(true, Ordering::Relaxed),
            // A Hello or a Welcome that was said twice.
            _ => {}
        }
        false
    }
}

impl Engine for Receiver {
    fn run(&mut self, connections: &[&Connection], progress: &LoadProgress) -> Result<(), ThreadFailure> {
        let (mut times, mut heard) = (progress.times(), 0);
        if let Some(delay) = &mut self.delay {
            delay.peer_clock_ns = progress.peer_clock_ns();
        }
        // A sender may hand over a batch at once.
        let mut intake = ReceiveLimit::new(progress.intake(), 2 * self.burst);
        let mut take = |index, connection: &Connection| {
            progress.refresh(&mut times, &mut heard);
            self.take(index, connection, progress, &times, &mut intake)
        };
        if let [connection] = connections {
            while !progress.is_stopped() && take(0, connection)? == TurnResult::Next {}
            return Ok(());
        }
        serve(connections, || progress.is_stopped(), EventFlags::IN, |index, connection, _| take(index, connection))
    }

    fn report(&mut self) -> Report {
        let mut findings = Findings { record: std::mem::take(&mut self.record), ..Findings::default() };
        findings.record.delay = self.delay.take().map(|delay| delay.histogram);
        for flow in &self.flows {
            findings.record.received += flow.received;
            findings.record.lost += flow.lost();
            if let Some(jitter_ns) = flow.jitter.value_ns() {
                findings.jitter_ns += jitter_ns;
                findings.jitters += 1;
            }
        }
        let silent = self.flows.iter().filter(|flow| flow.farewell.is_none()).count();
        let note = format!(
            "{silent} of {} flows did not hear what their sender sent in all: datagrams lost at the edges of the window \
             are not counted",
            self.flows.len()
        );
        let notes = if silent > 0 { vec![note] } else { vec![] };
        Report { datagrams: Some(findings), notes, ..Report::default() }
    }
}
