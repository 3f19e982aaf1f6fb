//! TCP as RFC 9293 has it, for clients that ask and servers that answer: no urgent data, no simultaneous open, nothing
//! kept that comes out of order.

mod receive;
mod send;

use std::ops::RangeInclusive;
use std::sync::Arc;

use rig_wire::tcp::{Header, Options, flags};

use super::Nanos;
use super::config::{CloseMethod, MessageEnd, TcpClient, TcpServer, TcpTimes, nanos};
use super::connection::{Connection, Key, State, Unit};
use super::engine_core::EngineCore;
use super::family::Family;
use super::family::link::Link;
use super::http::{self, Kind, Reader, Reading};
use super::opener::{ConnectionOpener, IdleAction, RequestPace};
use super::port::Transmit;
use super::schedule::LATE;
use super::template::Template;

/// What is announced: more than any request or response window here needs, because data is thrown away as it comes.
const WINDOW: u16 = u16::MAX;
const SCALE: u8 = 7;
/// Segments that may be under way before the first is acknowledged.
const FIRST_WINDOW: u8 = 4;

/// A connection's stamp is looked at each time that the connection has waited as long as it can, or twice that: a quarter
/// of the span of stamps, at most.
const LOOKED_AT: Nanos = 8;

/// A client or a server.
#[derive(Debug)]
pub(super) struct TcpService {
    role: Role,
    /// SYN, or SYN and ACK.
    syn: Template,
    /// SYN and ACK for a peer whose SYN had no window scale: an offer answers one (RFC 7323, 1.3 and 2.2).
    syn_unscaled: Template,
    /// The request, or the response if it fits a segment.
    message: Template,
    ack: Template,
    fin: Template,
    reset: Template,
    reset_ack: Template,
    resets: bool,
    mss: u16,
    retransmit: Nanos,
    retries: u8,
    time_wait: Nanos,
    /// The unit of the client's stamps.
    unit: Unit,
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one, and a pointer less on every packet's way")]
enum Role {
    Client(ClientRole),
    Server(ServerRole),
}

#[derive(Debug)]
struct ClientRole {
    opener: ConnectionOpener,
    pace: RequestPace,
    /// Bytes of the request.
    request: u32,
    response: MessageEnd,
    reader: Reader,
    /// What a request counts as: GET or POST.
    counts: [u64; 2],
    close: CloseMethod,
    delayed_ack: Nanos,
    /// Requests of a connection; 0: without end.
    requests: u16,
}

#[derive(Debug)]
struct ServerRole {
    ports: RangeInclusive<u16>,
    request: MessageEnd,
    reader: Reader,
    response: Arc<[u8]>,
    /// Bytes of the response's header, which alone answers HEAD.
    header: usize,
    close: bool,
    idle: Nanos,
    window: u8,
}

impl ServerRole {
    /// Whether the connection ends with the response to the request that was read.
    #[inline]
    fn closes(&self, connection: &Connection) -> bool {
        self.close || self.request == MessageEnd::Http && !connection.reading.persists()
    }

    /// What answers the request that was read.
    #[inline]
    fn response(&self, connection: &Connection) -> &[u8] {
        if connection.reading.is_head() { &self.response[..self.header] } else { &self.response }
    }
}

/// Bytes to come, where any are enough when it is 1.
fn expected(expect: MessageEnd) -> u32 {
    match expect {
        MessageEnd::Segment => 1,
        MessageEnd::Bytes(bytes) => bytes,
        MessageEnd::Http => 0,
    }
}

/// A message is to come.
#[inline]
fn await_message(connection: &mut Connection, expect: MessageEnd) {
    connection.left = expected(expect);
    connection.reading = Reading::default();
}

/// Whether nothing has come of the message that is awaited.
#[inline]
fn is_untouched(connection: &Connection, expect: MessageEnd) -> bool {
    match expect {
        MessageEnd::Http => connection.reading.is_start(),
        MessageEnd::Segment | MessageEnd::Bytes(_) => connection.left == expected(expect),
    }
}

/// The SYN of a client, without addresses and numbers.
pub(super) fn syn(mss: u16) -> Header {
    let (flags, options) = (flags::SYN, options(mss));
    Header { source_port: 0, destination_port: 0, sequence: 0, acknowledgment: 0, flags, window: WINDOW, options }
}

/// An acknowledgment, without addresses and numbers.
pub(super) fn ack() -> Header {
    Header { flags: flags::ACK, options: Options::default(), ..syn(0) }
}

fn options(mss: u16) -> Options {
    Options { mss: Some(mss), window_scale: Some(SCALE), ..Options::default() }
}

impl TcpService {
    pub fn client<F: Family>(link: &Link<F>, tcp: &TcpClient, (opener, pace): (ConnectionOpener, RequestPace)) -> Self {
        let repeat = tcp.client.repeat;
        let request = tcp.request.bytes();
        let asked =
            http::whole(Kind::Request, &request).filter(|_| tcp.response == MessageEnd::Http).unwrap_or_default();
        let kind = if asked.reading.is_head() { Kind::HeadResponse } else { Kind::Response };
        let role = Role::Client(ClientRole {
            opener,
            pace,
            request: tcp.request.len() as u32,
            response: tcp.response,
            reader: Reader::new(kind),
            counts: [asked.reading.is_get().into(), asked.reading.is_post().into()],
            close: tcp.close,
            delayed_ack: nanos(tcp.delayed_ack),
            requests: repeat.map_or(1, |repeat| repeat.requests.unwrap_or(0)),
        });
        let syn = (flags::SYN, &request[..], flags::PSH | flags::ACK);
        Self::new(link, role, syn, tcp.times, tcp.mss, tcp.resets)
    }

