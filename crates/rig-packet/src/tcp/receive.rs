//! Segments that come in.

use rig_wire::Malformed;
use rig_wire::tcp::{Tcp, flags};

use super::super::http::{Progress, Reader};
use super::{
    CloseMethod, Connection, EngineCore, FIRST_WINDOW, Family, Key, MessageEnd, Nanos, Role, State, TcpService,
    Transmit, await_message, first_number, is_untouched,
};

/// What a peer that announces no maximum takes (RFC 9293, 3.7.1).
const DEFAULT_MSS: u16 = 536;
/// Acknowledgments of the same number after which it counts as a loss (RFC 5681, 3.2).
const DUPLICATES: u8 = 3;

/// Whether `a` is after `b` in the sequence.
#[inline]
fn after(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) as i32 > 0
}

impl TcpService {
    /// A segment between ends of the configuration.
    #[inline]
    pub fn segment<F: Family>(
        &mut self,
        core: &mut EngineCore<F>,
        now: Nanos,
        key: Key,
        segment: &Tcp<'_>,
        transmit: &mut impl Transmit,
    ) -> Result<(), Malformed> {
        let bits = segment.flags();
        let fin = bits & flags::FIN != 0;
        core.counters.fin_rx += u64::from(fin);
        let found = core.table.find(key);
        if bits & (flags::SYN | flags::RST) != 0 {
            core.counters.syn_rx += u64::from(bits & flags::SYN != 0);
            core.counters.rst_rx += u64::from(bits & flags::RST != 0);
            return match found {
                Some(slot) if bits & flags::RST != 0 => {
                    self.reset_received(core, now, slot, segment, transmit);
                    Ok(())
                }
                Some(slot) => self.syn_received(core, now, slot, segment, transmit),
                None => self.stranger(core, now, key, segment, transmit),
            };
        }
        let Some(slot) = found else { return self.stranger(core, now, key, segment, transmit) };
        if bits & flags::ACK == 0 {
            core.counters.tcp_drop += 1;
            return Ok(());
        }
        let connection = &mut core.table.all[slot as usize];
        let mut data = segment.payload();
        if segment.sequence() != connection.expected || connection.state == State::SynSent {
            let old = connection.expected.wrapping_sub(segment.sequence());
            // Of a segment that repeats old bytes only the rest is new, if there is one.
            let new = connection.state != State::SynSent && old > 0 && old < data.len() as u32 + u32::from(fin);
            if !new {
                self.out_of_order(core, now, slot, segment, transmit);
                return Ok(());
            }
            data = &data[old as usize..];
        }
        let acknowledgment = segment.acknowledgment();
        let acked = acknowledgment.wrapping_sub(connection.unacknowledged);
        let unsent = acked > connection.in_flight() && !after(connection.unacknowledged, acknowledgment);
        if unsent && !self.ahead(core, slot, acknowledgment) {
            core.counters.tcp_drop += 1;
            self.send_ack(core, slot, transmit);
            return Ok(());
        }
        let connection = &mut core.table.all[slot as usize];
        if after(acknowledgment, connection.unacknowledged) {
            connection.peer_window = segment.window();
            if self.acknowledged(core, now, slot, acknowledgment) {
                return Ok(());
            }
        } else if acknowledgment == connection.unacknowledged {
            let before = std::mem::replace(&mut connection.peer_window, segment.window());
            let in_flight = connection.in_flight() > 0;
            if before == 0 || connection.peer_window == 0 {
                self.closed_window(core, now, slot, before, transmit);
            } else if data.is_empty() && !fin && before == connection.peer_window && in_flight {
                self.duplicate(core, now, slot, transmit);
            }
        }
        if !data.is_empty() || fin {
            self.delivered(core, now, slot, data, fin, transmit);
        } else {
            let connection = &core.table.all[slot as usize];
            if connection.left > 0 && matches!(connection.state, State::Responding | State::CloseWait) {
                self.send_response(core, now, slot, transmit);
            }
        }
        Ok(())
    }

