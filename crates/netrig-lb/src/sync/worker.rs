//! The thread that tells peers of connections and hears of theirs.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;
use rig_cli::exit::in_words;
use rig_datapath::balancer::{Adopted, Adopter, AdoptionRefusal, BalancerHandle, SharedConnection, TableRecord};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::SyncSettings;
use super::board::{SILENCE, SyncBoard, SyncEvent};
use super::pace::SendPace;
use super::peer::Peer;
use super::session::PeerSession;
use super::tracker::{Tracker, Turn, is_answered};
use super::wire::{self, Body, Key, LARGEST, MessageRefusal};
use crate::message::SyncStatus;

/// How often peers are greeted.
const BEAT: Duration = Duration::from_secs(1);
/// The longest wait, after which it is looked whether the thread is to end.
const LOOK: Duration = Duration::from_millis(100);
/// Places of the table that are looked through in one go; the share of a CPU is one over [`SHARE`].
const SLICE: u32 = 1 << 14;
const SHARE: u32 = 4;
/// How long records wait for others to fill their datagram.
const PATIENCE: Duration = Duration::from_millis(100);
/// Datagrams that are read before something else is done.
const AT_ONCE: usize = 256;
/// Of the socket: some thousand datagrams.
const BUFFER: usize = 4 << 20;

/// A running thread; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Sync {
    settings: SyncSettings,
    board: Arc<Mutex<SyncBoard>>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

fn locked(board: &Mutex<SyncBoard>) -> MutexGuard<'_, SyncBoard> {
    board.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sync {
    /// `resumes`: the table has connections of before, so that nobody has to be waited for.
    ///
    /// # Errors
    /// When there is no socket or no thread to be had.
    pub(crate) fn start(
        handle: BalancerHandle,
        settings: &SyncSettings,
        key: [u8; 32],
        resumes: bool,
    ) -> anyhow::Result<Self> {
        let key = Key::new(key);
        let how = || format!("hear other balancers at {}", settings.address);
        let socket = UdpSocket::bind(settings.address).with_context(how)?;
        socket.set_nonblocking(true).with_context(how)?;
        if rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER).is_err() {
            // As much as the machine allows (net.core.rmem_max).
            let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&socket, BUFFER);
        }
        let board = SyncBoard {
            peers: settings.peers.iter().map(|peer| (*peer, Default::default())).collect(),
            settling: (!resumes).then(Instant::now),
            ..SyncBoard::default()
        };
        let (board, ends) = (Arc::new(Mutex::new(board)), Arc::<AtomicBool>::default());
        let now = Instant::now();
        let own = draw()?;
        let peers = settings.peers.iter().map(|address| Ok(Peer::new(*address, PeerSession::new(own, draw()?), now)));
        let ticks = (settings.after.as_nanos() >> 27) as u32;
        let tick = handle.now_tick().with_context(how)?;
        let worker = Worker {
            tracker: Tracker::new(handle.record_slots(), ticks, resumes.then_some(tick)),
            settings: settings.clone(),
            key,
            socket,
            board: Arc::clone(&board),
            ends: Arc::clone(&ends),
            peers: peers.collect::<io::Result<_>>()?,
            handle,
            pace: SendPace::new(settings.rate, now),
            beat: now,
            rested: Duration::ZERO,
            buffer: vec![0; 1 << 16],
        };
        let thread = std::thread::Builder::new().name("sync".into()).spawn(move || worker.work()).with_context(how)?;
        Ok(Self { settings: settings.clone(), board, ends, thread: Some(thread) })
    }

    pub(crate) fn take_events(&self) -> (Vec<SyncEvent>, Option<String>) {
        let mut board = locked(&self.board);
        let ended = self.thread.as_ref().is_none_or(JoinHandle::is_finished);
        let ended = ended.then(|| "the thread that shares connections has ended by an error".to_owned());
        (std::mem::take(&mut board.events), ended.or_else(|| board.trouble()))
    }

    /// Whether peers may have connections that are to be here before packets come.
    pub(crate) fn is_settling(&self) -> bool {
        !locked(&self.board).awaited(Instant::now()).is_empty()
    }

    pub(crate) fn status(&self) -> SyncStatus {
        let mut board = locked(&self.board);
        let awaited = board.awaited(Instant::now());
        let refused = MessageRefusal::ALL.iter().filter_map(|why| {
            let count = board.refused.get(why).copied().filter(|count| *count > 0)?;
            Some(crate::message::CountByReason { reason: why.key().to_owned(), count })
        });
        SyncStatus {
            address: self.settings.address,
            interval_ms: self.settings.interval.as_millis() as u64,
            after_ms: self.settings.after.as_millis() as u64,
            full_ms: self.settings.full.as_millis() as u64,
            own: board.own,
            others: board.others,
            left_out: board.left_out,
            lag_ms: board.looked.map(|(begun, _)| begun.elapsed().as_millis() as u64),
            round_ms: board.looked.map(|(_, took)| took.as_millis() as u64),
            refused: refused.collect(),
            trouble: board.trouble(),
            awaited,
            peers: board.peers.iter().map(|(address, counts)| counts.status(*address)).collect(),
        }
    }
}