    pub fn server<F: Family>(link: &Link<F>, tcp: &TcpServer) -> Self {
        let response = tcp.response.bytes();
        // One that does not fit a segment never goes out as one.
        let message = if response.len() <= tcp.mss.into() { Arc::clone(&response) } else { Arc::default() };
        let last = if tcp.close { flags::FIN } else { 0 };
        let role = Role::Server(ServerRole {
            ports: tcp.server.ports.clone(),
            request: tcp.request,
            reader: Reader::new(Kind::Request),
            header: http::whole(Kind::Response, &response).unwrap_or_default().header,
            response,
            close: tcp.close,
            idle: nanos(tcp.idle),
            window: tcp.window,
        });
        let syn = (flags::SYN | flags::ACK, &message[..], flags::PSH | flags::ACK | last);
        Self::new(link, role, syn, tcp.times, tcp.mss, tcp.resets)
    }

    fn new<F: Family>(
        link: &Link<F>,
        role: Role,
        (syn, message, message_flags): (u8, &[u8], u8),
        times: TcpTimes,
        mss: u16,
        resets: bool,
    ) -> Self {
        let header = |flags, options| Header {
            source_port: 0,
            destination_port: 0,
            sequence: 0,
            acknowledgment: 0,
            flags,
            window: if flags & flags::RST == 0 { WINDOW } else { 0 },
            options,
        };
        let options = options(mss);
        let bare = |flags| Template::tcp(link, &header(flags, Options::default()), &[]);
        Self {
            role,
            syn: Template::tcp(link, &header(syn, options), &[]),
            syn_unscaled: Template::tcp(link, &header(syn, Options { window_scale: None, ..options }), &[]),
            message: Template::tcp(link, &header(message_flags, Options::default()), message),
            ack: bare(flags::ACK),
            fin: bare(flags::FIN | flags::ACK),
            reset: bare(flags::RST),
            reset_ack: bare(flags::RST | flags::ACK),
            resets,
            mss,
            retransmit: nanos(times.retransmit),
            retries: times.retries,
            time_wait: nanos(times.time_wait),
            unit: Unit::spanning(LOOKED_AT * (nanos(times.retransmit) << times.retries)),
        }
    }

    pub fn templates(&mut self) -> [&mut Template; 7] {
        let Self { syn, syn_unscaled, message, ack, fin, reset, reset_ack, .. } = self;
        [syn, syn_unscaled, message, ack, fin, reset, reset_ack]
    }

    pub fn opener(&mut self) -> Option<&mut ConnectionOpener> {
        match &mut self.role {
            Role::Client(client) => Some(&mut client.opener),
            Role::Server(_) => None,
        }
    }

    pub fn pace(&mut self) -> Option<&mut RequestPace> {
        match &mut self.role {
            Role::Client(client) => Some(&mut client.pace),
            Role::Server(_) => None,
        }
    }

    /// Enters what has no answer, or did not begin.
    pub fn give_up<F: Family>(&mut self, core: &mut EngineCore<F>, now: Nanos) {
        for slot in 0..core.table.all.len() {
            self.unanswered(core, now, slot as u32);
        }
        let Role::Client(client) = &mut self.role else { return };
        let (window, latencies, until) = (core.window, &mut core.latencies, client.opener.due_until(now));
        client.opener.give_up(now, |due| {
            if window.has(due, 0) {
                latencies.give_up_handshake(now - due);
            }
        });
        if let Some(requests) = client.pace.requests() {
            requests.give_up(until, |due| {
                if window.has(due, 0) {
                    latencies.give_up(now - due, 1);
                }
            });
        }
    }

    /// Enters what a client waits for over a connection and does not get: it took this long, or longer.
    fn unanswered<F: Family>(&self, core: &mut EngineCore<F>, now: Nanos, slot: u32) {
        let Role::Client(_) = &self.role else { return };
        let connection = &core.table.all[slot as usize];
        let age = self.unit.age(connection.stamp, now);
        match connection.state {
            State::SynSent if core.window.has(now, age) => core.latencies.give_up_handshake(age),
            State::Established if core.window.has(now, age) => core.latencies.give_up(age, 1),
            // The request that is due waits for the peer's window.
            State::Resting if connection.retries() > 0 && core.window.has(now, age) => core.latencies.give_up(age, 1),
            _ => {}
        }
    }

    /// A connection has failed, with what is under way.
    #[cold]
    fn fail<F: Family>(&self, core: &mut EngineCore<F>, now: Nanos, slot: u32) {
        self.unanswered(core, now, slot);
        core.fail(slot);
    }

