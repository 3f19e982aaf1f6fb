//! How far the clocks of a load's two ends are apart, by datagrams that are exchanged over the load's own path.
//!
//! ```text
//! asking end     sent (T1) ----.                   .----> back (T4)
//! answering end                 '--> arrived (T2) ... answered (T3)
//! ```
//! The offset is ((T2 - T1) + (T3 - T4)) / 2 (RFC 5905, 8); half of the round trip (T4 - T1) - (T3 - T2) bounds its error, however
//! the way is divided. The exchange with the shortest round trip says most. All times are CLOCK_MONOTONIC of their end; the kernel
//! stamps by CLOCK_REALTIME, and an exchange during which somebody set that is not used.
//!
//! What is sent, both ways alike so that it takes equally long: six numbers of 8 bytes, most significant first.
//! ```text
//! magic | number | T2 | bound of T2 and T3 | number of the last exchange before | T3 of that
//! ```
//! When an answer left is known once it has left, so the next one says it.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rig_sys::clock::{RealtimeAhead, monotonic_ns};
use rig_sys::socket::{Dscp, receive_stamped, sent_stamp, stamp_datagrams};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::plan::SocketOptions;

const MAGIC: u64 = 0x6e72_636c_6f63_6b31;
const WORDS: usize = 6;
const LENGTH: usize = WORDS * 8;

/// Exchanges that are made; one more tells when the last was answered.
const EXCHANGES: u64 = 64;
/// No exchange begins after so long.
const LASTS: Duration = Duration::from_millis(200);
/// Between two of them, so that not all fall into one disturbance.
const GAP: Duration = Duration::from_millis(1);
/// How long an answer is waited for, and how many in a row may be missing.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(250);
const MISSING: u32 = 2;
/// How long the stamp of what was sent is waited for, and after how many in a row that did not come no more: on a machine that does much else
/// several may be late.
const STAMP_TIMEOUT: Duration = Duration::from_millis(1);
const UNSTAMPED: u32 = 16;

/// The answering end's clock, as the asking end knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathOffset {
    /// When it was found out, by the asking end's clock, ns.
    pub at_ns: u64,
    /// The answering end's clock less the asking one's.
    pub ns: i64,
    /// The true offset is not further from `ns` than this.
    pub bound_ns: u64,
    /// Exchanges that it is the best of.
    pub exchanges: u32,
    /// How many of these the kernels of both ends stamped, when they sent and when they received.
    pub stamped: u32,
    /// Exchanges that were not used, because somebody set CLOCK_REALTIME meanwhile.
    pub stepped: u32,
}

/// One exchange: T1 to T4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Exchange {
    sent: u64,
    arrived: u64,
    answered: u64,
    back: u64,
    /// How wrong the times of each end can be all together, because they were converted.
    reading: u64,
}

impl Exchange {
    /// Offset and its bound. `None` where these are no times of an exchange.
    fn offset(self) -> Option<(i64, u64)> {
        let Self { sent, arrived, answered, back, reading } = self;
        // What was converted may seem to be before what it comes after.
        let round_trip = (back.checked_sub(sent)? + reading).saturating_sub(answered.checked_sub(arrived)?);
        let ahead = i128::from(arrived) - i128::from(sent) + i128::from(answered) - i128::from(back);
        Some((i64::try_from(ahead / 2).ok()?, round_trip.div_ceil(2) + 1 + reading))
    }
}

/// The best of exchanges so far.
#[derive(Debug, Clone, Copy, Default)]
struct Best {
    found: Option<PathOffset>,
    stepped: u32,
}

impl Best {
    fn add(&mut self, exchange: Exchange, stamped: bool) {
        let Some((ns, bound_ns)) = exchange.offset() else { return };
        let before = self.found;
        let (exchanges, stamps) = before.map_or((0, 0), |before| (before.exchanges, before.stamped));
        let this = PathOffset { at_ns: exchange.back, ns, bound_ns, exchanges: 0, stamped: 0, stepped: 0 };
        let best = before.filter(|before| before.bound_ns <= bound_ns).unwrap_or(this);
        self.found = Some(PathOffset { exchanges: exchanges + 1, stamped: stamps + u32::from(stamped), ..best });
    }

