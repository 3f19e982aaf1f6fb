//! UDP requests and responses. A server keeps nothing of a client, and gives the number of a request back in its answer.

use std::ops::RangeInclusive;

use super::Nanos;
use super::config::{UdpClient, UdpServer, nanos};
use super::connection::{Key, State, Timestamp};
use super::engine_core::EngineCore;
use super::family::Family;
use super::family::link::Link;
use super::numbers::{AnswerMatch, Numbers};
use super::opener::{ConnectionOpener, IdleAction, RequestPace};
use super::payload::Payload;
use super::port::Transmit;
use super::schedule::LATE;
use super::template::Template;

#[derive(Debug)]
pub(super) struct UdpService {
    message: Template,
    /// Where messages have room for a number: what stands in its place when there is none.
    filler: Option<u32>,
    role: Role,
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one, and a pointer less on every packet's way")]
enum Role {
    Client(ClientRole),
    Server { ports: RangeInclusive<u16>, one_way: Option<OneWayRole> },
}

#[derive(Debug)]
struct ClientRole {
    opener: ConnectionOpener,
    pace: RequestPace,
    timeout: Nanos,
    /// Requests of a connection; 0: without end.
    requests: u16,
    /// Datagrams back to back.
    pipeline: u16,
    /// Numbers of requests, where these have room for one.
    numbers: Option<Numbers>,
}

/// A message, and the bytes in the place of its number, if it has one.
fn message<F: Family>(link: &Link<F>, payload: &Payload) -> (Template, Option<u32>) {
    let mut bytes = payload.bytes().to_vec();
    let place = bytes.first_chunk_mut().filter(|_| payload.takes_number());
    let filler = place.map(|place: &mut [u8; Numbers::BYTES]| u32::from_be_bytes(std::mem::take(place)));
    (Template::udp(link, &bytes), filler)
}

/// Enters what a client's flow waits for and does not get: it took this long, or longer.
fn lost<F: Family>(core: &mut EngineCore<F>, now: Nanos, slot: u32) {
    let connection = &core.table.all[slot as usize];
    let age = connection.stamp.age(now);
    if connection.state == State::Asked && core.window.has(now, age) {
        core.latencies.give_up(age, connection.left.into());
    }
}

/// A server that does not answer.
#[derive(Debug)]
struct OneWayRole {
    /// The number of the next datagram.
    next: u32,
    /// When those that came in this pass were sent. They were received after its begin, and are taken for as old as they are at its end: none
    /// seems to come before it was sent.
    sent: Vec<Nanos>,
}

impl OneWayRole {
    /// As many datagrams as a pass receives, and more.
    const OF_A_PASS: usize = 1024;

    fn new() -> Self {
        Self { next: 0, sent: Vec::with_capacity(Self::OF_A_PASS) }
    }

    /// Enters how long those took that came in the pass before.
    fn enter<F: Family>(&mut self, core: &mut EngineCore<F>, now: Nanos) {
        for sent in self.sent.drain(..) {
            let age = now.saturating_sub(sent);
            if core.window.has(now, age) {
                core.latencies.transaction.record(age);
            }
        }
    }

    /// Counts a datagram.
    #[inline]
    fn take<F: Family>(&mut self, core: &mut EngineCore<F>, now: Nanos, key: Key, payload: &[u8]) {
        let stamp = payload.split_first_chunk::<8>().and_then(|(time, rest)| Some((time, rest.first_chunk()?)));
        let Some((time, number)) = stamp else {
            core.counters.udp_drop += 1;
            return;
        };
        let sent = u64::from_be_bytes(*time).saturating_add_signed(core.peer_clock_ns);
        if self.sent.len() == Self::OF_A_PASS {
            self.enter(core, now);
        }
        self.sent.push(sent);
        let ahead = u32::from_be_bytes(*number).wrapping_sub(self.next);
        if ahead != 0 && ahead < u32::MAX / 2 {
            core.latencies.lost_before = Some(sent);
        }
        if ahead < u32::MAX / 2 {
            self.next = self.next.wrapping_add(ahead).wrapping_add(1);
        }
        core.exchanged(key, 1, 0);
    }
}

impl UdpService {
    /// `servers` are how many addresses there are, and `now` is not after any time to come.
    pub fn client<F: Family>(
        link: &Link<F>,
        udp: &UdpClient,
        (opener, pace): (ConnectionOpener, RequestPace),
        (servers, now): (usize, Nanos),
    ) -> Self {
        let repeat = udp.client.repeat;
        let (message, filler) = message(link, &udp.request);
        let client = ClientRole {
            opener,
            pace,
            timeout: nanos(udp.timeout),
            requests: repeat.map_or(1, |repeat| repeat.requests.unwrap_or(0)),
            pipeline: repeat.map_or(1, |repeat| repeat.pipeline),
            numbers: filler.map(|_| Numbers::new(now, servers)),
        };
        Self { message, filler, role: Role::Client(client) }
    }