impl Drop for Sync {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

/// A number that nobody can guess; not 0.
fn draw() -> io::Result<u64> {
    getrandom::u64().map(|drawn| drawn.max(1)).map_err(io::Error::other)
}

/// The time; where it cannot be told, that of the record's own last look at it.
fn tick_of(handle: &BalancerHandle, record: &TableRecord) -> u32 {
    handle.now_tick().unwrap_or_else(|_| record.tick.wrapping_add(record.connection.idle))
}

struct Worker {
    settings: SyncSettings,
    handle: BalancerHandle,
    key: Key,
    socket: UdpSocket,
    board: Arc<Mutex<SyncBoard>>,
    ends: Arc<AtomicBool>,
    peers: Vec<Peer>,
    tracker: Tracker,
    pace: SendPace,
    /// When peers are greeted again.
    beat: Instant,
    /// How long it has rested since it began with a part of the table.
    rested: Duration,
    buffer: Vec<u8>,
}

impl Worker {
    fn work(mut self) {
        let mut round = Instant::now();
        while !self.is_over() {
            self.attend();
            let now = Instant::now();
            if now >= round {
                let looked = self.look();
                locked(&self.board).look_trouble =
                    looked.err().map(|error| format!("cannot share connections: {}", in_words(&error.into())));
                round = (now + self.settings.interval).max(Instant::now());
                continue;
            }
            self.hear_until(round.min(self.beat));
        }
    }

    fn is_over(&self) -> bool {
        self.ends.load(Ordering::Relaxed)
    }