    pub fn is_server(&self) -> bool {
        matches!(self.role, Role::Server(_))
    }

    /// Sends a request on the connection whose turn it is, if it is time.
    pub fn request<F: Family>(&mut self, core: &mut EngineCore<F>, now: Nanos, transmit: &mut impl Transmit) -> bool {
        let Role::Client(ClientRole { opener, pace: RequestPace::Rate(requests), .. }) = &mut self.role else {
            return false;
        };
        let Some((slot, turn)) = requests.next(core, now, opener) else { return false };
        match turn {
            IdleAction::Request(due) => {
                core.table.all[slot as usize].stamp = self.unit.of(due);
                self.send_request(core, now, slot, transmit);
            }
            IdleAction::Close => self.finish(core, now, slot, transmit),
        }
        true
    }

    /// Opens a connection if one is due.
    pub fn open<F: Family>(&mut self, core: &mut EngineCore<F>, now: Nanos, transmit: &mut impl Transmit) -> bool {
        let Role::Client(client) = &mut self.role else { return false };
        let Some((slot, due)) = client.opener.next(core, now) else { return false };
        let connection = &mut core.table.all[slot as usize];
        connection.state = State::SynSent;
        connection.unacknowledged = first_number(connection.key, now);
        connection.next = connection.unacknowledged.wrapping_add(1);
        connection.stamp = self.unit.of(due);
        connection.requests_or_mss = client.requests;
        self.send_syn(core, slot, transmit);
        core.set_timer(slot, now + self.retransmit);
        true
    }

    /// Bytes of a message that this end sends.
    fn message_bytes(&self) -> u32 {
        match &self.role {
            Role::Client(client) => client.request,
            Role::Server(server) => server.response.len() as u32,
        }
    }

    /// How long a connection waits for what a peer must do that acknowledges everything: as long as it would have
    /// repeated itself.
    fn time_limit(&self) -> Nanos {
        self.retransmit << self.retries
    }

    /// The timer of a connection has ended.
    pub fn timer<F: Family>(&mut self, core: &mut EngineCore<F>, now: Nanos, slot: u32, transmit: &mut impl Transmit) {
        let connection = &core.table.all[slot as usize];
        let waiting = connection.in_flight() == 0;
        match connection.state {
            State::Free | State::Asked => {}
            State::TimeWait => core.close(slot),
            State::Resting => self.rested(core, now, slot, transmit),
            State::FinWait2 => core.fail(slot),
            State::Established if waiting => {
                self.send_reset(core, slot, transmit);
                self.fail(core, now, slot);
            }
            _ => self.again(core, now, slot, transmit),
        }
    }

    /// The next request is due.
    fn rested<F: Family>(&mut self, core: &mut EngineCore<F>, now: Nanos, slot: u32, transmit: &mut impl Transmit) {
        let Role::Client(client) = &self.role else { return };
        // A request that waits for its turn has no timer; one that waits for the peer's window has one.
        if matches!(&client.pace, RequestPace::Rate(requests) if requests.has(slot)) {
            return;
        }
        if client.opener.stopped {
            if !client.opener.leaves(now) {
                self.finish(core, now, slot, transmit);
            }
            return;
        }
        self.send_request(core, now, slot, transmit);
    }

    /// Nothing was heard of what was sent last: it is sent again, from the first byte that is not acknowledged.
    fn again<F: Family>(&mut self, core: &mut EngineCore<F>, now: Nanos, slot: u32, transmit: &mut impl Transmit) {
        let connection = &mut core.table.all[slot as usize];
        let retries = connection.retries() + 1;
        if retries > self.retries {
            return self.fail(core, now, slot);
        }
        connection.set_retries(retries);
        match self.role {
            Role::Client(_) => connection.stamp = self.unit.hold(connection.stamp, now),
            Role::Server(_) => connection.set_window(1),
        }
        self.send_again(core, slot, transmit);
        core.set_timer(slot, now + (self.retransmit << retries));
    }

    /// The client has had its last response and closes.
    fn finish<F: Family>(&mut self, core: &mut EngineCore<F>, now: Nanos, slot: u32, transmit: &mut impl Transmit) {
        let Role::Client(client) = &self.role else { return };
        if client.close == CloseMethod::Reset {
            self.send_reset(core, slot, transmit);
            return core.close(slot);
        }
        self.send_fin(core, now, slot, State::FinWait1, transmit);
    }

    /// Both sides have closed, this one first.
    fn wait_out<F: Family>(&mut self, core: &mut EngineCore<F>, now: Nanos, slot: u32) {
        if self.time_wait == 0 {
            return core.close(slot);
        }
        core.table.all[slot as usize].state = State::TimeWait;
        core.set_timer(slot, now + self.time_wait);
    }
}

/// The first sequence number of a connection. It grows with time, so that a peer that still remembers an earlier
/// connection between the same ends sees a later one (RFC 6528, with a hash that is no secret).
pub(super) fn first_number(key: Key, now: Nanos) -> u32 {
    let hash = (key.0.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 32) as u32;
    Unit::FINEST.of(now).0.wrapping_add(hash)
}
