//! Segments that go out.

use rig_wire::tcp::flags;

use super::{
    EngineCore, Family, Key, LATE, Nanos, RequestPace, Role, State, TcpService, Template, Transmit, await_message,
};

/// Sends a segment made from a template; whether there was room.
#[inline]
fn send<F: Family>(
    core: &mut EngineCore<F>,
    template: &Template,
    key: Key,
    (sequence, acknowledgment): (u32, u32),
    transmit: &mut impl Transmit,
) {
    let tuple = core.four_tuple(key);
    if let Some(frame) = core.claim(transmit, template.len()) {
        template.fill_tcp::<F>(frame, tuple, sequence, acknowledgment);
        core.counters.tcp_tx += 1;
    }
}

impl TcpService {
    pub(super) fn send_syn<F: Family>(&self, core: &mut EngineCore<F>, slot: u32, transmit: &mut impl Transmit) {
        let connection = &core.table.all[slot as usize];
        let (key, numbers) = (connection.key, (connection.unacknowledged, connection.expected));
        let is_unscaled = connection.state == State::SynReceived && !connection.has_scale();
        let template = if is_unscaled { &self.syn_unscaled } else { &self.syn };
        core.counters.syn_tx += 1;
        send(core, template, key, numbers, transmit);
    }

    #[inline]
    pub(super) fn send_ack<F: Family>(&self, core: &mut EngineCore<F>, slot: u32, transmit: &mut impl Transmit) {
        let connection = &core.table.all[slot as usize];
        let (key, numbers) = (connection.key, (connection.next, connection.expected));
        send(core, &self.ack, key, numbers, transmit);
    }

    /// The client's next request, which was due at the connection's stamp.
    #[inline]
    pub(super) fn send_request<F: Family>(
        &self,
        core: &mut EngineCore<F>,
        now: Nanos,
        slot: u32,
        transmit: &mut impl Transmit,
    ) {
        let Role::Client(client) = &self.role else { return };
        let connection = &mut core.table.all[slot as usize];
        if connection.peer_bytes() < client.request {
            // The peer has closed its window: it is asked whether it has opened it.
            connection.state = State::Resting;
            let retries = connection.retries() + 1;
            if retries > self.retries {
                self.send_reset(core, slot, transmit);
                return self.fail(core, now, slot);
            }
            connection.set_retries(retries);
            let (key, numbers) = (connection.key, (connection.next.wrapping_sub(1), connection.expected));
            send(core, &self.ack, key, numbers, transmit);
            return core.set_timer(slot, now + self.retransmit);
        }
        connection.state = State::Established;
        await_message(connection, client.response);
        let (key, numbers) = (connection.key, (connection.next, connection.expected));
        connection.next = connection.next.wrapping_add(client.request);
        let late = self.unit.age(connection.stamp, now) > LATE;
        core.counters.late += u64::from(late);
        core.counters.tcp_req += 1;
        core.exchanged(key, 1, 0);
        core.counters.http_get += client.counts[0];
        core.counters.http_post += client.counts[1];
        core.set_timer(slot, now + self.retransmit);
        send(core, &self.message, key, numbers, transmit);
    }

    /// As much of the server's response as the windows allow.
    #[inline]
    pub(super) fn send_response<F: Family>(
        &self,
        core: &mut EngineCore<F>,
        now: Nanos,
        slot: u32,
        transmit: &mut impl Transmit,
    ) {
        let Role::Server(server) = &self.role else { return };
        let connection = &mut core.table.all[slot as usize];
        let length = server.response.len() as u32;
        let fits = length <= connection.requests_or_mss.into() && length <= connection.peer_bytes();
        let usual = server.closes(connection) == server.close && connection.state == State::Responding;
        if fits && connection.left == length && usual {
            let (key, numbers) = (connection.key, (connection.next, connection.expected));
            connection.left = 0;
            connection.next = connection.next.wrapping_add(length + u32::from(server.close));
            if server.close {
                connection.state = State::FinWait1;
                core.counters.fin_tx += 1;
            }
            send(core, &self.message, key, numbers, transmit);
        } else {
            while self.send_part(core, slot, transmit) {}
        }
        let retries = core.table.all[slot as usize].retries();
        core.set_timer(slot, now + (self.retransmit << retries));
    }

    /// The next segment of the response; whether it was sent.
    fn send_part<F: Family>(&self, core: &mut EngineCore<F>, slot: u32, transmit: &mut impl Transmit) -> bool {
        let Role::Server(server) = &self.role else { return false };
        let connection = &mut core.table.all[slot as usize];
        let mss = u32::from(connection.requests_or_mss);
        let flight = connection.in_flight();
        let mut bytes = connection.left.min(mss);
        let room = (u32::from(connection.window()) * mss).min(connection.peer_bytes());
        if flight == 0 {
            // A window that is smaller than a segment is used as it is; a closed one is probed with a byte.
            bytes = bytes.min(room.max(1));
        }
        if bytes == 0 || flight > 0 && flight + bytes > room {
            return false;
        }
        let response = server.response(connection);
        let from = response.len() - connection.left as usize;
        connection.left -= bytes;
        let last = connection.left == 0;
        let after = flight + bytes + connection.left.min(mss);
        let push = if last || after > room { flags::PSH } else { 0 };
        let fin = last && (server.closes(connection) || connection.state == State::CloseWait);
        let kept = (connection.key, (connection.next, connection.expected));
        connection.next = connection.next.wrapping_add(bytes + u32::from(fin));
        if fin {
            connection.state = if connection.state == State::CloseWait { State::LastAck } else { State::FinWait1 };
            core.counters.fin_tx += 1;
        }
        let data = &response[from..from + bytes as usize];
        let flags = push | if fin { flags::FIN } else { 0 };
        let (key, numbers) = kept;
        let tuple = core.four_tuple(key);
        if let Some(frame) = core.claim(transmit, self.ack.len() + data.len()) {
            self.ack.fill_data::<F>(frame, tuple, numbers, flags, data);
            core.counters.tcp_tx += 1;
        }
        !last
    }