    /// Looks through the table once, and tells peers what they are to know.
    fn look(&mut self) -> Result<(), rig_datapath::Error> {
        let begun = Instant::now();
        self.peers.iter_mut().for_each(|peer| peer.begin_round(begun, self.settings.full));
        let (handle, now) = (self.handle.clone(), self.handle.now_tick()?);
        let (mut own, mut others, mut left_out) = (0, 0, 0);
        let (mut slice, mut places) = (Instant::now(), 0);
        self.rested = Duration::ZERO;
        let looked = handle.records(|slot, record| {
            places += 1;
            match record {
                None => self.tracker.empty(slot),
                Some(record) if record.is_spliced => left_out += 1,
                Some(record) => {
                    let turn = self.tracker.turn(&record, now);
                    if turn == Turn::Others {
                        others += 1;
                    } else {
                        own += 1;
                    }
                    self.tell(&record, turn);
                }
            }
            if places % SLICE == 0 {
                let worked = slice.elapsed().saturating_sub(std::mem::take(&mut self.rested));
                self.rest(Instant::now() + worked * (SHARE - 1));
                (slice, self.rested) = (Instant::now(), Duration::ZERO);
            }
            if self.is_over() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        for peer in 0..self.peers.len() {
            let until = self.flush(peer);
            let to = &mut self.peers[peer];
            if std::mem::take(&mut to.is_full) && looked.is_ok() && !self.ends.load(Ordering::Relaxed) {
                to.dumps = to.dumps.saturating_sub(1);
                locked(&self.board).peers.entry(to.address).or_default().passes += 1;
                let message = to.end_of_pass(&self.key);
                self.transmit(peer, &message, 0);
            }
            until.into_iter().for_each(|until| self.rest(until));
        }
        let mut board = locked(&self.board);
        (board.own, board.others, board.left_out) = (own, others, left_out);
        board.looked = Some((begun, begun.elapsed()));
        looked
    }

    fn tell(&mut self, record: &TableRecord, turn: Turn) {
        // A slot's note may be of the connection that was there before.
        if !is_answered(&record.connection) {
            return;
        }
        for peer in 0..self.peers.len() {
            let to = &mut self.peers[peer];
            let is_told = match turn {
                Turn::Silent => return,
                Turn::Others => to.is_full && to.dumps > 0,
                Turn::Known => to.is_full,
                Turn::News => true,
            };
            if is_told
                && to.hears()
                && let Some((message, count)) = to.put(&self.key, record, || tick_of(&self.handle, record))
                && let Some(until) = self.transmit(peer, &message, count)
            {
                self.rest(until);
            }
        }
        if turn == Turn::News {
            self.tracker.told(record);
        }
    }

    /// Sends the records that wait for their datagram; until when nothing more is to be sent.
    fn flush(&mut self, peer: usize) -> Option<Instant> {
        self.peers[peer].waits_since?;
        // Without a clock they would be told of as of now.
        let now = self.handle.now_tick().ok()?;
        let mut until = None;
        while let Some((message, count)) = self.peers[peer].flush(&self.key, now) {
            until = self.transmit(peer, &message, count).max(until);
        }
        until
    }

    /// Sends; until when nothing more is to be sent, as the rate has it.
    fn transmit(&mut self, peer: usize, message: &[u8], records: u16) -> Option<Instant> {
        let address = self.peers[peer].address;
        let sent = self.socket.send_to(message, address);
        let now = Instant::now();
        {
            let mut board = locked(&self.board);
            let counts = board.peers.entry(address).or_default();
            match sent {
                Ok(_) => {
                    counts.sent_messages += 1;
                    counts.sent_bytes += message.len() as u64;
                    counts.sent_records += u64::from(records);
                }
                Err(_) => counts.unsent_messages += 1,
            }
        }
        self.pace.sent(message.len(), now)
    }

    /// Hears what comes until then.
    fn rest(&mut self, until: Instant) {
        let begun = Instant::now();
        while Instant::now() < until && !self.is_over() {
            self.hear_until(until);
            self.attend();
        }
        self.rested += begun.elapsed();
    }

    /// What has its time, however long a look takes: greetings, and records that have waited.
    fn attend(&mut self) {
        let now = Instant::now();
        if now >= self.beat {
            self.beat = now + BEAT;
            (0..self.peers.len()).for_each(|peer| self.greet(peer));
            self.watch_silence();
        }
        for peer in 0..self.peers.len() {
            if self.peers[peer].waits_since.is_some_and(|since| now >= since + PATIENCE) {
                // Whatever is sent next waits for it.
                self.flush(peer);
            }
        }
    }

    fn greet(&mut self, peer: usize) {
        let message = self.peers[peer].hello(&self.key, self.handle.sizes().ports);
        self.transmit(peer, &message, 0);
    }

    fn watch_silence(&mut self) {
        let mut board = locked(&self.board);
        for peer in &mut self.peers {
            let heard = board.peers.get(&peer.address).and_then(|counts| counts.heard);
            let is_silent = heard.is_some_and(|heard| heard.elapsed() >= SILENCE);
            if is_silent && !peer.was_silent {
                board.events.push(SyncEvent::Silent(peer.address));
            }
            peer.was_silent = is_silent;
        }
    }

    /// Waits for datagrams until then, a moment at most, and does what they say.
    fn hear_until(&mut self, until: Instant) {
        let wait = until.saturating_duration_since(Instant::now()).min(LOOK);
        let time_limit = Timespec { tv_sec: 0, tv_nsec: wait.as_nanos() as _ };
        let socket = self.socket.as_fd();
        if !poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&time_limit)).is_ok_and(|ready| ready > 0) {
            return;
        }
        let adopter = self.handle.adopter();
        for _ in 0..AT_ONCE {
            let mut buffer = std::mem::take(&mut self.buffer);
            let received = self.socket.recv_from(&mut buffer);
            if let Ok((length, from)) = received {
                self.hear(&adopter, from, &buffer[..length]);
            }
            self.buffer = buffer;
            match received {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // What ICMP says of a peer that is not there comes as an error, too.
                Err(_) => return,
            }
        }
    }