    /// A segment without a connection: a server may begin one with it.
    fn stranger<F: Family>(
        &mut self,
        core: &mut EngineCore<F>,
        now: Nanos,
        key: Key,
        segment: &Tcp<'_>,
        transmit: &mut impl Transmit,
    ) -> Result<(), Malformed> {
        let bits = segment.flags();
        let begins = bits & (flags::SYN | flags::ACK | flags::RST) == flags::SYN;
        match &self.role {
            Role::Server(server) if begins && server.ports.contains(&key.local_port()) => {
                let window = server.window.min(FIRST_WINDOW);
                return self.accept(core, now, key, segment, window, transmit);
            }
            _ => {}
        }
        core.counters.tcp_drop += 1;
        if bits & flags::RST == 0 {
            let acknowledgment = (bits & flags::ACK != 0).then(|| segment.acknowledgment());
            self.send_stray_reset(core, key, acknowledgment, end(segment), transmit);
        }
        Ok(())
    }

    #[inline]
    fn accept<F: Family>(
        &mut self,
        core: &mut EngineCore<F>,
        now: Nanos,
        key: Key,
        segment: &Tcp<'_>,
        window: u8,
        transmit: &mut impl Transmit,
    ) -> Result<(), Malformed> {
        let (options, message) = (segment.options()?, self.message_bytes());
        let Some(slot) = core.table.insert(key) else {
            core.counters.no_socket += 1;
            return Ok(());
        };
        core.opened(slot);
        let connection = &mut core.table.all[slot as usize];
        connection.state = State::SynReceived;
        connection.expected = segment.sequence().wrapping_add(1);
        connection.unacknowledged = first_number(key, now);
        connection.next = connection.unacknowledged.wrapping_add(1);
        connection.requests_or_mss = options.mss.unwrap_or(DEFAULT_MSS).min(self.mss).max(1);
        connection.set_scale(options.window_scale);
        connection.set_first_window(segment.window(), message);
        connection.set_window(window);
        self.send_syn(core, slot, transmit);
        core.set_timer(slot, now + self.retransmit);
        Ok(())
    }

    fn syn_received<F: Family>(
        &mut self,
        core: &mut EngineCore<F>,
        now: Nanos,
        slot: u32,
        segment: &Tcp<'_>,
        transmit: &mut impl Transmit,
    ) -> Result<(), Malformed> {
        let connection = &mut core.table.all[slot as usize];
        let acks = segment.flags() & flags::ACK != 0;
        match connection.state {
            State::SynSent if acks && segment.acknowledgment() == connection.next => {
                let (options, message) = (segment.options()?, self.message_bytes());
                connection.expected = segment.sequence().wrapping_add(1);
                connection.unacknowledged = connection.next;
                connection.set_scale(options.window_scale);
                connection.set_first_window(segment.window(), message);
                connection.set_retries(0);
                let age = self.unit.age(connection.stamp, now);
                connection.stamp = self.unit.of(now);
                if core.window.has(now, age) {
                    core.latencies.handshake.record(age);
                }
                core.round_trip(age);
                let mss = options.mss.unwrap_or(DEFAULT_MSS);
                if matches!(&self.role, Role::Client(client) if client.request > mss.into()) {
                    self.send_reset(core, slot, transmit);
                    core.fail(slot);
                } else {
                    self.begin(core, now, slot, transmit);
                }
            }
            State::SynSent => {
                let (key, acknowledgment) = (connection.key, segment.acknowledgment());
                core.counters.tcp_drop += 1;
                if acks {
                    self.send_stray_reset(core, key, Some(acknowledgment), 0, transmit);
                }
            }
            State::SynReceived if !acks && segment.sequence().wrapping_add(1) == connection.expected => {
                core.counters.syn_rt += 1;
                self.send_syn(core, slot, transmit);
            }
            State::TimeWait if !acks && after(segment.sequence(), connection.expected) => {
                let key = connection.key;
                core.close(slot);
                return self.stranger(core, now, key, segment, transmit);
            }
            // RFC 5961, 4.2: a peer that really has begun anew answers this with a reset.
            _ => {
                core.counters.ack_rt += 1;
                self.send_ack(core, slot, transmit);
            }
        }
        Ok(())
    }