    fn found(self) -> Option<PathOffset> {
        self.found.map(|found| PathOffset { stepped: self.stepped, ..found })
    }
}

/// What of a load's packets may decide on their way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathMarks {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dscp: Option<Dscp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hop_limit: Option<u32>,
}

impl PathMarks {
    /// Those of a load's packets.
    pub fn of(options: &SocketOptions) -> Self {
        let SocketOptions { dscp, hop_limit, .. } = *options;
        Self { dscp, hop_limit }
    }

    /// Has what a socket sends carry them.
    ///
    /// # Errors
    /// What the kernel does not grant, by name.
    pub fn apply(self, socket: &UdpSocket) -> io::Result<()> {
        let Self { dscp, hop_limit } = self;
        let ipv6 = socket.local_addr()?.is_ipv6();
        SocketOptions { dscp, hop_limit, ..SocketOptions::default() }.apply(socket, ipv6).map_err(io::Error::other)
    }
}

/// A connected socket, and how its end's times are converted.
struct StampingEnd {
    socket: UdpSocket,
    realtime: RealtimeAhead,
    /// Datagrams sent, as the kernel numbers them.
    sent: u32,
    unstamped: u32,
}

/// A time by CLOCK_MONOTONIC, and whether the kernel took it.
type Stamp = (u64, bool);

impl StampingEnd {
    fn new(socket: UdpSocket) -> io::Result<Self> {
        // Without stamps the times of the calls hold, and the bound is larger by what the calls take.
        let unstamped = if stamp_datagrams(&socket).is_ok() { 0 } else { UNSTAMPED };
        Ok(Self { socket, realtime: RealtimeAhead::read(), sent: 0, unstamped })
    }

    /// Sends, and tells when that was.
    fn send(&mut self, words: [u64; WORDS]) -> io::Result<Stamp> {
        let began = monotonic_ns();
        self.socket.send(&encode(words))?;
        let number = self.sent;
        self.sent = self.sent.wrapping_add(1);
        if self.unstamped < UNSTAMPED {
            let until = monotonic_ns() + STAMP_TIMEOUT.as_nanos() as u64;
            loop {
                match sent_stamp(&self.socket)? {
                    Some((of, at)) if of == number => {
                        self.unstamped = 0;
                        return Ok((self.realtime.monotonic(at), true));
                    }
                    // Of one that was given up.
                    Some(_) => {}
                    None if monotonic_ns() >= until => break,
                    None => wait(&mut [PollFd::new(&self.socket, PollFlags::empty())], until)?,
                }
            }
            self.unstamped += 1;
        }
        Ok((began, false))
    }

    /// Waits for a datagram of ours until then, and tells when it came.
    fn receive(&mut self, until_ns: u64, stop: Option<BorrowedFd<'_>>) -> io::Result<Option<([u64; WORDS], Stamp)>> {
        let mut buffer = [0; LENGTH + 1];
        loop {
            match receive_stamped(&self.socket, &mut buffer) {
                Ok((length, at)) => {
                    let now = monotonic_ns();
                    let stamp = at.map_or((now, false), |at| (self.realtime.monotonic(at), true));
                    if let Some(words) = decode(&buffer[..length]) {
                        return Ok(Some((words, stamp)));
                    }
                }
                // Nobody listens there yet, or any more.
                Err(Errno::AGAIN | Errno::INTR | Errno::CONNREFUSED) => {}
                Err(error) => return Err(error.into()),
            }
            // A stamp that came too late would end each wait at once.
            while sent_stamp(&self.socket)?.is_some() {}
            if monotonic_ns() >= until_ns || stop.is_some_and(has_ended) {
                return Ok(None);
            }
            let own = PollFd::new(&self.socket, PollFlags::IN);
            match &stop {
                Some(stop) => wait(&mut [own, PollFd::new(stop, PollFlags::IN)], until_ns)?,
                None => wait(&mut [own], until_ns)?,
            }
        }
    }