    pub fn server<F: Family>(link: &Link<F>, udp: &UdpServer) -> Self {
        let ports = udp.server.ports.clone();
        let (message, filler) = message(link, &udp.response);
        Self { message, filler, role: Role::Server { ports, one_way: udp.one_way.then(OneWayRole::new) } }
    }

    pub fn template(&mut self) -> &mut Template {
        &mut self.message
    }

    /// Enters what has no answer, or did not begin.
    pub fn give_up<F: Family>(&mut self, core: &mut EngineCore<F>, now: Nanos) {
        let Role::Client(client) = &mut self.role else { return };
        for slot in 0..core.table.all.len() {
            lost(core, now, slot as u32);
        }
        let (window, latencies, until) = (core.window, &mut core.latencies, client.opener.due_until(now));
        let mut never = |due: Nanos| {
            if window.has(due, 0) {
                latencies.give_up(now - due, 1);
            }
        };
        client.opener.give_up(now, &mut never);
        if let Some(requests) = client.pace.requests() {
            requests.give_up(until, never);
        }
    }

    pub fn is_server(&self) -> bool {
        matches!(self.role, Role::Server { .. })
    }

    /// Begins a pass.
    #[inline]
    pub fn begin<F: Family>(&mut self, core: &mut EngineCore<F>, now: Nanos) {
        if let Role::Server { one_way: Some(one_way), .. } = &mut self.role {
            one_way.enter(core, now);
        }
    }

    pub fn opener(&mut self) -> Option<&mut ConnectionOpener> {
        match &mut self.role {
            Role::Client(client) => Some(&mut client.opener),
            Role::Server { .. } => None,
        }
    }

    pub fn pace(&mut self) -> Option<&mut RequestPace> {
        match &mut self.role {
            Role::Client(client) => Some(&mut client.pace),
            Role::Server { .. } => None,
        }
    }

    pub fn open<F: Family>(&mut self, core: &mut EngineCore<F>, now: Nanos, transmit: &mut impl Transmit) -> bool {
        let Role::Client(client) = &mut self.role else { return false };
        let Some((slot, due)) = client.opener.next(core, now) else { return false };
        let connection = &mut core.table.all[slot as usize];
        connection.requests_or_mss = client.requests;
        connection.stamp = Timestamp::of(due);
        match &mut client.pace {
            RequestPace::Rate(requests) => requests.rest(core, slot),
            RequestPace::Interval(_) => self.ask(core, now, slot, transmit),
        }
        true
    }

    /// Asks on the connection whose turn it is, if it is time.
    pub fn request<F: Family>(&mut self, core: &mut EngineCore<F>, now: Nanos, transmit: &mut impl Transmit) -> bool {
        let Role::Client(ClientRole { opener, pace: RequestPace::Rate(requests), .. }) = &mut self.role else {
            return false;
        };
        let Some((slot, turn)) = requests.next(core, now, opener) else { return false };
        match turn {
            IdleAction::Request(due) => {
                core.counters.late += u64::from(now - due > LATE);
                core.table.all[slot as usize].stamp = Timestamp::of(due);
                self.ask(core, now, slot, transmit);
            }
            IdleAction::Close => core.close(slot),
        }
        true
    }

    #[inline]
    pub fn datagram<F: Family>(
        &mut self,
        core: &mut EngineCore<F>,
        now: Nanos,
        key: Key,
        payload: &[u8],
        transmit: &mut impl Transmit,
    ) {
        let number = payload.first_chunk().map(|bytes: &[u8; Numbers::BYTES]| u32::from_be_bytes(*bytes));
        let client = match &mut self.role {
            Role::Client(client) => client,
            Role::Server { ports, one_way } if ports.contains(&key.local_port()) => {
                if let Some(one_way) = one_way {
                    return one_way.take(core, now, key, payload);
                }
                core.exchanged(key, 1, 1);
                let number = number.or(self.filler);
                return self.send(core, key, number, transmit);
            }
            Role::Server { .. } => {
                core.counters.udp_drop += 1;
                return;
            }
        };
        let asked = core.table.find(key).filter(|&slot| core.table.all[slot as usize].state == State::Asked);
        let told = match (&mut client.numbers, number) {
            (Some(numbers), Some(number)) => {
                let awaited = asked.map(|slot| core.table.all[slot as usize].numbers());
                numbers.judge(number, awaited, key.remote())
            }
            _ => AnswerMatch::Nothing,
        };
        match (told, asked) {
            (AnswerMatch::Awaited, Some(slot)) => return self.answered(core, now, slot, transmit),
            (AnswerMatch::Nothing, Some(slot)) => {
                core.counters.udp_unnumbered += 1;
                return self.answered(core, now, slot, transmit);
            }
            (AnswerMatch::Late, _) => core.counters.udp_late += 1,
            (AnswerMatch::Duplicate, _) => core.counters.udp_dup += 1,
            (AnswerMatch::Awaited | AnswerMatch::Nothing, None) | (AnswerMatch::Stray, _) => {}
        }
        core.counters.udp_drop += 1;
    }