    #[cold]
    fn reset_received<F: Family>(
        &mut self,
        core: &mut EngineCore<F>,
        now: Nanos,
        slot: u32,
        segment: &Tcp<'_>,
        transmit: &mut impl Transmit,
    ) {
        let connection = &core.table.all[slot as usize];
        let acks = segment.flags() & flags::ACK != 0 && segment.acknowledgment() == connection.next;
        if connection.state == State::SynSent {
            return if acks { self.fail(core, now, slot) } else { core.counters.tcp_drop += 1 };
        }
        if segment.sequence() != connection.expected {
            // RFC 5961, 3.2: in the window, but perhaps a guess.
            core.counters.tcp_drop += 1;
            if after(segment.sequence(), connection.expected) {
                self.send_ack(core, slot, transmit);
            }
            return;
        }
        let closing = match (&self.role, connection.state) {
            (_, State::FinWait1 | State::FinWait2 | State::Closing | State::LastAck | State::TimeWait) => true,
            // A client that has its response may end so.
            (Role::Server(_), State::Responding) => connection.left == 0 && acks,
            (Role::Server(server), State::Established) => is_untouched(connection, server.request),
            _ => false,
        };
        if closing { core.close(slot) } else { self.fail(core, now, slot) }
    }

    /// The network says that it did not deliver the segment with this number. Only a segment that is under way can be
    /// meant (RFC 5927, 4.1), and only a connection that is not made yet fails by it (RFC 5461, 4.1): others may get
    /// through by another way.
    #[cold]
    pub fn unreachable<F: Family>(
        &mut self,
        core: &mut EngineCore<F>,
        now: Nanos,
        key: Key,
        sequence: u32,
        too_big: bool,
    ) {
        let Some(slot) = core.table.find(key) else { return };
        let connection = &core.table.all[slot as usize];
        if sequence.wrapping_sub(connection.unacknowledged) >= connection.in_flight() {
            return;
        }
        core.counters.unreachable += 1;
        if connection.state == State::SynSent && !too_big {
            self.fail(core, now, slot);
        }
    }

    /// A segment out of order is not kept; the peer is told by an acknowledgement which byte is next.
    #[cold]
    fn out_of_order<F: Family>(
        &mut self,
        core: &mut EngineCore<F>,
        now: Nanos,
        slot: u32,
        segment: &Tcp<'_>,
        transmit: &mut impl Transmit,
    ) {
        let connection = &mut core.table.all[slot as usize];
        let probe = segment.sequence() == connection.expected.wrapping_sub(1);
        let opens = probe
            && connection.state == State::Resting
            && (connection.peer_window, connection.in_flight()) == (0, 0)
            && segment.window() > 0
            && segment.acknowledgment() == connection.unacknowledged
            && segment.flags() & flags::FIN == 0;
        if opens {
            // A keep-alive of the peer (RFC 1122, 4.2.3.6): its number is that of what closed the window, and no older (RFC 9293, 3.10.7.4).
            // So SYN proxies tell that the backend has answered.
            connection.peer_window = segment.window();
            self.closed_window(core, now, slot, 0, transmit);
            // A request acknowledges it.
            if core.table.all[slot as usize].state == State::Resting {
                self.send_ack(core, slot, transmit);
            }
            return;
        }
        core.counters.tcp_drop += 1;
        if connection.state == State::SynSent {
            let (key, acknowledgment) = (connection.key, segment.acknowledgment());
            if acknowledgment != connection.next {
                self.send_stray_reset(core, key, Some(acknowledgment), 0, transmit);
            }
            return;
        }
        // An acknowledgment that was overtaken needs no answer, a probe of the connection does.
        if end(segment) != segment.sequence() || probe {
            core.counters.ack_rt += 1;
            self.send_ack(core, slot, transmit);
        }
    }