    /// Reads both clocks again: the bound of the times that were converted since the last reading, or `None` when somebody set
    /// CLOCK_REALTIME since.
    fn check(&mut self) -> Option<u64> {
        let before = std::mem::replace(&mut self.realtime, RealtimeAhead::read());
        before.agrees(self.realtime).then_some(before.bound_ns)
    }
}

fn wait(sockets: &mut [PollFd<'_>], until_ns: u64) -> io::Result<()> {
    let left = until_ns.saturating_sub(monotonic_ns());
    let left = Timespec { tv_sec: (left / 1_000_000_000) as _, tv_nsec: (left % 1_000_000_000) as _ };
    match poll(sockets, Some(&left)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Whether there is something to be read, or nothing any more.
fn has_ended(input: BorrowedFd<'_>) -> bool {
    let mut input = [PollFd::new(&input, PollFlags::IN)];
    poll(&mut input, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
}

fn encode(words: [u64; WORDS]) -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    bytes.chunks_exact_mut(8).zip(words).for_each(|(place, word)| place.copy_from_slice(&word.to_be_bytes()));
    bytes
}

/// `None` when they are none of ours.
fn decode(bytes: &[u8]) -> Option<[u64; WORDS]> {
    let bytes: &[u8; LENGTH] = bytes.try_into().ok()?;
    let mut words = [0; WORDS];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_be_bytes(*bytes.first_chunk()?);
    }
    (words[0] == MAGIC).then_some(words)
}

/// Answers at `address` until `input` ends. `ready` is called once it can be asked.
///
/// # Errors
/// When the address cannot be had, or the kernel refuses.
pub fn answer(address: SocketAddr, input: impl AsFd, ready: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let socket = UdpSocket::bind(address)?;
    ready()?;
    answer_over(socket, None, input)
}

/// Answers over a socket that is bound until `input` ends, and only who has that address, where one is given.
///
/// # Errors
/// When the kernel refuses.
pub fn answer_over(socket: UdpSocket, only_to: Option<IpAddr>, input: impl AsFd) -> io::Result<()> {
    let input = input.as_fd();
    let mut end = StampingEnd::new(socket)?;
    let is_asking = |from: SocketAddr| only_to.is_none_or(|address| address == from.ip().to_canonical());
    // The first to ask is the one that is answered.
    let mut first = [0; LENGTH + 1];
    loop {
        wait(&mut [PollFd::new(&end.socket, PollFlags::IN), PollFd::new(&input, PollFlags::IN)], u64::MAX)?;
        if has_ended(input) {
            return Ok(());
        }
        let (length, from) = end.socket.peek_from(&mut first)?;
        if decode(&first[..length]).is_some() && is_asking(from) {
            end.socket.connect(from)?;
            break;
        }
        end.socket.recv_from(&mut first)?;
    }
    // The number, and when it was answered, of the exchange before; 0 where that is not known.
    let mut last = (0, 0);
    while !has_ended(input) {
        let Some((words, (arrived, _))) = end.receive(u64::MAX, Some(input))? else { continue };
        let bound = end.check();
        let known = if bound.is_some() { arrived } else { 0 };
        let bound = bound.unwrap_or(0).max(end.realtime.bound_ns);
        let (answered, _) = end.send([MAGIC, words[1], known, bound, last.0, last.1])?;
        last = (words[1], if end.check().is_some() { answered } else { 0 });
    }
    Ok(())
}

/// Exchanges datagrams with who answers at `to`. `None` where nobody does.
///
/// # Errors
/// When the kernel refuses.
pub fn ask(to: SocketAddr) -> io::Result<Option<PathOffset>> {
    let any: SocketAddr = if to.is_ipv4() { ([0; 4], 0).into() } else { ([0u16; 8], 0).into() };
    let socket = UdpSocket::bind(any)?;
    socket.connect(to)?;
    ask_over(socket, None)
}

/// Asks over a connected socket, until it is over or there is something to be read from `stop`.
///
/// # Errors
/// When the kernel refuses.
pub fn ask_over(socket: UdpSocket, stop: Option<BorrowedFd<'_>>) -> io::Result<Option<PathOffset>> {
    let mut end = StampingEnd::new(socket)?;
    let (mut best, mut missing) = (Best::default(), 0);
    let begin = monotonic_ns();
    let until = begin + LASTS.as_nanos() as u64;
    let mut last: Option<(u64, Exchange, bool)> = None;
    for number in begin.. {
        let is_over = number - begin >= EXCHANGES || (number > begin && monotonic_ns() >= until);
        let (sent, is_stamped) = match end.send([MAGIC, number, 0, 0, 0, 0]) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => (0, false),
            sent => sent?,
        };
        let deadline = monotonic_ns() + ANSWER_TIMEOUT.as_nanos() as u64;
        let answer = loop {
            match end.receive(deadline, stop)? {
                // One that was given up.
                Some((words, _)) if words[1] != number => {}
                answer => break answer,
            }
        };
        let own = end.check();
        let before = last.take();
        if let Some(([_, _, arrived, bound, of, answered], (back, is_back_stamped))) = answer {
            missing = 0;
            if let Some((_, exchange, stamped)) = before.filter(|(number, ..)| *number == of) {
                match answered {
                    0 => best.stepped += 1,
                    answered => best.add(Exchange { answered, ..exchange }, stamped),
                }
            }
            match own.filter(|_| arrived > 0) {
                None => best.stepped += 1,
                Some(own) => {
                    let exchange = Exchange { sent, arrived, answered: 0, back, reading: own + bound };
                    last = Some((number, exchange, is_stamped && is_back_stamped));
                }
            }
        } else {
            missing += 1;
        }
        if is_over || missing >= MISSING || stop.is_some_and(has_ended) {
            break;
        }
        std::thread::sleep(GAP);
    }
    Ok(best.found())
}

#[cfg(test)]
mod tests {
    use std::io::pipe;
    use std::sync::mpsc::channel;
    use std::thread;

    use proptest::prelude::*;

    use super::*;

    /// An exchange over a way that takes so long there and back, with an answering end whose clock shows `offset` more at first and
    /// runs faster by `ppm`, and times that are each converted by so much wrong.
    fn simulated(offset: i64, ppm: i64, way: [u64; 3], wrong: [i64; 2], reading: u64) -> (Exchange, i64) {
        const SENT: u64 = 2_000_000_000_000;
        let [there, held, back] = way;
        let truth = |at: u64| offset + (i128::from(at) * i128::from(ppm) / 1_000_000) as i64;
        let theirs = |at: u64, wrong: i64| at.checked_add_signed(truth(at - SENT) + wrong).unwrap();
        let (arrived, answered) = (SENT + there, SENT + there + held);
        let exchange = Exchange {
            sent: SENT,
            arrived: theirs(arrived, wrong[0]),
            answered: theirs(answered, wrong[1]),
            back: answered + back,
            reading,
        };
        (exchange, truth(there + held / 2))
    }

    proptest! {
        #[test]
        fn the_offset_is_within_its_bound_however_the_way_is_divided(
            offset in -1_000_000_000_000i64..1_000_000_000_000,
            ppm in -200i64..200,
            there in 0u64..100_000_000,
            back in 0u64..100_000_000,
            held in 0u64..1_000_000,
            wrong in (-100i64..=100, -100i64..=100),
        ) {
            let (exchange, truth) = simulated(offset, ppm, [there, held, back], [wrong.0, wrong.1], 100);
            let (found, bound) = exchange.offset().unwrap();
            // What the clocks drift while it lasts is not in the bound: nanoseconds of a usual way.
            let drifted = (there + held + back) * ppm.unsigned_abs() / 1_000_000 + 1;
            prop_assert!(found.abs_diff(truth) <= bound + drifted, "{found} {truth} {bound}");
            prop_assert!(bound <= (there + back) / 2 + 302 + drifted);
        }

        #[test]
        fn no_times_make_it_panic(sent: u64, arrived: u64, answered: u64, back: u64, reading in 0u64..1000) {
            let _ = Exchange { sent, arrived, answered, back, reading }.offset();
        }

        #[test]
        fn what_is_none_of_ours_is_told(bytes in prop::collection::vec(any::<u8>(), 0..60), words: [u64; 5]) {
            prop_assert_eq!(decode(&bytes), None);
            let [number, arrived, bound, of, answered] = words;
            let words = [MAGIC, number, arrived, bound, of, answered];
            prop_assert_eq!(decode(&encode(words)), Some(words));
        }
    }

    #[test]
    fn the_shortest_round_trip_says_most() {
        let mut best = Best::default();
        let mut add = |way, stamped| best.add(simulated(7_000, 0, way, [0; 2], 0).0, stamped);
        add([900, 50, 100], true);
        add([110, 5_000, 100], false);
        add([100, 50, 5_000], true);
        // An answer before its question.
        best.add(Exchange { sent: 9, arrived: 8, answered: 7, back: 10, reading: 0 }, true);
        best.stepped += 2;
        let found = best.found().unwrap();
        assert_eq!((found.ns, found.bound_ns), (7_005, 106));
        assert_eq!((found.exchanges, found.stamped, found.stepped), (3, 2, 2));
    }

    #[test]
    fn a_step_of_the_time_of_day_is_noticed() {
        let mut end = StampingEnd::new(UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap();
        assert!(end.check().is_some());
        // As it would have been read, had somebody since set the clock by a microsecond.
        end.realtime.ns += 1_000 + 2 * end.realtime.bound_ns as i64;
        assert_eq!(end.check(), None);
        assert!(end.check().is_some());
    }

    #[test]
    fn one_clock_is_not_apart_from_itself() {
        for free in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(address) = UdpSocket::bind(free).and_then(|socket| socket.local_addr()) else { continue };
            let (input, end) = pipe().unwrap();
            let (tell, told) = channel();
            let answering = thread::spawn(move || answer(address, input, || tell.send(()).map_err(io::Error::other)));
            told.recv().unwrap();
            // Strangers are not answered, and what is no question is none.
            let stranger = UdpSocket::bind(free).unwrap();
            stranger.send_to(b"?", address).unwrap();
            let found = ask(address).unwrap().unwrap();
            assert!(found.ns.unsigned_abs() <= found.bound_ns, "{found:?}");
            assert!(found.exchanges > 0 && found.stamped <= found.exchanges, "{found:?}");
            drop(end);
            answering.join().unwrap().unwrap();
            assert_eq!(ask(address).unwrap(), None);
            // Who has another address is not answered, and who shall stop does not wait for it.
            let socket = UdpSocket::bind(free).unwrap();
            let address = socket.local_addr().unwrap();
            let (input, end) = pipe().unwrap();
            let other = Some([192, 0, 2, 1].into());
            let answering = thread::spawn(move || answer_over(socket, other, input));
            let asking = || {
                let socket = UdpSocket::bind(free).unwrap();
                socket.connect(address).unwrap();
                socket
            };
            assert_eq!(ask_over(asking(), None).unwrap(), None);
            let (stop, stopped) = pipe().unwrap();
            drop(stopped);
            assert_eq!(ask_over(asking(), Some(stop.as_fd())).unwrap(), None);
            drop(end);
            answering.join().unwrap().unwrap();
        }
    }
}