    #[inline]
    fn answered<F: Family>(&mut self, core: &mut EngineCore<F>, now: Nanos, slot: u32, transmit: &mut impl Transmit) {
        let connection = &mut core.table.all[slot as usize];
        connection.left -= 1;
        let (age, key, all) = (connection.stamp.age(now), connection.key, connection.left == 0);
        if core.window.has(now, age) {
            core.latencies.transaction.record(age);
        }
        core.round_trip(age);
        core.exchanged(key, 0, 1);
        if all {
            self.next(core, now, slot, transmit);
        }
    }

    /// The next request, or the end.
    #[inline]
    fn next<F: Family>(&mut self, core: &mut EngineCore<F>, now: Nanos, slot: u32, transmit: &mut impl Transmit) {
        let Role::Client(client) = &mut self.role else { return };
        let connection = &mut core.table.all[slot as usize];
        if connection.requests_or_mss == 1 || client.opener.stopped && !client.pace.is_rate() {
            return core.close(slot);
        }
        connection.requests_or_mss = connection.requests_or_mss.saturating_sub(1);
        let due = match &mut client.pace {
            RequestPace::Rate(requests) => return requests.rest(core, slot),
            RequestPace::Interval(0) => now,
            RequestPace::Interval(interval) => now - connection.stamp.age(now) + *interval,
        };
        connection.stamp = Timestamp::of(due);
        if due <= now {
            core.counters.late += u64::from(now - due > LATE);
            return self.ask(core, now, slot, transmit);
        }
        connection.state = State::Resting;
        core.set_timer(slot, due);
    }

    #[inline]
    fn ask<F: Family>(&mut self, core: &mut EngineCore<F>, now: Nanos, slot: u32, transmit: &mut impl Transmit) {
        let Role::Client(client) = &mut self.role else { return };
        let pipeline = u32::from(client.pipeline);
        let connection = &mut core.table.all[slot as usize];
        connection.state = State::Asked;
        connection.left = pipeline;
        let key = connection.key;
        // A request without an answer when the next one is due is lost: a flow does not wait for it.
        let wait = match client.pace {
            RequestPace::Interval(interval) if interval > 0 => client.timeout.min(interval),
            _ => client.timeout,
        };
        core.set_timer(slot, now + wait);
        core.exchanged(key, pipeline.into(), 0);
        for n in 0..pipeline {
            let Role::Client(client) = &mut self.role else { return };
            let number = client.numbers.as_mut().map(Numbers::give);
            if let (0, Some(number)) = (n, number) {
                core.table.all[slot as usize].set_numbers(number, pipeline);
            }
            self.send(core, key, number, transmit);
        }
    }

    /// Sends a message, with `number` where it has room for one.
    #[inline]
    fn send<F: Family>(&self, core: &mut EngineCore<F>, key: Key, number: Option<u32>, transmit: &mut impl Transmit) {
        let tuple = core.four_tuple(key);
        if let Some(frame) = core.claim(transmit, self.message.len()) {
            match number.filter(|_| self.filler.is_some()) {
                Some(number) => self.message.fill_numbered::<F>(frame, tuple, number),
                None => self.message.fill_udp::<F>(frame, tuple),
            }
            core.counters.udp_tx += 1;
        }
    }

    pub fn timer<F: Family>(&mut self, core: &mut EngineCore<F>, now: Nanos, slot: u32, transmit: &mut impl Transmit) {
        let connection = &core.table.all[slot as usize];
        let Role::Client(client) = &self.role else { return };
        match connection.state {
            State::Resting if client.pace.is_rate() => {}
            State::Resting if client.opener.stopped => core.close(slot),
            State::Resting => {
                core.counters.late += u64::from(connection.stamp.age(now) > LATE);
                self.ask(core, now, slot, transmit);
            }
            State::Asked => {
                core.counters.udp_rt += u64::from(connection.left);
                lost(core, now, slot);
                self.unanswered(core, now, slot, transmit);
            }
            _ => {}
        }
    }

    /// An ICMP error says that what a flow sent was not delivered: port or host are unreachable.
    #[cold]
    pub fn unreachable<F: Family>(&mut self, core: &mut EngineCore<F>, now: Nanos, key: Key) {
        let Some(slot) = core.table.find(key) else { return };
        core.counters.unreachable += 1;
        if core.table.all[slot as usize].state == State::Asked {
            lost(core, now, slot);
            core.fail(slot);
        }
    }

    /// A flow goes on with its next request; one that has no more has failed.
    fn unanswered<F: Family>(&mut self, core: &mut EngineCore<F>, now: Nanos, slot: u32, transmit: &mut impl Transmit) {
        let connection = &core.table.all[slot as usize];
        if connection.requests_or_mss == 1 {
            return core.fail(slot);
        }
        if let Some(row) = core.rows.of(connection.key) {
            row.errors += 1;
        }
        self.next(core, now, slot, transmit);
    }
}