    /// Whether an acknowledgment of bytes that are to be sent again is right: they were sent before. Then they count as sent.
    #[cold]
    fn ahead<F: Family>(&mut self, core: &mut EngineCore<F>, slot: u32, acknowledgment: u32) -> bool {
        let Role::Server(server) = &self.role else { return false };
        let connection = &mut core.table.all[slot as usize];
        if !matches!(connection.state, State::Responding | State::CloseWait) {
            return false;
        }
        let beyond = acknowledgment.wrapping_sub(connection.next);
        let fin = server.closes(connection) || connection.state == State::CloseWait;
        if beyond <= connection.left {
            connection.left -= beyond;
        } else if fin && beyond == connection.left + 1 {
            connection.left = 0;
            connection.state = if connection.state == State::CloseWait { State::LastAck } else { State::FinWait1 };
        } else {
            return false;
        }
        connection.next = acknowledgment;
        true
    }

    /// The peer has more than before. Whether that was the end of the connection.
    #[inline]
    fn acknowledged<F: Family>(
        &mut self,
        core: &mut EngineCore<F>,
        now: Nanos,
        slot: u32,
        acknowledgment: u32,
    ) -> bool {
        let connection = &mut core.table.all[slot as usize];
        connection.unacknowledged = acknowledgment;
        connection.set_retries(0);
        let all = connection.in_flight() == 0;
        let mut wait = self.retransmit;
        match (connection.state, &self.role) {
            (State::SynReceived, Role::Server(server)) => {
                connection.state = State::Established;
                await_message(connection, server.request);
                wait = server.idle;
            }
            (State::Responding, Role::Server(server)) => {
                connection.widen(server.window);
                if all && connection.left == 0 {
                    connection.state = State::Established;
                    await_message(connection, server.request);
                    wait = server.idle;
                }
            }
            (State::CloseWait, Role::Server(server)) => connection.widen(server.window),
            (State::LastAck, _) if all => {
                core.close(slot);
                return true;
            }
            (State::Closing, _) if all => {
                self.wait_out(core, now, slot);
                return true;
            }
            (State::FinWait1, _) if all => {
                connection.state = State::FinWait2;
                wait = self.time_limit();
            }
            (State::Established, _) if all => wait = self.time_limit(),
            // The timer is that of the next request, or of the end.
            (State::Resting | State::TimeWait, _) => return false,
            _ => {}
        }
        core.set_timer(slot, now + wait);
        false
    }

    #[cold]
    fn duplicate<F: Family>(&mut self, core: &mut EngineCore<F>, now: Nanos, slot: u32, transmit: &mut impl Transmit) {
        core.counters.ack_dup += 1;
        // A client has one segment under way, and nothing behind it that could be acknowledged.
        let Role::Server(_) = self.role else { return };
        let connection = &mut core.table.all[slot as usize];
        if connection.duplicate() == DUPLICATES {
            connection.set_window((connection.window() / 2).max(1));
            self.send_again(core, slot, transmit);
            core.set_timer(slot, now + self.retransmit);
        }
    }

    /// The peer takes nothing now, or took nothing before. As long as it says so it is not given up (RFC 9293, 3.8.6.1).
    #[cold]
    fn closed_window<F: Family>(
        &mut self,
        core: &mut EngineCore<F>,
        now: Nanos,
        slot: u32,
        before: u16,
        transmit: &mut impl Transmit,
    ) {
        let connection = &mut core.table.all[slot as usize];
        let opens = before == 0 && connection.peer_window > 0;
        connection.set_retries(connection.retries().min(self.retries - 1));
        match (&self.role, connection.state) {
            // The probe was not taken.
            (Role::Server(_), State::Responding | State::CloseWait | State::FinWait1 | State::LastAck)
                if opens && connection.in_flight() > 0 =>
            {
                self.send_again(core, slot, transmit);
            }
            (Role::Client(_), State::Resting) if opens && connection.retries() > 0 => {
                self.send_request(core, now, slot, transmit);
            }
            _ => {}
        }
    }