    #[inline]
    pub(super) fn send_fin<F: Family>(
        &self,
        core: &mut EngineCore<F>,
        now: Nanos,
        slot: u32,
        state: State,
        transmit: &mut impl Transmit,
    ) {
        let connection = &mut core.table.all[slot as usize];
        connection.state = state;
        let (key, numbers) = (connection.key, (connection.next, connection.expected));
        connection.next = connection.next.wrapping_add(1);
        core.counters.fin_tx += 1;
        core.set_timer(slot, now + self.retransmit);
        send(core, &self.fin, key, numbers, transmit);
    }

    /// A reset of a connection, which also acknowledges.
    pub(super) fn send_reset<F: Family>(&self, core: &mut EngineCore<F>, slot: u32, transmit: &mut impl Transmit) {
        let connection = &core.table.all[slot as usize];
        let (key, numbers) = (connection.key, (connection.next, connection.expected));
        core.counters.rst_tx += 1;
        send(core, &self.reset_ack, key, numbers, transmit);
    }

    /// A reset of what is no connection: it takes its number from the `acknowledgment` if there is one, or acknowledges
    /// up to `end` (RFC 9293, 3.10.7.1).
    #[cold]
    pub(super) fn send_stray_reset<F: Family>(
        &self,
        core: &mut EngineCore<F>,
        key: Key,
        acknowledgment: Option<u32>,
        end: u32,
        transmit: &mut impl Transmit,
    ) {
        if !self.resets {
            return;
        }
        core.counters.rst_tx += 1;
        match acknowledgment {
            Some(acknowledgment) => send(core, &self.reset, key, (acknowledgment, 0), transmit),
            None => send(core, &self.reset_ack, key, (0, end), transmit),
        }
    }

    /// Sends again what is not acknowledged.
    pub(super) fn send_again<F: Family>(&self, core: &mut EngineCore<F>, slot: u32, transmit: &mut impl Transmit) {
        let connection = &mut core.table.all[slot as usize];
        let fin = u32::from(connection.fin_in_flight());
        let data = connection.in_flight() - fin;
        let (key, acknowledgment) = (connection.key, connection.expected);
        match (&self.role, connection.state) {
            (_, State::SynSent | State::SynReceived) => {
                core.counters.syn_rt += 1;
                self.send_syn(core, slot, transmit);
            }
            (Role::Client(client), _) if data > 0 => {
                let start = connection.next.wrapping_sub(fin).wrapping_sub(client.request);
                core.counters.push_rt += 1;
                send(core, &self.message, key, (start, acknowledgment), transmit);
            }
            (Role::Server(_), state) if data > 0 || connection.left > 0 => {
                // Back to the first byte that is missing; what was sent behind it comes again too.
                connection.next = connection.unacknowledged;
                connection.left += data;
                connection.state = match state {
                    State::FinWait1 => State::Responding,
                    State::LastAck | State::Closing => State::CloseWait,
                    other => other,
                };
                core.counters.push_rt += 1;
                self.send_part(core, slot, transmit);
            }
            _ => {
                let start = connection.next.wrapping_sub(1);
                core.counters.fin_rt += 1;
                core.counters.fin_tx += 1;
                send(core, &self.fin, key, (start, acknowledgment), transmit);
            }
        }
    }

    /// Plans the client's next request, for when it is due.
    #[inline]
    pub(super) fn rest<F: Family>(
        &mut self,
        core: &mut EngineCore<F>,
        now: Nanos,
        slot: u32,
        transmit: &mut impl Transmit,
    ) {
        let Role::Client(client) = &mut self.role else { return };
        let connection = &mut core.table.all[slot as usize];
        let due = match &mut client.pace {
            RequestPace::Rate(requests) => {
                requests.rest(core, slot);
                if requests.wait() > client.delayed_ack {
                    self.send_ack(core, slot, transmit);
                }
                return;
            }
            RequestPace::Interval(0) => now,
            RequestPace::Interval(interval) => now - self.unit.age(connection.stamp, now) + *interval,
        };
        connection.stamp = self.unit.of(due);
        if due <= now {
            return self.send_request(core, now, slot, transmit);
        }
        connection.state = State::Resting;
        if due - now > client.delayed_ack {
            self.send_ack(core, slot, transmit);
        }
        core.set_timer(slot, due);
    }

    /// The client's first request, with which it acknowledges the handshake unless it has to wait for its turn.
    #[inline]
    pub(super) fn begin<F: Family>(
        &mut self,
        core: &mut EngineCore<F>,
        now: Nanos,
        slot: u32,
        transmit: &mut impl Transmit,
    ) {
        let Role::Client(client) = &mut self.role else { return };
        let connection = &mut core.table.all[slot as usize];
        match &mut client.pace {
            RequestPace::Rate(requests) => requests.rest(core, slot),
            RequestPace::Interval(_) if connection.peer_bytes() < client.request => {
                // Questions whether the window has opened have an old number, which does not complete a handshake.
                connection.state = State::Resting;
                connection.set_retries(1);
                core.set_timer(slot, now + self.retransmit);
            }
            RequestPace::Interval(_) => return self.send_request(core, now, slot, transmit),
        }
        self.send_ack(core, slot, transmit);
    }
}
