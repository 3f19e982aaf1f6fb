//! The sending side of a datagram stream.

use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rig_sys::clock::{monotonic_after, monotonic_ns};
use rig_sys::socket::{self, SendBatch, buffer};
use rustix::event::{PollFd, PollFlags, epoll::EventFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::super::modes::Buffer;
use super::super::pace::Pace;
use super::super::ready::{TurnResult, serve};
use super::super::{Connection, Engine, LoadProgress, Report, ThreadFailure, Times, failure};
use super::wire::{Header, Phase};
use super::{Findings, phase, totals};
use crate::greeting::{self, Greeting, Kind};
use crate::plan::{Datagrams, Pacing};
use crate::record::DatagramRecord;
use crate::wait::timespec;

/// How often a farewell is repeated, and for how long, when the receiver does not take it.
const FAREWELL_DISTANCE: Duration = Duration::from_millis(10);
const FAREWELL_TIMEOUT: Duration = Duration::from_millis(900);

/// By how much a rate may be exceeded before it is noted.
const PACING_SLACK: f64 = 0.1;

#[derive(Debug)]
pub(super) struct Sender {
    batch: SendBatch,
    /// Messages that may leave with one call at the rate that the kernel is told, or at no rate at all.
    most: usize,
    message: usize,
    segments: usize,
    /// Of this end, which share the rate.
    threads: usize,
    throttle: Option<u64>,
    /// What the kernel was told to hold all flows together to, payload bytes per second.
    kernel_rate: Option<u64>,
    /// Another thread takes what arrives.
    duplex: bool,
    flows: Vec<Flow>,
    findings: Findings,
    notes: Vec<String>,
}

/// What one flow has sent.
#[derive(Debug, Clone, Copy, Default)]
struct Flow {
    /// The next number.
    next: u64,
    /// The first number inside the window, and the first after it.
    first: Option<u64>,
    end: Option<u64>,
    /// The kernel stopped in the middle of a batch without saying why.
    cautious: bool,
}

impl Flow {
    #[inline]
    fn mark(&mut self, phase: Phase) {
        if phase != Phase::Before && self.first.is_none() {
            self.first = Some(self.next);
        }
        if phase == Phase::After && self.end.is_none() {
            self.end = Some(self.next);
        }
    }

    fn farewell(&self, index: usize) -> Greeting {
        let first = self.first.unwrap_or(self.next);
        let values = (first, self.end.unwrap_or(self.next));
        Greeting { kind: Kind::Farewell, flow: index as u32, token: 0, values }
    }
}

/// What became of a batch.
enum Burst {
    /// Payload bytes that the kernel took.
    Sent(usize),
    /// The load is over.
    Over,
}

impl Sender {
    pub(super) fn new(load: &Datagrams, duplex: bool, flows: usize) -> Self {
        let (message, segments) = (load.message as usize, load.segments as usize);
        let kernel_rate = load.throttle.filter(|_| load.pacing == Pacing::Kernel);
        let most = load.batch as usize;
        Self {
            batch: SendBatch::new(most, Buffer::new(message * segments).get()),
            most: if kernel_rate.is_some() { load.sent_together() as usize } else { most },
            message,
            segments,
            threads: load.threads as usize,
            throttle: load.throttle.filter(|_| load.pacing == Pacing::Thread),
            kernel_rate,
            duplex,
            flows: vec![Flow::default(); flows],
            findings: Findings {
                record: DatagramRecord { total: totals(load), ..DatagramRecord::default() },
                ..Findings::default()
            },
            notes: vec![],
        }
    }

    /// Threads begin one after the other, so that their datagrams do not leave in step.
    fn pace(&self, connections: &[&Connection], progress: &LoadProgress) -> Option<Pace> {
        let (unit, ceiling) = (self.segments * self.message, progress.ceiling());
        let mut pace = Pace::following(self.throttle, ceiling, 0)?;
        if ceiling.is_some() {
            pace.spend(pace.batch(unit, self.most) * unit);
        }
        let thread = connections.first().map_or(0, |connection| connection.thread as usize);
        pace.spend(unit * thread / self.threads);
        Some(pace)
    }

    /// Numbers, stamps and sends one batch of up to `most` messages.
    fn burst(
        &mut self,
        (index, most): (usize, usize),
        connection: &Connection,
        progress: &LoadProgress,
        times: &Times,
    ) -> Result<Burst, ThreadFailure> {
        let now_ns = monotonic_ns();
        if now_ns >= times.stop_ns {
            return Ok(Burst::Over);
        }
        let flow = &mut self.flows[index];
        let phase = phase(times, now_ns);
        flow.mark(phase);
        // sendmmsg forgets the error that stopped it behind the first message; only a message alone brings it to light.
        let messages = if flow.cautious { 1 } else { most };
        let mut sequence = flow.next;
        for message in 0..messages {
            for datagram in self.batch.message(message).chunks_exact_mut(self.message) {
                Header { phase, sequence, sent_ns: now_ns }.write(datagram);
                sequence += 1;
            }
        }
        let record = &mut self.findings.record;
        let counts = u64::from(phase == Phase::Window);
        match self.batch.send(&connection.socket, messages, true) {
            Ok(sent) => {
                let datagrams = sent * self.segments;
                flow.next += datagrams as u64;
                flow.cautious = sent < messages;
                record.sent += counts * datagrams as u64;
                if let Some(total) = &mut record.total {
                    total.sent += datagrams as u64;
                }
                record.calls += counts;
                connection.tally.add(datagrams * self.message);
                connection.tally.add_units(datagrams as u64);
                Ok(Burst::Sent(datagrams * self.message))
            }
            Err(Errno::INTR) => Ok(Burst::Sent(0)),
            Err(Errno::AGAIN | Errno::NOBUFS) => {
                record.send_errors += counts;
                Ok(Burst::Sent(0))
            }
            Err(_) if progress.may_end() => Ok(Burst::Over),
            Err(errno) => Err(self.refusal(connection, errno)),
        }
    }

    /// The kernel's refusal in words that name the option at fault.
    fn refusal(&self, connection: &Connection, errno: Errno) -> ThreadFailure {
        let (message, segments) = (self.message, self.segments);
        let reason = io::Error::from(errno);
        let (what, why) = match errno {
            Errno::CONNREFUSED => ("send to".into(), "the peer has closed its socket (port unreachable)".into()),
            Errno::MSGSIZE | Errno::INVAL | Errno::IO if segments > 1 => (
                format!("send {segments} segments of {message} bytes as one message to"),
                format!(
                    "{reason}: UDP_SEGMENT needs a device that computes checksums and whose MTU holds a segment; \
                     set `segments` (--gso) to 1 or lower `message`"
                ),
            ),
            Errno::MSGSIZE => (format!("send a datagram of {message} bytes to"), format!("{reason}: lower `message`")),
            _ => ("send to".into(), reason.to_string()),
        };
        failure(&what, connection, &why)
    }

    /// Says what was sent inside the window until the peer has taken it, or has had time enough.
    fn part(&mut self, connections: &[&Connection], progress: &LoadProgress) {
        let over_ns = monotonic_after(FAREWELL_TIMEOUT);
        let mut open: Vec<usize> = (0..connections.len()).collect();
        while !open.is_empty() && !progress.is_stopped() && monotonic_ns() < over_ns {
            open.retain(|&index| {
                let farewell = self.flows[index].farewell(index).encode();
                let sent = send(&connections[index].socket, &farewell, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
                if let (Ok(_), Some(total)) = (sent, &mut self.findings.record.total) {
                    total.farewells_sent += 1;
                }
                // A peer that has closed its socket is done.
                sent != Err(Errno::CONNREFUSED) && sent != Err(Errno::PIPE)
            });
            let again_ns = monotonic_after(FAREWELL_DISTANCE);
            while !open.is_empty() && !progress.is_stopped() && monotonic_ns() < again_ns {
                self.listen(connections, &open, again_ns);
                open.retain(|&index| !connections[index].taken.load(Ordering::Relaxed));
            }
        }
    }

    /// Notes when the kernel has not paced. Without fq on the way out it ignores what it was told, and nothing says so.
    fn check_pacing(&mut self, connections: &[&Connection], began_ns: u64) {
        let Some(rate) = self.kernel_rate else { return };
        // What the socket buffers hold has been taken, and not been sent.
        let buffered: u64 =
            connections.iter().map(|c| u64::from(buffer(&c.socket, socket::Buffer::Send).unwrap_or(u32::MAX))).sum();
        let sent: u64 = self.flows.iter().map(|flow| flow.next * self.message as u64).sum();
        let seconds = monotonic_ns().saturating_sub(began_ns) as f64 / 1e9;
        let allowed = seconds * rate as f64 * (1.0 + PACING_SLACK);
        if sent.saturating_sub(buffered) as f64 > allowed {
            self.notes.push(format!(
                "pacing by the kernel did not hold: {sent} bytes sent in {seconds:.3} s at {rate} bytes per second; it \
                 needs the fq queueing discipline on the outgoing interface (`tc qdisc replace dev DEV root fq`)"
            ));
        }
    }

    /// Waits for answers until `until_ns`.
    fn listen(&self, connections: &[&Connection], open: &[usize], until_ns: u64) {
        let left = Duration::from_nanos(until_ns.saturating_sub(monotonic_ns()));
        if self.duplex {
            // The receiving thread takes the answer.
            std::thread::park_timeout(left.min(Duration::from_millis(1)));
            return;
        }
        let mut fds: Vec<_> = open.iter().map(|&i| PollFd::new(&connections[i].socket, PollFlags::IN)).collect();
        if poll(&mut fds, Some(&timespec(left.as_nanos() as u64))).is_err() {
            return;
        }
        let mut bytes = [0; greeting::LENGTH + 1];
        for &index in open {
            while let Ok((_, length)) = recv(&connections[index].socket, &mut bytes, RecvFlags::DONTWAIT) {
                if Greeting::decode(&bytes[..length]).is_some_and(|greeting| greeting.kind == Kind::Taken) {
                    connections[index].taken.store(true, Ordering::Relaxed);
                }
                if length == 0 {
                    break;
                }
            }
        }
    }
}

/// Waits until the next batch is due or the load over.
fn wait(pace: &mut Option<Pace>, progress: &LoadProgress, times: &Times) {
    while let Some(due_ns) = pace.as_mut().and_then(|pace| pace.due(progress)) {
        let now_ns = monotonic_ns();
        if progress.is_stopped() || now_ns >= times.stop_ns {
            return;
        }
        std::thread::park_timeout(Duration::from_nanos(due_ns.min(times.stop_ns).saturating_sub(now_ns)));
    }
}

impl Engine for Sender {
    fn run(&mut self, connections: &[&Connection], progress: &LoadProgress) -> Result<(), ThreadFailure> {
        let (mut times, mut heard) = (progress.times(), 0);
        let began_ns = monotonic_ns();
        // What the kernel is told to pace, it does not without fq: a ceiling holds all the same.
        let unit = self.segments * self.message;
        let mut pace = self.pace(connections, progress);
        let mut turn = |index: usize, connection: &Connection| {
            progress.refresh(&mut times, &mut heard);
            wait(&mut pace, progress, &times);
            let most = pace.as_ref().map_or(self.most, |pace| pace.batch(unit, self.most));
            match self.burst((index, most), connection, progress, &times)? {
                Burst::Sent(bytes) => {
                    if let Some(pace) = &mut pace {
                        pace.spend(bytes);
                    }
                    Ok(TurnResult::Next)
                }
                Burst::Over => Ok(TurnResult::Ended),
            }
        };
        if let [connection] = connections {
            while !progress.is_stopped() && turn(0, connection)? == TurnResult::Next {}
        } else {
            let over = || progress.is_stopped();
            serve(connections, over, EventFlags::OUT, |index, connection, _| turn(index, connection))?;
        }
        self.check_pacing(connections, began_ns);
        // Those that ended early say farewell at the same time as the others.
        self.flows.iter_mut().for_each(|flow| flow.mark(Phase::After));
        self.part(connections, progress);
        Ok(())
    }

    fn report(&mut self) -> Report {
        let (findings, notes) = (std::mem::take(&mut self.findings), std::mem::take(&mut self.notes));
        Report { datagrams: Some(findings), notes, ..Report::default() }
    }
}