    /// `data` came, and the peer's end if `fin`.
    #[inline]
    fn delivered<F: Family>(
        &mut self,
        core: &mut EngineCore<F>,
        now: Nanos,
        slot: u32,
        data: &[u8],
        fin: bool,
        transmit: &mut impl Transmit,
    ) {
        let connection = &mut core.table.all[slot as usize];
        let server = matches!(self.role, Role::Server(_));
        // A server answers one request after another; the peer sends the next again.
        if server && !data.is_empty() && matches!(connection.state, State::Responding | State::CloseWait) {
            core.counters.tcp_drop += 1;
            return;
        }
        connection.expected = connection.expected.wrapping_add(data.len() as u32 + u32::from(fin));
        match connection.state {
            State::Established if server => self.requested(core, now, slot, data, fin, transmit),
            State::Established => self.responded(core, now, slot, data, fin, transmit),
            State::Responding if connection.left > 0 => {
                connection.state = State::CloseWait;
                self.send_ack(core, slot, transmit);
            }
            State::Resting if !fin => self.send_ack(core, slot, transmit),
            State::Resting => {
                // The server had enough before the client had.
                core.wrong(slot);
                self.send_fin(core, now, slot, State::LastAck, transmit);
            }
            State::Responding => self.send_fin(core, now, slot, State::LastAck, transmit),
            State::FinWait1 => {
                connection.state = if fin { State::Closing } else { State::FinWait1 };
                self.send_ack(core, slot, transmit);
            }
            State::FinWait2 => {
                self.send_ack(core, slot, transmit);
                if fin {
                    self.wait_out(core, now, slot);
                }
            }
            _ => self.send_ack(core, slot, transmit),
        }
    }

    /// Of a request; the server answers when it is complete.
    #[inline]
    fn requested<F: Family>(
        &mut self,
        core: &mut EngineCore<F>,
        now: Nanos,
        slot: u32,
        data: &[u8],
        fin: bool,
        transmit: &mut impl Transmit,
    ) {
        let Role::Server(server) = &mut self.role else { return };
        let connection = &mut core.table.all[slot as usize];
        let untouched = is_untouched(connection, server.request);
        let before = connection.expected.wrapping_sub(data.len() as u32 + u32::from(fin));
        let read = take(server.request, &mut server.reader, connection, before, data);
        let Progress::Done(end) = read else {
            // A client that has asked for nothing may close; one that closes within a request has made an error.
            let wrong = read == Progress::Bad || fin && !(untouched && data.is_empty());
            core.counters.http_err += u64::from(wrong && server.request == MessageEnd::Http);
            if fin {
                if wrong {
                    core.wrong(slot);
                }
                return self.send_fin(core, now, slot, State::LastAck, transmit);
            }
            if wrong {
                self.send_reset(core, slot, transmit);
                return core.fail(slot);
            }
            // A header must come whole within the idle time, so that a client cannot hold a connection open with a byte now and then.
            if untouched || !connection.reading.in_header() {
                core.set_timer(slot, now + server.idle);
            }
            return self.send_ack(core, slot, transmit);
        };
        // What is behind the request is not taken: the peer sends it again.
        let fin = fin && end == data.len();
        connection.expected = before.wrapping_add(end as u32 + u32::from(fin));
        connection.state = if fin { State::CloseWait } else { State::Responding };
        connection.left = server.response(connection).len() as u32;
        let (key, reading) = (connection.key, connection.reading);
        core.counters.tcp_req += 1;
        core.counters.tcp_rsp += 1;
        core.exchanged(key, 1, 1);
        if server.request == MessageEnd::Http {
            core.counters.http_get += u64::from(reading.is_get());
            core.counters.http_post += u64::from(reading.is_post());
            core.counters.http_2xx += 1;
        }
        self.send_response(core, now, slot, transmit);
    }