    fn hear(&mut self, adopter: &Adopter, from: SocketAddr, message: &[u8]) {
        if let Err(why) = self.heed(adopter, from, message) {
            *locked(&self.board).refused.entry(why).or_default() += 1;
        }
    }

    fn heed(&mut self, adopter: &Adopter, from: SocketAddr, message: &[u8]) -> Result<(), MessageRefusal> {
        let at = |peer: &Peer| (peer.address.ip(), peer.address.port()) == (from.ip(), from.port());
        let number = self.peers.iter().position(at).ok_or(MessageRefusal::Stranger)?;
        if message.len() > LARGEST {
            return Err(MessageRefusal::Foreign);
        }
        let (header, body) = wire::open(&self.key, message)?;
        let hello = if let Body::Hello(hello) = &body { Some(hello) } else { None };
        let drawn = draw().map_err(|_| MessageRefusal::Session)?;
        let peer = &mut self.peers[number];
        let accepted = peer.session.accept(header, hello, drawn)?;
        let (address, now) = (peer.address, Instant::now());
        if accepted.is_believed {
            let mut board = locked(&self.board);
            // After a silence there may be much that it has missed.
            if std::mem::take(&mut peer.was_silent) || accepted.is_new {
                peer.begin_anew(now);
                board.events.push(SyncEvent::Met(address));
            }
            if let Some(hello) = hello.filter(|_| accepted.is_new) {
                let own = self.handle.sizes().ports;
                // Where addresses are apart, ports need not be.
                if own.of > 1 && (hello.share, hello.of) == (own.share, own.of) {
                    board.events.push(SyncEvent::SamePorts(address, own));
                }
            }
            let counts = board.peers.entry(address).or_default();
            counts.is_open = true;
            counts.heard = Some(now);
            counts.received_messages += 1;
            counts.received_bytes += message.len() as u64;
        }
        if accepted.wants_answer && self.peers[number].session.may_answer(now) {
            self.greet(number);
        }
        if let Body::Records(records) = body {
            match records.is_empty() {
                true => locked(&self.board).peers.entry(address).or_default().has_told_all = true,
                false => self.adopt(adopter, address, &records),
            }
        }
        Ok(())
    }

    fn adopt(&mut self, adopter: &Adopter, from: SocketAddr, records: &[SharedConnection]) {
        let (mut trouble, mut failed) = (None, 0);
        let mut results = Vec::with_capacity(records.len());
        for record in records {
            match adopter.adopt(record) {
                Ok(adopted) => results.push((adopted, record)),
                Err(error) => {
                    failed += 1;
                    trouble = Some(in_words(&error.into()));
                }
            }
        }
        let mut board = locked(&self.board);
        board.adopt_trouble = trouble.map(|why| format!("cannot take over connections: {why}"));
        let counts = board.peers.entry(from).or_default();
        if failed > 0 {
            *counts.refused.entry(AdoptionRefusal::Failed).or_default() += failed;
        }
        for (adopted, record) in results {
            match adopted {
                Adopted::Created { slot, tick } => {
                    counts.created += 1;
                    self.tracker.adopted(slot, tick, record);
                }
                Adopted::Updated { slot, tick } => {
                    counts.updated += 1;
                    self.tracker.adopted(slot, tick, record);
                }
                Adopted::Kept => counts.kept += 1,
                Adopted::Refused(why) => *counts.refused.entry(why).or_default() += 1,
            }
        }
    }
}