    /// Of a response; the client goes on when it is complete.
    #[inline]
    fn responded<F: Family>(
        &mut self,
        core: &mut EngineCore<F>,
        now: Nanos,
        slot: u32,
        data: &[u8],
        fin: bool,
        transmit: &mut impl Transmit,
    ) {
        let Role::Client(client) = &mut self.role else { return };
        let connection = &mut core.table.all[slot as usize];
        let age = self.unit.age(connection.stamp, now);
        let measured = core.window.has(now, age);
        if measured && !data.is_empty() && is_untouched(connection, client.response) {
            core.latencies.first_byte.record(age);
        }
        let http = client.response == MessageEnd::Http;
        let before = connection.expected.wrapping_sub(data.len() as u32 + u32::from(fin));
        let read = take(client.response, &mut client.reader, connection, before, data);
        let more = read == Progress::More && !(fin && connection.reading.ends_by_close());
        // Nothing was asked for that could stand behind the response.
        let surplus = matches!(read, Progress::Done(end) if http && end < data.len());
        if read == Progress::Bad || surplus || more && fin {
            core.counters.http_err += u64::from(http);
            self.send_reset(core, slot, transmit);
            return self.fail(core, now, slot);
        }
        if more {
            connection.stamp = self.unit.hold(connection.stamp, now);
            // A header must come in the time that any answer may take.
            if !http || !connection.reading.in_header() {
                let wait = self.time_limit();
                core.set_timer(slot, now + wait);
            }
            return self.send_ack(core, slot, transmit);
        }
        if measured {
            core.latencies.transaction.record(age);
        }
        core.counters.tcp_rsp += 1;
        let key = connection.key;
        core.exchanged(key, 0, 1);
        let connection = &mut core.table.all[slot as usize];
        if http {
            let ok = connection.reading.is_ok();
            *(if ok { &mut core.counters.http_2xx } else { &mut core.counters.http_err }) += 1;
        }
        let announced = http && !connection.reading.persists();
        let last = connection.requests_or_mss == 1 || client.opener.stopped && !client.pace.is_rate();
        connection.requests_or_mss = connection.requests_or_mss.saturating_sub(1);
        if !last && !fin && !announced {
            return self.rest(core, now, slot, transmit);
        }
        // A server that ends a connection that was to go on, and does not say so, has not done what was asked for.
        if !last && !announced {
            core.wrong(slot);
        }
        if fin && client.close == CloseMethod::Fin {
            return self.send_fin(core, now, slot, State::LastAck, transmit);
        }
        self.finish(core, now, slot, transmit);
    }
}

/// Takes `data` for the message that a connection waits for.
#[inline]
fn take(expect: MessageEnd, reader: &mut Reader, connection: &mut Connection, sequence: u32, data: &[u8]) -> Progress {
    let length = data.len() as u32;
    match expect {
        MessageEnd::Segment if length > 0 => connection.left = 0,
        MessageEnd::Segment => {}
        MessageEnd::Bytes(_) => connection.left = connection.left.saturating_sub(length),
        MessageEnd::Http => return reader.read(&mut connection.reading, &mut connection.left, sequence, data),
    }
    if connection.left == 0 { Progress::Done(data.len()) } else { Progress::More }
}

/// The sequence number behind a segment.
fn end(segment: &Tcp<'_>) -> u32 {
    let bits = segment.flags();
    let controls = u32::from(bits & flags::SYN != 0) + u32::from(bits & flags::FIN != 0);
    segment.sequence().wrapping_add(segment.payload().len() as u32 + controls)
}
